"""A data directory looked at from end to end, for mending: its snapshots and logs, and the files with its epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from logwright.codec.engine.repair import Removed
from logwright.codec.fault import UnreadableError
from logwright.codec.option import Options
from logwright.codec.single_frame import ParseError
from logwright.codec.store.listing import Listing
from logwright.codec.zookeeper import names
from logwright.codec.zookeeper.derive import EPOCHS
from logwright.codec.zookeeper.formats.epochs import parse_number
from logwright.codec.zookeeper.repair import logs, snapshots
from logwright.codec.zookeeper.repair.logs import Log
from logwright.codec.zookeeper.repair.snapshots import Snapshot
from logwright.codec.zookeeper.store import files

LIMITS = (*logs.LIMITS, *snapshots.LIMITS)
_LARGEST = 4096


@dataclass
class Found:
    """What there is of a data directory."""

    listing: Listing
    sizes: dict[str, int]
    snapshots: list[Snapshot] = field(default_factory=list)
    """In the order of their zxids."""
    logs: list[Log] = field(default_factory=list)
    """In the order in which a server reads them; of those of one zxid the best."""
    twice: list[tuple[str, str]] = field(default_factory=list)
    """Files of a zxid that another one has, and that one."""
    cut: list[Removed] = field(default_factory=list)
    """Records that a later log has again, and tells otherwise."""
    epochs: dict[str, int | None] = field(default_factory=dict)
    """Of the files with epochs that are there what they say; None: they can't be read."""
    others: list[str] = field(default_factory=list)


def survey(listing: Listing, options: Options) -> Found:
    """Look at a directory."""
    found = Found(listing, {entry.name: entry.size for entry in listing.entries()})
    ours = set()
    for one in files.snapshots(listing):
        if one.zxid >= 0:
            ours.add(one.name)
            found.snapshots.append(snapshots.survey(listing, one.name, one.size, options))
    for one in files.logs(listing):
        if one.zxid >= 0:
            ours.add(one.name)
            found.logs.append(logs.survey(listing, one.name, one.size, options))
    for name in EPOCHS:
        if name in found.sizes:
            ours.add(name)
            found.epochs[name] = _epoch(listing, name)
    found.others = [name for name in found.sizes if name not in ours]
    return found


def reorder(found: Found) -> None:
    """Keep one log of each zxid, and drop records that a later log has again."""
    _once(found)
    found.logs = superseded_by(found.logs)


def _epoch(listing: Listing, name: str) -> int | None:
    try:
        return parse_number(listing.read(name, 0, _LARGEST))
    except (ParseError, UnreadableError):
        return None


def _once(found: Found) -> None:
    """Of the logs of one zxid, the one that keeps most; copies are helpers' leftovers, which a server reads all the same."""
    kept: list[Log] = []
    for named in sorted({log.named for log in found.logs}):
        same = [log for log in found.logs if log.named == named]
        best = max(
            same,
            key=lambda log: (len(log.zxid), log.sound, log.file.rpartition("/")[2] == names.log_name(named)),
        )
        # What was put right is right; what is sound may have been made so.
        plain = next((log for log in same if log.file.rpartition("/")[2] == names.log_name(named)), best)
        best = plain if len(plain.zxid) >= len(best.zxid) else best
        kept.append(best)
        found.twice += [(log.file, best.file) for log in same if log is not best]
    found.logs = kept


def superseded_by(logs: Sequence[Log]) -> list[Log]:
    """Logs without records behind damage that a later log has again: the server did not see them when it was started, and gave their
    zxids to other transactions. Their cuts say so."""
    out = list(logs)
    for i, log in enumerate(out):
        later = next((other for other in out[i + 1 :] if len(other.zxid) and other.named > log.named), None)
        if later is None:
            continue
        dead = (log.start >= log.damage) & (log.zxid >= later.first)
        if not dead.any():
            continue
        first, last = (int(one) for one in log.zxid[dead][[0, -1]])
        at, ends = int(log.start[dead][0]), int(log.end[dead][-1])
        why = (
            f"{later.file} begins with {names.zxid_text(later.first)}: the server was started without what lies here, "
            f"{names.zxid_text(first)} to {names.zxid_text(last)}, and gave these zxids again"
        )
        gone = Removed(log.file, at, ends - at, why, 0, 0)
        out[i] = log.drop(dead)
        cut = [one for one in log.cut if not at <= one.offset < ends]
        out[i].cut = sorted([*cut, gone], key=lambda one: one.offset)
    return out


def zxids(some: Sequence[Log]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Those of all records, in the order in which a server reads them."""
    return np.concatenate([np.empty(0, np.int64), *(log.zxid for log in some)])
