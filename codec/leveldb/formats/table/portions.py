"""Read all entries of data blocks, with full keys, in bounded portions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.engine.merge import compare
from logwright.codec.kernels.intrinsics import load_i64le
from logwright.codec.kernels.kernel import kernel
from logwright.codec.leveldb.comparators import BYTEWISE_COMPARATOR, Comparator
from logwright.codec.leveldb.formats.table import layout as block
from logwright.codec.leveldb.formats.table.index import DATA
from logwright.codec.leveldb.formats.table.layout import Slices, measure, measure_all
from logwright.codec.leveldb.formats.table.restarts import with_repaired_points, wrong_blocks
from logwright.codec.leveldb.formats.table.rows import DEFAULT_INTERVAL, PORTION, Unpacked, plain_blocks
from logwright.codec.leveldb.keys import TRAILER_SIZE as KEY_TRAILER
from logwright.codec.window import Bytes, Frames, Window

_SIGN = -1 << 63
"""Flipping this bit of both makes a signed comparison of two integers an unsigned one."""

INSIDE, BEFORE, LOW, HIGH = 1, 2, 4, 8
"""Order violations in a block, as bits: an entry is not after the previous one; the first one is not after the block before; the first
one is not after the index key before; the last one is after the block's own index key."""


@kernel("const u1[], i8, i8, i8, const u1[], i8, i8, i8")
def is_before(
    a: Bytes, a_at: int, a_end: int, a_trailer: int, b: Bytes, b_at: int, b_end: int, b_trailer: int
) -> bool:
    """Return whether an internal key precedes another one, bytewise. The user keys are ranges of their buffers."""
    order = compare(a, a_at, a_end, b, b_at, b_end)
    if order:
        return order < 0
    return b_trailer ^ _SIGN < a_trailer ^ _SIGN


@kernel("const u1[], const i8[], const i8[], const i8[], const u1[], const i8[], const i8[], i8[]")
def check_order(
    keys: Bytes,
    key_ends: Int64s,
    trailers: Int64s,
    per_block: Int64s,
    index: Bytes,
    index_ends: Int64s,
    entry: Int64s,
    out: Int64s,
) -> int:
    """Write the order violations of each block to `out`. Returns the number of blocks with violations.

    The internal key `n` of the index is `index[index_ends[n] : index_ends[n + 1]]`; `entry[i]` is the number of block `i`'s key, or -1.
    """
    row = 0
    bad = 0
    for i in range(len(per_block)):
        stop = row + per_block[i]
        out[i] = 0
        for n in range(max(row, 1), stop):
            if not is_before(
                keys,
                key_ends[n - 1],
                key_ends[n],
                trailers[n - 1],
                keys,
                key_ends[n],
                key_ends[n + 1],
                trailers[n],
            ):
                out[i] |= BEFORE if n == row else INSIDE
        k = entry[i]
        if k >= 0 and stop > row:
            end = index_ends[k + 1] - KEY_TRAILER
            # An index key that is too short is invalid.
            if end < index_ends[k] or is_before(
                index,
                index_ends[k],
                end,
                load_i64le(index, end),
                keys,
                key_ends[stop - 1],
                key_ends[stop],
                trailers[stop - 1],
            ):
                out[i] |= HIGH
            end = index_ends[k] - KEY_TRAILER
            if (
                k > 0
                and end >= index_ends[k - 1]
                and not is_before(
                    index,
                    index_ends[k - 1],
                    end,
                    load_i64le(index, end),
                    keys,
                    key_ends[row],
                    key_ends[row + 1],
                    trailers[row],
                )
            ):
                out[i] |= LOW
        if out[i] != 0:
            bad += 1
        row = stop
    return bad


@dataclass(slots=True)
class Portion:
    """Entries of some data blocks. `errors` is why a block cannot be read to its end, by its number here; the entries before that are
    included."""

    frames: Frames
    plain: Bytes
    starts: Int64s
    """Where each block starts in `plain`, uncompressed."""
    ends: Int64s
    measured: Int64s
    """A row of `layout.MEASURES` numbers for each block."""
    entries: Unpacked
    errors: dict[int, str]
    repaired: dict[int, Bytes] = field(default_factory=dict)
    """Blocks that were read with repaired restart points, uncompressed, by their number here."""

    @property
    def rows(self) -> Int64s:
        """The first row of each block, and at the end the number of rows."""
        return np.concatenate(([0], np.cumsum(self.entries.per_block)))

    def edges(self, blocks: Sequence[int]) -> list[tuple[bytes, bytes]]:
        """Return the first and the last internal key of blocks with entries."""
        rows, key = self.rows, self.entries.key
        return [(key(int(rows[i])), key(int(rows[i + 1]) - 1)) for i in blocks]

    def extent(self, window: Window, i: int) -> tuple[int, int]:
        """Return where in the file a block starts and ends."""
        return window.offset + int(self.frames.start[i]), window.offset + int(self.frames.end[i])

    def order_violations(self, index: Slices, order: Comparator = BYTEWISE_COMPARATOR) -> Int64s | None:
        """Return the order violations of each block, or None if all are in order.

        `index` has its keys as sort keys of `order`.
        """
        out = np.empty(len(self.frames), np.int64)
        entry = np.ascontiguousarray(self.frames.header["entry"], np.int64)
        entry = np.where(entry < len(index), entry, -1)
        entries = self.entries
        keys, key_ends = order.buffers(entries.keys, entries.key_ends)
        bad = check_order(
            keys, key_ends, entries.trailers, entries.per_block, index.data, index.ends, entry, out
        )
        return out if bad else None


def portions(window: Window, frames: Frames, limit: int, *, repair: bool = False) -> Iterator[Portion]:
    """Read the data blocks among these frames. `limit` is the maximum size of an uncompressed block (`max.decompressed.bytes`).

    With `repair`, blocks with wrong restart points are read from their first entry to their last.
    """
    frames = frames.pick(frames.header["kind"] == DATA)
    at = 0
    while at < len(frames):
        plain, starts, ends, errors = plain_blocks(window, frames, at, limit)
        measures = np.empty(len(starts) * block.MEASURES, np.int64)
        measure_all(plain, starts, ends, limit, measures)
        measured = measures.reshape(-1, block.MEASURES)
        repaired: dict[int, Bytes] = {}
        if repair:
            repaired = _repaired_blocks(plain, starts, ends, measures, errors, limit)
            plain, starts, ends = _replaced(repaired, plain, starts, ends, measures, limit)
        # Keys with long shared prefixes can take more memory than the blocks.
        sizes = np.cumsum(measured[:, block.KEY_BYTES] + measured[:, block.VALUE_BYTES])
        count = max(1, int(np.searchsorted(sizes, PORTION, "right")))
        entries = Unpacked.many(plain, starts[:count], measures[: count * block.MEASURES])
        for i in np.flatnonzero(measured[:count, block.STATUS] != 0).tolist():
            errors.setdefault(i, block.MESSAGES[int(measured[i, block.STATUS])])
        for i in np.flatnonzero(entries.skipped > 0).tolist():
            errors.setdefault(
                i,
                f"corrupted internal key: {int(entries.skipped[i])} of {int(measured[i, block.ENTRIES])} entries",
            )
        part = frames.pick(slice(at, at + count))
        errors = {i: text for i, text in errors.items() if i < count}
        repaired = {i: data for i, data in repaired.items() if i < count}
        yield Portion(part, plain, starts[:count], ends[:count], measured[:count], entries, errors, repaired)
        at += count


def _repaired_blocks(
    plain: Bytes, starts: Int64s, ends: Int64s, measures: Int64s, errors: dict[int, str], limit: int
) -> dict[int, Bytes]:
    """Return the measured blocks that can be read completely with repaired restart points, but not with their own."""
    measured = measures.reshape(-1, block.MEASURES)
    wrong = (measured[:, block.STATUS] != block.SOUND) & (measured[:, block.STATUS] != block.TOO_LARGE)
    wrong[wrong_blocks(plain, starts, ends, measures)] = True
    out: dict[int, Bytes] = {}
    block_measures = np.empty(block.MEASURES, np.int64)
    for i in np.flatnonzero(wrong).tolist():
        data = (
            None
            if i in errors
            else with_repaired_points(plain[int(starts[i]) : int(ends[i])], DEFAULT_INTERVAL)
        )
        if data is not None and measure(data, 0, len(data), limit, block_measures) == block.SOUND:
            out[i] = data
    return out


def _replaced(
    replacements: dict[int, Bytes], plain: Bytes, starts: Int64s, ends: Int64s, measures: Int64s, limit: int
) -> tuple[Bytes, Int64s, Int64s]:
    """Replace some blocks by others, which are appended. `found` has their measures."""
    if replacements:
        starts, ends = starts.copy(), ends.copy()
        at = len(plain)
        plain = np.concatenate((plain, *replacements.values()))
        for i, data in replacements.items():
            starts[i], ends[i] = at, at + len(data)
            at += len(data)
            measure(
                plain,
                int(starts[i]),
                int(ends[i]),
                limit,
                measures[i * block.MEASURES : (i + 1) * block.MEASURES],
            )
    return plain, starts, ends
