"""Find the transactions of a log that a later log replaces.

A server that meets damage stops reading the log there without an error, continues with what it has, and assigns the following zxids again,
in a new log. Whatever follows the damage in the old log is dead then. Source: `FileTxnLog.FileTxnIterator.next`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.frames.walk import good_frames, walk_listed
from logwright.codec.store.listing import Listing
from logwright.codec.window import Frames, Window
from logwright.codec.zookeeper.formats.txnlog import codec as txnlog
from logwright.codec.zookeeper.formats.txnlog.layout import HEADER_SIZE
from logwright.codec.zookeeper.formats.txnlog.scan import TXN_FRAME
from logwright.codec.zookeeper.store.files import DataFile


def dead_from(first: int, zxids: Int64s, following: int) -> int:
    """Return the index from which all transactions of a log are dead: after a gap, and not below the next log. `first` and `following` are
    the zxids in the names of the log and of the next one."""
    before = np.concatenate(([first - 1], zxids[:-1]))
    dead = np.logical_or.accumulate(_jumps(before, zxids)) & (zxids >= following)
    live = np.flatnonzero(~dead)
    return int(live[-1]) + 1 if len(live) else 0


def stop_of(listing: Listing, log: DataFile, following: int | None) -> int | None:
    """Return the byte of a log from which its transactions are dead; None if none are. `following` as in `dead_from`."""
    if following is None or following <= log.zxid or not log.size:
        return None
    parts = [
        (window.offset + frames.start, np.ascontiguousarray(frames.header["zxid"]))
        for window, frames in _transactions(listing, log)
    ]
    if not parts:
        return None
    places, zxids = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    # Nothing is missing before the first record of a log under a wrong name.
    stop = dead_from(int(zxids[0]) if places[0] == HEADER_SIZE else log.zxid, zxids, following)
    return int(places[stop]) if stop < len(places) else None


def first_in(listing: Listing, logs: Sequence[DataFile]) -> int | None:
    """Return the zxid of the first transaction in the logs; None without one."""
    firsts = (int(frames.header["zxid"][0]) for log in logs for _, frames in _transactions(listing, log))
    return next(firsts, None)


def _transactions(listing: Listing, log: DataFile) -> Iterator[tuple[Window, Frames]]:
    for window, frames in good_frames(walk_listed(listing, log.name, log.size, txnlog.CODEC, check=False)):
        frames = frames.pick(frames.header["kind"] == TXN_FRAME)
        if len(frames):
            yield window, frames


def gaps(last: int, zxids: Int64s) -> list[tuple[int, int]]:
    """Return the missing zxids, first and last, within an epoch between transactions that follow `last`."""
    before = np.maximum.accumulate(np.concatenate(([last], zxids[:-1])))
    jumps = np.flatnonzero(_jumps(before, zxids))
    return [(int(before[i]) + 1, int(zxids[i]) - 1) for i in jumps.tolist()]


def _jumps(before: Int64s, zxids: Int64s) -> Bools:
    jumps: Bools = (zxids > before + 1) & (zxids >> 32 == before >> 32)
    return jumps
