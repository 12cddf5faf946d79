"""Derive consume queues and index files from messages in one pass over the commit log.

Source: `ConsumeQueue.putMessagePositionInfo`, `BatchConsumeQueue`, `ConsumeQueueExt.put` and `IndexFile.putKey` of RocketMQ.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from logwright.codec.arrays import Int32s, Int64s
from logwright.codec.describe import dtype_of
from logwright.codec.kernels.intrinsics import load_i32be, prefetch, store_32be, store_64be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.kernels.memory import aligned
from logwright.codec.rocketmq.dispatch import (
    CODE,
    NUMBER,
    PHY,
    QUEUE,
    SIZE,
    Dispatches,
    Queues,
    Units,
    dispatches,
)
from logwright.codec.rocketmq.formats.batchconsumequeue import UNIT as BATCH_UNIT
from logwright.codec.rocketmq.formats.commitlog.layout import BLANK, SMALLEST
from logwright.codec.rocketmq.formats.consumequeue import FILLER, UNIT
from logwright.codec.rocketmq.formats.consumequeue_ext import ADDRESS
from logwright.codec.rocketmq.formats.consumequeue_ext import UNIT as EXT_UNIT
from logwright.codec.rocketmq.formats.indexfile.layout import HEAD, HEADER, entry_at
from logwright.codec.rocketmq.formats.indexfile.layout import SIZE as ENTRY
from logwright.codec.rocketmq.startup.index_service import next_number
from logwright.codec.rocketmq.startup.message_store import StoreConfig
from logwright.codec.rocketmq.store import tree
from logwright.codec.store.build import Piece
from logwright.codec.window import Bytes, Zeros

_PENDING = 1 << 18
"""Limit of the units that are buffered before they are written."""
_EXT_SIZE = 20
_EXT_MARK = 4
"""Bytes that an extension file keeps free after its last unit."""
_INT_MAX = (1 << 31) - 1


class Gaps(Enum):
    """What happens to a unit whose queue offset is not the next one of its queue."""

    REFUSE = auto()  # GapError
    APPEND = auto()  # like a broker: a later one is appended, an earlier one is dropped
    REPEAT = auto()
    """The gap before a later one is filled with copies of it, so that messages keep their queue offsets. In a light queue only if the log has
    lost messages there: brokers leave gaps in these queues, and append."""


class GapError(Exception):
    """Arguments: topic, queue id, queue offset, expected queue offset."""


class FilledFile:
    """Writes consecutive files of a fixed size, in turn in each of the `folders`. The last one is padded with zeros."""

    def __init__(self, folders: Sequence[str], size: int, at: int = 0) -> None:
        self.folders, self.size, self.at = folders, size, at
        self.existing = ""
        """The file to continue, which may be in another folder."""

    @property
    def name(self) -> str:
        number = self.at // self.size
        return self.existing or f"{self.folders[number % len(self.folders)]}/{number * self.size:020d}"

    def write(self, data: bytes | Bytes) -> Iterator[Piece]:
        """Write bytes. They may span several files."""
        start = 0
        while start < len(data):
            piece = data[start : start + self.size - self.at % self.size]
            name, full = self.name, (self.at + len(piece)) % self.size == 0
            self.at += len(piece)
            start += len(piece)
            self.existing = "" if full else self.existing
            yield Piece(name, piece, done=full)

    def close(self) -> Iterator[Piece]:
        left = -self.at % self.size
        if left:
            yield Piece(self.name, Zeros(left), done=True)
            self.at, self.existing = self.at + left, ""


@dataclass(frozen=True)
class QueueEnd:
    """The end of an existing queue: the next queue offset, and the positions in its units and its extension in bytes."""

    next: int
    units: int
    ext: int = 0


Read = Callable[[str], bytes]
"""Returns the content of an existing file."""


class ExtWriter:
    """Writes the extension of one queue. Each file ends with a mark if its next unit is in the next file."""

    def __init__(self, folder: str, size: int, at: int, read: Read) -> None:
        self.file, self.pending = _continued(folder, size, at, read)
        self._template = np.frombuffer(EXT_UNIT.pack({"tags_code": 0, "store_timestamp": 0}), np.uint8)

    def add(self, units: Units) -> Int64s:
        """Append units and return their addresses."""
        out, at, done = np.empty(len(units), np.int64), self.file.at + sum(map(len, self.pending)), 0
        while done < len(units):
            room = max((self.file.size - at % self.file.size - _EXT_MARK) // _EXT_SIZE, 0)
            part = slice(done, done + room)
            out[part] = at + _EXT_SIZE * np.arange(len(out[part]))
            data = np.tile(self._template, (len(out[part]), 1))
            for name, values in (("tags_code", units.tags_code), ("store_timestamp", units.stored)):
                start = EXT_UNIT.offset(name)
                data[:, start : start + 8] = values[part].astype(">i8").view(np.uint8).reshape(-1, 8)
            self.pending.append(data.tobytes())
            at += data.size
            done += len(data)
            if done < len(units):
                left = -at % self.file.size
                self.pending.append(b"\xff\xff".ljust(left, b"\0"))
                at += left
        return out - (ADDRESS - 1) - 1


def _continued(folder: str, size: int, at: int, read: Read) -> tuple[FilledFile, list[bytes | Bytes]]:
    """Return the file of a queue at position `at`, and its content before that position."""
    file = FilledFile([folder], size, at - at % size)
    return file, [read(file.name)[: at % size]] if at % size else []


class QueueWriter:
    """Writes one consume queue after its `end`. Without this, the queue does not exist yet, and fillers precede its first unit."""

    folder = "consumequeue"

    def __init__(
        self, topic: str, queue_id: int, size: int, gaps: Gaps, end: QueueEnd | None, read: Read, lost: Sequence[int],
        ext: ExtWriter | None = None,
    ) -> None:  # fmt: skip
        self.queue, self.gaps, self.ext = (topic, queue_id), gaps, ext
        self.lost, self.skipped = lost, 0
        """Places of lost messages in the log, in order; and the number of queue offsets that a broker gave no message of this light queue."""
        self.writes = tree.is_folder_name(topic)
        self.next, self.reached = None if end is None else end.next, -1
        at = 0 if end is None else end.units
        self.file, self.pending = _continued(f"{self.folder}/{topic}/{queue_id}", size, at, read)

    @property
    def plain(self) -> bool:
        """Whether a unit depends only on its message."""
        return self.ext is None

    def open(self, number: int) -> int:
        """Prepare for a unit with this queue offset. Return the next queue offset."""
        repeated = self.gaps is Gaps.REPEAT and self.reached < 0
        if self.next is None or (repeated and number < self.next):
            self.next = self._begin(number)
        return self.next

    def add(self, units: Units) -> None:
        """Take units, which may be changed. Raises `GapError`."""
        if self.ext is not None:
            units.tags_code[:] = self.ext.add(units)
        if self.gaps is Gaps.REFUSE:
            expected = np.r_[self.next, (units.number + units.count)[:-1]]
            for i in np.flatnonzero(units.number != expected)[:1].tolist():
                raise GapError(*self.queue, int(units.number[i]), int(expected[i]))
        accepted = self._accept(units)
        if len(accepted):
            self.pending.append(self._stored(accepted))

    def _begin(self, number: int) -> int:
        """Begin the first file, and return its next queue offset."""
        number = max(number, 0)
        used = number * UNIT.min_size % self.file.size
        self.file.at = number * UNIT.min_size - used
        filler = UNIT.pack({"physical_offset": 0, "size": FILLER, "tags_code": 0})
        self.pending[:] = [filler * (used // UNIT.min_size)]
        return number

    def _accept(self, units: Units) -> Units:
        """Return the units to append. A broker drops those that the queue has, and appends others wherever the queue ends."""
        assert self.next is not None
        ends = units.phy + units.size
        regular = (units.number == np.arange(self.next, self.next + len(units))).all()
        if regular and ends[0] > self.reached and (np.diff(ends) > 0).all():
            self.next, self.reached = self.next + len(units), int(ends[-1])
            return units
        rows: list[int] = []
        for i, (number, phy, end) in enumerate(
            zip(units.number.tolist(), units.phy.tolist(), ends.tolist(), strict=True)
        ):
            dropped = number != 0 if self.gaps is Gaps.APPEND else number > 0
            if end <= self.reached or (dropped and number < self.next):
                continue
            gap = number - self.next - self.skipped
            if gap > 0 and self._is_intact(phy):
                if self.next or self.reached >= 0:
                    self.skipped += gap
                else:
                    self.next = self._begin(number)
            elif self.gaps is Gaps.REPEAT and 0 < gap <= (phy - max(self.reached, 0)) // SMALLEST:
                rows += [i] * gap
                self.next += gap
            elif gap > 0 and self.reached < 0:
                self.next = self._begin(number)
            rows.append(i)
            self.next, self.reached = self.next + 1, end
        return units.pick(np.array(rows, np.int64))

    def _is_intact(self, phy: int) -> bool:
        """Return whether this is a light queue, and nothing is lost in the log between its last message and the one at `phy`."""
        lost = bisect_right(self.lost, phy) - bisect_left(self.lost, self.reached)
        return self.queue[0].startswith("%LMQ%") and not lost

    def _stored(self, units: Units) -> Bytes:
        out = np.empty(len(units), dtype_of(UNIT))
        out["physical_offset"], out["size"], out["tags_code"] = units.phy, units.size, units.tags_code
        return out.view(np.uint8)

    def write(self) -> Iterator[Piece]:
        """Write the units taken so far. A damaged topic may be no name of a folder; then there is no queue."""
        for writer in self._writers:
            for data in writer.pending if self.writes else ():
                yield from writer.file.write(data)
            writer.pending.clear()

    def close(self) -> Iterator[Piece]:
        yield from self.write()
        for writer in self._writers if self.writes else ():
            yield from writer.file.close()

    @property
    def _writers(self) -> Sequence[QueueWriter | ExtWriter]:
        return [self] if self.ext is None else [self, self.ext]


class BatchQueueWriter(QueueWriter):
    """Writes one batch consume queue. Its units are contiguous, whatever their queue offsets."""

    folder = "batchconsumequeue"
    plain = False

    def _begin(self, number: int) -> int:
        return number

    def _accept(self, units: Units) -> Units:
        later = units.phy > np.maximum.accumulate(np.r_[self.reached, units.phy[:-1]])
        units = units.pick(np.flatnonzero(later))
        if len(units):
            self.next, self.reached = int(units.number[-1] + units.count[-1]), int(units.phy[-1])
        return units

    def _stored(self, units: Units) -> Bytes:
        out = np.zeros(len(units), dtype_of(BATCH_UNIT))
        out["physical_offset"], out["size"], out["tags_code"] = units.phy, units.size, units.tags_code
        out["store_timestamp"], out["base_offset"] = units.stored, units.number
        out["batch_size"], out["compacted_offset"] = units.count, -1
        return out.view(np.uint8)


@kernel("const i8[,], i8[], i8[]")
def count_units(facts: Int64s, counts: Int64s, first: Int64s) -> None:
    """Count the units of each queue, and set `first` to the queue offset of its first one, or the first that is not negative."""
    for i in range(facts.shape[1]):
        k = facts[QUEUE, i]
        if counts[k] == 0 or first[k] < 0:
            first[k] = facts[NUMBER, i]
        counts[k] += 1


@kernel("const i8[,], i8[], i8[], i8[], u1[], u1[]")
def put_units(
    facts: Int64s, places: Int64s, following: Int64s, reached: Int64s, irregular: Bytes, out: Bytes
) -> None:
    """Write the units of each queue from byte `places[queue]` on, and set this to their end.

    `following` and `reached` are the next queue offset and the end of the last message of each queue. A queue with another queue offset, or
    with a message that is not after the last one, is marked as irregular.
    """
    for i in range(facts.shape[1]):
        k = facts[QUEUE, i]
        phy, size = facts[PHY, i], facts[SIZE, i]
        end = phy + size
        if facts[NUMBER, i] != following[k] or end <= reached[k]:
            irregular[k] = 1
        following[k] += 1
        reached[k] = end
        at = store_64be(out, places[k], phy)
        at = store_32be(out, at, size)
        places[k] = store_64be(out, at, facts[CODE, i])


_BEGIN_TIME, _END_TIME, _BEGIN_PHY, _END_PHY, _USED, _COUNT = range(6)
"""The state of an index file, in the order of its header."""
_AHEAD = 16
"""Entries whose slots are prefetched: they are anywhere in memory."""


@kernel("u1[], const i4[], const i4[], const i8[], const i8[], i8, i8, i8[], u1[]")
def put_entries(
    out: Bytes, hashes: Int32s, owners: Int32s, phy: Int64s, stored: Int64s, first: int, room: int, state: Int64s, front: Bytes
) -> tuple[int, int]:  # fmt: skip
    """Write entries from index `first` on until the file has `room` entries, including entry 0. Return the index of the next entry, and
    the bytes written. `front` has the stored slots behind the header. A message before the last one in the index has no entries."""
    slots = (len(front) - HEAD) // 4
    # The reciprocal of `slots`, rounded up so that it divides 31-bit numbers exactly: a division takes as long as all the rest.
    shift = 31
    while 1 << (shift - 31) < slots:
        shift += 1
    factor = ((1 << shift) + slots - 1) // slots
    at, number, used = 0, state[_COUNT], state[_USED]
    begin, end_phy, end_time = state[_BEGIN_TIME], state[_END_PHY], state[_END_TIME]
    for i in range(first, min(first + _AHEAD, len(hashes))):
        prefetch(front, HEAD + 4 * (hashes[i] % slots))
    while first < len(hashes) and number < room:
        owner = owners[first]
        key = int(hashes[first])  # interpreted, it is a NumPy scalar of 32 bits
        if first + _AHEAD < len(hashes):
            ahead = int(hashes[first + _AHEAD])
            prefetch(front, HEAD + 4 * (ahead - (ahead * factor >> shift) * slots))
        first += 1
        if phy[owner] < end_phy and (first < 2 or owners[first - 2] != owner):
            while first < len(hashes) and owners[first] == owner:
                first += 1
            continue
        seconds = 0
        if begin > 0 and stored[owner] > begin:
            seconds = min((stored[owner] - begin) // 1000, _INT_MAX)
        slot = HEAD + 4 * (key - (key * factor >> shift) * slots)
        previous = load_i32be(front, slot)
        store_32be(front, slot, number)
        end_phy, end_time = phy[owner], stored[owner]
        at = store_32be(out, at, key)
        at = store_64be(out, at, end_phy)
        at = store_32be(out, at, seconds)
        at = store_32be(out, at, previous)
        if number <= 1:
            state[_BEGIN_PHY], begin = end_phy, end_time
        used += previous == 0
        number += 1
    state[_COUNT], state[_USED] = number, used
    state[_BEGIN_TIME], state[_END_PHY], state[_END_TIME] = begin, end_phy, end_time
    return first, at


class IndexWriter:
    """Writes index files. The header and the slots of a file are written when it is full or closed."""

    def __init__(self, slots: int, room: int) -> None:
        self.slots, self.room, self.newest = slots, room, 0
        self.name = ""
        self.state = np.zeros(6, np.int64)
        self.front = np.zeros(0, np.uint8)
        """The header, to be filled in, and the slots as they are stored."""
        self.full_at = 0
        """The store time of the last entry of the last full file."""

    def resume(self, name: str, front: bytes) -> None:
        """Continue after a file with this header and these slots, whose entries are already written."""
        head = HEADER.unpack(front, 0, HEAD)[0]
        self.state[:] = [head[field.name] for field in HEADER.fields[:-1]]
        self.state[_COUNT] = max(self.state[_COUNT], 1)
        if self.count < self.room:
            self.name, self.front = name, np.array(np.frombuffer(front, np.uint8))
        else:
            self._next()

    @property
    def count(self) -> int:
        """The number of the next entry."""
        return int(self.state[_COUNT])

    def _next(self) -> None:
        """A new file begins with the end of the one before."""
        self.full_at = int(self.state[_END_TIME])
        self.state[_BEGIN_TIME], self.state[_BEGIN_PHY] = self.state[_END_TIME], self.state[_END_PHY]

    def _begin(self, stored: int) -> Iterator[Piece]:
        """Create a file. Its name is a store time."""
        self.newest = next_number(stored, self.newest)
        self.name = f"index/{self.newest:017d}"
        self.front = np.zeros(HEAD + 4 * self.slots, np.uint8)
        self.state[_USED], self.state[_COUNT] = 0, 1
        yield Piece(self.name, Zeros(entry_at(self.slots, 1)))

    def add(self, hashes: Int32s, owners: Int32s, phy: Int64s, stored: Int64s) -> Iterator[Piece]:
        """Append the entries of messages in log order. `owners` are indices into `phy` and `stored`.

        A message without keys creates the next file too.
        """
        at = 0
        while len(stored):
            last = int(owners[at - 1]) if at else -1
            if not self.name:
                following = last if at < len(owners) and owners[at] == last else last + 1
                if following == len(stored):
                    return
                yield from self._begin(int(stored[following]))
            out = aligned(ENTRY * min(len(hashes) - at, self.room - self.count))
            at, size = put_entries(out, hashes, owners, phy, stored, at, self.room, self.state, self.front)
            if size:
                yield Piece(self.name, out[:size])
            if self.count < self.room:
                return
            yield from self.close()
            self._next()

    def close(self) -> Iterator[Piece]:
        """Finish the file: pad it with zeros and write its header and slots."""
        if self.name:
            yield Piece(self.name, Zeros(ENTRY * (self.room - self.count)))
            head = dict(zip((field.name for field in HEADER.fields), self.state.tolist(), strict=False))
            self.front[:HEAD] = np.frombuffer(HEADER.pack({**head, "slots": b""}), np.uint8)
            yield Piece(self.name, self.front, done=True, offset=0)
            self.name = ""


class Deriver:
    """Folds the messages of a commit log, in log order, into the bytes of consume queues and index files.

    `queues` and `index` say which are written. `tags`: tags are index keys, as from 5.4.0 on.
    """

    def __init__(
        self, config: StoreConfig, gaps: Gaps, *, tags: bool = True, queues: bool = True, index: bool = True
    ) -> None:
        self.config, self.gaps, self.tags = config, gaps, tags
        self.queues: dict[tuple[str, int], QueueWriter] = {}
        self._numbered = Queues()
        self._blocks: list[Units] = []
        """Units that are not written yet."""
        self.index = IndexWriter(config.slots, config.entries)
        self.ends: Mapping[tuple[str, int], QueueEnd] = {}
        """The queues that exist already."""
        self.read: Read = lambda name: b""
        self.phy = self.stored = self.end = -1
        """Physical offset, store time and end of the last message."""
        self.from_zero = False
        """Whether the log starts at 0, so that the queues do too."""
        self.lost: list[int] = []
        """Physical offsets of messages before which, or instead of which, others are lost."""
        self._writes_queues, self._writes_index = queues, index
        self._pending = 0

    def _open(self, topic: str, queue_id: int) -> QueueWriter:
        config, extension = self.config, None
        begun = self.gaps is Gaps.REFUSE or (self.gaps is Gaps.REPEAT and self.from_zero)
        end = self.ends.get((topic, queue_id), QueueEnd(0, 0) if begun else None)
        if topic in config.batch_topics:
            return BatchQueueWriter(
                topic, queue_id, config.batch_queue_size, self.gaps, end, self.read, self.lost
            )
        if config.ext and not topic.startswith("%LMQ%"):
            at = 0 if end is None else end.ext
            extension = ExtWriter(f"consumequeue_ext/{topic}/{queue_id}", config.ext_size, at, self.read)
        return QueueWriter(
            topic, queue_id, config.queue_size, self.gaps, end, self.read, self.lost, extension
        )

    def add(self, buf: Bytes, starts: Int64s, ends: Int64s) -> Iterator[Piece]:
        """Take valid messages. Raises `GapError`, and `IndexError` with the index of a message that a broker refuses."""
        config = self.config
        added = dispatches(
            buf, starts, ends, tags=self.tags, lmq=config.lmq, batches=config.batch_topics, queues=self._numbered,
            delays=config.rules.delays,
        )  # fmt: skip
        if len(added.phy):
            self.phy, self.stored = int(added.phy[-1]), int(added.stored[-1])
            if config.lmq:
                self._note_lost(added, np.asarray(ends) - starts)
        if self._writes_queues and len(added.units):
            self._blocks.append(added.units)
            self._pending += len(added.units)
            if self._pending >= _PENDING:
                yield from self._flush()
        if self._writes_index:
            yield from self.index.add(added.hashes, added.owners, added.phy, added.stored)

    def _note_lost(self, added: Dispatches, size: Int64s) -> None:
        """Note placeholders and fillers, and the messages for which there is room before them: a broker leaves less at the end of a file."""
        after = added.phy + size
        before = np.r_[self.end if self.end >= 0 else added.phy[0], after[:-1]]
        follows = added.phy[added.phy - before >= size + BLANK.min_size]
        self.lost += np.union1d(added.replaced, follows).tolist()
        self.end = int(after[-1])

    def _flush(self) -> Iterator[Piece]:
        """Write the pending units. Raises `GapError`."""
        if not self._blocks:
            return
        counts, first = np.zeros((2, len(self._numbered.names)), np.int64)
        for block in self._blocks:
            count_units(block.facts, counts, first)
        following, reached = np.zeros((2, len(counts)), np.int64)
        irregular = np.zeros(len(counts), np.uint8)
        present = np.flatnonzero(counts).tolist()
        for i in present:
            key = self._numbered.names[i]
            writer = self.queues.get(key)
            if writer is None:
                writer = self.queues[key] = self._open(*key)
            following[i], reached[i] = writer.open(int(first[i])), writer.reached
            irregular[i] = not writer.plain
        stops = np.cumsum(counts)
        places = UNIT.min_size * (stops - counts)
        out = aligned(UNIT.min_size * self._pending)
        for block in self._blocks:
            put_units(block.facts, places, following, reached, irregular, out)
        if irregular[present].any():
            units = Units(np.concatenate([block.facts for block in self._blocks], axis=1))
            small = units.queue.astype(np.uint16) if len(counts) <= 1 << 16 else units.queue
            units = units.pick(np.argsort(small, kind="stable"))
        self._blocks.clear()
        self._pending = 0
        for i in present:
            writer = self.queues[self._numbered.names[i]]
            start, stop = int(stops[i] - counts[i]), int(stops[i])
            if irregular[i]:
                writer.add(Units(units.facts[:, start:stop]))
            else:
                writer.next, writer.reached = int(following[i]), int(reached[i])
                writer.pending.append(out[UNIT.min_size * start : UNIT.min_size * stop])
            yield from writer.write()

    def finish(self) -> Iterator[Piece]:
        yield from self._flush()
        for queue in self.queues.values():
            yield from queue.close()
        yield from self.index.close()
