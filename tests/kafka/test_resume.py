"""The producer snapshot from which an append continues."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from kafka_golden import CASES

import logwright as lw
from logwright.codec.kafka.formats.producer_snapshot import ENTRY, pack, unpack
from logwright.codec.kafka.names import segment_name

STRANGER = np.zeros(1, ENTRY)
STRANGER["producer_id"] = 12345


@pytest.fixture
def place(tmp_path: Path) -> Path:
    target = tmp_path / CASES["dmg_tbase"].partition.name
    shutil.copytree(CASES["dmg_tbase"].partition, target)
    for path in target.iterdir():
        path.chmod(0o644)
    return target


def producers_after_an_append(place: Path) -> bytes:
    report = lw.write([{"value": b"x"}], place, "kafka.partition", mode="append")
    return (place / segment_name(report.ids["last_offset"] + 1, ".snapshot")).read_bytes()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("of no segment's start", pack(STRANGER)),
        ("to be deleted", pack(STRANGER)),
        ("broken", b"\0\1 what?"),
    ],
)
def test_unusable_producer_snapshot_is_not_resumed_from(place: Path, name: str, content: bytes) -> None:
    data = max(place.glob("*.snapshot")).read_bytes()
    segments = sorted(int(path.stem) for path in place.glob("*.log"))
    assert len(unpack(data))
    newest = {
        "of no segment's start": segments[-1] + 1,
        "to be deleted": segments[-1],
        "broken": segments[-1],
    }[name]
    for path in place.glob("*.snapshot"):
        if int(path.stem) > segments[0]:
            path.unlink()
    suffix = ".snapshot.deleted" if name == "to be deleted" else ".snapshot"
    (place / segment_name(newest, suffix)).write_bytes(content)
    assert producers_after_an_append(place) == data, "rebuilt from the logs"


def test_newest_valid_snapshot_is_used(place: Path) -> None:
    newest = max(int(path.stem) for path in place.glob("*.log"))
    (place / segment_name(newest, ".snapshot")).write_bytes(pack(STRANGER))
    assert 12345 in unpack(producers_after_an_append(place))["producer_id"]
