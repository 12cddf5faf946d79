"""The properties of a message: repeated `name 0x01 value 0x02`. Source: `MessageDecoder.string2messageProperties`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logwright.codec.columns import binary
from logwright.codec.java import java_strings
from logwright.codec.kernels.intrinsics import load_u8, load_u32be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes

Int64s = npt.NDArray[np.int64]
compute: Any = pc

PROPERTY = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.string())])
PROPERTIES = pa.list_(PROPERTY)
TAGS, KEYS = "TAGS", "KEYS"
_TAGS, _KEYS = (int.from_bytes(name.encode(), "big") for name in (TAGS, KEYS))
NAME_END, VALUE_END = b"\x01", b"\x02"


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
            middle = -1
            end = at
            while end < stops[i]:
                byte = load_u8(buf, end)
                if byte == 2:
                    break
                if byte == 1 and middle < 0:
                    middle = end
                end += 1
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

    `tags` and `keys` override the list. A column that was not given does not.
    """
    for name, column, replaces in ((TAGS, tags, tags_given), (KEYS, keys, keys_given)):
        listed = value_of(properties, name)
        same = compute.or_(
            compute.fill_null(compute.equal(listed, column), False),
            compute.and_(compute.is_null(listed), compute.is_null(column)),
        )
        if replaces and compute.sum(compute.invert(same)).as_py():
            properties = _with(properties, name, column)
    flat = properties.flatten()
    names, values = (
        flat.field(0).cast(pa.binary()).fill_null(b""),
        flat.field(1).cast(pa.binary()).fill_null(b""),
    )
    entries = compute.binary_join_element_wise(
        compute.binary_join_element_wise(names, values, NAME_END), pa.scalar(b"", pa.binary()), VALUE_END
    )
    sizes = np.asarray(properties.value_lengths().fill_null(0), np.int64)
    offsets = np.zeros(len(properties) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return compute.binary_join(pa.ListArray.from_arrays(pa.array(offsets), entries), b"")


def value_of(properties: pa.Array, name: str) -> pa.Array:
    """Return the value of the last property called `name` in each list, or null."""
    flat = properties.flatten()
    hits = np.flatnonzero(np.asarray(compute.equal(flat.field(0), name).fill_null(False)))
    rows = np.asarray(compute.list_parent_indices(properties), np.int64)[hits]
    last = np.full(len(properties), -1, np.int64)
    last[rows] = hits
    return flat.field(1).take(pa.array(last, mask=last < 0))


def _with(properties: pa.Array, name: str, column: pa.Array) -> pa.Array:
    """Set one property of each list to the value of `column`: replace or append it. Null removes it."""
    out = []
    for entries, value in zip(properties.to_pylist(), column.to_pylist(), strict=True):
        updated = [entry for entry in entries or () if value is not None or entry["key"] != name]
        indices = [i for i, entry in enumerate(updated) if entry["key"] == name]
        if value is not None and indices:
            updated[indices[-1]] = {"key": name, "value": value}
        elif value is not None:
            updated.append({"key": name, "value": value})
        out.append(updated)
    return pa.array(out, PROPERTIES)
