"""Mending, making anew, editing: what layouts and codecs may offer besides; results are pieces of what there is, and new bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.layout import Listing, Plan, PlannedFile, Summary
from logwright.codec.option import Option, Options


@runtime_checkable
class Mends(Protocol):
    """What a codec may offer besides: to put a damaged file together anew, where good frames can't be laid side by side: where a frame lies
    counts, or something in the file says where."""

    def mend(
        self, listing: Listing, name: str, strategy: Strategy, options: Options
    ) -> tuple[Iterator[Kept | bytes], Sequence[Cut]]:
        """What the file is made of when it is mended (by SALVAGE or PREFIX), and what is not kept. `options` are the codec's own.

        Raises `DamageError` where nothing is left of it.
        """
        ...


class Strategy(StrEnum):
    """How a directory is mended."""

    SALVAGE = "salvage"  # every undamaged frame is kept
    PREFIX = "prefix"  # all before the first damage
    SYSTEM = "system"  # what the real system would leave


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes `[start, stop)` of a file of one of the copies given, which go into the result as they are."""

    file: str
    start: int
    stop: int
    copy: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """Bytes of a primary file that are not in the result. `lost` as in `Fault`."""

    file: str
    offset: int
    length: int
    why: str
    copy: int = 0
    rows_lost: int | None = None
    lost: Mapping[str, Any] = field(default_factory=dict)
    redacted: int = 0
    """Rows that are there, with other values."""


@dataclass(frozen=True)
class Mended:
    """A file of the result, and the pieces that it is made of, in order. One piece that is a whole file of that name: untouched."""

    name: str
    pieces: Sequence[Kept | bytes]
    like: str | None = None
    """The file of the first copy whose owner and mode it takes; None: those of the directory's primary files."""


class Mending(Protocol):
    """A directory being mended or rebuilt. `files` is run once; the rest is known when it is exhausted."""

    @property
    def cut(self) -> Sequence[Cut]: ...

    @property
    def removes(self) -> Sequence[str]:
        """Files of the first copy that are not in the result."""
        ...

    def files(self) -> Iterator[Mended]:
        """Every file of the result, untouched ones too, in the order in which they are put in place. Files are made when they
        are asked for: what is derived from a primary file comes soon after it, and is in memory only until the next one."""
        ...

    def summary(self) -> Summary:
        """Rows kept, first and last ids, warnings, and what the system needs before it is started."""
        ...


@runtime_checkable
class Repairs(Protocol):
    """What a layout may offer besides: to mend a directory, and to make its derived files anew."""

    preferred: Strategy = Strategy.SALVAGE
    """How, where nobody says."""
    repair_options: tuple[Option, ...] = ()
    rebuilds: Sequence[str]
    """What `rebuild` can make anew, in the system's words."""

    def repair(
        self, copies: Sequence[Listing], plans: Sequence[Plan], strategy: Strategy, options: Options
    ) -> Mending:
        """Mend a directory. Several `copies` are replicas: each frame is taken from whichever verifies. Raises `UsageError` where
        copies diverged, saying where."""
        ...

    def rebuild(self, listing: Listing, plan: Plan, what: Sequence[str], options: Options) -> Mending:
        """Make derived files anew from the primary ones. Raises `DamageError` where a primary is damaged."""
        ...


class Change(Protocol):
    """What is to become of rows."""

    @property
    def columns(self) -> Sequence[str]:
        """What it looks at."""
        ...

    @property
    def values(self) -> Mapping[str, bytes | None]:
        """What the rows that are redacted have from now on, by column."""
        ...

    @property
    def every(self) -> bool:
        """All frames are written anew, whatever becomes of their rows."""
        ...

    def drops(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Which rows go."""
        ...

    def redacts(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Which rows have other values from now on."""
        ...


@runtime_checkable
class EditsFile(Protocol):
    """What a codec may offer besides: to take rows out of a file, or values out of rows, and leave all else as it is."""

    @property
    def edit_options(self) -> tuple[Option, ...]:
        """What it takes besides the codec's own."""
        return ()

    def edit_file(
        self, listing: Listing, file: PlannedFile, change: Change, options: Options
    ) -> tuple[Sequence[Kept | bytes], Sequence[Cut]]:
        """What the file is made of from now on: frames that nothing is changed in stay byte for byte. The cuts say which are changed,
        and how many rows went (`rows_lost`). Raises `DamageError` for a damaged file."""
        ...


@runtime_checkable
class Edits(Protocol):
    """What a layout may offer besides: as `EditsFile`, of a directory."""

    edit_options: tuple[Option, ...] = ()
    recodes: Sequence[str] = ()
    """The options by which frames are written in another way, and keep all else that they say (`Change.every`)."""

    def edit(self, listing: Listing, plan: Plan, change: Change, options: Options) -> Mending:
        """What is derived from the files that change is made anew. Raises `DamageError` where a primary file is damaged."""
        ...
