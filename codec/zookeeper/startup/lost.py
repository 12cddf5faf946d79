"""Which undamaged transactions no client sees the effects of, once a server has started: what can be salvaged, held against what it reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from logwright.codec.frames.walk import ListedFile, Stretch, Walk
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing
from logwright.codec.zookeeper.formats.txnlog import codec as txnlog
from logwright.codec.zookeeper.formats.txnlog.scan import TXN_FRAME
from logwright.codec.zookeeper.jute import Int64s
from logwright.codec.zookeeper.store.files import DataFile, base

_RANGES = 100
"""So many ranges are told at most."""


@dataclass
class Lost:
    """Transactions, and the ranges of zxids that they lie in."""

    rows: int | None = 0
    """None where nobody knows."""
    ranges: list[Mapping[str, Any]] = field(default_factory=list)


def salvaged(listing: Listing, file: DataFile, options: Options) -> Int64s:
    """The zxids of all undamaged transactions of a log."""
    codec = txnlog.CODEC
    given: dict[str, Any] = {name: options[name] for name in ("jute.maxbuffer", "jute.maxbuffer.extrasize")}
    context = codec.context(base(file.name), Options(codec.options, given))
    found = [np.zeros(0, np.int64)]
    for one in Walk(ListedFile(listing, file.name, file.size), codec, context):
        if isinstance(one, Stretch) and len(one.frames):
            header = one.frames.header
            found.append(header["zxid"][header["kind"] == TXN_FRAME])
    return np.concatenate(found)


def lost(
    listing: Listing, files: Iterable[DataFile], served: Iterable[Int64s], zxid: int, options: Options
) -> Lost:
    """The transactions above the snapshot's zxid that are in these files, and not among those that were applied."""
    got = np.unique(np.concatenate([np.zeros(0, np.int64), *served]))
    ranges: list[Mapping[str, Any]] = []
    rows, seen = 0, got
    for file in files:
        there = salvaged(listing, file, options)
        gone = np.setdiff1d(there[there > zxid], seen)
        seen = np.union1d(seen, gone)
        rows += len(gone)
        edges = np.flatnonzero(np.diff(gone, prepend=-1 << 62, append=1 << 62) != 1)
        for first, behind in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            if len(ranges) < _RANGES:
                ranges.append(
                    {
                        "file": file.name,
                        "first_zxid": int(gone[first]),
                        "last_zxid": int(gone[behind - 1]),
                    }
                )
    return Lost(rows, ranges)
