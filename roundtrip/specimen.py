"""Some bytes of a known format, decoded into its three tables and encoded again: what the laws are made of."""

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
"""So many first bytes are looked at to recognise a file."""


@dataclass(frozen=True)
class Read:
    """The rows of one table, and the report of the reading."""

    table: pa.Table
    report: FileReport


@dataclass(frozen=True)
class Specimen:
    """A file, on disk or in memory, with its codec. `name` and `hints` are what decoding is told besides the bytes."""

    codec: Codec
    name: str
    path: str | None = None
    data: bytes = b""
    options: Mapping[str, Any] = field(default_factory=dict)
    hints: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, given: Given, codec: str | Codec | None = None, name: str | None = None, **options: Any
    ) -> Specimen:
        """A path, bytes, or a specimen already. Raises `UsageError` when it is of no kind that we know, or of another than `codec`
        says."""
        if isinstance(given, Specimen):
            return given
        path: str | None = None
        data, hints = b"", {"directory": ""}
        if isinstance(given, bytes | bytearray | memoryview):
            data, head = bytes(given), bytes(given[:HEAD])
        else:
            path = local_path(os.fspath(given))
            with open_source(path) as source:
                head = source.pread(0, HEAD).tobytes()
            name = name or os.path.basename(path)
            hints = {"directory": os.path.basename(os.path.dirname(os.path.abspath(path)))}
        name = name or "memory"
        detected = registry.get(codec) if isinstance(codec, str) else codec or registry.detect(name, head)
        if detected is None:
            known = ", ".join(item.name for item in registry.codecs())
            raise UsageError(
                "this file is none that we know", path=path, advice=f"Say what it is, one of: {known}"
            )
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
        """One table, whole. Raises what reading raises."""
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
        """Rows, frames and file, with all columns: what encoding takes to write the same bytes again.

        Damaged stretches are among the frames, where the codec has a column for their bytes.
        """
        rows = self.read("rows").table
        frames = self.read("frames", mode=Mode.PERMISSIVE).table
        file = self.read("file").table
        return rows, frames.select(self.codec.tables["frames"].names(detail=True)), file

    def stretches(self, max_bytes: int) -> list[tuple[int, int]]:
        with self.open() as source:
            return split(source, self.codec, self.context(), max_bytes)

    def with_bytes(self, data: bytes) -> Specimen:
        """The same file with other bytes."""
        return Specimen(self.codec, self.name, None, data, self.options, self.hints)

    def encode(self, rows: pa.Table, frames: pa.Table | None = None, file: pa.Table | None = None) -> bytes:
        return b"".join(bytes(chunk) for chunk in self.codec.encode(rows, frames, file, self.context()))


Given = str | os.PathLike[str] | bytes | bytearray | memoryview | Specimen


def attempt(specimen: Specimen, mode: Mode, columns: str | None = None) -> Read | LogwrightError:
    """The rows, or the error that is raised on purpose. Any other error passes: it is a mistake."""
    try:
        return specimen.read(columns=columns, mode=mode)
    except LogwrightError as error:
        return error
