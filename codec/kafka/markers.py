"""Control records: the markers among the records of a log, as columns.

What ends transactions is in control batches that have a producer id. Kafka parses those when it rebuilds its producer state, and
nothing else of the records of a log; a marker it can't parse ends its start (`ControlRecordType`, `EndTransactionMarker`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.base import Frames, Window
from logwright.codec.compress import CompressionError
from logwright.codec.describe import DescriptionError
from logwright.codec.fault import Fault, Kind
from logwright.codec.kafka.batch import (
    COMPRESSION,
    CONTROL,
    CONTROL_RECORD_KEY,
    END_TXN_MARKER,
    HEAD_SIZE,
    RECORD,
)
from logwright.codec.kafka.scan import NAME
from logwright.codec.kafka.sections import expand

MARKER = np.dtype(
    [("frame", "i8"), ("offset", "i8"), ("timestamp", "i8"), ("type", "i2"), ("coordinator_epoch", "i4")]
)
"""A control record: index of its batch among the frames, its offset and time, its type, and for ABORT and COMMIT the epoch of
the coordinator (-1 else)."""

ABORT, COMMIT = 0, 1
MALFORMED = -(1 << 15)
"""The type of a record that can't be parsed."""
_LIMIT = 1 << 20


def markers(window: Window, frames: Frames) -> npt.NDArray[Any]:
    """The records of control batches that have a producer id, as an array of `MARKER`."""
    flags = frames.header["attributes"].astype(np.int64)
    wanted = np.flatnonzero((flags & CONTROL != 0) & (frames.header["producer_id"] >= 0))
    out: list[tuple[int, int, int, int, int]] = []
    for i in wanted.tolist():
        # One record a batch, 78 bytes in all: the description reads it as fast as a kernel would be called.
        out += _of_batch(window, frames, i, int(flags[i]) & COMPRESSION)
    return np.array(out, MARKER)


def bad_markers(window: Window, frames: Frames) -> list[Fault]:
    """Control records that should end a transaction and can't: a broker does not start on them."""
    found = markers(window, frames)
    out = []
    for marker in found[(found["type"] != ABORT) & (found["type"] != COMMIT)]:
        start, end = int(frames.start[marker["frame"]]), int(frames.end[marker["frame"]])
        kind = "can't be parsed" if marker["type"] == MALFORMED else f"has type {marker['type']}"
        text = f"the control record at offset {marker['offset']} {kind}, ABORT or COMMIT was expected of a producer"
        out.append(Fault(NAME, window.offset + start, end - start, Kind.PAYLOAD, text, system="the broker does not start"))
    return out


def _of_batch(window: Window, frames: Frames, i: int, codec: int) -> list[tuple[int, int, int, int, int]]:
    head = frames.header[i]
    base, base_timestamp = int(head["base_offset"]), int(head["base_timestamp"])
    stored = window.data[int(frames.start[i]) + HEAD_SIZE : int(frames.end[i])]
    found: list[tuple[int, int, int, int, int]] = []
    try:
        buf = (expand(codec, stored, _LIMIT) if codec else stored).tobytes()
        at = 0
        for _ in range(int(head["records_count"])):
            record, at = RECORD.unpack(buf, at, len(buf))
            kind, epoch = _parse(record["key"], record["value"])
            offset, timestamp = base + record["offset_delta"], base_timestamp + record["timestamp_delta"]
            found.append((i, offset, timestamp, kind, epoch))
    except (DescriptionError, CompressionError):
        found.append((i, base, base_timestamp, MALFORMED, -1))
    return found


def _parse(key: bytes | None, value: bytes | None) -> tuple[int, int]:
    """Type and coordinator epoch."""
    try:
        name, _ = CONTROL_RECORD_KEY.unpack(key or b"")
        if name["version"] < 0:
            return MALFORMED, -1
        if name["type"] not in (ABORT, COMMIT):
            return name["type"], -1
        marker, _ = END_TXN_MARKER.unpack(value or b"")
    except DescriptionError:
        return MALFORMED, -1
    if marker["version"] < 0:
        return MALFORMED, -1
    return name["type"], marker["coordinator_epoch"]
