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


@kernel("const u1[], i8, i8, i8", inline=True)
def next_end(buf: Bytes, stop: int, chunk: int, ends: int) -> tuple[int, int, int]:
    """Return the end of the next property, then `chunk` and `ends` for the next call.

    `chunk` is the position of the 64 bytes that are searched; `ends` are the bytes 2 that are left there. For the first property `ends` is
    0, and `chunk` is 64 less than where the properties start."""
    while ends == 0:
        chunk += MASKED
        if chunk >= stop:
            return stop, chunk, 0
        ends = equal_mask(buf, chunk, stop, 2)
    return chunk + lowest_bit(ends), chunk, ends & (ends - 1)
