"""Write snapshots of trees that are not in memory as rows: of sorted rows, and of a server's tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from logwright.codec.option import Options
from logwright.codec.window import Chunk
from logwright.codec.zookeeper.formats.snapshot import write as encode
from logwright.codec.zookeeper.formats.snapshot.acl import AclTable
from logwright.codec.zookeeper.formats.snapshot.acl_lists import AclLists
from logwright.codec.zookeeper.formats.snapshot.pack import Piece
from logwright.codec.zookeeper.formats.snapshot.tables import COMPRESSION
from logwright.codec.zookeeper.jute import ACL_RAW_TYPE, raw_lists
from logwright.codec.zookeeper.names import CHECKED
from logwright.codec.zookeeper.state.digest import node_digests
from logwright.codec.zookeeper.state.tree_stream import WholeTree

if TYPE_CHECKING:
    from logwright.codec.zookeeper.state.tree import Tree


def of_rows(tree: WholeTree, options: Options, zxid: int) -> Iterator[Chunk]:
    """Return the snapshot of a complete tree. The session of each ephemeral node is part of it."""
    timeout = options["session.timeout"]
    sessions = [{"session_id": session, "timeout": timeout} for session in sorted(tree.owners)]
    return _packed(tree, tree.acls, sessions, options, zxid)


def of_tree(tree: Tree, options: Options | None = None) -> Iterator[Chunk]:
    """Return the snapshot that a server would write of its tree: with its sessions and ACL numbers. `options` are those of the codec
    `zookeeper.snapshot` (`zxid`: the last one in it, by default the tree's). `names.snapshot_name` gives the name of the file."""
    if options is None:
        options = Options(encode.OPTIONS)
    acls = tree.acls()
    lists = raw_lists(acls.column("acl"), acls.column("acl_raw"))
    table = AclLists(AclTable(acls.column("acl_id").to_numpy(), lists.cast(ACL_RAW_TYPE)))
    sessions = tree.sessions().to_pylist()
    zxid = options["zxid"] if options.given("zxid") else tree.zxid
    return _packed(_Replayed(tree), table, sessions, options, zxid)


class _Replayed:
    """The nodes of a tree. See `write.NodeSource`."""

    def __init__(self, tree: Tree) -> None:
        self._tree, self._count = tree, len(tree)

    def __len__(self) -> int:
        return self._count

    def chunks(self, first: int, stop: int, *, digest: bool = False) -> Iterator[Piece]:
        """Yield all nodes in pieces."""
        assert (first, stop) == (0, len(self))
        for data, frames in self._tree.records():
            paths, lengths = (np.ascontiguousarray(frames.header[name]) for name in ("path", "data"))
            total = 0
            if digest:
                total = int(node_digests(data, frames.start, paths, lengths, np.empty(len(frames), np.int64)))
            yield Piece(data, frames.start, paths, lengths, total)

    def known_digest(self) -> int | None:
        return self._tree.digest_of(len(self))


def _packed(
    nodes: encode.NodeSource, acls: AclLists, sessions: list[dict[str, Any]], options: Options, zxid: int
) -> Iterator[Chunk]:
    snapshot = encode.Snapshot(nodes, acls, sessions, {}, encode.ending({}, options, zxid, False))
    return snapshot.packed(COMPRESSION[encode.method(options) or CHECKED])
