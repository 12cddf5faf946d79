"""Data directories built in memory from rows."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from memory_directory import MemoryDirectory
from pieces import take

import logwright as lw
from logwright.codec import registry
from logwright.codec.frames.walk import ListedFile
from logwright.codec.option import Options
from logwright.codec.store.build import Piece
from logwright.codec.zookeeper.names import parse
from logwright.codec.zookeeper.state.tree import Tree
from logwright.writers.staged import StagedWrite
from logwright.writers.write import Written

SNAPSHOT, TXNLOG = registry.get("zookeeper.snapshot"), registry.get("zookeeper.txnlog")
LAYOUT = registry.get_layout("zookeeper.datadir")

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
    """Return the files of a new directory, or those an append adds."""
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
    """Return paths and data as clients see them. The directory must have no faults."""
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


def frame_ends(data: bytes) -> Iterator[int]:
    from logwright.codec.window import Window

    context = TXNLOG.context("log.1", Options(TXNLOG.options))
    yield len(TXNLOG.scan(Window(np.frombuffer(data, np.uint8), 0, len(data)), 0, context))


def tree_of(path: Path) -> tuple[Tree, list[Any]]:
    compression = {".gz": "gzip", ".snappy": "snappy"}.get(path.suffix, "none")
    return Tree.of_snapshot(
        ListedFile(MemoryDirectory({path.name: path.read_bytes()}), path.name, path.stat().st_size),
        zxid=parse(path.name).zxid,
        compression=compression,
        extended_types=True,
    )


def rows_of(data: bytes, name: str, view: str = "rows") -> list[dict[str, Any]]:
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


BASE = [
    {"path": "/a", "data": b"1"},
    {"path": "/a/b", "data": b"2"},
    {"path": "/e", "kind": "ephemeral", "ephemeral_owner": 7},
]


def edits(rows: Sequence[dict[str, Any]], there: dict[str, bytes] | None = None) -> list[dict[str, Any]]:
    """Return the transactions that appending rows to `BASE` writes."""
    files = build([batch(BASE)], zxid=4) if there is None else there
    result = build([batch(rows)], files)
    return [row for name in result for row in txns_of(result[name])]


def txns_of(data: bytes) -> list[dict[str, Any]]:
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


def lw_file(data: bytes, context: Any) -> list[dict[str, Any]]:
    from logwright.codec.window import Window

    window = Window(np.frombuffer(data, np.uint8), 0, len(data))
    frames = SNAPSHOT.scan(window, 0, context)
    result: list[dict[str, Any]] = SNAPSHOT.describe_file(
        window, len(data), len(frames), b"", 0, context
    ).to_pylist()
    return result
