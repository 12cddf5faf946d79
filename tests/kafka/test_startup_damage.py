"""Invariants of the simulated start on partitions with random damage."""

from __future__ import annotations

import random
import shutil
import warnings
from pathlib import Path

import pytest
from kafka_damage import BASES, damage

import logwright as lw
from logwright.codec import registry
from logwright.codec.engine.startup import Started
from logwright.codec.option import Options
from logwright.corpora.cases import cases
from logwright.readers.listing import LocalDirectory

LAYOUT = registry.get_layout("kafka.partition")

SETTINGS = {"index.interval.bytes": 250, "segment.index.bytes": 4096}


def damaged(seed: int, place: Path) -> tuple[Path, random.Random]:
    rng = random.Random(seed)
    base = cases("kafka")[rng.choice(BASES)].partition
    directory = place / base.name
    shutil.copytree(base, directory)
    damage(directory, rng)
    return directory, rng


def opened(directory: Path, clean: bool) -> Started:
    listing = LocalDirectory(str(directory))
    options = Options(LAYOUT.read_options, SETTINGS)
    return LAYOUT.capabilities.predict.run(
        listing, LAYOUT.plan(listing, options), options, version=None, clean=clean
    )


@pytest.mark.parametrize(
    "seed", [*range(60), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(60, 600))]
)
def test_verdict_lists_exactly_the_files_that_the_overlay_changes(tmp_path: Path, seed: int) -> None:
    directory, _ = damaged(seed, tmp_path)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    for clean in (False, True):
        started = opened(directory, clean)
        verdict = started.verdict
        assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
        after = {entry.name: entry.size for entry in started.after.entries()}
        assert set(verdict.removes) == set(before) - set(after)
        assert set(verdict.creates) == set(after) - set(before)
        assert all(after[name] == size < len(before[name]) for name, size in verdict.truncates.items())
        assert not set(verdict.rewrites) & set(verdict.truncates)
        if not verdict.opens:
            assert verdict.error
            assert verdict.scope in ("process", "log_dir", "partition")
            assert (verdict.rows, list(started.parts("read_uncommitted"))) == (0, [])
            with pytest.raises(lw.DamageError):
                lw.read(directory, mode="AS_SYSTEM", clean=clean, **SETTINGS)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", lw.DamageWarning)
            rows = lw.read(directory, mode="AS_SYSTEM", clean=clean, columns="offset", **SETTINGS)
            committed = lw.read(
                directory, view="read_committed", mode="AS_SYSTEM", clean=clean, columns="offset", **SETTINGS
            )
            everything = lw.read(
                directory, view="log", mode="AS_SYSTEM", clean=clean, columns="offset", **SETTINGS
            )
            batches = lw.read(directory, view="batches", mode="AS_SYSTEM", clean=clean, **SETTINGS)
        offsets = rows["offset"].to_pylist()
        assert len(offsets) == verdict.rows
        # A consumer of committed records passes over an aborted batch with a too high offset, which makes the other one skip the records
        # after it.
        skipped = set(everything["offset"].to_pylist())
        assert set(committed["offset"].to_pylist()) <= skipped.union(offsets)
        assert batches.num_rows or not everything.num_rows
        if offsets:
            assert (verdict.serves["first"], verdict.serves["last"]) == (offsets[0], offsets[-1])
        assert (verdict.serves["stops_at"] is None) == (verdict.error is None)


@pytest.mark.parametrize("seed", range(1000, 1030))
def test_second_start_changes_nothing(tmp_path: Path, seed: int) -> None:
    """The result of a start after an unclean stop is accepted unchanged by the next start, after a clean stop and after an unclean one."""
    directory, _ = damaged(seed, tmp_path)
    first = opened(directory, False)
    if not first.verdict.opens:
        return
    left = tmp_path / "left" / directory.name
    left.mkdir(parents=True)
    for entry in first.after.entries():
        (left / entry.name).write_bytes(first.after.read(entry.name))
    restarted = opened(left, False)
    assert restarted.verdict.opens
    assert restarted.verdict.truncates == {}
    assert not [
        name for name in (*restarted.verdict.removes, *restarted.verdict.rewrites) if name.endswith(".log")
    ]
    assert restarted.verdict.rows == first.verdict.rows
