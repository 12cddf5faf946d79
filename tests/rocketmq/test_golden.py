"""Commit logs and consume queues that real stores wrote, healthy and damaged."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from logwright.codec import registry
from logwright.codec.base import Match
from logwright.roundtrip.laws import any_split, decode_encode, encoded_anew, kernel_equals_description
from logwright.roundtrip.specimen import Specimen

HOME = Path(__file__).resolve().parents[2] / "corpora" / "golden" / "rocketmq"
CASES = {path.name: json.loads((path / "case.json").read_text()) for path in sorted(HOME.iterdir())}
HEALTHY = [name for name, case in CASES.items() if case["kind"] != "damaged"]
LOG, QUEUE = "rocketmq.commitlog", "rocketmq.consumequeue"
DAMAGED_LOGS = [
    name for name in CASES if name not in HEALTHY and (HOME / name / "store" / "commitlog").exists()
]
DAMAGED_QUEUES = [name for name in CASES if name.startswith("dmg_cq")]
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
    home = HOME / case / "store"
    found = [path for path in sorted(home.rglob("*")) if path.is_file() and path.name.isdigit()]
    return [path for path in found if ("consumequeue" in path.parts) == (codec == QUEUE)]


@cache
def messages(case: str) -> list[dict[str, Any]]:
    """The rows of all commit logs of a case."""
    found = [Specimen.of(path, LOG).read().table.to_pylist() for path in files(case, LOG)]
    return [row for rows in found for row in rows]


@pytest.mark.parametrize("case", HEALTHY)
def test_healthy_files_decode_and_encode_to_the_same_bytes(case: str) -> None:
    for codec in (LOG, QUEUE):
        for path in files(case, codec):
            verdict = decode_encode(path, codec)
            assert verdict, verdict
            assert not Specimen.of(path, codec).read().report.errors


@pytest.mark.parametrize("case", ["basic", "props", "v2topic", "ipv6", "propcrc", "w497"])
def test_laws_hold_on_golden_files(case: str) -> None:
    for path in files(case, LOG)[:1]:
        for law in (encoded_anew, kernel_equals_description):
            verdict = law(path, LOG)
            assert verdict, verdict
        verdict = any_split(path, LOG, sizes=[1, 500, 3000])
        assert verdict, verdict


@pytest.mark.parametrize("case", HEALTHY)
def test_messages_are_those_that_the_store_gives(case: str) -> None:
    rows = {row["physical_offset"]: row for row in messages(case)}
    for line in (HOME / case / "messages.jsonl").read_text().splitlines():
        said = json.loads(line)
        row = rows[said["phy"]]
        if not said.get("decoded", True):
            continue
        expected = {
            "queue_offset": said["queue_offset"], "physical_offset": said["physical_offset"], "flag": said["flag"],
            "sys_flag": said["sys_flag"], "tags": said["tags"], "keys": said["keys"], "born_timestamp_ms": said["born_ts"],
            "store_timestamp_ms": said["store_ts"], "reconsume_times": said["reconsume_times"],
            "prepared_transaction_offset": said["prepared_tx_offset"],
        }  # fmt: skip
        if case != "lmq":
            # There a message is in several queues, and has one topic.
            expected |= {"topic": said["topic"], "queue_id": said["queue"]}
        assert {name: row[name] for name in expected} == expected
        assert [[one["key"], one["value"]] for one in row["properties"]] == said["properties"]
        body = said.get("body_plain_hex", said.get("body_hex"))
        if said.get("body_plain") == "undecodable":
            body = said["body_hex"]
        if "body_plain_sha256" in said:
            assert hashlib.sha256(row["body"]).hexdigest() == said["body_plain_sha256"]
        elif body is not None:
            assert (row["body"] or b"").hex() == body


@pytest.mark.parametrize("case", HEALTHY)
def test_units_lead_to_the_messages_of_their_queue(case: str) -> None:
    rows = {row["physical_offset"]: row for row in messages(case)}
    said = [json.loads(line) for line in (HOME / case / "messages.jsonl").read_text().splitlines()]
    for path in files(case, QUEUE):
        topic, queue = path.parts[-3], int(path.parts[-2])
        if (path.parents[2] / topic).parent.name != "consumequeue":
            continue
        for unit in Specimen.of(path, QUEUE).read().table.to_pylist():
            if unit["physical_offset"] not in rows:
                continue  # of a log file that was deleted, or a filler
            found = [
                one
                for one in said
                if (one["topic"], one["queue"], one["cq_offset"]) == (topic, queue, unit["queue_offset"])
            ]
            assert [(one["phy"], one["size"]) for one in found] in (
                [],
                [(unit["physical_offset"], unit["size"])],
            )


@pytest.mark.parametrize("case", DAMAGED_LOGS)
def test_damaged_logs_give_only_messages_of_their_base(case: str) -> None:
    """Fields that no checksum covers apart: a message counts by its place, its body and what its position vouches for."""

    def told(row: dict[str, Any]) -> str:
        return repr({name: value for name, value in row.items() if name not in UNCHECKED})

    base = {told(row) for row in messages(CASES[case]["base"])}
    found = messages(case)
    assert [row for row in found if told(row) not in base] == []
    for path in files(case, LOG):
        verdict = decode_encode(path, LOG)
        assert verdict, verdict


@pytest.mark.parametrize(
    "case", [case for case in DAMAGED_LOGS if not case.startswith(("dmg_cl_zero", "dmg_cl_props_"))]
)
def test_salvage_loses_one_message_for_each_damaged_place(case: str) -> None:
    for path in files(case, LOG):
        whole = HOME / CASES[case]["base"] / "store" / "commitlog" / path.name.zfill(20)
        if not whole.exists() or path.stat().st_size < whole.stat().st_size - 200:
            continue
        lost = len(Specimen.of(whole, LOG).read().table) - len(Specimen.of(path, LOG).read().table)
        assert lost <= 2


@pytest.mark.parametrize("case", DAMAGED_QUEUES)
def test_damaged_queues_are_reported_and_written_again(case: str) -> None:
    for path in files(case, QUEUE):
        verdict = decode_encode(path, QUEUE)
        assert verdict, verdict
        assert all(row["size"] > 0 for row in Specimen.of(path, QUEUE).read().table.to_pylist())


def test_a_zero_unit_is_no_row() -> None:
    (path,) = (one for one in files("dmg_cq_zero_unit", QUEUE))
    found = Specimen.of(path, QUEUE).read()
    (fault,) = (one for one in found.report.faults if one.severity == "error")
    assert (fault.offset % 20, fault.length) == (0, 20)
    assert fault.offset // 20 + int(path.name) // 20 not in found.table["queue_offset"].to_pylist()


@pytest.mark.parametrize("codec", [LOG, QUEUE])
def test_files_are_recognised_by_their_first_bytes(codec: str) -> None:
    for path in files("basic", codec):
        head = path.read_bytes()[:4096]
        found = registry.detect(path.name, head)
        assert found is not None
        assert found.name == codec
        assert registry.get(codec).recognise("00000000000000000000.log", head) < Match.NAME
