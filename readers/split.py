"""Cutting a file into stretches that tasks read independently: each frame, and so each row, belongs to exactly one.

Cuts are places where frames start, found by walking their lengths from the start of the file. They are not guessed from bytes
around an offset: a legal value may hold whole frames with right checksums. Checksums are not looked at, that would be
reading the file; only where the chain of lengths breaks, the walk goes on as a reader would.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from logwright.codec.base import Codec, Positions
from logwright.readers.source import Source
from logwright.readers.walk import Walk

_STEP = 512 << 10


def split(source: Source, codec: Codec, context: Any, max_bytes: int) -> list[tuple[int, int]]:
    """Stretches `[start, stop)` of at most `max_bytes`, or of one frame where that is larger, that cover the file."""
    if codec.whole or source.size <= max_bytes:
        return [(0, source.size)]
    walk = Walk(source, codec, context, check=False, step=_STEP)
    return cut(walk.starts(), source.size, max_bytes)


def cut(starts: Iterable[Positions], size: int, max_bytes: int) -> list[tuple[int, int]]:
    """The stretches, from where frames start, in order."""
    cuts, last = [0], 0
    for some in starts:
        while True:
            beyond = int(np.searchsorted(some, cuts[-1] + max_bytes, side="right"))
            if beyond:
                last = max(last, int(some[beyond - 1]))
            if beyond == len(some):
                break
            cuts.append(last if last > cuts[-1] else int(some[beyond]))
    if size - cuts[-1] > max_bytes and last > cuts[-1]:
        cuts.append(last)
    return list(zip(cuts, [*cuts[1:], size], strict=True))
