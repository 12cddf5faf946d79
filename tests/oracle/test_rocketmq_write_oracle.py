"""RocketMQ's own store loads the stores that we write, and both append to the other's."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from rocketmq_damaged import comparable, files_of, geometry, rows

import logwright as lw
from logwright.roundtrip.oracles import rocketmq as oracle

pytestmark = pytest.mark.oracle
NEWEST = oracle.VERSIONS[0]
SIZES = {
    "mappedFileSizeCommitLog": 2048,
    "mappedFileSizeConsumeQueue": 100,
    "maxHashSlotNum": 8,
    "maxIndexNum": 200,
}


@pytest.fixture(params=oracle.VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    reason = oracle.available(request.param)
    if reason:
        pytest.skip(reason)
    return str(request.param)


@pytest.fixture
def newest() -> str:
    reason = oracle.available(NEWEST)
    if reason:
        pytest.skip(reason)
    return NEWEST


def expected(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages that are in a queue, in the order of topic, queue and offset, as the real store describes them."""
    counts: defaultdict[tuple[str, int], int] = defaultdict(int)
    out = []
    for row in messages:
        if row.get("sys_flag", 0) & 12 in (4, 12):
            continue
        key = row["topic"], row["queue_id"]
        properties = {entry["key"]: entry["value"] for entry in row.get("properties", [])}
        properties |= {
            name: row[column] for name, column in (("KEYS", "keys"), ("TAGS", "tags")) if row.get(column)
        }
        out.append(
            {
                "topic": key[0], "queue_id": key[1], "queue_offset": counts[key], "store_timestamp": row["store_timestamp_ms"],
                "tags": row.get("tags"), "keys": row.get("keys"), "body": row["body"].hex() or None, "properties": properties,
            }
        )  # fmt: skip
        counts[key] += 1
    return sorted(out, key=lambda row: (row["topic"], row["queue_id"], row["queue_offset"]))


def selected(messages: list[dict[str, Any]], names: set[str]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in row if name in names} for row in messages]


@pytest.mark.parametrize("seed", range(6))
def test_written_store_is_loaded_unchanged(version: str, seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    options, messages, home = geometry(chance), rows(chance), tmp_path / "store"
    lw.write(messages[: len(messages) // 2], home, "rocketmq.store", **options)
    lw.write(messages[len(messages) // 2 :], home, "rocketmq.store", mode="append", **options)
    before = comparable(files_of(home))
    loaded = oracle.load(version, home, options, messages=True)
    assert loaded.load
    described = expected(messages)
    assert selected(loaded.messages, set(described[0])) == described
    assert comparable(files_of(home)) == before


ODD: list[dict[str, Any]] = [
    {"topic": "\u8ba2\u5355", "queue_id": 17, "keys": "\u043a\u043b\u044e\u0447 \U0001f642", "tags": "\u6807\u7b7e", "body": b"",
     "properties": [{"key": "\u540d", "value": "\u5024\U0001f642"}]},
    {"topic": "T", "queue_id": 3, "keys": "a  b   a ", "body": b"x", "properties": [{"key": f"k{i}", "value": "v" * 100} for i in range(280)]},
    {"topic": "T", "queue_id": 9, "body": b"y", "born_host": "[2001:db8::1]:5", "store_host": "10.0.0.1:65535", "flag": -1},
    {"topic": "T", "queue_id": 9, "body": b"z" * 90, "born_host": "10.0.0.1:0", "store_host": "[::]:1", "sys_flag": 2, "reconsume_times": -5},
]  # fmt: skip


def test_rows_of_odd_values_are_loaded_unchanged(version: str, tmp_path: Path) -> None:
    home, options = tmp_path / "store", {**SIZES, "mappedFileSizeCommitLog": 1 << 16}
    messages = [{**row, "store_timestamp_ms": 1_700_000_000_000 + n} for n, row in enumerate(ODD)]
    lw.write(messages, home, "rocketmq.store", broker_version=version, **options)
    before = comparable(files_of(home))
    queries = [("T", "a"), ("T", "b"), ("\u8ba2\u5355", "\U0001f642")]
    loaded = oracle.load(version, home, options, messages=True, queries=queries)
    described = expected(messages)
    assert selected(loaded.messages, set(described[0])) == described
    assert [len(set(loaded.offsets[query] or ())) for query in queries] == [1, 1, 1]
    assert comparable(files_of(home)) == before


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_every_key_is_found(version: str, clean: bool, tmp_path: Path) -> None:
    """After an unclean stop the store rebuilds its newest index file."""
    home = tmp_path / "store"
    messages = [
        {
            "topic": f"T{n % 2}",
            "queue_id": n % 3,
            "keys": f"k{n % 7} unique{n}",
            "tags": "a",
            "body": b"%d" % n,
            "store_timestamp_ms": 1_700_000_000_000 + n,
        }
        for n in range(40)
    ]
    lw.write(messages, home, "rocketmq.store", **SIZES)
    if not clean:
        (home / "abort").write_text("1")
        (home / "checkpoint").unlink()
    offsets = lw.read(home, columns=["physical_offset"])["physical_offset"].to_pylist()
    pairs = sorted({(row["topic"], key) for row in messages for key in str(row["keys"]).split()})
    loaded = oracle.load(version, home, {**SIZES, "commitLogRecoverMaxNum": 1000}, queries=pairs)
    for topic, key in pairs:
        assert sorted(set(loaded.offsets[topic, key])) == [
            offset
            for offset, row in zip(offsets, messages, strict=True)
            if row["topic"] == topic and key in str(row["keys"]).split()
        ]


def test_store_is_rebuilt_from_the_log_alone(newest: str, tmp_path: Path) -> None:
    """The real store derives the same queues and the same index."""
    home, chance = tmp_path / "store", random.Random(3)
    lw.write(rows(chance), home, "rocketmq.store", **SIZES)
    written = comparable(files_of(home))
    alone = tmp_path / "alone"
    alone.mkdir()
    (home / "commitlog").rename(alone / "commitlog")
    assert oracle.load(newest, alone, {**SIZES, "commitLogRecoverMaxNum": 1000}).load
    assert comparable(files_of(alone)) == written


def test_each_appends_to_the_others_store(newest: str, tmp_path: Path) -> None:
    home, chance = tmp_path / "store", random.Random(5)
    messages = [row for row in rows(chance) if not row.get("sys_flag")]
    lw.write(messages, home, "rocketmq.store", **SIZES)
    for round_ in range(2):
        assert oracle.load(newest, home, SIZES, start=True).load
        theirs = [
            {"topic": "Theirs", "queue_id": n % 2, "keys": f"r{round_}n{n}", "tags": "t", "body": b"x" * n}
            for n in range(20)
        ]
        end = oracle.put(newest, theirs)
        oracle.close(newest)
        report = lw.verify(home, as_system=newest)
        assert report.ok, report.text()
        assert report.system is not None
        assert report.system["serves"]["log_end"] == end
        lw.write(
            [{"topic": "Ours", "queue_id": 0, "body": b"%d" % round_}], home, "rocketmq.store", mode="append"
        )
    table = lw.read(home, columns=["topic", "queue_id", "queue_offset", "body"]).to_pylist()
    assert [row["body"] for row in table if row["topic"] == "Ours"] == [b"0", b"1"]
    assert [(row["queue_id"], row["queue_offset"]) for row in table if row["topic"] == "Theirs"] == [
        (n % 2, n // 2) for n in range(40)
    ]
    loaded = oracle.load(newest, home, SIZES, messages=True)
    assert len(loaded.messages) == len(messages) + 42
