"""The extents of an output file: ranges copied from the input, new bytes, and zeros that become holes."""

from __future__ import annotations

from dataclasses import dataclass

from logwright.codec.window import Zeros


@dataclass(frozen=True, slots=True)
class Copy:
    """Bytes `[start, stop)` of a file of one of the input copies."""

    file: str
    start: int
    stop: int
    copy: int = 0

    def __len__(self) -> int:
        return self.stop - self.start


Extent = Copy | bytes | Zeros


def cut(extent: Extent, start: int, stop: int) -> Extent:
    """Return the bytes `[start, stop)` of an extent, or fewer at its end."""
    if isinstance(extent, Copy):
        low = min(extent.start + start, extent.stop)
        return Copy(extent.file, low, max(low, min(extent.start + stop, extent.stop)), extent.copy)
    if isinstance(extent, Zeros):
        return Zeros(max(0, min(stop, len(extent)) - start))
    return extent[start:stop]
