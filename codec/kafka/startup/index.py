"""The `.index` of a segment as the broker uses it: by binary search, whatever its content.

Source: `AbstractIndex`, `OffsetIndex`.
"""

from __future__ import annotations

import numpy as np

from logwright.codec.fixed import entries_of
from logwright.codec.kafka.formats.index import INDEX_ENTRY
from logwright.codec.kafka.startup.errors import InvalidOffset
from logwright.codec.store.overlay import Overlay

_ENTRY = INDEX_ENTRY.head_size
_WARM = 8192 // _ENTRY
_INT_MAX = (1 << 31) - 1


class OffsetIndex:
    """The entries of an index file. `max_size` is `segment.index.bytes`."""

    def __init__(self, base_offset: int, content: bytes, max_size: int) -> None:
        self.base_offset, self.max_size = base_offset, max_size
        stored = entries_of(INDEX_ENTRY, content)
        self._offset = stored["relative_offset"].astype(np.int64) + base_offset
        self._position = stored["position"].astype(np.int64)

    @classmethod
    def open(cls, overlay: Overlay, name: str, base_offset: int, max_size: int) -> OffsetIndex:
        """Open the index of a segment. An empty one is created if it is absent."""
        if name not in overlay:
            overlay.put(name, b"")
        content = overlay.read(name)
        complete = content[: len(content) // _ENTRY * _ENTRY]
        overlay.put(name, complete)  # as when the broker closes it
        return cls(base_offset, complete, max_size)

    def __len__(self) -> int:
        return len(self._offset)

    @property
    def last_offset(self) -> int:
        return int(self._offset[-1]) if len(self) else self.base_offset

    def can_append(self, offset: int) -> bool:
        return 0 <= offset - self.base_offset <= _INT_MAX

    def lookup(self, target: int) -> int:
        """Return the position of the last entry that is not above the offset, as a binary search finds it; 0 for none."""
        slot = self._slot(target)
        return 0 if slot < 0 else max(0, int(self._position[slot]))

    def _slot(self, target: int) -> int:
        if not len(self):
            return -1
        hot = max(0, len(self) - 1 - _WARM)
        if self._offset[hot] < target:
            return self._search(target, hot, len(self) - 1)
        if self._offset[0] > target:
            return -1
        return self._search(target, 0, hot)

    def _search(self, target: int, low: int, high: int) -> int:
        while low < high:
            middle = (low + high + 1) >> 1
            if self._offset[middle] > target:
                high = middle - 1
            elif self._offset[middle] < target:
                low = middle
            else:
                return middle
        return low


def backwards(offset: int, index: OffsetIndex, file: str) -> InvalidOffset:
    """Return the exception for an appended offset that is not above the last one."""
    return InvalidOffset(
        f"Attempt to append an offset ({offset}) to position {len(index)} no larger than the last offset appended "
        f"({index.last_offset}) to {file}."
    )
