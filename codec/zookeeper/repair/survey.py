"""Survey a data directory before a repair: read its snapshots, logs and epoch files from end to end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.engine.repair import Removed
from logwright.codec.fault import UnreadableError
from logwright.codec.option import Options
from logwright.codec.single_frame import ParseError
from logwright.codec.store.listing import Listing
from logwright.codec.zookeeper import names
from logwright.codec.zookeeper.derive import EPOCHS
from logwright.codec.zookeeper.formats.epochs import parse_number
from logwright.codec.zookeeper.formats.txnlog.layout import HEADER_SIZE
from logwright.codec.zookeeper.repair import logs, misnamed, snapshots
from logwright.codec.zookeeper.repair.copies import conflicting, in_order, without_copies, without_strays
from logwright.codec.zookeeper.repair.logs import Log, zxids
from logwright.codec.zookeeper.repair.misnamed import Misnamed
from logwright.codec.zookeeper.repair.snapshots import Snapshot
from logwright.codec.zookeeper.store import files

LIMITS = (*logs.LIMITS, *snapshots.LIMITS)
_LARGEST = 4096


@dataclass
class Survey:
    """The content of a data directory."""

    listing: Listing
    sizes: dict[str, int]
    snapshots: list[Snapshot] = field(default_factory=list)
    """In the order of their zxids."""
    logs: list[Log] = field(default_factory=list)
    """In the order in which a server reads them. Of several with the same zxid, the best one."""
    misnamed: list[tuple[str, str]] = field(default_factory=list)
    """Logs and snapshots under each other's names, and their right names."""
    copied: list[tuple[str, str]] = field(default_factory=list)
    """Copies of snapshots under the names of logs, and these snapshots."""
    repeated: list[str] = field(default_factory=list)
    """Logs with copies of transactions."""
    renamed: list[tuple[str, str]] = field(default_factory=list)
    """Snapshots that are named after the transaction of their digest, and these names."""
    twice: list[tuple[str, str]] = field(default_factory=list)
    """Files of a zxid that another file has too, and that file."""
    cut: list[Removed] = field(default_factory=list)
    """Logs under the names of snapshots that are of another history."""
    epochs: dict[str, int | None] = field(default_factory=dict)
    """The values of the epoch files that exist; None if one is unreadable."""
    others: list[str] = field(default_factory=list)
    names: Sequence[int] = ()
    """The zxids of all snapshots, also of damaged ones: there were transactions up to them."""


def survey(listing: Listing, options: Options, *, correct: bool = True, by_content: bool = True) -> Survey:
    """Survey a directory. `correct`: whether single flipped bits are corrected. `by_content`: whether logs and snapshots under each other's
    names, or in each other's directories, are what they are by their content."""
    result = Survey(listing, {entry.name: entry.size for entry in listing.entries()})
    listed = [*files.snapshots(listing), *files.logs(listing)]
    if by_content:
        listed += files.misplaced(listing)
    data_files = [file for file in listed if file.zxid >= 0]
    ours = {file.name for file in data_files}
    wrong = misnamed.find(listing, data_files) if by_content else {}
    for file in data_files:
        if file.name in wrong:
            continue
        if file.named.kind == names.SNAPSHOT:
            result.snapshots.append(snapshots.survey(listing, file.name, file.size, options, correct=correct))
        else:
            result.logs.append(logs.survey(listing, file.name, file.size, options, correct=correct))
    _misnamed(result, wrong, options, correct=correct)
    for name in EPOCHS:
        if name in result.sizes:
            ours.add(name)
            result.epochs[name] = None
            with suppress(ParseError, UnreadableError):
                result.epochs[name] = parse_number(listing.read(name, 0, _LARGEST))
    result.others = [name for name in result.sizes if name not in ours]
    return result


def _misnamed(result: Survey, wrong: Mapping[str, Misnamed], options: Options, *, correct: bool) -> None:
    """Add logs and snapshots under each other's names, under their right ones."""
    listing = result.listing
    as_snapshots = [
        each.file for each in wrong.values() if each.kind != each.file.named.kind == names.SNAPSHOT
    ]
    as_logs = [each for each in wrong.values() if each.kind != each.file.named.kind == names.LOG]
    exchanged = as_snapshots[0].zxid if len(as_snapshots) == len(as_logs) == 1 else None
    for each in wrong.values():
        if each.kind == names.LOG:
            log = misnamed.log(listing, each, options, correct=correct)
            result.logs.append(log)
            result.misnamed.append((log.file, log.name))
            continue
        copied = [other for other in result.snapshots if misnamed.equal(listing, each.file, other.file)]
        if copied:
            result.copied.append((each.file.name, copied[0].file))
            continue
        snapshot = misnamed.snapshot(listing, each, exchanged, options, correct=correct)
        same = next(
            (other for other in result.snapshots if other.sound and other.zxid == snapshot.zxid), None
        )
        if snapshot.sound and same is not None:
            result.twice.append((snapshot.file, same.file))
            continue
        if snapshot.sound:
            result.misnamed.append((snapshot.file, snapshot.name))
        elif each.file.named.kind == names.LOG:
            # Only its first bytes may be those of a snapshot.
            log = logs.survey(listing, each.file.name, each.file.size, options, correct=correct)
            if len(log.zxid):
                result.logs.append(log)
                continue
        result.snapshots.append(snapshot)
    result.snapshots.sort(key=lambda snapshot: snapshot.zxid)
    result.names = [snapshot.zxid for snapshot in result.snapshots if not snapshot.early]
    result.logs.sort(key=lambda log: (log.named, log.name))


def reorder(surveyed: Survey, *, once: bool = True) -> None:
    """Name each log after its first record, keep one log per zxid, and drop records that a later log has again. `once`: drop those that
    are there twice too, which a server applies again."""
    _without_other_histories(surveyed)
    known = zxids(surveyed.logs)
    for log in surveyed.logs:
        _rename(log, known)
    _once(surveyed)
    surveyed.logs = named = superseded_by(surveyed.logs)
    if not once:
        return
    surveyed.logs = without_copies(surveyed.listing, named)
    surveyed.repeated = [log.file for log, kept in zip(named, surveyed.logs, strict=True) if kept is not log]
    surveyed.logs = in_order(surveyed.listing, without_strays(surveyed.logs))


def _without_other_histories(surveyed: Survey) -> None:
    """Leave out logs under the names of snapshots that have other transactions with the zxids of the logs under their names."""
    wrong = {file for file, _ in surveyed.misnamed}
    right = [log for log in surveyed.logs if log.file not in wrong]
    for log in [log for log in surveyed.logs if log.file in wrong and len(log.zxid)]:
        other = conflicting(surveyed.listing, log, right)
        if other:
            surveyed.logs = [each for each in surveyed.logs if each is not log]
            surveyed.misnamed = [(file, name) for file, name in surveyed.misnamed if file != log.file]
            why = f"by its content a log, but {other} has other transactions with its zxids: it belongs to another history"
            lost = {"first_zxid": log.first, "last_zxid": int(log.zxid[-1])}
            surveyed.cut.append(Removed(log.file, 0, log.size, why, 0, len(log.zxid), lost))


def _rename(log: Log, known: Int64s) -> None:
    """Name a log after its first record, as a server does, if by its own name a server would skip records of this log or of another.

    Otherwise it is a log that has lost its first records. `known` are the zxids of all logs.
    """
    undamaged = len(log.zxid) and log.start[0] == HEADER_SIZE and HEADER_SIZE not in log.replacements
    if not undamaged or log.first != log.zxid.min():
        return
    if log.first < log.named or ((log.named <= known) & (known < log.first)).any():
        log.named = log.first
        folder = files.folder(log.file)
        log.renamed = f"{folder}/{names.log_name(log.first)}" if folder else names.log_name(log.first)


def _once(surveyed: Survey) -> None:
    """Keep the log with the most records of each zxid. Copies are left behind by tools, but a server reads them. Keep one with other records
    too, whose own name is then right if it is that of a log."""
    kept: list[Log] = []
    for named in sorted({log.named for log in surveyed.logs}):
        same = [log for log in surveyed.logs if log.named == named]
        name = names.log_name(named)
        # Corrected records are right, and sound ones may be corrections.
        best = max(same, key=lambda log: (len(log.zxid), files.base(log.file) == name, log.sound))
        for log in [log for log in same if log is not best]:
            own = names.parse(files.base(log.file))
            if np.isin(log.zxid, best.zxid).all() or conflicting(surveyed.listing, log, [best]):
                surveyed.twice.append((log.file, best.file))
                continue
            if log.renamed and own is not None and own.kind == names.LOG:
                log.named, log.renamed = own.zxid, None
            kept.append(log)
        kept.append(best)
    surveyed.logs = sorted(kept, key=lambda log: log.named)


def superseded_by(logs: Sequence[Log]) -> list[Log]:
    """Return the logs without the records after damage that a later log has again: the server did not see them at its start, and reused
    their zxids. The removals report them."""
    out = list(logs)
    for i, log in enumerate(out):
        later = next((other for other in out[i + 1 :] if len(other.zxid) and other.named > log.named), None)
        if later is None:
            continue
        dead = (log.start >= log.damage) & (log.zxid >= later.first)
        if not dead.any():
            continue
        first, last = (int(zxid) for zxid in log.zxid[dead][[0, -1]])
        at, ends = int(log.start[dead][0]), int(log.end[dead][-1])
        why = (
            f"{later.file} begins with {names.zxid_text(later.first)}: the server was started without the transactions "
            f"{names.zxid_text(first)} to {names.zxid_text(last)}, and assigned these zxids again"
        )
        gone = Removed(log.file, at, ends - at, why, 0, 0)
        out[i] = log.drop(dead)
        cut = [removed for removed in log.cut if not at <= removed.offset < ends]
        out[i].cut = sorted([*cut, gone], key=lambda removed: removed.offset)
    return out


def first_zxid(log_list: Sequence[Log]) -> int | None:
    """Return the zxid of the first record; None without one."""
    return next((log.first for log in log_list if len(log.zxid)), None)


def last_zxid(log_list: Sequence[Log], base: int) -> int:
    """Return the zxid of the last record, or `base` if that is later."""
    return int(max([base, *zxids(log_list)[-1:].tolist()]))
