"""What a small file or directory is that the trust harness tries its promises on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from logwright.codec import registry
from logwright.roundtrip.specimen import Specimen


@dataclass(frozen=True)
class Sample:
    """A file: the codec that makes it, its name (which codecs go by), its rows, and how they are encoded."""

    codec: str
    name: str
    rows: Sequence[Mapping[str, Any]]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return " ".join([self.codec, *(str(value) for value in self.options.values())])

    def specimen(self) -> Specimen:
        """In memory; the same bytes each time, but for what a compressor's version makes of them."""
        empty = Specimen.of(b"", self.codec, self.name, **self.options)
        table = registry.get(self.codec).tables["rows"]
        names = [name for name in table.names(detail=True) if any(name in row for row in self.rows)]
        rows = pa.Table.from_pylist([dict(row) for row in self.rows], schema=table.schema(names))
        return empty.with_bytes(empty.encode(rows))


@dataclass(frozen=True)
class DirectorySample:
    """A directory: the layout that makes it, its name, the rows that it is made of and those written next, and the column that
    tells them apart. `own`: what that column has for rows that are there in any case."""

    layout: str
    name: str
    old: Sequence[Mapping[str, Any]]
    new: Sequence[Mapping[str, Any]]
    key: str
    options: Mapping[str, Any] = field(default_factory=dict)
    own: Sequence[Any] = ()
    roots: Sequence[str] = ()
    """Options that name further roots: it is written with a directory for each."""
