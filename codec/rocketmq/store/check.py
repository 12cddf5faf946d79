"""Compare the files of a store: consume queues with the log, and queue offsets for gaps.

Source: `ConsumeQueue.putMessagePositionInfo`, `CommitLog.getMessage` of RocketMQ.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from logwright.codec import plural
from logwright.codec.columns import groups_of
from logwright.codec.describe import dtype_of
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.fixed import without_zeros
from logwright.codec.frames.codec import Part
from logwright.codec.frames.scanner import MAIN
from logwright.codec.java import java_string
from logwright.codec.option import Options
from logwright.codec.rocketmq.formats.batchconsumequeue import UNIT as BATCH_UNIT
from logwright.codec.rocketmq.formats.commitlog.layout import PREPARED, ROLLBACK, TRANSACTION
from logwright.codec.rocketmq.formats.commitlog.read import Messages
from logwright.codec.rocketmq.formats.consumequeue import FILLER, UNIT
from logwright.codec.rocketmq.store import tree
from logwright.codec.store.listing import Listing, Plan, PlannedFile, Role
from logwright.codec.window import Frames, Window

Int64s = npt.NDArray[np.int64]
NAME = "rocketmq.store"
ADVICE = (
    "Copy the store before a broker is started on it. The broker ends the log at the first bad message that it reads, and deletes all later "
    "files.",
    "If only queues or index are damaged, remove consumequeue, index and checkpoint, and create a file abort. The broker then rebuilds "
    "them.",
)
_MOST = 20
_QUEUES = {tree.QUEUE: dtype_of(UNIT), tree.BATCH: dtype_of(BATCH_UNIT)}


class StoreChecker:
    """See `logwright.codec.capability.Check`."""

    def __init__(self, listing: Listing, plan: Plan) -> None:
        self._listing, self._plan = listing, plan
        self._file: PlannedFile | None = None
        self._topics: dict[bytes, int] = {}
        self._blocks: list[tuple[Int64s, ...]] = []
        self._end = -1
        self._holes: list[int] = []
        """The physical offsets of messages with unreadable or missing bytes before them."""

    def begin(self, file: PlannedFile) -> None:
        self._file = file

    def add(self, window: Window, frames: Frames) -> None:
        if self._file is None or self._file.codec != "rocketmq.commitlog":
            return
        start = tree.base_of(self._file.name) or 0
        places = frames.start + window.offset + start
        ends = np.r_[self._end, frames.end[:-1] + window.offset + start]
        self._holes += places[(places != ends) & (ends >= 0)].tolist()
        self._end = int(frames.end[-1]) + window.offset + start
        frames = frames.pick(frames.header["frame_kind"] == MAIN)
        if not len(frames):
            return
        part = Part(window.data, frames.start, frames.end, frames.header, window.offset)
        stored = Messages(part, 1).column_topic().cast("binary").dictionary_encode()
        codes = np.array(
            [self._topics.setdefault(name, len(self._topics)) for name in stored.dictionary.to_pylist()],
            np.int64,
        )
        base = tree.base_of(self._file.name) or 0
        head = frames.header
        kind = head["sys_flag"].astype(np.int64) & TRANSACTION
        queued = (kind != PREPARED) & (kind != ROLLBACK)
        self._blocks.append(
            tuple(
                np.ascontiguousarray(values[queued]).astype(np.int64)
                for values in (
                    frames.start + window.offset + base, frames.end - frames.start, codes[np.asarray(stored.indices)],
                    head["queue_id"], head["queue_offset"],
                )
            )
        )  # fmt: skip

    def finish(self) -> Iterator[tuple[str, Fault]]:
        empty = np.zeros(0, np.int64)
        phy, size, topic, queue, number = (
            np.concatenate([empty, *(block[i] for block in self._blocks)]) for i in range(5)
        )
        names = {code: java_string(name) for name, code in self._topics.items()}
        numbers: dict[tuple[str, int], Int64s] = {}
        for group in groups_of(topic << 32 | queue & 0xFFFFFFFF):
            group = group[np.argsort(phy[group], kind="stable")]
            numbers[names[int(topic[group[0]])], int(queue[group[0]])] = group
        yield from self._continuity(phy, number, numbers)
        yield from self._units(phy, size, number, numbers)

    def _continuity(
        self, phy: Int64s, number: Int64s, queues: dict[tuple[str, int], Int64s]
    ) -> Iterator[tuple[str, Fault]]:
        """Check that queue offsets rise by one. A batch takes several, so its topic is only checked for order."""
        batches = tree.batch_topics(self._listing)
        holes = np.array(self._holes, np.int64)
        logs = tree.logs(self._listing)
        log_start = (tree.base_of(logs[0].name) or 0) if logs else 0
        for (topic, queue_id), group in queues.items():
            steps = np.diff(number[group])
            if number[group[0]] > 0 and not log_start and topic not in batches:
                name, at = self._locate(int(phy[group[0]]))
                text = (
                    f"queue {queue_id} of {topic} starts at {int(number[group[0]])}, but the log starts at 0"
                )
                system = "consumers do not get messages of this queue in the first log file"
                yield name, Fault(NAME, at, 0, Kind.ORDER, text, Severity.ERROR, system, 0)
            faulty = np.flatnonzero((steps <= 0) if topic in batches else (steps != 1))
            repeated = _repeated(number[group])
            for i in faulty[:_MOST].tolist():
                before, after = int(number[group[i]]), int(number[group[i + 1]])
                if repeated[i + 1]:
                    name, at = self._locate(int(phy[group[i + 1]]))
                    text = f"queue {queue_id} of {topic}: message {after} is stored twice"
                    system = "consumers get only the first one"
                    yield name, Fault(NAME, at, 0, Kind.ORDER, text, Severity.WARNING, system, 0)
                    continue
                text = f"queue {queue_id} of {topic}: message {before} is followed by message {after}"
                lost = (
                    {
                        "topic": topic,
                        "queue_id": queue_id,
                        "first_offset": before + 1,
                        "last_offset": after - 1,
                    }
                    if after > before
                    else {}
                )
                name, at = self._locate(int(phy[group[i + 1]]))
                system = "a broker that rebuilds the queue gives later messages other queue offsets"
                low, high = np.searchsorted(holes, (phy[group[i]], phy[group[i + 1]]), "right").tolist()
                if after > before and low == high and (steps[i + 1 : i + 2] == 1).any():
                    text += ", and no message is missing between them in the log"
                    yield name, Fault(NAME, at, 0, Kind.ORDER, text, Severity.WARNING, system, 0)
                    continue
                rows = after - before - 1 if after > before else 0
                yield name, Fault(NAME, at, 0, Kind.ORDER, text, Severity.ERROR, system, rows, lost)

    def _locate(self, phy: int) -> tuple[str, int]:
        """Return the file of a message and its offset in the file."""
        for entry in tree.logs(self._listing):
            base = tree.base_of(entry.name) or 0
            if base <= phy < base + entry.size:
                return entry.name, phy - base
        return "", 0

    def _units(
        self, phy: Int64s, size: Int64s, number: Int64s, queues: dict[tuple[str, int], Int64s]
    ) -> Iterator[tuple[str, Fault]]:
        """Check that each unit points to a message of its queue, and that each message has a unit, unless it repeats the one before."""
        logs = tree.logs(self._listing)
        low = tree.base_of(logs[0].name) or 0 if logs else 0
        files: dict[tuple[str, int], list[PlannedFile]] = {}
        for file in self._plan.files:
            queue = tree.queue_of(file.name)
            if file.role is Role.DERIVED and queue is not None and tree.first(file.name) in _QUEUES:
                files.setdefault(queue, []).append(file)
        if not files:
            return  # a broker rebuilds all queues
        all_offsets = np.sort(phy)
        for queue in sorted({*files, *queues}):
            group = queues.get(queue, np.zeros(0, np.int64))
            offsets, sizes = phy[group], size[group]
            listed: list[Int64s] = []
            for file in files.get(queue, []):
                units = self._read(file)
                at = units["physical_offset"].astype(np.int64)
                listed.append(at)
                if np.array_equal(at, offsets) and np.array_equal(units["size"], sizes):
                    continue
                is_light = queue[0].startswith("%LMQ%")
                known = all_offsets if is_light or not len(offsets) else offsets
                index = np.minimum(np.searchsorted(known, at), max(len(known) - 1, 0))
                matches = known[index] == at if len(known) else np.zeros(len(at), np.bool_)
                if not is_light and len(offsets):
                    matches &= sizes[index] == units["size"]
                faulty = np.flatnonzero(~matches & (units["size"] != FILLER) & (at >= low))
                for i in faulty[:_MOST].tolist():
                    unit_size = int(units["size"][i])
                    text = f"the unit points to offset {int(at[i])}, where there is no undamaged message of this queue with {unit_size} bytes"
                    position = i * units.dtype.itemsize
                    yield (
                        file.name,
                        Fault(NAME, position, units.dtype.itemsize, Kind.LINK, text, Severity.ERROR, "", 0),
                    )
            if len(listed) == 1 and np.array_equal(listed[0], offsets):
                continue
            known = np.sort(np.concatenate([np.array([-1]), *listed]))
            expected = offsets[~_repeated(number[group])]
            missing = expected[known[np.searchsorted(known, expected, "right") - 1] != expected]
            if len(missing):
                text = f"no unit for {plural.count(len(missing), 'message')} of queue {queue[1]} of {queue[0]}, the first at {int(missing[0])}"
                system = "consumers do not get these messages unless the broker recovers that part of the log"
                lost = {"topic": queue[0], "queue_id": queue[1]}
                name = files[queue][-1].name if queue in files else ""
                yield name, Fault(NAME, 0, 0, Kind.LINK, text, Severity.ERROR, system, 0, lost)

    def _read(self, file: PlannedFile) -> npt.NDArray[np.void]:
        """Return the units of a file without the trailing zeros."""
        dtype = _QUEUES[tree.first(file.name)]
        data = np.frombuffer(self._listing.read(file.name), np.uint8)
        filled = -(-without_zeros(data) // dtype.itemsize)
        units = data[: min(filled, len(data) // dtype.itemsize) * dtype.itemsize].view(dtype)
        used = np.flatnonzero(units["size"])
        return units[: int(used[-1]) + 1 if len(used) else 0]


def _repeated(numbers: Int64s) -> npt.NDArray[np.bool_]:
    """Return which messages of a queue have the queue offset of the one before, while the next one continues it. Brokers give them no
    unit. If the next one leaves a gap, the queue offset is wrong."""
    out = np.zeros(len(numbers), np.bool_)
    steps = np.diff(numbers)
    out[1:] = (steps == 0) & (np.r_[steps[1:], 1] == 1)[: len(steps)]
    return out


def check(
    listing: Listing,
    plan: Plan,
    options: Options,
    *,
    clean: bool | None,
    live: bool | None,
    deep: bool,
) -> StoreChecker:
    """See `codec.capability.Check`."""
    return StoreChecker(listing, plan)
