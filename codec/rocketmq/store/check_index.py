"""Compare the entries of index files with the keys of messages.

A broker adds entries in log order, so messages and entries are read side by side, and memory is bounded by a block of messages. Entries of
earlier messages are not compared: a broker indexes its last messages again when it starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec import plural
from logwright.codec.describe import dtype_of
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.rocketmq.dispatch import Dispatches
from logwright.codec.rocketmq.formats.indexfile import ENTRY, HEAD, HEADER, NAME, SIZE, SYSTEM, entry_at
from logwright.codec.rocketmq.store.check_times import out_of_order
from logwright.codec.store.listing import Listing, PlannedFile

Int64s = npt.NDArray[np.int64]
_ENTRY = dtype_of(ENTRY)
_STEP = 1 << 16
"""The number of entries that are read at a time."""
_MOST_SECONDS = (1 << 31) - 1
_AHEAD = 1 << 14
"""The number of entries by which the files may be ahead of the messages of a block."""


@dataclass
class _Entries:
    """Entries in the order of the files: the index of the file, the number of the entry, its hash, physical offset and time."""

    file: Int64s
    number: Int64s
    hash: Int64s
    phy: Int64s
    seconds: Int64s

    def __len__(self) -> int:
        return len(self.phy)

    def pick(self, index: slice | npt.NDArray[np.bool_]) -> _Entries:
        return _Entries(*(values[index] for values in vars(self).values()))

    def joined(self, other: _Entries) -> _Entries:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return _Entries(*(np.concatenate(pair) for pair in pairs))


@dataclass
class _Wrong:
    """The wrong entries of a file: how many, and the number and physical offset of the first."""

    count: int
    number: int
    phy: int


class IndexCheck:
    """A fold over all messages, in log order. `live`: whether entries of messages after the last one are no fault."""

    def __init__(self, listing: Listing, files: Sequence[PlannedFile], *, live: bool) -> None:
        self._listing, self._files, self._live = listing, sorted(files, key=lambda file: file.name), live
        self._chunks = self._read()
        self._held = self._ahead = _Entries(*(np.empty(0, np.int64) for _ in range(5)))
        self._wrong: dict[int, _Wrong] = {}
        self._late: dict[int, _Wrong] = {}
        """Entries with a wrong time."""
        self._begins = np.zeros(len(files), np.int64)
        """The time from which the entries of a file count seconds."""
        self._end = -1

    def _read(self) -> Iterator[_Entries]:
        for i, file in enumerate(self._files):
            slots = int(file.hints.get("slots") or 0)
            room = (file.size - entry_at(slots, 1)) // SIZE
            if slots <= 0 or room <= 0:
                continue
            head, _ = HEADER.unpack(self._listing.read(file.name, 0, HEAD), 0, HEAD)
            count = min(head["index_count"] - 1, room)
            self._begins[i] = head["begin_timestamp"]
            for first in range(1, count + 1, _STEP):
                number = np.arange(first, min(first + _STEP, count + 1))
                data = self._listing.read(file.name, entry_at(slots, first), SIZE * len(number))
                stored = np.frombuffer(data[: len(data) // SIZE * SIZE], _ENTRY)
                number = number[: len(stored)]
                hashes, phy = (stored[name].astype(np.int64) for name in ("key_hash", "physical_offset"))
                entries = _Entries(
                    np.full(len(number), i), number, hashes, phy, stored["time_diff"].astype(np.int64)
                )
                yield entries.pick((hashes != 0) | (phy != 0) | (stored["previous"] != 0))

    def add(self, added: Dispatches, sizes: Int64s) -> None:
        """Take what messages add, in log order, and their sizes."""
        if not self._files or not len(added.phy):
            return
        phy, ends = added.phy, added.phy + sizes
        self._end = max(self._end, int(ends.max()))
        if (np.diff(phy) < 0).any():
            return  # displaced messages
        while len(self._held) < len(added.hashes) + _AHEAD:
            more = next(self._chunks, None)
            if more is None:
                break
            self._held = self._held.joined(more)
        held = self._held
        inside = (held.phy >= phy[0]) & (held.phy <= phy[-1])
        if not inside.any():
            return
        stop = int(np.flatnonzero(inside)[-1]) + 1
        self._held, entries, inside = held.pick(slice(stop, None)), held.pick(slice(0, stop)), inside[:stop]
        self._ahead = self._ahead.joined(entries.pick((entries.phy > phy[-1]) | (entries.phy < 0)))
        self._ahead = self._ahead.pick(slice(0, _AHEAD))
        entries = entries if inside.all() else entries.pick(inside)
        if np.array_equal(entries.hash, added.hashes) and np.array_equal(entries.phy, phy[added.owners]):
            self._check_times(entries, added.owners, added.stored)
            return
        owner = np.searchsorted(phy, entries.phy, "right") - 1
        expected = np.sort(added.owners.astype(np.int64) << 32 | added.hashes.astype(np.int64))
        right = (phy[owner] == entries.phy) & np.isin(owner << 32 | entries.hash, expected)
        # Entries between two messages are those of lost ones.
        self._note(entries.pick((entries.phy < ends[owner]) & ~right), self._wrong)
        self._check_times(entries.pick(right), owner[right], added.stored)

    def _check_times(self, entries: _Entries, owners: npt.NDArray[np.integer[Any]], stored: Int64s) -> None:
        """Compare the times of entries with those of their messages, if these are in order. The first entry of a file counts from the file
        before."""
        inner = np.zeros(len(stored), np.bool_)
        inner[1:-1] = ~out_of_order(stored, 0)[1:-1]
        seconds = np.maximum(stored[owners] - self._begins[entries.file], 0) // 1000
        wrong = (entries.seconds != np.minimum(seconds, _MOST_SECONDS)) & (entries.number > 1) & inner[owners]
        self._note(entries.pick(wrong), self._late)

    def _note(self, wrong: _Entries, by_file: dict[int, _Wrong]) -> None:
        for i in np.unique(wrong.file).tolist():
            first = int(np.argmax(wrong.file == i))
            new = _Wrong(int((wrong.file == i).sum()), int(wrong.number[first]), int(wrong.phy[first]))
            known = by_file.setdefault(i, new)
            if known is not new:
                known.count += new.count

    def finish(self) -> Iterator[tuple[str, Fault]]:
        if self._end >= 0 and not self._live:
            for entries in (self._ahead, self._held, *self._chunks):
                self._note(entries.pick((entries.phy >= self._end) | (entries.phy < 0)), self._wrong)
        kinds = [(i, wrong, "without a message that has the key") for i, wrong in sorted(self._wrong.items())]
        kinds += [(i, wrong, "with another time than the message") for i, wrong in sorted(self._late.items())]
        for i, wrong, why in kinds:
            file, count = self._files[i], plural.count(wrong.count, "entry")
            text = f"{count} {why}; the first is entry {wrong.number} (physical offset {wrong.phy})"
            at = entry_at(int(file.hints["slots"]), wrong.number)
            yield file.name, Fault(NAME, at, SIZE, Kind.LINK, text, Severity.WARNING, SYSTEM, 0)
