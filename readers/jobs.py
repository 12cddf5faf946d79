"""Run work in several processes.

The workers are separate programs; `multiprocessing` would run the caller's script again in each of them. They communicate by pickles over
standard input and output. Kernels come from the cache on disk.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

from logwright.codec.fault import LogwrightError

_SIZE = struct.Struct(">Q")
_START = "import pickle,sys; sys.path[:] = pickle.load(sys.stdin.buffer); from logwright.readers.jobs import serve; serve()"


def run(work: Sequence[Callable[[], Any]], jobs: int, ahead: int | None = None) -> Iterator[Any]:
    """Iterate over the results of all work, in order. Each item must be picklable and self-contained. At most `ahead` results are computed
    ahead of the one waited for.

    Raises the first exception in order, or `LogwrightError` if a worker process ended.
    """
    if jobs < 2 or len(work) < 2:
        for item in work:
            yield item()
        return
    shared = _Shared(work, ahead)
    workers = [_Worker(shared) for _ in range(min(jobs, len(work)))]
    try:
        for worker in workers:
            worker.start()
        for i in range(len(work)):
            yield shared.wait(i)
    finally:
        shared.stop()
        for worker in workers:
            worker.stop()
        for worker in workers:
            if worker.ident is not None:
                worker.join()  # it may wait for the end of its process


class _Shared:
    """The work, its progress and its results."""

    def __init__(self, work: Sequence[Callable[[], Any]], ahead: int | None = None) -> None:
        self.work, self.ahead = work, len(work) if ahead is None else ahead
        self.stopped = False
        self._next = 0
        self._delivered = 0
        """Number of results handed out."""
        self._done: dict[int, tuple[bool, Any]] = {}
        self._news = threading.Condition()

    def stop(self) -> None:
        with self._news:
            self.stopped = True
            self._news.notify_all()

    def take(self) -> int | None:
        with self._news:
            while not self.stopped and self._delivered + self.ahead <= self._next < len(self.work):
                self._news.wait(0.5)
            if self.stopped or self._next >= len(self.work):
                return None
            self._next += 1
            return self._next - 1

    def give(self, i: int, fine: bool, result: Any) -> None:
        with self._news:
            self._done[i] = (fine, result)
            self._news.notify_all()

    def wait(self, i: int) -> Any:
        with self._news:
            while i not in self._done:
                # With a timeout, so that the main thread notices Ctrl-C.
                self._news.wait(0.5)
            fine, result = self._done.pop(i)
            self._delivered = i + 1
            self._news.notify_all()
        if not fine:
            raise result
        return result


class _Worker(threading.Thread):
    """A worker process and the thread that feeds it."""

    def __init__(self, shared: _Shared) -> None:
        super().__init__(daemon=True)
        self._shared = shared
        self._process: subprocess.Popen[bytes] | None = None
        self._start_lock = threading.Lock()

    def run(self) -> None:
        while (i := self._shared.take()) is not None:
            try:
                fine, result = self._ask(self._shared.work[i])
            except (OSError, EOFError) as error:
                fine, result = False, self._ended(error)
                self.stop()
            except Exception as error:
                fine, result = False, error
            self._shared.give(i, fine, result)
        self.stop()

    def _ask(self, item: Callable[[], Any]) -> tuple[bool, Any]:
        with self._start_lock:
            if self._shared.stopped:
                raise EOFError
            if self._process is None:
                # In its own session: Ctrl-C is for this process, which then stops the workers.
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _START],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    start_new_session=True,
                )
                assert self._process.stdin is not None
                self._process.stdin.write(pickle.dumps(sys.path))
            process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        _put(process.stdin, item)
        reply: tuple[bool, Any] = _get(process.stdout)
        return reply

    def _ended(self, error: Exception) -> LogwrightError:
        code = None if self._process is None else self._process.wait()
        if code is not None and code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            text = f"a worker process was killed by {name}"
            advice = (
                "It may have run out of memory; use fewer jobs" if -code == signal.SIGKILL else "Use jobs=1"
            )
            return LogwrightError(text, advice=advice)
        return LogwrightError(f"a worker process ended (status {code}): {error}", advice="Use jobs=1")

    def stop(self) -> None:
        with self._start_lock:
            process, self._process = self._process, None
        if process is None:
            return
        if self._shared.stopped:
            process.kill()
        with contextlib.suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def serve() -> None:
    """Run as a worker: execute items until the input ends."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    # Output printed by the work must not be mixed with the results.
    sys.stdout = sys.stderr
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    while (item := _get(source, None)) is not None:
        try:
            reply = (True, item())
        except Exception as error:
            reply = (False, error)
        _put(sink, reply)


def _put(stream: Any, value: Any) -> None:
    data = pickle.dumps(value)
    stream.write(_SIZE.pack(len(data)) + data)
    stream.flush()


_RAISE = object()


def _get(stream: BinaryIO | Any, end: Any = _RAISE) -> Any:
    """Read the next value; at the end of the stream return `end`, or raise `EOFError`."""
    head = stream.read(_SIZE.size)
    if len(head) < _SIZE.size:
        if end is _RAISE:
            raise EOFError("the worker sent no result")
        return end
    return pickle.loads(stream.read(_SIZE.unpack(head)[0]))
