"""`.index`: from offsets to positions in the log. Source: `OffsetIndex` of Kafka's storage module."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property

import numpy as np
import pyarrow as pa

from logwright.codec.describe import I32BE, Field, Struct
from logwright.codec.fault import LogwrightError
from logwright.codec.fixed import Entries, Findings, FixedCodec, entries_of
from logwright.codec.table import Column

INDEX_ENTRY = Struct(
    "OffsetIndexEntry",
    Field("relative_offset", I32BE, "last offset of the batch, minus the number in the file's name"),
    Field("position", I32BE, "byte of the log where the batch starts"),
    doc="One batch in every index.interval.bytes of log has an entry.",
    source="OffsetIndex",
)


def _wrong(entries: Entries, base: int) -> Findings:
    offset, position = entries["relative_offset"].astype(np.int64), entries["position"].astype(np.int64)
    yield position < 0, "position is negative"
    yield (
        np.r_[False, (np.diff(offset) <= 0) | (np.diff(position) <= 0)][: len(entries)],
        "the offset or the position is not above that of the previous entry",
    )


class LastOffsets:
    """The last offsets of batches by the index of their segment, which is read when the first one is asked for.

    `read` returns the bytes of the index, or raises `LogwrightError`. A pickled copy knows no offsets.
    """

    def __init__(self, base: int, read: Callable[[], bytes] | None) -> None:
        self._base, self._read = base, read

    def __reduce__(self) -> tuple[type[LastOffsets], tuple[int, None]]:
        return LastOffsets, (self._base, None)

    def at(self, position: int) -> int | None:
        """Return the last offset of the batch that starts at a byte of the log; None if the index does not have it."""
        return self._entries.get(position)

    @cached_property
    def _entries(self) -> dict[int, int]:
        try:
            data = self._read() if self._read is not None else b""
        except LogwrightError:
            return {}
        entries = entries_of(INDEX_ENTRY, data)
        offsets = entries["relative_offset"].astype(np.int64) + self._base
        return dict(zip(entries["position"].tolist(), offsets.tolist(), strict=True))


CODEC = FixedCodec(
    name="kafka.index",
    title="Kafka offset index",
    entry=INDEX_ENTRY,
    pattern=re.compile(r"(\d{20})\.index(?:\.(?:deleted|swap|cleaned))?"),
    columns=(
        Column("offset", pa.int64(), "last offset of a batch", nullable=False),
        Column(
            "position", pa.int32(), "byte of the log where that batch starts", nullable=False, elsewhere=True
        ),
    ),
    relative={"offset": "relative_offset"},
    wrong=_wrong,
    system="after an unclean stop the broker rebuilds it; after a clean one it trusts it",
)
