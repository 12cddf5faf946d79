"""The Spark sink: tasks stage files, and the driver commits them.

Spark assigns rows to tasks, runs some tasks twice and may kill any of them. Each task writes to its own staging folder and returns what it
staged; only the results of the committed attempts are used.

For a stream Spark creates the sink again for each batch, and once more for the end of the batch, which alone gets the batch number. After a
kill Spark repeats the last batch; `writers.streamed` ensures that its rows are written once.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from logwright.codec.fault import UsageError
from logwright.codec.option import Option, Options, fold, parse_text
from logwright.readers.journal import Txn
from logwright.readers.process import keep_freed_memory
from logwright.readers.traceback import short_traceback
from logwright.writers.staged import StagedWrite, TaskMessage
from logwright.writers.streamed import Staged, StreamWrite

BATCH_ROWS = 100_000
"""Spark passes 10,000 rows at a time, but kernels are faster with more."""


_QUERY_ID = "sql.streaming.queryId"
"""Local property of a stream's tasks that identifies the stream; it stays the same after a restart from the checkpoint."""
TXN_OPTIONS = (
    Option("txnAppId", None, "Name of the writer. With txnVersion, each write is done only once.", parse_text),
    Option("txnVersion", None, "Number of the write, larger than the previous one. A stream uses the number of its batch.", low=0),
)  # fmt: skip
"""Names as in Delta."""


def app_of(passed: Mapping[str, str]) -> str:
    """Return the name of a stream."""
    app, version = _named(passed)
    if version is not None:
        raise UsageError(
            "txnVersion applies to batch writes; a stream uses the number of its batch", advice="Omit it"
        )
    if not app:
        raise UsageError(
            "a stream needs a name to recognise its earlier writes after a restart",
            advice='Set .option("txnAppId", ...): one name per checkpoint',
        )
    return app


def txn_of(passed: Mapping[str, str]) -> Txn | None:
    """Return the name of a write, if any."""
    app, version = _named(passed)
    if app is None and version is None:
        return None
    if not app or version is None:
        known, other = ("txnAppId", "txnVersion") if version is None else ("txnVersion", "txnAppId")
        raise UsageError(f"{known} is set without {other}", advice="Set both or neither")
    return Txn(app, version)


def _named(passed: Mapping[str, str]) -> tuple[str | None, int | None]:
    names = {fold(option.name) for option in TXN_OPTIONS}
    words = Options(TXN_OPTIONS, {name: value for name, value in passed.items() if fold(name) in names})
    return words["txnAppId"], words["txnVersion"]


@dataclass
class Message(WriterCommitMessage):
    """The result of one task."""

    task: TaskMessage


class SparkSink(DataSourceArrowWriter):
    """Writes the partitions of a DataFrame as parts of one target."""

    def __init__(self, write: StagedWrite) -> None:
        self._write = write

    @short_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        context = _context()
        task = self._write.task(context.partitionId(), context.taskAttemptId())
        return Message(_filled(task, iterator))

    @short_traceback
    def commit(self, messages: list[Any]) -> None:
        done = self._write.commit([message.task for message in messages if message is not None])
        for text in done.warnings:
            warnings.warn(text, UserWarning, stacklevel=2)

    @short_traceback
    def abort(self, messages: list[Any]) -> None:
        self._write.abort()


@dataclass
class StreamMessage(WriterCommitMessage):
    """The result of one task of a batch."""

    staged: Staged


class StreamSink(DataSourceStreamArrowWriter):
    """Writes each batch of a stream to one target, once."""

    def __init__(self, write: StreamWrite) -> None:
        self._write = write

    @short_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StreamMessage:
        context = _context()
        query = context.getLocalProperty(_QUERY_ID)
        task = self._write.task(context.partitionId(), context.taskAttemptId(), query)
        return StreamMessage(_filled(task, iterator))

    @short_traceback
    def commit(self, messages: list[Any], batchId: int) -> None:
        done = self._write.commit(batchId, [message.staged for message in messages if message is not None])
        for text in done.warnings if done is not None else ():
            warnings.warn(text, UserWarning, stacklevel=2)

    @short_traceback
    def abort(self, messages: list[Any], batchId: int) -> None:
        self._write.abort()


class DoneAlready(DataSourceArrowWriter):
    """A sink that writes nothing, since the named write has been done already."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return WriterCommitMessage()


def _context() -> TaskContext:
    """Return the task of this process, which belongs to Spark."""
    keep_freed_memory()
    context = TaskContext.get()
    assert context is not None
    return context


def _filled(task: Any, batches: Iterator[pa.RecordBatch]) -> Any:
    """Add all batches to an attempt of a task, and return its result. After an error nothing of it remains."""
    try:
        for batch in _larger(batches):
            task.add(batch)
        return task.commit()
    except BaseException:
        task.abort()
        raise


def _larger(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= BATCH_ROWS:
            yield _one(held)
            held, rows = [], 0
    if held:
        yield _one(held)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
