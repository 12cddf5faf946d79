"""A surveyed table, and the data blocks of it that a repair keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from logwright.codec.engine.repair import Removed
from logwright.codec.fault import Fault
from logwright.codec.leveldb.check.table import Place, TableCheck
from logwright.codec.leveldb.comparators import Comparator
from logwright.codec.leveldb.keys import MAX_SEQUENCE
from logwright.codec.leveldb.store.version import FileMetaData


@dataclass(slots=True)
class Block:
    """A kept data block: bytes of the file with its trailer, or `rebuilt` from the entries that can be read."""

    start: int
    stop: int
    rows: int
    first: bytes
    last: bytes
    """Its smallest and largest internal key."""
    key: bytes | None
    """Its index key, if the index is sound."""
    low: int
    high: int
    mixed: bool = False
    """Whether its keys are out of order."""
    rebuilt: bytes | None = None
    place: Place | None = None

    @property
    def size(self) -> int:
        return self.stop - self.start if self.rebuilt is None else len(self.rebuilt)


@dataclass
class Table:
    """A surveyed table."""

    file: str
    number: int
    size: int
    known: FileMetaData | None
    """Its entry in the manifest."""
    level: int | None
    comparator: Comparator
    check: TableCheck
    holes: list[Fault] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    unsupported: bool = False
    """Whether it has blocks or entries of an unknown type. Such a table is copied, whatever its damage."""
    unreadable: bool = False
    """Whether the disk cannot read some of its bytes."""
    blocks: list[Block] | None = None
    """The kept blocks; None for a table that stays as it is."""
    displaced: list[Block] = field(default_factory=list)
    """Blocks whose keys do not fit in their place, until `Tables.settle` decides which of them are kept."""
    dropped: list[tuple[int, int, str, int | None]] = field(default_factory=list)
    """Ranges that are dropped for another reason than damage, the reason, and the number of rows lost, None if unknown."""
    cut: list[Removed] = field(default_factory=list)
    lost: list[tuple[bytes | None, bytes | None]] = field(default_factory=list)
    """Ranges of user keys whose entries are lost; None for an unknown bound."""

    @property
    def sound(self) -> bool:
        """Whether the table stays as it is."""
        if self.unsupported:
            return True
        return not (
            self.holes or self.faults or self.check.faults or self.unreadable or self.check.unreadable
        )

    @property
    def lost_whole(self) -> bool:
        """Whether no entry is readable, of a table that the manifest names. With a sound index, its blocks report which keys are lost."""
        return (
            self.known is not None and self.smallest is None and not (self.sound or self.check.blocks.sound)
        )

    @property
    def rows(self) -> int:
        return self.check.rows if self.blocks is None else sum(block.rows for block in self.blocks)

    @property
    def smallest(self) -> bytes | None:
        if self.unsupported and self.known is not None:
            return self.known.smallest
        if self.blocks is None:
            return self.check.smallest
        return min((block.first for block in self.blocks), key=self._order, default=None)

    @property
    def largest(self) -> bytes | None:
        if self.unsupported and self.known is not None:
            return self.known.largest
        if self.blocks is None:
            return self.check.largest
        return max((block.last for block in self.blocks), key=self._order, default=None)

    def _order(self, key: bytes) -> Any:
        """Order by key, or if the order is unknown by position: then the first is the smallest."""
        return self.comparator.order(key) if self.comparator.known else 0

    @property
    def low(self) -> int:
        return (
            self.check.low
            if self.blocks is None
            else min((block.low for block in self.blocks), default=MAX_SEQUENCE)
        )

    @property
    def high(self) -> int:
        return (
            self.check.high if self.blocks is None else max((block.high for block in self.blocks), default=-1)
        )
