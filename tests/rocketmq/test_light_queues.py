"""Check the units of light message queues, which have messages of other topics (`INNER_MULTI_DISPATCH`)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from stores import TIME, faults_of, light

import logwright as lw
from logwright.codec.fault import Kind
from logwright.codec.rocketmq.formats.consumequeue import FILLER, UNIT

SIZES = {
    "mappedFileSizeCommitLog": 1024, "mappedFileSizeConsumeQueue": 400, "maxHashSlotNum": 8, "maxIndexNum": 100,
}  # fmt: skip
NAME = "consumequeue/%LMQ%a/0/" + "0" * 20
WIDTH = UNIT.min_size


def written(home: Path, numbers: list[int], *, lmq: bool = True) -> Path:
    """Write messages with these offsets in the light queue, each after one that is not in it."""
    rows: list[dict[str, Any]] = []
    for n, number in enumerate(numbers):
        plain = {"topic": "T", "queue_id": 0, "body": b"x" * 20}
        rows += [
            {**row, "store_timestamp_ms": TIME + 2 * n + i} for i, row in enumerate((plain, light(number)))
        ]
    lw.write(rows, home, "rocketmq.store", enableLmq=lmq, **SIZES)
    return home


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return written(tmp_path / "store", list(range(15)))


@pytest.mark.parametrize(("first", "count"), [(12, 3), (14, 1), (5, 1)])
@pytest.mark.parametrize("later", ["stay", "move"])
def test_missing_unit_of_a_light_queue_is_an_error(
    store: Path, tmp_path: Path, first: int, count: int, later: str
) -> None:
    assert faults_of(store) == []
    queue = store / NAME
    data = queue.read_bytes()
    start, stop = WIDTH * first, WIDTH * (first + count)
    gap = bytes(stop - start)
    queue.write_bytes(
        data[:start] + data[stop:] + gap if later == "move" else data[:start] + gap + data[stop:]
    )
    missing = [
        detail for path, _, detail in faults_of(store) if path == NAME and detail.startswith("no unit for")
    ]
    (text,) = missing
    assert text.startswith(f"no unit for {count} message")
    lw.repair(store, tmp_path / "out")
    assert (tmp_path / "out" / NAME).read_bytes() == data


@pytest.mark.parametrize("remains", [None, 0, 6])
def test_light_queue_that_was_deleted_is_no_damage(store: Path, remains: int | None) -> None:
    """A broker creates it again with the next message, and fills it up to that."""
    queue = store / NAME
    data = queue.read_bytes()
    if remains is None:
        shutil.rmtree(store / "consumequeue/%LMQ%a")
    else:
        filler = UNIT.pack({"physical_offset": 0, "size": FILLER, "tags_code": 0})
        queue.write_bytes(filler * remains + data[WIDTH * remains :] if remains else bytes(len(data)))
    assert faults_of(store) == []


def test_gap_in_the_offsets_of_a_light_queue_is_no_damage(tmp_path: Path) -> None:
    """A broker counts a message that it does not store, and appends the next one."""
    store = written(tmp_path / "store", [0, 1, 2, 7, 8, 9], lmq=False)
    units = (store / NAME.replace("%LMQ%a", "T")).read_bytes()
    light_units = [units[WIDTH * n : WIDTH * (n + 1)] for n in range(1, 12, 2)]
    (store / NAME).parent.mkdir(parents=True)
    (store / NAME).write_bytes(b"".join(light_units).ljust(len(units), b"\0"))
    assert faults_of(store) == []


def test_wrong_size_in_a_unit_of_a_light_queue_is_an_error(store: Path, tmp_path: Path) -> None:
    queue = store / NAME
    data = queue.read_bytes()
    queue.write_bytes(data[: WIDTH * 3 + 9] + b"\x80" + data[WIDTH * 3 + 10 :])
    assert [(path, at) for path, at, _ in faults_of(store)] == [(NAME, WIDTH * 3)]
    lw.repair(store, tmp_path / "out")
    assert (tmp_path / "out" / NAME).read_bytes() == data


def test_light_queue_without_files_is_noted_and_made_again_on_request(tmp_path: Path) -> None:
    home, out = tmp_path / "store", tmp_path / "out"
    rows = [{**light(n), "store_timestamp_ms": TIME + n} for n in range(10)]
    for row in rows[5:]:
        row["properties"] = [
            {"key": "INNER_MULTI_DISPATCH", "value": "%LMQ%b"},
            {"key": "INNER_MULTI_QUEUE_OFFSET", "value": str(row["store_timestamp_ms"] - TIME - 5)},
        ]
    lw.write(rows, home, "rocketmq.store", enableLmq=True, **SIZES)
    before = (home / NAME).read_bytes()
    shutil.rmtree(home / "consumequeue/%LMQ%a")
    report = lw.verify(home)
    assert report.ok
    (note,) = (fault.detail for _, fault in report.faults if fault.kind is Kind.LINK)
    assert note.startswith("no files of 1 light queue with messages in the log, the first is %LMQ%a")
    lw.repair(home, out, enableLmq=True)
    assert (out / NAME).read_bytes() == before
