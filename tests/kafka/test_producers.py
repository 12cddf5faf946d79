"""Producer state batch by batch: transactions, epochs and compaction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_log import as_heads

from logwright.codec.kafka.formats.log.layout import CONTROL, HEAD, TRANSACTIONAL
from logwright.codec.kafka.formats.log.markers import ABORT, COMMIT, MARKER
from logwright.codec.kafka.formats.producer_snapshot import ENTRY, pack
from logwright.codec.kafka.state.producers import AbortedTxn, Producer, ProducerState, last_sequence

Batch = dict[str, Any]


def data(
    offset: int, producer: int, *, count: int = 1, epoch: int = 0, sequence: int = 0, txn: bool = False
) -> Batch:
    return {
        "base_offset": offset, "last_offset_delta": count - 1, "producer_id": producer, "producer_epoch": epoch,
        "base_sequence": sequence, "max_timestamp": 1000 + offset, "attributes": TRANSACTIONAL if txn else 0,
    }  # fmt: skip


def end(offset: int, producer: int, kind: int, *, epoch: int = 0, coordinator: int = 5) -> Batch:
    return {
        "base_offset": offset, "producer_id": producer, "producer_epoch": epoch, "base_sequence": -1,
        "max_timestamp": 1000 + offset, "attributes": TRANSACTIONAL | CONTROL, "marker": (kind, coordinator),
    }  # fmt: skip


def feed(state: ProducerState, batches: list[Batch]) -> list[AbortedTxn]:
    header = np.zeros(len(batches), HEAD)
    problems = []
    for i, batch in enumerate(batches):
        for name, value in batch.items():
            if name != "marker":
                header[name][i] = value
        if "marker" in batch:
            problems.append((i, batch["base_offset"], batch["max_timestamp"], *batch["marker"]))
    return state.add(as_heads(header), np.array(problems, MARKER))


def test_batches_of_an_idempotent_producer_update_its_entry() -> None:
    state = ProducerState()
    assert feed(state, [data(0, 7, count=3), data(3, 7, count=2, sequence=3)]) == []
    assert state.producers == {7: Producer(0, 4, 4, 1, 1003)}


def test_sequence_numbers_wrap_after_the_largest() -> None:
    assert last_sequence(2147483646, 1) == 2147483647
    assert last_sequence(2147483646, 2) == 0
    assert last_sequence(2147483647, 3) == 2
    assert last_sequence(-1, 5) == -1
    # A negative delta, which only damage causes: the difference to the largest int wraps.
    assert last_sequence(0, -1) == 2147483647
    assert last_sequence(5, -1) == -2147483644
    assert last_sequence(-2, -5) == 2147483641


def test_only_the_aborted_transaction_is_indexed() -> None:
    state = ProducerState()
    aborted = feed(
        state,
        [
            data(0, 1, txn=True),
            data(1, 2, txn=True),
            data(2, 1, txn=True, sequence=1),
            end(3, 1, ABORT),
            end(4, 2, COMMIT),
        ],
    )
    assert aborted == [AbortedTxn(1, 0, 3, 1)], "the other transaction was still open, from offset 1 on"
    assert state.first_unstable is None
    assert state.producers[1] == Producer(0, 1, 2, 0, 1003, 5, -1)


def test_last_stable_offset_after_a_lone_abort() -> None:
    assert feed(ProducerState(), [data(4, 1, txn=True), end(5, 1, ABORT)]) == [AbortedTxn(1, 4, 5, 6)]


def test_marker_without_data_leaves_no_entry() -> None:
    state = ProducerState()
    assert feed(state, [end(0, 9, ABORT, epoch=3)]) == []
    assert state.producers == {9: Producer(3, -1, -1, 0, 1000, 5, -1)}


def test_new_epoch_discards_the_batches() -> None:
    state = ProducerState()
    feed(state, [data(0, 1, count=4, txn=True), end(4, 1, COMMIT, epoch=1)])
    assert state.producers[1] == Producer(1, -1, -1, 0, 1004, 5, -1)


def test_empty_control_batch_only_names_its_producer() -> None:
    state = ProducerState()
    batch = end(0, 4, ABORT)
    del batch["marker"]
    assert feed(state, [batch]) == []
    assert state.producers == {4: Producer()}


def test_plain_batch_inside_a_transaction_stops_a_broker() -> None:
    state = ProducerState()
    feed(state, [data(0, 1, txn=True), data(1, 1)])
    assert state.problem is not None
    assert state.problem.batch == 1
    assert "offset 0" in state.problem.detail


def test_unknown_marker_stops_a_broker() -> None:
    state = ProducerState()
    feed(state, [data(0, 1, txn=True), end(1, 1, 42)])
    assert state.problem is not None
    assert state.problem.batch == 1


def test_first_problem_is_kept() -> None:
    state = ProducerState()
    feed(state, [data(0, 1, txn=True), end(1, 1, 42), end(2, 1, 43), data(3, 1), end(4, 1, COMMIT)])
    assert state.problem is not None
    assert (state.problem.batch, "type 42" in state.problem.detail) == (1, True)
    feed(state, [end(5, 1, 44)])
    assert state.problem.batch == 1
    assert state.first_unstable is None, "what follows it is still taken"


@pytest.mark.parametrize("opened", [(40, 30, 20, 10), (20, 40, 10, 30), (10, 40, 30, 20)])
def test_last_stable_offset_with_decreasing_offsets(opened: tuple[int, ...]) -> None:
    """As in a damaged log: it is the first offset of the earliest open transaction."""
    state = ProducerState()
    batches = [data(offset, offset, txn=True) for offset in opened]
    aborted = feed(state, [*batches, *(end(50 + 10 * n, 10 * n, ABORT) for n in (4, 1, 3, 2))])
    assert aborted == [
        AbortedTxn(40, 40, 90, 10),
        AbortedTxn(10, 10, 60, 20),
        AbortedTxn(30, 30, 80, 20),
        AbortedTxn(20, 20, 70, 71),
    ]


def test_second_transaction_with_the_same_first_offset_replaces_the_first() -> None:
    """The map of the broker has one transaction for each first offset. To end the other one is an error."""
    state = ProducerState()
    assert feed(state, [data(5, 1, txn=True), data(5, 2, txn=True)]) == []
    assert feed(state, [end(6, 1, ABORT)]) == [AbortedTxn(1, 5, 6, 5)]
    assert (state.first_unstable, state.first_ended, state.open_transactions) == (None, 5, {2: 5})
    assert feed(state, [data(7, 3, txn=True), end(8, 3, ABORT)]) == [AbortedTxn(3, 7, 8, 9)]
    assert state.problem is None
    feed(state, [data(9, 1), end(10, 2, COMMIT)])
    assert state.problem is not None
    assert (state.problem.batch, state.problem.completed) == (
        6,
        "CompletedTxn[producerId=2, firstOffset=5, lastOffset=10, isAborted=false]",
    )


def test_transaction_without_its_own_entry_is_ongoing_after_a_snapshot() -> None:
    state = ProducerState()
    feed(state, [data(5, 1, txn=True), data(5, 2, txn=True), end(6, 1, COMMIT)])
    reloaded = state.reloaded()
    assert reloaded.first_unstable == 5
    feed(reloaded, [end(7, 2, COMMIT)])
    assert reloaded.problem is None


def test_transactions_of_all_entries_of_a_snapshot_are_ongoing() -> None:
    """Also of those whose producer has a later entry."""
    entries = np.zeros(3, ENTRY)
    entries["producer_id"], entries["current_txn_first_offset"] = (1, 2, 1), (4, 6, -1)
    state = ProducerState()
    state.load(pack(entries))
    assert (state.open_transactions, state.first_unstable) == ({2: 6}, 4)
    assert feed(state, [end(7, 2, ABORT)]) == [AbortedTxn(2, 6, 7, 4)]


def test_replay_begins_all_transactions_before_it_ends_any() -> None:
    state = ProducerState()
    batches = [data(5, 1, txn=True), end(6, 1, COMMIT), data(5, 1, txn=True), end(6, 1, COMMIT)]
    feed(state, batches)
    assert state.problem is None
    state.start_replay()
    assert feed(state, [*batches, data(7, 2, txn=True)]) == []
    replayed = state.end_replay(np.array([1, 2]), 1)
    assert replayed.problem is not None
    assert replayed.problem.batch == 7
    assert (replayed.first_unstable, replayed.first_ended) == (7, 5)


def test_producer_state_survives_its_snapshot() -> None:
    state = ProducerState()
    feed(state, [data(0, 1, txn=True), data(1, 2)])
    reread = ProducerState()
    reread.load(state.snapshot_bytes())
    assert reread.producers == state.producers
    assert reread.open_transactions == {1: 0}
    assert reread.snapshot_bytes() == state.snapshot_bytes()


def test_idle_producers_expire_between_segments() -> None:
    state = ProducerState()
    feed(state, [data(0, 1), data(1, 2, txn=True), data(500, 3)])
    assert set(state.reloaded(2000, 600).producers) == {2, 3}, (
        "one has a transaction open, one is young enough"
    )
    assert set(state.reloaded().producers) == {1, 2, 3}


def test_age_of_a_producer_overflows_as_in_java() -> None:
    state = ProducerState()
    feed(state, [data(0, 1) | {"max_timestamp": -(1 << 63)}])
    assert set(state.reloaded(2000, 600).producers) == {1}


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["data", "txn", "abort", "commit"]), st.integers(0, 1)),
        max_size=40,
    ),
    st.integers(1, 80),
)
def test_batches_handled_by_column_equal_single_batches(
    steps: list[tuple[int, str, int]], repeat: int
) -> None:
    """Long runs of batches between two markers are handled by column, with the same result as one by one."""
    batches: list[Batch] = []
    opened: set[int] = set()
    for producer, all_steps, epoch in steps * (1 + repeat // 20):
        offset = len(batches)
        if all_steps in ("abort", "commit"):
            batches.append(end(offset, producer, ABORT if all_steps == "abort" else COMMIT, epoch=epoch))
            opened.discard(producer)
        else:
            txn = all_steps == "txn" or producer in opened
            opened |= {producer} if txn else set()
            for i in range(repeat):
                batches.append(data(offset + i, producer, txn=txn, epoch=epoch, sequence=i))
    together, single = ProducerState(), ProducerState()
    aborted = feed(together, batches)
    one_by_one = [txn for batch in batches for txn in feed(single, [batch])]
    assert aborted == one_by_one
    assert together.snapshot_bytes() == single.snapshot_bytes()
    assert together.open_transactions == single.open_transactions
    assert together.problem == single.problem


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_plain_batch_in_a_long_transaction_stops_a_broker(count: int) -> None:
    state = ProducerState()
    feed(state, [data(0, 1, txn=True), *[data(i, 1, txn=True) for i in range(1, count)], data(count, 1)])
    assert state.problem is not None
    assert state.problem.batch == count
