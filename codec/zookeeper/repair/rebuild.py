"""Make a snapshot from an older one and the logs, and the files with the epochs; logs and sound snapshots stay as they are.

Source: `FileTxnSnapLog.save`, `QuorumPeer.loadDataBase` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from logwright.codec.engine.derive import Rebuild
from logwright.codec.engine.repair import RepairPlan
from logwright.codec.fault import DamageError
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, Plan
from logwright.codec.zookeeper.derive import EPOCHS, startable_epochs
from logwright.codec.zookeeper.names import snapshot_name, zxid_text
from logwright.codec.zookeeper.repair import continuity
from logwright.codec.zookeeper.repair.continuity import Base
from logwright.codec.zookeeper.repair.repair import BEFORE_QUORUM, DataDirRepair
from logwright.codec.zookeeper.repair.survey import Found
from logwright.codec.zookeeper.store import files, write
from logwright.codec.zookeeper.store.trace import trace

SNAPSHOT = "snapshot"
REBUILDS = (SNAPSHOT, *EPOCHS)


def rebuild(listing: Listing, plan: Plan, kinds: Sequence[str], options: Options) -> RepairPlan:
    """See `codec.capability.Rebuild`. Raises `DamageError` where a log is damaged, or transactions are missing."""
    found = DataDirRepair([listing], [plan], options).prepared().found
    sound = [one for one in found.snapshots if one.sound]
    last = max(
        [0, *(one.zxid for one in sound), *(int(log.zxid.max()) for log in found.logs if len(log.zxid))]
    )
    made: dict[str, Iterable[bytes]] = {}
    dropped: list[str] = []
    out = Rebuild(listing, made, dropped)
    out.rows = sum(one.rows for one in sound) + sum(len(log.zxid) for log in found.logs)
    if SNAPSHOT in kinds:
        base = _base(found)
        last = continuity.furthest(found.logs, base.zxid)
        name = snapshot_name(last)
        if base.snapshot is not None and base.zxid == last:
            out.notes.append(f"{base.snapshot.file} is of the last transaction already.")
        else:
            made[name] = _snapshot(out, found, base)
            source = "the logs" if base.snapshot is None else f"{base.snapshot.file} and the logs"
            out.notes.append(f"{name} is made from {source}.")
        dropped += [one.file for one in found.snapshots if one.cut and one.file not in made]
    for name, value in startable_epochs(found.epochs, last).items():
        if name in kinds and found.epochs.get(name) != value:
            made[name] = [str(value).encode()]
    out.ids = {"last_zxid": zxid_text(last)}
    if found.epochs:
        out.before_you_start.append(BEFORE_QUORUM)
    return out


def _snapshot(out: RepairPlan, found: Found, base: Base) -> Iterator[bytes]:
    """Replay the logs on a snapshot, and yield the snapshot of the tree."""
    ours = {one.name: one for one in files.snapshots(found.listing)}
    replayed = trace(found.listing, None if base.snapshot is None else ours[base.snapshot.file])
    for one in (*replayed.wrong[:1], *([replayed.never] if replayed.never is not None else [])):
        out.notes.append(
            f"The digest that is stored with {zxid_text(one.zxid)} is not that of the tree: verify says more."
        )
    out.rows += len(replayed.tree)
    yield from map(bytes, write.of_tree(replayed.tree))


def _damage(why: str) -> str:
    """What is wrong, without what a repair makes of it."""
    return why.partition("; ")[0].removesuffix(": made anew").removesuffix(": an error instead")


def _base(found: Found) -> Base:
    """The newest sound snapshot that no transaction is missing behind."""
    for log in found.logs:
        if log.wrong is not None:
            raise DamageError(
                f"{_damage(log.wrong.why)}; a snapshot is made from sound logs",
                path=log.file,
                offset=log.wrong.offset,
                advice="Repair the directory, which keeps what is sound",
            )
    some = [one for one in continuity.bases(found) if one.snapshot is None or not one.snapshot.cut]
    for one in some:
        if not continuity.gaps(found.logs, one.zxid) and continuity.settled(one, found.logs):
            return one
    missing = continuity.gaps(found.logs, some[0].zxid) if some else []
    why = (
        f"{continuity.span(missing[0])} {continuity.are(missing[0])} in no log"
        if missing
        else "the logs don't begin with the first transaction"
    )
    raise DamageError(
        f"there is no sound snapshot that all transactions follow on: {why}",
        path=found.listing.name,
        advice="Repair the directory",
    )
