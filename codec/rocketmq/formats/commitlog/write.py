"""Write messages from rows. The physical offset of a message is where it is written."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.arrays import Int32s, Int64s
from logwright.codec.columns import contents, distinct, values_of
from logwright.codec.fault import UsageError
from logwright.codec.frames.codec import was_given
from logwright.codec.kernels.compress import CompressionError
from logwright.codec.kernels.crc32 import crc32
from logwright.codec.kernels.intrinsics import (
    append_short,
    copy,
    load_u8,
    store_16be,
    store_32be,
    store_64be,
)
from logwright.codec.kernels.kernel import kernel
from logwright.codec.kernels.memory import aligned
from logwright.codec.rocketmq.formats.commitlog import bodies, hosts
from logwright.codec.rocketmq.formats.commitlog.layout import (
    BORN_V6,
    COMPRESSED,
    CRC_MASK,
    DIGITS,
    MAX_PROPERTIES,
    MAX_TOPIC_V1,
    PREPARED,
    ROLLBACK,
    SMALLEST,
    STORE_V6,
    TRAILER,
    TRANSACTION,
    V1,
    V2,
    has_trailer,
)
from logwright.codec.rocketmq.formats.commitlog.rows import NAME
from logwright.codec.rocketmq.formats.commitlog.texts import Texts, put_text
from logwright.codec.window import Bytes

_MASK, _SIGN = 0xFFFFFFFF, 1 << 31
_BORN_HOST, _STORE_HOST = "127.0.0.1:0", "127.0.0.1:10911"
_HOST = 8
"""Size of an IPv4 host."""
_VERSION, _TOPIC, _LONG, _LARGE = range(1, 5)
_REFUSALS = {
    _VERSION: "version must be 1 or 2",
    _TOPIC: f"a topic of version 1 is limited to {MAX_TOPIC_V1} bytes",
    _LONG: f"topic and properties are limited to {MAX_PROPERTIES} bytes each",
    _LARGE: "a message must be smaller than 2 GiB",
}


@kernel("i8, i8", inline=True)
def version_of(version: int, topic: int) -> int:
    """Return the version of a message, which is 0 if not given, with a topic of this size."""
    if version == 0:
        return 2 if topic > MAX_TOPIC_V1 else 1
    return version


@kernel("const i4[], const i4[], const i4[], const i4[], const i4[], const i8[], i8[]")
def measure_messages(
    versions: Int32s, born_ends: Int32s, store_ends: Int32s, body_ends: Int32s, topic_ends: Int32s, texts: Int64s, starts: Int64s
) -> tuple[int, int]:  # fmt: skip
    """Set `starts` to where each message starts, and where the last one ends. Return the index of the first refused message and a key of
    `_REFUSALS`, or -1 and 0. A column of numbers may have one item for all messages."""
    many = 0 if len(versions) == 1 else -1
    at = 0
    for i in range(len(texts)):
        topic = topic_ends[i + 1] - topic_ends[i]
        version = version_of(versions[i & many], topic)
        if version != 1 and version != 2:
            return i, _VERSION
        if version == 1 and topic > MAX_TOPIC_V1:
            return i, _TOPIC
        if topic > MAX_PROPERTIES or texts[i] > MAX_PROPERTIES:
            return i, _LONG
        size = SMALLEST - 2 * _HOST + (version == 2) + texts[i] + topic + (body_ends[i + 1] - body_ends[i])
        size += born_ends[i + 1] - born_ends[i] + (store_ends[i + 1] - store_ends[i])
        if size > (1 << 31) - 1:
            return i, _LARGE
        starts[i] = at
        at += size
    starts[len(texts)] = at
    return -1, 0


@kernel(
    "u1[], i8, i8, const i8[], const i4[], const i4[], const i4[], const i8[], const i8[], const i4[], const i8[], const i8[], const i4[], "
    "const i8[], const u1[], const i4[], const u1[], const i4[], const u1[], const i4[], const u1[], const i4[], "
    "const i4[], const u1[], const i4[], const u1[], const i4[], const u1[], const u1[], const i4[], const u1[], const i4[]"
)
def put_messages(
    out: Bytes, first: int, stop: int, starts: Int64s,
    versions: Int32s, queue_ids: Int32s, flags: Int32s, queue_offsets: Int64s, physical_offsets: Int64s, sys_flags: Int32s,
    born_times: Int64s, stored_times: Int64s, reconsume_times: Int32s, prepared: Int64s,
    born: Bytes, born_ends: Int32s, store: Bytes, store_ends: Int32s, body: Bytes, body_ends: Int32s, topic: Bytes, topic_ends: Int32s,
    lists: Int32s, names: Bytes, name_ends: Int32s, values: Bytes, value_ends: Int32s, adds: Bytes,
    tags: Bytes, tag_ends: Int32s, keys: Bytes, key_ends: Int32s,
) -> None:  # fmt: skip
    """Write the messages `first` to `stop`, concatenated. A column of numbers may have one item for all messages. `lists` and what follows:
    see `put_text`."""
    # An index is cleared where the column has one item.
    in_versions = 0 if len(versions) == 1 else -1
    in_ids = 0 if len(queue_ids) == 1 else -1
    in_flags = 0 if len(flags) == 1 else -1
    in_offsets = 0 if len(queue_offsets) == 1 else -1
    in_sys_flags = 0 if len(sys_flags) == 1 else -1
    in_born = 0 if len(born_times) == 1 else -1
    in_stored = 0 if len(stored_times) == 1 else -1
    in_times = 0 if len(reconsume_times) == 1 else -1
    in_prepared = 0 if len(prepared) == 1 else -1
    for i in range(first, stop):
        start = starts[i] - starts[first]
        end = starts[i + 1] - starts[first]
        topic_size = topic_ends[i + 1] - topic_ends[i]
        version = version_of(versions[i & in_versions], topic_size)
        at = store_32be(out, start, end - start)
        at = store_32be(out, at, V2 if version == 2 else V1)
        at = store_32be(out, at, crc32(body, body_ends[i], body_ends[i + 1]) & CRC_MASK)
        at = store_32be(out, at, queue_ids[i & in_ids])
        at = store_32be(out, at, flags[i & in_flags])
        at = store_64be(out, at, queue_offsets[i & in_offsets])
        at = store_64be(out, at, physical_offsets[i])
        born_size = born_ends[i + 1] - born_ends[i]
        store_size = store_ends[i + 1] - store_ends[i]
        sys_flag = sys_flags[i & in_sys_flags] & ~(BORN_V6 | STORE_V6)
        sys_flag |= (BORN_V6 if born_size > _HOST else 0) | (STORE_V6 if store_size > _HOST else 0)
        at = store_32be(out, at, sys_flag)
        at = store_64be(out, at, born_times[i & in_born])
        append_short(out, at, born, born_ends[i], born_size)
        at = store_64be(out, at + born_size, stored_times[i & in_stored])
        append_short(out, at, store, store_ends[i], store_size)
        at = store_32be(out, at + store_size, reconsume_times[i & in_times])
        at = store_64be(out, at, prepared[i & in_prepared])
        size = body_ends[i + 1] - body_ends[i]
        at = store_32be(out, at, size)
        copy(out, at, body, body_ends[i], size)
        at += size
        if version == 2:
            at = store_16be(out, at, topic_size)
        else:
            out[at] = topic_size
            at += 1
        append_short(out, at, topic, topic_ends[i], topic_size)
        at = store_16be(out, at + topic_size, end - at - topic_size - 2)
        put_text(
            out, at, i, lists, names, name_ends, values, value_ends, adds, tags, tag_ends, keys, key_ends
        )
        # The first test is of one byte, which the processor finds among those that are not in memory yet.
        if load_u8(out, end - DIGITS - 2) == 1 and has_trailer(out, start, end):
            value = crc32(out, start, end - TRAILER) & CRC_MASK
            for k in range(DIGITS):
                out[end - 1 - DIGITS + k] = 48 + value % 10
                value //= 10


@kernel("const i8[], i8[], i8[]")
def number_groups(group: Int64s, following: Int64s, out: Int64s) -> None:
    """Number the items of each group from `following[group]` on, and set this to the number after the last one."""
    for i in range(len(group)):
        out[i] = following[group[i]]
        following[group[i]] += 1


class Writer:
    """Writes rows as messages. `counts` holds the number of messages per queue that were written without offsets."""

    def __init__(self, rows: pa.RecordBatch, counts: dict[tuple[Any, ...], int]) -> None:
        self.rows, self.counts = rows, counts

    def write(self, at: int, positions: Int64s | None, base: int) -> tuple[Bytes, Int64s]:
        """Return messages written at byte `at` of the file that starts at offset `base`, or at `positions`, and where each starts."""
        offsets = self.starts[:-1] + at if positions is None else positions
        return self.part(0, self.rows.num_rows, offsets + base), self.starts

    @cached_property
    def _parts(self) -> Sequence[Any]:
        """The variable parts before the properties in stored order: hosts, bodies, topics. For each its bytes and offsets."""
        rows = self.rows
        columns = (
            hosts.stored(rows["born_host"], _BORN_HOST, "born_host"),
            hosts.stored(rows["store_host"], _STORE_HOST, "store_host"),
            self._bodies(), rows["topic"],
        )  # fmt: skip
        return [array for column in columns for array in values_of(column)]

    @cached_property
    def _texts(self) -> Texts:
        rows = self.rows
        return Texts(
            rows["properties"], rows["tags"], rows["keys"],
            tags_given=was_given(rows, "tags"), keys_given=was_given(rows, "keys"),
        )  # fmt: skip

    @cached_property
    def starts(self) -> Int64s:
        """The start of each message, and the end of the last."""
        out = np.empty(self.rows.num_rows + 1, np.int64)
        born, store, body, topic = self._parts[1::2]
        row, refusal = measure_messages(
            self._number("version"), born, store, body, topic, self._texts.sizes, out
        )
        if refusal:
            raise UsageError(f"{NAME}: row {row}: {_REFUSALS[refusal]}")
        return out

    def part(self, first: int, last: int, offsets: Int64s) -> Bytes:
        """Return the messages of some rows, concatenated. `offsets` has the physical offsets of all rows."""
        out = aligned(int(self.starts[last] - self.starts[first]))
        versions, ids, flags, numbers, *others = self._numbers
        put_messages(
            out, first, last, self.starts, versions, ids, flags, numbers, offsets, *others, *self._parts, *self._texts.arrays
        )  # fmt: skip
        return out

    @cached_property
    def _numbers(self) -> Sequence[Any]:
        """The columns of numbers in the order of the parameters of `put_messages`, without physical offsets."""
        now = time.time_ns() // 1_000_000
        return (
            self._number("version"), self._number("queue_id"), self._number("flag"), self._offsets(), self._number("sys_flag"),
            self._time("born_timestamp", now), self._time("store_timestamp", now), self._number("reconsume_times"),
            self._number("prepared_transaction_offset"),
        )  # fmt: skip

    def _number(self, name: str, default: int = 0) -> npt.NDArray[Any]:
        """Return a column of 32-bit or 64-bit integers; one item if all are null."""
        column = self.rows[name]
        kind = np.int32 if pa.types.is_int32(column.type) else np.int64
        if column.null_count == len(column):
            return np.full(1, default, kind)
        column = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        return np.asarray(column.fill_null(default) if column.null_count else column, kind)

    def _time(self, name: str, now: int) -> Int64s:
        """Return milliseconds: the stored value if there is one, else the timestamp. Null is -1. Without either column it is `now`."""
        raw = f"{name}_ms"
        default = now if not (was_given(self.rows, name) or was_given(self.rows, raw)) else -1
        stored = self.rows[raw]
        if len(stored) and not stored.null_count:
            return np.asarray(stored, np.int64)
        times = self._number(name, default)
        if stored.null_count == len(stored):
            return times
        return np.where(np.asarray(stored.is_null()), times, np.asarray(stored.fill_null(0), np.int64))

    def _offsets(self) -> Int64s:
        """Return the queue offsets: the column if given, else a count. Prepared and rolled back messages are in no queue."""
        if was_given(self.rows, "queue_offset"):
            nulls = self.rows["queue_offset"].is_null()
            if self.rows["queue_offset"].null_count:
                raise UsageError(
                    f"{NAME}: row {nulls.index(True).as_py()}: queue_offset is null; leave the column out to have offsets assigned"
                )
            return self._number("queue_offset")
        topics = self.rows["topic"].dictionary_encode()
        names, codes = topics.dictionary.to_pylist(), np.asarray(topics.indices)
        ids = self._number("queue_id")
        kinds = self._number("sys_flag") & TRANSACTION
        queued = np.broadcast_to((kinds != PREPARED) & (kinds != ROLLBACK), len(codes))
        everywhere = bool(queued.all())
        if not everywhere:
            codes, ids = codes[queued], np.broadcast_to(ids, len(queued))[queued]
        queues, group = distinct(codes.astype(np.int64) << 32 | ids & np.int64(_MASK))
        keys = [(names[queue >> 32], (queue & _MASK ^ _SIGN) - _SIGN) for queue in queues]
        following = np.array([self.counts.get(key, 0) for key in keys], np.int64)
        numbers = np.empty(len(codes), np.int64)
        number_groups(group, following, numbers)
        self.counts.update(zip(keys, following.tolist(), strict=True))
        if everywhere:
            return numbers
        out = np.zeros(len(queued), np.int64)
        out[queued] = numbers
        return out

    def _bodies(self) -> pa.Array:
        """Return the stored bodies, compressed if `sys_flag` says so."""
        plain = self.rows["body"]
        flags = np.broadcast_to(self._number("sys_flag"), len(plain))
        packed = np.flatnonzero(flags & COMPRESSED)
        if not len(packed):
            return plain
        values: list[bytes | None] = plain.to_pylist()
        for i in packed.tolist():
            try:
                values[i] = None if values[i] is None else bodies.compress(int(flags[i]), values[i] or b"")
            except CompressionError as error:
                raise UsageError(f"{NAME}: row {i}: sys_flag {int(flags[i]):#x}: {error}") from None
        return contents(pa.binary(), values)
