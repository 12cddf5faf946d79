"""Compaction against Kafka's own log cleaner. `python -m logwright.roundtrip.kafka.compaction --count 500` runs many more partitions."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from kafka_golden import copy_case, of_class

import logwright as lw
from logwright.codec.fault import LogwrightError
from logwright.corpora.cases import Case
from logwright.roundtrip.kafka import compaction

pytestmark = pytest.mark.oracle

NOW = 1_800_000_000_000


def test_random_partitions_are_compacted_as_by_the_log_cleaner(kafka: Any) -> None:
    assert list(compaction.compare(range(8))) == []


@pytest.mark.parametrize("case", of_class("healthy", "legal"), ids=lambda case: case.name)
def test_golden_partitions_are_compacted_as_by_the_log_cleaner(
    kafka: Any, case: Case, tmp_path: Path
) -> None:
    """Byte for byte where nothing is compressed: the libraries that compress are of other versions."""
    source = copy_case(case.name, tmp_path / "source")
    kafka.load(source)
    compressions = lw.read(source, view="frames", columns=["compression"])["compression"].unique()
    settings = {"delete.retention.ms": 1000}
    exact = set(compressions.to_pylist()) <= {"none"}
    assert compaction.judge(source, tmp_path, NOW, settings, exact=exact) is None


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
