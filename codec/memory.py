"""Memory that is used again and again: what a window or a portion of rows takes, the next one takes too."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

_LARGEST_KEPT = (32 << 20) - (64 << 10)
"""A little less than `DEFAULT_MMAP_THRESHOLD_MAX` of glibc."""


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


@functools.cache
def keep_memory() -> None:
    """Have the C library keep the memory of arrays that are freed, up to 64 MB, for those made next.

    By default glibc gives what is larger than 128 KiB back to the system at once, and each page of the next array is a fault: that
    takes longer than decoding what is put there. It changes its mind when an array of its own largest size is freed
    (`M_MMAP_THRESHOLD` in mallopt(3)), which costs nothing, as no page of it is touched. Elsewhere it does no harm.
    """
    np.empty(_LARGEST_KEPT, np.uint8)
