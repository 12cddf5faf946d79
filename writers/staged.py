"""A write by many tasks in many processes, in two phases: tasks stage files, then one commit combines them.

The process that begins the write makes the staging folder. Tasks, on any machine that mounts the same file system, stage their parts in
their own folders inside it. Of all attempts of a task only the one whose message reaches `commit` counts; leftovers of other attempts are
removed with the staging folder. The object is pickled and holds no lock meanwhile, so the owning process is recorded: while it runs, other
writers leave the staging folder alone. Two such writes to one directory do not notice each other; the second commit finds the directory
changed and is refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from logwright.codec import plural, registry
from logwright.codec.fault import LogwrightError, NotFoundError, StorageError
from logwright.codec.layout import Layout
from logwright.codec.option import Options
from logwright.codec.store.build import Builder, Stage, Summary
from logwright.codec.store.roots import Roots
from logwright.codec.table import Table
from logwright.readers.journal import COMMIT, Txn
from logwright.readers.source import local_path
from logwright.writers import rows
from logwright.writers.commit import Transaction
from logwright.writers.filesystem import FileSystem, LocalFileSystem, plain_errors, remove_tree
from logwright.writers.stage import OWNER, FolderListing, ScratchFolder, StagedFolder, move
from logwright.writers.target import Target, refuse_remote
from logwright.writers.write import Written, configured, taken_table

SHARED = "The driver and all tasks must see the same directory under the same path: use a file system that all nodes mount"

_PATIENCE = (0.05, 0.2, 0.5, 1.0, 2.0)
"""Seconds between attempts to remove files to which tasks that are being stopped still add."""


@dataclass(frozen=True)
class TaskMessage:
    """The files that one attempt of a task staged in `folder` of the staging folder, with their sizes in bytes."""

    task: int
    folder: str
    files: Mapping[str, int]
    summary: Summary


@dataclass(frozen=True)
class TaskWriter:
    """One attempt of one task."""

    _files: FileSystem
    _task: int
    _path: str
    _stage: StagedFolder
    _scratch: ScratchFolder
    _builder: Builder
    _table: Table

    def add(self, batch: pa.RecordBatch) -> None:
        with plain_errors(self._path):
            for part in rows.batches(batch, self._table):
                with rows.misfits_named(part.schema, self._table):
                    self._stage.take(self._builder.add(part))

    def commit(self) -> TaskMessage:
        """Finish: return when all rows are durable."""
        with plain_errors(self._path):
            self._stage.take(self._builder.finish())
            self._scratch.discard()
            self._stage.close()
            folder = os.path.basename(self._stage.path)
            return TaskMessage(self._task, folder, self._stage.staged(), self._builder.summary())

    def abort(self) -> None:
        """Remove what was staged. The rest is removed with the staging folder."""
        self._stage.abandon()
        with contextlib.suppress(OSError):
            self._scratch.discard()
        for folder in self._stage.roots:
            with contextlib.suppress(OSError):
                remove_tree(self._files, folder)


def repeated(remove: Callable[[], object]) -> bool:
    """Remove folders to which tasks that are being stopped may still add: repeat `remove` until it does not find them filled again.

    Return whether it succeeded in the end.
    """
    for wait in _PATIENCE:
        try:
            remove()
            return True
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            time.sleep(wait)
    return False


def begin_task(
    files: FileSystem,
    layout: Layout,
    path: str,
    name: str,
    existing: FolderListing | None,
    options: Options,
    staging: Roots,
    task: int,
    attempt: int | str,
) -> TaskWriter:
    """Begin an attempt of a task in its own folder below `staging`. `existing` is the target to append to."""
    folder = f"task-{task}-{attempt}-{secrets.token_hex(8)}"
    stage = StagedFolder(files, staging.below(folder), name)
    files.mkdir(stage.path)
    files.adopt(stage.path, staging.own)
    scratch = ScratchFolder(files, Roots(stage.path + "-scratch"), name)
    builder = layout.builder(existing, name, options, staged=True, extra=scratch)
    return TaskWriter(files, task, path, stage, scratch, builder, taken_table(layout, options.passed()))


class StagedWrite:
    """A write of one directory by many tasks. Created where the write begins, and pickled to tasks and to where it ends.

    `process` is the process that owns the write, by default this one. Raises `Repeated` if `txn` has been written already.
    """

    def __init__(
        self,
        path: str,
        layout: str | Layout,
        mode: str = "error",
        options: Mapping[str, Any] | None = None,
        *,
        files: FileSystem | None = None,
        process: int | None = None,
        txn: Txn | None = None,
    ) -> None:
        refuse_remote(path)
        self.path = local_path(path)
        self._layout = layout
        self._files = LocalFileSystem() if files is None else files
        with plain_errors(self.path):
            self.path, merged = configured(self.path, self.layout, options or {})
            self._options = Options(self.layout.options, merged)
            begun = Transaction.begin(
                self._files, self.layout, self.path, mode, many=True, process=process, txn=txn,
                roots=self.layout.roots(self._options), above=self.layout.parent_files(self._options),
            )  # fmt: skip
            self._ticket = begun.ticket
            self._work = begun.work

    @property
    def layout(self) -> Layout:
        return registry.get_writer(self._layout) if isinstance(self._layout, str) else self._layout

    def task(self, task: int, attempt: int | str = 0) -> TaskWriter:
        """Begin an attempt of a task. Tasks are numbered in the order of their rows."""
        with plain_errors(self.path):
            if self._files.stat(os.path.join(self._work.own, OWNER)) is None:
                raise NotFoundError(
                    "the staging folder does not exist here: it was removed, or the file system is not shared",
                    path=self._work.own,
                    advice=SHARED,
                )
            existing = None
            if self._ticket.adds:
                ticket = self._ticket
                existing = Target(self._files, self.layout, ticket.path, ticket.name, ticket.roots).listing()
            return begin_task(
                self._files,
                self.layout,
                self.path,
                self._ticket.name,
                existing,
                self._options,
                self._work,
                task,
                attempt,
            )

    def commit(self, messages: Sequence[TaskMessage]) -> Written:
        """Combine what these attempts staged, in the order of their tasks, and commit it."""
        with plain_errors(self.path):
            transaction = Transaction.resume(self._files, self.layout, self._ticket)
            return put_together(transaction, messages, self._work, self._options)

    def abort(self) -> None:
        """Restore the target. Does nothing after a commit, or if repeated.

        Tasks that are being stopped may still stage files while theirs are removed, so this is retried for a while. Remaining files belong
        to nobody and are removed by the next write.
        """
        with plain_errors(self.path):
            if not repeated(self._undo):
                self._undo()

    def _undo(self) -> None:
        try:
            transaction = Transaction.resume(self._files, self.layout, self._ticket)
        except NotFoundError:
            return
        # The next writer finishes a commit that failed after its decisive step.
        transaction.committed = self._files.stat(os.path.join(self._work.own, COMMIT)) is not None
        transaction.undo()


def put_together(
    transaction: Transaction, messages: Sequence[TaskMessage], staging: Roots, options: Options
) -> Written:
    """Commit what these attempts staged below `staging`, in the order of their tasks. The transaction holds its locks."""
    try:
        summary = _place(transaction, messages, staging, options)
        staged = transaction.stage.staged()
    except BaseException:
        transaction.fail()
        raise
    return Written.of(transaction.ticket.path, staged, summary)


def _place(
    transaction: Transaction, messages: Sequence[TaskMessage], staging: Roots, options: Options
) -> Summary:
    ordered = sorted(messages, key=lambda message: message.task)
    if len({message.task for message in ordered}) < len(ordered):
        raise LogwrightError("more than one attempt of a task was committed")
    files, name, layout = transaction.files, transaction.ticket.name, transaction.target.layout
    parts: list[tuple[StagedFolder, Summary]] = []
    for message in ordered:
        parts.append((_staged(files, name, message, staging), message.summary))
    extra = StagedFolder(files, transaction.work.below("extra"), name)
    files.mkdir(extra.path)
    files.adopt(extra.path, transaction.work.own)
    stored = next((part.facts["schema"] for _, part in parts if part.facts.get("schema")), None)
    schema = pa.schema([]) if stored is None else pa.ipc.read_schema(pa.py_buffer(stored))
    with rows.misfits_named(schema, taken_table(layout, options.passed())):
        placement = layout.assemble(transaction.listing, name, parts, extra, options)
    places = {id(stage): stage for stage in (*(stage for stage, _ in parts), extra)}
    for stage in places.values():
        stage.flush()
    for place, staged, final in placement.renames:
        move(files, _own(places, place), staged, transaction.stage, final)
    transaction.commit(final for _, _, final in placement.renames)
    return placement.summary


def _staged(files: FileSystem, name: str, message: TaskMessage, staging: Roots) -> StagedFolder:
    stage = StagedFolder(files, staging.below(message.folder), name)
    for file, size in message.files.items():
        seen = files.stat(stage.real(file))
        if seen is None or seen.size != size:
            problem = (
                "it does not exist here" if seen is None else f"it has {plural.count(seen.size, 'byte')} here"
            )
            raise StorageError(
                f"not a shared file system: task {message.task} staged {file} with {size} bytes, but {problem}",
                path=stage.path,
                advice=SHARED,
            )
        stage.adopt(file, size)
    return stage


def _own(places: Mapping[int, StagedFolder], stage: Stage) -> StagedFolder:
    folder = places.get(id(stage))
    if folder is None:
        raise LogwrightError("a layout placed files of an unknown stage")
    return folder
