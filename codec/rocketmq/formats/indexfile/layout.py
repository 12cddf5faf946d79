"""The structures of an index file, and the chains of its entries. Source: `IndexFile`, `IndexHeader` of RocketMQ."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.arrays import Int32s, Int64s
from logwright.codec.describe import I32BE, I64BE, Bytes, Field, Struct, dtype_of
from logwright.codec.kernels.kernel import kernel

NAME = "rocketmq.indexfile"
SLOTS, ENTRIES = 5_000_000, 20_000_000
"""Defaults of `maxHashSlotNum` and `maxIndexNum`."""

HEADER = Struct(
    "IndexHeader",
    Field("begin_timestamp", I64BE, "store time of the first entry, in milliseconds since 1970"),
    Field("end_timestamp", I64BE, "store time of the last entry"),
    Field("begin_physical_offset", I64BE, "offset of the first entry's message in the commit log"),
    Field("end_physical_offset", I64BE, "offset of the last entry's message"),
    Field("hash_slot_count", I32BE, "number of slots in use"),
    Field("index_count", I32BE, "number of the next entry, which is the number of entries plus 1"),
    Field(
        "slots",
        Bytes("rest"),
        "the number of the newest entry of each slot, then 20 bytes of entry 0, which is unused",
    ),
    source="IndexHeader",
)
ENTRY = Struct(
    "IndexEntry",
    Field("key_hash", I32BE, "hash of topic#key, not negative"),
    Field("physical_offset", I64BE, "offset of the message in the commit log"),
    Field("time_diff", I32BE, "seconds from the file's begin_timestamp to the store time of the message"),
    Field("previous", I32BE, "number of the previous entry in the same slot; 0: none"),
    source="IndexFile.putKey",
)
HEAD, SIZE = HEADER.offset("slots"), ENTRY.min_size
HEAD_TYPE, ENTRY_TYPE = dtype_of(Struct("IndexHead", *HEADER.fields[:-1])), dtype_of(ENTRY)
FIELDS = tuple(field.name for field in HEADER.fields[:-1])
SYSTEM = "a broker finds fewer or other messages by key and reports no error; `logwright rebuild --what index` makes the index again"


def entry_at(slots: int, number: int) -> int:
    """Return the offset of an entry."""
    return HEAD + 4 * slots + SIZE * number


def chain(hashes: npt.NDArray[Any], slots: int, first: int, last: Int32s) -> Int32s:
    """Return the `previous` of entries with these hashes, numbered from `first`. `last` holds the slots and is updated."""
    out = np.empty(len(hashes), np.int32)
    put_previous(np.ascontiguousarray(hashes, np.int64), slots, first, last, out)
    return out


@kernel("const i8[], i8, i8, i4[], i4[]")
def put_previous(hashes: Int64s, slots: int, first: int, last: Int32s, out: Int32s) -> None:
    """As `chain`, into `out`."""
    for i in range(len(hashes)):
        slot = hashes[i] % slots
        out[i] = last[slot]
        last[slot] = first + i
