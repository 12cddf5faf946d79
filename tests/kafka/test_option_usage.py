"""Every option of Kafka is used or refused by every verb, view and kind of file: see `option_usage`."""

from __future__ import annotations

from pathlib import Path

import pytest
from option_usage import Sample, ignored

import logwright as lw

VALUES = {
    "topic.id": "AAAAAAAAAAAAAAAAAAAAAQ",
    "compression.type": "gzip",
    "subscribe": "orders",
    "subscribePattern": "o.*",
    "assign": '{"orders": [0]}',
    # Any file: without a format, or with this one, a schema is refused.
    **{f"{side}.schema": __file__ for side in ("key", "value")},
    **{f"{side}.format": "json" for side in ("key", "value")},
}
BESIDE = {
    ("write", f"compression.{name}.level"): {"compression.type": name} for name in ("gzip", "lz4", "zstd")
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    options = {"compression.type": "gzip"}
    lw.generate("kafka.partition", tmp_path / "orders-0", rows=40, seed=1, **options)
    lw.damage(tmp_path / "orders-0", tmp_path / "damaged", "flip:at=200,bit=3")
    return tmp_path


def check(folder: Path, kind: str, *names: str) -> None:
    sample = Sample(kind, [folder / name for name in names], VALUES, BESIDE)
    assert ignored(sample, folder) == {}


@pytest.mark.extended
def test_every_option_is_used_or_refused_for_a_partition(folder: Path) -> None:
    check(folder, "kafka.partition", "orders-0", "damaged/orders-0")


def test_every_option_is_used_or_refused_for_a_log_segment(folder: Path) -> None:
    name = "00000000000000000000.log"
    check(folder, "kafka.log", f"orders-0/{name}", f"damaged/orders-0/{name}")
