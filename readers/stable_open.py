"""Open all files of a directory that its system is changing, as they were at one moment.

The files are opened, then the directory is listed again to confirm that they were still the right ones. An open file stays readable
when the system deletes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from logwright.codec.fault import NotFoundError
from logwright.codec.store.listing import Role
from logwright.readers.plan import AsSystem, Reading, reading
from logwright.readers.target import DirectoryTarget, Target
from logwright.readers.task import Task

TRIES = 10
"""Attempts, if the system replaces its files faster than they can be opened."""
MOST = 512
"""Limit of open files. A process may have 1024 by default."""


@contextlib.contextmanager
def stable_open(
    resolve: Callable[[], Sequence[Target]], view: str | None, started: AsSystem | None, planned: Reading
) -> Iterator[Reading]:
    """Resolve the targets again and yield the plan of reading them, with all files open.

    `planned` is the plan made earlier. It is yielded unchanged if no system is running or there are more than `MOST` files.
    """
    if not planned.live or sum(len(task.files) for task in planned.tasks) > MOST:
        yield planned
        return
    for attempt in range(TRIES):
        with contextlib.ExitStack() as stack:
            targets = resolve()
            try:
                current = _opened(reading(targets, view, started), stack)
            except NotFoundError:
                if attempt == TRIES - 1:
                    raise
                continue
            if _files(resolve()) == _files(targets) or attempt == TRIES - 1:
                yield current
                return


def _opened(plan: Reading, stack: contextlib.ExitStack) -> Reading:
    def opened(task: Task) -> Task:
        source = task.source or stack.enter_context(task.open())
        return replace(task, source=source, size=source.size)

    return replace(plan, tasks=tuple(task.with_files(opened) for task in plan.tasks))


def _files(targets: Sequence[Target]) -> list[set[str]]:
    """Return the names of the primary files. Sizes are ignored: a log that grows is read up to its size when it was opened."""
    return [
        {file.name for file in target.plan.files if file.role is Role.PRIMARY}
        for target in targets
        if isinstance(target, DirectoryTarget)
    ]
