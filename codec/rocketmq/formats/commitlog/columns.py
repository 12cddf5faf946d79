"""Read the core columns of messages straight into the buffers of Arrow arrays.

Blocks of messages that fit the processor's nearest cache are read twice: for the fields, and for the properties.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Int32s, Int64s
from logwright.codec.columns import from_offsets, numbers
from logwright.codec.frames.codec import Part
from logwright.codec.java import java_strings
from logwright.codec.kernels.byte_masks import MASKED, lowest_bit, masks_of
from logwright.codec.kernels.intrinsics import (
    copy,
    copy_32,
    copy_64,
    load_i32be,
    load_i64be,
    load_u32be,
    put,
)
from logwright.codec.kernels.kernel import kernel
from logwright.codec.kernels.memory import aligned
from logwright.codec.rocketmq.formats.commitlog.layout import (
    MAX_PROPERTIES,
    MESSAGE,
    SMALLEST,
    parts_of,
    prefetch_after,
)
from logwright.codec.rocketmq.formats.commitlog.properties import (
    KEYS_NUMBER,
    PROPERTIES,
    PROPERTY,
    TAGS_NUMBER,
    property_masks,
)
from logwright.codec.table import TIMESTAMP
from logwright.codec.window import Bytes

_BLOCK = 64
"""Messages that are read at a time."""
_SAMPLE = 256
"""Messages that are read before the sizes of columns are estimated."""
_MARGIN = 17 / 16
_SLACK = 128
"""Bytes by which a copy may exceed what it copies."""
_LONG = 1024
"""The size from which on memmove copies a body."""
_SHORTEST = 3
"""Size of the shortest property: name, 0x01, value. The last one may have no 0x02."""

_QUEUE_ID, _QUEUE_OFFSET, _PHYSICAL_OFFSET, _BORN = (
    MESSAGE.offset(name) for name in ("queue_id", "queue_offset", "physical_offset", "born_timestamp")
)

BODY, LISTS, KNOWN = 1, 2, 4
"""Flags of the columns to read in addition to fixed fields and topic: body; properties; tags and keys."""

(
    _BODY, _TOPIC, _NAMES, _VALUES, _TAGS, _KEYS, _COUNT,
    _NULL_TIMES, _EMPTY_BODIES, _NO_TAGS, _NO_KEYS, _HIGH_TOPICS, _HIGH,
) = range(13)  # fmt: skip
"""What `used` holds: sizes, the number of properties, whether there are null times, empty bodies or messages without tags or keys, and
whether topics may have bytes above 127 and properties have them."""

_I4 = Annotated[Int32s, "i4[]"]
_I8 = Annotated[Int64s, "i8[]"]
_U1 = Annotated[Bytes, "u1[]"]


class Arrays(NamedTuple):
    """The buffers of the columns. The ends of values are Arrow's offsets."""

    properties_at: _I8
    queue_id: _I4
    queue_offset: _I8
    physical_offset: _I8
    born: _I8
    stored: _I8
    topic_ends: _I4
    body_ends: _I4
    lists: _I4
    tag_ends: _I4
    key_ends: _I4
    body: _U1
    topic: _U1
    names: _U1
    values: _U1
    tags: _U1
    keys: _U1
    name_ends: _I4
    value_ends: _I4


@kernel("const u1[], const i8[], const i8[], i8, i8, i8, i8[], Arrays")
def read_fields(
    buf: Bytes, starts: Int64s, stops: Int64s, first: int, last: int, selected: int, used: Int64s, out: Arrays
) -> None:
    """Read all but the properties of some messages. There is room."""
    body_at, topic_at, nulls, empty = used[_BODY], used[_TOPIC], used[_NULL_TIMES], used[_EMPTY_BODIES]
    high_topics = used[_HIGH_TOPICS]
    for i in range(first, last):
        at, stop = starts[i], stops[i]
        if at < 0 or stop - at < SMALLEST or stop > len(buf) - _SLACK:
            raise IndexError("a message outside of the buffer")
        prefetch_after(buf, at)
        stored, body, size, topic, topic_size = parts_of(buf, at)
        if body - at > stop - at or size < 0 or size > stop - body or topic_size < 0:
            raise IndexError("a body outside of its message")
        if topic_size > stop - topic - 2:
            raise IndexError("a topic outside of its message")
        out.queue_id[i] = load_i32be(buf, at + _QUEUE_ID)
        out.queue_offset[i] = load_i64be(buf, at + _QUEUE_OFFSET)
        out.physical_offset[i] = load_i64be(buf, at + _PHYSICAL_OFFSET)
        born_time, stored_time = load_i64be(buf, at + _BORN), load_i64be(buf, stored)
        out.born[i], out.stored[i] = born_time, stored_time
        nulls |= (born_time == -1) | (stored_time == -1)
        if selected & BODY:
            if size <= _LONG:
                for k in range(0, size, _SLACK):  # fewer iterations are predicted better
                    copy_64(out.body, body_at + k, buf, body + k)
                    copy_64(out.body, body_at + k + 64, buf, body + k + 64)
            else:
                copy(out.body, body_at, buf, body, size)
            empty |= size == 0
            body_at += size
            out.body_ends[i + 1] = body_at
        copy_32(out.topic, topic_at, buf, topic)
        _copy_rest(out.topic, topic_at, buf, topic, topic_size)
        _, _, high = masks_of(buf, topic, 0, 0)
        high_topics |= topic_size >= MASKED or high & (1 << topic_size) - 1 != 0
        topic_at += topic_size
        out.topic_ends[i + 1] = topic_at
        out.properties_at[i] = topic + topic_size + 2
    used[_BODY], used[_TOPIC], used[_NULL_TIMES], used[_EMPTY_BODIES] = body_at, topic_at, nulls, empty
    used[_HIGH_TOPICS] = high_topics


@kernel("u1[], i8, const u1[], i8, i8")
def _copy_rest(dst: Bytes, dst_at: int, src: Bytes, src_at: int, n: int) -> None:
    """Copy all but the first 32 bytes."""
    if n > 32:
        copy(dst, dst_at + 32, src, src_at + 32, n - 32)


@kernel("const u1[], const i8[], i8, i8, i8, i8[], Arrays")
def read_properties(
    buf: Bytes, stops: Int64s, first: int, last: int, selected: int, used: Int64s, out: Arrays
) -> None:
    """Read the properties of some messages; without `LISTS` only TAGS and KEYS, of which the last ones count. There is room.

    A part without a name, a value or 0x01 is ignored."""
    n, name_at, value_at, tags_at, keys_at = (
        used[_COUNT], used[_NAMES], used[_VALUES], used[_TAGS], used[_KEYS],
    )  # fmt: skip
    lists = selected & LISTS
    no_tags, no_keys = used[_NO_TAGS], used[_NO_KEYS]
    for i in range(first, last):
        at, stop = out.properties_at[i], stops[i]
        if at < 0 or stop > len(buf) - _SLACK or stop - at > MAX_PROPERTIES:
            raise IndexError("properties outside of the buffer, or too long")
        tags = tags_size = keys = keys_size = 0
        middle = -1
        chunk = at
        while at < stop:
            # Bit i is byte `chunk + i`.
            ones, twos, high = property_masks(buf, chunk, stop)
            if high != 0:
                used[_HIGH] = 1
            while twos != 0:
                end = chunk + lowest_bit(twos)
                below = ones & (twos ^ (twos - 1))
                if middle < 0 and below != 0:
                    middle = chunk + lowest_bit(below)
                ones ^= below
                twos &= twos - 1
                size, length = middle - at, end - middle - 1
                if size > 0 and length > 0:
                    if lists:
                        copy_32(out.names, name_at, buf, at)
                        copy_32(out.values, value_at, buf, middle + 1)
                        if size > 32 or length > 32:
                            _copy_rest(out.names, name_at, buf, at, size)
                            _copy_rest(out.values, value_at, buf, middle + 1, length)
                        name_at += size
                        value_at += length
                        n += 1
                        put(out.name_ends, n, name_at)
                        put(out.value_ends, n, value_at)
                    if size == 4:
                        word = load_u32be(buf, at)
                        if word == TAGS_NUMBER:
                            tags, tags_size = middle + 1, length
                        elif word == KEYS_NUMBER:
                            keys, keys_size = middle + 1, length
                at = end + 1
                middle = -1
            if middle < 0 and ones != 0:
                middle = chunk + lowest_bit(ones)
            chunk += MASKED
        out.lists[i + 1] = n
        copy_32(out.tags, tags_at, buf, tags)
        copy_32(out.keys, keys_at, buf, keys)
        if tags_size > 32 or keys_size > 32:
            _copy_rest(out.tags, tags_at, buf, tags, tags_size)
            _copy_rest(out.keys, keys_at, buf, keys, keys_size)
        no_tags |= tags_size == 0
        no_keys |= keys_size == 0
        tags_at += tags_size
        keys_at += keys_size
        out.tag_ends[i + 1], out.key_ends[i + 1] = tags_at, keys_at
    used[_COUNT], used[_NAMES], used[_VALUES] = n, name_at, value_at
    used[_TAGS], used[_KEYS] = tags_at, keys_at
    used[_NO_TAGS], used[_NO_KEYS] = no_tags, no_keys


@kernel("i8, i8")
def _bounds(count: int, size: int) -> tuple[int, int, int]:
    """Return the sizes that are enough for `count` messages of `size` bytes in total: of the bodies and of the topics; of names, values,
    tags and keys; of the ends of names and of values."""
    size = size - count * SMALLEST + _SLACK
    properties = min(size, count * MAX_PROPERTIES + _SLACK)
    return size, properties, properties // _SHORTEST + 1


@kernel("i8, i8, i8, i8[], Arrays")
def _has_room(count: int, size: int, selected: int, used: Int64s, out: Arrays) -> bool:
    size, properties, ends = _bounds(count, size)
    room = len(out.topic) - used[_TOPIC] >= size
    if selected & BODY:
        room &= len(out.body) - used[_BODY] >= size
    if selected & LISTS:
        room &= min(len(out.names) - used[_NAMES], len(out.values) - used[_VALUES]) >= properties
        room &= min(len(out.name_ends), len(out.value_ends)) - used[_COUNT] >= ends
    if selected & (LISTS | KNOWN):
        room &= min(len(out.tags) - used[_TAGS], len(out.keys) - used[_KEYS]) >= properties
    return bool(room)


@kernel("const u1[], const i8[], const i8[], i8, i8, i8, i8[], Arrays")
def read_messages(
    buf: Bytes, starts: Int64s, stops: Int64s, first: int, last: int, selected: int, used: Int64s, out: Arrays
) -> int:
    """Read messages `[first, last)`, which end at least `_SLACK` bytes before the end of the buffer. Return where there was no room, or
    `last`."""
    while first < last:
        until = min(first + _BLOCK, last)
        size = 0
        for i in range(first, until):
            size += stops[i] - starts[i]
        if not _has_room(until - first, size, selected, used, out):
            return first
        read_fields(buf, starts, stops, first, until, selected, used, out)
        if selected & (LISTS | KNOWN):
            read_properties(buf, stops, first, until, selected, used, out)
        first = until
    return first


@dataclass
class Sizes:
    """How many bytes some messages had, and what `used` held after they were read. The sizes of the next columns are estimated from it."""

    messages: int = 0
    used: list[int] = field(default_factory=list)


class Columns:
    """The core columns of messages: the fixed fields, the topic, and those that `selected` says."""

    def __init__(self, part: Part, selected: int, before: Sizes) -> None:
        """`before`: the sizes of earlier messages, which are replaced."""
        rows = len(part)
        self._selected, self._used, self._before = selected, np.zeros(_HIGH + 1, np.int64), before
        fixed, ends = np.empty((5, rows), np.int64), np.zeros((5, rows + 1), np.int32)
        self._out = Arrays(
            fixed[0], np.empty(rows, np.int32), *fixed[1:], *ends,
            *(np.empty(0, np.uint8) for _ in range(6)), *(np.zeros(1, np.int32) for _ in range(2)),
        )  # fmt: skip
        starts, stops = np.ascontiguousarray(part.start), np.ascontiguousarray(part.end)
        data, safe = part.data, rows
        if rows and stops[-1] > len(data) - _SLACK:
            safe = int(np.searchsorted(stops, len(data) - _SLACK, "right"))
        self._read(data, starts, stops, 0, safe)
        if safe < rows:
            first, stop = int(starts[safe]), int(stops[-1])
            data = np.zeros(stop - first + _SLACK, np.uint8)
            data[: stop - first] = part.data[first:stop]
            self._read(data, starts - first, stops - first, safe, rows)
        if rows:
            before.messages, before.used = int(stops[-1] - starts[0]), self._used.tolist()

    def _read(self, data: Bytes, starts: Int64s, stops: Int64s, first: int, last: int) -> None:
        begun = first
        while first < last:
            self._make_room(starts, stops, begun, first, last)
            first = read_messages(data, starts, stops, first, last, self._selected, self._used, self._out)

    def _make_room(self, starts: Int64s, stops: Int64s, begun: int, first: int, last: int) -> None:
        """Make room for a block of any messages, and for all of `[first, last)` if they are like those before them."""
        used = self._used.tolist()
        before = self._before
        if first > begun:
            before = Sizes(int(stops[first - 1] - starts[begun]), used)
        factor = _MARGIN * int(stops[last - 1] - starts[first]) / before.messages if before.messages else 0.0
        until = min(first + (_BLOCK if before.messages else _SAMPLE), last)
        size, properties, ends = _bounds(until - first, int((stops[first:until] - starts[first:until]).sum()))
        selected = self._selected
        body, lists, known = selected & BODY, selected & LISTS, selected & (LISTS | KNOWN)
        least = (
            size if body else 0, size, *(properties if lists else 0,) * 2, *(properties if known else 0,) * 2, *(ends if lists else 0,) * 2,
        )  # fmt: skip
        # The ends of names and of values are as many as properties.
        used, expected = ([*sizes[:_COUNT], *sizes[_COUNT:][:1] * 2] for sizes in (used, before.used or used))
        arrays: list[Any] = list(self._out)
        for k, (done, room, more) in enumerate(zip(used, least, expected, strict=True), -len(least)):
            size = done + room + int(factor * more)
            if len(arrays[k]) < size:
                kept, dtype = arrays[k][: done + 1], arrays[k].dtype
                arrays[k] = aligned(size * dtype.itemsize).view(dtype)
                arrays[k][: len(kept)] = kept
        self._out = Arrays(*arrays)

    # The columns

    def numbers(self) -> Iterator[tuple[str, pa.Array]]:
        """Iterate over the columns of fixed fields."""
        out = self._out
        yield "queue_id", numbers(pa.int32(), out.queue_id)
        yield "queue_offset", numbers(pa.int64(), out.queue_offset)
        yield "physical_offset", numbers(pa.int64(), out.physical_offset)
        yield "born_timestamp", self._time(out.born)
        yield "store_timestamp", self._time(out.stored)
        yield "born_timestamp_ms", numbers(pa.int64(), out.born)
        yield "store_timestamp_ms", numbers(pa.int64(), out.stored)

    def _time(self, values: Int64s) -> pa.Array:
        """Return milliseconds as timestamps; -1 is null."""
        return numbers(TIMESTAMP, values, values == -1 if self._used[_NULL_TIMES] else None)

    def body(self) -> pa.Array:
        """Return the stored bodies; null if empty."""
        return self._binary(self._out.body_ends, self._out.body, _BODY, _EMPTY_BODIES)

    def topic(self) -> pa.Array:
        return self._text(self._out.topic_ends, self._out.topic, _TOPIC, _HIGH_TOPICS)

    def tags(self) -> pa.Array:
        return self._text(self._out.tag_ends, self._out.tags, _TAGS, nulls=_NO_TAGS)

    def keys(self) -> pa.Array:
        return self._text(self._out.key_ends, self._out.keys, _KEYS, nulls=_NO_KEYS)

    def properties(self) -> pa.Array:
        """Return the lists of properties in stored order."""
        out, count = self._out, int(self._used[_COUNT])
        texts = [
            self._text(ends[: count + 1], data, which)
            for ends, data, which in (
                (out.name_ends, out.names, _NAMES),
                (out.value_ends, out.values, _VALUES),
            )
        ]
        entries = pa.StructArray.from_arrays(texts, fields=list(PROPERTY))
        return pa.Array.from_buffers(
            PROPERTIES, len(out.lists) - 1, [None, pa.py_buffer(out.lists)], 0, children=[entries]
        )

    def _binary(self, ends: Int32s, data: Bytes, which: int, nulls: int | None) -> pa.Array:
        """Return a binary column. `nulls` is the member of `used` that tells whether there are empty values, which are null."""
        null = ends[1:] == ends[:-1] if nulls is not None and self._used[nulls] else None
        return from_offsets(ends, data[: self._used[which]], null)

    def _text(
        self, ends: Int32s, data: Bytes, which: int, high: int = _HIGH, *, nulls: int | None = None
    ) -> pa.Array:
        """Return a text column. `high` is the member of `used` that tells whether there may be bytes above 127."""
        stored = self._binary(ends, data, which, nulls)
        return java_strings(stored)[0] if self._used[high] else stored.view(pa.string())
