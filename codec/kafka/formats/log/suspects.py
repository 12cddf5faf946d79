"""The bits of a damaged batch that may be flipped, and what proves the fields that no checksum covers, base_offset and leader epoch: the
batches around it, the index, and the sequence numbers of its producer.

If they only do not contradict these fields, the rest of the batch is proved all the same, by its checksum.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.base import ProvedPart
from logwright.codec.frames import suspects as frame_suspects
from logwright.codec.kafka.formats.log.heads import SPECIFICATION
from logwright.codec.kafka.formats.log.layout import COMPRESSION, LENGTH_END, MAGIC, MESSAGE, RECORD_BATCH
from logwright.codec.kafka.formats.log.tables import LogContext
from logwright.codec.kernels.bitflip import Flip
from logwright.codec.kernels.intrinsics import load_i64be
from logwright.codec.window import Around, Frames, Window

_LAST_SEQUENCE = (1 << 31) - 1
_LENGTH, _MAGIC = RECORD_BATCH.offset("batch_length"), RECORD_BATCH.offset("magic")
_CRC = MESSAGE.offset("crc")
"""Of a message of magic 0 or 1."""


def suspects(window: Window, at: int, limit: int, around: Around) -> Iterator[Flip]:
    """Yield the bits that may be flipped in the batch at `window.data[at]`, except those that `proved` and `part_proved` never accept.
    See `Codec.suspects`."""
    before, after = around
    low = None if before is None else int(before.header["last_offset"][-1])
    high = None if after is None else int(after.header["base_offset"][0])
    begins, ends = not window.offset + at, window.offset + limit == window.size
    if low is None and high is None and not (begins or ends):
        return
    known = begins if low is None else high is not None or ends
    # Without a batch after it, only the offset that directly continues the batches before it is certain.
    wrong = (
        load_i64be(window.data, at) ^ low + 1 if low is not None and len(window.data) - at >= _LENGTH else 0
    )
    for flip in frame_suspects.suspects(SPECIFICATION, window, at, limit, (low, high)):
        if (
            known
            or flip.place >= at + _LENGTH
            or wrong == 1 << 8 * (at + _LENGTH - 1 - flip.place) + flip.bit
        ):
            yield flip


def proved(
    window: Window, frame: Frames, around: Around, flip: tuple[int, int] | None, context: LogContext
) -> bool:
    """Return whether base_offset and leader epoch fit between the batches around it, and would not with one more bit flipped."""
    before, after = around
    head, at = frame.header[0], int(frame.start[0])
    base, next_first = int(head["base_offset"]), int(head["last_offset"]) + 1
    low, high = _offsets_around(window, frame, around, context)
    moved = flip is not None and flip[0] < at + _LENGTH
    if moved and before is None and (window.offset + at or after is None):
        # Only the file's name shows the offset, or nothing does: the name may be what is wrong.
        return False
    if high is None and moved and window.offset + int(frame.end[0]) < window.size:
        # The next batch is damaged. Its offset may be what is wrong: a compacted log has gaps.
        return False
    if high is None and (before is None or not _is_anchored(before, context.base_offset)):
        return False
    if head["magic"] < MAGIC and int(head["attributes"]) & COMPRESSION and next_first != high:
        # The offset of a message that wraps others is that of its last one: nothing but the next message shows it.
        return False
    highest = None if high is None else high - next_first + base
    # With one end unknown, only the next offset is certain.
    low, highest = highest if low is None else low, low if highest is None else highest
    if low is not None and highest is not None:
        low = max([low, *_by_sequence(head, before, 1)])
        highest = min([highest, *_by_sequence(head, after, -1)])
        if low < highest and _indexed(window, frame, context) == next_first - 1 and low <= base <= highest:
            low = highest = base
    epoch, (first, last) = int(head["partition_leader_epoch"]), _epochs_around(around)
    return _is_certain(base, low, highest, 64) and _is_certain(epoch, first, last, 32)


def part_proved(
    window: Window, frame: Frames, around: Around, flip: tuple[int, int] | None, context: LogContext
) -> ProvedPart | None:
    """Return the part of a batch that its checksum proves, if nothing contradicts base_offset and leader epoch."""
    before, after = around
    head, at, end = frame.header[0], int(frame.start[0]), int(frame.end[0])
    base, next_first = int(head["base_offset"]), int(head["last_offset"]) + 1
    low, high = _offsets_around(window, frame, around, context)
    lows = [*([] if low is None else [low]), *_by_sequence(head, before, 1)]
    highs = [*([] if high is None else [high - next_first + base]), *_by_sequence(head, after, -1)]
    epoch, (first, last) = int(head["partition_leader_epoch"]), _epochs_around(around)
    fits = (
        max(lows, default=base) <= base <= min(highs, default=base)
        and (first is None or last is None or first <= epoch <= last)
        and _indexed(window, frame, context) in (None, next_first - 1)
    )
    # A wrong offset may be why the batch before it is regarded as damaged.
    begins = before is not None or window.offset + at == 0
    if flip is None or not (fits and begins):
        return None
    if head["magic"] == MAGIC:
        start, name, proofs = _MAGIC, "what follows the leader epoch", ("CRC-32C", "its rows")
    else:
        start, name, proofs = _CRC, "what follows the length", ("CRC-32", "its rows")
    if at + start <= flip[0] < end:
        return ProvedPart(at + start, end, name, proofs)
    if at + _LENGTH <= flip[0] < at + LENGTH_END:
        return ProvedPart(at + _LENGTH, at + LENGTH_END, "the length", proofs)
    return None


def _offsets_around(
    window: Window, frame: Frames, around: Around, context: LogContext
) -> tuple[int | None, int | None]:
    """Return the first offset after the batches before this one, and that of the batch after it; None if unknown."""
    low = context.base_offset if window.offset + int(frame.start[0]) == 0 else None
    high = context.next_base if window.offset + int(frame.end[0]) == window.size else None
    if around.before is not None:
        low = int(around.before.header["last_offset"][-1]) + 1
    if around.after is not None:
        high = int(around.after.header["base_offset"][0])
    return low, high


def _epochs_around(around: Around) -> tuple[int | None, int | None]:
    """Return the leader epochs of the batches before and after this one, twice the same if there is only one of them."""
    known = [
        int(near.header["partition_leader_epoch"][i])
        for near, i in zip(around, (-1, 0), strict=True)
        if near is not None
    ]
    return (known[0], known[-1]) if known else (None, None)


def _indexed(window: Window, frame: Frames, context: LogContext) -> int | None:
    """Return the last offset of the batch by the index; None if that has none."""
    if context.indexes is None:
        return None
    return context.indexes.at(window.offset + int(frame.start[0]))


def _is_certain(value: int, low: int | None, high: int | None, bits: int) -> bool:
    """Return whether a number is in the range `[low, high]`, and no number that differs from it in one bit is."""
    if low is None or high is None:
        return False
    if low == high:
        return value == low
    return low <= value <= high and not any(low <= value ^ 1 << bit <= high for bit in range(bits))


def odd_epochs(header: npt.NDArray[Any]) -> list[tuple[int, str]]:
    """Return batches with another leader epoch than the batches around them: epochs never decrease."""
    epochs = header["partition_leader_epoch"]
    if len(epochs) < 4 or (epochs == epochs[0]).all():
        return []
    epochs = epochs.astype(np.int64)
    change = (epochs[1:-1] ^ epochs[:-2]) & 0xFFFFFFFF
    odd = (epochs[:-2] == epochs[2:]) & (change != 0) & (change & change - 1 == 0)
    # A third batch of the same epoch: two flipped bits do not look like one.
    odd[1:-1] &= (epochs[:-4] == epochs[1:-3]) | (epochs[3:-1] == epochs[4:])
    odd[:1] &= epochs[2] == epochs[3]
    odd[-1:] &= epochs[-4] == epochs[-3]
    return [
        (i, f"leader epoch {epochs[i]} between batches of epoch {epochs[i - 1]}")
        for i in (np.flatnonzero(odd) + 1).tolist()
    ]


def odd_offsets(header: npt.NDArray[Any]) -> list[tuple[int, str]]:
    """Return batches with another offset than that which their producer's sequence numbers give, if the batches before and after are
    of this producer and all records between these two are too."""
    producer = header["producer_id"]
    if len(producer) < 3 or not (producer >= 0).any():
        return []
    base, sequence = header["base_offset"].astype(np.int64), header["base_sequence"].astype(np.int64)
    same = (producer[1:] == producer[:-1]) & (header["producer_epoch"][1:] == header["producer_epoch"][:-1])
    same &= (producer[1:] >= 0) & (sequence[1:] >= 0) & (sequence[:-1] >= 0)
    step = np.diff(sequence) & _LAST_SEQUENCE
    due = base[:-2] + step[:-1]
    change = base[1:-1] ^ due
    odd = same[:-1] & same[1:] & (due + step[1:] == base[2:]) & (change != 0) & (change & change - 1 == 0)
    return [
        (i, f"base offset {base[i]}, but by the sequence numbers of its producer it is {due[i - 1]}")
        for i in (np.flatnonzero(odd) + 1).tolist()
    ]


def _by_sequence(head: Any, near: Frames | None, sign: int) -> list[int]:
    """Return limits of the first offset of a batch from the sequence numbers of its producer in batches before it (`sign` 1) or after it
    (-1), from the farthest on.

    Each record of a producer has the next sequence number, so the offset grows at least as much, also where batches in between
    were compacted away. Sequence numbers wrap around at 31 bits. Source: `ProducerAppendInfo.checkSequence`.
    """
    if near is None or head["producer_id"] < 0 or head["base_sequence"] < 0:
        return []
    return [
        int(other["base_offset"])
        + sign * (sign * (int(head["base_sequence"]) - int(other["base_sequence"])) & _LAST_SEQUENCE)
        for other in near.header
        if other["producer_id"] == head["producer_id"]
        and other["producer_epoch"] == head["producer_epoch"]
        and other["base_sequence"] >= 0
    ]


def _is_anchored(before: Frames, base_offset: int | None) -> bool:
    """Return whether the last batches before damage prove the next offset: they follow each other, from the offset of the file's name on,
    or there are three of them, more than two flipped bits could have moved."""
    bases, lasts = before.header["base_offset"], before.header["last_offset"]
    follow = 1
    while follow < len(before) and bases[-follow] == lasts[-follow - 1] + 1:
        follow += 1
    return follow > 2 or int(bases[-follow]) == base_offset
