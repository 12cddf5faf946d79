"""Build the ACL table of a new snapshot from the ACLs of rows, encoded in jute.

Many rows often have the same list, which is encoded once. Source: `ReferenceCountedACLCache` of ZooKeeper.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.columns import numbers
from logwright.codec.kernels.kernel import kernel
from logwright.codec.zookeeper.formats.snapshot.acl import OPEN, AclTable, packed, packed_list, table_bytes
from logwright.codec.zookeeper.formats.snapshot.layout import OPEN_ACL
from logwright.codec.zookeeper.jute import Strings, raw_lists
from logwright.codec.zookeeper.state.paths import shared

_FEW = 1 << 22
_BLOCK = 1 << 16
"""Rows whose lists are encoded at a time."""
_KEEP = np.iinfo(np.int64).min
"""A value that is not the number of any list."""


# Runs of rows that have the same list


@kernel("Strings, i8[], i8[]")
def runs(strings: Strings, out: Int64s, first: Int64s) -> int:
    """Put the run number of each value in `out`: a run holds consecutive values that are equal or null. Put the first value of each run
    in the other array. Return the number of runs."""
    data, ends, valid = strings.data, strings.ends, strings.valid
    run = -1
    for i in range(len(out)):
        two = ends[i]
        size = ends[i + 1] - two
        if (
            i == 0
            or valid[i] != valid[i - 1]
            or (valid[i] and (two - ends[i - 1] != size or shared(data, ends[i - 1], two, size) < size))
        ):
            run += 1
            first[run] = i
        out[i] = run
    return run + 1


class Coded(NamedTuple):
    """The lists of rows: for each row the index of its list in `lists`, -1 for null. `lists` are encoded and in order of first
    occurrence."""

    codes: Int64s
    lists: list[bytes]

    def take(self, order: Int64s) -> Coded:
        """Return the lists of the rows in another order."""
        codes = self.codes[order]
        first = np.full(len(self.lists) + 1, len(codes))
        first[codes[::-1]] = np.arange(len(codes))[::-1]
        come_up = np.argsort(first[:-1], kind="stable")
        ranks = np.empty(len(self.lists) + 1, np.int64)
        ranks[come_up], ranks[-1] = np.arange(len(self.lists)), -1
        return Coded(ranks[codes], [self.lists[i] for i in come_up.tolist()])


def coded(lists: pa.Array) -> Coded:
    """Return the lists of a binary column of encoded lists."""
    numbered, first = np.empty(len(lists), np.int64), np.empty(len(lists), np.int64)
    count = runs(Strings.of(lists), numbered, first)
    each = lists.take(numbers(pa.int64(), first[:count])).dictionary_encode()
    codes = np.asarray(each.indices.fill_null(-1)).astype(np.int64)
    return Coded(codes[numbered], each.dictionary.to_pylist())


def coded_lists(lists: pa.ChunkedArray) -> Coded:
    """Return the lists of a column of type `ACL_TYPE`."""
    out: Int64s = np.empty(len(lists), np.int64)
    known: dict[bytes, int] = {}
    at = 0
    for piece in lists.chunks:
        for first in range(0, len(piece), _BLOCK):
            block = piece.slice(first, _BLOCK)
            # Usually all rows of a block have the same list.
            same = block.slice(1).equals(block.slice(0, len(block) - 1))
            codes, contents = coded(packed(raw_lists(block.slice(0, 1) if same else block, None)))
            places = np.array(
                [*(known.setdefault(content, len(known)) for content in contents), -1], np.int64
            )
            out[at : at + len(block)] = places[codes]
            at += len(block)
    return Coded(out, list(known))


def _few(values: Int64s) -> tuple[Int64s, Int64s]:
    """`np.unique` with its inverse, for small numbers, without sorting."""
    there = np.zeros(int(values.max(initial=0)) + 1, np.bool_)
    there[values] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[values]


# The table


class AclLists:
    """The ACL table of a new snapshot: the lists of the old file, and new ones from rows."""

    def __init__(self, table: AclTable | None) -> None:
        self.given = table or AclTable.empty()
        self.ids: list[int] = self.given.ids.tolist()
        self.lists: list[bytes] = packed(self.given.lists).to_pylist()
        ordered = self.given.raw.slice(0, len(self.given.known_ids))
        self._by_list: dict[bytes, int] = {}
        for number, content in zip(self.given.known_ids.tolist(), packed(ordered).to_pylist(), strict=True):
            self._by_list.setdefault(content, number)
        self.open = packed_list(OPEN)
        self.added = False
        self._next = max([0, *self.ids]) + 1

    def number(self, content: bytes) -> int:
        """Return the number of a list. A new list gets a new number."""
        if content == self.open:
            return OPEN_ACL
        number = self._by_list.get(content)
        if number is None:
            number = self._next
            self._next += 1
            self._by_list[content] = number
            self.ids.append(number)
            self.lists.append(content)
            self.added = True
        return number

    def numbers(self, coded: Coded, own_numbers: Int64s | None = None, has: Bools | None = None) -> Int64s:
        """Return the ACL number of each row.

        The number in the row (`own_numbers`, where the row `has` one) is used if that number stands for the row's list, or if the row has
        no list. A row without list and number gets -1.
        """
        codes, lists = coded
        if own_numbers is None or has is None or not has.any():
            numbered = [*(self.number(content) for content in lists), OPEN_ACL]
            if len(set(numbered)) == 1:
                return np.full(len(codes), numbered[0], np.int64)
            return np.array(numbered, np.int64)[codes]
        out = np.where(has, own_numbers, OPEN_ACL)
        if not lists:
            return out
        # Compare with the stored list, and with what its text would be encoded to.
        raw = packed(self.given.raw).to_pylist()
        text = packed(raw_lists(self.given.text[0], None)).to_pylist()
        places = np.where(has, self.given.places(own_numbers), -1)
        # One number per combination of the row's list (in order of first occurrence) and the list that its number stands for.
        width = len(raw) + 1
        both = (codes + 1) * width + places + 1
        pairs, which = np.unique(both, return_inverse=True) if len(lists) * width > _FEW else _few(both)
        numbers_of_pairs = np.full(len(pairs), _KEEP)
        for k, pair in enumerate(pairs.tolist()):
            code, place = pair // width - 1, pair % width - 1
            if code >= 0 and not (place >= 0 and lists[code] in (raw[place], text[place])):
                numbers_of_pairs[k] = self.number(lists[code])
        chosen = numbers_of_pairs[which]
        return np.where(chosen == _KEEP, out, chosen)

    def table(self) -> bytes:
        return table_bytes(self.ids, self.lists)
