"""The directories of a bookie as one store: views, filters, several roots, configuration, checks, writing."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from golden_bookies import case

import logwright as lw
from logwright.codec.bookkeeper.store import views
from logwright.codec.fault import UsageError
from logwright.readers import combined
from logwright.readers.resolve import resolve
from logwright.readers.target import DirectoryTarget

HEALTHY = [
    "big_ids", "compacted", "digests", "dmg_base", "dmg_jbase", "entry_sizes", "gaps_and_order", "handmade", "handmade_journal_only",
    "index_pages", "journal_rolled", "journals_two", "killed_replayed", "killed_torn_log", "killed_unflushed", "log_per_ledger",
    "meta_records_killed", "old_4_14_7", "restarted", "rolled_sorted", "two_dirs_index_dir",
]  # fmt: skip
ROWS = [
    {"ledger_id": ledger, "entry_id": entry, "payload": b"%d/%d" % (ledger, entry) * 9}
    for entry in range(40)
    for ledger in (1, 2, 300)
]


def ids(table: Any) -> list[tuple[int, int]]:
    return list(zip(table["ledger_id"].to_pylist(), table["entry_id"].to_pylist(), strict=True))


def served(name: str) -> list[tuple[int, int]]:
    return sorted(
        (line["ledger"], line["entry"]) for line in case(name).lines["entry"] if "exception" not in line
    )


@pytest.mark.parametrize("name", HEALTHY)
def test_entries_of_a_healthy_bookie_are_those_that_it_serves(name: str) -> None:
    known = case(name)
    with warnings.catch_warnings(action="ignore"):  # a torn tail
        table = lw.read(str(known.path), passwd=known.passwords)
    deleted = {ledger for ledger, _ in ids(table)} - {ledger for ledger, _ in served(name)}
    assert [key for key in ids(table) if key[0] not in deleted] == served(name)
    contents = {(line["ledger"], line["entry"]): line.get("hex") for line in known.lines["entry"]}
    for row in table.to_pylist():
        content = contents.get((row["ledger_id"], row["entry_id"]))
        assert content is None or content.endswith(row["payload"].hex())


@pytest.mark.parametrize("key_journal", ["1.txn", None])
def test_single_entry_with_an_hmac_counts_if_any_journal_has_the_master_key_of_its_ledger(
    key_journal: str | None, tmp_path: Path
) -> None:
    journals = tmp_path / "bookie" / "journal" / "current"
    ledgers = tmp_path / "bookie" / "ledger" / "current"
    journals.mkdir(parents=True)
    ledgers.mkdir(parents=True)
    (ledgers / "lastId").write_text("0")
    key = {"ledger_id": 7, "kind": "master_key", "data": b"k" * 20}
    other = {"ledger_id": 8, "entry_id": 0, "payload": b"crc"}
    lw.write([other, *([key] if key_journal else [])], journals / "1.txn", "bookkeeper.journal")
    entry = {"ledger_id": 7, "entry_id": 3, "length": 500, "payload": b"lone"}
    lw.write([entry], journals / "2.txn", "bookkeeper.journal", digestType="HMAC", passwd=b"secret")
    bookie, out = tmp_path / "bookie", tmp_path / "out"
    with warnings.catch_warnings(action="ignore"):
        rows = lw.read(bookie, mode="DROPMALFORMED")
        report = lw.verify(bookie)
        lw.repair(bookie, out)
    kept = [(7, 3), (8, 0)] if key_journal else [(8, 0)]
    assert ids(rows) == ids(lw.read(out)) == kept
    damage = [fault for file in report.files for fault in file.faults if "without an index" in fault.detail]
    assert len(damage) == (not key_journal)


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_damaged_entry_is_left_out(mode: str) -> None:
    known = case("elog_flip_body")
    with pytest.warns(UserWarning, match=r"checksum\s+mismatch"):
        table = lw.read(str(known.path), mode=mode, passwd=known.passwords)
    rows = [key for key in ids(table) if key[0] is not None]
    assert (2, 1) not in rows
    assert len(rows) == 26


@pytest.mark.alike
@pytest.mark.filterwarnings("ignore::logwright.codec.fault.DamageWarning")
@pytest.mark.parametrize("storage", ["InterleavedLedgerStorage", "DbLedgerStorage"])
@pytest.mark.parametrize("kind", ["CRC32C", "CRC32"])
@pytest.mark.parametrize("journal", [False, True])
def test_damaged_only_entry_of_a_ledger_in_a_log_is_seen_by_the_digests_of_other_files(
    storage: str, kind: str, journal: bool, tmp_path: Path
) -> None:
    """Without them, the entry could be one without a digest, or with an HMAC."""
    if storage == "DbLedgerStorage":
        pytest.importorskip("rocksdict")
    out = tmp_path / "bookie"
    options = {"ledgerStorageClass": storage, "logSizeLimit": 1500, "digestType": kind}
    rows = [{**row, "payload": b"%d" % row["entry_id"] * 200} for row in ROWS[:12]]
    lw.write(rows, str(out), "bookkeeper.bookie", journalWriteData=journal, **options)
    header = (300).to_bytes(8, "big") + (2).to_bytes(8, "big")
    (log,) = (path for path in out.glob("ledger/current/*.log") if header in path.read_bytes())
    data = bytearray(log.read_bytes())
    at = data.index(header)
    data[at + 100] ^= 0x55
    data[at + 101] ^= 0x55
    log.write_bytes(data)
    assert [fault["kind"] for file in lw.verify(str(out))["files"] for fault in file["faults"]].count(
        "checksum mismatch"
    ) == 1
    left = ids(lw.read(str(out), mode="DROPMALFORMED", view="entrylog"))
    assert len(left) == len(rows) - 1
    assert ids(lw.read(str(out), mode="DROPMALFORMED", view="entrylog", jobs=2)) == left


def test_mode_as_system_reads_what_a_client_gets() -> None:
    known = case("elog_flip_body")
    path = str(known.path)
    with pytest.warns(UserWarning, match=r"a\s+wrong\s+digest\s+in\s+1\s+served\s+entry"):
        assert len(lw.read(path, mode="AS_SYSTEM", **known.options)) == 26
    assert len(lw.read(path, mode="AS_SYSTEM", reader="bookie", **known.options)) == 27


def test_ledgers_show_range_fence_and_key() -> None:
    rows = {row["ledger_id"]: row for row in lw.read(str(case("dmg_base").path), view="ledgers").to_pylist()}
    assert [rows[i]["fenced"] for i in range(3)] == [False, True, False]
    assert rows[0] | {"files": None} == {
        "ledger_id": 0, "first_entry_id": 0, "last_entry_id": 8, "entries": 9, "gaps": 0, "bytes": 551, "last_add_confirmed": 8,
        "fenced": False, "master_key": True, "indexed": True, "files": None,
    }  # fmt: skip
    killed = lw.read(str(case("meta_records_killed").path), view="ledgers").to_pylist()
    assert any(row["fenced"] for row in killed)


def test_filter_on_ledger_prunes_and_keeps_rows() -> None:
    path = str(case("rolled_sorted").path)
    table = lw.read(path, filter="ledger_id == 1 and entry_id < 3")
    assert ids(table) == [(1, 0), (1, 1), (1, 2)]


def test_journal_view_has_all_records() -> None:
    known = case("journal_rolled")
    table = lw.read(str(known.path), view="journal")
    assert len(table) == len(known.lines["journal_record"])


def moved(tmp_path: Path) -> tuple[Path, Path]:
    """Copy a bookie so that journal and ledger directory have different parents."""
    shutil.copytree(case("dmg_base").path / "ledger", tmp_path / "disk1" / "ledger")
    shutil.copytree(case("dmg_base").path / "journal", tmp_path / "disk2" / "journal")
    return tmp_path / "disk1" / "ledger", tmp_path / "disk2" / "journal"


def test_options_name_the_directories(tmp_path: Path) -> None:
    ledger, journal = moved(tmp_path)
    expected = lw.read(str(case("dmg_base").path))
    assert lw.read(str(ledger), journalDirectories=str(journal)) == expected
    assert lw.read(str(ledger), journalDirectories=str(journal), ledgerDirectories=str(ledger)) == expected
    assert len(lw.read(str(ledger), mode="AS_SYSTEM", journalDirectories=str(journal))) == 27


def test_configuration_file_names_the_directories(tmp_path: Path) -> None:
    ledger, journal = moved(tmp_path)
    conf = tmp_path / "bk_server.conf"
    conf.write_text(f"bookiePort=3181\njournalDirectories={journal}\nledgerDirectories={ledger}\n")
    assert lw.read(str(conf)) == lw.read(str(case("dmg_base").path))
    conf.write_text("bookiePort=3181\njournalDirectories=journal\n")
    with pytest.raises(UsageError, match="relative"):
        lw.read(str(conf))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("elog_map_size_flip", "the ledgers map has 485 bytes of ledger 0, the log has 484"),
        ("elog_lost_bytes", "correct after adding -96"),
        ("idx_slot_phantom", "the index has 1 entry of ledger 0 not at the stored location, the first is 40"),
        ("idx_missing", "ledger 0 is not in the index"),
        ("idx_slot_zero", "the index lacks 1 entry of ledger 0 in ledger/current/0.log, the first is 2"),
        ("elog_missing", "entry log 0.log is missing"),
        ("mark_in_header", "lastMark is at 8, which is not the start of a record"),
        ("mark_missing_journal", "which is missing"),
        ("jrn_missing_mid", "1 journal is missing between"),
        ("jrn_key_missing", "ledger 0 has no master key"),
        ("jrn_second_key", "BookieUnauthorizedAccessException"),
        ("cookie_host", "InvalidCookieException"),
        ("compact_decimal_twin", "under the decimal form of its id"),
        ("elog_name_overflow", "more than 32 bits"),
        ("jrn_pad_body_garbage", "the padding is not all zeros"),
        ("idx_version_negative", "version is -1, expected 0 or 1"),
        ("idx_state_bits", "of which only 0x1 is known"),
        ("jrn_lac_flip", "the digest of the explicit last-add-confirmed is wrong"),
        ("jrn_key_flip", "the master key of ledger 0 is damaged"),
        ("idx_key_flip", "the master key of ledger 0 is damaged"),
    ],
)
def test_verify_reports_files_that_do_not_fit_each_other(name: str, text: str) -> None:
    report = lw.verify(str(case(name).path), passwd=case(name).passwords).to_dict()
    texts = [
        f"{fault['detail']} {fault.get('system')}" for file in report["files"] for fault in file["faults"]
    ]
    assert any(text in each for each in texts), texts


def test_error_of_several_lines_is_shown_without_line_ends() -> None:
    text = str(lw.verify(case("cookie_host").path))
    assert 'does not start: Cookie [5 bookieHost: "127.0.0.1:3181"' in " ".join(text.split())
    assert "\\n" not in text


@pytest.mark.parametrize("name", [name for name in HEALTHY if name != "killed_torn_log"])
def test_verify_finds_nothing_wrong_with_a_healthy_bookie(name: str) -> None:
    report = lw.verify(str(case(name).path), passwd=case(name).passwords).to_dict()
    assert report["ok"]


def test_files_of_ledgers_of_all_digest_types_hold_the_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference decoder cannot know the digest type of an entry without a CRC."""
    known = case("digests")
    monkeypatch.chdir(known.path)
    checked = lw.roundtrip("ledger", passwd=known.passwords)
    assert checked.ok, str(checked)


def test_written_bookie_is_served_completely(tmp_path: Path) -> None:
    out = str(tmp_path / "bookie")
    options = {"passwd": b"secret", "digestType": "MAC", "logSizeLimit": 4096, "journalWriteData": True}
    written = lw.write(ROWS, out, "bookkeeper.bookie", **options)
    assert written.rows == len(ROWS)
    assert len([name for name in written.files if name.endswith(".log")]) > 1
    for mode in ("FAILFAST", "AS_SYSTEM"):
        table = lw.read(out, mode=mode, passwd=b"secret")
        assert sorted(ids(table)) == sorted((row["ledger_id"], row["entry_id"]) for row in ROWS)
    report = lw.verify(out, as_system="4.18.0", passwd=b"secret").to_dict()
    assert report["ok"]
    assert report["system"]["rows_lost"] == 0
    assert report["system"]["warnings"] == []


def test_append_continues_ledgers_and_refuses_an_entry_they_have(tmp_path: Path) -> None:
    out = str(tmp_path / "bookie")
    lw.write(ROWS, out, "bookkeeper.bookie")
    more = [{"ledger_id": 1, "entry_id": 40 + i, "payload": b"more"} for i in range(3)]
    lw.write(more, out, "bookkeeper.bookie", mode="append")
    table = lw.read(out, filter="ledger_id == 1")
    assert table["entry_id"].to_pylist() == list(range(43))
    payloads = [len(payload) for payload in table["payload"].to_pylist()]
    assert table["length"].to_pylist()[-1] == sum(payloads)
    assert len(lw.read(out, mode="AS_SYSTEM")) == len(ROWS) + 3
    with pytest.raises(UsageError, match="already has entry 0"):
        lw.write(ROWS[:1], out, "bookkeeper.bookie", mode="append")


def test_entry_twice_is_an_error_unless_the_last_is_asked_for(tmp_path: Path) -> None:
    rows = [{"ledger_id": 1, "entry_id": 0, "payload": payload} for payload in (b"first", b"last")]
    with pytest.raises(UsageError, match="two entries 0"):
        lw.write(rows, str(tmp_path / "a"), "bookkeeper.bookie")
    lw.write(rows, str(tmp_path / "b"), "bookkeeper.bookie", on_duplicate="last")
    assert lw.read(str(tmp_path / "b"), mode="AS_SYSTEM")["payload"].to_pylist() == [b"last"]


def test_append_to_a_bookie_with_unflushed_journal_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "bookie"
    shutil.copytree(case("killed_unflushed").path, out)
    with pytest.raises(UsageError, match="would replay"):
        lw.write(ROWS[:1], str(out), "bookkeeper.bookie", mode="append")


def test_directories_on_several_disks_are_written(tmp_path: Path) -> None:
    ledger, journal = tmp_path / "a" / "ledger", tmp_path / "b" / "journal"
    for folder in (ledger.parent, journal.parent):
        folder.mkdir()
    options = {"journalDirectories": str(journal), "ledgerDirectories": str(ledger)}
    lw.write(ROWS, str(ledger), "bookkeeper.bookie", **options)
    assert (journal / "current" / "1.txn").exists()
    assert len(lw.read(str(ledger), mode="AS_SYSTEM", **options)) == len(ROWS)


def test_inspect_names_the_journal_of_the_last_mark(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("inspect", str(case("elog_flip_body").path)) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "last_marks" in line]
    assert line.split(maxsplit=1)[1] == "directory: journal/current, journal: 1a1fc45957d.txn, offset: 15872"


def test_inspect_lists_two_directories(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("inspect", str(case("two_dirs_index_dir").path)) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "ledger_directories" in line]
    assert line.split(maxsplit=1)[1] == "ledger0/current, ledger1/current"


@pytest.mark.parametrize("name", ["meta_records", "meta_records_killed", "db_small", "two_dirs_index_dir"])
def test_inspect_lists_the_fenced_ledgers(name: str) -> None:
    ledgers = lw.read(case(name).path, view="ledgers").to_pylist()
    fenced = [{"ledger_id": row["ledger_id"]} for row in ledgers if row["fenced"]]
    assert lw.inspect(case(name).path)["facts"]["fenced_ledgers"] == fenced


def test_entries_of_many_chunks_read_each_log_twice_and_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is linear in the size of the logs, however their ledgers are mixed."""
    path = str(tmp_path / "bookie")
    rows = [{"ledger_id": i % 7, "entry_id": i // 7, "payload": b"%d" % i * 50} for i in range(1400)]
    lw.write(rows, path, "bookkeeper.bookie", logSizeLimit=20_000)
    expected = lw.read(path, columns="*")
    reads: list[str] = []

    def reading(stream: Any, columns: Any) -> Any:
        reads.append(stream.params["file"])
        return call(stream, columns)

    call = combined._Stream.__call__
    monkeypatch.setattr(combined._Stream, "__call__", reading)
    for chunk, held in ((10_000, 1 << 10), (30_000, 1 << 30)):
        monkeypatch.setattr(views, "_CHUNK", chunk)
        monkeypatch.setattr(views, "_HELD", held)
        reads.clear()
        assert lw.read(path, columns="*").equals(expected)
        assert len(set(reads)) > 10
        assert max(map(reads.count, reads)) == 2
    assert ids(expected) == sorted(ids(expected))


def test_journal_without_the_master_key_of_a_known_ledger_is_sound(tmp_path: Path) -> None:
    """The key of an HMAC ledger is in the journal of its first entry only. Its index shows that the ledger exists."""
    rows = [{"ledger_id": 7, "entry_id": n, "payload": b"entry %d" % n} for n in range(3)]
    bookie = tmp_path / "bookie"
    lw.write(rows[:2], bookie, "bookkeeper.bookie", digestType="HMAC", passwd=b"secret")
    (journal,) = bookie.rglob("*.txn")
    later = journal.with_name("fffffffffff.txn")
    options = {"digestType": "HMAC", "passwd": b"secret"}
    lw.write([{**rows[2], "kind": "entry"}], later, "bookkeeper.journal", **options)
    assert lw.verify(bookie).ok
    journal.unlink()
    faults = [fault for file in lw.verify(bookie).files for fault in file.faults]
    assert "checksum mismatch" not in [fault.kind for fault in faults]
    with pytest.raises(lw.DamageError, match="without a master key in these journals"):
        lw.read(later)


def test_append_to_a_ledger_keeps_its_entries_in_an_index_of_any_page_size(tmp_path: Path) -> None:
    out = tmp_path / "bookie"
    lw.write(ROWS, out, "bookkeeper.bookie", pageSize=512)
    more = [{**row, "entry_id": row["entry_id"] + 40} for row in ROWS]
    with pytest.raises(UsageError, match=r"does not consist of pages of 8192 bytes. Pass the pageSize"):
        lw.write(more, out, "bookkeeper.bookie", mode="append")
    lw.write(more, out, "bookkeeper.bookie", mode="append", pageSize=512)
    report = lw.verify(out, as_system="4.18.0", pageSize=512)
    assert report.ok, report.text()
    assert report.system["rows"] == len(ROWS) + len(more)


@pytest.mark.parametrize(
    ("folder", "option"), [("journal", "ledgerDirectories"), ("ledger", "journalDirectories")]
)
def test_single_directory_of_a_bookie_gets_a_note_that_the_others_are_missing(
    folder: str, option: str, tmp_path: Path
) -> None:
    rows = [{"ledger_id": 1, "entry_id": n, "payload": b"%d" % n} for n in range(3)]
    lw.write(rows, tmp_path / "bookie", "bookkeeper.bookie", journalWriteData=True)
    (target,) = resolve(tmp_path / "bookie" / folder)
    assert isinstance(target, DirectoryTarget)
    (text,) = [fault.detail for name, fault in target.plan.faults if not name]
    assert f"the {folder} directory of a bookie without" in text
    assert option in text
    (target,) = resolve(tmp_path / "bookie")
    assert isinstance(target, DirectoryTarget)
    assert target.plan.faults == ()


def copied(name: str, tmp_path: Path) -> Path:
    for folder in case(name).path.iterdir():
        if folder.is_dir():
            shutil.copytree(folder, tmp_path / "bookie" / folder.name)
    return tmp_path / "bookie"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "log"), [("dmg_base", "0.log"), ("rolled_interleaved", "2.log"), ("rolled_sorted", "1.log")]
)
def test_log_that_the_index_proves_to_be_missing_is_an_error_of_a_read(
    name: str, log: str, tmp_path: Path
) -> None:
    known, path = case(name), copied(name, tmp_path)
    (path / "ledger/current" / log).unlink()
    passwords = {"passwd": known.passwords}
    with pytest.raises(lw.DamageError, match=f"entry log {log} is missing"):
        lw.read(path, **passwords)
    report = lw.scan(path, mode="DROPMALFORMED", **passwords)
    report.to_table()
    assert not report.report.ok


@pytest.mark.filterwarnings("ignore")
def test_bookie_without_any_log_is_an_error_of_a_read_if_its_index_has_entries(tmp_path: Path) -> None:
    path = copied("single_small", tmp_path)
    for log in path.glob("ledger/current/*.log"):
        log.unlink()
    with pytest.raises(lw.DamageError, match="is missing; the index has 5 entries in it"):
        lw.read(path)


@pytest.mark.filterwarnings("ignore")
def test_log_that_ends_before_locations_of_the_index_is_an_error_of_a_read(tmp_path: Path) -> None:
    known, path = case("dmg_base"), copied("dmg_base", tmp_path)
    log = path / "ledger/current/0.log"
    log.write_bytes(log.read_bytes()[:1024])
    with pytest.raises(lw.DamageError, match="the log ends before the end of entries in the index"):
        lw.read(path, passwd=known.passwords)


@pytest.mark.filterwarnings("ignore")
def test_index_directory_without_ledger_directories_does_not_prove_that_a_log_is_missing() -> None:
    (target,) = resolve(case("two_dirs_index_dir").path / "index")
    assert isinstance(target, DirectoryTarget)
    assert not target.plan.missing
    lw.explain(next((case("two_dirs_index_dir").path / "index").rglob("*.idx")))


@pytest.mark.filterwarnings("ignore")
def test_missing_log_is_no_error_if_the_bookie_replays_its_entries(tmp_path: Path) -> None:
    known, path = case("dmg_base"), copied("dmg_base", tmp_path)
    expected = lw.read(path, passwd=known.passwords)
    for file in (*path.glob("ledger/current/*.log"), *path.glob("ledger/current/last*")):
        file.unlink()
    assert lw.read(path, passwd=known.passwords).equals(expected)
    assert lw.verify(path, **known.options).ok


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["idx_slot_log_missing", "idx_slot_past_eof"])
def test_single_wrong_location_does_not_prove_that_a_log_is_missing(name: str) -> None:
    known = case(name)
    assert len(lw.read(known.path, passwd=known.passwords)) == 27


@pytest.mark.filterwarnings("ignore")
def test_directory_that_a_cookie_names_and_that_is_missing_is_an_error_of_a_read(tmp_path: Path) -> None:
    path = copied("killed_unflushed", tmp_path)
    shutil.rmtree(path / "journal")
    with pytest.raises(lw.DamageError, match="VERSION names the directory journal, which is missing"):
        lw.read(path)


@pytest.mark.filterwarnings("ignore")
def test_entries_before_the_mark_must_be_in_entry_logs(tmp_path: Path) -> None:
    known, path = case("killed_flushed"), copied("killed_flushed", tmp_path)
    marks = list(path.glob("ledger*/current/lastMark"))
    assert lw.verify(path, **known.options).ok
    journal = next(path.glob("journal/current/*.txn"))
    for mark in marks:
        mark.write_bytes(mark.read_bytes()[:8] + journal.stat().st_size.to_bytes(8, "big"))
    details = [
        fault["detail"]
        for file in lw.verify(path, **known.options).to_dict()["files"]
        for fault in file["faults"]
    ]
    assert any("before lastMark" in detail and "no entry log has" in detail for detail in details)


def test_bookie_whose_directories_are_all_empty_starts_as_a_new_one(tmp_path: Path) -> None:
    for folder in ("journal", "ledger"):
        (tmp_path / "bookie" / folder).mkdir(parents=True)
    (tmp_path / "bookie" / "journal" / "notes.txt").write_text("copied from disk 3\n")
    report = lw.verify(tmp_path / "bookie", "bookkeeper.bookie")
    assert report.ok
    assert not report.frames


@pytest.mark.parametrize("left", [0, 10, 40])
@pytest.mark.filterwarnings("ignore")
def test_read_reports_a_single_entry_that_the_end_of_its_log_cuts(left: int, tmp_path: Path) -> None:
    """An entry log is flushed before the index, so a location whose entry is not complete is a proof, unlike a torn entry without one."""
    rows = [{"ledger_id": 1, "entry_id": entry, "payload": b"x" * 50} for entry in range(3)]
    lw.write(rows, tmp_path / "bookie", "bookkeeper.bookie")
    (log,) = (tmp_path / "bookie").rglob("0.log")
    end = lw.read(log, columns=["position"])["position"].to_pylist()[-1] + left
    log.write_bytes(log.read_bytes()[:end])
    with pytest.raises(lw.DamageError, match="of 1 entry, the first is entry 2 of ledger 1"):
        lw.read(tmp_path / "bookie")
    (index,) = (tmp_path / "bookie").rglob("*.idx")
    index.unlink()
    assert len(lw.read(log)) == 2


def test_missing_cookie_is_named(tmp_path: Path) -> None:
    lw.write([{"ledger_id": 1, "entry_id": 0, "payload": "x"}], tmp_path / "bookie", "bookkeeper.bookie")
    (tmp_path / "bookie" / "journal" / "current" / "VERSION").unlink()
    report = lw.verify(tmp_path / "bookie")
    assert "DAMAGED  journal/current/VERSION is missing" in report.text()
    assert "loses nothing\n" in report.text()
    lw.repair(tmp_path / "bookie", tmp_path / "repaired")
    assert lw.verify(tmp_path / "repaired", as_system=True).ok


def test_entries_that_only_the_index_lacks_are_not_called_lost(tmp_path: Path) -> None:
    rows = [{"ledger_id": 1, "entry_id": entry, "payload": "x"} for entry in range(5)]
    lw.write(rows, tmp_path / "bookie", "bookkeeper.bookie")
    (index,) = (tmp_path / "bookie").rglob("*.idx")
    index.write_bytes(index.read_bytes()[:100])
    text = lw.verify(tmp_path / "bookie").text()
    assert "affected: ledger_id 1, entry_ids 0..4" in text
    assert "--out DIR   loses nothing\n" in text
