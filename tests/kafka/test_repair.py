"""Repair of small partitions: damage anywhere, open transactions, unordered batches, and foreign files."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_log import batch, record, reseal
from kafka_repairs import (
    ID,
    INTERVAL,
    LAYOUT,
    OPTIONS,
    check_broker_accepts,
    options,
    partition_directory,
    predict_start,
    repair,
)
from kafka_walks import walk_by
from memory_directory import MemoryDirectory, UnreadableDirectory

from logwright.codec.engine.repair import OutputFile, Strategy
from logwright.codec.fault import DamageError, UsageError
from logwright.codec.frames.walk import good_frames, walk_file
from logwright.codec.kafka.formats import partition_metadata as metadata
from logwright.codec.kafka.formats.log.codec import CODEC as LOG
from logwright.codec.kafka.formats.log.layout import HEAD, LENGTH_END
from logwright.codec.kafka.names import EPOCH_FILE, METADATA_FILE, segment_name
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy
from logwright.codec.store.listing import PlannedFile, Role
from logwright.corpora.kafka.script import Producer, Record, Script

T = 1_790_000_000_000


def partition(script: Script, name: str = "orders-0") -> MemoryDirectory:
    """Return the directory that a broker would have written."""
    files = {segment_name(segment.base, ".log"): bytes(segment.data) for segment in script.segments}
    files |= script.derived(250)
    files[METADATA_FILE] = metadata.pack(ID)
    return partition_directory(files, name)


def story(seed: int, *, close: bool = True, gaps: bool = True) -> Script:
    """Write a log of several segments: plain and idempotent producers, transactions, compressed batches, leader epochs, gaps."""
    rng, script = random.Random(seed), Script(segment_bytes=900)
    plain, writer, other = Producer(7), Producer(8, 1), Producer(9)
    busy: dict[int, Producer] = {}

    def new_records(count: int) -> list[Record]:
        first = len(script.rows)
        return [
            Record(b"k%d" % i, rng.randbytes(rng.randrange(40)), T + 1000 * i)
            for i in range(first, first + count)
        ]

    for _ in range(rng.randrange(12, 30)):
        action = rng.randrange(8)
        if action == 0 and busy:
            _, producer = busy.popitem()
            script.marker(producer, rng.random() < 0.5, T + len(script.rows))
        elif action == 1:
            script.leader_epoch += 1
        elif action == 2:
            script.skip(rng.randrange(3) if gaps else 0)
        elif action in (3, 4):
            producer = rng.choice((writer, other))
            busy[producer.id] = producer
            script.batch(new_records(rng.randrange(1, 4)), producer=producer, transactional=True)
        else:
            codec = rng.choice(("none", "none", "gzip", "zstd"))
            script.batch(
                new_records(rng.randrange(1, 5)), producer=rng.choice((plain, None)), compression=codec
            )
    while close and busy:
        script.marker(busy.popitem()[1], True, T)
    return script


def batches(directory: MemoryDirectory) -> Iterator[tuple[str, int, int]]:
    for name, data in directory.files.items():
        at = 0
        while name.endswith(".log") and at < len(data):
            size = LENGTH_END + int.from_bytes(data[at + 8 : at + 12], "big")
            yield name, at, at + size
            at += size


def content(directory: MemoryDirectory) -> list[bytes]:
    return [directory.files[name][start:stop] for name, start, stop in batches(directory)]


def batches_found_by_reading(directory: MemoryDirectory) -> Iterator[bytes]:
    for name in directory.files:
        if name.endswith(".log"):
            file = PlannedFile(
                name, len(directory.files[name]), Role.PRIMARY, hints={"base_offset": int(name[:20])}
            )
            for window, frames in good_frames(walk_file(directory, file, LOG)):
                for start, stop in zip(frames.start.tolist(), frames.end.tolist(), strict=True):
                    yield window.data[start:stop].tobytes()


def served(directory: MemoryDirectory) -> int:
    rows = predict_start(partition_directory(directory.files), **INTERVAL).verdict.rows
    return int(rows or 0)


@pytest.mark.parametrize("seed", range(8))
def test_sound_partition_is_unchanged(seed: int) -> None:
    was = partition(story(seed))
    for strategy in ("salvage", "prefix", "system"):
        repaired, repair_plan = repair(was, strategy=strategy, **OPTIONS)
        assert repaired.files == was.files
        assert not repair_plan.cut
        assert not repair_plan.removes
    for output_file in repair_pieces(was):
        assert output_file.pieces == [Copy(output_file.name, 0, len(was.files[output_file.name]))] or (
            not output_file.name.endswith(".log")
        )


def repair_pieces(was: MemoryDirectory) -> list[OutputFile]:
    repair_plan = LAYOUT.capabilities.repair.repair(
        [was], [LAYOUT.plan(was, Options(LAYOUT.read_options))], Strategy.SALVAGE, options(**OPTIONS)
    )
    return list(repair_plan.files())


@settings(max_examples=examples(60))
@given(seed=st.integers(0, 50), data=st.data())
def test_broker_accepts_a_repair_of_any_damage(seed: int, data: st.DataObject) -> None:
    """Whatever the damage, a broker accepts the result, and it has all untouched batches."""
    was = partition(story(seed))
    files = dict(was.files)
    logs = sorted(name for name in files if name.endswith(".log"))
    touched: set[tuple[str, int]] = set()
    shifted = False
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(logs))
        if not files[name]:
            continue
        at = data.draw(st.integers(0, len(files[name]) - 1))
        length = data.draw(st.integers(1, 120))
        action = data.draw(st.sampled_from(["flip", "zero", "noise"] if not shifted else ["flip"]))
        body = bytearray(files[name])
        stop = min(len(body), at + length) if action != "flip" else at + 1
        if action == "flip":
            body[at] ^= 1 << data.draw(st.integers(0, 7))
        elif action == "zero":
            body[at:stop] = bytes(stop - at)
        else:
            body[at:stop] = data.draw(st.randoms(use_true_random=False)).randbytes(stop - at)
        files[name] = bytes(body)
        touched |= {
            (span, low) for span, low, high in batches(was) if span == name and low < stop and high > at
        }
    damaged = partition_directory(files)
    repaired, _ = repair(damaged, **OPTIONS)
    verdict = check_broker_accepts(repaired)
    kept = set(content(repaired))
    untouched = [was.files[name][low:high] for name, low, high in batches(was) if (name, low) not in touched]
    # What reading does not find after damage, a repair cannot keep.
    survivors = {body for body in batches_found_by_reading(damaged) if body in untouched}
    assert [body for body in untouched if body not in kept and body in survivors] == []
    assert verdict.rows >= served(damaged)
    assert repair(repaired, **OPTIONS)[0].files == repaired.files
    prefix, _ = repair(damaged, strategy="prefix", **OPTIONS)
    check_broker_accepts(prefix)


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 50), data=st.data())
def test_arbitrary_bytes_after_a_cut_lose_no_earlier_batch(seed: int, data: st.DataObject) -> None:
    """A log cut short and followed by arbitrary bytes."""
    was = partition(story(seed))
    files = dict(was.files)
    name = data.draw(st.sampled_from(sorted(file for file in files if file.endswith(".log") and files[file])))
    at = data.draw(st.integers(0, len(files[name])))
    files[name] = (
        files[name][:at] + data.draw(st.binary(max_size=100)) + bytes(data.draw(st.integers(0, 100)))
    )
    damaged = partition_directory(files)
    repaired, _ = repair(damaged, **OPTIONS)
    assert check_broker_accepts(repaired).rows >= served(damaged)
    kept = set(content(repaired))
    intact = [was.files[span][low:high] for span, low, high in batches(was) if span != name or high <= at]
    assert [body for body in intact if body not in kept] == []


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 50), data=st.data())
def test_shuffled_batches_are_put_in_order_once(seed: int, data: st.DataObject) -> None:
    """Batches of a segment in another order, some of them repeated: each is kept once, at its position."""
    # With gaps a batch may fit at two positions.
    was = partition(story(seed, gaps=False))
    files = dict(was.files)
    name = data.draw(st.sampled_from(sorted(file for file in files if file.endswith(".log") and files[file])))
    parts = [files[name][low:high] for span, low, high in batches(was) if span == name]
    i, j = (data.draw(st.integers(0, len(parts) - 1)) for _ in range(2))
    if data.draw(st.booleans()):
        parts[i], parts[j] = parts[j], parts[i]
    else:
        parts.insert(j, parts[i])
    files[name] = b"".join(parts)
    repaired, _ = repair(partition_directory(files), **OPTIONS)
    check_broker_accepts(repaired)
    assert sorted(content(repaired)) == sorted(content(was))
    assert {file: repaired.files[file] for file in was.files if file.endswith(".log")} == {
        file: was.files[file] for file in was.files if file.endswith(".log")
    }


# Headers


def logs(*batches_: bytes, base: int = 0) -> MemoryDirectory:
    return partition_directory(
        {segment_name(base, ".log"): b"".join(batches_), METADATA_FILE: metadata.pack(ID)}
    )


def three(offset: int) -> bytes:
    return batch(offset, [record(i, value=b"%d" % (offset + i)) for i in range(3)])


def test_base_offset_that_fits_only_once() -> None:
    wrong = bytearray(three(3))
    wrong[7] = 77
    repaired, repair_plan = repair(logs(three(0), bytes(wrong), three(6)), **OPTIONS)
    assert repaired.files[segment_name(0, ".log")] == three(0) + three(3) + three(6)
    assert "base_offset of the batch at byte" in repair_plan.summary().warnings[0]
    # With more room it gets the first possible position.
    for more in (7, 10):
        repaired, repair_plan = repair(logs(three(0), bytes(wrong), three(more)), **OPTIONS)
        assert repaired.files[segment_name(0, ".log")] == three(0) + three(3) + three(more)
        assert f"leave free up to {more - 1}" in repair_plan.summary().warnings[0]
    repaired, repair_plan = repair(logs(three(0), three(3)[:7] + b"\1" + three(3)[8:]), **OPTIONS)
    assert repaired.files[segment_name(0, ".log")] == three(0) + three(3)
    # With less room it has no position.
    repaired, repair_plan = repair(logs(three(0), bytes(wrong), three(5)), **OPTIONS)
    assert repaired.files[segment_name(0, ".log")] == three(0) + three(5)
    (cut,) = repair_plan.cut
    assert (cut.rows_lost, cut.lost["first_offset"], cut.lost["last_offset"]) == (3, 77, 79)


def test_first_and_last_batch_of_a_segment_have_a_position() -> None:
    wrong = bytearray(three(0))
    wrong[7] = 4
    segment_files = {segment_name(0, ".log"): bytes(wrong) + three(3), segment_name(6, ".log"): three(6)}
    repaired, _ = repair(partition_directory({**segment_files, METADATA_FILE: metadata.pack(ID)}), **OPTIONS)
    assert repaired.files[segment_name(0, ".log")] == three(0) + three(3)
    wrong = bytearray(three(3))
    wrong[7] = 1
    segment_files[segment_name(0, ".log")] = three(0) + bytes(wrong)
    repaired, _ = repair(partition_directory({**segment_files, METADATA_FILE: metadata.pack(ID)}), **OPTIONS)
    assert repaired.files[segment_name(0, ".log")] == three(0) + three(3)


def test_offsets_of_another_batch() -> None:
    other = batch(0, [record(i, value=b"other") for i in range(3)])
    repaired, repair_plan = repair(logs(three(0), other, three(3)), **OPTIONS)
    assert repaired.files[segment_name(0, ".log")] == three(0) + three(3)
    (cut,) = repair_plan.cut
    assert cut.rows_lost == 3
    assert "other batches have them" in cut.why


@pytest.mark.parametrize("claims", [-1, 0, 1, 3, 4, 5, 12])
def test_wrong_last_offset_delta_costs_no_record(claims: int) -> None:
    """Its records and the neighbouring batches determine it, even if it claims the complete next batch."""
    wrong = batch(3, [record(i, value=b"%d" % (3 + i)) for i in range(3)], last_offset_delta=claims)
    repaired, repair_plan = repair(logs(three(0), wrong, three(6), three(9)), **OPTIONS)
    assert repaired.files[segment_name(0, ".log")] == three(0) + three(3) + three(6) + three(9)
    assert not repair_plan.cut
    warning_text = f"last_offset_delta of the batch at byte {len(three(0))} is changed from {claims} to 2"
    assert any(warning_text in warning for warning in repair_plan.summary().warnings)
    assert check_broker_accepts(repaired).rows == 12
    prefix, _ = repair(logs(three(0), wrong, three(6), three(9)), strategy="prefix", **OPTIONS)
    assert prefix.files == repaired.files


def test_wrong_last_offset_delta_at_the_end_of_a_segment_costs_no_record() -> None:
    for claims in (1, 4, 9):
        wrong = batch(3, [record(i, value=b"%d" % (3 + i)) for i in range(3)], last_offset_delta=claims)
        segment_files = {segment_name(0, ".log"): three(0) + wrong, segment_name(6, ".log"): three(6)}
        repaired, repair_plan = repair(
            partition_directory({**segment_files, METADATA_FILE: metadata.pack(ID)}), **OPTIONS
        )
        assert repaired.files[segment_name(0, ".log")] == three(0) + three(3)
        assert repaired.files[segment_name(6, ".log")] == three(6)
        assert not repair_plan.cut
        check_broker_accepts(repaired)


def test_segment_larger_than_its_offsets_allow() -> None:
    near, far = three((1 << 31) - 3), three(1 << 31)
    repaired, _ = repair(logs(three(0), near, far), **OPTIONS)
    assert repaired.files[segment_name(0, ".log")] == three(0) + near
    assert repaired.files[segment_name(1 << 31, ".log")] == far
    check_broker_accepts(repaired)


@pytest.mark.parametrize("bit", [31, 40, 51, 62, 63])
def test_impossible_offset_is_one_bit_off(bit: int) -> None:
    """The batch is not left in a separate segment, where consumers would get it at the wrong offset."""
    wrong = (5 ^ 1 << bit).to_bytes(8, "big") + three(5)[8:]
    repaired, repair_plan = repair(logs(three(0), wrong), **OPTIONS)
    assert repaired.files[segment_name(0, ".log")] == three(0) + three(5)
    assert any("differ by one bit" in warning for warning in repair_plan.summary().warnings)
    assert not repair_plan.cut


def test_batch_below_its_segment_gets_the_position_that_fits() -> None:
    """Even if its wrong offsets end right before the segment."""
    batch_list = [batch(16 + 4 * i, [record(j, value=b"%d" % i) for j in range(4)]) for i in range(3)]
    wrong = (12).to_bytes(8, "big") + batch_list[1][8:]
    repaired, _ = repair(logs(batch_list[0], wrong, batch_list[2], base=16), **OPTIONS)
    assert repaired.files[segment_name(16, ".log")] == b"".join(batch_list)


def test_batch_followed_by_the_last_one() -> None:
    """The batch after the last one of a run does not exist."""
    inside = batch(7, [record(0, value=b"inside")])
    other = batch(6, [record(i, value=b"other") for i in range(4)], last_offset_delta=9)
    repaired, _ = repair(logs(three(0), other, inside), **OPTIONS)
    check_broker_accepts(repaired)


def test_partition_without_a_good_batch_becomes_an_empty_segment() -> None:
    for data in (b"", b"x" * 100, bytes(500), three(5)[:-1]):
        repaired, repair_plan = repair(logs(data, base=5), **OPTIONS)
        assert repaired.files[segment_name(5, ".log")] == b""
        check_broker_accepts(repaired)
        assert repair_plan.summary().ids == {}
    repaired, _ = repair(partition_directory({METADATA_FILE: metadata.pack(ID)}), **OPTIONS)
    assert repaired.files[segment_name(0, ".log")] == b""
    check_broker_accepts(repaired)


def test_segment_is_named_by_its_first_batch() -> None:
    files = {segment_name(0, ".log"): three(0), segment_name(90, ".log"): three(3)}
    repaired, repair_plan = repair(
        partition_directory({**files, METADATA_FILE: metadata.pack(ID)}), **OPTIONS
    )
    assert repaired.files[segment_name(3, ".log")] == three(3)
    assert segment_name(90, ".log") in repair_plan.removes
    check_broker_accepts(repaired)


def test_new_empty_segment_after_a_gap_is_removed() -> None:
    """Consumers would wait in the gap, so it is removed unless it existed before."""
    files = {
        segment_name(0, ".log"): three(0) + three(3),
        segment_name(6, ".log"): b"",
        METADATA_FILE: metadata.pack(ID),
    }
    repaired, _ = repair(partition_directory(files), **OPTIONS)
    assert segment_name(6, ".log") in repaired.files
    files[segment_name(0, ".log")] = three(0) + b"damage" * 20
    repaired, repair_plan = repair(partition_directory(files), **OPTIONS)
    assert segment_name(6, ".log") in repair_plan.removes
    check_broker_accepts(repaired)


def test_unreadable_bytes_are_removed_and_later_batches_are_kept() -> None:
    """Unreadable bytes are removed; batches after them are found."""

    was = logs(three(0), three(3), three(6), three(9))
    size = len(three(0))
    for low in range(size - 5, 2 * size, 7):
        bad = {name: [(low, low + 10)] for name in was.files if name.endswith(".log")} | {
            METADATA_FILE: [(0, 1000)]
        }
        repaired, repair_plan = repair(UnreadableDirectory(was.files, bad, was.name), **OPTIONS)
        lost = {at // size for at in range(low, low + 10)}
        assert repair_plan.summary().rows == 12 - 3 * len(lost)
        assert "disk cannot read" in repair_plan.cut[0].why
        assert METADATA_FILE not in repaired.files


# Transactions


def open_story() -> Script:
    script = Script()
    idle, two = Producer(11, 3), Producer(12)
    script.batch([Record(b"a", b"1", T)], producer=idle, transactional=True)
    script.batch([Record(b"b", b"2", T + 5)], producer=two, transactional=True)
    script.marker(two, True, T + 6, coordinator_epoch=4)
    script.batch([Record(b"c", b"3", T + 7)], producer=two, transactional=True)
    return script


def test_open_transactions_are_kept_and_named() -> None:
    was = partition(open_story())
    repaired, repair_plan = repair(was, **OPTIONS)
    assert repaired.files == was.files
    assert any(
        "open transactions: 2, from offset 0 on" in warning for warning in repair_plan.summary().warnings
    )


def test_open_transactions_are_aborted_on_request() -> None:
    was = partition(open_story())
    repaired, repair_plan = repair(was, **OPTIONS, **{"open.transactions": "abort"})
    log = repaired.files[segment_name(0, ".log")]
    assert log.startswith(was.files[segment_name(0, ".log")])
    markers = np.frombuffer(log[len(was.files[segment_name(0, ".log")]) :], np.uint8).reshape(2, -1)
    heads = np.array([np.frombuffer(marker.tobytes(), HEAD, 1)[0] for marker in markers])
    assert heads["base_offset"].tolist() == [4, 5]
    assert heads["producer_id"].tolist() == [11, 12]
    assert heads["producer_epoch"].tolist() == [3, 0]
    # The expected bytes are those of the generator, which a broker has read.
    script = open_story()
    script.marker(Producer(11, 3), False, T + 7)
    script.marker(Producer(12), False, T + 7, coordinator_epoch=4)
    assert log == bytes(script.segments[0].data)
    assert repaired.files == partition(script).files
    check_broker_accepts(repaired)
    assert (
        len([warning for warning in repair_plan.summary().warnings if "is aborted by a marker" in warning])
        == 2
    )
    assert not any("are open" in warning for warning in repair(repaired, **OPTIONS)[1].summary().warnings)


def test_batch_outside_of_its_producers_transaction() -> None:
    script = open_story()
    bad = Producer(12, sequence=9)
    script.batch([Record(b"x", b"x", T + 8)], producer=bad)
    script.batch([Record(b"y", b"y", T + 9)], producer=Producer(13))
    repaired, repair_plan = repair(partition(script), **OPTIONS)
    (cut,) = repair_plan.cut
    assert (cut.rows_lost, cut.lost["first_offset"]) == (1, 4)
    assert "producer 12 writes outside of the transaction" in cut.why
    assert check_broker_accepts(repaired).rows == 4
    first, repair_plan = repair(partition(script), strategy="prefix", **OPTIONS)
    assert check_broker_accepts(first).rows == 3
    assert [removed.lost["first_offset"] for removed in repair_plan.cut] == [4, 5]


def test_marker_that_stops_a_broker_is_removed() -> None:
    broken = bytearray(
        batch(3, [record(key=b"\0\0\0\7", value=b"\0\0\0\0\0\0")], attributes=0x30, producer_id=4)
    )
    repaired, repair_plan = repair(logs(three(0), reseal(bytes(broken)), three(4)), **OPTIONS)
    assert repaired.files[segment_name(0, ".log")] == three(0) + three(4)
    (cut,) = repair_plan.cut
    assert "type 7" in cut.why
    assert cut.rows_lost == 0


# Options


def test_wrong_options_are_refused() -> None:
    was = logs(three(0))
    for name, value in (
        ("open.transactions", "maybe"),
        ("topic.id", "x"),
        ("replicas", "last"),
        ("version", "0.1"),
    ):
        with pytest.raises(UsageError):
            repair(was, strategy="system" if name == "version" else "salvage", **{name: value})


def test_given_topic_id_is_written() -> None:
    for files in ({}, {METADATA_FILE: b"junk"}, {METADATA_FILE: metadata.pack("AAAAAAAAAAAAAAAAAAAAAQ")}):
        repaired, _ = repair(
            partition_directory({segment_name(0, ".log"): three(0), **files}), **OPTIONS, **{"topic.id": ID}
        )
        assert repaired.files[METADATA_FILE] == metadata.pack(ID)


def test_repair_begins_at_the_log_start_offset() -> None:
    """Epochs that began before it become one entry, and snapshots before it are removed, as after a start."""
    script = story(4)
    was = partition(script)
    start = script.segments[-1].base + 1
    assert start < script.next_offset
    repaired, _ = repair(was, **OPTIONS, **{"log.start.offset": start})
    opened = predict_start(
        partition_directory(repaired.files), **{"index.interval.bytes": 250, "log.start.offset": start}
    )
    verdict = opened.verdict
    assert (verdict.truncates, verdict.removes, verdict.creates) == ({}, (), ())
    assert [name for name in verdict.rewrites if opened.after.read(name) != repaired.files[name]] == []
    assert repaired.files[EPOCH_FILE] != was.files[EPOCH_FILE]


def test_strategy_system_if_the_broker_does_not_start() -> None:
    with pytest.raises(DamageError, match="the broker does not open the partition"):
        repair(partition_directory({**logs(three(0)).files, "foo.log": b""}), strategy="system", **OPTIONS)
    with pytest.raises(UsageError, match="a broker with one copy"):
        repair(logs(three(0)), logs(three(0)), strategy="system", **OPTIONS)


# Windows


@pytest.mark.parametrize("seed", range(12))
def test_small_windows_give_the_same_result(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    files = dict(partition(story(seed)).files)
    for name in [file for file in files if file.endswith(".log") and files[file]]:
        body = bytearray(files[name])
        for _ in range(2):
            at = rng.randrange(len(body))
            body[at : at + rng.randrange(1, 200)] = rng.randbytes(rng.randrange(1, 200))
        files[name] = bytes(body)
    expected, full = repair(partition_directory(files), **OPTIONS)
    check_broker_accepts(expected)
    for size in (128, 700):
        walk_by(size, monkeypatch)
        repaired, repair_plan = repair(partition_directory(files), **OPTIONS)
        assert repaired.files == expected.files
        assert [(removed.file, removed.offset, removed.length) for removed in repair_plan.cut] == [
            (removed.file, removed.offset, removed.length) for removed in full.cut
        ]


def test_first_copy_of_a_batch_in_two_segments_is_kept() -> None:
    """Of batches in two segments the first is kept; a segment continues after the previous one."""
    parts = [three(offset) for offset in range(0, 18, 3)]
    files = {
        segment_name(0, ".log"): b"".join(parts[:4]), segment_name(6, ".log"): b"".join(parts[1:]),
        METADATA_FILE: metadata.pack(ID),
    }  # fmt: skip
    repaired, repair_plan = repair(partition_directory(files), **OPTIONS)
    bases = sorted(name for name in repaired.files if name.endswith(".log"))
    assert b"".join(repaired.files[name] for name in bases) == b"".join(parts)
    assert sum(removed.rows_lost or 0 for removed in repair_plan.cut) == 0
    check_broker_accepts(repaired)


def test_prefix_within_a_run() -> None:
    """A batch without a position is lost: everything beyond its offsets is removed."""
    other = batch(3, [record(i, value=b"other") for i in range(3)])
    was = logs(three(0), three(3), three(6), other, three(9))
    repaired, repair_plan = repair(was, strategy="prefix", **OPTIONS)
    assert repaired.files[segment_name(0, ".log")] == three(0)
    assert {removed.why for removed in repair_plan.cut} >= {"after the first damage"}
    check_broker_accepts(repaired)


def test_repair_keeps_the_batches_that_a_shrinking_file_still_has() -> None:
    """Bytes that no longer exist: the file became shorter while it was read."""

    class Shrinking(MemoryDirectory):
        def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
            data = super().read(name, offset, length)
            return data[: max(0, left - offset)] if name.endswith(".log") else data

    was = logs(three(0), three(3))
    left = len(three(0)) + 5
    plan = LAYOUT.plan(was, Options(LAYOUT.read_options))
    repair_plan = LAYOUT.capabilities.repair.repair(
        [Shrinking(was.files)], [plan], Strategy.SALVAGE, options(**OPTIONS)
    )
    outputs = {file.name: file.pieces for file in repair_plan.files()}
    assert outputs[segment_name(0, ".log")] == [Copy(segment_name(0, ".log"), 0, len(three(0)))]


@pytest.mark.parametrize("bits", [(4, 4), (6, 5), (33, 4)])
def test_wrong_offsets_of_the_first_batches_cost_no_other_batch(bits: tuple[int, int]) -> None:
    """The first two batches claim offsets of later ones, or offsets above all."""
    batches = [three(3 * n) for n in range(20)]
    for n, bit in enumerate(bits):
        batches[n] = ((3 * n) ^ 1 << bit).to_bytes(8, "big") + batches[n][8:]
    repaired, repair_plan = repair(logs(*batches), **OPTIONS)
    assert b"".join(batches[2:]) in repaired.files[segment_name(0, ".log")]
    assert sum(cut.rows_lost or 0 for cut in repair_plan.cut) <= 3
