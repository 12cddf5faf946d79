"""Rules of a broker's start that no golden directory covers: odd entries, splits, checkpoints, unordered logs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kafka_repairs import ID, partition_directory
from memory_directory import MemoryDirectory

from logwright.codec import registry
from logwright.codec.engine.startup import LostRows, Started
from logwright.codec.fault import UnreadableError, UnsupportedError, UsageError
from logwright.codec.kafka.formats.log.layout import CONTROL, RECORD_BATCH, TRANSACTIONAL
from logwright.codec.kafka.names import segment_name
from logwright.codec.kafka.startup import fetch
from logwright.codec.kafka.startup import lost as losing
from logwright.codec.kafka.startup.entries import entries
from logwright.codec.kafka.startup.errors import BrokerError, CorruptRecord
from logwright.codec.kafka.startup.index import OffsetIndex
from logwright.codec.kafka.startup.start import STARTUP, ServedPartition
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy
from logwright.codec.store.overlay import Overlay

LAYOUT = registry.get_layout("kafka.partition")

LOG = segment_name(0, ".log")
METADATA = {"partition.metadata": f"version: 0\ntopic_id: {ID}".encode()}


def batch(
    base: int,
    *,
    count: int = 1,
    last: int | None = None,
    timestamp: int = 1000,
    value: bytes = b"v",
    **more: Any,
) -> bytes:
    """Pack a batch of plain records with consecutive offsets."""
    records = [
        {"attributes": 0, "timestamp_delta": 0, "offset_delta": i, "key": None, "value": value, "headers": ()}
        for i in range(count)
    ]
    return RECORD_BATCH.pack(
        {
            "base_offset": base,
            "last_offset_delta": (count - 1 if last is None else last),
            "base_timestamp": timestamp,
            "max_timestamp": timestamp,
            "records_count": count,
            "records": records,
            **more,
        }
    )


def partition(*batches: bytes, above: dict[str, bytes] | None = None, **files: bytes) -> MemoryDirectory:
    named = {name.replace("_", "."): data for name, data in files.items()}
    return partition_directory(
        {LOG: b"".join(batches), **METADATA, **named},
        above=None if above is None else partition_directory(above, "logs"),
    )


def opened(directory: Any, *, clean: bool | None = False, **settings: Any) -> Started:
    options = Options(
        LAYOUT.read_options, {name.replace("_", "."): value for name, value in settings.items()}
    )
    result = LAYOUT.capabilities.predict.run(
        directory, LAYOUT.plan(partition_directory({}), options), options, version=None, clean=clean
    )
    return result


def log_offsets(started: Started) -> tuple[int, int]:
    assert isinstance(started.served, ServedPartition)
    return started.served.log_offsets


def legacy(base: int, attributes: int, magic: int = 0) -> bytes:
    """Pack an entry of an older format with a wrong checksum."""
    body = bytes([0, 0, 0, 0, magic, attributes]) + bytes(60)
    return base.to_bytes(8, "big") + len(body).to_bytes(4, "big") + body


# Entries


def test_entry_of_an_older_format_is_opened_for_its_offset() -> None:
    for attributes, error in ((6, BrokerError), (1, CorruptRecord)):
        (entry,) = entries(partition_directory({LOG: legacy(3, attributes)}), LOG, 0, 78)
        with pytest.raises(error):
            _ = entry.base_offset
    (plain,) = entries(partition_directory({LOG: legacy(3, 0)}), LOG, 0, 78)
    assert plain.base_offset.tolist() == plain.last_offset.tolist() == [3]
    assert plain.invalid() is not None


def test_sound_entry_of_an_older_format_is_skipped() -> None:
    content = bytearray(legacy(3, 0))
    import zlib

    content[12:16] = zlib.crc32(bytes(content[16:])).to_bytes(4, "big")
    with pytest.raises(UnsupportedError, match="message format"):
        opened(partition(bytes(content)))


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
    assert entry.legacy
    assert not opened(partition(bytes(short)), clean=True).verdict.error


def test_records_of_a_huge_entry_are_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logwright.codec.kafka.startup.entries._WHOLE", 100)
    monkeypatch.setattr("logwright.codec.kafka.startup.entries._WINDOW", 100)
    content = batch(0, value=bytes(500)) + batch(1)
    first, second = entries(partition_directory({LOG: content}), LOG, 0, len(content))
    assert (first.whole, second.whole) == (False, True)
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


def test_impossible_split_stops_the_start() -> None:
    wide = batch(1 << 33, last=(1 << 31) - 1)
    torn = batch(1 << 33)[:-3]
    for directory in (partition(batch(0), wide, batch(1 << 40)), partition(batch(0), batch(1 << 32), torn)):
        verdict = opened(directory).verdict
        assert verdict.opens or verdict.error_class in (
            "java.lang.IllegalStateException",
            "java.lang.IllegalArgumentException",
        )


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
    assert started.verdict.clean_from == ".kafka_cleanshutdown is not there"
    started = opened(partition(*batches, above=above("5x", "2x")))
    assert log_offsets(started) == (0, 5)
    assert len([warning for warning in started.verdict.warnings if "resetting" in warning]) == 2
    started = opened(
        partition(*batches, above={**above("5", "2"), "replication-offset-checkpoint": b"0\n7\n"})
    )
    assert (started.verdict.opens, started.verdict.scope, started.served) == (False, "log_dir", None)
    assert opened(partition(*batches, above={".kafka_cleanshutdown": b""}), clean=None).verdict.clean
    assert opened(partition(*batches), clean=None).verdict.clean_from.startswith("assumed")


def test_unreadable_disk() -> None:
    class Dying(MemoryDirectory):
        def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
            if name == LOG and offset < 512 and (length is None or offset + length > 256):
                raise UnreadableError.of(max(offset, 256), 256, "Input/output error", name)
            return super().read(name, offset, length)

    verdict = opened(Dying({LOG: b"".join(batch(i) for i in range(20)), **METADATA})).verdict
    assert (verdict.opens, verdict.scope) == (False, "process")
    assert "cannot read 256 bytes" in str(verdict.error)
    assert verdict.rows_lost == 15  # Offsets 3 to 7 are unreadable.


def test_unreadable_metadata() -> None:
    for content, java in (
        (b"version: 0", "NullPointerException"),
        (b"version: 0\ntopic_id: !", "IllegalArgumentException"),
    ):
        verdict = opened(partition_directory({LOG: b"", "partition.metadata": content})).verdict
        assert (verdict.scope, verdict.error_class) == ("process", f"java.lang.{java}")


def test_versions() -> None:
    for asked in (None, "", "kafka", "4.3", "4.3.0", "kafka-4.3", "Kafka 4.3.1"):
        assert STARTUP.version_of(asked) == "4.3"
    with pytest.raises(UsageError, match=r"4\.3"):
        STARTUP.version_of("2.8")


# Consumers


def test_fetches_in_a_loop_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetches that lead back to one another would never end."""
    batches = [batch(0), batch(3), batch(7), batch(9), batch(2), batch(20)]
    monkeypatch.setattr(fetch, "FETCH_BYTES", 2 * len(batches[0]))
    files = {"00000000000000000000_index": b"", "00000000000000000000_timeindex": b""}
    verdict = opened(partition(*batches, **files), clean=True, log_start_offset=3).verdict
    assert "no progress" in str(verdict.error)
    assert verdict.serves["stops_at"] == 3


def test_index_entry_that_points_anywhere() -> None:
    """A lookup starts at an index entry, whose position may be arbitrary."""
    first, second = segment_name(0, ".log"), segment_name(10, ".log")
    files = {
        **METADATA,
        second: batch(10),
        segment_name(10, ".index"): b"",
        segment_name(10, ".timeindex"): b"",
    }
    for content, message in (
        (bytes(100), "Encountered corrupt message"),
        (legacy(0, 6), "the broker can't read at offset 0"),
    ):
        damaged = {
            first: content,
            segment_name(0, ".index"): b"",
            segment_name(0, ".timeindex"): b"",
            **files,
        }
        verdict = opened(partition_directory(damaged), clean=True).verdict
        assert verdict.opens
        assert message in str(verdict.error)
        assert verdict.serves["stops_at"] == 0
        assert verdict.rows == 0
        assert verdict.rows_lost == 1


def test_index_beyond_the_last_batch_serves_nothing_silently() -> None:
    """A lookup after the last batch finds nothing, without an error."""
    index = np.array([(5, 10_000)], [("relative_offset", ">u4"), ("position", ">u4")]).tobytes()
    files = {segment_name(0, ".index"): index, segment_name(0, ".timeindex"): b""}
    later = {
        segment_name(9, ".log"): batch(9),
        segment_name(9, ".index"): b"",
        segment_name(9, ".timeindex"): b"",
    }
    verdict = opened(
        partition_directory({LOG: batch(0, count=8), **METADATA, **files, **later}), clean=True
    ).verdict
    assert verdict.opens
    assert verdict.rows == 9


def test_impossible_magic_stops_the_consumer_after_sound_batches() -> None:
    odd = bytearray(batch(2))
    odd[16] = 9
    started = opened(partition(batch(0), batch(1), bytes(odd), batch(3)), clean=True)
    assert started.verdict.rows == 2
    assert "Invalid magic found in record: 9" in str(started.verdict.error)
    assert started.verdict.rows_lost == 1
    assert started.verdict.lost[0]["first_offset"] == 3


def test_markers_with_an_invalid_key() -> None:
    txn = {"producer_id": 1, "producer_epoch": 0}
    for key, error in ((bytes(2), True), (b"\xff\xff\x00\x00", True), (bytes([0, 0, 0, 1]), False)):
        marker = {
            "attributes": 0,
            "timestamp_delta": 0,
            "offset_delta": 0,
            "key": key,
            "value": b"",
            "headers": (),
        }
        files = {"00000000000000000000_index": b"", "00000000000000000000_timeindex": b""}
        directory = partition(
            batch(0), batch(1, attributes=TRANSACTIONAL | CONTROL, records=[marker], **txn), batch(2), **files
        )
        started = opened(directory, clean=True)
        assert started.verdict.opens
        offsets = [part.hints["end_offset"] for part in started.parts("read_committed")]
        assert offsets == ([1] if error else [3])
    empty = batch(1, attributes=TRANSACTIONAL | CONTROL, count=0, last=0, **txn)
    started = opened(partition(batch(0), empty, batch(2)), clean=True)
    assert [part.hints["end_offset"] for part in started.parts("read_committed")] == [3]


def test_open_transaction_that_ends_in_a_gap() -> None:
    """If the last stable offset is in a gap at the end of a segment, the served rows end with that segment."""
    data = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "attributes": TRANSACTIONAL}
    files = {segment_name(5, ".log"): batch(5, **data) + batch(6)}
    started = opened(partition_directory({LOG: batch(0) + batch(1), **METADATA, **files}))
    assert [part.hints["end_offset"] for part in started.parts("read_committed")] == [2]
    assert started.verdict.rows == 4


def test_aborted_transactions_of_later_segments() -> None:
    txn = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    abort = {
        "attributes": 0,
        "timestamp_delta": 0,
        "offset_delta": 0,
        "key": bytes([0, 0, 0, 0]),
        "value": bytes(6),
        "headers": (),
    }
    end = batch(6, attributes=TRANSACTIONAL | CONTROL, **{**txn, "base_sequence": -1}, records=[abort])
    files = {
        LOG: batch(0, attributes=TRANSACTIONAL, **txn) + batch(1),
        segment_name(5, ".log"): batch(5) + end + batch(7),
    }
    started = opened(partition_directory({**files, **METADATA}))
    assert started.after.read(segment_name(5, ".txnindex"))
    (first, second) = started.parts("read_committed")
    assert first.hints["aborted"] == ((1, 0, 0),)
    assert second.hints["aborted"] == ()
    assert started.verdict.serves["last"] == 7


def test_segment_beyond_the_log_end_is_not_served() -> None:
    """A consumer that has reached the log end does not see it."""
    files = {"00000000000000000000_index": b"", "00000000000000000000_timeindex": b""}
    torn = partition(batch(0), batch(1), bytes(16), **files)
    verdict = opened(torn, clean=True).verdict
    assert verdict.error is None
    assert any("Record size 0" in warning for warning in verdict.warnings)
    assert any("16 bytes that are no batch" in warning for warning in verdict.warnings)


def test_parts_of_every_view() -> None:
    started = opened(partition(batch(0), batch(1)))
    assert [
        (part.table, part.start, part.stop) for view in ("log", "batches") for part in started.parts(view)
    ] == [
        ("rows", 0, 138),
        ("frames", 0, 138),
    ]
    refused = opened(partition_directory({LOG: batch(0)}))
    assert refused.verdict.scope == "partition"
    assert refused.parts("log") == []


# Lost rows


def test_index_lookup_finds_every_entry_and_the_positions_between() -> None:
    places = {10 * n: 100 * n for n in range(1, 40)}
    content = b"".join(
        offset.to_bytes(4, "big") + place.to_bytes(4, "big") for offset, place in places.items()
    )
    index = OffsetIndex(1000, content, 1 << 20)
    for offset, place in places.items():
        assert index.lookup(1000 + offset) == index.lookup(1000 + offset + 9) == place
    assert index.lookup(1009) == 0
    assert (len(index), index.last_offset) == (39, 1390)


def test_lost_rows_between_served_batches() -> None:
    """Every second batch is served; one of the others has no timestamps."""
    times = {0: 7, 1: 0, 2: -1, 3: 0, 4: 9}
    was = partition(*(batch(offset, timestamp=time) for offset, time in times.items()))
    served = fetch.Consumed(position=0)
    served.note(np.array([1, 3]), [(np.array([1, 3]), np.array([2, 4]))], 0)
    place = {"topic": "orders", "partition": 0}
    assert list(losing.lost(Overlay(was), served, 0)) == [
        LostRows(
            1, {**place, "first_offset": 0, "last_offset": 0, "first_timestamp": 7, "last_timestamp": 7}
        ),
        LostRows(1, {**place, "first_offset": 2, "last_offset": 2}),
        LostRows(
            1, {**place, "first_offset": 4, "last_offset": 4, "first_timestamp": 9, "last_timestamp": 9}
        ),
    ]


def test_lost_rows_after_a_truncation_before_a_later_segment() -> None:
    """The first of two segments has no index, so it alone is recovered and truncated; the consumer continues in the second."""
    bad = bytearray(batch(1))
    bad[-1] ^= 1
    files = {
        **METADATA,
        LOG: batch(0) + bytes(bad) + batch(2) + batch(3, count=2),
        **{segment_name(0, suffix): b"" for suffix in (".index", ".timeindex")},
        segment_name(5, ".log"): batch(5),
        **{segment_name(5, suffix): b"" for suffix in (".index", ".timeindex")},
    }
    for clean in (False, True):
        del files[segment_name(0, ".index")]
        verdict = opened(partition_directory(files), clean=clean).verdict
        assert (verdict.truncates, verdict.rows, verdict.rows_lost) == ({LOG: len(batch(0))}, 2, 3)
        (gone,) = verdict.lost
        assert (gone["first_offset"], gone["last_offset"]) == (2, 4)
        files[segment_name(0, ".index")] = b""


def test_deliberately_deleted_rows_are_not_lost() -> None:
    """Records below the log start were deleted, unless the log start is beyond the log end, which is damage."""
    was = partition(*(batch(i) for i in range(5)))
    verdict = opened(was, log_start_offset=3).verdict
    assert (verdict.rows, verdict.rows_lost) == (2, 0)
    verdict = opened(was, log_start_offset=5).verdict
    assert (verdict.rows, verdict.rows_lost) == (0, 0)
    verdict = opened(was, log_start_offset=9).verdict
    assert (verdict.rows, verdict.rows_lost) == (0, 5)


def test_batch_with_a_jump_ahead_hides_the_following_ones() -> None:
    """After a clean stop nothing is verified, and the consumer skips records below its position. It gets the batch's own record at a
    wrong offset, so that record is lost too."""
    empty = {"00000000000000000000_index": b"", "00000000000000000000_timeindex": b""}
    verdict = opened(partition(batch(0), batch(900), batch(2), batch(3), **empty), clean=True).verdict
    assert (verdict.rows, verdict.rows_lost, verdict.serves["last"]) == (2, 3, 900)


def test_decreasing_offsets_at_an_index_entry() -> None:
    files = {"00000000000000000000_index": b"", "00000000000000000000_timeindex": b""}
    started = opened(partition(batch(0), batch(5), batch(6), batch(2), **files), index_interval_bytes=0)
    assert started.verdict.truncates == {LOG: 0}
    assert any("invalid offset during recovery" in warning for warning in started.verdict.warnings)


def test_unparsable_marker_as_first_batch() -> None:
    marker = {
        "attributes": 0,
        "timestamp_delta": 0,
        "offset_delta": 0,
        "key": bytes(2),
        "value": b"",
        "headers": (),
    }
    bad = batch(0, attributes=TRANSACTIONAL | CONTROL, records=[marker], producer_id=1, producer_epoch=0)
    verdict = opened(partition(bad)).verdict
    assert (verdict.opens, verdict.error_class) == (False, "org.apache.kafka.common.InvalidRecordException")


def test_open_transaction_that_began_in_a_gap() -> None:
    """Its first batch is missing: the broker searches the next segment."""
    data = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "attributes": TRANSACTIONAL}
    first = opened(partition(batch(0), batch(4, **data)))
    files = {entry.name: first.after.read(entry.name) for entry in first.after.entries()}
    files[LOG] = batch(0) + batch(1)
    files[segment_name(5, ".log")] = batch(5)
    files[segment_name(5, ".index")] = files[segment_name(5, ".timeindex")] = b""
    started = opened(partition_directory(files), clean=True)
    assert started.verdict.opens
    assert started.verdict.rows == 3
    assert [part.hints["end_offset"] for part in started.parts("read_committed")] == [2]


@pytest.mark.parametrize("clean", [True, False])
def test_records_served_at_an_impossible_offset_count_as_lost(clean: bool) -> None:
    """With one flipped bit in base_offset of the last batch a consumer gets all records, and nothing else is wrong."""
    far = batch(1)
    far = (1 << 51 | 1).to_bytes(8, "big") + far[8:]
    started = opened(partition(batch(0), far), clean=clean)
    assert (started.verdict.opens, started.verdict.rows, started.verdict.rows_lost) == (True, 2, 1)
    assert started.verdict.serves["last"] == 1 << 51 | 1
    (texts,) = [warning for warning in started.verdict.warnings if "which are wrong" in warning]
    assert texts.startswith(f"consumers get 1 records at offsets {1 << 51 | 1} to {1 << 51 | 1}")


def test_verdict_names_the_offsets_missing_because_of_a_misplaced_batch() -> None:
    far = batch(1)
    far = (1 << 51 | 1).to_bytes(8, "big") + far[8:]
    verdict = opened(partition(batch(0), far, **{"00000000000000000002_log": batch(2)})).verdict
    (lost,) = verdict.lost
    assert (lost["first_offset"], lost["last_offset"], verdict.rows_lost) == (1, 1, 1)


def test_duplicated_batch_is_not_lost() -> None:
    assert opened(partition(batch(0), batch(1), batch(1), batch(2))).verdict.rows_lost == 0
