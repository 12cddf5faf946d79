"""The codec of tables: golden files, round trips, damage, splits, bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from leveldb_build import missed_key

from logwright.codec.fault import DamageError, UsageError
from logwright.codec.kernels.kernel import INTERPRETED, mode
from logwright.codec.leveldb.formats.table.codec import Keys
from logwright.codec.leveldb.formats.table.compression import sealed
from logwright.codec.leveldb.formats.table.filter import Filter, hash_keys
from logwright.codec.leveldb.formats.table.layout import pack_entries
from logwright.codec.leveldb.formats.table.write import TableBuilder, TableSettings
from logwright.codec.leveldb.keys import BYTEWISE, internal_key, order, readable
from logwright.readers.filter import understand
from logwright.readers.report_data import FileReport
from logwright.readers.stream import FileStream, Mode
from logwright.roundtrip import laws
from logwright.roundtrip.specimen import Specimen

GOLDEN = Path(__file__).resolve().parents[2] / "corpora/golden/leveldb"
TABLES = sorted([*GOLDEN.glob("*/db/*.ldb"), *GOLDEN.glob("*/db/*.sst")])
NAME = "000005.ldb"


def ids(path: Path) -> str:
    return f"{path.parent.parent.name}/{path.name}"


def specimen_of(data: bytes, **options: Any) -> Specimen:
    return Specimen.of(data, "leveldb.table", NAME, **options)


def table_of(rows: list[dict[str, Any]], **options: Any) -> Specimen:
    empty = specimen_of(b"", **options)
    return empty.with_bytes(empty.encode(pa.Table.from_pylist(rows)))


def numbered(count: int, size: int = 20) -> list[dict[str, Any]]:
    return [
        {"key": b"key%05d" % n, "value": bytes([n % 251]) * size, "sequence": n + 1} for n in range(count)
    ]


def test_golden_tables_exist() -> None:
    assert len(TABLES) >= 40


@pytest.mark.alike
@pytest.mark.parametrize("path", TABLES, ids=ids)
def test_golden_tables_round_trip(path: Path) -> None:
    for law in (laws.decode_encode, laws.encode_without_payloads):
        verdict = law(path)
        assert verdict, str(verdict)


PLAIN = {"tables_none": {"block_size": 1024, "block_restart_interval": 4}}


@pytest.mark.parametrize("name", PLAIN)
def test_rows_alone_give_the_bytes_of_leveldb(name: str) -> None:
    for path in (GOLDEN / name / "db").glob("*.ldb"):
        specimen = Specimen.of(path)
        rows = specimen.read(columns=None).table
        encoded = specimen_of(b"", compression="none", **PLAIN[name]).encode(rows)
        assert encoded == specimen.all_bytes()


def test_four_rows_give_the_documented_table_bytes() -> None:
    rows = [
        {"key": b"apple", "value": None, "sequence": 3, "type": "deletion"},
        {"key": b"apple", "value": b"red", "sequence": 1, "type": "value"},
        {"key": b"apricot", "value": b"", "sequence": 2, "type": "value"},
        {"key": b"banana", "value": b"yellow", "sequence": 4, "type": "value"},
    ]
    table = table_of(rows, compression="none", bloom_bits_per_key=10)
    data = table.all_bytes()
    assert len(data) == 232
    assert data[:30].hex() == "000d006170706c6500030000000000000508030101000000000000726564"
    assert data[82:100].hex() == "4245000ca002d00f0600000000090000000b"
    assert data[184:189].hex() == "692f9d0116"
    assert table.read(columns=None).table.to_pylist() == rows
    frames = table.read("frames").table.to_pylist()
    assert [(frame["kind"], frame["position"], frame["size"]) for frame in frames] == [
        ("data", 0, 77), ("filter", 82, 18), ("metaindex", 105, 47), ("index", 157, 22),
    ]  # fmt: skip
    file = table.read("file").table.to_pylist()[0]
    assert [file[f"{kind}_{two}"] for kind in ("metaindex", "index") for two in ("offset", "size")] == [
        105,
        47,
        157,
        22,
    ]


OPTIONS = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["none", "snappy", "zstd"]),
        "block_size": st.sampled_from([1, 60, 300, 4096]),
        "block_restart_interval": st.sampled_from([1, 2, 16]),
        "bloom_bits_per_key": st.sampled_from([0, 1, 10, 50]),
    }
)
ENTRIES = st.dictionaries(
    st.tuples(st.binary(max_size=9) | st.sampled_from([b"\xff" * 20, b"a" * 40]), st.integers(0, 1 << 55)),
    st.none() | st.binary(max_size=60) | st.just(b"v" * 200),
    max_size=60,
)


@settings(max_examples=examples(40), deadline=None)
@given(ENTRIES, OPTIONS, st.integers(1, 20))
def test_any_rows_in_any_chunks_give_the_same_table_bytes(
    entries: dict[tuple[bytes, int], bytes | None], options: dict[str, Any], step: int
) -> None:
    keys = sorted(entries, key=lambda entry: (entry[0], -entry[1]))
    rows = pa.table(
        {
            "key": pa.array([key for key, _ in keys], pa.binary()),
            "value": pa.array([entries[key] for key in keys], pa.binary()),
            "sequence": pa.array([sequence for _, sequence in keys], pa.int64()),
        }
    )
    empty = specimen_of(b"", **options)
    table = empty.with_bytes(empty.encode(rows))
    rows_read = table.read()
    assert rows_read.report.faults == []
    assert rows_read.table.select(rows.schema.names).equals(
        rows.cast(rows_read.table.select(rows.schema.names).schema)
    )
    assert table.encode(*table.tables()) == table.all_bytes()
    # The bytes are the same for any chunking of the rows.
    pieces = pa.Table.from_batches(rows.to_batches(max_chunksize=step), rows.schema)
    assert empty.encode(pieces) == table.all_bytes()
    check_filter(table)


def check_filter(table: Specimen) -> None:
    """Check that the filter has every key of every data block."""
    rows, frames, _ = table.tables()
    data = table.all_bytes()
    blocks = [row for row in frames.to_pylist() if row["kind"] == "filter"]
    for block in blocks:
        parsed = Filter(np.frombuffer(data, np.uint8)[block["position"] : block["position"] + block["size"]])
        for position in set(rows["position"].to_pylist()):
            keys = [row["key"] for row in rows.to_pylist() if row["position"] == position]
            hashes = np.empty(len(keys), np.int64)
            hash_keys(
                np.frombuffer(b"".join(keys), np.uint8), np.cumsum([0, *map(len, keys)]), 0, len(keys), hashes
            )
            assert missed_key(parsed, position, hashes) is None


def test_golden_filters_have_their_keys() -> None:
    for path in (GOLDEN / "tables_bloom/db").glob("*.ldb"):
        check_filter(Specimen.of(path))


def test_each_row_comes_once_for_any_splits() -> None:
    table = table_of(numbered(300), compression="none", block_size=200)
    data = table.all_bytes()
    verdict = laws.any_split(data, "leveldb.table", name=NAME, sizes=[1, 100, 1000, 5000, len(data)])
    assert verdict, str(verdict)
    assert len(table.stretches(1)) > 20


# Damage


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 4,)) + data[at + 1 :]


@pytest.fixture(scope="module")
def sound() -> Specimen:
    return table_of(numbered(60), compression="none", block_size=300, bloom_bits_per_key=10)


def test_every_bad_block_is_a_hole_and_the_others_are_salvaged(sound: Specimen) -> None:
    rows = sound.read().table
    data = sound.all_bytes()
    for frame in sound.read("frames").table.to_pylist():
        hurt = sound.with_bytes(flipped(data, frame["position"] + 1))
        rows_read = hurt.read()
        expected = rows.filter(pa.compute.not_equal(rows["position"], frame["position"]))
        assert rows_read.table.equals(expected), frame
        (fault,) = rows_read.report.faults
        assert (fault.offset, fault.length) == (frame["position"], frame["size"] + 5)
        assert fault.detail.startswith("block checksum mismatch")
        assert fault.rows_lost == (None if frame["kind"] == "data" else 0)
        assert hurt.encode(*hurt.tables()) == hurt.all_bytes()
    with pytest.raises(DamageError, match="block checksum mismatch"):
        sound.with_bytes(flipped(data, 5)).read(mode=Mode.FAILFAST)


def test_lost_rows_are_reported_by_key(sound: Specimen) -> None:
    frames = sound.read("frames").table.to_pylist()
    second = sound.with_bytes(flipped(sound.all_bytes(), frames[1]["position"]))
    (fault,) = second.read().report.faults
    assert set(fault.lost) == {"smallest", "largest"}
    assert fault.lost["smallest"].startswith("key0")
    (fault,) = sound.with_bytes(flipped(sound.all_bytes(), 0)).read().report.faults
    assert set(fault.lost) == {"largest"}
    assert readable(b"\xff\x00") == "0xff00"


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_without_index_and_footer_blocks_are_found_by_checksum(compression: str) -> None:
    table = table_of(numbered(400, 40), compression=compression, block_size=900, bloom_bits_per_key=10)
    data, rows = table.all_bytes(), table.read().table
    frames = table.read("frames").table.to_pylist()
    index = frames[-1]["position"]
    cut = table.with_bytes(data[:index])
    assert cut.read().table.equals(rows)
    assert cut.encode(*cut.tables()) == data[:index]
    # Only the footer is lost: the index is found and used again.
    bare = table.with_bytes(data[:-48])
    assert bare.read().table.equals(rows)
    assert [row["kind"] for row in bare.read("frames").table.to_pylist()] == [
        frame["kind"] for frame in frames
    ]
    assert bare.read("frames").table["index_key"].to_pylist() == [frame["index_key"] for frame in frames]
    # A data block is damaged too, and the index is garbage.
    hurt = bytearray(flipped(data, frames[1]["position"] + 9))
    hurt[index : index + 30] = bytes(30)
    hurt[-48:-8] = b"\xff" * 40
    rows_read = table.with_bytes(bytes(hurt)).read()
    assert rows_read.table.equals(rows.filter(pa.compute.not_equal(rows["position"], frames[1]["position"])))
    assert table.with_bytes(bytes(hurt)).encode(*table.with_bytes(bytes(hurt)).tables()) == bytes(hurt)


def test_table_inside_a_value_is_not_taken_for_the_table() -> None:
    inner = table_of(numbered(30), compression="none", block_size=200).all_bytes()
    rows = [
        *numbered(3),
        {"key": b"z", "value": inner, "sequence": 9},
        {"key": b"zz", "value": b"1", "sequence": 9},
    ]
    outer = table_of(rows, compression="none", block_size=100)
    data = outer.all_bytes()
    frames = outer.read("frames").table.to_pylist()
    assert (
        outer.with_bytes(data[:-60]).read(columns=None).table.to_pylist()
        == outer.read(columns=None).table.to_pylist()
    )
    hurt = flipped(data[:-60], frames[1]["position"] + 2)
    table = outer.with_bytes(hurt).read().table
    assert {row["position"] for row in table.to_pylist()} <= {frames[0]["position"], frames[2]["position"]}


@pytest.mark.extended
@pytest.mark.skipif(mode() == INTERPRETED, reason="megabytes, byte by byte")
def test_large_files_are_searched_window_by_window() -> None:
    noise = np.random.default_rng(1).integers(0, 256, 3 << 20).astype(np.uint8).tobytes()
    rows = [
        {"key": b"%05d" % n, "value": noise[n * 3000 : n * 3000 + 3000], "sequence": 1} for n in range(900)
    ]
    rows.append({"key": b"big", "value": noise, "sequence": 1})
    table = table_of(rows, compression="none", block_size=8000)
    data = table.all_bytes()
    cut = table.with_bytes(data[:-200])
    assert cut.read().table.num_rows == 901
    hurt = bytearray(data[:-200])
    hurt[1_000_000] ^= 1
    rows_read = table.with_bytes(bytes(hurt)).read()
    assert 895 <= rows_read.table.num_rows < 901
    assert laws.bytes_differ(bytes(hurt), table.encode(*table.with_bytes(bytes(hurt)).tables())) is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "file is too short to be an sstable"),
        (bytes(47), "file is too short to be an sstable"),
        (bytes(100), "not an sstable .bad magic number."),
        (b"\xff" * 40 + bytes.fromhex("57fb808b247547db"), "bad block handle"),
    ],
)
def test_invalid_table_yields_a_fault_and_no_rows(data: bytes, message: str) -> None:
    rows = specimen_of(data).read()
    assert rows.table.num_rows == 0
    assert any(message.split(" .")[0] in fault.detail for fault in rows.report.faults)
    with pytest.raises(DamageError, match=message):
        specimen_of(data).read(mode=Mode.FAILFAST)
    assert specimen_of(data).encode(*specimen_of(data).tables()) == data


def crafted(blocks: list[tuple[bytes, int]], entries: list[tuple[bytes, bytes]]) -> bytes:
    """Return a file of these blocks, an empty metaindex, an index and a footer."""
    from logwright.codec.leveldb.formats.table.layout import handle
    from logwright.codec.leveldb.formats.table.write import footer

    data = b"".join(sealed(contents, kind) for contents, kind in blocks)
    meta = len(data)
    data += sealed(pack_entries([], 16), 0)
    index, at = pack_entries(entries, 1), len(data)
    return data + sealed(index, 0) + footer(handle(meta, 8), handle(at, len(index)))


def test_undecodable_blocks_with_correct_checksums() -> None:
    from logwright.codec.leveldb.formats.table.layout import handle

    good = pack_entries(
        [(internal_key(b"a", 1, 1), b"x"), (b"bad", b""), (internal_key(b"c", 1, 0), b"odd")], 16
    )
    blocks = [(good, 0), (b"\0\0\0", 0), (b"zz", 9), (good[:-9] + b"\x7f" + good[-8:], 0)]
    at, entries = 0, []
    for n, (contents, _) in enumerate(blocks):
        entries.append((internal_key(b"k%d" % n, 1, 1), handle(at, len(contents)) + b"more"))
        at += len(contents) + 5
    table = specimen_of(crafted(blocks, entries))
    rows = table.read()
    assert rows.table.num_rows == 4
    details = [fault.detail for fault in rows.report.faults]
    assert any("corrupted internal key" in detail for detail in details)
    assert any("bad block contents" in detail for detail in details)
    assert any("bad block type (9)" in detail for detail in details)
    assert table.encode(*table.tables()) == table.all_bytes()
    assert table.read("frames").table["compression"].to_pylist()[2] == "unknown 9"
    assert laws.encode_without_payloads(crafted(blocks[:1], entries[:1]), "leveldb.table", name=NAME)


def test_blocks_behind_impossible_handles_are_read_and_reported() -> None:
    from logwright.codec.leveldb.formats.table.layout import handle

    good = pack_entries([(internal_key(b"a", 1, 1), b"x")], 16)
    overlap = [(internal_key(b"a", 1, 1), handle(0, len(good))), (internal_key(b"b", 1, 1), handle(3, 9))]
    assert specimen_of(crafted([(good, 0)], overlap)).read().table.num_rows == 1
    # An index without blocks is not trusted: they are found nevertheless.
    for bad in (handle(1 << 63, 1 << 63), b"", b"\x80", b"\xff" * 11, handle(40, 40)):
        rows = specimen_of(crafted([(good, 0)], [(internal_key(b"a", 1, 1), bad)])).read()
        assert rows.table.num_rows == 1
        assert [fault.detail.partition(",")[0] for fault in rows.report.faults] == [
            "bad block handle in the index"
        ]
    # Blocks without an index entry are not rows of the table.
    both = [(good, 0), (good, 0)]
    rows = specimen_of(crafted(both, overlap[:1])).read()
    assert rows.table.num_rows == 1
    assert [fault.detail for fault in rows.report.faults] == ["no block of the index starts here"]


@pytest.mark.parametrize(("at", "byte"), [(-4, 0x7F), (0, 99)], ids=["restarts", "entry"])
def test_index_that_cannot_be_read_to_its_end(at: int, byte: int) -> None:
    """Its checksum is right: LevelDB finds none or only some of the blocks."""
    from logwright.codec.leveldb.formats.table.layout import handle

    good = pack_entries([(internal_key(b"a", 1, 1), b"x")], 16)
    data = crafted([(good, 0)], [(internal_key(b"a", 1, 1), handle(0, len(good)))])
    index = bytearray(pack_entries([(internal_key(b"a", 1, 1), handle(0, len(good)))], 1))
    stored = sealed(bytes(index), 0)
    index[at] = byte
    table = specimen_of(data.replace(stored, sealed(bytes(index), 0)))
    assert table.all_bytes() != data
    rows = table.read()
    assert rows.table.num_rows == 1
    (fault,) = rows.report.faults
    assert fault.detail.startswith("the index cannot be read to its end")
    assert (fault.offset, fault.length) == (len(data) - 48 - len(stored), len(index))
    assert table.encode(*table.tables()) == table.all_bytes()


# Bounds of keys


def bounded(table: Specimen, condition: Any, **hints: Any) -> tuple[list[bytes], int]:
    """Return the matching keys, and the number of blocks decoded for them."""
    codec = table.codec
    context = codec.context(NAME, type(table.context().options)(codec.options, {}), **hints)
    seen: list[int] = []

    class Counting(type(codec)):  # type: ignore[misc]
        def decode(self, window: Any, frames: Any, *rest: Any) -> Any:
            seen.append(len(frames))
            return super().decode(window, frames, *rest)

    with table.open() as source:
        batches = list(
            FileStream(
                source, Counting(), "rows", ["key"], context=context, report=FileReport(NAME, codec.name),
                filter=understand(condition, codec.tables["rows"]),
            )
        )  # fmt: skip
    return [key for batch in batches for key in batch.column(0).to_pylist()], sum(seen)


def test_filters_on_keys_read_no_other_blocks(sound: Specimen) -> None:
    everything = sum(bounded(sound, [("key", ">=", b"")])[1:])
    for condition, expected in (
        ([("key", "==", b"key00030")], 1),
        ([("key", "<", b"key00002")], 2),
        ([("key", ">", b"key00057")], 2),
        ([("key", "<=", b"key00000")], 1),
        ([("key", "in", [b"key00007", b"key00050"])], 2),
        ([("key", "!=", b"key00007")], 59),
    ):
        keys, blocks = bounded(sound, condition, comparator=BYTEWISE)
        assert len(keys) == expected
        assert blocks < everything or condition[0][1] == "!="
        # If the order of the keys is unknown, nothing is skipped.
        assert bounded(sound, condition) == (keys, everything)


def test_keys_sort_by_bytes_and_newer_sequences_come_first() -> None:
    keys = Keys([b"a", b"a\0"])
    assert ((keys != b"a").tolist(), (keys < b"a\0").tolist()) == ([False, True], [True, False])
    assert sorted([internal_key(b"a", 1, 1), internal_key(b"a", 2, 0)], key=order)[0] == internal_key(
        b"a", 2, 0
    )


# Invalid rows


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"value": b""}], "needs a column 'key'"),
        ([{"key": None, "value": b""}], "row 0: the key is null"),
        ([{"key": 1.5, "value": b""}], "binary or text"),
        ([{"key": b"b"}, {"key": b"a"}], "row 1: the key b'a' is not after b'b'"),
        ([{"key": b"ab"}, {"key": b"a"}], "not after"),
        ([{"key": b"a"}, {"key": b"a"}], "is repeated"),
        ([{"key": b"a", "sequence": 1}, {"key": b"a", "sequence": 1 << 55}], "is repeated"),
        ([{"key": b"a", "sequence": -1}], "does not fit 56 bits"),
        ([{"key": b"a", "sequence": None}], "'sequence'"),
        ([{"key": b"a", "type": "merge"}], "unknown type 'merge'; expected one of"),
        ([{"key": b"a", "value": b"", "type": "deletion"}], "a deletion that has a value"),
        ([{"key": b"a", "value": None, "type": "value"}], "a value that has no value"),
    ],
)
def test_invalid_rows_are_refused(rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        table_of(rows)


def test_order_is_checked_across_portions() -> None:
    builder = TableBuilder(TableSettings(block_size=1))
    builder.add(pa.RecordBatch.from_pylist([{"key": b"b", "value": b""}]))
    with pytest.raises(UsageError, match="row 1"):
        builder.add(pa.RecordBatch.from_pylist([{"key": b"a", "value": b""}]))


def test_only_the_name_of_another_order_is_known() -> None:
    rows = [{"key": b"b" * 9, "value": b"1"}, {"key": b"a", "value": b"2"}]
    table = table_of(rows, comparator="test.ReverseBytewise", block_size=1)
    assert [row["key"] for row in table.read().table.to_pylist()] == [b"b" * 9, b"a"]
    keys = [row["index_key"] for row in table.read("frames").table.to_pylist() if row["kind"] == "data"]
    assert keys == [internal_key(b"b" * 9, 0, 1), internal_key(b"a", 0, 1)]


def test_builder_stops_when_a_file_is_full() -> None:
    settings = TableSettings(block_size=200, compression="none")
    batch = pa.RecordBatch.from_pylist(numbered(100))
    builder = TableBuilder(settings)
    data, taken = builder.add(batch, limit=500)
    assert 500 <= builder.size == len(data)
    assert 0 < taken < 100
    data += builder.finish()
    table = specimen_of(data)
    assert table.read().table.num_rows == taken == builder.rows
    assert len(data) == builder.size
    assert builder.smallest == internal_key(b"key00000", 1, 1)
    assert builder.largest == internal_key(b"key%05d" % (taken - 1), taken, 1)
    assert builder.largest_sequence == taken
    assert builder.add(batch.slice(0, 0)) == (b"", 0)


# Changed rows


def replaced(table: Specimen, row: int, value: bytes) -> pa.Table:
    rows = table.read().table
    values = rows["value"].to_pylist()
    values[row] = value
    return rows.set_column(rows.schema.get_field_index("value"), "value", pa.array(values, pa.binary()))


@pytest.mark.parametrize(
    "options", [{}, {"bloom_bits_per_key": 14}, {"compression": "none", "bloom_bits_per_key": 10}]
)
def test_changed_rows_are_written(options: dict[str, Any]) -> None:
    table = table_of(numbered(100), **{"block_size": 300, **options})
    _, frames, file = table.tables()
    rows = replaced(table, 50, b"another value, and longer than it was")
    rewritten = table.with_bytes(table.encode(rows, frames, file))
    rows_read = rewritten.read()
    assert rows_read.report.faults == []
    assert rows_read.table.drop_columns(["position"]).equals(rows.drop_columns(["position"]))
    check_filter(rewritten)
    if options.get("compression") == "none":
        # Only the block of the row changes.
        anew = rewritten.read("frames").table["size"].to_pylist()
        assert sum(a != b for a, b in zip(anew, frames["size"].to_pylist(), strict=True)) <= 3
    without = table.encode(rows, frames)
    assert table.with_bytes(without).read().report.faults == []
    kept = rows.filter(pa.compute.not_equal(rows["position"], frames["position"][1].as_py()))
    fewer = table.with_bytes(table.encode(kept, frames, file)).read()
    assert (fewer.table.num_rows, fewer.report.faults) == (kept.num_rows, [])


def test_rows_without_positions_are_counted() -> None:
    table = table_of(numbered(50), block_size=300)
    rows, frames, file = table.tables()
    assert table.encode(rows.drop_columns(["position"]), frames, file) == table.all_bytes()
    with pytest.raises(UsageError, match="50 entries, but there are 49 rows"):
        table.encode(rows.drop_columns(["position"]).slice(1), frames, file)
    with pytest.raises(UsageError, match="belongs to no frame"):
        table.encode(pa.concat_tables([rows.slice(30), rows.slice(0, 30)]), frames, file)
    with pytest.raises(UsageError, match="needs a column 'kind'"):
        table.encode(rows, frames.drop_columns(["kind"]), file)
    anew = frames.drop_columns(["payload"]).set_column(
        frames.schema.get_field_index("compression"), "compression", pa.array(["lzma"] * len(frames))
    )
    with pytest.raises(UsageError, match="unknown compression 'lzma'; expected one of"):
        table.encode(rows, anew, file)


def test_hints_of_a_table() -> None:
    codec = specimen_of(b"").codec
    options = specimen_of(b"").context().options
    assert codec.context("0000000007.sst", options).file == 7
    assert codec.context("x", options).file is None
    assert codec.context("99999999999999999999.ldb", options).file is None
    with pytest.raises(UsageError, match="no hint 'depth'"):
        codec.context(NAME, options, depth=3)
    table = table_of(numbered(3), comparator=BYTEWISE)
    assert table.context().comparator == BYTEWISE
    rows = Specimen(table.codec, "000012.ldb", None, table.all_bytes(), {}, {"level": 2}).read().table
    assert (set(rows["file"].to_pylist()), set(rows["level"].to_pylist())) == ({12}, {2})
    assert table.read(columns="key").table.column_names == ["key"]
