"""How far a replay gets: from a snapshot on, transaction by transaction, up to the first one that is missing.

Zxids count up by one within an epoch; an epoch begins with 1, and of one that is over nothing says how far it went.
Source: `ZxidUtils`, `FileTxnSnapLog.fastForwardFromEdits` and `ZKDatabase.addCommittedProposal` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from logwright.codec.engine.repair import Removed
from logwright.codec.zookeeper.names import counter_of, epoch_of, zxid_text
from logwright.codec.zookeeper.repair.logs import Log
from logwright.codec.zookeeper.repair.snapshots import Snapshot
from logwright.codec.zookeeper.repair.survey import Found, zxids


@dataclass(frozen=True, slots=True)
class Gap:
    """Transactions that are nowhere: `first` to `last`. Record `record` of all is the one behind them."""

    record: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Base:
    """What a replay starts from: a snapshot, or (None) the tree of a server that has done nothing yet."""

    zxid: int
    snapshot: Snapshot | None


def gaps(logs: Sequence[Log], base: int) -> list[Gap]:
    """What is missing behind a zxid, in order."""
    all_ = zxids(logs)
    which = np.flatnonzero(all_ > base)
    later = all_[which]
    before = np.maximum.accumulate(np.concatenate((np.array([base], np.int64), later)))[:-1]
    begins = (later >> 32 > before >> 32) & ((later & 0xFFFFFFFF) == 1)
    out = []
    for i in np.flatnonzero((later > before + 1) & ~begins).tolist():
        zxid, last = int(later[i]), int(before[i])
        first = last + 1 if epoch_of(last) == epoch_of(zxid) else zxid - counter_of(zxid) + 1
        out.append(Gap(int(which[i]), first, zxid - 1))
    return out


def ends(logs: Sequence[Log], base: int) -> list[Gap]:
    """Where an epoch begins behind damage at the end of the one before, of which nobody knows how far it went; what may be missing is
    told as one transaction."""
    all_ = zxids(logs)
    counts = [len(log.zxid) for log in logs]
    owner = np.repeat(np.arange(len(logs)), counts)
    starts, stops = (
        np.concatenate([np.empty(0, np.int64), *some])
        for some in ([log.start for log in logs], [log.end for log in logs])
    )
    holes = [(n, cut.offset) for n, log in enumerate(logs) for cut in log.cut if cut.rows_lost != 0]
    out = []
    for i in np.flatnonzero((all_[1:] >> 32 > all_[:-1] >> 32) & (all_[1:] > base)).tolist():
        low, high = (int(owner[i]), int(stops[i])), (int(owner[i + 1]), int(starts[i + 1]))
        if any(low <= hole < high for hole in holes):
            out.append(Gap(i + 1, int(all_[i]) + 1, int(all_[i]) + 1))
    return out


def furthest(logs: Sequence[Log], base: int) -> int:
    """The last transaction before the first one that is missing."""
    missing = gaps(logs, base)
    all_ = zxids(logs)
    whole = all_[: missing[0].record] if missing else all_
    return int(max([base, *([int(whole.max())] if len(whole) else [])]))


def fresh(logs: Sequence[Log]) -> bool:
    """Whether the logs begin with the first transaction of all."""
    all_ = zxids(logs)
    return bool(len(all_)) and counter_of(int(all_[0])) == 1 and epoch_of(int(all_[0])) in (0, 1)


def bases(found: Found) -> list[Base]:
    """What a replay may start from, the newest first."""
    out = [Base(one.zxid, one) for one in reversed(found.snapshots) if one.sound]
    return [*out, Base(0, None)] if fresh(found.logs) else out


def settled(base: Base, logs: Sequence[Log], upto: int | None = None) -> bool:
    """Whether a replay up to `upto`, or as far as it gets, has all transactions some of which may be in the snapshot already."""
    if base.snapshot is None:
        return True
    until = furthest(logs, base.zxid)
    return base.snapshot.until <= (until if upto is None else min(until, upto))


def up_to(log: Log, at: int, why: str) -> Log:
    """A log without its records from number `at` on."""
    gone = np.arange(len(log.zxid)) >= at
    lost = {"first_zxid": int(log.zxid[at]), "last_zxid": int(log.zxid[-1])}
    start = int(log.start[at])
    kept = log.drop(gone)
    kept.cut = [one for one in log.cut if one.offset < start]
    kept.cut.append(Removed(log.file, start, log.size - start, why, 0, len(log.zxid) - at, lost))
    return kept


def place(logs: Sequence[Log], record: int) -> tuple[Log, int]:
    """The log that the record of that number of all is in, and which of its records it is."""
    ends = np.cumsum([len(log.zxid) for log in logs])
    i = int(np.searchsorted(ends, record, "right"))
    return logs[i], record - int(ends[i]) + len(logs[i].zxid)


def span(gap: Gap) -> str:
    """Its zxids, for people."""
    return (
        zxid_text(gap.first) if gap.first == gap.last else f"{zxid_text(gap.first)} to {zxid_text(gap.last)}"
    )


def are(gap: Gap) -> str:
    return "is" if gap.first == gap.last else "are"
