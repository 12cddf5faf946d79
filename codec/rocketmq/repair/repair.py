"""Repair a store, so that a broker reads its complete commit log and deletes nothing.

Undamaged messages keep their offsets. Placeholders, fillers and blank records replace lost ones. Consume queues that do not match the result
are rebuilt, and so are damaged index files.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from logwright.codec.arrays import among, groups
from logwright.codec.engine.repair import OutputFile, Removed, Repairer, RepairPlan
from logwright.codec.engine.startup import SystemRepair
from logwright.codec.fault import DamageError
from logwright.codec.frames.codec import Part
from logwright.codec.option import Option, Options
from logwright.codec.rocketmq.check.times import StoreTimes, checkpoint_faults
from logwright.codec.rocketmq.derive import Gaps
from logwright.codec.rocketmq.dispatch import dispatches
from logwright.codec.rocketmq.formats.commitlog.layout import LEAST_BLANK, has_trailer
from logwright.codec.rocketmq.formats.commitlog.read import wrong_ports
from logwright.codec.rocketmq.formats.page import PAGE, checkpoint
from logwright.codec.rocketmq.repair.config_files import replaced
from logwright.codec.rocketmq.repair.derived_files import (
    QUEUES,
    DerivedFiles,
    derived_pieces,
)
from logwright.codec.rocketmq.repair.fillers import blank, filler, placeholder
from logwright.codec.rocketmq.repair.headers import Place, Sequences, placed
from logwright.codec.rocketmq.startup.message import TIMER_TOPIC
from logwright.codec.rocketmq.startup.message_store import StoreConfig
from logwright.codec.rocketmq.startup.start import STARTUP
from logwright.codec.rocketmq.store import tree
from logwright.codec.rocketmq.store.layout import LAYOUT
from logwright.codec.rocketmq.store.log import (
    Log,
    LogFile,
    LostMessage,
    Run,
    is_empty,
    runs_that_fill,
)
from logwright.codec.store.build import Piece
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Listing, Plan
from logwright.codec.store.overlay import Overlay
from logwright.codec.window import Zeros

PLACEHOLDERS = "Lost messages were replaced by placeholders. Consumers get them, with the property LW_LOST."
TIMER_REBUILT = (
    "The timer was damaged or missing, and is rebuilt from the timer queue. "
    "Messages due when the broker stopped may be delivered again."
)
_TIMER = "timer"
REBUILDS = (tree.QUEUE, tree.INDEX, tree.CHECKPOINT, _TIMER)
OPTIONS: tuple[Option, ...] = (*tree.READ_OPTIONS, tree.BROKER_VERSION)


class StoreRepair(Repairer):
    """The phases of a repair."""

    one_copy: ClassVar[tuple[str, str]] = ("{} copies of a store were passed", "Repair one of them")

    def __init__(self, copies: Sequence[Listing], plans: Sequence[Plan], options: Options) -> None:
        super().__init__(copies, plans, options)
        self.listing, self.plan = copies[0], plans[0]
        self.log = Log(self.listing, self.plan, options)
        self.preallocated: list[str] = []
        """Files of zeros after the last message."""
        self.corrections: dict[int, Place] = {}
        """The places of messages with a wrong topic, queue id or queue offset, by physical offset."""
        self.sequences = Sequences()
        self.times = StoreTimes()
        self.stored: dict[int, int] = {}
        """The store times of messages with a wrong one, by physical offset."""
        self.ports: set[int] = set()
        """The physical offsets of the messages with a port that clients refuse."""
        self.queues: dict[tuple[str, int], int] = {}
        """The queues of all messages, with the physical offset of the first message of each."""

    @classmethod
    def as_system(cls, listing: Listing, plan: Plan, options: Options) -> RepairPlan:
        return SystemRepair(STARTUP.run(listing, plan, options, version=None, clean=None), LAYOUT.order)

    def survey(self) -> None:
        for _, part in self.log.read():
            self._follow(part, self.sequences, self.times)
        sequences, times = self.sequences, self.times
        if sum(1 for _ in self.log.strays()) and self.correct:
            # Neighbours in the queues are known when the messages are in order.
            sequences, times = Sequences(), StoreTimes()
            logs = list(StoreResult(self, [file for file in self.files if file.runs]).logs())
            for _, part in Log(Overlay(self.listing, logs), self.plan, self.options).read():
                self._follow(part, sequences, times)
        if self.correct:
            from_zero = bool(self.files) and self.files[0].base == 0
            self.corrections = sequences.corrections(
                self._listed(sequences), self.log.holes(), from_zero=from_zero
            )
            self.stored = {time.phy: time.before for time in times.wrong if time.before == time.after}

    @property
    def config(self) -> StoreConfig:
        return self.log.config

    @property
    def files(self) -> list[LogFile]:
        return self.log.files

    def _follow(self, part: Part, sequences: Sequences, times: StoreTimes) -> None:
        try:
            added = dispatches(part.data, part.start, part.end, tags=False, lmq=self.config.lmq)
        except IndexError:
            return  # a message that a broker refuses
        times.add(part.data, part.start, part.end, added.phy, added.stored)
        if self.correct:
            self.ports.update(
                int(part.head["physical_offset"][i]) for _, i, _ in wrong_ports(part)
                if not has_trailer(part.data, int(part.start[i]), int(part.end[i]))
            )  # fmt: skip
        for queue in added.queues:
            self.queues.setdefault(queue, -1)
        for i, own in groups(added.units.queue):
            if self.queues[added.queues[i]] < 0:
                self.queues[added.queues[i]] = int(added.units.phy[own[0]])
            if added.queues[i][0] not in self.config.batch_topics and not tree.is_light(added.queues[i]):
                sequences.add(added.queues[i], added.units.pick(own))

    def _listed(self, sequences: Sequences) -> dict[int, set[Place]]:
        """Return the units that point to the messages with a possibly wrong header, by physical offset.

        A file that disagrees with most of these messages is not evidence, unless there is only one: it is more likely that of another queue, or
        renamed.
        """
        out: dict[int, set[Place]] = {}
        stored: dict[int, set[Place]] = {}
        for queue, number, at in sequences.candidates():
            stored.setdefault(at, set()).add((*queue, number))
        candidates = np.sort(np.fromiter(stored, np.int64, len(stored)))
        for queue, first, units in self.log.units():
            phy = units["physical_offset"].astype(np.int64)
            listed = [
                (int(phy[i]), (*queue, first + i))
                for i in np.flatnonzero(among(phy, candidates) & (units["size"] > 0)).tolist()
            ]
            own = {place[:2] for at, _ in listed for place in stored[at]}
            if 2 * sum(place in stored[at] for at, place in listed) >= len(listed) or (
                len(listed) == 1 and own == {queue}
            ):
                for at, place in listed:
                    out.setdefault(at, set()).add(place)
        return out

    def reorder(self) -> None:
        """Drop the files after the last message, but keep preallocated ones. The files are already in order.

        Raises `DamageError` if none is left of a store that had messages.
        """
        while self.files and not self.files[-1].runs:
            file = self.files.pop()
            if file.size == self.config.log_size and is_empty(self.listing, file.name, 0, file.size):
                self.preallocated.append(file.name)
        had = any(
            tree.is_log(entry.name) or tree.first(entry.name) in (*QUEUES, tree.INDEX)
            for entry in self.listing.entries()
        )
        if had and not self.files and not self.preallocated:
            raise DamageError(
                "nothing is left: the commit log has no undamaged message",
                path=self.listing.name,
                advice="If the commit log is in other directories, pass storePathCommitLog",
            )

    def salvage(self) -> RepairPlan:
        return StoreResult(self, self.files)

    def go_back(self) -> RepairPlan:
        """Keep the messages before the first loss."""
        kept: list[LogFile] = []
        for file in self.files:
            if kept and file.base != kept[-1].base + self.config.log_size:
                break
            kept.append(replace(file, runs=[run for run in file.runs[:1] if not run.start and not run.moved]))
            if len(kept[-1].runs) < len(file.runs) or file.blank != file.end:
                break
        while kept and not kept[-1].runs:
            kept.pop()
        if not kept and any(file.runs for file in self.files):
            raise DamageError(
                "no message precedes the first damage",
                path=self.listing.name,
                advice="Use strategy salvage",
            )
        return StoreResult(self, kept)


class StoreResult(RepairPlan):
    """The repaired store. `files` are the log files that are kept."""

    def __init__(self, repair: StoreRepair, files: Sequence[LogFile]) -> None:
        super().__init__(repair.listing)
        self.repair, self.kept = repair, files
        self._sources: dict[str, list[tuple[int, int]]] = {}
        """The ranges of each file that are kept."""
        self._begins: dict[tuple[str, int], int] = {}
        self._ends: dict[tuple[str, int], int] = {}
        """The physical offsets at which these ranges begin and end, by file and position."""
        self._stored = 0
        """The store time of the message before those that are written next."""
        self.rows = sum(run.count for file in files for run in file.runs)
        self.ids = {"last_physical_offset": files[-1].base + files[-1].runs[-1].last_start} if files else {}

    @cached_property
    def lost(self) -> list[LostMessage]:
        """The lost messages whose places in their queues are known, by physical offset. Units at another place are of another queue, or in a
        renamed file."""
        repair, queues = self.repair, defaultdict[tuple[str, int], list[LostMessage]](list)
        for lost in repair.log.lost_messages():
            queue = lost.topic, lost.queue_id
            if repair.sequences.has_room(queue, lost.number, lost.phy, repair.corrections):
                queues[queue].append(lost)
        out = []
        for listed in queues.values():
            numbers = sorted({lost.number for lost in listed})  # two units may be exchanged
            out += [replace(lost, number=number) for lost, number in zip(listed, numbers, strict=False)]
        return sorted(out, key=lambda lost: lost.phy)

    # The commit log

    def logs(self) -> Iterator[OutputFile]:
        """Yield the files of the commit log."""
        size = self.repair.config.log_size
        for i, file in enumerate(self.kept):
            if i:
                for base in range(self.kept[i - 1].base + size, file.base, size):
                    filling = self._fill(base, size, self._stored, True)
                    yield OutputFile(f"{tree.LOG}/{base:020d}", filling, self.kept[0].name)
            pieces = [piece for piece in self._pieces(file, last=i == len(self.kept) - 1) if len(piece)]
            like = file.name if file.name in self.sizes else None
            yield OutputFile(f"{file.name.rpartition('/')[0]}/{file.base:020d}", pieces, like)
        self._note_removed()
        if any(file.moved_runs for file in self.kept):
            self.notes.append("Displaced messages were moved back to their physical offsets.")

    def _copied(self, file: LogFile, run: Run, start: int) -> Iterator[Extent]:
        """Return the messages of a run from `start` on, with wrong topics, queue ids, queue offsets, store times and ports replaced."""
        places, times, ports = self.repair.corrections, self.repair.stored, self.repair.ports
        wrong = sorted(phy - file.base for phy in {*places, *times, *ports})
        for at in wrong[bisect_left(wrong, start) : bisect_left(wrong, run.stop)]:
            size = int.from_bytes(self.listing.read(run.name, at - run.moved, 4), "big")
            message = self.listing.read(run.name, at - run.moved, size)
            yield from run.copied(start, at)
            yield placed(message, places.get(file.base + at), times.get(file.base + at))
            if file.base + at in places:
                self.notes.append("Wrong topics, queue ids or queue offsets of messages were corrected.")
            if file.base + at in times:
                self.notes.append("Wrong store times of messages were corrected.")
            if file.base + at in ports:
                self.notes.append(
                    "Clients refused messages with ports above 65535 or below 0: the first two bytes of these ports are 0 now."
                )
            start = at + size
        yield from run.copied(start, run.stop)

    def _pieces(self, file: LogFile, *, last: bool) -> Iterator[Extent]:
        size, at = self.repair.config.log_size, 0
        ends = file.blank == file.end or (last and is_empty(self.listing, file.name, file.end, file.size))
        if file.whole and file.size == size and ends:
            self._sources[file.name] = [(0, size)]
            self._stored = file.stored
            yield from self._copied(file, replace(file.runs[0], stop=size), 0)
            return
        for run, start in self._runs(file):
            if start > at:
                yield from self._fill(file.base + at, start - at, self._stored or run.stored, False)
            yield from self._copied(file, run, start)
            self._stored = run.stored
            copied = run.copied(start, run.stop)
            for source in copied:
                self._sources.setdefault(source.file, []).append((source.start, source.stop))
            self._begins[copied[0].file, copied[0].start] = file.base + start
            self._ends[copied[-1].file, copied[-1].stop] = file.base + run.stop
            at = run.stop
        if last and file.blank != at:
            yield Zeros(size - at)
        else:
            yield from self._fill(file.base + at, size - at, self._stored, True, tile=file.blank != at)

    def _note_removed(self) -> None:
        """Note the bytes of the commit log that are not in the result."""
        kept = {file.name: file for file in self.kept}
        for entry in tree.logs(self.listing):
            name, at, file = entry.name, 0, kept.get(entry.name)
            if name in self.repair.preallocated:
                continue
            for start, stop in sorted(self._sources.get(name, ())):
                if start > at:
                    self.cut += self._removed(name, at, start)
                at = stop
            if at >= entry.size or (file is not None and file.blank - file.moved == at):
                continue
            if file in (None, *self.kept[-1:]) and is_empty(self.listing, name, at, entry.size):
                continue
            why = "no undamaged message follows in the file" if at else "it has no undamaged message"
            self.cut.append(Removed(name, at, entry.size - at, why))

    def _removed(self, name: str, start: int, stop: int) -> list[Removed]:
        """Return the removed bytes between kept messages: the lost messages if the consume queues list one for each byte, else one range."""
        begin = self._ends.get((name, start), tree.base_of(name) if not start else None)
        end = self._begins.get((name, stop))
        runs = [] if begin is None or end is None else runs_that_fill(self.lost, begin, end)
        if begin is None or end is None or not runs or (len(runs) > 1 and end - begin != stop - start):
            return [Removed(name, start, stop - start, "damaged", 0, None, {})]
        out = []
        for run in runs:
            first, last = run[0], run[-1]
            size = stop - start if len(runs) == 1 else last.phy + last.size - first.phy
            at = start + first.phy - begin
            out.append(Removed(name, at, size, "damaged", 0, len(run), first.until(last)))
        return out

    def _runs(self, file: LogFile) -> Iterator[tuple[Run, int]]:
        """Yield each run and where it starts. Its first message is dropped if the gap before it is too small for a filler."""
        at = 0
        for run in file.runs:
            start = run.start
            if start > at and filler(0, start - at, 0) is None:
                start = run.first_stop
                self.rows -= 1
            if start < run.stop:
                yield run, start
                at = run.stop

    def _fill(self, phy: int, size: int, stored: int, to_end: bool, *, tile: bool = True) -> list[Extent]:
        """Return messages that replace `size` bytes. With `to_end` the bytes are the end of a file, which may be a blank record."""
        out: list[Extent] = []
        at, stop = phy, phy + size - (LEAST_BLANK if to_end else 0)
        for lost in self.lost if tile else ():
            end = lost.phy + lost.size
            rest = filler(end, stop - end, 0) is not None or end == stop or (to_end and end <= stop)
            if lost.phy < at or end > stop or not rest:
                continue
            between = filler(at, lost.phy - at, stored) if lost.phy > at else b""
            message = placeholder(lost, stored)
            if message is not None and between is not None:
                out += [piece for piece in (between, message) if piece]
                self.notes.append(PLACEHOLDERS)
                at = end
        left = phy + size - at
        if left and to_end:
            out += [blank(left), Zeros(left - LEAST_BLANK)]
        elif left:
            message = filler(at, left, stored)
            assert message is not None  # gaps between runs have room for a filler
            out.append(message)
        return out

    # Derived files

    def outputs(self) -> Iterator[OutputFile | Piece]:
        logs = list(self.logs())
        result = self.listing if self._unchanged(logs) else Overlay(self.listing, logs)
        repair, low = self.repair, self.kept[0].base if self.kept else -1
        derived = DerivedFiles(
            self.listing, repair.plan, repair.config, repair.options, repair.queues, low, correct=repair.correct
        )  # fmt: skip
        queues = tree.has_rocksdb_queues(self.listing) or derived.are_queues_sound(result)
        if derived.tagged:
            result = Overlay(self.listing, logs := list(self._with_tags(logs, derived.tagged)))
        same = self._unchanged(logs)
        preallocated = self.repair.preallocated if same else []
        index = derived.is_index_sound(result, complete=not (same and queues))
        damaged = not (same and queues and index)
        remade = set()
        last = self.kept[-1] if self.kept else None
        stored, end = (last.stored, last.base + last.runs[-1].last_start) if last else (0, 0)
        if self.sizes.get(tree.CHECKPOINT, PAGE) != PAGE or (
            last is not None
            and (
                damaged
                or any(checkpoint_faults(self.listing, self.repair.times.newest, last.base + last.end))
            )
        ):
            remade = {tree.CHECKPOINT}
        topics = {queue for queue in self.repair.queues if not tree.is_light(queue)}
        config = list(replaced(self.listing, topics, self.repair.config.batch_topics))
        for name, data, note in config:
            if name == tree.ABORT and damaged:
                continue
            self.notes.append(note)
            if data is not None:
                yield self.rewritten(name, data)
        remade.update(name for name, *_ in config)
        if not derived.is_timer_sound():
            self.notes.append(TIMER_REBUILT)
            remade.update(name for name in self.sizes if tree.is_timer(name))
            for name, pieces in derived.timer(result):
                yield self.rewritten(name, *pieces)
        for entry in self.listing.entries():
            name, folder = entry.name, tree.first(entry.name)
            keep = index if folder == tree.INDEX else not tree.is_log(name)
            if folder in QUEUES:
                keep = queues or _is_beside_queues(name) or tree.queue_of(name) in derived.deleted
            if keep and name not in remade and (name != tree.ABORT or not damaged):
                yield self.unchanged(name)
        full_at = yield from derived.derive(result, queues=not queues, index=not index)
        if tree.CHECKPOINT in remade:
            yield self.rewritten(tree.CHECKPOINT, checkpoint(stored, end, full_at))
        yield from logs
        for name in preallocated:
            yield self.unchanged(name)

    def _unchanged(self, logs: Sequence[OutputFile]) -> bool:
        """Return whether these are the files of the commit log as they are."""
        copied = [file.pieces == [Copy(file.name, 0, self.sizes.get(file.name, -1))] for file in logs]
        return all(copied) and len(logs) + len(self.repair.preallocated) == len(tree.logs(self.listing))

    def _with_tags(self, logs: Sequence[OutputFile], tagged: Mapping[int, bytes]) -> Iterator[OutputFile]:
        """Yield the files of the commit log with the messages in them whose tags were corrected."""
        self.notes.append(
            "Wrong tags of messages were corrected: their consume queue has the hash of the right ones."
        )
        result = Overlay(self.listing, logs)
        for phy, message in sorted(tagged.items()):
            name, at = tree.locate(result, phy)
            rest = result.extents(name, at + len(message), result.size(name))
            result.assemble(name, [*result.extents(name, 0, at), message, *rest])
        for file in logs:
            yield replace(file, pieces=result.pieces(file.name))


class StoreRebuild(RepairPlan):
    """A store with the derived files of these kinds rebuilt. The commit log is checked while it is read."""

    def __init__(self, repair: StoreRepair, kinds: Sequence[str]) -> None:
        super().__init__(repair.listing)
        self._kinds, self._repair = kinds, repair

    def outputs(self) -> Iterator[OutputFile | Piece]:
        queues = tree.QUEUE in self._kinds and not tree.has_rocksdb_queues(self.listing)
        index = tree.INDEX in self._kinds
        dropped = {*(QUEUES if queues else ()), *((tree.INDEX,) if index else ())}
        for name in self.sizes:
            kept = tree.first(name) not in dropped or _is_beside_queues(name)
            if kept and name != tree.CHECKPOINT and not tree.is_timer(name):
                yield self.unchanged(name)
        config, options, messages = self._repair.config, self._repair.options, self._repair.log.read()
        deriver = yield from derived_pieces(
            self.listing, config, options, Gaps.APPEND, queues=queues, index=index, messages=messages
        )
        timed = (TIMER_TOPIC, 0) in deriver.queues or any(map(_is_timer_queue, self.sizes))
        for _ in messages:
            pass  # neither queues nor index are rebuilt
        last = self._sound()
        if last is not None and tree.CHECKPOINT in self._kinds:
            full_at = deriver.index.full_at if index else self._derived.full_at()
            end = last.base + last.runs[-1].last_start
            yield self.rewritten(tree.CHECKPOINT, checkpoint(last.stored, end, full_at))
        elif tree.CHECKPOINT in self.sizes:
            yield self.unchanged(tree.CHECKPOINT)
        yield from self._timer(timed)

    @cached_property
    def _derived(self) -> DerivedFiles:
        repair = self._repair
        return DerivedFiles(self.listing, repair.plan, repair.config, repair.options, {}, -1, correct=False)

    def _timer(self, timed: bool) -> Iterator[OutputFile]:
        """Yield the files of the timer. They are derived if they are damaged, or missing although the timer queue has messages (`timed`)."""
        present = [name for name in self.sizes if tree.is_timer(name)]
        loaded = self._repair.config.timer_size is not None
        rebuilds = _TIMER in self._kinds and loaded and (timed or present)
        if rebuilds and not (present and self._derived.is_timer_sound()):
            self.notes.append(TIMER_REBUILT)
            for name, pieces in self._derived.timer(self.listing):
                yield self.rewritten(name, *pieces)
            return
        for name in present:
            yield self.unchanged(name)

    def _sound(self) -> LogFile | None:
        """Return the last file of the commit log with messages. Raises `DamageError` if the commit log is damaged."""
        self._repair.reorder()
        files = self._repair.files
        result = StoreResult(self._repair, files)
        names = [file.name for file in files]
        if (
            [file.name for file in result.logs()] != names
            or result.cut
            or any(file.moved_runs or file.size != self._repair.config.log_size for file in files)
        ):
            cut = result.cut[0] if result.cut else None
            raise DamageError(
                "the commit log is damaged; queues and index can only be rebuilt from an undamaged one",
                path=cut.file if cut else None, offset=cut.offset if cut else None, advice="Repair the store instead",
            )  # fmt: skip
        self.rows, self.ids = result.rows, result.ids
        return files[-1] if files else None


def _is_beside_queues(name: str) -> bool:
    """Return whether a file is beside the folders of topics, where brokers ignore it, or have their RocksDB."""
    return tree.first(name) in QUEUES and name.count("/") == 1


def _is_timer_queue(name: str) -> bool:
    return name.startswith(f"{tree.QUEUE}/{TIMER_TOPIC}/")


def rebuild(listing: Listing, plan: Plan, kinds: Sequence[str], options: Options) -> RepairPlan:
    """See `codec.capability.Rebuild`. Raises `DamageError` if the commit log is damaged."""
    repair = StoreRepair([listing], [plan], options)
    for name, read in tree.copies(listing).items():
        raise DamageError(
            f"{read} is the file of the same offset", path=name, advice="Repair the store instead"
        )
    if tree.topics(listing) is None:
        for _ in repair.log.read():
            pass  # only the messages say which topics have batches
    return StoreRebuild(repair, kinds)
