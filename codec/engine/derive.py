"""Rebuild derived files: make them again, and leave everything else as it is.

A derived file is what a fold over the frames of primary files yields. The builder, the repair and the rebuild of a system feed the
same fold; a check compares its result with the file that is there, or tests each entry where real systems write different files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from logwright.codec.engine.repair import OutputFile, RepairPlan
from logwright.codec.store.listing import Listing


class Rebuild(RepairPlan):
    """A directory in which some files are made again."""

    def __init__(
        self,
        listing: Listing,
        made_files: Mapping[str, Iterable[bytes]],
        dropped: Sequence[str] = (),
    ) -> None:
        """`made_files` are read when it is their turn, so a generator makes its file late. `dropped` files are not in the result."""
        super().__init__(listing)
        self.made_files, self.dropped = made_files, dropped

    def outputs(self) -> Iterator[OutputFile]:
        for name in self.sizes:
            if name not in self.made_files and name not in self.dropped:
                yield self.unchanged(name)
        for name, data in self.made_files.items():
            yield self.made(name, *data)
