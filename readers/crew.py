"""Threads that read ahead: what comes next is read by several while what came before is used. The order stays as it is.

Kernels, decompression and reads of files let go of the interpreter's lock, so threads of this process are enough, and rows need not
be carried from one process to another as for `readers.jobs`. Nobody only waits: whoever needs a piece that nobody is at does it
alone, and while another is at it, what comes after.
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
"""Bytes that may have been read ahead; each thread may go beyond it by what it reads at a time."""
FEW = 4 << 20
"""Fewer bytes are done with sooner than threads help."""
_PIECES = 3
"""So many pieces for each thread are begun at a time: each has a file open."""


def usable() -> int:
    """So many threads are of use: what pyarrow itself takes (its `set_cpu_count`, `OMP_NUM_THREADS`), of the cores that this process
    may use. A task of Spark has one."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not everywhere
        cores = os.cpu_count() or 1
    return max(1, min(cores, int(pa.cpu_count())))


class Crew:
    """So many threads, the caller's own among them. The others are started when there is work for them, and have ended when the crew
    is left."""

    def __init__(self, threads: int, room: int = ROOM) -> None:
        self.threads, self._room = threads, room
        self._lines: list[_Line[Any]] = []
        self._held = 0
        self._helpers: list[threading.Thread] = []
        self._ended = False
        self._news = threading.Condition()
        if threads > 1:
            _crews.add(self)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self.dismiss()

    def dismiss(self) -> None:
        """All threads but the caller's have ended when this returns."""
        with self._news:
            self._ended = True
            self._news.notify_all()
        for helper in self._helpers:
            helper.join()

    def each(
        self, pieces: Sequence[Callable[[], Iterator[T]]], weigh: Callable[[T], int], *, helped: bool = True
    ) -> Generator[T, None, None]:
        """What the pieces give, one after the other; `weigh` says how many bytes that is. A piece is gone on with by any thread, by one
        at a time. What it raises is raised in its place. Without help each is begun when its turn comes."""
        if self.threads < 2 or not helped:
            for begin in pieces:
                yield from begin()
            return
        line = _Line([_Piece(begin, weigh) for begin in pieces])
        self._enlist(line)
        try:
            for piece in line.pieces:
                while self._has(piece):
                    yield self._taken(piece)
                if piece.error is not None:
                    raise piece.error
                line.at += 1
        finally:
            self._leave(line)

    def _taken(self, piece: _Piece[T]) -> T:
        with self._news:
            item, weight = piece.ready.popleft()
            piece.held -= weight
            full = self._held >= self._room
            self._held -= weight
            if full:
                self._news.notify_all()
            return item

    def _enlist(self, line: _Line[Any]) -> None:
        with self._news:
            self._lines.append(line)
            self._news.notify_all()
            while len(self._helpers) < self.threads - 1:
                helper = threading.Thread(target=self._help, name="logwright", daemon=True)
                self._helpers.append(helper)
                helper.start()

    def _leave(self, line: _Line[Any]) -> None:
        """Nobody is at any of the pieces when this returns: what they have open may be closed."""
        with self._news:
            self._lines.remove(line)
            while any(piece.busy for piece in line.pieces):
                self._news.wait()
            self._held -= sum(piece.held for piece in line.pieces)
        for piece in line.pieces:
            piece.close()

    def _has(self, piece: _Piece[Any]) -> bool:
        """Have something of a piece ready; False where there is no more of it."""
        while True:
            with self._news:
                if piece.ready or piece.done:
                    return bool(piece.ready)
                other = piece if not piece.busy else self._choose()
                if other is None:
                    self._news.wait()
                    continue
                other.busy = True
            self._step(other)

    def _choose(self) -> _Piece[Any] | None:
        """What to go on with, ahead of who needs it: of the lines of which least is there."""
        if self._held >= self._room:
            return None
        found = [
            piece for line in self._lines if (piece := line.following(_PIECES * self.threads)) is not None
        ]
        return min(found, key=_held, default=None)

    def _help(self) -> None:
        while True:
            with self._news:
                while (piece := self._choose()) is None and not self._ended:
                    self._news.wait()
                if piece is None or self._ended:
                    return
                piece.busy = True
            self._step(piece)
            del piece  # it may hold a lot

    def _step(self, piece: _Piece[Any]) -> None:
        """Go on with a piece that is marked as busy."""
        found = _Found[Any]()
        try:
            piece.go_on(found)
        finally:
            weight = sum(one[1] for one in found.items)
            with self._news:
                # All at once: who sees that a piece has no more must not be before its last items.
                piece.busy = False
                piece.done, piece.error = found.end, found.error
                piece.ready += found.items
                piece.held += weight
                self._held += weight
                self._news.notify_all()


_crews: weakref.WeakSet[Crew] = weakref.WeakSet()


@atexit.register
def _dismiss_all() -> None:
    """What was not read to its end is left when the interpreter has ended: its threads would not hear of it any more."""
    for crew in list(_crews):
        crew.dismiss()


ALONE = Crew(1)
"""Nobody helps."""


@dataclass
class _Found(Generic[T]):
    """What going on with a piece gave: items with their weights, and whether it has no more, and why."""

    items: list[tuple[T, int]] = field(default_factory=list)
    end: bool = False
    error: Exception | None = None


class _Piece(Generic[T]):
    """What `ready`, `held`, `busy`, `done` and `error` say is seen and changed by who holds the crew's lock."""

    def __init__(self, begin: Callable[[], Iterator[T]], weigh: Callable[[T], int]) -> None:
        self._begin, self._weigh = begin, weigh
        self._items: Iterator[T] | None = None
        self.ready: deque[tuple[T, int]] = deque()
        self.held = 0
        self.busy = self.done = False
        self.error: Exception | None = None

    def go_on(self, found: _Found[T]) -> None:
        """What it gives next, up to something that has a weight."""
        try:
            if self._items is None:
                self._items = self._begin()
            while not (found.items and found.items[-1][1]):
                item = next(self._items)
                found.items.append((item, self._weigh(item)))
        except StopIteration:
            found.end = True
        except Exception as error:
            found.end, found.error = True, error

    def close(self) -> None:
        items, self._items = self._items, None
        end = getattr(items, "close", None)
        if end is not None:
            end()


class _Line(Generic[T]):
    """Pieces whose results are asked for one after the other."""

    def __init__(self, pieces: Sequence[_Piece[T]]) -> None:
        self.pieces, self.at = pieces, 0

    def following(self, most: int) -> _Piece[T] | None:
        """The first that can be gone on with, of so many."""
        some = self.pieces[self.at : self.at + most]
        return next((piece for piece in some if not (piece.busy or piece.done)), None)


def _held(piece: _Piece[Any]) -> int:
    return piece.held
