"""Prefetching windows of one file gives the same frames for any frames and any disk errors."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logwright.codec import registry
from logwright.codec.fault import UnreadableError
from logwright.codec.frames.walk import Stretch, Walk
from logwright.codec.option import Options
from logwright.readers import readahead
from logwright.readers.prefetch import INLINE, Prefetcher
from logwright.readers.readahead import walk_ahead
from logwright.readers.source import MemorySource

CODEC: Any = registry.get("zookeeper.txnlog")
STEP = 4096


def log(sizes: list[int]) -> bytes:
    """A log of `setData` transactions with data of these sizes."""
    rows = [
        {"zxid": 1 + i, "type": "setData", "path": "/a", "data": bytes([i % 251]) * size, "version": i}
        for i, size in enumerate(sizes)
    ]
    table = pa.Table.from_pylist(rows)
    context = CODEC.context("log.1", Options(CODEC.options))
    return b"".join(bytes(chunk) for chunk in CODEC.encode(table, None, None, context))


class Disk(MemorySource):
    """A source with unreadable ranges that can shrink while it is read. Counts requests."""

    def __init__(self, data: bytes, bad: tuple[int, int] = (0, 0), cut: int | None = None) -> None:
        super().__init__(data)
        self.bad, self.cut, self.read = bad, cut, 0

    def pread(self, offset: int, length: int) -> Any:
        start, stop = self.bad
        if length and max(start, offset) < min(stop, offset + length):
            raise UnreadableError.of(start, stop - start, "it fails", self.path)
        data = super().pread(offset, length)
        if self.cut is not None:
            data = data[: max(0, self.cut - offset)]
        self.read += len(data)
        return data


def walk_result(source: Any, prefetcher: Prefetcher, **rest: Any) -> list[Any]:
    """Frames and joined faults of a walk, by file position."""
    frames: list[tuple[int, int, bytes]] = []
    rest_: list[Any] = []
    walk = Walk(source, CODEC, CODEC.context("log.1", Options(CODEC.options)), step=STEP, **rest)
    for part in walk_ahead(walk, prefetcher):
        if isinstance(part, Stretch):
            place, data = part.window.offset, part.window.data
            frames += [
                (place + int(start), place + int(end), data[start:end].tobytes())
                for start, end in zip(part.frames.start, part.frames.end, strict=True)
            ]
            rest_ += [*part.faults, part.damage]
        else:
            rest_ += [part.fault, part.tail]
    return [frames, [span for span in rest_ if span is not None], walk.size]


SIZES = st.lists(
    st.one_of(st.integers(0, 300), st.integers(0, 3000), st.sampled_from([4000, 9000, 40_000])),
    min_size=0,
    max_size=120,
)


@settings(deadline=None)
@given(
    sizes=SIZES,
    flips=st.lists(st.integers(0, 1 << 30), max_size=3),
    threads=st.sampled_from([2, 3]),
    large=st.booleans(),
)
def test_walk_is_the_same_with_threads(sizes: list[int], flips: list[int], threads: int, large: bool) -> None:
    data = bytearray(log([200] * 100 + sizes))
    for at in flips:
        data[at % len(data)] ^= 1 << at % 8
    limit = mock.patch.object(readahead, "_LARGE", STEP - large)
    with limit, Prefetcher(threads) as prefetcher:
        assert walk_result(MemorySource(data), prefetcher) == walk_result(MemorySource(data), INLINE)


@settings(deadline=None)
@given(sizes=SIZES, start=st.integers(0, 1 << 30), length=st.integers(1, 9000))
def test_walk_over_an_unreadable_range_is_the_same_with_threads(
    sizes: list[int], start: int, length: int
) -> None:
    data = log([200] * 100 + sizes)
    bad = (start % len(data), start % len(data) + length)
    with Prefetcher(2) as prefetcher:
        assert walk_result(Disk(data, bad), prefetcher) == walk_result(Disk(data, bad), INLINE)


@settings(deadline=None)
@given(sizes=SIZES, cut=st.integers(0, 1 << 30))
def test_file_that_became_shorter(sizes: list[int], cut: int) -> None:
    data = log([200] * 100 + sizes)
    with Prefetcher(2) as prefetcher:
        assert walk_result(Disk(data, cut=cut % len(data)), prefetcher) == walk_result(
            Disk(data, cut=cut % len(data)), INLINE
        )


@settings(deadline=None)
@given(sizes=SIZES, start=st.integers(0, 99), stop=st.integers(1, 1 << 30))
def test_range_of_a_file(sizes: list[int], start: int, stop: int) -> None:
    data = log([200] * 100 + sizes)
    starts = [frame[0] for frame in walk_result(MemorySource(data), INLINE)[0]]
    bounds = {"start": starts[start], "stop": starts[start] + stop % len(data)}
    with Prefetcher(2) as prefetcher:
        assert walk_result(MemorySource(data), prefetcher, **bounds) == walk_result(
            MemorySource(data), INLINE, **bounds
        )


@pytest.mark.parametrize("size", [10, 500, 1500, 3000])
def test_little_is_read_twice(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if most frames are longer than the initial overlap of the pieces: the overlap grows."""
    monkeypatch.setattr(readahead, "_OVERLAP", 64)
    data = log([size] * (400_000 // (size + 40)))
    disk = Disk(data)
    with Prefetcher(2, 8 * STEP) as prefetcher:
        assert len(walk_result(disk, prefetcher)[0]) == 1 + 400_000 // (size + 40)
    assert disk.read < len(data) * (1 + 3 * (size + 64) / STEP) + 32 * STEP


def test_no_thread_remains_after_an_early_end() -> None:
    source = MemorySource(log([200] * 1000))
    with Prefetcher(2) as prefetcher:
        walk = Walk(source, CODEC, CODEC.context("log.1", Options(CODEC.options)), step=STEP)
        each = walk_ahead(walk, prefetcher)
        next(each)
        each.close()
        assert not prefetcher._queues
        assert prefetcher._held == 0
    assert np.array_equal(source.pread(0, 4), np.frombuffer(b"ZKLG", np.uint8))
