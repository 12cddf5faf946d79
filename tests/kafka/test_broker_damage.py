"""Laws of what is said that a broker would do, on partitions with random damage."""

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
def test_what_is_said_holds_together(tmp_path: Path, seed: int) -> None:
    directory, _ = damaged(seed, tmp_path)
    before = {one.name: one.read_bytes() for one in directory.iterdir()}
    for clean in (False, True):
        found = opened(directory, clean)
        verdict = found.verdict
        assert {one.name: one.read_bytes() for one in directory.iterdir()} == before
        after = {entry.name: entry.size for entry in found.after.entries()}
        assert set(verdict.removes) == set(before) - set(after)
        assert set(verdict.creates) == set(after) - set(before)
        assert all(after[name] == size < len(before[name]) for name, size in verdict.truncates.items())
        assert not set(verdict.rewrites) & set(verdict.truncates)
        if not verdict.opens:
            assert verdict.error
            assert verdict.scope in ("process", "log_dir", "partition")
            assert (verdict.rows, list(found.parts("read_uncommitted"))) == (0, [])
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
        assert set(committed["offset"].to_pylist()) <= set(offsets)
        assert batches.num_rows or not everything.num_rows
        if offsets:
            assert (verdict.serves["first"], verdict.serves["last"]) == (offsets[0], offsets[-1])
        assert (verdict.serves["stops_at"] is None) == (verdict.error is None)


@pytest.mark.parametrize("seed", range(1000, 1030))
def test_a_second_start_finds_nothing_to_do(tmp_path: Path, seed: int) -> None:
    """What a broker leaves after an unclean stop it takes as it is, after a clean stop and after an unclean one."""
    directory, _ = damaged(seed, tmp_path)
    first = opened(directory, False)
    if not first.verdict.opens:
        return
    left = tmp_path / "left" / directory.name
    left.mkdir(parents=True)
    for entry in first.after.entries():
        (left / entry.name).write_bytes(first.after.read(entry.name))
    again = opened(left, False)
    assert again.verdict.opens
    assert again.verdict.truncates == {}
    assert not [name for name in (*again.verdict.removes, *again.verdict.rewrites) if name.endswith(".log")]
    assert again.verdict.rows == first.verdict.rows
