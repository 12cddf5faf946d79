"""Rebuilding derived files equals a broker's recovery written batch by batch, for any chunking; and the input that a broker refuses."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_golden import CASES
from kafka_log import as_heads

from logwright.codec.kafka.derive import (
    ACCEPTED,
    BACKWARDS,
    OUT_OF_RANGE,
    TOO_FAR,
    EpochCache,
    PartitionDeriver,
    SegmentIndexer,
    txnindex_bytes,
)
from logwright.codec.kafka.formats.log.layout import CONTROL, HEAD, RECORD_BATCH
from logwright.codec.kafka.formats.log.markers import MARKER
from logwright.codec.kafka.names import EPOCH_FILE, segment_name
from logwright.codec.kafka.state.producers import AbortedTxn
from logwright.codec.single_frame import ParseError

NO_MARKERS = np.empty(0, MARKER)


def heads(*batches: dict[str, int]) -> Any:
    out = np.zeros(len(batches), HEAD)
    out["producer_id"], out["max_timestamp"], out["batch_length"] = -1, -1, 88
    for i, batch in enumerate(batches):
        for name, value in batch.items():
            out[name][i] = value
    return as_heads(out)


def walked(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """Return the batches of a log by the description alone: (start, fields)."""
    data, at, out = path.read_bytes(), 0, []
    while at < len(data):
        fields, end = RECORD_BATCH.unpack(data, at, at + 12 + int.from_bytes(data[at + 8 : at + 12], "big"))
        out.append((at, fields))
        at = end
    return out


def header_of(batches: list[tuple[int, dict[str, Any]]]) -> Any:
    return heads(*({name: fields[name] for name in HEAD.names or ()} for _, fields in batches))


def recovered(base: int, interval: int, batches: list[tuple[int, dict[str, Any]]]) -> tuple[bytes, bytes]:
    """`LogSegment.recover`, one batch after another."""
    index, times = [], []
    last_position, timestamp, where = 0, -1, -1
    for at, fields in batches:
        last = fields["base_offset"] + fields["last_offset_delta"]
        if fields["max_timestamp"] > timestamp:
            timestamp, where = fields["max_timestamp"], last
        if at - last_position > interval:
            index.append((last - base).to_bytes(4, "big") + at.to_bytes(4, "big"))
            if timestamp > (times[-1][0] if times else -1):
                times.append((timestamp, where))
            last_position = at
    if timestamp > (times[-1][0] if times else -1):
        times.append((timestamp, where))
    return b"".join(index), b"".join(
        t.to_bytes(8, "big") + (offset - base).to_bytes(4, "big") for t, offset in times
    )


BATCHES = st.lists(
    st.tuples(st.integers(1, 3000), st.integers(0, 50), st.integers(0, 9), st.integers(-1, 60)), max_size=60
)
"""(bytes, gap before it, last_offset_delta, timestamp)"""


def place_batches(base: int, specs: list[tuple[int, int, int, int]]) -> list[tuple[int, dict[str, Any]]]:
    out, at, offset = [], 0, base
    for size, gap, delta, timestamp in specs:
        fields = {"base_offset": offset + gap, "last_offset_delta": delta, "max_timestamp": timestamp}
        out.append((at, fields))
        at, offset = at + size, offset + gap + delta + 1
    return out


@given(
    BATCHES,
    st.sampled_from([0, 1, 200, 4096]),
    st.sampled_from([0, 7, 1 << 40]),
    st.lists(st.integers(0, 60), max_size=5),
)
def test_indexes_equal_those_of_recovery(specs: Any, interval: int, base: int, cuts: list[int]) -> None:
    batches = place_batches(base, specs)
    header = heads(*(fields for _, fields in batches))
    start = np.array([at for at, _ in batches], np.int64)
    indexer = SegmentIndexer(base, interval)
    edges = [0, *sorted(min(cut, len(batches)) for cut in cuts), len(batches)]
    for low, high in itertools.pairwise(edges):
        assert indexer.add(header[low:high], start[low:high]) == high - low
    index, times = recovered(base, interval, batches)
    assert indexer.index_bytes() == index
    assert indexer.timeindex_bytes() == times
    assert indexer.entries * 8 == len(index)
    assert indexer.time_entries * 12 in (len(times), len(times) - 12)
    assert indexer.max_timestamp == max((fields["max_timestamp"] for _, fields in batches), default=-1)


@pytest.mark.parametrize("name", ["v2_txn_interleaved", "v2_gzip_java", "craft_spec22"])
def test_indexes_equal_those_of_a_walk_by_the_description(name: str) -> None:
    for path in sorted(CASES[name].partition.glob("*.log")):
        base, batches = int(path.stem), walked(path)
        indexer = SegmentIndexer(base, 200)
        indexer.add(header_of(batches), np.array([at for at, _ in batches], np.int64))
        assert (indexer.index_bytes(), indexer.timeindex_bytes()) == recovered(base, 200, batches)


def test_index_entries_of_a_worked_example_are_exact() -> None:
    """Five batches, with 100 bytes between entries."""
    start = 1_700_000_000_000
    batches = [(0, 0, 1, 5), (83, 2, 0, 10), (153, 3, 0, 20), (231, 4, 0, 30), (303, 5, 0, 40)]
    header = heads(
        *(
            {"base_offset": base, "last_offset_delta": delta, "max_timestamp": start + ms}
            for _, base, delta, ms in batches
        )
    )
    indexer = SegmentIndexer(0, 100)
    indexer.add(header, np.array([at for at, *_ in batches], np.int64))
    assert indexer.index_bytes().hex(" ", 4) == "00000003 00000099 00000005 0000012f"
    assert indexer.timeindex_bytes().hex(" ", 4) == "0000018b cfe56814 00000003 0000018b cfe56828 00000005"


def test_aborted_transactions_as_bytes() -> None:
    assert txnindex_bytes([]) == b""
    assert txnindex_bytes([AbortedTxn(4000, 4, 5, 6)]).hex() == (
        "0000" + "0000000000000fa0" + "0000000000000004" + "0000000000000005" + "0000000000000006"
    )


# Refused input


@pytest.mark.parametrize(
    ("batches", "starts", "at", "refusal"),
    [
        ([(20, 1), (19, 0)], [0, 100], 1, OUT_OF_RANGE),
        ([(20, 1), (20 + (1 << 31), 0)], [0, 100], 1, OUT_OF_RANGE),
        ([(20, 0), (30, 0), (25, 0)], [0, 5000, 10_000], 2, BACKWARDS),
        ([(20, 0), (21, 0)], [0, 1 << 31], 1, TOO_FAR),
    ],
)
def test_batches_that_a_broker_would_not_index(
    batches: list[tuple[int, int]], starts: list[int], at: int, refusal: int
) -> None:
    header = heads(*({"base_offset": base, "last_offset_delta": delta} for base, delta in batches))
    indexer = SegmentIndexer(20)
    assert indexer.add(heads(), np.empty(0, np.int64)) == 0
    assert indexer.refusal == ACCEPTED
    assert indexer.add(header, np.array(starts, np.int64)) == at
    assert indexer.refusal == refusal
    before = indexer.index_bytes(), indexer.timeindex_bytes()
    assert indexer.add(header, np.array(starts, np.int64)) == 0, "nothing is indexed after a refusal"
    assert (indexer.index_bytes(), indexer.timeindex_bytes()) == before


def test_decreasing_offsets_between_entries_go_unnoticed() -> None:
    """As in a broker, only offsets at which an entry is added are compared."""
    header = heads(*({"base_offset": offset} for offset in (20, 30, 25, 31)))
    indexer = SegmentIndexer(20)
    assert indexer.add(header, np.array([0, 100, 200, 5000], np.int64)) == 4
    assert indexer.entries == 1


def test_plain_batch_inside_a_transaction_is_known() -> None:
    case = CASES["craft_txn_then_plain"]
    deriver, seen = PartitionDeriver(), []
    for path in sorted(case.partition.glob("*.log")):
        batches = walked(path)
        deriver.begin_segment(int(path.stem))
        for at, fields in batches:
            seen.append(fields)
            deriver.add_batches(header_of([(at, fields)]), np.array([at], np.int64), NO_MARKERS)
    problem = deriver.producers.problem
    assert problem is not None
    assert "writes outside of the transaction" in problem.detail
    assert problem.batch == next(i for i, fields in enumerate(seen) if not fields["attributes"])
    assert not case.runs["no_marker"]["started"], "the broker did not start on it"


def test_offset_below_the_segment_is_refused() -> None:
    path = next(CASES["craft_below_base"].partition.glob("*20.log"))
    batches = walked(path)
    indexer = SegmentIndexer(20)
    assert indexer.add(header_of(batches), np.array([at for at, _ in batches], np.int64)) == 0
    assert indexer.refusal == OUT_OF_RANGE
    assert not CASES["craft_below_base"].runs["no_marker"]["started"]


def test_batches_require_a_segment() -> None:
    with pytest.raises(ValueError, match="before the first segment"):
        PartitionDeriver().add_batches(heads({}), np.zeros(1, np.int64), NO_MARKERS)


# Partitions


def derived(*segments: tuple[int, Any]) -> dict[str, bytes]:
    """Return the derived files of segments, each with its base offset and the arguments of `add_batches`."""
    deriver = PartitionDeriver()
    for base, batches in segments:
        deriver.begin_segment(base)
        if batches is not None:
            deriver.add_batches(*batches)
    return deriver.finish()


def test_empty_segment_has_empty_indexes() -> None:
    assert set(derived()) == {EPOCH_FILE}
    empty = derived((77, None))
    assert empty == {
        segment_name(77, ".index"): b"",
        segment_name(77, ".timeindex"): b"",
        EPOCH_FILE: b"0\n0\n",
    }
    header, start = heads({"base_offset": 5}, {"base_offset": 6}), np.array([0, 100], np.int64)
    files = derived((5, (header, start, NO_MARKERS)), (7, None))
    assert {name for name in files if name.endswith(".snapshot")} == {segment_name(7, ".snapshot")}
    assert files[segment_name(7, ".snapshot")].hex() == "0001" + "48674bc7" + "00000000"
    later = heads({"base_offset": 9, "last_offset_delta": 4})
    files = derived((5, (header, start, NO_MARKERS)), (9, (later, start[:1], NO_MARKERS)))
    assert {name for name in files if name.endswith(".snapshot")} == {
        segment_name(9, ".snapshot"),
        segment_name(14, ".snapshot"),
    }


def test_aborted_transaction_is_listed_in_the_segment_of_its_marker() -> None:
    open_one = heads({"base_offset": 0, "producer_id": 3, "attributes": 0x10})
    end = heads({"base_offset": 1, "producer_id": 3, "attributes": 0x10 | CONTROL})
    marker = np.array([(0, 1, 50, 0, 2)], MARKER)
    start = np.zeros(1, np.int64)
    files = derived((0, (open_one, start, NO_MARKERS)), (1, (end, start, marker)))
    assert segment_name(0, ".txnindex") not in files
    assert files[segment_name(1, ".txnindex")] == txnindex_bytes([AbortedTxn(3, 0, 1, 2)])


# Leader epochs


@given(st.lists(st.tuples(st.integers(-1, 6), st.integers(0, 30)), max_size=20), st.integers(0, 20))
def test_epoch_starts_at_its_first_batch(specs: list[tuple[int, int]], cut: int) -> None:
    """An epoch greater than all before it starts at its first batch."""
    header = heads(*({"partition_leader_epoch": epoch, "base_offset": offset} for epoch, offset in specs))
    cache = EpochCache()
    cache.add(header[:cut])
    cache.add(header[cut:])
    model: list[tuple[int, int]] = []
    for epoch, offset in specs:
        if epoch > (model[-1][0] if model else -1):
            model = [*(entry for entry in model if entry[1] < offset), (epoch, offset)]
    assert cache.entries == model


def test_decreasing_epochs_are_ignored() -> None:
    cache = EpochCache()
    cache.add(heads(*({"partition_leader_epoch": e, "base_offset": i} for i, e in enumerate([0, 2, 1, 5]))))
    assert cache.to_bytes() == b"0\n3\n0 0\n2 1\n5 3\n"


@pytest.mark.parametrize(
    ("stored", "kept"),
    [
        (b"", []),
        (b"0\n2\n0 0\n3 9\n", [(0, 0), (3, 9)]),
        (b"0\n2\n5 9\n0 3\n", [(0, 3)]),
        (b"0\n3\n0 0\n1 5\n1 7\n", [(0, 0), (1, 5)]),
        (b"0\n3\n0 0\n1 5\n1 4\n", [(0, 0), (1, 4)]),
        (b"0\n3\n0 0\n1 5\n2 5\n", [(0, 0), (2, 5)]),
    ],
)
def test_stored_epochs_are_loaded_as_by_a_broker(stored: bytes, kept: list[tuple[int, int]]) -> None:
    """`LeaderEpochFileCache` assigns the entries of the file one after another."""
    cache = EpochCache()
    cache.load(stored)
    assert cache.entries == kept


def test_stored_epochs_that_a_broker_refuses() -> None:
    cache = EpochCache()
    with pytest.raises(ParseError, match="from 0 on"):
        cache.load(b"0\n1\n-1 0\n")


def test_as_many_epochs_as_batches() -> None:
    """A hostile log: each batch has another epoch and an offset below the one before."""
    count = 200_000
    header = np.zeros(count, HEAD)
    header["partition_leader_epoch"] = np.arange(count)
    header["base_offset"] = np.arange(count)[::-1]
    cache = EpochCache()
    cache.add(as_heads(header))
    assert cache.entries == [(count - 1, 0)]
