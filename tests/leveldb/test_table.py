"""The codec of tables: golden files, both ways, damage, splits, bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from logwright.codec.fault import DamageError, UsageError
from logwright.codec.kernels.kernel import INTERPRETED, mode
from logwright.codec.leveldb.formats.table.codec import Keys, readable
from logwright.codec.leveldb.formats.table.filter import Filter, hash_keys
from logwright.codec.leveldb.formats.table.layout import pack_entries, sealed
from logwright.codec.leveldb.formats.table.write import TableBuilder, TableSettings
from logwright.codec.leveldb.keys import BYTEWISE, internal_key, order
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


def of(data: bytes, **options: Any) -> Specimen:
    return Specimen.of(data, "leveldb.table", NAME, **options)


def made(rows: list[dict[str, Any]], **options: Any) -> Specimen:
    empty = of(b"", **options)
    return empty.with_bytes(empty.encode(pa.Table.from_pylist(rows)))


def numbered(count: int, size: int = 20) -> list[dict[str, Any]]:
    return [
        {"key": b"key%05d" % n, "value": bytes([n % 251]) * size, "sequence": n + 1} for n in range(count)
    ]


def test_there_are_golden_tables() -> None:
    assert len(TABLES) >= 40


@pytest.mark.parametrize("path", TABLES, ids=ids)
def test_golden_tables_come_back(path: Path) -> None:
    for law in (laws.decode_encode, laws.encoded_anew):
        verdict = law(path)
        assert verdict, str(verdict)


PLAIN = {"tables_none": {"block_size": 1024, "block_restart_interval": 4}}


@pytest.mark.parametrize("name", PLAIN)
def test_rows_alone_give_the_bytes_of_leveldb(name: str) -> None:
    for path in (GOLDEN / name / "db").glob("*.ldb"):
        found = Specimen.of(path)
        rows = found.read(columns=None).table
        again = of(b"", compression="none", **PLAIN[name]).encode(rows)
        assert again == found.all_bytes()


def test_the_worked_example() -> None:
    rows = [
        {"key": b"apple", "value": None, "sequence": 3, "type": "deletion"},
        {"key": b"apple", "value": b"red", "sequence": 1, "type": "value"},
        {"key": b"apricot", "value": b"", "sequence": 2, "type": "value"},
        {"key": b"banana", "value": b"yellow", "sequence": 4, "type": "value"},
    ]
    table = made(rows, compression="none", bloom_bits_per_key=10)
    data = table.all_bytes()
    assert len(data) == 232
    assert data[:30].hex() == "000d006170706c6500030000000000000508030101000000000000726564"
    assert data[82:100].hex() == "4245000ca002d00f0600000000090000000b"
    assert data[184:189].hex() == "692f9d0116"
    assert table.read(columns=None).table.to_pylist() == rows
    frames = table.read("frames").table.to_pylist()
    assert [(one["kind"], one["position"], one["size"]) for one in frames] == [
        ("data", 0, 77), ("filter", 82, 18), ("metaindex", 105, 47), ("index", 157, 22),
    ]  # fmt: skip
    file = table.read("file").table.to_pylist()[0]
    assert [file[f"{one}_{two}"] for one in ("metaindex", "index") for two in ("offset", "size")] == [
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
def test_round_trips(
    entries: dict[tuple[bytes, int], bytes | None], options: dict[str, Any], step: int
) -> None:
    keys = sorted(entries, key=lambda one: (one[0], -one[1]))
    rows = pa.table(
        {
            "key": pa.array([key for key, _ in keys], pa.binary()),
            "value": pa.array([entries[one] for one in keys], pa.binary()),
            "sequence": pa.array([sequence for _, sequence in keys], pa.int64()),
        }
    )
    empty = of(b"", **options)
    table = empty.with_bytes(empty.encode(rows))
    found = table.read()
    assert found.report.faults == []
    assert found.table.select(rows.schema.names).equals(
        rows.cast(found.table.select(rows.schema.names).schema)
    )
    assert table.encode(*table.tables()) == table.all_bytes()
    # However the rows come, the bytes are the same.
    pieces = pa.Table.from_batches(rows.to_batches(max_chunksize=step), rows.schema)
    assert empty.encode(pieces) == table.all_bytes()
    check_filter(table)


def check_filter(table: Specimen) -> None:
    """The filter has every key of every data block."""
    rows, frames, _ = table.tables()
    data = table.all_bytes()
    blocks = [one for one in frames.to_pylist() if one["kind"] == "filter"]
    for one in blocks:
        found = Filter(np.frombuffer(data, np.uint8)[one["position"] : one["position"] + one["size"]])
        for position in set(rows["position"].to_pylist()):
            keys = [row["key"] for row in rows.to_pylist() if row["position"] == position]
            hashes = np.empty(len(keys), np.int64)
            hash_keys(
                np.frombuffer(b"".join(keys), np.uint8), np.cumsum([0, *map(len, keys)]), 0, len(keys), hashes
            )
            assert found.misses(position, hashes) is None


def test_golden_filters_have_their_keys() -> None:
    for path in (GOLDEN / "tables_bloom/db").glob("*.ldb"):
        check_filter(Specimen.of(path))


def test_each_row_comes_once_however_it_is_split() -> None:
    table = made(numbered(300), compression="none", block_size=200)
    data = table.all_bytes()
    verdict = laws.any_split(data, "leveldb.table", name=NAME, sizes=[1, 100, 1000, 5000, len(data)])
    assert verdict, str(verdict)
    assert len(table.stretches(1)) > 20


# Damage


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 4,)) + data[at + 1 :]


@pytest.fixture(scope="module")
def sound() -> Specimen:
    return made(numbered(60), compression="none", block_size=300, bloom_bits_per_key=10)


def test_every_bad_block_is_a_hole_and_the_others_are_salvaged(sound: Specimen) -> None:
    rows = sound.read().table
    data = sound.all_bytes()
    for frame in sound.read("frames").table.to_pylist():
        hurt = sound.with_bytes(flipped(data, frame["position"] + 1))
        found = hurt.read()
        expected = rows.filter(pa.compute.not_equal(rows["position"], frame["position"]))
        assert found.table.equals(expected), frame
        (fault,) = found.report.faults
        assert (fault.offset, fault.length) == (frame["position"], frame["size"] + 5)
        assert fault.detail.startswith("block checksum mismatch")
        assert fault.rows_lost == (None if frame["kind"] == "data" else 0)
        assert hurt.encode(*hurt.tables()) == hurt.all_bytes()
    with pytest.raises(DamageError, match="block checksum mismatch"):
        sound.with_bytes(flipped(data, 5)).read(mode=Mode.FAILFAST)


def test_what_is_lost_is_said_in_keys(sound: Specimen) -> None:
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
    table = made(numbered(400, 40), compression=compression, block_size=900, bloom_bits_per_key=10)
    data, rows = table.all_bytes(), table.read().table
    frames = table.read("frames").table.to_pylist()
    index = frames[-1]["position"]
    cut = table.with_bytes(data[:index])
    assert cut.read().table.equals(rows)
    assert cut.encode(*cut.tables()) == data[:index]
    # The footer alone is gone: the index is found, and believed again.
    bare = table.with_bytes(data[:-48])
    assert bare.read().table.equals(rows)
    assert [one["kind"] for one in bare.read("frames").table.to_pylist()] == [one["kind"] for one in frames]
    assert bare.read("frames").table["index_key"].to_pylist() == [one["index_key"] for one in frames]
    # A data block is damaged too, and the index is nonsense.
    hurt = bytearray(flipped(data, frames[1]["position"] + 9))
    hurt[index : index + 30] = bytes(30)
    hurt[-48:-8] = b"\xff" * 40
    found = table.with_bytes(bytes(hurt)).read()
    assert found.table.equals(rows.filter(pa.compute.not_equal(rows["position"], frames[1]["position"])))
    assert table.with_bytes(bytes(hurt)).encode(*table.with_bytes(bytes(hurt)).tables()) == bytes(hurt)


def test_a_table_within_a_value_is_not_taken_for_the_table() -> None:
    inner = made(numbered(30), compression="none", block_size=200).all_bytes()
    rows = [
        *numbered(3),
        {"key": b"z", "value": inner, "sequence": 9},
        {"key": b"zz", "value": b"1", "sequence": 9},
    ]
    outer = made(rows, compression="none", block_size=100)
    data = outer.all_bytes()
    frames = outer.read("frames").table.to_pylist()
    assert (
        outer.with_bytes(data[:-60]).read(columns=None).table.to_pylist()
        == outer.read(columns=None).table.to_pylist()
    )
    hurt = flipped(data[:-60], frames[1]["position"] + 2)
    found = outer.with_bytes(hurt).read().table
    assert {one["position"] for one in found.to_pylist()} <= {frames[0]["position"], frames[2]["position"]}


@pytest.mark.extended
@pytest.mark.skipif(mode() == INTERPRETED, reason="megabytes, byte by byte")
def test_large_files_are_searched_window_by_window() -> None:
    noise = np.random.default_rng(1).integers(0, 256, 3 << 20).astype(np.uint8).tobytes()
    rows = [
        {"key": b"%05d" % n, "value": noise[n * 3000 : n * 3000 + 3000], "sequence": 1} for n in range(900)
    ]
    rows.append({"key": b"big", "value": noise, "sequence": 1})
    table = made(rows, compression="none", block_size=8000)
    data = table.all_bytes()
    cut = table.with_bytes(data[:-200])
    assert cut.read().table.num_rows == 901
    hurt = bytearray(data[:-200])
    hurt[1_000_000] ^= 1
    found = table.with_bytes(bytes(hurt)).read()
    assert 895 <= found.table.num_rows < 901
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
def test_what_is_no_table(data: bytes, message: str) -> None:
    found = of(data).read()
    assert found.table.num_rows == 0
    assert any(message.split(" .")[0] in one.detail for one in found.report.faults)
    with pytest.raises(DamageError, match=message):
        of(data).read(mode=Mode.FAILFAST)
    assert of(data).encode(*of(data).tables()) == data


def crafted(blocks: list[tuple[bytes, int]], entries: list[tuple[bytes, bytes]]) -> bytes:
    """A file of these blocks, an empty metaindex, an index and a footer."""
    from logwright.codec.leveldb.formats.table.layout import handle
    from logwright.codec.leveldb.formats.table.write import footer

    data = b"".join(sealed(contents, kind) for contents, kind in blocks)
    meta = len(data)
    data += sealed(pack_entries([], 16), 0)
    index, at = pack_entries(entries, 1), len(data)
    return data + sealed(index, 0) + footer(handle(meta, 8), handle(at, len(index)))


def test_blocks_with_right_checksums_that_can_not_be_read() -> None:
    from logwright.codec.leveldb.formats.table.layout import handle

    good = pack_entries(
        [(internal_key(b"a", 1, 1), b"x"), (b"bad", b""), (internal_key(b"c", 1, 0), b"odd")], 16
    )
    blocks = [(good, 0), (b"\0\0\0", 0), (b"zz", 9), (good[:-9] + b"\x7f" + good[-8:], 0)]
    at, entries = 0, []
    for n, (contents, _) in enumerate(blocks):
        entries.append((internal_key(b"k%d" % n, 1, 1), handle(at, len(contents)) + b"more"))
        at += len(contents) + 5
    table = of(crafted(blocks, entries))
    found = table.read()
    assert found.table.num_rows == 4
    details = [one.detail for one in found.report.faults]
    assert any("corrupted internal key" in one for one in details)
    assert any("bad block contents" in one for one in details)
    assert any("bad block type (9)" in one for one in details)
    assert table.encode(*table.tables()) == table.all_bytes()
    assert table.read("frames").table["compression"].to_pylist()[2] == "unknown 9"
    assert laws.encoded_anew(crafted(blocks[:1], entries[:1]), "leveldb.table", name=NAME)


def test_handles_that_can_not_be() -> None:
    from logwright.codec.leveldb.formats.table.layout import handle

    good = pack_entries([(internal_key(b"a", 1, 1), b"x")], 16)
    overlap = [(internal_key(b"a", 1, 1), handle(0, len(good))), (internal_key(b"b", 1, 1), handle(3, 9))]
    assert of(crafted([(good, 0)], overlap)).read().table.num_rows == 1
    # What names no blocks is not believed, and they are found all the same.
    for bad in (handle(1 << 63, 1 << 63), b"", b"\x80", b"\xff" * 11, handle(40, 40)):
        found = of(crafted([(good, 0)], [(internal_key(b"a", 1, 1), bad)])).read()
        assert found.table.num_rows == 1
        assert [one.detail.partition(",")[0] for one in found.report.faults] == [
            "bad block handle in the index"
        ]
    # Blocks that no entry names are no rows of the table.
    both = [(good, 0), (good, 0)]
    found = of(crafted(both, overlap[:1])).read()
    assert found.table.num_rows == 1
    assert [one.detail for one in found.report.faults] == ["no block of the index starts here"]


@pytest.mark.parametrize(("at", "byte"), [(-4, 0x7F), (0, 99)], ids=["restarts", "entry"])
def test_an_index_that_can_not_be_read_to_its_end(at: int, byte: int) -> None:
    """Its checksum is right: LevelDB finds none of the blocks, or not all."""
    from logwright.codec.leveldb.formats.table.layout import handle

    good = pack_entries([(internal_key(b"a", 1, 1), b"x")], 16)
    made = crafted([(good, 0)], [(internal_key(b"a", 1, 1), handle(0, len(good)))])
    index = bytearray(pack_entries([(internal_key(b"a", 1, 1), handle(0, len(good)))], 1))
    stored = sealed(bytes(index), 0)
    index[at] = byte
    table = of(made.replace(stored, sealed(bytes(index), 0)))
    assert table.all_bytes() != made
    found = table.read()
    assert found.table.num_rows == 1
    (fault,) = found.report.faults
    assert fault.detail.startswith("the index can't be read to its end")
    assert (fault.offset, fault.length) == (len(made) - 48 - len(stored), len(index))
    assert table.encode(*table.tables()) == table.all_bytes()


# Bounds of keys


def bounded(table: Specimen, given: Any, **hints: Any) -> tuple[list[bytes], int]:
    """The keys that match, and how many blocks were decoded for them."""
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
                filter=understand(given, codec.tables["rows"]),
            )
        )  # fmt: skip
    return [key for batch in batches for key in batch.column(0).to_pylist()], sum(seen)


def test_filters_on_keys_read_no_other_blocks(sound: Specimen) -> None:
    everything = sum(bounded(sound, [("key", ">=", b"")])[1:])
    for wanted, expected in (
        ([("key", "==", b"key00030")], 1),
        ([("key", "<", b"key00002")], 2),
        ([("key", ">", b"key00057")], 2),
        ([("key", "<=", b"key00000")], 1),
        ([("key", "in", [b"key00007", b"key00050"])], 2),
        ([("key", "!=", b"key00007")], 59),
    ):
        keys, blocks = bounded(sound, wanted, comparator=BYTEWISE)
        assert len(keys) == expected
        assert blocks < everything or wanted[0][1] == "!="
        # Where the order of the keys is not known, nothing is left out.
        assert bounded(sound, wanted) == (keys, everything)


def test_bounds_are_exact() -> None:
    keys = Keys([b"a", b"a\0"])
    assert ((keys != b"a").tolist(), (keys < b"a\0").tolist()) == ([False, True], [True, False])
    assert sorted([internal_key(b"a", 1, 1), internal_key(b"a", 2, 0)], key=order)[0] == internal_key(
        b"a", 2, 0
    )


# Rows that are none


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"value": b""}], "needs a column 'key'"),
        ([{"key": None, "value": b""}], "row 0: the key is null"),
        ([{"key": 1.5, "value": b""}], "binary or text"),
        ([{"key": b"b"}, {"key": b"a"}], "row 1: the key b'a' is not behind b'b'"),
        ([{"key": b"ab"}, {"key": b"a"}], "not behind"),
        ([{"key": b"a"}, {"key": b"a"}], "comes again"),
        ([{"key": b"a", "sequence": 1}, {"key": b"a", "sequence": 1 << 55}], "comes again"),
        ([{"key": b"a", "sequence": -1}], "does not fit 56 bits"),
        ([{"key": b"a", "sequence": None}], "'sequence'"),
        ([{"key": b"a", "type": "merge"}], "'merge' is none of"),
        ([{"key": b"a", "value": b"", "type": "deletion"}], "a deletion that has a value"),
        ([{"key": b"a", "value": None, "type": "value"}], "a value that has no value"),
    ],
)
def test_rows_that_make_no_table(rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        made(rows)


def test_order_is_held_across_portions() -> None:
    builder = TableBuilder(TableSettings(block_size=1))
    builder.add(pa.RecordBatch.from_pylist([{"key": b"b", "value": b""}]))
    with pytest.raises(UsageError, match="row 1"):
        builder.add(pa.RecordBatch.from_pylist([{"key": b"a", "value": b""}]))


def test_of_another_order_only_the_name_is_known() -> None:
    rows = [{"key": b"b" * 9, "value": b"1"}, {"key": b"a", "value": b"2"}]
    table = made(rows, comparator="test.ReverseBytewise", block_size=1)
    assert [one["key"] for one in table.read().table.to_pylist()] == [b"b" * 9, b"a"]
    keys = [one["index_key"] for one in table.read("frames").table.to_pylist() if one["kind"] == "data"]
    assert keys == [internal_key(b"b" * 9, 0, 1), internal_key(b"a", 0, 1)]


def test_a_builder_stops_where_a_file_is_full() -> None:
    settings = TableSettings(block_size=200, compression="none")
    batch = pa.RecordBatch.from_pylist(numbered(100))
    builder = TableBuilder(settings)
    data, taken = builder.add(batch, limit=500)
    assert 500 <= builder.size == len(data)
    assert 0 < taken < 100
    data += builder.finish()
    table = of(data)
    assert table.read().table.num_rows == taken == builder.rows
    assert len(data) == builder.size
    assert builder.smallest == internal_key(b"key00000", 1, 1)
    assert builder.largest == internal_key(b"key%05d" % (taken - 1), taken, 1)
    assert builder.largest_sequence == taken
    assert builder.add(batch.slice(0, 0)) == (b"", 0)


# Rows that changed


def replaced(table: Specimen, row: int, value: bytes) -> pa.Table:
    rows = table.read().table
    values = rows["value"].to_pylist()
    values[row] = value
    return rows.set_column(rows.schema.get_field_index("value"), "value", pa.array(values, pa.binary()))


@pytest.mark.parametrize(
    "options", [{}, {"bloom_bits_per_key": 14}, {"compression": "none", "bloom_bits_per_key": 10}]
)
def test_changed_rows_are_written_anew(options: dict[str, Any]) -> None:
    table = made(numbered(100), **{"block_size": 300, **options})
    _, frames, file = table.tables()
    rows = replaced(table, 50, b"another value, and longer than it was")
    again = table.with_bytes(table.encode(rows, frames, file))
    found = again.read()
    assert found.report.faults == []
    assert found.table.drop_columns(["position"]).equals(rows.drop_columns(["position"]))
    check_filter(again)
    if options.get("compression") == "none":
        # No other block than that of the row is another.
        anew = again.read("frames").table["size"].to_pylist()
        assert sum(a != b for a, b in zip(anew, frames["size"].to_pylist(), strict=True)) <= 3
    without = table.encode(rows, frames)
    assert table.with_bytes(without).read().report.faults == []
    kept = rows.filter(pa.compute.not_equal(rows["position"], frames["position"][1].as_py()))
    fewer = table.with_bytes(table.encode(kept, frames, file)).read()
    assert (fewer.table.num_rows, fewer.report.faults) == (kept.num_rows, [])


def test_rows_without_positions_are_counted() -> None:
    table = made(numbered(50), block_size=300)
    rows, frames, file = table.tables()
    assert table.encode(rows.drop_columns(["position"]), frames, file) == table.all_bytes()
    with pytest.raises(UsageError, match="50 entries, and 49 rows"):
        table.encode(rows.drop_columns(["position"]).slice(1), frames, file)
    with pytest.raises(UsageError, match="is in no frame"):
        table.encode(pa.concat_tables([rows.slice(30), rows.slice(0, 30)]), frames, file)
    with pytest.raises(UsageError, match="needs a column 'kind'"):
        table.encode(rows, frames.drop_columns(["kind"]), file)
    anew = frames.drop_columns(["payload"]).set_column(
        frames.schema.get_field_index("compression"), "compression", pa.array(["lzma"] * len(frames))
    )
    with pytest.raises(UsageError, match="compression 'lzma' is none of"):
        table.encode(rows, anew, file)


def test_hints() -> None:
    codec = of(b"").codec
    options = of(b"").context().options
    assert codec.context("0000000007.sst", options).file == 7
    assert codec.context("x", options).file is None
    assert codec.context("99999999999999999999.ldb", options).file is None
    with pytest.raises(UsageError, match="no hint 'depth'"):
        codec.context(NAME, options, depth=3)
    table = made(numbered(3), comparator=BYTEWISE)
    assert table.context().comparator == BYTEWISE
    rows = Specimen(table.codec, "000012.ldb", None, table.all_bytes(), {}, {"level": 2}).read().table
    assert (set(rows["file"].to_pylist()), set(rows["level"].to_pylist())) == ({12}, {2})
    assert table.read(columns="key").table.column_names == ["key"]
