"""Batched edits equal row-by-row edits: the same transactions and the same errors."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from zookeeper_edits import RowEditor

from logwright.codec.fault import UsageError
from logwright.codec.option import Options
from logwright.codec.zookeeper.formats.snapshot.write import DIGEST_ENABLED
from logwright.codec.zookeeper.state.sorted_run import ROWS, columns
from logwright.codec.zookeeper.state.tree import Tree
from logwright.codec.zookeeper.store import rolling
from logwright.codec.zookeeper.store.edit_batches import SCHEMA
from logwright.codec.zookeeper.store.edits import Editor
from logwright.codec.zookeeper.store.rolling import LogWriter

NOBODY = [{"perms": 1, "scheme": "world", "id": "anyone"}]
CLOSED = [{"perms": 31, "scheme": "digest", "id": "a:b"}, {"perms": 1, "scheme": "ip", "id": "10.0.0.1"}]
OPEN = [{"perms": 31, "scheme": "world", "id": "anyone"}]
KNOWN, NEW = 0x100000000000001, 0x100000000000002
Make = Callable[[Editor | RowEditor], pa.RecordBatch]


@cache
def standing() -> Tree:
    """A tree with nodes of every kind, some of them changed."""
    tree = Tree.empty()
    editor = Editor(tree, 1, time=5, timeout=7)
    rows: list[dict[str, Any]] = [
        {"type": "createSession", "session_id": KNOWN},
        {"type": "create", "path": "/a", "data": b"1"},
        {"type": "create", "path": "/a/b", "data": None, "acl": CLOSED},
        {"type": "create", "path": "/a/e", "data": b"", "ephemeral": True, "session_id": KNOWN},
        {"type": "createTTL", "path": "/t", "data": b"t", "ttl": 9},
        {"type": "createContainer", "path": "/c", "data": b"c"},
        {"type": "setData", "path": "/a", "data": b"2"},
        {"type": "setACL", "path": "/c", "acl": NOBODY},
        {"type": "create", "path": "/gone", "data": b""},
        {"type": "delete", "path": "/gone"},
    ]
    for _ in LogWriter(tree, Options((*rolling.OPTIONS, DIGEST_ENABLED))).add(editor.txns(table(rows), 0), 0):
        pass
    return tree


def table(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    names = list(dict.fromkeys(name for row in rows for name in row))
    kinds = {name: pa.string() if name == "path" else SCHEMA.field(name).type for name in names}
    return pa.RecordBatch.from_arrays(
        [pa.array([row.get(name) for row in rows], kinds[name]) for name in names], names
    )


def outcome(editor: Editor | RowEditor, make: Make) -> Any:
    """Return the result, the next zxid and whether it is sound; or the error message."""
    try:
        result = make(editor)
    except UsageError as error:
        return str(error), error.advice
    assert result.schema == SCHEMA
    result.validate(full=True)
    return result.to_pylist(), editor.zxid


def both(make: Make, zxid: int | None) -> Any:
    """Return the result, which is that of the reference."""
    fast, slow = (outcome(of(standing(), zxid, time=11, timeout=13), make) for of in (Editor, RowEditor))
    assert fast == slow
    return fast


PATHS = [
    *(
        "/a",
        "/a/b",
        "/a/b/c",
        "/a/e",
        "/a/e/x",
        "/t",
        "/t/u",
        "/c",
        "/c/d",
        "/n",
        "/n/o",
        "/n/o/p",
        "/n/q",
        "/gone",
    ),
    *("/z\u00e9", "/z\u6570"),
]
WHAT = (
    *("create", "create", "createContainer", "createTTL", "create2", "delete", "setData", "setACL", "check"),
    *("createSession", "closeSession", "error"),
)


def some_nodes(rng: random.Random, wrong: bool) -> list[dict[str, Any]]:
    paths = rng.sample(PATHS, rng.randrange(1, 9))
    if not wrong:
        paths = [path for path in paths if not path.startswith("/a/e")] or ["/n"]
    rows: list[dict[str, Any]] = []
    repeated = [path for path in paths if wrong or not path.startswith(("/z", "/n/o/p"))][:1]
    for path in paths + (repeated if rng.random() < 0.3 else []):
        row: dict[str, Any] = {"path": path, "data": rng.choice([None, b"", b"1", b"2", b"xyz"])}
        if rng.random() < 0.4:
            row["acl"] = rng.choice([OPEN, CLOSED, NOBODY])
        if rng.random() < 0.3:
            row |= {"ctime_ms": 100, "mtime_ms": 200}
        kind = (
            rng.choice([None, None, "ephemeral", "container", "ttl"])
            if wrong or path.startswith(("/z", "/n/o/p"))
            else None
        )
        if kind is not None:
            row["kind"] = kind
            if kind == "ephemeral":
                row["ephemeral_owner"] = rng.choice([KNOWN, NEW])
            if kind == "ttl":
                row["ttl"] = 77
        rows.append(row)
    return rows


TYPES = {"path": pa.string(), "data": pa.binary(), "acl": SCHEMA.field("acl").type, "ctime_ms": pa.int64(), "mtime_ms": pa.int64(),
         "kind": pa.string(), "ttl": pa.int64(), "ephemeral_owner": pa.int64()}  # fmt: skip


@pytest.mark.parametrize("wrong", [False, True])
def test_batched_edit_of_nodes_equals_row_by_row(wrong: bool) -> None:
    rng = random.Random(4 + wrong)
    refused = 0
    for turn in range(150):
        rows = some_nodes(rng, wrong)
        names = [name for name in TYPES if name in ("path", "data") or any(name in row for row in rows)]
        inputs = pa.RecordBatch.from_arrays(
            [pa.array([row.get(name) for row in rows], TYPES[name]) for name in names], names
        )
        run = columns(inputs, 0, None)
        assert run.schema.names == ROWS.names
        data = turn % 3 > 0

        def make(editor: Editor | RowEditor, run: pa.RecordBatch = run, data: bool = data) -> pa.RecordBatch:
            return editor.nodes(run, 3, data=data)

        actual = both(make, 50)
        refused += isinstance(actual[0], str)
    assert refused > 30 if wrong else not refused


def some_txns(rng: random.Random, wrong: bool) -> list[dict[str, Any]]:
    there, rows = {"/a", "/a/b", "/a/e", "/t", "/c"}, []
    for _ in range(rng.randrange(1, 12)):
        free = [
            path for path in PATHS if path not in there and path.rpartition("/")[0] in {"", *there} - {"/a/e"}
        ]
        leaves = [path for path in there if not any(item.startswith(path + "/") for item in there)]
        target = rng.choice(WHAT)
        row: dict[str, Any] = {"type": target}
        if target.startswith("create") and target != "createSession":
            row |= {
                "path": rng.choice(PATHS if wrong and rng.random() < 0.2 else free or ["/zz"]),
                "data": rng.choice([None, b"q"]),
            }
            if target == "createTTL":
                row["ttl"] = 0 if wrong and rng.random() < 0.2 else 5
            elif rng.random() < 0.3:
                row |= {"ephemeral": True, "session_id": 0 if wrong and rng.random() < 0.2 else KNOWN}
            if rng.random() < 0.3:
                row["acl"] = rng.choice([CLOSED, NOBODY])
            if rng.random() < 0.2:
                row["parent_cversion"] = rng.choice([1, 40, 2**31 - 1])
            if row.get("ephemeral"):
                continue  # nothing is put below it here
            there.add(row["path"])
        elif target in ("createSession", "closeSession"):
            row |= {"session_id": NEW} | (
                {"time_out": 3} if rng.random() < 0.3 and target == "createSession" else {}
            )
        elif target == "error":
            row["err"] = -4
        else:
            row["path"] = rng.choice(PATHS if wrong and rng.random() < 0.2 else leaves)
            if target == "delete":
                there.discard(row["path"])
            elif rng.random() < 0.3:
                row["version"] = rng.choice([3, 2**31 - 1])
            if target == "setACL":
                row["acl"] = NOBODY
            if target == "setData":
                row["data"] = rng.choice([None, b"", b"w"])
        if rng.random() < 0.3:
            row |= {"time_ms": 4321, "cxid": 8}
        rows.append(row)
    return rows or [{"type": "error", "err": 1}]


@pytest.mark.alike
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("wrong", [False, True])
def test_batched_edit_of_transactions_equals_row_by_row(wrong: bool, kept: bool) -> None:
    rng = random.Random(10 + wrong + 2 * kept)
    refused = 0
    for _ in range(150):
        rows = some_txns(rng, wrong)
        if kept:
            for i, row in enumerate(rows):
                row["zxid"] = 50 + i + (wrong and rng.random() < 0.05)
        inputs = table(rows)

        def make(editor: Editor | RowEditor, inputs: pa.RecordBatch = inputs) -> pa.RecordBatch:
            return editor.txns(inputs, 3)

        actual = both(make, 50)
        refused += isinstance(actual[0], str)
    assert refused > 30 if wrong and not kept else wrong or not refused


def test_transactions_of_a_multi_see_each_other() -> None:
    inner = [{"type": "create", "path": "/m", "data": b""}, {"type": "setData", "path": "/m", "data": b""}]
    failed = [{"type": "setData", "path": "", "data": b""}, {"type": "error", "err": -101}]
    late = [
        {"type": "delete", "path": "/m"},
        {"type": "check", "path": ""},
        {"type": "create", "path": "/m/n"},
    ]
    rows: list[dict[str, Any]] = [
        {"type": "multi", "txns": inner},
        {"type": "multi", "txns": []},
        {"type": "multi", "txns": failed},
        {"type": "setData", "path": "/m", "data": b"later"},
    ]
    both(lambda editor: editor.txns(table(rows), 0), 50)
    message, _ = both(lambda editor: editor.txns(table([*rows, {"type": "multi", "txns": late}]), 5), 50)
    assert message == "row 9: /m/n has no parent: create fails (NoNode)"


def test_paths_that_no_node_can_have_are_refused() -> None:
    for row in ({"type": "create", "path": "no-slash", "data": b""}, {"type": "create", "data": b""}):
        assert isinstance(both(lambda editor, row=row: editor.txns(table([row]), 0), 50)[0], str)


def test_all_missing_ancestors_of_a_deep_node_are_created() -> None:
    deep = pa.RecordBatch.from_arrays([pa.array(["/x" * 300]), pa.array([b""])], ["path", "data"])
    result, _ = both(lambda editor: editor.nodes(columns(deep, 0, None), 0, data=True), 50)
    assert len(result) == 300


def test_rows_that_repeat_a_path_follow_one_another() -> None:
    rows = pa.RecordBatch.from_pydict(
        {"path": ["/n/o", "/n", "/n", "/n/o", "/n"], "data": [b"1", b"", b"2", b"1", None]}
    )
    result, _ = both(lambda editor: editor.nodes(columns(rows, 0, None), 0, data=True), 50)
    assert [(row["type"], row["path"], row["data"]) for row in result] == [
        ("create", b"/n", b""),
        ("create", b"/n/o", b"1"),
        ("setData", b"/n", b"2"),
        ("setData", b"/n", None),
    ]
