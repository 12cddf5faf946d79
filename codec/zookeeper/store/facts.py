"""Facts for `inspect` from the headers in the files of a data directory. No record or node is decoded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.frames.walk import frames_of, good_frames, walk_listed
from logwright.codec.store.listing import Listing, Plan, Role
from logwright.codec.table import moment
from logwright.codec.window import Frames
from logwright.codec.zookeeper.formats.snapshot import codec as snapshot
from logwright.codec.zookeeper.formats.snapshot.tables import NODE_FRAME
from logwright.codec.zookeeper.formats.txnlog import codec as txnlog
from logwright.codec.zookeeper.formats.txnlog.bodies import type_names
from logwright.codec.zookeeper.formats.txnlog.scan import TXN_FRAME
from logwright.codec.zookeeper.names import zxid_text
from logwright.codec.zookeeper.store.files import DataFile, candidates, logs

_MANY = 100
"""Ranges of zxids that are listed at most."""


def facts(listing: Listing, plan: Plan) -> Mapping[str, Any]:
    """See `codec.layout.Layout.facts`."""
    primary = {file.name: file for file in plan.files if file.role is Role.PRIMARY}
    files = [primary[log.name] for log in logs(listing) if log.name in primary]
    transactions = _Transactions()
    for _, windows in frames_of(listing, files, txnlog.CODEC, check=False):
        for _, frames in windows:
            transactions.add(frames)
    newest = next(iter(candidates(listing)), None)
    return {**transactions.facts(), **({} if newest is None else _snapshot(listing, newest))}


def _snapshot(listing: Listing, file: DataFile) -> dict[str, Any]:
    """Return the facts of the newest snapshot that a server would try."""
    if file.named.compression:
        return {}
    walk = walk_listed(listing, file.name, file.size, snapshot.CODEC, check=False)
    nodes = sum(int((frames.header["kind"] == NODE_FRAME).sum()) for _, frames in good_frames(walk))
    shape = walk.context.shape
    assert shape is not None
    return {
        "snapshot_nodes": nodes,
        "snapshot_sessions": None if shape.sessions is None else len(shape.sessions),
        "snapshot_acls": len(shape.acls.ids),
    }


class _Transactions:
    """The facts of the headers of transactions."""

    def __init__(self) -> None:
        self.types: Counter[str] = Counter()
        self.ranges: list[list[int]] = []
        self.times: list[int] = []
        """The first and the last one."""

    def add(self, frames: Frames) -> None:
        head = frames.header[frames.header["kind"] == TXN_FRAME]
        if not len(head):
            return
        kinds, counts = np.unique(np.ascontiguousarray(head["type"]), return_counts=True)
        self.types.update(dict(zip(type_names(kinds).to_pylist(), counts.tolist(), strict=True)))
        times = [*self.times, int(head["time"].min()), int(head["time"].max())]
        self.times = [min(times), max(times)]
        self._extend(np.ascontiguousarray(head["zxid"]))

    def _extend(self, zxids: Int64s) -> None:
        """Ranges of zxids without a gap, at least one per epoch."""
        jumps = np.diff(zxids, prepend=self.ranges[-1][1] if self.ranges else zxids[0])
        starts = np.flatnonzero((jumps > 1) | (jumps < 0)).tolist()
        if not self.ranges:
            starts = [0, *starts]
        elif not starts or starts[0]:
            self.ranges[-1][1] = int(zxids[starts[0] - 1 if starts else -1])
        stops = [*starts[1:], len(zxids)] if starts else []
        for start, stop in zip(starts, stops, strict=True):
            if len(self.ranges) < _MANY:
                self.ranges.append([int(zxids[start]), int(zxids[stop - 1])])

    def facts(self) -> dict[str, Any]:
        return {
            "transactions": self.types.total(),
            "types": dict(self.types.most_common()),
            "zxids": [[zxid_text(low), zxid_text(high)] for low, high in self.ranges],
            "times": [moment(time) for time in self.times] or None,
        }
