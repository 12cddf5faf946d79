"""Write a store from rows: commit log, consume queues, index files, checkpoint and topics.

Source: `CommitLog.DefaultAppendMessageCallback` of RocketMQ, and the invariants that its recovery relies on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.fault import UsageError
from logwright.codec.option import Option, Options
from logwright.codec.rocketmq.derive import FilledFile, IndexWriter, QueueWriter
from logwright.codec.rocketmq.formats.commitlog.codec import CODEC as LOG
from logwright.codec.rocketmq.formats.commitlog.codec import FILE_SIZE
from logwright.codec.rocketmq.formats.commitlog.layout import (
    BLANK,
    BLANK_MAGIC,
    PREPARED,
    ROLLBACK,
)
from logwright.codec.rocketmq.formats.commitlog.write import Writer
from logwright.codec.rocketmq.formats.config import TOPICS
from logwright.codec.rocketmq.formats.indexfile import HASH_SLOTS, HEAD, HEADER, MAX_ENTRIES, entry_at
from logwright.codec.rocketmq.formats.page import CHECKPOINT
from logwright.codec.rocketmq.startup.index_service import key_hash, keys_of
from logwright.codec.rocketmq.startup.mapped_file import LoadError
from logwright.codec.rocketmq.startup.message import Message, Rules, check
from logwright.codec.rocketmq.startup.message_store import MessageStore, StoreConfig, Version
from logwright.codec.rocketmq.store import tree
from logwright.codec.sorting import framed, read_framed
from logwright.codec.store.build import Piece, Placement, Stage, Summary
from logwright.codec.store.listing import Listing
from logwright.codec.store.overlay import Overlay
from logwright.codec.window import Zeros

Int64s = npt.NDArray[np.int64]
NEWEST = Version((5, 5, 0))
_STEP = 1 << 20
_LEAST_LEFT = 8
"""Bytes left free after the last message of a file, for a blank record."""
_STAGED = "commitlog/rows"
OFFSETS = Option(
    "offsets", "keep", "Queue offsets. keep: those of the column queue_offset, if given; assign: continue each queue's offsets",
    str, choices=("keep", "assign"),
)  # fmt: skip
OPTIONS = (tree.LOG_PATH, *tree.GEOMETRY, OFFSETS)


@dataclass
class State:
    """The state of a store before the next message."""

    config: StoreConfig
    end: int = 0
    next: dict[tuple[str, int], int] = field(default_factory=dict)
    stored: int = 0
    """Store time of the last message."""
    full_at: int = 0


def resume(listing: Listing | None, options: Options) -> State:
    """Return the state of a store. Raises `UsageError` if a broker would not continue it unchanged."""
    if listing is None:
        geometry = {
            "log_size": FILE_SIZE, "queue_size": tree.QUEUE_SIZE, "slots": HASH_SLOTS, "entries": MAX_ENTRIES,
        }  # fmt: skip
        configured = {
            name: options[option.name]
            for name, option in geometry.items()
            if options[option.name] is not None
        }
        return State(StoreConfig(**{"log_size": 1 << 30, **configured}))
    config = tree.config_of(listing, Options(tree.READ_OPTIONS, _given(options)))
    names = {entry.name for entry in listing.entries()}
    if tree.ABORT in names:
        raise UsageError(
            "the store has a file abort: its broker is running or was not stopped cleanly",
            advice="Stop the broker. If it was not stopped cleanly, start it and stop it first",
        )
    if config.batch_topics or config.ext:
        raise UsageError("a store with batch consume queues or queue extensions cannot be appended to")
    overlay = Overlay(listing)
    store = MessageStore(overlay, config, NEWEST, clean=True)
    try:
        store.load()
    except LoadError as error:
        raise UsageError(f"a broker does not load the store: {error}", advice="Repair it first") from None
    changed = [*overlay.removed, *overlay.rewritten, *overlay.created]
    if changed:
        raise UsageError(
            f"a broker would change {changed[0]} when it starts",
            advice="Start and stop a broker, or repair the store first",
        )
    counts = {key: queue.max_offset for key, queue in store.queues.items()}
    return State(config, store.max_phy, counts, int(store.checkpoint[1]), int(store.checkpoint[2]))


def _given(options: Options) -> dict[str, Any]:
    known = {option.name for option in tree.READ_OPTIONS}
    return {name: value for name, value in options.to_dict().items() if name in known and value is not None}


class StoreBuilder:
    """Writes a new store, or the files that an append changes. See `codec.store.build.Builder`."""

    def __init__(self, listing: Listing | None, options: Options) -> None:
        tree.refuse_several(options)
        self.listing, self.options = listing, options
        self.state = resume(listing, options)
        self.config = self.state.config
        self.rows = 0
        self.log = FilledFile("commitlog/", self.config.log_size, self.state.end)
        self.opened = False
        self.queues: dict[tuple[str, int], QueueWriter] = {}
        self.index = IndexWriter(self.config.slots, self.config.entries)
        self.last_phy = -1
        self.first_offsets: dict[str, int] = {}

    def add(self, rows: pa.RecordBatch) -> Iterator[Piece]:
        if not rows.num_rows:
            return
        batch = LOG._given(pa.Table.from_batches([rows])).combine_chunks().to_batches()[0]
        if self.options[OFFSETS.name] == "assign" or "queue_offset" not in rows.schema.names:
            batch = (
                LOG._given(
                    pa.Table.from_batches([rows.drop_columns(["queue_offset"])])
                    if "queue_offset" in rows.schema.names
                    else pa.Table.from_batches([rows])
                )
                .combine_chunks()
                .to_batches()[0]
            )
        if not self.opened:
            self.opened = True
            yield from self._open()
        counts = dict(self.state.next)
        _, starts = Writer(batch, dict(counts)).write(0, None, 0)
        offsets, blanks = self._assign_offsets(np.diff(starts))
        data, starts = Writer(batch, counts).write(0, offsets, 0)
        yield from self._derived(data.tobytes(), starts)
        at = 0
        for i, blank in blanks:
            yield from self.log.write(data[int(starts[at]) : int(starts[i])].tobytes())
            filler = BLANK.pack({"total_size": blank, "magic_code": BLANK_MAGIC})
            yield from self.log.write(filler)
            yield from self.log.close()
            at = i
        yield from self.log.write(data[int(starts[at]) :].tobytes())
        self.rows += rows.num_rows
        self.state.end = self.log.at

    def _assign_offsets(self, sizes: Int64s) -> tuple[Int64s, list[tuple[int, int]]]:
        """Return the physical offsets of messages, and for each end of a file the index of the next message and the bytes left."""
        size = self.config.log_size
        out, blanks, at = np.empty(len(sizes), np.int64), [], self.log.at
        for i, length in enumerate(sizes.tolist()):
            if length + _LEAST_LEFT > size:
                raise UsageError(
                    f"row {self.rows + i}: the message takes {length} bytes, but a file of {size} bytes holds at most {size - _LEAST_LEFT}",
                    advice="Set mappedFileSizeCommitLog to the broker's value",
                )
            left = size - at % size
            if length + _LEAST_LEFT > left:
                blanks.append((i, left))
                at += left
            out[i] = at
            at += length
        return out, blanks

    def _derived(self, data: bytes, starts: Int64s) -> Iterator[Piece]:
        """Write the units and the index entries of messages."""
        units: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
        entries: list[tuple[int, int, int]] = []
        for i in range(len(starts) - 1):
            message = check(data[int(starts[i]) : int(starts[i + 1])], Rules(), crc=False)
            if not isinstance(message, Message):
                raise UsageError(f"row {self.rows + i}: a broker would refuse the message")
            key = message.topic, message.queue_id
            if message.kind not in (PREPARED, ROLLBACK):
                expected = self.state.next.get(key)
                if expected is None:
                    expected = message.queue_offset
                    self._refuse_start(message, i)
                if message.queue_offset != expected:
                    raise UsageError(
                        f"row {self.rows + i}: queue_offset is {message.queue_offset}, expected {expected} in queue {key[1]} of {key[0]}",
                        advice="A queue has no gaps: sort the rows, or pass offsets=assign",
                    )
                self.state.next[key] = expected + 1
                units.setdefault(key, []).append((message.phy, message.size, message.tags_code))
            for name in keys_of(message, tags=NEWEST.bounded):
                entries.append((key_hash(message.topic, name), message.phy, message.store_timestamp))
            self.state.stored, self.last_phy = message.store_timestamp, message.phy
        for key, queued in units.items():
            if key not in self.queues:
                first = self.state.next[key] - len(queued)
                queue = self.queues[key] = QueueWriter(*key, self.config.queue_size, first)
                yield from queue.open(self._before(queue.file.name))
            yield from self.queues[key].add(
                *(np.array(column, np.int64) for column in zip(*queued, strict=True))
            )
        if entries:
            yield from self.index.add(*(np.array(column, np.int64) for column in zip(*entries, strict=True)))

    def _refuse_start(self, message: Message, i: int) -> None:
        if message.queue_offset > 0:
            raise UsageError(
                f"row {self.rows + i}: queue {message.queue_id} of {message.topic} would start at offset {message.queue_offset}; "
                "a broker skips such messages in a store whose log starts at 0",
                advice="Pass offsets=assign to number them from 0",
            )

    def _before(self, name: str) -> bytes:
        """Return the content of a file, or no bytes if it does not exist."""
        exists = self.listing is not None and any(entry.name == name for entry in self.listing.entries())
        return self.listing.read(name) if exists and self.listing is not None else b""

    def _open(self) -> Iterator[Piece]:
        """Continue the last files of the store."""
        if self.listing is None:
            return
        used = self.state.end % self.config.log_size
        if used:
            name = next(
                entry.name
                for entry in tree.logs(self.listing)
                if tree.base_of(entry.name) == self.state.end - used
            )
            self.log.folder = name[: -len(name.rpartition("/")[2])]
            for at in range(0, used, _STEP):
                yield Piece(self.log.name, self.listing.read(name, at, min(_STEP, used - at)))
        names = sorted(entry.name for entry in self.listing.entries() if tree.first(entry.name) == tree.INDEX)
        names = [name for name in names if tree.base_of(name) is not None]
        self.index.newest = max((tree.base_of(name) or 0 for name in names), default=0)
        self.index.full_at = self.state.full_at
        if names:
            yield from self._open_index(names[-1])

    def _open_index(self, name: str) -> Iterator[Piece]:
        assert self.listing is not None
        data = self.listing.read(name, 0, HEAD + 4 * self.config.slots)
        head = HEADER.unpack(data, 0, len(data))[0]
        slots = np.frombuffer(data[HEAD:], ">i4").astype(np.int32)
        if head["index_count"] >= self.config.entries:
            self.index.resume(name, head, slots, head["end_timestamp"])
            self.index.header |= {
                "begin_timestamp": head["end_timestamp"], "begin_physical_offset": head["end_physical_offset"],
            }  # fmt: skip
            self.index.name = ""
            return
        self.index.resume(
            name, {**head, "index_count": max(head["index_count"], 1)}, slots, self.state.full_at
        )
        end = entry_at(self.config.slots, self.index.count)
        yield Piece(name, Zeros(HEAD + 4 * self.config.slots))
        for at in range(HEAD + 4 * self.config.slots, end, _STEP):
            yield Piece(name, self.listing.read(name, at, min(_STEP, end - at)))

    def finish(self) -> Iterator[Piece]:
        if not self.rows:
            if self.listing is None:
                yield Piece(tree.CHECKPOINT, self._checkpoint(), done=True)
            return
        yield from self.log.close()
        for queue in self.queues.values():
            yield from queue.file.close()
        yield from self.index.close()
        topics = self._topics()
        if topics is not None:
            yield Piece(tree.TOPICS_FILE, topics, done=True)
        yield Piece(tree.CHECKPOINT, self._checkpoint(), done=True)

    def _checkpoint(self) -> bytes:
        last = max(self.last_phy, 0)
        row = {
            "physic_msg_timestamp": self.state.stored, "logics_msg_timestamp": self.state.stored,
            "index_msg_timestamp": self.index.full_at, "master_flushed_offset": 0, "confirm_phy_offset": last,
            "logics_physical_offset": last,
        }  # fmt: skip
        return bytes(CHECKPOINT.form(pa.Table.from_pylist([row])))

    def _topics(self) -> bytes | None:
        """Return topics.json with the written topics added, or None if it has them already."""
        before = self._before(tree.TOPICS_FILE)
        rows = {row["topic"]: row for row in TOPICS.parse(before).to_pylist()} if before else {}
        queue_counts: dict[str, int] = {}
        for topic, queue_id in self.queues:
            queue_counts[topic] = max(queue_counts.get(topic, 1), queue_id + 1)
        missing = {t: n for t, n in queue_counts.items() if t not in rows or rows[t]["read_queue_nums"] < n}
        if not missing:
            return None
        for topic, count in missing.items():
            known = rows.get(
                topic,
                {
                    "topic": topic,
                    "perm": 6,
                    "topic_filter_type": "SINGLE_TAG",
                    "topic_sys_flag": 0,
                    "order": False,
                    "attributes": [],
                },
            )
            rows[topic] = {
                **known,
                "read_queue_nums": count,
                "write_queue_nums": max(count, known.get("write_queue_nums", 0)),
            }
        schema = TOPICS.tables["rows"].schema()
        return bytes(TOPICS.form(pa.Table.from_pylist(list(rows.values()), schema=schema)))

    def summary(self) -> Summary:
        ids = {"last_physical_offset": self.last_phy} if self.rows else {}
        return Summary(self.rows, ids)


class StagedBuilder:
    """Stages the rows of one of several tasks. Physical offsets are assigned when all tasks are done."""

    def __init__(self) -> None:
        self.rows = 0
        self.schema: pa.Schema | None = None

    def add(self, rows: pa.RecordBatch) -> Iterator[Piece]:
        self.rows += rows.num_rows
        self.schema = self.schema or rows.schema
        yield Piece(_STAGED, framed(rows))

    def finish(self) -> Iterator[Piece]:
        if self.rows:
            yield Piece(_STAGED, b"", done=True)

    def summary(self) -> Summary:
        return Summary(
            self.rows, facts={"schema": None if self.schema is None else self.schema.serialize().to_pybytes()}
        )


def assemble(
    listing: Listing | None,
    parts: Sequence[tuple[Stage, Summary]],
    extra: Stage,
    options: Options,
    order: Any,
) -> Placement:
    """See `codec.layout.Layout.assemble`."""
    builder = StoreBuilder(listing, options)
    names: dict[str, None] = {}

    def pieces() -> Iterator[Piece]:
        for stage, summary in parts:
            if summary.rows:
                schema = pa.ipc.read_schema(pa.py_buffer(summary.facts["schema"]))
                for batch in read_framed(stage, _STAGED, schema):
                    yield from builder.add(batch)
        yield from builder.finish()

    for piece in pieces():
        extra.take([piece])
        names[piece.name] = None
    return Placement(tuple((extra, name, name) for name in order(names)), builder.summary())
