"""Tables mended: the good data blocks stay as they lie, and around them filter, metaindex, index and footer are made anew.

What was in the damaged blocks is told by keys: between the last one before and the first one behind.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logwright.codec.engine.repair import Removed
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.frames.walk import Hole, ListedFile, Walk
from logwright.codec.leveldb.check.table import NO_INDEX, TableCheck, contents, policies
from logwright.codec.leveldb.comparators import Comparator
from logwright.codec.leveldb.formats.table import codec as table
from logwright.codec.leveldb.formats.table.entries import INSIDE, Portion, portions, user_key
from logwright.codec.leveldb.formats.table.filter import (
    BASE,
    BASE_LG,
    POLICY,
    Filter,
    FilterBuilder,
    bits_per_key_of,
    hash_keys,
    probes_of,
)
from logwright.codec.leveldb.formats.table.index import DATA, FILTER
from logwright.codec.leveldb.formats.table.layout import (
    HEAD_SIZE,
    INTERVAL,
    NONE,
    TRAILER_SIZE,
    compression_of,
    handle,
    pack_entries,
    sealed,
    stored,
)
from logwright.codec.leveldb.formats.table.rows import DEFAULT_INTERVAL, Int64s, Unpacked, packed, plain
from logwright.codec.leveldb.formats.table.tables import MAX_DECOMPRESSED
from logwright.codec.leveldb.formats.table.write import (
    Closing,
    TableBuilder,
    TableSettings,
    footer,
    metaindex_block,
)
from logwright.codec.leveldb.keys import MAX_SEQUENCE, TYPE_NAMES, readable
from logwright.codec.leveldb.store.version import FileMetaData
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Listing
from logwright.codec.window import Frames, Window

_SLOTS = 8
"""So many filters are looked at for the bits per key that they were made with."""
_VERSIONS = pa.schema(
    [("key", pa.large_binary()), ("sequence_min", pa.int64()), ("sequence_max", pa.int64())]
)


@dataclass(slots=True)
class Block:
    """A data block that is kept: bytes of the file with its trailer, or `made` anew of what of it can be read."""

    start: int
    stop: int
    rows: int
    first: bytes
    last: bytes
    """Its smallest and largest internal key."""
    key: bytes | None
    """Its key in the index, where that is sound."""
    low: int
    high: int
    mixed: bool = False
    """Its keys are not in order."""
    made: bytes | None = None

    @property
    def size(self) -> int:
        return self.stop - self.start if self.made is None else len(self.made)


@dataclass
class Table:
    """A table as it was found."""

    file: str
    number: int
    size: int
    known: FileMetaData | None
    """What the manifest says of it."""
    level: int | None
    comparator: Comparator
    check: TableCheck
    holes: list[Fault] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    unsupported: bool = False
    """Something in it is of a type that is not known here."""
    unreadable: bool = False
    """There are bytes that the disk can't read."""
    blocks: list[Block] | None = None
    """What is kept; None for a table that stays as it is."""
    cut: list[Removed] = field(default_factory=list)
    lost: list[tuple[bytes | None, bytes | None]] = field(default_factory=list)
    """User keys between which entries are lost; None where that is not known."""

    @property
    def sound(self) -> bool:
        """Whether it stays as it is."""
        if self.unsupported:
            return True
        return not (
            self.holes or self.faults or self.check.faults or self.unreadable or self.check.unreadable
        )

    @property
    def opaque(self) -> bool:
        """Whether it has blocks or entries that are not read here: it is kept as it is, whatever else is wrong with it."""
        return self.unsupported

    @property
    def rows(self) -> int:
        return self.check.rows if self.blocks is None else sum(block.rows for block in self.blocks)

    @property
    def smallest(self) -> bytes | None:
        if self.opaque and self.known is not None:
            return self.known.smallest
        if self.blocks is None:
            return self.check.smallest
        return min((block.first for block in self.blocks), key=self._order, default=None)

    @property
    def largest(self) -> bytes | None:
        if self.opaque and self.known is not None:
            return self.known.largest
        if self.blocks is None:
            return self.check.largest
        return max((block.last for block in self.blocks), key=self._order, default=None)

    def _order(self, key: bytes) -> Any:
        """By key, or (an unknown order) by place: the first is the smallest."""
        return self.comparator.order(key) if self.comparator.known else 0

    @property
    def low(self) -> int:
        return (
            self.check.low
            if self.blocks is None
            else min((one.low for one in self.blocks), default=MAX_SEQUENCE)
        )

    @property
    def high(self) -> int:
        return self.check.high if self.blocks is None else max((one.high for one in self.blocks), default=-1)


class Tables:
    """Reads and mends the tables of one database."""

    def __init__(self, listing: Listing, options: Options, comparator: Comparator) -> None:
        self.listing, self.comparator = listing, comparator
        self.limit: int = options[MAX_DECOMPRESSED.name]
        self._bits: int | None = (
            options["bloom_bits_per_key"] if options.given("bloom_bits_per_key") else None
        )
        self.notes: list[str] = []

    def examine(
        self, file: str, number: int, size: int, known: FileMetaData | None, level: int | None
    ) -> Table:
        """Read a table from end to end; of a damaged one, what is kept."""
        read = ListedFile(self.listing, file, size)
        check = TableCheck(read, self.limit, self.comparator)
        found = Table(file, number, size, known, level, self.comparator, check)
        for one in self.walk(read):
            if isinstance(one, Hole):
                found.unsupported |= one.fault.kind is Kind.UNSUPPORTED
                found.holes.append(one.fault)
                continue
            found.faults += [fault for fault in one.frames.faults if fault.severity is not Severity.INFO]
            check.add(one.window, one.frames)
        found.unreadable = read.unreadable
        found.unsupported |= check.foreign > 0
        if not found.sound:
            self._salvage(found)
        return found

    def walk(self, read: ListedFile) -> Walk:
        own = Options(table.CODEC.options, {MAX_DECOMPRESSED.name: self.limit})
        return Walk(read, table.CODEC, table.CODEC.context(read.name, own))

    # What is kept

    def _salvage(self, found: Table) -> None:
        blocks: list[Block] = []
        dropped: list[tuple[int, int, str]] = []
        mended = 0
        for one in self.walk(ListedFile(self.listing, found.file, found.size)):
            if isinstance(one, Hole):
                continue
            for portion in portions(one.window, one.frames, self.limit, mend=True):
                judged = portion.judged(NO_INDEX, self.comparator) if self.comparator.known else None
                mended += len(portion.mended)
                for i in range(len(portion.frames)):
                    block, why = self.block(found, one.window, portion, judged, i)
                    if block is not None:
                        blocks.append(block)
                    if why:
                        start, stop = (int(edge[i]) for edge in (portion.frames.start, portion.frames.end))
                        dropped.append((one.window.offset + start, one.window.offset + stop, why))
        if mended:
            self.notes.append(
                f"{found.file} has {mended} {'blocks' if mended > 1 else 'block'} with wrong restart points, which are made anew: all "
                "entries are kept."
            )
        if self.comparator.known and not found.check.blocks.sound:
            blocks, strange = _in_place(blocks, found.known, self.comparator)
            dropped += [
                (
                    one.start,
                    one.stop,
                    "its keys do not fit between those around it: a copy of a block within a value, most likely",
                )
                for one in strange
            ]
        found.blocks = blocks
        self._tell(found, dropped)

    def block(
        self, found: Table, window: Window, portion: Portion, judged: Int64s | None, i: int
    ) -> tuple[Block | None, str]:
        """A data block, as far as it can be read; and why not all of it can."""
        rows, made, head = portion.rows, portion.made, portion.frames.header
        low, high = int(rows[i]), int(rows[i + 1])
        why = portion.errors.get(i, "")
        if low == high:
            return None, why
        sequences = made.trailers[low:high] >> 8 & MAX_SEQUENCE
        entry = int(head["entry"][i])
        index = found.check.blocks
        block = Block(
            window.offset + int(portion.frames.start[i]), window.offset + int(portion.frames.end[i]), high - low,
            portion.key(low), portion.key(high - 1), index.keys[entry] if index.sound and entry >= 0 else None,
            int(sequences.min()), int(sequences.max()),
        )  # fmt: skip
        if why:
            part = Unpacked(
                high - low, made.keys, made.key_ends[low : high + 1], made.trailers[low:high], made.values,
                made.value_ends[low : high + 1], made.per_block[i : i + 1], made.skipped[i : i + 1],
            )  # fmt: skip
            data = packed(part, int(portion.measured[i, INTERVAL]) or DEFAULT_INTERVAL)
            kind, content = stored(data, compression(window, portion.frames, i))
            block.made = sealed(content, kind)
            why += f"; the {block.rows} entries before are kept"
        elif i in portion.mended:
            kind, content = stored(portion.mended[i], compression(window, portion.frames, i))
            block.made = sealed(content, kind)
        if judged is not None and judged[i] & INSIDE:
            block.mixed = True
            keys = sorted((portion.key(row) for row in range(low, high)), key=self.comparator.order)
            block.first, block.last = keys[0], keys[-1]
        return block, why

    def _tell(self, found: Table, dropped: list[tuple[int, int, str]]) -> None:
        """What is not kept, and what keys that may have been."""
        blocks = found.blocks or []
        starts = [block.start for block in blocks]
        gone: list[tuple[int, int, str, Fault | None]] = [
            (fault.offset, fault.offset + fault.length, f"{fault.kind}: {fault.detail}", fault)
            for fault in found.holes
        ]
        gone += [(start, stop, why, None) for start, stop, why in dropped]
        for start, stop, why, fault in sorted(gone, key=lambda one: one[:2]):
            rows = None if fault is None else fault.rows_lost
            kept = bisect_left(starts, start)
            lost: dict[str, Any] = {}
            # Behind the last data block there is only what can be made again.
            behind = kept == len(blocks) and found.check.blocks.sound and not _names_data(found, start, stop)
            if rows == 0 or behind:
                rows = 0
            else:
                low = user_key(blocks[kept - 1].last) if kept else _known(found, "smallest")
                high = user_key(blocks[kept].first) if kept < len(blocks) else _known(found, "largest")
                found.lost.append((low, high))
                lost = {
                    name: readable(key)
                    for name, key in (("smallest", low), ("largest", high))
                    if key is not None
                }
                lost |= dict(fault.lost) if fault is not None else {}
            found.cut.append(
                Removed(
                    found.file,
                    start,
                    stop - start,
                    why,
                    0,
                    rows,
                    {"file": found.number, **lost} if rows != 0 else {},
                )
            )
        for fault in found.faults:
            found.cut.append(
                Removed(found.file, fault.offset, fault.length, f"{fault.kind}: {fault.detail}", 0, 0)
            )

    # Putting a table together

    def pieces(self, found: Table) -> tuple[list[Extent], FileMetaData]:
        """What a table is made of when it is mended, and what a manifest has to say of it. At least one block is kept."""
        smallest, largest = found.smallest, found.largest
        assert smallest is not None
        assert largest is not None
        if found.blocks is None:
            return [Copy(found.file, 0, found.size)], FileMetaData(
                found.number, found.size, smallest, largest
            )
        order = self.comparator.order
        ordered = all(order(a.last) < order(b.first) for a, b in pairwise(found.blocks))
        if self.comparator.known and (any(block.mixed for block in found.blocks) or not ordered):
            made = self._sorted(found)
        else:
            made = self._around(found)
        size = sum(piece.stop - piece.start if isinstance(piece, Copy) else len(piece) for piece in made)
        return made, FileMetaData(found.number, size, smallest, largest)

    def _around(self, found: Table) -> list[Extent]:
        """The blocks, and what comes behind them."""
        blocks = found.blocks or []
        closing = Closing(self._settings(found))
        out: list[Extent] = []
        index: list[tuple[bytes, bytes]] = []
        for i, block in enumerate(blocks):
            following = blocks[i + 1].first if i + 1 < len(blocks) else None
            index.append((self._index_key(block, following), handle(closing.size, block.size - TRAILER_SIZE)))
            out.append(block.made if block.made is not None else Copy(found.file, block.start, block.stop))
            closing.size += block.size
        place = None
        for piece in self._filter(found):
            out.append(piece)
            size = piece.stop - piece.start if isinstance(piece, Copy) else len(piece)
            place = handle(closing.size, size - TRAILER_SIZE)
            closing.size += size
        data, meta = closing.compressed(metaindex_block(place, DEFAULT_INTERVAL))
        out.append(data)
        data, where = closing.compressed(pack_entries(index, 1))
        return [*out, data, footer(meta, where)]

    def _index_key(self, block: Block, following: bytes | None) -> bytes:
        comparator = self.comparator
        if block.key is not None and (not comparator.known or self._bounds(block, following)):
            return block.key
        if following is None:
            return comparator.successor(block.last)
        return comparator.separator(block.last, following)

    def _bounds(self, block: Block, following: bytes | None) -> bool:
        assert block.key is not None
        order = self.comparator.order
        if len(block.key) < 8 or order(block.key) < order(block.last):
            return False
        return following is None or order(block.key) < order(following)

    def _settings(self, found: Table) -> TableSettings:
        """How the index is compressed: as the blocks are."""
        names: Counter[str] = Counter()
        for block in (found.blocks or [])[:64]:
            if block.made is None:
                kind = self.listing.read(found.file, block.stop - TRAILER_SIZE, 1)[0]
                head = np.frombuffer(self.listing.read(found.file, block.start, HEAD_SIZE), np.uint8)
                name = compression_of(head, kind)
                if name is not None and kind != NONE:
                    names[name] += 1
        compression = max(names, key=lambda name: names[name], default="none")
        return TableSettings(compression=compression, comparator=self.comparator.name)

    def versions(self, found: Table) -> pa.Table:
        """The user keys of a table, `key`, each with the smallest and the largest of its sequence numbers, `low` and `high`."""
        batches = [_VERSIONS.empty_table()]
        read = ListedFile(self.listing, found.file, found.size)
        kept = None if found.blocks is None else {block.start for block in found.blocks}
        for one in self.walk(read):
            if isinstance(one, Hole):
                continue
            for portion in portions(one.window, one.frames, self.limit, mend=True):
                made, starts = portion.made, portion.frames.start + one.window.offset
                good = np.ones(len(starts), np.bool_) if kept is None else np.isin(starts, list(kept))
                ends = pa.py_buffer(made.key_ends)
                keys = pa.Array.from_buffers(
                    pa.large_binary(), made.rows, [None, ends, pa.py_buffer(made.keys)]
                )
                part = pa.table({"key": keys, "sequence": pa.array(made.trailers >> 8 & MAX_SEQUENCE)})
                part = part.filter(pa.array(np.repeat(good, made.per_block)))
                ranges = part.group_by("key").aggregate([("sequence", "min"), ("sequence", "max")])
                batches.append(ranges.select(_VERSIONS.names))
        both = (
            pa.concat_tables(batches)
            .group_by("key")
            .aggregate([("sequence_min", "min"), ("sequence_max", "max")])
        )
        return both.rename_columns({"sequence_min_min": "low", "sequence_max_max": "high"}).select(
            ["key", "low", "high"]
        )

    # Filters

    def _filter(self, found: Table) -> Iterator[Extent]:
        """The filter block, where the table has one or should."""
        at, there, moved = 0, self._old_filter(found), False
        for block in found.blocks or []:
            moved = moved or block.start != at or block.made is not None
            at += block.size
        wrong = any(fault.kind is Kind.LINK for fault in found.check.faults)
        if there is not None and not moved and not wrong:
            yield Copy(found.file, *there)
            return
        bits = self._bits_for(found, there)
        if not bits:
            return
        builder = FilterBuilder(bits)
        at = 0
        for block in found.blocks or []:
            at += block.size
            builder.add(self._hashes(found, block), at)
        yield sealed(builder.finish(), NONE)

    def _old_filter(self, found: Table) -> tuple[int, int] | None:
        """Where the filter lies with its trailer, if it is whole and of the policy that is known."""
        read = ListedFile(self.listing, found.file, found.size)
        for policy, offset, size in policies(read, found.check.blocks, self.limit):
            if policy == POLICY and contents(read, offset, size) is not None:
                return offset, offset + size + TRAILER_SIZE
        return None

    def _bits_for(self, found: Table, there: tuple[int, int] | None) -> int:
        """Bits per key for the filter of a table; 0: none."""
        if self._bits is not None:
            return self._bits
        blocks = found.check.blocks
        bits = self._made_with(found)
        named = [
            policy
            for policy, _, _ in policies(ListedFile(self.listing, found.file, found.size), blocks, self.limit)
        ]
        if named and named[0] != POLICY:
            self.notes.append(
                f"{found.file} has no filter any more: {named[0]} is not known here. Get finds everything without it."
            )
            return 0
        if not bits and (named or (blocks.kind == FILTER).any()):
            self.notes.append(
                f"{found.file} has no filter any more, since it is not known what bits per key it was made with: bloom_bits_per_key says "
                "it. Get finds everything without it."
            )
        return bits

    def _made_with(self, found: Table) -> int:
        """The bits per key of a filter block that is whole: from filters of which all keys are known; else some that set as many bits."""
        blocks = found.check.blocks
        read = ListedFile(self.listing, found.file, found.size)
        for i in np.flatnonzero(blocks.kind == FILTER).tolist():
            data = contents(read, int(blocks.offset[i]), int(blocks.size[i]))
            if data is None:
                continue
            kept = {block.start: block for block in found.blocks or [] if block.made is None}
            offsets = blocks.offset[blocks.kind == DATA]
            ends = blocks.ends[blocks.kind == DATA]
            for slot in np.unique(offsets >> BASE_LG)[:_SLOTS].tolist():
                mine = np.flatnonzero(offsets >> BASE_LG == slot)
                first, last = int(mine[0]), int(mine[-1])
                # All between the first block of the slot and the slot's end has to be known.
                whole = (
                    first == 0
                    or int(ends[first - 1]) == int(offsets[first])
                    or int(offsets[first]) == slot * BASE
                )
                whole = whole and all(int(one) in kept for one in offsets[mine])
                whole = whole and bool((offsets[first + 1 : last + 1] == ends[first:last]).all())
                if whole:
                    keys = sum(kept[int(one)].rows for one in offsets[mine])
                    bits = bits_per_key_of(data[:-TRAILER_SIZE], int(offsets[first]), keys)
                    if bits:
                        return bits
            for offset in offsets.tolist():
                where = Filter(data[:-TRAILER_SIZE]).of(offset)
                if where is not None and where[1] - where[0] >= 2:
                    probes = int(data[where[1] - 1])
                    fits = [bits for bits in range(1, 64) if probes_of(bits) == probes]
                    return min(fits, key=lambda bits: abs(bits - 10), default=0)
        return 0

    def _hashes(self, found: Table, block: Block) -> Int64s:
        data = (
            np.frombuffer(block.made, np.uint8)
            if block.made is not None
            else ListedFile(self.listing, found.file, found.size)(block.start, block.stop - block.start)
        )
        one = plain(data[:-TRAILER_SIZE], int(data[-TRAILER_SIZE]), self.limit)
        made = Unpacked.of(one)
        hashes = np.empty(made.rows, np.int64)
        hash_keys(made.keys, made.key_ends, 0, made.rows, hashes)
        return hashes

    # Keys out of order

    def _sorted(self, found: Table) -> list[Extent]:
        """The rows of all blocks in order, as a new table."""
        self.notes.append(f"{found.file} is written anew from its entries, whose keys are not in order.")
        batches = [self._rows(found, block) for block in found.blocks or []]
        rows = pa.Table.from_batches(batches).combine_chunks()
        order = self.comparator.column(rows["key"].combine_chunks())
        rows = rows.append_column("order", order)
        rows = rows.sort_by(
            [("order", "ascending"), ("sequence", "descending"), ("type", "descending")]
        ).combine_chunks()
        batch = rows.drop_columns(["order"]).to_batches()[0]
        same = np.ones(batch.num_rows, np.bool_)
        for name in ("key", "sequence", "type"):
            column = batch.column(name)
            same[1:] &= np.asarray(pc.equal(column.slice(1), column.slice(0, len(column) - 1)))
        same[0] = False
        if same.any():
            batch = batch.filter(pa.array(~same))
        there = self._old_filter(found)
        builder = TableBuilder(
            replace(self._settings(found), bloom_bits_per_key=self._bits_for(found, there))
        )
        data, _ = builder.add(batch)
        return [data + builder.finish()]

    def _rows(self, found: Table, block: Block) -> pa.RecordBatch:
        data = (
            np.frombuffer(block.made, np.uint8)
            if block.made is not None
            else ListedFile(self.listing, found.file, found.size)(block.start, block.stop - block.start)
        )
        made = Unpacked.of(plain(data[:-TRAILER_SIZE], int(data[-TRAILER_SIZE]), self.limit))
        keys, values = made.keys.tobytes(), made.values.tobytes()
        kinds = made.trailers & 0xFF
        return pa.RecordBatch.from_pydict(
            {
                "key": pa.array(
                    [keys[a:b] for a, b in zip(made.key_ends[:-1], made.key_ends[1:], strict=True)],
                    pa.large_binary(),
                ),
                "value": pa.array(
                    [
                        values[a:b] if kind else None
                        for a, b, kind in zip(made.value_ends[:-1], made.value_ends[1:], kinds, strict=True)
                    ],
                    pa.large_binary(),
                ),
                "sequence": pa.array(made.trailers >> 8 & MAX_SEQUENCE),
                "type": pa.array([TYPE_NAMES[int(kind)] for kind in kinds]),
            }
        )


def compression(window: Window, frames: Frames, i: int) -> str:
    """The name of how a block is compressed; "none" for a type that is not known."""
    stored = window.data[int(frames.start[i]) : int(frames.end[i]) - TRAILER_SIZE]
    return compression_of(stored, int(frames.header["type"][i])) or "none"


def _known(found: Table, which: str) -> bytes | None:
    return None if found.known is None else user_key(getattr(found.known, which))


def _names_data(found: Table, start: int, stop: int) -> bool:
    """Whether a sound index has a data block there."""
    blocks = found.check.blocks
    return bool(((blocks.kind == DATA) & (blocks.offset < stop) & (blocks.ends > start)).any())


def _in_place(
    blocks: list[Block], known: FileMetaData | None, comparator: Comparator
) -> tuple[list[Block], list[Block]]:
    """The longest row of blocks each of which comes behind the one before, within what the manifest says; and the others.

    Where no index says which blocks are the table's, a block may be one of a table that someone stored as a value.
    """
    order = comparator.order
    inside = [
        one
        for one in blocks
        if known is None
        or (order(known.smallest) <= order(one.first) and order(one.last) <= order(known.largest))
    ]
    tails: list[tuple[bytes, int]] = []
    ends: list[int] = []
    """The block at which the best row of each length ends."""
    before = [-1] * len(inside)
    for i, one in enumerate(inside):
        length = bisect_left(tails, order(one.first))
        before[i] = ends[length - 1] if length else -1
        if length == len(tails):
            tails.append(order(one.last))
            ends.append(i)
        elif order(one.last) < tails[length]:
            tails[length], ends[length] = order(one.last), i
    chosen: set[int] = set()
    at = ends[-1] if ends else -1
    while at >= 0:
        chosen.add(id(inside[at]))
        at = before[at]
    return [one for one in blocks if id(one) in chosen], [one for one in blocks if id(one) not in chosen]
