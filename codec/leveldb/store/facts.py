"""Facts for `inspect`, from the headers of blocks and batches alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from logwright.codec.base import Codec
from logwright.codec.frames.walk import frames_of
from logwright.codec.leveldb.formats.log import codec as log
from logwright.codec.leveldb.formats.records.layout import BATCH_HEADER
from logwright.codec.leveldb.formats.table import codec as table
from logwright.codec.leveldb.formats.table.index import DATA, FILTER
from logwright.codec.leveldb.formats.table.rows import compressions
from logwright.codec.store.listing import Listing, Plan, Role
from logwright.codec.window import Frames, Window


def facts(listing: Listing, plan: Plan) -> Mapping[str, Any]:
    """See `codec.layout.Layout.facts`."""
    batches = operations = blocks = filters = 0
    sequences: list[int] = []
    """The smallest and the largest sequence number of the logs; empty without a batch."""
    compression: Counter[str] = Counter()
    for _, frames in _frames(listing, plan, log.CODEC):
        head = frames.header[frames.header["size"] >= BATCH_HEADER]
        batches += len(head)
        if len(head):
            operations += int(np.maximum(head["count"], 0).sum())
            first, last = int(head["sequence"].min()), int((head["sequence"] + head["count"]).max()) - 1
            sequences = [min([first, *sequences[:1]]), max([last, *sequences[1:]])]
    for window, frames in _frames(listing, plan, table.CODEC):
        data = frames.header["kind"] == DATA
        blocks += int(data.sum())
        filters += int((frames.header["kind"] == FILTER).sum())
        compression.update(compressions(window, frames.pick(data)))
    return {
        "blocks": blocks,
        "compression": dict(compression),
        "tables_with_filter": filters,
        "log_batches": batches,
        "log_operations": operations,
        "log_sequences": sequences or None,
    }


def _frames(listing: Listing, plan: Plan, codec: Codec) -> Iterator[tuple[Window, Frames]]:
    """Yield the good frames of the primary files of one codec."""
    primary = (file for file in plan.files if file.role is Role.PRIMARY and file.size)
    files = [file for file in primary if file.codec == codec.name]
    for _, windows in frames_of(listing, files, codec, check=codec is log.CODEC):
        yield from windows
