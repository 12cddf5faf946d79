"""Reading ahead of who looks for frames: what is found is the same, whatever the frames are like and the disk does."""

from __future__ import annotations

from typing import Any

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
from logwright.readers.readahead import threaded
from logwright.readers.source import MemorySource

CODEC: Any = registry.get("zookeeper.txnlog")
STEP = 4096


def log(sizes: list[int]) -> bytes:
    """A log of `setData` transactions with so much data each."""
    rows = [
        {"zxid": 1 + i, "type": "setData", "path": "/a", "data": bytes([i % 251]) * size, "version": i}
        for i, size in enumerate(sizes)
    ]
    table = pa.Table.from_pylist(rows)
    context = CODEC.context("log.1", Options(CODEC.options))
    return b"".join(bytes(chunk) for chunk in CODEC.encode(table, None, None, context))


class Disk(MemorySource):
    """Some of it can't be read, or it is cut short, while it is read; what was asked for is counted."""

    def __init__(self, data: bytes, bad: tuple[int, int] = (0, 0), cut: int | None = None) -> None:
        super().__init__(data)
        self.bad, self.cut, self.read = bad, cut, 0

    def pread(self, offset: int, length: int) -> Any:
        start, stop = self.bad
        if length and max(start, offset) < min(stop, offset + length):
            raise UnreadableError.of(start, stop - start, "it fails", self.path)
        found = super().pread(offset, length)
        if self.cut is not None:
            found = found[: max(0, self.cut - offset)]
        self.read += len(found)
        return found


def found(source: Any, prefetcher: Prefetcher, **rest: Any) -> list[Any]:
    """What a walk finds, in terms of the file: frames and faults as they are joined."""
    frames: list[tuple[int, int, bytes]] = []
    rest_: list[Any] = []
    walk = Walk(source, CODEC, CODEC.context("log.1", Options(CODEC.options)), step=STEP, **rest)
    for one in threaded(walk, prefetcher):
        if isinstance(one, Stretch):
            place, data = one.window.offset, one.window.data
            frames += [
                (place + int(start), place + int(end), data[start:end].tobytes())
                for start, end in zip(one.frames.start, one.frames.end, strict=True)
            ]
            rest_ += [*one.faults, one.damage]
        else:
            rest_ += [one.fault, one.tail]
    return [frames, [one for one in rest_ if one is not None], walk.size]


SIZES = st.lists(
    st.one_of(st.integers(0, 300), st.integers(0, 3000), st.sampled_from([4000, 9000, 40_000])),
    min_size=0,
    max_size=120,
)


@settings(deadline=None)
@given(sizes=SIZES, flips=st.lists(st.integers(0, 1 << 30), max_size=3), threads=st.sampled_from([2, 3]))
def test_the_same_is_found(sizes: list[int], flips: list[int], threads: int) -> None:
    data = bytearray(log([200] * 100 + sizes))
    for at in flips:
        data[at % len(data)] ^= 1 << at % 8
    with Prefetcher(threads) as prefetcher:
        assert found(MemorySource(data), prefetcher) == found(MemorySource(data), INLINE)


@settings(deadline=None)
@given(sizes=SIZES, start=st.integers(0, 1 << 30), length=st.integers(1, 9000))
def test_where_the_disk_can_not_read(sizes: list[int], start: int, length: int) -> None:
    data = log([200] * 100 + sizes)
    bad = (start % len(data), start % len(data) + length)
    with Prefetcher(2) as prefetcher:
        assert found(Disk(data, bad), prefetcher) == found(Disk(data, bad), INLINE)


@settings(deadline=None)
@given(sizes=SIZES, cut=st.integers(0, 1 << 30))
def test_a_file_that_became_shorter(sizes: list[int], cut: int) -> None:
    data = log([200] * 100 + sizes)
    with Prefetcher(2) as prefetcher:
        assert found(Disk(data, cut=cut % len(data)), prefetcher) == found(
            Disk(data, cut=cut % len(data)), INLINE
        )


@settings(deadline=None)
@given(sizes=SIZES, start=st.integers(0, 99), stop=st.integers(1, 1 << 30))
def test_a_stretch_of_a_file(sizes: list[int], start: int, stop: int) -> None:
    data = log([200] * 100 + sizes)
    starts = [one[0] for one in found(MemorySource(data), INLINE)[0]]
    bounds = {"start": starts[start], "stop": starts[start] + stop % len(data)}
    with Prefetcher(2) as prefetcher:
        assert found(MemorySource(data), prefetcher, **bounds) == found(MemorySource(data), INLINE, **bounds)


@pytest.mark.parametrize("size", [10, 500, 1500, 3000])
def test_little_is_read_twice(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where most frames are longer than what pieces have in common at first: it grows with them."""
    monkeypatch.setattr(readahead, "_OVERLAP", 64)
    data = log([size] * (400_000 // (size + 40)))
    disk = Disk(data)
    with Prefetcher(2, 8 * STEP) as prefetcher:
        assert len(found(disk, prefetcher)[0]) == 1 + 400_000 // (size + 40)
    assert disk.read < len(data) * (1 + 3 * (size + 64) / STEP) + 32 * STEP


def test_nothing_is_left_behind_where_it_ends_early() -> None:
    source = MemorySource(log([200] * 1000))
    with Prefetcher(2) as prefetcher:
        walk = Walk(source, CODEC, CODEC.context("log.1", Options(CODEC.options)), step=STEP)
        each = threaded(walk, prefetcher)
        next(each)
        each.close()
        assert not prefetcher._queues
        assert prefetcher._held == 0
    assert np.array_equal(source.pread(0, 4), np.frombuffer(b"ZKLG", np.uint8))
