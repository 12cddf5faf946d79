"""Sorted runs: rows in any order brought into that of their keys, in bounded memory.

Rows are columns here: `key`, `value` (null where it is) and `sequence`, then whatever else a system has with them. They are in the
order of keys, those of one key the highest sequence first. As many as fit are sorted at a time and put aside, as a run; in the end the
runs are merged, again by columns: all rows up to the smallest of the keys that the runs are known to reach are sorted at once.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
"""So many runs are merged at a time, each of which is read in chunks: all together they are what was sorted at a time."""
_LEAST_CHUNK = 1 << 14

Refusal = Callable[[dict[str, Any]], UsageError]
"""What is raised for a row whose key and sequence come twice."""


def ordered(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """These rows in one batch, in the order of internal keys; rows of one key and sequence in the order in which they come."""
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    order = sorted_order(Keys.of(batch.column("key")), sequences(batch))
    return batch if (np.diff(order) == 1).all() else batch.take(pa.array(order))


def unique(batches: Iterator[pa.RecordBatch], *, last: bool, twice: Refusal) -> Iterator[pa.RecordBatch]:
    """Ordered rows without repetition of a key and sequence: with `last` the last of them stays, else it is an error."""
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


# Putting aside


@dataclass
class _Run:
    """A run in a file: chunks of Arrow's IPC format."""

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
    """Rows in any order; `ordered` gives them in order. Any chunking of the same rows gives the same.

    About `budget` bytes are held in memory, what is more goes to files `name` of `stage`. Without a stage all is held.
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
        self._made = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows of the schema."""
        if not rows.num_rows:
            return
        self._held.append(rows)
        self._size += rows.nbytes
        if self._stage is not None and self._size >= self._budget:
            self._runs.append(self._put(self._stage, iter([self._sorted()])))
            self._held, self._size = [], 0

    def streams(self) -> list[SortedRun]:
        """What is to be merged, in the order in which the rows came."""
        found = []
        if self._stage is not None:
            while len(self._runs) > FAN_IN:
                self._runs = [self._merged(self._stage, at) for at in range(0, len(self._runs), FAN_IN)]
            found = _streams(self._stage, self._runs)
        if self._held:
            batch = self._sorted()
            self._held = []
            found.append(SortedRun(_key(batch, 0), _key(batch, -1), lambda: iter([batch])))
        return found

    def ordered(self) -> Iterator[pa.RecordBatch]:
        """All rows. Raises `UsageError` for a key and sequence that comes twice, or with `last` keeps the last of them."""
        return unique(merge(self.streams()), last=self._last, twice=self._twice)

    def _sorted(self) -> pa.RecordBatch:
        return _distinct(ordered(self._held), last=self._last, twice=self._twice)

    def _merged(self, stage: Stage, at: int) -> _Run:
        runs = self._runs[at : at + FAN_IN]
        if len(runs) == 1:
            return runs[0]
        merged = merge(_streams(stage, runs))
        made = self._put(stage, unique(merged, last=self._last, twice=self._twice))
        for run in runs:
            stage.drop(run.name)
        return made

    def _put(self, stage: Stage, batches: Iterator[pa.RecordBatch]) -> _Run:
        run = _Run(f"{self._name}-{self._made:06}", self._schema)
        self._made += 1
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
    found: bytes = batch.column("key")[row].as_py()
    return found


def chunked(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """The rows in pieces of about `size` bytes, or one row if that is larger."""
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


# Between processes


_HEAD = struct.Struct("<qI")
"""In front of each chunk of a file of rows: its size, and its CRC-32."""


def framed(batch: pa.RecordBatch) -> bytes:
    """Rows as a chunk of a file that another process reads."""
    data: bytes = batch.serialize().to_pybytes()
    return _HEAD.pack(len(data), zlib.crc32(data)) + data


def read_framed(listing: Listing, name: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of such a file."""
    at = 0
    while head := listing.read(name, at, _HEAD.size):
        size, checksum = _HEAD.unpack(head) if len(head) == _HEAD.size else (0, 0)
        data = listing.read(name, at + _HEAD.size, max(size, 0))
        if len(data) != size or zlib.crc32(data) != checksum:
            raise LogwrightError("staged rows are not what their task wrote", path=name, offset=at)
        yield pa.ipc.read_record_batch(pa.py_buffer(data), schema)
        at += _HEAD.size + size
