"""The properties of a message: repeated `name 0x01 value 0x02`. Source: `MessageDecoder.string2messageProperties`."""

from __future__ import annotations

import pyarrow as pa

from logwright.codec.kernels.byte_masks import MASKED, equal_mask, lowest_bit
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes

PROPERTY = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.string())])
PROPERTIES = pa.list_(PROPERTY)
TAGS, KEYS = "TAGS", "KEYS"
TAGS_NUMBER, KEYS_NUMBER = (int.from_bytes(name.encode(), "big") for name in (TAGS, KEYS))


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
