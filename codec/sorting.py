"""Sort rows by key in bounded memory.

Rows are columns: `key`, `value` (null for none) and `sequence`, then further columns of the system. Rows of one key come in descending
order of their sequence. As many rows as fit in memory are sorted at a time and written to a file as a run; finally the runs are merged.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.deferred import compute as pc
from logwright.codec.engine.merge import Keys, SortedRun, merge, sequences, sorted_order
from logwright.codec.fault import LogwrightError, UsageError
from logwright.codec.store.build import Stage
from logwright.codec.store.listing import Listing

FIELDS = (
    pa.field("key", pa.large_binary(), nullable=False),
    pa.field("value", pa.large_binary()),
    pa.field("sequence", pa.int64(), nullable=False),
)
"""The first columns of every run."""

FAN_IN = 64
"""Runs merged at a time. They are read in chunks that together take as much memory as is sorted at a time."""
_LEAST_CHUNK = 1 << 14

Refusal = Callable[[dict[str, Any]], UsageError]
"""Returns the error for a row whose key and sequence are repeated."""


def ordered(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Sort rows into one batch. Rows of the same key and sequence stay in their order."""
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    order = sorted_order(Keys.of(batch.column("key")), sequences(batch))
    return batch if (np.diff(order) == 1).all() else batch.take(pa.array(order))


def unique(batches: Iterator[pa.RecordBatch], *, last: bool, twice: Refusal) -> Iterator[pa.RecordBatch]:
    """Remove repeated keys and sequences from sorted rows. With `last`, the last row of each is kept; otherwise a repetition is an
    error."""
    held: pa.RecordBatch | None = None
    for batch in batches:
        if held is not None:
            batch = pa.concat_batches([held, batch])
        batch = _distinct(batch, last=last, twice=twice)
        held = batch.slice(batch.num_rows - 1)
        if batch.num_rows > 1:
            yield batch.slice(0, batch.num_rows - 1)
    if held is not None:
        yield held


def _distinct(batch: pa.RecordBatch, *, last: bool, twice: Refusal) -> pa.RecordBatch:
    count = batch.num_rows
    same = pa.repeat(False, 0)
    if count > 1:
        key, sequence = batch.column("key"), batch.column("sequence")
        before = slice(0, count - 1)
        same = pc.and_(pc.equal(key[before], key[1:]), pc.equal(sequence[before], sequence[1:]))
    if not pc.any(same).as_py():
        return batch
    if not last:
        raise twice(batch.slice(pc.index(same, True).as_py(), 1).to_pylist()[0])
    return batch.filter(pa.concat_arrays([pc.invert(same), pa.array([True])]))


# Runs in files


@dataclass
class _Run:
    """A run in a file of chunks in Arrow's IPC format."""

    name: str
    schema: pa.Schema
    first: bytes = b""
    last: bytes = b""
    chunks: list[tuple[int, int]] = field(default_factory=list)

    def stream(self, stage: Stage, together: int) -> SortedRun:
        """Return the run, read `together` chunks at a time."""
        return SortedRun(self.first, self.last, lambda: self._read(stage, together))

    def _read(self, stage: Stage, together: int) -> Iterator[pa.RecordBatch]:
        for at in range(0, len(self.chunks), together):
            yield pa.concat_batches(
                pa.ipc.read_record_batch(pa.py_buffer(stage.read(self.name, offset, length)), self.schema)
                for offset, length in self.chunks[at : at + together]
            )


def _streams(stage: Stage, runs: Sequence[_Run]) -> list[SortedRun]:
    """Return runs to be merged. Their batches take as much memory as `FAN_IN` chunks."""
    return [run.stream(stage, max(FAN_IN // len(runs), 1)) for run in runs]


class Sorter:
    """Sorts rows. The result does not depend on how they are divided into batches.

    About `budget` bytes are held in memory, the rest in files `name` of `stage`. Without a stage, everything is held in memory.
    """

    def __init__(
        self,
        stage: Stage | None,
        budget: int,
        schema: pa.Schema,
        twice: Refusal,
        *,
        last: bool,
        name: str = "run",
    ) -> None:
        self._stage, self._budget, self._last, self._name = stage, budget, last, name
        self._schema, self._twice = schema, twice
        self._chunk = max(budget // FAN_IN, _LEAST_CHUNK)
        self._held: list[pa.RecordBatch] = []
        self._size = 0
        self._runs: list[_Run] = []
        self._runs_written = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows of the schema."""
        if not rows.num_rows:
            return
        self._held.append(rows)
        self._size += rows.nbytes
        if self._stage is not None and self._size >= self._budget:
            self._runs.append(self._put(self._stage, iter([self._sorted()])))
            self._held, self._size = [], 0

    def streams(self) -> list[SortedRun]:
        """Return the runs to be merged, in the order in which their rows were added."""
        runs = []
        if self._stage is not None:
            while len(self._runs) > FAN_IN:
                self._runs = [self._merged(self._stage, at) for at in range(0, len(self._runs), FAN_IN)]
            runs = _streams(self._stage, self._runs)
        if self._held:
            batch = self._sorted()
            self._held = []
            runs.append(SortedRun(_key(batch, 0), _key(batch, -1), lambda: iter([batch])))
        return runs

    def ordered(self) -> Iterator[pa.RecordBatch]:
        """Return all rows in order. Raises `UsageError` for a repeated key and sequence, or with `last` keeps the last row of each."""
        return unique(merge(self.streams()), last=self._last, twice=self._twice)

    def _sorted(self) -> pa.RecordBatch:
        return _distinct(ordered(self._held), last=self._last, twice=self._twice)

    def _merged(self, stage: Stage, at: int) -> _Run:
        runs = self._runs[at : at + FAN_IN]
        if len(runs) == 1:
            return runs[0]
        merged = merge(_streams(stage, runs))
        run_made = self._put(stage, unique(merged, last=self._last, twice=self._twice))
        for run in runs:
            stage.drop(run.name)
        return run_made

    def _put(self, stage: Stage, batches: Iterator[pa.RecordBatch]) -> _Run:
        run = _Run(f"{self._name}-{self._runs_written:06}", self._schema)
        self._runs_written += 1
        at = 0
        for batch in batches:
            if not run.chunks:
                run.first = _key(batch, 0)
            run.last = _key(batch, -1)
            for chunk in chunked(batch, self._chunk):
                data = memoryview(chunk.serialize())
                stage.append(run.name, data)
                run.chunks.append((at, len(data)))
                at += len(data)
        return run


def _key(batch: pa.RecordBatch, row: int) -> bytes:
    key: bytes = batch.column("key")[row].as_py()
    return key


def chunked(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """Divide rows into batches of about `size` bytes, and of at least one row."""
    ends = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            ends += np.cumsum(np.asarray(pc.fill_null(pc.binary_length(column), 0)))
        else:
            ends += np.arange(1, batch.num_rows + 1) * (column.type.bit_width // 8)
    at, below = 0, 0
    while at < batch.num_rows:
        stop = max(at + 1, int(np.searchsorted(ends, below + size, "right")))
        yield batch.slice(at, stop - at)
        at, below = stop, int(ends[stop - 1])


# Exchange between processes


_HEAD = struct.Struct("<qI")
"""Header of each chunk of a file of rows: its size, and its CRC-32."""


def framed(batch: pa.RecordBatch) -> bytes:
    """Return rows as a chunk of a file for another process."""
    data: bytes = batch.serialize().to_pybytes()
    return _HEAD.pack(len(data), zlib.crc32(data)) + data


def read_framed(listing: Listing, name: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of such a file."""
    at = 0
    while head := listing.read(name, at, _HEAD.size):
        size, checksum = _HEAD.unpack(head) if len(head) == _HEAD.size else (0, 0)
        data = listing.read(name, at + _HEAD.size, max(size, 0))
        if len(data) != size or zlib.crc32(data) != checksum:
            raise LogwrightError("staged rows differ from what their task wrote", path=name, offset=at)
        yield pa.ipc.read_record_batch(pa.py_buffer(data), schema)
        at += _HEAD.size + size
