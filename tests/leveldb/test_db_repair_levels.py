"""Repair of table metadata in LevelDB databases: levels, manifests, CURRENT."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from leveldb_damage import (
    PLAIN,
    Rows,
    blocks,
    flip,
    flipped,
    levels,
    rows,
    version,
    warnings_of,
    with_manifest,
    without_metadata,
)
from leveldb_repair import (
    check_faults,
    check_leveldb_accepts,
    database,
    golden,
    handmade_table,
    repaired,
    sound_entries,
)
from leveldb_startup import CraftedDatabase, physical, put, table
from memory_directory import MemoryDirectory

from logwright.codec.fault import DamageError, Severity, UsageError
from logwright.codec.leveldb.formats.manifest.layout import EditField, form
from logwright.codec.leveldb.keys import internal_key
from logwright.codec.leveldb.names import manifest_name, table_name
from logwright.codec.leveldb.startup.version_set import logged
from logwright.codec.leveldb.store.version import read_descriptor
from logwright.codec.store.listing import Entry

# Levels and manifests


def test_tables_without_a_manifest_are_placed_by_age() -> None:
    crafted = CraftedDatabase(
        [
            (0, 9, rows(0, 5, b"3", 300)),
            (1, 5, rows(0, 50, b"1")),
            (1, 7, rows(60, 70, b"x")),
            (0, 4, rows(3, 20, b"2", 200)),
        ],
        last_sequence=400,
    )
    result, repair_plan = repaired(without_metadata(crafted))
    assert levels(result) == {5: 6, 7: 6, 4: 5, 9: 4}
    assert version(result).last_sequence == 304
    assert check_leveldb_accepts(result) == check_leveldb_accepts(MemoryDirectory(crafted.files))
    assert "No manifest is left" in warnings_of(repair_plan)
    assert "deleted keys are back" in warnings_of(repair_plan)


def test_tables_newer_than_a_manifest_that_names_missing_ones_are_adopted() -> None:
    """The manifest ends before the edit of a compaction: no checksum shows it."""
    before = CraftedDatabase([(2, 5, rows(0, 50, b"1"))], last_sequence=60, next_file_number=9)
    after = CraftedDatabase([(2, 9, rows(0, 50, b"2", 100))], last_sequence=200)
    files = {name: data for name, data in before.files.items() if name != table_name(5)}
    result, _ = repaired(MemoryDirectory({**files, table_name(9): after.files[table_name(9)]}))
    assert check_leveldb_accepts(result) == [(key, value) for key, _, value in rows(0, 50, b"2", 100)]
    # An older one was replaced before.
    older = CraftedDatabase([(2, 7, rows(0, 40, b"0"))], last_sequence=200)
    result, _ = repaired(MemoryDirectory({**files, table_name(7): older.files[table_name(7)]}))
    assert levels(result) == {}


@pytest.mark.parametrize("exchanged", [(4, 9), (4, 7), (7, 9), (5, 9)])
def test_exchanged_tables_are_placed_by_age(exchanged: tuple[int, int]) -> None:
    """The entries of the manifest are those of other tables: Get searches the newest first again."""
    crafted = CraftedDatabase(
        [
            (0, 9, rows(0, 30, b"4", 400)),
            (0, 7, rows(5, 20, b"3", 300)),
            (0, 4, rows(3, 20, b"2", 200)),
            (1, 5, rows(0, 50, b"1")),
        ],
        last_sequence=500,
    )
    first, second = map(table_name, exchanged)
    files = {**crafted.files, first: crafted.files[second], second: crafted.files[first]}
    result, _ = repaired(MemoryDirectory(files))
    assert check_leveldb_accepts(result) == check_leveldb_accepts(MemoryDirectory(crafted.files))
    assert check_faults(result, Severity.WARNING) == []
    assert {level for level in levels(result).values() if level} <= {1, 5, 6}


@pytest.mark.parametrize("name", ["000006.ldb", "000099.ldb", "000005.log", "000005.ldb.bak"])
def test_table_under_a_wrong_name_is_found_by_its_size_and_keys(name: str) -> None:
    crafted = CraftedDatabase(
        [(0, 9, rows(0, 30, b"2", 200)), (2, 5, rows(0, 50, b"1")), (2, 7, rows(60, 70, b"1", 100))],
        last_sequence=500,
    )
    files = {item: data for item, data in crafted.files.items() if item != table_name(5)}
    result, repair_plan = repaired(MemoryDirectory({**files, name: crafted.files[table_name(5)]}))
    assert {item: result.files[item] for item in crafted.files} == crafted.files
    assert name not in result.files
    assert f"{name} is 000005.ldb, which the manifest names" in warnings_of(repair_plan)
    # Other keys are those of another table.
    other = table(
        [(key, sequence + 1, value) for key, sequence, value in rows(0, 50, b"1")], crafted.settings
    )
    assert len(other) == len(crafted.files[table_name(5)])
    result, _ = repaired(MemoryDirectory({**files, name: other}))
    assert 5 not in levels(result)


def test_tables_with_mixed_sequence_numbers_are_compared_by_keys() -> None:
    upper: Rows = [(b"a", 50, b"new"), (b"c", 3, b"c"), (b"e", 60, b"e")]
    lower: Rows = [(b"a", 10, b"old"), (b"b", 55, b"b"), (b"d", 4, b"d")]
    for numbers in ((5, 7), (7, 5)):
        crafted = CraftedDatabase([(1, numbers[0], upper), (2, numbers[1], lower)], last_sequence=60)
        result, _ = repaired(without_metadata(crafted))
        assert levels(result) == {numbers[0]: 5, numbers[1]: 6}
        assert check_leveldb_accepts(result) == check_leveldb_accepts(MemoryDirectory(crafted.files))


def test_tangled_tables_are_reported() -> None:
    upper: Rows = [(b"a", 50, b"new"), (b"b", 1, b"old")]
    other: Rows = [(b"a", 10, b"old"), (b"b", 55, b"new")]
    crafted = CraftedDatabase([(0, 5, upper), (0, 7, other)], last_sequence=60)
    result, repair_plan = repaired(without_metadata(crafted))
    assert levels(result) == {5: 0, 7: 0}
    assert "each has newer entries than another one" in warnings_of(repair_plan)
    assert "CompactRange" in repair_plan.summary().before_you_start[0]


def test_more_ages_than_levels_and_unordered_numbers() -> None:
    ages = [12, 3, 11, 4, 10, 5, 9, 6, 8, 7]
    crafted = CraftedDatabase(
        [(0, number, rows(0, 5, b"%d" % age, 100 * age)) for age, number in enumerate(ages)],
        last_sequence=2000,
    )
    result, repair_plan = repaired(without_metadata(crafted))
    version_edit = version(result)
    level_0 = sorted(entry.number for level, entry in version_edit.files.values() if level == 0)
    assert len(version_edit.files) == 10
    assert len(level_0) == 4
    assert {value for _, value in check_leveldb_accepts(result)} == {b"9"}
    # The highest number of level 0 has the newest entries.
    newest = result.files[f"{level_0[-1]:06d}.ldb"]
    assert newest == crafted.files["000007.ldb"]
    assert set(repair_plan.removes) >= {"000007.ldb", "000008.ldb"}


def test_overlap_in_the_manifest_is_fixed() -> None:
    crafted = CraftedDatabase([(1, 5, rows(0, 20)), (1, 7, rows(10, 30, b"new", 100))], last_sequence=200)
    result, _ = repaired(MemoryDirectory(crafted.files))
    assert len(set(levels(result).values())) == 2
    assert dict(check_leveldb_accepts(result))[b"key015"] == b"new"


def test_sequence_numbers_above_the_last_one_are_fixed() -> None:
    crafted = CraftedDatabase([(1, 5, rows(0, 20))], last_sequence=10)
    result, repair_plan = repaired(MemoryDirectory(crafted.files))
    assert version(result).last_sequence == 20
    assert len(check_leveldb_accepts(result)) == 20
    assert "entries above 10 were hidden before" in warnings_of(repair_plan)


def test_too_narrow_range_and_too_low_file_number_are_fixed() -> None:
    data = handmade_table([(b"a", 1), (b"m", 2), (b"z", 3)])
    result, _ = repaired(database(data, smallest=b"b", largest=b"y"))
    assert len(check_leveldb_accepts(result)) == 3
    crafted = CraftedDatabase([(1, 5, rows(0, 20))], last_sequence=20, next_file_number=5)
    result, _ = repaired(MemoryDirectory(crafted.files))
    assert (version(result).next_file_number or 0) > 6
    check_leveldb_accepts(result)


def test_orphaned_tables_are_adopted() -> None:
    crafted = CraftedDatabase([(1, 5, rows(0, 20))], last_sequence=200, log_number=4)
    orphan = table(rows(10, 30, b"orphan", 100), PLAIN)
    directory = MemoryDirectory(
        {
            **crafted.files,
            "000003.ldb": orphan,
            "000002.log": physical(put(1, b"old")),
            "000004.dbtmp": b"",
            "MANIFEST-000001": b"",
        }
    )
    directory = MemoryDirectory({**directory.files, manifest_name(6): directory.files[manifest_name(6)]})
    result, repair_plan = repaired(directory)
    assert [key for key, _ in check_leveldb_accepts(result)] == [key for key, _, _ in rows(0, 20)]
    assert "000003.ldb is not in the result: a table that the manifest does not name." in warnings_of(
        repair_plan
    )
    assert set(repair_plan.removes) >= {"000003.ldb", "000004.dbtmp", "MANIFEST-000001"}
    result, repair_plan = repaired(directory, orphans="adopt")
    assert len(check_leveldb_accepts(result)) == 30
    assert "adopted although the manifest does not name them" in warnings_of(repair_plan)


def deleted(level: int, number: int) -> EditField:
    return EditField("deleted_file", level=level, number=number)


def test_torn_edit_of_a_compaction() -> None:
    """Its inputs are gone and its output exists: the output is adopted."""
    crafted = CraftedDatabase([(1, 5, rows(0, 20))], last_sequence=40)
    output = table(rows(0, 20), PLAIN)
    directory = with_manifest(crafted, [deleted(1, 5), EditField("next_file_number", number=12)], cut=2)
    files = {**directory.files, "000009.ldb": output}
    del files["000005.ldb"]
    result, repair_plan = repaired(MemoryDirectory(files))
    assert levels(result) == {9: 6}
    assert len(check_leveldb_accepts(result)) == 20
    assert "most likely replaced by a compaction" in warnings_of(repair_plan)
    assert [cut.file for cut in repair_plan.cut] == [
        next(file for file in crafted.files if file.startswith("MANIFEST"))
    ]


def test_table_deleted_by_an_edit_does_not_return() -> None:
    crafted = CraftedDatabase([(1, 5, rows(0, 20)), (1, 7, rows(20, 40))], last_sequence=40)
    directory = with_manifest(crafted, [deleted(1, 5)], [EditField("last_sequence", number=50)], cut=2)
    result, repair_plan = repaired(directory)
    assert levels(result) == {7: 1}
    assert "000005.ldb is not in the result: a table that the manifest deletes." in warnings_of(repair_plan)


def test_snapshot_at_the_start_of_a_manifest_describes_older_tables() -> None:
    """As LevelDB writes it on opening: record 1 has the tables and no numbers."""
    crafted = CraftedDatabase([(1, 5, rows(0, 20))], last_sequence=40)
    _, (meta) = read_descriptor(MemoryDirectory(crafted.files)).version.files[5]
    first = form(
        [
            EditField("comparator", text=b"leveldb.BytewiseComparator"),
            EditField(
                "new_file", level=1, number=5, size=meta.size, smallest=meta.smallest, largest=meta.largest
            ),
        ]
    )
    second = form(
        [
            EditField("log_number", number=12),
            EditField("next_file_number", number=13),
            EditField("last_sequence", number=40),
        ]
    )
    data = logged([first, second, form([EditField("last_sequence", number=99)])])
    orphan = table(rows(10, 30, b"orphan"), PLAIN)
    files = {
        "000005.ldb": crafted.files["000005.ldb"],
        "000008.ldb": orphan,
        "MANIFEST-000011": data[:-1],
        "CURRENT": b"MANIFEST-000011\n",
    }
    result, repair_plan = repaired(MemoryDirectory(files))
    assert levels(result) == {5: 1}
    assert "which begins with a full list" in warnings_of(repair_plan)
    files["000014.ldb"] = files.pop("000008.ldb")
    result, _ = repaired(MemoryDirectory(files))
    assert sorted(levels(result)) == [5, 14]


def test_manifest_is_cut_at_an_invalid_edit_and_levels_are_kept() -> None:
    crafted = CraftedDatabase([(1, 5, rows(0, 20))], last_sequence=40)
    name = next(file for file in crafted.files if file.startswith("MANIFEST"))
    result, repair_plan = repaired(
        MemoryDirectory({**crafted.files, name: crafted.files[name] + physical(b"\x63")})
    )
    assert levels(result) == {5: 1}
    assert [cut.why for cut in repair_plan.cut] == ["VersionEdit: unknown tag"]
    check_leveldb_accepts(result)


@pytest.mark.parametrize("current", [None, b"", b"MANIFEST-000001", b"MANIFEST-000099\n", b"\xff\xfe\n"])
def test_repair_of_current_alone_keeps_all_tables(current: bytes | None) -> None:
    crafted = CraftedDatabase([(1, 5, rows(0, 20))], {8: physical(put(41, b"a"))}, last_sequence=40)
    files = {name: data for name, data in crafted.files.items() if name != "CURRENT"}
    if current is not None:
        files["CURRENT"] = current
    result, repair_plan = repaired(MemoryDirectory(files))
    assert result.files == crafted.files
    assert not repair_plan.cut


def test_newest_sound_manifest_is_used() -> None:
    crafted = CraftedDatabase([(1, 5, rows(0, 20))], last_sequence=40)
    name = next(file for file in crafted.files if file.startswith("MANIFEST"))
    older = logged(
        [
            form(
                [
                    EditField("comparator", text=b"leveldb.BytewiseComparator"),
                    EditField("log_number", number=0),
                    EditField("next_file_number", number=9),
                    EditField("last_sequence", number=1),
                ]
            )
        ]
    )
    newer = logged([form([EditField("comparator", text=b"leveldb.BytewiseComparator")])])
    files = {
        **crafted.files,
        "MANIFEST-000001": older,
        "MANIFEST-000033": newer,
        "MANIFEST-000044": b"",
        "CURRENT": b"",
    }
    result, repair_plan = repaired(MemoryDirectory(files))
    assert result.files[name] == crafted.files[name]
    assert result.files["CURRENT"] == f"{name}\n".encode()
    assert levels(result) == {5: 1}
    assert set(repair_plan.removes) == {"MANIFEST-000001", "MANIFEST-000033", "MANIFEST-000044"}


def test_order_without_a_name() -> None:
    directory = golden("custom_comparator")
    files = {
        name: data for name, data in directory.files.items() if not name.startswith(("MANIFEST", "CURRENT"))
    }
    with pytest.raises(UsageError, match="no manifest names their comparator"):
        repaired(MemoryDirectory(files))
    result, _ = repaired(MemoryDirectory(files), comparator="test.ReverseBytewise")
    assert version(result).comparator == "test.ReverseBytewise"
    assert sound_entries(result) == sound_entries(directory)
    result, repair_plan = repaired(directory)
    assert result.files == directory.files
    assert not repair_plan.cut


def test_damaged_table_of_another_order() -> None:
    directory = golden("custom_comparator")
    name = next(file for file in directory.files if file.endswith(".ldb"))
    data = bytearray(directory.files[name])
    index = blocks(bytes(data))[-1]
    data[index[0] + 4] ^= 1
    result, _ = repaired(MemoryDirectory({**directory.files, name: bytes(data)}))
    assert sound_entries(result) == sound_entries(directory)
    data = bytearray(directory.files[name])
    data[blocks(bytes(data))[0][0] + 9] ^= 1
    broken = MemoryDirectory({**directory.files, name: bytes(data)})
    result, repair_plan = repaired(broken)
    assert sound_entries(result) == sound_entries(broken)
    assert "seen again" not in warnings_of(repair_plan)


def test_current_names_a_manifest_without_edits() -> None:
    crafted = CraftedDatabase([(1, 5, rows(0, 20))], last_sequence=40)
    result, _ = repaired(
        MemoryDirectory({**crafted.files, "CURRENT": b"MANIFEST-000099\n", "MANIFEST-000099": b""})
    )
    assert result.files == crafted.files


def test_too_short_keys_in_a_manifest() -> None:
    """LevelDB's parser accepts them."""
    data = table(rows(0, 20), PLAIN)
    edit = [EditField("new_file", level=1, number=3, size=len(data), smallest=b"abc", largest=b"x" * 20)]
    crafted = CraftedDatabase(last_sequence=100, edit=edit, next_file_number=9, more={"000003.ldb": data})
    result, _ = repaired(MemoryDirectory(crafted.files))
    assert len(check_leveldb_accepts(result)) == 20
    with pytest.raises(DamageError, match="no state from before"):
        repaired(MemoryDirectory({**crafted.files, "000003.ldb": flip(data, 10)}), "prefix")


@pytest.mark.parametrize("shared", [True, False])
def test_tables_with_equal_or_disjoint_entries(shared: bool) -> None:
    first: Rows = [(b"a", 1, b"1"), (b"m", 50, b"m"), (b"z", 9, b"z")]
    other: Rows = [(b"b", 5, b"b"), (b"m", 50, b"m")] if shared else [(b"b", 5, b"b"), (b"n", 60, b"n")]
    result, repair_plan = repaired(
        without_metadata(CraftedDatabase([(0, 5, first), (0, 7, other)], last_sequence=60))
    )
    assert sorted(levels(result).values()) == [5, 6]
    assert {key for key, _ in check_leveldb_accepts(result)} == {key for key, _, _ in [*first, *other]}
    assert "compacted once" not in warnings_of(repair_plan)


def test_many_tables_with_mixed_sequence_numbers() -> None:
    tables = [
        (0, number, [(b"a", number, b"%d" % number), (b"b%02d" % number, 500 - number, b"")])
        for number in range(2, 22)
    ]
    result, _ = repaired(without_metadata(CraftedDatabase(tables, last_sequence=600)))
    assert dict(check_leveldb_accepts(result))[b"a"] == b"21"
    assert len(levels(result)) == 20


def test_damaged_table_is_compared_by_its_remaining_entries() -> None:
    upper: Rows = [(b"a%02d" % n, 50 + n, b"new" * 9) for n in range(20)] + [(b"c", 3, b"c")]
    lower: Rows = [(b"a%02d" % n, 10 + n, b"old" * 9) for n in range(20)] + [(b"d", 75, b"d")]
    crafted = CraftedDatabase([(1, 5, upper), (2, 7, lower)], last_sequence=99, settings=PLAIN)
    directory = without_metadata(crafted)
    for name in ("000005.ldb", "000007.ldb"):
        directory.files[name] = flip(directory.files[name], blocks(directory.files[name])[2][0] + 9)
    result, _ = repaired(directory)
    assert levels(result) == {5: 5, 7: 6}
    assert sound_entries(result) == sound_entries(directory)


def test_unknown_order_without_a_manifest_keeps_level_0() -> None:
    directory = golden("custom_comparator")
    files = {
        name: data for name, data in directory.files.items() if not name.startswith(("MANIFEST", "CURRENT"))
    }
    result, _ = repaired(MemoryDirectory(files), comparator="test.ReverseBytewise")
    assert set(levels(result).values()) == {0}
    with pytest.raises(UsageError, match="unknown comparator"):
        repaired(directory, "system")


def test_strategy_system_reports_what_is_left() -> None:
    crafted = CraftedDatabase([(1, 5, rows(0, 60))], last_sequence=60, settings=PLAIN)
    result, repair_plan = repaired(flipped(crafted, "000005.ldb", 10), "system")
    assert "Iterators end with an error (block checksum mismatch)" in warnings_of(repair_plan)
    assert 50 < repair_plan.summary().rows < 60
    assert sound_entries(result) == sound_entries(flipped(crafted, "000005.ldb", 10))
    records = [physical(put(n, b"k%d" % n)) for n in range(1, 9)] + [physical(b"none")]
    broken = flip(b"".join(records), len(records[0]) + 12)
    result, repair_plan = repaired(
        MemoryDirectory(CraftedDatabase(logs={5: broken, 6: physical(b"small")}).files), "system"
    )
    assert [key for key, _ in check_leveldb_accepts(result)] == [b"k1"]
    assert [(cut.rows_lost, cut.why.partition(":")[0]) for cut in repair_plan.cut] == [
        (1, "checksum mismatch"), (6, "LevelDB skips it although its checksum is right"),
    ]  # fmt: skip


def test_prefix_drops_logs_without_a_batch() -> None:
    broken = flip(physical(put(1, b"k1")) + physical(put(2, b"k2")), 12)
    result, repair_plan = repaired(
        MemoryDirectory(CraftedDatabase(logs={5: broken, 8: physical(b"small")}).files), "prefix"
    )
    assert check_leveldb_accepts(result) == []
    assert repair_plan.summary().rows == 0
    assert repair_plan.summary().ids == {}
    assert "000008.log" in repair_plan.removes


def test_invalid_index_key_is_rebuilt() -> None:
    data = handmade_table(
        [(b"a", 1)],
        [(b"b", 2)],
        [(b"c", 3)],
        keys=[b"short", internal_key(b"b", 2, 1), internal_key(b"c", 3, 1)],
    )
    result, _ = repaired(database(data))
    assert [key for key, _ in check_leveldb_accepts(result)] == [b"a", b"b", b"c"]


def test_file_that_shrinks_while_it_is_read() -> None:
    crafted = CraftedDatabase([(1, 5, rows(0, 20))], {8: physical(put(41, b"a")) * 3}, last_sequence=40)

    class Shrinking(MemoryDirectory):
        def entries(self) -> Sequence[Entry]:
            return [
                Entry(entry.name, entry.size + 100 * entry.name.endswith((".log", ".ldb")))
                for entry in super().entries()
            ]

    directory = Shrinking(crafted.files)
    assert len(sound_entries(directory)) == 21


def test_short_table_between_two_long_ones_is_skipped() -> None:
    """Without an index, of two blocks that end a sequence of the same length the smaller one is used, if it is smaller."""
    data = handmade_table([(b"a", 1)], [(b"m", 2)], [(b"c", 3)], [(b"x", 4)], [(b"y", 5)])
    for keep in (data, handmade_table([(b"a", 1)], [(b"a", 1)], [(b"m", 2)])):
        offset, _, _ = blocks(keep)[-1]
        result, _ = repaired(database(flip(keep, offset + 2)))
        keys = [key for key, _ in check_leveldb_accepts(result)]
        assert keys == sorted(set(keys))
        assert keys[0] == b"a"
