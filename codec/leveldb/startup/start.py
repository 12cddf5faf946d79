"""Opening a database in thought: the verdict, what is on the disk afterwards, and what an iterator gives. See `codec.predict.Predicts`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from logwright.codec.fault import UsageError
from logwright.codec.leveldb.comparators import NAMES
from logwright.codec.leveldb.formats.table import write as encode
from logwright.codec.leveldb.keys import BYTEWISE, readable
from logwright.codec.leveldb.startup.db_impl import DBImpl, FromLog
from logwright.codec.leveldb.startup.iterator import Child, DBIter, Pieces
from logwright.codec.leveldb.startup.lost import Lost, lost
from logwright.codec.leveldb.startup.status import Status
from logwright.codec.leveldb.startup.table import MAIN, Reading, Table, TableFile, find
from logwright.codec.leveldb.store import live
from logwright.codec.leveldb.store.descriptor import read_descriptor
from logwright.codec.leveldb.store.version import FileMetaData
from logwright.codec.option import Option, Options, parse_bool
from logwright.codec.predict import Verdict
from logwright.codec.store.listing import Listing, Plan
from logwright.codec.store.overlay import Disk
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
        "A manifest of so many bytes is not appended to",
        low=1 << 20,
        high=1 << 30,
    ),
    *(
        _WRITING[name]
        for name in ("block_size", "block_restart_interval", "compression", "bloom_bits_per_key")
    ),
)
"""All that opening takes but for `comparator`, which reading takes as well."""


def version_of(asked: str | None) -> str:
    """The version asked about. Raises `UsageError`."""
    if asked is None or asked.lower() in ("", "leveldb", "true"):
        return VERSIONS[0]
    number = asked.lower().removeprefix("leveldb").strip(" -=v")
    for one in VERSIONS:
        if number == one or number.startswith(f"{one}."):
            return one
    raise UsageError(
        f"what LevelDB {asked!r} would do is not known",
        advice=f"Versions that can be asked about: {', '.join(VERSIONS)}",
    )


@dataclass(frozen=True)
class _Asked:
    """The directory asked about, and how what is undamaged in it is read."""

    listing: Listing
    parts: Callable[[], Sequence[Part | Group]]


class Opened:
    """A database after `DB::Open`. See `logwright.codec.predict.Opened`."""

    def __init__(
        self,
        disk: Disk,
        before: Verdict,
        database: DBImpl | None,
        reading: Reading,
        asked: _Asked,
        others: Sequence[Part | Group] = (),
    ) -> None:
        self.after, self._before, self._database, self._reading = disk, before, database, reading
        self._asked, self._others = asked, others

    @cached_property
    def verdict(self) -> Verdict:
        """All that is there is read for it."""
        verdict, disk = self._before, self.after
        if self._database is not None and not self._others:
            iterator = self.iterator()
            verdict = _iterated(verdict, iterator)
            self._reading.doubtful |= iterator.backwards
        gone = self._gone(verdict)
        return replace(
            verdict,
            rows_lost=None if gone is None else gone.rows,
            lost=() if gone is None else tuple(gone.ranges),
            truncates=disk.truncates,
            removes=tuple(disk.removes),
            rewrites=tuple(disk.rewrites),
            creates=tuple(disk.creates),
        )

    def _gone(self, verdict: Verdict) -> Lost | None:
        """What is not served although it is undamaged; None where that is not known."""
        if self._others:
            return None
        if self._database is not None and verdict.error is None and not self._doubtful():
            return Lost()
        groups = [part for part in self._asked.parts() if isinstance(part, Group)]
        return lost(self._asked.listing, groups, self.serve(VIEW, ("key", "sequence")))

    def _doubtful(self) -> bool:
        """Whether something may be missing that LevelDB says nothing of."""
        database = self._database
        assert database is not None
        return bool(
            not self._reading.verify_checksums
            or database.info_log
            or database.silent
            or database.overwritten
            or self._reading.doubtful
        )

    def parts(self, view: str) -> Sequence[Part | Group]:
        """Only where the order of the keys is not known: then no merge like LevelDB's can be made."""
        return self._others

    def serves(self, view: str) -> bool:
        """Raises `UsageError` for a view that nobody has of a database in use."""
        if view != VIEW:
            raise UsageError(f"LevelDB serves no view {view!r}", advice=f"It serves {VIEW!r}")
        return not self._others

    def iterator(self) -> DBIter:
        """`DB::NewIterator`."""
        assert self._database is not None
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

    def serve(self, view: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if self._database is not None:
            yield from self.iterator().rows(columns)

    def _memory(self, data: bytes, origin: FromLog) -> Callable[[int], Pieces]:
        """What stays in memory, as a table that is in no directory."""

        def pieces(target: int) -> Pieces:
            disk = Disk(self.after)
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
        assert self._database is not None
        made = self._database.made.get(one.number)
        table = cache.get(one.number)
        if table is None:
            # LevelDB has opened the tables that it made: under their numbers these are the ones that are found.
            size = one.size if made is None else made.size
            try:
                table = Table(find(self.after, one.number), size, self._reading)
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


def start(
    listing: Listing, plan: Plan, options: Options, *, version: str | None, clean: bool | None
) -> Opened:
    """See `codec.capability.Start`."""
    return open_database(
        listing, options, version=version, clean=clean, parts=lambda: live.parts(listing, plan, VIEW)
    )


def open_database(
    listing: Listing,
    options: Options,
    *,
    version: str | None,
    clean: bool | None,
    parts: Callable[[], Sequence[Part | Group]] = tuple,
) -> Opened:
    """Simulate `DB::Open`. `parts` gives those of the view of all that is undamaged."""
    release = version_of(version)
    disk = Disk(listing)
    named = read_descriptor(listing).version.comparator
    comparator = options["comparator"] or (named if named in NAMES else None) or BYTEWISE
    known = comparator in NAMES
    database = DBImpl(disk, options, comparator, empty_pointers=release == "1.22")
    reading = Reading(options["verify_checksums"], options["paranoid_checks"], release)
    asked = _Asked(listing, parts)
    verdict = Verdict("leveldb", release, bool(clean), "" if clean is None else "option")
    try:
        database.open()
    except Status as status:
        verdict = replace(
            verdict,
            opens=False,
            scope="database",
            error=status.message,
            error_class=status.code,
            rows=0,
            serves={"first": None, "last": None, "stops_at": None},
            warnings=(*database.info_log, *_needs(named, comparator)),
        )
        return Opened(disk, verdict, None, reading, asked)
    why = database.versions.compaction
    verdict = replace(
        verdict,
        warnings=(
            *database.info_log,
            *(
                f"{name} is in use, and overwritten: the manifest gives its number out again"
                for name in database.overwritten
            ),
            *(() if why is None else (f"a compaction starts at once: {why}",)),
            *(
                ()
                if known
                else (f"the order of comparator {comparator} is not known here: rows come file by file",)
            ),
        ),
    )
    return Opened(disk, verdict, database, reading, asked, () if known else parts())


def _needs(named: str | None, comparator: str) -> tuple[str, ...]:
    """The comparator that the database is to be opened with, where it was another one."""
    if named is None or named == comparator:
        return ()
    return (
        f"the database was made with the comparator {named}; pass --comparator {named} to see what an application that has it does",
    )


def _iterated(verdict: Verdict, iterator: DBIter) -> Verdict:
    """With what an iterator gives."""
    rows, first, last = iterator.count()
    status = iterator.status
    return replace(
        verdict,
        rows=rows,
        error=None if status is None else status.message,
        error_class=None if status is None else status.code,
        serves={
            "first": None if first is None else readable(first),
            "last": None if last is None else readable(last),
            # It passes over what it can't read, and says so at its end.
            "stops_at": None,
        },
    )
