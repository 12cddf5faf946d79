"""A table that the manifest names is missing: verify and repair report the same loss."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import logwright as lw
from logwright.codec.leveldb.formats.table import index


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "db"
    for part in range(3):
        keys = [b"key-%06d" % n for n in range(part * 1000, part * 1000 + 1000)]
        rows = pa.table(
            {
                "key": keys,
                "value": [b"value" * 8] * 1000,
                "sequence": range(part * 1000 + 1, part * 1000 + 1001),
            }
        )
        lw.write(rows, str(path), "leveldb.db", mode="append" if part else "error")
    return path


def _tables(path: Path) -> list[Path]:
    return sorted(path.glob("*.ldb"))


def test_loss_of_a_missing_table_is_the_same_in_verify_and_repair(database: Path, tmp_path: Path) -> None:
    gone = _tables(database)[1]
    rows = lw.read(str(gone), "leveldb.table").num_rows
    size = gone.stat().st_size
    gone.unlink()
    report = lw.verify(str(database))
    (lost,) = [fault.lost for _, fault in report.faults if fault.lost]
    assert (lost["entries_at_most"], lost["bytes"]) == (rows, size)
    assert (lost["smallest"], lost["largest"]) == ("key-001000", "key-001999")
    text = " ".join(str(report).split())
    assert f"{size:,} bytes, keys key-001000..key-001999; at most {rows:,} entries" in text
    assert "loses nothing more" in text
    repaired = lw.repair(str(database), str(tmp_path / "repaired"))
    assert [removed["lost"] for removed in repaired.cut or () if removed.get("lost")] == [lost]
    assert f"at most {rows:,} entries" in " ".join(str(repaired).split())
    assert lw.read(str(tmp_path / "repaired")).num_rows == 3000 - rows


def test_several_missing_tables_share_one_bound(database: Path) -> None:
    for table in _tables(database)[1:]:
        table.unlink()
    report = lw.verify(str(database))
    fault_texts = [fault.lost["entries_at_most"] for _, fault in report.faults if fault.lost]
    assert fault_texts == [2000, 2000]
    assert "at most 2,000 entries in all 2 lost tables together" in " ".join(str(report).split())


def test_no_entry_count_if_entries_share_sequence_numbers(tmp_path: Path) -> None:
    path = tmp_path / "db"
    rows = pa.table({"key": [b"key-%06d" % n for n in range(4000)], "value": [b"value" * 8] * 4000})
    lw.write(rows, str(path), "leveldb.db", max_file_size=20_000)
    _tables(path)[0].unlink()
    report = lw.verify(str(path))
    (lost,) = [fault.lost for _, fault in report.faults if fault.lost]
    assert "entries_at_most" not in lost
    assert lost["smallest"] == "key-000000"


@pytest.mark.parametrize("depth", ["checksums", "records"])
@pytest.mark.parametrize("size", [0, 1 << 16])
def test_table_without_a_readable_entry_is_reported_like_a_missing_one(
    depth: str, size: int, database: Path, tmp_path: Path
) -> None:
    gone = _tables(database)[1]
    stored = gone.stat().st_size
    gone.write_bytes(bytes(size))
    report = lw.verify(str(database), depth=depth)
    ((path, lost),) = [(path, fault.lost) for path, fault in report.faults if fault.lost]
    assert path == gone.name
    assert (lost["smallest"], lost["largest"], lost["bytes"]) == ("key-001000", "key-001999", stored)
    text = " ".join(str(report).split())
    assert f"has no readable entry: {stored:,} bytes, keys key-001000..key-001999" in text
    assert "loses nothing" not in text.replace("loses nothing more", "")
    repaired = lw.repair(str(database), str(tmp_path / "repaired"))
    removed = [cut["lost"] for cut in repaired.cut or () if cut.get("lost")]
    assert removed == [{**lost, "entries_at_most": 1000}]
    assert "key-001999; at most 1,000 entries" in " ".join(str(repaired).split())
    assert lw.read(str(tmp_path / "repaired")).num_rows == 2000


def test_damaged_blocks_of_a_table_with_a_sound_index_report_their_own_keys(database: Path) -> None:
    gone = _tables(database)[1]
    data = bytearray(gone.read_bytes())
    stored = np.frombuffer(bytes(data), np.uint8)
    blocks = index.survey(lambda at, length: stored[at : at + length], len(data), 1 << 28)
    for at in blocks.offset[blocks.kind == index.DATA].tolist():
        data[at] ^= 3
    gone.write_bytes(data)
    text = " ".join(str(lw.verify(str(database))).split())
    assert "no readable entry" not in text
    assert "key-001" in text


def test_partly_readable_table_is_not_reported_as_lost(database: Path) -> None:
    gone = _tables(database)[1]
    gone.write_bytes(gone.read_bytes()[:-60])
    text = " ".join(str(lw.verify(str(database))).split())
    assert "no readable entry" not in text
