"""A snapshot made anew from an older one and the logs, and the files with the epochs; logs and sound snapshots stay as they are.

Source: `FileTxnSnapLog.save`, `QuorumPeer.loadDataBase` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from logwright.codec.fault import DamageError, UsageError
from logwright.codec.layout import Listing, Plan, Summary
from logwright.codec.mending import Cut, Kept, Mended, Mending
from logwright.codec.option import Options
from logwright.codec.zookeeper import write
from logwright.codec.zookeeper.mend import reach
from logwright.codec.zookeeper.mend.examine import EPOCHS, Found, examine, zxids
from logwright.codec.zookeeper.mend.repair import epochs_of
from logwright.codec.zookeeper.mend.replayed import replayed
from logwright.codec.zookeeper.names import snapshot_name, zxid_text

SNAPSHOT = "snapshot"
REBUILDS = (SNAPSHOT, *EPOCHS)


def rebuild(listing: Listing, plan: Plan, what: Sequence[str], options: Options) -> Mending:
    """See `codec.mending.Repairs`. Raises `DamageError` where a log is damaged, or a transaction is missing."""
    return _Rebuilt(examine(listing, options), what)


class _Rebuilt:
    """See `codec.mending.Mending`."""

    def __init__(self, found: Found, what: Sequence[str]) -> None:
        self.found, self.what = found, what
        self._notes: list[str] = []
        self.made: dict[str, bytes] = {}
        self.cut: Sequence[Cut] = ()
        damaged = [one for one in found.snapshots if not one.sound or one.cut]
        self.removes: Sequence[str] = []
        self.until = int(max([0, *(one.zxid for one in found.snapshots if one.sound), *zxids(found.logs).tolist()]))
        if SNAPSHOT in what:
            _refuse_damaged(found)
            base = _base(found)
            self.base = base
            self.until = reach.furthest(found.logs, base.zxid)
            self.removes = [one.file for one in damaged]
        self._epochs()
