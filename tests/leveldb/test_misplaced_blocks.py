"""Whole blocks of a table in the wrong place, each with its correct checksum. Salvage serves no key twice, and no old or deleted value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import logwright as lw
from logwright.readers import plan
from logwright.readers.report import Report
from logwright.readers.resolve import resolve
from logwright.readers.stream import FileStream, Mode, ReadOptions
from logwright.readers.task import note, run, split_tasks

pytestmark = pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
Blocks = list[bytes]


def overwritten(blocks: Blocks) -> Blocks:
    return [*blocks[:3], blocks[1], *blocks[4:]]


def overwritten_before(blocks: Blocks) -> Blocks:
    return [blocks[0], blocks[3], *blocks[2:]]


def exchanged(blocks: Blocks) -> Blocks:
    return [blocks[0], blocks[3], blocks[2], blocks[1], *blocks[4:]]


def inserted(blocks: Blocks) -> Blocks:
    return [*blocks[:3], blocks[1], *blocks[3:]]


CHANGES = [overwritten, overwritten_before, exchanged, inserted]


def table_of(database: Path) -> Path:
    """Return the oldest table."""
    return min(path for path in database.iterdir() if path.suffix == ".ldb")


def rewrite(table: Path, change: Callable[[Blocks], Blocks]) -> None:
    data, blocks = table.read_bytes(), blocks_of(table)
    assert len(blocks) > 4
    table.write_bytes(b"".join(change(blocks)) + data[sum(map(len, blocks)) :])


def blocks_of(table: Path) -> Blocks:
    data = table.read_bytes()
    frames = lw.read(table, view="frames").to_pylist()
    starts = [frame["position"] for frame in frames if frame["kind"] == "data"]
    end = next(frame["position"] for frame in frames if frame["kind"] != "data")
    return [data[start:stop] for start, stop in zip(starts, [*starts[1:], end], strict=True)]


def write(database: Path, keys: list[bytes], sequence: int, value: bytes | None) -> None:
    rows = [
        {
            "key": key,
            "value": value,
            "sequence": sequence + n,
            "type": "deletion" if value is None else "value",
        }
        for n, key in enumerate(keys)
    ]
    mode = "append" if database.exists() else "error"
    lw.write(rows, database, "leveldb.db", mode=mode, compression="none", block_size=500)


def live(database: Path, **options: object) -> list[tuple[bytes, bytes]]:
    rows = lw.read(database, **options)  # type: ignore[arg-type]
    return list(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))


@pytest.mark.parametrize("older", [False, True], ids=["newer run", "older run"])
@pytest.mark.parametrize("change", CHANGES)
def test_salvage_serves_the_newest_value_of_each_key_once(
    change: Callable[[Blocks], Blocks], older: bool, tmp_path: Path
) -> None:
    database = tmp_path / "db"
    keys = [b"%04d" % n for n in range(100)]
    if older:
        write(database, keys[::2], 1, b"old")
    write(database, keys, 200, b"v" * 40)
    write(database, keys[::3], 1000, None)
    write(database, keys[1::3], 2000, b"new")
    expected = dict(live(database))
    tables = sorted(path for path in database.iterdir() if path.suffix == ".ldb")
    rewrite(tables[1 if older else 0], change)
    with pytest.raises(lw.DamageError):
        lw.read(database)
    for mode in ("DROPMALFORMED", "PERMISSIVE"):
        rows = [row for row in live(database, mode=mode) if row[0] is not None]
        served = dict(rows)
        assert len(rows) == len(served)
        lost = {key for key in expected if served.get(key) != expected[key]}
        if change in (exchanged, inserted):
            assert not lost
        else:  # an overwritten block is lost, and so are the deletions in it
            assert len(lost) <= 8
        assert all(served.get(key) in (None, b"old") for key in lost)
        assert set(served) <= set(expected)


def test_older_entry_of_a_key_before_a_newer_one_is_damage(tmp_path: Path) -> None:
    database = tmp_path / "db"
    rows = [{"key": b"k", "value": b"%04d" % n * 50, "sequence": n + 1} for n in range(20)]
    lw.write(rows, database, "leveldb.db", compression="none", block_size=500)
    expected = live(database)
    assert expected == [(b"k", rows[-1]["value"])]
    rewrite(table_of(database), lambda blocks: [*blocks[-2::-1], blocks[-1]])
    with pytest.raises(lw.DamageError, match="not in the order of their sequence numbers"):
        lw.read(database)
    assert live(database, mode="DROPMALFORMED") == expected
    assert not lw.verify(database).ok


# Blocks of other tables of the level


KEYS = [b"%04d" % n for n in range(300)]


def write_level(database: Path) -> list[Path]:
    """Write one level of four tables, and return the tables."""
    rows = [{"key": key, "value": (b"v" + key) * 8, "sequence": n + 1} for n, key in enumerate(KEYS)]
    lw.write(rows, database, "leveldb.db", compression="none", block_size=500, max_file_size=4000)
    return sorted(path for path in database.iterdir() if path.suffix == ".ldb")


def over_first(to: Blocks, other: Blocks) -> Blocks:
    return [other[2], *to[1:]]


def over_middle(to: Blocks, other: Blocks) -> Blocks:
    return [*to[:3], other[2], *to[4:]]


def over_last(to: Blocks, other: Blocks) -> Blocks:
    # The last block of a table may be shorter than the others.
    same = next(block for block in reversed(other) if len(block) == len(to[-1]))
    return [*to[:-1], same]


def among(to: Blocks, other: Blocks) -> Blocks:
    return [*to[:3], other[2], *to[3:]]


COPIES = [over_first, over_middle, over_last, among]
"""Copies of a block of another table into a table."""


@pytest.fixture(params=[(0, 2), (2, 0), (1, 2)], ids=["later block", "earlier block", "next table"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """Return the table that gets a block, and the one that has it."""
    tables = write_level(tmp_path / "db")
    return tables[request.param[0]], tables[request.param[1]]


def copy_block(pair: tuple[Path, Path], change: Callable[[Blocks, Blocks], Blocks]) -> None:
    other = blocks_of(pair[1])
    rewrite(pair[0], lambda blocks: change(blocks, other))


def exchange_blocks(pair: tuple[Path, Path]) -> None:
    """Exchange blocks of two tables."""
    here, there = map(blocks_of, pair)
    rewrite(pair[0], lambda blocks: [*blocks[:3], there[2], *blocks[4:]])
    rewrite(pair[1], lambda blocks: [*blocks[:2], here[3], *blocks[3:]])


def parts_of(database: Path, mode: Mode, size: int) -> list[bytes]:
    """Return the keys that tasks of at most `size` bytes read independently."""
    work, options, report = plan.reading(resolve(database)), ReadOptions(mode), Report(str(database))
    note(work.faults, report, mode)
    return [
        key
        for part in split_tasks(work.tasks, size, mode)
        for batch in run([part], ("key",), report, options)
        for key in batch.column("key").to_pylist()
        if key is not None
    ]


@pytest.mark.alike
@pytest.mark.parametrize("size", [1, 6000])
@pytest.mark.parametrize("change", COPIES)
def test_splits_together_have_the_rows_of_the_whole_read(
    pair: tuple[Path, Path], change: Callable[[Blocks, Blocks], Blocks], size: int
) -> None:
    database = pair[0].parent
    assert parts_of(database, Mode.FAILFAST, size) == KEYS
    copy_block(pair, change)
    for mode in (Mode.DROPMALFORMED, Mode.PERMISSIVE):
        served = [key for key, _ in live(database, mode=mode) if key is not None]
        assert len(served) == len(set(served)) >= len(KEYS) - 10
        assert sorted(parts_of(database, mode, size)) == sorted(served)
    with pytest.raises(lw.DamageError):
        lw.read(database)
    with pytest.raises(lw.DamageError):
        parts_of(database, Mode.FAILFAST, size)


def test_splits_have_the_rows_of_blocks_that_are_only_in_the_wrong_table(pair: tuple[Path, Path]) -> None:
    database = pair[0].parent
    exchange_blocks(pair)
    assert sorted(parts_of(database, Mode.DROPMALFORMED, 1)) == KEYS


def test_split_in_the_middle_of_a_table_fails_at_a_block_outside_of_the_range(tmp_path: Path) -> None:
    database = tmp_path / "db"
    write_level(database)
    write(database, KEYS, 1000, b"new")
    assert parts_of(database, Mode.FAILFAST, 1) == KEYS
    newest = max(path for path in database.iterdir() if path.suffix == ".ldb")
    rewrite(newest, lambda blocks: [blocks[-2], *blocks[1:-2], blocks[0], blocks[-1]])
    with pytest.raises(lw.DamageError):
        parts_of(database, Mode.FAILFAST, 1)


@pytest.mark.alike
@pytest.mark.parametrize("view", ["live", "rows", "history"])
def test_filtered_salvage_finds_rows_outside_of_the_range_of_their_file(
    pair: tuple[Path, Path], view: str
) -> None:
    database = pair[0].parent
    exchange_blocks(pair)
    for key in KEYS[::7]:
        rows = lw.read(database, view=view, mode="DROPMALFORMED", filter=[("key", "==", key)])
        assert rows["key"].to_pylist() == [key]


def test_filtered_salvage_of_a_table_finds_rows_outside_of_the_range_of_their_block(tmp_path: Path) -> None:
    table = write_level(tmp_path / "db")[0]
    keys = lw.read(table)["key"].to_pylist()
    rewrite(table, exchanged)
    for key in keys:
        rows = lw.read(table, mode="DROPMALFORMED", filter=[("key", "==", key)])
        assert rows["key"].to_pylist() == [key]


@pytest.mark.parametrize("misplaced", [False, True], ids=["in order", "misplaced"])
def test_rows_of_damaged_regions_are_read_where_they_are_returned(
    misplaced: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "db"
    tables = write_level(database)
    if misplaced:
        rewrite(tables[0], exchanged)
    for table in tables[1:]:
        data = bytearray(table.read_bytes())
        data[700] ^= 1
        table.write_bytes(data)
    held: list[object] = []
    original = FileStream._row
    monkeypatch.setattr(
        FileStream, "_row", lambda self, values: held.append(values) or original(self, values)
    )
    (work,) = plan.reading(resolve(database)).tasks
    rows = work.rows(("key",), Report(str(database)), ReadOptions(Mode.PERMISSIVE))
    assert next(rows).num_rows
    assert len(held) == 0
    list(rows)
    assert len(held) == 3


# Losses by misplaced blocks


def within(lost: Mapping[str, str], key: bytes) -> bool:
    """Return whether a key is in the range of a loss."""
    return bool(lost) and lost.get("smallest", "") <= key.decode() <= lost.get("largest", "~")


def faults_of(database: Path) -> list[dict[str, Any]]:
    """Return the errors that verify reports."""
    return [fault for file in lw.verify(database).to_dict()["files"] for fault in file["faults"]]


@pytest.mark.parametrize("change", [over_first, over_middle, over_last])
def test_overwritten_block_is_counted_as_lost(
    pair: tuple[Path, Path], change: Callable[[Blocks, Blocks], Blocks], tmp_path: Path
) -> None:
    copy_block(pair, change)
    database = pair[0].parent
    gone = sorted(set(KEYS) - {key for key, _ in live(database, mode="DROPMALFORMED")})
    assert len(gone) == 10
    (fault,) = [fault for fault in faults_of(database) if fault["lost"]]
    report = lw.repair(database, tmp_path / "out")
    (cut,) = [cut for cut in report.to_dict()["cut"] if cut["rows_lost"] != 0]
    assert "which is kept" in cut["why"]
    assert fault["rows_lost"] is cut["rows_lost"] is None
    for loss in (fault["lost"], cut["lost"]):
        assert all(within(loss, key) for key in gone)
        assert sum(within(loss, key) for key in KEYS) <= 2 * len(gone)
    assert [key for key, _ in live(tmp_path / "out")] == sorted(set(KEYS) - set(gone))
    assert report.to_dict()["rows"] == len(KEYS) - len(gone)
    assert lw.verify(tmp_path / "out").ok


def test_additional_copy_of_a_block_is_removed_without_loss(pair: tuple[Path, Path], tmp_path: Path) -> None:
    copy_block(pair, among)
    assert not any(fault["lost"] for fault in faults_of(pair[0].parent))
    report = lw.repair(pair[0].parent, tmp_path / "out").to_dict()
    assert any("a copy of the block" in cut["why"] for cut in report["cut"])
    assert {cut["rows_lost"] for cut in report["cut"]} == {0}
    assert not any(cut["lost"] for cut in report["cut"])
    assert [key for key, _ in live(tmp_path / "out")] == KEYS
    assert lw.verify(tmp_path / "out").ok


def test_exchanged_blocks_lose_nothing(pair: tuple[Path, Path], tmp_path: Path) -> None:
    exchange_blocks(pair)
    faults = faults_of(pair[0].parent)
    assert faults
    assert all(fault["rows_lost"] == 0 and not fault["lost"] for fault in faults)
    assert lw.repair(pair[0].parent, tmp_path / "out").to_dict()["cut"] == []
    assert [key for key, _ in live(tmp_path / "out")] == KEYS
    assert lw.verify(tmp_path / "out").ok


def test_repair_keeps_a_block_that_is_only_in_the_wrong_table(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    copy_block(pair, among)
    rewrite(pair[1], lambda blocks: [*blocks[:2], blocks[1], *blocks[3:]])
    report = lw.repair(pair[0].parent, tmp_path / "out").to_dict()
    assert {cut["rows_lost"] for cut in report["cut"]} == {0}
    assert [key for key, _ in live(tmp_path / "out")] == KEYS
    assert lw.verify(tmp_path / "out").ok


def test_last_copy_of_a_block_that_overwrote_another_is_kept(pair: tuple[Path, Path], tmp_path: Path) -> None:
    database = pair[0].parent
    copy_block(pair, over_middle)
    rewrite(pair[1], lambda blocks: [*blocks[:2], blocks[1], *blocks[3:]])
    gone = sorted(set(KEYS) - {key for key, _ in live(database, mode="DROPMALFORMED")})
    cuts = lw.repair(database, tmp_path / "out").to_dict()["cut"]
    losses = [cut["lost"] for cut in cuts if cut["rows_lost"] != 0]
    assert all(any(within(loss, key) for loss in losses) for key in gone)
    assert [key for key, _ in live(tmp_path / "out")] == sorted(set(KEYS) - set(gone))
