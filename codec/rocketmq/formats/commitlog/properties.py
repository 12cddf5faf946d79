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
    copy,
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


def text_of(
    properties: pa.Array, tags: pa.Array, keys: pa.Array, *, tags_given: bool, keys_given: bool
) -> pa.Array:
    """Return the stored form of the properties, a binary column.

    `tags` and `keys` override the list; an absent column does not.
    """
    added: Any = []
    for name, column, replaces in ((TAGS, tags, tags_given), (KEYS, keys, keys_given)):
        listed = value_of(properties, name)
        present = np.asarray(listed.is_valid())
        same = np.asarray(compute.equal(listed, column).fill_null(False))
        if replaces and (present & ~same).any():
            properties = _with(properties, name, column, present & ~same)
        adds = replaces & ~present & np.asarray(column.is_valid())
        added += [*values_of(column), adds.view(np.uint8)]
    flat = properties.flatten()
    parts: Any = [*values_of(flat.field(0)), *values_of(flat.field(1))]
    offsets = np.zeros(len(properties) + 1, np.int32)
    np.cumsum(np.asarray(properties.value_lengths().fill_null(0), np.int32), out=offsets[1:])
    size = sum(int(ends[-1] - ends[0]) for ends in (parts[1], parts[3], added[1], added[4])) + 2 * len(flat)
    out = np.empty(size + _EXTRA * 2 * len(properties), np.uint8)
    ends = np.empty(len(properties) + 1, np.int32)
    used = join(out, ends, offsets, *parts, *added)
    return from_offsets(ends, out[:used])


@kernel(
    "u1[], i4[], const i4[], const u1[], const i4[], const u1[], const i4[], const u1[], const i4[], const u1[], const u1[], const i4[], "
    "const u1[]"
)
def join(
    out: Bytes, ends: Int32s, lists: Int32s, names: Bytes, name_ends: Int32s, values: Bytes, value_ends: Int32s,
    tags: Bytes, tag_ends: Int32s, adds_tags: Bytes, keys: Bytes, key_ends: Int32s, adds_keys: Bytes,
) -> int:  # fmt: skip
    """Write lists of properties, with TAGS and KEYS appended where `adds_tags` and `adds_keys` are set. Return the bytes written."""
    at = 0
    ends[0] = 0
    for i in range(len(ends) - 1):
        for k in range(lists[i], lists[i + 1]):
            at = _put(
                out, at, names, name_ends[k], name_ends[k + 1], values, value_ends[k], value_ends[k + 1]
            )
        if adds_tags[i]:
            at = store_32be(out, at, _TAGS)
            at = _put(out, at, tags, 0, 0, tags, tag_ends[i], tag_ends[i + 1])
        if adds_keys[i]:
            at = store_32be(out, at, _KEYS)
            at = _put(out, at, keys, 0, 0, keys, key_ends[i], key_ends[i + 1])
        ends[i + 1] = at
    return at


@kernel("u1[], i8, const u1[], i8, i8, const u1[], i8, i8")
def _put(out: Bytes, at: int, name: Bytes, start: int, stop: int, value: Bytes, first: int, end: int) -> int:
    """Write a property, and return where it ends."""
    copy(out, at, name, start, stop - start)
    at += stop - start
    out[at] = 1
    copy(out, at + 1, value, first, end - first)
    at += end - first + 1
    out[at] = 2
    return at + 1


def value_of(properties: pa.Array, name: str) -> pa.Array:
    """Return the value of the last property called `name` in each list, or null."""
    flat = properties.flatten()
    hits = np.flatnonzero(np.asarray(compute.equal(flat.field(0), name).fill_null(False)))
    rows = np.asarray(compute.list_parent_indices(properties), np.int64)[hits]
    last = np.full(len(properties), -1, np.int64)
    last[rows] = hits
    return flat.field(1).take(pa.array(last, mask=last < 0))


def _with(properties: pa.Array, name: str, column: pa.Array, rows: npt.NDArray[np.bool_]) -> pa.Array:
    """Replace one property of some lists by the value of `column`. Null removes it."""
    out: list[Any] = properties.to_pylist()
    for i in np.flatnonzero(rows).tolist():
        value, entries = column[i].as_py(), out[i]
        last = max(k for k, entry in enumerate(entries) if entry["key"] == name)
        entries[last] = {"key": name, "value": value}
        out[i] = [entry for entry in entries if value is not None or entry["key"] != name]
    return pa.array(out, PROPERTIES)
