"""Convert many directories, one Spark task for each: the job `replay` with `--convert` or `--compact`.

A task may run twice. Each attempt has its own staging directory, and a single rename gives the result its name. So an attempt that
finds the result of another one is done.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logwright.codec import registry
from logwright.codec.fault import ExistsError, UsageError
from logwright.codec.option import Option, Options, fold
from logwright.readers.listing import open_listing
from logwright.readers.resolve import resolve
from logwright.readers.target import DirectoryTarget, Skipped, kind
from logwright.writers.compact import record
from logwright.writers.filesystem import LocalFileSystem


@dataclass(frozen=True)
class Work:
    """The settings of a conversion. Can be pickled and is called with the path of each directory."""

    to: str
    codec: str
    compact: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def target(self, path: str) -> str:
        """Return the directory of the result."""
        return os.path.join(self.to, os.path.basename(os.path.realpath(path)))

    def __call__(self, path: str) -> dict[str, Any]:
        from logwright.api import inspect
        from logwright.conversion import convert

        target = self.target(path)
        try:
            done = convert(path, target, self.codec, compact=self.compact, **self.options)
        except ExistsError:
            return {"path": target, "rows": inspect(target)["facts"]["records"], "notes": [], "ids": {}}
        ids = done["report"].ids if self.compact else {}
        return {"path": target, "rows": done["rows"], "notes": list(done["notes"]), "ids": dict(ids)}


def check_options(codec: str, options: Mapping[str, Any], *, compact: bool) -> None:
    """Raise `UsageError` for an option that a conversion between directories of a layout does not have."""
    layout = registry.get_writer(codec)
    edit, able = layout.capabilities.edit, layout.capabilities.compact
    if compact and able is None:
        raise UsageError(f"a {codec} cannot be compacted", advice="Omit --compact")
    known: list[Option] = list(able.options) if compact and able is not None else [*layout.options]
    if edit is not None and not compact:
        known += [*edit.move_options, *edit.options]
    Options({fold(option.name): option for option in known}.values(), options)


def convert_all(spark: Any, paths: Sequence[str], work: Work) -> list[dict[str, Any]]:
    """Convert the directories at some paths, or in folders at these paths, into `work.to` under their own names. Return path, number of
    rows and notes of each.

    Raises `ExistsError` if a result exists, and `UsageError` for anything but directories of the layout `work.codec`.
    """
    resolved = resolve(list(paths), skipped=Skipped(), served=True)
    # A log directory has files beside its partitions.
    targets = [target for target in resolved if isinstance(target, DirectoryTarget)] or resolved
    for target in targets:
        if not isinstance(target, DirectoryTarget) or target.layout.name != work.codec:
            raise UsageError(f"expected a {work.codec}, but this is a {kind(target)}", path=target.path)
    sources = [target.path for target in targets]
    results = [work.target(path) for path in sources]
    for i, result in enumerate(results):
        if os.path.lexists(result):
            raise ExistsError("it already exists", path=result, advice="Use another directory for --to")
        if result in results[:i]:
            raise UsageError(
                f"two directories would be written to {result}", advice="Convert them separately"
            )
    context = spark.sparkContext
    done: list[dict[str, Any]] = context.parallelize(sources, max(len(sources), 1)).map(work).collect()
    if work.compact:
        _record(done, sources, work.to)
    return done


def _record(done: Sequence[Mapping[str, Any]], sources: Sequence[str], to: str) -> None:
    """Record how far the results are compacted, if they come from log directories or are in one. Tasks that do this at the same time may
    have overwritten each other's lines."""
    containers = [registry.container(open_listing(path)) for path in (to, *map(os.path.dirname, sources))]
    if containers[0] is None and None in containers[1:]:
        return
    container = containers[0] or containers[1]
    assert container is not None
    record(
        LocalFileSystem(), container, to, {os.path.basename(entry["path"]): entry["ids"] for entry in done}
    )
