"""Databases written by several tasks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from leveldb_build import KEYS, batch, check_levels, live_rows, numbered_rows, tables

import logwright as lw
from logwright.codec.fault import UsageError
from logwright.writers.staged import StagedWrite
from logwright.writers.write import Written


def by_tasks(
    path: Path, tasks: Sequence[Sequence[dict[str, Any]]], mode: str = "error", **options: Any
) -> Written:
    staged = StagedWrite(str(path), "leveldb.db", mode, options)
    try:
        messages = []
        for number, rows in enumerate(tasks):
            task = staged.task(number)
            if rows:
                task.add(batch(rows))
            messages.append(task.commit())
        return staged.commit(messages)
    finally:
        staged.abort()


@given(
    data=st.data(), pairs=st.dictionaries(KEYS, st.binary(max_size=20), max_size=40), count=st.integers(1, 4)
)
@settings(deadline=None, max_examples=examples(40))
def test_tasks_write_the_database_of_a_single_write(
    data: st.DataObject, pairs: dict[bytes, bytes], count: int, tmp_path_factory: Any
) -> None:
    rows = [{"key": key, "value": value} for key, value in pairs.items()]
    owner = [data.draw(st.integers(0, count - 1)) for _ in rows]
    parts = [
        [row for row, item_ in zip(rows, owner, strict=True) if item_ == number] for number in range(count)
    ]
    path = tmp_path_factory.mktemp("tasks") / "db"
    size = data.draw(st.sampled_from([1, 100, 1 << 20]))
    written = by_tasks(path, parts, max_file_size=size, block_size=30)
    assert written.rows == len(rows)
    files = {child.name: child.read_bytes() for child in path.iterdir()}
    check_levels(files)
    assert lw.verify(path).ok
    assert live_rows(path) == pairs


def test_disjoint_tables_of_tasks_are_placed_and_others_merged(tmp_path: Path) -> None:
    """Tables 1 and 2 share a range of keys, the others share none."""
    parts = [numbered_rows(10, 11), numbered_rows(30, 40), numbered_rows(35, 36), [], numbered_rows(0, 1)]
    written = by_tasks(tmp_path / "db", parts)
    assert tables(tmp_path / "db") == [(1, b"0000", b"0001"), (1, b"0010", b"0011"), (1, b"0030", b"0040")]
    assert (written.rows, written.ids) == (8, {"first_sequence": 1, "last_sequence": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["db"]


def test_large_tables_of_tasks_are_merged_piecewise(tmp_path: Path) -> None:
    value = random.Random(1).randbytes(50_000)
    by_tasks(
        tmp_path / "db",
        [numbered_rows(*range(n, 90, 3), value=value) for n in range(3)],
        bloom_bits_per_key=10,
    )
    assert live_rows(tmp_path / "db") == {b"%04d" % n: value for n in range(90)}
    assert len(tables(tmp_path / "db")) == 3


def test_rows_of_the_last_task_win(tmp_path: Path) -> None:
    parts = [
        numbered_rows(1, 2, 3, value=b"first"),
        numbered_rows(2, value=b"second"),
        numbered_rows(2, 3, value=b"third"),
    ]
    with pytest.raises(UsageError, match="the key b'0002' occurs more than once"):
        by_tasks(tmp_path / "db", parts)
    assert not (tmp_path / "db").exists()
    assert by_tasks(tmp_path / "db", parts, on_duplicate="last").rows == 3
    assert live_rows(tmp_path / "db") == {b"0001": b"first", b"0002": b"third", b"0003": b"third"}


def test_tasks_append_to_a_database(tmp_path: Path) -> None:
    path = tmp_path / "db"
    by_tasks(path, [numbered_rows(*range(0, 100, 2))])
    by_tasks(path, [numbered_rows(101, 102), numbered_rows(200)], "append")
    assert [level for level, *_ in tables(path)] == [1, 1, 1], "behind all keys that are there"
    by_tasks(path, [numbered_rows(1, value=b"new"), numbered_rows(4, value=b"new")], "append")
    assert [level for level, *_ in tables(path)] == [0, 0, 1, 1, 1]
    written = by_tasks(
        path, [numbered_rows(6, value=b"newer"), numbered_rows(8, value=b"newer"), []], "append"
    )
    assert tables(path)[:3] == [(0, b"0001", b"0001"), (0, b"0004", b"0004"), (0, b"0006", b"0008")], (
        "few at level 0"
    )
    assert written.ids == {"first_sequence": 4, "last_sequence": 4}
    rows_read = live_rows(path)
    assert (rows_read[b"0001"], rows_read[b"0004"], rows_read[b"0006"], rows_read[b"0010"]) == (
        b"new",
        b"new",
        b"newer",
        b"v",
    )
    assert by_tasks(path, [[]], "append").rows == 0


def test_invalid_task_writes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="logs are written by a single writer"):
        by_tasks(tmp_path / "db", [numbered_rows(1)], write_as="logs")
    with pytest.raises(UsageError, match="some rows have sequence numbers and others do not"):
        by_tasks(tmp_path / "db", [numbered_rows(1), numbered_rows(2, sequence=4)])
    assert list(tmp_path.iterdir()) == []


def test_changed_staged_table_is_refused(tmp_path: Path) -> None:
    staged = StagedWrite(str(tmp_path / "db"), "leveldb.db", "error", {"compression": "none"})
    messages = []
    for number in range(2):
        task = staged.task(number)
        task.add(batch(numbered_rows(number, number + 5)))
        messages.append(task.commit())
    (child, _) = sorted(tmp_path.glob(".*/**/*.ldb"))
    data = bytearray(child.read_bytes())
    data[5] ^= 1
    child.write_bytes(data)
    with pytest.raises(lw.LogwrightError, match="a staged table differs from what its task wrote"):
        staged.commit(messages)
    assert list(tmp_path.iterdir()) == []
