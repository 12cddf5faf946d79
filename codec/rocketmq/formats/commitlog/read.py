"""Read messages: the columns outside the fixed header."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.columns import binary, contents, fixed_at, numbers
from logwright.codec.frames.codec import Part
from logwright.codec.java import java_strings
from logwright.codec.kernels.compress import CompressionError
from logwright.codec.kernels.kernel import kernel
from logwright.codec.rocketmq.formats.commitlog import bodies, hosts
from logwright.codec.rocketmq.formats.commitlog.layout import (
    BODY,
    BORN_V6,
    COMPRESSED,
    HEAD,
    HOST_V4,
    HOST_V6,
    PREPARED_OFFSET,
    RECONSUME_TIMES,
    STORE_V6,
    V2,
    parts_of,
)
from logwright.codec.rocketmq.formats.commitlog.properties import Parsed
from logwright.codec.rocketmq.formats.commitlog.rows import ROWS
from logwright.codec.table import TIMESTAMP
from logwright.codec.window import Bytes

Int64s = npt.NDArray[np.int64]


def times(values: Int64s) -> pa.Array:
    """Convert milliseconds to timestamps; -1 is null."""
    return numbers(TIMESTAMP, values, values == -1)


_STORED, _BODY, _BODY_SIZE, _TOPIC, _TOPIC_SIZE = range(5)


@kernel("const u1[], const i8[], i8[,]")
def find_parts(buf: Bytes, starts: Int64s, out: Int64s) -> None:
    """Store the results of `parts_of` for each message."""
    for i in range(len(starts)):
        out[_STORED, i], out[_BODY, i], out[_BODY_SIZE, i], out[_TOPIC, i], out[_TOPIC_SIZE, i] = parts_of(
            buf, starts[i]
        )


def places(part: Part) -> Int64s:
    out = np.empty((5, len(part)), np.int64)
    find_parts(part.data, np.ascontiguousarray(part.start), out)
    return out


def store_timestamps(part: Part) -> Int64s:
    return fixed_at(part.data, places(part)[_STORED], ">i8").astype(np.int64)


class Messages:
    """The columns of a batch of messages."""

    def __init__(self, part: Part, limit: int) -> None:
        self.part, self.limit = part, limit
        self.stored, self.body, self.body_size, self.topic, self.topic_size = places(part)
        self._lists = True

    def columns(self, names: Sequence[str]) -> Iterator[tuple[str, pa.Array]]:
        self._lists = "properties" in names
        for name in names:
            yield name, getattr(self, f"column_{name}")()

    def _number(self, name: str, at: Int64s, dtype: str) -> pa.Array:
        return numbers(ROWS[name].type, fixed_at(self.part.data, at, dtype))

    def column_reconsume_times(self) -> pa.Array:
        return self._number("reconsume_times", self.body - (BODY - RECONSUME_TIMES), ">i4")

    def column_prepared_transaction_offset(self) -> pa.Array:
        return self._number("prepared_transaction_offset", self.body - (BODY - PREPARED_OFFSET), ">i8")

    def column_store_timestamp_ms(self) -> pa.Array:
        return self._number("store_timestamp_ms", self.stored, ">i8")

    def column_store_timestamp(self) -> pa.Array:
        return times(fixed_at(self.part.data, self.stored, ">i8").astype(np.int64))

    def column_born_timestamp(self) -> pa.Array:
        return times(self.part.head["born_timestamp"].astype(np.int64))

    def column_version(self) -> pa.Array:
        return numbers(pa.int32(), np.where(self.part.head["magic_code"] == V2, 2, 1))

    def column_born_host(self) -> pa.Array:
        return self._host(self.part.start + HEAD, self.part.head["sys_flag"] & BORN_V6)

    def column_store_host(self) -> pa.Array:
        return self._host(self.stored + 8, self.part.head["sys_flag"] & STORE_V6)

    def _host(self, at: Int64s, v6: npt.NDArray[Any]) -> pa.Array:
        if not v6.any():
            return hosts.text(numbers(pa.int64(), fixed_at(self.part.data, at, "<i8")))
        sizes = np.where(v6, HOST_V6, HOST_V4).astype(np.int64)
        return hosts.text(binary(self.part.data, at, sizes))

    def zeroed(self) -> npt.NDArray[np.bool_]:
        """Return which bodies are zeros only, or empty."""
        pairs = zip(self.body.tolist(), self.body_size.tolist(), strict=True)
        return np.array([not self.part.data[at : at + size].any() for at, size in pairs], np.bool_)

    def column_topic(self) -> pa.Array:
        return java_strings(binary(self.part.data, self.topic, self.topic_size))[0]

    @cached_property
    def _properties(self) -> Parsed:
        stops = np.ascontiguousarray(self.part.end)
        return Parsed(self.part.data, self.topic + self.topic_size + 2, stops, lists=self._lists)

    def column_tags(self) -> pa.Array:
        return self._properties.tags()

    def column_keys(self) -> pa.Array:
        return self._properties.keys()

    def column_properties(self) -> pa.Array:
        return self._properties.all()

    def column_body(self) -> pa.Array:
        packed = np.flatnonzero(self.part.head["sys_flag"] & COMPRESSED)
        plain = binary(self.part.data, self.body, np.where(self.body_size == 0, -1, self.body_size))
        if not len(packed):
            return plain
        values: list[bytes | None] = plain.to_pylist()
        for i in packed.tolist():
            with contextlib.suppress(CompressionError):
                values[i] = self.plain(i)
        return contents(pa.binary(), values)

    def plain(self, i: int) -> bytes | None:
        """Return the decompressed body of message `i`. Raises `CompressionError`."""
        start = int(self.body[i])
        stored = self.part.data[start : start + int(self.body_size[i])].tobytes()
        flags = int(self.part.head["sys_flag"][i])
        if not stored or not flags & COMPRESSED:
            return stored or None
        return bodies.decompress(flags, stored, self.limit)
