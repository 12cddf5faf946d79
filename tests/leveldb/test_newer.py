"""Tables and logs that are newer than the manifest, as after MANIFEST and CURRENT were restored from an older backup."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from leveldb_damage import levels, rows
from leveldb_repair import check_faults, check_leveldb_accepts, repaired
from leveldb_startup import CraftedDatabase, physical, put
from memory_directory import MemoryDirectory

import logwright as lw
from logwright.codec.fault import DamageError, Severity
from logwright.codec.leveldb.names import log_name, manifest_name, table_name

Pairs = list[tuple[bytes, bytes]]


def log(first: int, stop: int, value: bytes = b"logged", keys: int = 1000) -> bytes:
    return b"".join(physical(put(n, b"key%03d" % (n % keys), value)) for n in range(first, stop))


def pairs(first: int, stop: int, value: bytes) -> Pairs:
    return [(b"key%03d" % n, value) for n in range(first, stop)]


def write(path: Path, files: dict[str, bytes]) -> Path:
    path.mkdir()
    for name, data in files.items():
        (path / name).write_bytes(data)
    return path


def older_manifest() -> dict[str, bytes]:
    """A database with one table and a log, and the metadata from before the table was made."""
    before = CraftedDatabase(logs={3: b""}, last_sequence=0, next_file_number=4)
    after = CraftedDatabase([(2, 5, rows(0, 40, b"table"))], logs={6: log(41, 60)}, last_sequence=40)
    metadata = {name: data for name, data in before.files.items() if name == "CURRENT" or "MANIFEST" in name}
    return {**{name: after.files[name] for name in (table_name(5), log_name(6))}, **metadata}


def test_table_newer_than_the_manifest_is_an_error_of_a_read(tmp_path: Path) -> None:
    path = write(tmp_path / "db", older_manifest())
    with pytest.raises(DamageError, match="sequence numbers up to 40, but the manifest"):
        lw.read(path)
    with pytest.warns(lw.DamageWarning):
        table = lw.read(path, mode="DROPMALFORMED")
    assert [(row["key"], row["value"]) for row in table.to_pylist()] == [
        *pairs(0, 40, b"table"),
        *pairs(41, 60, b"logged"),
    ]


def test_start_with_a_manifest_older_than_a_table_loses_its_entries(tmp_path: Path) -> None:
    path = write(tmp_path / "db", older_manifest())
    report = lw.verify(path)
    assert not report.ok
    assert report["system"]["opens"]
    assert report["system"]["rows_lost"] == 40


def test_table_newer_than_the_manifest_is_kept_by_a_repair() -> None:
    result, _ = repaired(MemoryDirectory(older_manifest()))
    assert check_leveldb_accepts(result) == [*pairs(0, 40, b"table"), *pairs(41, 60, b"logged")]
    assert set(levels(result)) == {5}


def test_table_of_an_interrupted_flush_or_compaction_is_no_damage() -> None:
    """Its entries are in a log in use, or in tables that the manifest names."""
    crafted = CraftedDatabase([(2, 5, rows(0, 40, b"table"))], logs={6: log(41, 60)}, last_sequence=40)
    flushed = CraftedDatabase([(0, 8, [(b"key%03d" % n, n, b"logged") for n in range(41, 60)])])
    merged = CraftedDatabase([(0, 9, rows(10, 30, b"table"))])
    files = {
        **crafted.files,
        table_name(8): flushed.files[table_name(8)],
        table_name(9): merged.files[table_name(9)],
    }
    assert check_faults(MemoryDirectory(files)) == []
    result, _ = repaired(MemoryDirectory(files))
    assert set(levels(result)) == {5}


def test_log_renamed_below_the_first_number_of_the_manifest_is_read() -> None:
    crafted = CraftedDatabase([(2, 5, rows(0, 40, b"table"))], logs={6: log(41, 60)}, last_sequence=40)
    files = {(log_name(2) if name == log_name(6) else name): data for name, data in crafted.files.items()}
    damaged = MemoryDirectory(files)
    assert [name for name, _ in check_faults(damaged)] == [log_name(2)]
    result, plan = repaired(damaged)
    assert check_leveldb_accepts(result) == check_leveldb_accepts(MemoryDirectory(crafted.files))
    assert log_name(6) in result.files
    assert f"{log_name(2)} is renamed to {log_name(6)}" in " ".join(plan.summary().warnings)


def test_log_whose_writes_are_in_tables_is_no_damage() -> None:
    crafted = CraftedDatabase([(2, 5, rows(0, 40, b"table"))], logs={6: log(41, 60)}, last_sequence=40)
    damaged = MemoryDirectory({**crafted.files, log_name(4): log(1, 40)})
    assert check_faults(damaged) == []
    result, _ = repaired(damaged)
    assert log_name(4) not in result.files


@pytest.mark.parametrize("numbers", [(6, 7), (2, 7), (3, 2)])
def test_logs_are_numbered_in_the_order_of_their_writes(numbers: tuple[int, int]) -> None:
    """LevelDB replays them by number: Get would return the older value of a key that is in both."""
    early, late = log(41, 60, b"early", 10), log(60, 80, b"late", 10)
    right = CraftedDatabase([(2, 5, rows(0, 40, b"table"))], logs={6: early, 7: late}, last_sequence=40)
    first, second = map(log_name, numbers)
    files = {name: data for name, data in right.files.items() if not name.endswith(".log")}
    files |= {first: right.files[log_name(7)], second: right.files[log_name(6)]}
    result, _ = repaired(MemoryDirectory(files))
    assert check_leveldb_accepts(result) == check_leveldb_accepts(MemoryDirectory(right.files))
    names = sorted(name for name in result.files if name.endswith(".log"))
    assert [result.files[name] for name in names] == [right.files[log_name(6)], right.files[log_name(7)]]


# Under other names


@pytest.mark.parametrize("name", ["000001.ldb", "000099.ldb", "MANIFEST-000099", "log.bak"])
def test_log_under_another_name_is_read_if_its_writes_are_nowhere_else(name: str, tmp_path: Path) -> None:
    crafted = CraftedDatabase([(2, 5, rows(0, 40, b"table"))], logs={6: log(41, 60)}, last_sequence=40)
    files = {(name if file == log_name(6) else file): data for file, data in crafted.files.items()}
    path = write(tmp_path / "db", files)
    with pytest.raises(DamageError, match="it is a log under another name"):
        lw.read(path)
    with pytest.warns(lw.DamageWarning):
        table = lw.read(path, mode="DROPMALFORMED")
    assert [(row["key"], row["value"]) for row in table.to_pylist()] == [
        *pairs(0, 40, b"table"),
        *pairs(41, 60, b"logged"),
    ]
    assert lw.verify(path)["system"]["rows_lost"] == 19
    result, _ = repaired(MemoryDirectory(files))
    assert check_leveldb_accepts(result) == check_leveldb_accepts(MemoryDirectory(crafted.files))
    assert name not in result.files


def test_backup_of_a_log_in_use_is_ignored() -> None:
    crafted = CraftedDatabase([(2, 5, rows(0, 40, b"table"))], logs={6: log(41, 60)}, last_sequence=40)
    damaged = MemoryDirectory({**crafted.files, "000006.log.bak": log(41, 55)})
    assert check_faults(damaged) == []
    result, _ = repaired(damaged)
    assert result.files == damaged.files


def exchanged(files: Mapping[str, bytes], first: str, second: str) -> dict[str, bytes]:
    return {**files, first: files[second], second: files[first]}


TWO_TABLES = CraftedDatabase(
    [(0, 7, rows(5, 20, b"newer", 100)), (1, 5, rows(0, 40, b"older"))],
    logs={8: log(120, 140, keys=30)},
    last_sequence=119,
)


@pytest.mark.parametrize(
    "names",
    [
        (table_name(7), log_name(8)),
        (table_name(5), log_name(8)),
        (table_name(5), manifest_name(9)),
        (log_name(8), manifest_name(9)),
        (table_name(5), table_name(7)),
        (log_name(8), "CURRENT"),
        (manifest_name(9), "CURRENT"),
        (table_name(5), "CURRENT"),
    ],
)
def test_files_under_each_others_names_are_used_for_what_they_are(names: tuple[str, str]) -> None:
    damaged = MemoryDirectory(exchanged(TWO_TABLES.files, *names))
    assert check_faults(damaged)
    result, _ = repaired(damaged)
    assert check_leveldb_accepts(result) == check_leveldb_accepts(MemoryDirectory(TWO_TABLES.files))
    assert levels(result) == {7: 0, 5: 1}


@pytest.mark.parametrize("name", [table_name(4), table_name(99), "000005.ldb.bak", log_name(5)])
def test_table_in_use_under_another_name_is_read_as_a_repair_keeps_it(name: str, tmp_path: Path) -> None:
    """LevelDB does not open such a database. The size and both ends of the table prove which one it is."""
    files = {(name if file == table_name(5) else file): data for file, data in TWO_TABLES.files.items()}
    path = write(tmp_path / "db", files)
    faults = [fault.detail for file, fault in lw.verify(path).faults if file == name]
    assert "it is 000005.ldb, which the manifest names: it has the same size and the same keys" in faults
    with pytest.warns(lw.DamageWarning):
        rows = lw.read(path, mode="DROPMALFORMED")
    assert rows.equals(lw.read(write(tmp_path / "sound", TWO_TABLES.files)))
    lw.repair(path, tmp_path / "repaired")
    assert rows.equals(lw.read(tmp_path / "repaired"))


def test_output_of_an_unfinished_compaction_replaces_damaged_entries(tmp_path: Path) -> None:
    """A table that no edit names yet has entries of the tables in use: a read uses it where a repair does."""
    sound = TWO_TABLES.files[table_name(5)]
    files = {**TWO_TABLES.files, table_name(99): sound}
    assert [name for name, fault in check_faults(MemoryDirectory(files), Severity.WARNING)] == []
    path = write(
        tmp_path / "db", {**files, table_name(5): sound[:700] + bytes([sound[700] ^ 1]) + sound[701:]}
    )
    with pytest.warns(lw.DamageWarning):
        rows = lw.read(path, mode="DROPMALFORMED", columns=["key", "value", "sequence"])
    intact = lw.read(write(tmp_path / "sound", TWO_TABLES.files), columns=["key", "value", "sequence"])
    assert rows.equals(intact)
    lw.repair(path, tmp_path / "repaired")
    assert rows.equals(lw.read(tmp_path / "repaired", columns=["key", "value", "sequence"]))


def test_content_of_another_type_is_reported() -> None:
    damaged = MemoryDirectory(exchanged(TWO_TABLES.files, table_name(7), log_name(8)))
    texts = {(name, fault.detail) for name, fault in check_faults(damaged)}
    assert (table_name(7), "it has the content of a log: the file was renamed, copied or exchanged") in texts
    assert any(name == log_name(8) and text.startswith(f"it is {table_name(7)}") for name, text in texts)
    damaged = MemoryDirectory(exchanged(TWO_TABLES.files, log_name(8), manifest_name(9)))
    assert any(
        "MANIFEST-000009 has the content of a log" in fault.detail for _, fault in check_faults(damaged)
    )


def test_copy_over_a_table_is_the_loss_of_that_table() -> None:
    damaged = MemoryDirectory({**TWO_TABLES.files, table_name(7): TWO_TABLES.files[table_name(5)]})
    result, plan = repaired(damaged)
    assert levels(result) == {5: 1}
    assert [(cut.file, cut.lost["file"]) for cut in plan.cut] == [(table_name(7), 7)]
    assert f"{table_name(7)} is not in the result: a copy of {table_name(5)}" in " ".join(
        plan.summary().warnings
    )


def test_damaged_table_gives_way_to_a_copy_under_another_name() -> None:
    original = TWO_TABLES.files[table_name(5)]
    damaged = MemoryDirectory({**TWO_TABLES.files, table_name(5): original[:100], "copy of 5": original})
    result, _ = repaired(damaged)
    assert result.files[table_name(5)] == original
    assert check_leveldb_accepts(result) == check_leveldb_accepts(MemoryDirectory(TWO_TABLES.files))


def test_log_that_ends_with_the_bytes_of_a_table_is_a_log() -> None:
    data = TWO_TABLES.files[log_name(8)]
    damaged = {**TWO_TABLES.files, log_name(8): data + TWO_TABLES.files[table_name(5)][-100:]}
    result, _ = repaired(MemoryDirectory(damaged))
    assert check_leveldb_accepts(result) == check_leveldb_accepts(MemoryDirectory(TWO_TABLES.files))


def test_log_with_the_content_of_current_is_an_error() -> None:
    damaged = MemoryDirectory({**TWO_TABLES.files, log_name(8): TWO_TABLES.files["CURRENT"]})
    text = "it has the content of CURRENT: the file was renamed, copied or exchanged"
    assert (log_name(8), text) in {(name, fault.detail) for name, fault in check_faults(damaged)}


def test_table_of_an_unfinished_compaction_replaces_lost_inputs() -> None:
    """It has what the lost table had, as no edit has removed its inputs."""
    merged = CraftedDatabase([(1, 10, [*rows(0, 5, b"older"), *rows(5, 20, b"newer", 100)])])
    files = {**TWO_TABLES.files, table_name(10): merged.files[table_name(10)]}
    right = check_leveldb_accepts(MemoryDirectory(TWO_TABLES.files))
    result, _ = repaired(MemoryDirectory(files))
    assert table_name(10) not in result.files
    for lost in (b"", None):
        damaged = {name: lost if name == table_name(7) else data for name, data in files.items()}
        result, _ = repaired(
            MemoryDirectory({name: data for name, data in damaged.items() if data is not None})
        )
        assert check_leveldb_accepts(result) == right


def test_log_older_than_the_tables_is_noted() -> None:
    """LevelDB searches it first."""
    crafted = CraftedDatabase([(2, 5, rows(0, 40, b"table"))], logs={6: log(20, 30)}, last_sequence=40)
    (fault,) = check_faults(MemoryDirectory(crafted.files), Severity.WARNING)
    assert fault[1].detail == "it has the sequence number 20, but table 5 has numbers up to 40"
    _, plan = repaired(MemoryDirectory(crafted.files))
    assert "000006.log: its writes are not newer than all tables" in " ".join(plan.summary().warnings)
    assert "Get may return older values" in " ".join(plan.summary().before_you_start)


def test_table_continued_with_another_one_ends_where_the_manifest_says() -> None:
    first, second = (TWO_TABLES.files[table_name(number)] for number in (5, 7))
    damaged = MemoryDirectory({**TWO_TABLES.files, table_name(5): first + second})
    assert any("the rest belongs to another file" in fault.detail for _, fault in check_faults(damaged))
    result, plan = repaired(damaged)
    assert result.files[table_name(5)] == first
    assert [(cut.offset, cut.length, cut.rows_lost) for cut in plan.cut] == [(len(first), len(second), 0)]
    assert check_leveldb_accepts(result) == check_leveldb_accepts(MemoryDirectory(TWO_TABLES.files))
