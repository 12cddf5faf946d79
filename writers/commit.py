"""Method new files become the target, whole or not at all.

Three ways, of which the target decides:

rename     There is no target, or an empty directory: the new one is made beside it and renamed into place.
exchange   The target is replaced: the new one is made beside it, the two swap names, then the old one is removed.
journal    Files are added: they are made inside, in `<target>/<inner staging>/<token>/`, and a commit record there
           (`readers.journal`) says how they get their names. Also where the target can't be renamed: a mount point, or a file
           system without exchange; then the record also removes all old files, so that the system, started in between, sees no mixture.

In each there is one step before which the target is the old one and after which it is the new one, as readers see it. Whatever
fails before that step is undone here or by the next writer; whatever fails after it is finished by the next writer (`recover`).

A store with further roots is always written by a journal. What is staged for a root is staged in it, and one commit record in the store's
own directory commits all roots.

A write may have a name (`readers.journal.Txn`), which is committed by the same step as its files: it comes with the directory that
is renamed or exchanged, or stands in the commit record. A write whose name is known already is not begun (`Repeated`).
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
    """Method a staged directory takes its place: by a rename, by an exchange with the old one, or file by file behind a journal."""

    RENAME = "rename"
    EXCHANGE = "exchange"
    JOURNAL = "journal"


@dataclass(frozen=True)
class Ticket:
    """What another process needs to know of a write that has begun, to stage for it or to finish it. Picklable."""

    path: str
    name: str
    mode: str
    method: Method
    token: str
    before: Mapping[str, int]
    adds: bool
    made: tuple[str, ...] = ()
    txn: Txn | None = None
    roots: Mapping[str, str] = field(default_factory=dict)
    """The directories of the further roots, by name."""
    above: Mapping[str, bytes] = field(default_factory=dict)
    """Small files of the directory above."""


class Transaction:
    """One write to one directory. `begin`, fill `stage`, then `commit`; `undo` on any error.

    `listing` is the directory that is added to, None when a new one is made. `stage` holds files under their final names;
    `work` are directories, one in each root, for whatever else is needed on the way.
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
        """What is true after the commit, and what not to do then, for errors that come too late to undo it."""
        self.then = "The next write to this directory finishes it; do not write the same rows again"

    # begin

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
        """Check everything that can be checked before any work, finish or undo what an earlier writer left, make the
        staging directory and lock it. `many`: it will be filled and finished by other processes; it belongs to `process`
        (default: this one) and no lock is held in between. `roots` are the further roots (`Layout.roots`), `above` small files that lie in
        the directory above (`Layout.above`).
        Raises `Repeated` where `txn` has been written already.
        """
        if mode not in MODES:
            raise UsageError(f"mode {mode!r} is none of {', '.join(MODES)}")
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
        made: tuple[str, ...] = ()
        transaction: Transaction | None = None
        try:
            if target.further:
                for one in target.roots:
                    made += make_above(files, one)
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
            made += make_above(files, target.above)
            ticket = Ticket(
                path=path,
                name=target.name,
                mode=mode,
                method=way(target, mode, occupied),
                token="",
                before=target.sizes() if occupied else {},
                adds=mode == "append" and occupied,
                made=made,
                txn=txn,
                roots=target.further,
                above=above or {},
            )
            if ticket.method is Method.RENAME:
                lock.release()  # an empty directory is replaced: nothing may be left in it
            for _ in range(100):
                transaction = cls(target, replace(ticket, token=secrets.token_hex(16)))
                transaction._inner = lock
                if transaction._make(many, process):
                    break
            else:
                raise StorageError(
                    "the staging directory beside it is removed again and again, or can't be made",
                    path=path,
                    advice="Name a place on a file system that takes new directories",
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
                    unmake(files, made)
            raise

    def _make(self, many: bool, process: int | None) -> bool:
        """Make the staging directory; False when another writer took it, not locked yet, for one left behind."""
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
            # So that what is left after a crash is known as ours.
            files.sync_directory(os.path.dirname(own))
            files.sync_directory(os.path.dirname(os.path.dirname(own)))
            return True
        except FileNotFoundError:
            self._outer.drop()
            if files.stat(os.path.dirname(self._place.own)) is None:
                raise
            return False

    # between processes

    def pause(self) -> None:
        """Free the locks; `ticket` is enough to go on elsewhere."""
        self._outer.release()
        self._inner.release()

    @classmethod
    def resume(cls, files: FileSystem, layout: Layout, ticket: Ticket) -> Transaction:
        """Go on with a write that was begun with `many`: takes the locks."""
        target = Target(files, layout, files.real(ticket.path), ticket.name, ticket.roots)
        transaction = cls(target, ticket)
        try:
            if ticket.method is not Method.JOURNAL and not transaction._outer.take():
                raise at_work(ticket.path)
            if ticket.method is not Method.RENAME and not transaction._inner.take():
                raise at_work(ticket.path)
            if files.stat(transaction.work.own) is None:
                raise FileNotFoundError(transaction.work.own)
            # From here on the locks say that it is being worked on.
            unclaim(files, transaction.work.own)
        except FileNotFoundError:
            transaction.pause()
            raise NotFoundError(
                "the staging directory is gone",
                path=transaction.work.own,
                advice="It has been removed together with the target, or by hand; or is this not a shared file system?",
            ) from None
        except BaseException:
            transaction.pause()
            raise
        return transaction

    # the end

    def commit(self, order: Iterable[str] | None = None, removes: Iterable[str] = ()) -> None:
        """Make the staged files the target's. `order` is that of the renames, the layout's by default. `removes` are files of a
        directory that is added to: they are gone before the first rename, also those that a staged file takes the place of.

        After an error the target is the old one and all is undone, unless `committed` says that it is the new one.
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
                    f"layout {self.target.layout.name} made {name} in a folder that it does not list"
                )
        self._put_above()
        if self.ticket.method is Method.RENAME:
            self._commit_rename()
        elif self.ticket.method is Method.EXCHANGE:
            self._commit_exchange(ordered)
        else:
            self._commit_journal(ordered, tuple(removes) if self.ticket.adds else tuple(self.ticket.before))

    def _put_above(self) -> None:
        """The small files of the directory above come first: without the directory they say nothing to the system."""
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
        # By this the old directory is known as ours to remove, once it has the staging name.
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
                # Someone put a file into it after we looked and before it was exchanged.
                self.files.exchange(self._beside, self.target.path)
                self.committed = False
                raise _changed(self.ticket.path)
            inner = os.path.join(self._beside, self.target.layout.inner_staging)
            self._outer.moved(self.target.inner)
            self._inner.moved(inner)
            self.files.sync_directory(self.target.above)
            discard_beside(self.files, self._beside, self.target.layout.inner_staging, self.ticket.token)
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
        """Return `Layout.barrier` where it is needed. Where nothing old is touched it is not: what has been put in place is a prefix of what
        comes."""
        old = removes or any(name in self.ticket.before for name in ordered)
        several = len({*ordered, *removes}) > 1
        return self.target.layout.barrier if self.ticket.roots and several and old else None

    def _take_record_along(self) -> None:
        """The record of the transactions comes with the new directory."""
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
                    "it has come into being while the rows were being staged", path=self.ticket.path
                )
        elif self.files.stat(target.path) is None or target.sizes() != self.ticket.before:
            raise _changed(self.ticket.path)

    @contextlib.contextmanager
    def _after(self) -> Iterator[None]:
        """What follows the step that decides: it can fail, but not be undone."""
        self.committed = True
        try:
            yield
        except OSError as error:
            if not self.committed:
                raise
            said = explained(error, self.ticket.path)
            raise StorageError(
                f"{self.done}, but tidying up after that failed: {said}",
                path=self.ticket.path,
                advice=self.then,
            ) from error

    def fail(self) -> None:
        """`undo` while an error is on its way: the disk that caused it may not let us, then the next writer does."""
        with contextlib.suppress(OSError):
            self.undo()

    def undo(self) -> None:
        """Leave the target as it was, and nothing else. After `committed` only free the locks. Errors are raised last."""
        self.stage.abandon()
        if self.committed:
            self._outer.drop()
            self._inner.drop()
            return
        files, target, token = self.files, self.target, self.ticket.token
        with contextlib.ExitStack() as steps:
            steps.callback(unmake, files, self.ticket.made)
            steps.callback(self._inner.release)
            for path in self._above:
                steps.callback(files.remove, path)
            if self.ticket.method is not Method.RENAME:
                steps.callback(discard_inside, files, target.inside(token))
            if self.ticket.method is not Method.JOURNAL:
                steps.callback(self._outer.drop)
                steps.callback(discard_beside, files, self._beside, target.layout.inner_staging, token)


def way(target: Target, mode: str, occupied: bool) -> Method:
    """Method a target is written."""
    if occupied and mode == "append":
        return Method.JOURNAL
    if target.further:
        return Method.JOURNAL
    at, above = target.files.stat(target.path), target.files.stat(target.above)
    if at is not None and above is not None and at.device != above.device:
        return Method.JOURNAL  # a mount point has no name to be changed
    return Method.EXCHANGE if occupied or is_recorded(target.files, target.inner) else Method.RENAME


def _refuse_above(target: Target, above: Mapping[str, bytes]) -> None:
    """A small file of the directory above that says something else is not written over; and it lies on the same file system."""
    layout = target.layout
    if above and layout.data_folder not in (None, os.path.basename(target.path)):
        raise UsageError(
            f"{', '.join(above)} lies above {layout.data_folder}, this directory has another name",
            path=target.path,
        )
    for name, data in above.items():
        path = os.path.join(target.above, name)
        found = target.files.stat(path)
        if found is not None and (said := target.files.read(path, 0, 4096)) != data:
            raise ExistsError(
                f"it says {said.decode(errors='replace')!r}, and {data.decode()!r} is to be written",
                path=path,
                advice=f"Leave {name} away to keep it, or remove it first",
            )
    at, beside = target.files.stat(target.path), target.files.stat(target.above)
    if above and at is not None and beside is not None and at.device != beside.device:
        raise UsageError(
            f"{', '.join(above)} lies on another file system than the directory, which can't be written together",
            path=target.path,
            advice="Write it by hand",
        )


def _exists(path: str) -> ExistsError:
    return ExistsError(
        "it exists and is not empty",
        path=path,
        advice="mode='append' (--if-exists append) adds to it, mode='overwrite' replaces it",
    )


def _changed(path: str) -> BusyError:
    return BusyError(
        "its files have been changed by someone else while the rows were being staged; nothing was written",
        path=path,
        advice="Make sure that nothing else writes there, then try again",
    )


def refuse_foreign(target: Target, mode: str) -> None:
    """Only a directory of the same layout is added to, and only one with nothing else in it is replaced."""
    if mode == "error":
        raise _exists(target.path)
    listing = target.listing()
    if target.layout.recognise(listing) <= Match.NO:
        raise ExistsError(
            f"it is not empty and not a {target.layout.name}: nothing is written to it",
            path=target.path,
            advice="Name an empty directory or one that does not exist",
        )
    if mode == "append":
        return
    strange: list[str] = []
    target.sizes(strange)
    strange = [name for name in strange if name != target.layout.inner_staging]
    plan = target.layout.plan(listing, Options(target.layout.read_options))
    strange += [file.name for file in plan.files if file.role is Role.FOREIGN]
    if strange:
        raise ExistsError(
            f"it holds what is no part of a {target.layout.name} and would be lost: {', '.join(strange[:5])}",
            path=target.path,
            advice="Move that away first",
        )
