"""Filters: which rows match, which frames and files are skipped, and how invalid filters are refused."""

from __future__ import annotations

import pickle
import re
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fake_store import FRAMES_CODEC, ROWS
from filtered import BATCH, ROW, ids
from hypothesis import given
from hypothesis import strategies as st

from logwright.codec.fault import UsageError
from logwright.codec.window import Frames
from logwright.formats.jsonl import to_lines
from logwright.readers.filter import Filter, understand


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (("id", "=", 2), [2]),
        (("id", "==", "2"), [2]),
        (("id", "==", "0x2"), [2]),
        (("id", "!=", 2), [1, 3, 4]),
        (("id", "<", 2), [1]),
        (("id", "<=", 2), [1, 2]),
        (("id", ">", np.int64(2)), [3, 4]),
        (("id", ">=", 2.0), [2, 3, 4]),
        (("id", ">=", 1.5), [2, 3, 4]),
        (("id", "<", 2.5), [1, 2]),
        (("id", "==", 2.5), []),
        (("id", "!=", 2.5), [1, 2, 3, 4]),
        (("id", "in", [1, 4, 99]), [1, 4]),
        (("id", "not in", {1, 4}), [2, 3]),
        (("id", "in", []), []),
        (("id", "<", 10**30), [1, 2, 3, 4]),
        (("id", ">", 10**30), []),
        (("id", ">", -(10**30)), [1, 2, 3, 4]),
        (("id", "==", 10**30), []),
        (("id", "!=", 10**30), [1, 2, 3, 4]),
        (("place", "<", 10**12), [1, 2, 4]),
        (("place", "not in", [1]), [2]),
        (("place", "in", [None, 7]), [2, 3]),
        (("place", "not in", [None, 7]), [1, 4]),
        (("text", "==", "a"), [1]),
        (("text", "==", b"\xff"), [4]),
        (("text", ">=", bytearray(b"a")), [1, 4]),
        (("text", "==", ""), [2]),
        (("text", "=", None), [3]),
        (("text", "!=", None), [1, 2, 4]),
        (("text", "!=", b"a"), [2, 4]),
        (("directory", "=", "crate"), [4]),
        (("even", "=", "true"), [1, 4]),
        (("even", "=", False), [2]),
        (("time", ">=", 2000), [2, 4]),
        (("time", ">=", "2000"), [2, 4]),
        (("time", ">", datetime(1970, 1, 1, 0, 0, 2)), [4]),
        (("time", ">=", datetime(1970, 1, 1, 1, 0, 2, tzinfo=timezone(timedelta(hours=1)))), [2, 4]),
        (("time", ">=", np.datetime64("1970-01-01T00:00:02")), [2, 4]),
        (("time", "==", "1970-01-01T00:00:02Z"), [2]),
        (("time", "==", "1970-01-01T00:00:02.0005Z"), []),
        (("time", ">", "1970-01-01T00:00:01.9999Z"), [2, 4]),
        (("time", "<", "1970-01-01T00:00:02.000001+00:00"), [1, 2]),
        (("time", ">", date(1969, 12, 31)), [1, 2, 4]),
        (("time", "<", "1970-01-02"), [1, 2, 4]),
        ([("id", ">", 1), ("even", "=", True)], [4]),
        ([[("id", "=", 1)], [("even", "=", False)], [("id", "=", 4), ("text", "=", "no")]], [1, 2]),
        (pc.field("id") > 2, [3, 4]),
        ((pc.field("id") > 2) & pc.field("text").is_valid(), [4]),
    ],
)
def test_filter_keeps_the_matching_rows(condition: Any, expected: list[int]) -> None:
    assert ids(condition) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id >= 2", [2, 3, 4]),
        ("id>=2 and text = a", []),
        ("id=1 or id=4", [1, 4]),
        ("id > 1 AND id < 3 OR directory == crate", [2, 4]),
        ("text = null", [3]),
        ("text != null and id != 1", [2, 4]),
        ('directory = "crate"', [4]),
        ("directory in (crate, 'a, b (c)')", [4]),
        ("id not in (1,2)", [3, 4]),
        ("time >= 1970-01-01T00:00:02Z", [2, 4]),
        ("(id = 1 or id = 2) and id != 1", [2]),
        ("id >= 1 and(id = 1 or (id = 2 or id = 4) and id > 2)", [1, 4]),
        (" ( id in (1, 2) ) ", [1, 2]),
    ],
)
def test_text_filter_keeps_the_matching_rows(text: str, expected: list[int]) -> None:
    assert ids(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("text == x'ff'", [4]),
        ("text == X'FF'", [4]),
        ('text == {"$hex": "ff"}', [4]),
        ('text=={ "$hex":"ff" }', [4]),
        ('text in (x\'ff\', {"$hex": "61"})', [1, 4]),
        ("text not in (x'ff',x'')", [1]),
        ("text == x'' or text >= x'62' and id > 3", [2, 4]),
        ("text == x", []),
        ('text == "\\u0061"', [1]),
        ("text == '\\u0061'", []),
    ],
)
def test_text_takes_hexadecimal_bytes_and_json_strings(text: str, expected: list[int]) -> None:
    assert ids(text) == expected


@pytest.mark.parametrize("data", [bytes(range(256)), b"\0\0\0\7", b'a "b" \\ c', b"it's", b"\xff"])
def test_text_takes_values_as_json_output_prints_them(data: bytes) -> None:
    batch = pa.RecordBatch.from_pylist([{**ROW, "id": 1, "time": 1, "text": data}], schema=BATCH.schema)
    printed = to_lines(batch.select(["text"])).decode().strip()
    value = printed.removeprefix('{"text":').removesuffix("}").strip()
    matcher = understand(f"id >= 0 and text == {value} and id < 9", ROWS)
    assert matcher is not None
    assert matcher.apply(batch).num_rows == 1
    assert understand(("text", "==", {"$hex": data.hex()}), ROWS).apply(batch).num_rows == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (("ids", "=", 1), "Did you mean 'id'"),
        (("id", "~", 1), "Valid values: =="),
        (("id", "=", "one"), "is not a valid int64"),
        (("id", "=", True), "is not a valid int64"),
        (("even", "=", 3), "is not a valid bool"),
        (("directory", "=", 3), "is not a valid string"),
        (("text", "=", 3), "is not a valid binary"),
        (("time", "=", "yesterday"), "is not a valid timestamp"),
        (("words", "=", "a"), "cannot be compared"),
        (("id", "in", 3), "needs a list"),
        (("id", "in", "abc"), "needs a list"),
        (("id", "<", None), "null can only be compared"),
        ([("id", "=")], "column, operator, value"),
        ([["id", "=", 1]], "column, operator, value"),
        ([1, 2], "invalid filter"),
        (5, "invalid filter"),
        ([[]], "invalid filter"),
        ("id", "syntax error at"),
        ("id ==", "syntax error at"),
        ("id >=", "syntax error at"),
        ("id == =1", "syntax error at"),
        ("id >= 1 id < 4", "expected `and` or `or` before"),
        ("id >= 1)", "expected `and` or `or` before"),
        ("(id >= 1", "expected `)` at the end"),
        ("(id >= 1 id < 4)", "expected `)` before 'id < 4)'"),
        ("()", "syntax error at"),
        ("", "syntax error at ''"),
        ("(" * 10_000 + "id = 1", "nested parentheses"),
        (" and ".join(["(id = 1 or id = 2)"] * 30), "too many combinations"),
        ("id >= (1, 2)", "cannot be used with"),
        ("id in 5", "cannot be used with"),
        ("text == x'0'", "two hexadecimal digits"),
        ("text == x'0g'", "is not hexadecimal"),
        ('text == {"$hex": "0"}', "is not hexadecimal"),
        (("text", "==", {"$hex": "0"}), "is not a valid binary"),
        ("directory == x'00'", "is not a valid string"),
        ('directory == "a\\d"', "is not a JSON string"),
        ("text in (" + "x'00' " * 200, "syntax error at"),
        (pc.field("idd") > 2, "Did you mean 'id'"),
        (pc.field("zzzzzz") > 2, "no column"),
        (pc.field("id") == "x", "cannot be applied to these columns"),
    ],
)
def test_invalid_filter_is_refused(condition: Any, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        understand(condition, ROWS)


@pytest.mark.parametrize("condition", [None, [], ()])
def test_empty_filter_matches_everything(condition: Any) -> None:
    assert understand(condition, ROWS) is None


def test_filter_knows_the_columns_it_reads() -> None:
    assert Filter([("id", "=", 1), ("text", "=", "x")], ROWS).columns == ("id", "text")
    assert Filter((pc.field("even") & pc.field("directory").is_null()), ROWS).columns == ("even", "directory")
    row_filter = Filter("id = 1", ROWS)
    assert understand(row_filter, ROWS) is row_filter
    assert pickle.loads(pickle.dumps(row_filter)).columns == ("id",)
    assert row_filter.apply(BATCH.slice(0, 0)).num_rows == 0


# Pruning


def frames(*ids: int) -> Frames:
    """Frames of ten bytes. An id can be up to ten greater than the id of its frame."""
    starts = np.arange(len(ids), dtype=np.int64) * 10
    header = np.array([(id,) for id in ids], dtype=[("id", "i8")])
    return Frames(starts, starts + 10, header, 0)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (("id", "=", 105), [False, True, False]),
        (("id", ">", 110), [False, False, True]),
        (("id", ">=", 110), [False, True, True]),
        (("id", "<", 100), [True, False, False]),
        (("id", "<=", 100), [True, True, False]),
        (("id", "in", [3, 205]), [True, False, True]),
        (("id", "in", []), [False, False, False]),
        (("id", "not in", [3]), [True, True, True]),
        (("id", "!=", 3), [True, True, True]),
        (("id", "=", None), [True, True, True]),
        (("id", ">", 10**30), [False, False, False]),
        (("time", ">=", "1970-01-01T00:03:20Z"), [False, False, True]),
        ([[("id", "=", 5)], [("time", "=", 205_000)]], [True, False, True]),
        ([[("id", "=", 5)], [("text", "=", "x")]], [True, True, True]),
        ([("id", ">", 50), ("text", "=", "x")], [False, True, True]),
    ],
)
def test_frames_without_matches_are_skipped(condition: Any, expected: list[bool]) -> None:
    kept = Filter(condition, ROWS).frames(FRAMES_CODEC, frames(0, 100, 200))
    assert kept is not None
    assert kept.tolist() == expected


def test_filter_on_a_column_without_bounds_skips_no_frame() -> None:
    assert Filter(("text", "=", "x"), ROWS).frames(FRAMES_CODEC, frames(1)) is None
    assert Filter(pc.field("id") > 3, ROWS).frames(FRAMES_CODEC, frames(1)) is None


@pytest.mark.parametrize(
    ("condition", "bounds", "skipped"),
    [
        (("id", ">=", 10), {"id": (0, 9)}, True),
        (("id", ">=", 9), {"id": (0, 9)}, False),
        (("id", ">=", 10), {"id": (0, None)}, False),
        (("id", "<", 0), {"id": (0, None)}, True),
        (("id", "!=", 4), {"id": (4, 4)}, True),
        (("id", "!=", 4), {"id": (4, 5)}, False),
        (("text", "=", "x"), {"id": (0, 9)}, False),
        ([[("id", "=", 99)], [("text", "=", "x")]], {"id": (0, 9)}, False),
        (("id", ">=", 10), {}, False),
        (pc.field("id") > 100, {"id": (0, 9)}, False),
    ],
)
def test_files_without_matches_are_skipped(condition: Any, bounds: Any, skipped: bool) -> None:
    assert Filter(condition, ROWS).skips(bounds) is skipped


VALUES = st.one_of(st.integers(-5, 25), st.floats(-5, 25, allow_nan=False))
TERM = st.one_of(
    st.tuples(st.just("id"), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), VALUES),
    st.tuples(st.just("id"), st.sampled_from(["in", "not in"]), st.lists(VALUES, max_size=3)),
)


@given(
    st.lists(st.lists(TERM, min_size=1, max_size=3), min_size=1, max_size=3),
    st.integers(0, 20),
    st.integers(0, 5),
)
def test_skipped_frames_never_match(groups: Any, low: int, span: int) -> None:
    row_filter = Filter(groups, ROWS)
    batch = pa.RecordBatch.from_pylist(
        [{**ROW, "id": low + i} for i in range(span + 1)], schema=ROWS.schema(ROWS.names(detail=True))
    )
    matches = row_filter.apply(batch).column("id").to_pylist()
    ops = {"=": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "in": "in", "not in": "not in"}
    expected = [
        id for id in range(low, low + span + 1)
        if any(all(eval(f"id {ops[op]} value", {"id": id, "value": value}) for _, op, value in group) for group in groups)
    ]  # fmt: skip
    assert matches == expected
    if matches:
        assert not row_filter.skips({"id": (low, low + span)})


def test_times_are_utc() -> None:
    assert ids(("time", "==", datetime(1970, 1, 1, 0, 0, 4, tzinfo=UTC))) == [4]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("text is null", [3]),
        ("text IS NOT NULL", [1, 2, 4]),
        ("not id == 2", [1, 3, 4]),
        ("NOT (id == 2 or id > 3)", [1, 3]),
        ("not (id > 1 and even == true)", [1, 2]),
        ("not not id == 2", [2]),
        ("not id == 1 and not id == 2", [3, 4]),
        ("not place == 7", [1, 4]),
        ("not (place is null)", [1, 2, 4]),
        ("not id in (1, 2) and directory not in (box)", [4]),
        ("id == 1 or not(id < 4)", [1, 4]),
    ],
)
def test_negation_and_tests_for_null_are_those_of_sql(text: str, expected: list[int]) -> None:
    assert ids(text) == expected


_COMPARISONS = st.sampled_from(
    ["id == 2", "id > 1", "id in (1, 3)", "id not in (2)", "id <= 3", "not id == 4", "id is null", "id != 1"]
)


@given(st.recursive(_COMPARISONS, lambda one: st.tuples(one, st.sampled_from(["and", "or"]), one).map(
    lambda parts: f"({' '.join(parts)})"), max_leaves=6))  # fmt: skip
def test_negation_matches_the_other_rows_if_no_value_is_null(text: str) -> None:
    assert sorted(ids(text) + ids(f"not {text}")) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id is 5", "is cannot be used with 5"),
        ("id is not (1)", "is not cannot be used with"),
        ("not", "syntax error"),
        ("not and id == 5", "syntax error"),
        ("not " * 60 + "id == 5", "more than 50 nested"),
        ("not (" + " or ".join(["(id == 1 and id == 2)"] * 20) + ")", "too many combinations"),
    ],
)
def test_invalid_negations_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        ids(text)
