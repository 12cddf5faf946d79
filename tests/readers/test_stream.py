"""The stream over any codec: windows, modes, damage, splits. A fake format shows that it depends on no real one."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import fake_store as fake_stores
import numpy as np
import pyarrow as pa
import pytest
from fake_store import HEAD, ToyNote, frame, shuffled
from hypothesis import given
from hypothesis import strategies as st

from logwright.codec.fault import DamageError, Fault, Kind, Severity, UsageError
from logwright.codec.frames.walk import WINDOW, Hole, Stretch, Walk
from logwright.codec.option import Options
from logwright.codec.window import Bytes, Frames, Window
from logwright.readers.filter import understand
from logwright.readers.report_data import FileReport
from logwright.readers.source import MemorySource
from logwright.readers.split import cut, split
from logwright.readers.stream import RECORD_LIMIT, FileStream, Mode, output_schema

CODEC = fake_stores.FRAMES_CODEC


SMALL = 4096


def context(**hints: Any) -> Any:
    return CODEC.context("000.toy", Options(CODEC.options), directory="box", **hints)


def rows(
    data: bytes,
    mode: str = "FAILFAST",
    *,
    table: str = "rows",
    columns: Any = "id,text",
    report: FileReport | None = None,
    filter: Any = None,
    hints: dict[str, Any] | None = None,
    **rest: Any,
) -> pa.Table:
    """Return all rows of a file and fill the report."""
    chosen = CODEC.tables[table].select(columns)
    entry = FileReport("000.toy", CODEC.name) if report is None else report
    batches = FileStream(
        MemorySource(data, "000.toy"), CODEC, table, chosen, context=context(**(hints or {})), report=entry,
        mode=Mode.of(mode), filter=understand(filter, CODEC.tables[table]), **rest,
    )  # fmt: skip
    return pa.Table.from_batches(batches, output_schema(CODEC.tables[table], chosen, Mode.of(mode)))


def ids(data: bytes, mode: str = "DROPMALFORMED", **rest: Any) -> list[int]:
    return [id for id in rows(data, mode, **rest).column("id").to_pylist() if id is not None]


FRAMES = shuffled(120)


DATA = b"".join(FRAMES)


ALL = ids(DATA, "FAILFAST")


OWNER = {}
"""The frame of each id."""


for _i, _frame in enumerate(FRAMES):
    for _id in ids(_frame, "FAILFAST"):
        OWNER[_id] = _i


# Windows


def test_window_without_damage_is_decoded_at_once() -> None:
    bad = bytearray(DATA)
    for at in range(2000, len(bad), 3000):
        bad[at] ^= 0xFF
    each = rows(bytes(bad), "PERMISSIVE")
    table = rows(bytes(bad), "DROPMALFORMED")
    assert table["id"].to_pylist() == each["id"].drop_null().to_pylist()
    assert table["id"].num_chunks < each["id"].num_chunks // 2
    reports = [FileReport("x", "y") for _ in range(2)]
    for mode, report in zip(("PERMISSIVE", "DROPMALFORMED"), reports, strict=True):
        rows(bytes(bad), mode, report=report)
    assert [fault.offset for fault in reports[1].faults] == [fault.offset for fault in reports[0].faults]
    assert rows(b"", "DROPMALFORMED").num_rows == 0


@pytest.mark.parametrize("window", [SMALL, 5000, 1 << 20])
def test_any_window_size_gives_the_same_rows(window: int) -> None:
    assert ids(DATA, "FAILFAST", window=window) == ALL
    report = FileReport("x", "y")
    rows(DATA, report=report, window=window)
    assert (report.bytes, report.frames, report.rows, report.bytes_damaged) == (
        len(DATA),
        len(FRAMES),
        len(ALL),
        0,
    )


def test_frame_larger_than_the_window() -> None:
    big = frame(1000, *[b"x" * 200] * 500)
    data = frame(1, b"a") + big + frame(2000, b"b")
    assert ids(data, window=SMALL) == [1, *range(1000, 1500), 2000]


def test_empty_file_has_no_rows() -> None:
    report = FileReport("x", "y")
    assert ids(b"", "FAILFAST", report=report) == []
    assert report.bytes == 0


def test_batches_hold_at_most_one_window() -> None:
    batches = FileStream(
        MemorySource(DATA * 4),
        CODEC,
        "rows",
        ("id",),
        context=context(),
        report=FileReport("x", "y"),
        window=SMALL,
    )
    assert max(batch.num_rows for batch in batches) < 150


class Counted(MemorySource):
    """Counts the bytes read, in total and per request."""

    total = largest = 0

    def pread(self, offset: int, length: int) -> Bytes:
        data = super().pread(offset, length)
        self.total += len(data)
        self.largest = max(self.largest, len(data))
        return data


def walked(data: bytes, window: int = SMALL) -> tuple[Counted, list[Stretch | Hole]]:
    source = Counted(data)
    return source, list(Walk(source, CODEC, context(), step=window))


def test_each_byte_is_read_about_once() -> None:
    source, _ = walked(DATA * 10)
    assert source.total < 1.2 * len(DATA) * 10
    assert source.largest == SMALL


@pytest.mark.alike
@pytest.mark.parametrize("claim", [500, 3000, 100_000, 300_000])
def test_fake_headers_cost_few_reads(claim: int) -> None:
    """A file full of headers, each claiming a large part of the rest."""
    fake = HEAD.pack(b"TY", claim, 5, 0)
    data = frame(1, b"a") + fake * 20_000 + frame(9, b"b")
    source, counts = walked(data)
    assert source.total < 8 * len(data) + 20 * claim
    assert source.largest <= max(16 * WINDOW, 8 * claim)
    holes = [count for count in counts if isinstance(count, Hole)]
    assert [(hole.fault.offset, hole.fault.length) for hole in holes] == [(20, len(fake) * 20_000)]


def test_good_frames_between_fake_headers() -> None:
    parts = []
    for i in range(600):
        parts += [frame(i, b"%d" % i), HEAD.pack(b"TY", 2000 + i, 5, 0)]
    data = b"".join(parts)
    assert ids(data, window=SMALL) == list(range(600))
    source, _ = walked(data)
    assert source.total < 40 * len(data)


class Stuck(fake_stores.ToyFrames):
    """A codec that always asks for more than exists."""

    def scan(self, window: Window, at: int, context: Any, *, check: bool = True) -> Frames:
        none = np.empty(0, np.int64)
        return Frames(none, none, none, at, need=self.asks)

    asks = 0


@pytest.mark.parametrize("asks", [0, 1, 100, 10**6])
def test_codec_without_progress_ends(asks: int) -> None:
    codec = Stuck()
    codec.asks = asks
    assert not list(Walk(MemorySource(DATA), codec, context(), step=SMALL))
    assert not list(Walk(MemorySource(DATA), codec, context(), step=SMALL).starts()) or asks > SMALL


class Greedy(fake_stores.ToyFrames):
    """A codec whose resync always asks for more."""

    def resync(self, window: Window, at: int, context: Any) -> tuple[int, int]:
        return at, self.asks

    asks = 0


@pytest.mark.parametrize("asks", [1, 50, 10**6])
def test_codec_that_never_resyncs_ends(asks: int) -> None:
    codec = Greedy()
    codec.asks = asks
    holes = list(Walk(MemorySource(b"x" * 3000), codec, context(), step=SMALL))
    assert isinstance(holes[-1], Hole)
    assert holes[-1].fault.length == 3000


def test_file_that_becomes_shorter() -> None:
    class Shrinking(MemorySource):
        def pread(self, offset: int, length: int) -> Bytes:
            return super().pread(offset, length)[: max(0, 5000 - offset)]

    parts = list(Walk(Shrinking(DATA), CODEC, context(), step=SMALL))
    assert isinstance(parts[-1], Hole)
    assert parts[-1].fault.kind is Kind.TRUNCATED
    assert parts[-1].fault.offset + parts[-1].fault.length == 5000


# Modes


def broken(index: int, at: int = HEAD.size + 1) -> tuple[bytes, int, int]:
    """Return all frames with one flipped bit: bytes, position and length of the damaged frame."""
    frames = list(FRAMES)
    bad = bytearray(frames[index])
    bad[at] ^= 1
    frames[index] = bytes(bad)
    return b"".join(frames), sum(map(len, FRAMES[:index])), len(bad)


def without(*indices: int) -> list[int]:
    return [id for id in ALL if OWNER[id] not in indices]


def test_failfast_raises_after_the_rows_before() -> None:
    data, where, length = broken(60)
    report = FileReport("000.toy", "toy.frames")
    got: list[int] = []
    batches = FileStream(
        MemorySource(data, "000.toy"), CODEC, "rows", ("id",), context=context(), report=report, window=SMALL
    )
    with pytest.raises(DamageError) as caught:
        got.extend(id for batch in batches for id in batch.column("id").to_pylist())
    assert got == [id for id in ALL if OWNER[id] < 60]
    assert (caught.value.path, caught.value.offset) == ("000.toy", where)
    assert "PERMISSIVE" in str(caught.value)
    assert caught.value.fault is not None
    assert (report.faults_total, report.errors, report.bytes_damaged) == (1, 1, length)
    assert pickle.loads(pickle.dumps(caught.value)).offset == where


def test_permissive_gives_one_row_for_the_damage() -> None:
    data, where, length = broken(60)
    table = rows(data, "PERMISSIVE")
    assert table.column("id").to_pylist() == [
        *(id for id in ALL if OWNER[id] < 60), None, *(id for id in ALL if OWNER[id] > 60),
    ]  # fmt: skip
    (bad,) = [row for row in table.to_pylist() if row["_corrupt_record"] is not None]
    assert bad == {
        "id": None, "text": None, "_corrupt_record": data[where : where + length], "_corrupt_offset": where,
        "_corrupt_length": length,
    }  # fmt: skip
    assert table.schema.field("id").nullable


def test_dropmalformed_gives_the_other_rows() -> None:
    report = FileReport("x", "y")
    assert ids(broken(60)[0], report=report) == without(60)
    assert report.faults[0].lost == {"first_id": report_id(59) + 1, "last_id": report_id(61) - 1}
    assert report.rows == len(without(60))


def report_id(index: int) -> int:
    return int(HEAD.unpack(FRAMES[index][: HEAD.size])[2])


@pytest.mark.parametrize("index", [0, len(FRAMES) - 1])
def test_damage_in_the_first_and_the_last_frame(index: int) -> None:
    data, where, length = broken(index)
    report = FileReport("x", "y")
    assert ids(data, report=report) == without(index)
    (fault,) = report.faults
    assert (fault.offset, fault.length, fault.severity) == (where, length, Severity.ERROR)


def test_two_damaged_frames_are_one_region() -> None:
    first, where, length = broken(60)
    data = first[: where + length] + broken(61)[0][where + length :]
    report = FileReport("x", "y")
    assert ids(data, report=report) == without(60, 61)
    assert [(f.offset, f.length) for f in report.faults] == [(where, length + len(FRAMES[61]))]


def test_long_region_is_cut_in_its_row_only() -> None:
    data = FRAMES[0] + b"\1" * (3 * RECORD_LIMIT) + FRAMES[1]
    table = rows(data, "PERMISSIVE", window=SMALL)
    (bad,) = [row for row in table.to_pylist() if row["_corrupt_record"] is not None]
    assert bad["_corrupt_length"] == 3 * RECORD_LIMIT
    assert bad["_corrupt_record"] == b"\1" * RECORD_LIMIT


def test_rows_around_an_undecodable_payload_are_read() -> None:
    """The checksum is right, the content is not. Rows before and after it are returned."""
    bad = frame(500, b"x" * 255)
    data = frame(1, b"a", b"b") + bad + frame(3, b"c")
    assert rows(data, "PERMISSIVE").column("id").to_pylist() == [1, 2, None, 3]
    assert ids(data) == [1, 2, 3]
    report = FileReport("x", "y")
    with pytest.raises(DamageError, match="at byte 22: bad payload"):
        rows(data, report=report)
    assert (report.rows, report.bytes_damaged) == (2, len(bad))


def test_padding_and_torn_tail_are_not_errors() -> None:
    for tail, severity in (
        (b"\0" * 999, Severity.INFO),
        (FRAMES[3][:30], Severity.WARNING),
        (b"TY", Severity.WARNING),
    ):
        report = FileReport("x", "y")
        assert ids(DATA + tail, "FAILFAST", report=report, window=SMALL) == ALL
        (fault,) = report.faults
        assert (fault.offset, fault.length, fault.severity) == (len(DATA), len(tail), severity)
        assert report.errors == 0
        corrupt = rows(DATA + tail, "PERMISSIVE").column("_corrupt_length").drop_null().to_pylist()
        assert corrupt == ([] if severity is Severity.INFO else [len(tail)])


def test_torn_tail_followed_by_good_frames_is_an_error() -> None:
    """A length beyond the end looks like a torn tail, but good frames follow."""
    bad = HEAD.pack(b"TY", 1 << 20, 7, 0)
    with pytest.raises(DamageError):
        rows(FRAMES[0] + bad + FRAMES[1])
    report = FileReport("x", "y")
    assert ids(FRAMES[0] + bad + FRAMES[1], report=report) == [id for id in ALL if OWNER[id] < 2]
    assert report.faults[0].severity is Severity.ERROR


def test_torn_tail_of_a_file_that_is_not_the_last_is_an_error() -> None:
    with pytest.raises(DamageError):
        rows(DATA + b"TY", hints={"last": False})


def test_failfast_does_not_stop_at_a_warning() -> None:
    report = FileReport("x", "y")
    assert ids(frame(5, b"a") + frame(3, b"b"), "FAILFAST", report=report) == [5, 3]
    (fault,) = report.faults
    assert (fault.kind, fault.severity) == (Kind.ORDER, Severity.WARNING)
    assert report.bytes_damaged == 0


def test_scan_errors_raise_after_the_rows_before(monkeypatch: pytest.MonkeyPatch) -> None:
    scan = fake_stores.ToyFrames.scan

    def stricter(self: Any, window: Window, at: int, context: Any, *, check: bool = True) -> Frames:
        frames = scan(self, window, at, context, check=check)
        frames.faults = [dataclasses.replace(fault, severity=Severity.ERROR) for fault in frames.faults]
        return frames

    monkeypatch.setattr(fake_stores.ToyFrames, "scan", stricter)
    report = FileReport("x", "y")
    with pytest.raises(DamageError, match="bad order"):
        rows(frame(1, b"a") + frame(5, b"a") + frame(3, b"b"), report=report)
    assert report.rows == 2


def test_mode_names_have_any_case_and_misspelt_ones_are_refused() -> None:
    assert Mode.of("permissive") is Mode.PERMISSIVE
    with pytest.raises(UsageError, match="Did you mean 'PERMISSIVE'"):
        Mode.of("permisive")


# Columns, limits, options


def test_columns_in_the_requested_order() -> None:
    assert rows(DATA, columns="text,id").schema.names == ["text", "id"]
    assert rows(DATA, columns=["even"]).schema.names == ["even"]
    assert "position" not in rows(DATA, columns=None).schema.names
    assert rows(DATA, columns="*").schema.names[-1] == "position"


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("limit", [0, 1, 7, 10_000])
def test_limit_stops_the_stream(mode: str, limit: int) -> None:
    report = FileReport("x", "y")
    assert ids(DATA, mode, limit=limit, report=report) == ALL[:limit]
    assert report.rows == min(limit, len(ALL))


def test_limit_before_the_damage_raises_nothing() -> None:
    data, *_ = broken(60)
    before = sum(OWNER[id] < 60 for id in ALL)
    assert ids(data, "FAILFAST", limit=before) == ALL[:before]


def test_filter_reads_columns_that_are_not_requested() -> None:
    assert rows(DATA, columns="text", filter=[("even", "=", True)]).num_rows == sum(id % 2 == 0 for id in ALL)


def test_filter_keeps_the_rows_of_damage() -> None:
    table = rows(broken(60)[0], "PERMISSIVE", filter=[("id", "<", 3)])
    assert table.column("id").to_pylist() == [*(id for id in ALL if id < 3), None]


def test_filter_skips_complete_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    decode = fake_stores.ToyFrames.decode

    def counted(self: Any, window: Window, frames: Frames, *rest: Any) -> Iterator[Any]:
        decoded.append(len(frames))
        return decode(self, window, frames, *rest)

    monkeypatch.setattr(fake_stores.ToyFrames, "decode", counted)
    assert ids(DATA, "FAILFAST", filter=[("id", "==", ALL[50])]) == [ALL[50]]
    assert sum(decoded) < 30
    decoded.clear()
    assert ids(DATA, "FAILFAST", filter=[("id", ">", 10**6)]) == []
    assert not decoded


# The other tables


def test_frames_table_of_a_damaged_file_holds_all_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The frames and file tables together hold every byte of the file."""
    monkeypatch.setattr("logwright.readers.stream._RAW_LIMIT", 50)
    data, _, length = broken(60)
    data += b"TYxx\0\0\0"
    table = rows(data, "PERMISSIVE", table="frames", columns="position,size,raw")
    restored = b""
    for row in table.to_pylist():
        if row["position"] is not None:
            assert row["position"] == len(restored)
            restored += (
                row["raw"]
                if row["raw"] is not None
                else data[row["position"] : row["position"] + row["size"]]
            )
    (file,) = rows(data, "DROPMALFORMED", table="file", columns=None).to_pylist()
    assert restored + file["trailing"] + b"\0" * file["trailing_zeros"] == data
    assert file == {"size": len(data), "frames": len(FRAMES) - 1, "trailing": b"TYxx", "trailing_zeros": 3}
    corrupt = table.column("_corrupt_length").drop_null().to_pylist()
    assert corrupt == [length, 7]


@pytest.mark.parametrize(
    ("tail", "trailing", "zeros"),
    [
        (b"", b"", 0),
        (b"\0" * 70_000, b"", 70_000),
        (b"TY\0" + b"\0" * 9, b"TY", 10),
        (b"x" * 9, b"x" * 9, 0),
    ],
)
def test_trailing_bytes_of_a_file(
    tail: bytes, trailing: bytes, zeros: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logwright.readers.stream.WINDOW", 4096)
    (file,) = rows(DATA + tail, "PERMISSIVE", table="file", columns="trailing,trailing_zeros").to_pylist()[
        -1:
    ]
    assert (file["trailing"], file["trailing_zeros"]) == (trailing, zeros)


def test_only_the_first_split_reports_on_the_file() -> None:
    half = sum(map(len, FRAMES[:50]))
    assert rows(DATA, table="file", columns=None, start=half).num_rows == 0


# Splits


@pytest.mark.extended
@pytest.mark.parametrize("tail", [b"", b"\0" * 100, FRAMES[1][:25]])
def test_splits_of_every_size(tail: bytes) -> None:
    """All splits together give each row exactly once."""
    data = b"".join(FRAMES[:16]) + tail
    expected = ids(data)
    for size in range(1, len(data) + 2):
        stretches = split(MemorySource(data), CODEC, context(), size)
        assert [a for a, _ in stretches] == [0, *(b for _, b in stretches[:-1])]
        assert stretches[-1][1] == len(data)
        got = [id for start, stop in stretches for id in ids(data, start=start, stop=stop)]
        assert got == expected
        longest = max(map(len, FRAMES[:16]))
        assert all(b - a <= max(size, longest + len(tail)) for a, b in stretches)


@pytest.mark.parametrize("index", [0, 7, 15])
def test_splits_of_damaged_files(index: int) -> None:
    whole_data, *_ = broken(index, at=3)
    data = whole_data[: sum(map(len, FRAMES[:16]))]
    expected = [id for id in without(index) if OWNER[id] < 16]
    for size in range(50, len(data) + 2, 37):
        report = FileReport("x", "y")
        got = []
        for start, stop in split(MemorySource(data), CODEC, context(), size):
            got += ids(data, start=start, stop=stop, report=report)
        assert got == expected
        assert report.bytes == len(data)
        assert report.frames == 15
        assert report.faults_total == 1


@given(st.lists(st.integers(1, 200), min_size=1, max_size=60), st.integers(1, 500), st.integers(1, 7))
def test_splits_are_cut_by_size(lengths: list[int], size: int, group: int) -> None:
    starts = [0, *itertools.accumulate(lengths[:-1])]
    arrays = [np.array(starts[i : i + group], np.int64) for i in range(0, len(starts), group)]
    stretches = cut(arrays, sum(lengths), size)
    assert stretches[0][0] == 0
    assert stretches[-1][1] == sum(lengths)
    assert all(a < b for a, b in stretches)
    assert {a for a, _ in stretches} <= set(starts)
    assert all(b - a <= size or (a in starts and b - a in lengths) for a, b in stretches)


def test_planning_splits_skips_over_frames() -> None:
    big = [frame(i * 1000, *[b"x" * 200] * 900) for i in range(30)]
    source = Counted(b"".join(big))
    stretches = split(source, CODEC, context(), 2_000_000)
    assert len(stretches) == 3
    assert source.total < 0.2 * source.size + len(stretches) * len(big[-1])


@pytest.mark.parametrize("size", [7_000, 100_000])
def test_planning_splits_over_many_windows(size: int) -> None:
    data = b"".join(shuffled(6000, seed=2))
    source = Counted(data)
    stretches = split(source, CODEC, context(), size)
    assert [a for a, _ in stretches] == [0, *(b for _, b in stretches[:-1])]
    assert all(b - a <= size for a, b in stretches)
    assert source.total < 1.1 * len(data) + 2 * 4096 * len(stretches)
    starts = set(rows(data, columns="position").column("position").to_pylist())
    assert {a for a, _ in stretches} <= starts


def test_small_and_single_frame_files_are_one_split() -> None:
    assert split(MemorySource(DATA), CODEC, context(), len(DATA)) == [(0, len(DATA))]
    assert split(MemorySource(b"note:x"), ToyNote(), None, 1) == [(0, 6)]


# Any damage


@given(st.data())
def test_arbitrary_bytes_never_hang_crash_or_invent_rows(data: st.DataObject) -> None:
    """Whatever the damage, each returned row existed, and the report names what is missing."""
    frames = data.draw(st.lists(st.sampled_from(FRAMES[:20]), max_size=8, unique=True).map(sorted_frames))
    junk = st.one_of(
        st.binary(max_size=40), st.just(b"TY"), st.just(b"\0" * 30), st.just(HEAD.pack(b"TY", 50, 1, 2))
    )
    edited = bytearray()
    for original in frames:
        edited += data.draw(junk) + original
    edited += data.draw(junk)
    if edited and data.draw(st.booleans()):
        edited[data.draw(st.integers(0, len(edited) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    report = FileReport("x", "y")
    table = rows(bytes(edited), "PERMISSIVE", columns="id,text,position", report=report)
    known = {(row["id"], row["text"]) for original in frames for row in rows(original).to_pylist()}
    got = [row for row in table.to_pylist() if row["_corrupt_offset"] is None]
    assert {(row["id"], row["text"]) for row in got} <= known
    assert len({row["position"] for row in got}) <= report.frames
    covered = sum(fault.length for fault in report.faults if fault.kind is not Kind.ORDER)
    assert report.bytes == len(edited)
    assert covered <= len(edited)


def sorted_frames(frames: list[bytes]) -> list[bytes]:
    return sorted(frames, key=lambda frame: HEAD.unpack(frame[: HEAD.size])[2])


def test_fault_positions_can_be_shifted() -> None:
    assert Fault("c", 5, 1, Kind.MAGIC, "x").moved(3).offset == 8
