"""Compare two files frame by frame.

Equal bytes at the start and the end are found by comparing bytes. The frames between are matched by id if frames have one, otherwise by
content if there are few, otherwise one by one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bytes, Int64s
from logwright.codec.columns import numbers
from logwright.codec.frames.walk import Hole
from logwright.codec.window import Frames
from logwright.readers.compare import Disordered, Pairs, match
from logwright.readers.diff_fields import Opened
from logwright.readers.source import Source
from logwright.readers.stream import named

WINDOW = 4 << 20
_FEW = 4096
"""Up to this number of frames without an id are matched by content, wherever they are."""
FRAME, DAMAGED, BETWEEN = range(3)
"""Kinds of ranges: a frame, a damaged region, and neither (a footer, preallocated zeros)."""
KINDS = ("frame", "damaged region", "region outside frames")
_MIX = 0x1E3779B97F4A7C15
_SCHEMA = pa.schema([(name, pa.int64()) for name in ("id", "sub", "start", "stop", "digest", "kind")])


@dataclass(frozen=True)
class Same:
    """Number of equal bytes at the start and at the end of two files."""

    head: int
    tail: int
    identical: bool


def same_bytes(a: Source, b: Source, start: int = 0) -> Same:
    """Compare two files from a byte on. Raises `UnreadableError` if the disk cannot read a byte, since it is then unknown."""
    few = min(a.size, b.size)
    head = start
    while head < few:
        length = min(WINDOW, few - head)
        equal = _same(a.pread(head, length), b.pread(head, length))
        head += equal
        if equal < length:
            break
    if head == a.size == b.size:
        return Same(head, 0, True)
    tail = 0
    while tail < few - head:
        length = min(WINDOW, few - head - tail)
        mine = a.pread(a.size - tail - length, length)[::-1]
        other = b.pread(b.size - tail - length, length)[::-1]
        equal = _same(mine, other)
        tail += equal
        if equal < length:
            break
    return Same(head, tail, False)


def _same(a: Bytes, b: Bytes) -> int:
    size = min(len(a), len(b))
    if np.array_equal(a[:size], b[:size]):
        return size
    return int(np.argmax(a[:size] != b[:size]))


def pairs(a: Opened, b: Opened) -> Iterator[Pairs]:
    """Match all ranges of two files of one codec: columns `id`, `sub`, `start`, `stop` (bytes of the file), `digest` and `kind`. Matched
    ranges with equal digests have equal bytes."""
    same = same_bytes(a.source, b.source)
    if a.codec.ordered is not None:
        try:
            # Match twice: no difference may be reported before it is certain that all can be matched.
            for _ in match(_stretches(a, same, bare=True), _stretches(b, same, bare=True), ("id", "sub")):
                pass
        except Disordered:
            pass
        else:
            yield from match(_stretches(a, same), _stretches(b, same), ("id", "sub"))
            return
    yield from _by_place(_stretches(a, same), _stretches(b, same), same, a.source.size, b.source.size)


def _by_place(
    a: Iterable[pa.RecordBatch], b: Iterable[pa.RecordBatch], same: Same, size_a: int, size_b: int
) -> Iterator[Pairs]:
    left, right = _Cut(a, same, size_a), _Cut(b, same, size_b)
    done_a = done_b = 0

    def moved(matched: Iterator[Pairs]) -> Iterator[Pairs]:
        nonlocal done_a, done_b
        for part in matched:
            yield replace(part, first_a=done_a, first_b=done_b)
            done_a, done_b = done_a + len(part.a), done_b + len(part.b)

    yield from moved(match(left.head(), right.head()))
    mine, other = left.middle(), right.middle()
    if len(mine) <= _FEW and len(other) <= _FEW:
        yield from moved(iter([_aligned(mine, other)]))
    else:
        yield from moved(match([mine], [other]))
    yield from moved(match(left.tail(), right.tail()))


class _Cut:
    """The ranges of a file in three parts, requested in this order: within the equal start, in the middle, within the equal end."""

    def __init__(self, batches: Iterable[pa.RecordBatch], same: Same, size: int) -> None:
        self._batches = iter(batches)
        self._head, self._tail = same.head, size - same.tail
        self._left: pa.RecordBatch | None = None

    def _part(self, column: str, below: int) -> Iterator[pa.RecordBatch]:
        """Iterate up to the first range whose column exceeds `below`."""
        while True:
            batch = self._left if self._left is not None else next(self._batches, None)
            self._left = None
            if batch is None:
                return
            beyond = np.asarray(batch.column(column)) > below
            count = int(np.argmax(beyond)) if beyond.any() else len(batch)
            if count:
                yield batch.slice(0, count)
            if count < len(batch):
                self._left = batch.slice(count)
                return

    def head(self) -> Iterator[pa.RecordBatch]:
        return self._part("stop", self._head)

    def middle(self) -> pa.RecordBatch:
        batches = list(self._part("start", self._tail - 1))
        return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], _SCHEMA)

    def tail(self) -> Iterator[pa.RecordBatch]:
        return self._part("start", 1 << 62)


def _aligned(a: pa.RecordBatch, b: pa.RecordBatch) -> Pairs:
    """Match equal ranges, and those between them in order."""
    words: list[list[int]] = [batch.column("digest").to_pylist() for batch in (a, b)]
    ia: list[int] = []
    ib: list[int] = []
    for _, i, i_end, j, j_end in difflib.SequenceMatcher(
        None, words[0], words[1], autojunk=False
    ).get_opcodes():
        both = min(i_end - i, j_end - j)
        ia += [*range(i, i_end), *[-1] * (j_end - j - both)]
        ib += [*range(j, j + both), *[-1] * (i_end - i - both), *range(j + both, j_end)]
    return Pairs(a, b, np.array(ia, np.int64), np.array(ib, np.int64), 0, 0)


def _stretches(file: Opened, same: Same, *, bare: bool = False) -> Iterator[pa.RecordBatch]:
    """Iterate over all ranges of a file. `bare`: only the ids are filled in."""
    size = file.source.size
    at, last, sub = 0, -1, 0
    with named(file.source):
        for step in file.walk():
            if isinstance(step, Hole):
                stop = step.fault.offset + step.fault.length
                sub += 1
                yield _one(file, last, sub, at, stop, DAMAGED)
                at = stop
                continue
            frames, base = step.frames, step.window.offset
            if not len(frames):
                continue
            ids = _ids(file, frames)
            starts, stops = frames.start + base, frames.end + base
            for low, high in _runs(starts, stops):
                if starts[low] > at:
                    sub += 1
                    yield _one(file, last, sub, at, int(starts[low]), BETWEEN)
                digest = np.zeros(high - low, np.int64)
                if not bare:
                    digest = _digests(step.window.data, base, starts[low:high], stops[low:high], same, size)
                none = np.zeros(high - low, np.int64)
                mine = none if ids is None else ids[low:high]
                columns = mine, none, starts[low:high], stops[low:high], digest, none + FRAME
                yield pa.RecordBatch.from_arrays(
                    [numbers(pa.int64(), column) for column in columns], schema=_SCHEMA
                )
                at = int(stops[high - 1])
                last, sub = int(mine[-1]), 0
    if at < size:
        yield _one(file, last, sub + 1, at, size, BETWEEN)


def _runs(starts: Int64s, stops: Int64s) -> Iterator[tuple[int, int]]:
    """Iterate over groups of adjacent frames."""
    gaps = np.flatnonzero(starts[1:] != stops[:-1]) + 1
    edges = [0, *gaps.tolist(), len(starts)]
    yield from pairwise(edges)


def _ids(file: Opened, frames: Frames) -> Int64s | None:
    if file.codec.ordered is None:
        return None
    low, _ = file.codec.frame_bounds(frames, file.codec.ordered)
    return None if low is None else np.asarray(low, np.int64)


def _digests(data: Bytes, base: int, starts: Int64s, stops: Int64s, same: Same, size: int) -> Int64s:
    """Return digests: equal for equal bytes, and different otherwise with near certainty. Within the equal start or end the position is
    enough."""
    tail = (starts >= size - same.tail) & (stops > same.head)
    out: Int64s = (np.where(tail, starts - size, starts) + (stops - starts) * _MIX) * 2
    for i in np.flatnonzero((stops > same.head) & ~tail).tolist():
        out[i] = hash(data[int(starts[i]) - base : int(stops[i]) - base].tobytes()) | 1
    return out


def _one(file: Opened, last: int, sub: int, start: int, stop: int, kind: int) -> pa.RecordBatch:
    digest = 0
    for at in range(start, stop, WINDOW):
        digest = hash((digest, file.source.pread(at, min(WINDOW, stop - at)).tobytes())) | 1
    row = [np.array([value]) for value in (last, sub, start, stop, digest, kind)]
    return pa.RecordBatch.from_arrays(
        [numbers(pa.int64(), value_array) for value_array in row], schema=_SCHEMA
    )
