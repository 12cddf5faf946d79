"""The order of a producer snapshot's entries is that of Java's HashMap: compare our emulation with the real one."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from logwright.codec.kafka.formats.producer_snapshot import CODEC, ENTRY, pack
from logwright.codec.kafka.state.java_map import hash_map_order
from logwright.codec.kafka.state.producers import ProducerState

pytestmark = pytest.mark.oracle


def same(kafka: Any, ids: list[int]) -> None:
    ids = list(dict.fromkeys(ids))
    assert hash_map_order(ids).tolist() == kafka.hash_map_order(ids)


@pytest.mark.parametrize("size", [0, 1, 12, 13, 24, 25, 48, 49, 97, 1000, 20_000])
@pytest.mark.parametrize("spread", [1 << 10, 1 << 20, 1 << 40, 1 << 62])
def test_random_producer_ids_are_in_the_order_of_javas_map(kafka: Any, size: int, spread: int) -> None:
    chance = random.Random(size * spread)
    same(kafka, [chance.randrange(spread) for _ in range(size)])


@pytest.mark.parametrize("start", [0, 1000, 4000, 123_456_789_000])
def test_blocks_of_ids_as_a_broker_gives_them_out(kafka: Any, start: int) -> None:
    same(kafka, [start + 1000 * block + i for block in range(7) for i in range(9)])


def test_crowded_buckets_grow_a_small_table(kafka: Any) -> None:
    same(kafka, [16 * i for i in range(9)])
    same(kafka, [32 * i for i in range(11)])
    same(kafka, [16 * i for i in range(10)] + [64 * i for i in range(20)])


@pytest.mark.parametrize("stride", [64, 128, 1000, 8000, 1 << 16, 1 << 20, (1 << 32) + 1])
@pytest.mark.parametrize("size", [9, 12, 13, 20, 49, 60, 97, 500, 3000])
def test_crowded_buckets_of_a_large_table_are_trees(kafka: Any, stride: int, size: int) -> None:
    chance = random.Random(stride + size)
    ids = [stride * i for i in range(size)]
    same(kafka, ids)
    chance.shuffle(ids)
    same(kafka, ids)
    same(kafka, [stride * chance.randrange(1 << 20) + chance.randrange(3) for _ in range(size)])


@pytest.mark.parametrize("seed", range(40))
def test_ids_that_share_few_buckets(kafka: Any, seed: int) -> None:
    chance = random.Random(seed)
    step = 1 << chance.randrange(4, 9)
    top = 1 << chance.randrange(5, 50)
    same(kafka, [step * chance.randrange(top) + chance.randrange(2) for _ in range(chance.randrange(9, 400))])


def entries(count: int, seed: int) -> list[dict[str, int]]:
    chance = random.Random(seed)
    subset = [
        {
            "producer_id": chance.randrange(1 << 48), "producer_epoch": chance.randrange(1 << 15),
            "last_sequence": chance.randrange(-1, 1 << 31), "last_offset": chance.randrange(1 << 62), "offset_delta": i,
            "timestamp": chance.randrange(-1, 1 << 45), "coordinator_epoch": chance.randrange(-1, 99),
            "current_txn_first_offset": chance.randrange(-1, 9) if i % 5 == 0 else -1,
        }
        for i in range(count)
    ]  # fmt: skip
    return list({entry["producer_id"]: entry for entry in subset}.values())


def packed(subset: list[dict[str, int]]) -> bytes:
    return pack(np.array([tuple(entry[name] for name in ENTRY.names or ()) for entry in subset], ENTRY))


@pytest.mark.parametrize("count", [0, 1, 40, 500])
def test_snapshots_are_written_as_kafka_does(kafka: Any, count: int) -> None:
    subset = entries(count, count)
    by_id = {entry["producer_id"]: entry for entry in subset}
    theirs = kafka.write_snapshot(subset)
    assert packed([by_id[item] for item in hash_map_order(by_id).tolist()]) == theirs
    assert CODEC.form(CODEC.parse(theirs)) == theirs
    state = ProducerState()
    state.load(packed(subset))
    assert state.snapshot_bytes() == theirs
