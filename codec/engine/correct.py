"""Correct single flipped bits: find the one bit whose flip makes a damaged frame sound.

A codec names the bits that may be flipped (`Codec.suspects`); each is tried. A bit is corrected only if it is the only one with which the
frame has right checksums, its rows decode, and its place in the order of the file fits. Three wrong bits look like one with a probability of
(bits of the frame) / 2**31 if a CRC is the only evidence. So in long frames the bit must also be one that prevents decoding
(`bitflip.Flip`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from logwright.codec.arrays import Bytes, Int64s
from logwright.codec.base import Codec, ProvedPart
from logwright.codec.fault import Fault, Kind, Severity, UnreadableError
from logwright.codec.frames.walk import LAST, Hole, RandomAccess, Stretch, Walk, zero_filled
from logwright.codec.window import Around, Frames, Window

Read = Callable[[int, int], Bytes]
LARGEST = 64 << 20
"""Larger damaged ranges are left as they are."""
_BEHIND = 4096
"""Bytes after a damaged range that are also read, so that the next frame can confirm a correction."""
_WORK = 64
"""The trials in a file may read this many times its bytes, and `_FREE` more. Then the rest of the damage is left as it is."""
_FREE = 1 << 30
_PIECE = 8 << 20
"""Bytes of a file in which a copy of a frame is searched at a time, and the size of the longest such frame."""
_TRIAL = 16 << 10
"""A trial counts as this many bytes at least."""
_MOST = 1 << 63
_RUNS = 8
"""Number of runs of bytes in which two copies of a frame may differ."""
_GAP = 16
"""Bytes between two runs, in which damaged bytes of the two copies may agree."""


@dataclass(frozen=True, slots=True)
class Correction:
    """One flipped bit. `offset` is its byte in the file and `stored` the value of that byte. `frame` and `length` are the range that is
    proved to be right with it, `proved_by` the evidence. The range is the frame; or `part` of it, if no checksum covers the rest."""

    offset: int
    bit: int
    stored: int
    frame: int
    length: int
    proved_by: tuple[str, ...]
    part: str = ""

    @property
    def value(self) -> int:
        """The right value of the byte."""
        return self.stored ^ 1 << self.bit

    @property
    def data(self) -> bytes:
        """The right bytes from `offset` on."""
        return bytes([self.value])

    def note(self, where: str) -> str:
        """Describe the correction for a report. `where` follows the offset."""
        return (
            f"corrected: 1 bit at byte {self.offset}{where} ({self.stored:#04x}, it was {self.value:#04x}), "
            f"proved by {', '.join(self.proved_by)}{self._limited()}"
        )

    @property
    def limits(self) -> str:
        """The part that is proved, in words, if it is not the complete frame."""
        return f"only {self.part} is proved, no checksum covers the rest of the frame" if self.part else ""

    def _limited(self) -> str:
        return f"; {self.limits}" if self.part else ""

    def text(self) -> str:
        return f"bit {self.bit} of byte {self.offset} is flipped ({self.stored:#04x}, it was {self.value:#04x}){self._limited()}"

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "value": self.value, "proved_by": list(self.proved_by)}


@dataclass(frozen=True, slots=True)
class Replacement:
    """Right bytes to write from `offset` on. `verb` says how they were found, combined or corrected, and `origin` from what. For the other
    fields see `Correction`."""

    offset: int
    data: bytes
    frame: int
    length: int
    proved_by: tuple[str, ...]
    verb: str
    origin: str

    def note(self, where: str) -> str:
        """Describe the replacement for a report. `where` follows the offset."""
        return f"{self.verb}: {len(self.data)} bytes at byte {self.offset}{where} ({self.text()})"

    def text(self) -> str:
        return f"{self.origin}, proved by {', '.join(self.proved_by)}"

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "data": self.data.hex(), "proved_by": list(self.proved_by)}


Fix = Correction | Replacement


class PatchedFile:
    """A file with corrections in its bytes."""

    def __init__(self, read: Read, size: int, *corrections: Fix) -> None:
        self._read, self.size, self._corrections = read, size, corrections

    def pread(self, offset: int, length: int) -> Bytes:
        return patched(self._read(offset, max(0, min(length, self.size - offset))), offset, self._corrections)

    def ahead(self, offset: int, length: int) -> None:
        pass


OfFile = tuple[Fault, Correction, frozenset[int]]
"""A correction that only the file as a whole proves: with its fault, and the offsets of the faults that remain."""


class Corrector:
    """Corrects frames of one file. `context` is that of the walk over it."""

    def __init__(self, file: RandomAccess, codec: Codec, context: Any) -> None:
        self._file, self._codec, self._context = file, codec, context
        self._columns = codec.checked_columns(context)
        self._left = _WORK * file.size + _FREE

    def correct(self, hole: Hole) -> tuple[list[Fix], bool]:
        """Return the corrections of the frames in a damaged range, from its start up to the first frame that stays damaged, and whether
        there is no such frame."""
        fault = hole.fault
        skipped = fault.severity is Severity.INFO or fault.kind is Kind.UNSUPPORTED
        window = None if skipped else self._window(fault)
        if window is None:
            return [], False
        data = window.data
        out: list[Fix] = []
        at, limit = 0, min(fault.length, len(data))
        around, before = hole.around, hole.around.before if hole.adjoins else None
        while at < limit:
            padding = fault.kind is Kind.PADDING
            corrected = None if padding else self._frame(window, at, limit, around, before)
            corrected = corrected or self._measured(window, at, limit)
            if corrected is None:
                break
            correction, frame, at = corrected
            place = correction.offset - fault.offset
            data[place : place + len(correction.data)] = np.frombuffer(correction.data, np.uint8)
            out.append(correction)
            if at >= limit:
                break
            before = _followed_by(before, frame)
            sound = self._scan(window, at)
            sound = sound.pick(sound.end <= limit)
            if len(sound):
                at, before = int(sound.end[-1]), _followed_by(before, sound)
            around = around._replace(before=before)
        return out, bool(out) and (at >= limit or (hole.tail and not data[at:].any()))

    def measured(self, hole: Hole) -> tuple[Fix, Window, Frames] | None:
        """Return the frames of a damaged range if only the length of the first one is wrong, and what it should be."""
        fault = hole.fault
        skipped = not self._codec.measures or fault.severity is Severity.INFO
        window = None if skipped else self._window(fault, behind=0)
        measured = None if window is None else self._measured(window, 0, len(window.data))
        if window is None or measured is None or window.data[measured[1].stop :].any():
            return None
        return measured[0], window, measured[1]

    def _window(self, fault: Fault, behind: int = _BEHIND) -> Window | None:
        """Return a copy of a damaged range and the bytes behind it; None if it is too long or cannot be read."""
        if fault.length > LARGEST:
            return None
        try:
            data = np.array(self._file.pread(fault.offset, fault.length + behind), np.uint8)
        except UnreadableError:
            return None
        return Window(data, fault.offset, self._file.size)

    def _measured(self, window: Window, at: int, limit: int) -> tuple[Fix, Frames, int] | None:
        """Return the right length of the frame at `window.data[at]`, the frames from there to `limit`, and the end of the first one."""
        codec, data = self._codec, window.data
        right = codec.right_length(window, at, limit, self._context) if codec.measures else None
        if right is None:
            return None
        place, new, origin = right
        stored = data[place : place + len(new)].copy()
        data[place : place + len(new)] = np.frombuffer(new, np.uint8)
        frames = self._scan(Window(data[:limit], window.offset, window.offset + limit), at)
        data[place : place + len(new)] = stored
        if not len(frames):
            return None
        end, base, by = int(frames.end[0]), window.offset, (codec.checksum,)
        return Replacement(base + place, new, base + at, end - at, by, "corrected", origin), frames, end

    def combine(self, hole: Hole, other: RandomAccess) -> Replacement | None:
        """Return the frame of a damaged range, made of the runs of bytes in which this file and another copy of it differ.

        Every choice of one of the two for each run is tried; exactly one may be sound.
        """
        fault, window = hole.fault, self._window(hole.fault)
        if window is None:
            return None
        data = window.data
        try:
            theirs = other.pread(fault.offset, fault.length)
        except UnreadableError:
            return None
        if len(theirs) != fault.length or len(data) < fault.length:
            return None
        ours = data[: fault.length].copy()
        runs = _runs(np.flatnonzero(ours != theirs))
        if not 2 <= len(runs) <= _RUNS:
            return None
        before = hole.around.before if hole.adjoins else None
        unique: Replacement | None = None
        for choice in range(1, (1 << len(runs)) - 1):
            data[: fault.length] = ours
            for i, (start, stop) in enumerate(runs):
                if choice >> i & 1:
                    data[start:stop] = theirs[start:stop]
            sound = self._trial(window, 0, fault.length, hole.around, before, None)
            if self._left < 0 or (sound is not None and unique is not None):
                return None
            if sound is not None and int(sound[0].end[0]) == fault.length:
                start, stop = runs[0][0], runs[-1][1]
                new = data[start:stop].tobytes()
                origin = "from two damaged copies"
                by = sound[1].proved_by
                unique = Replacement(
                    fault.offset + start, new, fault.offset, fault.length, by, "combined", origin
                )
        return unique

    def frames(self, stretch: Stretch, faults: Iterable[Fault] = ()) -> Iterator[tuple[Fault, Fix]]:
        """Yield the corrections of frames that a scan accepts: those whose digests are wrong, by the `faults` of decoding them, and those
        with a flipped bit in bytes that no checksum covers. Each comes with its fault."""
        frames, base = stretch.frames, stretch.window.offset
        if not len(frames):
            return
        wrong = [
            fault for fault in faults if fault.kind is Kind.CHECKSUM and fault.severity is Severity.ERROR
        ]
        for i, text in self._codec.outliers(stretch.window, frames, self._context):
            start, size = int(frames.start[i]) + base, int(frames.end[i] - frames.start[i])
            wrong.append(
                Fault(self._codec.name, start, size, Kind.ORDER, text, Severity.WARNING, rows_lost=0)
            )
        for fault in wrong:
            i = int(np.searchsorted(frames.start, fault.offset - base))
            if i < len(frames) and int(frames.end[i]) + base == fault.offset + fault.length:
                before = frames.pick(slice(max(i - LAST, 0), i)) if i else None
                after = frames.pick(slice(i + 1, i + 2)) if i + 1 < len(frames) else None
                hole = Hole(fault, False, Around(before, after), True)
                yield from ((fault, correction) for correction in self.correct(hole)[0])

    def of_file(self) -> OfFile | None:
        """Return the correction that only the file as a whole proves, after a walk over it."""
        codec, size = self._codec, self._file.size

        flip = codec.flip_of_file(self._pread, size, self._context)
        if flip is None:
            return None
        fault, place, bit, part = flip
        stored = int(self._pread(place, 1)[0])
        correction = Correction(
            place, bit, stored, part.start, part.stop - part.start, part.proved_by, part.name
        )
        context = codec.trial_context(self._context)
        remaining: set[int] = set()
        for step in Walk(PatchedFile(self._pread, size, correction), codec, context):
            if isinstance(step, Hole):
                remaining.add(step.fault.offset)
                continue
            remaining |= {left.offset for left in step.faults}
            if len(step.frames):
                for decoded in codec.decode(step.window, step.frames, "rows", self._columns, context):
                    remaining |= {left.offset for _, left in decoded.faults}
        return fault, correction, frozenset(remaining)

    def _scan(self, window: Window, at: int) -> Frames:
        """Scan with the bytes of the window, which may be corrected."""
        self._left -= max(len(window.data) - at, _TRIAL)
        context = self._codec.trial_context(self._context)
        frames = self._codec.scan(window, at, context)
        if self._codec.indexed and not len(frames):
            # The index does not name the frame that starts here; a corrected one may.
            context = self._codec.trial_context(self._context)
            self._codec.prepare(
                lambda offset, length: self._read(window, offset, length), self._file.size, context
            )
            frames = self._codec.scan(window, at, context)
        return frames

    def _read(self, window: Window, offset: int, length: int) -> Bytes:
        """Read the file with the bytes of the window."""
        self._left -= length
        data = self._pread(offset, length)
        low = max(offset, window.offset)
        high = min(offset + len(data), window.offset + len(window.data))
        if low < high:
            data = np.array(data, np.uint8)
            data[low - offset : high - offset] = window.data[low - window.offset : high - window.offset]
        return data

    def _frame(
        self, window: Window, at: int, limit: int, around: Around, before: Frames | None
    ) -> tuple[Fix, Frames, int] | None:
        """Return the only correction that makes the frame at `window.data[at]` sound, that frame, and its end. `before` are the good frames
        before it if they end here."""
        data = window.data
        unique: tuple[Correction, Frames, int] | None = None
        tried: set[tuple[int, int]] = set()
        context = self._codec.trial_context(self._context)
        for place, bit, alone in self._codec.suspects(window, at, limit, around, context):
            if self._left < 0:
                return None
            if (place, bit) in tried:
                continue
            tried.add((place, bit))
            stored = int(data[place])
            data[place] = stored ^ 1 << bit
            sound = self._trial(window, at, limit, around, before, (place, bit))
            data[place] = stored
            if sound is None or not (alone or self._fails(window, sound[0])):
                continue
            if unique is not None:
                return None
            frame, (start, stop, part, witnesses) = sound
            end = int(frame.end[0])
            correction = Correction(
                window.offset + place, bit, stored, window.offset + start, stop - start, witnesses, part
            )
            unique = correction, frame, end
        if unique is not None and unique[0].offset - window.offset - at < self._codec.uncovered:
            return None if self._is_misplaced(window, at, unique) else unique
        return unique

    def _is_misplaced(self, window: Window, start: int, unique: tuple[Correction, Frames, int]) -> bool:
        """Return whether the frame at `window.data[start]` may be at a wrong place, and have no flipped bit: it is elsewhere in the file or the
        store too, or another frame is where it belongs. Of a frame that is too long or of too much work this is not known."""
        _, corrected, end = unique
        own, frame = window.offset + start, window.data[start:end].tobytes()
        origin = self._codec.origin(frame, self._context)
        self._left -= 2 * (self._file.size + (0 if origin is None else origin[0].size))
        if self._left < 0 or len(frame) > _PIECE or any(place != own for place in _places(self._file, frame)):
            return True
        claim, due = self._codec.claim(frame), int(_bounds(self._codec, corrected)[0][0])
        if any(low <= claim <= high and not low <= due <= high for low, high in self._misplaced):
            return True
        if origin is None:
            return False
        file, context = origin
        return any(True for _ in _places(file, frame)) or any(
            low <= claim <= high for low, high in misplaced(file, self._codec, context)
        )

    @cached_property
    def _misplaced(self) -> Sequence[tuple[int, int]]:
        return misplaced(self._file, self._codec, self._context)

    def _pread(self, offset: int, length: int) -> Bytes:
        return zero_filled(self._file, offset, length)[0]

    def _fails(self, window: Window, frame: Frames) -> bool:
        """Return whether a frame with wrong checksums is found but cannot be decoded, which a right correction cures."""
        stored = self._codec.scan(
            window, int(frame.start[0]), self._codec.trial_context(self._context), check=False
        ).pick(slice(0, 1))
        if not len(stored) or (int(stored.start[0]), int(stored.end[0])) != (
            int(frame.start[0]),
            int(frame.end[0]),
        ):
            return False
        return bool(self._decoded(window, stored)[0] - {Kind.CHECKSUM})

    def _decoded(self, window: Window, frame: Frames) -> tuple[set[Kind], int]:
        """Return the kinds of errors of decoding a frame, and the number of its rows."""
        kinds: set[Kind] = set()
        rows = 0
        context = self._codec.trial_context(self._context)
        for decoded in self._codec.decode(window, frame, "rows", self._columns, context):
            kinds |= {fault.kind for _, fault in decoded.faults if fault.severity is Severity.ERROR}
            rows += decoded.batch.num_rows
        return kinds, rows

    def _trial(
        self, window: Window, at: int, limit: int, around: Around, before: Frames | None, flip: tuple[int, int] | None
    ) -> tuple[Frames, ProvedPart] | None:  # fmt: skip
        """Return the frame at `window.data[at]`, if it is sound and fits in its place, and what of it is proved. `before` as in `_frame`."""
        codec = self._codec
        frames = self._scan(window, at)
        if not len(frames) or int(frames.start[0]) != at or int(frames.end[0]) > limit:
            return None
        frame = frames.pick(slice(0, 1))
        if codec.ordered is not None and not _in_order(codec, codec.ordered, frame, around):
            return None
        adjoining = Around(before, around.after if int(frame.end[0]) == limit else None)
        context = codec.trial_context(self._context)
        part = None
        if not codec.proved(window, frame, adjoining, flip, context):
            part = codec.part_proved(window, frame, adjoining, flip, context)
            if part is None:
                return None
        errors, rows = self._decoded(window, frame)
        if errors:
            return None
        witnesses = [codec.checksum or "checksum"]
        witnesses += ["its rows"] if rows else []
        witnesses += ["the next frame"] if adjoining.after is not None else []
        return frame, part or ProvedPart(at, int(frame.end[0]), "", tuple(witnesses))


def _followed_by(before: Frames | None, frames: Frames) -> Frames:
    """Return the last of these frames, which follow those before."""
    both = frames if before is None else Frames.joined([before, frames])
    return both.pick(slice(-LAST, None))


def _in_order(codec: Codec, column: str, frame: Frames, around: Around) -> bool:
    """Return whether a frame is between those around it in the order of the file."""
    pairs = ((around.before, frame), (frame, around.after))
    return all(_ascend(codec, column, *pair) for pair in pairs)


def _ascend(codec: Codec, column: str, before: Frames | None, after: Frames | None) -> bool:
    if before is None or after is None:
        return True
    # Both at once: a frame without a position gets that at which the frame before it ends.
    both = _followed_by(before.pick(slice(-1, None)), after.pick(slice(0, 1)))
    low, high = codec.frame_bounds(both, column)
    return low is None or bool(high[0] < low[1])


def _places(file: RandomAccess, frame: bytes) -> Iterator[int]:
    """Yield where a file has these bytes."""
    for at in range(0, file.size, _PIECE):
        data = zero_filled(file, at, min(_PIECE + len(frame) - 1, file.size - at))[0].tobytes()
        place = data.find(frame)
        while place >= 0:
            yield at + place
            place = data.find(frame, place + 1)


def misplaced(file: RandomAccess, codec: Codec, context: Any) -> Sequence[tuple[int, int]]:
    """Return the places in the order of a file, as ranges, that only misplaced frames have: their checksums are right, but they claim other
    places."""
    out: list[tuple[int, int]] = []
    low, displaced = -_MOST, False
    for step in Walk(file, codec, codec.trial_context(context)):
        if isinstance(step, Hole):
            displaced |= step.fault.kind is Kind.ORDER
        elif len(step.frames):
            first, last = _bounds(codec, step.frames)
            if displaced:
                out.append((low, int(first[0]) - 1))
            low, displaced = int(last.max()) + 1, False
    return [*out, (low, _MOST)] if displaced else out


def _bounds(codec: Codec, frames: Frames) -> tuple[Int64s, Int64s]:
    assert codec.ordered is not None
    first, last = codec.frame_bounds(frames, codec.ordered)
    return first, last


def _runs(places: Int64s) -> list[tuple[int, int]]:
    """Return runs of places, as (start, stop). Places at most `_GAP` apart are in one run."""
    if not len(places):
        return []
    ends = np.flatnonzero(np.diff(places) > _GAP)
    starts = np.concatenate(([0], ends + 1))
    return list(
        zip(places[starts].tolist(), (places[np.append(ends, len(places) - 1)] + 1).tolist(), strict=True)
    )


def patched(data: Bytes, offset: int, corrections: Sequence[Fix]) -> Bytes:
    """Return the bytes of a file from `offset` on with the corrections in them."""
    stop = offset + len(data)
    inside = [c for c in corrections if c.offset < stop and offset < c.offset + len(c.data)]
    if not inside:
        return data
    out = np.array(data, np.uint8)
    for correction in inside:
        low, high = max(offset, correction.offset), min(stop, correction.offset + len(correction.data))
        new = correction.data[low - correction.offset : high - correction.offset]
        out[low - offset : high - offset] = np.frombuffer(new, np.uint8)
    out.flags.writeable = False
    return out
