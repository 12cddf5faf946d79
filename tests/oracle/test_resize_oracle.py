"""Kafka's loader makes the same files from partitions whose segments or batches were divided, joined or removed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import logwright as lw

pytestmark = pytest.mark.oracle

DERIVED = (".index", ".timeindex", ".txnindex", ".snapshot")


@pytest.mark.parametrize("size", [500, 1 << 20])
@pytest.mark.parametrize(
    "name", ["v2_rolled", "v2_txn_interleaved", "mixed_v0_v1_v2", "v2_compacted_producers", "v0_rolled"]
)
def test_divided_and_joined_segments(kafka: Any, golden: Any, tmp_path: Path, name: str, size: int) -> None:
    target = tmp_path / golden(name).directory.name
    lw.convert(
        golden(name).directory,
        target,
        segment_bytes=size,
        index_interval_bytes=4096,
        producer_id_expiration_ms=2**31 - 1,
    )
    check_derived(kafka, target)


def check_derived(kafka: Any, target: Path) -> None:
    """Compare the derived files with those that the loader makes."""
    derived = {
        path.name: path.read_bytes()
        for path in target.iterdir()
        if path.suffix in DERIVED or path.name == "leader-epoch-checkpoint"
    }
    rebuilt = kafka.rebuild(target)
    if not rebuilt["leader-epoch-checkpoint"]:
        # Without batches of magic 2 the broker creates an empty file, which means the same.
        rebuilt["leader-epoch-checkpoint"] = b"0\n0\n"
    assert rebuilt == derived
    assert kafka.sanity(target) == []


@pytest.mark.parametrize("size", [0, 1 << 20])
@pytest.mark.parametrize(
    "name",
    [
        "v2_txn_interleaved",
        "v2_txn_commit_abort",
        "v2_txn_open",
        "v2_idempotent",
        "v2_compacted_producers",
        "mixed_v0_v1_v2",
        "v2_append_time_lz4",
    ],
)
def test_divided_and_joined_batches(kafka: Any, golden: Any, tmp_path: Path, name: str, size: int) -> None:
    """The loader accepts the batches: it makes the same derived files, and finds the end of the log where it was."""
    source = golden(name).directory
    single, target = tmp_path / "single" / source.name, tmp_path / "target" / source.name
    options = {"index_interval_bytes": 4096, "producer_id_expiration_ms": 2**31 - 1}
    lw.convert(source, single, batch_size=0, **options)
    lw.convert(single, target, batch_size=size, segment_bytes=1 << 20, **options)
    check_derived(kafka, target)
    columns = "offset,key,value,headers,timestamp"
    assert lw.diff(source, target, view="read_committed", columns=columns).equal
    shutil.copytree(source, tmp_path / "copy" / source.name)
    end = kafka.load(tmp_path / "copy" / source.name)["log_end_offset"]
    logs = {path.name: path.read_bytes() for path in target.glob("*.log")}
    assert kafka.load(target, clean=False)["log_end_offset"] == end
    assert {path.name: path.read_bytes() for path in target.glob("*.log")} == logs


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize(
    "options", [{"retention_bytes": 3000}, {"delete_before_offset": 30}, {"retention_bytes": 0}]
)
@pytest.mark.parametrize("name", ["v2_rolled", "dmg_tbase", "v0_rolled"])
def test_broker_loads_a_log_after_retention_without_changing_it(
    kafka: Any, golden: Any, tmp_path: Path, name: str, options: dict[str, int], clean: bool
) -> None:
    """The loader opens the result, changes no log, and finds the log end where it was."""
    source = golden(name).directory
    target = tmp_path / source.name
    lw.convert(source, target, now=0, **options)
    before = {path.name: path.read_bytes() for path in target.glob("*.log")}
    shutil.copytree(source, tmp_path / "copy" / source.name)
    end = kafka.load(tmp_path / "copy" / source.name)["log_end_offset"]
    loaded = kafka.load(target, clean=clean)
    assert loaded["log_end_offset"] == end
    assert loaded["log_start_offset"] == min(int(file[:20]) for file in before)
    assert {path.name: path.read_bytes() for path in target.glob("*.log")} == before
