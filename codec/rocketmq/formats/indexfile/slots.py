"""Infer the number of slots of an index file, which it does not store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.rocketmq.formats.indexfile import layout
from logwright.codec.rocketmq.formats.indexfile.layout import ENTRY_TYPE, HEAD, SIZE, chain
from logwright.codec.window import Bytes as Buffer

_TRIED = 64
"""Limit of the entries that are compared, and of the numbers of slots that are tried."""
_LARGEST = 64 << 20
"""Size limit in bytes of files that are searched for their first entry."""
_SEARCHED = 1 << 14
"""Size limit in bytes of files for which every number of slots is tried."""
_PERFECT = 8.0
"""The rating of a file without a contradiction."""


def find_slots(read: Callable[[int, int], Buffer], size: int) -> int:
    """Return the number of slots that agrees best with a file's header and first entries, or -1."""
    max_slots = (size - HEAD - SIZE) // 4
    if max_slots <= 0:
        return -1
    usual = max((size - HEAD) // 84, 1)
    # Without entries the size decides: what is left by header and slots are whole entries.
    usual = min(usual + ((size - HEAD) // 4 - usual) % 5, max_slots)
    if size == layout.entry_at(layout.SLOTS, layout.ENTRIES) or size > _LARGEST:
        return usual
    data = read(0, min(size, layout.entry_at(usual, 1 + _TRIED)))
    head = data[:HEAD].view(layout.HEAD_TYPE)[0]
    if _fit(data[HEAD : HEAD + (len(data) - HEAD) // 4 * 4].view(">i4"), head, usual) == _PERFECT:
        return usual
    data = read(0, size)
    words = data[HEAD : HEAD + (size - HEAD) // 4 * 4].view(">i4")
    if not words.any():
        return usual
    # Entry 0 is empty, and a later one is not.
    filled = np.concatenate([[0], np.cumsum(words != 0)])
    possible = np.arange(1, max_slots + 1)
    empty = filled[possible + 5] == filled[possible]
    possible = possible[empty & (filled[possible + 5] < filled[-1])]
    if size > _SEARCHED:
        # Entry 1 has the physical offset in the header and no previous entry.
        possible = possible[possible < len(words) - 9]
        at = possible + 5
        phy = words[at + 1].astype(np.int64) << 32 | words[at + 2].astype(np.int64) & 0xFFFFFFFF
        first = (words[at + 4] == 0) & (phy == head["begin_physical_offset"]) & (words[at] > 0)
        possible = np.concatenate([[usual], possible[first][:_TRIED]])
    score, _, slots = max(
        (
            (_fit(words, head, slots), (size - HEAD - 4 * slots) % SIZE == 0, slots)
            for slots in possible.tolist()
        ),
        default=(-1.0, False, -1),
    )
    return slots if score > 0 else -1


def _fit(words: npt.NDArray[Any], head: Any, slots: int) -> float:
    """Rate how well the first entries agree with a number of slots. Any value may be damaged, so all of them are compared."""
    stored = words[:slots]
    count = min(_TRIED, (len(words) - slots - 5) // 5)
    entries = words[slots + 5 : slots + 5 + 5 * count].view(ENTRY_TYPE).reshape(-1)
    used = np.flatnonzero(words[slots + 5 : slots + 5 + 5 * count].reshape(-1, 5).any(axis=1))
    entries = entries[: int(used[-1]) + 1 if len(used) else 0]
    if not len(entries) or words[slots : slots + 5].any():
        return -1.0
    hashes = np.maximum(entries["key_hash"].astype(np.int64), 0)
    expected = chain(hashes, slots, 1, np.zeros(slots, np.int32))
    good = (entries["previous"] == expected) & (stored[hashes % slots] > 0) & (entries["key_hash"] > 0)
    if 2 * good.sum() < len(good):
        return -1.0
    signs = (
        entries["physical_offset"][0] == head["begin_physical_offset"],
        entries["time_diff"][0] == 0,
        np.count_nonzero(stored) == head["hash_slot_count"],
        stored.max() == head["index_count"] - 1,
        len(entries) == min(_TRIED, head["index_count"] - 1),
    )
    return float(good.mean()) * 3 + sum(map(float, signs))
