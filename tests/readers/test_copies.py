"""The same partition found twice: an error, or one of the copies by option `replicas`."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logwright as lw
from logwright.codec.fault import UsageError

ID, OTHER = "q83vASNFZ4mrze8BI0VniQ", "AAAAAAAAAAAAAAAAAAAAAQ"


def partition(path: Path, rows: int, **options: Any) -> Path:
    table = pa.table({"value": [b"%d" % n for n in range(rows)]})
    lw.write(table, path, "kafka.partition", **options)
    return path


def count(*paths: Path | str, **options: Any) -> int:
    return int(lw.read([str(path) for path in paths], **options).num_rows)


@pytest.fixture
def disks(tmp_path: Path) -> Path:
    """Three copies of one partition, the second the longest, and another partition."""
    for disk, rows in (("a", 5), ("b", 9), ("c", 7)):
        (tmp_path / disk).mkdir()
        partition(tmp_path / disk / "orders-0", rows, topic_id=ID)
    partition(tmp_path / "c" / "orders-1", 100, topic_id=ID)
    return tmp_path


def test_copies_of_a_partition_are_an_error(disks: Path) -> None:
    with pytest.raises(
        UsageError,
        match=r"orders-0 is found 3 times: .*a/orders-0, .*b/orders-0, .*c/orders-0\. Set replicas=first",
    ):
        count(str(disks / "*" / "orders-*"))
    with pytest.raises(UsageError, match="orders-0 is found 2 times"):
        count(disks / "a" / "orders-0", disks / "a" / "orders-0", view="batches")
    assert count(disks / "b" / "orders-0", disks / "c" / "orders-1") == 109


@pytest.mark.parametrize(("replicas", "rows"), [("first", 105), ("longest", 109), ("LONGEST", 109)])
def test_replicas_option_chooses_a_copy(disks: Path, replicas: str, rows: int) -> None:
    assert count(str(disks / "*" / "orders-*"), replicas=replicas) == rows
    table = lw.read(str(disks / "*" / "orders-*"), replicas=replicas)
    assert sorted(set(zip(table["topic"].to_pylist(), table["partition"].to_pylist(), strict=True))) == [
        ("orders", 0),
        ("orders", 1),
    ]


def test_choosing_a_copy_keeps_the_order_of_the_rest(disks: Path) -> None:
    paths = [disks / "c" / "orders-1", disks / "a" / "orders-0", disks / "b" / "orders-0"]
    rows = lw.read(paths, replicas="longest")["partition"].to_pylist()
    assert rows == [1] * 100 + [0] * 9


def test_unknown_choice_of_copy_is_refused(disks: Path) -> None:
    with pytest.raises(UsageError, match="option replicas: 'last' is not one of first, longest"):
        count(disks / "a" / "orders-0", disks / "b" / "orders-0", replicas="last")
    assert count(disks / "a" / "orders-0", replicas="first") == 5
    assert count(str(disks / "*" / "orders-0"), view="files") > 9, "files are no copies"
    log = f"orders-0/{0:020d}.log"
    assert count(disks / "a" / log, disks / "b" / log) == 14, "nor are files that are named one by one"


def test_partition_with_another_topic_id_is_not_a_copy(disks: Path) -> None:
    (disks / "d").mkdir()
    other = partition(disks / "d" / "orders-0", 3, topic_id=OTHER)
    for options in ({}, {"replicas": "first"}):
        with pytest.raises(UsageError, match=f"called orders-0, but their ids differ.*{ID}.*{OTHER}"):
            count(disks / "a" / "orders-0", other, **options)
    (other / "partition.metadata").unlink()
    assert count(disks / "a" / "orders-0", other, replicas="first") == 5


def test_partition_being_moved_counts_as_a_copy(disks: Path) -> None:
    moved = disks / "a" / f"orders-0.{'0' * 32}-future"
    shutil.copytree(disks / "b" / "orders-0", moved)
    with pytest.raises(UsageError, match="orders-0 is found 2 times"):
        count(disks / "a" / "orders-0", moved)
    assert count(disks / "a" / "orders-0", moved, replicas="longest") == 9


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
def test_longest_copy_is_chosen_by_offsets(tmp_path: Path) -> None:
    """Not by size: segments may have been deleted or compacted in one copy, and a new segment is empty."""
    for disk in "ab":
        (tmp_path / disk).mkdir()
        partition(tmp_path / disk / "orders-0", 100, topic_id=ID, segment_bytes=1000, batch_size=200)
    long, short = tmp_path / "a" / "orders-0", tmp_path / "b" / "orders-0"
    for file in sorted(short.glob("*.log"))[-1:]:
        file.write_bytes(b"")
    for file in sorted(long.glob("*.log"))[:-1]:
        for each in long.glob(file.stem + ".*"):
            each.unlink()
    assert sum(file.stat().st_size for file in long.glob("*.log")) < sum(
        file.stat().st_size for file in short.glob("*.log")
    )
    last = int(sorted(long.glob("*.log"))[0].stem)
    assert count(long, short, replicas="longest", mode="DROPMALFORMED") == 100 - last
    (empty := tmp_path / "c" / "orders-0").mkdir(parents=True)
    shutil.copy(long / "partition.metadata", empty)
    assert count(empty, short, replicas="longest", mode="DROPMALFORMED") == last


def test_suggested_command_names_every_path_as_an_argument_of_its_own(disks: Path) -> None:
    (disks / "c d").mkdir()
    paths = [disks / "a" / "orders-0", partition(disks / "c d" / "orders-2", 3, topic_id=ID)]
    for path in paths:
        log = path / f"{0:020d}.log"
        data = bytearray(log.read_bytes())
        data[80] ^= 1
        log.write_bytes(data)
    scan = lw.scan(paths, mode="PERMISSIVE")
    scan.to_table()
    command = next(line for line in str(scan.report).splitlines() if "logwright verify" in line)
    assert shlex.split(command.removesuffix("   for details")) == ["logwright", "verify", *map(str, paths)]
