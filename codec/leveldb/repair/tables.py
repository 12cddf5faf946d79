"""Repair tables: copy the good data blocks, and rebuild filter, metaindex, index and footer around them.

Losses are reported as key ranges, between the last kept key before a damaged block and the first one after it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec import plural
from logwright.codec.arrays import Int64s
from logwright.codec.deferred import compute as pc
from logwright.codec.engine.repair import Removed
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.frames.walk import Hole, ListedFile, Walk
from logwright.codec.leveldb.check.table import DisplacedBlocks, TableCheck, policies
from logwright.codec.leveldb.comparators import Comparator
from logwright.codec.leveldb.formats.table import codec as table
from logwright.codec.leveldb.formats.table.compression import HEAD_SIZE, compression_of, sealed, stored
from logwright.codec.leveldb.formats.table.entries import Entries
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
from logwright.codec.leveldb.formats.table.index import DATA, FILTER, contents
from logwright.codec.leveldb.formats.table.layout import (
    INTERVAL,
    NONE,
    NOTHING,
    TRAILER_SIZE,
    handle,
    pack_entries,
)
from logwright.codec.leveldb.formats.table.portions import INSIDE, Portion, portions
from logwright.codec.leveldb.formats.table.rows import DEFAULT_INTERVAL, Unpacked, plain
from logwright.codec.leveldb.formats.table.tables import MAX_DECOMPRESSED
from logwright.codec.leveldb.formats.table.write import Closing, TableBuilder, TableSettings
from logwright.codec.leveldb.keys import MAX_SEQUENCE, key_range, user_key
from logwright.codec.leveldb.repair.table_blocks import Block, Table
from logwright.codec.leveldb.store.version import FileMetaData
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Listing
from logwright.codec.window import Bytes, Window

_SLOTS = 8
"""Number of filters sampled to find the bits per key they were built with."""
_EMPTY = 8
"""Bytes of a block without entries: one restart point, and their number."""
_VERSIONS = pa.schema(
    [("key", pa.large_binary()), ("sequence_min", pa.int64()), ("sequence_max", pa.int64())]
)


class Tables:
    """Surveys and repairs the tables of one database."""

    def __init__(self, listing: Listing, options: Options, comparator: Comparator) -> None:
        self.listing, self.comparator = listing, comparator
        self.limit: int = options[MAX_DECOMPRESSED.name]
        self._bits: int | None = (
            options["bloom_bits_per_key"] if options.given("bloom_bits_per_key") else None
        )
        self.notes: list[str] = []

    def survey(
        self, file: str, number: int, size: int, known: FileMetaData | None, level: int | None
    ) -> Table:
        """Survey a table. If it is damaged, determine the blocks to keep."""
        read = ListedFile(self.listing, file, size)
        ends = None if known is None else (known.smallest, known.largest)
        check = TableCheck(read, self.limit, self.comparator, ends)
        surveyed = Table(file, number, size, known, level, self.comparator, check)
        for step in self.walk(read):
            if isinstance(step, Hole):
                surveyed.unsupported |= step.fault.kind is Kind.UNSUPPORTED
                surveyed.holes.append(step.fault)
                continue
            surveyed.faults += [fault for fault in step.frames.faults if fault.severity is not Severity.INFO]
            check.add(step.window, step.frames)
        surveyed.unreadable = read.unreadable
        surveyed.unsupported |= check.foreign > 0
        if not surveyed.sound:
            self._salvage(surveyed)
        return surveyed

    def walk(self, read: ListedFile) -> Walk:
        own = Options(table.CODEC.options, {MAX_DECOMPRESSED.name: self.limit})
        return Walk(read, table.CODEC, table.CODEC.context(read.name, own))

    # Blocks to keep

    def _salvage(self, table: Table) -> None:
        blocks: list[Block] = []
        repaired = 0
        for step in self.walk(ListedFile(self.listing, table.file, table.size)):
            if isinstance(step, Hole):
                continue
            for portion in portions(step.window, step.frames, self.limit, repair=True):
                violations = None
                if self.comparator.known:
                    violations = portion.order_violations(NOTHING, self.comparator)
                repaired += len(portion.repaired)
                for i in range(len(portion.frames)):
                    block, why = self.block(table, step.window, portion, violations, i)
                    if block is not None:
                        blocks.append(block)
                    if why:
                        table.dropped.append((*portion.extent(step.window, i), why, None))
        if repaired:
            self.notes.append(
                f"{table.file} has {repaired} {'blocks' if repaired > 1 else 'block'} with wrong restart points, which are rebuilt: all "
                "entries are kept."
            )
        table.blocks = blocks
        if self.comparator.known and table.check.blocks.sound:
            table.displaced = [
                block
                for block in blocks
                if block.place is not None and block.place.outside(block.first, block.last, self.comparator)
            ]
        elif self.comparator.known:
            table.displaced = _out_of_order(blocks, table.known, self.comparator)
        if not table.displaced:
            self._record_losses(table, [])

    def settle(self, tables: Sequence[Table]) -> None:
        """Decide which displaced blocks of surveyed tables are kept, and record what is lost in their places.

        A copy of a block that is kept is dropped. A block that no other has the entries of is kept, unless it may be within a value.
        """
        copies = self._displaced_bytes(tables)
        dropped: set[tuple[str, int]] = set()
        kept: list[tuple[bytes, bytes]] = []
        for surveyed in tables:
            inside = _of_the_file(surveyed) if surveyed.displaced else set()
            for block in surveyed.displaced:
                copy = self._copy(tables, surveyed, block, copies, dropped)
                if copy:
                    why = f"a copy of the block at byte {copy[1]} of {copy[0]}, which is kept"
                elif not surveyed.check.blocks.sound and block.start not in inside:
                    why = "its keys do not fit between those around it: most likely a copy of a block within a value"
                else:
                    kept.append((block.first, block.last))
                    continue
                dropped.add((surveyed.file, block.start))
                rows = 0 if copy and self._inserted(surveyed) else None
                surveyed.dropped.append((block.start, block.stop, why, rows))
        away = DisplacedBlocks(kept, self.comparator)
        for surveyed in tables:
            if surveyed.displaced:
                self._record_displaced(surveyed, dropped, away)

    def _record_displaced(
        self, table: Table, dropped: Collection[tuple[str, int]], away: DisplacedBlocks
    ) -> None:
        """Drop the displaced blocks that are not kept. What belongs in their places is lost, unless one of `away` has it."""
        table.blocks = [block for block in table.blocks or [] if (table.file, block.start) not in dropped]
        elsewhere = {
            block.start for block in table.displaced if block.place is not None and away.fill(block.place)
        }
        table.dropped = [(*loss[:3], 0) if loss[0] in elsewhere else loss for loss in table.dropped]
        overwritten = [
            block
            for block in table.displaced
            if block.place is not None
            and block.start not in elsewhere
            and (table.file, block.start) not in dropped
        ]
        self._record_losses(table, overwritten)
        table.displaced = []

    def _inserted(self, table: Table) -> bool:
        """Return whether misplaced blocks are additional ones, which took the place of no others."""
        if table.check.blocks.sound:
            return False
        added = sum(block.stop - block.start for block in table.displaced)
        return table.known is None or table.size == table.known.size + added

    def _displaced_bytes(self, tables: Sequence[Table]) -> dict[tuple[int, bytes], list[tuple[str, int]]]:
        """Return the blocks that are not where a sound index has their keys, by size and trailer: file and position."""
        positions: dict[tuple[int, bytes], list[tuple[str, int]]] = {}
        if not any(table.displaced for table in tables):
            return positions
        for surveyed in tables:
            blocks = surveyed.check.blocks
            places = [(block.start, block.stop) for block in surveyed.displaced]
            if not blocks.sound:
                data = blocks.kind == DATA
                places = list(zip(blocks.offset[data].tolist(), blocks.ends[data].tolist(), strict=True))
            for start, stop in places:
                tail = self.listing.read(surveyed.file, stop - TRAILER_SIZE, TRAILER_SIZE)
                positions.setdefault((stop - start, tail), []).append((surveyed.file, start))
        return positions

    def _copy(
        self,
        tables: Sequence[Table],
        table: Table,
        block: Block,
        copies: Mapping[tuple[int, bytes], list[tuple[str, int]]],
        dropped: Collection[tuple[str, int]],
    ) -> tuple[str, int] | None:
        """Return the file and the position of another block with the same bytes that is kept."""
        size, order = block.stop - block.start, self.comparator.order
        data = self.listing.read(table.file, block.start, size)
        candidates = list(copies.get((size, data[-TRAILER_SIZE:]), ()))
        for other in tables:
            blocks = other.check.blocks
            if blocks.sound:
                entry = bisect_left(blocks.keys, order(block.first), key=order)
                named = (blocks.entry == entry) & (blocks.ends - blocks.offset == size)
                candidates += [(other.file, start) for start in blocks.offset[named].tolist()]
        for file, start in candidates:
            if (file, start) in dropped or (file, start) == (table.file, block.start):
                continue
            if self.listing.read(file, start, size) == data:
                return file, start
        return None

    def block(
        self, table: Table, window: Window, portion: Portion, violations: Int64s | None, i: int
    ) -> tuple[Block | None, str]:
        """Return a data block as far as it can be read, and why the rest cannot."""
        rows, entries, head = portion.rows, portion.entries, portion.frames.header
        low, high = int(rows[i]), int(rows[i + 1])
        why = portion.errors.get(i, "")
        if low == high:
            empty = int(portion.ends[i] - portion.starts[i]) <= _EMPTY
            return None, why or ("" if empty else "no entry is readable")
        sequences = entries.trailers[low:high] >> 8 & MAX_SEQUENCE
        entry = int(head["entry"][i])
        index = table.check.blocks
        block = Block(
            *portion.extent(window, i), high - low, portion.entries.key(low), portion.entries.key(high - 1),
            index.keys[entry] if index.sound and entry >= 0 else None, int(sequences.min()), int(sequences.max()),
            place=table.check.place(entry),
        )  # fmt: skip
        if why:
            part = Entries(
                high - low, entries.keys, entries.key_ends[low : high + 1], entries.trailers[low:high], entries.values,
                entries.value_ends[low : high + 1],
            )  # fmt: skip
            block.rebuilt = rebuilt(window, portion, i, part)
            why += f"; {plural.count(block.rows, 'entry')} before it kept"
        elif i in portion.repaired:
            block.rebuilt = rebuilt(window, portion, i, portion.repaired[i])
        if violations is not None and violations[i] & INSIDE:
            block.mixed = True
            keys = sorted((portion.entries.key(row) for row in range(low, high)), key=self.comparator.order)
            block.first, block.last = keys[0], keys[-1]
        return block, why

    def _record_losses(self, table: Table, overwritten: Sequence[Block]) -> None:
        """Record what is dropped, and the keys that it may have had; and what other blocks have overwritten, which are kept."""
        away = {block.start for block in table.displaced}
        blocks = [block for block in table.blocks or [] if block.start not in away]
        starts = [block.start for block in blocks]
        gone: list[tuple[int, int, str, int | None, Fault | None]] = [
            (
                fault.offset,
                fault.offset + fault.length,
                f"{fault.kind}: {fault.detail}",
                fault.rows_lost,
                fault,
            )
            for fault in table.holes
        ]
        gone += [(*loss, None) for loss in table.dropped]
        why = "overwritten by another block, which is kept"
        gone += [(block.start, block.start, why, None, None) for block in overwritten]
        for start, stop, why, rows, fault in sorted(gone, key=lambda loss: loss[:2]):
            kept = bisect_left(starts, start)
            lost: dict[str, Any] = {}
            # Everything after the last data block can be rebuilt.
            behind = kept == len(blocks) and table.check.blocks.sound and not _names_data(table, start, stop)
            if rows == 0 or behind:
                rows = 0
            else:
                low = user_key(blocks[kept - 1].last) if kept else _known(table, "smallest")
                high = user_key(blocks[kept].first) if kept < len(blocks) else _known(table, "largest")
                table.lost.append((low, high))
                lost = {"file": table.number, **key_range(low, high), **({} if fault is None else fault.lost)}
            table.cut.append(Removed(table.file, start, stop - start, why, 0, rows, lost))
        table.cut += [
            replace(Removed.damaged(table.file, fault), rows_lost=0, lost={}) for fault in table.faults
        ]

    # Assembling a table

    def pieces(self, table: Table) -> tuple[list[Extent], FileMetaData]:
        """Return the extents of a repaired table, and its entry in the manifest. At least one block is kept."""
        smallest, largest = table.smallest, table.largest
        assert smallest is not None
        assert largest is not None
        if table.blocks is None:
            return [Copy(table.file, 0, table.size)], FileMetaData(
                table.number, table.size, smallest, largest
            )
        order = self.comparator.order
        ordered = all(order(a.last) < order(b.first) for a, b in pairwise(table.blocks))
        if self.comparator.known and (any(block.mixed for block in table.blocks) or not ordered):
            extents = self._sorted(table)
        else:
            extents = self._around(table)
        return extents, FileMetaData(table.number, sum(map(len, extents)), smallest, largest)

    def _around(self, table: Table) -> list[Extent]:
        """Return the blocks, and what follows them."""
        blocks = table.blocks or []
        closing = Closing(self._settings(table))
        out: list[Extent] = []
        index: list[tuple[bytes, bytes]] = []
        for i, block in enumerate(blocks):
            following = blocks[i + 1].first if i + 1 < len(blocks) else None
            index.append((self._index_key(block, following), handle(closing.size, block.size - TRAILER_SIZE)))
            out.append(
                block.rebuilt if block.rebuilt is not None else Copy(table.file, block.start, block.stop)
            )
            closing.size += block.size
        place = None
        for piece in self._filter(table):
            out.append(piece)
            place = handle(closing.size, len(piece) - TRAILER_SIZE)
            closing.size += len(piece)
        return [*out, closing.finish(place, pack_entries(index, 1))]

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

    def _settings(self, table: Table) -> TableSettings:
        """Return settings that compress the index like the blocks."""
        names: Counter[str] = Counter()
        for block in (table.blocks or [])[:64]:
            if block.rebuilt is None:
                kind = self.listing.read(table.file, block.stop - TRAILER_SIZE, 1)[0]
                head = np.frombuffer(self.listing.read(table.file, block.start, HEAD_SIZE), np.uint8)
                name = compression_of(head, kind)
                if name is not None and kind != NONE:
                    names[name] += 1
        compression = max(names, key=lambda name: names[name], default="none")
        return TableSettings(compression=compression, comparator=self.comparator.name)

    def versions(self, table: Table) -> pa.Table:
        """Return the user keys of a table, `key`, each with its smallest and largest sequence number, `low` and `high`."""
        batches = [_VERSIONS.empty_table()]
        read = ListedFile(self.listing, table.file, table.size)
        kept = None if table.blocks is None else {block.start for block in table.blocks}
        for step in self.walk(read):
            if isinstance(step, Hole):
                continue
            for portion in portions(step.window, step.frames, self.limit, repair=True):
                entries, starts = portion.entries, portion.frames.start + step.window.offset
                good = np.ones(len(starts), np.bool_) if kept is None else np.isin(starts, list(kept))
                columns = entries.columns()
                part = pa.table({name: columns[name] for name in ("key", "sequence")})
                part = part.filter(pa.array(np.repeat(good, entries.per_block)))
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

    def _filter(self, table: Table) -> Iterator[Extent]:
        """Yield the filter block, if the table has or needs one."""
        at, there, moved = 0, self._old_filter(table), False
        for block in table.blocks or []:
            moved = moved or block.start != at or block.rebuilt is not None
            at += block.size
        wrong = any(fault.kind is Kind.LINK for fault in table.check.faults)
        if there is not None and not moved and not wrong:
            yield Copy(table.file, *there)
            return
        bits = self._bits_for(table)
        if not bits:
            return
        builder = FilterBuilder(bits)
        at = 0
        for block in table.blocks or []:
            at += block.size
            builder.add(self._hashes(table, block), at)
        yield sealed(builder.finish(), NONE)

    def _old_filter(self, table: Table) -> tuple[int, int] | None:
        """Return the extent of the filter with its trailer, if it is sound and its policy is known."""
        read = ListedFile(self.listing, table.file, table.size)
        for policy, offset, size in policies(read, table.check.blocks, self.limit):
            if policy == POLICY and contents(read, offset, size) is not None:
                return offset, offset + size + TRAILER_SIZE
        return None

    def _bits_for(self, table: Table) -> int:
        """Return the bits per key for the filter of a table, 0 for none."""
        if self._bits is not None:
            return self._bits
        blocks = table.check.blocks
        bits = self._bits_of(table)
        named = [
            policy
            for policy, _, _ in policies(ListedFile(self.listing, table.file, table.size), blocks, self.limit)
        ]
        if named and named[0] != POLICY:
            self.notes.append(
                f"{table.file} loses its filter: the policy {named[0]} is unknown. Get works without it."
            )
            return 0
        if not bits and (named or (blocks.kind == FILTER).any()):
            self.notes.append(
                f"{table.file} loses its filter, since its bits per key are unknown: pass bloom_bits_per_key to "
                "rebuild it. Get works without it."
            )
        return bits

    def _bits_of(self, table: Table) -> int:
        """Return the bits per key of a sound filter block: derived from filters whose keys are all known, or else a number that sets as
        many bits."""
        blocks = table.check.blocks
        read = ListedFile(self.listing, table.file, table.size)
        for i in np.flatnonzero(blocks.kind == FILTER).tolist():
            data = contents(read, int(blocks.offset[i]), int(blocks.size[i]))
            if data is None:
                continue
            kept = {block.start: block for block in table.blocks or [] if block.rebuilt is None}
            offsets = blocks.offset[blocks.kind == DATA]
            ends = blocks.ends[blocks.kind == DATA]
            for slot in np.unique(offsets >> BASE_LG)[:_SLOTS].tolist():
                mine = np.flatnonzero(offsets >> BASE_LG == slot)
                first, last = int(mine[0]), int(mine[-1])
                # All blocks from the first start of the slot to the end of the slot must be known.
                known = (
                    first == 0
                    or int(ends[first - 1]) == int(offsets[first])
                    or int(offsets[first]) == slot * BASE
                )
                known = known and all(int(start) in kept for start in offsets[mine])
                known = known and bool((offsets[first + 1 : last + 1] == ends[first:last]).all())
                if known:
                    keys = sum(kept[int(start)].rows for start in offsets[mine])
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

    def _hashes(self, table: Table, block: Block) -> Int64s:
        entries = self._entries(table, block)
        hashes = np.empty(entries.rows, np.int64)
        hash_keys(entries.keys, entries.key_ends, 0, entries.rows, hashes)
        return hashes

    def _entries(self, table: Table, block: Block) -> Entries:
        if block.rebuilt is None:
            data = ListedFile(self.listing, table.file, table.size)(block.start, block.stop - block.start)
        else:
            data = np.frombuffer(block.rebuilt, np.uint8)
        return Unpacked.of(plain(data[:-TRAILER_SIZE], int(data[-TRAILER_SIZE]), self.limit))

    # Keys out of order

    def _sorted(self, table: Table) -> list[Extent]:
        """Write the rows of all blocks, sorted, as a new table."""
        self.notes.append(f"{table.file} is rewritten from its entries, since its keys are out of order.")
        batches = [
            pa.RecordBatch.from_pydict(self._entries(table, block).columns()) for block in table.blocks or []
        ]
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
        builder = TableBuilder(replace(self._settings(table), bloom_bits_per_key=self._bits_for(table)))
        data, _ = builder.add(batch)
        return [data + builder.finish()]


def rebuilt(window: Window, portion: Portion, i: int, contents: Entries | Bytes) -> bytes:
    """Return a block with other contents, stored as the old one was: with its restart interval and its compression."""
    frames = portion.frames
    if isinstance(contents, Entries):
        contents = contents.packed(int(portion.measured[i, INTERVAL]) or DEFAULT_INTERVAL)
    old = window.data[int(frames.start[i]) : int(frames.end[i]) - TRAILER_SIZE]
    kind, content = stored(contents, compression_of(old, int(frames.header["type"][i])) or "none")
    return sealed(content, kind)


def _known(table: Table, which: str) -> bytes | None:
    return None if table.known is None else user_key(getattr(table.known, which))


def _names_data(table: Table, start: int, stop: int) -> bool:
    """Return whether a sound index has a data block in this range."""
    blocks = table.check.blocks
    return bool(((blocks.kind == DATA) & (blocks.offset < stop) & (blocks.ends > start)).any())


def _of_the_file(table: Table) -> set[int]:
    """Return the positions of the blocks that adjoin, directly or by others, the start of the file or a block in order. Other blocks may be
    within a value of a damaged one."""
    away = {block.start for block in table.displaced}
    inside: set[int] = set()
    run: list[int] = []
    last = 0
    pairs = zip(table.check.blocks.offset.tolist(), table.check.blocks.ends.tolist(), strict=True)
    for start, end in [*pairs, (-1, -1)]:
        if start != last:
            if run and (run[0] == 0 or not away.issuperset(run)):
                inside.update(run)
            run = []
        run.append(start)
        last = end
    return inside


def _out_of_order(blocks: list[Block], known: FileMetaData | None, comparator: Comparator) -> list[Block]:
    """Return the blocks that are not in the longest sequence of blocks in key order and within the key range in the manifest.

    Without an index, a block may belong to another table that was stored as a value.
    """
    order = comparator.order
    inside = [
        block
        for block in blocks
        if known is None
        or (order(known.smallest) <= order(block.first) and order(block.last) <= order(known.largest))
    ]
    tails: list[tuple[bytes, int]] = []
    ends: list[int] = []
    """The last block of the best sequence of each length."""
    before = [-1] * len(inside)
    for i, block in enumerate(inside):
        length = bisect_left(tails, order(block.first))
        before[i] = ends[length - 1] if length else -1
        if length == len(tails):
            tails.append(order(block.last))
            ends.append(i)
        elif order(block.last) < tails[length]:
            tails[length], ends[length] = order(block.last), i
    chosen: set[int] = set()
    at = ends[-1] if ends else -1
    while at >= 0:
        chosen.add(id(inside[at]))
        at = before[at]
    return [block for block in blocks if id(block) not in chosen]
