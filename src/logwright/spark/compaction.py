"""Compact many partitions, one Spark task for each: the job `replay` with `--compact`.

A task may run twice. Each attempt has its own staging directory, and a single rename gives the result its name. So an attempt that
finds the result of another one is done.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logwright.codec.fault import ExistsError, UsageError
from logwright.readers.resolve import resolve
from logwright.readers.target import DirectoryTarget


@dataclass(frozen=True)
class Work:
    """The settings of a compaction. Can be pickled and is called with the path of each partition."""

    to: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def target(self, path: str) -> str:
        """Return the directory of the result."""
        return os.path.join(self.to, os.path.basename(os.path.realpath(path)))

    def __call__(self, path: str) -> dict[str, Any]:
        from logwright.api import convert, inspect

        target = self.target(path)
        try:
            rows = convert(path, target, compact=True, **self.options)["rows"]
        except ExistsError:
            rows = inspect(target)["facts"]["records"]
        return {"path": target, "rows": rows}


def compact(spark: Any, paths: Sequence[str], to: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Compact the partitions at some paths, or in folders at these paths, into `to` under their own names. Return path and rows of each.

    Raises `ExistsError` if a result exists, and `UsageError` for anything but partitions.
    """
    targets = resolve(list(paths), skipped=[])
    for target in targets:
        if not isinstance(target, DirectoryTarget) or target.layout.capabilities.compact is None:
            raise UsageError("only Kafka partitions can be compacted", path=target.path)
    work = Work(to, dict(options))
    sources = [target.path for target in targets]
    results = [work.target(path) for path in sources]
    for i, result in enumerate(results):
        if os.path.lexists(result):
            raise ExistsError("it already exists", path=result, advice="Use another directory for --to")
        if result in results[:i]:
            raise UsageError(f"two partitions would be written to {result}", advice="Compact them separately")
    context = spark.sparkContext
    done: list[dict[str, Any]] = context.parallelize(sources, max(len(sources), 1)).map(work).collect()
    return done
