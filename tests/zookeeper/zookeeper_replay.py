"""Replay a golden directory as a server does. Only for cases that start: failures are not simulated here."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
from zookeeper_nodes import Node

from logwright.codec.frames.walk import Hole, ListedFile, Walk
from logwright.codec.option import Options
from logwright.codec.window import Frames, Window
from logwright.codec.zookeeper.formats.txnlog import codec as txnlog
from logwright.codec.zookeeper.formats.txnlog.tables import OPTIONS as TXNLOG_OPTIONS
from logwright.codec.zookeeper.names import GZIP, SNAPPY
from logwright.codec.zookeeper.state.tree import Applied, Tree
from logwright.codec.zookeeper.store import files
from logwright.codec.zookeeper.store.files import DATA_LOG_DIR
from logwright.corpora.cases import Case
from logwright.readers.listing import LocalDirectory, Store

COMPRESSION = {GZIP: "gzip", SNAPPY: "snappy", "": "none"}


def listing(case: Case) -> Any:
    """Return the listing of a case's files."""
    if (case.path / "datalog").exists():
        logs = LocalDirectory(str(case.path / "datalog" / "version-2"))
        return Store(LocalDirectory(str(case.path / "data" / "version-2")), {DATA_LOG_DIR: logs})
    return LocalDirectory(str(case.path / "version-2"))


def restored(
    case: Case, *, check: bool = True, by_rows: bool = False, acl_index: int = 0, **settings: bool
) -> tuple[Tree, Applied]:
    """Return the tree of the newest sound snapshot and all later logs, and the results of their transactions."""
    actual = listing(case)
    tree = None
    for candidate in files.candidates(actual):
        result, faults = Tree.of_snapshot(
            ListedFile(actual, candidate.name, candidate.size),
            zxid=candidate.zxid,
            compression=COMPRESSION[candidate.named.compression],
            **settings,
        )
        if not any(fault.severity == "error" for fault in faults):
            tree = result
            break
    if tree is None:
        tree = Tree.empty(**settings)
    tree.reserve_acls(acl_index)
    mismatches, died = tree.loaded()
    assert died is None
    out = Applied(mismatches=mismatches)
    since: int | None = tree.zxid
    for log in files.logs_from(files.logs(actual), tree.zxid + 1):
        context = txnlog.CODEC.context(log.name, Options(TXNLOG_OPTIONS))
        for candidate in Walk(ListedFile(actual, log.name, log.size), txnlog.CODEC, context):
            if isinstance(candidate, Hole):
                break  # the server stops reading here
            if by_rows:
                window, frames = encoded(candidate.window, candidate.frames, context)
                since = _add(out, tree.apply_frames(window, frames, since=since, check=check), since)
            else:
                since = _add(
                    out,
                    tree.apply_frames(candidate.window, candidate.frames, since=since, check=check),
                    since,
                )
    return tree, out


def encoded(window: Window, frames: Frames, context: Any) -> tuple[Window, Frames]:
    """Decode transactions into rows and encode them from the rows alone."""
    names = txnlog.CODEC.tables["rows"].names(detail=True)
    batches = [part.batch for part in txnlog.CODEC.decode(window, frames, "rows", names, context)]
    rows = pa.Table.from_batches(batches, txnlog.CODEC.tables["rows"].schema(names))
    fresh = txnlog.CODEC.context("", Options(TXNLOG_OPTIONS))
    data = b"".join(bytes(chunk) for chunk in txnlog.CODEC.encode(rows, None, None, fresh))
    second = Window(np.frombuffer(data, np.uint8), 0, len(data))
    return second, txnlog.CODEC.scan(second, 0, fresh, check=False)


def _add(out: Applied, more: Applied, since: int | None) -> int | None:
    out.count += more.count
    out.unread += more.unread
    out.mismatches += more.mismatches
    assert more.died is None
    return None if more.count else since


def as_told(node: Node) -> dict[str, Any]:
    """Return a node in the form of `restore.jsonl`."""
    stat = {name: value for name, value in node.stat.items() if name != "owner"}
    data: dict[str, Any] = {"data_hex": None if node.data is None else node.data.hex()}
    if node.data is not None and len(node.data) > 1500:
        data = {"data_sha256": hashlib.sha256(node.data).hexdigest(), "data_len": len(node.data)}
    owner = f"0x{node.stat['owner'] & (1 << 64) - 1:x}"
    return {"path": node.path.decode(), "acl_id": node.acl_id, **stat, "ephemeralOwner": owner, **data}
