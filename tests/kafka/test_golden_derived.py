"""Derived files rebuilt from the `.log` files alone equal those of a broker byte for byte, at three index intervals."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from kafka_golden import of_class
from kafka_log import derived_files

from logwright.codec.kafka.names import EPOCH_FILE
from logwright.corpora.cases import Case

DERIVED = (".index", ".timeindex", ".txnindex", ".snapshot")

CLOCK = {"now": 1_795_300_000_000, "producer_expiration": 2_147_483_647}
"""Times at which the brokers ran, and their `producer.id.expiration.ms`, in milliseconds: producers idle for longer expire."""


def logs(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.log")}


def without_last_line(data: bytes) -> bytes:
    """The broker appends a line when it becomes leader, and counts it."""
    version, count, *lines = data.decode().splitlines()
    return "\n".join([version, str(int(count) - 1), *lines[:-1], ""]).encode()


def differing_files(case: Case, run: str, folder: str, rebuilt: dict[str, bytes]) -> list[str]:
    """Return the rebuilt files that differ from those of the broker after a run, new or kept."""
    wrong = []
    left = dict(case.runs[run]["files_after"])
    theirs = (case.path / folder / EPOCH_FILE).read_bytes()
    if without_last_line(theirs) != rebuilt[EPOCH_FILE]:
        wrong.append(
            f"{EPOCH_FILE}: {theirs!r}, less its last line, is not what was rebuilt: {rebuilt[EPOCH_FILE]!r}"
        )
    kept = [] if folder.startswith("after-rebuild") else [path.name for path in case.partition.iterdir()]
    kept = [name for name in kept if name not in case.runs[run]["files_removed"]]
    for name in sorted({name for name in [*left, *kept, *rebuilt] if name.endswith(DERIVED)}):
        path = case.partition / name if name not in left else case.path / folder / name
        if name not in rebuilt:
            wrong.append(f"{name}: the broker has one, none was rebuilt")
        elif name not in left and name not in kept:
            wrong.append(f"{name}: rebuilt ({len(rebuilt[name])} bytes), the broker has none")
        elif name in left and hashlib.sha256(rebuilt[name]).hexdigest() == left[name]["sha256"]:
            continue
        elif not path.exists() or path.read_bytes() != rebuilt[name]:
            wrong.append(f"{name}: the broker's differs from what was rebuilt ({len(rebuilt[name])} bytes)")
    return wrong


@pytest.mark.parametrize("interval", [4096, 200])
@pytest.mark.parametrize("case", of_class("healthy"), ids=lambda case: getattr(case, "name", None))
def test_derived_files_equal_those_that_a_broker_rebuilds(case: Case, interval: int) -> None:
    rebuilt = derived_files(logs(case.partition), interval, **CLOCK)
    assert differing_files(case, f"rebuild_{interval}", f"after-rebuild-{interval}", rebuilt) == []


@pytest.mark.parametrize("case", of_class("legal"), ids=lambda case: getattr(case, "name", None))
def test_derived_files_equal_those_after_an_unclean_stop(case: Case) -> None:
    """They were served after an unclean stop with an index interval of 250, so everything was rebuilt."""
    if case.name == "craft_no_files":
        pytest.skip("no .log: a new partition, nothing to rebuild from")
    assert (
        differing_files(case, "no_marker", "after", derived_files(logs(case.partition), 250, **CLOCK)) == []
    )
