"""Check one file: walk over its frames, decode their rows, and find the flipped bits that can be corrected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from logwright.codec.base import Codec
from logwright.codec.engine.correct import Corrector
from logwright.codec.fault import (
    AccessError,
    Fault,
    Kind,
    LogwrightError,
    NotFoundError,
    Severity,
    StorageError,
    UnsupportedError,
    UsageError,
    did_you_mean,
)
from logwright.codec.frames.walk import Hole, Stretch, Walk
from logwright.readers.prefetch import Prefetcher
from logwright.readers.readahead import walk_ahead
from logwright.readers.report_data import FileReport
from logwright.readers.source import Source
from logwright.readers.stream import named
from logwright.readers.task import codec_options


class Depth(StrEnum):
    """Level of checking. Each level includes those before it."""

    STRUCTURE = "structure"  # lengths, versions, order: what headers say
    CHECKSUMS = "checksums"
    RECORDS = "records"  # decompress and decode everything

    @classmethod
    def of(cls, name: str) -> Depth:
        try:
            return cls(str(name).lower())
        except ValueError:
            hint = did_you_mean(str(name).lower(), cls, cutoff=0.4)
            raise UsageError(f"unknown depth {name!r}", advice=hint) from None


UNREAD_ERRORS = (UnsupportedError, AccessError, NotFoundError, StorageError)
"""Errors that prevent reading one file. They are reported, and the other files are checked."""


def unread(error: LogwrightError, codec: str, offset: int, length: int) -> Fault:
    """Return the fault for a file, or a part, that cannot be read. An unknown format is not damage."""
    if isinstance(error, UnsupportedError):
        text = f"not checked from here on: {error.message}"
        return Fault(codec, offset, length, Kind.UNSUPPORTED, text, Severity.WARNING)
    return Fault(codec, offset, length, Kind.LINK, f"cannot be read: {error.message}")


def walk_file(
    source: Source,
    codec: Codec,
    options: Mapping[str, Any],
    hints: Mapping[str, Any],
    entry: FileReport,
    depth: Depth,
    prefetcher: Prefetcher,
    *,
    correct: bool = True,
) -> Iterator[Stretch]:
    """Iterate over the good frames of a file; add its faults to `entry`, and with `correct` its flipped bits."""
    name = source.path.rstrip("/").rpartition("/")[2]
    context = codec.context(name, codec_options(codec, options), **hints)
    columns = codec.checked_columns(context)
    entry.bytes += source.size
    walk = Walk(source, codec, context, check=depth is not Depth.STRUCTURE)
    corrector = Corrector(source, codec, context) if correct and walk.check else None
    with named(source):
        for step in walk_ahead(walk, prefetcher):
            if isinstance(step, Hole):
                entry.add(step.fault, damaged=True)
                if corrector is not None:
                    corrections, complete = corrector.correct(step)
                    entry.corrections += corrections
                    entry.healed |= {step.fault.offset} if complete else set()
            else:
                refused = _frames(step, codec, columns, context, entry, depth)
                for fault, correction in corrector.frames(step, refused) if corrector is not None else ():
                    entry.corrections.append(correction)
                    entry.healed |= {fault.offset}
                    if fault not in refused:
                        entry.add(fault, damaged=True)
                yield step
        if corrector is not None:
            entry.correct(corrector.of_file())


def _frames(
    stretch: Stretch, codec: Codec, columns: Sequence[str], context: Any, entry: FileReport, depth: Depth
) -> list[Fault]:
    """Add the frames and their faults to `entry`. Return the faults found by decoding."""
    entry.frames += len(stretch.frames)
    for fault in stretch.faults:
        entry.add(fault)
    faults: list[Fault] = []
    if depth is Depth.RECORDS and len(stretch.frames):
        for decoded in codec.decode(stretch.window, stretch.frames, "rows", columns, context):
            entry.rows += decoded.batch.num_rows
            faults += [fault for _, fault in decoded.faults]
        for fault in faults:
            entry.add(fault, damaged=True)
    return faults
