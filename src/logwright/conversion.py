"""Convert between native files and table files (Parquet, Arrow, JSON lines), and between native files.

A native file becomes three table files, `x.parquet` (rows), `x.frames.parquet` and `x.file.parquet`, since the rows alone are not enough to
restore the same bytes. A directory becomes one table, the rows of a view. The way back uses all three tables if they exist.

Conversion between native files keeps everything possible: frames that need not be divided differently are copied, at most recompressed.
Otherwise rows are encoded again, and data that rows do not carry is reported, or refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from logwright.codec import plural, registry
from logwright.codec.base import Codec
from logwright.codec.deferred import compute as pc
from logwright.codec.fault import NotFoundError, UsageError
from logwright.codec.layout import Layout
from logwright.codec.option import Options, Verb, flag, fold, number
from logwright.codec.table import Table
from logwright.formats.sink import Sink, format_of
from logwright.readers.filter import Conditions, Filter, understand
from logwright.readers.paths import Path
from logwright.readers.stream import CORRUPT
from logwright.readers.usage import declarations, takes
from logwright.scanning import read
from logwright.scanning import scan as scan_of

if TYPE_CHECKING:
    from logwright.writers.write import Written

TABLES = ("frames", "file")
_TABLE_FORMATS = ("parquet", "arrow", "jsonl")
_OTHER_TABLES = (".csv", ".tsv", ".txt", ".json", ".xlsx", ".xls", ".orc", ".avro", ".sqlite", ".gz", ".zip")
"""Endings that a directory of native files never has."""
_CORRUPT = {field.name for field in CORRUPT}


def convert(
    source: Path, target: Path, codec: str | None = None, *, view: str | None = None, columns: Sequence[str] | str | None = None,
    filter: Conditions = None, limit: int | None = None, mode: str = "FAILFAST", as_system: str | None = None,
    clean: bool | None = None, if_exists: str = "error", rows_only: bool = False, jobs: int | str = 1, compact: bool = False,
    **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """Convert native files to a table file (.parquet, .arrow, .jsonl), back, or to native files with another format, compression or segment
    size.

    `codec`: format of the native side; None detects it. `if_exists`: "error", "append" or "overwrite", as `mode` of `write`. `rows_only`:
    write only the table of rows; the original bytes cannot be restored from the result. `compact`: keep only the newest record of each key,
    exactly as the system's own compaction does. The other arguments are those of `scan`; further
    options are those of the native side.

    Returns `{"files": [...], "rows": n, "report": Report of the input or None, "written": Written or None, "notes": sentences on data missing
    in the result}`. Raises `LogwrightError` as `scan` and `write` do; `UsageError` if both are table files, `ExistsError` if the target exists.
    """
    source, target, jobs = os.fspath(source), os.fspath(target), number("jobs", jobs, 1)
    if flag("compact", compact):
        reading = {"view": view, "columns": columns, "filter": filter, "limit": limit, "as_system": as_system}
        _refuse_with_compact({**reading, "rows_only": rows_only or None}, mode, if_exists, jobs)
        return _compacted(source, target, codec, options, clean)
    from_table, to_table = is_table(source), is_table(target)
    if from_table and to_table:
        raise UsageError("both are table files", advice="One of them must be a native file or directory")
    if to_table:
        return _to_tables(source, target, codec, if_exists, rows_only, options,
                          view=view, columns=columns, filter=filter, limit=limit, mode=mode,
                          as_system=as_system, clean=clean, jobs=jobs)  # fmt: skip
    if from_table:
        if view is not None or mode.upper() != "FAILFAST" or as_system is not None or clean is not None:
            raise UsageError(
                "a table file is read as it is",
                path=source,
                advice="The options view, mode, as_system and clean are for native files",
            )
        return _from_tables(
            source, target, codec or _codec_of(target), if_exists, rows_only, options, columns, filter, limit
        )
    reading = {
        "view": view,
        "columns": columns,
        "filter": filter,
        "limit": limit,
        "mode": mode,
        "as_system": as_system,
        "clean": clean,
    }
    return Native(source, target, codec, if_exists, rows_only, options, reading, jobs).run()


def _refuse_with_compact(arguments: Mapping[str, Any], mode: str, if_exists: str, jobs: int) -> None:
    """Raise `UsageError` for an argument that a compaction would ignore."""
    passed = [name for name, value in arguments.items() if value is not None]
    passed += (
        ["mode"] * (mode.upper() != "FAILFAST")
        + ["if_exists"] * (if_exists != "error")
        + ["jobs"] * (jobs != 1)
    )
    if passed:
        raise UsageError(
            f"{passed[0]} cannot be combined with compact",
            advice="A compaction takes a complete directory to a new one. Omit it, and convert the result if needed",
        )


def _compacted(
    source: str, target: str, codec: str | None, options: Mapping[str, Any], clean: bool | None
) -> dict[str, Any]:
    """Write the compacted directory."""
    from logwright.readers.report import Report
    from logwright.readers.target import kind
    from logwright.writers.compact import compact
    from logwright.writers.request import Request

    if is_table(target):
        raise UsageError("the result of a compaction is a directory", path=target, advice="Name a directory")
    report = compact(
        source,
        codec,
        Request(target),
        lambda targets: Report(targets[0].path, kind(targets[0])),
        options,
        clean,
    )
    files = ("before starting", "kept: ", "new files: ", "changed files: ", "removed files: ")
    return _done(target, report) | {
        "notes": tuple(note for note in report.notes if not note.startswith(files))
    }


def _codec_of(target: str) -> str:
    detected = registry.detect(os.path.basename(target), b"")
    if detected is None:
        raise UsageError(
            f"the format of {target!r} is unknown from its name", advice="Pass it with codec (--codec)"
        )
    return detected.name


def _from_tables(
    source: str, target: str, codec: str, if_exists: str, rows_only: bool, options: dict[str, Any],
    columns: Any, filter: Any, limit: int | None,
) -> dict[str, Any]:  # fmt: skip
    from logwright.writers.write import write

    table = _rows_table(codec, options)
    data: Any = open_table(source, _known(codec, table))
    frames = file = None
    if columns is not None or filter is not None or limit is not None:
        data = _some(data, table, columns, filter, limit)
    elif not rows_only and not _is_layout(codec):
        tables = registry.get(codec).tables
        frames, file = (_optional(beside(source, name), tables[name]) for name in TABLES)
    written = write(data, target, codec, frames=frames, file=file, mode=if_exists, **options)
    return _result(written, None)


def _to_tables(
    source: str, target: str, codec: str | None, if_exists: str, rows_only: bool, options: dict[str, Any],
    *, view: str | None, columns: Any, **reading: Any,
) -> dict[str, Any]:  # fmt: skip
    from logwright.readers.resolve import configuration, resolve
    from logwright.writers.file import refuse_inside, whole_file

    refuse_inside(target, source)
    exact = not rows_only and view is None and os.path.isfile(source) and configuration(source) is None
    if exact:
        # The frames table holds all rows, so it must not accompany a selection.
        chosen = reading["filter"] is not None or reading["limit"] is not None
        (origin,) = resolve(source, codec, options)
        exact = not chosen and not _narrows(_codec_named(origin), options)
    kind = format_of(target)
    assert kind is not None
    mode = reading.pop("mode")
    # Of the three tables the frames table has the damaged regions; the rows table has no place for them.
    permissive = mode.upper() == "PERMISSIVE"
    scan = scan_of(
        source, codec, view=view, columns="*" if exact and columns is None else columns,
        mode="DROPMALFORMED" if exact and permissive else mode, **reading, **options,
    )  # fmt: skip
    parts: list[tuple[str, Any]] = [(target, scan)]
    if exact:
        modes = {"frames": mode, "file": "DROPMALFORMED" if permissive else mode}
        parts += [
            (
                beside(target, name),
                scan_of(
                    source,
                    codec,
                    view=name,
                    columns="*",
                    mode=modes[name],
                    **_of_table(_codec_named(origin), name, options),
                ),
            )
            for name in TABLES
        ]
    rows = 0
    for path, part_scan in parts:
        schema = part_scan.schema
        if exact:
            schema = pa.schema([field for field in schema if field.name not in _CORRUPT])
        with whole_file(path, if_exists=if_exists) as stream, Sink(stream, kind, schema) as sink:
            for batch in part_scan:
                if exact and permissive and "position" in schema.names:
                    # A damaged end is in the file table.
                    batch = batch.filter(batch.column("position").is_valid())
                sink.write(batch.select(schema.names))
                rows += batch.num_rows if path == target else 0
    return {
        "files": [path for path, _ in parts],
        "rows": rows,
        "report": scan.report,
        "written": None,
        "notes": (),
    }


def _narrows(owner: Any, options: Mapping[str, Any]) -> bool:
    """Return whether one of the options selects rows."""
    names = {fold(option.name) for option, _ in declarations(owner) if option.narrows}
    return any(fold(name) in names for name, value in options.items() if value is not None)


def _codec_named(target: Any) -> Any:
    """Return the codec of a single file (`readers.target.FileTarget`)."""
    return target.codec


def _of_table(codec: Any, table: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the read options of a file's rows that another table of the file accepts too."""
    return {
        name: value
        for name, value in options.items()
        if takes(codec, name, Verb.READ, table) or not takes(codec, name, Verb.READ, "rows")
    }


def _some(
    reader: pa.RecordBatchReader, table: Table, columns: Any, filter: Conditions, limit: int | None
) -> Iterator[pa.RecordBatch]:
    """Select rows of a table file, by the columns of the target."""
    chosen = understand(filter, table)
    names = reader.schema.names
    selected = names if columns in (None, "*") else list(table.select(columns))
    for name in (*selected, *(chosen.columns if chosen is not None else ())):
        if name not in names:
            raise UsageError(
                f"the table file has no column {name!r}", advice=f"Valid values: {', '.join(names)}"
            )
    left = None if limit is None else number("limit", limit)

    def rows() -> Iterator[pa.RecordBatch]:
        done = 0
        for batch in reader:
            if chosen is not None:
                batch = batch.take(_matching(batch, chosen, table))
            batch = batch.select(selected).slice(0, None if left is None else left - done)
            done += batch.num_rows
            yield batch
            if done == left:
                return

    return rows()


def _matching(batch: pa.RecordBatch, chosen: Filter, table: Table) -> pa.Array[Any]:
    """Return the indexes of the matching rows, compared in the types of the target."""
    try:
        columns = {name: batch.column(name).cast(table[name].type) for name in chosen.columns}
    except pa.ArrowException as error:
        raise UsageError(f"cannot filter the rows: {error}") from None
    numbered = pa.RecordBatch.from_pydict({**columns, "": pa.array(range(batch.num_rows), pa.int64())})
    return chosen.apply(numbered).column("")


def _rows_table(codec: str, options: Mapping[str, Any]) -> Table:
    from logwright.readers.task import typed_table
    from logwright.writers.write import taken_table

    if _is_layout(codec):
        return taken_table(registry.get_writer(codec), options)
    return typed_table(codec, "rows", options)


def _known(codec: str, table: Table) -> Table:
    """Add the columns of all views of a layout, whose rows can be written again as JSON lines."""
    if not _is_layout(codec):
        return table
    views = [view.rows for view in registry.get_writer(codec).views.values() if view.rows is not None]
    names = set(table.names(detail=True))
    more = {column.name: column for rows in views for column in rows.columns if column.name not in names}
    return replace(table, columns=(*table.columns, *more.values()))


def beside(path: str, name: str) -> str:
    """Insert a name into a path: `x.parquet` and `frames` give `x.frames.parquet`."""
    stem, dot = os.path.splitext(path)
    return f"{stem}.{name}{dot}"


def open_table(path: str, table: Table) -> pa.RecordBatchReader:
    """Open a Parquet or Arrow file (or stream), or JSON lines, as a stream of rows. `table` has the types for JSON."""
    if not os.path.exists(path):
        raise NotFoundError("no such file", path=path)
    try:
        if format_of(path) == "jsonl":
            from logwright.formats.jsonl import from_lines

            return from_lines(path, table)
        if format_of(path) == "parquet":
            from pyarrow import parquet

            file = parquet.ParquetFile(path)
            return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches(64 * 1024))
        try:
            reader = pa.ipc.open_file(path)
        except pa.ArrowInvalid:
            return pa.ipc.open_stream(path)
        return pa.RecordBatchReader.from_batches(reader.schema, _batches(reader))
    except pa.ArrowInvalid as error:
        raise UsageError(f"not a valid {format_of(path)} file ({error})", path=path) from None


def _batches(reader: Any) -> Iterator[pa.RecordBatch]:
    for i in range(reader.num_record_batches):
        yield reader.get_batch(i)


def _optional(path: str, table: Table) -> pa.Table | None:
    return open_table(path, table).read_all() if os.path.exists(path) else None


def is_table(path: str) -> bool:
    return format_of(path) in _TABLE_FORMATS and not os.path.isdir(path)


def _done(target: str, report: Any) -> dict[str, Any]:
    """Return the result of a conversion whose report describes the written directory."""
    from logwright.writers.write import Written

    files = read(target, report.codec, view="files")
    written = Written(
        target,
        tuple(files.column("name").to_pylist()),
        report.rows_kept or 0,
        sum(files.column("size").to_pylist()),
        before_you_start=tuple(
            note.partition(": ")[2] for note in report.notes if note.startswith("before starting")
        ),
    )
    return _result(written, report)


def _result(written: Written, report: Any, notes: Iterable[str] = ()) -> dict[str, Any]:
    return {
        "files": written.files, "rows": written.rows, "report": report, "written": written, "notes": tuple(notes),
    }  # fmt: skip


class Native:
    """A conversion between native files."""

    def __init__(
        self, source: str, target: str, codec: str | None, if_exists: str, rows_only: bool, options: dict[str, Any],
        reading: dict[str, Any], jobs: int,
    ) -> None:  # fmt: skip
        from logwright.readers.resolve import resolve
        from logwright.readers.target import kind

        self.source, self.target, self.if_exists, self.jobs = source, target, if_exists, jobs
        self.reading, self.rows_only = reading, rows_only
        targets = resolve(source, skipped=[], containers_only=True, served=True)
        if len(targets) != 1 and codec is None:
            raise UsageError(
                f"{len(targets)} stores or files match",
                path=source,
                advice="Pass the format of the result with codec",
            )
        self.origin = targets[0]
        known = registry.detect(os.path.basename(target), b"")
        if codec is None and known is None and os.path.splitext(target)[1].lower() in _OTHER_TABLES:
            raise UsageError(
                "unsupported table format",
                path=target,
                advice=f"Use a {', '.join(f'.{ending}' for ending in _TABLE_FORMATS)} file; `logwright dump --out` writes .csv;"
                " pass --codec to write native files under this name",
            )
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
            self.whole and not _narrows(target_format, options) and reading["mode"].upper() == "FAILFAST"
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
        if self.whole and not _is_layout(self.codec):
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
        return _done(self.target, report) | {"notes": removed}

    def _of(self, table: str) -> dict[str, Any]:
        """Return the read options that a table of the source accepts."""
        return _of_table(_codec_named(self.origin), table, self.read_options)

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
        return _result(written, scan.report)

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
            if _is_layout(self.codec)
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
        return _result(written, scan.report, notes)

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
                    **_of_table(codec, "frames", self.read_options),
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


def _is_layout(codec: str | None) -> bool:
    return codec is not None and any(layout.name == codec for layout in registry.writers())
