"""The verbs in Python. The command line and Spark call these; an option exists once."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from logwright.codec import registry
from logwright.codec.base import Codec, Layout
from logwright.codec.fault import DamageWarning, Severity, UsageError
from logwright.codec.option import Option, parse_int
from logwright.codec.table import Table
from logwright.readers import inspect as _inspect
from logwright.readers import plan, resolve, task
from logwright.readers import verify as _verify
from logwright.readers.filter import Given, understand
from logwright.readers.report import MAX_FAULTS, Report
from logwright.readers.resolve import Path
from logwright.readers.stream import Mode, output_schema

if TYPE_CHECKING:
    from logwright.corpora.generate import Generated
    from logwright.writers.write import Written

Paths = Path | Sequence[Path]


def read(
    path: Paths,
    codec: str | None = None,
    *,
    view: str | None = None,
    columns: Sequence[str] | str | None = None,
    filter: Given = None,
    limit: int | None = None,
    mode: str = "FAILFAST",
    **options: Any,
) -> pa.Table:
    """A file, a directory, or several, as a table. Arguments as for `scan`.

    Warns (`DamageWarning`) when something was met that is worth knowing and did not raise.
    """
    found = scan(path, codec, view=view, columns=columns, filter=filter, limit=limit, mode=mode, **options)
    table = found.to_table()
    if found.report.worst in (Severity.ERROR, Severity.WARNING):
        warnings.warn(found.report.text(), DamageWarning, stacklevel=2)
    return table


def scan(
    path: Paths,
    codec: str | None = None,
    *,
    view: str | None = None,
    columns: Sequence[str] | str | None = None,
    filter: Given = None,
    limit: int | None = None,
    mode: str = "FAILFAST",
    max_faults: int = MAX_FAULTS,
    **options: Any,
) -> Scan:
    """A file, a directory, or several, as a stream of record batches that pandas, Polars and DuckDB take as it is.

    `path`: a file, a directory, a list, a glob, a URI of a file system that `pyarrow.fs` knows, "-" for standard input.
    `codec`: the format's name, found out when None. `view`: what of it; `codecs(name)` lists them. `columns`: None for the
    core ones, "*" for all, names, or text with commas. `filter`: `[("offset", ">=", 5), ("key", "==", b"x")]`, a list of such
    lists of which one must hold, text ("offset >= 5 and key == x"), or a pyarrow expression. `limit`: so many rows at most.
    `mode`: FAILFAST, PERMISSIVE or DROPMALFORMED. Further options are the codec's and the layout's own.

    Raises `LogwrightError`: `NotFoundError`, `AccessError`, `UsageError` at once, `DamageError` on the way.
    """
    return Scan(path, codec, view, columns, filter, limit, mode, max_faults, options)


class Scan:
    """A stream of record batches, and the report of what was met. Each iteration reads anew; `.report` is of the last one."""

    def __init__(
        self,
        path: Paths,
        codec: str | None,
        view: str | None,
        columns: Sequence[str] | str | None,
        filter: Given,
        limit: int | None,
        mode: str,
        max_faults: int,
        options: dict[str, Any],
    ) -> None:
        self._mode = Mode.of(mode)
        self._limit = None if limit is None else parse_int(limit)
        if self._limit is not None and self._limit < 0:
            raise UsageError(f"limit {limit} is negative")
        targets = resolve.resolve(path, codec, options)
        self._reading = plan.reading(targets, view)
        table = self._reading.table
        self._columns = table.select(columns)
        self._filter = understand(filter, table)
        self._path, self._max_faults = _shown(path), max_faults
        self._codec = _codec_of(targets)
        # What is known without reading a file holds no damaged rows.
        mode_of_rows = Mode.FAILFAST if self._reading.ready else self._mode
        self.schema: pa.Schema = output_schema(table, self._columns, mode_of_rows)
        self.report: Report = self._new_report()

    def _new_report(self) -> Report:
        report = Report(self._path, self._codec, live=self._reading.live, max_faults=self._max_faults)
        report.notes += self._reading.notes
        return report

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        report = self.report = self._new_report()
        task.note(self._reading.faults, report, self._mode)
        yield from plan.ready(self._reading, self._columns, self._filter, self._limit)
        yield from task.run(
            self._reading.tasks,
            self._columns,
            report,
            mode=self._mode,
            filter=self._filter,
            limit=self._limit,
        )

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_table(self) -> pa.Table:
        return pa.Table.from_batches(list(self), self.schema)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader: Any = self.to_reader()
        return reader.__arrow_c_stream__(requested_schema)

    @property
    def size(self) -> int | None:
        """Bytes that are to be read, which `report.bytes` counts up to; None where that is not known."""
        sizes = [task.size for task in self._reading.tasks]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def __repr__(self) -> str:
        return f"<Scan {self._path}: {', '.join(self.schema.names)}>"


def write(
    data: Any,
    path: Path,
    codec: str,
    *,
    frames: Any = None,
    file: Any = None,
    mode: str = "error",
    **options: Any,
) -> Written:
    """Write rows as the system itself would have: a file, or a directory with every file that belongs to it.

    `data`: anything with an Arrow stream (pyarrow, pandas, Polars, DuckDB), a list of dicts, or an iterator of record batches,
    which is never held as a whole for a directory. `codec` names the codec or layout. `mode`: "error" wants nothing there,
    "append" adds to a directory, "overwrite" replaces a file, or a directory of the same layout. `frames` and `file`: the
    other two tables of a codec, to write the same bytes again. Further options are the codec's or layout's own.

    The target is written whole or not at all, whatever happens. Raises `LogwrightError`: `ExistsError`, `BusyError` (the system
    runs, or another writer), `UsageError`, `AccessError`, `StorageError`.
    """
    from logwright.writers.write import write as _write

    return _write(data, path, codec, frames=frames, file=file, mode=mode, **options)


def generate(
    codec: str,
    path: Path,
    *,
    rows: int | str = 1000,
    seed: int | str = 0,
    recipe: str | None = None,
    **options: Any,
) -> Generated:
    """Make a corpus: a new file or directory of so many rows, by recipe and seed, and beside it a manifest and the rows that
    must be read from it (`path.manifest.json`, `path.expected.jsonl`).

    The same recipe, seed, options and version give the same bytes (compressed: the same content). `recipes(codec)` in
    `logwright.corpora.generate` lists the recipes. Further options are the recipe's own, and the writer's.

    Raises `ExistsError` when any of it is there already, `UsageError` for a recipe or option that there is not.
    """
    from logwright.corpora.generate import generate as _generate

    return _generate(codec, path, rows=rows, seed=seed, recipe=recipe, **options)


def verify(
    path: Paths,
    codec: str | None = None,
    *,
    depth: str = "records",
    max_faults: int = MAX_FAULTS,
    **options: Any,
) -> Report:
    """Check files and directories: what is damaged, where, and what is lost. Never raises for damage.

    `depth`: "structure" (lengths and what headers say), "checksums", or "records" (everything is decoded).
    """
    wanted = _verify.Depth.of(depth)
    targets = resolve.resolve(path, codec, options)
    report = Report(_shown(path), _codec_of(targets), max_faults=max_faults)
    return _verify.verify(targets, report, wanted)


def inspect(path: Path, codec: str | None = None, **options: Any) -> dict[str, Any]:
    """What a file or a directory is, from headers alone: files, ranges of ids and times, sizes, compression."""
    targets = resolve.resolve(path, codec, options)
    if len(targets) != 1:
        raise UsageError(
            f"{len(targets)} things lie there, one can be inspected at a time", path=_shown(path)
        )
    return _inspect.inspect(targets[0])


def detect(path: Path) -> str | None:
    """The name of the codec of a file, or of the layout of a directory; None when it is none that we know."""
    return resolve.detect(path)


def codecs(name: str | None = None) -> list[dict[str, Any]]:
    """Every codec and layout, or the one of that name: its views, columns and options, with types and defaults."""
    if name is not None:
        registry.find(name)  # raises, with the nearest name
    found = [_layout(one) for one in registry.layouts() if name in (None, one.name)]
    return found + [_codec(one) for one in registry.codecs() if name in (None, one.name)]


def _layout(one: Layout) -> dict[str, Any]:
    return {
        "name": one.name,
        "kind": "directory",
        "title": one.title,
        "views": [
            {"name": view.name, "codec": view.codec, "table": view.table, "doc": view.doc}
            for view in one.views.values()
        ],
        "default_view": one.default_view,
        "options": [_option(option) for option in one.options],
        "read_options": [_option(option) for option in one.read_options],
    }


def _codec(one: Codec) -> dict[str, Any]:
    return {
        "name": one.name,
        "kind": "file",
        "title": one.title,
        "tables": {name: _table(table) for name, table in one.tables.items()},
        "options": [_option(option) for option in one.options],
    }


def _table(table: Table) -> dict[str, Any]:
    return {
        "doc": table.doc,
        "columns": [
            {
                "name": column.name,
                "type": str(column.type),
                "nullable": column.nullable,
                "detail": column.detail,
                "prunes": column.prunes,
                "doc": column.doc,
            }
            for column in table.columns
        ],
    }


def _option(option: Option) -> dict[str, Any]:
    return {
        "name": option.name,
        "default": option.default,
        "choices": list(option.choices),
        "doc": option.doc,
    }


def _shown(path: Paths) -> str:
    return (
        os.fspath(path) if isinstance(path, str | os.PathLike) else ", ".join(os.fspath(one) for one in path)
    )


def _codec_of(targets: Sequence[resolve.Target]) -> str | None:
    names = {resolve.kind(target) for target in targets}
    return names.pop() if len(names) == 1 else None
