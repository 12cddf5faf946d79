"""Correct single flipped bits: find the one bit whose flip makes a damaged frame sound.

A codec names the bits that may be flipped (`Codec.suspects`); each is tried. A bit is corrected only if it is the only one with which the
frame has right checksums, its rows decode, and its place in the order of the file fits. Three or more wrong bits pass for one with a
probability of (bits of the frame) / 2**32 if the checksum is the only witness.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from logwright.codec.base import Codec
from logwright.codec.fault import Fault, Kind, Severity, UnreadableError
from logwright.codec.frames.walk import Hole, RandomAccess, Stretch, zero_filled
from logwright.codec.window import Bytes, Frames, Window

LARGEST = 64 << 20
"""Larger damaged ranges are left as they are."""
_BEHIND = 4096
"""Bytes behind a damaged range that are read too, so that the frame behind it can be a witness."""
_WORK = 64
"""The trials in a file may read this many times its bytes, and `_FREE` more. Then the rest of the damage is left as it is."""
_FREE = 256 << 20


@dataclass(frozen=True, slots=True)
class Correction:
    """One flipped bit. `offset` is its byte in the file and `stored` the value of that byte. `frame` and `length` are the range of the
    frame that it makes sound, `proved_by` the evidence."""

    offset: int
    bit: int
    stored: int
    frame: int
    length: int
    proved_by: tuple[str, ...]

    @property
    def value(self) -> int:
        """The right value of the byte."""
        return self.stored ^ 1 << self.bit

    def text(self) -> str:
        return (
            f"bit {self.bit} of byte {self.offset} is flipped ({self.stored:#04x}, it was {self.value:#04x})"
        )

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "value": self.value, "proved_by": list(self.proved_by)}


class Corrector:
    """Corrects frames of one file. `context` is that of the walk over it."""

    def __init__(self, file: RandomAccess, codec: Codec, context: Any) -> None:
        self._file, self._codec, self._context = file, codec, context
        self._left = _WORK * file.size + _FREE

    def correct(self, hole: Hole) -> tuple[list[Correction], bool]:
        """Return the corrections of the frames in a damaged range, from its start up to the first frame that stays damaged, and whether
        there is no such frame."""
        fault = hole.fault
        if fault.severity is Severity.INFO or fault.kind in (Kind.UNSUPPORTED, Kind.PADDING):
            return [], False
        if fault.length > LARGEST:
            return [], False
        try:
            data = np.array(self._file.pread(fault.offset, fault.length + _BEHIND), np.uint8)
        except UnreadableError:
            return [], False
        window = Window(data, fault.offset, self._file.size)
        out: list[Correction] = []
        at, limit = 0, min(fault.length, len(data))
        last, before = hole.before, hole.before if hole.adjoins else None
        while at < limit:
            corrected = self._frame(window, at, limit, last, before, hole.after)
            if corrected is None:
                break
            correction, before, at = corrected
            last = before
            data[correction.offset - fault.offset] = correction.value
            out.append(correction)
            if at >= limit:
                break
            sound = self._scan(window, at)
            sound = sound.pick(sound.end <= limit)
            if len(sound):
                at, last = int(sound.end[-1]), sound.pick(slice(-1, None))
                before = last
        return out, bool(out) and at >= limit

    def frames(self, stretch: Stretch, faults: Iterable[Fault] = ()) -> Iterator[tuple[Fault, Correction]]:
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
                before = frames.pick(slice(i - 1, i)) if i else None
                after = frames.pick(slice(i + 1, i + 2)) if i + 1 < len(frames) else None
                yield from (
                    (fault, found) for found in self.correct(Hole(fault, False, before, after, True))[0]
                )

    def _scan(self, window: Window, at: int) -> Frames:
        """Scan with the bytes of the window, which may be corrected."""
        self._left -= len(window.data) - at
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
        data = zero_filled(self._file, offset, length)[0]
        low = max(offset, window.offset)
        high = min(offset + len(data), window.offset + len(window.data))
        if low < high:
            data = np.array(data, np.uint8)
            data[low - offset : high - offset] = window.data[low - window.offset : high - window.offset]
        return data

    def _frame(
        self,
        window: Window,
        at: int,
        limit: int,
        last: Frames | None,
        before: Frames | None,
        after: Frames | None,
    ) -> tuple[Correction, Frames, int] | None:
        """Return the only correction that makes the frame at `window.data[at]` sound, that frame, and its end. `last` is the last good frame
        before it, `before` the same if it ends here."""
        data = window.data
        unique: tuple[Correction, Frames, int] | None = None
        tried: set[tuple[int, int]] = set()
        for place, bit in self._codec.suspects(window, at, self._codec.trial_context(self._context)):
            if self._left < 0:
                return None
            if (place, bit) in tried:
                continue
            tried.add((place, bit))
            stored = int(data[place])
            data[place] = stored ^ 1 << bit
            sound = self._trial(window, at, limit, last, before, after, (place, bit))
            data[place] = stored
            if sound is None:
                continue
            if unique is not None:
                return None
            frame, witnesses = sound
            end = int(frame.end[0])
            correction = Correction(
                window.offset + place, bit, stored, window.offset + at, end - at, witnesses
            )
            unique = correction, frame, end
        return unique

    def _trial(
        self,
        window: Window,
        at: int,
        limit: int,
        last: Frames | None,
        before: Frames | None,
        after: Frames | None,
        flip: tuple[int, int],
    ) -> tuple[Frames, tuple[str, ...]] | None:
        """Return the frame at `window.data[at]`, if it is sound and fits in its place, and the evidence for that."""
        codec = self._codec
        frames = self._scan(window, at)
        if not len(frames) or int(frames.start[0]) != at or int(frames.end[0]) > limit:
            return None
        frame = frames.pick(slice(0, 1))
        if codec.ordered is not None and not _in_order(codec, codec.ordered, frame, last, after):
            return None
        follower = after if int(frame.end[0]) == limit else None
        context = codec.trial_context(self._context)
        if not codec.proved(window, frame, before, follower, flip, context):
            return None
        columns = codec.tables["rows"].select(None)
        rows = 0
        for decoded in codec.decode(window, frame, "rows", columns, self._codec.trial_context(self._context)):
            if any(fault.severity is Severity.ERROR for _, fault in decoded.faults):
                return None
            rows += decoded.batch.num_rows
        witnesses = [codec.checksum or "checksum"]
        witnesses += ["its rows"] if rows else []
        witnesses += ["the next frame"] if follower is not None else []
        return frame, tuple(witnesses)


def _in_order(codec: Codec, column: str, frame: Frames, before: Frames | None, after: Frames | None) -> bool:
    """Return whether a frame is between those around it in the order of the file."""
    low, high = codec.frame_bounds(frame, column)
    if low is None:
        return True
    if before is not None and len(before):
        _, last = codec.frame_bounds(before, column)
        if last is not None and not bool(low[0] > last[-1]):
            return False
    if after is not None and len(after):
        first, _ = codec.frame_bounds(after, column)
        if first is not None and not bool(high[0] < first[0]):
            return False
    return True


def patched(data: Bytes, offset: int, corrections: Sequence[Correction]) -> Bytes:
    """Return the bytes of a file from `offset` on with the corrections in them."""
    inside = [c for c in corrections if offset <= c.offset < offset + len(data)]
    if not inside:
        return data
    out = np.array(data, np.uint8)
    for correction in inside:
        out[correction.offset - offset] = correction.value
    out.flags.writeable = False
    return out
