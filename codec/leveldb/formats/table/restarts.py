"""Check the restart points of blocks against their entries, and repair them.

A full iteration uses only the first restart point of a block. `Get` and `Seek` use binary search over all of them, and a backward iteration
goes from the last to the first. Each must point to an entry that has its full key.

Source: `Block::Iter` of LevelDB.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from logwright.codec import plural
from logwright.codec.arrays import Int64s
from logwright.codec.fault import Severity
from logwright.codec.kernels.intrinsics import load_u8, load_u32le, read_uvarint
from logwright.codec.kernels.kernel import kernel
from logwright.codec.leveldb.formats.table import layout as block
from logwright.codec.window import Bytes

_SEARCHED = (
    "LevelDB's Get and Seek use binary search over the restart points, and an iterator goes backwards by them: they may end with "
    "the status Corruption (bad entry in block), or miss keys that a full iteration returns"
)
_LONGER = "LevelDB still finds each key, after a longer search"
_EMPTY = "LevelDB treats the block as empty: neither Get nor an iterator returns its entries"
_LATER = "LevelDB reads the block from there on: neither Get nor an iterator returns the entries before"


@dataclass(frozen=True, slots=True)
class PointFault:
    """A fault of the restart points of a block, and what LevelDB does."""

    text: str
    system: str
    severity: Severity = Severity.ERROR


@kernel("const u1[], const i8[], const i8[], const i8[], u1[]")
def mark_wrong_points(buf: Bytes, starts: Int64s, ends: Int64s, measures: Int64s, wrong: Bytes) -> int:
    """Mark measured blocks with a wrong restart point in `wrong`: one that points to no entry with its full key, is not after the
    previous one, or is the first and not 0; or with entries but no restart point. Returns the number of marked blocks.

    Blocks that cannot be read to their end are not marked.
    """
    bad = 0
    for i in range(len(starts)):
        wrong[i] = 0
        if measures[i * block.MEASURES + block.STATUS] != block.SOUND:
            continue
        start = starts[i]
        stop = measures[i * block.MEASURES + block.RESTARTS]
        points = (ends[i] - stop) // block.RESTART_SIZE - 1
        # Some writers write an empty block as four zero bytes.
        right = stop == start if points == 0 else load_u32le(buf, stop) == 0
        at = start
        n = 1
        following = start + load_u32le(buf, stop + block.RESTART_SIZE) if points > 1 else stop
        # Continue to the end even after the last point: reading memory sequentially is faster.
        while right and at < stop:
            shared = load_u8(buf, at)
            if at >= following:
                part = shared
                if shared != 0:
                    # No writer encodes zero in more bytes, but all readers accept it.
                    part, _ = read_uvarint(buf, at, stop)
                if at != following or at == start or part != 0:
                    right = False
                    break
                n += 1
                following = start + load_u32le(buf, stop + n * block.RESTART_SIZE) if n < points else stop
            fresh = load_u8(buf, at + 1)
            size = load_u8(buf, at + 2)
            if shared | fresh | size < 0x80:
                at += block.MIN_ENTRY
            else:
                _, at = read_uvarint(buf, at, stop)
                fresh, at = read_uvarint(buf, at, stop)
                size, at = read_uvarint(buf, at, stop)
            at += fresh + size
        # There may be points left that point after all entries.
        if not right or n < points:
            wrong[i] = 1
            bad += 1
    return bad


def wrong_blocks(buf: Bytes, starts: Int64s, ends: Int64s, measures: Int64s) -> list[int]:
    """Return which of the measured blocks have a wrong restart point."""
    wrong = np.empty(len(starts), np.uint8)
    return np.flatnonzero(wrong).tolist() if mark_wrong_points(buf, starts, ends, measures, wrong) else []


def describe_wrong_points(plain: Bytes) -> PointFault:
    """Describe the wrong restart points of an uncompressed block that can be read to its end."""
    hidden = hiding_fault(plain)
    if hidden is not None:
        return hidden
    last = len(plain) - block.RESTART_SIZE
    stop = last - block.RESTART_SIZE * int(load_u32le(plain, last))
    points = np.frombuffer(plain[stop:last], "<u4").astype(np.int64)
    places, full, _ = _outlined(plain, stop, 0)
    bad = 1 + np.flatnonzero(~np.isin(points[1:], places[full == 1]))
    if not len(bad):
        n = 1 + int(np.argmax(points[1:] <= points[:-1]))
        text = f"restart point {n + 1} of {len(points)} is {points[n]}, not after the previous one, which is {points[n - 1]}"
        return PointFault(text, _LONGER, Severity.WARNING)
    place = int(points[bad[0]])
    text = f"restart point {int(bad[0]) + 1} of {len(points)} points to "
    if place in places:
        shared, _ = read_uvarint(plain, place, stop)
        text += f"the entry at byte {place} of the uncompressed block, which shares {shared} bytes with the previous key instead of having "
        text += "its full key"
    else:
        text += f"byte {place} of the uncompressed block, where no entry starts"
    return PointFault(text if len(bad) == 1 else f"{text}; {len(bad)} of them are wrong", _SEARCHED)


def hiding_fault(plain: Bytes) -> PointFault | None:
    """Return why an uncompressed block is not read from its first entry on, or None if it is, or if the bytes are not a block."""
    last = len(plain) - block.RESTART_SIZE
    points = int(load_u32le(plain, last)) if last >= 0 else 0
    stop = last - block.RESTART_SIZE * points
    if last < 0 or stop < 0:
        return None
    if not points:
        text = f"it has no restart point, but {plural.count(stop, 'byte')} before where the first one should be 0"
        return PointFault(text, _EMPTY) if stop else None
    first = int(load_u32le(plain, stop))
    return (
        PointFault(f"its first restart point is {first} and not 0, where its first entry starts", _LATER)
        if first
        else None
    )


# Repair


@kernel("const u1[], i8, i8, i8[], u1[]", brief=True)
def outline(buf: Bytes, stop: int, least: int, places: Int64s, full: Bytes) -> tuple[int, int]:
    """Find the entries of the uncompressed block `buf`, whose restart points start at `stop` at the latest, and whether they have full
    keys. The first invalid entry, or one whose key has less than `least` bytes, ends them.

    Returns their number, and where they end. Entries that do not fit `places` and `whole` are only counted.
    """
    at = 0
    count = 0
    length = 0
    while at >= 0 and stop - at >= block.MIN_ENTRY:
        shared, after = read_uvarint(buf, at, stop)
        fresh = 0
        size = 0
        if after >= 0:
            fresh, after = read_uvarint(buf, after, stop)
        if after >= 0:
            size, after = read_uvarint(buf, after, stop)
        if after < 0 or fresh > stop - after or size > stop - after - fresh or shared > length:
            break
        length = shared + fresh
        if length < least:
            break
        if count < len(places):
            places[count] = at
            full[count] = 1 if shared == 0 else 0
        count += 1
        at = after + fresh + size
    return count, at


def _outlined(plain: Bytes, stop: int, least: int) -> tuple[Int64s, Bytes, int]:
    count, end = outline(plain, stop, least, np.empty(0, np.int64), np.empty(0, np.uint8))
    places, full = np.empty(count, np.int64), np.empty(count, np.uint8)
    outline(plain, stop, least, places, full)
    return places, full, end


def with_repaired_points(plain: Bytes, interval: int) -> Bytes | None:
    """Return an uncompressed data block with restart points that point to its entries, which are unchanged, or None if the end of the
    entries is unknown. `interval` is used if several intervals fit."""
    last = len(plain) - block.RESTART_SIZE
    if last < 0:
        return None
    # The first restart point is 0. As an entry it would have no key, so the entries end before it, whatever number of points is stored.
    places, full, stop = _outlined(plain, last, block.KEY_TRAILER)
    stored = plain[stop:last] if (last - stop) % block.RESTART_SIZE == 0 else plain[:0]
    points = np.frombuffer(stored, "<u4").astype(np.int64)
    if not len(points) or not _lead(points, places[full == 1]):
        stop = last - block.RESTART_SIZE * int(load_u32le(plain, last))
        if stop < 0 or stop == last:
            return None
        places, full, end = _outlined(plain, stop, 0)
        if end != stop:
            return None
        points = _chosen(places, full == 1, np.frombuffer(plain[stop:last], "<u4"), interval)
    tail = b"".join(block.RESTART.pack({"offset": place}) for place in [*points.tolist(), len(points)])
    return np.concatenate((plain[:stop], np.frombuffer(tail, np.uint8)))


def _lead(points: Int64s, full: Int64s) -> bool:
    """Return whether restart points are right for entries with full keys at these places."""
    rising = bool((points[1:] > points[:-1]).all())
    return int(points[0]) == 0 and rising and bool(np.isin(points[1:], full).all())


def _chosen(places: Int64s, full: Int64s, old: Int64s, interval: int) -> Int64s:
    """Return the entries with full keys at which a writer would have set the stored number of restart points, or all of them if no
    interval fits."""
    count, points = len(places), len(old)
    if not count:
        return np.zeros(1, np.int64)
    low, high = -(-count // points), count if points == 1 else -(-count // (points - 1)) - 1
    fits = [every for every in range(low, high + 1) if -(-count // every) == points and full[::every].all()]
    if not fits:
        return places[full]
    best = max(fits, key=lambda every: (int((places[::every] == old).sum()), every == interval))
    return places[::best]
