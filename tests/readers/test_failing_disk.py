"""Unreadable sectors are handled like damage: found with few failing reads, skipped and reported."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import fake_store as fake_stores
import kafka_log
import numpy as np
import pyarrow as pa
import pytest
from failing_disk import FailingDisk, FailingSource, disk, forget_failures, put
from fake_store import shuffled
from hypothesis import given
from hypothesis import strategies as st

import logwright as lw
from logwright.codec.fault import DamageError, Kind, Severity, UsageError
from logwright.codec.frames.walk import Hole, Walk, zero_filled
from logwright.codec.option import Options
from logwright.readers.report_data import FileReport
from logwright.readers.rescue import SECTOR, Regions
from logwright.readers.source import MemorySource
from logwright.readers.split import split
from logwright.readers.stream import FileStream, Mode

__all__ = ["disk"]

# Finding unreadable regions


def test_patched_regions_end_with_the_file() -> None:
    class Ending(FailingSource):
        def pread(self, offset: int, length: int) -> Any:
            return super().pread(offset, length)[: max(0, 700 - offset)]

    data, bad = zero_filled(Ending(bytes(4096), [(1024, 1536)]), 0, 4096)
    assert len(data) == 700
    assert not bad
    context = CODEC.context("000.toy", Options(CODEC.options), directory="box")
    parts = list(Walk(Ending(DATA[:4096], [(1024, 1536)]), CODEC, context))
    assert isinstance(parts[-1], Hole)
    assert parts[-1].fault.offset + parts[-1].fault.length == 700


# Streams


CODEC = fake_stores.FRAMES_CODEC


FRAMES = shuffled(150, seed=4)


DATA = b"".join(FRAMES)


STARTS = np.cumsum([0, *map(len, FRAMES)]).tolist()


def ids(source: Any, mode: str = "DROPMALFORMED", report: FileReport | None = None, **rest: Any) -> list[Any]:
    context = CODEC.context("000.toy", Options(CODEC.options), directory="box")
    batches = FileStream(
        source, CODEC, "rows", ("id",), context=context, report=report or FileReport("x", "y"),
        mode=Mode.of(mode), **rest,
    )  # fmt: skip
    return [row for batch in batches for row in batch.column("id").to_pylist()]


IDS = [ids(MemorySource(frame)) for frame in FRAMES]


sectors = st.sets(st.integers(0, len(DATA) // SECTOR), max_size=8)


def damaged_frames(bad: set[int]) -> tuple[list[tuple[int, int]], list[int], int]:
    """Return the ranges of bad sectors, the ids of the frames without a bad byte, and the byte count of the others."""
    places = [(span * SECTOR, min((span + 1) * SECTOR, len(DATA))) for span in bad]
    hit = [
        any(start < stop and end > begin for start, end in places)
        for begin, stop in itertools.pairwise(STARTS)
    ]
    good = [id for frame_ids, lost in zip(IDS, hit, strict=True) if not lost for id in frame_ids]
    return places, good, sum(len(frame) for frame, lost in zip(FRAMES, hit, strict=True) if lost)


@given(bad=sectors, window=st.sampled_from([4096, 6000, 1 << 20]))
def test_every_readable_frame_is_returned(bad: set[int], window: int) -> None:
    places, good, damaged = damaged_frames(bad)
    report = FileReport("x", "y")
    assert ids(FailingSource(DATA, places), report=report, window=window) == good
    assert report.bytes == len(DATA)
    assert report.bytes_damaged == damaged
    assert {fault.kind for fault in report.faults} <= {Kind.PAYLOAD}
    details = " ".join(fault.detail for fault in report.faults)
    if len(bad) <= 4:
        joined = Regions()
        for start, stop in places:
            joined.add(start, stop, "")
        for region in joined:
            assert (
                f"cannot read {region.stop - region.offset:,} bytes (Input/output error) at byte {region.offset}"
                in details
            )


@given(bad=sectors, window=st.sampled_from([4096, 1 << 20]))
def test_damaged_rows_cover_the_lost_bytes(bad: set[int], window: int) -> None:
    places, _, damaged = damaged_frames(bad)
    context = CODEC.context("000.toy", Options(CODEC.options), directory="box")
    source = FailingSource(DATA, places)
    batches = FileStream(
        source, CODEC, "frames", ("id", "raw"), context=context, report=FileReport("x", "y"),
        mode=Mode.PERMISSIVE, window=window,
    )  # fmt: skip
    rows = [row for batch in batches for row in batch.to_pylist()]
    lost = [row for row in rows if row["_corrupt_offset"] is not None]
    assert sum(row["_corrupt_length"] for row in lost) == damaged
    for row in lost:
        record, offset = row["_corrupt_record"], row["_corrupt_offset"]
        first = min(start for start, stop in places if stop > offset)
        # Zeros are not invented: the raw bytes end at the unreadable range.
        assert record == DATA[offset : max(first, offset)]
    raw = [len(row["raw"]) for row in rows if row["raw"] is not None]
    assert sum(raw) == damaged


@given(bad=sectors, size=st.integers(1, 9000))
def test_any_split_gives_each_row_once(bad: set[int], size: int) -> None:
    places, good, _ = damaged_frames(bad)
    source = FailingSource(DATA, places)
    context = CODEC.context("000.toy", Options(CODEC.options), directory="box")
    split_ids = []
    for start, stop in split(source, CODEC, context, size):
        split_ids += ids(source, start=start, stop=stop)
    assert split_ids == good


def test_split_skips_a_large_unreadable_frame() -> None:
    big = fake_stores.frame(1000, *[b"x" * 200] * 60)
    data = b"".join(FRAMES[:3]) + big + b"".join(fake_stores.frame(2000 + n, b"y") for n in range(40))
    start = len(b"".join(FRAMES[:3]))
    bad = (start + 6000) // SECTOR * SECTOR
    source = FailingSource(data, [(bad, bad + SECTOR)])
    context = CODEC.context("000.toy", Options(CODEC.options), directory="box")
    stretches = split(source, CODEC, context, 500)
    after = start + len(big)
    assert any(begin == after + len(fake_stores.frame(2000, b"y")) for begin, _ in stretches), (
        "its length is known, and the frame after the first good one may start a range"
    )
    split_ids = [id for begin, stop in stretches for id in ids(source, start=begin, stop=stop)]
    assert split_ids == [*itertools.chain(*IDS[:3]), *range(2000, 2040)] == ids(source)


def test_failfast_raises_the_first_error_with_its_position() -> None:
    places, _, _ = damaged_frames({9})
    good_ids: list[int] = []
    with pytest.raises(
        DamageError, match=r"cannot read 512 bytes \(Input/output error\) at byte 4608"
    ) as caught:
        good_ids += ids(FailingSource(DATA, places, "some.toy"), "FAILFAST")
    assert caught.value.path == "some.toy"
    assert caught.value.offset == max(start for start in STARTS if start <= 4608)


def test_damaged_frame_and_unreadable_range_are_both_reported() -> None:
    data = bytearray(DATA)
    at = STARTS[20]
    data[at + 30] ^= 1
    report = FileReport("x", "y")
    start = (STARTS[21] + 511) // 512 * 512
    good_ids = ids(FailingSource(bytes(data), [(start, start + 512)]), report=report)
    assert not set(good_ids) & set(IDS[20])
    text = "; ".join(fault.detail for fault in report.faults)
    assert "wrong crc" in text
    assert f"at byte {start}" in text


def test_many_unreadable_ranges_in_one_frame_are_one_fault() -> None:
    """Not all of them are named."""
    data = FRAMES[0] + fake_stores.frame(500, *[b"x" * 200] * 60)
    places = [(start, start + SECTOR) for start in range(1024, 9000, 1024)]
    report = FileReport("x", "y")
    assert ids(FailingSource(data, places), report=report) == IDS[0]
    assert len(report.faults) == 1
    assert "more such places" in report.faults[0].detail


def test_unreadable_end_of_a_file_is_damage() -> None:
    """Unknown bytes are neither padding nor a torn tail."""
    data = DATA + bytes(3000)
    start = -(-len(DATA) // 512) * 512
    report = FileReport("x", "y")
    source = FailingSource(data, [(start, len(data))])
    context = CODEC.context("000.toy", Options(CODEC.options), directory="box")
    batches = FileStream(source, CODEC, "file", ("trailing", "trailing_zeros"), context=context, report=report,
                     mode=Mode.PERMISSIVE)  # fmt: skip
    rows = [row for batch in batches for row in batch.to_pylist() if row["trailing_zeros"] is not None]
    assert rows[0]["trailing_zeros"] == 0
    assert report.errors == 1


# Files that are read in one window


def test_index_keeps_its_readable_entries(disk: FailingDisk, tmp_path: Path) -> None:
    entries = np.zeros(600, np.dtype([("offset", ">i4"), ("position", ">i4")]))
    entries["offset"], entries["position"] = range(1, 601), range(0, 6000, 10)
    file = put(tmp_path / f"{0:020d}.index", entries.tobytes() + bytes(2000))
    disk.bad[file.name] = [(1024, 1536), (4096, 4608)]
    frames = lw.scan(file, mode="DROPMALFORMED")
    offsets = frames.to_table()["offset"].to_pylist()
    assert offsets == [i for i in range(1, 601) if not (1024 < i * 8 <= 1536 or i > 512) or i > 576]
    faults = [
        (fault.offset, fault.length) for _, fault in frames.report.faults if fault.severity is Severity.ERROR
    ]
    assert faults == [(1024, 512), (4096, 512)]
    assert lw.scan(file, mode="PERMISSIVE").to_table().num_rows == len(offsets) + 2
    with pytest.raises(lw.DamageError, match=r"cannot read 512 bytes .* at byte 1024"):
        lw.read(file)
    assert not lw.verify(file).ok


def test_damage_after_an_unreadable_range_of_an_index_is_reported(disk: FailingDisk, tmp_path: Path) -> None:
    entries = np.zeros(300, np.dtype([("offset", ">i4"), ("position", ">i4")]))
    entries["offset"], entries["position"] = range(1, 301), range(0, 3000, 10)
    file = put(tmp_path / f"{0:020d}.index", entries.tobytes() + b"odd")
    disk.bad[file.name] = [(1024, 1536)]
    frames = lw.scan(file, mode="DROPMALFORMED")
    assert frames.to_table().num_rows == 300 - 64
    assert [(fault.offset, fault.length) for _, fault in frames.report.faults] == [(1024, 512), (2400, 3)]


def test_unreadable_text_file_is_lost_completely(disk: FailingDisk, tmp_path: Path) -> None:
    text = "0\n300\n" + "".join(f"{i} {i * 10}\n" for i in range(300))
    file = put(tmp_path / "leader-epoch-checkpoint", text.encode())
    assert lw.read(file).num_rows == 300
    forget_failures()
    disk.bad[file.name] = [(1024, 1536)]
    frames = lw.scan(file, mode="DROPMALFORMED")
    assert frames.to_table().num_rows == 0
    assert [(fault.offset, fault.length) for _, fault in frames.report.faults] == [(0, len(text))]


# Directories


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    place = tmp_path / "orders-0"
    rows = pa.table({"value": pa.array([b"v%05d" % i * 10 for i in range(2000)], pa.binary())})
    lw.write(rows, place, "kafka.partition", batch_size=2000, segment_bytes=60_000)
    return place


def offsets(path: Path, mode: str = "DROPMALFORMED", **options: Any) -> list[int]:
    return lw.scan(path, mode=mode, **options).to_table()["offset"].to_pylist()


def make_page_unreadable(disk: FailingDisk, partition: Path) -> tuple[str, list[int]]:
    """Make a page of the second log unreadable. Return the log's name and the lost offsets."""
    log = sorted(partition.glob("*.log"))[1]
    frames = lw.read(log, view="frames").to_pylist()
    forget_failures()
    disk.bad[log.name] = [(8192, 12288)]
    lost = [row for row in frames if row["position"] < 12288 and row["position"] + row["size"] > 8192]
    return log.name, [n for row in lost for n in range(row["base_offset"], row["last_offset"] + 1)]


@pytest.mark.parametrize("view", ["read_uncommitted", "read_committed", "log"])
def test_readable_batches_of_a_partition_on_a_failing_disk_are_returned(
    disk: FailingDisk, partition: Path, view: str
) -> None:
    name, lost = make_page_unreadable(disk, partition)
    assert offsets(partition, view=view) == [n for n in range(2000) if n not in lost]
    with pytest.raises(DamageError, match="cannot read 4,096 bytes") as caught:
        lw.read(partition, view=view)
    assert str(caught.value.path).endswith(name)
    assert disk.failures < 30


def test_verify_inspect_and_committed_reads_skip_unreadable_batches(
    disk: FailingDisk, partition: Path
) -> None:
    name, lost = make_page_unreadable(disk, partition)
    report = lw.verify(partition)
    assert not report.ok
    assert report.rows == 2000 - len(lost)
    (fault,) = [fault for file, fault in report.faults if file == name and fault.kind is Kind.PAYLOAD]
    assert "cannot read 4,096 bytes (Input/output error) at byte 8192" in fault.detail
    assert fault.lost["first_offset"] == lost[0]
    assert fault.lost["last_offset"] == lost[-1]
    assert lw.inspect(partition)["codec"] == "kafka.partition"
    shown = lw.inspect(partition / name)
    assert "cannot read" in shown["faults"][0]["detail"]


def test_unreadable_small_files_do_not_hide_records(disk: FailingDisk, partition: Path) -> None:
    for name in ("partition.metadata", "leader-epoch-checkpoint"):
        disk.bad[name] = [(0, 512)]
    above = put(partition.parent / "log-start-offset-checkpoint", b"0\n1\norders 0 7\n")
    assert offsets(partition, "FAILFAST") == list(range(7, 2000))
    forget_failures()
    disk.bad[above.name] = [(0, 512)]
    frames = lw.scan(partition)
    assert frames.to_table().num_rows == 2000
    assert "cannot read" in str([fault.detail for _, fault in frames.report.faults])
    report = lw.verify(partition)
    assert {"partition.metadata", "leader-epoch-checkpoint"} <= {file for file, _ in report.faults}


def test_batch_inside_a_value_is_not_treated_as_a_batch(disk: FailingDisk, tmp_path: Path) -> None:
    """The middle of a batch whose value holds a whole log is unreadable."""
    inner = b"".join(kafka_log.batch(i, [kafka_log.record(value=b"inner")]) for i in range(200))
    outer = [
        kafka_log.batch(0, [kafka_log.record(value=inner)]),
        kafka_log.batch(1, [kafka_log.record(value=b"last")]),
    ]
    file = put(tmp_path / kafka_log.NAME, b"".join(outer))
    disk.bad[file.name] = [(1024, 1536)]
    assert lw.scan(file, mode="DROPMALFORMED").to_table()["value"].to_pylist() == [b"last"]


def test_bad_sector_loses_only_the_batches_that_it_overlaps(disk: FailingDisk, tmp_path: Path) -> None:
    """In the header, in the records, or in both."""
    batches = [kafka_log.batch(n, [kafka_log.record(value=b"v" * (40 + 97 * n % 500))]) for n in range(16)]
    ends = np.cumsum([len(batch) for batch in batches])
    file = put(tmp_path / kafka_log.NAME, b"".join(batches))
    for at in range(0, file.stat().st_size, SECTOR):
        forget_failures()
        disk.bad[file.name] = [(at, at + SECTOR)]
        rows = lw.scan(file, mode="DROPMALFORMED").to_table()["offset"].to_pylist()
        hit = [n for n in range(16) if ends[n] > at and ends[n] - len(batches[n]) < at + SECTOR]
        assert rows == [n for n in range(16) if n not in hit]


def test_batch_right_before_an_unreadable_range_is_returned(disk: FailingDisk, tmp_path: Path) -> None:
    """After compaction offsets jump, so a scan checks the batch that follows."""
    batches = [kafka_log.batch(10 * n, [kafka_log.record(value=b"v" * 441)]) for n in range(6)]
    assert {len(batch) for batch in batches} == {512}
    file = put(tmp_path / kafka_log.NAME, b"".join(batches))
    for bad in range(6):
        forget_failures()
        disk.bad[file.name] = [(512 * bad, 512 * bad + 512)]
        frames = lw.scan(file, mode="DROPMALFORMED")
        assert frames.to_table()["offset"].to_pylist() == [10 * n for n in range(6) if n != bad]
        assert frames.report.bytes_damaged == 512
        assert "cannot read 512 bytes" in frames.report.faults[0][1].detail


# Copies made by ddrescue


def copied(partition: Path, name: str) -> None:
    """Return a copy with zeros in the unreadable ranges, and its ddrescue map."""
    data = bytearray((partition / name).read_bytes())
    data[8192:12288] = bytes(4096)
    (partition / name).write_bytes(data)
    rest = len(data) - 12288
    put(
        partition / f"{name}.map",
        b"# Mapfile. Created by GNU ddrescue version 1.27\n0x3000 + 1\n0 0x2000 +\n0x2000 0x1000 -\n0x3000 %d +\n"
        % rest,
    )


def test_ddrescue_map_marks_unreadable_regions_of_a_file(disk: FailingDisk, partition: Path) -> None:
    name, lost = make_page_unreadable(disk, partition)
    disk.bad.clear()
    copied(partition, name)
    for place in (partition, partition / f"{name}.map"):
        frames = lw.scan(partition / name, mode="DROPMALFORMED", ddrescue_map=str(place))
        assert not set(frames.to_table()["offset"].to_pylist()) & set(lost)
        assert "found a bad sector" in frames.report.faults[0][1].detail
    index = name.replace(".log", ".index")
    data = (partition / index).read_bytes()
    put(partition / f"{index}.map", b"0 + 1\n0 8 ?\n8 %d +\n" % (len(data) - 8))
    rows = lw.scan(partition / index, mode="DROPMALFORMED", ddrescue_map=str(partition)).to_table()
    assert rows.num_rows == len(data) // 8 - 1


def test_ddrescue_maps_mark_unreadable_regions_of_a_directory(
    disk: FailingDisk, partition: Path, tmp_path: Path
) -> None:
    name, lost = make_page_unreadable(disk, partition)
    disk.bad.clear()
    copied(partition, name)
    maps = tmp_path / "maps"
    maps.mkdir()
    (partition / f"{name}.map").rename(maps / f"{name}.map")
    assert offsets(partition, ddrescue_map=str(maps)) == [n for n in range(2000) if n not in lost]
    assert offsets(partition, view="read_committed", ddrescue_map=str(maps)) == [
        n for n in range(2000) if n not in lost
    ]
    assert "bad sector" in str(lw.verify(partition, ddrescue_map=str(maps)).to_dict())
    with pytest.raises(UsageError, match="a map file describes one file"):
        lw.read(partition, ddrescue_map=str(maps / f"{name}.map"))
    with pytest.raises(lw.NotFoundError, match=r"this directory has no partition\.metadata\.map"):
        lw.read(partition / "partition.metadata", ddrescue_map=str(maps))
    deep = tmp_path / "deep"
    (deep / "a" / "b" / "c").mkdir(parents=True)
    put(deep / "a" / "b" / f"{name}.map", b"")
    with pytest.raises(lw.NotFoundError, match=r"this directory has no NAME\.map"):
        lw.read(partition, ddrescue_map=str(deep))
    with pytest.raises(lw.NotFoundError, match="map file not found"):
        lw.read(partition / name, ddrescue_map=str(maps / "gone"))
    (maps / partition.name).mkdir()
    (maps / f"{name}.map").rename(maps / partition.name / f"{name}.map")
    assert offsets(partition, ddrescue_map=str(maps)) == [n for n in range(2000) if n not in lost]
    (maps / partition.name / f"{name}.map").write_text("0 + 1\n0 5 x\n")
    with pytest.raises(UsageError, match="line 2 of the map"):
        lw.read(partition, ddrescue_map=str(maps))


def test_unreadable_map_is_an_error(partition: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = next(iter(partition.glob("*.log")))
    place = put(tmp_path / "map", b"0 + 1\n" + b"# x\n" * 100)
    monkeypatch.setattr("logwright.readers.rescue._MAP_LIMIT", 100)
    with pytest.raises(UsageError, match="not a ddrescue map: larger than"):
        lw.read(log, ddrescue_map=str(place))
    place.unlink()
    place.symlink_to(place)
    with pytest.raises(UsageError, match="cannot read the map"):
        lw.read(log, ddrescue_map=str(place))


def test_read_options_include_the_rescue_options(partition: Path) -> None:
    assert len(offsets(partition, read_errors=5, read_retries=0)) == 2000
    with pytest.raises(UsageError, match=r"read\.errors"):
        lw.read(partition, read_errors=-1)
    with pytest.raises(UsageError, match=r"Did you mean 'ddrescue\.map'"):
        lw.read(partition, ddrescue_mapp="x")
