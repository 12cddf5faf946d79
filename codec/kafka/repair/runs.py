"""Runs of sound batches, which a repair moves about: their place in a file, and their headers.

A file is read once, by the survey. Everything that follows works on the headers, at 72 bytes a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.arrays import Int64s
from logwright.codec.engine.repair import Removed
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.formats.log.heads import heads_at
from logwright.codec.kafka.formats.log.layout import CONTROL, HEAD_SIZE
from logwright.codec.kafka.formats.log.markers import markers, markers_between
from logwright.codec.kafka.formats.log.messages import open_wrappers
from logwright.codec.kafka.store.evidence import partition_of
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Listing, PlannedFile
from logwright.codec.window import Frames, Window

Heads = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Sound batches, one after the other in a file, with ascending offsets.

    Its bytes are `patch`, then `[start, stop)` of the file. A run with a patch is one batch, whose header or all of whose bytes
    are replaced by it.
    """

    copy: int
    """The index of the replica that has the file."""
    file: str
    base: int
    """The base offset in the file's name."""
    start: int
    stop: int
    heads: Heads
    """The headers of the batches as they will be written, as `HEADS`."""
    markers: npt.NDArray[Any]
    """The markers in them, as `MARKER`."""
    patch: bytes = b""
    origin: int | None = None
    """Where a batch with a patch starts in the file."""
    partial: bool = False
    """The batch had more records, which cannot be read."""

    @classmethod
    def of(cls, copy: int, file: PlannedFile, window: Window, frames: Frames) -> Run:
        """Return the run of consecutive batches in a window."""
        start, stop = window.offset + int(frames.start[0]), window.offset + int(frames.end[-1])
        heads = frames.header.copy()  # not a view: it would keep all of the window's headers in memory
        return cls(
            copy, file.name, file.hints.get("base_offset", 0), start, stop, heads, markers(window, frames)
        )

    @classmethod
    def patched(
        cls, copy: int, file: PlannedFile, begin: int, start: int, patch: bytes, rest: bytes = b"", *, partial: bool = False
    ) -> Run:  # fmt: skip
        """Return the run of the batch at byte `begin` that becomes `patch` and `rest`, the bytes of the file from `start` on."""
        window, frames = one_batch(patch + rest)
        marks = markers(window, frames)
        return cls(
            copy, file.name, file.hints.get("base_offset", 0), start, start + len(rest), frames.header, marks, patch, begin, partial
        )  # fmt: skip

    @property
    def first(self) -> int:
        """The first offset."""
        return int(self.heads["base_offset"][0])

    @property
    def last(self) -> int:
        """The last offset."""
        return int(self.heads["last_offset"][-1])

    @property
    def begin(self) -> int:
        """The byte of the file where its first batch starts."""
        return self.start if self.origin is None else self.origin

    @property
    def edges(self) -> Int64s:
        """The byte of the run where each batch starts, and where the last one ends."""
        return np.concatenate(
            [np.zeros(1, np.int64), np.cumsum(self.heads["size"].astype(np.uint32), dtype=np.int64)]
        )

    def extents(self) -> Iterator[Extent]:
        """Return the bytes of the run."""
        if self.patch:
            yield self.patch
        if self.stop > self.start:
            yield Copy(self.file, self.start, self.stop, self.copy)

    def parts(self, *cuts: int) -> list[Run]:
        """Return the run cut before these batches, in order."""
        bounds = [low for low in (0, *cuts) if low < len(self.heads)]
        if len(bounds) == 1:
            return [self]
        edges = self.start + self.edges
        return [
            replace(
                self,
                start=int(edges[low]),
                stop=int(edges[high]),
                heads=self.heads[low:high],
                markers=markers_between(self.markers, low, high),
            )
            for low, high in pairwise([*bounds, len(self.heads)])
        ]

    def within(self, low: int, high: int) -> list[Run]:
        """Return the batches whose offsets are all in `[low, high]`, as one run or none."""
        base, last = offsets(self.heads)
        inside = np.flatnonzero((base >= low) & (last <= high))
        if not len(inside) or self.patch:
            return []
        low, high = int(inside[0]), int(inside[-1]) + 1
        parts = self.parts(*[cut for cut in (low, high) if cut])
        return [parts[1] if low else parts[0]]

    def split(self, points: Sequence[int] | Int64s) -> list[Run]:
        """Return the run cut before the first batch at or above each of these offsets, which ascend."""
        base, _ = offsets(self.heads)
        return self.parts(*(np.flatnonzero(np.diff(np.searchsorted(points, base, "right"))) + 1).tolist())


def join(runs: Iterable[Run]) -> list[Run]:
    """Join the runs that follow one another, in their file and by their offsets."""
    groups: list[list[Run]] = []
    for run in runs:
        before = groups[-1][-1] if groups else None
        follows = before is not None and before.stop == run.start and before.last < run.first
        if before is not None and follows and not (before.patch or run.patch):
            groups[-1].append(run)
        else:
            groups.append([run])
    return [group[0] if len(group) == 1 else _joined(group) for group in groups]


def _joined(group: Sequence[Run]) -> Run:
    counts = np.cumsum([0, *(len(run.heads) for run in group)])
    marks = np.concatenate([run.markers for run in group])
    marks["frame"] += np.repeat(counts[:-1], [len(run.markers) for run in group])
    heads = np.concatenate([run.heads for run in group])
    return replace(group[0], stop=group[-1].stop, heads=heads, markers=marks)


def append_extents(extents: list[Extent], more: Iterable[Extent]) -> None:
    """Append extents to a list, joined if they are adjacent in one file."""
    for extent in more:
        last = extents[-1] if extents else None
        if (
            isinstance(extent, Copy)
            and isinstance(last, Copy)
            and (last.file, last.copy, last.stop) == (extent.file, extent.copy, extent.start)
        ):
            extents[-1] = replace(last, stop=extent.stop)
            continue
        extents.append(extent)


def one_batch(data: bytes) -> tuple[Window, Frames]:
    """Return the bytes of one batch as a window and its frame."""
    window, start = Window(np.frombuffer(data, np.uint8), 0, len(data)), np.zeros(1, np.int64)
    frames = Frames(start, np.array([len(data)], np.int64), heads_at(window.data, start), len(data))
    open_wrappers(window, frames, log.CODEC.context("", Options(log.CODEC.options)))
    return window, frames


def offsets(heads: Heads) -> tuple[Int64s, Int64s]:
    """Return the first and the last offset of each batch."""
    return heads["base_offset"], heads["last_offset"]


def lost(listing: Listing, heads: Heads) -> tuple[int, Mapping[str, Any]]:
    """Return `Removed.rows_lost` and `Removed.lost` of batches that are removed and whose headers are right."""
    if not len(heads):
        return 0, {}
    base, last = offsets(heads)
    data = heads["attributes"] & CONTROL == 0
    rows = int(np.maximum(heads["records_count"].astype(np.int64), 0)[data].sum())
    out: dict[str, Any] = dict(partition_of(listing))
    out |= {"first_offset": int(base.min()), "last_offset": int(last.max())}
    times = np.concatenate([heads["base_timestamp"], heads["max_timestamp"]])
    times = times[times >= 0]
    if len(times):
        out |= {"first_timestamp": int(times.min()), "last_timestamp": int(times.max())}
    return rows, out


def removed_run(run: Run, why: str, rows_lost: int | None, where: Mapping[str, Any]) -> Removed:
    """Return all of a run as removed."""
    length = max(run.stop - run.begin, HEAD_SIZE)
    return Removed(run.file, run.begin, length, why, run.copy, rows_lost, where)
