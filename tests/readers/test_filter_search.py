"""Filters that search in text and bytes, `contains` and `like`, alone and in the commands that take a filter."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fake_store import ROWS
from filtered import ROW, ids
from hypothesis import given
from hypothesis import strategies as st

import logwright as lw
from logwright.codec.fault import UsageError
from logwright.readers.filter import understand


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (("directory", "contains", "o"), [1, 2]),
        (("directory", "contains", b"rat"), [4]),
        ("directory CONTAINS 'rat' or id == 1", [1, 4]),
        (("text", "contains", b"\xff"), [4]),
        ("text contains x'ff'", [4]),
        ('text contains {"$hex": "61"} and id < 4', [1]),
        ("text contains a", [1]),
        ("text contains b", []),
        ("text not contains a", [2, 4]),
        ("not directory contains o", [4]),
        ("directory like 'b%'", [1, 2]),
        ("directory LIKE '%o_'", [1, 2]),
        ("directory like box", [1, 2]),
        ("directory like b", []),
        ("directory not like 'b%'", [4]),
        (("directory", "not like", "%a%"), [1, 2]),
        (("text", "like", b"\xff%"), [4]),
        ("text like '_'", [1, 4]),
        ("text like '%'", [1, 2, 4]),
    ],
)
def test_contains_and_like_search_text_and_bytes(condition: Any, expected: list[int]) -> None:
    assert ids(condition) == expected


@given(st.lists(st.none() | st.binary(max_size=6)), st.binary(min_size=1, max_size=2))
def test_contains_equals_python_on_any_bytes(values: list[bytes | None], part: bytes) -> None:
    rows = [{**ROW, "id": i, "time": None, "text": value} for i, value in enumerate(values)]
    batch = pa.RecordBatch.from_pylist(rows, schema=ROWS.schema(ROWS.names(detail=True)))
    matcher = understand(("text", "contains", part), ROWS)
    assert matcher is not None
    expected = [i for i, value in enumerate(values) if value is not None and part in value]
    assert matcher.apply(batch).column("id").to_pylist() == expected


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (("id", "contains", 1), "searches text and bytes"),
        (("text", "contains", b""), "needs text or bytes"),
        (("text", "contains", None), "needs text or bytes"),
        ("text contains null", "needs text or bytes"),
        (("directory", "contains", b"\xff"), "is not UTF-8"),
        ("text contains (a, b)", "cannot be used with"),
        (("id", "like", "1%"), "like searches text and bytes"),
        (("text", "not like", None), "not like needs text or bytes"),
        ("text like (a, b)", "cannot be used with"),
        (("text", "like", b"a\\"), "ends in a backslash"),
        (("directory", "not like", "\\\\\\"), "ends in a backslash"),
    ],
)
def test_invalid_contains_and_like_are_refused(condition: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        understand(condition, ROWS)


def test_contains_skips_no_matching_frame() -> None:
    part = understand("text contains a", ROWS)
    assert part is not None
    assert not part.skips({"text": (b"x", b"z")})


_PATTERN_BYTES = st.lists(st.sampled_from([b"a", b"b", b"\xff", b"\xfe", b"%", b"_", b"\\"]), max_size=5).map(
    b"".join
)


def _like(pattern: bytes) -> re.Pattern[bytes]:
    """Return the pattern of SQL as a regular expression."""
    parts = re.findall(rb"\\(?s:.)|(?s:.)", pattern)
    wild = {b"%": b".*", b"_": b"."}
    return re.compile(b"".join(wild.get(part, re.escape(part[-1:])) for part in parts), re.DOTALL)


@given(
    st.lists(_PATTERN_BYTES | st.none()),
    _PATTERN_BYTES.filter(lambda each: each and (len(each) - len(each.rstrip(b"\\"))) % 2 == 0),
)
def test_like_equals_the_rule_of_sql_and_skips_no_match(values: list[bytes | None], pattern: bytes) -> None:
    rows = [{**ROW, "id": i, "time": None, "text": value} for i, value in enumerate(values)]
    batch = pa.RecordBatch.from_pylist(rows, schema=ROWS.schema(ROWS.names(detail=True)))
    for op, matches in (("like", True), ("not like", False)):
        matcher = understand(("text", op, pattern), ROWS)
        assert matcher is not None
        expected = [
            i for i, value in enumerate(values)
            if value is not None and bool(_like(pattern).fullmatch(value)) is matches
        ]  # fmt: skip
        assert matcher.apply(batch).column("id").to_pylist() == expected
        matching = [value for i, value in enumerate(values) if value is not None and i in expected]
        assert not any(matcher.skips({"text": (value, value)}) for value in matching)
        assert not (matching and matcher.skips({"text": (min(matching), max(matching))}))


def test_like_skips_values_without_the_start_of_the_pattern() -> None:
    pattern = understand("text like 'user-1%'", ROWS)
    assert pattern is not None
    assert pattern.skips({"text": (b"user-2", b"user-3")})
    assert pattern.skips({"text": (b"a", b"user-0")})
    assert not pattern.skips({"text": (b"a", b"user-10")})
    assert not pattern.skips({"text": (b"user-1", None)})


def test_contains_selects_the_same_rows_in_read_convert_and_edit(tmp_path: Path) -> None:
    rows = [{"key": f"user-{i}".encode(), "value": b"\0\xfftoken" if i % 3 else b"none"} for i in range(30)]
    lw.write(rows, tmp_path / "db", "leveldb.db")
    lw.write(rows, tmp_path / "orders-0", "kafka.partition")
    for name in ("db", "orders-0"):
        place = tmp_path / name
        for filter in ("value contains token", [("value", "contains", b"token")], "value contains x'00ff'"):
            assert lw.read(place, filter=filter).num_rows == 20
        done = lw.convert(
            place, tmp_path / f"{name}.parquet", filter="value contains token and key contains '-2'"
        )
        assert done["rows"] == 8
        (tmp_path / "edited").mkdir(exist_ok=True)
        lw.edit(place, tmp_path / "edited" / name, drop="value contains x'00ff'")
        assert lw.read(tmp_path / "edited" / name).column("value").unique().to_pylist() == [b"none"]


def test_like_selects_subtrees_and_ranges_of_keys(tmp_path: Path) -> None:
    lw.write([{"key": f"user-{i:03}", "value": b""} for i in range(300)], tmp_path / "db", "leveldb.db")
    assert lw.read(tmp_path / "db", filter="key like 'user-12%'").num_rows == 10
    assert lw.read(tmp_path / "db", filter="key not like 'user-12%'").num_rows == 290
    lw.write(
        [{"path": path, "data": b""} for path in ("/a", "/a/b", "/a/b/c", "/ab")],
        tmp_path / "zk",
        "zookeeper.datadir",
    )
    chosen = lw.read(tmp_path / "zk", filter="path like '/a/%'").column("path").to_pylist()
    assert sorted(chosen) == ["/a/b", "/a/b/c"]
