"""Problems that are not LevelDB's damage are named: pointer files, a CURRENT changed by text conversion, tables under other names."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import logwright as lw
from logwright.codec.fault import UsageError

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d" * 32 + b"\nsize 12345\n"
ANNEX = b"/annex/objects/SHA256E-s12345--4d7a214614ab2935.ldb\n"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    rows = pa.table({"key": [b"key-%04d" % n for n in range(400)], "value": [b"value"] * 400})
    lw.write(rows, str(tmp_path / "db"), "leveldb.db", max_file_size=4000, compression="none")
    return tmp_path / "db"


@pytest.mark.parametrize(
    ("data", "message"), [(LFS, "Git LFS pointer.*git lfs pull"), (ANNEX, "git-annex pointer.*git annex get")]
)
@pytest.mark.parametrize("name", ["000005.ldb", "00000000000000000000.log", "snapshot.1", "anything"])
def test_pointer_file_of_any_name_is_named(data: bytes, message: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UsageError, match=message):
        lw.verify(str(tmp_path / name))


def test_pointer_file_in_a_database_is_named(database: Path) -> None:
    next(database.glob("*.ldb")).write_bytes(LFS)
    report = lw.verify(str(database))
    assert not report.ok
    assert any("is a Git LFS pointer, not the data" in note for note in report.notes)


def test_current_file_with_crlf_is_named(database: Path) -> None:
    current = database / "CURRENT"
    current.write_bytes(current.read_bytes().replace(b"\n", b"\r\n"))
    assert "CURRENT ends in CRLF" in " ".join(str(lw.verify(str(database))).split())


def test_table_of_any_name_is_recognised_by_its_magic(database: Path, tmp_path: Path) -> None:
    table = next(database.glob("*.ldb"))
    renamed = tmp_path / "recovered-17.bin"
    renamed.write_bytes(table.read_bytes())
    report = lw.verify(str(renamed))
    assert report.ok
    assert report.codec == "leveldb.table"
    assert lw.read(str(renamed)).num_rows == lw.read(str(table)).num_rows


def test_damage_in_a_table_that_the_manifest_does_not_name_is_a_note(database: Path) -> None:
    table = next(database.glob("*.ldb"))
    data = bytearray(table.read_bytes())
    data[100] ^= 1
    (database / "000001.ldb").write_bytes(data)
    report = lw.verify(str(database))
    assert report.ok
    (fault,) = (fault for name, fault in report.faults if name == "000001.ldb" and fault.length)
    assert fault.severity == "info"
    assert fault.kind == "checksum mismatch"
    assert report.bytes_damaged == 0


def test_keys_of_a_single_table_are_not_guessed_by_inspect(database: Path) -> None:
    summary = lw.inspect(str(next(database.glob("*.ldb"))))
    assert "key" not in summary["ranges"]
    assert summary["counts"]["kind"]["data"] > 0
