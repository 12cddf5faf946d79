"""Find the transactions of a log that a later log replaces.

A server that meets damage stops reading the log there without an error, continues with what it has, and assigns the following zxids again,
in a new log. Whatever follows the damage in the old log is dead then. Source: `FileTxnLog.FileTxnIterator.next`.
"""

from __future__ import annotations

import numpy as np

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.frames.walk import good_frames, walk_listed
from logwright.codec.store.listing import Listing
from logwright.codec.zookeeper.formats.txnlog import codec as txnlog
from logwright.codec.zookeeper.formats.txnlog.layout import HEADER_SIZE
from logwright.codec.zookeeper.formats.txnlog.scan import TXN_FRAME
from logwright.codec.zookeeper.store.files import DataFile


class Succession:
    """Find the first dead transaction of a log: after a gap, and not below the next log."""

    def __init__(self, first: int, following: int) -> None:
        self.following = following
        """The zxid in the name of the next log; `first` is that in its own name."""
        self._last, self._broken = first - 1, False

    def first_dead(self, zxids: Int64s) -> int:
        """Return the index of the first dead one among these, which come next, or -1."""
        if not len(zxids):
            return -1
        before = np.concatenate(([self._last], zxids[:-1]))
        broken = np.logical_or.accumulate(_jumps(before, zxids)) | self._broken
        dead = np.flatnonzero(broken & (zxids >= self.following))
        self._last, self._broken = int(zxids[-1]), bool(broken[-1])
        return int(dead[0]) if len(dead) else -1


def stop_of(listing: Listing, log: DataFile, following: int | None) -> int | None:
    """Return the byte of a log from which its transactions are dead; None if none are. `following` as in `Succession`."""
    if following is None or following <= log.zxid or not log.size:
        return None
    succession: Succession | None = None
    for window, frames in good_frames(walk_listed(listing, log.name, log.size, txnlog.CODEC, check=False)):
        frames = frames.pick(frames.header["kind"] == TXN_FRAME)
        if not len(frames):
            continue
        zxids = np.ascontiguousarray(frames.header["zxid"])
        if succession is None:
            # Nothing is missing before the first record of a log under a wrong name.
            at_start = window.offset + int(frames.start[0]) == HEADER_SIZE
            succession = Succession(int(zxids[0]) if at_start else log.zxid, following)
        dead = succession.first_dead(zxids)
        if dead >= 0:
            return window.offset + int(frames.start[dead])
    return None


def gaps(last: int, zxids: Int64s) -> list[tuple[int, int]]:
    """Return the missing zxids, first and last, within an epoch between transactions that follow `last`."""
    before = np.maximum.accumulate(np.concatenate(([last], zxids[:-1])))
    jumps = np.flatnonzero(_jumps(before, zxids))
    return [(int(before[i]) + 1, int(zxids[i]) - 1) for i in jumps.tolist()]


def _jumps(before: Int64s, zxids: Int64s) -> Bools:
    jumps: Bools = (zxids > before + 1) & (zxids >> 32 == before >> 32)
    return jumps
