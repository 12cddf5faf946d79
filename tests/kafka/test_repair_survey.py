"""Surveying a segment for a repair gives the same sound batches for any window size."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_log import NAME, batch, compressed, record
from kafka_repairs import options
from kafka_walks import BATCHES, DAMAGE, LENGTH, MAGIC, STARTS, WHOLE, Disk, planned, put, walk_by

from logwright.codec.kafka.repair.survey import SegmentSurvey, survey


def replaced(number: int, by: bytes) -> bytes:
    return WHOLE[: STARTS[number]] + by + WHOLE[STARTS[number] + len(BATCHES[number]) :]


MORE: dict[str, tuple[bytes, set[int]]] = {
    "noise of many windows": (WHOLE[: STARTS[3]] + b"\xa7" * 5000 + WHOLE[STARTS[3] :], set()),
    "zeros of many windows": (WHOLE[: STARTS[3]] + bytes(5000) + WHOLE[STARTS[3] :], set()),
    "headers that claim too much": (
        WHOLE[: STARTS[3]] + (WHOLE[STARTS[5] : STARTS[5] + 61] + b"\xa7" * 40) * 9 + WHOLE[STARTS[3] :],
        set(),
    ),
    "a delta below zero": (replaced(2, batch(20, last_offset_delta=-5)), {2}),
    "a wrong base before a damaged batch": (
        put(STARTS[2], b"\0\0\0\0\0\0\7")[: STARTS[4] - 1] + b"?" + WHOLE[STARTS[4] :],
        {2, 3},
    ),
    "a wrong magic and invalid records": (
        replaced(2, compressed(20, b"what?", "gzip", 1, magic=7)),
        {2},
    ),
    "two places": (put(STARTS[2] + MAGIC, b"\7")[: STARTS[7]] + b"\xa7" + WHOLE[STARTS[7] + 1 :], {7}),
}


def read(data: bytes, bad: list[tuple[int, int]]) -> SegmentSurvey:
    return survey(Disk(data, bad), 0, planned(data), options())


def kept(examined: SegmentSurvey, data: bytes) -> set[int]:
    """Return the numbers of the batches in the runs."""
    out = set()
    for run in (*examined.good, *examined.misplaced):
        bytes_ = run.patch + data[run.start : run.stop]
        at = 0
        while at < len(bytes_):
            out.add(int.from_bytes(bytes_[at : at + 8], "big") // 10)
            at += 12 + int.from_bytes(bytes_[at + 8 : at + 12], "big")
    return out


def summary_of(examined: SegmentSurvey) -> Any:
    return (
        [(run.start, run.stop, run.patch) for run in examined.misplaced],
        [(cut.offset, cut.length, cut.rows_lost, dict(cut.lost)) for cut in examined.cut],
    )


CASES = {**{name: (data, gone, []) for name, (data, gone) in {**DAMAGE, **MORE}.items()}}
HOLES = [(STARTS[5] + n, STARTS[5] + n + 9) for n in range(70, 900, 100)]
CASES |= {
    "not a byte": (WHOLE, set(range(10)), [(0, len(WHOLE))]),
    "the end of one": (WHOLE, {2}, [(STARTS[3] - 1, STARTS[3])]),
    "some in a row": (WHOLE, {2, 3, 4, 5}, [(STARTS[2] + 5, STARTS[6] - 5)]),
    "many places": (WHOLE, {0, 5, 9}, [(61, 62), *HOLES, (STARTS[9] + 70, len(WHOLE))]),
}  # fmt: skip


@pytest.mark.alike
@pytest.mark.parametrize("window", [61, 200, 1000])
@pytest.mark.parametrize("name", CASES)
def test_windows_of_any_size_keep_the_same_batches(
    name: str, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, gone, bad = CASES[name]
    expected = read(data, bad)
    # If only fields outside of the checksum are wrong, the batch can be repaired.
    assert kept(expected, data) >= set(range(10)) - gone
    walk_by(window, monkeypatch)
    examined = read(data, bad)
    assert kept(examined, data) == kept(expected, data)
    assert summary_of(examined) == summary_of(expected)


def test_runs_continue_over_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join(batch(n, [record(value=b"x" * 30)]) for n in range(50))
    walk_by(500, monkeypatch)
    (run,) = read(data, []).good
    assert (run.start, run.stop, run.first, run.last) == (0, len(data), 0, 49)


@pytest.mark.parametrize("cut", [1, 100, 300])
def test_batches_before_a_truncation_during_the_repair_are_kept(cut: int) -> None:
    expected = {n for n in range(10) if STARTS[n] + len(BATCHES[n]) <= len(WHOLE) - cut}
    for data in (WHOLE, put(STARTS[7] + LENGTH, b"\0\0\0\0")):
        examined = survey(Disk(data[:-cut]), 0, planned(WHOLE), options())
        assert kept(examined, data) >= expected - {7}
        assert all(cut.file == NAME for cut in examined.cut)
