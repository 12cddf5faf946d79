"""Survey a database for repair: its tables and logs, and the state recorded in its metadata."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from logwright.codec.engine.repair import Removed
from logwright.codec.fault import UnreadableError, UsageError
from logwright.codec.leveldb.comparators import NAMES, Comparator, comparator_of
from logwright.codec.leveldb.names import FileName, FileType, log_name, old_table_name, parse, table_name
from logwright.codec.leveldb.repair import logs
from logwright.codec.leveldb.repair.logs import Log
from logwright.codec.leveldb.repair.state import State, read_state
from logwright.codec.leveldb.repair.table_blocks import Table
from logwright.codec.leveldb.repair.tables import Tables
from logwright.codec.leveldb.store.contents import by_contents, has_footer
from logwright.codec.leveldb.store.guess_comparator import UNKNOWN, guess
from logwright.codec.leveldb.store.missing import renamed_tables
from logwright.codec.leveldb.store.newer import newer_files
from logwright.codec.leveldb.store.version import FileMetaData
from logwright.codec.option import Options
from logwright.codec.store.listing import Entry, Listing, same_bytes

NOT_NAMED = "a table that the manifest does not name"


@dataclass
class Survey:
    """The files of a database."""

    listing: Listing
    state: State
    comparator: str
    reader: Tables
    tables: list[Table] = field(default_factory=list)
    """Tables in use as far as is known, sound or damaged."""
    missing: list[tuple[int, FileMetaData]] = field(default_factory=list)
    """Tables that the manifest names but the directory lacks, with their levels."""
    logs: list[Log] = field(default_factory=list)
    """Logs that are read on opening, in order."""
    left: list[tuple[str, str]] = field(default_factory=list)
    """Files not in use, and the reason."""
    others: list[str] = field(default_factory=list)
    """Files other than tables, logs and metadata, and files unknown to LevelDB."""
    adopted: list[Table] = field(default_factory=list)
    """Tables that no manifest names."""
    misnamed: Mapping[str, FileType] = field(default_factory=dict)
    """Tables, logs and manifests under each other's names, and what they are."""
    newer: Collection[str] = ()
    """Tables and logs that are newer than the manifest."""
    renamed: Mapping[str, int] = field(default_factory=dict)
    """Files that are tables in use under other names, and their right numbers."""
    highest: int = 0
    """The largest file number."""

    @property
    def files(self) -> list[Table | Log]:
        """Tables and logs."""
        return [*self.tables, *self.logs]

    @property
    def replaced(self) -> bool:
        """Whether the missing tables may have been replaced by tables that the damaged manifest does not name."""
        return bool(self.missing) and not self.state.sound and any(table.rows for table in self.adopted)

    @property
    def order(self) -> Comparator:
        return comparator_of(self.comparator)


def survey_database(listing: Listing, options: Options, *, adopt: bool = False) -> Survey:
    """Survey a database. With `adopt`, tables that a sound manifest does not name are included.

    Raises `UsageError` if no manifest names the comparator and the keys are in no known order.
    """
    named, misnamed = by_contents(listing)
    manifests = [entry for entry, name in named if name is not None and name.type is FileType.DESCRIPTOR]
    state = read_state(listing, manifests)
    comparator = state.version.comparator or options["comparator"]
    if comparator is None:
        tables = [(entry.name, entry.size) for entry, name in named if name and name.type is FileType.TABLE]
        comparator = guess(listing, tables)
        if comparator == UNKNOWN:
            raise UsageError(
                f"the keys are in no known order ({', '.join(NAMES)}), and no manifest names their comparator",
                path=listing.name,
                advice="Pass the application's comparator: comparator=NAME",
            )
    reader = Tables(listing, options, comparator_of(comparator))
    surveyed = Survey(listing, state, comparator, reader, misnamed=misnamed)
    surveyed.highest = max((name.number for _, name in named if name is not None), default=0)
    tables_too = state.manifest is not None
    candidates = [item for item in named if tables_too or (item[1] and item[1].type is FileType.LOG)]
    surveyed.newer = newer_files(listing, state.version, candidates)
    for entry, _ in named:
        if entry.name in misnamed and parse(entry.name) is None and entry.name not in surveyed.newer:
            del misnamed[entry.name]
    live = state.version.files
    # With a damaged manifest every table is read, under any number.
    if state.sound:
        surveyed.renamed = renamed_tables(listing, state.version, comparator_of(comparator))
    files = {surveyed.renamed[entry.name]: [entry] for entry, _ in named if entry.name in surveyed.renamed}
    for entry, name in named:
        if entry.name not in surveyed.renamed:
            _sort(surveyed, entry, name, files, options)
    # Tables that an unfinished compaction wrote have entries of others; a manifest that names missing tables may have lost its last edits.
    following = state.version.next_file_number or 0
    for number in sorted({*live, *files}):
        lossy = bool(surveyed.missing) or any(table.lost or table.displaced for table in surveyed.tables)
        later = lossy and number >= following
        _table(surveyed, number, files.get(number, []), live.get(number), adopt or later)
    reader.settle(surveyed.tables)
    return surveyed


def _ends_at(listing: Listing, name: str, size: int) -> bool:
    try:
        return has_footer(listing, name, size)
    except UnreadableError:
        return False


def _copied_from(result: Survey, table: Table) -> str:
    """Return the name of the table of which a table is a copy, if its size is not that in the manifest; else ""."""
    if table.known is None or not table.sound or table.unsupported or table.size == table.known.size:
        return ""
    listing = result.listing
    for entry in listing.entries():
        name = parse(entry.name)
        same = entry.size == table.size and entry.name != table.file and name and name.type is FileType.TABLE
        if same and same_bytes(listing, entry.name, table.file, table.size):
            return entry.name
    return ""


def _sort(
    result: Survey, entry: Entry, name: FileName | None, tables: dict[int, list[Entry]], options: Options
) -> None:
    """Classify a file."""
    ignored = parse(entry.name) is None and entry.name not in result.newer
    if ignored or name is None or name.type in (FileType.LOCK, FileType.INFO_LOG):
        result.others.append(entry.name)
    elif name.type is FileType.TABLE:
        tables.setdefault(name.number, []).append(entry)
    elif name.type is FileType.LOG:
        twice = entry.name != log_name(name.number) and any(
            other.name == log_name(name.number) for other in result.listing.entries()
        )
        used = result.state.live(name.number) and entry.name not in result.misnamed
        if twice or not (used or entry.name in result.newer):
            why = "a log whose writes are in tables, according to the manifest"
            if entry.name in result.misnamed:
                why = "by its content a log, whose writes are in another log or in tables"
            result.left.append((entry.name, why))
        else:
            result.logs.append(logs.survey_log(result.listing, entry.name, name.number, entry.size, options))
    elif name.type is FileType.TEMP:
        result.left.append((entry.name, "a temporary file"))


def _table(
    result: Survey, number: int, files: Sequence[Entry], known: tuple[int, FileMetaData] | None, adopt: bool
) -> None:
    """Survey a table, which may have several files or none."""
    state = result.state
    names = (table_name(number), old_table_name(number))
    ranked = sorted(
        files,
        key=lambda candidate: (
            candidate.name not in result.renamed,
            candidate.name not in names,
            candidate.name,
        ),
    )
    for entry in ranked[1:]:
        result.left.append((entry.name, f"{ranked[0].name} has the same number"))
    if known is None and ranked[0].name not in result.newer:
        if number in state.gone:
            why = "a table that the manifest deletes"
        elif state.sound and not adopt:
            why = NOT_NAMED
        elif number < state.complete_below and not adopt:
            why = "a table that the manifest, which begins with a full list, does not name"
        else:
            why = ""
        if why:
            result.left.append((ranked[0].name, why))
            return
    if not ranked:
        assert known is not None
        result.missing.append(known)
        return
    level, meta = known if known is not None else (None, None)
    name, size = ranked[0].name, ranked[0].size
    if meta is not None and size > meta.size and _ends_at(result.listing, name, meta.size):
        # LevelDB reads as much as the manifest says.
        size = meta.size
    table = result.reader.survey(name, number, size, meta, level)
    if size < ranked[0].size:
        why = "bytes after the end of the table"
        table.cut.append(Removed(name, size, ranked[0].size - size, why, 0, 0))
    if copied := _copied_from(result, table):
        assert known is not None
        result.left.append((table.file, f"a copy of {copied}"))
        result.missing.append(known)
        return
    result.tables.append(table)
    if known is None:
        result.adopted.append(table)
