"""Views of a directory: which stretches of which files are read for one, and how their rows are put together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from logwright.codec.table import Table
from logwright.codec.window import RowFrames


@dataclass(frozen=True)
class Part:
    """A stretch of one file to be read for a view: `[start, stop)` owns the frames that start in it."""

    file: str
    codec: str
    table: str
    hints: Mapping[str, Any]
    start: int = 0
    stop: int | None = None
    bounds: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """The smallest and largest value that a column can have in it, both included, None where there is no bound: a filter
    skips the part without opening the file. `{"offset": (0, 4182)}`; times as integers, as they are in Arrow."""


@dataclass(frozen=True)
class Run:
    """Parts that are read one after the other, as one of the streams that are combined. `params` is the layout's own word on it."""

    parts: tuple[Part, ...]
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """Runs whose rows make the rows of a view only together (`Combines`), by one task. `params` as in `Run`; all of it is picklable.

    `key` names the column whose equal values belong together: a filter on it may be used before they do, and where every part has
    its bounds, the group may be cut into ranges of it, each of which is combined on its own. None: there is no such column.
    Of the rows of its parts only those belong to it whose key is from `low` on and before `high`, where there is such a bound.
    """

    runs: tuple[Run, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None
    low: Any = None
    high: Any = None


@dataclass(frozen=True)
class View:
    """What a system's users would see through the directory, in their words.

    Its rows are those of a table of a codec, or of a table of its own (`rows`); then `codec` is that of most of what is read.
    """

    name: str
    codec: str
    table: str
    doc: str
    rows: Table | None = None
    leaves: str = ""
    """What is on disk and not seen through it, for people: "the markers of transactions"."""


class RowStream(Protocol):
    """The rows of one run of a group. Each call reads them from the start; damage is reported once."""

    @property
    def params(self) -> Mapping[str, Any]:
        """`Run.params`."""
        ...

    @property
    def damaged(self) -> bool:
        """Whether something is wrong with its files, as far as they were read: rows may be missing, or not be what they were."""
        ...

    def __call__(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Rows with these columns, in the order of the parts. Of a part where all rows are wanted, and of the others perhaps only
        those that a filter on `Group.key` lets pass."""
        ...


class Stream(RowStream, Protocol):
    """One run of a group, as rows or as frames."""

    def frames(self) -> Iterator[RowFrames]:
        """Return the frames that hold these rows, as they are stored, in the order of the parts. No filter is used on them."""
        ...
