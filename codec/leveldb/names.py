"""The names of the files of a database.

Source: `db/filename.cc` of LevelDB. Its parser accepts any number of digits, but LevelDB opens names with at least six. A file with another
name is included wherever numbers are collected, but not found when it is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from logwright.codec.store.listing import Entry, Listing

MAX_NUMBER = (1 << 64) - 1
"""Larger numbers are not file names (`ConsumeDecimalNumber`)."""

CURRENT, LOCK, INFO_LOG, OLD_INFO_LOG = "CURRENT", "LOCK", "LOG", "LOG.old"


class FileType(IntEnum):
    """The type of a file by its name. The numbers are those in `Delete type=T #N` of the info log."""

    LOG = 0
    LOCK = 1
    TABLE = 2
    DESCRIPTOR = 3
    CURRENT = 4
    TEMP = 5
    INFO_LOG = 6


_FIXED = {
    CURRENT: FileType.CURRENT,
    LOCK: FileType.LOCK,
    INFO_LOG: FileType.INFO_LOG,
    OLD_INFO_LOG: FileType.INFO_LOG,
}
_SUFFIXES = {"log": FileType.LOG, "sst": FileType.TABLE, "ldb": FileType.TABLE, "dbtmp": FileType.TEMP}
LOG_NAME = re.compile(r"([0-9]+)\.log")
MANIFEST_NAME = re.compile(r"MANIFEST-([0-9]+)")
TABLE_NAME = re.compile(r"([0-9]+)\.(?:ldb|sst)")
_NUMBERED = re.compile(r"([0-9]+)\.(log|sst|ldb|dbtmp)")


@dataclass(frozen=True, slots=True)
class FileName:
    """A name that LevelDB knows. The number of a file without one is 0, as in `ParseFileName`."""

    type: FileType
    number: int = 0


def parse(name: str) -> FileName | None:
    """Parse a name as LevelDB does (`ParseFileName`). Returns None for a file that it ignores."""
    if name in _FIXED:
        return FileName(_FIXED[name])
    manifest = MANIFEST_NAME.fullmatch(name)
    if manifest is not None:
        return _numbered(FileType.DESCRIPTOR, manifest[1])
    match = _NUMBERED.fullmatch(name)
    return None if match is None else _numbered(_SUFFIXES[match[2]], match[1])


def _numbered(kind: FileType, digits: str) -> FileName | None:
    # More digits mean a number that is too large, unless they begin with zeros.
    significant = digits.lstrip("0") or "0"
    if len(significant) > 20 or int(significant) > MAX_NUMBER:
        return None
    return FileName(kind, int(significant))


def named_files(listing: Listing, *types: FileType) -> list[tuple[Entry, FileName]]:
    """Return the files of a directory whose names LevelDB knows, of these types only if any are given."""
    known = [(entry, named) for entry in listing.entries() if (named := parse(entry.name)) is not None]
    return [(entry, named) for entry, named in known if not types or named.type in types]


def number_in(name: str) -> int:
    """Return the number of a file by its name; 0 if LevelDB does not know the name, or the file has none."""
    known = parse(name)
    return 0 if known is None else known.number


def number_of(name: str, pattern: re.Pattern[str]) -> int | None:
    """Return the number in a name that matches `pattern`, if it fits a column of 64 signed bits."""
    match = pattern.fullmatch(name)
    known = None if match is None else _numbered(FileType.LOG, match[1])
    return known.number if known is not None and known.number < 1 << 63 else None


def log_name(number: int) -> str:
    return f"{number:06d}.log"


def table_name(number: int) -> str:
    return f"{number:06d}.ldb"


def old_table_name(number: int) -> str:
    """The name before LevelDB 1.14, still looked for if no file has the new name."""
    return f"{number:06d}.sst"


def manifest_name(number: int) -> str:
    return f"MANIFEST-{number:06d}"


def temp_name(number: int) -> str:
    return f"{number:06d}.dbtmp"
