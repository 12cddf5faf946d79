"""A file in memory or on disk that can be decoded to its three tables and encoded again, for the laws."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from logwright.codec import registry
from logwright.codec.base import Codec
from logwright.codec.fault import LogwrightError, UsageError
from logwright.codec.frames.walk import WINDOW
from logwright.codec.option import Options
from logwright.readers.report_data import FileReport
from logwright.readers.source import MemorySource, Source, local_path, open_source
from logwright.readers.split import split
from logwright.readers.stream import FileStream, Mode, output_schema

HEAD = 4096
"""The number of first bytes that identify a file."""


@dataclass(frozen=True)
class Read:
    """The rows of one table, and the report of the read."""

    table: pa.Table
    report: FileReport


@dataclass(frozen=True)
class Specimen:
    """A file, on disk or in memory, with its codec. `name` and `hints` are for the decoding context."""

    codec: Codec
    name: str
    path: str | None = None
    data: bytes = b""
    options: Mapping[str, Any] = field(default_factory=dict)
    hints: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        source_or_data: FileOrBytes,
        codec: str | Codec | None = None,
        name: str | None = None,
        **options: Any,
    ) -> Specimen:
        """Make a specimen from a path or bytes. Raises `UsageError` for an unrecognised format, or another one than `codec`."""
        if isinstance(source_or_data, Specimen):
            return source_or_data
        path: str | None = None
        data, hints = b"", {"directory": ""}
        if isinstance(source_or_data, bytes | bytearray | memoryview):
            data, head = bytes(source_or_data), bytes(source_or_data[:HEAD])
        else:
            path = local_path(os.fspath(source_or_data))
            with open_source(path) as source:
                head = source.pread(0, HEAD).tobytes()
            name = name or os.path.basename(path)
            hints = {"directory": os.path.basename(os.path.dirname(os.path.abspath(path)))}
        name = name or "memory"
        detected = registry.get(codec) if isinstance(codec, str) else codec or registry.detect(name, head)
        if detected is None:
            known = ", ".join(item.name for item in registry.codecs())
            raise UsageError("unrecognised file format", path=path, advice=f"Pass its codec, one of: {known}")
        Options(detected.options, options)
        return cls(detected, name, path, data, options, hints)

    def open(self) -> Source:
        return open_source(self.path) if self.path is not None else MemorySource(self.data, self.name)

    def context(self) -> Any:
        return self.codec.context(self.name, Options(self.codec.options, self.options), **self.hints)

    def all_bytes(self) -> bytes:
        with self.open() as source:
            return source.pread(0, source.size).tobytes()

    def read(
        self,
        table: str = "rows",
        *,
        columns: str | None = "*",
        mode: Mode = Mode.DROPMALFORMED,
        start: int = 0,
        stop: int | None = None,
        window: int = WINDOW,
    ) -> Read:
        """Read a complete table. Raises the errors of reading."""
        chosen = self.codec.tables[table].select(columns)
        report = FileReport(self.name, self.codec.name)
        with self.open() as source:
            batches = list(
                FileStream(
                    source,
                    self.codec,
                    table,
                    chosen,
                    context=self.context(),
                    report=report,
                    mode=mode,
                    start=start,
                    stop=stop,
                    window=window,
                )
            )
        if not batches:
            return Read(output_schema(self.codec.tables[table], chosen, mode).empty_table(), report)
        return Read(pa.Table.from_batches(batches), report)

    def tables(self) -> tuple[pa.Table, pa.Table, pa.Table]:
        """Return rows, frames and file with all columns, from which encoding restores the same bytes.

        Damaged ranges are among the frames if the codec has a column for their bytes.
        """
        rows = self.read("rows").table
        frames = self.read("frames", mode=Mode.PERMISSIVE).table
        file = self.read("file").table
        return rows, frames.select(self.codec.tables["frames"].names(detail=True)), file

    def stretches(self, max_bytes: int) -> list[tuple[int, int]]:
        with self.open() as source:
            return split(source, self.codec, self.context(), max_bytes)

    def with_bytes(self, data: bytes) -> Specimen:
        """Return a copy with other bytes."""
        return Specimen(self.codec, self.name, None, data, self.options, self.hints)

    def encode(self, rows: pa.Table, frames: pa.Table | None = None, file: pa.Table | None = None) -> bytes:
        return b"".join(bytes(chunk) for chunk in self.codec.encode(rows, frames, file, self.context()))


FileOrBytes = str | os.PathLike[str] | bytes | bytearray | memoryview | Specimen


def attempt(specimen: Specimen, mode: Mode, columns: str | None = None) -> Read | LogwrightError:
    """Return the rows or the `LogwrightError`. Any other exception is a bug and is raised."""
    try:
        return specimen.read(columns=columns, mode=mode)
    except LogwrightError as error:
        return error
