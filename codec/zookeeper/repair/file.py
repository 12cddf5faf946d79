"""Repair one file of a data directory. Other files, such as older snapshots, are not read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from logwright.codec.engine.repair import Removed, Strategy
from logwright.codec.fault import DamageError
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Listing, PlannedFile
from logwright.codec.zookeeper.repair import logs, snapshots
from logwright.codec.zookeeper.repair.continuity import gaps, up_to

Pieces = tuple[Iterator[Extent], Sequence[Removed]]


def repair_log(
    listing: Listing, file: PlannedFile, strategy: Strategy, options: Options, *, correct: bool = True
) -> Pieces:
    """See `codec.capability.RepairFile`. PREFIX ends before the first gap in the transactions."""
    log = logs.survey(listing, file.name, file.size, options, correct=correct).certain()
    if log.header == b"":
        raise DamageError("no transaction of the log is left", path=file.name)
    if strategy is Strategy.PREFIX and len(log.zxid):
        missing = gaps([log], log.first - 1)
        if missing:
            log = up_to(log, missing[0].record, f"{missing[0].text(' before it')} missing")
    if log.sound:
        return iter([Copy(log.file, 0, log.size)]), ()
    return logs.pieces(log), log.cut


def repair_snapshot(
    listing: Listing, file: PlannedFile, strategy: Strategy, options: Options, *, correct: bool = True
) -> Pieces:
    """See `codec.capability.RepairFile`. A snapshot that cannot be corrected with certainty is written by SALVAGE only, with its
    readable part."""
    snapshot = snapshots.survey(listing, file.name, file.size, options, correct=correct)
    if snapshot.pieces is not None:
        return iter(snapshot.pieces), snapshot.cut
    if strategy is Strategy.PREFIX:
        raise DamageError(
            f"no checksum covers its nodes: {snapshot.cut[0].why}",
            path=file.name,
            advice="Strategy salvage keeps the readable part. Better, repair the directory, which has older snapshots and the logs",
        )
    left = snapshots.left_of(listing, snapshot, options)
    if left is None:
        raise DamageError("no node of the snapshot can be read", path=file.name)
    return (bytes(part) for part in snapshots.written(left, snapshot.zxid)), snapshot.cut
