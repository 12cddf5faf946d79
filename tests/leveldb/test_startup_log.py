"""LevelDB's treatment of logs when it opens a database: its own list of tests (`log_test.cc`, `corruption_test.cc`), and related cases."""

from __future__ import annotations

from typing import Any

import pytest
from leveldb_startup import (
    CraftedDatabase,
    batch,
    dropped,
    fill,
    large,
    open_listing,
    physical,
    put,
    rows_of,
    status,
)
from memory_directory import UnreadableDirectory

from logwright.codec.engine.startup import Started
from logwright.codec.leveldb.formats.manifest.layout import EditField
from logwright.codec.leveldb.formats.records.layout import BLOCK, FIRST, FULL, HEADER, LAST, MIDDLE, ZERO
from logwright.codec.leveldb.startup.version_set import logged

LOG = "db/000003.log"


def opened(log: bytes, **options: Any) -> Started:
    return CraftedDatabase(logs={3: log}).open(**options)


def keys(log: bytes) -> list[bytes]:
    return [key for key, _ in rows_of(opened(log))]


def dropped_texts(log: bytes) -> list[str]:
    """Return the dropped data, without the surrounding text."""
    start = f"(ignoring error) {LOG}: dropping "
    lines = dropped(opened(log).verdict)
    assert all(line.startswith(start) for line in lines)
    return [line.removeprefix(start) for line in lines]


def flipped(data: bytes, at: int, bit: int = 1) -> bytes:
    return data[:at] + bytes((data[at] ^ bit,)) + data[at + 1 :]


def sound(log: bytes) -> None:
    """Check that nothing is reported, with paranoid checks or without."""
    assert not dropped_texts(log)
    assert status(opened(log, paranoid_checks=True).verdict) == "OK"


# Sound logs


def test_empty_log_has_no_rows() -> None:
    assert keys(b"") == []
    sound(b"")


def test_written_records_are_read() -> None:
    log = logged([put(1, b"foo"), put(2, b"bar"), put(3, b""), put(4, b"xxxx")])
    assert keys(log) == [b"", b"bar", b"foo", b"xxxx"]
    sound(log)


def test_records_of_many_blocks_are_read() -> None:
    log = logged([put(n + 1, b"%05d" % n) for n in range(10_000)])
    assert len(log) > 4 * BLOCK
    assert keys(log) == [b"%05d" % n for n in range(10_000)]
    sound(log)


def test_fragmented_records_are_joined() -> None:
    log = logged([put(1, b"small"), large(2, b"medium", 50_000), large(3, b"large", 100_000)])
    assert keys(log) == [b"large", b"medium", b"small"]
    sound(log)


def test_block_trailer_as_long_as_a_header_holds_an_empty_record() -> None:
    """The trailer of a block is exactly as long as an empty record."""
    log = fill(HEADER) + physical(b"", FIRST) + physical(put(2, b"next"), LAST)
    assert len(fill(HEADER)) == BLOCK - HEADER
    assert log == logged([large(1, b"fill", BLOCK - 2 * HEADER), put(2, b"next")])
    assert keys(log) == [b"fill", b"next"]
    sound(log)


def test_block_trailer_shorter_than_a_header_is_skipped() -> None:
    for short in range(1, HEADER):
        for filling in (0, 0xFF):
            log = fill(short) + bytes((filling,)) * short + physical(put(2, b"next"))
            assert keys(log) == [b"fill", b"next"]
            sound(log)


def test_log_may_end_at_or_near_a_block_end() -> None:
    for short in (0, 1, HEADER - 1):
        assert keys(fill(short)) == [b"fill"]
        sound(fill(short))


def test_empty_first_before_a_full_or_a_first() -> None:
    """Writers before 1.2 left such records at the end of a block."""
    for follows in (physical(put(2, b"next")), physical(put(2, b"ne")[:9], FIRST)):
        log = fill(HEADER) + physical(b"", FIRST) + follows
        assert keys(log)[0] == b"fill"
        assert not dropped_texts(log)


# Torn ends


@pytest.mark.parametrize("cut", [1, 4, HEADER - 1])
def test_truncated_trailing_record_is_ignored(cut: int) -> None:
    log = logged([put(1, b"foo"), put(2, b"bar")])[: len(logged([put(1, b"foo")])) + cut]
    assert keys(log) == [b"foo"]
    sound(log)


def test_bad_length_at_end_is_ignored() -> None:
    log = logged([put(1, b"foo"), put(2, b"bar")])[:-1]
    assert keys(log) == [b"foo"]
    sound(log)


def test_missing_last_is_ignored() -> None:
    log = fill(100) + logged([large(2, b"bar", BLOCK)], BLOCK - 100)[:100]
    assert len(log) == BLOCK
    assert keys(log) == [b"fill"]
    sound(log)


def test_partial_last_is_ignored() -> None:
    log = logged([put(1, b"foo"), large(2, b"bar", BLOCK)])[:-1]
    assert keys(log) == [b"foo"]
    sound(log)


def test_wrong_length_in_the_last_block_hides_the_rest_silently() -> None:
    log = logged([put(1, b"a"), put(2, b"b"), put(3, b"c")])
    log = flipped(log, len(log) // 3 + 5, 0x40)
    assert keys(log) == [b"a"]
    sound(log)
    assert opened(log).verdict.rows_lost == 1


def test_zeros_at_the_end_are_ignored() -> None:
    log = logged([put(1, b"foo")]) + bytes(70_000)
    assert keys(log) == [b"foo"]
    sound(log)


# Damage


def test_record_of_unknown_type_is_dropped() -> None:
    log = physical(put(1, b"foo"), 9) + physical(put(2, b"bar"))
    assert keys(log) == [b"bar"]
    assert dropped_texts(log) == [f"{len(put(1, b'foo'))} bytes; Corruption: unknown record type 9"]


@pytest.mark.parametrize(("kind", "message"), [(0x80, 4294967168), (0xFF, 4294967295), (ZERO, 0)])
def test_types_are_signed_bytes(kind: int, message: int) -> None:
    log = physical(put(1, b"foo"), kind) + physical(put(2, b"bar"))
    assert keys(log) == [b"bar"]
    assert dropped_texts(log) == [f"{len(put(1, b'foo'))} bytes; Corruption: unknown record type {message}"]


def test_types_used_internally_by_the_reader() -> None:
    """5 is its end of file, 6 its bad record."""
    rest = physical(put(2, b"bar"))
    assert keys(physical(put(1, b"foo"), 5) + rest) == []
    assert keys(physical(put(1, b"foo"), 6) + rest) == [b"bar"]
    sound(physical(b"x", 5) + rest)
    sound(physical(b"x", 6) + rest)


def test_bad_record_length_drops_the_block() -> None:
    log = flipped(fill(0), 4, 2) + physical(put(2, b"foo"))
    assert keys(log) == [b"foo"]
    assert dropped_texts(log) == [f"{BLOCK} bytes; Corruption: bad record length"]


def test_checksum_mismatch_drops_the_rest_of_the_block() -> None:
    """The rest of the block is dropped, including intact records."""
    lost = logged([put(1, b"foo"), put(2, b"bar")])
    log = flipped(lost, 0, 10)
    assert keys(log) == []
    assert dropped_texts(log) == [f"{len(log)} bytes; Corruption: checksum mismatch"]
    assert status(opened(log, paranoid_checks=True).verdict) == "Corruption: checksum mismatch"


def test_middle_record_without_a_start_is_dropped() -> None:
    log = physical(put(1, b"foo"), MIDDLE)
    assert dropped_texts(log) == [
        f"{len(put(1, b'foo'))} bytes; Corruption: missing start of fragmented record(1)"
    ]


def test_last_record_without_a_start_is_dropped() -> None:
    log = physical(put(1, b"foo"), LAST)
    assert dropped_texts(log) == [
        f"{len(put(1, b'foo'))} bytes; Corruption: missing start of fragmented record(2)"
    ]


def test_full_record_ends_an_unfinished_one() -> None:
    log = physical(put(1, b"foo"), FIRST) + physical(put(2, b"bar"), FULL)
    assert keys(log) == [b"bar"]
    assert dropped_texts(log) == [f"{len(put(1, b'foo'))} bytes; Corruption: partial record without end(1)"]


def test_first_record_ends_an_unfinished_one() -> None:
    log = (
        physical(put(1, b"foo"), FIRST)
        + physical(put(2, b"bar")[:5], FIRST)
        + physical(put(2, b"bar")[5:], LAST)
    )
    assert keys(log) == [b"bar"]
    assert dropped_texts(log) == [f"{len(put(1, b'foo'))} bytes; Corruption: partial record without end(2)"]


def test_fragments_of_two_records_are_not_joined() -> None:
    """FIRST and LAST of two records, with the bytes between them lost, are not joined."""
    first, second = large(1, b"first", BLOCK), large(2, b"second", BLOCK)
    log = bytearray(logged([first, second, put(3, b"correct")]))
    log[BLOCK : 2 * BLOCK] = b"x" * BLOCK
    assert keys(bytes(log)) == [b"correct"]
    dropping = [say.partition("; ")[2] for say in dropped_texts(bytes(log))]
    assert dropping[:2] == ["Corruption: checksum mismatch", "Corruption: error in middle of record"]
    assert (
        BLOCK
        <= sum(int(say.partition(" ")[0]) for say in dropped_texts(bytes(log)))
        <= 2 * BLOCK + len(first)
    )


def test_damaged_middle_is_reported_three_times() -> None:
    log = logged([put(1, b"a"), large(2, b"b", 3 * BLOCK), put(3, b"c")])
    log = flipped(log, BLOCK + 100)
    assert keys(log) == [b"a", b"c"]
    assert [say.partition("; ")[2] for say in dropped_texts(log)] == [
        "Corruption: checksum mismatch",
        "Corruption: error in middle of record",
        "Corruption: missing start of fragmented record(1)",
        "Corruption: missing start of fragmented record(2)",
    ]


def test_unknown_type_ends_a_record_in_progress() -> None:
    log = physical(put(1, b"foo"), FIRST) + physical(b"rest", 9) + physical(b"", LAST)
    assert dropped_texts(log) == [
        f"{len(put(1, b'foo')) + 4} bytes; Corruption: unknown record type 9",
        "0 bytes; Corruption: missing start of fragmented record(2)",
    ]


def test_zeros_within_a_block_hide_its_rest_silently() -> None:
    log = physical(put(1, b"a")) + bytes(100) + physical(put(2, b"b"))
    assert keys(log) == [b"a"]
    sound(log)


# Batches


def test_invalid_batch_is_dropped_and_later_ones_are_read() -> None:
    log = logged([put(1, b"a"), b"too small", put(2, b"b")])
    assert keys(log) == [b"a", b"b"]
    assert dropped_texts(log) == ["9 bytes; Corruption: log record too small"]
    refused = opened(log, paranoid_checks=True).verdict
    assert status(refused) == "Corruption: log record too small"
    assert dropped(refused) == [f"{LOG}: dropping 9 bytes; Corruption: log record too small"]


def test_each_invalid_batch_is_reported() -> None:
    log = logged([b"one", b"", put(1, b"a"), b"three"])
    assert keys(log) == [b"a"]
    assert [int(say.partition(" ")[0]) for say in dropped_texts(log)] == [3, 0, 5]


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (b"\x01\x05abc", "bad WriteBatch Put"),
        (b"\x01\x01k\x09v", "bad WriteBatch Put"),
        (b"\x00\x05abc", "bad WriteBatch Delete"),
        (b"\x07", "unknown WriteBatch tag"),
        (b"\x01\x01k\x01v", "WriteBatch has wrong count"),
    ],
)
def test_operations_before_a_malformed_one_are_kept(rest: bytes, message: str) -> None:
    malformed = batch(1, (b"a", b"1"), (b"b", b"2")) + rest
    log = logged([malformed, put(9, b"z")])
    started = opened(log)
    assert [key for key, _ in rows_of(started)][:2] == [b"a", b"b"]
    assert rows_of(started)[-1][0] == b"z"
    assert dropped(started.verdict) == [f"Ignoring error Corruption: {message}"]
    assert status(opened(log, paranoid_checks=True).verdict) == f"Corruption: {message}"


def test_sequence_of_a_malformed_batch_counts() -> None:
    """Its header sets the last sequence number: table entries up to it become visible."""
    crafted = CraftedDatabase(
        tables=[(1, 4, [(b"t", 50, b"v")])], logs={5: logged([batch(1, count=50)])}, last_sequence=1
    )
    assert rows_of(crafted.open()) == [(b"t", b"v")]
    crafted = CraftedDatabase(
        tables=[(1, 4, [(b"t", 51, b"v")])], logs={5: logged([batch(1, count=50)])}, last_sequence=1
    )
    assert rows_of(crafted.open()) == []


def test_empty_batch_at_sequence_0() -> None:
    """Sequence 0 and no operations: the last sequence number becomes the largest one, so every entry is visible."""
    crafted = CraftedDatabase(
        tables=[(1, 4, [(b"t", 99, b"v")])], logs={5: logged([batch(0)])}, last_sequence=1
    )
    assert rows_of(crafted.open()) == [(b"t", b"v")]


def test_later_operation_wins_for_equal_numbers() -> None:
    log = logged([put(1, b"a", b"old"), put(1, b"a", b"new"), put(1, b"b", b"b")])
    assert rows_of(opened(log)) == [(b"a", b"new"), (b"b", b"b")]


def test_later_operations_override_earlier_ones() -> None:
    log = logged(
        [batch(1, (b"a", b"1"), (b"b", b"2"), (b"a", None)), put(4, b"b", b"3"), batch(5, (b"c", None))]
    )
    assert rows_of(opened(log)) == [(b"b", b"3")]


# Selected logs


def test_logs_are_replayed_from_the_manifests_number_on() -> None:
    """Those from the manifest's number on, in the order of their numbers."""
    logs = {n: logged([put(n, b"k", b"%d" % n)]) for n in (9, 11, 10)}
    assert rows_of(CraftedDatabase(logs=logs).open()) == [(b"k", b"11")]
    assert rows_of(CraftedDatabase(logs=logs, log_number=12).open()) == []


def test_database_without_logs_opens() -> None:
    assert rows_of(CraftedDatabase().open()) == []


def test_previous_log_counts_in_old_databases() -> None:
    logs = {3: logged([put(1, b"a")]), 5: logged([put(2, b"b")]), 7: logged([put(3, b"c")])}
    crafted = CraftedDatabase(logs=logs, log_number=7, edit=[EditField("prev_log_number", number=3)])
    assert [key for key, _ in rows_of(crafted.open())] == [b"a", b"c"]


def test_log_not_found_under_its_number() -> None:
    """`7.log` is taken for log 7, and then `000007.log` is opened."""
    crafted = CraftedDatabase(more={"7.log": logged([put(1, b"a")])})
    assert rows_of(crafted.open()) == []
    assert dropped(crafted.open().verdict) == [
        "Ignoring error NotFound: db/000007.log: No such file or directory"
    ]
    refused = crafted.open(paranoid_checks=True).verdict
    assert status(refused) == "NotFound: db/000007.log: No such file or directory"


def test_unreadable_log_is_ignored_with_an_io_error() -> None:
    files = CraftedDatabase(logs={3: logged([put(1, b"a")])}).files
    listing = UnreadableDirectory(files, {name: [(0, 512)] for name in files if name.endswith(".log")})
    opened = open_listing(listing)
    assert dropped(opened.verdict) == [
        f"(ignoring error) {LOG}: dropping 32768 bytes; IO error: {LOG}: Input/output error"
    ]
    refused = open_listing(listing, paranoid_checks=True).verdict
    assert status(refused) == f"IO error: {LOG}: Input/output error"
