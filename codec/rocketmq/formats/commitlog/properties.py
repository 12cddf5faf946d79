"""The properties of a message: repeated `name 0x01 value 0x02`. Source: `MessageDecoder.string2messageProperties`."""

from __future__ import annotations

import pyarrow as pa

from logwright.codec.kernels.byte_masks import MASKED, masks_of
from logwright.codec.kernels.intrinsics import load_u8
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes

PROPERTY = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.string())])
PROPERTIES = pa.list_(PROPERTY)
TAGS, KEYS = "TAGS", "KEYS"
TAGS_NUMBER, KEYS_NUMBER = (int.from_bytes(name.encode(), "big") for name in (TAGS, KEYS))


@kernel("const u1[], i8, i8", inline=True)
def property_masks(buf: Bytes, chunk: int, stop: int) -> tuple[int, int, int]:
    """Return in bit i whether byte `chunk + i` of properties that end at `stop` is 1, whether a property ends there, and whether the byte is
    above 127, for 64 bytes. The last property may lack its 2, and then ends at `stop`. The buffer has at least 64 bytes."""
    place = int(min(chunk, len(buf) - MASKED))
    ones, ends, high = masks_of(buf, place, 1, 2)
    left, shift = int(stop - chunk), int(chunk - place)
    if left < MASKED:
        inside = (1 << left) - 1
        ones, ends, high = ones >> shift & inside, ends >> shift & inside, high >> shift & inside
        if load_u8(buf, stop - 1) != 2:
            ends |= 1 << left
    return ones, ends, high
