"""Repair a partition: choose the batches that are kept, and the other files.

Strategy salvage keeps every sound batch, prefix those before the first damage. A broker that starts on the result, even after an
unclean stop, has nothing to truncate, delete or rewrite (see `startup`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from logwright.codec.describe import DescriptionError
from logwright.codec.engine.repair import OutputFile, Repairer, RepairPlan, Strategy
from logwright.codec.engine.startup import SystemRepair
from logwright.codec.fault import LogwrightError, UnreadableError, UsageError
from logwright.codec.kafka.derive import PartitionDeriver
from logwright.codec.kafka.formats import partition_metadata as metadata
from logwright.codec.kafka.formats.log.codec import CODEC
from logwright.codec.kafka.formats.log.tables import MAX_DECOMPRESSED
from logwright.codec.kafka.names import (
    EPOCH_FILE,
    METADATA_FILE,
    claims_to_be_kafkas,
    is_partition,
    parse_directory,
    segment_name,
)
from logwright.codec.kafka.options import STARTING
from logwright.codec.kafka.repair.ends import TransactionEnds, losses
from logwright.codec.kafka.repair.intervals import interval_of
from logwright.codec.kafka.repair.raft import RaftFiles
from logwright.codec.kafka.repair.reorder import reorder
from logwright.codec.kafka.repair.replicas import Merged, merge
from logwright.codec.kafka.repair.runs import Heads, Run, lost, removed_run
from logwright.codec.kafka.repair.survey import SegmentSurvey, clock, survey
from logwright.codec.kafka.repair.write import PartitionPlan, Segment, name_segments
from logwright.codec.kafka.startup.start import STARTUP
from logwright.codec.kafka.store.evidence import partition_of
from logwright.codec.kafka.store.partition import LAYOUT
from logwright.codec.kafka.store.transactions import AbortedIndex
from logwright.codec.option import Option, Options, Verb, parse_bool, parse_choice, parse_text, used_by
from logwright.codec.store.extents import Copy
from logwright.codec.store.listing import Listing, Plan, PlannedFile, Role, folders_of

PRODUCER_EXPIRATION = Option(
    "producer.id.expiration.ms",
    86_400_000,
    "Producers without an open transaction that were idle for this time are forgotten, as by a broker on its start. It counts back from "
    "the newest time that a broker wrote into the log (transaction markers, LogAppendTime), or from now",
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
            "Transactions that are open at the end: keep and report them, or abort them by markers as a broker writes them",
            parse_choice,
            ("keep", "abort"),
        ),
        Option(
            "replicas",
            "merge",
            "If replicas diverge: merge refuses, first uses only the first one from there on",
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
            "Strategy system: version whose start is simulated. By default the newest",
            parse_text,
        ),
        Option(
            "clean",
            None,
            "Strategy system: whether the last stop was clean. By default it was if .kafka_cleanshutdown exists",
            parse_bool,
        ),
        strategies=_SYSTEM,
    ),
    PRODUCER_EXPIRATION,
    *used_by((), MAX_DECOMPRESSED, strategies=_FRAMEWISE),
)
REPAIR_OPTIONS = (*STARTING, *_OWN)

_LARGEST = 1 << 20
_TEMPORARY = (f"{EPOCH_FILE}.tmp", f"{METADATA_FILE}.tmp")
"""Files left by an interrupted write: a broker writes a temporary file, and renames it."""


def sound_segments(plan: Plan) -> list[PlannedFile]:
    """Return the logs. Raises `UsageError` if one is left by an interrupted operation."""
    files = [file for file in plan.files if file.role is Role.PRIMARY]
    for file in files:
        if file.name != segment_name(file.hints["base_offset"], ".log"):
            raise UsageError(
                f"{file.name} is left by an interrupted operation",
                advice="Start the broker on it once, which finishes the operation, or repair the partition",
            )
    return files


def stray_logs(listing: Listing, plan: Plan) -> Iterator[PlannedFile]:
    """Iterate over the logs whose names are not those of segments, and the results of interrupted compactions. Each counts as the segment of
    its first batch."""
    for file in plan.files:
        foreign = file.role is Role.FOREIGN and file.name.endswith(".log")
        if (foreign or file.name.endswith(".log.cleaned")) and file.size:
            try:
                first = int.from_bytes(listing.read(file.name, 0, 8), "big", signed=True)
            except UnreadableError:
                continue
            if first >= 0:
                yield replace(file, role=Role.PRIMARY, codec=CODEC.name, hints={"base_offset": first})


def log_start(plan: Plan, options: Options) -> int:
    """Return the log start offset by option or checkpoint; 0 if it is only the base of the first segment."""
    start: int | None = options["log.start.offset"]
    if start is None and plan.facts["log_start_offset"] != plan.facts["first_segment"]:
        start = plan.facts["log_start_offset"]
    return start or 0


class PartitionRepair(Repairer):
    """Repair logs as runs of sound batches."""

    one_copy = (
        "strategy system simulates a broker with one copy of the partition, but {} were given",
        "Replicas are merged by strategy salvage",
    )
    merges_copies = True
    merged: Merged
    surveys: list[list[SegmentSurvey]]
    strays: list[list[SegmentSurvey]]

    @classmethod
    def as_system(cls, listing: Listing, plan: Plan, options: Options) -> RepairPlan:
        started = STARTUP.run(listing, plan, options, version=options["version"], clean=options["clean"])
        return SystemRepair(started, LAYOUT.order)

    def survey(self) -> None:
        check_copies(self.copies)
        self.surveys, self.strays = [], []
        for number, (listing, plan) in enumerate(zip(self.copies, self.plans, strict=True)):
            logs = [file for file in plan.files if file.role is Role.PRIMARY]
            for out, files in ((self.surveys, logs), (self.strays, stray_logs(listing, plan))):
                out.append(
                    [survey(listing, number, file, self.options, correct=self.correct) for file in files]
                )
        self.bases = [segment.base for segment in self.surveys[0]]

    def reorder(self) -> None:
        orders = [
            reorder(*copy, correct=self.correct)
            for copy in zip(self.copies, self.surveys, self.strays, strict=True)
        ]
        self.bases = [base for base in self.bases if base not in orders[0].wrong_names]
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
        heads = [run.heads for run, _ in merged.runs]
        first, notes, advice = surroundings(self.copies, self.plans, options, heads)
        end = merged.runs[-1][0].last + 1 if merged.runs else segments[-1].base
        if start > end:
            advice.append(
                f"The log ends at {end} now, but starts at {start} by log-start-offset-checkpoint: remove the partition's line from that"
                " file and correct its count. Otherwise the broker deletes the whole log."
            )
            start = 0
        newest = clock(segment for segments in self.surveys for segment in segments)
        deriver, other = deriver_of(self.copies[0], self.plans[0], options, newest, start, self.surveys[0])
        plan = PartitionPlan(
            self.copies,
            [(part.base, part.runs, part.like) for part in segments],
            deriver,
            first=first,
            abort=options["open.transactions"] == "abort",
            stop_at_damage=stop_at_damage,
            ends=self._ends(stop_at_damage=stop_at_damage),
        )
        plan.cut += merged.cut
        deleted = [deleted_log(file) for file in self.plans[0].files if file.name.endswith(".log.deleted")]
        plan.notes += [*merged.notes, *renamed(segments), *deleted, *notes, *other]
        plan.before_you_start += advice
        return plan

    def _ends(self, *, stop_at_damage: bool) -> TransactionEnds:
        known_end = max((segment.file.hints.get("known_end") or 0 for segment in self.surveys[0]), default=0)
        index = None if stop_at_damage else AbortedIndex(self.copies[0])
        return TransactionEnds(index, losses(self.merged.cut, self.plans[0].missing), known_end)


def deriver_of(
    listing: Listing,
    plan: Plan,
    options: Options,
    now: int,
    start: int,
    surveys: Sequence[SegmentSurvey] = (),
) -> tuple[PartitionDeriver, list[str]]:
    """Return the deriver of the files of a log that starts at `start`, and notes on the interval of its indexes."""
    interval, notes = interval_of(listing, plan, options, surveys)
    expiration = options["producer.id.expiration.ms"]
    return PartitionDeriver(interval, now=now, producer_expiration=expiration, log_start=start), notes


def check_copies(copies: Sequence[Listing]) -> None:
    """Raise `UsageError` where copies are of different partitions."""
    first = partition_of(copies[0])
    for copy in copies[1:]:
        other = partition_of(copy)
        if other and first and other != first:
            raise UsageError(
                f"{copy.name} is not a replica of {copies[0].name}",
                advice="Replicas of one partition have directories of the same name",
            )


def prefix(copies: Sequence[Listing], merged: Merged, bases: Sequence[int]) -> list[int]:
    """Cut everything after the first loss. Return the base offsets of the segments that are left."""
    end = min((cut.lost["first_offset"] for cut in merged.cut if "first_offset" in cut.lost), default=None)
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
    """Remove empty segments at the end that follow a gap: consumers would wait in the gap until records are appended."""
    filled = [segment for segment in segments if segment.runs]
    while filled and not segments[-1].runs and segments[-1].base > filled[-1].runs[-1].last + 1:
        segments.pop()


def renamed(segments: Sequence[Segment]) -> list[str]:
    """Return notes on segments that are renamed, because their offsets do not fit the old name."""
    out = []
    for segment in segments:
        name = segment_name(segment.base, ".log")
        if segment.like is not None and segment.like != name:
            out.append(
                f"{segment.like} is renamed to {name}: its batches do not fit the old name, or the segment before reaches beyond it."
            )
    return out


def deleted_log(file: PlannedFile) -> str:
    """Return the note on a log that the broker was deleting."""
    name = file.name.removesuffix(".deleted")
    return (
        f"{file.name} is left out, since a broker removes it. If its records were not deleted on purpose, rename it to {name} and"
        " repair again."
    )


def surroundings(
    copies: Sequence[Listing], plans: Sequence[Plan], options: Options, batches: Iterable[Heads] = ()
) -> tuple[list[OutputFile], list[str], list[str]]:
    """Return the files that are not made of batches, notes on them, and advice for the start of the broker. `batches` are the headers of the
    log's batches."""
    plan = plans[0]
    files: list[OutputFile] = []
    notes: list[str] = []
    advice: list[str] = []
    ids = (plan.facts["topic_id"] for plan in plans)
    topic = next(((id_, number) for number, id_ in enumerate(ids) if id_ is not None), (None, 0))
    topic_option = options["topic.id"]
    if topic_option is not None and not metadata.is_topic_id(topic_option):
        raise UsageError(f"topic.id: {topic_option!r} is not a UUID in URL-safe base64 (22 characters)")
    present = next((file for file in plan.files if file.name == METADATA_FILE), None)
    like = None if present is None else METADATA_FILE
    if topic_option is not None and topic_option != topic[0]:
        files.append(OutputFile(METADATA_FILE, [metadata.pack(topic_option)], like))
    elif topic[0] is not None and topic[1] == 0 and present is not None:
        files.append(OutputFile(METADATA_FILE, [Copy(METADATA_FILE, 0, present.size)], METADATA_FILE))
    elif topic[0] is not None:
        files.append(OutputFile(METADATA_FILE, [metadata.pack(topic[0])], like))
        notes.append("partition.metadata is copied from a replica.")
    elif (beside := _topic_id_beside(copies[0])) is not None:
        files.append(OutputFile(METADATA_FILE, [metadata.pack(beside[0])], like))
        notes.append(f"partition.metadata is copied from ../{beside[1]}, a partition of the same topic.")
    else:
        state = "is damaged and is removed" if present else "is missing"
        notes.append(f"partition.metadata {state}: the topic id is unknown.")
        advice.append(
            "Without partition.metadata a KRaft broker treats the partition as stray: pass topic.id (kafka-topics --describe prints it)"
            " to write the file, or copy it from another partition of the topic."
        )
    raft = RaftFiles(copies[0], plan, batches)
    files, notes, advice = [*files, *raft.keep], [*notes, *raft.notes], [*advice, *raft.advice]
    for file in plan.files:
        if file.role is not Role.FOREIGN or file.name in _TEMPORARY or file.name in raft.names:
            continue
        if claims_to_be_kafkas(file.name) or file.name.endswith(".deleted"):
            notes.append(f"{file.name} is removed: the broker mistakes the name for that of a segment.")
            continue
        files.append(OutputFile(file.name, [Copy(file.name, 0, file.size)], file.name))
    return files, notes, advice


def _topic_id_beside(listing: Listing) -> tuple[str, str] | None:
    """Return the topic id of the other partitions of the topic in the log directory, and the name of one; None if they have several."""
    above, own = listing.parent(), parse_directory(listing.name)
    if above is None or own is None or not is_partition(listing.name):
        return None
    ids: dict[str, str] = {}
    for name in folders_of(above):
        place = parse_directory(name)
        if place is not None and place.topic == own.topic and name != listing.name and is_partition(name):
            try:
                ids[metadata.unpack(above.read(f"{name}/{METADATA_FILE}", 0, _LARGEST))[1]] = name
            except (DescriptionError, LogwrightError):
                continue
    return next(iter(ids.items())) if len(ids) == 1 else None
