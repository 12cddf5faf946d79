"""A snapshot made anew from an older one and the logs, and the files with the epochs; logs and sound snapshots stay as they are.

Source: `FileTxnSnapLog.save`, `QuorumPeer.loadDataBase` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from logwright.codec.fault import DamageError
from logwright.codec.mending import Cut, Kept, Mended, Mending
from logwright.codec.option import Options
from logwright.codec.store.build import Summary
from logwright.codec.store.listing import Listing, Plan
from logwright.codec.zookeeper.names import snapshot_name, zxid_text
from logwright.codec.zookeeper.repair import epochs, reach
from logwright.codec.zookeeper.repair.epochs import EPOCHS
from logwright.codec.zookeeper.repair.examine import Found, examine
from logwright.codec.zookeeper.repair.reach import Base
from logwright.codec.zookeeper.repair.repair import BEFORE_QUORUM
from logwright.codec.zookeeper.store import files, write
from logwright.codec.zookeeper.store.trace import trace

SNAPSHOT = "snapshot"
REBUILDS = (SNAPSHOT, *EPOCHS)


def rebuild(listing: Listing, plan: Plan, what: Sequence[str], options: Options) -> Mending:
    """See `codec.capability.DirectoryRepair`. Raises `DamageError` where a log is damaged, or transactions are missing."""
    found = examine(listing, options)
    made = _Rebuilt(found)
    if SNAPSHOT in what:
        made.snapshot(_base(found))
    made.epochs([name for name in EPOCHS if name in what])
    return made


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
    some = [one for one in reach.bases(found) if one.snapshot is None or not one.snapshot.cut]
    for one in some:
        if not reach.gaps(found.logs, one.zxid) and reach.settled(one, found.logs):
            return one
    missing = reach.gaps(found.logs, some[0].zxid) if some else []
    why = (
        f"{reach.span(missing[0])} {reach.are(missing[0])} in no log"
        if missing
        else "the logs don't begin with the first transaction"
    )
    raise DamageError(
        f"there is no sound snapshot that all transactions follow on: {why}",
        path=found.listing.name,
        advice="Repair the directory",
    )


class _Rebuilt:
    """See `logwright.codec.mending.Mending`."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self.cut: Sequence[Cut] = ()
        self._gone: Sequence[str] = ()
        self.removes: Sequence[str] = ()
        self._made: dict[str, list[bytes]] = {}
        self._notes: list[str] = []
        self._base: Base | None = None
        sound = [one.zxid for one in found.snapshots if one.sound]
        self._last = max([0, *sound, *(int(log.zxid.max()) for log in found.logs if len(log.zxid))])
        self._rows = sum(one.rows for one in found.snapshots if one.sound) + sum(
            len(log.zxid) for log in found.logs
        )

    def snapshot(self, base: Base) -> None:
        """One of the last transaction, in the place of those that are damaged."""
        found = self.found
        damaged = [one.file for one in found.snapshots if one.cut]
        until = reach.furthest(found.logs, base.zxid)
        if base.snapshot is not None and base.zxid == until:
            self._notes.append(f"{base.snapshot.file} is of the last transaction already.")
        else:
            self._base = base
            name = snapshot_name(until)
            self._made[name] = []
            self._notes.append(
                f"{name} is made from {'the logs' if base.snapshot is None else f'{base.snapshot.file} and the logs'}."
            )
        self._last = until
        self._gone = [name for name in damaged if name not in self._made]
        self.removes = self._gone

    def epochs(self, asked: Sequence[str]) -> None:
        for name, value in epochs.right(self.found.epochs, self._last).items():
            if name in asked and self.found.epochs.get(name) != value:
                self._made[name] = [str(value).encode()]

    def files(self) -> Iterator[Mended]:
        sizes = self.found.sizes
        for name, size in sizes.items():
            if name not in self._made and name not in self._gone:
                yield Mended(name, [Kept(name, 0, size)], name)
        for name, data in self._made.items():
            like = name if name in sizes else None
            yield Mended(name, data or self._written(), like)

    def _written(self) -> list[bytes]:
        base = self._base
        assert base is not None
        ours = {one.name: one for one in files.snapshots(self.found.listing)}
        found = trace(self.found.listing, None if base.snapshot is None else ours[base.snapshot.file])
        for one in (*found.wrong[:1], *([found.never] if found.never is not None else [])):
            self._notes.append(
                f"The digest that is stored with {zxid_text(one.zxid)} is not that of the tree: verify says more."
            )
        self._rows += len(found.tree)
        return [bytes(one) for one in write.of_tree(found.tree)]

    def summary(self) -> Summary:
        before = [BEFORE_QUORUM] if self.found.epochs else []
        return Summary(self._rows, {"last_zxid": zxid_text(self._last)}, tuple(self._notes), tuple(before))
