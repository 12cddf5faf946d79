"""Measure transactions: kernels find the fields of many bodies, and columns are made from the positions.

A measured body is a column of int64: the positions of its path, data and list, and its numbers. All types have their fields in the same
order, so `layout.RECIPES`, made from the descriptions, says which fields a type has. The transactions of multis are bodies too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Int8s, Int64s
from logwright.codec.columns import binary, constant, contents, list_of, numbers
from logwright.codec.java import java_strings
from logwright.codec.kernels.intrinsics import load_i32be, load_i64be, load_u8, prefetch
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.formats.txnlog import layout
from logwright.codec.zookeeper.jute import (
    ACL_RAW_TYPE,
    ACL_TYPE,
    NULL,
    acl_column,
    acl_lists,
    is_plain,
    skip_acl,
    skip_bytes,
    string_entries,
)

_SUB_MIN = layout.TXN.min_size

(
    TYPE, STATUS, FIELDS, PATH_AT, PATH_LENGTH, DATA_AT, DATA_LENGTH, ACL_AT, ACL_COUNT, FLAG, VALUE, TIME_TO_LIVE, LIST_AT,
    LIST_COUNT, PLAIN, END, DIGEST, DIGEST_VALUE,
) = range(18)  # fmt: skip
"""The measures of a body: its type; its status; the fields it has; positions and lengths of path and data (-1 for null or absent); the
position of the ACL's count, and its number of entries (-1); the ephemeral byte; its 32-bit number; its TTL; position and length of the
list of paths or transactions (-1); whether its rows are enough to write the same bytes; its end; version (`NO_DIGEST` for none) and
value of the digest."""
MEASURES = 18
NO_DIGEST = -(1 << 62)

SOUND, SHORT, BAD_LENGTH, UNSUPPORTED, NO_HEADER = range(5)
"""Status of a body: sound; too short; with an impossible length; of a type that no reader knows; without even a header."""
_MAX_LENGTH = 2 * 0xFFFFF
"""Longer lengths are refused before the remaining bytes are checked (`BinaryInputArchive.checkLength`)."""


@kernel("const u1[], i8, i8, i8, i8, i8[,], i8")
def measure_body(buf: Bytes, kind: int, fields: int, at: int, end: int, out: Int64s, i: int) -> int:
    """Read a body of these fields at `at` into column `i` of `out`, and return its status. Lists are skipped, transactions are not."""
    out[TYPE, i] = kind
    out[FIELDS, i] = fields
    out[PATH_AT, i] = at
    out[PATH_LENGTH, i] = NULL
    out[DATA_AT, i] = at
    out[DATA_LENGTH, i] = NULL
    out[ACL_AT, i] = at
    out[ACL_COUNT, i] = NULL
    out[FLAG, i] = 0
    out[VALUE, i] = 0
    out[TIME_TO_LIVE, i] = 0
    out[LIST_AT, i] = at
    out[LIST_COUNT, i] = NULL
    out[PLAIN, i] = 1
    out[END, i] = at
    out[DIGEST, i] = NO_DIGEST
    out[DIGEST_VALUE, i] = 0
    out[STATUS, i] = SHORT
    if fields & layout.PATH:
        length, stop = skip_bytes(buf, at, end)
        if stop < 0:
            if length < 0 or length > _MAX_LENGTH:
                out[STATUS, i] = BAD_LENGTH
            return int(out[STATUS, i])
        out[PATH_AT, i] = at + 4
        out[PATH_LENGTH, i] = length
        if not is_plain(buf, at + 4, stop):
            out[PLAIN, i] = 0
        at = stop
    if fields & layout.DATA:
        length, stop = skip_bytes(buf, at, end)
        if stop < 0:
            if length < 0 or length > _MAX_LENGTH:
                out[STATUS, i] = BAD_LENGTH
            return int(out[STATUS, i])
        out[DATA_AT, i] = at + 4
        out[DATA_LENGTH, i] = length
        at = stop
    if fields & layout.ACLS:
        count, stop, plain = skip_acl(buf, at, end)
        if stop < 0:
            return SHORT
        out[ACL_AT, i] = at
        out[ACL_COUNT, i] = count
        if not plain:
            out[PLAIN, i] = 0
        at = stop
    if fields & layout.EPHEMERAL:
        if at >= end:
            return SHORT
        flag = load_u8(buf, at)
        out[FLAG, i] = flag
        if flag > 1:
            out[PLAIN, i] = 0
        at += 1
    if fields & layout.NUMBER:
        if end - at < 4:
            return SHORT
        out[VALUE, i] = load_i32be(buf, at)
        at += 4
    if fields & layout.TTL:
        if end - at < 8:
            return SHORT
        out[TIME_TO_LIVE, i] = load_i64be(buf, at)
        at += 8
    if fields & layout.PATHS:
        if end - at < 4:
            return SHORT
        count = load_i32be(buf, at)
        out[LIST_AT, i] = at
        out[LIST_COUNT, i] = max(count, NULL)
        if count < 0:
            # A null vector looks like a missing body, and other negative counts look like an empty vector.
            out[PLAIN, i] = 0
            if count < NULL:
                out[LIST_COUNT, i] = 0
        at += 4
        # Of a count that is too large, a server reads strings up to the end of the bytes or to a bad length.
        for _ in range(count):
            length, stop = skip_bytes(buf, at, end)
            if stop < 0:
                if length < 0 or length > _MAX_LENGTH:
                    out[STATUS, i] = BAD_LENGTH
                return int(out[STATUS, i])
            if not is_plain(buf, at + 4, stop):
                out[PLAIN, i] = 0
            at = stop
    out[END, i] = at
    out[STATUS, i] = SOUND
    return SOUND


@kernel("const u1[], i8, i8, i8, i8, i8[,], i8")
def measure_single(buf: Bytes, kind: int, fields: int, at: int, end: int, out: Int64s, i: int) -> int:
    """Read the body of a transaction that is no multi, and is in none, and return its status."""
    if kind == layout.CLOSE_SESSION:
        # The body may be missing, and a digest may follow: see `layout`. A server does not start on a length that is too large.
        digest = end - at >= layout.DIGEST_SIZE and load_i32be(buf, at) == layout.DIGEST_VERSION
        if not digest or end - at > layout.DIGEST_SIZE:
            status = measure_body(buf, kind, fields, at, end, out, i)
            if status == SOUND or (status == BAD_LENGTH and not digest):
                return status
        return measure_body(buf, kind, 0, at, end, out, i)
    status = measure_body(buf, kind, fields, at, end, out, i)
    if status == SHORT and kind == layout.CREATE:
        status = measure_body(buf, kind, fields & ~layout.NUMBER, at, end, out, i)
    return status


@kernel("const u1[], i8, i8, i8, const i8[], i8[,], i8")
def measure_sub(
    buf: Bytes, at: int, end: int, recipes_from: int, recipes: Int64s, out: Int64s, i: int
) -> int:
    """Read a transaction of a multi at `at` into column `i` of `out`. Return where it ends, -1 if it is not sound."""
    if end - at < _SUB_MIN:
        return -1
    kind = load_i32be(buf, at)
    length = load_i32be(buf, at + layout.SUB_DATA_AT)
    start = at + layout.SUB_DATA_AT + 4
    if length < 0 or length > end - start:
        return -1
    stop = start + length
    fields = 0
    if recipes_from <= kind < recipes_from + len(recipes):
        fields = recipes[kind - recipes_from]
    if measure_body(buf, kind, fields, start, stop, out, i) != SOUND:
        return -1
    if fields == 0:
        out[PLAIN, i] = 0  # unknown type: no reader applies it, nor what follows
        out[END, i] = stop
    return int(stop) if out[END, i] == stop else -1


@kernel("const u1[], i8, i8, i8")
def behind_parts(buf: Bytes, at: int, end: int, count: int) -> int:
    """Return where the transactions of a multi end, by their lengths alone; -1 if they do not fit."""
    for _ in range(count):
        if end - at < _SUB_MIN:
            return -1
        length = load_i32be(buf, at + layout.SUB_DATA_AT)
        at += layout.SUB_DATA_AT + 4
        if length < 0 or length > end - at:
            return -1
        at += length
    return at


_AHEAD = 8


@kernel("const u1[], const i8[], const i8[], const i8[], const i8[], i8, i8[,], i8[,]")
def measure_all(
    buf: Bytes,
    starts: Int64s,
    ends: Int64s,
    recipes: Int64s,
    sub_recipes: Int64s,
    lowest: int,
    out: Int64s,
    scratch: Int64s,
) -> int:
    """Read the payloads `buf[starts[i] : ends[i]]` into the columns of `out`. Return the number of transactions in all multis."""
    total = 0
    for i in range(len(starts)):
        # Touch the first and last bytes of several payloads at once, so that their cache misses overlap.
        ahead = min(i + _AHEAD, len(starts) - 1)
        prefetch(buf, starts[ahead])
        prefetch(buf, starts[ahead] + 64)
        prefetch(buf, ends[ahead] - 1)
        at = starts[i]
        end = ends[i]
        if end - at < layout.TXN_HEADER:
            measure_body(buf, 0, 0, at, end, out, i)
            out[STATUS, i] = NO_HEADER
            continue
        kind = load_i32be(buf, at + layout.TYPE_AT)
        at += layout.TXN_HEADER
        fields = 0
        if lowest <= kind < lowest + len(recipes):
            fields = recipes[kind - lowest]
        if fields == 0:
            measure_body(buf, kind, 0, at, end, out, i)
            out[STATUS, i] = UNSUPPORTED
            continue
        if fields & layout.TXNS:
            measure_body(buf, kind, 0, at, end, out, i)
            out[FIELDS, i] = fields
            out[STATUS, i] = SHORT
            if end - at < 4:
                continue
            count = load_i32be(buf, at)
            out[LIST_AT, i] = at
            out[LIST_COUNT, i] = max(count, NULL)
            if count < NULL:
                out[LIST_COUNT, i] = 0
            at += 4
            if count > (end - at) // _SUB_MIN:
                continue
            plain = int(count >= 0)
            for _ in range(count):
                at = measure_sub(buf, at, end, lowest, sub_recipes, scratch, 0)
                if at < 0:
                    break
                plain &= scratch[PLAIN, 0]
            if at < 0:
                # A server parses the parts of a multi only when it applies them, after it has read the digest.
                at = behind_parts(buf, out[LIST_AT, i] + 4, end, count)
                if at >= 0 and end - at >= layout.DIGEST_SIZE:
                    out[DIGEST, i] = load_i32be(buf, at)
                    out[DIGEST_VALUE, i] = load_i64be(buf, at + layout.TREE_DIGEST_AT)
                continue
            if not plain:
                out[PLAIN, i] = 0
            out[STATUS, i] = SOUND
            total += max(count, 0)
        else:
            if measure_single(buf, kind, fields, at, end, out, i) != SOUND:
                continue
            at = out[END, i]
        if end - at >= layout.DIGEST_SIZE:
            out[DIGEST, i] = load_i32be(buf, at)
            out[DIGEST_VALUE, i] = load_i64be(buf, at + layout.TREE_DIGEST_AT)
            at += layout.DIGEST_SIZE
        if at < end:
            out[PLAIN, i] = 0
        out[END, i] = at
    return total


@kernel("const u1[], const i8[], const i8[], const i8[], const i8[], i8, i8[,], i8[]")
def measure_subs(
    buf: Bytes,
    at: Int64s,
    counts: Int64s,
    ends: Int64s,
    sub_recipes: Int64s,
    lowest: int,
    out: Int64s,
    owner: Int64s,
) -> int:
    """Read the transactions of sound multis, `counts[i]` of them at `at[i]`. `owner` gets the multi of each."""
    n = 0
    for i in range(len(at)):
        pos = at[i] + 4
        for _ in range(counts[i]):
            pos = measure_sub(buf, pos, ends[i], lowest, sub_recipes, out, n)
            owner[n] = i
            n += 1
    return n


# Columns

_NAMES = contents(
    pa.string(),
    [
        layout.TYPE_NAMES.get(kind, f"unknown {kind}").encode()
        for kind in range(layout.LOWEST, layout.HIGHEST + 1)
    ],
)


_BIT_OF = {**layout.BITS, "path_raw": layout.PATH, "acl_raw": layout.ACLS}
"""The field of each column."""
TXN_TYPE = pa.struct(
    [
        pa.field("type", pa.string()),
        pa.field("path", pa.string()),
        pa.field("data", pa.binary()),
        pa.field("acl", ACL_TYPE),
        pa.field("ephemeral", pa.bool_()),
        pa.field("parent_cversion", pa.int32()),
        pa.field("version", pa.int32()),
        pa.field("ttl", pa.int64()),
        pa.field("err", pa.int32()),
    ]
)
"""A transaction of a multi."""
TXNS_TYPE = pa.list_(TXN_TYPE)


@dataclass
class Bodies:
    """Measured bodies of one buffer, one per column of `measures`: `measures[PATH_AT]` holds the positions of all paths."""

    buf: Bytes
    measures: Int64s

    def __len__(self) -> int:
        return int(self.measures.shape[1])

    @classmethod
    def of(cls, buf: Bytes, starts: Int64s, ends: Int64s) -> tuple[Bodies, int]:
        """Return the bodies of payloads, and the number of transactions in the multis among them."""
        out, scratch = np.empty((MEASURES, len(starts)), np.int64), np.empty((MEASURES, 1), np.int64)
        total = measure_all(
            buf, starts, ends, layout.RECIPE_ARRAY, layout.SUB_RECIPE_ARRAY, layout.LOWEST, out, scratch
        )
        return cls(buf, out), int(total)

    def pick(self, which: Bools | Int64s) -> Bodies:
        return Bodies(self.buf, np.ascontiguousarray(self.measures[:, which]))

    def subs(self, ends: Int64s, total: int) -> tuple[Bodies, Int64s]:
        """Return the transactions of sound multis, and the body that each belongs to. `ends` is where payloads end."""
        out, owner = np.empty((MEASURES, total), np.int64), np.empty(total, np.int64)
        if not total:
            return Bodies(self.buf, out), owner
        counts = np.where(self.in_multis, np.maximum(self.measures[LIST_COUNT], 0), 0)
        at = self.measures[LIST_AT]
        measure_subs(self.buf, at, counts, ends, layout.SUB_RECIPE_ARRAY, layout.LOWEST, out, owner)
        return Bodies(self.buf, out), owner

    def digest(self, name: str) -> tuple[Int64s, Int64s]:
        """Return digest_version or tree_digest of each body, and the versions, `NO_DIGEST` for none."""
        return self.measures[DIGEST if name == "digest_version" else DIGEST_VALUE], self.measures[DIGEST]

    @property
    def in_multis(self) -> Bools:
        which: Bools = (self.measures[FIELDS] & layout.TXNS != 0) & (self.measures[STATUS] == SOUND)
        return which

    def joined(self, other: Bodies, order: Int64s) -> Bodies:
        """Return these bodies and others of the same buffer in a given order."""
        return Bodies(
            self.buf, np.ascontiguousarray(np.concatenate((self.measures, other.measures), axis=1)[:, order])
        )

    # Columns

    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        """Return a column of body fields."""
        measured = self.measures
        if name == "type":
            return type_names(measured[TYPE])
        bit = _BIT_OF.get(name)
        if bit is not None and not self._present & bit:
            return pa.nulls(len(self), kind)
        if name in ("path", "path_raw"):
            stored = self._bytes(PATH_AT, PATH_LENGTH)
            text, wrong = _text(stored, plain=self._plain)
            if name == "path":
                return text
            return pa.nulls(len(self), kind) if wrong is None else _where(stored, wrong)
        if name == "data":
            return self._bytes(DATA_AT, DATA_LENGTH)
        if name == "acl":
            return self.acl()[0]
        if name == "acl_raw":
            return self.acl()[1]
        if name == "ephemeral":
            return numbers(kind, measured[FLAG] != 0, measured[FIELDS] & layout.EPHEMERAL == 0)
        if name == "ttl":
            return numbers(kind, measured[TIME_TO_LIVE].copy(), measured[FIELDS] & layout.TTL == 0)
        if name == "paths_to_delete":
            return self.paths()
        null = self._numbers != layout.NUMBERS.index(name)
        if null.all():
            return pa.nulls(len(self), kind)
        return numbers(kind, np.where(null, 0, measured[VALUE]), null)

    @cached_property
    def _present(self) -> int:
        """Return the fields that at least one body has."""
        return int(np.bitwise_or.reduce(self.measures[FIELDS]))

    @cached_property
    def _numbers(self) -> Int8s:
        """Return which of `NUMBERS` the 32-bit number of each body is; -1 if it has none."""
        types, fields = self.measures[TYPE], self.measures[FIELDS]
        place = np.clip(types, layout.LOWEST, layout.HIGHEST) - layout.LOWEST
        has = (fields & layout.NUMBER != 0) & (types == place + layout.LOWEST)
        return np.where(has, layout.NUMBER_FIELD[place], np.int8(-1))

    def _bytes(self, at: int, length: int) -> pa.Array:
        return binary(self.buf, self.measures[at], self.measures[length])

    @cached_property
    def _plain(self) -> bool:
        return bool(self.measures[PLAIN].all())

    def acl(self) -> tuple[pa.Array, pa.Array]:
        """As `acls_of`."""
        return acls_of(self.buf, self.measures[ACL_AT], self.measures[ACL_COUNT], plain=self._plain)

    def paths(self) -> pa.Array:
        """Return the paths that a closeSession deletes."""
        has = self.measures[FIELDS] & layout.PATHS != 0
        counts = np.where(has, self.measures[LIST_COUNT], NULL)
        return paths_of(self.buf, self.measures[LIST_AT], counts, plain=self._plain)

    def txns(self, subs: Bodies) -> pa.Array:
        """Return the transactions of multis as nested values. `subs` are the transactions of all of them."""
        if not (self.measures[FIELDS] & layout.TXNS).any():
            return pa.nulls(len(self), TXNS_TYPE)
        has = self.in_multis
        counts = np.where(has, self.measures[LIST_COUNT], NULL)
        children = [subs.column(child_type.name, child_type.type) for child_type in TXN_TYPE]
        return list_of(pa.StructArray.from_arrays(children, fields=list(TXN_TYPE)), counts)


def _text(stored: pa.Array, *, plain: bool) -> tuple[pa.Array, Bools | None]:
    """As `java_strings`. `plain` text is known to be UTF-8."""
    return (stored.view(pa.string()), None) if plain else java_strings(stored)


def acls_of(buf: Bytes, at: Int64s, counts: Int64s, *, plain: bool) -> tuple[pa.Array, pa.Array]:
    """Return the ACL lists at the positions `at`, of `counts` entries (-1 for null): with strings as Java reads them, and in raw form
    where these are not UTF-8."""
    raw = acl_lists(buf, at, counts)
    perms, *stored = (raw.values.field(k) for k in range(3))
    texts = [_text(strings, plain=plain) for strings in stored]
    lists = acl_column(ACL_TYPE, [perms, *(text for text, _ in texts)], counts)
    wrong = np.zeros(len(perms), np.bool_)
    for _, bad in texts:
        if bad is not None:
            wrong |= bad
    if not wrong.any():
        return lists, constant(ACL_RAW_TYPE, None, len(at))
    before = np.concatenate(([0], np.cumsum(wrong)))
    ends = np.asarray(raw.offsets)
    return lists, _where(raw, before[ends[1:]] > before[ends[:-1]])


def paths_of(buf: Bytes, at: Int64s, counts: Int64s, *, plain: bool) -> pa.Array:
    """Return the lists of paths at the positions `at`, of `counts` entries (-1 for null), as Java reads them."""
    sizes = np.maximum(counts, 0)
    starts, lengths = np.empty(int(sizes.sum()), np.int64), np.empty(int(sizes.sum()), np.int64)
    string_entries(buf, at, sizes, starts, lengths)
    return list_of(_text(binary(buf, starts, lengths), plain=plain)[0], counts)


def type_names(types: Int64s) -> pa.Array:
    """Return ZooKeeper's names of types; "unknown 99" for others."""
    if len(types) and (types == types[0]).all():
        kind = int(types[0])
        return constant(pa.string(), layout.TYPE_NAMES.get(kind, f"unknown {kind}"), len(types))
    known = (types >= layout.LOWEST) & (types <= layout.HIGHEST)
    if known.all():
        return _NAMES.take(numbers(pa.int64(), types - layout.LOWEST))
    names = [layout.TYPE_NAMES.get(kind, f"unknown {kind}").encode() for kind in types.tolist()]
    return contents(pa.string(), names)


def _where(values: pa.Array, keep: Bools) -> pa.Array:
    """Return the values where the condition holds, null elsewhere."""
    return values.take(numbers(pa.int64(), np.arange(len(values)), ~keep))
