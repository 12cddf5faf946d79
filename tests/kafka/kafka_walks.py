"""A segment of ten batches, ways to damage it, and a listing with unreadable bytes, for tests of the walk."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from kafka_log import NAME, batch, record

from logwright.codec.fault import UnreadableError
from logwright.codec.frames.walk import Walk
from logwright.codec.kafka.formats.log.layout import RECORD_BATCH
from logwright.codec.store.listing import Entry, PlannedFile, Role

SIZES = (0, 10, 400, 3, 90, 1000, 5, 0, 60, 200)
BATCHES = [batch(10 * n, [record(value=b"v" * size)]) for n, size in enumerate(SIZES)]
STARTS = [sum(map(len, BATCHES[:n])) for n in range(len(BATCHES))]
WHOLE = b"".join(BATCHES)


@dataclass
class Disk:
    """A listing of one file with unreadable ranges `bad`."""

    data: bytes
    bad: list[tuple[int, int]] = field(default_factory=list)
    name: str = "orders-0"
    most: int = 0

    def entries(self) -> list[Entry]:
        return [Entry(NAME, len(self.data))]

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        stop = len(self.data) if length is None else min(len(self.data), offset + length)
        self.most = max(self.most, stop - offset)
        for low, high in self.bad:
            if low < stop and offset < high:
                raise UnreadableError.of(max(low, offset), high - max(low, offset), "EIO", name)
        return self.data[offset:stop]

    def parent(self) -> None:
        return None


def planned(data: bytes) -> PlannedFile:
    return PlannedFile(NAME, len(data), Role.PRIMARY, "kafka.log", {"base_offset": 0})


def put(at: int, new: bytes) -> bytes:
    return WHOLE[:at] + new + WHOLE[at + len(new) :]


LENGTH, MAGIC = RECORD_BATCH.offset("batch_length"), RECORD_BATCH.offset("magic")

DAMAGE = {
    "magic": (put(STARTS[2] + MAGIC, b"\7"), {2}),
    "length of nothing": (put(STARTS[2] + LENGTH, bytes(4)), {2}),
    "length beyond the end": (put(STARTS[5] + LENGTH, b"\0\x10\0\0"), {5}),
    "a batch of zeros": (put(STARTS[4], bytes(len(BATCHES[4]))), {4}),
    "two of noise": (put(STARTS[6], b"\xa7" * (len(BATCHES[6]) + len(BATCHES[7]))), {6, 7}),
    "the first": (put(0, b"\xff" * 30), {0}),
    "the last": (put(STARTS[9] + MAGIC, b"\7"), {9}),
    "a torn tail": (WHOLE[:-7], {9}),
    "half a header at the end": (WHOLE + BATCHES[0][:30], set()),
    "zeros at the end": (WHOLE + bytes(5000), set()),
    "noise at the end": (WHOLE + b"\xa7" * 300, set()),
    "all of it": (b"\xa7" * 3000, set(range(10))),
}


def walk_by(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all walks use windows of this size."""
    for name in ("_HEAD", "_AFTER_DAMAGE", "_DENSE"):
        monkeypatch.setattr(f"logwright.codec.frames.walk.{name}", 0 if name == "_HEAD" else min(window, 100))
    monkeypatch.setitem(cast("dict[str, Any]", Walk.__init__.__kwdefaults__), "step", window)
