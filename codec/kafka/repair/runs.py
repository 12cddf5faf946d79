"""What mending moves about: runs of sound batches, by the bytes of a file they lie in and the offsets they take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.engine.repair import Removed
from logwright.codec.fault import LogwrightError, join_lost
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.formats.log.layout import CONTROL, HEAD_SIZE
from logwright.codec.kafka.names import parse_directory
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Listing
from logwright.codec.window import Frames, Window

_WINDOW = 4 << 20

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Run:
    """Sound batches one after the other: bytes `[start, stop)` of a file of one of the copies, their offsets ascending.

    `patch` are bytes that come before these: the header of a batch, or all of it, where something in it was set right. Then
    the run is one batch. `origin` is where its first batch starts in the file. `partial`: the batch had more records, which can't be read.
    """

    copy: int
    file: str
    base: int
    """The number in the file's name."""
    start: int
    stop: int
    first: int
    last: int
    patch: bytes = b""
    origin: int = field(default=-1)
    partial: bool = False

    @property
    def begin(self) -> int:
        """Where its first batch starts in the file, as it was found."""
        return self.start if self.origin < 0 else self.origin

    def pieces(self, start: int, stop: int) -> Iterator[Extent]:
        """Bytes `[start, stop)` of the run itself."""
        done = len(self.patch)
        if start < done:
            yield self.patch[start : min(stop, done)]
        if stop > done:
            yield Copy(self.file, self.start + max(start, done) - done, self.start + stop - done, self.copy)


@dataclass(frozen=True, slots=True)
class Batches:
    """Some batches of a run: their window, and where they start in the run."""

    window: Window
    frames: Frames
    at: Numbers


class Copies:
    """The directories given, to read runs from."""

    def __init__(self, listings: Sequence[Listing]) -> None:
        self.listings = listings
        self._options = Options(log.CODEC.options)

    def batches(self, run: Run) -> Iterator[Batches]:
        """The batches of a run, window by window."""
        listing = self.listings[run.copy]
        if run.patch:
            rest = listing.read(run.file, run.start, run.stop - run.start) if run.stop > run.start else b""
            data = run.patch + rest
            window = Window(np.frombuffer(data, np.uint8), 0, len(data))
            frames = self._scan(window, run)
            yield Batches(window, frames, frames.start)
            return
        at, length = run.start, _WINDOW
        while at < run.stop:
            data = listing.read(run.file, at, min(length, run.stop - at))
            window = Window(np.frombuffer(data, np.uint8), at, run.stop)
            frames = self._scan(window, run)
            if len(frames):
                yield Batches(window, frames, frames.start + (at - run.start))
            elif frames.need <= length:
                raise LogwrightError(
                    "the file was changed while it was read", path=run.file, offset=at, advice="Try again"
                )
            at += frames.stop
            length = max(_WINDOW, frames.need)

    def _scan(self, window: Window, run: Run) -> Frames:
        context = log.CODEC.context("", self._options, base_offset=None)
        return log.CODEC.scan(window, 0, context, check=False)

    def cut(self, run: Run, low: int, high: int) -> list[Run]:
        """The batches of a run whose offsets are all within `[low, high]`, as runs."""
        if run.last < low or run.first > high or run.patch:
            return []
        start = stop = -1
        first = last = 0
        for some in self.batches(run):
            base, top = offsets(some.frames.header)
            inside = np.flatnonzero((base >= low) & (top <= high))
            if not len(inside):
                continue
            if start < 0:
                start, first = int(some.at[inside[0]]), int(base[inside[0]])
            begin = int(inside[-1])
            stop = int(some.at[begin]) + int(some.frames.end[begin] - some.frames.start[begin])
            last = int(top[begin])
        if start < 0:
            return []
        return [Run(run.copy, run.file, run.base, run.start + start, run.start + stop, first, last)]

    def split(self, run: Run, points: Sequence[int]) -> list[Run]:
        """A run in parts, a new one where the first batch starts at or behind each of some offsets, which ascend."""
        inside = [point for point in points if run.first < point <= run.last]
        if not inside or run.patch:
            return [run]
        out: list[Run] = []
        marks, part = np.array(inside, np.int64), -1
        for some in self.batches(run):
            base, last = offsets(some.frames.header)
            parts = np.searchsorted(marks, base, "right")
            edges = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(parts)]
            for low, high in pairwise(edges):
                start = run.start + int(some.at[low])
                stop = run.start + int(
                    some.at[high - 1] + some.frames.end[high - 1] - some.frames.start[high - 1]
                )
                if parts[low] == part:
                    out[-1] = replace(out[-1], stop=stop, last=int(last[high - 1]))
                else:
                    out.append(
                        replace(run, start=start, stop=stop, first=int(base[low]), last=int(last[high - 1]))
                    )
                part = int(parts[low])
        return out

    def lost(self, run: Run) -> tuple[int, dict[str, Any]]:
        """What is gone with a run: see `lost`."""
        rows, out = 0, dict[str, Any]()
        for some in self.batches(run):
            more, what = lost(self.listings[run.copy], some.frames.header)
            rows += more
            out = join_lost(out, what)
        return rows, out

    def single(self, run: Run) -> Iterator[tuple[Run, npt.NDArray[Any]]]:
        """Each batch of a run as a run of its own, and its header."""
        for some in self.batches(run):
            base, top = offsets(some.frames.header)
            for i in range(len(some.frames)):
                head = some.frames.header[i]
                if run.patch:
                    yield run, head
                    continue
                start = run.start + int(some.at[i])
                stop = start + int(some.frames.end[i] - some.frames.start[i])
                yield Run(run.copy, run.file, run.base, start, stop, int(base[i]), int(top[i])), head


def offsets(header: npt.NDArray[Any]) -> tuple[Numbers, Numbers]:
    """The first and the last offset of each batch."""
    return header["base_offset"].astype(np.int64), header["last_offset"].astype(np.int64)


def lost(listing: Listing, header: npt.NDArray[Any]) -> tuple[int, Mapping[str, Any]]:
    """For `Removed.rows_lost` and `Removed.lost`: records that are gone with batches whose headers are right, in Kafka's words."""
    if not len(header):
        return 0, {}
    base, last = offsets(header)
    data = header["attributes"] & CONTROL == 0
    rows = int(np.maximum(header["records_count"].astype(np.int64), 0)[data].sum())
    out: dict[str, Any] = dict(place(listing))
    out |= {"first_offset": int(base.min()), "last_offset": int(last.max())}
    times = np.concatenate([header["base_timestamp"], header["max_timestamp"]]).astype(np.int64)
    times = times[times >= 0]
    if len(times):
        out |= {"first_timestamp": int(times.min()), "last_timestamp": int(times.max())}
    return rows, out


def place(listing: Listing) -> Mapping[str, Any]:
    """Topic and partition, where the directory's name says them."""
    found = parse_directory(listing.name)
    return {} if found is None else {"topic": found.topic, "partition": found.partition}


def removed_run(run: Run, why: str, rows_lost: int | None, what: Mapping[str, Any]) -> Removed:
    """All of a run, not kept."""
    length = max(run.stop - run.begin, HEAD_SIZE)
    return Removed(run.file, run.begin, length, why, run.copy, rows_lost, what)
