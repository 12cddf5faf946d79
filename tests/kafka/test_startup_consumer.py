"""The rows that a broker serves after its simulated start, and the rows that are lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from kafka_log import data_batch, end_marker
from kafka_repairs import partition_directory
from kafka_startup import LOG, METADATA, batch, legacy, opened, partition

import logwright as lw
from logwright.codec.engine.startup import LostRows
from logwright.codec.kafka.formats.indexes import TXNINDEX_ENTRY
from logwright.codec.kafka.formats.log.layout import CONTROL, LENGTH_END, TRANSACTIONAL
from logwright.codec.kafka.formats.log.markers import ABORT
from logwright.codec.kafka.names import METADATA_FILE, segment_name
from logwright.codec.kafka.startup import fetch
from logwright.codec.kafka.startup import lost as losing
from logwright.codec.kafka.startup.segment import OffsetIndex
from logwright.codec.store.overlay import Overlay

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
        (legacy(0, 6), "the broker cannot read at offset 0"),
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
    assert first.hints["skipped"] == (0,)
    assert second.hints["skipped"] == ()
    assert started.verdict.serves["last"] == 7


def test_segment_beyond_the_log_end_is_not_served() -> None:
    """A consumer that has reached the log end does not see it."""
    files = {"00000000000000000000_index": b"", "00000000000000000000_timeindex": b""}
    torn = partition(batch(0), batch(1), bytes(16), **files)
    verdict = opened(torn, clean=True).verdict
    assert verdict.error is None
    assert any("Record size 0" in warning for warning in verdict.warnings)
    assert any("16 bytes that are not a batch" in warning for warning in verdict.warnings)


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
        assert index.lookup(1000 + offset) == index.lookup(1000 + offset + 9) == place
        assert index.upper_bound(place - 9) == 1000 + offset
    assert index.lookup(1009) == 0
    assert index.upper_bound(3901) is None
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


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
def test_consumer_checks_the_messages_in_a_wrapper_only(tmp_path: Path) -> None:
    """Of the message that wraps them it does not even check the checksum. A broker does that when it recovers the log."""
    path = tmp_path / "orders-0"
    rows = pa.table(
        {"value": [b"a", b"b", b"c"], "magic": pa.array([1] * 3, pa.int8()), "compression": ["gzip"] * 3}
    )
    lw.write(rows, path, "kafka.partition")
    log = path / LOG
    data = bytearray(log.read_bytes())
    data[LENGTH_END] ^= 1
    log.write_bytes(data)
    assert lw.read(path, mode="AS_SYSTEM", clean=True).num_rows == 3
    assert lw.read(path, mode="AS_SYSTEM", clean=False).num_rows == 0
    assert lw.read(path, mode="DROPMALFORMED").num_rows == 0


def test_consumer_looks_at_the_magic_of_an_incomplete_batch() -> None:
    files = {f"{base:020}_{suffix}": b"" for base in (0, 1) for suffix in ("index", "timeindex")}
    torn = {"00000000000000000001_log": batch(1), **files}
    verdict = opened(partition(batch(0), b"stale bytes of another file" * 9, **torn), clean=True).verdict
    assert "Invalid magic found in record: " in str(verdict.error)
    assert verdict.serves == {"first": 0, "last": 0, "stops_at": 1}


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
@pytest.mark.parametrize("view", ["read_uncommitted", "read_committed"])
def test_consumer_moves_on_over_control_batches_and_aborted_ones(tmp_path: Path, view: str) -> None:
    """It serves no records below its position: not those after a marker that was exchanged with them, if their offsets are lower."""
    path = tmp_path / "orders-0"
    path.mkdir()
    (path / METADATA_FILE).write_bytes(METADATA[METADATA_FILE])
    batches = [data_batch(0, 1), end_marker(9, 1, ABORT), batch(3, count=2), batch(10)]
    (path / LOG).write_bytes(b"".join(batches))
    for suffix in (".index", ".timeindex", ".txnindex"):
        (path / segment_name(0, suffix)).touch()
    offsets = lw.read(path, mode="AS_SYSTEM", clean=True, view=view, columns="offset")["offset"].to_pylist()
    assert offsets == [0, 10]


def test_fetch_reports_the_aborted_transactions_up_to_its_end(tmp_path: Path) -> None:
    """The end of a fetch of a whole segment is the base offset of the next one, also if the records are those of the next one."""
    path = tmp_path / "orders-0"
    path.mkdir()
    (path / METADATA_FILE).write_bytes(METADATA[METADATA_FILE])
    log = data_batch(5, 1) + end_marker(6, 1, ABORT) + batch(7)
    for base in (0, 5):
        (path / segment_name(base, ".log")).write_bytes(log)
        (path / segment_name(base, ".index")).touch()
        (path / segment_name(base, ".timeindex")).touch()
    txn = {"producer_id": 1, "first_offset": 5, "last_offset": 6, "last_stable_offset": 7}
    (path / segment_name(5, ".txnindex")).write_bytes(TXNINDEX_ENTRY.pack(txn))
    offsets = lw.read(path, mode="AS_SYSTEM", clean=True, view="read_committed", columns="offset")["offset"]
    assert offsets.to_pylist() == [5, 7]
    (path / segment_name(0, ".log")).write_bytes(b"")
    offsets = lw.read(path, mode="AS_SYSTEM", clean=True, view="read_committed", columns="offset")["offset"]
    assert offsets.to_pylist() == [7]


@pytest.mark.parametrize(("watermark", "led"), [(None, False), (0, False), (1, True), (2, True), (9, True)])
def test_new_leader_fails_at_a_high_watermark_that_it_cannot_look_up(
    watermark: int | None, led: bool
) -> None:
    """The first batch is overwritten by zeros, which a broker does not notice after a clean stop. Without a checkpoint it begins with 0."""
    files = {"00000000000000000000_index": b"", "00000000000000000000_timeindex": b""}
    index = np.array([(1, 69)], [("relative_offset", ">u4"), ("position", ">u4")]).tobytes()
    files["00000000000000000000_index"] = index
    above = {} if watermark is None else {"replication-offset-checkpoint": b"0\n1\norders 0 %d\n" % watermark}
    zeroed = bytes(len(batch(0))) + batch(1)
    verdict = opened(partition(zeroed, above=above, **files), clean=True).verdict
    assert verdict.opens is led
    if not led:
        assert verdict.scope == "partition"
        assert str(verdict.error).startswith("Found record size 0 smaller than minimum record overhead (14)")
    assert opened(partition(zeroed, **files), clean=True).verdict.opens  # the high watermark is unknown


def test_error_at_the_first_record_of_a_poll_leaves_the_position() -> None:
    """Also if markers come before it."""
    corrupt = bytearray(batch(2))
    corrupt[-1] ^= 1
    files = {"00000000000000000000_index": b"", "00000000000000000000_timeindex": b""}
    for first, position in (
        (end_marker(0, 1, ABORT) + end_marker(1, 1, ABORT), 0),
        (batch(0) + end_marker(1, 1, ABORT), 2),
    ):
        verdict = opened(partition(first, bytes(corrupt), **files), clean=True).verdict
        assert "is invalid" in str(verdict.error)
        assert verdict.serves["stops_at"] == position


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
def test_records_at_offsets_above_those_after_them_are_served(tmp_path: Path) -> None:
    """A batch of an aborted transaction moves the consumer back."""
    path = tmp_path / "orders-0"
    path.mkdir()
    (path / METADATA_FILE).write_bytes(METADATA[METADATA_FILE])
    log = batch(9) + data_batch(1, 1) + end_marker(2, 1, ABORT) + batch(3)
    (path / LOG).write_bytes(log)
    (path / segment_name(0, ".index")).touch()
    (path / segment_name(0, ".timeindex")).touch()
    txn = {"producer_id": 1, "first_offset": 1, "last_offset": 2, "last_stable_offset": 3}
    (path / segment_name(0, ".txnindex")).write_bytes(TXNINDEX_ENTRY.pack(txn))
    offsets = lw.read(path, mode="AS_SYSTEM", clean=True, view="read_committed", columns="offset")["offset"]
    assert offsets.to_pylist() == [9, 3]


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
def test_copy_of_a_batch_after_the_end_of_its_aborted_transaction_is_served(tmp_path: Path) -> None:
    """Its transaction is no longer aborted there. The batch of another one between the two moves the consumer back."""
    path = tmp_path / "orders-0"
    path.mkdir()
    (path / METADATA_FILE).write_bytes(METADATA[METADATA_FILE])
    log = data_batch(5, 1) + end_marker(6, 1, ABORT) + data_batch(1, 2) + data_batch(5, 1) + batch(8)
    (path / LOG).write_bytes(log)
    (path / segment_name(0, ".index")).touch()
    (path / segment_name(0, ".timeindex")).touch()
    txns = [
        {"producer_id": producer, "first_offset": first, "last_offset": 6, "last_stable_offset": 7}
        for producer, first in ((1, 5), (2, 1))
    ]
    (path / segment_name(0, ".txnindex")).write_bytes(b"".join(map(TXNINDEX_ENTRY.pack, txns)))
    offsets = lw.read(path, mode="AS_SYSTEM", clean=True, view="read_committed", columns="offset")["offset"]
    assert offsets.to_pylist() == [5, 8]
