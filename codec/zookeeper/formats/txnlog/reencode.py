"""Write a log: from rows alone, or with the frames table exactly as it was."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Int64s
from logwright.codec.engine.reencode import Reencoder, Stored, absent, integers, match, need, stored
from logwright.codec.single_frame import single_value
from logwright.codec.window import Chunk, Window, Zeros
from logwright.codec.zookeeper.formats.txnlog.bodies import NO_DIGEST
from logwright.codec.zookeeper.formats.txnlog.layout import DIGEST_VERSION, record_of
from logwright.codec.zookeeper.formats.txnlog.rows import NAME, ROWS, Rows
from logwright.codec.zookeeper.formats.txnlog.scan import frames_of
from logwright.codec.zookeeper.formats.txnlog.tables import TxnLogContext
from logwright.codec.zookeeper.formats.txnlog.write import Transactions, allocated, file_header, records_of


def encode(
    rows: pa.Table, frames: pa.Table | None, file: pa.Table | None, context: TxnLogContext
) -> Iterator[Chunk]:
    """Yield the bytes of a log. See `Codec.encode`."""
    transactions = Transactions(rows, context)
    if frames is None:
        header = file_header(file, None)
        yield header
        size = len(header)
        for start, stop in transactions.portions(0, transactions.count):
            data = transactions.records(start, stop).data
            size += len(data)
            yield data
        if file is None:
            yield allocated(size, context.options)
    else:
        yield from _Reencoder(transactions, frames, file, context).write()
    yield single_value(file, "trailing") or b""
    yield Zeros(single_value(file, "trailing_zeros") or 0)


class _Reencoder(Reencoder):
    """The frames of a log, each of which holds one transaction."""

    def __init__(
        self, transactions: Transactions, frames: pa.Table, file: pa.Table | None, context: TxnLogContext
    ) -> None:
        need(NAME, frames, "position", "kind")
        self.given, self.file, self.context = transactions, file, context
        self.header = np.array([kind == "header" for kind in frames["kind"].to_pylist()], np.bool_)
        self.digests = None
        if "tree_digest" not in transactions.rows.column_names and "tree_digest" in frames.column_names:
            value = frames["tree_digest"].combine_chunks()
            version = frames["digest_version"].cast(pa.int64()).fill_null(DIGEST_VERSION)
            versions = np.where(np.asarray(value.is_valid()), np.asarray(version, np.int64), NO_DIGEST)
            self.digests = versions, np.asarray(value.fill_null(0), np.int64)
        raw, payload = stored(frames, "raw"), stored(frames, "payload")
        holds = ~self.header & absent(raw)
        owner = match(NAME, transactions.rows, transactions.cuts, integers(frames, "position"), holds)
        super().__init__(Stored(owner, raw, payload, (owner >= 0) & absent(payload)))

    def records(self, first: int, last: int, frame: int) -> Iterator[Chunk]:
        for start, stop in self.given.portions(first, last):
            yield self.given.records(
                start, stop, self._digests(frame + start - first, frame + stop - first)
            ).data

    def _digests(self, start: int, stop: int) -> tuple[Int64s, Int64s] | None:
        return None if self.digests is None else (self.digests[0][start:stop], self.digests[1][start:stop])

    def wrap(self, payload: bytes, frame: int) -> Chunk:
        return record_of(payload)

    def says(self, payload: bytes, record: int, frame: int) -> bool:
        read = _decoded(payload, self.context)
        if record < 0 or not read.num_rows:
            return record < 0 and not read.num_rows
        cuts = self.given.cuts
        if _same(self.given.rows.slice(int(cuts[record]), int(cuts[record + 1] - cuts[record])), read):
            return True
        # The same rows in another form: with fewer columns, or the other form of a multi.
        encoded = self.given.records(record, record + 1, self._digests(frame, frame + 1))
        return bool(
            records_of(read, np.array([0, read.num_rows], np.int64), 0, 0).payload(0) == encoded.payload(0)
        )

    def other(self, frame: int) -> Chunk | None:
        return file_header(self.file, self.table.payload[frame]) if self.header[frame] else None


_PLACES = ("position", "file")
"""Columns for the position of a row, not for its content."""


def _same(rows: pa.Table, decoded: pa.RecordBatch) -> bool:
    """Return whether rows equal those of a payload, column by column, and lack nothing but detail columns."""
    if not set(ROWS.names()) <= set(rows.column_names):
        return False
    columns = [name for name in rows.column_names if name in decoded.schema.names and name not in _PLACES]
    try:
        expected = rows.select(columns).cast(ROWS.schema(columns))
    except (pa.ArrowException, ValueError):
        return False
    return bool(expected.equals(pa.Table.from_batches([decoded.select(columns)])))


def _decoded(stored: bytes, context: TxnLogContext) -> pa.RecordBatch:
    """Return the rows of a payload, with all columns; no rows if it cannot be parsed."""
    record = np.frombuffer(record_of(stored), np.uint8)
    return (
        Rows(Window(record, 0, len(record)), frames_of(record), context)
        .decoded(ROWS.names(detail=True))
        .batch
    )
