"""After damage every sound batch is found, contents are not taken for batches, and no byte is read more than a few times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kafka_log import batch, compressed, context, pack_records, record, window

import logwright as lw
from logwright.codec.frames.prefixes import STEP, Prefixes
from logwright.codec.frames.resync import Finder
from logwright.codec.frames.scanner import BAD_CHECKSUM, END, Scanner
from logwright.codec.frames.walk import Hole, Stretch, Walk
from logwright.codec.kafka.formats.log.codec import CODEC
from logwright.codec.kafka.formats.log.heads import LIMIT, SCANNER
from logwright.codec.kafka.formats.log.layout import HEAD, HEAD_SIZE, LENGTH_END, MAGIC, RECORD_BATCH
from logwright.codec.kernels.compress import compress
from logwright.codec.window import Window
from logwright.readers import plan
from logwright.readers.report import Report
from logwright.readers.resolve import resolve
from logwright.readers.source import MemorySource
from logwright.readers.stream import Mode, ReadOptions
from logwright.readers.task import run, split_tasks

LENGTH = RECORD_BATCH.offset("batch_length")


def walked_bounds(data: bytes) -> set[tuple[int, int]]:
    """Return the bounds of the batches that a walk finds."""
    out = set()
    for part in Walk(MemorySource(data), CODEC, context()):
        if isinstance(part, Stretch):
            at = part.window.offset
            out |= {
                (at + a, at + b)
                for a, b in zip(part.frames.start.tolist(), part.frames.end.tolist(), strict=True)
            }
    return out


def bounds(batches: list[bytes]) -> list[tuple[int, int]]:
    ends = np.cumsum([len(batch) for batch in batches]).tolist()
    return list(zip([0, *ends], ends, strict=False))


# Every flip of one bit, in logs whose values hold plausible batches of the log


def specimen(where: str, ahead: int) -> list[bytes]:
    """Return batches of one to three records, whose values hold batches with offsets `ahead` of theirs."""
    noise = np.random.default_rng(1)
    out: list[bytes] = []
    base = 0
    for i in range(6):
        count = 1 + i % 3
        held = b"".join(batch(max(0, base + ahead + k), [record(value=b"in")]) for k in range(1 + i % 2))
        values = [noise.integers(0, 256, 20, np.uint8).tobytes() for _ in range(count)]
        headers: list[tuple[str, bytes]] = []
        if where == "first value":
            values[0] = held
        elif where == "last value":
            values[-1] = held
        elif where == "header":
            headers = [("h", held)]
        elif where == "stored by a compressor":
            values = [value * 2 + held for value in values]
        records = [record(j, value=value, headers=headers) for j, value in enumerate(values)]
        if where == "stored by a compressor":
            out.append(compressed(base, compress("snappy", pack_records(records)), "snappy", count))
        else:
            out.append(batch(base, records))
        base += count
    return out


PLACES = ("nowhere", "first value", "last value", "header", "stored by a compressor")


@pytest.mark.extended
@pytest.mark.parametrize("ahead", [0, 1, 1000, -1000])
@pytest.mark.parametrize("where", PLACES)
def test_after_any_flip_all_other_batches_are_found(where: str, ahead: int) -> None:
    flips_are_passed(specimen(where, ahead), step=7)


@pytest.mark.nightly
@pytest.mark.parametrize("ahead", [0, 1, 1000, -1000])
@pytest.mark.parametrize("where", PLACES)
def test_after_any_flip_all_other_batches_are_found_at_every_bit(where: str, ahead: int) -> None:
    flips_are_passed(specimen(where, ahead), step=1)


def flips_are_passed(batches: list[bytes], step: int) -> None:
    data, places = b"".join(batches), bounds(batches)
    for bit in range(0, 8 * len(data), step):
        hurt = bytearray(data)
        hurt[bit // 8] ^= 1 << bit % 8
        got = walked_bounds(bytes(hurt))
        assert got <= set(places), bit
        assert {place for place in places if not place[0] <= bit // 8 < place[1]} <= got, bit


# One rule at a time


SAME = [batch(i, [record(value=bytes([65 + i]) * 30)]) for i in range(8)]
SIZE = len(SAME[0])


def put(batches: list[bytes], i: int, field: int, value: int) -> bytearray:
    data = bytearray(b"".join(batches))
    at = i * SIZE + field
    data[at : at + 4] = value.to_bytes(4, "big", signed=True)
    return data


def numbers(data: bytes | bytearray, size: int = SIZE) -> list[int]:
    """Return which of equally long batches are found."""
    return sorted(start // size for start, _ in walked_bounds(bytes(data)))


@pytest.mark.parametrize(
    "value", [-1, 0, 13, 48, 49, SIZE, 2 * SIZE - 12, 3 * SIZE - 12, 5000, (1 << 31) - 1]
)
@pytest.mark.parametrize("i", [0, 3, 7])
def test_wrong_length_hides_nothing(i: int, value: int) -> None:
    assert numbers(put(SAME, i, LENGTH, value)) == [j for j in range(8) if j != i]


@pytest.mark.parametrize("value", [0, SIZE, 3 * SIZE - 12, 5000])
def test_wrong_length_and_wrong_content_hide_nothing(value: int) -> None:
    data = put(SAME, 3, LENGTH, value)
    data[3 * SIZE + 80] ^= 1
    assert numbers(data) == [0, 1, 2, 4, 5, 6, 7]


def test_run_of_damaged_batches_is_skipped() -> None:
    data = bytearray(b"".join(SAME))
    for i in (2, 3, 5):
        data[i * SIZE + 80] ^= 1
    assert numbers(data) == [0, 1, 4, 6, 7]


def test_batch_between_two_without_headers_is_found() -> None:
    data = bytearray(b"".join(SAME))
    for i in (2, 4):
        data[i * SIZE : i * SIZE + HEAD_SIZE] = b"?" * HEAD_SIZE
    assert numbers(data) == [0, 1, 3, 5, 6, 7]


def test_batch_appended_after_a_torn_one_is_found() -> None:
    torn = batch(2, [record(value=bytes(400))])
    data = b"".join(SAME[:2]) + torn[:200] + b"".join(SAME[2:4])
    assert len(walked_bounds(data)) == 4


def batch_containing(*held: bytes, after: bytes = b"", before: bytes = b"") -> bytes:
    return batch(2, [record(value=before + b"".join(held) + after), record(1)])


def test_content_of_a_batch_with_a_damaged_header_is_no_batch() -> None:
    log = [batch(i, [record()]) for i in (3, 4, 5)]
    data = bytearray(b"".join(SAME[:2]) + batch_containing(*log) + batch(4) + batch(5))
    at = 2 * SIZE
    data[at : at + HEAD_SIZE] = bytes(HEAD_SIZE)
    assert {start for start, _ in walked_bounds(bytes(data))} == {
        0,
        SIZE,
        at + len(batch_containing(*log)),
        at + len(batch_containing(*log)) + len(batch(4)),
    }


def test_length_of_four_bytes_identifies_content_too() -> None:
    log = b"".join(batch(i, [record()]) for i in (3, 4))
    held = batch_containing(log, before=len(log).to_bytes(4, "big"), after=b"and more")
    data = bytearray(b"".join(SAME[:2]) + held + batch(4))
    data[2 * SIZE : 2 * SIZE + HEAD_SIZE] = bytes(HEAD_SIZE)
    assert {start for start, _ in walked_bounds(bytes(data))} == {0, SIZE, 2 * SIZE + len(held)}


@pytest.mark.parametrize("damaged", [0, 4])
@pytest.mark.parametrize(
    ("name", "hints"),
    [(f"{1 << 20:020}.log", {}), (f"{2:020}.log", {"next_base": 4}), (f"{0:020}.log", {"next_base": 2})],
)
def test_batches_after_damage_are_found_although_a_file_has_a_wrong_name(
    name: str, hints: dict[str, int], damaged: int
) -> None:
    """The batches before it contradict the name, or the header of the first batch and the good one after it."""
    batches = [batch(i, [record(value=b"value")]) for i in range(8)]
    data = bytearray(b"".join(batches))
    end = bounds(batches)[damaged][1]
    data[end - 4 : end - 1] = b"xxx"
    walk = Walk(MemorySource(bytes(data)), CODEC, context(name, **hints))
    parts = list(walk)
    batches_found = sum(len(part.frames) for part in parts if isinstance(part, Stretch))
    assert batches_found == len(batches) - 1
    (hole,) = (part for part in parts if isinstance(part, Hole))
    assert hole.fault.length == len(batches[damaged])
    assert hole.fault.rows_lost != 0


def test_index_of_a_file_with_a_wrong_name_proves_no_loss(tmp_path: Path) -> None:
    partition = tmp_path / "orders-0"
    lw.write([{"value": b"v" * 100}] * 500, partition, "kafka.partition", batch_size=1)
    for file in list(partition.glob(f"{0:020}.*")):
        file.rename(file.with_name(f"{1 << 20:020}{file.suffix}"))
    faults = [fault for _, fault in lw.verify(partition).faults]
    assert any("outside the file's range" in fault.detail for fault in faults)
    assert not any("proves" in fault.detail for fault in faults)


@pytest.mark.parametrize("size", [1, 300, 1000])
def test_parts_of_a_damaged_log_report_the_same_loss_as_the_whole_read(tmp_path: Path, size: int) -> None:
    partition = tmp_path / "orders-0"
    lw.write(
        [{"value": b"v" * 50, "timestamp": i} for i in range(60)],
        partition,
        "kafka.partition",
        batch_size=200,
    )
    log = partition / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2 + LENGTH + 1] = 1  # of the batch in the middle
    log.write_bytes(data)
    work, options = plan.reading(resolve(partition)), ReadOptions(Mode.DROPMALFORMED)
    parts = split_tasks(work.tasks, size, options.mode)
    assert len(parts) > 3
    losses = []
    for tasks in (work.tasks, parts):
        report = Report(str(partition))
        for task in tasks:
            part = Report(str(partition))
            list(run([task], ("offset",), part, options))
            report.merge(part)
        losses.append(
            [(fault.offset, fault.length, fault.rows_lost, fault.lost) for _, fault in report.faults]
        )
    assert len(losses[0]) == 1
    assert losses[0][0][2] > 0
    assert losses[1] == losses[0]


def test_large_batch_is_searched_at_its_expected_offset() -> None:
    # The limit is a compile-time constant of the kernel; this one is larger.
    big = batch(3, [record(value=bytes(LIMIT + 1))])
    data = bytearray(b"".join(SAME[:3]) + big + batch(4))
    data[2 * SIZE + 80] ^= 1
    buffer = Window(np.frombuffer(bytes(data), np.uint8), 0, len(data))
    asked = context()
    first = CODEC.scan(buffer, 0, asked)
    assert first.stop == 2 * SIZE
    assert CODEC.resync(buffer, first.stop + 1, asked) == (3 * SIZE, 0)


def test_claim_beyond_the_window_asks_for_more() -> None:
    data = bytearray(b"".join(SAME) + batch(9) * 1)
    data[2 * SIZE + LENGTH : 2 * SIZE + LENGTH + 4] = (4 * SIZE).to_bytes(4, "big")
    data[2 * SIZE + 80] ^= 1
    data[3 * SIZE + 80] ^= 1
    asked = context()
    part = window(bytes(data[: 5 * SIZE + 20]), size=len(data))
    first = CODEC.scan(part, 0, asked)
    place, need = CODEC.resync(part, first.stop + 1, asked)
    assert (place, need) == (4 * SIZE, 0) or need > 0
    assert numbers(data[: 8 * SIZE]) == [0, 1, 4, 5, 6, 7]


# Number of reads


class Counting(MemorySource):
    """A source that counts the bytes read."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.read = 0

    def pread(self, offset: int, length: int) -> Any:
        data = super().pread(offset, length)
        self.read += len(data)
        return data


def bait(kind: str, size: int) -> bytes:
    heads = np.zeros(size // HEAD_SIZE, HEAD)
    at = np.arange(len(heads)) * HEAD_SIZE
    heads["base_offset"], heads["magic"] = 1 + np.arange(len(heads)), MAGIC
    heads["records_count"], heads["producer_id"] = 1, -1
    if kind == "claims of the rest":
        heads["batch_length"] = size - at - LENGTH_END
    elif kind == "claims of a little":
        heads["batch_length"] = np.minimum(5000, size - at) - LENGTH_END
    elif kind == "claims of a half":
        heads["batch_length"] = np.maximum((size - at) // 2, HEAD_SIZE) - LENGTH_END
    elif kind == "magic":
        return bytes([MAGIC]) * size
    elif kind == "zeros":
        return bytes(size)
    else:
        return np.random.default_rng(1).integers(0, 256, size, np.uint8).tobytes()
    return heads.tobytes().ljust(size, b"\0")


BAIT = ("claims of the rest", "claims of a little", "claims of a half", "magic", "zeros", "noise")


def bytes_read_and_summed(data: bytes, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Return the bytes that a walk reads, and the bytes for which it computes prefix checksums."""
    true_prefixes = Finder.prefixes
    lengths: list[Prefixes] = []

    def prefixes(self: Finder, data: Any, kept: Prefixes | None = None) -> Prefixes:
        got = true_prefixes(self, data, kept)
        if not lengths or lengths[-1] is not got:
            lengths.append(got)
        return got

    monkeypatch.setattr(Finder, "prefixes", prefixes)
    source = Counting(data)
    ended = [part for part in Walk(source, CODEC, context(), step=1 << 16) if isinstance(part, Hole)]
    assert ended
    summed = sum((int(length.filled[0]) - 1) * STEP for length in lengths)
    return source.read, summed


@pytest.mark.parametrize("kind", BAIT)
def test_no_byte_is_read_more_than_a_few_times(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (1 << 18, 1 << 20):
        data = SAME[0] + bait(kind, size) + batch(1 << 20)
        read, summed = bytes_read_and_summed(data, monkeypatch)
        assert read <= 8 * len(data)
        assert summed <= 8 * len(data)


def test_good_batches_in_a_torn_value_are_followed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    held = b"".join(batch(5 + 2 * i, [], records_count=0) for i in range(4000))
    data = SAME[0] + batch(1, [record(value=held + bytes(300_000))])[: len(held) + 1000]
    read, summed = bytes_read_and_summed(data, monkeypatch)
    assert read <= 8 * len(data)
    assert summed <= 8 * len(data)
    assert len(walked_bounds(data)) == 1


def misplaced(order: str, count: int) -> bytes:
    """Return batches of one record, undamaged except for the order of their offsets."""
    half = count // 2
    offsets = {
        "descending": range(count, 0, -1),
        "two logs joined": [*range(half, count), *range(half)],
        "two logs interleaved": [at for i in range(half) for at in (half + i, i)],
        "all the same": [5] * count,
    }[order]
    batches = [batch(offset) for offset in offsets]
    if order == "all the same":
        for i in range(0, count, 2):
            batches[i] = batches[i][:-1] + b"?"
    return b"".join(batches)


ORDERS = ("descending", "two logs joined", "two logs interleaved", "all the same")


class Work:
    """Counts the batches that scans pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches = 0
        true_frames = Scanner.frames

        def frames(scanner: Scanner, *args: Any, **options: Any) -> Any:
            result = true_frames(scanner, *args, **options)
            self.batches += 1 + len(result.start)
            return result

        monkeypatch.setattr(Scanner, "frames", frames)


@pytest.mark.parametrize("order", ORDERS)
def test_misplaced_batches_are_scanned_a_few_times(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, work = misplaced(order, 500), Work(monkeypatch)
    parts = list(Walk(MemorySource(data), CODEC, context()))
    assert sum(isinstance(part, Hole) for part in parts) >= 250
    assert work.batches <= 20 * 500


@pytest.mark.extended
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("verb", ["read", "verify", "repair"])
def test_work_on_misplaced_batches_is_linear(
    order: str, verb: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    passed = []
    work = Work(monkeypatch)
    for count in (100, 400):
        partition = tmp_path / str(count) / "orders-0"
        partition.mkdir(parents=True)
        (partition / f"{0:020}.log").write_bytes(misplaced(order, count))
        work.batches = 0
        if verb == "read":
            lw.scan(partition, mode="DROPMALFORMED").to_table()
        elif verb == "verify":
            lw.verify(partition)
        else:
            lw.repair(partition, tmp_path / f"repaired-{count}")
        passed.append(work.batches)
    assert passed[1] <= 5 * passed[0]
    assert passed[1] <= 200 * 400


def test_scan_stops_at_the_first_bad_checksum() -> None:
    data = bytearray(b"".join(SAME * 40))
    data[20 * SIZE + 80] ^= 1
    frames = SCANNER.frames(window(bytes(data)), 0)
    assert (len(frames.start), frames.stop, frames.why, frames.need) == (20, 20 * SIZE, BAD_CHECKSUM, SIZE)
    packed = b"".join(SAME * 40)
    frames = SCANNER.frames(window(packed), 0)
    assert (len(frames.start), frames.stop, frames.why) == (320, len(packed), END)


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
@pytest.mark.parametrize("more", [0, 4, 8, 10])
def test_zeros_that_may_reach_into_the_offset_of_a_batch_do_not_make_it_the_first(
    tmp_path: Path, more: int
) -> None:
    """The offset is 0 then, which nothing confirms unless the batch after it continues it."""
    batches = [batch(i, [record(value=b"%d" % i)]) for i in (0, 1, 2, 3, 7, 8)]
    sizes = [len(each) for each in batches]
    for cut in range(1, 6):
        path = tmp_path / f"{more}-{cut}" / "orders-0"
        path.mkdir(parents=True)
        zeros = sum(sizes[:cut]) + more
        (path / f"{0:020}.log").write_bytes(bytes(zeros) + b"".join(batches)[zeros:])
        rows = lw.read(path, mode="DROPMALFORMED", columns=["offset", "value"]).to_pylist()
        kept = [0, 1, 2, 3, 7, 8][cut + (more >= 8) :]
        assert [row["offset"] for row in rows] == [int(row["value"]) for row in rows] == kept
        lw.repair(path, tmp_path / f"{more}-{cut}" / "repaired" / "orders-0")
        repaired = lw.read(tmp_path / f"{more}-{cut}" / "repaired" / "orders-0", columns=["offset", "value"])
        assert repaired.to_pylist() == rows


def test_first_batch_after_junk_is_kept(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.log"
    for junk in (b"junk" * 10, bytes(40)):
        path.write_bytes(junk + batch(0) + batch(1))
        assert lw.scan(path, mode="DROPMALFORMED").to_table()["offset"].to_pylist() == [0, 1]
