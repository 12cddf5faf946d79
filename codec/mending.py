"""Repair, rebuild and edit. A result is a list of ranges copied from the input and of new bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.store.build import Summary


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
