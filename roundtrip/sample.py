"""Small sample files and directories for the trust harness."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from logwright.codec import registry
from logwright.roundtrip.specimen import Specimen


@dataclass(frozen=True)
class Sample:
    """A file: its codec, its name (by which codecs recognise it), its rows and encoding options. `hints`: facts from its directory. `note`
    distinguishes it from other samples. `frames` returns columns of the frames table that differ from those of plain rows."""

    codec: str
    name: str
    rows: Sequence[Mapping[str, Any]]
    options: Mapping[str, Any] = field(default_factory=dict)
    hints: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    frames: Callable[[pa.Table], Mapping[str, Sequence[Any]]] | None = None

    @property
    def label(self) -> str:
        values = [self.codec, *self.options.values(), self.note]
        return " ".join(str(value) for value in values if value != "" and not isinstance(value, bytes))

    def specimen(self) -> Specimen:
        """Encode the sample in memory. The bytes are reproducible, except for the compressor's version."""
        empty = Specimen.of(b"", self.codec, self.name, **self.options)
        table = registry.get(self.codec).tables["rows"]
        names = [
            name
            for name in table.names(detail=True)
            if not self.rows or any(name in row for row in self.rows)
        ]
        rows = pa.Table.from_pylist([dict(row) for row in self.rows], schema=table.schema(names))
        full = empty.with_bytes(empty.encode(rows))
        if self.frames is not None:
            rows, frames, file = full.tables()
            for column, values in self.frames(frames).items():
                place = frames.column_names.index(column)
                frames = frames.set_column(place, column, pa.array(values, frames.schema.field(column).type))
            full = full.with_bytes(full.encode(rows, frames, file))
        return replace(full, hints={**full.hints, **self.hints})


@dataclass(frozen=True)
class DirectorySample:
    """A directory: its layout, its name, the old rows and the new rows written next, and the key column that
    distinguishes them. `own`: the keys of rows that exist in any case."""

    layout: str
    name: str
    old: Sequence[Mapping[str, Any]]
    new: Sequence[Mapping[str, Any]]
    key: str
    options: Mapping[str, Any] = field(default_factory=dict)
    own: Sequence[Any] = ()
    roots: Sequence[str] = ()
    """Options that name further roots. Each gets a directory."""
    payload_views: Collection[str] = ()
    """Views that decode payloads which these rows do not have."""
