"""Compact a directory: `convert` with `compact`. Damaged input is refused, since a damaged frame may hold the newest row of a key."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from logwright.codec import registry
from logwright.codec.engine.repair import RepairPlan
from logwright.codec.fault import UsageError
from logwright.codec.layout import Container
from logwright.codec.option import Verb
from logwright.codec.store.listing import Plan
from logwright.codec.store.roots import Roots
from logwright.readers.report import Report
from logwright.readers.resolve import resolve
from logwright.readers.source import local_path
from logwright.readers.target import DirectoryTarget, Target, kind
from logwright.readers.task import known_options, separated
from logwright.writers.apply_plan import Original
from logwright.writers.edit import refuse_damaged
from logwright.writers.file import put_whole
from logwright.writers.filesystem import FileSystem, plain_errors
from logwright.writers.repair import carry_out
from logwright.writers.request import Request
from logwright.writers.stage import FolderListing


def compact(
    path: str, codec: str | None, request: Request, report_of: Callable[[Sequence[Target]], Report], options: Mapping[str, Any],
    clean: bool | None = None,
) -> Report:  # fmt: skip
    """Write the compacted directory to `request.out`."""
    request.check()
    targets = resolve(path, codec, {})
    first = targets[0]
    if len(targets) != 1:
        raise UsageError(
            f"{len(targets)} stores or files match; compact takes one", advice="Compact them one by one"
        )
    able = first.layout.capabilities.compact if isinstance(first, DirectoryTarget) else None
    if able is None or not isinstance(first, DirectoryTarget):
        raise UsageError(
            f"a {kind(first)} cannot be compacted",
            path=first.path,
            advice="Pass the directory of a Kafka partition",
        )
    own, reading = separated(options, able.options, first.layout.read_options)
    edit = first.layout.capabilities.edit
    moves = () if edit is None else known_options(reading, edit.move_options)
    for name in moves:
        raise UsageError(
            f"option {name} cannot be combined with compact",
            path=first.path,
            advice="Convert the result with it",
        )
    if reading:
        (resolved,) = resolve(path, codec, reading, verb=Verb.COMPACT)
        assert isinstance(resolved, DirectoryTarget)
        first = resolved
    report = report_of([first])
    container = container_above(request)

    def make(copies: Sequence[Original], plans: Sequence[Plan]) -> RepairPlan:
        refuse_damaged(report, "the newest record of a key may be missed", "compact the result")
        plan = able.compact(copies[0], plans[0], own, clean)
        plan.recorded = container is not None
        return plan

    report = carry_out([first], make, request, lambda _: report, "compact", False)
    if container is not None and request.out is not None:
        # After a crash before this step, the system compacts the store once more.
        above, name = os.path.split(os.path.abspath(local_path(request.out)))
        record(request.files, container, above, {name: report.ids})
    return report


def container_above(request: Request) -> Container | None:
    """Return the kind of the directory in which the result is written, if it is one of stores."""
    if request.out is None:
        return None
    above = os.path.dirname(os.path.abspath(local_path(request.out)))
    if request.files.stat(above) is None:
        return None
    listing = FolderListing(request.files, Roots(above), os.path.basename(above))
    container = registry.container(listing)
    if container is not None:
        container.compacted(listing, {})
    return container


def record(
    files: FileSystem, container: Container, above: str, stores: Mapping[str, Mapping[str, Any]]
) -> None:
    """Record how far stores are compacted in the own file of the container at `above`."""
    recorded = container.compacted(FolderListing(files, Roots(above), os.path.basename(above)), stores)
    if recorded is not None:
        name, data = recorded
        with plain_errors(above):
            put_whole(files, os.path.join(above, name), "overwrite", lambda: [data])
