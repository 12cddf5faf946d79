"""Write rows into files of bounded size: sorted rows into tables, rows as they come into logs.

Source: `DBImpl::DoCompactionWork` and `DBImpl::MakeRoomForWrite` of LevelDB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.deferred import compute as pc
from logwright.codec.leveldb.formats.log import codec as log
from logwright.codec.leveldb.formats.records.layout import written
from logwright.codec.leveldb.formats.table.write import TableBuilder, TableSettings
from logwright.codec.leveldb.names import log_name, table_name
from logwright.codec.leveldb.store.version import FileMetaData
from logwright.codec.option import Options
from logwright.codec.store.build import Piece


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """A finished table."""

    meta: FileMetaData
    rows: int
    largest_sequence: int


class TableWriter:
    """Writes rows in the order of internal keys into tables. `number` allocates the number of a table.

    A table is finished at `limit` bytes, but never between two entries of one user key.
    """

    def __init__(self, settings: TableSettings, limit: int, number: Callable[[], int]) -> None:
        self.tables: list[WrittenTable] = []
        self._settings, self._limit, self._number = settings, limit, number
        self._table: TableBuilder | None = None
        self._name = 0
        self._full: pa.Scalar[Any] | None = None
        """The last user key of a table that has reached its size."""

    def add(self, rows: pa.RecordBatch) -> Iterator[Piece]:
        while rows.num_rows:
            if self._full is not None:
                more = _leading(rows.column("key"), self._full)
                yield from self._take(rows.slice(0, more), None)
                rows = rows.slice(more)
                if rows.num_rows:
                    yield from self.finish()
                continue
            if self._table is None:
                self._table, self._name = TableBuilder(self._settings), self._number()
            taken = yield from self._take(rows, self._limit)
            if self._table.size >= self._limit:
                self._full = rows.column("key")[taken - 1]
            rows = rows.slice(taken)

    def _take(self, rows: pa.RecordBatch, limit: int | None) -> Any:
        assert self._table is not None
        data, taken = self._table.add(rows, limit)
        if data:
            yield Piece(table_name(self._name), data)
        return taken

    def finish(self) -> Iterator[Piece]:
        """Finish the current table, if there is one."""
        table = self._table
        if table is None:
            return
        yield Piece(table_name(self._name), table.finish(), done=True)
        assert table.smallest is not None
        assert table.largest is not None
        meta = FileMetaData(self._name, table.size, table.smallest, table.largest)
        self.tables.append(WrittenTable(meta, table.rows, table.largest_sequence))
        self._table = self._full = None


def _leading(keys: pa.Array[Any], key: pa.Scalar[Any]) -> int:
    """Return how many of the first keys equal `key`."""
    other: int = pc.index(pc.equal(keys, key), False).as_py()
    return other if other >= 0 else len(keys)


class LogWriter:
    """Writes rows as they come into logs. Sequence numbers rise by one within a write batch."""

    def __init__(self, options: Options, number: Callable[[], int]) -> None:
        self._number, self._limit = number, options["write_buffer_size"]
        self._context = log.CODEC.context(
            log_name(0), Options(log.CODEC.options, {"batch_size": options["batch_size"]})
        )
        self._batch_size = options["batch_size"]
        self._open: list[pa.RecordBatch] = []
        """Rows of a write batch that is not complete yet."""
        self._name = ""
        self._at = self._payload = 0

    def add(self, rows: pa.RecordBatch, *, last: bool = False) -> Iterator[Piece]:
        table = pa.Table.from_batches([*self._open, rows])
        batches = log.Batches(table, self._context)
        count = batches.count
        if count and not last and int(np.diff(batches.cuts)[-1]) < self._batch_size:
            count -= 1
        for first, stop in batches.portions(0, count):
            yield from self._write(*batches.payloads(first, stop))
        done = int(batches.cuts[count])
        self._open = table.slice(done).combine_chunks().to_batches() if done < table.num_rows else []

    def finish(self) -> Iterator[Piece]:
        for rows in self._open:
            self._open = []
            yield from self.add(rows, last=True)
        yield from self._close()

    def _write(self, payloads: Any, stops: Any) -> Iterator[Piece]:
        at = 0
        while at < len(stops) - 1:
            if not self._name:
                self._name = log_name(self._number())
            # A log includes the batch that fills it.
            reached = self._payload + stops[at + 1 :] - stops[at] >= self._limit
            full = bool(reached.any())
            stop = at + 1 + int(np.argmax(reached)) if full else len(stops) - 1
            part = stops[at : stop + 1]
            data = written(payloads, part, self._at)
            yield Piece(self._name, data)
            self._at += len(data)
            self._payload += int(part[-1] - part[0])
            if full:
                yield from self._close()
            at = stop

    def _close(self) -> Iterator[Piece]:
        if self._name:
            yield Piece(self._name, b"", done=True)
        self._name, self._at, self._payload = "", 0, 0
