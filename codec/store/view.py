"""Views of a directory: the ranges of files that are read, and how their rows are merged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from logwright.codec.fault import Fault
from logwright.codec.table import Table
from logwright.codec.window import RowFrames

FILE_POSITION = "file position"
"""In `Part.bounds` instead of a column, for directories that are followed by file position: the number of the part's first byte."""


@dataclass(frozen=True)
class Part:
    """A range `[start, stop)` of one file that is read for a view. It owns the frames that start in it."""

    file: str
    codec: str
    table: str
    hints: Mapping[str, Any]
    start: int = 0
    stop: int | None = None
    bounds: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """The smallest and largest value that a column can have in it, both inclusive, None without a bound: a filter
    skips the part without opening the file. `{"offset": (0, 4182)}`; times as integers, as they are in Arrow."""
    leftover: bool = False
    """Whether the system does not use the file: damage in it is a note."""
    rest: bytes = b""
    """The end of the part's only frame, if the file ends before it: it is in another file."""
    faults: Sequence[tuple[str, Fault]] = ()
    """Faults that only this view has, with their files: rows that are in the files and not in the view. Any part may have those of all."""


@dataclass(frozen=True)
class Run:
    """Parts that are read in sequence, as one input stream of a merge. `params` are the layout's own parameters."""

    parts: tuple[Part, ...]
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """Runs that one task merges to rows of a view (`capability.Combine`). `params` as in `Run`. Picklable.

    `key` names the column whose equal values are merged: a filter on it may be applied before the merge, and if every part has
    bounds of it, the group may be split into key ranges that are merged independently. None: there is no such column.
    The group owns the rows with `low` <= key < `high`; None means no bound.
    """

    runs: tuple[Run, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None
    low: Any = None
    high: Any = None
    ordered: bool = False
    """Whether each file is sorted by the key, and the bounds of its parts and frames are those that other files or an index state. A
    block in the wrong place is outside of them, so a salvage read relies on none of them and is not split."""


@dataclass(frozen=True)
class View:
    """The rows that users of a system see in a directory.

    They have the schema of a codec's table, or their own (`rows`); then `codec` is the codec of most files read.
    """

    name: str
    codec: str
    table: str
    doc: str
    rows: Table | None = None
    leaves: str = ""
    """The stored data that it does not show, for messages: "the markers of transactions"."""


class RowStream(Protocol):
    """The rows of one run of a group. Each call reads them from the start; damage is reported only once."""

    @property
    def params(self) -> Mapping[str, Any]:
        """`Run.params`."""
        ...

    @property
    def salvaged(self) -> bool:
        """Whether damage does not end the read, so that rows may be in the wrong order."""
        ...

    def __call__(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield rows with these columns, in the order of the parts. A filter on `Group.key` may be applied, except to parts of which
        all rows are needed."""
        ...

    def survey(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the same rows for a look ahead of a call that returns them. Unless damage ends the read, it is not reported."""
        ...


class Stream(RowStream, Protocol):
    """The rows or frames of one run of a group."""

    @property
    def damaged(self) -> bool:
        """Whether damage was found in its files so far: rows may be missing or wrong."""
        ...

    def frames(self) -> Iterator[RowFrames]:
        """Yield the stored frames of these rows, in the order of the parts. No filter is applied."""
        ...
