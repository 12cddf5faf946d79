"""The metadata of a database made anew from its tables and logs, which stay as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from logwright.codec.fault import DamageError, UsageError
from logwright.codec.leveldb.names import CURRENT
from logwright.codec.leveldb.repair.examine import Found, examine
from logwright.codec.leveldb.repair.repair import DatabaseMending
from logwright.codec.mending import Cut, Kept, Mended, Mending
from logwright.codec.option import Options
from logwright.codec.store.build import Summary
from logwright.codec.store.listing import Listing, Plan

REBUILDS = ("manifest", "current")


def rebuild(listing: Listing, plan: Plan, what: Sequence[str], options: Options) -> Mending:
    """See `codec.capability.DirectoryRepair`. Raises `DamageError` where a table or a log is damaged, or is not there."""
    found = examine(listing, options, adopt=options["orphans"] == "adopt")
    if "manifest" not in what:
        return _Current(found)
    refuse_damaged(found)
    mending = _Rebuilt(found, options, always=True)
    mending.salvage()
    return mending


def refuse_damaged(found: Found) -> None:
    """Raise `DamageError` for the first table or log that is not sound."""
    for one in found.tables:
        if not one.sound:
            cut = min(one.cut, key=lambda cut: cut.offset, default=None)
            fault = min(one.check.faults, key=lambda fault: fault.offset, default=None)
            at, why = (
                (cut.offset, cut.why)
                if cut is not None
                else (fault.offset, fault.detail)
                if fault is not None
                else (0, "damaged")
            )
            raise damage(one.file, at, why)
    for log in found.logs:
        if log.cut:
            raise damage(log.file, log.cut[0].offset, log.cut[0].why)
    for level, known in found.missing:
        raise DamageError(
            f"table {known.number}, which the manifest has in level {level}, is not there: metadata are made from all tables and logs",
            path=found.listing.name,
            advice="Put it back, or repair the database, which goes on without it",
        )


def damage(file: str, at: int, why: str) -> DamageError:
    return DamageError(
        f"{why}; metadata are made from sound tables and logs",
        path=file,
        offset=at,
        advice="Repair the database, which keeps what is sound and makes the metadata anew",
    )


class _Rebuilt(DatabaseMending):
    """As a repair, but what is not in use stays too."""

    def files(self) -> Iterator[Mended]:
        made = set()
        for mended in super().files():
            made.add(mended.name)
            yield mended
        left = {name for name, _ in self.found.left}
        for entry in self.found.listing.entries():
            if entry.name in left and entry.name not in made:
                self.drops.remove(entry.name)
                yield Mended(entry.name, [Kept(entry.name, 0, entry.size)], entry.name)


class _Current:
    """CURRENT alone. See `codec.mending.Mending`."""

    def __init__(self, found: Found) -> None:
        self.found = found
        state = found.state
        if state.manifest is None or not state.sound:
            raise UsageError(
                "there is no sound manifest that CURRENT could name",
                advice="Rebuild the manifest too: what=manifest,current",
            )
        self.cut: Sequence[Cut] = ()
        self.removes: Sequence[str] = ()
        self._rows = sum(one.rows for one in found.tables) + sum(log.rows for log in found.logs)

    def files(self) -> Iterator[Mended]:
        there = False
        for entry in self.found.listing.entries():
            if entry.name == CURRENT:
                there = True
            else:
                yield Mended(entry.name, [Kept(entry.name, 0, entry.size)], entry.name)
        name = f"{self.found.state.manifest}\n"
        yield Mended(CURRENT, [name.encode(errors="surrogateescape")], CURRENT if there else None)

    def summary(self) -> Summary:
        return Summary(self._rows)
