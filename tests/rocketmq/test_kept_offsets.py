"""A repair keeps the queue offsets of queues whose messages are deleted, lost or in several queues."""

from __future__ import annotations

import shutil
from pathlib import Path
from struct import iter_unpack
from typing import Any

import pytest
from stores import SIZES, batch, light, placed, set_bytes, sizes

import logwright as lw

pytestmark = pytest.mark.filterwarnings("ignore::logwright.DamageWarning")


def test_gap_that_a_broker_left_in_a_light_queue_stays(tmp_path: Path) -> None:
    """Only where the log has lost messages, units are repeated, so that later messages keep their place in the queue."""
    options = {**SIZES, "mappedFileSizeCommitLog": 1 << 16, "enableLmq": True}
    rows = [row for n in range(8) for row in (light(n), {**light(n), "properties": [], "body": b"z" * 400})]
    lw.write(rows, tmp_path / "written", "rocketmq.store", **options)
    (log,) = (tmp_path / "written" / "commitlog").iterdir()
    data = log.read_bytes()
    for n in range(3, 8):
        data = data.replace(b"QUEUE_OFFSET\1%d" % (10 - n), b"QUEUE_OFFSET\1%d" % (12 - n))
    log.write_bytes(data)
    home, light_queue = tmp_path / "home", "consumequeue/%LMQ%a/0"
    lw.rebuild(tmp_path / "written", home, **options)

    def units(path: Path) -> list[int]:
        pairs = [
            data
            for file in sorted((path / light_queue).iterdir())
            for data in iter_unpack(">qiq", file.read_bytes())
        ]
        return [phy for phy, size, _ in pairs if size]

    before = units(home)
    assert len(before) == 8
    lw.repair(home, tmp_path / "same", **options)
    assert lw.diff(home, tmp_path / "same", by="files").equal
    log = home / "commitlog" / log.name
    lost = before[5]
    log.write_bytes(data[: lost + 4] + bytes(4) + data[lost + 8 :])
    shutil.rmtree(home / light_queue)
    for name in ("first", "second"):
        lw.repair(home, tmp_path / name, **options)
        home = tmp_path / name
        assert units(home) == [*before[:5], before[6], *before[6:]]


@pytest.mark.parametrize("unit", ["ff" * 8 + "00000064" + "00" * 8, "00" * 20], ids=["offset", "size"])
def test_damaged_unit_of_a_deleted_message_is_removed(unit: str, tmp_path: Path) -> None:
    home = placed("expired", tmp_path)
    low = min(int(path.name) for path in (home / "commitlog").iterdir())
    changed = 0
    for number, path in enumerate(sorted((home / "consumequeue").rglob("0" * 17 + "*"))):
        data = path.read_bytes()
        old = [
            i
            for i, (phy, *_) in enumerate(iter_unpack(">qiq", data))
            if 0 <= phy < low and any(data[20 * i : 20 * i + 12])
        ]
        if not old:
            continue
        changed += 1
        path.write_bytes(data[: 20 * old[-1]] + bytes.fromhex(unit) + data[20 * old[-1] + 20 :])
        lw.repair(home, tmp_path / f"{number}", **sizes("expired", home))
        assert lw.verify(tmp_path / f"{number}", as_system="5.5.0").ok
        path.write_bytes(data)
    assert changed


@pytest.mark.parametrize("rebuilt", [False, True], ids=["sound queues", "lost queue"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 200},
        {"batch_topics": "Old", "mapperFileSizeBatchConsumeQueue": 230},
    ],
    ids=["plain", "extension", "batches"],
)
def test_queue_whose_messages_are_all_deleted_keeps_its_offsets(
    rebuilt: bool, options: dict[str, Any], tmp_path: Path
) -> None:
    """Without its last file the queue would begin at 0 again, and consumers would skip new messages."""
    home, out = tmp_path / "store", tmp_path / "repaired"
    rows = [{"topic": "Old" if n < 3 else "T", "body": b"x" * 100} for n in range(40)]
    lw.write(rows, home, "rocketmq.store", **SIZES, **options)
    min((home / "commitlog").iterdir()).unlink()
    assert set(lw.read(home)["topic"].to_pylist()) == {"T"}
    old = {path.relative_to(home): path.read_bytes() for path in home.glob("*consumequeue*/Old/0/*")}
    assert len(old) == (2 if "enableConsumeQueueExt" in options else 1)
    assert not any(data[138:].strip(b"\0") for data in old.values())
    if rebuilt:
        shutil.rmtree(home / "consumequeue" / "T")
    lw.repair(home, out, **SIZES)
    assert {name: (out / name).read_bytes() for name in old} == old
    assert lw.verify(out, as_system="5.5.0", mappedFileSizeConsumeQueue=100).ok


@pytest.mark.parametrize("damaged", [False, True], ids=["sound", "damaged"])
def test_batch_queue_keeps_the_places_of_its_units_after_deleted_messages(
    damaged: bool, tmp_path: Path
) -> None:
    """Units are contiguous whatever their queue offsets, so the messages do not say where they are."""
    home, options = tmp_path / "store", {**SIZES, "mapperFileSizeBatchConsumeQueue": 230}
    rows = [batch(2 * n, 2) for n in range(40)]
    lw.write(rows, home, "rocketmq.store", batch_topics="B", **options)
    for path in sorted((home / "commitlog").iterdir())[:3]:
        path.unlink()
    queue = home / "batchconsumequeue/B/1"
    before = {path.name: path.read_bytes() for path in queue.iterdir()}
    if damaged:
        set_bytes(queue / max(before), 8, bytes(4))
    for name in ("first", "second"):
        lw.repair(home, tmp_path / name, **options)
        home = tmp_path / name
        after = {path.name: path.read_bytes() for path in (home / "batchconsumequeue/B/1").iterdir()}
        assert after == {name: before[name] for name in after}
        assert max(after) == max(before)
        assert damaged or after == before
        assert lw.verify(home, as_system="5.5.0", **options).ok


@pytest.mark.parametrize("damaged", [False, True], ids=["sound", "damaged"])
def test_light_queue_keeps_its_offsets_after_deleted_messages(damaged: bool, tmp_path: Path) -> None:
    """A broker leaves gaps in its queue offsets and appends, so the messages do not say where their units are."""
    numbers = [*range(5), *range(20, 40)]
    home = tmp_path / "store"
    lw.write([light(n) for n in numbers], home, "rocketmq.store", **SIZES)
    units = [
        data
        for path in sorted((home / "consumequeue/T/0").iterdir())
        for data in iter_unpack("20s", path.read_bytes())
    ]
    stored = b"".join(unit for (unit,) in units)
    queue = home / "consumequeue/%LMQ%a/0"
    shutil.copytree(home / "consumequeue/T/0", queue)
    for path in sorted((home / "commitlog").iterdir())[:2]:
        path.unlink()
    if damaged:
        set_bytes(queue / f"{100:020d}", 8, bytes(4))
    options = {**SIZES, "enableLmq": True}
    for name in ("first", "second"):
        lw.repair(home, tmp_path / name, **options)
        home = tmp_path / name
        after = sorted((home / "consumequeue/%LMQ%a/0").iterdir())
        data = b"".join(path.read_bytes() for path in after)
        start = int(after[0].name)
        first = data.index(stored[20 * 12 : 20 * 13])
        assert data[first:] == stored[start + first :]
        assert damaged or start == 0
        assert lw.verify(home).ok


def test_light_queue_of_a_log_that_starts_at_0_begins_with_fillers_as_a_brokers(tmp_path: Path) -> None:
    """A broker counts messages that it does not add to the queue, such as those of retry topics."""
    home, name, options = tmp_path / "store", f"consumequeue/%LMQ%a/0/{0:020d}", {**SIZES, "enableLmq": True}
    lw.write([light(n) for n in range(2, 5)], tmp_path / "written", "rocketmq.store", **SIZES)
    lw.rebuild(tmp_path / "written", home, **options)
    filler = (0, 0x7FFFFFFF, 0)
    assert list(iter_unpack(">qiq", (home / name).read_bytes()))[:2] == [filler, filler]
    lw.repair(home, tmp_path / "same", **options)
    assert lw.diff(home, tmp_path / "same", by="files").equal
    data = (home / name).read_bytes()
    set_bytes(home / name, 60, bytes(40))
    lw.repair(home, tmp_path / "out", **options)
    assert (tmp_path / "out" / name).read_bytes() == data


def test_file_of_deleted_messages_with_a_wrong_size_is_not_kept(tmp_path: Path) -> None:
    home = tmp_path / "store"
    rows = [
        {"topic": "T", "body": b"x" * 100, "store_timestamp_ms": 1_700_000_000_000 + n} for n in range(40)
    ]
    lw.write(rows, home, "rocketmq.store", **SIZES)
    for path in sorted((home / "commitlog").iterdir())[:2]:
        path.unlink()
    queue = min((home / "consumequeue/T/0").iterdir())
    queue.write_bytes(queue.read_bytes() + b"\0")
    lw.repair(home, tmp_path / "out", **SIZES)
    assert lw.verify(tmp_path / "out", as_system="5.5.0", **SIZES).ok
