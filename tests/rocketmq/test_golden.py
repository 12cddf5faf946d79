"""Files of real stores, healthy and damaged."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from golden_stores import CASES, HEALTHY, HOME, codec_of, first, own_files, store

import logwright as lw
from logwright.codec import registry
from logwright.codec.base import Match
from logwright.roundtrip.laws import (
    any_split,
    decode_encode,
    encode_without_payloads,
    kernel_equals_description,
)
from logwright.roundtrip.specimen import Specimen

LOG, QUEUE = "rocketmq.commitlog", "rocketmq.consumequeue"
OTHERS = tuple(
    codec.name
    for codec in registry.codecs()
    if codec.name.startswith("rocketmq.") and codec.name not in (LOG, QUEUE)
)
DAMAGED_LOGS = [name for name in CASES if name not in HEALTHY and any(own_files(name, LOG))]
DAMAGED_QUEUES = [name for name in CASES if name.startswith("dmg_cq") and any(own_files(name, QUEUE))]
DAMAGED_OTHERS = [name for name in CASES if name not in HEALTHY and any(own_files(name, *OTHERS))]
UNCHECKED = (
    "queue_id",
    "queue_offset",
    "properties",
    "tags",
    "keys",
    "store_timestamp",
    "store_timestamp_ms",
)
"""Columns of fields that no checksum covers and that the damaged cases change."""


def files(case: str, codec: str) -> list[Path]:
    return [path for path, _ in own_files(case, codec)]


@cache
def messages(case: str) -> list[dict[str, Any]]:
    """Return the rows of all commit logs of a case."""
    actual = [Specimen.of(path, LOG).read().table.to_pylist() for path in files(case, LOG)]
    return [row for rows in actual for row in rows]


@pytest.mark.alike
@pytest.mark.parametrize("case", HEALTHY)
def test_healthy_files_decode_and_encode_to_the_same_bytes(case: str) -> None:
    for path, codec in own_files(case):
        verdict = decode_encode(path, codec)
        assert verdict, verdict
        report = Specimen.of(path, codec).read().report
        assert [fault for fault in report.faults if fault.severity != "info"] == []


@pytest.mark.alike
@pytest.mark.parametrize("case", ["basic", "props", "v2topic", "ipv6", "propcrc", "w497"])
def test_laws_hold_on_golden_files(case: str) -> None:
    for path in files(case, LOG)[:1]:
        for law in (encode_without_payloads, kernel_equals_description):
            verdict = law(path, LOG)
            assert verdict, verdict
        verdict = any_split(path, LOG, sizes=[1, 500, 3000])
        assert verdict, verdict


@pytest.mark.parametrize("case", [case for case in HEALTHY if first(case).lines.get("message")])
def test_messages_equal_the_stores(case: str) -> None:
    rows = {row["physical_offset"]: row for row in messages(case)}
    for message in first(case).lines.get("message", []):
        row = rows[message["phy"]]
        if not message.get("decoded", True):
            continue
        expected = {
            "queue_offset": message["queue_offset"], "physical_offset": message["physical_offset"], "flag": message["flag"],
            "sys_flag": message["sys_flag"], "tags": message["tags"], "keys": message["keys"], "born_timestamp_ms": message["born_ts"],
            "store_timestamp_ms": message["store_ts"], "reconsume_times": message["reconsume_times"],
            "prepared_transaction_offset": message["prepared_tx_offset"],
        }  # fmt: skip
        if case != "lmq":
            # There a message is in several queues, and has one topic.
            expected |= {"topic": message["topic"], "queue_id": message["queue"]}
        assert {name: row[name] for name in expected} == expected
        assert [[entry["key"], entry["value"]] for entry in row["properties"]] == message["properties"]
        body = message.get("body_plain_hex", message.get("body_hex"))
        if message.get("body_plain") == "undecodable":
            body = message["body_hex"]
        if "body_plain_sha256" in message:
            assert hashlib.sha256(row["body"]).hexdigest() == message["body_plain_sha256"]
        elif body is not None:
            assert (row["body"] or b"").hex() == body


@pytest.mark.parametrize("case", [case for case in HEALTHY if any(own_files(case, QUEUE))])
def test_queue_entries_point_to_their_messages(case: str) -> None:
    rows = {row["physical_offset"]: row for row in messages(case)}
    recorded = first(case).lines.get("message", [])
    for path in files(case, QUEUE):
        topic, queue = path.parts[-3], int(path.parts[-2])
        for unit in Specimen.of(path, QUEUE).read().table.to_pylist():
            if unit["physical_offset"] not in rows:
                continue  # of a log file that was deleted, or a filler
            actual = [
                row
                for row in recorded
                if (row["topic"], row["queue"], row["cq_offset"]) == (topic, queue, unit["queue_offset"])
            ]
            assert [(row["phy"], row["size"]) for row in actual] in (
                [],
                [(unit["physical_offset"], unit["size"])],
            )


@pytest.mark.alike
@pytest.mark.parametrize("case", DAMAGED_LOGS)
def test_damaged_logs_give_no_invented_message(case: str) -> None:
    """Ignoring fields without a checksum: messages are compared by position and body."""

    def comparable(row: dict[str, Any]) -> str:
        return repr({name: value for name, value in row.items() if name not in UNCHECKED})

    base = {comparable(row) for row in messages(CASES[case]["base"])}
    actual = messages(case)
    assert [row for row in actual if comparable(row) not in base] == []
    for path in files(case, LOG):
        verdict = decode_encode(path, LOG)
        assert verdict, verdict


def damaged_and_original(case: str) -> list[tuple[Path, Path]]:
    """Return the damaged logs that are about as long as the original ones, each with the original."""
    originals = HOME / CASES[case]["base"] / "store" / "commitlog"
    pairs = [(path, originals / path.name.zfill(20)) for path in files(case, LOG)]
    return [
        (path, original)
        for path, original in pairs
        if original.exists() and path.stat().st_size >= original.stat().st_size - 200
    ]


@pytest.mark.parametrize(
    "case",
    [
        case
        for case in DAMAGED_LOGS
        if not case.startswith(("dmg_cl_zero", "dmg_cl_props_")) and damaged_and_original(case)
    ],
)
def test_salvage_loses_one_message_per_damaged_place(case: str) -> None:
    for path, original in damaged_and_original(case):
        lost = len(Specimen.of(original, LOG).read().table) - len(Specimen.of(path, LOG).read().table)
        assert lost <= 2


@pytest.mark.parametrize("case", DAMAGED_QUEUES)
def test_damaged_queues_are_reported_and_round_trip(case: str) -> None:
    for path in files(case, QUEUE):
        verdict = decode_encode(path, QUEUE)
        assert verdict, verdict
        assert all(row["size"] > 0 for row in Specimen.of(path, QUEUE).read().table.to_pylist())


def test_zero_queue_entry_is_not_a_row() -> None:
    (path,) = (file for file in files("dmg_cq_zero_unit", QUEUE))
    result = Specimen.of(path, QUEUE).read()
    (fault,) = (fault for fault in result.report.faults if fault.severity == "error")
    assert (fault.offset % 20, fault.length) == (0, 20)
    assert fault.offset // 20 + int(path.name) // 20 not in result.table["queue_offset"].to_pylist()


@pytest.mark.parametrize("codec", [LOG, QUEUE])
def test_files_are_recognised_by_their_first_bytes(codec: str) -> None:
    for path in files("basic", codec):
        head = path.read_bytes()[:4096]
        detected = registry.detect(path.name, head)
        assert detected is not None
        assert detected.name == codec
        assert registry.get(codec).recognise("00000000000000000000.log", head) < Match.NAME


@pytest.mark.parametrize("case", DAMAGED_OTHERS)
def test_other_damaged_files_round_trip(case: str) -> None:
    for path, codec in own_files(case, *OTHERS):
        verdict = decode_encode(path, codec)
        assert verdict, verdict


@pytest.mark.parametrize("case", ["basic", "broker_e2e", "batchcq", "cqext", "rolled"])
def test_laws_hold_on_other_golden_files(case: str) -> None:
    for codec in OTHERS:
        for path in files(case, codec)[:2]:
            for law in (encode_without_payloads, kernel_equals_description):
                verdict = law(path, codec)
                assert verdict, verdict


@pytest.mark.parametrize("case", [name for name in CASES if name.startswith("dmg_idx")])
def test_damaged_index_file_is_reported(case: str) -> None:
    """Except fields that nothing else in the file contradicts: times, the last position, and positions of messages."""
    reports = [
        Specimen.of(path, codec).read().report for path, codec in own_files(case, "rocketmq.indexfile")
    ]
    silent = ("dmg_idx_begin_ts", "dmg_idx_end_phy", "dmg_idx_hash", "dmg_idx_phy", "dmg_idx_names")
    assert any(fault.severity == "error" for report in reports for fault in report.faults) == (
        bool(reports) and case not in silent
    )


def test_index_entries_point_to_messages_with_their_key() -> None:
    rows = {row["physical_offset"]: row for row in messages("props")}
    for path in files("props", "rocketmq.indexfile"):
        for entry in Specimen.of(path, "rocketmq.indexfile").read().table.to_pylist():
            assert entry["physical_offset"] in rows


def test_timer_wheel_and_log_equal_the_real_classes() -> None:
    records = [json.loads(line) for line in (HOME / "broker_e2e" / "timer.jsonl").read_text().splitlines()]
    wheel = gzip.decompress((HOME / "broker_e2e" / "store" / "timerwheel.gz").read_bytes())
    assert decode_encode(wheel, "rocketmq.timerwheel", name="timerwheel")
    table = Specimen.of(wheel, "rocketmq.timerwheel", "timerwheel").read().table
    slots = [row for row in table.to_pylist() if row["time"]]
    assert [
        (row["slot"], row["time"] * 1000, row["first_position"], row["last_position"], row["count"])
        for row in slots
    ] == [
        (line["slot"], line["time_ms"], line["first_pos"], line["last_pos"], line["num"])
        for line in records
        if line["kind"] == "wheel_slot"
    ]
    (path,) = files("broker_e2e", "rocketmq.timerlog")
    units = {row["position"]: row for row in Specimen.of(path, "rocketmq.timerlog").read().table.to_pylist()}
    for line in records:
        if line["kind"] == "timer_unit":
            unit = units[line["pos"]]
            assert (unit["previous"], unit["write_time"], unit["delayed_time"], unit["physical_offset"]) == (
                line["prev_pos"], line["curr_write_time"], line["delayed_time"], line["offset_py"]
            )  # fmt: skip


def test_configuration_of_a_real_broker_is_read() -> None:
    topics = Specimen.of(store("broker_e2e")["config/topics.json"]).read().table.to_pylist()
    assert {row["topic"]: row["read_queue_nums"] for row in topics}["TopicTx"] == 1
    offsets = Specimen.of(store("broker_e2e")["config/consumerOffset.json"]).read().table.to_pylist()
    assert {"topic": "TopicTest", "group": "cg0", "queue_id": 1, "offset": 22} in offsets
    levels = Specimen.of(store("broker_e2e")["config/delayOffset.json"]).read().table.to_pylist()
    assert levels == [{"delay_level": 1, "offset": 2}, {"delay_level": 2, "offset": 1}]


def test_every_file_of_a_store_is_recognised_by_its_name_and_first_bytes() -> None:
    for case in ("broker_e2e", "batchcq", "cqext", "killed"):
        for name, path in store(case).items():
            if codec_of(name) and any(path.read_bytes()[:4096]):
                detected = registry.detect(path.name, path.read_bytes()[:4096])
                assert detected is not None, name
                assert detected.name == codec_of(name), name


@pytest.mark.alike
@pytest.mark.parametrize(
    "damage", [bytes, lambda size: b"\xff" * size, lambda size: b"\0\0\0\1" * (size // 4)]
)
def test_damaged_file_of_a_store_is_recognised_by_its_place(
    damage: Callable[[int], bytes], tmp_path: Path
) -> None:
    for case in ("batchcq", "cqext"):
        for name, path in store(case).items():
            target = tmp_path / case / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    for case in ("batchcq", "cqext"):
        for name, path in store(case).items():
            target = tmp_path / case / name
            if name.partition("/")[0] not in ("lock", "config", "rocksdbstore"):
                data = path.read_bytes()
                target.write_bytes(damage(64) + data[64:])
                assert lw.explain(target).codec == codec_of(name), name
                target.write_bytes(data)
