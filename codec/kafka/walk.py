"""Walking over the batches of a partition's segments: for what only the headers tell, transactions above all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from logwright.codec.base import Frames, Listing, PlannedFile, Window
from logwright.codec.fault import Severity, UsageError
from logwright.codec.kafka import log
from logwright.codec.kafka.markers import markers
from logwright.codec.kafka.producers import AbortedTxn, ProducerState
from logwright.codec.kafka.scan import first_bad
from logwright.codec.option import Options

_WINDOW = 1 << 20


def walk(listing: Listing, file: PlannedFile, *, check: bool = False) -> Iterator[tuple[Window, Frames]]:
    """The batches of a segment, window by window; past damage the next one that is good. With `check` damage is an error."""
    context = log.CODEC.context(file.name, Options(log.CODEC.options), **file.hints)
    at, length = 0, _WINDOW
    while at < file.size:
        data = np.frombuffer(listing.read(file.name, at, length), np.uint8)
        window = Window(data, at, file.size)
        frames = log.CODEC.scan(window, 0, context, check=check)
        if check:
            _refuse(file, frames)
        if len(frames):
            yield window, frames
        if frames.damage is not None:
            at = _beyond(listing, file, at + frames.stop + 1, context)
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
        window = Window(np.frombuffer(listing.read(file.name, at, length), np.uint8), at, file.size)
        found, more = log.CODEC.resync(window, 0, context)
        if found >= 0 and not more:
            return at + found
        if found >= 0:
            if found == 0 and more <= len(window.data):
                at += 1
            at, length = at + found, max(_WINDOW, more)
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
