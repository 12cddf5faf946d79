"""Restart points of blocks held against the entries that they should lead to, and put right.

An iterator over all reads a block from its first restart point on and asks no other. `Get` and `Seek` go by halves over them, and
an iterator that goes backwards from the last to the first: each has to lead to an entry that has its whole key.
Source: `Block::Iter` of LevelDB.
"""

from __future__ import annotations

import numpy as np

from logwright.codec.base import Bytes
from logwright.codec.intrinsics import load_u8, load_u32le, read_uvarint
from logwright.codec.kernel import kernel
from logwright.codec.leveldb.block import (
    KEY_TRAILER,
    MEASURES,
    MIN_ENTRY,
    RESTART,
    RESTART_SIZE,
    RESTARTS,
    SOUND,
    STATUS,
    Int64s,
)

RIGHT, NO_POINTS, FIRST, NOT_BEHIND, NOWHERE, SHARES = range(6)
"""What `judge_points` says of a block: all is well; entries and no restart point; the first one is not 0; one is not behind the one
before; no entry starts where one leads to; the entry there has not its whole key."""
WHAT, POINT, POINTS, PLACE, OTHER = range(5)
"""That, and of the first wrong restart point: its number from 0 on, how many there are, where it leads to, and the place of the one
before (`NOT_BEHIND`), the bytes of the key that are shared (`SHARES`) or the bytes of entries (`NO_POINTS`)."""
JUDGED = 5

_SEARCHED = (
    "LevelDB's Get and Seek look for a key by halves over the restart points, and an iterator goes backwards by them: they end with the "
    "status Corruption (bad entry in block), or miss keys that an iterator over all shows"
)
_SYSTEM = {
    NO_POINTS: "LevelDB takes the block for empty: neither Get nor an iterator shows its entries",
    FIRST: "LevelDB reads the block from there on: neither Get nor an iterator shows the entries before",
}


@kernel("const u1[], const i8[], const i8[], const i8[], i8[]")
def judge_points(buf: Bytes, starts: Int64s, ends: Int64s, found: Int64s, out: Int64s) -> int:
    """Hold the restart points of blocks that were measured against their entries; returns how many blocks have a wrong one.

    `out` gets `JUDGED` numbers for each. Nothing is said of blocks that can't be read to their end.
    """
    bad = 0
    for i in range(len(starts)):
        row = i * JUDGED
        for j in range(JUDGED):
            out[row + j] = 0
        if found[i * MEASURES + STATUS] != SOUND:
            continue
        start = starts[i]
        stop = found[i * MEASURES + RESTARTS]
        points = (ends[i] - stop) // RESTART_SIZE - 1
        out[row + POINTS] = points
        what = RIGHT
        if points == 0:
            # Four bytes of zero are an empty block that some writers make.
            if stop > start:
                what = NO_POINTS
                out[row + OTHER] = stop - start
        elif load_u32le(buf, stop) != 0:
            what = FIRST
            out[row + PLACE] = load_u32le(buf, stop)
        else:
            at = start
            before = 0
            n = 1
            while n < points and what == RIGHT:
                place = load_u32le(buf, stop + n * RESTART_SIZE)
                shared = 0
                while at < stop and at - start < place:
                    fresh = load_u8(buf, at + 1)
                    size = load_u8(buf, at + 2)
                    if load_u8(buf, at) | fresh | size < 0x80:
                        at += MIN_ENTRY
                    else:
                        shared, at = read_uvarint(buf, at, stop)
                        fresh, at = read_uvarint(buf, at, stop)
                        size, at = read_uvarint(buf, at, stop)
                    at += fresh + size
                if place <= before:
                    what = NOT_BEHIND
                    out[row + OTHER] = before
                elif at >= stop or at - start != place:
                    what = NOWHERE
                else:
                    shared, _ = read_uvarint(buf, at, stop)
                    if shared != 0:
                        what = SHARES
                        out[row + OTHER] = shared
                if what != RIGHT:
                    out[row + POINT] = n
                    out[row + PLACE] = place
                before = place
                n += 1
        out[row + WHAT] = what
        bad += 1 if what != RIGHT else 0
    return bad


def judged(buf: Bytes, starts: Int64s, ends: Int64s, found: Int64s) -> Int64s | None:
    """What is wrong with the restart points of blocks that were measured, a row of `JUDGED` numbers each; None where nothing is."""
    out = np.empty(len(starts) * JUDGED, np.int64)
    return out.reshape(-1, JUDGED) if judge_points(buf, starts, ends, found, out) else None


def words(one: Int64s) -> tuple[str, str]:
    """What is wrong, for people, and what LevelDB does."""
    what, point, points, place, other = one.tolist()
    which = f"restart point {point + 1} of {points}"
    text = {
        NO_POINTS: f"it has no restart point, and {other} bytes before where the first one should be 0",
        FIRST: f"its first restart point is {place} and not 0, where its first entry starts",
        NOT_BEHIND: f"{which} is {place}, not behind the one before, which is {other}",
        NOWHERE: f"{which} leads to byte {place} of the uncompressed block, where no entry starts",
        SHARES: f"{which} leads to the entry at byte {place} of the uncompressed block, which shares {other} bytes with the key before "
        "instead of having its whole key",
    }[what]
    return text, _SYSTEM.get(what, _SEARCHED)


def hides(plain: Bytes) -> str:
    """Why an uncompressed block is not read from its first entry on; nothing where it is, or is no block."""
    size = len(plain)
    points = int(load_u32le(plain, size - RESTART_SIZE)) if size >= RESTART_SIZE else 0
    at = size - RESTART_SIZE * (points + 1)
    if size < RESTART_SIZE or at < 0:
        return ""
    if not points:
        return words(np.array([NO_POINTS, 0, 0, 0, at]))[0] if at else ""
    first = int(load_u32le(plain, at))
    return words(np.array([FIRST, 0, points, first, 0]))[0] if first else ""


# Putting them right


@kernel("const u1[], i8, i8, i8[], u1[]", brief=True)
def outline(buf: Bytes, stop: int, least: int, places: Int64s, whole: Bytes) -> tuple[int, int]:
    """Where the entries of the uncompressed block `buf` start, whose restart points start at `stop` at the latest, and whether they
    have their whole keys. The first entry that is none, or whose key has less than `least` bytes, ends them.

    Returns how many there are, and where they end. What does not fit `places` and `whole` is counted only.
    """
    at = 0
    count = 0
    length = 0
    while at >= 0 and stop - at >= MIN_ENTRY:
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
            whole[count] = 1 if shared == 0 else 0
        count += 1
        at = after + fresh + size
    return count, at


def _outlined(plain: Bytes, stop: int, least: int) -> tuple[Int64s, Bytes, int]:
    count, end = outline(plain, stop, least, np.empty(0, np.int64), np.empty(0, np.uint8))
    places, whole = np.empty(count, np.int64), np.empty(count, np.uint8)
    outline(plain, stop, least, places, whole)
    return places, whole, end


def mended(plain: Bytes, interval: int) -> Bytes | None:
    """An uncompressed data block with restart points that lead to its entries, which are what they were; None where its bytes do not
    say where the entries end. `interval` is taken where several would do."""
    last = len(plain) - RESTART_SIZE
    if last < 0:
        return None
    # The first restart point is 0. Taken for an entry, it has no key: so the entries end before it, however many points are said to follow.
    places, whole, stop = _outlined(plain, last, KEY_TRAILER)
    points = _points(plain, stop, last)
    if points is None or not len(points) or not _lead(points, places[whole == 1]):
        stop = last - RESTART_SIZE * int(load_u32le(plain, last))
        if stop < 0 or stop == last:
            return None
        places, whole, end = _outlined(plain, stop, 0)
        if end != stop:
            return None
        points = _chosen(places, whole == 1, np.frombuffer(plain[stop:last], "<u4"), interval)
    tail = b"".join(RESTART.pack({"offset": place}) for place in [*points.tolist(), len(points)])
    return np.concatenate((plain[:stop], np.frombuffer(tail, np.uint8)))


def _points(plain: Bytes, stop: int, last: int) -> Int64s | None:
    return None if (last - stop) % RESTART_SIZE else np.frombuffer(plain[stop:last], "<u4").astype(np.int64)


def _lead(points: Int64s, whole: Int64s) -> bool:
    """Whether restart points are what they should be, for entries with whole keys at these places."""
    rising = bool((points[1:] > points[:-1]).all())
    return int(points[0]) == 0 and rising and bool(np.isin(points[1:], whole).all())


def _chosen(places: Int64s, whole: Int64s, old: Int64s, interval: int) -> Int64s:
    """Of the entries that have their whole keys those at which a writer would have set as many restart points as there are; or all of
    them, where none would."""
    count, points = len(places), len(old)
    if not count:
        return np.zeros(1, np.int64)
    low, high = -(-count // points), count if points == 1 else -(-count // (points - 1)) - 1
    fits = [every for every in range(low, high + 1) if -(-count // every) == points and whole[::every].all()]
    if not fits:
        return places[whole]
    best = max(fits, key=lambda every: (int((places[::every] == old).sum()), every == interval))
    return places[::best]
