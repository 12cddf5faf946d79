"""The Spark source of a stream: rows that are new since the last batch.

Spark stores the offsets, one number per directory by name, and creates a new source for each batch that it reads. One object plans the
batches for as long as the query runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from logwright.codec.fault import UsageError
from logwright.readers.follow import Following, Pace
from logwright.readers.plan import Reading
from logwright.readers.record import Recorder
from logwright.readers.spark import SparkSource
from logwright.readers.spark_request import Request
from logwright.readers.stream import Mode
from logwright.readers.task import table_of
from logwright.readers.traceback import short_traceback


class StreamSource(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the directories of `spark.readStream`. See `readers.follow`."""

    def __init__(self, request: Request, schema: StructType, recorder: Recorder | None = None) -> None:
        if request.mode is Mode.AS_SYSTEM:
            raise UsageError(
                "a stream cannot have mode AS_SYSTEM, which reads what the system would serve if it were started now",
                advice="Use another mode, or spark.read",
            )
        self._request = request
        layout = request.layout_of(request.targets())
        self._following: Following = request.following(layout, request.targets)
        table = table_of(layout.views[self._following.view], request.options)
        self._rows = SparkSource(request, schema, recorder, Reading(table, ()))
        self._pace = Pace.of(request.words)
        self._following.check_pace(self._pace)
        self._last: dict[str, int] | None = None
        """Positions at which the stream ends, for trigger availableNow."""
        self._since = time.monotonic()

    def __getstate__(self) -> dict[str, Any]:
        # Tasks only read and plan nothing.
        return {**self.__dict__, "_following": None}

    @short_traceback
    def initialOffset(self) -> dict[str, int]:
        return {name: low for name, (_, low, _) in self._following.spans(stream=True).items()}

    @short_traceback
    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        end = self._following.latest(start)
        if self._last is not None:
            # Later rows are not part of this run.
            last = self._last
            end = {
                name: max(start.get(name, 0), min(high, last[name])) if name in last else start[name]
                for name, high in end.items()
                if name in last or name in start
            }
        elif self._waits(start, end):
            return start
        if not isinstance(limit, ReadAllAvailable) and self._pace.limited:
            end = self._following.paced(start, end, self._pace)
        if end != start:
            self._since = time.monotonic()
        return end

    def _waits(self, start: dict[str, int], end: dict[str, int]) -> bool:
        """Return whether too few rows are available yet."""
        least = self._pace.least
        if least is None or time.monotonic() - self._since >= self._pace.patience:
            return False
        return sum(end.values()) - sum(start.get(name, 0) for name in end) < least

    def getDefaultReadLimit(self) -> ReadLimit:
        pace = self._pace
        if pace.positions is not None:
            return ReadMaxRows(pace.positions)
        if pace.bytes is not None:
            return ReadMaxBytes(pace.bytes)
        return ReadAllAvailable() if pace.files is None else ReadMaxFiles(pace.files)

    @short_traceback
    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._following.latest({}, warn=False)

    @short_traceback
    def reportLatestOffset(self) -> dict[str, int]:
        return self._following.latest({}, warn=False)

    @short_traceback
    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        ranges = self._following.between(start, end, self._request.words["maxRecordsPerPartition"])
        return [stretch for stretch in self._rows.shared(ranges) if stretch.tasks] if ranges else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.read(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: no state is kept for rows that have been read."""
