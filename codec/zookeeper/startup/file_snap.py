"""Select the snapshot that a server loads: the newest that it can read, or an older one if the damage allows that.

Source: `persistence/FileSnap.java`, `SerializeUtils.deserializeSnapshot`, `DataTree.deserialize` of ZooKeeper.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from logwright.codec.fault import UnreadableError
from logwright.codec.java import integer, java_string
from logwright.codec.kernels.adler32 import adler32_of
from logwright.codec.kernels.intrinsics import load_i32be, load_i64be
from logwright.codec.store.overlay import Overlay
from logwright.codec.window import Frames, Window
from logwright.codec.zookeeper.formats.snapshot.acl import AclTable
from logwright.codec.zookeeper.formats.snapshot.layout import HEAD, LENGTH, NODE_MIN, STAT
from logwright.codec.zookeeper.formats.snapshot.sections import HEADER_SIZE, SESSION_DTYPE, Shape
from logwright.codec.zookeeper.formats.snapshot.tables import NODE_FRAME
from logwright.codec.zookeeper.jute import STAT_PERSISTED
from logwright.codec.zookeeper.names import zxid_text
from logwright.codec.zookeeper.startup import archive
from logwright.codec.zookeeper.startup.archive import read_acl_table, read_bytes, read_nodes
from logwright.codec.zookeeper.startup.exceptions import (
    EndOfFile,
    IllegalArgument,
    IOFailure,
    NullPointer,
    NumberFormat,
    Thrown,
    died_of,
)
from logwright.codec.zookeeper.startup.nulls import in_acls
from logwright.codec.zookeeper.startup.settings import ServerSettings
from logwright.codec.zookeeper.startup.stream import Stream
from logwright.codec.zookeeper.state.columns import CONTAINERS, TTLS, kinds_of
from logwright.codec.zookeeper.state.tree import Tree
from logwright.codec.zookeeper.state.tree_load import Mismatch
from logwright.codec.zookeeper.store.files import CANDIDATES, DataFile, looks_complete, snapshots

MAGIC = 0x5A4B534E
"""`FileSnap.SNAP_MAGIC`, "ZKSN"."""
_OLD_DIGEST = 2
"""Digests of versions below are strings of hexadecimal digits."""
_MOST_SESSIONS = 1 << 20
"""A snapshot with more nodes is regarded as damaged."""
_PORTION = 1 << 16
_OWNER = STAT_PERSISTED.offset("ephemeral_owner")


@dataclass
class Loaded:
    """The state after the snapshots were tried. What rejected snapshots added to sessions and digests stays."""

    sessions: dict[int, int] = field(default_factory=dict)
    digest_zxid: int | None = None
    """The zxid of `digestFromLoadedSnapshot`."""
    file: DataFile | None = None
    tree: Tree | None = None
    mismatches: list[Mismatch] = field(default_factory=list)
    acl_index: int = 0
    """The highest ACL number in any of them."""
    rejected: list[tuple[str, IOFailure]] = field(default_factory=list)
    ephemerals: dict[int, set[bytes]] = field(default_factory=dict)
    """The paths of ephemeral nodes in rejected snapshots, by session."""


class FileSnap:
    """The snapshots of a directory."""

    def __init__(self, disk: Overlay, settings: ServerSettings) -> None:
        self.disk, self.settings = disk, settings

    def deserialize(self) -> Loaded:
        """Load the newest loadable snapshot. Raises `Thrown`."""
        # The previous tree has used a number for the ACL of /zookeeper/config.
        loaded = Loaded(acl_index=int(self.settings.config_node))
        # `findNValidSnapshots`
        taken = [file for file in reversed(snapshots(self.disk)) if self.settings.takes(file)]
        tried = [file for file in taken if looks_complete(self.disk, file)][:CANDIDATES]
        for file in tried:
            reading = None
            try:
                reading = Reading(self._stream(file), self.settings, loaded)
                reading.deserialize(file.zxid)
            except IOFailure as failure:
                loaded.rejected.append((file.name, failure))
                if reading is not None:
                    reading.leave_ephemerals()
                continue
            loaded.file, loaded.tree = file, reading.tree
            for number, timeout in loaded.sessions.items():
                loaded.tree.add_session(number, timeout)
            loaded.tree.reserve_acls(loaded.acl_index)
            return loaded
        if tried:
            raise IOFailure(f"Not able to find valid snapshots in {self.disk.name}")
        return loaded

    def _stream(self, file: DataFile) -> Stream:
        try:
            data = np.frombuffer(self.disk.read(file.name), np.uint8)
        except UnreadableError:
            raise IOFailure("Input/output error") from None
        return Stream.of(data, file.named.compression, int(self.settings.options["max.decompressed.bytes"]))


class Reading:
    """A snapshot that is being read, in the order of its bytes."""

    def __init__(self, stream: Stream, settings: ServerSettings, loaded: Loaded) -> None:
        self.data, self.broken = stream.data, stream.end
        self.settings, self.loaded = settings, loaded
        self.at = 0
        self.window = Window(self.data, 0, len(self.data))
        self.tree: Tree
        self.nodes: Frames | None = None
        """The nodes that were added to the tree."""

    def deserialize(self, zxid: int) -> None:
        """`FileSnap.deserialize` with all of its seals. Raises `Thrown`."""
        magic = self._int()
        self._need(HEADER_SIZE - 4)
        self.at = HEADER_SIZE
        if magic != MAGIC:
            raise IOFailure(f"mismatching magic headers {magic} !=  {MAGIC}")
        self._sessions()
        self._acls()
        self._tree(zxid)
        self._seal()
        if self.settings.digests and self._digest(zxid):
            self._seal()
        if self.settings.last_processed and self._last_processed():
            self._seal()

    def _need(self, size: int) -> None:
        if len(self.data) - self.at < size:
            self.at = len(self.data)
            raise self.broken

    def _int(self) -> int:
        self._need(4)
        self.at += 4
        return load_i32be(self.data, self.at - 4)

    def _long(self) -> int:
        self._need(8)
        self.at += 8
        return load_i64be(self.data, self.at - 8)

    def _done(self, status: int, at: int, length: int) -> None:
        self.at = at
        failure = self._failure(status, length)
        if failure is not None:
            raise failure

    def _failure(self, status: int, length: int) -> Thrown | None:
        if status == archive.SOUND:
            return None
        if status == archive.END_OF_FILE:
            return self.broken
        if status == archive.NULL_ACLS:
            return Thrown("Incorrent format of InputArchive when deserialize DataTree - missing acls")
        if status == archive.NULL_PATH:
            return NullPointer()
        assert status == archive.UNREASONABLE
        return IOFailure(f"Unreasonable length = {length}")

    def _sessions(self) -> None:
        count = max(self._int(), 0)
        size = SESSION_DTYPE.itemsize
        complete = min(count, (len(self.data) - self.at) // size)
        table = self.data[self.at : self.at + complete * size].view(SESSION_DTYPE)
        self.loaded.sessions |= table[:_MOST_SESSIONS].tolist()
        self.at += complete * size
        if complete < count:
            self._need(size)

    def _acls(self) -> None:
        """`ReferenceCountedACLCache.deserialize`."""
        start = self.at
        self._done(*read_acl_table(self.data, start, len(self.data), self.settings.limit))
        table, _, _ = AclTable.parse(self.data, start, self.at)
        self.loaded.acl_index = max(self.loaded.acl_index, *table.ids.tolist(), 0)
        names = table.lists.values
        if names.field("scheme").null_count or names.field("id").null_count:
            failure = in_acls(table.lists.to_pylist())
            assert failure is not None
            raise failure

    def _tree(self, zxid: int) -> None:
        """`DataTree.deserialize`."""
        limit, strict = self.settings.limit, int(not self.settings.null_paths)
        room = (len(self.data) - self.at) // NODE_MIN + 1
        starts, acls = np.empty(room, np.int64), np.empty(room, np.int64)
        paths, data = np.empty(room, np.int32), np.empty(room, np.int32)
        count, stop, status, length = read_nodes(
            self.data, self.at, len(self.data), limit, strict, starts, paths, data, acls
        )
        assert status != archive.FULL
        head = np.zeros(count, HEAD)
        head["kind"] = NODE_FRAME
        head["path"], head["data"], head["acl"] = paths[:count], data[:count], acls[:count]
        starts = starts[:count].copy()
        ends = starts + NODE_MIN + paths[:count] + np.maximum(data[:count], 0)
        self.at = int(stop)
        frames = Frames(starts, ends, head, self.at)
        tree = self._load(frames, zxid)
        failure = self._failure(status, length)
        if failure is not None:
            raise failure
        self.loaded.mismatches, died = tree.loaded()
        if died is not None:
            raise died_of(died)
        self.tree = tree

    def _load(self, frames: Frames, zxid: int) -> Tree:
        """Add the nodes to a tree. Raises `Thrown` for the first one that cannot be added."""
        data = self.data
        shape = Shape.of(lambda offset, length: data[offset : offset + length], len(data))
        tree = Tree(**self.settings.tree)
        tree.load_shape(shape, zxid)
        loaded = tree.load_frames(self.window, frames)
        orphan, stranger = (
            len(frames) if index is None else index for index in (loaded.orphan, loaded.stranger)
        )
        self.nodes = frames.pick(slice(0, min(orphan, stranger)))
        if orphan < len(frames) and orphan <= stranger:
            path = self._path(frames, orphan)
            above, child = (java_string(part) for part in (path.rpartition(b"/")[0], path))
            raise IOFailure(f"Invalid Datatree, unable to find parent {above} of path {child}")
        if stranger < len(frames):
            owner = load_i64be(data, int(frames.end[stranger]) - STAT + _OWNER)
            raise IllegalArgument(f"Invalid ephemeralOwner. [{zxid_text(owner)[2:]}]")
        return tree

    def leave_ephemerals(self) -> None:
        """Keep what `DataTree.deserialize` leaves behind of a rejected snapshot: its ephemeral nodes, which are deleted with their
        sessions whatever is at their paths later."""
        if self.nodes is None:
            return
        stats = self.nodes.end - STAT + _OWNER
        for first in range(0, len(stats), _PORTION):
            owners = (
                self.data[stats[first : first + _PORTION, None] + np.arange(8)]
                .view(">i8")[:, 0]
                .astype(np.int64)
            )
            kinds = kinds_of(owners)
            normal = (owners != 0) & (self.nodes.header["path"][first : first + _PORTION] > 0)
            if self.settings.containers:
                normal &= kinds != CONTAINERS
            if self.settings.extended_types:
                normal &= kinds != TTLS
            for i in np.flatnonzero(normal).tolist():
                path = self._path(self.nodes, first + i)
                if b"/" in path:
                    self.loaded.ephemerals.setdefault(int(owners[i]), set()).add(path)

    def _path(self, nodes: Frames, i: int) -> bytes:
        start = int(nodes.start[i]) + LENGTH
        return self.data[start : start + int(nodes.header["path"][i])].tobytes()

    def _seal(self) -> None:
        """`SnapStream.checkSealIntegrity`."""
        computed = adler32_of(self.data[: self.at])
        stored = self._long()
        if self.settings.compression:
            # `SnapStream` reads the string after the checksum.
            self._done(*read_bytes(self.data, self.at, len(self.data), self.settings.limit))
        if stored != computed:
            raise IOFailure("CRC corruption")

    def _digest(self, zxid: int) -> bool:
        """`DataTree.deserializeZxidDigest`: return whether a digest is present."""
        try:
            digest_zxid, version = self._long(), self._int()
            if version < _OLD_DIGEST:
                self._hex()
            else:
                self._long()
        except EndOfFile:
            return False
        self.loaded.digest_zxid = digest_zxid if digest_zxid > 0 and digest_zxid >= zxid else None
        return True

    def _hex(self) -> None:
        """Read a digest of an unreleased format. Raises `Thrown`."""
        start = self.at + 4
        self._done(*read_bytes(self.data, self.at, len(self.data), self.settings.limit))
        text = java_string(self.data[start : self.at].tobytes())
        try:
            integer(text, 64, 16)
        except ValueError as error:
            raise NumberFormat(str(error)) from None

    def _last_processed(self) -> bool:
        """`DataTree.deserializeLastProcessedZxid`. The zxid in the file name counts."""
        try:
            self._long()
        except EndOfFile:
            return False
        return True
