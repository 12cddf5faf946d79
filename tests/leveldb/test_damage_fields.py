"""Damage of named fields in LevelDB's files, and golden damage created again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logwright as lw
from logwright.codec.fault import UsageError
from logwright.codec.leveldb.formats import fields
from logwright.codec.leveldb.formats.log.layout import WRITE_BATCH
from logwright.codec.leveldb.formats.table.compression import sealed
from logwright.codec.leveldb.formats.table.layout import pack_entries
from logwright.corpora import cases
from logwright.roundtrip.laws import decode_encode

CASES = cases.cases("leveldb")
# The inputs are damaged on purpose; all sound rows are read.
pytestmark = pytest.mark.filterwarnings("ignore::logwright.DamageWarning")


def written(path: Path, codec: str, rows: list[dict[str, Any]], **options: Any) -> Path:
    lw.write(pa.Table.from_pylist(rows), path, codec, **options)
    return path


ROWS = [{"key": b"key%02d" % n, "value": b"value-%d " % n * 9, "sequence": n + 1} for n in range(40)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    long = [{"key": b"long", "value": b"x" * 70_000, "sequence": 41}]
    return written(tmp_path / "000003.log", "leveldb.log", ROWS + long + [{**ROWS[0], "sequence": 42}])


@pytest.fixture(params=["none", "snappy", "zstd"])
def table(request: Any, tmp_path: Path) -> Path:
    return written(
        tmp_path / "000005.ldb",
        "leveldb.table",
        ROWS,
        compression=request.param,
        block_size=600,
        bloom_bits_per_key=10,
    )


def changed(path: Path, *operations: str) -> Path:
    out = path.parent / "out"
    shutil.rmtree(out, ignore_errors=True)
    return Path(lw.damage(path, out, op=list(operations)).path)


def rows(path: Path) -> list[dict[str, Any]]:
    return lw.read(path, columns=["key", "value", "sequence", "type"], mode="DROPMALFORMED").to_pylist()


def faults(path: Path) -> list[str]:
    return [fault_texts.detail for _, fault_texts in lw.verify(path).faults]


# Logs


def test_value_in_a_log(log: Path) -> None:
    before = rows(log)
    path = changed(log, "set:frame=3,operation=0,field=value,text=other,reseal")
    assert rows(path)[3]["value"] == b"other"
    # Later records move, and a record that ended with its block no longer does.
    assert rows(path)[:3] == before[:3]
    path = changed(log, "set:frame=3,operation=0,field=key,text=key99,reseal")
    assert [row["key"] for row in rows(path)][2:5] == [b"key02", b"key99", b"key04"]
    assert not faults(path)
    assert decode_encode(path)


def test_without_reseal_the_checksum_is_wrong(log: Path) -> None:
    path = changed(log, "set:frame=3,operation=0,field=key,text=key99")
    assert [row["key"] for row in rows(path)][2:4] == [b"key02", b"key04"]
    assert any("checksum mismatch" in fault for fault in faults(path))


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ("set:frame=2,field=type,value=3,reseal", "missing start of fragmented record(1)"),
        ("set:frame=2,field=type,value=9,reseal", "unknown record type 9"),
        ("set:frame=2,field=crc,add=1", "checksum mismatch"),
        ("set:frame=2,field=length,value=60000", "bad record length"),
        ("set:frame=2,field=count,value=7,reseal", "7 operations declared, 1 present"),
        ("set:frame=2,operation=0,field=type,value=5,reseal", "unknown WriteBatch tag"),
        ("set:frame=40,record=1,field=crc,value=0", "in the middle of a record"),
    ],
)
def test_fields_of_a_log(log: Path, operation: str, message: str) -> None:
    path = changed(log, operation)
    assert any(message in fault for fault in faults(path)), faults(path)
    assert len(rows(path)) in (41, 42)


def test_value_over_several_blocks(log: Path) -> None:
    path = changed(log, "flip:frame=40,operation=0,field=value,at=60000,bit=0,reseal")
    assert not faults(path)
    after = rows(path)
    assert after[40]["value"][60_000:60_001] == bytes((ord("x") ^ 1,))
    assert after[40]["value"].count(b"x") == 69_999
    assert len(after) == 42
    before = rows(log)
    after[40]["value"] = before[40]["value"]
    assert after == before


def test_field_of_a_manifest(tmp_path: Path) -> None:
    manifest = lw.generate("leveldb.db", tmp_path / "db", rows=300, seed=1, recipe="mixed")
    path = Path(manifest.path) / "MANIFEST-000003"
    frames = lw.read(path).to_pylist()
    log_number = next(frame_row for frame_row in frames if frame_row["field"] == "log_number")
    frame = sorted({frame_row["position"] for frame_row in frames}).index(log_number["position"])
    out = changed(path, f"set:frame={frame},field=fields[0].body,hex=07,reseal")
    assert next(row for row in lw.read(out).to_pylist() if row["field"] == "log_number")["number"] == 7
    assert not faults(out)


def test_unknown_fields_of_a_log_are_refused(log: Path) -> None:
    for operation, message in (
        ("set:frame=2,field=magic,value=1", "has no field 'magic'"),
        ("set:frame=2,record=4,field=crc,value=1", "there is no record 4"),
        ("set:frame=2,operation=1,field=key,text=x", "no item 1; the list has 1 item"),
        ("set:frame=2,field=crc,value=1,reseal", "crc is a checksum"),
        ("set:frame=2,field=records,value=1", "choose one of the records"),
    ):
        with pytest.raises(UsageError, match=message):
            changed(log, operation)


def test_resealed_change_of_a_payload_is_read_and_others_are_damage(log: Path) -> None:
    before = rows(log)
    out = changed(log, "flip:frame=41,field=payload,at=-1,bit=0,reseal")
    assert rows(out)[:-1] == before[:-1]
    assert rows(out)[-1]["value"] != before[-1]["value"]
    out = changed(log, "insert:frame=41,field=payload,at=0,zeros=80000")
    assert rows(out) == before[:-1]
    with pytest.raises(UsageError, match="do not fit a record"):
        changed(log, "insert:frame=41,field=payload,at=0,zeros=80000,reseal")


# Tables


def test_value_in_a_block(table: Path) -> None:
    before = rows(table)
    path = changed(table, "set:frame=0,entry=2,field=value,text=VALUE-2,reseal")
    after = lw.read(path, mode="DROPMALFORMED").to_pylist()
    # The block has another size than in the index, but is found by its checksum.
    assert {frame["key"] for frame in after} >= {frame["key"] for frame in before[:3]}
    assert next(frame for frame in after if frame["key"] == b"key02")["value"] == b"VALUE-2"


def test_fields_of_a_block(table: Path) -> None:
    before = rows(table)
    first = lw.read(table, view="frames").to_pylist()[0]["entries"]
    for operation, message in (
        ("set:frame=0,field=crc,add=1", "block checksum mismatch"),
        ("set:frame=0,field=type,value=7", "block checksum mismatch"),
        ("set:frame=0,field=type,value=7,reseal", "bad block type (7)"),
        ("set:frame=0,field=num_restarts,value=1000000,reseal", ""),
        ("flip:frame=0,field=contents,at=3,bit=0", "block checksum mismatch"),
    ):
        path = changed(table, operation)
        assert rows(path) == before[first:], operation
        assert any(message in fault for fault in faults(path)), operation
    path = changed(table, "set:frame=0,restart=0,field=offset,value=0,reseal")
    assert rows(path) == before


def test_lengths_in_a_block(tmp_path: Path) -> None:
    path = written(tmp_path / "000005.ldb", "leveldb.table", ROWS, compression="none")
    data = path.read_bytes()
    out = changed(path, "set:frame=0,entry=1,field=shared,value=100,reseal")
    assert any("bad entry in block" in fault for fault in faults(out))
    assert rows(out)[0] == rows(path)[0]
    out = changed(path, "set:frame=0,entry=3,field=value,hex=" + ROWS[3]["value"].hex() + ",reseal")
    assert out.read_bytes() == data
    # Restart points after a grown entry move with it: the block can be read from each.
    out = changed(path, "insert:frame=0,entry=3,field=value,at=0,zeros=5,reseal")
    rows_read = lw.read(out, mode="DROPMALFORMED").to_pylist()
    assert rows_read[3]["value"] == bytes(5) + ROWS[3]["value"]


def test_unknown_fields_of_a_block_are_refused(table: Path) -> None:
    for operation, message in (
        ("set:frame=0,field=crc,value=1,reseal", "crc is a checksum"),
        ("set:frame=0,entry=99,field=value,text=x", "no item 99"),
        ("set:frame=0,field=restarts,value=1", "say which|no"),
    ):
        with pytest.raises(UsageError, match=message):
            changed(table, operation)


@pytest.mark.alike
def test_random_choice_of_frames(table: Path, log: Path, tmp_path: Path) -> None:
    for n, path in enumerate((table, log)):
        damaged = lw.damage(path, tmp_path / f"chance{n}", seed=n, count=40)
        assert damaged.operations
        replayed = lw.damage(path, tmp_path / f"again{n}", apply=damaged.manifest_path)
        assert Path(replayed.path).read_bytes() == Path(damaged.path).read_bytes()
        lw.read(damaged.path, mode="DROPMALFORMED")


# Golden damage


def _damage(name: str) -> dict[str, Any]:
    with (CASES[name].path / "truth.jsonl").open() as lines:
        recorded: dict[str, Any] = json.loads(next(lines)).get("damage") or {}
    return recorded


FLIPS = [name for name in CASES if _damage(name).get("what") == "bit_flip"]
ZEROS = [name for name in CASES if _damage(name).get("new_is") == "zeros" and "at" in _damage(name)]


@pytest.mark.alike
@pytest.mark.parametrize("name", FLIPS)
def test_golden_bit_flips_are_recreated(name: str, tmp_path: Path) -> None:
    """Flipped back the files are sound; flipped again they equal the golden bytes."""
    damage, db = _damage(name), CASES[name].path / "db"
    operation = f"flip:file={damage['file']},at={damage['offset']},bit={damage['bit']}"
    base = Path(lw.damage(db, tmp_path / "base", op=operation).path)
    damaged_again = Path(lw.damage(base, tmp_path / "again", op=operation).path)
    # The second table of `two_tables_one_bad` is sound, and so are the other files.
    assert lw.verify(base).ok
    assert not lw.verify(damaged_again).ok or name in ("table_flip_index", "table_flip_data")
    for path in db.iterdir():
        assert (damaged_again / path.name).read_bytes() == path.read_bytes()
    assert (base / damage["file"]).read_bytes()[damage["offset"]] == int(damage["old"], 16)


@pytest.mark.parametrize("name", ZEROS)
def test_golden_zeros_are_recreated(name: str, tmp_path: Path) -> None:
    damage, db = _damage(name), CASES[name].path / "db"
    base = Path(lw.damage(db, tmp_path / "base", op=f"cut:file={damage['file']},at={damage['at']}").path)
    assert lw.verify(base).ok
    operation = f"insert:file={damage['file']},at={damage['at']},zeros={damage['length']}"
    damaged_again = Path(lw.damage(base, tmp_path / "again", op=operation).path)
    assert (damaged_again / damage["file"]).read_bytes() == (db / damage["file"]).read_bytes()


def test_golden_files_have_bit_flips() -> None:
    assert (len(FLIPS), len(ZEROS)) == (17, 2)


# Editing functions


def flipped(old: bytes, kind: Any) -> bytes:
    return bytes((old[0] ^ 1,)) + old[1:]


def test_complete_frames_with_reseal(log: Path, table: Path) -> None:
    before = rows(log)
    out = changed(log, "flip:frame=2,at=-1,bit=0,reseal")
    assert rows(out)[2]["value"] != before[2]["value"]
    assert not faults(out)
    frame = lw.read(table, view="frames").to_pylist()[0]
    data = table.read_bytes()[: frame["size"] + 5]
    resealed = fields.edit_block(data, (), flipped, reseal=True)
    assert resealed == sealed(flipped(data, None)[:-5], data[-5])
    assert fields.edit_block(data, (), flipped, reseal=False) == flipped(data, None)
    assert fields.edit_record(WRITE_BATCH, b"abc", (), flipped, reseal=False) == flipped(b"abc", None)


RECORD = b"\0\0\0\0\3\0\1abc"


@pytest.mark.parametrize(
    ("frame", "path", "message"),
    [
        (b"\0\0\0\0\xff\0\1abc", ("crc",), "a length is damaged"),
        (b"abc", ("crc",), "too few for a record"),
        (RECORD, ("records", "crc"), "choose one of the records"),
        (RECORD, ("records", 1), "there is no record 1"),
        (RECORD, ("sequence",), "cannot be found"),
    ],
)
def test_undecodable_records_are_refused(frame: bytes, path: tuple[Any, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fields.edit_record(WRITE_BATCH, frame, path, flipped, reseal=False)


def test_payload_that_became_too_short(log: Path) -> None:
    with pytest.raises(UsageError, match="fewer than the 61292 bytes of the records before"):
        changed(log, "set:frame=40,operation=0,field=value,text=x,reseal")


@pytest.mark.parametrize(
    ("frame", "path", "message"),
    [
        (b"abc", ("type",), "too few for a block"),
        (b"abc", (), "2 bytes too few"),
        (b"\xff\xff\xff\xff\0\0\0\0\0", ("entries", 0), "restart points in"),
        (b"\0\0\0\0\0", ("entries", 0), "restart points in"),
        (b"abc\1\0\0\0\0", ("entries", 0), "does not decompress"),
    ],
)
def test_undecodable_blocks_are_refused(frame: bytes, path: tuple[Any, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fields.edit_block(frame, path, flipped, reseal=not path)


def test_entry_changed_without_reseal_stays_in_place() -> None:
    """Its length and the restart points are not adjusted."""
    plain = pack_entries([(b"key00001", b"value"), (b"key00002", b"other")], 1)
    frame = sealed(plain, 0)
    bare = fields.edit_block(frame, ("entries", 0, "value"), lambda old, kind: old + b"!!", reseal=False)
    assert bare == frame.replace(b"value", b"value!!")
    full = fields.edit_block(frame, ("entries", 0, "value"), lambda old, kind: old + b"!!", reseal=True)
    assert full == sealed(pack_entries([(b"key00001", b"value!!"), (b"key00002", b"other")], 1), 0)
