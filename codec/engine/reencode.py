"""Write rows back into the frames that they came from.

`match` finds the frame of each record. `Reencoder` decides which frames are copied and which are encoded:
damaged bytes are copied; a stored payload is copied if it decodes to the same rows; frames without a stored payload
are encoded in runs; a frame without rows is dropped.

A record is one row, or several rows in a format whose frames hold several.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.fault import UsageError
from logwright.codec.window import Chunk


def stored(frames: pa.Table, name: str) -> list[Any]:
    """Return a detail column of the frames table, None for each frame where the column is absent."""
    return frames[name].to_pylist() if name in frames.column_names else [None] * frames.num_rows


def absent(values: list[Any]) -> Bools:
    """Return a mask of the values that are None."""
    return np.array([value is None for value in values], np.bool_)


def integer_column(table: pa.Table, name: str) -> pa.ChunkedArray:
    """Return a column as int64. Raises `UsageError` for a column that does not hold integers."""
    column = table[name]
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise UsageError(f"column {name!r} has type {kind}, expected integers")
    return column.cast(pa.int64())


def integers(table: pa.Table, name: str) -> Int64s:
    """Return a column of integers, -1 for null."""
    return np.asarray(integer_column(table, name).fill_null(-1), np.int64)


def need(codec: str, frames: pa.Table, *names: str) -> None:
    """Raise `UsageError` if the frames table lacks a column."""
    for name in names:
        if name not in frames.column_names:
            raise UsageError(f"{codec} needs a column {name!r} in the frames table")


def frames_of(codec: str, rows: pa.Table, frames: Int64s, holds: Bools) -> Int64s:
    """Return the frame of each row, by position; -1 for none.

    `frames` are the positions of the frames, `holds` marks those that can hold rows. Raises `UsageError` for rows without positions.
    """
    if not rows.num_rows:
        return np.empty(0, np.int64)
    if "position" not in rows.column_names or rows["position"].null_count == rows.num_rows:
        raise UsageError(
            f"{codec}: rows have no positions that assign them to frames",
            advice="Pass the detail column 'position', or leave out the frames table",
        )
    places = np.flatnonzero(holds)
    if not len(places):
        return np.full(rows.num_rows, -1)
    order = places[np.argsort(frames[places], kind="stable")]
    position = integers(rows, "position")
    frame = order[np.minimum(np.searchsorted(frames[order], position), len(order) - 1)]
    return np.where((frames[frame] == position) & (position >= 0), frame, -1)


def unplaced(codec: str, row: int) -> UsageError:
    """Return the error for a row that has no frame."""
    return UsageError(
        f"{codec}: row {row} belongs to no frame of the frames table, or is out of order",
        advice="New rows do not fit into old frames: encode them without the frames table",
    )


def match(codec: str, rows: pa.Table, cuts: Int64s, frames: Int64s, holds: Bools) -> Int64s:
    """Return the record that each frame holds, -1 for none. Record `i` is the rows `cuts[i]` to `cuts[i + 1]`.

    Raises `UsageError` for a record without its own frame, and for frames that are not in the order of the records.
    """
    first = cuts[:-1]
    frame = frames_of(codec, rows, frames, holds)[first]
    wrong = frame < 0
    wrong[1:] |= frame[1:] <= frame[:-1]
    if wrong.any():
        raise unplaced(codec, int(first[np.argmax(wrong)]))
    owner = np.full(len(frames), -1, np.int64)
    owner[frame] = np.arange(len(first))
    return owner


def match_rows(codec: str, rows: pa.Table, frames: Int64s, holds: Bools) -> Int64s:
    """Return the rows of each frame, any number: frame `i` holds the rows `bounds[i]` to `bounds[i + 1]`. Raises as `match` does."""
    frame = frames_of(codec, rows, frames, holds)
    wrong = frame < 0
    wrong[1:] |= frame[1:] < frame[:-1]
    if wrong.any():
        raise unplaced(codec, int(np.argmax(wrong)))
    return np.searchsorted(frame, np.arange(len(frames) + 1))


@dataclass(slots=True)
class Stored:
    """A frames table, matched to rows. One entry is a frame, or the group of frames that one record fills."""

    owner: Int64s
    """The record of each, -1 for none."""
    raw: list[Any]
    """The bytes of damaged ranges."""
    payload: list[Any]
    usual: Bools
    """Marks frames of which only the rows are stored."""

    def runs(self) -> Iterator[tuple[int, int, bool]]:
        """Return runs of usual frames whose records follow one another, and runs of the others: (start, stop, usual)."""
        usual = self.usual
        breaks = (usual[1:] != usual[:-1]) | (usual[1:] & (np.diff(self.owner) != 1))
        edges = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(usual)]
        return ((start, stop, bool(usual[start])) for start, stop in pairwise(edges) if stop > start)


class Reencoder(ABC):
    """Writes the frames of a table with new records."""

    def __init__(self, table: Stored) -> None:
        self.table = table
        self.at = 0
        """Bytes written so far."""

    @abstractmethod
    def records(self, first: int, last: int, frame: int) -> Iterator[Chunk]:
        """Encode records `first` to `last` as usual frames from `frame` on, or one record in place of a stored frame."""

    @abstractmethod
    def wrap(self, payload: bytes, frame: int) -> Chunk:
        """Return the frame of a stored payload."""

    @abstractmethod
    def says(self, payload: bytes, record: int, frame: int) -> bool:
        """Return whether a stored payload decodes to a record; without a record (-1), whether it has no rows."""

    def other(self, frame: int) -> Chunk | None:
        """Return a frame of a kind that never holds rows; None for other frames."""
        return None

    def write(self) -> Iterator[Chunk]:
        """Return the bytes of all frames."""
        owner = self.table.owner
        for start, stop, usual in self.table.runs():
            if usual:
                yield from self._written(self.records(int(owner[start]), int(owner[stop - 1]) + 1, start))
                continue
            for frame in range(start, stop):
                yield from self._written(self._frame(frame))

    def _written(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            self.at += len(chunk)
            yield chunk

    def _frame(self, frame: int) -> Iterator[Chunk]:
        """Copy or encode a frame of which more than the rows is stored."""
        raw, payload, record = self.table.raw[frame], self.table.payload[frame], int(self.table.owner[frame])
        other = raw if raw is not None else self.other(frame)
        if other is not None:
            yield other
        elif payload is not None and self.says(payload, record, frame):
            yield self.wrap(payload, frame)
        elif record >= 0:
            yield from self.records(record, record + 1, frame)
