"""Worker threads compute the next results of several iterators while the caller uses earlier ones. The order does not change.

Kernels, decompression and file reads release the interpreter's lock, so threads of this process are enough, and rows need not be copied
between processes as `readers.jobs` does. The caller works too: it runs the job that it waits for, or, while another thread runs that one,
the next job.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pyarrow as pa

T = TypeVar("T")

ROOM = 64 << 20
"""Limit of prefetched bytes. Each thread may exceed it by one result."""
FEW = 4 << 20
"""Below this number of bytes, starting threads takes longer than it saves."""
_JOBS_PER_THREAD = 3
"""Jobs of one queue that are in progress, per thread. Each keeps a file open."""


def usable() -> int:
    """Return the number of threads worth starting: pyarrow's own (`set_cpu_count`, `OMP_NUM_THREADS`), at most the cores of this process.

    A Spark task has one.
    """
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        cores = os.cpu_count() or 1
    return max(1, min(cores, int(pa.cpu_count())))


class Prefetcher:
    """A pool of `threads` threads, the caller's own included. The others start with the first work and end with the `with` block."""

    def __init__(self, threads: int, room: int = ROOM) -> None:
        self.threads, self._room = threads, room
        self._queues: list[_Queue[Any]] = []
        self._held = 0
        self._workers: list[threading.Thread] = []
        self._closed = False
        self._changed = threading.Condition()
        if threads > 1:
            _prefetchers.add(self)

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop all worker threads and wait for them."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.join()

    def iterate(
        self, jobs: Sequence[Callable[[], Iterator[T]]], weigh: Callable[[T], int], *, threaded: bool = True
    ) -> Generator[T, None, None]:
        """Iterate over the results of all jobs, in order; `weigh` returns the size of a result in bytes.

        Each job may be continued by any thread, but by one at a time. An exception of a job is raised after its results. Without
        `threaded` each job starts when the one before it has ended, in the caller's thread.
        """
        if self.threads < 2 or not threaded:
            for begin in jobs:
                yield from begin()
            return
        queue = _Queue([_Job(begin, weigh) for begin in jobs])
        self._add(queue)
        try:
            for job in queue.jobs:
                while self._wait_for(job):
                    yield self._pop(job)
                if job.error is not None:
                    raise job.error
                queue.at += 1
        finally:
            self._remove(queue)

    def _pop(self, job: _Job[T]) -> T:
        with self._changed:
            item, weight = job.ready.popleft()
            job.held -= weight
            was_full = self._held >= self._room
            self._held -= weight
            if was_full:
                self._changed.notify_all()
            return item

    def _add(self, queue: _Queue[Any]) -> None:
        with self._changed:
            self._queues.append(queue)
            self._changed.notify_all()
            while len(self._workers) < self.threads - 1:
                worker = threading.Thread(target=self._work, name="logwright", daemon=True)
                self._workers.append(worker)
                worker.start()

    def _remove(self, queue: _Queue[Any]) -> None:
        """Drop a queue. No thread runs any of its jobs when this returns, so their files may be closed."""
        with self._changed:
            self._queues.remove(queue)
            while any(job.busy for job in queue.jobs):
                self._changed.wait()
            self._held -= sum(job.held for job in queue.jobs)
        for job in queue.jobs:
            job.close()

    def _wait_for(self, job: _Job[Any]) -> bool:
        """Wait for the next result of a job, working meanwhile. Return False at its end."""
        while True:
            with self._changed:
                if job.ready or job.done:
                    return bool(job.ready)
                other = job if not job.busy else self._choose()
                if other is None:
                    self._changed.wait()
                    continue
                other.busy = True
            self._step(other)

    def _choose(self) -> _Job[Any] | None:
        """Return the job to continue ahead of the caller: of the next job of each queue, the one with the fewest bytes ready."""
        if self._held >= self._room:
            return None
        jobs = [
            job for queue in self._queues if (job := queue.next(_JOBS_PER_THREAD * self.threads)) is not None
        ]
        return min(jobs, key=_held, default=None)

    def _work(self) -> None:
        while True:
            with self._changed:
                while (job := self._choose()) is None and not self._closed:
                    self._changed.wait()
                if job is None or self._closed:
                    return
                job.busy = True
            self._step(job)
            del job  # it may hold much memory

    def _step(self, job: _Job[Any]) -> None:
        """Continue a job that is marked as busy."""
        results = _Results[Any]()
        try:
            job.advance(results)
        finally:
            weight = sum(weight for _, weight in results.items)
            with self._changed:
                # In one step: a thread that sees the end of a job must also see its last results.
                job.busy = False
                job.done, job.error = results.end, results.error
                job.ready += results.items
                job.held += weight
                self._held += weight
                self._changed.notify_all()


_prefetchers: weakref.WeakSet[Prefetcher] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Stop the threads of iterations that were not finished; after the interpreter has ended they could not be notified."""
    for prefetcher in list(_prefetchers):
        prefetcher.close()


INLINE = Prefetcher(1)
"""Runs all jobs in the caller's thread."""


@dataclass
class _Results(Generic[T]):
    """Results of one step of a job, with their sizes."""

    items: list[tuple[T, int]] = field(default_factory=list)
    end: bool = False
    error: Exception | None = None


class _Job(Generic[T]):
    """An iterator that any thread may continue. All public attributes are guarded by the prefetcher's lock."""

    def __init__(self, begin: Callable[[], Iterator[T]], weigh: Callable[[T], int]) -> None:
        self._begin, self._weigh = begin, weigh
        self._items: Iterator[T] | None = None
        self.ready: deque[tuple[T, int]] = deque()
        self.held = 0
        self.busy = self.done = False
        self.error: Exception | None = None

    def advance(self, results: _Results[T]) -> None:
        """Compute results up to the first one that has a size."""
        try:
            if self._items is None:
                self._items = self._begin()
            while not (results.items and results.items[-1][1]):
                item = next(self._items)
                results.items.append((item, self._weigh(item)))
        except StopIteration:
            results.end = True
        except Exception as error:
            results.end, results.error = True, error

    def close(self) -> None:
        items, self._items = self._items, None
        close = getattr(items, "close", None)
        if close is not None:
            close()


class _Queue(Generic[T]):
    """Jobs whose results are consumed in order. `at` is the index of the current one."""

    def __init__(self, jobs: Sequence[_Job[T]]) -> None:
        self.jobs, self.at = jobs, 0

    def next(self, most: int) -> _Job[T] | None:
        """Return the first job that can be continued, of the next `most`."""
        upcoming = self.jobs[self.at : self.at + most]
        return next((job for job in upcoming if not (job.busy or job.done)), None)


def _held(job: _Job[Any]) -> int:
    return job.held
