"""What a file format or a directory offers beyond its core (`codec.base`, `codec.layout`): one frozen record for each.

A system's `__init__` fills in the records. A capability that a format does not have is None, so callers test for None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from logwright.codec.engine.fold import Fold
from logwright.codec.engine.repair import Change, Removed, RepairPlan, Strategy
from logwright.codec.engine.startup import Startup
from logwright.codec.fault import Fault
from logwright.codec.option import Option, Options
from logwright.codec.store.extents import Extent
from logwright.codec.store.listing import Listing, Plan, PlannedFile
from logwright.codec.store.view import Stream

# Files


class RepairFile(Protocol):
    """Repair a file whose good frames cannot simply be laid side by side: positions count, or the file stores them."""

    def __call__(
        self, listing: Listing, file: PlannedFile, strategy: Strategy, options: Options
    ) -> tuple[Iterator[Extent], Sequence[Removed]]:
        """Return what the repaired file is made of (`SALVAGE` or `PREFIX`), and what is not kept.

        `options` are the codec's own. Raises `DamageError` where nothing is left of the file.
        """
        ...


class EditFile(Protocol):
    """Take rows out of a file, or values out of rows."""

    def __call__(
        self, listing: Listing, file: PlannedFile, change: Change, options: Options
    ) -> tuple[Sequence[Extent], Sequence[Removed]]:
        """Return what the file is made of afterwards: frames without a changed row stay byte for byte.

        The cuts say which frames are changed, and how many rows went (`rows_lost`). Raises `DamageError` for a damaged file.
        """
        ...


@dataclass(frozen=True)
class FileEdit:
    """Edit one file."""

    edit: EditFile
    options: tuple[Option, ...] = ()
    """What `edit` takes besides the codec's own options."""


@dataclass(frozen=True)
class FileCapabilities:
    """What a codec offers beyond its core."""

    repair: RepairFile | None = None
    edit: FileEdit | None = None


# Directories


class Combine(Protocol):
    """Make the rows of a view from those of several files side by side."""

    def __call__(
        self,
        view: str,
        params: Mapping[str, Any],
        runs: Sequence[Stream],
        columns: Sequence[str],
        report: Callable[[Fault], None],
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows of a group (`params` is `Group.params`), with these columns of the view's table, in pieces of bounded memory.

        A run may be read several times. Runs without rows may be missing. `report` takes a fault of the whole, and raises it
        where the read mode says so.
        """
        ...


class Check(Protocol):
    """Find what cannot be seen in a single file: a fold over the primary files into faults by file ("" is the directory itself)."""

    def __call__(
        self,
        listing: Listing,
        plan: Plan,
        options: Options,
        *,
        clean: bool | None,
        live: bool | None,
        deep: bool,
    ) -> Fold[Iterable[tuple[str, Fault]]]:
        """`clean`: whether the last stop counts as a clean one; None: the system's own marker decides. `deep`: the content of
        frames is checked too, not only their headers."""
        ...


class Repair(Protocol):
    """Repair a directory."""

    def __call__(
        self, copies: Sequence[Listing], plans: Sequence[Plan], strategy: Strategy, options: Options
    ) -> RepairPlan:
        """Several `copies` are replicas: each frame is taken from whichever verifies.

        Raises `UsageError` where copies diverged, saying where.
        """
        ...


class Rebuild(Protocol):
    """Make the derived files of a directory again from its primary files."""

    def __call__(self, listing: Listing, plan: Plan, what: Sequence[str], options: Options) -> RepairPlan:
        """`what` is a subset of `DirectoryRepair.rebuilds`. Raises `DamageError` where a primary file is damaged."""
        ...


@dataclass(frozen=True)
class DirectoryRepair:
    """Repair a directory, and rebuild its derived files."""

    repair: Repair
    rebuild: Rebuild
    rebuilds: Sequence[str]
    """What `rebuild` can make, in the system's words."""
    options: tuple[Option, ...] = ()
    preferred: Strategy = Strategy.SALVAGE
    """The default strategy."""


class Edit(Protocol):
    """Edit a directory."""

    def __call__(self, listing: Listing, plan: Plan, change: Change, options: Options) -> RepairPlan:
        """Files that derive from the changed ones are made again. Raises `DamageError` where a primary file is damaged."""
        ...


@dataclass(frozen=True)
class DirectoryEdit:
    """Take rows out of a directory, or values out of rows."""

    edit: Edit
    options: tuple[Option, ...] = ()
    recompress_options: Sequence[str] = ()
    """The options that write frames in another form and keep all else that they say (`Change.every`)."""


@dataclass(frozen=True)
class Replicas:
    """Recognise copies of one thing on several disks or machines."""

    copy_of: Callable[[Listing, Plan], tuple[str, str | None] | None]
    """The name of what a directory is a copy of, and the id that tells it from others of this name; None where not known."""
    reaches: Callable[[Listing, Plan], int]
    """How far a copy reaches, in the system's own numbers."""


@dataclass(frozen=True)
class Settled:
    """What a view knows of the rows of a followed directory."""

    stop: int | None
    """The position from which on rows must not be given yet; None where all may be given."""
    hints: Callable[[int, int], Mapping[str, Any]]
    """For `Codec.context`, of the rows `[start, end)` before `stop`."""


class Follow(Protocol):
    """Follow a directory while its system writes to it.

    Its rows have a position, a whole number that grows from row to row, and that a row keeps as long as it is there: so a reader that
    remembers one number can ask what is new since. It is the column by which the files' codec is `ordered`, and each part of a view
    has its `bounds`. Frames are added behind the last one of the last part.
    """

    options: tuple[Option, ...]
    """The words of this system's own readers: which directories of a folder, from where, up to where, how much at a time."""

    def followed(self, view: str | None, options: Options) -> tuple[str, str]:
        """The view that is meant, and its column of positions. Raises `UsageError` for a view that has none."""
        ...

    def leaves_out(self, options: Options) -> Sequence[str]:
        """Columns of the view that are not given unless they are asked for."""
        ...

    def wanted(self, name: str, options: Options) -> bool:
        """Whether a directory of this name is one of those that the options choose."""
        ...

    def begins(self, plan: Plan) -> int:
        """The first position that is served."""
        ...

    def span(
        self, listing: Listing, plan: Plan, options: Options, end: int, *, stream: bool
    ) -> tuple[int, int]:
        """The positions `[low, high)` that the options ask for, of a directory that ends at `end`; of a `stream` the high one counts
        for nothing. Not held against what there is. Raises `UsageError`."""
        ...

    def fold(self, view: str) -> Fold[Settled] | None:
        """Return what decides which rows of a view may be given; None for a view that gives each row at once.

        It takes all frames from a position on, and is asked for its result whenever it has seen new ones.
        """
        ...

    def read_view(self, view: str) -> str:
        """Return the view whose parts are read, with the hints of `Settled`."""
        ...


@dataclass(frozen=True)
class DirectoryCapabilities:
    """What a layout offers beyond its core."""

    combine: Combine | None = None
    predict: Startup | None = None
    check: Check | None = None
    repair: DirectoryRepair | None = None
    edit: DirectoryEdit | None = None
    replicas: Replicas | None = None
    follow: Follow | None = None
