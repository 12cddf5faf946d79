"""Write the properties of messages: lists of properties, to which the columns `tags` and `keys` are added."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Int32s, Int64s
from logwright.codec.columns import values_of
from logwright.codec.fault import UsageError
from logwright.codec.kernels.intrinsics import append_short, load_i64be, load_u8, load_u32be, store_32be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.rocketmq.formats.commitlog.properties import KEYS, PROPERTIES, TAGS
from logwright.codec.rocketmq.formats.commitlog.rows import NAME
from logwright.codec.window import Bytes

_TAGS, _KEYS = (int.from_bytes(name.encode(), "big") for name in (TAGS, KEYS))
_BLOCK = 1 << 17
"""Bytes that are searched at a time. They fit in the processor's cache."""
_EXTRA = 6
"""Bytes of TAGS or KEYS with its separators."""
_ADDS_TAGS, _ADDS_KEYS, _OTHER_TAGS, _OTHER_KEYS = 1, 2, 4, 8
"""Bits of a message: a property is added, or differs from the one in the list."""


class Texts:
    """The stored form of lists of properties: the size of each, and arrays for `put_text`.

    `tags` and `keys` override the list; an absent column does not.
    """

    def __init__(
        self, properties: pa.Array, tags: pa.Array, keys: pa.Array, *, tags_given: bool, keys_given: bool
    ) -> None:
        self.sizes, self._adds = np.empty(len(properties), np.int64), np.empty(len(properties), np.uint8)
        self._tags, self._keys = _nullable(tags), _nullable(keys)
        overrides = tags_given * (_ADDS_TAGS | _OTHER_TAGS) | keys_given * (_ADDS_KEYS | _OTHER_KEYS)
        if self._measure(properties, overrides):
            for bit, name, column in ((_OTHER_TAGS, TAGS, tags), (_OTHER_KEYS, KEYS, keys)):
                properties = _with(properties, name, column, (self._adds & bit) != 0)
            self._measure(properties, overrides)
        lists, names, name_ends, values, value_ends = self._lists
        _refuse_separators(names, name_ends, b"\1\2", lists)
        _refuse_separators(values, value_ends, b"\2", lists)
        for data, ends, *_ in (self._tags, self._keys):
            _refuse_separators(data, ends, b"\2")

    def _measure(self, properties: pa.Array, overrides: int) -> bool:
        """Take lists of properties. Return whether a property differs from its column."""
        flat = properties.flatten()
        names, values = (flat.field(i) for i in range(2))
        lists = np.zeros(len(properties) + 1, np.int32)
        np.cumsum(np.asarray(properties.value_lengths().fill_null(0), np.int32), out=lists[1:])
        absent = np.asarray(values.is_null()).view(np.uint8) if values.null_count else np.empty(0, np.uint8)
        self._lists = lists, *values_of(names), *values_of(values)
        return measure_texts(
            *self._lists, absent, *self._tags, *self._keys, overrides, self.sizes, self._adds
        )

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The arrays in the order of the parameters of `put_text`."""
        return *self._lists, self._adds, *self._tags[:2], *self._keys[:2]


def _refuse_separators(data: Bytes, ends: Int32s, separators: bytes, lists: Int32s | None = None) -> None:
    """Raise `UsageError` if a text contains one of these bytes, which a reader takes for the end of a name or a value."""
    for start in range(int(ends[0]), int(ends[-1]), _BLOCK):
        block = data[start : min(start + _BLOCK, int(ends[-1]))].tobytes()
        for separator in separators:
            at = block.find(separator)
            if at >= 0:
                row = int(np.searchsorted(ends, start + at, "right")) - 1
                row = row if lists is None else int(np.searchsorted(lists, row, "right")) - 1
                text = "names of properties cannot contain bytes 1 and 2, values cannot contain byte 2"
                raise UsageError(f"{NAME}: row {row}: {text}")


def _nullable(column: pa.Array) -> tuple[Bytes, Int32s, Bytes, int]:
    """Return the bytes and offsets of a string column, its validity bits (empty: no null) and the index of the first bit."""
    bits, places, data = column.buffers()
    none = np.empty(0, np.uint8)
    ends = np.zeros(len(column) + 1, np.int32)
    if len(column) and places is not None:
        ends = np.frombuffer(places, np.int32)[column.offset : column.offset + len(column) + 1]
    return (
        none if data is None else np.frombuffer(data, np.uint8), ends,
        np.frombuffer(bits, np.uint8) if bits is not None and column.null_count else none, column.offset,
    )  # fmt: skip


@kernel(
    "const i4[], const u1[], const i4[], const u1[], const i4[], const u1[], const u1[], const i4[], const u1[], i8, const u1[], const i4[], "
    "const u1[], i8, i8, i8[], u1[]"
)
def measure_texts(
    lists: Int32s, names: Bytes, name_ends: Int32s, values: Bytes, value_ends: Int32s, absent: Bytes,
    tags: Bytes, tag_ends: Int32s, tag_bits: Bytes, tag_first: int, keys: Bytes, key_ends: Int32s, key_bits: Bytes, key_first: int,
    overrides: int, sizes: Int64s, adds: Bytes,
) -> bool:  # fmt: skip
    """Set `sizes` to the sizes of the stored lists, and `adds` to those bits of `overrides` that apply. Return whether a property that is
    listed differs from its column."""
    other = 0
    for i in range(len(sizes)):
        first, last = lists[i], lists[i + 1]
        listed_tags = listed_keys = -1
        for k in range(first, last):
            if name_ends[k + 1] - name_ends[k] == 4:
                word = load_u32be(names, name_ends[k])
                if word == _TAGS:
                    listed_tags = k
                elif word == _KEYS:
                    listed_keys = k
        size = (
            name_ends[last] - name_ends[first] + (value_ends[last] - value_ends[first]) + 2 * (last - first)
        )
        bits = 0
        if overrides & _ADDS_TAGS:
            valid = len(tag_bits) == 0 or tag_bits[(tag_first + i) >> 3] >> ((tag_first + i) & 7) & 1
            if listed_tags >= 0 and (len(absent) == 0 or absent[listed_tags] == 0):
                start, end = value_ends[listed_tags], value_ends[listed_tags + 1]
                if not valid or not _equal(values, start, end, tags, tag_ends[i], tag_ends[i + 1]):
                    bits |= _OTHER_TAGS
            elif valid:
                bits |= _ADDS_TAGS
                size += _EXTRA + tag_ends[i + 1] - tag_ends[i]
        if overrides & _ADDS_KEYS:
            valid = len(key_bits) == 0 or key_bits[(key_first + i) >> 3] >> ((key_first + i) & 7) & 1
            if listed_keys >= 0 and (len(absent) == 0 or absent[listed_keys] == 0):
                start, end = value_ends[listed_keys], value_ends[listed_keys + 1]
                if not valid or not _equal(values, start, end, keys, key_ends[i], key_ends[i + 1]):
                    bits |= _OTHER_KEYS
            elif valid:
                bits |= _ADDS_KEYS
                size += _EXTRA + key_ends[i + 1] - key_ends[i]
        sizes[i], adds[i] = size, bits
        other |= bits & (_OTHER_TAGS | _OTHER_KEYS)
    return other != 0


@kernel("const u1[], i8, i8, const u1[], i8, i8", inline=True)
def _equal(buf: Bytes, at: int, end: int, other: Bytes, start: int, stop: int) -> bool:
    """Return whether two ranges hold the same bytes."""
    if end - at != stop - start:
        return False
    while end - at >= 8:
        if load_i64be(buf, at) != load_i64be(other, start):
            return False
        at += 8
        start += 8
    while at < end:
        if load_u8(buf, at) != load_u8(other, start):
            return False
        at += 1
        start += 1
    return True


@kernel(
    "u1[], i8, i8, const i4[], const u1[], const i4[], const u1[], const i4[], const u1[], const u1[], const i4[], const u1[], const i4[]",
    inline=True,
)
def put_text(
    out: Bytes, at: int, i: int, lists: Int32s, names: Bytes, name_ends: Int32s, values: Bytes, value_ends: Int32s, adds: Bytes,
    tags: Bytes, tag_ends: Int32s, keys: Bytes, key_ends: Int32s,
) -> int:  # fmt: skip
    """Write list `i` of properties, with TAGS and KEYS appended as `adds` says. Return where it ends."""
    for k in range(lists[i], lists[i + 1]):
        at = _put(out, at, names, name_ends[k], name_ends[k + 1], values, value_ends[k], value_ends[k + 1])
    if adds[i] & _ADDS_TAGS:
        at = store_32be(out, at, _TAGS)
        at = _put(out, at, tags, 0, 0, tags, tag_ends[i], tag_ends[i + 1])
    if adds[i] & _ADDS_KEYS:
        at = store_32be(out, at, _KEYS)
        at = _put(out, at, keys, 0, 0, keys, key_ends[i], key_ends[i + 1])
    return at


@kernel("u1[], i8, const u1[], i8, i8, const u1[], i8, i8", inline=True)
def _put(out: Bytes, at: int, name: Bytes, start: int, stop: int, value: Bytes, first: int, end: int) -> int:
    """Write a property, and return where it ends."""
    append_short(out, at, name, start, stop - start)
    at += stop - start
    out[at] = 1
    append_short(out, at + 1, value, first, end - first)
    at += end - first + 1
    out[at] = 2
    return at + 1


def _with(properties: pa.Array, name: str, column: pa.Array, rows: Bools) -> pa.Array:
    """Replace one property of some lists by the value of `column`. Null removes it."""
    if not rows.any():
        return properties
    out: list[Any] = properties.to_pylist()
    for i in np.flatnonzero(rows).tolist():
        value, entries = column[i].as_py(), out[i]
        last = max(k for k, entry in enumerate(entries) if entry["key"] == name)
        entries[last] = {"key": name, "value": value}
        out[i] = [entry for entry in entries if value is not None or entry["key"] != name]
    return pa.array(out, PROPERTIES)
