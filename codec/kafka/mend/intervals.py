"""`index.interval.bytes` of a partition, told from the indexes that are there."""

from __future__ import annotations

from logwright.codec.base import Listing, Plan
from logwright.codec.option import Options


def interval_of(listing: Listing, plan: Plan, options: Options) -> int:
    """What the option says, which by default is the broker's default."""
    return int(options["index.interval.bytes"])
