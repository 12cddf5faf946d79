"""Entries that no digest proves: those with an HMAC whose password is not known. The index and the running totals show which are right."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import logwright as lw
from logwright.codec.fault import Severity

pytestmark = pytest.mark.filterwarnings("ignore::logwright.codec.fault.DamageWarning")
LOG, BOOKIE = "bookkeeper.entrylog", "bookkeeper.bookie"
HMAC: dict[str, Any] = {"digestType": "HMAC", "passwd": b"secret"}
LEDGER, ENTRY = 11, 19
"""The lowest byte of the ids of an entry, counted from its size."""


def rows(ledgers: list[int], entries: int) -> list[dict[str, Any]]:
    """Return entries of several ledgers in turn."""
    return [
        {"ledger_id": ledger, "entry_id": i, "payload": random.Random(ledger << 8 | i).randbytes(50 + i % 7)}
        for i in range(entries)
        for ledger in ledgers
    ]


def entries(path: Path, **options: Any) -> list[tuple[int, int]]:
    table = lw.read(path, columns=["ledger_id", "entry_id"], mode="DROPMALFORMED", **options)
    return [(row["ledger_id"], row["entry_id"]) for row in table.to_pylist()]


def positions(log: Path) -> dict[tuple[int, int], int]:
    columns = ["ledger_id", "entry_id", "position"]
    return {
        (row["ledger_id"], row["entry_id"]): row["position"]
        for row in lw.read(log, LOG, columns=columns).to_pylist()
    }


def flip(path: Path, byte: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= 1 << bit
    path.write_bytes(data)


def details(report: Any, severity: Severity) -> list[str]:
    return [fault.detail for file in report.files for fault in file.faults if fault.severity is severity]


def bookie_and_log(path: Path, ledgers: list[int], entries: int) -> tuple[Path, Path]:
    lw.write(rows(ledgers, entries), path, BOOKIE, **HMAC)
    return path, path / "ledger/current/0.log"


@pytest.mark.alike
@pytest.mark.parametrize("bit", [0, 1, 2, 5])
@pytest.mark.parametrize("field", [LEDGER, ENTRY])
def test_entry_that_the_index_has_under_other_ids_is_damage_and_corrected(
    field: int, bit: int, tmp_path: Path
) -> None:
    bookie, log = bookie_and_log(tmp_path / "bookie", [3, 7, 12], 12)
    healthy, all_entries = log.read_bytes(), entries(bookie)
    for last in (5, 11):
        log.write_bytes(healthy)
        flip(log, positions(log)[3, last] + field, bit)
        with pytest.raises(lw.DamageError, match="digest mismatch"):
            lw.read(bookie)
        assert entries(bookie) == [pair for pair in all_entries if pair != (3, last)]
        assert not lw.verify(bookie).ok
        lw.repair(bookie, tmp_path / f"out {last}")
        assert (tmp_path / f"out {last}/ledger/current/0.log").read_bytes() == healthy


@pytest.mark.parametrize("digest", ["HMAC", "CRC32C"])
def test_entry_of_an_unknown_ledger_at_the_place_of_another_one_is_damage(
    digest: str, tmp_path: Path
) -> None:
    """Several bits of its ledger id are wrong. Without the index, it could be an entry with an HMAC of a deleted ledger."""
    bookie, log = tmp_path / "bookie", tmp_path / "bookie/ledger/current/0.log"
    lw.write(rows([3, 7], 12), bookie, BOOKIE, digestType=digest, passwd=b"secret")
    all_entries, place = entries(bookie), positions(log)[7, 4]
    data = bytearray(log.read_bytes())
    data[place + LEDGER] = 24
    log.write_bytes(data)
    assert entries(bookie) == [pair for pair in all_entries if pair != (7, 4)]
    with pytest.raises(lw.DamageError, match="digest mismatch"):
        lw.read(bookie)


def test_single_entry_of_a_ledger_that_the_bookie_does_not_know_is_reported(tmp_path: Path) -> None:
    """The bookie was killed before it wrote the index and the ledgers map."""
    bookie, log = tmp_path / "bookie", tmp_path / "bookie/ledger/current/0.log"
    lw.write(rows([3, 7], 12), bookie, BOOKIE, **HMAC)
    data = bytearray(log.read_bytes())
    data[8:20] = bytes(12)
    log.write_bytes(data[: positions(log)[7, 11] + 100])
    for index in bookie.rglob("*.idx"):
        index.unlink()
    assert not any("may be damaged" in text for text in details(lw.verify(bookie), Severity.WARNING))
    place = positions(log)[7, 4] + LEDGER
    flip(log, place, 4)
    flip(log, place, 5)
    report = lw.scan(bookie, mode="DROPMALFORMED")
    report.to_table()
    text = "ledger 55 is in no index and no journal, and nothing else of it is near: its id may be damaged"
    assert text in details(report.report, Severity.WARNING)


def test_wrong_index_makes_no_entry_damage(tmp_path: Path) -> None:
    """The locations of two entries are exchanged, whose ids differ in one bit."""
    bookie, _ = bookie_and_log(tmp_path / "bookie", [3, 7], 12)
    all_entries, index = entries(bookie), bookie / "ledger/current/0/3/3.idx"
    data = bytearray(index.read_bytes())
    at, other = (slice(1024 + 8 * entry, 1032 + 8 * entry) for entry in (1, 5))
    data[at], data[other] = data[other], data[at]
    index.write_bytes(data)
    assert entries(bookie) == all_entries


@pytest.mark.parametrize("entry", [0, 5, 11])
@pytest.mark.parametrize("bit", [0, 1, 5])
@pytest.mark.parametrize("field", [LEDGER, ENTRY])
def test_flipped_bit_of_ids_in_a_file_without_an_index_is_reported(
    field: int, bit: int, entry: int, tmp_path: Path
) -> None:
    log = tmp_path / "0.log"
    lw.write(rows([3, 9, 100], 12), log, LOG, **HMAC)
    if (field, bit, entry) == (ENTRY, 1, 0):
        pytest.skip("entry 2 exists twice then, and entry 0 could not be told from it")
    flip(log, positions(log)[3, entry] + field, bit)
    for report in (lw.verify(log), lw.scan(log)):
        for _ in report if hasattr(report, "to_reader") else ():
            pass
        report = getattr(report, "report", report)
        assert details(report, Severity.WARNING), report


def test_ids_of_healthy_files_are_not_reported(tmp_path: Path) -> None:
    """Of ledgers in several bookies' ensembles each has some entries, and an advanced ledger may get them in any order."""
    chance = random.Random(3)
    for case in range(30):
        written = rows(chance.sample(range(12), 5), 20)
        if case % 3 == 1:
            chance.shuffle(written)
        totals: dict[int, int] = {}
        for row in written:
            row["payload"] = b"x" * 40 if case % 2 else row["payload"]
            row["length"] = totals.get(row["ledger_id"], 0) + len(row["payload"])
            totals[row["ledger_id"]] = row["length"]
        if case % 3 == 0:
            written = [row for row in written if (row["entry_id"] + row["ledger_id"]) % 3]
        log, written = tmp_path / f"{case}.log", written[chance.randrange(20) :]
        lw.write(written, log, LOG, ledgersMap=case % 4 < 2, **HMAC)
        assert details(lw.verify(log), Severity.WARNING) == []
        assert entries(log) == [(row["ledger_id"], row["entry_id"]) for row in written]


DAMAGE = {
    "size": lambda frame: frame[:2] + bytes([frame[2] ^ 0x10]) + frame[3:],
    "small size": lambda frame: frame[:3] + bytes([frame[3] ^ 4]) + frame[4:],
    "zero size": lambda frame: bytes(4) + frame[4:],
    "ledger": lambda frame: frame[:4] + b"\x80" + frame[5:],
    "zeros": lambda frame: bytes(36) + frame[36:],
    "garbage": lambda frame: random.Random(len(frame)).randbytes(len(frame)),
}


@pytest.mark.alike
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("step", [2, 3])
@pytest.mark.parametrize("codec", [LOG, "bookkeeper.journal"])
def test_entries_between_many_damaged_ones_are_salvaged(
    codec: str, step: int, damage: str, tmp_path: Path
) -> None:
    """No two entries follow each other. The bytes that are missing between them are those of the missing entries."""
    path = tmp_path / ("0.log" if codec == LOG else "1.txn")
    lw.write(rows([5], 60), path, codec, **HMAC)
    table = lw.read(path, codec, columns=["entry_id", "position"], digestType="HMAC").to_pylist()
    starts = [row["position"] for row in table]
    data = bytearray(path.read_bytes())
    hit = range(1, len(starts) - 2, step)
    for i in hit:
        data[starts[i] : starts[i + 1]] = DAMAGE[damage](bytes(data[starts[i] : starts[i + 1]]))
    path.write_bytes(data)
    good = [(5, i) for i in range(60) if i not in hit]
    assert entries(path) == good
    # The HMAC proves an entry of which only the size is wrong.
    assert entries(path, passwd=b"secret") == ([(5, i) for i in range(60)] if "size" in damage else good)


@pytest.mark.alike
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("ledgers", [[5], [5, 6], [5, 6, 7, 8, 9]])
def test_index_proves_entries_between_damaged_ones(ledgers: list[int], damage: str, tmp_path: Path) -> None:
    bookie, log = bookie_and_log(tmp_path / "bookie", ledgers, 60 // len(ledgers))
    data, places = bytearray(log.read_bytes()), positions(log)
    starts = sorted(places.values())
    hit = {starts[i] for i in range(1, len(starts) - 1, 2)}
    for i in range(1, len(starts) - 1, 2):
        data[starts[i] : starts[i + 1]] = DAMAGE[damage](bytes(data[starts[i] : starts[i + 1]]))
    log.write_bytes(data)
    good = sorted(pair for pair, place in places.items() if place not in hit)
    shutil.rmtree(bookie / "journal")
    assert entries(bookie) == good
    lw.repair(bookie, tmp_path / "out")
    # The index shows the flipped bit of a ledger id.
    assert entries(tmp_path / "out") == (sorted(places) if damage == "ledger" else good)


def test_entry_with_the_next_one_of_its_ledger_inside_has_a_wrong_size(tmp_path: Path) -> None:
    """Its wrong size leads to the start of a later entry."""
    log = tmp_path / "0.log"
    lw.write(rows([5], 30), log, LOG, **HMAC)
    places = positions(log)
    data = bytearray(log.read_bytes())
    size = places[5, 15] - places[5, 4] - 4
    data[places[5, 4] : places[5, 4] + 4] = size.to_bytes(4, "big")
    log.write_bytes(data)
    report = lw.verify(log)
    assert f"entry_size is {size}, but the next entry of the ledger starts inside" in details(
        report, Severity.ERROR
    )
    assert entries(log) == [(5, i) for i in range(30) if i != 4]


def test_entry_that_does_not_fit_the_running_total_is_not_taken_for_one_before_a_torn_frame(
    tmp_path: Path,
) -> None:
    """Four bytes before its end, the bytes look like a frame of a new ledger that takes more than the rest of the file."""
    log = tmp_path / "0.log"
    written = rows([5], 4)
    written[2]["payload"] = b"x" * 46 + b"\x0e\x56\x26\xe1"
    lw.write(written, log, LOG, ledgersMap=False, **HMAC)
    flip(log, positions(log)[5, 2] + 3, 2)
    assert (5, 2) not in entries(log)


def test_type_that_an_option_assumes_proves_no_ledger_of_a_bookie(tmp_path: Path) -> None:
    """A record of a journal has a ledger that neither the index nor another record has."""
    bookie = tmp_path / "bookie"
    lw.write(rows([3, 7], 6), bookie, BOOKIE, digestType="DUMMY", journalWriteData=True)
    journal = bookie / "journal/current/1.txn"
    columns = ["ledger_id", "entry_id", "position"]
    records = lw.read(journal, columns=columns, digestType="DUMMY").to_pylist()
    place = next(row["position"] for row in records if (row["ledger_id"], row["entry_id"]) == (7, 3))
    flip(journal, place + 7, 0)
    seen = lw.read(bookie, view="journal", columns=columns, mode="DROPMALFORMED", digestType="DUMMY")
    assert set(seen["ledger_id"].to_pylist()) == {3, 7}
    with pytest.raises(lw.DamageError, match="a ledger without an index"):
        lw.read(bookie, view="journal", digestType="DUMMY")


def mixed_rows() -> list[dict[str, Any]]:
    """Return entries of three ledgers in turn: with CRC-32C, CRC-32 and HMAC."""
    return [
        {
            "ledger_id": i % 3,
            "entry_id": i // 3,
            "payload": b"entry %d " % i * (3 + i % 4) + random.Random(i).randbytes(i % 50),
            "digest_type": ["CRC32C", "CRC32", "HMAC"][i % 3],
        }
        for i in range(30)
    ]


@pytest.mark.parametrize("with_password", [True, False])
@pytest.mark.parametrize(("codec", "file"), [(LOG, "0.log"), ("bookkeeper.journal", "0.txn")])
def test_no_entry_with_a_right_digest_is_lost_after_one_that_lost_bytes(
    codec: str, file: str, with_password: bool, tmp_path: Path
) -> None:
    """The size of the damaged entry reaches into the next one. Bytes of its header look like another entry that ends at a later one."""
    passwords = {"passwd": {2: b"secret"}}
    path, written = tmp_path / file, mixed_rows()
    options: dict[str, Any] = {"ledgersMap": False} if codec == LOG else {"journalFormatVersionToWrite": 4}
    lw.write(written, path, codec, **passwords, **options)
    healthy = path.read_bytes()
    columns = ["ledger_id", "entry_id", "position"]
    places = [row["position"] for row in lw.read(path, codec, columns=columns).to_pylist()]
    read_options = passwords if with_password else {}
    proved = {(row["ledger_id"], row["entry_id"]) for row in written if with_password or row["ledger_id"] < 2}
    for number in range(2, len(written), 3):
        for at, size in ((3, 1), (4, 7), (20, 7), (50, 1), (50, 7)):
            place = places[number] + at
            path.write_bytes(healthy[:place] + healthy[place + size :])
            present = set(entries(path, **read_options))
            lost = {(written[number]["ledger_id"], written[number]["entry_id"])}
            assert proved - present <= lost, (number, at, size)


def test_entry_with_the_crc_of_another_ledger_is_damage_although_several_bits_differ(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    lw.write(mixed_rows()[:15], path, LOG, passwd=b"secret", ledgersMap=False)
    data = bytearray(path.read_bytes())
    place = positions(path)[1, 2]
    data[place + 11] = 0xAC
    path.write_bytes(data)
    assert (0xAC, 2) not in entries(path)
    assert len(entries(path)) == 14


@pytest.mark.parametrize("ledger", [0, 5])
def test_bytes_of_the_header_of_a_damaged_entry_are_no_entry(ledger: int, tmp_path: Path) -> None:
    """From its second byte on, the header of the entry looks like that of a longer one, which ends where a later entry starts."""
    path = tmp_path / "0.log"
    written = [
        {"ledger_id": ledger, "entry_id": i, "payload": bytes(205 if i == 10 else 200)} for i in range(40)
    ]
    lw.write(written, path, LOG, **HMAC)
    place = positions(path)[ledger, 4]
    data = bytearray(path.read_bytes())
    data[place : place + 4] = (0x70000000 + (positions(path)[ledger, 20] - place - 5 >> 8)).to_bytes(4, "big")
    path.write_bytes(data)
    assert entries(path) == [(ledger, i) for i in range(40) if i != 4]
