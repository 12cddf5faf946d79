"""What the headers in the files of a database tell, for `inspect`: blocks and batches, nothing in them is decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from logwright.codec.frames.walk import ListedFile, Stretch, Walk
from logwright.codec.leveldb.formats.log import codec as log
from logwright.codec.leveldb.formats.records.layout import BATCH_HEADER
from logwright.codec.leveldb.formats.table import codec as table
from logwright.codec.leveldb.formats.table.index import DATA, FILTER
from logwright.codec.leveldb.formats.table.rows import compressions
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, Plan, Role


def facts(listing: Listing, plan: Plan) -> Mapping[str, Any]:
    """See `codec.layout.Layout.facts`."""
    blocks = filters = batches = operations = 0
    kinds: dict[str, int] = {}
    first: int | None = None
    last: int | None = None
    for file in plan.files:
        if file.role is not Role.PRIMARY or not file.size:
            continue
        codec = log.CODEC if file.codec == log.CODEC.name else table.CODEC
        context = codec.context(file.name, Options(codec.options), **file.hints)
        read = ListedFile(listing, file.name, file.size)
        for one in Walk(read, codec, context, check=codec is log.CODEC):
            if not isinstance(one, Stretch) or not len(one.frames):
                continue
            head = one.frames.header
            if codec is table.CODEC:
                data = head["kind"] == DATA
                blocks += int(data.sum())
                filters += int((head["kind"] == FILTER).sum())
                for name in compressions(one.window, one.frames.pick(data)):
                    kinds[name] = kinds.get(name, 0) + 1
                continue
            head = head[head["size"] >= BATCH_HEADER]
            batches += len(head)
            if len(head):
                operations += int(np.maximum(head["count"], 0).sum())
                low, high = int(head["sequence"].min()), int((head["sequence"] + head["count"]).max()) - 1
                first, last = (
                    low if first is None else min(low, first),
                    high if last is None else max(high, last),
                )
    return {
        "blocks": blocks,
        "compression": kinds,
        "tables_with_filter": filters,
        "log_batches": batches,
        "log_operations": operations,
        "log_sequences": None if first is None else [first, last],
    }
