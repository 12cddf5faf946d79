"""Files of fixed-width entries: any bytes are read or refused, round-trip, and are described correctly."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logwright.codec.arrays import Bools
from logwright.codec.base import Match
from logwright.codec.describe import I16BE, I32BE, Field, Struct
from logwright.codec.fault import Kind, Severity, UsageError
from logwright.codec.fixed import Entries, FixedCodec, end_without_zeros
from logwright.codec.frames.walk import Hole, Walk
from logwright.codec.option import Options
from logwright.codec.table import Column
from logwright.codec.window import Window
from logwright.readers.source import MemorySource
from logwright.roundtrip.specimen import Specimen

PAIR = Struct("Pair", Field("version", I16BE, default=0), Field("near", I32BE))


def ascending(entries: Entries, base: int) -> Iterator[tuple[Bools, str]]:
    near = entries["near"].astype(np.int64)
    yield np.r_[False, np.diff(near) <= 0][: len(near)], "near is not above the one before"


def codec(**others: Any) -> FixedCodec:
    return FixedCodec(
        name="toy.pairs",
        title="Pairs",
        entry=PAIR,
        pattern=re.compile(r"(\d{20})\.pairs"),
        columns=(
            Column("far", pa.int64(), "near and the number in the name", nullable=False),
            Column("version", pa.int16(), "0", detail=True),
        ),
        relative={"far": "near"},
        wrong=ascending,
        system="it minds",
        version="version",
        **others,
    )


def test_file_name_may_lack_a_base_number() -> None:
    plain = FixedCodec(
        name="toy.marks", title="Marks", entry=Struct("Mark", Field("near", I32BE)), pattern=re.compile("marks"),
        columns=(Column("near", pa.int64(), "a number", nullable=False),), wrong=ascending, system="it minds",
    )  # fmt: skip
    assert plain.recognise("marks", b"") is Match.NAME
    assert plain.context("marks", Options(())).base is None
    assert plain.context("marks", Options(()), base_offset=7).base == 7


ALLOCATED, EXACT = codec(), codec(allocated=False)
NAME = f"{20:020d}.pairs"


def pairs(*near: int, version: int = 0) -> bytes:
    return b"".join(PAIR.pack({"version": version, "near": item}) for item in near)


def scanned(item: FixedCodec, data: bytes, at: int = 0, **hints: Any) -> Any:
    context = item.context(NAME, Options(()), **hints)
    window = Window(np.frombuffer(data, np.uint8), 0, len(data))
    return window, item.scan(window, at, context), context


def far(item: FixedCodec, data: bytes) -> list[int]:
    window, frames, context = scanned(item, data)
    return [
        n
        for part in item.decode(window, frames, "rows", ["far"], context)
        for n in part.batch["far"].to_pylist()
    ]


def kinds(item: FixedCodec, data: bytes, **hints: Any) -> list[tuple[Kind, Severity, int, int]]:
    _, frames, _ = scanned(item, data, **hints)
    actual = [*frames.faults, *([frames.damage] if frames.damage else [])]
    return [(fault.kind, fault.severity, fault.offset, fault.length) for fault in actual]


def test_files_are_recognised_by_their_padded_names() -> None:
    assert ALLOCATED.recognise(NAME, b"") is Match.NAME
    assert ALLOCATED.recognise("20.pairs", b"") is Match.NO
    assert ALLOCATED.context("99999999999999999999.pairs", Options(())).base is None, "no 64-bit offset"
    assert ALLOCATED.context(NAME, Options(()), base_offset=7).base == 7


def test_values_are_relative_to_the_base_in_the_name() -> None:
    assert far(ALLOCATED, pairs(1, 5)) == [21, 25]
    _, frames, _ = scanned(ALLOCATED, pairs(1), base_offset=None)
    ((fault),) = frames.faults
    assert (fault.kind, fault.severity) == (Kind.LINK, Severity.INFO)


def test_trailing_zeros_are_padding() -> None:
    data = pairs(1, 256)
    info = (Kind.PADDING, Severity.INFO, 12, 600)
    assert far(ALLOCATED, data + bytes(600)) == [21, 276], "the last entry itself ends in a zero"
    assert kinds(ALLOCATED, data + bytes(600)) == [info]
    assert kinds(ALLOCATED, data + bytes(600), last=True) == [info]
    assert kinds(ALLOCATED, data + bytes(600), last=False) == [(Kind.PADDING, Severity.WARNING, 12, 600)]
    assert kinds(ALLOCATED, data + bytes(601)) == [(Kind.PADDING, Severity.WARNING, 12, 601)]
    assert kinds(EXACT, data + bytes(600)) == [(Kind.PADDING, Severity.ERROR, 12, 600)]
    assert far(EXACT, data + bytes(600)) == [21, 276]


def test_columns_have_no_filter_bounds() -> None:
    _, frames, _ = scanned(ALLOCATED, pairs(1, 5))
    assert ALLOCATED.frame_bounds(frames, "far") == (None, None)


def test_file_of_zeros_is_empty() -> None:
    assert far(ALLOCATED, bytes(600)) == []
    assert far(ALLOCATED, bytes(6)) == [20], "one entry of zeros is one"
    assert far(EXACT, bytes(6)) == []
    assert far(ALLOCATED, b"") == []
    assert kinds(ALLOCATED, b"") == []


def test_partial_last_entry_is_truncated() -> None:
    assert kinds(ALLOCATED, pairs(1) + b"\0\0\1") == [(Kind.TRUNCATED, Severity.WARNING, 6, 3)]


def test_entries_out_of_order_or_range_are_reported() -> None:
    assert kinds(ALLOCATED, pairs(5, 5, 9)) == [(Kind.ORDER, Severity.ERROR, 6, 6)]
    assert kinds(ALLOCATED, pairs(-1, 5)) == [(Kind.ORDER, Severity.ERROR, 0, 6)]
    assert kinds(ALLOCATED, pairs(1, 2), base_offset=(1 << 63) - 2) == [(Kind.ORDER, Severity.ERROR, 6, 6)]


def test_many_faults_are_summarised() -> None:
    actual = kinds(ALLOCATED, pairs(*[7] * 500))
    assert len(actual) == 101
    assert actual[-1] == (Kind.ORDER, Severity.ERROR, 6 * 101, 6 * 399)


def test_entry_of_another_version_is_skipped() -> None:
    data = pairs(1) + pairs(2, version=0x100) + pairs(3)
    window, frames, context = scanned(ALLOCATED, data)
    assert frames.damage is not None
    assert (frames.damage.kind, frames.damage.offset, frames.damage.length) == (Kind.MAGIC, 6, 6)
    place, need = ALLOCATED.resync(window, 7, context)
    assert (place, need) == (12, 0)
    assert ALLOCATED.scan(window, place, context).start.tolist() == [12]
    assert ALLOCATED.resync(window, 13, context) == (-1, 0)
    assert far(ALLOCATED, pairs(1, version=5)) == [21], "only the first byte of the version counts"


@given(st.binary(max_size=80), st.integers(0, 40), st.sampled_from([ALLOCATED, EXACT]))
def test_any_bytes_round_trip(data: bytes, zeros: int, item: FixedCodec) -> None:
    data += bytes(zeros)
    window, frames, context = scanned(item, data)
    tables = [
        pa.Table.from_batches(
            [part.batch for part in item.decode(window, frames, name, table.names(detail=True), context)],
            table.schema(table.names(detail=True)),
        )
        for name, table in item.tables.items()
        if name != "file"
    ]
    rest = data[frames.stop :]
    tail = rest.rstrip(b"\0")
    file = item.describe_file(window, len(data), len(frames), tail, len(rest) - len(tail), context)
    encoded = item.encode(*tables, pa.Table.from_batches([file]), context)
    assert b"".join(map(bytes, encoded)) == data


def encoded(rows: pa.Table, *others: Any) -> bytes:
    frames, file = (*others, None, None)[:2]
    return b"".join(map(bytes, ALLOCATED.encode(rows, frames, file, ALLOCATED.context(NAME, Options(())))))


def test_rows_alone_make_a_file() -> None:
    assert encoded(pa.table({"far": [21, 25]})) == pairs(1, 5)
    assert encoded(pa.table({"far": pa.array([21], pa.int32()), "other": ["x"]})) == pairs(1)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (pa.table({"other": [1]}), "needs a column 'far'"),
        (pa.table({"far": [None, 1]}), "column 'far' must not be null"),
        (pa.table({"far": ["x"]}), "not int64"),
        (pa.table({"far": [19]}), "far of row 0 minus 20"),
        (pa.table({"far": [21, 20 + (1 << 31)]}), "far of row 1 minus 20"),
        (pa.table({"far": [21], "version": [1 << 15]}), "not int16"),
        (pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["far", "far"]), "2 columns 'far'"),
    ],
)
def test_invalid_rows_are_refused(rows: pa.Table, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        encoded(rows)


def test_damaged_ranges_between_entries_round_trip() -> None:
    frames = pa.table({"size": pa.array([6, None, 6], pa.int32()), "raw": [None, b"\1\0damage", None]})
    assert encoded(pa.table({"far": [21, 25]}), frames) == pairs(1) + b"\1\0damage" + pairs(5)


def test_large_files_by_window() -> None:
    count = (1 << 20) + 5
    out = np.zeros(count, ALLOCATED.dtype)
    out["near"] = np.arange(count)
    window, frames, context = scanned(ALLOCATED, out.tobytes())
    parts = [part.batch for part in ALLOCATED.decode(window, frames, "rows", ["far"], context)]
    assert [part.num_rows for part in parts] == [1 << 20, 5]
    assert zlib.crc32(encoded(pa.Table.from_batches(parts))) == zlib.crc32(out.tobytes())


@given(
    st.lists(st.tuples(st.sampled_from([0, 0, 0, 1 << 8]), st.integers(0, 9)), max_size=40),
    st.integers(0, 40),
    st.sampled_from([ALLOCATED, EXACT]),
    st.sampled_from([NAME, "x.pairs"]),
)
def test_any_window_gives_the_same_rows(
    entries: list[tuple[int, int]], zeros: int, chosen: FixedCodec, name: str
) -> None:
    """Small windows give the same entries and faults as a window of the whole file."""
    ahead = b"".join(struct.pack(">hi", 0, n + 1) for n in range(700))
    behind = b"".join(struct.pack(">hi", *entry) for entry in entries)
    data = ahead + behind + bytes(zeros)

    def walked(step: int) -> tuple[list[int], list[str]]:
        places: list[int] = []
        message: list[object] = []
        for item in Walk(MemorySource(data), chosen, chosen.context(name, Options(())), step=step):
            if isinstance(item, Hole):
                message.append((item.fault, item.tail))
                continue
            places += (item.frames.start + item.window.offset).tolist()
            message += item.faults
        return places, sorted(map(repr, message))

    assert walked(1 << 12) == walked(1 << 20)


def test_entries_after_damage_longer_than_a_window_are_found_where_they_start() -> None:
    checked = codec(impossible=(lambda entries: entries["near"] < 0, "an invalid entry"))
    for length in range(2000, 2010):
        sound = range(length, length + 800)
        data = pairs(*([-1] * length), *sound, *([-1] * length), *sound)
        read = Specimen.of(data, checked, f"{0:020d}.pairs").read(mode="DROPMALFORMED", window=1 << 12)
        assert read.table["far"].to_pylist() == [*sound, *sound]


@given(st.integers(0, 3 << 16), st.integers(0, 3 << 16), st.binary(min_size=1, max_size=300))
def test_content_of_a_range_ends_after_its_last_byte_that_is_not_zero(
    start: int, at: int, content: bytes
) -> None:
    data = np.zeros(5 << 16, np.uint8)
    data[at : at + len(content)] = np.frombuffer(content, np.uint8)
    end = end_without_zeros(lambda place, size: data[place : place + size], start, len(data))
    assert end == start + len(data[start:].tobytes().rstrip(b"\0"))


def test_entry_numbers_must_equal_their_positions() -> None:
    queue = Specimen.of(b"", "rocketmq.consumequeue", "00000000000000000040")
    rows = pa.table(
        {"queue_offset": [2, 3], "physical_offset": [0, 100], "size": [100, 100], "tags_code": [0, 0]}
    )
    assert queue.with_bytes(queue.encode(rows)).read().table["queue_offset"].to_pylist() == [2, 3]
    with pytest.raises(UsageError, match="queue_offset of row 0 is 0, expected 2"):
        queue.encode(rows.set_column(0, "queue_offset", pa.array([0, 1])))


def test_invalid_entries_are_tested_a_few_times() -> None:
    """Valid ones are between them, so each is separate damage."""
    tested = 0

    def impossible(entries: Entries) -> Bools:
        nonlocal tested
        tested += len(entries)
        bad: Bools = entries["near"] < 0
        return bad

    data = pairs(*(i if i % 2 else -1 for i in range(2000)))
    checked = codec(impossible=(impossible, "an invalid entry"))
    result = Specimen.of(data, checked, f"{0:020d}.pairs").read(mode="DROPMALFORMED")
    assert result.table["far"].to_pylist() == list(range(1, 2000, 2))
    assert tested <= 100 * 2000
