"""Repair under crashes, kills and failing operations: readers see the old directory or the new one, the input of a repair out of place
is unchanged, the backup has every file changed in place, and the next run finishes or repeats the repair."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pytest
from repairable_store import DAMAGED, FRAMES_CODEC, LAYOUT, PREFIX, SALVAGED
from sampling import STEPS
from write_scenarios import SCRATCH

from logwright.codec.engine.repair import RepairPlan, Strategy
from logwright.codec.fault import LogwrightError, StorageError
from logwright.codec.option import Options
from logwright.codec.store.listing import Plan
from logwright.codec.store.roots import Roots
from logwright.readers.listing import open_listing
from logwright.readers.report import Report
from logwright.readers.target import FileTarget
from logwright.roundtrip.memory_filesystem import Failure, Interrupted, Kept, MemoryFileSystem
from logwright.writers.apply_plan import Original, PlanWriter
from logwright.writers.recover import finish_or_undo
from logwright.writers.repair_file import repair_file
from logwright.writers.stage import FileSource, FolderListing

pytestmark = pytest.mark.usefixtures("repairable_store")

INPUT, OUT, BACKUP = "/data/store", "/data/out", "/elsewhere/backup"
KEPT = [(kept, 0) for kept in Kept if kept is not Kept.SOME] + [(Kept.SOME, seed) for seed in range(4)]
Files = Mapping[str, bytes]


def mender(files: MemoryFileSystem, strategy: Strategy) -> PlanWriter:
    def make(copies: Sequence[Original], plans: Sequence[Plan]) -> RepairPlan:
        return LAYOUT.capabilities.repair.repair(
            copies, plans, strategy, Options(LAYOUT.capabilities.repair.options)
        )

    return PlanWriter(
        files,
        LAYOUT,
        lambda: [FolderListing(files, Roots(INPUT), "store")],
        make,
        Options(LAYOUT.read_options),
    )


def repair_out_of_place(files: MemoryFileSystem, strategy: Strategy) -> None:
    mender(files, strategy).beside(OUT)


def repair_in_place(files: MemoryFileSystem, strategy: Strategy) -> None:
    mender(files, strategy).in_place(INPUT, BACKUP)


def damaged_store() -> MemoryFileSystem:
    files = MemoryFileSystem()
    files.make("/elsewhere")
    for name, data in DAMAGED.items():
        files.put(f"{INPUT}/{name}", data)
    return files


Scenario = tuple[Callable[[MemoryFileSystem, Strategy], None], Strategy, str, Files | None, Files]
SCENARIOS: dict[str, Scenario] = {
    "beside": (repair_out_of_place, Strategy.SALVAGE, OUT, None, SALVAGED),
    "in place": (repair_in_place, Strategy.SALVAGE, INPUT, DAMAGED, SALVAGED),
    "in place, later files removed": (repair_in_place, Strategy.PREFIX, INPUT, DAMAGED, PREFIX),
}


def files_for_readers(files: MemoryFileSystem, path: str) -> Files | None:
    """Return the files of a directory as readers see them, or None if it does not exist."""
    if files.stat(path) is None:
        return None
    with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
        files.dump(path, scratch)
        directory = open_listing(scratch)
        contents = {entry.name: directory.read(entry.name) for entry in directory.entries()}
        assert not directory.warnings
    return contents


def check(files: MemoryFileSystem, path: str, old: Files | None, new: Files) -> bool:
    """Check the invariants at any moment. Return whether the directory is the new one."""
    contents = files_for_readers(files, path)
    assert contents in (old, new)
    if path == OUT:
        assert files_for_readers(files, INPUT) == DAMAGED
    elif contents == new:
        saved = files.tree(BACKUP)
        gone = {name: data for name, data in DAMAGED.items() if new.get(name) != data}
        assert {name: saved.get(name) for name in gone} == gone
    return contents == new


def files_after_recovery(files: MemoryFileSystem, path: str) -> Files | None:
    """Return the files of a directory after the next writer. Nothing else may be left."""
    finish_or_undo(files, LAYOUT, path)
    assert {name for name in files.tree("/data") if "/" not in name} <= {"store", "out"}
    return files.tree(path) if files.stat(path) is not None else None


def distinct(disks: Iterable[MemoryFileSystem]) -> Iterator[MemoryFileSystem]:
    """Yield disks of the same contents once."""
    known = set()
    for disk in disks:
        holds = tuple(sorted(disk.tree().items()))
        if holds not in known:
            known.add(holds)
            yield disk


@pytest.mark.alike
@pytest.mark.parametrize("name", SCENARIOS)
def test_crash_leaves_the_old_or_the_new_files(name: str) -> None:
    act, strategy, path, old, new = SCENARIOS[name]
    files = damaged_store()
    act(files, strategy)
    assert check(files, path, old, new)
    outcomes = set()
    for disk in distinct(
        files.crash(prefix, *kept) for prefix in range(len(files.trace) + 1) for kept in KEPT
    ):
        is_new = check(disk, path, old, new)
        outcomes.add(is_new)
        if not is_new:
            # The same command succeeds now, with the same backup directory.
            act(disk, strategy)
            assert check(disk, path, old, new)
            assert "backup.lock" not in disk.tree(BACKUP)
        assert files_after_recovery(disk, path) == new
    assert outcomes == {False, True}
    assert all(check(files.crash(len(files.trace), kept, seed), path, old, new) for kept, seed in KEPT)


@pytest.mark.parametrize("name", SCENARIOS)
def test_next_writer_undoes_an_unfinished_repair(name: str) -> None:
    act, strategy, path, old, new = SCENARIOS[name]
    files = damaged_store()
    act(files, strategy)
    for disk in distinct(files.killed(prefix) for prefix in range(len(files.trace) + 1)):
        is_new = check(disk, path, old, new)
        assert files_after_recovery(disk, path) == (new if is_new else old)


@pytest.mark.parametrize("name", ["in place", "in place, later files removed"])
def test_system_started_in_between_sees_no_index_of_other_bytes(name: str) -> None:
    act, strategy, path, old, new = SCENARIOS[name]
    assert old is not None
    files = damaged_store()
    act(files, strategy)
    for prefix in range(len(files.trace) + 1):
        names_there = {
            name: data
            for name, data in files.killed(prefix).tree(path).items()
            if "/" not in name and name.endswith((".toy", ".ids"))
        }
        for index, data in names_there.items():
            toy = index.replace(".ids", ".toy")
            if index.endswith(".ids") and toy in names_there:
                assert any(of.get(index) == data and of.get(toy) == names_there[toy] for of in (old, new)), (
                    f"behind change {prefix}: {index}"
                )
            else:
                assert data in (old.get(index), new.get(index))


@pytest.mark.alike
@STEPS
@pytest.mark.parametrize(
    "failure", [Failure.EIO, Failure.SHORT, None, pytest.param(Failure.ENOSPC, marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("name", SCENARIOS)
def test_any_operation_may_fail(name: str, failure: Failure | None, step: int) -> None:
    act, strategy, path, old, new = SCENARIOS[name]
    at, known = 0, set()
    while True:
        files = damaged_store()
        files.fail(at, failure)
        raised: BaseException | None = None
        try:
            act(files, strategy)
        except (LogwrightError, Interrupted) as error:
            raised = error
        if files.ticks <= at:
            break
        files.fail(-1)
        is_new = check(files, path, old, new)
        if raised is None:
            assert is_new
        elif is_new and isinstance(raised, LogwrightError):
            assert isinstance(raised, StorageError)
            assert "but cleaning up failed" in str(raised)
        if isinstance(raised, LogwrightError):
            assert raised.path
        holds = tuple(sorted(files.tree().items()))
        if not is_new and holds not in known:
            known.add(holds)
            # What could not be undone is cleaned up once the process has ended.
            disk = files.fork()
            act(disk, strategy)
            assert check(disk, path, old, new)
        at += step
    assert at > 40


# Single file

FILE = f"{INPUT}/003.toy"


def one_file(files: MemoryFileSystem, out: str | None) -> None:
    target = FileTarget(FILE, FRAMES_CODEC, {}, FileSource(files, FILE))
    backup = BACKUP if out is None else None
    repair_file(target, Strategy.SALVAGE, out, backup, False, files, Report(FILE))


@pytest.mark.parametrize("out", [None, f"{OUT}/new.toy"])
def test_single_file_survives_every_crash(out: str | None) -> None:
    files = damaged_store()
    one_file(files, out)
    old, new, files_for_readers = DAMAGED["003.toy"], SALVAGED["003.toy"], set()
    disks = (files.crash(prefix, *kept) for prefix in range(len(files.trace) + 1) for kept in KEPT)
    for disk in distinct(disks):
        is_new = _check_file(disk, out, old, new)
        files_for_readers.add(is_new)
        if not is_new:
            one_file(disk, out)
            assert _check_file(disk, out, old, new)
            assert not any(name.endswith((".tmp", ".lock")) for name in disk.tree("/"))
    assert files_for_readers == {False, True}


@pytest.mark.alike
@pytest.mark.parametrize("failure", [Failure.EIO, Failure.SHORT, None])
@pytest.mark.parametrize("out", [None, f"{OUT}/new.toy"])
def test_single_file_survives_any_failing_operation(out: str | None, failure: Failure | None) -> None:
    old, new = DAMAGED["003.toy"], SALVAGED["003.toy"]
    at = 0
    while True:
        files = damaged_store()
        files.fail(at, failure)
        raised: BaseException | None = None
        try:
            one_file(files, out)
        except (LogwrightError, Interrupted, OSError) as error:
            raised = error
        if files.ticks <= at:
            break
        files.fail(-1)
        is_new = _check_file(files, out, old, new)
        assert raised is not None or is_new
        if not is_new:
            disk = files.fork()
            one_file(disk, out)
            assert _check_file(disk, out, old, new)
        at += 1
    assert at > 15


def _check_file(files: MemoryFileSystem, out: str | None, old: bytes, new: bytes) -> bool:
    """Check the invariants at any moment. Return whether the file is repaired."""
    if out is not None:
        assert files.read(FILE) == old
        if files.stat(out) is None:
            return False
        assert files.read(out) == new
        return True
    rows = files.read(FILE)
    assert rows in (old, new)
    if rows == new:
        assert files.read(f"{BACKUP}/003.toy") == old
    return rows == new


def test_unchanged_directory_needs_no_backup() -> None:
    files = MemoryFileSystem()
    files.make("/elsewhere")
    for name, data in SALVAGED.items():
        files.put(f"{INPUT}/{name}", data)
    done = mender(files, Strategy.SALVAGE).in_place(INPUT, BACKUP)
    assert not done.written
    assert files.tree("/elsewhere") == {}
    assert files.tree(INPUT) == SALVAGED


def test_repair_into_a_mount_point() -> None:
    files = damaged_store()
    files.make(OUT)
    files.devices[OUT] = 7
    repair_out_of_place(files, Strategy.SALVAGE)
    assert files_for_readers(files, OUT) == files_after_recovery(files, OUT) == SALVAGED


def test_finished_removals_stay_whatever_the_system_did_since() -> None:
    only = {**SALVAGED, "009.ids": DAMAGED["009.ids"]}
    files = MemoryFileSystem()
    files.make("/elsewhere")
    for name, data in only.items():
        files.put(f"{INPUT}/{name}", data)
    repair_in_place(files, Strategy.SALVAGE)
    outcomes = set()
    for prefix in range(len(files.trace) + 1):
        disk = files.killed(prefix)
        committed = any(name.endswith("commit.json") for name in disk.tree(INPUT))
        if not committed or "009.ids" in disk.tree(INPUT):
            continue
        disk.put(f"{INPUT}/000.ids", b"the system's own")
        assert files_after_recovery(disk, INPUT) == {**SALVAGED, "000.ids": b"the system's own"}
        outcomes.add(prefix)
    assert outcomes
