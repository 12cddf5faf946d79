"""Repair data directories in memory: the result, the tree a server loads from it, and the faults of a check."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from apply_repair import apply_repair
from memory_directory import MemoryDirectory
from zookeeper_startup import GOLDEN, data_directory, nodes_of, server, start

from logwright.codec import registry
from logwright.codec.capability import CheckSettings
from logwright.codec.engine.repair import Removed, RepairPlan, Strategy
from logwright.codec.fault import Fault, Severity
from logwright.codec.frames.walk import Hole, ListedFile, Walk
from logwright.codec.option import Options
from logwright.codec.store.listing import Role
from logwright.codec.zookeeper.formats.txnlog import codec as txnlog
from logwright.codec.zookeeper.formats.txnlog.scan import TXN_FRAME

LAYOUT = registry.get_layout("zookeeper.datadir")

DAMAGED = sorted(path.parent.name for path in GOLDEN.glob("dmg_*/case.json"))
CRAFTED = sorted(path.parent.name for path in GOLDEN.glob("syn_*/case.json"))


def repaired(
    directory: MemoryDirectory, strategy: str = "prefix", **inputs: Any
) -> tuple[MemoryDirectory, RepairPlan]:
    """Return the repaired directory and the plan that was carried out."""
    plan = LAYOUT.plan(directory, Options(LAYOUT.read_options))
    options = Options(LAYOUT.capabilities.repair.options, inputs)
    repair_plan = LAYOUT.capabilities.repair.repair([directory], [plan], Strategy(strategy), options)
    return executed(directory, repair_plan), repair_plan


def rebuilt(directory: MemoryDirectory, *target: str) -> tuple[MemoryDirectory, RepairPlan]:
    plan = LAYOUT.plan(directory, Options(LAYOUT.read_options))
    asked = target or LAYOUT.capabilities.repair.rebuilds
    repair_plan = LAYOUT.capabilities.repair.rebuild(
        directory, plan, asked, Options(LAYOUT.capabilities.repair.options)
    )
    return executed(directory, repair_plan), repair_plan


def executed(directory: MemoryDirectory, repair_plan: RepairPlan) -> MemoryDirectory:
    return data_directory(apply_repair(repair_plan, directory), directory.name, directory.above)


def checked(
    directory: MemoryDirectory, severity: Severity = Severity.ERROR, *, deep: bool = True
) -> list[tuple[str, Fault]]:
    """Return the faults of a directory with this severity."""
    options = Options(LAYOUT.read_options)
    plan = LAYOUT.plan(directory, options)
    checker = LAYOUT.capabilities.check(directory, plan, options, CheckSettings(deep=deep))
    actual = list(plan.faults)
    for file in plan.files:
        if file.codec is None or file.role in (Role.LEFTOVER, Role.FOREIGN):
            continue
        codec = registry.get(file.codec)
        if file.role is Role.PRIMARY:
            checker.begin(file)
        context = codec.context(file.name.rpartition("/")[2], Options(codec.options), **file.hints)
        for value in Walk(ListedFile(directory, file.name, file.size), codec, context):
            if isinstance(value, Hole):
                actual.append((file.name, value.fault))
                continue
            actual += [(file.name, fault) for fault in value.frames.faults]
            if len(value.frames):
                for decoded in codec.decode(value.window, value.frames, "rows", (), context):
                    actual += [(file.name, fault) for _, fault in decoded.faults]
            if file.role is Role.PRIMARY and len(value.frames):
                checker.add(value.window, value.frames)
    actual += checker.finish()
    return [item for item in actual if item[1].severity is severity]


def details(
    directory: MemoryDirectory, severity: Severity = Severity.ERROR, *, deep: bool = True
) -> list[str]:
    return [f"{name}: {fault.detail}" for name, fault in checked(directory, severity, deep=deep)]


def served(directory: MemoryDirectory, **options: Any) -> list[dict[str, Any]]:
    """Return the nodes clients see on a server started on the directory. It must start without faults."""
    opened = start(directory, **{"extendedTypesEnabled": True, **options})
    verdict = opened.verdict
    assert verdict.opens, (verdict.error_class, verdict.error)
    assert server(opened).restored.mismatches == []
    return nodes_of(opened)


def truth(case: str) -> list[dict[str, Any]]:
    """Return the nodes a client of the real server saw; empty if it did not start."""
    lines = [json.loads(line) for line in (GOLDEN / case / "truth.jsonl").read_text().splitlines()]
    return [line for line in lines[1:] if line["kind"] == "node"]


def zxids(directory: MemoryDirectory, *names: str) -> list[int]:
    """Return the zxids of the sound transactions of the given logs, or of all, in order."""
    out: list[int] = []
    logs = sorted(
        (name for name in directory.files if name.startswith("log.")),
        key=lambda name: int(name.split(".")[1], 16),
    )
    for name in names or logs:
        context = txnlog.CODEC.context(name, Options(txnlog.CODEC.options))
        for item in Walk(ListedFile(directory, name, len(directory.files[name])), txnlog.CODEC, context):
            if not isinstance(item, Hole):
                frames = item.frames.pick(item.frames.header["kind"] == TXN_FRAME)
                out += np.asarray(frames.header["zxid"]).tolist()
    return out


def notes(repair_plan: RepairPlan) -> str:
    message = repair_plan.summary()
    return "\n".join((*message.warnings, *message.before_you_start))


def losses(repair_plan: RepairPlan) -> list[tuple[str, int | None, Mapping[str, Any]]]:
    """Return the losses: file, number of rows, zxids."""
    return [(cut.file, cut.rows_lost, dict(cut.lost)) for cut in repair_plan.cut if cut.rows_lost != 0]


def cuts(repair_plan: RepairPlan) -> list[Removed]:
    return list(repair_plan.cut)
