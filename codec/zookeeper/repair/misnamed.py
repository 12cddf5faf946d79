"""Find logs and snapshots under each other's names, and snapshots under the name of another compression: the first bytes tell.

A log gets the name of its first transaction. The zxid of a snapshot is that of its tree digest, if that is right; or, if one log and one
snapshot were exchanged, that in the name of the other. Source: `FileTxnLog`, `FileSnap`, `SnapStream` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from logwright.codec.engine.repair import OutputFile, Removed
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Listing, same_bytes
from logwright.codec.store.overlay import Overlay
from logwright.codec.zookeeper import names
from logwright.codec.zookeeper.names import LOG, SNAPSHOT
from logwright.codec.zookeeper.repair import logs, snapshots
from logwright.codec.zookeeper.repair.logs import Log
from logwright.codec.zookeeper.repair.snapshots import Snapshot
from logwright.codec.zookeeper.store import files, trace
from logwright.codec.zookeeper.store.files import DataFile


@dataclass(frozen=True, slots=True)
class Misnamed:
    """A file with the content of another kind than its name says. `suffix`: the compression of a snapshot."""

    file: DataFile
    kind: str
    suffix: str = ""


def find(listing: Listing, data_files: Sequence[DataFile]) -> dict[str, Misnamed]:
    """Return the misnamed files by name, and those in the directory of the others."""
    out = {}
    strange = files.misplaced(listing)
    for file in data_files:
        named = (file.named.kind, "" if file.named.kind == LOG else file.named.compression)
        content = files.content_of(listing, file.name) or named
        if content != named or file in strange:
            out[file.name] = Misnamed(file, *content)
    return out


def equal(listing: Listing, file: DataFile, other: str) -> bool:
    """Return whether two files have the same bytes."""
    if file.size != next(entry.size for entry in listing.entries() if entry.name == other):
        return False
    return same_bytes(listing, file.name, other, file.size)


def log(listing: Listing, misnamed: Misnamed, options: Options, *, correct: bool) -> Log:
    """Survey a log under the name of a snapshot, or in its directory."""
    file = misnamed.file
    out = logs.survey(listing, file.name, file.size, options, correct=correct)
    out.named = out.first if len(out.zxid) else 0
    out.renamed = names.log_name(out.named)
    if files.has_log_directory(listing):
        out.renamed = f"{files.DATA_LOG_DIR}/{out.renamed}"
    return out


def snapshot(
    listing: Listing, misnamed: Misnamed, exchanged: int | None, options: Options, *, correct: bool
) -> Snapshot:
    """Survey a snapshot under the name of a log, or of another compression. `exchanged` is the zxid in the name of the log that was
    exchanged with it."""
    file, kind = misnamed.file, misnamed.file.named.kind
    zxid = file.zxid if kind == SNAPSHOT else _zxid_of(listing, misnamed)
    if zxid is None:
        zxid = exchanged
    if zxid is None:
        why = "a snapshot under the name of a log, of an unknown zxid: nothing tells which transactions come after it"
        return Snapshot(file.name, file.size, 0, None, [Removed(file.name, 0, file.size, why, 0, 0)])
    name = names.snapshot_name(zxid, misnamed.suffix)
    out = snapshots.survey(_seen(listing, file, name), name, file.size, options, correct=correct)
    out.file, out.cut = file.name, [replace(cut, file=file.name) for cut in out.cut]
    if out.pieces is not None:
        out.pieces = [_of_file(piece, file.name) for piece in out.pieces]
    return out


def _seen(listing: Listing, file: DataFile, name: str) -> Overlay:
    """Return a listing in which a file has another name."""
    return Overlay(listing, [OutputFile(name, [Copy(file.name, 0, file.size)])])


def _of_file(piece: Extent, name: str) -> Extent:
    return replace(piece, file=name) if isinstance(piece, Copy) else piece


def _zxid_of(listing: Listing, misnamed: Misnamed) -> int | None:
    """Return the zxid of a snapshot without that in its name: that of its digest, or 0 for the tree of a new server."""
    file = misnamed.file
    name = names.snapshot_name(0, misnamed.suffix)
    seen = _seen(listing, file, name)
    read, _ = snapshots.read_only(seen, name, file.size, Options(snapshots.LIMITS))
    if not read.sound:
        return None
    return zxid_by_digest(seen, read) if read.until else 0


def zxid_by_digest(listing: Listing, snapshot: Snapshot) -> int | None:
    """Return the transaction after which the tree of a sound snapshot has the digest that it stores; None if it has another one. Whatever
    its name says, it is the tree after that transaction."""
    suffix = names.parse(files.base(snapshot.name))
    for zxid in sorted({snapshot.until, snapshot.until if snapshot.held is None else snapshot.held}):
        name = names.snapshot_name(zxid, "" if suffix is None else suffix.compression)
        seen = Overlay(listing, [OutputFile(name, snapshot.pieces or [])])
        _, right, _ = trace.load(seen, files.snapshots(seen)[0])
        if right:
            return zxid
    return None
