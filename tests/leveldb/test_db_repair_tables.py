"""Repair of LevelDB tables: each kind of damage, what is kept, and what is reported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from leveldb_build import missed_key
from leveldb_damage import (
    BLOOM,
    PLAIN,
    SNAPPY,
    Rows,
    blocks,
    flip,
    flipped,
    levels,
    rows,
    version,
    warnings_of,
)
from leveldb_repair import check_leveldb_accepts, database, handmade_table, repaired, sound_entries
from leveldb_startup import CraftedDatabase, physical, put, table
from memory_directory import MemoryDirectory

import logwright as lw
from logwright.codec.leveldb.formats.table.compression import sealed
from logwright.codec.leveldb.formats.table.filter import Filter, hash_keys
from logwright.codec.leveldb.formats.table.layout import handle, pack_entries
from logwright.codec.leveldb.formats.table.write import TableSettings, footer, metaindex_block
from logwright.codec.leveldb.keys import internal_key

# Tables


def test_sound_database_is_unchanged() -> None:
    directory = MemoryDirectory(
        {
            **CraftedDatabase([(1, 5, rows(0, 20))], {8: physical(put(30, b"a"))}, last_sequence=29).files,
            "LOCK": b"",
            "x.txt": b"x",
        }
    )
    result, repair_plan = repaired(directory)
    assert result.files == directory.files
    assert not repair_plan.cut
    assert not repair_plan.removes
    assert repair_plan.summary().warnings == ()
    assert repair_plan.summary().rows == 21
    assert repair_plan.summary().ids == {"first_sequence": 1, "last_sequence": 30}


@pytest.mark.parametrize("settings", [PLAIN, BLOOM], ids=["plain", "bloom"])
@pytest.mark.parametrize("damage", ["footer", "index", "metaindex"])
def test_derived_parts_are_rebuilt_byte_for_byte(settings: TableSettings, damage: str) -> None:
    crafted = CraftedDatabase([(2, 5, rows(0, 60))], last_sequence=60, settings=settings)
    data = crafted.files["000005.ldb"]
    place = {"footer": len(data) - 1, "index": blocks(data)[-1][0] + 5, "metaindex": blocks(data)[-2][0] + 1}[
        damage
    ]
    result, repair_plan = repaired(flipped(crafted, "000005.ldb", place))
    assert result.files == crafted.files
    assert [cut.rows_lost for cut in repair_plan.cut] == [0]


def test_lost_block_costs_its_rows_only() -> None:
    crafted = CraftedDatabase([(2, 5, rows(0, 60))], last_sequence=60, settings=BLOOM)
    data = crafted.files["000005.ldb"]
    third = blocks(data)[2]
    before = sound_entries(MemoryDirectory(crafted.files))
    directory = flipped(crafted, "000005.ldb", third[0] + 20)
    result, repair_plan = repaired(directory)
    live = check_leveldb_accepts(result)
    assert sound_entries(result) == sound_entries(directory)
    lost = sorted(before - sound_entries(result))
    (cut,) = repair_plan.cut
    assert (cut.file, cut.offset, cut.length) == ("000005.ldb", third[0], third[1] + 5)
    assert cut.rows_lost is None
    assert cut.lost["smallest"] < lost[0][0].decode() <= lost[-1][0].decode() <= cut.lost["largest"]
    assert levels(result) == {5: 2}
    # The blocks are unchanged; the filter is rebuilt with the settings of the old one.
    made_anew = result.files["000005.ldb"]
    assert made_anew.startswith(data[: third[0]] + data[third[0] + third[1] + 5 : blocks(data)[5][0]])
    offset, size, _ = next(block for block in blocks(made_anew) if block[2] == 1)
    keys = b"".join(key for key, _ in live)
    hashes = np.empty(len(live), np.int64)
    hash_keys(np.frombuffer(keys, np.uint8), np.arange(len(live) + 1) * 6, 0, len(live), hashes)
    filter_ = Filter(np.frombuffer(made_anew[offset : offset + size], np.uint8))
    assert missed_key(filter_, 0, hashes[:2]) is None
    # A matching manifest.
    assert version(result).last_sequence == 60
    assert sorted(repair_plan.removes) == [
        next(name for name in crafted.files if name.startswith("MANIFEST"))
    ]


def test_first_and_last_block_lost() -> None:
    crafted = CraftedDatabase([(2, 5, rows(0, 60))], last_sequence=60, settings=PLAIN)
    data = [block for block in blocks(crafted.files["000005.ldb"]) if block[2] == 0]
    directory = flipped(crafted, "000005.ldb", data[0][0] + 9, data[-1][0] + 9)
    result, repair_plan = repaired(directory)
    assert sound_entries(result) == sound_entries(directory)
    kept = [key.decode() for key, _ in check_leveldb_accepts(result)]
    first, last = repair_plan.cut
    assert first.lost["smallest"] == "key000"
    assert kept[-1] <= last.lost["smallest"] < "key059"
    level, meta = version(result).files[5]
    assert level == 2
    assert meta.smallest[:-8].decode() == kept[0]
    assert meta.largest[:-8].decode() == kept[-1]


def test_older_entries_that_may_reappear_are_reported() -> None:
    new, old = rows(0, 60, b"new", 100), rows(0, 60, b"old", 1)
    crafted = CraftedDatabase([(1, 7, new), (2, 5, old)], last_sequence=200, settings=PLAIN)
    second = blocks(crafted.files["000007.ldb"])[1]
    result, repair_plan = repaired(flipped(crafted, "000007.ldb", second[0] + 20))
    assert {value for _, value in check_leveldb_accepts(result)} == {b"new", b"old"}
    assert "000007.ldb has lost entries with keys key" in warnings_of(repair_plan)
    assert "may become visible again in 000005.ldb" in warnings_of(repair_plan)
    # The loss in the older table reveals nothing.
    third = blocks(crafted.files["000005.ldb"])[1]
    _, repair_plan = repaired(flipped(crafted, "000005.ldb", third[0] + 20))
    assert "seen again" not in warnings_of(repair_plan)


def test_table_without_a_readable_block_is_removed() -> None:
    crafted = CraftedDatabase([(1, 5, rows(0, 20)), (1, 7, rows(30, 40))], last_sequence=40, settings=PLAIN)
    result, repair_plan = repaired(MemoryDirectory({**crafted.files, "000005.ldb": b""}))
    assert "000005.ldb" not in result.files
    assert levels(result) == {7: 1}
    assert [key for key, _ in check_leveldb_accepts(result)] == [key for key, _, _ in rows(30, 40)]
    (cut,) = [cut for cut in repair_plan.cut if cut.rows_lost != 0]
    assert (cut.lost["smallest"], cut.lost["largest"]) == ("key000", "key019")


def test_missing_table_is_left_out_and_reported() -> None:
    crafted = CraftedDatabase(
        [(1, 5, rows(0, 20, b"new", 100)), (3, 3, rows(0, 40, b"old"))], last_sequence=200, settings=PLAIN
    )
    result, repair_plan = repaired(
        MemoryDirectory({name: data for name, data in crafted.files.items() if name != "000005.ldb"})
    )
    assert levels(result) == {3: 3}
    (cut,) = repair_plan.cut
    assert (cut.file, cut.length, cut.lost["smallest"]) == ("000005.ldb", 0, "key000")
    assert "may become visible again in 000003.ldb" in warnings_of(repair_plan)
    check_leveldb_accepts(result)


def test_old_suffix_is_kept() -> None:
    crafted = CraftedDatabase([(2, 5, rows(0, 60))], last_sequence=60, settings=PLAIN)
    files = {("000005.sst" if name == "000005.ldb" else name): data for name, data in crafted.files.items()}
    data = bytearray(files["000005.sst"])
    data[20] ^= 1
    result, _ = repaired(MemoryDirectory({**files, "000005.sst": bytes(data)}))
    assert "000005.sst" in result.files
    check_leveldb_accepts(result)


def test_unusable_names_are_fixed() -> None:
    crafted = CraftedDatabase(
        [(2, 5, rows(0, 60))], {8: physical(put(61, b"log"))}, last_sequence=60, settings=PLAIN
    )
    names = {"000005.ldb": "5.ldb", "000008.log": "8.log"}
    result, repair_plan = repaired(
        MemoryDirectory({names.get(name, name): data for name, data in crafted.files.items()})
    )
    assert result.files == crafted.files
    assert sorted(repair_plan.removes) == ["5.ldb", "8.log"]
    assert len(check_leveldb_accepts(result)) == 61
    both = MemoryDirectory({**crafted.files, "5.ldb": b"?", "8.log": b"?", "000005.sst": b"?"})
    result, repair_plan = repaired(both)
    assert result.files == crafted.files
    assert "5.ldb is not in the result: 000005.ldb has the same number." in warnings_of(repair_plan)


def test_snappy_table_gets_a_snappy_index() -> None:
    crafted = CraftedDatabase([(2, 5, rows(0, 900, b"v" * 60))], last_sequence=900, settings=SNAPPY)
    directory = flipped(crafted, "000005.ldb", 30)
    result, _ = repaired(directory)
    offset, size, _ = blocks(result.files["000005.ldb"])[-1]
    assert result.files["000005.ldb"][offset + size] == 1
    assert sound_entries(result) == sound_entries(directory)
    check_leveldb_accepts(result)


def test_bits_per_key_by_option() -> None:
    crafted = CraftedDatabase([(2, 5, rows(0, 60))], last_sequence=60, settings=BLOOM)
    directory = flipped(crafted, "000005.ldb", 20)
    for bits, cases in ((0, False), (20, True)):
        result, _ = repaired(directory, bloom_bits_per_key=bits)
        assert any(kind == 1 for _, _, kind in blocks(result.files["000005.ldb"])) is cases
        check_leveldb_accepts(result)


def test_damaged_filter_with_unknown_bits_is_left_out() -> None:
    crafted = CraftedDatabase([(2, 5, rows(0, 60))], last_sequence=60, settings=BLOOM)
    offset, _, _ = next(block for block in blocks(crafted.files["000005.ldb"]) if block[2] == 1)
    result, repair_plan = repaired(flipped(crafted, "000005.ldb", offset + 3))
    assert not any(kind == 1 for _, _, kind in blocks(result.files["000005.ldb"]))
    assert "pass bloom_bits_per_key" in warnings_of(repair_plan)
    check_leveldb_accepts(result)
    result, repair_plan = repaired(flipped(crafted, "000005.ldb", offset + 3), bloom_bits_per_key=12)
    assert result.files["000005.ldb"] == crafted.files["000005.ldb"]
    assert warnings_of(repair_plan) == ""


def test_filter_of_another_policy_is_left_out_if_blocks_move() -> None:
    data = handmade_table([(b"a", 1)], [(b"b", 2)], filtered=[b"a", b"b"], policy="my.Filter")
    directory = database(data)
    broken = bytearray(data)
    broken[10] ^= 1
    result, repair_plan = repaired(MemoryDirectory({**directory.files, "000003.ldb": bytes(broken)}))
    assert "the policy my.Filter is unknown" in warnings_of(repair_plan)
    assert [key for key, _ in check_leveldb_accepts(result)] == [b"b"]


def test_filter_without_some_keys_is_rebuilt() -> None:
    result, _ = repaired(
        database(handmade_table([(b"a", 1), (b"b", 2)], filtered=[b"a"])), bloom_bits_per_key=10
    )
    assert [key for key, _ in check_leveldb_accepts(result)] == [b"a", b"b"]


def test_readable_part_of_a_block_is_kept() -> None:
    good = pack_entries([(internal_key(b"a", 1, 1), b"1"), (internal_key(b"b", 2, 1), b"2")], 16)
    bad = bytearray(pack_entries([(internal_key(b"c", 3, 1), b"3"), (internal_key(b"d", 4, 1), b"4")], 16))
    bad[15] = 100  # The value of the second entry extends beyond the block.
    typed = pack_entries([(internal_key(b"e", 5, 1), b"5"), (b"f", b"6")], 16)
    data = by_blocks([good, bytes(bad), typed])
    directory = database(data)
    result, repair_plan = repaired(directory)
    assert [key for key, _ in check_leveldb_accepts(result)] == [b"a", b"b", b"c", b"e"]
    whys = [cut.why for cut in repair_plan.cut]
    assert whys == [
        "bad entry in block; 1 entry before it kept",
        "corrupted internal key: 1 of 2 entries; 1 entry before it kept",
    ]


def by_blocks(contents: Sequence[bytes], kinds: Sequence[int] | None = None) -> bytes:
    """A table of these data blocks, with index keys that sort after them."""

    out, index = b"", []
    for n, content in enumerate(contents):
        index.append(
            (
                internal_key(b"b%c" % n if n == 0 else b"%c" % (98 + 2 * n), 1 << 50, 1),
                handle(len(out), len(content)),
            )
        )
        out += sealed(content, 0 if kinds is None else kinds[n])
    meta = sealed(metaindex_block(None, 16), 0)
    place, out = handle(len(out), len(meta) - 5), out + meta
    data = sealed(pack_entries(index, 1), 0)
    return out + data + footer(place, handle(len(out), len(data) - 5))


def test_table_with_a_block_of_unknown_type_is_unchanged() -> None:
    """Even if another part of it is damaged: unknown and damaged blocks cannot be distinguished. `repair` asks first."""
    good = pack_entries([(internal_key(b"a", 1, 1), b"1")], 16)
    other = b"!" + pack_entries([(internal_key(b"c", 3, 1), b"3")], 16)
    for kind in (2, 3, 7):
        data = by_blocks([good, other], [0, kind])
        directory = database(data)
        result, repair_plan = repaired(directory)
        assert result.files == directory.files
        assert "of an unknown type" in warnings_of(repair_plan)
    broken = bytearray(data)
    broken[4] ^= 1
    result, repair_plan = repaired(MemoryDirectory({**directory.files, "000003.ldb": bytes(broken)}))
    assert result.files["000003.ldb"] == bytes(broken)
    assert not repair_plan.cut


def test_unordered_keys_are_sorted() -> None:
    data = handmade_table(
        [(b"c", 5), (b"a", 6)],
        [(b"b", 9), (b"b", 7), (b"b", 7)],
        keys=[internal_key(b"c", 1, 1), internal_key(b"d", 1, 1)],
    )
    result, repair_plan = repaired(database(data))
    assert [key for key, _ in check_leveldb_accepts(result)] == [b"a", b"b", b"c"]
    assert "rewritten from its entries, since its keys are out of order" in warnings_of(repair_plan)
    assert sound_entries(result) == sound_entries(database(data))


@pytest.mark.parametrize("share", [0, 0.3, 0.9])
@pytest.mark.parametrize("settings", [PLAIN, BLOOM], ids=["plain", "bloom"])
def test_repeated_end_of_a_table_is_not_read_twice(
    settings: TableSettings, share: float, tmp_path: Path
) -> None:
    """The footer at the end of the file and the one behind the index are the same."""
    crafted = CraftedDatabase([(1, 5, rows(0, 60))], last_sequence=100, settings=settings)
    data = crafted.files["000005.ldb"]
    repeated = {**crafted.files, "000005.ldb": data + data[int(len(data) * share) :]}
    result, _ = repaired(MemoryDirectory(repeated))
    assert result.files == crafted.files
    for name, content in repeated.items():
        (tmp_path / name).write_bytes(content)
    with pytest.warns(lw.DamageWarning):
        live = lw.read(tmp_path, mode="DROPMALFORMED", columns="key")
    assert live["key"].to_pylist() == [key for key, _, _ in rows(0, 60)]


def test_table_inside_a_value_is_not_taken_for_the_table() -> None:
    """The index is lost, and the block around a value that is a complete table: its blocks are not part of the database."""
    inner = table(rows(100, 140, b"inner"), PLAIN)
    outer: Rows = [*rows(0, 30), (b"key050", 60, inner), *rows(200, 230)]
    crafted = CraftedDatabase([(2, 5, outer)], last_sequence=300, settings=PLAIN)
    data = crafted.files["000005.ldb"]
    around = data.index(inner)
    index = blocks(data)[-1][0]
    directory = flipped(crafted, "000005.ldb", around - 3, index + 3)
    result, _ = repaired(directory)
    assert {value for _, value in check_leveldb_accepts(result)} == {b"value"}
    keys = [key for key, _ in check_leveldb_accepts(result)]
    assert set(keys) <= {key for key, _, _ in outer}


def test_range_of_the_manifest_bounds_the_found_blocks() -> None:
    crafted = CraftedDatabase([(2, 5, rows(0, 10))], last_sequence=300, settings=PLAIN)
    alien = sealed(pack_entries([(internal_key(b"zzz", 1, 1), b"alien")], 16), 0)
    data = crafted.files["000005.ldb"]
    at = blocks(data)[0][1] + 5
    result, repair_plan = repaired(
        MemoryDirectory({**crafted.files, "000005.ldb": data[:at] + b"#" + alien + b"#" + data[at:]})
    )
    assert b"zzz" not in [key for key, _ in check_leveldb_accepts(result)]
    assert any("a copy of a block within a value" in cut.why for cut in repair_plan.cut)


def test_filter_with_unknown_settings() -> None:
    """If a block is lost, the filter must be rebuilt."""
    many = [b"a", b"b", b"c", *(b"%d" % n for n in range(100))]
    for filtered, inferable in ((many, True), ([], False)):
        data_before = handmade_table([(b"a", 1)], [(b"b", 2)], [(b"c", 3)], filtered=filtered)
        result, repair_plan = repaired(database(flip(data_before, 10)))
        assert [key for key, _ in check_leveldb_accepts(result)] == [b"b", b"c"]
        data = result.files["000003.ldb"]
        assert ("pass bloom_bits_per_key" in warnings_of(repair_plan)) is not inferable
        assert any(kind == 1 for _, _, kind in blocks(data)) is inferable


def test_unordered_unique_keys_are_sorted() -> None:
    result, repair_plan = repaired(database(handmade_table([(b"z", 1), (b"b", 2)], [(b"c", 3)])))
    assert [key for key, _ in check_leveldb_accepts(result)] == [b"b", b"c", b"z"]
    assert "its keys are out of order" in warnings_of(repair_plan)
    result, repair_plan = repaired(database(handmade_table([(b"z", 1), (b"b", 2), (b"b", 2)], [(b"c", 3)])))
    assert [key for key, _ in check_leveldb_accepts(result)] == [b"b", b"c", b"z"]


def test_filter_of_other_keys_reveals_its_probes() -> None:
    """No number of bits per key fits these keys, so a setting that sets as many bits is used."""
    keys = [b"k%05d" % n for n in range(400)]
    others = [b"other%05d" % n for n in range(2000)]
    data = handmade_table([(key, 1) for key in keys], [(b"y", 2)], [(b"z", 3)], filtered=keys + others)
    second = blocks(data)[1][0]
    assert second > 2048
    result, _ = repaired(database(flip(data, second + 5)))
    assert [key for key, _ in check_leveldb_accepts(result)] == [*keys, b"z"]
    assert any(kind == 1 for _, _, kind in blocks(result.files["000003.ldb"]))


def test_block_without_a_readable_entry_is_reported_as_lost(tmp_path: Path) -> None:
    """The type of the block says that it is not compressed, and the checksum agrees."""
    home = tmp_path / "db"
    rows = [{"key": b"key %04d" % n, "value": b"value of the key" * 3} for n in range(400)]
    lw.write(rows, home, "leveldb.db", compression="snappy", block_size=2048)
    (table,) = home.glob("*.ldb")
    op = f"set:file={table.name},frame=2,field=type,value=0,reseal"
    lw.damage(home, out=tmp_path / "damaged", op=[op])
    report = lw.repair(tmp_path / "damaged" / "db", tmp_path / "repaired").to_dict()
    (cut,) = report["cut"]
    assert cut["rows_lost"] is None
    left = {row["key"] for row in lw.read(tmp_path / "repaired").to_pylist()}
    lost = sorted({row["key"] for row in rows} - left)
    assert lost
    assert cut["lost"]["smallest"] < lost[0].decode()
    assert cut["lost"]["largest"] > lost[-1].decode()
