"""The rules of a compaction in plain Python, one record at a time: the reference for the compiled one.

For logs of uncompressed batches of magic 2. See `codec/kafka/compact` for the sources of the rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logwright.codec.kafka.formats.log.layout import (
    CONTROL,
    CONTROL_RECORD_KEY,
    DELETE_HORIZON,
    LOG_SEGMENT,
    RECORD_BATCH,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
)
from logwright.codec.kafka.formats.log.markers import ABORT

Batch = dict[str, Any]


@dataclass
class Reference:
    """One round of compaction of a log: the bytes of its segments by base offset."""

    segments: Mapping[int, bytes]
    now: int
    retention: int
    segment_bytes: int = 1 << 30
    first_dirty: int | None = None
    most_keys: int = 1 << 30
    expiration: int = 86_400_000
    map: dict[bytes, int] = field(default_factory=dict)
    latest: int = -1

    def run(self) -> dict[int, bytes]:
        """Return the segments after the compaction."""
        self.bases = sorted(self.segments)
        self.batches = {base: _batches(data) for base, data in self.segments.items()}
        self._follow_producers()
        start = self.bases[0]
        end = max((_last(batch) + 1 for all in self.batches.values() for batch in all), default=start)
        end = max(end, self.bases[-1])
        dirty = (
            self.first_dirty if self.first_dirty is not None and start <= self.first_dirty <= end else start
        )
        limit = max(dirty, min([self.bases[-1], end, *self.open.values()]))
        self.upper = max([base for base in self.bases if base <= limit], default=self.bases[-1])
        out = dict(self.segments)
        if dirty >= self.upper:
            return out
        self._map(dirty)
        self.seen: set[int] = set()
        for group in self._groups():
            for base in group:
                del out[base]
            out[group[0]] = b"".join(self._keep(batch) for base in group for batch in self.batches[base])
        return out

    def _follow_producers(self) -> None:
        """Record each producer's last batch, its open transaction, and the offsets of batches in aborted transactions."""
        self.producers: dict[int, dict[str, int]] = {}
        self.open: dict[int, int] = {}
        self.aborted: set[int] = set()
        in_transaction: dict[int, list[int]] = {}
        for base in self.bases:
            for batch in self.batches[base]:
                producer = batch["producer_id"]
                if producer < 0 or (batch["attributes"] & CONTROL and not batch["records"]):
                    continue
                entry = self.producers.setdefault(producer, {"epoch": -1, "last": -1, "time": -1})
                if entry["epoch"] != batch["producer_epoch"]:
                    entry |= {"epoch": batch["producer_epoch"], "last": -1}
                if batch["attributes"] & CONTROL:
                    entry["time"] = _time(batch, batch["records"][0])
                    if _kind(batch) == ABORT:
                        self.aborted.update(in_transaction.get(producer, ()))
                    in_transaction.pop(producer, None)
                    self.open.pop(producer, None)
                    continue
                entry |= {"last": _last(batch), "time": batch["max_timestamp"]}
                if batch["attributes"] & TRANSACTIONAL:
                    self.open.setdefault(producer, batch["base_offset"])
                    in_transaction.setdefault(producer, []).append(batch["base_offset"])
        old = [
            producer
            for producer, entry in self.producers.items()
            if producer not in self.open and self.now - entry["time"] >= self.expiration
        ]
        for producer in old:
            del self.producers[producer]

    def _map(self, dirty: int) -> None:
        for base, following in zip(self.bases, [*self.bases[1:], None], strict=True):
            if base >= self.upper or (following is not None and following <= dirty):
                continue
            for batch in self.batches[base]:
                if not batch["attributes"] & CONTROL and batch["base_offset"] not in self.aborted:
                    for record in batch["records"]:
                        offset = batch["base_offset"] + record["offset_delta"]
                        if record["key"] is None or offset < dirty:
                            continue
                        if len(self.map) >= self.most_keys:
                            return
                        self.map[record["key"]] = self.latest = offset
                if _last(batch) >= dirty:
                    self.latest = _last(batch)
            self.latest = (following if following is not None and following < self.upper else self.upper) - 1

    def _groups(self) -> list[list[int]]:
        groups: list[list[int]] = []
        for base in self.bases:
            if base > self.latest:
                break
            size = sum(len(self.segments[other]) for other in groups[-1]) if groups else 0
            if groups and size + len(self.segments[base]) <= self.segment_bytes:
                groups[-1].append(base)
            else:
                groups.append([base])
        return groups

    def _keep(self, batch: Batch) -> bytes:
        """Return the batch without its dropped records."""
        flags, producer = batch["attributes"], batch["producer_id"]
        control, horizon = flags & CONTROL, flags & DELETE_HORIZON
        useless = batch["base_offset"] in self.aborted and not control
        if control:
            useless = not batch["records"] or producer not in self.seen
            if batch["records"]:
                self.seen.discard(producer)
        elif flags & TRANSACTIONAL:
            self.seen.add(producer)
        gone = useless and (not control or (horizon and batch["base_timestamp"] <= self.now))
        kept = (
            [] if gone else [record for record in batch["records"] if control or self._keeps(batch, record)]
        )
        if not kept:
            return _empty(batch) if self._is_last(batch) or _last(batch) + 1 == self.upper else b""
        needs = not horizon and (any(record["value"] is None for record in kept) or (useless and control))
        if len(kept) == len(batch["records"]) and not needs:
            return _pack(batch)
        at = self.now + self.retention if needs else batch["base_timestamp"] if horizon else -1
        times = [_time(batch, record) for record in kept]
        base = at if at >= 0 else times[0]
        records = [
            {**record, "timestamp_delta": time - base, "attributes": 0}
            for record, time in zip(kept, times, strict=True)
        ]
        flags = flags & ~DELETE_HORIZON | (DELETE_HORIZON if at >= 0 else 0)
        top = batch["max_timestamp"] if flags & TIMESTAMP_TYPE else max(-1, *times)
        return _pack(batch, attributes=flags, base_timestamp=base, max_timestamp=top, records=records)

    def _keeps(self, batch: Batch, record: Mapping[str, Any]) -> bool:
        offset = batch["base_offset"] + record["offset_delta"]
        if offset > self.latest:
            return True
        if record["key"] is None or offset < self.map.get(record["key"], -1):
            return False
        expired = batch["attributes"] & DELETE_HORIZON and batch["base_timestamp"] <= self.now
        return record["value"] is not None or not expired

    def _is_last(self, batch: Batch) -> bool:
        entry = self.producers.get(batch["producer_id"])
        if entry is None:
            return False
        if entry["last"] >= 0:
            return _last(batch) == entry["last"]
        return bool(batch["attributes"] & CONTROL) and batch["producer_epoch"] == entry["epoch"]


def _batches(data: bytes) -> Sequence[Batch]:
    return [frame["frame"] for frame in LOG_SEGMENT.unpack(data)[0]["frames"]]


def _last(batch: Batch) -> int:
    return int(batch["base_offset"] + batch["last_offset_delta"])


def _kind(batch: Batch) -> int:
    return int(CONTROL_RECORD_KEY.unpack(batch["records"][0]["key"])[0]["type"])


def _time(batch: Batch, record: Mapping[str, Any]) -> int:
    return int(
        batch["max_timestamp"]
        if batch["attributes"] & TIMESTAMP_TYPE
        else batch["base_timestamp"] + record["timestamp_delta"]
    )


def _empty(batch: Batch) -> bytes:
    flags = batch["attributes"] & (TIMESTAMP_TYPE | TRANSACTIONAL | CONTROL)
    return _pack(batch, attributes=flags, base_timestamp=-1, records=[])


def _pack(batch: Batch, **changes: Any) -> bytes:
    """Encode a batch with some fields changed. Lengths and the checksum follow."""
    values = {
        name: value for name, value in {**batch, **changes}.items() if name not in ("batch_length", "crc")
    }
    values["records"] = [
        {name: value for name, value in record.items() if name != "length"} for record in values["records"]
    ]
    return RECORD_BATCH.pack({**values, "records_count": len(values["records"])})
