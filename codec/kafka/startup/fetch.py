"""Simulate a consumer of a loaded log, fetch by fetch, each looked up through the indexes.

Source: `LocalLog.read`, `LogSegment.read`, `ByteBufferLogInputStream`, and the Java client's `CompletedFetch`. Fetches have the client's
default size (`max.partition.fetch.bytes`), since the place where one ends can matter in a log that is out of order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.describe import DescriptionError
from logwright.codec.fault import Fault, Kind
from logwright.codec.kafka.compact.transactions import AbortedTransactions
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.formats.log.consumer import consume_batch
from logwright.codec.kafka.formats.log.deep_records import consume as consume_message
from logwright.codec.kafka.formats.log.java_streams import Thrown
from logwright.codec.kafka.formats.log.layout import (
    COMPRESSION,
    CONTROL,
    CONTROL_RECORD_KEY,
    LENGTH_END,
    MAGIC,
    MAX_OFFSET_DELTA,
    TRANSACTIONAL,
)
from logwright.codec.kafka.formats.log.markers import ABORT, failure, markers, unusual
from logwright.codec.kafka.formats.log.scan import HEAD_UP_TO_MAGIC, LEGACY_MIN
from logwright.codec.kafka.startup.entries import Entries, entries
from logwright.codec.kafka.startup.errors import BrokerError, CorruptRecord
from logwright.codec.kafka.startup.loader import Loaded
from logwright.codec.kafka.startup.segment import LogSegment
from logwright.codec.option import Options
from logwright.codec.store.overlay import Overlay

FETCH_BYTES = 1 << 20
POLL_RECORDS = 500
"""`max.poll.records`."""
_KAFKA_EXCEPTION = "org.apache.kafka.common.KafkaException"
_NEXT_RECORD = "Received exception when fetching the next record from {}. If needed, please seek past the record to continue consumption."


@dataclass(frozen=True)
class Stretch:
    """Consecutive batches of one file that a consumer gets, and the range of offsets that it gets of them."""

    file: str
    base_offset: int
    start: int
    stop: int
    first_offset: int
    next_offset: int
    skipped: tuple[int, ...] = ()
    """The positions of the batches of aborted transactions."""
    partial: bool = False
    """The consumer also gets the first records of the batch at `stop`, up to `next_offset`."""


@dataclass
class Consumed:
    """The records that a consumer gets from the start of the log on, and how that ends. It stops at the offset `position`."""

    stretches: list[Stretch] = field(default_factory=list)
    rows: int = 0
    first: int | None = None
    last: int | None = None
    position: int = 0
    error: str | None = None
    error_class: str | None = None
    file: str | None = None
    """The file and the byte of the batch at which it stops with an error."""
    place: int | None = None
    warning: str | None = None
    """The error that it would get next, after it has read everything."""
    in_order: bool = True
    """Whether the offsets of its batches ascend and stay within the range of their segments."""
    _runs: list[Int64s] = field(default_factory=list)
    """The offsets of the batches that it has got, as pairs `[first, next)`."""

    def note(self, got: Int64s, batches: list[tuple[Int64s, Int64s]], position: int) -> None:
        """Note one fetch from `position` on: the sorted offsets of its records, and the first and the next offset of each batch."""
        end, runs = position, [NO_RUNS]
        for first, following in batches:
            begin = first.clip(position)
            self.in_order &= bool((begin >= np.append(end, following[:-1])).all())
            end = int(following[-1])
            # The consumer may have got only the first records of the last batch.
            stop = following.clip(max=got.max(initial=-1) + 1)
            delivered = np.searchsorted(got, begin) < np.searchsorted(got, stop)
            runs.append(np.stack([begin[delivered], stop[delivered]], axis=1))
        covered = joined(np.concatenate(runs))
        rest = got[~_within(got, covered)]
        self._runs += [covered, np.array([[rest[0], rest[-1] + 1]], np.int64)] if len(rest) else [covered]

    def covers(self, offsets: Int64s) -> Bools:
        """Return which offsets are in batches that it gets. Offsets that it skips on the way to a later file are not."""
        if len(self._runs) != 1:
            self._runs = [joined(np.concatenate([NO_RUNS, *self._runs]))]
        return _within(offsets, self._runs[0])


NO_RUNS = np.empty((0, 2), np.int64)


def _within(offsets: Int64s, runs: Int64s) -> Bools:
    if not len(runs):
        return np.zeros(len(offsets), np.bool_)
    at = np.searchsorted(runs[:, 0], offsets, side="right") - 1
    inside: Bools = (at >= 0) & (offsets < runs[at, 1])
    return inside


def joined(runs: Int64s) -> Int64s:
    """Return the runs in order, with those joined that touch or overlap."""
    if not len(runs):
        return runs
    runs = runs[np.argsort(runs[:, 0], kind="stable")]
    upto = np.maximum.accumulate(runs[:, 1])
    begins = np.flatnonzero(np.append(True, runs[1:, 0] > upto[:-1]))
    return np.stack([runs[begins, 0], upto[np.append(begins[1:], len(runs)) - 1]], axis=1)


class _Stop(Exception):
    """The consumer cannot continue: it has an error, or gets nothing more."""

    def __init__(
        self, text: str, java: str = _KAFKA_EXCEPTION, place: int | None = None, *, unexpected: bool = False
    ) -> None:
        super().__init__(text)
        self.java, self.place, self.unexpected = java, place, unexpected


class Consumer:
    """A consumer that begins at the start of the log (`auto.offset.reset=earliest`)."""

    def __init__(
        self, overlay: Overlay, loaded: Loaded, partition: str, options: Options, *, committed: bool = False
    ) -> None:
        self.overlay, self.loaded, self.partition, self.options, self.committed = (
            overlay, loaded, partition, options, committed,
        )  # fmt: skip
        self.end, self.limit = self._limits(loaded.producers.state.first_unstable if committed else None)
        self._indexes = AbortedTransactions(overlay, sorted(loaded.segments) if committed else [])
        self.served = Consumed(position=loaded.log_start_offset)
        self._got: list[Int64s] = []
        """The offsets of the records of the current fetch."""
        self._passed = 0
        """The offset after the last control batch, or batch of an aborted transaction, of the current fetch."""

    def run(self) -> Consumed:
        """Consume the log. Raises `UnsupportedError` for an entry of an older format."""
        served = self.served
        seen: set[int] = set()
        file = None
        try:
            while served.position < self.end:
                if served.position in seen:
                    raise _Stop(f"no progress at offset {served.position} (end offset {self.end})", "")
                seen.add(served.position)
                segment, start, stop = self._read(served.position)
                file = segment.log
                self._take(segment, start, stop)
        except _Stop as error:
            if served.position >= self.end:
                # It has read everything. The error would stop it at the next fetch.
                served.warning = str(error)
                return served
            served.error, served.error_class = str(error), error.java or None
            served.file, served.place = file, error.place
        return served

    # The broker

    def _limits(self, unstable: int | None) -> tuple[int, tuple[int, int]]:
        """Return the offset up to which the broker serves, and the segment and the position: those of the high watermark, which is the log
        end without followers, or of the first open transaction. That has the offset of the batch that a lookup finds. Source:
        `UnifiedLog.maybeIncrementFirstUnstableOffset`, `LogSegment.read`."""
        end, active = self.loaded.log_end_offset, self.loaded.segments[max(self.loaded.segments)]
        segment = None if unstable is None or unstable >= end else self.loaded.floor(unstable)
        while segment is not None and unstable is not None:
            place = segment.translate(unstable)
            if place is None:
                segment = self.loaded.higher(segment.base_offset)
                continue
            first = int.from_bytes(self.overlay.read(segment.log, place[0], 8), "big", signed=True)
            if first < end:
                return first, (segment.base_offset, place[0])
            unstable = None
        return end if unstable is None else min(unstable, end), (active.base_offset, active.size)

    def _read(self, offset: int) -> tuple[LogSegment, int, int]:
        segment = self.loaded.floor(offset)
        while segment is not None:
            base, position = self.limit
            if segment.base_offset > base:
                break
            try:
                place = segment.translate(offset)
            except CorruptRecord as error:
                raise _Stop(
                    f"Encountered corrupt message when fetching offset {offset} for topic-partition {self.partition}"
                ) from error
            except BrokerError as error:
                raise _Stop(
                    f"the broker cannot read at offset {offset}: {error.message}", error.java
                ) from error
            if place is not None:
                most = (segment.size if segment.base_offset < base else position) - place[0]
                return segment, place[0], place[0] + min(most, max(FETCH_BYTES, place[1]))
            segment = self.loaded.higher(segment.base_offset)
        raise _Stop(f"no progress at offset {offset} (end offset {self.end})", "")

    def _aborted(self, segment: LogSegment, offset: int, stop: int) -> list[tuple[int, int]]:
        """Return first offset and producer of the transactions that the broker reports as aborted in a fetch that ends at byte `stop`, the
        earliest first. Source: `LocalLog.addAbortedTransactions`, `TransactionIndex.collectAbortedTxns`."""
        later = self.loaded.higher(segment.base_offset)
        end = segment.index.upper_bound(stop)
        if end is None:
            end = self.loaded.log_end_offset if later is None else later.base_offset
        aborted = self._indexes.overlapping(segment.base_offset, offset, end)
        return sorted((txn.first_offset, txn.producer_id) for txn in aborted)

    # The consumer

    def _take(self, segment: LogSegment, start: int, stop: int) -> None:
        """Take one fetch: the records of its batches, and the offset after the last one."""
        served, position = self.served, self.served.position
        aborted = _Aborted(self._aborted(segment, position, stop) if self.committed else [])
        context = log.CODEC.context(
            segment.log,
            self.options,
            topic="",
            partition=0,
            base_offset=segment.base_offset,
            start_offset=position,
            control=False,
            partial=True,
            stored=True,
        )
        self._got = []
        self._passed = position
        upto, after = start, None
        batches: list[tuple[Int64s, Int64s]] = []
        failed: _Stop | None = None
        try:
            for chunk in self._batches(segment.log, start, stop):
                good, failed = self._deliver_valid(chunk, aborted, context)
                if len(good):
                    upto = good.stop
                    after = int(good.last_offset[-1]) + 1
                    self._check_range(segment, good)
                    batches.append((good.header["base_offset"].astype(np.int64), good.last_offset + 1))
                if failed is not None:
                    break
        except CorruptRecord as error:
            failed = self._stop(error.message, error.java, upto)
        got = np.concatenate([np.empty(0, np.int64), *self._got])
        if failed is not None and failed.unexpected:
            got = got[: len(got) // POLL_RECORDS * POLL_RECORDS]
            after = None
        covered, partial = after, False
        if len(got):
            partial = failed is not None and int(got[-1]) >= (position if after is None else after)
            served.rows += len(got)
            served.first = int(got[0]) if served.first is None else served.first
            served.last = int(got[-1])
            covered = max(after or 0, (served.last if partial else int(got.max())) + 1)
            # They may include records of the batch at which it stops.
            after = covered if failed is not None else after
        if failed is not None and not failed.unexpected:
            # After the last record that it took, or the last batch that it skipped in the same poll: a batch may end in offsets without
            # records. A poll without records throws, and leaves the position.
            taken = served.last + 1 if len(got) and served.last is not None else 0
            after = max(self._passed, taken) if len(got) % POLL_RECORDS else taken
        if covered is not None:
            served.note(np.sort(got), batches, position)
            self._add(
                Stretch(
                    segment.log,
                    segment.base_offset,
                    start,
                    max(upto, start),
                    position,
                    covered,
                    tuple(aborted.skipped),
                    partial,
                )
            )
        if failed is not None:
            served.position = max(position, after or 0)
            raise failed
        if after is None or after == position:
            raise _Stop(f"no progress at offset {position} (end offset {self.end})", "")
        served.position = after

    def _check_range(self, segment: LogSegment, good: Entries) -> None:
        low, following = segment.base_offset, self.loaded.higher(segment.base_offset)
        high = low + MAX_OFFSET_DELTA if following is None else following.base_offset - 1
        if (good.header["base_offset"] < low).any() or (good.last_offset > high).any():
            self.served.in_order = False

    def _deliver_valid(self, chunk: Entries, aborted: _Aborted, context: Any) -> tuple[Entries, _Stop | None]:
        """Deliver the records of batches. Return the batches that were read to their end, and the error of the next one."""
        bad = self._invalid(chunk)
        good = chunk if bad is None else chunk.pick(slice(bad[0]))
        if len(good):
            cut = self._records(good, aborted, context)
            if cut is not None:
                return good.pick(slice(cut[0])), cut[1]
        if bad is None:
            return good, None
        base = int(chunk.header["base_offset"][bad[0]])
        name = "Record" if chunk.header["magic"][bad[0]] < MAGIC else "Record batch"
        text = f"{name} for partition {self.partition} at offset {base} is invalid, cause: {bad[1].message}"
        return good, self._stop(text, _KAFKA_EXCEPTION, int(chunk.position[bad[0]]))

    def _invalid(self, chunk: Entries) -> tuple[int, CorruptRecord] | None:
        """Return the first batch whose checksum the client refuses, and its exception. Of older messages it checks those that it delivers: in
        a wrapper the inner ones only. Source: `CompletedFetch.maybeEnsureValid`."""
        head = chunk.header
        plain = (head["attributes"] & COMPRESSION == 0) & (chunk.last_offset >= self.served.position)
        checked = np.flatnonzero((head["magic"] >= MAGIC) | plain | chunk.odd)
        if not len(checked):
            return None
        bad = chunk.pick(checked).invalid() if len(checked) < len(chunk) else chunk.invalid()
        return None if bad is None else (int(checked[bad[0]]), bad[1])

    def _add(self, new: Stretch) -> None:
        stretches = self.served.stretches
        if stretches and stretches[-1].file == new.file and stretches[-1].stop == new.start:
            before = stretches.pop()
            new = replace(
                new,
                start=before.start,
                first_offset=before.first_offset,
                next_offset=max(before.next_offset, new.next_offset),
                skipped=before.skipped + new.skipped,
            )
        stretches.append(new)

    def _stop(self, cause: str, java: str, place: int) -> _Stop:
        return _Stop(
            f"{_NEXT_RECORD.format(self.partition)} <- {java.rpartition('.')[2]}: {cause}", place=place
        )

    def _batches(self, file: str, start: int, stop: int) -> Iterator[Entries]:
        """Iterate over the batches of a fetch as the client does. Raises `CorruptRecord` for an impossible length or magic."""
        at = start
        for chunk in entries(self.overlay, file, start, stop, check=True):
            magic = int(chunk.header["magic"][0])
            if not 0 <= magic <= MAGIC:  # such an entry is the only one
                raise CorruptRecord(f"Invalid magic found in record: {magic}")
            yield chunk
            at = chunk.stop
        # The client looks at the header of a batch that it does not have to its end.
        head = self.overlay.read(file, at, min(stop - at, HEAD_UP_TO_MAGIC))
        if (
            len(head) >= LENGTH_END
            and (size := int.from_bytes(head[8:LENGTH_END], "big", signed=True)) < LEGACY_MIN
        ):
            raise CorruptRecord(f"Record size {size} is less than the minimum record overhead ({LEGACY_MIN})")
        if (
            len(head) == HEAD_UP_TO_MAGIC
            and not 0 <= (magic := int.from_bytes(head[-1:], "big", signed=True)) <= MAGIC
        ):
            raise CorruptRecord(f"Invalid magic found in record: {magic}")

    def _records(self, chunk: Entries, aborted: _Aborted, context: Any) -> tuple[int, _Stop] | None:
        """Deliver the records of batches. Return the first batch that cannot be read to its end, and the error."""
        skip, refused = aborted.take(chunk) if self.committed else (np.zeros(len(chunk), np.bool_), None)
        upto = len(chunk) if refused is None else refused
        bad = self._bad_control(chunk.pick(slice(upto)), skip[:upto])
        upto = upto if bad is None else bad[0]
        picked = chunk.pick(slice(upto))
        context.skipped = tuple(picked.position[skip[:upto]].tolist())
        if len(picked):
            for decoded in log.CODEC.decode(picked.window, picked.frames(), "rows", ("offset",), context):
                offsets = decoded.batch.column(0).to_numpy()
                for before, fault in decoded.faults:
                    stop = self._undecodable(chunk, fault)
                    if stop is not None:
                        self._got.append(offsets[:before])
                        return int(np.flatnonzero(chunk.position == fault.offset)[0]), stop
                self._got.append(offsets)
        control = chunk.header["attributes"][:upto] & CONTROL != 0
        ends = np.where(skip[:upto], chunk.last_offset[:upto], chunk.header["base_offset"][:upto])
        self._passed = max(self._passed, int(ends[skip[:upto] | control].max(initial=-1)) + 1)
        if bad is not None:
            return bad
        if refused is not None:
            return refused, self._stop(
                "Invalid value size found for control record key. Must have at least 4 bytes, but found less",
                "org.apache.kafka.common.InvalidRecordException",
                int(chunk.position[refused]),
            )
        return None

    def _bad_control(self, chunk: Entries, skip: Bools) -> tuple[int, _Stop] | None:
        """Return the first control batch whose records cannot be read. The consumer parses them although it does not deliver them."""
        for at in unusual(chunk.window, chunk.frames()).tolist():
            if not skip[at]:
                batch = chunk.window.data[int(chunk.start[at]) : int(chunk.end[at])]
                thrown = consume_batch(batch, self.options["max.decompressed.bytes"]).error
                if thrown is not None:
                    return at, self._thrown(thrown, int(chunk.position[at]))
        return None

    def _thrown(self, thrown: Thrown, place: int) -> _Stop:
        if thrown.expected:
            return _Stop(f"{_NEXT_RECORD.format(self.partition)} <- {thrown}", place=place)
        return _Stop(str(thrown), thrown.java, place, unexpected=True)

    def _undecodable(self, chunk: Entries, fault: Fault) -> _Stop | None:
        """Return the client's error at a batch that cannot be read to its end; None if it sees no error."""
        if fault.kind is Kind.ORDER:
            return None  # the client skips records whose offsets are not above those before
        at = int(np.flatnonzero(chunk.position == fault.offset)[0])
        batch = chunk.window.data[int(chunk.start[at]) : int(chunk.end[at])]
        limit = self.options["max.decompressed.bytes"]
        if chunk.header["magic"][at] < MAGIC:
            thrown = consume_message(batch, limit, self.partition)
        else:
            thrown = consume_batch(batch, limit).error
        return None if thrown is None else self._thrown(thrown, fault.offset)


class _Aborted:
    """The producers whose records are skipped, through one fetch. Source: `CompletedFetch.nextFetchedRecord`."""

    def __init__(self, transactions: list[tuple[int, int]]) -> None:
        self._waiting, self._active = transactions, set[int]()
        self.skipped: list[int] = []
        """The positions of the batches that are skipped."""

    def take(self, chunk: Entries) -> tuple[Bools, int | None]:
        """Return which batches are skipped, and the first control batch whose key cannot be parsed."""
        skip = np.zeros(len(chunk), np.bool_)
        flags = chunk.header["attributes"].astype(np.int64)
        producers = chunk.header["producer_id"].astype(np.int64)
        last = chunk.last_offset
        frames = chunk.frames()
        marks = markers(chunk.window, frames)
        kinds = {int(mark["frame"]): int(mark["type"]) for mark in marks[::-1]}
        for at in np.flatnonzero(producers >= 0).tolist():
            while self._waiting and self._waiting[0][0] <= last[at]:
                self._active.add(self._waiting.pop(0)[1])
            producer = int(producers[at])
            if flags[at] & CONTROL:
                kind = kinds.get(at)
                if kind is not None and failure(kind) and (kind := _key_type(chunk, at)) is None:
                    return skip, at
                if kind == ABORT:
                    self._active.discard(producer)
                    continue
            if flags[at] & TRANSACTIONAL and producer in self._active:
                skip[at] = True
                self.skipped.append(int(chunk.position[at]))
        return skip, None


def _key_type(chunk: Entries, at: int) -> int | None:
    """Return the type in the key of a control batch's first record; None if it cannot be parsed."""
    context = log.CODEC.context("", Options(log.CODEC.options), topic="", partition=0)
    batch = chunk.pick(slice(at, at + 1))
    for decoded in log.CODEC.decode(batch.window, batch.frames(), "rows", ("key",), context):
        for key in decoded.batch.column(0).to_pylist()[:1]:
            try:
                name: Mapping[str, Any] = CONTROL_RECORD_KEY.unpack(key or b"")[0]
            except DescriptionError:
                return None
            return int(name["type"]) if name["version"] >= 0 else None
    return None
