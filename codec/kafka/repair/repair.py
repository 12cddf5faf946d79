"""Mending a partition: which batches are kept, and what stands around them.

SALVAGE keeps every batch that is sound, PREFIX those before the first damage, SYSTEM what a broker would leave. A broker that is
started on the result, after an unclean stop too, finds nothing to cut, to delete or to write anew: for what it does on meeting
what is not here see `broker`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from logwright.codec.describe import DescriptionError
from logwright.codec.fault import UnreadableError, UsageError
from logwright.codec.kafka.derive import PartitionDeriver
from logwright.codec.kafka.formats import partition_metadata as metadata
from logwright.codec.kafka.formats.log.tables import MAX_DECOMPRESSED
from logwright.codec.kafka.names import EPOCH_FILE, METADATA_FILE, claims_to_be_kafkas, segment_name
from logwright.codec.kafka.repair.examine import clock, examine
from logwright.codec.kafka.repair.intervals import interval_of
from logwright.codec.kafka.repair.order import arrange
from logwright.codec.kafka.repair.replicas import Merged, merge
from logwright.codec.kafka.repair.runs import Copies, Run, cut_of, place
from logwright.codec.kafka.repair.system import SystemMending
from logwright.codec.kafka.repair.write import PartitionMending, Segment, name_segments
from logwright.codec.kafka.startup.start import OPTIONS as START_OPTIONS
from logwright.codec.mending import Kept, Mended, Mending, Strategy
from logwright.codec.option import Option, Options, Verb, parse_bool, parse_choice, parse_text, used_by
from logwright.codec.store.listing import Listing, Plan, Role

PRODUCER_EXPIRATION = Option(
    "producer.id.expiration.ms",
    86_400_000,
    "Producers without an open transaction that were idle for so long are forgotten, as by a broker on its start. Counted back from the "
    "newest time that a broker wrote into the log (a transaction marker, LogAppendTime), else from now",
    low=1,
)
_FRAMEWISE = (str(Strategy.SALVAGE), str(Strategy.PREFIX))
_SYSTEM = (str(Strategy.SYSTEM),)
_OWN = (
    *used_by(
        {Verb.REPAIR},
        Option(
            "open.transactions",
            "keep",
            "What becomes of transactions that are open at the end: kept (and named), or aborted by markers as a broker writes them",
            parse_choice,
            ("keep", "abort"),
        ),
        Option(
            "replicas",
            "merge",
            "Where replicas differ: `merge` refuses, `first` believes the first one given from there on",
            parse_choice,
            ("merge", "first"),
        ),
        strategies=_FRAMEWISE,
    ),
    *used_by(
        {Verb.REPAIR},
        Option(
            "version",
            None,
            "Strategy system: the version whose start is thought of; by default the newest",
            parse_text,
        ),
        Option(
            "clean",
            None,
            "Strategy system: whether the last stop was clean; by default as .kafka_cleanshutdown says",
            parse_bool,
        ),
        strategies=_SYSTEM,
    ),
    PRODUCER_EXPIRATION,
    *used_by((), MAX_DECOMPRESSED, strategies=_FRAMEWISE),
)
REPAIR_OPTIONS = (*START_OPTIONS, *_OWN)

_LARGEST = 1 << 20
_TEMPORARY = (f"{EPOCH_FILE}.tmp", f"{METADATA_FILE}.tmp")
"""Left of writing that was cut short: a broker writes the file beside anew, and renames it."""


def repair(copies: Sequence[Listing], plans: Sequence[Plan], strategy: Strategy, options: Options) -> Mending:
    """See `codec.capability.DirectoryRepair`."""
    check_copies(copies)
    if strategy is Strategy.SYSTEM:
        if len(copies) > 1:
            raise UsageError(
                f"a broker has one copy, there are {len(copies)}",
                advice="Replicas are merged by strategy salvage",
            )
        return SystemMending(copies[0], plans[0], options)
    return _mend(copies, plans, strategy, options)


def log_start(plan: Plan, options: Options) -> int:
    """The first offset that is served, where that is said; where a log begins of itself says nothing of how it is mended."""
    start: int | None = options["log.start.offset"]
    if start is None and plan.facts["log_start_offset"] != plan.facts["first_segment"]:
        start = plan.facts["log_start_offset"]
    return start or 0


def check_copies(copies: Sequence[Listing]) -> None:
    """Replicas are of one partition."""
    found = [dict(place(one)) for one in copies]
    for one, where in zip(copies[1:], found[1:], strict=True):
        if where and found[0] and where != found[0]:
            raise UsageError(
                f"{one.name} is no replica of {copies[0].name}",
                advice="Replicas of one partition have directories of the same name",
            )


def _mend(
    copies: Sequence[Listing], plans: Sequence[Plan], strategy: Strategy, options: Options
) -> PartitionMending:
    reader = Copies(copies)
    examined = [
        [examine(listing, number, file, options) for file in plan.files if file.role is Role.PRIMARY]
        for number, (listing, plan) in enumerate(zip(copies, plans, strict=True))
    ]
    bases = [one.base for one in examined[0]]
    merged = merge(reader, [arrange(reader, one) for one in examined], bases, options["replicas"])
    if strategy is Strategy.PREFIX:
        bases = prefix(reader, merged, bases)
    kept = merged.runs
    start = log_start(plans[0], options)
    segments = name_segments(kept, bases, start)
    if merged.cut:
        leave_no_gap(segments)
    whole, said, advice = surroundings(copies, plans, options)
    interval, other = interval_of(copies[0], plans[0], options)
    notes = [*merged.notes, *renamed(segments), *said, *other]
    end = kept[-1][0].last + 1 if kept else segments[-1].base
    beyond = start > end
    if beyond:
        advice.append(
            f"The log ends at {end} now, log-start-offset-checkpoint says that it starts at {start}: take the partition's line out"
            " of that file (and correct its count), else the broker deletes all of it."
        )
    return PartitionMending(
        reader,
        segments,
        deriver=PartitionDeriver(
            interval,
            now=clock(one for copy in examined for one in copy),
            producer_expiration=options["producer.id.expiration.ms"],
        ),
        cut=merged.cut,
        warnings=notes,
        before_you_start=advice,
        whole=whole,
        log_start=0 if beyond else start,
        abort=options["open.transactions"] == "abort",
        stop_at_damage=strategy is Strategy.PREFIX,
    )


def prefix(reader: Copies, merged: Merged, bases: Sequence[int]) -> list[int]:
    """Cut all that lies behind the first place where something is lost. Returns the segments that are left."""
    losses = [
        one.lost["first_offset"] for one in merged.cut if one.rows_lost != 0 and "first_offset" in one.lost
    ]
    end = min(losses, default=None)
    if end is None:
        return list(bases)
    runs: list[tuple[Run, int]] = []
    for run, key in merged.runs:
        if run.last < end or (run.patch and run.first <= end):
            runs.append((run, key))
            continue
        before = reader.cut(run, 0, end - 1)
        runs += [(one, key) for one in before]
        rest = replace(run, start=before[0].stop) if before else run
        rows, what = reader.lost(rest)
        merged.cut.append(cut_of(rest, "behind the first damage", rows, what))
    merged.runs = runs
    last = runs[-1][1] if runs else -1
    return [base for base in bases if base <= max(last, end)]


def leave_no_gap(segments: list[Segment]) -> None:
    """An empty segment at the end, behind a gap, goes: consumers would wait in the gap until something is appended."""
    filled = [one for one in segments if one.runs]
    while filled and not segments[-1].runs and segments[-1].base > filled[-1].runs[-1].last + 1:
        segments.pop()


def renamed(segments: Sequence[Segment]) -> list[str]:
    """Sentences on segments whose offsets don't fit the names that their files had."""
    out = []
    for one in segments:
        name = segment_name(one.base, ".log")
        if one.like is not None and one.like != name:
            out.append(
                f"{one.like} is called {name} now: its batches don't fit the old name, or the segment before reaches beyond it."
            )
    return out


def surroundings(
    copies: Sequence[Listing], plans: Sequence[Plan], options: Options
) -> tuple[list[Mended], list[str], list[str]]:
    """The files that are not made of batches, which come first; what is to be said of them; and what the broker needs."""
    plan = plans[0]
    whole: list[Mended] = []
    said: list[str] = []
    advice: list[str] = []
    topic = _topic_id(copies)
    given = options["topic.id"]
    if given is not None and not metadata.is_topic_id(given):
        raise UsageError(f"topic.id: {given!r} is no UUID in URL-safe base64 (22 characters)")
    here = next((file for file in plan.files if file.name == METADATA_FILE), None)
    if given is not None and given != topic[0]:
        whole.append(Mended(METADATA_FILE, [metadata.pack(given)], METADATA_FILE if here else None))
    elif topic[0] is not None and topic[1] == 0 and here is not None:
        whole.append(Mended(METADATA_FILE, [Kept(METADATA_FILE, 0, here.size)], METADATA_FILE))
    elif topic[0] is not None:
        whole.append(Mended(METADATA_FILE, [metadata.pack(topic[0])], METADATA_FILE if here else None))
        said.append("partition.metadata is taken from a replica.")
    else:
        what = "is damaged and left out" if here else "is not there"
        said.append(f"partition.metadata {what}: the topic's id is not known.")
        advice.append(
            "Without partition.metadata a KRaft broker sets the partition aside as stray: pass topic.id (kafka-topics --describe"
            " prints it) to have the file written, or copy it from another partition of the topic."
        )
    for file in plan.files:
        if file.role is not Role.FOREIGN:
            continue
        if file.name in _TEMPORARY:
            continue
        if claims_to_be_kafkas(file.name) or file.name.endswith(".deleted"):
            said.append(f"{file.name} is left out: the broker takes the name for one of its own.")
            continue
        whole.append(Mended(file.name, [Kept(file.name, 0, file.size)], file.name))
    return whole, said, advice


def _topic_id(copies: Sequence[Listing]) -> tuple[str | None, int]:
    """The topic's id and the copy that has it."""
    for number, listing in enumerate(copies):
        if METADATA_FILE not in {entry.name for entry in listing.entries()}:
            continue
        try:
            return metadata.unpack(listing.read(METADATA_FILE, 0, _LARGEST))[1], number
        except (DescriptionError, UnreadableError):
            continue
    return None, 0
