"""Repair a partition: which batches are kept, and the files around them.

Salvage keeps every sound batch, prefix those before the first damage. A broker that is started on the result, after an unclean stop
too, finds nothing to truncate, delete or rewrite (see `startup`).
"""

from __future__ import annotations

from collections.abc import Sequence

from logwright.codec.describe import DescriptionError
from logwright.codec.engine.repair import OutputFile, Repairer, RepairPlan, Strategy
from logwright.codec.engine.startup import SystemRepair
from logwright.codec.fault import UnreadableError, UsageError
from logwright.codec.kafka.derive import PartitionDeriver
from logwright.codec.kafka.formats import partition_metadata as metadata
from logwright.codec.kafka.formats.log.tables import MAX_DECOMPRESSED
from logwright.codec.kafka.names import EPOCH_FILE, METADATA_FILE, claims_to_be_kafkas, segment_name
from logwright.codec.kafka.repair.intervals import interval_of
from logwright.codec.kafka.repair.reorder import reorder
from logwright.codec.kafka.repair.replicas import Merged, merge
from logwright.codec.kafka.repair.runs import Run, lost, partition_of, removed_run
from logwright.codec.kafka.repair.survey import clock, survey
from logwright.codec.kafka.repair.write import PartitionPlan, Segment, name_segments
from logwright.codec.kafka.startup.start import OPTIONS as START_OPTIONS
from logwright.codec.kafka.startup.start import STARTUP
from logwright.codec.kafka.store.partition import LAYOUT
from logwright.codec.option import Option, Options, Verb, parse_bool, parse_choice, parse_text, used_by
from logwright.codec.store.extents import Copy
from logwright.codec.store.listing import Listing, Plan, PlannedFile, Role

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
            "Strategy system: the version whose start is simulated; by default the newest",
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


def sound_segments(plan: Plan) -> list[PlannedFile]:
    """Return the logs. Raises `UsageError` where an operation on one of them was cut short."""
    files = [file for file in plan.files if file.role is Role.PRIMARY]
    for file in files:
        if file.name != segment_name(file.hints["base_offset"], ".log"):
            raise UsageError(
                f"{file.name} is left of an operation that was cut short",
                advice="Start the broker on it once, which finishes the operation, or repair the partition",
            )
    return files


def log_start(plan: Plan, options: Options) -> int:
    """The first offset that is served, where that is said; where a log begins of itself says nothing of how it is mended."""
    start: int | None = options["log.start.offset"]
    if start is None and plan.facts["log_start_offset"] != plan.facts["first_segment"]:
        start = plan.facts["log_start_offset"]
    return start or 0


class PartitionRepair(Repairer):
    """Each file of the result is made of runs of sound batches."""

    one_copy = "a broker has one copy, there are {}", "Replicas are merged by strategy salvage"
    merges_copies = True
    merged: Merged

    @classmethod
    def as_system(cls, listing: Listing, plan: Plan, options: Options) -> RepairPlan:
        started = STARTUP.run(listing, plan, options, version=options["version"], clean=options["clean"])
        return SystemRepair(started, LAYOUT.order)

    def survey(self) -> None:
        check_copies(self.copies)
        self.surveys = [
            [survey(listing, number, file, self.options) for file in plan.files if file.role is Role.PRIMARY]
            for number, (listing, plan) in enumerate(zip(self.copies, self.plans, strict=True))
        ]
        self.bases = [segment.base for segment in self.surveys[0]]

    def reorder(self) -> None:
        orders = [reorder(*copy) for copy in zip(self.copies, self.surveys, strict=True)]
        self.merged = merge(orders, self.bases, self.options["replicas"])

    def go_back(self) -> RepairPlan:
        return self._plan(prefix(self.copies, self.merged, self.bases), stop_at_damage=True)

    def salvage(self) -> RepairPlan:
        return self._plan(self.bases)

    def _plan(self, bases: Sequence[int], *, stop_at_damage: bool = False) -> PartitionPlan:
        merged, options = self.merged, self.options
        start = log_start(self.plans[0], options)
        segments = name_segments(merged.runs, bases, start)
        if merged.cut:
            leave_no_gap(segments)
        first, notes, advice = surroundings(self.copies, self.plans, options)
        end = merged.runs[-1][0].last + 1 if merged.runs else segments[-1].base
        if start > end:
            advice.append(
                f"The log ends at {end} now, log-start-offset-checkpoint says that it starts at {start}: take the partition's line out"
                " of that file (and correct its count), else the broker deletes all of it."
            )
            start = 0
        newest = clock(segment for segments in self.surveys for segment in segments)
        deriver, other = deriver_of(self.copies[0], self.plans[0], options, newest, start)
        plan = PartitionPlan(
            self.copies,
            [(part.base, part.runs, part.like) for part in segments],
            deriver,
            first=first,
            abort=options["open.transactions"] == "abort",
            stop_at_damage=stop_at_damage,
        )
        plan.cut += merged.cut
        plan.notes += [*merged.notes, *renamed(segments), *notes, *other]
        plan.before_you_start += advice
        return plan


def deriver_of(
    listing: Listing, plan: Plan, options: Options, now: int, start: int
) -> tuple[PartitionDeriver, list[str]]:
    """Return what derives the files of a log that starts at `start`, and notes on the interval of its indexes."""
    interval, notes = interval_of(listing, plan, options)
    expiration = options["producer.id.expiration.ms"]
    return PartitionDeriver(interval, now=now, producer_expiration=expiration, log_start=start), notes


def check_copies(copies: Sequence[Listing]) -> None:
    """Raise `UsageError` where copies are of different partitions."""
    first = partition_of(copies[0])
    for copy in copies[1:]:
        other = partition_of(copy)
        if other and first and other != first:
            raise UsageError(
                f"{copy.name} is no replica of {copies[0].name}",
                advice="Replicas of one partition have directories of the same name",
            )


def prefix(copies: Sequence[Listing], merged: Merged, bases: Sequence[int]) -> list[int]:
    """Cut everything after the first loss. Return the base offsets of the segments that are left."""
    losses = [
        cut.lost["first_offset"] for cut in merged.cut if cut.rows_lost != 0 and "first_offset" in cut.lost
    ]
    end = min(losses, default=None)
    if end is None:
        return list(bases)
    runs: list[tuple[Run, int]] = []
    for run, key in merged.runs:
        if run.last < end or (run.patch and run.first <= end):
            runs.append((run, key))
            continue
        before = run.within(0, end - 1)
        runs += [(part, key) for part in before]
        rest = run.parts(len(before[0].heads))[1] if before else run
        rows, where = lost(copies[run.copy], rest.heads)
        merged.cut.append(removed_run(rest, "after the first damage", rows, where))
    merged.runs = runs
    last = runs[-1][1] if runs else -1
    return [base for base in bases if base <= max(last, end)]


def leave_no_gap(segments: list[Segment]) -> None:
    """An empty segment at the end, behind a gap, goes: consumers would wait in the gap until something is appended."""
    filled = [segment for segment in segments if segment.runs]
    while filled and not segments[-1].runs and segments[-1].base > filled[-1].runs[-1].last + 1:
        segments.pop()


def renamed(segments: Sequence[Segment]) -> list[str]:
    """Sentences on segments whose offsets don't fit the names that their files had."""
    out = []
    for segment in segments:
        name = segment_name(segment.base, ".log")
        if segment.like is not None and segment.like != name:
            out.append(
                f"{segment.like} is called {name} now: its batches don't fit the old name, or the segment before reaches beyond it."
            )
    return out


def surroundings(
    copies: Sequence[Listing], plans: Sequence[Plan], options: Options
) -> tuple[list[OutputFile], list[str], list[str]]:
    """The files that are not made of batches, which come first; what is to be said of them; and what the broker needs."""
    plan = plans[0]
    files: list[OutputFile] = []
    notes: list[str] = []
    advice: list[str] = []
    topic = _topic_id(copies)
    topic_option = options["topic.id"]
    if topic_option is not None and not metadata.is_topic_id(topic_option):
        raise UsageError(f"topic.id: {topic_option!r} is no UUID in URL-safe base64 (22 characters)")
    present = next((file for file in plan.files if file.name == METADATA_FILE), None)
    if topic_option is not None and topic_option != topic[0]:
        files.append(
            OutputFile(METADATA_FILE, [metadata.pack(topic_option)], METADATA_FILE if present else None)
        )
    elif topic[0] is not None and topic[1] == 0 and present is not None:
        files.append(OutputFile(METADATA_FILE, [Copy(METADATA_FILE, 0, present.size)], METADATA_FILE))
    elif topic[0] is not None:
        files.append(OutputFile(METADATA_FILE, [metadata.pack(topic[0])], METADATA_FILE if present else None))
        notes.append("partition.metadata is taken from a replica.")
    else:
        state = "is damaged and left out" if present else "is not there"
        notes.append(f"partition.metadata {state}: the topic's id is not known.")
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
            notes.append(f"{file.name} is left out: the broker takes the name for one of its own.")
            continue
        files.append(OutputFile(file.name, [Copy(file.name, 0, file.size)], file.name))
    return files, notes, advice


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
