"""Following a bookie while it writes: each record of the journal and each entry of the entry logs comes once."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from typing import Any

import pytest
from golden_bookies import case

import logwright as lw
from logwright.codec import registry
from logwright.codec.fault import LogwrightError, UsageError
from logwright.codec.option import Options
from logwright.readers.follow import Following, Pace
from logwright.readers.report import Report
from logwright.readers.resolve import resolve
from logwright.readers.target import Skipped
from logwright.readers.task import run

LAYOUT = registry.get_layout("bookkeeper.bookie")


def following(path: Path, view: str | None, **words: Any) -> Following:
    def look() -> Any:
        return resolve([path], skipped=Skipped())

    assert LAYOUT.capabilities.follow is not None
    return Following(look, LAYOUT, view, Options(LAYOUT.capabilities.follow.options, words))


def read(follow: Following, start: dict[str, int], end: dict[str, int]) -> list[tuple[int, int]]:
    columns = ["ledger_id", "entry_id"]
    batches = list(run(follow.between(start, end), columns, Report("x")))
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [(row["ledger_id"], row["entry_id"]) for row in rows]


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {"ledger_id": 5 + i % 2, "entry_id": i // 2, "payload": b"%d" % i * 30}
        for i in range(first, first + count)
    ]


def ids(first: int, count: int) -> list[tuple[int, int]]:
    return [(row["ledger_id"], row["entry_id"]) for row in rows(first, count)]


@pytest.mark.parametrize("fresh", [False, True], ids=["one reader", "a new one each time"])
def test_each_record_of_a_growing_journal_comes_once(tmp_path: Path, fresh: bool) -> None:
    """The journal has preallocated zeros, which records replace, also in parts; then the next journal follows."""
    home = tmp_path / "bookie"
    current = home / "journal" / "current"
    current.mkdir(parents=True)
    (home / "ledger").mkdir()
    files = {}
    for number, first in ((1700000000001, 0), (1700000000002, 200)):
        path = tmp_path / f"{number:x}.txn"
        lw.write(rows(first, 200), path, "bookkeeper.journal")
        files[number] = path.read_bytes()
    chance = random.Random(7)
    follow, position, seen = following(home, "journal"), {}, []  # type: ignore[var-annotated]
    for number, data in files.items():
        at = 0
        while at < len(data):
            at = min(len(data), at + chance.randint(1, 9000))
            (current / f"{number:x}.txn").write_bytes(data[:at].ljust(1 << 17, b"\0"))
            if fresh:
                follow = following(home, "journal")
            spans = follow.spans(stream=True) if not position else {}
            start = position or {name: low for name, (_, low, _) in spans.items()}
            end = follow.latest(start)
            seen += read(follow, start, end)
            position = end
    assert seen == ids(0, 400)


def test_entries_of_new_logs_come_once(tmp_path: Path) -> None:
    home = tmp_path / "bookie"
    position: dict[str, int] = {}
    follow = following(home, "entrylog")
    for first in (0, 100, 200):
        lw.write(
            rows(first, 100), home, "bookkeeper.bookie", mode="append" if first else "error", logSizeLimit=4096
        )  # fmt: skip
        end = follow.latest(position)
        assert read(follow, position, end) == ids(first, 100)
        assert follow.latest(end) == end
        position = end
    logs = sorted((home / "ledger" / "current").glob("*.log"), key=lambda path: int(path.stem, 16))
    last = int(logs[-1].stem, 16)
    assert position["bookie"] >> 32 == last
    (logs[-1].parent / f"{last + 1:x}.log").write_bytes(b"BKLO\0\0\0\1".ljust(1024, b"\0"))
    assert follow.latest(position) == following(home, "entrylog").latest(position) == position


def test_batch_of_a_stream_has_a_number_of_bytes(tmp_path: Path) -> None:
    home = tmp_path / "bookie"
    lw.write(rows(0, 300), home, "bookkeeper.bookie", logSizeLimit=4096)
    follow = following(home, "entrylog")
    start = {name: low for name, (_, low, _) in follow.spans(stream=True).items()}
    last, seen = follow.latest(start), []
    for _ in range(100):
        if start == last:
            break
        end = follow.paced(start, last, Pace(bytes=3000))
        seen.append(read(follow, start, end))
        start = end
    assert [row for batch in seen for row in batch] == ids(0, 300)
    assert max(map(len, seen)) < 50
    with pytest.raises(UsageError, match=r"maxOffsetsPerTrigger counts rows.*Pass maxBytesPerTrigger"):
        follow.check_pace(Pace(positions=10))
    with pytest.raises(UsageError, match=r"maxRecordsPerPartition counts rows"):
        follow.between({}, last, 10)


def test_positions_are_locations_of_the_index(tmp_path: Path) -> None:
    home = tmp_path / "bookie"
    lw.write(rows(0, 100), home, "bookkeeper.bookie", logSizeLimit=4096)
    stored = lw.read(home, view="entrylog", columns=["ledger_id", "entry_id", "position"]).to_pylist()
    log = home / "ledger" / "current" / "0.log"
    inside = [row for row in stored[: len(lw.read(log, columns=["entry_id"]))] if row["position"] >= 2048]
    low, high = inside[0]["position"], (1 << 32) + 1024
    follow = following(home, "entrylog", startingPosition=str(low), endingPosition=str(high))
    ((_, *span),) = follow.spans(stream=False).values()
    assert span == [low, high]
    assert read(follow, {"bookie": low}, {"bookie": high}) == [
        (row["ledger_id"], row["entry_id"]) for row in inside
    ]


def test_directory_that_cannot_be_followed_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "bookie"
    lw.write(rows(0, 100), home, "bookkeeper.bookie", logSizeLimit=4096)
    for view in (None, "entries", "ledgers"):
        with pytest.raises(
            UsageError, match=f"view '{view or 'entries'}' cannot be followed.*Use view journal"
        ):
            following(home, view)
    log = home / "ledger" / "current" / "1.log"
    data = bytearray(log.read_bytes())
    data[8:20] = bytes(12)
    log.write_bytes(data)
    with pytest.raises(UsageError, match=r"1\.log has no ledgers map.*pass entryLogPerLedgerEnabled=false"):
        following(home, "entrylog").spans(stream=True)
    assert following(home, "entrylog", entryLogPerLedgerEnabled="false").spans(stream=True)
    with pytest.raises(UsageError, match="endingPosition is not for streams"):
        following(home, "journal", endingPosition="7").spans(stream=True)


def test_journals_of_several_directories_are_followed_independently(tmp_path: Path) -> None:
    """The bookie is named by its configuration. Its journals have the same ids in both directories."""
    home = tmp_path / "bookie"
    lw.write(rows(0, 3), home, "bookkeeper.bookie")
    current = [home / name / "current" for name in ("first", "second")]
    for folder, start in zip(current, (100, 200), strict=True):
        folder.mkdir(parents=True)
        lw.write(rows(start, 100), folder / "9.txn", "bookkeeper.journal")
    conf = tmp_path / "bk_server.conf"
    conf.write_text(f"journalDirectories={home}/first,{home}/second\nledgerDirectories={home}/ledger\n")
    follow = following(conf, "journal")
    position = {name: low for name, (_, low, _) in follow.spans(stream=True).items()}
    assert len(position) == 2
    end = follow.latest(position)
    assert read(follow, position, end) == ids(100, 200)
    lw.write(rows(300, 20), current[1] / "a.txn", "bookkeeper.journal")
    later = follow.latest(end)
    assert read(follow, end, later) == ids(300, 20)
    assert len([name for name in end if end[name] != later[name]]) == 1
    paced, seen = follow.paced(position, later, Pace(bytes=4000)), position
    assert all(position[name] < paced[name] < later[name] for name in position)
    rest = [*read(follow, seen, paced), *read(follow, paced, later)]
    assert sorted(rest) == sorted(ids(100, 220))
    (current[0] / "9.txn").unlink()
    with pytest.raises(LogwrightError, match="rows may have been deleted"):
        follow.latest(later)


@pytest.mark.skipif(importlib.util.find_spec("rocksdict") is None, reason="rocksdict is not installed")
def test_entry_logs_of_a_bookie_with_rocksdb_are_followed_by_directory() -> None:
    known = case("db_two_dirs").path
    follow = following(known, "entrylog", entryLogPerLedgerEnabled="false")
    spans = follow.spans(stream=False)
    start, end = ({name: span[i] for name, span in spans.items()} for i in (1, 2))
    assert sorted(start) == ["db_two_dirs/ledger0", "db_two_dirs/ledger1"]
    stored = lw.read(known, view="entrylog", columns=["ledger_id", "entry_id"]).to_pylist()
    seen = read(follow, start, end)
    assert sorted(seen) == sorted((row["ledger_id"], row["entry_id"]) for row in stored)
    assert seen


def test_record_without_checksum_is_awaited_until_something_follows_it(tmp_path: Path) -> None:
    """A record that is written in parts replaces preallocated zeros; without a CRC it looks complete. A batch read does not wait."""
    home = tmp_path / "bookie"
    (home / "journal" / "current").mkdir(parents=True)
    (home / "ledger").mkdir()
    journal = home / "journal" / "current" / "1.txn"
    lw.write(
        rows(0, 20),
        journal,
        "bookkeeper.journal",
        passwd=b"x",
        digestType="HMAC",
        journalFormatVersionToWrite=4,
    )
    data = journal.read_bytes()
    last = {}
    for size in (len(data) - 5, len(data)):
        journal.write_bytes(data[:size].ljust(1 << 13, b"\0"))
        last = following(home, "journal").latest({})
        assert read(following(home, "journal"), {}, last) == ids(0, 19)
    ((_, low, high),) = following(home, "journal").spans(stream=False).values()
    assert read(following(home, "journal"), {"bookie": low}, {"bookie": high}) == ids(0, 20)
    assert read(following(home, "journal"), last, {"bookie": high}) == ids(19, 1)


def test_deleted_journal_is_an_error(tmp_path: Path) -> None:
    home = tmp_path / "bookie" / "journal" / "current"
    home.mkdir(parents=True)
    (tmp_path / "bookie" / "ledger").mkdir()
    for number in (7, 8):
        lw.write(rows(0, 20), home / f"{number:x}.txn", "bookkeeper.journal")
    follow = following(tmp_path / "bookie", "journal")
    start = {name: low for name, (_, low, _) in follow.spans(stream=True).items()}
    end = follow.latest(start)
    (home / "7.txn").unlink()
    with pytest.raises(LogwrightError, match="rows may have been deleted"):
        follow.between(start, end)
