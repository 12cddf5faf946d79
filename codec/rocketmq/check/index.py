"""Compare index files with the messages of the log: their entries with the keys, and their headers with the first and last message.

A broker adds entries in log order, so messages and entries are read side by side, and memory is bounded by a block of messages. Entries of
earlier messages are not compared: a broker indexes its last messages again when it starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec import plural
from logwright.codec.arrays import Bools, Int32s, Int64s, groups
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.rocketmq.check.match_index import Entries, match
from logwright.codec.rocketmq.check.times import out_of_order
from logwright.codec.rocketmq.dispatch import Dispatches
from logwright.codec.rocketmq.formats.indexfile.layout import (
    ENTRY_TYPE,
    HEAD,
    HEADER,
    NAME,
    SIZE,
    SYSTEM,
    entry_at,
)
from logwright.codec.store.listing import Listing, PlannedFile

_STEP = 1 << 16
"""The number of entries that are read at a time."""
_MOST_SECONDS = (1 << 31) - 1
_AHEAD = 1 << 14
"""The number of entries by which the files may be ahead of the messages of a block."""
_SKIPS = "a broker skips the file if messages are searched by key and time; `logwright rebuild --what index` makes the index again"
_MISNAMED = "a broker searches and appends to index files in the order of their names, and does not find all messages by key"
_UNINDEXED = (
    "a broker does not find them by key; a killed broker leaves such gaps, and so does a deleted index file; "
    "`logwright rebuild --what index` fills them"
)


@dataclass
class _Tally:
    """The entries or messages with one kind of fault: how many, and the number and description of the first."""

    count: int = 0
    number: int = 0
    example: str = ""

    def add(self, count: int, number: int, example: str) -> None:
        if not self.count:
            self.number, self.example = number, example
        self.count += count


@dataclass
class _File:
    """An index file, the number of its entries, the physical offsets of its first and last entry, and the faults found in it."""

    name: str
    slots: int
    count: int
    head: dict[str, int]
    first: int
    last: int
    wrong: _Tally = field(default_factory=_Tally)
    late: _Tally = field(default_factory=_Tally)
    missing: _Tally = field(default_factory=_Tally)
    skipped: _Tally = field(default_factory=_Tally)
    ends: list[Fault] = field(default_factory=list)

    def faults(self) -> Iterator[Fault]:
        yield from self.ends
        absent = "is missing" if self.missing.count == 1 else "are missing"
        for tally, noun, kind, size, severity, system in (
            (self.wrong, "entry", "with a wrong physical offset or hash", SIZE, Severity.WARNING, SYSTEM),
            (self.late, "entry", "with another time than the message", SIZE, Severity.WARNING, SYSTEM),
            (self.missing, "entry", absent, 0, Severity.WARNING, SYSTEM),
            (self.skipped, "message", "without an entry", 0, Severity.INFO, _UNINDEXED),
        ):
            if tally.count:
                text = f"{plural.count(tally.count, noun)} {kind}; the first {tally.example}"
                at = entry_at(self.slots, tally.number)
                yield Fault(NAME, at, size, Kind.LINK, text, severity, system, 0)


class IndexCheck:
    """A fold over all messages, in log order. `live`: whether entries of messages after the last one are no fault, and messages after the
    last entry need none."""

    def __init__(self, listing: Listing, files: Sequence[PlannedFile], *, live: bool) -> None:
        self._listing, self._live = listing, live
        self._files = _in_log_order(
            [
                file
                for planned in sorted(files, key=lambda planned: planned.name)
                for file in self._open(planned)
            ]
        )
        self._begins = np.array([file.head["begin_timestamp"] for file in self._files], np.int64)
        """The time from which the entries of a file count seconds."""
        self._oldest = 0
        """The first file whose last entry may be in the next block."""
        self._chunks = self._read()
        self._held = self._ahead = Entries.empty()
        self._end = -1

    def _open(self, planned: PlannedFile) -> Iterator[_File]:
        """Yield an index file if it has entries."""
        slots = int(planned.hints.get("slots") or 0)
        room = (planned.size - entry_at(slots, 1)) // SIZE
        if slots <= 0 or room <= 0:
            return
        head, _ = HEADER.unpack(self._listing.read(planned.name, 0, HEAD), 0, HEAD)
        count = min(head["index_count"] - 1, room)
        file = _File(planned.name, slots, count, head, 0, 0)
        ends = [self._entries(file, n, n + 1)["physical_offset"] for n in (1, count)] if count > 0 else []
        if ends and all(map(len, ends)):  # else it is empty or became shorter
            yield replace(file, first=int(ends[0][0]), last=int(ends[1][0]))

    def _read(self) -> Iterator[Entries]:
        for i, file in enumerate(self._files):
            for start in range(1, file.count + 1, _STEP):
                stop = min(start + _STEP, file.count + 1)
                before = min(start - 1, 1)
                stored = self._entries(file, start - before, min(stop + 1, file.count + 1))
                hashes, phy = (stored[name].astype(np.int64) for name in ("key_hash", "physical_offset"))
                astray = out_of_order(phy, 0)
                entries = Entries(
                    np.full(len(phy), i), start - before + np.arange(len(phy)), hashes, phy,
                    stored["time_diff"].astype(np.int64), astray,
                )  # fmt: skip
                used = (hashes != 0) | (phy != 0) | (stored["previous"] != 0)
                yield entries.pick(slice(before, before + stop - start)).pick(
                    used[before : before + stop - start]
                )

    def _entries(self, file: _File, first: int, stop: int) -> npt.NDArray[np.void]:
        data = self._listing.read(file.name, entry_at(file.slots, first), SIZE * (stop - first))
        return np.frombuffer(data[: len(data) // SIZE * SIZE], ENTRY_TYPE)

    def add(self, added: Dispatches, sizes: Int64s) -> None:
        """Take what messages add, in log order, and their sizes, with those of blank records that follow."""
        if not self._files or not len(added.phy):
            return
        phy, ends = added.phy, added.phy + sizes
        self._end = max(self._end, int(ends.max()))
        if (np.diff(phy) < 0).any():
            return  # displaced messages
        low = int(phy[0])
        self._held = self._held.pick(_due(self._held, low))
        while len(self._held) < len(added.hashes) + _AHEAD:
            more = next(self._chunks, None)
            if more is None:
                break
            self._held = self._held.joined(more.pick(_due(more, low)))
        in_order = _in_order(added.stored)
        self._check_ends(phy, added.stored, in_order)
        entries = self._take(low, int(ends[-1]) - 1, len(added.hashes))
        for owners, hashes in _expected(added):
            if np.array_equal(entries.hash, hashes) and np.array_equal(entries.phy, phy[owners]):
                self._check_times(entries, owners, added, in_order)
                return
        covered = self._covered(phy)
        if not len(entries) and not covered.any():
            return
        matched = match(entries, added, ends, covered)
        self._note_wrong(entries, matched.wrong, matched.expected)
        right = matched.right & ~matched.wrong
        self._check_times(entries.pick(right), matched.owner[right], added, in_order)
        for file, number, count, i in self._places(entries, phy[matched.missing]):
            text = f"has key hash {matched.hashes[i]} and belongs to the message at physical offset {phy[matched.missing[i]]}"
            file.missing.add(count, number, text)
        for file, number, count, i in self._places(entries, phy[matched.skipped]):
            file.skipped.add(count, number, f"is at physical offset {phy[matched.skipped[i]]}")

    def _take(self, low: int, high: int, count: int) -> Entries:
        """Return the held entries up to the last one of the messages from `low` to `high`, which have `count` keys."""
        held = self._held.pick(slice(0, count + _AHEAD))
        inside, beyond = (held.phy >= low) & (held.phy <= high), held.phy > high
        # Split where the fewest entries are wrong: entries of later messages before it, or of these messages after it.
        balance = np.r_[0, np.cumsum(beyond.astype(np.int64) - inside)]
        stop = int(np.argmin(balance))
        self._held, entries = self._held.pick(slice(stop, None)), held.pick(slice(0, stop))
        inside = inside[:stop]
        if inside.all():
            return entries
        later = ~inside & ~entries.out_of_order & ((entries.phy > high) | (entries.phy < 0))
        self._ahead = self._ahead.joined(entries.pick(later)).pick(slice(0, _AHEAD))
        return entries.pick(inside | entries.out_of_order)

    def _covered(self, phy: Int64s) -> Bools:
        """Return which messages need entries: in a live store those before the last entry."""
        if not self._live:
            return np.ones(len(phy), np.bool_)
        last = self._files[-1]
        return phy < min(last.last, last.head["end_physical_offset"])

    def _places(self, entries: Entries, phy: Int64s) -> Iterator[tuple[_File, int, int, int]]:
        """Yield the files to which messages belong: the file, the number of the entry before which the first one belongs, the number of
        messages, and the index of the first."""
        done, newest = -1, len(self._files) - 1
        for i in range(min(self._oldest, newest), newest + 1 if len(phy) else 0):
            file = self._files[i]
            inside = np.flatnonzero((phy > done) & ((phy <= file.last) | (i == newest)))
            if len(inside):
                first = int(inside[0])
                after = (entries.file == i) & ~entries.out_of_order & (entries.phy > phy[first])
                end = file.count + 1 if phy[first] > file.last else 1
                number = int(entries.number[np.argmax(after)]) if after.any() else end
                yield file, number, len(inside), first
            done = max(done, file.last)

    def _check_ends(self, phy: Int64s, stored: Int64s, in_order: Bools) -> None:
        """Compare the times in the headers with those of the first and the last message of a file."""
        while self._oldest < len(self._files) and self._files[self._oldest].last < phy[0]:
            self._oldest += 1
        for i in range(self._oldest, len(self._files)):
            file = self._files[i]
            for end, which, at in (("begin", "first", file.first), ("end", "last", file.last)):
                k = int(np.searchsorted(phy, at))
                known = k < len(phy) and phy[k] == at == file.head[f"{end}_physical_offset"]
                if not (known and in_order[k]):
                    continue
                if end == "begin":
                    self._begins[i] = stored[k]
                name = f"{end}_timestamp"
                if file.head[name] != stored[k]:
                    value = file.head[name]
                    text = f"{name} is {value}, but the message of the {which} entry has {stored[k]}"
                    place = HEADER.offset(name)
                    file.ends.append(Fault(NAME, place, 8, Kind.LINK, text, Severity.WARNING, _SKIPS, 0))

    def _check_times(
        self,
        entries: Entries,
        owners: npt.NDArray[np.integer[Any]],
        added: Dispatches,
        in_order: Bools,
    ) -> None:
        """Compare the times of entries with those of their messages, if these are in order."""
        seconds = _seconds(added.stored[owners] - self._begins[entries.file])
        wrong = (entries.seconds != seconds) & in_order[owners]
        for i in np.flatnonzero(entries.number == 1).tolist():
            file = int(entries.file[i])
            before = self._before(file, int(owners[i]), added)
            if before is not None:
                seconds[i] = _seconds(np.array(added.stored[owners[i]] - before))
            wrong[i] &= before is not None and entries.seconds[i] not in (0, seconds[i])
        for file, i, count in _by_file(entries, wrong):
            text = f"is entry {entries.number[i]} (time_diff {entries.seconds[i]}, expected {seconds[i]})"
            self._files[file].late.add(count, int(entries.number[i]), text)

    def _before(self, file: int, message: int, added: Dispatches) -> int | None:
        """Return the time from which the first entry of a file counts: that of the last message in the file before, if no other key is between
        them, or its own time if it has the first key of the log. None: unknown."""
        if file:
            last = self._files[file - 1].last
            before = int(np.searchsorted(added.phy, last))
            known = before <= message and added.phy[before] == last
        else:
            before, known = -1, added.phy[0] == 0
        if not known or np.searchsorted(added.owners, before, "right") < np.searchsorted(
            added.owners, message
        ):
            return None
        return int(added.stored[before if file else message])

    def _note_wrong(self, entries: Entries, wrong: Bools, expected: Mapping[int, tuple[str, int]]) -> None:
        """Take wrong entries, and the fields and values that are expected of some."""
        for file, i, count in _by_file(entries, wrong):
            name, value = expected.get(i, ("", 0))
            text = f"is entry {entries.number[i]} (physical offset {entries.phy[i]})"
            if name:
                own = entries.hash[i] if name == "key_hash" else entries.phy[i]
                text = f"is entry {entries.number[i]} ({name} {own}, expected {value})"
            self._files[file].wrong.add(count, int(entries.number[i]), text)

    def finish(self) -> Iterator[tuple[str, Fault]]:
        if self._end >= 0 and not self._live:
            for entries in (self._ahead, self._held, *self._chunks):
                wrong = entries.out_of_order | (entries.phy >= self._end) | (entries.phy < 0)
                self._note_wrong(entries, wrong, {})
        for file in self._files:
            for fault in file.faults():
                yield file.name, fault


def _in_log_order(files: list[_File]) -> list[_File]:
    """Return index files, which are in the order of their names, in the order of their entries. Add the faults of those with wrong names.

    A first entry that the header contradicts does not say where its file belongs.
    """
    known = [file for file in files if file.first == file.head["begin_physical_offset"]]
    for before, file in pairwise(known):
        if file.first < before.first:
            text = f"the entries begin at physical offset {file.first}, those of {before.name} at {before.first}: files were renamed"
            file.ends.append(Fault(NAME, 0, 0, Kind.ORDER, text, Severity.WARNING, _MISNAMED))
    places, place = {}, 0
    for file in files:
        place = places[file.name] = file.first if file in known else place
    return sorted(files, key=lambda file: places[file.name])


def _by_file(entries: Entries, chosen: Bools) -> Iterator[tuple[int, int, int]]:
    """Yield each file with chosen entries, the index of the first one, and their number."""
    index = np.flatnonzero(chosen)
    for file, own in groups(entries.file[index]):
        yield file, int(index[own[0]]), len(own)


def _expected(added: Dispatches) -> Iterator[tuple[Int32s, Int32s]]:
    """Yield the owners and hashes of all keys, then those without tags, as releases before 5.4.0 have them."""
    yield added.owners, added.hashes
    keys = ~added.are_tags
    yield added.owners[keys], added.hashes[keys]


def _seconds(milliseconds: Int64s) -> Int64s:
    """Return a `time_diff`."""
    out: Int64s = np.clip(milliseconds // 1000, 0, _MOST_SECONDS)
    return out


def _due(entries: Entries, low: int) -> Bools:
    """Return which entries are not of messages before a physical offset. A broker keeps an index file of which some messages are deleted."""
    due: Bools = entries.out_of_order | (entries.phy < 0) | (entries.phy >= low)
    return due


def _in_order(stored: Int64s) -> Bools:
    """Return which store times are in order with those of the messages before and after."""
    out = ~out_of_order(stored, 0)
    out[[0, -1]] = [
        stored[0] <= stored[min(1, len(stored) - 1)],
        stored[max(len(stored) - 2, 0)] <= stored[-1],
    ]
    return out
