"""The frames table: the headers of batches, and the stored records if they cannot be made again from the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.columns import batch_of, constant, contents, numbers
from logwright.codec.kafka.formats.log.heads import heads_at
from logwright.codec.kafka.formats.log.layout import (
    CODEC_NAMES,
    COMPRESSION,
    CONTROL,
    DELETE_HORIZON,
    HEAD_SIZE,
    LENGTH_END,
    MAGIC,
    MESSAGE,
    MESSAGE_TIME,
    NO_TIMESTAMP_TYPE,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
)
from logwright.codec.kafka.formats.log.rows import Read
from logwright.codec.kafka.formats.log.sections import PORTION, sections
from logwright.codec.kafka.formats.log.tables import NOTHING_SERVED, LogContext
from logwright.codec.table import Table
from logwright.codec.window import Decoded, Frames, Window

_NAMES = contents(pa.string(), [name.encode() for name in CODEC_NAMES])
_BITS = {"is_transactional": TRANSACTIONAL, "is_control": CONTROL}


def decode(
    window: Window, frames: Frames, table: Table, columns: Sequence[str], context: LogContext
) -> Iterator[Decoded]:
    """Return one row for each batch. See `Codec.decode`."""
    schema = table.schema(columns)
    if {"last_offset", "last_offset_delta"} & {*columns}:
        # This table shows the headers as they are stored. A scan corrects headers that their records contradict.
        stored = heads_at(window.data, frames.start)
        for name in ("base_offset", "records_count"):
            # Those of a wrapper are in its messages.
            stored[name] = np.where(stored["records_count"] < 0, frames.header[name], stored[name])
        frames = replace(frames, header=stored)
    for part in frames.portions(PORTION) if "payload" in columns else [frames] if len(frames) else ():
        arrays = [_column(name, window, part, schema.field(name).type, context) for name in columns]
        yield Decoded(batch_of(arrays, schema, len(part)))


def _column(name: str, window: Window, frames: Frames, kind: pa.DataType, context: LogContext) -> pa.Array:
    head = frames.header
    flags = head["attributes"]
    if name == "attributes":
        old = np.flatnonzero(head["magic"] < MAGIC)
        flags[old] = window.data[frames.start[old] + MESSAGE.offset("attributes")]
    if name in (head.dtype.names or ()):
        return numbers(kind, head[name])
    match name:
        case "raw":
            return _raw(window, frames)
        case "payload":
            return _payload(window, frames, context)
        case "position":
            return numbers(kind, window.offset + frames.start)
        case "last_offset_delta":
            delta = head["last_offset"] - head["base_offset"]
            return numbers(kind, delta, _is_far(delta))
        case "batch_length":
            return numbers(kind, head["size"] - LENGTH_END)
        case "compression":
            return _NAMES.take(numbers(pa.int64(), flags & COMPRESSION))
        case "delete_horizon_ms":
            return numbers(kind, head["base_timestamp"], flags & DELETE_HORIZON == 0)
        case "timestamp_type":
            append = flags & TIMESTAMP_TYPE != 0
            return numbers(kind, np.where(head["magic"] == 0, NO_TIMESTAMP_TYPE, append))
    return numbers(kind, flags & _BITS[name] != 0)


def _is_far(delta: Int64s) -> Bools:
    """Return which offsets do not fit the field of a batch for the last one."""
    return np.asarray(delta != delta.astype(np.int32), np.bool_)


def _raw(window: Window, frames: Frames) -> pa.Array:
    """Return the bytes of wrappers whose offset is too far from those of their messages for a frame's fields, as after damage."""
    head = frames.header
    far = np.flatnonzero((head["magic"] < MAGIC) & _is_far(head["last_offset"] - head["base_offset"]))
    if not len(far):
        return constant(pa.binary(), None, len(frames))
    values: list[Any] = [None] * len(frames)
    for i in far.tolist():
        values[i] = window.data[int(frames.start[i]) : int(frames.end[i])].tobytes()
    return contents(pa.binary(), values)


def _payload(window: Window, frames: Frames, context: LogContext) -> pa.Array:
    """Return the stored records if they are compressed, damaged, or not in the shortest form. Those of a message are its key and value,
    with their lengths.

    Which records a reader skips depends on the offsets of those before, so compressed records are read too.
    """
    magic = frames.header["magic"]
    start = frames.start + np.where(magic < MAGIC, MESSAGE.head_size + (magic == 1) * MESSAGE_TIME, HEAD_SIZE)
    keep = frames.header["attributes"] & COMPRESSION != 0
    place = window.offset + int(frames.start[0])
    served = context.served if place >= context.served_end else NOTHING_SERVED
    for part in sections(window, frames, context.options["max.decompressed.bytes"]):
        read = Read(part, frames.header[part.frames], 0, served=served)
        keep[part.frames] |= (read.odd != 0) | (read.bad != 0) | (read.left_out != 0)
        served = read.served
    context.served, context.served_end = served, window.offset + int(frames.end[-1])
    values: list[Any] = [None] * len(frames)
    for i in np.flatnonzero(keep).tolist():
        values[i] = window.data[int(start[i]) : int(frames.end[i])].tobytes()
    return contents(pa.binary(), values)
