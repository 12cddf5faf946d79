"""Control records: the markers among the records of a log, as columns.

The markers that end transactions are in control batches with a producer id. These are the only records that Kafka parses when it
rebuilds its producer state. A marker that cannot be parsed ends its start (`ControlRecordType`, `EndTransactionMarker`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.arrays import Int64s
from logwright.codec.fault import Fault, Kind
from logwright.codec.java import int64
from logwright.codec.kafka.formats.log.consumer import consume_batch
from logwright.codec.kafka.formats.log.java_streams import INVALID_RECORD, KAFKA_EXCEPTION, Thrown
from logwright.codec.kafka.formats.log.layout import (
    COMPRESSION,
    CONTROL,
    CONTROL_RECORD_KEY,
    END_TXN_MARKER,
    HEAD_SIZE,
    RECORD,
    TIMESTAMP_TYPE,
)
from logwright.codec.kafka.formats.log.tables import NAME
from logwright.codec.window import Frames, Window

MARKER = np.dtype(
    [("frame", "i8"), ("offset", "i8"), ("timestamp", "i8"), ("type", "i2"), ("coordinator_epoch", "i4")]
)
"""A control record: index of its batch among the frames, offset, time, type, and for ABORT and COMMIT the epoch of the coordinator
(otherwise -1)."""

NO_MARKERS = np.empty(0, MARKER)

ABORT, COMMIT = 0, 1
MALFORMED = -(1 << 15)
"""The type of a record that cannot be parsed because of an `InvalidRecordException`. The numbers above it stand for the other exceptions."""
_UNDERFLOW, _NULL_POINTER = "java.nio.BufferUnderflowException", "java.lang.NullPointerException"
_FAILURES = (
    INVALID_RECORD,
    KAFKA_EXCEPTION,
    "java.lang.IllegalArgumentException",
    _UNDERFLOW,
    "java.lang.RuntimeException",
    _NULL_POINTER,
)
_LIMIT = 1 << 20
_KEY_SIZE, _VALUE_SIZE = CONTROL_RECORD_KEY.head_size, END_TXN_MARKER.head_size
_VERSION = "Invalid version found for {}: {}. May indicate data corruption"


def markers(window: Window, frames: Frames) -> npt.NDArray[Any]:
    """Return the records of control batches that have a producer id, as an array of `MARKER`."""
    if not np.bitwise_or.reduce(frames.header["attributes"]) & CONTROL:
        return NO_MARKERS
    flags = frames.header["attributes"].astype(np.int64)
    control = np.flatnonzero((flags & CONTROL != 0) & (frames.header["producer_id"] >= 0))
    usual, rest = _usual(window, frames, control)
    out: list[tuple[int, int, int, int, int]] = []
    for i in rest.tolist():
        out += _of_batch(window, frames, i)
    if not out:
        return usual
    marks = np.concatenate([usual, np.array(out, MARKER)])
    return marks[np.argsort(marks["frame"], kind="stable")]


def markers_between(marks: npt.NDArray[Any], low: int, high: int) -> npt.NDArray[Any]:
    """Return the markers of the batches `[low, high)`, with indices that count from `low`."""
    out = marks[(marks["frame"] >= low) & (marks["frame"] < high)]
    out["frame"] -= low
    return out


def unusual(window: Window, frames: Frames) -> Int64s:
    """Return which frames are control batches other than those with which a broker ends transactions."""
    control: Int64s = np.flatnonzero(frames.header["attributes"] & CONTROL)
    return _usual(window, frames, control)[1] if len(control) else control


_USUAL = np.frombuffer(
    RECORD.pack({"key": bytes(CONTROL_RECORD_KEY.min_size), "value": bytes(END_TXN_MARKER.min_size)}),
    np.uint8,
)
"""A marker as brokers write it. There may be millions, which differ only in the type and the coordinator's epoch."""
MARKER_SIZE = HEAD_SIZE + len(_USUAL)
"""The size of a batch with such a marker."""
_TYPE_AT = len(_USUAL) - END_TXN_MARKER.min_size - 3  # its low byte
_EPOCH_AT = len(_USUAL) - 5


def _usual(window: Window, frames: Frames, control: Int64s) -> tuple[npt.NDArray[Any], Int64s]:
    """Return the markers of control batches as brokers write them, and which of the batches have another form."""
    head = frames.header[control]
    start, end = frames.start[control] + HEAD_SIZE, frames.end[control]
    plain = (
        (head["attributes"] & COMPRESSION == 0) & (head["records_count"] == 1) & (end - start == len(_USUAL))
    )
    content = window.data[start[plain, None] + np.arange(len(_USUAL))]
    same = content == _USUAL
    same[:, _EPOCH_AT : _EPOCH_AT + 4] = True
    same[:, _TYPE_AT] = content[:, _TYPE_AT] <= COMMIT
    good = same.all(axis=1)
    plain[plain] = good
    head, content = head[plain], content[good]
    out = np.empty(len(head), MARKER)
    out["frame"], out["offset"] = control[plain], head["base_offset"]
    out["timestamp"] = np.where(
        head["attributes"] & TIMESTAMP_TYPE, head["max_timestamp"], head["base_timestamp"]
    )
    out["type"] = content[:, _TYPE_AT]
    out["coordinator_epoch"] = np.ascontiguousarray(content[:, _EPOCH_AT : _EPOCH_AT + 4]).view(">i4")[:, 0]
    return out, control[~plain]


def bad_markers(window: Window, frames: Frames) -> list[Fault]:
    """Return the faults of control records that should end a transaction and cannot: a broker does not start on them."""
    marks = markers(window, frames)
    out: list[Fault] = []
    if not len(marks):
        return out
    for marker in marks[(marks["type"] != ABORT) & (marks["type"] != COMMIT)]:
        start, end = int(frames.start[marker["frame"]]), int(frames.end[marker["frame"]])
        kind = "cannot be parsed" if failure(int(marker["type"])) else f"has type {marker['type']}"
        text = f"the control record at offset {marker['offset']} {kind}, expected ABORT or COMMIT from a producer"
        out.append(
            Fault(
                NAME,
                window.offset + start,
                end - start,
                Kind.PAYLOAD,
                text,
                system="the broker does not start",
            )
        )
    return out


def _of_batch(window: Window, frames: Frames, i: int) -> list[tuple[int, int, int, int, int]]:
    """Return the markers of a batch up to the first one that cannot be parsed."""
    marks: list[tuple[int, int, int, int, int]] = []
    head = frames.header[i]
    try:
        for marker in _parsed(window, frames, i):
            marks.append((i, *marker))
    except Thrown as error:
        marks.append((i, int(head["base_offset"]), int(head["base_timestamp"]), _failed(error.java), -1))
    return marks


def reason(window: Window, frames: Frames, i: int) -> str:
    """Return the message of the exception at the markers of a batch; "" without one."""
    try:
        list(_parsed(window, frames, i))
    except Thrown as error:
        return error.message or ""
    return ""


def _parsed(window: Window, frames: Frames, i: int) -> Iterator[tuple[int, int, int, int]]:
    """Iterate over the markers of a batch as `DefaultRecordBatch.iterator` does: a compressed batch is parsed completely before its
    first record is returned, any other record by record, and the broker asks only for the first. Raises `Thrown`."""
    head = frames.header[i]
    flags = int(head["attributes"])
    base, base_timestamp = int(head["base_offset"]), int(head["base_timestamp"])
    if head["records_count"] == 0:
        return
    content = consume_batch(window.data[int(frames.start[i]) : int(frames.end[i])], _LIMIT)
    if content.error is not None and (flags & COMPRESSION or not content.records):
        raise content.error
    at = 0
    for _ in range(content.records):
        record, at = RECORD.unpack(content.data, at, len(content.data))
        kind, epoch = _parse(record["key"], record["value"])
        timestamp = int64(base_timestamp + record["timestamp_delta"])
        if flags & TIMESTAMP_TYPE:
            timestamp = int(head["max_timestamp"])
        yield int64(base + record["offset_delta"]), timestamp, kind, epoch


def _failed(java: str) -> int:
    return MALFORMED + (_FAILURES.index(java) if java in _FAILURES else 0)


def failure(kind: int) -> str | None:
    """Return the exception of a broker at a record of this type; None if it can be parsed."""
    at = kind - MALFORMED
    return _FAILURES[at] if at < len(_FAILURES) else None


def _parse(key: bytes | None, value: bytes | None) -> tuple[int, int]:
    """Return the type and the coordinator epoch of a marker. Raises `Thrown`."""
    if key is None:
        raise Thrown(_NULL_POINTER, 'Cannot invoke "java.nio.ByteBuffer.duplicate()" because "key" is null')
    if len(key) < _KEY_SIZE:
        raise Thrown(
            INVALID_RECORD,
            f"Invalid value size found for control record key. Must have at least {_KEY_SIZE} bytes, but found only {len(key)}",
        )
    name, _ = CONTROL_RECORD_KEY.unpack(key)
    if name["version"] < 0:
        raise Thrown(INVALID_RECORD, _VERSION.format("control record", name["version"]))
    if name["type"] not in (ABORT, COMMIT):
        return name["type"] if failure(name["type"]) is None else -1, -1
    if value is None:
        raise Thrown(_NULL_POINTER, 'Cannot invoke "java.nio.ByteBuffer.getShort()" because "value" is null')
    version = int.from_bytes(value[:2], "big", signed=True)
    if len(value) >= 2 and version < 0:
        raise Thrown(INVALID_RECORD, _VERSION.format("end transaction marker", version))
    if len(value) < _VALUE_SIZE:
        raise Thrown(_UNDERFLOW)
    return name["type"], END_TXN_MARKER.unpack(value)[0]["coordinator_epoch"]
