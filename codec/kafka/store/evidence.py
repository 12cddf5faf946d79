"""Evidence of lost records in the other files of a partition, and in the checkpoints of its log directory.

A broker writes offsets that the log has reached. A log that ends before one of them has lost records:

- The name of a producer snapshot is the log end offset when the snapshot was taken.
- The high watermark and the recovery point never pass the end of the log.
- A log is created before its indexes, and renamed before them when it is deleted. An index without a log has lost its log. So has a
  `.log.cleaned`, which a broker makes while the log exists and renames before it deletes the log.
- A producer snapshot has the last offset of each producer, and compaction keeps the batch with that offset.

Gaps between batches and segments are not proof: compaction leaves them, and so does a writer that keeps offsets. Neither is a snapshot
in such a gap (a broker also takes one when it stops), nor one before the first segment (retention does not delete the ones that
were taken within a segment). Source: `UnifiedLog`, `LocalLog`, `ProducerStateManager` and `LogManager` of Kafka's storage module.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from logwright.codec.deferred import deferred
from logwright.codec.describe import DescriptionError
from logwright.codec.fault import Fault, Kind, LogwrightError, Severity, UnreadableError
from logwright.codec.fixed import Entries, FixedCodec
from logwright.codec.kafka.formats import producer_snapshot as snapshot
from logwright.codec.kafka.formats.checkpoint import LEADER_EPOCH, OFFSETS
from logwright.codec.kafka.formats.indexes import INDEX, TIMEINDEX, SegmentIndexes
from logwright.codec.kafka.formats.log.layout import HEAD_SIZE, MAGIC, least_size
from logwright.codec.kafka.names import (
    CLEANER_FILE,
    EPOCH_FILE,
    HIGH_WATERMARK_FILE,
    RECOVERY_POINT_FILE,
    SegmentFile,
    is_partition,
    parse_directory,
    parse_segment,
    segment_name,
)
from logwright.codec.store.listing import Listing

if TYPE_CHECKING:
    from logwright.codec.kafka.formats.log import heads
else:
    heads = deferred("logwright.codec.kafka.formats.log", "heads")

_LOG = "kafka.log"
_LARGEST_EPOCHS = 16 << 20
_LEFT = ((".index", ""), (".timeindex", ""), (".txnindex", ""), (".log", ".cleaned"))
"""Files without which no segment loses its log."""
_PLACE = ["base_offset", "last_offset", "size", "magic"]
LARGEST_INDEX = 64 << 20
"""Size limit in bytes of index files that are read as evidence."""
_COMPACTED = ("__consumer_offsets", "__transaction_state", "__share_group_state")
"""Topics of Kafka itself that are always compacted."""

ABSENT = "the file is missing, but other files of the segment exist"
BEGAN = "a segment began there and is missing"
_BEGINS = "the broker begins at the first segment that exists"
GAP = "the broker starts, and treats it as a gap in the offsets"


class Witness(NamedTuple):
    """A file that proves a lower bound of the log end offset."""

    end: int
    """The offset after the last record."""
    name: str
    confirmed: int = 0
    """The highest lower bound by the other files."""

    def is_flipped(self, end: int) -> bool:
        """Return whether this is a number in a checkpoint, in which one flipped bit makes the end of the log, and another file has that."""
        if not self.name.startswith("../") or self.confirmed != end:
            return False
        known, stored = f"{end}".encode(), f"{self.end}".encode()
        bits = int.from_bytes(known) ^ int.from_bytes(stored)
        return len(known) == len(stored) and bits.bit_count() == 1


def partition_of(listing: Listing) -> Mapping[str, Any]:
    """Return the topic and the partition, if the directory's name has them."""
    parsed = parse_directory(listing.name)
    return {} if parsed is None else {"topic": parsed.topic, "partition": parsed.partition}


@dataclass(frozen=True)
class Checkpoints:
    """The entries of a partition in the checkpoints of the log directory."""

    witnesses: tuple[Witness, ...] = ()
    compacted: bool | None = None
    """Whether the log was ever compacted; None if that is unknown."""


def read_checkpoint(directory: Listing | None, name: str) -> Mapping[Any, int] | None:
    """Return the offsets of a checkpoint in a log directory, by topic and partition; None if it is absent.

    Raises `ParseError` and `UnreadableError`.
    """
    if directory is None or name not in {entry.name for entry in directory.entries()}:
        return None
    return _offsets(directory.read(name))


def readable_checkpoint(directory: Listing | None, name: str) -> Mapping[Any, int] | None:
    """Return the same; None also if it cannot be read."""
    try:
        return read_checkpoint(directory, name)
    except (DescriptionError, LogwrightError):
        return None


@lru_cache(maxsize=8)
def _offsets(data: bytes) -> Mapping[Any, int]:
    """Parse a checkpoint. All partitions of a log directory share the file."""
    return {(topic, partition): int(offset) for topic, partition, offset in OFFSETS.unpack(data)}


def checkpoints(listing: Listing) -> Checkpoints:
    """Read the checkpoints above a partition. A file that is absent or cannot be read counts as empty."""
    where = parse_directory(listing.name)
    if where is None:
        return Checkpoints()
    internal = True if where.topic in _COMPACTED else None
    # The entries describe the partition itself, not a future replica or a stray directory.
    above = listing.parent()
    if above is None or not is_partition(listing.name):
        return Checkpoints(compacted=internal)
    ends = {
        name: (readable_checkpoint(above, name) or {}).get(where)
        for name in (HIGH_WATERMARK_FILE, RECOVERY_POINT_FILE)
    }
    witnesses = tuple(Witness(end, f"../{name}") for name, end in ends.items() if end is not None)
    cleaned = readable_checkpoint(above, CLEANER_FILE)
    return Checkpoints(witnesses, internal if cleaned is None else internal or where in cleaned)


@dataclass
class Segments:
    """The names of the files in a partition, sorted by what they prove."""

    bases: Sequence[int]
    """Base offsets of the logs."""
    orphans: list[int] = field(default_factory=list)
    """Base offsets of segments that have an index or a `.log.cleaned`, and no log."""
    snapshots: list[int] = field(default_factory=list)
    """Offsets of producer snapshots."""
    deleted: Sequence[int] = ()
    """Base offsets of segments that the broker was deleting when it stopped."""

    @classmethod
    def of(cls, parsed: Iterable[SegmentFile], bases: Collection[int]) -> Segments:
        """Sort the files of a partition. `bases` are the base offsets of its logs."""
        files = list(parsed)
        deleted = {file.base_offset for file in files if file.leftover == ".deleted"}
        # After an interrupted compaction the rows of a missing log may be in the `.swap` file.
        unfinished = any(file.leftover == ".swap" for file in files)
        orphans = {
            file.base_offset
            for file in files
            if (file.suffix, file.leftover) in _LEFT
            and file.base_offset not in deleted
            and file.base_offset not in bases
        }
        return cls(
            sorted(bases),
            [] if unfinished else sorted(orphans),
            sorted(file.base_offset for file in files if file.suffix == ".snapshot" and not file.leftover),
            sorted(deleted),
        )

    def between(self, low: int, high: int | None) -> list[int]:
        """Return the orphans with a base offset in `[low, high)`, or from `low` on."""
        return [base for base in self.orphans if low <= base and (high is None or base < high)]


def known_end(witnesses: Iterable[Witness | None]) -> Witness | None:
    """Return the witness of the highest offset. Among equal ones, prefer a checkpoint, since a repair does not change it."""
    known = sorted(
        (witness for witness in witnesses if witness is not None),
        key=lambda witness: (witness.end, witness.name.startswith("../")),
    )
    if not known:
        return None
    return known[-1]._replace(confirmed=max([known[-1].confirmed, *(witness.end for witness in known[:-1])]))


def ends_early(end: int, known: Witness, active: bool, size: int, lost: Mapping[str, Any]) -> Fault:
    """Return the fault of a segment of `size` bytes that ends at offset `end`, although another file proves that it was longer."""
    subject = "log" if active else "segment"
    ends = f"ends with offset {end - 1}" if end and (size or active) else "is empty"
    if known.is_flipped(end):
        text = f"the {subject} {ends}, as other files have it, but {known.name} has {known.end}: a bit of that number is flipped"
        return Fault(_LOG, size, 0, Kind.LINK, text, Severity.WARNING)
    text = f"the {subject} {ends}, but {known.name} proves that it reached offset {known.end - 1}"
    # A failure of the machine loses unflushed records like this. The broker starts, and its replicas may have them.
    system = "the broker continues with the next segment"
    if active:
        system = f"the broker continues at offset {end} or before: offsets are used again"
    return Fault(_LOG, size, 0, Kind.TRUNCATED, text, system=system, lost=lost)


def skips_segment(end: int, taken: int, after: int, size: int, lost: Mapping[str, Any]) -> Fault:
    """Return the fault of a segment of `size` bytes that ends at offset `end`, if a snapshot was taken before the next segment."""
    text = f"offsets {end} to {after - 1} are missing between two batches, and a producer snapshot was taken at {taken}: {BEGAN}"
    return Fault(_LOG, size, 0, Kind.LINK, text, system=GAP, lost=lost)


def gone(base: int, text: str, severity: Severity, system: str, lost: Mapping[str, Any]) -> tuple[str, Fault]:
    """Return the fault of a missing log."""
    fault = Fault(_LOG, 0, 0, Kind.LINK, text, severity, system=system, lost=lost)
    return segment_name(base, ".log"), fault


def used(data: bytes, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the entries of an index without the preallocated zeros at its end."""
    entries = np.frombuffer(data, dtype, len(data) // dtype.itemsize)
    filled = np.flatnonzero(entries.view(np.uint8).reshape(len(entries), dtype.itemsize).any(axis=1))
    return entries[: int(filled[-1]) + 1 if len(filled) else 0]


@dataclass(frozen=True)
class Evidence:
    """Facts about the logs of a partition, from its other files."""

    listing: Listing
    segments: Segments
    sizes: Mapping[str, int]
    start: int | None
    """The log start offset, if a checkpoint or an option gives it. Records before it were deleted."""
    checkpoints: Checkpoints
    partition: Mapping[str, Any]
    """The topic and the partition, for `Fault.lost`."""
    never_compacted: Callable[[Listing, str, int], bool]
    """Return whether the records of a log of this name and size prove that compaction has not reached its end."""

    @classmethod
    def of(
        cls,
        listing: Listing,
        sizes: Mapping[str, int],
        bases: Collection[int],
        start: int | None,
        never_compacted: Callable[[Listing, str, int], bool],
    ) -> Self:
        """`sizes` are those of all files, and `bases` the base offsets of the logs."""
        parsed = (parse_segment(name) for name in sizes)
        segments = Segments.of((file for file in parsed if file is not None), bases)
        above, partition = checkpoints(listing), partition_of(listing)
        return cls(listing, segments, sizes, start, above, partition, never_compacted)

    # Witnesses

    @property
    def snapshot(self) -> list[Witness]:
        """The newest snapshot."""
        return [Witness(taken, segment_name(taken, ".snapshot")) for taken in self.segments.snapshots[-1:]]

    @property
    def checkpointed(self) -> list[Witness]:
        """The checkpoints that are above the log start offset."""
        return [witness for witness in self.checkpoints.witnesses if witness.end > (self.start or 0)]

    def _indexes(self, base: int) -> Iterator[Witness | None]:
        """Yield how far a segment reached by its offset index and by its time index; None if unknown. Each is read lazily."""
        for codec in (INDEX, TIMEINDEX):
            name = segment_name(base, codec.name.removeprefix("kafka"))
            entries = self._entries(name, codec, base)
            if entries is None or (codec is INDEX and self._contradicts(base, entries[-1])):
                yield None
            else:
                yield Witness(base + int(entries["relative_offset"][-1]) + 1, name)

    def _entries(self, name: str, codec: FixedCodec, base: int) -> Entries | None:
        """Return the entries of an index; None without any, or if they are not in order."""
        if not 0 < self.sizes.get(name, 0) <= LARGEST_INDEX:
            return None
        try:
            entries = used(self.listing.read(name), codec.dtype)
        except LogwrightError:
            return None
        disordered = any(wrong.any() for wrong, _ in codec.wrong(entries, base))
        return None if disordered or not len(entries) or entries["relative_offset"][0] < 0 else entries

    def _contradicts(self, base: int, entry: np.void) -> bool:
        """Return whether a complete batch, by its header, is where an entry of an offset index has one with higher offsets."""
        relative_offset, at = entry.item()
        name = segment_name(base, ".log")
        left = self.sizes.get(name, 0) - at
        if left < HEAD_SIZE:
            return False
        try:
            data = np.frombuffer(self.listing.read(name, at, HEAD_SIZE), np.uint8)
        except LogwrightError:
            return False
        first, last, size, magic = heads.heads_at(data, np.zeros(1, np.int64))[_PLACE][0].item()
        complete = 0 <= magic <= MAGIC and least_size(magic) <= size <= left
        return bool(complete and base <= first <= last < base + relative_offset)

    def indexed(self, base: int) -> Witness | None:
        """Return how far a segment without batches reached by its indexes."""
        return max(filter(None, self._indexes(base)), default=None)

    def reached(self, base: int, after: int | None) -> Witness | None:
        """Return how far a segment reached by its indexes. `after` is the base offset of the next segment, which it cannot have reached.

        In the last segment the log has to confirm the offset index, by the place of its last entry. A time index has no such place, so a
        flipped bit of its last entry would prove a loss. It only limits what the offset index proves, unless the log is empty.
        """
        index, times = self._indexes(base)
        if after is not None:
            return max(
                (item for item in (index, times) if item is not None and item.end <= after), default=None
            )
        if index is None and self.sizes.get(segment_name(base, ".log")):
            return None
        return min(filter(None, (index, times)), default=None)

    def orphans(self, base: int = -1) -> list[Witness]:
        """Return how far the segments after `base` reached whose logs are missing, by their indexes."""
        ends = (self.indexed(orphan) for orphan in self.segments.orphans if orphan > base)
        return [witness for witness in ends if witness is not None]

    def written(self, taken: int, first: int) -> int | None:
        """Return the highest offset from `first` on in the producer snapshot taken at an offset."""
        name = segment_name(taken, ".snapshot")
        if not 0 < self.sizes.get(name, 0) <= LARGEST_INDEX:
            return None
        try:
            offsets = snapshot.unpack(self.listing.read(name))["last_offset"].astype(np.int64)
        except (DescriptionError, LogwrightError):
            return None
        offsets = offsets[(offsets >= first) & (offsets < taken)]
        return int(offsets.max()) if len(offsets) else None

    def uncompacted(self, first: int, last: int | None) -> bool:
        """Return whether records are lost, not compacted away, between the log that ends before offset `first` and the next one.
        `last` is the highest offset in between that a producer wrote.

        A producer proves nothing if the log may be compacted. The cleaner keeps its last batch, but that may be one in a later segment,
        and is dropped once the producer has expired. Snapshots of that time still list the producer. A follower has gaps where its
        leader compacted the log, but not the producers of the records in them. Source: `Cleaner.cleanInto`.
        """
        if self.checkpoints.compacted is not None:
            return not self.checkpoints.compacted
        base = max((base for base in self.segments.bases if base < first), default=None)
        if last is None or base is None:
            return False
        name = segment_name(base, ".log")
        return self.never_compacted(self.listing, name, self.sizes[name]) if name in self.sizes else False

    def indexes(self, base: int, after: int | None) -> SegmentIndexes:
        """Return the indexes of a segment. Those of the last one are evidence of its end with other files (`hints`)."""
        name = segment_name(base, ".index")
        known = 0 < self.sizes.get(name, 0) <= LARGEST_INDEX
        read = partial(self.listing.read, name) if known else None
        return SegmentIndexes(base, read, *([] if after is None else [partial(self.reached, base, after)]))

    def hints(self, base: int, log: str) -> Mapping[str, Any]:
        """Return hints for the context of a log (`LogContext`): how far it reached."""
        after = next((offset for offset in self.segments.bases if offset > base), None)
        if after is not None:
            hints: dict[str, Any] = {}
            inside = [offset for offset in self.segments.snapshots if base < offset < after]
            if inside and not self.segments.between(base, after):
                last = self.written(after, inside[0])
                if self.checkpoints.compacted is False:
                    hints = {"snapshots": tuple(inside)}
                elif last is not None and self.uncompacted(inside[0], last):
                    hints = {"snapshots": tuple(offset for offset in inside if offset <= last)}
            if self.sizes.get(log) == 0 and (witness := self.indexed(base)):
                hints |= {"known_end": min(witness.end, after), "known_by": witness.name}
            return hints
        known = known_end([*self.snapshot, *self.orphans(base), *self.checkpointed, self.reached(base, None)])
        if known is None:
            return {}
        return {"known_end": known.end, "known_by": known.name, "confirmed_end": known.confirmed}

    # Missing logs

    def missing(
        self, first_epoch: int | None, extent: Callable[[int], tuple[int, int]]
    ) -> list[tuple[str, Fault]]:
        """Return the faults of missing logs. `first_epoch` is the first offset in `leader-epoch-checkpoint`, if it is known. `extent`
        returns the first offset in a log and the one after the last."""
        segments = self.segments
        if not segments.bases:
            gone_fault = self.all_gone(first_epoch)
            return [] if gone_fault is None else [self.naming_deleted(*gone_fault)]
        faults = [self.first_gone(first_epoch)]
        for base, after in zip(segments.bases, [*segments.bases[1:], None], strict=True):
            if (after is not None and after <= (self.start or 0)) or not segments.between(base, after):
                continue
            first, end = extent(base)
            faults.append(self.overwritten(base, first, end))
            trailing = segments.between(end, after)
            if after is not None:
                faults.append(self.between_gone(end, after))
            elif trailing:
                known = known_end([*self.snapshot, *self.checkpointed, *self.orphans()])
                faults.append(self.last_gone(min(trailing), trailing, known))
        return [self.naming_deleted(*fault) for fault in faults if fault is not None]

    def naming_deleted(self, name: str, fault: Fault) -> tuple[str, Fault]:
        """Return a fault with the deleted logs named that may have the lost records."""
        if "first_offset" not in fault.lost:
            return name, fault
        after = fault.lost.get("last_offset", fault.lost["first_offset"]) + 1
        logs = [each for each in self.segments.deleted if fault.lost["first_offset"] <= each < after]
        names = [segment_name(base, ".log.deleted") for base in logs]
        names = [each for each in names if self.sizes.get(each)]
        if not names:
            return name, fault
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        text = f"{fault.detail}. {names[0]}{more} may have them: rename it to {names[0].removesuffix('.deleted')}"
        return name, replace(fault, detail=f"{text}, unless they were deleted on purpose")

    def overwritten(self, base: int, first: int, end: int) -> tuple[str, Fault] | None:
        """Return the fault of a log in whose place a later one is. It has the base offset `base`, begins with offset `first` and ends before
        `end`."""
        low = max(base, self.start or 0)
        orphan = max(self.segments.between(base + 1, min(first + 1, end)), default=None)
        if orphan is None or low >= first:
            return None
        text = f"the file has the log of the segment {orphan}: offsets {low} to {first - 1} are lost"
        return self.lost_log(base, text, low, first)

    def first_gone(self, first_epoch: int | None) -> tuple[str, Fault] | None:
        """Return the fault of logs that are missing before the first one.

        Retention may leave either a snapshot or an early `first_epoch` (if the broker was killed, or had taken the snapshot within a
        segment), but not both. With remote storage the log starts before its first segment, by a checkpoint.
        """
        segments, start = self.segments, self.start
        after = segments.bases[0]
        before = segments.between(0, after)
        low = min(before, default=after)
        text = ABSENT
        if not before and start is None and first_epoch is not None and not segments.deleted:
            taken = next((offset for offset in segments.snapshots if first_epoch < offset < after), None)
            if taken is not None:
                low = first_epoch
                text = (
                    f"the file is missing, but {EPOCH_FILE} begins at offset {low} and a producer snapshot was taken"
                    f" at {taken}"
                )
        base, low = low, max(low, start or 0)
        if low >= after:
            return None
        return self.lost_log(base, f"{text}: offsets {low} to {after - 1} are lost", low, after, _BEGINS)

    def between_gone(self, low: int, after: int) -> tuple[str, Fault] | None:
        """Return the fault of a log that is missing between two others: the one before reaches `low`, the next one begins at `after`."""
        base = min(self.segments.between(low, after), default=None)
        if base is None:
            return None
        return self.lost_log(base, f"{ABSENT}: offsets {base} to {after - 1} are lost", base, after)

    def last_gone(self, end: int, trailing: Sequence[int], known: Witness | None) -> tuple[str, Fault]:
        """Return the fault of logs that are missing after the last one, which ends at `end`. A broker that rolls creates the log first."""
        base, once = min(trailing), 0 if known is None else known.end
        system = f"the broker deletes those, and continues at offset {end} or before: offsets are used again"
        if once <= end:
            text = f"{ABSENT}, without an entry: whether the log had records is unknown"
            return gone(base, text, Severity.WARNING, system, {})
        return self.lost_log(base, f"{ABSENT}: offsets from {end} to {once - 1} are lost", end, once, system)

    def all_gone(self, first_epoch: int | None) -> tuple[str, Fault] | None:
        """Return the fault of a partition without any log. A broker never leaves it without its active segment."""
        segments, start = self.segments, self.start
        known = known_end([*self.snapshot, *self.checkpointed, *self.orphans()])
        if not segments.orphans and (known is None or known.end <= (start or 0)):
            return None
        lost = dict(self.partition)
        begins = [*segments.orphans, *([] if first_epoch is None else [first_epoch])]
        if begins or start is not None:
            lost["first_offset"] = low = max(min(begins, default=0), start or 0)
        else:
            low = 0
        if known is not None and known.end > low:
            lost["last_offset"] = known.end - 1
        if segments.orphans:
            upto = f"to {lost['last_offset']}" if "last_offset" in lost else "on"
            text = f"{ABSENT}: offsets from {low} {upto} are lost"
            system = "the broker deletes those, and starts with an empty log"
        elif known is None or "last_offset" not in lost:
            return None  # the log began where it ended
        else:
            text = f"there is no log, but {known.name} proves that it reached offset {known.end - 1}"
            system = "the broker starts with an empty log"
        return gone(low, text, Severity.ERROR, system, lost)

    def lost_log(self, base: int, text: str, low: int, after: int, system: str = GAP) -> tuple[str, Fault]:
        """Return the fault of a missing log whose offsets from `low` to before `after` are lost."""
        lost = {**self.partition, "first_offset": low, "last_offset": after - 1}
        return gone(base, text, Severity.ERROR, system, lost)


def stored_epochs(listing: Listing) -> list[tuple[int, int]]:
    """Return the entries of leader-epoch-checkpoint; none if the file is absent or cannot be read."""
    if EPOCH_FILE not in {entry.name for entry in listing.entries()}:
        return []
    try:
        return parse_epochs(listing)
    except (DescriptionError, UnreadableError):
        return []


def parse_epochs(listing: Listing) -> list[tuple[int, int]]:
    """Return the entries of leader-epoch-checkpoint. Raises `ParseError`."""
    data = listing.read(EPOCH_FILE, 0, _LARGEST_EPOCHS)
    return [(int(epoch), int(offset)) for epoch, offset in LEADER_EPOCH.unpack(data)]
