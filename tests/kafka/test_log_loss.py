"""Data lost with a damaged range of a log: always offsets; record counts and times if the neighbouring batches confirm them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka_log import T, batch, record

import logwright as lw
from logwright.codec.fault import Fault

NAME = f"{0:020}.log"


def only_fault(tmp_path: Path, data: bytes, *others: str) -> Fault:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / NAME).write_bytes(data)
    for name in others:
        (folder / name).write_bytes(b"\x00\x01\x48\x67\x4b\xc7\x00\x00\x00\x00")
    ((_, fault),) = lw.verify(folder / NAME).faults
    return fault


def damaged_log(data: bytes, *places: int) -> bytes:
    out = bytearray(data)
    for place in places:
        out[place] ^= 1
    return bytes(out)


def lost(first: int, last: int, **times: int | None) -> dict[str, Any]:
    return {"topic": "orders", "partition": 0, "first_offset": first, "last_offset": last, **times}


THREE = [
    batch(0),
    batch(1, [record(i) for i in range(4)], base_timestamp=T, max_timestamp=T + 4000),
    batch(5, base_timestamp=T + 5000, max_timestamp=T + 5000),
]


def test_loss_is_exact_if_both_neighbours_agree(tmp_path: Path) -> None:
    fault = only_fault(tmp_path, damaged_log(b"".join(THREE), len(THREE[0]) + 70))
    assert fault.rows_lost == 4
    assert fault.lost == lost(1, 4, first_timestamp=T, last_timestamp=T + 4000)


def test_adjacent_damaged_batches_are_one_fault(tmp_path: Path) -> None:
    places = len(THREE[0]) + 70, len(THREE[0]) + len(THREE[1]) + 65
    fault = only_fault(tmp_path, damaged_log(b"".join(THREE) + batch(6), *places))
    assert fault.rows_lost == 5
    assert (fault.offset, fault.length) == (len(THREE[0]), len(THREE[1]) + len(THREE[2]))
    assert (fault.lost["first_offset"], fault.lost["last_offset"]) == (1, 5)


def test_separate_damaged_ranges_are_separate_faults(tmp_path: Path) -> None:
    data = b"".join([*THREE, batch(6), batch(7)])
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / NAME).write_bytes(damaged_log(data, len(THREE[0]) + 70, len(b"".join(THREE)) + 65))
    assert [fault.rows_lost for _, fault in lw.verify(folder / NAME).faults] == [4, 1]


def test_number_of_lost_rows_is_unknown_before_a_gap(tmp_path: Path) -> None:
    fault = only_fault(tmp_path, damaged_log(THREE[0] + THREE[1] + batch(9), len(THREE[0]) + 70))
    assert fault.rows_lost is None
    assert fault.lost == lost(1, 8)


def test_lost_marker_is_not_a_lost_row(tmp_path: Path) -> None:
    marker = THREE[0] + batch(1, attributes=0x30, producer_id=1) + batch(2)
    assert only_fault(tmp_path, damaged_log(marker, len(THREE[0]) + 65)).rows_lost == 0


UNKNOWN = {"first_timestamp": None, "last_timestamp": None}


@pytest.mark.parametrize("times", [(T + 5001, T + 6000), (T - 1, T), (T + 3, T + 2), (-1, -1)])
def test_times_of_a_damaged_header_that_the_batches_around_do_not_prove_are_unknown(
    times: tuple[int, int], tmp_path: Path
) -> None:
    before, after = (
        batch(0, base_timestamp=T, max_timestamp=T),
        batch(2, base_timestamp=T, max_timestamp=T + 5000),
    )
    odd = batch(1, base_timestamp=times[0], max_timestamp=times[1])
    fault = only_fault(tmp_path, damaged_log(before + odd + after, len(before) + 65))
    assert fault.rows_lost == 1
    assert fault.lost == lost(1, 1, **UNKNOWN)


def test_times_of_a_damaged_header_at_the_end_of_the_log_are_unknown(tmp_path: Path) -> None:
    fault = only_fault(tmp_path, (THREE[0] + THREE[1])[:-3])
    assert fault.lost == lost(1, 4, **UNKNOWN)
    assert "lost: offsets 1..4 (4 records, time unknown)" in " ".join(
        lw.verify(tmp_path / "orders-0").text().split()
    )


def test_torn_batch_reports_its_header(tmp_path: Path) -> None:
    fault = only_fault(tmp_path, (THREE[0] + THREE[1])[:-3])
    assert fault.rows_lost == 4
    assert (fault.lost["first_offset"], fault.lost["last_offset"]) == (1, 4)


def test_snapshot_gives_the_log_end(tmp_path: Path) -> None:
    fault = only_fault(tmp_path, (THREE[0] + THREE[1])[:-3], f"{9:020}.snapshot")
    assert fault.rows_lost is None
    assert fault.lost == lost(1, 8)


def test_loss_up_to_an_unknown_end_has_no_row_count(tmp_path: Path) -> None:
    fault = only_fault(tmp_path, THREE[0] + b"\xff" * 70)
    assert fault.rows_lost is None
    assert fault.lost == {"topic": "orders", "partition": 0, "first_offset": 1}
