"""Walking over a file of a database: past damage, past unreadable ranges, and while it shrinks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from leveldb_records import batch, record, to_block_end, written
from memory_directory import MemoryDirectory

from logwright.codec.fault import Fault, Kind, Severity, UnreadableError
from logwright.codec.frames.walk import WINDOW, Hole, ListedFile, Stretch, Walk, zero_filled
from logwright.codec.leveldb.formats.log import codec as log
from logwright.codec.leveldb.formats.records.layout import BLOCK, FIRST, FULL, MIDDLE
from logwright.codec.leveldb.formats.table import codec as table
from logwright.codec.option import Options
from logwright.codec.window import Frames, Window
from logwright.roundtrip.specimen import Specimen

NAME = "000007.log"


class Disk(MemoryDirectory):
    """A file with unreadable ranges. A driver that prefetches may report a later one first."""

    def __init__(self, data: bytes, *bad: tuple[int, int], last_first: bool = False) -> None:
        super().__init__({NAME: data})
        self.bad, self.last_first = bad, last_first

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        stop = len(self.files[name]) if length is None else offset + length
        hit = [span for span in self.bad if span[0] < stop and offset < span[1]]
        if hit:
            start, end = hit[-1 if self.last_first else 0]
            raise UnreadableError.of(max(start, offset), end - max(start, offset), "EIO", name)
        return super().read(name, offset, length)


DATA = bytes(range(1, 101))


@pytest.mark.parametrize("last_first", [False, True])
@pytest.mark.parametrize("bad", [[], [(0, 5)], [(20, 30)], [(20, 30), (30, 31), (60, 100)], [(0, 100)]])
def test_unreadable_bytes_are_zeros(bad: list[tuple[int, int]], last_first: bool) -> None:
    read = ListedFile(Disk(DATA, *bad, last_first=last_first), NAME, len(DATA))
    expected = bytearray(DATA)
    for start, stop in bad:
        expected[start:stop] = bytes(stop - start)
    assert read(0, 100).tobytes() == bytes(expected)
    assert read(10, 40).tobytes() == bytes(expected[10:50])
    assert read(90, 40).tobytes() == bytes(expected[90:])
    assert read.unreadable == bool(bad)
    assert [span.start for span in zero_filled(read, 0, 100)[1]] == [start for start, _ in bad]


def test_file_shorter_than_its_listed_size() -> None:
    """Missing bytes are not data."""
    assert ListedFile(Disk(DATA), NAME, 200)(90, 100).tobytes() == DATA[90:]
    data = ListedFile(Disk(DATA, (20, 30)), NAME, 200)(0, 200).tobytes()
    assert data == DATA[:20] + bytes(10) + DATA[30:]


def walk_parts(file: ListedFile, codec: Any = log.CODEC, **context_options: Any) -> list[Stretch | Hole]:
    return list(Walk(file, codec, codec.context(file.name, Options(codec.options)), **context_options))


def test_hole_longer_than_the_window_after_damage() -> None:
    """The rest of a long record that began is no start of another: the search must continue."""
    head = record(FIRST, b"x" * to_block_end(0))
    chain = head + record(MIDDLE, b"x" * to_block_end(0)) * 40
    data = chain + written([batch(5, (b"a", b"1"))], len(chain))
    for step in (4 << 20, BLOCK):
        _, hole, stretch = walk_parts(ListedFile(MemoryDirectory({NAME: data}), NAME, len(data)), step=step)
        assert isinstance(hole, Hole)
        assert (hole.fault.offset, hole.fault.length) == (0, len(chain))
        assert "partial record without end" in hole.fault.detail
        assert isinstance(stretch, Stretch)
        assert stretch.window.offset + int(stretch.frames.start[0]) == len(chain)


def test_unreadable_bytes_are_reported_in_the_hole() -> None:
    data = written([batch(n, (b"k", b"v" * 50)) for n in range(1, 9)])
    read = ListedFile(Disk(data, (100, 120)), NAME, len(data))
    (hole,) = [part for part in walk_parts(read) if isinstance(part, Hole)]
    assert "the disk cannot read 20 bytes" in hole.fault.detail
    assert hole.fault.severity is Severity.ERROR


def test_table_that_shrinks_while_it_is_read() -> None:
    rows = [{"key": b"%03d" % n, "value": b"v" * 30, "sequence": n + 1} for n in range(40)]
    empty = Specimen.of(b"", "leveldb.table", "000005.ldb", compression="none", block_size=100)
    data = empty.encode(pa.Table.from_pylist(rows))

    class Shrinking(MemoryDirectory):
        """Its blocks were listed while it was complete."""

        asked = 0

        def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
            self.asked += 1
            rows_read = super().read(name, offset, length)
            return (
                rows_read
                if offset + len(rows_read) == len(data) and self.asked < 6
                else rows_read[: max(0, 700 - offset)]
            )

    parts = walk_parts(ListedFile(Shrinking({"000005.ldb": data}), "000005.ldb", len(data)), table.CODEC)
    for part in parts:
        if isinstance(part, Stretch):
            assert part.window.offset + int(part.frames.end.max(initial=0)) <= len(data)


# Requests of a codec


class Asking:
    """A codec whose scans and searches return prepared answers."""

    name = "asking"
    single_frame = scans_empty = False
    window = WINDOW

    def __init__(self, scans: Sequence[Frames] = (), searches: Sequence[tuple[int, int]] = ()) -> None:
        self.scans: Iterator[Frames] = iter(scans)
        self.searches = iter(searches)
        self.asked: list[tuple[int, int, int]] = []

    def prepare(self, read: Any, size: int, context: Any) -> None:
        pass

    def scan(self, window: Window, at: int, context: Any, *, check: bool = True) -> Frames:
        self.asked.append((window.offset, len(window.data), at))
        return next(self.scans)

    def resync(self, window: Window, at: int, context: Any) -> tuple[int, int]:
        self.asked.append((window.offset, len(window.data), at))
        return next(self.searches)

    def loss_between(self, around: Any, context: Any) -> tuple[None, dict[str, Any]]:
        return None, {}


def frames(*ends: int, stop: int, need: int = 0, damage: Fault | None = None) -> Frames:
    starts = np.array([0, *ends[:-1]][: len(ends)], np.int64)
    return Frames(starts, np.array(ends, np.int64), np.zeros(len(ends)), stop, need, damage)


SIZE = 1000


def resume_positions(damage: int, *searches: tuple[int, int]) -> tuple[int, list[int]]:
    """Return where a walk resumes after damage at a byte, and where each search began."""
    fault = Fault("asking", damage, 1, Kind.LENGTH, "damaged")
    codec: Any = Asking([frames(stop=damage, damage=fault), frames(stop=SIZE)], searches)
    _, *_, hole = Walk(ListedFile(MemoryDirectory({NAME: bytes(SIZE)}), NAME, SIZE), codec, None)
    assert isinstance(hole, Hole)
    return hole.fault.offset + hole.fault.length, [at for _, _, at in codec.asked[1 : 1 + len(searches)]]


def test_candidate_beyond_the_file_or_the_window_is_no_frame() -> None:
    # Each time the search continues one byte behind the candidate.
    assert resume_positions(0, (5, 5000), (6, 10), (40, 0)) == (40, [1, 6, 7])
    assert resume_positions(0, (-1, 0)) == (SIZE, [1])
    assert resume_positions(SIZE - 1) == (SIZE, [])
    assert resume_positions(0, (999, 7)) == (SIZE, [1])


def test_rest_of_a_file_is_scanned_once_more() -> None:
    """A footer is checked by itself."""
    file = ListedFile(MemoryDirectory({NAME: bytes(100)}), NAME, 100)
    codec: Any = Asking([frames(50, stop=52, need=48), frames(stop=52, need=48)])
    (stretch,) = Walk(file, codec, None)
    assert isinstance(stretch, Stretch)
    assert codec.asked == [(0, 100, 0), (0, 100, 52)]


def test_hole_up_to_the_end_keeps_its_severity() -> None:
    torn = written([batch(1, (b"a", b"1"))]) + record(FULL, b"abc")[:-1]
    _, hole = walk_parts(ListedFile(MemoryDirectory({NAME: torn}), NAME, len(torn)))
    assert isinstance(hole, Hole)
    assert (hole.fault.kind, hole.fault.severity) == (Kind.TRUNCATED, Severity.WARNING)
    behind = bytes(9) + record(FULL, batch(5, (b"z", b"9")))
    _, hole, _ = walk_parts(ListedFile(MemoryDirectory({NAME: behind}), NAME, len(behind)))
    assert isinstance(hole, Hole)
    assert hole.fault.severity is Severity.ERROR
