"""Store times of messages, of index entries and of the checkpoint: what contradicts them, and what a repair sets right."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from stores import placed

import logwright as lw
from logwright.codec.fault import Severity
from logwright.codec.rocketmq.check.times import StoreTimes
from logwright.codec.rocketmq.formats.commitlog.layout import MESSAGE, STORE_TIMESTAMP, V1, trailer_of
from logwright.codec.rocketmq.formats.indexfile.layout import ENTRY, entry_at
from logwright.codec.rocketmq.formats.page import CHECKPOINT, checkpoint

pytestmark = pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
TIME, HOUR = 1_700_000_000_000, 3_600_000
SIZES = {
    "mappedFileSizeCommitLog": 4096, "mappedFileSizeConsumeQueue": 400, "maxHashSlotNum": 10, "maxIndexNum": 200,
}  # fmt: skip


def written(home: Path, times: list[int]) -> Path:
    rows = [
        {"topic": "A", "store_timestamp_ms": time, "keys": f"k{n}", "body": b"body"}
        for n, time in enumerate(times)
    ]
    lw.write(rows, home, "rocketmq.store", **SIZES)
    return home


def changed_files(store: Path, out: Path) -> list[str]:
    names = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    return [name for name in names if (store / name).read_bytes() != (out / name).read_bytes()]


def set_time(store: Path, number: int, time: int) -> None:
    """Change the store time of a message, counted over all files."""
    (phy,) = lw.read(store, columns=["physical_offset"], filter=f"queue_offset == {number}")[
        "physical_offset"
    ].to_pylist()
    log, at = store / "commitlog" / f"{phy // 4096 * 4096:020d}", phy % 4096 + STORE_TIMESTAMP
    data = bytearray(log.read_bytes())
    data[at : at + 8] = time.to_bytes(8, "big", signed=True)
    log.write_bytes(data)


def faults(store: Path) -> list[tuple[str, int, str]]:
    report = lw.verify(store)
    return [
        (name, fault.offset, fault.detail)
        for name, fault in report.faults
        if fault.severity is not Severity.INFO
    ]


@pytest.mark.alike
@pytest.mark.parametrize("wrong", [0, TIME - HOUR, TIME + HOUR, -1, 1 << 62])
@pytest.mark.parametrize("number", [1, 98, *(pytest.param(n, marks=pytest.mark.extended) for n in (20, 60))])
def test_store_time_far_from_those_around_it_is_reported_and_loses_nothing(
    tmp_path: Path, wrong: int, number: int
) -> None:
    store = written(tmp_path / "store", [TIME + 2 * n for n in range(100)])
    assert faults(store) == []
    set_time(store, number, wrong)
    ((_, _, text),) = faults(store)
    around = f"{TIME + 2 * number - 2} and {TIME + 2 * number + 2}"
    assert text == f"store_timestamp is {wrong}, but those of the messages before and after are {around}"
    assert lw.verify(store).ok
    lw.repair(store, tmp_path / "out")
    assert lw.read(tmp_path / "out", columns="*").equals(lw.read(store, columns="*"))


@pytest.mark.parametrize(
    "times",
    [
        [TIME + n for n in range(20)] + [TIME - HOUR + n for n in range(20)],
        [TIME + 10 * n - 30_000 * (n % 7 == 3) for n in range(40)],
        [TIME] * 40,
        [TIME + HOUR * n for n in range(40)],
        [TIME + HOUR, TIME],
    ],
)
def test_clock_that_is_set_back_is_no_fault(tmp_path: Path, times: list[int]) -> None:
    assert faults(written(tmp_path / "store", times)) == []


def test_store_time_is_set_right_if_both_neighbours_have_the_same(tmp_path: Path) -> None:
    store = written(tmp_path / "store", [TIME + n // 4 for n in range(100)])
    before = {path.name: path.read_bytes() for path in (store / "commitlog").iterdir()}
    chance = random.Random(5)
    for number in range(2, 98, 8):
        set_time(store, number, TIME + number // 4 ^ 1 << chance.randrange(18, 62))
    assert len(faults(store)) == 12
    report = lw.repair(store, tmp_path / "out")
    after = {path.name: path.read_bytes() for path in (tmp_path / "out/commitlog").iterdir()}
    assert any("Wrong store times of messages were corrected." in note for note in report.notes)
    times = (
        lw.read(tmp_path / "out", columns=["store_timestamp"])["store_timestamp"].cast("int64").to_pylist()
    )
    assert [time - TIME for n, time in enumerate(times) if n % 4 == 2] == [
        n // 4 for n in range(100) if n % 4 == 2
    ]
    assert after == before
    lw.repair(store, tmp_path / "left", correct=False)
    assert len(faults(tmp_path / "left")) == 12


def test_time_that_a_checksum_covers_is_right() -> None:
    def message(time: int, crc: bool) -> bytes:
        data = MESSAGE.pack(
            {
                "magic_code": V1,
                "physical_offset": 0,
                "body_length": 0,
                "topic": b"t",
                "store_timestamp": time,
                "properties": bytes(20),
                "body": b"",
                "body_crc": 0,
            }
        )
        trailer = trailer_of(np.frombuffer(data, np.uint8), 0, len(data) - 20).tobytes()
        return data[:-20] + trailer if crc else data

    for crc in (True, False):
        for blocks in ([3], [1, 1, 1], [2, 1]):
            times, at = StoreTimes(), 0
            for count in blocks:
                stored = np.array([TIME, 0, TIME], np.int64)[at : at + count]
                data = b"".join(message(int(time), crc) for time in stored)
                size = len(data) // count
                starts = np.arange(count, dtype=np.int64) * size
                times.add(np.frombuffer(data, np.uint8), starts, starts + size, starts + at * size, stored)
                at += count
            assert [wrong.stored for wrong in times.wrong] == ([] if crc else [0])
            assert times.newest == TIME


@pytest.mark.parametrize(("case", "left"), [("dmg_cl_storets0_last", 0), ("dmg_cl_storets_future", 2)])
def test_times_of_first_messages_decide_where_a_recovery_starts(case: str, left: int, tmp_path: Path) -> None:
    store = placed(case, tmp_path)
    wrong = [fault for _, fault in lw.verify(store).faults if "store_timestamp" in fault.detail]
    assert wrong
    assert {fault.system for fault in wrong} == {
        "after an unclean stop a broker starts its recovery at another file"
    }
    lw.repair(store, tmp_path / "out")
    assert len(faults(tmp_path / "out")) == left
    if not left:
        original = placed("dmg_base", tmp_path / "base") / "commitlog"
        for path in (tmp_path / "out/commitlog").iterdir():
            assert path.read_bytes() == (original / path.name).read_bytes()


@pytest.mark.parametrize("case", ["dmg_cp_future", "dmg_cp_garbage", "dmg_cp_confirm"])
def test_impossible_checkpoint_is_reported_and_replaced(case: str, tmp_path: Path) -> None:
    store = placed(case, tmp_path)
    assert {name for name, *_ in faults(store)} == {"checkpoint"}
    lw.repair(store, tmp_path / "out")
    assert changed_files(store, tmp_path / "out") == ["checkpoint"]
    assert faults(tmp_path / "out") == []


def test_checkpoint_of_long_ago_is_possible(tmp_path: Path) -> None:
    store = written(tmp_path / "store", [TIME + n for n in range(40)])
    (row,) = CHECKPOINT.parse((store / "checkpoint").read_bytes()).to_pylist()
    for time in (0, 1, TIME, TIME + 39):
        (store / "checkpoint").write_bytes(checkpoint(time, row["confirm_phy_offset"]))
        assert faults(store) == []
    (store / "checkpoint").write_bytes(checkpoint(TIME + 40, 0))
    assert [(name, at) for name, at, _ in faults(store)] == [("checkpoint", 0), ("checkpoint", 8)]


def test_index_file_with_another_time_than_its_first_message_is_rebuilt(tmp_path: Path) -> None:
    store = placed("dmg_idx_begin_ts", tmp_path)
    ((name, at, text),) = faults(store)
    assert (name.startswith("index/"), at) == (True, 0)
    assert text.startswith("begin_timestamp is 0, but the message of the first entry has ")
    lw.repair(store, tmp_path / "out")
    assert faults(tmp_path / "out") == []


def test_index_entry_with_another_time_than_its_message_is_rebuilt(tmp_path: Path) -> None:
    store = written(tmp_path / "store", [TIME + 1000 * n for n in range(40)])
    (file,) = (store / "index").iterdir()
    data, at = bytearray(file.read_bytes()), entry_at(SIZES["maxHashSlotNum"], 8)
    data[at + ENTRY.offset("time_diff") + 3] ^= 8
    file.write_bytes(data)
    text = "1 entry with another time than the message; the first is entry 8 (time_diff 15, expected 7)"
    assert faults(store) == [(f"index/{file.name}", at, text)]
    lw.repair(store, tmp_path / "out")
    assert faults(tmp_path / "out") == []


def test_index_is_not_blamed_for_a_wrong_time_of_a_message(tmp_path: Path) -> None:
    """The times around the message contradict it, although by less than what is reported."""
    store = written(tmp_path / "store", [TIME + n for n in range(40)])
    set_time(store, 20, TIME + 20 ^ 1 << 12)
    assert faults(store) == []
    lw.repair(store, tmp_path / "out")
    assert changed_files(store, tmp_path / "out") == []


def test_inspect_counts_messages_and_names_their_times_and_offsets(tmp_path: Path) -> None:
    store = written(tmp_path / "store", [TIME, TIME + 5, TIME + HOUR])
    facts = lw.inspect(store)["facts"]
    assert facts["messages"] == 3
    rows = lw.read(store, columns=["physical_offset", "store_timestamp"]).to_pydict()
    assert facts["physical_offset"] == [0, rows["physical_offset"][-1]]
    assert facts["store_timestamp"] == [rows["store_timestamp"][0], rows["store_timestamp"][-1]]
    lw.write([], tmp_path / "empty", "rocketmq.store", **SIZES)
    assert lw.inspect(tmp_path / "empty")["facts"]["store_timestamp"] is None
