"""Compare the files of a store: consume queues with the log, and queue offsets for gaps.

Source: `ConsumeQueue.putMessagePositionInfo`, `CommitLog.getMessage` of RocketMQ.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from logwright.codec import plural
from logwright.codec.arrays import Bools, Int64s
from logwright.codec.capability import CheckSettings
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.frames.codec import Part
from logwright.codec.frames.scanner import BAD_CLAIM, MAIN
from logwright.codec.option import Options
from logwright.codec.rocketmq.check.index import IndexCheck
from logwright.codec.rocketmq.check.timer import timer_faults
from logwright.codec.rocketmq.check.times import NAME, StoreTimes, checkpoint_faults
from logwright.codec.rocketmq.dispatch import Dispatches, Queues, differing, dispatches
from logwright.codec.rocketmq.formats.commitlog.codec import CODEC as LOG
from logwright.codec.rocketmq.formats.commitlog.layout import ROLLBACK, SMALLEST, TRANSACTION
from logwright.codec.rocketmq.formats.commitlog.read import replacements
from logwright.codec.rocketmq.formats.consumequeue import FILLER, UNIT
from logwright.codec.rocketmq.formats.consumequeue_ext import ADDRESS, FIRST_TAG
from logwright.codec.rocketmq.formats.indexfile.layout import NAME as INDEX
from logwright.codec.rocketmq.startup.message import SCHEDULE_TOPIC, delays_of
from logwright.codec.rocketmq.store import tree
from logwright.codec.rocketmq.store.log import UNITS, Log, batch_topics_of, begins_elsewhere, units_of
from logwright.codec.rocketmq.store.queue_files import QueueFiles
from logwright.codec.store.listing import Listing, Plan, PlannedFile
from logwright.codec.window import Bytes, Frames, Window

ADVICE = (
    "Copy the store before a broker is started on it. The broker ends the log at the first bad message that it reads, and deletes all later "
    "files.",
    "If only queues or index are damaged, remove consumequeue, index and checkpoint, and create a file abort. The broker then rebuilds "
    "them.",
)
MULTI_DISPATCH = b"INNER_MULTI_DISPATCH"
"""The property with the other queues of a message."""
_LARGEST = 1 << 22
"""A property beyond this number of bytes of a message is not found."""
_MOST = 20
_NOT_COMPARED = -(1 << 63)
"""Stands for the tags code of a unit that does not follow from its message."""
_BLOCK = 1 << 18
"""The number of messages that are compared with the queues at a time."""


_NONE = np.zeros((4, 0), np.int64)


@dataclass
class Run:
    """Messages of one queue in log order. `facts` are the physical offset, size, queue offset and tags code of each.

    If the queue has a unit for each of them (`listed`), and their queue offsets rise by one, only the first and the last are kept.
    """

    facts: Int64s
    listed: bool = False

    @property
    def phy(self) -> Int64s:
        phy: Int64s = self.facts[0]
        return phy

    @property
    def number(self) -> Int64s:
        number: Int64s = self.facts[2]
        return number

    @property
    def steps(self) -> Int64s:
        """The differences of the queue offsets."""
        return np.ones(len(self.number) - 1, np.int64) if self.listed else np.diff(self.number)


class StoreChecker:
    """See `logwright.codec.capability.Check`.

    Memory is bounded by a block of messages, the messages without a correct unit, and those of one queue that has any.
    """

    def __init__(self, listing: Listing, plan: Plan, options: Options, settings: CheckSettings) -> None:
        live, clean = bool(settings.live), settings.clean
        self._listing, self._deep, self._live = listing, settings.deep, live
        aborted = any(entry.name == tree.ABORT for entry in listing.entries())
        self._dispatches = live or (aborted if clean is None else not clean)
        """Whether messages at the end of the log may still be without units, which a broker adds."""
        self._missing = plan.missing
        self._log = Log(listing, plan, options)
        index = [file for file in plan.files if file.codec == INDEX] if settings.deep else []
        self._index = IndexCheck(listing, index, live=live)
        self._times = StoreTimes()
        self._ext = [file for file in plan.files if tree.first(file.name) == tree.EXT]
        self._base = self._stop = -1
        self._queues = Queues()
        self._files = QueueFiles(listing, plan)
        self._light = any(map(tree.is_light, self._files.by_queue))
        self._batches = set(tree.batch_topics(listing))
        self._unnamed = tree.topics(listing) is None
        """Whether no file says which topics have batch queues."""
        self._precision: int = options[tree.TIMER_PRECISION.name]
        self._delays = delays_of(options[tree.DELAY_LEVELS.name])
        self._blocks: list[Int64s] = []
        """Queue, physical offset, size, queue offset and tags code of messages that are not compared yet."""
        self._waiting = 0
        self._runs: dict[int, list[Run]] = {}
        self._addresses: dict[tuple[str, int], tuple[int, int]] = {}
        """The least and the largest address in `consumequeue_ext` of the units of a queue."""
        self._end = -1
        self._reached = -1
        """The physical offset of the last message that a unit points to."""
        self._placeholders = 0
        self._holes: list[int] = []
        """The physical offsets of messages with unreadable or missing bytes before them."""
        self._fillers: list[int] = []
        """The physical offsets of messages that replace lost ones of unknown queues."""

    def begin(self, file: PlannedFile) -> None:
        self._base = tree.start_of(file.name) if file.codec == "rocketmq.commitlog" else -1
        self._stop = self._base + file.size

    def add(self, window: Window, frames: Frames) -> None:
        if self._base < 0:
            return
        messages = frames.header["frame_kind"] == MAIN
        size, phy = frames.end - frames.start, frames.header["physical_offset"].astype(np.int64)
        if not messages.all():
            phy = np.where(messages, phy, frames.start + window.offset + self._base)
            size = np.where(messages, size, frames.header["total_size"])  # a blank record fills its file
            if not messages[0] and phy[0] == self._base:
                self._fillers.append(self._base)  # no broker writes a file without a message
        ends = np.r_[self._end, (phy + size)[:-1]]
        self._holes += phy[(phy != ends) & (ends >= 0)].tolist()
        self._end = int(phy[-1] + size[-1])
        starts, stops = frames.start, frames.end
        part = Part.main(window, frames)
        if self._unnamed and (batches := batch_topics_of(part)):
            self._batches |= batches - tree.topics_in(self._listing, tree.QUEUE)
        replaced, hidden = replacements(part), part.head["sys_flag"] & TRANSACTION == ROLLBACK
        self._placeholders += int(np.count_nonzero(replaced & ~hidden))
        self._fillers += phy[messages][replaced & hidden].tolist()
        if not messages.all():
            size[:-1] += np.where(messages[1:], 0, self._stop - phy[1:])
            starts, stops, phy, size = (array[messages] for array in (starts, stops, phy, size))
        added = self._add(window.data, starts, stops, phy)
        if added is not None:
            self._index.add(added, size)
            self._times.add(window.data, starts, stops, added.phy, added.stored)

    def _add(self, data: Bytes, starts: Int64s, stops: Int64s, phy: Int64s) -> Dispatches | None:
        """Take messages for the comparison with their queues. Return what they add to queues and index, unless a broker refuses one."""
        added = self._dispatched(data, starts, stops) if self._deep else None
        if added is not None:
            units = added.units
            code = np.where(units.coded, units.tags_code, _NOT_COMPARED)
            self._blocks.append(np.stack((units.queue, units.phy, units.size, units.number, code)))
        else:
            queue, number = self._queues.of(data, starts, stops)
            block = np.stack((queue, phy, stops - starts, number, np.full(len(queue), _NOT_COMPARED)))
            self._blocks.append(block[:, queue >= 0])
        self._waiting += len(starts)
        if self._waiting >= _BLOCK:
            self._compare()
        return added

    def _dispatched(self, data: Bytes, starts: Int64s, stops: Int64s) -> Dispatches | None:
        """Return what messages add to queues and index, or None if a broker refuses one of them."""
        try:
            return dispatches(
                data, starts, stops, tags=True, lmq=self._light, batches=self._batches, queues=self._queues, delays=self._delays,
            )  # fmt: skip
        except IndexError:
            return None

    def _compare(self) -> None:
        """Compare the waiting messages with the units of their queues."""
        if not self._blocks:
            return
        every = np.concatenate(self._blocks, axis=1)
        queue = every[0]
        self._blocks.clear()
        self._waiting = 0
        counts = np.bincount(queue)
        # NumPy sorts 16-bit numbers in linear time.
        order = np.argsort(queue.astype(np.uint16) if len(counts) <= 1 << 16 else queue, kind="stable")
        facts, stops = np.take(every[1:], order, axis=1), np.cumsum(counts)
        for code in np.flatnonzero(counts).tolist():
            own = facts[:, stops[code] - counts[code] : stops[code]]
            if (np.diff(own[0]) < 0).any():
                own = own[:, np.argsort(own[0], kind="stable")]
            self._take(code, Run(own))

    def _take(self, code: int, run: Run) -> None:
        """Add messages to those of their queue."""
        queue, runs = self._queues.names[code], self._runs.setdefault(code, [])
        if (np.diff(run.number) == 1).all() and queue[0] not in self._batches and run.number[0] >= 0:
            run.listed = not self._files.by_queue
            if not run.listed:
                phy, size, number, tags = run.facts
                units = self._files.units(queue, int(number[0]), int(number[-1]) + 1)
                codes = units["tags_code"].astype(np.int64)
                run.listed = (
                    np.array_equal(units["physical_offset"], phy)
                    and np.array_equal(units["size"], size)
                    and not (_compared(codes, tags) & (codes != tags)).any()
                )
                self._note_addresses(queue, codes)
        if run.listed:
            last = runs[-1] if runs and runs[-1].listed else None
            if last is not None and int(last.number[-1]) + 1 == run.number[0] and last.phy[-1] < run.phy[0]:
                run.facts = np.concatenate([runs.pop().facts, run.facts], axis=1)
            run.facts = run.facts[:, [0, -1][: len(run.phy)]]
        else:
            run.facts = run.facts.copy()  # not a view, which would keep the block
        runs.append(run)

    def _note_addresses(self, queue: tuple[str, int], codes: Int64s) -> None:
        places = codes[codes <= FIRST_TAG] & ADDRESS - 1
        if len(places):
            low, high = self._addresses.get(queue, (int(places[0]), -1))
            self._addresses[queue] = min(low, int(places.min())), max(high, int(places.max()))

    def _extensions(self) -> Iterator[tuple[str, Fault]]:
        """Check that the files of `consumequeue_ext` have the addresses of the units."""
        for queue, (low, high) in self._addresses.items():
            files = [file for file in self._ext if tree.queue_of(file.name) == queue]
            bases = [tree.start_of(file.name) for file in files]
            stop = max((base + file.size for base, file in zip(bases, files, strict=True)), default=0)
            if files and min(bases) <= low and high < stop:
                continue
            has = f"begin at {min(bases)} and end at {stop}" if files else "are missing"
            text = (
                f"units have addresses {low} to {high} of consumequeue_ext, but its files of this queue {has}"
            )
            system = "a broker cannot filter these messages, and may end the queue there"
            yield (
                self._files.by_queue[queue][0].name,
                Fault(NAME, 0, 0, Kind.LINK, text, Severity.WARNING, system, 0),
            )

    def _strays(self) -> Iterator[tuple[str, Fault]]:
        """If the log is damaged, find the messages that are in another file than their own, or split by the end of a file."""
        name, at = tree.locate(self._listing, self._end)
        torn = name and any(self._listing.read(name, at, 8))
        logs = tree.logs(self._listing)
        if self._live or not (
            self._holes or torn or any(begins_elsewhere(self._listing, log) for log in logs)
        ):
            return
        for _ in self._log.read():
            pass
        for _, part in self._log.strays():
            self._add(part.data, part.start, part.end, part.head["physical_offset"].astype(np.int64))
        for run, _, text in self._log.stray_runs():
            place = run.extents[0]
            yield (
                run.name,
                Fault(
                    NAME, place.start, len(place), Kind.ORDER, text, Severity.ERROR, LOG.systems[BAD_CLAIM], 0
                ),
            )

    def finish(self) -> Iterator[tuple[str, Fault]]:
        yield from self._strays()
        self._compare()
        for runs in self._runs.values():
            runs.sort(key=lambda run: int(run.phy[0]))
        yield from self._continuity()
        if self._placeholders:
            text = f"the log has {plural.count(self._placeholders, 'placeholder')} of lost or removed messages, with the property LW_LOST"
            system = "consumers get them as messages without content"
            yield "", Fault(NAME, 0, 0, Kind.PADDING, text, Severity.INFO, system)
        yield from self._units()
        yield from self._extensions()
        yield from self._index.finish()
        for wrong in self._times.wrong[:_MOST]:
            name, at = tree.locate(self._listing, wrong.phy)
            yield name, wrong.fault(at)
        if self._deep and not self._live:
            for fault in checkpoint_faults(self._listing, self._times.newest, self._end):
                yield tree.CHECKPOINT, fault
            yield from timer_faults(self._listing, self._precision)

    def _continuity(self) -> Iterator[tuple[str, Fault]]:
        """Check that queue offsets rise by one. A batch takes several, so its topic is only checked for order."""
        holes = np.sort(np.array(self._holes, np.int64))
        logs = tree.logs(self._listing)
        log_start = tree.start_of(logs[0].name) if logs else 0
        for code, runs in self._runs.items():
            if tree.is_light(self._queues.names[code]):
                continue  # brokers leave gaps
            yield from self._queue_continuity(*self._queues.names[code], runs, holes, log_start)

    def _queue_continuity(
        self, topic: str, queue_id: int, runs: list[Run], holes: Int64s, log_start: int
    ) -> Iterator[tuple[str, Fault]]:
        phy, _, number, _ = np.concatenate([run.facts for run in runs], axis=1)
        between = [b.number[:1] - a.number[-1:] for a, b in pairwise(runs)]
        pairs = zip(between, (run.steps for run in runs[1:]), strict=True)
        steps = np.concatenate([runs[0].steps, *(part for pair in pairs for part in pair)])
        if number[0] > 0 and not log_start and topic not in self._batches:
            name, at = tree.locate(self._listing, int(phy[0]))
            text = f"queue {queue_id} of {topic} starts at {int(number[0])}, but the log starts at 0"
            severity = Severity.ERROR
            system = "consumers do not get messages of this queue in the first log file"
            if (~np.isin(self._files.units((topic, queue_id), 0, 1)["size"], (0, FILLER))).any():
                severity = Severity.WARNING
                system = "consumers get other messages instead of the missing ones"
            yield name, Fault(NAME, at, 0, Kind.ORDER, text, severity, system, 0)
        faulty = np.flatnonzero((steps <= 0) if topic in self._batches else (steps != 1))
        repeated = _repeated(steps)
        following = np.minimum.accumulate(number[::-1])[::-1]
        for i in faulty[:_MOST].tolist():
            before, after = int(number[i]), int(number[i + 1])
            name, at = tree.locate(self._listing, int(phy[i + 1]))
            if repeated[i + 1]:
                text = f"queue {queue_id} of {topic}: message {after} is stored twice"
                system = "consumers get only the first one"
                yield name, Fault(NAME, at, 0, Kind.ORDER, text, Severity.WARNING, system, 0)
                continue
            text = f"queue {queue_id} of {topic}: message {before} is followed by message {after}"
            system = "a broker that rebuilds the queue gives later messages other queue offsets"
            low, high = np.searchsorted(holes, (phy[i], phy[i + 1]), "right").tolist()
            filled = bisect_left(self._fillers, phy[i]) < bisect_left(self._fillers, phy[i + 1])
            if after > before and low == high and (filled or (steps[i + 1 : i + 2] == 1).any()):
                text += f", and {'a lost message is replaced' if filled else 'no message is missing'} between them in the log"
                yield name, Fault(NAME, at, 0, Kind.ORDER, text, Severity.WARNING, system, 0)
                continue
            fault = Fault(NAME, at, 0, Kind.ORDER, text, Severity.ERROR, system, 0)
            # Otherwise a queue offset is wrong, and nothing is missing.
            most = before + (int(phy[i + 1]) - int(phy[i])) // SMALLEST
            if before < after <= min(following[i + 1], most):
                lost = {
                    "topic": topic,
                    "queue_id": queue_id,
                    "first_offset": before + 1,
                    "last_offset": after - 1,
                }
                fault = replace(fault, rows_lost=after - before - 1, lost=lost)
            yield name, fault

    def _messages(self, code: int) -> Int64s:
        """Return the facts of the messages of a queue, as a run has them. Its files have those that were not kept, whose tags codes are
        right."""
        parts = [_NONE]
        for run in self._runs.get(code, ()):
            if run.listed and len(run.phy) > 1:
                first, stop = int(run.number[0]), int(run.number[-1]) + 1
                units = self._files.units(self._queues.names[code], first, stop)
                facts = (units["physical_offset"], units["size"], np.arange(first, stop), units["tags_code"])
                parts.append(np.stack(facts).astype(np.int64))
            else:
                parts.append(run.facts)
        return np.concatenate(parts, axis=1)

    @cached_property
    def _all_offsets(self) -> Int64s:
        """The physical offsets of all messages in queues."""
        return np.sort(np.concatenate([_NONE[0], *(self._messages(code)[0] for code in self._runs)]))

    def _units(self) -> Iterator[tuple[str, Fault]]:
        """Check that each unit points to a message of its queue, and that each message has a unit, unless it repeats the one before."""
        logs = tree.logs(self._listing)
        low = tree.start_of(logs[0].name) if logs else 0
        files = self._files.by_queue
        if not files:
            return  # a broker rebuilds all queues
        if not logs:
            yield from self._missing
            return
        codes = {self._queues.names[code]: code for code in self._runs}
        absent = []
        for queue in sorted({*files, *(queue for queue in codes if not tree.is_light(queue))}):
            runs = self._runs.get(codes.get(queue, -1), [])
            if len(runs) == 1 and runs[0].listed:
                first, stop = int(runs[0].number[0]), int(runs[0].number[-1]) + 1
                self._reached = max(self._reached, int(runs[0].phy[-1]))
                if not self._files.lists_others(queue, first, stop, low):
                    continue
            facts = self._messages(codes.get(queue, -1))
            offsets, _, number, _ = facts
            listed: list[Int64s] = []
            for file in files.get(queue, []):
                units = self._read(file)
                listed.append(units["physical_offset"][units["size"] != FILLER].astype(np.int64))
                yield from self._trailing(file, units, any(map(len, listed)))
                yield from self._file_units(file, units, facts, tree.is_light(queue), low)
            if queue[0] in self._batches:
                yield from self._unordered(files.get(queue, []), listed)
            if len(listed) == 1 and np.array_equal(listed[0], offsets):
                continue
            known = np.sort(np.concatenate([np.array([-1]), *listed]))
            expected = offsets[(number >= 0) & ~((queue[0] not in self._batches) & _dropped(number))]
            if tree.is_light(queue):  # it may have been deleted before its first unit
                expected = offsets[offsets > known[1]] if len(known) > 1 else offsets[:0]
            missing = expected[known[np.searchsorted(known, expected, "right") - 1] != expected]
            absent.append((queue, missing))
        yield from self._absent(absent, self._reached if self._dispatches else np.iinfo(np.int64).max)
        deleted = sorted(queue for queue in codes if tree.is_light(queue) and queue not in files)
        if deleted:
            text = (
                f"no files of {plural.count(len(deleted), 'light queue')} with messages in the log, the first is {deleted[0][0]}; "
                "brokers delete unused light queues, and a repair with the option enableLmq makes them again"
            )
            yield "", Fault(NAME, 0, 0, Kind.LINK, text, Severity.INFO, "", 0)

    def _file_units(
        self, file: PlannedFile, units: npt.NDArray[np.void], facts: Int64s, light: bool, low: int
    ) -> Iterator[tuple[str, Fault]]:
        """Check that the units of a file point to messages of its queue, whose facts are given, or to deleted ones before `low`."""
        offsets, sizes, number, tags = facts
        at, size = units["physical_offset"].astype(np.int64), units.dtype.itemsize
        if np.array_equal(at, offsets) and np.array_equal(units["size"], sizes):
            self._reached = max(self._reached, int(at.max(initial=-1)))
            yield from self._misplaced(file, number, np.arange(len(units)))
            yield from self._codes(file, units, tags, range(len(units)))
            return
        inside = (units["size"] != FILLER) & (at >= low)
        if not inside.any():
            return
        known = self._all_offsets if light else offsets
        index = np.minimum(np.searchsorted(known, at), max(len(known) - 1, 0))
        matches = known[index] == at if len(known) else np.zeros(len(at), np.bool_)
        if len(offsets):
            own = np.minimum(np.searchsorted(offsets, at), len(offsets) - 1)
            matches &= (sizes[own] == units["size"]) | (light & (offsets[own] != at))
        self._reached = max(self._reached, int(at[matches].max(initial=-1)))
        for i in np.flatnonzero(~matches & inside)[:_MOST].tolist():
            expected = int(units["size"][i])
            if not len(offsets) and self._is_dispatched_again(int(at[i]), expected):
                continue
            text = f"the unit points to offset {int(at[i])}, where there is no undamaged message of this queue with {expected} bytes"
            yield file.name, Fault(NAME, i * size, size, Kind.LINK, text, Severity.ERROR, "", 0)
        if not light and len(offsets):
            yield from self._misplaced(file, number[index[matches]], np.flatnonzero(matches))
            yield from self._codes(file, units, tags[index], np.flatnonzero(matches))

    def _is_dispatched_again(self, phy: int, size: int) -> bool:
        """Return whether a message is also in other queues than its own, which a property lists."""
        name, at = tree.locate(self._listing, phy)
        return bool(name) and MULTI_DISPATCH in self._listing.read(name, at, min(max(size, 0), _LARGEST))

    def _unordered(
        self, files: Sequence[PlannedFile], listed: Sequence[Int64s]
    ) -> Iterator[tuple[str, Fault]]:
        """Check that the physical offsets in a batch queue rise from file to file."""
        last = -1
        for file, phy in zip(files, listed, strict=True):
            if len(phy) and phy[0] <= last:
                text = f"the first unit points to offset {int(phy[0])}, and one in a file before to {last}"
                system = "consumers do not get the messages of one of these files"
                yield file.name, Fault(NAME, 0, 0, Kind.ORDER, text, Severity.ERROR, system, 0)
            last = max(last, int(phy.max(initial=-1)))

    def _trailing(
        self, file: PlannedFile, units: npt.NDArray[np.void], begun: bool
    ) -> Iterator[tuple[str, Fault]]:
        """Check that no filler follows the units of messages in a file. A broker writes fillers only at the start of a queue (`begun`: this
        file or one before has such units)."""
        used = np.flatnonzero(units["size"] != FILLER)
        first = int(used[-1]) + 1 if len(used) else 0
        if begun and first < len(units):
            size, fillers = units.dtype.itemsize, len(units) - first
            text = f"{plural.count(fillers, 'filler')} after the units of messages"
            system = "the next messages of the queue get other queue offsets"
            at, length = first * size, fillers * size
            yield file.name, Fault(NAME, at, length, Kind.PADDING, text, Severity.ERROR, system, 0)

    def _absent(
        self, absent: Sequence[tuple[tuple[str, int], Int64s]], reached: int
    ) -> Iterator[tuple[str, Fault]]:
        """Report the messages of each queue that have no unit. Those after `reached` are not dispatched yet."""
        late = np.sort(np.concatenate([np.zeros(0, np.int64), *(phy[phy > reached] for _, phy in absent)]))
        for queue, phy in absent:
            missing = phy[phy <= reached]
            if not len(missing):
                continue
            text = f"no unit for {plural.count(len(missing), 'message')} of queue {queue[1]} of {queue[0]}, the first at {int(missing[0])}"
            system = "consumers do not get these messages unless the broker recovers that part of the log"
            lost = {"topic": queue[0], "queue_id": queue[1]}
            files = self._files.by_queue.get(queue)
            name = files[-1].name if files else ""
            # A queue whose topic is damaged cannot be rebuilt.
            severity = Severity.ERROR if tree.is_folder_name(queue[0]) else Severity.WARNING
            yield name, Fault(NAME, 0, 0, Kind.LINK, text, severity, system, 0, lost)
        if len(late):
            name, at = tree.locate(self._listing, int(late[0]))
            last = "last message" if len(late) == 1 else f"last {len(late)} messages"
            text = f"no unit yet for the {last} of the log, from offset {int(late[0])} on"
            system = "a broker adds them when it runs, or in its recovery after an unclean stop"
            yield name, Fault(NAME, at, 0, Kind.LINK, text, Severity.INFO, system, 0)

    def _misplaced(
        self, file: PlannedFile, number: Int64s, places: npt.NDArray[np.int_]
    ) -> Iterator[tuple[str, Fault]]:
        """Check that the units at these places of a file are at the queue offsets of their messages, which are consecutive: otherwise the
        file has the name of another one."""
        queue, (base, beyond) = tree.queue_of(file.name), divmod(tree.start_of(file.name), UNIT.min_size)
        if queue is None or queue[0] in self._batches or tree.is_light(queue) or beyond or not len(places):
            return
        shifts, first = base + places - number, int(number[0] - places[0])
        if shifts[0] == 0 or first < 0 or (shifts != shifts[0]).any() or (np.diff(number) != 1).any():
            return
        text = f"the units are those from queue offset {first} on, so the name of the file should be {first * UNIT.min_size:020d}"
        system = "consumers get these messages under other queue offsets, or not at all"
        lost = {"topic": queue[0], "queue_id": queue[1]}
        yield file.name, Fault(NAME, 0, 0, Kind.ORDER, text, Severity.ERROR, system, 0, lost)

    def _codes(
        self, file: PlannedFile, units: npt.NDArray[np.void], tags: Int64s, among: Iterable[int]
    ) -> Iterator[tuple[str, Fault]]:
        """Compare the tags codes of some units with those of their messages."""
        codes, size = units["tags_code"].astype(np.int64), units.dtype.itemsize
        topic = file.name.split("/")[1]
        compared = _compared(codes, tags) & np.isin(np.arange(len(units)), list(among))
        for i in differing(topic, codes, tags, compared)[:_MOST]:
            if topic == SCHEDULE_TOPIC:
                severity, expected = Severity.WARNING, "the delivery time of the message"
                system = "a broker delivers the message at the wrong time"
            else:
                severity, expected = Severity.ERROR, "the hash of the message's tags"
                system = "a broker filters the message by the wrong tag"
            text = f"the tags code is {codes[i]}, but {expected} is {tags[i]}"
            yield file.name, Fault(NAME, i * size, size, Kind.LINK, text, severity, system, 0)

    def _read(self, file: PlannedFile) -> npt.NDArray[np.void]:
        """Return the units of a file up to the last one with a size."""
        units = units_of(self._listing, file.name, file.size, UNITS[tree.first(file.name)])
        used = np.flatnonzero(units["size"])
        return units[: int(used[-1]) + 1 if len(used) else 0]


def _compared(codes: Int64s, tags: Int64s) -> Bools:
    """Return which tags codes of units can be compared with those of their messages."""
    return np.asarray((codes > FIRST_TAG) & (tags != _NOT_COMPARED), np.bool_)


def _dropped(number: Int64s) -> Bools:
    """Return which messages of a queue get no unit from a broker: one before them has their queue offset or a higher one."""
    out = np.zeros(len(number), np.bool_)
    out[1:] = (number[1:] > 0) & (number[1:] <= np.maximum.accumulate(number)[:-1])
    return out


def _repeated(steps: Int64s) -> Bools:
    """Return which messages of a queue have the queue offset of the one before, while the next one continues it. Brokers give them no
    unit. If the next one leaves a gap, the queue offset is wrong. `steps` are the differences of the queue offsets."""
    out = np.zeros(len(steps) + 1, np.bool_)
    out[1:] = (steps == 0) & (np.r_[steps[1:], 1] == 1)[: len(steps)]
    return out
