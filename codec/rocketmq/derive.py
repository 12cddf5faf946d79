"""Derive consume queues and index files from messages while these are written.

Source: `ConsumeQueue.putMessagePositionInfo`, `IndexFile.putKey`, `StoreCheckpoint` of RocketMQ.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

from logwright.codec.describe import dtype_of
from logwright.codec.rocketmq.formats.consumequeue import FILLER, UNIT
from logwright.codec.rocketmq.formats.indexfile import ENTRY, HEADER, SIZE, chain, entry_at
from logwright.codec.store.build import Piece
from logwright.codec.window import Zeros

Int64s = npt.NDArray[np.int64]
_UNIT, _ENTRY = dtype_of(UNIT), dtype_of(ENTRY)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_TIME = 253_402_300_799_999
"""The last millisecond of the year 9999. Index file names have a four-digit year."""


class FilledFile:
    """Writes consecutive files of a fixed size. The last one is padded with zeros. `folder` ends in a slash."""

    def __init__(self, folder: str, size: int, at: int = 0) -> None:
        self.folder, self.size, self.at = folder, size, at

    @property
    def name(self) -> str:
        return f"{self.folder}{self.at - self.at % self.size:020d}"

    def write(self, data: bytes) -> Iterator[Piece]:
        """Write bytes. They may span several files."""
        start = 0
        while start < len(data):
            piece = data[start : start + self.size - self.at % self.size]
            name, full = self.name, (self.at + len(piece)) % self.size == 0
            self.at += len(piece)
            start += len(piece)
            yield Piece(name, piece, done=full)

    def close(self) -> Iterator[Piece]:
        left = -self.at % self.size
        if left:
            yield Piece(self.name, Zeros(left), done=True)
            self.at += left


class QueueWriter:
    """Writes one consume queue. `first` is the queue offset of its first new unit."""

    def __init__(self, topic: str, queue_id: int, size: int, first: int) -> None:
        self.first = self.next = first
        self.file = FilledFile(
            f"consumequeue/{topic}/{queue_id}/", size, first * UNIT.min_size // size * size
        )

    def open(self, before: bytes) -> Iterator[Piece]:
        """Write the file's existing units, or fillers up to the first queue offset."""
        missing = self.first * UNIT.min_size - self.file.at
        filler = UNIT.pack({"physical_offset": 0, "size": FILLER, "tags_code": 0})
        yield from self.file.write(before[:missing] or filler * (missing // UNIT.min_size))

    def add(self, phy: Int64s, size: Int64s, tags_code: Int64s) -> Iterator[Piece]:
        units = np.zeros(len(phy), _UNIT)
        units["physical_offset"], units["size"], units["tags_code"] = phy, size, tags_code
        self.next += len(phy)
        yield from self.file.write(units.tobytes())


class IndexWriter:
    """Writes index files. The slots of a file are written when it is full or closed."""

    def __init__(self, slots: int, room: int, newest: int = 0) -> None:
        self.slots, self.room, self.newest = slots, room, newest
        self.name = ""
        self.header = {
            "begin_timestamp": 0,
            "end_timestamp": 0,
            "begin_physical_offset": 0,
            "end_physical_offset": 0,
        }
        self.count, self.used = 1, 0
        self.full_at = 0
        """The store time of the last entry of the last full file."""
        self.last = np.zeros(0, np.int32)

    def resume(self, name: str, head: dict[str, int], slots: npt.NDArray[np.int32], full_at: int) -> None:
        """Continue a file whose entries are already written."""
        self.name, self.last, self.full_at = name, slots, full_at
        self.header = {field: head[field] for field in self.header}
        self.count, self.used = head["index_count"], head["hash_slot_count"]

    def begin(self, stored: int) -> Iterator[Piece]:
        """Create a file. Its name is a store time."""
        time = (_EPOCH + timedelta(milliseconds=min(max(stored, 0), _LAST_TIME))).strftime("%Y%m%d%H%M%S%f")[
            :-3
        ]
        self.newest = max(int(time), self.newest + 1)
        self.name = f"index/{self.newest:017d}"
        self.last = np.zeros(self.slots, np.int32)
        self.count, self.used = 1, 0
        yield Piece(self.name, Zeros(entry_at(self.slots, 1)))

    def add(self, hashes: Int64s, phys: Int64s, stored: Int64s) -> Iterator[Piece]:
        """Append entries. They must be in log order."""
        at = 0
        while at < len(hashes):
            if self.name and self.count >= self.room:
                yield from self.close()
            if not self.name:
                yield from self.begin(int(stored[at]))
            stop = min(len(hashes), at + self.room - self.count)
            part = slice(at, stop)
            entries = np.zeros(stop - at, _ENTRY)
            entries["key_hash"], entries["physical_offset"] = hashes[part], phys[part]
            begin = self.header["begin_timestamp"]
            if self.count == 1:
                # The first entry's time counts from the end of the previous file, the others' from the first entry.
                first = int(stored[at])
                diffs = stored[part] - first
                diffs[0] = first - begin if begin > 0 else 0
                self.header |= {"begin_timestamp": first, "begin_physical_offset": int(phys[at])}
            else:
                diffs = stored[part] - begin if begin > 0 else np.zeros(stop - at, np.int64)
            entries["time_diff"] = np.clip(np.trunc(diffs / 1000), 0, (1 << 31) - 1)
            entries["previous"] = chain(hashes[part], self.slots, self.count, self.last)
            self.used += int(np.count_nonzero(entries["previous"] == 0))
            self.count += stop - at
            self.header |= {
                "end_timestamp": int(stored[stop - 1]),
                "end_physical_offset": int(phys[stop - 1]),
            }
            yield Piece(self.name, entries.tobytes())
            at = stop

    def close(self) -> Iterator[Piece]:
        """Finish the file: pad it with zeros and write its header and slots."""
        if not self.name:
            return
        if self.room > self.count:
            yield Piece(self.name, Zeros(SIZE * (self.room - self.count)))
        head = {**self.header, "hash_slot_count": self.used, "index_count": self.count}
        yield Piece(
            self.name, HEADER.pack({**head, "slots": self.last.astype(">i4").tobytes()}), done=True, offset=0
        )
        if self.count >= self.room:
            self.full_at = self.header["end_timestamp"]
        end, phy = self.header["end_timestamp"], self.header["end_physical_offset"]
        self.header = {
            "begin_timestamp": end,
            "end_timestamp": end,
            "begin_physical_offset": phy,
            "end_physical_offset": phy,
        }
        self.name = ""
