"""Begin a tree: that of a server without files, or that of a snapshot, from its file or from rows.

Source: `DataTree.deserialize`, `FileSnap.deserialize`, `ZKDatabase.loadDataBase` of ZooKeeper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from logwright.codec.fault import Fault, Kind
from logwright.codec.frames.walk import Hole, MemoryFile, RandomAccess, Stretch, Walk, zero_filled
from logwright.codec.option import Options
from logwright.codec.window import Frames, Window
from logwright.codec.zookeeper.formats.snapshot.codec import CODEC as SNAPSHOT
from logwright.codec.zookeeper.formats.snapshot.expand import expand
from logwright.codec.zookeeper.formats.snapshot.layout import NODE, OPEN_ACL
from logwright.codec.zookeeper.formats.snapshot.scan import NEXT, seal_faults
from logwright.codec.zookeeper.formats.snapshot.sections import Shape
from logwright.codec.zookeeper.formats.snapshot.tables import NODE_FRAME
from logwright.codec.zookeeper.jute import STAT_PERSISTED
from logwright.codec.zookeeper.state import tree_fields as f
from logwright.codec.zookeeper.state.digest import VERSION
from logwright.codec.zookeeper.state.tree_arrays import TreeArrays
from logwright.codec.zookeeper.state.tree_defaults import CONFIG, SYSTEM, config_list

CONFIG_SINCE = (3, 5)
"""The first version whose new tree has /zookeeper/config."""
_USUAL = 128
"""A low estimate of the size of a node in a snapshot."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A digest that differs from the one stored with a transaction or in a snapshot."""

    zxid: int
    stored: int
    computed: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """The index of the first record without a parent, and of the first one with an invalid owner, if any. A server refuses a snapshot
    with the former, and ends at the latter."""

    orphan: int | None = None
    stranger: int | None = None


class TreeLoader(TreeArrays):
    """A tree that is being loaded. At first it has no node, not even the root."""

    @classmethod
    def empty(cls, *, version: tuple[int, ...] = (3, 9), **settings: bool) -> Self:
        """Return the tree of a server of that version that started without files."""
        tree = cls(**settings)
        paths = [path for path in SYSTEM if path != CONFIG or version[:2] >= CONFIG_SINCE]
        acls = np.full(len(paths), OPEN_ACL, np.int64)
        stat = {field.name: 0 for field in STAT_PERSISTED.fields}
        records = []
        for i, path in enumerate(paths):
            if path == CONFIG:
                acls[i] = tree._acls.number(tree._acls.add(1, config_list()))
            aversion = {"aversion": -1 if path == CONFIG else 0}
            value = {"path": path, "data": b"", "acl": int(acls[i]), "stat": stat | aversion}
            records.append(NODE.pack(value))
        ends = np.cumsum([0, *(len(record) for record in records)])
        tree._load(
            np.frombuffer(b"".join(records), np.uint8),
            ends[:-1].astype(np.int64),
            np.array([len(path) for path in paths], np.int32),
            np.zeros(len(paths), np.int32),
            acls,
        )
        return tree

    @classmethod
    def of_snapshot(
        cls, file: RandomAccess, *, zxid: int, compression: str = "none", check: bool = True, **settings: bool
    ) -> tuple[Self, list[Fault]]:
        """Return the tree of a snapshot file, and the faults of the file. Of a damaged one, the readable part is loaded."""
        faults: list[Fault] = []
        if compression != "none":
            limit = int(Options(SNAPSHOT.options)["max.decompressed.bytes"])
            size = file.size
            expanded = expand(compression, zero_filled(file, 0, size)[0], limit)
            if expanded.error:
                faults.append(Fault(SNAPSHOT.name, 0, size, expanded.kind, expanded.error))
            file = MemoryFile(expanded.data)
        context = SNAPSHOT.context("", Options(SNAPSHOT.options))
        # The tree is loaded before the seals are verified, as in the server, so that nothing is read twice.
        context.seals, before = False, len(faults)
        out = cls(**settings)
        begun = orphaned = False
        for step in Walk(file, SNAPSHOT, context, check=check):
            assert context.shape is not None
            if not begun:
                # Growing takes longer than loading, and unused room takes no memory.
                out._room_for_rows(file.size // _USUAL)
                out._room_for_bytes(file.size)
                if isinstance(step, Stretch) and len(step.frames):
                    out._room_for_entries(len(step.frames) * file.size // step.frames.stop)
                out.load_shape(context.shape, zxid)
                begun = True
            if isinstance(step, Hole):
                faults.append(step.fault)
            elif len(step.frames) or step.faults:
                if check:
                    context.shape.add(step.window.data, step.window.offset)
                faults += step.frames.faults
                orphan = out.load_frames(step.window, step.frames).orphan
                if orphan is not None and not orphaned:
                    orphaned = True
                    start, stop = int(step.frames.start[orphan]), int(step.frames.end[orphan])
                    text = "the parent of the node does not come before it: unable to find parent"
                    place = step.window.offset + start
                    faults.append(Fault(SNAPSHOT.name, place, stop - start, Kind.LINK, text, system=NEXT))
        if check and context.shape is not None:
            faults[before:before] = seal_faults(context.shape)
        return out, faults

    # Parts of a snapshot

    def load_shape(self, shape: Shape, zxid: int) -> None:
        """Load the sections around the nodes: sessions, ACL table, digest. `zxid` is that of the file name."""
        self._acls.load(shape.acls)
        if shape.sessions is not None:
            for number, timeout in shape.sessions.tolist():
                self.add_session(number, timeout)
        self._s[f.LAST] = zxid
        self._target = None
        facts = {} if shape.ending is None else shape.ending.facts(shape.read)
        if facts.get("digest_zxid", 0) >= max(zxid, 1):
            self._target = facts["digest_zxid"], facts["digest_version"], facts["digest"]

    def load_frames(self, window: Window, frames: Frames) -> Loaded:
        """Load nodes of an uncompressed snapshot, as the scan of its codec finds them; sections among them are skipped. Of two nodes
        with one path, the last counts."""
        kinds = frames.header["kind"]
        which = np.flatnonzero(kinds == NODE_FRAME)
        nodes = frames if len(which) == len(frames) else frames.pick(kinds == NODE_FRAME)
        header = nodes.header
        first = int(self._s[f.ROWS])
        self._load(
            window.data,
            np.ascontiguousarray(nodes.start),
            np.ascontiguousarray(header["path"]),
            np.ascontiguousarray(header["data"]),
            np.ascontiguousarray(header["acl"]),
        )
        events = [int(which[row - first]) if row >= first else None for row in self._s[[f.ORPHAN, f.STRANGER]].tolist()]  # fmt: skip
        return Loaded(*events)

    def loaded(self) -> tuple[list[Mismatch], str | None]:
        """Finish as a server does after reading a snapshot: count below quotas, drop unused ACLs, and compare the digest unless its zxid
        is later. Return the mismatch, and the exception that ends the server."""
        died = self._quotas.found(self)
        self._acls.forget_unused()
        out = []
        if self._target is not None and self._target[0] == self.zxid:
            out = self._compare_target()
        return out, died

    # The digest of a snapshot

    @property
    def target(self) -> tuple[int, int, int] | None:
        """The digest of the snapshot (its zxid, version, value) until it is compared: its zxid is not reached yet."""
        return self._target

    def _compare_target(self) -> list[Mismatch]:
        """Compare the digest of the snapshot, whose zxid is reached."""
        assert self._target is not None
        (zxid, version, stored), self._target = self._target, None
        if version != VERSION or stored == self.digest or not self._s[f.DIGESTS]:
            return []
        return [Mismatch(zxid, stored, self.digest)]
