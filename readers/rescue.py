"""Read from a failing disk with few failing reads, each of which may take half a minute.

A failed read is retried, then repeated in smaller pieces, down to sectors of 512 bytes. Behind a bad sector the next good one is searched
in growing steps, as ddrescue does. Then the edges of the bad region are trimmed, and the gaps between tried sectors are searched, within a
limit per region. Each file has a budget of failing reads (`read.errors`). Once it is spent, failing places are skipped in steps that double
with each failure, so the number of failures is bounded by the budget, the limit per region and the logarithm of the size.

A copy made by GNU ddrescue has zeros where it could not read. Its map file lists these regions (option `ddrescue.map`), and they are
treated like those of the disk itself. A map describes one file; for directories the option names a directory of maps. A file without a map
there was copied completely.
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

from logwright.codec import plural
from logwright.codec.arrays import Bytes
from logwright.codec.fault import LogwrightError, NotFoundError, UnreadableError, UsageError
from logwright.codec.kernels.memory import aligned
from logwright.codec.option import Option, Options, fold, parse_int, parse_text

SECTOR = 512
"""Smallest size and alignment of a read."""
_CARE = 64
"""Limit of failing reads within one bad region."""
_SKIP = 64 << 10
"""First step after the budget is spent; it doubles with each failure."""
_FORGET = 600.0
"""Seconds to remember unreadable regions, since a command opens a file many times."""

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
"""Error numbers that mean an unreadable place: Linux `blk_errors` for the medium (ENODATA), its checksums (EILSEQ), the target (EREMOTEIO)
and timeouts, and checksums of file systems (EBADMSG, EUCLEAN)."""

OPTIONS = (
    Option(
        "read.errors",
        1000,
        "Number of failing reads per file to spend on a failing disk; after that, unreadable places are skipped in growing steps.",
        parse_int,
        low=0,
    ),
    Option("read.retries", 1, "Number of retries of a failed read.", parse_int, low=0, high=100),
    Option(
        "ddrescue.map",
        None,
        "Regions that ddrescue could not read: the map of the copied file, or a directory with NAME.map or FOLDER/NAME.map for each file.",
        parse_text,
    ),
)
"""Options of all reading, in addition to those of codecs and layouts."""


@dataclass(frozen=True, slots=True)
class Region:
    """Unreadable bytes `[offset, stop)` of a file, with the reason."""

    offset: int
    stop: int
    why: str


class Regions:
    """Ordered regions; adjacent ones with the same reason are merged."""

    def __init__(self) -> None:
        self._all: list[Region] = []

    def __iter__(self) -> Any:
        return iter(self._all)

    def first(self, offset: int, stop: int) -> Region | None:
        """Return the first region with bytes in `[offset, stop)`."""
        known = self._all
        if not known:
            return None
        at = bisect.bisect_right(known, offset, key=lambda region: region.stop)
        nearest = known[at] if at < len(known) else None
        return nearest if nearest is not None and nearest.offset < stop and offset < stop else None

    def add(self, offset: int, stop: int, why: str) -> None:
        """Add a region; parts that are known already do not change."""
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
        merged = self._all[low:high]
        offset = min([new.offset, *(part.offset for part in merged)])
        stop = max([new.stop, *(part.stop for part in merged)])
        # A new list, since another thread may be iterating over the old one.
        self._all = [*self._all[:low], Region(offset, stop, new.why), *self._all[high:]]


@dataclass
class Memory:
    """The state of one file: its unreadable regions and the number of failed reads."""

    regions: Regions = field(default_factory=Regions)
    failed: int = 0
    skip: int = _SKIP
    since: float = field(default_factory=time.monotonic)
    lock: Any = field(default_factory=threading.RLock)
    """Held while searching for readable bytes, so that one thread at a time adds regions."""


_memories: dict[tuple[int, ...], Memory] = {}
_lock = threading.Lock()


def memory(status: os.stat_result) -> Memory:
    """Return the state of a file, identified by inode, size and modification time."""
    now = time.monotonic()
    with _lock:
        while _memories:  # the oldest come first, so not all are checked for each file
            key, oldest = next(iter(_memories.items()))
            if now - oldest.since <= _FORGET:
                break
            del _memories[key]
        identity = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
        return _memories.setdefault(identity, Memory())


def forget() -> None:
    """Forget all unreadable regions."""
    _memories.clear()


@dataclass(frozen=True)
class Rescue:
    """Settings for a failing disk."""

    errors: int = OPTIONS[0].default
    retries: int = OPTIONS[1].default
    map: str | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Rescue:
        """Create from all options, ignoring those of others. Raises `UsageError`."""
        if not values:
            return STANDARD
        names = {fold(option.name) for option in OPTIONS}
        options = Options(OPTIONS, {name: value for name, value in values.items() if fold(name) in names})
        return cls(options["read.errors"], options["read.retries"], options["ddrescue.map"])

    def check(self, path: str, *, folder: bool = False) -> None:
        """Raise `UsageError` or `NotFoundError` if the map cannot belong to the file or directory at a path."""
        if self.map is None:
            return
        if not os.path.isdir(self.map):
            if folder:
                raise UsageError(
                    "option ddrescue.map: a map file describes one file, but this is a directory",
                    path=path,
                    advice="Pass a directory that has NAME.map for each copied file NAME",
                )
        elif not (any(_maps(self.map)) if folder else self._place(path)):
            name = "NAME" if folder else os.path.basename(path)
            raise NotFoundError(
                f"option ddrescue.map: this directory has no {name}.map",
                path=self.map,
                advice="Pass the map of a copied file, or a directory with NAME.map or FOLDER/NAME.map for each copied file",
            )

    def _place(self, path: str) -> str | None:
        """Return the map of a file; None if the file has no map."""
        if self.map is None or not os.path.isdir(self.map):
            return self.map
        folder, name = os.path.split(os.path.abspath(path))
        places = (os.path.basename(folder), name + ".map"), (name + ".map",)
        return next(
            (
                path_of_map
                for path_of_map in (os.path.join(self.map, *parts) for parts in places)
                if os.path.exists(path_of_map)
            ),
            None,
        )

    def mapped(self, path: str, size: int) -> Regions:
        """Return the unreadable regions in the map of a file. Raises `UsageError` for an invalid map, or one of another file."""
        place = self._place(path)
        return Regions() if place is None else map_regions(place, size)


def _maps(folder: str) -> Iterator[str]:
    """Iterate over all maps in a directory and its sub-directories."""
    for place, folders, names in os.walk(folder):
        yield from (name for name in names if name.endswith(".map"))
        if place != folder:
            folders.clear()


STANDARD = Rescue()


class Rescuer:
    """Reader of one file. `read(view, offset)` is the system call: it reads some bytes or raises `OSError`."""

    def __init__(
        self, path: str, size: int, read: Callable[[memoryview, int], int], known: Memory, rescue: Rescue
    ) -> None:
        self.path, self.size, self._read, self._known, self._rescue = path, size, read, known, rescue
        self._mapped = rescue.mapped(path, size)

    def pread(self, offset: int, length: int) -> Bytes:
        """Read as `Source.pread`. Raises `UnreadableError` with the first unreadable region in the range, and `OSError` for other errors."""
        length = max(0, min(length, self.size - offset))
        while True:
            first = self._first(offset, offset + length)
            stop = length if first is None else max(0, first.offset - offset)
            # The bytes before it are promised to be readable, so they are read first.
            data = self._try(offset, stop)
            if self._first(offset, offset + stop) is not None:
                continue
            if first is None or len(data) < stop:
                return data
            raise UnreadableError.of(first.offset, first.stop - first.offset, first.why, self.path)

    def _try(self, offset: int, length: int) -> Bytes:
        """Read up to the end of the file or to an unreadable place, which is recorded."""
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
        """Return the first known region with bytes in `[offset, stop)`."""
        both = (self._mapped.first(offset, stop), self._known.regions.first(offset, stop))
        return min(
            (region for region in both if region is not None), key=lambda region: region.offset, default=None
        )

    def _fill(self, view: memoryview, offset: int, done: int) -> tuple[int, OSError | None]:
        """Continue reading at `done`. Return how far it got, and the error that stopped it."""
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
        """Continue in pieces after a failure, to the end or to the first bad sector, whose region is recorded."""
        # The kernel reads up to the first bad page, so the sector where it stopped is probably the bad one.
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
        """Divide a failed range; the last piece is read first: the sector where it failed, or halves."""
        edge = _up(offset + got + 1) - offset
        if got == start and stop - start > 2 * SECTOR:
            edge = _up(offset + (start + stop) // 2) - offset
        return [(edge, stop), (got, edge)] if edge < stop else [(got, stop)]

    # Extent of a bad region

    def _left(self) -> bool:
        return self._known.failed < self._rescue.errors

    def _skip(self, offset: int, why: str) -> None:
        known = self._known
        text = f"{why}; skipped after {plural.count(known.failed, 'failed read')}"
        known.regions.add(_down(offset), min(_down(offset) + known.skip, self.size), text)
        known.skip *= 2

    def _probe(self, at: int) -> bool:
        """Return whether the sector at `at` is readable."""
        length = min(SECTOR, self.size - at)
        _, error = self._fill(memoryview(bytearray(length)), at, 0)
        return error is None

    def _extent(self, start: int, error: OSError) -> None:
        """Record the region that begins with the bad sector at `start`."""
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
        """Return an edge between the bad sector before `low` and the good one at `high`, or the end of the file."""
        while low < high and self._left():
            middle = _down((low + high) // 2)
            if self._probe(middle):
                high = middle
            else:
                bad.append(middle)
                low = middle + SECTOR
        return high

    def _last_good(self, bad: list[int], low: int, high: int) -> int:
        """Return the other edge: where the good sectors from `low` end, before the bad one at `high`."""
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
        """Return ranges among the bad sectors that are probably good; reading them will show."""
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
    """Parse the map file of GNU ddrescue ("Mapfile structure" in its manual) for a file of `size` bytes.

    Raises `NotFoundError`, or `UsageError` that names the line.
    """
    try:
        status = os.stat(path)
        return _map_regions(path, size, status.st_size, status.st_mtime_ns)
    except FileNotFoundError:
        raise NotFoundError("map file not found", path=path) from None
    except OSError as error:
        raise UsageError(f"cannot read the map: {error.strerror}", path=path) from error


@functools.lru_cache(maxsize=256)
def _map_regions(path: str, size: int, length: int, changed: int) -> Regions:
    """Cached, since a file is opened many times."""
    if length > _MAP_LIMIT:
        raise UsageError(f"not a ddrescue map: larger than {_MAP_LIMIT} bytes", path=path)
    with open(path, "rb") as file:
        return parse_map(file.read(_MAP_LIMIT).decode("ascii", "replace"), size, path)


def parse_map(text: str, size: int, path: str = "map") -> Regions:
    """Parse the text of a map. See `map_regions`."""
    regions = Regions()
    at: int | None = None
    current = False
    for number, line in enumerate(text.splitlines(), 1):
        words = _COMMENT.split(line, maxsplit=1)[0].split()
        if not words:
            continue
        if not current:
            # The current position and status of ddrescue and, since version 1.20, the pass.
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
            regions.add(0, min(start, size), "missing in the ddrescue map")
        at = start + length
        if words[2] != "+":
            regions.add(min(start, size), min(at, size), _STATUS[words[2]])
        elif at > size and length:
            raise UsageError(
                f"the map belongs to another file: line {number} lists bytes up to {at}, but the file has {size}",
                path=path,
                advice="Pass the map of this copy in option ddrescue.map",
            )
    if not current:
        raise UsageError("not a ddrescue map: it has only comments", path=path)
    regions.add(min(at or 0, size), size, "missing in the ddrescue map")
    return regions


def _number(word: str, line: int, path: str) -> int:
    try:
        # As strtoll parses numbers: 0x is hexadecimal, a leading 0 octal.
        octal = len(word) > 1 and word[0] == "0" and word[1].isdigit()
        value = int(word, 8 if octal else 0)
    except ValueError:
        raise _wrong(line, path, "expected a number", word) from None
    if not 0 <= value < 1 << 63:
        raise _wrong(line, path, "expected a number from 0 to 2^63 - 1", word)
    return value


def _wrong(line: int, path: str, expected: str, text: str) -> LogwrightError:
    return UsageError(f"line {line} of the map: {expected}, found {text.strip()[:60]!r}", path=path)
