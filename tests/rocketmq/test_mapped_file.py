"""A file that a simulated start changes: its content, and the memory that it takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_directory import MemoryDirectory

from logwright.codec.rocketmq.startup.mapped_file import MappedFile
from logwright.codec.store.listing import Entry
from logwright.codec.store.overlay import Overlay

SIZE = 10_000
NAME = "index/00000000000000000001"
writes = st.lists(st.tuples(st.integers(0, SIZE - 1), st.binary(min_size=1, max_size=5000)), max_size=6)


@given(st.integers(0, SIZE + 3000), writes, writes)
def test_changed_pages_are_read_back_and_flushed(
    stored: int, before: list[tuple[int, bytes]], after: list[tuple[int, bytes]]
) -> None:
    data = bytes(range(1, 256)) * 60
    overlay = Overlay(MemoryDirectory({NAME: data[:stored]}, "store"))
    file = MappedFile(overlay, NAME, 0, SIZE)
    expected = bytearray(data[:stored])
    for part in (before, after):
        for position, text in part:
            text = text[: SIZE - position]
            file.write(position, text)
            expected[:] = expected.ljust(SIZE, b"\0")
            expected[position : position + len(text)] = text
            assert file.read(position // 2, 6000) == expected[:SIZE][position // 2 :][:6000]
        file.flush()
        if part:
            assert overlay.read(NAME)[: len(expected)] == expected[: overlay.size(NAME)]
    assert file.read() == expected[:SIZE]


def test_writing_the_same_bytes_leaves_the_file_unchanged() -> None:
    overlay = Overlay(MemoryDirectory({NAME: bytes(SIZE)}, "store"))
    file = MappedFile(overlay, NAME, 0, SIZE)
    file.write(5000, bytes(10))
    file.flush()
    assert not overlay.rewritten


class LargeDirectory:
    """A directory with one file of zeros."""

    name = "store"
    size = 400 << 20

    def entries(self) -> Sequence[Entry]:
        return [Entry(NAME, self.size)]

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        return bytes(min(self.size - offset, self.size if length is None else length))

    def parent(self) -> None:
        return None


@pytest.mark.parametrize("created", [False, True])
def test_memory_is_that_of_the_changed_pages(created: bool) -> None:
    overlay = Overlay(LargeDirectory())
    name = "index/00000000000000000002" if created else NAME
    tracemalloc.start()
    try:
        if created:
            overlay.create(name, LargeDirectory.size)
        file = MappedFile(overlay, name, 0, LargeDirectory.size)
        for i in range(50):
            file.write(i * (8 << 20), b"entry")
        file.flush()
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert overlay.read(name, 8 << 20, 6) == b"entry\0"
    assert overlay.size(name) == LargeDirectory.size
