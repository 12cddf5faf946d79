"""The undamaged messages of a commit log: where they are, and where they belong.

A message belongs at its physical offset. Bytes that were inserted, lost or exchanged put it elsewhere: at another place of its file, in
another file, or across the boundary of two files, which a broker never writes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec import plural
from logwright.codec.arrays import Bools, Int64s, among, groups
from logwright.codec.describe import dtype_of
from logwright.codec.engine.repair import OutputFile
from logwright.codec.fault import Severity, UsageError
from logwright.codec.fixed import end_without_zeros
from logwright.codec.frames.codec import Part
from logwright.codec.frames.scanner import MAIN, MARKER
from logwright.codec.frames.walk import Hole, ListedFile, Stretch, walk_listed
from logwright.codec.kernels.intrinsics import load_i64be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.option import Options
from logwright.codec.rocketmq.formats.batchconsumequeue import UNIT as BATCH_UNIT
from logwright.codec.rocketmq.formats.commitlog.codec import CODEC
from logwright.codec.rocketmq.formats.commitlog.layout import BLANK_MAGIC, INNER_BATCH, LEAST_BLANK, MESSAGE
from logwright.codec.rocketmq.formats.commitlog.read import Messages, replacements, store_timestamps
from logwright.codec.rocketmq.formats.consumequeue import FILLER, UNIT
from logwright.codec.rocketmq.store import tree
from logwright.codec.store.extents import Copy
from logwright.codec.store.listing import Entry, Listing, Plan, Role
from logwright.codec.store.overlay import Overlay
from logwright.codec.window import Bytes, Frames, Window

_UNIT = dtype_of(UNIT)
UNITS = {tree.QUEUE: _UNIT, tree.BATCH: dtype_of(BATCH_UNIT)}
"""The units of queues by folder."""
_PHY = MESSAGE.offset("physical_offset")
_START = attrgetter("start")
_SORTED = 64
"""If more than one in this many runs is new, all are sorted again."""


@dataclass
class Run:
    """A range of contiguous undamaged messages. `stored` is the store time of the last one, `count` their number without those that replace
    lost or removed ones.

    All places are those where the messages belong, in a file. They are in the file `name`, `moved` bytes before these places.
    """

    start: int
    stop: int
    count: int
    first_stop: int
    last_start: int
    stored: int
    name: str
    moved: int
    stray: bool = False
    """Whether a search of the whole log found it: `Log.strays`."""
    rest: Copy | None = None
    """The end of a message that is split by the end of the file `name`."""

    def copied(self, start: int, stop: int) -> list[Copy]:
        """Return the bytes of messages of the run."""
        if self.rest is None:
            return [Copy(self.name, start - self.moved, stop - self.moved)]
        if start == stop:
            return []
        # A run with a rest is one message.
        return [Copy(self.name, start - self.moved, stop - self.moved - len(self.rest)), self.rest]

    @property
    def extents(self) -> list[Copy]:
        """All bytes of the run."""
        return self.copied(self.start, self.stop)


@dataclass
class LogFile:
    """A file of the commit log. `blank` is the offset of the final blank record, or -1. `damaged`: it has bytes that are neither messages nor
    zeros after them."""

    name: str
    base: int
    size: int
    runs: list[Run] = field(default_factory=list)
    blank: int = -1
    damaged: bool = False

    @property
    def end(self) -> int:
        return self.runs[-1].stop if self.runs else 0

    @property
    def stored(self) -> int:
        return self.runs[-1].stored if self.runs else 0

    @property
    def moved(self) -> int:
        return self.runs[-1].moved if self.runs else 0

    @property
    def moved_runs(self) -> list[Run]:
        """The runs that are not where they belong."""
        return [run for run in self.runs if run.moved or run.name != self.name]

    @property
    def whole(self) -> bool:
        """Whether no message is missing before the last one."""
        return len(self.runs) == 1 and not self.runs[0].start and not self.moved_runs

    def mark_damaged(self) -> None:
        self.damaged = True

    def insert(self, runs: Iterable[Run]) -> None:
        runs = list(runs)
        if len(runs) > len(self.runs) // _SORTED:
            self.runs = sorted([*self.runs, *runs], key=_START)
            return
        for run in runs:
            insort(self.runs, run, key=_START)

    def lacks(self, start: Int64s, stop: Int64s, size: int) -> Bools:
        """Return which ranges hold no message so far, and can hold one in a file of `size` bytes."""
        places = int(stop.min(initial=self.end)), int(stop.max(initial=0))
        first, last = (bisect_left(self.runs, place, key=_START) for place in places)
        near = self.runs[max(first - 1, 0) : last]
        edges = np.array([(-1, 0), *((run.start, run.stop) for run in near)], np.int64)
        before = np.searchsorted(edges[:, 0], stop) - 1
        limit = size - LEAST_BLANK if self.blank < 0 else self.blank
        missing: Bools = (edges[before, 1] <= start) & (stop <= limit)
        return missing

    def add(self, runs: Iterable[Run]) -> None:
        """Add runs at the end."""
        for run in runs:
            last = self.runs[-1] if self.runs else run
            if last.stop == run.start and (last.name, last.moved) == (run.name, run.moved):
                self.runs.pop()
                run = replace(run, start=last.start, count=last.count + run.count, first_stop=last.first_stop)
            self.runs.append(run)


@kernel("const u1[], i8, const i8[], const i8[], i8[]")
def find_runs(
    heads: Bytes, width: int, starts: Int64s, ends: Int64s, edges: Int64s
) -> int:  # fmt: skip
    """Return the number of runs of messages that are adjacent and whose physical offsets are. Set `edges` to the index of the first message
    of each, and to the number of messages after the last one. `heads` has the heads of the messages, of `width` bytes each."""
    count = 0
    expected = -1
    for i in range(len(starts)):
        phy = load_i64be(heads, i * width + _PHY)
        if i == 0 or phy != expected or starts[i] != ends[i - 1]:
            edges[count] = i
            count += 1
        expected = phy + ends[i] - starts[i]
    edges[count] = len(starts)
    return count


def batch_topics_of(part: Part) -> set[str]:
    """Return the topics of messages that are batches. Without `topics.json` only they say which topics have batch queues."""
    inner = (part.head["sys_flag"] & INNER_BATCH) != 0
    return set(Messages(part.pick(inner), 1).topics()) if inner.any() else set()


def runs_of(name: str, part: Part, base: int) -> Iterator[Run]:
    """Yield the runs of undamaged messages of a file. Their places are relative to the physical offset `base`."""
    starts, ends = np.ascontiguousarray(part.start), np.ascontiguousarray(part.end)
    edges = np.empty(len(part) + 1, np.int64)
    edges = edges[: find_runs(part.head.view(np.uint8), part.head.itemsize, starts, ends, edges) + 1]
    firsts, lasts = edges[:-1], edges[1:] - 1
    first, last = (part.head["physical_offset"][index].astype(np.int64) - base for index in (firsts, lasts))
    stops, first_stops = last + ends[lasts] - starts[lasts], first + ends[firsts] - starts[firsts]
    counts, lost = edges[1:] - firsts, replacements(part)
    if lost.any():
        counts -= np.add.reduceat(lost, firsts, dtype=np.int64)
    times = store_timestamps(part.pick(lasts))
    columns = (first, stops, counts, first_stops, last, times, first - starts[firsts] - part.offset)
    for *numbers, moved in zip(*(column.tolist() for column in columns), strict=True):
        start, stop, count, first_stop, last_start, stored = numbers
        yield Run(start, stop, count, first_stop, last_start, stored, name, moved)


@dataclass(frozen=True)
class LostMessage:
    """A lost message, known from its consume queue. `phy` is its physical offset, `number` its queue offset."""

    phy: int
    size: int
    topic: str
    queue_id: int
    number: int

    def until(self, last: LostMessage) -> dict[str, Any]:
        """Return the messages of the queue up to `last` as in `Fault.lost`."""
        return {
            "topic": self.topic, "queue_id": self.queue_id, "first_offset": self.number, "last_offset": last.number,
        }  # fmt: skip

    def precedes(self, other: LostMessage) -> bool:
        """Return whether another message is the next one of the same queue."""
        return (self.topic, self.queue_id, self.number + 1) == (other.topic, other.queue_id, other.number)


def runs_that_fill(lost: Iterable[LostMessage], begin: int, end: int) -> list[list[LostMessage]]:
    """Return the lost messages between two physical offsets, by runs of one queue, if they fill every byte; else an empty list."""
    out: list[list[LostMessage]] = []
    at = begin
    for item in lost:
        if not begin <= item.phy < end:
            continue
        if item.phy != at:
            return []
        at += item.size
        if out and out[-1][-1].precedes(item):
            out[-1].append(item)
        else:
            out.append([item])
    return out if at == end else []


@dataclass
class _Edges:
    """The first frame of a file, the end of its last one, and the number of bytes by which that one is displaced."""

    start: int
    stop: int
    end: int
    moved: int


def _first_offset(listing: Listing, entry: Entry) -> int:
    """Return the physical offset of a file's first message; the number in its name if it begins with no message."""
    at = MESSAGE.offset("physical_offset")
    head = listing.read(entry.name, 0, at + 8)
    if not CODEC.known(head) or int.from_bytes(head[4:8], "big") == BLANK_MAGIC:
        return tree.start_of(entry.name)
    return int.from_bytes(head[at:], "big")


def renamed(listing: Listing, logs: Sequence[Entry]) -> set[str]:
    """Return the names of the files that have the name of another file, or one that no file of the log can have.

    In any other file a first message with a wrong physical offset is more likely damaged.
    """
    size = tree.size_of(logs) or 1
    firsts = {entry.name: _first_offset(listing, entry) for entry in logs}
    bases = {tree.start_of(name): name for name in firsts}
    usual = Counter(base % size for base in bases).most_common(1)
    out = set()
    for base, name in bases.items():
        first = firsts[name]
        if first == base:
            continue
        owner = bases.get(first)
        exchanged = owner is not None and firsts[owner] != first
        fills_gap = owner is None and {first - size, first + size} <= bases.keys()
        if exchanged or fills_gap or base % size != usual[0][0]:
            out.add(name)
    return out


class Log:
    """The commit log of a store. `read` and then `strays` fill `files`, the files as they should be."""

    def __init__(self, listing: Listing, plan: Plan, options: Options) -> None:
        self.listing, self.plan = listing, plan
        self.config = tree.config_of(listing, options)
        self.files: list[LogFile] = []
        """The files, in order."""
        self._files: dict[int, LogFile] = {}
        self._damaged: list[Entry] = []
        self._edges: dict[str, _Edges] = {}
        logs, size = tree.logs(listing), self.config.log_size
        starts = Counter(tree.start_of(entry.name) % size for entry in logs)
        self._origin = max(sorted(starts), key=lambda start: starts[start], default=0)
        if self._origin:  # The files may have been renamed.
            starts = Counter(_first_offset(listing, entry) % size for entry in logs)
            self._origin = max(sorted(starts), key=lambda start: starts[start])

    def _base(self, phy: int) -> int:
        """Return the base offset of the file in which a physical offset is."""
        return phy - (phy - self._origin) % self.config.log_size

    def read(self) -> Iterator[tuple[str, Part]]:
        """Find the undamaged messages that are in the file of their physical offset. Iterate over them, with the names of their files."""
        batches: set[str] = set()
        unnamed = tree.topics(self.listing) is None
        size = self.config.log_size
        for collection in (self._files, self._damaged, self._edges):
            collection.clear()
        for entry in tree.logs(self.listing):
            file = LogFile(entry.name, tree.start_of(entry.name), entry.size)
            claims = file.base, file.base + max(size, entry.size)
            copy = file.base in self._files
            for window, frames in log_frames(self.listing, entry, claims, damaged=file.mark_damaged):
                part = Part.main(window, frames)
                self._note_edges(entry.name, file.base, window, frames)
                if copy:
                    for target, lacking in self._lacking(part):
                        target.insert(runs_of(entry.name, lacking, target.base))
                        yield entry.name, lacking
                    continue
                if len(part):
                    file.add(runs_of(entry.name, part, file.base))
                blanks = frames.header["frame_kind"] == MARKER if len(part) < len(frames) else []
                for i in np.flatnonzero(blanks).tolist():
                    start = int(frames.start[i]) + window.offset + file.moved
                    file.blank = start if frames.header["total_size"][i] == size - start else -1
                if len(part):
                    yield entry.name, part
                    batches |= batch_topics_of(part) if unnamed else set()
            file.blank = file.blank if file.blank >= file.end else -1
            if file.damaged:
                self._damaged.append(entry)
            if not copy:
                self._add(file)
        self._sort()
        if batches:
            batches -= tree.topics_in(self.listing, tree.QUEUE)
            self.config = replace(self.config, batch_topics=batches.union(self.config.batch_topics))

    def _add(self, file: LogFile) -> None:
        """Add a file, or the messages of one that was joined from several or cut off another to the files where they belong."""
        if (
            self._base(file.base) == file.base
            and file.end <= self.config.log_size
            and file.base not in self._files
        ):
            self._files[file.base] = file
            return
        for run in file.runs:
            target = self._target(file.base + run.start)
            by = file.base - target.base
            placed = replace(run, start=run.start + by, stop=run.stop + by, first_stop=run.first_stop + by, last_start=run.last_start + by,
                             moved=run.moved + by)  # fmt: skip
            if placed.stop > self.config.log_size and not run.moved:
                raise UsageError(
                    f"the messages from physical offset {file.base + run.start} on cross the end of a file of {self.config.log_size} bytes",
                    path=file.name, advice="Pass the mappedFileSizeCommitLog of the broker",
                )  # fmt: skip
            if target.lacks(np.array([placed.start]), np.array([placed.stop]), self.config.log_size).all():
                target.insert([placed])

    def _target(self, phy: int) -> LogFile:
        """Return the file of a physical offset, which may be a new one."""
        base = self._base(phy)
        return self._files.setdefault(base, LogFile(f"{tree.LOG}/{base:020d}", base, 0))

    def _sort(self) -> None:
        self.files = [self._files[base] for base in sorted(self._files)]

    def _note_edges(self, name: str, base: int, window: Window, frames: Frames) -> None:
        start, stop, end = (
            int(place) + window.offset for place in (frames.start[0], frames.end[0], frames.end[-1])
        )
        main = frames.header["frame_kind"][-1] == MAIN
        known = self._edges.setdefault(name, _Edges(start, stop, 0, 0))
        if start < known.start:
            known.start, known.stop = start, stop
        if end > known.end:
            moved = int(frames.header["physical_offset"][-1]) - base - int(frames.start[-1]) - window.offset
            known.end, known.moved = end, moved if main else known.moved

    def strays(self) -> Iterator[tuple[str, Part]]:
        """Find the messages that are in another file than their own or split by the end of a file, and nowhere else, and displaced ones that
        a consume queue lists. Iterate over them, with the names of their files, which are "" next to the end of a file."""
        lost = self.lost_messages(tree.QUEUE, tree.BATCH, beyond=True) if self._damaged else []
        listed = {message.phy: message.size for message in lost}
        offsets = np.array(sorted(listed), np.int64)
        size = self.config.log_size
        for entry in self._damaged:
            base = tree.start_of(entry.name)
            span = size if self._base(base) == base and entry.size < size else entry.size
            for window, frames in log_frames(self.listing, entry, (0, 1 << 62), listed):
                self._note_edges(entry.name, base, window, frames)
                part = Part.main(window, frames)
                phy = part.head["physical_offset"].astype(np.int64)
                sought = (phy < base) | (phy >= base + span) | among(phy, offsets)
                for target, stray in self._lacking(part.pick(sought)):
                    target.insert(replace(run, stray=True) for run in runs_of(entry.name, stray, target.base))
                    yield entry.name, stray
        logs, damaged = tree.logs(self.listing), {entry.name for entry in self._damaged}
        for before, after in pairwise(logs):
            if after.name in damaged:
                yield from (("", part) for part in self._split(before, after, listed))
        self._sort()

    def _lacking(self, part: Part) -> Iterator[tuple[LogFile, Part]]:
        """Yield the messages that are not where they belong, by the file of that place."""
        phy = part.head["physical_offset"].astype(np.int64)
        ends = phy + part.end - part.start
        bases = phy - (phy - self._origin) % self.config.log_size
        for base, own in groups(bases):
            own = own[np.argsort(phy[own], kind="stable")]
            own = own[phy[own] >= np.r_[0, np.maximum.accumulate(ends[own])[:-1]]]  # one of several copies
            known = self._files.get(base, LogFile("", base, 0))
            lacking = own[known.lacks(phy[own] - base, ends[own] - base, self.config.log_size)]
            if len(lacking):
                yield self._target(base), part.pick(np.sort(lacking))

    def _split(self, before: Entry, after: Entry, listed: Mapping[int, int]) -> Iterator[Part]:
        """Find the message that begins in one file and ends in the next."""
        first, last = self._edges.get(after.name), self._edges.get(before.name, _Edges(0, 0, 0, 0))
        room = before.size - last.end
        if room <= 0 or (first is not None and not first.start):
            return
        number = max(tree.start_of(before.name) + last.end + last.moved, 0)
        pieces = [
            Copy(before.name, last.end, before.size),
            Copy(after.name, 0, after.size if first is None else first.stop),
        ]
        joint = Overlay(self.listing, [OutputFile(f"{number:020d}", pieces)])
        for window, frames in log_frames(joint, joint.entries()[0], (0, 1 << 62), listed):
            part = Part.main(window, frames)
            end = part.end + part.offset
            for target, stray in self._lacking(part.pick(end > room)):
                crosses = int(stray.start[0]) + stray.offset < room
                if crosses:
                    (run,) = runs_of(before.name, stray.pick(slice(0, 1)), target.base)
                    rest = Copy(after.name, 0, int(stray.end[0]) + stray.offset - room)
                    target.insert([replace(run, moved=run.moved - last.end, stray=True, rest=rest)])
                if len(stray) > crosses:
                    runs = runs_of(after.name, stray.pick(slice(int(crosses), None)), target.base)
                    target.insert(replace(run, moved=run.moved + room, stray=True) for run in runs)
                yield stray

    def units(self, folder: str = tree.QUEUE) -> Iterator[tuple[tuple[str, int], int, npt.NDArray[np.void]]]:
        """Yield for each consume queue file its queue, the number of its first unit, which is a queue offset except of a batch queue, and its
        units."""
        unit = UNITS[folder]
        for file in self.plan.files:
            queue = tree.queue_of(file.name)
            if file.role is not Role.DERIVED or tree.first(file.name) != folder or queue is None:
                continue
            if not tree.is_light(queue):
                yield (
                    queue,
                    tree.start_of(file.name) // unit.itemsize,
                    units_of(self.listing, file.name, file.size, unit),
                )

    def lost_messages(self, *folders: str, beyond: bool = False) -> list[LostMessage]:
        """Return the messages that consume queues list, by default those without batches, and that are in a gap of the log, by physical
        offset. `beyond`: or after its last message."""
        runs = [(file.base + run.start, file.base + run.stop) for file in self.files for run in file.runs]
        if not runs:
            return []
        starts, stops = np.array(runs, np.int64).T
        out: dict[int, LostMessage] = {}
        files = ((folder, file) for folder in folders or (tree.QUEUE,) for file in self.units(folder))
        for folder, (queue, first, units) in files:
            phy, size = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
            before = np.searchsorted(starts, phy + size) - 1  # the last run that starts before the unit's end
            lost = (phy >= 0) & (size > 0) & (size != FILLER) & (beyond | (phy < stops[-1]))
            lost &= (before < 0) | (stops[np.maximum(before, 0)] <= phy)
            if lost.any() and folder == tree.QUEUE:
                kept = (size > 0) & (before >= 0) & (phy + size <= stops[np.maximum(before, 0)]) & ~lost
                first = self._first_number(first, phy, np.flatnonzero(kept))
            for i in np.flatnonzero(lost).tolist():
                out.setdefault(int(phy[i]), LostMessage(int(phy[i]), int(size[i]), *queue, first + i))
        return [out[phy] for phy in sorted(out)]

    def _first_number(self, named: int, phy: Int64s, kept: npt.NDArray[np.intp]) -> int:
        """Return the queue offset of the first unit of a file whose name says `named`. `phy`: the physical offsets of its units. `kept`: the
        units of undamaged messages, whose queue offsets show whether the file has the name of another one.

        A single message whose queue offset differs by one bit proves nothing: the bit may be flipped.
        """
        if not len(kept):
            return named
        first, last = (self._number(int(phy[i])) - int(i) for i in kept[[0, -1]])
        is_one_bit_off = len(kept) == 1 and (first ^ named).bit_count() == 1
        return named if first != last or first < 0 or is_one_bit_off else first

    def _number(self, phy: int) -> int:
        """Return the queue offset of an undamaged message; -1 if it is split by the end of a file."""
        file = self._files[self._base(phy)]
        run = file.runs[bisect_right(file.runs, phy - file.base, key=_START) - 1]
        at = phy - file.base - run.moved + MESSAGE.offset("queue_offset")
        number = b"" if run.rest is not None else self.listing.read(run.name, at, 8)
        return int.from_bytes(number, "big", signed=True) if len(number) == 8 else -1

    def holes(self) -> list[int]:
        """Return the physical offsets at which missing bytes end, in order."""
        out, at = [], self.files[0].base if self.files else 0
        for file in self.files:
            for run in file.runs:
                if file.base + run.start != at:
                    out.append(file.base + run.start)
                at = file.base + run.stop
            if file.blank == file.end:
                at = file.base + self.config.log_size
        return out

    def stray_runs(self) -> Iterator[tuple[Run, int, str]]:
        """Yield the runs that `strays` found, the physical offset of each, and what a report says about it."""
        for file in self.files:
            for run in file.runs:
                phy = file.base + run.start
                if run.rest is not None:
                    text = f"the message of physical offset {phy} begins here and ends in {run.rest.file} ({len(run.rest)} bytes)"
                elif run.stray:
                    text = (
                        f"{plural.count(run.count, 'message')} of {file.name} from physical offset {phy} on"
                    )
                else:
                    continue
                yield (
                    run,
                    phy,
                    f"{text}; a repair moves {'it' if run.count == 1 else 'them'} to the place of the physical offset",
                )


def begins_elsewhere(listing: Listing, entry: Entry) -> bool:
    """Return whether a commit log file begins with something else than its first message, a blank record or zeros."""
    at, claim = MESSAGE.offset("magic_code"), MESSAGE.offset("physical_offset")
    head = ListedFile(listing, entry.name, entry.size)(0, claim + 8).tobytes()
    if not any(head[at : at + 4]) or int.from_bytes(head[at : at + 4], "big") == BLANK_MAGIC:
        return False
    return int.from_bytes(head[claim : claim + 8], "big") != tree.base_of(entry.name)


def log_frames(
    listing: Listing, entry: Entry, claims: tuple[int, int] | None = None, listed: Mapping[int, int] | None = None, *, check: bool = True,
    damaged: Callable[[], None] | None = None,
) -> Iterator[tuple[Window, Frames]]:  # fmt: skip
    """Iterate over the undamaged messages and blank records of a commit log file. `claims`: the range of their physical offsets, if they
    are displaced. `listed`: sizes of messages that consume queues list, by physical offset. `damaged` is called at damage."""
    hints: dict[str, object] = {} if claims is None else {"claims": claims, "listed": listed or {}}
    for item in walk_listed(listing, entry.name, entry.size, CODEC, check=check, **hints):
        if isinstance(item, Hole) and item.fault.severity is not Severity.INFO and damaged is not None:
            damaged()
        if isinstance(item, Stretch) and len(item.frames):
            yield item.window, item.frames


def is_empty(listing: Listing, name: str, start: int, stop: int) -> bool:
    """Return whether a range of a file has only zeros. Raises `UnreadableError`."""
    return content_end(listing, name, start, stop) == start


def content_end(listing: Listing, name: str, start: int, stop: int) -> int:
    """Return where a range of a file ends without the zeros at its end. Raises `UnreadableError`."""
    return end_without_zeros(ListedFile(listing, name, stop).pread, start, stop)


def units_of(listing: Listing, name: str, size: int, unit: np.dtype[np.void] = _UNIT) -> npt.NDArray[np.void]:
    """Return the units of a consume queue file of `size` bytes, without the zeros at its end."""
    count = -(-content_end(listing, name, 0, size) // unit.itemsize)
    data = listing.read(name, 0, count * unit.itemsize)
    return np.frombuffer(data[: len(data) // unit.itemsize * unit.itemsize], unit)
