"""`edit` of LevelDB databases: removed entries are nowhere in the result, and all other blocks keep their bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from edited_stores import ROWS, all_bytes, flat_text, secret, write_users

import logwright as lw

plyvel = pytest.importorskip("plyvel")


# LevelDB


@pytest.mark.alike
@pytest.mark.parametrize("compression", ["none", "snappy"])
@pytest.mark.parametrize("write_as", ["tables", "logs"])
def test_database_entries_are_dropped_and_redacted(tmp_path: Path, compression: str, write_as: str) -> None:
    source = write_users(tmp_path / "a", compression=compression, write_as=write_as, bloom_bits_per_key=10)
    out = tmp_path / "b"
    gone = [0, 7, 1000, ROWS - 1]
    report = lw.edit(
        source, out, drop=[("key", "in", [b"user-%05d" % n for n in gone])], redact="key == user-00500"
    )
    difference = lw.diff(source, out)
    assert (difference.counts["removed"], difference.counts["changed"], difference.counts["same"]) == (
        4,
        1,
        ROWS - 5,
    )
    for number in (*gone, 500):
        assert secret(number) not in all_bytes(out)
    for number in gone:
        assert b"user-%05d" % number not in all_bytes(out)
    assert lw.verify(out, as_system=True).ok
    assert report.rows_kept == ROWS - 4
    with plyvel.DB(str(out)) as db:
        assert len(list(db)) == ROWS - 4
        assert db.get(b"user-00007") is None
        assert db.get(b"user-00500") == b""
        assert db.get(b"user-00501") == secret(501)


def test_blocks_without_a_matching_entry_keep_their_bytes(tmp_path: Path) -> None:
    source, out = write_users(tmp_path / "a", compression="none", bloom_bits_per_key=10), tmp_path / "b"
    lw.edit(source, out, redact="key == user-00500", with_=b"x" * len(secret(500)))
    names = sorted(path.name for path in source.glob("*.ldb"))
    changed = [name for name in names if (source / name).read_bytes() != (out / name).read_bytes()]
    assert len(names) > 1
    assert len(changed) == 1
    difference = lw.diff(source / changed[0], out / changed[0], by="frames", limit=100)
    assert difference.counts["changed"] <= 2  # The block; nothing moved if it is at the same offset.
    difference = lw.diff(source / changed[0], out / changed[0])
    assert difference.counts["changed"] == 1


def test_all_entries_of_a_block_and_of_a_table_are_dropped(tmp_path: Path) -> None:
    source, out = write_users(tmp_path / "a", compression="none", block_size="512"), tmp_path / "b"
    lw.edit(source, out, drop="key < user-01200")
    assert lw.read(out).num_rows == ROWS - 1200
    assert len(list(out.glob("*.ldb"))) < len(list(source.glob("*.ldb")))
    assert lw.verify(out, as_system=True).ok
    lw.edit(source, tmp_path / "c", drop="key >= u")
    assert lw.read(tmp_path / "c").num_rows == 0


def test_redaction_reaches_deletions_batches_and_long_values(tmp_path: Path) -> None:
    with plyvel.DB(str(tmp_path / "a"), create_if_missing=True) as db:
        db.put(b"a", b"SECRET-1")
        with db.write_batch() as batch:
            for n in range(9):
                batch.put(b"k%d" % n, b"SECRET-%d" % n)
            batch.delete(b"a")
        db.put(b"k4", b"SECRET-new")
        db.put(b"long", b"SECRET" * 20_000)
        db.put(b"z", b"last")
    out = tmp_path / "b"
    report = lw.edit(tmp_path / "a", out, drop="key == k4", redact="key == a or key == long")
    with plyvel.DB(str(out)) as db:
        assert dict(db) == {
            **{b"k%d" % n: b"SECRET-%d" % n for n in range(9) if n != 4},
            b"long": b"",
            b"z": b"last",
        }
    assert "leave gaps in the sequence numbers" in flat_text(report)
    other = lw.edit(tmp_path / "a", tmp_path / "c", drop="sequence == 12")
    assert "older ones may become visible again" in flat_text(other)
    assert dict(plyvel.DB(str(tmp_path / "c")))[b"k4"] == b"SECRET-4"


@pytest.mark.parametrize("write_as", ["tables", "logs"])
def test_single_file_is_edited_on_its_own(tmp_path: Path, write_as: str) -> None:
    source = write_users(tmp_path / "a", write_as=write_as)
    path = sorted([*source.glob("*.ldb"), *source.glob("*.log")])[0]
    out = tmp_path / "b" / path.name
    lw.edit(path, out, drop="key == user-00007", redact="key == user-00009")
    difference = lw.diff(path, out)
    assert (difference.counts["removed"], difference.counts["changed"]) == (1, 1)
    if write_as == "tables":
        with pytest.raises(lw.UsageError, match="it would be left without entries"):
            lw.edit(path, tmp_path / "c" / path.name, drop="key >= u")


def test_value_a_database_cannot_hold_is_refused(tmp_path: Path) -> None:
    source = write_users(tmp_path / "a")
    with pytest.raises(lw.UsageError, match="cannot be null"):
        lw.edit(source, tmp_path / "b", redact="key == user-00007", with_=None)
    with pytest.raises(lw.UsageError, match="cannot be redacted"):
        lw.edit(source, tmp_path / "b", redact="key == user-00007", columns="key")


def test_unreferenced_files_are_left_out(tmp_path: Path) -> None:
    """They may contain the removed data."""
    source = write_users(tmp_path / "a")
    old = sorted(source.glob("*.ldb"))[0]
    shutil.copy(old, source / "000001.ldb")
    report = lw.edit(source, tmp_path / "b", drop="key == user-00007")
    assert not (tmp_path / "b" / "000001.ldb").exists()
    assert "000001.ldb" in flat_text(report)
    assert secret(7) not in all_bytes(tmp_path / "b")


# All systems


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    for write_as, pattern in (("tables", "*.ldb"), ("logs", "*.log")):
        source = write_users(tmp_path / write_as, compression="none", write_as=write_as)
        path = next(source.glob(pattern))
        data = bytearray(path.read_bytes())
        data[100] ^= 1
        path.write_bytes(data)
        for folder in (path, source):
            with pytest.raises(lw.DamageError, match=r"[Rr]epair"):
                lw.edit(folder, tmp_path / "out" / write_as / folder.name, drop="key == user-00007")


def test_deletions_stay_deletions_when_values_are_redacted(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "key": [b"a", b"b", b"c"],
            "value": pa.array([b"SECRET", None, b"x"], pa.binary()),
            "sequence": [1, 2, 3],
        }
    )
    lw.write(rows, tmp_path / "a", "leveldb.db")
    lw.edit(tmp_path / "a", tmp_path / "b", redact="key <= c", with_="-")
    operations = lw.read(tmp_path / "b", view="rows", columns="key,value,type").to_pylist()
    assert [row["value"] for row in operations] == [b"-", None, b"-"]


def test_unchanged_log_is_copied(tmp_path: Path) -> None:
    source = write_users(tmp_path / "a", 50, write_as="logs")
    path = next(source.glob("*.log"))
    lw.edit(path, tmp_path / "b" / path.name, drop="key == nobody", allow_no_match=True)
    assert (tmp_path / "b" / path.name).read_bytes() == path.read_bytes()
    report = lw.edit(source, tmp_path / "c", drop="key == nobody", allow_no_match=True)
    assert (tmp_path / "c" / path.name).read_bytes() == path.read_bytes()
    assert "nothing matches" in flat_text(report)


def test_log_longer_than_a_window_is_rewritten_from_the_first_change(tmp_path: Path) -> None:
    """Bytes after the first change are divided into new fragments with the same contents."""
    with plyvel.DB(str(tmp_path / "a"), create_if_missing=True, write_buffer_size=64 << 20) as db:
        for n in range(300):
            db.put(b"k%03d" % n, b"%03d" % n * 8000)
    out = tmp_path / "b"
    report = lw.edit(tmp_path / "a", out, redact="key == k290", with_="x")
    assert len(report.cut or ()) == 1
    assert "LOG, LevelDB's own log file" in flat_text(report)
    difference = lw.diff(tmp_path / "a", out)
    assert (difference.counts["changed"], difference.counts["same"]) == (1, 299)
