"""Write batches one by one from the description, and record the rows that consumers must get.

Nothing here uses a kernel, and nothing is read back: the rows expected are those that were put in. Offsets, segments and the
fates of transactions are counted as a broker counts them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from logwright.codec.describe import Bytes, Field, Struct
from logwright.codec.kafka.derive import PartitionDeriver
from logwright.codec.kafka.formats.log.heads import heads_at
from logwright.codec.kafka.formats.log.layout import (
    ATTRIBUTES,
    COMPRESSION,
    COMPRESSION_NAMES,
    CONTROL_RECORD_KEY,
    DELETE_HORIZON,
    END_TXN_MARKER,
    HEAD,
    HEAD_SIZE,
    INNER_MESSAGE,
    LENGTH_END,
    MESSAGE,
    RECORD,
    RECORD_BATCH,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
    codec_name,
    struct_at,
)
from logwright.codec.kafka.formats.log.layout import CONTROL as CONTROL_FLAG
from logwright.codec.kafka.formats.log.markers import ABORT, COMMIT, MARKER
from logwright.codec.kernels.compress import compress, decompress
from logwright.corpora.recipe import Reads

_STORED = Struct(
    RECORD_BATCH.name,
    *(Field("records", Bytes("rest")) if item.name == "records" else item for item in RECORD_BATCH.fields),
)
"""A batch with encoded records."""

_LIMIT = 1 << 31
_WINDOW = 4 << 20
_LENGTH = RECORD_BATCH.offset("batch_length")


@dataclass(frozen=True)
class Record:
    """One record. `delta` is its offset in the batch, if it is not the next one.

    `headers` are (key, value) or (key, value, key as a consumer gets it). `packed` are unusual bytes of the record; the other fields are
    their meaning.
    """

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[Any, ...], ...] = ()
    delta: int | None = None
    attributes: int = 0
    packed: bytes | None = None


@dataclass
class Producer:
    """A producer with an id, its sequence numbers and whether it is in a transaction."""

    id: int
    epoch: int = 0
    sequence: int = 0

    def take(self, count: int) -> int:
        """Return the base sequence of a batch of `count` records; 2147483647 wraps to 0."""
        base = self.sequence
        self.sequence = (base + count) % (1 << 31)
        return base


@dataclass
class Segment:
    """A segment under construction: its bytes, the starts of its batches, and its markers."""

    base: int
    data: bytearray = field(default_factory=bytearray)
    starts: list[int] = field(default_factory=list)
    markers: list[tuple[int, int, int, int, int]] = field(default_factory=list)


class Script:
    """A partition being written. `segment_bytes` as `segment.bytes`: a new segment starts where a batch would not fit."""

    def __init__(
        self, *, first_offset: int = 0, segment_bytes: int = 1 << 30, one_file: bool = False
    ) -> None:
        self.next_offset = first_offset
        self.segment_bytes, self.one_file = segment_bytes, one_file
        self.leader_epoch = 0
        self.segments = [Segment(first_offset)]
        self.rows: list[dict[str, Any]] = []
        self.log_start = first_offset
        self._open: dict[int, int] = {}
        """The first offset of each producer's open transaction."""
        self._pending: dict[int, list[int]] = {}
        """The rows (by index) of open transactions."""
        self._aborted: set[int] = set()

    # Writing

    def roll(self) -> None:
        """Start a new segment at the next offset."""
        if not self.one_file and self.segments[-1].base < self.next_offset:
            self.segments.append(Segment(self.next_offset))

    def skip(self, offsets: int) -> None:
        """Skip offsets, as if compaction had removed their records."""
        self.next_offset += offsets

    def batch(
        self,
        records: Sequence[Record],
        *,
        compression: str = "none",
        append_time: int | None = None,
        producer: Producer | None = None,
        transactional: bool = False,
        last_delta: int | None = None,
        delete_horizon: int | None = None,
        control: bool = False,
        high_bits: int = 0,
        max_timestamp: int | None = None,
        base_sequence: int | None = None,
        leader_epoch: int | None = None,
        payload: bytes | None = None,
    ) -> int:
        """Write a batch and return its base offset. `payload`: precompressed records."""
        base = self.next_offset
        deltas: list[int] = []
        for record in records:
            deltas.append(record.delta if record.delta is not None else deltas[-1] + 1 if deltas else 0)
        last = last_delta if last_delta is not None else deltas[-1]
        times = [record.timestamp for record in records]
        base_timestamp = delete_horizon if delete_horizon is not None else times[0] if times else -1
        section = b"".join(
            self._packed(record, delta, base_timestamp) for record, delta in zip(records, deltas, strict=True)
        )
        top = append_time if append_time is not None else max(times, default=-1)
        flags = COMPRESSION_NAMES.index(compression) | high_bits << 8
        flags |= TIMESTAMP_TYPE if append_time is not None else 0
        flags |= TRANSACTIONAL if transactional else 0
        flags |= CONTROL_FLAG if control else 0
        flags |= DELETE_HORIZON if delete_horizon is not None else 0
        if base_sequence is None:
            base_sequence = -1 if producer is None or control else producer.take(last + 1)
        data = _STORED.pack(
            {
                "base_offset": base,
                "partition_leader_epoch": self.leader_epoch if leader_epoch is None else leader_epoch,
                "attributes": flags if flags < 1 << 15 else flags - (1 << 16),
                "last_offset_delta": last,
                "base_timestamp": base_timestamp,
                "max_timestamp": top if max_timestamp is None else max_timestamp,
                "producer_id": -1 if producer is None else producer.id,
                "producer_epoch": -1 if producer is None else producer.epoch,
                "base_sequence": base_sequence,
                "records_count": len(records),
                "records": payload or (section if compression == "none" else compress(compression, section)),
            }
        )
        self._append(data, base)
        self.next_offset = base + last + 1
        owner = producer.id if transactional and producer is not None else None
        if owner is not None and not control:
            self._open.setdefault(owner, base)
        if not control:
            self._expect(records, deltas, base, append_time, owner)
        return base

    def marker(
        self,
        producer: Producer,
        commit: bool,
        timestamp: int,
        *,
        coordinator_epoch: int = 0,
        horizon: int | None = None,
    ) -> None:
        """The end of a producer's transaction. `horizon`: the time after which compaction may remove the marker."""
        kind = COMMIT if commit else ABORT
        key = CONTROL_RECORD_KEY.pack({"type": kind})
        value = END_TXN_MARKER.pack({"coordinator_epoch": coordinator_epoch})
        record = Record(key, value, timestamp)
        offset = self.batch(
            [record], producer=producer, transactional=True, control=True, delete_horizon=horizon
        )
        segment = self.segments[-1]
        segment.markers.append((len(segment.starts) - 1, offset, timestamp, kind, coordinator_epoch))
        self._open.pop(producer.id, None)
        ended = self._pending.pop(producer.id, [])
        if not commit:
            self._aborted.update(ended)

    def control(self, kind: int, value: bytes, timestamp: int) -> None:
        """Write a control record without a producer, as in the KRaft log."""
        self.batch([Record(CONTROL_RECORD_KEY.pack({"type": kind}), value, timestamp)], control=True)

    def _packed(self, record: Record, delta: int, base_timestamp: int) -> bytes:
        if record.packed is not None:
            return record.packed
        return RECORD.pack(
            {
                "attributes": record.attributes,
                "timestamp_delta": record.timestamp - base_timestamp,
                "offset_delta": delta,
                "key": record.key,
                "value": record.value,
                "headers": [{"key": header[0], "value": header[1]} for header in record.headers],
            }
        )

    def _append(self, data: bytes, base: int) -> None:
        size = len(self.segments[-1].data)
        if size and size + len(data) > self.segment_bytes and not self.one_file:
            self.segments.append(Segment(base))
        segment = self.segments[-1]
        segment.starts.append(len(segment.data))
        segment.data += data

    # Expected rows

    def _expect(
        self,
        records: Sequence[Record],
        deltas: list[int],
        base: int,
        append_time: int | None,
        owner: int | None,
    ) -> None:
        for record, delta in zip(records, deltas, strict=True):
            self.rows.append(
                {
                    "key": record.key,
                    "value": record.value,
                    "offset": base + delta,
                    "timestamp": record.timestamp if append_time is None else append_time,
                    "timestampType": 0 if append_time is None else 1,
                    "headers": [
                        {"key": header[2] if len(header) > 2 else header[0].decode(), "value": header[1]}
                        for header in record.headers
                    ],
                }
            )
            if owner is not None:
                self._pending.setdefault(owner, []).append(len(self.rows) - 1)

    def uncommitted(self) -> Iterator[dict[str, Any]]:
        return (row for row in self.rows if row["offset"] >= self.log_start)

    def committed(self) -> Iterator[dict[str, Any]]:
        """Return the rows up to the first open transaction, without aborted ones."""
        stable = min(self._open.values(), default=self.next_offset)
        for i, row in enumerate(self.rows):
            if self.log_start <= row["offset"] < stable and i not in self._aborted:
                yield row

    def derived(self, interval: int) -> dict[str, bytes]:
        """Return the files that a broker derives from the segments."""
        deriver = PartitionDeriver(interval)
        for segment in self.segments:
            deriver.begin_segment(segment.base)
            starts = np.array(segment.starts, np.int64)
            heads = heads_at(np.frombuffer(segment.data, np.uint8), starts)
            deriver.add_batches(heads, starts, np.array(segment.markers, MARKER))
        return deriver.finish()


_UNSURE = ("batch_length", "crc")
"""Fields that change with the compressor's version, in addition to the compressed records."""


def content_hash(read: Reads, size: int) -> str | None:
    """SHA-256 of a log with its records decompressed; None where none are compressed. `read` gives its bytes."""
    digest, at, packed = hashlib.sha256(), 0, False
    start, window = 0, b""
    while at < size:
        if at + HEAD_SIZE > start + len(window):
            start, window = at, read(at, _WINDOW)
        length = window[at - start + _LENGTH : at - start + LENGTH_END]
        end = at + LENGTH_END + int.from_bytes(length, "big")
        if end > start + len(window):
            start, window = at, read(at, max(_WINDOW, end - at))
        stored = window[at - start : end - start]
        content = _message_content(stored) if struct_at(stored, 0) is MESSAGE else _batch_content(stored)
        packed = packed or content is not None
        digest.update(stored if content is None else content)
        at = end
    return digest.hexdigest() if packed else None


def _batch_content(stored: bytes) -> bytes | None:
    """Return a batch of magic 2 with its records decompressed; None if they are not compressed."""
    head = np.frombuffer(stored, HEAD, 1).copy()
    codec = int(ATTRIBUTES["compression"].of(int(head["attributes"][0])))
    if not codec:
        return None
    for name in _UNSURE:
        head[name] = 0
    return bytes(head.tobytes() + decompress(codec_name(codec), stored[HEAD_SIZE:], _LIMIT).tobytes())


def _message_content(stored: bytes) -> bytes | None:
    """Return a message of magic 0 or 1 with its value decompressed; None if it is not compressed."""
    codec = stored[INNER_MESSAGE.offset("attributes")] & COMPRESSION
    if not codec:
        return None
    message, _ = INNER_MESSAGE.unpack(stored)
    del message["message_size"], message["crc"]
    message["value"] = decompress(codec_name(codec, message["magic"]), message["value"], _LIMIT).tobytes()
    return INNER_MESSAGE.pack(message)
