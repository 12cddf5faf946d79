"""Checksums of the prefixes of a window, from which the checksum of any range in it follows.

Heads that each claim the rest of a file would have the same bytes summed again and again. With prefixes each byte is summed once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from logwright.codec.frames.specification import NO_ALGORITHM, Algorithm, FrameSpec, named_kernel
from logwright.codec.kernels.intrinsics import Bytes

Int64s = npt.NDArray[np.int64]
Sum = Callable[[Bytes, Int64s, Int64s, int, int], int]

STEP = 1024
"""Bytes between two checksums of prefixes."""
DIRECT = 4 * STEP
"""Spans up to this size are summed directly."""
BUDGET = 8
"""Rules may read this number of times the bytes of a window. Then long candidates are judged by their fields and by the frames behind them."""


def algorithm_of(spec: FrameSpec) -> Algorithm:
    return spec.checksums[0].algorithm if spec.checksums else NO_ALGORITHM


@cache
def range_sum(spec: FrameSpec) -> Sum:
    """Return the kernel `sum(buf, known, filled, start, end)`: the checksum of `buf[start:end]`, of long spans from those of prefixes."""
    algorithm = algorithm_of(spec)
    checksum, update, between = algorithm.of, algorithm.update, algorithm.between

    def summed(buf: Bytes, known: Int64s, filled: Int64s, start: int, end: int) -> int:
        if end - start <= DIRECT:
            return checksum(buf, start, end)
        upto = end // STEP + 1
        k = filled[0]
        while k < upto:
            known[k] = update(known[k - 1], buf, (k - 1) * STEP, k * STEP)
            k += 1
        filled[0] = max(filled[0], upto)
        first = update(known[start // STEP], buf, start // STEP * STEP, start)
        second = update(known[end // STEP], buf, end // STEP * STEP, end)
        return between(first, second, end - start)

    sum_kernel: Sum = named_kernel("const u1[], i8[], i8[], i8, i8", spec, "sum", summed)  # type: ignore[assignment]
    return sum_kernel


@dataclass
class Prefixes:
    """Checksums of prefixes of one window, kept from one search to the next."""

    data: Bytes
    known: Int64s
    filled: Int64s
    """The number of known checksums, and the number of bytes of candidates that rules have read, which `BUDGET` bounds."""
    sum_of: Sum

    @classmethod
    def of(cls, spec: FrameSpec, data: Bytes) -> Prefixes:
        known = np.empty(len(data) // STEP + 2, np.int64)
        known[0] = algorithm_of(spec).empty
        return cls(data, known, np.array([1, 0], np.int64), range_sum(spec))

    def sum(self, start: int, end: int) -> int:
        """Return the checksum of `data[start:end]`."""
        return int(self.sum_of(self.data, self.known, self.filled, start, end))


def prefixes_of(data: Bytes, kept: Prefixes | None) -> Prefixes | None:
    """Return the prefixes kept from a search, if it was in this window."""
    return kept if kept is not None and kept.data is data else None
