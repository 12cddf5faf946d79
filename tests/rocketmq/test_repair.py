"""Repair and rebuild golden stores."""

from __future__ import annotations

import shutil
from pathlib import Path
from struct import iter_unpack
from typing import Any

import pytest
from golden_stores import CASES, HEALTHY, HOME
from test_store import ROWS, SIZES, path_options, placed
from test_write import batch, light

import logwright as lw
from logwright.codec.rocketmq.formats.commitlog.codec import CODEC
from logwright.codec.rocketmq.formats.commitlog.layout import MESSAGE, V1, V2
from logwright.codec.rocketmq.repair.fillers import TIMER_TOPIC, LostMessage, filler, placeholder
from logwright.codec.rocketmq.startup.message import Message, Rules, check, properties_of

pytestmark = pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
DAMAGED = [name for name in CASES if name not in HEALTHY and name != "dmg_cl_missing_all"]
SOUND = [name for name in HEALTHY if not name.startswith("hand")]


def sizes(case: str, home: Path) -> dict[str, Any]:
    config = CASES[case]["config"]
    known = ("mappedFileSizeConsume", "mappedFileSizeCommit", "mapperFile", "maxHash", "maxIndex")
    return {name: value for name, value in config.items() if name.startswith(known)} | path_options(
        case, home
    )


def real_rows(path: Path, **options: Any) -> list[int]:
    """Return the physical offsets of messages, without placeholders and fillers."""
    rows = lw.read(path, "rocketmq.store", columns="*", mode="DROPMALFORMED", **options).to_pylist()
    marked = [any(entry["key"] == "LW_LOST" for entry in row["properties"]) for row in rows]
    return sorted(
        row["physical_offset"]
        for row, lost in zip(rows, marked, strict=True)
        if not lost and (row["topic"] or row["tags"])
    )


@pytest.mark.alike
@pytest.mark.parametrize("case", DAMAGED)
def test_repaired_store_is_undamaged_and_has_every_undamaged_message(case: str, tmp_path: Path) -> None:
    home, out = placed(case, tmp_path), tmp_path / "out"
    options = sizes(case, home)
    lw.repair(home, out, **options)
    assert real_rows(out, **options) == real_rows(home, correct=True, **options)
    report = lw.verify(out, "rocketmq.store", as_system="5.5.0", **options)
    assert report.ok, report.text()
    assert report.system is not None
    assert report.system["opens"], report.system["error"]
    assert report.system["rows_lost"] == 0


@pytest.mark.parametrize("strategy", ["salvage", "prefix"])
def test_store_without_a_commit_log_is_neither_repaired_nor_rebuilt(strategy: str, tmp_path: Path) -> None:
    home, out = placed("dmg_cl_missing_all", tmp_path), tmp_path / "out"
    error = "nothing is left: the commit log has no undamaged message.*pass storePathCommitLog"
    with pytest.raises(lw.DamageError, match=f"(?s){error}"):
        lw.repair(home, out, strategy=strategy)
    with pytest.raises(lw.DamageError, match=f"(?s){error}"):
        lw.rebuild(home, out)
    assert not out.exists()


def test_store_that_never_had_a_message_is_repaired_unchanged(tmp_path: Path) -> None:
    home, out = placed("empty", tmp_path), tmp_path / "out"
    lw.repair(home, out, codec="rocketmq.store")
    assert {path.name for path in out.iterdir()} == {path.name for path in home.iterdir()}


def test_damaged_checkpoint_of_a_store_without_messages_becomes_that_of_a_new_store(tmp_path: Path) -> None:
    home, out = placed("empty", tmp_path), tmp_path / "out"
    original = (home / "checkpoint").read_bytes()
    (home / "checkpoint").write_bytes(b"")
    lw.repair(home, out, codec="rocketmq.store")
    assert (out / "checkpoint").read_bytes() == original


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


def test_stray_bytes_after_the_last_message_are_reported_and_need_no_placeholder(tmp_path: Path) -> None:
    home, out, options = tmp_path / "store", tmp_path / "out", {**SIZES, "mappedFileSizeCommitLog": 1 << 16}
    lw.write(ROWS, home, "rocketmq.store", **options)
    (log,) = (home / "commitlog").iterdir()
    data = log.read_bytes()
    log.write_bytes(data[:-50] + b"stray" + data[-45:])
    faults = [fault for file in lw.verify(home, **options).files for fault in file.faults]
    (fault,) = (fault for fault in faults if "other bytes" in fault.detail)
    assert fault.severity == "warning"
    report = lw.repair(home, out, **options)
    assert "placeholder" not in report.text()
    assert real_rows(out, **options) == real_rows(home, **options)


@pytest.mark.alike
@pytest.mark.parametrize("case", SOUND)
def test_repair_of_an_undamaged_store_changes_nothing(case: str, tmp_path: Path) -> None:
    home, out = placed(case, tmp_path), tmp_path / "out"
    if case == "multipath":
        pytest.skip("its two directories become one")
    lw.repair(home, out, **sizes(case, home))
    files = {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}
    assert {
        str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()
    } == files


@pytest.mark.parametrize("case", ["dmg_cl_body_old", "dmg_cl_missing_mid", "dmg_cl_body_last"])
def test_strategy_prefix_keeps_the_messages_before_the_first_loss(case: str, tmp_path: Path) -> None:
    home, out = placed(case, tmp_path), tmp_path / "out"
    options = sizes(case, home)
    lw.repair(home, out, strategy="prefix", correct=False, **options)
    before, after = real_rows(home, **options), real_rows(out, **options)
    assert after == before[: len(after)]
    assert 0 < len(after) < len(before)
    report = lw.verify(out, "rocketmq.store", as_system="5.5.0", **options)
    assert report.ok, report.text()


@pytest.mark.parametrize("case", ["dmg_cl_body_last", "dmgk_body_old", "dmg_cq_missing_all"])
def test_strategy_system_keeps_the_messages_that_a_broker_keeps(case: str, tmp_path: Path) -> None:
    home, out = placed(case, tmp_path), tmp_path / "out"
    options = sizes(case, home)
    served = lw.read(home, "rocketmq.store", mode="AS_SYSTEM", **options)
    lw.repair(home, out, strategy="system", **options)
    assert real_rows(out, **options) == served["physical_offset"].to_pylist()


@pytest.mark.alike
@pytest.mark.parametrize(
    "case",
    [name for name in SOUND if (HOME / name / "after" / "5.5.0").exists() and name != "multipath"]
    + ["hand_dup"],
)
def test_rebuilt_queues_equal_a_brokers(case: str, tmp_path: Path) -> None:
    home, out = placed(case, tmp_path), tmp_path / "out"
    after = HOME / case / "after" / "5.5.0"
    if case in ("rolled", "cqext", "lmq"):
        pytest.skip("the broker rebuilt only a part, or used settings that no file records")
    lw.rebuild(home, out, what="consumequeue", **sizes(case, home))
    expected = {
        str(path.relative_to(after)): path.read_bytes()
        for path in (after / "consumequeue").rglob("*")
        if path.is_file()
    }
    actual = {
        str(path.relative_to(out)): path.read_bytes()
        for path in (out / "consumequeue").rglob("*")
        if path.is_file()
    }
    assert actual == expected


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


def test_rebuild_refuses_a_log_file_of_another_size(tmp_path: Path) -> None:
    """A broker does not load it."""
    home = placed("hand_dup", tmp_path)
    (log,) = (home / "commitlog").iterdir()
    log.write_bytes(log.read_bytes() + b"\0")
    options = {"mappedFileSizeCommitLog": log.stat().st_size - 1}
    with pytest.raises(lw.DamageError, match="only be rebuilt from an undamaged one"):
        lw.rebuild(home, tmp_path / "out", **options)
    lw.repair(home, tmp_path / "out", **options)
    assert lw.verify(tmp_path / "out").ok


@pytest.mark.parametrize("file", [0, 1, 2])
def test_log_file_of_another_store_does_not_prevent_a_repair(file: int, tmp_path: Path) -> None:
    """A broker gives its messages no unit if messages before them have their queue offsets."""
    options = {"mappedFileSizeCommitLog": 2048, "mappedFileSizeConsumeQueue": 400}
    for name, body in (("store", 100), ("other", 170)):
        rows = [
            {"topic": "T", "queue_id": n // 2 % 2, "store_timestamp_ms": n, "body": b"x" * body} for n in range(27)
        ]  # fmt: skip
        lw.write(rows, tmp_path / name, "rocketmq.store", **options)
    log = sorted((tmp_path / "store/commitlog").iterdir())[file]
    shutil.copyfile(tmp_path / "other/commitlog" / log.name, log)
    expected = lw.read(tmp_path / "store", mode="DROPMALFORMED")["physical_offset"].to_pylist()
    lw.repair(tmp_path / "store", tmp_path / "out")
    report = lw.verify(tmp_path / "out")
    assert "no unit" not in str(report.to_dict())
    assert lw.read(tmp_path / "out", mode="DROPMALFORMED")["physical_offset"].to_pylist() == expected


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


def test_rebuild_refuses_a_damaged_log(tmp_path: Path) -> None:
    with pytest.raises(lw.DamageError, match="the commit log is damaged"):
        lw.rebuild(placed("dmg_cl_body_old", tmp_path), tmp_path / "out")


def test_refused_message_after_a_wrong_queue_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queues are found wrong before the message is read, so the comparison of the index is the first to meet it."""
    monkeypatch.setattr(CODEC, "window", 4096)
    monkeypatch.setattr("logwright.codec.rocketmq.derive._PENDING", 1)
    topic = "SCHEDULE_TOPIC_XXXX"
    rows = [
        {"topic": topic, "body": b"body %d" % n, "properties": [{"key": "DELAY", "value": "1"}]} for n in range(200)
    ]  # fmt: skip
    sizes = {"mappedFileSizeCommitLog": 1 << 16, "mappedFileSizeConsumeQueue": 400}
    lw.write(rows, tmp_path / "store", "rocketmq.store", maxHashSlotNum=8, maxIndexNum=2000, **sizes)
    log, queue = (
        tmp_path / "store/commitlog" / ("0" * 20),
        tmp_path / f"store/consumequeue/{topic}/0" / ("0" * 20),
    )
    head, tail = log.read_bytes()[:20_000], log.read_bytes()[20_000:]
    log.write_bytes(head + tail.replace(b"DELAY\x011", b"DELAY\x01x", 1))
    queue.write_bytes(b"\x40" + queue.read_bytes()[1:])
    with pytest.raises(lw.DamageError, match="a broker ends the log at this message") as error:
        lw.repair(tmp_path / "store", tmp_path / "out", **sizes)
    assert (error.value.offset or 0) > 19_000


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


@pytest.mark.extended
@pytest.mark.parametrize("folder", ["commitlog", "consumequeue", "index"])
def test_one_changed_byte_anywhere_in_a_store_costs_at_most_one_message(folder: str, tmp_path: Path) -> None:
    """One bit of each byte of a log, a queue and an index file is flipped. Flips outside of the log cost no message."""
    home = tmp_path / "store"
    lw.write(ROWS[:6], home, "rocketmq.store", **SIZES)
    sound = lw.read(home, columns=["queue_id", "body"]).to_pylist()
    path = next(path for path in sorted((home / folder).rglob("*")) if path.is_file())
    data = path.read_bytes()
    for at in range(min(len(data.rstrip(b"\0")) + 8, len(data))):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        report = lw.verify(home, "rocketmq.store", **SIZES)
        rows = lw.read(
            home, "rocketmq.store", mode="DROPMALFORMED", columns=["queue_id", "body"], **SIZES
        ).to_pylist()
        lost = [row for row in sound if row not in rows]
        assert len(lost) <= (folder == "commitlog"), at
        assert not lost or not report.ok, at


@pytest.mark.parametrize("in_place", [False, True])
def test_damage_in_one_of_several_commit_log_paths_is_repaired(in_place: bool, tmp_path: Path) -> None:
    """Out of place the result has one commit log folder. In place each file stays in its path."""
    home, paths = tmp_path / "store", [tmp_path / "disk1", tmp_path / "disk2"]
    options = {**SIZES, "storePathCommitLog": ",".join(map(str, paths))}
    lw.write(ROWS, home, "rocketmq.store", **options)
    del options["maxIndexNum"]
    rows = real_rows(home, **options)
    names = [sorted(path.iterdir()) for path in paths]
    log = names[1][0]
    data = log.read_bytes()
    log.write_bytes(data[:100] + bytes([data[100] ^ 3]) + data[101:])
    if in_place:
        lw.repair(home, in_place=True, backup=tmp_path / "backup", **options)
        assert [sorted(path.iterdir()) for path in paths] == names
    else:
        home = tmp_path / "out"
        lw.repair(tmp_path / "store", home, **options)
        del options["storePathCommitLog"]
        assert len(list((home / "commitlog").iterdir())) == sum(map(len, names))
    assert lw.verify(home, **options).ok
    assert real_rows(home, **options) == [row for row in rows if row != int(log.name)]


def test_damaged_configuration_is_replaced(tmp_path: Path) -> None:
    """By its `.bak` file, as a broker does; topics.json by the topics of all messages."""
    lw.write(ROWS, tmp_path / "store", "rocketmq.store", **SIZES)
    config = tmp_path / "store/config"
    topics = (config / "topics.json").read_bytes()
    (config / "topics.json").write_bytes(topics.replace(b'"', b"\x00", 1))
    offsets = b'{"offsetTable":{"T0@group":{0:2}}}'
    (config / "consumerOffset.json").write_bytes(offsets[:-3])
    (config / "consumerOffset.json.bak").write_bytes(offsets)
    (config / "delayOffset.json").write_bytes(b"\xff")
    with pytest.raises(lw.UsageError, match=r"config/topics\.json is damaged"):
        lw.write(ROWS, tmp_path / "store", "rocketmq.store", mode="append", **SIZES)
    report = lw.repair(tmp_path / "store", tmp_path / "out")
    assert (tmp_path / "out/config/topics.json").read_bytes() == topics
    assert (tmp_path / "out/config/consumerOffset.json").read_bytes() == offsets
    assert not (tmp_path / "out/config/delayOffset.json").exists()
    assert "config/consumerOffset.json was damaged and has the content of" in " ".join(report.text().split())
    assert lw.read(tmp_path / "out").equals(lw.read(tmp_path / "store"))


def test_size_of_files_that_are_all_cut_off_follows_from_their_names(tmp_path: Path) -> None:
    lw.write(ROWS, tmp_path / "store", "rocketmq.store", **SIZES)
    for i, path in enumerate(sorted((tmp_path / "store/commitlog").iterdir())):
        path.write_bytes(path.read_bytes()[: 900 - 10 * i])
    text = " ".join(lw.verify(tmp_path / "store").text().split())
    assert "the file has 900 bytes, expected 1024" in text
    lw.repair(tmp_path / "store", tmp_path / "out")
    assert {path.stat().st_size for path in (tmp_path / "out/commitlog").iterdir()} == {1024}
    assert lw.verify(tmp_path / "out", as_system="5.5.0").ok


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


@pytest.mark.parametrize("name", ["0" * 20 + ".bak", "200"])
def test_file_among_extension_files_that_a_broker_would_misread_is_removed(name: str, tmp_path: Path) -> None:
    home = tmp_path / "store"
    options = {**SIZES, "enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 200}
    lw.write(ROWS, home, "rocketmq.store", **options)
    file = next((home / "consumequeue_ext").rglob("0*0"))
    shutil.copy(file, file.parent / name)
    del options["maxIndexNum"]
    lw.repair(home, tmp_path / "out", **options)
    assert not list((tmp_path / "out").rglob(name))
    report = lw.verify(tmp_path / "out", as_system="5.5.0", **options)
    assert report.ok, report.text()


def test_files_whose_content_a_broker_does_not_need_do_not_prevent_a_repair(tmp_path: Path) -> None:
    home = tmp_path / "store"
    lw.write(ROWS, home, "rocketmq.store", **SIZES)
    (home / "abort").write_bytes(b"?")
    (home / "abort.bak").write_bytes(b"?")
    (home / "config/consumerOffset.json").write_bytes(b"")
    lw.repair(home, tmp_path / "out", **SIZES)
    assert [(tmp_path / "out" / name).read_bytes() for name in ("abort", "abort.bak")] == [b"", b""]
    assert not (tmp_path / "out/config/consumerOffset.json").exists()
    assert lw.verify(tmp_path / "out").ok


def test_damage_that_stays_in_one_of_several_commit_log_paths_does_not_prevent_a_repair(
    tmp_path: Path,
) -> None:
    """Nothing proves the right topic of the message, because no queue lists it."""
    home, paths = tmp_path / "store", [tmp_path / "disk1", tmp_path / "disk2"]
    options = {**SIZES, "storePathCommitLog": ",".join(map(str, paths))}
    rows = [
        {"topic": "T", "body": b"x" * 100, "store_timestamp_ms": 1_700_000_000_000 + n} for n in range(20)
    ]
    lw.write(rows, home, "rocketmq.store", **options)
    shutil.rmtree(home / "consumequeue")
    log = min(paths[1].iterdir())
    set_bytes(log, 88 + 100 + 1, b".")
    del options["maxIndexNum"]
    lw.repair(home, tmp_path / "out", **options)
    assert len(lw.read(tmp_path / "out")) == len(rows)


QUEUE = f"consumequeue/T/0/{0:020d}"


def set_bytes(path: Path, at: int, new: bytes) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:at] + new + data[at + len(new) :])


@pytest.fixture
def five(tmp_path: Path) -> Path:
    """A store of five messages of 193 bytes in one queue, in one file."""
    rows = [{"topic": "T", "body": b"x" * 100, "store_timestamp_ms": 1_700_000_000_000 + n} for n in range(5)]
    lw.write(rows, tmp_path / "five", "rocketmq.store", **SIZES)
    return tmp_path / "five"


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


def test_negative_queue_offset_of_the_first_message_is_corrected(five: Path, tmp_path: Path) -> None:
    log = five / f"commitlog/{0:020d}"
    before = log.read_bytes()
    set_bytes(log, MESSAGE.offset("queue_offset"), b"\xff" * 8)
    assert "file should be -" not in lw.verify(five).text()
    lw.repair(five, tmp_path / "out")
    assert (tmp_path / "out" / log.relative_to(five)).read_bytes() == before


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


QUEUES = [{"topic": "T", "queue_id": i % 2, "body": bytes([65 + i]) * 200} for i in range(10)]
SMALL = {"mappedFileSizeCommitLog": 2048, "mappedFileSizeConsumeQueue": 60}


@pytest.mark.parametrize(("name", "other"), [("1", "7"), ("1", "0")])
def test_queue_folder_of_another_name_corrects_no_message(name: str, other: str, tmp_path: Path) -> None:
    home, out = tmp_path / "store", tmp_path / "out"
    lw.write(QUEUES, home, "rocketmq.store", **SMALL)
    expected = lw.read(home)
    folder = home / "consumequeue/T"
    if (folder / other).exists():
        (folder / other).rename(folder / "was")
    (folder / name).rename(folder / other)
    if (folder / "was").exists():
        (folder / "was").rename(folder / name)
    lw.repair(home, out, **SMALL)
    assert lw.read(out).equals(expected)
    report = lw.verify(out, as_system="5.5.0", **SMALL)
    assert report.ok
    assert report.system is not None
    assert report.system["rows_lost"] == 0


@pytest.mark.parametrize("by", [1024, 2048, 5000])
def test_log_whose_files_were_all_renamed_gets_its_names_back(by: int, tmp_path: Path) -> None:
    home, out = tmp_path / "store", tmp_path / "out"
    lw.write(QUEUES, home, "rocketmq.store", **SMALL)
    expected = lw.read(home)
    for path in sorted(home.glob("commitlog/*"), reverse=True):
        path.rename(path.with_name(f"{int(path.name) + by:020d}"))
    lw.repair(home, out, **SMALL)
    assert sorted(path.name for path in out.glob("commitlog/*"))[:2] == [f"{0:020d}", f"{2048:020d}"]
    assert lw.read(out).equals(expected)


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
