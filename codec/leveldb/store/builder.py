"""Write a database: rows in any order into tables that need no compaction, or rows as they come into logs.

Source: `DBImpl::NewDB`, `DBImpl::RecoverLogFile` and `DBImpl::WriteLevel0Table` of LevelDB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.engine.merge import SortedRun, merge
from logwright.codec.fault import UsageError
from logwright.codec.leveldb.comparators import NAMES, comparator_of
from logwright.codec.leveldb.derive import current, snapshot
from logwright.codec.leveldb.formats.log import codec as log
from logwright.codec.leveldb.formats.manifest.layout import LEVELS
from logwright.codec.leveldb.formats.table import write as encode
from logwright.codec.leveldb.formats.table.write import TableSettings
from logwright.codec.leveldb.names import CURRENT, manifest_name
from logwright.codec.leveldb.store.levels import COMPACTION_TRIGGER, LARGEST, free_levels, level_of
from logwright.codec.leveldb.store.resume import Resumed, log_rows
from logwright.codec.leveldb.store.rolling import LogWriter, TableWriter, WrittenTable
from logwright.codec.leveldb.store.sorted_run import (
    columns,
    schema_of,
    twice,
    with_sort_keys,
    with_stored_keys,
)
from logwright.codec.leveldb.store.version import FileMetaData
from logwright.codec.option import Option, Options, parse_choice
from logwright.codec.sorting import Sorter, chunked, unique
from logwright.codec.store.build import Piece, Stage, Summary

OPTIONS = (
    *encode.OPTIONS,
    Option("max_file_size", 2 << 20, "Table size in bytes at which the next table is started", low=1),
    Option("write_buffer_size", 4 << 20, "Bytes of write batches at which the next log is started", low=1),
    log.BATCH_SIZE,
    Option("write_as", "tables", "tables, sorted; or logs, which LevelDB turns into tables when it opens the database",
           parse_choice, ("tables", "logs")),
    Option("sequences", None, "keep the numbers of column `sequence`, or assign the next number, the same to all rows (in logs: to each "
           "row its own); default: keep them if there are any",
           parse_choice, ("keep", "assign")),
    Option("on_duplicate", "error", "What to do with a repeated key (and sequence number): raise an error, or keep the last row",
           parse_choice, ("error", "last")),
    Option("sort_buffer_size", 64 << 20, "Bytes of rows sorted at a time. Sorting takes four times as much memory; further rows wait in files",
           low=1 << 10),
)  # fmt: skip
"""Options of writing a database."""

_PORTION = 1 << 20
_ASSIGN = "Pass sequences=assign to write all rows with a new one"


class Numbers:
    """The sequence numbers of written rows: their own, or assigned ones above those of the database.

    All rows get the same assigned number, since a task does not know how many rows come before it in other tasks. With `rising`, each row
    has one more than the row before, as operations in logs do.
    """

    def __init__(self, options: Options, last: int, *, rising: bool = False) -> None:
        self.last = self.highest = last
        self.lowest: int | None = None
        self.kept: bool | None = None
        """Whether the rows keep their own numbers; None before the first row."""
        self._sequences, self._rising = options["sequences"], rising

    def take(self, rows: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """Return the rows as rows of a run. Raises `UsageError` for numbers that the database cannot take."""
        here = "sequence" in rows.schema.names and not pa.types.is_null(rows.schema.field("sequence").type)
        if self._sequences == "keep" and not here:
            raise UsageError("sequences=keep, but there is no column 'sequence'")
        kept = here and self._sequences != "assign"
        if self.kept is not None and kept != self.kept:
            raise UsageError("some rows have sequence numbers and others do not")
        self.kept = kept
        run = columns(rows, first_row, None if kept else self.last + 1)
        if not run.num_rows:
            return run
        if self._rising and not kept:
            numbers = np.arange(run.num_rows) + self.highest + 1
            run = run.set_column(2, run.schema.field(2), pa.array(numbers))
        sequences = np.asarray(run.column("sequence"))
        if kept:
            self._check(sequences, first_row)
        low, high = int(sequences.min()), int(sequences.max())
        self.lowest = low if self.lowest is None else min(low, self.lowest)
        self.highest = max(high, self.highest)
        return run

    def _check(self, sequences: Any, first_row: int) -> None:
        at = int(np.argmin(sequences))
        if self.last and int(sequences[at]) <= self.last:
            raise UsageError(
                f"row {first_row + at}: sequence number {int(sequences[at])} is not above {self.last}, the last one of the database",
                advice=_ASSIGN,
            )
        if self._rising:
            before = np.concatenate(([-1 if self.lowest is None else self.highest], sequences[:-1]))
            if (sequences <= before).any():
                at = int(np.argmax(sequences <= before))
                raise UsageError(
                    f"row {first_row + at}: sequence number {int(sequences[at])} is not above {int(before[at])}, the previous one",
                    advice=f"Sort the rows by sequence. {_ASSIGN}",
                )

    def ids(self) -> dict[str, Any]:
        return {} if self.lowest is None else {"first_sequence": self.lowest, "last_sequence": self.highest}


def check_options(options: Options, *, staged: bool) -> None:
    """Raise `UsageError` for options that cannot be written."""
    if not comparator_of(options["comparator"]).known:
        raise UsageError(
            f"unknown comparator {options['comparator']!r}; known are {', '.join(NAMES)}",
            advice="Omit the option comparator, or pass a known one",
        )
    if staged and options["write_as"] == "logs":
        raise UsageError(
            "logs are written by a single writer, in the order of the rows",
            advice="Omit write_as=logs, or use logwright.write",
        )


class NextVersion:
    """The version that a write creates: allocates file numbers, assigns tables to levels, writes the manifest.

    In an append, numbers follow those of the existing database.
    """

    def __init__(self, options: Options, resumed: Resumed | None) -> None:
        self.options, self.resumed = options, resumed
        self.levels: list[list[FileMetaData]] = [[] for _ in range(LEVELS)]
        self.next_number = 1
        if resumed is not None:
            self.levels = [list(files) for files in resumed.version.levels]
            self.next_number = resumed.next_number
        self.order = comparator_of(options["comparator"] if resumed is None else resumed.comparator)

    def number(self) -> int:
        """Allocate a file number."""
        self.next_number += 1
        return self.next_number - 1

    def write_logs(self, extra: Stage | None) -> Iterator[Piece]:
        """Write the contents of the existing logs as a table of level 0, as opening the database would (`WriteLevel0Table`)."""
        if self.resumed is not None and self.resumed.logs:
            schema = schema_of(self.order)
            sorter = Sorter(extra, self.options["sort_buffer_size"], schema, twice, last=True, name="logs")
            for name in self.resumed.logs:
                for batch in log_rows(self.resumed.listing, name):
                    sorter.add(with_sort_keys(batch, self.order))
            writer = self.writer(LARGEST)
            yield from written(writer, sorter.ordered())
            self.levels[0] += [table.meta for table in writer.tables]

    def writer(self, limit: int) -> TableWriter:
        settings = replace(TableSettings.of(self.options), comparator=self.order.name)
        return TableWriter(settings, limit, self.number)

    def deep(self, first: bytes, last: bytes) -> bool:
        """Return whether entries with these sort keys, newer than all others, may be placed below level 0."""
        return bool(free_levels(self.levels, first, last, self.order))

    def add_tables(self, tables: Sequence[WrittenTable]) -> None:
        """Add tables that are in order, disjoint, and newer than the existing ones."""
        if tables:
            files = [table.meta for table in tables]
            self.levels[level_of(self.levels, files, self.order)] += files

    def finish(self, manifest: int, last_sequence: int) -> Iterator[Piece]:
        """Write the manifest of that number, and CURRENT. The contents of the old logs are in tables by then."""
        version = None if self.resumed is None else self.resumed.version
        data = snapshot(
            self.levels,
            log_number=0 if version is None else manifest,
            next_file_number=self.next_number,
            last_sequence=last_sequence,
            compact_pointers=None if version is None else version.compact_pointers,
            comparator=self.order.name,
        )
        yield Piece(manifest_name(manifest), data, done=True)
        yield Piece(CURRENT, current(manifest), done=True)

    def warnings(self) -> tuple[str, ...]:
        """Return warnings about what LevelDB will do with the result."""
        before = 0 if self.resumed is None else len(self.resumed.version.levels[0])
        now = len(self.levels[0])
        if now <= before or now < COMPACTION_TRIGGER:
            return ()
        return (
            f"The new keys are between existing ones, and level 0 now has {now} tables: LevelDB starts a compaction"
            " when it opens the database.",
        )


def written(writer: TableWriter, batches: Iterator[pa.RecordBatch]) -> Iterator[Piece]:
    """Write rows, which are in order, as tables."""
    for batch in batches:
        # A table may end within a batch; its remaining rows are then scanned once more.
        for piece in chunked(with_stored_keys(batch), _PORTION):
            yield from writer.add(piece)
    yield from writer.finish()


class DatabaseBuilder:
    """See `logwright.codec.layout.Builder`. With `resumed`, the files are those of an append.

    With `staged`, only tables are written, with their own numbers; `assemble` does the rest.
    """

    def __init__(
        self,
        options: Options,
        resumed: Resumed | None = None,
        extra: Stage | None = None,
        *,
        staged: bool = False,
    ) -> None:
        check_options(options, staged=staged)
        self.options, self.staged, self.rows = options, staged, 0
        logs = options["write_as"] == "logs"
        self.numbers = Numbers(options, 0 if resumed is None else resumed.last_sequence, rising=logs)
        self.next = NextVersion(options, None if staged else resumed)
        self.tables: list[WrittenTable] = []
        self._extra = extra
        self._last = options["on_duplicate"] == "last"
        schema = schema_of(self.next.order)
        self._sorter = Sorter(extra, options["sort_buffer_size"], schema, twice, last=self._last)
        self._manifest = 0
        self._logs: LogWriter | None = None
        self._deletes = False
        """Whether some rows have neither a column `value` nor `type`, and are deletions for that reason alone."""
        if logs:
            if resumed is None:
                self._manifest = self.next.number()
            self._logs = LogWriter(options, self.next.number)

    def add(self, rows: pa.RecordBatch) -> Iterator[Piece]:
        run = self.numbers.take(rows, self.rows)
        self._deletes |= {"value", "type"}.isdisjoint(rows.schema.names)
        self.rows += run.num_rows
        if self._logs is not None:
            yield from self._logs.add(run)
        else:
            self._sorter.add(with_sort_keys(run, self.next.order))

    def finish(self) -> Iterator[Piece]:
        if self._logs is not None:
            yield from self._logs.finish()
            if self._manifest:
                yield from self.next.finish(self._manifest, 0)
            return
        streams = self._sorter.streams()
        if not streams and (self.staged or self.next.resumed is not None):
            return
        if not self.staged:
            self._manifest = self.next.number()
            yield from self.next.write_logs(self._extra)
        if streams:
            yield from self._tables(streams)
        if not self.staged:
            self.next.add_tables(self.tables)
            yield from self.next.finish(self._manifest, self.numbers.highest)

    def _tables(self, streams: Sequence[SortedRun]) -> Iterator[Piece]:
        first, last = min(run.first for run in streams), max(run.last for run in streams)
        # Level 0 should have few tables, whatever their size.
        limit = self.options["max_file_size"] if self.next.deep(first, last) else LARGEST
        writer = self.next.writer(limit)
        yield from written(writer, unique(merge(streams), last=self._last, twice=twice))
        self.tables = writer.tables
        self.rows = sum(table.rows for table in writer.tables)

    def summary(self) -> Summary:
        facts = {"tables": self.tables, "kept": self.numbers.kept}
        warnings = () if self.staged else self.next.warnings()
        if self._deletes:
            warnings = (*warnings, "Rows without a column value were written as deletions of their keys.")
        return Summary(self.rows, self.numbers.ids(), warnings, facts=facts)
