"""Match the entries of an index with the keys of the messages of a block.

A broker appends the entries of each message in log order, those of one message in the order of its keys. Histories differ: when it starts, a
broker indexes the last message of a full file again, or skips messages; releases before 5.4.0 do not index tags; and the index can be switched
off. So an entry is wrong only if its message does not have the key, or if another message lacks it at that place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.rocketmq.dispatch import Dispatches

_MASK = (1 << 32) - 1
_MOST_SUSPECTS = 1000
"""Limit of the entries of a block whose message is searched."""


@dataclass
class Entries:
    """Entries in the order of the files: the index of the file, the number of the entry, its hash, physical offset and time; and whether
    it is `out_of_order`: its physical offset is below or above those of both neighbours, which are in order."""

    file: Int64s
    number: Int64s
    hash: Int64s
    phy: Int64s
    seconds: Int64s
    out_of_order: Bools

    def __len__(self) -> int:
        return len(self.phy)

    def pick(self, index: slice | Bools) -> Entries:
        if isinstance(index, np.ndarray) and index.all():
            return self
        return Entries(*(values[index] for values in vars(self).values()))

    def joined(self, other: Entries) -> Entries:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Entries(*(np.concatenate(pair) for pair in pairs))

    @classmethod
    def empty(cls) -> Entries:
        none = np.empty(0, np.int64)
        return cls(none, none, none, none, none, np.empty(0, np.bool_))


@dataclass
class Match:
    """How entries match the keys of messages. For each entry: the index of its message, whether it has a key of the message, and whether it is
    wrong. `expected` has the field and value of wrong entries, as far as they are known, by index.

    `missing` are messages of which an entry is missing before one that is there, `hashes` those of its key; `skipped` are other messages that
    lack entries.
    """

    owner: Int64s
    right: Bools
    wrong: Bools
    expected: dict[int, tuple[str, int]]
    missing: Int64s
    hashes: Int64s
    skipped: Int64s


class _Keys:
    """The keys of the messages of a block, each with the number of entries that it `needs` and that it `has`, and its `first` place among the
    keys in log order."""

    def __init__(self, added: Dispatches, covered: Bools) -> None:
        pairs = added.owners.astype(np.int64) << 32 | added.hashes
        self.pairs, self.first, self.needs = np.unique(pairs, return_index=True, return_counts=True)
        self.message, self.hash = self.pairs >> 32, self.pairs & _MASK
        self.has = np.zeros(len(self.pairs), np.int64)
        self._covered, self._tag = covered[self.message], added.are_tags[self.first]

    def place(self, message: Int64s, hashes: Int64s) -> tuple[Int64s, Bools]:
        """Return the indices of keys, and which there are."""
        pairs = message << 32 | hashes & _MASK
        index = np.searchsorted(self.pairs, pairs)
        return index, np.r_[self.pairs, -1][index] == pairs

    @property
    def lacking(self) -> Bools:
        out: Bools = self._covered & (self.has < self.needs)
        return out

    def lost(self) -> tuple[Bools, Bools]:
        """Return which keys have no entry though a later key of their message has one, and which others have none."""
        lost = self._covered & (self.has == 0) & ~self._tag
        last = np.full(int(self.message.max(initial=-1)) + 1, -1)
        np.maximum.at(last, self.message[self.has > 0], self.first[self.has > 0])
        missing = lost & (self.first < last[self.message])
        return missing, lost & ~missing


def match(entries: Entries, added: Dispatches, ends: Int64s, covered: Bools) -> Match:
    """Match entries with messages that end at `ends`, with the blank record that follows. Keys of messages that are not `covered` need no
    entry."""
    keys = _Keys(added, covered)
    owner = np.searchsorted(added.phy, entries.phy, "right") - 1
    inside = (owner >= 0) & (entries.phy < ends[-1])
    known = inside & (added.phy[owner] == entries.phy)
    place, right = keys.place(owner, entries.hash)
    right &= known
    taken = right & ~entries.out_of_order
    np.add.at(keys.has, place[taken], 1)
    for i in np.flatnonzero(right & entries.out_of_order).tolist():
        if keys.has[place[i]] < keys.needs[place[i]]:
            keys.has[place[i]] += 1
            taken[i] = True
    # Entries between two messages are those of lost ones.
    between = inside & ~right & (entries.phy >= ends[owner])
    wrong = (entries.out_of_order & ~taken) | (inside & ~right & ~between)
    expected: dict[int, tuple[str, int]] = {}
    placed = np.flatnonzero(taken)
    surplus = taken.copy()
    surplus[placed] = keys.has[place[placed]] > keys.needs[place[placed]]
    suspects = np.flatnonzero(wrong | between | surplus)
    lacking = keys.lacking
    near = np.isin(entries.hash[suspects], keys.hash[lacking]) | np.isin(
        owner[suspects], keys.message[lacking]
    )
    for i in suspects[near][:_MOST_SUSPECTS].tolist():
        if surplus[i] and keys.has[place[i]] <= keys.needs[place[i]]:
            continue
        before, after = int(np.searchsorted(placed, i)), int(np.searchsorted(placed, i, "right"))
        low = owner[placed[before - 1]] if before else -1
        high = owner[placed[after]] if after < len(placed) else len(added.phy)
        there = (keys.message >= low) & (keys.message <= high) & (keys.hash == entries.hash[i] & _MASK)
        own = (keys.message == owner[i]) & bool(known[i] and not right[i])
        for field, of in (("physical_offset", there), ("key_hash", own)):
            possible = np.flatnonzero(of & keys.lacking)
            if len(possible):
                k = int(possible[0])
                value = added.phy[keys.message[k]] if field == "physical_offset" else keys.hash[k]
                expected[i], wrong[i] = (field, int(value)), True
                keys.has[k] += 1
                if surplus[i]:
                    keys.has[place[i]] -= 1
                break
    missing, skipped = keys.lost()
    return Match(
        owner,
        right,
        wrong,
        expected,
        keys.message[missing],
        keys.hash[missing],
        np.unique(keys.message[skipped]),
    )
