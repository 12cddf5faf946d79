"""Snapshots from rows: missing parents, derived counters, digests and checksums; and changed rows of an existing file."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from logwright.codec.fault import UsageError
from logwright.codec.zookeeper.formats.snapshot.tables import ROWS
from logwright.corpora import cases
from logwright.readers.stream import Mode
from logwright.roundtrip import laws
from logwright.roundtrip.specimen import Specimen

GOLDEN = cases.cases("zookeeper")["dmg_base"].path / "version-2" / "snapshot.16"
SYSTEM = ["/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"]
WORLD = [{"perms": 31, "scheme": "world", "id": "anyone"}]
ADMIN = [{"perms": 31, "scheme": "digest", "id": "admin:x"}]


def table(*rows: dict[str, Any]) -> pa.Table:
    names = [name for name in ROWS.names(detail=True) if any(name in row for row in rows)]
    return pa.Table.from_pylist(list(rows), ROWS.schema(names))


def encoded(rows: pa.Table, name: str = "snapshot.9", **options: Any) -> Specimen:
    empty = Specimen.of(b"", "zookeeper.snapshot", name, **options)
    return empty.with_bytes(empty.encode(rows))


def by_path(specimen: Specimen) -> dict[str, dict[str, Any]]:
    result = specimen.read(mode=Mode.FAILFAST)
    assert not result.report.faults
    return {row["path"]: row for row in result.table.to_pylist()}


def facts(specimen: Specimen) -> dict[str, Any]:
    (item,) = specimen.read("file").table.to_pylist()
    return item


def node_digest(row: dict[str, Any]) -> int:
    """A separate implementation after the format's specification, without kernels."""
    path = b"" if row["path"] == "/" else row["path"].encode()
    numbers = b"".join(
        row[name].to_bytes(8, "big", signed=True)
        for name in ("czxid", "mzxid", "pzxid", "ctime_ms", "mtime_ms")
    )
    counters = b"".join(
        row[name].to_bytes(4, "big", signed=True) for name in ("version", "stored_cversion", "aversion")
    )
    owner = {"container": 1 << 63, "ttl": 0xFF << 56 | (row["ttl"] or 0)}.get(
        row["kind"], row["ephemeral_owner"] % (1 << 64)
    )
    return zlib.crc32(path + (row["data"] or b"") + numbers + counters + owner.to_bytes(8, "big"))


def tree_digest(rows: dict[str, dict[str, Any]]) -> int:
    total = sum(node_digest(row) for path, row in rows.items() if not path.startswith("/zookeeper/"))
    return total - (total >> 63 << 64)


def test_missing_parents_are_created() -> None:
    rows = by_path(encoded(table({"path": "/a/b/c", "data": b"x"}, {"path": "/a", "data": None})))
    assert list(rows) == ["/", "/a", "/a/b", "/a/b/c", *SYSTEM[1:]]
    assert rows["/a/b"]["data"] == b""
    assert rows["/a"]["data"] is None
    assert rows["/a/b"]["czxid"] == 9
    assert rows["/a"]["acl"] == WORLD
    assert rows["/zookeeper/config"]["acl"] == [{"perms": 1, "scheme": "world", "id": "anyone"}]


def test_counters_of_parents_are_derived_from_their_children() -> None:
    rows = by_path(
        encoded(table({"path": "/a", "czxid": 3}, {"path": "/a/x", "czxid": 5}, {"path": "/a/y", "czxid": 4}))
    )
    assert (rows["/a"]["stored_cversion"], rows["/a"]["pzxid"]) == (2, 5)
    assert (rows["/"]["stored_cversion"], rows["/"]["pzxid"]) == (1, 3)
    assert rows["/a/x"]["pzxid"] == 5
    assert rows["/a"]["mzxid"] == 3
    assert rows["/zookeeper"]["stored_cversion"] == 0


def test_cversion_as_a_client_sees_it() -> None:
    rows = pa.table({"path": ["/a", "/a/x", "/b"], "cversion": pa.array([7, 0, None], pa.int32())})
    actual = by_path(encoded(rows))
    # 7 = 2 * 4 - 1
    assert [actual[path]["stored_cversion"] for path in ("/a", "/a/x", "/b")] == [4, 0, 0]


@pytest.mark.parametrize(
    "paths", [["/a", "/a/b", "/a-b", "/a/c"], ["/b", "/a"], ["/a/b/c", "/a-b/c", "/a/b"]]
)
def test_rows_may_come_in_any_order(paths: list[str]) -> None:
    actual = by_path(encoded(pa.table({"path": paths})))
    seen: set[str] = set()
    for path in actual:
        assert path == "/" or (path.rpartition("/")[0] or "/") in seen
        seen.add(path)
    assert set(paths) <= seen


def test_valid_order_of_rows_is_kept() -> None:
    paths = ["/", "/z", "/z/b", "/z/a", "/a", *SYSTEM[1:]]
    assert list(by_path(encoded(pa.table({"path": paths})))) == paths


def test_equal_acls_are_stored_once() -> None:
    specimen = encoded(
        table(
            {"path": "/a", "acl": ADMIN},
            {"path": "/b", "acl": WORLD},
            {"path": "/c", "acl": ADMIN},
            {"path": "/d", "acl": [*ADMIN, *WORLD]},
            {"path": "/e", "acl": None},
            {"path": "/f", "acl": []},
        )
    )
    rows = by_path(specimen)
    assert [rows[f"/{item}"]["acl_id"] for item in "abcdef"] == [1, -1, 1, 2, -1, 3]
    assert rows["/d"]["acl"] == [*ADMIN, *WORLD]
    assert rows["/f"]["acl"] == []
    assert len(facts(specimen)["acls"]) == 4


def test_missing_kind_is_derived_from_owner_and_ttl() -> None:
    specimen = encoded(
        table(
            {"path": "/e", "ephemeral_owner": 1 << 56},
            {"path": "/c", "kind": "container"},
            {"path": "/t", "kind": "ttl", "ttl": 99},
            {"path": "/u", "ttl": 7, "kind": None},
            {"path": "/f", "ephemeral_owner": 1 << 56, "kind": "ephemeral"},
        )
    )
    rows = by_path(specimen)
    assert [rows[f"/{item}"]["kind"] for item in "ectuf"] == [
        "ephemeral",
        "container",
        "ttl",
        "ttl",
        "ephemeral",
    ]
    assert [rows[f"/{item}"]["ttl"] for item in "ectuf"] == [None, None, 99, 7, None]
    assert facts(specimen)["sessions"] == [{"session_id": 1 << 56, "timeout": 30000}]


def test_ttl_column_alone_sets_the_kind() -> None:
    rows = by_path(encoded(pa.table({"path": ["/t", "/p"], "ttl": pa.array([5, None], pa.int64())})))
    assert [rows[path]["kind"] for path in ("/t", "/p")] == ["ttl", "persistent"]


def test_existing_acl_list_is_reused() -> None:
    specimen = Specimen.of(GOLDEN)
    rows, _, file = specimen.tables()
    actual = specimen.with_bytes(specimen.encode(rows.drop_columns(["acl_id"]), None, file))
    assert facts(actual)["acls"] == facts(specimen)["acls"]
    assert {row["acl_id"] for row in by_path(actual).values()} <= {1, 2, -1}


def test_parents_of_a_deep_path_are_created() -> None:
    """All parents are created."""
    rows = by_path(encoded(pa.table({"path": ["/a" * 300]})))
    assert len(rows) == 300 + 4
    assert rows["/a" * 299]["stored_cversion"] == 1


def test_digest_and_last_zxid_are_computed_from_the_nodes() -> None:
    specimen = encoded(
        table(
            {"path": "/a", "data": b"1", "czxid": 3, "kind": "container"},
            {"path": "/b", "data": None, "version": -1},
            {"path": "/zookeeper/x", "data": b"not in it"},
        )
    )
    message = facts(specimen)
    assert message["digest"] == tree_digest(by_path(specimen))
    assert (message["digest_zxid"], message["digest_version"], message["last_processed_zxid"]) == (9, 2, 9)


def test_zxid_comes_from_the_name_or_the_rows() -> None:
    rows = table({"path": "/a", "czxid": 44})
    assert facts(encoded(rows, "tree"))["digest_zxid"] == 44
    assert facts(encoded(rows, "snapshot.50"))["last_processed_zxid"] == 0x50
    assert facts(encoded(rows, "snapshot.50", zxid=200))["digest_zxid"] == 200


@pytest.mark.parametrize(
    ("name", "options", "head"),
    [
        ("snapshot.5.gz", {}, b"\x1f\x8b"),
        ("snapshot.5.snappy", {}, b"\x82SNAPPY\x00"),
        ("snapshot.5", {}, b"ZKSN"),
        ("snapshot.5.gz", {"snapshot.compression.method": "none"}, b"ZKSN"),
    ],
)
def test_snapshot_is_compressed_as_its_name_or_option_says(
    name: str, options: dict[str, str], head: bytes
) -> None:
    specimen = encoded(table({"path": "/a", "data": b"x" * 100_000}), name, **options)
    assert specimen.data.startswith(head)
    if options:
        return
    rows = by_path(specimen)
    assert rows["/a"]["data"] == b"x" * 100_000
    assert laws.decode_encode(specimen)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (pa.table({"data": [b"x"]}), "needs a column 'path'"),
        (pa.table({"path": ["/a", None]}), "the path of row 1 is null"),
        (pa.table({"path": ["/a", "/b", "/a"]}), "the path '/a' of row 2 occurred before"),
        (pa.table({"path": ["/a", "/a"]}), "row 1 occurred before"),
        (pa.table({"path": ["a"]}), "'a' is not a valid node path"),
        (pa.table({"path": ["/a/"]}), "not a valid node path"),
        (pa.table({"path": ["/a//b"]}), "not a valid node path"),
        (pa.table({"path": ["/a/../b"]}), "not a valid node path"),
        (pa.table({"path": ["/."]}), "not a valid node path"),
        (pa.table({"path": ["/a\x00"]}), "not a valid node path"),
        (pa.table({"path": ["/a/\x85"]}), "not a valid node path"),
        (pa.table({"path": ["/\ue000x"]}), "not a valid node path"),
        (pa.table({"path": ["/\ufffd"]}), "not a valid node path"),
        (pa.table({"path": ["/\U0001f600"]}), "not a valid node path"),
        (pa.table({"path": ["/a"], "version": ["x"]}), "column 'version' is not int32"),
        (pa.table({"path": ["/a"], "kind": ["odd"]}), "the kind of row 0, 'odd', is not one of"),
        (pa.table({"path": ["/a"], "kind": ["ttl"]}), "needs a column 'ttl'"),
        (pa.table({"path": ["/a"], "ttl": [1 << 40]}), "the ttl of row 0"),
    ],
)
def test_rows_that_are_not_a_tree_are_refused(rows: pa.Table, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        encoded(rows)


# Rows of a file, changed


def _changed(**values: Any) -> Specimen:
    """The golden file with these values in the row of /app/d0-4."""
    specimen = Specimen.of(GOLDEN)
    rows, frames, file = specimen.tables()
    listed = rows.to_pylist()
    next(row for row in listed if row["path"] == "/app/d0-4").update(values)
    return specimen.with_bytes(specimen.encode(pa.Table.from_pylist(listed, rows.schema), frames, file))


def test_changed_data_changes_the_digest() -> None:
    specimen = _changed(data=b"something else")
    rows = by_path(specimen)
    assert rows["/app/d0-4"]["data"] == b"something else"
    before, after = facts(Specimen.of(GOLDEN)), facts(specimen)
    assert after["digest"] == tree_digest(rows) != before["digest"]
    assert {**after, "digest": 0, "size": 0} == {**before, "digest": 0, "size": 0}


def test_changed_acl_takes_precedence_over_its_stored_number() -> None:
    """Core columns take precedence: the row's old number belongs to another list."""
    specimen = _changed(acl=ADMIN)
    rows = by_path(specimen)
    assert rows["/app/d0-4"]["acl"] == ADMIN
    assert facts(specimen)["acls"][:-1] == facts(Specimen.of(GOLDEN))["acls"]
    assert sum(row["acl_id"] == rows["/app/d0-4"]["acl_id"] for row in rows.values()) == 1
    assert _changed(acl=WORLD).data != specimen.data


def test_dropped_node_is_not_written() -> None:
    specimen = Specimen.of(GOLDEN)
    rows, frames, file = specimen.tables()
    keep = [path != "/app/d0-4" for path in rows["path"].to_pylist()]
    actual = by_path(specimen.with_bytes(specimen.encode(rows.filter(pa.array(keep)), frames, file)))
    assert len(actual) == len(rows) - 1
    assert "/app/d0-4" not in actual


def test_changed_row_of_a_compressed_file() -> None:
    path = cases.cases("zookeeper")["snap_gz"].path / "version-2" / "snapshot.42.gz"
    specimen = Specimen.of(path)
    rows, frames, file = specimen.tables()
    data = [b"new", *rows["data"].to_pylist()[1:]]
    changed = rows.set_column(rows.schema.get_field_index("data"), "data", pa.array(data, pa.binary()))
    actual = by_path(specimen.with_bytes(specimen.encode(changed, frames, file)))
    assert actual["/"]["data"] == b"new"
    assert len(actual) == len(rows)


PAIR = b"\xed\xa0\xbd\xed\xb8\x80"
"""U+1F600 as ZooKeeper writes it, two surrogates; its own reader makes two U+FFFD of that."""


def test_paths_that_are_not_utf_8() -> None:
    """Stored bytes are kept; a changed text overrides them."""
    raw = [{"perms": 31, "scheme": b"sasl", "id": b"u" + PAIR}]
    text = [{"perms": 31, "scheme": "sasl", "id": "u\ufffd\ufffd"}]
    written = table(
        {"path": "/a", "acl": [{"perms": 31, "scheme": "sasl", "id": "u\U0001f600"}]},
        {"path": "/b", "acl": text, "acl_raw": raw},
        {"path": "/c", "acl": WORLD, "acl_raw": raw},
        {"path": "/\ufffd", "path_raw": b"/\xff"},
        {"path": "/d", "path_raw": b"/\xfe"},
    )
    specimen = encoded(written)
    rows = by_path(specimen)
    assert (rows["/a"]["acl"], rows["/a"]["acl_raw"]) == (text, raw)
    assert (rows["/b"]["acl"], rows["/b"]["acl_raw"]) == (text, raw)
    assert rows["/a"]["acl_id"] == rows["/b"]["acl_id"] == 1
    assert (rows["/c"]["acl"], rows["/c"]["acl_raw"]) == (WORLD, None)
    assert rows["/\ufffd"]["path_raw"] == b"/\xff"
    assert rows["/d"]["path_raw"] is None
    (acls,) = [row for row in specimen.read("acls").table.to_pylist() if row["acl_raw"] is not None]
    assert (acls["acl"], acls["acl_raw"]) == (text, raw)
    assert laws.decode_encode(specimen)
    assert laws.encode_without_payloads(specimen)


NAMES = st.text(
    st.characters(
        codec="utf-8",
        min_codepoint=0x20,
        max_codepoint=0xD7FF,
        exclude_characters="/\x7f" + "".join(map(chr, range(0x80, 0xA0))),
    ),
    min_size=1,
    max_size=3,
)
PATHS = st.lists(NAMES.filter(lambda name: name not in (".", "..")), min_size=1, max_size=4).map(
    lambda names: "/" + "/".join(names)
)
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(5000, 1, 1), timezones=st.just(UTC)).map(
    lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000)
)
LONGS = st.integers(0, (1 << 62))
ACLS = st.none() | st.lists(
    st.fixed_dictionaries(
        {
            "perms": st.integers(0, 31),
            "scheme": st.sampled_from(["world", "digest", "ip"]),
            "id": st.text(st.characters(codec="utf-8", max_codepoint=0xFFFF), max_size=3),
        }
    ),
    max_size=2,
)
NODES = st.dictionaries(
    PATHS,
    st.fixed_dictionaries(
        {
            "data": st.none() | st.binary(max_size=20),
            "acl": ACLS,
            "czxid": LONGS,
            "mzxid": LONGS,
            "ctime": TIMES,
            "mtime": TIMES,
            "version": st.integers(-(1 << 31), (1 << 31) - 1),
            "stored_cversion": st.integers(-(1 << 31), (1 << 31) - 1),
            "aversion": st.integers(-(1 << 31), (1 << 31) - 1),
            "pzxid": LONGS,
            "ephemeral_owner": st.integers(0, 1 << 56),
        }
    ),
    max_size=8,
)


@settings(max_examples=examples(25), deadline=None)
@given(nodes=NODES, compression=st.sampled_from(["none", "gz", "snappy"]))
def test_any_rows_round_trip(nodes: dict[str, dict[str, Any]], compression: str) -> None:
    rows = (
        table(*({"path": path, **node} for path, node in nodes.items()))
        if nodes
        else pa.table({"path": pa.array([], pa.string())})
    )
    name = "snapshot.9" if compression == "none" else f"snapshot.9.{compression}"
    specimen = encoded(rows, name)
    actual = specimen.read(mode=Mode.FAILFAST)
    assert not actual.report.faults
    by = {row["path"]: row for row in actual.table.to_pylist()}
    for row in rows.to_pylist():
        stored = by[row["path"]]
        for column, value in row.items():
            if column == "path":
                continue
            if column == "acl":
                value = WORLD if value is None else value
            assert stored[column] == value, column
    assert laws.decode_encode(specimen)
    assert facts(specimen)["digest"] is not None


@settings(max_examples=examples(10), deadline=None)
@given(nodes=NODES)
def test_kernels_read_what_the_description_says(nodes: dict[str, dict[str, Any]]) -> None:
    if nodes:
        verdict = laws.kernel_equals_description(
            encoded(table(*({"path": path, **node} for path, node in nodes.items())))
        )
        assert verdict, verdict
