"""Compare the units of consume queues with the messages of the commit log."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from stores import LARGER, SIZES, faults_of, flip

import logwright as lw
from logwright.codec.fault import Severity
from logwright.codec.rocketmq.formats.consumequeue import FILLER, UNIT

TAGGED: list[dict[str, Any]] = [
    {"topic": "T", "queue_id": 0, "body": b"1", "tags": "TagA"},
    {"topic": "T", "queue_id": 0, "body": b"2"},
    {"topic": "T", "queue_id": 0, "body": b"3", "tags": "größer 🙂 TagB"},
    {"topic": "T", "queue_id": 0, "body": b"4", "tags": "TagA", "properties": [("DELAY", "3")]},
]


@pytest.mark.parametrize("depth", ["records", "checksums"])
@pytest.mark.parametrize("unit", range(3))
def test_tags_code_of_a_unit_is_the_hash_of_the_tags_of_its_message(
    tmp_path: Path, unit: int, depth: str
) -> None:
    store = tmp_path / "store"
    lw.write(TAGGED, store, "rocketmq.store", **LARGER)
    assert lw.verify(store).ok
    (queue,) = (store / "consumequeue").rglob("0" * 20)
    flip(queue, 20 * unit + 19)
    faults = [
        (path, fault.offset, fault.detail) for path, fault in lw.verify(store, depth=depth).faults
        if fault.severity is Severity.ERROR
    ]  # fmt: skip
    if depth == "checksums":
        assert faults == []  # properties are not read
        return
    ((path, offset, detail),) = faults
    assert (path, offset) == (str(queue.relative_to(store)), 20 * unit)
    assert re.fullmatch(r"the tags code is (-?\d+), but the hash of the message's tags is (-?\d+)", detail)
    assert not lw.repair(store, tmp_path / "out").incomplete
    assert lw.verify(tmp_path / "out").ok


def test_tags_code_is_compared_in_a_queue_with_other_faults(tmp_path: Path) -> None:
    store = tmp_path / "store"
    lw.write(TAGGED, store, "rocketmq.store", **LARGER)
    (queue,) = (store / "consumequeue").rglob("0" * 20)
    flip(queue, 7)
    flip(queue, 20 * 2 + 19)
    offsets = sorted(fault.offset for path, fault in lw.verify(store).faults if "tags code" in fault.detail)
    assert offsets == [40]


def test_extension_that_units_lead_to_must_exist(tmp_path: Path) -> None:
    store = tmp_path / "store"
    rows = [{"topic": "T", "queue_id": 0, "body": b"x", "tags": "A"} for _ in range(30)]
    lw.write(
        rows, store, "rocketmq.store", enableConsumeQueueExt=True, mappedFileSizeConsumeQueueExt=512, **LARGER
    )
    assert faults_of(store) == []
    files = sorted((store / "consumequeue_ext").rglob("0" * 10 + "*"))
    assert len(files) > 1
    files[0].unlink()
    ((path, _, detail),) = faults_of(store)
    assert path.startswith("consumequeue/T/0/")
    assert "but its files of this queue begin at 512" in detail
    shutil.rmtree(store / "consumequeue_ext")
    ((_, _, detail),) = faults_of(store)
    assert detail.endswith("are missing")
    lw.repair(store, tmp_path / "out")
    assert faults_of(tmp_path / "out") == []


@pytest.mark.parametrize("damage", ["file", "address"])
def test_repair_rebuilds_the_extension_that_units_lead_to(damage: str, tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    rows = [{"topic": "T", "queue_id": n % 2, "body": b"x", "tags": "A"} for n in range(30)]
    options = {"enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 512, **LARGER}
    lw.write(rows, store, "rocketmq.store", **options)
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    if damage == "file":
        shutil.rmtree(store / "consumequeue_ext/T/1")
    else:
        queue = store / f"consumequeue/T/1/{0:020d}"
        data = bytearray(queue.read_bytes())
        data[UNIT.min_size + UNIT.offset("tags_code") + 5] ^= 1
        queue.write_bytes(data)
    lw.repair(store, out, **options)
    assert {path: (out / path.relative_to(store)).read_bytes() for path in before} == before


def test_queue_file_that_is_shorter_than_others_is_damage(keyed: Path, tmp_path: Path) -> None:
    """A broker does not load a store with such a file."""
    queue = sorted((keyed / "consumequeue").rglob("0" * 10 + "*"))[1]
    queue.write_bytes(queue.read_bytes()[:-20])
    report = lw.verify(keyed, as_system="5.5.0")
    assert not report.ok
    assert report.system is not None
    assert not report.system["opens"]
    assert [detail for _, _, detail in faults_of(keyed)] == [
        "the file has 380 bytes, expected 400 like the other files"
    ]
    lw.repair(keyed, tmp_path / "out")
    assert faults_of(tmp_path / "out") == []


def test_messages_that_are_not_dispatched_yet_are_no_damage_after_an_unclean_stop(tmp_path: Path) -> None:
    """A broker adds messages to their queues in log order, so only units of the last messages may be missing."""
    rows = [
        {"topic": "T", "queue_id": n % 2, "body": b"x" * 30, "store_timestamp_ms": n + 1} for n in range(6)
    ]
    home = tmp_path / "store"
    lw.write(rows, home, "rocketmq.store", **SIZES)
    queues = [home / f"consumequeue/T/{n}/00000000000000000000" for n in range(2)]
    content = [queue.read_bytes() for queue in queues]
    queues[1].write_bytes(content[1][:40].ljust(len(content[1]), b"\0"))
    assert any("no unit for 1 message of queue 1 of T" in detail for _, _, detail in faults_of(home))
    (home / "abort").write_text("1")
    report = lw.verify(home)
    notes = [str(fault.detail) for _, fault in report.faults]
    assert report.ok
    assert any(note.startswith("no unit yet for the last message of the log") for note in notes), notes
    assert not lw.verify(home, clean=True).ok
    queues[1].write_bytes(content[1])
    queues[0].write_bytes(content[0][:40].ljust(len(content[0]), b"\0"))
    assert any("no unit for 1 message of queue 0 of T" in detail for _, _, detail in faults_of(home))


def test_queue_begins_after_its_deleted_messages(tmp_path: Path) -> None:
    """As in a broker. A queue whose messages are all deleted has the offset of its next one."""
    home = tmp_path / "store"
    rows = [{"topic": "Old" if n < 3 else "T", "body": b"x" * 100} for n in range(40)]
    lw.write(rows, home, "rocketmq.store", **SIZES)
    low = len(lw.read(home))
    min((home / "commitlog").iterdir()).unlink()
    low -= len(lw.read(home))
    plain = lw.read(home, view="queues").to_pylist()
    assert plain == lw.read(home, view="queues", mode="AS_SYSTEM").to_pylist()
    names = ("topic", "min_offset", "max_offset", "messages", "gaps")
    assert [tuple(row[name] for name in names) for row in plain] == [
        ("Old", 3, 3, 0, 0),
        ("T", low - 3, 37, 40 - low, 0),
    ]


def test_fillers_after_the_units_of_a_queue_are_an_error(tmp_path: Path) -> None:
    """A broker counts them, so the next message has another queue offset. It writes fillers only at the start of a queue."""
    home = tmp_path / "store"
    rows = [{"topic": "T", "body": b"x", "store_timestamp_ms": 1_700_000_000_000 + n} for n in range(7)]
    lw.write(rows, home, "rocketmq.store", **SIZES)
    queue = home / f"consumequeue/T/0/{100:020d}"
    data = queue.read_bytes()
    queue.write_bytes(
        data[:40] + UNIT.pack({"physical_offset": 0, "size": FILLER, "tags_code": 0}) + data[60:]
    )
    (fault,) = faults_of(home)
    assert fault == (str(queue.relative_to(home)), 40, "1 filler after the units of messages")
    lw.repair(home, tmp_path / "out", **SIZES)
    assert (tmp_path / "out" / queue.relative_to(home)).read_bytes() == data


@pytest.mark.parametrize("listed", [False, True])
def test_queue_without_messages_points_to_none_of_other_queues(listed: bool, tmp_path: Path) -> None:
    properties = [{"key": "INNER_MULTI_DISPATCH", "value": "Other"}] if listed else []
    rows = [{"topic": "T", "queue_id": 0, "body": b"1", "properties": properties} for _ in range(3)]
    lw.write(rows, tmp_path / "store", "rocketmq.store", **SIZES)
    shutil.copytree(tmp_path / "store/consumequeue/T", tmp_path / "store/consumequeue/Other")
    report = lw.verify(tmp_path / "store", **SIZES)
    assert report.ok == listed
    details = [fault["detail"] for file in report.to_dict()["files"] for fault in file["faults"]]
    assert listed != any("there is no undamaged message of this queue" in detail for detail in details)
