"""Settings of a process that is our own: the command line, a worker of Spark. The library never changes those of its host."""

from __future__ import annotations

import functools

import numpy as np

_LARGEST_KEPT = (32 << 20) - (64 << 10)
"""A little less than `DEFAULT_MMAP_THRESHOLD_MAX` of glibc."""


@functools.cache
def keep_freed_memory() -> None:
    """Have the C library keep up to 64 MB of the memory of freed arrays for the arrays that come next.

    By default glibc returns freed blocks above 128 KiB to the system, and the first touch of each page of the next array is
    a page fault. That takes longer than decoding into the array. glibc raises its limit when a block of the largest size that
    it manages itself is freed (`M_MMAP_THRESHOLD` in mallopt(3)). Other C libraries are not affected.
    """
    np.empty(_LARGEST_KEPT, np.uint8)
