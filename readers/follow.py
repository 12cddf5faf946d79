"""Follow directories while their systems write: find where they end, and what to read between two positions.

Only positions are remembered (`codec.capability.Follow`), so a reader that stores them continues after a restart, and two positions always
stand for the same rows. The caches here (the byte at which a frame starts) only save time.

A frame counts once it is complete. Bytes after the last complete frame of the last file may belong to a frame that is being written; they
are read again next time.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from logwright.codec import registry
from logwright.codec.capability import Follow, Settled
from logwright.codec.deferred import deferred
from logwright.codec.fault import LogwrightError, UsageError
from logwright.codec.frames.walk import Stretch, Walk
from logwright.codec.layout import Layout
from logwright.codec.option import Option, Options
from logwright.codec.store.view import FILE_POSITION, Group, Part
from logwright.codec.table import Table
from logwright.readers.plan import task_of
from logwright.readers.prefetch import INLINE, Prefetcher
from logwright.readers.replicas import copies_of
from logwright.readers.report import Report
from logwright.readers.source import is_remote, local_path
from logwright.readers.stream import ALL_ROWS, Mode, ReadOptions
from logwright.readers.target import DirectoryTarget
from logwright.readers.task import Task, table_of

if TYPE_CHECKING:
    from logwright.codec.engine.fold import Fold
    from logwright.readers import filter as filters
else:
    filters = deferred("logwright.readers", "filter")

_log = logging.getLogger("logwright")
_STEP = 512 << 10
Positions = Mapping[str, int]
"""Positions in the system's own numbers, by the name of the directory."""
_POSITION = "position"
"""The column with the place of a row in its file."""


@dataclass(frozen=True)
class Ranged:
    """A range of a file, restricted to the rows of `[low, high)` of a position column. See `readers.task.Work`."""

    task: Task
    table: Table
    column: str
    low: int
    high: int

    @property
    def path(self) -> str:
        return self.task.path

    @property
    def length(self) -> int | None:
        return self.task.length

    @property
    def files(self) -> Sequence[Task]:
        return (self.task,)

    def rows(
        self,
        columns: Sequence[str],
        report: Report,
        options: ReadOptions = ALL_ROWS,
        prefetcher: Prefetcher = INLINE,
    ) -> Iterator[pa.RecordBatch]:
        column, base = self.column, 0
        if column == FILE_POSITION:
            column, base = _POSITION, self.task.bounds[FILE_POSITION][0]
        own = filters.Filter([(column, ">=", self.low - base), (column, "<", self.high - base)], self.table)
        both = own if options.filter is None else options.filter.also(own)
        task = self.task
        if task.real != task.path and not is_remote(task.real) and not os.path.exists(task.real):
            task = replace(task, real=task.path)  # a writer has committed it meanwhile
        return task.rows(columns, report, replace(options, filter=both), prefetcher)

    def split(self, max_bytes: int, mode: Mode = Mode.FAILFAST) -> Sequence[Ranged]:
        return [replace(self, task=part) for part in self.task.split(max_bytes, mode)]

    def with_files(self, change: Callable[[Task], Task]) -> Ranged:
        return replace(self, task=change(self.task))


@dataclass
class _Place:
    """Place of a position in a file: `start` is the byte of the frame that holds it, or would be next; `stop` is the end of the last frame
    before it."""

    start: int
    stop: int


@dataclass
class _Reached:
    """How far a file has been scanned: all frames before byte `at`; `position` is the one after their last."""

    file: str
    inode: int
    at: int
    position: int


class Followed:
    """A followed directory, with what earlier scans found."""

    def __init__(self, layout: Layout, view: str, column: str) -> None:
        self.layout, self.view, self.column = layout, view, column
        self._table = table_of(layout.views[view], {})
        self._reached: _Reached | None = None
        self._places: dict[tuple[str, int], dict[int, _Place]] = {}
        self._fold: Fold[Settled] | None = None
        self._folded: _Reached | None = None

    # Positions

    def _parts(self, target: DirectoryTarget, view: str | None = None) -> list[Part]:
        parts = self.layout.parts(target.directory, target.plan, view or self.view, target.layout_options)
        assert not any(isinstance(part, Group) for part in parts)
        return [part for part in parts if isinstance(part, Part)]

    @property
    def _read_view(self) -> str:
        """Name of the view whose parts are read."""
        return self._follow.read_view(self.view)

    @property
    def _follow(self) -> Follow:
        assert self.layout.capabilities.follow is not None
        return self.layout.capabilities.follow

    def bounds(self, part: Part) -> tuple[int, int | None]:
        """Return the first and last position that a part can have; None if the last is unknown."""
        return part.bounds[self.column]

    def begins(self, target: DirectoryTarget) -> int:
        return self._follow.begins(target.plan, self.view)

    def ends(self, target: DirectoryTarget, *, stream: bool = True) -> int:
        """Return the position after the last row. A `stream` waits for a row that may still be being written."""
        begin = self.begins(target)
        parts = self._parts(target, self._read_view)
        if not parts:
            return begin
        if len(parts) > 1 and self._follow.in_advance(target.directory, parts[-1]):
            parts.pop()
        last = parts[-1]
        task = task_of(target, last)
        inode = _inode(task)
        known = self._reached
        if known is None or (known.file, known.inode) != (task.file, inode) or (task.size or 0) < known.at:
            known = _Reached(task.file, inode, 0, self.bounds(last)[0])
        if (task.size or 0) > known.at:
            newest: tuple[Stretch, int, int] | None = None
            for step, (low, high), starts, behind in self._walk(task, known.at):
                known.at, known.position = behind, max(known.position, int(high[-1]) + 1)
                newest = step, int(starts[-1]), int(low[-1])
            if stream and newest is not None and self._follow.unfinished(newest[0].frames):
                _, known.at, known.position = newest
        self._reached = known
        self._keep(task, known.position, _Place(known.at, known.at))
        return max(begin, known.position)

    def _walk(self, task: Task, start: int) -> Iterator[tuple[Stretch, tuple[Any, Any], Any, int]]:
        """Iterate over the good frames from a byte on: (stretch, (first positions, last positions), starts, end of the last frame)."""
        codec = registry.get(task.codec)
        base = task.bounds[FILE_POSITION][0] if self.column == FILE_POSITION else None
        with task.open() as source:
            walk = Walk(source, codec, task.context(codec), start=start, step=_STEP)
            for step in walk:
                if isinstance(step, Stretch) and len(step.frames):
                    starts = step.frames.start + step.window.offset
                    if base is None:
                        assert codec.ordered is not None
                        low, high = codec.frame_bounds(step.frames, codec.ordered)
                    else:
                        low = high = starts + base
                    yield step, (low, high), starts, step.window.offset + int(step.frames.end[-1])

    def _keep(self, task: Task, position: int, place: _Place) -> None:
        known = self._places.setdefault((task.file, _inode(task)), {})
        if len(known) > 100:
            known.clear()
        known[position] = place

    def _place(self, task: Task, position: int) -> _Place:
        """Return the place of a position in a file, scanning headers from the nearest known place."""
        known = self._places.get((task.file, _inode(task)), {})
        nearest = max(
            (
                known_position
                for known_position in known
                if known_position <= position and known[known_position].stop <= (task.size or 0)
            ),
            default=None,
        )
        if nearest == position:
            return known[position]
        begin = 0 if nearest is None else known[nearest].start
        place = _Place(begin, begin)
        for step, (low, high), starts, _ in self._walk(task, begin):
            before = int(np.searchsorted(low, position, "left"))
            if before:
                end = int(step.frames.end[before - 1]) + step.window.offset
                place = _Place(int(starts[before - 1]) if int(high[before - 1]) >= position else end, end)
            if before < len(low):
                break
        self._keep(task, position, place)
        return place

    # Ranges to read

    def settled(self, target: DirectoryTarget, start: int, end: int) -> int:
        """Return the position up to which rows may be returned: `end`, or less if the view must wait for later data."""
        settled = self._settled(target, start)
        if settled is None:
            return end
        stop = settled.stop
        return end if stop is None else max(start, min(stop, end))

    def _settled(self, target: DirectoryTarget, start: int) -> Settled | None:
        """Fold the frames after a position that are new since the last call."""
        if self._fold is None:
            self._fold, self._folded = self._follow.fold(self.view), None
        if self._fold is None:
            return None
        parts = self._parts(target, self._read_view)
        tasks, lows = [task_of(target, part) for part in parts], [self.bounds(part)[0] for part in parts]
        seen = self._folded or _Reached("", -1, 0, start)
        first = max((at for at, low in enumerate(lows) if low <= seen.position), default=0)
        for part, task in zip(parts[first:], tasks[first:], strict=True):
            here = (task.file, _inode(task))
            if here != (seen.file, seen.inode):
                self._fold.begin(target.plan[part.file])
            begin = seen.at if here == (seen.file, seen.inode) and seen.at <= (task.size or 0) else 0
            reached = _Reached(*here, begin, seen.position)
            if (task.size or 0) > begin:
                for step, (_, high), _, behind in self._walk(task, begin):
                    fresh = high >= reached.position
                    if fresh.any():
                        self._fold.add(step.window, step.frames.pick(fresh))
                    reached.at, reached.position = behind, max(reached.position, int(high[-1]) + 1)
            seen = reached
        self._folded = seen
        return self._fold.finish()

    def _within(
        self, target: DirectoryTarget, start: int, end: int
    ) -> Iterator[tuple[Part, int, int | None]]:
        """Iterate over the parts that may hold rows in `[start, end)`, with their bounds."""
        for part in self._parts(target, self._read_view):
            low, high = self.bounds(part)
            if low < end and (high is None or start <= high):
                yield part, low, high

    def between(
        self, target: DirectoryTarget, start: int, end: int, most: int | None = None
    ) -> Iterator[Ranged]:
        """Iterate over the ranges that hold the rows `[start, end)`, with at most `most` positions each."""
        if most is not None:
            _check_count(self.column, "maxRecordsPerPartition", "maxPartitionBytes")
        settled = self._settled(target, start)
        hints = {} if settled is None else settled.hints(start, end)
        for part, low, high in self._within(target, start, end):
            task = task_of(target, replace(part, hints={**part.hints, **hints}))
            first, behind = max(start, low), end if high is None else min(end, high + 1)
            step = most or max(1, behind - first)
            for first_position in range(first, behind, step):
                stop = min(first_position + step, behind)
                begin = self._place(task, first_position).start if first_position > low else 0
                until = None if high is not None and stop > high else self._place(task, stop).stop
                if until is None or until > begin:
                    piece = replace(task, start=begin, stop=until)
                    yield Ranged(piece, self._table, self.column, first_position, stop)

    def bytes_before(self, target: DirectoryTarget, start: int, end: int, most: int) -> int:
        """Return the position that `most` bytes of frames from `start` on reach: at least one frame, at most `end`."""
        left = most
        reached = start
        for part, low, _ in self._within(target, start, end):
            task = task_of(target, part)
            begin = self._place(task, start).start if start > low else 0
            for step, (_, highs), starts, _ in self._walk(task, begin):
                ends = step.frames.end + step.window.offset
                fit = int(np.searchsorted(np.cumsum(ends - starts), left, "right"))
                if fit < len(starts):
                    if reached == start and not fit:
                        fit = 1
                    if fit:
                        reached = int(highs[fit - 1]) + 1
                    return min(max(reached, start), end)
                left -= int((ends - starts).sum())
                reached = int(highs[-1]) + 1
                if reached >= end:
                    return end
        return end

    def files_before(self, target: DirectoryTarget, start: int, end: int, most: int) -> int:
        """Return the position that the rows of `most` files from `start` on reach."""
        for _, low, _ in self._within(target, start, end):
            if not most:
                return max(start, low)
            most -= 1
        return end


def _check_count(column: str, option: str, other: str) -> None:
    if column == FILE_POSITION:
        raise UsageError(
            f"option {option} counts rows, but this directory is followed by positions in its files",
            advice=f"Pass {other} instead",
        )


def _inode(task: Task) -> int:
    """Return a number that identifies a file even if another one takes its name."""
    if is_remote(task.real):
        return 0
    with contextlib.suppress(OSError):
        return os.stat(local_path(task.real)).st_ino
    return 0


def _seconds(text: Any) -> float:
    """Parse a duration in seconds: `15m` is 900.0."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)?\s*", str(text).lower())
    if match is None:
        raise ValueError("expected a duration such as 500ms, 30s, 15m or 1h")
    return (
        float(match[1]) * {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, None: 1}[match[2]]
    )


PACE_OPTIONS = (
    Option("maxOffsetsPerTrigger", None, "Maximum number of offsets per batch of a stream, shared by all directories in proportion.", low=1),
    Option("maxBytesPerTrigger", None, "Maximum number of bytes per batch of a stream; at least one frame of each directory is read.", low=1),
    Option("maxFilesPerTrigger", None, "Maximum number of files per batch of a stream.", low=1),
    Option("minOffsetsPerTrigger", None, "Number of offsets that a batch of a stream waits for.", low=1),
    Option("maxTriggerDelay", 900.0, "Limit of the wait for minOffsetsPerTrigger: 500ms, 30s, 15m, 1h; default 15m.", _seconds),
)  # fmt: skip


@dataclass(frozen=True)
class Pace:
    """Limits of one batch of a stream: positions, bytes and files of all directories; and the number of positions to wait for, for at most
    `patience` seconds."""

    positions: int | None = None
    bytes: int | None = None
    files: int | None = None
    least: int | None = None
    patience: float = 900.0

    @classmethod
    def of(cls, words: Options) -> Pace:
        """Create from `PACE_OPTIONS`."""
        return cls(
            words["maxOffsetsPerTrigger"], words["maxBytesPerTrigger"], words["maxFilesPerTrigger"], words["minOffsetsPerTrigger"],
            words["maxTriggerDelay"],
        )  # fmt: skip

    @property
    def limited(self) -> bool:
        return (self.positions, self.bytes, self.files) != (None, None, None)


class Following:
    """All followed directories. They may appear and disappear; `look` returns the current ones."""

    def __init__(
        self,
        look: Callable[[], Sequence[DirectoryTarget]],
        layout: Layout,
        view: str | None,
        words: Options,
        *,
        fail_on_loss: bool = True,
    ) -> None:
        self.layout, self.words, self._look, self._fail = layout, words, look, fail_on_loss
        self.view, self.column = self._follow.followed(view, words)
        self._known: dict[str, Followed] = {}

    @property
    def _follow(self) -> Follow:
        assert self.layout.capabilities.follow is not None
        return self.layout.capabilities.follow

    def there(self) -> dict[str, DirectoryTarget]:
        """Return the current directories by name. One with several sequences of files appears once for each."""
        targets: dict[str, DirectoryTarget] = {}
        seen: set[str] = set()
        for name, copies in copies_of(self._look()):
            own = name or copies[0].directory.name
            if len(copies) > 1 or own in seen:
                raise UsageError(f"{name} is found more than once", advice="Follow one of its replicas")
            seen.add(own)
            for part, plan in self._follow.sequences(copies[0].plan, self.view).items():
                targets[f"{own}/{part}" if part else own] = replace(copies[0], plan=plan)
        return dict(sorted(targets.items()))

    def of(self, name: str) -> Followed:
        return self._known.setdefault(name, Followed(self.layout, self.view, self.column))

    def spans(self, *, stream: bool) -> dict[str, tuple[DirectoryTarget, int, int]]:
        """Return the requested range of positions of each current directory."""
        out = {}
        for name, target in self.there().items():
            followed = self.of(name)
            begin, end = followed.begins(target), followed.ends(target, stream=stream)
            low, high = self._follow.span(
                target.directory, target.plan, self.view, self.words, end, stream=stream
            )
            if low < begin:
                self._lost(name, f"requested from {low}, but the first available is {begin}")
                low = begin
            if low > end or (high > end and not stream):
                self._lost(name, f"requested up to {max(low, high)}, but it ends at {end}")
                low, high = min(low, end), min(high, end)
            if not stream and self._follow.fold(self.view) is not None:
                high = max(low, followed.settled(target, low, high))
            out[name] = (target, low, high)
        return out

    def latest(self, start: Positions, *, warn: bool = True) -> dict[str, int]:
        """Return the position after the last available row of each directory. A new directory starts at its beginning."""
        out = dict(start)
        there = self.there()
        for name, target in there.items():
            followed = self.of(name)
            end = followed.ends(target)
            begin = start.get(name, followed.begins(target))
            if end < begin:
                if warn:
                    self._lost(name, f"it ends at {end}, but has been read up to {begin}")
                end = begin
            out[name] = followed.settled(target, begin, end)
        for name in start:
            if name not in there and warn:
                self._lost(name, "the directory no longer exists")
        return out

    def paced(self, start: Positions, end: Positions, pace: Pace) -> dict[str, int]:
        """Return the positions up to which the next batch may read."""
        there = self.there()
        begin = {
            name: start.get(name, self.of(name).begins(there[name]) if name in there else end[name])
            for name in end
        }
        out = dict(end)
        if pace.positions is not None:
            total = sum(end[name] - begin[name] for name in end)
            if total > pace.positions:
                for name in end:
                    share = pace.positions * (end[name] - begin[name]) / total
                    # At least one, so that no directory starves.
                    out[name] = min(
                        end[name], begin[name] + (math.ceil(share) if share < 1 else math.floor(share))
                    )
        grown = [name for name in out if out[name] > begin[name] and name in there]
        if pace.bytes is not None and grown:
            each = max(1, pace.bytes // len(grown))
            for name in grown:
                out[name] = self.of(name).bytes_before(there[name], begin[name], out[name], each)
        if pace.files is not None and grown:
            # The longest backlog comes first, so that none starves.
            grown.sort(key=lambda name: begin[name] - end[name])
            for at, name in enumerate(grown):
                most = pace.files // len(grown) + (at < pace.files % len(grown))
                out[name] = self.of(name).files_before(there[name], begin[name], out[name], most)
        return out

    def between(self, start: Positions, end: Positions, most: int | None = None) -> list[Ranged]:
        """Return the ranges between two positions of each directory."""
        there = self.there()
        out: list[Ranged] = []
        for name, high in end.items():
            target = there.get(name)
            if target is None:
                if start.get(name, 0) < high:
                    self._lost(name, "the directory no longer exists")
                continue
            followed = self.of(name)
            begin = followed.begins(target)
            low = start.get(name, begin)
            if low < min(begin, high):
                self._lost(name, f"{low} is next, but the first available is {begin}")
                low = begin
            if low < high:
                out += followed.between(target, low, high, most)
        return out

    def check_pace(self, pace: Pace) -> None:
        """Raise `UsageError` for limits that count rows if positions do not."""
        if pace.positions is not None or pace.least is not None:
            name = "minOffsetsPerTrigger" if pace.positions is None else "maxOffsetsPerTrigger"
            _check_count(self.column, name, "maxBytesPerTrigger")

    def _lost(self, name: str, problem: str) -> None:
        if self._fail:
            raise LogwrightError(
                f"{name}: {problem}; rows may have been deleted or truncated before they were read",
                advice="Set failOnDataLoss=false to continue with what is available",
            )
        _log.warning("logwright: %s: %s", name, problem)
