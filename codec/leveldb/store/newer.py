"""Tables and logs that are newer than the manifest: it would have LevelDB delete them, though their entries are nowhere else.

Each edit of a manifest records the last sequence number, so a table that a later edit replaced and a log whose writes are in tables have
lower ones. After a crash, a table that no edit names yet has entries of the logs in use, or of other tables. Source:
`VersionSet::LogAndApply`, `DBImpl::RemoveObsoleteFiles` of LevelDB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from logwright.codec.frames.walk import good_frames, walk_listed
from logwright.codec.leveldb.formats.log import codec as log
from logwright.codec.leveldb.formats.records.layout import BATCH_HEADER
from logwright.codec.leveldb.formats.table import codec as table
from logwright.codec.leveldb.formats.table.index import DATA
from logwright.codec.leveldb.names import FileName, FileType, log_name
from logwright.codec.leveldb.store.version import Version
from logwright.codec.store.listing import Entry, Listing


def newer_files(
    listing: Listing, version: Version, files: Iterable[tuple[Entry, FileName]]
) -> Mapping[str, int]:
    """Return the tables and logs not in use by the manifest that have sequence numbers above its last one which no log in use has, each
    with its highest one. `files` are the tables and logs, by their names or by their contents."""
    first, before, known = version.log_number or 0, version.prev_log_number or 0, version.last_sequence or 0
    unused: list[tuple[Entry, FileType]] = []
    used: list[Entry] = []
    for entry, named in files:
        if named.type is FileType.TABLE:
            if named.number not in version.files:
                unused.append((entry, named.type))
        elif entry.name == log_name(named.number) and (named.number >= first or named.number == before):
            used.append(entry)
        else:
            unused.append((entry, named.type))
    if not unused:
        return {}
    logged = [_span(_in_log(listing, entry)) for entry in used]
    newer = {}
    for entry, kind in unused:
        read = _in_table if kind is FileType.TABLE else _in_log
        _, high = _span(read(listing, entry))
        if high > known and not any(low <= high <= last for low, last in logged):
            newer[entry.name] = high
    return newer


def _span(numbers: Iterator[tuple[int, int]]) -> tuple[int, int]:
    """Return the lowest and the highest of these sequence numbers; the highest is -1 without any."""
    spans = [*numbers]
    return min((low for low, _ in spans), default=0), max((high for _, high in spans), default=-1)


def _in_log(listing: Listing, entry: Entry) -> Iterator[tuple[int, int]]:
    for _, frames in good_frames(walk_listed(listing, entry.name, entry.size, log.CODEC)):
        head = frames.header[(frames.header["size"] >= BATCH_HEADER) & (frames.header["count"] > 0)]
        if len(head):
            first = head["sequence"].astype(np.int64)
            yield int(first.min()), int((first + head["count"]).max()) - 1


def _in_table(listing: Listing, entry: Entry) -> Iterator[tuple[int, int]]:
    walk = walk_listed(listing, entry.name, entry.size, table.CODEC)
    for window, frames in good_frames(walk):
        data = frames.pick(frames.header["kind"] == DATA)
        for decoded in table.CODEC.decode(window, data, "rows", ("sequence",), walk.context):
            if decoded.batch.num_rows:
                numbers = np.asarray(decoded.batch.column(0))
                yield int(numbers.min()), int(numbers.max())
