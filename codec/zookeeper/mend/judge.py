"""Snapshots whose seals are right, and whose trees are not: a parent is missing, or the digest is that of another tree.

Source: `DataTree.deserialize`, `DataTree.compareSnapshotDigests` of ZooKeeper.
"""

from __future__ import annotations

from logwright.codec.mending import Cut, Mended
from logwright.codec.zookeeper import files
from logwright.codec.zookeeper.mend import reach
from logwright.codec.zookeeper.mend.assembled import Assembled
from logwright.codec.zookeeper.mend.examine import Found
from logwright.codec.zookeeper.mend.snapshots import Snapshot
from logwright.codec.zookeeper.trace import load


def judge(found: Found) -> None:
    """Make snapshots unsound that a server does not take, the newest first, up to one that is well; and such as have a wrong digest,
    where an older one is well and the logs lead from it to all that the newer one has."""
    doubtful: list[Snapshot] = []
    for one in reversed(found.snapshots):
        if not one.sound:
            continue
        orphan, right = _look(found, one)
        if orphan is not None:
            _drop(
                one,
                f"{orphan.decode(errors='replace')} has no parent: Invalid Datatree, unable to find parent",
            )
        elif right is False:
            doubtful.append(one)
        else:
            if reach.furthest(found.logs, one.zxid) >= max((other.zxid for other in doubtful), default=0):
                for other in doubtful:
                    _drop(other, "the digest of its tree is not the one that it has")
            return


def _look(found: Found, one: Snapshot) -> tuple[bytes | None, bool | None]:
    seen = Assembled(found.listing, [Mended(one.name, one.pieces or [])])
    tree, right, _ = load(seen, files.snapshots(seen)[0])
    return next(iter(tree.orphans()), None), right


def _drop(one: Snapshot, why: str) -> None:
    one.pieces = None
    one.cut = [Cut(one.file, 0, one.size, why, 0, None)]
