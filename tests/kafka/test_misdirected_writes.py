"""Blocks of a log that were written at another place of it: batches with right checksums among other ones."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from kafka_log import CODEC, batch, context, record, window

import logwright as lw

ROWS, BLOCK = 1500, 4096


def value_of(offset: int) -> bytes:
    return b"%06d" % offset * 16


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition with a batch for each record, of about 24 batches per block."""
    path = tmp_path_factory.mktemp("log") / "orders-0"
    rows = [{"offset": i, "value": value_of(i), "timestamp": 1_700_000_000_000 + i} for i in range(ROWS)]
    lw.write(rows, path, "kafka.partition", batch_size=1)
    return path / f"{0:020}.log"


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
@pytest.mark.parametrize("seed", range(30))
def test_a_block_at_another_place_costs_only_what_it_overwrote(log: Path, tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    data = bytearray(log.read_bytes())
    source, target = (BLOCK * choose.randrange(1, len(data) // BLOCK - 1) for _ in range(2))
    data[target : target + BLOCK] = data[source : source + BLOCK]
    partition = tmp_path / "orders-0"
    partition.mkdir()
    (partition / log.name).write_bytes(data)
    least = BLOCK // len(batch(0, [record(0, value=value_of(0))])) + 3
    lw.repair(partition, tmp_path / "repaired" / "orders-0")
    for rows in (
        lw.read(partition, mode="DROPMALFORMED"),
        lw.read(tmp_path / "repaired" / "orders-0"),
    ):
        offsets = rows.column("offset").to_pylist()
        assert offsets == sorted(set(offsets))
        assert rows.column("value").to_pylist() == [value_of(offset) for offset in offsets]
        assert len(offsets) >= ROWS - (0 if source == target else least)


def test_only_offsets_that_are_nowhere_are_reported_as_lost(log: Path, tmp_path: Path) -> None:
    data = bytearray(log.read_bytes())
    data[5 * BLOCK : 6 * BLOCK] = data[40 * BLOCK : 41 * BLOCK]
    partition = tmp_path / "orders-0"
    partition.mkdir()
    (partition / log.name).write_bytes(data)
    with pytest.warns(lw.DamageWarning):
        offsets = lw.read(partition, mode="DROPMALFORMED").column("offset").to_pylist()
    missing = sorted({*range(ROWS)} - {*offsets})
    first, *misplaced, last = (fault for path, fault in lw.verify(partition).faults if path == log.name)
    assert (first.lost, last.lost["first_offset"], last.lost["last_offset"]) == ({}, missing[0], missing[-1])
    assert len(misplaced) > 20
    assert {fault.rows_lost for fault in misplaced} == {0}


@pytest.mark.alike
@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
@pytest.mark.parametrize("inserted", [False, True])
@pytest.mark.parametrize(
    ("source", "target", "count"),
    [(75, 69, 2), (105, 10, 10), (31, 3, 2), (7, 2, 3), (77, 30, 20), (700, 20, 5)],
)
def test_copies_of_later_batches_without_damage_cost_only_what_they_overwrote(
    log: Path, tmp_path: Path, source: int, target: int, count: int, inserted: bool
) -> None:
    batches = [batch(i, [record(value=value_of(i))]) for i in range(800)]
    copied = [*batches[:target], *batches[source : source + count]]
    copied += batches[target if inserted else target + count :]
    partition = tmp_path / "orders-0"
    partition.mkdir()
    (partition / log.name).write_bytes(b"".join(copied))
    overwritten = set() if inserted else set(range(target, target + count))
    rows = lw.read(partition, mode="DROPMALFORMED")
    offsets = rows.column("offset").to_pylist()
    assert rows.column("value").to_pylist() == [value_of(offset) for offset in offsets]
    assert offsets == [i for i in range(800) if i not in overwritten]
    lost = [fault.lost for _, fault in lw.verify(partition).faults if fault.lost]
    assert [(item["first_offset"], item["last_offset"]) for item in lost] == (
        [] if inserted else [(target, target + count - 1)]
    )


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
@pytest.mark.parametrize(("source", "target"), [(39, 55), (55, 39), (40, 41), (300, 44), (2, 258)])
def test_copy_of_a_batch_is_not_corrected_to_the_one_that_it_overwrote(
    log: Path, tmp_path: Path, source: int, target: int
) -> None:
    """Their offsets differ in one bit."""
    batches = [batch(i, [record(value=value_of(i))]) for i in range(400)]
    batches[target] = batches[source]
    partition = tmp_path / "orders-0"
    partition.mkdir()
    (partition / log.name).write_bytes(b"".join(batches))
    lw.repair(partition, tmp_path / "repaired" / "orders-0")
    for rows in (
        lw.read(partition, mode="DROPMALFORMED"),
        lw.read(tmp_path / "repaired" / "orders-0"),
    ):
        offsets = rows.column("offset").to_pylist()
        assert rows.column("value").to_pylist() == [value_of(offset) for offset in offsets]
        assert offsets == [i for i in range(400) if i != target]


def test_scan_asks_for_the_bytes_in_which_lower_offsets_may_follow() -> None:
    batches = [batch(i, [record(value=bytes(9000))]) for i in (0, 1, 30, 31, 2, *range(3, 12))]
    data = b"".join(batches)
    start = len(batches[0]) * 2
    cut = start + len(batches[0]) * 3 + 100
    frames = CODEC.scan(window(data[:cut], size=len(data)), 0, state := context())
    assert (len(frames), frames.damage) == (2, None)
    assert cut - start < frames.need <= len(data) - start
    frames = CODEC.scan(window(data[: start + frames.need], size=len(data)), start, state)
    assert frames.damage is not None
    assert "are misplaced" in frames.damage.detail


def test_later_batches_after_damage_are_misplaced_if_more_batches_with_lower_offsets_follow() -> None:
    before, later, after = (b"".join(map(batch, offsets)) for offsets in (range(3), (90, 91), range(5, 12)))
    data = before + b"junk" * 10 + later + b"junk" * 10 + after
    place, need = CODEC.resync(window(data, size=len(data)), len(before), state := context())
    assert (place, need) == (len(before) + 40, 0)
    assert state.misplaced_end == len(data) - len(after)
    frames = CODEC.scan(window(data), place, state)
    assert not len(frames)
    assert frames.damage is not None
    assert (
        f"misplaced: the batches from byte {state.misplaced_end} on have lower ones" in frames.damage.detail
    )


def test_fewer_batches_with_lower_offsets_after_damage_are_the_misplaced_ones() -> None:
    later, stray = b"".join(map(batch, range(20, 30))), b"".join(map(batch, (5, 6)))
    data = batch(0) + b"junk" * 10 + later + stray + batch(30)
    place, _ = CODEC.resync(window(data), len(batch(0)), state := context())
    assert place == len(batch(0)) + 40
    assert state.misplaced_end == 0
    assert len(CODEC.scan(window(data), place, state)) == 10


def test_resync_asks_for_the_bytes_in_which_lower_offsets_may_follow() -> None:
    data = b"junk" * 20 + batch(9, [record(0, value=bytes(500))]) + bytes(1 << 20)
    place, need = CODEC.resync(window(data[:1000], size=len(data)), 0, context())
    assert place == 80
    assert 1000 - 80 < need <= 1 << 18
    assert CODEC.resync(window(data[: 80 + need], size=len(data)), 0, context()) == (80, 0)


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
@pytest.mark.parametrize(("source", "target"), [(37, 5), (5, 37), (69, 5), (40, 41)])
def test_copy_of_a_batch_of_another_segment_is_not_corrected_to_the_one_that_it_overwrote(
    tmp_path: Path, source: int, target: int
) -> None:
    """Their offsets differ in one bit. A segment has 32 of them."""
    batches = [batch(i, [record(value=value_of(i))]) for i in range(96)]
    copied = list(batches)
    copied[target] = batches[source]
    partition = tmp_path / "orders-0"
    partition.mkdir()
    for base in range(0, 96, 32):
        (partition / f"{base:020}.log").write_bytes(b"".join(copied[base : base + 32]))
    lw.repair(partition, tmp_path / "repaired" / "orders-0")
    for rows in (
        lw.read(partition, mode="DROPMALFORMED"),
        lw.read(partition, mode="DROPMALFORMED", correct=True),
        lw.read(tmp_path / "repaired" / "orders-0"),
    ):
        offsets = rows.column("offset").to_pylist()
        assert rows.column("value").to_pylist() == [value_of(offset) for offset in offsets]
        assert offsets == [i for i in range(96) if i != target]


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
@pytest.mark.parametrize("segment", [8, 64])
@pytest.mark.parametrize(("first", "second"), [(17, 25), (0, 32), (30, 62), (16, 17), (40, 44)])
def test_batches_that_changed_places_are_not_corrected_to_each_other(
    tmp_path: Path, first: int, second: int, segment: int
) -> None:
    """Their offsets differ in one bit. A repair moves them back."""
    batches = [batch(i, [record(value=value_of(i))]) for i in range(64)]
    batches[first], batches[second] = batches[second], batches[first]
    partition = tmp_path / "orders-0"
    partition.mkdir()
    for base in range(0, 64, segment):
        (partition / f"{base:020}.log").write_bytes(b"".join(batches[base : base + segment]))
    lw.repair(partition, tmp_path / "repaired" / "orders-0")
    repaired = lw.read(tmp_path / "repaired" / "orders-0")
    assert repaired.column("value").to_pylist() == [value_of(i) for i in range(64)]
    rows = lw.read(partition, mode="DROPMALFORMED", correct=True)
    offsets = rows.column("offset").to_pylist()
    assert rows.column("value").to_pylist() == [value_of(offset) for offset in offsets]
    assert len(offsets) >= 62


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
@pytest.mark.parametrize("inserted", [False, True])
@pytest.mark.parametrize(("source", "target"), [(7, 43), (43, 7), (40, 47), (5, 63)])
def test_copy_of_a_batch_that_damage_has_lost_takes_its_place(
    tmp_path: Path, source: int, target: int, inserted: bool
) -> None:
    """The original is in a block of zeros. A segment has 32 batches."""
    batches = [batch(i, [record(value=value_of(i))]) for i in range(64)]
    copied = list(batches)
    copied[source] = bytes(len(batches[source]))
    copied[target] = batches[source] + (batches[target] if inserted else b"")
    partition = tmp_path / "orders-0"
    partition.mkdir()
    for base in (0, 32):
        (partition / f"{base:020}.log").write_bytes(b"".join(copied[base : base + 32]))
    lw.repair(partition, tmp_path / "repaired" / "orders-0")
    rows = lw.read(tmp_path / "repaired" / "orders-0")
    offsets = rows.column("offset").to_pylist()
    assert rows.column("value").to_pylist() == [value_of(offset) for offset in offsets]
    assert offsets == [i for i in range(64) if i != target or inserted]


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
@pytest.mark.parametrize("swapped", [False, True])
def test_block_of_a_later_segment_costs_only_what_it_overwrote(tmp_path: Path, swapped: bool) -> None:
    """The batches after it have lower offsets, and are within the range of their file. A repair moves those of the block back."""
    partition = tmp_path / "orders-0"
    rows = [{"value": value_of(i), "timestamp": 1_700_000_000_000 + i} for i in range(ROWS)]
    lw.write(rows, partition, "kafka.partition", batch_size=1, segment_bytes=100_000)
    first, second = sorted(partition.glob("*.log"))[:2]
    blocks = [first.read_bytes()[:BLOCK], second.read_bytes()[:BLOCK]]
    first.write_bytes(blocks[1] + first.read_bytes()[BLOCK:])
    if swapped:
        second.write_bytes(blocks[0] + second.read_bytes()[BLOCK:])
    lw.repair(partition, tmp_path / "repaired" / "orders-0")
    lost = BLOCK // len(batch(0, [record(0, value=value_of(0))])) + 3
    for rows_read, missing in (
        (lw.read(tmp_path / "repaired" / "orders-0"), 2 if swapped else lost),
        (lw.read(partition, mode="DROPMALFORMED"), 2 * lost if swapped else lost),
    ):
        offsets = rows_read.column("offset").to_pylist()
        assert rows_read.column("value").to_pylist() == [value_of(offset) for offset in offsets]
        assert len(offsets) >= ROWS - missing
