"""A Kafka partition after every crash, kill and failure of a write, as readers and a broker see it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kafka_crash import LAYOUT, TARGET, Rows, prepared

import logwright as lw
from logwright.roundtrip.memory_filesystem import MemoryFileSystem
from logwright.writers.recover import finish_or_undo


class Reader:
    """Reads partitions from a file system in memory, equal contents once."""

    def __init__(self, scratch: Path) -> None:
        self._place = scratch / "orders-0"
        self._known: dict[object, Rows | None] = {}

    def rows(self, files: MemoryFileSystem, *, overlay: bool = True) -> Rows | None:
        """Return the rows of the directory, or None if it does not exist; without `overlay`, as the broker sees it."""
        if files.stat(TARGET) is None:
            return None
        known = (overlay, tuple(sorted(files.tree(TARGET).items())))
        if known not in self._known:
            self._place.mkdir()
            files.dump(TARGET, str(self._place))
            if not overlay:
                shutil.rmtree(self._place / LAYOUT.inner_staging, ignore_errors=True)
            report = lw.verify(self._place)
            assert report.ok, report.text()
            table = lw.read(self._place)
            self._known[known] = list(
                zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)
            )
            shutil.rmtree(self._place)
        return self._known[known]


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


def rows_after_recovery(files: MemoryFileSystem, reader: Reader) -> Rows | None:
    finish_or_undo(files, LAYOUT, TARGET)
    assert [item.name for item in files.listdir("/logs")] in ([], ["orders-0"])
    assert not any(item.directory for item in files.listdir(TARGET)) if files.stat(TARGET) else True
    return reader.rows(files, overlay=False)


@pytest.mark.alike
@pytest.mark.parametrize("name", ["append", "append by tasks", "new"])
def test_broker_started_in_between_sees_a_sound_prefix(name: str, reader: Reader) -> None:
    files, act, old, new = prepared(name)
    act(files)
    seen = []
    for prefix in range(len(files.trace) + 1):
        rows = reader.rows(files.killed(prefix), overlay=False) or []
        assert rows == new[: len(rows)]
        assert len(rows) >= len(old or [])
        seen.append(len(rows))
    assert seen == sorted(seen)
    if old is not None:
        assert len(set(seen)) > 2, "segment by segment"


def test_write_append_and_overwrite_on_a_real_disk(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    report = lw.write([{"key": "a", "value": b"1"}, {"value": "2"}], path, "kafka.partition")
    assert (report.rows, report.ids) == (2, {"first_offset": 0, "last_offset": 1})
    assert set(report.files) == {child.name for child in path.iterdir()}
    report = lw.write(lw.scan(path), path, "kafka.partition", mode="append", offsets="assign")
    assert report.ids == {"first_offset": 2, "last_offset": 3}
    table = lw.read(path)
    assert table["value"].to_pylist() == [b"1", b"2"] * 2
    lw.write(table.slice(1, 2), path, "kafka.partition", mode="overwrite", compression_type="zstd")
    assert lw.read(path).equals(table.slice(1, 2))
    assert lw.verify(path).ok
    assert [child.name for child in tmp_path.iterdir()] == ["orders-0"]


def test_partition_is_not_overwritten_by_another_kind_of_store(tmp_path: Path) -> None:
    with pytest.raises(lw.UsageError, match="not the name of a partition"):
        lw.write([{"value": "2"}], tmp_path / "orders", "kafka.partition")
    with pytest.raises(lw.UsageError):
        lw.write([{"value": 1.5}], tmp_path / "orders-0", "kafka.partition")
    assert list(tmp_path.iterdir()) == []
