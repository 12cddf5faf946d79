"""The Spark sink: tasks stage, the driver's commit puts everything in place.

Spark gives a sink's tasks arbitrary rows and no say in it, runs some of them twice, and may kill any of them. A task writes
into a staging place of its own and returns what it made; only what the committed attempts returned is put in place.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from logwright.readers.plainly import plainly
from logwright.writers.staged import StagedWrite, TaskMessage

BATCH_ROWS = 100_000
"""Spark hands over 10,000 rows at a time; kernels like more."""


@dataclass
class Message(WriterCommitMessage):
    """What one task made."""

    task: TaskMessage


class SparkSink(DataSourceArrowWriter):
    """Writes the partitions of a DataFrame as parts of one target."""

    def __init__(self, write: StagedWrite) -> None:
        self._write = write

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
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

    @plainly
    def commit(self, messages: list[Any]) -> None:
        done = self._write.commit([message.task for message in messages if message is not None])
        for text in done.warnings:
            warnings.warn(text, UserWarning, stacklevel=2)

    @plainly
    def abort(self, messages: list[Any]) -> None:
        self._write.abort()


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
