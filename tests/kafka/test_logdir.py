"""A log directory's checkpoints and markers after a repair of its partitions."""

from __future__ import annotations

import pytest

from logwright.codec.kafka.store.logdir import LOG_DIRECTORY
from logwright.codec.layout import RepairedStore

CHECKPOINT = b"0\n3\norders 0 30\norders 1 300\ngone 0 7\n"
BELOW_END = RepairedStore(
    "orders-0", False, {"first_offset": 0, "last_offset": 29}, ["00000000000000000000.log"]
)
CUT = RepairedStore("orders-1", True, {"first_offset": 0, "last_offset": 199}, ["00000000000000000000.log"])
STORES = [BELOW_END, CUT]


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "cleaner-offset-checkpoint",
    ],
)
def test_offsets_beyond_the_end_of_a_repaired_log_are_lowered_to_it(name: str) -> None:
    after, note = LOG_DIRECTORY.after_repair(name, CHECKPOINT, STORES)
    assert after == b"0\n2\norders 0 30\norders 1 200\n"
    assert "orders-1 lowered from 300 to the log end offset 200" in note
    assert "gone-0 removed" in note


def test_log_start_beyond_the_end_is_removed_because_the_broker_would_delete_the_log() -> None:
    after, note = LOG_DIRECTORY.after_repair("log-start-offset-checkpoint", CHECKPOINT, STORES)
    assert after == b"0\n2\norders 0 30\ngone 0 7\n"
    assert "orders-1 removed (300 is beyond the log end offset 200)" in note


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
@pytest.mark.parametrize(
    "data", [b"0\r\n1\r\norders 0 30", b"0\n2\norders 1 200\norders 0 0\n", b"0\n0\n", b""]
)
def test_valid_checkpoint_keeps_its_bytes(name: str, data: bytes) -> None:
    assert LOG_DIRECTORY.after_repair(name, data, STORES) == (data, "")


@pytest.mark.parametrize(
    "data", [b"0\n9\norders 0 30\n\n\xff\norders 1 x\norders 1 12\n", b"0\nx\norders 0 30\norders 1 12\n"]
)
def test_malformed_checkpoint_keeps_its_readable_entries(data: bytes) -> None:
    after, note = LOG_DIRECTORY.after_repair("replication-offset-checkpoint", data, STORES)
    assert after == b"0\n2\norders 0 30\norders 1 12\n"
    assert "it was malformed" in note
    assert "2 of its entries were kept" in note


def test_clean_shutdown_marker_is_removed_only_with_a_changed_partition() -> None:
    name = ".kafka_cleanshutdown"
    assert LOG_DIRECTORY.after_repair(name, b"{}", [BELOW_END]) == (b"{}", "")
    after, note = LOG_DIRECTORY.after_repair(name, b"{}", STORES)
    assert after is None
    assert "is removed" in note


def test_other_files_keep_their_bytes() -> None:
    for name in ("meta.properties", "bootstrap.checkpoint"):
        assert LOG_DIRECTORY.after_repair(name, b"\x00x", STORES) == (b"\x00x", "")


def test_end_of_a_log_without_records_is_the_base_of_its_last_segment() -> None:
    empty = RepairedStore("orders-1", True, {}, ["00000000000000000120.log", "00000000000000000000.log"])
    nothing = RepairedStore("orders-0", True, {}, ["partition.metadata"])
    after, note = LOG_DIRECTORY.after_repair("recovery-point-offset-checkpoint", CHECKPOINT, [empty, nothing])
    assert after == b"0\n1\norders 1 120\n"
    assert "orders-0 removed" in note


def test_stray_partition_does_not_represent_the_one_of_its_name() -> None:
    aside = [
        RepairedStore(f"orders-1.0123456789abcdef0123456789abcdef-{why}", False, {"last_offset": 5}, [])
        for why in ("future", "stray")
    ]
    after, _ = LOG_DIRECTORY.after_repair(
        "recovery-point-offset-checkpoint", CHECKPOINT, [BELOW_END, *aside, CUT]
    )
    assert after == b"0\n2\norders 0 30\norders 1 200\n"
