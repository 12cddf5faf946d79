"""Walk over the frames of a file, window by window, past damage.

Memory is bounded by the window and the largest frame. Time is linear in the size of the file, whatever its bytes: a window that has
to be read again from a place near its own start is read at twice its length, so each byte is read a few times at most.

Where a scan stops at damage, the walk continues at the next place where the codec finds the true start of a frame.

Bytes that the disk cannot read are damage. A scan sees only the bytes before them, and a frame that reaches into them is lost as a
whole. The search for the next frame, and nothing else, sees zeros in their place, so that the header of the lost frame still helps.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from logwright.codec.arrays import Bytes, Int64s
from logwright.codec.base import Codec
from logwright.codec.fault import Fault, Kind, Severity, UnreadableError
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, PlannedFile, Preads
from logwright.codec.window import Around, Frames, Window, zeros_in

WINDOW = Codec.window
"""Bytes of a window by default."""
_AFTER_DAMAGE = 64 << 10
"""The smallest window after damage. Each sound window doubles it."""
_DENSE = 8 << 10
"""Damage within this distance of the last damage halves the window."""
_HEAD = 4096
"""A scan of this many bytes knows the length of the frame (`Frames.need`)."""
_LEADING_ZEROS = 256
"""A frame begins with fewer zeros than this."""
_LONGEST_LOST = 64 << 20
"""A frame longer than this is not scanned for its header when the disk cannot read all of it."""
_NAMED = 4
"""The number of unreadable regions that one fault names."""
LAST = 3
"""The number of good frames before damage that are kept: if they follow each other, two flipped bits cannot have put all of them there."""


class RandomAccess(Protocol):
    """The bytes of one file, by position."""

    size: int

    def pread(self, offset: int, length: int) -> Bytes:
        """Return `length` bytes from `offset` on; fewer only at the end of the file.

        Raises `UnreadableError` with the first region that the disk cannot read; the bytes before it can be asked for.
        """
        ...

    def ahead(self, offset: int, length: int) -> None:
        """Announce that these bytes will be read soon."""
        ...


@dataclass
class ListedFile:
    """One file of a listing. Calling it reads as `pread` does, with zeros for what the disk cannot read."""

    listing: Listing
    name: str
    size: int
    unreadable: bool = False
    """Whether the disk could not read some bytes so far."""

    def pread(self, offset: int, length: int) -> Bytes:
        length = max(0, min(length, self.size - offset))
        try:
            if isinstance(self.listing, Preads):
                return self.listing.pread(self.name, offset, length)
            return np.frombuffer(self.listing.read(self.name, offset, length), np.uint8)
        except UnreadableError:
            self.unreadable = True
            raise

    def ahead(self, offset: int, length: int) -> None:
        pass

    def __call__(self, offset: int, length: int) -> Bytes:
        return zero_filled(self, offset, length)[0]


class MemoryFile:
    """A file whose bytes are in memory."""

    def __init__(self, data: Bytes) -> None:
        self._data, self.size = data, len(data)

    def pread(self, offset: int, length: int) -> Bytes:
        return self._data[offset : offset + max(0, length)]

    def ahead(self, offset: int, length: int) -> None:
        pass


def zero_filled(file: RandomAccess, offset: int, length: int) -> tuple[Bytes, list[UnreadableError]]:
    """Read as `pread` does, with zeros for what the disk cannot read. Return these regions too, in order."""
    length = max(0, min(length, file.size - offset))
    out: Bytes | None = None
    unreadable: list[UnreadableError] = []
    todo = [(offset, offset + length)]
    while todo:
        start, stop = todo.pop()
        try:
            data = file.pread(start, stop - start)
        except UnreadableError as error:
            out = np.zeros(length, np.uint8) if out is None else out
            unreadable.append(error)
            # The region may begin before `start`; at least one byte is passed each time.
            resume = max(error.stop, start + 1)
            todo += [(resume, stop)] if resume < stop else []
            todo += [(start, error.start)] if start < error.start else []
            continue
        if out is None:
            return data, []
        out[start - offset : start - offset + len(data)] = data
        if len(data) < stop - start:
            out = out[: start - offset + len(data)]  # the file became shorter
            break
    assert out is not None
    inside = [error for error in unreadable if error.start < offset + len(out)]
    return out, sorted(inside, key=lambda error: error.start)


@dataclass(slots=True)
class Stretch:
    """The result of one scan: frames and findings, then perhaps the fault that ended it. A `Hole` with its extent follows such a fault."""

    window: Window
    frames: Frames
    faults: list[Fault] = field(default_factory=list)
    damage: Fault | None = None


@dataclass(slots=True)
class Hole:
    """A damaged stretch: from where a scan stopped to where the next good frame starts, or to the end of what is read."""

    fault: Fault
    tail: bool
    """It reaches to the end of the file, and the disk can read all of it."""
    around: Around = field(default_factory=Around)
    """The last good frames before it, up to `LAST` that are adjacent, and the first one after it."""
    adjoins: bool = False
    """The last good frame ends where the hole starts."""
    continued: bool = False
    """Another damaged stretch follows, without a good frame before it."""

    def loss(self, codec: Codec, context: Any) -> tuple[int | None, Mapping[str, Any]]:
        """Return `Codec.loss_between` of the good frames around. If another damaged stretch follows, that one has the loss of both."""
        return (None, {}) if self.continued else codec.loss_between(self.around, context)

    def fault_if_removed(self, codec: Codec, context: Any) -> Fault:
        """Return the fault as a repair reports it that removes the stretch: what does not belong to a padding may have been the next frame."""
        if self.fault.kind is not Kind.PADDING or self.fault.lost:
            return self.fault
        rows, lost = self.loss(codec, context)
        return replace(self.fault, rows_lost=rows, lost=lost)


class Walk:
    """Iterate over the stretches and holes in `[start, stop)` of a file, which owns the frames that start in it.

    `start` must be a place where a frame starts. After the iteration `covered` is where the last good frame ended.
    """

    def __init__(
        self,
        file: RandomAccess,
        codec: Codec,
        context: Any,
        *,
        start: int = 0,
        stop: int | None = None,
        check: bool = True,
        step: int | None = None,
    ) -> None:
        self.file, self.codec, self.context, self.check = file, codec, context, check
        self.size = file.size
        self.start, self.stop = start, stop
        self.covered = start
        self.broken = False
        """Whether `starts` met damage before the last frame."""
        self.prefetched: Callable[[int, int], Bytes | None] | None = None
        """`(at, need)`: bytes from `at` on that were read ahead, `need` or more unless the file ends; None without such."""
        self.full = max(codec.window if step is None else step, _HEAD)
        """The length of a window where nothing is damaged."""
        self._step = self.full
        self._window = Window(np.empty(0, np.uint8), start, self.size)
        self._fetched = False
        self._announced = -1
        self._last: Frames | None = None
        self._zeros_end = 0
        """Where the zeros end that the last scan stopped at, if they were measured."""
        # Of the window: it ends before this region, or it has zeros for these.
        self._cut: UnreadableError | None = None
        self._zeroed: list[UnreadableError] = []
        # Regions in the hole at hand.
        self._unreadable: dict[int, UnreadableError] = {}

    @property
    def end(self) -> int:
        return self.size if self.stop is None else min(self.stop, self.size)

    @property
    def last(self) -> Frames | None:
        """The last good frames so far, at most `LAST`."""
        return self._last

    @property
    def refused(self) -> bool:
        """Whether the file has to be read in one window and is too large for that."""
        return self.codec.single_frame and self.size > self.codec.largest

    def __iter__(self) -> Iterator[Stretch | Hole]:
        if self.refused:
            text = f"{self.size} bytes; files of this kind are small, at most {self.codec.largest} bytes are read"
            yield Hole(Fault(self.codec.name, 0, self.size, Kind.LENGTH, text), tail=True)
            return
        if self.codec.single_frame:
            data, unreadable = zero_filled(self.file, 0, self.size)
            self.size = len(data)  # it may have become shorter
            self._window, self._fetched = Window(data, 0, self.size), bool(self.size)
            if unreadable:
                yield from self._around(self._window, unreadable)
                return
        yield from self._walk()

    def _prepare(self) -> None:
        if self.codec.scans_empty and self.start == 0 and self.stop is None and 0 < self.size <= self._step:
            self._cover(0, self.size)
        self.codec.prepare(self._read_any, self.size, self.context)

    def _read_any(self, offset: int, length: int) -> Bytes:
        """Return any bytes of the file, out of the window where it holds the whole file."""
        window = self._window
        if not self._fetched or self._cut is not None or self._zeroed or len(window.data) < self.size:
            return zero_filled(self.file, offset, length)[0]
        return window.data[offset : offset + max(0, length)]

    def _walk(self) -> Iterator[Stretch | Hole]:
        at, need = self.start, 0
        resumed = at
        hole: tuple[Fault, int] | None = None
        noted: list[Fault] = []
        self._prepare()
        empty = self.size == 0 and (self.codec.single_frame or self.codec.scans_empty)
        while at < self.end or (empty and not self._fetched):
            frames = self._scan(at, need)
            window = self._window
            if self._cut is not None and frames.damage is None and frames.need:
                frames = self._unconfirmed(frames)
            place = window.offset + frames.stop
            if hole is not None and (len(frames) or not frames.need or self._cut is not None):
                yield self._hole(*hole, frames)
                hole = None
            if self._cut is not None and frames.damage is None:
                frames = self._stopped(frames, self._cut)
            elif frames.damage is not None and frames.damage.kind is Kind.PADDING:
                frames = self._with_zeros_measured(frames)
            if not len(frames) and frames.faults:
                # The scan of the window before may have noted how the file ends.
                frames = replace(frames, faults=[fault for fault in frames.faults if fault not in noted])
            noted = frames.faults
            stretch = self._own(frames, window)
            if stretch.frames or stretch.faults or stretch.damage:
                if len(frames):
                    self.covered = window.offset + int(frames.end[-1])
                    self._last = frames.pick(slice(-LAST, None))
                yield stretch
            if stretch.damage is not None:
                if place - resumed < _DENSE:
                    self._step = min(max(_AFTER_DAMAGE, self._step // 2), self.full)
                at = resumed = self._recover(stretch.damage)
                need = 0
                hole = stretch.damage, at - stretch.damage.offset
                continue
            if window.final and (place <= at or not frames.need):
                break
            if place <= at and frames.need <= len(window.data) - (at - window.offset):
                break  # neither a frame nor a request for more bytes: the rest is not covered
            at, need = place, frames.need
            self._step = min(self._step * 2, self.full)
        if hole is not None:
            yield self._hole(*hole, self._beyond_stop())

    def _beyond_stop(self) -> Frames | None:
        """Return the good frames with which the next range starts; None without one. They show what the end of this range has lost."""
        if self.end >= self.size:
            return None
        frames = self._scan(self.end, 1)
        if frames.need and not len(frames):
            frames = self._scan(self.end, frames.need)
        return frames if len(frames) else None

    def _with_zeros_measured(self, frames: Frames) -> Frames:
        """Return the frames with damage that takes into account where the zeros end that reach the end of the window."""
        window = self._window
        zeros = window.zeros_from(frames.stop)
        if frames.stop + zeros < len(window.data):
            return frames
        self._zeros_end = at = window.offset + len(window.data)
        if window.final:
            return frames
        while at < self.size:
            data, unreadable = zero_filled(self.file, at, min(self.full, self.size - at))
            if unreadable:
                at = max(at, min(error.start for error in unreadable))
                break
            zeros = zeros_in(data)
            at += zeros
            if zeros < len(data) or not zeros:
                break
        self._zeros_end = at
        # A copy, because the search after the damage uses what the scan of all frames left in the context.
        known = self.codec.scan(
            replace(window, zeros_end=at), frames.stop, copy.copy(self.context), check=self.check
        )
        return replace(frames, damage=known.damage)

    def starts(self) -> Iterator[tuple[Int64s, Frames | None]]:
        """Iterate over the places where a task may begin to read: where frames start, by their lengths alone, with the frames that fit the
        window. The walk jumps over longer frames, and ends at damage (`broken` if frames follow). `checked_starts` goes past it.
        """
        at, need, self._step = self.start, _HEAD, min(_AFTER_DAMAGE, self.full)
        self._prepare()
        while at < self.end:
            inside = self._cover(at, min(need, self.size - at))
            window, need = self._window, _HEAD
            frames = self.codec.scan(window, inside, self.context, check=False)
            place = window.offset + frames.stop
            if len(frames):
                if self.codec.is_independent(self.context):
                    yield frames.start + window.offset, frames
                self._step = min(self._step * 2, self.full)
            if self._cut is not None and frames.damage is None:
                left = len(window.data) - frames.stop
                if frames.need > left >= _HEAD:
                    yield np.array([place], np.int64), None
                    at = place + frames.need
                else:
                    self.broken = True
                    return
            elif frames.damage is not None:
                self.broken = self._recover(frames.damage) < self.end
                return
            elif place > at and (frames.need or not window.final):
                at, need = place, frames.need if _HEAD < frames.need <= _AFTER_DAMAGE else _HEAD
            elif frames.need > len(window.data) - inside and not window.final:
                yield np.array([at], np.int64), None
                at += frames.need
                self._step = 2 * _HEAD
            else:
                return

    def checked_starts(self) -> Iterator[tuple[Int64s, Frames]]:
        """Iterate over the same places, which are the starts of good frames, past damage."""
        for item in self:
            if isinstance(item, Stretch) and len(item.frames) and self.codec.is_independent(self.context):
                yield item.frames.start + item.window.offset, item.frames

    def _own(self, frames: Frames, window: Window) -> Stretch:
        """Return the frames and faults that start before `stop`."""
        faults, damage = frames.faults, frames.damage
        if self.stop is not None and window.offset + len(window.data) > self.stop:
            frames = frames.pick(frames.start + window.offset < self.stop)
            faults = [fault for fault in faults if fault.offset < self.stop]
            damage = damage if damage is not None and damage.offset < self.stop else None
        return Stretch(window, frames, faults, damage)

    def _hole(self, fault: Fault, length: int, after: Frames | None) -> Hole:
        tail = fault.offset + length >= self.size and not self._unreadable
        if self._unreadable:
            fault, self._unreadable = _naming(fault, self._unreadable.values()), {}
        # With good frames after it, this is neither a torn tail nor padding.
        severity = fault.severity if tail else Severity.ERROR
        padding = tail and fault.kind is Kind.PADDING
        rows, lost = fault.rows_lost, fault.lost
        first = after.pick(slice(0, 1)) if after is not None and len(after) else None
        continued = first is None and after is not None and fault.offset + length < self.size
        hole = Hole(fault, tail, Around(self._last, first), self.covered == fault.offset, continued)
        if not (lost or rows == 0 or padding or severity is Severity.INFO):
            known, lost = hole.loss(self.codec, self.context)
            rows = known if rows is None else rows
        hole.fault = replace(fault, length=length, severity=severity, rows_lost=rows, lost=lost)
        return hole

    # Bytes that the disk cannot read

    def _unconfirmed(self, frames: Frames) -> Frames:
        """Add the frames that the scan did not confirm, because it needed the unreadable bytes after them."""
        window = self._window
        cut = Window(window.data, window.offset, window.offset + len(window.data))
        more = self.codec.scan(cut, frames.stop, self.context, check=self.check)
        if not len(more):
            return frames
        rest = self.codec.scan(window, more.stop, self.context, check=self.check)
        return replace(Frames.joined([frames, more]), need=rest.need, damage=rest.damage)

    def _stopped(self, frames: Frames, cut: UnreadableError) -> Frames:
        """Return the frames of a scan with the unreadable bytes that ended it as its damage."""
        self._unreadable[cut.start] = cut
        place = self._window.offset + frames.stop
        if 0 < frames.need <= _LONGEST_LOST:
            # The context keeps what the header of the lost frame says, its length above all, for `resync`.
            data, _ = zero_filled(self.file, place, frames.need)
            self.codec.scan(Window(data, place, self.size), 0, self.context)
        return replace(frames, need=0, damage=cut.fault(self.codec.name, place))

    def _around(self, window: Window, unreadable: list[UnreadableError]) -> Iterator[Stretch | Hole]:
        """Of a file that is read as one window, iterate over the frames between the unreadable regions."""
        frames = self.codec.scan(window, 0, self.context, check=self.check)
        lost = [_extended_to_frames(frames, error.fault(self.codec.name)) for error in unreadable]
        if frames.damage is not None and all(fault.offset < frames.damage.offset for fault in lost):
            lost.append(replace(frames.damage, length=self.size - frames.damage.offset))
        elif frames.damage is not None:
            lost.append(
                replace(lost[-1], offset=frames.damage.offset, length=self.size - frames.damage.offset)
            )
        at = 0
        for fault in _merged(lost):
            stop = fault.offset + fault.length
            self._unreadable = {
                error.start: error for error in unreadable if fault.offset <= error.start < stop
            }
            yield self._between(frames, window, at, fault.offset, fault)
            at = min(stop, self.size)
            yield self._hole(fault, at - fault.offset, None)
        yield self._between(frames, window, at, self.size, None)

    def _between(self, frames: Frames, window: Window, low: int, high: int, damage: Fault | None) -> Stretch:
        inside = frames.pick((frames.start >= low) & (frames.end <= high))
        inside.stop = high
        if len(inside):
            self.covered, self._last = int(inside.end[-1]), inside.pick(slice(-LAST, None))
        faults = [
            fault for fault in frames.faults if low <= fault.offset and fault.offset + fault.length <= high
        ]
        return Stretch(window, inside, faults, damage)

    # Windows

    def _cover(self, at: int, need: int = 1, *, zeros: bool = False) -> int:
        """Make the window hold `need` bytes from `at` on, or all up to the end of the file. Return the index of `at` in it.

        The window ends before bytes that the disk cannot read, or with `zeros` has zeros for them.
        """
        window = self._window
        inside = at - window.offset
        fits = self._fetched and inside >= 0 and inside + need <= len(window.data)
        # A window that ends before unreadable bytes is too short to search in, one with zeros must not be scanned.
        if fits and (self._cut is None if zeros else not self._zeroed):
            return inside
        # Windows after damage are small.
        if self.prefetched is not None and not zeros and self._step == self.full:
            data = self.prefetched(at, need)
            if data is not None:
                self._cut, self._zeroed = None, []
                self._window, self._fetched = Window(data, at, self.size), True
                return 0
        length = self._step if self.stop is None else min(self._step, max(self.stop - at, _HEAD))
        if self.codec.single_frame:
            length = max(length, self.size)
        length = max(length, need)
        if self._fetched and 0 <= inside < len(window.data) // 2 and need > len(window.data) - inside:
            length = max(length, 2 * len(window.data))
        length = min(length, self.size - at)
        data = self._read(at, length, zeros)
        if len(data) < length and self._cut is None:
            self.size = at + len(data)  # it became shorter while it was read
        elif at + length < self.end:
            self._announce(at + length, at + length + 2 * self._step)
        self._window, self._fetched = Window(data, at, self.size), True
        return 0

    def _announce(self, start: int, stop: int) -> None:
        """Announce the next bytes, none of them twice: an announcement takes the kernel time for each page."""
        if self._announced >= start:
            if stop - self._announced < self._step:
                return
            start = self._announced
        self._announced = stop
        self.file.ahead(start, stop - start)

    def _read(self, at: int, length: int, zeros: bool) -> Bytes:
        self._cut, self._zeroed = None, []
        if zeros:
            data, self._zeroed = zero_filled(self.file, at, length)
            return data
        try:
            return self.file.pread(at, length)
        except UnreadableError as error:
            before = max(error.start - at, 0)
            data = self.file.pread(at, before) if before else np.empty(0, np.uint8)
            if len(data) == before:
                self._cut = error
            return data

    def _scan(self, at: int, need: int) -> Frames:
        inside = self._cover(at, max(need, 1))
        frames = self.codec.scan(self._window, inside, self.context, check=self.check)
        if not len(self._window.data) and self._cut is not None:
            # Nothing was read, so what the codec misses here is not missing.
            return replace(frames, stop=0, need=0, damage=None, faults=[])
        return frames

    # Past damage

    def _recover(self, fault: Fault) -> int:
        """Return where the next good frame after a damaged one starts, or the end of what is read."""
        regions: dict[int, UnreadableError] = {}
        place = self._search(fault, regions)
        self._unreadable.update(
            (start, error) for start, error in regions.items() if start < place and error.stop > fault.offset
        )
        return place

    def _search(self, fault: Fault, regions: dict[int, UnreadableError]) -> int:
        """As `_recover`. Unreadable regions on the way are added to `regions`, by their starts."""
        at, end = fault.offset + 1, self.end
        if self._zeros_end >= self.size:
            return end
        at, self._zeros_end = max(at, self._zeros_end - _LEADING_ZEROS), 0
        need = 1
        while at < end:
            # The header of the damaged frame helps to judge: it stays in the window while it is near.
            base = fault.offset if at - fault.offset <= self.full else at
            inside = at - base + self._cover(base, min(at - base + need, self.size - base), zeros=True)
            if self._zeroed:
                regions.update((error.start, error) for error in self._zeroed)
                here = next((error for error in self._zeroed if error.start <= at < error.stop), None)
                if here is not None:
                    at, need = here.stop, 1
                    continue
            window = self._window
            place, more = self.codec.resync(window, inside, self.context)
            if place >= 0 and not more:
                return min(window.offset + place, end)
            if place >= 0:
                at = window.offset + place
                # A candidate that needs more bytes than the file has, or that has them and asks for more, is not a frame.
                if at + more > self.size or more <= len(window.data) - place:
                    at, more = at + 1, 1
                need = more
                continue
            if window.final:
                return end
            at = max(at + 1, window.offset + len(window.data) - max(more, 0))
            need = window.offset + len(window.data) - at + 1
            self._step = min(self._step * 2, self.full)
        return end


def walk_listed(
    listing: Listing, name: str, size: int, codec: Codec, *, check: bool = True, **hints: Any
) -> Walk:
    """Return a walk over a file of a listing, with the codec's default options."""
    context = codec.context(name.rpartition("/")[2], Options(codec.options), **hints)
    return Walk(ListedFile(listing, name, size), codec, context, check=check)


def walk_file(listing: Listing, file: PlannedFile, codec: Codec, *, check: bool = True) -> Walk:
    """Do the same with a file of a plan."""
    return walk_listed(listing, file.name, file.size, codec, check=check, **file.hints)


def good_frames(items: Iterable[Stretch | Hole]) -> Iterator[tuple[Window, Frames]]:
    """Iterate over the good frames of a walk."""
    return ((item.window, item.frames) for item in items if isinstance(item, Stretch) and len(item.frames))


def frames_of(
    listing: Listing,
    files: Iterable[PlannedFile],
    codec: Codec,
    *,
    check: bool = True,
    report: Callable[[str, Fault], None] | None = None,
) -> Iterator[tuple[PlannedFile, Iterator[tuple[Window, Frames]]]]:
    """Iterate over files of a plan, each with its good frames (`codec.engine.fold`). `report` is called with a file's name and a fault."""

    def reported(file: PlannedFile) -> Iterator[Stretch | Hole]:
        for item in walk_file(listing, file, codec, check=check):
            for fault in [item.fault] if isinstance(item, Hole) else item.faults:
                if report is not None:
                    report(file.name, fault)
            yield item

    return ((file, good_frames(reported(file))) for file in files)


def _naming(fault: Fault, unreadable: Iterable[UnreadableError]) -> Fault:
    """Return the fault of a stretch with the unreadable regions in it named."""
    more = [error.detail for error in unreadable if error.detail not in fault.detail]
    if len(more) > _NAMED:
        more[_NAMED:] = [f"and {len(more) - _NAMED} more such places"]
    return replace(fault, detail="; ".join([fault.detail, *more])) if more else fault


def _extended_to_frames(frames: Frames, fault: Fault) -> Fault:
    """Return the fault extended to all frames that it touches."""
    stop = fault.offset + fault.length
    hit = (frames.start < stop) & (frames.end > fault.offset)
    if not hit.any():
        return fault
    low, high = min(fault.offset, int(frames.start[hit].min())), max(stop, int(frames.end[hit].max()))
    return replace(fault, offset=low, length=high - low)


def _merged(faults: list[Fault]) -> list[Fault]:
    """Return the faults in order, with those that overlap merged."""
    out: list[Fault] = []
    for fault in sorted(faults, key=lambda fault: fault.offset):
        if out and fault.offset < out[-1].offset + out[-1].length:
            stop = max(out[-1].offset + out[-1].length, fault.offset + fault.length)
            out[-1] = replace(out[-1], length=stop - out[-1].offset)
        else:
            out.append(fault)
    return out
