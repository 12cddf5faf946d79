"""Walking over the frames of a file, window by window, past damage.

Memory is bounded by the window and the largest frame; time is linear in the file, whatever its bytes: a window that has to be
read again from a place near its own start is read at twice its length, so no byte is read more than a few times.

Where a scan stops at damage, the walk goes on at the next place where, says the codec, a frame truly starts.

What the disk can't read is damage: a scan sees the bytes before it only, and the frame that reaches into it is lost whole. To find
the next frame, and only for that, the codec gets zeros in its place, so that what the lost frame says of itself still helps.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from logwright.codec.base import Codec
from logwright.codec.fault import Fault, Kind, Severity, UnreadableError
from logwright.codec.window import Bytes, Frames, Positions, Window
from logwright.readers.ahead import Ahead
from logwright.readers.crew import Crew
from logwright.readers.source import Source, patched

WINDOW = 4 << 20
"""Measured on segments of Kafka: smaller windows cost more in calls than they gain in the cache, larger ones gain nothing."""
_CAREFUL = 64 << 10
"""The smallest window after damage; each window that is sound doubles it."""
_DENSE = 8 << 10
"""Damage that is no farther from the one before halves the window."""
_HEAD = 4096
"""With so many bytes a scan knows the length of the frame (`Frames`)."""
WHOLE_LIMIT = 1 << 30
"""A file that has to be read as one window (`Codec.whole`) is refused when it is larger."""
_PATCH_LIMIT = 64 << 20
"""A frame longer than this is not looked at once more when the disk can't read all of it."""
_NAMED = 4
"""So many unreadable regions are named in one fault."""


@dataclass(slots=True)
class Stretch:
    """What one scan gave: frames and findings, then perhaps the fault that ended it; a `Hole` with its extent follows."""

    window: Window
    frames: Frames
    faults: list[Fault]
    damage: Fault | None = None


@dataclass(slots=True)
class Hole:
    """A damaged stretch: from where a scan stopped to where the next good frame starts, or the end of what is read."""

    fault: Fault
    tail: bool
    """It reaches to the end of the file, and all of it can be read."""


def weight(found: Stretch | Hole) -> int:
    """Bytes that are kept with it."""
    return len(found.window.data) if isinstance(found, Stretch) else 0


class Walk:
    """Iterate over what is found in `[start, stop)` of a file, which owns the frames that start in it.

    `start` must be a place where a frame starts. `covered` is where the last good frame ended, after the iteration.
    """

    def __init__(
        self,
        source: Source,
        codec: Codec,
        context: Any,
        *,
        start: int = 0,
        stop: int | None = None,
        check: bool = True,
        step: int = WINDOW,
    ) -> None:
        self.source, self.codec, self.context, self.check = source, codec, context, check
        self.size = source.size
        self.start, self.stop = start, stop
        self.covered = start
        self._step = self._full = max(step, _HEAD)
        self._window = Window(np.empty(0, np.uint8), start, self.size)
        self._fetched = False
        self._asked = -1
        self._pieces: Ahead | None = None
        self._before: Frames | None = None
        # The window ends where the disk can't read; or it has zeros there.
        self._bad: UnreadableError | None = None
        self._patches: list[UnreadableError] = []
        self._met: dict[int, UnreadableError] = {}

    @property
    def end(self) -> int:
        return self.size if self.stop is None else min(self.stop, self.size)

    @property
    def last(self) -> Frames | None:
        """The last good frame so far."""
        return self._before

    @property
    def refused(self) -> bool:
        """Whether the file is too large to be read in one window, as it would have to be."""
        return self.codec.whole and self.size > WHOLE_LIMIT

    def by(self, crew: Crew) -> Generator[Stretch | Hole, None, None]:
        """As iteration. In a long file one of a crew reads on and another looks at what was read, while what was found is used."""
        helped = crew.threads > 1 and self.end - self.start > 2 * self._full
        if helped and not self.codec.whole:
            self._pieces = Ahead(self.source, crew, self.start, self.end, self._full)
        return crew.each([lambda: iter(self)], weight, helped=helped)

    def __iter__(self) -> Iterator[Stretch | Hole]:
        try:
            yield from self._found()
        finally:
            if self._pieces is not None:
                self._pieces.close()

    def _found(self) -> Iterator[Stretch | Hole]:
        if self.refused:
            text = f"{self.size} bytes; files of this kind are small, at most {WHOLE_LIMIT} bytes are read"
            yield Hole(Fault(self.codec.name, 0, self.size, Kind.LENGTH, text), tail=True)
            return
        if self.codec.whole:
            data, bad = patched(self.source, 0, self.size)
            self.size = len(data)  # it may have become shorter
            self._window, self._fetched = Window(data, 0, self.size), bool(self.size)
            if bad:
                yield from self._islands(self._window, bad)
                return
        yield from self._walk()

    def _prepare(self) -> None:
        if self.codec.scans_empty and self.start == 0 and self.stop is None and 0 < self.size <= self._step:
            self._cover(0, self.size)
        self.codec.prepare(self._look, self.size, self.context)

    def _look(self, offset: int, length: int) -> Bytes:
        """Any bytes of the file, for preparation: out of the window where that is all of it."""
        window = self._window
        if not self._fetched or self._bad is not None or self._patches or len(window.data) < self.size:
            return patched(self.source, offset, length)[0]
        return window.data[offset : offset + max(0, length)]

    def _walk(self) -> Iterator[Stretch | Hole]:
        at, need = self.start, 0
        resumed = at
        hole: tuple[Fault, int] | None = None
        self._prepare()
        empty = self.size == 0 and (self.codec.whole or self.codec.scans_empty)
        while at < self.end or (empty and not self._fetched):
            frames = self._scan(at, need)
            window = self._window
            if self._bad is not None and frames.damage is None and frames.need:
                frames = self._last(frames)
            place = window.offset + frames.stop
            if hole is not None and (len(frames) or not frames.need or self._bad is not None):
                yield self._hole(*hole, frames)
                hole = None
            if self._bad is not None and frames.damage is None:
                frames = self._stopped(frames, self._bad)
            stretch = self._own(frames, window)
            if stretch.frames or stretch.faults or stretch.damage:
                if len(frames):
                    self.covered = window.offset + int(frames.end[-1])
                    self._before = frames.pick(slice(-1, None))
                yield stretch
            if stretch.damage is not None:
                if place - resumed < _DENSE:
                    self._step = min(max(_CAREFUL, self._step // 2), self._full)
                at = resumed = self._recover(stretch.damage)
                need = 0
                hole = stretch.damage, at - stretch.damage.offset
                continue
            if window.final and (place <= at or not frames.need):
                break
            if place <= at and frames.need <= len(window.data) - (at - window.offset):
                break  # no frame and no wish for more bytes: what is left is not covered
            at, need = place, frames.need
            self._step = min(self._step * 2, self._full)
        if hole is not None:
            yield self._hole(*hole, None)

    def starts(self) -> Iterator[tuple[Positions, Frames | None]]:
        """Where frames start, by their lengths alone, and the frames as far as they are known: over what does not fit the window
        the walk jumps. For `split`."""
        at, need, self._step = self.start, _HEAD, min(_CAREFUL, self._full)
        self._prepare()
        while at < self.end:
            inside = self._cover(at, min(need, self.size - at))
            window, need = self._window, _HEAD
            frames = self.codec.scan(window, inside, self.context, check=False)
            place = window.offset + frames.stop
            if len(frames):
                yield frames.start + window.offset, frames
                self._step = min(self._step * 2, self._full)
            if self._bad is not None and frames.damage is None:
                left = len(window.data) - frames.stop
                if frames.need > left >= _HEAD:
                    yield np.array([place], np.int64), None
                    at = place + frames.need
                else:
                    at = self._recover(self._bad.fault(self.codec.name, place))
            elif frames.damage is not None:
                at = self._recover(frames.damage)
            elif place > at and (frames.need or not window.final):
                at, need = place, frames.need if _HEAD < frames.need <= _CAREFUL else _HEAD
            elif frames.need > len(window.data) - inside and not window.final:
                yield np.array([at], np.int64), None
                at += frames.need
                self._step = 2 * _HEAD
            else:
                return

    def _own(self, frames: Frames, window: Window) -> Stretch:
        """The frames and faults that lie in this stretch of the file."""
        faults, damage = frames.faults, frames.damage
        if self.stop is not None and window.offset + len(window.data) > self.stop:
            frames = frames.pick(frames.start + window.offset < self.stop)
            faults = [fault for fault in faults if fault.offset < self.stop]
            damage = damage if damage is not None and damage.offset < self.stop else None
        return Stretch(window, frames, faults, damage)

    def _hole(self, fault: Fault, length: int, after: Frames | None) -> Hole:
        tail = fault.offset + length >= self.size and not self._met
        if self._met:
            fault, self._met = _naming(fault, self._met.values()), {}
        # A torn tail or padding with good frames behind it is neither.
        severity = fault.severity if tail else Severity.ERROR
        padding = tail and fault.kind is Kind.PADDING
        rows, lost = fault.rows_lost, fault.lost
        if not (lost or rows == 0 or padding or severity is Severity.INFO):
            first = after.pick(slice(0, 1)) if after is not None and len(after) else None
            known, lost = self.codec.lost_between(self._before, first, self.context)
            rows = known if rows is None else rows
        return Hole(replace(fault, length=length, severity=severity, rows_lost=rows, lost=lost), tail)

    # What the disk can't read

    def _last(self, frames: Frames) -> Frames:
        """With the frames that a scan did not vouch for, since it wanted to see what follows them and the disk can't read."""
        window = self._window
        cut = Window(window.data, window.offset, window.offset + len(window.data))
        more = self.codec.scan(cut, frames.stop, self.context, check=self.check)
        if not len(more):
            return frames
        rest = self.codec.scan(window, more.stop, self.context, check=self.check)
        return Frames(
            np.concatenate([frames.start, more.start]),
            np.concatenate([frames.end, more.end]),
            # Without it NumPy makes the numbers of this machine of them.
            np.concatenate([frames.header, more.header], dtype=frames.header.dtype),
            more.stop,
            rest.need,
            rest.damage,
            [*frames.faults, *more.faults],
        )

    def _stopped(self, frames: Frames, bad: UnreadableError) -> Frames:
        """What a scan found before bytes that the disk can't read, and these as its damage."""
        self._met[bad.start] = bad
        place = self._window.offset + frames.stop
        if 0 < frames.need <= _PATCH_LIMIT:
            # The codec takes note of what the lost frame says of itself, its length above all; `resync` asks for it.
            data, _ = patched(self.source, place, frames.need)
            self.codec.scan(Window(data, place, self.size), 0, self.context)
        return replace(frames, need=0, damage=bad.fault(self.codec.name, place))

    def _islands(self, window: Window, bad: list[UnreadableError]) -> Iterator[Stretch | Hole]:
        """Of a file that is read as one window, the frames between what the disk can't read."""
        frames = self.codec.scan(window, 0, self.context, check=self.check)
        lost = [_whole_frames(frames, one.fault(self.codec.name)) for one in bad]
        if frames.damage is not None and all(one.offset < frames.damage.offset for one in lost):
            lost.append(replace(frames.damage, length=self.size - frames.damage.offset))
        elif frames.damage is not None:
            lost.append(
                replace(lost[-1], offset=frames.damage.offset, length=self.size - frames.damage.offset)
            )
        at = 0
        for fault in _merged(lost):
            self._met = {
                one.start: one for one in bad if fault.offset <= one.start < fault.offset + fault.length
            }
            yield self._between(frames, window, at, fault.offset, fault)
            at = min(fault.offset + fault.length, self.size)
            yield self._hole(fault, at - fault.offset, None)
        yield self._between(frames, window, at, self.size, None)

    def _between(self, frames: Frames, window: Window, low: int, high: int, damage: Fault | None) -> Stretch:
        found = frames.pick((frames.start >= low) & (frames.end <= high))
        found.stop = high
        if len(found):
            self.covered, self._before = int(found.end[-1]), found.pick(slice(-1, None))
        faults = [one for one in frames.faults if low <= one.offset and one.offset + one.length <= high]
        return Stretch(window, found, faults, damage)

    # Windows

    def _cover(self, at: int, need: int = 1, *, patch: bool = False) -> int:
        """Have the window hold `need` bytes from `at` on, or all up to the end of the file; where `at` is in it.

        What the disk can't read ends the window, or is zeros with `patch`.
        """
        window = self._window
        inside = at - window.offset
        fits = self._fetched and inside >= 0 and inside + need <= len(window.data)
        # A window that ends where the disk can't read is too short to search in, one with zeros there is not to be scanned.
        if fits and (self._bad is None if patch else not self._patches):
            return inside
        # Behind damage windows are small.
        if self._pieces is not None and not patch and self._step == self._full:
            piece = self._pieces.piece(at, need)
            if piece is not None:
                self._bad, self._patches = None, []
                self._window, self._fetched = Window(piece[1], piece[0], self.size), True
                return at - piece[0]
        length = self._step if self.stop is None else min(self._step, max(self.stop - at, _HEAD))
        if self.codec.whole:
            length = max(length, self.size)
        length = max(length, need)
        if self._fetched and 0 <= inside < len(window.data) // 2 and need > len(window.data) - inside:
            length = max(length, 2 * len(window.data))
        length = min(length, self.size - at)
        data = self._read(at, length, patch)
        if len(data) < length and self._bad is None:
            self.size = at + len(data)  # it became shorter while it was read
        elif at + length < self.end:
            self._ahead(at + length, at + length + 2 * self._step)
        self._window, self._fetched = Window(data, at, self.size), True
        return 0

    def _ahead(self, start: int, stop: int) -> None:
        """Have the source fetch what comes next; what was asked for once is not asked for again, which takes time for each page."""
        if self._asked >= start:
            if stop - self._asked < self._step:
                return
            start = self._asked
        self._asked = stop
        self.source.ahead(start, stop - start)

    def _read(self, at: int, length: int, patch: bool) -> Bytes:
        self._bad, self._patches = None, []
        if patch:
            data, self._patches = patched(self.source, at, length)
            return data
        try:
            return self.source.pread(at, length)
        except UnreadableError as error:
            before = max(error.start - at, 0)
            data = self.source.pread(at, before)
            if len(data) == before:
                self._bad = error
            return data

    def _scan(self, at: int, need: int) -> Frames:
        inside = self._cover(at, max(need, 1))
        if not len(self._window.data) and self._bad is not None:
            empty = np.empty(0, np.int64)
            return Frames(empty, empty, empty, 0)
        return self.codec.scan(self._window, inside, self.context, check=self.check)

    # Past damage

    def _recover(self, fault: Fault) -> int:
        """Where the next good frame after a damaged one starts; the end of what is read where there is none."""
        seen: dict[int, UnreadableError] = {}
        place = self._find(fault, seen)
        if seen:
            self._met.update((at, one) for at, one in seen.items() if at < place and one.stop > fault.offset)
        return place

    def _find(self, fault: Fault, seen: dict[int, UnreadableError]) -> int:
        """As `_recover`; what the disk could not read meanwhile goes to `seen`."""
        at, end = fault.offset + 1, self.end
        need = 1
        while at < end:
            # What a damaged frame says of its own length helps to judge: it stays in the window while that is no burden.
            base = fault.offset if at - fault.offset <= self._full else at
            inside = at - base + self._cover(base, min(at - base + need, self.size - base), patch=True)
            if self._patches:
                seen.update((one.start, one) for one in self._patches)
                bad = next((one for one in self._patches if one.start <= at < one.stop), None)
                if bad is not None:
                    at, need = bad.stop, 1
                    continue
            window = self._window
            place, more = self.codec.resync(window, inside, self.context)
            if place >= 0 and not more:
                return min(window.offset + place, end)
            if place >= 0:
                at = window.offset + place
                # What wants more bytes than there are is no frame; what has them and wants more never gets enough.
                if at + more > self.size or more <= len(window.data) - place:
                    at, more = at + 1, 1
                need = more
                continue
            if window.final:
                return end
            at = max(at + 1, window.offset + len(window.data) - max(more, 0))
            need = window.offset + len(window.data) - at + 1
            self._step = min(self._step * 2, self._full)
        return end


def _naming(fault: Fault, met: Iterable[UnreadableError]) -> Fault:
    """The fault of a stretch, with what the disk can't read in it."""
    more = [one.detail for one in met if one.detail not in fault.detail]
    if len(more) > _NAMED:
        more[_NAMED:] = [f"and {len(more) - _NAMED} more such places"]
    return replace(fault, detail="; ".join([fault.detail, *more])) if more else fault


def _whole_frames(frames: Frames, fault: Fault) -> Fault:
    """The fault extended to all of the frames that it touches."""
    stop = fault.offset + fault.length
    hit = (frames.start < stop) & (frames.end > fault.offset)
    if not hit.any():
        return fault
    low, high = min(fault.offset, int(frames.start[hit].min())), max(stop, int(frames.end[hit].max()))
    return replace(fault, offset=low, length=high - low)


def _merged(faults: list[Fault]) -> list[Fault]:
    """In order, with those that overlap made one."""
    out: list[Fault] = []
    for fault in sorted(faults, key=lambda one: one.offset):
        if out and fault.offset < out[-1].offset + out[-1].length:
            stop = max(out[-1].offset + out[-1].length, fault.offset + fault.length)
            out[-1] = replace(out[-1], length=stop - out[-1].offset)
        else:
            out.append(fault)
    return out
