"""Read messages: the columns outside the fixed header."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.columns import binary, constant, contents, fixed_at, numbers
from logwright.codec.frames.codec import Part
from logwright.codec.kernels.compress import CompressionError
from logwright.codec.kernels.intrinsics import load_i64be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.rocketmq.formats.commitlog import bodies, hosts, layout
from logwright.codec.rocketmq.formats.commitlog.columns import BODY, KNOWN, LISTS, Columns, Sizes
from logwright.codec.rocketmq.formats.commitlog.layout import parts_of, prefetch_after
from logwright.codec.rocketmq.formats.commitlog.rows import ROWS
from logwright.codec.window import Bytes

_FLAGS = {"body": BODY, "properties": LISTS, "tags": KNOWN, "keys": KNOWN}
_TEXTS = ("topic", "tags", "keys", "properties")
_TIMES = ("born_timestamp", "store_timestamp")
_STORED, _BODY, _BODY_SIZE = range(3)


@kernel("const u1[], const i8[], i8[,]")
def find_parts(buf: Bytes, starts: Int64s, out: Int64s) -> None:
    """Store where the store timestamp is, and offset and size of the body, for each message."""
    for i in range(len(starts)):
        prefetch_after(buf, starts[i])
        out[_STORED, i], out[_BODY, i], out[_BODY_SIZE, i], _, _ = parts_of(buf, starts[i])


class Places(NamedTuple):
    """Where the store timestamps and the bodies of messages are, and the sizes of the bodies."""

    stored: Int64s
    body: Int64s
    body_size: Int64s


def places(part: Part) -> Places:
    out = np.empty((3, len(part)), np.int64)
    find_parts(part.data, np.ascontiguousarray(part.start), out)
    return Places(*out)


def replacements(part: Part) -> Bools:
    """Return which messages replace lost or removed ones: the placeholders and fillers of a repair or an edit."""
    mask: Bools = part.head["flag"] == layout.LOST_FLAG
    if mask.any():
        mask[mask] = Messages(part.pick(mask), 0).zeroed()
    return mask


def wrong_ports(part: Part) -> Iterator[tuple[str, int, int]]:
    """Yield the ports that clients refuse, so that they do not decode the message: the field of the address, the index of the message, the
    port.

    Source: `MessageDecoder.decode`, `InetSocketAddress`.
    """
    wrong = np.flatnonzero(part.head["verdict"] == layout.WRONG_PORT)
    if len(wrong):
        at = places(part.pick(wrong))
        after = {"born_host": at.stored, "store_host": at.body - layout.AFTER_HOSTS}
        for name, ends in after.items():
            ports = fixed_at(part.data, ends - 4, ">i4")
            for i in np.flatnonzero((ports < 0) | (ports > layout.LARGEST_PORT)).tolist():
                yield name, int(wrong[i]), int(ports[i])


def store_timestamp(data: Bytes, at: int) -> int:
    """Return when the message at `at` was stored, in milliseconds."""
    return load_i64be(data, int(parts_of(data, at)[0]))


def store_timestamps(part: Part) -> Int64s:
    return fixed_at(part.data, places(part).stored, ">i8").astype(np.int64)


def compressed(part: Part) -> list[int]:
    """Return the indices of the messages whose body is compressed."""
    flags = part.head["sys_flag"]
    if not np.bitwise_or.reduce(flags) & layout.COMPRESSED:
        return []
    indices: list[int] = np.flatnonzero(flags & layout.COMPRESSED).tolist()
    return indices


class Messages:
    """The columns of a batch of messages."""

    def __init__(self, part: Part, limit: int, sizes: Sizes | None = None) -> None:
        self.part, self.limit, self._sizes = part, limit, sizes or Sizes()
        self._selected = 0

    def columns(self, names: Sequence[str]) -> Iterator[tuple[str, pa.Array]]:
        """Iterate over the columns in `names`. If one of them is not at a fixed place, those at fixed places follow."""
        self._selected = sum({_FLAGS[name] for name in names if name in _FLAGS})
        from_core = any(name in (*_FLAGS, *_TIMES, "topic") for name in names)
        for name in names:
            if name in _TEXTS:
                yield name, getattr(self._core, name)()
            elif name not in _TIMES and not (from_core and name == "store_timestamp_ms"):
                yield name, getattr(self, f"column_{name}")()
        if from_core:
            yield from self._core.numbers()

    @cached_property
    def _core(self) -> Columns:
        return Columns(self.part, self._selected, self._sizes)

    @cached_property
    def places(self) -> Places:
        return places(self.part)

    def _number(self, name: str, at: Int64s, dtype: str) -> pa.Array:
        return numbers(ROWS[name].type, fixed_at(self.part.data, at, dtype))

    def column_reconsume_times(self) -> pa.Array:
        return self._number(
            "reconsume_times", self.places.body - (layout.BODY - layout.RECONSUME_TIMES), ">i4"
        )

    def column_prepared_transaction_offset(self) -> pa.Array:
        return self._number(
            "prepared_transaction_offset", self.places.body - (layout.BODY - layout.PREPARED_OFFSET), ">i8"
        )

    def column_store_timestamp_ms(self) -> pa.Array:
        return self._number("store_timestamp_ms", self.places.stored, ">i8")

    def column_version(self) -> pa.Array:
        return numbers(pa.int32(), np.where(self.part.head["magic_code"] == layout.V2, 2, 1))

    def column_born_host(self) -> pa.Array:
        return self._host(self.part.start + layout.HEAD, self.part.head["sys_flag"] & layout.BORN_V6)

    def column_store_host(self) -> pa.Array:
        return self._host(self.places.stored + 8, self.part.head["sys_flag"] & layout.STORE_V6)

    def _host(self, at: Int64s, v6: npt.NDArray[Any]) -> pa.Array:
        if not v6.any():
            values = fixed_at(self.part.data, at, "<i8")
            equal = bool((values == values[:1]).all())
            texts = hosts.text(numbers(pa.int64(), values[:1] if equal else values))
            return constant(pa.string(), texts[0].as_py(), len(values)) if equal and len(values) else texts
        sizes = np.where(v6, layout.HOST_V6, layout.HOST_V4).astype(np.int64)
        return hosts.text(binary(self.part.data, at, sizes))

    def zeroed(self) -> Bools:
        """Return which bodies are zeros only, or empty."""
        pairs = zip(self.places.body.tolist(), self.places.body_size.tolist(), strict=True)
        return np.array([not self.part.data[at : at + size].any() for at, size in pairs], np.bool_)

    def topics(self) -> list[str]:
        """Return the distinct topics."""
        topics: list[str] = self._core.topic().unique().to_pylist()
        return topics

    def column_body(self) -> pa.Array:
        packed = compressed(self.part)
        plain = self._core.body()
        if not packed:
            return plain
        values: list[bytes | None] = plain.to_pylist()
        for i in packed:
            with contextlib.suppress(CompressionError):
                values[i] = self.plain(i)
        return contents(pa.binary(), values)

    def plain(self, i: int) -> bytes | None:
        """Return the decompressed body of message `i`. Raises `CompressionError`."""
        start = int(self.places.body[i])
        stored = self.part.data[start : start + int(self.places.body_size[i])].tobytes()
        flags = int(self.part.head["sys_flag"][i])
        if not stored or not flags & layout.COMPRESSED:
            return stored or None
        return bodies.decompress(flags, stored, self.limit)
