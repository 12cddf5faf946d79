"""Recipes of ZooKeeper data directories and their files: small ones that have every kind of node and transaction, and large plain ones.

The small directory is put together file by file (`script.Script`). The plain ones are rows, made in bulk and written by the
product's own writers.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec import registry
from logwright.codec.base import Codec
from logwright.codec.fault import UsageError
from logwright.codec.layout import Layout
from logwright.codec.option import Option
from logwright.codec.zookeeper import names
from logwright.codec.zookeeper.formats.snapshot import codec as snapshot
from logwright.codec.zookeeper.formats.snapshot.tables import ROWS as NODES
from logwright.codec.zookeeper.formats.txnlog import codec as txnlog
from logwright.codec.zookeeper.formats.txnlog.layout import TYPE_NAMES
from logwright.corpora.bulk import cut, numbered
from logwright.corpora.recipe import PIECE, Generator, Made, Order, Reads, Recipe, batches_of, settings
from logwright.corpora.rng import text
from logwright.corpora.zookeeper.script import EPOCH_TIME, Script

Makes = Callable[[Order], Made]

_LAYOUT = "zookeeper.datadir"
_GROUP = 1000
"""The number of nodes per parent."""
OPTIONS = (Option("data.bytes", 100, "Bytes of data of a node on average", low=0, high=1 << 20),)
_LEFT_OUT = ("on_duplicate", "sort_buffer_size", "zxid", "session.timeout", "multi")
"""Options without effect, or that would change the rows."""
_PLAIN = pa.schema([NODES.schema().field(name) for name in ("path", "data", "czxid", "version")])
_TREE = pa.schema(
    [
        NODES.schema().field(name)
        for name in (
            *("path", "data", "czxid", "mzxid", "version", "stored_cversion", "aversion", "pzxid"),
            *("kind", "ttl", "ephemeral_owner"),
        )
    ]
)
_TXNS = pa.schema(
    [txnlog.CODEC.tables["rows"].schema(["zxid", "time_ms", "session_id", "type"]).field(i) for i in range(4)]
)
_SYSTEM = ("/zookeeper", "/zookeeper/config", "/zookeeper/quota")


# Large and plain


def _data(order: Order, start: int, count: int) -> Any:
    size = order.options["data.bytes"]
    pool = np.frombuffer(text(order.rng("pool"), (1 << 16) + 2 * size), np.uint8)
    sizes = size // 2 + order.rng("size").numbers(start, count, size + 1)
    return cut(pool, order.rng("place").numbers(start, count, 1 << 16), sizes)


def _paths(order: Order, start: int, count: int) -> pa.Array:
    """Return paths like `/group-000/node-000000`."""
    each = np.arange(start, start + count)
    digits = len(str(max(order.rows - 1, 0)))
    groups = numbered(b"/group-", each // _GROUP, max(digits - 3, 1))
    return pa.compute.binary_join_element_wise(groups, numbered(b"/node-", each, digits), b"").cast(
        pa.string()
    )


def _nodes(order: Order, piece: int) -> pa.RecordBatch:
    start = piece * PIECE
    count = min(PIECE, order.rows - start)
    columns = [
        _paths(order, start, count),
        _data(order, start, count),
        pa.array(np.arange(start, start + count) + 1),
        pa.array(order.rng("version").numbers(start, count, 9), pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_PLAIN)


def _pieces(order: Order) -> Iterator[int]:
    return iter(range(-(-order.rows // PIECE)))


def _in_groups(order: Order, zxid: int) -> Iterator[pa.RecordBatch]:
    """Return the expected tree in order, including the parents, which the transaction creates, and the server's own nodes."""

    def batch(paths: list[str], zxid: int = 0) -> pa.RecordBatch:
        rows = [{"path": path, "data": b"", "czxid": zxid, "version": 0} for path in paths]
        return pa.RecordBatch.from_pylist(rows, schema=_PLAIN)

    yield batch(["/"])
    for piece in _pieces(order):
        rows = _nodes(order, piece)
        for at in range(0, rows.num_rows, 1):
            number = piece * PIECE + at
            if number % _GROUP == 0:
                yield batch([rows.column("path")[at].as_py().rpartition("/")[0]], zxid)
            if number % _GROUP == 0 or at == 0:
                stop = min(rows.num_rows, at + _GROUP - number % _GROUP)
                yield rows.slice(at, stop - at)
    yield batch(list(_SYSTEM))


def _plain_tree(view: str) -> Makes:
    def make(order: Order) -> Made:
        def batches() -> Iterator[pa.RecordBatch]:
            return (_nodes(order, piece) for piece in _pieces(order))

        zxid = _named(order.name, names.SNAPSHOT) if view == "rows" else 0
        return Made({view: lambda: _in_groups(order, zxid)}, batches=batches, options=order.given(OPTIONS))

    return make


def _plain_log(order: Order) -> Made:
    first = _named(order.name, names.LOG)

    def batches() -> Iterator[pa.RecordBatch]:
        for piece in _pieces(order):
            start = piece * PIECE
            count = min(PIECE, order.rows - start)
            columns = {
                "zxid": pa.array(np.arange(start, start + count) + first),
                "time_ms": pa.array(EPOCH_TIME + np.arange(start, start + count)),
                "session_id": pa.array(np.full(count, 0x100000000000000)),
                "type": pa.repeat(pa.scalar("setData"), count),
                "path": _paths(order, start, count),
                "data": _data(order, start, count),
                "version": pa.array(np.arange(start, start + count) % (1 << 31), pa.int32()),
            }
            yield pa.RecordBatch.from_pydict(columns)

    def expected() -> Iterator[pa.RecordBatch]:
        return (batch.select(_TXNS.names).cast(_TXNS) for batch in batches())

    return Made({"rows": expected}, batches=batches, options=order.given(OPTIONS))


# File by file


def _directory(order: Order) -> Made:
    script = Script(order.rng("script"), order.rows)
    return Made(
        {"tree": lambda: batches_of(script.tree(), _TREE)},
        files=script.files,
        content=_content,
        read_options={"extendedTypesEnabled": True},
    )


def _content(name: str, reads: Reads, size: int) -> str | None:
    """Return the hash of the decompressed content of a compressed snapshot."""
    if not name.endswith(".gz"):
        return None
    return hashlib.sha256(gzip.decompress(reads(0, size))).hexdigest()


def _one_log(order: Order) -> Made:
    if _named(order.name, names.LOG) != 1:
        raise UsageError(
            f"{order.name!r} does not begin with the first transaction", advice="A name like log.1"
        )
    script = Script(order.rng("script"), order.rows, split=False)
    rows = [txn | {"type": TYPE_NAMES[txn["type"]]} for txn in script.txns]
    return Made({"rows": lambda: batches_of(rows, _TXNS)}, files={"": script.log})


def _one_snapshot(order: Order) -> Made:
    _named(order.name, names.SNAPSHOT)
    script = Script(order.rng("script"), order.rows, split=False)
    return Made({"rows": lambda: batches_of(script.tree(), _TREE)}, files={"": script.snapshot})


def _named(name: str, kind: str) -> int:
    """Check that the file name has the right form, and return its zxid."""
    parsed = names.parse(name)
    if parsed is None or parsed.kind != kind:
        raise UsageError(f"{name!r} is not a name of such a file", advice=f"A name like {kind}.1")
    return parsed.zxid


_PLAIN_DOC = (
    "any number of nodes, in bulk: a thousand below each parent, words as data, any settings of the writer"
)
_MIXED_DOC = (
    "sessions, ephemeral, container and TTL nodes, ACLs, multis that succeed and fail, errors, closed sessions with a body and without; "
    "two logs and two snapshots, one of them compressed"
)


def generators() -> tuple[Generator, ...]:
    """Build the generator lazily, because it needs the writers' options."""
    changes = "as many changes of data as you like, in bulk"
    targets: tuple[tuple[Codec | Layout, str, Makes, Recipe], ...] = (
        (
            registry.get_layout(_LAYOUT),
            _PLAIN_DOC,
            _plain_tree("tree"),
            Recipe("mixed", _MIXED_DOC, _directory),
        ),
        (txnlog.CODEC, changes, _plain_log, Recipe("mixed", "transactions of every type", _one_log)),
        (
            snapshot.CODEC,
            _PLAIN_DOC,
            _plain_tree("rows"),
            Recipe("mixed", "nodes of every kind, with sessions and ACLs", _one_snapshot),
        ),
    )
    return tuple(
        Generator(
            target.name, (Recipe("plain", doc, make, settings(target.options, _LEFT_OUT, OPTIONS)), mixed)
        )
        for target, doc, make, mixed in targets
    )
