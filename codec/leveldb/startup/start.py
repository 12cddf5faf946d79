"""Simulate opening a database: the files afterwards, and what an iterator returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa

from logwright.codec.engine.startup import Answers, LostRows, Refused, Served, Settings, Startup, SystemRepair
from logwright.codec.fault import Severity, UsageError
from logwright.codec.leveldb.comparators import NAMES
from logwright.codec.leveldb.formats.table import write as encode
from logwright.codec.leveldb.keys import BYTEWISE, readable
from logwright.codec.leveldb.names import INFO_LOG, OLD_INFO_LOG
from logwright.codec.leveldb.startup.db_impl import DBImpl, FromLog
from logwright.codec.leveldb.startup.iterator import Child, DBIter, Pieces
from logwright.codec.leveldb.startup.lost import lost, removed
from logwright.codec.leveldb.startup.status import Status
from logwright.codec.leveldb.startup.table import MAIN, Reading, Table, TableFile, find
from logwright.codec.leveldb.store import live
from logwright.codec.leveldb.store.version import FileMetaData, read_descriptor
from logwright.codec.option import Option, parse_bool
from logwright.codec.store.listing import Plan
from logwright.codec.store.overlay import Overlay
from logwright.codec.store.view import Group, Part

VERSIONS = (MAIN, "1.23", "1.22")
VIEW = "live"

_WRITING = {option.name: option for option in encode.OPTIONS}
OPTIONS = (
    Option(
        "paranoid_checks",
        False,
        "Fail to open if a log is damaged, and check indexes before using them",
        parse_bool,
    ),
    Option(
        "verify_checksums",
        True,
        "Let iterators verify the blocks they read; LevelDB's own default is false",
        parse_bool,
    ),
    Option("create_if_missing", False, "Create a database if there is no CURRENT", parse_bool),
    Option("error_if_exists", False, "Refuse to open an existing database", parse_bool),
    Option("reuse_logs", False, "Append to the last log and to the manifest", parse_bool),
    Option(
        "write_buffer_size",
        4 << 20,
        "Bytes in memory at which the contents of a log are written to a table",
        low=64 << 10,
        high=1 << 30,
    ),
    Option(
        "max_file_size",
        2 << 20,
        "Size in bytes from which a manifest is no longer appended to",
        low=1 << 20,
        high=1 << 30,
    ),
    *(
        _WRITING[name]
        for name in ("block_size", "block_restart_interval", "compression", "bloom_bits_per_key")
    ),
)
"""All options of opening except `comparator`, which reading takes as well."""


class ServedDatabase(Served):
    """A database after `DB::Open`. If the comparator is unknown, LevelDB's merge cannot be simulated: rows come file by file."""

    def __init__(self, overlay: Overlay, plan: Plan, database: DBImpl, reading: Reading) -> None:
        self.overlay, self.plan, self._database, self._reading = overlay, plan, database, reading
        self._ordered = database.order.known

    def answers(self) -> Answers:
        return self._answers

    @cached_property
    def _answers(self) -> Answers:
        database = self._database
        why = database.versions.compaction
        warnings = [
            *database.info_log,
            *(
                f"{name} is in use but gets overwritten: the manifest assigns its number to a new file"
                for name in database.overwritten
            ),
            *([] if why is None else [f"a compaction starts at once: {why}"]),
        ]
        if not self._ordered:
            warnings.append(f"unknown comparator {database.order.name}: rows come file by file")
            return Answers(None, {}, warnings=warnings)
        iterator = self.iterator()
        rows, first, last = iterator.count()
        self._reading.doubtful |= iterator.backwards
        status = iterator.status
        serves = {
            "first": None if first is None else readable(first),
            "last": None if last is None else readable(last),
            # An iterator skips what it cannot read and reports it at its end.
            "stops_at": None,
        }
        if status is None:
            return Answers(rows, serves, warnings=warnings)
        return Answers(rows, serves, status.message, status.code, warnings)

    def lost(self) -> Iterable[LostRows] | None:
        if not self._ordered:
            return None
        if self._answers.error is None and not self._doubtful():
            return ()
        return lost(self.overlay.below, self.plan, self.rows(VIEW, ("key", "sequence")))

    def _doubtful(self) -> bool:
        """Return whether rows may be missing without an error from LevelDB."""
        database = self._database
        return bool(
            not self._reading.verify_checksums
            or database.info_log
            or database.silent
            or database.overwritten
            or self._reading.doubtful
            or any(fault.severity is Severity.ERROR for _, fault in self.plan.faults)
        )

    def parts(self, view: str) -> Sequence[Part | Group] | None:
        if view != VIEW:
            raise UsageError(f"LevelDB serves no view {view!r}", advice=f"It serves {VIEW!r}")
        return None if self._ordered else live.parts(self.overlay.below, self.plan, VIEW)

    def rows(self, view: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from self.iterator().rows(columns)

    def settle(self, repair: SystemRepair) -> None:
        for name in (INFO_LOG, OLD_INFO_LOG):
            repair.overlay.restore(name)
        repair.cut += removed(repair.overlay, repair.plan)
        if repair.verdict.error:
            where = repair.verdict.serves["stops_at"]
            repair.notes.append(
                f"Iterators end with an error ({repair.verdict.error}). The last key before it is {where}."
            )

    def iterator(self) -> DBIter:
        """`DB::NewIterator`."""
        versions = self._database.versions
        children = []
        # The table cache is keyed by number alone, which matters if a number occurs more than once.
        numbers = Counter(file.number for files in versions.current.levels for file in files)
        cache: dict[int, Table | None] = {number: None for number, times in numbers.items() if times > 1}
        if self._database.mem is not None:
            children.append(Child(self._memory(*self._database.mem)))
        for level, files in enumerate(versions.current.levels):
            groups = [[file] for file in files] if level == 0 else [files] if files else []
            children += [Child(self._files(group, level, cache)) for group in groups]
        return DBIter(children, versions.last_sequence, self._database.order)

    def _memory(self, data: bytes, origin: FromLog) -> Callable[[int], Pieces]:
        """Return the memtable kept from a log, as a table that is in no file."""

        def pieces(target: int) -> Pieces:
            disk = Overlay(self.overlay)
            disk.put("", data)
            yield from _pieces(Table(TableFile(disk, ""), len(data), self._reading), 0, 0, origin, target)

        return pieces

    def _files(
        self, files: Sequence[FileMetaData], level: int, cache: dict[int, Table | None]
    ) -> Callable[[int], Pieces]:
        """Return tables one after the other (`Version::NewConcatenatingIterator`), or one table of level 0."""

        def pieces(target: int) -> Pieces:
            for file in files:
                yield from self._pieces(file, level, target, cache)

        return pieces

    def _pieces(self, file: FileMetaData, level: int, target: int, cache: dict[int, Table | None]) -> Pieces:
        """Yield the entries of a table, then its error."""
        origin = self._database.tables_from_logs.get(file.number)
        table = cache.get(file.number)
        if table is None:
            # LevelDB has the tables that it wrote in its cache, under these numbers.
            size = file.size if origin is None else origin.size
            try:
                table = Table(find(self.overlay, file.number), size, self._reading)
            except Status as status:
                yield status
                return
        if file.number in cache:
            cache[file.number] = table
        yield from _pieces(table, file.number, level, origin, target)


def _pieces(table: Table, number: int, level: int, origin: FromLog | None, target: int) -> Pieces:
    first: Status | None = None
    row = 0
    for piece in table.chunks(
        (number if origin is None else origin.log, level if origin is None else None), target
    ):
        if isinstance(piece, Status):
            first = first or piece
            continue
        if origin is not None:
            piece = replace(piece, position=origin.position[row : row + piece.rows])
            row += piece.rows
        yield piece
    status = table.index_status or first
    if status is not None:
        yield status


def start(overlay: Overlay, settings: Settings) -> ServedDatabase | Refused:
    """Follow `DB::Open`. See `codec.engine.startup.Start`."""
    options = settings.options
    named = read_descriptor(overlay.below).version.comparator
    comparator = options["comparator"] or (named if named in NAMES else None) or BYTEWISE
    database = DBImpl(overlay, options, comparator, empty_keys=settings.version == "1.22")
    reading = Reading(options["verify_checksums"], options["paranoid_checks"], settings.version)
    try:
        database.open()
    except Status as status:
        return Refused(
            None,
            status.message,
            status.code,
            warnings=(*database.info_log, *_other_comparator(named, comparator)),
            lost=lambda: lost(overlay.below, settings.plan, ()),
        )
    return ServedDatabase(overlay, settings.plan, database, reading)


def _other_comparator(named: str | None, comparator: str) -> tuple[str, ...]:
    """Name the comparator that the database was created with, if another one opened it."""
    if named is None or named == comparator:
        return ()
    return (
        f"the database was created with the comparator {named}; pass --comparator {named} to simulate an application that has it",
    )


STARTUP = Startup(
    "leveldb",
    VERSIONS,
    start,
    refusal="LevelDB does not open the database: {reason}",
    advice="Strategy salvage keeps every undamaged block and batch; LevelDB opens the result",
)
