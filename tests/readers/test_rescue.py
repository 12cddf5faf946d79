"""Rescue reads: bad regions are found with few failing reads, remembered, and exchanged with ddrescue maps."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from failing_disk import FailingDisk, disk, put
from hypothesis import given
from hypothesis import strategies as st

from logwright.codec.fault import StorageError, UnreadableError, UsageError
from logwright.codec.frames.walk import zero_filled
from logwright.readers.rescue import MEDIUM, SECTOR, Memory, Regions, Rescue, Rescuer, parse_map
from logwright.readers.source import open_source

__all__ = ["disk"]

# Finding unreadable regions


class Drive:
    """A file with bad sectors. Counts failing reads."""

    def __init__(self, size: int, bad: Any, partial: bool = True) -> None:
        self.data = np.random.default_rng(size).integers(1, 256, size, np.uint8).tobytes()
        self.bad, self.partial, self.failed = sorted(bad), partial, 0

    def read(self, view: memoryview, offset: int) -> int:
        stop = offset + len(view)
        hit = [span for span in self.bad if span * SECTOR < stop and (span + 1) * SECTOR > offset]
        if hit and not (self.partial and hit[0] * SECTOR > offset):
            self.failed += 1
            raise OSError(errno.EIO, "Input/output error")
        if hit:
            stop = hit[0] * SECTOR
        data = self.data[offset:stop]
        view[: len(data)] = data
        return len(data)

    def read_all(self, rescue: Rescue, window: int) -> tuple[bytearray, list[tuple[int, int]]]:
        """Return the readable bytes, zeros for the others, and the unreadable regions."""
        rescuer = Rescuer("drive", len(self.data), self.read, Memory(), rescue)
        out, at, regions = bytearray(len(self.data)), 0, []
        while at < len(self.data):
            length = min(window, len(self.data) - at)
            try:
                out[at : at + length] = rescuer.pread(at, length).tobytes()
                at += length
            except UnreadableError as error:
                if error.start > at:
                    got = rescuer.pread(at, error.start - at).tobytes()
                    out[at : error.start] = got
                regions.append((error.start, error.stop))
                at = error.stop
        return out, regions


@given(
    bad=st.sets(st.integers(0, 60), max_size=12),
    size=st.integers(1, 60 * SECTOR),
    window=st.sampled_from([700, SECTOR, 5000, 1 << 20]),
    partial=st.booleans(),
)
def test_all_readable_bytes_are_read(bad: set[int], size: int, window: int, partial: bool) -> None:
    drive = Drive(size, [span for span in bad if span * SECTOR < size], partial)
    out, regions = drive.read_all(Rescue(), window)
    known = bytearray(size)
    for start, stop in regions:
        known[start:stop] = b"\1" * (stop - start)
    for sector in range(-(-size // SECTOR)):
        place = slice(sector * SECTOR, min((sector + 1) * SECTOR, size))
        if sector in drive.bad:
            assert all(known[place]), f"sector {sector} is bad and was given out"
        else:
            assert not any(known[place]), f"sector {sector} is good and was given up"
            assert out[place] == drive.data[place]


@pytest.mark.parametrize("partial", [True, False])
def test_region_of_gigabytes_costs_few_failing_reads(partial: bool) -> None:
    size, start, stop = 1 << 40, (5 << 30) // SECTOR, (700 << 30) // SECTOR

    failed = 0

    def read(view: memoryview, offset: int) -> int:
        nonlocal failed
        if offset < stop * SECTOR and offset + len(view) > start * SECTOR:
            if partial and offset < start * SECTOR:
                return start * SECTOR - offset
            failed += 1
            raise OSError(errno.EIO, "bad")
        return len(view)

    rescuer = Rescuer("drive", size, read, Memory(), Rescue())
    with pytest.raises(UnreadableError) as caught:
        rescuer.pread((5 << 30) - (1 << 20), 4 << 20)
    assert caught.value.start == start * SECTOR
    assert caught.value.stop == stop * SECTOR
    assert failed < 150
    with pytest.raises(UnreadableError):
        rescuer.pread(400 << 30, 4 << 20)
    assert len(rescuer.pread(stop * SECTOR, 4096)) == 4096
    assert failed < 150


@pytest.mark.parametrize("errors", [0, 1, 30, 200])
@pytest.mark.parametrize("partial", [True, False])
def test_number_of_failing_reads_is_bounded(errors: int, partial: bool) -> None:
    """Every second page is bad, as on an almost dead disk."""
    size = 1 << 22
    drive = Drive(size, [page * 8 + at for page in range(0, size // 4096, 2) for at in range(8)], partial)
    out, regions = drive.read_all(Rescue(errors=errors), 1 << 16)
    assert drive.failed <= errors + 40
    assert sum(stop - start for start, stop in regions) >= size // 2
    out_of_data = [
        out[i : i + SECTOR] not in (drive.data[i : i + SECTOR], bytes(SECTOR)) for i in range(0, size, SECTOR)
    ]
    assert not any(out_of_data)


def test_completely_failing_disk_ends() -> None:
    drive = Drive(1 << 20, range((1 << 20) // SECTOR))
    out, regions = drive.read_all(Rescue(), 4096)
    assert regions == [(0, 1 << 20)]
    assert not any(out)
    assert drive.failed < 150


def test_readable_ranges_within_a_bad_region_are_found() -> None:
    """If the growing steps hit bad sectors only, the bytes between them are searched."""
    drive = Drive(200 * SECTOR, [0, 1, 2, 4, 8, 16, 32, 64, 20, 26, 29, 40, 41, 60, 100])
    out, regions = drive.read_all(Rescue(), 1 << 20)
    given_up = {at // SECTOR for start, stop in regions for at in range(start, stop, SECTOR)}
    assert given_up == set(drive.bad)
    assert all(
        out[i * SECTOR : (i + 1) * SECTOR] == drive.data[i * SECTOR : (i + 1) * SECTOR]
        for i in range(200)
        if i not in given_up
    )


def test_file_may_end_while_it_is_read_in_pieces() -> None:
    def read(view: memoryview, offset: int) -> int:
        if len(view) > 2 * SECTOR:
            raise OSError(errno.EIO, "only little at a time")
        return max(0, min(len(view), 3000 - offset))

    assert len(Rescuer("x", 8192, read, Memory(), Rescue()).pread(0, 8192)) == 3000


def test_vanishing_errors_are_retried(disk: FailingDisk, tmp_path: Path) -> None:
    file = put(tmp_path / "some", bytes(range(256)) * 64)
    disk.bad["some"] = [(4096, 4608)]
    disk.heals = 1
    with open_source(str(file)) as source:
        assert source.pread(0, 1 << 20).tobytes() == file.read_bytes()
    assert disk.failures == 1
    disk.hits.clear()
    disk.heals = 2
    with open_source(str(file)) as source:
        assert source.pread(0, 1 << 20).tobytes() == file.read_bytes()


def test_no_retry_if_retries_are_off(disk: FailingDisk, tmp_path: Path) -> None:
    file = put(tmp_path / "some", bytes(1024))
    disk.bad["some"], disk.heals = [(0, 512)], 1
    with open_source(str(file), rescue=Rescue(errors=0, retries=0)) as source, pytest.raises(UnreadableError):
        source.pread(0, 10)
    assert disk.failures == 1


def test_known_regions_are_not_read_again(disk: FailingDisk, tmp_path: Path) -> None:
    file = put(tmp_path / "some", bytes(1 << 16))
    disk.bad["some"] = [(4096, 8192)]
    for _ in range(5):
        with open_source(str(file)) as source, pytest.raises(UnreadableError) as caught:
            source.pread(0, 1 << 16)
        assert (caught.value.start, caught.value.stop) == (4096, 8192)
    failures = disk.failures
    assert failures < 20
    file.write_bytes(bytes(1 << 17))  # Another file by now.
    with open_source(str(file)) as source, pytest.raises(UnreadableError):
        source.pread(0, 1 << 16)
    assert disk.failures > failures


def test_known_unreadable_region_is_read_anew_after_a_time(
    disk: FailingDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put(tmp_path / "some", bytes(1 << 16))
    disk.bad["some"] = [(4096, 8192)]
    with open_source(str(file)) as source, pytest.raises(UnreadableError):
        source.pread(0, 1 << 16)
    disk.bad.clear()
    monkeypatch.setattr("logwright.readers.rescue._FORGET", -1.0)
    with open_source(str(file)) as source:
        assert len(source.pread(0, 1 << 16)) == 1 << 16


@pytest.mark.parametrize("code", sorted(MEDIUM))
def test_every_medium_error_is_rescued(disk: FailingDisk, tmp_path: Path, code: int) -> None:
    file = put(tmp_path / "some", bytes(2048))
    disk.bad["some"], disk.code = [(512, 1024)], code
    with open_source(str(file)) as source:
        data, bad = zero_filled(source, 0, 2048)
    assert [(span.start, span.length) for span in bad] == [(512, 512)]
    assert len(data) == 2048


def test_other_errors_are_raised(disk: FailingDisk, tmp_path: Path) -> None:
    file = put(tmp_path / "some", bytes(2048))
    disk.bad["some"], disk.code = [(512, 1024)], errno.ESTALE
    with open_source(str(file)) as source, pytest.raises(StorageError, match="read error") as caught:
        source.pread(0, 2048)
    assert not isinstance(caught.value, UnreadableError)
    assert disk.failures == 1


def test_file_may_end_within_a_retried_read(disk: FailingDisk, tmp_path: Path) -> None:
    file = put(tmp_path / "some", bytes(8192))
    disk.bad["some"] = [(4096, 4608)]
    with open_source(str(file)) as source:
        with open(file, "r+b") as cut:
            cut.truncate(2000)
        data, bad = zero_filled(source, 0, 8192)
    assert len(data) == 4096 or not bad


# Regions


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 12), st.sampled_from("ab")), max_size=12))
def test_regions_stay_sorted_and_disjoint(added: list[tuple[int, int, str]]) -> None:
    regions, plain = Regions(), [""] * 70
    for offset, length, why in added:
        regions.add(offset, offset + length, why)
        for i in range(offset, offset + length):
            plain[i] = plain[i] or why
    listed = [""] * 70
    for region in regions:
        assert region.offset < region.stop
        assert not any(listed[region.offset : region.stop])
        listed[region.offset : region.stop] = [region.why] * (region.stop - region.offset)
    assert listed == plain
    for offset in range(60):
        first = regions.first(offset, offset + 5)
        marked = [i for i in range(offset, offset + 5) if plain[i]]
        assert (first is None) == (not marked)
        if first is not None:
            assert max(first.offset, offset) == marked[0]


# Maps of ddrescue


MAP = """# Mapfile. Created by GNU ddrescue version 1.28
# Command line: ddrescue -d /dev/sdb image image.map
# current_pos  current_status  current_pass
0x00000600     +               1
#      pos        size  status
0x00000000  0x00000400  +
0x00000400  0x00000200  -   # bad
0x00000600  0x00000A00  +
0x00001000  0x00000200  *
0x00001200  01000       /
0x00001400  512         ?
"""


def test_ddrescue_map_is_parsed() -> None:
    regions = [(region.offset, region.stop, region.why.split()[-2:]) for region in parse_map(MAP, 0x1800)]
    assert regions == [
        (0x400, 0x600, ["bad", "sector"]),
        (0x1000, 0x1200, ["trim", "it"]),
        (0x1200, 0x1400, ["scrape", "it"]),
        (0x1400, 0x1600, ["try", "it"]),
        (0x1600, 0x1800, ["ddrescue", "map"]),
    ]


def test_ddrescue_map_of_another_size() -> None:
    old = "0x200 ?\n0x200 0x200 +\n"
    assert [(region.offset, region.stop) for region in parse_map(old, 0x600)] == [(0, 0x200), (0x400, 0x600)]
    assert [(region.offset, region.stop) for region in parse_map("0 + 1\n", 10)] == [(0, 10)]
    assert [(region.offset, region.stop) for region in parse_map("0 + 1\n0 64 +\n64 64 -\n", 64)] == []
    assert [(region.offset, region.stop) for region in parse_map("0 + 1\n0 0 +\n", 0)] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it has only comments"),
        ("# only\n", "it has only comments"),
        ("hello world\n", "line 1 of the map: expected a number, found 'hello'"),
        ("0 X 1\n", "line 1 of the map: expected a position, one of"),
        ("0 + 1 2\n", "line 1 of the map"),
        ("0 + 1\n0 10\n", "line 2 of the map: expected a position, a size and a status"),
        ("0 + 1\n0 10 F\n", "line 2 of the map: expected a status, one of .* found 'F'"),
        ("0 + 1\n\n0 10 +\n12 5 -\n", "line 4 of the map: expected the block at 10"),
        ("0 + 1\n0 10 +\n5 5 -\n", "line 3 of the map: expected the block at 10"),
        ("0 + 1\n0 09 +\n", "line 2 of the map: expected a number, found '09'"),
        ("0 + 1\n-5 9 +\n", "line 2 of the map: expected a number from 0"),
        (
            "0 + 1\n0 200 +\n",
            "the map belongs to another file: line 2 lists bytes up to 200, but the file has 100",
        ),
    ],
)
def test_invalid_ddrescue_map_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_map(text, 100)
