"""Load and recover a store. Source: `DefaultMessageStore`, `CommitLog`, `ConsumeQueueStore`, `StoreCheckpoint` of RocketMQ."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from logwright.codec.java import int64, integer
from logwright.codec.rocketmq.formats.commitlog.layout import BORN_V6, PREPARED, ROLLBACK, V1, V2
from logwright.codec.rocketmq.startup.batch_consume_queue import BatchConsumeQueue
from logwright.codec.rocketmq.startup.consume_queue import ConsumeQueue, ConsumeQueueExt, Unit
from logwright.codec.rocketmq.startup.index_service import IndexService
from logwright.codec.rocketmq.startup.mapped_file import LoadError, MappedFile, MappedFileQueue
from logwright.codec.rocketmq.startup.message import (
    LARGEST_HEAD,
    Message,
    Refused,
    Rules,
    ThrownError,
    check,
    decode,
    int32,
    multi_dispatch,
    reach,
)
from logwright.codec.store.overlay import Overlay

Queue = ConsumeQueue | BatchConsumeQueue
_HEAD = 92
"""Bytes that are read to choose the first file to recover."""
_PULL, _PULL_BYTES = 32, 256 << 10
"""Limits of one pull in messages and bytes (`maxTransferCountOnMessageInMemory`, `maxTransferBytesOnMessageInMemory`)."""
_NO_SKIP = -(1 << 63)
_NAME = 255
"""Limit of a file name in bytes."""
_WINDOW = 1 << 20
"""Bytes of the commit log that are read at a time."""
_AHEAD = 1 << 16
"""Bytes that are read at least to serve a message: mostly the next one follows."""
_MARGIN = 3000
"""Milliseconds before the times of the checkpoint at which a recovery starts."""


@dataclass(frozen=True)
class StoreConfig:
    """The settings of a store, in upstream's terms."""

    log_size: int
    log_folders: Sequence[str] = ("commitlog",)
    """The folders of the commit log in the order in which a broker lists them. Of two files with the same name, the first comes first."""
    queue_size: int = 6_000_000
    batch_queue_size: int = 13_800_000
    ext_size: int = 50_331_648
    slots: int = 5_000_000
    entries: int = 20_000_000
    ext: bool = False
    lmq: bool = False
    batch_topics: Collection[str] = ()
    recover_max: int = 10
    rules: Rules = field(default_factory=Rules)
    check_offset: bool = False
    timer_size: int | None = None
    """The size of a timer log file; None if the timer is not loaded."""


@dataclass(frozen=True)
class Version:
    """A release, and how it differs from others."""

    number: tuple[int, int, int]

    @property
    def old(self) -> bool:
        """4.x: recovery does not dispatch; the start dispatches from the end of the consume queues."""
        return self.number < (5, 0, 0)

    @property
    def v2(self) -> bool:
        """Messages of version 2 are read, which have topics of more than 127 bytes."""
        return self.number >= (5, 1, 0)

    @property
    def bounded(self) -> bool:
        """Only the last files are recovered."""
        return self.number >= (5, 4, 0)

    @property
    def dispatches(self) -> bool:
        """A recovery after a clean stop dispatches."""
        return self.number >= (5, 3, 2)


def _is_file_name(topic: str) -> bool:
    """Return whether a folder can have this name."""
    return "\0" not in topic and all(len(part.encode()) <= _NAME for part in topic.split("/"))


class LogReader:
    """Checks the messages of a commit log file, which is read in windows."""

    def __init__(self, file: MappedFile, stop: int, rules: Rules) -> None:
        self.file, self.stop, self.rules = file, stop, rules
        self._start, self._data = 0, memoryview(b"")

    def check(self, position: int, *, crc: bool) -> Message | Refused | None:
        """As `message.check`, for the message at `position`."""
        size = reach(self._at(position, LARGEST_HEAD), self.rules)
        return check(self._at(position, size), self.rules, crc=crc, left=self.stop - position)

    def _at(self, position: int, size: int) -> memoryview:
        """Return the bytes from `position` on, at least `size` of them unless the file ends before."""
        size = min(size, self.stop - position)
        if position + size > self._start + len(self._data):
            length = max(size, min(_WINDOW, self.stop - position))
            self._start, self._data = position, memoryview(self.file.read(position, length))
        return self._data[position - self._start :]


class MessageStore:
    """A store on an overlay of its directory."""

    def __init__(self, overlay: Overlay, config: StoreConfig, version: Version, *, clean: bool) -> None:
        self.overlay, self.config, self.version, self.clean = overlay, config, version, clean
        force = config.rules.force_property_crc and version.number >= (5, 2, 0)
        self.rules = replace(config.rules, v2=version.v2, sized=not version.old, force_property_crc=force)
        self.log = MappedFileQueue(overlay, "commitlog", config.log_size)
        self.queues: dict[tuple[str, int], Queue] = {}
        self.index = IndexService(overlay, config.slots, config.entries, tags=version.bounded)
        self._window: tuple[MappedFile | None, int, bytes] = None, 0, b""
        """Bytes of a commit log file, which are not read again for the next message: file, position and content."""
        self.ended: str = ""
        """Why the log ends before its last byte; "" if it does not."""
        self.writable = True
        """Whether consume queues are written. If one queue cannot be created, none is written any more (`makeLogicsQueueError`)."""

    # Loading

    def load(self) -> None:
        """`DefaultMessageStore.load`. Raises `LoadError`."""
        folders: dict[str, list[str]] = {}
        for entry in self.overlay.entries():
            folders.setdefault(entry.name.rpartition("/")[0], []).append(entry.name)
        old = self.version.number < (5, 1, 3)
        logs = [name for folder in self.config.log_folders for name in folders.get(folder, ())]
        self._refuse_folders(self.config.log_folders)
        self.log.load(logs, old=old)
        self._load_queues(folders, old)
        values = self.overlay.read("checkpoint", 0, 48) if "checkpoint" in self.overlay else b""
        self.checkpoint = struct.unpack(">6q", values.ljust(48, b"\0"))
        self.index.load(folders.get("index", []), clean=self.clean, checkpoint=self.checkpoint[2])
        for queue in self.queues.values():
            queue.recover()
        self._recover()
        self._correct()
        for queue in self.queues.values():
            queue.flush()
        self.index.flush()

    def _refuse_folders(self, parents: Sequence[str]) -> None:
        """Raise `LoadError` for a folder among the files of a queue, which releases before 5.1.0 take for a file of the wrong size."""
        if self.version.number >= (5, 1, 0):
            return
        for parent in parents:
            folder = self._inner_folders.get(parent)
            if folder is not None:
                raise LoadError(
                    f"{folder} is a folder: length not matched message store config value, please check it manually"
                )

    @cached_property
    def _inner_folders(self) -> dict[str, str]:
        """Folders that hold no files of the store, by the folder in which they are."""
        return {folder.rpartition("/")[0]: folder for folder in self.overlay.inner_folders()}

    def _load_queues(self, folders: dict[str, list[str]], old: bool) -> None:
        for folder in folders:
            kind, _, rest = folder.partition("/")
            topic, _, number = rest.partition("/")
            if kind not in ("consumequeue", "batchconsumequeue"):
                continue
            try:
                queue_id = integer(number, 32)
            except ValueError:
                continue
            if (kind == "batchconsumequeue" and self.version.old) or (topic, queue_id) in self.queues:
                continue
            if (kind == "batchconsumequeue") is not (topic in self.config.batch_topics):
                raise LoadError(f"[BUG]Queue type of topic {topic} is not that of {folder}")
            # The files of a queue are in the folder with the plain number, even if `folder` is 007.
            names = folders.get(f"{kind}/{topic}/{queue_id}", [])
            queue = self._open(topic, queue_id)
            self._refuse_folders([f"{kind}/{topic}/{queue_id}"])
            queue.queue.load(names, old=old)
            if isinstance(queue, ConsumeQueue) and queue.ext is not None:
                queue.ext.queue.load(folders.get(f"consumequeue_ext/{topic}/{queue_id}", []), old=old)

    def _open(self, topic: str, queue_id: int) -> Queue:
        """`findOrCreateConsumeQueue`."""
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            if topic in self.config.batch_topics and not self.version.old:
                queue = BatchConsumeQueue(self.overlay, topic, queue_id, self.config.batch_queue_size)
            else:
                folder = f"consumequeue_ext/{topic}/{queue_id}"
                ext = ConsumeQueueExt(self.overlay, folder, self.config.ext_size) if self.config.ext else None
                queue = ConsumeQueue(self.overlay, topic, queue_id, self.config.queue_size, ext)
            self.queues[topic, queue_id] = queue
        return queue

    # Recovery

    @property
    def max_phy(self) -> int:
        return self.log.max_offset

    def _queue_phy(self) -> int:
        return max((queue.max_phy for queue in self.queues.values()), default=-1)

    def _recover(self) -> None:
        """`CommitLog.recoverNormally` and `recoverAbnormally`."""
        reached = self._queue_phy()
        if not self.log.files:
            self._destroy()
            return
        start = self._first_file(reached)
        end = self.log.files[start].base
        for file in self.log.files[start:]:
            end = file.base
            position, stopped = self._recover_file(file, reached)
            end += position
            if stopped:
                break
        if (self._queue_phy() if self.version.bounded else reached) >= end:
            for queue in self.queues.values():
                queue.truncate(end)
        self.log.truncate(end)
        if self.version.old:
            self._reput()

    def _recover_file(self, file: MappedFile, reached: int) -> tuple[int, bool]:
        """Return the end of the messages in a file, and whether the log ends there."""
        reader = LogReader(
            file, file.size, replace(self.rules, delays=() if self.version.old else self.rules.delays)
        )
        position = 0
        while True:
            message = reader.check(position, crc=True)
            if message is None:
                return position, False
            checked = self.config.check_offset and not self.clean
            if (
                checked
                and isinstance(message, Message)
                and not file.base <= message.phy < file.base + file.size
            ):
                message = Refused(-1, "found a message of another file")
            if isinstance(message, Refused):
                self.ended = message.text
                return position, True
            if (message.phy > reached and self.version.dispatches) if self.clean else True:
                self._dispatch(message)
            position += message.size

    def _first_file(self, reached: int) -> int:
        """Return the index of the file where recovery starts."""
        files = self.log.files
        least = max(len(files) - self.config.recover_max, 0) if self.version.bounded else 0
        if self.clean and not self.version.dispatches:
            return max(len(files) - 3, 0)
        for i in range(len(files) - 1, least - 1, -1):
            if self.clean and not self.version.bounded:
                if files[i].base <= reached:
                    return i
            elif self._matches(files[i], reached):
                return i
        return least

    def _matches(self, file: MappedFile, reached: int) -> bool:
        """`CommitLog.isMappedFileMatchedRecover`."""
        head = file.read(0, _HEAD)
        magic, flags = struct.unpack_from(">I", head, 4)[0], struct.unpack_from(">i", head, 36)[0]
        if self.version.bounded:
            if not isinstance(LogReader(file, file.size, self.rules).check(0, crc=True), Message):
                return False
        elif magic != V1 and not (magic == V2 and self.rules.v2):
            return False
        stored: int = struct.unpack_from(">q", head, 68 if flags & BORN_V6 else 56)[0]
        phy: int = struct.unpack_from(">q", head, 28)[0]
        if stored == 0:
            return False
        physic, logics, flushed = (int(self.checkpoint[i]) for i in (0, 1, 5))
        if self.clean:
            return phy <= reached
        if not self.version.bounded:
            return stored <= max(0, int64(min(physic, logics) - _MARGIN))
        return phy <= flushed if flushed > 0 else stored <= logics

    def _destroy(self) -> None:
        """Delete the consume queues, because the log has no file."""
        for queue in self.queues.values():
            files = [*queue.queue.files]
            if isinstance(queue, ConsumeQueue) and queue.ext is not None:
                files += queue.ext.queue.files
                queue.ext.queue.files.clear()
            for file in files:
                self.overlay.delete(file.name)
            queue.queue.files.clear()

    def _correct(self) -> None:
        """`recoverTopicQueueTable`: set the start of each queue to its first unit that points into the log."""
        for queue in self.queues.values():
            queue.correct_min(self.log.min_offset, old=self.version.old, fails=not self.version.bounded)

    # Dispatching

    def _dispatch(self, message: Message) -> None:
        """`CommitLogDispatcherBuildConsumeQueue` and `CommitLogDispatcherBuildIndex`."""
        if message.kind not in (PREPARED, ROLLBACK) and self.writable:
            queue = self._open(message.topic, message.queue_id)
            self.writable = _is_file_name(message.topic)
            if self.writable:
                queue.put(message)
            if self.writable and self.config.lmq and not self.version.old and isinstance(queue, ConsumeQueue):
                try:
                    light = multi_dispatch(message)
                except ValueError as error:
                    raise LoadError(f"java.lang.NumberFormatException: {error}") from None
                for name, queue_id, number in light:
                    self._open(name, queue_id).put(message, number, message.tags_code)
        self.index.put(message)

    def _reput(self) -> None:
        """`ReputMessageService.doReput`: dispatch from the end of the consume queues."""
        at = max(self._queue_phy(), self.log.min_offset, 0)
        while at < self.log.max_offset:
            file = self.log.find(at, or_first=at == 0)
            if file is None:
                return
            reader = LogReader(file, file.wrote, self.rules)
            position = at % file.size
            while position < file.wrote:
                message = reader.check(position, crc=False)
                if message is None:
                    break
                if isinstance(message, Refused):
                    if message.size <= 0:
                        break
                    position += message.size
                    continue
                self._dispatch(message)
                position += message.size
            at = file.base + file.size

    # Serving

    def message(self, phy: int, size: int) -> bytes | None:
        """Return the bytes of a message, or None if they are not in the log (`CommitLog.getMessage`).

        Raises `ThrownError` for a size that the real store does not expect.
        """
        file = self._file_of(phy, size)
        if file is None:
            return None
        at = phy % file.size
        known, start, data = self._window
        if known is not file or not start <= at <= at + size <= start + len(data):
            start, data = at, file.read(at, min(max(size, _AHEAD), file.size - at))
            self._window = file, start, data
        return data[at - start : at - start + size]

    def _file_of(self, phy: int, size: int) -> MappedFile | None:
        """Return the file with a message, or None. Raises as `message`."""
        file = self.log.find(phy, or_first=phy == 0)
        if file is None or int32(phy % file.size + size) > file.wrote:
            return None
        if not 0 <= size <= file.size - phy % file.size:
            raise ThrownError("java.lang.IllegalArgumentException")
        return file

    def decoded(self, phy: int, size: int) -> bytes | None:
        """Return a message as a client decodes it, or None."""
        try:
            data = self.message(phy, size)
        except ThrownError:
            return None
        return None if data is None else decode(data, v2=self.rules.v2)

    def query(self, topic: str, key: str, most: int = _PULL) -> list[int]:
        """Return the physical offsets that a client finds by a key (`queryMessage`)."""
        out = []
        for phy in sorted(self.index.query(topic, key, most)):
            size = int.from_bytes(self.message(phy, 4) or b"", "big", signed=True)
            if self.log.find(phy) is not None and self.decoded(phy, size) is not None:
                out.append(phy)
        return out

    def pull(self, queue: Queue, number: int) -> tuple[list[Unit], str, int]:
        """Return the result of a pull: units, status and the next queue offset (`getMessage`)."""
        if queue.max_offset == 0:
            return [], "NO_MESSAGE_IN_QUEUE", 0
        if number < queue.min_offset:
            return [], "OFFSET_TOO_SMALL", queue.min_offset
        if number >= queue.max_offset:
            return (
                [],
                "OFFSET_OVERFLOW_ONE" if number == queue.max_offset else "OFFSET_OVERFLOW_BADLY",
                queue.max_offset,
            )
        units = queue.units(number)
        if units is None:
            return [], "OFFSET_FOUND_NULL", queue.next_file(number)
        picked: list[Unit] = []
        total, skip, following = 0, _NO_SKIP, number
        status = "NO_MATCHED_MESSAGE"
        try:
            for unit in units:
                if isinstance(queue, ConsumeQueue):
                    queue.check_extension(unit)
                if following >= queue.max_offset or unit.number - number >= queue.most_units:
                    break
                count = sum(before.count for before in picked)
                if total and (count + unit.count > _PULL or int32(total + unit.size) > _PULL_BYTES):
                    break
                following = unit.number + unit.count
                if unit.phy < skip:
                    continue
                if self._file_of(unit.phy, unit.size) is None:
                    status = status if total else "MESSAGE_WAS_REMOVING"
                    size = self.config.log_size
                    # The remainder in Java has the sign of the offset.
                    skip = int64(
                        unit.phy + size - (unit.phy % size if unit.phy >= 0 else -(-unit.phy % size))
                    )
                    continue
                picked.append(unit)
                total += unit.size
                status, skip = "FOUND", _NO_SKIP
        except ThrownError as error:
            return [], str(error), number + 1
        return picked, status, following

    def read_all(self) -> Iterator[tuple[tuple[str, int], Unit]]:
        """Pull every queue from its first offset to its last, and yield the units with their queues. A gap of any length takes a bounded
        number of pulls."""
        for key, queue in sorted(self.queues.items()):
            number = queue.min_offset
            while number < queue.max_offset:
                units, status, following = self.pull(queue, number)
                for unit in units:
                    yield key, unit
                if following <= number or status == "OFFSET_FOUND_NULL":
                    following = queue.skip(max(following, number + 1))
                number = following
