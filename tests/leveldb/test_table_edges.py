"""Rare inputs of the codec of tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from leveldb_records import with_value
from memory_directory import MemoryDirectory

from logwright.codec.fault import UsageError
from logwright.codec.frames.walk import ListedFile
from logwright.codec.leveldb.check.table import TableCheck, filter_of, policies
from logwright.codec.leveldb.comparators import BYTEWISE_COMPARATOR
from logwright.codec.leveldb.formats.table import resync as rescan
from logwright.codec.leveldb.formats.table import write as encode
from logwright.codec.leveldb.formats.table.compression import sealed
from logwright.codec.leveldb.formats.table.filter import FilterBuilder, bits_per_key_of
from logwright.codec.leveldb.formats.table.index import DATA, survey
from logwright.codec.leveldb.formats.table.layout import handle, pack_entries
from logwright.codec.leveldb.formats.table.resync import find, pairs
from logwright.codec.leveldb.formats.table.write import footer
from logwright.codec.leveldb.keys import internal_key
from logwright.codec.window import Window
from logwright.readers.report_data import FileReport
from logwright.readers.source import MemorySource
from logwright.readers.stream import FileStream, Mode
from logwright.roundtrip.specimen import Specimen

NAME = "000005.ldb"
LIMIT = 1 << 20


def specimen_of(data: bytes, **options: Any) -> Specimen:
    return Specimen.of(data, "leveldb.table", NAME, **options)


def table_of(rows: list[dict[str, Any]], **options: Any) -> Specimen:
    empty = specimen_of(b"", **options)
    return empty.with_bytes(empty.encode(pa.Table.from_pylist(rows)))


def numbered(count: int) -> list[dict[str, Any]]:
    return [{"key": b"key%05d" % n, "value": bytes([n % 251]) * 20, "sequence": n + 1} for n in range(count)]


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


# Rewriting


def test_filter_is_rebuilt_with_its_bits_per_key() -> None:
    table = table_of(numbered(60), compression="none", bloom_bits_per_key=14, block_size=4 << 10)
    rows, frames, file = table.tables()
    plain = specimen_of(b"", compression="none")  # A table whose options mention no filter.
    data = plain.encode(with_value(rows, "key", 59, b"key99999"), frames, file)
    rewritten = plain.with_bytes(data)
    (where,) = [row for row in rewritten.read("frames").table.to_pylist() if row["kind"] == "filter"]
    block = array(data)[where["position"] : where["position"] + where["size"]]
    keys = rewritten.read().table["position"].to_pylist().count(0)
    assert bits_per_key_of(block, 0, keys) == 14
    # Without the stored filter the bits per key are unknown: the default is used.
    bare = plain.with_bytes(plain.encode(rows, frames.drop_columns(["payload"]), file))
    (where,) = [row for row in bare.read("frames").table.to_pylist() if row["kind"] == "filter"]
    block = array(bare.all_bytes())[where["position"] : where["position"] + where["size"]]
    assert bits_per_key_of(block, 0, keys) == 10


@pytest.mark.parametrize("value", [b"key0000", b"key0000!"])
def test_changed_key_is_written(value: bytes) -> None:
    table = table_of(numbered(60), compression="snappy", block_size=300)
    rows, frames, file = table.tables()
    rows = with_value(rows, "key", 0, value)
    rows_read = table.with_bytes(table.encode(rows, frames, file)).read()
    assert rows_read.report.faults == []
    assert rows_read.table["key"].to_pylist() == rows["key"].to_pylist()


def test_index_keys_that_no_longer_separate_are_rebuilt() -> None:
    table = table_of(
        [{"key": b"a" * 9, "value": b""}, {"key": b"g" * 9, "value": b""}], compression="none", block_size=1
    )
    rows, frames, file = table.tables()
    assert frames["index_key"].to_pylist()[0][:-8] == b"b"
    rows = with_value(rows, "key", 0, b"c" * 9)
    rewritten = table.with_bytes(table.encode(rows, frames, file))
    assert rewritten.read("frames").table["index_key"].to_pylist()[0][:-8] == b"d"
    # Keys that are not in byte order are kept as the database's comparator ordered them.
    rows = with_value(rows, "key", 0, b"z" * 9)
    rewritten = table.with_bytes(table.encode(rows, frames, file))
    assert rewritten.read("frames").table["index_key"].to_pylist()[0][:-8] == b"b"


def test_file_table_need_not_mention_zeros() -> None:
    table = table_of(numbered(3))
    rows, frames, file = table.tables()
    assert table.encode(rows, frames, file.drop_columns(["trailing_zeros"])) == table.all_bytes()


def test_lengths_have_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "LARGEST", 100)
    with pytest.raises(UsageError, match="a value of 93 bytes"):
        table_of([{"key": b"a", "value": b"v" * 93}])


def test_block_without_keys_gets_no_filter() -> None:
    builder = FilterBuilder(10)
    builder.add(np.empty(0, np.int64), 2048)
    assert builder.finish() == bytes.fromhex("0000000000000000 0b".replace(" ", ""))


# Searching


def test_file_that_became_shorter() -> None:
    data = table_of(numbered(30), compression="none", block_size=300).all_bytes()

    def read(offset: int, length: int) -> np.ndarray:
        """All bytes except the index, which was removed."""
        return (
            array(data)[offset : offset + length]
            if length == 48
            else array(data)[offset : min(offset + length, 900)]
        )

    blocks = survey(read, len(data), LIMIT)
    assert not blocks.sound
    assert len(blocks.offset)
    context = specimen_of(data).context()
    context.blocks = survey(lambda offset, length: array(data)[offset : offset + length], len(data), LIMIT)
    cut = Window(array(data[:500]), 0, 500)
    frames = specimen_of(data).codec.scan(cut, 0, context)
    assert frames.damage is not None
    assert frames.stop <= 500


def test_blocks_not_in_the_index_are_no_data_even_without_a_metaindex() -> None:
    good = pack_entries([(internal_key(b"a", 1, 1), b"x")], 16)
    data = sealed(good, 0) + sealed(good, 0)
    meta = len(data)
    data += b"\1" + sealed(pack_entries([], 16), 0)[1:]
    index = pack_entries([(internal_key(b"a", 1, 1), handle(0, len(good)))], 1)
    data += sealed(index, 0)
    table = specimen_of(data + footer(handle(meta, 8), handle(meta + 13, len(index))))
    rows = table.read()
    assert rows.table.num_rows == 1
    assert len(rows.report.faults) == 2
    assert table.encode(*table.tables()) == table.all_bytes()


def test_bytes_with_a_correct_checksum_that_are_no_block() -> None:
    good = sealed(pack_entries([(internal_key(b"a" * 9, 1, 1), b"x" * 9)], 16), 0)
    data = good + sealed(b"\x07\x00\x00\x09junk", 1) + sealed(b"\0" * 9 + b"\x09\0\0\0", 0) + good
    rows = specimen_of(data).read()
    assert rows.table.num_rows == 2
    assert specimen_of(data).encode(*specimen_of(data).tables()) == data


def test_nothing_is_found_in_an_empty_file() -> None:
    for size in range(12):
        starts, _ = pairs(np.zeros(size, np.uint8))
        assert not len(starts)
        assert not list(find(lambda offset, length: np.zeros(length, np.uint8), 0, size, size, LIMIT))


def test_damage_of_a_block_that_no_index_names() -> None:
    data = bytearray(table_of(numbered(30), compression="none", block_size=300).all_bytes()[:-60])
    codec, context = specimen_of(b"").codec, specimen_of(b"").context()
    codec.prepare(lambda offset, length: array(bytes(data))[offset : offset + length], len(data), context)
    data[3] ^= 1  # After it was listed.
    damage = codec.scan(Window(array(bytes(data)), 0, len(data)), 0, context).damage
    assert damage is not None
    assert (damage.offset, damage.rows_lost, damage.lost) == (0, None, {})


def test_without_a_walk_the_window_is_the_whole_file() -> None:
    table = table_of(numbered(30), compression="none", block_size=300)
    data = array(table.all_bytes())
    codec = table.codec
    context = table.context()
    frames = codec.scan(Window(data, 0, len(data)), 0, context)
    assert len(frames) == table.read("frames").table.num_rows
    for name, rows in (("rows", 30), ("frames", len(frames))):
        (decoded,) = codec.decode(Window(data, 0, len(data)), frames, name, [], context)
        assert decoded.batch.num_rows == rows


@pytest.mark.parametrize("window", [4096, 5000])
def test_bad_footer_is_reported_once_for_any_window(window: int) -> None:
    value = b"v" * 1000
    for count in range(3, 9):
        for extra in range(0, 120, 7):
            rows = [{"key": b"%d" % n, "value": value if n else b"x" * extra} for n in range(count)]
            table = table_of(rows, compression="none", block_size=1)
            data = bytearray(table.all_bytes())
            data[-1] ^= 1
            report = FileReport(NAME, "leveldb.table")
            source = MemorySource(bytes(data), NAME)
            batches = FileStream(
                source, table.codec, "rows", ["key"], context=table.context(), report=report,
                mode=Mode.DROPMALFORMED, window=window,
            )  # fmt: skip
            assert sum(batch.num_rows for batch in batches) == count
            assert [fault.kind for fault in report.faults] == ["bad magic or version"]


def test_footer_cut_by_the_window_asks_for_more() -> None:
    table = table_of(numbered(9))
    data = array(table.all_bytes())
    context = table.context()
    table.codec.prepare(lambda offset, length: data[offset : offset + length], len(data), context)  # type: ignore[attr-defined]
    frames = table.codec.scan(Window(data[:-9], 0, len(data)), 0, context)
    assert (frames.stop, frames.need) == (len(data) - 48, 48)
    frames_again = table.codec.scan(Window(data[:-9], 0, len(data)), frames.stop, context)
    assert (len(frames_again), frames_again.need, frames_again.faults) == (0, 48, [])


def test_index_keys_are_optional() -> None:
    table = table_of(numbered(60), compression="none", block_size=300)
    rows, frames, file = table.tables()
    bare = frames.drop_columns(["index_key", "payload"])
    assert table.encode(rows, bare, file) == table.all_bytes()


def test_largest_sequence_number_makes_no_index_of_a_data_block() -> None:
    """Only an index has such keys as LevelDB writes them; a lone block of a truncated file whose values are no handles is no index."""
    block = bytes.fromhex("00080201ffffffffffffff000000000000010000000093686d4b")
    (place,) = np.argwhere(
        survey(lambda at, size: np.frombuffer(block, np.uint8)[at : at + size], len(block), LIMIT).kind
        == DATA
    )
    assert place.tolist() == [0]


def test_metaindex_may_name_other_things_than_filters() -> None:
    good = pack_entries([(internal_key(b"a", 1, 1), b"x")], 16)
    data = sealed(good, 0)
    other = len(data)
    data += sealed(b"statistics of a fork", 0)
    meta, names = len(data), [(b"filter.lost", b"\xff"), (b"stats", handle(other, 20))]
    contents = pack_entries(names, 1)
    data += sealed(contents, 0)
    index = pack_entries([(internal_key(b"a", 1, 1), handle(0, len(good)))], 1)
    place = len(data)
    data += sealed(index, 0)
    table = specimen_of(data + footer(handle(meta, len(contents)), handle(place, len(index))))
    assert table.read().table["key"].to_pylist() == [b"a"]
    assert table.encode(*table.tables()) == table.all_bytes()
    source = MemoryDirectory({NAME: table.all_bytes()})
    check = TableCheck(ListedFile(source, NAME, len(table.all_bytes())), LIMIT, BYTEWISE_COMPARATOR)
    assert filter_of(check.read, check.blocks, LIMIT) is None
    assert list(policies(check.read, check.blocks, LIMIT)) == []
    assert check.faults == []


@pytest.mark.parametrize("window", [40, 100, 700, 1 << 20])
def test_blocks_larger_than_the_window_are_found(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    monkeypatch.setattr(rescan, "WINDOW", window)
    monkeypatch.setattr(rescan, "LIMIT", 4000)
    rows = [
        {"key": b"%d" % n, "value": b"v" * size} for n, size in enumerate([10, 900, 5, 2000, 10, 6000, 10])
    ]
    data = table_of(rows, compression="none", block_size=1).all_bytes()
    blocks = survey(lambda offset, length: array(data)[offset : offset + length], len(data), LIMIT)
    places = list(
        find(lambda offset, length: array(data)[offset : offset + length], 0, len(data), len(data), LIMIT)
    )
    expected = list(zip(blocks.offset.tolist(), blocks.size.tolist(), strict=True))
    # One is larger than the searched size; the others are found with any window.
    assert [entry for entry in expected if entry[1] < 3000] == [place for place in places if place[1] < 3000]


def test_invalid_blocks_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rescan, "WINDOW", 64)
    monkeypatch.setattr(rescan, "LIMIT", 128)
    block = sealed(pack_entries([(internal_key(b"a", 1, 1), b"x")], 16), 0)
    data = b"\xff" * 1000 + block + b"\xff" * 1000
    places = list(
        find(lambda offset, length: array(data)[offset : offset + length], 0, len(data), len(data), LIMIT)
    )
    assert places == [(1000, len(block) - 5)]
