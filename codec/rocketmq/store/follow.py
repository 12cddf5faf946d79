"""Follow a store while its broker writes, by physical offset. See `codec.capability.Follow`.

A broker creates the next commit log file in advance, so the last file may not have a message yet.
"""

from __future__ import annotations

from itertools import pairwise

from logwright.codec.capability import Follow, range_options
from logwright.codec.fault import UsageError
from logwright.codec.option import Options
from logwright.codec.rocketmq.store import tree
from logwright.codec.store.listing import Listing, Plan
from logwright.codec.store.view import Part

VIEW, POSITION = "messages", "physical_offset"
IN_ORDER = "messages in order"
"""The view `messages` without those that are not in the file of their physical offset: a broker that writes moves none."""
_HEAD = 8
"""Bytes of a message up to the end of its magic code."""


OPTIONS = range_options("startingPhysicalOffset", "endingPhysicalOffset", "a physical offset")


class StoreFollow(Follow):
    options = range_options = OPTIONS

    def followed(self, view: str | None, options: Options) -> tuple[str, str]:
        if view not in (None, VIEW):
            raise UsageError(
                f"view {view!r} cannot be followed or limited by offsets", advice=f"Use view {VIEW}"
            )
        return VIEW, POSITION

    def begins(self, plan: Plan, view: str) -> int:
        return int(plan.facts["first_physical_offset"] or 0)

    def read_view(self, view: str) -> str:
        return IN_ORDER

    def in_advance(self, listing: Listing, part: Part) -> bool:
        return not any(listing.read(part.file, 0, _HEAD))


def bounds(listing: Listing) -> dict[str, tuple[int, int | None]]:
    """Return the first and the last physical offset that each commit log file can have; None for the last file."""
    bases = {entry.name: tree.start_of(entry.name) for entry in tree.logs(listing)}
    ordered = sorted(set(bases.values()))
    following = dict(pairwise(ordered))
    return {name: (base, following[base] - 1 if base in following else None) for name, base in bases.items()}
