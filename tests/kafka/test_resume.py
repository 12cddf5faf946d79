"""Which snapshot of the producers an append goes on from."""

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
    for one in target.iterdir():
        one.chmod(0o644)
    return target


def producers_after_an_append(place: Path) -> bytes:
    said = lw.write([{"value": b"x"}], place, "kafka.partition", mode="append")
    return (place / segment_name(said.ids["last_offset"] + 1, ".snapshot")).read_bytes()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("of no segment's start", pack(STRANGER)),
        ("to be deleted", pack(STRANGER)),
        ("broken", b"\0\1 what?"),
    ],
)
def test_snapshots_that_do_not_count(place: Path, name: str, content: bytes) -> None:
    wanted = max(place.glob("*.snapshot")).read_bytes()
    segments = sorted(int(one.stem) for one in place.glob("*.log"))
    assert len(unpack(wanted))
    newest = {
        "of no segment's start": segments[-1] + 1,
        "to be deleted": segments[-1],
        "broken": segments[-1],
    }[name]
    for one in place.glob("*.snapshot"):
        if int(one.stem) > segments[0]:
            one.unlink()
    suffix = ".snapshot.deleted" if name == "to be deleted" else ".snapshot"
    (place / segment_name(newest, suffix)).write_bytes(content)
    assert producers_after_an_append(place) == wanted, "made anew from the logs"


def test_the_newest_that_counts(place: Path) -> None:
    newest = max(int(one.stem) for one in place.glob("*.log"))
    (place / segment_name(newest, ".snapshot")).write_bytes(pack(STRANGER))
    assert 12345 in unpack(producers_after_an_append(place))["producer_id"]
