"""Find tables, logs and manifests under each other's names, by their contents."""

from __future__ import annotations

import re
from collections.abc import Collection

from logwright.codec.fault import UnreadableError
from logwright.codec.frames.walk import ListedFile
from logwright.codec.leveldb.formats.log.layout import is_write_batch
from logwright.codec.leveldb.formats.manifest.layout import EditError, parse
from logwright.codec.leveldb.formats.records.codec import Payloads
from logwright.codec.leveldb.formats.records.log_reader import Delivered, read_records
from logwright.codec.leveldb.formats.table.index import FOOTER_SIZE
from logwright.codec.leveldb.formats.table.resync import MAGIC
from logwright.codec.leveldb.names import FileName, FileType
from logwright.codec.leveldb.names import parse as parse_name
from logwright.codec.store.listing import Entry, Listing

KINDS = {
    FileType.TABLE: "a table",
    FileType.LOG: "a log",
    FileType.DESCRIPTOR: "a manifest",
    FileType.CURRENT: "CURRENT",
}
_POINTER = re.compile(rb"MANIFEST-[0-9]+\n?")
_LONGEST = 64
"""Bytes that CURRENT has at most."""


def content_of(listing: Listing, entry: Entry, expected: FileType | None = None) -> FileType | None:
    """Return whether a file is CURRENT, a table, by the end of its footer, or a log or a manifest, by its first record. None if it is
    something else. A file that may be several is what is `expected`."""
    try:
        if entry.size <= _LONGEST and _POINTER.fullmatch(listing.read(entry.name, 0, entry.size)):
            return FileType.CURRENT
        matches = [_by_footer(listing, entry), _by_record(listing, entry)]
    except UnreadableError:
        return None
    kinds = [kind for kind in matches if kind is not None]
    return expected if expected in kinds else next(iter(kinds), None)


def has_footer(listing: Listing, name: str, size: int) -> bool:
    """Return whether the first `size` bytes of a file end like a table."""
    return size >= FOOTER_SIZE and listing.read(name, size - len(MAGIC), len(MAGIC)) == MAGIC


def _by_footer(listing: Listing, entry: Entry) -> FileType | None:
    return FileType.TABLE if has_footer(listing, entry.name, entry.size) else None


def _by_record(listing: Listing, entry: Entry) -> FileType | None:
    event = next(read_records(ListedFile(listing, entry.name, entry.size).pread, entry.size), None)
    if not isinstance(event, Delivered) or not len(event.frames):
        return None
    records = Payloads.of(event.window, event.frames.pick(slice(0, 1)))
    payload = records.data[int(records.start[0]) : int(records.end[0])].tobytes()
    try:
        return FileType.DESCRIPTOR if parse(payload) else None
    except EditError:
        return FileType.LOG if is_write_batch(payload) else None


def by_contents(
    listing: Listing, used: Collection[str] = ()
) -> tuple[list[tuple[Entry, FileName | None]], dict[str, FileType]]:
    """Return the files by their names, or by their contents if those are of another type: such files get new numbers. The second result is
    what these are. The contents of the files `used` are not read."""
    named = [(entry, parse_name(entry.name)) for entry in listing.entries()]
    highest = max((name.number for _, name in named if name is not None), default=0)
    out: list[tuple[Entry, FileName | None]] = []
    wrong: dict[str, FileType] = {}
    for entry, name in named:
        readable = entry.size and (name is None or name.type in KINDS) and entry.name not in used
        kind = content_of(listing, entry, None if name is None else name.type) if readable else None
        if kind is not None and (kind is FileType.LOG if name is None else kind is not name.type):
            highest += 1
            wrong[entry.name] = kind
            name = FileName(kind, highest)
        out.append((entry, name))
    return out, wrong


def misnamed(listing: Listing, entry: Entry) -> str:
    """Return what a file is by its content, such as "a log"; "" if that is what its name says, or unknown."""
    named = parse_name(entry.name)
    content = content_of(listing, entry, None if named is None else named.type)
    if named is None or content is None or named.type is content:
        return ""
    return KINDS[content]
