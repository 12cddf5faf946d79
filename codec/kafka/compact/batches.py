"""Filter the records of batches: which batches are copied, rebuilt, emptied or dropped, and the bytes of the new ones.

Source: the record filter of `Cleaner.cleanInto` in Kafka's storage module, and `MemoryRecords.filterTo` of its clients library. Messages of
magic 0 and 1 become batches, as since Kafka 4.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.arrays import Bools, Bytes, Int64s
from logwright.codec.fault import DamageError, UsageError
from logwright.codec.kafka.compact.offset_map import OffsetMap
from logwright.codec.kafka.formats.log import arrow_input, pack, records
from logwright.codec.kafka.formats.log.heads import heads_at
from logwright.codec.kafka.formats.log.layout import (
    COMPRESSION,
    COMPRESSION_NAMES,
    CONTROL,
    DELETE_HORIZON,
    HEAD,
    HEAD_SIZE,
    LENGTH_END,
    MAGIC,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
)
from logwright.codec.kafka.formats.log.records import add
from logwright.codec.kafka.formats.log.rows import Read
from logwright.codec.kafka.formats.log.sections import Sections, sections
from logwright.codec.kafka.formats.log.write import Encoded, assemble, put_heads
from logwright.codec.kafka.state.producers import Producer
from logwright.codec.kernels.compress import compress
from logwright.codec.window import Frames, Window

Heads = npt.NDArray[Any]

_DROP, _COPY, _REBUILD, _EMPTY = range(4)
_COPIED = (
    "base_offset",
    "max_timestamp",
    "partition_leader_epoch",
    "producer_id",
    "producer_epoch",
    "base_sequence",
)
NO_TIMESTAMP = -1
_NO_BYTES, _NO_SIZES = np.empty(0, np.uint8), np.empty(0, np.int32)


@dataclass
class Counts:
    """The number of records and batches in a round."""

    records: int = 0
    kept: int = 0
    without_key: int = 0
    """Dropped records that have no key."""
    markers: int = 0
    """Dropped transaction markers."""
    emptied: int = 0
    """Batches that are kept without records."""


class LastRecords:
    """The last batch of each producer that a broker still knows. It is kept even without records, since it has the producer's sequence
    number or epoch (`UnifiedLog.lastRecordsOfActiveProducers`)."""

    def __init__(self, producers: dict[int, Producer]) -> None:
        ids = sorted(producers)
        self._ids = np.array(ids, np.int64)
        self._offsets = np.array([producers[i].last_offset for i in ids], np.int64)
        self._epochs = np.array([producers[i].producer_epoch for i in ids], np.int64)

    def mask(self, head: Heads) -> Bools:
        """Return which batches are the last one of their producer."""
        producer_ids = head["producer_id"].astype(np.int64)
        if not len(self._ids):
            return np.zeros(len(head), np.bool_)
        at = np.minimum(np.searchsorted(self._ids, producer_ids), len(self._ids) - 1)
        known = (self._ids[at] == producer_ids) & (producer_ids >= 0)
        last = self._offsets[at]
        marker = (head["attributes"] & CONTROL != 0) & (head["producer_epoch"] == self._epochs[at])
        return np.asarray(known & np.where(last >= 0, head["last_offset"] == last, marker), np.bool_)


@dataclass
class BatchFilter:
    """The rules of one round. `retain_old_deletes` changes with each segment."""

    map: OffsetMap
    now: int
    retention: int
    """`delete.retention.ms`."""
    upper: int
    """The first offset that is not cleaned in this round."""
    last_records: LastRecords
    limit: int
    """The most bytes of a decompressed batch."""
    retain_old_deletes: bool = True
    """Whether tombstones of magic 0 and 1 are kept. They have no delete horizon."""
    counts: Counts = field(default_factory=Counts)

    def filter(self, window: Window, frames: Frames, discardable: Bools) -> tuple[Bytes, Int64s]:
        """Return the filtered batches, and where each starts. `discardable` are those that no transaction needs."""
        head = frames.header
        flags = head["attributes"].astype(np.int64)
        control = flags & CONTROL != 0
        horizon = flags & DELETE_HORIZON != 0
        expired = horizon & (head["base_timestamp"] <= self.now)
        discarded = discardable & (~control | expired)
        stays = self.last_records.mask(head) | (head["last_offset"] + 1 == self.upper)
        kinds = np.where(discarded & stays, _EMPTY, _DROP)
        counts = np.maximum(head["records_count"].astype(np.int64), 0)
        self.counts.records += int(counts[discarded & ~control].sum())
        self.counts.markers += int(counts[discarded & control].sum())
        rebuilt: list[Encoded] = []
        places = np.flatnonzero(~discarded)
        if len(places):
            chosen = frames.pick(~discarded)
            for part in sections(window, chosen, self.limit):
                which = places[part.frames]
                picked = _Portion(self, part, head[which], control[which], horizon[which])
                kinds[which] = picked.kinds(discardable[which], stays[which])
                rebuilt += picked.rebuild()
        self._refuse_old(head, kinds)
        self.counts.emptied += int((kinds == _EMPTY).sum())
        return _join(window, frames, kinds, rebuilt)

    def _refuse_old(self, head: Heads, kinds: Int64s) -> None:
        old = (kinds == _EMPTY) & (head["magic"] < MAGIC)
        if old.any():
            offset = int(head["last_offset"][int(np.argmax(old))])
            raise UsageError(
                f"the message at offset {offset} is the last of the round and would be dropped, but only batches of magic 2 can be empty:"
                " Kafka's log cleaner fails here too",
                advice="Append a record with a key, or convert the partition to magic 2 first",
            )


class _Portion:
    """Batches whose records are read and filtered together."""

    def __init__(
        self, rules: BatchFilter, part: Sections, head: Heads, control: Bools, horizon: Bools
    ) -> None:
        self.rules, self.part, self.head, self.control, self.horizon = rules, part, head, control, horizon
        self.read = _sound(part, head, records.WANT_OFFSET | records.WANT_KEY | records.WANT_VALUE)
        self.frame = np.repeat(np.arange(len(head)), self.read.per_frame)
        self.keep = self._keep()
        self._rebuilt = np.zeros(len(head), np.bool_)
        self._needs = self._rebuilt

    def _keep(self) -> Bools:
        """Return which records are kept."""
        rules, head, frame = self.rules, self.head, self.frame
        offsets = self.read.offsets[: self.read.rows]
        keys = self.read.key()
        latest = rules.map.is_latest(arrow_input.binary(keys, "key"), offsets)
        deletes_stay = np.where(
            head["magic"] >= MAGIC,
            ~self.horizon | (rules.now < head["base_timestamp"]),
            rules.retain_old_deletes,
        )
        has_value = np.asarray(self.read.value().is_valid())
        has_key = np.asarray(keys.is_valid())
        later = offsets > rules.map.latest_offset
        keep = later | (has_key & latest & (has_value | deletes_stay[frame]))
        data = ~self.control[frame]
        self.value_is_null = ~has_value
        rules.counts.records += int(data.sum())
        rules.counts.kept += int((keep & data).sum())
        rules.counts.without_key += int((~later & ~has_key & data).sum())
        return np.asarray(keep | ~data, np.bool_)

    def kinds(self, discardable: Bools, stays: Bools) -> Int64s:
        """Return whether each batch is copied, rebuilt, emptied or dropped."""
        count = len(self.head)
        self.kept = np.bincount(self.frame[self.keep], minlength=count)
        tombstones = np.bincount(self.frame[self.keep & self.value_is_null], minlength=count) > 0
        self._needs = (tombstones | (discardable & self.control)) & ~self.horizon
        same = (self.kept == self.read.per_frame) & (self.head["magic"] >= MAGIC) & ~self._needs
        survives = self.kept > 0
        self._rebuilt = survives & ~same
        return np.where(survives, np.where(same, _COPY, _REBUILD), np.where(stays, _EMPTY, _DROP))

    def rebuild(self) -> Iterator[Encoded]:
        """Yield the rebuilt batches in order (`MemoryRecordsBuilder`)."""
        chosen = self._rebuilt
        if not chosen.any():
            return
        head, counts = self.head[chosen], self.kept[chosen]
        part = self.part
        sub = Sections(slice(0, len(head)), part.buf, part.start[chosen], part.end[chosen])
        if part.sets is not None:
            sets = part.sets
            sub.sets = replace(
                sets, count=sets.count[chosen], shift=sets.shift[chosen], wrapped=sets.wrapped[chosen],
                append_time=sets.append_time[chosen],
            )  # fmt: skip
        read = _sound(sub, head, records.WANT_ALL)
        keep = self.keep[chosen[self.frame]]
        mask = pa.array(keep)
        times = np.ascontiguousarray(np.asarray(read.timestamp_ms())[keep])
        offsets = np.ascontiguousarray(read.offsets[: read.rows][keep])
        headers, _ = read.headers()
        rows = pack.Rows(
            len(offsets),
            arrow_input.binary(read.key().filter(mask), "key"),
            arrow_input.binary(read.value().filter(mask), "value"),
            arrow_input.headers(headers.filter(mask)),
            times,
            times,
            np.zeros(len(offsets), np.uint8),
            offsets,
            np.empty(0, np.int8),
        )
        cuts = np.cumsum(counts) - counts
        headers_of_batches = self._headers(
            head, self._needs[chosen], self.horizon[chosen], counts, cuts, times, offsets
        )
        _refuse_invalid(head, times, cuts)
        yield _written(rows, headers_of_batches, cuts)

    def _headers(
        self,
        head: Heads,
        needs: Bools,
        horizon: Bools,
        counts: Int64s,
        cuts: Int64s,
        times: Int64s,
        offsets: Int64s,
    ) -> Heads:
        rules = self.rules
        old = head["magic"] < MAGIC
        flags = head["attributes"].astype(np.int64)
        at = np.where(
            needs, add(rules.now, rules.retention), np.where(horizon, head["base_timestamp"], NO_TIMESTAMP)
        )
        out = _header(head)
        out["base_offset"] = np.where(old, offsets[cuts], head["base_offset"])
        last = np.where(old, offsets[cuts + counts - 1], head["last_offset"])
        out["last_offset_delta"] = last - out["base_offset"].astype(np.int64)
        out["attributes"] = flags & (COMPRESSION | TIMESTAMP_TYPE | TRANSACTIONAL | CONTROL)
        out["attributes"] |= np.where(at >= 0, DELETE_HORIZON, 0).astype(np.int16)
        out["base_timestamp"] = np.where(at >= 0, at, times[cuts])
        newest = np.maximum(np.maximum.reduceat(times, cuts), NO_TIMESTAMP)
        out["max_timestamp"] = np.where(flags & TIMESTAMP_TYPE != 0, head["max_timestamp"], newest)
        out["records_count"] = counts
        return out


def _sound(part: Sections, head: Heads, want: int) -> Read:
    """Read records. Raises `DamageError` for those that a broker cannot read or cannot append to a batch."""
    read = Read(part, head, want)
    wrong = (read.bad != 0) | (read.left_out != 0)
    if part.faults or wrong.any():
        at = min([*part.faults, *np.flatnonzero(wrong).tolist()])
        why = part.faults.get(at, "they are damaged, or their offsets do not ascend")
        raise DamageError(
            f"the records of the batch at offset {int(head['base_offset'][at])} cannot be read: {why}",
            advice="Repair the partition with `logwright repair`, and compact the result",
        )
    return read


def _header(head: Heads) -> Heads:
    """Return stored headers with the fields that no filter changes."""
    out = np.zeros(len(head), HEAD)
    for name in _COPIED:
        out[name] = head[name]
    out["last_offset_delta"] = head["last_offset"] - head["base_offset"]
    out["magic"] = MAGIC
    return out


def _refuse_invalid(head: Heads, times: Int64s, cuts: Int64s) -> None:
    """Raise `DamageError` for batches that Kafka's builder refuses to write (`MemoryRecordsBuilder.validateProducerState`)."""
    flags = head["attributes"].astype(np.int64)
    has_producer = head["producer_id"] != -1
    control = flags & CONTROL != 0
    wrong = (~has_producer & (flags & TRANSACTIONAL != 0)) | (has_producer & (head["producer_epoch"] == -1))
    wrong |= has_producer & ~control & (head["base_sequence"] < 0)
    why = "its producer id, epoch or sequence number is invalid"
    negative = np.minimum.reduceat(times, cuts) < NO_TIMESTAMP
    if negative.any() and not wrong.any():
        wrong, why = negative, "a timestamp is negative"
    if wrong.any():
        offset = int(head["base_offset"][int(np.argmax(wrong))])
        raise DamageError(
            f"the batch at offset {offset} cannot be rebuilt: {why}, so Kafka's log cleaner refuses the partition",
            advice="Drop or correct the records with `logwright edit`, and compact the result",
        )


def _written(rows: pack.Rows, head: Heads, cuts: Int64s) -> Encoded:
    """Encode rows as batches: batch k starts at row `cuts[k]`."""
    buffer, out = pack.room(rows.most + HEAD_SIZE * len(cuts))
    starts = np.empty(len(cuts), np.int64)
    bases = head["base_offset"].astype(np.int64), head["base_timestamp"].astype(np.int64)
    end = rows.write(out, 0, pack.closed(), starts, cuts=(cuts, *bases))
    del buffer
    ends = np.append(starts[1:], end)
    codecs = head["attributes"].astype(np.int64) & COMPRESSION
    if codecs.any():
        plain = [
            out[start + HEAD_SIZE : stop] for start, stop in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
        stored = [
            compress(COMPRESSION_NAMES[codec], section) if codec else section
            for codec, section in zip(codecs.tolist(), plain, strict=True)
        ]
        return assemble(head, stored)
    head["batch_length"] = ends - starts - LENGTH_END
    put_heads(out, starts, ends, head.view(np.uint8))
    return Encoded(out[:end], starts, heads_at(out, starts))


def _emptied(head: Heads) -> Encoded:
    """Return batches without records (`DefaultRecordBatch.writeEmptyHeader`)."""
    out = _header(head)
    out["attributes"] = head["attributes"] & (TIMESTAMP_TYPE | TRANSACTIONAL | CONTROL)
    out["base_timestamp"] = NO_TIMESTAMP
    return assemble(out, [b""] * len(out))


def _join(window: Window, frames: Frames, kinds: Int64s, rebuilt: list[Encoded]) -> tuple[Bytes, Int64s]:
    """Join copied, rebuilt and empty batches in their original order."""
    left = np.flatnonzero(kinds != _DROP)
    kinds = kinds[left]
    if not len(left):
        return np.empty(0, np.uint8), np.empty(0, np.int64)
    begin = frames.start[left].copy()
    sizes = frames.end[left] - begin
    buffers = {_COPY: window.data}
    emptied = _emptied(frames.header[left[kinds == _EMPTY]])
    for kind, batches in ((_REBUILD, rebuilt), (_EMPTY, [emptied])):
        buffers[kind] = np.concatenate([_NO_BYTES, *(part.data for part in batches)])
        length = np.concatenate([_NO_SIZES, *(part.header["size"] for part in batches)]).astype(np.int64)
        sizes[kinds == kind] = length
        begin[kinds == kind] = np.cumsum(length) - length
    # Consecutive batches of one kind are usually adjacent in their buffer.
    breaks = np.flatnonzero((np.diff(kinds) != 0) | (begin[1:] != begin[:-1] + sizes[:-1])) + 1
    pieces = []
    for first, stop in pairwise([0, *breaks.tolist(), len(left)]):
        pieces.append(buffers[int(kinds[first])][int(begin[first]) : int(begin[stop - 1] + sizes[stop - 1])])
    return np.concatenate(pieces), np.cumsum(sizes) - sizes
