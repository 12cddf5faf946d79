"""Partitions with random damage: the predicted start equals that of Kafka's own loader, to the last byte of every file."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_damage import BASES, OLD_BASES, colliding_transactions, damage, mixed_partition, shift_offsets

from logwright.codec import registry
from logwright.codec.kafka.startup.start import ServedPartition
from logwright.codec.option import Options
from logwright.corpora.cases import cases
from logwright.readers.listing import LocalDirectory
from logwright.roundtrip.oracles.java import JavaError

LAYOUT = registry.get_layout("kafka.partition")

pytestmark = pytest.mark.oracle

STORAGE_EXCEPTION = "org.apache.kafka.common.errors.KafkaStorageException"

Change = Callable[[Path, random.Random], object]

SETTINGS = {"index.interval.bytes": 250, "segment.index.bytes": 4096, "producer.id.expiration.ms": 2147483647}


def compare(kafka: Any, seed: int, place: Path, *, old: bool = False, change: Change = damage) -> str:
    """Damage a partition, compare our prediction with the loader, and return the outcome. `old`: one with messages of magic 0 or 1."""
    rng = random.Random(seed)
    if old and rng.random() < 0.7:
        base = place / "base" / "mixed-0"
        base.parent.mkdir(parents=True)
        mixed_partition(base, rng)
    else:
        base = cases("kafka")[rng.choice(OLD_BASES if old else BASES)].partition
    clean, recovery, start = (
        rng.random() < 0.5,
        rng.choice([0, 0, 0, 10, 40]),
        rng.choice([0, 0, 0, 0, 7, 35, 2000]),
    )
    mine, real = place / "mine" / base.name, place / "real" / base.name
    shutil.copytree(base, mine)
    target = f"seed {seed}: {base.name}, clean {clean}, recovery point {recovery}, log start {start}, {change(mine, rng)}"
    shutil.copytree(mine, real)
    listing = LocalDirectory(str(mine))
    options = Options(
        LAYOUT.read_options, {**SETTINGS, "recovery.point": recovery, "log.start.offset": start}
    )
    result = LAYOUT.capabilities.predict.run(
        listing, LAYOUT.plan(listing, options), options, version=None, clean=clean
    )
    verdict = result.verdict
    loaded = refusal = None
    try:
        loaded = kafka.load(
            real,
            clean=clean,
            recovery_point=recovery,
            log_start_offset=start,
            index_interval_bytes=250,
            segment_index_bytes=4096,
        )
    except JavaError as error:
        refusal = error.java_class
    if refusal == "java.lang.OutOfMemoryError":
        return "out of memory"  # a damaged size: the files do not say how much memory a broker has
    if loaded is None:
        assert not verdict.opens, target
        # An exception of a checkpoint is the cause of the real one.
        assert refusal in (verdict.error_class, STORAGE_EXCEPTION), (
            f"{target}: {verdict.error_class}, {refusal}"
        )
        return "refused"
    if verdict.scope == "partition":
        return "not served"  # the loader neither looks at the topic id, nor becomes the leader
    assert verdict.opens, f"{target}: {verdict.error_class}: {verdict.error}"
    assert isinstance(result.served, ServedPartition)
    served = result.served.loaded
    assert served.log_start_offset == loaded["log_start_offset"], target
    assert served.log_end_offset == loaded["log_end_offset"], target
    unstable = result.served.loaded.first_unstable
    assert unstable == loaded["first_unstable_offset"], f"{target}: {unstable}, {loaded}"
    left = {path.name: path.read_bytes() for path in real.iterdir() if not path.name.endswith(".deleted")}
    message = {entry.name: result.after.read(entry.name) for entry in result.after.entries()}
    assert sorted(message) == sorted(left), target
    # A consumer opens indexes that the loader does not: what is no whole entry is cut off then.
    differ = [
        name
        for name in message
        if message[name] != left[name] and not (name.endswith(".index") and len(left[name]) % 8)
    ]
    assert not differ, f"{target}: {differ}"
    return "loaded"


def run(
    kafka: Any, seeds: range, tmp_path: Path, *, old: bool = False, change: Change = damage
) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        place = tmp_path / str(seed)
        counts[compare(kafka, seed, place, old=old, change=change)] += 1
        shutil.rmtree(place)
    return counts


def test_verdict_on_randomly_damaged_logs_equals_that_of_a_broker(kafka: Any, tmp_path: Path) -> None:
    counts = run(kafka, range(150), tmp_path)
    assert counts["loaded"] > 100
    assert counts["refused"] > 3


def test_segments_with_offsets_that_they_cannot_hold_are_split_as_by_a_broker(
    kafka: Any, tmp_path: Path
) -> None:
    counts = run(kafka, range(200), tmp_path, change=shift_offsets)
    assert counts["loaded"] > 120
    assert counts["refused"] > 20


def test_transactions_with_the_same_first_offset_are_tracked_as_by_a_broker(
    kafka: Any, tmp_path: Path
) -> None:
    counts = run(kafka, range(300), tmp_path, change=colliding_transactions)
    assert counts["loaded"] > 250
    assert counts["refused"] > 5


def test_random_damage_of_older_magics(kafka: Any, tmp_path: Path) -> None:
    counts = run(kafka, range(100), tmp_path, old=True)
    assert counts["loaded"] > 70
    assert counts["refused"] > 1


@pytest.mark.nightly
def test_much_random_damage_of_older_magics(kafka: Any, tmp_path: Path) -> None:
    counts = run(kafka, range(10_000, 15_000), tmp_path, old=True)
    assert counts["loaded"] > 3500
    assert counts["out of memory"] <= 5


@pytest.mark.nightly
def test_verdict_on_thousands_of_damaged_logs_equals_that_of_a_broker(kafka: Any, tmp_path: Path) -> None:
    counts = run(kafka, range(10_000, 15_000), tmp_path)
    assert counts["loaded"] > 4000
    assert counts["refused"] > 200
