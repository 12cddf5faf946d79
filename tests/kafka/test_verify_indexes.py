"""`verify` of indexes that other brokers wrote: true ones are right, misleading ones are found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kafka_verify import ERROR, WARNING, frame_rows, severe_faults

import logwright as lw
from logwright.codec.kafka.formats.indexes import INDEX_ENTRY, TIMEINDEX_ENTRY
from logwright.codec.kafka.names import segment_name


def index(base: int, *entries: tuple[int, int]) -> bytes:
    out = np.zeros(len(entries), INDEX_ENTRY.head_dtype)
    for i, (offset, position) in enumerate(entries):
        out[i] = offset - base, position
    return out.tobytes()


def timeindex(base: int, *entries: tuple[int, int]) -> bytes:
    out = np.zeros(len(entries), TIMEINDEX_ENTRY.head_dtype)
    for i, (timestamp, offset) in enumerate(entries):
        out[i] = timestamp, offset - base
    return out.tobytes()


Entry = Callable[[list[dict[str, Any]], int], tuple[int, int]]


CONVENTIONS: dict[str, Entry] = {
    "last of the batch": lambda rows, i: (rows[i]["last_offset"], rows[i]["position"]),
    "first of the chunk": lambda rows, i: (rows[i]["base_offset"], rows[i]["position"]),
    "last of a chunk of two": lambda rows, i: (
        rows[min(i + 1, len(rows) - 1)]["last_offset"],
        rows[i]["position"],
    ),
    "within the batch": lambda rows, i: (
        (rows[i]["base_offset"] + rows[i]["last_offset"]) // 2,
        rows[i]["position"],
    ),
}


@pytest.mark.alike
@pytest.mark.parametrize("step", [2, 3, 100])
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_index_with_only_true_entries_has_no_fault(partition: Path, convention: str, step: int) -> None:
    for base in (0, 30, 58, 86):
        rows = frame_rows(partition, base)
        entries = [CONVENTIONS[convention](rows, i) for i in range(1, len(rows), step)]
        (partition / segment_name(base, ".index")).write_bytes(index(base, *entries))
    assert severe_faults(lw.verify(partition)) == []


def test_indexes_of_a_killed_broker_end_in_zeros(partition: Path) -> None:
    for suffix in (".index", ".timeindex"):
        path = partition / segment_name(86, suffix)
        path.write_bytes(path.read_bytes()[: 12 if suffix == ".timeindex" else None].ljust(12 * 800, b"\0"))
    assert severe_faults(lw.verify(partition, clean=False)) == []


WRONG: dict[str, tuple[Callable[[list[dict[str, Any]]], bytes], str]] = {
    "an offset too low": (lambda rows: index(30, (rows[3]["base_offset"] - 1, rows[3]["position"])), "the offset is before that byte"),
    "an offset too high": (lambda rows: index(30, (700, rows[3]["position"])), "where no batch has that offset"),
    "a position within": (lambda rows: index(30, (rows[3]["last_offset"], rows[3]["position"] + 8)), "is within the batch"),
    "a position behind the end": (lambda rows: index(30, (57, 1 << 20)), "the batches end at byte"),
}  # fmt: skip


@pytest.mark.parametrize("defect", WRONG)
def test_misleading_index_is_reported(partition: Path, defect: str) -> None:
    make, message = WRONG[defect]
    (partition / segment_name(30, ".index")).write_bytes(make(frame_rows(partition, 30)))
    ((name, fault),) = severe_faults(lw.verify(partition))
    assert name == segment_name(30, ".index")
    assert message in fault.detail
    assert (fault.offset, fault.length) == (0, 8)


def test_many_wrong_entries_are_one_fault(partition: Path) -> None:
    rows = frame_rows(partition, 30)
    entries = [(row["last_offset"], row["position"] + 1) for row in rows[1:6]]
    (partition / segment_name(30, ".index")).write_bytes(index(30, *entries))
    ((_, fault),) = severe_faults(lw.verify(partition))
    assert fault.detail.endswith("; 4 other entries with the same fault")
    assert (fault.offset, fault.length) == (0, 40)


def test_misleading_timeindex_is_reported(partition: Path) -> None:
    rows = frame_rows(partition, 30)
    top = max(row["max_timestamp"] for row in rows)
    path = partition / segment_name(30, ".timeindex")
    path.write_bytes(timeindex(30, (1, rows[4]["last_offset"]), (top, 57)))
    ((_, fault),) = severe_faults(lw.verify(partition))
    assert "has timestamp 1 as the largest up to offset" in fault.detail
    assert (fault.severity, "searches by time miss records" in fault.system) == (ERROR, True)
    path.write_bytes(timeindex(30, (top - 1, rows[0]["last_offset"]), (top, 57)))
    ((_, fault),) = severe_faults(lw.verify(partition))
    assert f"has timestamp {top - 1} at offset" in fault.detail
    assert fault.severity is WARNING
    path.write_bytes(timeindex(30, (rows[0]["max_timestamp"], rows[0]["last_offset"])))
    ((_, fault),) = severe_faults(lw.verify(partition))
    assert f"the segment has {top}" in fault.detail


def test_index_below_the_recovery_point_is_trusted_after_an_unclean_stop(partition: Path) -> None:
    (partition.parent / ".kafka_cleanshutdown").unlink()
    (partition / segment_name(30, ".index")).write_bytes(index(30, (57, 1)))
    checkpoint = partition.parent / "recovery-point-offset-checkpoint"
    for text, severity in (
        ("0\n1\ndmg_base 0 58\n", ERROR),
        ("0\n1\ndmg_base 0 57\n", WARNING),
        ("0\n1\nother 0 58\n", WARNING),
        ("0\n1\nother 0\n", WARNING),
    ):
        checkpoint.write_text(text)
        ((_, fault),) = severe_faults(lw.verify(partition))
        assert fault.severity is severity, text
