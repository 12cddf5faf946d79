"""The layout `kafka.partition`: the directory of one partition, and its views.

Source of the rules: `LogLoader`, `LogSegments` and `UnifiedLog` of Kafka's storage module.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.base import Match
from logwright.codec.deferred import deferred
from logwright.codec.describe import DescriptionError
from logwright.codec.fault import Fault, Kind, Severity, UnreadableError, UnsupportedError, UsageError
from logwright.codec.frames.walk import ListedFile, good_frames, walk_file
from logwright.codec.kafka.formats import partition_metadata as metadata
from logwright.codec.kafka.formats.internal.definitions import TOPICS
from logwright.codec.kafka.formats.internal.view import BY_VIEW
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.formats.log.tables import DECODED, OtherLogs
from logwright.codec.kafka.formats.meta_properties import KRAFT
from logwright.codec.kafka.formats.quorum_state import MAX_BYTES as MAX_QUORUM_STATE
from logwright.codec.kafka.formats.quorum_state import (
    METADATA_PARTITION,
    QUORUM_STATE_FILE,
    parse_quorum_state,
)
from logwright.codec.kafka.names import (
    CLEAN_SHUTDOWN_FILE,
    DELETE_SUFFIX,
    EPOCH_FILE,
    LOG_DIRECTORY_FILES,
    LOG_START_FILE,
    META_PROPERTIES_FILE,
    METADATA_FILE,
    SegmentFile,
    claims_to_be_kafkas,
    delete_directory,
    is_partition,
    parse_directory,
    parse_segment,
    segment_name,
    why_unserved,
)
from logwright.codec.kafka.options import LOG_START_OFFSET, STARTING, WRITING
from logwright.codec.kafka.startup.errors import BrokerError
from logwright.codec.kafka.store.evidence import Evidence, partition_of, read_checkpoint, stored_epochs
from logwright.codec.layout import Layout
from logwright.codec.option import STARTS, Options, Verb, used_by
from logwright.codec.store.build import Builder, Parts, Placement, Stage
from logwright.codec.store.listing import Entry, Listing, Plan, PlannedFile, Role, folders_of
from logwright.codec.store.view import Part, View

if TYPE_CHECKING:
    from logwright.codec.kafka.startup import start as startup
    from logwright.codec.kafka.state.producers import AbortedTxn
    from logwright.codec.kafka.store import assemble, builder, facts, resume, transactions, uncompacted
    from logwright.codec.kafka.store.builder import Resumed
else:
    startup = deferred("logwright.codec.kafka.startup", "start")
    assemble, builder, facts, resume, transactions, uncompacted = deferred(
        "logwright.codec.kafka.store",
        "assemble", "builder", "facts", "resume", "transactions", "uncompacted",
    )  # fmt: skip

NAME = "kafka.partition"
MAX_SEGMENT = (1 << 31) - 1
_CODECS = {
    ".log": "kafka.log", ".index": "kafka.index", ".timeindex": "kafka.timeindex", ".txnindex": "kafka.txnindex",
    ".snapshot": "kafka.producer_snapshot",
}  # fmt: skip
_SUFFIXES = tuple(_CODECS)
_WRITTEN = (".log", ".timeindex", ".txnindex", ".index", ".snapshot")

_SNAPSHOT = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint")

VIEWS = {
    view.name: view
    for view in (
        View(
            "read_uncommitted",
            "kafka.log",
            "rows",
            "the records that a consumer gets by default",
            leaves="control records",
        ),
        View(
            "read_committed",
            "kafka.log",
            "rows",
            "without aborted transactions, up to the first open one",
            leaves="control records, aborted transactions, and what follows the first open one",
        ),
        View("log", "kafka.log", "rows", "all records in the files, with the markers of the system"),
        View("batches", "kafka.log", "frames", "record batches"),
        *(
            View(
                topic.view,
                "kafka.log",
                topic.view,
                f"the records of {topic.topic}, decoded: {topic.doc}",
                leaves="" if topic.control else "control records",
            )
            for topic in TOPICS
        ),
    )
}
SERVED = ("read_uncommitted", "read_committed", *(topic.view for topic in TOPICS))
"""The views of what a consumer gets."""
_WITH_CONTROL = [topic.view for topic in TOPICS if topic.control]


class KafkaPartition(Layout):
    """A partition. A broker reads only the regular files of its directory."""

    name = NAME
    title = "Kafka partition: segments with their indexes"
    views = VIEWS
    default_view = "read_uncommitted"
    options = WRITING
    read_options = (
        *used_by({Verb.READ}, LOG_START_OFFSET, views=SERVED),
        *used_by({*STARTS, Verb.INSPECT, Verb.EXPLAIN}, LOG_START_OFFSET),
        *used_by(STARTS, *(option for option in STARTING if option is not LOG_START_OFFSET)),
    )
    identity_options = MappingProxyType({"topic.id": "topic_id"})
    nouns = ("record", "segment")
    takes = tuple({column.name: column for table in DECODED.values() for column in table.columns}.values())
    advice = (
        "If another replica is in sync, move this directory away and let it re-replicate: nothing is lost.",
    )

    def recognise(self, listing: Listing) -> Match:
        named = parse_directory(listing.name) is not None
        names = [entry.name for entry in listing.entries()]
        if _holds_partitions(listing) and not (named and LOG_DIRECTORY_FILES.isdisjoint(names)):
            return Match.NO
        segments = any(parsed is not None and parsed.suffix == ".log" for parsed in map(parse_segment, names))
        if segments:
            return Match.SURE if named else Match.NAME
        # The logs may be lost, and nothing else.
        left = METADATA_FILE in names or any(parse_segment(name) is not None for name in names)
        return Match.NAME if named and left else Match.NO

    # Reading

    def plan(self, listing: Listing, options: Options) -> Plan:
        directory = _Directory(listing)
        start, faults = log_start(listing, options)
        sizes = {name: entry.size for name, entry in directory.entries.items()}
        known = Evidence.of(listing, sizes, directory.bases, start, _never_compacted)
        files = [directory.planned(name, known) for name in directory.names()]
        faults += [
            (file.name, fault) for file in files for fault in _faults(file, directory.parsed[file.name])
        ]
        faults += directory.missing(files)
        if directory.in_raft_log and QUORUM_STATE_FILE in sizes:
            faults += _vote_faults(listing, sizes[QUORUM_STATE_FILE])
        if start is not None and directory.bases and start > directory.bases[-1]:
            faults += _beyond_end(listing, [file for file in files if file.role is Role.PRIMARY], start)
        facts = directory.facts(start)
        epochs = facts["leader_epochs"]
        missing = known.missing(epochs[0]["start_offset"] if epochs else None, directory.extent)
        return Plan(tuple(files), tuple(faults), facts, tuple(missing))

    def parts(self, listing: Listing, plan: Plan, view: str, options: Options) -> Sequence[Part]:
        segments = [file for file in plan.files if file.role is Role.PRIMARY]
        table = self.views[view].table
        served = view in SERVED
        start = log_start(listing, options)[0] if served else None
        aborted: list[AbortedTxn] = []
        stable: int | None = None
        damaged: set[str] = set()
        faults: list[tuple[str, Fault]] = []
        if view == "read_committed":
            txns, faults = transactions.transactions(listing, segments, plan.missing)
            aborted, stable, damaged = txns.aborted, txns.state.first_unstable, txns.damaged
        out: list[Part] = []
        for file in segments:
            low, high = file.hints["base_offset"], file.hints["next_base"]
            unreported = faults and not out
            if stable is not None and low >= stable and file.name not in damaged and not unreported:
                # No row of it is served. A damaged segment is read all the same: it may be the reason, and must be reported.
                continue
            if start is not None and high is not None and high <= start:
                continue
            hints = dict(file.hints)
            if served:
                # Offsets from the next segment's base on are served only from there.
                end = min((bound for bound in (stable, high) if bound is not None), default=None)
                first = low if start is None else max(start, low)
                hints |= {
                    "control": view in _WITH_CONTROL,
                    "partial": True,
                    "start_offset": first,
                    "end_offset": end,
                }
                hints["aborted"] = tuple(txn[:3] for txn in aborted)
            bounds = {
                "base_offset" if table == "frames" else "offset": (low, None if high is None else high - 1)
            }
            out.append(
                Part(file.name, "kafka.log", table, hints, bounds=bounds, faults=() if out else faults)
            )
        return out

    def facts(self, listing: Listing, plan: Plan) -> Mapping[str, Any]:
        return facts.facts(listing, plan)

    def discards(self, name: str) -> bool:
        return name.endswith(DELETE_SUFFIX)

    unserved = staticmethod(why_unserved)

    def in_view(self, name: str, view: str) -> bool:
        decoded, where = BY_VIEW.get(view), parse_directory(name)
        return decoded is None or where is None or where.topic == decoded.topic

    # Writing

    def locks(self) -> Sequence[str]:
        return ("../.lock",)

    def staging(self, name: str, token: str) -> str:
        """Return the name of a staging directory, which a broker that is started meanwhile deletes. Any other name that is not a
        partition's would prevent its start (`LogManager.loadLogs`)."""
        return delete_directory(name, token)

    def order(self, names: Iterable[str]) -> Sequence[str]:
        """Return names in the order of their renames, so that a broker may start at any time.

        The epochs and the topic id are first: a broker that starts before the logs are there drops the epochs beyond the log end. Then
        come the segments, each with its log first and its `.index` last. A broker deletes an index without a log. It recovers a log
        without an `.index`, even after a clean stop, and rebuilds all its indexes. With an `.index` and without a `.timeindex` it would
        use an empty one, and find no record of the segment by time.

        A snapshot of the producers comes after the segment that starts at its offset: if offsets are kept, there may be a gap before
        that segment, and the broker removes snapshots beyond the log end.
        """
        return sorted(names, key=lambda name: _rank(name, parse_segment(name), writing=True))

    def builder(
        self,
        listing: Listing | None,
        name: str,
        options: Options,
        *,
        staged: bool = False,
        extra: Stage | None = None,
    ) -> Builder:
        if not is_partition(name):
            raise UsageError(
                f"{name!r} is not the name of a partition",
                advice="Name the directory TOPIC-NUMBER, like orders-0",
            )
        # The offsets of a task count from 0, whatever the partition has.
        resumed = self._resumed(None if staged else listing)
        return builder.PartitionBuilder(options, resumed, staged=staged, name=name)

    def assemble(
        self, listing: Listing | None, name: str, parts: Parts, extra: Stage, options: Options
    ) -> Placement:
        return assemble.assemble(self._resumed(listing), parts, extra, options, name).ordered(self.order)

    def _resumed(self, listing: Listing | None) -> Resumed | None:
        return (
            None
            if listing is None
            else resume.resume(listing, self.plan(listing, Options(self.read_options)))
        )


def _holds_partitions(listing: Listing) -> bool:
    """Return whether there are folders of partitions: any segments beside them have come there by mistake. The same folders in a folder of
    a partition are a mistake themselves."""
    return any(parse_directory(name) is not None for name in folders_of(listing))


class _Directory:
    """The files of a partition, and what the reader takes each of them for."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self.entries = {entry.name: entry for entry in listing.entries()}
        self.parsed = {name: parse_segment(name) for name in self.entries}
        self._logs, self._replaced = _logs(listing, self.entries, self.parsed)
        self.bases = sorted(self._logs)
        self._files = {
            base: ListedFile(listing, name, self.entries[name].size) for base, name in self._logs.items()
        }
        above = listing.parent()
        self._clean = (
            None if above is None else CLEAN_SHUTDOWN_FILE in {entry.name for entry in above.entries()}
        )
        self.in_raft_log = listing.name == METADATA_PARTITION

    def names(self) -> list[str]:
        """Return the names in the order in which the files are read."""
        return sorted(self.entries, key=lambda name: _rank(name, self.parsed[name], read=self._logs.values()))

    def planned(self, name: str, known: Evidence) -> PlannedFile:
        """Return the role of a file, with the hints for a log."""
        size, segment_file = self.entries[name].size, self.parsed[name]
        if segment_file is None:
            if name == EPOCH_FILE:
                return PlannedFile(name, size, Role.DERIVED, "kafka.leader_epoch_checkpoint")
            if name == METADATA_FILE:
                return PlannedFile(name, size, Role.METADATA, metadata.CODEC.name)
            if self.in_raft_log and name == QUORUM_STATE_FILE:
                return PlannedFile(name, size, Role.METADATA, note="the last vote of this KRaft node")
            if self.in_raft_log and _SNAPSHOT.fullmatch(name):
                return PlannedFile(
                    name, size, Role.METADATA, "kafka.log", note="snapshot of the cluster's metadata"
                )
            return PlannedFile(name, size, Role.FOREIGN, note="not a file of Kafka, which ignores it")
        codec, base, leftover = _CODECS[segment_file.suffix], segment_file.base_offset, segment_file.leftover
        if name in self._replaced:
            note = f"the broker replaces it by {self._replaced[name]}"
            return PlannedFile(name, size, Role.LEFTOVER, codec, note=note)
        if self._logs.get(base) == name:
            after = next((each for each in self.bases if each > base), None)
            hints = {
                "base_offset": base, "next_base": after, "follows": base != self.bases[0], "last": after is None,
                "clean": self._clean,
                "indexes": known.indexes(base, after), "others": OtherLogs(base, self._files), **known.hints(base, name),
            }  # fmt: skip
            return PlannedFile(name, size, Role.PRIMARY, codec, hints, note=_LEFTOVERS.get(leftover, ""))
        if leftover:
            note = _LEFTOVERS[leftover]
            if name.endswith(".log.deleted") and size:
                note += f". Its records are not in the views of the partition: read {name} by its own path"
            return PlannedFile(name, size, Role.LEFTOVER, codec, note=note)
        if segment_file.suffix != ".snapshot" and base not in self._logs:
            return PlannedFile(name, size, Role.LEFTOVER, codec, note="without a log; the broker deletes it")
        return PlannedFile(
            name, size, Role.DERIVED, codec, {"last": base in self.bases[-1:], "clean": self._clean}
        )

    def extent(self, base: int) -> tuple[int, int]:
        """Return the first offset in a log and the one after the last."""
        extents = _extents(self._listing, _planned_log(self.entries[self._logs[base]], base))
        return (int(extents[0, 0]), int(extents[:, 1].max()) + 1) if len(extents) else (base, base)

    def facts(self, start: int | None) -> dict[str, Any]:
        """Return the facts of `Plan`. `start` is the log start offset, if it is known."""
        first, last = (self.bases[0], self.bases[-1]) if self.bases else (None, None)
        return {
            **partition_of(self._listing),
            "topic_id": _topic_id(self._listing, self.entries),
            "segments": len(self.bases),
            "log_bytes": sum(self.entries[name].size for name in self._logs.values()),
            "first_segment": first,
            "last_segment": last,
            "log_start_offset": start if start is not None else first or 0,
            "leader_epochs": [
                {"epoch": epoch, "start_offset": offset} for epoch, offset in stored_epochs(self._listing)
            ],
            "clean_shutdown": self._clean,
        }

    def missing(self, files: Sequence[PlannedFile]) -> list[tuple[str, Fault]]:
        """Return the faults of missing files that a broker would have. Readers do not need them."""
        faults = []

        def absent(name: str, system: str, severity: Severity = Severity.INFO) -> None:
            faults.append((name, Fault(NAME, 0, 0, Kind.LINK, "the file is missing", severity, system)))

        for base in self.bases:
            if segment_name(base, ".index") not in self.entries:
                absent(segment_name(base, ".index"), "the broker recovers the segment when it starts")
            elif segment_name(base, ".timeindex") not in self.entries:
                absent(
                    segment_name(base, ".timeindex"),
                    "after a clean stop the broker makes an empty one: lookups by time skip the segment",
                )
        if METADATA_FILE not in self.entries:
            # Brokers before 2.8 have none.
            severity = Severity.ERROR if _is_kraft(self._listing) else Severity.INFO
            absent(METADATA_FILE, "a KRaft broker treats the partition as stray", severity)
        filled = any(file.role is Role.PRIMARY and file.size for file in files)
        if filled and EPOCH_FILE not in self.entries:
            absent(EPOCH_FILE, "after a clean stop the broker continues without the leader epochs")
        if filled and self._clean and not any(file.codec == _CODECS[".snapshot"] for file in files):
            text = "there is no snapshot of the producers"
            effect = (
                "after a clean stop the broker forgets all producers, and does not read them from the log"
            )
            faults.append(("", Fault(NAME, 0, 0, Kind.LINK, text, Severity.INFO, effect)))
        return faults


_LEFTOVERS = {
    ".deleted": "the broker removes it when it starts",
    ".swap": "left by a compaction or split, which the broker finishes when it starts",
    ".cleaned": "left by an interrupted compaction; the broker removes it when it starts",
}


def _rank(
    name: str, parsed: SegmentFile | None, *, read: Collection[str] = (), writing: bool = False
) -> tuple[int, int, int, str]:
    """Return a sort key: segments in order, each with its log first, then the epochs and the topic id. `KafkaPartition.order` explains
    the order for writing. `read` are the names of logs, which may be `.log.swap`.
    """
    if parsed is None:
        early = -1 if writing else 1
        return (early if name in (EPOCH_FILE, METADATA_FILE) else 3, 0, name == EPOCH_FILE, name)
    if parsed.leftover and name not in read:
        return (2, parsed.base_offset, 0, name)
    return (0, parsed.base_offset, (_WRITTEN if writing else _SUFFIXES).index(parsed.suffix), name)


def _logs(
    listing: Listing, entries: Mapping[str, Entry], parsed: Mapping[str, SegmentFile | None]
) -> tuple[dict[int, str], dict[str, str]]:
    """Return the logs by base offset, and the files that a `.log.swap` replaces.

    A compaction (or split) renames its result to `.swap` before it removes the segments that it has read, the first one first. While
    all of them exist, nothing is missing, and they are read. Otherwise the rows of removed segments are only in the `.swap`, which is
    read as by the broker: it deletes the segments in its range (`LogLoader.load`).
    """
    known = {name: parsed_file for name, parsed_file in parsed.items() if parsed_file is not None}
    logs = {
        parsed_file.base_offset: name
        for name, parsed_file in known.items()
        if parsed_file.suffix == ".log" and not parsed_file.leftover
    }
    cleaned = [
        parsed_file.base_offset for parsed_file in known.values() if parsed_file.leftover == ".cleaned"
    ]
    replaced: dict[str, str] = {}
    for name, parsed_file in sorted(known.items()):
        base = parsed_file.base_offset
        if (
            parsed_file.suffix != ".log"
            or parsed_file.leftover != ".swap"
            or base >= min(cleaned, default=base + 1)
        ):
            continue
        end = _end(listing, _planned_log(entries[name], base))
        if base in logs:
            inside = [each for each in logs if base <= each < (base + 1 if end is None else end)]
            sources = [_planned_log(entries[logs[each]], each) for each in sorted(inside)]
            if not _lacks_source(listing, _planned_log(entries[name], base), sources):
                continue
        for other, other_file in known.items():
            if other_file.leftover == "" and base <= other_file.base_offset < (
                base + 1 if end is None else end
            ):
                replaced[other] = name
                if logs.get(other_file.base_offset) == other:
                    del logs[other_file.base_offset]
        logs[base] = name
    return logs, replaced


def _planned_log(entry: Entry, base: int) -> PlannedFile:
    return PlannedFile(entry.name, entry.size, Role.PRIMARY, hints={"base_offset": base})


def _lacks_source(listing: Listing, swap: PlannedFile, sources: Sequence[PlannedFile]) -> bool:
    """Return whether a `.swap` was made of the first of these segments and has a batch that is in none of them: another is missing."""
    held = [_extents(listing, source) for source in sources]
    extents = _extents(listing, swap)
    of_first = len(extents) and len(held[0]) and extents[0, 0] <= held[0][-1, 1]
    # Compaction keeps the last offset of a batch, or takes away batches.
    return bool(of_first) and not _inside(np.concatenate(held), extents[:, 1]).all()


def _extents(listing: Listing, segment: PlannedFile) -> Int64s:
    """Return the first and the last offset of each good batch."""
    extents = [np.empty((0, 2), np.int64)]
    try:
        for _, frames in good_frames(walk_file(listing, segment, log.CODEC)):
            head = frames.header
            extents.append(np.stack([head["base_offset"], head["last_offset"]], axis=1).astype(np.int64))
    except UnsupportedError:
        pass  # what follows is not read
    return np.concatenate(extents)


def _inside(extents: Int64s, offsets: Int64s) -> Bools:
    """Return which offsets are within the extents."""
    extents = extents[np.argsort(extents[:, 0], kind="stable")]
    reached = np.maximum.accumulate(extents[:, 1])
    at = np.searchsorted(extents[:, 0], offsets, side="right") - 1
    inside: Bools = (at >= 0) & (reached[at] >= offsets)
    return inside


def _end(listing: Listing, segment: PlannedFile) -> int | None:
    """Return the offset after the last batch of a segment; None if the segment has an older format."""
    end = int(segment.hints["base_offset"])
    try:
        for _, frames in good_frames(walk_file(listing, segment, log.CODEC, check=False)):
            last = frames.header["last_offset"].astype(np.int64)
            end = max(end, int(last.max()) + 1)
    except UnsupportedError:
        return None
    return end


def _never_compacted(listing: Listing, name: str, size: int) -> bool:
    return uncompacted.never_compacted(listing, name, size)


def _beyond_end(listing: Listing, segments: Sequence[PlannedFile], start: int) -> list[tuple[str, Fault]]:
    """Return the fault of a log that ends before its log start offset. Only called if the last segment begins before it."""
    end = _end(listing, segments[-1])
    if end is None or start <= end:
        return []
    text = f"the log start offset is {start}, but the log ends at {end}"
    system = "the broker deletes all segments, and continues with an empty one at the log start offset"
    return [("", Fault(NAME, 0, 0, Kind.LINK, text, Severity.WARNING, system))]


def _vote_faults(listing: Listing, size: int) -> list[tuple[str, Fault]]:
    """Return the faults of `quorum-state`, the vote of a KRaft node."""
    try:
        parse_quorum_state(
            listing.read(QUORUM_STATE_FILE, 0, MAX_QUORUM_STATE), f"{listing.name}/{QUORUM_STATE_FILE}"
        )
    except BrokerError as error:
        fault = Fault(NAME, 0, size, Kind.PAYLOAD, error.message, system="the broker does not start")
        return [(QUORUM_STATE_FILE, fault)]
    except UnreadableError as error:
        return [(QUORUM_STATE_FILE, Fault(NAME, 0, size, Kind.LINK, f"cannot be read: {error.message}"))]
    return []


def _faults(file: PlannedFile, parsed: SegmentFile | None) -> Iterator[Fault]:
    if parsed is None and claims_to_be_kafkas(file.name):
        number = file.name.partition(".")[0]
        if number.isascii() and number.isdigit() and int(number) < 1 << 63:
            text = f"{number} is not 20 digits long: the broker opens an empty segment {int(number):020d} beside it"
            yield Fault(NAME, 0, 0, Kind.LINK, text, Severity.WARNING)
        else:
            text = "the broker mistakes the name for that of a segment, and does not start since it has no 64-bit number"
            yield Fault(NAME, 0, 0, Kind.LINK, text)
    elif file.role is Role.LEFTOVER or (file.note and file.role is not Role.METADATA):
        yield Fault(NAME, 0, 0, Kind.LINK, file.note, Severity.INFO)
    if file.role is Role.PRIMARY and file.size > MAX_SEGMENT:
        yield Fault(
            NAME, 0, file.size, Kind.LENGTH, f"{file.size} bytes, expected at most {MAX_SEGMENT} in a segment"
        )


def log_start(listing: Listing, options: Options) -> tuple[int | None, list[tuple[str, Fault]]]:
    """Return the first offset that is served, by option or by the checkpoint above, and the faults of the checkpoint."""
    if options["log.start.offset"] is not None:
        return options["log.start.offset"], []
    where = parse_directory(listing.name)
    try:
        return ((where and read_checkpoint(listing.parent(), LOG_START_FILE)) or {}).get(where), []
    except (DescriptionError, UnreadableError) as error:
        text, system = f"../{LOG_START_FILE}: {error.message}", "the broker takes the log directory offline"
        return None, [("", Fault(NAME, 0, 0, Kind.LINK, text, Severity.WARNING, system))]


def _is_kraft(listing: Listing) -> bool:
    """Return whether the log directory is known to be that of a KRaft broker."""
    above = listing.parent()
    names = set() if above is None else {entry.name for entry in above.entries()}
    if above is None or META_PROPERTIES_FILE not in names:
        return False
    mode = startup.mode_of_directory(above.read(META_PROPERTIES_FILE), {*names, *folders_of(above)})
    return mode.name == KRAFT and not mode.known_from.startswith("assumed")


def _topic_id(listing: Listing, entries: Mapping[str, Entry]) -> str | None:
    if METADATA_FILE not in entries:
        return None
    try:
        return metadata.unpack(listing.read(METADATA_FILE, 0, 4096))[1]
    except (DescriptionError, UnreadableError):
        return None


LAYOUT = KafkaPartition()
