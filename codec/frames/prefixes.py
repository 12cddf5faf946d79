"""Checksums of the prefixes of a window, from which the checksum of any range in it follows.

Heads that each claim the rest of a file would have the same bytes summed again and again. With prefixes each byte is summed once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from logwright.codec.arrays import Bytes, Int64s
from logwright.codec.frames.specification import NO_ALGORITHM, Algorithm, FrameSpec, named_kernel

Sum = Callable[[Bytes, Int64s, Int64s, int, int], int]

STEP = 1024
"""Bytes between two checksums of prefixes."""
DIRECT = 4 * STEP
"""Spans up to this size are summed directly."""
BUDGET = 8
"""Rules may read each byte of a window this many times on average. Then long candidates are judged by their fields and by the next frames."""


def algorithms(spec: FrameSpec) -> list[Algorithm]:
    """Return the algorithms of the checksums, each once."""
    return list(dict.fromkeys(checksum.algorithm for checksum in spec.checksums)) or [NO_ALGORITHM]


def algorithm_of(spec: FrameSpec, index: int = 0) -> Algorithm:
    """Return the algorithm of a checksum of the specification."""
    return spec.checksums[index].algorithm if index < len(spec.checksums) else NO_ALGORITHM


@cache
def range_sum(spec: FrameSpec, index: int = 0) -> Sum:
    """Return the kernel `sum(buf, known, filled, start, end)` of a checksum: that of `buf[start:end]`, of long spans from those of
    prefixes."""
    algorithm = algorithm_of(spec, index)
    checksum, update, between = algorithm.of, algorithm.update, algorithm.between
    every = algorithms(spec)
    # The second algorithm has the second half of `known`, and a separate count in `filled`.
    second = 1 if algorithm in every[1:] else 0
    counted = 2 * second

    def summed(buf: Bytes, known: Int64s, filled: Int64s, start: int, end: int) -> int:
        if end - start <= DIRECT:
            return checksum(buf, start, end)
        base = len(known) // 2 if second else 0
        upto = end // STEP + 1
        k = filled[counted]
        while k < upto:
            known[base + k] = update(known[base + k - 1], buf, (k - 1) * STEP, k * STEP)
            k += 1
        filled[counted] = max(filled[counted], upto)
        before = update(known[base + start // STEP], buf, start // STEP * STEP, start)
        upto_end = update(known[base + end // STEP], buf, end // STEP * STEP, end)
        return between(before, upto_end, end - start)

    name = f"sum{index or ''}"
    sum_kernel: Sum = named_kernel("const u1[], i8[], i8[], i8, i8", spec, name, summed)  # type: ignore[assignment]
    return sum_kernel


@dataclass
class Prefixes:
    """Checksums of prefixes of one window, kept from one search to the next."""

    data: Bytes
    known: Int64s
    filled: Int64s
    """The number of known checksums, the number of bytes of candidates that rules have read, which `BUDGET` bounds, and the number of
    known checksums of the second algorithm."""
    sum_of: Sum

    @classmethod
    def of(cls, spec: FrameSpec, data: Bytes) -> Prefixes:
        every, count = algorithms(spec), len(data) // STEP + 2
        known = np.empty(len(every) * count, np.int64)
        known[::count] = [algorithm.empty for algorithm in every]
        return cls(data, known, np.array([1, 0, 1], np.int64), range_sum(spec))

    def sum(self, start: int, end: int) -> int:
        """Return the checksum of `data[start:end]`."""
        return int(self.sum_of(self.data, self.known, self.filled, start, end))


def prefixes_of(data: Bytes, kept: Prefixes | None) -> Prefixes | None:
    """Return the prefixes kept from a search, if it was in this window."""
    return kept if kept is not None and kept.data is data else None
