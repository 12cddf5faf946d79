"""Survey a database for repair: its tables and logs, and the state recorded in its metadata."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from logwright.codec.fault import UsageError
from logwright.codec.leveldb.comparators import NAMES, Comparator, comparator_of
from logwright.codec.leveldb.names import FileName, FileType, log_name, old_table_name, parse, table_name
from logwright.codec.leveldb.repair import logs
from logwright.codec.leveldb.repair.logs import Log
from logwright.codec.leveldb.repair.state import State, read_state
from logwright.codec.leveldb.repair.table_blocks import Table
from logwright.codec.leveldb.repair.tables import Tables
from logwright.codec.leveldb.store.guess_comparator import UNKNOWN, guess
from logwright.codec.leveldb.store.newer import newer_files
from logwright.codec.leveldb.store.version import FileMetaData
from logwright.codec.option import Options
from logwright.codec.store.listing import Entry, Listing


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
    newer: Collection[str] = ()
    """Tables and logs that are newer than the manifest."""
    renamed: list[tuple[str, str]] = field(default_factory=list)
    """Files that are tables in use under other names, and their right names."""
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
    state = read_state(listing)
    named = [(entry, parse(entry.name)) for entry in listing.entries()]
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
    surveyed = Survey(listing, state, comparator, reader)
    surveyed.highest = max((name.number for _, name in named if name is not None), default=0)
    surveyed.newer = newer_files(listing, state.version) if state.version.edits else ()
    live = state.version.files
    files = {number: [entry] for number, entry in _renamed(surveyed, named)}
    renamed = {entry.name for (entry,) in files.values()}
    for entry, name in named:
        if entry.name not in renamed:
            _sort(surveyed, entry, name, files, options)
    # A manifest that names missing tables may have lost its last edits.
    following = (state.version.next_file_number or 0) if live.keys() - files.keys() else surveyed.highest + 1
    for number in sorted({*live, *files}):
        _table(surveyed, number, files.get(number, []), live.get(number), adopt or number >= following)
    return surveyed


def _renamed(result: Survey, named: Sequence[tuple[Entry, FileName | None]]) -> Iterator[tuple[int, Entry]]:
    """Yield the tables that the manifest names and that exist under another name only: a file of the same size, with the same first and
    last internal key. Sequence numbers make those keys unique. With a damaged manifest every table is read, under any number."""
    live = result.state.version.files if result.state.sound else {}
    there = {name.number for _, name in named if name is not None and name.type is FileType.TABLE}
    missing = {number: known for number, (_, known) in live.items() if number not in there}
    for entry, name in named:
        if name is not None and name.type is FileType.TABLE and name.number in live:
            continue
        for number, known in missing.items():
            if entry.size != known.size:
                continue
            check = result.reader.survey(entry.name, number, entry.size, None, None).check
            if (check.smallest, check.largest) == (known.smallest, known.largest):
                result.renamed.append((entry.name, table_name(number)))
                del missing[number]
                yield number, entry
                break


def _sort(
    result: Survey, entry: Entry, name: FileName | None, tables: dict[int, list[Entry]], options: Options
) -> None:
    """Classify a file."""
    if name is None or name.type in (FileType.LOCK, FileType.INFO_LOG):
        result.others.append(entry.name)
    elif name.type is FileType.TABLE:
        tables.setdefault(name.number, []).append(entry)
    elif name.type is FileType.LOG:
        twice = entry.name != log_name(name.number) and any(
            other.name == log_name(name.number) for other in result.listing.entries()
        )
        if twice or not (result.state.live(name.number) or entry.name in result.newer):
            result.left.append((entry.name, "a log whose writes are in tables, according to the manifest"))
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
    ranked = sorted(files, key=lambda candidate: (candidate.name not in names, candidate.name))
    for entry in ranked[1:]:
        result.left.append((entry.name, f"{ranked[0].name} has the same number"))
    if known is None and ranked[0].name not in result.newer:
        if number in state.gone:
            why = "a table that the manifest deletes"
        elif state.sound and not adopt:
            why = "a table that the manifest does not name"
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
    table = result.reader.survey(ranked[0].name, number, ranked[0].size, meta, level)
    result.tables.append(table)
    if known is None:
        result.adopted.append(table)
