"""A real broker, started unclean on every repaired partition, truncates nothing, deletes nothing, leaves derived files unchanged,
and serves every record that was sound; never fewer than it would have served of the damaged directory by itself."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from kafka_golden import of_class

import logwright as lw
from logwright.codec.kafka.names import EPOCH_FILE
from logwright.corpora.cases import Case
from logwright.roundtrip.oracles.kafka_broker import Broker

pytestmark = pytest.mark.oracle

SETTINGS = {"index.interval.bytes": 250, "producer.id.expiration.ms": (1 << 31) - 1}
TOPIC = {"index.interval.bytes": "250", "retention.ms": "-1", "segment.index.bytes": "4096"}
SAYS_SO = ("truncating", "Deleting", "Corrupt", "corrupt", "Found invalid", "recovering segment")
NOT_TAKEN = {"craft_txn_then_plain": [1]}
"""Sound by themselves, but the broker does not start with them: a record outside of its producer's open transaction."""
LEADS = 100
TOGETHER = 40
"""Number of partitions per broker, each in a separate log directory."""
UNSUPPORTED = ("dmg_fix_codec5",)
"""Cases that a repair refuses, since it would drop a batch of an unknown compression."""
DAMAGED = [case for case in of_class("damaged", "refused", "legal") if case.name not in UNSUPPORTED]
GROUPS = [DAMAGED[at : at + TOGETHER] for at in range(0, len(DAMAGED), TOGETHER)]


def repaired(case: Case, place: Path) -> tuple[Path, int]:
    out = place / case.partition.name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lw.DamageWarning)
        report = lw.repair(case.partition, out, **SETTINGS)
    return out, report["rows"]


def salvaged(case: Case) -> set[int]:
    """Return the offsets of all sound records."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lw.DamageWarning)
        return set(lw.read(case.partition, columns="offset", mode="DROPMALFORMED")["offset"].to_pylist())


def changed(before: dict[str, bytes], after: dict[str, bytes]) -> dict[str, str]:
    """Changes the broker made, except for its leader epoch and the topic id."""
    out = {name: "deleted" for name in before if name not in after}
    out |= {name: "made" for name in after if name not in before}
    out |= {name: "changed" for name in before if name in after and before[name] != after[name]}
    for name in (EPOCH_FILE, "partition.metadata"):
        out.pop(name, None)
    return out


def epochs(data: bytes) -> list[str]:
    """Return the entries below the broker's leader epoch; one from a damaged batch may be far above it."""
    return [line for line in data.decode().splitlines()[2:] if int(line.split()[0]) < LEADS]


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_formats_are_not_repaired(tmp_path: Path, name: str) -> None:
    (case,) = (item for item in of_class("damaged", "refused", "legal") if item.name == name)
    with pytest.raises(lw.UnsupportedError):
        repaired(case, tmp_path)


@pytest.mark.parametrize("group", GROUPS, ids=range(len(GROUPS)))
def test_broker_finds_nothing_to_repair(broker: Broker, tmp_path: Path, group: list[Case]) -> None:
    before: dict[str, dict[str, bytes]] = {}
    for case in group:
        out, _ = repaired(case, tmp_path)
        broker.place(out, configs=TOPIC, leader_epoch=LEADS)
        before[case.name] = {path.name: path.read_bytes() for path in out.iterdir()}
    broker.start()
    wrong: dict[str, Any] = {}
    for case in group:
        topic, number = case.partition.name.rsplit("-", 1)
        lines = [line.replace(case.partition.name, "") for line in broker.log_lines(topic, int(number))]
        message = [line for line in lines if any(word in line for word in SAYS_SO)]
        served = broker.consume(topic, partition=int(number))
        offsets = [record["offset"] for record in served]
        alone = (case.runs["no_marker"].get("consumer") or {}).get("read_uncommitted", {"count": 0})
        problems = {
            "said": message,
            "missing": sorted(salvaged(case) - set(offsets) - set(NOT_TAKEN.get(case.name, ()))),
            "fewer": len(offsets) < alone["count"],
            "twice": len(set(offsets)) < len(offsets),
        }
        if any(problems.values()):
            wrong[case.name] = problems
    broker.stop()
    for case in group:
        topic, number = case.partition.name.rsplit("-", 1)
        after = broker.files(topic, int(number))
        if actual := changed(before[case.name], after):
            wrong.setdefault(case.name, {})["files"] = actual
        # The broker adds the epoch in which it leads.
        own = epochs(before[case.name].get(EPOCH_FILE, b""))
        if epochs(after[EPOCH_FILE])[: len(own)] != own:
            wrong.setdefault(case.name, {})["epochs"] = epochs(after[EPOCH_FILE])
    assert not wrong, wrong
