"""Bytes from a disk that fails: what can't be read is found out with few failing reads, each of which may take half a minute.

A read that fails is tried again, then in smaller pieces, down to sectors of 512 bytes. Behind a bad sector the next good one is
looked for in growing steps, as ddrescue does; then the edge of the bad region is trimmed, and what lies between the places that
were tried is looked into while the care for one region lasts. A file has a budget of failing reads (`read.errors`): when it is
spent, what fails is skipped by steps that double with each failure, so their number stays below the budget, the care for one
region and the logarithm of the size, whatever the disk does.

A copy made by GNU ddrescue has zeros where it could not read. Its map file says where (option `ddrescue.map`), and these
regions are as unreadable as those of the disk itself. A map is of one file; for directories the option names one of maps.
A file without a map there was copied whole.
"""

from __future__ import annotations

import bisect
import errno
import functools
import itertools
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from logwright.codec.fault import LogwrightError, NotFoundError, UnreadableError, UsageError
from logwright.codec.kernels.memory import aligned
from logwright.codec.option import Option, Options, fold, parse_int, parse_text
from logwright.codec.window import Bytes

SECTOR = 512
"""Pieces are not made smaller than that, and start at multiples of it."""
_CARE = 64
"""So many failing reads are spent on what lies within one bad region."""
_SKIP = 64 << 10
"""The first step once the budget is spent; it doubles."""
_FORGET = 600.0
"""Seconds for which is known what could not be read: a command opens a file many times."""

MEDIUM = frozenset(
    {
        errno.EIO,
        errno.ENODATA,
        errno.EBADMSG,
        errno.EUCLEAN,
        errno.EILSEQ,
        errno.EREMOTEIO,
        errno.ETIMEDOUT,
    }
)
"""What a read says when it is this place that can't be read: Linux' `blk_errors` for the medium (ENODATA), its checksums (EILSEQ),
the target (EREMOTEIO) and timeouts, and the checksums of file systems (EBADMSG, EUCLEAN)."""

OPTIONS = (
    Option(
        "read.errors",
        1000,
        "So many failing reads of a file are spent on finding what a failing disk can still read; then it is skipped in growing steps.",
        parse_int,
        low=0,
    ),
    Option("read.retries", 1, "How often a read that failed is tried again.", parse_int, low=0, high=100),
    Option(
        "ddrescue.map",
        None,
        "What ddrescue could not read: the map of the copied file, or a directory with NAME.map or FOLDER/NAME.map for each copied file.",
        parse_text,
    ),
)
"""What every reading takes, besides the options of codecs and layouts."""


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes `[offset, stop)` of a file that can't be read, and why."""

    offset: int
    stop: int
    why: str


class Regions:
    """Regions in order, none of which touches another of the same reason."""

    def __init__(self) -> None:
        self._all: list[Region] = []

    def __iter__(self) -> Any:
        return iter(self._all)

    def first(self, offset: int, stop: int) -> Region | None:
        """The first one that has bytes in `[offset, stop)`."""
        known = self._all
        if not known:
            return None
        at = bisect.bisect_right(known, offset, key=lambda region: region.stop)
        found = known[at] if at < len(known) else None
        return found if found is not None and found.offset < stop and offset < stop else None

    def add(self, offset: int, stop: int, why: str) -> None:
        """What is known already stays as it is."""
        while offset < stop:
            known = self.first(offset, stop)
            end = stop if known is None else known.offset
            if offset < end:
                self._insert(Region(offset, end, why))
            offset = stop if known is None else known.stop

    def _insert(self, new: Region) -> None:
        at = bisect.bisect_left(self._all, new.offset, key=lambda region: region.offset)
        low, high = at, at
        if at and self._all[at - 1].stop == new.offset and self._all[at - 1].why == new.why:
            low = at - 1
        if at < len(self._all) and self._all[at].offset == new.stop and self._all[at].why == new.why:
            high = at + 1
        whole = self._all[low:high]
        offset = min([new.offset, *(one.offset for one in whole)])
        stop = max([new.stop, *(one.stop for one in whole)])
        # A new list: another thread may be looking at the one that there is.
        self._all = [*self._all[:low], Region(offset, stop, new.why), *self._all[high:]]


@dataclass
class Memory:
    """What is known of one file: where it can't be read, and how many reads have failed."""

    regions: Regions = field(default_factory=Regions)
    failed: int = 0
    skip: int = _SKIP
    since: float = field(default_factory=time.monotonic)
    lock: Any = field(default_factory=threading.RLock)
    """Held while it is found out what a disk can still read: one thread at a time adds to what is known."""


_memories: dict[tuple[int, ...], Memory] = {}
_lock = threading.Lock()


def memory(status: os.stat_result) -> Memory:
    """What is known of a file, by its identity, size and time of change."""
    now = time.monotonic()
    with _lock:
        while _memories:  # the oldest come first: not all are looked at for each file that is opened
            key, oldest = next(iter(_memories.items()))
            if now - oldest.since <= _FORGET:
                break
            del _memories[key]
        identity = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
        return _memories.setdefault(identity, Memory())


def forget() -> None:
    """Try again what could not be read."""
    _memories.clear()


@dataclass(frozen=True)
class Rescue:
    """How hard to try, and what is known from a map."""

    errors: int = OPTIONS[0].default
    retries: int = OPTIONS[1].default
    map: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Rescue:
        """From all options that were given; those of others are left out. Raises `UsageError`."""
        if not given:
            return STANDARD
        names = {fold(option.name) for option in OPTIONS}
        options = Options(OPTIONS, {name: value for name, value in given.items() if fold(name) in names})
        return cls(options["read.errors"], options["read.retries"], options["ddrescue.map"])

    def check(self, path: str, *, folder: bool = False) -> None:
        """Raise `UsageError` or `NotFoundError` where the map has nothing to do with the file, or the directory, at a path."""
        if self.map is None:
            return
        if not os.path.isdir(self.map):
            if folder:
                raise UsageError(
                    "option ddrescue.map: a map file is of one copied file, this is a directory",
                    path=path,
                    advice="Name a directory that has NAME.map for each copied file NAME",
                )
        elif not (any(_maps(self.map)) if folder else self._place(path)):
            name = "NAME" if folder else os.path.basename(path)
            raise NotFoundError(
                f"option ddrescue.map: there is no {name}.map in this directory",
                path=self.map,
                advice="It takes the map of a copied file, or a directory with NAME.map, or FOLDER/NAME.map, for each copied file",
            )

    def _place(self, path: str) -> str | None:
        """The map of a file; None where there is none."""
        if self.map is None or not os.path.isdir(self.map):
            return self.map
        folder, name = os.path.split(os.path.abspath(path))
        places = (os.path.basename(folder), name + ".map"), (name + ".map",)
        return next(
            (one for one in (os.path.join(self.map, *parts) for parts in places) if os.path.exists(one)), None
        )

    def mapped(self, path: str, size: int) -> Regions:
        """What the map says of a file. Raises `UsageError` for a map that is none, or is of another file."""
        place = self._place(path)
        return Regions() if place is None else map_regions(place, size)


def _maps(folder: str) -> Iterator[str]:
    """All maps in a directory and those in it."""
    for place, folders, names in os.walk(folder):
        yield from (name for name in names if name.endswith(".map"))
        if place != folder:
            folders.clear()


STANDARD = Rescue()


class Rescuer:
    """Reads one file: `read(view, offset)` is the bare operation, which reads some bytes or raises `OSError`."""

    def __init__(
        self, path: str, size: int, read: Callable[[memoryview, int], int], known: Memory, rescue: Rescue
    ) -> None:
        self.path, self.size, self._read, self._known, self._rescue = path, size, read, known, rescue
        self._mapped = rescue.mapped(path, size)

    def pread(self, offset: int, length: int) -> Bytes:
        """As `Source.pread`. Raises `UnreadableError` with the first region that has bytes of what was asked for, and
        `OSError` for what is no fault of the place."""
        length = max(0, min(length, self.size - offset))
        while True:
            first = self._first(offset, offset + length)
            stop = length if first is None else max(0, first.offset - offset)
            # What lies before it is promised to be readable, so that is tried.
            data = self._try(offset, stop)
            if self._first(offset, offset + stop) is not None:
                continue
            if first is None or len(data) < stop:
                return data
            raise UnreadableError.of(first.offset, first.stop - first.offset, first.why, self.path)

    def _try(self, offset: int, length: int) -> Bytes:
        """Bytes up to the end of the file, or to what can't be read: that is noted."""
        out = aligned(length)
        done, error = 0, None
        for _ in range(1 + self._rescue.retries):
            done, error = self._fill(out.data, offset, done)
            if error is None:
                return out[:done]
        assert error is not None
        with self._known.lock:
            return out[: self._pieces(out.data, offset, done, error)]

    def _first(self, offset: int, stop: int) -> Region | None:
        """The first known region with bytes in `[offset, stop)`."""
        both = (self._mapped.first(offset, stop), self._known.regions.first(offset, stop))
        return min((one for one in both if one is not None), key=lambda one: one.offset, default=None)

    def _fill(self, view: memoryview, offset: int, done: int) -> tuple[int, OSError | None]:
        """Read on from `done`: how far that came, and the error of the place where it stopped."""
        while done < len(view):
            try:
                got = self._read(view[done:], offset + done)
            except OSError as error:
                if error.errno not in MEDIUM:
                    raise
                self._known.failed += 1
                return done, error
            if got == 0:
                break
            done += got
        return done, None

    def _pieces(self, view: memoryview, offset: int, done: int, error: OSError) -> int:
        """Read on piece by piece after a failure: to the end, or to the first sector that fails, whose region is noted."""
        # The kernel reads on to the first bad page, so the sector where it stopped is the likely one.
        edge = min(_up(offset + done + 1) - offset, len(view))
        todo = [(edge, len(view))] if edge < len(view) else []
        todo.append((done, edge))
        while todo:
            start, stop = todo.pop()
            if not self._left():
                self._skip(offset + start, error.strerror or "read error")
                return start
            sector = _down(offset + start) == _down(offset + stop - 1)
            got, failure = self._fill(view[:stop], offset, start)
            for _ in range(self._rescue.retries if sector else 0):
                if failure is None:
                    break
                got, failure = self._fill(view[:stop], offset, got)
            if failure is None:
                if got < stop:
                    return got
            elif sector:
                self._extent(_down(offset + got), failure)
                return got
            else:
                todo += self._cut(offset, start, got, stop)
        return len(view)

    @staticmethod
    def _cut(offset: int, start: int, got: int, stop: int) -> list[tuple[int, int]]:
        """Pieces of what failed, the last one to be read first: the sector where it failed, or halves."""
        edge = _up(offset + got + 1) - offset
        if got == start and stop - start > 2 * SECTOR:
            edge = _up(offset + (start + stop) // 2) - offset
        return [(edge, stop), (got, edge)] if edge < stop else [(got, stop)]

    # How far a bad region goes

    def _left(self) -> bool:
        return self._known.failed < self._rescue.errors

    def _skip(self, offset: int, why: str) -> None:
        known = self._known
        text = f"{why}; skipped after {known.failed} failing reads"
        known.regions.add(_down(offset), min(_down(offset) + known.skip, self.size), text)
        known.skip *= 2

    def _probe(self, at: int) -> bool:
        """Whether the sector at `at` can be read."""
        length = min(SECTOR, self.size - at)
        _, error = self._fill(memoryview(bytearray(length)), at, 0)
        return error is None

    def _extent(self, start: int, error: OSError) -> None:
        """Note the region that begins with the bad sector at `start`."""
        why = error.strerror or "read error"
        bad, step = [start], SECTOR
        while True:
            stop = min(start + step, _up(self.size))
            if stop >= self.size or self._probe(stop):
                break
            bad.append(stop)
            step *= 2
        stop = self._first_good(bad, bad[-1] + SECTOR, stop)
        good = self._inside(bad, stop)
        at = start
        for low, high in [*sorted(good), (stop, stop)]:
            self._known.regions.add(at, min(low, self.size), why)
            at = high

    def _first_good(self, bad: list[int], low: int, high: int) -> int:
        """An edge between the bad sector before `low` and the good one at `high` (or the end of the file)."""
        while low < high and self._left():
            middle = _down((low + high) // 2)
            if self._probe(middle):
                high = middle
            else:
                bad.append(middle)
                low = middle + SECTOR
        return high

    def _last_good(self, bad: list[int], low: int, high: int) -> int:
        """The other edge: where the good sectors from `low` on end, before the bad one at `high`."""
        low += SECTOR
        while low < high and self._left():
            middle = _down((low + high) // 2)
            if self._probe(middle):
                low = middle + SECTOR
            else:
                bad.append(middle)
                high = middle
        return low

    def _inside(self, bad: list[int], stop: int) -> list[tuple[int, int]]:
        """Stretches among the bad sectors that seem to be good: whether they are, reading them will show."""
        good: list[tuple[int, int]] = []
        spent = self._known.failed + _CARE
        while self._left() and self._known.failed < spent:
            edges = sorted([*((at, at + SECTOR) for at in bad), *good, (stop, stop)])
            low, high = max(
                ((a[1], b[0]) for a, b in itertools.pairwise(edges)),
                key=lambda gap: gap[1] - gap[0],
            )
            if high <= low:
                break
            middle = _down((low + high) // 2)
            if not self._probe(middle):
                bad.append(middle)
                continue
            left = self._first_good(bad, low, middle)
            good.append((left, self._last_good(bad, middle, high)))
        return good


def _down(at: int) -> int:
    return at // SECTOR * SECTOR


def _up(at: int) -> int:
    return -(-at // SECTOR) * SECTOR


# Maps of ddrescue

_STATUS = {
    "?": "ddrescue did not try it",
    "*": "ddrescue did not trim it",
    "/": "ddrescue did not scrape it",
    "-": "ddrescue found a bad sector",
}
_COMMENT = re.compile(r"(?:^|\s)#")
_CURRENT = frozenset("?*/-FG+")
_MAP_LIMIT = 64 << 20


def map_regions(path: str, size: int) -> Regions:
    """What a map file of GNU ddrescue ("Mapfile structure" in its manual) says can't be read of a file of `size` bytes.

    Raises `NotFoundError`, or `UsageError` that names the line.
    """
    try:
        status = os.stat(path)
        return _map_regions(path, size, status.st_size, status.st_mtime_ns)
    except FileNotFoundError:
        raise NotFoundError("there is no such map file", path=path) from None
    except OSError as error:
        raise UsageError(f"the map can't be read: {error.strerror}", path=path) from error


@functools.lru_cache(maxsize=256)
def _map_regions(path: str, size: int, length: int, changed: int) -> Regions:
    """Kept, since a file is opened many times."""
    if length > _MAP_LIMIT:
        raise UsageError(f"is no map of ddrescue: more than {_MAP_LIMIT} bytes", path=path)
    with open(path, "rb") as file:
        return parse_map(file.read(_MAP_LIMIT).decode("ascii", "replace"), size, path)


def parse_map(text: str, size: int, path: str = "map") -> Regions:
    """As `map_regions`, from the text."""
    regions = Regions()
    at: int | None = None
    current = False
    for number, line in enumerate(text.splitlines(), 1):
        words = _COMMENT.split(line, maxsplit=1)[0].split()
        if not words:
            continue
        if not current:
            # The position and status ddrescue was at, and since version 1.20 the pass.
            _number(words[0], number, path)
            if not 2 <= len(words) <= 3 or words[1] not in _CURRENT:
                raise _wrong(number, path, "expected a position, one of ? * / - F G + and a pass", line)
            current = True
            continue
        if len(words) != 3:
            raise _wrong(number, path, "expected a position, a size and a status", line)
        start, length = _number(words[0], number, path), _number(words[1], number, path)
        if words[2] not in (*_STATUS, "+"):
            raise _wrong(number, path, "expected a status, one of ? * / - +", words[2])
        if at is not None and start != at:
            raise _wrong(number, path, f"expected the block at {at}, where the one before ends", line)
        if at is None:
            regions.add(0, min(start, size), "it is not in the map of ddrescue")
        at = start + length
        if words[2] != "+":
            regions.add(min(start, size), min(at, size), _STATUS[words[2]])
        elif at > size and length:
            raise UsageError(
                f"the map is of another file: line {number} says that bytes up to {at} were read, of {size} there are",
                path=path,
                advice="Option ddrescue.map takes the map of this very copy",
            )
    if not current:
        raise UsageError("is no map of ddrescue: it has no lines but comments", path=path)
    regions.add(min(at or 0, size), size, "it is not in the map of ddrescue")
    return regions


def _number(word: str, line: int, path: str) -> int:
    try:
        # As strtoll reads it: 0x is hexadecimal, a leading 0 octal.
        octal = len(word) > 1 and word[0] == "0" and word[1].isdigit()
        value = int(word, 8 if octal else 0)
    except ValueError:
        raise _wrong(line, path, "expected a number", word) from None
    if not 0 <= value < 1 << 63:
        raise _wrong(line, path, "expected a number from 0 to 2^63 - 1", word)
    return value


def _wrong(line: int, path: str, expected: str, found: str) -> LogwrightError:
    return UsageError(f"line {line} of the map: {expected}, found {found.strip()[:60]!r}", path=path)
