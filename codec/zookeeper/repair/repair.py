"""Repair a data directory: choose the snapshots and logs to keep, and how much of them.

Both strategies correct what can be corrected with certainty (`fix_records`, `snapshots`). `prefix` goes back to the longest history without
a gap: a sound snapshot, and the transactions after it up to the first missing one, where the logs end. `salvage` keeps every good
transaction, and replaces each missing one by a transaction that changes nothing, so that a server starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NoReturn

import numpy as np

from logwright.codec import plural
from logwright.codec.engine.repair import OutputFile, Removed, Repairer, RepairPlan, Strategy
from logwright.codec.engine.startup import SystemRepair
from logwright.codec.fault import DamageError, UsageError
from logwright.codec.option import Option, Options, Verb, parse_choice, parse_hexadecimal, parse_text, used_by
from logwright.codec.store.listing import Listing, Plan
from logwright.codec.store.overlay import Overlay
from logwright.codec.window import Chunk
from logwright.codec.zookeeper.derive import EPOCHS, startable_epochs
from logwright.codec.zookeeper.formats.snapshot import codec as snapshot_codec
from logwright.codec.zookeeper.formats.snapshot.tables import ROWS
from logwright.codec.zookeeper.formats.txnlog.layout import FILE_HEADER
from logwright.codec.zookeeper.names import SNAPSHOT, epoch_of, log_name, snapshot_name, zxid_text
from logwright.codec.zookeeper.repair import continuity, logs, snapshots
from logwright.codec.zookeeper.repair.continuity import Base, Gap, up_to
from logwright.codec.zookeeper.repair.fix_records import DATA_INCONSISTENCY, error_record
from logwright.codec.zookeeper.repair.logs import Log, zxids
from logwright.codec.zookeeper.repair.snapshots import Snapshot
from logwright.codec.zookeeper.repair.survey import LIMITS, Survey, first_zxid, last_zxid, reorder, survey
from logwright.codec.zookeeper.repair.validate import replay, validate
from logwright.codec.zookeeper.startup.settings import AUTOCREATE
from logwright.codec.zookeeper.startup.settings import OPTIONS as START_OPTIONS
from logwright.codec.zookeeper.startup.start import STARTUP
from logwright.codec.zookeeper.store import files
from logwright.codec.zookeeper.store.datadir import LAYOUT
from logwright.codec.zookeeper.store.trace import trace

CHOP = Option(
    "chop.zxid",
    None,
    "Go back to this transaction: later ones are cut off, as by TxnLogToolkit --chop --zxid, and later snapshots are removed",
    parse_hexadecimal,
    low=0,
    high=(1 << 63) - 1,
)
TELL, CUT = "tell", "cut"
MISMATCH = Option(
    "digest.mismatch",
    TELL,
    "Strategy prefix: how to handle a transaction with a right checksum whose digest is not that of the tree after it: report it, as a "
    "server does in its log, or cut the history before it",
    parse_choice,
    (TELL, CUT),
)
VERSION = Option(
    "version",
    None,
    "Strategy system: the version of ZooKeeper that is simulated; by default the newest",
    parse_text,
)
_OWN = (
    *used_by({Verb.REPAIR}, CHOP, strategies=(str(Strategy.SALVAGE), str(Strategy.PREFIX))),
    *used_by({Verb.REPAIR}, MISMATCH, strategies=(str(Strategy.PREFIX),)),
    *used_by({Verb.REPAIR}, VERSION, strategies=(str(Strategy.SYSTEM),)),
    *LIMITS,
    # An empty directory is examined by the simulated start only.
    *used_by({Verb.REPAIR}, AUTOCREATE, strategies=(str(Strategy.SYSTEM),)),
)
_NAMES = {option.name for option in _OWN}
REPAIR_OPTIONS = (*_OWN, *(option for option in START_OPTIONS if option.name not in _NAMES))
MOST_FILLED = 1 << 20
"""The maximum number of missing transactions that are replaced."""
_FILLED_AT_ONCE = 1 << 12
BEFORE_QUORUM = (
    "no other server of the ensemble may have later transactions, or theirs win and this tree is overwritten: start the others on empty "
    "directories"
)


class DataDirRepair(RepairPlan, Repairer):
    """The repair of a data directory. Snapshots are kept or dropped as a whole, logs record by record."""

    one_copy = (
        "the data directories of several servers are not copies of one another, but {} paths were given",
        "Repair one, and let the others of the ensemble fetch its tree: start them on empty directories",
    )
    surveyed: Survey

    def __init__(self, copies: Sequence[Listing], plans: Sequence[Plan], options: Options) -> None:
        RepairPlan.__init__(self, copies[0])
        Repairer.__init__(self, copies, plans, options)
        self.chop: int | None = options[CHOP.name]
        self.made_files: dict[str, Sequence[Chunk]] = {}
        """New snapshots and epoch files, by name."""
        self.fills: list[Gap] = []
        """Replacements of missing transactions, by the number of the record that they precede."""

    @classmethod
    def as_system(cls, listing: Listing, plan: Plan, options: Options) -> RepairPlan:
        settings = options.only(START_OPTIONS)
        started = STARTUP.run(listing, plan, settings, version=options[VERSION.name], clean=None)
        return SystemRepair(started, LAYOUT.order)

    def survey(self) -> None:
        self.surveyed = survey(self.listing, self.options, correct=self.correct)

    def reorder(self) -> None:
        reorder(self.surveyed)

    # Choosing what stays

    def go_back(self) -> RepairPlan:
        """Go back to the longest history without a gap, or to an earlier point if the options ask for it."""
        survey = self.surveyed
        validate(survey)
        base = self._base()
        until = continuity.furthest(survey.logs, base.zxid, survey.names)
        missing = continuity.gaps(survey.logs, base.zxid, survey.names)
        why = "after missing transactions"
        for gap in missing[:1]:
            why = f"{gap.text(' before it')} missing"
            if self.chop is None or gap.first <= self.chop:
                self._missing(gap)
        if self.chop is not None and self.chop < until:
            until, why = self.chop, f"after {zxid_text(self.chop)}, where the history is cut"
        for gap in self._lost_ends(base)[:1]:
            if gap.first <= until:
                until, why = gap.first - 1, _lost_end(gap)
        if self.options[MISMATCH.name] == CUT:
            wrong = [mismatch.zxid for mismatch in replay(survey, base).wrong[:1]]
            if wrong and wrong[0] <= until:
                until = wrong[0] - 1
                why = f"the digest of {zxid_text(wrong[0])} is not that of the tree after it"
        self._cut_logs(until, why)
        self._snapshots(until, base)
        return self._finish(base, until)

    def _base(self) -> Base:
        """Return the newest snapshot from which a replay has every transaction that may be partly in it."""
        survey, chop = self.surveyed, self.chop
        bases = continuity.bases(survey)
        for base in bases:
            if (chop is None or base.zxid <= chop) and continuity.settled(base, survey.logs, chop):
                return base
        if chop is not None and bases:
            oldest = min(base.zxid for base in bases)
            raise UsageError(
                f"cannot go back to {zxid_text(chop)}: the oldest undamaged snapshot is {snapshot_name(oldest)}",
                advice="Fuzzy snapshots (written while transactions were applied) and gaps in the logs can prevent this",
            )
        if bases and bases[0].snapshot is not None:
            newest = bases[0].snapshot
            until = continuity.furthest(survey.logs, newest.zxid)
            self._refuse(
                f"{newest.file} was written while transactions up to {zxid_text(newest.until)} were made, but the logs end at "
                f"{zxid_text(until)}"
            )
        reason = "all snapshots are damaged" if survey.snapshots else "there is no snapshot"
        first = first_zxid(survey.logs)
        begin = "there are no transactions" if first is None else f"the logs begin with {zxid_text(first)}"
        self._refuse(f"{reason}, and {begin}")

    def _lost_ends(self, base: Base) -> list[Gap]:
        """Find epochs whose last transactions are lost. Digests are the only sign of that."""
        survey = self.surveyed
        ends = continuity.ends(survey.logs, base.zxid)
        wrong = replay(survey, base).wrong if ends else []
        if not wrong:
            return []
        epoch = epoch_of(min(mismatch.zxid for mismatch in wrong))
        all_ = zxids(survey.logs)
        return [gap for gap in ends if epoch_of(int(all_[gap.record])) == epoch]

    def _refuse(self, why: str) -> NoReturn:
        raise DamageError(
            f"there is no complete history to go back to: {why}",
            path=self.surveyed.listing.name,
            advice="Strategy salvage keeps the readable part",
        )

    def salvage(self) -> RepairPlan:
        """Keep all good transactions, and the newest tree that they can be applied to."""
        survey = self.surveyed
        validate(survey)
        base = next(iter(continuity.bases(survey)), None) or self._left()
        if self.chop is not None:
            self._cut_logs(self.chop, f"after {zxid_text(self.chop)}, where the history is cut")
            if base.zxid > self.chop:
                self._base()
        until = continuity.furthest(survey.logs, base.zxid, survey.names)
        if base.snapshot is not None and base.snapshot.sound and not continuity.settled(base, survey.logs):
            self.notes.append(
                f"{base.snapshot.file} was written while transactions up to {zxid_text(base.snapshot.until)} were made, but the logs end at "
                f"{zxid_text(until)}: the tree may contain only some of the others."
            )
        self._fill(base)
        self._snapshots(self.chop, base)
        return self._finish(base, last_zxid(survey.logs, base.zxid))

    def _left(self) -> Base:
        """Return a tree of everything readable, if all snapshots are damaged and the logs do not begin with the first transaction."""
        survey = self.surveyed
        last = int(zxids(survey.logs).max(initial=0))
        for snapshot in reversed(survey.snapshots):
            left = snapshots.left_of(survey.listing, snapshot, self.options, last)
            if left is None:
                continue
            name = snapshot_name(snapshot.zxid)
            self.made_files[name] = snapshots.written(left, snapshot.zxid)
            self.rows += left.rows.num_rows
            self.notes.append(
                f"{name} has the readable nodes of {snapshot.file} ({left.rows.num_rows:,}). No checksum covers them. Missing "
                "parents are created without data."
            )
            if left.shut:
                self.notes.append(
                    f"The ACLs of {left.shut} nodes are lost: nobody may read them, or change them, until their ACLs are set again "
                    "(as super, or with skipACL=yes)."
                )
            return Base(snapshot.zxid, snapshot)
        first = first_zxid(survey.logs)
        if first is None:
            raise DamageError(
                "nothing is left: no snapshot is readable, and there are no transactions",
                path=survey.listing.name,
            )
        self.notes.append(
            f"No snapshot can be read, and the logs begin with {zxid_text(first)}: the tree has only what was created from then on."
        )
        return Base(first - 1, None)

    # Logs

    def _cut_logs(self, until: int, why: str) -> None:
        """Cut logs before the first transaction after `until`."""
        survey = self.surveyed
        for i, log in enumerate(survey.logs):
            later = np.flatnonzero(log.zxid > until)
            if len(later):
                at = int(later[0])
                part = [up_to(log, at, why)] if at else []
                for dropped in survey.logs[i + len(part) :]:
                    self._drop(dropped, why)
                survey.logs = survey.logs[:i] + part
                return

    def _drop(self, log: Log, why: str) -> None:
        """Drop a whole log."""
        lost = {}
        if len(log.zxid):
            lost = {"first_zxid": int(log.zxid[0]), "last_zxid": int(log.zxid[-1])}
        known = [cut.rows_lost for cut in log.cut]
        rows = None if None in known else len(log.zxid) + sum(rows_lost or 0 for rows_lost in known)
        self.cut.append(Removed(log.file, 0, log.size, why, 0, rows, lost))

    def _fill(self, base: Base) -> None:
        left = MOST_FILLED
        for gap in self._lost_ends(base):
            self.fills.append(gap)
            self.notes.append(
                f"{_lost_end(gap)}, an unknown number. They are replaced by {zxid_text(gap.first)}, a transaction that changes nothing."
            )
        for gap in continuity.gaps(self.surveyed.logs, base.zxid, self.surveyed.names):
            reason = f"{gap.text()} missing"
            self._missing(gap)
            if gap.count > left:
                self.notes.append(f"{reason}, too many to be replaced: servers from 3.9.4 on do not start.")
                continue
            left -= gap.count
            self.fills.append(gap)
            instead = "a transaction that changes nothing is in its place"
            if gap.count > 1:
                instead = "transactions that change nothing are in their place"
            self.notes.append(
                f"{reason}: {instead}, so that servers from 3.9.4 on start. What came later is applied to a tree that never was: nodes may "
                "be missing, or have older data."
            )

    # Snapshots

    def _snapshots(self, until: int | None, base: Base) -> None:
        """Keep sound snapshots up to a transaction."""
        survey = self.surveyed
        kept: list[Snapshot] = []
        if base.snapshot is None:
            # The snapshot of a new server, or of an empty tree after a transaction.
            codec, name = snapshot_codec.CODEC, snapshot_name(base.zxid)
            context = codec.context(name, Options(codec.options, snapshots.NO_DIGESTS if base.zxid else {}))
            empty = ROWS.schema().empty_table()
            self.made_files[name] = list(codec.encode(empty, None, None, context))
            if not base.zxid:
                self.notes.append("snapshot.0 is the tree of a new server: nothing came before the logs.")
        for snapshot in survey.snapshots:
            if snapshot.sound and (until is None or (snapshot.zxid <= until and snapshot.until <= until)):
                kept.append(snapshot)
                continue
            if snapshot.sound:
                why = f"it has transactions up to {zxid_text(snapshot.until)}"
                self.cut.append(Removed(snapshot.file, 0, snapshot.size, why, 0, 0))
            else:
                self.cut += [self._dropped(snapshot, cut, base) for cut in snapshot.cut]
        survey.snapshots = kept

    def _dropped(self, snapshot: Snapshot, cut: Removed, base: Base) -> Removed:
        """Return the removal of a damaged snapshot, whose content may follow from the files that stay."""
        got = continuity.furthest(self.surveyed.logs, base.zxid, self.surveyed.names)
        if base.snapshot is snapshot:
            return cut
        if got >= snapshot.zxid:
            why = f"{cut.why}; its tree follows from {'the logs' if base.snapshot is None else f'{base.snapshot.name} and the logs'}"
            return replace(cut, why=why, rows_lost=0)
        rows = snapshot.zxid - got if epoch_of(got) == epoch_of(snapshot.zxid) else None
        return replace(cut, rows_lost=rows, lost={"first_zxid": got + 1, "last_zxid": snapshot.zxid})

    def _missing(self, gap: Gap) -> None:
        """Report the gaps that no damage explains."""
        left = gap.count
        for log in self.surveyed.logs:
            for i, cut in enumerate(log.cut):
                if not gap.first <= cut.lost.get("first_zxid", 0) <= gap.last:
                    continue
                if cut.rows_lost is None:
                    log.cut[i] = replace(cut, rows_lost=left, lost=gap.lost)
                    return
                left -= cut.rows_lost
        if left > 0:
            log, at = continuity.place(self.surveyed.logs, gap.record)
            why = f"{gap.text()} in no file"
            self.cut.append(Removed(log.file, int(log.start[at]), 0, why, 0, left, gap.lost))

    def _finish(self, base: Base, until: int) -> RepairPlan:
        survey = self.surveyed
        for log in survey.logs:
            self.cut += log.cut
        survey.logs = [log for log in survey.logs if log.sound or len(log.zxid)]
        for file, other in survey.twice:
            why = f"{other} has the same zxid, and a server reads both"
            self.cut.append(Removed(file, 0, self.sizes[file], why, 0, 0))
        self.cut += survey.cut
        for file, other in survey.copied:
            self.cut.append(Removed(file, 0, self.sizes[file], f"a copy of {other}", 0, 0))
        wrong = {file for file, _ in survey.misnamed}
        for file, name in survey.misnamed:
            kind = "snapshot" if files.base(name).startswith(SNAPSHOT) else "log"
            text = f"{file} is {name}: it has the content of a {kind}."
            if files.base(file) == files.base(name):
                text = f"{file} was in the directory of the {'logs' if files.folder(file) else 'snapshots'}."
            self.notes.append(text)
        self.notes += [
            f"{file} is renamed to {name}: by its digest it has the tree after that transaction."
            for file, name in survey.renamed
        ]
        self.notes += [
            f"{log.file} is renamed to {log.name}: it begins with transaction {zxid_text(log.first)}."
            for log in survey.logs
            if log.renamed is not None and log.file not in wrong
        ]
        for snapshot in survey.snapshots:
            self.cut += snapshot.cut
        self._check_losses(base)
        all_ = zxids(survey.logs)
        self.rows += sum(snapshot.rows for snapshot in survey.snapshots) + len(all_)
        self._epochs(until)
        self._report(until)
        large = max((log.largest for log in survey.logs), default=0)
        if large:
            self.before_you_start.append(f"set jute.maxbuffer to at least {large}, the size of a transaction")
        if len(all_):
            self.ids = {"first_zxid": zxid_text(int(all_.min())), "last_zxid": zxid_text(int(all_.max()))}
        return self

    def _report(self, until: int) -> None:
        """Report problems of the result, as a server would see it."""
        seen = Overlay(self.listing, self.outputs())
        traced = trace(seen, next(iter(files.candidates(seen)), None))
        nodes = len(traced.tree)
        self.notes.append(
            f"The tree is that after transaction {zxid_text(until)}; it has {plural.count(nodes, 'node')}."
        )
        for mismatch in traced.wrong[:1]:
            self.notes.append(
                f"The digest stored with {zxid_text(mismatch.zxid)} is not that of the tree: the data differs from what was written, "
                f"though all checksums are right. {MISMATCH.name}={CUT} goes back to before it."
            )

    def _check_losses(self, base: Base) -> None:
        """A removal without missing transactions has lost none."""
        survey = self.surveyed
        oldest = min([base.zxid, *(snapshot.zxid for snapshot in survey.snapshots)])
        missing = continuity.gaps(survey.logs, oldest, survey.names)
        known = np.unique(zxids(survey.logs))
        for i, cut in enumerate(self.cut):
            first = cut.lost.get("first_zxid")
            if cut.rows_lost is not None or first is None or not len(known) or known[-1] < first:
                continue
            if epoch_of(int(known[np.searchsorted(known, first)])) != epoch_of(first):
                continue  # nothing tells where its epoch ended
            if not any(gap.first <= first <= gap.last for gap in missing):
                self.cut[i] = replace(cut, rows_lost=0, lost={})
        for snapshot in survey.snapshots:
            after = [gap for gap in missing if snapshot.zxid < gap.first and gap.last <= base.zxid]
            if after:
                self.notes.append(
                    f"{after[0].text()} missing after {snapshot.name}, an older snapshot: only its own state can be restored from it."
                )
                break

    def _epochs(self, until: int) -> None:
        """Replace the epoch files that keep a quorum member from starting."""
        known = self.surveyed.epochs
        for name, value in startable_epochs(known, until).items() if known else ():
            was = known.get(name)
            if was == value:
                continue
            self.made_files[name] = [str(value).encode()]
            state = "is missing"
            if name in known:
                state = "cannot be read" if was is None else f"is {was}"
                self.cut.append(Removed(name, 0, self.sizes[name], f"it {state}", 0, 0))
            self.notes.append(
                f"{name} {state}; it is set to {value}, the smallest value with which a server starts."
            )
        if known:
            self.before_you_start.append(BEFORE_QUORUM)

    # The files

    def _filled_logs(self) -> set[str]:
        """Return the names of logs that hold replacements only. Those before the first record of a log get their own file, so that both
        names match their first zxids."""
        starts = set(np.cumsum([0, *(len(log.zxid) for log in self.surveyed.logs)]).tolist()[:-1])
        taken = {log.name for log in self.surveyed.logs}
        return {self._log_name(gap) for gap in self.fills if gap.record in starts} - taken

    def _log_name(self, gap: Gap) -> str:
        """Return the name of a log that begins with replacements, in the directory of the other logs."""
        folder = next((files.folder(log.file) for log in self.surveyed.logs), "")
        return f"{folder}/{log_name(gap.first)}" if folder else log_name(gap.first)

    def outputs(self) -> Iterator[OutputFile]:
        survey = self.surveyed
        for name in survey.others:
            yield self.unchanged(name)
        for name in EPOCHS:
            if name in survey.epochs and name not in self.made_files:
                yield self.unchanged(name)
        for snapshot in survey.snapshots:
            assert snapshot.pieces is not None
            yield OutputFile(snapshot.name, snapshot.pieces, snapshot.file)
        for name, data in self.made_files.items():
            yield self.rewritten(name, *(bytes(chunk) for chunk in data))
        yield from self._logs()

    def _logs(self) -> Iterator[OutputFile]:
        first, own = 0, self._filled_logs()
        for log in self.surveyed.logs:
            count = len(log.zxid)
            here = {gap.record - first: gap for gap in self.fills if first <= gap.record < first + count}
            first += count
            gap = here.get(0)
            if gap is not None and self._log_name(gap) in own:
                pieces = [FILE_HEADER.pack({}), *self._filled(log, 0, here.pop(0))]
                yield OutputFile(self._log_name(gap), pieces, log.file)
            if log.sound and not here:
                yield self.unchanged(log.file, log.name)
            else:
                fills = {at: self._filled(log, at, gap) for at, gap in here.items()}
                yield OutputFile(log.name, list(logs.pieces(log, fills)), log.file)

    def _filled(self, log: Log, at: int, gap: Gap) -> Iterator[bytes]:
        """Yield transactions that change nothing, with the time of the one after them."""
        time = logs.time_of(self.surveyed.listing, log, at)
        for low in range(gap.first, gap.last + 1, _FILLED_AT_ONCE):
            high = min(low + _FILLED_AT_ONCE, gap.last + 1)
            yield b"".join(error_record(0, 0, zxid, time, DATA_INCONSISTENCY) for zxid in range(low, high))


def _lost_end(gap: Gap) -> str:
    return f"transactions at the end of epoch {epoch_of(gap.first)} are lost: the digests of the next epoch belong to another tree"
