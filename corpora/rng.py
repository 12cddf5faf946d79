"""Random numbers that are the same in every version of Python and NumPy: SplitMix64 on 64-bit integers.

Word `i` of a stream is a mix of its key and of `i` (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014),
so that any stretch of it can be had at once, and in any order. Distributions of `random` and `numpy.random` change between
versions; here are only integers and choices by multiplication.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from logwright.codec.arrays import Int64s

T = TypeVar("T")

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST = 31


def _mix(word: int) -> int:
    for shift, factor in _MIX:
        word = (word ^ word >> shift) * factor & _MASK
    return word ^ word >> _LAST


class Rng:
    """A stream of random words. `names` select independent streams of one seed: `Rng(7, "keys")`.

    The vectorised methods take a stretch of the stream and change nothing; the scalar ones go through it one by one.
    """

    def __init__(self, seed: int, *names: str) -> None:
        key = _mix(seed & _MASK)
        for name in names:
            for byte in name.encode():
                key = _mix(key ^ byte)
            key = _mix(key + _GAMMA & _MASK)
        self._seed, self._names = seed, names
        self._key, self._at = key, 0

    def stream(self, *names: str) -> Rng:
        """Return an independent stream of the same seed."""
        return Rng(self._seed, *self._names, *names)

    # Vectorised

    def words(self, start: int, count: int) -> npt.NDArray[np.uint64]:
        """Return words `start` to `start + count` of the stream."""
        first = self._key + (start + 1) * _GAMMA & _MASK
        out = np.arange(count, dtype=np.uint64) * np.uint64(_GAMMA) + np.uint64(first)
        for shift, factor in _MIX:
            out ^= out >> np.uint64(shift)
            out *= np.uint64(factor)
        return out ^ out >> np.uint64(_LAST)

    def numbers(self, start: int, count: int, below: int) -> Int64s:
        """Return numbers in [0, `below`), from these words of the stream. `below` is at most 2**32."""
        high = self.words(start, count) >> np.uint64(32)
        return (high * np.uint64(below) >> np.uint64(32)).astype(np.int64)

    # One by one

    def word(self) -> int:
        self._at += 1
        return _mix(self._key + self._at * _GAMMA & _MASK)

    def below(self, bound: int) -> int:
        """Return a number in [0, `bound`). `bound` is at most 2**32."""
        return (self.word() >> 32) * bound >> 32

    def between(self, low: int, high: int) -> int:
        """Return a number in [`low`, `high`]."""
        return low + self.below(high - low + 1)

    def choice(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def bytes(self, count: int) -> bytes:
        words = self.words(self._at, -(-count // 8))
        self._at += len(words)
        return words.astype("<u8").tobytes()[:count]


WORDS = (
    "anchor basalt cobalt drift ember fjord garnet harbor indigo juniper kelp lantern meadow nimbus orchard pebble quartz "
    "ripple saffron timber umber violet willow xenon yarrow zephyr"
)


def text(rng: Rng, size: int) -> bytes:
    """Return `size` bytes of English words, determined by the state of `rng`."""
    words, out = WORDS.split(), bytearray()
    while len(out) < size:
        out += rng.choice(words).encode() + b" "
    return bytes(out[:size])
