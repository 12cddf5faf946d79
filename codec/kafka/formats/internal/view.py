"""The decoded views of internal topics: their tables, the rows that records are decoded to, and the records that rows are encoded to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from logwright.codec.columns import contents, numbers
from logwright.codec.deferred import deferred
from logwright.codec.fault import Fault, UsageError
from logwright.codec.kafka.formats.internal.definitions import CONTROL, TOPICS, Topic
from logwright.codec.kafka.formats.internal.schema import RecordType, struct_type
from logwright.codec.kafka.formats.payload import PayloadError
from logwright.codec.table import Column, Table

if TYPE_CHECKING:
    from logwright.codec.kafka.formats.internal import arrays, offset_commits, records
else:
    arrays, offset_commits, records = deferred(
        "logwright.codec.kafka.formats.internal", "arrays", "offset_commits", "records"
    )

_OWN = ("type", "version", "note", "key", "value")


def _columns(topic: Topic) -> tuple[Column, ...]:
    """Return the columns that are decoded from key and value."""
    structs: dict[str, RecordType] = {}
    for kind in topic.records:
        if kind.fields:
            structs.setdefault(kind.column, kind)
    return (
        Column("type", pa.string(), "type of the record, in upstream's words; null if it is unknown"),
        Column("version", pa.int16(), "version of the value; null for a tombstone"),
        *(
            Column(name, struct_type(kind.fields), f"the fields of {kind.name}; null for other records")
            for name, kind in structs.items()
        ),
        Column("note", pa.string(), "why the stored bytes are kept in key and value, else null"),
        Column("key", pa.binary(), "the stored key of a record that the other columns cannot express"),
        Column("value", pa.binary(), "the stored value of a record that the other columns cannot express"),
    )


def table_of(topic: Topic, rows: Table) -> Table:
    """Return the table of a decoded view. `rows` is the table of plain records; its other columns are included."""
    core = tuple(rows[name] for name in ("offset", "timestamp", "partition"))
    decoded = _columns(topic)
    taken = {column.name for column in (*core, *decoded)}
    detail = tuple(
        Column(column.name, column.type, column.doc, column.nullable, True, column.prunes)
        for column in rows.columns
        if column.name not in taken
    )
    return Table(topic.view, (*core, *decoded, *detail), f"One row per record of {topic.topic}.", rows.key)


BY_VIEW: Mapping[str, Topic] = {topic.view: topic for topic in TOPICS}


# Decode


class DecodedMessages:
    """The columns of decoded records. `bad` are the rows that cannot be decoded, and why."""

    def __init__(self, topic: Topic, key: pa.Array, value: pa.Array, control: pa.Array | None = None) -> None:
        """`control`: which records are control records; None for none of them."""
        self._rows, self._key, self._value = len(key), key, value
        self._control = pa.array([False] * len(key)) if control is None else control
        self.bad: dict[int, str] = {}
        self._pieces: dict[str, list[Any]] = {}
        self._types = np.full(len(key), -1, np.int64)
        self._names = [kind.name for kind in topic.records]
        self._versions = np.full(len(key), offset_commits.TOMBSTONE, np.int64)
        self._notes: dict[int, str] = {}
        left = np.arange(len(key))
        if topic.topic == "__consumer_offsets" and len(key):
            left = self._read_commits(topic.records[0], left)
        self._read(topic, left.tolist())

    def _read_commits(self, kind: RecordType, left: Any) -> Any:
        commits = offset_commits.offset_commits(kind, self._key, self._value)
        if commits is None:
            return left
        self._types[commits.rows], self._versions[commits.rows] = commits.types, commits.versions
        if len(commits.rows):
            self._pieces[kind.column] = [(commits.rows, commits.fields)]
        return np.delete(left, commits.rows)

    def _read(self, topic: Topic, rows: list[int]) -> None:
        """Decode records one by one."""
        place = {kind.name: i for i, kind in enumerate(topic.records)}
        messages: dict[str, tuple[RecordType, list[int], list[Mapping[str, Any]]]] = {}
        columns = (_taken(array, rows) for array in (self._key, self._value, self._control))
        for row, key, value, control in zip(rows, *columns, strict=True):
            try:
                message = records.decode(topic, key, value, control=control)
            except PayloadError as error:
                self.bad[row] = str(error)
                continue
            if message.note is not None:
                self._notes[row] = message.note
            if message.version is not None:
                self._versions[row] = message.version
            if message.kind is not None:
                self._types[row] = place[message.kind.name]
                if message.kind.fields:
                    _, places, fields = messages.setdefault(message.kind.column, (message.kind, [], []))
                    places.append(row)
                    fields.append(message.values)
        for column, (kind, places, fields) in messages.items():
            piece = (np.array(places, np.int64), arrays.structures(kind.fields, fields))
            self._pieces.setdefault(column, []).append(piece)

    def column(self, column: Column) -> pa.Array:
        name, rows = column.name, self._rows
        if name == "type":
            texts = contents(pa.string(), [each.encode() for each in self._names])
            return texts.take(numbers(pa.int64(), self._types, self._types < 0))
        if name == "version":
            # If the type is unknown, so is the version.
            return numbers(pa.int16(), self._versions.astype(np.int16), self._versions < 0)
        if name == "note":
            return (
                contents(
                    pa.string(), [self._notes[i].encode() if i in self._notes else None for i in range(rows)]
                )
                if self._notes
                else pa.nulls(rows, pa.string())
            )
        if name in ("key", "value"):
            kept = np.zeros(rows, np.bool_)
            kept[list(self._notes)] = True
            stored = self._key if name == "key" else self._value
            return stored.take(numbers(pa.int64(), np.arange(rows), ~kept))
        return arrays.spread(self._pieces.get(name, ()), column.type, rows)


def _taken(array: pa.Array, rows: list[int]) -> list[Any]:
    chosen = array if len(rows) == len(array) else array.take(numbers(pa.int64(), np.array(rows, np.int64)))
    values: list[Any] = chosen.to_pylist()
    return values


# Encode


def stored_rows(rows: pa.RecordBatch, first_row: int = 0) -> pa.RecordBatch:
    """Return rows of a decoded view with their encoded `key` and `value`; other rows unchanged.

    Stored bytes in `key` and `value` are used if they agree with the other columns, and in rows without a type. The column `is_control` of
    the result has the control records. Raises `UsageError`, with the number of the row counted from `first_row`.
    """
    names = rows.schema.names
    topics = [
        topic for topic in TOPICS if any(kind.fields and kind.column in names for kind in topic.records)
    ]
    if "type" not in names or not topics:
        # Rows of other tables may have a column `type` too. Without key and value, what the view's column says would be lost.
        if ("type" in names or topics) and not {"key", "value"} & set(names):
            raise UsageError(
                "the rows have no key and no value, and not the columns of a decoded view",
                advice="Such a row has its type in column type, and its fields in the column of that type",
            )
        return rows
    if len(topics) > 1:
        raise UsageError(
            f"the rows have columns of the views {' and '.join(topic.view for topic in topics)}",
            advice="Write the rows of one view",
        )
    (topic,) = topics
    own = {*_OWN, *(kind.column for kind in topic.records)} & set(names)
    columns = {name: rows.column(name).to_pylist() for name in own}
    kinds = {kind.name: kind for kind in topic.records}
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    control: list[bool] = []
    for i in range(rows.num_rows):
        row = {name: column[i] for name, column in columns.items()}
        try:
            key, value = _stored(topic, kinds, row)
        except PayloadError as error:
            raise UsageError(f"row {first_row + i}: {row['type']}: {error}") from None
        keys.append(key)
        values.append(value)
        control.append(row["type"] in kinds and kinds[row["type"]].control)
    if topic.control:
        own |= {"is_control"}
    others = [name for name in names if name not in own]
    arrays = [rows.column(name) for name in others]
    arrays += [contents(pa.binary(), keys), contents(pa.binary(), values)]
    added = ["key", "value"]
    if topic.control:
        arrays.append(pa.array(control, pa.bool_()))
        added.append("is_control")
    return pa.RecordBatch.from_arrays(arrays, names=[*others, *added])


def _stored(
    topic: Topic, kinds: Mapping[str, RecordType], row: Mapping[str, Any]
) -> tuple[bytes | None, bytes | None]:
    """Return the key and value of a row."""
    key, value = _content(row.get("key")), _content(row.get("value"))
    kind = kinds.get(row["type"])
    if kind is None and row["type"] is not None:
        raise PayloadError(f"unknown type: expected one of {', '.join(kinds)}")
    own = None if kind is None else kind.column
    other = next((name for name in row if name not in (*_OWN, own) and row[name] is not None), None)
    if other is not None:
        raise PayloadError(f"column {other} is not null, but belongs to another type")
    if kind is None:
        return key, value
    if kind is CONTROL:
        if key is None or value is None:
            raise PayloadError("key or value is null")
        return key, value
    fields = row.get(kind.column) if kind.fields else {}
    version = row.get("version", kind.versions[-1])
    if (key is not None or value is not None) and _says(topic, key, value, kind, version, fields):
        return key, value
    if fields is None:
        raise PayloadError(f"column {kind.column} is null")
    names = {field.name for field in kind.value}
    left = sorted(name for name in names if fields.get(name) is not None)
    if version is None and left:
        raise PayloadError(f"the version is null, for a tombstone, but {left[0]} is {fields[left[0]]!r}")
    return records.encode(topic, records.Message(kind, version, fields))


def _content(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _says(
    topic: Topic, key: bytes | None, value: bytes | None, kind: RecordType, version: Any, fields: Any
) -> bool:
    """Return whether stored bytes have the content of the row."""
    try:
        message = records.decode(topic, key, value, control=kind.control)
    except PayloadError:
        return False
    stored = {field.name: message.values.get(field.name) for field in kind.fields}
    return message.kind is kind and message.version == version and (not kind.fields or stored == fields)


# Faults


def without(batch: pa.RecordBatch, rows: Sequence[int]) -> pa.RecordBatch:
    """Return the batch without these rows."""
    keep = np.ones(batch.num_rows, np.bool_)
    keep[list(rows)] = False
    return batch.take(numbers(pa.int64(), np.flatnonzero(keep)))


def with_faults(faults: Sequence[tuple[int, Fault]], bad: Mapping[int, Fault]) -> list[tuple[int, Fault]]:
    """Return the faults of a batch without the rows `bad`: the earlier faults with new row numbers, and those of the removed rows."""
    rows = np.array(sorted(bad), np.int64)
    moved = [(row - int(np.searchsorted(rows, row)), fault) for row, fault in faults]
    moved += [(row - i, bad[row]) for i, row in enumerate(rows.tolist())]
    return sorted(moved, key=lambda entry: (entry[0], entry[1].offset))
