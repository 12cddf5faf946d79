"""Making a database: rows in any order into tables that need no compaction, or as they come into logs.

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
from logwright.codec.leveldb.store.levels import COMPACTION_TRIGGER, LARGEST, free, level_of
from logwright.codec.leveldb.store.resume import Resumed, logged
from logwright.codec.leveldb.store.rolling import LogWriter, Made, TableWriter
from logwright.codec.leveldb.store.run import columns, schema_of, sortable, stored, twice
from logwright.codec.leveldb.store.version import FileMetaData
from logwright.codec.option import Option, Options, parse_choice
from logwright.codec.sorting import Sorter, chunked, unique
from logwright.codec.store.build import Piece, Stage, Summary

OPTIONS = (
    *encode.OPTIONS,
    Option("max_file_size", 2 << 20, "Bytes from which on a table is finished", low=1),
    Option("write_buffer_size", 4 << 20, "Bytes of write batches from which on a log is finished", low=1),
    log.BATCH_SIZE,
    Option("write_as", "tables", "tables, sorted; or logs, which LevelDB makes tables of when it opens the database",
           parse_choice, ("tables", "logs")),
    Option("sequences", None, "keep those of the column `sequence`, or assign the next one, the same to all rows (of logs: to each "
           "its own); by default kept where there are some",
           parse_choice, ("keep", "assign")),
    Option("on_duplicate", "error", "What is done where a key comes twice (with one sequence number): error, or the last is taken",
           parse_choice, ("error", "last")),
    Option("sort_buffer_size", 64 << 20, "Bytes of rows that are sorted at a time, in four times that; more wait in files",
           low=1 << 10),
)  # fmt: skip
"""What writing a database takes."""

_PORTION = 1 << 20
_ASSIGN = "Pass sequences=assign to have all rows written with a new one"


class Numbers:
    """The sequence numbers of rows that are written, from what the rows have and what the database has.

    Assigned ones are all the same: the rows of one write are of one moment, and none knows how many come before it in other tasks.
    With `rising` each row has one more than the row before, as the operations of logs have.
    """

    def __init__(self, options: Options, last: int, *, rising: bool = False) -> None:
        self.last = self.highest = last
        self.lowest: int | None = None
        self.kept: bool | None = None
        """Whether the rows' own are kept; None as long as none came."""
        self._wish, self._rising = options["sequences"], rising

    def take(self, rows: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """The rows as those of a run. Raises `UsageError` for numbers that the database can't take."""
        here = "sequence" in rows.schema.names and not pa.types.is_null(rows.schema.field("sequence").type)
        if self._wish == "keep" and not here:
            raise UsageError("sequences=keep, but there is no column 'sequence'")
        kept = here and self._wish != "assign"
        if self.kept is not None and kept != self.kept:
            raise UsageError("some rows have sequence numbers, others have none")
        self.kept = kept
        made = columns(rows, first_row, None if kept else self.last + 1)
        if not made.num_rows:
            return made
        if self._rising and not kept:
            numbers = np.arange(made.num_rows) + self.highest + 1
            made = made.set_column(2, made.schema.field(2), pa.array(numbers))
        found = np.asarray(made.column("sequence"))
        if kept:
            self._check(found, first_row)
        low, high = int(found.min()), int(found.max())
        self.lowest = low if self.lowest is None else min(low, self.lowest)
        self.highest = max(high, self.highest)
        return made

    def _check(self, found: Any, first_row: int) -> None:
        at = int(np.argmin(found))
        if self.last and int(found[at]) <= self.last:
            raise UsageError(
                f"row {first_row + at}: sequence number {int(found[at])} is not above {self.last}, the last of the database",
                advice=_ASSIGN,
            )
        if self._rising:
            before = np.concatenate(([-1 if self.lowest is None else self.highest], found[:-1]))
            if (found <= before).any():
                at = int(np.argmax(found <= before))
                raise UsageError(
                    f"row {first_row + at}: sequence number {int(found[at])} is not above {int(before[at])}, the one before",
                    advice=f"Sort the rows by sequence. {_ASSIGN}",
                )

    def ids(self) -> dict[str, Any]:
        return {} if self.lowest is None else {"first_sequence": self.lowest, "last_sequence": self.highest}


def check_options(options: Options, *, staged: bool) -> None:
    """Raise for what can't be written."""
    if not comparator_of(options["comparator"]).known:
        raise UsageError(
            f"the order of comparator {options['comparator']!r} is not known; known are {', '.join(NAMES)}",
            advice="Leave the option comparator away, or pass a known one",
        )
    if staged and options["write_as"] == "logs":
        raise UsageError(
            "logs are written by one writer, in the order of the rows",
            advice="Leave write_as=logs away, or use logwright.write",
        )


class NextVersion:
    """The version that a write makes: numbers are given out, tables put at levels, the manifest written.

    Numbers start behind those of a database that is added to.
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
        """A number for a new file."""
        self.next_number += 1
        return self.next_number - 1

    def logged(self, extra: Stage | None) -> Iterator[Piece]:
        """What is in the logs of the database as a table of level 0, as opening it would do (`WriteLevel0Table`)."""
        if self.resumed is not None and self.resumed.logs:
            schema = schema_of(self.order)
            sorter = Sorter(extra, self.options["sort_buffer_size"], schema, twice, last=True, name="logs")
            for name in self.resumed.logs:
                for batch in logged(self.resumed.listing, name):
                    sorter.add(sortable(batch, self.order))
            writer = self.writer(LARGEST)
            yield from written(writer, sorter.ordered())
            self.levels[0] += [one.meta for one in writer.made]

    def writer(self, limit: int) -> TableWriter:
        settings = replace(TableSettings.of(self.options), comparator=self.order.name)
        return TableWriter(settings, limit, self.number)

    def deep(self, first: bytes, last: bytes) -> bool:
        """Whether entries of these user keys (what they are sorted by), newer than all others, may lie below level 0."""
        return bool(free(self.levels, first, last, self.order))

    def put(self, made: Sequence[Made]) -> None:
        """Tables that are in order, disjoint, and newer than what is there."""
        if made:
            files = [one.meta for one in made]
            self.levels[level_of(self.levels, files, self.order)] += files

    def finish(self, manifest: int, last_sequence: int) -> Iterator[Piece]:
        """The manifest of that number, and CURRENT. What was in the logs of the database is in tables now."""
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
        """What LevelDB will do that one may not expect."""
        before = 0 if self.resumed is None else len(self.resumed.version.levels[0])
        now = len(self.levels[0])
        if now <= before or now < COMPACTION_TRIGGER:
            return ()
        return (
            f"The new keys lie between those of the database, which has {now} tables at level 0 now: LevelDB begins to compact"
            " them when it opens it.",
        )


def written(writer: TableWriter, batches: Iterator[pa.RecordBatch]) -> Iterator[Piece]:
    """All of these rows, in order, as tables."""
    for batch in batches:
        # What is left of a batch where a table ends is looked at once more.
        for piece in chunked(stored(batch), _PORTION):
            yield from writer.add(piece)
    yield from writer.finish()


class DatabaseBuilder:
    """See `logwright.codec.layout.Builder`. With `resumed` the files are those of an append.

    `staged`: tables with numbers of their own, and what concerns the database as a whole is left to `place`.
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
        self.made: list[Made] = []
        self._extra = extra
        self._last = options["on_duplicate"] == "last"
        schema = schema_of(self.next.order)
        self._sorter = Sorter(extra, options["sort_buffer_size"], schema, twice, last=self._last)
        self._manifest = 0
        self._logs: LogWriter | None = None
        if logs:
            if resumed is None:
                self._manifest = self.next.number()
            self._logs = LogWriter(options, self.next.number)

    def add(self, rows: pa.RecordBatch) -> Iterator[Piece]:
        made = self.numbers.take(rows, self.rows)
        self.rows += made.num_rows
        if self._logs is not None:
            yield from self._logs.add(made)
        else:
            self._sorter.add(sortable(made, self.next.order))

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
            yield from self.next.logged(self._extra)
        if streams:
            yield from self._tables(streams)
        if not self.staged:
            self.next.put(self.made)
            yield from self.next.finish(self._manifest, self.numbers.highest)

    def _tables(self, streams: Sequence[SortedRun]) -> Iterator[Piece]:
        first, last = min(one.first for one in streams), max(one.last for one in streams)
        # Of level 0 there should be few, whatever their size.
        limit = self.options["max_file_size"] if self.next.deep(first, last) else LARGEST
        writer = self.next.writer(limit)
        yield from written(writer, unique(merge(streams), last=self._last, twice=twice))
        self.made = writer.made
        self.rows = sum(one.rows for one in writer.made)

    def summary(self) -> Summary:
        facts = {"tables": self.made, "kept": self.numbers.kept}
        warnings = () if self.staged else self.next.warnings()
        return Summary(self.rows, self.numbers.ids(), warnings, facts=facts)
