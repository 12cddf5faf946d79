"""Entry ids for which an index file would be too large: nothing is allocated for the entries before them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import logwright as lw
from logwright.codec.bookkeeper.formats.index import most_entries
from logwright.codec.fault import Kind

_ROOM = most_entries(8192)
_PLACE = "ledger/current/0/5/5.idx"


def _bookie(path: Path) -> Path:
    """Write a bookie with the entries 0 to 4 of ledgers 5 and 6."""
    rows = [{"ledger_id": ledger, "entry_id": n, "payload": b"abc"} for ledger in (5, 6) for n in range(5)]
    lw.write(rows, path, "bookkeeper.bookie")
    assert (path / _PLACE).exists()
    return path


def _entries(path: Path) -> list[tuple[int, int]]:
    rows = lw.read(path, mode="DROPMALFORMED").select(["ledger_id", "entry_id"]).to_pylist()
    return [(row["ledger_id"], row["entry_id"]) for row in rows]


@pytest.mark.parametrize("entry", [_ROOM, 1 << 40, (1 << 60) - 1, (1 << 63) - 1])
def test_repair_leaves_an_entry_without_a_place_out_of_the_index(entry: int, tmp_path: Path) -> None:
    source, out = _bookie(tmp_path / "source"), tmp_path / "out"
    operation = f"set:file=ledger/current/0.log,frame=2,field=entry_id,value={entry},reseal"
    lw.damage(source, tmp_path / "damaged", op=operation)
    report = lw.repair(tmp_path / "damaged" / "source", out)
    assert any(f"entry {entry} of ledger 5 is in no index file" in note for note in report.notes)
    assert (out / _PLACE).stat().st_size < 1 << 20
    checked = lw.verify(out)
    assert checked.ok  # a second repair would not change it
    assert f"entries up to {_ROOM - 1}, but not for 1 entry of ledger 5" in str(checked)
    assert "logwright repair" not in str(checked)
    assert _entries(out) == _entries(tmp_path / "damaged" / "source")
    assert (5, entry) in _entries(out)


def test_too_large_index_is_not_read_and_a_repair_replaces_it(tmp_path: Path) -> None:
    bookie, out = _bookie(tmp_path / "bookie"), tmp_path / "out"
    rows = _entries(bookie)
    os.truncate(bookie / _PLACE, 2 << 30)
    (bookie / "ledger/current/0/6/6.idx").write_bytes(b"")
    report = lw.verify(bookie)
    faults = [(file["path"], fault["kind"]) for file in report["files"] for fault in file["faults"]]
    assert [kind for path, kind in faults if path.endswith("5.idx")] == [Kind.LENGTH]
    assert _entries(bookie) == rows
    with pytest.raises(lw.UnsupportedError, match="2147483648 bytes"):
        lw.read(bookie, mode="AS_SYSTEM")
    lw.repair(bookie, out)
    assert (out / _PLACE).stat().st_size == 1024 + 8192
    assert lw.verify(out).ok
    assert _entries(out) == rows


def test_writing_refuses_an_entry_without_a_place_in_an_index_file(tmp_path: Path) -> None:
    rows = [{"ledger_id": 5, "entry_id": _ROOM, "payload": b"abc"}]
    with pytest.raises(lw.UsageError, match=f"expected at most {_ROOM - 1}.*DbLedgerStorage"):
        lw.write(rows, tmp_path / "bookie", "bookkeeper.bookie")
    with pytest.raises(lw.UsageError, match=f"row 0 is {1 << 40}, expected 0 to {_ROOM - 1}"):
        lw.write([{"entry_id": 1 << 40, "location": 1 << 33}], tmp_path / "5.idx", "bookkeeper.index")
    assert not list(tmp_path.iterdir())


def test_repair_refuses_to_shorten_an_index_that_entries_need(tmp_path: Path) -> None:
    source, out = _bookie(tmp_path / "source"), tmp_path / "out"
    operation = f"set:file=ledger/current/0.log,frame=2,field=entry_id,value={_ROOM},reseal"
    lw.damage(source, tmp_path / "damaged", op=operation)
    bookie = tmp_path / "damaged" / "source"
    os.truncate(bookie / _PLACE, 2 << 30)
    with pytest.raises(lw.UnsupportedError, match=f"entry {_ROOM} of ledger 5 needs more"):
        lw.repair(bookie, out)
    assert not out.exists()
