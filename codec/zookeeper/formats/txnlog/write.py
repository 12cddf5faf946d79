"""Write transactions from rows alone, as a server would: as records, and these as a log.

A multi is written from a row with nested transactions, or from one row for each of its transactions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.arrays import Int64s
from logwright.codec.columns import one_batch
from logwright.codec.fault import UsageError
from logwright.codec.option import Options
from logwright.codec.single_frame import single_value
from logwright.codec.window import Bytes, Zeros
from logwright.codec.zookeeper.formats.txnlog import layout
from logwright.codec.zookeeper.formats.txnlog.bodies import NO_DIGEST, TXNS_TYPE
from logwright.codec.zookeeper.formats.txnlog.columns import TxnColumns, ends_of, integers
from logwright.codec.zookeeper.formats.txnlog.pack import Bodies, put_multis, put_records
from logwright.codec.zookeeper.formats.txnlog.rows import NAME, ROWS
from logwright.codec.zookeeper.formats.txnlog.scan import BODY, MOST
from logwright.codec.zookeeper.formats.txnlog.tables import TxnLogContext
from logwright.codec.zookeeper.jute import validity

PORTION = 8 << 20
"""Bytes of rows that are written at a time, approximately, or one transaction."""


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
    """Write rows as records.

    Transaction `i` is rows `cuts[i]` to `cuts[i + 1]`, more than one only for a multi. `first` is the number of the first row, for
    messages. `zxid` is that of the first transaction if rows have none. `digests` gives version (`NO_DIGEST` for none) and value of each
    transaction's digest, instead of the columns.
    """
    columns = TxnColumns(rows, first)
    heads = cuts[:-1]
    count = len(heads)
    in_multi = np.zeros(columns.count, np.bool_)
    if columns.has("sub"):
        in_multi = np.asarray(columns.get("sub", pa.int32()).is_valid())
    alone = ~in_multi
    exploded = _of(in_multi, heads)
    some_exploded = bool(exploded.any())
    kinds = columns.kinds(in_multi)
    versions, values = _digests(columns, heads) if digests is None else digests
    seen = columns.seen
    fields = (
        np.full(columns.count, layout.RECIPE_ARRAY[seen[0] - layout.LOWEST])
        if len(seen) == 1
        else layout.RECIPE_ARRAY[kinds - layout.LOWEST]
    )
    if in_multi.any():
        fields = np.where(in_multi, layout.SUB_RECIPE_ARRAY[kinds - layout.LOWEST], fields)
    nested = alone & (kinds == layout.MULTI) if layout.MULTI in seen else np.zeros(0, np.bool_)
    if len(nested):
        fields[nested] = 0
    bodies = Bodies(columns, kinds, fields)
    # Omitted fields: the body of a closed session whose paths are not known, and the last field of an old create.
    if layout.CLOSE_SESSION in seen:
        fields[(kinds == layout.CLOSE_SESSION) & (bodies.list_valid == 0)] = 0
    if layout.CREATE in seen and alone.any():
        known = validity(columns.get("parent_cversion", pa.int32()))
        digest = np.zeros(columns.count, np.bool_)
        digest[heads] = versions != NO_DIGEST
        fields[alone & (kinds == layout.CREATE) & (known == 0) & ~digest] &= ~layout.NUMBER
    sizes = bodies.sizes
    body_sizes = _of(sizes, heads)
    multis: list[_Multis] = []
    if some_exploded:
        # The bodies of these rows, in the order of rows.
        which = np.flatnonzero(exploded)
        ends = ends_of(np.where(in_multi, sizes, 0))
        subs = np.empty(int(ends[-1]), np.uint8)
        _put_some(bodies, np.flatnonzero(in_multi), ends[:-1][in_multi], subs)
        multis.append(_Multis(which, cuts[which], cuts[which + 1], kinds, subs, ends))
    if nested.any():
        inner, edges = _nested(columns, np.flatnonzero(nested), first)
        ends = ends_of(inner.sizes)
        subs = np.empty(int(ends[-1]), np.uint8)
        inner.put(inner.fields, ends[:-1], subs)
        which = np.searchsorted(heads, np.flatnonzero(nested))
        multis.append(_Multis(which, edges[:-1], edges[1:], inner.kinds, subs, ends))
    if multis:
        body_sizes = body_sizes.copy()
    for multi in multis:
        body_sizes[multi.which] = multi.sizes
    starts = ends_of(
        body_sizes + (layout.OVERHEAD + layout.TXN_HEADER) + (versions != NO_DIGEST) * layout.DIGEST_SIZE
    )
    if int(starts[-1]) > MOST and int(np.diff(starts).max()) > MOST:
        raise UsageError(f"{NAME}: a transaction is larger than {MOST} bytes, the limit of every reader")
    out = np.empty(int(starts[-1]), np.uint8)
    at = starts[:-1] + BODY + layout.TXN_HEADER
    if some_exploded or count < columns.count:
        _put_some(bodies, heads[~exploded], at[~exploded], out)
    else:
        bodies.put(fields, at, out)
    for multi in multis:
        put_multis(multi.lows, multi.highs, multi.kinds, multi.subs, multi.ends, at[multi.which], out)
    now = time.time_ns() // 1_000_000
    top = _of(kinds, heads)
    if some_exploded:
        top = np.where(exploded, layout.MULTI, top)
    zxids = _of(columns.number("zxid", 0), heads) if columns.has("zxid") else np.arange(zxid, zxid + count)
    put_records(
        starts,
        _of(columns.number("session_id", 0), heads),
        _of(columns.number("cxid", 0), heads),
        zxids,
        _of(times_of(columns, now), heads),
        top,
        versions,
        values,
        out,
    )
    return Records(out, starts)


def _of(values: npt.NDArray[Any], heads: Int64s) -> npt.NDArray[Any]:
    """Return the fields of some rows, in order."""
    return values if len(heads) == len(values) else values[heads]


def _put_some(bodies: Bodies, which: Int64s, at: Int64s, out: Bytes) -> None:
    """Write the bodies of some rows only; the others get no fields."""
    fields, places = np.zeros_like(bodies.fields), np.zeros(len(bodies.fields), np.int64)
    fields[which], places[which] = bodies.fields[which], at
    bodies.put(fields, places, out)


@dataclass(slots=True)
class _Multis:
    """Select the transactions in `which`, which are multis: the first one contains `lows[0]` to `highs[0]` of the bodies in `subs`."""

    which: Int64s
    lows: Int64s
    highs: Int64s
    kinds: Int64s
    subs: Bytes
    ends: Int64s

    @property
    def sizes(self) -> Int64s:
        count = self.highs - self.lows
        return self.ends[self.highs] - self.ends[self.lows] + 4 + count * (layout.SUB_DATA_AT + 4)


def _nested(columns: TxnColumns, multis: Int64s, first: int) -> tuple[Bodies, Int64s]:
    """Return the transactions in the column `txns` of multis, and where those of each begin; a null has none."""
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
    inner = TxnColumns(pa.RecordBatch.from_struct_array(values), first)
    kinds = inner.kinds(np.ones(inner.count, np.bool_))
    edges = ends_of(np.asarray(lists.value_lengths().fill_null(0), np.int64))
    return Bodies(inner, kinds, layout.SUB_RECIPE_ARRAY[kinds - layout.LOWEST]), edges


def _digests(columns: TxnColumns, heads: Int64s) -> tuple[Int64s, Int64s]:
    """Return version (`NO_DIGEST` for none) and value of each digest."""
    if not columns.has("tree_digest"):
        return np.full(len(heads), NO_DIGEST), np.zeros(len(heads), np.int64)
    value = columns.get("tree_digest", pa.int64())
    versions = columns.number("digest_version", layout.DIGEST_VERSION)
    if value.null_count:
        versions = np.where(validity(value), versions, NO_DIGEST)
    return _of(versions, heads), _of(integers(value, 0), heads)


def times_of(columns: TxnColumns, now: int) -> Int64s:
    if not columns.has("time") and not columns.has("time_ms"):
        return np.full(columns.count, now, np.int64)
    times = np.full(columns.count, -1, np.int64)
    if columns.has("time"):
        array = columns.rows.column(columns.rows.schema.get_field_index("time"))
        if not pa.types.is_integer(array.type):
            array = columns.get("time", ROWS["time"].type)
        times = integers(array, -1)
    raw = columns.get("time_ms", pa.int64())
    if raw.null_count == len(raw):
        return times
    return np.where(validity(raw) == 1, integers(raw, 0), times)


# A file


def allocated(size: int, options: Options) -> Zeros:
    """Return the zeros to preallocate at the end of a log of that size, if they are asked for."""
    ahead = options["preAllocSize"] << 10
    return Zeros(
        layout.HEADER_SIZE + max(-(-(size - layout.HEADER_SIZE) // ahead), 1) * ahead - size if ahead else 0
    )


def file_header(file: pa.Table | None, stored: bytes | None) -> bytes:
    """Return the file header: that of the file table, the stored one, or the usual one."""
    version, dbid = single_value(file, "version"), single_value(file, "dbid")
    if version is None and dbid is None and stored is not None:
        return stored
    values = {name: value for name, value in (("version", version), ("dbid", dbid)) if value is not None}
    return layout.FILE_HEADER.pack(values)


class Transactions:
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
        self._batches = rows.to_batches()
        self._pieces = np.cumsum([batch.num_rows for batch in self._batches] or [0])

    @property
    def count(self) -> int:
        return len(self.cuts) - 1

    def portions(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield transactions in runs of bounded size."""
        step = max(PORTION // self._row_size, 1)
        while first < last:
            row = int(self.cuts[first])
            piece = int(self._pieces[np.searchsorted(self._pieces, row, "right")])
            # Rows of one piece need not be copied.
            until = min(row + step, piece) if piece - row >= step // 8 else row + step
            stop = int(np.searchsorted(self.cuts, until, "right")) - 1
            stop = min(max(stop, first + 1), last)
            yield first, stop
            first = stop

    def records(self, first: int, last: int, digests: tuple[Int64s, Int64s] | None = None) -> Records:
        start, stop = int(self.cuts[first]), int(self.cuts[last])
        which = int(np.searchsorted(self._pieces, start, "right"))
        if which < len(self._batches) and stop <= self._pieces[which]:
            current = self._batches[which]
            batch = current.slice(start - int(self._pieces[which]) + current.num_rows, stop - start)
        else:
            batch = one_batch(self.rows.slice(start, stop - start))
        cuts = self.cuts[first : last + 1] - start
        return records_of(batch, cuts, start, self.first_zxid + first, digests)
