"""The properties of a message: repeated `name 0x01 value 0x02`. Source: `MessageDecoder.string2messageProperties`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logwright.codec.columns import from_offsets, values_of
from logwright.codec.java import java_strings
from logwright.codec.kernels.byte_masks import MASKED, equal_mask, lowest_bit
from logwright.codec.kernels.intrinsics import (
    append,
    append_short,
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


@kernel("const u1[], i8, i8, i8, i8", inline=True)
def next_property(buf: Bytes, stop: int, chunk: int, ones: int, twos: int) -> tuple[int, int, int, int, int]:
    """Return the end of the name (-1: no name) and the end of the value of the next property, then `chunk`, `ones` and `twos` for the next
    call.

    `chunk` is the position of the 64 bytes that are searched; the others are the bytes 1 and 2 that are left there. For the first property
    the masks are 0, and `chunk` is 64 less than where the properties start."""
    middle = -1
    while twos == 0:
        if ones != 0 and middle < 0:
            middle = chunk + lowest_bit(ones)
        chunk += MASKED
        if chunk >= stop:
            return middle, stop, chunk, 0, 0
        ones, twos = equal_mask(buf, chunk, stop, 1), equal_mask(buf, chunk, stop, 2)
    below = ones & (twos ^ (twos - 1))
    if middle < 0 and below != 0:
        middle = chunk + lowest_bit(below)
    return middle, chunk + lowest_bit(twos), chunk, ones ^ below, twos & (twos - 1)


@kernel("const u1[], const i8[], const i8[], i8, i4[], i4[,], u1[], u1[], i4[,], u1[,], u1[], u1[]")
def parse(
    buf: Bytes, starts: Int64s, stops: Int64s, copies: int, lists: Int32s, ends: Int32s, names: Bytes, values: Bytes,
    known_ends: Int32s, bits: Bytes, tags: Bytes, keys: Bytes,
) -> int:  # fmt: skip
    """Copy the last TAGS and KEYS of each range, where bits are cleared for absent ones, and with `copies` the names and values of all
    properties. Fill the arrays of offsets, and return the number of properties copied.

    A part without a name, a value or 0x01 is ignored."""
    n = 0
    name_at = value_at = 0
    tags_end = keys_end = 0
    for i in range(len(starts)):
        at, stop = starts[i], stops[i]
        tags_at = tags_size = keys_at = keys_size = 0
        chunk, ones, twos = at - MASKED, 0, 0
        while at < stop:
            middle, end, chunk, ones, twos = next_property(buf, stop, chunk, ones, twos)
            size, length = middle - at, end - middle - 1
            if size > 0 and length > 0:
                if copies:
                    append_short(names, name_at, buf, at, size)
                    append_short(values, value_at, buf, middle + 1, length)
                    name_at += size
                    value_at += length
                    n += 1
                    ends[0, n], ends[1, n] = name_at, value_at
                if size == 4:
                    word = load_u32be(buf, at)
                    if word == _TAGS:
                        tags_at, tags_size = middle + 1, length
                    elif word == _KEYS:
                        keys_at, keys_size = middle + 1, length
            at = end + 1
        lists[i + 1] = n
        append_short(tags, tags_end, buf, tags_at, tags_size)
        append_short(keys, keys_end, buf, keys_at, keys_size)
        tags_end += tags_size
        keys_end += keys_size
        known_ends[0, i + 1], known_ends[1, i + 1] = tags_end, keys_end
        if tags_size == 0:
            bits[0, i >> 3] &= 0xFF ^ (1 << (i & 7))
        if keys_size == 0:
            bits[1, i >> 3] &= 0xFF ^ (1 << (i & 7))
    return n


class Parsed:
    """The properties of messages, stored at `starts` to `stops` of `buf`. `lists`: not only TAGS and KEYS are needed."""

    def __init__(self, buf: Bytes, starts: Int64s, stops: Int64s, *, lists: bool) -> None:
        rows, size = len(starts), int((stops - starts).sum())
        self.known, self.data = np.empty((2, size), np.uint8), np.empty((2, size if lists else 0), np.uint8)
        self.known_ends, self.lists = np.empty((2, rows + 1), np.int32), np.empty(rows + 1, np.int32)
        self.bits = np.full((2, (rows + 7) // 8), 0xFF, np.uint8)
        self.ends = np.empty((2, size // 3 + rows + 1 if lists else 1), np.int32)
        self.known_ends[:, 0] = self.ends[:, 0] = self.lists[0] = 0
        self.total = parse(
            buf, starts, stops, int(lists), self.lists, self.ends, self.data[0], self.data[1],
            self.known_ends, self.bits, self.known[0], self.known[1],
        )  # fmt: skip

    def tags(self) -> pa.Array:
        return self._known(0)

    def keys(self) -> pa.Array:
        return self._known(1)

    def _known(self, which: int) -> pa.Array:
        ends = self.known_ends[which]
        used = self.known[which, : int(ends[-1])].copy()  # a small part of the memory
        buffers = [pa.py_buffer(array) for array in (self.bits[which], ends, used)]
        return java_strings(pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers))[0]

    def all(self) -> pa.Array:
        """Return the lists of properties in stored order."""
        texts = [
            java_strings(from_offsets(ends[: self.total + 1], data[: int(ends[self.total])]))[0]
            for ends, data in zip(self.ends, self.data, strict=True)
        ]
        entries = pa.StructArray.from_arrays(texts, fields=list(PROPERTY))
        offsets = pa.py_buffer(self.lists)
        return pa.Array.from_buffers(PROPERTIES, len(self.lists) - 1, [None, offsets], 0, children=[entries])


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
