"""Correct topics, queue ids, queue offsets and ports of messages, which no checksum covers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from stores import LARGER, ROWS, SIZES, placed, set_bytes, sizes

import logwright as lw
from logwright.codec.rocketmq.formats.commitlog.layout import MESSAGE, STORE_HOST

pytestmark = pytest.mark.filterwarnings("ignore::logwright.DamageWarning")


def test_message_stored_twice_is_a_warning(tmp_path: Path) -> None:
    """No repair can give it another queue offset."""
    home, out = placed("hand_dup", tmp_path), tmp_path / "out"
    options = sizes("hand_dup", home)
    for place in (home, out):
        report = lw.verify(place, **options)
        assert report.ok
        assert "queue 0 of T: message 3 is stored twice" in report.text()
        if place is home:
            lw.repair(home, out, **options)
    assert (out / "commitlog/00000000000000000000").read_bytes() == (
        home / "commitlog/00000000000000000000"
    ).read_bytes()


@pytest.mark.alike
@pytest.mark.parametrize("queues", [True, False])
@pytest.mark.parametrize("number", [0, 20, *(pytest.param(n, marks=pytest.mark.extended) for n in (7, 39))])
@pytest.mark.parametrize(
    ("name", "width", "value"),
    [("queue_id", 4, 2), ("queue_id", 4, 9), ("queue_offset", 8, 2), ("queue_offset", 8, 1 << 60)],
)
def test_wrong_queue_id_or_offset_is_corrected(
    name: str, width: int, value: int, number: int, queues: bool, tmp_path: Path
) -> None:
    """With consume queues at any place, without them if no other message of the queue fits there."""
    home, out = tmp_path / "store", tmp_path / "out"
    lw.write(ROWS, home, "rocketmq.store", **{**SIZES, "mappedFileSizeCommitLog": 16384})
    (log,) = (home / "commitlog").iterdir()
    sound = log.read_bytes()
    if not queues and (number in (0, 39) or name == "queue_id"):
        pytest.skip("another message may fit in its place")
    at = lw.read(home)["physical_offset"][number].as_py() + MESSAGE.offset(name)
    if sound[at : at + width] == value.to_bytes(width, "big"):
        value = 1
    log.write_bytes(sound[:at] + value.to_bytes(width, "big") + sound[at + width :])
    if not queues:
        shutil.rmtree(home / "consumequeue")
    assert not lw.verify(home).ok
    lw.repair(home, out)
    assert (out / "commitlog" / log.name).read_bytes() == sound


@pytest.mark.alike
@pytest.mark.parametrize("topic", [b"T0", b"T5", b"T\xb1", b"\0\xff"])
@pytest.mark.parametrize("number", [1, 7, 39])
def test_wrong_topic_is_corrected_if_a_queue_lists_the_message(
    topic: bytes, number: int, tmp_path: Path
) -> None:
    home, out = tmp_path / "store", tmp_path / "out"
    lw.write(ROWS, home, "rocketmq.store", **{**SIZES, "mappedFileSizeCommitLog": 16384})
    (log,) = (home / "commitlog").iterdir()
    sound = log.read_bytes()
    at = sound.index(b"T1", lw.read(home)["physical_offset"][number].as_py())
    log.write_bytes(sound[:at] + topic + sound[at + 2 :])
    lw.repair(home, out)
    assert (out / "commitlog" / log.name).read_bytes() == sound


@pytest.mark.parametrize("topic", [b"T5", b"\0\xff", b"..", b"a/"])
def test_wrong_topic_that_nothing_proves_is_kept(topic: bytes, tmp_path: Path) -> None:
    """A topic that cannot be the name of a folder has no queue."""
    home, out = tmp_path / "store", tmp_path / "out"
    lw.write(ROWS, home, "rocketmq.store", **{**SIZES, "mappedFileSizeCommitLog": 16384})
    (log,) = (home / "commitlog").iterdir()
    data = log.read_bytes()
    at = data.index(b"T1", lw.read(home)["physical_offset"][7].as_py())
    log.write_bytes(data[:at] + topic + data[at + 2 :])
    shutil.move(home / "consumequeue/T1", home / "consumequeue/T7")
    lw.repair(home, out)
    assert (out / "commitlog" / log.name).read_bytes() == log.read_bytes()
    folders = {path.name for path in (out / "consumequeue").iterdir()}
    assert folders == {"T0", "T1"} | ({"T5"} if topic == b"T5" else set())


def test_wrong_flag_of_a_message_does_not_make_its_topic_one_with_batches(tmp_path: Path) -> None:
    """A broker does not load a store with a batch consume queue and a consume queue of the same topic."""
    home = tmp_path / "store"
    lw.write(ROWS, home, "rocketmq.store", **SIZES)
    shutil.rmtree(home / "config")
    log = min((home / "commitlog").iterdir())
    set_bytes(log, MESSAGE.offset("sys_flag"), (0x80).to_bytes(4, "big"))
    shutil.rmtree(home / "index")
    set_bytes(next((home / "consumequeue").rglob("0*0")), 8, bytes(4))
    lw.repair(home, tmp_path / "out", **SIZES)
    assert not (tmp_path / "out/batchconsumequeue").exists()
    assert lw.verify(tmp_path / "out", as_system="5.5.0", **SIZES).ok


def test_negative_queue_offset_of_the_first_message_is_corrected(five: Path, tmp_path: Path) -> None:
    log = five / f"commitlog/{0:020d}"
    before = log.read_bytes()
    set_bytes(log, MESSAGE.offset("queue_offset"), b"\xff" * 8)
    assert "file should be -" not in lw.verify(five).text()
    lw.repair(five, tmp_path / "out")
    assert (tmp_path / "out" / log.relative_to(five)).read_bytes() == before


def test_wrong_queue_offset_next_to_a_lost_message_is_corrected(tmp_path: Path) -> None:
    """The message before has another queue offset than the previous one, but the queue lists the message."""
    home, out = tmp_path / "store", tmp_path / "out"
    lw.write(ROWS, home, "rocketmq.store", **LARGER)
    own = [row for row in lw.read(home).to_pylist() if (row["topic"], row["queue_id"]) == ("T1", 1)]
    log, lost, wrong = home / f"commitlog/{0:020d}", own[-2], own[-1]
    sound = log.read_bytes()
    set_bytes(log, lost["physical_offset"] + MESSAGE.offset("magic_code"), bytes(4))
    set_bytes(log, wrong["physical_offset"] + MESSAGE.offset("queue_offset"), bytes(8))
    lw.repair(home, out)
    at = wrong["physical_offset"]
    assert (out / "commitlog" / log.name).read_bytes()[at:] == sound[at:]
    assert lw.verify(out).ok


@pytest.mark.parametrize(("number", "value"), [(2, 30), (-1, 1 << 40)])
def test_wrong_queue_offset_is_not_counted_as_lost_messages(number: int, value: int, tmp_path: Path) -> None:
    """The next message of the queue continues before it, or the missing ones do not fit between the two."""
    home = tmp_path / "store"
    lw.write(ROWS, home, "rocketmq.store", **LARGER)
    own = [row for row in lw.read(home).to_pylist() if (row["topic"], row["queue_id"]) == ("T1", 1)]
    lost, wrong = (own[i]["physical_offset"] for i in (number - 1, number))
    log = home / f"commitlog/{0:020d}"
    set_bytes(log, lost + MESSAGE.offset("magic_code"), bytes(4))
    set_bytes(log, wrong + MESSAGE.offset("queue_offset"), value.to_bytes(8, "big"))
    (fault,) = (
        fault for _, fault in lw.verify(home).faults if f"followed by message {value}" in fault.detail
    )
    assert fault.rows_lost == 0


def test_message_is_not_moved_to_a_queue_that_lacks_a_lost_one(tmp_path: Path) -> None:
    """It has the queue offset that is missing there. But the log lacks bytes at that place, which were the missing message."""
    home, out = tmp_path / "store", tmp_path / "out"
    rows = [{"topic": "T", "queue_id": n % 2, "body": b"x" * (50 + n)} for n in range(8)]
    lw.write(rows, home, "rocketmq.store", **LARGER)
    columns = ["physical_offset", "queue_id", "queue_offset"]
    expected = lw.read(home, columns=columns).to_pylist()
    lost, wrong = expected[3]["physical_offset"], expected[4]["physical_offset"]
    log = home / f"commitlog/{0:020d}"
    set_bytes(log, lost + MESSAGE.offset("magic_code"), bytes(4))
    set_bytes(log, wrong + MESSAGE.offset("queue_offset"), (7).to_bytes(8, "big"))
    shutil.rmtree(home / "consumequeue")
    lw.repair(home, out)
    assert lw.read(out, columns=columns).to_pylist() == [*expected[:3], *expected[4:]]


@pytest.mark.parametrize("count", [1, 6])
def test_wrong_queue_offset_of_the_only_message_in_a_queue_file_is_corrected(
    count: int, tmp_path: Path
) -> None:
    """The file is not renamed: other messages of the queue, or the start of the log, contradict the stored queue offset."""
    home, out = tmp_path / "store", tmp_path / "out"
    rows = [{"topic": "T", "body": b"x" * 50} for _ in range(count)]
    lw.write(rows, home, "rocketmq.store", **{**LARGER, "mappedFileSizeConsumeQueue": 100})
    log = home / f"commitlog/{0:020d}"
    before = log.read_bytes()
    last = lw.read(home)["physical_offset"][-1].as_py()
    set_bytes(log, last + MESSAGE.offset("queue_offset"), (1 << 36).to_bytes(8, "big"))
    lw.repair(home, out)
    assert (out / log.relative_to(home)).read_bytes() == before


def test_queue_of_a_log_that_starts_at_0_begins_at_0(tmp_path: Path) -> None:
    """So the queue offset of its first message is known from that of the second one, without consume queues."""
    home, out = tmp_path / "store", tmp_path / "out"
    lw.write(ROWS, home, "rocketmq.store", **LARGER)
    log = home / f"commitlog/{0:020d}"
    before = log.read_bytes()
    set_bytes(log, MESSAGE.offset("queue_offset"), (1).to_bytes(8, "big"))
    shutil.rmtree(home / "consumequeue")
    lw.repair(home, out)
    assert (out / log.relative_to(home)).read_bytes() == before


@pytest.mark.parametrize(
    ("name", "place"), [("born_host", MESSAGE.offset("born_host")), ("store_host", STORE_HOST)]
)
def test_port_that_clients_refuse_is_cleared(name: str, place: int, tmp_path: Path) -> None:
    """A client that cannot decode a message never gets it."""
    store = tmp_path / "store"
    rows = [{"topic": "T", "queue_id": 0, "body": b"x" * 50} for _ in range(4)]
    lw.write(rows, store, "rocketmq.store", **SIZES)
    expected = lw.read(store, columns="*")
    (log,) = (store / "commitlog").iterdir()
    data = bytearray(log.read_bytes())
    at = expected["physical_offset"][2].as_py() + place + 4
    data[at] ^= 0x20
    log.write_bytes(data)
    assert [fault.detail.split(" is ")[0] for _, fault in lw.verify(store, **SIZES).faults if "port" in fault.detail] == [
        f"the port of {name}"
    ]  # fmt: skip
    for version in ("4.9.7", "5.5.0"):
        system = lw.verify(store, as_system=version, **SIZES).system
        assert system is not None
        assert system["rows_lost"] == 1
    report = lw.repair(store, tmp_path / "out", **SIZES)
    assert any("ports" in note for note in report.notes)
    assert lw.read(tmp_path / "out", columns="*").equals(expected)
    lw.repair(store, tmp_path / "left", correct=False, **SIZES)
    assert (tmp_path / "left/commitlog" / log.name).read_bytes() == data
