"""Optional capabilities of a codec or layout: one frozen record each.

A function of a system's `__init__` imports and returns the records, when one is first used. A capability that a format does not have is None.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from logwright.codec.engine.repair import Change, Removed, RepairPlan, Strategy
from logwright.codec.fault import Fault, UsageError
from logwright.codec.option import Option, Options
from logwright.codec.store.extents import Extent
from logwright.codec.store.listing import Listing, Plan, PlannedFile
from logwright.codec.store.view import Part, Stream
from logwright.codec.window import Frames

if TYPE_CHECKING:
    from logwright.codec.engine.fold import Fold
    from logwright.codec.engine.startup import Startup

# Files


class RepairFile(Protocol):
    """Repair a file whose good frames cannot simply be concatenated, because positions matter or are stored in it."""

    def __call__(
        self,
        listing: Listing,
        file: PlannedFile,
        strategy: Strategy,
        options: Options,
        *,
        correct: bool = True,
    ) -> tuple[Iterator[Extent], Sequence[Removed]]:
        """Return the extents of the file repaired by `SALVAGE` or `PREFIX`, and the ranges that are removed.

        `options` are the codec's own. `correct` as in `Repair`. Raises `DamageError` if nothing of the file can be kept.
        """
        ...


class EditFile(Protocol):
    """Drop rows of a file, or redact values."""

    def __call__(
        self, listing: Listing, file: PlannedFile, change: Change, options: Options
    ) -> tuple[Sequence[Extent], Sequence[Removed]]:
        """Return the extents of the edited file, in which frames without a changed row keep their bytes.

        Each changed frame is a `Removed` with the number of dropped rows (`rows_lost`). Raises `DamageError` for a damaged file.
        """
        ...


@dataclass(frozen=True)
class FileEdit:
    edit: EditFile
    options: tuple[Option, ...] = ()
    """Options of `edit`, in addition to the codec's own."""


@dataclass(frozen=True)
class FileCapabilities:
    repair: RepairFile | None = None
    edit: FileEdit | None = None


# Directories


class Report(Protocol):
    """Takes a fault, and raises it if the read mode says so.

    It is a fault of the directory, or of the rows of a file; `data` is then what is shown of the damaged range.
    """

    def __call__(self, fault: Fault, file: str = "", data: bytes = b"", /) -> None: ...


class Combine(Protocol):
    """Merge the rows of several files into the rows of a view."""

    def __call__(
        self,
        view: str,
        params: Mapping[str, Any],
        runs: Sequence[Stream],
        columns: Sequence[str],
        report: Report,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a group (`params` is `Group.params`), with these columns of the view's table, in batches of bounded size.

        A run may be read several times. Runs without rows may be missing.
        """
        ...


@dataclass(frozen=True)
class CheckSettings:
    """The conditions of a check, and how deep it goes."""

    clean: bool | None = None
    """Whether the last stop was clean. None: the system's own marker decides."""
    live: bool | None = False
    """Whether the system is running on the directory; None if that is unknown."""
    deep: bool = True
    """Whether the content of frames is checked, not only their headers."""


class Check(Protocol):
    """Check files against each other: a fold over the primary files into faults by file ("" is the directory itself)."""

    def __call__(
        self, listing: Listing, plan: Plan, options: Options, settings: CheckSettings
    ) -> Fold[Iterable[tuple[str, Fault]]]: ...


class Repair(Protocol):
    """Repair a directory."""

    def __call__(
        self,
        copies: Sequence[Listing],
        plans: Sequence[Plan],
        strategy: Strategy,
        options: Options,
        *,
        correct: bool = True,
    ) -> RepairPlan:
        """Several `copies` are replicas: each frame is taken from one in which it verifies. `correct`: whether single flipped bits of
        primary files are corrected.

        Raises `UsageError` with the position where copies have diverged.
        """
        ...


class Rebuild(Protocol):
    """Rebuild the derived files of a directory from its primary files."""

    def __call__(self, listing: Listing, plan: Plan, kinds: Sequence[str], options: Options) -> RepairPlan:
        """`kinds` is a subset of `DirectoryRepair.rebuilds`. Raises `DamageError` for a damaged primary file."""
        ...


@dataclass(frozen=True)
class DirectoryRepair:
    """Repair a directory, and rebuild its derived files."""

    repair: Repair
    rebuild: Rebuild
    rebuilds: Sequence[str]
    """The kinds of derived files that `rebuild` can make, in the system's terms."""
    options: tuple[Option, ...] = ()
    preferred: Strategy = Strategy.SALVAGE
    """The default strategy."""


class Edit(Protocol):
    """Drop rows of a directory, or redact values."""

    def __call__(self, listing: Listing, plan: Plan, change: Change, options: Options) -> RepairPlan:
        """Files derived from changed ones are rebuilt. Raises `DamageError` for a damaged primary file."""
        ...


@dataclass(frozen=True)
class DirectoryEdit:
    edit: Edit
    options: tuple[Option, ...] = ()
    recompress_options: Sequence[str] = ()
    """The options that only change the encoding of frames, not their rows (`Change.every`)."""
    move_options: tuple[Option, ...] = ()
    """The options of a copy that drop frames, or move them to other files."""
    redacts: Sequence[str] = ()
    """The only columns that can be redacted. Empty: all columns of bytes, unless `edit` refuses one."""


class Compact(Protocol):
    """Remove the rows that newer rows with the same key replace."""

    def __call__(self, listing: Listing, plan: Plan, options: Options, clean: bool | None) -> RepairPlan:
        """`clean`: whether the last stop was clean (None: decided by the system's own marker). Raises `DamageError` for a damaged
        primary file."""
        ...


@dataclass(frozen=True)
class DirectoryCompact:
    compact: Compact
    options: tuple[Option, ...] = ()


@dataclass(frozen=True)
class Replicas:
    """Recognise replicas of one directory on several disks or machines."""

    copy_of: Callable[[Listing, Plan], tuple[str, str | None] | None]
    """Return the name that replicas share, and the id that distinguishes it from others of this name; None if unknown."""
    reaches: Callable[[Listing, Plan], int]
    """Return the end of a replica, in the system's own numbers."""


@dataclass(frozen=True)
class Settled:
    """The rows of a followed directory that a view may show."""

    stop: int | None
    """The position from which on rows must not be shown yet; None if all may be."""
    hints: Callable[[int, int], Mapping[str, Any]]
    """Hints for `Codec.context` of the rows `[start, end)` before `stop`."""


def range_options(start: str, end: str, position: str) -> tuple[Option, Option]:
    """Return the options of these names for `Follow.range_options`. `position` completes the sentence "earliest, latest, or ..."."""
    text = f"earliest, latest, or {position}. A stream continues from its checkpoint"
    return (
        Option(start, "earliest", text, _bound),
        Option(end, "latest", "The end, which is excluded, in the same form. Not for streams", _bound),
    )


def _bound(value: Any) -> str | int:
    if value in ("earliest", "latest"):
        return str(value)
    try:
        return int(value)
    except (TypeError, ValueError):
        raise ValueError("expected earliest, latest or a number") from None


class Follow(ABC):
    """Follow a directory while its system writes to it.

    Each row has a position, an increasing integer that never changes, so a reader only remembers the last one. It is the column by
    which the files' codec is `ordered`, and each part of a view has its `bounds`; or it is the file position of the frame, counted from
    the first of these bounds (`FILE_POSITION`). New frames follow the last one of the last part.
    """

    options: tuple[Option, ...]
    """Options named as in the system's own readers: the directories of a folder, first and last positions, rows per batch."""
    range_options: tuple[Option, Option]
    """Those for the start and the end, if they are earliest, latest or a position."""

    @abstractmethod
    def followed(self, view: str | None, options: Options) -> tuple[str, str]:
        """Return the view and its position column. Raises `UsageError` for a view without one."""
        ...

    def leaves_out(self, options: Options) -> Sequence[str]:
        """Return the columns of the view that are read only on request."""
        return ()

    def wanted(self, name: str, options: Options) -> bool:
        """Return whether the options select a directory of this name."""
        return True

    def sequences(self, plan: Plan, view: str) -> Mapping[str, Plan]:
        """Return the sequences of files that are followed independently: the plan of each by its name; "" for the only one."""
        return {"": plan}

    @abstractmethod
    def begins(self, plan: Plan, view: str) -> int:
        """Return the first position that is served. Raises `UsageError` if this directory cannot be followed."""
        ...

    def span(
        self, listing: Listing, plan: Plan, view: str, options: Options, end: int, *, stream: bool
    ) -> tuple[int, int]:
        """Return the positions `[low, high)` that the options select in a directory that ends at `end`; a `stream` ignores `high`.

        They may exceed the directory. Raises `UsageError`.
        """
        bounds = [options[option.name] for option in self.range_options]
        if stream and bounds[1] != "latest":
            raise UsageError(
                f"{self.range_options[1].name} is not for streams, which have no end",
                advice="Remove the option",
            )
        known = {"earliest": self.begins(plan, view), "latest": end}
        low, high = (known.get(bound, bound) for bound in bounds)
        return low, high

    def fold(self, view: str) -> Fold[Settled] | None:
        """Return the fold that decides which rows of a view may be shown; None for a view that shows every row at once.

        It takes all frames from a position on. Its result is read after each batch of new frames.
        """
        return None

    def read_view(self, view: str) -> str:
        """Return the view whose parts are read, with the hints of `Settled`."""
        return view

    def in_advance(self, listing: Listing, part: Part) -> bool:
        """Return whether the last part is a file that the system created before it needs it, so that rows may still follow in the part
        before."""
        return False

    def unfinished(self, frames: Frames) -> bool:
        """Return whether the system may still be writing the last of these frames. No other frame follows it."""
        return False


@dataclass(frozen=True)
class DirectoryCapabilities:
    combine: Combine | None = None
    predict: Startup | None = None
    check: Check | None = None
    repair: DirectoryRepair | None = None
    edit: DirectoryEdit | None = None
    compact: DirectoryCompact | None = None
    replicas: Replicas | None = None
    follow: Follow | None = None
