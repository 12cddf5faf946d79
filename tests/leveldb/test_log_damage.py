"""Damage in logs: what is reported, and the continuation after it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from leveldb_logs import GOOD_BATCH, THREE_BATCHES, log_specimen, one_fault, read_operations, round_trips
from leveldb_records import batch, record, to_block_end, written

import logwright as lw
from logwright.codec.fault import Kind, Severity
from logwright.codec.leveldb.formats.log.codec import CODEC
from logwright.codec.leveldb.formats.records.layout import BLOCK, FIRST, FULL, HEADER, LAST, MIDDLE
from logwright.codec.window import Window
from logwright.roundtrip.specimen import Specimen

# Damage


def flipped(data: bytes, at: int, by: int = 1) -> bytes:
    return data[:at] + bytes([data[at] ^ by]) + data[at + 1 :]


FIRST_END = len(written([GOOD_BATCH]))


END_OF_FILE = "LevelDB silently treats it as the end of the file"


REST_OF_BLOCK = "LevelDB drops the rest of the block of 32 KiB"


NO_WORD = "LevelDB silently skips it"


PASSES = "LevelDB skips it"


ABC = record(FULL, b"abc")


NEXT = record(FULL, batch(5, (b"z", b"9")))


@pytest.mark.parametrize(
    ("middle", "behind", "kind", "text", "system", "severity"),
    [
        (flipped(ABC, 8), NEXT, Kind.CHECKSUM, "checksum mismatch of a FULL record of 3 bytes", REST_OF_BLOCK, Severity.ERROR),
        (
            ABC[:6] + b"\x09" + ABC[7:], NEXT,
            Kind.CHECKSUM, "checksum mismatch of a type 9 record of 3 bytes", REST_OF_BLOCK, Severity.ERROR,
        ),
        (
            ABC[:4] + b"\xff\xff" + ABC[6:], NEXT + written([b"x" * BLOCK], FIRST_END + 10 + len(NEXT)),
            Kind.LENGTH, "bad record length: 65,535 bytes of payload, ", REST_OF_BLOCK, Severity.ERROR,
        ),
        (record(5, b"abc"), NEXT, Kind.MAGIC, "unknown record type 5", END_OF_FILE, Severity.ERROR),
        (record(6, b"abc"), NEXT, Kind.MAGIC, "unknown record type 6", NO_WORD, Severity.ERROR),
        (record(7, b"abc"), NEXT, Kind.MAGIC, "unknown record type 7", PASSES, Severity.ERROR),
        (record(200, b"abc"), NEXT, Kind.MAGIC, "unknown record type 4294967240", PASSES, Severity.ERROR),
        (b"\1\0\0\0" + bytes(3), NEXT, Kind.MAGIC, "a record of type 0 and length 0", "the rest of the block", Severity.ERROR),
        (bytes(9), NEXT, Kind.PADDING, "zeros instead of a record, followed by other bytes", "silently", Severity.ERROR),
        (bytes(9), b"", Kind.PADDING, "zeros instead of a record", "silently", Severity.INFO),
        (
            record(FIRST, b"abc"), NEXT,
            Kind.TRUNCATED, "partial record without end(1): 3 bytes of a record", PASSES, Severity.ERROR,
        ),
        (record(MIDDLE, b"abc"), NEXT, Kind.ORDER, "missing start of fragmented record(1): 3 bytes", PASSES, Severity.ERROR),
        (record(LAST, b"abc"), NEXT, Kind.ORDER, "missing start of fragmented record(2): 3 bytes", PASSES, Severity.ERROR),
        (ABC[:5], b"", Kind.TRUNCATED, "the file ends within the header of a record, after 5 of 7 bytes", END_OF_FILE, Severity.WARNING),
        (
            ABC[:-1], b"",
            Kind.TRUNCATED, "the file ends within a record: 3 bytes of payload declared, 2 present", END_OF_FILE,
            Severity.WARNING,
        ),
        (
            record(FIRST, b"abc"), b"",
            Kind.TRUNCATED, "the file ends before the rest of a record, after 3 bytes of it", END_OF_FILE, Severity.WARNING,
        ),
        (
            record(FIRST, b"abc") + flipped(record(LAST, b"def"), 9), NEXT,
            Kind.CHECKSUM, f"checksum mismatch of a LAST record of 3 bytes at byte {FIRST_END + 10}, in the middle of a record",
            REST_OF_BLOCK, Severity.ERROR,
        ),
    ],
)  # fmt: skip
def test_damage_in_the_middle_and_at_the_end(
    middle: bytes, behind: bytes, kind: Kind, text: str, system: str, severity: Severity
) -> None:
    log = log_specimen(written([GOOD_BATCH]) + middle + behind)
    fault = log.read().report.faults[0]
    assert (fault.kind, fault.severity, fault.offset) == (kind, severity, FIRST_END)
    assert text in fault.detail
    assert system in fault.system
    operations = read_operations(log)
    assert operations[0] == (1, b"a", b"1")
    if behind:
        assert fault.length == len(middle)
        assert operations[1] == (5, b"z", b"9")
        assert fault.lost == {"file": 7, "first_sequence": 2, "last_sequence": 4}
        assert fault.rows_lost == 3
    assert round_trips(log)


def test_record_larger_than_the_limit() -> None:
    log = log_specimen(
        written([GOOD_BATCH, batch(2, (b"b", b"x" * 600)), batch(3, (b"c", b"3"))]),
        **{"max.record.bytes": 500},
    )
    fault = one_fault(log)
    assert fault.detail == "a record of more than 500 bytes (max.record.bytes)"
    assert (fault.kind, fault.system, fault.rows_lost) == (Kind.LENGTH, "LevelDB reads it", 1)
    assert [op[0] for op in read_operations(log)] == [1, 3]


@pytest.mark.parametrize(
    ("first", "behind", "rows", "lost"),
    [
        (GOOD_BATCH, batch(2, (b"z", b"9")), 0, {}),  # Nothing is missing.
        (GOOD_BATCH, batch(1, (b"z", b"9")), None, {"file": 7, "first_sequence": 2, "last_sequence": 0}),
        (b"short", batch(5, (b"z", b"9")), None, {"file": 7, "last_sequence": 4}),
        (GOOD_BATCH, b"short", None, {"file": 7, "first_sequence": 2}),
        (b"short", b"short", None, {"file": 7}),
    ],
)  # fmt: skip
def test_lost_sequence_numbers_follow_from_the_neighbours(
    first: bytes, behind: bytes, rows: int | None, lost: Mapping[str, Any]
) -> None:
    log = log_specimen(record(FULL, first) + record(200, b"abc") + record(FULL, behind))
    (fault,) = [finding for finding in log.read().report.faults if finding.kind is Kind.MAGIC]
    assert (fault.rows_lost, fault.lost) == (rows, lost)


def test_loss_in_a_file_without_a_number_names_none() -> None:
    data = written([GOOD_BATCH]) + record(200, b"abc") + NEXT
    log = Specimen.of(data, "leveldb.log", "copy of a log")
    assert one_fault(log).lost == {"first_sequence": 2, "last_sequence": 4}
    assert log.read().table["file"].null_count == 2


# Continuation after damage


def test_record_inside_a_value_is_no_record() -> None:
    """The value of a damaged record contains a complete record, and its length is damaged too."""
    inner = record(FULL, batch(77_000_000, (b"trap", b"trap")))
    outer = record(FULL, batch(2, (b"b", b"<" + inner + b">" * 5)))
    log = log_specimen(
        written([GOOD_BATCH]) + b"\xff" * 6 + outer[6:] + written([batch(3, (b"c", b"3"))]) + record(200, b"")
    )
    assert [op[0] for op in read_operations(log)] == [1, 3]
    assert round_trips(log)


@pytest.mark.parametrize("first", [True, False])
def test_record_is_accepted_if_its_sequence_fits(first: bool) -> None:
    """Only its content shows that it is a record: the block ends in damage too."""
    real = record(FULL, batch(3, (b"c", b"3")))
    other = record(FULL, batch(10_000_000, (b"d", b"4")))
    no_batch, empty = record(FULL, b"no batch at all"), record(FULL, batch(3))
    head = (
        (written([GOOD_BATCH]) if first else b"")
        + b"\xff" * 11
        + no_batch
        + empty
        + other
        + real
        + b"\xff" * 9
    )
    # Without a sequence number before it, certain records after it decide.
    tail = batch(6, (b"e", b"5" * BLOCK))
    size = to_block_end(len(head))
    data = head + record(FIRST, tail[:size]) + record(LAST, tail[size:])
    assert [op[0] for op in read_operations(log_specimen(data))] == ([1] if first else []) + [3, 6]
    # Without any evidence none is accepted.
    alone = log_specimen(b"\xff" * 11 + real + b"\xff" * 9)
    assert read_operations(alone) == []
    assert round_trips(alone)


def test_damage_ends_with_its_block() -> None:
    batches = [batch(n, (b"k", b"v" * 900)) for n in range(1, 90)]
    data = written(batches)
    log = log_specimen(data[:100] + b"\xff" * (BLOCK - 100) + data[BLOCK:])
    # A record that began in the damaged block is lost with it, the others are not.
    keys = [op[0] for op in read_operations(log)]
    assert keys == list(range(keys[0], 90))
    assert keys[0] <= BLOCK // 900 + 2
    assert round_trips(log)
    for window in (4096, 40_000):
        assert [row["sequence"] for row in log.read(window=window).table.to_pylist()] == keys


def test_every_start_in_the_middle() -> None:
    """Tasks that each read a range have all rows together, each once, wherever the records are."""
    batches = [
        batch(n, (b"k", b"v" * size)) for n, size in enumerate([10, 40_000, 5, 70_000, 32_700, 1, 1], 1)
    ]
    log = log_specimen(written(batches))
    operations = read_operations(log)
    cuts = [0, *range(1000, len(log.all_bytes()), 17_001), len(log.all_bytes())]
    parts = [log.read(start=a, stop=b, window=8192).table for a, b in itertools.pairwise(cuts)]
    rows = [row for part in parts for row in part.to_pylist()]
    assert [(row["sequence"], row["key"], row["value"]) for row in rows] == operations


def test_bytes_that_a_record_needs() -> None:
    data = written([GOOD_BATCH, batch(2, (b"b", b"x" * (3 * BLOCK)))])

    def need(cut: int, *, check: bool) -> int:
        window = Window(np.frombuffer(data[:cut], np.uint8), 0, len(data))
        frames = CODEC.scan(window, 0, log_specimen(data).context(), check=check)
        assert frames.stop == FIRST_END
        return frames.need

    # The length of only one physical record is known; for a long one another block is requested, or the rest of the file.
    assert need(FIRST_END + 3, check=True) == HEADER
    assert need(BLOCK, check=True) == BLOCK - FIRST_END + HEADER + BLOCK
    assert need(3 * BLOCK, check=True) == len(data) - FIRST_END
    # A search for starts needs only this block, or the next header.
    assert need(BLOCK, check=False) == BLOCK - FIRST_END + HEADER


def test_search_without_prior_knowledge() -> None:
    """A task may start after damage found by another one, or knowing nothing."""
    data = b"\xff" * 11 + THREE_BATCHES
    window = Window(np.frombuffer(data, np.uint8), 0, len(data))
    context = log_specimen(data).context()
    assert CODEC.resync(window, 1, context) == (11, 0)
    assert CODEC.scan(window, 0, context).damage is not None
    assert context.resume is not None
    assert CODEC.resync(window, 12, context) == (11 + FIRST_END, 0)


def test_wrong_length_that_leads_to_a_later_record_loses_one_record() -> None:
    records = [record(FULL, batch(n, (b"key", b"value"))) for n in range(1, 30)]
    data, size = b"".join(records), len(records[0])
    for later in range(2, 20):
        length = (later * size - HEADER).to_bytes(2, "little")
        damaged = data[: 5 * size + 4] + length + data[5 * size + 6 :]
        read = log_specimen(damaged).read(columns="sequence").table["sequence"].to_pylist()
        assert read == [n for n in range(1, 30) if n != 6]


@pytest.mark.parametrize("covered", [1, 2])
def test_records_inside_a_wrong_length_are_read(covered: int) -> None:
    """The length ends where a later record does, so that another record follows."""
    parts = [record(FULL, batch(n, (b"key%d" % n, b"value" * n))) for n in range(1, 6)]
    data = bytearray(b"".join(parts))
    at = len(parts[0])
    data[at + 4 : at + 6] = (sum(map(len, parts[1 : 2 + covered])) - HEADER).to_bytes(2, "little")
    specimen = log_specimen(bytes(data))
    fault = one_fault(specimen)
    assert (fault.offset, fault.length) == (at, len(parts[1]))
    assert [row["key"] for row in specimen.read().table.to_pylist()] == [b"key1", b"key3", b"key4", b"key5"]


@pytest.mark.parametrize("check", [True, False])
def test_record_without_its_start_is_damage_wherever_a_read_begins(check: bool) -> None:
    """A stream may continue at the start of a block."""
    data = written([b"x" * to_block_end(0)]) + record(LAST, b"end") + NEXT
    for offset in (0, BLOCK):
        window = Window(np.frombuffer(data[offset:], np.uint8), offset, len(data))
        context = CODEC.context("000001.log", log_specimen(data).context().options)
        frames = CODEC.scan(window, 0, context, check=check)
        assert frames.damage is not None
        assert frames.damage.offset == BLOCK
        assert frames.damage.detail == "missing start of fragmented record(2): 3 bytes of a record"


@pytest.mark.filterwarnings("ignore::logwright.codec.fault.DamageWarning")
def test_pieces_of_different_batches_give_no_operation(tmp_path: Path) -> None:
    """A block is missing, so the first piece of a batch is followed by the last one of a later batch. Each has the right checksum."""
    values = [random.Random(i).randbytes(40_000) for i in range(8)]
    rows = [{"key": b"k%d" % i, "value": value, "sequence": i + 1} for i, value in enumerate(values)]
    path = tmp_path / "000003.log"
    lw.write(rows, path, "leveldb.log")
    data = path.read_bytes()
    by_key = dict(zip((row["key"] for row in rows), values, strict=True))
    for block in range(1, len(data) // 32768):
        path.write_bytes(data[: block * 32768] + data[(block + 1) * 32768 :])
        assert not lw.verify(path).ok
        salvaged = lw.read(path, mode="DROPMALFORMED").to_pylist()
        assert len(salvaged) >= 5
        assert all(row["value"] == by_key[row["key"]] for row in salvaged)
        assert lw.roundtrip(path, law=["decode_encode"]).holds
        out = tmp_path / f"out{block}.log"
        lw.repair(path, out)
        assert lw.read(out, "leveldb.log").num_rows == len(salvaged)
