"""Facts for `inspect` from the headers in the files of a data directory. No record or node is decoded."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from logwright.codec.engine.fold import result
from logwright.codec.frames.walk import frames_of, good_frames, walk_listed
from logwright.codec.store.listing import Listing, Plan, PlannedFile, Role
from logwright.codec.window import Frames, Window
from logwright.codec.zookeeper.formats.snapshot import codec as snapshot
from logwright.codec.zookeeper.formats.snapshot.tables import NODE_FRAME
from logwright.codec.zookeeper.formats.txnlog import codec as txnlog
from logwright.codec.zookeeper.formats.txnlog.bodies import type_names
from logwright.codec.zookeeper.formats.txnlog.scan import TXN_FRAME
from logwright.codec.zookeeper.jute import Int64s
from logwright.codec.zookeeper.names import zxid_text
from logwright.codec.zookeeper.store.files import DataFile, candidates, logs

_MANY = 100
"""Ranges of zxids that are listed at most."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def facts(listing: Listing, plan: Plan) -> Mapping[str, Any]:
    """See `codec.layout.Layout.facts`."""
    primary = {file.name: file for file in plan.files if file.role is Role.PRIMARY}
    files = [primary[log.name] for log in logs(listing) if log.name in primary]
    transactions = result(frames_of(listing, files, txnlog.CODEC, check=False), TransactionFacts())
    newest = next(iter(candidates(listing)), None)
    return {**transactions, **({} if newest is None else _snapshot(listing, newest))}


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


class TransactionFacts:
    """Fold the headers of transactions into facts."""

    def __init__(self) -> None:
        self.count = 0
        self.types: dict[str, int] = {}
        self.ranges: list[list[int]] = []
        self.times: tuple[int, int] | None = None

    def begin(self, file: PlannedFile) -> None:
        pass

    def add(self, window: Window, frames: Frames) -> None:
        head = frames.header[frames.header["kind"] == TXN_FRAME]
        if len(head):
            self._add(np.ascontiguousarray(head["zxid"]), head["time"], np.ascontiguousarray(head["type"]))

    def _add(self, zxids: Int64s, times: Int64s, types: Int64s) -> None:
        self.count += len(zxids)
        kinds, counts = np.unique(types, return_counts=True)
        for name, count in zip(type_names(kinds).to_pylist(), counts.tolist(), strict=True):
            self.types[name] = self.types.get(name, 0) + count
        low, high = int(times.min()), int(times.max())
        self.times = (
            (low, high) if self.times is None else (min(low, self.times[0]), max(high, self.times[1]))
        )
        self._extend(zxids)

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

    def finish(self) -> dict[str, Any]:
        return {
            "transactions": self.count,
            "types": dict(sorted(self.types.items(), key=lambda kind: -kind[1])),
            "zxids": [[zxid_text(low), zxid_text(high)] for low, high in self.ranges],
            "times": None if self.times is None else [_time(time) for time in self.times],
        }


def _time(milliseconds: int) -> Any:
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return milliseconds
