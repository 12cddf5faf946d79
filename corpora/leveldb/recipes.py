"""Recipes of LevelDB databases and files: small ones with every feature of the formats, and large plain ones.

The small database is built file by file (`script.Script`). Its expected contents are computed in a dictionary, independently of any merge.
The plain ones are rows written by the library's own writers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec import registry
from logwright.codec.base import Codec
from logwright.codec.fault import UsageError
from logwright.codec.layout import Layout
from logwright.codec.leveldb.formats.log import codec as log
from logwright.codec.leveldb.formats.table import codec as table
from logwright.codec.leveldb.formats.table.layout import COMPRESSION_NAMES
from logwright.codec.leveldb.formats.table.tables import ROWS
from logwright.codec.leveldb.names import LOG_NAME, TABLE_NAME, number_of
from logwright.codec.option import Option, parse_choice
from logwright.corpora.bulk import cut, numbered
from logwright.corpora.leveldb.script import Script, content_hash
from logwright.corpora.recipe import PIECE, Generator, Made, Order, Recipe, batches_of, settings
from logwright.corpora.rng import text

Makes = Callable[[Order], Made]

_LAYOUT = "leveldb.db"
OPTIONS = (Option("value.bytes", 100, "Average size of a value in bytes", low=0, high=1 << 20),)
_COMPRESSION = Option(
    "compression",
    None,
    "Compression of all tables; default: each table has a different one",
    parse_choice,
    COMPRESSION_NAMES,
)
_LEFT_OUT = ("comparator", "sequences", "on_duplicate", "sort_buffer_size")
"""Rows come with sequence numbers, and no key is repeated."""
_CORE = pa.schema([ROWS.schema().field(name) for name in ("key", "value", "sequence", "type")])


# Bulk data


def _sorted(order: Order, piece: int) -> pa.RecordBatch:
    """Return part `piece` of the rows in key order; `sequence` is the position in write order."""
    start = piece * PIECE
    count = min(PIECE, order.rows - start)
    size = order.options["value.bytes"]
    pool = np.frombuffer(text(order.rng("pool"), (1 << 16) + 2 * size), np.uint8)
    sizes = size // 2 + order.rng("size").numbers(start, count, size + 1)
    columns = [
        numbered(b"key-", np.arange(start, start + count), len(str(max(order.rows - 1, 0)))),
        cut(pool, order.rng("place").numbers(start, count, 1 << 16), sizes),
        pa.array(start + _places(count) + 1),
        pa.repeat(pa.scalar("value", pa.string()), count),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_CORE)


def _stride(count: int) -> int:
    """Return a number that is coprime to `count`."""
    step = max(1, count * 5 // 8)
    while math.gcd(step, count) > 1:
        step += 1
    return step


def _places(count: int) -> Any:
    """Return for each of `count` sorted rows its position in write order, a deterministic shuffle."""
    return np.arange(count) * _stride(count) % max(count, 1)


def _by_key(order: Order) -> Callable[[], Iterator[pa.RecordBatch]]:
    return lambda: (_sorted(order, piece) for piece in range(-(-order.rows // PIECE)))


def _as_written(order: Order) -> Callable[[], Iterator[pa.RecordBatch]]:
    def batches() -> Iterator[pa.RecordBatch]:
        for batch in _by_key(order)():
            back = np.empty(batch.num_rows, np.int64)
            back[_places(batch.num_rows)] = np.arange(batch.num_rows)
            yield batch.take(pa.array(back))

    return batches


def _plain(view: str, written: Callable[[Order], Any], read: Callable[[Order], Any]) -> Makes:
    def make(order: Order) -> Made:
        corpus = Made({view: read(order)}, batches=written(order), options=order.given(OPTIONS))
        if LOG_NAME.fullmatch(order.name) is None:
            corpus.content = content_hash
        return corpus

    return make


# File by file


def _database(order: Order) -> Made:
    script = Script(order.rng("script"), order.rows, compression=order.options["compression"])
    return Made({"live": lambda: batches_of(script.live(), _CORE)}, files=script.files, content=content_hash)


def _one_log(order: Order) -> Made:
    script = Script(order.rng("script"), order.rows, logs_only=True)
    name = next(file for file in script.files if file.endswith(".log"))
    _named(order.name, LOG_NAME)
    return Made({"rows": lambda: batches_of(script.written(name), _CORE)}, files={"": script.files[name]})


def _one_table(order: Order) -> Made:
    compression = order.options["compression"]
    script = Script(order.rng("script"), order.rows, compression=compression, one_table=True)
    name = next((file for file in script.files if file.endswith(".ldb")), None)
    _named(order.name, TABLE_NAME)
    data = script.empty_table() if name is None else script.files[name]
    rows = [] if name is None else script.written(name)
    return Made({"rows": lambda: batches_of(rows, _CORE)}, files={"": data}, content=content_hash)


def _named(name: str, pattern: Any) -> None:
    """Check that the name is that of such a file, with its number."""
    if number_of(name, pattern) is None:
        example = "000005.log" if pattern is LOG_NAME else "000005.ldb"
        raise UsageError(f"{name!r} is not the name of such a file", advice=f"A name like {example}")


_PLAIN_DOC = "any number of rows, in bulk: unique keys, words as values, any settings of the writer"
_MIXED_DOC = (
    "puts, overwrites and deletions in levels, overlapping tables of level 0 and logs; empty keys and values, values larger than "
    "blocks; every compression, with filters and without"
)


def generators() -> tuple[Generator, ...]:
    """Return the generators. Created on demand, since the options are the writers' own."""
    of_log = "puts, overwrites and deletions in batches, records over many blocks"
    of_table = "versions and deletions of keys, empty ones, values larger than a block"
    targets: tuple[tuple[Codec | Layout, Makes, Recipe], ...] = (
        (
            registry.get_layout(_LAYOUT),
            _plain("live", _as_written, _by_key),
            Recipe("mixed", _MIXED_DOC, _database, (_COMPRESSION,)),
        ),
        (log.CODEC, _plain("rows", _as_written, _as_written), Recipe("mixed", of_log, _one_log)),
        (
            table.CODEC,
            _plain("rows", _by_key, _by_key),
            Recipe("mixed", of_table, _one_table, (_COMPRESSION,)),
        ),
    )
    return tuple(
        Generator(
            target.name,
            (Recipe("plain", _PLAIN_DOC, make, settings(target.options, _LEFT_OUT, OPTIONS)), mixed),
        )
        for target, make, mixed in targets
    )
