"""The output of ZooKeeper's `SnapshotFormatter` and `TxnLogToolkit` as rows, and our rows in the same form."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

_STAT = {
    "cZxid": "czxid", "mZxid": "mzxid", "pZxid": "pzxid", "cversion": "stored_cversion", "dataVersion": "version",
    "aclVersion": "aversion",
}  # fmt: skip


def formatted(text: str) -> dict[str, dict[str, Any]]:
    """Return the nodes that `SnapshotFormatter` prints, by path. Data is bytes with `-d`, else its length."""
    body = text.partition("----\n")[2].partition("----\nSession Details")[0]
    nodes = {}
    for part in body.split("----\n"):
        path, *fields = part.rstrip("\n").split("\n")
        values = dict(field.strip().split(" =", 1) for field in fields)
        node: dict[str, Any] = {
            ours: int(values[theirs], 0 if "Zxid" in theirs else 10) for theirs, ours in _STAT.items()
        }
        node["owner"] = int(values["ephemeralOwner"], 16)
        for name in ("ctime", "mtime"):
            when = datetime.strptime(values[name].strip(), "%a %b %d %H:%M:%S UTC %Y").replace(tzinfo=UTC)
            node[name] = int(when.timestamp())
        if "data" in values:
            node["data"] = base64.b64decode(values["data"])
        else:
            node["data"] = int(values["dataLength"])
        nodes[path] = node
    return nodes


def as_formatted(rows: Iterable[Mapping[str, Any]], *, lengths: bool = False) -> dict[str, dict[str, Any]]:
    """Return our rows of a snapshot (all columns) in this form. The owner of a node that is not ephemeral encodes its kind."""
    nodes = {}
    for row in rows:
        owner = row["ephemeral_owner"] & (1 << 64) - 1
        if row["kind"] == "container":
            owner = 1 << 63
        elif row["kind"] == "ttl":
            owner = 0xFF << 56 | row["ttl"]
        nodes[row["path"]] = {
            **{ours: row[ours] for ours in _STAT.values()},
            "owner": owner,
            "ctime": row["ctime_ms"] // 1000,
            "mtime": row["mtime_ms"] // 1000,
            "data": len(row["data"] or b"") if lengths else row["data"] or b"",
        }
    return nodes


def logged(text: str) -> list[tuple[int, int, int, str]]:
    """Return session, cxid, zxid and kind of each transaction that `TxnLogToolkit` prints. Data of several lines is skipped."""
    transactions = []
    for line in text.split("\n"):
        if " session 0x" in line and " zxid 0x" in line:
            words = line[line.index(" session 0x") :].split()
            session, cxid, zxid = (int(words[i], 16) for i in (1, 3, 5))
            transactions.append((session, cxid, zxid, words[6].rstrip("\n")))
    return transactions


def as_logged(rows: Iterable[Mapping[str, Any]]) -> list[tuple[int, int, int, str]]:
    """Return our rows of a log in this form."""
    return [
        (row["session_id"] % (1 << 64), row["cxid"] % (1 << 32), row["zxid"], row["type"]) for row in rows
    ]
