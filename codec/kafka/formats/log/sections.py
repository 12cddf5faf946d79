"""The record sections of batches, and the sets of messages of older entries, as uncompressed bytes in portions of bounded size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from logwright.codec.arrays import Bytes, Int64s
from logwright.codec.kafka.formats.log.consumer import consume
from logwright.codec.kafka.formats.log.layout import COMPRESSION, COMPRESSION_NAMES, HEAD_SIZE, MAGIC
from logwright.codec.kafka.formats.log.messages import Sets, message_sets
from logwright.codec.kernels.compress import CompressionError, Output, append, decompress
from logwright.codec.kernels.compress.bulk import NUMBERS, OTHER, fill_output
from logwright.codec.window import Frames, Window, portions_of

PORTION = 32 << 20
"""Bytes of records in a portion, unless a single batch is larger."""


@dataclass(slots=True)
class Sections:
    """The records of the batches `frames` (a slice of the window's): `buf[start[i] : end[i]]`. With `sets` they are sets of messages."""

    frames: slice
    buf: Bytes
    start: Int64s
    end: Int64s
    faults: dict[int, str] = field(default_factory=dict)
    """The errors of sections that could not be decompressed, by batch. Such a section is empty."""
    sets: Sets | None = None


def sections(window: Window, frames: Frames, limit: int, *, partial: bool = False) -> Iterator[Sections]:
    """Iterate over portions of the batches, in order. `limit` bounds the decompressed records of a batch. With `partial`, a batch that
    cannot be decompressed has the records that a consumer gets before the error. A portion has only batches, or only older messages."""
    old = frames.header["magic"] < MAGIC
    if old.any():
        edges = np.flatnonzero(np.diff(old, prepend=~old[0], append=~old[-1])).tolist()
        for at, stop in itertools.pairwise(edges):
            part = frames.pick(slice(at, stop))
            portions = (
                _message_sets(window, part, limit) if old[at] else _sections(window, part, limit, partial)
            )
            for portion in portions:
                portion.frames = slice(portion.frames.start + at, portion.frames.stop + at)
                yield portion
        return
    yield from _sections(window, frames, limit, partial)


def _message_sets(window: Window, frames: Frames, limit: int) -> Iterator[Sections]:
    if not (frames.header["attributes"] & COMPRESSION).any():
        for at, stop in portions_of(frames.end - frames.start, PORTION):
            sets = Sets.plain(window, frames.pick(slice(at, stop)))
            yield Sections(
                slice(at, stop), window.data, frames.start[at:stop], frames.end[at:stop], sets=sets
            )
        return
    at = 0
    while at < len(frames):
        left = frames.pick(slice(at, None))
        held = left.held.held(left) if isinstance(left.held, Sets) else None
        sets = message_sets(window, left, limit) if held is None else held
        stop = at + len(sets.count)
        yield Sections(slice(at, stop), sets.buf, sets.edges[:-1], sets.edges[1:], sets.faults, sets)
        at = stop


def _sections(window: Window, frames: Frames, limit: int, partial: bool) -> Iterator[Sections]:
    count = len(frames)
    codecs = frames.header["attributes"].astype(np.int64) & COMPRESSION
    start = frames.start + HEAD_SIZE
    if not codecs.any():
        for at, stop in portions_of(frames.end - start, PORTION):
            yield Sections(slice(at, stop), window.data, start[at:stop], frames.end[at:stop])
        return
    data, numbers = window.data.data, codecs.tolist()
    starts, ends = start.tolist(), frames.end.tolist()
    in_bulk = _IN_BULK[codecs]
    at = 0
    while at < count:
        out = Output(np.empty(min(PORTION, _GUESS * (ends[-1] - starts[at]) + _SPARE), np.uint8))
        edges = np.zeros(count + 1, np.int64)
        faults: dict[int, str] = {}
        i = at
        while i < count and (i == at or out.end < PORTION):
            if in_bulk[i] != OTHER:
                i = fill_output(window.data, start, frames.end, in_bulk, i, limit, out, PORTION, edges)
                if i == count or (i > at and out.end >= PORTION):
                    break
            stored = data[starts[i] : ends[i]]
            try:
                append(_name(numbers[i]), stored, out, limit if numbers[i] else len(stored))
            except CompressionError as error:
                faults[i - at] = str(error)
                if partial:
                    consumed = consume(
                        numbers[i],
                        window.data[starts[i] : ends[i]],
                        int(frames.header["records_count"][i]),
                        limit,
                    )
                    out.put(consumed.data)
                    if consumed.error is None:
                        del faults[i - at]
            i += 1
            edges[i] = out.end
        yield Sections(slice(at, i), out.array, edges[at:i], edges[at + 1 : i + 1], faults)
        at = i


_IN_BULK = np.array([NUMBERS.get(name, OTHER) for name in COMPRESSION_NAMES] + [OTHER] * 3, np.int64)
"""By the number of the compression: the decompressor in `bulk`."""
_GUESS, _SPARE = 4, 128 << 10
"""Decompressed bytes per stored byte for which there is room at first, and those for a block of unknown size."""


def expand(codec: int, stored: Bytes, limit: int) -> Any:
    """Return a decompressed section. Raises `CompressionError`."""
    return decompress(_name(codec), stored, limit=limit)


def _name(codec: int) -> str:
    if codec >= len(COMPRESSION_NAMES):
        raise CompressionError(
            f"compression {codec} is unknown: the checksum is right, so a newer version of Kafka wrote it"
        )
    return COMPRESSION_NAMES[codec]
