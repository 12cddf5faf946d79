"""Validate what checksums alone do not prove: snapshot trees with right seals, and one-bit corrections, by tree digests.

A digest covers all nodes: if it is right, so is everything that the tree was made from. Source: `DataTree.deserialize`,
`DataTree.compareSnapshotDigests`, `DataTree.compareDigest` of ZooKeeper.
"""

from __future__ import annotations

from dataclasses import replace

from logwright.codec.engine.repair import OutputFile, Removed
from logwright.codec.store.overlay import Overlay
from logwright.codec.zookeeper.repair import continuity, logs
from logwright.codec.zookeeper.repair.snapshots import Snapshot
from logwright.codec.zookeeper.repair.survey import Survey
from logwright.codec.zookeeper.store import files
from logwright.codec.zookeeper.store.trace import load, trace


def validate(survey: Survey) -> None:
    """Mark snapshots that a server refuses as unsound, newest first, up to a good one. Do the same with those whose digest is wrong, if
    that one and the logs have everything in them. Records in doubt are removed unless a digest confirms them."""
    doubtful: list[Snapshot] = []
    well = False
    for snapshot in reversed(survey.snapshots):
        if not snapshot.sound or well:
            continue
        orphan, right = _look(survey, snapshot)
        if orphan is not None:
            _drop(
                snapshot,
                f"{orphan.decode(errors='replace')} has no parent: Invalid Datatree, unable to find parent",
            )
        elif right is False or snapshot.early:
            doubtful.append(snapshot)
        else:
            well = True
            _records(survey)
            if continuity.furthest(survey.logs, snapshot.zxid) >= max(
                (other.zxid for other in doubtful), default=0
            ):
                for other in doubtful:
                    _drop(
                        other,
                        other.why or other.early or "the digest of its tree differs from the stored one",
                    )
    if not well:
        _records(survey)


def _look(survey: Survey, snapshot: Snapshot) -> tuple[bytes | None, bool | None]:
    """Return a node without a parent, and whether the digest is right (None without a digest)."""
    seen = Overlay(survey.listing, [OutputFile(snapshot.name, snapshot.pieces or [])])
    tree, right, _ = load(seen, files.snapshots(seen)[0])
    return next(iter(tree.orphans()), None), right


def _drop(snapshot: Snapshot, why: str) -> None:
    snapshot.pieces = None
    snapshot.cut = [Removed(snapshot.file, 0, snapshot.size, why, 0, None)]


def _records(survey: Survey) -> None:
    """Replay records in doubt, each from the newest snapshot before it."""
    doubtful: set[int] = set()
    for log in survey.logs:
        doubtful |= set(log.zxid[log.in_doubt].tolist())
    right: set[int] = set()
    for base in continuity.bases(survey):
        later = {zxid for zxid in doubtful if zxid > base.zxid}
        if not later:
            continue
        doubtful -= later
        pieces = (
            [OutputFile(base.snapshot.name, base.snapshot.pieces or [])] if base.snapshot is not None else []
        )
        pieces += [OutputFile(log.file, list(logs.pieces(replace(log, cut=[])))) for log in survey.logs]
        seen = Overlay(survey.listing, pieces)
        start = next(iter(files.snapshots(seen)), None)
        right |= trace(seen, start, upto=max(later), watch=frozenset(later)).right
    survey.logs = [log.certain(right) for log in survey.logs]
