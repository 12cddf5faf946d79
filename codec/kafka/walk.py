"""Walking over the batches of a partition's segments: for what only the headers tell, transactions above all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from logwright.codec.base import Bytes, Frames, Listing, PlannedFile, Role, Window
from logwright.codec.fault import Severity, UnreadableError, UsageError
from logwright.codec.kafka import log
from logwright.codec.kafka.markers import markers
from logwright.codec.kafka.producers import AbortedTxn, ProducerState
from logwright.codec.kafka.scan import first_bad
from logwright.codec.option import Options

_WINDOW = 1 << 20


def walk(listing: Listing, file: PlannedFile, *, check: bool = False) -> Iterator[tuple[Window, Frames]]:
    """The batches of a segment, window by window; past damage the next one that is good. With `check` damage is an error."""
    for window, frames in _walk(listing, file, check=check):
        if check:
            _refuse(file, frames)
        if len(frames):
            yield window, frames


def salvage(listing: Listing, name: str, base_offset: int) -> Iterator[tuple[Window, Frames]]:
    """The good batches of a log, by their checksums, past damage."""
    size = next(entry.size for entry in listing.entries() if entry.name == name)
    file = PlannedFile(name, size, Role.PRIMARY, hints={"base_offset": base_offset})
    return (found for found in _walk(listing, file, check=True) if len(found[1]))


def _walk(listing: Listing, file: PlannedFile, *, check: bool) -> Iterator[tuple[Window, Frames]]:
    context = log.CODEC.context(file.name, Options(log.CODEC.options), **file.hints)
    at, length = 0, _WINDOW
    while at < file.size:
        data, bad = _read(listing, file.name, at, length)
        window = Window(data, at, file.size)
        frames = log.CODEC.scan(window, 0, context, check=check)
        if bad is not None and frames.damage is None:
            frames = replace(frames, need=0, damage=bad.fault(log.CODEC.name, at + frames.stop))
        yield window, frames
        if frames.damage is not None:
            after = at + frames.stop + 1
            at = _beyond(listing, file, after if bad is None else max(after, bad.stop), context)
        elif frames.need:
            if frames.need <= length and frames.stop == 0:
                return  # cut short
            at, length = at + frames.stop, max(_WINDOW, frames.need)
            continue
        elif window.final or not frames.stop:
            return
        else:
            at += frames.stop
        length = _WINDOW


def _read(listing: Listing, name: str, at: int, length: int) -> tuple[Bytes, UnreadableError | None]:
    """Bytes of a file, up to those that the disk can't read."""
    bad = None
    try:
        data = listing.read(name, at, length)
    except UnreadableError as error:
        bad = error
        data = listing.read(name, at, max(0, bad.start - at))
    return np.frombuffer(data, np.uint8), bad


def _refuse(file: PlannedFile, frames: Frames) -> None:
    """Raise for damage, whatever its severity: what follows a torn tail or zeros is out of a broker's sight too."""
    faults = [fault for fault in frames.faults if fault.severity is Severity.ERROR]
    if frames.damage is not None:
        faults.append(frames.damage)
    if faults:
        first = min(faults, key=lambda fault: fault.offset)
        raise UsageError(
            f"{file.name} is damaged at byte {first.offset}: {first.detail}",
            advice="Nothing is appended behind damage. See it with `logwright verify`",
        )


def _beyond(listing: Listing, file: PlannedFile, at: int, context: Any) -> int:
    """Where the next good batch starts at or after `at`."""
    length = _WINDOW
    while at < file.size:
        data, bad = _read(listing, file.name, at, length)
        # No batch reaches into what the disk can't read: as if the file ended there.
        window = Window(data, at, file.size if bad is None else at + len(data))
        found, more = log.CODEC.resync(window, 0, context)
        if found >= 0 and not more:
            return at + found
        if found >= 0 and bad is None:
            if found == 0 and more <= len(window.data):
                at += 1
            at, length = at + found, max(_WINDOW, more)
            continue
        if bad is not None:
            at = bad.stop
            continue
        if window.final:
            return file.size
        at += max(1, len(window.data) - more)
        length = _WINDOW
    return file.size


def transactions(listing: Listing, segments: Sequence[PlannedFile]) -> tuple[list[AbortedTxn], int | None]:
    """The aborted transactions of a partition, and its last stable offset (None: its end), from the logs themselves."""
    state, aborted = ProducerState(), []
    for file in segments:
        for window, frames in walk(listing, file):
            sound = frames.pick(_sound(window, frames))
            aborted += state.add(sound.header, markers(window, sound))
    return aborted, state.first_unstable


def _sound(window: Window, frames: Frames) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which batches say what was written: those of a producer by their checksums. A flipped bit opens no transaction, and ends none.

    The others count for nothing here, so theirs are left to whoever reads their records.
    """
    sound = frames.header["producer_id"] < 0
    asked = np.flatnonzero(~sound)
    start, end = frames.start[asked], frames.end[asked]
    done = 0
    while done < len(asked):
        bad = done + first_bad(window.data, start[done:], end[done:])
        sound[asked[done:bad]] = True
        done = bad + 1
    return sound
