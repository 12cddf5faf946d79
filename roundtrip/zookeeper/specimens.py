"""Small files of ZooKeeper: see `logwright.roundtrip.specimens`."""

from __future__ import annotations

from typing import Any

from logwright.roundtrip.sample import DirectorySample, Sample

_T = 1_700_000_000_000

_WORLD = [{"perms": 31, "scheme": "world", "id": "anyone"}]


def _txns(multi: str) -> list[dict[str, Any]]:
    """Return transactions of all types, with the multi as one row or several."""
    bodies: list[dict[str, Any]] = [
        {"type": "createSession", "time_out": 30000},
        {
            "type": "create",
            "path": "/a",
            "data": b"1",
            "acl": _WORLD,
            "ephemeral": False,
            "parent_cversion": 1,
        },
        {
            "type": "create2",
            "path": "/a/e",
            "data": None,
            "acl": _WORLD * 2,
            "ephemeral": True,
            "parent_cversion": 1,
        },
        {"type": "createTTL", "path": "/t", "data": b"", "acl": None, "parent_cversion": 2, "ttl": 1000},
        {"type": "createContainer", "path": "/c", "data": None, "acl": [], "parent_cversion": 3},
        {"type": "setData", "path": "/a", "data": b"22", "version": 1},
        {"type": "setACL", "path": "/a", "acl": _WORLD, "version": 1},
        {
            "type": "multi",
            "txns": [
                {"type": "check", "path": "/a", "version": 2},
                {
                    "type": "create",
                    "path": "/m",
                    "data": b"3",
                    "acl": _WORLD,
                    "ephemeral": False,
                    "parent_cversion": 4,
                },
                {"type": "error", "err": -2},
            ],
        },
        {"type": "error", "err": -101},
        {"type": "reconfig", "path": "/zookeeper/config", "data": b"server.1=h", "version": -1},
        {"type": "deleteContainer", "path": "/c"},
        {"type": "delete", "path": "/t"},
        {"type": "closeSession", "paths_to_delete": ["/a/e"]},
    ]
    rows = []
    for n, body in enumerate(bodies):
        digest = None if body["type"] == "error" else 1000 + n
        head = {"zxid": n + 1, "time": _T + n, "session_id": 1 << 56, "cxid": n, "tree_digest": digest}
        parts = body["txns"] if multi == "exploded" and "txns" in body else [body]
        for place, part in enumerate(parts):
            rows.append({**head, **part, "sub": None if part is body else place})
    return rows


_NODES: list[dict[str, Any]] = [
    {"path": "/", "data": b""},
    {"path": "/a", "data": b"1" * 40, "acl": _WORLD, "czxid": 3, "mzxid": 5, "ctime": _T, "mtime": _T + 5, "version": 2},
    {"path": "/a/b", "data": None, "acl": [{"perms": 1, "scheme": "digest", "id": "u:x"}, *_WORLD], "czxid": 4, "aversion": 1},
    {"path": "/a/e", "data": b"", "czxid": 5, "ephemeral_owner": 1 << 56, "kind": "ephemeral"},
    {"path": "/c", "data": b"", "czxid": 6, "kind": "container"},
    {"path": "/c/t", "data": b"x", "czxid": 7, "kind": "ttl", "ttl": 60_000},
    *({"path": f"/zookeeper{name}", "data": b""} for name in ("", "/config", "/quota")),
]  # fmt: skip


SAMPLES: tuple[Sample, ...] = (
    Sample("zookeeper.txnlog", "log.1", _txns("nested"), {"multi": "nested"}),
    Sample("zookeeper.txnlog", "log.6", _txns("exploded")[5:], {"multi": "exploded"}),
    Sample("zookeeper.snapshot", "snapshot.7", _NODES),
    *(
        Sample("zookeeper.snapshot", f"snapshot.7.{compression}", _NODES, {"snapshot.compression.method": compression})
        for compression in ("gz", "snappy")
    ),
    Sample("zookeeper.accepted_epoch", "acceptedEpoch", [{"epoch": 7}]),
    Sample("zookeeper.current_epoch", "currentEpoch", [{"epoch": 6}]),
    Sample("zookeeper.myid", "myid", [{"myid": 3}]),
)  # fmt: skip

PRIMARY_SAMPLES: tuple[Sample, ...] = (
    Sample("zookeeper.txnlog", "log.1", _txns("nested"), {"multi": "nested"}),
    Sample("zookeeper.snapshot", "snapshot.7", _NODES),
    Sample("zookeeper.snapshot", "snapshot.7.gz", _NODES, {"snapshot.compression.method": "gz"}),
)

DIRECTORY_SAMPLES: tuple[DirectorySample, ...] = (
    # New rows last, with their parent, as a reader of the tree gets them.
    DirectorySample(
        "zookeeper.datadir",
        "version-2",
        [{"path": f"/a{n}", "data": b"old" * n} for n in range(6)],
        [{"path": f"/b{n}", "data": b"new" * n} for n in range(8)],
        "path",
        {"write_as": "logs", "txnLogSizeLimitInKb": 1},
        ("/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"),
    ),
)
