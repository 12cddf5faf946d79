"""Rare contents of a partition: times beyond the calendar or missing, too large segments, swap files of an older format."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kafka_golden import CASES
from kafka_log import batch, record
from kafka_repairs import partition_directory
from memory_directory import MemoryDirectory

import logwright as lw
from logwright.codec.kafka.formats.log.layout import DELETE_HORIZON, TIMESTAMP_TYPE
from logwright.codec.kafka.names import segment_name
from logwright.codec.kafka.store.partition import LAYOUT
from logwright.codec.option import Options
from logwright.codec.store.listing import Entry, Plan, Role

LOG = segment_name(0, ".log")


def plan(directory: MemoryDirectory) -> Plan:
    return LAYOUT.plan(directory, Options(LAYOUT.read_options))


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([-1, -1], None),
        ([-1, 5000, -1, 3000], [datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC), datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)]),
        ([1 << 60], [1 << 60, 1 << 60]),
    ],
)  # fmt: skip
def test_timestamp_is_the_range_in_batch_headers(times: list[int], expected: object) -> None:
    data = b"".join(batch(n, [record()], base_timestamp=t, max_timestamp=t) for n, t in enumerate(times))
    directory = partition_directory({LOG: data})
    facts = LAYOUT.facts(directory, plan(directory))
    assert facts["timestamp"] == expected
    assert facts["log_end_offset"] == len(times)


def test_range_of_times_begins_with_the_first_record_of_a_batch() -> None:
    plain = batch(0, [record()], base_timestamp=2000, max_timestamp=4000)
    horizon = batch(1, [record()], base_timestamp=1, max_timestamp=3000, attributes=DELETE_HORIZON)
    appended = batch(2, [record()], base_timestamp=1, max_timestamp=5000, attributes=TIMESTAMP_TYPE)
    directory = partition_directory({LOG: plain + horizon + appended})
    times = LAYOUT.facts(directory, plan(directory))["timestamp"]
    assert [time.timestamp() for time in times] == [2, 5]


def test_ambiguous_directory_is_no_partition(tmp_path: Path) -> None:
    with pytest.raises(
        lw.UsageError, match=r"'orders' is not the name of a partition\. Name the directory TOPIC-NUMBER"
    ):
        lw.write([{"value": b"x"}], tmp_path / "orders", "kafka.partition")
    assert not list(tmp_path.iterdir())


def renamed(tmp_path: Path, name: bytes) -> str:
    """Return a partition whose directory got another name."""
    lw.write([{"value": b"x"}], tmp_path / "orders-0", "kafka.partition")
    path = os.fsdecode(os.fsencode(tmp_path) + b"/" + name)
    os.rename(tmp_path / "orders-0", path)
    return path


def test_bytes_of_a_directory_name_that_are_not_utf8_are_escaped_in_the_topic(tmp_path: Path) -> None:
    path = renamed(tmp_path, b"\xff\xfe-0")
    rows = lw.read(path)
    assert (rows["topic"].to_pylist(), rows["partition"].to_pylist()) == (["\\xff\\xfe"], [0])
    assert lw.read(path, filter="topic == '\\xff\\xfe'").num_rows == 1
    lw.convert(path, tmp_path / "rows.parquet")
    assert lw.diff(path, path).equal
    assert lw.diff(path, tmp_path / "rows.parquet", columns="topic").equal


@pytest.mark.parametrize("name", ["orders-2147483648", "orders-99999999999", "orders-\u0661"])
def test_partition_number_beyond_32_bits_or_in_other_digits_is_no_partition(
    tmp_path: Path, name: str
) -> None:
    rows = lw.read(renamed(tmp_path, name.encode()))
    assert (rows["topic"].to_pylist(), rows["partition"].to_pylist()) == ([None], [None])


class Large(MemoryDirectory):
    """A listing that reports a segment larger than allowed."""

    def entries(self) -> Sequence[Entry]:
        return [Entry(entry.name, 1 << 31) for entry in super().entries()]


def test_segment_above_2_gib_is_a_fault() -> None:
    planned = plan(Large({LOG: batch(0)}))
    (fault,) = [fault for name, fault in planned.faults if name == LOG]
    assert fault.detail == "2147483648 bytes, expected at most 2147483647 in a segment"


def test_swap_file_of_magic_0_replaces_the_segments_that_it_covers() -> None:
    old = next(CASES["v0_none"].partition.glob("*.log")).read_bytes()
    directory = partition_directory(
        {f"{LOG}.swap": old, segment_name(30, ".log"): batch(30), segment_name(0, ".index"): b""}
    )
    planned = plan(directory)
    assert planned[f"{LOG}.swap"].role is Role.PRIMARY
    assert planned[segment_name(0, ".index")].role is Role.LEFTOVER
    assert planned[segment_name(30, ".log")].role is Role.LEFTOVER


@pytest.mark.parametrize("lines", ["other 0 5\n", "orders 1 5\n", ""])
def test_checkpoint_without_this_partition(lines: str) -> None:
    count = lines.count("\n")
    above = partition_directory({"log-start-offset-checkpoint": f"0\n{count}\n{lines}".encode()}, "logs")
    planned = plan(partition_directory({LOG: batch(0)}, "orders-0", above))
    assert planned.facts["log_start_offset"] == 0
    assert not [fault for _, fault in planned.faults if "log-start-offset" in fault.detail]
