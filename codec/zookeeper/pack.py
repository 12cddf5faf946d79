"""Writing transactions: from rows alone as a server would, with the frames table exactly as they were.

A multi is written from a row with its transactions in it, or from one row for each of these. A stored payload is used again only if it
says what the rows say.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.base import Bytes, Chunk, Frames, Window
from logwright.codec.fault import UsageError
from logwright.codec.intrinsics import copy, load_u8, store_32be, store_64be
from logwright.codec.java import java_string
from logwright.codec.kernel import kernel
from logwright.codec.option import Options
from logwright.codec.whole import kept
from logwright.codec.zookeeper.adler import adler32
from logwright.codec.zookeeper.bodies import TXNS_TYPE
from logwright.codec.zookeeper.jute import ACL_RAW_TYPE, ACL_TYPE, NULL, Int64s, put_bytes, stored_strings
from logwright.codec.zookeeper.records import BODY, HEAD, HEAD_FIELDS, MOST, ZXID_AT, scan_records
from logwright.codec.zookeeper.rows import NAME, ROWS, Rows
from logwright.codec.zookeeper.txns import (
    ACLS,
    CLOSE_SESSION,
    CREATE,
    DATA,
    DIGEST_VERSION,
    EOR,
    EPHEMERAL,
    FILE_HEADER,
    HEADER_SIZE,
    HIGHEST,
    LENGTH,
    LOWEST,
    MULTI,
    NUMBER,
    NUMBER_OF,
    NUMBERS,
    OVERHEAD,
    PATH,
    PATHS,
    PAYLOAD,
    RECIPE_ARRAY,
    RECIPES,
    SUB_RECIPE_ARRAY,
    SUB_RECIPES,
    TTL,
    TXN,
    TXN_DIGEST,
    TXN_HEADER,
    TYPE_NAMES,
)

if TYPE_CHECKING:
    from logwright.codec.zookeeper.txnlog import TxnLogContext

Int32s = npt.NDArray[np.int32]

PORTION = 8 << 20
"""So many bytes of rows are written at a time, about, or one transaction."""
_DATA_OF_TXN = TXN.offset("data")
_CXID, _TIME, _TYPE = PAYLOAD.offset("cxid"), PAYLOAD.offset("time"), PAYLOAD.offset("type")
_TREE_DIGEST = TXN_DIGEST.offset("tree_digest")
_NO_DIGEST = 0
DIGEST_SIZE = TXN_DIGEST.head_size
_KINDS = {name: kind for kind, name in TYPE_NAMES.items()}
_UNKNOWN = LOWEST - 1
_NAMES = (
    np.frombuffer("".join(_KINDS).encode(), np.uint8),
    np.cumsum([0, *map(len, _KINDS)], dtype=np.int32),
    np.array(list(_KINDS.values()), np.int64),
)
"""The names of types one after the other, where they end, and the types."""
_NUMBER_FIELD = np.array(
    [NUMBERS.index(NUMBER_OF[kind]) if kind in NUMBER_OF else -1 for kind in range(LOWEST, HIGHEST + 1)],
    np.int8,
)
"""By type the place in `NUMBERS` of what its number is; -1 where it has none."""


# Kernels


@kernel(
    "const i8[], const u1[], const i4[], const u1[], const u1[], const i4[], const u1[], const i4[], const u1[], const i8[], const u1[],"
    " const i4[], const u1[], const u1[], const i4[], const u1[], const i8[], const i8[], const i8[], const i4[], const u1[],"
    " const i4[], const u1[], const i8[], u1[]"
)
def put_bodies(
    fields: Int64s,
    path: Bytes,
    path_ends: Int32s,
    path_valid: Bytes,
    data: Bytes,
    data_ends: Int32s,
    data_valid: Bytes,
    acl_ends: Int32s,
    acl_valid: Bytes,
    perms: Int64s,
    scheme: Bytes,
    scheme_ends: Int32s,
    scheme_valid: Bytes,
    id_: Bytes,
    id_ends: Int32s,
    id_valid: Bytes,
    flags: Int64s,
    values: Int64s,
    ttls: Int64s,
    list_ends: Int32s,
    paths: Bytes,
    paths_ends: Int32s,
    paths_valid: Bytes,
    at: Int64s,
    out: Bytes,
) -> None:
    """Write bodies of these fields, each at its place in `out`."""
    for i in range(len(fields)):
        has = fields[i]
        pos = at[i]
        if has & PATH:
            pos = put_bytes(out, pos, path, path_ends, path_valid, i)
        if has & DATA:
            pos = put_bytes(out, pos, data, data_ends, data_valid, i)
        if has & ACLS:
            if acl_valid[i]:
                pos = store_32be(out, pos, acl_ends[i + 1] - acl_ends[i])
                for k in range(acl_ends[i], acl_ends[i + 1]):
                    pos = store_32be(out, pos, perms[k])
                    pos = put_bytes(out, pos, scheme, scheme_ends, scheme_valid, k)
                    pos = put_bytes(out, pos, id_, id_ends, id_valid, k)
            else:
                pos = store_32be(out, pos, NULL)
        if has & EPHEMERAL:
            out[pos] = flags[i]
            pos += 1
        if has & NUMBER:
            pos = store_32be(out, pos, values[i])
        if has & TTL:
            pos = store_64be(out, pos, ttls[i])
        if has & PATHS:
            # Where the list is null, the field is left out.
            pos = store_32be(out, pos, list_ends[i + 1] - list_ends[i])
            for k in range(list_ends[i], list_ends[i + 1]):
                pos = put_bytes(out, pos, paths, paths_ends, paths_valid, k)


@kernel("const i8[], const i8[], const i8[], const u1[], const i8[], const i8[], u1[]")
def put_multis(
    lows: Int64s, highs: Int64s, kinds: Int64s, subs: Bytes, sub_ends: Int64s, at: Int64s, out: Bytes
) -> None:
    """Write the bodies of multis: transactions `lows[i]` to `highs[i]`, of which `subs` has the bodies."""
    for i in range(len(at)):
        pos = store_32be(out, at[i], highs[i] - lows[i])
        for k in range(lows[i], highs[i]):
            length = sub_ends[k + 1] - sub_ends[k]
            store_32be(out, pos, kinds[k])
            store_32be(out, pos + _DATA_OF_TXN, length)
            copy(out, pos + _DATA_OF_TXN + 4, subs, sub_ends[k], length)
            pos += _DATA_OF_TXN + 4 + length


@kernel(
    "const i8[], const i8[], const i8[], const i8[], const i8[], const i8[], const i8[], const i8[], u1[]"
)
def put_records(
    starts: Int64s,
    sessions: Int64s,
    cxids: Int64s,
    zxids: Int64s,
    times: Int64s,
    kinds: Int64s,
    versions: Int64s,
    digests: Int64s,
    out: Bytes,
) -> None:
    """Write what is around bodies that are in their places: record `i` is `out[starts[i] : starts[i + 1]]`; it has a digest where its
    version is not 0."""
    for i in range(len(sessions)):
        at = starts[i] + BODY
        end = starts[i + 1] - 1
        store_32be(out, starts[i] + LENGTH, end - at)
        store_64be(out, at, sessions[i])
        store_32be(out, at + _CXID, cxids[i])
        store_64be(out, at + ZXID_AT, zxids[i])
        store_64be(out, at + _TIME, times[i])
        store_32be(out, at + _TYPE, kinds[i])
        if versions[i] != _NO_DIGEST:
            store_32be(out, end - DIGEST_SIZE, versions[i])
            store_64be(out, end - DIGEST_SIZE + _TREE_DIGEST, digests[i])
        out[end] = EOR
        store_64be(out, starts[i], adler32(out, at, end))


@kernel("const u1[], const i4[], const u1[], const u1[], const i4[], const i8[], i8, i8[]")
def find_kinds(
    data: Bytes,
    ends: Int32s,
    valid: Bytes,
    names: Bytes,
    name_ends: Int32s,
    known: Int64s,
    unknown: int,
    out: Int64s,
) -> None:
    """The types that have the names `data[ends[i] : ends[i + 1]]`; `unknown` for others."""
    last = 0
    for i in range(len(out)):
        out[i] = unknown
        if not valid[i]:
            continue
        start = ends[i]
        length = ends[i + 1] - start
        # Mostly it is that of the row before.
        for k in range(len(known)):
            one = (last + k) % len(known)
            if name_ends[one + 1] - name_ends[one] == length:
                same = 0
                while same < length and load_u8(data, start + same) == load_u8(names, name_ends[one] + same):
                    same += 1
                if same == length:
                    out[i] = known[one]
                    last = one
                    break


# Columns as kernels take them


@dataclass(slots=True)
class _Strings:
    """Value `i` is `data[ends[i] : ends[i + 1]]`, or null."""

    data: Bytes
    ends: Int32s
    valid: Bytes

    @classmethod
    def of(cls, array: pa.Array) -> _Strings:
        """Of a binary array."""
        count = len(array)
        _, offsets, data = array.buffers()
        if not count or offsets is None:
            return cls(np.empty(0, np.uint8), np.zeros(count + 1, np.int32), np.zeros(count, np.uint8))
        ends = np.frombuffer(offsets, np.int32, array.offset + count + 1)[array.offset :]
        return cls(_bytes(data), ends, _valid(array))

    @property
    def sizes(self) -> Int64s:
        """Bytes that each takes with its length."""
        return np.diff(self.ends).astype(np.int64) * self.valid + 4


def _bytes(buffer: pa.Buffer | None) -> Bytes:
    return np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


def _valid(array: pa.Array) -> Bytes:
    if not array.null_count:
        return np.ones(len(array), np.uint8)
    if array.null_count == len(array):
        return np.zeros(len(array), np.uint8)
    return np.asarray(array.is_valid()).astype(np.uint8)


def _list_ends(array: pa.Array) -> tuple[Int32s, pa.Array]:
    """Where lists end in their values, which are those of lists that are not null, one after the other."""
    if array.null_count == len(array):
        return np.zeros(len(array) + 1, np.int32), pa.nulls(0, array.type.value_type)
    lengths = np.asarray(array.value_lengths().fill_null(0), np.int64)
    return _ends(lengths).astype(np.int32), array.flatten()


class _Columns:
    """The columns of some rows, with the types of the rows table (or of a transaction in a multi); absent ones are null."""

    def __init__(self, rows: pa.RecordBatch, first: int) -> None:
        self.rows, self.count, self.first = rows, rows.num_rows, first

    def has(self, name: str) -> bool:
        return name in self.rows.schema.names

    def get(self, name: str, kind: pa.DataType) -> pa.Array:
        if not self.has(name):
            return pa.nulls(self.count, kind)
        array = self.rows.column(self.rows.schema.get_field_index(name))
        if array.type == kind:
            return array
        try:
            return array.cast(kind)
        except (pa.ArrowException, ValueError) as error:
            raise UsageError(f"{NAME}: column {name!r} is not {kind}: {error}") from None

    def text(self, name: str) -> pa.Array:
        """Strings as they are stored: of columns of bytes as given, else as Java writes them."""
        kind = self.rows.schema.field(name).type if self.has(name) else pa.null()
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
            return self.get(name, pa.binary())
        return stored_strings(self.get(name, pa.string()))

    def number(self, name: str, default: int) -> Int64s:
        return _numbers(self.get(name, _TYPES.get(name, pa.int64())), default)


_TYPES = {one.name: one.type for one in ROWS.columns}


def _numbers(array: pa.Array, default: int) -> Int64s:
    """Integers, with another for null."""
    if array.null_count == len(array):
        return np.full(len(array), default, np.int64)
    if array.null_count:
        array = array.fill_null(default)
    return np.asarray(array).astype(np.int64, copy=False)


def _of(values: Int64s, heads: Int64s) -> Int64s:
    """Those of some rows, in order."""
    return values if len(heads) == len(values) else values[heads]


def _kinds(columns: _Columns, in_multi: npt.NDArray[np.bool_]) -> Int64s:
    """The types of rows as numbers. Raises `UsageError` for one that is not written so, or not there."""
    if not columns.has("type"):
        raise UsageError(f"{NAME} needs a column 'type'", advice=f"It is one of: {', '.join(_KINDS)}")
    given = _Strings.of(columns.get("type", pa.string()))
    kinds = np.empty(columns.count, np.int64)
    find_kinds(given.data, given.ends, given.valid, *_NAMES, _UNKNOWN, kinds)
    place = np.maximum(kinds, LOWEST) - LOWEST
    bad = (kinds == _UNKNOWN) | (np.where(in_multi, SUB_RECIPE_ARRAY[place], RECIPE_ARRAY[place]) == 0)
    if bad.any():
        row = int(np.argmax(bad))
        name = columns.get("type", pa.string())[row].as_py()
        recipes, where = (SUB_RECIPES, "in a multi") if in_multi[row] else (RECIPES, "on its own")
        choices = ", ".join(one for one, kind in _KINDS.items() if recipes[kind - LOWEST])
        raise UsageError(
            f"{NAME}: row {columns.first + row} is of type {name!r}, which is not written {where}",
            advice=f"It is one of: {choices}",
        )
    return kinds


def _acl(columns: _Columns) -> pa.Array:
    """Lists as they are stored: `acl_raw` where that says the same."""
    if not columns.has("acl"):
        return pa.nulls(columns.count, ACL_RAW_TYPE)
    given = columns.rows.column(columns.rows.schema.get_field_index("acl"))
    if given.type == ACL_TYPE and given.null_count == len(given):
        return pa.nulls(columns.count, ACL_RAW_TYPE)
    try:
        lists = given.cast(ACL_TYPE)
    except (pa.ArrowException, ValueError) as error:
        raise UsageError(f"{NAME}: column 'acl' is not {ACL_TYPE}: {error}") from None
    ends, entries = _list_ends(lists)
    fields = [entries.field(0), *(stored_strings(entries.field(k)) for k in (1, 2))]
    struct = pa.StructArray.from_arrays(fields, fields=list(ACL_RAW_TYPE.value_type))
    bits = None if not lists.null_count else pa.py_buffer(np.packbits(_valid(lists), bitorder="little"))
    made = pa.Array.from_buffers(
        ACL_RAW_TYPE, len(lists), [bits, pa.py_buffer(np.ascontiguousarray(ends))], children=[struct]
    )
    raw = columns.get("acl_raw", ACL_RAW_TYPE)
    if raw.null_count == len(raw):
        return made
    texts = lists.to_pylist()
    chosen = [
        one if one is not None and _as_java(one) == text else plain
        for one, text, plain in zip(raw.to_pylist(), texts, made.to_pylist(), strict=True)
    ]
    return pa.array(chosen, ACL_RAW_TYPE)


def _as_java(acl: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"perms": one["perms"]}
        | {name: None if one[name] is None else java_string(one[name]) for name in ("scheme", "id")}
        for one in acl
    ]


def _path(columns: _Columns) -> pa.Array:
    """Paths as they are stored: `path_raw` where that says the same."""
    made = columns.text("path")
    raw = columns.get("path_raw", pa.binary())
    if raw.null_count == len(raw):
        return made
    chosen = [
        one if one is not None and plain is not None and java_string(one).encode() == plain else plain
        for one, plain in zip(raw.to_pylist(), made.to_pylist(), strict=True)
    ]
    return pa.array(chosen, pa.binary())


class _Bodies:
    """Bodies of rows, measured: `put` writes them. `fields` says which there are; multis have none here."""

    def __init__(self, columns: _Columns, kinds: Int64s, fields: Int64s) -> None:
        self.kinds, self.fields = kinds, fields
        self.path = _Strings.of(_path(columns))
        self.data = _Strings.of(columns.get("data", pa.binary()))
        lists = _acl(columns)
        self.acl_ends, entries = _list_ends(lists)
        self.acl_valid = _valid(lists)
        self.perms = np.asarray(entries.field(0).cast(pa.int64()).fill_null(0), np.int64)
        self.scheme, self.id = (_Strings.of(entries.field(k)) for k in (1, 2))
        flags = columns.get("ephemeral", pa.bool_())
        none = np.zeros(columns.count, np.int64)
        self.flags = none
        if flags.null_count < len(flags):
            self.flags = np.asarray(flags.fill_null(False)).astype(np.int64)
        self.values = none
        which = _NUMBER_FIELD[kinds - LOWEST]
        for place, name in enumerate(NUMBERS):
            mine = which == place
            if mine.any():
                # Of a create without it: as it was up to 3.3.
                values = columns.number(name, -1 if name == "parent_cversion" else 0)
                self.values = values if mine.all() else np.where(mine, values, self.values)
        self.ttls = columns.number("ttl", 0)
        paths = columns.get("paths_to_delete", pa.list_(pa.string()))
        self.list_ends, strings = _list_ends(paths)
        self.list_valid = _valid(paths)
        self.paths = _Strings.of(stored_strings(strings))

    @property
    def sizes(self) -> Int64s:
        fields = self.fields
        out: Int64s = np.zeros(len(fields), np.int64)
        some, common = (
            (int(one.reduce(fields)) for one in (np.bitwise_or, np.bitwise_and)) if len(fields) else (0, 0)
        )
        for bit, size in self._parts:
            if some & bit:
                each = size()
                out += each if common & bit else (fields & bit != 0) * each
        return out

    @property
    def _parts(self) -> tuple[tuple[int, Callable[[], Int64s | int]], ...]:
        """By field the bytes that it takes in each body."""
        return (
            (PATH, lambda: self.path.sizes),
            (DATA, lambda: self.data.sizes),
            (ACLS, lambda: _sums(4 + self.scheme.sizes + self.id.sizes, self.acl_ends) * self.acl_valid + 4),
            (EPHEMERAL, lambda: 1),
            (NUMBER, lambda: 4),
            (TTL, lambda: 8),
            (PATHS, lambda: _sums(self.paths.sizes, self.list_ends) * self.list_valid + 4),
        )

    def put(self, at: Int64s, out: Bytes) -> None:
        put_bodies(
            self.fields,
            self.path.data,
            self.path.ends,
            self.path.valid,
            self.data.data,
            self.data.ends,
            self.data.valid,
            self.acl_ends,
            self.acl_valid,
            self.perms,
            self.scheme.data,
            self.scheme.ends,
            self.scheme.valid,
            self.id.data,
            self.id.ends,
            self.id.valid,
            self.flags,
            self.values,
            self.ttls,
            self.list_ends,
            self.paths.data,
            self.paths.ends,
            self.paths.valid,
            np.ascontiguousarray(at),
            out,
        )


def _sums(sizes: Int64s, ends: Int32s) -> Int64s:
    before = _ends(sizes)
    return before[ends[1:]] - before[ends[:-1]]


# Transactions


@dataclass(slots=True)
class Records:
    """Records as bytes: record `i` is `data[starts[i] : starts[i + 1]]`."""

    data: Bytes
    starts: Int64s

    def payload(self, i: int) -> bytes:
        return self.data[int(self.starts[i]) + BODY : int(self.starts[i + 1]) - 1].tobytes()


def records_of(
    rows: pa.RecordBatch, cuts: Int64s, first: int, zxid: int, digests: tuple[Int64s, Int64s] | None = None
) -> Records:
    """Rows as records: transaction `i` is rows `cuts[i]` to `cuts[i + 1]`, more than one only where these are those of a multi.

    `first` is the number of the first row, for words; `zxid` that of the first transaction where rows have none; `digests` version (0
    for none) and value of each transaction, instead of what rows say.
    """
    columns = _Columns(rows, first)
    heads = cuts[:-1]
    count = len(heads)
    in_multi = _in_multi(columns)
    alone = ~in_multi
    exploded = in_multi[heads]
    kinds = _kinds(columns, in_multi)
    versions, values = _digests(columns, heads) if digests is None else digests
    recipes = np.where(in_multi, SUB_RECIPE_ARRAY[kinds - LOWEST], RECIPE_ARRAY[kinds - LOWEST])
    recipes[alone & (kinds == MULTI)] = 0
    fields = np.ascontiguousarray(recipes)
    bodies = _Bodies(columns, kinds, fields)
    # What is left out: the body of a closed session, where its paths are not known; the last field of a create of old.
    fields[(kinds == CLOSE_SESSION) & (bodies.list_valid == 0)] = 0
    if alone.any() and (kinds[alone] == CREATE).any():
        known = _valid(columns.get("parent_cversion", pa.int32()))
        digest = np.zeros(columns.count, np.bool_)
        digest[heads] = versions != _NO_DIGEST
        fields[alone & (kinds == CREATE) & (known == 0) & ~digest] &= ~NUMBER
    sizes = bodies.sizes
    body_sizes = sizes[heads]
    multis: list[_Multis] = []
    if exploded.any():
        # The bodies of these rows one after the other, in the order of rows.
        which = np.flatnonzero(exploded)
        ends = _ends(np.where(in_multi, sizes, 0))
        subs = np.empty(int(ends[-1]), np.uint8)
        _put_some(bodies, np.flatnonzero(in_multi), ends[:-1][in_multi], subs)
        multis.append(_Multis(which, cuts[which], cuts[which + 1], kinds, subs, ends))
    nested = alone & (kinds == MULTI)
    if nested.any():
        inner, edges = _nested(columns, np.flatnonzero(nested), first)
        ends = _ends(inner.sizes)
        subs = np.empty(int(ends[-1]), np.uint8)
        inner.put(ends[:-1], subs)
        which = np.searchsorted(heads, np.flatnonzero(nested))
        multis.append(_Multis(which, edges[:-1], edges[1:], inner.kinds, subs, ends))
    for one in multis:
        body_sizes[one.which] = one.sizes
    starts = _ends(body_sizes + (OVERHEAD + TXN_HEADER) + (versions != _NO_DIGEST) * DIGEST_SIZE)
    if count and int(np.diff(starts).max()) > MOST:
        raise UsageError(f"{NAME}: a transaction is larger than {MOST} bytes, which nobody reads")
    out = np.empty(int(starts[-1]), np.uint8)
    at = starts[:-1] + BODY + TXN_HEADER
    if exploded.any() or count < columns.count:
        _put_some(bodies, heads[~exploded], at[~exploded], out)
    else:
        bodies.put(at, out)
    for one in multis:
        put_multis(one.lows, one.highs, one.kinds, one.subs, one.ends, at[one.which], out)
    now = time.time_ns() // 1_000_000
    top = np.where(exploded, MULTI, kinds[heads])
    zxids = _of(columns.number("zxid", 0), heads) if columns.has("zxid") else np.arange(zxid, zxid + count)
    put_records(
        starts,
        _of(columns.number("session_id", 0), heads),
        _of(columns.number("cxid", 0), heads),
        zxids,
        _of(_times(columns, now), heads),
        top,
        versions,
        values,
        out,
    )
    return Records(out, starts)


def _put_some(bodies: _Bodies, which: Int64s, at: Int64s, out: Bytes) -> None:
    """Write the bodies of some rows only: the others have no fields meanwhile."""
    fields, places = bodies.fields, np.zeros(len(bodies.fields), np.int64)
    places[which] = at
    some = np.zeros_like(fields)
    some[which] = fields[which]
    bodies.fields = some
    bodies.put(places, out)
    bodies.fields = fields


def _in_multi(columns: _Columns) -> npt.NDArray[np.bool_]:
    if not columns.has("sub"):
        return np.zeros(columns.count, np.bool_)
    return np.asarray(columns.get("sub", pa.int32()).is_valid())


@dataclass(slots=True)
class _Multis:
    """Some of the transactions, which are multis: what is in the first of `which` is `lows[0]` to `highs[0]` of the bodies in `subs`."""

    which: Int64s
    lows: Int64s
    highs: Int64s
    kinds: Int64s
    subs: Bytes
    ends: Int64s

    @property
    def sizes(self) -> Int64s:
        count = self.highs - self.lows
        return self.ends[self.highs] - self.ends[self.lows] + 4 + count * (_DATA_OF_TXN + 4)


def _ends(sizes: Int64s) -> Int64s:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))


def _nested(columns: _Columns, multis: Int64s, first: int) -> tuple[_Bodies, Int64s]:
    """The transactions in the column `txns` of multis, and where those of each begin; null is none."""
    lists = pa.nulls(len(multis), TXNS_TYPE)
    if columns.has("txns"):
        lists = columns.rows.column(columns.rows.schema.get_field_index("txns")).take(pa.array(multis))
    if pa.types.is_null(lists.type):
        lists = pa.nulls(len(multis), TXNS_TYPE)
    if not pa.types.is_list(lists.type) or not pa.types.is_struct(lists.type.value_type):
        raise UsageError(f"{NAME}: column 'txns' is {lists.type}, a list of structs is needed")
    values = lists.flatten()
    if values.null_count:
        raise UsageError(f"{NAME}: a transaction of a multi is null")
    inner = _Columns(pa.RecordBatch.from_struct_array(values), first)
    kinds = _kinds(inner, np.ones(inner.count, np.bool_))
    edges = _ends(np.asarray(lists.value_lengths().fill_null(0), np.int64))
    return _Bodies(inner, kinds, SUB_RECIPE_ARRAY[kinds - LOWEST]), edges


def _digests(columns: _Columns, heads: Int64s) -> tuple[Int64s, Int64s]:
    """Version (0 for none) and value."""
    if not columns.has("tree_digest"):
        none = np.zeros(len(heads), np.int64)
        return none, none
    value = columns.get("tree_digest", pa.int64())
    versions = columns.number("digest_version", DIGEST_VERSION)
    if value.null_count:
        versions = np.where(_valid(value), versions, _NO_DIGEST)
    return _of(versions, heads), _of(_numbers(value, 0), heads)


def _times(columns: _Columns, now: int) -> Int64s:
    if not columns.has("time") and not columns.has("time_ms"):
        return np.full(columns.count, now, np.int64)
    given = np.full(columns.count, -1, np.int64)
    if columns.has("time"):
        array = columns.rows.column(columns.rows.schema.get_field_index("time"))
        if not pa.types.is_integer(array.type):
            array = columns.get("time", ROWS["time"].type)
        given = _numbers(array.cast(pa.int64()), -1)
    raw = columns.get("time_ms", pa.int64())
    if raw.null_count == len(raw):
        return given
    return np.where(_valid(raw) == 1, _numbers(raw, 0), given)


# A file


def encode(
    rows: pa.Table, frames: pa.Table | None, file: pa.Table | None, context: TxnLogContext
) -> Iterator[Chunk]:
    """The bytes of a log. See `Codec.encode`."""
    given = _Rows(rows, context)
    if frames is None:
        header = _header(file, None)
        yield header
        size = len(header)
        for start, stop in given.portions(0, given.count):
            data = given.records(start, stop).data
            size += len(data)
            yield data
        if file is None:
            yield from allocated(size, context.options)
    else:
        yield from _again(given, frames, file, context)
    yield kept(file, "trailing") or b""
    yield from _zeros(kept(file, "trailing_zeros") or 0)


def allocated(size: int, options: Options) -> Iterator[bytes]:
    """The zeros behind a log of that size, where they are asked for."""
    ahead = options["preAllocSize"] << 10
    if ahead:
        yield from _zeros(HEADER_SIZE + max(-(-(size - HEADER_SIZE) // ahead), 1) * ahead - size)


def _zeros(left: int) -> Iterator[bytes]:
    while left > 0:
        yield bytes(min(left, 1 << 20))
        left -= 1 << 20


def _header(file: pa.Table | None, stored: bytes | None) -> bytes:
    """The file's header: as the file table has it, or as it is stored, or the usual one."""
    version, dbid = kept(file, "version"), kept(file, "dbid")
    if version is None and dbid is None and stored is not None:
        return stored
    said = {name: value for name, value in (("version", version), ("dbid", dbid)) if value is not None}
    return FILE_HEADER.pack(said)


class _Rows:
    """Rows as transactions: transaction `i` is rows `cuts[i]` to `cuts[i + 1]`."""

    def __init__(self, rows: pa.Table, context: TxnLogContext) -> None:
        self.rows = rows
        count = rows.num_rows
        self.first_zxid = 1 if context.file is None else max(context.file, 1)
        edges = np.ones(count, np.bool_)
        if "sub" in rows.column_names and rows["sub"].null_count < count:
            sub = np.asarray(rows["sub"].cast(pa.int64()).fill_null(-1), np.int64)
            edges[1:] = (sub[1:] < 0) | (sub[1:] <= sub[:-1])
            edges[1:] |= sub[:-1] < 0
            for name in {"zxid", "position"} & set(rows.column_names):
                values = np.asarray(rows[name].cast(pa.int64()).fill_null(-1), np.int64)
                edges[1:] |= values[1:] != values[:-1]
        self.cuts: Int64s = np.concatenate((np.flatnonzero(edges), [count])).astype(np.int64)
        if "zxid" in rows.column_names and rows["zxid"].null_count:
            raise UsageError(
                f"{NAME}: null in column 'zxid'", advice="Leave the column out to have zxids assigned"
            )
        self._row_size = max(rows.nbytes // max(count, 1), 1)
        self._pieces = np.cumsum([one.num_rows for one in rows.to_batches()] or [0])

    @property
    def count(self) -> int:
        return len(self.cuts) - 1

    def portions(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Transactions in runs of bounded size."""
        step = max(PORTION // self._row_size, 1)
        while first < last:
            row = int(self.cuts[first])
            piece = int(self._pieces[np.searchsorted(self._pieces, row, "right")])
            # Rows that are in one piece need not be copied.
            until = min(row + step, piece) if piece - row >= step // 8 else row + step
            stop = int(np.searchsorted(self.cuts, until, "right")) - 1
            stop = min(max(stop, first + 1), last)
            yield first, stop
            first = stop

    def records(self, first: int, last: int, digests: tuple[Int64s, Int64s] | None = None) -> Records:
        start, stop = int(self.cuts[first]), int(self.cuts[last])
        (batch,) = self.rows.slice(start, stop - start).combine_chunks().to_batches()
        cuts = self.cuts[first : last + 1] - start
        return records_of(batch, cuts, start, self.first_zxid + first, digests)


@dataclass(slots=True)
class _Frames:
    """The frames table. `owner` is the transaction of each, -1 for none."""

    owner: Int64s
    header: npt.NDArray[np.bool_]
    payload: list[Any]
    raw: list[Any]
    digests: tuple[Int64s, Int64s] | None

    @classmethod
    def of(cls, given: _Rows, frames: pa.Table) -> _Frames:
        count = frames.num_rows
        for name in ("position", "kind"):
            if name not in frames.column_names:
                raise UsageError(f"{NAME} needs a column {name!r} in the frames table")
        nothing: list[Any] = [None] * count
        raw = frames["raw"].to_pylist() if "raw" in frames.column_names else nothing
        header = np.array([kind == "header" for kind in frames["kind"].to_pylist()], np.bool_)
        is_txn = ~header & np.array([one is None for one in raw], np.bool_)
        positions = np.asarray(frames["position"].cast(pa.int64()).fill_null(-1), np.int64)
        digests = None
        if "tree_digest" not in given.rows.column_names and "tree_digest" in frames.column_names:
            value = frames["tree_digest"].combine_chunks()
            version = frames["digest_version"].cast(pa.int64()).fill_null(DIGEST_VERSION)
            there = np.asarray(value.is_valid())
            digests = (
                np.where(there, np.asarray(version, np.int64), 0),
                np.asarray(value.fill_null(0), np.int64),
            )
        return cls(
            _owners(given, positions, is_txn),
            header,
            frames["payload"].to_pylist() if "payload" in frames.column_names else nothing,
            raw,
            digests,
        )

    def of_txns(self, start: int, stop: int) -> tuple[Int64s, Int64s] | None:
        if self.digests is None:
            return None
        return self.digests[0][start:stop], self.digests[1][start:stop]

    def runs(self) -> Iterator[tuple[int, int, bool]]:
        """Runs of frames of which nothing is stored but their rows, which follow one another; and of the others."""
        usual = (self.owner >= 0) & np.array([one is None for one in self.payload], np.bool_)
        apart = (usual[1:] != usual[:-1]) | (usual[1:] & (np.diff(self.owner) != 1))
        edges = [0, *(np.flatnonzero(apart) + 1).tolist(), len(usual)]
        for start, stop in pairwise(edges):
            if stop > start:
                yield start, stop, bool(usual[start])


def _owners(given: _Rows, positions: Int64s, is_txn: npt.NDArray[np.bool_]) -> Int64s:
    """The transaction of each frame, by position. Raises `UsageError` where rows have no place."""
    whose = np.full(len(positions), -1, np.int64)
    if not given.count:
        return whose
    if "position" not in given.rows.column_names:
        raise UsageError(
            f"{NAME}: rows don't say which frame they are in",
            advice="Give the detail column 'position', or leave the frames out",
        )
    mine = np.asarray(given.rows["position"].cast(pa.int64()).fill_null(-1), np.int64)[given.cuts[:-1]]
    places = np.flatnonzero(is_txn)
    order = places[np.argsort(positions[places], kind="stable")]
    at = np.searchsorted(positions[order], mine)
    found = at < len(order)
    frame = order[np.where(found, at, 0)] if len(order) else np.full(len(mine), -1)
    found &= positions[frame] == mine if len(order) else False
    found[1:] &= frame[1:] > frame[:-1]
    if not found.all():
        raise UsageError(
            f"{NAME}: row {int(given.cuts[np.argmin(found)])} is in no frame of the frames table, or not in their order",
            advice="Rows that are new have no place in old frames: encode them without the frames table",
        )
    whose[frame] = np.arange(len(mine))
    return whose


def _again(given: _Rows, frames: pa.Table, file: pa.Table | None, context: TxnLogContext) -> Iterator[Chunk]:
    table = _Frames.of(given, frames)
    for start, stop, usual in table.runs():
        if usual:
            shift = start - int(table.owner[start])
            for a, b in given.portions(int(table.owner[start]), int(table.owner[stop - 1]) + 1):
                yield given.records(a, b, table.of_txns(a + shift, b + shift)).data
            continue
        for i in range(start, stop):
            stored = table.payload[i]
            if table.raw[i] is not None:
                yield table.raw[i]
            elif table.header[i]:
                yield _header(file, stored)
            elif table.owner[i] >= 0:
                yield _one(given, int(table.owner[i]), stored, table.of_txns(i, i + 1), context)
            elif stored is not None and not _decoded(stored, context).num_rows:
                yield _record(stored)


def _record(payload: bytes) -> bytes:
    """A payload as a record."""
    data = np.zeros(OVERHEAD + len(payload), np.uint8)
    data[BODY:-1] = np.frombuffer(payload, np.uint8)
    store_64be(data, 0, adler32(data, BODY, len(data) - 1))
    store_32be(data, LENGTH, len(payload))
    data[-1] = EOR
    return data.tobytes()


def _one(
    given: _Rows, i: int, stored: bytes, digests: tuple[Int64s, Int64s] | None, context: TxnLogContext
) -> Chunk:
    """A transaction as its record: of the stored payload where that says what the rows say."""
    rows = given.rows.slice(int(given.cuts[i]), int(given.cuts[i + 1] - given.cuts[i]))
    said = _decoded(stored, context)
    if _same(rows, said):
        return _record(stored)
    made = given.records(i, i + 1, digests)
    if said.num_rows:
        # The same in other words: without some columns, or a multi in its other form.
        cuts = np.array([0, said.num_rows], np.int64)
        if records_of(said, cuts, 0, 0).payload(0) == made.payload(0):
            return _record(stored)
    return made.data


_PLACES = ("position", "file")
"""Columns that say where a row is, not what it is."""


def _same(rows: pa.Table, said: pa.RecordBatch) -> bool:
    """Whether rows are those of a payload, column by column, and lack none but details."""
    if not set(ROWS.names()) <= set(rows.column_names):
        return False
    columns = [name for name in rows.column_names if name in said.schema.names and name not in _PLACES]
    try:
        given = rows.select(columns).cast(ROWS.schema(columns))
    except (pa.ArrowException, ValueError):
        return False
    return bool(given.equals(pa.Table.from_batches([said.select(columns)])))


def _decoded(stored: bytes, context: TxnLogContext) -> pa.RecordBatch:
    """The rows of a payload, with all columns; none where it can't be understood."""
    record = np.frombuffer(_record(stored), np.uint8)
    one = np.zeros(1, np.int64)
    heads = np.empty((1, HEAD_FIELDS), np.int64)
    scan_records(record, 0, len(record), 0, MOST, one, one.copy(), heads)
    end = np.array([len(record)], np.int64)
    frames = Frames(one, end, heads.view(HEAD).reshape(-1), len(record))
    return Rows(Window(record, 0, len(record)), frames, context).decoded(ROWS.names(detail=True)).batch
