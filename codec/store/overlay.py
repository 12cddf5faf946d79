"""A directory on which a system is started in thought: what it cuts, removes, renames and writes is kept beside.

The listing underneath is never changed. Contents that the system would write are in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from logwright.codec.store.listing import Entry, Listing


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Bytes `[start, start + size)` of a file of the listing underneath."""

    name: str
    start: int
    size: int


class Disk:
    """A `Listing` that can be changed. See `logwright.codec.layout.Listing`."""

    def __init__(self, below: Listing) -> None:
        self.name = below.name
        self._below = below
        self._before = {entry.name: entry.size for entry in below.entries()}
        self._files: dict[str, _Stretch | bytes] = {
            name: _Stretch(name, 0, size) for name, size in self._before.items()
        }

    # As a listing

    def entries(self) -> Sequence[Entry]:
        return [Entry(name, self.size(name)) for name in sorted(self._files)]

    def parent(self) -> Listing | None:
        return self._below.parent()

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        content = self._files[name]
        if isinstance(content, bytes):
            return content[offset : None if length is None else offset + length]
        left = max(0, content.size - offset)
        return self._below.read(
            content.name, content.start + offset, left if length is None else min(length, left)
        )

    # As the system changes it

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def size(self, name: str) -> int:
        content = self._files[name]
        return len(content) if isinstance(content, bytes) else content.size

    def put(self, name: str, content: bytes) -> None:
        if name not in self._files or self.size(name) != len(content) or self.read(name) != content:
            self._files[name] = content

    def truncate(self, name: str, size: int) -> None:
        content = self._files[name]
        if isinstance(content, bytes):
            self._files[name] = content[:size]
        elif size < content.size:
            self._files[name] = _Stretch(content.name, content.start, size)

    def cut_out(self, name: str, source: str, start: int, stop: int) -> None:
        """A new file with a stretch of another."""
        content = self._files[source]
        if isinstance(content, bytes):
            self._files[name] = content[start:stop]
        else:
            self._files[name] = _Stretch(content.name, content.start + start, stop - start)

    def delete(self, name: str) -> None:
        self._files.pop(name, None)

    def rename(self, name: str, to: str) -> None:
        if name in self._files:
            self._files[to] = self._files.pop(name)

    # What became of it

    def origin(self, name: str) -> tuple[str, int, int] | None:
        """The file underneath, and the stretch of it, that a file is; None for one whose content was made."""
        content = self._files[name]
        return (
            None
            if isinstance(content, bytes)
            else (content.name, content.start, content.start + content.size)
        )

    def _same(self, name: str) -> bool:
        return self._files[name] == _Stretch(name, 0, self._before[name])

    @property
    def truncates(self) -> dict[str, int]:
        """Files that became a shorter stretch of themselves, with their new sizes."""
        return {
            name: self.size(name)
            for name in self._before
            if name in self._files
            and not self._same(name)
            and self.origin(name) == (name, 0, self.size(name))
        }

    @property
    def removes(self) -> list[str]:
        return [name for name in sorted(self._before) if name not in self._files]

    @property
    def rewrites(self) -> list[str]:
        """Files that are there before and after, with another content, those that were merely cut left out."""
        cut = self.truncates
        return [
            name
            for name in sorted(self._before)
            if name in self._files and name not in cut and not self._same(name)
        ]

    @property
    def creates(self) -> list[str]:
        return [name for name in sorted(self._files) if name not in self._before]
