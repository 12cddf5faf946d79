"""A directory as it will be when it is mended, before anything is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from logwright.codec.engine.repair import Kept, OutputFile
from logwright.codec.store.listing import Entry, Listing


class Assembled:
    """The files of a mending, read from the pieces that they are made of. See `logwright.codec.layout.Listing`."""

    def __init__(self, below: Listing, files: Iterable[OutputFile]) -> None:
        self.name, self._below = below.name, below
        self._files: Mapping[str, Sequence[Kept | bytes]] = {one.name: list(one.pieces) for one in files}
        self._ends = {
            name: list(accumulate(_size(piece) for piece in pieces)) for name, pieces in self._files.items()
        }

    def entries(self) -> Sequence[Entry]:
        return [Entry(name, ends[-1] if ends else 0) for name, ends in sorted(self._ends.items())]

    def parent(self) -> Listing | None:
        return self._below.parent()

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        ends = self._ends[name]
        stop = (ends[-1] if ends else 0) if length is None else offset + length
        out = []
        at = 0
        for piece, end in zip(self._files[name], ends, strict=True):
            low, high = max(offset, at) - at, min(stop, end) - at
            if low < high:
                if isinstance(piece, bytes):
                    out.append(piece[low:high])
                else:
                    out.append(self._below.read(piece.file, piece.start + low, high - low))
            at = end
        return b"".join(out)


def _size(piece: Kept | bytes) -> int:
    return len(piece) if isinstance(piece, bytes) else piece.stop - piece.start
