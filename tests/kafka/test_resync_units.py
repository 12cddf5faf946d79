"""The parts of resync that recognise records and batches, one by one."""

from __future__ import annotations

import numpy as np
import pytest
from kafka_log import NAME, batch, context, record, window

from logwright.codec.describe import VARINT
from logwright.codec.frames.resync import UNSURE
from logwright.codec.kafka.formats.log import resync
from logwright.codec.kafka.formats.log.heads import FINDER, LIMIT
from logwright.codec.kafka.formats.log.layout import HEAD_SIZE, RECORD, RECORD_BATCH
from logwright.codec.window import Window
from logwright.roundtrip.specimen import Specimen

LENGTH = RECORD_BATCH.offset("batch_length")


def zigzag(number: int) -> bytes:
    return VARINT.pack(number, {})


def pack_with_length(*fields: bytes) -> bytes:
    """Pack a record of these fields after its length."""
    body = b"".join(fields)
    return zigzag(len(body)) + body


KEY, VALUE, NONE = zigzag(1) + b"k", zigzag(2) + b"vv", zigzag(-1)
TIME, NEXT = zigzag(5), zigzag(1)


@pytest.mark.parametrize(
    ("data", "is_one"),
    [
        (RECORD.pack(record(1)), True),
        (RECORD.pack(record(3, None, None, headers=[("h", b"x")])), True),
        (pack_with_length(b"\0", TIME, NEXT, KEY, VALUE, zigzag(0)), True),
        (b"\xff" * 11, False),  # An endless length.
        (zigzag(2) + b"\0\0", False),  # Too short for a record.
        (pack_with_length(b"\0", TIME, NEXT, KEY, VALUE, zigzag(0))[:-1], False),
        (pack_with_length(b"\1", TIME, NEXT, KEY, VALUE, zigzag(0)), False),  # Attributes.
        (pack_with_length(b"\0", b"\xff" * 10), False),  # An endless timestamp.
        (
            pack_with_length(b"\0", TIME, zigzag(0), KEY, VALUE, zigzag(0)),
            False,
        ),  # Only the first record of a batch has 0.
        (pack_with_length(b"\0", TIME, NEXT, zigzag(-2), VALUE, b"\0" * 4), False),
        (pack_with_length(b"\0", TIME, NEXT, KEY, zigzag(90), b"\0" * 4), False),
        (pack_with_length(b"\0", TIME, NEXT, KEY, VALUE, zigzag(1), b"\0"), False),  # Remaining bytes.
        (pack_with_length(b"\0", TIME, NEXT, NONE, NONE, zigzag(-1), b"\0"), False),
    ],
)
def test_plausible_records_are_told_from_noise(data: bytes, is_one: bool) -> None:
    buffer = np.frombuffer(b"before" + data + b"behind", np.uint8)
    assert (resync.record_end(buffer, 6, 1) == 6 + len(data)) is is_one


@pytest.mark.parametrize("lost", [slice(0, 61), slice(0, 17), slice(8, 12), slice(16, 57)])
@pytest.mark.parametrize("fill", [0, 0x5A])
def test_batch_within_a_value_is_content_whatever_the_header_before_it_says(lost: slice, fill: int) -> None:
    """Complete records lead to it from the damaged header on. It has the offset of the record, and the value has more than it."""
    values = [b"before" + batch(5 + i, [record(value=b"content")]) + b"behind" for i in range(3)]
    damaged = bytearray(batch(5, [record(i, value=value) for i, value in enumerate(values)]))
    damaged[lost] = bytes([fill]) * len(damaged[lost])
    data = batch(0, [record(i) for i in range(5)]) + bytes(damaged) + batch(8) + batch(9)
    read = Specimen.of(data, "kafka.log", NAME).read()
    assert read.table["offset"].to_pylist() == [0, 1, 2, 3, 4, 8, 9]
    assert [fault.length for fault in read.report.faults] == [len(damaged)]


def test_zero_byte_at_the_end_of_a_record_is_no_length() -> None:
    """Most records end in one, the number of their headers. A varint does not."""
    good = batch(1)
    value = bytes([0x80 | len(good)])
    damaged = bytearray(batch(0, [record(value=value), record(1, value=value)]))
    assert damaged[-2:] == value + b"\0"
    damaged[:61] = bytes(61)
    damaged[61] = 0xFF
    read = Specimen.of(bytes(damaged) + good + batch(2), "kafka.log", NAME).read()
    assert read.table["offset"].to_pylist() == [1, 2]


def test_batch_ends_at_its_checksum_not_at_the_next_batch() -> None:
    first, others = batch(0, [record(value=b"x" * 50)]), [batch(1), batch(2)]
    for between, bound in ((b"", True), (b"?" * 5, False)):
        data = first + between + b"".join(others)
        search = resync._Search(window(data), context(), 1)
        assert search.own_end(0, 1) == (len(first) if bound else -1)


def test_implausibly_large_batch_counts_only_at_its_expected_offset() -> None:
    head = bytearray(batch(7)[:HEAD_SIZE])
    head[LENGTH : LENGTH + 4] = (LIMIT + 1).to_bytes(4, "big")
    buffer = Window(np.frombuffer(bytes(head) + bytes(40), np.uint8), 0, LIMIT * 2)
    prefixes = FINDER.prefixes(buffer.data)
    for low, due, place in ((0, 7, 0), (7, -1, 0), (0, 8, -1)):
        candidate = FINDER.next(buffer, 0, prefixes, low=low, high=1 << 40, due=due)
        assert (candidate[0] if candidate[1] == UNSURE else -1) == place
