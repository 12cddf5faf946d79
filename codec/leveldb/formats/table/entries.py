"""The entries of data blocks, whole keys and all, in bounded portions: for what has to look into every block of a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from logwright.codec.engine.merge import compare
from logwright.codec.kernels.intrinsics import load_i64le
from logwright.codec.kernels.kernel import kernel
from logwright.codec.leveldb.comparators import BYTEWISE_COMPARATOR, Comparator, internal
from logwright.codec.leveldb.formats.table.index import DATA
from logwright.codec.leveldb.formats.table.layout import (
    ENTRIES,
    KEY_BYTES,
    MEASURES,
    MESSAGES,
    SOUND,
    STATUS,
    TOO_LARGE,
    VALUE_BYTES,
    Slices,
    compression_of,
    measure,
    measure_all,
)
from logwright.codec.leveldb.formats.table.restarts import judged, mended
from logwright.codec.leveldb.formats.table.rows import (
    DEFAULT_INTERVAL,
    PORTION,
    Int64s,
    Unpacked,
    plain_blocks,
)
from logwright.codec.leveldb.keys import TRAILER
from logwright.codec.leveldb.keys import TRAILER_SIZE as KEY_TRAILER
from logwright.codec.window import Bytes, Frames, Window

_SIGN = -1 << 63
"""With this bit turned, signed numbers compare as the unsigned ones of the same bits."""

INSIDE, BEFORE, LOW, HIGH = 1, 2, 4, 8
"""What `judge` finds wrong with a block, as bits: an entry is not behind the one before; the first one is not behind the block before;
the first one is not behind the index key before; the last one is behind the block's own."""


@kernel("const u1[], i8, i8, i8, const u1[], i8, i8, i8")
def is_before(
    a: Bytes, a_at: int, a_end: int, a_trailer: int, b: Bytes, b_at: int, b_end: int, b_trailer: int
) -> bool:
    """Whether an internal key comes before another one, bytewise. The user keys are ranges of their buffers."""
    order = compare(a, a_at, a_end, b, b_at, b_end)
    if order:
        return order < 0
    return b_trailer ^ _SIGN < a_trailer ^ _SIGN


@kernel("const u1[], const i8[], const i8[], const i8[], const u1[], const i8[], const i8[], i8[]")
def judge(
    keys: Bytes,
    key_ends: Int64s,
    trailers: Int64s,
    per_block: Int64s,
    index: Bytes,
    index_ends: Int64s,
    entry: Int64s,
    out: Int64s,
) -> int:
    """Say of each block what is wrong with the order of its keys, in `out`; returns how many blocks there are with that.

    The internal key `n` of the index is `index[index_ends[n] : index_ends[n + 1]]`, `entry[i]` is that of block `i`, or -1.
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
            # A key of the index that is too short is none.
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
    """Some data blocks, read. `errors` is why one can't be read to its end, by its place among them: what it has before is here."""

    frames: Frames
    plain: Bytes
    starts: Int64s
    """Where each block starts in `plain`, uncompressed."""
    ends: Int64s
    measured: Int64s
    """A row of `block.MEASURES` numbers each."""
    made: Unpacked
    errors: dict[int, str]
    mended: dict[int, Bytes] = field(default_factory=dict)
    """Blocks that were read with restart points put right, uncompressed, by their place among them."""

    @property
    def rows(self) -> Int64s:
        """The row at which each block starts, and at the end their number."""
        return np.concatenate(([0], np.cumsum(self.made.per_block)))

    def key(self, row: int) -> bytes:
        """An internal key."""
        made = self.made
        user = made.keys[int(made.key_ends[row]) : int(made.key_ends[row + 1])].tobytes()
        return user + TRAILER.pack({"tag": int(made.trailers[row]) & (1 << 64) - 1})

    def judged(self, index: Slices, order: Comparator = BYTEWISE_COMPARATOR) -> Int64s | None:
        """What is wrong with the order of each block's keys: see `judge`. None where all is in order, as far as is seen here.

        `index` has its keys as `order` sorts them (`sorted_keys`).
        """
        out = np.empty(len(self.frames), np.int64)
        entry = np.ascontiguousarray(self.frames.header["entry"], np.int64)
        entry = np.where(entry < len(index), entry, -1)
        made = self.made
        keys, key_ends = order.buffers(made.keys, made.key_ends)
        bad = judge(keys, key_ends, made.trailers, made.per_block, index.data, index.ends, entry, out)
        return out if bad else None


def portions(window: Window, frames: Frames, limit: int, *, mend: bool = False) -> Iterator[Portion]:
    """The data blocks among these frames. `limit` is what a block may take uncompressed (`max.decompressed.bytes`).

    With `mend` those whose restart points are wrong are read as if these were right: from their first entry to their last.
    """
    frames = frames.pick(frames.header["kind"] == DATA)
    at = 0
    while at < len(frames):
        plain, starts, ends, errors = plain_blocks(window, frames, at, limit)
        found = np.empty(len(starts) * MEASURES, np.int64)
        measure_all(plain, starts, ends, limit, found)
        measured = found.reshape(-1, MEASURES)
        again: dict[int, Bytes] = {}
        if mend:
            again = _mended(plain, starts, ends, found, errors, limit)
            plain, starts, ends = _with(again, plain, starts, ends, found, limit)
        # Keys that share much are more bytes than the blocks are.
        sizes = np.cumsum(measured[:, KEY_BYTES] + measured[:, VALUE_BYTES])
        count = max(1, int(np.searchsorted(sizes, PORTION, "right")))
        made = Unpacked.many(plain, starts[:count], found[: count * MEASURES])
        for i in np.flatnonzero(measured[:count, STATUS] != 0).tolist():
            errors.setdefault(i, MESSAGES[int(measured[i, STATUS])])
        for i in np.flatnonzero(made.skipped > 0).tolist():
            errors.setdefault(
                i, f"corrupted internal key: {int(made.skipped[i])} of {int(measured[i, ENTRIES])} entries"
            )
        part = frames.pick(slice(at, at + count))
        errors = {i: text for i, text in errors.items() if i < count}
        again = {i: data for i, data in again.items() if i < count}
        yield Portion(part, plain, starts[:count], ends[:count], measured[:count], made, errors, again)
        at += count


def _mended(
    plain: Bytes, starts: Int64s, ends: Int64s, found: Int64s, errors: dict[int, str], limit: int
) -> dict[int, Bytes]:
    """Those of blocks that were measured that can be read from end to end with restart points put right, and not with their own."""
    measured = found.reshape(-1, MEASURES)
    wrong = (measured[:, STATUS] != SOUND) & (measured[:, STATUS] != TOO_LARGE)
    wrong[judged(plain, starts, ends, found)] = True
    out: dict[int, Bytes] = {}
    one = np.empty(MEASURES, np.int64)
    for i in np.flatnonzero(wrong).tolist():
        data = None if i in errors else mended(plain[int(starts[i]) : int(ends[i])], DEFAULT_INTERVAL)
        if data is not None and measure(data, 0, len(data), limit, one) == SOUND:
            out[i] = data
    return out


def _with(
    again: dict[int, Bytes], plain: Bytes, starts: Int64s, ends: Int64s, found: Int64s, limit: int
) -> tuple[Bytes, Int64s, Int64s]:
    """Blocks with others, which are put behind them, in the place of some. `found` is what is measured of them."""
    if again:
        starts, ends = starts.copy(), ends.copy()
        at = len(plain)
        plain = np.concatenate((plain, *again.values()))
        for i, data in again.items():
            starts[i], ends[i] = at, at + len(data)
            at += len(data)
            measure(plain, int(starts[i]), int(ends[i]), limit, found[i * MEASURES : (i + 1) * MEASURES])
    return plain, starts, ends


def is_foreign(contents: Bytes, kind: int) -> bool:
    """Whether a block is of a type that is not read here."""
    return compression_of(contents, kind) is None


def sorted_keys(index: Slices, order: Comparator) -> Slices:
    """The internal keys of an index, as `order` sorts them."""
    return index if order.bytewise else Slices(*internal(order, index.data, index.ends))


def user_key(key: bytes) -> bytes:
    """The user key of an internal key."""
    return key[:-KEY_TRAILER]
