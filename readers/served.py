"""Read what the real system's clients get from a directory, if it is not a range of its files (`codec.engine.startup.Served.rows`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from logwright.codec.engine.startup import Started
from logwright.readers.prefetch import INLINE, Prefetcher
from logwright.readers.report import Report
from logwright.readers.resolve import resolve
from logwright.readers.stream import ALL_ROWS, Mode, ReadOptions
from logwright.readers.target import DirectoryTarget
from logwright.readers.task import Task, Work


@dataclass(frozen=True)
class ServedRows:
    """The rows of a directory on which the system is simulated while reading. See `readers.task.Work`."""

    path: str
    layout: str
    options: Mapping[str, Any]
    view: str
    version: str | None
    clean: bool | None
    files: tuple[Task, ...] = ()
    """Files that determine what is served."""
    started: Started | None = None
    """The start, if it was simulated already. It is not pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return ServedRows, (
            self.path, self.layout, self.options, self.view, self.version, self.clean, self.files,
        )  # fmt: skip

    @property
    def length(self) -> int:
        return sum(task.length or 0 for task in self.files)

    def with_files(self, change: Callable[[Task], Task]) -> Work:
        return replace(self, files=tuple(map(change, self.files)))

    def split(self, max_bytes: int, mode: Mode = Mode.FAILFAST) -> Sequence[Work]:
        """Return the whole: if keys are not in order, each row depends on all before it."""
        return [self]

    def rows(
        self,
        columns: Sequence[str],
        report: Report,
        options: ReadOptions = ALL_ROWS,
        prefetcher: Prefetcher = INLINE,
    ) -> Iterator[pa.RecordBatch]:
        filter = options.filter
        needed = tuple(dict.fromkeys((*columns, *(filter.columns if filter is not None else ()))))
        for task in self.files:
            entry = report.file(task.file, task.codec)
            entry.bytes += task.length or 0
            entry.combined = True
        left = options.limit
        for batch in self._start().rows(self.view, needed):
            limited = (batch if filter is None else filter.apply(batch)).select(list(columns))
            limited = limited if left is None else limited.slice(0, left)
            if not limited.num_rows:
                continue
            report.combined_rows += limited.num_rows
            yield limited
            if left is not None:
                left -= limited.num_rows
                if not left:
                    return

    def _start(self) -> Started:
        if self.started is not None:
            return self.started
        (target,) = resolve(self.path, self.layout, self.options)
        assert isinstance(target, DirectoryTarget)
        predict = target.layout.capabilities.predict
        assert predict is not None
        return predict.run(
            target.directory, target.plan, target.layout_options, version=self.version, clean=self.clean
        )
