"""Write messages of magic 0 and 1, as the producers and brokers before Kafka 0.11 did.

Uncompressed, each row is a message. Compressed, the messages of a batch are the value of a wrapper, with absolute offsets in magic 0 and
offsets that count from the first one in magic 1. Source: `LegacyRecord.write`, `MemoryRecordsBuilder` of Kafka's clients library.
"""

from __future__ import annotations

import itertools
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.arrays import Bytes, Int32s, Int64s
from logwright.codec.describe import DescriptionError
from logwright.codec.fault import UsageError
from logwright.codec.kafka.formats.log import arrow_input, pack
from logwright.codec.kafka.formats.log.heads import heads_at
from logwright.codec.kafka.formats.log.layout import (
    COMPRESSION,
    COMPRESSION_NAMES,
    LENGTH_END,
    MESSAGE,
    MESSAGE_TIME,
    MIN_MESSAGE,
    TIMESTAMP_TYPE,
    codec_name,
)
from logwright.codec.kafka.formats.log.settings import BatchSettings
from logwright.codec.kernels.compress import compress
from logwright.codec.kernels.crc32 import crc32
from logwright.codec.kernels.intrinsics import copy, load_i64be, store_32be, store_64be
from logwright.codec.kernels.kernel import kernel

_SIZE, _CRC, _MAGIC, _ATTRIBUTES = (
    MESSAGE.offset(name) for name in ("message_size", "crc", "magic", "attributes")
)
_CONTENT = MESSAGE.head_size
MAX_OVERHEAD = MIN_MESSAGE + MESSAGE_TIME


@kernel(
    "i8, const i4[], const u1[], i8, const u1[], i8, const i4[], const u1[], i8, const u1[], i8, "
    "const i8[], const u1[], const i8[], i8, u1[], i8, i8[]"
)
def write_messages(
    rows: int,
    key_ends: Int32s, key_data: Bytes, key_mode: int, key_bits: Bytes, key_bit: int,
    value_ends: Int32s, value_data: Bytes, value_mode: int, value_bits: Bytes, value_bit: int,
    times: Int64s, attributes: Bytes, offsets: Int64s, magic: int, out: Bytes, at: int, starts: Int64s,
) -> int:  # fmt: skip
    """Write `rows` uncompressed messages to `out` from `at` on, and their positions to `starts`. Return the end position. The columns are those
    of `pack.write_records`."""
    for i in range(rows):
        key_size = -1
        if not pack.null_at(key_mode, key_bits, key_bit, i):
            key_size = int(key_ends[i + 1]) - int(key_ends[i])
        value_size = -1
        if not pack.null_at(value_mode, value_bits, value_bit, i):
            value_size = int(value_ends[i + 1]) - int(value_ends[i])
        start = at
        starts[i] = at
        store_64be(out, at, int(offsets[i]))
        out[at + _MAGIC] = magic
        out[at + _ATTRIBUTES] = attributes[i]
        at += _CONTENT
        if magic == 1:
            store_64be(out, at, int(times[i]))
            at += MESSAGE_TIME
        store_32be(out, at, key_size)
        at += 4
        if key_size > 0:
            copy(out, at, key_data, int(key_ends[i]), key_size)
            at += key_size
        store_32be(out, at, value_size)
        at += 4
        if value_size > 0:
            copy(out, at, value_data, int(value_ends[i]), value_size)
            at += value_size
        store_32be(out, start + _SIZE, at - start - LENGTH_END)
        store_32be(out, start + _CRC, crc32(out, start + _MAGIC, at))
    return at


def messages(rows: pack.Rows, magic: int, attributes: Bytes, out: Bytes, at: int, starts: Int64s) -> int:
    """Write messages with the kernel. Without the append-time bit in its attributes, a message has its create time."""
    key, value = rows.key, rows.value
    times = np.where(attributes & TIMESTAMP_TYPE != 0, rows.times, rows.creates)
    return int(
        write_messages(
            rows.count,
            key.ends, key.data, key.mode, key.bits, key.bit,
            value.ends, value.data, value.mode, value.bits, value.bit,
            times, attributes, rows.offsets, magic, out, at, starts,
        )
    )  # fmt: skip


def most(rows: pack.Rows) -> int:
    """Return an upper bound of the bytes that the messages of the rows take."""
    return rows.key.size + rows.value.size + rows.count * MAX_OVERHEAD


@kernel("const i8[], i8, const u1[], const i8[], const i8[], i8, i8[]")
def cut_sets(
    starts: Int64s, end: int, kinds: Bytes, times: Int64s, groups: Int64s, batch_size: int, cuts: Int64s
) -> int:
    """Divide messages into batches, each with one timestamp type and one append time. Those of a group stay together, others are in
    batches of at most `batch_size` bytes. `cuts` gets the first message of each batch. Return the number of batches."""
    count = 0
    first = 0
    for i in range(len(starts)):
        stop = starts[i + 1] if i + 1 < len(starts) else end
        same = kinds[i] == kinds[first] and (kinds[i] == 0 or times[i] == times[first])
        same = same and groups[i] == groups[first]
        if i == 0 or not same or (groups[i] < 0 and stop - starts[first] > batch_size):
            first = i
            cuts[count] = i
            count += 1
    return count


@kernel("u1[], const i8[], i8")
def move_offsets(out: Bytes, starts: Int64s, by: int) -> None:
    """Subtract a number from the offsets of messages. Their checksums do not cover them."""
    for i in range(len(starts)):
        store_64be(out, starts[i], load_i64be(out, starts[i]) - by)


def wrapped(
    data: Bytes,
    starts: Int64s,
    magic: int,
    attributes: int,
    *,
    time: int,
    last: int | None = None,
    level: int | None = None,
) -> bytes:
    """Return the wrapper of the uncompressed messages `data`, which start at `starts` and have absolute offsets. Its offset is `last`, or
    that of its last message. In magic 1 it is the latter, from which readers compute the others, or 0."""
    codec = attributes & COMPRESSION
    offset = int(load_i64be(data, int(starts[-1])))
    if magic == 1:
        data = data.copy()
        move_offsets(data, starts, int(load_i64be(data, int(starts[0]))) if offset else 0)
    if last is not None and (magic == 0 or last == 0):
        offset = last
    return wrapper(magic, attributes, offset, time, packed(data, magic, codec, level))


Messages = tuple[Bytes, Int64s, Bytes, Int64s, Int64s]
"""Uncompressed messages: their bytes, and the position, timestamp type, time and group of each."""
_NOTHING: Messages = (
    np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64),
)  # fmt: skip


@dataclass(slots=True)
class MessageEncoder:
    """Encode rows as messages of magic 0 or 1. With compression the last batch stays open until it is full."""

    _open: Messages = field(default_factory=lambda: _NOTHING)

    def write(
        self, queue: list[pack.Rows], settings: BatchSettings, *, finish: bool
    ) -> tuple[Bytes, Int64s, npt.NDArray[Any]]:
        """Return the entries that are complete, where each starts, and their headers. Raises `UsageError`."""
        magic, codec = settings.magic, COMPRESSION_NAMES.index(settings.compression)
        data, starts, kinds, times, groups = self._add(queue, magic, bool(codec))
        if not codec:
            return data, starts, heads_at(data, starts)
        cuts = np.empty(len(starts), np.int64)
        count = cut_sets(starts, len(data), kinds, times, groups, settings.batch_size, cuts)
        edges = [*cuts[:count].tolist(), len(starts)]
        if not finish and count:
            edges.pop()
        left = edges[-1] if edges else 0
        places = np.append(starts, len(data))
        entries, bounds, heads = [], [0], []
        for low, high in itertools.pairwise(edges):
            begin, end = int(places[low]), int(places[high])
            append = int(kinds[low])
            entries.append(
                wrapped(
                    data[begin:end], starts[low:high] - begin, magic, codec | append * TIMESTAMP_TYPE,
                    time=int(times[low] if append else times[low:high].max()), level=settings.level,
                )
            )  # fmt: skip
            bounds.append(bounds[-1] + len(entries[-1]))
            heads.append((load_i64be(data, begin), high - low))
        begin = int(places[left])
        self._open = data[begin:].copy(), starts[left:] - begin, kinds[left:], times[left:], groups[left:]
        out, at = np.frombuffer(b"".join(entries), np.uint8), np.array(bounds[:-1], np.int64)
        header = heads_at(out, at)
        if heads:
            header["base_offset"], header["records_count"] = np.array(heads, np.int64).T
        return out, at, header

    def _add(self, queue: list[pack.Rows], magic: int, inner: bool) -> Messages:
        """Return the open messages, followed by those of rows. Messages of a wrapper have their own time."""
        parts = [self._open]
        at = len(self._open[0])
        for rows in queue:
            _check_sizes(rows)
            kinds = rows.kinds if magic else np.zeros(rows.count, np.uint8)
            _, out = pack.room(most(rows))
            starts = np.empty(rows.count, np.int64)
            attributes = kinds * np.uint8(0 if inner else TIMESTAMP_TYPE)
            end = messages(rows, magic, attributes, out, 0, starts)
            groups = np.full(rows.count, -1) if rows.groups is None else rows.groups
            parts.append((out[:end], starts + at, kinds, rows.times, groups))
            at += end
        if len(parts) == 2 and not len(parts[0][0]):
            return parts[1]
        data, starts, kinds, times, groups = (np.concatenate(column) for column in zip(*parts, strict=True))
        return data, starts, kinds, times, groups


def _check_sizes(rows: pack.Rows) -> None:
    if most(rows) <= arrow_input.MAX_INT32:
        return
    sizes = sum(
        np.diff(column.ends.astype(np.int64)) for column in (rows.key, rows.value) if len(column.ends)
    )
    if int(np.max(sizes)) > arrow_input.MAX_INT32 - MAX_OVERHEAD:
        raise UsageError(f"row {int(np.argmax(sizes))}: the message is larger than 2 GiB")


def packed(data: Any, magic: int, codec: int, level: int | None) -> bytes:
    """Return the compressed set of a wrapper. Raises `UsageError` for a compression that the magic does not have."""
    try:
        return compress(codec_name(codec, magic), data, level=level)
    except DescriptionError:
        name = COMPRESSION_NAMES[codec] if codec < len(COMPRESSION_NAMES) else f"number {codec}"
        raise UsageError(
            f"magic {magic} has no compression {name}", advice="Use gzip, snappy or lz4, or magic 2"
        ) from None


def wrapper(magic: int, attributes: int, offset: int, time: int, value: bytes) -> bytes:
    """Return a message with a value and without a key."""
    return entry(magic, attributes, offset, time, b"\xff\xff\xff\xff" + len(value).to_bytes(4, "big") + value)


def entry(magic: int, attributes: int, offset: int, time: int, content: bytes) -> bytes:
    """Return a message from its header and the bytes of its key and value, with their lengths."""
    body = (
        bytes([magic, attributes]) + (time.to_bytes(8, "big", signed=True) if magic == 1 else b"") + content
    )
    if len(body) + 4 > arrow_input.MAX_INT32:
        raise UsageError("a message is larger than 2 GiB")
    head = offset.to_bytes(8, "big", signed=True) + (len(body) + 4).to_bytes(4, "big")
    return head + zlib.crc32(body).to_bytes(4, "big") + body
