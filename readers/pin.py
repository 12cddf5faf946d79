"""Reading a directory that its system is changing: all files are opened first, then it is looked at again whether they were still
the right ones. A file that is open stays readable when the system deletes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from logwright.codec.fault import NotFoundError
from logwright.codec.store.listing import Role
from logwright.readers.plan import AsSystem, Reading, reading
from logwright.readers.resolve import DirectoryTarget, Target
from logwright.readers.task import Task

TRIES = 10
"""A system that replaces its files more often than we can open them is not waited for."""
MOST = 512
"""So many files are held open; a process may have 1024 of them by default."""


@contextlib.contextmanager
def pinned(
    look: Callable[[], Sequence[Target]], view: str | None, started: AsSystem | None, found: Reading
) -> Iterator[Reading]:
    """What is to be read, with all of its files open, as they were at one moment. `look` resolves the targets anew; `found` is what
    it came to before: that is taken as it is where no system runs, or where there are more files than can be held open."""
    if not found.live or sum(len(task.files) for task in found.tasks) > MOST:
        yield found
        return
    for attempt in range(TRIES):
        with contextlib.ExitStack() as stack:
            targets = look()
            try:
                open_ = _opened(reading(targets, view, started), stack)
            except NotFoundError:
                if attempt == TRIES - 1:
                    raise
                continue
            if _files(look()) == _files(targets) or attempt == TRIES - 1:
                yield open_
                return


def _opened(found: Reading, stack: contextlib.ExitStack) -> Reading:
    def opened(task: Task) -> Task:
        source = task.source or stack.enter_context(task.open())
        return replace(task, source=source, size=source.size)

    return replace(found, tasks=tuple(task.with_files(opened) for task in found.tasks))


def _files(targets: Sequence[Target]) -> list[set[str]]:
    """The files that count. Their sizes don't: a log grows, and is read up to where it was when it was opened."""
    return [
        {file.name for file in target.plan.files if file.role is Role.PRIMARY}
        for target in targets
        if isinstance(target, DirectoryTarget)
    ]
