"""Partitions with random damage: what is said that a broker would do is what Kafka's own loader does, to the last byte of every file."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from logwright.codec.kafka.batch import HEAD_SIZE, LENGTH_END
from logwright.codec.kafka.broker.start import Started
from logwright.codec.kafka.names import METADATA_FILE
from logwright.codec.kafka.partition import LAYOUT
from logwright.codec.option import Options
from logwright.corpora.cases import cases
from logwright.readers.listing import LocalDirectory
from logwright.roundtrip.oracles.java import JavaError

pytestmark = pytest.mark.oracle

BASES = (
    "dmg_base", "dmg_tbase", "v2_rolled", "v2_epochs", "craft_spec22", "v2_compacted_producers", "killed_txn", "v2_idempotent",
    "v2_none_java",
)  # fmt: skip
NAMES = (
    "00000000000000000000.log.swap", "00000000000000000005.log", "7.log", "00000000000000000030.log.cleaned",
    "00000000000000000030.index", "README", "00000000000000000058.log.deleted", "00000000000000000012.snapshot", "x.snapshot",
)  # fmt: skip
KINDS = (
    "flip", "flip", "flip", "head", "cut", "zero", "insert", "drop", "remove", "tail", "copy", "other", "repeat", "exchange",
)  # fmt: skip
SETTINGS = {"index.interval.bytes": 250, "segment.index.bytes": 4096, "producer.id.expiration.ms": 2147483647}


def damage(directory: Path, rng: random.Random) -> list[tuple[str, ...]]:
    """One to three edits of any kind; returns what was done."""
    done: list[tuple[str, ...]] = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        names = sorted(one.name for one in directory.iterdir())
        logs = [name for name in names if name.endswith(".log") and (directory / name).stat().st_size]
        kind = rng.choice(KINDS)
        name = rng.choice(names if kind in ("remove", "copy", "other", "exchange") or not logs else logs)
        path = directory / name
        if kind == "remove":
            path.unlink()
            done.append((kind, name))
            continue
        if kind in ("copy", "exchange"):
            to, source = (rng.choice(NAMES), name) if kind == "copy" else (name, rng.choice(names))
            if to != source:
                shutil.copy(directory / source, directory / to)
            done.append((kind, source, to))
            continue
        path.write_bytes(edited(kind, bytearray(path.read_bytes()), rng))
        done.append((kind, name))
    return done


def edited(kind: str, data: bytearray, rng: random.Random) -> bytes:
    if kind in ("flip", "other") and data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == "head" and data:
        at = min(rng.choice(starts(data)) + rng.randrange(HEAD_SIZE), len(data) - 1)
        data[at] ^= 1 << rng.randrange(8)
    elif kind == "cut" and data:
        del data[rng.randrange(len(data)) :]
    elif kind == "zero" and data:
        at = rng.randrange(len(data))
        length = min(rng.randrange(1, 100), len(data) - at)
        data[at : at + length] = bytes(length)
    elif kind == "insert":
        at = rng.randrange(len(data) + 1)
        data[at:at] = rng.randbytes(rng.randrange(1, 60))
    elif kind == "drop" and data:
        at = rng.randrange(len(data))
        del data[at : at + rng.randrange(1, 200)]
    elif kind == "tail":
        data += bytes(rng.randrange(1, 200)) if rng.random() < 0.5 else rng.randbytes(rng.randrange(1, 60))
    elif kind == "repeat":
        data += data[: starts(data)[1]] if len(starts(data)) > 1 else b""
    return bytes(data)


def starts(data: bytearray) -> list[int]:
    out, at = [0], 0
    while at + HEAD_SIZE <= len(data):
        at += LENGTH_END + max(HEAD_SIZE, int.from_bytes(data[at + 8 : at + 12], "big"))
        out.append(at)
    return out[:-1] or out


def compare(kafka: Any, seed: int, place: Path) -> str:
    """Damage a partition and hold what is said of it against the loader. Returns what came of it."""
    rng = random.Random(seed)
    base = cases("kafka")[rng.choice(BASES)].partition
    clean, recovery, start = (
        rng.random() < 0.5,
        rng.choice([0, 0, 0, 10, 40]),
        rng.choice([0, 0, 0, 0, 7, 35, 2000]),
    )
    mine, real = place / "mine" / base.name, place / "real" / base.name
    shutil.copytree(base, mine)
    what = f"seed {seed}: {base.name}, clean {clean}, recovery point {recovery}, log start {start}, {damage(mine, rng)}"
    shutil.copytree(mine, real)
    listing = LocalDirectory(str(mine))
    options = Options(
        LAYOUT.read_options, {**SETTINGS, "recovery.point": recovery, "log.start.offset": start}
    )
    found = LAYOUT.open_as(listing, LAYOUT.plan(listing, options), options, version=None, clean=clean)
    assert isinstance(found, Started)
    verdict = found.verdict
    try:
        loaded = kafka.load(
            real, clean=clean, recovery_point=recovery, log_start_offset=start, index_interval_bytes=250, segment_index_bytes=4096
        )  # fmt: skip
    except JavaError as error:
        assert not verdict.opens, f"{what}: {error}"
        return "refused"
    if verdict.error is not None and METADATA_FILE in verdict.error:
        return "set aside"  # the loader does not look at it
    assert verdict.opens, f"{what}: {verdict.error_class}: {verdict.error}"
    assert found.log_offsets == (loaded["log_start_offset"], loaded["log_end_offset"]), what
    left = {one.name: one.read_bytes() for one in real.iterdir() if not one.name.endswith(".deleted")}
    said = {entry.name: found.after.read(entry.name) for entry in found.after.entries()}
    assert sorted(said) == sorted(left), what
    # A consumer opens indexes that the loader does not: what is no whole entry is cut off then.
    differ = [
        name
        for name in said
        if said[name] != left[name] and not (name.endswith(".index") and len(left[name]) % 8)
    ]
    assert not differ, f"{what}: {differ}"
    return "loaded"


def run(kafka: Any, seeds: range, tmp_path: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        place = tmp_path / str(seed)
        counts[compare(kafka, seed, place)] += 1
        shutil.rmtree(place)
    return counts


def test_random_damage(kafka: Any, tmp_path: Path) -> None:
    counts = run(kafka, range(150), tmp_path)
    assert counts["loaded"] > 100
    assert counts["refused"] > 3


@pytest.mark.nightly
def test_much_random_damage(kafka: Any, tmp_path: Path) -> None:
    counts = run(kafka, range(10_000, 15_000), tmp_path)
    assert counts["loaded"] > 4000
    assert counts["refused"] > 200
