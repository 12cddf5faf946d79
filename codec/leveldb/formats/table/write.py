"""Write tables from rows alone, as LevelDB's own builder does: without compression, byte for byte the same.

Source: `table/table_builder.cc` of LevelDB.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.columns import one_batch
from logwright.codec.deferred import compute as pc
from logwright.codec.engine.merge import compare
from logwright.codec.fault import UsageError
from logwright.codec.kernels.kernel import kernel
from logwright.codec.leveldb.comparators import NAMES, Comparator, comparator_of
from logwright.codec.leveldb.formats.table.compression import sealed, stored
from logwright.codec.leveldb.formats.table.entries import Entries
from logwright.codec.leveldb.formats.table.filter import META_PREFIX, POLICY, FilterBuilder, hash_keys
from logwright.codec.leveldb.formats.table.index import FOOTER, FOOTER_SIZE, HANDLES_SIZE, NAME
from logwright.codec.leveldb.formats.table.layout import (
    COMPRESSION_NAMES,
    KEY_TRAILER,
    LARGEST,
    NONE,
    TRAILER_SIZE,
    handle,
    pack_entries,
)
from logwright.codec.leveldb.formats.table.pack import (
    block_room,
    index_room,
    pack_blocks,
    pack_index,
    seal_blocks,
    separators,
)
from logwright.codec.leveldb.formats.table.resync import MAGIC
from logwright.codec.leveldb.formats.table.tables import TableContext
from logwright.codec.leveldb.keys import BYTEWISE, DELETION, MAX_SEQUENCE, TYPE_NAMES, VALUE
from logwright.codec.option import Option, Options, parse_choice, parse_text
from logwright.codec.window import Bytes, Chunk

OPTIONS = (
    Option(
        "block_size",
        4096,
        "Size of a data block in bytes before compression; its last entry may exceed it",
        low=1,
        high=4 << 20,
    ),
    Option(
        "block_restart_interval", 16, "Number of entries from one full key to the next", low=1, high=1 << 20
    ),
    Option(
        "compression",
        "snappy",
        "Compression of blocks, used if it saves more than an eighth; zlib and zlib_raw (raw deflate) are from Mojang's fork (Minecraft), "
        "and LevelDB cannot read them",
        parse_choice,
        COMPRESSION_NAMES,
    ),
    Option("zstd_compression_level", 1, "-5 to 22", low=-5, high=22),
    Option(
        "bloom_bits_per_key",
        0,
        "Bits per key of a Bloom filter; 0 for no filter",
        low=0,
        high=1 << 10,
    ),
    Option(
        "comparator",
        BYTEWISE,
        f"Comparator, which defines the order of keys: {', '.join(NAMES)}. The order of any other comparator is unknown; rows are "
        "written in the order in which they are given",
        parse_text,
    ),
)


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Settings for writing tables. Names and defaults are those of LevelDB's `Options`."""

    block_size: int = 4096
    block_restart_interval: int = 16
    compression: str = "snappy"
    zstd_compression_level: int = 1
    bloom_bits_per_key: int = 0
    comparator: str = BYTEWISE

    @classmethod
    def of(cls, options: Options) -> TableSettings:
        """Create settings from `OPTIONS`."""
        return cls(*(options[option.name] for option in OPTIONS))

    @property
    def order(self) -> Comparator:
        return comparator_of(self.comparator)

    @property
    def bytewise(self) -> bool:
        return self.comparator == BYTEWISE


_PORTION = 1 << 20
"""Bytes of blocks built at a time, which fit the processor's cache."""
_SIGN = -1 << 63
"""Flipping this bit of both makes a signed comparison of two integers an unsigned one."""


@kernel("const u1[], const i8[], const i8[], i8")
def first_unordered(keys: Bytes, key_ends: Int64s, trailers: Int64s, rows: int) -> int:
    """Return the first row whose internal key is not after that of the previous row, or the number of rows."""
    for i in range(1, rows):
        a, b, end = key_ends[i - 1], key_ends[i], key_ends[i + 1]
        order = compare(keys, a, b, keys, b, end)
        if order > 0 or (order == 0 and int(trailers[i - 1]) ^ _SIGN <= int(trailers[i]) ^ _SIGN):
            return i
    return rows


def prepare(rows: pa.RecordBatch, first_row: int = 0) -> Entries:
    """Convert rows for writing. `sequence` may be absent (0), and `type` absent or null (then a null value is a deletion).

    Raises `UsageError` for invalid rows.
    """
    count = rows.num_rows
    keys, key_ends, key_null = _binary(rows, "key")
    if key_null is not None:
        raise UsageError(
            f"row {first_row + int(np.argmax(key_null))}: the key is null", advice="LevelDB has no null keys"
        )
    values, value_ends, value_null = _binary(rows, "value")
    null = np.zeros(count, np.bool_) if value_null is None else value_null
    kinds = _kinds(rows, null, first_row)
    sequences = _sequences(rows, first_row)
    for name, ends in (("key", key_ends), ("value", value_ends)):
        longest = int(np.diff(ends).max(initial=0))
        if longest > LARGEST - KEY_TRAILER:
            raise UsageError(f"a {name} of {longest} bytes is too long: LevelDB's lengths have 32 bits")
    return Entries(count, keys, key_ends, sequences << 8 | kinds, values, value_ends)


def _binary(rows: pa.RecordBatch, name: str) -> tuple[Bytes, Int64s, Bools | None]:
    """Return the bytes, where each value ends (with one more number, the start of the first), and which values are null."""
    if rows.schema.get_field_index(name) < 0:
        if name == "key":
            raise UsageError(f"{NAME} needs a column 'key'")
        return np.empty(0, np.uint8), np.zeros(rows.num_rows + 1, np.int64), np.ones(rows.num_rows, np.bool_)
    array = large_binary(name, rows.column(name))
    null = np.asarray(array.is_null()) if array.null_count else None
    if null is not None:
        array = pc.fill_null(array, b"")
    _, offsets, data = array.buffers()
    ends = (
        np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8)
        if len(array)
        else np.zeros(1, np.int64)
    )
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    return content, np.ascontiguousarray(ends), null


def large_binary(name: str, array: pa.Array[Any]) -> pa.Array[Any]:
    """Return a column with 64-bit offsets. Raises `UsageError` for one of another type than binary or text."""
    try:
        return array.cast(pa.large_binary())
    except pa.ArrowException:
        raise UsageError(f"column {name!r} has type {array.type}; expected binary or text") from None


def _kinds(rows: pa.RecordBatch, null: Bools, first_row: int) -> Int64s:
    kinds = np.where(null, DELETION, VALUE).astype(np.int64)
    if rows.schema.get_field_index("type") < 0:
        return kinds
    names = rows.column("type")
    kinds[np.asarray(names.is_valid())] = -1
    for number, name in enumerate(TYPE_NAMES):
        kinds[np.asarray(pc.fill_null(pc.equal(names.cast(pa.string()), name), False))] = number
    if (kinds < 0).any():
        row = int(np.argmax(kinds < 0))
        raise UsageError(
            f"row {first_row + row}: unknown type {names[row].as_py()!r}; expected one of {', '.join(TYPE_NAMES)}"
        )
    wrong = null != (kinds == DELETION)
    if wrong.any():
        row = int(np.argmax(wrong))
        problem = "has a value" if kinds[row] == DELETION else "has no value"
        raise UsageError(f"row {first_row + row}: a {TYPE_NAMES[kinds[row]]} that {problem}")
    return kinds


def _sequences(rows: pa.RecordBatch, first_row: int) -> Int64s:
    if rows.schema.get_field_index("sequence") < 0:
        return np.zeros(rows.num_rows, np.int64)
    array = rows.column("sequence")
    if array.null_count or not pa.types.is_integer(array.type):
        raise UsageError(
            f"column 'sequence' has type {array.type} and {array.null_count} nulls; expected int64 without nulls"
        )
    # Unsigned 64-bit numbers above the range become negative, which is rejected too.
    sequences = np.asarray(array.cast(pa.int64(), safe=False))
    wrong = (sequences < 0) | (sequences > MAX_SEQUENCE)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise UsageError(f"row {first_row + row}: sequence {array[row].as_py()} does not fit 56 bits")
    return sequences


@dataclass(slots=True)
class Closing:
    """Writes the end of a table, after the data blocks."""

    settings: TableSettings
    size: int = 0
    """Bytes written: the position of the next block."""

    def block(self, contents: Any, kind: int) -> tuple[bytes, bytes]:
        """Return a block with its trailer, and its handle."""
        place = handle(self.size, len(contents))
        data = sealed(contents, kind)
        self.size += len(data)
        return data, place

    def compressed(self, plain: Bytes | bytes) -> tuple[bytes, bytes]:
        kind, contents = stored(plain, self.settings.compression, self.settings.zstd_compression_level)
        return self.block(contents, kind)

    def finish(self, filter_handle: bytes | None, index: Bytes | bytes) -> bytes:
        """Return the metaindex, the index and the footer."""
        metaindex, meta = self.compressed(
            metaindex_block(filter_handle, self.settings.block_restart_interval)
        )
        stored_index, place = self.compressed(index)
        self.size += FOOTER_SIZE
        return metaindex + stored_index + footer(meta, place)


def footer(metaindex: bytes, index: bytes) -> bytes:
    """Return the footer, from stored handles."""
    return FOOTER.pack({"handles": (metaindex + index).ljust(HANDLES_SIZE, b"\0"), "magic": MAGIC})


def metaindex_block(filter_handle: bytes | None, interval: int, policy: str = POLICY) -> bytes:
    """Return the block that names the filter policy and the filter's position; empty without a filter."""
    pairs = [] if filter_handle is None else [((META_PREFIX + policy).encode(), filter_handle)]
    return pack_entries(pairs, interval)


class _Index:
    """Builds the index block. The position of a data block is known before its key."""

    def __init__(self) -> None:
        self._keys: list[Bytes] = []
        self._key_sizes: list[Int64s] = []
        self._ends: list[Int64s] = []
        self._sizes: list[Int64s] = []

    def add(self, entries: Entries, row_ends: Int64s, count: int, ends: Int64s, *, bytewise: bool) -> None:
        """Add blocks of these rows, from byte `ends[i]` of the file to `ends[i + 1]` each, and the keys of all but the last."""
        lasts = row_ends[1 : count + 1]
        room = int((entries.key_ends[lasts] - entries.key_ends[lasts - 1]).sum()) + KEY_TRAILER * count
        keys, key_ends = np.empty(room, np.uint8), np.empty(count, np.int64)
        size = separators(
            entries.keys, entries.key_ends, entries.trailers, row_ends, count, bytewise, keys, key_ends
        )
        self._keys.append(keys[:size])
        self._key_sizes.append(np.diff(key_ends))
        self._ends.append(ends[:-1])
        self._sizes.append(np.diff(ends) - TRAILER_SIZE)

    def put(self, key: bytes) -> None:
        """Add the key of the last block."""
        self._keys.append(np.frombuffer(key, np.uint8))
        self._key_sizes.append(np.array([len(key)], np.int64))

    def block(self) -> Bytes:
        nothing = np.zeros(1, np.int64)
        keys = np.concatenate((np.empty(0, np.uint8), *self._keys))
        key_ends = np.cumsum(np.concatenate((nothing, *self._key_sizes)))
        offsets, sizes = (np.concatenate((nothing[:0], *columns)) for columns in (self._ends, self._sizes))
        out = np.empty(index_room(len(keys), len(offsets)), np.uint8)
        return out[: int(pack_index(keys, key_ends, offsets, sizes, out))]


def _compressed(
    packed: Bytes, ends: Int64s, count: int, settings: TableSettings, most: int | None
) -> tuple[Bytes, Int64s]:
    """Compress packed blocks, up to the first one that ends at or after `most`. Each has room for its checksum."""
    parts: list[Any] = []
    bounds = [0]
    for i in range(count):
        plain = packed[int(ends[i]) : int(ends[i + 1]) - TRAILER_SIZE]
        kind, contents = stored(plain, settings.compression, settings.zstd_compression_level)
        parts += contents, bytes((kind, 0, 0, 0, 0))
        bounds.append(bounds[-1] + len(contents) + TRAILER_SIZE)
        if most is not None and bounds[-1] >= most:
            break
    return np.frombuffer(bytearray().join(parts), np.uint8), np.array(bounds, np.int64)


class TableBuilder:
    """Builds a table from sorted rows (`TableBuilder`). The result does not depend on how rows are divided into batches.

    `size` is that of the blocks so far (`FileSize`), `rows` the number of rows added. `smallest` and `largest` are the first and last
    internal key, and `largest_sequence` is over all rows.
    """

    def __init__(self, settings: TableSettings) -> None:
        self.settings = settings
        self.rows = 0
        self.smallest: bytes | None = None
        self.largest: bytes | None = None
        self.largest_sequence = 0
        self._closing = Closing(settings)
        self._filter = FilterBuilder(settings.bloom_bits_per_key) if settings.bloom_bits_per_key else None
        self._index = _Index()
        self._pending: bytes | None = None
        """The last key of the last block."""
        self._open: list[pa.RecordBatch] = []
        """Rows of an incomplete block."""

    @property
    def size(self) -> int:
        return self._closing.size

    def add(self, rows: pa.RecordBatch, limit: int | None = None) -> tuple[bytes, int]:
        """Add rows. Returns the bytes of the blocks that are complete, and the number of rows taken.

        Fewer than all are taken if a block brings `size` to `limit` bytes, which ends the table (`max_file_size`). Raises `UsageError` for
        rows that are invalid or out of order.
        """
        if not rows.num_rows:
            return b"", 0
        carried = sum(open_rows.num_rows for open_rows in self._open)
        batch = rows if not carried else one_batch(pa.Table.from_batches([*self._open, rows]))
        data, done = self._write(prepare(batch, self.rows - carried), finish=False, limit=limit)
        taken = done - carried if limit is not None and self.size >= limit else rows.num_rows
        self.rows += taken
        self._open = [batch.slice(done, carried + taken - done)] if carried + taken > done else []
        return data, taken

    def finish(self) -> bytes:
        """Return the rest of the table with its footer."""
        data = b""
        if self._open:
            batch = self._open[0]
            data, _ = self._write(prepare(batch, self.rows - batch.num_rows), finish=True, limit=None)
            self._open = []
        self._emit(None)
        place = None
        if self._filter is not None:
            filter_block, place = self._closing.block(self._filter.finish(), NONE)
            data += filter_block
        return data + self._closing.finish(place, self._index.block())

    def _write(self, entries: Entries, *, finish: bool, limit: int | None) -> tuple[bytes, int]:
        """Write blocks of rows, from the first one on. Returns the bytes, and the row after them."""
        settings = self.settings
        self._check(entries, self.rows - sum(open_rows.num_rows for open_rows in self._open))
        room = _PORTION + block_room(settings.block_size, entries.largest())
        row_ends, ends = np.empty(entries.rows + 1, np.int64), np.empty(entries.rows + 1, np.int64)
        restarts, scratch = np.empty(entries.rows + 1, np.int64), entries.scratch()
        parts: list[Any] = []
        row = 0
        while row < entries.rows and (limit is None or self.size < limit):
            out = np.empty(room, np.uint8)
            count = pack_blocks(
                row,
                entries.rows,
                entries.key_ends,
                entries.keys,
                entries.trailers,
                entries.value_ends,
                entries.values,
                settings.block_restart_interval,
                settings.block_size,
                _PORTION,
                finish,
                out,
                row_ends,
                ends,
                restarts,
                scratch,
            )
            if not count:
                break
            count = self._store(entries, out, row_ends, ends, int(count), parts, limit)
            row = int(row_ends[count])
        return b"".join(parts), row

    def _store(
        self,
        entries: Entries,
        out: Bytes,
        row_ends: Int64s,
        ends: Int64s,
        count: int,
        parts: list[Any],
        limit: int | None,
    ) -> int:
        """Take packed blocks, up to the one that reaches `limit`. Returns their number."""
        settings = self.settings
        left = None if limit is None else limit - self.size
        if settings.compression == "none":
            ends = ends[: count + 1]
            out[ends[1:] - TRAILER_SIZE] = NONE
            data = out[: int(ends[-1])]
        else:
            data, ends = _compressed(out, ends, count, settings, left)
        if left is not None:
            ends = ends[: int(np.searchsorted(ends[1:], left)) + 2]
        count = len(ends) - 1
        data = data[: int(ends[-1])]
        seal_blocks(data, ends, count)
        parts.append(data)
        row, stop = int(row_ends[0]), int(row_ends[count])
        first, last = entries.key(row), entries.key(stop - 1)
        self._emit(first)
        self._index.add(entries, row_ends, count, self.size + ends, bytewise=settings.bytewise)
        self._pending = last
        if self._filter is not None:
            hashes = np.empty(stop - row, np.int64)
            hash_keys(entries.keys, entries.key_ends, row, stop, hashes)
            for i in range(count):
                keys = hashes[int(row_ends[i]) - row : int(row_ends[i + 1]) - row]
                self._filter.add(keys, self.size + int(ends[i + 1]))
        self._closing.size += int(ends[-1])
        if self.smallest is None:
            self.smallest = first
        self.largest = last
        highest = int((entries.trailers[row:stop] >> 8 & MAX_SEQUENCE).max())
        self.largest_sequence = max(self.largest_sequence, highest)
        return count

    def _check(self, entries: Entries, first_row: int) -> None:
        """Check that the rows are in order and come after the previous ones."""
        order = self.settings.order
        if not order.known:
            return
        keys, key_ends = order.buffers(entries.keys, entries.key_ends)
        wrong = int(first_unordered(keys, key_ends, entries.trailers, entries.rows))
        if wrong < entries.rows:
            raise _unordered(first_row + wrong, entries.key(wrong), entries.key(wrong - 1), order)
        if self.largest is not None:
            first = entries.key(0)
            if order.order(first) <= order.order(self.largest):
                raise _unordered(first_row, first, self.largest, order)

    def _emit(self, following: bytes | None) -> None:
        """Add the index key of the last block, once it is known what follows (None: nothing)."""
        if self._pending is None:
            return
        last = self._pending
        order = self.settings.order
        self._index.put(order.successor(last) if following is None else order.separator(last, following))
        self._pending = None


def _unordered(row: int, key: bytes, before: bytes, order: Comparator) -> UsageError:
    user, last = key[:-KEY_TRAILER], before[:-KEY_TRAILER]
    if user == last:
        text = f"row {row}: the key {user!r} is repeated without a lower sequence"
        return UsageError(
            text,
            advice="Rows of one key need descending sequence numbers; without sequence numbers, each key must be unique",
        )
    text = f"row {row}: the key {user!r} is not after {last!r}"
    order_text = "bytewise" if order.bytewise else f"in the order of {order.name}"
    return UsageError(text, advice=f"Sort the rows by key, {order_text}, and by sequence, descending")


def encode(rows: pa.Table, context: TableContext) -> Iterator[Chunk]:
    """Write a table from its rows. See `Codec.encode`."""
    builder = TableBuilder(TableSettings.of(context.options))
    for batch in rows.to_batches(max_chunksize=1 << 16):
        data, _ = builder.add(batch)
        if data:
            yield data
    yield builder.finish()
