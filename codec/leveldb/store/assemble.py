"""Assemble the staged parts of a database: runs in the driver when all tasks have written theirs.

A part is a sorted run in its own tables. Tables whose keys are in no other part are kept as they are, the others are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from logwright.codec.engine.merge import SortedRun, merge
from logwright.codec.fault import LogwrightError, UsageError
from logwright.codec.frames.walk import ListedFile
from logwright.codec.leveldb.comparators import Comparator
from logwright.codec.leveldb.formats.table import codec as table
from logwright.codec.leveldb.keys import user_key
from logwright.codec.leveldb.names import table_name
from logwright.codec.leveldb.store.builder import NextVersion, check_options, written
from logwright.codec.leveldb.store.levels import COMPACTION_TRIGGER, LARGEST
from logwright.codec.leveldb.store.resume import Resumed
from logwright.codec.leveldb.store.rolling import WrittenTable
from logwright.codec.leveldb.store.sorted_run import ROWS, twice, with_sort_keys
from logwright.codec.option import Options
from logwright.codec.sorting import unique
from logwright.codec.store.build import Piece, Placement, Stage, Summary, noted
from logwright.codec.store.listing import Listing
from logwright.codec.window import Window

_MEMORY = 64 << 20
"""Approximate bytes in memory of tables that are merged together."""
_LEAST, _MOST = 32 << 10, 1 << 20


@dataclass(frozen=True)
class _Staged:
    """A table of a part."""

    part: int
    stage: Stage
    written: WrittenTable
    order: Comparator

    @property
    def name(self) -> str:
        return table_name(self.written.meta.number)

    @property
    def first(self) -> bytes:
        """The sort key of its smallest user key."""
        return self.order.user(user_key(self.written.meta.smallest))

    @property
    def last(self) -> bytes:
        return self.order.user(user_key(self.written.meta.largest))


def assemble(
    resumed: Resumed | None,
    parts: Sequence[tuple[Stage, Summary]],
    extra: Stage,
    options: Options,
) -> Placement:
    """See `Layout.assemble`. Raises `UsageError` for a repeated key."""
    check_options(options, staged=True)
    filled = [(stage, summary) for stage, summary in parts if summary.rows]
    if len({summary.facts["kept"] for _, summary in filled}) > 1:
        raise UsageError("some rows have sequence numbers and others do not")
    version = NextVersion(options, resumed)
    tables = [
        _Staged(number, stage, written, version.order)
        for number, (stage, summary) in enumerate(filled)
        for written in summary.facts["tables"]
    ]
    if not tables and resumed is not None:
        return Placement((), Summary(0))
    assembler = _Assembler(version, extra)
    manifest = assembler.next.number()
    written_tables = assembler.run(tables)
    highest = max([summary.ids["last_sequence"] for _, summary in filled], default=0)
    assembler.take(assembler.next.finish(manifest, highest))
    lowest = min([summary.ids["first_sequence"] for _, summary in filled], default=None)
    ids = {} if lowest is None else {"first_sequence": lowest, "last_sequence": highest}
    warnings = dict.fromkeys(text for _, summary in filled for text in summary.warnings)
    rows = sum(table.rows for table in written_tables)
    summary = Summary(rows, ids, (*assembler.next.warnings(), *warnings))
    return Placement(tuple(assembler.renames), summary)


class _Assembler:
    """Assigns numbers and levels to the tables."""

    def __init__(self, version: NextVersion, extra: Stage) -> None:
        self.next, self.extra, self.options = version, extra, version.options
        self.renames: list[tuple[Stage, str, str]] = []

    def take(self, pieces: Iterable[Piece]) -> None:
        """Write new files."""
        names: list[str] = []
        self.extra.take(noted(pieces, names))
        self.renames += [(self.extra, name, name) for name in names]

    def run(self, tables: Sequence[_Staged]) -> list[WrittenTable]:
        """Return all tables, including those written from the existing logs."""
        self.take(self.next.write_logs(self.extra))
        if not tables:
            return []
        groups = list(_groups(tables))
        deep = self.next.deep(groups[0][0].first, max(table.last for table in groups[-1]))
        crowded = len(self.next.levels[0]) + len(groups) >= COMPACTION_TRIGGER
        if not deep and crowded and len(tables) > 1:
            written_tables = self._merged(tables, LARGEST)
        else:
            limit = self.options["max_file_size"] if deep else LARGEST
            written_tables = []
            for group in groups:
                written_tables += (
                    [self._as_it_is(group[0])] if len(group) == 1 else self._merged(group, limit)
                )
        self.next.add_tables(written_tables)
        return written_tables

    def _as_it_is(self, table: _Staged) -> WrittenTable:
        meta = table.written.meta
        number = self.next.number()
        self.renames.append((table.stage, table.name, table_name(number)))
        return WrittenTable(replace(meta, number=number), table.written.rows, table.written.largest_sequence)

    def _merged(self, tables: Sequence[_Staged], limit: int) -> list[WrittenTable]:
        runs: dict[int, list[_Staged]] = {}
        for staged in tables:
            runs.setdefault(staged.part, []).append(staged)
        window = min(max(_MEMORY // len(runs), _LEAST), _MOST)
        streams = [_stream(runs[part], window) for part in sorted(runs)]
        writer = self.next.writer(limit)
        last = self.options["on_duplicate"] == "last"
        self.take(written(writer, unique(merge(streams), last=last, twice=twice)))
        for staged in tables:
            staged.stage.drop(staged.name)
        return writer.tables


def _groups(tables: Sequence[_Staged]) -> Iterator[list[_Staged]]:
    """Group tables with overlapping key ranges, in key order."""
    group: list[_Staged] = []
    reach = b""
    for staged in sorted(tables, key=lambda staged: (staged.first, staged.part)):
        if group and staged.first > reach:
            yield group
            group = []
        reach = max(reach, staged.last) if group else staged.last
        group.append(staged)
    yield group


def _stream(tables: Sequence[_Staged], window: int) -> SortedRun:
    """Return the tables of one part, which are disjoint and in order, as a run."""
    return SortedRun(tables[0].first, tables[-1].last, partial(_rows, tables, window))


def _rows(tables: Sequence[_Staged], window: int) -> Iterator[pa.RecordBatch]:
    for staged in tables:
        for rows in read_table(staged.stage, staged.name, staged.written.meta.size, window):
            yield with_sort_keys(rows, staged.order)


def read_table(listing: Listing, name: str, size: int, step: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows (`ROWS`) of a sound table, reading about `step` bytes at a time."""
    codec = table.CODEC
    context = codec.context(name, Options(codec.options))
    read = ListedFile(listing, name, size).pread
    codec.prepare(read, size, context)
    at, length = 0, step
    while True:
        window = Window(read(at, min(length, size - at)), at, size)
        frames = codec.scan(window, 0, context)
        if frames.damage is not None or frames.faults:
            fault = frames.damage or frames.faults[0]
            raise LogwrightError(
                f"a staged table differs from what its task wrote: {fault.detail}",
                path=name,
                offset=fault.offset,
            )
        for decoded in codec.decode(window, frames, "rows", ROWS.names, context):
            arrays = [decoded.batch.column(field.name).cast(field.type) for field in ROWS]
            yield pa.RecordBatch.from_arrays(arrays, schema=ROWS)
        if not frames.need:
            return
        at, length = at + frames.stop, max(step, frames.need)
