"""Writing a log: from rows alone, or with the frames table exactly as it was. A stored payload is used again only if it says what the rows
say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.fault import UsageError
from logwright.codec.kernels.adler32 import adler32
from logwright.codec.kernels.intrinsics import store_32be, store_64be
from logwright.codec.whole import kept
from logwright.codec.window import Chunk, Frames, Window
from logwright.codec.zookeeper.formats.txnlog.layout import (
    DIGEST_VERSION,
    EOR,
    LENGTH,
    OVERHEAD,
)
from logwright.codec.zookeeper.formats.txnlog.rows import NAME, ROWS, Rows
from logwright.codec.zookeeper.formats.txnlog.scan import BODY, SCANNER
from logwright.codec.zookeeper.formats.txnlog.tables import TxnLogContext
from logwright.codec.zookeeper.formats.txnlog.write import (
    Transactions,
    allocated,
    file_header,
    records_of,
    zeros,
)
from logwright.codec.zookeeper.jute import Int64s


def encode(
    rows: pa.Table, frames: pa.Table | None, file: pa.Table | None, context: TxnLogContext
) -> Iterator[Chunk]:
    """The bytes of a log. See `Codec.encode`."""
    given = Transactions(rows, context)
    if frames is None:
        header = file_header(file, None)
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
    yield from zeros(kept(file, "trailing_zeros") or 0)


@dataclass(slots=True)
class _Frames:
    """The frames table. `owner` is the transaction of each, -1 for none."""

    owner: Int64s
    header: npt.NDArray[np.bool_]
    payload: list[Any]
    raw: list[Any]
    digests: tuple[Int64s, Int64s] | None

    @classmethod
    def of(cls, given: Transactions, frames: pa.Table) -> _Frames:
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


def _owners(given: Transactions, positions: Int64s, is_txn: npt.NDArray[np.bool_]) -> Int64s:
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


def _again(
    given: Transactions, frames: pa.Table, file: pa.Table | None, context: TxnLogContext
) -> Iterator[Chunk]:
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
                yield file_header(file, stored)
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
    given: Transactions, i: int, stored: bytes, digests: tuple[Int64s, Int64s] | None, context: TxnLogContext
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
    window = Window(record, 0, len(record))
    found = SCANNER.frames(window, 0, check=False)
    frames = Frames(found.start, found.end, found.head, found.stop)
    return Rows(window, frames, context).decoded(ROWS.names(detail=True)).batch
