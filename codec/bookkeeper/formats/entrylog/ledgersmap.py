"""The ledgers map at the end of a finished entry log: the bytes of each ledger in it, in batches of at most 10,000 ledgers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from logwright.codec.arrays import Bytes, Int64s
from logwright.codec.bookkeeper.formats.entrylog.layout import (
    HEADER,
    HEADER_SIZE,
    INVALID_LEDGER,
    MAGIC,
    MAP_ENTRY,
    MOST_LEDGERS,
    NEWEST,
)
from logwright.codec.columns import distinct

_BATCH = struct.Struct(">iqqi")
_FACTOR, _MASK = 0xC6A4A7935BD1E995, (1 << 64) - 1


@dataclass(frozen=True)
class LedgersMap:
    """The map of a file. `error`: why a bookie ignores the map and scans the file; "" if it uses the map."""

    version: int = 1
    offset: int = 0
    count: int = 0
    sizes: Mapping[int, int] = field(default_factory=dict)
    end: int = 0
    error: str = ""


def read_map(read: Callable[[int, int], Bytes], size: int) -> LedgersMap | None:
    """Read the map of a file of `size` bytes, as `DefaultEntryLogger.extractEntryLogMetadataFromIndex` does. Return None without a header."""
    head = read(0, HEADER.head_size).tobytes()
    if len(head) < HEADER.head_size or not head.startswith(MAGIC):
        return None
    values, _ = HEADER.unpack(head)
    version, offset, count = values["version"], values["ledgers_map_offset"], values["ledgers_count"]
    if version < 1 or offset == 0:
        return LedgersMap(version, offset, count)
    sizes: dict[int, int] = {}

    def failed(text: str) -> LedgersMap:
        return LedgersMap(version, offset, count, sizes, at, text)

    at = offset
    if not 0 < offset < size:
        return failed(f"ledgers_map_offset is {offset}, the file has {size} bytes")
    while at < size:
        head = read(at, _BATCH.size).tobytes()
        length = int.from_bytes(head[:4], "big", signed=True)
        if length <= 0:
            break
        if len(head) < _BATCH.size:
            return failed(f"the ledgers map at byte {at} is truncated")
        _, ledger, entry, ledgers = _BATCH.unpack(head)
        if ledger != INVALID_LEDGER or entry != MAP_ENTRY:
            return failed(f"the ledgers map at byte {at} has ids {ledger} and {entry}, expected -1 and -2")
        if ledgers < 0 or length != _BATCH.size - 4 + 16 * ledgers or length > size - at - 4:
            return failed(
                f"the batch of the ledgers map at byte {at} has {length} bytes, which do not fit {ledgers} ledgers"
            )
        pairs = np.frombuffer(read(at + _BATCH.size, 16 * ledgers).tobytes(), ">i8").reshape(-1, 2).tolist()
        sizes.update((int(ledger), int(bytes_of)) for ledger, bytes_of in pairs)
        at += 4 + length
    if len(sizes) != count or not sizes:
        return failed(f"ledgers_count is {count}, the ledgers map has {len(sizes)} ledgers")
    return LedgersMap(version, offset, count, sizes, at)


def ledger_sizes(ledger: Int64s, sizes: Int64s) -> dict[int, int]:
    """Return the bytes of each ledger, in the order in which the ledgers first occur. `sizes` are those of the frames."""
    ledgers, group = distinct(ledger)
    totals = np.bincount(group, sizes, len(ledgers)).astype(np.int64)
    return dict(zip(ledgers, totals.tolist(), strict=True))


def log_header(offset: int = 0, count: int = 0, version: int = NEWEST) -> bytes:
    """Return the header of an entry log with a ledgers map of `count` ledgers at `offset`; 0: without a map."""
    values = {"version": version, "ledgers_map_offset": offset, "ledgers_count": count}
    return HEADER.pack(values).ljust(HEADER_SIZE, b"\0")


def map_bytes(sizes: Mapping[int, int]) -> bytes:
    """Return the batches of a map. `sizes` are the bytes of each ledger, in the order in which the ledgers first occur in the file."""
    order = map_order(list(sizes))
    out = []
    for first in range(0, len(order), MOST_LEDGERS):
        batch = order[first : first + MOST_LEDGERS]
        out.append(_BATCH.pack(_BATCH.size - 4 + 16 * len(batch), INVALID_LEDGER, MAP_ENTRY, len(batch)))
        out.append(np.array([(ledger, sizes[ledger]) for ledger in batch], ">i8").tobytes())
    return b"".join(out)


def map_order(ledgers: list[int]) -> list[int]:
    """Return ledgers in the order in which upstream writes them, that of its hash table. Source: `ConcurrentLongLongHashMap`."""
    slots: list[int | None] = [None] * 512

    def put(ledger: int) -> None:
        value = ledger * _FACTOR & _MASK
        bucket = (value ^ value >> 47) * _FACTOR & len(slots) - 1
        while slots[bucket] is not None:
            bucket = bucket + 1 & len(slots) - 1
        slots[bucket] = ledger

    for used, ledger in enumerate(ledgers, 1):
        put(ledger)
        if used > len(slots) * 66 // 100:
            old = [slot for slot in slots if slot is not None]
            slots[:] = [None] * (2 * len(slots))
            for each in old:
                put(each)
    return [slot for slot in slots if slot is not None]
