"""The RocksDB databases of DbLedgerStorage: written with a bookie, and read without a change."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from golden_bookies import case

import logwright as lw
from logwright.codec.bookkeeper.store import rocks
from logwright.codec.fault import UnsupportedError, UsageError
from logwright.readers.listing import open_listing

pytest.importorskip("rocksdict")
DB = "DbLedgerStorage"
ROWS = [
    {"ledger_id": ledger, "entry_id": entry, "payload": b"%d/%d" % (ledger, entry) * 9}
    for entry in range(40)
    for ledger in (1, 2, 300)
]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def locations(path: Path) -> dict[int, tuple[list[int], list[int]]]:
    locations = rocks.read_locations(open_listing(str(path / "locations")), "")
    return {ledger: (entries.tolist(), places.tolist()) for ledger, (entries, places) in locations.items()}


def test_written_databases_have_the_rows_of_a_bookie(tmp_path: Path) -> None:
    """A frame of the log, and the rows that a bookie would have for it, byte for byte."""
    out = tmp_path / "bookie"
    lw.write(
        [{"ledger_id": 10, "entry_id": 1, "payload": b"x"}], out, "bookkeeper.bookie", ledgerStorageClass=DB
    )
    ledger = out / "ledger" / "current"
    assert list(rocks._items(open_listing(str(ledger / "locations")), "")) == [
        (bytes.fromhex("000000000000000a0000000000000001"), bytes.fromhex("0000000000000404"))
    ]
    ((key, value),) = rocks._items(open_listing(str(ledger / "ledgers")), "")
    assert key == bytes.fromhex("000000000000000a")
    # SHA-1 of "ledger": the master key of a ledger without a password
    assert value.hex() == "080110001a14850bf1071c5e3d8c24235676f8816ae0cbe2f14f"


def test_bookie_written_with_rocksdb_is_served_completely(tmp_path: Path) -> None:
    out = tmp_path / "bookie"
    lw.write(ROWS, out, "bookkeeper.bookie", ledgerStorageClass=DB, logSizeLimit=5000, passwd=b"secret")
    assert not list(out.rglob("*.idx"))
    assert {path.name for path in out.rglob("*") if path.parent.name == "ledgers"} >= {"CURRENT"}
    before = contents(out)
    report = lw.verify(out, as_system="4.18.0").to_dict()
    assert report["ok"]
    assert (report["system"]["opens"], report["system"]["rows_lost"]) == (True, 0)
    table = lw.read(out, mode="AS_SYSTEM")
    assert sorted(zip(table["ledger_id"].to_pylist(), table["entry_id"].to_pylist(), strict=True)) == sorted(
        (row["ledger_id"], row["entry_id"]) for row in ROWS
    )
    ledgers = lw.read(out, view="ledgers").to_pylist()
    assert [(row["ledger_id"], row["indexed"], row["master_key"]) for row in ledgers] == [
        (ledger, True, True) for ledger in (1, 2, 300)
    ]
    assert contents(out) == before


def test_each_ledger_directory_has_its_own_logs_and_databases(tmp_path: Path) -> None:
    folders = {name: str(tmp_path / name) for name in ("wal", "disk-a", "disk-b")}
    options: dict[str, Any] = {
        "journalDirectories": folders["wal"], "ledgerDirectories": f"{folders['disk-a']},{folders['disk-b']}",
    }  # fmt: skip
    lw.write(
        ROWS, folders["disk-a"], "bookkeeper.bookie", ledgerStorageClass=DB, journalWriteData=True, **options
    )
    for name, ledgers in (("disk-a", {2, 300}), ("disk-b", {1})):
        assert set(locations(tmp_path / name / "current")) == ledgers
        log = lw.read(tmp_path / name / "current" / "0.log", columns=["ledger_id"])
        assert set(log["ledger_id"].to_pylist()) == ledgers
    report = lw.verify(folders["disk-a"], as_system=True, **options).to_dict()
    assert report["ok"]
    assert report["system"]["rows_lost"] == 0
    assert len(lw.read(folders["disk-a"], mode="AS_SYSTEM", **options)) == len(ROWS)


def test_index_directories_are_as_many_as_ledger_directories(tmp_path: Path) -> None:
    options = {
        "journalDirectories": str(tmp_path / "j"), "ledgerDirectories": f"{tmp_path / 'a'},{tmp_path / 'b'}",
        "indexDirectories": str(tmp_path / "i"),
    }  # fmt: skip
    with pytest.raises(UsageError, match="1 index directories and 2 ledger directories"):
        lw.write(ROWS, tmp_path / "a", "bookkeeper.bookie", ledgerStorageClass=DB, **options)


def test_append_adds_to_the_databases_of_a_bookie(tmp_path: Path) -> None:
    """New files of the databases come beside the old ones, which RocksDB deletes; `CURRENT` changes last."""
    for folder in ("a", "j"):
        (tmp_path / folder).mkdir()
    options = {
        "journalDirectories": str(tmp_path / "j"), "ledgerDirectories": f"{tmp_path / 'a'},{tmp_path / 'b'}",
    }  # fmt: skip
    lw.write(ROWS, tmp_path / "a", "bookkeeper.bookie", ledgerStorageClass=DB, logSizeLimit=2000, **options)
    before = contents(tmp_path)
    more = [{**row, "entry_id": row["entry_id"] + 40} for row in ROWS] + [
        {"ledger_id": 7, "entry_id": 0, "payload": b"new"}
    ]
    written = lw.write(more, tmp_path / "a", "bookkeeper.bookie", mode="append", **options)
    assert written.rows == len(more)
    after = contents(tmp_path)
    changed = {Path(name).name for name in before if after[name] != before[name]}
    assert changed == {"CURRENT", "lastId", "lastMark"}
    stored = lw.read(tmp_path / "a", columns=["ledger_id", "entry_id", "payload"], **options)
    assert stored.to_pylist() == sorted(ROWS + more, key=lambda row: (row["ledger_id"], row["entry_id"]))
    report = lw.verify(tmp_path / "a", as_system="4.18.0", **options)
    assert report.ok, report.text()
    assert report.system["rows"] == len(ROWS) + len(more)
    for folder, ledgers in (("a", {2, 300}), ("b", {1, 7})):
        assert set(locations(tmp_path / folder / "current")) == ledgers
    total = lw.read(tmp_path / "a", filter="ledger_id == 300", columns=["length"], **options)["length"]
    assert total[-1].as_py() == sum(len(row["payload"]) for row in ROWS + more if row["ledger_id"] == 300)


def test_append_to_rocksdb_repeats_no_entry_and_no_other_index(tmp_path: Path) -> None:
    out = tmp_path / "bookie"
    lw.write(ROWS, out, "bookkeeper.bookie", ledgerStorageClass=DB)
    before = contents(out)
    with pytest.raises(UsageError, match="ledger 1 already has entry 0"):
        lw.write(ROWS, out, "bookkeeper.bookie", mode="append")
    with pytest.raises(UsageError, match="has the index of DbLedgerStorage, not of SortedLedgerStorage"):
        lw.write(ROWS, out, "bookkeeper.bookie", mode="append", ledgerStorageClass="SortedLedgerStorage")
    assert contents(out) == before
    lw.write([{**ROWS[0], "payload": b"again"}], out, "bookkeeper.bookie", mode="append", on_duplicate="last")
    assert lw.read(out, filter="ledger_id == 1", limit=1)["payload"].to_pylist() == [b"again"]
    assert lw.verify(out, as_system="4.18.0").ok
    assert locations(out / "ledger" / "current")[1][1][0] >> 32 == 1


def test_removed_entries_are_not_in_the_databases(tmp_path: Path) -> None:
    """Another copy of an entry takes the place of a removed one."""
    out = tmp_path / "bookie"
    lw.write(ROWS, out, "bookkeeper.bookie", ledgerStorageClass=DB, logSizeLimit=5000)
    lw.write([{**ROWS[0], "payload": b"again"}], out, "bookkeeper.bookie", mode="append", on_duplicate="last")
    report = lw.edit(out, tmp_path / "edited", drop="ledger_id == 300 or entry_id == 5 or payload == again")
    assert report.ok
    places = locations(tmp_path / "edited" / "ledger" / "current")
    assert {ledger: entries for ledger, (entries, _) in places.items()} == {
        key: [entry for entry in range(40) if entry != 5] for key in (1, 2)
    }
    assert places[1][1][0] >> 32 == 0
    verdict = lw.verify(tmp_path / "edited", as_system="4.18.0")
    assert verdict.ok, verdict.text()
    assert verdict.system["rows"] == 78
    assert not verdict.faults_total


def test_package_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocks, "available", lambda: False)
    with pytest.raises(UnsupportedError, match=r'pip install "logwright\[rocksdb\]"'):
        lw.write(ROWS, tmp_path / "bookie", "bookkeeper.bookie", ledgerStorageClass=DB)
    assert not (tmp_path / "bookie").exists()


def test_verdict_needs_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rocks, "available", lambda: False)
    path, text = str(case("db_small").path), "cannot be read or written without the package rocksdict"
    report = lw.verify(path, as_system=True)
    assert "system" not in report.to_dict()
    assert text in " ".join(report.text().split())
    assert run("verify", path, "--as-system") != 0
    assert text in " ".join(capsys.readouterr().out.split())
    with pytest.raises(UnsupportedError, match=text):
        lw.read(path, mode="AS_SYSTEM")
    assert len(lw.read(path)) == 44
    assert {row["indexed"] for row in lw.read(path, view="ledgers").to_pylist()} == {None}


def test_repair_without_the_package_leaves_the_databases_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rocks, "available", lambda: False)
    report = lw.repair(str(case("db_current_garbage").path), str(tmp_path / "out"))
    assert any("is unknown: the package rocksdict is not installed" in note for note in report.notes)
    current = "ledger/current/locations/CURRENT"
    assert (tmp_path / "out" / current).read_bytes() == (
        case("db_current_garbage").path / current
    ).read_bytes()


def test_reading_a_golden_database_changes_nothing() -> None:
    known = case("db_small")
    before = contents(known.path)
    lw.verify(str(known.path), as_system=True)
    lw.read(str(known.path), view="ledgers")
    assert contents(known.path) == before


@pytest.mark.filterwarnings("ignore")
def test_log_that_the_database_proves_to_be_missing_is_an_error_of_a_read() -> None:
    known = case("db_log_missing")
    with pytest.raises(lw.DamageError, match=r"entry log 0\.log is missing; the index has 41 entries in it"):
        lw.read(known.path, passwd=known.passwords)


@pytest.mark.filterwarnings("ignore")
def test_exchanged_directories_miss_no_log() -> None:
    known = case("db_dirs_exchanged")
    expected = lw.read(case("db_two_dirs").path, passwd=known.passwords)
    assert lw.read(known.path, passwd=known.passwords).num_rows == expected.num_rows


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("exchanged", [False, True])
def test_repair_moves_logs_to_the_directory_of_their_ledgers(exchanged: bool, tmp_path: Path) -> None:
    known, bookie, out = case("db_two_dirs"), tmp_path / "bookie", tmp_path / "out"
    for folder in known.path.iterdir():
        if folder.is_dir():
            shutil.copytree(folder, bookie / folder.name)
    expected = lw.read(bookie, mode="AS_SYSTEM", **known.options)
    first, second = (min((bookie / f"ledger{i}/current").glob("*.log")) for i in (0, 1))
    was = second.read_bytes()
    target = second if exchanged else second.with_name("5f.log")
    target.write_bytes(first.read_bytes())
    first.unlink()
    if exchanged:
        first.write_bytes(was)
    lw.repair(bookie, out, **known.options)
    assert lw.verify(out, **known.options).ok
    assert lw.read(out, mode="AS_SYSTEM", **known.options).equals(expected)


@pytest.mark.filterwarnings("ignore")
def test_damaged_master_key_in_a_database_becomes_that_of_the_other_ledgers(tmp_path: Path) -> None:
    source, out = tmp_path / "bookie", tmp_path / "out"
    lw.write(ROWS, source, "bookkeeper.bookie", ledgerStorageClass=DB)
    folder = source / "ledger" / "current" / "ledgers"
    stored = rocks.read_ledgers(open_listing(str(folder)), "")
    right = stored[2].key
    stored[2].key = bytes([right[0] ^ 1]) + right[1:]
    stored[300].lac = bytes(20)
    shutil.rmtree(folder)
    folder.mkdir()
    for name, data in rocks.written_ledgers(stored):
        with (folder / name).open("ab") as file:
            file.write(data)
    texts = [fault.detail for _, fault in lw.verify(source).faults]
    assert "the master key of ledger 2 is damaged" in texts
    assert "the digest of the explicit last-add-confirmed is wrong" in texts
    lw.repair(source, out)
    repaired = rocks.read_ledgers(open_listing(str(out / "ledger" / "current" / "ledgers")), "")
    assert {data.key for data in repaired.values()} == {right}
    assert {data.lac for data in repaired.values()} == {None}
