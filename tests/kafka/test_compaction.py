"""The rules of the log cleaner, against a reference in plain Python. `tests/oracle` has Kafka's own cleaner as the judge."""

import hashlib
import os
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from compaction_reference import Reference
from hypothesis import given
from hypothesis import strategies as st

import logwright as lw
from logwright.codec.fault import Severity
from logwright.codec.kafka.compact.offset_map import OffsetMap, _md5
from logwright.codec.kafka.formats import producer_snapshot as snapshot
from logwright.codec.kafka.formats.log import arrow_input
from logwright.codec.kafka.formats.log.layout import (
    CONTROL,
    CONTROL_RECORD_KEY,
    DELETE_HORIZON,
    END_TXN_MARKER,
    LOG_SEGMENT,
    RECORD_BATCH,
    TRANSACTIONAL,
)
from logwright.codec.kafka.formats.log.markers import ABORT
from logwright.codec.kafka.names import parse_segment, segment_name
from logwright.roundtrip.kafka.compaction import DAY, START, RandomLog


def compacted(source: Path, target: Path, **options):
    return lw.convert(source, target / source.name, compact=True, **options)


def logs_of(directory: Path) -> dict[int, bytes]:
    return {parse_segment(path.name).base_offset: path.read_bytes() for path in directory.glob("*.log")}


@pytest.mark.parametrize("seed", range(6))
def test_the_result_is_that_of_the_rules_applied_record_by_record(seed, tmp_path):
    check(seed, 0, False, tmp_path)


@pytest.mark.extended
@given(st.integers(1000, 1 << 30), st.sampled_from((0, DAY, 30 * DAY)), st.booleans())
def test_any_log_is_compacted_by_the_rules(tmp_path_factory, seed, later, few_keys):
    check(seed, later, few_keys, tmp_path_factory.mktemp("log"))


def check(seed, later, few_keys, folder):
    rng = random.Random(seed)
    log = RandomLog(rng)
    log.old_formats = False
    log.fill(rng.randrange(1, 40))
    log.write(folder / "in" / "orders-0")
    settings = {"now": log.now + later, "first_dirty": rng.choice((None, rng.choice(sorted(log.segments))))}
    memory = 24 * 5 if few_keys else 128 << 20
    size = rng.choice((1 << 30, 1000))
    compacted(
        folder / "in" / "orders-0", folder / "out",
        now=settings["now"], first_dirty_offset=settings["first_dirty"], delete_retention_ms=1000, segment_bytes=size,
        log_cleaner_dedupe_buffer_size=memory,
    )  # fmt: skip
    expected = Reference(
        log.segments, settings["now"], 1000, size, settings["first_dirty"], int(memory // 24 * 0.9)
    ).run()
    assert logs_of(folder / "out" / "orders-0") == expected


# Logs of a few batches

NOW = START + 10 * DAY


def batch(offset, *records, flags=0, base=START, **fields):
    """Return a batch of (key, value) pairs with consecutive offsets. None stands for a missing record."""
    content = [
        {"key": record[0], "value": record[1], "offset_delta": i}
        for i, record in enumerate(records)
        if record is not None
    ]
    values = {
        "base_offset": offset,
        "attributes": flags,
        "last_offset_delta": len(records) - 1,
        "base_timestamp": base,
    }
    values |= {
        "max_timestamp": START,
        "records_count": len(content),
        "records": content,
        "partition_leader_epoch": 0,
    }
    return RECORD_BATCH.pack({**values, **fields})


def partition(folder: Path, *segments: bytes) -> Path:
    """Write a partition with these segments and an empty active one."""
    path = folder / "orders-0"
    path.mkdir(parents=True)
    end = 0
    for data in (*segments, b""):
        (path / segment_name(end, ".log")).write_bytes(data)
        batches = [frame["frame"] for frame in LOG_SEGMENT.unpack(data)[0]["frames"]]
        end = max([end, *(item["base_offset"] + item["last_offset_delta"] + 1 for item in batches)])
    return path


def records_of(path: Path) -> list[tuple[int, bytes, bytes]]:
    rows = lw.read(path, columns=["offset", "key", "value"])
    return list(zip(*(rows.column(name).to_pylist() for name in ("offset", "key", "value")), strict=True))


def test_the_newest_record_of_each_key_is_kept(tmp_path):
    source = partition(tmp_path / "in", batch(0, (b"a", b"1"), (b"b", b"2")) + batch(2, (b"a", b"3")))
    done = compacted(source, tmp_path / "out", now=NOW)
    assert records_of(tmp_path / "out" / "orders-0") == [(1, b"b", b"2"), (2, b"a", b"3")]
    assert done["rows"] == 2


def test_the_active_segment_is_not_compacted(tmp_path):
    source = partition(tmp_path / "in", batch(0, (b"a", b"1")))
    (source / segment_name(1, ".log")).write_bytes(batch(1, (b"a", b"2")) + batch(2, (b"a", b"3")))
    compacted(source, tmp_path / "out", now=NOW)
    assert records_of(tmp_path / "out" / "orders-0") == [(0, b"a", b"1"), (1, b"a", b"2"), (2, b"a", b"3")]


def test_a_rolled_active_segment_is_compacted_too(tmp_path):
    source = partition(tmp_path / "in", batch(0, (b"a", b"1")))
    (source / segment_name(1, ".log")).write_bytes(batch(1, (b"a", b"2")) + batch(2, (b"a", b"3")))
    compacted(source, tmp_path / "out", now=NOW, roll=True)
    assert records_of(tmp_path / "out" / "orders-0") == [(2, b"a", b"3")]
    assert logs_of(tmp_path / "out" / "orders-0")[3] == b""


def test_a_tombstone_gets_a_delete_horizon_and_goes_when_it_has_passed(tmp_path):
    source = partition(
        tmp_path / "in", batch(0, (b"a", b"1")) + batch(1, (b"a", None)) + batch(2, (b"b", b"2"))
    )
    compacted(source, tmp_path / "first", now=NOW, delete_retention_ms=1000)
    first = tmp_path / "first" / "orders-0"
    assert records_of(first) == [(1, b"a", None), (2, b"b", b"2")]
    horizons = lw.read(first, view="batches", columns=["delete_horizon_ms"]).column(0).to_pylist()
    assert horizons == [NOW + 1000, None]
    compacted(first, tmp_path / "early", now=NOW + 999)
    assert records_of(tmp_path / "early" / "orders-0") == [(1, b"a", None), (2, b"b", b"2")]
    compacted(first, tmp_path / "late", now=NOW + 1000)
    assert records_of(tmp_path / "late" / "orders-0") == [(2, b"b", b"2")]


def test_a_retention_that_overflows_sets_no_horizon_as_in_java(tmp_path):
    source = partition(tmp_path / "in", batch(0, (b"a", None)) + batch(1, (b"b", b"2")))
    compacted(source, tmp_path / "out", now=NOW, delete_retention_ms=(1 << 63) - 1)
    assert logs_of(tmp_path / "out" / "orders-0") == logs_of(source)


def test_the_last_batch_of_a_producer_stays_without_records(tmp_path):
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    source = partition(
        tmp_path / "in", batch(0, (b"a", b"1"), (b"a", b"2"), **producer) + batch(2, (b"a", b"3"))
    )
    compacted(source, tmp_path / "out", now=START + 1)
    heads = lw.read(
        tmp_path / "out" / "orders-0", view="batches", columns=["base_offset", "last_offset", "records_count"]
    )
    assert heads.to_pylist()[0] == {"base_offset": 0, "last_offset": 1, "records_count": 0}
    compacted(source, tmp_path / "later", now=START + DAY)
    assert lw.read(tmp_path / "later" / "orders-0", view="batches", columns=["base_offset"]).column(
        0
    ).to_pylist() == [2]


def test_a_marker_with_the_last_epoch_of_a_producer_stays_without_records(tmp_path):
    record = {
        "key": CONTROL_RECORD_KEY.pack({"type": ABORT}),
        "value": END_TXN_MARKER.pack({"coordinator_epoch": 0}),
    }
    marker = batch(
        0,
        (None, None),
        flags=TRANSACTIONAL | CONTROL | DELETE_HORIZON,
        producer_id=7,
        producer_epoch=1,
        records=[record],
    )
    source = partition(tmp_path / "in", marker + batch(1, (b"a", b"1")))
    for name, now, bases in (("known", START + 1, [0, 1]), ("forgotten", START + DAY, [1])):
        compacted(source, tmp_path / name, now=now)
        heads = lw.read(
            tmp_path / name / "orders-0", view="batches", columns=["base_offset", "records_count"]
        )
        assert heads.column("base_offset").to_pylist() == bases
        assert heads.column("records_count").to_pylist() == [0, 1][-len(bases) :]


def test_an_empty_segment_is_merged_into_the_one_before(tmp_path):
    source = partition(tmp_path / "in", batch(0, (b"a", b"1")))
    (source / segment_name(1, ".log")).rename(source / segment_name(20, ".log"))
    (source / segment_name(10, ".log")).write_bytes(b"")
    compacted(source, tmp_path / "out", now=NOW)
    assert sorted(logs_of(tmp_path / "out" / "orders-0")) == [0, 20]


def test_the_last_batch_of_a_round_stays_without_records(tmp_path):
    source = partition(
        tmp_path / "in",
        batch(0, (b"a", b"1")) + batch(1, (None, b"2")) + batch(2, (None, b"3"), (None, b"4")),
    )
    compacted(source, tmp_path / "out", now=NOW)
    heads = lw.read(
        tmp_path / "out" / "orders-0", view="batches", columns=["base_offset", "last_offset", "records_count"]
    )
    assert heads.to_pylist()[1:] == [{"base_offset": 2, "last_offset": 3, "records_count": 0}]


def test_records_without_a_key_are_dropped_and_reported(tmp_path):
    source = partition(tmp_path / "in", batch(0, (None, b"1"), (b"b", b"2")))
    done = compacted(source, tmp_path / "out", now=NOW)
    assert records_of(tmp_path / "out" / "orders-0") == [(1, b"b", b"2")]
    assert (
        "1 record without a key dropped, as by a broker: a compacted topic has keys" in done["report"].notes
    )


def test_young_segments_are_not_compacted(tmp_path):
    old, young = (
        batch(0, (b"a", b"1"), (b"a", b"2")),
        batch(2, (b"a", b"3"), max_timestamp=NOW - 10, base=NOW - 10),
    )
    source = partition(tmp_path / "in", old, young)
    compacted(source, tmp_path / "out", now=NOW, min_compaction_lag_ms=100)
    assert [row[0] for row in records_of(tmp_path / "out" / "orders-0")] == [1, 2]


def test_records_beyond_a_full_map_are_kept(tmp_path):
    pairs = [(b"%d" % i, b"x") for i in range(6)]
    source = partition(tmp_path / "in", batch(0, *pairs) + batch(6, *pairs))
    done = compacted(source, tmp_path / "out", now=NOW, log_cleaner_dedupe_buffer_size=24 * 5)
    assert [row[0] for row in records_of(tmp_path / "out" / "orders-0")] == list(range(12))
    assert any(
        note.startswith("The map of keys is full at offset 3 with 4 keys") for note in done["report"].notes
    )


def test_nothing_changes_before_an_open_transaction(tmp_path):
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "flags": 0x10}
    log = batch(0, (b"a", b"1"), **producer) + batch(1, (b"b", b"2"), (b"b", b"3"))
    source = partition(tmp_path / "in", log)
    done = compacted(source, tmp_path / "out", now=NOW)
    assert logs_of(tmp_path / "out" / "orders-0") == logs_of(source)
    assert any(note.startswith("Nothing can be compacted") for note in done["report"].notes)


def test_headers_that_are_not_utf8_are_rewritten_as_by_java(tmp_path):
    content = [
        {"key": b"a", "value": b"1", "offset_delta": 0},
        {"key": b"b", "value": b"2", "offset_delta": 1, "headers": [{"key": b"\xff", "value": b"v"}]},
    ]
    source = partition(
        tmp_path / "in", batch(0, None, None, records_count=2, records=content) + batch(2, (b"a", b"3"))
    )
    compacted(source, tmp_path / "out", now=NOW)
    raw = lw.read(tmp_path / "out" / "orders-0", columns=["headers", "headers_raw"]).to_pylist()
    assert raw[0] == {"headers": [{"key": "\ufffd", "value": b"v"}], "headers_raw": None}


@pytest.mark.parametrize("seed", range(20, 23))
def test_compacting_again_changes_no_row_and_soon_nothing(seed, tmp_path):
    """A marker whose transaction lost its last record gets its delete horizon in the second round."""
    log = RandomLog(random.Random(seed), (0, 1, 2, 3, 4)).fill(30)
    log.write(tmp_path / "0" / "orders-0")
    for i in range(3):
        compacted(tmp_path / str(i) / "orders-0", tmp_path / str(i + 1), now=log.now, clean=i > 0)
    results = [tmp_path / str(i) / "orders-0" for i in (1, 2, 3)]
    assert records_of(results[0]) == records_of(results[1])
    second, third = ({path.name: path.read_bytes() for path in result.iterdir()} for result in results[1:])
    assert second == third


def test_the_input_does_not_change(tmp_path):
    source = partition(tmp_path / "in", batch(0, (b"a", b"1"), (b"a", b"2")))
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    compacted(source, tmp_path / "out", now=NOW)
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before


def test_the_next_first_dirty_offset_is_reported_and_read_from_the_checkpoint(tmp_path):
    source = partition(
        tmp_path / "in", batch(0, (b"a", b"1"), (b"a", b"2")), batch(2, (b"b", b"3"), (b"b", b"4"))
    )
    done = compacted(source, tmp_path / "out", now=NOW)
    assert any("`orders 0 4`" in line for line in done["written"].before_you_start)
    (tmp_path / "in" / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 2\n")
    compacted(source, tmp_path / "next", now=NOW)
    assert [row[0] for row in records_of(tmp_path / "next" / "orders-0")] == [0, 1, 3]


def test_a_damaged_partition_is_refused(tmp_path):
    source = partition(
        tmp_path / "in", batch(0, (b"a", b"1")) + batch(1, (b"a", b"2")), batch(2, (b"a", b"3"))
    )
    data = bytearray((source / segment_name(0, ".log")).read_bytes())
    data[70] ^= 1
    (source / segment_name(0, ".log")).write_bytes(data)
    with pytest.raises(lw.DamageError, match="the newest record of a key may be missed"):
        compacted(source, tmp_path / "out", now=NOW)
    assert not (tmp_path / "out" / "orders-0").exists()


def test_arguments_that_would_be_ignored_are_refused(tmp_path):
    source = partition(tmp_path / "in", batch(0, (b"a", b"1")))
    with pytest.raises(lw.UsageError, match="filter cannot be combined with compact"):
        compacted(source, tmp_path / "out", filter="offset == 1")
    with pytest.raises(lw.UsageError, match="option retention_bytes cannot be combined with compact"):
        compacted(source, tmp_path / "out", retention_bytes=1)
    with pytest.raises(lw.UsageError, match=r"Did you mean 'segment\.bytes'"):
        compacted(source, tmp_path / "out", segment_byts=100)
    with pytest.raises(lw.UsageError, match="jobs cannot be combined with compact"):
        compacted(source, tmp_path / "out", jobs=2)
    with pytest.raises(lw.UsageError, match="the result of a compaction is a directory"):
        lw.convert(source, tmp_path / "rows.parquet", compact=True)
    with pytest.raises(lw.UsageError, match=r"a kafka\.log cannot be compacted"):
        lw.convert(source / segment_name(0, ".log"), tmp_path / "x.log", compact=True)
    with pytest.raises(lw.UsageError, match=r"delete\.retention\.mss"):
        compacted(source, tmp_path / "out", **{"delete.retention.mss": 1})
    with pytest.raises(lw.UsageError, match="option batch_size cannot be combined with compact"):
        compacted(source, tmp_path / "out", batch_size=100)


# The map of keys


@pytest.mark.kernel_modes
@pytest.mark.parametrize("size", [0, 1, 3, 55, 56, 57, 63, 64, 65, 119, 120, 128, 300])
def test_the_digest_of_a_key_is_md5(size):
    data = os.urandom(size)
    low, high = _md5(np.frombuffer(data, np.uint8), 0, size, np.empty(16, np.int64), np.empty(4, np.int64))
    assert (
        b"".join((part & (1 << 64) - 1).to_bytes(8, "little") for part in (low, high))
        == hashlib.md5(data).digest()
    )


@pytest.mark.kernel_modes
def test_the_map_keeps_the_last_offset_of_each_of_many_keys():
    rng = random.Random(1)
    keys = [b"%d" % rng.randrange(1500) for _ in range(4000)]
    column, offsets = arrow_input.binary(pa.array(keys, pa.binary()), "key"), np.arange(len(keys))
    known = OffsetMap(128 << 20)
    assert known.put(column, offsets, 0) == len(keys)
    last = {key: i for i, key in enumerate(keys)}
    assert len(known) == len(last)
    assert known.latest_offset == len(keys) - 1
    assert known.is_latest(column, offsets).tolist() == [last[key] == i for i, key in enumerate(keys)]


def test_expired_producer_in_a_snapshot_is_no_proof_of_lost_records(tmp_path):
    """The cleaner drops the last batch of an expired producer, and leaves it in the snapshots from before."""
    written = [
        batch(i, (b"k%d" % i, b"1"), producer_id=7, producer_epoch=0, base_sequence=i) for i in range(10)
    ]
    replaced = [batch(10 + i, (b"k%d" % (6 + i), b"2")) for i in range(4)]
    path = partition(tmp_path, b"".join(written), b"".join(replaced))
    lw.rebuild(path, in_place=True, backup=tmp_path / "backup")
    for i, last in ((6, 5), (10, 9), (14, 9)):
        entry = (7, 0, last, last, 0, START, -1, -1)
        (path / segment_name(i, ".snapshot")).write_bytes(snapshot.pack(np.array([entry], snapshot.ENTRY)))
    compacted(path, tmp_path / "out", now=NOW + 30 * DAY, segment_bytes=700)
    result = tmp_path / "out" / path.name
    assert [offset for offset, _, _ in records_of(result)] == [0, 1, 2, 3, 4, 5, 10, 11, 12, 13]
    for i in (6, 14):
        # A running broker cleans without taking snapshots.
        name = segment_name(i, ".snapshot")
        (result / name).write_bytes((path / name).read_bytes())
    report = lw.verify(result)
    assert report.ok, report.text()
    (fault,) = [fault for _, fault in report.faults if fault.severity is not Severity.INFO]
    assert "unless the topic is compacted" in fault.detail


# The checkpoint of the log directory


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return partition(tmp_path / "source", batch(0, (b"a", b"1"), (b"b", b"2")) + batch(2, (b"a", b"3")))


def test_compaction_into_a_log_directory_sets_the_line_of_the_cleaner_checkpoint(source, tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "meta.properties").write_text("version=1\n")
    checkpoint = logs / "cleaner-offset-checkpoint"
    done = compacted(source, logs, now=NOW)
    assert checkpoint.read_text() == "0\n1\norders 0 3\n"
    assert not any("cleaner-offset-checkpoint" in line for line in done["written"].before_you_start)
    assert lw.verify(logs / "orders-0").ok
    checkpoint.write_text("0\n2\nother 3 7\norders 1 1\n")
    lw.convert(source, logs / "orders-1", compact=True, now=NOW)
    assert checkpoint.read_text() == "0\n2\nother 3 7\norders 1 3\n"
    assert sorted(path.name for path in logs.iterdir()) == [
        "cleaner-offset-checkpoint", "meta.properties", "orders-0", "orders-1",
    ]  # fmt: skip


def test_compaction_beside_other_files_writes_no_checkpoint(source, tmp_path):
    done = compacted(source, tmp_path / "out", now=NOW)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["orders-0"]
    assert any(
        "cleaner-offset-checkpoint to `orders 0 3`" in line for line in done["written"].before_you_start
    )


def test_malformed_cleaner_checkpoint_stops_the_compaction_before_it_writes(source, tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "meta.properties").write_text("version=1\n")
    (logs / "cleaner-offset-checkpoint").write_text("0\n1\norders\n")
    with pytest.raises(lw.UsageError, match="cleaner-offset-checkpoint cannot be parsed"):
        compacted(source, logs, now=NOW)
    assert not (logs / "orders-0").exists()
    assert (logs / "cleaner-offset-checkpoint").read_text() == "0\n1\norders\n"


@pytest.mark.alike
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_messages_of_old_formats_are_filtered_one_by_one(magic, compression, tmp_path):
    rows = [{"key": b"k%d" % (n % 7), "value": b"v%d" % n, "timestamp": START + n} for n in range(200)]
    options = {"magic": magic, "compression_type": compression, "segment_bytes": 1024, "batch_size": 200}
    lw.write(pa.Table.from_pylist(rows), tmp_path / "orders-0", "kafka.partition", **options)
    compacted(tmp_path / "orders-0", tmp_path / "out")
    active = max(logs_of(tmp_path / "orders-0"))
    last = {n % 7: n for n in range(active)}
    expected = [n for n in range(200) if n >= active or last[n % 7] == n]
    assert lw.read(tmp_path / "out/orders-0").column("offset").to_pylist() == expected
