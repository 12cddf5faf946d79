"""Writing data directories: any nodes, in any order and any chunking, in bounded memory; edits as transactions; what is refused, and in
which words."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_directory import MemoryDirectory

import logwright as lw
from logwright.codec import registry
from logwright.codec.fault import LogwrightError, UsageError
from logwright.codec.frames.walk import ListedFile
from logwright.codec.option import Options
from logwright.codec.store.build import Piece, take
from logwright.codec.zookeeper.names import parse
from logwright.codec.zookeeper.state.tree import Tree
from logwright.codec.zookeeper.store.write import of_tree
from logwright.corpora.cases import cases
from logwright.writers.staged import StagedWrite
from logwright.writers.write import Written

LAYOUT = registry.get_layout("zookeeper.datadir")
SNAPSHOT, TXNLOG = registry.get("zookeeper.snapshot"), registry.get("zookeeper.txnlog")
SYSTEM = {"/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"}
TYPES = {
    "path": pa.string(), "data": pa.binary(), "acl": SNAPSHOT.tables["rows"]["acl"].type, "czxid": pa.int64(), "ctime_ms": pa.int64(),
    "mtime_ms": pa.int64(), "version": pa.int32(), "kind": pa.string(), "ttl": pa.int64(), "ephemeral_owner": pa.int64(),
    "type": pa.string(), "session_id": pa.int64(), "zxid": pa.int64(), "ephemeral": pa.bool_(), "parent_cversion": pa.int32(),
    "txns": TXNLOG.tables["rows"]["txns"].type, "time_out": pa.int32(), "err": pa.int32(), "time_ms": pa.int64(), "sub": pa.int32(),
    "cversion": pa.int32(), "acl_id": pa.int64(), "cxid": pa.int32(), "mzxid": pa.int64(), "paths_to_delete": pa.list_(pa.string()),
}  # fmt: skip


def batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    names = [name for name in TYPES if any(name in row for row in rows)]
    return pa.RecordBatch.from_arrays(
        [pa.array([r.get(n) for r in rows], TYPES[n]) for n in names], names=names
    )


def build(
    batches: Iterable[pa.RecordBatch],
    there: dict[str, bytes] | None = None,
    extra: MemoryDirectory | None = None,
    **options: Any,
) -> dict[str, bytes]:
    """The files of a directory, or those that an append adds to it."""
    listing = None if there is None else MemoryDirectory(there, "version-2")
    builder = LAYOUT.builder(listing, "version-2", Options(LAYOUT.options, options), extra=extra)

    def pieces() -> Iterator[Piece]:
        for batch in batches:
            yield from builder.add(batch)
        yield from builder.finish()

    return take(pieces())


def put(files: dict[str, bytes], path: Path) -> Path:
    home = path / "version-2"
    home.mkdir(exist_ok=True, parents=True)
    for name, data in files.items():
        (home / name).write_bytes(data)
    return path


def content(files: dict[str, bytes], path: Path) -> dict[str, bytes | None]:
    """Paths and data as clients see them; nothing is wrong with the directory."""
    report = lw.verify(put(files, path))
    assert report.ok, report.text()
    table = lw.read(path)
    actual = dict(zip(table["path"].to_pylist(), table["data"].to_pylist(), strict=True))
    return {path: data for path, data in actual.items() if path not in SYSTEM}


def with_parents(rows: Iterable[dict[str, Any]]) -> dict[str, bytes | None]:
    """Return the tree of these rows; missing parents are empty."""
    inputs = {row["path"]: row["data"] for row in rows}
    for path in list(inputs):
        while path := path.rpartition("/")[0]:
            inputs.setdefault(path, b"")
    return {path: data for path, data in inputs.items() if path not in SYSTEM}


NAMES = st.sampled_from(["a", "b", "a-b", "a.b", "z", "\u00e9", "\u6570", "0"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(lambda names: "/" + "/".join(names))
DATA = st.none() | st.binary(max_size=20)
OPTIONS = st.fixed_dictionaries(
    {
        "digest.enabled": st.booleans(),
        "serializeLastProcessedZxid.enabled": st.booleans(),
        "zxid": st.sampled_from([1, 0x100000003]),
    }
)


@st.composite
def chunked(draw: st.DrawFn, rows: list[dict[str, Any]]) -> list[pa.RecordBatch]:
    """The same rows in batches, empty ones too."""
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=5)))
    edges = [0, *cuts, len(rows)]
    return [batch(rows).slice(a, b - a) for a, b in itertools.pairwise(edges)]


@given(
    data=st.data(),
    pairs=st.dictionaries(PATHS, DATA, max_size=25),
    options=OPTIONS,
    budget=st.integers(1 << 10, 1 << 12),
)
@settings(deadline=None)
def test_nodes_written_in_any_batches_read_back_equal(
    data: st.DataObject, pairs: dict[str, Any], options: dict[str, Any], budget: int, tmp_path_factory: Any
) -> None:
    rows = [
        {
            "path": path,
            "data": value,
            "czxid": n % 2,
            "acl": [{"perms": 1 + n % 3, "scheme": "world", "id": "anyone"}] if n % 4 else None,
        }
        for n, (path, value) in enumerate(pairs.items())
    ]
    expected = build([batch(rows)] if rows else [], **options)
    shuffled = data.draw(st.permutations(rows))
    second = build(
        data.draw(chunked(shuffled)) if rows else [],
        extra=MemoryDirectory(),
        sort_buffer_size=budget,
        **options,
    )
    assert second == expected, "neither order nor chunks nor memory change a byte"
    (name,) = expected
    assert parse(name).zxid == options["zxid"]
    context = SNAPSHOT.context(name, Options(SNAPSHOT.options, options))
    ordered = pa.Table.from_batches(
        [batch(rows)] if rows else [], None if rows else pa.schema([("path", pa.string())])
    )
    by_codec = b"".join(bytes(buffer) for buffer in SNAPSHOT.encode(ordered, None, None, context))
    assert len(by_codec) == len(expected[name]), "a single file's codec makes the same of them"
    assert content(expected, tmp_path_factory.mktemp("zk")) == with_parents(rows)


@given(data=st.data(), rows=st.lists(st.tuples(PATHS, DATA), min_size=1, max_size=20), logs=st.booleans())
@settings(deadline=None)
def test_appends_update_the_tree_like_a_dict(
    data: st.DataObject, rows: list[Any], logs: bool, tmp_path_factory: Any
) -> None:
    """In several writes; within one the last of a path counts."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    edges = [0, *cuts, len(rows)]
    files: dict[str, bytes] = {}
    model: dict[str, bytes | None] = {}
    for a, b in itertools.pairwise(edges):
        part = [{"path": path, "data": value} for path, value in rows[a:b]]
        options: dict[str, Any] = (
            {"on_duplicate": "last"}
            if files
            else {"on_duplicate": "last", "write_as": "logs" if logs else None}
        )
        result = build(
            [batch(part)] if part else [], files or None, **{k: v for k, v in options.items() if v}
        )
        assert not set(files) & set(result), "no file is written over"
        files |= result
        for row in part:
            model = with_parents([row]) | model | {row["path"]: row["data"]}
    assert content(files, tmp_path_factory.mktemp("zk")) == model


@given(data=st.data(), rows=st.lists(st.tuples(PATHS, DATA), min_size=1, max_size=30))
@settings(deadline=None)
def test_logs_written_in_any_batches_are_the_same_bytes(data: st.DataObject, rows: list[Any]) -> None:
    nodes = [{"path": path, "data": value, "ctime_ms": 5, "mtime_ms": 6} for path, value in rows]
    options = {
        "write_as": "logs",
        **data.draw(st.sampled_from([{}, {"txnLogSizeLimitInKb": 1}, {"preAllocSize": 1}])),
    }
    expected = build([batch(nodes)], **options)
    assert build(data.draw(chunked(nodes)), **options) == expected


def test_logs_are_rolled_by_size() -> None:
    rows = [{"path": f"/n{n}", "data": bytes(100)} for n in range(50)]
    files = build([batch(rows)], write_as="logs", txnLogSizeLimitInKb=2)
    names = sorted((name for name in files if name.startswith("log.")), key=lambda name: parse(name).zxid)
    assert len(names) > 3
    zxid = 1
    for name in names:
        assert parse(name).zxid == zxid
        (frames,) = _frames(files[name])
        zxid += frames - 1
        assert len(files[name]) > 2048 or name == names[-1]
        assert len(files[name]) < 2048 + 300
    assert zxid == 51


def test_logs_are_preallocated_with_zeros() -> None:
    files = build([batch([{"path": "/a", "data": b""}])], write_as="logs", preAllocSize=4)
    assert len(files["log.1"]) == 16 + 4096
    assert files["log.1"].endswith(bytes(3000))


def _frames(data: bytes) -> Iterator[int]:
    from logwright.codec.window import Window

    context = TXNLOG.context("log.1", Options(TXNLOG.options))
    yield len(TXNLOG.scan(Window(np.frombuffer(data, np.uint8), 0, len(data)), 0, context))


# As a server makes it


def test_new_directory_equals_that_of_a_real_server() -> None:
    files = build([])
    assert files == {
        "snapshot.0": (cases("zookeeper")["fresh"].path / "version-2" / "snapshot.0").read_bytes()
    }
    assert build([], write_as="logs") == files


@pytest.mark.parametrize(
    "case",
    ["acls", "basic", "extended_types", "multi", "sessions", "snap_gz", "v3414", "quota", "upgrade_chain"],
)
def test_tree_that_was_read_is_written_unchanged(case: str) -> None:
    """The newest snapshot, loaded and written: the same nodes, sessions and ACLs, and again the same bytes from what was written."""
    home = cases("zookeeper")[case].path / "version-2"
    path = max(home.glob("snapshot.*"), key=lambda file: parse(file.name).zxid)
    tree, faults = _tree(path)
    assert not faults
    options = Options(SNAPSHOT.options)
    data = b"".join(bytes(buffer) for buffer in of_tree(tree, Options(LAYOUT.options)))
    assert options is not None
    actual, expected = (_rows(item, path.name) for item in (data, path.read_bytes()))
    assert actual == expected
    for view in ("sessions", "acls"):
        assert sorted(_rows(data, path.name, view), key=str) == sorted(
            _rows(path.read_bytes(), path.name, view), key=str
        )


def _tree(path: Path) -> tuple[Tree, list[Any]]:
    compression = {".gz": "gzip", ".snappy": "snappy"}.get(path.suffix, "none")
    return Tree.of_snapshot(
        ListedFile(MemoryDirectory({path.name: path.read_bytes()}), path.name, path.stat().st_size),
        zxid=parse(path.name).zxid,
        compression=compression,
        extended_types=True,
    )


def _rows(data: bytes, name: str, view: str = "rows") -> list[dict[str, Any]]:
    from logwright.codec.window import Window

    name = name if data[:4] != b"ZKSN" else "snapshot.1"
    context = SNAPSHOT.context(name, Options(SNAPSHOT.options))
    window = Window(np.frombuffer(data, np.uint8), 0, len(data))
    frames = SNAPSHOT.scan(window, 0, context)
    assert frames.damage is None
    columns = [name for name in SNAPSHOT.tables[view].names(detail=True) if name != "position"]
    batches = [item.batch for item in SNAPSHOT.decode(window, frames, view, columns, context)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: row["path"]) if view == "rows" else rows


def test_stat_counters_are_derived_from_the_tree(tmp_path: Path) -> None:
    rows = [
        {"path": "/a/b", "czxid": 7},
        {"path": "/a/c", "czxid": 9},
        {"path": "/a", "czxid": 3},
        {"path": "/seen", "cversion": 5},
        {"path": "/seen/x", "czxid": 2},
    ]
    lw.write(batch(rows), tmp_path, "zookeeper.datadir")
    actual = {row["path"]: row for row in lw.read(tmp_path / "version-2" / "snapshot.9").to_pylist()}
    assert (actual["/a"]["stored_cversion"], actual["/a"]["pzxid"]) == (2, 9)
    assert (actual["/"]["stored_cversion"], actual["/"]["pzxid"]) == (2, 3)
    assert actual["/seen"]["stored_cversion"] == 3, "a client sees 2 * 3 - 1"
    assert actual["/a/b"]["data"] == b"", "nothing was said of data"
    assert actual["/zookeeper"]["stored_cversion"] == 0
    assert actual["/zookeeper/config"]["acl"] == [{"perms": 1, "scheme": "world", "id": "anyone"}]


def test_rows_may_contain_the_nodes_below_zookeeper(tmp_path: Path) -> None:
    rows = [
        {"path": "/zookeeper/config", "data": b"server.1=x"},
        {"path": "/", "data": b"root"},
        {"path": "/zookeeper/quota/a/zookeeper_limits", "data": b"count=1,bytes=-1"},
    ]
    for budget in (1 << 10, 1 << 20):
        files = build([batch(rows[:1]), batch(rows[1:])], extra=MemoryDirectory(), sort_buffer_size=budget)
        actual = {row["path"]: row["data"] for row in _rows(files["snapshot.0"], "snapshot.0")}
        assert actual == {
            "/": b"root",
            "/zookeeper": b"",
            "/zookeeper/config": b"server.1=x",
            "/zookeeper/quota": b"",
            "/zookeeper/quota/a": b"",
            "/zookeeper/quota/a/zookeeper_limits": b"count=1,bytes=-1",
        }


def test_epoch_files_are_written(tmp_path: Path) -> None:
    files = build([batch([{"path": "/a", "czxid": 0x300000001}])], currentEpoch=3)
    assert (files["acceptedEpoch"], files["currentEpoch"]) == (b"3", b"3")
    with pytest.raises(UsageError, match="currentEpoch 2 is older than the last zxid, 0x300000001"):
        build([batch([{"path": "/a", "czxid": 0x300000001}])], currentEpoch=2)
    files = build([batch([{"path": "/a"}])], currentEpoch=4, write_as="logs")
    assert sorted(files) == ["acceptedEpoch", "currentEpoch", "log.400000001", "snapshot.0"]
    added = build([batch([{"path": "/b"}])], files)
    assert list(added) == ["log.400000002"]


def test_write_reports_warnings_and_advice(tmp_path: Path) -> None:
    rows = [
        {"path": "/e", "kind": "ephemeral", "ephemeral_owner": 7},
        {"path": "/t", "kind": "ttl", "ttl": 9, "ephemeral_owner": None},
    ]
    written = lw.write(batch(rows), tmp_path, "zookeeper.datadir")
    assert written.warnings == (
        "Nobody keeps up the sessions of ephemeral nodes (1): the nodes go when these expire.",
    )
    assert "extendedTypesEnabled=true" in written.before_you_start[0]
    assert written.ids == {"zxid": 0}
    # Of a member of an ensemble.
    (tmp_path / "version-2" / "currentEpoch").write_text("0")
    added = lw.write(batch([{"path": "/x"}]), tmp_path, "zookeeper.datadir", mode="append")
    assert added.ids == {"first_zxid": 1, "last_zxid": 1}
    assert [text[:17] for text in added.before_you_start] == ["No server may run", "It is of a member"]


# Edits


BASE = [
    {"path": "/a", "data": b"1"},
    {"path": "/a/b", "data": b"2"},
    {"path": "/e", "kind": "ephemeral", "ephemeral_owner": 7},
]


def edits(rows: Sequence[dict[str, Any]], there: dict[str, bytes] | None = None) -> list[dict[str, Any]]:
    """The transactions that rows make of the tree of `BASE`."""
    files = build([batch(BASE)], zxid=4) if there is None else there
    result = build([batch(rows)], files)
    return [row for name in result for row in _txns(result[name])]


def _txns(data: bytes) -> list[dict[str, Any]]:
    from logwright.codec.window import Window

    context = TXNLOG.context("log.1", Options(TXNLOG.options))
    window = Window(np.frombuffer(data, np.uint8), 0, len(data))
    frames = TXNLOG.scan(window, 0, context)
    names = TXNLOG.tables["rows"].names(detail=True)
    return [
        row
        for item in TXNLOG.decode(window, frames, "rows", names, context)
        for row in item.batch.to_pylist()
    ]


def fields_of(rows: Sequence[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_appended_nodes_become_create_and_set_transactions() -> None:
    result = edits(
        [
            {"path": "/a", "data": b"1"},  # as it is
            {"path": "/a/b", "data": b"3"},
            {"path": "/x/y", "data": None, "ctime_ms": 77},
            {"path": "/x", "data": b"now"},
            {"path": "/x/y", "data": None, "acl": [{"perms": 1, "scheme": "ip", "id": "10.0.0.1"}]},
            {"path": "/c", "data": b"", "kind": "container"},
            {"path": "/t", "data": b"", "kind": "ttl", "ttl": 99},
            {"path": "/f", "data": b"", "kind": "ephemeral", "ephemeral_owner": 8},
            {"path": "/g", "data": b"", "kind": "ephemeral", "ephemeral_owner": 7},
        ]
    )
    assert fields_of(result, "zxid", "type", "path", "session_id") == [
        (5, "setData", "/a/b", 0),
        (6, "create", "/x", 0),
        (7, "create", "/x/y", 0),
        (8, "setData", "/x", 0),
        (9, "setACL", "/x/y", 0),
        (10, "createContainer", "/c", 0),
        (11, "createTTL", "/t", 0),
        (12, "createSession", None, 8),
        (13, "create", "/f", 8),
        (14, "create", "/g", 7),
    ]
    assert fields_of(result, "version", "parent_cversion", "ttl", "time_out") == [
        (1, None, None, None),
        (None, 3, None, None),
        (None, 1, None, None),
        (1, None, None, None),
        (1, None, None, None),
        (None, 4, None, None),
        (None, 5, 99, None),
        (None, None, None, 30000),
        (None, 6, None, None),
        (None, 7, None, None),
    ]
    assert [row["ephemeral"] for row in result] == [
        None,
        False,
        False,
        None,
        None,
        None,
        None,
        None,
        True,
        True,
    ]
    assert result[2]["time_ms"] == 77
    assert all(row["tree_digest"] is not None for row in result)


def test_row_without_data_column_keeps_the_nodes_data() -> None:
    result = edits(
        [{"path": "/a", "acl": [{"perms": 31, "scheme": "world", "id": "anyone"}]}, {"path": "/n"}]
    )
    assert fields_of(result, "type", "path", "data") == [("create", "/n", b"")]
    assert edits([{"path": "/a", "data": b"1"}]) == []


def test_missing_transaction_fields_are_filled_in() -> None:
    result = edits(
        [
            {"type": "delete", "path": "/a/b"},
            {"type": "setData", "path": "/a", "data": b"x"},
            {"type": "setData", "path": "/a", "data": b"y"},
            {"type": "setACL", "path": "/a", "acl": [{"perms": 1, "scheme": "world", "id": "anyone"}]},
            {"type": "multi", "txns": [
                {"type": "check", "path": "/a"},
                {"type": "create", "path": "/a/m", "data": b"1", "acl": None, "ephemeral": False},
                {"type": "setData", "path": "/a/m", "data": b"2"},
            ]},
            {"type": "error", "err": -110},
            {"type": "createSession", "session_id": 9},
            {"type": "create", "path": "/s", "session_id": 9, "ephemeral": True},
            {"type": "closeSession", "session_id": 9},
        ]
    )  # fmt: skip
    assert [row["zxid"] for row in result] == list(range(5, 14))
    assert fields_of(result, "version", "parent_cversion", "time_out")[1:4] == [
        (1, None, None),
        (2, None, None),
        (1, None, None),
    ]
    assert fields_of(result[4]["txns"], "type", "path", "version", "parent_cversion") == [
        ("check", "/a", 3, None),
        ("create", "/a/m", None, 2),
        ("setData", "/a/m", 1, None),
    ]
    assert result[4]["txns"][1]["acl"] == [{"perms": 31, "scheme": "world", "id": "anyone"}]
    assert result[5]["tree_digest"] is None, "errors have no digest"
    assert result[8]["paths_to_delete"] == []
    assert (result[7]["parent_cversion"], result[7]["data"]) == (3, None)


def test_failed_multi_is_written_unchanged() -> None:
    result = edits(
        [
            {
                "type": "multi",
                "txns": [
                    {"type": "setData", "path": "/nowhere", "data": b"", "version": 3},
                    {"type": "error", "err": -101},
                ],
            }
        ]
    )
    assert fields_of(result[0]["txns"], "type", "path", "version", "err") == [
        ("setData", "/nowhere", 3, None),
        ("error", None, None, -101),
    ]


def test_zxids_are_kept_or_assigned(tmp_path: Path) -> None:
    rows = [
        {"type": "create", "path": "/k", "zxid": 5},
        {"type": "error", "err": -1, "zxid": 6},
        {"type": "error", "err": -1, "zxid": 0x100000001},
    ]
    assert [row["zxid"] for row in edits(rows)] == [5, 6, 0x100000001]
    for first, before in ((6, "0x4"), (4, "0x4"), (0x100000002, "0x4")):
        with pytest.raises(
            UsageError, match=f"row 0: zxid {first:#x} does not follow {before}: a server would not start"
        ):
            edits([{"type": "error", "err": -1, "zxid": first}])
    with pytest.raises(UsageError, match="null in column 'zxid'"):
        edits([{"type": "error", "err": -1, "zxid": 5}, {"type": "error", "err": -1}])
    files = build([batch([{"type": "create", "path": "/a", "zxid": 40}])])
    assert sorted(files) == ["log.28", "snapshot.27"]
    assert content(files, tmp_path) == {"/a": None}


def test_transactions_that_were_read_are_written_unchanged(tmp_path: Path) -> None:
    """All that a real server wrote from its first transaction on."""
    for case in ("basic", "multi", "acls", "extended_types"):
        home = cases("zookeeper")[case].path / "version-2"
        rows = lw.read(home, view="txns", columns="*")
        files = build(rows.to_batches())
        assert files["snapshot.0"] == (home / "snapshot.0").read_bytes()
        (log,) = (data for name, data in files.items() if name != "snapshot.0")
        stored = b"".join(
            path.read_bytes().rstrip(b"\0")[16 * (n > 0) :]
            for n, path in enumerate(sorted(home.glob("log.*"), key=lambda log: parse(log.name).zxid))
        )
        assert log == stored, "digests too"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"type": "create", "path": "/a"}], "row 0: /a is there: create fails"),
        ([{"type": "create", "path": "/q/r"}], "row 0: /q/r has no parent: create fails"),
        ([{"type": "create", "path": "/e/x"}], "row 0: /e/x is below an ephemeral node"),
        ([{"path": "/e/x"}], "row 0: /e/x is below an ephemeral node"),
        ([{"type": "create", "path": "/x", "ephemeral": True}], "is ephemeral, and the row has no session_id"),
        ([{"type": "createTTL", "path": "/x"}], "needs a ttl from 1"),
        ([{"type": "delete", "path": "/a"}], "row 0: /a has 1 children: delete fails"),
        ([{"type": "delete", "path": "/x"}], "row 0: /x is not there: delete fails"),
        ([{"type": "setData", "path": "/x"}], "row 0: /x is not there: setData fails"),
        ([{"type": "setData"}], "a transaction without a path"),
        ([{"path": "/a", "kind": "container"}], "/a is there, as persistent: it can't be made container"),
        ([{"path": "/a", "kind": "ephemeral", "ephemeral_owner": 3}], "it can't be made ephemeral"),
        ([{"type": "what", "path": "/a"}], "of type 'what'"),
        ([{"type": "create", "path": "/x", "sub": 0}], "not written one by one"),
        ([{"path": "a"}], "row 0: 'a' is no path of a node"),
        ([{"path": "/x", "kind": "ttl", "ttl": None}], "ttl"),
        ([{"path": "/x", "acl_id": 5}], "row 0 has the number of an ACL, but no list"),
    ],
)  # fmt: skip
def test_rows_a_server_would_reject_are_refused(rows: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        edits(rows)


def test_contradicting_rows_and_options_are_refused() -> None:
    with pytest.raises(UsageError, match="some rows are transactions"):
        build([batch([{"path": "/a"}]), batch([{"type": "delete", "path": "/a"}])])
    with pytest.raises(UsageError, match="some rows have data, others have no such column"):
        build([batch([{"path": "/a"}]), batch([{"path": "/b", "data": b""}])])
    with pytest.raises(UsageError, match="zxid is that of a snapshot"):
        build([batch([{"path": "/a"}])], write_as="logs", zxid=3)
    with pytest.raises(UsageError, match="is added to by transactions"):
        build([batch([{"path": "/a"}])], build([]), write_as="snapshot")
    with pytest.raises(UsageError, match="the path '/a' comes more than once") as caught:
        build([batch([{"path": "/a", "data": b"1"}]), batch([{"path": "/a", "data": b"2"}])])
    assert "on_duplicate=last" in str(caught.value.advice)
    files = build(
        [batch([{"path": "/a", "data": b"1"}]), batch([{"path": "/a", "data": b"2"}])], on_duplicate="last"
    )
    assert {row["path"]: row["data"] for row in _rows(files["snapshot.0"], "snapshot.0")}["/a"] == b"2"


def test_rows_no_server_can_read_are_refused() -> None:
    long = bytes((1 << 21) + 1)
    with pytest.raises(UsageError, match="row 1: 2097153 bytes of data, a server reads 2097150") as caught:
        build([batch([{"path": "/a", "data": b""}]), batch([{"path": "/b", "data": long}])])
    assert "jute.maxbuffer" in str(caught.value.advice)
    assert build([batch([{"path": "/b", "data": long}])], **{"jute.maxbuffer": 1 << 21})
    near = bytes(2097150 - 20)
    with pytest.raises(UsageError, match=r"transaction 0 has 2097\d* bytes, a server reads 2097150"):
        build([batch([{"path": "/b", "data": near}])], write_as="logs")


# Existing files


def test_append_to_a_damaged_directory_is_refused() -> None:
    files = build([batch(BASE)], write_as="logs")
    more = files | build([batch([{"path": "/x", "data": b"x"}, {"path": "/y", "data": b"x"}])], files)
    (name,) = set(more) - set(files)

    def damaged(at: int, to: bytes, which: str = name) -> dict[str, bytes]:
        data = bytearray(more[which])
        data[at : at + len(to)] = to
        return more | {which: bytes(data)}

    def refused(there: dict[str, bytes], words: str) -> None:
        with pytest.raises(UsageError, match=words) as caught:
            build([batch([{"path": "/z"}])], there)
        assert "Repair it first" in str(caught.value.advice)

    refused(damaged(40, b"\xff"), f"{name} is damaged at byte 16")
    refused(damaged(24, b"\0\0\0\0"), f"{name} is damaged at byte 16")
    refused(damaged(0, b"X"), f"{name} is damaged at byte 0")
    refused(damaged(0x90, b"X", "snapshot.0"), "snapshot.0 is damaged")
    refused(
        {name: data for name, data in more.items() if name != "snapshot.0"},
        "the directory has logs and no snapshot",
    )
    refused({"snapshot.0": more["snapshot.0"][:-1]}, "the directory has no snapshot that is whole")
    refused(
        {name: data for name, data in more.items() if name != "log.1"}
        | build([batch([{"path": "/q"}])], more),
        "the transactions 0x1 to 0x[0-9a-f]* are missing",
    )
    refused({}, "the directory has no snapshot")


def test_leftovers_of_a_stopped_server_do_not_prevent_an_append() -> None:
    files = build([batch(BASE)], write_as="logs")
    more = files | build([batch([{"path": "/x", "data": b"x"}])], files)
    (name,) = set(more) - set(files)
    last = max(row["zxid"] for row in _txns(more[name]))
    for there in (
        more | {name: more[name] + bytes(500)},
        more | {name: more[name] + more["log.1"][16:60]},  # torn
        more | {f"log.{last + 1:x}": b""},
        more | {f"log.{last + 1:x}": more["log.1"][:16]},
    ):
        result = build([batch([{"path": "/new"}])], there)
        assert list(result) == [f"log.{last + 1:x}"]
    # A torn log, and one behind it that goes on where it ends.
    torn = files | {"log.1": files["log.1"][:-3]}
    assert list(build([batch([{"path": "/new"}])], torn)) == ["log.4"]


def test_zxids_beyond_the_end_of_an_epoch_are_refused() -> None:
    files = build([batch(BASE)], zxid=0x1FFFFFFFF)
    with pytest.raises(UsageError, match="no zxid is left in the epoch of 0x1ffffffff"):
        build([batch([{"path": "/x"}])], files)


def test_transaction_that_crashes_a_server_is_refused() -> None:
    with pytest.raises(UsageError, match="a server would not start with it"):
        edits([{"type": "create", "path": "/zookeeper/quota/zookeeper_limits", "data": b"count=x"}])


# By tasks


def by_tasks(
    path: Path, parts: Sequence[Sequence[dict[str, Any]]], mode: str = "error", **options: Any
) -> Written:
    staged = StagedWrite(str(path), "zookeeper.datadir", mode, options)
    messages = []
    try:
        for number, part in enumerate(parts):
            task = staged.task(number)
            for at in range(0, len(part), 7):
                task.add(batch(part[at : at + 7]))
            messages.append(task.commit())
        return staged.commit(messages)
    except BaseException:
        staged.abort()
        raise


def nodes(count: int, seed: int = 1) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    rows = [
        {"path": f"/{rng.randrange(5)}/{rng.randrange(5)}/{n}", "data": rng.randbytes(rng.randrange(9)), "czxid": rng.randrange(99),
         "acl": rng.choice([None, [{"perms": n % 32, "scheme": "world", "id": "anyone"}]])}
        for n in range(count)
    ]  # fmt: skip
    rng.shuffle(rows)
    return rows


def test_tasks_write_the_same_bytes_as_one_writer(tmp_path: Path) -> None:
    rows = nodes(200)
    lw.write(batch(rows), tmp_path / "one", "zookeeper.datadir")
    for number, cuts in enumerate([(0, 200), (0, 50, 100, 200), (0, 0, 199, 200, 200)]):
        target = tmp_path / f"by-tasks-{number}"
        written = by_tasks(target, [rows[a:b] for a, b in itertools.pairwise(cuts)], sort_buffer_size=1 << 10)
        assert written.rows == 200
        (name,) = [path.name for path in (target / "version-2").iterdir()]
        assert (target / "version-2" / name).read_bytes() == (
            tmp_path / "one" / "version-2" / name
        ).read_bytes()
        assert [path.name for path in target.iterdir()] == ["version-2"]


def test_tasks_append_and_overwrite(tmp_path: Path) -> None:
    path = tmp_path / "zk"
    by_tasks(path, [[{"path": "/a", "data": b"1"}], [{"path": "/b", "data": b"2"}], []])
    written = by_tasks(path, [[{"path": "/b/c", "data": b"3"}], [{"path": "/a", "data": b"4"}]], "append")
    assert written.files == ("log.1",)
    assert written.ids == {"first_zxid": 1, "last_zxid": 2}
    table = lw.read(path, columns=["path", "data"]).to_pylist()
    assert {row["path"]: row["data"] for row in table if row["path"] not in SYSTEM} == {
        "/a": b"4",
        "/b": b"2",
        "/b/c": b"3",
    }
    assert by_tasks(path, [[], []], "append").rows == 0
    by_tasks(path, [[{"path": "/only", "data": b""}]], "overwrite")
    assert [file.name for file in (path / "version-2").iterdir()] == ["snapshot.0"]
    by_tasks(path, [[{"path": "/x", "data": b"1"}]], "overwrite", write_as="logs")
    assert sorted(file.name for file in (path / "version-2").iterdir()) == ["log.1", "snapshot.0"]


def test_rows_that_tasks_cannot_write_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="transactions are written by one writer"):
        by_tasks(tmp_path / "zk", [[{"type": "delete", "path": "/a"}]])
    with pytest.raises(UsageError, match="the path '/a' comes more than once"):
        by_tasks(tmp_path / "zk", [[{"path": "/a"}], [{"path": "/a"}]])
    with pytest.raises(UsageError, match="some rows have data, others have no such column"):
        by_tasks(tmp_path / "zk", [[{"path": "/a"}], [{"path": "/b", "data": b""}]], write_as="logs")
    assert list(tmp_path.iterdir()) == []


def test_changed_staged_rows_are_not_committed(tmp_path: Path) -> None:
    staged = StagedWrite(str(tmp_path / "zk"), "zookeeper.datadir", "error", {})
    messages = []
    for number in range(2):
        task = staged.task(number)
        task.add(batch([{"path": f"/{number}", "data": b"x"}]))
        messages.append(task.commit())
    (item, _) = sorted(tmp_path.glob("**/task-*/run"))
    data = bytearray(item.read_bytes())
    data[-5] ^= 1
    item.write_bytes(data)
    with pytest.raises(LogwrightError, match="staged rows differ from what their task wrote"):
        staged.commit(messages)
    assert not (tmp_path / "zk" / "version-2").exists()


# Places


def test_version_2_folder_is_found_or_created(tmp_path: Path) -> None:
    """A server's dataDir is the folder above; if the files are in the given folder, it is that one."""
    rows = batch([{"path": "/a", "data": b"1"}])
    lw.write(rows, tmp_path / "zk", "zookeeper.datadir")
    assert [path.name for path in (tmp_path / "zk").iterdir()] == ["version-2"]
    lw.write(rows, tmp_path / "other" / "version-2", "zookeeper.datadir")
    assert [path.name for path in (tmp_path / "other" / "version-2").iterdir()] == ["snapshot.0"]
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "snapshot.0").write_bytes((tmp_path / "zk" / "version-2" / "snapshot.0").read_bytes())
    lw.write(batch([{"path": "/b", "data": b"1"}]), bare, "zookeeper.datadir", mode="append")
    assert sorted(path.name for path in bare.iterdir()) == ["log.1", "snapshot.0"]
    with pytest.raises(lw.LogwrightError, match="it exists"):
        lw.write(rows, tmp_path / "zk", "zookeeper.datadir")
    (tmp_path / "file").write_text("")
    with pytest.raises(lw.LogwrightError):
        lw.write(rows, tmp_path / "file", "zookeeper.datadir")


def test_failed_write_leaves_no_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        lw.write(batch([{"path": "/a"}, {"path": "a"}]), tmp_path / "deep" / "zk", "zookeeper.datadir")
    assert list(tmp_path.iterdir()) == []


# Memory


def test_memory_of_the_builder_is_bounded() -> None:
    """Of 30 MB there is never more than a few times the buffer."""
    builder = LAYOUT.builder(
        None, "version-2", Options(LAYOUT.options, {"sort_buffer_size": 1 << 20}), extra=MemoryDirectory()
    )
    before = pa.total_allocated_bytes()
    numbers = list(range(30_000))
    random.Random(1).shuffle(numbers)
    for at in range(0, len(numbers), 100):
        list(
            builder.add(batch([{"path": f"/n/{n:06d}", "data": bytes(1000)} for n in numbers[at : at + 100]]))
        )
        assert pa.total_allocated_bytes() - before < 12 << 20
    size = 0
    for piece in builder.finish():
        size += len(piece.data)
        assert pa.total_allocated_bytes() - before < 12 << 20
    assert size > 30 << 20


def test_root_node_can_be_changed() -> None:
    result = edits([{"path": "/", "data": b"r"}])
    assert fields_of(result, "type", "path", "version", "data") == [("setData", "/", 1, b"r")]
    result = edits(
        [
            {
                "type": "multi",
                "txns": [{"type": "check", "path": "/"}, {"type": "setData", "path": "/", "data": b"s"}],
            }
        ]
    )
    assert fields_of(result[0]["txns"], "type", "path", "version") == [("check", "/", 1), ("setData", "/", 1)]


def test_transaction_times_become_ctime_and_mtime() -> None:
    rows = pa.table(
        {
            "type": ["create", "create"],
            "path": pa.array([b"/x", b"/y"]),
            "time": pa.array([1_700_000_000_123, None], pa.timestamp("ms", "UTC")),
        }
    )
    files = build([batch(BASE)], zxid=4)
    result = build(rows.to_batches(), files)
    (first, second) = (row for name in result for row in _txns(result[name]))
    assert (first["path"], first["time_ms"]) == ("/x", 1_700_000_000_123)
    assert second["time_ms"] > first["time_ms"], "now"
    wrong = pa.table({"type": ["create"], "path": ["/x"], "version": ["many"]})
    with pytest.raises(UsageError, match="column 'version' is not int32"):
        build(wrong.to_batches(), files)


def test_sub_transactions_of_a_multi_may_omit_fields() -> None:
    """Also where all else of the row is said."""
    row = {"type": "multi", "zxid": 5, "session_id": 0, "cxid": 0, "time_ms": 9}
    result = edits([row | {"txns": [{"type": "setData", "path": "/a", "data": b"x"}]}])
    assert fields_of(result[0]["txns"], "version", "data") == [(1, b"x")]
    result = edits([row | {"txns": [{"type": "error", "err": -101}]}, row | {"zxid": 6, "txns": []}])
    assert [len(row["txns"]) for row in result] == [1, 0]


def test_written_digest_equals_the_digest_of_the_tree() -> None:
    rows = [{"path": f"/n{n}", "data": b"x" * n, "czxid": 3} for n in range(9)]
    files = build([batch(rows)])
    tree, _ = Tree.of_snapshot(
        ListedFile(MemoryDirectory(files, "version-2"), "snapshot.3", len(files["snapshot.3"])), zxid=3
    )
    context = SNAPSHOT.context("snapshot.3", Options(SNAPSHOT.options))
    second = b"".join(bytes(buffer) for buffer in of_tree(tree))
    assert _rows(second, "snapshot.3") == _rows(files["snapshot.3"], "snapshot.3")
    for data in (second, files["snapshot.3"]):
        (file,) = lw_file(data, context)
        assert file["digest"] == tree.digest
        assert file["digest_zxid"] == file["last_processed_zxid"] == 3


def lw_file(data: bytes, context: Any) -> list[dict[str, Any]]:
    from logwright.codec.window import Window

    window = Window(np.frombuffer(data, np.uint8), 0, len(data))
    frames = SNAPSHOT.scan(window, 0, context)
    result: list[dict[str, Any]] = SNAPSHOT.describe_file(
        window, len(data), len(frames), b"", 0, context
    ).to_pylist()
    return result


def test_append_to_a_directory_that_crashes_a_server_is_refused() -> None:
    from logwright.codec.zookeeper.formats.txnlog.layout import FILE_HEADER, RECORD

    body = {
        "path": b"/zookeeper/quota/zookeeper_limits",
        "data": b"count=x",
        "acl": None,
        "ephemeral": 0,
        "parent_cversion": 1,
    }
    payload = {"client_id": 0, "cxid": 0, "zxid": 1, "time": 0, "type": 1, "body": body, "digest": None}
    log = FILE_HEADER.pack({}) + RECORD.pack({"payload": payload})
    with pytest.raises(UsageError, match=r"log\.1: no server starts with it"):
        build([batch([{"path": "/x"}])], build([]) | {"log.1": log})


# Logs in a separate directory


def test_logs_are_written_to_data_log_dir(tmp_path: Path) -> None:
    """Written, added to and replaced as zoo.cfg says, by one writer or by tasks."""
    data, logs, cfg = tmp_path / "data", tmp_path / "logs", tmp_path / "zoo.cfg"
    cfg.write_text(f"tickTime=2000\ndataDir={data}\ndataLogDir={logs}\n")

    def names() -> tuple[list[str], list[str]]:
        own, other = (sorted(path.name for path in (at / "version-2").iterdir()) for at in (data, logs))
        return own, other

    lw.write([{"path": "/a", "data": b"1"}], cfg, "zookeeper.datadir", write_as="logs")
    assert names() == (["snapshot.0"], ["log.1"])
    written = lw.write([{"path": "/b", "data": b"2"}], cfg, "zookeeper.datadir", mode="append")
    assert written.files == ("dataLogDir/log.2",)
    assert names() == (["snapshot.0"], ["log.1", "log.2"])
    staged = StagedWrite(str(cfg), "zookeeper.datadir", "append")
    task = staged.task(0)
    task.add(batch([{"path": "/c", "data": b"3"}]))
    assert staged.commit([task.commit()]).files == ("dataLogDir/log.3",)
    assert names() == (["snapshot.0"], ["log.1", "log.2", "log.3"])
    assert lw.verify(cfg).ok
    assert set(lw.read(cfg)["path"].to_pylist()) - SYSTEM == {"/a", "/b", "/c"}
    lw.write(
        [{"path": "/d", "data": b"4", "mzxid": 7}],
        data,
        "zookeeper.datadir",
        mode="overwrite",
        dataLogDir=logs,
    )
    assert names() == (["snapshot.7"], [])
    assert set(lw.read(cfg)["path"].to_pylist()) - SYSTEM == {"/d"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "logs", "zoo.cfg"]


def test_unusable_data_log_dir_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with pytest.raises(UsageError, match="dataLogDir is the directory itself"):
        lw.write([{"path": "/a"}], data, "zookeeper.datadir", dataLogDir=data)
    lw.write([{"path": "/a"}], data, "zookeeper.datadir", write_as="logs")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="dataLogDir is a file"):
        lw.write([{"path": "/b"}], data, "zookeeper.datadir", mode="append", dataLogDir=tmp_path / "file")
    with pytest.raises(UsageError, match=r"log\.1 lies in the directory of the snapshots"):
        lw.write([{"path": "/b"}], data, "zookeeper.datadir", mode="append", dataLogDir=tmp_path / "logs")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "file"]
    (tmp_path / "server.properties").write_text(f"log.dirs={tmp_path}\n")
    with pytest.raises(UsageError, match="this is the configuration of kafka"):
        lw.write([{"path": "/b"}], tmp_path / "server.properties", "zookeeper.datadir")


def test_myid_file_is_written_and_kept(tmp_path: Path) -> None:
    """It is written beside version-2, once, and only together with the rest."""
    item, rows = tmp_path / "one", [{"path": "/a"}]
    lw.write(rows, item, "zookeeper.datadir", myid=7, currentEpoch=2)
    assert sorted(path.name for path in item.iterdir()) == ["myid", "version-2"]
    assert (item / "myid").read_bytes() == b"7"
    facts = lw.inspect(item)["facts"]
    assert (facts["myid"], facts["accepted_epoch"], facts["current_epoch"]) == (7, 2, 2)
    lw.write(rows, item, "zookeeper.datadir", mode="overwrite", myid=7)
    with pytest.raises(LogwrightError, match="it says '7', and '8' is to be written"):
        lw.write(rows, item, "zookeeper.datadir", mode="overwrite", myid=8)
    with pytest.raises(UsageError, match="myid"):
        lw.write(rows, tmp_path / "two", "zookeeper.datadir", myid=0)
    with pytest.raises(UsageError, match="currentEpoch 1 is older"):
        lw.write(
            [{"path": "/a", "czxid": 0x300000001}],
            tmp_path / "two",
            "zookeeper.datadir",
            myid=8,
            currentEpoch=1,
        )
    assert not (tmp_path / "two").exists()
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain/snapshot.0").write_bytes((item / "version-2/snapshot.0").read_bytes())
    with pytest.raises(UsageError, match="myid lies above version-2, this directory has another name"):
        lw.write(rows, tmp_path / "plain", "zookeeper.datadir", mode="append", myid=8)
    staged = StagedWrite(str(tmp_path / "three"), "zookeeper.datadir", "error", {"myid": 9})
    assert not (tmp_path / "three/myid").exists()
    task = staged.task(0)
    task.add(batch(rows))
    staged.commit([task.commit()])
    assert (tmp_path / "three/myid").read_bytes() == b"9"
