"""Write, append, overwrite and repair a data directory with separate logs through every crash: readers see the old or the new rows, and a
server started in between has either of them, a prefix of the appended rows, or refuses to start."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sampling import STEPS
from zookeeper_startup import DATA_LOG_DIR, data_directory, memory_of, server, start

import logwright as lw
from logwright.codec import registry
from logwright.codec.engine.repair import RepairPlan, Strategy
from logwright.codec.fault import NotFoundError
from logwright.codec.option import Options
from logwright.codec.store.listing import Plan
from logwright.roundtrip.memory_filesystem import Kept, MemoryFileSystem
from logwright.writers.apply_plan import Original, PlanWriter
from logwright.writers.recover import finish_or_undo
from logwright.writers.staged import StagedWrite
from logwright.writers.target import Target
from logwright.writers.write import write

LAYOUT = registry.get_layout("zookeeper.datadir")
SMALL = {"txnLogSizeLimitInKb": 1, "preAllocSize": 0}
OLD = [{"path": f"/old-{i}", "data": bytes(600)} for i in range(4)]
NEW = [{"path": f"/new-{i}", "data": bytes(700)} for i in range(4)]


class Places:
    """The two directories, in memory and (to be read) under the same paths on the disk."""

    def __init__(self, at: Path) -> None:
        self.at = at
        self.data, self.logs = str(at / "zk/data/version-2"), str(at / "other/datalog/version-2")
        self.backup = str(at / "elsewhere/backup")

    def nothing(self) -> MemoryFileSystem:
        files = MemoryFileSystem()
        files.make(str(self.at / "zk"))
        files.make(str(self.at / "other"))
        files.make(str(self.at / "elsewhere"))
        return files.fork()

    def holding(self, held: dict[str, bytes]) -> MemoryFileSystem:
        files = self.nothing()
        files.make(self.data)
        files.make(self.logs)
        for name, data in held.items():
            folder = self.logs if name.startswith("log.") else self.data
            files.put(f"{folder}/{name.rpartition('/')[2]}", data)
        return files.fork()

    def tree(self, files: MemoryFileSystem) -> dict[str, bytes | None]:
        own = {f"data/{name}": data for name, data in files.tree(self.data).items()}
        return own | {f"logs/{name}": data for name, data in files.tree(self.logs).items()}

    def put(self, files: MemoryFileSystem, rows: list[dict[str, Any]], mode: str, **options: Any) -> None:
        write(rows, self.data, LAYOUT, mode=mode, files=files, dataLogDir=self.logs, **options)

    def rows(self, files: MemoryFileSystem) -> list[tuple[str, bytes]] | None:
        """Return the rows readers see; None if there is no directory."""
        for place in (self.data, self.logs):
            shutil.rmtree(place, ignore_errors=True)
            if files.stat(place) is not None:
                Path(place).mkdir(parents=True)
                files.dump(place, place)
        try:
            table = lw.scan(
                self.data, codec="zookeeper.datadir", dataLogDir=self.logs, mode="DROPMALFORMED"
            ).to_table()
        except NotFoundError:
            return None
        own = [row for row in table.select(["path", "data"]).to_pylist() if "zookeeper" not in row["path"]]
        return [(row["path"], row["data"]) for row in own if row["path"] != "/"]

    def served(self, files: MemoryFileSystem) -> tuple[int | None, str]:
        """Return the last transaction of a server started on the files, and the error if it does not start."""
        held = {
            prefix + name: data
            for prefix, place in (("", self.data), (f"{DATA_LOG_DIR}/", self.logs))
            for name, data in files.tree(place).items()
            if "/" not in name and data is not None
        }
        # A server knows of the other directory though it is empty.
        opened = start(data_directory(held | {f"{DATA_LOG_DIR}/readme": b""}))
        verdict = opened.verdict
        return (server(opened).restored.zxid, "") if verdict.opens else (None, verdict.error or "")


def old_of(at: Places) -> MemoryFileSystem:
    files = at.nothing()
    at.put(files, OLD, "error", write_as="logs", **SMALL)
    return files.fork()


def by_tasks(at: Places, files: MemoryFileSystem, mode: str, **options: Any) -> None:
    staged = StagedWrite(at.data, LAYOUT, mode, {DATA_LOG_DIR: at.logs, **options}, files=files)
    messages = []
    for number in (0, 1):
        task = staged.task(number)
        for batch in lw_batches(NEW[number * 2 : number * 2 + 2]):
            task.add(batch)
        messages.append(task.commit())
    staged.commit(messages)


def lw_batches(rows: list[dict[str, Any]]) -> Any:
    return pa.Table.from_pylist(rows).to_batches()


def repaired(case: str, strategy: Strategy | None, at: Places, files: MemoryFileSystem) -> None:
    """Repair in place, or rebuild if `strategy` is None."""
    repairs = LAYOUT.capabilities.repair
    assert repairs is not None
    reading = Options(LAYOUT.read_options, {DATA_LOG_DIR: at.logs})

    def make(copies: Sequence[Original], plans: Sequence[Plan]) -> RepairPlan:
        if strategy is None:
            return repairs.rebuild(copies[0], plans[0], repairs.rebuilds, Options(repairs.options))
        return repairs.repair(copies, plans, strategy, Options(repairs.options))

    def copies() -> list[Any]:
        return [Target(files, LAYOUT, at.data, "version-2", {DATA_LOG_DIR: at.logs}).listing()]

    PlanWriter(files, LAYOUT, copies, make, reading, gathers=False).in_place(at.data, at.backup)


@pytest.mark.parametrize(
    ("case", "strategy"),
    [
        pytest.param("dmg_flip_body", Strategy.PREFIX, marks=pytest.mark.extended),
        ("dmg_mid_missing", Strategy.SALVAGE),
        pytest.param("dmg_snap_all_flip", Strategy.PREFIX, marks=pytest.mark.nightly),
        pytest.param("dmg_fixed_left", Strategy.PREFIX, marks=pytest.mark.nightly),
        pytest.param("dmg_mid_missing", Strategy.PREFIX, marks=pytest.mark.nightly),
        ("basic", None),
    ],
)
@STEPS
@pytest.mark.filterwarnings("ignore::logwright.codec.fault.DamageWarning")
def test_crash_during_repair_in_place_leaves_the_old_or_the_new(
    case: str, strategy: Strategy | None, tmp_path: Path, step: int
) -> None:
    at = Places(tmp_path)
    files = at.holding(memory_of(case).files)
    old, ran, was = at.rows(files), at.served(files)[0], at.tree(files)
    repaired(case, strategy, at, files)
    new, runs, now = at.rows(files), at.served(files)[0], at.tree(files)
    assert None not in (runs, new)
    assert runs is not None
    assert now != was
    assert not any(name.startswith(("data/log.", "logs/snapshot.")) for name in now)
    check(at, files, (old, new), (was, now), (ran, runs), step, grows=False, goes_on=False)
    saved = {name: data for name, data in files.tree(at.backup).items() if data is not None}
    changed = {name: data for name, data in was.items() if now.get(name) != data and data is not None}
    for name, data in changed.items():
        folder, _, inner = name.partition("/")
        assert saved[inner if folder == "data" else f"{DATA_LOG_DIR}/{inner}"] == data


Act = Callable[[Places, MemoryFileSystem], None]
SCENARIOS: dict[str, tuple[Callable[[Places], MemoryFileSystem], Act, bool]] = {
    "new snapshot": (Places.nothing, lambda at, on: at.put(on, NEW, "error"), False),
    "new logs": (Places.nothing, lambda at, on: at.put(on, NEW, "error", write_as="logs", **SMALL), True),
    "append": (old_of, lambda at, on: at.put(on, NEW, "append", **SMALL), True),
    "overwrite by a snapshot": (old_of, lambda at, on: at.put(on, NEW, "overwrite"), False),
    "overwrite by logs": (old_of, lambda at, on: at.put(on, NEW, "overwrite", write_as="logs", **SMALL), False),
    "append by tasks": (old_of, lambda at, on: by_tasks(at, on, "append", **SMALL), True),
    "overwrite by tasks": (old_of, lambda at, on: by_tasks(at, on, "overwrite"), False),
}  # fmt: skip


# One that starts with nothing, one that grows by tasks, one that replaces.
SAMPLE = {"new logs", "append by tasks", "overwrite by a snapshot"}


@pytest.mark.alike
@STEPS
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in SAMPLE else pytest.mark.extended) for name in SCENARIOS],
)
def test_crash_during_a_write_leaves_the_old_or_the_new(name: str, tmp_path: Path, step: int) -> None:
    at = Places(tmp_path)
    before, act, grows = SCENARIOS[name]
    files = before(at)
    old, ran, was = at.rows(files), at.served(files)[0], at.tree(files)
    act(at, files)
    new, runs, now = at.rows(files), at.served(files)[0], at.tree(files)
    assert runs is not None
    assert new is not None
    logs = name not in ("new snapshot", "overwrite by a snapshot", "overwrite by tasks")
    assert any(item.startswith("logs/log.") for item in now) is logs
    assert not any(item.startswith("data/log.") or "logwright" in item for item in now)
    check(at, files, (old, new), (was, now), (ran or 0, runs), step, grows)


def check(
    at: Places,
    files: MemoryFileSystem,
    rows: Any,
    trees: Any,
    zxids: tuple[int | None, int],
    step: int,
    grows: bool,
    goes_on: bool = True,
) -> None:
    old, new = rows
    seen: set[bool] = set()
    known: set[object] = set()
    for prefix in range(0, len(files.trace) + 1, step):
        started, why = at.served(files.killed(prefix))
        if started is None and zxids[0] is not None:
            assert why.startswith("Snapshot directory has log files")
        elif grows:
            assert started in range(zxids[0] or 0, zxids[1] + 1)
        else:
            assert started in zxids
        for kept in (Kept.NOTHING, Kept.ALL, Kept.NAMES, Kept.SOME):
            actual = files.crash(prefix, kept, prefix)
            holds = tuple(sorted(actual.tree().items()))
            if holds in known:
                continue
            known.add(holds)
            read = at.rows(actual)
            assert (read or []) in ((old or []), new), f"behind change {prefix}, with {kept} kept"
            # A writer that opens the other directory alone also finishes the commit.
            other = actual.fork()
            if other.stat(at.logs) is not None:
                finish_or_undo(other, LAYOUT, at.logs)
                assert (at.rows(other) or []) == (read or [])
                place = {name for name in at.tree(other) if name.startswith("logs/.logwright/")}
                assert not place
            finish_or_undo(actual, LAYOUT, at.data)
            left = {name: data for name, data in at.tree(actual).items() if data is not None}
            assert (read or []) == (at.rows(actual) or [])
            ours = {name: data for name, data in left.items() if ".logwright" not in name}
            assert ours in trees
            assert old == new or (ours == trees[1]) is (read == new)
            seen.add(ours == trees[1])
            if not goes_on:
                continue
            # The next write removes files an earlier one staged in the other directory.
            at.put(actual, [{"path": "/next", "data": b"1"}], "append")
            assert not any(".logwright" in name for name in at.tree(actual))
            assert at.served(actual)[0] is not None
    assert seen == {False, True}
