"""Rules of a broker's start that no golden store shows. Each agrees with the real store (`tests/oracle/test_rocketmq_startup_oracle.py`)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from memory_directory import MemoryDirectory
from stores import TIME, batch, light

import logwright as lw
from logwright.codec.option import Options
from logwright.codec.rocketmq.formats.commitlog.layout import PREPARED, ROLLBACK
from logwright.codec.rocketmq.startup.batch_consume_queue import search
from logwright.codec.rocketmq.startup.start import STARTUP, ServedStore
from logwright.codec.rocketmq.store.layout import LAYOUT

OPTIONS: dict[str, Any] = {
    "mappedFileSizeCommitLog": 1024, "mappedFileSizeConsumeQueue": 100, "maxHashSlotNum": 8, "maxIndexNum": 10,
    "mapperFileSizeBatchConsumeQueue": 138, "mappedFileSizeConsumeQueueExt": 84,
}  # fmt: skip


def written(tmp_path: Any, rows: list[dict[str, Any]], **options: Any) -> dict[str, bytes]:
    lw.write(rows, tmp_path / "store", "rocketmq.store", **OPTIONS, **options)
    home = tmp_path / "store"
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}


def start(files: dict[str, bytes], *, clean: bool = True, **options: Any) -> Any:
    listing = MemoryDirectory(files, "store")
    chosen = Options(LAYOUT.read_options, {**OPTIONS, **options})
    return STARTUP.run(listing, LAYOUT.plan(listing, chosen), chosen, version="5.5.0", clean=clean)


def store_of(started: Any) -> Any:
    assert isinstance(started.served, ServedStore)
    return started.served.store


def changed(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


ROWS = [
    {"topic": "T", "queue_id": 0, "body": b"x" * 30, "tags": "a", "store_timestamp_ms": TIME + n}
    for n in range(6)
]


def test_offset_in_a_gap_of_a_batch_queue_is_answered_with_the_batch_before(tmp_path: Any) -> None:
    files = written(tmp_path, [batch(*args) for args in ((0, 1), (1, 3), (4, 1), (5, 10))], batch_topics="B")
    name = "batchconsumequeue/B/1/00000000000000000138"
    files[name] = changed(files[name], 28, struct.pack(">q", 9))
    store = store_of(start(files))
    queue = store.queues["B", 1]
    assert [store.pull(queue, number)[0][0].number for number in (4, 5, 8, 9)] == [4, 4, 4, 9]


def pulled(store: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return queue offset and number of messages of each unit that pulls return, and fail at the thousandth pull."""
    pull, calls = store.pull, iter(range(1000))

    def counted(*args: Any) -> Any:
        assert next(calls, None) is not None
        return pull(*args)

    monkeypatch.setattr(store, "pull", counted)
    return [(unit.number, unit.count) for _, unit in store.read_all()]


@pytest.mark.parametrize("base", [200, 10**6, 4 * 10**18, 9 * 10**18])
def test_gap_of_any_length_between_queue_files_takes_few_pulls(
    base: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = written(tmp_path, ROWS)
    files[f"consumequeue/T/0/{base:020d}"] = files.pop(f"consumequeue/T/0/{100:020d}")
    units = pulled(store_of(start(files)), monkeypatch)
    assert units == [*((n, 1) for n in range(5)), (base // 20, 1)]


@pytest.mark.parametrize("base", [100, 200, 240, 333, 999])
def test_skipped_gap_ends_where_steps_of_a_file_end(base: int, tmp_path: Any) -> None:
    files = written(tmp_path, ROWS)
    files[f"consumequeue/T/0/{base:020d}"] = files.pop(f"consumequeue/T/0/{100:020d}")
    queue = store_of(start(files)).queues["T", 0]
    for number in range(queue.max_offset):
        step = number
        while step < queue.max_offset and queue.queue.find(step * 20) is None:
            step = queue.next_file(step)
        assert min(queue.skip(number), queue.max_offset) == min(step, queue.max_offset)


@pytest.mark.parametrize("number", [400, 1 << 20, 1 << 62])
def test_gap_of_any_length_in_a_batch_queue_takes_few_pulls(
    number: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = written(tmp_path, [batch(*args) for args in ((0, 1), (1, 3), (4, 1), (5, 10))], batch_topics="B")
    name = "batchconsumequeue/B/1/00000000000000000138"
    files[name] = changed(files[name], 28, struct.pack(">q", number))
    units = pulled(store_of(start(files)), monkeypatch)
    assert list(dict.fromkeys(units)) == [(0, 1), (1, 3), (4, 1), (number, 10)]


def test_delay_levels_of_the_configuration_give_the_delivery_times_in_units(tmp_path: Any) -> None:
    topic, levels = "SCHEDULE_TOPIC_XXXX", {"messageDelayLevel": "2s 1d"}
    rows = [
        {"topic": topic, "store_timestamp_ms": TIME + n, "properties": [{"key": "DELAY", "value": str(n)}]}
        for n in range(4)
    ]
    files = written(tmp_path, rows, **levels)
    name = f"consumequeue/{topic}/0/{0:020d}"
    codes = [code for *_, code in struct.iter_unpack(">qiq", files[name][:80])]
    assert codes == [0, TIME + 1 + 2000, TIME + 2 + 86_400_000, TIME + 3 + 86_400_000]
    (tmp_path / "broker.conf").write_text(
        f"storePathRootDir={tmp_path}/store\nmessageDelayLevel={levels['messageDelayLevel']}\n"
    )
    lw.edit(tmp_path / "broker.conf", tmp_path / "edited", drop="physical_offset == 0", **OPTIONS)
    assert (tmp_path / "edited" / name).read_bytes()[20:] == files[name][20:]
    broken = tmp_path / "store" / name
    broken.write_bytes(bytes(100))
    for number, verb in enumerate((lw.rebuild, lw.repair)):
        verb(tmp_path / "broker.conf", tmp_path / f"{number}", **OPTIONS)
        assert (tmp_path / f"{number}" / name).read_bytes() == files[name]
    logs = {name: data for name, data in files.items() if name.startswith("commitlog")}
    started = start(logs, clean=False, **levels)
    assert started.after.read(name) == (tmp_path / "0" / name).read_bytes()


@pytest.mark.parametrize("levels", ["", "1s  2s", "1", "s", "1w", "1s,2s"])
def test_delay_levels_with_which_no_broker_starts_are_refused(levels: str, tmp_path: Any) -> None:
    with pytest.raises(lw.UsageError, match=r"option messageDelayLevel: .* is not valid"):
        written(tmp_path, [], messageDelayLevel=levels)


@pytest.mark.parametrize(
    ("offsets", "number", "index"),
    [
        ([0, 5, 6], 5, 1), ([0, 5, 6], 4, 0), ([0, 5, 6], 99, 2), ([3, 5], 2, None), ([], 0, None), ([0, 9, 2, 3], 3, 0),
        ([0, 9, 2, 9, 9], 3, 2),
    ],
)  # fmt: skip
def test_search_for_a_batch_takes_the_steps_of_a_broker(
    offsets: list[int], number: int, index: int | None
) -> None:
    assert search(offsets, number) == index


@pytest.mark.parametrize(("name", "value"), [("INNER_NUM", "40000"), ("INNER_BASE", "1x")])
def test_batch_properties_that_are_no_numbers_end_the_log(tmp_path: Any, name: str, value: str) -> None:
    properties = {"INNER_NUM": "2", "INNER_BASE": "3", name: value}
    files = written(tmp_path, [*ROWS[:3], {**ROWS[3], "properties": [{"key": "PLACE", "value": "x" * 30}]}])
    log = "commitlog/00000000000000000000"
    text = b"".join(f"{key}\x01{value}\x02".encode() for key, value in properties.items())
    at = files[log].index(b"PLACE\x01")
    files[log] = changed(files[log], at, (text + b"Z\x01" + b"x" * 36)[:36])
    store = store_of(start(files, clean=False))
    assert store.queues["T", 0].max_offset == 3
    assert store.max_phy < at


def test_light_queue_offset_that_is_no_number_stops_the_start(tmp_path: Any) -> None:
    files = written(tmp_path, [light(n) for n in range(3)], enableLmq=True)
    log = "commitlog/00000000000000000000"
    files[log] = files[log].replace(b"QUEUE_OFFSET\x012", b"QUEUE_OFFSET\x01!")
    started = start(files, clean=False, enableLmq=True)
    assert not started.verdict.opens
    assert 'java.lang.NumberFormatException: For input string: "!"' in started.verdict.error


def test_extension_unit_that_exceeds_its_file_stops_the_start(tmp_path: Any) -> None:
    files = written(tmp_path, ROWS, enableConsumeQueueExt=True)
    name = "consumequeue_ext/T/0/00000000000000000000"
    files[name] = changed(files[name], 0, b"\x00\x55")
    started = start(files, enableConsumeQueueExt=True)
    assert not started.verdict.opens
    assert "java.lang.IllegalArgumentException: newPosition > limit: (85 > 84)" in started.verdict.error


def test_extension_files_of_a_removed_queue_keep_the_bytes_that_are_not_overwritten(tmp_path: Any) -> None:
    files = written(tmp_path, ROWS, enableConsumeQueueExt=True)
    name = "consumequeue_ext/T/0/00000000000000000000"
    files = {file: data for file, data in files.items() if not file.startswith("consumequeue/")}
    files[name] = changed(files[name], 80, b"rest")
    after = start(files, clean=False, enableConsumeQueueExt=True).after.read(name)
    assert after[80:] == b"\xff\xffst"  # the mark of a full file overwrites two bytes


def test_queue_size_is_rounded_up_to_whole_units(tmp_path: Any) -> None:
    lw.write(ROWS, tmp_path / "store", "rocketmq.store", **{**OPTIONS, "mappedFileSizeConsumeQueue": 115})
    assert (tmp_path / "store/consumequeue/T/0/00000000000000000000").stat().st_size == 120


@pytest.mark.parametrize("change", [4, -4])
def test_only_file_of_a_queue_is_repaired_to_whole_units(tmp_path: Any, change: int) -> None:
    lw.write(ROWS, tmp_path / "store", "rocketmq.store", **{**OPTIONS, "mappedFileSizeConsumeQueue": 200})
    queue = tmp_path / "store/consumequeue/T/0/00000000000000000000"
    before = queue.read_bytes()
    queue.write_bytes((before + b"abcd")[: len(before) + change])
    lw.repair(tmp_path / "store", tmp_path / "out")
    assert (tmp_path / "out/consumequeue/T/0/00000000000000000000").read_bytes() == before
    assert lw.verify(tmp_path / "out").ok


def test_size_of_log_files_follows_from_their_names_where_one_of_two_is_cut(tmp_path: Any) -> None:
    rows = [{**ROWS[0], "body": b"x" * 300, "store_timestamp_ms": TIME + n} for n in range(4)]
    lw.write(rows, tmp_path / "store", "rocketmq.store", **OPTIONS)
    _, last = sorted((tmp_path / "store/commitlog").iterdir())
    for data in (last.read_bytes()[:900], last.read_bytes() + b"more"):
        last.write_bytes(data)
        report = lw.verify(tmp_path / "store")
        named = [file for file, fault in report.faults if "expected 1024" in str(fault.detail)]
        assert named == [f"commitlog/{last.name}"]


def test_slots_of_an_index_follow_from_the_longer_of_two_files(tmp_path: Any) -> None:
    lw.write(ROWS * 3, tmp_path / "store", "rocketmq.store", **OPTIONS)
    first, *others = sorted((tmp_path / "store/index").iterdir())
    for other in others[1:]:
        other.unlink()
    before = first.read_bytes()
    first.write_bytes(before[:60])
    lw.repair(tmp_path / "store", tmp_path / "out")
    assert {path.stat().st_size for path in (tmp_path / "out/index").iterdir()} == {len(before)}


def test_queue_offset_whose_position_overflows_is_compared_as_a_broker_does(tmp_path: Any) -> None:
    lw.write(ROWS, tmp_path / "store", "rocketmq.store", **OPTIONS)
    home = tmp_path / "store"
    log = "commitlog/00000000000000000000"
    data = (home / log).read_bytes()
    second = int.from_bytes(data[:4], "big")
    files = {log: changed(data, second + 20, (-(1 << 59) + 1).to_bytes(8, "big", signed=True))}
    queue = store_of(start(files, clean=False)).queues["T", 0]
    assert queue.max_offset == 6
    files[log] = changed(data, second + 20, (-1).to_bytes(8, "big", signed=True))
    assert store_of(start(files, clean=False)).queues["T", 0].max_offset == 5


@pytest.mark.parametrize(
    ("name", "loads"),
    [("0" * 21, True), ("+" + "0" * 19, True), (f"{1 << 63}", False), ("0" * 19 + "x", False)],
)
def test_name_of_a_log_file_is_a_number_of_64_bits(tmp_path: Any, name: str, loads: bool) -> None:
    files = written(tmp_path, ROWS[:3])
    files[f"commitlog/{name}"] = files.pop("commitlog/00000000000000000000")
    assert start(files).verdict.opens is loads


@pytest.mark.parametrize("number", ["007", "+7"])
def test_queue_folder_with_another_spelling_of_its_number_is_not_read(tmp_path: Any, number: str) -> None:
    """A broker creates the queue, but reads the files of the folder with the plain number."""
    files = written(tmp_path, ROWS)
    name = "consumequeue/T/0/00000000000000000000"
    files[name.replace("/0/", f"/{number}/")] = files[name]
    store = store_of(start(files))
    assert store.queues["T", 7].max_offset == 0
    assert store.queues["T", 0].max_offset == 6


@pytest.mark.parametrize("number", ["--3", "²", f"{1 << 31}", "1.0", "x"])
def test_queue_folder_whose_name_is_no_number_is_skipped(tmp_path: Any, number: str) -> None:
    files = written(tmp_path, ROWS)
    for kind in ("consumequeue", "batchconsumequeue"):
        files[f"{kind}/T/{number}/00000000000000000000"] = bytes(7)
    started = start(files)
    assert list(store_of(started).queues) == [("T", 0)]
    assert started.verdict.opens


@pytest.mark.parametrize("sys_flag", [PREPARED, ROLLBACK])
def test_message_in_no_queue_is_in_no_light_queue(tmp_path: Any, sys_flag: int) -> None:
    files = written(tmp_path, [light(0), {**light(1), "sys_flag": sys_flag}, light(1)], enableLmq=True)
    rebuilt_as_by_a_broker(files, tmp_path, enableLmq=True)


def test_message_of_a_batch_queue_is_in_no_light_queue(tmp_path: Any) -> None:
    rows = [light(0), {**light(1), "topic": "B"}, light(1)]
    files = written(tmp_path, rows, enableLmq=True, batch_topics="B")
    rebuilt_as_by_a_broker(files, tmp_path, enableLmq=True)


def rebuilt_as_by_a_broker(files: dict[str, bytes], tmp_path: Any, **options: Any) -> None:
    """Check that written and rebuilt queues of the store in `tmp_path` are those of a broker that has only the log."""
    log = {name: data for name, data in files.items() if name.startswith(("commitlog", "config"))}
    after = start(log, clean=False, **options).after
    queues = [entry.name for entry in after.entries() if "consumequeue" in entry.name]
    assert "consumequeue/%LMQ%a/0/00000000000000000000" in queues
    lw.rebuild(tmp_path / "store", tmp_path / "out", **options)
    for name in queues:
        assert files[name] == after.read(name)
        assert (tmp_path / "out" / name).read_bytes() == after.read(name)


def test_message_with_a_negative_queue_offset_creates_its_queue_but_gets_no_unit(tmp_path: Any) -> None:
    """The file begins at the offset rounded towards 0, and the next message is preceded by fillers."""
    lw.write(ROWS, tmp_path / "store", "rocketmq.store", **OPTIONS)
    log = "commitlog/00000000000000000000"
    data = (tmp_path / "store" / log).read_bytes()
    files = {log: changed(data, 20, (-1).to_bytes(8, "big", signed=True))}
    started = start(files)
    name = "consumequeue/T/0/00000000000000000000"
    assert store_of(started).queues["T", 0].min_offset == 1
    units = started.after.read(name)
    assert units[:20] == struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
    (tmp_path / "store" / log).write_bytes(files[log])
    lw.rebuild(tmp_path / "store", tmp_path / "out")
    assert (tmp_path / "out" / name).read_bytes() == units


def test_queue_file_that_begins_inside_a_unit_is_read_by_units_of_its_own(tmp_path: Any) -> None:
    """The file's name is not a multiple of its size. The number of a unit follows from the name and the position in the file."""
    files = written(tmp_path, [*ROWS[:4], *({**row, "queue_id": 1} for row in ROWS[:4])])
    files["consumequeue/T/0/00000000000000000124"] = files.pop("consumequeue/T/0/00000000000000000000")
    store = store_of(start(files))
    queue = store.queues["T", 0]
    assert (queue.min_offset, queue.max_offset) == (6, 10)
    assert [unit.number for unit in store.pull(queue, 7)[0]] == [8, 9]


def test_checkpoint_time_that_underflows_lets_recovery_start_at_the_last_file(tmp_path: Any) -> None:
    """The margin of three seconds makes it a time in the far future, so 5.3.3 does not notice damage in an older file."""
    rows = [{**ROWS[0], "body": b"x" * 300, "store_timestamp_ms": TIME + n} for n in range(6)]
    files = written(tmp_path, rows)
    log = "commitlog/00000000000000000000"
    files[log] = changed(files[log], 120, b"?")
    files["checkpoint"] = changed(files["checkpoint"], 0, struct.pack(">q", -(1 << 63)))
    listing = MemoryDirectory(files, "store")
    chosen = Options(LAYOUT.read_options, OPTIONS)
    started = STARTUP.run(listing, LAYOUT.plan(listing, chosen), chosen, version="5.3.3", clean=False)
    assert store_of(started).max_phy > 1024


@pytest.mark.parametrize(("name", "read"), [("+0000000000000001", True), ("x", False), ("9" * 20, False)])
def test_name_of_an_index_file_is_a_number_of_64_bits(tmp_path: Any, name: str, read: bool) -> None:
    files = written(tmp_path, [{**ROWS[0], "keys": "k"}])
    (index,) = (file for file in files if file.startswith("index/"))
    files[f"index/{name}"] = files.pop(index)
    assert store_of(start(files)).query("T", "k") == ([0] if read else [])


def test_old_releases_do_not_know_force_verify_of_the_property_checksum(tmp_path: Any) -> None:
    files = written(tmp_path, ROWS)
    listing = MemoryDirectory(files, "store")
    chosen = Options(LAYOUT.read_options, {**OPTIONS, "forceVerifyPropCRC": True})
    plan = LAYOUT.plan(listing, chosen)
    ends = [
        store_of(STARTUP.run(listing, plan, chosen, version=version, clean=False)).max_phy
        for version in ("5.5.0", "5.3.3", "4.9.7")
    ]
    assert ends[:2] == [0, 0]
    assert ends[2] > 0


def test_last_extension_unit_whose_bitmap_exceeds_its_file_stops_the_start(tmp_path: Any) -> None:
    files = written(tmp_path, ROWS[:2], enableConsumeQueueExt=True)
    name = "consumequeue_ext/T/0/00000000000000000000"
    files[name] = changed(files[name], 38, b"\x00\x99")
    started = start(files, enableConsumeQueueExt=True)
    assert not started.verdict.opens
    assert "java.nio.BufferUnderflowException" in started.verdict.error


def test_end_of_a_unit_overflows_as_a_brokers(tmp_path: Any) -> None:
    """It is negative, so the log is dispatched from its start, and no unit is taken to be after the end of the log."""
    files = written(tmp_path, [*ROWS, *({**row, "queue_id": 1} for row in ROWS[:4])])
    name = "consumequeue/T/1/00000000000000000000"
    files[name] = changed(files[name], 80, struct.pack(">qiq", (1 << 63) - 1, (1 << 31) - 1, -1))
    store = store_of(start(files))
    queue = store.queues["T", 1]
    assert (queue.min_offset, queue.max_offset) == (0, 5)
    assert [unit.number for unit in store.pull(queue, 0)[0]] == [0, 1, 2, 3]


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_message_is_served_as_a_client_decodes_it(version: str, tmp_path: Path) -> None:
    """A client does not compare the size of a message with its parts. One of 4.x does not check the magic."""
    count = 40
    files = written(tmp_path, [{**ROWS[0], "store_timestamp_ms": TIME + n} for n in range(count)])
    log, queue = "commitlog/00000000000000000000", "consumequeue/T/0/00000000000000000000"
    size = int.from_bytes(files[log][:4], "big")
    # The unit of message 1 has four more bytes, and message 2 has another magic and a negative body length.
    files[queue] = changed(files[queue], 28, struct.pack(">i", size + 4))
    message = files[log][2 * size : 3 * size].replace(b"x" * 30, b"")
    message = changed(changed(message, 4, b"\xda\xa3\x20\xa9"), 84, struct.pack(">i", -5))
    files[log] = changed(files[log], 2 * size, message)
    for name, data in files.items():
        (tmp_path / "store" / name).write_bytes(data)
    rows = lw.read(tmp_path / "store", mode="AS_SYSTEM", as_system=version, **OPTIONS).to_pylist()
    assert [row["tags"] for row in rows] == ["a"] * (count if version == "4.9.7" else count - 1)
    assert rows[1]["properties"] == rows[0]["properties"]
    assert [row["physical_offset"] for row in rows if not row["body"]] == [2 * size] * (version == "4.9.7")


def test_time_of_an_index_entry_overflows_as_in_java(tmp_path: Any) -> None:
    """A query skips entries with a negative time, and ends there."""
    rows = [
        {"topic": "T", "queue_id": 0, "body": b"x", "keys": "k", "store_timestamp_ms": TIME + 2000 * n}
        for n in range(3)
    ]
    files = written(tmp_path, rows)
    (name,) = (file for file in files if file.startswith("index/"))
    assert len(store_of(start(files)).query("T", "k")) == 3
    files[name] = changed(files[name], 0, struct.pack(">q", (1 << 63) - 1000))
    assert store_of(start(files)).query("T", "k") == []
    files[name] = changed(files[name], 0, struct.pack(">q", (1 << 63) - 1 - 4000))
    assert len(store_of(start(files)).query("T", "k")) == 3
