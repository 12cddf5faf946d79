"""Other batches: `convert` with `batch.size` keeps producers, sequence numbers, transactions and leader epochs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from kafka_golden import CASES

import logwright as lw

NAMES = (
    "v2_txn_commit_abort", "v2_txn_interleaved", "v2_txn_open", "v2_idempotent", "v2_many_in_batch", "v2_many_single", "v2_epochs",
    "v2_append_time_lz4", "v2_append_time_none", "v2_compacted", "v2_compacted_producers", "v2_headers", "v2_zstd_java",
    "mixed_v0_v1_v2", "craft_seq_wrap", "craft_delete_horizon", "consumer_offsets",
)  # fmt: skip
RECORDS = (
    "offset", "key", "value", "headers", "headers_raw", "timestamp_ms", "timestampType", "create_timestamp_ms", "attributes",
    "leader_epoch", "producer_id", "producer_epoch", "sequence", "is_transactional", "is_control", "magic", "compression",
)  # fmt: skip
HEADERS = [
    "base_offset", "last_offset", "records_count", "producer_id", "producer_epoch", "base_sequence", "is_transactional", "is_control",
    "magic", "compression", "delete_horizon_ms", "max_timestamp",
]  # fmt: skip


def records(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lw.read(path, view="log", columns=list(RECORDS)).to_pylist()
    return rows


def batches(path: Path) -> list[dict[str, Any]]:
    headers: list[dict[str, Any]] = lw.read(path, view="batches", columns=HEADERS).to_pylist()
    return headers


def sequences(headers: list[dict[str, Any]]) -> set[tuple[int, int, int]]:
    """Return each sequence number that batches cover, with its producer and epoch."""
    return {
        (batch["producer_id"], batch["producer_epoch"], (batch["base_sequence"] + n) & (1 << 31) - 1)
        for batch in headers
        if batch["base_sequence"] >= 0
        for n in range(batch["last_offset"] - batch["base_offset"] + 1)
    }


def logs(path: Path) -> bytes:
    return b"".join(log.read_bytes() for log in sorted(path.glob("*.log")))


@pytest.mark.alike
@pytest.mark.parametrize("size", [70, 1 << 20])
@pytest.mark.parametrize("name", NAMES)
def test_records_keep_all_but_their_batch(tmp_path: Path, name: str, size: int) -> None:
    source = CASES[name].partition
    out = tmp_path / source.name
    done = lw.convert(source, out, batch_size=size)
    assert not done["notes"]
    assert records(out) == records(source)
    assert lw.verify(out).ok
    before, after = batches(source), batches(out)
    fixed = [
        batch for batch in before if batch["is_control"] or batch["delete_horizon_ms"] or batch["magic"] < 2
    ]
    assert [batch for batch in after if batch in fixed] == fixed
    assert sequences(after) == sequences(before)


def test_each_record_gets_its_own_batch_and_the_divided_batches_join_again(tmp_path: Path) -> None:
    source = CASES["v2_txn_interleaved"].partition
    single, joined = tmp_path / "single" / source.name, tmp_path / "joined" / source.name
    lw.convert(source, single, batch_size=0)
    assert {batch["records_count"] for batch in batches(single)} == {1}
    lw.convert(single, joined, batch_size=1 << 20)
    assert logs(joined) == logs(source)


def test_batches_of_two_producers_transactions_or_epochs_are_not_joined(tmp_path: Path) -> None:
    for name in ("v2_txn_commit_abort", "v2_epochs", "v2_idempotent"):
        source = CASES[name].partition
        out = tmp_path / source.name
        lw.convert(source, out, batch_size=1 << 30)
        rows = records(out)
        starts = {batch["base_offset"] for batch in batches(out)}
        for before, after in pairwise(rows):
            same = all(
                before[field] == after[field]
                for field in (
                    "producer_id",
                    "producer_epoch",
                    "is_transactional",
                    "leader_epoch",
                    "is_control",
                )
            )
            assert same or after["offset"] in starts


def test_a_gap_in_the_sequence_numbers_starts_a_batch(tmp_path: Path) -> None:
    """Batches of one producer whose sequence numbers do not continue, as after a lost batch, stay apart."""
    source = CASES["v2_idempotent"].partition
    single, gap = tmp_path / "single" / source.name, tmp_path / "gap" / source.name
    lw.convert(source, single, batch_size=0)
    offset = next(row["offset"] for row in records(single)[2:] if row["producer_id"] >= 0)
    at = [batch["base_offset"] for batch in batches(single)].index(offset)
    lw.damage(single, out=gap.parent, op=[f"set:frame={at},field=base_sequence,value=77777,reseal"])
    out = tmp_path / "out" / source.name
    lw.convert(gap, out, batch_size=1 << 20)
    assert {offset, offset + 1} <= {batch["base_offset"] for batch in batches(out)}


def test_batches_that_are_not_divided_keep_their_bytes(tmp_path: Path) -> None:
    source = CASES["v2_zstd_java"].partition
    lw.convert(source, tmp_path / source.name, batch_size=batch_of_largest(source))
    kept = {batch["base_offset"] for batch in batches(tmp_path / source.name)}
    assert kept <= {batch["base_offset"] for batch in batches(source)}
    lw.convert(source, tmp_path / "again" / source.name, batch_size=1 << 20, compression_type="lz4")
    assert {batch["compression"] for batch in batches(tmp_path / "again" / source.name)} == {"lz4"}


def batch_of_largest(source: Path) -> int:
    return (
        max(int(size) for size in lw.read(source, view="batches", columns=["size"])["size"].to_pylist()) * 20
    )


def test_batch_size_is_refused_with_offsets_to_delete(tmp_path: Path) -> None:
    source = CASES["v2_idempotent"].partition
    with pytest.raises(lw.UsageError, match=r"batch\.size cannot be combined with delete\.before\.offset"):
        lw.convert(source, tmp_path / source.name, batch_size=100, delete_before_offset=3)


def test_sequence_0_does_not_continue_a_batch_without_sequence_numbers(tmp_path: Path) -> None:
    """The group coordinator numbers its batches from 0, others without a producer have -1."""
    source, out = tmp_path / "odd-0", tmp_path / "out" / "odd-0"
    lw.generate("kafka.partition", source, rows=400, seed=3, recipe="odd")
    before = records(source)
    assert {-1, 0} <= {record["sequence"] for record in before if record["producer_id"] < 0}
    lw.convert(source, out, batch_size=3000)
    assert records(out) == before
