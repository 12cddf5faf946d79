"""Which undamaged rows nobody gets of a database once LevelDB has opened it: what can be salvaged, held against what is served."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.base import Codec
from logwright.codec.fault import Fault
from logwright.codec.frames.walk import ListedFile, Stretch, Walk
from logwright.codec.leveldb.formats.log import codec as log
from logwright.codec.leveldb.formats.table import codec as table
from logwright.codec.leveldb.formats.table.entries import portions
from logwright.codec.leveldb.formats.table.filter import hash_keys
from logwright.codec.leveldb.formats.table.tables import MAX_DECOMPRESSED, ROWS, TableContext
from logwright.codec.leveldb.keys import TYPE_NAMES, readable
from logwright.codec.leveldb.store import live
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing
from logwright.codec.store.view import Group, Run

Ids = npt.NDArray[np.int64]
_COLUMNS = ("key", "sequence")
_RANGES = 100
"""So many ranges are told at most."""
_CODECS: Mapping[str, Codec] = {codec.name: codec for codec in (log.CODEC, table.CODEC)}


@dataclass
class Lost:
    """Rows, and the ranges of keys that they lie in."""

    rows: int = 0
    ranges: list[Mapping[str, Any]] = field(default_factory=list)


class _Salvaged:
    """The rows of a run that are undamaged. See `logwright.codec.layout.Stream`."""

    def __init__(self, listing: Listing, run: Run, sizes: Mapping[str, int]) -> None:
        self.listing, self.run, self.sizes = listing, run, sizes
        self._damaged = False

    @property
    def how(self) -> Mapping[str, Any]:
        return self.run.how

    @property
    def damaged(self) -> bool:
        return self._damaged

    def __call__(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for part in self.run.parts:
            codec = _CODECS[part.codec]
            context = codec.context(part.file, Options(codec.options), **part.hints)
            reader = ListedFile(self.listing, part.file, self.sizes[part.file])
            for found in Walk(reader, codec, context):
                self._damaged |= not isinstance(found, Stretch)
                if not isinstance(found, Stretch) or not len(found.frames):
                    continue
                parts = list(codec.decode(found.window, found.frames, "rows", columns, context))
                if part.codec == table.CODEC.name and any(one.faults for one in parts):
                    yield from _all_entries(found, columns, context)
                else:
                    yield from (one.batch for one in parts)


def _all_entries(found: Stretch, columns: Sequence[str], context: TableContext) -> Iterator[pa.RecordBatch]:
    """Keys, sequence numbers and types in the blocks of a table, those that wrong restart points hide from LevelDB too."""
    limit = context.options[MAX_DECOMPRESSED.name]
    schema = ROWS.schema(columns)
    for portion in portions(found.window, found.frames, limit, mend=True):
        made = portion.made
        ends = pa.py_buffer(made.key_ends.astype(np.int32))
        kinds = (made.trailers & 0xFF).astype(np.int64)
        arrays = {
            "key": pa.Array.from_buffers(pa.binary(), made.rows, [None, ends, pa.py_buffer(made.keys)]),
            "sequence": pa.array(made.trailers.view(np.uint64) >> np.uint64(8)).cast(pa.int64()),
            "type": pa.array(TYPE_NAMES, pa.string()).take(pa.array(kinds)),
        }
        yield pa.RecordBatch.from_arrays([arrays[name] for name in columns], schema=schema)


def ids(batch: pa.RecordBatch) -> Ids:
    """A number for each row that tells it from others, made of its key and its sequence number."""
    keys = batch.column("key")
    _, offsets, data = keys.buffers()
    rows = batch.num_rows
    ends = np.frombuffer(offsets, np.int32, rows + 1, keys.offset * 4).astype(np.int64)
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    hashes = np.empty(rows, np.int64)
    hash_keys(content, ends, 0, rows, hashes)
    numbered: Ids = np.asarray(batch.column("sequence")) << 32
    return hashes | numbered


def lost(listing: Listing, groups: Iterable[Group], served: Iterable[pa.RecordBatch]) -> Lost:
    """What is lost. `groups` are the parts of the view of all that is undamaged."""
    got = np.unique(np.concatenate([np.empty(0, np.int64), *map(ids, served)]))
    sizes = {entry.name: entry.size for entry in listing.entries()}
    out = Lost()
    run: tuple[bytes, bytes] | None = None

    def close() -> None:
        if run is not None and len(out.ranges) < _RANGES:
            out.ranges.append({"smallest": readable(run[0]), "largest": readable(run[1])})

    for group in groups:
        streams = [_Salvaged(listing, one, sizes) for one in group.runs]
        for batch in live.combine("live", group.how, streams, _COLUMNS, _nothing):
            gone = _absent(ids(batch), got)
            out.rows += int(gone.sum())
            edges = np.flatnonzero(np.diff(gone, prepend=not gone[:1].any(), append=not gone[-1:].any()))
            for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
                if not gone[start]:
                    close()
                    run = None
                    continue
                first, last = (batch.column("key")[i].as_py() for i in (start, stop - 1))
                run = (first if run is None else run[0], last)
    close()
    return out


def _absent(some: Ids, sorted_: Ids) -> npt.NDArray[np.bool_]:
    """Which numbers are not among sorted ones, of which there are many more."""
    if not len(sorted_):
        return np.ones(len(some), np.bool_)
    at = np.minimum(np.searchsorted(sorted_, some), len(sorted_) - 1)
    out: npt.NDArray[np.bool_] = sorted_[at] != some
    return out


def _nothing(fault: Fault) -> None:
    """What is damaged is told by those who look at the files."""
