"""Repair rules that few directories need, each on a log of a few batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kafka_log import batch, pack_records, raw_batch, record
from kafka_repairs import (
    ID,
    LAYOUT,
    OPTIONS,
    check_broker_accepts,
    options,
    partition_directory,
    rebuild,
    repair,
)
from kafka_walks import walk_by
from memory_directory import MemoryDirectory, UnreadableDirectory

from logwright.codec.fault import DamageError, join_lost
from logwright.codec.kafka.formats import partition_metadata as metadata
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.formats.log.layout import CONTROL, TRANSACTIONAL
from logwright.codec.kafka.names import METADATA_FILE, segment_name
from logwright.codec.kafka.repair.intervals import interval_of
from logwright.codec.kafka.repair.runs import Run, lost
from logwright.codec.kafka.repair.write import name_segments
from logwright.codec.option import Options
from logwright.codec.store.listing import PlannedFile, Role
from logwright.codec.window import Window

LOG = segment_name(0, ".log")


def three(offset: int, value: bytes = b"", **more: Any) -> bytes:
    return batch(offset, [record(i, value=value or b"%d" % (offset + i)) for i in range(3)], **more)


def directory(name: str = "orders-0", **segments: bytes) -> MemoryDirectory:
    """A directory of segments, named by their base offset as `_0`."""
    files = {segment_name(int(base[1:]), ".log"): data for base, data in segments.items()}
    return partition_directory({**files, METADATA_FILE: metadata.pack(ID)}, name)


def logs(listing: MemoryDirectory) -> dict[int, bytes]:
    return {int(name[:20]): data for name, data in sorted(listing.files.items()) if name.endswith(".log")}


# Order


@pytest.mark.parametrize(("stored", "right"), [(10 ^ 1 << 25, 10), (90, 3)])
def test_batch_gets_the_only_free_offset_that_differs_by_one_bit(stored: int, right: int) -> None:
    """A compacted log leaves more offsets free than the batch takes. It gets the first one if none or several differ by one bit."""
    repaired, plan = repair(directory(_0=three(0) + three(stored, b"moved") + three(20)), **OPTIONS)
    assert logs(repaired)[0] == three(0) + three(right, b"moved") + three(20)
    assert any(f"from {stored} to {right}: " in note for note in plan.summary().warnings)


def batch_claiming(last: int) -> bytes:
    """Pack three records and an invalid one, where a consumer stops. The batch claims offsets up to `last`."""
    stored = pack_records(record(i) for i in range(3)) + b"\x7f"
    return raw_batch(0, stored, 4, last_offset_delta=last)


@pytest.mark.parametrize("window", [64, 1 << 20])
def test_cut_batch_that_claims_offsets_of_the_next_segment(
    window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kept part does not cost the records of the next segment, whose checksums are right."""
    walk_by(window, monkeypatch)
    was = directory(_0=batch_claiming(9), _3=b"".join(three(at) for at in (3, 6, 9, 12, 15)))
    result, repair_plan = repair(was, **OPTIONS)
    verdict = check_broker_accepts(result)
    served = b"".join(logs(result).values())
    assert served.endswith(b"".join(three(at) for at in (3, 6, 9, 12, 15)))
    assert verdict.rows == 3 + 15
    assert sum(removed.rows_lost or 0 for removed in repair_plan.cut) == 1
    # If nothing of the next segment is above it.
    result, _ = repair(directory(_0=batch_claiming(9), _3=three(3) + three(6)), **OPTIONS)
    assert check_broker_accepts(result).rows == 3 + 6


def test_position_taken_by_a_batch_of_another_file() -> None:
    """The batch that belongs there is in another file, so the one in between has no position."""
    was = directory(_0=three(0) + three(77, b"other") + three(6), _9=three(3))
    result, repair_plan = repair(was, **OPTIONS)
    assert b"".join(logs(result).values()) == b"".join(three(at) for at in (0, 3, 6))
    (cut,) = [removed for removed in repair_plan.cut if removed.rows_lost]
    assert (cut.rows_lost, cut.lost["first_offset"]) == (3, 77)


def test_batch_with_a_negative_offset_is_removed() -> None:
    result, repair_plan = repair(directory(_0=three(0) + three(-9, b"other") + three(3)), **OPTIONS)
    assert logs(result) == {0: three(0) + three(3)}
    assert [(removed.rows_lost, removed.lost.get("first_offset")) for removed in repair_plan.cut] == [(3, -9)]


def test_corrected_header_whose_offsets_are_taken() -> None:
    wrong = bytearray(three(0, b"other"))
    wrong[16] = 7  # Magic.
    result, repair_plan = repair(directory(_0=three(0) + bytes(wrong) + three(3)), **OPTIONS)
    assert logs(result) == {0: three(0) + three(3)}
    (cut,) = repair_plan.cut
    assert (cut.offset, cut.length, cut.rows_lost) == (len(three(0)), len(wrong), 3)
    assert "other batches have them" in cut.why


# Segments


def run_of(data: bytes) -> Run:
    """The run of all batches in a segment."""
    size = len(data)
    window = Window(np.frombuffer(data, np.uint8), 0, size)
    context = log.CODEC.context("", Options(log.CODEC.options))
    return Run.of(
        0, PlannedFile(LOG, size, Role.PRIMARY), window, log.CODEC.scan(window, 0, context, check=False)
    )


def spanning(first: int, last: int) -> Run:
    return run_of(batch(first, last_offset_delta=last - first))


def test_empty_segments_that_others_reach_over() -> None:
    assert [segment.base for segment in name_segments([(spanning(0, 20), 0)], [0, 10, 21], 0)] == [0, 21]
    segments = name_segments([(spanning(3, 4), 7)], [5], 0)
    assert [(segment.base, len(segment.runs)) for segment in segments] == [(3, 1)]


# Runs


def test_parts_of_a_run() -> None:
    data = b"".join(three(at, b"same") for at in (0, 3, 6, 9))
    size = len(data) // 4
    run = run_of(data)

    def places(parts: list[Run]) -> list[tuple[int, int, int, int]]:
        return [(part.start // size, part.stop // size, part.first, part.last) for part in parts]

    assert places(run.within(3, 8)) == [(1, 3, 3, 8)]
    assert places(run.within(1, 6)) == [(1, 2, 3, 5)]
    assert places(run.within(0, 11)) == [(0, 4, 0, 11)]
    assert run.within(4, 7) == run.within(12, 20) == []
    assert places(run.split([6])) == [(0, 2, 0, 5), (2, 4, 6, 11)]
    assert places(run.split([1, 10])) == [(0, 1, 0, 2), (1, 4, 3, 11)]
    assert run.split([0, 12]) == [run]
    assert places(run.parts(1, 2, 4)) == [(0, 1, 0, 2), (1, 2, 3, 5), (2, 4, 6, 11)]
    assert lost(directory(_0=data), run.heads)[0] == 12


def test_lost_rows_without_timestamps() -> None:
    was = directory(_0=three(0, base_timestamp=-1, max_timestamp=-1))
    heads = run_of(was.files[LOG]).heads
    place = {"topic": "orders", "partition": 0}
    rows, loss = lost(was, heads)
    assert (rows, loss) == (3, {**place, "first_offset": 0, "last_offset": 2})
    assert lost(was, heads[:0]) == (0, {})
    assert join_lost(loss, {"first_offset": 9, "last_offset": 9, "first_timestamp": 5}) == {
        **place, "first_offset": 0, "last_offset": 9, "first_timestamp": 5,
    }  # fmt: skip


# Transactions


def batch_of(offset: int, flags: int = 0, producer: int = 12, **more: Any) -> bytes:
    return batch(
        offset, attributes=flags, producer_id=producer, producer_epoch=0, base_sequence=offset, **more
    )


def marker(offset: int, kind: int = 1) -> bytes:
    # Key and value: version and type, and for the end of a transaction the coordinator's epoch.
    packed_record = record(key=b"\0\0\0" + bytes([kind]), value=bytes(6))
    return batch(
        offset,
        [packed_record],
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=12,
        producer_epoch=0,
        base_sequence=-1,
    )


def test_batches_after_the_end_of_a_transaction_are_kept() -> None:
    data = batch_of(0, TRANSACTIONAL) + marker(1) + batch_of(2) + batch_of(3, producer=13)
    result, repair_plan = repair(directory(_0=data), **OPTIONS)
    assert logs(result) == {0: data}
    assert not repair_plan.cut


def test_marker_emptied_by_compaction_ends_nothing() -> None:
    emptied = batch(1, [], attributes=TRANSACTIONAL | CONTROL, producer_id=12, producer_epoch=0)
    begun = batch_of(0, TRANSACTIONAL)
    result, repair_plan = repair(directory(_0=begun + emptied + batch_of(2)), **OPTIONS)
    assert logs(result) == {0: begun + emptied}
    assert ["outside of the transaction" in removed.why for removed in repair_plan.cut] == [True]


@pytest.mark.parametrize("window", [64, 1 << 20])
def test_prefix_ends_at_a_batch_outside_of_its_transaction(
    window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything after it is removed: in the same window, in the next ones, and in other segments."""
    walk_by(window, monkeypatch)
    kept = batch_of(0, TRANSACTIONAL)
    was = directory(_0=kept + batch_of(1) + batch_of(2, producer=13) + three(3), _6=three(6))
    result, repair_plan = repair(was, strategy="prefix", **OPTIONS)
    assert b"".join(logs(result).values()) == kept
    assert ["outside of the transaction" in removed.why for removed in repair_plan.cut] == [
        True,
        False,
        False,
        False,
    ]
    assert {removed.why for removed in repair_plan.cut[1:]} == {"after the first damage"}
    assert [(removed.file, removed.offset) for removed in repair_plan.cut] == [
        (LOG, len(kept)),
        (LOG, 2 * len(kept)),
        (LOG, 3 * len(kept)),
        (segment_name(6, ".log"), 0),
    ]
    # Nothing is rebuilt from such a log.
    with pytest.raises(DamageError, match="producer 12 writes outside"):
        rebuild(was, "index", **OPTIONS)


# Replicas


def test_replica_with_the_missing_bytes_prevents_a_loss() -> None:
    """Bytes of the first replica that held no record stay reported as they are."""
    sound = b"".join(three(at) for at in (0, 3, 6))
    first = directory(_0=three(0) + three(0) + three(6))
    result, repair_plan = repair(first, directory(_0=sound), **OPTIONS)
    assert logs(result) == {0: sound}
    (cut,) = repair_plan.cut
    assert cut.rows_lost == 0
    assert "occur twice" in cut.why
    assert "another copy" not in cut.why


# Index interval


def test_interval_is_unknown_without_index_entries() -> None:
    entry = np.array([(1, 50)], ">i4,>i4").tobytes()

    for data, readable in ((three(0), False), (b"\xa7" * 100, True)):
        was = directory(_0=data)
        was.files[segment_name(0, ".index")] = entry
        plan = LAYOUT.plan(was, Options(LAYOUT.read_options))
        bad = {} if readable else {name: [(0, 1000)] for name in was.files}
        assert interval_of(UnreadableDirectory(was.files, bad), plan, options()) == (4096, [])


# Strategy system


def test_trailing_zeros_are_removed_without_loss() -> None:
    repaired, repair_plan = repair(directory(_0=three(0) + bytes(500)), strategy="system")
    assert logs(repaired) == {0: three(0)}
    (cut,) = repair_plan.cut
    assert (cut.offset, cut.length, cut.rows_lost) == (len(three(0)), 500, 0)


def test_only_removed_batches_are_lost() -> None:
    """The broker does not remove a damaged first batch of the first segment, but a torn last one."""
    torn = three(3)[:-4]
    repaired, repair_plan = repair(directory(_0=three(0) + torn), strategy="system")
    assert logs(repaired) == {0: three(0)}
    assert [(cut.offset, cut.length) for cut in repair_plan.cut] == [(len(three(0)), len(torn))]
