"""The derived files of a partition made anew from its logs, which stay as they are."""

from __future__ import annotations

from collections.abc import Sequence

from logwright.codec.fault import UsageError
from logwright.codec.kafka.derive import PartitionDeriver
from logwright.codec.kafka.names import EPOCH_FILE, segment_name
from logwright.codec.kafka.repair.examine import clock, examine
from logwright.codec.kafka.repair.intervals import interval_of
from logwright.codec.kafka.repair.repair import log_start
from logwright.codec.kafka.repair.runs import Copies
from logwright.codec.kafka.repair.write import PartitionMending, Segment, damage, kind_of
from logwright.codec.mending import Kept, Mended, Mending
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, Plan, Role

REBUILDS = ("index", "timeindex", "txnindex", "snapshot", EPOCH_FILE)
_ALL = "all"


def rebuild(listing: Listing, plan: Plan, what: Sequence[str], options: Options) -> Mending:
    """See `codec.capability.DirectoryRepair`. Raises `DamageError` where a log is damaged."""
    wanted = _wanted(what)
    reader = Copies([listing])
    segments, examined, said = [], [], []
    for file in plan.files:
        if file.role is not Role.PRIMARY:
            continue
        base = file.hints["base_offset"]
        if file.name != segment_name(base, ".log"):
            raise UsageError(
                f"{file.name} is left of an operation that was cut short",
                advice="Start the broker on it once, which finishes the operation, or repair the partition",
            )
        found = examine(listing, 0, file, options)
        if found.error is not None:
            raise damage(found.error)
        for cut in found.cut:
            said.append(
                f"{file.name} ends in {cut.length} bytes that are no batch ({cut.why}): a broker cuts them off after an"
                " unclean stop."
            )
        segments.append(Segment(base, found.good, file.name))
        examined.append(found)
    if not segments:
        raise UsageError("there is no log to rebuild anything from")
    start = log_start(plan, options)
    end = max((one.runs[-1].last + 1 for one in segments if one.runs), default=segments[-1].base)
    if start > end:
        # A broker deletes all of it, unless that is set right.
        start = 0
    if max(start, segments[0].base) > 0 and {"txnindex", "snapshot"} & wanted:
        said.append(
            f"What was before offset {segments[0].base} is gone: producers that wrote nothing since are not in the snapshots, and"
            " of transactions begun there the records still in the log count from their first one here."
        )
    interval, other = interval_of(listing, plan, options)
    if {"index", "timeindex"} & wanted:
        said += other
    whole = [
        Mended(file.name, [Kept(file.name, 0, file.size)], file.name)
        for file in plan.files
        if file.role is not Role.PRIMARY and not (file.role is Role.DERIVED and kind_of(file.name) in wanted)
    ]
    return PartitionMending(
        reader,
        segments,
        deriver=PartitionDeriver(
            interval,
            now=clock(examined),
            producer_expiration=options["producer.id.expiration.ms"],
        ),
        warnings=said,
        whole=whole,
        log_start=start,
        only=wanted,
    )


def _wanted(what: Sequence[str]) -> set[str]:
    names = {str(one).strip().lower().lstrip(".") for one in what} or {_ALL}
    if _ALL in names:
        return set(REBUILDS)
    unknown = sorted(names - set(REBUILDS))
    if unknown:
        raise UsageError(
            f"{unknown[0]!r} can't be rebuilt", advice=f"What can be: {', '.join((*REBUILDS, _ALL))}"
        )
    return names
