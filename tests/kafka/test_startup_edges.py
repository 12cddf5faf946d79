"""Rules of the broker that complete directories rarely meet, called one by one, and the identity of replicas."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_log import batch, raw_batch, record
from kafka_repairs import ID, INTERVAL, LAYOUT, partition_directory, predict_start
from memory_directory import MemoryDirectory

from logwright.codec.fault import UsageError
from logwright.codec.kafka.derive import EpochCache
from logwright.codec.kafka.formats import partition_metadata as metadata
from logwright.codec.kafka.formats.indexes import INDEX_ENTRY, TIMEINDEX_ENTRY
from logwright.codec.kafka.formats.log.layout import CONTROL, TRANSACTIONAL
from logwright.codec.kafka.names import EPOCH_FILE, METADATA_FILE, segment_name
from logwright.codec.kafka.startup import fetch
from logwright.codec.kafka.startup.entries import entries
from logwright.codec.kafka.startup.fetch import Consumer
from logwright.codec.kafka.startup.producers import ProducerStateManager
from logwright.codec.kafka.startup.segment import LogSegment
from logwright.codec.option import Options
from logwright.codec.store.overlay import Overlay

LOG = segment_name(0, ".log")
INDEX, TIMEINDEX, TXNINDEX = (segment_name(0, kind) for kind in (".index", ".timeindex", ".txnindex"))
TXN: Any = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}


def partition(*batches: bytes, name: str = "orders-0", **segments: bytes) -> MemoryDirectory:
    later = {segment_name(int(base[1:]), ".log"): data for base, data in segments.items()}
    return partition_directory({LOG: b"".join(batches), **later, METADATA_FILE: metadata.pack(ID)}, name)


# Served rows


def consumer(directory: MemoryDirectory) -> Consumer:
    started = predict_start(directory)
    return Consumer(
        started.after, started.served.loaded, "orders-0", Options(LAYOUT.read_options), committed=True
    )


def test_served_rows_end_before_missing_offsets() -> None:
    layered = consumer(partition(batch(0), batch(1), _9=batch(9)))
    end = layered.loaded.segments[9].size
    assert layered._limits(None) == layered._limits(10) == (10, (9, end))
    assert layered._limits(1) == (1, (0, len(batch(0))))
    # In the gap: the first batch of the next segment.
    assert layered._limits(5) == (9, (9, 0))
    # After the last batch, if the log claims to reach further.
    layered.loaded.log_end_offset = 20
    assert layered._limits(15) == (15, (9, end))
    # The batch that a lookup finds is not below the log end.
    layered.loaded.log_end_offset = 8
    assert layered._limits(5) == (8, (9, end))


def test_segments_beyond_the_limit_are_not_read() -> None:
    layered = consumer(partition(batch(0), batch(1), _9=batch(9)))
    layered.limit = (0, 2 * len(batch(0)))
    assert layered._read(1)[0].base_offset == 0
    for offset in (5, 9):
        with pytest.raises(fetch._Stop, match=f"no progress at offset {offset}"):
            layered._read(offset)


def test_type_of_a_control_batch_emptied_by_compaction() -> None:
    key = bytes([0, 0, 0, 1])
    batches = {
        "full": batch(0, [record(key=key, value=bytes(6))], attributes=TRANSACTIONAL | CONTROL, **TXN),
        "empty": batch(0, [], attributes=TRANSACTIONAL | CONTROL, **TXN),
    }
    first_entries = {
        name: next(entries(partition_directory({LOG: data}), LOG, 0, len(data)))
        for name, data in batches.items()
    }
    assert {name: fetch._key_type(entry, 0) for name, entry in first_entries.items()} == {
        "full": 1,
        "empty": None,
    }


# Start


def test_garbage_at_the_end_of_a_cleanly_stopped_log() -> None:
    """The index points beyond it, so the broker does not see it."""
    directory = partition(batch(0), bytes(100))
    entry = (1).to_bytes(4, "big") + (len(batch(0)) + 100).to_bytes(4, "big")
    directory.files |= {INDEX: entry, TIMEINDEX: b""}
    verdict = predict_start(directory, clean=True).verdict
    assert any("100 bytes that are not a batch stay at the end" in warning for warning in verdict.warnings)


def test_open_transaction_before_a_log_start_in_a_gap() -> None:
    directory = partition(batch(0, attributes=TRANSACTIONAL, **TXN), batch(1), _5=batch(5))
    verdict = predict_start(directory, **{"log.start.offset": 3}).verdict
    assert verdict.opens
    assert (verdict.serves["first"], verdict.serves["last"]) == (5, 5)


def test_interrupted_compaction_keeps_its_index() -> None:
    files = {
        **partition(batch(0), batch(1), batch(2)).files,
        f"{LOG}.swap": batch(0) + batch(2),
        f"{INDEX}.swap": b"",
        f"{TIMEINDEX}.swap": b"",
    }
    started = predict_start(partition_directory(files))
    assert started.after.read(LOG) == batch(0) + batch(2)
    assert not [entry.name for entry in started.after.entries() if entry.name.endswith(".swap")]


def test_segment_that_cannot_be_split() -> None:
    """Too far from the segment's base, with its last offset before its first."""
    far = batch((1 << 31) + 10, last_offset_delta=-3)
    verdict = predict_start(partition(batch(0), far, batch((1 << 31) + 20))).verdict
    assert not verdict.opens
    assert f"Failed to append records from position {len(far)} in {LOG}" in str(verdict.error)


ENDS: Any = {"attributes": TRANSACTIONAL | CONTROL, "producer_id": 1, "producer_epoch": 0}


def test_unreadable_marker_stops_the_start() -> None:
    """Only exceptions other than `InvalidRecordException` end the start there (`LogSegment.recover`)."""
    for flags, java in ((0, "InvalidRecordException"), (6, "IllegalArgumentException")):
        bad = raw_batch(1, b"x" * 20, 1, **{**ENDS, "attributes": ENDS["attributes"] | flags})
        verdict = predict_start(partition(batch(0), bad, batch(2))).verdict
        assert not verdict.opens
        assert (verdict.scope, str(verdict.error_class).rpartition(".")[2]) == ("process", java)


def test_batches_after_an_unreadable_marker_are_not_indexed() -> None:
    bad = raw_batch(1, b"x" * 20, 1, **ENDS)
    disk = Overlay(partition(batch(0), bad, *(batch(at) for at in range(2, 9))))
    segment = LogSegment(disk, 0, 1, 1 << 20)
    assert segment.recover(ProducerStateManager(disk, "orders-0", None, None), EpochCache()) > 0
    assert disk.size(LOG) == len(batch(0)) + len(bad)
    assert disk.read(INDEX) == (1).to_bytes(4, "big") + len(batch(0)).to_bytes(4, "big")
    assert segment.next_offset() == 2


def test_index_beyond_its_maximum_is_handled_as_by_a_broker() -> None:
    """`AbstractIndex.resize` moves the position beyond the new end; only indexes of the active segment are trimmed."""
    directory = partition(batch(0), _1=batch(1))
    directory.files |= {segment_name(base, kind): b"" for base in (0, 1) for kind in (".index", ".timeindex")}
    large = {**INTERVAL, "segment.index.bytes": 4096}
    for base, opens in ((0, True), (1, False)):
        files = directory.files | {segment_name(base, ".timeindex"): bytes(4096 // 12 * 12 + 12)}
        verdict = predict_start(partition_directory(files), clean=True, **large).verdict
        assert verdict.opens is opens
        assert opens or "newPosition > limit: (4104 > 4092)" in str(verdict.error)
        assert predict_start(partition_directory(files), **large).verdict.opens


@pytest.mark.parametrize(
    ("text", "java", "scope"),
    [
        ("0\n1\n0 x\n", "NumberFormatException", "process"),
        ("0\n1\n0 -1\n", "IllegalArgumentException", "process"),
        ("0\n1\n-1 0\n", "IllegalArgumentException", "process"),
        ("0\n-1\n", "IllegalArgumentException", "process"),
        ("0\n2\n0 0\n", "IOException", "log_dir"),
    ],
)
def test_broker_does_not_start_with_an_invalid_epoch_file(text: str, java: str, scope: str) -> None:
    files = partition(batch(0)).files | {EPOCH_FILE: text.encode()}
    verdict = predict_start(partition_directory(files)).verdict
    assert (verdict.opens, verdict.scope) == (False, scope)
    assert str(verdict.error_class).rpartition(".")[2] == java


def test_offsets_near_the_maximum_do_not_overflow() -> None:
    """With a base offset near the maximum no offset 2147483647 above it exists."""
    base = (1 << 63) - 50
    files = {segment_name(base, ".log"): batch(base) + bytes(100) + batch(base + 1)}
    verdict = predict_start(partition_directory({**files, METADATA_FILE: metadata.pack(ID)})).verdict
    assert (verdict.rows, verdict.rows_lost) == (1, 1)
    with pytest.raises(UsageError, match=r"log\.start\.offset"):
        predict_start(partition_directory(files), **{"log.start.offset": 1 << 63})


# Consumer


def test_unreadable_control_batch_stops_a_consumer() -> None:
    """Its records are not returned, but they are read (`CompletedFetch.nextFetchedRecord`)."""
    for flags, java in ((0, "KafkaException"), (6, "IllegalArgumentException")):
        bad = raw_batch(1, b"x" * 20, 1, attributes=CONTROL | flags)
        verdict = predict_start(partition(batch(0), bad, batch(2))).verdict
        assert verdict.opens
        assert str(verdict.error_class).rpartition(".")[2] == java
        # An unexpected exception discards the records collected by that call of poll.
        assert verdict.serves["stops_at"] == (0 if flags else 1)
        assert verdict.rows == (0 if flags else 1)


def test_consumer_position_after_offsets_without_records() -> None:
    """It moves to the end of the batch only at the end of a fetch."""
    bad = bytearray(batch(9))
    bad[-1] ^= 1
    directory = partition(batch(0, last_offset_delta=5), bytes(bad))
    directory.files |= {INDEX: b"", TIMEINDEX: b""}
    assert predict_start(directory, clean=True).verdict.serves["stops_at"] == 1
    verdict = predict_start(directory, clean=True, **{"log.start.offset": 3}).verdict
    assert (verdict.rows, verdict.serves["stops_at"]) == (0, 3)


def test_truncating_a_segment_to_its_base_empties_all_its_files() -> None:
    data = batch(0) + batch(1)
    for files, cut in (({LOG: data, TXNINDEX: bytes(34)}, len(data)), ({LOG: b""}, 0)):
        disk = Overlay(partition_directory(files))
        segment = LogSegment(disk, 0, 4096, 1 << 20)
        assert segment.truncate_to_base() == cut
        assert {entry.name for entry in disk.entries()} == {*files, INDEX, TIMEINDEX}
        assert all(entry.size == 0 for entry in disk.entries())


def test_batches_that_a_truncated_segment_keeps_have_a_time_entry() -> None:
    """The index leads to the base offset behind a batch with a higher one."""
    kept, rest = batch(58, max_timestamp=5000), batch(0) + batch(1, max_timestamp=9000)
    entry = INDEX_ENTRY.pack({"relative_offset": 0, "position": len(kept)})
    disk = Overlay(partition_directory({LOG: kept + rest, INDEX: entry}))
    assert LogSegment(disk, 0, 4096, 1 << 20).truncate_to_base() == len(rest)
    assert disk.size(INDEX) == 0
    assert disk.read(TIMEINDEX) == TIMEINDEX_ENTRY.pack({"timestamp": 5000, "relative_offset": 58})


def test_indexes_opened_for_appending_have_complete_entries() -> None:
    for files, size in (({LOG: b"", INDEX: bytes(20), TIMEINDEX: bytes(30)}, 24), ({LOG: b""}, 0)):
        disk = Overlay(partition_directory(files))
        LogSegment(disk, 0, 4096, 1 << 20).trim()
        assert disk.size(TIMEINDEX) == size
        assert disk.size(INDEX) == size // 3 * 2


# Replicas


def test_identity_and_end_of_a_replica() -> None:
    def asked(directory: MemoryDirectory) -> Any:
        plan = LAYOUT.plan(directory, Options(LAYOUT.read_options))
        return LAYOUT.capabilities.replicas.copy_of(directory, plan), LAYOUT.capabilities.replicas.reaches(
            directory, plan
        )

    full = partition(batch(0), batch(1), _9=batch(9, last_offset_delta=3), name="a-b-7")
    assert asked(full) == (("a-b-7", ID), 13)
    assert asked(partition(batch(0), batch(1), _9=b"")) == (("orders-0", ID), 9)
    assert asked(partition(batch(0), batch(1), _1=bytes(100))) == (("orders-0", ID), 2)
    assert asked(partition_directory({LOG: batch(0)}, "backup")) == (None, 1)
    moved = "orders-3.0123456789abcdef0123456789abcdef-future"
    assert asked(partition_directory({}, moved)) == (("orders-3", None), 0)


def test_emptied_segment_keeps_the_transaction_index_that_its_recovery_created() -> None:
    """An offset that an index refuses empties the segment, after the recovery has indexed the aborted transaction before it."""
    large = [record(value=bytes(300))]
    marker = record(key=bytes(4), value=bytes(6))
    directory = partition(
        batch(5, large, attributes=TRANSACTIONAL, **TXN),
        batch(6, [marker], attributes=TRANSACTIONAL | CONTROL, **TXN | {"base_sequence": -1}),
        batch(7, large),
        batch(8, large),
        batch(2, large),
    )
    directory.files |= {INDEX: b"", TIMEINDEX: b""}
    started = predict_start(directory, **INTERVAL)
    assert [started.after.read(name) for name in (LOG, TXNINDEX)] == [b"", b""]
