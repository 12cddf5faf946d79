"""Restart points of blocks held against the entries that they should lead to, and put right.

An iterator over all reads a block from its first restart point on and asks no other. `Get` and `Seek` go by halves over them, and
an iterator that goes backwards from the last to the first: each has to lead to an entry that has its whole key.
Source: `Block::Iter` of LevelDB.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from logwright.codec.fault import Severity
from logwright.codec.kernels.intrinsics import load_u8, load_u32le, read_uvarint
from logwright.codec.kernels.kernel import kernel
from logwright.codec.leveldb.formats.table.layout import (
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
from logwright.codec.window import Bytes

_SEARCHED = (
    "LevelDB's Get and Seek look for a key by halves over the restart points, and an iterator goes backwards by them: they may end with "
    "the status Corruption (bad entry in block), or miss keys that an iterator over all shows"
)
_LONGER = "LevelDB finds each key all the same, after a longer search"
_EMPTY = "LevelDB takes the block for empty: neither Get nor an iterator shows its entries"
_LATER = "LevelDB reads the block from there on: neither Get nor an iterator shows the entries before"


@dataclass(frozen=True, slots=True)
class Wrong:
    """What is wrong with the restart points of a block, and what LevelDB does."""

    text: str
    system: str
    severity: Severity = Severity.ERROR


@kernel("const u1[], const i8[], const i8[], const i8[], u1[]")
def judge_points(buf: Bytes, starts: Int64s, ends: Int64s, found: Int64s, wrong: Bytes) -> int:
    """Say of blocks that were measured whether they have a wrong restart point: one that leads to no entry with its whole key, is not
    behind the one before, or (the first one) not 0; or none at all for what entries there are. Returns how many blocks have.

    Nothing is said of blocks that can't be read to their end.
    """
    bad = 0
    for i in range(len(starts)):
        wrong[i] = 0
        if found[i * MEASURES + STATUS] != SOUND:
            continue
        start = starts[i]
        stop = found[i * MEASURES + RESTARTS]
        points = (ends[i] - stop) // RESTART_SIZE - 1
        # Four bytes of zero are an empty block, as some writers make it.
        right = stop == start if points == 0 else load_u32le(buf, stop) == 0
        at = start
        n = 1
        following = start + load_u32le(buf, stop + RESTART_SIZE) if points > 1 else stop
        # To the end, though there may be no more points: memory that is read in one go comes faster.
        while right and at < stop:
            shared = load_u8(buf, at)
            if at >= following:
                part = shared
                if shared != 0:
                    # No writer makes a longer zero, and all readers read it.
                    part, _ = read_uvarint(buf, at, stop)
                if at != following or at == start or part != 0:
                    right = False
                    break
                n += 1
                following = start + load_u32le(buf, stop + n * RESTART_SIZE) if n < points else stop
            fresh = load_u8(buf, at + 1)
            size = load_u8(buf, at + 2)
            if shared | fresh | size < 0x80:
                at += MIN_ENTRY
            else:
                _, at = read_uvarint(buf, at, stop)
                fresh, at = read_uvarint(buf, at, stop)
                size, at = read_uvarint(buf, at, stop)
            at += fresh + size
        # Points may be left that lead behind all entries.
        if not right or n < points:
            wrong[i] = 1
            bad += 1
    return bad


def judged(buf: Bytes, starts: Int64s, ends: Int64s, found: Int64s) -> list[int]:
    """Which of the blocks that were measured have a wrong restart point."""
    wrong = np.empty(len(starts), np.uint8)
    return np.flatnonzero(wrong).tolist() if judge_points(buf, starts, ends, found, wrong) else []


def told(plain: Bytes) -> Wrong:
    """What is wrong with the restart points of an uncompressed block that can be read to its end, of which some are."""
    hidden = hides(plain)
    if hidden is not None:
        return hidden
    last = len(plain) - RESTART_SIZE
    stop = last - RESTART_SIZE * int(load_u32le(plain, last))
    points = np.frombuffer(plain[stop:last], "<u4").astype(np.int64)
    places, whole, _ = _outlined(plain, stop, 0)
    bad = 1 + np.flatnonzero(~np.isin(points[1:], places[whole == 1]))
    if not len(bad):
        n = 1 + int(np.argmax(points[1:] <= points[:-1]))
        text = f"restart point {n + 1} of {len(points)} is {points[n]}, not behind the one before, which is {points[n - 1]}"
        return Wrong(text, _LONGER, Severity.WARNING)
    place = int(points[bad[0]])
    text = f"restart point {int(bad[0]) + 1} of {len(points)} leads to "
    if place in places:
        shared, _ = read_uvarint(plain, place, stop)
        text += f"the entry at byte {place} of the uncompressed block, which shares {shared} bytes with the key before instead of having "
        text += "its whole key"
    else:
        text += f"byte {place} of the uncompressed block, where no entry starts"
    return Wrong(text if len(bad) == 1 else f"{text}; {len(bad)} of them are wrong", _SEARCHED)


def hides(plain: Bytes) -> Wrong | None:
    """Why an uncompressed block is not read from its first entry on; None where it is, or is no block."""
    last = len(plain) - RESTART_SIZE
    points = int(load_u32le(plain, last)) if last >= 0 else 0
    stop = last - RESTART_SIZE * points
    if last < 0 or stop < 0:
        return None
    if not points:
        text = f"it has no restart point, and {stop} bytes before where the first one should be 0"
        return Wrong(text, _EMPTY) if stop else None
    first = int(load_u32le(plain, stop))
    return (
        Wrong(f"its first restart point is {first} and not 0, where its first entry starts", _LATER)
        if first
        else None
    )


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
