"""The oracle equals Kafka's recorded output for the golden files, and facts about Java."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logwright.roundtrip.oracles.java import JavaError
from logwright.roundtrip.oracles.kafka_broker import Broker, BrokerError, ConsumeError

pytestmark = pytest.mark.oracle

READ = [
    *(
        "v2_none_java",
        "v2_gzip_java",
        "v2_snappy_librdkafka",
        "v2_lz4_aiokafka",
        "v2_zstd_java",
        "v2_headers",
    ),
    *("v2_txn_interleaved", "v2_rolled", "v2_append_time_lz4", "v1_gzip", "v0_none", "craft_spec22"),
]

SERVED = [
    *("v2_txn_interleaved", "v2_rolled", "craft_spec22", "v2_headers", "v2_zstd_librdkafka", "v2_epochs"),
    *("v1_gzip", "mixed_v0_v1_v2"),
]

T = 1_700_000_000_000


def served_form(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name not in ("partition", "leader_epoch")}


# --- files


@pytest.mark.parametrize("name", READ)
def test_records_equal_a_consumers(kafka: Any, golden: Any, as_golden: Any, name: str) -> None:
    case = golden(name)
    actual = [record for record in kafka.records(case.directory) if not record["batch"]["is_control"]]
    assert [as_golden(record) for record in actual] == [served_form(line) for line in case.records()]


def test_batches_name_markers_and_horizons(kafka: Any, golden: Any) -> None:
    batches = [
        batch
        for log in sorted(golden("v2_txn_interleaved").directory.glob("*.log"))
        for batch in kafka.batches(log)
    ]
    markers = [batch["records"][0] for batch in batches if batch["is_control"]]
    assert {marker["control_type"] for marker in markers} == {"ABORT", "COMMIT"}
    assert all(batch["is_valid"] for batch in batches)
    (log,) = golden("craft_delete_horizon").directory.glob("*.log")
    assert any(batch["delete_horizon_ms"] is not None for batch in kafka.batches(log))


def test_damage_is_kafkas_own_error(kafka: Any, golden: Any, tmp_path: Path) -> None:
    (log,) = golden("v2_none_java").directory.glob("*.log")
    data = bytearray(log.read_bytes())
    data[40] ^= 1  # in the maximal timestamp: the header reads, the checksum doesn't match
    (tmp_path / log.name).write_bytes(data)
    first = kafka.batches(tmp_path / log.name)[0]
    assert not first["is_valid"]
    data[8:12] = (3).to_bytes(4, "big")
    (tmp_path / log.name).write_bytes(data)
    with pytest.raises(JavaError) as caught:
        kafka.batches(tmp_path / log.name)
    assert caught.value.java_class.endswith("CorruptRecordException")


@pytest.mark.parametrize(
    "name",
    [
        *("v2_none_java", "v2_gzip_java", "v2_snappy_java", "v2_lz4_java", "v2_zstd_java", "v2_headers"),
        *("v2_txn_commit_abort", "v2_none_librdkafka", "mixed_v0_v1"),
    ],
)
def test_build_writes_the_bytes_of_a_broker(kafka: Any, golden: Any, name: str) -> None:
    for log in golden(name).directory.glob("*.log"):
        specs = [kafka.spec_of(batch) for batch in kafka.batches(log)]
        assert kafka.build(*specs) == log.read_bytes()


def test_build_from_given_records(kafka: Any) -> None:
    built = kafka.build(
        {
            "partition_leader_epoch": 0,
            "records": [
                {"timestamp": T, "key": b"k1", "value": b"v1", "headers": [(b"h", b"x")]},
                {"timestamp": T + 5, "value": b""},
            ],
        },
        {
            "base_offset": 3,
            "partition_leader_epoch": 0,
            "producer_id": 4000,
            "producer_epoch": 0,
            "is_transactional": True,
            "control": {"type": "COMMIT", "timestamp": T + 20, "coordinator_epoch": 7},
        },
    )
    assert built.hex() == (
        "0000000000000000" "00000047" "00000000" "02" "11b537f4" "0000" "00000001" "0000018bcfe56800" "0000018bcfe56805"
        "ffffffffffffffff" "ffff" "ffffffff" "00000002" "1c000000046b310476310202680278" "0c000a02010000"
        "0000000000000003" "00000042" "00000000" "02" "d8a12367" "0030" "00000000" "0000018bcfe56814" "0000018bcfe56814"
        "0000000000000fa0" "0000" "ffffffff" "00000001" "200000000800000001" "0c00000000000700"
    )  # fmt: skip


def test_dump_prints_every_record(kafka: Any, golden: Any) -> None:
    (log,) = golden("v2_gzip_java").directory.glob("*.log")
    batches = kafka.batches(log)
    message = kafka.dump(log, "--print-data-log")
    assert [int(actual) for actual in re.findall(r"^\| offset: (\d+)", message, re.MULTILINE)] == [
        record["offset"] for batch in batches for record in batch["records"]
    ]
    assert [int(actual) for actual in re.findall(r" crc: (\d+)", message)] == [
        batch["crc"] for batch in batches
    ]


def test_dump_finds_a_wrong_index(kafka: Any, golden: Any, tmp_path: Path) -> None:
    source = golden("v2_rolled").directory
    name = next(path.name for path in sorted(source.glob("*.index")) if path.stat().st_size)
    copy = shutil.copytree(source, tmp_path / source.name)
    assert "Mismatch" not in kafka.dump(copy / name, "--verify-index-only")
    data = bytearray((copy / name).read_bytes())
    data[3] ^= 1  # the relative offset of the first entry
    (copy / name).write_bytes(data)
    message = kafka.dump(copy / name, "--verify-index-only")
    assert "Mismatch" in message
    assert str(copy / name) in message


def test_dump_leaves_the_file_unchanged(kafka: Any, golden: Any) -> None:
    path = golden("dmg_index_odd_length").directory / "00000000000000000030.index"
    before = path.read_bytes()
    assert "offset: " in kafka.dump(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "file", "error"),
    [
        ("dmg_index_odd_length", "00000000000000000030.index", "CorruptIndexException"),
        ("dmg_txn_index_below_base", "00000000000000000023.txnindex", "CorruptIndexException"),
        ("dmg_txn_snapshot_crc", "00000000000000000040.snapshot", "CorruptSnapshotException"),
        ("dmg_epoch_blank_line", "leader-epoch-checkpoint", "KafkaStorageException"),
        ("dmg_pm_zero_id", "partition.metadata", "KafkaStorageException"),
    ],
)
def test_sanity_names_the_bad_file(kafka: Any, golden: Any, name: str, file: str, error: str) -> None:
    directory = golden(name).directory
    before = {path: path.read_bytes() for path in directory.iterdir()}
    actual = kafka.sanity(directory)
    assert {path: path.read_bytes() for path in directory.iterdir()} == before
    assert [(row["file"], row["class"].rpartition(".")[2]) for row in actual] == [(file, error)]


def test_sanity_is_silent_on_healthy_directories(kafka: Any, golden: Any) -> None:
    for name in ("v2_txn_interleaved", "v2_rolled", "v2_epochs", "mixed_v0_v1"):
        assert kafka.sanity(golden(name).directory) == []


@pytest.mark.parametrize(
    "name", ["v2_txn_interleaved", "v2_rolled", "v2_compacted_producers", "mixed_v0_v1_v2"]
)
@pytest.mark.parametrize("interval", [4096, 200])
def test_rebuild_equals_a_brokers(kafka: Any, golden: Any, name: str, interval: int) -> None:
    case = golden(name)
    rebuilt = kafka.rebuild(case.directory, interval)
    epochs = rebuilt.pop("leader-epoch-checkpoint")
    # Empty files are left out of the golden set.
    assert {file: data for file, data in rebuilt.items() if data} == case.derived(f"after-rebuild-{interval}")
    # The broker also wrote that it had become leader, in epoch 12.
    there = (case.path / f"after-rebuild-{interval}" / "leader-epoch-checkpoint").read_text().split("\n")
    assert epochs.decode().split("\n")[2:-1] == [line for line in there[2:-1] if not line.startswith("12 ")]


def test_load_truncates_as_a_broker_does(kafka: Any, golden: Any, tmp_path: Path) -> None:
    source = golden("dmg_flip_old_payload").directory
    copy = shutil.copytree(source, tmp_path / source.name)
    loaded = kafka.load(copy, index_interval_bytes=250)
    assert (loaded["log_start_offset"], loaded["log_end_offset"]) == (0, 31)
    assert (copy / "00000000000000000030.log").stat().st_size == 111
    source = golden("dmg_epoch_alpha").directory
    copy = shutil.copytree(source, tmp_path / source.name)
    with pytest.raises(JavaError, match="NumberFormatException"):
        kafka.load(copy)


# Unknown to the loader of a single partition: the checkpoints of the log directory, the topic's id in the metadata, and that
# a consumer came by later and had an index opened, and so cut to whole entries.
ABOVE = {
    "dmg_ck_hw_garbage",
    "dmg_ck_logstart_beyond",
    "dmg_ck_recovery_blank",
    "dmg_pm_missing",
    "dmg_pm_other",
}
READ_LATER = {("dmg_index_odd_length", "marker")}


@pytest.mark.parametrize(("run", "clean"), [("no_marker", False), ("marker", True)])
def test_load_leaves_the_files_a_broker_left(
    kafka: Any, golden: Any, tmp_path: Path, run: str, clean: bool
) -> None:
    judged = 0
    for verdicts in sorted((golden("v2_rolled").path.parent).glob("*/recovery.json*")):
        data = verdicts.read_bytes()
        verdict = json.loads(gzip.decompress(data) if verdicts.suffix == ".gz" else data)["runs"].get(run)
        name = verdicts.parent.name
        partitions = [path for path in verdicts.parent.glob("data/*-*") if path.is_dir()]
        if verdict is None or len(partitions) != 1 or name in ABOVE or (name, run) in READ_LATER:
            continue
        copy = Path(shutil.copytree(partitions[0], tmp_path / name / partitions[0].name))
        try:
            loaded = kafka.load(copy, clean=clean, index_interval_bytes=250, segment_index_bytes=4096)
        except JavaError:
            loaded = None
        assert (loaded is not None) == (verdict["started"] and not verdict["log_dir_offline"]), name
        judged += 1
        if loaded is None:
            continue
        assert loaded["log_end_offset"] == verdict["consumer"]["read_uncommitted"]["end_offset"], name
        for file, left in verdict["files_after"].items():
            if file != "leader-epoch-checkpoint":  # becoming leader adds to it
                actual = (copy / file).read_bytes()
                assert (len(actual), hashlib.sha256(actual).hexdigest()) == (left["size"], left["sha256"]), (
                    f"{name}: {file}"
                )
        for file in verdict["files_removed"]:
            assert not (copy / file).exists(), f"{name}: {file}"
    assert judged > 200


def test_kafka_rewrites_a_producer_snapshot_with_the_same_bytes(kafka: Any, golden: Any) -> None:
    for path in golden("v2_compacted_producers").directory.glob("*.snapshot"):
        assert kafka.write_snapshot(kafka.read_snapshot(path)) == path.read_bytes()


# --- Java


def bucket_order(ids: list[int], removed: set[int], most: int = 0) -> list[int]:
    """Return the order of a HashMap<Long, ?> whose buckets stay lists: by bucket, then by age. `most` is its largest size ever."""
    capacity = 16
    while max(len(set(ids)), most) > capacity * 3 // 4:
        capacity *= 2

    def bucket(value: int) -> int:
        unsigned = value & (2**64 - 1)
        spread = (unsigned ^ unsigned >> 32) & (2**32 - 1)
        return (spread ^ spread >> 16) & (capacity - 1)

    return sorted((fromkey for fromkey in dict.fromkeys(ids) if fromkey not in removed), key=bucket)


def test_javas_map_orders_ids_by_bucket(kafka: Any) -> None:
    # 4000 falls into bucket 0, 1 and 17 and 33 into 1, 1,000,000 (0xF4240) into 15.
    assert kafka.hash_map_order([1_000_000, 4000, 33, 1, 17, 2]) == [4000, 33, 1, 17, 2, 1_000_000]
    assert kafka.hash_map_order([2, 17, 1, 33, 4000, 1_000_000]) == [4000, 17, 1, 33, 2, 1_000_000]
    assert kafka.hash_map_order([5, -1, 0]) == [-1, 0, 5]  # the hash code of -1L is 0
    dice = random.Random(7)
    for count in (3, 12, 13, 100, 1000):
        ids = [dice.randrange(-(2**40), 2**40) for _ in range(count)]
        removed = set(dice.sample(ids, count // 3))
        assert kafka.hash_map_order(ids, removed) == bucket_order(ids, removed)
    assert kafka.hash_map_order([17, 1], cleared=range(13)) == bucket_order([17, 1], set(), 13) == [1, 17]


# --- a broker


@pytest.fixture(scope="module")
def serving(kafka: Any, golden: Any) -> Iterator[Broker]:
    with Broker() as broker:
        for name in SERVED:
            broker.place(
                golden(name).directory, configs={"index.interval.bytes": "200", "segment.index.bytes": "4096"}
            )
        broker.place(golden("dmg_flip_old_payload").directory, "cut")
        broker.place(golden("dmg_flip_old_payload").directory, "stuck", clean=True)
        broker.place(golden("dmg_epoch_blank_line").directory, "offline")
        broker.start()
        yield broker


@pytest.mark.parametrize("name", SERVED)
def test_broker_serves_what_it_served(serving: Broker, golden: Any, as_golden: Any, name: str) -> None:
    case = golden(name)
    for isolation in ("read_uncommitted", "read_committed"):
        actual = serving.consume(name, isolation)
        lines = case.records(isolation)
        assert [as_golden(record) for record in actual] == [served_form(line) for line in lines]
        assert [record["leader_epoch"] for record in actual] == [line.get("leader_epoch") for line in lines]


def test_broker_logs_its_handling_of_damage(serving: Broker) -> None:
    assert serving.consume("cut")[-1]["offset"] == 30
    assert serving.offsets("cut") == {"log_start_offset": 0, "high_watermark": 31, "last_stable_offset": 31}
    message = serving.log_lines("cut")
    assert any("Corruption found in segment 30, truncating to offset 31" in line for line in message)
    assert any(line.startswith("  org.apache.kafka.common.errors.CorruptRecordException") for line in message)
    assert not any("stuck-0" in line for line in message)


def test_clean_marker_hides_damage_from_the_broker(serving: Broker) -> None:
    with pytest.raises(ConsumeError, match="stopped at offset 31 of 97") as caught:
        serving.consume("stuck")
    assert len(caught.value.consumed.records) == 31


def test_offline_directory_does_not_affect_others(serving: Broker) -> None:
    with pytest.raises(JavaError, match="offline"):
        serving.consume("offline")
    assert any("Malformed line in checkpoint file" in line for line in serving.log_lines("offline"))


def test_life_of_a_broker(broker: Broker, golden: Any) -> None:
    case = golden("v2_rolled")
    broker.place(case.directory, "first", clean=True)
    broker.start()
    (offset,) = broker.produce(
        "first", [{"key": b"k", "value": None, "headers": [(b"h", b"")], "timestamp": T}]
    )
    assert offset == case.records()[-1]["offset"] + 1
    configs = {"transactional.id": "t"}
    broker.create_topic("later", {"index.interval.bytes": "100"})
    broker.produce("later", [{"value": b"x"}], configs=configs)
    broker.produce("later", [{"value": b"y"}], configs=configs, abort=True)
    assert [record["value"] for record in broker.consume("later", "read_committed")] == [b"x"]
    broker.kill()

    broker.start()
    last = broker.consume("first")[-1]
    assert (last["offset"], last["key"], last["value"], last["headers"]) == (
        offset,
        b"k",
        None,
        [(b"h", b"")],
    )
    assert any("no clean shutdown file was found" in line for line in broker.log_lines("first"))
    broker.stop()

    # A topic that the broker made itself, with other files in it.
    assert f"{0:020d}.log" in broker.files("later")
    broker.place(golden("v2_headers").directory, "later")
    broker.start()
    assert len(broker.consume("later")) == len(golden("v2_headers").records())
    assert len(broker.consume("first")) == offset + 1


def test_broker_that_does_not_start_says_why(broker: Broker, golden: Any) -> None:
    broker.place(golden("dmg_epoch_alpha").directory)
    with pytest.raises(BrokerError) as caught:
        broker.start()
    assert any("NumberFormatException" in line for line in caught.value.lines)
