"""Rules of the simulated start that random damage has shown. Expected outcomes are those of a real bookie of 4.18.0."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from golden_bookies import LAYOUT, Case, case

import logwright as lw
from logwright.codec.bookkeeper.startup.cookie import Cookie
from logwright.codec.bookkeeper.startup.errors import JavaError
from logwright.codec.bookkeeper.startup.start import ServedBookie
from logwright.codec.bookkeeper.store.tree import Tree
from logwright.codec.option import Options
from logwright.readers.listing import open_listing, open_store

HOST, JOURNAL, LEDGERS = b'bookieHost: "h"\n', b'journalDir: "j"\n', b'ledgerDirs: "1\\tl"\n'


def started(path: Path, **options: object) -> ServedBookie:
    """Simulate a start that succeeds."""
    parsed = Options(LAYOUT.read_options, options)
    directory = open_store(open_listing(str(path)), LAYOUT, parsed)
    startup = LAYOUT.capabilities.predict
    assert startup is not None
    outcome = startup.run(directory, LAYOUT.plan(directory, parsed), parsed, version=None, clean=None)
    assert outcome.verdict.opens, outcome.verdict.error
    assert isinstance(outcome.served, ServedBookie)
    return outcome.served


def copied(known: Case, tmp_path: Path) -> Path:
    for folder in known.path.iterdir():
        if folder.is_dir():
            shutil.copytree(folder, tmp_path / folder.name)
    return tmp_path


def overwrite(path: Path, at: int, data: bytes) -> None:
    old = path.read_bytes()
    path.write_bytes(old[:at] + data + old[at + len(data) :])


def test_client_reads_nothing_of_a_ledger_whose_last_entry_cannot_be_read(tmp_path: Path) -> None:
    """The bookie sends the last-add-confirmed with each entry, and reads it from the last entry."""
    known = case("digests")
    log = copied(known, tmp_path) / "ledger" / "current" / "0.log"
    log.write_bytes(log.read_bytes()[:2017])
    read = next(read for read in started(tmp_path, **known.options).ledgers if read.ledger == 3)
    assert read.served
    assert read.refused
    assert read.error == ""
    assert read.read == []
    assert set(read.failed.values()) == {"BKReadException"}


def test_last_entry_is_read_from_an_incomplete_page_whose_entries_are_not_listed(tmp_path: Path) -> None:
    """Zeros that were inserted into an index file moved the last location from slot 2 to slot 64, after the last complete page."""
    rows = [{"ledger_id": 1, "entry_id": n, "payload": b"%d" % n} for n in range(3)]
    lw.write(rows, tmp_path / "bookie", "bookkeeper.bookie", pageSize=512)
    index = tmp_path / "bookie/ledger/current/0/1/1.idx"
    data = index.read_bytes()
    index.write_bytes(data[: 1024 + 16] + bytes(62 * 8) + data[1024 + 16 :])
    options = {"pageSize": 512, "ledgerStorageClass": "InterleavedLedgerStorage"}
    (read,) = started(tmp_path / "bookie", **options).ledgers
    assert read.served == [0, 1]
    assert read.failed == dict.fromkeys([0, 1], "BKReadException")


def test_last_mark_is_not_written_if_it_would_move_back(tmp_path: Path) -> None:
    """The difference of the two ids overflows, so the bookie takes the mark of the smallest id to be after all others."""
    known = case("killed_flushed")
    mark = copied(known, tmp_path) / "ledger" / "current" / "lastMark"
    served = started(tmp_path, **known.options)
    assert served.overlay.read("ledger/current/lastMark") > mark.read_bytes()
    smallest = (1 << 63).to_bytes(8, "big") + bytes(8)
    mark.write_bytes(smallest)
    served = started(tmp_path, **known.options)
    assert served.overlay.read("ledger/current/lastMark") == smallest


@pytest.mark.parametrize(
    ("storage", "deleted"),
    [("SortedLedgerStorage", 0), ("InterleavedLedgerStorage", 2), ("DbLedgerStorage", 3)],
)
def test_checkpoints_of_a_start_delete_old_journals(storage: str, deleted: int, tmp_path: Path) -> None:
    """Five before the mark are kept. `DbLedgerStorage` deletes at the end, `InterleavedLedgerStorage` when an entry log is full, where the
    mark is that of the journal before."""
    if storage == "DbLedgerStorage":
        pytest.importorskip("rocksdict")
    rows = [{"ledger_id": 1, "entry_id": n, "payload": bytes(300)} for n in range(16)]
    options = {"ledgerStorageClass": storage, "logSizeLimit": 3000}
    lw.write(rows, tmp_path, "bookkeeper.bookie", journalWriteData=True, **options)
    (journal,) = tmp_path.glob("journal/current/*.txn")
    first = int(journal.stem, 16)
    for number in range(first + 1, first + 9):
        (journal.parent / f"{number:x}.txn").write_bytes(journal.read_bytes())
    mark = (first + 1).to_bytes(8, "big") + bytes(8)
    (tmp_path / "ledger/current/lastMark").write_bytes(mark)
    left = {entry.name for entry in started(tmp_path, **options).overlay.entries()}
    kept = [number for number in range(first, first + 9) if f"journal/current/{number:x}.txn" in left]
    assert kept == list(range(first + deleted, first + 9))


def test_journal_directory_of_the_cookies_counts_although_it_is_empty(tmp_path: Path) -> None:
    """The second directory keeps its mark, and the bookie misses the cookie of the first."""
    known = case("journals_two")
    shutil.rmtree(copied(known, tmp_path) / "journal0")
    system = lw.verify(str(tmp_path), as_system="4.18.0", **known.options).system
    assert system is not None
    assert system["error_class"].endswith("InvalidCookieException")
    assert system["error"] is None
    options = Options(LAYOUT.read_options)
    tree = Tree(open_store(open_listing(str(tmp_path)), LAYOUT, options), options)
    data = (tmp_path / "ledger/current/lastMark.1").read_bytes()
    assert [place.name for place in tree.journals] == ["journal0", "journal1"]
    assert tree.mark(1) == (int.from_bytes(data[:8], "big"), int.from_bytes(data[8:], "big"))


def test_largest_entry_id_in_a_journal_makes_no_huge_index(tmp_path: Path) -> None:
    known = case("killed_unflushed")
    (journal,) = (copied(known, tmp_path) / "journal" / "current").glob("*.txn")
    before = {
        (read.ledger, entry) for read in started(tmp_path, **known.options).ledgers for entry in read.served
    }
    ledger, entry = max(before)
    content = ledger.to_bytes(8, "big") + entry.to_bytes(8, "big")
    at = journal.read_bytes().index(content) + 8
    overwrite(journal, at, ((1 << 63) - 1).to_bytes(8, "big"))
    after = {
        (read.ledger, item) for read in started(tmp_path, **known.options).ledgers for item in read.served
    }
    assert after == before - {(ledger, entry)}


def test_explicit_lac_of_a_journal_does_not_fit_a_longer_one_of_an_index(tmp_path: Path) -> None:
    known = case("dmg_base")
    index = copied(known, tmp_path) / "ledger" / "current" / "0" / "0" / "0.idx"
    overwrite(index, 36, (30).to_bytes(4, "big"))
    overwrite(tmp_path / "ledger" / "current" / "lastMark", 8, bytes(8))
    system = lw.verify(tmp_path, as_system=True, **known.options).system
    assert system is not None
    assert system["error_class"] == "java.lang.IndexOutOfBoundsException"
    assert system["error"].endswith(
        "length(30) exceeds writerIndex(20): UnpooledByteBufAllocator$InstrumentedUnpooledUnsafeHeapByteBuf(ridx: 0, widx: 20, cap: 20)"
    )


@pytest.mark.parametrize("damaged", [1, 2])
def test_first_access_to_a_damaged_index_ends_a_flush(damaged: int, tmp_path: Path) -> None:
    """A bookie flushes twice when it starts. With two damaged index files, the entries stay in memory and the mark where it was."""
    rows = [{"ledger_id": 1 + n % 2, "entry_id": n // 2, "payload": b"%d" % n} for n in range(8)]
    home = tmp_path / "bookie"
    lw.write(rows, home, "bookkeeper.bookie", journalWriteData=True)
    overwrite(home / "ledger" / "current" / "lastMark", 8, bytes(8))
    for ledger in range(1, 1 + damaged):
        index = home / "ledger" / "current" / "0" / f"{ledger}" / f"{ledger}.idx"
        overwrite(index, 36, (4).to_bytes(4, "big"))
    served = started(home, ledgerStorageClass="SortedLedgerStorage")
    assert [read.served for read in served.ledgers] == [[0, 1, 2, 3]] * 2
    mark = served.overlay.read("ledger/current/lastMark")[8:]
    assert (mark == bytes(8)) == (damaged == 2)


@pytest.mark.parametrize(
    ("data", "name", "text"),
    [
        (b"", "EOFException", "Exception in parsing cookie"),
        (b"x\n", "IOException", "Invalid string 'x', cannot parse cookie."),
        (b"5\n" + HOST + JOURNAL, "IllegalStateException", "Field 'ledgerDirs' is not set"),
        (b"5\n" + HOST + b"journalDir: ", "IllegalArgumentException", "Expected string at position 28"),
        (
            b"5\n" + HOST + b"journalDir ;",
            "IllegalArgumentException",
            "Expected ':' at position 27 but found ';'",
        ),
        (b"5\n" + HOST + b'journalDir: "j', "IllegalArgumentException", "Unterminated string literal"),
        (b"5\n" + HOST + b'journalDir: "\\', "IllegalArgumentException", "Unterminated escape"),
        (b"5\n" + HOST + b'journalDir: "\\xg"', "IllegalArgumentException", "Invalid \\x escape"),
        (b"5\n" + HOST + b'journalDir: "\\u12g"', "IllegalArgumentException", "Expected 4 hex digits"),
        (b"5\n" + HOST + b'journalDir: "\\q"', "IllegalArgumentException", "Invalid escape '\\q'"),
        (
            b"5\n" + HOST + b"journalDir: j",
            "IllegalArgumentException",
            "Expected '\"' or '\\'' at position 28",
        ),
        (
            b"5\n" + HOST + b"other: !",
            "IllegalArgumentException",
            "Unexpected character '!' at position 23",
        ),
        (b"5\n" + HOST + b"?", "IllegalArgumentException", "Expected identifier at position 16"),
    ],
)
def test_damaged_cookie_ends_with_the_exception_of_the_real_parser(data: bytes, name: str, text: str) -> None:
    with pytest.raises(JavaError) as caught:
        Cookie.parse(data)
    assert (caught.value.name.rpartition(".")[2], caught.value.text) == (name, text)


def test_unknown_fields_comments_and_escapes_of_a_cookie_are_read() -> None:
    data = (
        b"5\n# text\n"
        + HOST
        + JOURNAL
        + LEDGERS
        + b"other { a: [1, 2] b: -3.5 c: [] }\nstate: ON;\ninstanceId: \"\\x61\" '\\142' '\\u00fc'\n"
    )
    expected = Cookie(5, "h", "j", "1\tl", "abü")
    assert Cookie.parse(data) == Cookie.parse(b"5\n{" + data[2:] + b"}") == expected
