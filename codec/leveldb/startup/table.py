"""Read a table as LevelDB's iterators do: by footer and index, block by block, trusting whatever it is not asked to check.

Source: `table/table.cc`, `table/format.cc`, `table/block.cc`, `db/table_cache.cc` and `util/env_posix.cc` of LevelDB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.fault import UnreadableError
from logwright.codec.kernels.compress import CompressionError
from logwright.codec.kernels.intrinsics import load_u32le
from logwright.codec.kernels.kernel import kernel
from logwright.codec.leveldb.comparators import Comparator
from logwright.codec.leveldb.formats.table import layout
from logwright.codec.leveldb.formats.table.compression import expand_as
from logwright.codec.leveldb.formats.table.index import FOOTER_SIZE, HANDLES_SIZE, handles
from logwright.codec.leveldb.formats.table.layout import (
    Slices,
    entries,
    handles_of,
    is_sealed,
    measure_all,
    unpack_plain,
)
from logwright.codec.leveldb.formats.table.restarts import hiding_fault
from logwright.codec.leveldb.formats.table.resync import MAGIC
from logwright.codec.leveldb.names import old_table_name, table_name
from logwright.codec.leveldb.startup.status import Corruption, IOFailure, NotFound, Status
from logwright.codec.store.overlay import Overlay
from logwright.codec.window import Bytes

LIMIT = 256 << 20
"""Limit in bytes for a decompressed block, and for its expanded keys and values. The limit is ours; LevelDB has none."""
_AHEAD = 1 << 20
MAIN = "main"
"""The version after 1.23, which has Zstandard and other error texts for damaged Snappy blocks."""


@dataclass(slots=True)
class Chunk:
    """Entries of some blocks. `keys[key_ends[i] : key_ends[i + 1]]` is an internal key, or the bytes in its place."""

    keys: Bytes
    key_ends: Int64s
    values: Bytes
    value_ends: Int64s
    position: Int64s
    """For each entry, the byte of its file where its block or record starts."""
    file: int
    level: int | None
    stored: tuple[Bytes, Int64s] | None = None
    """The keys as stored, if `keys` holds sort keys."""

    def with_sort_keys(self, order: Comparator) -> Chunk:
        """Return the chunk with keys that sort bytewise."""
        if order.bytewise or self.stored is not None:
            return self
        keys, key_ends = order.buffers(self.keys, self.key_ends, layout.KEY_TRAILER)
        return replace(self, keys=keys, key_ends=key_ends, stored=(self.keys, self.key_ends))

    @property
    def rows(self) -> int:
        return len(self.position)


@kernel("const u1[], const i8[], const i8[], u1[], i8[], u1[], i8[]")
def unpack_whole(
    buf: Bytes,
    starts: Int64s,
    measures: Int64s,
    keys: Bytes,
    key_ends: Int64s,
    values: Bytes,
    value_ends: Int64s,
) -> int:
    """Write full keys and values of measured blocks one after the other. `key_ends` and `value_ends` start with 0."""
    row = 0
    key_at = 0
    value_at = 0
    for i in range(len(starts)):
        at = i * layout.MEASURES
        if measures[at + layout.ENTRIES] > 0:
            n = unpack_plain(
                buf,
                starts[i] + load_u32le(buf, measures[at + layout.RESTARTS]),
                measures[at + layout.STOPPED],
                keys[key_at:],
                key_ends[row:],
                values[value_at:],
                value_ends[row:],
            )
            # `unpack_plain` counts from 0.
            key_ends[row] = key_at
            value_ends[row] = value_at
            for j in range(row + 1, row + n + 1):
                key_ends[j] += key_at
                value_ends[j] += value_at
            row += n
            key_at = key_ends[row]
            value_at = value_ends[row]
    return row


class TableFile:
    """A table file as the environment provides it: mapped into memory. `shown` is its path in messages."""

    def __init__(self, disk: Overlay, name: str) -> None:
        self.disk, self.name, self.shown = disk, name, f"{disk.name}/{name}"
        self.size = disk.size(name)
        self._ahead, self._at = np.empty(0, np.uint8), 0

    def read(self, offset: int, length: int) -> Bytes:
        """Raises `Status`."""
        if offset + length > self.size:
            raise IOFailure(self.shown, "Invalid argument")
        at = offset - self._at
        if at < 0 or at + length > len(self._ahead):
            self._fill(offset, length)
            at = 0
        return self._ahead[at : at + length]

    def _fill(self, offset: int, length: int) -> None:
        """Read ahead, since blocks are adjacent, but not where the disk cannot read."""
        for size in (max(length, _AHEAD), length):
            try:
                self._ahead = np.frombuffer(self.disk.read(self.name, offset, size), np.uint8)
            except UnreadableError:
                continue
            self._at = offset
            return
        raise IOFailure(self.shown, "Input/output error")


def find(disk: Overlay, number: int) -> TableFile:
    """Return the file of a table (`TableCache::FindTable`). Raises `Status`."""
    first: Status | None = None
    for name in (table_name(number), old_table_name(number)):
        if name not in disk:
            first = first or NotFound(f"{disk.name}/{name}", "No such file or directory")
        elif not disk.size(name):
            # An empty file cannot be mapped.
            first = first or IOFailure(f"{disk.name}/{name}", "Invalid argument")
        else:
            return TableFile(disk, name)
    assert first is not None
    raise first


@dataclass(slots=True)
class Reading:
    """How tables are read: `ReadOptions::verify_checksums`, `Options::paranoid_checks`, and the version."""

    verify_checksums: bool
    paranoid_checks: bool
    version: str
    doubtful: bool = False
    """Whether an index with a wrong checksum or with blocks that are not adjacent was trusted, or a block was not read from its first
    entry."""

    def uncompress(self, contents: Bytes, kind: int) -> Bytes:
        """Raises `Corruption`."""
        if kind == layout.NONE:
            return contents
        if kind not in (layout.SNAPPY, layout.ZSTD) or (kind == layout.ZSTD and self.version != MAIN):
            raise Corruption("bad block type")
        try:
            # LevelDB itself has no zlib, which is type 2 in Mojang's fork.
            return expand_as("zstd" if kind == layout.ZSTD else "snappy", contents, LIMIT)
        except CompressionError as error:
            if self.version != MAIN:
                raise Corruption("corrupted compressed block contents") from None
            raise Corruption(str(error).partition(" (")[0]) from None

    def block(self, file: TableFile, offset: int, size: int, *, verify: bool) -> tuple[Bytes, int]:
        """`ReadBlock`. Returns the contents and the type. Raises `Status`."""
        data = file.read(offset, size + layout.TRAILER_SIZE)
        if verify and not is_sealed(data):
            raise Corruption("block checksum mismatch")
        kind = int(data[size])
        return self.uncompress(data[:size], kind), kind


class Table:
    """An open table. `index_status` becomes the status of an iterator at its end; None is OK."""

    def __init__(self, file: TableFile, size: int, reading: Reading) -> None:
        """`Table::Open`. `size` is the size in the manifest. Raises `Status`."""
        self.file, self.reading = file, reading
        if size < FOOTER_SIZE:
            raise Corruption("file is too short to be an sstable")
        footer = file.read(size - FOOTER_SIZE, FOOTER_SIZE).tobytes()
        if not footer.endswith(MAGIC):
            raise Corruption("not an sstable (bad magic number)")
        places = handles(footer[:HANDLES_SIZE])
        if len(places) < 2:
            raise Corruption("bad block handle")
        offset, size = places[1]
        index, _ = reading.block(file, offset, size, verify=reading.paranoid_checks)
        reading.doubtful |= (
            not is_sealed(file.read(offset, size + layout.TRAILER_SIZE)) or hiding_fault(index) is not None
        )
        _, values, status = entries(index, LIMIT)
        self.index_status = Corruption(layout.MESSAGES[status]) if status else None
        self.places = _places(values)
        ends = [0, *(place[0] + place[1] + layout.TRAILER_SIZE for place in self.places if place is not None)]
        starts = [None if place is None else place[0] for place in self.places]
        reading.doubtful |= starts != ends[:-1]

    def chunks(self, origin: tuple[int, int | None], target: int) -> Iterator[Chunk | Status]:
        """Yield the entries of the blocks in index order, about `target` bytes at a time, and errors in between."""
        group: list[tuple[int, Bytes]] = []
        gathered = 0
        cache = self._shared()
        for place in self.places:
            try:
                offset, contents = self._read(place, cache)
            except Status as status:
                yield from _unpacked(group, origin)
                yield status
                group, gathered = [], 0
                continue
            self.reading.doubtful |= hiding_fault(contents) is not None
            group.append((offset, contents))
            gathered += len(contents)
            if gathered >= target:
                yield from _unpacked(group, origin)
                group, gathered = [], 0
        yield from _unpacked(group, origin)

    def _shared(self) -> dict[int, Bytes | None]:
        """Return the offsets that several handles share. LevelDB's cache identifies compressed blocks by offset alone."""
        offsets = Counter(place[0] for place in self.places if place is not None)
        return {offset: None for offset, times in offsets.items() if times > 1}

    def _read(self, place: tuple[int, int] | None, cache: dict[int, Bytes | None]) -> tuple[int, Bytes]:
        """`Table::BlockReader`. Raises `Status`."""
        if place is None:
            raise Corruption("bad block handle")
        offset, size = place
        known = cache.get(offset)
        if known is not None:
            return offset, known
        contents, kind = self.reading.block(self.file, offset, size, verify=self.reading.verify_checksums)
        if kind != layout.NONE and offset in cache:
            cache[offset] = contents
        return offset, contents


def _places(values: Slices) -> list[tuple[int, int] | None]:
    """Return the handle at the start of each value, or None."""
    offsets, sizes = handles_of(values)
    places: list[tuple[int, int] | None] = list(zip(offsets.tolist(), sizes.tolist(), strict=True))
    for i in np.flatnonzero(offsets < 0).tolist():
        # A malformed handle, or one with 64-bit numbers.
        places[i] = next(iter(handles(values[i])), None)
    return places


def _unpacked(group: list[tuple[int, Bytes]], origin: tuple[int, int | None]) -> Iterator[Chunk | Status]:
    """Yield the entries of blocks, each up to where it can be read."""
    if not group:
        return
    starts = np.cumsum([0, *(len(contents) for _, contents in group)]).astype(np.int64)
    data = group[0][1] if len(group) == 1 else np.concatenate([contents for _, contents in group])
    measures = np.empty(len(group) * layout.MEASURES, np.int64)
    measure_all(data, starts[:-1], starts[1:], LIMIT, measures)
    table = measures.reshape(-1, layout.MEASURES)
    rows = int(table[:, layout.ENTRIES].sum())
    keys = np.empty(int(table[:, layout.KEY_BYTES].sum()), np.uint8)
    values = np.empty(int(table[:, layout.VALUE_BYTES].sum()), np.uint8)
    key_ends, value_ends = np.zeros(rows + 1, np.int64), np.zeros(rows + 1, np.int64)
    unpack_whole(data, starts[:-1], measures, keys, key_ends, values, value_ends)
    offsets = np.array([offset for offset, _ in group], np.int64)
    if rows:
        position = np.repeat(offsets, table[:, layout.ENTRIES])
        yield Chunk(keys, key_ends, values, value_ends, position, *origin)
    for status in table[:, layout.STATUS].tolist():
        if status:
            yield Corruption(layout.MESSAGES[status])
