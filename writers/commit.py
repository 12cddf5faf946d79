"""Commit staged files atomically.

There are three methods, and the target decides:

rename     The target is absent or empty: the new directory is made beside it and renamed into place.
exchange   The target is replaced: the new directory is made beside it, the two swap names, and the old one is removed.
journal    Files are added: they are staged in `<target>/<inner staging>/<token>/`, and a commit record there
           (`readers.journal`) lists the renames. Also used if the target cannot be renamed: a mount point, or a file
           system without exchange. The record then removes all old files too, so that the system never sees a mixture.

Each method has one step before which readers see the old target and after which they see the new one. A failure before that step is undone
here or by the next writer; after it, the next writer finishes the commit (`recover`).

A store with further roots is always written with a journal. Files for a root are staged in that root, and one commit record in the store's
own directory commits all roots.

A write may have a name (`readers.journal.Txn`), which the same step commits: it is part of the directory that is renamed or exchanged, or
of the commit record. A write with a known name is not started (`Repeated`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from logwright.codec.base import Match
from logwright.codec.fault import (
    BusyError,
    ExistsError,
    LogwrightError,
    NotFoundError,
    StorageError,
    UsageError,
    did_you_mean,
)
from logwright.codec.layout import Layout
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, Role
from logwright.codec.store.roots import Root, Roots, folder_of, holds_files
from logwright.readers.journal import COMMIT, Journal, Txn
from logwright.writers.filesystem import (
    FileSystem,
    explained,
    make_above,
    put_file,
    remove_tree,
    unmake,
)
from logwright.writers.lock import WriterLock, claim, refuse_running, unclaim
from logwright.writers.recover import (
    at_work,
    carry_out,
    discard_beside,
    discard_inside,
    make_places,
    recover_beside,
    recover_inside,
)
from logwright.writers.stage import FolderListing, StagedFolder
from logwright.writers.target import Target, meant
from logwright.writers.transactions import is_recorded, note_transaction, refuse_repeated, take_over

MODES = ("error", "append", "overwrite")


class Method(StrEnum):
    """How a staged directory replaces the target: by a rename, by an exchange with the old one, or file by file with a journal."""

    RENAME = "rename"
    EXCHANGE = "exchange"
    JOURNAL = "journal"


@dataclass(frozen=True)
class Ticket:
    """The state of a started write that another process needs to stage files or to finish it. Can be pickled."""

    path: str
    name: str
    mode: str
    method: Method
    token: str
    before: Mapping[str, int]
    adds: bool
    created: tuple[str, ...] = ()
    txn: Txn | None = None
    roots: Mapping[str, str] = field(default_factory=dict)
    """Directories of the further roots, by name."""
    above: Mapping[str, bytes] = field(default_factory=dict)
    """Small files of the parent directory."""


class Transaction:
    """One write to one directory. Call `begin`, fill `stage`, then call `commit`; call `undo` on any error.

    `listing` is the directory to append to; None for a new one. `stage` holds files under their final names; `work` has a directory in each
    root for temporary files.
    """

    def __init__(self, target: Target, ticket: Ticket) -> None:
        self.target = target
        self.ticket = ticket
        self.files = target.files
        self.listing: Listing | None = target.listing() if ticket.adds else None
        self._beside = target.beside(ticket.token)
        if ticket.method is Method.JOURNAL:
            self._place = self.work = target.inside(ticket.token)
        else:
            self._place = Roots(self._beside)
            self.work = self._place.below(f"{target.layout.inner_staging}/{ticket.token}")
        above = FolderListing(self.files, Roots(target.above), os.path.basename(target.above))
        self.stage = StagedFolder(self.files, self._place, target.name, above)
        self._outer = WriterLock(self.files, os.path.join(self._beside, target.layout.inner_staging))
        self._inner = WriterLock(self.files, target.inner)
        self.committed = False
        self._above: list[str] = []
        self.done = "the rows are committed"
        """For errors after the commit: what is done, and what to do next."""
        self.then = "The next write to this directory finishes the cleanup; do not write the same rows again"

    # Begin

    @classmethod
    def begin(
        cls,
        files: FileSystem,
        layout: Layout,
        path: str,
        mode: str,
        *,
        many: bool = False,
        process: int | None = None,
        txn: Txn | None = None,
        roots: Sequence[Root] = (),
        above: Mapping[str, bytes] | None = None,
    ) -> Transaction:
        """Check everything that can be checked in advance, finish or undo what an earlier writer left, and make and lock the staging
        directory.

        `many`: other processes will fill and finish it; it belongs to `process` (default: this one), and no lock is held meanwhile. `roots`
        are the further roots (`Layout.roots`), `above` small files for the parent directory (`Layout.above`). Raises `Repeated` if `txn`
        has been written already.
        """
        if mode not in MODES:
            raise UsageError(f"unknown mode {mode!r}", advice=did_you_mean(mode, MODES))
        path = meant(files, layout, path)
        target = Target.at(files, layout, path, roots)
        at = files.stat(target.path)
        if at is not None and not at.directory:
            raise ExistsError(f"it is a file; {layout.name} is a directory", path=path)
        if mode == "error" and target.occupied():
            raise _exists(path)
        refuse_running(files, layout, target.path)
        _refuse_above(target, above or {})
        lock = WriterLock(files, target.inner)
        created: tuple[str, ...] = ()
        transaction: Transaction | None = None
        try:
            if target.further:
                for root in target.roots:
                    created += make_above(files, root)
                at = files.stat(target.path)
            if at is not None:
                if not lock.take():
                    raise at_work(path)
                recover_inside(target)
            if txn is not None:
                refuse_repeated(files, target.inner, txn)
            occupied = target.occupied()
            if occupied:
                refuse_foreign(target, mode)
            created += make_above(files, target.above)
            ticket = Ticket(
                path=path,
                name=target.name,
                mode=mode,
                method=way(target, mode, occupied),
                token="",
                before=target.sizes() if occupied else {},
                adds=mode == "append" and occupied,
                created=created,
                txn=txn,
                roots=target.further,
                above=above or {},
            )
            if ticket.method is Method.RENAME:
                lock.release()  # an empty directory is replaced, so nothing may be left in it
            for _ in range(100):
                transaction = cls(target, replace(ticket, token=secrets.token_hex(16)))
                transaction._inner = lock
                if transaction._make(many, process):
                    break
            else:
                raise StorageError(
                    "the staging directory cannot be created, or is removed repeatedly",
                    path=path,
                    advice="Write to a file system that allows new directories",
                )
            if recover_beside(target, transaction.ticket.token):
                raise at_work(path)
            if many:
                transaction.pause()
            return transaction
        except BaseException:
            with contextlib.suppress(OSError):
                if transaction is not None:
                    transaction.undo()
                else:
                    lock.release()
                    unmake(files, created)
            raise

    def _make(self, many: bool, process: int | None) -> bool:
        """Make the staging directory. Return False if another writer removed it before it was locked."""
        files = self.files
        try:
            if self.ticket.method is not Method.JOURNAL:
                files.mkdir(self._beside)
                if not self._outer.take():
                    return False
                exists = files.stat(self.target.path) is not None
                model = self.target.path if exists else self.target.above
                files.adopt(self._beside, model, permissions=exists)
            make_places(files, self.work)
            own = self.work.own
            if many:
                claim(files, own, process)
                files.sync_directory(own)
            # Sync the names, so that leftovers of a crash are recognised.
            files.sync_directory(os.path.dirname(own))
            files.sync_directory(os.path.dirname(os.path.dirname(own)))
            return True
        except FileNotFoundError:
            self._outer.drop()
            if files.stat(os.path.dirname(self._place.own)) is None:
                raise
            return False

    # Between processes

    def pause(self) -> None:
        """Release the locks. `ticket` is enough to continue in another process."""
        self._outer.release()
        self._inner.release()

    @classmethod
    def resume(cls, files: FileSystem, layout: Layout, ticket: Ticket) -> Transaction:
        """Continue a write that was started with `many`, and take the locks."""
        target = Target(files, layout, files.real(ticket.path), ticket.name, ticket.roots)
        transaction = cls(target, ticket)
        try:
            if ticket.method is not Method.JOURNAL and not transaction._outer.take():
                raise at_work(ticket.path)
            if ticket.method is not Method.RENAME and not transaction._inner.take():
                raise at_work(ticket.path)
            if files.stat(transaction.work.own) is None:
                raise FileNotFoundError(transaction.work.own)
            # From here on the locks show that the write is active.
            unclaim(files, transaction.work.own)
        except FileNotFoundError:
            transaction.pause()
            raise NotFoundError(
                "the staging directory no longer exists",
                path=transaction.work.own,
                advice="It was removed with the target, or by hand. If this is another machine: is the file system shared?",
            ) from None
        except BaseException:
            transaction.pause()
            raise
        return transaction

    # End

    def commit(self, order: Iterable[str] | None = None, removes: Iterable[str] = ()) -> None:
        """Commit the staged files. `order` is the order of renames, by default the layout's. `removes` are files of an existing directory
        to remove before the first rename, including those that a staged file replaces.

        After an error the target is unchanged and everything is undone, unless `committed` is true.
        """
        self.stage.close()
        refuse_running(self.files, self.target.layout, self.target.path)
        self._refuse_changed()
        staged = self.stage.staged()
        ordered = tuple(self.target.layout.order(staged) if order is None else order)
        if sorted(ordered) != sorted(staged):
            raise LogwrightError(f"layout {self.target.layout.name} orders other files than the staged ones")
        for name in ordered:
            if (
                not holds_files(folder_of(name), self.target.layout.folders)
                and folder_of(name) not in self.target.further
            ):
                raise LogwrightError(
                    f"{name} is not a valid place for a file of {self.target.layout.name}. Check the names in the rows (topics, ...)"
                )
        self._put_above()
        if self.ticket.method is Method.RENAME:
            self._commit_rename()
        elif self.ticket.method is Method.EXCHANGE:
            self._commit_exchange(ordered)
        else:
            withheld = [
                name
                for name in self.target.layout.withheld
                if name in staged and name in self.ticket.before and self.ticket.adds
            ]
            removes = (*removes, *withheld) if self.ticket.adds else tuple(self.ticket.before)
            self._commit_journal(ordered, tuple(removes))

    def _put_above(self) -> None:
        """Write the small files of the parent directory first: without the directory they mean nothing to the system."""
        _refuse_above(self.target, self.ticket.above)
        for name, data in self.ticket.above.items():
            path = os.path.join(self.target.above, name)
            if self.files.stat(path) is None:
                draft = os.path.join(self.work.own, name)
                put_file(self.files, draft, data)
                self.files.adopt(draft, self.target.above)
                self.files.rename_new(draft, path)
                self._above.append(path)
        if self._above:
            self.files.sync_directory(self.target.above)

    def _commit_rename(self) -> None:
        self._take_record_along()
        self.files.rename(self._beside, self.target.path)
        with self._after():
            self._outer.moved(self.target.inner)
            self.files.sync_directory(self.target.above)
            remove_tree(self.files, self.target.inside(self.ticket.token).own)
            self._outer.release()

    def _commit_exchange(self, ordered: tuple[str, ...]) -> None:
        self._take_record_along()
        # The marker shows that the old directory may be removed once it has the staging name.
        marker = self.target.inside(self.ticket.token).own
        self.files.mkdir(marker)
        self.files.sync_directory(self.target.inner)
        self.files.sync_directory(self.target.path)
        if not self.files.exchange(self._beside, self.target.path):
            self.files.rename(self._beside, marker)
            self.files.sync_directory(self.target.inner)
            self._place = Roots(marker)
            self._commit_journal(ordered, tuple(self.ticket.before))
            return
        with self._after():
            if replace(self.target, path=self._beside).sizes() != self.ticket.before:
                # Someone added a file between the check and the exchange.
                self.files.exchange(self._beside, self.target.path)
                self.committed = False
                raise _changed(self.ticket.path)
            inner = os.path.join(self._beside, self.target.layout.inner_staging)
            self._outer.moved(self.target.inner)
            self._inner.moved(inner)
            self.files.sync_directory(self.target.above)
            discard_beside(self.files, self._beside, self.target.layout.inner_staging)
            self._inner.drop()
            remove_tree(self.files, marker)
            self._outer.release()

    def _commit_journal(self, ordered: tuple[str, ...], removes: tuple[str, ...]) -> None:
        staged = self.stage.staged()
        if ordered or removes:
            record = Journal(
                renames=tuple((name, name) for name in ordered),
                sizes={name: staged[name] for name in ordered},
                fingerprint=self.ticket.before,
                removes=tuple(reversed(self.target.layout.order(removes))),
                txn=self.ticket.txn,
                roots=self.ticket.roots,
                barrier=self._barrier(ordered, removes),
            )
            own = self._place.own
            draft = os.path.join(own, COMMIT + ".tmp")
            put_file(self.files, draft, record.to_json().encode())
            self.files.rename(draft, os.path.join(own, COMMIT))
            self.files.sync_directory(own)
            with self._after():
                carry_out(self.files, self.target.roots, self._place, record)
                note_transaction(self.files, self.target.inner, record.txn)
                self._tidy()
        else:
            note_transaction(self.files, self.target.inner, self.ticket.txn)
            with self._after():
                self._tidy()

    def _barrier(self, ordered: tuple[str, ...], removes: tuple[str, ...]) -> str | None:
        """Return `Layout.barrier` if it is needed. It is not if no old file is changed, since any prefix of the renames is then consistent."""
        old = removes or any(name in self.ticket.before for name in ordered)
        several = len({*ordered, *removes}) > 1
        return self.target.layout.barrier if self.ticket.roots and several and old else None

    def _take_record_along(self) -> None:
        """Add the record of transactions to the new directory."""
        inner = os.path.join(self._place.own, self.target.layout.inner_staging)
        take_over(self.files, self.target.inner, inner, self.ticket.txn)

    def _tidy(self) -> None:
        discard_inside(self.files, self._place)
        self._outer.drop()
        self._inner.release()

    def _refuse_changed(self) -> None:
        target = self.target
        if not self.ticket.before:
            if target.occupied():
                raise ExistsError(
                    "it was created by someone else while the rows were being staged", path=self.ticket.path
                )
        elif self.files.stat(target.path) is None or target.sizes() != self.ticket.before:
            raise _changed(self.ticket.path)

    @contextlib.contextmanager
    def _after(self) -> Iterator[None]:
        """Context for the steps after the commit: they may fail, but cannot be undone."""
        self.committed = True
        try:
            yield
        except OSError as error:
            if not self.committed:
                raise
            explanation = explained(error, self.ticket.path)
            raise StorageError(
                f"{self.done}, but cleaning up failed: {explanation}",
                path=self.ticket.path,
                advice=self.then,
            ) from error

    def fail(self) -> None:
        """Call `undo` after an error. If the failing disk prevents it, the next writer does it."""
        with contextlib.suppress(OSError):
            self.undo()

    def undo(self) -> None:
        """Restore the target and remove everything else. After `committed` only release the locks. Errors are raised last."""
        self.stage.abandon()
        if self.committed:
            self._outer.drop()
            self._inner.drop()
            return
        files, target, token = self.files, self.target, self.ticket.token
        with contextlib.ExitStack() as steps:
            steps.callback(unmake, files, self.ticket.created)
            steps.callback(self._inner.release)
            for path in self._above:
                steps.callback(files.remove, path)
            if self.ticket.method is not Method.RENAME:
                steps.callback(discard_inside, files, target.inside(token))
            if self.ticket.method is not Method.JOURNAL:
                steps.callback(self._outer.drop)
                steps.callback(discard_beside, files, self._beside, target.layout.inner_staging)


def way(target: Target, mode: str, occupied: bool) -> Method:
    """Return the method for a target."""
    if occupied and mode == "append":
        return Method.JOURNAL
    if target.further:
        return Method.JOURNAL
    at, above = target.files.stat(target.path), target.files.stat(target.above)
    if at is not None and above is not None and at.device != above.device:
        return Method.JOURNAL  # a mount point cannot be renamed
    return Method.EXCHANGE if occupied or is_recorded(target.files, target.inner) else Method.RENAME


def _refuse_above(target: Target, above: Mapping[str, bytes]) -> None:
    """Raise if a small file of the parent directory has other content, or is on another file system."""
    layout = target.layout
    if above and layout.data_folder not in (None, os.path.basename(target.path)):
        raise UsageError(
            f"{', '.join(above)} belongs above {layout.data_folder}, but this directory has another name",
            path=target.path,
        )
    for name, data in above.items():
        path = os.path.join(target.above, name)
        existing = target.files.stat(path)
        if existing is not None and (content := target.files.read(path, 0, 4096)) != data:
            raise ExistsError(
                f"it contains {content.decode(errors='replace')!r}, and {data.decode()!r} should be written",
                path=path,
                advice=f"Omit {name} to keep it, or remove it first",
            )
    at, beside = target.files.stat(target.path), target.files.stat(target.above)
    if above and at is not None and beside is not None and at.device != beside.device:
        raise UsageError(
            f"{', '.join(above)} is on another file system than the directory, so they cannot be committed together",
            path=target.path,
            advice="Write it by hand",
        )


def _exists(path: str) -> ExistsError:
    return ExistsError(
        "it already exists and is not empty",
        path=path,
        advice="Add to it with mode='append' (--if-exists append), or replace it with mode='overwrite' "
        "(--if-exists overwrite)",
    )


def _changed(path: str) -> BusyError:
    return BusyError(
        "its files were changed by someone else while the rows were being staged; nothing was written",
        path=path,
        advice="Make sure that nothing else writes there, then try again",
    )


def refuse_foreign(target: Target, mode: str) -> None:
    """Raise unless the target has the same layout and, if it is replaced, no other files."""
    if mode == "error":
        raise _exists(target.path)
    listing = target.listing()
    if target.layout.recognise(listing) <= Match.NO:
        raise ExistsError(
            f"it is not empty and not a {target.layout.name}; nothing was written",
            path=target.path,
            advice="Use an empty directory or one that does not exist",
        )
    if mode == "append":
        return
    foreign: list[str] = []
    target.sizes(foreign)
    foreign = [name for name in foreign if name != target.layout.inner_staging]
    plan = target.layout.plan(listing, Options(target.layout.read_options))
    foreign += [file.name for file in plan.files if file.role is Role.FOREIGN]
    if foreign:
        raise ExistsError(
            f"it has files that are not part of a {target.layout.name} and would be lost: {', '.join(foreign[:5])}",
            path=target.path,
            advice="Move them away first",
        )
