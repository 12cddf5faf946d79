"""The timer of a store: its wheel, its log and timercheck."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from stores import INDEX

import logwright as lw
from logwright.codec.rocketmq.formats.timer import BLANK, SLOT, UNIT, WHEEL_SIZE
from logwright.codec.rocketmq.startup.message import TIMER_TOPIC

TIME = 1_700_000_000_000
READ = TIME + 100_000
"""The time up to which the wheel was read: all units of `timer_log` are delivered."""
SIZE = 5 * UNIT.min_size
"""The size of a timer log file, with room for four units and a blank record."""


def unit(number: int) -> bytes:
    return UNIT.pack(
        {
            "write_time": TIME + number,
            "delayed_time": 60_000,
            "physical_offset": 200 * number,
            "message_size": 200,
            "topic_hash": 7,
        }
    )


def timer_log(files: int) -> bytes:
    """Return the units of full files, one after the other."""
    out = b""
    for file in range(files):
        units = b"".join(unit(3 * file + i) for i in range(3))
        left = SIZE - len(units)
        blank = BLANK.pack({"unit_size": left, "magic": BLANK["magic"].only})
        out += (units + blank).ljust(SIZE, b"\0")
    return out


def message(number: int, seconds: int, **properties: str) -> dict[str, Any]:
    """Return a message of the timer queue that is due some seconds after `TIME`."""
    values = {
        "TIMER_OUT_MS": str(TIME + 1000 * seconds),
        "REAL_TOPIC": "Orders",
        "REAL_QID": "0",
    } | properties
    return {
        "topic": TIMER_TOPIC, "queue_id": 0, "store_timestamp_ms": TIME + number, "body": b"timer",
        "properties": [{"key": key, "value": value} for key, value in values.items()],
    }  # fmt: skip


def check_of(home: Path, **values: int) -> None:
    """Write timercheck."""
    lw.write(
        [dict.fromkeys(lw.read(home / "config/timercheck").column_names, 0) | values],
        home / "config/timercheck", "rocketmq.timercheck", mode="overwrite",
    )  # fmt: skip


def repaired(home: Path, tmp_path: Path, **options: Any) -> tuple[list[dict[str, Any]], dict[int, list[int]]]:
    """Return the units of the repaired timer log, and for each used slot, by its time in seconds after `TIME`, the queue offsets of its units,
    from the last to the first."""
    out = tmp_path / "repaired"
    lw.repair(home, out, **INDEX, **options)
    assert lw.verify(out, **INDEX).ok
    assert lw.verify(out, as_system="5.5.0", **INDEX).system["opens"]
    numbers = {
        row["physical_offset"]: row["queue_offset"]
        for row in lw.read(out).to_pylist()
        if row["topic"] == TIMER_TOPIC
    }
    logs = {path.name: lw.read(path, columns="*").to_pylist() for path in sorted(out.glob("timerlog/*"))}
    units = [unit for rows in logs.values() for unit in rows]
    positions = {int(name) + unit["position"]: unit for name, rows in logs.items() for unit in rows}
    slots = {}
    for slot in lw.read(out / "timerwheel", filter="time != 0").to_pylist():
        assert slot["slot"] == slot["time"] % 1_209_600
        chain, at = [], slot["last_position"]
        while at >= 0:
            unit = positions[at]
            assert (unit["write_time"] + unit["delayed_time"]) // 1000 == slot["time"]
            chain.append(numbers[unit["physical_offset"]])
            first, at = at, unit["previous"]
        assert first == slot["first_position"]
        slots[slot["time"] - TIME // 1000] = chain
    return units, slots


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Write a store whose timer log has four files, all flushed but the last."""
    path = tmp_path / "store"
    lw.write(
        [{"topic": "Orders", "body": b"x", "store_timestamp_ms": TIME}],
        path,
        "rocketmq.store",
        mappedFileSizeCommitLog=4096,
        **INDEX,
    )
    (path / "timerlog").mkdir()
    data = timer_log(4)
    for at in range(0, len(data), SIZE):
        (path / f"timerlog/{at:020d}").write_bytes(data[at : at + SIZE])
    (path / "config").mkdir(exist_ok=True)
    (path / "config/timercheck").write_bytes(
        (READ.to_bytes(8, "big") + (3 * SIZE).to_bytes(8, "big")).ljust(4096, b"\0")
    )
    with open(path / "timerwheel", "wb") as file:
        file.truncate(WHEEL_SIZE)
    return path


def faults(home: Path, **options: Any) -> set[tuple[str, str, str]]:
    """Return the file, the severity and the text of each warning and error."""
    report = lw.verify(home, **INDEX, **options)
    return {
        (file.path, str(fault.severity), fault.detail)
        for file in report.files
        for fault in file.faults
        if str(fault.severity) != "info"
    }


def started(home: Path, **options: Any) -> Any:
    return lw.verify(home, as_system="5.5.0", **INDEX, **options).system


def test_undamaged_timer_has_no_faults(home: Path) -> None:
    assert faults(home) == set()
    assert started(home)["opens"]
    assert not started(home)["removes"]


@pytest.mark.parametrize("size", [SIZE - 52, SIZE + 52])
def test_broker_does_not_start_with_a_timer_log_file_of_another_size(home: Path, size: int) -> None:
    name = f"timerlog/{SIZE:020d}"
    os.truncate(home / name, size)
    text = f"the file has {size} bytes, expected {SIZE} like the other files"
    assert (name, "error", text) in faults(home)
    system = started(home)
    assert not system["opens"]
    assert f"{name}\t{size} length not matched" in system["error"]
    assert started(home, timerWheelEnable=False)["opens"]


@pytest.mark.alike
@pytest.mark.parametrize(
    ("size", "expected"), [(200, 104_857_600), (1000, 1000), (4096, 4096), (104_857_600, 104_857_600)]
)
def test_only_file_of_a_timer_log_is_truncated_if_its_size_is_no_round_number(
    home: Path, tmp_path: Path, size: int, expected: int
) -> None:
    for i in range(1, 4):
        (home / f"timerlog/{i * SIZE:020d}").unlink()
    path = home / f"timerlog/{0:020d}"
    path.write_bytes(path.read_bytes()[: 3 * 52])
    os.truncate(path, size)
    check_of(home, last_read_time=READ, last_timer_queue_offset=1)
    lw.write([message(0, 86_400)], home, "rocketmq.store", mode="append", **INDEX)
    wrong = faults(home)
    assert (wrong == set()) is (size == expected)
    assert started(home)["opens"] is (size == expected)
    lw.repair(home, tmp_path / "out", **INDEX)
    assert (tmp_path / f"out/timerlog/{0:020d}").stat().st_size == expected


def test_broker_does_not_start_with_a_timer_log_file_whose_name_is_no_number(home: Path) -> None:
    (home / "timerlog/lost").write_bytes(bytes(SIZE))
    assert faults(home) == {("timerlog/lost", "error", "the name is not that of a store file")}
    assert "NumberFormatException" in started(home)["error"]


@pytest.mark.parametrize("size", [0, 1000, WHEEL_SIZE + SLOT.min_size])
def test_broker_does_not_start_with_a_timer_wheel_of_another_size_unless_it_is_empty(
    home: Path, size: int
) -> None:
    os.truncate(home / "timerwheel", size)
    expected = ("timerwheel", "error", f"the file has {size} bytes, expected {WHEEL_SIZE}")
    assert (expected in faults(home)) is (size > 0)
    system = started(home)
    assert system["opens"] is (size == 0)
    if size:
        assert system["error"] == f"Timer wheel length:{size} != expected:{WHEEL_SIZE}"


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_brokers_before_5_have_no_timer(home: Path, version: str) -> None:
    os.truncate(home / "timerwheel", 1000)
    assert lw.verify(home, as_system=version, **INDEX).system["opens"] is (version == "4.9.7")


def test_missing_files_of_the_timer_are_reported(home: Path) -> None:
    """Without the wheel a broker restores the slots of the last two files of the timer log: with more, messages are lost."""
    (home / "timerwheel").unlink()
    (home / "config/timercheck").unlink()
    (home / f"timerlog/{SIZE:020d}").unlink()
    gap = f"the timer log has a gap from {SIZE} to {2 * SIZE}: a file is missing"
    text = "the file is missing, but the timer log has units"
    assert faults(home) == {
        (f"timerlog/{2 * SIZE:020d}", "error", gap),
        ("timerwheel", "error", text),
        ("config/timercheck", "warning", text),
    }
    (home / f"timerlog/{0:020d}").unlink()
    assert ("timerwheel", "warning", text) in faults(home)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("magic", "accepted"), [(0, True), (1, True), (15, True), (16, False), (1 << 32 - 1, False)]
)
def test_broker_accepts_any_of_the_lowest_four_bits_of_a_magic(
    home: Path, magic: int, accepted: bool
) -> None:
    path = home / f"timerlog/{SIZE:020d}"
    data = bytearray(path.read_bytes())
    at = UNIT.offset("magic")
    data[at : at + 4] = (magic % (1 << 32)).to_bytes(4, "big")
    path.write_bytes(data)
    assert bool(faults(home)) is not accepted
    assert lw.read(path, mode="DROPMALFORMED").num_rows == 3 - (not accepted)


@pytest.mark.parametrize(("file", "kept"), [(0, 4), (1, 4), (2, 3), (3, 4)])
def test_broker_ends_the_timer_log_at_a_bad_unit_of_its_last_flushed_files(
    home: Path, file: int, kept: int
) -> None:
    """It reads from one file before the one with the flushed position on, and deletes the files after the end."""
    path = home / f"timerlog/{file * SIZE:020d}"
    data = bytearray(path.read_bytes())
    data[UNIT.min_size : 2 * UNIT.min_size] = bytes(UNIT.min_size)
    path.write_bytes(data)
    names = [f"timerlog/{i * SIZE:020d}" for i in range(4)]
    assert [name for name in started(home)["removes"] if name.startswith("timerlog/")] == names[kept:]


def test_repaired_timer_has_the_messages_that_are_still_to_be_delivered(home: Path, tmp_path: Path) -> None:
    """Those due before are not delivered again. A broker continues in the timer queue after the message of the last unit, which is written
    for that. Later messages are not in the timer yet."""
    dues = [10, 100, 200, 100, 30, 300]
    lw.write([message(i, due) for i, due in enumerate(dues)], home, "rocketmq.store", mode="append", **INDEX)
    check_of(home, last_read_time=TIME + 50_000, last_timer_queue_offset=5, master_timer_queue_offset=9)
    (home / "timerwheel").unlink()
    units, slots = repaired(home, tmp_path)
    assert slots == {49: [4], 100: [3, 1], 200: [2]}
    assert [unit["magic"] for unit in units] == [1, 1, 1, 1]
    (row,) = lw.read(tmp_path / "repaired/config/timercheck").to_pylist()
    assert row["last_timer_queue_offset"] == row["master_timer_queue_offset"] == 5
    assert row["last_read_time"] == TIME + 50_000


@pytest.mark.alike
@pytest.mark.parametrize(
    "damage",
    [
        "rm timerlog",
        "cut timerlog",
        "name timerlog",
        "flip timerlog",
        "cut timerwheel",
        "negate timerwheel",
        "cut timercheck",
        "rm timercheck",
    ],
)
def test_timer_is_rebuilt_after_any_damage_to_its_files(home: Path, tmp_path: Path, damage: str) -> None:
    lw.write([message(i, 86_400 + i) for i in range(7)], home, "rocketmq.store", mode="append", **INDEX)
    check_of(home, last_read_time=READ, last_timer_log_flush_pos=3 * SIZE + 52, last_timer_queue_offset=7)
    action, name = damage.split()
    path = {"timerlog": home / f"timerlog/{3 * SIZE:020d}", "timercheck": home / "config/timercheck"}.get(
        name, home / name
    )
    if action == "rm":
        path.unlink()
    elif action == "negate":
        slot(path, 70, -5, -5)
    elif action == "name":
        path.rename(home / "timerlog/lost")
    elif action == "flip":
        path.write_bytes(b"\1" + path.read_bytes()[1:])
    else:
        os.truncate(path, 40)
    units, slots = repaired(home, tmp_path, mappedFileSizeTimerLog=SIZE)
    assert slots == {86_400 + i: [i] for i in range(7)}
    assert [unit["position"] for unit in units] == [0, 52, 104, 156, 0, 52, 104]
    assert not (tmp_path / "repaired/timerlog/lost").exists()


def test_undamaged_timer_is_not_rebuilt(home: Path, tmp_path: Path) -> None:
    lw.write([message(0, 60)], home, "rocketmq.store", mode="append", **INDEX)
    lw.repair(home, tmp_path / "out", **INDEX)
    for path in sorted(home.glob("timer*/*")):
        assert (tmp_path / "out/timerlog" / path.name).read_bytes() == path.read_bytes()


def test_repaired_timer_delivers_a_message_once_that_was_put_into_the_queue_again(
    home: Path, tmp_path: Path
) -> None:
    """A message with a long delay is put into the queue again on the way. A deletion is not counted as a message of its slot."""
    day = 86_400
    rows = [
        message(0, 3 * day, UNIQ_KEY="a"), message(1, 3 * day, UNIQ_KEY="b"), message(2, 5 * day, UNIQ_KEY="c"),
        message(3, 3 * day, UNIQ_KEY="d", TIMER_DEL_UNIQKEY="b"), message(4, 3 * day, UNIQ_KEY="a", TIMER_ROLL_TIMES="1"),
    ]  # fmt: skip
    lw.write(rows, home, "rocketmq.store", mode="append", **INDEX)
    check_of(home, last_read_time=TIME + 2 * day * 1000, last_timer_queue_offset=5)
    (home / "timerwheel").unlink()
    units, slots = repaired(home, tmp_path)
    assert slots == {3 * day: [4, 3, 1], 4 * day: [2]}
    assert [unit["magic"] for unit in units] == [1, 3, 5, 1]
    wheel = lw.read(tmp_path / "repaired/timerwheel", filter="time != 0").to_pylist()
    assert [slot["count"] for slot in sorted(wheel, key=lambda slot: slot["time"])] == [1, 1]


def slot(path: Path, seconds: int, first: int, last: int) -> None:
    """Write a slot of one unit into a timer wheel."""
    time = TIME // 1000 + seconds
    with open(path, "r+b") as file:
        file.seek(time % 1_209_600 * SLOT.min_size)
        file.write(SLOT.pack({"time": time, "first_position": first, "last_position": last, "count": 1}))


@pytest.mark.alike
@pytest.mark.parametrize("case", ["right", "no slot", "other slot", "not linked", "no unit", "read before"])
def test_every_pending_unit_of_the_timer_log_is_reached_from_its_slot(
    home: Path, tmp_path: Path, case: str
) -> None:
    """A broker follows the links from the last unit of a slot to the first. It corrects the slots of units that it reads on start."""
    check_of(home, last_read_time=READ if case == "read before" else TIME, last_timer_log_flush_pos=4 * SIZE)
    starts = [file * SIZE + i * 52 for file in range(4) for i in range(3)]
    for before, at in zip([-1, *starts], starts, strict=False):
        path = home / f"timerlog/{at // SIZE * SIZE:020d}"
        data = bytearray(path.read_bytes())
        linked = -1 if case == "not linked" and at == SIZE + 52 else before
        data[at % SIZE + 4 : at % SIZE + 12] = linked.to_bytes(8, "big", signed=True)
        path.write_bytes(data)
    slot(home / "timerwheel", 60, 0, starts[-1])
    expected = set()
    if case == "not linked":
        text = "not linked to the unit before it in the slot: 1 unit, of which this is the first"
        expected = {(f"timerlog/{SIZE:020d}", "error", text)}
    elif case == "no unit":
        slot(home / "timerwheel", 70, 0, 0)
    elif case in ("no slot", "other slot"):
        # The unit is alone in its slot, in a file that a broker does not read.
        path = home / f"timerlog/{0:020d}"
        data = bytearray(path.read_bytes())
        data[24:28] = (70_000).to_bytes(4, "big")
        path.write_bytes(data)
        if case == "other slot":
            slot(home / "timerwheel", 70, 52, 52)
    if case in ("no unit", "no slot", "other slot"):
        text = "not leading to the last unit in the timer log: 1 slot, of which this is the first"
        expected = {("timerwheel", "error", text)}
    assert faults(home) == expected
    lw.repair(home, tmp_path / "out", **INDEX)
    assert not faults(tmp_path / "out")


def test_files_missing_after_the_flushed_position_of_the_timer_log_are_reported(home: Path) -> None:
    (home / f"timerlog/{3 * SIZE:020d}").unlink()
    assert faults(home) == set()
    (home / f"timerlog/{2 * SIZE:020d}").unlink()
    text = f"the timer log ends at {2 * SIZE}, but timercheck says that it was flushed up to {3 * SIZE}: files are missing"
    assert faults(home) == {("timerlog", "error", text)}


@pytest.mark.alike
@pytest.mark.parametrize(
    ("damage", "pending", "warnings"),
    [
        ("", 3, []),
        ("rm timerlog", None, ["files are missing", "1 slot"]),
        ("rm timerwheel", 3, ["a broker only restores the slots"]),
        ("rm config/timercheck", 3, ["a broker delivers the messages of the timer queue again"]),
        ("rm timerlog timerwheel config/timercheck", None, ["delivers all messages of rmq_sys_wheel_timer again"]),
    ],
)  # fmt: skip
def test_start_says_which_timer_messages_a_broker_still_delivers(
    damage: str, pending: int | None, warnings: list[str], tmp_path: Path
) -> None:
    """It reads the slots from the time in timercheck on, and goes on in the timer queue after the message of the last unit."""
    home = tmp_path / "store"
    lw.write(
        [message(i, 60) for i in range(3)], home, "rocketmq.store", mappedFileSizeCommitLog=4096, **INDEX
    )
    (home / "timerlog").mkdir()
    data = b"".join(
        UNIT.pack({"previous": 52 * i - 52 if i else -1, "write_time": TIME, "delayed_time": 60_000, "physical_offset": 0,
                   "message_size": 200, "topic_hash": 7})
        for i in range(3)
    )  # fmt: skip
    (home / f"timerlog/{0:020d}").write_bytes(data.ljust(1000, b"\0"))
    with open(home / "timerwheel", "wb") as file:
        file.truncate(WHEEL_SIZE)
    slot(home / "timerwheel", 60, 0, 104)
    (home / "config/timercheck").write_bytes(bytes(4096))
    check_of(home, last_read_time=TIME, last_timer_log_flush_pos=156, last_timer_queue_offset=3)
    assert faults(home) == set()
    for name in damage.split()[1:]:
        shutil.rmtree(home / name) if (home / name).is_dir() else (home / name).unlink()
    system = started(home)
    assert system["rows_lost"] == 0
    assert system["serves"].get("timer_messages") == pending
    assert len(system["warnings"]) == len(warnings)
    for text, expected in zip(sorted(system["warnings"]), warnings, strict=True):
        assert expected in text
    assert not lw.verify(home, as_system="4.9.7", **INDEX).system["warnings"]


@pytest.mark.alike
@pytest.mark.parametrize("kinds", [None, "timer", "index"])
@pytest.mark.parametrize("damage", ["", "timerwheel", "timerlog timerwheel config/timercheck"])
def test_rebuild_derives_a_timer_that_is_damaged_or_missing(
    home: Path, tmp_path: Path, damage: str, kinds: str | None
) -> None:
    """Without its files a broker would deliver all messages of the timer queue again."""
    lw.write([message(i, 86_400 + i) for i in range(3)], home, "rocketmq.store", mode="append", **INDEX)
    check_of(home, last_read_time=READ, last_timer_log_flush_pos=4 * SIZE, last_timer_queue_offset=3)
    for name in damage.split():
        shutil.rmtree(home / name) if (home / name).is_dir() else (home / name).unlink()
    out = tmp_path / "rebuilt"
    report = lw.rebuild(home, out, what=kinds, **INDEX)
    files = [
        {path.relative_to(top): path.read_bytes() for path in (*top.glob("timer*/*"), *top.glob("*/timercheck"))}
        for top in (home, out)
    ]  # fmt: skip
    if not damage or kinds == "index":
        assert files[0] == files[1]
        return
    assert "is rebuilt from the timer queue" in report.text()
    assert lw.verify(out, as_system="5.5.0", **INDEX).system["serves"]["timer_messages"] == 3
    assert not faults(out)
