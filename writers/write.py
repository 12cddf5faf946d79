"""`write`: write rows to a file or directory, as the system itself would."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeGuard, cast

from logwright.codec import registry
from logwright.codec.base import Codec
from logwright.codec.fault import UsageError
from logwright.codec.layout import Layout
from logwright.codec.option import Options, fold
from logwright.codec.plural import count
from logwright.codec.store.build import Piece, Summary
from logwright.codec.store.roots import Roots
from logwright.codec.table import Table
from logwright.codec.window import Zeros
from logwright.readers.prefetch import FEW, Prefetcher, usable
from logwright.readers.resolve import configuration
from logwright.readers.source import local_path
from logwright.readers.task import table_of
from logwright.readers.usage import check_write
from logwright.writers import rows
from logwright.writers.commit import Transaction
from logwright.writers.file import put_whole
from logwright.writers.filesystem import FileSystem, LocalFileSystem, plain_errors
from logwright.writers.stage import ScratchFolder
from logwright.writers.target import refuse_remote


@dataclass(frozen=True)
class Written:
    """The result of a write. `files` are names in the directory `path`, or `path` itself; `ids` are the system's own numbers."""

    path: str
    files: tuple[str, ...]
    rows: int
    bytes: int = 0
    ids: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    before_you_start: tuple[str, ...] = ()
    """Steps before starting the real system on the result."""

    def __str__(self) -> str:
        lines = [
            f"{self.path}: {count(self.rows, 'row')}, {count(len(self.files), 'file')}, {count(self.bytes, 'byte')}"
        ]
        lines += [f"{name}: {value}" for name, value in self.ids.items()]
        lines += [f"warning: {text}" for text in self.warnings]
        lines += [f"before you start the system: {text}" for text in self.before_you_start]
        return "\n  ".join(lines)

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
    """Write rows to `path` atomically. See `logwright.write`."""
    path = os.fspath(path)
    refuse_remote(path)
    path = local_path(path)
    target = registry.find_writer(codec) if isinstance(codec, str) else codec
    files = LocalFileSystem() if files is None else files
    with plain_errors(path):
        check_write(target, path, options)
        if is_layout(target):
            path, options = configured(path, target, options)
            if frames is not None or file is not None:
                raise UsageError(
                    f"frames and file are tables of a single file, but {target.name} is a directory"
                )
            return _write_directory(data, path, target, mode, Options(target.options, options), files)
        file_codec = cast(Codec, target)
        return _write_file(
            data, path, file_codec, mode, Options(file_codec.options, options), files, frames, file
        )


def configured(path: str, layout: Layout, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the directory that a configuration file names, with its options for writing as defaults; or any other path unchanged.

    Raises `UsageError` if it names several directories, or belongs to another system.
    """
    config = configuration(path)
    if config is None:
        return path, dict(options)
    if config.system != layout.name.partition(".")[0] or len(config.directories) != 1:
        raise UsageError(
            f"this configuration of {config.system} names {', '.join(config.directories)}; expected one {layout.name} directory",
            path=path,
            advice="Pass the directory itself",
        )
    known, passed = {fold(option.name) for option in layout.options}, {fold(name) for name in options}
    more = {name: value for name, value in config.options.items() if fold(name) in known - passed}
    return config.directories[0], {**more, **options}


def is_layout(target: Codec | Layout) -> TypeGuard[Layout]:
    """Return whether it is a layout, recognised by an attribute that only layouts have."""
    return hasattr(target, "inner_staging")


def rows_table(layout: Layout, options: Mapping[str, Any] | None = None) -> Table:
    """Return the table of the rows that a layout is read as, with the types that options choose."""
    return table_of(layout.views[layout.default_view], options or {})


def taken_table(layout: Layout, options: Mapping[str, Any]) -> Table:
    """Return the table of the rows that a layout accepts, with types that options choose. Further columns (`Layout.takes`) are details."""
    table = rows_table(layout, options)
    if not layout.takes:
        return table
    known = set(table.names(detail=True))
    more = (replace(column, detail=True) for column in layout.takes if column.name not in known)
    return Table(table.name, (*table.columns, *more), table.doc)


def _write_directory(
    data: Any, path: str, layout: Layout, mode: str, options: Options, files: FileSystem
) -> Written:
    table = taken_table(layout, options.passed())
    stream = rows.batches(data, table)
    names: set[str] = set()
    transaction = Transaction.begin(
        files, layout, path, mode, roots=layout.roots(options), above=layout.parent_files(options)
    )
    try:
        scratch = ScratchFolder(files, Roots(transaction.work.own).below("scratch"), transaction.target.name)
        builder = layout.builder(transaction.listing, transaction.target.name, options, extra=scratch)
        size = 0
        # A thread computes the next pieces while earlier ones are written. The rows come from the caller, in its own thread.
        with Prefetcher(usable()) as prefetcher:
            for batch in stream:
                names.update(batch.schema.names)
                size = max(size, batch.nbytes)
                with rows.misfits_named(batch.schema, table):
                    transaction.stage.take(_ahead(prefetcher, partial(builder.add, batch), size))
            transaction.stage.take(_ahead(prefetcher, builder.finish, size))
        scratch.discard()
        summary = builder.summary()
        transaction.commit()
    except BaseException:
        transaction.fail()
        raise
    written = Written.of(path, transaction.stage.staged(), summary)
    return replace(written, warnings=(*rows.ignored_columns(names, rows_table(layout)), *written.warnings))


def _ahead(
    prefetcher: Prefetcher, pieces: Callable[[], Iterator[Piece]], size: int
) -> Generator[Piece, None, None]:
    """Iterate over pieces that are computed in a thread, if they are made of many bytes."""
    return prefetcher.iterate([pieces], _weight, threaded=size >= FEW)


def _weight(piece: Piece) -> int:
    return 0 if isinstance(piece.data, Zeros) else len(piece.data)


def _write_file(
    data: Any, path: str, codec: Codec, mode: str, options: Options, files: FileSystem, frames: Any, file: Any
) -> Written:
    name = path.rstrip("/").rpartition("/")[2]
    context = codec.context(name, options)
    table = codec.table_of("rows", context)
    all_rows = rows.whole(data, table)
    others = [
        None if part is None else rows.whole(part, codec.tables[name], damaged=True)
        for part, name in ((frames, "frames"), (file, "file"))
    ]
    # Encode in a thread while earlier bytes are written: all rows are in memory.
    with (
        Prefetcher(usable() if all_rows.nbytes >= FEW else 1) as prefetcher,
        rows.misfits_named(all_rows.schema, table),
    ):
        size = put_whole(
            files,
            path,
            mode,
            lambda: prefetcher.iterate([lambda: codec.encode(all_rows, others[0], others[1], context)], len),
        )
    warnings = tuple(rows.ignored_columns(all_rows.schema.names, table))
    return Written(path=path, files=(path,), rows=all_rows.num_rows, bytes=size, warnings=warnings)
