"""Make a snapshot from an older one and the logs, and the epoch files. Logs and sound snapshots stay unchanged.

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
from logwright.codec.zookeeper.repair.logs import zxids
from logwright.codec.zookeeper.repair.repair import BEFORE_QUORUM, DataDirRepair
from logwright.codec.zookeeper.repair.survey import Survey
from logwright.codec.zookeeper.store import files, write
from logwright.codec.zookeeper.store.trace import trace

SNAPSHOT = "snapshot"
REBUILDS = (SNAPSHOT, *EPOCHS)


def rebuild(listing: Listing, plan: Plan, kinds: Sequence[str], options: Options) -> RepairPlan:
    """See `codec.capability.Rebuild`. Raises `DamageError` if a log is damaged or transactions are missing."""
    survey = DataDirRepair([listing], [plan], options).prepared().surveyed
    sound = [snapshot for snapshot in survey.snapshots if snapshot.sound]
    last = int(zxids(survey.logs).max(initial=max((snapshot.zxid for snapshot in sound), default=0)))
    snapshots_made: dict[str, Iterable[bytes]] = {}
    dropped: list[str] = []
    out = Rebuild(listing, snapshots_made, dropped)
    out.rows = sum(snapshot.rows for snapshot in sound) + len(zxids(survey.logs))
    if SNAPSHOT in kinds:
        base = _base(survey)
        last = continuity.furthest(survey.logs, base.zxid)
        name = snapshot_name(last)
        if base.snapshot is not None and base.zxid == last:
            out.notes.append(f"{base.snapshot.file} already includes the last transaction.")
        else:
            snapshots_made[name] = _snapshot(out, survey, base)
            source = "the logs" if base.snapshot is None else f"{base.snapshot.file} and the logs"
            out.notes.append(f"{name} is built from {source}.")
        dropped += [
            snapshot.file
            for snapshot in survey.snapshots
            if snapshot.cut and snapshot.file not in snapshots_made
        ]
    for name, value in startable_epochs(survey.epochs, last).items():
        if name in kinds and survey.epochs.get(name) != value:
            snapshots_made[name] = [str(value).encode()]
    out.ids = {"last_zxid": zxid_text(last)}
    if survey.epochs:
        out.before_you_start.append(BEFORE_QUORUM)
    return out


def _snapshot(out: RepairPlan, survey: Survey, base: Base) -> Iterator[bytes]:
    """Replay the logs on a snapshot, and yield the snapshot of the tree."""
    ours = {file.name: file for file in files.snapshots(survey.listing)}
    replayed = trace(survey.listing, None if base.snapshot is None else ours[base.snapshot.file])
    never = [] if replayed.never is None else [replayed.never]
    for mismatch in replayed.wrong[:1] + never:
        out.notes.append(
            f"The digest stored with {zxid_text(mismatch.zxid)} is not that of the tree: see verify."
        )
    out.rows += len(replayed.tree)
    yield from map(bytes, write.of_tree(replayed.tree))


def _damage(why: str) -> str:
    """Return what is wrong, without what a repair does about it."""
    return why.partition("; ")[0].removesuffix(": rewritten").removesuffix(": replaced by an error")


def _base(survey: Survey) -> Base:
    """Return the newest sound snapshot that is followed by all transactions."""
    wrong = [(file, f"it is {files.base(name)} by its content") for file, name in survey.misnamed]
    wrong += [
        (log.file, f"it is {files.base(log.name)} by its first transaction")
        for log in survey.logs
        if log.renamed
    ]
    wrong += [
        (file, "it has copies of transactions of other logs, or twice the same") for file in survey.repeated
    ]
    wrong += [(file, f"{other} begins with the same transaction") for file, other in survey.twice]
    for file, why in wrong:
        raise DamageError(
            f"{why}; a snapshot can only be built from undamaged logs",
            path=file,
            advice="Repair the directory, which keeps all undamaged data",
        )
    for log in survey.logs:
        if log.wrong is not None:
            raise DamageError(
                f"{_damage(log.wrong.why)}; a snapshot can only be built from undamaged logs",
                path=log.file,
                offset=log.wrong.offset,
                advice="Repair the directory, which keeps all undamaged data",
            )
    bases = [base for base in continuity.bases(survey) if base.snapshot is None or not base.snapshot.cut]
    for base in bases:
        if not continuity.gaps(survey.logs, base.zxid) and continuity.settled(base, survey.logs):
            return base
    missing = continuity.gaps(survey.logs, bases[0].zxid) if bases else []
    why = f"{missing[0].text()} in no log" if missing else "the logs do not begin with the first transaction"
    raise DamageError(
        f"no undamaged snapshot is followed by all later transactions: {why}",
        path=survey.listing.name,
        advice="Repair the directory",
    )
