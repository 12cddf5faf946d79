"""What must be borne out by more than checksums: trees whose seals are right, and what one bit that is turned back makes of files.

A digest is of all nodes: where it is right, so is what the tree was made from. Source: `DataTree.deserialize`,
`DataTree.compareSnapshotDigests`, `DataTree.compareDigest` of ZooKeeper.
"""

from __future__ import annotations

from dataclasses import replace

from logwright.codec.engine.repair import OutputFile, Removed
from logwright.codec.store.overlay import Overlay
from logwright.codec.zookeeper.repair import continuity, logs
from logwright.codec.zookeeper.repair.snapshots import Snapshot
from logwright.codec.zookeeper.repair.survey import Found
from logwright.codec.zookeeper.store import files
from logwright.codec.zookeeper.store.trace import load, trace


def validate(found: Found) -> None:
    """Make snapshots unsound that a server does not take, the newest first, up to one that is well; and those that are in doubt, where
    that one and the logs lead to all that they have. Records in doubt go unless a digest bears them out."""
    doubtful: list[Snapshot] = []
    well = False
    for one in reversed(found.snapshots):
        if not one.sound or (well and not one.doubt):
            continue
        orphan, right = _look(found, one)
        if orphan is not None:
            _drop(
                one,
                f"{orphan.decode(errors='replace')} has no parent: Invalid Datatree, unable to find parent",
            )
        elif one.doubt and not right:
            _drop(one, one.why)
        elif one.doubt or right is False or one.early:
            doubtful.append(one)
        else:
            well = True
            _records(found)
            if continuity.furthest(found.logs, one.zxid) >= max(
                (other.zxid for other in doubtful), default=0
            ):
                for other in doubtful:
                    _drop(
                        other, other.why or other.early or "the digest of its tree is not the one that it has"
                    )
    if not well:
        _records(found)


def _look(found: Found, one: Snapshot) -> tuple[bytes | None, bool | None]:
    """A node without a parent, and whether the digest is right (None: there is none)."""
    seen = Overlay(found.listing, [OutputFile(one.name, one.pieces or [])])
    tree, right, _ = load(seen, files.snapshots(seen)[0])
    return next(iter(tree.orphans()), None), right


def _drop(one: Snapshot, why: str) -> None:
    one.pieces = None
    one.cut = [Removed(one.file, 0, one.size, why, 0, None)]


def _records(found: Found) -> None:
    """Replay records in doubt, each from the newest snapshot before it."""
    wanted: set[int] = set()
    for log in found.logs:
        wanted |= set(log.zxid[log.in_doubt].tolist())
    right: set[int] = set()
    for one in continuity.bases(found):
        later = {zxid for zxid in wanted if zxid > one.zxid}
        if not later:
            continue
        wanted -= later
        pieces = (
            [OutputFile(one.snapshot.name, one.snapshot.pieces or [])] if one.snapshot is not None else []
        )
        pieces += [OutputFile(log.file, list(logs.pieces(replace(log, cut=[])))) for log in found.logs]
        seen = Overlay(found.listing, pieces)
        start = next(iter(files.snapshots(seen)), None)
        right |= trace(seen, start, upto=max(later), watch=frozenset(later)).right
    found.logs = [log.certain(right) for log in found.logs]
