"""Repair from several replicas: each batch from any replica that has it, in the first one's segments; diverged replicas are refused."""

from __future__ import annotations

import random

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_log import batch, pack_records, raw_batch, record
from kafka_repairs import ID, OPTIONS, check_broker_accepts, partition_directory, repair
from memory_directory import MemoryDirectory

from logwright.codec.fault import UsageError
from logwright.codec.kafka.formats import partition_metadata as metadata
from logwright.codec.kafka.names import METADATA_FILE, segment_name

COUNT = 12


def batch_at(offset: int, *, epoch: int = 0, value: bytes | None = None, **more: object) -> bytes:
    body = b"value %d" % offset if value is None else value
    return batch(offset, [record(0, value=body)], partition_leader_epoch=epoch, **more)


ALL = [batch_at(offset) for offset in range(COUNT)]
SIZE = len(ALL[0])


def copy(parts: list[bytes], *bases: int, name: str = "orders-0") -> MemoryDirectory:
    """Return the batches of a log, in segments that start at these offsets."""
    files = {METADATA_FILE: metadata.pack(ID)}
    ends = [*bases[1:], len(parts)]
    for base, end in zip(bases, ends, strict=True):
        files[segment_name(base, ".log")] = b"".join(parts[base:end])
    return partition_directory(files, name)


def with_flipped_bits(directory: MemoryDirectory, *offsets: int) -> MemoryDirectory:
    """Flip a bit in the values of some records."""
    files = dict(directory.files)
    for offset in offsets:
        base = max(int(name[:20]) for name in files if name.endswith(".log") and int(name[:20]) <= offset)
        body = bytearray(files[segment_name(base, ".log")])
        body[sum(len(part) for part in ALL[base:offset]) + SIZE - 4] ^= 1
        files[segment_name(base, ".log")] = bytes(body)
    return partition_directory(files, directory.name)


def test_each_batch_is_taken_from_a_replica_that_has_it() -> None:
    full = copy(ALL, 0, 5)
    repaired, repair_plan = repair(with_flipped_bits(full, 2, 7), with_flipped_bits(full, 3, 7), **OPTIONS)
    lost = {**full.files, segment_name(5, ".log"): b"".join(ALL[5:7] + ALL[8:])}
    assert {name: data for name, data in repaired.files.items() if name.endswith(".log")} == {
        name: data for name, data in lost.items() if name.endswith(".log")
    }
    assert [(cut.rows_lost, cut.lost.get("first_offset")) for cut in repair_plan.cut] == [(0, None), (1, 7)]
    assert "taken from another copy" in repair_plan.cut[0].why
    assert any("1 record taken from copy 2" in warning for warning in repair_plan.summary().warnings)
    check_broker_accepts(repaired)
    repaired, repair_plan = repair(
        with_flipped_bits(full, 2, 7), with_flipped_bits(full, 3, 7), full, **OPTIONS
    )
    assert repaired.files[segment_name(5, ".log")] == full.files[segment_name(5, ".log")]
    assert sum(cut.rows_lost or 0 for cut in repair_plan.cut) == 0


def batch_of_records(offset: int, count: int, *, declared: int | None = None) -> bytes:
    """Pack a batch of some records, or one with a lower declared count, whose first records can be read."""
    records = [record(delta, value=b"value %d" % (offset + delta)) for delta in range(count)]
    stored = pack_records(records)
    return raw_batch(offset, stored, count if declared is None else declared, last_offset_delta=count - 1)


@pytest.mark.parametrize("sound", [0, 1, 2, None])
def test_partial_batch_counts_if_no_replica_is_complete(sound: int | None) -> None:
    name, before, after = segment_name(0, ".log"), ALL[:2], [batch_at(7)]
    sound_batch, broken = batch_of_records(2, 5), batch_of_records(2, 5, declared=3)
    copies = [
        partition_directory(
            {
                METADATA_FILE: metadata.pack(ID),
                name: b"".join([*before, sound_batch if i == sound else broken, *after]),
            },
            "orders-0",
        )
        for i in range(3)
    ]
    repaired, repair_plan = repair(*copies, **OPTIONS)
    check_broker_accepts(repaired)
    if sound is None:
        assert repaired.files[name] == b"".join([*before, repaired.files[name][2 * SIZE : -SIZE], *after])
        assert repair_plan.summary().rows == 2 + 2 + 1
        assert [(cut.rows_lost, cut.lost.get("first_offset")) for cut in repair_plan.cut] == [(None, 2)]
    else:
        assert repaired.files[name] == b"".join([*before, sound_batch, *after])
        assert [cut.rows_lost for cut in repair_plan.cut] == ([] if sound == 0 else [0])


def test_batches_go_into_the_segments_of_the_first_replica() -> None:
    """Batches go into the first replica's segments if it has them."""
    repaired, _ = repair(
        with_flipped_bits(copy(ALL, 0, 5), 4, 5), with_flipped_bits(copy(ALL, 0, 3, 8), 0), **OPTIONS
    )
    full = copy(ALL, 0, 5)
    assert {name: repaired.files[name] for name in full.files} == full.files
    check_broker_accepts(repaired)


def test_segments_missing_in_the_first_replica() -> None:
    """They are created as in the other replica."""
    first = copy(ALL, 0, 4, 8)
    del first.files[segment_name(4, ".log")]
    repaired, _ = repair(first, copy(ALL, 0, 3, 6, 9), **OPTIONS)
    bases = sorted(int(name[:20]) for name in repaired.files if name.endswith(".log"))
    assert b"".join(repaired.files[segment_name(base, ".log")] for base in bases) == b"".join(ALL)
    assert bases == [0, 6, 8]
    check_broker_accepts(repaired)
    short = copy(ALL[:4], 0)
    repaired, _ = repair(short, copy(ALL, 0, 3, 6, 9), **OPTIONS)
    bases = sorted(int(name[:20]) for name in repaired.files if name.endswith(".log"))
    assert bases == [0, 6, 9]
    check_broker_accepts(repaired)
    repaired, _ = repair(copy([], 0), copy(ALL, 0, 6), **OPTIONS)
    assert repaired.files[segment_name(0, ".log")] + repaired.files[segment_name(6, ".log")] == b"".join(ALL)


def test_small_files_of_another_replica() -> None:
    first = copy(ALL, 0)
    first.files[METADATA_FILE] = b"junk"
    repaired, repair_plan = repair(first, copy(ALL, 0), **OPTIONS)
    assert repaired.files[METADATA_FILE] == metadata.pack(ID)
    assert any(
        "partition.metadata is copied from a replica" in warning for warning in repair_plan.summary().warnings
    )


def diverged() -> tuple[MemoryDirectory, MemoryDirectory]:
    """The second replica continued in epoch 0 on an isolated broker, while the cluster continued in epoch 1."""
    later = [*ALL[:8], *(batch_at(offset, epoch=1, value=b"other") for offset in range(8, COUNT))]
    return copy(later, 0, 5), copy([*ALL, batch_at(COUNT)], 0)


def test_diverged_replicas_are_refused() -> None:
    right, wrong = diverged()
    with pytest.raises(UsageError) as caught:
        repair(right, wrong, **OPTIONS)
    message = str(caught.value)
    assert "at offset 8" in message
    assert "leader epoch 1 in the first and 0 in the other" in message
    assert "(here the first)" in message
    assert "replicas=first" in message
    with pytest.raises(UsageError, match=r"\(here the other\)"):
        repair(wrong, right, **OPTIONS)


def test_first_replica_wins_on_request() -> None:
    right, wrong = diverged()
    repaired, repair_plan = repair(with_flipped_bits(right, 3), wrong, **OPTIONS, replicas="first")
    assert {name: repaired.files[name] for name in right.files} == right.files
    assert any("Copy 2 differs from offset 8 on" in warning for warning in repair_plan.summary().warnings)
    check_broker_accepts(repaired)


def test_different_bytes_in_one_epoch() -> None:
    other = [*ALL[:6], batch_at(6, value=b"another"), *ALL[7:]]
    with pytest.raises(UsageError, match=r"at offset 6.*both of leader epoch 0"):
        repair(copy(ALL, 0), copy(other, 0, 5), **OPTIONS)
    # Batches that overlap but differ.
    double = [*ALL[:6], batch(6, [record(0), record(1)]), *ALL[8:]]
    parts = b"".join(double)
    files = {segment_name(0, ".log"): parts, METADATA_FILE: metadata.pack(ID)}
    with pytest.raises(UsageError, match="at offset 6"):
        repair(copy(ALL, 0), partition_directory(files), **OPTIONS)


def test_batch_compacted_in_another_replica_does_not_replace_a_good_one() -> None:
    """Fewer records, or none, in the same batches: each replica is compacted separately."""
    full = [batch(2 * i, [record(0), record(1)]) for i in range(5)]
    fewer = [full[0], batch(2, [record(1)], last_offset_delta=1), *full[3:]]
    first = partition_directory({segment_name(0, ".log"): b"".join(full), METADATA_FILE: metadata.pack(ID)})
    second = partition_directory({segment_name(0, ".log"): b"".join(fewer), METADATA_FILE: metadata.pack(ID)})
    repaired, _ = repair(first, second, **OPTIONS)
    assert repaired.files[segment_name(0, ".log")] == b"".join(full)
    repaired, _ = repair(second, first, **OPTIONS)
    assert repaired.files[segment_name(0, ".log")] == b"".join([*fewer[:2], full[2], *fewer[2:]])


def test_replicas_of_different_partitions_are_refused() -> None:
    with pytest.raises(UsageError, match="orders-1 is not a replica of orders-0"):
        repair(copy(ALL, 0), copy(ALL, 0, name="orders-1"), **OPTIONS)


def test_prefix_uses_batches_of_all_replicas() -> None:
    full = copy(ALL, 0, 5)
    repaired, _ = repair(
        with_flipped_bits(full, 2, 7), with_flipped_bits(full, 3, 7), strategy="prefix", **OPTIONS
    )
    assert repaired.files[segment_name(5, ".log")] == b"".join(ALL[5:7])
    check_broker_accepts(repaired)


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 1 << 30), copies=st.integers(2, 3))
def test_any_boundaries_and_any_damage(seed: int, copies: int) -> None:
    """Everything that at least one replica has is kept, in order, each batch once."""
    rng = random.Random(seed)
    directories, bad = [], []
    for _ in range(copies):
        bases = sorted({0, *(rng.randrange(COUNT) for _ in range(rng.randrange(4)))})
        broken = {offset for offset in range(COUNT) if rng.random() < 0.3}
        directories.append(with_flipped_bits(copy(ALL, *bases), *broken))
        bad.append(broken)
    lost = set.intersection(*bad)
    repaired, repair_plan = repair(*directories, **OPTIONS)
    logs = [repaired.files[name] for name in sorted(repaired.files) if name.endswith(".log")]
    assert b"".join(logs) == b"".join(part for offset, part in enumerate(ALL) if offset not in lost)
    assert repair_plan.summary().rows == COUNT - len(lost)
    check_broker_accepts(repaired)
    if not lost:
        assert sum(cut.rows_lost or 0 for cut in repair_plan.cut) == 0
