"""Buffers that are quick to fill."""

from __future__ import annotations

import sys
from collections import deque
from contextlib import suppress

import numpy as np

from logwright.codec.arrays import Bytes

_LINE = 64
"""The size of a cache line in bytes."""
_LARGE = 1 << 18
"""The size in bytes from which on buffers are reused. The C library gives the memory of large ones back to the operating system, which
has to clear each page before it gives it out again."""
_KEPT = 64 << 20
"""The most bytes that are kept for reuse."""

_kept: deque[Bytes] = deque()


def aligned(size: int) -> Bytes:
    """Return an uninitialised buffer of `size` bytes that starts at a cache line.

    It may have the memory of an earlier buffer that nothing refers to any more: neither an array, nor an Arrow buffer, nor a `memoryview`.

    The C library places large arrays 16 bytes after the start of a page. Copies by the operating system to such an address,
    as for file reads, take twice as long on some processors (`rep movsb` of AMD's Zen 3 and 4).
    """
    if size < _LARGE:
        return _after_line(np.empty(size + _LINE - 1, np.uint8), size)
    for _ in range(len(_kept)):
        try:
            memory = _kept.popleft()  # so that no other thread takes it
        except IndexError:
            break
        if size <= len(memory) - _LINE <= 2 * size and sys.getrefcount(memory) == _UNUSED:
            out = _after_line(memory, size)
            _kept.append(memory)
            return out
        _kept.append(memory)
    # Sizes differ from call to call, so there is some room for a larger one.
    memory = np.empty(size + size // 8 + _LINE, np.uint8)
    out = _after_line(memory, size)
    _kept.append(memory)
    while sum(map(len, tuple(_kept))) > _KEPT:
        with suppress(IndexError):
            _kept.popleft()
    return out


def _after_line(memory: Bytes, size: int) -> Bytes:
    start = -memory.__array_interface__["data"][0] % _LINE
    return memory[start : start + size]


def _references() -> int:
    """Return what `sys.getrefcount` says of an array that only a local variable refers to."""
    memory = np.empty(0, np.uint8)
    return sys.getrefcount(memory)


_UNUSED = _references()
