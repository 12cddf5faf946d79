"""The properties of a message: repeated `name 0x01 value 0x02`. Source: `MessageDecoder.string2messageProperties`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logwright.codec.columns import binary, from_offsets, values_of
from logwright.codec.java import java_strings
from logwright.codec.kernels.byte_masks import lowest_bit, mask_below
from logwright.codec.kernels.intrinsics import (
    append,
    load_u8,
    load_u32be,
    store_32be,
)
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
compute: Any = pc

PROPERTY = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.string())])
PROPERTIES = pa.list_(PROPERTY)
TAGS, KEYS = "TAGS", "KEYS"
_TAGS, _KEYS = (int.from_bytes(name.encode(), "big") for name in (TAGS, KEYS))
_EXTRA = 6
"""Bytes of TAGS or KEYS with its separators."""


_CHUNK = 32
"""The number of bytes that `mask_below` looks at."""


@kernel("const u1[], i8, i8, i8, i8", inline=True)
def next_property(buf: Bytes, at: int, stop: int, chunk: int, mask: int) -> tuple[int, int, int, int]:
    """Return the end of the name (-1: no name) and the end of the value of the property at `at`, then `chunk` and `mask` for the next call.

    `chunk` is the position of the 32 bytes that are searched, `mask` the bytes below 3 that are left there. They are `at` and 0 for the
    first property.
    """
    middle = -1
    if chunk == at and mask == 0:
        mask = mask_below(buf, chunk, stop, 3)
    while True:
        while mask == 0:
            chunk += _CHUNK
            if chunk >= stop:
                return middle, stop, chunk, 0
            mask = mask_below(buf, chunk, stop, 3)
        place = chunk + lowest_bit(mask)
        mask &= mask - 1
        byte = load_u8(buf, place)
        if byte == 2:
            return middle, place, chunk, mask
        if byte == 1 and middle < 0:
            middle = place


@kernel("const u1[], const i8[], const i8[], i8, i4[], i4[], u1[], i4[], u1[], i8[,]")
def parse(
    buf: Bytes, starts: Int64s, stops: Int64s, copies: int, lists: Int32s, name_ends: Int32s, names: Bytes, value_ends: Int32s,
    values: Bytes, known: Int64s,
) -> int:  # fmt: skip
    """Find the properties of each range. With `copies`, copy the names and values, fill the three arrays of offsets, and return the number of
    properties.

    `known[:, i]` is set to the offset and size of the last TAGS, then of the last KEYS; size -1 means absent. A part without a name, a value
    or 0x01 is ignored."""
    n = 0
    name_at = value_at = 0
    lists[0] = name_ends[0] = value_ends[0] = 0
    for i in range(len(starts)):
        known[0, i] = known[2, i] = 0
        known[1, i] = known[3, i] = -1
        at = starts[i]
        chunk, mask = at, 0
        while at < stops[i]:
            middle, end, chunk, mask = next_property(buf, at, stops[i], chunk, mask)
            if middle > at and end - middle > 1:
                if copies:
                    append(names, name_at, buf, at, middle - at)
                    append(values, value_at, buf, middle + 1, end - middle - 1)
                    name_at += middle - at
                    value_at += end - middle - 1
                    n += 1
                    name_ends[n] = name_at
                    value_ends[n] = value_at
                if middle - at == 4:
                    word = load_u32be(buf, at)
                    if word == _TAGS:
                        known[0, i] = middle + 1
                        known[1, i] = end - middle - 1
                    elif word == _KEYS:
                        known[2, i] = middle + 1
                        known[3, i] = end - middle - 1
            at = end + 1
        lists[i + 1] = n
    return n


class Parsed:
    """The properties of messages, stored at `starts` to `stops` of `buf`. `lists`: not only TAGS and KEYS are needed."""

    def __init__(self, buf: Bytes, starts: Int64s, stops: Int64s, *, lists: bool) -> None:
        self.buf = buf
        size = int((stops - starts).sum()) if lists else 0
        room = size // 3 + len(starts) + 1 if lists else 1
        self.names, self.values = np.empty(size, np.uint8), np.empty(size, np.uint8)
        self.name_ends, self.value_ends = np.empty(room, np.int32), np.empty(room, np.int32)
        self.lists = np.empty(len(starts) + 1, np.int32)
        self.known = np.empty((4, len(starts)), np.int64)
        self.total = parse(
            buf, starts, stops, int(lists), self.lists, self.name_ends, self.names, self.value_ends, self.values, self.known
        )  # fmt: skip

    def tags(self) -> pa.Array:
        return java_strings(binary(self.buf, self.known[0], self.known[1]))[0]

    def keys(self) -> pa.Array:
        return java_strings(binary(self.buf, self.known[2], self.known[3]))[0]

    def all(self) -> pa.Array:
        """Return the lists of properties in stored order."""
        columns = ((self.name_ends, self.names), (self.value_ends, self.values))
        texts = [
            java_strings(from_offsets(ends[: self.total + 1], data[: int(ends[self.total])]))[0]
            for ends, data in columns
        ]
        entries = pa.StructArray.from_arrays(texts, fields=list(PROPERTY))
        return pa.ListArray.from_arrays(pa.array(self.lists), entries).cast(PROPERTIES)


class Texts:
    """The stored form of lists of properties, to which `tags` and `keys` are added: the size of each, and arrays for `put_text`.

    `tags` and `keys` override the list; an absent column does not.
    """

    def __init__(
        self, properties: pa.Array, tags: pa.Array, keys: pa.Array, *, tags_given: bool, keys_given: bool
    ) -> None:
        overriding = [(TAGS, tags, tags_given), (KEYS, keys, keys_given)]
        self._find(properties)
        for i, (name, column, replaces) in enumerate(overriding):
            if replaces and self._present[i].any():
                listed = self._values.take(pa.array(self._last[i], mask=~self._present[i]))
                same = np.asarray(compute.equal(listed, column).fill_null(False))
                if (self._present[i] & ~same).any():
                    self._find(_with(self._properties, name, column, self._present[i] & ~same))
        sizes = [np.diff(ends[self._lists]) for ends in (self._name_ends, self._value_ends)]
        self.sizes = (sizes[0] + sizes[1] + 2 * np.diff(self._lists)).astype(np.int64)
        self._added: list[tuple[Bytes, Int32s, Bytes]] = []
        for i, (_, column, replaces) in enumerate(overriding):
            adds = replaces & ~self._present[i] & np.asarray(column.is_valid())
            data, ends = values_of(column)
            self._added.append((data, ends, adds.view(np.uint8)))
            self.sizes += np.where(adds, _EXTRA + np.diff(ends), 0)

    def _find(self, properties: pa.Array) -> None:
        """Take lists of properties, and find the last TAGS and KEYS of each."""
        self._properties = properties
        flat = properties.flatten()
        self._values = flat.field(1)
        (self._names, self._name_ends), (self._data, self._value_ends) = (
            values_of(flat.field(i)) for i in range(2)
        )
        self._lists = np.zeros(len(properties) + 1, np.int32)
        np.cumsum(np.asarray(properties.value_lengths().fill_null(0), np.int32), out=self._lists[1:])
        self._last = np.empty((2, len(properties)), np.int64)
        find_overridden(self._lists, self._names, self._name_ends, self._last)
        self._present = self._last >= 0
        if self._values.null_count:
            self._present &= np.asarray(self._values.is_valid())[self._last]

    def part(self, first: int, last: int) -> tuple[Any, ...]:
        """Return the arrays of some rows, in the order of the parameters of `put_text`."""
        added = [
            array
            for data, ends, adds in self._added
            for array in (data, ends[first : last + 1], adds[first:last])
        ]
        return (
            self._lists[first : last + 1], self._names, self._name_ends, self._data, self._value_ends, *added
        )  # fmt: skip


@kernel("const i4[], const u1[], const i4[], i8[,]")
def find_overridden(lists: Int32s, names: Bytes, name_ends: Int32s, last: Int64s) -> None:
    """Set `last` to the index of the last property of each list that is called TAGS, and of the last one called KEYS; -1: none."""
    for i in range(len(lists) - 1):
        last[0, i] = last[1, i] = -1
        for k in range(lists[i], lists[i + 1]):
            if name_ends[k + 1] - name_ends[k] == 4:
                word = load_u32be(names, name_ends[k])
                if word == _TAGS:
                    last[0, i] = k
                elif word == _KEYS:
                    last[1, i] = k


@kernel(
    "u1[], i8, i8, const i4[], const u1[], const i4[], const u1[], const i4[], const u1[], const i4[], const u1[], const u1[], const i4[], "
    "const u1[]"
)
def put_text(
    out: Bytes, at: int, i: int, lists: Int32s, names: Bytes, name_ends: Int32s, values: Bytes, value_ends: Int32s,
    tags: Bytes, tag_ends: Int32s, adds_tags: Bytes, keys: Bytes, key_ends: Int32s, adds_keys: Bytes,
) -> int:  # fmt: skip
    """Write list `i` of properties, with TAGS and KEYS appended if `adds_tags` and `adds_keys` are set. Return where it ends."""
    for k in range(lists[i], lists[i + 1]):
        at = _put(out, at, names, name_ends[k], name_ends[k + 1], values, value_ends[k], value_ends[k + 1])
    if adds_tags[i]:
        at = store_32be(out, at, _TAGS)
        at = _put(out, at, tags, 0, 0, tags, tag_ends[i], tag_ends[i + 1])
    if adds_keys[i]:
        at = store_32be(out, at, _KEYS)
        at = _put(out, at, keys, 0, 0, keys, key_ends[i], key_ends[i + 1])
    return at


@kernel("u1[], i8, const u1[], i8, i8, const u1[], i8, i8")
def _put(out: Bytes, at: int, name: Bytes, start: int, stop: int, value: Bytes, first: int, end: int) -> int:
    """Write a property, and return where it ends."""
    append(out, at, name, start, stop - start)
    at += stop - start
    out[at] = 1
    append(out, at + 1, value, first, end - first)
    at += end - first + 1
    out[at] = 2
    return at + 1


def _with(properties: pa.Array, name: str, column: pa.Array, rows: npt.NDArray[np.bool_]) -> pa.Array:
    """Replace one property of some lists by the value of `column`. Null removes it."""
    out: list[Any] = properties.to_pylist()
    for i in np.flatnonzero(rows).tolist():
        value, entries = column[i].as_py(), out[i]
        last = max(k for k, entry in enumerate(entries) if entry["key"] == name)
        entries[last] = {"key": name, "value": value}
        out[i] = [entry for entry in entries if value is not None or entry["key"] != name]
    return pa.array(out, PROPERTIES)
