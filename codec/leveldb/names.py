"""The names of the files of a database.

Source: `db/filename.cc` of LevelDB. Its parser takes any number of digits, what it opens has six or more: a file that is named
otherwise counts where numbers are looked at, and is not found where it is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

MAX_NUMBER = (1 << 64) - 1
"""Larger numbers are no file names (`ConsumeDecimalNumber`)."""

CURRENT, LOCK, INFO_LOG, OLD_INFO_LOG = "CURRENT", "LOCK", "LOG", "LOG.old"
LOST = "lost"
"""The sub-directory to which RepairDB moves what it has read."""


class FileType(IntEnum):
    """What a name says a file is. The numbers are those in `Delete type=T #N` of the info log."""

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
    """A name that LevelDB knows. Files without a number have 0, as in `ParseFileName`."""

    type: FileType
    number: int = 0


def parse(name: str) -> FileName | None:
    """What LevelDB takes a name for (`ParseFileName`); None where it ignores the file."""
    if name in _FIXED:
        return FileName(_FIXED[name])
    manifest = MANIFEST_NAME.fullmatch(name)
    if manifest is not None:
        return _numbered(FileType.DESCRIPTOR, manifest[1])
    found = _NUMBERED.fullmatch(name)
    return None if found is None else _numbered(_SUFFIXES[found[2]], found[1])


def _numbered(kind: FileType, digits: str) -> FileName | None:
    # Longer ones could be as long as a name: what they say is too large, unless they begin with zeros.
    significant = digits.lstrip("0") or "0"
    if len(significant) > 20 or int(significant) > MAX_NUMBER:
        return None
    return FileName(kind, int(significant))


def number_of(name: str, pattern: re.Pattern[str]) -> int | None:
    """The number in a name of a kind, where a column of 64 signed bits holds it."""
    found = pattern.fullmatch(name)
    known = None if found is None else _numbered(FileType.LOG, found[1])
    return known.number if known is not None and known.number < 1 << 63 else None


def log_name(number: int) -> str:
    return f"{number:06d}.log"


def table_name(number: int) -> str:
    return f"{number:06d}.ldb"


def old_table_name(number: int) -> str:
    """Before LevelDB 1.14; still looked for where there is no file of the new name."""
    return f"{number:06d}.sst"


def manifest_name(number: int) -> str:
    return f"MANIFEST-{number:06d}"


def temp_name(number: int) -> str:
    return f"{number:06d}.dbtmp"
