"""Data directories built from rows: snapshots and logs, batches of any size, memory."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_directory import MemoryDirectory
from row_batches import chunked
from zookeeper_builds import (
    BASE,
    LAYOUT,
    SNAPSHOT,
    batch,
    build,
    content,
    edits,
    fields_of,
    frame_ends,
    lw_file,
    rows_of,
    tree_of,
    txns_of,
    with_parents,
)

import logwright as lw
from logwright.codec.fault import UsageError
from logwright.codec.frames.walk import ListedFile
from logwright.codec.option import Options
from logwright.codec.zookeeper.names import parse
from logwright.codec.zookeeper.state.tree import Tree
from logwright.codec.zookeeper.store.write import of_tree
from logwright.corpora.cases import cases

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
        data.draw(chunked(batch(shuffled))) if rows else [],
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
    """In several writes; within a write the last row of a path counts."""
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
    assert build(data.draw(chunked(batch(nodes))), **options) == expected


def test_logs_are_rolled_by_size() -> None:
    rows = [{"path": f"/n{n}", "data": bytes(100)} for n in range(50)]
    files = build([batch(rows)], write_as="logs", txnLogSizeLimitInKb=2)
    names = sorted((name for name in files if name.startswith("log.")), key=lambda name: parse(name).zxid)
    assert len(names) > 3
    zxid = 1
    for name in names:
        assert parse(name).zxid == zxid
        (frames,) = frame_ends(files[name])
        zxid += frames - 1
        assert len(files[name]) > 2048 or name == names[-1]
        assert len(files[name]) < 2048 + 300
    assert zxid == 51


def test_logs_are_preallocated_with_zeros() -> None:
    files = build([batch([{"path": "/a", "data": b""}])], write_as="logs", preAllocSize=4)
    assert len(files["log.1"]) == 16 + 4096
    assert files["log.1"].endswith(bytes(3000))


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
    """The newest snapshot, loaded and written, has the same nodes, sessions and ACLs; loaded and written again, the same bytes."""
    home = cases("zookeeper")[case].path / "version-2"
    path = max(home.glob("snapshot.*"), key=lambda file: parse(file.name).zxid)
    tree, faults = tree_of(path)
    assert not faults
    options = Options(SNAPSHOT.options)
    data = b"".join(bytes(buffer) for buffer in of_tree(tree, Options(LAYOUT.options)))
    assert options is not None
    actual, expected = (rows_of(item, path.name) for item in (data, path.read_bytes()))
    assert actual == expected
    for view in ("sessions", "acls"):
        assert sorted(rows_of(data, path.name, view), key=str) == sorted(
            rows_of(path.read_bytes(), path.name, view), key=str
        )


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


def test_rows_may_contain_the_nodes_below_zookeeper() -> None:
    rows = [
        {"path": "/zookeeper/config", "data": b"server.1=x"},
        {"path": "/", "data": b"root"},
        {"path": "/zookeeper/quota/a/zookeeper_limits", "data": b"count=1,bytes=-1"},
    ]
    for budget in (1 << 10, 1 << 20):
        files = build([batch(rows[:1]), batch(rows[1:])], extra=MemoryDirectory(), sort_buffer_size=budget)
        actual = {row["path"]: row["data"] for row in rows_of(files["snapshot.0"], "snapshot.0")}
        assert actual == {
            "/": b"root",
            "/zookeeper": b"",
            "/zookeeper/config": b"server.1=x",
            "/zookeeper/quota": b"",
            "/zookeeper/quota/a": b"",
            "/zookeeper/quota/a/zookeeper_limits": b"count=1,bytes=-1",
        }


def test_epoch_files_are_written() -> None:
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
        "No client keeps the sessions of ephemeral nodes alive (1): the nodes are deleted when the sessions expire.",
    )
    assert "extendedTypesEnabled=true" in written.before_you_start[0]
    assert written.ids == {"zxid": 0}
    # Of a member of an ensemble.
    (tmp_path / "version-2" / "currentEpoch").write_text("0")
    added = lw.write(batch([{"path": "/x"}]), tmp_path, "zookeeper.datadir", mode="append")
    assert added.ids == {"first_zxid": 1, "last_zxid": 1}
    assert [text[:17] for text in added.before_you_start] == ["Do not run a serv", "It belongs to a m"]


# Memory


@pytest.mark.parametrize("count", [6_000, pytest.param(30_000, marks=pytest.mark.extended)])
def test_memory_of_the_builder_is_bounded(count: int) -> None:
    """Of 6 MB and more, no more than a few times the buffer is in memory."""
    builder = LAYOUT.builder(
        None, "version-2", Options(LAYOUT.options, {"sort_buffer_size": 1 << 18}), extra=MemoryDirectory()
    )
    before = pa.total_allocated_bytes()
    numbers = list(range(count))
    random.Random(1).shuffle(numbers)
    for at in range(0, len(numbers), 100):
        list(
            builder.add(batch([{"path": f"/n/{n:06d}", "data": bytes(1000)} for n in numbers[at : at + 100]]))
        )
        assert pa.total_allocated_bytes() - before < 4 << 20
    size = 0
    for piece in builder.finish():
        size += len(piece.data)
        assert pa.total_allocated_bytes() - before < 4 << 20
    assert size > count << 10


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
    (first, second) = (row for name in result for row in txns_of(result[name]))
    assert (first["path"], first["time_ms"]) == ("/x", 1_700_000_000_123)
    assert second["time_ms"] > first["time_ms"], "now"
    wrong = pa.table({"type": ["create"], "path": ["/x"], "version": ["many"]})
    with pytest.raises(UsageError, match="column 'version' is not int32"):
        build(wrong.to_batches(), files)


def test_sub_transactions_of_a_multi_may_omit_fields() -> None:
    """Also if the rest of the row is given."""
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
    assert rows_of(second, "snapshot.3") == rows_of(files["snapshot.3"], "snapshot.3")
    for data in (second, files["snapshot.3"]):
        (file,) = lw_file(data, context)
        assert file["digest"] == tree.digest
        assert file["digest_zxid"] == file["last_processed_zxid"] == 3


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
    with pytest.raises(UsageError, match=r"log\.1: a server does not start on it"):
        build([batch([{"path": "/x"}])], build([]) | {"log.1": log})
