"""Read messages: the columns outside the fixed header."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.columns import binary, contents, fixed_at, numbers
from logwright.codec.frames.codec import Part
from logwright.codec.java import java_strings
from logwright.codec.kernels.compress import CompressionError
from logwright.codec.rocketmq.formats.commitlog import bodies, hosts
from logwright.codec.rocketmq.formats.commitlog.layout import (
    BODY_LENGTH,
    BORN_V6,
    COMPRESSED,
    HEAD,
    HOST_V4,
    HOST_V6,
    PREPARED_OFFSET,
    RECONSUME_TIMES,
    STORE_HOST,
    STORE_TIMESTAMP,
    STORE_V6,
    V2,
    V6_EXTRA,
)
from logwright.codec.rocketmq.formats.commitlog.properties import Parsed
from logwright.codec.rocketmq.formats.commitlog.rows import ROWS
from logwright.codec.table import TIMESTAMP

Int64s = npt.NDArray[np.int64]


def times(values: Int64s) -> pa.Array:
    """Convert milliseconds to timestamps; -1 is null."""
    return numbers(TIMESTAMP, values, values == -1)


def host_extra(part: Part) -> tuple[Int64s, Int64s]:
    """Return the extra bytes of the born host, and of both hosts, compared with IPv4."""
    flags = part.head["sys_flag"].astype(np.int64)
    born = np.where(flags & BORN_V6, V6_EXTRA, 0)
    return born, born + np.where(flags & STORE_V6, V6_EXTRA, 0)


def store_timestamps(part: Part) -> Int64s:
    return fixed_at(part.data, part.start + STORE_TIMESTAMP + host_extra(part)[0], ">i8").astype(np.int64)


class Messages:
    """The columns of a batch of messages."""

    def __init__(self, part: Part, limit: int) -> None:
        self.part, self.limit = part, limit
        self.born, self.both = host_extra(part)
        self._parsed: Parsed | None = None
        self._body: tuple[Int64s, Int64s] | None = None

    def columns(self, names: Sequence[str]) -> Iterator[tuple[str, pa.Array]]:
        for name in names:
            yield name, getattr(self, f"column_{name}")()

    def _number(self, name: str, at: Int64s, dtype: str) -> pa.Array:
        return numbers(ROWS[name].type, fixed_at(self.part.data, self.part.start + at, dtype))

    def column_reconsume_times(self) -> pa.Array:
        return self._number("reconsume_times", RECONSUME_TIMES + self.both, ">i4")

    def column_prepared_transaction_offset(self) -> pa.Array:
        return self._number("prepared_transaction_offset", PREPARED_OFFSET + self.both, ">i8")

    def column_store_timestamp_ms(self) -> pa.Array:
        return numbers(pa.int64(), store_timestamps(self.part))

    def column_store_timestamp(self) -> pa.Array:
        return times(store_timestamps(self.part))

    def column_born_timestamp(self) -> pa.Array:
        return times(self.part.head["born_timestamp"].astype(np.int64))

    def column_version(self) -> pa.Array:
        return numbers(pa.int32(), np.where(self.part.head["magic_code"] == V2, 2, 1))

    def column_born_host(self) -> pa.Array:
        return self._host(HEAD, self.part.head["sys_flag"] & BORN_V6)

    def column_store_host(self) -> pa.Array:
        return self._host(STORE_HOST + self.born, self.part.head["sys_flag"] & STORE_V6)

    def _host(self, at: Any, v6: npt.NDArray[Any]) -> pa.Array:
        sizes = np.where(v6, HOST_V6, HOST_V4).astype(np.int64)
        return hosts.text(binary(self.part.data, self.part.start + at, sizes))

    def _bodies(self) -> tuple[Int64s, Int64s]:
        """Return the offsets and the sizes of the stored bodies."""
        if self._body is None:
            at = self.part.start + BODY_LENGTH + self.both
            self._body = at + 4, fixed_at(self.part.data, at, ">i4").astype(np.int64)
        return self._body

    def zeroed(self) -> npt.NDArray[np.bool_]:
        """Return which bodies are zeros only, or empty."""
        pairs = zip(*(array.tolist() for array in self._bodies()), strict=True)
        return np.array([not self.part.data[at : at + size].any() for at, size in pairs], np.bool_)

    def _topics(self) -> tuple[Int64s, Int64s]:
        start, size = self._bodies()
        v2 = self.part.head["magic_code"] == V2
        at = start + size
        sizes = self.part.data[at].astype(np.int64)
        if v2.any():
            sizes[v2] = fixed_at(self.part.data, at[v2], ">i2")
        return at + np.where(v2, 2, 1), sizes

    def column_topic(self) -> pa.Array:
        return java_strings(binary(self.part.data, *self._topics()))[0]

    def _properties_of(self) -> Parsed:
        if self._parsed is None:
            at, size = self._topics()
            self._parsed = Parsed(self.part.data, at + size + 2, self.part.end)
        return self._parsed

    def column_tags(self) -> pa.Array:
        return self._properties_of().tags()

    def column_keys(self) -> pa.Array:
        return self._properties_of().keys()

    def column_properties(self) -> pa.Array:
        return self._properties_of().all()

    def column_body(self) -> pa.Array:
        start, size = self._bodies()
        packed = np.flatnonzero(self.part.head["sys_flag"] & COMPRESSED)
        plain = binary(self.part.data, start, np.where(size == 0, -1, size))
        if not len(packed):
            return plain
        values: list[bytes | None] = plain.to_pylist()
        for i in packed.tolist():
            with contextlib.suppress(CompressionError):
                values[i] = self.plain(i)
        return contents(pa.binary(), values)

    def plain(self, i: int) -> bytes | None:
        """Return the decompressed body of message `i`. Raises `CompressionError`."""
        start, size = self._bodies()
        stored = self.part.data[int(start[i]) : int(start[i] + size[i])].tobytes()
        flags = int(self.part.head["sys_flag"][i])
        if not stored or not flags & COMPRESSED:
            return stored or None
        return bodies.decompress(flags, stored, self.limit)
