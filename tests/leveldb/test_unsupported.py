"""Data that is unknown rather than damaged: compressions of Mojang's fork, unknown types with correct checksums, other databases."""

from __future__ import annotations

import filecmp
import shutil
from pathlib import Path

import pytest

import logwright as lw
from logwright.codec.fault import Kind, UnsupportedError
from logwright.codec.leveldb.formats.log.layout import WRITE_BATCH
from logwright.codec.leveldb.formats.records.layout import fragmented
from logwright.codec.leveldb.formats.table.compression import sealed

ROWS = [{"key": b"key%04d" % n, "value": b"minecraft:stone %04d " % n * 4} for n in range(1500)]
MOJANG = pytest.mark.parametrize("compression", ["zlib", "zlib_raw"])


def _table(path: Path) -> Path:
    (table,) = path.glob("*.ldb")
    return table


def _retype(table: Path, kinds: set[str], number: int, count: int = 100) -> None:
    """Give blocks another type, with a correct checksum."""
    data = bytearray(table.read_bytes())
    blocks = [row for row in lw.read(table, view="frames").to_pylist() if row["kind"] in kinds]
    for block in blocks[:count]:
        start, size = block["position"], block["size"]
        data[start : start + size + 5] = sealed(bytes(data[start : start + size]), number)
    table.write_bytes(data)


def _unsupported(path: Path) -> lw.Report:
    """Check that a path is unsupported and not damaged, and that a repair drops nothing of it."""
    report = lw.verify(path)
    assert report.unchecked
    assert report.unsupported
    assert report.ok
    assert report.bytes_damaged == 0
    assert {fault.kind for _, fault in report.faults} >= {Kind.UNSUPPORTED}
    assert "UNSUPPORTED" in report.text()
    assert "DAMAGED" not in report.text()
    with pytest.raises(UnsupportedError, match="A repair would drop it"):
        lw.repair(path, f"{path}.out")
    assert not Path(f"{path}.out").exists()
    kept = f"{path}.kept"
    assert not lw.repair(path, kept, unsupported="copy").incomplete
    if path.is_dir():
        names = sorted({name for name, fault in report.faults if name and fault.kind is Kind.UNSUPPORTED})
        assert filecmp.cmpfiles(path, kept, names, shallow=False) == (names, [], [])
    else:
        assert Path(kept).read_bytes() == path.read_bytes()
    return report


@MOJANG
def test_compressions_of_mojang_are_read_written_repaired_and_named(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "db"
    lw.write(ROWS, path, "leveldb.db", compression=compression)
    table = _table(path)
    stored = lw.read(table, view="frames", columns="compression,kind").to_pylist()
    assert {block["compression"] for block in stored if block["kind"] in ("data", "index")} == {compression}
    assert list(lw.inspect(path)["facts"]["compression"]) == [compression]
    assert lw.read(path, columns="key,value").to_pylist() == ROWS
    assert lw.verify(path).text().split()[1] == "ok"
    assert lw.roundtrip(path).ok
    lw.repair(path, tmp_path / "again")
    assert lw.read(tmp_path / "again", columns="key,value").to_pylist() == ROWS
    lw.edit(path, tmp_path / "edited", drop="key == 'key0007'")
    assert lw.read(tmp_path / "edited", columns="key,value").to_pylist() == ROWS[:7] + ROWS[8:]


@pytest.mark.alike
@MOJANG
@pytest.mark.parametrize("index", [True, False])
def test_repair_of_a_mojang_table_keeps_every_good_block(
    tmp_path: Path, compression: str, index: bool
) -> None:
    """Also if the index is damaged, so that blocks are found by their checksums."""
    path = tmp_path / "db"
    lw.write(ROWS, path, "leveldb.db", compression=compression, block_size=1024)
    table = _table(path)
    blocks = lw.read(table, view="frames", columns="*").to_pylist()
    data = bytearray(table.read_bytes())
    bad = blocks[3]
    data[bad["position"] + 5] ^= 0xFF
    if index:
        (place,) = [block["position"] for block in blocks if block["kind"] == "index"]
        data[place + 4] ^= 0xFF
    table.write_bytes(data)
    lw.repair(path, tmp_path / "out")
    kept = lw.read(tmp_path / "out", columns="key,value").to_pylist()
    assert len(kept) == len(ROWS) - bad["entries"]
    assert all(row in ROWS for row in kept)
    rows = lw.read(_table(tmp_path / "out"), view="frames", columns="compression,kind").to_pylist()
    assert {row["compression"] for row in rows if row["kind"] == "data"} == {compression}


@pytest.mark.parametrize(
    "kinds", [{"data"}, {"index"}, {"data", "index", "metaindex"}], ids=lambda kinds: "-".join(sorted(kinds))
)
def test_block_of_an_unknown_type_with_a_correct_checksum_is_unsupported(
    tmp_path: Path, kinds: set[str]
) -> None:
    path = tmp_path / "db"
    lw.write(ROWS, path, "leveldb.db", compression="none")
    table = _table(path)
    _retype(table, kinds, 7, count=2)
    _unsupported(path)
    _unsupported(table)
    for target in (path, table):
        with pytest.raises(UnsupportedError, match=r"unsupported: bad block type \(7\)"):
            lw.read(target)
    with pytest.warns(lw.DamageWarning):
        rest = lw.read(path, mode="DROPMALFORMED", columns="key,value").to_pylist()
    assert len(rest) < len(ROWS)
    assert all(row in ROWS for row in rest)


def test_entry_of_an_unknown_type_with_a_correct_checksum_is_unsupported(tmp_path: Path) -> None:
    path = tmp_path / "db"
    lw.write(ROWS[:20], path, "leveldb.db", compression="none")
    table = _table(path)
    (block,) = [row for row in lw.read(table, view="frames").to_pylist() if row["kind"] == "data"]
    data = bytearray(table.read_bytes())
    at = data.index(b"key0000") + len(b"key0000")
    assert data[at] == 1
    data[at] = 2
    end = block["position"] + block["size"]
    data[block["position"] : end + 5] = sealed(bytes(data[block["position"] : end]), 0)
    table.write_bytes(data)
    _unsupported(path)


def test_unsupported_table_does_not_prevent_the_repair_of_others(tmp_path: Path) -> None:
    path = tmp_path / "db"
    lw.write(ROWS, path, "leveldb.db", compression="none", max_file_size=20_000)
    tables = sorted(path.glob("*.ldb"))
    assert len(tables) > 3
    _retype(tables[0], {"data"}, 9)
    data = bytearray(tables[2].read_bytes())
    data[100] ^= 0x55
    tables[2].write_bytes(data)
    with pytest.raises(UnsupportedError, match=tables[0].name):
        lw.repair(path, tmp_path / "out")
    report = lw.repair(path, tmp_path / "out", unsupported="copy")
    assert {removed["file"] for removed in report["cut"]} == {tables[2].name}
    assert (tmp_path / "out" / tables[0].name).read_bytes() == tables[0].read_bytes()
    second_report = lw.verify(tmp_path / "out")
    assert second_report.ok
    assert [path for path, _ in second_report.faults] == [tables[0].name] * second_report.faults_total


def test_edit_of_an_unsupported_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "db"
    lw.write(ROWS, path, "leveldb.db", compression="none")
    _retype(_table(path), {"data"}, 7, count=1)
    with pytest.raises(UnsupportedError):
        lw.edit(path, tmp_path / "out", drop="key == 'key0700'")


def test_batch_with_an_unknown_tag_is_unsupported(tmp_path: Path) -> None:
    path = tmp_path / "db"
    lw.write(ROWS[:3], path, "leveldb.db")
    log = path / "000009.log"
    batch = WRITE_BATCH.pack(
        {"sequence": 50, "count": 1, "operations": [{"type": 1, "key": b"k", "value": b""}]}
    )
    batch = bytearray(batch)
    batch[12] = 5
    log.write_bytes(fragmented(bytes(batch), 0))
    _unsupported(path)
    _unsupported(log)


def test_manifest_with_an_unknown_tag_is_unsupported(tmp_path: Path) -> None:
    path = tmp_path / "db"
    lw.write(ROWS[:3], path, "leveldb.db")
    (manifest,) = path.glob("MANIFEST-*")
    data = manifest.read_bytes()
    manifest.write_bytes(data + fragmented(b"\xc8\x01\x05", len(data)))
    _unsupported(path)


def test_log_and_manifest_under_each_others_names_are_damaged(tmp_path: Path) -> None:
    """No other program wrote them: a repair uses each for what it is."""
    path = tmp_path / "db"
    lw.write(ROWS, path, "leveldb.db")
    (manifest,) = path.glob("MANIFEST-*")
    edits = manifest.read_bytes()
    manifest.write_bytes(
        fragmented(
            WRITE_BATCH.pack(
                {"sequence": 2000, "count": 1, "operations": [{"type": 1, "key": b"k", "value": b""}]}
            ),
            0,
        )
    )
    (path / "000009.log").write_bytes(edits)
    report = lw.verify(path)
    assert not report.ok
    assert not report.unsupported
    assert Kind.UNSUPPORTED not in {fault.kind for _, fault in report.faults}
    assert {fault.rows_lost for name, fault in report.faults if name == "000009.log"} <= {None, 0}
    lw.repair(path, tmp_path / "out")
    logged = [{"key": b"k", "value": b""}]
    assert lw.read(tmp_path / "out", columns="key,value").to_pylist() == [*logged, *ROWS]


@pytest.mark.parametrize(
    ("name", "data", "system"),
    [
        ("IDENTITY", b"8a1f", "RocksDB"),
        ("OPTIONS-000007", b"[Version]", "RocksDB"),
        ("marker.format-version.000001.013", b"", "Pebble"),
        ("000012.sst", bytes(90) + bytes.fromhex("f7cff485b741e288"), "RocksDB"),
        ("000012.sst", bytes(90) + bytes.fromhex("f09faab3f09faab3"), "Pebble"),
    ],
)
def test_other_databases_are_refused_by_name(tmp_path: Path, name: str, data: bytes, system: str) -> None:
    path = tmp_path / "db"
    lw.write(ROWS[:3], path, "leveldb.db")
    (path / name).write_bytes(data)
    for call in (lw.read, lw.verify, lw.inspect, lambda source: lw.repair(source, tmp_path / "out")):
        with pytest.raises(UnsupportedError, match=f"a {system} database"):
            call(path)
    assert not (tmp_path / "out").exists()
    if name.endswith(".sst"):
        with pytest.raises(UnsupportedError, match=f"a table of {system}"):
            lw.read(path / name)
    # Beside others it is skipped with a note.
    lw.write(ROWS[:3], tmp_path / "other", "leveldb.db")
    assert any(system in note for note in lw.verify(tmp_path).notes)


def test_option_unsupported_takes_two_values(tmp_path: Path) -> None:
    lw.write(ROWS[:3], tmp_path / "db", "leveldb.db")
    with pytest.raises(lw.UsageError, match="invalid unsupported='drop'; valid values: refuse, copy"):
        lw.repair(tmp_path / "db", tmp_path / "out", unsupported="drop")
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    lw.repair(tmp_path / "db", tmp_path / "out", unsupported="refuse")
