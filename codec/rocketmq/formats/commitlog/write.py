"""Write messages from rows. The physical offset of a message is where it is written."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.columns import contents, distinct, values_of
from logwright.codec.fault import UsageError
from logwright.codec.frames.codec import was_given
from logwright.codec.kernels.compress import CompressionError
from logwright.codec.kernels.crc32 import crc32
from logwright.codec.kernels.intrinsics import append, copy, store_16be, store_32be, store_64be
from logwright.codec.kernels.kernel import kernel
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
from logwright.codec.rocketmq.formats.commitlog.properties import Texts, put_text
from logwright.codec.rocketmq.formats.commitlog.rows import NAME
from logwright.codec.window import Bytes

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]

NUMBERS = (
    "magic", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag", "born", "stored", "reconsume_times",
    "prepared",
)  # fmt: skip
_HOST = 16
"""Size of two IPv4 hosts, which `SMALLEST` includes."""
_MASK, _SIGN = 0xFFFFFFFF, 1 << 31
_BORN_HOST, _STORE_HOST = "127.0.0.1:0", "127.0.0.1:10911"


@kernel(
    "u1[], const i8[], const i8[,], const u1[], const i4[], const u1[], const i4[], const u1[], const i4[], "
    "const u1[], const i4[], const i4[], const u1[], const i4[], const u1[], const i4[], const u1[], const i4[], const u1[], const u1[], "
    "const i4[], const u1[]"
)
def put_messages(
    out: Bytes, starts: Int64s, numbers: Int64s, born: Bytes, born_ends: Int32s, store: Bytes, store_ends: Int32s,
    body: Bytes, body_ends: Int32s, topic: Bytes, topic_ends: Int32s, lists: Int32s, names: Bytes, name_ends: Int32s,
    values: Bytes, value_ends: Int32s, tags: Bytes, tag_ends: Int32s, adds_tags: Bytes, keys: Bytes, key_ends: Int32s,
    adds_keys: Bytes,
) -> None:  # fmt: skip
    """Write messages. `numbers[i]` holds the values of `NUMBERS`; the variable parts are concatenated. `lists` and what follows: see
    `put_text`."""
    for i in range(len(starts) - 1):
        start = starts[i] - starts[0]
        end = starts[i + 1] - starts[0]
        at = store_32be(out, start, end - start)
        at = store_32be(out, at, numbers[i, 0])
        at = store_32be(out, at, crc32(body, body_ends[i], body_ends[i + 1]) & CRC_MASK)
        at = store_32be(out, at, numbers[i, 1])
        at = store_32be(out, at, numbers[i, 2])
        at = store_64be(out, at, numbers[i, 3])
        at = store_64be(out, at, numbers[i, 4])
        at = store_32be(out, at, numbers[i, 5])
        at = store_64be(out, at, numbers[i, 6])
        append(out, at, born, born_ends[i], born_ends[i + 1] - born_ends[i])
        at += born_ends[i + 1] - born_ends[i]
        at = store_64be(out, at, numbers[i, 7])
        append(out, at, store, store_ends[i], store_ends[i + 1] - store_ends[i])
        at += store_ends[i + 1] - store_ends[i]
        at = store_32be(out, at, numbers[i, 8])
        at = store_64be(out, at, numbers[i, 9])
        size = body_ends[i + 1] - body_ends[i]
        at = store_32be(out, at, size)
        copy(out, at, body, body_ends[i], size)
        at += size
        size = topic_ends[i + 1] - topic_ends[i]
        if numbers[i, 0] == V2:
            at = store_16be(out, at, size)
        else:
            out[at] = size
            at += 1
        append(out, at, topic, topic_ends[i], size)
        at += size
        at = store_16be(out, at, end - at - 2)
        put_text(
            out, at, i, lists, names, name_ends, values, value_ends, tags, tag_ends, adds_tags, keys, key_ends, adds_keys
        )  # fmt: skip
        if has_trailer(out, start, end):
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
        if not self.rows.num_rows:
            return np.empty(0, np.uint8), np.zeros(1, np.int64)
        offsets = self.starts[:-1] + at if positions is None else positions
        return self.write_at(offsets + base), self.starts

    @cached_property
    def _flags(self) -> Int64s:
        return (
            self._number("sys_flag", 0) & ~(BORN_V6 | STORE_V6)
            | np.where(hosts.v6(self._born), BORN_V6, 0)
            | np.where(hosts.v6(self._store), STORE_V6, 0)
        )

    @cached_property
    def _born(self) -> pa.Array:
        return hosts.stored(self.rows["born_host"], _BORN_HOST, "born_host")

    @cached_property
    def _store(self) -> pa.Array:
        return hosts.stored(self.rows["store_host"], _STORE_HOST, "store_host")

    @cached_property
    def _parts(self) -> Sequence[tuple[Bytes, Int32s]]:
        """The variable parts before the properties in stored order: hosts, bodies, topics."""
        columns = (self._born, self._store, self._bodies(self._flags), self.rows["topic"])
        return [values_of(column) for column in columns]

    @cached_property
    def _texts(self) -> Texts:
        rows = self.rows
        return Texts(
            rows["properties"], rows["tags"], rows["keys"],
            tags_given=was_given(rows, "tags"), keys_given=was_given(rows, "keys"),
        )  # fmt: skip

    @cached_property
    def _version(self) -> Int64s:
        topics = np.diff(self._parts[3][1])
        version = self._number("version", 0)
        return np.where(version == 0, np.where(topics > MAX_TOPIC_V1, 2, 1), version)

    @cached_property
    def starts(self) -> Int64s:
        """The start of each message, and the end of the last."""
        sizes = [*(np.diff(ends).astype(np.int64) for _, ends in self._parts), self._texts.sizes]
        v2 = self._version
        self._refuse((v2 != 1) & (v2 != 2), "version must be 1 or 2")
        self._refuse(
            (v2 == 1) & (sizes[3] > MAX_TOPIC_V1), f"a topic of version 1 is limited to {MAX_TOPIC_V1} bytes"
        )
        self._refuse(
            (sizes[3] > 32767) | (sizes[4] > MAX_PROPERTIES),
            f"topic and properties are limited to {MAX_PROPERTIES} bytes each",
        )
        total = SMALLEST - _HOST + (v2 == 2) + sum(sizes)
        self._refuse(total > (1 << 31) - 1, "a message must be smaller than 2 GiB")
        starts = np.zeros(self.rows.num_rows + 1, np.int64)
        np.cumsum(total, out=starts[1:])
        return starts

    def write_at(self, offsets: Int64s) -> Bytes:
        """Return the messages with these physical offsets, concatenated."""
        return self.part(0, self.rows.num_rows, offsets)

    def part(self, first: int, last: int, offsets: Int64s) -> Bytes:
        """Return the messages of some rows, concatenated. `offsets` has the physical offsets of all rows."""
        out = np.empty(int(self.starts[last] - self.starts[first]), np.uint8)
        self._numbers[first:last, NUMBERS.index("physical_offset")] = offsets[first:last]
        parts: Any = [array for data, ends in self._parts for array in (data, ends[first : last + 1])]
        put_messages(
            out,
            self.starts[first : last + 1],
            self._numbers[first:last],
            *parts,
            *self._texts.part(first, last),
        )
        return out

    @cached_property
    def _numbers(self) -> Int64s:
        """The values of `NUMBERS` of each row, without physical offsets."""
        now = time.time_ns() // 1_000_000
        columns = {
            "magic": np.where(self._version == 2, V2, V1), "queue_offset": self._offsets(self._flags),
            "sys_flag": self._flags, "born": self._time("born_timestamp", now),
            "stored": self._time("store_timestamp", now),
            "prepared": self._number("prepared_transaction_offset", 0), "physical_offset": 0,
        }  # fmt: skip
        out = np.empty((self.rows.num_rows, len(NUMBERS)), np.int64)
        for i, name in enumerate(NUMBERS):
            out[:, i] = columns[name] if name in columns else self._number(name, 0)
        return out

    def _number(self, name: str, default: int) -> Int64s:
        column = self.rows[name]
        if column.null_count == len(column):
            return np.full(len(column), default, np.int64)
        column = column.cast(pa.int64())
        return np.asarray(column.fill_null(default) if column.null_count else column, np.int64)

    def _refuse(self, bad: Any, why: str) -> None:
        indices = np.flatnonzero(bad)
        if len(indices):
            raise UsageError(f"{NAME}: row {int(indices[0])}: {why}")

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

    def _offsets(self, flags: Int64s) -> Int64s:
        """Return the queue offsets: the column if given, else a count. Prepared and rolled back messages are in no queue."""
        if was_given(self.rows, "queue_offset"):
            self._refuse(
                self.rows["queue_offset"].is_null(),
                "queue_offset is null; leave the column out to have offsets assigned",
            )
            return self._number("queue_offset", 0)
        out = np.zeros(len(flags), np.int64)
        kinds = flags & TRANSACTION
        queued = np.flatnonzero((kinds != PREPARED) & (kinds != ROLLBACK))
        topics = self.rows["topic"].dictionary_encode()
        names = topics.dictionary.to_pylist()
        ids = self._number("queue_id", 0)[queued]
        codes, dense = distinct(np.asarray(topics.indices, np.int64)[queued] << 32 | ids & _MASK)
        queues = [(names[code >> 32], (code & _MASK ^ _SIGN) - _SIGN) for code in codes]
        following = np.array([self.counts.get(queue, 0) for queue in queues], np.int64)
        numbers = np.empty(len(queued), np.int64)
        number_groups(dense, following, numbers)
        out[queued] = numbers
        self.counts.update(zip(queues, following.tolist(), strict=True))
        return out

    def _bodies(self, flags: Int64s) -> pa.Array:
        """Return the stored bodies, compressed if `sys_flag` says so."""
        plain = self.rows["body"]
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
