"""The broker's rules that whole directories seldom meet, called one by one; and what the replicas of a partition are known by."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_log import batch, record
from kafka_mending import ID, LAYOUT, Memory, started

from logwright.codec.disk import Disk
from logwright.codec.kafka import metadata
from logwright.codec.kafka.batch import CONTROL, TRANSACTIONAL
from logwright.codec.kafka.broker import fetch
from logwright.codec.kafka.broker.entries import entries
from logwright.codec.kafka.broker.fetch import Consumer
from logwright.codec.kafka.broker.segment import LogSegment
from logwright.codec.kafka.names import METADATA_FILE, segment_name
from logwright.codec.option import Options

LOG = segment_name(0, ".log")
INDEX, TIMEINDEX, TXNINDEX = (segment_name(0, kind) for kind in (".index", ".timeindex", ".txnindex"))
TXN: Any = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}


def partition(*batches: bytes, name: str = "orders-0", **segments: bytes) -> Memory:
    later = {segment_name(int(base[1:]), ".log"): data for base, data in segments.items()}
    return Memory({LOG: b"".join(batches), **later, METADATA_FILE: metadata.pack(ID)}, name)


# What is served


def consumer(directory: Memory) -> Consumer:
    found = started(directory)
    return Consumer(found.after, found._loaded, "orders-0", Options(LAYOUT.read_options), committed=True)


def test_up_to_where_is_served_when_offsets_are_missing() -> None:
    one = consumer(partition(batch(0), batch(1), _9=batch(9)))
    end = one.loaded.segments[9].size
    assert one._limit(None) == one._limit(10) == (9, end)
    assert one._limit(1) == (0, len(batch(0)))
    # In the gap: the next segment's first batch.
    assert one._limit(5) == (9, 0)
    # Behind all batches, where the log is said to reach further.
    one.loaded.log_end_offset = 20
    assert one._limit(15) == (9, end)


def test_nothing_is_read_from_segments_behind_the_limit() -> None:
    one = consumer(partition(batch(0), batch(1), _9=batch(9)))
    one.limit = (0, 2 * len(batch(0)))
    assert one._read(1)[0].base_offset == 0
    for offset in (5, 9):
        with pytest.raises(fetch._Stop, match=f"no progress at offset {offset}"):
            one._read(offset)


def test_the_type_of_a_control_batch_that_compaction_emptied() -> None:
    key = bytes([0, 0, 0, 1])
    made = {
        "full": batch(0, [record(key=key, value=bytes(6))], attributes=TRANSACTIONAL | CONTROL, **TXN),
        "empty": batch(0, [], attributes=TRANSACTIONAL | CONTROL, **TXN),
    }
    found = {name: next(entries(Memory({LOG: data}), LOG, 0, len(data))) for name, data in made.items()}
    assert {name: fetch._key_type(one, 0) for name, one in found.items()} == {"full": 1, "empty": None}


# The start


def test_bytes_that_are_no_batch_at_the_end_of_a_log_that_was_stopped_cleanly() -> None:
    """The index leads behind them, so that the broker does not see them."""
    directory = partition(batch(0), bytes(100))
    entry = (1).to_bytes(4, "big") + (len(batch(0)) + 100).to_bytes(4, "big")
    directory.files |= {INDEX: entry, TIMEINDEX: b""}
    verdict = started(directory, clean=True).verdict
    assert any("100 bytes that are no batch stay at the end" in one for one in verdict.warnings)


def test_an_open_transaction_before_a_log_start_within_a_gap() -> None:
    directory = partition(batch(0, attributes=TRANSACTIONAL, **TXN), batch(1), _5=batch(5))
    verdict = started(directory, **{"log.start.offset": 3}).verdict
    assert verdict.opens
    assert (verdict.serves["first"], verdict.serves["last"]) == (5, 5)


def test_a_compaction_that_was_cut_short_keeps_the_index_it_made() -> None:
    files = {
        **partition(batch(0), batch(1), batch(2)).files,
        f"{LOG}.swap": batch(0) + batch(2),
        f"{INDEX}.swap": b"",
        f"{TIMEINDEX}.swap": b"",
    }
    found = started(Memory(files))
    assert found.after.read(LOG) == batch(0) + batch(2)
    assert not [one.name for one in found.after.entries() if one.name.endswith(".swap")]


def test_a_segment_that_can_not_be_split() -> None:
    """Too far from the segment's base, and its last offset before its first."""
    far = batch((1 << 31) + 10, last_offset_delta=-3)
    verdict = started(partition(batch(0), far, batch((1 << 31) + 20))).verdict
    assert not verdict.opens
    assert f"Failed to append records from position {len(far)} in {LOG}" in str(verdict.error)


def test_a_segment_emptied() -> None:
    data = batch(0) + batch(1)
    for files, cut in (({LOG: data, TXNINDEX: bytes(34)}, len(data)), ({LOG: b""}, 0)):
        disk = Disk(Memory(files))
        segment = LogSegment(disk, 0, 4096, 1 << 20)
        assert segment.truncate_to_base() == cut
        assert {one.name for one in disk.entries()} == {*files, INDEX, TIMEINDEX}
        assert all(one.size == 0 for one in disk.entries())


def test_indexes_opened_for_appending_have_whole_entries() -> None:
    for files, size in (({LOG: b"", INDEX: bytes(20), TIMEINDEX: bytes(30)}, 24), ({LOG: b""}, 0)):
        disk = Disk(Memory(files))
        LogSegment(disk, 0, 4096, 1 << 20).trim()
        assert disk.size(TIMEINDEX) == size
        assert disk.size(INDEX) == size // 3 * 2


# Replicas


def test_which_partition_and_how_far() -> None:
    def asked(directory: Memory) -> Any:
        plan = LAYOUT.plan(directory, Options(LAYOUT.read_options))
        return LAYOUT.copy_of(directory, plan), LAYOUT.reaches(directory, plan)

    whole = partition(batch(0), batch(1), _9=batch(9, last_offset_delta=3), name="a-b-7")
    assert asked(whole) == (("a-b-7", ID), 13)
    assert asked(partition(batch(0), batch(1), _9=b"")) == (("orders-0", ID), 9)
    assert asked(partition(batch(0), batch(1), _1=bytes(100))) == (("orders-0", ID), 2)
    assert asked(Memory({LOG: batch(0)}, "backup")) == (None, 1)
    moved = "orders-3.0123456789abcdef0123456789abcdef-future"
    assert asked(Memory({}, moved)) == (("orders-3", None), 0)
