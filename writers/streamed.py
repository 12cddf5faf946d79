"""A directory to which a stream appends: many tasks stage a batch, one commit writes it, each batch once.

Nothing is prepared before the first task stages something, since a stream does not say which batch comes next, and whether that was written
before is only known at the commit. The batch number gives the commit a name (`readers.journal.Txn`), which the same step records with the
rows. After a kill at any point the stream writes its last batch again, and the commit finds the name there or not.

Tasks stage in a folder that the first of them makes, where the system ignores it as any other staging folder. Its token begins with a hash
of the application's name, so the next commit or abort of the application removes what an unreported attempt left, while other writers leave
it alone as long as the driver runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from logwright.codec import registry
from logwright.codec.fault import BusyError, StorageError
from logwright.codec.layout import Layout
from logwright.codec.option import Options
from logwright.codec.store.roots import Roots
from logwright.readers.journal import Txn
from logwright.readers.source import local_path
from logwright.writers.commit import Method, Transaction, refuse_foreign, way
from logwright.writers.filesystem import FileSystem, LocalFileSystem, make_above, plain_errors
from logwright.writers.lock import claim_as, refuse_running
from logwright.writers.recover import discard_beside, discard_inside, finish_or_undo, make_places
from logwright.writers.staged import SHARED, TaskMessage, TaskWriter, begin_task, put_together, repeated
from logwright.writers.target import Target, meant, refuse_remote
from logwright.writers.transactions import Repeated
from logwright.writers.write import Written

_OURS = 16
"""Number of hexadecimal digits of a token that identify the application."""


@dataclass(frozen=True)
class Staged:
    """Files that one attempt of a task staged for a batch, their place, and the files of the directory at that time."""

    part: TaskMessage
    staging: Roots
    before: Mapping[str, int]
    by: str | None


class StreamTask:
    """One attempt of one task of a batch."""

    def __init__(self, writer: TaskWriter, staging: Roots, before: Mapping[str, int], by: str | None) -> None:
        self._staging, self._before, self._by = staging, before, by
        self.add, self.abort, self._commit = writer.add, writer.abort, writer.commit

    def commit(self) -> Staged:
        """Finish: return when all rows are durable."""
        return Staged(self._commit(), self._staging, self._before, self._by)


class StreamWrite:
    """The target of a stream. Created for each batch and once more for the end of the batch; pickled to tasks.

    `app` is the permanent name of the stream, `txnAppId`. `process` is the process that owns it. An unfinished earlier commit is finished
    here, so that tasks see the final directory.
    """

    def __init__(
        self,
        path: str,
        layout: str | Layout,
        app: str,
        mode: str = "append",
        options: Mapping[str, Any] | None = None,
        *,
        files: FileSystem | None = None,
        process: int | None = None,
    ) -> None:
        refuse_remote(path)
        self.path = local_path(path)
        self.app, self.mode = app, mode
        self._layout = layout
        self._files = LocalFileSystem() if files is None else files
        with plain_errors(self.path):
            self._options = Options(self.layout.options, options)
            target = self._target()
            finish_or_undo(self._files, self.layout, self.path, self.layout.roots(self._options))
            refuse_running(self._files, self.layout, target.path)
            if target.occupied():
                refuse_foreign(target, mode)
            make_above(self._files, target.above)
            self._before = self._there()
            self._inside = way(target, mode, bool(self._before)) is Method.JOURNAL
            self._token = self._prefix + secrets.token_hex(16)[_OURS:]
            self._process = dict(self._files.process(process))

    @property
    def layout(self) -> Layout:
        return registry.get_writer(self._layout) if isinstance(self._layout, str) else self._layout

    @property
    def _prefix(self) -> str:
        return hashlib.sha256(self.app.encode()).hexdigest()[:_OURS]

    def _target(self) -> Target:
        path = meant(self._files, self.layout, self.path)
        return Target.at(self._files, self.layout, path, self.layout.roots(self._options))

    def _there(self) -> dict[str, int]:
        target = self._target()
        return target.sizes() if target.occupied() else {}

    def task(self, task: int, attempt: int | str = 0, by: str | None = None) -> StreamTask:
        """Begin an attempt of a task. Tasks are numbered in the order of their rows. `by` distinguishes streams of one name."""
        with plain_errors(self.path):
            target = self._target()
            staging = self._make(target)
            existing = target.listing() if self.mode == "append" and self._before else None
            writer = begin_task(
                self._files,
                self.layout,
                self.path,
                target.name,
                existing,
                self._options,
                staging,
                task,
                attempt,
            )
            return StreamTask(writer, staging, self._before, by)

    def _make(self, target: Target) -> Roots:
        """Make the staging folder of this batch. Another task may be making it at the same time."""
        files, inner = self._files, self.layout.inner_staging
        if files.stat(target.above) is None:
            raise StorageError("the parent directory does not exist here", path=self.path, advice=SHARED)
        beside = target.beside(self._token)
        folders = [*target.roots] if self._inside and target.further else []
        folders += [target.inner] if self._inside else [beside, os.path.join(beside, inner)]
        place = target.inside(self._token) if self._inside else Roots(os.path.join(folders[-1], self._token))
        for _ in range(100):
            with contextlib.suppress(FileNotFoundError):  # another writer took it for abandoned
                for folder in folders:
                    with contextlib.suppress(FileExistsError):
                        files.mkdir(folder)
                        files.adopt(folder, os.path.dirname(folder))
                make_places(files, place)
                with contextlib.suppress(FileExistsError):
                    claim_as(files, place.own, self._process)
                return place
        raise StorageError("the staging folder cannot be created, or is removed repeatedly", path=self.path)

    def commit(self, version: int, messages: Sequence[Staged]) -> Written | None:
        """Commit a batch and record it. Return None if it was committed before."""
        by = next((part.by for part in messages if part.by is not None), None)
        txn = Txn(self.app, version, by)
        with plain_errors(self.path):
            try:
                begun = Transaction.begin(
                    self._files,
                    self.layout,
                    self.path,
                    self.mode,
                    txn=txn,
                    roots=self.layout.roots(self._options),
                    above=self.layout.parent_files(self._options),
                )
            except Repeated:
                self._sweep()
                return None
            try:
                for part in messages:
                    if dict(part.before) != dict(begun.ticket.before):
                        raise BusyError(
                            "its files were changed by someone else while the rows were being staged; nothing was written",
                            path=self.path,
                            advice="Make sure that nothing else writes there, then restart the stream",
                        )
                if len({part.staging.own for part in messages}) > 1:
                    raise StorageError(
                        "the tasks of one batch staged in different directories", path=self.path
                    )
            except BaseException:
                begun.fail()
                raise
            staging = messages[0].staging if messages else begun.work
            written = put_together(begun, [part.part for part in messages], staging, self._options)
            with contextlib.suppress(OSError):  # the next batch removes the rest
                self._sweep()
            return written

    def abort(self) -> None:
        """Remove what tasks staged. Does nothing after a commit, or if repeated."""
        with plain_errors(self.path):
            self._sweep()

    def _sweep(self) -> None:
        """Remove everything that attempts of this application staged. Tasks that are being stopped may still add to it."""
        if not repeated(self._remove):
            with contextlib.suppress(OSError):  # left to the next writer
                self._remove()

    def _remove(self) -> None:
        files, target = self._files, self._target()
        if files.stat(target.inner) is not None:
            for item in files.listdir(target.inner):
                if item.directory and item.name.startswith(self._prefix):
                    discard_inside(files, target.inside(item.name))
            with contextlib.suppress(OSError):  # it holds a record, a lock, or files of another writer
                files.rmdir(target.inner)
        for item in files.listdir(target.above) if files.stat(target.above) is not None else ():
            token = target.token_of(item.name) if item.directory else None
            if token is not None and token.startswith(self._prefix):
                place = os.path.join(target.above, item.name)
                discard_beside(files, place, self.layout.inner_staging)
