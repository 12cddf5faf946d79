"""Evidence for entries that no digest proves: those with an HMAC whose password is not known, and those without a digest.

The index of a bookie has the place of each entry. The running totals of a ledger fit the sizes of its payloads. Other bytes hardly have
the ids of a ledger that the file has.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from logwright.codec.arrays import Bools, Bytes, Int64s, groups
from logwright.codec.bookkeeper.formats.digest import (
    CRC32,
    CRC32C,
    DUMMY,
    HEADER,
    HMAC,
    UNKNOWN,
    Digests,
    Entries,
    has_ids,
    hmac_matches,
    matching_digest,
)
from logwright.codec.bookkeeper.formats.entrylog.layout import INVALID_LEDGER, MAP_ENTRY
from logwright.codec.kernels.intrinsics import load_i64be, load_u32be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Window

_SIZE = 4
HEAD = _SIZE + HEADER
"""Bytes of an entry up to its digest, with the size before it."""
_STRIPE = 1 << 7
"""The next entry of a ledger in a file has an id that differs by at most this much."""
_ID_BITS = 36
"""Ids with more bits are not expected in a ledger that is not known."""
_LEDGERS = 1 << 12
"""The number of ledgers whose last entries are kept."""
_TRIED = 256
"""The number of entries of a window for which the index is searched for other ids."""
_FILLED = 1 << 16
"""Bytes after an entry in which the next one of its ledger is searched."""
_MAP = INVALID_LEDGER.to_bytes(8, "big", signed=True) + MAP_ENTRY.to_bytes(8, "big", signed=True)
"""The ids of the ledgers map."""
_BITS = np.int64(1) << np.arange(63)


class Last(NamedTuple):
    """The last entry of a ledger so far: its id, and the running total of the ledger."""

    entry: int
    length: int


@kernel("const u1[], i8, const i8[]")
def is_known(buf: Bytes, at: int, ledgers: Int64s) -> bool:
    """Return whether the ledger of the entry at `buf[at]`, where its size is, is among the sorted `ledgers`."""
    ledger = load_i64be(buf, at + 4)
    i = np.searchsorted(ledgers, ledger)
    return bool(i < len(ledgers) and ledgers[i] == ledger)


@kernel("const u1[], i8, i8, i8, i8, i8, i8, const i8[]")
def next_head(
    buf: Bytes, at: int, stop: int, end: int, low: int, high: int, short: int, ledgers: Int64s
) -> int:  # fmt: skip
    """Return the first position in `[at, stop)` with the header of an entry that ends at `end` or before; -1 without one.

    Its size is from `low` to `high`. It is at most `short`, or the entry is the first one of its ledger, or its ledger or that of the entry
    at its end is among the sorted `ledgers`.
    """
    for p in range(at, stop):
        size = load_u32be(buf, p) + 4
        if size < low or size > high or size > end - p or not has_ids(buf, p):
            continue
        if size <= short or load_i64be(buf, p + 12) == 0 or is_known(buf, p, ledgers):
            return p
        if p + size + 12 <= len(buf) and is_known(buf, p + size, ledgers):
            return p
    return -1


@kernel("const u1[], i8, i8, i8, i8, const i8[]")
def next_checked(buf: Bytes, at: int, stop: int, low: int, high: int, ledgers: Int64s) -> int:
    """Return the first position in `[at, stop)` with the header of a complete entry of `low` to `high` bytes that neither is of one of the
    sorted `ledgers` nor starts in the first bytes of such a header, which look like a header too; -1 without one."""
    while at < stop:
        size = load_u32be(buf, at) + 4
        if size < low or size > high or size > len(buf) - at or not has_ids(buf, at):
            at += 1
        elif is_known(buf, at, ledgers):
            at += 8
        else:
            return at
    return -1


@kernel("const u1[], i8, i8")
def next_inside(buf: Bytes, at: int, end: int) -> int:
    """Return where the next entry of the same ledger starts inside the entry `buf[at:end]`, whose size is then wrong; -1 without one."""
    ledger, entry = load_i64be(buf, at + 4), load_i64be(buf, at + 12)
    for p in range(at + 36, min(end, len(buf) - 35)):
        if load_i64be(buf, p + 4) == ledger and load_i64be(buf, p + 12) == entry + 1 and has_ids(buf, p):
            return p
    return -1


@kernel("const u1[], const i8[], const i8[]")
def first_with_next_inside(buf: Bytes, starts: Int64s, ends: Int64s) -> tuple[int, int]:
    """Return the number of the first entry for which `next_inside` finds a place, and this place; -1 without one."""
    for i in range(len(starts)):
        place = next_inside(buf, starts[i], ends[i])
        if place >= 0:
            return i, place
    return -1, -1


def is_followed(ledger: Int64s, entry: Int64s) -> Bools:
    """Return which entries have the next one of their ledger among them."""
    order = np.lexsort((entry, ledger))
    out = np.zeros(len(order), np.bool_)
    out[order[:-1]] = (np.diff(ledger[order]) == 0) & (np.diff(entry[order]) == 1)
    return out


def note_entries(data: Bytes, starts: Int64s, last: dict[int, Last]) -> None:
    """Note the last entry of each ledger. Each start is that of a size. Records of other kinds may be shorter than an entry."""
    starts = starts[starts + HEAD <= len(data)]
    numbers = data[starts[:, None] + np.arange(_SIZE, HEAD)].copy().view(">i8").astype(np.int64)
    numbers = numbers[(numbers[:, 0] >= 0) & (numbers[:, 1] >= 0)]
    _, first = np.unique(numbers[::-1, 0], return_index=True)
    for i in np.sort(len(numbers) - 1 - first).tolist():
        ledger, entry, _, length = numbers[i].tolist()
        last.pop(ledger, None)
        last[ledger] = Last(entry, length)
    for ledger in list(last)[: max(0, len(last) - _LEDGERS)]:
        del last[ledger]


def may_have_digest(data: Bytes, at: int, digests: Digests) -> bool:
    """Return whether the entry whose size is at `data[at]` may have a digest that can be checked: its ledger has, or is not known and its
    ids are not those of random bytes."""
    ledger, entry = load_i64be(data, at + _SIZE), load_i64be(data, at + _SIZE + 8)
    kind = digests.known.get(ledger, CRC32C if not (ledger | entry) >> _ID_BITS else DUMMY)
    return kind in (CRC32C, CRC32) or digests.password(ledger) is not None


def is_near(data: Bytes, at: int, last: dict[int, Last]) -> bool:
    """Return whether the ids and the running total at `data[at]`, where a size may be wrong, follow or precede those of a known ledger."""
    if len(data) - at < HEAD:
        return False
    ledger, entry, confirmed, length = (load_i64be(data, at + _SIZE + 8 * i) for i in range(4))
    before = last.get(ledger)
    if before is None or not -1 <= confirmed < entry:
        return False
    distance = entry - before.entry
    return 0 < abs(distance) <= _STRIPE and (length - before.length) * distance >= 0


def is_intact(window: Window, at: int, size: int, digests: Digests, last: dict[int, Last]) -> bool:
    """Return whether evidence other than the frames around it proves the entry of `size` bytes at `window.data[at]`: its HMAC, the running
    total of its ledger, the start of another entry at its end, or the bytes that the missing entries after it take."""
    data, start, end = window.data, at + _SIZE, at + size
    if size < HEAD or end > len(data) or not has_ids(data, at):
        return False
    ledger, entry, length = (load_i64be(data, start + i) for i in (0, 8, 24))
    kind = digests.known.get(ledger, digests.assumed)
    if kind in (CRC32C, CRC32):
        return False
    password = digests.password(ledger)
    if password is not None and kind != DUMMY:
        return hmac_matches(data, start, end, password)
    widths = (HMAC, DUMMY) if kind is None else (kind,)
    fits = fits_total(data, at, size, widths, last)
    if fits is not None:
        return fits
    before = last.get(ledger)
    own = {**last, ledger: Last(entry, length)} if before is not None else last
    if (
        data[end + _SIZE : end + _SIZE + len(_MAP)].tobytes() == _MAP
        or is_near(data, end, own)
        or (digests.stored is not None and digests.stored.entry_at(window.offset + end) is not None)
    ):
        return True
    return before is not None and any(
        _fills(data, end, ledger, Last(entry, length), width) for width in widths
    )


def fits_total(data: Bytes, at: int, size: int, widths: Sequence[int], last: dict[int, Last]) -> bool | None:
    """Return whether the size of an entry fits the running total of its ledger before it, which is its own minus that of its payload.

    None if that is not known. `widths` are the possible sizes of the digest.
    """
    start = at + _SIZE
    ledger, entry, length = (load_i64be(data, start + i) for i in (0, 8, 24))
    before = last.get(ledger)
    if entry and (before is None or before.entry != entry - 1):
        return None
    right = start + HEADER + length - (before.length if entry and before is not None else 0)
    # An entry with a CRC and a wrong size may look like one with a digest of another size.
    crc = len(widths) > 1 and any(
        HEAD < right + width - at <= len(data) - at and matching_digest(data, start, right + width)
        for width in (CRC32C, CRC32)
    )
    return not crc and at + size in [right + width for width in widths]


def _fills(data: Bytes, end: int, ledger: int, before: Last, width: int) -> bool:
    """Return whether the bytes from the end of an entry up to a later one of the ledger are those of the entries between them, by the running
    totals. `width` is the size of their digests."""
    own = np.array([ledger])
    stop = min(end + _FILLED, len(data) - HEAD + 1)
    at = int(next_head(data, end, stop, len(data), HEAD, len(data), 0, own))
    while at >= 0 and not is_known(data, at, own):
        at = int(next_head(data, at + 1, stop, len(data), HEAD, len(data), 0, own))
    if at < 0:
        return False
    entry, length = load_i64be(data, at + _SIZE + 8), load_i64be(data, at + _SIZE + 24)
    count, payload = entry - before.entry - 1, load_u32be(data, at) + _SIZE - HEAD - width
    return count > 0 and at - end == count * (HEAD + width) + length - payload - before.length


def at_indexed_place(entries: Entries, digests: Digests, offset: int) -> Bools:
    """Return which entries are where the index has them."""
    out = np.zeros(len(entries.ledger), np.bool_)
    for ledger, own in groups(entries.ledger) if digests.stored is not None else ():
        assert digests.stored is not None
        out[own] = digests.stored.positions(ledger, entries.entry[own]) == entries.start[own] - _SIZE + offset
    return out


def _unproved(entries: Entries, sizes: Int64s, digests: Digests) -> Int64s:
    """Return the entries that no digest proves. `sizes` are those of their digests."""
    index = np.flatnonzero((sizes == UNKNOWN) | (sizes == DUMMY) | (sizes == HMAC))
    if digests.passwords is None or not len(index):
        return index
    ledgers = [
        ledger for ledger in np.unique(entries.ledger[index]) if digests.password(int(ledger)) is not None
    ]
    proved = (sizes[index] == HMAC) & np.isin(entries.ledger[index], ledgers)
    rest: Int64s = index[~proved]
    return rest


def misplaced(entries: Entries, sizes: Int64s, digests: Digests, offset: int) -> list[int]:
    """Return the unproved entries at places where the index has other entries."""
    index = _unproved(entries, sizes, digests)
    if digests.stored is None or not len(index):
        return []
    out = []
    for ledger, own in groups(entries.ledger[index]):
        own = index[own]
        places = entries.start[own] - _SIZE + offset
        elsewhere = ~at_indexed_place(entries.pick(own), digests, offset)
        out += [
            i
            for i, place in zip(own[elsewhere][:_TRIED].tolist(), places[elsewhere].tolist(), strict=False)
            if right_ids(ledger, int(entries.entry[i]), place, digests) is not None
        ]
    return sorted(out)


def right_ids(ledger: int, entry: int, place: int, digests: Digests) -> tuple[int, int] | None:
    """Return the ids of the entry that the index has at the place of this one; None if it has none, or is wrong about this one.

    In a large index only ids that differ in one bit are searched.
    """
    stored = digests.stored
    if stored is None or stored.is_wrong(ledger, entry):
        return None
    known = stored.entry_at(place)
    if known is not None:
        return None if known == (ledger, entry) else known
    same = np.array([entry])
    others = entry ^ _BITS
    right = [(ledger, int(other)) for other in others[stored.positions(ledger, others) == place]]
    right += [
        (other, entry) for other in (ledger ^ _BITS).tolist() if stored.positions(other, same)[0] == place
    ]
    return right[0] if len(right) == 1 else None


def strays(entries: Entries, sizes: Int64s, digests: Digests, offset: int) -> Iterator[tuple[int, str]]:
    """Yield the unproved entries that fit exactly where an entry of a ledger is missing, with one bit of their ids flipped, and what shows
    it: their payloads continue the running total there, and not where they are."""
    index = _unproved(entries, sizes, digests)
    if len(index) < 2:
        return
    width = np.where(sizes[index] == UNKNOWN, HMAC, sizes[index])
    after = entries.length[index]
    before = after - ((entries.end - entries.start)[index] - HEADER - width)
    order = np.lexsort((entries.entry[index], after, before, entries.ledger[index]))
    index = index[order]
    rows = np.stack((entries.ledger[index], entries.entry[index], before[order], after[order]), axis=1)
    for k, right_ledger, right_entry in (*_wrong_entries(rows), *_wrong_ledgers(rows)):
        if not at_indexed_place(entries.pick(index[k : k + 1]), digests, offset)[0]:
            text = f"one bit of the ids is flipped: this fits as entry {right_entry} of ledger {right_ledger}, which is missing"
            yield int(index[k]), text


def _wrong_entries(rows: Int64s) -> Iterator[tuple[int, int, int]]:
    """Yield the entries that continue the running total of an entry whose id is not the one before, but would be with one bit flipped.

    `rows` are ledger, entry, and running totals before and after it, by ledger and total. A ledger to which entries are mostly added in
    another order than that of their ids is left out.
    """
    ledger, entry, before, after = rows.T
    continues = (ledger[1:] == ledger[:-1]) & (before[1:] == after[:-1])
    step = np.where(continues, entry[1:] - entry[:-1], 0)
    right = np.where(np.concatenate(([False], continues)), np.concatenate(([0], entry[:-1] + 1)), -1)
    right[(right < 0) & (before == 0)] = 0
    # The entry after it must have the next id, if it continues the total.
    following = np.where(np.concatenate((continues, [False])), np.concatenate((entry[1:], [0])), right + 1)
    wrong = right ^ entry
    odd = np.flatnonzero((right >= 0) & (following == right + 1) & (wrong != 0) & (wrong & wrong - 1 == 0))
    for k in odd[:_TRIED].tolist():
        own = ledger[1:] == ledger[k]
        in_order = np.count_nonzero(own & (step == 1))
        if (
            in_order
            and 3 * in_order >= np.count_nonzero(own & continues)
            and right[k] not in entry[ledger == ledger[k]]
        ):
            yield k, int(ledger[k]), int(right[k])


def _wrong_ledgers(rows: Int64s) -> Iterator[tuple[int, int, int]]:
    """Yield the entries that do not belong to a run of their ledger, and fill a gap of one entry in another one. See `_wrong_entries`."""
    ledger, entry, before, after = rows.T
    same = ledger[1:] == ledger[:-1]
    fits = same & (before[1:] == after[:-1]) & (entry[1:] - entry[:-1] == 1)
    alone = np.flatnonzero(
        ~(np.concatenate(([False], fits)) | np.concatenate((fits, [False])) | (entry == 0) & (before == 0))
    )
    gaps = np.flatnonzero(same & (entry[1:] - entry[:-1] == 2) & (before[1:] > after[:-1]))
    for k in alone[np.isin(before[alone], after[gaps])][:_TRIED].tolist():
        near = gaps[
            (after[gaps] == before[k]) & (before[gaps + 1] == after[k]) & (entry[gaps] + 1 == entry[k])
        ]
        flipped = ledger[near] ^ ledger[k]
        right = ledger[near[(flipped != 0) & (flipped & flipped - 1 == 0)]]
        if len(right):
            yield k, int(right[0]), int(entry[k])


def unmapped(
    entries: Entries, sizes: Int64s, digests: Digests, ledgers: Container[int]
) -> Iterator[tuple[int, str]]:
    """Yield the first unproved entry of each ledger that is not among the `ledgers` of the ledgers map."""
    index = _unproved(entries, sizes, digests)
    own, first = np.unique(entries.ledger[index], return_index=True)
    for ledger, i in zip(own.tolist(), first.tolist(), strict=True):
        if ledger not in ledgers:
            yield int(index[i]), f"ledger {ledger} is not in the ledgers map of the file"


def unknown(entries: Entries, sizes: Int64s, digests: Digests) -> Iterator[tuple[int, str]]:
    """Yield the unproved entries that are alone in their ledger, not its first one, and of a ledger that the bookie does not know."""
    index = _unproved(entries, sizes, digests)
    own, first, counts = np.unique(entries.ledger[index], return_index=True, return_counts=True)
    for ledger, i in zip(own[counts == 1].tolist(), index[first[counts == 1]].tolist(), strict=True):
        if digests.stored is not None and entries.entry[i] and ledger not in digests.stored:
            yield (
                i,
                f"ledger {ledger} is in no index and no journal, and nothing else of it is near: its id may be damaged",
            )


def flip_of_ids(data: Bytes, at: int, position: int, digests: Digests) -> tuple[int, int] | None:
    """Return the byte of the data and the bit with which the ids of the entry at `data[at]` are those that the index has at a position."""
    ids = load_i64be(data, at + _SIZE), load_i64be(data, at + _SIZE + 8)
    right = right_ids(*ids, position, digests)
    if right is None:
        return None
    wrong = (right[0] ^ ids[0]) << 64 | right[1] ^ ids[1]
    bit = wrong.bit_length() - 1
    return (at + _SIZE + 15 - bit // 8, bit % 8) if wrong.bit_count() == 1 and min(right) >= 0 else None
