"""Memory that is used again and again: what a window or a portion of rows takes, the next one takes too."""

from __future__ import annotations

import functools

import numpy as np

_LARGEST_KEPT = (32 << 20) - (64 << 10)
"""A little less than `DEFAULT_MMAP_THRESHOLD_MAX` of glibc."""


@functools.cache
def keep_memory() -> None:
    """Have the C library keep the memory of arrays that are freed, up to 64 MB, for those made next.

    By default glibc gives what is larger than 128 KiB back to the system at once, and each page of the next array is a fault: that
    takes longer than decoding what is put there. It changes its mind when an array of its own largest size is freed
    (`M_MMAP_THRESHOLD` in mallopt(3)), which costs nothing, as no page of it is touched. Elsewhere it does no harm.
    """
    np.empty(_LARGEST_KEPT, np.uint8)
