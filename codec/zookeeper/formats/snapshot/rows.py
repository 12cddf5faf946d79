"""The rows of a snapshot: columns of its nodes, sessions and ACLs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.columns import binary, constant, contents, numbers, slices
from logwright.codec.window import Decoded, Frames, Window
from logwright.codec.zookeeper.formats.snapshot.acl import texts
from logwright.codec.zookeeper.formats.snapshot.layout import LENGTH, STATS, stats
from logwright.codec.zookeeper.formats.snapshot.sections import Shape
from logwright.codec.zookeeper.formats.snapshot.tables import ROWS
from logwright.codec.zookeeper.state.columns import (
    KINDS,
    PERSISTENT,
    ROOT,
    TTLS,
    kind_column,
    kinds_of,
    owner_column,
    ttl_column,
)

PORTION = 32 << 20
"""Bytes of nodes that are decoded at a time, or one node if it is larger."""


def stats_of(window: Window, nodes: Frames) -> dict[str, Int64s]:
    """Return the fields of the stats of nodes."""
    out = np.empty((len(STATS), len(nodes)), np.int64)
    paths, data = (np.ascontiguousarray(nodes.header[name]) for name in ("path", "data"))
    stats(window.data, nodes.start, paths, data, out)
    return dict(zip(STATS, out, strict=True))


class Nodes:
    """Some nodes, whose columns are made on demand."""

    def __init__(self, window: Window, frames: Frames, shape: Shape) -> None:
        self.window, self.frames, self.shape = window, frames, shape
        self.paths = np.ascontiguousarray(frames.header["path"])
        self.data = np.ascontiguousarray(frames.header["data"])
        self.acls = np.ascontiguousarray(frames.header["acl"])

    def __len__(self) -> int:
        return len(self.frames)

    @cached_property
    def stats(self) -> dict[str, Int64s]:
        return stats_of(self.window, self.frames)

    @cached_property
    def stored_path(self) -> pa.Array:
        return binary(self.window.data, self.frames.start + LENGTH, self.paths.astype(np.int64))

    @cached_property
    def text_path(self) -> tuple[pa.Array, Bools]:
        return texts(self.stored_path)

    @cached_property
    def owned(self) -> bool:
        """Whether any node is not a persistent one."""
        return bool(self.stats["owner"].any())

    @cached_property
    def kinds(self) -> Int64s:
        return kinds_of(self.stats["owner"])

    @cached_property
    def lists(self) -> Int64s:
        return self.shape.acls.places(self.acls)

    def path(self) -> pa.Array:
        paths = self.text_path[0]
        roots = np.flatnonzero(self.paths == 0)
        if not len(roots):
            return paths
        parts, at = [], 0
        for i in roots.tolist():
            parts += [paths.slice(at, i - at), contents(pa.string(), [ROOT.encode()])]
            at = i + 1
        return pa.concat_arrays([*parts, paths.slice(at)])

    def column(self, name: str) -> pa.Array:
        kind = ROWS[name].type
        if name == "path":
            return self.path()
        if name == "data":
            at = self.frames.start + 2 * LENGTH + self.paths
            return binary(self.window.data, at, self.data.astype(np.int64))
        if name == "acl":
            return self.shape.acls.taken(self.lists)
        if name == "acl_raw":
            wrong = self.shape.acls.text[1]
            if not wrong.any():
                return pa.nulls(len(self), kind)
            places = np.where(self.lists >= 0, self.lists, 0)
            none = (self.lists < 0) | ~wrong[places]
            if none.all():
                return pa.nulls(len(self), kind)
            return self.shape.acls.raw.take(numbers(pa.int64(), places, none))
        if name == "path_raw":
            wrong = self.text_path[1]
            if not wrong.any():
                return pa.nulls(len(self), kind)
            return self.stored_path.take(numbers(pa.int64(), np.arange(len(self)), ~wrong))
        if name == "data_length":
            return numbers(kind, np.maximum(self.data, 0))
        if name == "acl_id":
            return numbers(kind, self.acls)
        if name == "position":
            return numbers(kind, self.frames.start + self.window.offset)
        if name == "kind":
            if not self.owned:
                return constant(kind, KINDS[PERSISTENT], len(self))
            return kind_column(self.kinds)
        if name == "ttl":
            if not self.owned or not (self.kinds == TTLS).any():
                return pa.nulls(len(self), kind)
            return ttl_column(self.stats["owner"], self.kinds)
        if name == "ephemeral_owner":
            if not self.owned:
                return constant(kind, 0, len(self))
            return owner_column(self.stats["owner"], self.kinds)
        stored = {"stored_cversion": "cversion", "ctime_ms": "ctime", "mtime_ms": "mtime"}.get(name, name)
        values = self.stats[stored]
        return numbers(kind, values if kind.bit_width == 64 else values.astype(np.int32))


def node_rows(nodes: Nodes, columns: Sequence[str]) -> Decoded:
    return Decoded(ROWS.batch(columns, nodes.column, len(nodes)))


def record_arrays(window: Window, nodes: Frames) -> dict[str, pa.Array]:
    return {
        "path_size": numbers(pa.int32(), nodes.header["path"]),
        "data_size": numbers(pa.int32(), nodes.header["data"]),
        "acl_id": numbers(pa.int64(), nodes.header["acl"]),
        "record": slices(window.data, nodes.start, nodes.end),
    }


def session_arrays(shape: Shape) -> dict[str, pa.Array]:
    assert shape.sessions is not None
    return {
        "session_id": numbers(pa.int64(), shape.sessions["id"].astype(np.int64)),
        "timeout": numbers(pa.int32(), shape.sessions["timeout"].astype(np.int32)),
    }


def acl_arrays(shape: Shape) -> dict[str, pa.Array]:
    """Return the entries in the order of the file, including numbers that occur twice."""
    table = shape.acls
    places = numbers(pa.int64(), table.places(table.ids))
    text, wrong = table.text
    return {
        "acl_id": numbers(pa.int64(), table.ids),
        "acl": text.take(places),
        "acl_raw": table.raw.take(numbers(pa.int64(), table.places(table.ids), ~wrong[np.asarray(places)])),
    }
