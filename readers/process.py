"""Settings of processes that belong to this package: the command line and Spark workers. The library never changes settings of its host
process."""

from __future__ import annotations

import functools
import sys
from importlib.abc import MetaPathFinder

import numpy as np

_LARGEST_KEPT = (32 << 20) - (64 << 10)
"""Just below `DEFAULT_MMAP_THRESHOLD_MAX` of glibc."""


@functools.cache
def keep_freed_memory() -> None:
    """Let the C library keep up to 64 MB of freed array memory for the next arrays.

    By default glibc returns freed blocks above 128 KiB to the system, and touching each page of the next array is a page fault, which takes
    longer than decoding into the array. glibc raises this limit when a block of the largest size that it manages itself is freed
    (`M_MMAP_THRESHOLD` in mallopt(3)). Other C libraries are not affected.
    """
    np.empty(_LARGEST_KEPT, np.uint8)


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ImportError("the command line does not use pandas")


def leave_out_pandas() -> None:
    """Keep PyArrow from importing pandas, if it is installed, to recognise its values. That takes longer than most commands."""
    sys.meta_path.insert(0, _NoPandas())
