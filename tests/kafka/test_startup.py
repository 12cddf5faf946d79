"""Rules of a broker's start that no golden directory covers: odd entries, splits, checkpoints, unordered logs."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from kafka_log import data_batch, end_marker
from kafka_repairs import partition_directory
from kafka_startup import LOG, METADATA, batch, legacy, opened, partition
from memory_directory import MemoryDirectory, UnreadableDirectory

from logwright.codec.engine.startup import Started
from logwright.codec.fault import UnsupportedError, UsageError
from logwright.codec.kafka.formats.log.layout import CONTROL, TRANSACTIONAL
from logwright.codec.kafka.formats.log.markers import ABORT, COMMIT
from logwright.codec.kafka.formats.producer_snapshot import ENTRY, pack
from logwright.codec.kafka.names import segment_name
from logwright.codec.kafka.startup.entries import entries
from logwright.codec.kafka.startup.errors import BrokerError
from logwright.codec.kafka.startup.start import STARTUP, ServedPartition
from logwright.codec.store.extents import Copy
from logwright.codec.store.overlay import Overlay


def log_offsets(started: Started) -> tuple[int, int]:
    assert isinstance(started.served, ServedPartition)
    loaded = started.served.loaded
    return loaded.log_start_offset, loaded.log_end_offset


# Entries


def test_entry_of_an_older_format_is_opened_for_its_offset() -> None:
    for attributes, error in ((6, "Unknown compression type id: 6"), (1, "java.io.EOFException")):
        (entry,) = entries(partition_directory({LOG: legacy(3, attributes)}), LOG, 0, 78)
        with pytest.raises(BrokerError, match=error):
            _ = entry.base_offset
    (plain,) = entries(partition_directory({LOG: legacy(3, 0)}), LOG, 0, 78)
    assert plain.base_offset.tolist() == plain.last_offset.tolist() == [3]
    assert plain.invalid() is not None


def test_sound_entry_of_an_older_format_is_kept() -> None:
    content = bytearray(legacy(3, 0))
    content[12:16] = zlib.crc32(bytes(content[16:])).to_bytes(4, "big")
    assert log_offsets(opened(partition(bytes(content)))) == (0, 4)


def test_recovery_takes_its_snapshot_after_the_last_batch() -> None:
    """Messages of magic 0 and 1 have no producers: `LogSegment.recover` does not count them."""
    plain = bytearray(legacy(3, 0))
    plain[12:16] = zlib.crc32(bytes(plain[16:])).to_bytes(4, "big")
    after = opened(partition(batch(0) + batch(1) + bytes(plain)), clean=False).after
    assert [entry.name for entry in after.entries() if entry.name.endswith(".snapshot")] == [
        segment_name(offset, ".snapshot") for offset in (2, 4)
    ]


def test_entry_with_no_room_for_the_fields_of_its_magic_is_not_simulated() -> None:
    body = b"\1\0" + bytes(12)
    content = (3).to_bytes(8, "big") + (18).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body
    with pytest.raises(UnsupportedError, match="30 bytes and magic 1"):
        opened(partition(content))


def test_entry_smaller_than_a_header() -> None:
    """The broker accepts entries from 14 bytes on and reads their headers beyond their ends."""
    small = bytearray(batch(0))
    small[8:12] = (20).to_bytes(4, "big")
    started = opened(partition(bytes(small), batch(1)))
    assert started.verdict.truncates == {LOG: 0}
    tiny = bytearray(legacy(0, 0))
    tiny[8:12] = (14).to_bytes(4, "big")
    first = next(entries(partition_directory({LOG: bytes(tiny)}), LOG, 0, len(tiny)))
    assert first.invalid() is not None
    assert len(first.end) == 1


def test_header_beyond_the_end_of_the_file() -> None:
    short = bytearray(batch(0)[:40])
    short[8:12] = (28).to_bytes(4, "big")
    with pytest.raises(BrokerError, match="Failed to load record batch"):
        list(entries(partition_directory({LOG: bytes(short)}), LOG, 0, 40))
    short[16] = 0
    (entry,) = entries(partition_directory({LOG: bytes(short)}), LOG, 0, 40)
    assert entry.header["magic"].tolist() == [0]
    assert not opened(partition(bytes(short)), clean=True).verdict.error


def test_records_of_a_huge_entry_are_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logwright.codec.kafka.startup.entries._READ_IN_FULL", 100)
    monkeypatch.setattr("logwright.codec.kafka.startup.entries._WINDOW", 100)
    content = batch(0, value=bytes(500)) + batch(1)
    first, second = entries(partition_directory({LOG: content}), LOG, 0, len(content))
    assert (first.complete, second.complete) == (False, True)
    assert [key.base_offset.tolist() for key in (first, second)] == [[0], [1]]
    assert opened(partition(content), clean=True).verdict.rows == 2
    assert opened(partition(content), clean=False).verdict.truncates == {}


def test_log_of_several_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logwright.codec.kafka.startup.entries._WINDOW", 200)
    content = b"".join(batch(i) for i in range(50))
    assert [
        int(offset)
        for entry in entries(partition_directory({LOG: content}), LOG, 0, len(content))
        for offset in entry.base_offset
    ] == list(range(50))


# Disk


def test_overlay_can_be_truncated() -> None:
    disk = Overlay(partition_directory({"a": b"0123456789", "b": b"xy"}))
    disk.put("c", b"hello")
    disk.truncate("c", 2)
    disk.copy("c", 1, 2, "d")
    disk.copy("a", 2, 5, "e")
    disk.truncate("a", 20)
    disk.rename("nothing", "else")
    disk.delete("nothing")
    assert {entry.name: disk.read(entry.name) for entry in disk.entries()} == {
        "a": b"0123456789", "b": b"xy", "c": b"he", "d": b"e", "e": b"234",
    }  # fmt: skip
    assert (disk.truncated, disk.removed, disk.rewritten, disk.created) == ({}, [], [], ["c", "d", "e"])
    assert disk.origin("e") == Copy("a", 2, 5)
    assert disk.origin("c") is None
    assert disk.parent() is None
    assert disk.read("e", 1, 1) == b"3"


# Loading


def test_too_large_segment_stops_the_start() -> None:
    class Large(MemoryDirectory):
        def entries(self) -> Any:
            return [
                type(entry)(entry.name, 1 << 31 if entry.name == LOG else entry.size)
                for entry in super().entries()
            ]

    verdict = opened(Large({LOG: batch(0), **METADATA})).verdict
    assert not verdict.opens
    assert "larger than the maximum allowed" in str(verdict.error)


def test_full_index_stops_the_start() -> None:
    """An index has a fixed capacity. A recovery that needs more entries ends the start."""
    directory = partition(*(batch(i, timestamp=1000 + i) for i in range(40)))
    verdict = opened(directory, index_interval_bytes=50, segment_index_bytes=64).verdict
    assert not verdict.opens
    assert "full index" in str(verdict.error)
    assert opened(directory, index_interval_bytes=50, segment_index_bytes=4096).verdict.opens


def test_split_into_three_segments() -> None:
    far = 1 << 31
    directory = partition(batch(5), batch(6 + far), batch(7 + 2 * far), **{"00000000000000000000_index": b""})
    started = opened(directory)
    assert started.verdict.opens
    assert sorted(entry.name for entry in started.after.entries() if entry.name.endswith(".log")) == [
        segment_name(5, ".log"), segment_name(6 + far, ".log"), segment_name(7 + 2 * far, ".log"),
    ]  # fmt: skip
    assert started.verdict.rows == 3
    assert [(part.start, part.stop) for part in started.parts("read_uncommitted")] == [
        (0, 69),
        (69, 138),
        (138, 207),
    ]
    # A segment cannot hold these offsets: the records are there, but unreachable.
    assert started.verdict.rows_lost == 2
    assert sum("which are wrong" in warning for warning in started.verdict.warnings) == 2


def test_segment_that_is_split_before_it_is_loaded_stays() -> None:
    """`LocalLog.replaceSegments` deletes only loaded segments. One without an index is recovered, and split, while it is loaded."""
    far, base = 1 << 31, 3
    name = {suffix: segment_name(base, suffix) for suffix in (".log", ".index", ".timeindex")}
    old_times = (5).to_bytes(8, "big") + (1).to_bytes(4, "big")
    for first, stays in ((base + far, True), (base, False)):
        content = batch(first) + batch(first + 2 * far)
        files = {**partition(batch(0), batch(1)).files, name[".log"]: content, name[".timeindex"]: old_times}
        started = opened(partition_directory(files), clean=True, segment_index_bytes=100)
        after = {entry.name: started.after.read(entry.name) for entry in started.after.entries()}
        assert started.verdict.opens
        assert [name for name in after if name.endswith(".log")] == [
            segment_name(offset, ".log") for offset in (0, *([base] if stays else []), first, first + 2 * far)
        ]
        if stays:
            assert after[name[".log"]] == content
            assert after[name[".index"]] == bytes(96)
            assert after[name[".timeindex"]] == old_times + bytes(84)


def test_impossible_split_stops_the_start() -> None:
    """No part can hold a batch that ends before it begins, or one of an unknown magic. The broker expects a batch where the last part
    ends."""
    reversed_batch = batch(1 << 33, last=-5)
    torn = batch(1 << 33)[:-3]
    of_magic_10 = b"\x0a".join([batch(1 << 33)[:16], batch(0)[17:]])
    for directory, reason in (
        (
            partition(batch(0), reversed_batch),
            "java.lang.IllegalStateException: Failed to append records from position",
        ),
        (partition(batch(0), batch(1 << 32), torn), "java.util.NoSuchElementException"),
        (
            partition(batch(0), of_magic_10, torn),
            "org.apache.kafka.common.errors.CorruptRecordException: Invalid magic found in record: 10",
        ),
    ):
        verdict = opened(directory).verdict
        assert not verdict.opens
        assert verdict.reason.startswith(reason)


def test_decreasing_time_entries_are_corrupt() -> None:
    """Offsets of time entries never decrease: the segment counts as corrupt while its index is rebuilt or when it is closed."""
    while_going = [
        batch(0),
        batch(5, timestamp=2000),
        batch(6, timestamp=3000),
        batch(2, timestamp=4000),
        batch(8),
        batch(9),
    ]
    at_the_end = [batch(0), batch(5, timestamp=2000), batch(6, timestamp=3000), batch(2, timestamp=4000)]
    for batches in (while_going, at_the_end):
        started = opened(partition(*batches), index_interval_bytes=100)
        assert started.verdict.opens is False or started.verdict.truncates == {LOG: 0}
        index = {"00000000000000000000_index": b"", "00000000000000000000_timeindex": b""}
        started = opened(partition(*batches, **index), index_interval_bytes=100)
        assert started.verdict.truncates == {LOG: 0}
        assert log_offsets(started) == (0, 0)


def test_decreasing_aborted_transactions_are_corrupt() -> None:
    txn = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    marker = {"attributes": TRANSACTIONAL | CONTROL, **txn, "base_sequence": -1}
    abort = {
        "attributes": 0,
        "timestamp_delta": 0,
        "offset_delta": 0,
        "key": bytes([0, 0, 0, 0]),
        "value": bytes(6),
        "headers": (),
    }
    data = {"attributes": TRANSACTIONAL, **txn}
    directory = partition(
        batch(0, **data),
        batch(9, **marker, records=[abort]),
        batch(2, **data),
        batch(3, **marker, records=[abort]),
    )
    verdict = opened(directory).verdict
    assert not verdict.opens
    assert "must increase sequentially" in str(verdict.error)


@pytest.mark.parametrize("clean", [False, True])
def test_end_of_a_replaced_transaction_stops_the_start(clean: bool) -> None:
    """Of two transactions with the same first offset the broker knows the second. A replay begins both before it ends any."""
    log = [data_batch(5, 1), data_batch(5, 2), end_marker(6, 2, COMMIT), end_marker(7, 1, ABORT)]
    repeated = [data_batch(5, 1), end_marker(6, 1, COMMIT), data_batch(5, 2), end_marker(7, 2, ABORT)]
    for batches, opens in ((log[:3], True), (log, False), (repeated, not clean)):
        files = {segment_name(0, ".index"): b"", segment_name(0, ".timeindex"): b""}
        files[segment_name(1, ".snapshot")] = pack(np.zeros(0, ENTRY))
        verdict = opened(partition(*batches, **files), clean=clean).verdict
        assert verdict.opens is opens
        if not opens:
            assert verdict.error_class == "java.lang.IllegalArgumentException"
            assert "Attempted to complete transaction CompletedTxn[producerId=" in verdict.error
            assert (
                "firstOffset=5, lastOffset=7, isAborted=true] on partition orders-0 which was not started"
                in verdict.error
            )


def test_open_transaction_of_a_snapshot_is_searched_in_the_log() -> None:
    """The position of the first open transaction is read from the log; a segment that cannot be searched ends the start."""
    data = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "attributes": TRANSACTIONAL}
    sound = partition(batch(0, **data), batch(1, **data))
    first = opened(sound)
    files = {entry.name: first.after.read(entry.name) for entry in first.after.entries()}
    files[segment_name(2, ".log")] = batch(2)
    files[segment_name(2, ".index")] = files[segment_name(2, ".timeindex")] = b""
    assert opened(partition_directory(files), clean=True).verdict.opens
    files[LOG] = bytes(200)
    verdict = opened(partition_directory(files), clean=True).verdict
    assert not verdict.opens
    assert "Found record size 0" in str(verdict.error)


def test_directory_without_logs_gets_one_empty_segment() -> None:
    """At the log start offset."""
    started = opened(partition_directory(dict(METADATA)), log_start_offset=7)
    assert log_offsets(started) == (7, 7)
    assert started.verdict.creates == tuple(
        sorted(
            [
                *(segment_name(7, suffix) for suffix in (".log", ".index", ".timeindex")),
                "leader-epoch-checkpoint",
            ]
        )
    )


# Checkpoints of the log directory


def test_checkpoints_decide_recovery_and_log_start() -> None:
    def above(recovery: str, start: str) -> dict[str, bytes]:
        return {
            "recovery-point-offset-checkpoint": f"0\n1\norders 0 {recovery}\n".encode(),
            "log-start-offset-checkpoint": f"0\n1\norders 0 {start}\n".encode(),
            "replication-offset-checkpoint": b"0\n0\n",
        }

    batches = [batch(i) for i in range(5)]
    started = opened(partition(*batches, above=above("5", "2")), clean=None)
    assert log_offsets(started) == (2, 5)
    assert started.verdict.clean_from == ".kafka_cleanshutdown does not exist"
    started = opened(partition(*batches, above=above("5x", "2x")))
    assert log_offsets(started) == (0, 5)
    assert len([warning for warning in started.verdict.warnings if "resetting" in warning]) == 2
    started = opened(
        partition(*batches, above={**above("5", "2"), "replication-offset-checkpoint": b"0\n7\n"})
    )
    assert (started.verdict.opens, started.verdict.scope, started.served) == (False, "log_dir", None)
    assert opened(partition(*batches, above={".kafka_cleanshutdown": b""}), clean=None).verdict.clean
    assert opened(partition(*batches), clean=None).verdict.clean_from.startswith("assumed")


def test_unreadable_bytes_of_a_log_stop_the_start() -> None:
    files = {LOG: b"".join(batch(i) for i in range(20)), **METADATA}
    verdict = opened(UnreadableDirectory(files, {LOG: [(256, 512)]})).verdict
    assert (verdict.opens, verdict.scope) == (False, "process")
    assert "cannot read 256 bytes" in str(verdict.error)
    assert verdict.rows_lost == 15  # Offsets 3 to 7 are unreadable.


def test_invalid_partition_metadata_stops_the_start() -> None:
    for content, java in (
        (b"version: 0", "NullPointerException"),
        (b"version: 0\ntopic_id: !", "IllegalArgumentException"),
    ):
        verdict = opened(partition_directory({LOG: b"", "partition.metadata": content})).verdict
        assert (verdict.scope, verdict.error_class) == ("process", f"java.lang.{java}")


def test_version_is_named_in_any_form() -> None:
    for asked in (None, "", "kafka", "4.3", "4.3.0", "kafka-4.3", "Kafka 4.3.1"):
        assert STARTUP.version_of(asked) == "4.3"
    with pytest.raises(UsageError, match=r"4\.3"):
        STARTUP.version_of("2.8")
