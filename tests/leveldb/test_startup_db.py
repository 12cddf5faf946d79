"""Simulated `DB::Open`: refused databases, and the files afterwards (`db_test.cc`, `recovery_test.cc`, `version_edit_test.cc`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from leveldb_startup import (
    LAYOUT,
    CraftedDatabase,
    after,
    dropped,
    iterated,
    key_of,
    open_listing,
    put,
    rows_of,
    status,
)
from memory_directory import MemoryDirectory, UnreadableDirectory

import logwright as lw
from logwright.codec.fault import UsageError
from logwright.codec.leveldb.formats.manifest.layout import EditField, form
from logwright.codec.leveldb.formats.records.layout import BLOCK
from logwright.codec.leveldb.keys import BYTEWISE
from logwright.codec.leveldb.names import log_name, manifest_name, table_name
from logwright.codec.leveldb.startup import memtable
from logwright.codec.leveldb.startup.start import STARTUP
from logwright.codec.leveldb.startup.status import Corruption, IOFailure, parsed
from logwright.codec.leveldb.startup.version_set import logged
from logwright.codec.leveldb.store.version import recover
from logwright.codec.option import Options

ROWS = [(b"a", 1, b"1"), (b"b", 2, b"2")]
MADE = CraftedDatabase(tables=[(1, 5, ROWS)], logs={7: logged([put(3, b"c", b"3")])}, last_sequence=2)
LIVE = [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]


def refused(files: dict[str, bytes], **options: Any) -> str:
    opened = open_listing(MemoryDirectory(files), **options)
    verdict = opened.verdict
    assert not verdict.opens
    assert verdict.scope is None
    assert verdict.rows == 0
    assert rows_of(opened) == []
    assert opened.served is None
    return status(verdict)


def with_manifest(records: list[bytes], name: str = "MANIFEST-000008") -> dict[str, bytes]:
    return {**MADE.files, name: logged(records)}


def test_opening_turns_the_log_into_a_table_and_removes_obsolete_files() -> None:
    """A table written from the log, a new log, a new manifest; obsolete files are removed."""
    opened = MADE.open()
    verdict = opened.verdict
    assert rows_of(opened) == LIVE
    assert verdict.creates == ("000010.ldb", "000011.log", "LOCK", "LOG", "MANIFEST-000009")
    assert verdict.removes == ("000007.log", "MANIFEST-000008")
    assert verdict.rewrites == ("CURRENT",)
    assert not verdict.truncates
    files = after(opened)
    assert files["CURRENT"] == b"MANIFEST-000009\n"
    assert files["000011.log"] == files["LOCK"] == b""
    # The second opening only begins a new log and manifest.
    reopened = open_listing(MemoryDirectory(files))
    assert rows_of(reopened) == LIVE
    assert reopened.verdict.creates == ("000013.log", "LOG.old", "MANIFEST-000012")
    assert reopened.verdict.removes == ("000011.log", "MANIFEST-000009")
    assert [name for name in after(reopened) if name.endswith(".ldb")] == ["000005.ldb", "000010.ldb"]


def test_opening_writes_a_manifest_with_all_tables() -> None:
    pointer = EditField("compact_pointer", level=1, smallest=key_of(b"b", 2))
    files = after(CraftedDatabase(tables=[(1, 5, ROWS)], last_sequence=7, edit=[pointer]).open())
    name = manifest_name(7)
    recovered = recover(_reader(files[name]), len(files[name]))
    assert recovered.error is None
    version = recovered.version
    assert version.edits == 2
    assert (version.comparator, version.last_sequence, version.log_number) == (BYTEWISE, 7, 8)
    assert (version.prev_log_number, version.next_file_number) == (0, 9)
    assert version.compact_pointers == {1: key_of(b"b", 2)}
    assert list(version.files) == [5]


def _reader(data: bytes) -> Any:
    return lambda offset, length: np.frombuffer(data[offset : offset + length], np.uint8)


def test_name_in_current_that_leads_back_into_the_directory() -> None:
    named = MADE.files["CURRENT"]
    for text in (b"./", b"/", b".//./"):
        opened = open_listing(MemoryDirectory({**MADE.files, "CURRENT": text + named}))
        assert status(opened.verdict) == "OK"
        assert rows_of(opened) == rows_of(MADE.open())


# Refused databases


def test_leveldb_refuses_an_invalid_current() -> None:
    files = dict(MADE.files)
    assert refused({**files, "CURRENT": b""}) == "Corruption: CURRENT file does not end with newline"
    assert (
        refused({**files, "CURRENT": b"MANIFEST-000008"})
        == "Corruption: CURRENT file does not end with newline"
    )
    nowhere = "Corruption: CURRENT points to a non-existent file: NotFound: db/"
    assert refused({**files, "CURRENT": b"M\n"}) == f"{nowhere}M: No such file or directory"
    assert refused({**files, "CURRENT": b"MANIFEST-000008\r\n"}).startswith(f"{nowhere}MANIFEST-000008\r:")
    assert refused({**files, "CURRENT": b"\xff\n"}) == f"{nowhere}\ufffd: No such file or directory"
    assert refused({**files, "CURRENT": b"\n"}) == "IO error: db/: Is a directory"
    assert refused({**files, "CURRENT": b"./\n"}) == "IO error: db/./: Is a directory"
    assert refused({**files, "CURRENT": b"LOCK/x\n", "LOCK": b""}) == "IO error: db/LOCK/x: Not a directory"
    assert refused({**files, "CURRENT": b"no/x\n"}) == f"{nowhere}no/x: No such file or directory"


@pytest.mark.parametrize(
    ("named", "too_long"),
    [
        ("x" * 255, False),
        ("x" * 256, True),
        ("no/" + "x" * 256, False),
        ("x/" * 2046, False),
        ("x/" * 2047, True),
    ],
)
def test_current_may_name_a_path_that_is_too_long(named: str, too_long: bool) -> None:
    """The system refuses a component of more than 255 bytes, if it comes to it, and a path of more than 4095."""
    error = refused({**MADE.files, "CURRENT": f"{named}\n".encode()})
    assert error.startswith(
        "IO error: db/" if too_long else "Corruption: CURRENT points to a non-existent file"
    )
    assert error.endswith("File name too long" if too_long else "No such file or directory")


def test_zero_byte_ends_the_manifest_name() -> None:
    files = {**MADE.files, "CURRENT": b"MANIFEST-000008\0junk\n"}
    assert rows_of(open_listing(MemoryDirectory(files))) == LIVE


def test_current_may_name_any_file() -> None:
    files = dict(MADE.files)
    files["anything"] = files.pop("MANIFEST-000008")
    opened = open_listing(MemoryDirectory({**files, "CURRENT": b"anything\n"}))
    assert rows_of(opened) == LIVE
    # A name that is not a manifest's is never obsolete.
    assert "anything" in after(opened)


def test_create_if_missing_and_error_if_exists() -> None:
    files = dict(MADE.files)
    assert refused(files, error_if_exists=True) == "Invalid argument: db: exists (error_if_exists is true)"
    del files["CURRENT"]
    assert refused(files) == "Invalid argument: db: does not exist (create_if_missing is false)"
    # A new database over the old one: its tables are deleted, its logs are read.
    opened = open_listing(MemoryDirectory(files), create_if_missing=True)
    assert rows_of(opened) == [(b"c", b"3")]
    assert "000005.ldb" in opened.verdict.removes
    assert opened.verdict.rows_lost == 2
    assert sorted(after(opened)) == [
        "000003.ldb", "000008.log", "CURRENT", "LOCK", "LOG", "MANIFEST-000002", "MANIFEST-000008",
    ]  # fmt: skip
    new = open_listing(MemoryDirectory({}), create_if_missing=True)
    assert rows_of(new) == []
    assert sorted(after(new)) == ["000003.log", "CURRENT", "LOCK", "LOG", "MANIFEST-000002"]
    assert len(after(new)["MANIFEST-000002"]) == 50


NUMBERS = [
    EditField("log_number", number=0),
    EditField("next_file_number", number=9),
    EditField("last_sequence", number=5),
]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (b"\x63", "VersionEdit: unknown tag"),
        (b"\x80", "VersionEdit: invalid tag"),
        (b"\x01\x7f", "VersionEdit: comparator name"),
        (b"\x02\x80", "VersionEdit: log number"),
        (b"\x09\x80", "VersionEdit: previous log number"),
        (b"\x03", "VersionEdit: next file number"),
        (b"\x04\xff", "VersionEdit: last sequence number"),
        (b"\x05\x07\x01x", "VersionEdit: compaction pointer"),
        (b"\x06\x01", "VersionEdit: deleted file"),
        (b"\x07\x00\x05\x01\x00\x01x", "VersionEdit: new-file entry"),
    ],
)
def test_leveldb_refuses_a_corrupt_manifest_record(record: bytes, message: str) -> None:
    assert refused(with_manifest([form(NUMBERS), record])) == f"Corruption: {message}"
    # Also with the options that tolerate other errors.
    assert refused(with_manifest([form(NUMBERS), record]), paranoid_checks=False) == f"Corruption: {message}"


@pytest.mark.parametrize(
    ("edit", "message"),
    [(b"\x05\x01\x00", "compaction pointer"), (b"\x07\x02\x05\x0f\x00\x00", "new-file entry")],
    ids=["compaction pointer", "new file"],
)
def test_empty_key_of_a_manifest_is_refused(edit: bytes, message: str) -> None:
    """Refused since 1.23."""
    records = [form(NUMBERS), edit]
    assert refused(with_manifest(records)) == f"Corruption: VersionEdit: {message}"
    opened = open_listing(MemoryDirectory(with_manifest(records)), version="1.22")
    assert status(opened.verdict) == "OK"
    assert "MANIFEST-000009" in after(opened)


@pytest.mark.parametrize(
    ("gone", "message"),
    [
        ("next_file_number", "no meta-nextfile entry in descriptor"),
        ("log_number", "no meta-lognumber entry in descriptor"),
        ("last_sequence", "no last-sequence-number entry in descriptor"),
    ],
)
def test_leveldb_refuses_a_manifest_without_file_or_sequence_numbers(gone: str, message: str) -> None:
    records = [form([number for number in NUMBERS if number.name != gone])]
    assert refused(with_manifest(records)) == f"Corruption: {message}"


def test_leveldb_refuses_another_comparator() -> None:
    other = [form([EditField("comparator", text=b"mine"), *NUMBERS])]
    status_text = f"Invalid argument: mine does not match existing comparator : {BYTEWISE}"
    assert refused(with_manifest(other)) == status_text
    # A manifest without a comparator is not compared.
    opened = open_listing(MemoryDirectory(with_manifest([form(NUMBERS)])))
    assert status(opened.verdict) == "OK"
    assert rows_of(opened) == [(b"c", b"3")]


def test_dropped_manifest_bytes_are_refused() -> None:
    """Dropped bytes end the opening; torn ends and zeros do not."""
    files = dict(MADE.files)
    manifest = files["MANIFEST-000008"]
    broken = bytes((manifest[0] ^ 1,)) + manifest[1:]
    assert refused({**files, "MANIFEST-000008": broken}) == "Corruption: checksum mismatch"
    assert (
        refused({**files, "MANIFEST-000008": manifest[:-1]})
        == "Corruption: no meta-nextfile entry in descriptor"
    )
    torn = manifest + logged([form(NUMBERS)], len(manifest))[:-1]
    for end in (torn, manifest + bytes(BLOCK)):
        assert rows_of(open_listing(MemoryDirectory({**files, "MANIFEST-000008": end}))) == LIVE


def test_leveldb_refuses_missing_tables() -> None:
    files = dict(MADE.files)
    del files["000005.ldb"]
    assert refused(files) == "Corruption: 1 missing files; e.g.: db/000005.ldb"
    # Any file of that number is accepted.
    opened = open_listing(MemoryDirectory({**files, "5.dbtmp": b""}))
    assert status(opened.verdict) == "OK"
    assert iterated(opened.verdict) == "NotFound: db/000005.ldb: No such file or directory"


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST-000008"])
def test_unreadable_metadata_is_an_io_error(name: str) -> None:
    opened = open_listing(UnreadableDirectory(MADE.files, {name: [(0, 512)]}))
    assert status(opened.verdict) == f"IO error: db/{name}: Input/output error"


# Obsolete files and file numbers


def test_obsolete_files_are_removed() -> None:
    more = {
        "000004.ldb": b"orphan", "000003.sst": b"orphan", "000002.log": b"old", "MANIFEST-000001": b"old",
        "MANIFEST-000099": b"newer", "000006.dbtmp": b"", "notes.txt": b"mine", "LOG": b"words", "LOG.old": b"old words",
        "7.ldb.bak": b"",
    }  # fmt: skip
    opened = CraftedDatabase(tables=MADE.tables, logs=MADE.logs, last_sequence=2, more=more).open()
    assert set(opened.verdict.removes) == {
        "000002.log", "000003.sst", "000004.ldb", "000006.dbtmp", "000007.log", "MANIFEST-000001", "MANIFEST-000008",
    }  # fmt: skip
    assert after(opened)["LOG.old"] == b"words"
    assert set(opened.verdict.rewrites) == {"CURRENT", "LOG", "LOG.old"}


def test_reused_file_numbers_overwrite_files_silently() -> None:
    """With a too small next file number existing files are overwritten without a warning."""
    crafted = CraftedDatabase(
        tables=[(1, 5, ROWS)], logs={7: logged([put(3, b"c", b"3")])}, last_sequence=2, next_file_number=4
    )
    opened = crafted.open()
    assert rows_of(opened) == [(b"c", b"3")]
    assert iterated(opened.verdict) == "OK"
    assert opened.verdict.rewrites == ("000005.ldb", "CURRENT")
    assert opened.verdict.rows_lost == 2
    assert "000005.ldb is in use but gets overwritten" in opened.verdict.warnings[0]


def test_deleted_file_does_not_return_with_its_number() -> None:
    """A new file with the number of one that an edit deleted."""
    edit = [EditField("deleted_file", level=0, number=5)]
    crafted = CraftedDatabase(logs={7: logged([put(3, b"c")])}, edit=edit, next_file_number=4)
    opened = crafted.open()
    assert rows_of(opened) == [(b"c", b"v")]
    (table,) = [name for name in after(opened) if name.endswith(".ldb")]
    assert table == "000005.ldb"


def test_pending_compaction_is_reported() -> None:
    tables = [(0, n, [(b"k%d" % n, n, b"v")]) for n in range(3, 7)]
    assert CraftedDatabase(tables=tables, last_sequence=9).open().verdict.warnings == (
        "a compaction starts at once: level 0 has 4 tables",
    )
    assert CraftedDatabase(tables=tables[:3], last_sequence=9).open().verdict.warnings == ()
    huge = CraftedDatabase(tables=[(1, 5, ROWS)], last_sequence=2, sizes={5: 10 << 20}).open()
    assert "level 1 has 10485760 bytes" in huge.verdict.warnings[0]


# Logs and write buffers


def test_log_larger_than_the_write_buffer_becomes_several_tables() -> None:
    """A log larger than the write buffer becomes several tables."""
    log = logged([put(n + 1, b"%05d" % n, b"x" * 250) for n in range(1000)])
    opened = CraftedDatabase(logs={3: log}).open(write_buffer_size=64 << 10)
    tables = [name for name in opened.verdict.creates if name.endswith(".ldb")]
    assert len(tables) == 5
    assert [key for key, _ in rows_of(opened)] == [b"%05d" % n for n in range(1000)]
    assert len(CraftedDatabase(logs={3: log}).open().verdict.creates) == 5
    # The last batch of a buffer may end exactly where the log ends.
    crafted = CraftedDatabase(logs={3: log}).open(write_buffer_size=64 << 10, reuse_logs=True)
    assert "000003.log" in crafted.verdict.removes


def test_memory_is_counted_as_by_leveldb() -> None:
    """Small operations share blocks of 4096 bytes, between the nodes of the skip list; large ones have separate blocks."""
    state = memtable.fresh()
    assert state.tolist() == [4096 + 8, 4096 - 104, 0, 0xDEADBEEF & 0x7FFFFFFF]
    counts, keys, values = np.ones(3, np.int64), np.full(3, 5, np.int64), np.array([5000, 3, 1000])
    assert memtable.take(counts, 0, keys, values, 1 << 30, state) == 3
    assert state[memtable.USED] == 4096 + 8 + (1 + 13 + 2 + 5000) + 8
    state = memtable.fresh()
    assert memtable.take(counts, 0, keys, np.full(3, 5000, np.int64), 9000, state) == 0
    many, sizes = np.ones(2000, np.int64), np.full(2000, 9, np.int64)
    stop = int(memtable.take(many, 0, sizes, sizes, 64 << 10, memtable.fresh()))
    assert 1000 < stop < 1500


def test_reuse_logs_keeps_log_and_manifest() -> None:
    for reuse in (False, True):
        opened = MADE.open(reuse_logs=reuse)
        assert rows_of(opened) == LIVE
        assert ("000007.log" in after(opened)) == reuse
        assert ("MANIFEST-000008" in after(opened)) == reuse
    opened = MADE.open(reuse_logs=True)
    assert opened.verdict.creates == ("LOCK", "LOG")
    assert not opened.verdict.removes
    batches = opened.rows("live", ("file", "level", "position"))
    assert pa.Table.from_batches(batches).to_pylist() == [
        {"file": 5, "level": 1, "position": 0},
        {"file": 5, "level": 1, "position": 0},
        {"file": 7, "level": None, "position": 0},
    ]


def test_only_the_last_log_is_reused() -> None:
    crafted = CraftedDatabase(logs={3: logged([put(1, b"a")]), 5: logged([put(2, b"b")]), 6: b""})
    opened = crafted.open(reuse_logs=True)
    assert [key for key, _ in rows_of(opened)] == [b"a", b"b"]
    assert {name for name in after(opened) if name.endswith(".log")} == {"000006.log"}
    # The old manifest, with one more edit.
    assert set(opened.verdict.rewrites) == {"MANIFEST-000007"}
    name = "MANIFEST-000007"
    data = after(opened)[name]
    assert data.startswith(crafted.files[name])
    recovered = recover(_reader(data), len(data))
    assert recovered.error is None
    assert recovered.version.log_number == 6
    assert len(recovered.version.files) == 2


def test_large_or_oddly_named_manifest_is_not_reused() -> None:
    """A manifest that is too large, or has an unusual name, is not reused."""
    filling = [form([EditField("compact_pointer", level=1, smallest=b"x" * 30_000)])] * 40
    files = dict(MADE.files)
    name = "MANIFEST-000008"
    files[name] += logged(filling, len(files[name]))
    assert len(files[name]) > 1 << 20
    kept = open_listing(MemoryDirectory(files), reuse_logs=True)
    assert name in after(kept)
    anew = open_listing(MemoryDirectory(files), reuse_logs=True, max_file_size=1 << 20)
    assert name not in after(anew)
    files["other"] = files.pop(name)
    assert "MANIFEST-000009" in after(
        open_listing(MemoryDirectory({**files, "CURRENT": b"other\n"}), reuse_logs=True)
    )


def test_empty_batch_uses_a_number_but_creates_no_table() -> None:
    opened = CraftedDatabase(logs={3: logged([put(1, b"a")[:8] + bytes(4)])}).open()
    assert rows_of(opened) == []
    assert opened.verdict.creates == ("000007.log", "LOCK", "LOG", "MANIFEST-000005")


def test_tables_of_earlier_logs_stay_if_opening_fails() -> None:
    bad = put(2, b"b") + b"\x09"
    crafted = CraftedDatabase(logs={3: logged([put(1, b"a")]), 5: logged([bad])})
    opened = crafted.open(paranoid_checks=True)
    assert status(opened.verdict) == "Corruption: unknown WriteBatch tag"
    assert opened.verdict.creates == ("000008.ldb", "LOCK", "LOG")
    full = logged([*(put(n + 1, b"%05d" % n, b"x" * 250) for n in range(500)), bad])
    opened = CraftedDatabase(logs={3: full}).open(paranoid_checks=True, write_buffer_size=64 << 10)
    assert [create for create in opened.verdict.creates if create.endswith(".ldb")] == [
        "000006.ldb",
        "000007.ldb",
    ]


def test_log_with_a_duplicate_number_is_read_twice() -> None:
    log = logged([put(1, b"a")])
    opened = CraftedDatabase(logs={3: log}, more={"3.log": log}).open()
    assert [key for key, _ in rows_of(opened)] == [b"a"]
    assert [create for create in opened.verdict.creates if create.endswith(".ldb")] == [
        "000006.ldb",
        "000007.ldb",
    ]
    assert "3.log" in opened.verdict.removes


def test_rows_of_logs_have_their_positions() -> None:
    records = [put(3, b"c"), put(4, b"a"), put(5, b"b")]
    (row,) = (
        CraftedDatabase(logs={3: logged(records)})
        .open()
        .rows("live", ("key", "sequence", "type", "file", "level", "position"))
    )
    size = len(logged(records[:1]))
    assert row.to_pylist() == [
        {"key": key, "sequence": n, "type": "value", "file": 3, "level": None, "position": (n - 3) * size}
        for key, n in ((b"a", 4), (b"b", 5), (b"c", 3))
    ]


# Versions and options


def test_version_names_are_resolved() -> None:
    assert [STARTUP.version_of(version) for version in (None, "", "leveldb", "true", "main", "1.23", "1.22.0", "v1.22")] == [
        "main", "main", "main", "main", "main", "1.23", "1.22", "1.22",
    ]  # fmt: skip
    with pytest.raises(UsageError, match=r"unknown version '1\.14'"):
        STARTUP.version_of("1.14")


def test_leveldb_serves_only_the_live_view() -> None:
    with pytest.raises(UsageError, match="serves no view 'history'"):
        MADE.open().parts("history")


def test_status_is_parsed_from_its_text() -> None:
    assert isinstance(parsed("IO error: x: y"), IOFailure)
    assert str(parsed("IO error: x: y")) == "IO error: x: y"
    assert isinstance(parsed("something else"), Corruption)


def test_clean_option_is_refused(tmp_path: Path) -> None:
    """The verdict is the same whether the last stop was clean or not."""
    listing = MemoryDirectory(MADE.files)
    options = Options(LAYOUT.read_options)
    predict = LAYOUT.capabilities.predict
    assert predict is not None
    assert predict.last_stop is None
    plan = LAYOUT.plan(listing, options)
    verdicts = [
        predict.run(listing, plan, options, version=None, clean=clean).verdict
        for clean in (None, False, True)
    ]
    assert [(verdict.clean, verdict.clean_from) for verdict in verdicts] == [
        (False, ""), (False, "option"), (True, "option")
    ]  # fmt: skip
    assert len({str(replace(verdict, clean=False, clean_from="")) for verdict in verdicts}) == 1
    for name, data in MADE.files.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(UsageError, match=r"option clean has no effect on leveldb\.db"):
        lw.verify(tmp_path, as_system=True, clean=True)


def test_large_databases_are_read_in_pieces() -> None:
    """Children of different sizes, whose buffers grow and are refilled."""
    rng = np.random.default_rng(3)
    tables = []
    expected: dict[bytes, tuple[int, bytes]] = {}
    sequence = 0
    for number in range(3, 7):
        rows = {}
        for n in sorted(set(rng.integers(0, 20_000, 6000).tolist())):
            sequence += 1
            rows[b"%06d" % n] = (sequence, bytes([number]) * int(rng.integers(0, 60 * number)))
        tables.append((0 if number > 4 else number, number, [(key, *row) for key, row in rows.items()]))
        for key, row in rows.items():
            expected[key] = max(expected.get(key, (0, b"")), row)
    big = (b"999999", sequence + 1, b"z" * 3_000_000)
    tables.append((5, 8, [big]))
    opened = CraftedDatabase(tables=tables, last_sequence=sequence + 1).open()
    batches = list(opened.rows("live", ("key", "value", "sequence")))
    rows_read = pa.Table.from_batches(batches).to_pylist()
    want = [(key, value, n) for key, (n, value) in sorted(expected.items())] + [(big[0], big[2], big[1])]
    assert [
        (served_row["key"], served_row["value"], served_row["sequence"]) for served_row in rows_read
    ] == want
    assert opened.verdict.rows == len(want)
    assert opened.verdict.serves["last"] == "999999"


def test_file_names_have_six_digits() -> None:
    assert (log_name(7), table_name(7)) == ("000007.log", "000007.ldb")
    assert not dropped(MADE.open().verdict)
