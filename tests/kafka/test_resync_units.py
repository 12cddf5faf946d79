"""The pieces of resync that decide what is a record and what is a batch, each by itself."""

from __future__ import annotations

import numpy as np
import pytest
from kafka_log import batch, context, record, window

from logwright.codec.describe import VARINT
from logwright.codec.frames.resync import UNSURE
from logwright.codec.kafka.formats.log import resync
from logwright.codec.kafka.formats.log.heads import FINDER, LIMIT
from logwright.codec.kafka.formats.log.layout import HEAD_SIZE, RECORD, RECORD_BATCH
from logwright.codec.window import Window

LENGTH = RECORD_BATCH.offset("batch_length")


def zigzag(number: int) -> bytes:
    return VARINT.pack(number, {})


def whole(*fields: bytes) -> bytes:
    """A record of these fields, its length before them."""
    body = b"".join(fields)
    return zigzag(len(body)) + body


KEY, VALUE, NONE = zigzag(1) + b"k", zigzag(2) + b"vv", zigzag(-1)
TIME, NEXT = zigzag(5), zigzag(1)


@pytest.mark.parametrize(
    ("data", "is_one"),
    [
        (RECORD.pack(record(1)), True),
        (RECORD.pack(record(3, None, None, headers=[("h", b"x")])), True),
        (whole(b"\0", TIME, NEXT, KEY, VALUE, zigzag(0)), True),
        (b"\xff" * 11, False),  # a length that never ends
        (zigzag(2) + b"\0\0", False),  # too short for a record
        (whole(b"\0", TIME, NEXT, KEY, VALUE, zigzag(0))[:-1], False),
        (whole(b"\1", TIME, NEXT, KEY, VALUE, zigzag(0)), False),  # attributes
        (whole(b"\0", b"\xff" * 10), False),  # a time that never ends
        (whole(b"\0", TIME, zigzag(0), KEY, VALUE, zigzag(0)), False),  # only the first one of a batch has 0
        (whole(b"\0", TIME, NEXT, zigzag(-2), VALUE, b"\0" * 4), False),
        (whole(b"\0", TIME, NEXT, KEY, zigzag(90), b"\0" * 4), False),
        (whole(b"\0", TIME, NEXT, KEY, VALUE, zigzag(1), b"\0"), False),  # bytes are left
        (whole(b"\0", TIME, NEXT, NONE, NONE, zigzag(-1), b"\0"), False),
    ],
)
def test_a_record(data: bytes, is_one: bool) -> None:
    there = np.frombuffer(b"before" + data + b"behind", np.uint8)
    assert bool(resync.is_record(there, 6)) is is_one


def test_a_batch_ends_where_its_checksum_is_right_not_where_the_next_starts() -> None:
    first, others = batch(0, [record(value=b"x" * 50)]), [batch(1), batch(2)]
    for between, found in ((b"", True), (b"?" * 5, False)):
        data = first + between + b"".join(others)
        search = resync._Search(window(data), context(), 1)
        assert search.own_end(0, 1) == (len(first) if found else -1)


def test_a_batch_too_large_to_be_true_counts_only_where_it_is_due() -> None:
    head = bytearray(batch(7)[:HEAD_SIZE])
    head[LENGTH : LENGTH + 4] = (LIMIT + 1).to_bytes(4, "big")
    there = Window(np.frombuffer(bytes(head) + bytes(40), np.uint8), 0, LIMIT * 2)
    prefixes = FINDER.prefixes(there.data)
    for low, due, place in ((0, 7, 0), (7, -1, 0), (0, 8, -1)):
        found = FINDER.next(there, 0, prefixes, low=low, high=1 << 40, due=due)
        assert (found[0] if found[1] == UNSURE else -1) == place
