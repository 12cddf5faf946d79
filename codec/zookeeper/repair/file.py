"""Repair one file of a data directory alone. Other files, above all older snapshots, are not read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from logwright.codec.engine.repair import Removed, Strategy
from logwright.codec.fault import DamageError
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Listing, PlannedFile
from logwright.codec.zookeeper.repair import logs, snapshots
from logwright.codec.zookeeper.repair.continuity import are, gaps, span, up_to

Pieces = tuple[Iterator[Extent], Sequence[Removed]]


def repair_log(listing: Listing, file: PlannedFile, strategy: Strategy, options: Options) -> Pieces:
    """See `codec.capability.RepairFile`. PREFIX ends before the first transaction that is missing behind the first one that is there."""
    found = logs.survey(listing, file.name, file.size, options).certain()
    if found.header == b"":
        raise DamageError("no transaction of the log is left", path=file.name)
    if strategy is Strategy.PREFIX and len(found.zxid):
        missing = gaps([found], found.first - 1)
        if missing:
            gap = missing[0]
            found = up_to(found, gap.record, f"{span(gap)} before it {are(gap)} missing")
    if found.sound:
        return iter([Copy(found.file, 0, found.size)]), ()
    return logs.pieces(found), found.cut


def repair_snapshot(listing: Listing, file: PlannedFile, strategy: Strategy, options: Options) -> Pieces:
    """See `codec.capability.RepairFile`. What can't be put right for certain is written by SALVAGE only, as far as it can be read."""
    found = snapshots.survey(listing, file.name, file.size, options)
    if found.pieces is not None and not found.doubt:
        return iter(found.pieces), found.cut
    if strategy is Strategy.PREFIX:
        raise DamageError(
            f"nothing vouches for any of its nodes: {found.cut[0].why}",
            path=file.name,
            advice="Strategy salvage keeps what can be read; better, repair its directory, where older snapshots and the logs are",
        )
    left = snapshots.left_of(listing, found, options)
    if left is None:
        raise DamageError("no node of the snapshot can be read", path=file.name)
    return (bytes(one) for one in snapshots.written(left, found.zxid)), found.cut
