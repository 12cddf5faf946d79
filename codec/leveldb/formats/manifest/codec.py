"""The codec `leveldb.manifest`: descriptor files (`MANIFEST-*`).

A logical record is a version edit, a row is one of its fields. The result of the edits is in `store/version`, the framing of records in
`formats/records`, as for logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.columns import batch_of, joined
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.leveldb.formats.manifest.layout import (
    VERSION_EDIT,
    EditError,
    EditField,
    UnknownTagError,
    form,
    parse,
)
from logwright.codec.leveldb.formats.records import reencode
from logwright.codec.leveldb.formats.records.codec import RECORDS, Payloads, RecordCodec, RecordContext
from logwright.codec.leveldb.formats.records.layout import HEADER
from logwright.codec.leveldb.formats.records.reencode import PlainRecords, Records
from logwright.codec.leveldb.formats.table.compression import ANOTHER_PROGRAM
from logwright.codec.leveldb.names import MANIFEST_NAME
from logwright.codec.single_frame import conform
from logwright.codec.table import Column, Table
from logwright.codec.window import Bytes, Chunk, Decoded, Frames, Window

NAME = "leveldb.manifest"

ROWS = Table(
    "rows",
    (
        Column(
            "field",
            pa.string(),
            "comparator, log_number, prev_log_number, next_file_number, last_sequence, compact_pointer, deleted_file or new_file",
            nullable=False,
        ),
        Column("level", pa.int32(), "of a compact_pointer, deleted_file or new_file"),
        Column(
            "number",
            pa.int64(),
            "the number itself; in a deleted_file or new_file that of the file. All 64 bits",
        ),
        Column("size", pa.int64(), "in a new_file: bytes of the file"),
        Column("smallest", pa.binary(), "in a new_file its first internal key; in a compact_pointer the key"),
        Column("largest", pa.binary(), "in a new_file: its last internal key"),
        Column("comparator", pa.string(), "in a comparator: its name"),
        Column("position", pa.int64(), "byte of the file where the field's edit starts: record in frames"),
    ),
    "One row per field of a version edit, in the order of the file.",
)
_SYSTEM = "LevelDB refuses to open: Corruption: "
_WRAP = 1 << 64


class LevelDBManifest(RecordCodec):
    name = NAME
    title = "LevelDB manifest: version edits"
    pattern = MANIFEST_NAME
    rows = ROWS

    def plausible(self, window: Window, place: int, following: int, context: RecordContext) -> bool:
        """Return whether the record is an edit."""
        size = int(window.data[place + 4 : place + 6].view("<u2")[0])
        try:
            return bool(parse(window.data[place + HEADER : place + HEADER + size].tobytes()))
        except EditError:
            return False

    def is_canonical(self, records: Payloads) -> Bools:
        return np.array([_encodes_alike(payload) for payload in _each(records)], np.bool_)

    def decode_rows(
        self, window: Window, frames: Frames, columns: Sequence[str], context: RecordContext
    ) -> Decoded:
        rows: list[dict[str, Any]] = []
        faults: list[tuple[int, Fault]] = []
        for i, payload in enumerate(_each(Payloads.of(window, frames))):
            at = window.offset + int(frames.start[i])
            try:
                rows += [_row(field, at) for field in parse(payload)]
            except EditError as error:
                length = int(frames.end[i] - frames.start[i])
                kind, severity, text = Kind.PAYLOAD, Severity.ERROR, str(error)
                if isinstance(error, UnknownTagError):
                    kind, severity = Kind.UNSUPPORTED, Severity.WARNING
                    text = f"{error}: {ANOTHER_PROGRAM}"
                fault = Fault(NAME, at, length, kind, text, severity, f"{_SYSTEM}{error}")
                faults.append((len(rows), fault))
        schema = ROWS.schema(columns)
        arrays = [pa.array([row[name] for row in rows], ROWS[name].type) for name in columns]
        return Decoded(batch_of(arrays, schema, len(rows)), faults)

    def encode(
        self, rows: pa.Table, frames: pa.Table | None, file: pa.Table | None, context: RecordContext
    ) -> Iterator[Chunk]:
        plain = "payload" in rows.column_names and "field" not in rows.column_names
        records: Records = PlainRecords(rows, NAME) if plain else Edits(rows)
        return reencode.encode(NAME, records, frames, file)


def _each(records: Payloads) -> Iterator[bytes]:
    for start, end in zip(records.start.tolist(), records.end.tolist(), strict=True):
        yield records.data[start:end].tobytes()


def _encodes_alike(payload: bytes) -> bool:
    """Return whether writing the rows of an edit gives the same bytes."""
    try:
        fields = parse(payload)
        return bool(fields) and form([_field(_row(field, 0)) for field in fields]) == payload
    except EditError:
        return False


def _row(field: EditField, position: int) -> dict[str, Any]:
    return {
        "field": field.name,
        "level": field.level,
        "number": _signed(field.number),
        "size": _signed(field.size),
        "smallest": field.smallest,
        "largest": field.largest,
        "comparator": None if field.text is None else field.text.decode("utf-8", "replace"),
        "position": position,
    }


def _signed(number: int | None) -> int | None:
    return number if number is None or number < _WRAP // 2 else number - _WRAP


def _field(row: dict[str, Any]) -> EditField:
    number, size, text = row["number"], row["size"], row["comparator"]
    return EditField(
        row["field"],
        None if text is None else text.encode(),
        row["level"],
        None if number is None else number % _WRAP,
        None if size is None else size % _WRAP,
        row["smallest"],
        row["largest"],
    )


class Edits(Records):
    """Rows as version edits: the rows of one position, or else all rows as one edit."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows
        needed = rows
        for column in ROWS.columns:
            if column.nullable and column.name not in needed.column_names:
                needed = needed.append_column(column.field(), pa.nulls(rows.num_rows, column.type))
        self.fields = conform(NAME, needed, ROWS).to_pylist()
        positions = np.array([row["position"] or 0 for row in self.fields], np.int64)
        edges = np.flatnonzero(np.diff(positions)) + 1
        self.cuts = (
            np.concatenate(([0], edges, [len(positions)])) if len(positions) else np.zeros(1, np.int64)
        )

    @property
    def sizes(self) -> Int64s:
        return np.full(self.count, 100, np.int64)

    def payloads(self, first: int, last: int) -> tuple[Bytes, Int64s]:
        return joined([form(self._edit(record)) for record in range(first, last)])

    def _edit(self, record: int) -> list[EditField]:
        rows = self.fields[int(self.cuts[record]) : int(self.cuts[record + 1])] if record >= 0 else []
        return [_field(row) for row in rows]

    def says(self, payload: bytes, record: int) -> bool:
        try:
            fields = parse(payload)
        except EditError:
            return record < 0
        return [_field(_row(field, 0)) for field in fields] == self._edit(record)


assert RECORDS.names() == ("position", "size", "payload")
CODEC = LevelDBManifest(VERSION_EDIT)
