"""The files of a data directory, in the order in which a server looks at them.

Source: `Util.sortDataDir`, `FileSnap.findNValidSnapshots`, `SnapStream.isValidSnapshot` and `FileTxnLog.FileTxnIterator.init` of
ZooKeeper. Files of equal zxids are in the order of their names here; a server has them as the directory happens to list them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from logwright.codec.fault import UnreadableError
from logwright.codec.option import Option, Options, parse_text
from logwright.codec.store.listing import Entry, Listing
from logwright.codec.zookeeper.formats.snapshot.expand import MAGICS
from logwright.codec.zookeeper.formats.snapshot.tables import COMPRESSION
from logwright.codec.zookeeper.names import LOG, SNAPSHOT, FileName, parse

DATA_LOG_DIR = "dataLogDir"
"""The further root of the logs, and the option that names it. Without it the logs lie with the snapshots."""
APART = Option(
    DATA_LOG_DIR,
    None,
    "The directory of the transaction logs, where it is not that of the snapshots: as zoo.cfg names it, or the version-2 in it",
    parse_text,
)
CANDIDATES = 100
"""So many snapshots are tried at most (`FileSnap.deserialize`)."""

_SMALLEST = 10
_END_MARK = b"\0\0\0\1/"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A log or snapshot that a server sees: the name in the listing, its size, and what the name says."""

    name: str
    size: int
    named: FileName

    @property
    def zxid(self) -> int:
        return self.named.zxid


def base(name: str) -> str:
    """The name without the folder that it is listed in."""
    return name.rpartition("/")[2]


def placed(name: str, options: Options) -> str:
    """Return the name in the tree of a log that is made."""
    return name if options[DATA_LOG_DIR] is None else f"{DATA_LOG_DIR}/{name}"


def folder(name: str) -> str:
    """The folder that a name is listed in: `dataLogDir`, or "" for the directory itself."""
    return name.rpartition("/")[0]


def _of_kind(entries: Iterable[Entry], kind: str) -> list[DataFile]:
    found = []
    for entry in entries:
        named = parse(base(entry.name))
        if named is not None and named.kind == kind:
            found.append(DataFile(entry.name, entry.size, named))
    return sorted(found, key=lambda one: (one.zxid, one.name))


def apart(listing: Listing) -> bool:
    """Whether the logs are in a directory of their own."""
    return any(folder(entry.name) == DATA_LOG_DIR for entry in listing.entries())


def snapshots(listing: Listing) -> list[DataFile]:
    """The snapshots by zxid; those of the logs' directory are none for a server."""
    return _of_kind((one for one in listing.entries() if not folder(one.name)), SNAPSHOT)


def newest_snapshot(listing: Listing) -> int:
    """Return the highest zxid in the name of a snapshot; 0 without one."""
    return max((file.zxid for file in snapshots(listing)), default=0)


def logs(listing: Listing) -> list[DataFile]:
    """The logs by zxid: those of the logs' directory, where it is another."""
    there = DATA_LOG_DIR if apart(listing) else ""
    return _of_kind((one for one in listing.entries() if folder(one.name) == there), LOG)


def candidates(listing: Listing) -> list[DataFile]:
    """The snapshots that a server tries to load, the newest first."""
    found = [one for one in reversed(snapshots(listing)) if looks_whole(listing, one)]
    return found[:CANDIDATES]


def looks_whole(listing: Listing, snapshot: DataFile) -> bool:
    """What a server asks of a snapshot before it tries to load it: the mark at its end, or the head of a compressed one."""
    if snapshot.zxid == -1:
        return False  # what a name has that says nothing
    try:
        return _looks_whole(listing, snapshot)
    except UnreadableError:
        return False


def _looks_whole(listing: Listing, snapshot: DataFile) -> bool:
    magic = MAGICS.get(COMPRESSION[snapshot.named.compression])
    if magic is not None:
        return listing.read(snapshot.name, 0, len(magic)) == magic
    if snapshot.size < _SMALLEST:
        return False
    return listing.read(snapshot.name, snapshot.size - len(_END_MARK), len(_END_MARK)) == _END_MARK


def logs_from(logs: Sequence[DataFile], zxid: int) -> list[DataFile]:
    """The logs that a server opens to read from a zxid on: those named so or later, and the one before them."""
    known = [one for one in logs if one.zxid >= 0]
    later = [one for one in known if one.zxid >= zxid]
    return known[max(len(known) - len(later) - 1, 0) :]
