"""Decode keys and values of rows: views of internal topics, and payload formats. A payload that cannot be decoded is a
fault of its row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from logwright.codec.deferred import deferred
from logwright.codec.fault import Fault, Kind
from logwright.codec.kafka.formats.internal.definitions import Topic
from logwright.codec.kafka.formats.internal.view import DecodedMessages, with_faults, without
from logwright.codec.kafka.formats.log.layout import COMPRESSION, CONTROL, HEAD_SIZE, MAGIC
from logwright.codec.kafka.formats.log.tables import NAME, ROWS, LogContext
from logwright.codec.kafka.formats.payload import Format, types_of
from logwright.codec.kafka.formats.payload import decoded as payload_column
from logwright.codec.kernels.intrinsics import read_varint, read_varlong
from logwright.codec.option import Options
from logwright.codec.table import Table
from logwright.codec.window import Decoded, Frames, Window

if TYPE_CHECKING:
    from logwright.codec.kafka.formats.log import rows
else:
    rows = deferred("logwright.codec.kafka.formats.log", "rows")


def decode_topic(
    window: Window, frames: Frames, topic: Topic, table: Table, columns: Sequence[str], context: LogContext
) -> Iterator[Decoded]:
    """Return the rows of a decoded view. Control records are left out, except those of the Raft log."""
    if not topic.control:
        frames = frames.pick(frames.header["attributes"] & CONTROL == 0)
    plain = {column.name for column in ROWS.columns} - {"key", "value"}
    read = tuple(
        dict.fromkeys(
            (*(name for name in columns if name in plain), "key", "value", "offset", "position", "is_control")
        )
    )
    for decoded in rows.decode(window, frames, ROWS, read, context):
        batch = decoded.batch
        stored = {name: batch.column(i) for i, name in enumerate(read)}
        messages = DecodedMessages(topic, stored["key"], stored["value"], stored["is_control"])
        arrays = [stored[name] if name in plain else messages.column(table[name]) for name in columns]
        out = pa.RecordBatch.from_arrays(arrays, schema=table.schema(columns))
        yield without_bad(window, frames, stored, Decoded(out, decoded.faults), messages.bad, context)


def typed_rows(options: Options) -> Table:
    """Return the table of plain rows, with the types of keys and values that are read as structs. Raises `UsageError`."""
    types = types_of(options)
    return _typed_rows(tuple(types.items())) if types else ROWS


@cache
def _typed_rows(types: tuple[tuple[str, pa.DataType], ...]) -> Table:
    by_name = dict(types)
    columns = (replace(column, type=by_name.get(column.name, column.type)) for column in ROWS.columns)
    return replace(ROWS, columns=tuple(columns))


def decode_formats(
    window: Window, frames: Frames, formats: Mapping[str, Format], columns: Sequence[str], context: LogContext
) -> Iterator[Decoded]:
    """Return plain rows with the selected keys and values as JSON text or structs."""
    table, types = typed_rows(context.options), types_of(context.options)
    read = tuple(dict.fromkeys((*columns, "offset", "position", "is_control")))
    for decoded in rows.decode(window, frames, ROWS, read, context):
        stored = {name: decoded.batch.column(i) for i, name in enumerate(read)}
        shown, bad = dict(stored), dict[int, str]()
        for side in formats.keys() & set(columns):
            shown[side], wrong = payload_column(
                formats[side], types.get(side), stored[side], stored["is_control"]
            )
            bad |= {row: f"{side}: {reason}" for row, reason in wrong.items()}
        out = table.batch(columns, shown.__getitem__, decoded.batch.num_rows)
        yield without_bad(window, frames, stored, Decoded(out, decoded.faults), bad, context)


def without_bad(
    window: Window,
    frames: Frames,
    stored: Mapping[str, pa.Array],
    decoded: Decoded,
    bad: Mapping[int, str],
    context: LogContext,
) -> Decoded:
    """Return the rows without those whose payload is `bad`, and a fault with the reason for each of these.

    `stored` has the columns `offset` and `position` of all rows.
    """
    if not bad:
        return decoded
    faults = {}
    for row in sorted(bad):
        offset, position = stored["offset"][row].as_py(), stored["position"][row].as_py()
        faults[row] = _fault(window, frames, offset, position, bad[row], context)
    return Decoded(without(decoded.batch, sorted(bad)), with_faults(decoded.faults, faults))


def _fault(
    window: Window, frames: Frames, offset: int, position: int, reason: str, context: LogContext
) -> Fault:
    frame = int(np.searchsorted(frames.start, position - window.offset, "right")) - 1
    start, end = _record(window, frames, frame, offset)
    lost: dict[str, Any] = (
        {} if context.topic is None else {"topic": context.topic, "partition": context.partition}
    )
    lost |= {"first_offset": offset, "last_offset": offset}
    text = f"record at offset {offset}: {reason}"
    return Fault(NAME, window.offset + start, end - start, Kind.PAYLOAD, text, rows_lost=1, lost=lost)


def _record(window: Window, frames: Frames, frame: int, offset: int) -> tuple[int, int]:
    """Return the range of a record in its window; of its batch, if that is compressed or a message of magic 0 or 1."""
    head = frames.header[frame]
    start, end = int(frames.start[frame]), int(frames.end[frame])
    if head["magic"] != MAGIC or int(head["attributes"]) & COMPRESSION:
        return start, end
    delta, at = offset - int(head["base_offset"]), start + HEAD_SIZE
    while at < end:
        size, body = read_varint(window.data, at, end)
        if body < 0 or size < 0 or size > end - body:
            break
        _, after = read_varlong(window.data, body + 1, end)
        if read_varint(window.data, after, end)[0] == delta:
            return at, body + size
        at = body + size
    return start, end
