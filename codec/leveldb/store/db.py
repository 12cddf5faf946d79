"""The layout `leveldb.db`: the directory of a database, and what its readers see.

Source of the rules: `DBImpl::Recover`, `DBImpl::RemoveObsoleteFiles` and `VersionSet::Recover` of LevelDB.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from logwright.codec.base import Match
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.layout import Layout
from logwright.codec.leveldb.check.database import ADVICE
from logwright.codec.leveldb.comparators import NAMES, comparator_of
from logwright.codec.leveldb.keys import TRAILER_SIZE
from logwright.codec.leveldb.names import (
    CURRENT,
    LOCK,
    FileName,
    FileType,
    log_name,
    old_table_name,
    parse,
    table_name,
)
from logwright.codec.leveldb.startup import start
from logwright.codec.leveldb.store import live
from logwright.codec.leveldb.store.builder import OPTIONS, DatabaseBuilder
from logwright.codec.leveldb.store.descriptor import Descriptor, read_descriptor
from logwright.codec.leveldb.store.facts import facts
from logwright.codec.leveldb.store.guess_comparator import UNKNOWN, guess
from logwright.codec.leveldb.store.place import place
from logwright.codec.leveldb.store.relatives import refuse
from logwright.codec.leveldb.store.resume import resume
from logwright.codec.leveldb.store.version import FileMetaData
from logwright.codec.option import STARTS, Option, Options, parse_text, used_by
from logwright.codec.store.build import Builder, Placement, Stage, Summary
from logwright.codec.store.listing import Entry, Listing, Plan, PlannedFile, Role
from logwright.codec.store.view import Group, Part

NAME = "leveldb.db"
LOG, MANIFEST, TABLE, CURRENT_CODEC = "leveldb.log", "leveldb.manifest", "leveldb.table", "leveldb.current"
_CODECS = {
    FileType.LOG: LOG,
    FileType.TABLE: TABLE,
    FileType.DESCRIPTOR: MANIFEST,
    FileType.CURRENT: CURRENT_CODEC,
}
_DIGITS = 20
"""So many digits have the names of Kafka's segments, which end in `.log` too."""

READ_OPTIONS = (
    Option(
        "comparator",
        None,
        "The comparator's name, where the manifest does not say it; by default the known one that the keys of the tables follow",
        parse_text,
    ),
    *used_by(STARTS, *start.OPTIONS),
)


@dataclass(frozen=True, slots=True)
class _File:
    """A file of the directory with what its name says."""

    entry: Entry
    named: FileName | None

    @property
    def number(self) -> int:
        return self.named.number if self.named is not None else 0

    @property
    def type(self) -> FileType | None:
        return self.named.type if self.named is not None else None

    @property
    def opened(self) -> bool:
        """Whether LevelDB looks for this table or log under this name: its parser takes more than it writes."""
        name, number = self.entry.name, self.number
        if self.type is FileType.TABLE:
            return name in (table_name(number), old_table_name(number))
        return self.type is FileType.LOG and name == log_name(number)


class LevelDB(Layout):
    """A database. LevelDB knows no other directory than its own, and ignores names there that it does not know."""

    name = NAME
    title = "LevelDB database: sorted tables, logs and a manifest"
    views = live.VIEWS
    default_view = "live"
    options = OPTIONS
    read_options = READ_OPTIONS
    leftovers_read = (TABLE, LOG)
    nouns = ("entry", "file")
    advice = ADVICE

    def recognise(self, listing: Listing) -> Match:
        files = [_File(entry, parse(entry.name)) for entry in listing.entries()]
        types = {one.type for one in files}
        if FileType.DESCRIPTOR in types:
            return Match.SURE if FileType.CURRENT in types else Match.NAME
        # A lone CURRENT could be anybody's, and so could a log.
        tables = FileType.TABLE in types
        logs = any(one.type is FileType.LOG and one.opened and len(one.entry.name) < _DIGITS for one in files)
        return Match.NAME if tables or (logs and FileType.CURRENT in types) else _alone(logs)

    # Reading

    def plan(self, listing: Listing, options: Options) -> Plan:
        """Hints: of a table `comparator`, its `level` (None where no manifest tells), and where a sound manifest tells `bounds`, its
        smallest and largest user key. The facts of a sound manifest are those
        that its last edit leaves; where it is not sound, `error` is what LevelDB would say, and all tables and logs count."""
        refuse(listing)
        found = read_descriptor(listing)
        return _Planner(listing, found, options).plan()

    def parts(self, listing: Listing, plan: Plan, view: str, options: Options) -> Sequence[Part | Group]:
        return live.parts(listing, plan, view)

    facts = staticmethod(facts)

    # Writing

    def locks(self) -> Sequence[str]:
        return (LOCK,)

    def order(self, names: Iterable[str]) -> Sequence[str]:
        """What a manifest names comes before it, and CURRENT, which names it, last (`SetCurrentFile`)."""
        return sorted(names, key=_written)

    def builder(
        self,
        listing: Listing | None,
        name: str,
        options: Options,
        *,
        staged: bool = False,
        extra: Stage | None = None,
    ) -> Builder:
        resumed = None if listing is None else resume(listing, options)
        return DatabaseBuilder(options, resumed, extra, staged=staged)

    def assemble(
        self,
        listing: Listing | None,
        name: str,
        parts: Sequence[tuple[Stage, Summary]],
        extra: Stage,
        options: Options,
    ) -> Placement:
        return place(None if listing is None else resume(listing, options), parts, extra, options, self.order)


def _alone(logs: bool) -> Match:
    return Match.MAYBE if logs else Match.NO


_ORDER = (FileType.TABLE, FileType.LOG, FileType.DESCRIPTOR, FileType.CURRENT)


def _written(name: str) -> tuple[int, int, str]:
    named = parse(name)
    if named is None or named.type not in _ORDER:
        return (-1, 0, name)
    return (_ORDER.index(named.type), named.number, name)


class _Planner:
    """Makes the plan of one directory."""

    def __init__(self, listing: Listing, found: Descriptor, options: Options) -> None:
        self.listing, self.found, self.version = listing, found, found.version
        self.files = [_File(entry, parse(entry.name)) for entry in listing.entries()]
        self.names = {one.entry.name for one in self.files}
        self.sound = found.error is None
        self.live = self.version.files
        self.gone = sorted(set(self.live) - {one.number for one in self.files if one.named is not None})
        """Tables that the manifest names, and no file has the number of."""
        self.faults: list[tuple[str, Fault]] = []
        wanted = options["comparator"]
        self.named = self.version.comparator or wanted
        self.comparator = self.named or guess(listing, self._tables())
        self.order = comparator_of(self.comparator)
        if wanted is not None and wanted != self.comparator:
            text = f"Invalid argument: {self.comparator} does not match existing comparator : {wanted}"
            self._fault("", text, Kind.LINK, system="LevelDB refuses to open")

    def _tables(self) -> list[tuple[str, int]]:
        """Names and sizes of all tables."""
        return [(one.entry.name, one.entry.size) for one in self.files if one.type is FileType.TABLE]

    def _fault(
        self,
        name: str,
        text: str,
        kind: Kind = Kind.LINK,
        severity: Severity = Severity.ERROR,
        system: str = "",
        at: int = 0,
    ) -> None:
        self.faults.append((name, Fault(NAME, at, 0, kind, text, severity, system)))

    def plan(self) -> Plan:
        if self.found.error is not None:
            where = f" (byte {self.found.position} of {self.found.file})" if self.found.file else ""
            text = f"LevelDB would not open it: {self.found.error}{where}; every table and log counts"
            if self.found.hint:
                text += f". {self.found.hint}"
            kind, severity = Kind.LINK, Severity.ERROR
            if self.found.unsupported:
                kind, severity = Kind.UNSUPPORTED, Severity.WARNING
            self._fault("", text, kind, severity, f"LevelDB refuses to open: {self.found.error}")
        planned = [self._planned(one) for one in self.files]
        if self.sound:
            self._missing()
        self._say_order()
        order = {file.name: self._rank(one, file.role) for one, file in zip(self.files, planned, strict=True)}
        planned.sort(key=lambda file: order[file.name])
        return Plan(tuple(planned), tuple(self.faults), self._facts(planned))

    def _say_order(self) -> None:
        """Name a comparator that is not LevelDB's own, and what the database needs."""
        if self.named is None and self.comparator == UNKNOWN:
            text = (
                f"the keys of the tables are in no order that is known here ({', '.join(NAMES)}), and no manifest names their comparator: "
                "rows come file by file, the newest value of each key. Pass --comparator NAME, the name that the application gives it"
            )
        elif self.named is None and not self.order.bytewise:
            text = f"no manifest names the comparator; the keys of the tables are in the order of {self.comparator}, which is assumed"
        elif not self.order.known:
            text = (
                f"the database needs the comparator {self.comparator}, whose order is not known here: rows come file by file, the newest "
                "value of each key. Only an application that has this comparator can open it"
            )
        else:
            return
        self._fault("", text, Kind.ORDER, Severity.INFO)

    def _rank(self, one: _File, role: Role) -> tuple[int, int, bytes, int, str]:
        """Tables by level, the newest of level 0 first, others by their keys; then logs; what is left over at the end."""
        name = one.entry.name
        if role in (Role.LEFTOVER, Role.FOREIGN):
            return (4, 0, b"", one.number, name)
        if name == CURRENT:
            return (2, 0, b"", 0, name)
        if name == self.found.manifest:
            return (2, 1, b"", 0, name)
        if one.type is FileType.TABLE:
            level, file = self.live.get(one.number, (7, None))
            key = b"" if level in (0, 7) or file is None else self.order.user(file.smallest[:-TRAILER_SIZE])
            return (0, level, key, -one.number, name)
        if one.type is FileType.LOG:
            return (1, 0, b"", one.number, name)
        return (3, 0, b"", one.number, name)

    def _planned(self, one: _File) -> PlannedFile:
        name, size = one.entry.name, one.entry.size
        if name == self.found.manifest:
            return PlannedFile(name, size, Role.DERIVED, MANIFEST, note="the manifest in use")
        if one.type is None:
            return PlannedFile(name, size, Role.FOREIGN, note="not LevelDB's, ignored by it")
        if one.type is FileType.CURRENT:
            return PlannedFile(name, size, Role.METADATA, CURRENT_CODEC)
        if one.type is FileType.TABLE:
            return self._table(one)
        if one.type is FileType.LOG:
            return self._log(one)
        if one.type in (FileType.LOCK, FileType.INFO_LOG):
            return PlannedFile(name, size, Role.METADATA)
        what = "a manifest that CURRENT does not name" if one.type is FileType.DESCRIPTOR else "temporary"
        return self._leftover(one, what)

    def _leftover(self, one: _File, what: str, *, removed: bool = True) -> PlannedFile:
        note = f"{what}; LevelDB deletes it when it opens the database" if removed else what
        if self.sound:
            self._fault(one.entry.name, note, severity=Severity.INFO)
        codec = None if one.type is None else _CODECS.get(one.type)
        return PlannedFile(one.entry.name, one.entry.size, Role.LEFTOVER, codec, self._hints(one), note)

    def _hints(self, one: _File) -> dict[str, Any]:
        if one.type is not FileType.TABLE:
            return {}
        level, file = self.live.get(one.number, (None, None))
        if file is None or not self.sound:
            return {"level": level, "comparator": self.comparator}
        bounds = file.smallest[:-TRAILER_SIZE], file.largest[:-TRAILER_SIZE]
        return {"level": level, "comparator": self.comparator, "bounds": bounds}

    def _table(self, one: _File) -> PlannedFile:
        name, size = one.entry.name, one.entry.size
        if not one.opened:
            text = f"LevelDB looks for {table_name(one.number)}, not for this name"
            return self._misnamed(one, text)
        if name == old_table_name(one.number) and table_name(one.number) in self.names:
            return self._leftover(
                one, f"{table_name(one.number)} is read, not this file of the same number", removed=False
            )
        note = ""
        if self.sound and one.number not in self.live:
            if not self.gone or one.number < (self.version.next_file_number or 0):
                return self._leftover(one, "the manifest does not name it")
            note = "newer than what the manifest says, which names tables that are gone"
        elif self.sound:
            self._size(name, size, self.live[one.number][1])
        return PlannedFile(name, size, Role.PRIMARY, TABLE, self._hints(one), note)

    def _size(self, name: str, size: int, known: FileMetaData) -> None:
        if size != known.size:
            text = f"{size} bytes, where the manifest has {known.size}"
            system = "LevelDB looks for the footer where the manifest says, and does not find it"
            self._fault(name, text, Kind.LENGTH, system=system)

    def _misnamed(self, one: _File, text: str) -> PlannedFile:
        self._fault(one.entry.name, text, severity=Severity.WARNING)
        codec = None if one.type is None else _CODECS.get(one.type)
        return PlannedFile(one.entry.name, one.entry.size, Role.LEFTOVER, codec, self._hints(one), text)

    def _log(self, one: _File) -> PlannedFile:
        number = one.number
        if not one.opened:
            text = f"LevelDB looks for {log_name(number)}, not for this name, and passes over it in silence"
            return self._misnamed(one, text)
        first, before = self.version.log_number or 0, self.version.prev_log_number or 0
        if self.sound and number < first and number != before:
            return self._leftover(one, f"older than log {first}, from which on logs are read")
        return PlannedFile(one.entry.name, one.entry.size, Role.PRIMARY, LOG)

    def _missing(self) -> None:
        there = {one.number for one in self.files if one.named is not None}
        readable = {one.number for one in self.files if one.type is FileType.TABLE and one.opened}
        gone = sorted(set(self.live) - there)
        if gone:
            text = f"Corruption: {len(gone)} missing files; e.g.: {self.listing.name}/{table_name(gone[0])}"
            self._fault("", text, system="LevelDB refuses to open")
        for number in sorted(set(self.live) & there - readable):
            text = f"IO error: {self.listing.name}/{table_name(number)}: No such file or directory"
            self._fault("", text, system="LevelDB opens, and its iterators end with this")

    def _facts(self, planned: Sequence[PlannedFile]) -> dict[str, Any]:
        version = self.version
        primary = [file for file in planned if file.role is Role.PRIMARY]
        tables = [file for file in primary if file.codec == TABLE]
        logs = [file for file in primary if file.codec == LOG]
        facts: dict[str, Any] = {"comparator": self.comparator, "manifest": self.found.manifest}
        if self.found.error is not None:
            facts["error"] = self.found.error
        facts |= {
            "log_number": version.log_number,
            "prev_log_number": version.prev_log_number,
            "next_file_number": version.next_file_number,
            "last_sequence": version.last_sequence,
            "levels": [
                {"level": level, "tables": len(files), "bytes": sum(file.size for file in files)}
                for level, files in enumerate(version.levels)
                if files
            ],
            "tables": len(tables),
            "table_bytes": sum(file.size for file in tables),
            "logs": len(logs),
            "log_bytes": sum(file.size for file in logs),
        }
        return facts


LAYOUT = LevelDB()
