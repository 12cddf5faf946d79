"""Assemble the staged parts of a partition, after all tasks have written theirs.

Each part is a partition. If offsets are assigned, those of each part count from 0, and the headers of its batches are patched:
no checksum covers base offsets. Indexes have offsets relative to the base of their segment, and do not change.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from logwright.codec.arrays import Bytes
from logwright.codec.fault import LogwrightError, UsageError
from logwright.codec.kafka.derive import EpochCache
from logwright.codec.kafka.formats.log.layout import LENGTH_END, MAGIC, MIN_MESSAGE
from logwright.codec.kafka.formats.log.scan import HEAD_UP_TO_MAGIC
from logwright.codec.kafka.formats.log.settings import BatchSettings
from logwright.codec.kafka.names import segment_name
from logwright.codec.kafka.state.producers import ProducerState
from logwright.codec.kafka.store.builder import (
    Resumed,
    before_you_start,
    check_options,
    check_places,
    elsewhere,
    epoch_of,
    open_transactions,
    single_files,
)
from logwright.codec.kernels.intrinsics import load_i32be, load_i64be, load_u8, store_32be, store_64be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.store.build import Parts, Placement, Stage, Summary

_WINDOW = 4 << 20
_MANY = 64
_SMALL = 1 << 20


def assemble(resumed: Resumed | None, parts: Parts, extra: Stage, options: Any, name: str = "") -> Placement:
    """See `Layout.assemble`. Raises `UsageError` if kept offsets overlap."""
    check_options(options, resumed)
    filled = [(stage, summary) for stage, summary in parts if summary.rows]
    places = {(kind, value) for _, summary in parts for kind, value in summary.facts["places"]}
    check_places(places)
    kept = {summary.facts["kept"] for _, summary in filled}
    if len(kept) > 1:
        raise UsageError("some rows have offsets, others have none")
    keep = kept == {True}
    if keep:
        filled.sort(key=lambda part: part[1].ids["first_offset"])
        _refuse_overlap(filled, resumed)
    start = resumed.next_offset if resumed is not None else options["first.offset"] or 0
    epochs, producers = EpochCache(), ProducerState()
    settings = BatchSettings.of(options)
    epoch = staged_epoch = settings.leader_epoch
    if resumed is not None:
        epochs.entries, producers = list(resumed.epochs.entries), resumed.producers
        epoch = epoch_of(options, resumed)
    renames: list[tuple[Stage, str, str]] = []
    begun = resumed is not None and resumed.has_segments
    offset, small, count, first = start, 0, 0, None
    for stage, summary in filled:
        delta = 0 if keep else offset - summary.facts["segments"][0][0]
        batch = summary.facts["first_batch"]
        if epoch >= 0 and batch is not None and (not epochs.entries or epochs.entries[-1][0] < epoch):
            epochs.assign(epoch, batch + delta)
        sizes = {entry.name: entry.size for entry in stage.entries()}
        for base, last, _ in summary.facts["segments"]:
            size = sizes[segment_name(base, ".log")]
            if delta and summary.facts["fixed_offsets"]:
                raise UsageError(
                    "compressed messages of magic 0 hold their offsets, which cannot be assigned when tasks are joined",
                    advice="Use magic 1, no compression, or pass an offset column",
                )
            if delta or epoch != staged_epoch:
                _shift(stage, segment_name(base, ".log"), size, delta, epoch)
            for suffix in (".log", ".index", ".timeindex"):
                renames.append((stage, segment_name(base, suffix), segment_name(base + delta, suffix)))
            # The part replaces an empty last segment, which has its snapshot.
            if begun and not (resumed is not None and resumed.ends_empty and base + delta == start):
                renames.append(
                    _new(extra, segment_name(base + delta, ".snapshot"), producers.snapshot_bytes())
                )
            begun = True
            if first is None:
                first = base + delta
            offset = last + delta + 1
            count, small = count + 1, small + (size < _SMALL)
    if first is None and (resumed is None or not resumed.has_segments):
        for suffix in (".log", ".index", ".timeindex"):
            renames.append(_new(extra, segment_name(start, suffix), b""))
    elif first is not None:
        renames.append(_new(extra, segment_name(offset, ".snapshot"), producers.snapshot_bytes()))
        renames += [_new(extra, name, data) for name, data in (resumed.rebuilt if resumed else {}).items()]
    for piece in single_files(epochs, resumed, options, first is not None):
        renames.append(_new(extra, piece.name, bytes(piece.data)))
    oldest = [summary.facts["oldest"] for _, summary in filled if summary.facts["oldest"] is not None]
    warnings = (*elsewhere(places, name), *open_transactions(resumed))
    if small > _MANY:
        warnings += (
            f"{small} of {count} segments are smaller than 1 MiB, since each task makes at least one. Fewer tasks make larger segments"
            " (coalesce before writing).",
        )
    rows = sum(summary.rows for _, summary in filled)
    ids = {"first_offset": first, "last_offset": offset - 1} if first is not None else {}
    advice = before_you_start(resumed, options, min(oldest, default=None), epoch)
    return Placement(tuple(renames), Summary(rows, ids, warnings, advice))


def _new(extra: Stage, name: str, data: bytes) -> tuple[Stage, str, str]:
    extra.append(name, data)
    return (extra, name, name)


def _refuse_overlap(parts: Parts, resumed: Resumed | None) -> None:
    end = resumed.next_offset if resumed is not None else 0
    for _, summary in parts:
        if summary.ids["first_offset"] < end:
            raise UsageError(
                f"offsets of tasks overlap, or are below the end of the partition: {summary.ids['first_offset']} follows"
                f" {end - 1}",
                advice="Order the rows by offset (repartitionByRange, sortWithinPartitions), or pass offsets=assign",
            )
        end = summary.ids["last_offset"] + 1


def _shift(stage: Stage, name: str, size: int, delta: int, epoch: int) -> None:
    """Move every batch of a segment. No checksum covers the base offset and the leader epoch."""
    at = 0
    while at < size:
        data = np.frombuffer(bytearray(stage.read(name, at, _WINDOW)), np.uint8)
        done = rebase(data, delta, epoch)
        if not 0 < done <= size - at:
            raise LogwrightError("a staged segment is not what its task wrote", path=name, offset=at)
        stage.patch(name, at, data[:done].tobytes())
        at += done


@kernel("u1[], i8, i8")
def rebase(data: Bytes, delta: int, epoch: int) -> int:
    """Add `delta` to the offset of each entry whose header is in `data`, and set the leader epoch of batches. Return the byte where the
    next header starts, which may be beyond the end; -1 for an impossible length."""
    at = 0
    while at + HEAD_UP_TO_MAGIC <= len(data):
        store_64be(data, at, load_i64be(data, at) + delta)
        if load_u8(data, at + HEAD_UP_TO_MAGIC - 1) == MAGIC:
            store_32be(data, at + LENGTH_END, epoch)
        length = load_i32be(data, at + LENGTH_END - 4)
        if length < MIN_MESSAGE - LENGTH_END:
            return -1
        at += LENGTH_END + length
    return at
