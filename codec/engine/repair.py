"""Repair, rebuild and edit a directory: the phases that all systems share, and the form of the result.

A repair has five phases. A system implements the first four in a subclass of `Repairer`:

1. survey: read every file once. Classify its parts as sound, certainly correctable or damaged.
2. reorder: put the sound parts into the system's order. Merge replicas.
3. choose, by strategy. `salvage` keeps every sound part, `go_back` (strategy prefix) keeps everything before the first loss,
   and strategy system keeps the state that the real system leaves when it starts.
4. derive: `outputs` yields the files of the result. Files that follow from others are made on the way (`codec.engine.derive`).
5. check: the writer verifies the result with the layout's own check, before it commits anything.

A rebuild surveys, refuses damage and derives. An edit changes rows in between.

A result is a list of ranges copied from the input and of new bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Protocol, Self

import pyarrow as pa

from logwright.codec.arrays import Bools
from logwright.codec.fault import Fault, UsageError
from logwright.codec.option import Options
from logwright.codec.store.build import Piece, Summary
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Listing, Plan


class Strategy(StrEnum):
    """Selects the parts of a directory that a repair keeps."""

    SALVAGE = "salvage"  # every undamaged frame
    PREFIX = "prefix"  # everything before the first damage
    SYSTEM = "system"  # the state that the real system would leave


@dataclass(frozen=True, slots=True)
class Removed:
    """Bytes of a primary file that are not in the result. `lost` as in `Fault`."""

    file: str
    offset: int
    length: int
    why: str
    copy: int = 0
    rows_lost: int | None = None
    lost: Mapping[str, Any] = field(default_factory=dict)
    redacted: int = 0
    """The number of rows that are kept with other values."""

    @classmethod
    def damaged(cls, file: str, fault: Fault, copy: int = 0) -> Self:
        """Return the range of a fault."""
        why = f"{fault.kind}: {fault.detail}"
        return cls(file, fault.offset, fault.length, why, copy, fault.rows_lost, fault.lost)

    @classmethod
    def edited(
        cls, file: str, start: int, stop: int, dropped: int, redacted: int, lost: Mapping[str, Any]
    ) -> Self:
        """Return the range of a frame in which an edit dropped or redacted rows. `lost` identifies the dropped rows."""
        why = edit_text(dropped, redacted)
        return cls(file, start, stop - start, why, 0, dropped, lost if dropped else {}, redacted)

    def to_end(self, size: int) -> Self:
        """Extend the range to the end of a file of `size` bytes. The number of rows in it is unknown."""
        why = f"{self.why}; everything after it is removed too"
        return replace(self, length=size - self.offset, why=why, rows_lost=None, lost={})


def edit_text(dropped: int, redacted: int) -> str:
    """Return the report's text about an edit."""
    counts = [f"{count} {verb}" for count, verb in ((dropped, "dropped"), (redacted, "redacted")) if count]
    return f"edited: {', '.join(counts)}"


@dataclass(frozen=True)
class OutputFile:
    """A file of the result and its extents. It is unchanged if the only extent is the complete file of the same name."""

    name: str
    pieces: Sequence[Extent]
    like: str | None = None
    """The file of the first copy whose owner and mode it gets; None: those of the directory's primary files."""


class RepairPlan(ABC):
    """The result of a repair, a rebuild or an edit. `files` runs once; the other attributes are complete after it."""

    def __init__(self, listing: Listing) -> None:
        self.listing = listing
        self.sizes: Mapping[str, int] = {entry.name: entry.size for entry in listing.entries()}
        self.cut: list[Removed] = []
        self.removes: Sequence[str] = ()
        """Files of the first copy that are not in the result."""
        self.leaves_gaps = False
        """Whether rows are removed on purpose, so that gaps between rows of the result prove no loss."""
        self.rows = 0
        """The number of rows kept."""
        self.ids: Mapping[str, Any] = {}
        """The first and last ids of these rows."""
        self.notes: list[str] = []
        self.before_you_start: list[str] = []
        """Steps for the user before the real system starts on the result."""
        self.recorded = False
        """Whether the writer records `ids` in the container of the result (`Container.compacted`)."""

    @abstractmethod
    def outputs(self) -> Iterator[OutputFile | Piece]:
        """Yield every file of the result, including unchanged ones, in commit order.

        A derived file follows its primary file, and is held in memory until the next file. Files that are made together, in bounded
        memory, are yielded as pieces; such a file comes in the commit order where its last piece (`done`) does.
        """
        ...

    def files(self) -> Iterator[OutputFile | Piece]:
        """Yield every file of the result, and note which files are not in it."""
        names: set[str] = set()
        for file in self.outputs():
            names.add(file.name)
            yield file
        self.removes = [name for name in self.sizes if name not in names]

    def unchanged(self, name: str, new_name: str | None = None) -> OutputFile:
        """Return an unchanged file of the first copy, optionally renamed."""
        return OutputFile(new_name or name, [Copy(name, 0, self.sizes[name])], name)

    def rewritten(self, name: str, *data: Extent) -> OutputFile:
        """Return a file of new bytes, with owner and mode of the file that it replaces."""
        return OutputFile(name, list(data), name if name in self.sizes else None)

    def summary(self) -> Summary:
        """Return the rows kept, their ids, the warnings, and the steps before the system starts."""
        return Summary(self.rows, self.ids, tuple(dict.fromkeys(self.notes)), tuple(self.before_you_start))


class Repairer(ABC):
    """The phases of a repair: see the top of this file."""

    one_copy: ClassVar[tuple[str, str]]
    """Error (with `{}` for their number) and advice if several copies are passed to a repair of one."""
    merges_copies: ClassVar[bool] = False
    """Whether salvage and prefix merge several copies."""

    correct = True
    """Whether single flipped bits of primary files are corrected."""

    def __init__(self, copies: Sequence[Listing], plans: Sequence[Plan], options: Options) -> None:
        self.copies, self.plans, self.options = copies, plans, options

    @classmethod
    def repair(
        cls,
        copies: Sequence[Listing],
        plans: Sequence[Plan],
        strategy: Strategy,
        options: Options,
        *,
        correct: bool = True,
    ) -> RepairPlan:
        """See `codec.capability.Repair`."""
        system = strategy is Strategy.SYSTEM
        if len(copies) > 1 and (system or not cls.merges_copies):
            text, advice = cls.one_copy
            raise UsageError(text.format(len(copies)), advice=advice)
        if system:
            return cls.as_system(copies[0], plans[0], options)
        repairer = cls(copies, plans, options)
        repairer.correct = correct
        repairer.prepared()
        return repairer.go_back() if strategy is Strategy.PREFIX else repairer.salvage()

    def prepared(self) -> Self:
        """Run the first two phases."""
        self.survey()
        self.reorder()
        return self

    @classmethod
    @abstractmethod
    def as_system(cls, listing: Listing, plan: Plan, options: Options) -> RepairPlan:
        """Keep the state that the real system leaves when it starts. Raises `DamageError` if it does not start."""
        ...

    @abstractmethod
    def survey(self) -> None:
        """Read every file of all copies."""
        ...

    @abstractmethod
    def reorder(self) -> None:
        """Put the sound parts into the system's order, and merge copies. Raises `UsageError` for diverged copies."""
        ...

    @abstractmethod
    def salvage(self) -> RepairPlan:
        """Keep every sound part."""
        ...

    @abstractmethod
    def go_back(self) -> RepairPlan:
        """Keep everything before the first loss. Raises `DamageError` if the directory never had such a state."""
        ...


class Change(Protocol):
    """The changes of an edit: dropped and redacted rows."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns that it reads."""
        ...

    @property
    def values(self) -> Mapping[str, bytes | None]:
        """The new values of redacted rows, by column."""
        ...

    @property
    def every(self) -> bool:
        """Whether all frames are rewritten, including those without changed rows."""
        ...

    def drops(self, rows: pa.RecordBatch) -> Bools:
        """Return a mask of the rows to drop."""
        ...

    def redacts(self, rows: pa.RecordBatch) -> Bools:
        """Return a mask of the rows to redact."""
        ...
