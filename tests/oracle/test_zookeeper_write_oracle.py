"""ZooKeeper itself loads the data directories that we write, serves them, and goes on with them, and we with it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import logwright as lw

pytestmark = pytest.mark.oracle

Rows = list[dict[str, Any]]
SYSTEM = ["/zookeeper", "/zookeeper/config", "/zookeeper/quota"]
READ_ONLY = [{"perms": 1, "scheme": "world", "id": "anyone"}]
EXTENDED = {"zookeeper.extendedTypesEnabled": "true"}


def tree(count: int, seed: int = 1) -> Rows:
    """Nodes of every kind, some of whose parents are not given, in no order."""
    rng = random.Random(seed)
    rows: Rows = []
    for n in range(count):
        path = "".join(f"/n{rng.randrange(9)}" for _ in range(rng.randrange(1, 5))) + f"/leaf-{n}"
        row: dict[str, Any] = {
            "path": path,
            "data": rng.choice([None, b"", rng.randbytes(rng.randrange(300))]),
        }
        if n % 3 == 0:
            row["acl"] = [
                {"perms": rng.randrange(1, 32), "scheme": "world", "id": "anyone"},
                {"perms": 31, "scheme": "ip", "id": f"10.0.0.{n % 5}"},
            ]
        if n % 7 == 0:
            row |= {"kind": "ephemeral", "ephemeral_owner": 0x100000000000000 + n % 4}
        elif n % 7 == 1:
            row["kind"] = "container"
        elif n % 7 == 2:
            row |= {"kind": "ttl", "ttl": 10_000_000 + n}
        if n % 2:
            row |= {
                "czxid": rng.randrange(1, 900),
                "mzxid": 900 + n % 99,
                "version": rng.randrange(5),
                "aversion": n % 3,
                "ctime": 1_700_000_000_000 + n,
            }
        rows.append(row)
    rng.shuffle(rows)
    return rows


def stats(row: dict[str, Any]) -> dict[str, int]:
    """The stat of one of our rows, as a client sees it."""
    return {name: row[name] for name in ("czxid", "mzxid", "version", "aversion", "pzxid")}


def check(nodes: Rows, path: Path) -> None:
    """What the server has is what we read of the file that we wrote."""
    ours = {row["path"]: row for row in lw.read(path, columns="*").to_pylist()}
    assert [one["path"] for one in nodes] == sorted(ours, key=lambda path: path.split("/"))
    for one in nodes:
        row = ours[one["path"]]
        assert one["data"] == (None if row["data"] is None else row["data"].hex())
        assert one["acl"] == row["acl"], one["path"]
        assert {name: one["stat"][name] for name in stats(row)} == stats(row)
        assert one["persisted"]["cversion"] == row["stored_cversion"]
        assert one["persisted"]["ctime"] == row["ctime_ms"]
        assert one["persisted"]["mtime"] == row["mtime_ms"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sort_buffer_size": 1 << 10},
        {"snapshot.compression.method": "gz"},
        {"snapshot.compression.method": "snappy", "sort_buffer_size": 1 << 12},
        {"digest.enabled": False, "serializeLastProcessedZxid.enabled": False},
        {"serializeLastProcessedZxid.enabled": False, "zxid": 0x500000007, "currentEpoch": 6},
    ],
    ids=str,
)
def test_a_server_loads_what_we_write(zookeeper: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    rows = tree(300)
    written = lw.write(rows, tmp_path, "zookeeper.datadir", **options)
    assert written.rows == 300
    zxid = written.ids["zxid"]
    assert zxid == options.get("zxid", 998)
    nodes, facts = zookeeper.restore(tmp_path, properties=EXTENDED)
    assert facts["returned_zxid"] == facts["last_processed_zxid"] == zxid
    assert facts["digest_mismatches"] == []
    assert facts["sessions"] == {str(0x100000000000000 + n): 30000 for n in range(4)}
    (snapshot,) = (tmp_path / "version-2").glob("snapshot.*")
    check(nodes, snapshot)
    given = {row["path"] for row in rows}
    assert given < {one["path"] for one in nodes}
    said = lw.read(snapshot, view="file").to_pylist()[0]
    if options.get("digest.enabled", True):
        assert (said["digest_zxid"], said["digest"]) == (zxid, facts["tree_digest"])
    before = {path.name: path.read_bytes() for path in (tmp_path / "version-2").iterdir()}
    served, facts = zookeeper.serve(tmp_path, create=("/made-by-a-client",), properties=EXTENDED)
    assert [one["path"] for one in served] == [one["path"] for one in nodes]
    assert [one["stat"] for one in served] == [one["stat"] for one in nodes]
    assert facts["files_after_start"] == sorted({*before, f"snapshot.{zxid:x}"})
