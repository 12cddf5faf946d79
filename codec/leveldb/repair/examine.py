"""A database looked at from end to end, for mending: its tables and logs, and what the metadata say of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from logwright.codec.fault import UsageError
from logwright.codec.leveldb.comparators import NAMES, Comparator, comparator_of
from logwright.codec.leveldb.names import FileName, FileType, log_name, old_table_name, parse, table_name
from logwright.codec.leveldb.repair import logs
from logwright.codec.leveldb.repair.logs import Log
from logwright.codec.leveldb.repair.state import State, read_state
from logwright.codec.leveldb.repair.tables import Table, Tables
from logwright.codec.leveldb.store.guess_comparator import UNKNOWN, guess
from logwright.codec.leveldb.store.version import FileMetaData
from logwright.codec.option import Options
from logwright.codec.store.listing import Entry, Listing


@dataclass
class Found:
    """What there is of a database."""

    listing: Listing
    state: State
    comparator: str
    reader: Tables
    tables: list[Table] = field(default_factory=list)
    """Those that are in use, as far as is known: sound ones and damaged ones."""
    missing: list[tuple[int, FileMetaData]] = field(default_factory=list)
    """Tables that the manifest has and the directory has not, with their levels."""
    logs: list[Log] = field(default_factory=list)
    """Those that are read when the database is opened, in order."""
    left: list[tuple[str, str]] = field(default_factory=list)
    """Files that are not in use, and why."""
    others: list[str] = field(default_factory=list)
    """Files that are none of tables, logs and metadata, or that LevelDB does not know."""
    manifests: list[str] = field(default_factory=list)
    adopted: list[Table] = field(default_factory=list)
    """Tables that no manifest names."""
    highest: int = 0
    """The largest number of a file."""

    @property
    def files(self) -> list[Table | Log]:
        """Tables and logs."""
        return [*self.tables, *self.logs]

    @property
    def replaced(self) -> bool:
        """Whether what is missing may have been replaced by tables of which the manifest tells no more."""
        return bool(self.missing) and not self.state.sound and any(table.rows for table in self.adopted)

    @property
    def order(self) -> Comparator:
        return comparator_of(self.comparator)


def examine(listing: Listing, options: Options, *, adopt: bool = False) -> Found:
    """Look at a database. With `adopt` tables that a sound manifest does not name count too.

    Raises `UsageError` where no manifest names the comparator, and the keys are in no known order.
    """
    state = read_state(listing)
    named = [(entry, parse(entry.name)) for entry in listing.entries()]
    comparator = state.version.comparator or options["comparator"]
    if comparator is None:
        tables = [(entry.name, entry.size) for entry, one in named if one and one.type is FileType.TABLE]
        comparator = guess(listing, tables)
        if comparator == UNKNOWN:
            raise UsageError(
                f"the keys are in no known order ({', '.join(NAMES)}), and no manifest names their comparator",
                path=listing.name,
                advice="Pass the name that the application gives it: comparator=NAME",
            )
    reader = Tables(listing, options, comparator_of(comparator))
    found = Found(listing, state, comparator, reader)
    found.highest = max((one.number for _, one in named if one is not None), default=0)
    files: dict[int, list[Entry]] = {}
    for entry, one in named:
        _sort(found, entry, one, files, options)
    live = state.version.files
    for number in sorted({*live, *files}):
        _table(found, number, files.get(number, []), live.get(number), adopt)
    return found


def _sort(
    found: Found, entry: Entry, one: FileName | None, tables: dict[int, list[Entry]], options: Options
) -> None:
    """Put a file where it belongs."""
    if one is None or one.type in (FileType.LOCK, FileType.INFO_LOG):
        found.others.append(entry.name)
    elif one.type is FileType.TABLE:
        tables.setdefault(one.number, []).append(entry)
    elif one.type is FileType.LOG:
        twice = entry.name != log_name(one.number) and any(
            other.name == log_name(one.number) for other in found.listing.entries()
        )
        if twice or not found.state.live(one.number):
            found.left.append((entry.name, "a log whose writes are in tables, as the manifest has it"))
        else:
            found.logs.append(logs.examine(found.listing, entry.name, one.number, entry.size, options))
    elif one.type is FileType.DESCRIPTOR:
        found.manifests.append(entry.name)
    elif one.type is FileType.TEMP:
        found.left.append((entry.name, "a temporary file"))


def _table(
    found: Found,
    number: int,
    files: Sequence[Entry],
    known: tuple[int, FileMetaData] | None,
    adopt: bool,
) -> None:
    """One table, of which there may be several files, or none."""
    state = found.state
    names = (table_name(number), old_table_name(number))
    ranked = sorted(files, key=lambda one: (one.name not in names, one.name))
    for entry in ranked[1:]:
        found.left.append((entry.name, f"{ranked[0].name} has the same number"))
    if known is None:
        if number in state.gone:
            why = "a table that the manifest says is deleted"
        elif state.sound and not adopt:
            why = "a table that the manifest does not name"
        elif number < state.told and not adopt:
            why = "a table that the manifest, which begins with all that were there, does not name"
        else:
            why = ""
        if why:
            found.left.append((ranked[0].name, why))
            return
    if not ranked:
        assert known is not None
        found.missing.append(known)
        return
    level, meta = known if known is not None else (None, None)
    table = found.reader.examine(ranked[0].name, number, ranked[0].size, meta, level)
    found.tables.append(table)
    if known is None:
        found.adopted.append(table)
