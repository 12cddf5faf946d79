"""BookKeeper's own scanners and a real bookie with a real client read what we write, and the bookie goes on writing."""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bookkeeper_damaged import CLASSES, INTERLEAVED, SORTED, rows

import logwright as lw
from logwright.codec.bookkeeper.formats.digest import master_key
from logwright.roundtrip.oracles import bookkeeper as oracle

pytestmark = pytest.mark.oracle
STORAGES = (INTERLEAVED, SORTED, "DbLedgerStorage")
META = {"master_key": -0x1000, "fence": -0x2000, "explicit_lac": -0x8000}
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def _available() -> None:
    reason = oracle.available()
    if reason:
        pytest.skip(reason)


def write(entries: list[Row], home: Path, ledgers: list[oracle.Ledger], **options: Any) -> dict[str, Any]:
    """Write a bookie, and return the options that it is read with."""
    known: dict[str, Any] = {"passwd": ledgers[0].password, "digestType": ledgers[0].digest}
    if options.get("ledgerStorageClass") == "DbLedgerStorage":
        pytest.importorskip("rocksdict")
    lw.write(entries, home, "bookkeeper.bookie", instanceId=oracle.INSTANCE, **known, **options)
    return known


def payloads(table: Any) -> dict[tuple[int, int], bytes]:
    rows = table.select(["ledger_id", "entry_id", "payload"]).to_pylist()
    return {(row["ledger_id"], row["entry_id"]): row["payload"] for row in rows}


# Scanners


@pytest.mark.parametrize("seed", range(6))
def test_real_scanners_read_what_we_write(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    entries, ledgers = rows(chance)
    home = tmp_path / "bookie"
    options = write(entries, home, ledgers, logSizeLimit=2500, journalWriteData=True)
    folder = home / "ledger"
    scanned = []
    for path in sorted((folder / "current").glob("*.log"), key=lambda path: int(path.stem, 16)):
        log = int(path.stem, 16)
        found = oracle.scan_log(folder, log)
        sizes: defaultdict[int, int] = defaultdict(int)
        for entry in found:
            sizes[entry.ledger_id] += 4 + len(entry.content)
        assert oracle.ledgers_map(folder, log) == sizes
        ours = lw.read(path, columns=["ledger_id", "entry_id", "position"], **options).to_pylist()
        assert [[row["ledger_id"], row["entry_id"], row["position"]] for row in ours] == [
            [entry.ledger_id, entry.entry_id, entry.position] for entry in found
        ]
        scanned += found
    assert [(entry.ledger_id, entry.entry_id) for entry in scanned] == [
        (row["ledger_id"], row["entry_id"]) for row in entries
    ]
    assert all(entry.content.endswith(row["payload"]) for entry, row in zip(scanned, entries, strict=True))
    (journal,) = (home / "journal" / "current").glob("*.txn")
    mark = oracle.last_mark(home / "journal", folder)
    records, end = oracle.scan_journal(home / "journal", folder, int(journal.stem, 16))
    assert mark == (int(journal.stem, 16), journal.stat().st_size)
    assert end >= mark[1]
    assert [body for _, _, body in records if body[8] < 128] == [entry.content for entry in scanned]
    keys = {int.from_bytes(body[:8], "big"): body[20:] for _, _, body in records if body[8] >= 128}
    assert keys == {row["ledger_id"]: master_key(ledgers[0].password) for row in entries}
    assert oracle.cookie(folder) == (folder / "current" / "VERSION").read_text()


RECORDS: list[Row] = [
    {"ledger_id": 3, "kind": "master_key", "data": b"k" * 20},
    *({"ledger_id": 3, "entry_id": n, "payload": b"x" * n} for n in range(0, 600, 37)),
    {"ledger_id": 3, "kind": "fence"},
    {"ledger_id": 3, "kind": "explicit_lac", "data": bytes(20)},
    {"ledger_id": 1 << 40, "entry_id": 3, "payload": b""},
]
LEAST = {"master_key": 3, "fence": 4, "explicit_lac": 6}


@pytest.mark.parametrize("version", range(1, 7))
def test_real_scanner_reads_journals_of_all_versions(version: int, tmp_path: Path) -> None:
    kept = [row for row in RECORDS if LEAST.get(str(row.get("kind")), 1) <= version]
    folder = tmp_path / "journal" / "current"
    folder.mkdir(parents=True)
    (tmp_path / "ledger" / "current").mkdir(parents=True)
    lw.write(kept, folder / "5.txn", "bookkeeper.journal", journalFormatVersionToWrite=version)
    records, end = oracle.scan_journal(tmp_path / "journal", tmp_path / "ledger", 5)
    assert [version_read for version_read, _, _ in records] == [version] * len(kept)
    assert [int.from_bytes(body[:8], "big") for _, _, body in records] == [row["ledger_id"] for row in kept]
    assert [int.from_bytes(body[8:16], "big", signed=True) for _, _, body in records] == [
        META.get(str(row.get("kind")), row.get("entry_id")) for row in kept
    ]
    assert all(
        body.endswith(row.get("payload") or row.get("data") or b"")
        for (_, _, body), row in zip(records, kept, strict=True)
    )
    ours = lw.read(folder / "5.txn", columns=["position"])["position"].to_pylist()
    assert [position for _, position, _ in records] == ours
    assert end <= (folder / "5.txn").stat().st_size


# A bookie


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("storage", STORAGES)
def test_bookie_serves_and_continues_what_we_write(storage: str, seed: int, tmp_path: Path) -> None:
    chance = random.Random(f"{storage} {seed}")
    entries, ledgers = rows(chance)
    home = tmp_path / "bookie"
    sizes = {"logSizeLimit": 3000, "pageSize": 512}
    options = write(entries, home, ledgers, ledgerStorageClass=storage, **sizes)
    config = {"ledgerStorageClass": CLASSES[storage], **sizes}
    expected = {(row["ledger_id"], row["entry_id"]): row["payload"] for row in entries}

    assert oracle.start(home, config).started
    served_as(expected, ledgers)
    if storage != "DbLedgerStorage":
        assert oracle.check() == []
    fresh = oracle.Ledger(77, "CRC32C", b"another", range(20))
    oracle.add(fresh, [{"payload": b"new %d" % n} for n in range(12)], new=True)
    expected |= {(77, n): b"new %d" % n for n in range(12)}
    known = entries[-1]["ledger_id"]
    last = max(entry for ledger, entry in expected if ledger == known)
    total = sum(len(payload) for (ledger, _), payload in expected.items() if ledger == known)
    more = [
        {"entry_id": last + n, "last_add_confirmed": last + n - 1, "length": total + 3 * n, "payload": b"abc"}
        for n in range(1, 9)
    ]
    chosen = next(ledger for ledger in ledgers if ledger.ledger_id == known)
    oracle.add(chosen, more)
    expected |= {(known, row["entry_id"]): row["payload"] for row in more}
    shutil.copytree(home, tmp_path / "killed" / "bookie")
    assert oracle.recover(chosen) == last + 8
    oracle.stop()

    passwords = {ledger.ledger_id: ledger.password for ledger in [*ledgers, fresh]}
    for path in (home, tmp_path / "killed" / "bookie"):
        assert payloads(lw.read(path, **{**options, "passwd": passwords})) == expected
        report = lw.verify(path, **{**options, "passwd": passwords})
        assert report.ok, report.text()
    fenced = lw.read(home, view="ledgers", columns=["ledger_id", "fenced"]).to_pylist()
    assert [row["ledger_id"] for row in fenced if row["fenced"]] == [known]

    kind = {"MAC": "HMAC"}.get(ledgers[0].digest, ledgers[0].digest)
    appended = [
        *(
            {"ledger_id": 900, "entry_id": n, "payload": b"appended %d" % n, "digest_type": kind}
            for n in range(5)
        ),
        *(
            {"ledger_id": 77, "entry_id": n, "payload": b"added later %d" % n, "digest_type": "CRC32C"}
            for n in range(12, 15)
        ),
    ]
    options["passwd"] = {**passwords, 900: ledgers[0].password}
    lw.write(
        appended, home, "bookkeeper.bookie", mode="append", ledgerStorageClass=storage, **options, **sizes
    )
    expected |= {(row["ledger_id"], row["entry_id"]): row["payload"] for row in appended}
    assert oracle.start(home, config).started
    newest = oracle.Ledger(900, ledgers[0].digest, ledgers[0].password, range(9))
    served_as(expected, [replace(ledger, entries=range(60)) for ledger in (*ledgers, fresh, newest)])
    oracle.stop()


def served_as(expected: dict[tuple[int, int], bytes], ledgers: list[oracle.Ledger]) -> None:
    """Check that the running bookie serves exactly these entries, and that a client reads all of them."""
    answers = oracle.read(ledgers)
    served = {
        (ledger, entry): content for ledger, of in answers.items() for entry, content in of.served.items()
    }
    assert served.keys() == expected.keys()
    assert all(served[key].endswith(payload) for key, payload in expected.items())
    assert {(ledger, entry) for ledger, of in answers.items() for entry in of.read or ()} == expected.keys()
    assert [of for of in answers.values() if of.refused or of.failed or of.error] == []
