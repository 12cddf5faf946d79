"""Simulated `DB::Open` equals every recorded call of the real one on the golden cases."""

from __future__ import annotations

import pytest
from leveldb_startup import (
    GOLDEN,
    RecordedOpen,
    dropped,
    iterated,
    open_listing,
    recorded_form,
    recorded_opens,
    rows_of,
    status,
)

import logwright as lw
from logwright.cli import main
from logwright.codec.fault import DamageError
from logwright.readers import listing

ALL = recorded_opens()
FOREIGN = "open_with_comparator"
"""Its key order is unknown here."""
COMPACTED = {"reopened"}
"""A compaction ran before the files were listed."""


def ids(recorded: RecordedOpen) -> str:
    return f"{recorded.case}-{recorded.step}"


def test_recorded_calls_exist() -> None:
    assert len(ALL) >= 140
    assert {recorded.result["open_status"].partition(":")[0] for recorded in ALL} == {
        "OK", "Corruption", "Invalid argument",
    }  # fmt: skip


@pytest.mark.parametrize("recorded", [recorded for recorded in ALL if recorded.step != FOREIGN], ids=ids)
def test_verdict_rows_and_files_equal_those_of_leveldb(recorded: RecordedOpen) -> None:
    version = "1.22" if recorded.step == "open_without_zstd_support" else None
    opened = open_listing(listing.open_listing(str(recorded.directory)), version=version, **recorded.options)
    verdict, answer = opened.verdict, recorded.result
    assert status(verdict) == answer["open_status"]
    assert iterated(verdict) == answer["iter_status"] if verdict.opens else answer.get("iter_status") is None
    rows = rows_of(opened)
    assert verdict.rows == len(rows) == (answer.get("entries") or 0)
    assert [recorded_form(*row) for row in rows] == list(recorded.rows.items())
    assert dropped(verdict) == (answer["open_log"] or [])
    names = {entry.name for entry in opened.after.entries()} - {"LOG.old"}
    if recorded.case not in COMPACTED:
        assert names == {name for name in answer["files_after"] if "/" not in name} - {"LOG.old"}
    else:
        assert any("a compaction starts at once" in warning for warning in verdict.warnings)


READ = {recorded.case: recorded for recorded in ALL if recorded.step == "open"}
READ |= {recorded.case: recorded for recorded in ALL if recorded.step == "open_verify"}


@pytest.mark.filterwarnings("ignore::logwright.codec.fault.DamageWarning")
@pytest.mark.parametrize("recorded", READ.values(), ids=ids)
def test_mode_as_system_serves_the_recorded_rows(recorded: RecordedOpen) -> None:
    """By default blocks are verified; `paranoid_checks` is an option."""
    if recorded.result["open_status"] != "OK":
        with pytest.raises(DamageError) as caught:
            lw.read(recorded.directory, mode="AS_SYSTEM")
        assert recorded.result["open_status"] in str(caught.value)
        return
    rows = lw.read(recorded.directory, mode="AS_SYSTEM", columns="key,value")
    pairs = zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)
    assert [recorded_form(*row) for row in pairs] == list(recorded.rows.items())


def test_database_with_a_foreign_comparator_is_served_if_it_is_named() -> None:
    (call,) = [recorded for recorded in ALL if recorded.step == FOREIGN]
    rows = lw.read(call.directory, mode="AS_SYSTEM", columns="key,value", **call.options)
    pairs = zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)
    assert {recorded_form(*row) for row in pairs} == set(call.rows.items())
    report = lw.verify(call.directory, as_system="main", comparator=call.options["comparator"])
    assert report.system is not None
    assert report.system["opens"]
    assert report.system["rows"] is None
    assert "unknown comparator test.ReverseBytewise" in report.system["warnings"][-1]


LOSES = {
    "wal_flip_payload": 33 - 9 - 1, "wal_flip_crc": 6, "wal_flip_length_last_block": 27, "reuse_logs_torn": 6,
    "table_flip_magic": 70, "two_tables_one_bad": 49, "table_flip_data": 0, "torn_payload": 0, "few_puts": 0,
}  # fmt: skip


@pytest.mark.parametrize(("case", "rows"), LOSES.items())
def test_sound_rows_that_leveldb_does_not_serve(case: str, rows: int) -> None:
    report = lw.verify(GOLDEN / case / "db", as_system="main")
    assert report.system is not None
    assert report.system["rows_lost"] == rows
    assert bool(report.system["lost"]) == bool(rows)
    assert report.safe == (case == "few_puts" or case == "torn_payload")


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


def test_verify_reports_what_leveldb_would_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify", str(GOLDEN / "wal_flip_payload/db"), "--as-system") == 3
    output = capsys.readouterr().out
    assert "leveldb main: opens it, deletes 1 file and loses 23 entries" in output
    assert "(ignoring error) db/000003.log: dropping 26827 bytes; Corruption: checksum mismatch" in output
    assert run("verify", str(GOLDEN / "manifest_flip/db"), "--as-system") == 3
    assert "leveldb main: does not open it: checksum mismatch" in capsys.readouterr().out
    assert run("verify", str(GOLDEN / "tables_none/db"), "--as-system") == 0
    assert run("verify", str(GOLDEN / "table_flip_data/db"), "--as-system") == 3
    output = " ".join(capsys.readouterr().out.split())
    assert "clients skip unreadable data and end with the error 'block checksum mismatch'" in output
    both = [str(GOLDEN / name / "db") for name in ("table_flip_data", "few_puts")]
    assert run("verify", *both, "--as-system") == 3
    assert "leveldb main's clients end with an error" in " ".join(capsys.readouterr().out.split())
