"""Checks of derived files against batches, one by one, for cases that no complete partition covers."""

from __future__ import annotations

import numpy as np
import pytest
from kafka_log import as_heads

from logwright.codec.kafka.check.epochs import _MOST, EpochCheck
from logwright.codec.kafka.check.indexes import Batches, IndexCheck, TimeIndexCheck
from logwright.codec.kafka.check.producers import TxnIndexCheck
from logwright.codec.kafka.formats.indexes import INDEX_ENTRY, TIMEINDEX_ENTRY, TXNINDEX_ENTRY
from logwright.codec.kafka.formats.log.layout import HEAD


def batches(*rows: tuple[int, int, int]) -> Batches:
    """(base offset, last offset, largest timestamp) of consecutive batches of 100 bytes."""
    base, last, timestamp = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    start = np.arange(len(rows), dtype=np.int64) * 100
    return Batches(base, last, timestamp, start, start + 100, np.zeros(len(base), np.bool_))


def index(*entries: tuple[int, int]) -> IndexCheck:
    data = b"".join(INDEX_ENTRY.pack({"relative_offset": offset, "position": at}) for offset, at in entries)
    return IndexCheck(data, 0, True)


@pytest.mark.parametrize(
    ("live", "messages"),
    [
        (False, ["entry 1 has offset 25 at byte 100, where no batch has that offset"]),
        (True, []),
    ],
)
def test_index_entry_ahead_of_its_batch(live: bool, messages: list[str]) -> None:
    """A running broker may have written more batches since, including that offset."""
    check = index((9, 0), (25, 100))
    check.add(batches((0, 9, 1), (10, 19, 2)))
    check.finish(200, 19, live=live, active=True)
    assert [fault.detail for fault in check.faults()] == messages


def test_index_entry_beyond_the_end_of_a_running_log() -> None:
    check = index(
        (15, 0),
    )
    check.add(batches((0, 9, 1), (10, 19, 2)))
    check.finish(200, 19, live=True, active=True)
    (fault,) = check.faults()
    assert "entry 0 has offset 15 at byte 0, where no batch has that offset" in fault.detail


def test_time_entries_are_not_checked_if_offsets_decrease() -> None:
    """Then an offset does not determine a position."""
    data = TIMEINDEX_ENTRY.pack({"timestamp": 9, "relative_offset": 19})
    for parts in (
        [batches((10, 19, 2), (0, 9, 1))],
        [batches((5, 9, 2)), batches((0, 4, 1)), batches((10, 29, 3))],
    ):
        check = TimeIndexCheck(data, 0, True)
        for part in parts:
            check.add(part)
        check.finish(closed=True, complete=True, live=False)
        assert list(check.faults()) == []
    check = TimeIndexCheck(data, 0, True)
    check.add(batches((0, 9, 1), (10, 19, 2)))
    assert ["the largest up to there is 2" in fault.detail for fault in check.faults()] == [True]


def test_transaction_entries_that_are_not_checked() -> None:
    """Those that the codec refuses, and those that a running broker wrote since."""
    entry = {"version": 0, "producer_id": 1, "first_offset": 5, "last_offset": 9, "last_stable_offset": 10}
    backwards = {**entry, "first_offset": 9, "last_offset": 5}
    below = {**entry, "first_offset": 0, "last_offset": 2}
    data = b"".join(TXNINDEX_ENTRY.pack(values) for values in (backwards, below, entry))
    check = TxnIndexCheck(data, 4, True)
    assert list(check.faults(log_end=9, live=True)) == []
    (fault,) = check.faults(log_end=9, live=False)
    assert "entry 2: producer 1 aborted offsets 5 to 9, but there is no such marker" in fault.detail


def test_reported_epochs_are_capped() -> None:
    check = EpochCheck([(0, 0)])
    header = np.zeros(2 * _MOST + 1, HEAD)
    header["base_offset"] = np.arange(len(header))
    header["partition_leader_epoch"][1:] = 7
    start = np.arange(len(header)) * 70
    check.add("x.log", as_heads(header), start, start + 70)
    faults = list(check.finish(0, len(header), clean=True, live=False))
    assert len(faults) == _MOST
    assert faults[0][0] == "x.log"
    assert faults[0][1].detail == "offset 1 has leader epoch 7, but leader-epoch-checkpoint says 0"
