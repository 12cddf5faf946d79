"""Complete databases compared with a dictionary: operations in tables, levels and logs, read at once and by ranges of the key, in
several modes, in bounded memory, and while LevelDB changes them."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from examples import examples
from failing_disk import FailingDisk, disk, forget_failures
from hypothesis import given, settings
from hypothesis import strategies as st
from leveldb_db import Database, Op, pairs

import logwright as lw
from logwright.codec.fault import DamageError, NotFoundError
from logwright.codec.leveldb.formats.table import codec as table
from logwright.codec.leveldb.formats.table import rows
from logwright.codec.leveldb.names import log_name, table_name
from logwright.codec.leveldb.store import live
from logwright.readers import filter as filters
from logwright.readers import plan, stable_open, task
from logwright.readers.combined import Combined
from logwright.readers.report import Report
from logwright.readers.resolve import resolve
from logwright.readers.stream import Mode, ReadOptions

__all__ = ["disk"]
KEYS = st.sampled_from([b"", b"a", b"a\x00", b"ab", b"b", b"ba", b"c", b"key1", b"key10", b"key2", b"\xff"])
OPS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=4), st.integers(0, 9)), max_size=40)


def spread(ops: Sequence[tuple[bytes, bytes | None, int]]) -> Database:
    """Place operations in the order of their sequence numbers: two logs, three tables of level 0, and levels of disjoint tables."""
    database = Database()
    places: dict[int, list[Op]] = {}
    for n, (key, value, place) in enumerate(ops):
        places.setdefault(place, []).append(Op(key, n + 1, value))
    number = 20
    for place, placed in sorted(places.items()):
        if place < 2:
            database.logs[10 + place] = placed
        elif place < 5:
            database.tables.append((0, number, placed))
        else:
            keys = sorted({op.key for op in placed})
            for half in (keys[: len(keys) // 2], keys[len(keys) // 2 :]):
                if half:
                    database.tables.append((place - 4, number, [op for op in placed if op.key in half]))
                    number += 1
        number += 1
    return database


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "db"


@settings(max_examples=examples(60), deadline=None)
@given(OPS, st.sampled_from([1, 32 << 20]), st.sampled_from([1, 1024]), KEYS, KEYS)
def test_live_rows_of_operations_spread_over_files_equal_the_model(
    tmp_path_factory: pytest.TempPathFactory,
    ops: Sequence[tuple[bytes, bytes | None, int]],
    portion: int,
    passing: int,
    low: bytes,
    high: bytes,
) -> None:
    database = spread(ops)
    path = database.write(tmp_path_factory.mktemp("spread") / "db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "PORTION", portion)
        patch.setattr("logwright.codec.engine.merge.PASS_THROUGH", passing)
        assert pairs(lw.read(path)) == database.live()
        rows_read = lw.read(path, filter=[("key", ">=", low), ("key", "<", high)])
        assert pairs(rows_read) == [(key, value) for key, value in database.live() if low <= key < high]
        assert in_parts(path, 1) == database.live()
        patch.setattr(live, "IN_MEMORY", 1)
        patch.setattr(live, "SAMPLE", 1)
        assert pairs(lw.read(path)) == database.live()
        history = lw.read(path, view="history")
        assert sorted(pairs(history.filter(pc.equal(history["state"], "live")))) == database.live()
        assert len(history) == len(ops)
    shutil.rmtree(path)


def in_parts(path: Path, size: int, mode: Mode = Mode.FAILFAST) -> list[tuple[bytes, bytes]]:
    """Return rows read by independent tasks."""
    job = plan.reading(resolve(path))
    parts = pickle.loads(pickle.dumps(task.split_tasks(job.tasks, size)))
    batches = [
        batch
        for part in parts
        for batch in task.run([part], ("key", "value"), Report(str(path)), ReadOptions(mode))
    ]
    return pairs(pa.Table.from_batches(batches, job.table.schema(("key", "value"))))


def three_level_database() -> Database:
    """Three levels with the same keys, and a log."""
    levels: list[tuple[int, int, Sequence[Op]]] = []
    number = 10
    for level, step in ((1, 7), (2, 3), (3, 1)):
        keys = [b"key%04d" % n for n in range(0, 600, step)]
        for at in range(0, len(keys), 50):
            ops = [
                Op(key, 10_000 - level * 2000 + n, None if n % 11 == level else b"%d" % level)
                for n, key in enumerate(keys[at : at + 50])
            ]
            levels.append((level, number, ops))
            number += 1
    return Database(tables=levels, logs={9: [Op(b"key0100", 20_000, b"log"), Op(b"key0599", 20_001, None)]})


@pytest.mark.alike
@pytest.mark.parametrize("size", [1, 2_000, 10_000, 1 << 30])
def test_key_ranges_together_give_all_rows(place: Path, size: int) -> None:
    database = three_level_database()
    path = database.write(place)
    assert in_parts(path, size) == database.live()
    parts = task.split_tasks(plan.reading(resolve(path)).tasks, size)
    assert (len(parts) == 1) == (size == 1 << 30)
    divided = [word for part in parts for word in part.split(1)]
    assert (
        pairs(pa.Table.from_batches(list(task.run(divided, ("key", "value"), Report(""))))) == database.live()
    )


@pytest.mark.parametrize("size", [1, 2_000])
def test_damage_is_reported_once_by_all_ranges_together(place: Path, size: int) -> None:
    path = three_level_database().write(place)
    for name in (log_name(9), table_name(24)):
        data = bytearray((path / name).read_bytes())
        data[20] ^= 1
        (path / name).write_bytes(data)
    frames = lw.scan(path, mode="PERMISSIVE")
    kept = frames.to_table()
    report, batches = Report(str(path)), []
    for split in task.split_tasks(plan.reading(resolve(path)).tasks, size):
        mine = Report(str(path))
        batches += list(task.run([split], ("key", "value"), mine, ReadOptions(Mode.PERMISSIVE)))
        report.merge(mine)
    parts = pa.Table.from_batches(batches)
    assert sorted(map(str, parts.to_pylist())) == sorted(
        map(str, kept.select(parts.column_names).to_pylist())
    )
    assert parts["_corrupt_length"].null_count == len(parts) - 2
    assert report.rows == frames.report.rows == len(kept) - 2
    assert sorted(map(str, report.faults)) == sorted(map(str, frames.report.faults))
    with pytest.raises(DamageError):
        in_parts(path, size)
    with pytest.raises(DamageError, match="checksum"):
        lw.read(path)


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
def test_damaged_region_is_one_row_and_counts_for_the_limit(place: Path) -> None:
    path = three_level_database().write(place)
    data = bytearray((path / log_name(9)).read_bytes())
    data[20] ^= 1
    (path / log_name(9)).write_bytes(data)
    for limit in (0, 1, 2, 5):
        rows = lw.read(path, mode="PERMISSIVE", limit=limit, columns=["key"])
        assert len(rows) == limit
        assert rows["_corrupt_length"].null_count == max(0, limit - 1)
    bare = lw.read(path, mode="PERMISSIVE", columns=["type"], filter=[("key", "==", b"key0001")])
    assert bare["type"].to_pylist() == [None, "value"]
    history = lw.read(path, mode="PERMISSIVE", view="history")
    assert history["_corrupt_length"].null_count == len(history) - 1


def test_live_rows_of_many_tables_without_a_manifest_equal_the_model(place: Path) -> None:
    database = Database(
        tables=[
            (
                0,
                number,
                [Op(b"%02d-%d" % (number, n), number * 10 + n, None if n == 5 else b"v") for n in range(8)],
            )
            for number in range(10, 30)
        ]
    )
    database.tables.append((0, 40, [Op(b"11-2", 900, b"newest"), Op(b"25-1", 901, None)]))
    path = database.write(place)
    assert pairs(lw.read(path)) == database.live()
    for name in ("CURRENT", *(child.name for child in path.glob("MANIFEST-*"))):
        (path / name).unlink()
    # A manifest whose index is implausible.
    data = bytearray((path / table_name(12)).read_bytes())
    data[-60] ^= 1
    (path / table_name(12)).write_bytes(data)
    frames = lw.scan(path, mode="DROPMALFORMED")
    assert pairs(frames.to_table()) == database.live()
    (work,) = plan.reading(resolve(path)).tasks
    assert isinstance(work, Combined)
    assert 2 <= len(work.runs) <= 3
    assert sum(len(run.tasks) for run in work.runs) == 21


def test_level_with_overlapping_tables_loses_no_row(place: Path) -> None:
    database = Database(
        tables=[
            (1, 5, [Op(b"a", 1), Op(b"m", 2, b"old")]),
            (1, 6, [Op(b"k", 3), Op(b"m", 4, b"new"), Op(b"z", 5)]),
        ]
    )
    assert pairs(lw.read(database.write(place))) == database.live()


def test_tables_that_share_a_key_are_merged(place: Path) -> None:
    database = Database(
        tables=[
            (1, 5, [Op(b"a", 1), Op(b"m", 9, None)]),
            (1, 6, [Op(b"m", 4, b"hidden"), Op(b"z", 5)]),
        ]
    )
    path = database.write(place)
    assert pairs(lw.read(path)) == database.live()
    (work,) = plan.reading(resolve(path)).tasks
    assert isinstance(work, Combined)
    assert [len(run.tasks) for run in work.runs] == [2]
    assert in_parts(path, 1) == database.live()


def test_view_without_a_key_is_not_split(place: Path) -> None:
    (work,) = plan.reading(resolve(three_level_database().write(place))).tasks
    assert isinstance(work, Combined)
    assert len(work.split(1)) > 10
    keyless = replace(work, key=None)
    assert list(keyless.split(1)) == [keyless]
    count = sum(batch.num_rows for batch in task.run([keyless], (), Report(""), ReadOptions(filter=KEY0100)))
    assert count == 1


KEY0100 = filters.understand([("key", "==", b"key0100")], table.ROWS)

# Unreadable files


def test_unreadable_current_or_manifest_is_an_error_only_in_failfast_mode(
    place: Path, disk: FailingDisk
) -> None:
    database = three_level_database()
    path = database.write(place)
    manifest = next(path.glob("MANIFEST-*")).name
    for name in ("CURRENT", manifest):
        disk.bad = {name: [(0, 1 << 20)]}
        with pytest.raises(DamageError, match=f"IO error: {name}: the disk cannot read"):
            lw.read(path)
        with pytest.warns(lw.DamageWarning):
            assert pairs(lw.read(path, mode="DROPMALFORMED")) == database.live()
        forget_failures()


def test_readable_rows_of_unreadable_files_are_returned(place: Path, disk: FailingDisk) -> None:
    path = three_level_database().write(place)
    disk.bad = {table_name(24): [(100, 101)], log_name(9): [(40, 41)]}
    with pytest.raises(DamageError):
        lw.read(path)
    forget_failures()
    frames = lw.scan(path, mode="PERMISSIVE")
    rows_ = frames.to_table()
    forget_failures()
    assert rows_["_corrupt_length"].null_count == len(rows_) - 2
    assert {name for name, _ in frames.report.faults} == {table_name(24), log_name(9)}
    # Newer values are lost: the previous ones become visible.
    assert rows_.filter(pc.equal(rows_["key"], b"key0599"))["value"].to_pylist() != []


# In use


HOLD = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"


@pytest.fixture
def in_use(place: Path) -> Iterator[Path]:
    """A database whose lock another process holds."""
    Database(tables=[(1, 5, [Op(b"a", 1, b"old"), Op(b"b", 2, b"old")])]).write(place)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(place / "LOCK")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield place
        process.communicate()


def replaced(path: Path, number: int) -> None:
    """Replace the files as a compaction does."""
    for child in path.glob("[0-9M]*"):
        child.unlink()
    after = Database(tables=[(2, number, [Op(b"a", 3, b"new"), Op(b"c", 4, b"new")])])
    report = after.write(path.parent / f"after{number}")
    for child in report.iterdir():
        shutil.move(child, path / child.name)


def test_running_database_is_read_at_one_moment(in_use: Path, monkeypatch: Any) -> None:
    opened = task.Task.open
    changes = iter((20, 30))

    def changing(self: task.Task) -> Any:
        source = opened(self)
        if (number := next(changes, None)) is not None:
            replaced(in_use, number)
        return source

    scan = lw.scan(in_use)
    assert scan.report.live
    monkeypatch.setattr(task.Task, "open", changing)
    assert pairs(scan.to_table()) == [(b"a", b"new"), (b"c", b"new")]
    assert [file.path for file in scan.report.files] == [table_name(30)]


def test_files_deleted_before_they_are_opened_are_listed_again(in_use: Path, monkeypatch: Any) -> None:
    scan = lw.scan(in_use)
    replaced(in_use, 20)
    assert pairs(scan.to_table()) == [(b"a", b"new"), (b"c", b"new")]
    monkeypatch.setattr(stable_open, "MOST", 0)
    late = lw.scan(in_use)
    replaced(in_use, 30)
    with pytest.raises(NotFoundError):
        late.to_table()


def test_constantly_changing_database_is_read_as_it_is(in_use: Path, monkeypatch: Any) -> None:
    opened = task.Task.open
    number = 20

    def changing(self: task.Task) -> Any:
        nonlocal number
        number += 10
        source = opened(self)
        replaced(in_use, number)
        return source

    monkeypatch.setattr(task.Task, "open", changing)
    assert pairs(lw.read(in_use)) == [(b"a", b"new"), (b"c", b"new")]

    def gone(self: task.Task) -> Any:
        raise NotFoundError("gone", path=self.path)

    monkeypatch.setattr(task.Task, "open", gone)
    with pytest.raises(NotFoundError):
        lw.read(in_use)


def test_files_stay_readable_after_they_are_replaced(in_use: Path) -> None:
    batches = iter(lw.scan([in_use, in_use.parent / "db"], columns=["key"]))
    first = next(batches)
    replaced(in_use, 20)
    rest = [first, *batches]
    assert [key for batch in rest for key in batch["key"].to_pylist()] == [b"a", b"b", b"a", b"b"]


# Memory


@pytest.mark.extended
def test_memory_is_bounded_by_the_window_not_by_the_database(tmp_path: Path) -> None:
    """Two levels and a log of 40 MB each, with interleaved rows."""
    value = b"x" * 2000
    database = Database(options={"block_size": 4096})
    for level in (1, 2):
        for part in range(8):
            ops = [Op(b"%06d" % (2 * n + level), n + 1, value) for n in range(part * 2500, (part + 1) * 2500)]
            database.tables.append((level, level * 100 + part, ops))
    database.logs[5] = [Op(b"%06d" % (n * 37 % 40_000), 100_000 + n, value) for n in range(20_000)]
    path = database.write(tmp_path / "db")
    script = (
        "import sys, resource, logwright as lw\n"
        "from logwright.codec.leveldb.store import live, newest\n"
        "newest.SORT_BYTES = 4 << 20; live.IN_MEMORY = 8 << 20\n"
        "n = sum(batch.num_rows for batch in lw.scan(sys.argv[1], limit=1))\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "n = sum(batch.num_rows for batch in lw.scan(sys.argv[1]))\n"
        "print(n, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    compiled = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        capture_output=True, text=True, check=True, timeout=120, env=compiled,
    )  # fmt: skip
    count, grown = map(int, done.stdout.split())
    assert count == len(database.live())
    assert grown < 60 << 10
