"""Make the metadata of a database again from its tables and logs, which stay as they are."""

from __future__ import annotations

from collections.abc import Sequence

from logwright.codec.engine.derive import Rebuild
from logwright.codec.engine.repair import RepairPlan
from logwright.codec.fault import DamageError, UsageError
from logwright.codec.leveldb.names import CURRENT
from logwright.codec.leveldb.repair.examine import Found
from logwright.codec.leveldb.repair.repair import DatabaseRepair
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, Plan

REBUILDS = ("manifest", "current")


def rebuild(listing: Listing, plan: Plan, what: Sequence[str], options: Options) -> RepairPlan:
    """See `codec.capability.Rebuild`. Raises `DamageError` where a table or a log is damaged or missing."""
    out = DatabaseRepair([listing], [plan], options).prepared()
    if "manifest" not in what:
        return _current(out.found)
    refuse_damaged(out.found)
    out.always = out.keeps_unused = True
    return out.salvage()


def _current(found: Found) -> RepairPlan:
    """Make CURRENT alone."""
    state = found.state
    if state.manifest is None or not state.sound:
        raise UsageError(
            "there is no sound manifest that CURRENT could name",
            advice="Rebuild the manifest too: what=manifest,current",
        )
    name = f"{state.manifest}\n".encode(errors="surrogateescape")
    out = Rebuild(found.listing, {CURRENT: [name]})
    out.rows = sum(one.rows for one in found.files)
    return out


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
