"""Conversion between native files: frames are copied where possible, else rows are encoded again."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from logwright.codec import plural, registry
from logwright.codec.base import Codec
from logwright.codec.deferred import compute as pc
from logwright.codec.fault import UsageError
from logwright.codec.layout import Layout
from logwright.codec.option import Options, Verb, fold
from logwright.conversion.options import codec_named, is_layout, narrows, of_table
from logwright.conversion.result import done, result
from logwright.conversion.table_files import FORMATS
from logwright.readers.usage import takes
from logwright.scanning import read
from logwright.scanning import scan as scan_of

_OTHER_TABLES = (".csv", ".tsv", ".txt", ".json", ".xlsx", ".xls", ".orc", ".avro", ".sqlite", ".gz", ".zip")
"""Endings that a directory of native files never has."""


class Native:
    """A conversion between native files."""

    def __init__(
        self, source: str, target: str, codec: str | None, if_exists: str, rows_only: bool, options: dict[str, Any],
        reading: dict[str, Any], jobs: int,
    ) -> None:  # fmt: skip
        from logwright.readers.resolve import resolve
        from logwright.readers.target import Skipped, kind

        self.source, self.target, self.if_exists, self.jobs = source, target, if_exists, jobs
        self.reading, self.rows_only = reading, rows_only
        targets = resolve(source, skipped=Skipped(), stores_only=True, served=True)
        if len(targets) != 1 and codec is None:
            raise UsageError(
                f"{len(targets)} stores or files match",
                path=source,
                advice="Pass the format of the result with codec",
            )
        self.origin = targets[0]
        known = registry.detect(os.path.basename(target), b"")
        ending = os.path.splitext(target)[1]
        # Not the last part of a topic, as in my.arrows-0.
        misspelt = difflib.get_close_matches(ending[1:].lower(), FORMATS, n=1, cutoff=0.85)
        if codec is None and known is None and (misspelt or ending.lower() in _OTHER_TABLES):
            raise UsageError(
                "unsupported table format",
                path=target,
                advice="Use a .parquet, .arrow or .jsonl file; `logwright dump --out` writes .csv; pass --codec to write native files under "
                "this name",
            )
        if ending and os.path.splitext(source)[1] == ending:
            known = None  # other systems use the same ending: 1f.log is an entry log of BookKeeper too
        self.codec = codec or (known.name if known is not None else kind(self.origin))
        target_format = registry.find_writer(self.codec)
        self.options = {
            name: value for name, value in options.items() if takes(target_format, name, Verb.WRITE)
        }
        # The rest are read options, or errors there. An option of both applies to both, except options that name directories.
        separate = {fold(option) for option in getattr(target_format, "root_options", ())}
        self.read_options = {
            name: value
            for name, value in options.items()
            if name not in self.options or (fold(name) not in separate and self._reads(name, reading["view"]))
        }
        edit = target_format.capabilities.edit if isinstance(target_format, Layout) else None
        moves = set() if edit is None else {fold(option.name) for option in edit.move_options}
        self.moving = {name: value for name, value in options.items() if fold(name) in moves}
        for name in self.moving:
            self.read_options.pop(name, None)
        self.target_format: Any = target_format
        self.whole = kind(self.origin) == self.codec and len(targets) == 1 and not rows_only
        self.whole = self.whole and all(value is None for name, value in reading.items() if name != "mode")
        self.whole = (
            self.whole and not narrows(target_format, options) and reading["mode"].upper() == "FAILFAST"
        )

    def _identity(self) -> dict[str, Any]:
        """Return the options that give a new directory of the same name the identity of its source, such as the id of a topic."""
        from logwright.readers.target import DirectoryTarget

        origin, options = self.origin, set(map(fold, self.options))
        if not isinstance(origin, DirectoryTarget) or self.if_exists == "append":
            return {}
        if origin.layout.name != self.codec or os.path.basename(self.target) != origin.directory.name:
            return {}
        stored = {name: origin.plan.facts.get(fact) for name, fact in origin.layout.identity_options.items()}
        return {
            name: value for name, value in stored.items() if value is not None and fold(name) not in options
        }

    def run(self) -> dict[str, Any]:
        if self.whole and not is_layout(self.codec):
            frames = self._frames()
            if frames is not None:
                return self._exact(frames)
        if self.whole and self._edits():
            return self._copy_frames()
        if alone := [name for name in self.moving if name not in self.options]:
            advice = (
                "Omit the options that select rows or divide them into other batches, and convert the result"
            )
            raise UsageError(f"{alone[0]} applies to a copy of all batches", path=self.source, advice=advice)
        return self._rows()

    def _reads(self, name: str, view: str | None) -> bool:
        """Return whether reading the source uses an option that writing uses too."""
        from logwright.readers.target import FileTarget

        if isinstance(self.origin, FileTarget):
            return takes(self.origin.codec, name, Verb.READ, view or "rows")
        layout = self.origin.layout
        view_spec = layout.views.get(view or layout.default_view)
        return takes(layout, name, Verb.READ, view or layout.default_view) or (
            view_spec is not None and takes(registry.get(view_spec.codec), name, Verb.READ, view_spec.table)
        )

    def _edits(self) -> bool:
        """Return whether a directory can keep all its frames, at most recompressed."""
        edit = self.target_format.capabilities.edit if isinstance(self.target_format, Layout) else None
        if edit is None or self.if_exists != "error":
            return False
        known = set(map(fold, (*edit.recompress_options, *self.moving)))
        if self.moving:
            known |= {fold(option.name) for option in edit.options}
        return all(fold(name) in known for name in self.options)

    def _copy_frames(self) -> dict[str, Any]:
        """Copy every frame, recompressed if the options say so."""
        from logwright.readers.report import Report
        from logwright.writers.edit import Rows, edit
        from logwright.writers.request import Request

        encoding = set(map(fold, self.target_format.capabilities.edit.recompress_options))
        every = any(fold(name) in encoding for name in self.options)
        report = edit(
            self.source, self.codec, lambda table: Rows(table, None, None, (), b"", every=every), Request(self.target),
            lambda targets: Report(self.source, self.codec), {**self.options, **self.read_options, **self.moving},
        )  # fmt: skip
        report.notes = [note for note in report.notes if not note.startswith(("nothing matches", "edited: "))]
        removed = tuple(note for note in report.notes if note.startswith("removed: "))
        report.notes = [note for note in report.notes if note not in removed]
        return done(self.target, report) | {"notes": removed}

    def _of(self, table: str) -> dict[str, Any]:
        """Return the read options that a table of the source accepts."""
        return of_table(codec_named(self.origin), table, self.read_options)

    def _frames(self) -> pa.Table | None:
        """Return the frames as the options require; None if they must be divided differently."""
        writer_options = Options(self.target_format.options, self.options)
        if not self.options:
            return read(self.source, view="frames", columns="*", **self._of("frames"))
        if not isinstance(self.target_format, Codec):
            return None
        return self.target_format.recompress(
            scan_of(self.source, view="frames", columns="*", **self._of("frames")).to_table(), writer_options
        )

    def _exact(self, frames: pa.Table) -> dict[str, Any]:
        from logwright.writers.write import write

        scan = scan_of(self.source, columns="*", **self.read_options)
        file = read(self.source, view="file", columns="*", **self._of("file"))
        written = write(
            scan, self.target, self.codec, frames=frames, file=file, mode=self.if_exists, **self.options
        )
        return result(written, scan.report)

    def _rows(self) -> dict[str, Any]:
        """Convert rows only, and report the data that they do not carry."""
        from logwright.readers.target import DirectoryTarget
        from logwright.writers.write import write

        reading = dict(self.reading)
        if reading["columns"] is None and self._alike(reading["view"]):
            reading["columns"] = "*"
        scan = scan_of(self.source, **reading, jobs=self.jobs, **self.read_options)
        row_codec = (
            registry.get(self.target_format.views[self.target_format.default_view].codec)
            if is_layout(self.codec)
            else self.target_format
        )
        row_options = {
            name: value for name, value in self.options.items() if takes(row_codec, name, Verb.WRITE)
        }
        lossy_columns = row_codec.lossy(Options(row_codec.options, row_options))
        explicit_view = {"view"} if reading["view"] is not None else set()
        lost_values: dict[str, int] = {}
        notes: list[str] = []

        def rows() -> Iterator[pa.RecordBatch]:
            for batch in scan:
                for lossy in lossy_columns:
                    loses = lossy.lost(batch)
                    count = 0 if loses is None else pc.sum(loses).as_py() or 0
                    if count and lossy.advice and not explicit_view:
                        raise UsageError(
                            f"{plural.count(count, 'row')} {lossy.meaning}",
                            path=self.source,
                            advice=lossy.advice,
                        )
                    if count:
                        lost_values[lossy.meaning] = lost_values.get(lossy.meaning, 0) + count
                    if count and lossy.drops:
                        batch = batch.filter(pc.invert(loses))
                yield batch

        data = pa.RecordBatchReader.from_batches(scan.schema, rows()) if lossy_columns else scan
        own = {fold(option.name) for option in self.target_format.options}
        passed = set(map(fold, self.options))
        kept = {
            name: value
            for name, value in self._options_of_source(row_codec).items()
            if fold(name) in own and fold(name) not in passed
        }
        notes += [f"using {name}={value}, as in {self.source}" for name, value in kept.items()]
        written = write(
            _Passed(scan.schema, data),
            self.target,
            self.codec,
            mode=self.if_exists,
            **kept,
            **self._identity(),
            **self.options,
        )
        notes += [
            f"{'left out' if lossy.drops else 'not kept'}: {plural.count(lost_values[lossy.meaning], 'row')} {lossy.meaning}"
            for lossy in lossy_columns
            if lossy.meaning in lost_values
        ]
        if isinstance(self.origin, DirectoryTarget) and reading["filter"] is None:
            layout = self.origin.layout
            view = layout.views.get(reading["view"] or layout.default_view)
            if view is not None and view.leaves:
                notes.append(f"these are the rows of view {view.name}, without {view.leaves}")
        return result(written, scan.report, notes)

    def _alike(self, view: str | None) -> bool:
        """Return whether all columns, including detail columns, have the same meaning in both."""
        from logwright.readers.plan import reading
        from logwright.writers.write import rows_table

        table = reading([self.origin], view).table
        target = self.target_format
        target_table = rows_table(target) if isinstance(target, Layout) else target.tables["rows"]
        return set(target_table.names(detail=False)) <= set(table.names(detail=True))

    def _options_of_source(self, codec: Codec) -> dict[str, Any]:
        """Return the options with which the files of a codec were written, from the first file that has them."""
        from logwright.readers.target import DirectoryTarget, kind

        name = codec.name
        paths = [self.source] if kind(self.origin) == name else []
        if isinstance(self.origin, DirectoryTarget):
            files = self.origin.plan.files
            paths = [self.origin.directory.shown(file.name) for file in files if file.codec == name]
        for path in paths:

            def read(columns: list[str], filter: Any, limit: int, path: str = path) -> pa.Table:
                scan = scan_of(
                    path, name, view="frames", columns=columns, filter=filter, limit=limit, mode="DROPMALFORMED",
                    **of_table(codec, "frames", self.read_options),
                )  # fmt: skip
                return scan.to_table()

            writer_options = codec.writer_options(read)
            if writer_options:
                return dict(writer_options)
        return {}


class _Passed:
    """A stream that raises errors with their original types."""

    def __init__(self, schema: pa.Schema, data: Any) -> None:
        self._schema, self._data = schema, data

    def to_reader(self) -> pa.RecordBatchReader:
        return self._data if isinstance(self._data, pa.RecordBatchReader) else self._data.to_reader()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_reader().__arrow_c_stream__(requested_schema)
