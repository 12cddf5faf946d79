"""Markers read by column equal those that the description reads one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_log import raw_batch

from logwright.codec.describe import Repeated
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.formats.log.java_streams import INVALID_RECORD, KAFKA_EXCEPTION
from logwright.codec.kafka.formats.log.layout import (
    CONTROL,
    CONTROL_RECORD_KEY,
    END_TXN_MARKER,
    RECORD,
    RECORD_BATCH,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
)
from logwright.codec.kafka.formats.log.markers import failure, markers, reason
from logwright.codec.kafka.repair.runs import one_batch
from logwright.codec.kernels.compress import compress
from logwright.codec.option import Options
from logwright.codec.window import Window

GZIP = 1


def record(kind: int, epoch: int, **others: Any) -> dict[str, Any]:
    key = CONTROL_RECORD_KEY.pack({"version": 0, "type": kind})
    value = END_TXN_MARKER.pack({"version": 0, "coordinator_epoch": epoch})
    return {"key": key, "value": value, **others}


def batch(offset: int, records: list[dict[str, Any]], flags: int = 0, **others: Any) -> bytes:
    stored: Any = records
    if flags & GZIP:
        stored = compress("gzip", Repeated(RECORD).pack(records, {}))
    return RECORD_BATCH.pack(
        {
            "base_offset": offset,
            "attributes": TRANSACTIONAL | CONTROL | flags,
            "producer_id": 7,
            "base_timestamp": 1000,
            "max_timestamp": 5000,
            "records_count": len(records),
            "records": stored,
            **others,
        }
    )


def markers_of(data: bytes) -> list[tuple[int, ...]]:
    window = Window(np.frombuffer(data, np.uint8), 0, len(data))
    context = log.CODEC.context(f"{0:020d}.log", Options(log.CODEC.options))
    return markers(window, log.CODEC.scan(window, 0, context)).tolist()


def test_marker_as_a_broker_writes_it() -> None:
    assert markers_of(batch(3, [record(0, 9)])) == [(0, 3, 1000, 0, 9)]
    assert markers_of(batch(3, [record(1, -1)])) == [(0, 3, 1000, 1, -1)]


def test_append_time_is_the_time_of_the_marker() -> None:
    """`DefaultRecord.readFrom` gives records of such batches the batch's largest timestamp."""
    assert markers_of(batch(3, [record(1, 9)], TIMESTAMP_TYPE)) == [(0, 3, 5000, 1, 9)]
    assert markers_of(batch(3, [record(1, 9, timestamp_delta=2)], TIMESTAMP_TYPE)) == [(0, 3, 5000, 1, 9)]
    assert markers_of(batch(3, [record(1, 9, timestamp_delta=2)])) == [(0, 3, 1002, 1, 9)]


def test_far_timestamps_wrap_as_in_java() -> None:
    data = batch(3, [record(1, 9, timestamp_delta=1)], base_timestamp=(1 << 63) - 1)
    assert markers_of(data) == [(0, 3, -(1 << 63), 1, 9)]


def test_other_control_records_are_no_markers() -> None:
    assert markers_of(batch(0, [record(1, 0)], producer_id=-1)) == []
    assert markers_of(batch(0, [])) == []
    assert markers_of(batch(0, [record(2, 0)]))[0][3] == 2


VALID_KEY, VALID_VALUE = b"\0\0\0\1", b"\0" * 6


@pytest.mark.parametrize(
    ("key", "value", "java", "message"),
    [
        (b"\0\0\0", VALID_VALUE, INVALID_RECORD, "Must have at least 4 bytes, but found only 3"),
        (b"\x80\0\0\1", VALID_VALUE, INVALID_RECORD, "Invalid version found for control record: -32768"),
        (VALID_KEY, b"\xff\xff", INVALID_RECORD, "Invalid version found for end transaction marker: -1"),
        (VALID_KEY, b"\0" * 5, "java.nio.BufferUnderflowException", ""),
        (None, VALID_VALUE, "java.lang.NullPointerException", '"key" is null'),
        (VALID_KEY, None, "java.lang.NullPointerException", '"value" is null'),
    ],
)
def test_exception_at_a_malformed_marker(
    key: bytes | None, value: bytes | None, java: str, message: str
) -> None:
    """Recovery truncates a segment at an `InvalidRecordException`. Any other exception ends the start."""
    data = batch(0, [{"key": key, "value": value}])
    assert failure(markers_of(data)[0][3]) == java
    window, frames = one_batch(data)
    assert message in reason(window, frames, 0)


def test_errors_of_a_broker_at_unreadable_markers() -> None:
    """As `DefaultRecordBatch.iterator` throws them: one record is read, or all of them if compressed."""

    def broker_error(data: bytes) -> str | None:
        return failure(markers_of(data)[0][3])

    good = record(1, 9)
    invalid, illegal = "org.apache.kafka.common.InvalidRecordException", "java.lang.IllegalArgumentException"
    flags = TRANSACTIONAL | CONTROL
    assert broker_error(batch(0, [good])) is None
    assert broker_error(batch(0, [record(-(1 << 15), 0)])) is None
    assert broker_error(raw_batch(0, RECORD.pack(good), -1, attributes=flags, producer_id=7)) == invalid
    assert broker_error(raw_batch(0, RECORD.pack(good) + b"x", 1, attributes=flags, producer_id=7)) == invalid
    assert broker_error(raw_batch(0, RECORD.pack(good) + b"x", 2, attributes=flags, producer_id=7)) is None
    assert broker_error(raw_batch(0, b"x" * 20, 1, attributes=flags | 5, producer_id=7)) == illegal
    assert broker_error(raw_batch(0, b"x" * 20, 1, attributes=flags | GZIP, producer_id=7)) == KAFKA_EXCEPTION
    assert markers_of(raw_batch(0, b"x" * 20, 0, attributes=flags | 5, producer_id=7)) == []


BATCHES = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, TIMESTAMP_TYPE, GZIP]),
        st.lists(
            st.tuples(
                st.integers(-3, 4),
                st.integers(-(1 << 31), (1 << 31) - 1),
                st.sampled_from([0, 0, 0, 1, -5, 1 << 40]),
                st.sampled_from([0, 0, 0, 1]),
            ),
            max_size=2,
        ),
    ),
    max_size=12,
)


@given(BATCHES)
def test_control_records_of_any_content_are_decoded(specs: list[Any]) -> None:
    data, expected = b"", []
    for i, (flags, records) in enumerate(specs):
        base = 10 * i
        data += batch(
            base,
            [record(kind, epoch, timestamp_delta=late, attributes=odd) for kind, epoch, late, odd in records],
            flags,
            last_offset_delta=1,
        )
        expected += [
            (i, base, 5000 if flags & TIMESTAMP_TYPE else 1000 + late, kind, epoch if kind in (0, 1) else -1)
            for kind, epoch, late, _ in records
        ]
    assert markers_of(data) == expected
