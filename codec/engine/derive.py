"""Rebuild derived files and keep everything else.

A derived file is the result of a fold over the frames of primary files. The builder, the repair and the rebuild of a system use the
same fold. A check compares its result with the existing file, or tests each entry if real systems may write different files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from logwright.codec.engine.repair import OutputFile, RepairPlan
from logwright.codec.store.extents import Extent
from logwright.codec.store.listing import Listing


class Rebuild(RepairPlan):
    """A directory with some files rebuilt."""

    def __init__(
        self, listing: Listing, rebuilt: Mapping[str, Iterable[Extent]], dropped: Sequence[str] = ()
    ) -> None:
        """`rebuilt` are consumed one after the other, so a generator runs late. `dropped` files are not in the result."""
        super().__init__(listing)
        self.rebuilt, self.dropped = rebuilt, dropped

    def outputs(self) -> Iterator[OutputFile]:
        for name in self.sizes:
            if name not in self.rebuilt and name not in self.dropped:
                yield self.unchanged(name)
        for name, data in self.rebuilt.items():
            yield self.rewritten(name, *data)
