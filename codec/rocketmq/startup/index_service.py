"""The index of a store. Source: `IndexService`, `IndexFile`, `IndexHeader` of RocketMQ."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from logwright.codec.java import int64, integer
from logwright.codec.rocketmq.formats.commitlog.layout import ROLLBACK
from logwright.codec.rocketmq.formats.indexfile.layout import HEAD, SIZE, entry_at
from logwright.codec.rocketmq.startup.mapped_file import MappedFile
from logwright.codec.rocketmq.startup.message import Message, int32, string_hash
from logwright.codec.store.overlay import Overlay
from logwright.codec.window import Zeros

_HEADER = struct.Struct(">4q2i")
_ENTRY = struct.Struct(">iqii")
_INT_MAX = (1 << 31) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_TIME = 253_402_300_799_999
"""The last millisecond of the year 9999."""


def next_number(stored: int, newest: int) -> int:
    """Return the number in the name of a new index file after the file `newest`: a store time in milliseconds, with a four-digit year."""
    moment = _EPOCH + timedelta(milliseconds=min(max(stored, 0), _LAST_TIME))
    return max(int(moment.strftime("%Y%m%d%H%M%S%f")[:-3]), newest + 1)


def key_hash(topic: str, key: str) -> int:
    """`IndexFile.indexKeyHashMethod` of `topic#key`."""
    value = abs(string_hash(f"{topic}#{key}"))
    return 0 if value > _INT_MAX else value


def keys_of(message: Message, *, tags: bool) -> list[str]:
    """Return the index keys of a message. With `tags` its tags are a key too, as from 5.4.0 on."""
    named = message.properties
    out = [named["UNIQ_KEY"]] if "UNIQ_KEY" in named else []
    out += [key for key in named.get("KEYS", "").split(" ") if key]
    return [*out, f"T#{named['TAGS']}"] if tags and "TAGS" in named else out


class IndexFile:
    """An index file. `IndexService.flush` writes its header."""

    def __init__(self, file: MappedFile, slots: int, entries: int) -> None:
        self.file, self.slots, self.entries = file, slots, entries
        (
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_phy,
            self.end_phy,
            self.used_slots,
            self.count,
        ) = _HEADER.unpack(file.read(0, HEAD).ljust(HEAD, b"\0"))
        self.count = max(self.count, 1)

    @property
    def full(self) -> bool:
        return bool(self.count >= self.entries)

    @property
    def dated(self) -> bool:
        """Return whether a query without limits of time reads the file (`isTimeMatched`)."""
        return bool(self.end_timestamp >= 0 or self.begin_timestamp > 0)

    def _slot(self, number: int) -> int:
        return int.from_bytes(self.file.read(HEAD + 4 * number, 4), "big", signed=True)

    def put(self, hash_value: int, phy: int, stored: int) -> bool:
        if self.full:
            return False
        slot = hash_value % self.slots
        previous = self._slot(slot)
        if not 0 < previous <= self.count:
            previous = 0
        diff = max(int64(stored - self.begin_timestamp), 0) // 1000 if self.begin_timestamp > 0 else 0
        entry = _ENTRY.pack(hash_value, phy, min(diff, _INT_MAX), previous)
        self.file.write(entry_at(self.slots, self.count), entry)
        self.file.write(HEAD + 4 * slot, self.count.to_bytes(4, "big"))
        if self.count <= 1:
            self.begin_phy, self.begin_timestamp = phy, stored
        self.used_slots = int32(self.used_slots + (previous == 0))
        self.count += 1
        self.end_phy, self.end_timestamp = phy, stored
        return True

    def find(self, hash_value: int) -> Iterator[int]:
        """Yield physical offsets, the newest first (`selectPhyOffset`). A damaged chain may be a cycle, which yields forever."""
        number = self._slot(hash_value % self.slots)
        if not 0 < number <= self.count or self.count <= 1:
            return
        while True:
            at = int32(entry_at(self.slots, number))
            data = self.file.read(at, SIZE) if at >= 0 else b""
            if len(data) < SIZE:
                return
            entry_hash, phy, diff, previous = _ENTRY.unpack(data)
            if diff < 0:
                return
            # Limits of a query are 0 and the largest time.
            dated = int64(self.begin_timestamp + 1000 * diff) >= 0
            if entry_hash == hash_value and dated:
                yield phy
            if not 0 < previous <= self.count or previous == number or not dated:
                return
            number = previous

    def header(self) -> bytes:
        return _HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_phy,
            self.end_phy,
            self.used_slots,
            self.count,
        )


class IndexService:
    """The index files of a store. With `tags` tags are indexed."""

    def __init__(self, overlay: Overlay, slots: int, entries: int, *, tags: bool) -> None:
        self.overlay, self.slots, self.entries, self.tags = overlay, slots, entries, tags
        self.files: list[IndexFile] = []
        self.changed: set[IndexFile] = set()
        self.newest = 0
        """The number in the name of the newest file. A broker names a new file after the current time, which a simulation does not know."""

    @property
    def size(self) -> int:
        return entry_at(self.slots, self.entries)

    def load(self, names: list[str], *, clean: bool, checkpoint: int) -> None:
        """Load files. After an unclean stop the files newer than `checkpoint` are deleted."""
        for name in sorted(names):
            try:
                number = integer(name.rpartition("/")[2], 64)
            except ValueError:
                continue
            short = self.size - self.overlay.size(name)
            if short > 0:
                self.overlay.assemble(name, [*self.overlay.pieces(name), Zeros(short)])
            self.newest = max(self.newest, number)
            file = IndexFile(MappedFile(self.overlay, name, 0, self.size), self.slots, self.entries)
            if not clean and file.end_timestamp > checkpoint:
                self.overlay.delete(name)
                continue
            self.files.append(file)

    def _last(self, stored: int) -> IndexFile:
        """Return the file for the next entry. Create the file if needed."""
        if self.files and not self.files[-1].full:
            return self.files[-1]
        self.newest = next_number(stored, self.newest)
        name = f"index/{self.newest:017d}"
        self.overlay.create(name, self.size)
        file = IndexFile(MappedFile(self.overlay, name, 0, self.size), self.slots, self.entries)
        if self.files:
            before = self.files[-1]
            file.begin_timestamp = file.end_timestamp = before.end_timestamp
            file.begin_phy = file.end_phy = before.end_phy
        self.files.append(file)
        self.changed.add(file)
        return file

    def put(self, message: Message) -> None:
        file = self._last(message.store_timestamp)
        if message.phy < file.end_phy or message.kind == ROLLBACK:
            return
        for key in keys_of(message, tags=self.tags):
            hash_value = key_hash(message.topic, key)
            while not file.put(hash_value, message.phy, message.store_timestamp):
                file = self._last(message.store_timestamp)
            self.changed.add(file)

    def query(self, topic: str, key: str, most: int) -> list[int]:
        """Return at most `most` physical offsets, as `IndexService.queryOffset` does."""
        out: list[int] = []
        hash_value = key_hash(topic, key)
        for file in reversed(self.files):
            for phy in file.find(hash_value) if file.dated else ():
                if len(out) >= most:
                    return out
                out.append(phy)
            if file.begin_timestamp < 0:
                break
        return out

    def flush(self) -> None:
        for file in self.files:
            if file in self.changed:
                file.file.write(0, file.header())
                file.file.flush()
