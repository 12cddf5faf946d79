"""Walking over the batches of a partition's segments: for what only the headers tell, transactions above all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from logwright.codec.fault import Fault, Severity, UnreadableError, UsageError
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.formats.log.markers import markers
from logwright.codec.kafka.state.producers import AbortedTxn, ProducerState
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, PlannedFile, Role
from logwright.codec.window import Frames, Window

_WINDOW = 1 << 20


def walk(
    listing: Listing, file: PlannedFile, *, check: bool = False, faults: list[Fault] | None = None
) -> Iterator[tuple[Window, Frames]]:
    """The batches of a segment, window by window; past damage the next one that is good. With `check` damage is an error. What is
    wrong goes to `faults`."""
    for window, frames in _walk(listing, file, check=check):
        if faults is not None:
            faults += frames.faults if frames.damage is None else [*frames.faults, frames.damage]
        if check:
            _refuse(file, frames)
        if len(frames):
            yield window, frames


def salvage(
    listing: Listing, name: str, base_offset: int, next_base: int | None = None
) -> Iterator[tuple[Window, Frames]]:
    """The good batches of a log, by their checksums, past damage: `Frames.damage` says what follows them."""
    size = next(entry.size for entry in listing.entries() if entry.name == name)
    file = PlannedFile(name, size, Role.PRIMARY, hints={"base_offset": base_offset, "next_base": next_base})
    return _walk(listing, file, check=True)


def _walk(listing: Listing, file: PlannedFile, *, check: bool) -> Iterator[tuple[Window, Frames]]:
    context = log.CODEC.context(file.name, Options(log.CODEC.options), **file.hints)
    at, length = 0, _WINDOW
    while at < file.size:
        window, bad = _read(listing, file, at, length)
        frames = log.CODEC.scan(window, 0, context, check=check)
        damage, after = frames.damage, at + frames.stop + 1
        if bad is not None and (damage is None or damage.offset + damage.length >= window.size):
            frames = replace(frames, need=0, damage=bad.fault(log.CODEC.name, at + frames.stop))
            after = bad.stop
        yield window, frames
        if frames.damage is not None:
            at, length = _beyond(listing, file, after, context), _WINDOW
        elif frames.need:
            at, length = at + frames.stop, max(_WINDOW, frames.need)
        else:
            return


def _read(listing: Listing, file: PlannedFile, at: int, length: int) -> tuple[Window, UnreadableError | None]:
    """Bytes of a file, up to those that the disk can't read. No batch reaches into these: as if the file ended there."""
    bad = None
    try:
        data = listing.read(file.name, at, length)
    except UnreadableError as error:
        bad = error
        data = listing.read(file.name, at, max(0, bad.start - at))
    # It may also have become shorter.
    whole = bad is None and len(data) == min(length, file.size - at)
    return Window(np.frombuffer(data, np.uint8), at, file.size if whole else at + len(data)), bad


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
        window, bad = _read(listing, file, at, length)
        found, more = log.CODEC.resync(window, 0, context)
        if found >= 0 and not more:
            return at + found
        length = _WINDOW
        if bad is not None:
            at = bad.stop
        elif found >= 0:
            # What has the bytes that it wants, and wants them still, never gets enough.
            at, length = at + (found or int(more <= len(window.data))), max(_WINDOW, more)
        elif window.final:
            return file.size
        else:
            at += max(1, len(window.data) - more)
    return file.size


def transactions(
    listing: Listing, segments: Sequence[PlannedFile], broken: set[str] | None = None
) -> tuple[list[AbortedTxn], int | None]:
    """The aborted transactions of a partition, and its last stable offset (None: its end), from the logs themselves.

    Only batches whose checksum is right count: a flipped bit opens no transaction, ends none, and hides none of its neighbours.
    Logs with damage go to `broken`, by name: what ended a transaction may be lost there.
    """
    state, aborted = ProducerState(), []
    for file in segments:
        for window, frames in _walk(listing, file, check=True):
            if broken is not None and frames.damage is not None and frames.damage.severity is Severity.ERROR:
                broken.add(file.name)
            aborted += state.add(frames.header, markers(window, frames))
    return aborted, state.first_unstable
