"""Build the ACL table of a new snapshot from the ACLs of rows, encoded in jute.

Many rows often have the same list, so lists are compared before they are encoded. Source: `ReferenceCountedACLCache` of ZooKeeper.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.columns import numbers
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.formats.snapshot.acl import (
    OPEN,
    AclTable,
    packed,
    packed_list,
    table_bytes,
)
from logwright.codec.zookeeper.formats.snapshot.layout import OPEN_ACL, Int32s
from logwright.codec.zookeeper.jute import Int64s, Strings, raw_lists, validity
from logwright.codec.zookeeper.state.paths import same

_FEW = 1 << 22
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
            or (valid[i] and (two - ends[i - 1] != size or not same(data, ends[i - 1], two, size)))
        ):
            run += 1
            first[run] = i
        out[i] = run
    return run + 1


@kernel("const i4[], const u1[], const i4[], Strings, Strings, i8[], i8[]")
def list_runs(
    ends: Int32s, valid: Bytes, perms: Int32s, schemes: Strings, names: Strings, out: Int64s, first: Int64s
) -> int:
    """As above for lists of ACLs, in whose entries nothing is null."""
    scheme_ends, name_ends = schemes.ends, names.ends
    run = -1
    for i in range(len(out)):
        repeated = i > 0 and valid[i] == valid[i - 1]
        if repeated and valid[i]:
            previous = ends[i - 1]
            two = ends[i]
            end = ends[i + 1]
            repeated = two - previous == end - two
            for k in range(two, end):
                if not repeated:
                    break
                before = k - (two - previous)
                at = scheme_ends[k]
                size = scheme_ends[k + 1] - at
                name = name_ends[k]
                length = name_ends[k + 1] - name
                repeated = (
                    perms[before] == perms[k]
                    and scheme_ends[before + 1] - scheme_ends[before] == size
                    and name_ends[before + 1] - name_ends[before] == length
                    and same(schemes.data, scheme_ends[before], at, size)
                    and same(names.data, name_ends[before], name, length)
                )
        if not repeated:
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
    return _coded(numbered, lists.take(numbers(pa.int64(), first[:count])))


def coded_lists(lists: pa.ChunkedArray) -> Coded:
    """Return the lists of a column of type `ACL_TYPE`."""
    if lists.null_count == len(lists):
        return Coded(np.full(len(lists), -1, np.int64), [])
    numbered, distinct = np.empty(len(lists), np.int64), []
    at = count = 0
    for piece in lists.chunks:
        first = _list_runs(piece, numbered[at : at + len(piece)])
        numbered[at : at + len(piece)] += count
        distinct.append(piece.take(numbers(pa.int64(), first)))
        at, count = at + len(piece), count + len(first)
    return _coded(numbered, packed(raw_lists(pa.chunked_array(distinct, lists.type), None)))


def _list_runs(lists: pa.Array, out: Int64s) -> Int64s:
    """Return the first row of each run; `out` becomes the run of each row."""
    if len(lists) and lists.slice(1).equals(lists.slice(0, len(lists) - 1)):
        out[:] = 0
        return np.zeros(1, np.int64)
    entries = [lists.values.field(i) for i in range(3)]
    if any(each.null_count for each in entries):
        out[:] = np.arange(len(lists))
        return out.copy()
    first = np.empty(len(lists), np.int64)
    count = list_runs(
        np.ascontiguousarray(np.asarray(lists.offsets)),
        validity(lists),
        np.ascontiguousarray(np.asarray(entries[0])),
        Strings.of(entries[1]),
        Strings.of(entries[2]),
        out,
        first,
    )
    return first[:count]


def _coded(numbered: Int64s, distinct: pa.Array) -> Coded:
    """Return the lists, from runs and the encoded list of each run."""
    each = distinct.dictionary_encode()
    codes = np.asarray(each.indices.fill_null(-1)).astype(np.int64)
    return Coded(codes[numbered], each.dictionary.to_pylist())


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

    def numbers(
        self, coded: Coded, own_numbers: Int64s | None = None, has: npt.NDArray[np.bool_] | None = None
    ) -> Int64s:
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
