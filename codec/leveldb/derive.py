"""The derived files of a database: a manifest of its tables and numbers, and the file CURRENT that names it.

Source: `VersionSet::WriteSnapshot`, `VersionSet::LogAndApply` and `SetCurrentFile` of LevelDB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from logwright.codec.leveldb.formats.manifest.layout import EditField, form
from logwright.codec.leveldb.formats.records.layout import fragmented
from logwright.codec.leveldb.keys import BYTEWISE
from logwright.codec.leveldb.names import manifest_name
from logwright.codec.leveldb.store.version import FileMetaData, snapshot_fields


def snapshot(
    levels: Sequence[Sequence[FileMetaData]],
    *,
    log_number: int,
    next_file_number: int,
    last_sequence: int,
    prev_log_number: int = 0,
    compact_pointers: Mapping[int, bytes] | None = None,
    comparator: str = BYTEWISE,
) -> bytes:
    """Return the bytes of a manifest of one edit with these tables, by level, and these numbers."""
    edit = [
        EditField("comparator", text=comparator.encode()),
        EditField("log_number", number=log_number),
        EditField("prev_log_number", number=prev_log_number),
        EditField("next_file_number", number=next_file_number),
        EditField("last_sequence", number=last_sequence),
        *snapshot_fields(levels, compact_pointers or {}),
    ]
    return fragmented(form(edit), 0)


def current(number: int) -> bytes:
    """Return the bytes of CURRENT for the manifest of that number."""
    return f"{manifest_name(number)}\n".encode()
