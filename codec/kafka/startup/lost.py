"""Find the undamaged records of a partition that no consumer gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.engine.startup import LostRows, lost_runs
from logwright.codec.fault import Kind
from logwright.codec.frames.walk import Stretch, walk_file
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.formats.log.heads import heads_at
from logwright.codec.kafka.formats.log.layout import CONTROL, HEAD_SIZE
from logwright.codec.kafka.names import parse_directory, parse_segment
from logwright.codec.kafka.startup.fetch import NO_RUNS, Consumed, joined
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy
from logwright.codec.store.listing import Listing, PlannedFile, Role
from logwright.codec.store.overlay import Overlay
from logwright.codec.window import Frames, Window

Offsets = Int64s


def lost(overlay: Overlay, consumed: Consumed | None, deleted: int) -> Iterator[LostRows]:
    """Return the records of good batches that a consumer does not get. Pass None as `consumed` for a partition that does not open.

    Offsets below `deleted` do not count: they were deleted by request (`DeleteRecords`) or by retention.
    """
    listing = overlay.below
    if consumed is not None and consumed.error is None and consumed.in_order and _all(overlay, consumed):
        return
    served = Consumed() if consumed is None else consumed
    place = parse_directory(listing.name)
    names = {} if place is None else {"topic": place.topic, "partition": place.partition}
    misplaced: list[_Misplaced] = []
    good = _Offsets()
    yield from lost_runs(_salvaged(listing, served, names, deleted, good, misplaced))
    if misplaced:
        yield from _lost_misplaced(listing, served, good, misplaced, names, deleted)


def _salvaged(
    listing: Listing,
    served: Consumed,
    names: Mapping[str, Any],
    deleted: int,
    good: _Offsets,
    misplaced: list[_Misplaced],
) -> Iterator[tuple[Bools, Callable[[int, int], Mapping[str, Any]]]]:
    """Salvage the records of a partition, each offset once. See `lost_runs`."""
    highest = max(deleted, 0) - 1
    unread = log.CODEC.context("", Options(log.CODEC.options), topic="", partition=0, control=False)
    for window, frames in _good(listing, misplaced):
        good.add(frames)
        context = log.CODEC.trial_context(unread)
        for decoded in log.CODEC.decode(window, frames, "rows", ("offset", "timestamp_ms"), context):
            offsets, times = (decoded.batch.column(i).to_numpy() for i in range(2))
            new = offsets > highest
            highest = max(highest, int(offsets.max(initial=-1)))
            offsets, times = offsets[new], times[new]
            yield ~served.covers(offsets), _where(offsets, times, names)


def _where(
    offsets: Offsets, times: Offsets, names: Mapping[str, Any]
) -> Callable[[int, int], Mapping[str, Any]]:
    def where(start: int, stop: int) -> Mapping[str, Any]:
        out = {**names, "first_offset": int(offsets[start]), "last_offset": int(offsets[stop - 1])}
        known = times[start:stop][times[start:stop] >= 0]
        if len(known):
            out |= {"first_timestamp": int(known.min()), "last_timestamp": int(known.max())}
        return out

    return where


@dataclass
class _Misplaced:
    """A complete batch whose base_offset does not fit the batches around it."""

    file: str
    position: int
    header: np.void
    due: int
    """The offset after the good batch before it."""
    next_first: int | None = None
    """The first offset of the good batch after it."""

    @property
    def base(self) -> int:
        return int(self.header["base_offset"])

    @property
    def last(self) -> int:
        return int(self.header["last_offset"])

    @property
    def identity(self) -> tuple[int, int]:
        return self.base, int(self.header["crc"])

    @property
    def rows(self) -> int:
        return 0 if int(self.header["attributes"]) & CONTROL else max(0, int(self.header["records_count"]))


class _Offsets:
    """The offsets of good batches, as runs `[start, stop)`."""

    def __init__(self) -> None:
        self._runs, self._new, self._waiting = NO_RUNS, list[Offsets](), 0

    def add(self, frames: Frames) -> None:
        runs = np.empty((len(frames), 2), np.int64)
        runs[:, 0], runs[:, 1] = frames.header["base_offset"], frames.header["last_offset"]
        runs[:, 1] += 1
        self._new.append(runs)
        self._waiting += len(runs)
        if self._waiting > max(len(self._runs), 1 << 16):
            self.runs()

    def runs(self) -> Offsets:
        self._runs = joined(np.concatenate([self._runs, *self._new]))
        self._new, self._waiting = [], 0
        return self._runs


def _lost_misplaced(
    listing: Listing,
    served: Consumed,
    good: _Offsets,
    misplaced: list[_Misplaced],
    names: Mapping[str, Any],
    deleted: int,
) -> Iterator[LostRows]:
    """Return the records of misplaced batches, which no consumer gets at their true offsets. Moved batches and duplicates do not count."""
    starts, stops = good.runs().T
    used = [bool(((starts <= batch.last) & (stops > batch.base)).any()) for batch in misplaced]
    copies = _copies(listing, [batch for batch, inside in zip(misplaced, used, strict=True) if inside])
    for batch, inside in zip(misplaced, used, strict=True):
        if not batch.rows or batch.identity in copies:
            continue
        moved = not inside and bool((stops == batch.base).any() or (starts == batch.last + 1).any())
        got = bool(served.covers(np.array([batch.base], np.int64))[0])
        if moved and got:
            continue
        where: dict[str, Any] = {}
        if moved:
            where = {"first_offset": batch.base, "last_offset": batch.last}
        elif batch.next_first is not None and batch.next_first - batch.due == batch.last - batch.base + 1:
            where = {"first_offset": batch.due, "last_offset": batch.next_first - 1}
        if where and where["last_offset"] < deleted:
            continue
        warning = (
            f"consumers get {batch.rows} records at offsets {batch.base} to {batch.last}, which are wrong: base_offset of the batch at "
            f"byte {batch.position} of {batch.file} does not fit the batches around it"
        )
        yield LostRows(batch.rows, {**names, **where}, warning=warning if got else "")


def _copies(listing: Listing, batches: list[_Misplaced]) -> set[tuple[int, int]]:
    """Return the identities of those batches of which a good batch is a copy."""
    identities = {batch.identity for batch in batches}
    copied: set[tuple[int, int]] = set()
    for _, frames in _good(listing, []) if identities else ():
        near = frames.header[np.isin(frames.header["base_offset"], [base for base, _ in identities])]
        copied |= identities & set(zip(near["base_offset"].tolist(), near["crc"].tolist(), strict=True))
    return copied


def _good(listing: Listing, misplaced: list[_Misplaced]) -> Iterator[tuple[Window, Frames]]:
    """Iterate over the good batches of all logs, also of `.swap` and other leftover files. Misplaced batches go to `misplaced`."""
    logs = []
    for entry in listing.entries():
        parsed = parse_segment(entry.name)
        if parsed is not None and parsed.suffix == ".log":
            logs.append((parsed.base_offset, parsed.leftover, entry.name, entry.size))
    bases = sorted({base for base, leftover, *_ in logs if not leftover})
    for base, leftover, name, size in sorted(logs):
        later = [] if leftover else [batch for batch in bases if batch > base]
        due, waiting = base, list[_Misplaced]()
        file = PlannedFile(name, size, Role.PRIMARY, hints={"base_offset": base, "next_base": None})
        for stretch in walk_file(listing, file, log.CODEC):
            if not isinstance(stretch, Stretch):
                continue
            window, frames, damage = stretch.window, stretch.frames, stretch.damage
            if len(frames):
                for batch in waiting:
                    batch.next_first = int(frames.header["base_offset"][0])
                waiting = []
                due = int(frames.header["last_offset"][-1]) + 1
                yield window, frames
            if damage is not None and damage.kind is Kind.ORDER and damage.length >= HEAD_SIZE:
                head = heads_at(window.data, np.array([frames.stop], np.int64))[0]
                waiting.append(_Misplaced(name, damage.offset, head, due))
                misplaced.append(waiting[-1])
        for batch in waiting:
            batch.next_first = min(later, default=None)


def _all(overlay: Overlay, consumed: Consumed) -> bool:
    """Return whether every log of the directory is unchanged, and consumed from its first to its last byte."""
    stretches = {stretch.file: (stretch.start, stretch.stop) for stretch in consumed.stretches}
    for entry in overlay.below.entries():
        parsed = parse_segment(entry.name)
        if parsed is None or parsed.suffix != ".log" or not entry.size:
            continue
        if entry.name not in overlay or overlay.origin(entry.name) != Copy(entry.name, 0, entry.size):
            return False
        if stretches.get(entry.name) != (0, entry.size):
            return False
    return len(stretches) == len(consumed.stretches)
