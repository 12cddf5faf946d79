"""The layout `leveldb.db`: the directory of a database, and its views.

Source of the rules: `DBImpl::Recover`, `DBImpl::RemoveObsoleteFiles` and `VersionSet::Recover` of LevelDB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from logwright.codec.base import Match
from logwright.codec.fault import Fault, Kind, LogwrightError, Severity
from logwright.codec.frames.walk import Hole, walk_listed
from logwright.codec.layout import Layout
from logwright.codec.leveldb.check.database import ADVICE
from logwright.codec.leveldb.comparators import NAMES, comparator_of
from logwright.codec.leveldb.formats.table import codec as table
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
from logwright.codec.leveldb.store.assemble import assemble
from logwright.codec.leveldb.store.builder import OPTIONS, DatabaseBuilder
from logwright.codec.leveldb.store.contents import KINDS, by_contents, has_footer
from logwright.codec.leveldb.store.facts import facts
from logwright.codec.leveldb.store.guess_comparator import UNKNOWN, guess
from logwright.codec.leveldb.store.missing import renamed_tables
from logwright.codec.leveldb.store.newer import newer_files
from logwright.codec.leveldb.store.relatives import refuse
from logwright.codec.leveldb.store.resume import resume
from logwright.codec.leveldb.store.version import Descriptor, read_descriptor
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
"""Number of digits in the names of Kafka's segments, which end in `.log` too."""

READ_OPTIONS = (
    Option(
        "comparator",
        None,
        "Name of the comparator, if the manifest does not record it; default: the known one that the tables' keys are ordered by",
        parse_text,
    ),
    *used_by(STARTS, *start.OPTIONS),
)


@dataclass(frozen=True, slots=True)
class _File:
    """A file of the directory and what its name says."""

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
        """Whether LevelDB looks for this table or log under this name. Its parser accepts more names than it writes."""
        name, number = self.entry.name, self.number
        if self.type is FileType.TABLE:
            return name in (table_name(number), old_table_name(number))
        return self.type is FileType.LOG and name == log_name(number)


class LevelDB(Layout):
    """A database. LevelDB uses a single directory and ignores unknown names in it."""

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
        types = {file.type for file in files}
        if FileType.DESCRIPTOR in types:
            return Match.SURE if FileType.CURRENT in types else Match.NAME
        # CURRENT alone, or a log alone, may belong to another system.
        tables = FileType.TABLE in types
        logs = any(
            file.type is FileType.LOG and file.opened and len(file.entry.name) < _DIGITS for file in files
        )
        if tables or (logs and FileType.CURRENT in types):
            return Match.NAME
        return Match.MAYBE if logs else Match.NO

    # Reading

    def plan(self, listing: Listing, options: Options) -> Plan:
        """Hints of a table: `comparator`, its `level` (None without a manifest), and from a sound manifest `bounds`, its smallest and
        largest user key.

        The facts are the state after the last edit of a sound manifest. If it is not sound, `error` is LevelDB's error, and all tables and
        logs are read.
        """
        refuse(listing)
        descriptor = read_descriptor(listing)
        return _Planner(listing, descriptor, options).plan()

    def parts(self, listing: Listing, plan: Plan, view: str, options: Options) -> Sequence[Part | Group]:
        return live.parts(listing, plan, view)

    facts = staticmethod(facts)

    # Writing

    def locks(self) -> Sequence[str]:
        return (LOCK,)

    def order(self, names: Iterable[str]) -> Sequence[str]:
        """Write files before the manifest that names them, and CURRENT, which names the manifest, last (`SetCurrentFile`)."""
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
        resumed = None if listing is None else resume(listing, options)
        return assemble(resumed, parts, extra, options).ordered(self.order)


_ORDER = (FileType.TABLE, FileType.LOG, FileType.DESCRIPTOR, FileType.CURRENT)


def _written(name: str) -> tuple[int, int, str]:
    named = parse(name)
    if named is None or named.type not in _ORDER:
        return (-1, 0, name)
    return (_ORDER.index(named.type), named.number, name)


class _Planner:
    """Plans one directory."""

    def __init__(self, listing: Listing, descriptor: Descriptor, options: Options) -> None:
        self.listing, self.descriptor, self.version = listing, descriptor, descriptor.version
        self.files = [_File(entry, parse(entry.name)) for entry in listing.entries()]
        self.names = {file.entry.name for file in self.files}
        self.sound = descriptor.error is None
        self.live = self.version.files
        self.there = {file.number for file in self.files if file.named is not None}
        """The numbers of all files."""
        self.gone = sorted(set(self.live) - self.there)
        """Tables that the manifest names but that have no file."""
        self.newer: Mapping[str, int] = {}
        """Files that are newer than the manifest, with their highest sequence numbers."""
        self.contents: Mapping[str, FileType] = {}
        """What misnamed files not in use are."""
        if self.sound:
            # Reading the files reports that one is gone, as in a running system, or cannot be read.
            with suppress(LogwrightError):
                self._find_newer()
        self.faults: list[tuple[str, Fault]] = []
        requested = options["comparator"]
        self.named = self.version.comparator or requested
        tables = [(file.entry.name, file.entry.size) for file in self.files if file.type is FileType.TABLE]
        self.comparator = self.named or guess(listing, tables)
        self.order = comparator_of(self.comparator)
        self.renamed: Mapping[str, int] = {}
        """Tables in use under other names, with their right numbers."""
        if self.sound:
            with suppress(LogwrightError):
                self.renamed = renamed_tables(listing, self.version, self.order)
        if requested is not None and requested != self.comparator:
            text = f"Invalid argument: {self.comparator} does not match existing comparator : {requested}"
            self._fault("", text, Kind.LINK, system="LevelDB refuses to open")

    def _find_newer(self) -> None:
        used = {
            file.entry.name for file in self.files if file.type is FileType.TABLE and file.number in self.live
        }
        named, contents = by_contents(self.listing, {*used, CURRENT, self.descriptor.manifest or ""})
        self.newer, self.contents = newer_files(self.listing, self.version, named), contents

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
        known = self.descriptor
        if known.error is not None:
            where = f" (byte {known.position} of {known.file})" if known.file else ""
            text = f"LevelDB would not open it: {known.error}{where}; reading all tables and logs"
            if known.hint:
                text += f". {known.hint}"
            kind, severity = Kind.LINK, Severity.ERROR
            if known.unsupported:
                kind, severity = Kind.UNSUPPORTED, Severity.WARNING
            self._fault("", text, kind, severity, f"LevelDB refuses to open: {known.error}")
        planned = [self._planned(file) for file in self.files]
        if self.sound:
            self._missing()
        self._report_comparator()
        ranks = {
            plan.name: self._rank(file, plan.role) for file, plan in zip(self.files, planned, strict=True)
        }
        planned.sort(key=lambda plan: ranks[plan.name])
        return Plan(tuple(planned), tuple(self.faults), self._facts(planned))

    def _report_comparator(self) -> None:
        """Report a comparator other than LevelDB's own, and what the database needs."""
        if self.named is None and self.comparator == UNKNOWN:
            text = (
                f"the keys of the tables are in no known order ({', '.join(NAMES)}), and no manifest names their comparator: "
                "rows come file by file, the newest value of each key. Pass --comparator NAME with the application's comparator"
            )
        elif self.named is None and not self.order.bytewise:
            text = f"no manifest names the comparator; assuming {self.comparator}, since the keys of the tables are in its order"
        elif not self.order.known:
            text = (
                f"the database needs the comparator {self.comparator}, whose order is unknown: rows come file by file, the newest "
                "value of each key. Only an application that has this comparator can open it"
            )
        else:
            return
        self._fault("", text, Kind.ORDER, Severity.INFO)

    def _rank(self, file: _File, role: Role) -> tuple[int, int, bytes, int, str]:
        """Sort key of a file: tables by level, in level 0 the newest first, else by key; then logs; leftover files last."""
        name = file.entry.name
        if role in (Role.LEFTOVER, Role.FOREIGN):
            return (4, 0, b"", file.number, name)
        if name == CURRENT:
            return (2, 0, b"", 0, name)
        if name == self.descriptor.manifest:
            return (2, 1, b"", 0, name)
        if file.type is FileType.TABLE or name in self.renamed:
            number = self.renamed.get(name, file.number)
            level, meta = self.live.get(number, (7, None))
            key = b"" if level in (0, 7) or meta is None else self.order.user(meta.smallest[:-TRAILER_SIZE])
            return (0, level, key, -number, name)
        if file.type is FileType.LOG:
            return (1, 0, b"", file.number, name)
        return (3, 0, b"", file.number, name)

    def _planned(self, file: _File) -> PlannedFile:
        name, size = file.entry.name, file.entry.size
        if name == self.descriptor.manifest:
            return PlannedFile(name, size, Role.DERIVED, MANIFEST, note="the manifest in use")
        if name in self.renamed:
            return self._renamed(file)
        if name in self.newer:
            return self._newer(file)
        if file.type is None:
            return PlannedFile(name, size, Role.FOREIGN, note="not a LevelDB file, ignored by it")
        if file.type is FileType.CURRENT:
            return PlannedFile(name, size, Role.METADATA, CURRENT_CODEC)
        if file.type is FileType.TABLE:
            return self._table(file)
        if file.type is FileType.LOG:
            return self._log(file)
        if file.type in (FileType.LOCK, FileType.INFO_LOG):
            return PlannedFile(name, size, Role.METADATA)
        note = "a manifest that CURRENT does not name" if file.type is FileType.DESCRIPTOR else "temporary"
        return self._leftover(file, note)

    def _leftover(self, file: _File, reason: str, *, removed: bool = True) -> PlannedFile:
        note = f"{reason}; LevelDB deletes it when it opens the database" if removed else reason
        if self.sound:
            self._fault(file.entry.name, note, severity=Severity.INFO)
        return self._unused(file, note)

    def _unused(self, file: _File, note: str) -> PlannedFile:
        codec = None if file.type is None else _CODECS.get(file.type)
        return PlannedFile(file.entry.name, file.entry.size, Role.LEFTOVER, codec, self._hints(file), note)

    def _hints(self, entry: _File) -> dict[str, Any]:
        if entry.type is not FileType.TABLE:
            return {}
        level, file = self.live.get(entry.number, (None, None))
        if file is None or not self.sound:
            return {"level": level, "comparator": self.comparator}
        bounds = file.smallest[:-TRAILER_SIZE], file.largest[:-TRAILER_SIZE]
        return {"level": level, "comparator": self.comparator, "bounds": bounds}

    def _table(self, file: _File) -> PlannedFile:
        name, size = file.entry.name, file.entry.size
        if not file.opened:
            text = f"LevelDB looks for {table_name(file.number)}, not for this name"
            return self._misnamed(file, text)
        if name == old_table_name(file.number) and table_name(file.number) in self.names:
            return self._leftover(
                file, f"{table_name(file.number)} is read, not this file of the same number", removed=False
            )
        note = ""
        if self.sound and file.number not in self.live:
            if file.number < (self.version.next_file_number or 0) or not self._lacks_entries:
                return self._leftover(file, "not named by the manifest")
            note = "newer than the manifest, which names missing or damaged tables"
        elif self.sound:
            known = self.live[file.number][1]
            if size != known.size:
                text = f"the file has {size} bytes, but the manifest says {known.size}"
                system = "LevelDB looks for the footer where the manifest says and does not find it"
                if size > known.size and self._ends_at(name, known.size):
                    text += ": the rest belongs to another file"
                    system = "LevelDB reads the table up to there"
                self._fault(name, text, Kind.LENGTH, system=system)
        return PlannedFile(name, size, Role.PRIMARY, TABLE, self._hints(file), note)

    @cached_property
    def _lacks_entries(self) -> bool:
        """Whether tables in use are missing or damaged. As in a repair, tables that an unfinished compaction wrote may have their entries."""
        if not set(self.gone) <= set(self.renamed.values()):
            return True
        used = (
            file
            for file in self.files
            if file.type is FileType.TABLE and file.opened and file.number in self.live
        )
        return any(
            isinstance(step, Hole)
            for file in used
            for step in walk_listed(self.listing, file.entry.name, file.entry.size, table.CODEC)
        )

    def _ends_at(self, name: str, size: int) -> bool:
        try:
            return has_footer(self.listing, name, size)
        except LogwrightError:
            return False

    def _misnamed(self, file: _File, text: str) -> PlannedFile:
        self._fault(file.entry.name, text, severity=Severity.WARNING)
        return self._unused(file, text)

    def _log(self, file: _File) -> PlannedFile:
        number = file.number
        if not file.opened:
            text = f"LevelDB looks for {log_name(number)}, not for this name, and silently skips it"
            return self._misnamed(file, text)
        first, before = self.version.log_number or 0, self.version.prev_log_number or 0
        if self.sound and number < first and number != before:
            return self._leftover(file, f"older than log {first}, the first one that is read")
        return PlannedFile(file.entry.name, file.entry.size, Role.PRIMARY, LOG)

    def _renamed(self, file: _File) -> PlannedFile:
        number = self.renamed[file.entry.name]
        text = f"it is {table_name(number)}, which the manifest names: it has the same size and the same keys"
        self._fault(file.entry.name, text, system="LevelDB looks for that name")
        hints = self._hints(_File(file.entry, FileName(FileType.TABLE, number)))
        return PlannedFile(file.entry.name, file.entry.size, Role.PRIMARY, TABLE, hints, text)

    def _newer(self, file: _File) -> PlannedFile:
        """Return a file that is newer than the manifest, which would have LevelDB delete it."""
        name = file.entry.name
        kind = self.contents.get(name, file.type)
        assert kind is not None
        text = (
            f"it has sequence numbers up to {self.newer[name]}, but the manifest, which does not use this file, ends at "
            f"{self.version.last_sequence or 0}, and no log in use has all of them: "
        )
        if kind is file.type:
            text += "a log is damaged, or the manifest is older than the file or another database's"
        else:
            text += f"it is {KINDS[kind]} under another name"
        system = "LevelDB deletes the file when it opens the database"
        if file.type is None:
            system = "LevelDB ignores the file"
        self._fault(name, text, system=system)
        hints = self._hints(file) if kind is file.type else {}
        if kind is FileType.TABLE:
            hints = {"level": None, "comparator": self.comparator}
        return PlannedFile(
            name, file.entry.size, Role.PRIMARY, _CODECS[kind], hints, "newer than the manifest"
        )

    def _missing(self) -> None:
        readable = {file.number for file in self.files if file.type is FileType.TABLE and file.opened}
        if self.gone:
            text = f"Corruption: {len(self.gone)} missing files; e.g.: {self.listing.name}/{table_name(self.gone[0])}"
            self._fault("", text, system="LevelDB refuses to open")
        for number in sorted(set(self.live) & self.there - readable):
            text = f"IO error: {self.listing.name}/{table_name(number)}: No such file or directory"
            self._fault("", text, system="LevelDB opens, and its iterators end with this error")

    def _facts(self, planned: Sequence[PlannedFile]) -> dict[str, Any]:
        version = self.version
        primary = [file for file in planned if file.role is Role.PRIMARY]
        tables = [file for file in primary if file.codec == TABLE]
        logs = [file for file in primary if file.codec == LOG]
        facts: dict[str, Any] = {"comparator": self.comparator, "manifest": self.descriptor.manifest}
        if self.renamed:
            facts["renamed"] = self.renamed
        if self.descriptor.error is not None:
            facts["error"] = self.descriptor.error
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
