"""A window: some consecutive bytes of a file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Window:
    """Some bytes of a file: `data[i]` is byte `offset + i` of a file of `size` bytes. The data is never written to."""

    data: Bytes
    offset: int
    size: int

    @property
    def final(self) -> bool:
        return self.offset + len(self.data) >= self.size
