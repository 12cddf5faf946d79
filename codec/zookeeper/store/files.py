"""The files of a data directory, in the order in which a server reads them.

Source: `Util.sortDataDir`, `FileSnap.findNValidSnapshots`, `SnapStream.isValidSnapshot` and `FileTxnLog.FileTxnIterator.init` of ZooKeeper.
Files of equal zxids are sorted by name here; a server takes the order of the directory listing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from logwright.codec.fault import UnreadableError
from logwright.codec.option import Option, Options, parse_text
from logwright.codec.store.listing import Entry, Listing
from logwright.codec.zookeeper.formats.snapshot.expand import MAGICS
from logwright.codec.zookeeper.formats.snapshot.sections import MAGIC as SNAPSHOT_MAGIC
from logwright.codec.zookeeper.formats.snapshot.tables import COMPRESSION
from logwright.codec.zookeeper.formats.txnlog.layout import MAGIC as LOG_MAGIC
from logwright.codec.zookeeper.names import CHECKED, LOG, SNAPSHOT, FileName, parse

DATA_LOG_DIR = "dataLogDir"
"""The additional root of the logs, and the option that names it. By default the logs are with the snapshots."""
APART = Option(
    DATA_LOG_DIR,
    None,
    "Directory of the transaction logs, if it is not that of the snapshots: as in zoo.cfg, or its version-2",
    parse_text,
)
CANDIDATES = 100
"""Snapshots that a server tries at most (`FileSnap.deserialize`)."""

_KINDS = {
    LOG_MAGIC: (LOG, CHECKED),
    SNAPSHOT_MAGIC: (SNAPSHOT, CHECKED),
    **{MAGICS[method]: (SNAPSHOT, suffix) for suffix, method in COMPRESSION.items() if method in MAGICS},
}
_SMALLEST = 10
_END_MARK = b"\0\0\0\1/"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A log or snapshot that a server sees: its name in the listing, its size, and its parsed name."""

    name: str
    size: int
    named: FileName

    @property
    def zxid(self) -> int:
        return self.named.zxid


def base(name: str) -> str:
    """The name without its folder in the listing."""
    return name.rpartition("/")[2]


def placed(name: str, options: Options) -> str:
    """Return the name in the listing of a new log."""
    return name if options[DATA_LOG_DIR] is None else f"{DATA_LOG_DIR}/{name}"


def folder(name: str) -> str:
    """Return the folder of a name in the listing: `dataLogDir`, or "" for the directory itself."""
    return name.rpartition("/")[0]


def _of_kind(entries: Iterable[Entry], kind: str) -> list[DataFile]:
    data_files = []
    for entry in entries:
        named = parse(base(entry.name))
        if named is not None and named.kind == kind:
            data_files.append(DataFile(entry.name, entry.size, named))
    return sorted(data_files, key=lambda file: (file.zxid, file.name))


def has_log_directory(listing: Listing) -> bool:
    """Return whether the logs have their own directory."""
    return any(folder(entry.name) == DATA_LOG_DIR for entry in listing.entries())


def snapshots(listing: Listing) -> list[DataFile]:
    """Return the snapshots by zxid. A server ignores those in the directory of the logs."""
    return _of_kind((entry for entry in listing.entries() if not folder(entry.name)), SNAPSHOT)


def newest_snapshot(listing: Listing) -> int:
    """Return the highest zxid in the name of a snapshot; 0 without one."""
    return max((file.zxid for file in snapshots(listing)), default=0)


def logs(listing: Listing) -> list[DataFile]:
    """Return the logs by zxid: those of the logs' directory, if it is another one."""
    there = DATA_LOG_DIR if has_log_directory(listing) else ""
    return _of_kind((entry for entry in listing.entries() if folder(entry.name) == there), LOG)


def misplaced(listing: Listing) -> list[DataFile]:
    """Return the logs and snapshots, by their names, in the directory of the others: a server does not start on them."""
    if not has_log_directory(listing):
        return []
    entries = listing.entries()
    strange = _of_kind((entry for entry in entries if not folder(entry.name)), LOG)
    return strange + _of_kind((entry for entry in entries if folder(entry.name) == DATA_LOG_DIR), SNAPSHOT)


def candidates(listing: Listing) -> list[DataFile]:
    """Return the snapshots that a server tries to load, newest first."""
    complete = [file for file in reversed(snapshots(listing)) if looks_complete(listing, file)]
    return complete[:CANDIDATES]


def looks_complete(listing: Listing, snapshot: DataFile) -> bool:
    """Return whether a snapshot passes the check that a server makes before it loads it: the mark at its end, or the head of a
    compressed one."""
    if snapshot.zxid == -1:
        return False  # as for a name that says nothing
    mark = MAGICS.get(COMPRESSION[snapshot.named.compression])
    if mark is None and snapshot.size < _SMALLEST:
        return False
    at, mark = (snapshot.size - len(_END_MARK), _END_MARK) if mark is None else (0, mark)
    try:
        return listing.read(snapshot.name, at, len(mark)) == mark
    except UnreadableError:
        return False


def content_of(listing: Listing, name: str) -> tuple[str, str] | None:
    """Return "log", or "snapshot" and the suffix of its compression, by the first bytes of a file; None if they are of neither."""
    try:
        head = listing.read(name, 0, max(map(len, _KINDS)))
    except UnreadableError:
        return None
    return next((kind for magic, kind in _KINDS.items() if head.startswith(magic)), None)


def logs_from(logs: Sequence[DataFile], zxid: int) -> list[DataFile]:
    """Return the logs that a server opens to read from a zxid on: those named after it or later, and the one before them."""
    known = [log for log in logs if log.zxid >= 0]
    later = [log for log in known if log.zxid >= zxid]
    return known[max(len(known) - len(later) - 1, 0) :]
