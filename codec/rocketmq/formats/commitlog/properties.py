"""The properties of a message: repeated `name 0x01 value 0x02`. Source: `MessageDecoder.string2messageProperties`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logwright.codec.columns import binary, from_offsets, values_of
from logwright.codec.java import java_strings
from logwright.codec.kernels.intrinsics import copy, load_u8, load_u32be, store_32be
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


@kernel("const u1[], i8, i8")
def next_property(buf: Bytes, at: int, stop: int) -> tuple[int, int]:
    """Return the end of the name and the end of the value of the property at `at`; -1 for the name if either is empty."""
    middle = -1
    end = at
    while end < stop:
        byte = load_u8(buf, end)
        if byte == 2:
            break
        if byte == 1 and middle < 0:
            middle = end
        end += 1
    return middle, end


@kernel("const u1[], const i8[], const i8[], i8[], i8[], i8[], i8[], i8[], i8[,]")
def parse(
    buf: Bytes,
    starts: Int64s,
    stops: Int64s,
    counts: Int64s,
    names: Int64s,
    name_sizes: Int64s,
    values: Int64s,
    value_sizes: Int64s,
    known: Int64s,
) -> int:
    """Find the properties of each range and return their total number.

    `counts[i]` is set to the number in range i; `names` and `values` are set to offsets. `known[i]` is set to the offset and size of the last
    TAGS, then of the last KEYS; size -1 means absent. A part without a name, a value or 0x01 is ignored."""
    n = 0
    for i in range(len(starts)):
        first = n
        known[i, 0] = known[i, 2] = 0
        known[i, 1] = known[i, 3] = -1
        at = starts[i]
        while at < stops[i]:
            middle, end = next_property(buf, at, stops[i])
            if middle > at and end - middle > 1:
                names[n] = at
                name_sizes[n] = middle - at
                values[n] = middle + 1
                value_sizes[n] = end - middle - 1
                n += 1
                if middle - at == 4:
                    word = load_u32be(buf, at)
                    if word == _TAGS:
                        known[i, 0] = middle + 1
                        known[i, 1] = end - middle - 1
                    elif word == _KEYS:
                        known[i, 2] = middle + 1
                        known[i, 3] = end - middle - 1
            at = end + 1
        counts[i] = n - first
    return n


class Parsed:
    """The properties of messages, stored at `starts` to `stops` of `buf`."""

    def __init__(self, buf: Bytes, starts: Int64s, stops: Int64s) -> None:
        self.buf = buf
        room = int((stops - starts).sum()) // 3 + 1
        self.names, self.name_sizes, self.values, self.value_sizes = (
            np.empty(room, np.int64) for _ in range(4)
        )
        self.counts = np.empty(len(starts), np.int64)
        self.known = np.empty((len(starts), 4), np.int64)
        self.total = parse(
            buf,
            starts,
            stops,
            self.counts,
            self.names,
            self.name_sizes,
            self.values,
            self.value_sizes,
            self.known,
        )

    def tags(self) -> pa.Array:
        return self._text(self.known[:, 0], self.known[:, 1])

    def keys(self) -> pa.Array:
        return self._text(self.known[:, 2], self.known[:, 3])

    def all(self) -> pa.Array:
        """Return the lists of properties in stored order."""
        n = self.total
        names = self._text(self.names[:n], self.name_sizes[:n])
        values = self._text(self.values[:n], self.value_sizes[:n])
        entries = pa.StructArray.from_arrays([names, values], fields=list(PROPERTY))
        offsets = np.zeros(len(self.counts) + 1, np.int32)
        np.cumsum(self.counts, out=offsets[1:])
        return pa.ListArray.from_arrays(pa.array(offsets), entries).cast(PROPERTIES)

    def _text(self, at: Int64s, sizes: Int64s) -> pa.Array:
        stored = binary(self.buf, np.ascontiguousarray(at), np.ascontiguousarray(sizes))
        return java_strings(stored)[0]


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
