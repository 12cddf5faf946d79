"""The order of a producer snapshot's entries is that of Java's HashMap: our emulation against the real one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from logwright.codec.kafka.producers import JavaHashMap
from logwright.codec.kafka.snapshot import CODEC

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("size", [0, 1, 12, 13, 24, 25, 48, 49, 97, 1000, 20_000])
@pytest.mark.parametrize("spread", [1 << 10, 1 << 20, 1 << 40, 1 << 62])
def test_random_producer_ids(kafka: Any, size: int, spread: int) -> None:
    chance = random.Random(size * spread)
    ids = list(dict.fromkeys(chance.randrange(spread) for _ in range(size)))
    assert JavaHashMap(ids).order() == kafka.hash_map_order(ids)


@pytest.mark.parametrize("start", [0, 1000, 4000, 123_456_789_000])
def test_blocks_of_ids_as_a_broker_gives_them_out(kafka: Any, start: int) -> None:
    ids = [start + 1000 * block + i for block in range(7) for i in range(9)]
    assert JavaHashMap(ids).order() == kafka.hash_map_order(ids)


def test_crowded_buckets_grow_a_small_table(kafka: Any) -> None:
    ids = [16 * i for i in range(9)]
    assert JavaHashMap(ids).order() == kafka.hash_map_order(ids)
    ids = [32 * i for i in range(11)]
    assert JavaHashMap(ids).order() == kafka.hash_map_order(ids)


def test_removed_and_put_again(kafka: Any) -> None:
    ours = JavaHashMap([1, 17, 33, 49])
    ours.remove(17)
    assert ours.order() == kafka.hash_map_order([1, 17, 33, 49], [17]) == [1, 33, 49]
    ours.add(17)
    assert ours.order() == [1, 33, 49, 17]


def test_a_snapshot_of_many_producers(kafka: Any) -> None:
    chance = random.Random(7)
    entries = [
        {
            "producer_id": chance.randrange(1 << 48), "producer_epoch": chance.randrange(1 << 15),
            "last_sequence": chance.randrange(-1, 1 << 31), "last_offset": chance.randrange(1 << 62), "offset_delta": i,
            "timestamp": chance.randrange(-1, 1 << 45), "coordinator_epoch": chance.randrange(-1, 99),
            "current_txn_first_offset": chance.randrange(-1, 9) if i % 5 == 0 else -1,
        }
        for i in range(500)
    ]  # fmt: skip
    by_id = {entry["producer_id"]: entry for entry in entries}
    ordered = [by_id[one] for one in JavaHashMap(by_id).order()]
    assert CODEC.form(ordered) == kafka.write_snapshot(list(by_id.values()))
