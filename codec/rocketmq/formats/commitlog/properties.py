"""The properties of a message: repeated `name 0x01 value 0x02`. Source: `MessageDecoder.string2messageProperties`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.columns import from_offsets
from logwright.codec.java import java_strings
from logwright.codec.kernels.byte_masks import MASKED, equal_mask, lowest_bit
from logwright.codec.kernels.intrinsics import append_short, load_u32be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]

PROPERTY = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.string())])
PROPERTIES = pa.list_(PROPERTY)
TAGS, KEYS = "TAGS", "KEYS"
_TAGS, _KEYS = (int.from_bytes(name.encode(), "big") for name in (TAGS, KEYS))


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
