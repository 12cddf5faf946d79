"""`write`: rows into a file or a directory, as the system itself would have made it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard, cast

from logwright.codec import registry
from logwright.codec.base import Codec
from logwright.codec.fault import UsageError
from logwright.codec.layout import Layout
from logwright.codec.option import Options, fold
from logwright.codec.store.build import Summary
from logwright.codec.store.roots import Roots
from logwright.codec.table import Table
from logwright.readers.prefetch import FEW, Prefetcher, usable
from logwright.readers.resolve import configuration
from logwright.readers.source import local_path
from logwright.readers.usage import check_write
from logwright.writers import rows
from logwright.writers.commit import Transaction
from logwright.writers.file import put_whole
from logwright.writers.filesystem import FileSystem, LocalFileSystem, plain_errors
from logwright.writers.stage import ScratchFolder
from logwright.writers.target import refuse_remote


@dataclass(frozen=True)
class Written:
    """What a write made. `files` are names in the directory `path`, or `path` itself; `ids` the system's own numbers."""

    path: str
    files: tuple[str, ...]
    rows: int
    bytes: int = 0
    ids: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    before_you_start: tuple[str, ...] = ()
    """What the real system needs before it is started on the result."""

    @classmethod
    def of(cls, path: str, files: Mapping[str, int], summary: Summary) -> Written:
        return cls(
            path=path,
            files=tuple(sorted(files)),
            rows=summary.rows,
            bytes=sum(files.values()),
            ids=dict(summary.ids),
            warnings=tuple(summary.warnings),
            before_you_start=tuple(summary.before_you_start),
        )


def write(
    data: Any,
    path: str | os.PathLike[str],
    codec: str | Codec | Layout,
    *,
    frames: Any = None,
    file: Any = None,
    mode: str = "error",
    files: FileSystem | None = None,
    **options: Any,
) -> Written:
    """Write rows to `path`, whole or not at all.

    `data` is anything with an Arrow stream, a list of dicts, or an iterator of record batches, which is never held as a whole
    when a directory is written. `codec` names a codec or a layout. `mode`: "error" wants nothing there, "append" adds to a
    directory, "overwrite" replaces a file, or a directory of the same layout. `frames` and `file` are the other two tables
    of a codec, to write the same bytes again. Nothing is written when an error is raised.
    """
    path = os.fspath(path)
    refuse_remote(path)
    path = local_path(path)
    found = registry.find(codec) if isinstance(codec, str) else codec
    files = LocalFileSystem() if files is None else files
    with plain_errors(path):
        if is_layout(found):
            path, options = configured(path, found, options)
            if frames is not None or file is not None:
                raise UsageError(f"frames and file are tables of one file; {found.name} is a directory")
            return _write_directory(data, path, found, mode, Options(found.options, options), files)
        one = cast(Codec, found)
        check_write(one, path, options)
        return _write_file(data, path, one, mode, Options(one.options, options), files, frames, file)


def configured(path: str, layout: Layout, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The directory that a system's configuration file names, and the options in it that writing takes, where none are given; any other
    path as it is. Raises `UsageError` where it names several, or is that of another system."""
    said = configuration(path)
    if said is None:
        return path, dict(options)
    if said.system != layout.name.partition(".")[0] or len(said.directories) != 1:
        raise UsageError(
            f"this is the configuration of {said.system}, with data in {', '.join(said.directories)}: a {layout.name} is one directory",
            path=path,
            advice="Name the directory itself",
        )
    known, given = {fold(one.name) for one in layout.options}, {fold(name) for name in options}
    more = {name: value for name, value in said.options.items() if fold(name) in known - given}
    return said.directories[0], {**more, **options}


def is_layout(found: Codec | Layout) -> TypeGuard[Layout]:
    """Whether it is a layout, told by what only layouts have."""
    return hasattr(found, "inner_staging")


def rows_table(layout: Layout) -> Table:
    """The table of the rows that a layout is read as."""
    view = layout.views[layout.default_view]
    return registry.table_of(view)


def taken_table(layout: Layout) -> Table:
    """The same, with further columns that it takes (`Layout.takes`)."""
    table = rows_table(layout)
    if not layout.takes:
        return table
    known = set(table.names(detail=True))
    return Table(
        table.name, (*table.columns, *(one for one in layout.takes if one.name not in known)), table.doc
    )


def _write_directory(
    data: Any, path: str, layout: Layout, mode: str, options: Options, files: FileSystem
) -> Written:
    table = taken_table(layout)
    given = rows.batches(data, table)
    names: set[str] = set()
    transaction = Transaction.begin(
        files, layout, path, mode, roots=layout.roots(options), above=layout.parent_files(options)
    )
    try:
        scratch = ScratchFolder(files, Roots(transaction.work.own).below("scratch"), transaction.target.name)
        builder = layout.builder(transaction.listing, transaction.target.name, options, extra=scratch)
        for batch in given:
            names.update(batch.schema.names)
            transaction.stage.take(builder.add(batch))
        transaction.stage.take(builder.finish())
        scratch.discard()
        summary = builder.summary()
        transaction.commit()
    except BaseException:
        transaction.fail()
        raise
    written = Written.of(path, transaction.stage.staged(), summary)
    return replace(written, warnings=(*rows.misspelt(names, rows_table(layout)), *written.warnings))


def _write_file(
    data: Any,
    path: str,
    codec: Codec,
    mode: str,
    options: Options,
    files: FileSystem,
    frames: Any,
    file: Any,
) -> Written:
    given = rows.whole(data, codec.tables["rows"])
    others = [
        None if table is None else rows.whole(table, codec.tables[name])
        for table, name in ((frames, "frames"), (file, "file"))
    ]
    name = path.rstrip("/").rpartition("/")[2]
    context = codec.context(name, options)
    # What comes next is encoded while what came before is written, or waits for the disk: all rows are in memory already.
    with Prefetcher(usable() if given.nbytes >= FEW else 1) as prefetcher:
        size = put_whole(
            files,
            path,
            mode,
            lambda: prefetcher.iterate([lambda: codec.encode(given, others[0], others[1], context)], len),
        )
    return Written(path=path, files=(path,), rows=given.num_rows, bytes=size)
