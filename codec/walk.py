"""The frames of a whole file, past damage: for what looks at a directory as a layout does, through a `Listing`.

What the disk can't read is zeros here, which no checksum fits; where that is can be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from logwright.codec.base import Codec
from logwright.codec.fault import Fault, Severity, UnreadableError
from logwright.codec.store.listing import Listing, Preads
from logwright.codec.window import Bytes, Frames, Window

WINDOW = 4 << 20
_CAREFUL = 64 << 10
"""After damage windows start small and double."""


@dataclass
class Reader:
    """The bytes of a file: so many from an offset on, or fewer at its end."""

    listing: Listing
    name: str
    size: int
    bad: dict[int, UnreadableError] = field(default_factory=dict)
    """What the disk could not read so far, by place."""
    _uncopied: Callable[[str, int, int], Bytes] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._uncopied = self.listing.pread if isinstance(self.listing, Preads) else None

    def __call__(self, offset: int, length: int) -> Bytes:
        length = max(0, min(length, self.size - offset))
        try:
            if self._uncopied is not None:
                return self._uncopied(self.name, offset, length)
            return np.frombuffer(self.listing.read(self.name, offset, length), np.uint8)
        except UnreadableError as error:
            return self._around(offset, length, error)

    def _around(self, offset: int, length: int, error: UnreadableError) -> Bytes:
        out = np.zeros(length, np.uint8)
        at = offset
        while at < offset + length:
            stop = error.start if error.start > at else offset + length
            try:
                data = self.listing.read(self.name, at, min(stop, offset + length) - at)
            except UnreadableError as found:
                error = found
                if found.start <= at:
                    self.bad[found.start] = found
                    at = max(found.stop, at + 1)
                continue
            out[at - offset : at - offset + len(data)] = np.frombuffer(data, np.uint8)
            if not data:
                break
            at += len(data)
        return out


@dataclass(frozen=True, slots=True)
class Stretch:
    """Frames that are good, one at least unless there are faults, and faults that did not end the scan."""

    window: Window
    frames: Frames


@dataclass(frozen=True, slots=True)
class Hole:
    """A damaged stretch: its fault says how long it is, and what is lost with it as far as the codec can tell."""

    fault: Fault


def walk(
    read: Reader, codec: Codec, context: Any, *, check: bool = True, step: int = WINDOW
) -> Iterator[Stretch | Hole]:
    """Go over a file from end to end. See `codec.base.Codec.scan`."""
    codec.prepare(read, read.size, context)
    at, length, full = 0, step, step
    hole: tuple[Fault, int] | None = None
    before: Frames | None = None
    first = True
    while at < read.size or first:
        first = False
        window = _window(read, at, length)
        frames = codec.scan(window, 0, context, check=check)
        if hole is not None and (len(frames) or not frames.need):
            yield _closed(*hole, before, frames, codec, context, read)
            hole = None
        if len(frames) or frames.faults:
            yield Stretch(window, frames)
        if len(frames):
            before = frames.pick(slice(-1, None))
        if frames.damage is not None:
            place = beyond(read, codec, context, frames.damage.offset)
            hole = frames.damage, place - frames.damage.offset
            at, length, full = place, _CAREFUL, _CAREFUL
        elif frames.need and not window.final:
            at += frames.stop
            full = min(2 * full, step)
            length = max(frames.need, full)
        elif frames.need and frames.stop:
            at, length = at + frames.stop, frames.need
        else:
            break
    if hole is not None:
        yield _closed(*hole, before, None, codec, context, read)


def _window(read: Reader, at: int, length: int) -> Window:
    data = read(at, length)
    if len(data) < min(length, read.size - at):
        read.size = at + len(data)  # it became shorter while it was read
    return Window(data, at, read.size)


def beyond(read: Reader, codec: Codec, context: Any, damage: int) -> int:
    """Where the next good frame after a damaged one starts; the end of the file where there is none."""
    at, length = damage + 1, _CAREFUL
    while at < read.size:
        # What the damaged frame says of itself helps to judge, as long as it is near.
        base = damage if at - damage <= WINDOW else at
        window = _window(read, base, at - base + length)
        place, more = codec.resync(window, at - base, context)
        if place >= 0 and not more:
            return base + place
        if place >= 0:
            at = base + place
            # What wants more bytes than there are is no frame; what has them and wants more never gets enough.
            if at + more > read.size or more <= len(window.data) - place:
                at, more = at + 1, 1
            length = max(more, _CAREFUL)
        elif window.final:
            return read.size
        else:
            at = max(at + 1, base + len(window.data) - max(more, 0))
            length = min(2 * length, WINDOW)
    return read.size


def _closed(
    fault: Fault,
    length: int,
    before: Frames | None,
    after: Frames | None,
    codec: Codec,
    context: Any,
    read: Reader,
) -> Hole:
    """A hole whose end is known."""
    tail = fault.offset + length >= read.size
    unreadable = [one for one in read.bad.values() if fault.offset <= one.start < fault.offset + length]
    # A torn tail or padding with good frames behind it is neither; nor is what the disk can't read.
    severity = fault.severity if tail and not unreadable else Severity.ERROR
    rows, lost, detail = fault.rows_lost, fault.lost, fault.detail
    if not lost and severity is not Severity.INFO:
        first = after.pick(slice(0, 1)) if after is not None and len(after) else None
        known, lost = codec.lost_between(before, first, context)
        rows = known if rows is None else rows
    if unreadable:
        detail = "; ".join([detail, *(one.detail for one in unreadable[:4])])
    return Hole(replace(fault, length=length, severity=severity, rows_lost=rows, lost=lost, detail=detail))
