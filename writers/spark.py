"""The Spark sink: tasks stage, the driver's commit puts everything in place.

Spark gives a sink's tasks arbitrary rows and no say in it, runs some of them twice, and may kill any of them. A task writes
into a staging place of its own and returns what it made; only what the committed attempts returned is put in place.

Of a stream Spark makes the sink anew for each batch, and once more for the end of the batch, which alone is told its number. After a
kill Spark does the last batch again; that its rows come once is for the sink to see (`writers.streamed`).
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
"""Spark hands over 10,000 rows at a time; kernels like more."""


_QUERY_ID = "sql.streaming.queryId"
"""The local property of a stream's tasks that says which one it is; the same after a restart from its checkpoint."""
TXN_OPTIONS = (
    Option("txnAppId", None, "Names who writes: together with txnVersion a write is done once.", parse_text),
    Option("txnVersion", None, "The number of the write, above that of the one before. A stream's is that of its batch.", low=0),
)  # fmt: skip
"""Delta's names."""


def app_of(given: Mapping[str, str]) -> str:
    """The name of a stream."""
    app, version = _named(given)
    if version is not None:
        raise UsageError(
            "txnVersion is for batches: of a stream it is the number of its batch", advice="Leave it away"
        )
    if not app:
        raise UsageError(
            "a stream needs a name, by which what it has written already is known after a restart",
            advice='Say .option("txnAppId", ...): one name for one checkpoint',
        )
    return app


def txn_of(given: Mapping[str, str]) -> Txn | None:
    """The name of a write, where it has one."""
    app, version = _named(given)
    if app is None and version is None:
        return None
    if not app or version is None:
        raise UsageError(
            f"{'txnAppId' if version is None else 'txnVersion'} is given alone", advice="Say both, or none"
        )
    return Txn(app, version)


def _named(given: Mapping[str, str]) -> tuple[str | None, int | None]:
    names = {fold(option.name) for option in TXN_OPTIONS}
    words = Options(TXN_OPTIONS, {name: value for name, value in given.items() if fold(name) in names})
    return words["txnAppId"], words["txnVersion"]


@dataclass
class Message(WriterCommitMessage):
    """What one task made."""

    task: TaskMessage


class SparkSink(DataSourceArrowWriter):
    """Writes the partitions of a DataFrame as parts of one target."""

    def __init__(self, write: StagedWrite) -> None:
        self._write = write

    @short_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        keep_freed_memory()
        context = TaskContext.get()
        assert context is not None
        task = self._write.task(context.partitionId(), context.taskAttemptId())
        try:
            for batch in _larger(iterator):
                task.add(batch)
            return Message(task.commit())
        except BaseException:
            task.abort()
            raise

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
    """What one task of a batch made."""

    staged: Staged


class StreamSink(DataSourceStreamArrowWriter):
    """Writes the batches of a stream to one target, each once."""

    def __init__(self, write: StreamWrite) -> None:
        self._write = write

    @short_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StreamMessage:
        keep_freed_memory()
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty(_QUERY_ID)
        task = self._write.task(context.partitionId(), context.taskAttemptId(), query)
        try:
            for batch in _larger(iterator):
                task.add(batch)
            return StreamMessage(task.commit())
        except BaseException:
            task.abort()
            raise

    @short_traceback
    def commit(self, messages: list[Any], batchId: int) -> None:
        done = self._write.commit(batchId, [message.staged for message in messages if message is not None])
        for text in done.warnings if done is not None else ():
            warnings.warn(text, UserWarning, stacklevel=2)

    @short_traceback
    def abort(self, messages: list[Any], batchId: int) -> None:
        self._write.abort()


class DoneAlready(DataSourceArrowWriter):
    """Where the write of this name has been done: nothing is."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return WriterCommitMessage()


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
