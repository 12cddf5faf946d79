"""Randomly damaged partitions, many on one broker: a real consumer gets what mode AS_SYSTEM returns, and stops where the verdict says."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from kafka_damage import BASES, OLD_BASES, damage, mixed_partition

import logwright as lw
from logwright.corpora.cases import cases
from logwright.roundtrip.oracles.java import JavaError
from logwright.roundtrip.oracles.kafka_broker import Broker

pytestmark = pytest.mark.oracle

SETTINGS = {"index.interval.bytes": "250", "segment.index.bytes": "4096"}
OPTIONS = {name.replace(".", "_"): int(value) for name, value in SETTINGS.items()}
KNOWN = {80}
"""An inner message with a damaged offset below the consumer's position: the consumer skips it without checking it."""
COLUMNS = ["offset", "key", "value"]
Row = tuple[Any, ...]


def damaged(seed: int, place: Path) -> tuple[Path, bool]:
    """Return a damaged partition, and whether the last stop was clean."""
    rng = random.Random(seed)
    path = place / f"seed{seed}-0"
    if rng.random() < 0.3:
        mixed_partition(path, rng)
    else:
        shutil.copytree(cases("kafka")[rng.choice(BASES + OLD_BASES)].partition, path)
    damage(path, rng)
    return path, rng.random() < 0.7


def served(path: Path, view: str, *, clean: bool) -> list[Row]:
    rows = lw.read(path, mode="AS_SYSTEM", clean=clean, view=view, columns=COLUMNS, **OPTIONS)
    return list(zip(*(rows[name].to_pylist() for name in COLUMNS), strict=True))


def loads(kafka: Any, path: Path, copy: Path, *, clean: bool) -> bool:
    """Return whether the broker's loader opens a copy of a partition. A damaged size may take more memory than a broker has."""
    if not any(path.iterdir()):
        return False
    shutil.copytree(path, copy)
    try:
        kafka.load(copy, clean=clean, index_interval_bytes=250, segment_index_bytes=4096)
    except JavaError:
        return False
    return True


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(30, 600, 30))]
)
def test_consumer_of_a_damaged_partition_gets_what_was_predicted(
    kafka: Any, tmp_path: Path, first: int
) -> None:
    placed: dict[str, tuple[Path, bool, dict[str, Any]]] = {}
    with Broker() as broker:
        for seed in sorted({*range(first, first + 30)} - KNOWN):
            path, clean = damaged(seed, tmp_path)
            if not loads(kafka, path, tmp_path / "loaded" / path.name, clean=clean):
                continue
            verdict = lw.verify(path, as_system=True, clean=clean, **OPTIONS).system
            # A consumer that makes no progress gets the same records again and again.
            if verdict["opens"] and "no progress" not in (verdict["error"] or ""):
                topic = broker.place(path, configs={"index.interval.bytes": "250"}, clean=clean)
                placed[topic] = path, clean, verdict
        assert len(placed) > 10
        broker.start()
        for topic, (path, clean, verdict) in placed.items():
            for view in ("read_uncommitted", "read_committed"):
                try:
                    consumed = broker.consume_all(topic, view, wait=5)
                except JavaError as error:
                    if error.java_class != "java.lang.OutOfMemoryError":
                        raise
                    continue
                rows = [(record["offset"], record["key"], record["value"]) for record in consumed.records]
                expected = served(path, view, clean=clean)
                differ = {row[0] for row in rows} ^ {row[0] for row in expected}
                assert rows == expected, f"{topic}, clean {clean}, {view}: {sorted(differ)[:9]}"
                if view == "read_uncommitted":
                    stops_at = None if consumed.error is None else consumed.position
                    assert stops_at == verdict["serves"]["stops_at"], (topic, clean, consumed.error)
