"""Make the derived files of a partition again from its logs, which stay as they are."""

from __future__ import annotations

from collections.abc import Sequence

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
                f"{file.name} ends in {cut.length} bytes that are no batch ({cut.why}): a broker cuts them off after an"
                " unclean stop."
            )
        surveys.append(segment)
    if not surveys:
        raise UsageError("there is no log to rebuild anything from")
    start = log_start(plan, options)
    end = max((item.good[-1].last + 1 for item in surveys if item.good), default=surveys[-1].base)
    if start > end:
        # A broker deletes all of it, unless that is set right.
        start = 0
    if max(start, surveys[0].base) > 0 and {"txnindex", "snapshot"} & set(kinds):
        notes.append(
            f"What was before offset {surveys[0].base} is gone: producers that wrote nothing since are not in the snapshots, and"
            " of transactions begun there the records still in the log count from their first one here."
        )
    deriver, other = deriver_of(listing, plan, options, clock(surveys), start)
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
