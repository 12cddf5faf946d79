"""A repair in place on a file system in memory, checked after every crash."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from logwright.codec.engine.repair import RepairPlan, Strategy
from logwright.codec.layout import Layout
from logwright.codec.option import Options
from logwright.codec.store.listing import Plan
from logwright.codec.store.roots import Roots
from logwright.roundtrip.memory_filesystem import Kept, MemoryFileSystem
from logwright.writers.apply_plan import Original, PlanWriter
from logwright.writers.recover import finish_or_undo
from logwright.writers.stage import FolderListing


def repair_in_place(
    files: MemoryFileSystem, layout: Layout, target: str, backup: str, strategy: Strategy
) -> None:
    repairs = layout.capabilities.repair
    assert repairs is not None

    def make(copies: Sequence[Original], plans: Sequence[Plan]) -> RepairPlan:
        return repairs.repair(copies, plans, strategy, Options(repairs.options))

    def copies() -> list[FolderListing]:
        return [FolderListing(files, Roots(target), target.rpartition("/")[2])]

    PlanWriter(files, layout, copies, make, Options(layout.read_options)).in_place(target, backup)


def check_every_crash(
    files: MemoryFileSystem,
    layout: Layout,
    target: str,
    backup: str,
    before: Mapping[str, bytes | None],
    check_killed: Callable[[MemoryFileSystem], object],
    check_readers: Callable[[MemoryFileSystem], object],
) -> None:
    """Check the disk after a kill and a crash at each operation of `files`, whose target had the files `before`.

    Recovery leaves the files before or after the repair, and the backup has every changed file.
    """
    after = files.tree(target)
    repaired: set[bool] = set()
    known: set[object] = set()
    for prefix in range(len(files.trace) + 1):
        check_killed(files.killed(prefix))
        for kept in (Kept.NOTHING, Kept.ALL, Kept.NAMES):
            disk = files.crash(prefix, kept)
            contents = tuple(sorted(disk.tree().items()))
            if contents in known:
                continue
            known.add(contents)
            check_readers(disk)
            finish_or_undo(disk, layout, target)
            assert disk.tree(target) in (before, after)
            repaired.add(disk.tree(target) == after)
    assert repaired == {False, True}
    saved = files.tree(backup)
    changed = {name: data for name, data in before.items() if after.get(name) != data}
    assert {name: saved.get(name) for name in changed} == changed
