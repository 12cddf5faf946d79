"""Compact a directory: `convert` with `compact`. Damaged input is refused, since a damaged frame may hold the newest row of a key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from logwright.codec.engine.repair import RepairPlan
from logwright.codec.fault import UsageError
from logwright.codec.option import Options, Verb, fold
from logwright.codec.store.listing import Plan
from logwright.readers.report import Report
from logwright.readers.resolve import resolve
from logwright.readers.target import DirectoryTarget, Target, kind
from logwright.readers.task import known_options
from logwright.writers.apply_plan import Original
from logwright.writers.edit import refuse_damaged
from logwright.writers.repair import carry_out
from logwright.writers.request import Request


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
    own = Options(able.options, known_options(options, able.options))
    names = {fold(option.name) for option in able.options}
    shared = {fold(option.name) for option in first.layout.read_options}
    reading = {
        name: value for name, value in options.items() if fold(name) not in names or fold(name) in shared
    }
    if reading:
        (resolved,) = resolve(path, codec, reading, verb=Verb.COMPACT)
        assert isinstance(resolved, DirectoryTarget)
        first = resolved
    report = report_of([first])

    def make(copies: Sequence[Original], plans: Sequence[Plan]) -> RepairPlan:
        refuse_damaged(report, "the newest record of a key may be missed", "compact the result")
        return able.compact(copies[0], plans[0], own, clean)

    return carry_out([first], make, request, lambda _: report, "compact", False)
