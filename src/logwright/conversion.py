"""Between native files and table files (Parquet, Arrow, JSON lines), and from native files to native ones.

A native file becomes three table files, `x.parquet` (rows), `x.frames.parquet` and `x.file.parquet`, since the rows alone
don't say everything that is needed to write the same bytes again; a directory becomes one, the rows of a view. The way back
takes the three where they are there.

Native files made of native ones keep all that there is: where frames need not be cut anew they stay as they are, compressed in another
way at most; else rows are written anew, and what rows don't carry is said, or refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from logwright.codec import registry
from logwright.codec.base import Codec, LossyColumn
from logwright.codec.fault import NotFoundError, UsageError
from logwright.codec.layout import Layout
from logwright.codec.option import Options, Verb, fold, number
from logwright.codec.table import Table
from logwright.formats.sink import Sink, format_of
from logwright.readers.filter import Filter, Given, understand
from logwright.readers.stream import CORRUPT
from logwright.readers.usage import declarations, takes
from logwright.scanning import read
from logwright.scanning import scan as scan_of

TABLES = ("frames", "file")
_TABLE_FORMATS = ("parquet", "arrow", "jsonl")
_OTHER_TABLES = (".csv", ".tsv", ".txt", ".json", ".xlsx", ".xls", ".orc", ".avro", ".sqlite", ".gz", ".zip")
"""Endings of names that nobody gives to a directory of native files."""
_CORRUPT = {field.name for field in CORRUPT}


def convert(
    source: str, target: str, codec: str | None = None, *, view: str | None = None, columns: Any = None,
    filter: Any = None, limit: int | None = None, mode: str = "FAILFAST", if_exists: str = "error",
    rows_only: bool = False, as_system: str | None = None, clean: bool | None = None, jobs: int = 1, **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """Convert `source` to `target`; what each is, its name tells, or `codec` (of the native side).

    Returns what was written: `{"files": [...], "rows": n, "report": the report of the reading or None, "written": Written, "notes":
    sentences on what is not in the result}`.
    Raises `UsageError` when a table file would be made from a table file, `ExistsError` when the target is there.
    """
    from_table, to_table = is_table(source), is_table(target)
    if from_table and to_table:
        raise UsageError("both are table files", advice="One side must be a native file or directory")
    if to_table:
        return _to_tables(source, target, codec, if_exists, rows_only, options,
                          view=view, columns=columns, filter=filter, limit=limit, mode=mode,
                          as_system=as_system, clean=clean, jobs=jobs)  # fmt: skip
    if from_table:
        if view is not None or mode.upper() != "FAILFAST" or as_system is not None or clean is not None:
            raise UsageError(
                "a table file holds rows as they are",
                path=source,
                advice="view, mode, as_system and clean go with native files",
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


def _codec_of(target: str) -> str:
    found = registry.detect(os.path.basename(target), b"")
    if found is None:
        raise UsageError(
            f"what {target!r} is to be is not clear from its name", advice="Say it with codec (--codec)"
        )
    return found.name


def _from_tables(
    source: str, target: str, codec: str, if_exists: str, rows_only: bool, options: dict[str, Any],
    columns: Any, filter: Any, limit: int | None,
) -> dict[str, Any]:  # fmt: skip
    from logwright.writers.write import write

    table = _rows_table(codec)
    data: Any = open_table(source, _known(codec, table))
    frames = file = None
    if columns is not None or filter is not None or limit is not None:
        data = _some(data, table, columns, filter, limit)
    elif not rows_only and not _is_layout(codec):
        tables = registry.get(codec).tables
        frames, file = (_optional(beside(source, name), tables[name]) for name in TABLES)
    written = write(data, target, codec, frames=frames, file=file, mode=if_exists, **options)
    return {"files": written.files, "rows": written.rows, "report": None, "written": written, "notes": ()}


def _to_tables(
    source: str, target: str, codec: str | None, if_exists: str, rows_only: bool, options: dict[str, Any],
    *, view: str | None, columns: Any, **reading: Any,
) -> dict[str, Any]:  # fmt: skip
    from logwright.readers.resolve import configuration, resolve
    from logwright.writers.file import whole_file

    exact = not rows_only and view is None and os.path.isfile(source) and configuration(source) is None
    if exact:
        # Frames hold all rows: beside chosen rows they would bring the others back.
        chosen = reading["filter"] is not None or reading["limit"] is not None
        (origin,) = resolve(source, codec, options)
        exact = not chosen and not _narrows(_codec_named(origin), options)
    kind = format_of(target)
    assert kind is not None
    mode = reading.pop("mode")
    # Of three tables the frames hold damaged stretches, as they are; rows for them have no place in the rows.
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
    for path, one in parts:
        schema = one.schema
        if exact:
            schema = pa.schema([field for field in schema if field.name not in _CORRUPT])
        with whole_file(path, if_exists=if_exists) as stream, Sink(stream, kind, schema) as sink:
            for batch in one:
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


def _narrows(what: Any, options: Mapping[str, Any]) -> bool:
    """Whether one of the options chooses rows."""
    names = {fold(one.name) for one, _ in declarations(what) if one.narrows}
    return any(fold(name) in names for name, value in options.items() if value is not None)


def _codec_named(target: Any) -> Any:
    """The codec of a single file (`readers.resolve.FileTarget`)."""
    return target.codec


def _of_table(codec: Any, table: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the options for reading the rows of a file that another table of it takes too."""
    return {
        name: value
        for name, value in options.items()
        if takes(codec, name, Verb.READ, table) or not takes(codec, name, Verb.READ, "rows")
    }


def _some(
    reader: pa.RecordBatchReader, table: Table, columns: Any, filter: Given, limit: int | None
) -> Iterator[pa.RecordBatch]:
    """Of the rows of a table file those that are wanted, by the columns of what they become."""
    chosen = understand(filter, table)
    names = reader.schema.names
    wanted = names if columns in (None, "*") else list(table.select(columns))
    for name in (*wanted, *(chosen.columns if chosen is not None else ())):
        if name not in names:
            raise UsageError(f"no column {name!r} in the table file", advice=f"There are: {', '.join(names)}")
    left = None if limit is None else number("limit", limit)

    def rows() -> Iterator[pa.RecordBatch]:
        done = 0
        for batch in reader:
            if chosen is not None:
                batch = batch.take(_matching(batch, chosen, table))
            batch = batch.select(wanted).slice(0, None if left is None else left - done)
            done += batch.num_rows
            yield batch
            if done == left:
                return

    return rows()


def _matching(batch: pa.RecordBatch, chosen: Filter, table: Table) -> pa.Array[Any]:
    """Numbers of the rows that match; they are compared in the types that they get."""
    try:
        columns = {name: batch.column(name).cast(table[name].type) for name in chosen.columns}
    except pa.ArrowException as error:
        raise UsageError(f"the rows can't be filtered: {error}") from None
    numbered = pa.RecordBatch.from_pydict({**columns, "": pa.array(range(batch.num_rows), pa.int64())})
    return chosen.apply(numbered).column("")


def _rows_table(codec: str) -> Table:
    from logwright.writers.write import taken_table

    return (
        taken_table(registry.get_layout(codec)) if _is_layout(codec) else registry.get(codec).tables["rows"]
    )


def _known(codec: str, table: Table) -> Table:
    """With the columns of all views of a layout: their rows, as lines, can be written again."""
    if not _is_layout(codec):
        return table
    views = [view.rows for view in registry.get_layout(codec).views.values() if view.rows is not None]
    names = set(table.names(detail=True))
    more = {column.name: column for rows in views for column in rows.columns if column.name not in names}
    return replace(table, columns=(*table.columns, *more.values()))


def beside(path: str, name: str) -> str:
    """`x.parquet` and `frames` give `x.frames.parquet`."""
    stem, dot = os.path.splitext(path)
    return f"{stem}.{name}{dot}"


def open_table(path: str, table: Table) -> pa.RecordBatchReader:
    """The rows of a Parquet or Arrow file (or stream), or of JSON lines, without loading the whole. `table` says the types of JSON."""
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
        raise UsageError(f"not a readable {format_of(path)} file ({error})", path=path) from None


def _batches(reader: Any) -> Iterator[pa.RecordBatch]:
    for i in range(reader.num_record_batches):
        yield reader.get_batch(i)


def _optional(path: str, table: Table) -> pa.Table | None:
    return open_table(path, table).read_all() if os.path.exists(path) else None


def is_table(path: str) -> bool:
    return format_of(path) in _TABLE_FORMATS and not os.path.isdir(path)


class Native:
    """Native files made of native ones."""

    def __init__(
        self, source: str, target: str, codec: str | None, if_exists: str, rows_only: bool, options: dict[str, Any],
        reading: dict[str, Any], jobs: int,
    ) -> None:  # fmt: skip
        from logwright.readers.resolve import kind, resolve

        self.source, self.target, self.if_exists, self.jobs = source, target, if_exists, jobs
        self.reading, self.rows_only = reading, rows_only
        found = resolve(source, passed=[], gathered=True)
        if len(found) != 1 and codec is None:
            raise UsageError(
                f"{len(found)} things lie there", path=source, advice="Say what they are to be, with codec"
            )
        self.origin = found[0]
        known = registry.detect(os.path.basename(target), b"")
        if codec is None and known is None and os.path.splitext(target)[1].lower() in _OTHER_TABLES:
            raise UsageError(
                "the name is that of a table file of a kind that is not written here",
                path=target,
                advice=f"Name a {', '.join(f'.{one}' for one in _TABLE_FORMATS)} file; `logwright dump --out` writes .csv;"
                " --codec says that it is to be native files under that name",
            )
        self.codec = codec or (known.name if known is not None else kind(self.origin))
        made = registry.find(self.codec)
        self.options = {name: value for name, value in options.items() if takes(made, name, Verb.WRITE)}
        # The rest is for reading, or an error there. An option of both, but for the directories that they name, is for both.
        apart = {fold(one) for one in getattr(made, "apart", ())}
        self.read_options = {
            name: value
            for name, value in options.items()
            if name not in self.options or (fold(name) not in apart and self._reads(name, reading["view"]))
        }
        self.made: Any = made
        self.whole = kind(self.origin) == self.codec and len(found) == 1 and not rows_only
        self.whole = self.whole and all(value is None for name, value in reading.items() if name != "mode")
        self.whole = self.whole and not _narrows(made, options) and reading["mode"].upper() == "FAILFAST"

    def run(self) -> dict[str, Any]:
        if self.whole and not _is_layout(self.codec):
            frames = self._frames()
            if frames is not None:
                return self._exact(frames)
        if self.whole and self._edits():
            return self._again()
        return self._rows()

    def _reads(self, name: str, view: str | None) -> bool:
        """Whether reading the source uses an option of writing too."""
        from logwright.readers.resolve import FileTarget

        if isinstance(self.origin, FileTarget):
            return takes(self.origin.codec, name, Verb.READ, view or "rows")
        layout = self.origin.layout
        found = layout.views.get(view or layout.default_view)
        return takes(layout, name, Verb.READ, view or layout.default_view) or (
            found is not None and takes(registry.get(found.codec), name, Verb.READ, found.table)
        )

    def _edits(self) -> bool:
        """Whether a directory can keep all its frames, written anew at most."""
        edit = self.made.capabilities.edit if isinstance(self.made, Layout) else None
        if edit is None or self.if_exists != "error":
            return False
        known = set(map(fold, edit.recompress_options))
        return all(fold(name) in known for name in self.options)

    def _again(self) -> dict[str, Any]:
        """Every frame as it was, in another form where the options say so."""
        from logwright.readers.report import Report
        from logwright.writers.edit import Rows, edit
        from logwright.writers.request import Request
        from logwright.writers.write import Written

        every = bool(self.options)
        report = edit(
            self.source, self.codec, lambda table: Rows(table, None, None, (), b"", every=every), Request(self.target),
            lambda targets: Report(self.source, self.codec), {**self.options, **self.read_options},
        )  # fmt: skip
        report.notes = [note for note in report.notes if not note.startswith(("nothing matches", "edited: "))]
        found = read(self.target, self.codec, view="files")
        written = Written(
            self.target,
            tuple(found.column("name").to_pylist()),
            report.rows_kept or 0,
            sum(found.column("size").to_pylist()),
            before_you_start=tuple(
                note.partition(": ")[2] for note in report.notes if note.startswith("before you start")
            ),
        )
        return {
            "files": written.files,
            "rows": written.rows,
            "report": report,
            "written": written,
            "notes": (),
        }

    def _of(self, table: str) -> dict[str, Any]:
        """The options of reading that a table of the source takes."""
        return _of_table(_codec_named(self.origin), table, self.read_options)

    def _frames(self) -> pa.Table | None:
        """The frames as the options would have them; None where they have to be cut anew."""

        given = Options(self.made.options, self.options)
        if not self.options:
            return read(self.source, view="frames", columns="*", **self._of("frames"))
        if not isinstance(self.made, Codec):
            return None
        return self.made.recompress(
            scan_of(self.source, view="frames", columns="*", **self._of("frames")).to_table(), given
        )

    def _exact(self, frames: pa.Table) -> dict[str, Any]:
        from logwright.writers.write import write

        scan = scan_of(self.source, columns="*", **self.read_options)
        file = read(self.source, view="file", columns="*", **self._of("file"))
        written = write(
            scan, self.target, self.codec, frames=frames, file=file, mode=self.if_exists, **self.options
        )
        return {
            "files": written.files,
            "rows": written.rows,
            "report": scan.report,
            "written": written,
            "notes": (),
        }

    def _rows(self) -> dict[str, Any]:
        """Rows alone: what they don't carry is told."""
        from logwright.readers.resolve import DirectoryTarget
        from logwright.writers.write import write

        reading = dict(self.reading)
        if reading["columns"] is None and self._alike(reading["view"]):
            reading["columns"] = "*"
        scan = scan_of(self.source, **reading, jobs=self.jobs, **self.read_options)
        one = (
            registry.get(self.made.views[self.made.default_view].codec)
            if _is_layout(self.codec)
            else self.made
        )
        lossy_columns = one.lossy_columns
        told = {"view"} if reading["view"] is not None else set()
        gone: dict[str, int] = {}
        notes: list[str] = []

        def rows() -> Iterator[pa.RecordBatch]:
            for batch in scan:
                for each in lossy_columns:
                    count = _says(batch, each)
                    if count and each.advice and not told:
                        raise UsageError(f"{count} rows {each.meaning}", path=self.source, advice=each.advice)
                    if count:
                        gone[each.meaning] = gone.get(each.meaning, 0) + count
                yield batch

        data = pa.RecordBatchReader.from_batches(scan.schema, rows()) if lossy_columns else scan
        own = {fold(option.name) for option in self.made.options}
        given = set(map(fold, self.options))
        kept = {
            name: value
            for name, value in self._made_with(one).items()
            if fold(name) in own and fold(name) not in given
        }
        notes += [f"{name} is {value}, as in {self.source}" for name, value in kept.items()]
        written = write(
            _Passed(scan.schema, data), self.target, self.codec, mode=self.if_exists, **kept, **self.options
        )
        notes += [f"{count} rows {what}: that is not in the result" for what, count in gone.items()]
        if isinstance(self.origin, DirectoryTarget) and reading["filter"] is None:
            layout = self.origin.layout
            view = layout.views.get(reading["view"] or layout.default_view)
            if view is not None and view.leaves:
                notes.append(f"these are the rows of view {view.name}, without {view.leaves}")
        return {
            "files": written.files,
            "rows": written.rows,
            "report": scan.report,
            "written": written,
            "notes": tuple(notes),
        }

    def _alike(self, view: str | None) -> bool:
        """Whether all columns mean the same in both, those of detail too."""
        from logwright.readers.plan import reading

        table = reading([self.origin], view).table
        made = _rows_table(self.codec)
        return set(made.names(detail=False)) <= set(table.names(detail=True))

    def _made_with(self, codec: Codec) -> dict[str, Any]:
        """With which options the files of that codec were made: the first that says so."""
        from logwright.readers.resolve import DirectoryTarget, kind

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

            found = codec.writer_options(read)
            if found:
                return dict(found)
        return {}


class _Passed:
    """A stream whose errors arrive as they were raised."""

    def __init__(self, schema: pa.Schema, data: Any) -> None:
        self._schema, self._data = schema, data

    def to_reader(self) -> pa.RecordBatchReader:
        return self._data if isinstance(self._data, pa.RecordBatchReader) else self._data.to_reader()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_reader().__arrow_c_stream__(requested_schema)


def _says(batch: pa.RecordBatch, each: LossyColumn) -> int:
    """So many rows say something that is forgotten."""
    if each.column not in batch.schema.names:
        return 0
    import pyarrow.compute as pc

    column = batch.column(each.column)
    nothing = pc.is_in(column, pa.array(each.defaults, column.type))
    return len(column) - int(pc.sum(pc.or_kleene(nothing, pc.is_null(column))).as_py() or 0)


def _is_layout(codec: str | None) -> bool:
    return codec is not None and any(layout.name == codec for layout in registry.layouts())
