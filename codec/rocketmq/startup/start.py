"""Simulate the start of a broker: the resulting files, and the messages that consumers get."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Int64s
from logwright.codec.describe import DescriptionError
from logwright.codec.engine.startup import (
    Answers,
    LostRows,
    Refused,
    Served,
    Settings,
    Startup,
    SystemRepair,
    lost_runs,
)
from logwright.codec.fault import UsageError
from logwright.codec.frames.codec import Part
from logwright.codec.option import Options
from logwright.codec.rocketmq.check.timer import pending, timer_faults
from logwright.codec.rocketmq.formats.commitlog.codec import CODEC as LOG
from logwright.codec.rocketmq.formats.commitlog.layout import PREPARED, ROLLBACK, TRANSACTION
from logwright.codec.rocketmq.formats.commitlog.read import Messages
from logwright.codec.rocketmq.formats.config import CONSUMER_OFFSETS, DELAY_OFFSETS, TOPICS
from logwright.codec.rocketmq.startup.mapped_file import LoadError
from logwright.codec.rocketmq.startup.message import TIMER_TOPIC
from logwright.codec.rocketmq.startup.message_store import MessageStore, Version
from logwright.codec.rocketmq.startup.timer import load_timer
from logwright.codec.rocketmq.store import tree
from logwright.codec.rocketmq.store.log import Log
from logwright.codec.rocketmq.store.views import QUEUES, consumer_offsets
from logwright.codec.store.extents import Copy
from logwright.codec.store.listing import Listing, Plan
from logwright.codec.store.overlay import Overlay
from logwright.codec.window import Zeros

VERSIONS = ("5.5.0", "5.3.3", "4.9.7")
_AT_A_TIME = 1 << 12
_CONFIGURATION = {
    tree.TOPICS_FILE: TOPICS,
    tree.OFFSETS_FILE: CONSUMER_OFFSETS,
    tree.DELAYS_FILE: DELAY_OFFSETS,
}
_PID = b"1"
"""The content of the file abort. A broker writes its process id, which is unknown."""


class ServedStore(Served):
    """A store that a broker has loaded."""

    def __init__(self, overlay: Overlay, store: MessageStore, plan: Plan, options: Options) -> None:
        self.overlay, self.store, self.plan, self.options = overlay, store, plan, options

    @cached_property
    def messages(self) -> Int64s:
        """The physical offset and size of each message that consumers get, in log order, without duplicates."""
        spans = array("q")
        for _, unit in self.store.read_all():
            # Offset 0 stands for the first file, if its own is missing.
            spans.extend((unit.phy or self.store.log.min_offset, unit.size))
        phy, size = np.frombuffer(spans, np.int64).reshape(-1, 2).T
        order = np.lexsort((size, phy))
        new = np.ones(len(order), np.bool_)
        new[1:] = (np.diff(phy[order]) != 0) | (np.diff(size[order]) != 0)
        order = order[new]
        decoded = [self.store.decoded(int(phy[i]), int(size[i])) is not None for i in order]
        order = order[np.array(decoded, np.bool_)]
        return np.stack([phy[order], size[order]], axis=1)

    def answers(self) -> Answers:
        store = self.store
        serves: dict[str, Any] = {
            "first": store.log.min_offset if store.log.files else None,
            "last": int(self.messages[-1, 0]) if len(self.messages) else None,
            "log_end": store.max_phy,
        }
        warnings = []
        if any((places >= store.max_phy).any() for _, places in self._salvaged()):
            reason = f": {store.ended}" if store.ended else ""
            warnings.append(f"the log ends at {store.max_phy}{reason}; later messages will be overwritten")
        if tree.has_rocksdb_queues(self.overlay.below):
            warnings.append(
                "the consume queues are in RocksDB, but this is the start of a broker with queue files"
            )
        if store.config.timer_size is not None and not store.version.old:
            if any(tree.first(entry.name) == tree.TIMER for entry in self.overlay.entries()):
                serves["timer_messages"] = pending(self.overlay, self.options[tree.TIMER_PRECISION.name])
            warnings += self._timer_warnings()
        return Answers(len(self.messages), serves, warnings=tuple(warnings))

    def _timer_warnings(self) -> Iterator[str]:
        """Yield what keeps the timer from delivering messages, or makes it deliver them again."""
        faults = [item for item in self.plan.faults if tree.is_timer(item[0])]
        for name, fault in [*faults, *timer_faults(self.overlay, self.options[tree.TIMER_PRECISION.name])]:
            yield f"{name}: {fault.detail}; {fault.system}"
        queue = self.store.queues.get((TIMER_TOPIC, 0))
        if not faults and tree.TIMER_CHECK not in self.overlay and queue is not None and queue.max_offset:
            yield f"{tree.TIMER_CHECK} is missing; the timer delivers all messages of {TIMER_TOPIC} again"

    def _salvaged(self) -> Iterator[tuple[Part, Int64s]]:
        """Yield the undamaged messages on disk that belong in a queue, with their places in the log. These are -1 if they are split."""
        log = Log(self.overlay.below, self.plan, self.options)
        for name, part in chain(log.read(), log.strays()):
            kind = part.head["sys_flag"] & TRANSACTION
            part = part.pick((kind != PREPARED) & (kind != ROLLBACK))
            if len(part):
                places = part.start + part.offset + tree.start_of(name)
                yield part, places if name else np.full(len(part), -1)

    def lost(self) -> Iterator[LostRows]:
        served = self.messages[:, 0]
        return lost_runs(
            (~np.isin(places, served), partial(_lost_range, part)) for part, places in self._salvaged()
        )

    def parts(self, view: str) -> None:
        if view not in ("messages", "queues"):
            raise UsageError(f"mode AS_SYSTEM has no view {view!r}", advice="Use view messages or queues")

    def rows(self, view: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if view == "queues":
            rows = [{name: row[name] for name in columns} for row in self._queues()]
            yield pa.RecordBatch.from_pylist(rows, schema=QUEUES.schema(columns))
            return
        for at in range(0, len(self.messages), _AT_A_TIME):
            messages = [
                self.store.decoded(phy, size) or b""
                for phy, size in self.messages[at : at + _AT_A_TIME].tolist()
            ]
            yield rows_of(messages, columns, self.options)

    def _queues(self) -> Iterator[dict[str, Any]]:
        """Yield the queues as a broker serves them."""
        offsets = consumer_offsets(self.overlay)
        reads: dict[tuple[str, int], tuple[int, int, int]] = {}
        for key, unit in self.store.read_all():
            count, first_phy, _ = reads.get(key, (0, unit.phy, 0))
            reads[key] = count + unit.count, first_phy, unit.phy
        for key, queue in sorted(self.store.queues.items()):
            count, first, last = reads.get(key, (0, None, None))
            low, high = queue.min_offset, queue.max_offset
            empty = high < max(low, 1)
            yield {
                "topic": key[0], "queue_id": key[1], "min_offset": None if empty else low, "max_offset": None if empty else high,
                "messages": count, "gaps": high - low - count, "first_physical_offset": first,
                "last_physical_offset": last, "consumer_offsets": offsets.get(key, []),
            }  # fmt: skip

    def settle(self, repair: SystemRepair) -> None:
        """Clear the bytes after the end of the log and of the queues. A broker keeps them and may read them again."""
        for before, after in pairwise(self.store.log.files):
            if before.base == after.base:
                self.overlay.delete(after.name)  # of two files with the same offset, the first is read
        for file in self.store.log.files[-1:]:
            self.overlay.assemble(file.name, [Copy(file.name, 0, file.wrote), Zeros(file.size - file.wrote)])
        for queue in self.store.queues.values():
            for file in queue.queue.files[-1:]:
                if any(file.read(file.wrote)):
                    file.write(file.wrote, bytes(file.size - file.wrote))
            queue.flush()
        super().settle(repair)
        repair.ids = {"last_physical_offset": int(self.messages[-1, 0]) if len(self.messages) else -1}


def _lost_range(part: Part, start: int, stop: int) -> dict[str, Any]:
    """Describe a range of lost messages."""
    phy = part.head["physical_offset"]
    topics = Messages(part.pick(slice(start, stop)), 1).topics()
    where = {"first_physical_offset": int(phy[start]), "last_physical_offset": int(phy[stop - 1])}
    return {"topic": topics[0], **where} if len(topics) == 1 else where


def rows_of(messages: Sequence[bytes], columns: Sequence[str], options: Options) -> pa.RecordBatch:
    """Return messages as rows. Checksums are not verified, as in a client."""
    return LOG.batch(LOG.part_of(messages), columns, LOG.context("", options.only(LOG.options)))


def start(overlay: Overlay, settings: Settings) -> ServedStore | Refused:
    """Simulate the start of a broker. See `codec.engine.startup.Start`."""
    options = settings.options
    number = [int(part) for part in settings.version.split(".")]
    config = tree.config_of(overlay, options)
    store = MessageStore(overlay, config, Version((number[0], number[1], number[2])), clean=settings.clean)
    try:
        store.load()
        if config.timer_size is not None and not store.version.old:
            load_timer(overlay, config.timer_size, old=store.version.number < (5, 1, 3))
        _load_configuration(overlay)
    except LoadError as error:
        return Refused("process", str(error), None)
    before = tree.content(overlay, tree.ABORT)
    overlay.put(f"{tree.ABORT}.bak", before)
    overlay.put(tree.ABORT, before or _PID)
    if tree.CHECKPOINT not in overlay or overlay.size(tree.CHECKPOINT) < 4096:
        overlay.put(tree.CHECKPOINT, tree.content(overlay, tree.CHECKPOINT).ljust(4096, b"\0"))
    return ServedStore(overlay, store, settings.plan, options)


def _load_configuration(overlay: Overlay) -> None:
    """Raise `LoadError` for a file of `config/` that is missing or damaged, if its backup is damaged too (`ConfigManager.load`)."""
    for name, codec in _CONFIGURATION.items():
        for path in (name, f"{name}.bak"):
            data = tree.content(overlay, path)
            try:
                if data:
                    codec.parse(data)
                    break
            except DescriptionError as error:
                if path != name:
                    raise LoadError(f"load {name} Failed: {error}") from None


def last_stop(listing: Listing, clean: bool | None) -> tuple[bool, str]:
    """Return whether the last stop was clean, and how it is known. A clean stop removes the file `abort`."""
    if clean is not None:
        return clean, "option"
    return all(entry.name != tree.ABORT for entry in listing.entries()), tree.ABORT


STARTUP = Startup(
    "rocketmq",
    VERSIONS,
    start,
    last_stop,
    refusal="a broker does not load this store: {error}",
    advice="Remove or repair the file named in the error",
)
