"""One bit that is turned over: an Adler-32 that is wrong tells which, where it is no more than one.

Of its two sums the lower one changes by what the byte changes by, the upper one by so much for each byte from there to the end.
"""

from __future__ import annotations

from logwright.codec.kernels.adler32 import MOD, adler32
from logwright.codec.window import Bytes

CHECKSUM = -1
"""The place of a bit that is in the checksum itself."""


def turned(data: Bytes, stored: int, computed: int | None = None) -> tuple[int, int] | None:
    """The byte of `data`, and its value before, that make its checksum what is `stored` (a number of 64 bits), where just one bit of it
    was turned over: (`CHECKSUM`, the right checksum) for a bit of what is stored. None where it is another damage, or where more than
    one bit would do."""
    if computed is None:
        computed = adler32(data, 0, len(data))
    change = (stored ^ computed) & (1 << 64) - 1
    found = [(CHECKSUM, computed)] if change and not change & change - 1 else []
    if 0 <= stored <= 0xFFFFFFFF:
        found += _in_data(data, stored, computed)
    return found[0] if len(found) == 1 else None


def _in_data(data: Bytes, stored: int, computed: int) -> list[tuple[int, int]]:
    by = ((stored & 0xFFFF) - (computed & 0xFFFF)) % MOD
    by -= MOD if by > MOD // 2 else 0
    if abs(by) & abs(by) - 1 or not 0 < abs(by) < 256:
        return []
    # So many bytes are from there to the end, as a remainder.
    behind = ((stored >> 16) - (computed >> 16)) * pow(by, -1, MOD) % MOD or MOD
    places = range(len(data) - behind, -1, -MOD)
    return [
        (at, before)
        for at in places
        if 0 <= (before := int(data[at]) + by) < 256 and before ^ int(data[at]) == abs(by)
    ]
