"""Divide the records of a segment into other batches, which keep producers, sequence numbers and transactions.

A batch has one producer, epoch, transaction flag and leader epoch, and its sequence numbers count as its offsets do. So batches are joined
only where all of these continue and nothing is between them. The parts of a divided batch cover the same offsets and sequence numbers. Control
batches, batches with a delete horizon or whose first record was removed, and messages of magic 0 and 1 stay as they are. Batches of two windows
are not joined, so one in 4 MiB may be smaller than it could be.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.arrays import Bools
from logwright.codec.frames.scanner import concatenate_heads
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.formats.log.heads import stored_heads
from logwright.codec.kafka.formats.log.layout import (
    COMPRESSION,
    COMPRESSION_NAMES,
    CONTROL,
    DELETE_HORIZON,
    HEAD_SIZE,
    MAGIC,
    TIMESTAMP_TYPE,
)
from logwright.codec.kafka.formats.log.settings import BatchSettings
from logwright.codec.kafka.formats.log.tables import ROWS, LogContext
from logwright.codec.kafka.formats.log.write import BatchEncoder, assemble
from logwright.codec.kernels.compress import compress
from logwright.codec.window import Frames, Window

_ROWS = ROWS.names(detail=True)
_LAST_SEQUENCE = (1 << 31) - 1
_SAME = ("producer_id", "producer_epoch", "partition_leader_epoch", "attributes")
"""The fields that batches must share to be joined."""


def rebatched(
    window: Window, frames: Frames, context: LogContext, settings: BatchSettings
) -> Iterator[tuple[int, int, list[bytes]]]:
    """Yield the ranges of frames `[low, high)` in order, with their new batches, or none if they stay as they are."""
    head = frames.header
    flags = head["attributes"].astype(np.int64)
    may = (head["magic"] == MAGIC) & (head["records_count"] > 0) & (flags & (CONTROL | DELETE_HORIZON) == 0)
    may &= flags & COMPRESSION < len(COMPRESSION_NAMES)
    picked = frames.pick(may)
    batches = [decoded.batch for decoded in log.CODEC.decode(window, picked, "rows", _ROWS, context)]
    rows = pa.Table.from_batches(batches, ROWS.schema(_ROWS)).combine_chunks()
    which = np.searchsorted(frames.start + window.offset, np.asarray(rows.column("position")))
    counts = np.bincount(which, minlength=len(frames))
    ends = np.cumsum(counts)
    # A batch with records that consumers skip keeps them, and one whose first record was removed keeps its first offset.
    may &= counts == head["records_count"]
    may[may] = np.asarray(rows.column("offset"))[(ends - counts)[may]] == head["base_offset"][may]
    edges = np.flatnonzero(~(_continue(frames) & may[1:] & may[:-1])) + 1
    for low, high in pairwise([0, *edges.tolist(), len(frames)]):
        first = int(ends[low] - counts[low])
        part = rows.slice(first, int(ends[high - 1]) - first)
        yield low, high, _encoded(part, head[low:high], settings) if may[low] else []


def _continue(frames: Frames) -> Bools:
    """Return for all frames but the first whether they continue the one before, as parts of one batch would."""
    head = frames.header
    after, before = head[1:], head[:-1]
    out = frames.start[1:] == frames.end[:-1]
    for name in _SAME:
        out &= after[name] == before[name]
    append = before["attributes"] & TIMESTAMP_TYPE != 0
    out &= ~append | (after["max_timestamp"] == before["max_timestamp"])
    size = before["last_offset"].astype(np.int64) - before["base_offset"].astype(np.int64) + 1
    sequence = before["base_sequence"].astype(np.int64)
    numbered = (sequence >= 0) | (after["base_sequence"] >= 0)
    follows = (
        (sequence >= 0)
        & (after["base_offset"] == before["last_offset"] + 1)
        & (after["base_sequence"] == (sequence + size) & _LAST_SEQUENCE)
    )
    return np.asarray(out & (~numbered | follows), np.bool_)


def _encoded(rows: pa.Table, head: npt.NDArray[Any], settings: BatchSettings) -> list[bytes]:
    """Return the batches of the rows of joined batches with these headers; none if a single one stays as it is."""
    encoder = BatchEncoder(BatchSettings(batch_size=settings.batch_size))
    parts = [encoder.add(batch) for batch in rows.to_batches()] + [encoder.flush()]
    first = head[0]
    codec = int(first["attributes"]) & COMPRESSION
    if settings.keep_compression:
        if len(head) == 1 and sum(len(part.start) for part in parts) == 1:
            return []
    else:
        codec = COMPRESSION_NAMES.index(settings.compression)
    kept = settings.kept(MAGIC, codec)
    out: list[bytes] = []
    stored = concatenate_heads([stored_heads(part.data, part.start) for part in parts])
    base = stored["base_offset"].astype(np.int64)
    sequence = int(first["base_sequence"])
    stored["base_sequence"] = -1 if sequence < 0 else (sequence + base - base[0]) & _LAST_SEQUENCE
    # Each batch ends where the next starts: removed records leave no gap between sequence numbers.
    stored["last_offset_delta"] = np.append(base[1:], int(head["last_offset"][-1]) + 1) - base - 1
    for name in ("producer_id", "producer_epoch", "partition_leader_epoch"):
        stored[name] = first[name]
    stored["attributes"] = int(first["attributes"]) & ~COMPRESSION | codec
    at = 0
    for part in parts:
        for start, end in pairwise([*part.start.tolist(), len(part.data)]):
            section: Any = part.data[start + HEAD_SIZE : end]
            if codec:
                section = compress(kept.compression, section, level=kept.level)
            out.append(assemble(stored[at : at + 1], [section]).data.tobytes())
            at += 1
    return out
