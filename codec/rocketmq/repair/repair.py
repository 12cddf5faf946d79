"""Repair a store, so that a broker reads its complete commit log and deletes nothing.

Undamaged messages keep their offsets. Placeholders, fillers and blank records replace lost ones. Consume queues that do not match the result
are rebuilt, and so are damaged index files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from logwright.codec.base import Codec
from logwright.codec.describe import dtype_of
from logwright.codec.engine.derive import Rebuild
from logwright.codec.engine.repair import OutputFile, Removed, Repairer, RepairPlan
from logwright.codec.engine.startup import SystemRepair
from logwright.codec.fault import DamageError, Severity
from logwright.codec.frames.codec import Part
from logwright.codec.frames.scanner import MAIN, MARKER
from logwright.codec.frames.walk import Hole, ListedFile, Stretch, Walk, good_frames
from logwright.codec.option import Option, Options
from logwright.codec.rocketmq.formats.commitlog.codec import CODEC as LOG
from logwright.codec.rocketmq.formats.commitlog.read import Messages, store_timestamps
from logwright.codec.rocketmq.formats.consumequeue import FILLER, UNIT
from logwright.codec.rocketmq.formats.consumequeue_ext import CODEC as EXT
from logwright.codec.rocketmq.formats.indexfile import CODEC as INDEX
from logwright.codec.rocketmq.formats.indexfile import entry_at
from logwright.codec.rocketmq.formats.page import CHECKPOINT, PAGE
from logwright.codec.rocketmq.repair.fillers import LostMessage, blank, filler, placeholder
from logwright.codec.rocketmq.startup.consume_queue import ConsumeQueue
from logwright.codec.rocketmq.startup.message import Message
from logwright.codec.rocketmq.startup.message_store import MessageStore, StoreConfig, Version
from logwright.codec.rocketmq.startup.start import STARTUP
from logwright.codec.rocketmq.store import tree
from logwright.codec.rocketmq.store.layout import LAYOUT
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Listing, Plan, Role
from logwright.codec.store.overlay import Overlay
from logwright.codec.window import Zeros

_UNIT = dtype_of(UNIT)
_NEWEST = Version((5, 5, 0))
_LEAST_BLANK = 8
REBUILDS = (tree.QUEUE, tree.INDEX, tree.CHECKPOINT)
OPTIONS: tuple[Option, ...] = tree.READ_OPTIONS


@dataclass
class LogFile:
    """A file of the commit log. `starts` and `ends` are the ranges of its undamaged messages, `stored` is the store time of the last one."""

    name: str
    base: int
    size: int
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    stored: int = 0
    blank: int = -1
    """The offset of the final blank record, or -1."""

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else 0


class StoreRepair(Repairer):
    """The phases of a repair."""

    one_copy: ClassVar[tuple[str, str]] = ("{} copies of a store were given", "Repair one of them")

    def __init__(self, copies: Sequence[Listing], plans: Sequence[Plan], options: Options) -> None:
        super().__init__(copies, plans, options)
        self.listing, self.plan = copies[0], plans[0]
        self.config = tree.config_of(self.listing, options)
        self.files: list[LogFile] = []
        self.preallocated: list[str] = []
        """Files of zeros after the last message."""
        self.numbers: set[tuple[str, int, int]] = set()
        """Topic, queue and queue offset of each undamaged message."""

    @classmethod
    def as_system(cls, listing: Listing, plan: Plan, options: Options) -> RepairPlan:
        return SystemRepair(STARTUP.run(listing, plan, options, version=None, clean=None), LAYOUT.order)

    def survey(self) -> None:
        for entry in tree.logs(self.listing):
            file = LogFile(entry.name, tree.base_of(entry.name) or 0, entry.size)
            context = LOG.context(entry.name.rpartition("/")[2], Options(LOG.options))
            for window, frames in good_frames(
                Walk(ListedFile(self.listing, entry.name, entry.size), LOG, context)
            ):
                kind = frames.header["frame_kind"]
                for i in np.flatnonzero(kind == MARKER).tolist():
                    start = int(frames.start[i]) + window.offset
                    file.blank = start if frames.header["total_size"][i] == entry.size - start else -1
                good = frames.pick(kind == MAIN)
                if len(good):
                    part = Part(window.data, good.start, good.end, good.header, window.offset)
                    file.starts += (good.start + window.offset).tolist()
                    file.ends += (good.end + window.offset).tolist()
                    file.stored = int(store_timestamps(part.pick(slice(-1, None)))[0])
                    self.numbers.update(
                        zip(
                            Messages(part, 1).column_topic().to_pylist(),
                            good.header["queue_id"].tolist(),
                            good.header["queue_offset"].tolist(),
                            strict=True,
                        )
                    )
            file.blank = file.blank if file.blank >= file.end else -1
            self.files.append(file)

    def reorder(self) -> None:
        """Drop the files after the last message, but keep preallocated ones. The files are already in order."""
        while self.files and not self.files[-1].starts:
            file = self.files.pop()
            if file.size == self.config.log_size and not any(_blocks(self.listing, file.name, 0, file.size)):
                self.preallocated.append(file.name)

    def salvage(self) -> RepairPlan:
        return StoreResult(self, self.files)

    def go_back(self) -> RepairPlan:
        """Keep the messages before the first loss."""
        kept: list[LogFile] = []
        for file in self.files:
            base = kept[-1].base + self.config.log_size if kept else file.base
            if file.base != base:
                break
            at = next(
                (i for i, start in enumerate(file.starts) if start != (file.ends[i - 1] if i else 0)),
                len(file.starts),
            )
            kept.append(
                LogFile(
                    file.name, file.base, file.size, file.starts[:at], file.ends[:at], file.stored, file.blank
                )
            )
            if at < len(file.starts) or file.blank != file.end:
                break
        while kept and not kept[-1].starts:
            kept.pop()
        if not kept and any(file.starts for file in self.files):
            raise DamageError(
                "no message precedes the first damage",
                path=self.listing.name,
                advice="Use strategy salvage",
            )
        return StoreResult(self, kept)

    def lost_messages(self) -> list[LostMessage]:
        """Return the messages that consume queues list and the log lacks, by physical offset."""
        out: dict[int, LostMessage] = {}
        for file in self.plan.files:
            queue = tree.queue_of(file.name)
            if file.role is not Role.DERIVED or queue is None or tree.first(file.name) != tree.QUEUE:
                continue
            if queue[0].startswith("%LMQ%"):
                continue
            data = self.listing.read(file.name)
            units = np.frombuffer(data[: len(data) // _UNIT.itemsize * _UNIT.itemsize], _UNIT)
            good = (units["physical_offset"] >= 0) & (units["size"] > 0) & (units["size"] != FILLER)
            first = (tree.base_of(file.name) or 0) // _UNIT.itemsize
            for i in np.flatnonzero(good).tolist():
                if (*queue, first + i) not in self.numbers:
                    phy, size = int(units["physical_offset"][i]), int(units["size"][i])
                    out.setdefault(phy, LostMessage(phy, size, *queue, first + i))
        return [out[phy] for phy in sorted(out)]


class AlignedStore(MessageStore):
    """Rebuilds queues in which each message keeps its queue offset. The unit of a lost offset points to the next message."""

    def _dispatch(self, message: Message) -> None:
        queue = self._open(message.topic, message.queue_id)
        if isinstance(queue, ConsumeQueue) and queue.queue.files:
            for number in range(queue.max_offset, message.queue_offset):
                queue.max_phy = -1
                queue.put(message, number)
            if queue.max_phy == message.phy + message.size:
                queue.max_phy = message.phy
        super()._dispatch(message)


class StoreResult(RepairPlan):
    """The repaired store. `files` are the log files that are kept."""

    def __init__(self, repair: StoreRepair, files: Sequence[LogFile]) -> None:
        super().__init__(repair.listing)
        self.repair, self.kept = repair, files
        self.rows = sum(len(file.starts) for file in files)
        self.ids = {"last_physical_offset": files[-1].base + files[-1].starts[-1]} if files else {}
        self.lost = repair.lost_messages()

    # The commit log

    def _logs(self) -> Iterator[OutputFile]:
        size = self.repair.config.log_size
        for i, file in enumerate(self.kept):
            if i:
                for base in range(self.kept[i - 1].base + size, file.base, size):
                    yield OutputFile(
                        f"{tree.LOG}/{base:020d}",
                        self._fill(base, size, file.stored, True),
                        self.kept[0].name,
                    )
            pieces = list(self._pieces(file, last=i == len(self.kept) - 1))
            yield OutputFile(f"{file.name.rpartition('/')[0]}/{file.base:020d}", pieces, file.name)
        kept = {file.name for file in self.kept}.union(self.repair.preallocated)
        for entry in tree.logs(self.listing):
            if entry.name not in kept and any(self.listing.read(entry.name, 0, 1 << 16)):
                self.cut.append(Removed(entry.name, 0, entry.size, "it has no undamaged message"))

    def _pieces(self, file: LogFile, *, last: bool) -> Iterator[Extent]:
        size = self.repair.config.log_size
        at = 0
        runs = self._runs(file)
        sound = all(start == (runs[i - 1][1] if i else 0) for i, (start, _) in enumerate(runs))
        if sound and file.size == size and (file.blank == file.end or (last and self._clean_tail(file))):
            yield Copy(file.name, 0, size)
            return
        for start, stop in runs:
            if start > at:
                filling = self._fill(file.base + at, start - at, file.stored, False)
                self.cut.append(Removed(file.name, at, start - at, "damaged", 0, None, {}))
                yield from filling
            yield Copy(file.name, start, stop)
            at = stop
        if last:
            if file.size > at and not self._clean_tail(file):
                self.cut.append(
                    Removed(file.name, at, file.size - at, "it follows the last undamaged message")
                )
            if file.blank == at:
                yield from self._fill(file.base + at, size - at, file.stored, True, tile=False)
            else:
                yield Zeros(size - at)
        else:
            if file.blank != at:
                self.cut.append(
                    Removed(file.name, at, max(file.size - at, 0), "no undamaged message follows in the file")
                )
            yield from self._fill(file.base + at, size - at, file.stored, True, tile=file.blank != at)

    def _runs(self, file: LogFile) -> list[tuple[int, int]]:
        """Return the ranges of contiguous undamaged messages. A message is dropped if the gap before it is too small for a filler."""
        runs: list[tuple[int, int]] = []
        for start, end in zip(file.starts, file.ends, strict=True):
            at = runs[-1][1] if runs else 0
            if start == at and runs:
                runs[-1] = runs[-1][0], end
            elif start == at or filler(0, start - at, 0) is not None:
                runs.append((start, end))
            else:
                self.rows -= 1
        return runs

    def _clean_tail(self, file: LogFile) -> bool:
        return not any(_blocks(self.listing, file.name, file.end, file.size))

    def _fill(self, phy: int, size: int, stored: int, to_end: bool, *, tile: bool = True) -> list[Extent]:
        """Return messages that replace `size` bytes. With `to_end` the bytes are the end of a file, which may be a blank record."""
        out: list[Extent] = []
        at, stop = phy, phy + size - (_LEAST_BLANK if to_end else 0)
        for lost in self.lost if tile else ():
            end = lost.phy + lost.size
            rest = filler(end, stop - end, 0) is not None or end == stop or (to_end and end <= stop)
            if lost.phy < at or end > stop or not rest:
                continue
            between = filler(at, lost.phy - at, stored) if lost.phy > at else b""
            message = placeholder(lost, stored)
            if message is not None and between is not None:
                out += [piece for piece in (between, message) if piece]
                at = end
        left = phy + size - at
        if left and to_end:
            out += [blank(left), Zeros(left - _LEAST_BLANK)]
        elif left:
            message = filler(at, left, stored)
            assert message is not None  # gaps between runs have room for a filler
            out.append(message)
        return out

    # Derived files

    def outputs(self) -> Iterator[OutputFile]:
        logs = list(self._logs())
        changed = [
            file for file in logs if file.pieces != [Copy(file.name, 0, self.sizes.get(file.name, -1))]
        ]
        derived = derived_files(self.listing, logs, self.repair.config)
        preallocated = [] if changed else self.repair.preallocated
        same = self._sound_queues(derived)
        rebuilt = {name: data for name, data in derived.items() if tree.first(name) != tree.INDEX}
        index = self._sound_index()
        if not index:
            rebuilt |= {name: data for name, data in derived.items() if tree.first(name) == tree.INDEX}
        damaged = (
            changed or len(logs) + len(preallocated) != len(tree.logs(self.listing)) or not same or not index
        )
        if self.kept and (damaged or self.sizes.get(tree.CHECKPOINT, PAGE) != PAGE):
            rebuilt[tree.CHECKPOINT] = checkpoint(
                self.kept[-1].stored, self.kept[-1].base + self.kept[-1].starts[-1]
            )
        for entry in self.listing.entries():
            name, folder = entry.name, tree.first(entry.name)
            if folder in (tree.QUEUE, tree.EXT, tree.BATCH):
                if same:
                    yield self.unchanged(name)
            elif folder == tree.INDEX:
                if index:
                    yield self.unchanged(name)
            elif not tree.is_log(name) and name not in rebuilt and (name != tree.ABORT or not damaged):
                yield self.unchanged(name)
        for name, data in rebuilt.items():
            if not (same and tree.first(name) in (tree.QUEUE, tree.EXT, tree.BATCH)):
                yield self.made(name, data)
        yield from logs
        for name in preallocated:
            yield self.unchanged(name)
        if self.cut:
            self.notes.append(
                "Lost messages were replaced by placeholders. Consumers get them, with the property LW_LOST."
            )

    def _sound_queues(self, derived: Mapping[str, bytes]) -> bool:
        """Return whether the existing queues point to the messages of the result."""
        remaining = {name for name in self.sizes if tree.first(name) in (tree.QUEUE, tree.BATCH)}
        for name in self.sizes:
            if tree.first(name) == tree.EXT and not self._sound(name, EXT, self.repair.config.ext_size, {}):
                return False
        for name, data in derived.items():
            if tree.first(name) in (tree.QUEUE, tree.BATCH):
                if self.sizes.get(name) != len(data):
                    return False
                if not self._agrees(name, data):
                    return False
                remaining.discard(name)
        # Older queue files may point to deleted messages.
        low = self.kept[0].base if self.kept else -1
        return all(self._leads_below(name, low) for name in remaining)

    def _leads_below(self, name: str, low: int) -> bool:
        """Return whether all units of a queue file point before the start of the log."""
        if (
            tree.queue_of(name) is None
            or tree.base_of(name) is None
            or tree.first(name) == tree.BATCH
            or not self.sizes[name]
        ):
            return False
        data = self.listing.read(name)
        units = np.frombuffer(data[: len(data) // _UNIT.itemsize * _UNIT.itemsize], _UNIT)
        return bool((units["physical_offset"] < low).all())

    def _agrees(self, name: str, data: bytes) -> bool:
        stored = self.listing.read(name)
        if stored == data or tree.first(name) == tree.BATCH:
            return stored == data
        old, new = (np.frombuffer(content, _UNIT) for content in (stored, data))
        same = (old["physical_offset"] == new["physical_offset"]) & (old["size"] == new["size"])
        return bool((same | (new["size"] == FILLER)).all())

    def _sound_index(self) -> bool:
        """Return whether all index files are undamaged."""
        slots = self.repair.config.slots
        size = entry_at(slots, self.repair.config.entries)
        for entry in self.listing.entries():
            if tree.first(entry.name) != tree.INDEX:
                continue
            if tree.base_of(entry.name) is None or not self._sound(entry.name, INDEX, size, {"slots": slots}):
                return False
        return True

    def _sound(self, name: str, codec: Codec, size: int, hints: Mapping[str, int]) -> bool:
        """Return whether a file has the expected size and no damage."""
        if self.sizes[name] != size:
            return False
        context = codec.context(name.rpartition("/")[2], Options(codec.options), **hints)
        for item in Walk(ListedFile(self.listing, name, size), codec, context):
            if isinstance(item, Hole) and item.fault.severity is not Severity.INFO:
                return False
            if isinstance(item, Stretch) and any(fault.severity is Severity.ERROR for fault in item.faults):
                return False
        return True


def _blocks(listing: Listing, name: str, start: int, stop: int) -> Iterator[bool]:
    """Yield for each block of a range whether it has a nonzero byte."""
    for at in range(start, stop, 1 << 20):
        yield any(listing.read(name, at, min(1 << 20, stop - at)))


def derived_files(listing: Listing, logs: Sequence[OutputFile], config: StoreConfig) -> dict[str, bytes]:
    """Return the consume queue and index files derived from commit log files."""
    overlay = Overlay(listing, logs)
    store = AlignedStore(overlay, replace(config, recover_max=1 << 30), _NEWEST, clean=True)
    store.load()
    return {
        entry.name: overlay.read(entry.name) for entry in overlay.entries() if not tree.is_log(entry.name)
    }


def checkpoint(stored: int, phy: int) -> bytes:
    """Return the checkpoint of a store whose last message has store time `stored` and physical offset `phy`."""
    row = {
        "physic_msg_timestamp": stored, "logics_msg_timestamp": stored, "index_msg_timestamp": 0, "master_flushed_offset": 0,
        "confirm_phy_offset": phy, "logics_physical_offset": phy,
    }  # fmt: skip
    return bytes(CHECKPOINT.form(pa.Table.from_pylist([row])))


def rebuild(listing: Listing, plan: Plan, kinds: Sequence[str], options: Options) -> RepairPlan:
    """See `codec.capability.Rebuild`. Raises `DamageError` if the commit log is damaged."""
    repair = StoreRepair([listing], [plan], options).prepared()
    result = StoreResult(repair, repair.files)
    logs = list(result._logs())
    if result.cut or [file.name for file in logs] != [file.name for file in repair.files]:
        cut = result.cut[0] if result.cut else None
        raise DamageError(
            "the commit log is damaged; queues and index can only be rebuilt from an undamaged one",
            path=cut.file if cut else None, offset=cut.offset if cut else None, advice="Repair the store instead",
        )  # fmt: skip
    derived = derived_files(listing, logs, repair.config)
    folders = {tree.QUEUE: (tree.QUEUE, tree.BATCH, tree.EXT), tree.INDEX: (tree.INDEX,), tree.CHECKPOINT: ()}
    chosen = {folder for kind in kinds for folder in folders[kind]}
    outputs: dict[str, Sequence[bytes]] = {
        name: [data] for name, data in derived.items() if tree.first(name) in chosen
    }
    if tree.CHECKPOINT in kinds and repair.files:
        last = repair.files[-1]
        outputs[tree.CHECKPOINT] = [checkpoint(last.stored, last.base + last.starts[-1])]
    dropped = [name for name in result.sizes if tree.first(name) in chosen and name not in outputs]
    out = Rebuild(listing, outputs, dropped)
    out.rows, out.ids = result.rows, result.ids
    return out
