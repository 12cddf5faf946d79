"""The simulated start of a bookie, compared with a real bookie of 4.18.0 and a real client."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from typing import Any

import pytest
from golden_bookies import Case, case, home, names

from logwright.codec.bookkeeper.startup.client import LedgerRead
from logwright.codec.bookkeeper.startup.errors import JavaError
from logwright.codec.bookkeeper.startup.start import ServedBookie

DATABASES = "/(locations|ledgers|metadata-cache)/"
HAS_ROCKSDB = importlib.util.find_spec("rocksdict") is not None


def is_db(name: str) -> bool:
    return name.startswith(("db_", "direct_")) or name in ("many_ledgers", "metadata_cache")


def needs_rocksdb(name: str) -> Any:
    return pytest.param(
        name, marks=pytest.mark.skipif(is_db(name) and not HAS_ROCKSDB, reason="rocksdict is not installed")
    )


CASES = [needs_rocksdb(name) for name in names()]
SKIPPING = [name for name in names() if (home() / name / "truth-skip.jsonl").exists()]


def masked(text: str) -> str:
    """Return a text without the ports, which the golden set replaces by PORT."""
    return re.sub(r"127\.0\.0\.1:(\d+|PORT)", "127.0.0.1:PORT", text)


def assert_starts_as_recorded(known: Case, **options: Any) -> ServedBookie | None:
    started = known.started(**options)
    verdict = started.verdict
    assert verdict.opens == known.start["started"], verdict.error
    if not verdict.opens:
        errors = (
            known.start.get("exception")
            or [line for line in known.start["log"] if line.startswith("java")][-1:]
        )
        got = ": ".join(text for text in (verdict.error_class, verdict.error) if text)
        assert masked(": ".join(errors)).startswith(masked(got))
        return None
    assert isinstance(started.served, ServedBookie)
    return started.served


@pytest.mark.parametrize("name", CASES)
def test_start_ends_as_on_a_real_bookie(name: str) -> None:
    served = assert_starts_as_recorded(case(name))
    if served is not None:
        assert_serves_as_recorded(case(name), served)


@pytest.mark.parametrize("name", SKIPPING)
def test_start_that_skips_invalid_records_ends_as_on_a_real_bookie(name: str) -> None:
    known = case(name, "truth-skip.jsonl")
    served = assert_starts_as_recorded(known, skipReplayJournalInvalidRecord=True)
    if served is not None:
        assert_serves_as_recorded(known, served)


def assert_serves_as_recorded(known: Case, served: ServedBookie) -> None:
    assert_leaves_files_as_recorded(known, served)
    reads = {read.ledger: read for read in served.ledgers}
    entries = {(line["ledger"], line["entry"]): line for line in known.lines.get("entry", [])}
    got = {(read.ledger, entry) for read in served.ledgers for entry in read.served}
    assert got == {key for key, line in entries.items() if "exception" not in line}
    storage = served.bookie.storage
    for (ledger, entry), line in entries.items():
        if "exception" in line:
            assert reads[ledger].refused[entry].chain() == line["exception"]
        elif "hex" in line:
            stored, locations = storage.entries(ledger)
            location = int(locations[stored.tolist().index(entry)])
            assert storage.read(ledger, entry, location).hex() == line["hex"]
    for line in known.lines.get("ledger", []):
        assert_ledger_as_recorded(line, served, reads.get(line["ledger"]))
    for line in known.lines.get("client_read", []):
        assert_read_as_recorded(line, reads.get(line["ledger"]))


def assert_leaves_files_as_recorded(known: Case, served: ServedBookie) -> None:
    """The files have the recorded sizes, and lastMark its recorded content. The files of RocksDB are not recorded.

    The id of a first journal is the time, and the size of a new one depends on a setting. So does when the header of a log is flushed.
    """
    recorded = known.start["files_after_start"]
    folders = {name.partition("/")[0] for name in recorded}
    sizes = {entry.name: entry.size for entry in served.overlay.entries()}
    sizes = {name: size for name, size in sizes.items() if name.partition("/")[0] in folders}
    sizes = {name: size for name, size in sizes.items() if not re.search(DATABASES, name)}
    before = {entry.name for entry in served.overlay.below.entries()}
    new = {name for name in {*sizes, *recorded} - before if name.endswith(".txn")}
    if known.name == "killed_torn_log":
        assert int(known.info["config"]["writeBufferSizeBytes"]) < 1024
        sizes["ledger/current/3.log"] = 1024
    assert {name: size for name, size in sizes.items() if name not in new} == {
        name: size for name, size in recorded.items() if name not in new
    }
    for stopped in known.lines.get("after_clean_shutdown", []):
        for mark in stopped["last_marks"]:
            data = served.overlay.read(mark["file"])
            assert data[:8].hex().lstrip("0") == mark["id_hex"].lstrip("0")
            assert int.from_bytes(data[8:16], "big") == mark["offset"]


def assert_ledger_as_recorded(line: dict[str, Any], served: ServedBookie, read: LedgerRead | None) -> None:
    storage, ledger = served.bookie.storage, line["ledger"]
    calls: dict[str, Callable[[int], Any]] = {
        "fenced": storage.fenced, "master_key": storage.master_key, "explicit_lac": storage.explicit_lac,
    }  # fmt: skip
    for name, call in calls.items():
        if name == "fenced" and read is not None and read.first is not None:
            assert read.first.chain() == line["fenced_error"]
            continue
        try:
            value = call(ledger)
            value = bytes(value).hex() if isinstance(value, bytes) else value
        except JavaError as error:
            value = error.chain()
        assert value == line.get(name, line.get(f"{name}_error")), name


def assert_read_as_recorded(line: dict[str, Any], read: LedgerRead | None) -> None:
    if "error" in line and line["error"].startswith("ledger not"):
        assert read is None
        return
    assert read is not None
    if "error" in line:
        assert read.error in line["error"]
        assert read.error
        return
    assert read.error == ""
    assert len(read.read) == line["ok_count"]
    assert line["ok"] is None or read.read == line["ok"]
    assert {str(entry): failure for entry, failure in read.failed.items()} == line["failed"]
