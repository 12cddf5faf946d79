"""`verify` of transaction indexes and producer snapshots, on handmade transactions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kafka_log import batch, data_batch, end_marker
from kafka_verify import ERROR, log_name, severe_faults

import logwright as lw
from logwright.codec.kafka.formats.indexes import TXNINDEX_ENTRY
from logwright.codec.kafka.formats.log.codec import CODEC
from logwright.codec.kafka.formats.log.markers import markers
from logwright.codec.kafka.names import segment_name
from logwright.codec.kafka.state.producers import ProducerState
from logwright.codec.option import Options
from logwright.codec.window import Window

LOG = [
    data_batch(0, 1, count=2),
    end_marker(2, 1, 0),
    data_batch(3, 2),
    end_marker(4, 2, 1),
    data_batch(5, 1),
    end_marker(6, 1, 0),
    data_batch(7, 3),
]


ABORTED = [(1, 0, 2, 3), (1, 5, 6, 7)]


def partition_of(
    tmp_path: Path, log: list[bytes], aborted: list[tuple[int, int, int, int]], **files: bytes
) -> lw.Report:
    place = tmp_path / "orders-0"
    place.mkdir()
    (place / log_name(0)).write_bytes(b"".join(log))
    out = np.zeros(len(aborted), TXNINDEX_ENTRY.head_dtype)
    for i, entry in enumerate(aborted):
        out[i] = (0, *entry)
    (place / segment_name(0, ".txnindex")).write_bytes(out.tobytes())
    for name, content in files.items():
        (place / segment_name(int(name[1:]), ".snapshot")).write_bytes(content)
    return lw.verify(place, clean=True)


def test_true_entries_of_aborted_transactions(tmp_path: Path) -> None:
    assert severe_faults(partition_of(tmp_path, LOG, ABORTED)) == []


@pytest.mark.parametrize(
    ("aborted", "message"),
    [
        ([ABORTED[0]], "producer 1 aborted offsets 5 to 6, without an entry"),
        (
            [(2, 0, 2, 3), ABORTED[1]],
            "entry 0: producer 2 aborted offsets 0 to 2, but there is no such marker",
        ),
        ([(1, 1, 2, 3), ABORTED[1]], "producer 1 aborted offsets 0 to 2, without an entry"),
        ([ABORTED[0], (1, 0, 6, 7)], "it ended another transaction at 2"),
        ([ABORTED[0], (1, 5, 6, 9)], "with a last stable offset of 9"),
        ([*ABORTED, (3, 7, 9, 10)], "but there is no such marker"),
    ],
)
def test_false_entries_of_aborted_transactions(
    tmp_path: Path, aborted: list[tuple[int, int, int, int]], message: str
) -> None:
    faults = [
        fault
        for name, fault in severe_faults(partition_of(tmp_path, LOG, aborted))
        if name.endswith(".txnindex")
    ]
    assert message in faults[0].detail
    assert {fault.severity for fault in faults} == {ERROR}


def test_empty_transaction_needs_no_entry(tmp_path: Path) -> None:
    """After compaction the data of an aborted transaction is gone, and so is the entry."""
    empty = batch(
        0, [], last_offset_delta=1, attributes=0x10, producer_id=1, producer_epoch=0, base_sequence=0
    )
    assert severe_faults(partition_of(tmp_path, [empty, *LOG[1:]], [ABORTED[1]])) == []


def test_batch_outside_of_its_producers_transaction(tmp_path: Path) -> None:
    log = [
        *LOG,
        data_batch(8, 3, transactional=False),
        data_batch(9, 3, transactional=False),
        data_batch(10, 4),
    ]
    ((name, fault),) = severe_faults(partition_of(tmp_path, log, ABORTED))
    assert name == log_name(0)
    assert fault.offset == len(b"".join(LOG))
    assert fault.length == len(log[-2])
    assert "writes outside of the transaction" in fault.detail


def test_bad_marker_causes_no_further_faults(tmp_path: Path) -> None:
    log = [*LOG[:5], end_marker(6, 1, 9), *LOG[6:]]
    ((_, fault),) = severe_faults(partition_of(tmp_path, log, ABORTED))
    assert "type 9" in fault.detail


def state(log: list[bytes]) -> ProducerState:
    producers = ProducerState()
    window = Window(np.frombuffer(b"".join(log), np.uint8), 0, len(b"".join(log)))
    frames = CODEC.scan(window, 0, CODEC.context(log_name(0), Options(CODEC.options)))
    producers.add(frames.header, markers(window, frames))
    return producers


def test_snapshots_within_and_at_the_end(tmp_path: Path) -> None:
    files = {f"s{i + 1}": state(LOG[:i]).snapshot_bytes() for i in range(2, 7)}
    assert severe_faults(partition_of(tmp_path, LOG, ABORTED, s8=state(LOG).snapshot_bytes(), **files)) == []


def test_snapshot_without_an_open_transaction(tmp_path: Path) -> None:
    other = state(LOG[:-1]).snapshot_bytes()
    ((name, fault),) = severe_faults(partition_of(tmp_path, LOG, ABORTED, s8=other))
    assert name == segment_name(8, ".snapshot")
    assert fault.detail == "producer 3 is not in it, although its transaction is open since offset 7"


def test_unreadable_snapshot_is_reported_once(tmp_path: Path) -> None:
    ((_, fault),) = severe_faults(partition_of(tmp_path, LOG, ABORTED, s8=b"?" * 20))
    assert "version" in fault.detail


def test_unordered_offsets_are_not_compared_with_snapshots(tmp_path: Path) -> None:
    log = [data_batch(0, 1), data_batch(1, 1), data_batch(1, 2), data_batch(2, 1)]
    faults = severe_faults(partition_of(tmp_path, log, [], s3=state(log).snapshot_bytes()))
    assert {name for name, _ in faults} == {log_name(0)}
