"""Validate what checksums alone do not prove: snapshot trees with right seals, and one-bit corrections, by tree digests.

A digest covers all nodes: if it is right, so is everything that the tree was made from. Source: `DataTree.deserialize`,
`DataTree.compareSnapshotDigests`, `DataTree.compareDigest` of ZooKeeper.
"""

from __future__ import annotations

from logwright.codec.engine.repair import OutputFile, Removed
from logwright.codec.store.overlay import Overlay
from logwright.codec.zookeeper import names
from logwright.codec.zookeeper.repair import continuity, logs, misnamed
from logwright.codec.zookeeper.repair.continuity import Base
from logwright.codec.zookeeper.repair.snapshots import Snapshot
from logwright.codec.zookeeper.repair.survey import Survey
from logwright.codec.zookeeper.store import files
from logwright.codec.zookeeper.store.trace import Trace, load, trace


def validate(survey: Survey, *, rename: bool = True) -> None:
    """Mark snapshots that a server refuses as unsound, newest first, up to a good one. Do the same with those whose digest is wrong, if
    that one, or the empty tree, and the logs have everything in them, and with older ones whose tree is earlier than their name. Records
    in doubt are removed unless a digest confirms them. `rename`: name snapshots after their digests where that helps."""
    if rename:
        _rename(survey)
    doubtful: list[Snapshot] = []
    for snapshot in [snapshot for snapshot in reversed(survey.snapshots) if snapshot.sound]:
        seen = Overlay(survey.listing, [OutputFile(snapshot.name, snapshot.pieces or [])])
        tree, right, _ = load(seen, files.snapshots(seen)[0])
        orphan = next(iter(tree.orphans()), None)
        if orphan is not None:
            path = orphan.decode(errors="replace")
            _drop(snapshot, f"{path} has no parent: Invalid Datatree, unable to find parent")
        elif right is False or snapshot.early:
            doubtful.append(snapshot)
        else:
            _records(survey)
            highest = max((other.content for other in doubtful), default=0)
            if continuity.furthest(survey.logs, snapshot.zxid) >= highest:
                for other in doubtful:
                    why = "the digest of its tree differs from the stored one"
                    _drop(other, other.why or other.early or why)
            for other in survey.snapshots:
                if other.sound and other.early and other.zxid < snapshot.zxid:
                    _drop(other, other.early)
            return
    _records(survey)
    if continuity.fresh(survey.logs):
        for other in doubtful:
            if other.early and continuity.furthest(survey.logs, 0) >= other.content:
                _drop(other, other.early)


def replay(
    survey: Survey, base: Base, *, upto: int | None = None, watch: frozenset[int] = frozenset()
) -> Trace:
    """Replay the corrected logs on a snapshot. `upto` and `watch` as in `trace`."""
    chosen = [] if base.snapshot is None else [OutputFile(base.snapshot.name, base.snapshot.pieces or [])]
    seen = Overlay(
        survey.listing, [*chosen, *(OutputFile(log.name, [*logs.pieces(log)]) for log in survey.logs)]
    )
    return trace(seen, next(iter(files.snapshots(seen)), None), upto=upto, watch=watch)


def _rename(survey: Survey) -> None:
    """Name a snapshot after the transaction of its digest, if by its own name a server would skip transactions, or need some that are
    missing."""
    for snapshot in [snapshot for snapshot in survey.snapshots if snapshot.sound]:
        if not snapshot.early and snapshot.until <= continuity.furthest(survey.logs, snapshot.zxid):
            continue
        zxid = misnamed.zxid_by_digest(survey.listing, snapshot)
        if zxid is None or any(zxid == other.zxid for other in survey.snapshots):
            continue
        named = names.parse(snapshot.name)
        snapshot.name = names.snapshot_name(zxid, "" if named is None else named.compression)
        snapshot.zxid = snapshot.until = zxid
        survey.renamed.append((snapshot.file, snapshot.name))
    survey.snapshots.sort(key=lambda snapshot: snapshot.zxid)


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
        right |= replay(survey, base, upto=max(later), watch=frozenset(later)).right
    survey.logs = [log.certain(right) for log in survey.logs]
