"""Read what the real system's clients get of a directory, where that is no stretch of its files (`codec.engine.startup.Served.rows`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from logwright.codec.engine.startup import Started
from logwright.codec.frames.walk import WINDOW
from logwright.readers.filter import Filter
from logwright.readers.prefetch import INLINE, Prefetcher
from logwright.readers.report import Report
from logwright.readers.resolve import DirectoryTarget, resolve
from logwright.readers.stream import Mode
from logwright.readers.task import Task, Work


@dataclass(frozen=True)
class ServedRows:
    """The rows of a directory on which the system is simulated where it is read. See `readers.task.Work`."""

    path: str
    layout: str
    options: Mapping[str, Any]
    view: str
    version: str | None
    clean: bool | None
    files: tuple[Task, ...] = ()
    """Those that count for what is served."""
    started: Started | None = None
    """The start, where it was simulated already; it does not go to another process."""

    def __reduce__(self) -> tuple[Any, ...]:
        return ServedRows, (
            self.path, self.layout, self.options, self.view, self.version, self.clean, self.files,
        )  # fmt: skip

    @property
    def length(self) -> int:
        return sum(task.length or 0 for task in self.files)

    def with_files(self, change: Callable[[Task], Task]) -> Work:
        return replace(self, files=tuple(map(change, self.files)))

    def split(self, max_bytes: int) -> Sequence[Work]:
        """Not at all: where keys are not in order, what comes out depends on all that came before."""
        return [self]

    def rows(
        self,
        columns: Sequence[str],
        report: Report,
        *,
        mode: Mode = Mode.AS_SYSTEM,
        filter: Filter | None = None,
        limit: int | None = None,
        window: int = WINDOW,
        prefetcher: Prefetcher = INLINE,
    ) -> Iterator[pa.RecordBatch]:
        wanted = tuple(dict.fromkeys((*columns, *(filter.columns if filter is not None else ()))))
        for task in self.files:
            entry = report.file(task.file, task.codec)
            entry.bytes += task.length or 0
            entry.combined = True
        left = limit
        for batch in self._start().rows(self.view, wanted):
            found = (batch if filter is None else filter.apply(batch)).select(list(columns))
            found = found if left is None else found.slice(0, left)
            if not found.num_rows:
                continue
            report.given += found.num_rows
            yield found
            if left is not None:
                left -= found.num_rows
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
