"""The ACL table being written: what rows say of ACLs, in jute's bytes, and the numbers that it gets. Often many rows have the same list, so
that is looked for before a list is written.

Source: `ReferenceCountedACLCache` of ZooKeeper.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.columns import numbers
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.formats.snapshot.acl import OPEN, AclTable, flat, packed, table_bytes
from logwright.codec.zookeeper.formats.snapshot.layout import OPEN_ACL, Int32s
from logwright.codec.zookeeper.jute import ACL_RAW_TYPE, Int64s, stored_strings
from logwright.codec.zookeeper.state.paths import same

_FEW = 1 << 22
_KEEP = np.iinfo(np.int64).min
"""No number of a list is this one."""


# Runs of rows that have the same list


@kernel("const u1[], const i4[], const u1[], i8[], i8[]")
def runs(data: Bytes, ends: Int32s, valid: Bytes, out: Int64s, first: Int64s) -> int:
    """For each value the number of its run: of values one after the other that are the same, or null; and the first value of each run.
    Returns how many there are."""
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


@kernel("const i4[], const u1[], const i4[], const u1[], const i4[], const u1[], const i4[], i8[], i8[]")
def list_runs(
    ends: Int32s,
    valid: Bytes,
    perms: Int32s,
    schemes: Bytes,
    scheme_ends: Int32s,
    names: Bytes,
    name_ends: Int32s,
    out: Int64s,
    first: Int64s,
) -> int:
    """The same of lists of ACLs, in whose entries nothing is null."""
    run = -1
    for i in range(len(out)):
        again = i > 0 and valid[i] == valid[i - 1]
        if again and valid[i]:
            one = ends[i - 1]
            two = ends[i]
            end = ends[i + 1]
            again = two - one == end - two
            for k in range(two, end):
                if not again:
                    break
                before = k - (two - one)
                at = scheme_ends[k]
                size = scheme_ends[k + 1] - at
                name = name_ends[k]
                length = name_ends[k + 1] - name
                again = (
                    perms[before] == perms[k]
                    and scheme_ends[before + 1] - scheme_ends[before] == size
                    and name_ends[before + 1] - name_ends[before] == length
                    and same(schemes, scheme_ends[before], at, size)
                    and same(names, name_ends[before], name, length)
                )
        if not again:
            run += 1
            first[run] = i
        out[i] = run
    return run + 1


class Coded(NamedTuple):
    """The lists of rows: of each the number of its list in `lists`, -1 for null. These are packed, in the order in which they come up."""

    codes: Int64s
    lists: list[bytes]

    def take(self, order: Int64s) -> Coded:
        """Of the rows in another order."""
        codes = self.codes[order]
        first = np.full(len(self.lists) + 1, len(codes))
        first[codes[::-1]] = np.arange(len(codes))[::-1]
        come_up = np.argsort(first[:-1], kind="stable")
        ranks = np.empty(len(self.lists) + 1, np.int64)
        ranks[come_up], ranks[-1] = np.arange(len(self.lists)), -1
        return Coded(ranks[codes], [self.lists[i] for i in come_up.tolist()])


def coded(lists: pa.Array) -> Coded:
    """Of packed lists, a binary column."""
    data, ends, valid = flat(lists)
    numbered, first = np.empty(len(lists), np.int64), np.empty(len(lists), np.int64)
    count = runs(data, ends, valid, numbered, first)
    return _coded(numbered, lists.take(numbers(pa.int64(), first[:count])))


def coded_lists(lists: pa.ChunkedArray) -> Coded:
    """Of lists as text (`ACL_TYPE`)."""
    if lists.null_count == len(lists):
        return Coded(np.full(len(lists), -1, np.int64), [])
    numbered, found = np.empty(len(lists), np.int64), []
    at = count = 0
    for piece in lists.chunks:
        first = _list_runs(piece, numbered[at : at + len(piece)])
        numbered[at : at + len(piece)] += count
        found.append(piece.take(numbers(pa.int64(), first)))
        at, count = at + len(piece), count + len(first)
    return _coded(numbered, packed(raw_lists(pa.chunked_array(found, lists.type), None)))


def _list_runs(lists: pa.Array, out: Int64s) -> Int64s:
    """The first row of each run; `out` becomes the run of each row."""
    if len(lists) and lists.slice(1).equals(lists.slice(0, len(lists) - 1)):
        out[:] = 0
        return np.zeros(1, np.int64)
    entries = [lists.values.field(i) for i in range(3)]
    if any(each.null_count for each in entries):
        out[:] = np.arange(len(lists))
        return out.copy()
    (schemes, scheme_ends, _), (names, name_ends, _) = flat(entries[1]), flat(entries[2])
    first = np.empty(len(lists), np.int64)
    count = list_runs(
        np.ascontiguousarray(np.asarray(lists.offsets)),
        _valid(lists),
        np.ascontiguousarray(np.asarray(entries[0])),
        schemes,
        np.ascontiguousarray(scheme_ends),
        names,
        np.ascontiguousarray(name_ends),
        out,
        first,
    )
    return first[:count]


def _valid(lists: pa.Array) -> Bytes:
    if not lists.null_count:
        return np.ones(len(lists), np.uint8)
    return np.asarray(lists.is_valid()).astype(np.uint8)


def _coded(numbered: Int64s, found: pa.Array) -> Coded:
    """Of runs, and the packed list of each."""
    each = found.dictionary_encode()
    codes = np.asarray(each.indices.fill_null(-1)).astype(np.int64)
    return Coded(codes[numbered], each.dictionary.to_pylist())


def _few(values: Int64s) -> tuple[Int64s, Int64s]:
    """`np.unique` with its inverse, for small numbers: without sorting."""
    there = np.zeros(int(values.max(initial=0)) + 1, np.bool_)
    there[values] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[values]


# The table


class AclLists:
    """The ACL table being written: what the file had, and lists that rows bring."""

    def __init__(self, given: AclTable | None) -> None:
        self.given = given or AclTable.empty()
        self.ids: list[int] = self.given.ids.tolist()
        self.lists: list[bytes] = packed(self.given.lists).to_pylist()
        ordered = self.given.raw.slice(0, len(self.given.known_ids))
        self._by_list: dict[bytes, int] = {}
        for number, one in zip(self.given.known_ids.tolist(), packed(ordered).to_pylist(), strict=True):
            self._by_list.setdefault(one, number)
        self.open = packed(pa.array([OPEN], ACL_RAW_TYPE))[0].as_py()
        self.added = False
        self._next = max([0, *self.ids]) + 1

    def number(self, one: bytes) -> int:
        """The number of a list, a new one if there is none."""
        if one == self.open:
            return OPEN_ACL
        found = self._by_list.get(one)
        if found is None:
            found = self._next
            self._next += 1
            self._by_list[one] = found
            self.ids.append(found)
            self.lists.append(one)
            self.added = True
        return found

    def numbers(
        self, said: Coded, given: Int64s | None = None, has: npt.NDArray[np.bool_] | None = None
    ) -> Int64s:
        """The number of each row's list: the one that the row says (`given`, where it `has` one) where that has this list, or where the
        row has no list; null without a number is -1."""
        codes, lists = said
        if given is None or has is None or not has.any():
            numbered = [*(self.number(one) for one in lists), OPEN_ACL]
            if len(set(numbered)) == 1:
                return np.full(len(codes), numbered[0], np.int64)
            return np.array(numbered, np.int64)[codes]
        out = np.where(has, given, OPEN_ACL)
        if not lists:
            return out
        # As it is stored, and as its text would be stored.
        raw = packed(self.given.raw).to_pylist()
        text = packed(raw_lists(self.given.text[0], None)).to_pylist()
        places = np.where(has, self.given.places(given), -1)
        # One number for what a row says: its list (in the order in which they come up), and the one that its number stands for.
        width = len(raw) + 1
        both = (codes + 1) * width + places + 1
        found, which = np.unique(both, return_inverse=True) if len(lists) * width > _FEW else _few(both)
        wanted = np.full(len(found), _KEEP)
        for k, one in enumerate(found.tolist()):
            code, place = one // width - 1, one % width - 1
            if code >= 0 and not (place >= 0 and lists[code] in (raw[place], text[place])):
                wanted[k] = self.number(lists[code])
        chosen = wanted[which]
        return np.where(chosen == _KEEP, out, chosen)

    def table(self) -> bytes:
        return table_bytes(self.ids, self.lists)


def raw_lists(lists: pa.Array, raw: pa.Array | None) -> pa.Array:
    """ACLs as text in the raw type; where there is a raw one, that."""
    plain = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    entries = plain.flatten()
    ends = np.zeros(len(plain) + 1, np.int32)
    np.cumsum(np.asarray(plain.value_lengths().fill_null(0)), out=ends[1:])
    parts = entries.flatten()
    fields = [entries.type.field(i).name for i in range(entries.type.num_fields)]
    by_name = dict(zip(fields, parts, strict=True))
    made = pa.StructArray.from_arrays(
        [
            by_name["perms"].cast(pa.int32()),
            stored_strings(by_name["scheme"]),
            stored_strings(by_name["id"]),
        ],
        fields=list(ACL_RAW_TYPE.value_type),
    )
    out = pa.ListArray.from_arrays(
        numbers(pa.int32(), ends), made, mask=plain.is_null() if plain.null_count else None
    )
    if raw is None or raw.null_count == len(raw):
        return out
    both = pa.concat_arrays([out, raw])
    places = np.where(np.asarray(raw.is_valid()), np.arange(len(raw)) + len(out), np.arange(len(out)))
    return both.take(numbers(pa.int64(), places))
