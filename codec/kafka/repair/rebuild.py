"""Rebuild the derived files of a partition from its logs, which do not change."""

from __future__ import annotations

from collections.abc import Sequence

from logwright.codec import plural
from logwright.codec.engine.repair import RepairPlan
from logwright.codec.fault import UsageError
from logwright.codec.kafka.names import EPOCH_FILE
from logwright.codec.kafka.repair.repair import deriver_of, log_start, sound_segments
from logwright.codec.kafka.repair.survey import SegmentSurvey, clock, survey
from logwright.codec.kafka.repair.write import PartitionPlan, damage, kind_of
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, Plan, Role

REBUILDS = ("index", "timeindex", "txnindex", "snapshot", EPOCH_FILE)


def rebuild(listing: Listing, plan: Plan, kinds: Sequence[str], options: Options) -> RepairPlan:
    """See `codec.capability.Rebuild`. Raises `DamageError` where a log is damaged."""
    surveys, notes = list[SegmentSurvey](), list[str]()
    for file in sound_segments(plan):
        segment = survey(listing, 0, file, options)
        if segment.error is not None:
            raise damage(segment.error)
        for cut in segment.cut:
            notes.append(
                f"{file.name} ends in {plural.count(cut.length, 'byte')} that are not a batch ({cut.why}): after an unclean stop a broker "
                "truncates them."
            )
        surveys.append(segment)
    if not surveys:
        raise UsageError("the partition has no log to rebuild files from")
    start = log_start(plan, options)
    end = max((item.good[-1].last + 1 for item in surveys if item.good), default=surveys[-1].base)
    if start > end:
        # With this log start offset a broker deletes the whole log, so it is ignored.
        start = 0
    if max(start, surveys[0].base) > 0 and {"txnindex", "snapshot"} & set(kinds):
        notes.append(
            f"Records before offset {surveys[0].base} are not in the log: producers that wrote nothing since are not in the snapshots,"
            " and transactions that began there start with their first record in the log."
        )
    deriver, other = deriver_of(listing, plan, options, clock(surveys), start, surveys)
    segments = [(item.base, item.good, item.file.name) for item in surveys]
    out = PartitionPlan([listing], segments, deriver, only=kinds)
    out.first = [
        out.unchanged(file.name)
        for file in plan.files
        if file.role is not Role.PRIMARY and not (file.role is Role.DERIVED and kind_of(file.name) in kinds)
    ]
    out.notes += notes
    if {"index", "timeindex"} & set(kinds):
        out.notes += other
    return out
