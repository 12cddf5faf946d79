"""Buffers that the kernel fills quickly."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_LINE = 64
"""Bytes of a line of the cache."""


def aligned(size: int) -> npt.NDArray[np.uint8]:
    """So many bytes to be filled, from the start of a line of the cache on.

    The C library gives large arrays 16 bytes behind the start of a page. What the kernel copies there from the start of another page,
    as it does for files, takes some processors twice as long (`rep movsb` of AMD's Zen 3 and 4).
    """
    raw = np.empty(size + _LINE - 1, np.uint8)
    start = -raw.__array_interface__["data"][0] % _LINE
    return raw[start : start + size]
