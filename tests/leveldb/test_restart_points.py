"""Restart points that do not point to entries with complete keys: a check reports them, a repair fixes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from leveldb_damage import blocks, warnings_of
from leveldb_repair import check_faults, check_leveldb_accepts, database, repaired, sound_entries
from leveldb_startup import GOLDEN
from memory_directory import MemoryDirectory

import logwright as lw
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.leveldb.formats.table.compression import sealed, stored
from logwright.codec.leveldb.formats.table.layout import (
    ENTRIES,
    MEASURES,
    SOUND,
    entries,
    handle,
    measure,
    pack_entries,
)
from logwright.codec.leveldb.formats.table.restarts import with_repaired_points, wrong_blocks
from logwright.codec.leveldb.formats.table.write import footer, metaindex_block
from logwright.codec.leveldb.keys import internal_key

LIMIT = 1 << 20
PLACED = "of the uncompressed block, where no entry starts"
OWN = "by their own checksums"
NONE_AT_ALL = "it has no restart point, but 62 bytes before where the first one should be 0"
HIDDEN = "and not 0, where its first entry starts"
SHARED = (
    "of the uncompressed block, which shares 5 bytes with the previous key instead of having its full key"
)
NAME = "000003.ldb"


def pairs(first: int, stop: int) -> list[tuple[bytes, bytes]]:
    return [(internal_key(b"key%03d" % i, i + 1, 1), b"value%d" % i) for i in range(first, stop)]


def entries_and_points(plain: bytes) -> tuple[bytes, list[int]]:
    """Return the entries and restart points of a block."""
    count = int.from_bytes(plain[-4:], "little")
    stop = len(plain) - 4 * (count + 1)
    return plain[:stop], np.frombuffer(plain[stop:-4], "<u4").tolist()


def written(directory: MemoryDirectory, path: Path) -> Path:
    path.mkdir()
    for name, data in directory.files.items():
        (path / name).write_bytes(data)
    return path


def first_error(directory: MemoryDirectory, path: Path) -> Fault:
    """Return the first error that `verify` reports, with all checks."""
    report = lw.verify(written(directory, path / "told"))
    return next(fault_texts for _, fault_texts in report.faults if fault_texts.severity == Severity.ERROR)


def put(entries_: bytes, points: list[int], count: int | None = None) -> bytes:
    """Pack these into a block."""
    return entries_ + np.array([*points, len(points) if count is None else count], "<u4").tobytes()


def table(
    *blocks: bytes, compression: str = "none", keys: list[bytes] | None = None, index: list[int] | None = None
) -> bytes:
    """A table of uncompressed blocks of ten rows each; `index` are the restart points of its index."""
    out, named = b"", []
    for n, plain in enumerate(blocks):
        kind, content = stored(plain, compression)
        key = pairs(10 * n + 9, 10 * n + 10)[0][0] if keys is None else keys[n]
        named.append((key, handle(len(out), len(content))))
        out += sealed(content, kind)
    meta = sealed(metaindex_block(None, 16), 0)
    meta_place, out = handle(len(out), len(meta) - 5), out + meta
    plain = pack_entries(named, 1)
    data = sealed(plain if index is None else put(entries_and_points(plain)[0], index), 0)
    return out + data + footer(meta_place, handle(len(out), len(data) - 5))


GOOD = [pack_entries(pairs(n, n + 10), 4) for n in (0, 10, 20)]
ENTRY, POINTS = entries_and_points(GOOD[1])
WHOLE = table(*GOOD)
ALL = pairs(0, 30)

# Change of the points of the middle block; the report; whether iterators miss rows too.
WRONG = {
    "no entry": ([0, POINTS[1] + 1, POINTS[2]], f"restart point 2 of 3 points to byte {POINTS[1] + 1} {PLACED}"),
    "behind": ([0, POINTS[1], 5000], f"restart point 3 of 3 points to byte 5000 {PLACED}"),
    "far": ([0, POINTS[1], (1 << 32) - 1], f"restart point 3 of 3 points to byte 4294967295 {PLACED}"),
    "end": ([0, POINTS[1], len(ENTRY)], f"restart point 3 of 3 points to byte {len(ENTRY)} {PLACED}"),
    "shares": ([0, 24, POINTS[2]], f"restart point 2 of 3 points to the entry at byte 24 {SHARED}"),
    "falls": ([0, POINTS[2], POINTS[1]], f"restart point 3 of 3 is {POINTS[1]}, not after the previous one, which is {POINTS[2]}"),
    "twice": ([0, POINTS[1], POINTS[1]], f"restart point 3 of 3 is {POINTS[1]}, not after the previous one, which is {POINTS[1]}"),
    "several": ([0, POINTS[2], 24], f"restart point 3 of 3 points to the entry at byte 24 {SHARED}"),
    "two": ([0, 5, 6], f"restart point 2 of 3 points to byte 5 {PLACED}; 2 of them are wrong"),
    "nothing": ([0, 0, POINTS[1]], "restart point 2 of 3 is 0, not after the previous one, which is 0"),
    "first": ([POINTS[1], POINTS[1], POINTS[2]], f"its first restart point is {POINTS[1]} {HIDDEN}"),
    "all": ([9999, POINTS[1], POINTS[2]], f"its first restart point is 9999 {HIDDEN}"),
}  # fmt: skip


def test_blocks_of_these_tests() -> None:
    assert len(POINTS) == 3
    measures = np.zeros(MEASURES, np.int64)
    plain = np.frombuffer(put(ENTRY[:24], [0]), np.uint8)
    assert measure(plain, 0, len(plain), LIMIT, measures) == SOUND
    assert measures[ENTRIES] == 1  # So that the second one starts there.
    assert check_faults(database(WHOLE)) == []


@pytest.mark.kernel_modes
@pytest.mark.parametrize("compression", ["none", "snappy"])
@pytest.mark.parametrize("case", WRONG)
def test_wrong_points_are_reported_and_fixed(case: str, compression: str, tmp_path: Path) -> None:
    points, text = WRONG[case]
    directory = database(table(GOOD[0], put(ENTRY, points), GOOD[2], compression=compression))
    severity = Severity.WARNING if "not after" in text else Severity.ERROR
    if "first" in text:
        assert check_faults(directory) == []
        name, fault = NAME, first_error(directory, tmp_path)
    else:
        ((name, fault),) = check_faults(directory, severity)
    first = len(stored(GOOD[0], compression)[1]) + 5
    assert (name, fault.offset, fault.kind, fault.detail) == (NAME, first, Kind.PAYLOAD, text)
    shown = "neither Get nor an iterator returns" if points[0] else "bad entry in block"
    shown = "after a longer search" if severity is Severity.WARNING else shown
    assert shown in fault.system
    assert check_faults(directory, deep=False) == []
    result, repair_plan = repaired(directory)
    assert [(key, value) for key, value in check_leveldb_accepts(result)] == [
        (key[:-8], value) for key, value in ALL
    ]
    # All but index and metaindex, which a repair compresses if that makes them smaller.
    good = table(*GOOD, compression=compression)
    assert result.files[NAME].startswith(good[: blocks(good)[-2][0]])
    assert compression != "none" or result.files[NAME] == good
    assert not repair_plan.cut
    assert "000003.ldb has 1 block with wrong restart points, which are rebuilt" in warnings_of(repair_plan)


@pytest.mark.parametrize("count", [0, 1, 2, 4, 5, 7, 1000, (1 << 32) - 1])
def test_wrong_number_of_points(count: int, tmp_path: Path) -> None:
    """If as many points follow, their targets show the error."""
    directory = database(table(GOOD[0], put(ENTRY, POINTS, count), GOOD[2]))
    fault = first_error(directory, tmp_path)
    if not count:
        assert "it has no restart point, but" in fault.detail
        assert "LevelDB treats the block as empty" in fault.system
    result, repair_plan = repaired(directory)
    assert result.files[NAME] == WHOLE
    assert not repair_plan.cut
    assert len(check_leveldb_accepts(result)) == 30


def test_damaged_points_and_entries(tmp_path: Path) -> None:
    """A block without entries before its points is kept as far as it can be read, as before."""
    entries_ = bytearray(ENTRY)
    entries_[POINTS[2]] = 9  # The third complete key becomes invalid.
    entries_[POINTS[2] + 1] = 200
    directory = database(table(GOOD[0], put(bytes(entries_), [0, 7, POINTS[2]]), GOOD[2]))
    assert "bad entry in block" in first_error(directory, tmp_path).detail
    result, repair_plan = repaired(directory)
    assert len(check_leveldb_accepts(result)) == 28
    (cut,) = repair_plan.cut
    assert cut.why.endswith("8 entries before it kept")


def test_wrong_key_among_them_is_left_out() -> None:
    rows = pairs(10, 20)
    rows[5] = (rows[5][0][:4], b"")
    entries_, points = entries_and_points(pack_entries(rows, 4))
    directory = database(table(GOOD[0], put(entries_, [0, 1, points[2]]), GOOD[2]))
    result, repair_plan = repaired(directory)
    assert len(check_leveldb_accepts(result)) == 29
    (cut,) = repair_plan.cut
    assert "corrupted internal key" in cut.why


@pytest.mark.parametrize(
    ("points", "text"),
    [
        ([0, 1, 40], f"in the index: restart point 2 of 3 points to byte 1 {PLACED}; 2 of them are wrong"),
        ([0, 9999, 9999], f"in the index: restart point 2 of 3 points to byte 9999 {PLACED}; 2 of them are wrong"),
        ([19, 19, 38], f"in the index, whose checksum is right: its first restart point is 19 {HIDDEN}; blocks are found {OWN}"),
        ([], f"in the index, whose checksum is right: {NONE_AT_ALL}; blocks are found {OWN}"),
    ],
)  # fmt: skip
def test_restart_points_of_the_index(points: list[int], text: str) -> None:
    directory = database(table(*GOOD, index=points))
    faults = [fault for _, fault in check_faults(directory)]
    assert text in [fault.detail for fault in faults]
    assert len(sound_entries(directory)) == 30
    result, _ = repaired(directory)
    assert len(check_leveldb_accepts(result)) == 30


def test_restart_points_of_the_metaindex() -> None:
    good = database(WHOLE)
    bare = metaindex_block(None, 16)
    bad = bare[:-8] + (40).to_bytes(4, "little") + bare[-4:]
    assert good.files[NAME].count(sealed(bare, 0)) == 1
    directory = database(good.files[NAME].replace(sealed(bare, 0), sealed(bad, 0)))
    ((_, fault),) = check_faults(directory)
    assert (
        fault.detail
        == "in the metaindex: its first restart point is 40 and not 0, where its first entry starts"
    )
    result, _ = repaired(directory)
    assert result.files[NAME] == WHOLE


@pytest.mark.kernel_modes
@pytest.mark.parametrize(
    "plain",
    [
        bytes(4),
        pack_entries([], 16),
        pack_entries(pairs(10, 11), 16),
        pack_entries(pairs(10, 20), 1),
        pack_entries(pairs(10, 20), 16),
        pack_entries([(internal_key(bytes([i]) * 200, 1, 1), b"x" * 300) for i in range(9)], 3),
        # A zero of two bytes.
        put(ENTRY[: POINTS[2]] + b"\x80\0" + ENTRY[POINTS[2] + 1 :], POINTS),
        # Entries with complete keys need not be restart points.
        put(pack_entries(pairs(10, 20), 1)[:-44], [0]),
    ],
)
def test_points_of_other_writers_are_right(plain: bytes) -> None:
    data = np.frombuffer(plain, np.uint8)
    measures = np.zeros(MEASURES, np.int64)
    assert measure(data, 0, len(data), LIMIT, measures) == SOUND
    assert wrong_blocks(data, np.zeros(1, np.int64), np.full(1, len(data), np.int64), measures) == []


@pytest.mark.kernel_modes
@pytest.mark.parametrize("interval", [1, 3, 16, 100])
def test_entries_that_share_nothing_get_the_points_of_their_writer(interval: int) -> None:
    rows = [(internal_key(bytes([i]) * 3, 1, 1), b"x") for i in range(40)]
    good = pack_entries(rows, interval)
    entries_, points = entries_and_points(good)
    bad = [*points[:-1], points[-1] + 1]
    out = with_repaired_points(np.frombuffer(put(entries_, bad), np.uint8), 16)
    assert out is not None
    assert out.tobytes() == good


@pytest.mark.kernel_modes
def test_impossible_points_are_kept_if_they_are_all_possible_ones() -> None:
    rows = (
        pairs(0, 3)
        + [(internal_key(b"m%03d" % i, 1, 1), b"x") for i in range(5)]
        + [(internal_key(b"z", 1, 1), b"")]
    )
    entries_, _ = entries_and_points(pack_entries(rows, 100))
    out = with_repaired_points(np.frombuffer(put(entries_, [0, 7, 9]), np.uint8), 16)
    assert out is not None
    repaired_entries, points = entries_and_points(out.tobytes())
    assert repaired_entries == entries_
    assert len(points) == 3
    keys, _, status = entries(out, LIMIT)
    assert (list(keys), status) == ([key for key, _ in rows], SOUND)


@pytest.mark.kernel_modes
def test_block_without_entries_has_one_point() -> None:
    out = with_repaired_points(np.frombuffer(put(b"", [7]), np.uint8), 16)
    assert out is not None
    assert entries_and_points(out.tobytes()) == (b"", [0])


@pytest.mark.kernel_modes
def test_invalid_block_is_not_repaired() -> None:
    for data in (b"", b"abc", bytes(4), b"abcdefgh" + (9).to_bytes(4, "little"), b"\xff" * 40):
        assert with_repaired_points(np.frombuffer(data, np.uint8), 16) is None


def test_golden_tables_have_right_points() -> None:
    tables = 0
    for case in sorted(Path(GOLDEN).glob("*/db")):
        tables += len([*case.glob("*.ldb"), *case.glob("*.sst")])
        report = lw.verify(case)
        assert not [fault for _, fault in report.faults if "restart point" in fault.detail], case
    assert tables > 30


def test_verify_and_repair_report_it(tmp_path: Path) -> None:
    points, text = WRONG["shares"]
    directory = database(table(GOOD[0], put(ENTRY, points), GOOD[2]))
    written(directory, tmp_path / "db")
    report = lw.verify(tmp_path / "db")
    assert not report.ok
    assert [fault.detail for _, fault in report.faults if fault.severity == "error"] == [text]
    done = lw.repair(tmp_path / "db", tmp_path / "out")
    assert not done.cut
    assert lw.verify(tmp_path / "out").ok
    assert lw.read(tmp_path / "out").num_rows == 30


@pytest.mark.parametrize(
    ("points", "count"), [(WRONG["first"][0], None), (WRONG["all"][0], None), (POINTS, 0)]
)
def test_reading_reports_hidden_entries(points: list[int], count: int | None, tmp_path: Path) -> None:
    directory = database(table(GOOD[0], put(ENTRY, points, count), GOOD[2]))
    path = written(directory, tmp_path / "db")
    with pytest.raises(lw.DamageError, match="restart point"):
        lw.read(path, mode="FAILFAST")
    with pytest.warns(lw.DamageWarning):
        rows = lw.read(path, mode="DROPMALFORMED").num_rows
    assert rows == (26 if points == WRONG["first"][0] else 20)
    system = lw.verify(path, as_system="main").system
    assert system is not None
    assert system["rows_lost"] == 30 - rows
    lw.repair(path, tmp_path / "out")
    assert lw.read(tmp_path / "out", mode="FAILFAST").num_rows == 30
