"""Repairing and rebuilding LevelDB databases: each kind of damage, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from leveldb_mending import database, golden, lawful, made_by_hand, rebuilt, repaired, sound_entries
from leveldb_opening import Files, Made, batch, fill, large, physical, put, table

import logwright as lw
from logwright.codec.fault import DamageError, UnreadableError, UsageError
from logwright.codec.layout import Entry
from logwright.codec.leveldb.block import handle, pack_entries, sealed
from logwright.codec.leveldb.db import LAYOUT
from logwright.codec.leveldb.descriptor import read_descriptor
from logwright.codec.leveldb.encode import TableSettings, footer, metaindex_block
from logwright.codec.leveldb.filter import Filter, hash_keys
from logwright.codec.leveldb.framing import BLOCK, fragmented
from logwright.codec.leveldb.index import survey
from logwright.codec.leveldb.keys import internal_key
from logwright.codec.leveldb.names import manifest_name
from logwright.codec.leveldb.opening.version_set import logged
from logwright.codec.leveldb.records import Payloads
from logwright.codec.leveldb.replay import Delivered, replay
from logwright.codec.leveldb.version import Version
from logwright.codec.leveldb.version_edit import EditField, form
from logwright.codec.mending import Kept, Strategy
from logwright.codec.option import Options

Rows = list[tuple[bytes, int, bytes | None]]
PLAIN = TableSettings(compression="none", block_size=128)
BLOOM = TableSettings(compression="none", block_size=128, bloom_bits_per_key=12)
SNAPPY = TableSettings(compression="snappy", block_size=256)


def rows(first: int, stop: int, value: bytes = b"value", sequence: int = 1) -> Rows:
    return [(b"key%03d" % i, sequence + i, value) for i in range(first, stop)]


def blocks(data: bytes) -> list[tuple[int, int, int]]:
    """Offset, size and kind of the blocks of a table."""
    found = survey(
        lambda offset, length: np.frombuffer(data[offset : offset + length], np.uint8), len(data), 1 << 28
    )
    return list(zip(found.offset.tolist(), found.size.tolist(), found.kind.tolist(), strict=True))


def flipped(made: Made, name: str, *places: int) -> Files:
    def change(data: bytearray) -> None:
        for place in places:
            data[place] ^= 0x10

    return made.changed(name, change)


def version(directory: Files) -> Version:
    found = read_descriptor(directory)
    assert found.error is None
    return found.version


def levels(directory: Files) -> dict[int, int]:
    return {number: level for number, (level, _) in version(directory).files.items()}


def said(mending: object) -> str:
    return " ".join(mending.summary().warnings)  # type: ignore[attr-defined]


# Tables


def test_nothing_to_do_is_nothing_done() -> None:
    directory = Files(
        {
            **Made([(1, 5, rows(0, 20))], {8: physical(put(30, b"a"))}, last_sequence=29).files,
            "LOCK": b"",
            "x.txt": b"x",
        }
    )
    result, mending = repaired(directory)
    assert result.files == directory.files
    assert not mending.cut
    assert not mending.removes
    assert mending.summary().warnings == ()
    assert mending.summary().rows == 21
    assert mending.summary().ids == {"first_sequence": 1, "last_sequence": 30}


@pytest.mark.parametrize("settings", [PLAIN, BLOOM], ids=["plain", "bloom"])
@pytest.mark.parametrize("what", ["footer", "index", "metaindex"])
def test_what_can_be_made_again_is_made_again_byte_for_byte(settings: TableSettings, what: str) -> None:
    made = Made([(2, 5, rows(0, 60))], last_sequence=60, settings=settings)
    data = made.files["000005.ldb"]
    place = {"footer": len(data) - 1, "index": blocks(data)[-1][0] + 5, "metaindex": blocks(data)[-2][0] + 1}[
        what
    ]
    result, mending = repaired(flipped(made, "000005.ldb", place))
    assert result.files == made.files
    assert [cut.rows_lost for cut in mending.cut] == [0]


def test_a_lost_block_costs_its_rows_and_no_other() -> None:
    made = Made([(2, 5, rows(0, 60))], last_sequence=60, settings=BLOOM)
    data = made.files["000005.ldb"]
    third = blocks(data)[2]
    before = sound_entries(Files(made.files))
    directory = flipped(made, "000005.ldb", third[0] + 20)
    result, mending = repaired(directory)
    live = lawful(result)
    assert sound_entries(result) == sound_entries(directory)
    lost = sorted(before - sound_entries(result))
    (cut,) = mending.cut
    assert (cut.file, cut.offset, cut.length) == ("000005.ldb", third[0], third[1] + 5)
    assert cut.rows_lost is None
    assert cut.lost["smallest"] < lost[0][0].decode() <= lost[-1][0].decode() <= cut.lost["largest"]
    assert levels(result) == {5: 2}
    # The blocks are those of before, the filter is a new one, as the old one was made.
    made_anew = result.files["000005.ldb"]
    assert made_anew.startswith(data[: third[0]] + data[third[0] + third[1] + 5 : blocks(data)[5][0]])
    offset, size, _ = next(one for one in blocks(made_anew) if one[2] == 1)
    keys = b"".join(key for key, _ in live)
    hashes = np.empty(len(live), np.int64)
    hash_keys(np.frombuffer(keys, np.uint8), np.arange(len(live) + 1) * 6, 0, len(live), hashes)
    filter_ = Filter(np.frombuffer(made_anew[offset : offset + size], np.uint8))
    assert filter_.misses(0, hashes[:2]) is None
    # A manifest that fits.
    assert version(result).last_sequence == 60
    assert sorted(mending.removes) == [next(name for name in made.files if name.startswith("MANIFEST"))]


def test_the_first_and_the_last_block_lost() -> None:
    made = Made([(2, 5, rows(0, 60))], last_sequence=60, settings=PLAIN)
    data = [one for one in blocks(made.files["000005.ldb"]) if one[2] == 0]
    directory = flipped(made, "000005.ldb", data[0][0] + 9, data[-1][0] + 9)
    result, mending = repaired(directory)
    assert sound_entries(result) == sound_entries(directory)
    kept = [key.decode() for key, _ in lawful(result)]
    first, last = mending.cut
    assert first.lost["smallest"] == "key000"
    assert kept[-1] <= last.lost["smallest"] < "key059"
    level, meta = version(result).files[5]
    assert level == 2
    assert meta.smallest[:-8].decode() == kept[0]
    assert meta.largest[:-8].decode() == kept[-1]


def test_older_entries_that_may_show_again_are_told() -> None:
    new, old = rows(0, 60, b"new", 100), rows(0, 60, b"old", 1)
    made = Made([(1, 7, new), (2, 5, old)], last_sequence=200, settings=PLAIN)
    second = blocks(made.files["000007.ldb"])[1]
    result, mending = repaired(flipped(made, "000007.ldb", second[0] + 20))
    assert {value for _, value in lawful(result)} == {b"new", b"old"}
    assert "000007.ldb has lost entries of keys from key" in said(mending)
    assert "may be seen again in 000005.ldb" in said(mending)
    # What is lost of the older one brings nothing back.
    third = blocks(made.files["000005.ldb"])[1]
    _, mending = repaired(flipped(made, "000005.ldb", third[0] + 20))
    assert "seen again" not in said(mending)


def test_a_table_of_which_nothing_is_left_goes() -> None:
    made = Made([(1, 5, rows(0, 20)), (1, 7, rows(30, 40))], last_sequence=40, settings=PLAIN)
    result, mending = repaired(Files({**made.files, "000005.ldb": b""}))
    assert "000005.ldb" not in result.files
    assert levels(result) == {7: 1}
    assert [key for key, _ in lawful(result)] == [key for key, _, _ in rows(30, 40)]
    (cut,) = [cut for cut in mending.cut if cut.rows_lost != 0]
    assert (cut.lost["smallest"], cut.lost["largest"]) == ("key000", "key019")


def test_a_missing_table_is_left_out_and_told() -> None:
    made = Made(
        [(1, 5, rows(0, 20, b"new", 100)), (3, 3, rows(0, 40, b"old"))], last_sequence=200, settings=PLAIN
    )
    result, mending = repaired(
        Files({name: data for name, data in made.files.items() if name != "000005.ldb"})
    )
    assert levels(result) == {3: 3}
    (cut,) = mending.cut
    assert (cut.file, cut.length, cut.lost["smallest"]) == ("000005.ldb", 0, "key000")
    assert "may be seen again in 000003.ldb" in said(mending)
    lawful(result)


def test_an_old_name_is_kept() -> None:
    made = Made([(2, 5, rows(0, 60))], last_sequence=60, settings=PLAIN)
    files = {("000005.sst" if name == "000005.ldb" else name): data for name, data in made.files.items()}
    data = bytearray(files["000005.sst"])
    data[20] ^= 1
    result, _ = repaired(Files({**files, "000005.sst": bytes(data)}))
    assert "000005.sst" in result.files
    lawful(result)


def test_names_that_leveldb_would_not_find_are_set_right() -> None:
    made = Made([(2, 5, rows(0, 60))], {8: physical(put(61, b"log"))}, last_sequence=60, settings=PLAIN)
    names = {"000005.ldb": "5.ldb", "000008.log": "8.log"}
    result, mending = repaired(Files({names.get(name, name): data for name, data in made.files.items()}))
    assert result.files == made.files
    assert sorted(mending.removes) == ["5.ldb", "8.log"]
    assert len(lawful(result)) == 61
    both = Files({**made.files, "5.ldb": b"?", "8.log": b"?", "000005.sst": b"?"})
    result, mending = repaired(both)
    assert result.files == made.files
    assert "5.ldb is not in the result: 000005.ldb has the same number." in said(mending)


def test_a_snappy_table_gets_a_snappy_index() -> None:
    made = Made([(2, 5, rows(0, 900, b"v" * 60))], last_sequence=900, settings=SNAPPY)
    directory = flipped(made, "000005.ldb", 30)
    result, _ = repaired(directory)
    offset, size, _ = blocks(result.files["000005.ldb"])[-1]
    assert result.files["000005.ldb"][offset + size] == 1
    assert sound_entries(result) == sound_entries(directory)
    lawful(result)


def test_bits_per_key_by_option() -> None:
    made = Made([(2, 5, rows(0, 60))], last_sequence=60, settings=BLOOM)
    directory = flipped(made, "000005.ldb", 20)
    for bits, there in ((0, False), (20, True)):
        result, _ = repaired(directory, bloom_bits_per_key=bits)
        assert any(kind == 1 for _, _, kind in blocks(result.files["000005.ldb"])) is there
        lawful(result)


def test_a_damaged_filter_whose_bits_nobody_knows_is_left_out() -> None:
    made = Made([(2, 5, rows(0, 60))], last_sequence=60, settings=BLOOM)
    offset, _, _ = next(one for one in blocks(made.files["000005.ldb"]) if one[2] == 1)
    result, mending = repaired(flipped(made, "000005.ldb", offset + 3))
    assert not any(kind == 1 for _, _, kind in blocks(result.files["000005.ldb"]))
    assert "bloom_bits_per_key says it" in said(mending)
    lawful(result)
    result, mending = repaired(flipped(made, "000005.ldb", offset + 3), bloom_bits_per_key=12)
    assert result.files["000005.ldb"] == made.files["000005.ldb"]
    assert said(mending) == ""


def test_a_filter_of_another_policy_is_left_out_where_blocks_move() -> None:
    data = made_by_hand([(b"a", 1)], [(b"b", 2)], filtered=[b"a", b"b"], policy="my.Filter")
    directory = database(data)
    broken = bytearray(data)
    broken[10] ^= 1
    result, mending = repaired(Files({**directory.files, "000003.ldb": bytes(broken)}))
    assert "my.Filter is not known here" in said(mending)
    assert [key for key, _ in lawful(result)] == [b"b"]


def test_a_filter_that_misses_keys_is_made_anew() -> None:
    result, _ = repaired(
        database(made_by_hand([(b"a", 1), (b"b", 2)], filtered=[b"a"])), bloom_bits_per_key=10
    )
    assert [key for key, _ in lawful(result)] == [b"a", b"b"]


def test_of_a_block_that_can_be_read_in_part_that_is_kept() -> None:
    good = pack_entries([(internal_key(b"a", 1, 1), b"1"), (internal_key(b"b", 2, 1), b"2")], 16)
    bad = bytearray(pack_entries([(internal_key(b"c", 3, 1), b"3"), (internal_key(b"d", 4, 1), b"4")], 16))
    bad[15] = 100  # the value of the second entry goes beyond the block
    typed = pack_entries([(internal_key(b"e", 5, 1), b"5"), (internal_key(b"f", 6, 7), b"6")], 16)
    data = by_blocks([good, bytes(bad), typed])
    directory = database(data)
    result, mending = repaired(directory)
    assert [key for key, _ in lawful(result)] == [b"a", b"b", b"c", b"e"]
    whys = [cut.why for cut in mending.cut]
    assert whys == [
        "bad entry in block; the 1 entries before are kept",
        "corrupted internal key: 1 of 2 entries; the 1 entries before are kept",
    ]


def by_blocks(contents: Sequence[bytes], kinds: Sequence[int] | None = None) -> bytes:
    """A table of these data blocks, with an index of keys that are far enough."""

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


def test_blocks_of_a_fork_are_kept_where_nothing_else_is_wrong() -> None:
    import zlib

    good = pack_entries([(internal_key(b"a", 1, 1), b"1")], 16)
    other = zlib.compress(pack_entries([(internal_key(b"c", 3, 1), b"3")], 16))
    for kind in (2, 4):
        data = by_blocks([good, other], [0, kind])
        directory = database(data)
        result, mending = repaired(directory)
        assert result.files == directory.files
        assert "blocks that only a fork of LevelDB can read" in said(mending)
    broken = bytearray(data)
    broken[4] ^= 1
    result, mending = repaired(Files({**directory.files, "000003.ldb": bytes(broken)}))
    assert "000003.ldb" not in result.files
    assert any("bad block type" in cut.why for cut in mending.cut)


def test_keys_that_are_not_in_order_are_sorted() -> None:
    data = made_by_hand(
        [(b"c", 5), (b"a", 6)],
        [(b"b", 9), (b"b", 7), (b"b", 7)],
        keys=[internal_key(b"c", 1, 1), internal_key(b"d", 1, 1)],
    )
    result, mending = repaired(database(data))
    assert [key for key, _ in lawful(result)] == [b"a", b"b", b"c"]
    assert "written anew from its entries, whose keys are not in order" in said(mending)
    assert sound_entries(result) == sound_entries(database(data))


def test_a_table_within_a_value_is_not_taken_for_the_table() -> None:
    """The index is lost, and the block around a value that is a table itself: its blocks are none of the database."""
    inner = table(rows(100, 140, b"inner"), PLAIN)
    outer: Rows = [*rows(0, 30), (b"key050", 60, inner), *rows(200, 230)]
    made = Made([(2, 5, outer)], last_sequence=300, settings=PLAIN)
    data = made.files["000005.ldb"]
    around = data.index(inner)
    index = blocks(data)[-1][0]
    directory = flipped(made, "000005.ldb", around - 3, index + 3)
    result, _ = repaired(directory)
    assert {value for _, value in lawful(result)} == {b"value"}
    keys = [key for key, _ in lawful(result)]
    assert set(keys) <= {key for key, _, _ in outer}


def test_what_a_manifest_says_of_the_range_bounds_what_is_found() -> None:
    made = Made([(2, 5, rows(0, 10))], last_sequence=300, settings=PLAIN)
    alien = sealed(pack_entries([(internal_key(b"zzz", 1, 1), b"alien")], 16), 0)
    data = made.files["000005.ldb"]
    at = blocks(data)[0][1] + 5
    result, mending = repaired(Files({**made.files, "000005.ldb": data[:at] + alien + data[at:]}))
    assert b"zzz" not in [key for key, _ in lawful(result)]
    assert any("a copy of a block within a value" in cut.why for cut in mending.cut)


# Levels and manifests


def without_metadata(made: Made) -> Files:
    return Files(
        {name: data for name, data in made.files.items() if not name.startswith(("MANIFEST", "CURRENT"))}
    )


def test_without_a_manifest_tables_are_placed_by_age() -> None:
    made = Made(
        [
            (0, 9, rows(0, 5, b"3", 300)),
            (1, 5, rows(0, 50, b"1")),
            (1, 7, rows(60, 70, b"x")),
            (0, 4, rows(3, 20, b"2", 200)),
        ],
        last_sequence=400,
    )
    result, mending = repaired(without_metadata(made))
    assert levels(result) == {5: 6, 7: 6, 4: 5, 9: 4}
    assert version(result).last_sequence == 304
    assert lawful(result) == lawful(Files(made.files))
    assert "No manifest is left" in said(mending)
    assert "keys deleted before are back" in said(mending)


def test_tables_whose_sequence_numbers_mix_are_compared_by_their_keys() -> None:
    upper: Rows = [(b"a", 50, b"new"), (b"c", 3, b"c"), (b"e", 60, b"e")]
    lower: Rows = [(b"a", 10, b"old"), (b"b", 55, b"b"), (b"d", 4, b"d")]
    for numbers in ((5, 7), (7, 5)):
        made = Made([(1, numbers[0], upper), (2, numbers[1], lower)], last_sequence=60)
        result, _ = repaired(without_metadata(made))
        assert levels(result) == {numbers[0]: 5, numbers[1]: 6}
        assert lawful(result) == lawful(Files(made.files))


def test_tangled_tables_are_told() -> None:
    one: Rows = [(b"a", 50, b"new"), (b"b", 1, b"old")]
    other: Rows = [(b"a", 10, b"old"), (b"b", 55, b"new")]
    made = Made([(0, 5, one), (0, 7, other)], last_sequence=60)
    result, mending = repaired(without_metadata(made))
    assert levels(result) == {5: 0, 7: 0}
    assert "each has newer entries than another one" in said(mending)
    assert "CompactRange" in mending.summary().before_you_start[0]


def test_more_ages_than_levels_and_numbers_that_are_not_in_order() -> None:
    ages = [12, 3, 11, 4, 10, 5, 9, 6, 8, 7]
    made = Made(
        [(0, number, rows(0, 5, b"%d" % age, 100 * age)) for age, number in enumerate(ages)],
        last_sequence=2000,
    )
    result, mending = repaired(without_metadata(made))
    found = version(result)
    level_0 = sorted(one.number for level, one in found.files.values() if level == 0)
    assert len(found.files) == 10
    assert len(level_0) == 4
    assert {value for _, value in lawful(result)} == {b"9"}
    # The highest number of level 0 has the newest entries.
    newest = result.files[f"{level_0[-1]:06d}.ldb"]
    assert newest == made.files["000007.ldb"]
    assert set(mending.removes) >= {"000007.ldb", "000008.ldb"}


def test_an_overlap_in_the_manifest_is_set_right() -> None:
    made = Made([(1, 5, rows(0, 20)), (1, 7, rows(10, 30, b"new", 100))], last_sequence=200)
    result, _ = repaired(Files(made.files))
    assert len(set(levels(result).values())) == 2
    assert dict(lawful(result))[b"key015"] == b"new"


def test_sequence_numbers_that_were_not_seen() -> None:
    made = Made([(1, 5, rows(0, 20))], last_sequence=10)
    result, mending = repaired(Files(made.files))
    assert version(result).last_sequence == 20
    assert len(lawful(result)) == 20
    assert "entries beyond 10 were not seen before" in said(mending)


def test_a_range_that_is_too_narrow_and_a_number_that_is_too_low() -> None:
    data = made_by_hand([(b"a", 1), (b"m", 2), (b"z", 3)])
    result, _ = repaired(database(data, smallest=b"b", largest=b"y"))
    assert len(lawful(result)) == 3
    made = Made([(1, 5, rows(0, 20))], last_sequence=20, next_file_number=5)
    result, _ = repaired(Files(made.files))
    assert (version(result).next_file_number or 0) > 6
    lawful(result)


def test_orphans() -> None:
    made = Made([(1, 5, rows(0, 20))], last_sequence=200, log_number=4)
    orphan = table(rows(10, 30, b"orphan", 100), PLAIN)
    directory = Files(
        {
            **made.files,
            "000003.ldb": orphan,
            "000002.log": physical(put(1, b"old")),
            "000004.dbtmp": b"",
            "MANIFEST-000001": b"",
        }
    )
    directory = Files({**directory.files, manifest_name(6): directory.files[manifest_name(6)]})
    result, mending = repaired(directory)
    assert [key for key, _ in lawful(result)] == [key for key, _, _ in rows(0, 20)]
    assert "000003.ldb is not in the result: a table that the manifest does not name." in said(mending)
    assert set(mending.removes) >= {"000003.ldb", "000004.dbtmp", "MANIFEST-000001"}
    result, mending = repaired(directory, orphans="adopt")
    assert len(lawful(result)) == 30
    assert "adopted, though the manifest does not name them" in said(mending)


def with_manifest(made: Made, *edits: Sequence[EditField], name: str | None = None, cut: int = 0) -> Files:
    """With further records in its manifest; without its last `cut` bytes."""
    manifest = name or next(one for one in made.files if one.startswith("MANIFEST"))

    old = made.files[next(one for one in made.files if one.startswith("MANIFEST"))]
    payloads = []
    for found in replay(lambda at, size: np.frombuffer(old[at : at + size], np.uint8), len(old)):
        assert isinstance(found, Delivered)
        some = Payloads.of(found.window, found.frames)
        payloads += [
            some.data[a:b].tobytes() for a, b in zip(some.start.tolist(), some.end.tolist(), strict=True)
        ]
    data = logged([*payloads, *(form(list(edit)) for edit in edits)])
    return Files({**made.files, manifest: data[: len(data) - cut]})


def deleted(level: int, number: int) -> EditField:
    return EditField("deleted_file", level=level, number=number)


def test_a_torn_edit_of_a_compaction() -> None:
    """Its inputs are gone, its output is there: that is adopted."""
    made = Made([(1, 5, rows(0, 20))], last_sequence=40)
    output = table(rows(0, 20), PLAIN)
    directory = with_manifest(made, [deleted(1, 5), EditField("next_file_number", number=12)], cut=2)
    files = {**directory.files, "000009.ldb": output}
    del files["000005.ldb"]
    result, mending = repaired(Files(files))
    assert levels(result) == {9: 6}
    assert len(lawful(result)) == 20
    assert "replaced by a compaction, most likely" in said(mending)
    assert [cut.file for cut in mending.cut] == [
        next(one for one in made.files if one.startswith("MANIFEST"))
    ]


def test_what_an_edit_deleted_does_not_come_back() -> None:
    made = Made([(1, 5, rows(0, 20)), (1, 7, rows(20, 40))], last_sequence=40)
    directory = with_manifest(made, [deleted(1, 5)], [EditField("last_sequence", number=50)], cut=2)
    result, mending = repaired(directory)
    assert levels(result) == {7: 1}
    assert "000005.ldb is not in the result: a table that the manifest says is deleted." in said(mending)


def test_a_manifest_that_begins_with_all_that_there_was_tells_of_older_tables() -> None:
    """As LevelDB writes it on opening: record 1 has the tables and no numbers."""
    made = Made([(1, 5, rows(0, 20))], last_sequence=40)
    _, (meta) = read_descriptor(Files(made.files)).version.files[5]
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
    orphan = table(rows(10, 30, b"orphan", 100), PLAIN)
    files = {
        "000005.ldb": made.files["000005.ldb"],
        "000008.ldb": orphan,
        "MANIFEST-000011": data[:-1],
        "CURRENT": b"MANIFEST-000011\n",
    }
    result, mending = repaired(Files(files))
    assert levels(result) == {5: 1}
    assert "which begins with all that were there" in said(mending)
    files["000014.ldb"] = files.pop("000008.ldb")
    result, _ = repaired(Files(files))
    assert sorted(levels(result)) == [5, 14]


def test_an_edit_that_is_none() -> None:
    made = Made([(1, 5, rows(0, 20))], last_sequence=40)
    name = next(one for one in made.files if one.startswith("MANIFEST"))
    result, mending = repaired(Files({**made.files, name: made.files[name] + physical(b"\x63")}))
    assert levels(result) == {5: 1}
    assert [cut.why for cut in mending.cut] == ["VersionEdit: unknown tag"]
    lawful(result)


@pytest.mark.parametrize("current", [None, b"", b"MANIFEST-000001", b"MANIFEST-000099\n", b"\xff\xfe\n"])
def test_current_alone(current: bytes | None) -> None:
    made = Made([(1, 5, rows(0, 20))], {8: physical(put(41, b"a"))}, last_sequence=40)
    files = {name: data for name, data in made.files.items() if name != "CURRENT"}
    if current is not None:
        files["CURRENT"] = current
    result, mending = repaired(Files(files))
    assert result.files == made.files
    assert not mending.cut


def test_of_several_manifests_the_newest_sound_one_counts() -> None:
    made = Made([(1, 5, rows(0, 20))], last_sequence=40)
    name = next(one for one in made.files if one.startswith("MANIFEST"))
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
        **made.files,
        "MANIFEST-000001": older,
        "MANIFEST-000033": newer,
        "MANIFEST-000044": b"",
        "CURRENT": b"",
    }
    result, mending = repaired(Files(files))
    assert result.files[name] == made.files[name]
    assert result.files["CURRENT"] == f"{name}\n".encode()
    assert levels(result) == {5: 1}
    assert set(mending.removes) == {"MANIFEST-000001", "MANIFEST-000033", "MANIFEST-000044"}


def test_an_order_that_nobody_names() -> None:
    directory = golden("custom_comparator")
    files = {
        name: data for name, data in directory.files.items() if not name.startswith(("MANIFEST", "CURRENT"))
    }
    with pytest.raises(UsageError, match="no manifest says what order"):
        repaired(Files(files))
    result, _ = repaired(Files(files), comparator="test.ReverseBytewise")
    assert version(result).comparator == "test.ReverseBytewise"
    assert sound_entries(result) == sound_entries(directory)
    result, mending = repaired(directory)
    assert result.files == directory.files
    assert not mending.cut


def test_a_damaged_table_of_another_order() -> None:
    directory = golden("custom_comparator")
    name = next(one for one in directory.files if one.endswith(".ldb"))
    data = bytearray(directory.files[name])
    index = blocks(bytes(data))[-1]
    data[index[0] + 4] ^= 1
    result, _ = repaired(Files({**directory.files, name: bytes(data)}))
    assert sound_entries(result) == sound_entries(directory)
    data = bytearray(directory.files[name])
    data[blocks(bytes(data))[0][0] + 9] ^= 1
    broken = Files({**directory.files, name: bytes(data)})
    result, mending = repaired(broken)
    assert sound_entries(result) == sound_entries(broken)
    assert "seen again" not in said(mending)


def test_current_names_a_manifest_without_edits() -> None:
    made = Made([(1, 5, rows(0, 20))], last_sequence=40)
    result, _ = repaired(Files({**made.files, "CURRENT": b"MANIFEST-000099\n", "MANIFEST-000099": b""}))
    assert result.files == made.files


def test_keys_of_a_manifest_that_are_too_short() -> None:
    """The parser takes them."""
    data = table(rows(0, 20), PLAIN)
    edit = [EditField("new_file", level=1, number=3, size=len(data), smallest=b"abc", largest=b"x" * 20)]
    made = Made(last_sequence=100, edit=edit, next_file_number=9, more={"000003.ldb": data})
    result, _ = repaired(Files(made.files))
    assert len(lawful(result)) == 20
    with pytest.raises(DamageError, match="no state from before"):
        repaired(Files({**made.files, "000003.ldb": flip(data, 10)}), "prefix")


@pytest.mark.parametrize("shared", [True, False])
def test_tables_with_the_same_entries_or_none_in_common(shared: bool) -> None:
    one: Rows = [(b"a", 1, b"1"), (b"m", 50, b"m"), (b"z", 9, b"z")]
    other: Rows = [(b"b", 5, b"b"), (b"m", 50, b"m")] if shared else [(b"b", 5, b"b"), (b"n", 60, b"n")]
    result, mending = repaired(without_metadata(Made([(0, 5, one), (0, 7, other)], last_sequence=60)))
    assert sorted(levels(result).values()) == [5, 6]
    assert {key for key, _ in lawful(result)} == {key for key, _, _ in [*one, *other]}
    assert "compacted once" not in said(mending)


def test_many_tables_whose_sequence_numbers_mix() -> None:
    tables = [
        (0, number, [(b"a", number, b"%d" % number), (b"b%02d" % number, 500 - number, b"")])
        for number in range(2, 22)
    ]
    result, _ = repaired(without_metadata(Made(tables, last_sequence=600)))
    assert dict(lawful(result))[b"a"] == b"21"
    assert len(levels(result)) == 20


def test_a_damaged_table_is_compared_by_what_is_left_of_it() -> None:
    upper: Rows = [(b"a%02d" % n, 50 + n, b"new" * 9) for n in range(20)] + [(b"c", 3, b"c")]
    lower: Rows = [(b"a%02d" % n, 10 + n, b"old" * 9) for n in range(20)] + [(b"d", 75, b"d")]
    made = Made([(1, 5, upper), (2, 7, lower)], last_sequence=99, settings=PLAIN)
    directory = without_metadata(made)
    for name in ("000005.ldb", "000007.ldb"):
        directory.files[name] = flip(directory.files[name], blocks(directory.files[name])[2][0] + 9)
    result, _ = repaired(directory)
    assert levels(result) == {5: 5, 7: 6}
    assert sound_entries(result) == sound_entries(directory)


def test_another_order_without_a_manifest_keeps_level_0() -> None:
    directory = golden("custom_comparator")
    files = {
        name: data for name, data in directory.files.items() if not name.startswith(("MANIFEST", "CURRENT"))
    }
    result, _ = repaired(Files(files), comparator="test.ReverseBytewise")
    assert set(levels(result).values()) == {0}
    with pytest.raises(UsageError, match="is not known here"):
        repaired(directory, "system")


def test_system_tells_what_is_left() -> None:
    made = Made([(1, 5, rows(0, 60))], last_sequence=60, settings=PLAIN)
    result, mending = repaired(flipped(made, "000005.ldb", 10), "system")
    assert "Iterators end with an error (block checksum mismatch)" in said(mending)
    assert 50 < mending.summary().rows < 60
    assert sound_entries(result) == sound_entries(flipped(made, "000005.ldb", 10))
    records = [physical(put(n, b"k%d" % n)) for n in range(1, 9)] + [physical(b"none")]
    broken = flip(b"".join(records), len(records[0]) + 12)
    result, mending = repaired(Files(Made(logs={5: broken, 6: physical(b"small")}).files), "system")
    assert [key for key, _ in lawful(result)] == [b"k1"]
    assert [(cut.rows_lost, cut.why.partition(":")[0]) for cut in mending.cut] == [
        (1, "checksum mismatch"), (6, "LevelDB passes over it, though its checksum is right"),
    ]  # fmt: skip


def test_prefix_drops_logs_without_a_batch() -> None:
    broken = flip(physical(put(1, b"k1")) + physical(put(2, b"k2")), 12)
    result, mending = repaired(Files(Made(logs={5: broken, 8: physical(b"small")}).files), "prefix")
    assert lawful(result) == []
    assert mending.summary().rows == 0
    assert mending.summary().ids == {}
    assert "000008.log" in mending.removes


def test_an_index_key_that_is_none_is_made_anew() -> None:
    data = made_by_hand(
        [(b"a", 1)],
        [(b"b", 2)],
        [(b"c", 3)],
        keys=[b"short", internal_key(b"b", 2, 1), internal_key(b"c", 3, 1)],
    )
    result, _ = repaired(database(data))
    assert [key for key, _ in lawful(result)] == [b"a", b"b", b"c"]


def test_a_file_that_becomes_shorter_while_it_is_read() -> None:
    made = Made([(1, 5, rows(0, 20))], {8: physical(put(41, b"a")) * 3}, last_sequence=40)

    class Shrinking(Files):
        def entries(self) -> Sequence[Entry]:
            return [
                Entry(one.name, one.size + 100 * one.name.endswith((".log", ".ldb")))
                for one in super().entries()
            ]

    directory = Shrinking(made.files)
    assert len(sound_entries(directory)) == 21


# Logs


def test_a_log_with_damage_in_the_middle() -> None:
    good = [put(n, b"k%d" % n, b"x" * 100) for n in range(1, 40)]
    data = bytearray(b"".join(physical(one) for one in good))
    data[1000] ^= 1
    made = Made(logs={5: bytes(data)})
    result, mending = repaired(Files(made.files))
    assert len(lawful(result)) == 38
    assert sound_entries(result) == sound_entries(Files(made.files))
    (cut,) = mending.cut
    assert cut.rows_lost == 1
    kept = result.files["000005.log"]
    assert kept[: cut.offset] == data[: cut.offset]
    assert len(kept) == len(data) - cut.length


def test_records_over_several_blocks_behind_damage() -> None:

    payloads = [put(1, b"a"), large(2, b"big", 70_000), put(3, b"b"), large(4, b"too", 90_000), put(5, b"c")]
    data = bytearray()
    for one in payloads:
        data += fragmented(one, len(data))
    data[10] ^= 1
    result, mending = repaired(Files(Made(logs={5: bytes(data)}).files))
    assert [key for key, _ in lawful(result)] == [b"b", b"big", b"c", b"too"]
    assert [cut.offset for cut in mending.cut] == [0]


def test_batches_that_go_wrong_behind_a_right_checksum() -> None:
    wrong_count = batch(10, (b"a", b"1"), (b"b", b"2"), count=3)
    cut_short = batch(20, (b"c", b"3"), (b"d", b"4"))[:-1]
    other_tag = batch(30, (b"e", b"5")) + b"\x07rest"
    nothing = batch(40, count=2) + b"\x09"
    too_small = b"small"
    poison = batch(0)
    too_high = batch(1 << 56, (b"h", b""))
    empty = batch(45)
    records = [
        put(1, b"first"),
        wrong_count,
        cut_short,
        other_tag,
        nothing,
        too_small,
        poison,
        too_high,
        empty,
        put(50, b"last"),
    ]
    data = b"".join(physical(one) for one in records)
    result, mending = repaired(Files(Made(logs={5: data}).files))
    assert [key for key, _ in lawful(result)] == [b"a", b"b", b"c", b"e", b"first", b"last"]
    assert len(mending.cut) == 7
    whys = [cut.why for cut in mending.cut]
    assert whys[0] == "WriteBatch has wrong count; the 2 operation(s) before are kept"
    assert whys[1] == "bad WriteBatch Put; the 1 operation(s) before are kept"
    assert whys[4] == "log record too small"
    assert result.files["000005.log"].endswith(physical(empty) + physical(put(50, b"last")))


def test_a_torn_tail_is_cut_and_zeros_stay() -> None:
    data = physical(put(1, b"a")) + physical(put(2, b"b"))
    result, mending = repaired(Files(Made(logs={5: data[:-3]}).files))
    assert result.files["000005.log"] == physical(put(1, b"a"))
    assert len(mending.cut) == 1
    zeros = Files(Made(logs={5: data + bytes(500)}).files)
    result, mending = repaired(zeros)
    assert result.files == zeros.files
    assert not mending.cut


def test_a_log_that_is_not_there_is_told() -> None:
    made = Made([(1, 3, rows(0, 20))], last_sequence=40, log_number=5)
    result, mending = repaired(Files(made.files))
    assert result.files == made.files
    assert said(mending).startswith("000005.log, which the manifest has as the log in use, is not there")


def test_what_fills_a_block_behind_damage() -> None:
    data = bytearray(physical(put(1, b"a")))
    data += fill(len(data) + 3, 2)
    assert len(data) == BLOCK - 3
    data += b"\0\0\0" + physical(put(3, b"c"))
    data[5] ^= 4
    result, _ = repaired(Files(Made(logs={5: bytes(data)}).files))
    assert [key for key, _ in lawful(result)] == [b"c", b"fill"]


def test_lost_writes_are_told_where_there_is_something_older() -> None:
    data = bytearray(physical(put(41, b"key001", b"new")) + physical(put(42, b"key002", b"new")))
    data[20] ^= 1
    made = Made([(1, 3, rows(0, 20))], {5: bytes(data)}, last_sequence=40)
    result, mending = repaired(Files(made.files))
    assert dict(lawful(result))[b"key001"] == b"value"
    assert "of keys that were written or deleted by what is lost, older entries show" in said(mending)
    assert list(mending.removes) == []


# Back to a state that was


def test_prefix_ends_logs_at_the_first_damage() -> None:
    one = b"".join(physical(put(n, b"k%d" % n)) for n in (1, 2, 3))
    broken = bytearray(one)
    broken[len(physical(put(1, b"k1"))) + 12] ^= 1
    logs = {5: bytes(broken), 8: physical(put(4, b"k4")), 9: b""}
    result, mending = repaired(Files(Made(logs=logs).files), "prefix")
    assert [key for key, _ in lawful(result)] == [b"k1"]
    assert sorted(mending.removes) == ["000008.log", "000009.log"]
    assert [(cut.file, cut.rows_lost) for cut in mending.cut] == [("000008.log", 1), ("000005.log", None)]


def test_prefix_leaves_a_sound_database_as_it_is() -> None:
    directory = Files(Made([(1, 3, rows(0, 20))], {5: physical(put(41, b"a"))}, last_sequence=40).files)
    result, mending = repaired(directory, "prefix")
    assert result.files == directory.files
    assert not mending.cut


@pytest.mark.parametrize("how", ["flip", "missing", "empty"])
def test_prefix_goes_back_before_a_table_that_lost_entries(how: str) -> None:
    made = Made(
        [(1, 3, rows(0, 20)), (0, 5, rows(5, 25, b"lost", 100)), (0, 7, rows(6, 9, b"newer", 200))],
        {9: physical(put(300, b"newest"))}, last_sequence=299,
    )  # fmt: skip
    files = dict(made.files)
    if how == "missing":
        del files["000005.ldb"]
    else:
        files["000005.ldb"] = (
            b"" if how == "empty" else bytes([files["000005.ldb"][0] ^ 1]) + files["000005.ldb"][1:]
        )
    result, mending = repaired(Files(files), "prefix")
    assert lawful(result) == [(key, value) for key, _, value in rows(0, 20)]
    assert levels(result) == {3: 1}
    assert {cut.file for cut in mending.cut} >= {"000007.ldb", "000009.log"}


def test_prefix_mends_what_loses_nothing() -> None:
    made = Made([(1, 3, rows(0, 20))], last_sequence=40, settings=PLAIN)
    data = made.files["000003.ldb"]
    result, _ = repaired(flipped(made, "000003.ldb", len(data) - 1), "prefix")
    assert result.files == made.files


def test_prefix_refuses_where_ages_mix() -> None:
    mixed: Rows = [(b"a", 1, b""), (b"z", 500, b"")]
    made = Made([(1, 3, rows(0, 20, b"", 100)), (2, 5, mixed)], last_sequence=600, settings=PLAIN)
    with pytest.raises(DamageError, match=r"000005\.ldb has entries from before and from behind"):
        repaired(flipped(made, "000003.ldb", 10), "prefix")
    alone = Made([(1, 3, rows(0, 20, b"", 100))], last_sequence=600, settings=PLAIN)
    with pytest.raises(DamageError, match="no table is older"):
        repaired(flipped(alone, "000003.ldb", 10), "prefix")


# What can't be read, and what is not asked rightly


class Dying(Files):
    """A directory on a disk that can't read some bytes of a file."""

    def __init__(self, files: dict[str, bytes], name: str, start: int, stop: int) -> None:
        super().__init__(files)
        self.bad = name, start, stop

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        bad, start, stop = self.bad
        end = len(self.files[name]) if length is None else offset + length
        if name == bad and offset < stop and end > start:
            raise UnreadableError.of(max(start, offset), stop - max(start, offset), "EIO", name)
        return super().read(name, offset, length)


@pytest.mark.parametrize(("start", "stop"), [(0, 40), (300, 310), (1500, 1600), (2300, 2700)])
def test_a_disk_that_cannot_read_some_of_a_table(start: int, stop: int) -> None:
    made = Made([(2, 5, rows(0, 90))], last_sequence=90, settings=BLOOM)
    dying = Dying(made.files, "000005.ldb", start, stop)
    result, mending = repaired(dying)
    assert sound_entries(result) == sound_entries(dying)
    assert len(lawful(result)) >= 60
    assert any("can't read" in cut.why for cut in mending.cut)


@pytest.mark.parametrize(("start", "stop"), [(0, 40), (900, 910), (38_000, 39_000), (49_000, 49_990)])
def test_a_disk_that_cannot_read_some_of_a_log(start: int, stop: int) -> None:
    data = b""
    for n in range(1, 401):
        data += fragmented(put(n, b"k%03d" % n, b"x" * 100), len(data))
    dying = Dying(Made(logs={5: data}).files, "000005.log", start, stop)
    result, mending = repaired(dying)
    assert sound_entries(result) == sound_entries(dying)
    assert len(lawful(result)) >= 380
    assert any("can't read" in cut.why for cut in mending.cut)


def test_zeros_at_the_end_that_cannot_be_read_are_cut() -> None:
    data = physical(put(1, b"a")) + bytes(1000)
    dying = Dying(Made(logs={5: data}).files, "000005.log", 500, 700)
    result, _ = repaired(dying)
    assert result.files["000005.log"] == physical(put(1, b"a"))


def test_current_on_a_dying_disk() -> None:
    made = Made([(1, 5, rows(0, 20))], last_sequence=40)
    dying = Dying(made.files, "CURRENT", 0, 16)
    plan = LAYOUT.plan(dying, Options(LAYOUT.read_options))
    mending = LAYOUT.repair([dying], [plan], Strategy.SALVAGE, Options(LAYOUT.repair_options))
    made_files = {mended.name: mended.pieces for mended in mending.files()}
    name = next(one for one in made.files if one.startswith("MANIFEST"))
    assert made_files["CURRENT"] == [f"{name}\n".encode()]
    assert made_files[name] == [Kept(name, 0, len(made.files[name]))]


def test_copies_are_refused() -> None:
    one = Files(Made([(1, 5, rows(0, 20))], last_sequence=40).files)
    plan = LAYOUT.plan(one, Options(LAYOUT.read_options))
    with pytest.raises(UsageError, match="no replicas"):
        LAYOUT.repair([one, one], [plan, plan], Strategy.SALVAGE, Options(LAYOUT.repair_options))


# Rebuilding


def test_a_manifest_is_rebuilt_from_tables_and_logs() -> None:
    made = Made(
        [(1, 5, rows(0, 20)), (0, 7, rows(5, 9, b"new", 100))],
        {8: physical(put(300, b"log"))},
        last_sequence=299,
    )
    result, mending = rebuilt(without_metadata(made), "manifest", "current")
    assert lawful(result) == lawful(Files(made.files))
    assert version(result).log_number == 8
    assert not mending.cut


def test_a_sound_manifest_is_written_shorter() -> None:
    made = Made([(1, 5, rows(0, 20))], last_sequence=299)
    directory = with_manifest(made, *[[EditField("last_sequence", number=300 + n)] for n in range(50)])
    directory.files["000003.ldb"] = table(rows(0, 30, b"orphan"), PLAIN)
    result, mending = rebuilt(directory, "manifest", "current")
    assert levels(result) == {5: 1}
    assert version(result).last_sequence == 349
    assert "000003.ldb" in result.files
    assert len(mending.removes) == 1
    lawful(result)


def test_current_alone_is_rebuilt() -> None:
    made = Made([(1, 5, rows(0, 20))], last_sequence=299)
    files = {name: data for name, data in made.files.items() if name != "CURRENT"}
    for some in (files, {**files, "CURRENT": b"x"}):
        result, mending = rebuilt(Files(some), "current")
        assert result.files == made.files
        assert mending.summary().rows == 20
        assert not mending.cut
    with pytest.raises(UsageError, match="no sound manifest"):
        rebuilt(without_metadata(made), "current")


def test_damaged_tables_and_logs_are_refused() -> None:
    made = Made([(1, 5, rows(0, 20))], {8: physical(put(300, b"log"))}, last_sequence=299)
    with pytest.raises(DamageError, match=r"000005\.ldb: at byte 0: .*made from sound tables"):
        rebuilt(flipped(made, "000005.ldb", 10), "manifest", "current")
    with pytest.raises(DamageError, match=r"000008\.log"):
        rebuilt(flipped(made, "000008.log", 10), "manifest", "current")
    with pytest.raises(DamageError, match="table 5, which the manifest has in level 1, is not there"):
        rebuilt(Files({name: data for name, data in made.files.items() if name != "000005.ldb"}), "manifest")
    unordered = database(made_by_hand([(b"b", 1), (b"a", 2)], keys=[internal_key(b"c", 1, 1)]))
    with pytest.raises(DamageError, match="its keys are not in order"):
        rebuilt(unordered, "manifest")


# One file alone


def alone(data: bytes, name: str, tmp_path: Path, strategy: str = "salvage") -> tuple[bytes, lw.Report]:
    (tmp_path / name).write_bytes(data)
    report = lw.repair(tmp_path / name, tmp_path / "out", strategy=strategy)
    return (tmp_path / "out").read_bytes(), report


def flip(data: bytes, *places: int) -> bytes:
    out = bytearray(data)
    for place in places:
        out[place] ^= 0x10
    return bytes(out)


def test_a_table_alone(tmp_path: Path) -> None:
    data = table(rows(0, 60), BLOOM)
    second = blocks(data)[1]
    made, report = alone(flip(data, second[0] + 9), "000005.ldb", tmp_path)
    assert report.rows_kept == sum(1 for _ in sound_entries(Files({"000005.ldb": made})))
    assert [cut["offset"] for cut in report.cut or []] == [second[0]]
    assert made.startswith(data[: second[0]])
    assert lw.verify(tmp_path / "out", codec="leveldb.table").ok


def test_a_table_alone_up_to_its_damage(tmp_path: Path) -> None:
    data = table(rows(0, 60), PLAIN)
    second = blocks(data)[1]
    made, report = alone(flip(data, second[0] + 9), "000005.ldb", tmp_path, "prefix")
    assert len(blocks(made)) == 3
    assert [(cut["offset"], cut["length"]) for cut in report.cut or []] == [
        (second[0], len(data) - second[0])
    ]


def test_a_sound_table_alone_stays_as_it_is(tmp_path: Path) -> None:
    data = table(rows(0, 60), PLAIN)
    made, report = alone(data, "000005.ldb", tmp_path)
    assert made == data
    assert not report.cut


def test_a_table_alone_of_which_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(DamageError, match="no block of the table is left"):
        alone(b"x" * 500, "000005.ldb", tmp_path)


def test_a_table_alone_of_another_order(tmp_path: Path) -> None:
    directory = golden("custom_comparator")
    name = next(one for one in directory.files if one.endswith(".ldb"))
    data = directory.files[name]
    made, _ = alone(data, name, tmp_path)
    assert made == data
    (tmp_path / "out").unlink()
    made, _ = alone(flip(data, blocks(data)[-1][0] + 4), name, tmp_path)
    assert sound_entries(Files({name: made})) == sound_entries(Files({name: data}))


@pytest.mark.parametrize("strategy", ["salvage", "prefix"])
def test_a_log_alone(strategy: str, tmp_path: Path) -> None:
    records = [physical(put(n, b"k%d" % n, b"x" * 50)) for n in range(1, 10)]
    data = flip(b"".join(records), len(records[0]) * 3 + 12)
    made, report = alone(data, "000007.log", tmp_path, strategy)
    kept = records[:3] if strategy == "prefix" else [*records[:3], *records[4:]]
    assert made == b"".join(kept)
    assert report.rows_kept == len(kept)
    assert report.incomplete


@pytest.mark.parametrize("strategy", ["salvage", "prefix"])
def test_a_manifest_alone(strategy: str, tmp_path: Path) -> None:
    edits = [form([EditField("last_sequence", number=n)]) for n in range(1, 6)]
    data = logged(edits)
    made, _ = alone(data, "MANIFEST-000003", tmp_path, strategy)
    assert made == data
    (tmp_path / "out").unlink()
    size = len(logged(edits[:1]))
    made, report = alone(flip(data, size + 8), "MANIFEST-000003", tmp_path, strategy)
    assert made == logged(edits[:1] if strategy == "prefix" else [edits[0], *edits[2:]])
    assert len(report.cut or []) == 1


def test_a_log_that_can_not_be_told_from_content(tmp_path: Path) -> None:
    """A large record behind the damage is cut into physical ones as its new place wants."""
    data = b""
    for one in (put(1, b"a", b"x" * 100), large(2, b"big", 70_000), put(3, b"b")):
        data += fragmented(one, len(data))
    made, report = alone(flip(data, 20), "000007.log", tmp_path)
    assert report.rows_kept == 2
    assert sound_entries(Files({"000007.log": made})) == sound_entries(Files({"000007.log": flip(data, 20)}))


# Through the verbs


def written(made: dict[str, bytes], path: Path) -> Path:
    path.mkdir()
    for name, data in made.items():
        (path / name).write_bytes(data)
    return path


def test_in_place(tmp_path: Path) -> None:
    made = Made([(2, 5, rows(0, 60))], {8: physical(put(61, b"log"))}, last_sequence=60, settings=BLOOM)
    broken = flipped(made, "000005.ldb", 20)
    path = written(broken.files, tmp_path / "db")
    report = lw.repair(path, in_place=True, backup=tmp_path / "saved")
    assert report.incomplete
    assert lw.verify(path).ok
    assert {one.name for one in (tmp_path / "saved").iterdir()} >= {"000005.ldb", "CURRENT"}
    assert (tmp_path / "saved" / "000005.ldb").read_bytes() == broken.files["000005.ldb"]
    assert (
        "CURRENT" in (path / "CURRENT").read_text()
        or (path / (path / "CURRENT").read_text().strip()).exists()
    )


def test_dry_run_and_options(tmp_path: Path) -> None:
    made = Made([(2, 5, rows(0, 60))], last_sequence=60, settings=BLOOM)
    path = written(flipped(made, "000005.ldb", 20).files, tmp_path / "db")
    before = {one.name: one.read_bytes() for one in path.iterdir()}
    report = lw.repair(path, dry_run=True, bloomBitsPerKey=8)
    assert "would be" in str(report)
    assert {one.name: one.read_bytes() for one in path.iterdir()} == before
    with pytest.raises(UsageError, match="orphans"):
        lw.repair(path, dry_run=True, orphans="both")


def test_rebuild_as_a_verb(tmp_path: Path) -> None:
    made = Made([(1, 5, rows(0, 20))], last_sequence=40)
    path = written(without_metadata(made).files, tmp_path / "db")
    lw.rebuild(path, tmp_path / "out")
    assert lw.read(tmp_path / "out").num_rows == 20
    assert lw.verify(tmp_path / "out").ok
    with pytest.raises(UsageError, match="manifest"):
        lw.rebuild(path, tmp_path / "more", what="manifesto")


def test_a_filter_that_does_not_say_how_it_was_made() -> None:
    """Of a block that is gone the filter has to be made anew."""
    many = [b"a", b"b", b"c", *(b"%d" % n for n in range(100))]
    for filtered, whole in ((many, True), ([], False)):
        made = made_by_hand([(b"a", 1)], [(b"b", 2)], [(b"c", 3)], filtered=filtered)
        result, mending = repaired(database(flip(made, 10)))
        assert [key for key, _ in lawful(result)] == [b"b", b"c"]
        data = result.files["000003.ldb"]
        assert ("bloom_bits_per_key says it" in said(mending)) is not whole
        assert any(kind == 1 for _, _, kind in blocks(data)) is whole


def test_keys_out_of_order_of_which_none_comes_twice() -> None:
    result, mending = repaired(database(made_by_hand([(b"z", 1), (b"b", 2)], [(b"c", 3)])))
    assert [key for key, _ in lawful(result)] == [b"b", b"c", b"z"]
    assert "whose keys are not in order" in said(mending)
    result, mending = repaired(database(made_by_hand([(b"z", 1), (b"b", 2), (b"b", 2)], [(b"c", 3)])))
    assert [key for key, _ in lawful(result)] == [b"b", b"c", b"z"]


def test_a_repair_by_the_system_that_has_nothing_to_say() -> None:
    _, mending = repaired(Files(Made([(1, 5, rows(0, 20))], last_sequence=20).files), "system")
    assert said(mending) == ""
    assert mending.summary().rows == 20


def test_what_is_passed_over_may_be_no_batch() -> None:
    """Behind a damaged record its block is left, whatever is in it."""
    broken = flip(physical(put(1, b"k1")) + physical(b"none") + physical(b"none too"), 12)
    _, mending = repaired(Files(Made(logs={5: broken}).files), "system")
    passed = [cut for cut in mending.cut if "passes over it" in cut.why]
    assert [(cut.offset, cut.rows_lost, cut.lost) for cut in passed] == [
        (len(physical(put(1, b"k1"))), 0, {"file": 5})
    ]


def test_a_short_table_between_two_long_ones_is_no_longer_row() -> None:
    """Where no index says which blocks are the table's: of two that end a row of the same length the smaller one, if it is smaller."""
    data = made_by_hand([(b"a", 1)], [(b"m", 2)], [(b"c", 3)], [(b"x", 4)], [(b"y", 5)])
    for keep in (data, made_by_hand([(b"a", 1)], [(b"a", 1)], [(b"m", 2)])):
        offset, _, _ = blocks(keep)[-1]
        result, _ = repaired(database(flip(keep, offset + 2)))
        keys = [key for key, _ in lawful(result)]
        assert keys == sorted(set(keys))
        assert keys[0] == b"a"


def test_a_filter_of_other_keys_than_there_are_tells_its_probes() -> None:
    """No number of bits a key makes it of these keys: some that set as many bits are taken."""
    keys = [b"k%05d" % n for n in range(400)]
    others = [b"other%05d" % n for n in range(2000)]
    made = made_by_hand([(key, 1) for key in keys], [(b"y", 2)], [(b"z", 3)], filtered=keys + others)
    second = blocks(made)[1][0]
    assert second > 2048
    result, _ = repaired(database(flip(made, second + 5)))
    assert [key for key, _ in lawful(result)] == [*keys, b"z"]
    assert any(kind == 1 for _, _, kind in blocks(result.files["000003.ldb"]))
