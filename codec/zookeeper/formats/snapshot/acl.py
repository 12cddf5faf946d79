"""The ACL table of a snapshot: lists of ACLs, by the numbers that nodes refer to.

A server assigns the numbers 1, 2, 3 in the order in which it meets new lists. The number -1 is not in the table and means that anyone may
do anything. Source: `ReferenceCountedACLCache` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Int32s, Int64s
from logwright.codec.columns import numbers
from logwright.codec.describe import I32BE, I64BE, Field, Repeated, Struct
from logwright.codec.java import java_strings
from logwright.codec.kernels.intrinsics import load_i32be, load_i64be, store_32be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.formats.snapshot.layout import OPEN_ACL
from logwright.codec.zookeeper.jute import (
    ACL_LIST,
    ACL_MIN,
    ACL_RAW_TYPE,
    ACL_TYPE,
    NULL,
    Strings,
    acl_lists,
    jute_string,
    put_bytes,
    raw_lists,
    skip_acl,
)

ENTRY = Struct(
    "acl_entry",
    Field("id", I64BE, "the number by which nodes refer to the list"),
    Field("acl", ACL_LIST, "the list"),
    source="org.apache.zookeeper.server.ReferenceCountedACLCache.serialize",
)
ACLS = Struct(
    "acls",
    Field("entries", Repeated(ENTRY, I32BE)),
    doc="The ACL table.",
    source="org.apache.zookeeper.server.ReferenceCountedACLCache.serialize",
)
_ENTRY_MIN = ENTRY.min_size
_LIST = ENTRY.offset("acl")
PERMS_ALL = 31
OPEN = [{"perms": PERMS_ALL, "scheme": b"world", "id": b"anyone"}]
"""The meaning of -1 (`ZooDefs.Ids.OPEN_ACL_UNSAFE`)."""


@kernel("const u1[], i8, i8, i8[], i8[], i8[]")
def measure(
    buf: Bytes, at: int, end: int, ids: Int64s, lists: Int64s, counts: Int64s
) -> tuple[int, int, int]:
    """Read the entries of a table from its count on, as many as fit the arrays: (entries, end of the last one, 1 if that is the end of
    the table). `lists` gets the positions of their lists."""
    left = max(load_i32be(buf, at), 0)
    at += 4
    n = 0
    while n < left and n < len(ids):
        if end - at < _ENTRY_MIN:
            return n, at, 0
        count, stop, _ = skip_acl(buf, at + _LIST, end)
        if stop < 0 or count == NULL:
            return n, at, 0
        ids[n] = load_i64be(buf, at)
        lists[n] = at + _LIST
        counts[n] = count
        n += 1
        at = stop
    return n, at, 1 if n == left else 0


@dataclass
class AclTable:
    """Lists by number, in the order of the file. `lists` are of the raw type. Of a number that occurs twice, the last list counts."""

    ids: Int64s
    lists: pa.Array
    known_ids: Int64s = field(init=False)
    """The distinct numbers in ascending order."""
    _places: Int64s = field(init=False)
    _same: dict[int, pa.Array] = field(init=False, default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        order = np.argsort(self.ids, kind="stable")
        ordered = self.ids[order]
        last = np.append(ordered[1:] != ordered[:-1], True) if len(ordered) else np.zeros(0, np.bool_)
        self.known_ids, self._places = np.ascontiguousarray(ordered[last]), order[last]

    @classmethod
    def empty(cls) -> AclTable:
        return cls(np.zeros(0, np.int64), pa.array([], ACL_RAW_TYPE))

    @classmethod
    def parse(cls, buf: Bytes, at: int, end: int) -> tuple[AclTable, int, bool]:
        """Parse the table whose count is at `at`: (the readable entries, where they end, whether the table is complete)."""
        if end - at < 4:
            return cls.empty(), at, False
        most = min(max(load_i32be(buf, at), 0), (end - at - 4) // _ENTRY_MIN)
        ids, places, counts = (np.zeros(most, np.int64) for _ in range(3))
        n, stop, complete = measure(buf, at, end, ids, places, counts)
        complete = bool(complete) and n == max(load_i32be(buf, at), 0)
        return cls(ids[:n], acl_lists(buf, places[:n], counts[:n])), stop, complete

    def places(self, numbers: Int64s) -> Int64s:
        """Return the index in `known_ids` of each of these numbers: -1 if it is unknown, `len(known_ids)` for number -1."""
        low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
        if low == high and len(numbers) > 1:
            return np.full(len(numbers), self.places(numbers[:1])[0])
        out = np.searchsorted(self.known_ids, numbers)
        inside = np.minimum(out, max(len(self.known_ids) - 1, 0))
        known = self.known_ids[inside] == numbers if len(self.known_ids) else np.zeros(len(numbers), np.bool_)
        return np.where(numbers == OPEN_ACL, len(self.known_ids), np.where(known, out, -1))

    def taken(self, places: Int64s) -> pa.Array:
        """Return the lists at these indices (see `places`) as text; null for an index below 0."""
        if not len(places) or places[0] < 0 or (places != places[0]).any():
            return self.text[0].take(numbers(pa.int64(), np.maximum(places, 0), places < 0))
        # Where all rows have the same list, return a slice of a cached column.
        kept = self._same.get(int(places[0]))
        if kept is None or len(kept) < len(places):
            kept = self.text[0].take(
                numbers(pa.int64(), np.full(1 << (len(places) - 1).bit_length(), places[0]))
            )
            self._same = {int(places[0]): kept}
        return kept.slice(0, len(places))

    @cached_property
    def raw(self) -> pa.Array:
        """The lists in the order of `known_ids`, then the open ACL."""
        return pa.concat_arrays(
            [self.lists.take(numbers(pa.int64(), self._places)), pa.array([OPEN], ACL_RAW_TYPE)]
        )

    @cached_property
    def text(self) -> tuple[pa.Array, Bools]:
        """The same lists as text, and which of them differ from the stored bytes."""
        raw = self.raw
        parts, wrong = [raw.values.field("perms")], np.zeros(len(raw.values), np.bool_)
        for name in ("scheme", "id"):
            stored = raw.values.field(name)
            decoded, bad = texts(stored)
            parts.append(decoded)
            wrong |= bad
        entries = pa.StructArray.from_arrays(parts, fields=list(ACL_TYPE.value_type))
        before = np.concatenate(([0], np.cumsum(wrong)))
        ends = np.asarray(raw.offsets)
        return pa.ListArray.from_arrays(raw.offsets, entries), before[ends[1:]] > before[ends[:-1]]


def texts(stored: pa.Array) -> tuple[pa.Array, Bools]:
    """Decode a binary column as Java does. Return the text, and which values Java would encode to other bytes."""
    content = stored.buffers()[2]
    if content is None or not content.size or np.frombuffer(content, np.int8).min() >= 0:
        return stored.view(pa.string()), np.zeros(len(stored), np.bool_)  # ASCII
    decoded, wrong = java_strings(stored)
    if wrong is None:
        wrong = np.zeros(len(stored), np.bool_)
    data = stored.buffers()[2]
    if data is not None and (np.frombuffer(data, np.uint8) >= 0xF0).any():
        # ZooKeeper writes characters above U+FFFF as six bytes.
        for i, value in enumerate(stored.to_pylist()):
            wrong[i] |= value is not None and jute_string(value.decode("utf-8", "replace")) != value
    return decoded, wrong


@kernel("const i4[], const i8[], Strings, Strings, u1[], i4[]")
def pack_lists(
    ends: Int32s, perms: Int64s, schemes: Strings, names: Strings, out: Bytes, stops: Int32s
) -> int:
    """Write lists as consecutive vectors: list `i` holds the entries `ends[i]` to `ends[i + 1]`. `stops` becomes Arrow's offsets."""
    at = 0
    stops[0] = 0
    for i in range(len(ends) - 1):
        at = store_32be(out, at, ends[i + 1] - ends[i])
        for k in range(ends[i], ends[i + 1]):
            at = store_32be(out, at, perms[k])
            at = put_bytes(out, at, schemes, k)
            at = put_bytes(out, at, names, k)
        stops[i + 1] = at
    return at


def packed(lists: pa.Array) -> pa.Array:
    """Encode lists of the raw type in jute, as a binary column; a null list is null."""
    entries = lists.flatten()
    ends = np.zeros(len(lists) + 1, np.int32)
    np.cumsum(np.asarray(lists.value_lengths().fill_null(0)), out=ends[1:])
    parts = entries.flatten()
    perms = np.asarray(parts[0].fill_null(0)).astype(np.int64)
    schemes, names = Strings.of(parts[1]), Strings.of(parts[2])
    size = 4 * len(lists) + ACL_MIN * len(entries) + len(schemes.data) + len(names.data)
    out, stops = np.empty(size, np.uint8), np.empty(len(lists) + 1, np.int32)
    pack_lists(ends, perms, schemes, names, out, stops)
    valid = None if not lists.null_count else lists.is_valid().buffers()[1]
    return pa.Array.from_buffers(pa.binary(), len(lists), [valid, pa.py_buffer(stops), pa.py_buffer(out)])


def packed_list(acl: Sequence[Mapping[str, Any]]) -> bytes:
    """Encode one list of the raw type."""
    content: bytes = packed(pa.array([acl], ACL_RAW_TYPE))[0].as_py()
    return content


def packed_text(acl: Sequence[Mapping[str, Any]]) -> bytes:
    """Encode one list whose names are text."""
    content: bytes = packed(raw_lists(pa.array([acl], ACL_TYPE), None))[0].as_py()
    return content


def table_bytes(ids: Sequence[int], lists: Sequence[bytes]) -> bytes:
    """Return the stored table, from lists that are encoded already."""
    parts = [I32BE.pack(len(ids), {})]
    for number, content in zip(ids, lists, strict=True):
        parts += I64BE.pack(number, {}), content
    return b"".join(parts)
