"""Kernels that write transactions. Bodies are measured first, then each is written at its position.

Source: `SerializeUtils.serializeTxn`, `FileTxnLog.append` of ZooKeeper, and its `zookeeper.jute`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Int32s, Int64s
from logwright.codec.kernels.adler32 import adler32
from logwright.codec.kernels.intrinsics import copy, store_32be, store_64be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.formats.txnlog import layout
from logwright.codec.zookeeper.formats.txnlog.bodies import NO_DIGEST
from logwright.codec.zookeeper.formats.txnlog.columns import TxnColumns, ends_of, list_ends
from logwright.codec.zookeeper.formats.txnlog.scan import BODY
from logwright.codec.zookeeper.jute import NULL, Strings, put_bytes, stored_strings, validity

# Kernels


@kernel(
    "const i8[], Strings, Strings, const i4[], const u1[], const i8[], Strings, Strings, const i8[], const i8[], const i8[], const i4[],"
    " Strings, const i8[], u1[]"
)
def put_bodies(
    fields: Int64s,
    path: Strings,
    data: Strings,
    acl_ends: Int32s,
    acl_valid: Bytes,
    perms: Int64s,
    scheme: Strings,
    id_: Strings,
    flags: Int64s,
    values: Int64s,
    ttls: Int64s,
    list_ends: Int32s,
    paths: Strings,
    at: Int64s,
    out: Bytes,
) -> None:
    """Write bodies of these fields, each at its position in `out`."""
    for i in range(len(fields)):
        has = fields[i]
        pos = at[i]
        if has & layout.PATH:
            pos = put_bytes(out, pos, path, i)
        if has & layout.DATA:
            pos = put_bytes(out, pos, data, i)
        if has & layout.ACLS:
            if acl_valid[i]:
                pos = store_32be(out, pos, acl_ends[i + 1] - acl_ends[i])
                for k in range(acl_ends[i], acl_ends[i + 1]):
                    pos = store_32be(out, pos, perms[k])
                    pos = put_bytes(out, pos, scheme, k)
                    pos = put_bytes(out, pos, id_, k)
            else:
                pos = store_32be(out, pos, NULL)
        if has & layout.EPHEMERAL:
            out[pos] = flags[i]
            pos += 1
        if has & layout.NUMBER:
            pos = store_32be(out, pos, values[i])
        if has & layout.TTL:
            pos = store_64be(out, pos, ttls[i])
        if has & layout.PATHS:
            # If the list is null, the field is left out.
            pos = store_32be(out, pos, list_ends[i + 1] - list_ends[i])
            for k in range(list_ends[i], list_ends[i + 1]):
                pos = put_bytes(out, pos, paths, k)


@kernel("const i8[], const i8[], const i8[], const u1[], const i8[], const i8[], u1[]")
def put_multis(
    lows: Int64s, highs: Int64s, kinds: Int64s, subs: Bytes, sub_ends: Int64s, at: Int64s, out: Bytes
) -> None:
    """Write the bodies of multis: the transactions `lows[i]` to `highs[i]`, whose bodies are in `subs`."""
    for i in range(len(at)):
        pos = store_32be(out, at[i], highs[i] - lows[i])
        for k in range(lows[i], highs[i]):
            length = sub_ends[k + 1] - sub_ends[k]
            store_32be(out, pos, kinds[k])
            store_32be(out, pos + layout.SUB_DATA_AT, length)
            copy(out, pos + layout.SUB_DATA_AT + 4, subs, sub_ends[k], length)
            pos += layout.SUB_DATA_AT + 4 + length


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
    """Write record headers, digests and end marks around bodies: record `i` is `out[starts[i] : starts[i + 1]]`. It has a digest if its
    version is not `NO_DIGEST`."""
    for i in range(len(sessions)):
        at = starts[i] + BODY
        end = starts[i + 1] - 1
        store_32be(out, starts[i] + layout.LENGTH, end - at)
        store_64be(out, at, sessions[i])
        store_32be(out, at + layout.CXID_AT, cxids[i])
        store_64be(out, at + layout.ZXID_AT, zxids[i])
        store_64be(out, at + layout.TIME_AT, times[i])
        store_32be(out, at + layout.TYPE_AT, kinds[i])
        if versions[i] != NO_DIGEST:
            store_32be(out, end - layout.DIGEST_SIZE, versions[i])
            store_64be(out, end - layout.DIGEST_SIZE + layout.TREE_DIGEST_AT, digests[i])
        out[end] = layout.EOR
        store_64be(out, starts[i], adler32(out, at, end))


# Sizes


class Bodies:
    """Measured bodies of rows, which `put` writes. `fields` are the fields of each; multis have none here."""

    def __init__(self, columns: TxnColumns, kinds: Int64s, fields: Int64s) -> None:
        self.kinds, self.fields = kinds, fields
        self.path = Strings.of(columns.path())
        self.data = Strings.of(columns.get("data", pa.binary()))
        lists = columns.acl()
        self.acl_ends, entries = list_ends(lists)
        self.acl_valid = validity(lists)
        self.perms = np.asarray(entries.field(0).cast(pa.int64()).fill_null(0), np.int64)
        self.scheme, self.id = (Strings.of(entries.field(k)) for k in (1, 2))
        flags = columns.get("ephemeral", pa.bool_())
        self.flags = self.values = np.zeros(columns.count, np.int64)
        if flags.null_count < len(flags):
            self.flags = np.asarray(flags.fill_null(False)).astype(np.int64)
        named = {layout.NUMBER_OF[kind] for kind in columns.seen if kind in layout.NUMBER_OF}
        for name in named:
            # A create without this field, as written by versions up to 3.3.
            values = columns.number(name, -1 if name == "parent_cversion" else 0)
            mine = len(named) == 1 or layout.NUMBER_FIELD[kinds - layout.LOWEST] == layout.NUMBERS.index(name)
            self.values = values if mine is True else np.where(mine, values, self.values)
        self.ttls = columns.number("ttl", 0)
        paths = columns.get("paths_to_delete", pa.list_(pa.string()))
        self.list_ends, strings = list_ends(paths)
        self.list_valid = validity(paths)
        self.paths = Strings.of(stored_strings(strings))

    @property
    def sizes(self) -> Int64s:
        fields = self.fields
        out: Int64s = np.zeros(len(fields), np.int64)
        if not len(fields):
            return out
        any_fields, common = int(np.bitwise_or.reduce(fields)), int(np.bitwise_and.reduce(fields))
        for bit, size in self._parts:
            if any_fields & bit:
                each = size()
                out += each if common & bit else (fields & bit != 0) * each
        return out

    @property
    def _parts(self) -> tuple[tuple[int, Callable[[], Int64s | int]], ...]:
        """By field, its size in each body."""
        return (
            (layout.PATH, lambda: self.path.sizes),
            (layout.DATA, lambda: self.data.sizes),
            (
                layout.ACLS,
                lambda: _sums(4 + self.scheme.sizes + self.id.sizes, self.acl_ends) * self.acl_valid + 4,
            ),
            (layout.EPHEMERAL, lambda: 1),
            (layout.NUMBER, lambda: 4),
            (layout.TTL, lambda: 8),
            (layout.PATHS, lambda: _sums(self.paths.sizes, self.list_ends) * self.list_valid + 4),
        )

    def put(self, fields: Int64s, at: Int64s, out: Bytes) -> None:
        """Write these fields of each body at its position."""
        put_bodies(
            fields,
            self.path,
            self.data,
            self.acl_ends,
            self.acl_valid,
            self.perms,
            self.scheme,
            self.id,
            self.flags,
            self.values,
            self.ttls,
            self.list_ends,
            self.paths,
            np.ascontiguousarray(at),
            out,
        )


def _sums(sizes: Int64s, ends: Int32s) -> Int64s:
    before = ends_of(sizes)
    return before[ends[1:]] - before[ends[:-1]]
