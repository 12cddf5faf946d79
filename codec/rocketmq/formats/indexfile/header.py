"""Compare the header of an index file with its slots and entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec import plural
from logwright.codec.arrays import Int32s
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.rocketmq.formats.indexfile.layout import HEADER, NAME, SYSTEM

_BLOCKS = "a broker does not index messages before end_physical_offset, and reports no error"


def wrong_end(head: npt.NDArray[Any], end: str, phy: int) -> Iterator[Fault]:
    """Yield a fault if the header has another physical offset for its first or last entry than that entry."""
    field = f"{end}_physical_offset"
    if head[field] != phy:
        text = f"{field} is {head[field]}, but the {'first' if end == 'begin' else 'last'} entry has {phy}"
        yield Fault(NAME, HEADER.offset(field), 8, Kind.LINK, text, Severity.WARNING, SYSTEM, 0)


def unequal_ends(head: npt.NDArray[Any]) -> Iterator[Fault]:
    """Yield the faults of the header of a file without entries. A broker writes the end of the previous file as its begin and its end."""
    for name in ("timestamp", "physical_offset"):
        begin, end = f"begin_{name}", f"end_{name}"
        if head[begin] != head[end]:
            text = f"{end} is {head[end]}, but {begin} is {head[begin]} and the file has no entry"
            yield Fault(NAME, HEADER.offset(end), 8, Kind.LINK, text, Severity.WARNING, _BLOCKS, 0)


def wrong_slot_count(
    head: npt.NDArray[Any],
    stored: Int32s,
    expected: Int32s,
    done: int,
    *,
    unfinished: bool,
) -> Iterator[Fault]:
    """Yield a fault if the header has another number of slots in use. Releases up to 4.7.0 count every one of the `done` entries instead."""
    count, used = int(head["hash_slot_count"]), int(np.count_nonzero(expected))
    possible = {used, int(np.count_nonzero(stored)), done}
    possible |= {value - 1 for value in possible} if unfinished else set()
    if count not in possible:
        severity = Severity.INFO if used < count < done else Severity.WARNING
        text = f"hash_slot_count is {count:,}, but {plural.count(used, 'slot')} of {len(expected):,} are used"
        yield Fault(
            NAME,
            HEADER.offset("hash_slot_count"),
            4,
            Kind.LINK,
            text,
            severity,
            "no broker uses this number",
            0,
        )
