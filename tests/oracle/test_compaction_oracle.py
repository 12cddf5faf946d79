"""Compaction against Kafka's own log cleaner. `python -m logwright.roundtrip.kafka.compaction --count 500` runs many more partitions."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from kafka_golden import CASES

from logwright.codec.fault import LogwrightError
from logwright.roundtrip.kafka import compaction

pytestmark = pytest.mark.oracle

GOLDEN = (
    "v2_compacted", "v2_compacted_producers", "v2_txn_commit_abort", "v2_txn_interleaved", "v2_rolled",
    "v0_compacted", "v1_rolled", "mixed_v0_v1_v2", "v2_compacted_zstd", "craft_empty_batches",
)  # fmt: skip
COMPRESSED = {"v0_compacted", "v1_compacted", "mixed_v0_v1_v2", "v2_compacted_zstd", "v2_rolled", "v2_epochs"}
NOW = 1_800_000_000_000


def test_random_partitions_are_compacted_as_by_the_log_cleaner(kafka: Any) -> None:
    assert list(compaction.compare(range(8))) == []


@pytest.mark.parametrize("name", [name for name in GOLDEN if name in CASES])
def test_golden_partitions_are_compacted_as_by_the_log_cleaner(kafka: Any, name: str, tmp_path: Path) -> None:
    source = tmp_path / "source" / CASES[name].partition.name
    shutil.copytree(CASES[name].partition, source)
    kafka.load(source)
    settings = {"delete.retention.ms": 1000}
    difference = compaction.judge(source, tmp_path, NOW, settings, exact=name not in COMPRESSED)
    assert difference is None


def test_the_judge_finds_a_difference(kafka: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    item = next(
        item
        for item in map(compaction.Round.of, range(100))
        if len(item.log.segments) > 3 and item.first_dirty is None
    )
    monkeypatch.setattr(compaction, "compact", _copies)
    assert compaction.run(item, tmp_path) is not None


def _copies(path: str, codec: None, request: Any, *rest: Any) -> None:
    """Compact nothing."""
    try:
        shutil.copytree(path, request.out)
    except OSError as error:
        raise LogwrightError(str(error)) from error
