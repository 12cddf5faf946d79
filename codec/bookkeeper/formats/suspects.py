"""Find the flipped bits of a damaged entry by its digest.

A CRC locates a single flipped bit. Nothing but the CRC shows a flipped bit of the payload, so entries that are long are not corrected
(`bitflip.LONGEST_ALONE`). An HMAC locates no bit: with the password, the bits of the header and of the HMAC itself are tried. Trying all
would take quadratic time. Without a digest that can be checked, no correction is proved.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec import address, plural
from logwright.codec.arrays import Bytes, Int64s
from logwright.codec.base import Codec, ProvedPart
from logwright.codec.bookkeeper.formats import digest, entry_fields
from logwright.codec.bookkeeper.formats.digest import (
    CRC32,
    CRC32C,
    DUMMY,
    HEADER,
    HMAC,
    MISMATCH,
    UNKNOWN,
    Digests,
    Entries,
    hmac_matches,
)
from logwright.codec.bookkeeper.formats.entries import EntryWriter
from logwright.codec.bookkeeper.formats.evidence import (
    HEAD,
    Last,
    first_with_next_inside,
    flip_of_ids,
    is_followed,
    is_intact,
    is_near,
    may_have_digest,
    next_checked,
    next_head,
    next_inside,
    note_entries,
)
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.frames import scanner
from logwright.codec.frames.codec import FramedCodec, Part
from logwright.codec.frames.format import FramedContext
from logwright.codec.frames.resync import NONE, SOUND, UNSURE
from logwright.codec.frames.scanner import ZEROS
from logwright.codec.frames.specification import CERTAIN
from logwright.codec.kernels import bitflip
from logwright.codec.kernels.bitflip import Flip
from logwright.codec.kernels.crc32 import crc32_update
from logwright.codec.kernels.crc32c import crc32c_update
from logwright.codec.kernels.intrinsics import load_i32be, load_i64be, load_u32be
from logwright.codec.option import Options
from logwright.codec.window import Around, Frames, Window

_SIZE = 4
SAMPLE = 1 << 20
"""Bytes at the start of a file from which the digest types of ledgers are learned before the first row."""
_SEARCHED = 64 << 20
"""Limit of the bytes in which ends of damaged entries are searched by digest, for each pass over a file."""
_TRIED = 256
"""The number of entries of a window whose ledger ids are checked."""
_OTHERS = 64
"""The number of ledgers whose ids are tried for an entry. Of more, those that differ in one bit are tried."""
_SHORT = 1 << 16
"""Longer entries are searched by HMAC only if their ledgers are known."""
_LEAST = 1 << 10
"""The bytes that the search for an entry counts at least."""
_MARKERS = 16
"""The number of marker frames before which the end of a damaged entry is tried."""
_HOLES = 64
"""Damaged ranges that a sample passes."""
_MISTAKEN = "the bookie takes it for another entry"


@dataclass
class DigestedContext(FramedContext):
    """`writer`: writes entries."""

    digests: Digests = field(default_factory=Digests)
    writer: EntryWriter | None = None
    searched: int = 0
    """Bytes searched so far for ends of damaged entries."""
    sought: int = -1
    """The damaged entry for which more bytes were requested."""
    sized: tuple[Part, Int64s] | None = None
    """The last frames, and the sizes of their digests."""
    last: dict[int, Last] = field(default_factory=dict)
    """The last entry of each ledger, where some entries have no CRC."""


class DigestedCodec(FramedCodec):
    """A codec whose main frames are entries."""

    checksum = "digest"
    refuses = True
    measures = True

    def context(self, name: str, options: Options, **hints: Any) -> Any:
        context = super().context(name, options, **hints)
        assert isinstance(context, DigestedContext)
        password, kind = options[digest.PASSWORD.name], options[digest.DIGEST_TYPE.name]
        context.digests = Digests(
            password, None if kind is None else digest.SIZES[kind], hints.get("ledgers")
        )
        context.writer = EntryWriter(self.name, password, kind)
        return context

    def scan(self, window: Window, at: int, context: Any, *, check: bool = True) -> Frames:
        frames = super().scan(window, at, context, check=check)
        if not check or not len(frames) or digest.all_match(frames.header["verdict"]):
            return frames
        frames = self._up_to_wrong_size(window, frames, context)
        note_entries(window.data, frames.start[frames.header["frame_kind"] == scanner.MAIN], context.last)
        return frames

    def confirms(self, window: Window, at: int, size: int, before: Int64s, context: Any) -> bool:
        """An entry without a CRC is intact if other evidence proves it, or if it is followed by a torn one."""
        note_entries(window.data, before[before + window.offset > 0], context.last)
        # A payload may hold entries, but they end before it does.
        if self._contradicted(window, at, at + size, context, beyond=at + size):
            return False
        if context.searched + size <= _SEARCHED:
            context.searched += size
            if is_intact(window, at, size, context.digests, context.last):
                note_entries(window.data, np.array([at]), context.last)
                return True
        return self.is_before_torn(window, at, size, context)

    def is_before_torn(self, window: Window, at: int, size: int, context: Any) -> bool:
        """Return whether a torn frame follows the entry."""
        return False

    def _contradicted(self, window: Window, at: int, end: int, context: Any, beyond: int = 0) -> bool:
        """Return whether the digest of the entry at `at` is wrong or not known, and that of one that starts inside and ends after `beyond` is
        right."""
        data, length, digests = window.data, self.spec.length, context.digests
        if _has_digest(data, at + _SIZE, end, digests):
            return False
        unchecked = [
            kind not in (CRC32C, CRC32) and digests.password(of) is None for of, kind in digests.known.items()
        ]
        ledgers = np.sort(np.array(list(digests.known), np.int64)[unchecked])
        stop, place = min(end, len(data) - HEAD + 1), at
        while context.searched <= _SEARCHED:
            place = int(next_checked(data, place, stop, length.low, length.reach, ledgers))
            if place < 0:
                break
            right = self._end_of(data, place)
            if place > at and right > beyond and may_have_digest(data, place, digests):
                context.searched += max(right - place, _LEAST)
                if _has_digest(data, place + _SIZE, right, digests):
                    return True
            place += 1
        return False

    def _damage(self, window: Window, stop: int, why: int, need: int, context: Any) -> Fault:
        fault = super()._damage(window, stop, why, need, context)
        unsure = why == scanner.TORN or fault.severity is Severity.WARNING
        right = window.final and unsure and self.right_length(window, stop, len(window.data), context)
        # Neither a torn entry nor zeros: only its size is wrong.
        return replace(fault, kind=Kind.LENGTH, severity=Severity.ERROR) if right else fault

    def _next(self, window: Window, at: int, context: Any) -> tuple[int, int, int]:
        """Find an entry that other evidence proves, before the first one that its CRC or the frames after it prove."""
        place, outcome, need = super()._next(window, at, context)
        while outcome == SOUND and self._is_spurious(window, place, context):
            place, outcome, need = super()._next(window, place + 1, context)
        passwords = context.digests.passwords
        if not context.last and passwords is None and context.digests.stored is None:
            return place, outcome, need
        data, length = window.data, self.spec.length
        stop = min(len(data) if outcome == NONE else place, len(data) - HEAD + 1)
        ledgers = np.array(sorted({*context.last, *self.ledgers_of(context)}), np.int64)
        short = 0 if passwords is None else _SHORT
        end = window.size - window.offset
        while True:
            at = int(next_head(data, at, stop, end, length.low, length.reach, short, ledgers))
            if at < 0 or context.searched > _SEARCHED:
                return place, outcome, need
            size = self._end_of(data, at) - at
            if at + size > len(data):
                if size <= short or is_near(data, at, context.last):
                    return at, UNSURE, size
            else:
                context.searched += max(size, _LEAST)
                intact = is_intact(window, at, size, context.digests, context.last)
                if intact and not self._is_spurious(window, at, context):
                    return at, SOUND, size
            at += 1

    def _is_spurious(self, window: Window, at: int, context: Any) -> bool:
        """Return whether the bytes at `at` only look like an entry. Those whose digest cannot be checked are taken for one."""
        data, digests, stop = window.data, context.digests, context.damaged - window.offset
        if 0 <= stop < at < stop + 8 and is_near(data, stop, context.last):
            return True  # the header of the damaged entry, a few bytes later
        if len(data) - at < HEAD:
            return False
        ledger, entry = load_i64be(data, at + _SIZE), load_i64be(data, at + _SIZE + 8)
        kind = digests.known.get(ledger, UNKNOWN if ledger in context.last else MISMATCH)
        unchecked = kind in (UNKNOWN, DUMMY) or (kind == HMAC and digests.password(ledger) is None)
        return (
            not unchecked
            and min(ledger, entry) >= 0
            and self._contradicted(window, at, self._end_of(data, at), context)
        )

    def _end_of(self, data: Bytes, at: int) -> int:
        """Return the end of the entry whose size is at `data[at]`."""
        return at + _SIZE + load_u32be(data, at)

    def ledgers_of(self, context: Any) -> Iterable[int]:
        """Return the ledgers that the file says it has."""
        return ()

    def _up_to_wrong_size(self, window: Window, frames: Frames, context: Any) -> Frames:
        """Return the frames up to an entry whose size is wrong: its CRC matches at an earlier end, and what follows that end is not its
        content; or it has no CRC, and the next entry of its ledger starts inside it."""
        head = frames.header
        sizes = np.where(head["frame_kind"] == scanner.MAIN, head["verdict"].astype(np.int64) - CERTAIN, 0)
        context.digests.note(head["ledger_id"].astype(np.int64), np.maximum(sizes, 0))
        unproved = np.flatnonzero((sizes < 0) & (head["entry_id"] >= 0))
        wrong = self._wrong_by_crc(window, frames, unproved, context)
        with_crc = [ledger for ledger, size in context.digests.known.items() if size in (CRC32C, CRC32)]
        others = unproved[~np.isin(head["ledger_id"][unproved], with_crc)]
        ledger, entry = (head[name][others].astype(np.int64) for name in ("ledger_id", "entry_id"))
        others = others[~is_followed(ledger, entry)]
        k, right = first_with_next_inside(window.data, frames.start[others], frames.end[others])
        if k >= 0 and (wrong is None or others[k] < wrong[0]):
            wrong = int(others[k]), int(right), "the next entry of the ledger starts inside"
        if wrong is None:
            return frames
        i, right, text = wrong
        start = int(frames.start[i])
        text = f"{self.spec.length.field} is {int(frames.end[i]) - start - _SIZE}, but {text}"
        place = context.damaged = window.offset + start
        system = self.systems[scanner.UNFOLLOWED]
        damage = Fault(self.name, place, right - start, Kind.LENGTH, text, system=system)
        faults = [fault for fault in frames.faults if fault.offset < place]
        return replace(frames.pick(slice(0, i)), stop=start, need=0, damage=damage, faults=faults)

    def _wrong_by_crc(
        self, window: Window, frames: Frames, unproved: Int64s, context: Any
    ) -> tuple[int, int, str] | None:
        """Return the first entry whose CRC matches at an earlier end: its number, that end, and what shows that its size is wrong."""
        ledgers, known = frames.header["ledger_id"], context.digests.known
        without = [ledger for ledger, size in known.items() if size not in (CRC32C, CRC32)]
        for i in unproved[~np.isin(ledgers[unproved], without)].tolist():
            start, end = int(frames.start[i]), int(frames.end[i])
            # The CRC of a ledger that may have none is searched in fewer bytes, and another entry must follow.
            is_sure = int(ledgers[i]) in known
            if context.searched + end - start > (_SEARCHED if is_sure else _SEARCHED // 2):
                break
            context.searched += end - start
            right = digest.entry_end(window.data, start + _SIZE, start + self.spec.length.low, end - 1)
            left = window.size - window.offset - right
            if right >= 0 and (is_sure or self._scanner.first(window.data, right, left)):
                return i, right, f"the digest matches {plural.count(right - start - _SIZE, 'byte')}"
        return None

    def claimed_end(self, window: Window, at: int, context: Any) -> tuple[int, int]:
        end, need = super().claimed_end(window, at, context)
        if end >= 0 and next_inside(window.data, context.damaged - window.offset, end) >= 0:
            return -1, 0
        return end, need

    def content_end(self, window: Window, at: int, context: Any) -> tuple[int, int]:
        """Return the end of the damaged entry: by its digest, else by its length, if a frame starts there.

        Frames inside the entry are its content, even if they reach exactly to its end: payloads may be entry logs.
        """
        data, stop = window.data, context.damaged - window.offset
        if not 0 <= stop < at or not context.damaged:
            return -1, 0
        by_length, need = self.claimed_end(window, at, context)
        if need:
            return -1, need
        # A wrong length may end where a later entry does, so the digest is tried up to there too.
        limit = (
            by_length if by_length >= 0 else min(window.size - window.offset, stop + self.spec.length.reach)
        )
        left = limit - stop
        here = min(len(data) - stop, left)
        known = context.digests.known.get(load_i64be(data, stop + _SIZE)) if here >= HEAD else None
        most = _SEARCHED if known else _SEARCHED // 2
        if left < self.spec.length.low or known in (HMAC, DUMMY) or context.searched + here > most:
            return by_length, 0
        if here >= HEAD and not (digest.has_ids(data, stop) and may_have_digest(data, stop, context.digests)):
            return by_length, 0
        if here < left and context.sought != context.damaged:
            context.sought = context.damaged
            return -1, left - (at - stop)
        end = at - 1
        while True:
            end = digest.entry_end(data, stop + _SIZE, end + 1, stop + here)
            context.searched += here if end < 0 else end - stop
            if end < 0:
                return by_length, 0
            behind = window.size - window.offset - end
            if not data[end : min(behind, ZEROS) + end].any() or self._scanner.first(
                data, end, behind, prefixes=context.prefixes
            ):
                return end, 0

    def digest_sizes(self, part: Part, context: Any) -> Int64s:
        """Return the size of the digest of each entry, `MISMATCH` or `UNKNOWN`; another number for frames that are not entries."""
        if context.sized is None or context.sized[0] is not part:
            context.sized = part, self._digest_sizes(part, context)
        sizes: Int64s = context.sized[1]
        return sizes

    def _digest_sizes(self, part: Part, context: Any) -> Int64s:
        verdicts = part.head["verdict"]
        if not digest.all_match(verdicts):
            return self.unmatched_sizes(part, context)
        sizes: Int64s = verdicts.astype(np.int64) - CERTAIN
        context.digests.note(part.head["ledger_id"].astype(np.int64), sizes)
        return sizes

    @abstractmethod
    def unmatched_sizes(self, part: Part, context: Any) -> Int64s:
        """Do the same for frames of which some have no matching CRC."""

    def misnamed(self, part: Part, odd: Iterable[tuple[int, str]]) -> Iterator[Fault]:
        """Yield a warning for each entry whose ids are probably damaged. `odd` are their numbers, and what shows it."""
        for i, text in odd:
            yield replace(self.fault(part, i, Kind.PAYLOAD, text, Severity.WARNING, _MISTAKEN), rows_lost=0)

    def is_entry(self, frame: bytes) -> bool:
        """Return whether a frame is an entry with a digest."""
        return self.kind_at(frame, self._edited_at(frame)) == scanner.MAIN

    def edit(
        self, frame: bytes, path: address.Path, change: address.Change, *, reseal: bool, context: Any = None
    ) -> bytes:
        new = super().edit(frame, path, change, reseal=reseal, context=context)
        if not reseal or not self.is_entry(frame):
            return new
        return entry_fields.resealed(frame, new, path, None if context is None else context.digests)

    def row_of(self, frame: bytes, position: int, context: Any) -> pa.RecordBatch | None:
        # The size of a stored frame may be wrong.
        size = max(len(frame) - _SIZE, 0)
        return super().row_of(size.to_bytes(_SIZE, "big") + frame[_SIZE:], position, context)

    def suspects(self, window: Window, at: int, limit: int, around: Around, context: Any) -> Iterator[Flip]:
        yield from suspects(window, at, limit, context.digests)
        if len(window.data) - at >= HEAD:
            flip = flip_of_ids(window.data, at, window.offset + at, context.digests)
            if flip is not None:
                yield Flip(*flip)

    def right_length(
        self, window: Window, at: int, limit: int, context: Any
    ) -> tuple[int, bytes, str] | None:
        data, field = window.data, self.spec.length.field
        if limit - at < HEAD or not digest.has_ids(data, at):
            return None
        start, size, ledger = at + _SIZE, self._field(data, at, field), load_i64be(data, at + _SIZE)
        for end in self._ends(data, at, limit):
            kind = _has_digest(data, start, end, context.digests)
            if kind and context.digests.known.get(ledger, kind) == kind and end - start != size:
                return at, (end - start).to_bytes(_SIZE, "big"), f"{field} is {size}, it was {end - start}"
        return None

    def _ends(self, data: Bytes, at: int, limit: int) -> Iterator[int]:
        """Yield where a damaged entry may end: at `limit`, or before zeros, fill bytes or marker frames that reach up to there."""
        yield limit
        last, marker = int(data[limit - 1]), self.spec.marker
        if last in (0, self.spec.fill):
            content = data[at + HEAD : limit]
            yield at + HEAD + int(np.max(np.flatnonzero(content != last), initial=-1)) + 1
        assert marker is not None
        offset, width = marker.struct.offset(marker.field), marker.struct[marker.field].type.min_size
        mark = marker.value.to_bytes(width, "big", signed=True)
        stored = data[at:limit].tobytes()
        place = len(stored)
        for _ in range(_MARKERS):
            place = stored.rfind(mark, HEAD + offset, place + width - 1)
            if place < 0:
                return
            yield at + place - offset

    def proved(
        self, window: Window, frame: Frames, around: Around, flip: tuple[int, int] | None, context: Any
    ) -> bool:
        return int(frame.header["frame_kind"][0]) == scanner.MAIN and proved(window, frame, context.digests)

    def part_proved(
        self, window: Window, frame: Frames, around: Around, flip: tuple[int, int] | None, context: Any
    ) -> ProvedPart | None:
        at, stored = int(frame.start[0]), context.digests.stored
        if flip is None or stored is None or not at + _SIZE <= flip[0] < at + _SIZE + 16:
            return None
        ledger, entry = load_i64be(window.data, at + _SIZE), load_i64be(window.data, at + _SIZE + 8)
        if stored.positions(ledger, np.array([entry]))[0] != window.offset + at:
            return None
        return ProvedPart(at + _SIZE, at + _SIZE + 16, "the ids", ("the index",))

    def trial_context(self, context: Any) -> Any:
        own = context.digests
        digests = replace(own, known=dict(own.known), cache=own.cache.copy(), settled=set(own.settled))
        return replace(context, digests=digests, last=dict(context.last))


def suspects(window: Window, at: int, limit: int, digests: Digests) -> Iterator[Flip]:
    """Yield bits of the damaged entry at `window.data[at]`, which starts with its size and ends at `limit` or before."""
    data = window.data
    left = min(limit, window.size - window.offset) - at
    if left < _SIZE + HEADER:
        return
    start = at + _SIZE
    size = load_i32be(data, at)
    password = digests.password(load_i64be(data, start))
    if HEADER <= size <= left - _SIZE:
        yield from _by_crc(data, start, start + size)
        if password is not None and size >= HEADER + HMAC:
            yield from _by_hmac(data, start, start + size, password)
    for bit in range(31):
        end = start + (size ^ 1 << bit)
        if start + HEADER <= end <= at + left and _has_digest(data, start, end, digests):
            yield Flip(at + 3 - bit // 8, bit % 8)


def _by_crc(data: Bytes, start: int, end: int) -> Iterator[Flip]:
    body = start + HEADER
    for size, order, polynomial, update in (
        (CRC32C, 4, bitflip.CRC32C, crc32c_update),
        (CRC32, 8, bitflip.CRC32, crc32_update),
    ):
        if end - body < size:
            continue
        stored = int.from_bytes(data[body : body + order].tobytes(), "big")
        change = stored ^ int(update(update(0, data, start, body), data, body + size, end))
        yield from bitflip.flips_of_stored(body, order, ">", change)
        covered = end - start - size
        if change >> 32:
            continue
        for flip in bitflip.flips_by_crc(0, covered, change, polynomial):
            yield flip._replace(place=start + flip.place + (0 if flip.place < HEADER else size))


def _by_hmac(data: Bytes, start: int, end: int, password: bytes) -> Iterator[Flip]:
    body = start + HEADER
    content = data[start:body].tobytes() + data[body + HMAC : end].tobytes()
    stored = int.from_bytes(data[body : body + HMAC].tobytes(), "big")
    change = stored ^ int.from_bytes(digest.hmac_of(password, content), "big")
    yield from bitflip.flips_of_stored(body, HMAC, ">", change)
    for place in range(start, body):
        for bit in range(8):
            data[place] ^= 1 << bit
            fits = hmac_matches(data, start, end, password)
            data[place] ^= 1 << bit
            if fits:
                yield Flip(place, bit)


def proved(window: Window, frame: Frames, digests: Digests) -> bool:
    """Return whether an entry has a correct digest of its ledger's type, and consistent ids."""
    data, start, end = window.data, int(frame.start[0]) + _SIZE, int(frame.end[0])
    if end - start < HEADER:
        return False
    ledger, entry, confirmed = (load_i64be(data, start + 8 * i) for i in range(3))
    size = _has_digest(data, start, end, digests)
    return bool(size) and digests.known.get(ledger) == size and -1 <= confirmed <= entry


def sampled(codec: Codec, window: Window, context: Any) -> Iterator[Frames]:
    """Yield the good frames of a window, before and after damage. The digest types of ledgers are learned from them."""
    at = 0
    for _ in range(_HOLES):
        frames = codec.scan(window, at, context)
        yield frames
        if frames.damage is None:
            return
        at, need = codec.resync(window, frames.stop + 1, context)
        if at < 0 or need:
            return


def misdirected(entries: Entries, sizes: Int64s, known: Mapping[int, int]) -> Sequence[int]:
    """Return entries of no known digest type that have the right CRC of another ledger except for the ledger id."""
    out = []
    with_crc = [ledger for ledger, size in known.items() if size in (CRC32C, CRC32)]
    for i in np.flatnonzero(sizes == UNKNOWN)[:_TRIED].tolist():
        start, end, own = int(entries.start[i]), int(entries.end[i]), int(entries.ledger[i])
        if end - start > bitflip.LONGEST_ALONE[bitflip.CRC32C]:
            continue
        few = len(with_crc) <= _OTHERS
        content = entries.data[start:end].copy()
        for other in with_crc if few else [other for other in with_crc if (other ^ own).bit_count() == 1]:
            content[:8] = np.frombuffer(other.to_bytes(8, "big"), np.uint8)
            if digest.matching_digest(content, 0, len(content)):
                out.append(i)
                break
    return out


def _has_digest(data: Bytes, start: int, end: int, digests: Digests) -> int:
    """Return the size of the digest of `data[start:end]` if it is right; 0 if it is not, or cannot be checked."""
    if end > len(data):
        return 0
    size, password = int(digest.matching_digest(data, start, end)), digests.password(load_i64be(data, start))
    return HMAC if not size and password is not None and hmac_matches(data, start, end, password) else size
