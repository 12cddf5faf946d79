"""Rebuild the metadata of a database from its tables and logs, which stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from logwright.codec.engine.derive import Rebuild
from logwright.codec.engine.repair import RepairPlan
from logwright.codec.fault import DamageError, UsageError
from logwright.codec.leveldb.names import CURRENT
from logwright.codec.leveldb.repair.repair import DatabaseRepair
from logwright.codec.leveldb.repair.survey import Survey
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, Plan

REBUILDS = ("manifest", "current")


def rebuild(listing: Listing, plan: Plan, kinds: Sequence[str], options: Options) -> RepairPlan:
    """See `codec.capability.Rebuild`. Raises `DamageError` for a damaged or missing table or log."""
    out = DatabaseRepair([listing], [plan], options).prepared()
    if "manifest" not in kinds:
        return _current(out.surveyed)
    refuse_damaged(out.surveyed)
    out.always = out.keeps_unused = True
    return out.salvage()


def _current(surveyed: Survey) -> RepairPlan:
    """Rebuild CURRENT alone."""
    state = surveyed.state
    if state.manifest is None or not state.sound:
        raise UsageError(
            "there is no undamaged manifest that CURRENT could name",
            advice="Rebuild the manifest too: what=manifest,current",
        )
    name = f"{state.manifest}\n".encode(errors="surrogateescape")
    out = Rebuild(surveyed.listing, {CURRENT: [name]})
    out.rows = sum(file.rows for file in surveyed.files)
    return out


def refuse_damaged(surveyed: Survey) -> None:
    """Raise `DamageError` for the first table or log that is not sound."""
    for table in surveyed.tables:
        if not table.sound:
            cuts = [(cut.offset, cut.why) for cut in table.cut]
            faults = [(fault.offset, fault.detail) for fault in table.check.faults]
            raise damage(table.file, *min(cuts or faults or [(0, "damaged")], key=itemgetter(0)))
    for log in surveyed.logs:
        if log.cut:
            raise damage(log.file, log.cut[0].offset, log.cut[0].why)
    for level, known in surveyed.missing:
        raise DamageError(
            f"table {known.number} of level {level} in the manifest is missing; metadata can only be rebuilt from all tables and logs",
            path=surveyed.listing.name,
            advice="Restore it, or repair the database, which continues without it",
        )


def damage(file: str, at: int, why: str) -> DamageError:
    return DamageError(
        f"{why}; metadata can only be rebuilt from undamaged tables and logs",
        path=file,
        offset=at,
        advice="Repair the database, which keeps the undamaged parts and rebuilds the metadata",
    )
