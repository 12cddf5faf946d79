"""Kafka's own loader, started after any change a write makes, opens the partition and finds a prefix of complete records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka_crash import LAYOUT, OLD, TARGET, prepared

import logwright as lw
from logwright.roundtrip.memory_filesystem import MemoryFileSystem
from logwright.writers.filesystem import LocalFileSystem
from logwright.writers.recover import finish_or_undo

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("name", ["append", "append by tasks", "overwrite", "overwrite without exchange"])
def test_loader_opens_what_a_killed_writer_left(name: str, clean: bool, kafka: Any, tmp_path: Path) -> None:
    files, act, old, new = prepared(name)
    act(files)
    ends: dict[object, int] = {}
    order = []
    for prefix in range(len(files.trace) + 1):
        actual = files.killed(prefix)
        if actual.stat(TARGET) is None:
            continue
        # The loader meets the inner staging directory too; of its state only the names matter.
        known = tuple(sorted((k, v) for k, v in actual.tree(TARGET).items() if "/" not in k))
        if known not in ends:
            ends[known] = _load(actual, kafka, clean, tmp_path / str(len(ends)))
        order.append(ends[known])
    if "append" in name:
        assert order == sorted(order)
        assert order[0] == len(OLD)
        assert len(set(order)) > 2
    assert order[-1] == len(new)
    assert max(order) <= max(len(new), len(old or []))


def test_commit_is_not_finished_after_the_loader_changed_files(kafka: Any, tmp_path: Path) -> None:
    """A broker started on a half finished append creates files; the rest of the commit is then refused, or still fits."""
    files, act, old, new = prepared("append")
    act(files)
    for prefix in range(len(files.trace) + 1):
        actual = files.killed(prefix)
        if not any(path.endswith("commit.json") for path in actual.tree(TARGET)):
            continue
        path = tmp_path / str(prefix) / "orders-0"
        path.mkdir(parents=True)
        actual.dump(TARGET, str(path))
        kafka.load(path, clean=False)
        before = {file.name for file in path.iterdir()}
        refused = None
        try:
            finish_or_undo(LocalFileSystem(), LAYOUT, str(path))
        except lw.StorageError as error:
            refused = str(error)
        values = lw.read(path)["value"].to_pylist()
        if refused is None:
            assert values == [value for _, value in new]
        else:
            assert "changed since" in refused
            assert before == {file.name for file in path.iterdir()}
            assert values == [value for _, value in new][: len(values)]
            assert len(values) >= len(old or [])


def _load(files: MemoryFileSystem, kafka: Any, clean: bool, place: Path) -> int:
    path = place / "orders-0"
    path.mkdir(parents=True)
    files.dump(TARGET, str(path))
    return int(kafka.load(path, clean=clean)["log_end_offset"])
