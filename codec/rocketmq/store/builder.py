"""Write a store from rows: commit log, consume queues, index files, checkpoint and topics.

Source: `CommitLog.DefaultAppendMessageCallback` of RocketMQ, and the invariants that its recovery relies on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Int64s
from logwright.codec.fault import UsageError
from logwright.codec.option import Option, Options
from logwright.codec.rocketmq.derive import Deriver, FilledFile, GapError, Gaps, QueueEnd
from logwright.codec.rocketmq.formats.commitlog.codec import CODEC as LOG
from logwright.codec.rocketmq.formats.commitlog.layout import BLANK, BLANK_MAGIC, LEAST_BLANK, MESSAGE, V2
from logwright.codec.rocketmq.formats.commitlog.write import Writer
from logwright.codec.rocketmq.formats.indexfile.layout import HEAD, HEADER, SIZE, entry_at
from logwright.codec.rocketmq.formats.page import checkpoint
from logwright.codec.rocketmq.startup.consume_queue import ConsumeQueue
from logwright.codec.rocketmq.startup.mapped_file import LoadError
from logwright.codec.rocketmq.startup.message import Message, check
from logwright.codec.rocketmq.startup.message_store import MessageStore, StoreConfig, Version
from logwright.codec.rocketmq.store import tree
from logwright.codec.store.build import Piece, Summary
from logwright.codec.store.listing import Listing
from logwright.codec.store.overlay import Overlay
from logwright.codec.window import Bytes, Zeros

NEWEST = Version((5, 5, 0))
_STEP = 1 << 20
_PART = 2 << 20
"""Bytes of messages that are encoded at a time."""
_VERSION = MESSAGE.offset("magic_code") + 3
"""The byte of a magic code that says the version of a message."""
OFFSETS = Option(
    "offsets", "keep", "Queue offsets. keep: those of the column queue_offset, if given; assign: continue each queue's offsets",
    str, choices=("keep", "assign"),
)  # fmt: skip
OPTIONS = (
    *tree.ROOTS, *tree.GEOMETRY, OFFSETS, tree.EXT_ENABLED, tree.LMQ, tree.DELAY_LEVELS, tree.BATCH_TOPICS,
    tree.BROKER_VERSION,
)  # fmt: skip


_BROKER_SETTINGS = (*tree.GEOMETRY, tree.LOG_PATH, tree.EXT_ENABLED, tree.DELAY_LEVELS)
"""Options that the configuration of the broker must have too."""


@dataclass
class State:
    """The state of a store before the next message. `full_at` is the store time of the last entry of the last full index file."""

    config: StoreConfig
    end: int = 0
    queues: Mapping[tuple[str, int], QueueEnd] = field(default_factory=dict)
    full_at: int = 0


def resume(listing: Listing | None, options: Options) -> State:
    """Return the state of a store. Raises `UsageError` if a broker would not continue it unchanged."""
    if listing is None:
        return State(tree.config_of_new(options))
    config = tree.config_of(listing, options.only(tree.READ_OPTIONS))
    names = {entry.name for entry in listing.entries()}
    if tree.ABORT in names:
        raise UsageError(
            "the store has a file abort: its broker is running or was not stopped cleanly",
            advice="Stop the broker. If it was not stopped cleanly, start it and stop it first",
        )
    if tree.content(listing, tree.TOPICS_FILE) and tree.topics(listing) is None:
        raise UsageError(f"{tree.TOPICS_FILE} is damaged", advice="Repair the store first")
    overlay = Overlay(listing)
    store = MessageStore(overlay, config, NEWEST, clean=True)
    try:
        store.load()
    except LoadError as error:
        sizes = [option.name for option in tree.GEOMETRY if options.given(option.name)]
        advice = f"Leave out {', '.join(sizes)}, or repair it first" if sizes else "Repair it first"
        raise UsageError(f"a broker does not load the store: {error}", advice=advice) from None
    changed = [*overlay.removed, *overlay.rewritten, *overlay.created]
    if changed and not _only_repeats_keys(listing, overlay, changed, config.slots):
        raise UsageError(
            f"a broker would change {changed[0]} when it starts",
            advice="Start and stop a broker, or repair the store first",
        )
    for files in (store.log, *(queue.queue for queue in store.queues.values())):
        for file in (file for file in files.files if file.base % file.size):
            raise UsageError(
                f"the number in the name of {file.name} is not a multiple of {file.size}, the size of a file",
                advice="Repair the store first",
            )
    for queue in store.queues.values():
        if isinstance(queue, ConsumeQueue) and _is_misnamed(store, queue):
            raise UsageError(
                f"the units in {queue.queue.files[-1].name} are at other queue offsets than those of their messages",
                advice="Repair the store first",
            )
    queues = {
        key: QueueEnd(
            queue.max_offset, queue.queue.max_offset,
            queue.ext.queue.max_offset if isinstance(queue, ConsumeQueue) and queue.ext is not None else 0,
        )
        for key, queue in store.queues.items()
    }  # fmt: skip
    return State(config, store.max_phy, queues, int(store.checkpoint[2]))


def _is_misnamed(store: MessageStore, queue: ConsumeQueue) -> bool:
    """Return whether the last unit is at a higher queue offset than that of its message. No broker writes such a unit, except of a message
    of queue offset 0 or of another queue."""
    unit = next(queue.units(queue.max_offset - 1) or iter(()), None)
    data = None if unit is None else store.decoded(unit.phy, unit.size)
    message = None if data is None else check(data, store.rules, crc=False)
    if unit is None or not isinstance(message, Message):
        return False
    own = (message.topic, message.queue_id) == (queue.topic, queue.queue_id)
    return own and 0 < message.queue_offset < unit.number


def _only_repeats_keys(listing: Listing, overlay: Overlay, changed: list[str], slots: int) -> bool:
    """Return whether a start changes nothing but to index the last messages a second time.

    A broker dispatches all messages after the last one in a consume queue, so prepared and rolled back ones at the end of the log are
    indexed at each start (`DefaultMessageStore.recoverTopicQueueTable`).
    """
    if any(tree.first(name) != tree.INDEX for name in changed):
        return False
    added = _entry_count(overlay) - _entry_count(listing)
    return _last_keys(overlay, added, slots) == _last_keys(listing, added, slots)


def _index_files(listing: Listing) -> list[str]:
    names = [entry.name for entry in listing.entries() if tree.first(entry.name) == tree.INDEX]
    return sorted(name for name in names if tree.base_of(name) is not None)


def _entries_in(listing: Listing, name: str) -> int:
    return max(int(HEADER.unpack(listing.read(name, 0, HEAD), 0, HEAD)[0]["index_count"]) - 1, 0)


def _entry_count(listing: Listing) -> int:
    return sum(_entries_in(listing, name) for name in _index_files(listing))


def _last_keys(listing: Listing, count: int, slots: int) -> list[bytes]:
    """Return the key hash and physical offset of the last entries of all index files, newest first."""
    out: list[bytes] = []
    for name in reversed(_index_files(listing)):
        last = _entries_in(listing, name)
        first = max(last - (count - len(out)), 0) + 1
        data = listing.read(name, entry_at(slots, first), SIZE * (last + 1 - first))
        out += [data[at : at + 12] for at in range(len(data) - SIZE, -1, -SIZE)]
    return out


class StoreBuilder:
    """Writes a new store, or the files that an append changes. See `codec.store.build.Builder`."""

    def __init__(self, listing: Listing | None, options: Options) -> None:
        self.listing, self.options = listing, options
        self.state = resume(listing, options)
        self.config = self.state.config
        self.rows = 0
        self.v2 = Version(options[tree.BROKER_VERSION.name]).v2
        self.log = FilledFile(tree.writable(options), self.config.log_size, self.state.end)
        self.opened = False
        self.counts = {key: end.next for key, end in self.state.queues.items()}
        self.derived = Deriver(self.config, Gaps.REFUSE, tags=tree.indexes_tags(options))

    def add(self, rows: pa.RecordBatch) -> Iterator[Piece]:
        if not rows.num_rows:
            return
        if not self.opened:
            self.opened = True
            yield from self._open()
        self._refuse_negative_queues(rows)
        table = pa.Table.from_batches([rows])
        if self.options[OFFSETS.name] == "assign" and "queue_offset" in table.column_names:
            table = table.drop_columns(["queue_offset"])
        writer = Writer(LOG.complete(table), self.counts)
        starts = writer.starts
        offsets, blanks = self._assign_offsets(np.diff(starts))
        done = 0
        for end, blank in [*blanks, (rows.num_rows, 0)]:
            while done < end:
                # Each part is read again for the derived files while it is in the processor's cache.
                last = int(np.searchsorted(starts, starts[done] + _PART, "right")) - 1
                last = min(max(last, done + 1), end)
                data = writer.part(done, last, offsets)
                places = starts[done : last + 1] - starts[done]
                if not self.v2:
                    self._refuse_v2(data[places[:-1] + _VERSION], done)
                yield from self._refusing(self.derived.add(data, places[:-1], places[1:]), done)
                yield from self.log.write(data)
                done = last
            if blank:
                yield from self.log.write(BLANK.pack({"total_size": blank, "magic_code": BLANK_MAGIC}))
                yield from self.log.close()
        self.rows += rows.num_rows

    def _refuse_negative_queues(self, rows: pa.RecordBatch) -> None:
        if "queue_id" not in rows.schema.names:
            return
        numbers = rows.column("queue_id").cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False)
        for i in np.flatnonzero(numbers < 0)[:1].tolist():
            raise UsageError(
                f"row {self.rows + i}: queue_id is {numbers[i]}",
                advice="Queues are numbered from 0; a broker replaces a negative number by that of a random queue",
            )

    def _assign_offsets(self, sizes: Int64s) -> tuple[Int64s, list[tuple[int, int]]]:
        """Return the physical offsets of messages, and for each end of a file the index of the next message and the bytes left."""
        size = self.config.log_size
        room = size - LEAST_BLANK
        for i in np.flatnonzero(sizes > room)[:1].tolist():
            raise UsageError(
                f"row {self.rows + i}: the message takes {sizes[i]} bytes, but a file of {size} bytes holds at most {room}",
                advice="Set mappedFileSizeCommitLog to the broker's value",
            )
        ends = np.cumsum(sizes)
        out = np.empty(len(sizes), np.int64)
        blanks: list[tuple[int, int]] = []
        at, done, before = self.log.at, 0, 0
        while True:
            left = size - at % size
            fitting = max(int(np.searchsorted(ends, before + left - LEAST_BLANK, "right")), done)
            out[done:fitting] = at - before + ends[done:fitting] - sizes[done:fitting]
            if fitting == len(sizes):
                return out, blanks
            if fitting > done:
                at += int(ends[fitting - 1]) - before
                done, before = fitting, int(ends[fitting - 1])
                left = size - at % size
            blanks.append((done, left))
            at += left

    def _refuse_v2(self, versions: Bytes, done: int) -> None:
        """Refuse messages of version 2. `versions` are the last bytes of their magic codes; `done` rows of the batch precede."""
        for i in np.flatnonzero(versions == V2 & 0xFF)[:1].tolist():
            raise UsageError(
                f"row {self.rows + done + i}: a broker before 5.1.0 ends the log at a message of version 2, which has a topic of more than 127 "
                "bytes",
                advice="Use a shorter topic, or set broker_version to that of your broker",
            )

    def _refusing(self, pieces: Iterator[Piece], done: int = 0) -> Iterator[Piece]:
        """Yield derived pieces. Raises `UsageError` for messages that a broker would not have written. `done` rows of the batch precede."""
        try:
            yield from pieces
        except IndexError as error:
            raise UsageError(
                f"row {self.rows + done + error.args[0]}: a broker would refuse the message"
            ) from None
        except GapError as error:
            topic, queue_id, number, expected = error.args
            if not expected and (topic, queue_id) not in self.state.queues:
                raise UsageError(
                    f"queue {queue_id} of {topic} would start at offset {number}; a broker skips such messages in a store whose log starts "
                    "at 0",
                    advice="Pass offsets=assign to number them from 0",
                ) from None
            raise UsageError(
                f"queue_offset is {number}, expected {expected} in queue {queue_id} of {topic}",
                advice="A queue has no gaps: sort the rows, or pass offsets=assign. Prepared and rolled-back messages have offset 0 and are in "
                "no queue: rows need the column sys_flag to say so",
            ) from None

    def _before(self, name: str) -> bytes:
        """Return the content of a file, or no bytes if it does not exist."""
        return b"" if self.listing is None else tree.content(self.listing, name)

    def _open(self) -> Iterator[Piece]:
        """Continue the last files of the store."""
        if self.listing is None:
            return
        self.derived.ends, self.derived.read = self.state.queues, self._before
        used = self.log.at % self.config.log_size
        if used:
            base = self.log.at - used
            self.log.existing = next(
                log.name for log in tree.logs(self.listing) if tree.base_of(log.name) == base
            )
            yield from self._copied(self.log.existing, 0, used)
        index = self.derived.index
        index.full_at = self.state.full_at
        names = _index_files(self.listing)
        if names:
            index.newest = max(tree.start_of(name) for name in names)
            head = HEAD + 4 * self.config.slots
            index.resume(names[-1], self.listing.read(names[-1], 0, head))
            if index.name:
                yield Piece(index.name, Zeros(head))
                yield from self._copied(index.name, head, entry_at(self.config.slots, index.count))

    def _copied(self, name: str, start: int, stop: int) -> Iterator[Piece]:
        assert self.listing is not None
        for at in range(start, stop, _STEP):
            yield Piece(name, self.listing.read(name, at, min(_STEP, stop - at)))

    def finish(self) -> Iterator[Piece]:
        if self.rows:
            yield from self.log.close()
            yield from self._refusing(self.derived.finish())
        for (topic, queue_id), queue in self.derived.queues.items():
            if not queue.writes:
                raise UsageError(
                    f"the topic {topic!r} cannot be the name of a folder, so a broker would not read its queue {queue_id}",
                    advice="Choose a topic of letters, digits and %|-_",
                )
        topics = self._topics()
        if topics is not None:
            yield Piece(tree.TOPICS_FILE, topics, done=True)
        if self.rows or self.listing is None:
            stored, phy = (self.derived.stored, self.derived.phy) if self.rows else (0, 0)
            yield Piece(tree.CHECKPOINT, checkpoint(stored, phy, self.derived.index.full_at), done=True)

    def _topics(self) -> bytes | None:
        """Return topics.json with the written topics added, or None if it has them already."""
        known = [] if self.listing is None else tree.topics(self.listing) or []
        rows = tree.with_topics(known, self.derived.queues, self.config.batch_topics)
        return None if rows == known and self.listing is not None else tree.topics_file(rows)

    def summary(self) -> Summary:
        ids = {"last_physical_offset": self.derived.phy} if self.rows else {}
        settings = [
            f"{option.name}={self.options[option.name]}"
            for option in _BROKER_SETTINGS
            if self.options[option.name] != option.default
        ]
        steps = (f"Set in broker.conf: {', '.join(settings)}",) if settings and self.listing is None else ()
        return Summary(self.rows, ids, before_you_start=steps)
