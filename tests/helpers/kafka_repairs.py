"""Repair, rebuild and simulated start of a Kafka partition in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apply_repair import apply_repair
from memory_directory import MemoryDirectory

from logwright.codec import registry
from logwright.codec.engine.repair import RepairPlan, Strategy
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing

LAYOUT = registry.get_layout("kafka.partition")

INTERVAL = {"index.interval.bytes": 250}
OPTIONS = {**INTERVAL, "producer.id.expiration.ms": 1 << 62}
"""The settings of the golden brokers, with producers that never expire."""
ID = "dYzWm9fOQ-qIYUZRa3sd5A"


def partition_directory(
    files: Mapping[str, bytes], name: str = "orders-0", above: Listing | None = None
) -> MemoryDirectory:
    return MemoryDirectory(files, name, above)


def read_partition(path: Path) -> MemoryDirectory:
    """Read a partition directory, and the files of its log directory."""
    return MemoryDirectory.of(path, MemoryDirectory.of(path.parent))


def options(**values: Any) -> Options:
    return Options(
        LAYOUT.capabilities.repair.options, {name.replace("__", "-"): value for name, value in values.items()}
    )


def repair(
    *copies: MemoryDirectory, strategy: str = "salvage", **values: Any
) -> tuple[MemoryDirectory, RepairPlan]:
    """Return the repaired directory and the applied plan."""
    plans = [LAYOUT.plan(copy, Options(LAYOUT.read_options)) for copy in copies]
    repair_plan = LAYOUT.capabilities.repair.repair(copies, plans, Strategy(strategy), options(**values))
    return _apply(repair_plan, *copies), repair_plan


def rebuild(copy: MemoryDirectory, *kinds: str, **values: Any) -> tuple[MemoryDirectory, RepairPlan]:
    """Rebuild these kinds of derived files, by default all."""
    capability = LAYOUT.capabilities.repair
    plan = LAYOUT.plan(copy, Options(LAYOUT.read_options))
    repair_plan = capability.rebuild(copy, plan, kinds or capability.rebuilds, options(**values))
    return _apply(repair_plan, copy), repair_plan


def _apply(repair_plan: RepairPlan, *copies: MemoryDirectory) -> MemoryDirectory:
    return MemoryDirectory(apply_repair(repair_plan, *copies), copies[0].name, copies[0].above)


def predict_start(directory: MemoryDirectory, *, clean: bool = False, **values: Any) -> Any:
    """Simulate a broker's start on a directory."""
    options = Options(LAYOUT.read_options, values)
    return LAYOUT.capabilities.predict.run(
        directory, LAYOUT.plan(directory, options), options, version=None, clean=clean
    )


def check_broker_accepts(directory: MemoryDirectory, *, unsupported: bool = False) -> Any:
    """Check that a broker starts on a repaired directory without changing it, and that its consumer reads to the end. Return the
    verdict. If `unsupported`, the directory has a batch of unknown compression, which a repair keeps and where the consumer stops."""
    alone = MemoryDirectory(directory.files, directory.name)
    opened = predict_start(alone, **INTERVAL)
    verdict = opened.verdict
    assert verdict.opens, verdict.error
    if unsupported:
        assert "Unknown compression type id" in verdict.error
    else:
        assert verdict.error is None
    assert not verdict.truncates
    assert not verdict.removes
    assert not verdict.creates
    assert [name for name in verdict.rewrites if opened.after.read(name) != alone.files[name]] == []
    # A rebuild refuses logs with errors.
    assert rebuild(directory, **OPTIONS)[0].files == directory.files
    return verdict
