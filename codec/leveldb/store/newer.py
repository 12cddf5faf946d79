"""Tables and logs that are newer than the manifest: it would have LevelDB delete them, though their entries are nowhere else.

Each edit of a manifest records the last sequence number, so a table that a later edit replaced and a log whose writes are in tables have
lower ones. After a crash, a table that no edit names yet has entries of the logs in use, or of other tables. If such a log is damaged, the
table may have the entries that it has lost. Source:
`VersionSet::LogAndApply`, `DBImpl::RemoveObsoleteFiles` of LevelDB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.frames.walk import good_frames, walk_listed
from logwright.codec.leveldb.formats.log import codec as log
from logwright.codec.leveldb.formats.records.layout import BATCH_HEADER
from logwright.codec.leveldb.formats.table import codec as table
from logwright.codec.leveldb.formats.table.index import DATA
from logwright.codec.leveldb.names import FileName, FileType, log_name
from logwright.codec.leveldb.store.version import Version
from logwright.codec.store.listing import Entry, Listing


def newer_files(
    listing: Listing, version: Version, files: Iterable[tuple[Entry, FileName | None]]
) -> Mapping[str, int]:
    """Return the tables and logs not in use by the manifest that have sequence numbers above its last one which no log in use has, each
    with the highest of these. `files` have the tables and logs, by their names or by their contents."""
    first, before, known = version.log_number or 0, version.prev_log_number or 0, version.last_sequence or 0
    unused: list[tuple[Entry, FileType]] = []
    used: list[Entry] = []
    for entry, named in files:
        if named is None or named.type not in (FileType.TABLE, FileType.LOG):
            continue
        if named.type is FileType.TABLE:
            if named.number not in version.files:
                unused.append((entry, named.type))
        elif entry.name == log_name(named.number) and (named.number >= first or named.number == before):
            used.append(entry)
        else:
            unused.append((entry, named.type))
    if not unused:
        return {}
    logged = sorted(span for entry in used for span in _in_log(listing, entry))
    starts = np.array([low for low, _ in logged], np.int64)
    ends = np.maximum.accumulate(np.array([high for _, high in logged], np.int64))
    newer = {}
    for entry, kind in unused:
        read = _in_table if kind is FileType.TABLE else _ends_in_log
        numbers = np.concatenate([np.empty(0, np.int64), *read(listing, entry)])
        numbers = numbers[numbers > known]
        if len(logged):
            batch = np.searchsorted(starts, numbers, "right") - 1
            numbers = numbers[(batch < 0) | (numbers > ends[batch])]
        if len(numbers):
            newer[entry.name] = int(numbers.max())
    return newer


def _ends_in_log(listing: Listing, entry: Entry) -> Iterator[Int64s]:
    for span in _in_log(listing, entry):
        yield np.array(span, np.int64)


def _in_log(listing: Listing, entry: Entry) -> Iterator[tuple[int, int]]:
    """Yield the first and the last sequence number of each write batch."""
    for _, frames in good_frames(walk_listed(listing, entry.name, entry.size, log.CODEC)):
        head = frames.header[(frames.header["size"] >= BATCH_HEADER) & (frames.header["count"] > 0)]
        first = head["sequence"].astype(np.int64)
        yield from zip(first.tolist(), (first + head["count"] - 1).tolist(), strict=True)


def _in_table(listing: Listing, entry: Entry) -> Iterator[Int64s]:
    walk = walk_listed(listing, entry.name, entry.size, table.CODEC)
    for window, frames in good_frames(walk):
        data = frames.pick(frames.header["kind"] == DATA)
        for decoded in table.CODEC.decode(window, data, "rows", ("sequence",), walk.context):
            if decoded.batch.num_rows:
                yield np.asarray(decoded.batch.column(0)).astype(np.int64)
