"""Rebuild of LevelDB databases and repair of single files, directly and through the commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from leveldb_damage import (
    BLOOM,
    PLAIN,
    blocks,
    flip,
    flipped,
    levels,
    rows,
    version,
    with_manifest,
    without_metadata,
)
from leveldb_repair import check_leveldb_accepts, database, golden, handmade_table, rebuilt, sound_entries
from leveldb_startup import CraftedDatabase, large, physical, put, table
from memory_directory import MemoryDirectory

import logwright as lw
from logwright.codec.fault import DamageError, UsageError
from logwright.codec.leveldb.formats.manifest.layout import EditField, form
from logwright.codec.leveldb.formats.records.layout import fragmented
from logwright.codec.leveldb.keys import internal_key
from logwright.codec.leveldb.startup.version_set import logged

# Rebuild


def test_manifest_is_rebuilt_from_tables_and_logs() -> None:
    crafted = CraftedDatabase(
        [(1, 5, rows(0, 20)), (0, 7, rows(5, 9, b"new", 100))],
        {8: physical(put(300, b"log"))},
        last_sequence=299,
    )
    result, repair_plan = rebuilt(without_metadata(crafted), "manifest", "current")
    assert check_leveldb_accepts(result) == check_leveldb_accepts(MemoryDirectory(crafted.files))
    assert version(result).log_number == 8
    assert not repair_plan.cut


def test_sound_manifest_is_compacted() -> None:
    crafted = CraftedDatabase([(1, 5, rows(0, 20))], last_sequence=299)
    directory = with_manifest(crafted, *[[EditField("last_sequence", number=300 + n)] for n in range(50)])
    directory.files["000003.ldb"] = table(rows(0, 30, b"orphan"), PLAIN)
    result, repair_plan = rebuilt(directory, "manifest", "current")
    assert levels(result) == {5: 1}
    assert version(result).last_sequence == 349
    assert "000003.ldb" in result.files
    assert len(repair_plan.removes) == 1
    check_leveldb_accepts(result)


def test_only_current_is_rebuilt() -> None:
    crafted = CraftedDatabase([(1, 5, rows(0, 20))], last_sequence=299)
    files = {name: data for name, data in crafted.files.items() if name != "CURRENT"}
    for damaged in (files, {**files, "CURRENT": b"x"}):
        result, repair_plan = rebuilt(MemoryDirectory(damaged), "current")
        assert result.files == crafted.files
        assert repair_plan.summary().rows == 20
        assert not repair_plan.cut
    with pytest.raises(UsageError, match="no undamaged manifest"):
        rebuilt(without_metadata(crafted), "current")


def test_damaged_tables_and_logs_are_refused() -> None:
    crafted = CraftedDatabase([(1, 5, rows(0, 20))], {8: physical(put(300, b"log"))}, last_sequence=299)
    with pytest.raises(DamageError, match=r"000005\.ldb: at byte 0: .*rebuilt from undamaged tables"):
        rebuilt(flipped(crafted, "000005.ldb", 10), "manifest", "current")
    with pytest.raises(DamageError, match=r"000008\.log"):
        rebuilt(flipped(crafted, "000008.log", 10), "manifest", "current")
    with pytest.raises(DamageError, match="table 5 of level 1 in the manifest is missing"):
        rebuilt(
            MemoryDirectory({name: data for name, data in crafted.files.items() if name != "000005.ldb"}),
            "manifest",
        )
    unordered = database(handmade_table([(b"b", 1), (b"a", 2)], keys=[internal_key(b"c", 1, 1)]))
    with pytest.raises(DamageError, match="its keys are not in order"):
        rebuilt(unordered, "manifest")


# Single files


def repair_single_file(
    data: bytes, name: str, tmp_path: Path, strategy: str = "salvage"
) -> tuple[bytes, lw.Report]:
    (tmp_path / name).write_bytes(data)
    report = lw.repair(tmp_path / name, tmp_path / "out", strategy=strategy, correct=False)
    return (tmp_path / "out").read_bytes(), report


def test_repair_of_a_single_table_keeps_undamaged_blocks(tmp_path: Path) -> None:
    data = table(rows(0, 60), BLOOM)
    second = blocks(data)[1]
    result, report = repair_single_file(flip(data, second[0] + 9), "000005.ldb", tmp_path)
    assert report.rows_kept == sum(1 for _ in sound_entries(MemoryDirectory({"000005.ldb": result})))
    assert [cut["offset"] for cut in report.cut or []] == [second[0]]
    assert result.startswith(data[: second[0]])
    assert lw.verify(tmp_path / "out", codec="leveldb.table").ok


def test_single_table_up_to_its_damage(tmp_path: Path) -> None:
    data = table(rows(0, 60), PLAIN)
    second = blocks(data)[1]
    result, report = repair_single_file(flip(data, second[0] + 9), "000005.ldb", tmp_path, "prefix")
    assert len(blocks(result)) == 3
    assert [(cut["offset"], cut["length"]) for cut in report.cut or []] == [
        (second[0], len(data) - second[0])
    ]


def test_sound_single_table_is_unchanged(tmp_path: Path) -> None:
    data = table(rows(0, 60), PLAIN)
    result, report = repair_single_file(data, "000005.ldb", tmp_path)
    assert result == data
    assert not report.cut


def test_single_table_without_a_readable_block(tmp_path: Path) -> None:
    with pytest.raises(DamageError, match="no block of the table is left"):
        repair_single_file(b"x" * 500, "000005.ldb", tmp_path)


def test_single_table_of_another_order(tmp_path: Path) -> None:
    directory = golden("custom_comparator")
    name = next(file for file in directory.files if file.endswith(".ldb"))
    data = directory.files[name]
    report, _ = repair_single_file(data, name, tmp_path)
    assert report == data
    (tmp_path / "out").unlink()
    report, _ = repair_single_file(flip(data, blocks(data)[-1][0] + 4), name, tmp_path)
    assert sound_entries(MemoryDirectory({name: report})) == sound_entries(MemoryDirectory({name: data}))


@pytest.mark.parametrize("strategy", ["salvage", "prefix"])
def test_repair_of_a_single_log_keeps_undamaged_records(strategy: str, tmp_path: Path) -> None:
    records = [physical(put(n, b"k%d" % n, b"x" * 50)) for n in range(1, 10)]
    data = flip(b"".join(records), len(records[0]) * 3 + 12)
    result, report = repair_single_file(data, "000007.log", tmp_path, strategy)
    kept = records[:3] if strategy == "prefix" else [*records[:3], *records[4:]]
    assert result == b"".join(kept)
    assert report.rows_kept == len(kept)
    assert report.incomplete


@pytest.mark.parametrize("strategy", ["salvage", "prefix"])
def test_repair_of_a_single_manifest_keeps_undamaged_edits(strategy: str, tmp_path: Path) -> None:
    edits = [form([EditField("last_sequence", number=n)]) for n in range(1, 6)]
    data = logged(edits)
    result, _ = repair_single_file(data, "MANIFEST-000003", tmp_path, strategy)
    assert result == data
    (tmp_path / "out").unlink()
    size = len(logged(edits[:1]))
    result, report = repair_single_file(flip(data, size + 8), "MANIFEST-000003", tmp_path, strategy)
    assert result == logged(edits[:1] if strategy == "prefix" else [edits[0], *edits[2:]])
    assert len(report.cut or []) == 1


def test_log_record_indistinguishable_from_content(tmp_path: Path) -> None:
    """A large record after the damage is divided into physical records for its new position."""
    data = b""
    for first in (put(1, b"a", b"x" * 100), large(2, b"big", 70_000), put(3, b"b")):
        data += fragmented(first, len(data))
    result, report = repair_single_file(flip(data, 20), "000007.log", tmp_path)
    assert report.rows_kept == 2
    assert sound_entries(MemoryDirectory({"000007.log": result})) == sound_entries(
        MemoryDirectory({"000007.log": flip(data, 20)})
    )


# Commands


def written(crafted: dict[str, bytes], path: Path) -> Path:
    path.mkdir()
    for name, data in crafted.items():
        (path / name).write_bytes(data)
    return path


def test_repair_in_place_keeps_the_original_in_the_backup(tmp_path: Path) -> None:
    crafted = CraftedDatabase(
        [(2, 5, rows(0, 60))], {8: physical(put(61, b"log"))}, last_sequence=60, settings=BLOOM
    )
    broken = flipped(crafted, "000005.ldb", 20)
    path = written(broken.files, tmp_path / "db")
    report = lw.repair(path, in_place=True, backup=tmp_path / "saved", correct=False)
    assert report.incomplete
    assert lw.verify(path).ok
    assert {child.name for child in (tmp_path / "saved").iterdir()} >= {"000005.ldb", "CURRENT"}
    assert (tmp_path / "saved" / "000005.ldb").read_bytes() == broken.files["000005.ldb"]
    assert (
        "CURRENT" in (path / "CURRENT").read_text()
        or (path / (path / "CURRENT").read_text().strip()).exists()
    )


def test_dry_run_and_options(tmp_path: Path) -> None:
    crafted = CraftedDatabase([(2, 5, rows(0, 60))], last_sequence=60, settings=BLOOM)
    path = written(flipped(crafted, "000005.ldb", 20).files, tmp_path / "db")
    before = {child.name: child.read_bytes() for child in path.iterdir()}
    report = lw.repair(path, dry_run=True, bloomBitsPerKey=8)
    assert "would be" in str(report)
    assert {child.name: child.read_bytes() for child in path.iterdir()} == before
    with pytest.raises(UsageError, match="orphans"):
        lw.repair(path, dry_run=True, orphans="both")


def test_rebuild_restores_missing_metadata(tmp_path: Path) -> None:
    crafted = CraftedDatabase([(1, 5, rows(0, 20))], last_sequence=40)
    path = written(without_metadata(crafted).files, tmp_path / "db")
    lw.rebuild(path, tmp_path / "out")
    assert lw.read(tmp_path / "out").num_rows == 20
    assert lw.verify(tmp_path / "out").ok
    with pytest.raises(UsageError, match="manifest"):
        lw.rebuild(path, tmp_path / "more", what="manifesto")
