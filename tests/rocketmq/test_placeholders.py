"""Messages that replace lost ones: placeholders and fillers."""

from __future__ import annotations

import shutil
from pathlib import Path
from struct import iter_unpack

import pytest
from stores import ROWS, SIZES, placed, real_rows, set_bytes, sizes

import logwright as lw
from logwright.codec.rocketmq.formats.commitlog.layout import MESSAGE, V1, V2
from logwright.codec.rocketmq.repair.fillers import LostMessage, filler, placeholder
from logwright.codec.rocketmq.startup.message import TIMER_TOPIC, Message, Rules, check, properties_of

pytestmark = pytest.mark.filterwarnings("ignore::logwright.DamageWarning")


@pytest.mark.parametrize("size", [91, 92, 110, 200, 40_000])
def test_filler_is_a_message_of_the_given_size(size: int) -> None:
    data = filler(1000, size, 5)
    assert data is not None
    message = check(data, Rules(), crc=True)
    assert isinstance(message, Message)
    assert (message.size, message.phy, message.kind) == (size, 1000, 0xC)
    assert filler(0, 90, 5) is None


@pytest.mark.parametrize(("topic", "magic"), [("T", V1), ("t" * 130, V2)])
def test_placeholder_has_the_queue_and_number_of_the_lost_message(topic: str, magic: int) -> None:
    data = placeholder(LostMessage(64, 300, topic, 3, 17), 5)
    assert data is not None
    fields = MESSAGE.unpack(data, 0, 300)[0]
    assert (fields["magic_code"], fields["queue_id"], fields["queue_offset"], fields["topic"]) == (
        magic,
        3,
        17,
        topic.encode(),
    )
    assert placeholder(LostMessage(64, 91, topic, 3, 17), 5) is None


def test_placeholder_of_a_timer_message_is_a_deletion_that_a_broker_skips() -> None:
    """The timer of a broker stops at a message without the properties that it parses."""
    data = placeholder(LostMessage(64, 300, TIMER_TOPIC, 0, 17), 5)
    assert data is not None
    fields = MESSAGE.unpack(data, 0, 300)[0]
    properties = properties_of(fields["properties"])
    assert properties == {
        "TIMER_OUT_MS": "5", "REAL_TOPIC": "LW_LOST", "REAL_QID": "0", "TIMER_DEL_UNIQKEY": "0", "LW_LOST": "true",
    }  # fmt: skip
    small = placeholder(LostMessage(64, 300 - len(fields["body"]) - 13, TIMER_TOPIC, 0, 17), 5)
    assert small is not None
    assert "TIMER_DEL_UNIQKEY" in properties_of(MESSAGE.unpack(small, 0, len(small))[0]["properties"])
    assert placeholder(LostMessage(64, len(small) - 20, TIMER_TOPIC, 0, 17), 5) is None


def test_lost_messages_of_a_damaged_range_are_counted_by_the_consume_queues(tmp_path: Path) -> None:
    """Four adjacent messages of three queues: each counts once, although gaps in the queues show them too."""
    home = tmp_path / "store"
    lw.write(ROWS, home, "rocketmq.store", **{**SIZES, "mappedFileSizeCommitLog": 16384})
    log = next((home / "commitlog").iterdir())
    rows = lw.read(home, "rocketmq.store", columns=["physical_offset"]).to_pylist()
    start, stop = rows[10]["physical_offset"], rows[14]["physical_offset"]
    data = log.read_bytes()
    log.write_bytes(data[:start] + b"\x55" * (stop - start) + data[stop:])
    report = lw.repair(home, tmp_path / "out").to_dict()
    assert sum(cut["length"] for cut in report["cut"]) == stop - start
    assert sum(cut["rows_lost"] for cut in report["cut"]) == 4
    assert lw.verify(tmp_path / "out", "rocketmq.store").rows == len(ROWS) - 4
    shutil.rmtree(home / "consumequeue")
    alone = lw.repair(home, tmp_path / "alone").to_dict()["cut"]
    assert [cut["rows_lost"] for cut in alone if cut["length"]] == [None]


QUEUE = f"consumequeue/T/0/{0:020d}"


@pytest.mark.parametrize("lost", range(4))
def test_message_that_no_unit_lists_is_replaced_and_consumers_get_all_others(
    lost: int, five: Path, tmp_path: Path
) -> None:
    log = five / f"commitlog/{0:020d}"
    starts = [row["physical_offset"] for row in lw.read(five).to_pylist()]
    set_bytes(log, starts[lost] + 100, b"damage")
    shutil.rmtree(five / "consumequeue")
    lw.repair(five, tmp_path / "out")
    report = lw.verify(tmp_path / "out", as_system="5.5.0")
    assert report.ok, report.text()
    assert report.system is not None
    assert (report.system["rows"], report.system["rows_lost"]) == (4, 0)
    units = [phy for phy, *_ in iter_unpack(">qiq", (tmp_path / "out" / QUEUE).read_bytes())]
    assert units[:5] == [*starts[:lost], starts[lost + 1], *starts[lost + 1 :]]


@pytest.mark.parametrize("left", [0, 1000, 3000])
def test_placeholders_get_no_queue_offsets_that_other_messages_contradict(left: int, tmp_path: Path) -> None:
    home, out = placed("dmg_base", tmp_path), tmp_path / "out"
    options = sizes("dmg_base", home)
    folder = home / "consumequeue" / "Pay-Events" / "0"
    (folder / f"{200:020d}").rename(folder / f"{20:020d}")
    log = home / "commitlog" / f"{8192:020d}"
    log.write_bytes(log.read_bytes()[:left])
    expected = real_rows(home, **options)
    lw.repair(home, out, **options)
    assert real_rows(out, **options) == expected
    rows = lw.read(out, view="rows", columns=["topic", "queue_id", "queue_offset"], **options).to_pylist()
    numbers = [row["queue_offset"] for row in rows if (row["topic"], row["queue_id"]) == ("Pay-Events", 0)]
    assert numbers == sorted(set(numbers))


def test_placeholders_of_units_that_were_exchanged_have_ascending_queue_offsets(tmp_path: Path) -> None:
    home, out = placed("dmg_cq_swap", tmp_path), tmp_path / "out"
    options = sizes("dmg_cq_swap", home)
    log = home / "commitlog" / f"{0:020d}"
    log.write_bytes(log.read_bytes()[:2000])
    expected = real_rows(home, **options)
    lw.repair(home, out, **options)
    assert real_rows(out, **options) == expected
    columns = ["topic", "queue_id", "queue_offset", "physical_offset"]
    original = lw.read(placed("dmg_base", tmp_path), columns=columns, **options).to_pylist()
    own = [row for row in original if (row["topic"], row["queue_id"]) == ("Orders", 0)]
    rows = lw.read(out, view="rows", columns=columns, **options).to_pylist()
    assert [row for row in rows if (row["topic"], row["queue_id"]) == ("Orders", 0)] == own
