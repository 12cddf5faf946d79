"""Rows of LevelDB's iterators over damaged tables: its own list of tests (`corruption_test.cc`, `table_test.cc`), and related cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from leveldb_startup import CraftedDatabase, Rows, iterated, key_of, open_listing, resealed, rows_of, status
from memory_directory import MemoryDirectory, UnreadableDirectory

from logwright.codec.engine.startup import Started
from logwright.codec.leveldb.formats.table.compression import sealed
from logwright.codec.leveldb.formats.table.index import FOOTER_SIZE, survey
from logwright.codec.leveldb.formats.table.layout import handle, pack_entries
from logwright.codec.leveldb.formats.table.write import TableSettings, footer

ROWS = [(b"k%02d" % n, n + 1, b"value%02d" % n) for n in range(12)]
ALL: Rows = [(key, value) for key, _, value in ROWS]
TABLE = "000005.ldb"
MADE = CraftedDatabase(tables=[(1, 5, ROWS)], last_sequence=99)
SNAPPY = CraftedDatabase(
    tables=[(1, 5, [(b"k%02d" % n, n + 1, b"a" * 200) for n in range(12)])],
    last_sequence=99,
    settings=TableSettings(compression="snappy", block_size=500),
)


def blocks(data: bytes) -> list[tuple[int, int]]:
    """Return offset and size of the data blocks, then of the metaindex and of the index."""
    array = np.frombuffer(data, np.uint8)
    blocks = survey(lambda at, size: array[at : at + size], len(data), 1 << 20)
    return list(zip(blocks.offset.tolist(), blocks.size.tolist(), strict=True))


BLOCKS = blocks(MADE.files[TABLE])
INDEX = BLOCKS[-1]
assert len(BLOCKS) > 5


def damaged(
    change: Callable[[bytearray], None], *, crafted: CraftedDatabase = MADE, **options: Any
) -> Started:
    return open_listing(crafted.changed(TABLE, change), **options)


def flip(at: int, bit: int = 1, *, seal: tuple[int, int] | None = None) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data[at] ^= bit
        if seal is not None:
            resealed(data, *seal)

    return change


def without(*of: int) -> Rows:
    """Return the rows outside of these data blocks."""
    gone = set()
    for i in of:
        offset, size = BLOCKS[i]
        block = MADE.files[TABLE][offset : offset + size]
        gone |= {key for key, value in ALL if value in block}
    assert gone
    return [row for row in ALL if row[0] not in gone]


def check_served(opened: Started, rows: Rows, message: str) -> None:
    assert rows_of(opened) == rows
    assert iterated(opened.verdict) == message
    assert opened.verdict.rows == len(rows)


def test_sound_table_is_served_completely() -> None:
    check_served(MADE.open(), ALL, "OK")
    check_served(MADE.open(paranoid_checks=True), ALL, "OK")
    assert MADE.open().verdict.serves == {"first": "k00", "last": "k11", "stops_at": None}


# Data blocks


def test_flipped_bit_hides_its_block_if_checksums_are_verified() -> None:
    """A flipped bit: the block is skipped if checksums are verified, else its readable rows are returned."""
    offset, size = BLOCKS[2]
    at = MADE.files[TABLE].index(b"value", offset)
    assert at < offset + size
    check_served(damaged(flip(at)), without(2), "Corruption: block checksum mismatch")
    opened = damaged(flip(at), verify_checksums=False)
    assert iterated(opened.verdict) == "OK"
    assert [key for key, _ in rows_of(opened)] == [key for key, _ in ALL]
    assert sum(row not in ALL for row in rows_of(opened)) == 1
    assert opened.verdict.rows_lost == 0


def test_flipped_checksum_hides_its_block_if_checksums_are_verified() -> None:
    offset, size = BLOCKS[0]
    check_served(damaged(flip(offset + size + 1)), without(0), "Corruption: block checksum mismatch")
    check_served(damaged(flip(offset + size + 1), verify_checksums=False), ALL, "OK")


def test_block_of_unknown_type_is_skipped() -> None:
    offset, size = BLOCKS[1]
    change = flip(offset + size, 4, seal=(offset, size))
    check_served(damaged(change), without(1), "Corruption: bad block type")
    lacking = flip(offset + size, 2, seal=(offset, size))
    check_served(damaged(lacking), without(1), "Corruption: corrupted zstd compressed block length")
    check_served(damaged(lacking, version="1.23"), without(1), "Corruption: bad block type")


@pytest.mark.parametrize(
    ("version", "message"),
    [("main", "corrupted snappy compressed block contents"), ("1.22", "corrupted compressed block contents")],
)
def test_undecompressible_block_is_skipped(version: str, message: str) -> None:
    offset, size = blocks(SNAPPY.files[TABLE])[0]

    def change(data: bytearray) -> None:
        data[offset + 2 : offset + size] = b"\xff" * (size - 2)
        resealed(data, offset, size)

    opened = damaged(change, crafted=SNAPPY, version=version)
    assert iterated(opened.verdict) == f"Corruption: {message}"
    rows = rows_of(opened)
    assert 0 < len(rows) < 12
    assert rows == rows_of(SNAPPY.open())[-len(rows) :]


def test_length_of_a_compressed_block() -> None:
    offset, size = blocks(SNAPPY.files[TABLE])[0]

    def change(data: bytearray) -> None:
        data[offset : offset + size] = b"\xff" * size
        resealed(data, offset, size)

    opened = damaged(change, crafted=SNAPPY)
    assert iterated(opened.verdict) == "Corruption: corrupted snappy compressed block length"


def test_bad_entry_in_block() -> None:
    """The entries before it are returned, then the next block."""
    offset, size = BLOCKS[1]
    inside = MADE.files[TABLE].index(b"value", offset) + len(b"value00")
    assert inside < offset + size - 8
    change = flip(inside, 0x40, seal=(offset, size))
    rows = rows_of(damaged(change))
    assert iterated(damaged(change).verdict) == "Corruption: bad entry in block"
    assert len(without(1)) < len(rows) < len(ALL)
    assert set(without(1)) < set(rows) < set(ALL)


def test_block_with_too_many_restart_points_is_skipped() -> None:
    """More restart points than fit."""
    offset, size = BLOCKS[1]
    change = flip(offset + size - 1, 0x40, seal=(offset, size))
    check_served(damaged(change), without(1), "Corruption: bad block contents")


def test_table_of_one_bad_block() -> None:
    crafted = CraftedDatabase(tables=[(1, 5, ROWS[:1])], last_sequence=99)
    offset, size = blocks(crafted.files[TABLE])[0]
    opened = damaged(flip(offset + size - 1, 0x40, seal=(offset, size)), crafted=crafted)
    check_served(opened, [], "Corruption: bad block contents")


def test_block_without_restart_points_is_empty() -> None:
    offset, size = BLOCKS[1]

    def change(data: bytearray) -> None:
        data[offset + size - 4 : offset + size] = bytes(4)
        resealed(data, offset, size)

    check_served(damaged(change), without(1), "OK")
    assert damaged(change).verdict.rows_lost == len(ALL) - len(without(1))


def test_first_error_of_a_table_is_reported() -> None:
    first, second = BLOCKS[1], BLOCKS[2]

    def change(data: bytearray) -> None:
        flip(second[0] + second[1], 4, seal=second)(data)
        flip(first[0] + first[1] - 1, 0x40, seal=first)(data)

    check_served(damaged(change), without(1, 2), "Corruption: bad block contents")


def test_key_of_a_wrong_type() -> None:
    """It is skipped, and reported before any other error."""
    offset, size = BLOCKS[1]
    at = MADE.files[TABLE].index(b"value", offset) - 8

    def change(data: bytearray) -> None:
        data[at] = 9
        resealed(data, offset, size)
        data[BLOCKS[3][0] + BLOCKS[3][1] + 1] ^= 1

    opened = damaged(change)
    assert iterated(opened.verdict) == "Corruption: corrupted internal key in DBIter"
    assert len(rows_of(opened)) == len(without(3)) - 1


def test_key_that_becomes_a_deletion_or_newer() -> None:
    offset, size = BLOCKS[1]
    at = MADE.files[TABLE].index(b"value", offset) - 8
    for change in (flip(at, seal=(offset, size)), flip(at + 6, 0x80, seal=(offset, size))):
        opened = damaged(change)
        assert iterated(opened.verdict) == "OK"
        assert len(rows_of(opened)) == len(ALL) - 1


# Index and footer


def test_table_file_index_data() -> None:
    """A damaged index key is harmless to iterators; with paranoid checks the table is not read at all."""
    at = INDEX[0] + 4
    check_served(damaged(flip(at)), ALL, "OK")
    opened = damaged(flip(at), paranoid_checks=True)
    check_served(opened, [], "Corruption: block checksum mismatch")
    assert opened.verdict.rows_lost == len(ALL)


def _index(
    change: Callable[[list[bytes]], None], *, rest: Callable[[bytes], bytes] = bytes
) -> Callable[[bytearray], None]:
    """Rewrite the index with other handles, and optionally another block."""

    def rewrite(data: bytearray) -> None:
        values = [handle(*place) for place in BLOCKS[:-2]]
        change(values)
        plain = rest(pack_entries([(key_of(b"k%02d" % n, 0), value) for n, value in enumerate(values)], 1))
        del data[INDEX[0] :]
        data += sealed(plain, 0) + footer(handle(*BLOCKS[-2]), handle(INDEX[0], len(plain)))

    return rewrite


def resized(change: Callable[[bytearray], None], **options: Any) -> Started:
    """A changed table, with its size in the manifest adjusted."""
    data = bytearray(MADE.files[TABLE])
    change(data)
    crafted = CraftedDatabase(tables=[(1, 5, ROWS)], last_sequence=99, sizes={5: len(data)})
    return open_listing(MemoryDirectory({**crafted.files, TABLE: bytes(data)}), **options)


def test_handle_beyond_the_file() -> None:
    def beyond(values: list[bytes]) -> None:
        values[1] = handle(1 << 20, 10)

    check_served(resized(_index(beyond)), without(1), f"IO error: db/{TABLE}: Invalid argument")


def test_invalid_block_handle_is_skipped() -> None:
    def broken(values: list[bytes]) -> None:
        values[1] = b"\x80\x80"

    check_served(resized(_index(broken)), without(1), "Corruption: bad block handle")


def test_block_read_twice_adds_nothing() -> None:
    """A block read twice adds nothing."""

    def again(values: list[bytes]) -> None:
        values[2] = values[1]

    check_served(resized(_index(again)), without(2), "OK")


def test_blocks_in_another_order() -> None:
    """Keys that are not above the previous one are hidden."""

    def swapped(values: list[bytes]) -> None:
        values[1], values[2] = values[2], values[1]

    opened = resized(_index(swapped))
    check_served(opened, without(1), "OK")
    # The rows are neither damaged nor returned.
    assert opened.verdict.rows_lost == len(ALL) - len(without(1))


def test_index_that_ends_in_an_error() -> None:
    """Its error is reported before those of blocks."""

    def broken(values: list[bytes]) -> None:
        values[0] = b"\x80"

    def cut(plain: bytes) -> bytes:
        data = bytearray(plain)
        data[plain.index(key_of(b"k03", 0)) - 3] = 99  # More shared bytes than exist.
        return bytes(data)

    opened = resized(_index(broken, rest=cut))
    assert iterated(opened.verdict) == "Corruption: bad entry in block"
    assert rows_of(opened) == [row for row in without(0) if row in without(*range(3, len(BLOCKS) - 2))]


def test_table_with_an_invalid_index_block_serves_nothing() -> None:
    opened = resized(_index(lambda values: None, rest=lambda plain: plain[:-1] + b"\x7f"))
    check_served(opened, [], "Corruption: bad block contents")


def test_compressed_blocks_are_cached_by_offset_only() -> None:
    """Two handles of one offset: the second gets the block of the first, whatever its size."""
    data = bytearray(SNAPPY.files[TABLE])
    places = blocks(bytes(data))
    values = [handle(*place) for place in places[:-2]]
    values[1] = handle(places[0][0], 1)
    plain = pack_entries([(key_of(b"k%02d" % n, 0), value) for n, value in enumerate(values)], 1)
    del data[places[-1][0] :]
    data += sealed(plain, 0) + footer(handle(*places[-2]), handle(places[-1][0], len(plain)))
    crafted = CraftedDatabase(
        tables=SNAPPY.tables, last_sequence=99, settings=SNAPPY.settings, sizes={5: len(data)}
    )
    opened = open_listing(MemoryDirectory({**crafted.files, TABLE: bytes(data)}))
    assert iterated(opened.verdict) == "OK"
    assert 0 < len(rows_of(opened)) < 12


def test_table_with_a_damaged_footer_serves_nothing() -> None:
    size = len(MADE.files[TABLE])
    check_served(damaged(flip(size - 1)), [], "Corruption: not an sstable (bad magic number)")

    def nothing(data: bytearray) -> None:
        data[-FOOTER_SIZE:-8] = b"\xff" * (FOOTER_SIZE - 8)

    check_served(damaged(nothing), [], "Corruption: bad block handle")


def test_truncated_table_serves_nothing() -> None:
    def cut(data: bytearray) -> None:
        del data[-1:]

    check_served(damaged(cut), [], f"IO error: db/{TABLE}: Invalid argument")
    check_served(damaged(lambda data: data.clear()), [], f"IO error: db/{TABLE}: Invalid argument")


def test_size_of_a_table_is_that_of_the_manifest() -> None:
    small = CraftedDatabase(tables=[(1, 5, ROWS)], last_sequence=99, sizes={5: FOOTER_SIZE - 1})
    check_served(small.open(), [], "Corruption: file is too short to be an sstable")
    less = CraftedDatabase(tables=[(1, 5, ROWS)], last_sequence=99, sizes={5: len(MADE.files[TABLE]) - 1})
    check_served(less.open(), [], "Corruption: not an sstable (bad magic number)")
    longer = MADE.changed(TABLE, lambda data: data.extend(b"more"))
    check_served(open_listing(longer), ALL, "OK")


def test_old_suffix_of_tables() -> None:
    files = dict(MADE.files)
    files["000005.sst"] = files.pop(TABLE)
    check_served(open_listing(MemoryDirectory(files)), ALL, "OK")
    # A file of the new name is preferred, but one that cannot be mapped counts as missing.
    check_served(open_listing(MemoryDirectory({**files, TABLE: b""})), ALL, "OK")
    check_served(
        open_listing(MemoryDirectory({**files, TABLE: b"x"})), [], f"IO error: db/{TABLE}: Invalid argument"
    )


def test_file_of_that_number_with_another_name() -> None:
    files = dict(MADE.files)
    files["5.ldb"] = files.pop(TABLE)
    opened = open_listing(MemoryDirectory(files))
    assert status(opened.verdict) == "OK"
    check_served(opened, [], f"NotFound: db/{TABLE}: No such file or directory")


def test_unreadable_block_is_skipped_with_an_io_error() -> None:
    bad = BLOCKS[2][0]

    check_served(
        open_listing(UnreadableDirectory(MADE.files, {TABLE: [(bad, bad + 1)]})),
        without(2),
        f"IO error: db/{TABLE}: Input/output error",
    )


# Several tables


def test_first_error_in_the_order_of_the_children() -> None:
    """Level 0 by smallest key, then the levels."""
    crafted = CraftedDatabase(
        tables=[(0, 7, [(b"b", 5, b"1")]), (0, 8, [(b"a", 6, b"2")]), (2, 9, [(b"c", 1, b"3")])],
        last_sequence=9,
    )
    files = dict(crafted.files)
    files["000007.ldb"] = b"x"
    opened = open_listing(MemoryDirectory(files))
    check_served(opened, [(b"a", b"2"), (b"c", b"3")], "IO error: db/000007.ldb: Invalid argument")
    files["000008.ldb"] = b"x"
    check_served(
        open_listing(MemoryDirectory(files)), [(b"c", b"3")], "IO error: db/000008.ldb: Invalid argument"
    )


def test_level_continues_after_a_bad_table() -> None:
    crafted = CraftedDatabase(
        tables=[(1, 7, [(b"a", 1, b"1")]), (1, 8, [(b"b", 2, b"2")]), (1, 9, [(b"c", 3, b"3")])],
        last_sequence=9,
    )
    files = {**crafted.files, "000008.ldb": b"x" * 200}
    check_served(
        open_listing(MemoryDirectory(files)),
        [(b"a", b"1"), (b"c", b"3")],
        "IO error: db/000008.ldb: Invalid argument"
        if len(crafted.files["000008.ldb"]) > 200
        else "Corruption: not an sstable (bad magic number)",
    )


def test_overlapping_level_hides_keys() -> None:
    """A level is read table by table: keys below the previous table are hidden silently."""
    crafted = CraftedDatabase(
        tables=[(1, 7, [(b"a", 1, b"1"), (b"m", 2, b"2")]), (1, 8, [(b"c", 3, b"3"), (b"z", 4, b"4")])],
        last_sequence=9,
    )
    opened = crafted.open()
    check_served(opened, [(b"a", b"1"), (b"m", b"2"), (b"z", b"4")], "OK")
    assert opened.verdict.rows_lost == 1
    assert opened.verdict.lost == ({"smallest": "c", "largest": "c"},)


def test_newest_first_over_levels() -> None:
    crafted = CraftedDatabase(
        tables=[
            (0, 9, [(b"a", 9, None), (b"b", 8, b"8")]),
            (1, 5, [(b"a", 4, b"4"), (b"b", 3, b"3"), (b"c", 2, b"2")]),
        ],
        last_sequence=9,
    )
    check_served(crafted.open(), [(b"b", b"8"), (b"c", b"2")], "OK")


def test_entries_above_the_last_sequence_are_invisible() -> None:
    crafted = CraftedDatabase(tables=[(1, 5, ROWS)], last_sequence=6)
    check_served(crafted.open(), ALL[:6], "OK")
