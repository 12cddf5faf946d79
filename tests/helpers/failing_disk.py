"""A disk with unreadable sectors: `os.preadv` fails there with the kernel's error."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from logwright.codec.window import Bytes
from logwright.readers import rescue
from logwright.readers.rescue import Memory, Rescue, Rescuer
from logwright.readers.source import MemorySource


@dataclass
class FailingDisk:
    """`bad` has the unreadable ranges `(start, stop)` by file name. If `partial`, a request returns the bytes before a bad range, as
    on Linux, else it fails. If `heals` is set, a range becomes readable after that number of failures."""

    bad: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    partial: bool = True
    heals: int | None = None
    code: int = errno.EIO
    failures: int = 0
    reads: int = 0
    hits: dict[int, int] = field(default_factory=dict)

    def preadv(self, real: Callable[..., int], fd: int, views: Sequence[memoryview], offset: int) -> int:
        self.reads += 1
        name = os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))
        stop = offset + len(views[0])
        places = [place for place in self.bad.get(name, ()) if place[0] < stop and place[1] > offset]
        if self.heals is not None:
            places = [place for place in places if self.hits.get(place[0], 0) < self.heals]
        if not places:
            return real(fd, views, offset)
        first = min(places)
        if self.partial and first[0] > offset:
            return real(fd, [views[0][: first[0] - offset]], offset)
        self.failures += 1
        self.hits[first[0]] = self.hits.get(first[0], 0) + 1
        raise OSError(self.code, os.strerror(self.code))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FailingDisk:
    """Nothing fails until `bad` is set."""
    dying, real = FailingDisk(), os.preadv

    def preadv(fd: int, views: Sequence[memoryview], at: int, flags: int = 0) -> int:
        # With flags only the page cache is asked, not the disk.
        return real(fd, views, at, flags) if flags else dying.preadv(real, fd, views, at)

    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(rescue, "_memories", {})
    return dying


def forget_failures() -> None:
    """Forget known failures, as a new process would."""
    rescue.forget()


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


class FailingSource(MemorySource):
    """Bytes in memory with unreadable ranges."""

    def __init__(
        self, data: bytes, bad: Iterable[tuple[int, int]], name: str = "memory", rescue: Rescue | None = None
    ) -> None:
        super().__init__(data, name)
        self.bad = sorted(bad)
        self._rescuer = Rescuer(name, len(data), self._bare, Memory(), rescue or Rescue())

    def _bare(self, view: memoryview, offset: int) -> int:
        stop = offset + len(view)
        for start, end in self.bad:
            if start < stop and end > offset:
                if start > offset:
                    stop = start
                    break
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        data = super().pread(offset, stop - offset)
        view[: len(data)] = data.data
        return len(data)

    def pread(self, offset: int, length: int) -> Bytes:
        return self._rescuer.pread(offset, length)
