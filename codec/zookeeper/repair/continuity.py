"""How far a replay gets: from a snapshot on, transaction by transaction, up to the first missing one.

Within an epoch zxids increase by one. An epoch begins with 1, and nothing says where an old epoch ended. Source: `ZxidUtils`,
`FileTxnSnapLog.fastForwardFromEdits` and `ZKDatabase.addCommittedProposal` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from logwright.codec.engine.repair import Removed
from logwright.codec.zookeeper.names import continues, counter_of, epoch_of, is_first, zxid_text
from logwright.codec.zookeeper.repair.logs import Log, zxids
from logwright.codec.zookeeper.repair.snapshots import Snapshot
from logwright.codec.zookeeper.repair.survey import Survey, first_zxid


@dataclass(frozen=True, slots=True)
class Gap:
    """Missing transactions `first` to `last`. Record number `record`, counted over all logs, follows them."""

    record: int
    first: int
    last: int

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    @property
    def lost(self) -> dict[str, int]:
        """The transactions, as in `Removed`."""
        return {"first_zxid": self.first, "last_zxid": self.last}

    def text(self, where: str = "") -> str:
        """Return the zxids with their verb: "0x1 is", "0x1 to 0x3 are"; `where` comes before the verb."""
        if self.first == self.last:
            return f"{zxid_text(self.first)}{where} is"
        return f"{zxid_text(self.first)} to {zxid_text(self.last)}{where} are"


@dataclass(frozen=True, slots=True)
class Base:
    """The starting point of a replay: a snapshot, or (None) the empty tree of a new server."""

    zxid: int
    snapshot: Snapshot | None


def gaps(logs: Sequence[Log], base: int, names: Iterable[int] = ()) -> list[Gap]:
    """Return the gaps after a zxid, in order. `names`: the zxids in the names of snapshots. They and those of logs prove that such
    transactions existed, also at the end of an epoch."""
    all_ = zxids(logs)
    which = np.flatnonzero(all_ > base)
    later = all_[which]
    before = np.maximum.accumulate(np.concatenate((np.array([base], np.int64), later)))[:-1]
    of_logs = (log.named for log in logs if len(log.zxid) or log.wrong is not None)
    named = np.array(sorted(zxid for zxid in (*names, *of_logs) if counter_of(zxid)), np.int64)
    # The last transaction before each one that the name of a file proves.
    proved = np.concatenate(([0], named))[np.searchsorted(named, later, "left")]
    missing = (later > before) & ~continues(later, before)
    out = []
    for i in np.flatnonzero(missing | (proved > before)).tolist():
        last = int(later[i]) - 1 if missing[i] else int(proved[i])
        first = int(before[i]) + 1
        first = first if epoch_of(first) == epoch_of(last) else last - counter_of(last) + 1
        out.append(Gap(int(which[i]), first, last))
    return out


def returns(logs: Sequence[Log]) -> list[tuple[int, int]]:
    """Return the places where zxids go back: the number of a record, counted over all logs, and the highest zxid before it."""
    all_ = zxids(logs)
    highest = np.maximum.accumulate(all_)[:-1]
    lower = all_[1:] < highest
    first = np.flatnonzero(lower & ~np.concatenate(([False], lower))[: len(lower)])
    return [(i + 1, int(highest[i])) for i in first.tolist()]


def ends(logs: Sequence[Log], base: int) -> list[Gap]:
    """Return the places where an epoch begins after damage at the end of the previous one. Its last zxid is unknown, so the gap is
    reported as one transaction."""
    all_ = zxids(logs)
    counts = [len(log.zxid) for log in logs]
    owner = np.repeat(np.arange(len(logs)), counts)
    starts, stops = (
        np.concatenate([np.empty(0, np.int64), *bounds])
        for bounds in ([log.start for log in logs], [log.end for log in logs])
    )
    holes = [(n, cut.offset) for n, log in enumerate(logs) for cut in log.cut if cut.rows_lost != 0]
    out = []
    for i in np.flatnonzero((all_[1:] >> 32 > all_[:-1] >> 32) & (all_[1:] > base)).tolist():
        low, high = (int(owner[i]), int(stops[i])), (int(owner[i + 1]), int(starts[i + 1]))
        if any(low <= hole < high for hole in holes):
            out.append(Gap(i + 1, int(all_[i]) + 1, int(all_[i]) + 1))
    return out


def furthest(logs: Sequence[Log], base: int, names: Iterable[int] = ()) -> int:
    """Return the last transaction before the first gap. `names`: see `gaps`."""
    missing = gaps(logs, base, names)
    return int(zxids(logs)[: missing[0].record if missing else None].max(initial=base))


def fresh(logs: Sequence[Log]) -> bool:
    """Return whether the logs begin with the very first transaction."""
    first = first_zxid(logs)
    return first is not None and is_first(first)


def bases(survey: Survey) -> list[Base]:
    """Return the possible starting points of a replay, newest first."""
    out = [Base(snapshot.zxid, snapshot) for snapshot in reversed(survey.snapshots) if snapshot.sound]
    # A directory without any trace of a transaction is that of a new server.
    used = any(len(log.zxid) or log.wrong is not None or not is_first(log.named) for log in survey.logs)
    unused = not (used or survey.snapshots or survey.cut or any(survey.epochs.values()))
    return [*out, Base(0, None)] if unused or fresh(survey.logs) else out


def settled(base: Base, logs: Sequence[Log], upto: int | None = None) -> bool:
    """Return whether a replay up to `upto`, or as far as it gets, has all transactions that may be partly in the snapshot."""
    if base.snapshot is None:
        return True
    until = furthest(logs, base.zxid)
    return base.snapshot.until <= (until if upto is None else min(until, upto))


def up_to(log: Log, at: int, why: str) -> Log:
    """Return a log without its records from number `at` on."""
    gone = np.arange(len(log.zxid)) >= at
    lost = {"first_zxid": int(log.zxid[at]), "last_zxid": int(log.zxid[-1])}
    start = int(log.start[at])
    kept = log.drop(gone)
    kept.cut = [removed for removed in log.cut if removed.offset < start]
    kept.cut.append(Removed(log.file, start, log.size - start, why, 0, len(log.zxid) - at, lost))
    return kept


def place(logs: Sequence[Log], record: int) -> tuple[Log, int]:
    """Return the log of a record that is counted over all logs, and its number in that log."""
    ends = np.cumsum([len(log.zxid) for log in logs])
    i = int(np.searchsorted(ends, record, "right"))
    return logs[i], record - int(ends[i]) + len(logs[i].zxid)
