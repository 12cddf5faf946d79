"""Simulate the opening of a database: what is on the disk afterwards, and what an iterator gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa

from logwright.codec.engine.startup import Answers, LostRows, Refused, Served, Settings, Startup, SystemRepair
from logwright.codec.fault import UsageError
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
from logwright.codec.leveldb.store.descriptor import read_descriptor
from logwright.codec.leveldb.store.version import FileMetaData
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
        "Opening fails at damage in a log, and indexes are checked before they are believed",
        parse_bool,
    ),
    Option(
        "verify_checksums",
        True,
        "Iterators check the blocks that they read; LevelDB's own default is false",
        parse_bool,
    ),
    Option("create_if_missing", False, "Without CURRENT a new database is begun", parse_bool),
    Option("error_if_exists", False, "A database that is there is not opened", parse_bool),
    Option("reuse_logs", False, "The last log and the manifest are appended to", parse_bool),
    Option(
        "write_buffer_size",
        4 << 20,
        "Bytes in memory at which what a log holds is written to a table",
        low=64 << 10,
        high=1 << 30,
    ),
    Option(
        "max_file_size",
        2 << 20,
        "A manifest of this many bytes or more is not appended to",
        low=1 << 20,
        high=1 << 30,
    ),
    *(
        _WRITING[name]
        for name in ("block_size", "block_restart_interval", "compression", "bloom_bits_per_key")
    ),
)
"""All that opening takes but for `comparator`, which reading takes as well."""


class ServedDatabase(Served):
    """A database after `DB::Open`. Without a known order of keys no merge like LevelDB's can be made: rows come file by file."""

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
                f"{name} is in use, and overwritten: the manifest gives its number out again"
                for name in database.overwritten
            ),
            *([] if why is None else [f"a compaction starts at once: {why}"]),
        ]
        if not self._ordered:
            warnings.append(
                f"the order of comparator {database.order.name} is not known here: rows come file by file"
            )
            return Answers(None, {}, warnings=warnings)
        iterator = self.iterator()
        rows, first, last = iterator.count()
        self._reading.doubtful |= iterator.backwards
        status = iterator.status
        serves = {
            "first": None if first is None else readable(first),
            "last": None if last is None else readable(last),
            # An iterator passes over what it can't read, and says so at its end.
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
        """Whether something may be missing that LevelDB says nothing of."""
        database = self._database
        return bool(
            not self._reading.verify_checksums
            or database.info_log
            or database.silent
            or database.overwritten
            or self._reading.doubtful
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
                f"Iterators end with an error ({repair.verdict.error}), the last key before it is {where}."
            )

    def iterator(self) -> DBIter:
        """`DB::NewIterator`."""
        versions = self._database.versions
        children = []
        # Tables are kept open by their numbers alone: that matters where a number comes more than once.
        numbers = Counter(one.number for files in versions.current.levels for one in files)
        cache: dict[int, Table | None] = {number: None for number, times in numbers.items() if times > 1}
        if self._database.mem is not None:
            children.append(Child(self._memory(*self._database.mem)))
        for level, files in enumerate(versions.current.levels):
            groups = [[one] for one in files] if level == 0 else [files] if files else []
            children += [Child(self._files(group, level, cache)) for group in groups]
        return DBIter(children, versions.last_sequence, self._database.order)

    def _memory(self, data: bytes, origin: FromLog) -> Callable[[int], Pieces]:
        """What stays in memory, as a table that is in no directory."""

        def pieces(target: int) -> Pieces:
            disk = Overlay(self.overlay)
            disk.put("", data)
            yield from _pieces(Table(TableFile(disk, ""), len(data), self._reading), 0, 0, origin, target)

        return pieces

    def _files(
        self, files: Sequence[FileMetaData], level: int, cache: dict[int, Table | None]
    ) -> Callable[[int], Pieces]:
        """Tables one after the other (`Version::NewConcatenatingIterator`), or one of level 0."""

        def pieces(target: int) -> Pieces:
            for one in files:
                yield from self._pieces(one, level, target, cache)

        return pieces

    def _pieces(self, one: FileMetaData, level: int, target: int, cache: dict[int, Table | None]) -> Pieces:
        """The entries of a table, then what went wrong with it."""
        made = self._database.made.get(one.number)
        table = cache.get(one.number)
        if table is None:
            # LevelDB has opened the tables that it made: under their numbers these are the ones that are found.
            size = one.size if made is None else made.size
            try:
                table = Table(find(self.overlay, one.number), size, self._reading)
            except Status as status:
                yield status
                return
        if one.number in cache:
            cache[one.number] = table
        yield from _pieces(table, one.number, level, made, target)


def _pieces(table: Table, number: int, level: int, made: FromLog | None, target: int) -> Pieces:
    first: Status | None = None
    row = 0
    for piece in table.chunks(
        (number if made is None else made.log, level if made is None else None), target
    ):
        if isinstance(piece, Status):
            first = first or piece
            continue
        if made is not None:
            piece = replace(piece, position=made.position[row : row + piece.rows])
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
    database = DBImpl(overlay, options, comparator, empty_pointers=settings.version == "1.22")
    reading = Reading(options["verify_checksums"], options["paranoid_checks"], settings.version)
    try:
        database.open()
    except Status as status:
        return Refused(
            "database",
            status.message,
            status.code,
            {"first": None, "last": None, "stops_at": None},
            (*database.info_log, *_other_comparator(named, comparator)),
            lost=lambda: lost(overlay.below, settings.plan, ()),
        )
    return ServedDatabase(overlay, settings.plan, database, reading)


def _other_comparator(named: str | None, comparator: str) -> tuple[str, ...]:
    """Name the comparator that the database was made with, where it was opened with another one."""
    if named is None or named == comparator:
        return ()
    return (
        f"the database was made with the comparator {named}; pass --comparator {named} to see what an application that has it does",
    )


STARTUP = Startup(
    "leveldb",
    VERSIONS,
    start,
    refusal="LevelDB does not open the database: {reason}",
    advice="Strategy salvage keeps every sound block and batch, and leaves what LevelDB opens",
)
