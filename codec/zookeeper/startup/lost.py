"""The undamaged transactions without effect for clients after a start: salvaged minus applied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.engine.startup import LostRows
from logwright.codec.frames.walk import ListedFile, Walk, good_frames
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing
from logwright.codec.zookeeper.formats.txnlog import codec as txnlog
from logwright.codec.zookeeper.formats.txnlog.scan import TXN_FRAME
from logwright.codec.zookeeper.startup.file_txn_snap_log import Restored
from logwright.codec.zookeeper.startup.messages import Deleted
from logwright.codec.zookeeper.store.files import DataFile, base, logs, newest_snapshot


def lost(listing: Listing, restored: Restored, deleted: Deleted, options: Options) -> Iterator[LostRows]:
    """Return the undamaged transactions that were not applied, and the nodes that are deleted for no good reason."""
    first = next((int(zxids[0]) for zxids in restored.applied if len(zxids)), None)
    # A log under a wrong name is not read, and nothing stops there.
    if restored.stops or first is None or first > restored.begun + 1:
        yield from _unapplied(listing, restored, options)
    newest = newest_snapshot(listing)
    if restored.last_processed < newest:
        # They are only in a snapshot that is not loaded, and it is unknown how much of that is undamaged.
        yield LostRows(None, {"first_zxid": restored.last_processed + 1, "last_zxid": newest})
    if paths := [*deleted.expired, *deleted.taken]:
        yield LostRows(None, {"nodes": [path.decode(errors="replace") for path in paths]})


def _unapplied(listing: Listing, restored: Restored, options: Options) -> Iterator[LostRows]:
    """Return the transactions above the snapshot's zxid that are in the logs and were not applied, by file."""
    begun = restored.begun
    seen = np.unique(np.concatenate([np.zeros(0, np.int64), *restored.applied]))
    for file in logs(listing):
        salvaged = _salvaged(listing, file, options)
        gone = np.setdiff1d(salvaged[salvaged > begun], seen)
        seen = np.union1d(seen, gone)
        edges = np.flatnonzero(np.diff(gone, prepend=-1 << 62, append=1 << 62) != 1)
        for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            first, last = int(gone[start]), int(gone[stop - 1])
            yield LostRows(stop - start, {"file": file.name, "first_zxid": first, "last_zxid": last})


def _salvaged(listing: Listing, file: DataFile, options: Options) -> Int64s:
    """Return the zxids of all undamaged transactions of a log."""
    codec = txnlog.CODEC
    limits: dict[str, Any] = {name: options[name] for name in ("jute.maxbuffer", "jute.maxbuffer.extrasize")}
    context = codec.context(base(file.name), Options(codec.options, limits))
    frames = good_frames(Walk(ListedFile(listing, file.name, file.size), codec, context))
    headers = (part.header for _, part in frames)
    zxids = (header["zxid"][header["kind"] == TXN_FRAME] for header in headers)
    return np.concatenate([np.zeros(0, np.int64), *zxids])
