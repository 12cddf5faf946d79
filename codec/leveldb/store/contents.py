"""Find tables, logs and manifests under each other's names, by their contents."""

from __future__ import annotations

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

KINDS = {FileType.TABLE: "a table", FileType.LOG: "a log", FileType.DESCRIPTOR: "a manifest"}


def content_of(listing: Listing, entry: Entry) -> FileType | None:
    """Return whether a file is a table, by the end of its footer, or a log or a manifest, by its first record. None if it is neither."""
    try:
        if (
            entry.size >= FOOTER_SIZE
            and listing.read(entry.name, entry.size - len(MAGIC), len(MAGIC)) == MAGIC
        ):
            return FileType.TABLE
        event = next(read_records(ListedFile(listing, entry.name, entry.size).pread, entry.size), None)
    except UnreadableError:
        return None
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
        looked_at = name is None or name.type in KINDS or name.type is FileType.CURRENT
        readable = entry.size and looked_at and entry.name not in used
        kind = content_of(listing, entry) if readable else None
        if kind is not None and (kind is FileType.LOG if name is None else kind is not name.type):
            highest += 1
            wrong[entry.name] = kind
            name = FileName(kind, highest)
        out.append((entry, name))
    return out, wrong


def misnamed(listing: Listing, entry: Entry) -> str:
    """Return what a file is by its content, such as "a log"; "" if that is what its name says, or unknown."""
    named, content = parse_name(entry.name), content_of(listing, entry)
    if named is None or content is None or named.type is content:
        return ""
    return KINDS[content]
