"""The fast path of reading a log: rows in one pass over the bytes.

It serves portions of sound transactions with ASCII or plain UTF-8 text and without multis, which are nearly all portions of nearly all
logs. `rows.Rows` measures first; it gives the same rows for any other portion, and reports faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.arrays import Bools, Int32s, Int64s
from logwright.codec.columns import constant, numbers
from logwright.codec.kernels.intrinsics import append, is_ascii, load_i32be, load_i64be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes, Frames, Window
from logwright.codec.zookeeper.formats.txnlog import bodies, layout
from logwright.codec.zookeeper.formats.txnlog.bodies import acls_of, measure_single, paths_of, type_names
from logwright.codec.zookeeper.formats.txnlog.rows import ROWS
from logwright.codec.zookeeper.formats.txnlog.scan import BODY
from logwright.codec.zookeeper.formats.txnlog.tables import TxnLogContext
from logwright.codec.zookeeper.jute import NULL, PLAIN_TEXT, skip_bytes, text_kind

Int16s = npt.NDArray[np.int16]

_NUMBER_BITS = {name: layout.TXNS << (1 + i) for i, name in enumerate(layout.NUMBERS)}
"""By column, the bit of transactions that have it as their number."""
_ALL_NUMBERS = sum(_NUMBER_BITS.values())
_FIELDS = np.array(
    [
        int(layout.RECIPE_ARRAY[kind - layout.LOWEST]) | _NUMBER_BITS.get(layout.NUMBER_OF.get(kind, ""), 0)
        if layout.RECIPE_ARRAY[kind - layout.LOWEST]
        else 0
        for kind in range(layout.LOWEST, layout.HIGHEST + 1)
    ],
    np.int64,
)
"""By type, the fields of its bodies and the meaning of their number."""
_DATED = 2 * max(_NUMBER_BITS.values())
"""The bit of transactions that have a time."""
_SIMPLE = layout.PATH | layout.DATA | layout.NUMBER | _ALL_NUMBERS
"""Bodies with only these fields are read without being measured."""
_LISTS, _LIST_BITS = 6, layout.ACLS | layout.PATHS | layout.EPHEMERAL | layout.TTL
(_ACL_AT, _ACL_COUNT, _LIST_AT, _LIST_COUNT, _FLAG, _TTL) = range(_LISTS)
"""Measures that are kept of other bodies, if a portion has any."""
_MANY = -(1 << 40)
"""A pseudo-type for portions of several types."""


def fields_in(kinds: Int64s) -> tuple[int, int]:
    """Return the union of the fields of transactions, -1 if a type is unknown; and their common type, or `_MANY`."""
    if kinds.min() < layout.LOWEST or kinds.max() > layout.HIGHEST:
        return -1, _MANY
    present = np.flatnonzero(np.bincount(kinds - layout.LOWEST))
    fields = _FIELDS[present]
    union = int(np.bitwise_or.reduce(fields)) if fields.all() else -1
    return union, int(present[0]) + layout.LOWEST if len(present) == 1 else _MANY


@kernel(
    "const u1[], const i8[], const i8[], const i8[], i8, i8, i8[], i8[], i8[], i4[], i2[], i4[], i4[], u1[], i4[], u1[], i8[,], i8[,]"
)
def read_portion(
    buf: Bytes,
    starts: Int64s,
    ends: Int64s,
    all_fields: Int64s,
    lowest: int,
    stored_fields: int,
    zxids: Int64s,
    times: Int64s,
    sessions: Int64s,
    cxids: Int32s,
    has: Int16s,
    values: Int32s,
    path_ends: Int32s,
    paths: Bytes,
    data_ends: Int32s,
    data: Bytes,
    more: Int64s,
    measured: Int64s,
) -> tuple[int, int, int, int, int]:
    """Read the records `buf[starts[i] : ends[i]]`, none of which is a multi, into columns. Path and data are copied if they are in
    `stored_fields`. `has` gets the fields that have a value.

    Return the number of records before the first one that is not sound or whose text is not plain; the bytes of paths and of data; the
    fields that every record has, and the fields that any record has.
    """
    path_at = 0
    data_at = 0
    common = -1
    any_fields = 0
    keep = more.shape[1]
    path_ends[0] = 0
    data_ends[0] = 0
    for i in range(len(starts)):
        at = starts[i] + BODY
        end = ends[i] - 1
        if end - at < layout.TXN_HEADER:
            return i, path_at, data_at, common, any_fields
        sessions[i] = load_i64be(buf, at + layout.CLIENT_AT)
        cxids[i] = load_i32be(buf, at + layout.CXID_AT)
        zxids[i] = load_i64be(buf, at + layout.ZXID_AT)
        times[i] = load_i64be(buf, at + layout.TIME_AT)
        place = load_i32be(buf, at + layout.TYPE_AT) - lowest
        if place < 0 or place >= len(all_fields):
            return i, path_at, data_at, common, any_fields
        fields = all_fields[place]
        value = 0
        path_start = 0
        path_length = NULL
        data_start = 0
        data_length = NULL
        if fields & ~_SIMPLE:
            at += layout.TXN_HEADER
            recipe = fields & (layout.TXNS - 1)
            status = measure_single(buf, place + lowest, recipe, at, end, measured, 0)
            if status != bodies.SOUND or measured[bodies.PLAIN, 0] == 0 or not keep:
                return i, path_at, data_at, common, any_fields
            if not measured[bodies.FIELDS, 0] & layout.NUMBER:
                fields &= ~_ALL_NUMBERS
            fields &= measured[bodies.FIELDS, 0] | _ALL_NUMBERS
            path_start = measured[bodies.PATH_AT, 0]
            path_length = measured[bodies.PATH_LENGTH, 0]
            data_start = measured[bodies.DATA_AT, 0]
            data_length = measured[bodies.DATA_LENGTH, 0]
            value = measured[bodies.VALUE, 0]
            more[_ACL_AT, i] = measured[bodies.ACL_AT, 0]
            more[_ACL_COUNT, i] = measured[bodies.ACL_COUNT, 0]
            more[_LIST_AT, i] = measured[bodies.LIST_AT, 0]
            more[_LIST_COUNT, i] = measured[bodies.LIST_COUNT, 0]
            more[_FLAG, i] = measured[bodies.FLAG, 0]
            more[_TTL, i] = measured[bodies.TIME_TO_LIVE, 0]
        elif fields:
            at += layout.TXN_HEADER
            if fields & layout.PATH:
                path_length, stop = skip_bytes(buf, at, end)
                if stop < 0:
                    return i, path_at, data_at, common, any_fields
                # Nearly all text is ASCII, and a call of a kernel takes as long as this test.
                if (
                    path_length > 0
                    and not is_ascii(buf, at + 4, path_length)
                    and text_kind(buf, at + 4, stop) != PLAIN_TEXT
                ):
                    return i, path_at, data_at, common, any_fields
                path_start = at + 4
                at = stop
            if fields & layout.DATA:
                data_length, stop = skip_bytes(buf, at, end)
                if stop < 0:
                    return i, path_at, data_at, common, any_fields
                data_start = at + 4
                at = stop
            if fields & layout.NUMBER:
                if end - at < 4:
                    return i, path_at, data_at, common, any_fields
                value = load_i32be(buf, at)
            if keep:
                more[_ACL_AT, i] = at
                more[_ACL_COUNT, i] = NULL
                more[_LIST_AT, i] = at
                more[_LIST_COUNT, i] = NULL
                more[_FLAG, i] = 0
                more[_TTL, i] = 0
        else:
            return i, path_at, data_at, common, any_fields
        values[i] = value
        if path_length < 0:
            fields &= ~layout.PATH
        elif stored_fields & layout.PATH:
            append(paths, path_at, buf, path_start, path_length)
            path_at += path_length
        path_ends[i + 1] = path_at
        if data_length < 0:
            fields &= ~layout.DATA
        elif stored_fields & layout.DATA:
            append(data, data_at, buf, data_start, data_length)
            data_at += data_length
        data_ends[i + 1] = data_at
        if times[i] != -1:
            fields |= _DATED
        has[i] = fields
        common &= fields
        any_fields |= fields
    return len(starts), path_at, data_at, common, any_fields


_ELSEWHERE = frozenset(("digest_version", "tree_digest"))
"""Columns that only `Rows` makes."""


def rows_at_once(
    window: Window, frames: Frames, columns: Sequence[str], context: TxnLogContext
) -> pa.RecordBatch | None:
    """Return the rows of transactions, or None if `Rows` has to make them."""
    if not len(frames) or not columns or not _ELSEWHERE.isdisjoint(columns):
        return None
    fields, kind = fields_in(np.ascontiguousarray(frames.header["type"]))
    if fields < 0 or fields & layout.TXNS:
        return None
    portion = _Portion(window, frames, fields, columns)
    if not portion.complete:
        return None
    return ROWS.batch(columns, lambda name: portion.column(name, kind, context), len(frames))


class _Portion:
    def __init__(self, window: Window, frames: Frames, fields: int, columns: Sequence[str]) -> None:
        count = len(frames)
        self.window, self.frames, self.count = window, frames, count
        self.zxid, self.time, self.session_id = (np.empty(count, np.int64) for _ in range(3))
        self.cxid, self.values = np.empty(count, np.int32), np.empty(count, np.int32)
        self.has = np.empty(count, np.int16)
        self.more = np.empty((_LISTS, count if fields & _LIST_BITS else 0), np.int64)
        ends = [np.empty(count + 1, np.int32) for _ in range(2)]
        # Sized for the worst case. The surplus is returned, and its pages were never touched.
        room = int(frames.end[-1] - frames.start[0])
        kept = [np.empty(room if fields & bit and name in columns else 0, np.uint8) for name, bit in _STORED]
        stored_fields = sum(bit for name, bit in _STORED if name in columns)
        measured = np.empty((bodies.MEASURES, 1), np.int64)
        n, *sizes, self.common, self.some = read_portion(
            window.data, frames.start, frames.end, _FIELDS, layout.LOWEST, stored_fields,
            self.zxid, self.time, self.session_id, self.cxid, self.has, self.values, ends[0], kept[0], ends[1], kept[1],
            self.more, measured,
        )  # fmt: skip
        self.complete = n == count
        for out, size in zip(kept, sizes, strict=True):
            out.resize(size, refcheck=False)
        self.stored = dict(zip(("path", "data"), zip(ends, kept, strict=True), strict=True))

    def column(self, name: str, kind: int, context: TxnLogContext) -> pa.Array:
        of = _TYPES[name]
        if name in ("zxid", "session_id", "cxid"):
            return self._array(of, getattr(self, name))
        if name == "time_ms":
            return self._array(of, self.time)
        if name == "position":
            return self._array(of, self.frames.start + self.window.offset)
        if name == "file":
            return constant(of, context.file, self.count)
        if name == "type":
            if kind == _MANY:
                return type_names(np.ascontiguousarray(self.frames.header["type"]))
            return constant(of, layout.TYPE_NAMES[kind], self.count)
        bit = _BIT_OF.get(name, 0)
        if not self.some & bit:
            return _nulls(name, self.count)
        if name == "acl":
            return acls_of(self.window.data, self.more[_ACL_AT], self.more[_ACL_COUNT], plain=True)[0]
        if name == "paths_to_delete":
            counts = np.where(self.has & layout.PATHS != 0, self.more[_LIST_COUNT], NULL)
            return paths_of(self.window.data, self.more[_LIST_AT], counts, plain=True)
        null = None if self.common & bit else self.has & bit == 0
        if name in self.stored:
            return self._array(of, *self.stored[name], null=null)
        if name == "ephemeral":
            return numbers(of, self.more[_FLAG] != 0, null)
        values = {"ttl": self.more[_TTL], "time": self.time}.get(name, self.values)
        return self._array(of, values if null is None else np.where(null, 0, values), null=null)

    def _array(self, of: pa.DataType, *values: npt.NDArray[Any], null: Bools | None = None) -> pa.Array:
        bits = None if null is None else pa.py_buffer(np.packbits(~null, bitorder="little"))
        return pa.Array.from_buffers(of, self.count, [bits, *map(pa.py_buffer, values)])


_TYPES = {column.name: column.type for column in ROWS.columns}
_none: dict[str, pa.Array] = {}


def _nulls(name: str, rows: int) -> pa.Array:
    """Return a null column: a slice of a cached one. The cache is keyed by name, because hashing a nested type takes longer."""
    kept = _none.get(name)
    if kept is None or len(kept) < rows:
        kept = _none[name] = pa.nulls(1 << max(10, (rows - 1).bit_length()), _TYPES[name])
    return kept.slice(0, rows)


_STORED = (("path", layout.PATH), ("data", layout.DATA))
_BIT_OF = {**layout.BITS, "time": _DATED, **_NUMBER_BITS}
