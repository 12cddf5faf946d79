"""Large buffers are reused as soon as nothing refers to their memory, and never before."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from logwright.codec.kernels import memory
from logwright.codec.kernels.memory import aligned

LARGE = memory._LARGE


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_kept", deque())


def address(array: npt.NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.mark.parametrize("size", [1, 63, 64, 65, LARGE - 1, LARGE, LARGE + 1, 3 * LARGE + 7])
def test_buffer_has_its_size_and_starts_at_a_cache_line(size: int) -> None:
    for _ in range(3):
        buffer = aligned(size)
        assert (len(buffer), address(buffer) % 64, buffer.flags.writeable) == (size, 0, True)
        buffer[:] = 255


@pytest.mark.parametrize("size", [LARGE + LARGE // 4, 2 * LARGE, 2 * LARGE + LARGE // 8])
def test_memory_of_a_dropped_buffer_is_reused_for_one_of_a_similar_size(size: int) -> None:
    first = aligned(2 * LARGE)
    place = address(first)
    del first
    assert address(aligned(size)) == place


@pytest.mark.parametrize("size", [LARGE - 1, LARGE // 2, 3 * LARGE])
def test_memory_is_not_reused_for_a_buffer_of_another_size(size: int) -> None:
    first = aligned(2 * LARGE)
    place = address(first)
    del first
    assert address(aligned(size)) != place


@pytest.mark.parametrize(
    "keep",
    [
        lambda buffer: buffer,
        lambda buffer: buffer[5:6],
        lambda buffer: buffer[:4096].view(np.int64)[3:],
        lambda buffer: buffer[:4096].reshape(64, 64).T,
        lambda buffer: memoryview(buffer)[10:],
        lambda buffer: buffer[100:].data,
        lambda buffer: np.frombuffer(buffer.data, np.int32, 8),
        lambda buffer: pa.py_buffer(buffer[1:]),
        lambda buffer: pa.py_buffer(buffer).slice(7, 9),
        lambda buffer: pa.Array.from_buffers(pa.uint8(), 9, [None, pa.py_buffer(buffer)]).slice(3, 2),
        lambda buffer: pa.table({"a": pa.Array.from_buffers(pa.uint8(), 9, [None, pa.py_buffer(buffer)])}),
        lambda buffer: [np.asarray(pa.Array.from_buffers(pa.uint8(), 9, [None, pa.py_buffer(buffer)]))],
    ],
)
def test_memory_is_not_reused_while_anything_refers_to_it(keep: Callable[[Any], Any]) -> None:
    first = aligned(2 * LARGE)
    place = address(first)
    kept = keep(first)
    del first
    others = [aligned(2 * LARGE) for _ in range(3)]
    assert place not in map(address, others)
    del kept
    assert place in [address(aligned(2 * LARGE)) for _ in range(5)]


def test_kept_memory_is_bounded() -> None:
    buffers = [aligned(LARGE * (1 + count % 9)) for count in range(300)]
    assert sum(map(len, memory._kept)) <= memory._KEPT
    assert len({address(buffer) for buffer in buffers}) == 300
    aligned(memory._KEPT + 1)
    assert not memory._kept


def test_threads_never_get_the_same_memory_at_a_time() -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        held: deque[tuple[npt.NDArray[np.uint8], int]] = deque()
        for count in range(400):
            mark = (number * 61 + count) % 256
            buffer = aligned(int(rng.integers(LARGE, 2 * LARGE)))
            buffer[::4096] = mark
            held.append((buffer, mark))
            del buffer
            if len(held) > 4:
                oldest, mark = held.popleft()
                if (oldest[::4096] != mark).any():
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
