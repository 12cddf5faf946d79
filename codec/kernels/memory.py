"""Buffers that the operating system fills quickly."""

from __future__ import annotations

import numpy as np

from logwright.codec.arrays import Bytes

_LINE = 64
"""The size of a cache line in bytes."""


def aligned(size: int) -> Bytes:
    """Return an uninitialised buffer of `size` bytes that starts at a cache line.

    The C library places large arrays 16 bytes after the start of a page. Copies by the operating system to such an address,
    as for file reads, take twice as long on some processors (`rep movsb` of AMD's Zen 3 and 4).
    """
    raw = np.empty(size + _LINE - 1, np.uint8)
    start = -raw.__array_interface__["data"][0] % _LINE
    return raw[start : start + size]
