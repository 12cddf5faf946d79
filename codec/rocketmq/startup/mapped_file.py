"""Queues of files of a fixed size, each named after the offset of its first byte.

Source: `MappedFileQueue`, `DefaultMappedFile` of RocketMQ. Truncation does not shrink a file. It only lowers the write position; the bytes
after it stay.
"""

from __future__ import annotations

from collections.abc import Iterable

from logwright.codec.java import integer
from logwright.codec.store.extents import Extent
from logwright.codec.store.overlay import Overlay
from logwright.codec.window import Zeros

_PAGE = 4096


class LoadError(Exception):
    """The broker cannot load the store. The text is its log message."""


class MappedFile:
    """A file. `wrote` is the write position. Only pages that were written to are held in memory."""

    def __init__(self, overlay: Overlay, name: str, base: int, size: int) -> None:
        self.overlay, self.name, self.base, self.size, self.wrote = overlay, name, base, size, size
        self.is_first = False
        """Whether it was created as the first file of its queue (`isFirstCreateInQueue`)."""
        self._pages: dict[int, bytearray] = {}

    def read(self, position: int = 0, length: int | None = None) -> bytes:
        stop = self.size if length is None else position + length
        if not self._pages:
            return self.overlay.read(self.name, position, stop - position)
        numbers = range(position // _PAGE, -(-max(position, stop) // _PAGE))
        data = b"".join(self._page(number) for number in numbers)
        return data[position % _PAGE :][: stop - position]

    def _page(self, number: int) -> bytes | bytearray:
        """Return a page. The file may be shorter than its mapped part, whose rest is zeros."""
        start = number * _PAGE
        stop = min(start + _PAGE, self.size)
        return self._pages.get(number) or self._stored(start, stop).ljust(stop - start, b"\0")

    def _stored(self, start: int, stop: int) -> bytes:
        return self.overlay.read(self.name, start, max(stop - start, 0))

    def write(self, position: int, data: bytes) -> None:
        for number in range(position // _PAGE, -(-(position + len(data)) // _PAGE)):
            page = self._pages.setdefault(number, bytearray(self._page(number)))
            start = number * _PAGE
            low, high = max(position, start), min(position + len(data), start + _PAGE)
            page[low - start : high - start] = data[low - position : high - position]

    def append(self, data: bytes) -> None:
        self.write(self.wrote, data)
        self.wrote += len(data)

    @property
    def full(self) -> bool:
        return self.wrote >= self.size

    def flush(self) -> None:
        """Write the changed pages to the overlay."""
        if not self._pages:
            return
        pieces: list[Extent] = []
        changed, at, end = False, 0, self.overlay.size(self.name)
        for number, page in sorted(self._pages.items()):
            start = number * _PAGE
            if self._stored(start, start + len(page)) == page:
                continue
            changed = True
            pieces += [
                *self.overlay.extents(self.name, at, start),
                Zeros(max(start - max(at, end), 0)),
                bytes(page),
            ]
            at = start + len(page)
        if changed:
            # A file may be longer than the part that is mapped.
            pieces += [*self.overlay.extents(self.name, at, end), Zeros(max(self.size - max(at, end), 0))]
            self.overlay.assemble(self.name, [piece for piece in pieces if len(piece)])
        self._pages.clear()


class MappedFileQueue:
    """The files of one or several folders, ordered by name."""

    def __init__(self, overlay: Overlay, folder: str, size: int) -> None:
        self.overlay, self.folder, self.size = overlay, folder, size
        self.files: list[MappedFile] = []

    def load(self, names: Iterable[str], *, old: bool) -> None:
        """Load files. `old` is set for a release before 5.1.3. Raises `LoadError`."""
        ordered = sorted(names, key=lambda name: name.rpartition("/")[2])
        for i, name in enumerate(ordered):
            size = self.overlay.size(name)
            if size == 0 and i == len(ordered) - 1 and not old:
                self.overlay.delete(name)
                continue
            if size != self.size:
                raise LoadError(
                    f"{name}\t{size} length not matched message store config value, please check it manually"
                )
            try:
                base = integer(name.rpartition("/")[2], 64)
            except ValueError as error:
                raise LoadError(f"NumberFormatException: {error}") from None
            self.files.append(MappedFile(self.overlay, name, base, self.size))

    @property
    def min_offset(self) -> int:
        return self.files[0].base if self.files else -1

    @property
    def max_offset(self) -> int:
        return self.files[-1].base + self.files[-1].wrote if self.files else 0

    def find(self, offset: int, *, or_first: bool = False) -> MappedFile | None:
        """Return the file that holds the byte at `offset` (`findMappedFileByOffset`)."""
        if not self.files:
            return None
        first, last = self.files[0], self.files[-1]
        if first.base <= offset < last.base + self.size:
            index = offset // self.size - first.base // self.size
            if (
                0 <= index < len(self.files)
                and self.files[index].base <= offset < self.files[index].base + self.size
            ):
                return self.files[index]
            for file in self.files:
                if file.base <= offset < file.base + self.size:
                    return file
        return first if or_first else None

    def last_for(self, offset: int) -> MappedFile:
        """Return the file to append to. Create one if the last is full, or for `offset` if no file exists.

        A file that was not loaded and has the name of the new one keeps its bytes.
        """
        if self.files and not self.files[-1].full:
            return self.files[-1]
        # The remainder in Java has the sign of the offset.
        rest = offset % self.size if offset >= 0 else -(-offset % self.size)
        base = self.files[-1].base + self.size if self.files else offset - rest
        name = f"{self.folder}/{'-' if base < 0 else ''}{abs(base):020d}"
        file = MappedFile(self.overlay, name, base, self.size)
        if name not in self.overlay:
            self.overlay.create(name, self.size)
        elif self.overlay.size(name) < self.size:
            present = self.overlay.size(name)
            self.overlay.assemble(name, [*self.overlay.extents(name, 0, present), Zeros(self.size - present)])
        file.wrote = 0
        file.is_first = not self.files
        self.files.append(file)
        return file

    def truncate(self, offset: int) -> None:
        """Truncate the queue at `offset` and delete the files after it (`truncateDirtyFiles`)."""
        for file in list(self.files):
            if file.base + self.size > offset:
                if offset >= file.base:
                    file.wrote = offset % self.size
                else:
                    self.delete(file)

    def delete(self, file: MappedFile) -> None:
        self.overlay.delete(file.name)
        self.files.remove(file)

    def flush(self) -> None:
        for file in self.files:
            file.flush()
