"""ZooKeeper itself loads and serves our data directories, and both append to the other's."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from zookeeper_tools import as_formatted, as_logged, formatted, logged

import logwright as lw
from logwright.roundtrip.memory_filesystem import MemoryFileSystem
from logwright.roundtrip.oracles import java
from logwright.writers.write import write

pytestmark = pytest.mark.oracle

Rows = list[dict[str, Any]]
SYSTEM = ["/zookeeper", "/zookeeper/config", "/zookeeper/quota"]
EXTENDED = {"zookeeper.extendedTypesEnabled": "true"}


def tree(count: int, seed: int = 1) -> Rows:
    """Return unordered nodes of every kind, some with missing parents."""
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
    """Return the stat of a row as a client sees it."""
    return {name: row[name] for name in ("czxid", "mzxid", "version", "aversion", "pzxid")}


def check(nodes: Rows, path: Path) -> None:
    """The server has the rows we read from the file we wrote."""
    ours = {row["path"]: row for row in lw.read(path, columns="*").to_pylist()}
    assert [node["path"] for node in nodes] == sorted(ours, key=lambda path: path.split("/"))
    for item in nodes:
        row = ours[item["path"]]
        assert item["data"] == (None if row["data"] is None else row["data"].hex())
        assert item["acl"] == row["acl"], item["path"]
        assert {name: item["stat"][name] for name in stats(row)} == stats(row)
        assert item["persisted"]["cversion"] == row["stored_cversion"]
        assert item["persisted"]["ctime"] == row["ctime_ms"]
        assert item["persisted"]["mtime"] == row["mtime_ms"]


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
def test_server_loads_our_directories(zookeeper: Any, tmp_path: Path, options: dict[str, Any]) -> None:
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
    reported = formatted(zookeeper.snapshot_formatter(snapshot, data=True))
    assert reported == as_formatted(lw.read(snapshot, columns="*").to_pylist())
    inputs = {row["path"] for row in rows}
    assert inputs < {node["path"] for node in nodes}
    message = lw.read(snapshot, view="file").to_pylist()[0]
    if options.get("digest.enabled", True):
        assert (message["digest_zxid"], message["digest"]) == (zxid, facts["tree_digest"])
    before = {path.name: path.read_bytes() for path in (tmp_path / "version-2").iterdir()}
    served, facts = zookeeper.serve(tmp_path, create=("/made-by-a-client",), properties=EXTENDED)
    assert [row["path"] for row in served] == [node["path"] for node in nodes]
    assert [row["stat"] for row in served] == [node["stat"] for node in nodes]
    assert facts["files_after_start"] == sorted({*before, f"snapshot.{zxid:x}"})


# Transactions


def restored(zookeeper: Any, path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a server's nodes by path, and its other state. Every digest must equal the stored one."""
    nodes, facts = zookeeper.restore(path, properties=EXTENDED)
    assert facts["digest_mismatches"] == []
    assert facts["snapshot_digest_left"] is None
    return {node["path"]: node for node in nodes}, facts


def same(zookeeper: Any, path: Path) -> dict[str, Any]:
    """Assert that a server has the same tree as we read."""
    nodes, facts = restored(zookeeper, path)
    ours = {row["path"]: row for row in lw.read(path).to_pylist()}
    assert nodes.keys() == ours.keys()
    for name, item in nodes.items():
        row = ours[name]
        assert (item["data"], item["acl"]) == (
            None if row["data"] is None else row["data"].hex(),
            row["acl"],
        ), name
        for column in ("czxid", "mzxid", "version", "cversion", "aversion", "pzxid"):
            assert item["stat"][column] == row[column], (name, column)
    assert facts["node_count"] == len(ours) + 1, "it counts the root twice"
    return facts


@pytest.mark.parametrize(
    "options", [{}, {"txnLogSizeLimitInKb": 4}, {"preAllocSize": 64}, {"digest.enabled": False}], ids=str
)
def test_nodes_written_as_logs_are_restored_by_the_server(
    zookeeper: Any, tmp_path: Path, options: dict[str, Any]
) -> None:
    written = lw.write(tree(200), tmp_path, "zookeeper.datadir", write_as="logs", **options)
    facts = same(zookeeper, tmp_path)
    assert facts["returned_zxid"] == written.ids["last_zxid"]
    for log in (tmp_path / "version-2").glob("log.*"):
        message = zookeeper.txn_log_toolkit(log)
        assert "CRC ERROR" not in message
        rows = lw.read(log).to_pylist()
        assert f"EOF reached after {len(rows)} txns." in message
        assert logged(message) == as_logged(rows)
    assert "ZNode Details (count=5)" in zookeeper.snapshot_formatter(tmp_path / "version-2" / "snapshot.0")


def test_server_and_we_append_alternately(zookeeper: Any, tmp_path: Path) -> None:
    lw.write(tree(60), tmp_path, "zookeeper.datadir")
    for step in range(4):
        zookeeper.serve(tmp_path, create=(f"/theirs-{step}", f"/theirs-{step}/below"), properties=EXTENDED)
        rows: Rows = [
            {"path": f"/theirs-{step}", "data": b"ours"},
            {"path": f"/ours-{step}/deep/{step}", "data": b"x" * step},
            {
                "path": "/theirs-0/below",
                "data": b"%d" % step,
                "acl": [{"perms": 31, "scheme": "ip", "id": f"10.0.0.{step}"}],
            },
        ]
        lw.write(rows, tmp_path, "zookeeper.datadir", mode="append")
        facts = same(zookeeper, tmp_path)
        gone: Rows = [
            {"type": "delete", "path": f"/ours-{step}/deep/{step}"},
            {"type": "delete", "path": f"/ours-{step}/deep"},
        ]
        written = lw.write(gone, tmp_path, "zookeeper.datadir", mode="append")
        assert written.ids["first_zxid"] == facts["returned_zxid"] + 1
        same(zookeeper, tmp_path)
    nodes, _ = zookeeper.serve(tmp_path, properties=EXTENDED)
    actual = {node["path"]: node for node in nodes}
    assert bytes.fromhex(actual["/theirs-3"]["data"]) == b"ours"
    assert actual["/theirs-0/below"]["acl"] == [{"perms": 31, "scheme": "ip", "id": "10.0.0.3"}]
    assert "/ours-2/deep" not in actual
    assert "/ours-2" in actual


def test_every_kind_of_transaction(zookeeper: Any, tmp_path: Path) -> None:
    rows: Rows = [
        {"type": "createSession", "session_id": 77, "time_out": 9000},
        {"type": "create", "path": "/a", "data": b"1"},
        {"type": "create2", "path": "/a/b", "data": None},
        {"type": "createContainer", "path": "/c", "data": b""},
        {"type": "createTTL", "path": "/t", "data": b"t", "ttl": 1 << 30},
        {"type": "create", "path": "/e", "data": b"e", "ephemeral": True, "session_id": 77},
        {"type": "setData", "path": "/a", "data": b"2"},
        {"type": "setACL", "path": "/a", "acl": [{"perms": 3, "scheme": "sasl", "id": "\u00e9"}]},
        {"type": "error", "err": -110},
        {"type": "multi", "txns": [
            {"type": "create", "path": "/m", "data": b"m"}, {"type": "setData", "path": "/m", "data": b"n"},
            {"type": "check", "path": "/m"}, {"type": "delete", "path": "/a/b"},
        ]},
        {"type": "multi", "txns": [{"type": "setData", "path": "/nowhere", "data": b"", "version": 1}, {"type": "error", "err": -2}]},
        {"type": "deleteContainer", "path": "/c"},
    ]  # fmt: skip
    lw.write(rows, tmp_path, "zookeeper.datadir")
    facts = same(zookeeper, tmp_path)
    assert facts["sessions"] == {"77": 9000}
    nodes, _ = restored(zookeeper, tmp_path)
    assert {path for path in nodes if "zookeeper" not in path} == {"/", "/a", "/t", "/e", "/m"}
    lw.write([{"type": "closeSession", "session_id": 77}], tmp_path, "zookeeper.datadir", mode="append")
    assert same(zookeeper, tmp_path)["sessions"] == {}


def test_directory_of_an_ensemble_member(zookeeper: Any, tmp_path: Path) -> None:
    """The first transaction of the next epoch has counter 1."""
    lw.write(tree(9), tmp_path, "zookeeper.datadir", write_as="logs", currentEpoch=3)
    rows: Rows = [{"type": "create", "path": "/x", "zxid": 0x400000001}]
    lw.write(rows, tmp_path, "zookeeper.datadir", mode="append")
    assert same(zookeeper, tmp_path)["returned_zxid"] == 0x400000001


def test_server_restores_the_nodes_of_a_generated_directory(zookeeper: Any, tmp_path: Path) -> None:
    """The server has the rows of the recipe, which no reader of ours produced."""
    for seed in range(3):
        generated = lw.generate(
            "zookeeper.datadir", tmp_path / f"{seed}" / "version-2", rows=300, seed=seed, recipe="mixed"
        )
        nodes, _ = restored(zookeeper, tmp_path / f"{seed}")
        same(zookeeper, tmp_path / f"{seed}")
        (expected,) = generated.expected.values()
        message = [json.loads(line) for line in Path(expected).read_text().splitlines()]
        assert {row["path"] for row in message} == nodes.keys()
        for row in message:
            persisted = nodes[row["path"]]["persisted"]
            names = ("czxid", "mzxid", "version", "aversion", "pzxid")
            assert [persisted[name] for name in names] == [row[name] for name in names]
            assert persisted["cversion"] == row["stored_cversion"]


def test_dropped_nodes_are_gone_for_a_server(zookeeper: Any, tmp_path: Path) -> None:
    lw.write(tree(100), tmp_path / "zk", "zookeeper.datadir", write_as="logs")
    lw.edit(tmp_path / "zk", tmp_path / "out", drop="path >= '/n3' and path < '/n4'")
    before, after = (set(restored(zookeeper, tmp_path / item)[0]) for item in ("zk", "out"))
    assert after == {path for path in before if not path.startswith("/n3")} < before
    same(zookeeper, tmp_path / "out")


# In between


@pytest.mark.parametrize(("mode", "exchange"), [("append", True), ("overwrite", True), ("overwrite", False)])
def test_server_started_in_between(zookeeper: Any, tmp_path: Path, mode: str, exchange: bool) -> None:
    """After a killed write it has the old tree, the new one, or the first of several new logs.

    If the directories cannot be exchanged atomically, for a moment there is no directory.
    """
    old: Rows = [{"path": f"/old-{n}", "data": b"o"} for n in range(3)]
    new: Rows = [{"path": f"/new-{n}", "data": bytes(400)} for n in range(9)]
    options: dict[str, Any] = {"write_as": "logs", "txnLogSizeLimitInKb": 1}
    files = MemoryFileSystem(can_exchange=exchange)
    files.make("/place")
    write(old, "/place/zk", "zookeeper.datadir", files=files, **options)
    files = files.fork()
    write(new, "/place/zk", "zookeeper.datadir", mode=mode, files=files, **options)
    seen: list[tuple[int, int]] = []
    for prefix in range(len(files.trace) + 1):
        home = tmp_path / f"{prefix}" / "version-2"
        home.mkdir(parents=True)
        there = files.killed(prefix).tree("/place/zk/version-2")
        for name, data in there.items():
            if data is not None and "/" not in name:
                (home / name).write_bytes(data)
        if not any(name.startswith("snapshot") for name in there):
            assert not exchange
            continue
        nodes, _ = zookeeper.restore(home.parent)
        paths = [node["path"] for node in nodes]
        counts = tuple(sum(path.startswith(name) for path in paths) for name in ("/old", "/new"))
        for name, count in zip(("/old", "/new"), counts, strict=True):
            assert [path for path in paths if path.startswith(name)] == [f"{name}-{n}" for n in range(count)]
        if not seen or seen[-1] != counts:
            seen.append((counts[0], counts[1]))
    assert (seen[0], seen[-1]) == ((3, 0), (3 if mode == "append" else 0, 9))
    assert [count for _, count in seen] == sorted(count for _, count in seen)
    assert mode == "append" or not any(old and new for old, new in seen), "no mixture"
    assert mode == "overwrite" or {count for count, _ in seen} == {3}


def free_port() -> int:
    with socket.socket() as item:
        item.bind(("127.0.0.1", 0))
        port: int = item.getsockname()[1]
        return port


def asked(port: int, word: str) -> str:
    """Return a server's answer to a four-letter command; empty if it is not listening."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as item:
            item.sendall(word.encode())
            return b"".join(iter(lambda: item.recv(4096), b"")).decode()
    except OSError:
        return ""


def test_member_of_an_ensemble_starts(zookeeper: Any, tmp_path: Path) -> None:
    """A single member elects itself: with separate logs and the written myid and epochs."""
    data, logs, cfg = tmp_path / "data", tmp_path / "logs", tmp_path / "zoo.cfg"
    client, peers, election = free_port(), free_port(), free_port()
    cfg.write_text(
        f"tickTime=500\ninitLimit=10\nsyncLimit=5\ndataDir={data}\ndataLogDir={logs}\nclientPort={client}\n"
        f"standaloneEnabled=false\nadmin.enableServer=false\nserver.4=127.0.0.1:{peers}:{election}\n"
    )
    lw.write(tree(30), cfg, "zookeeper.datadir", write_as="logs", currentEpoch=3, myid=4)
    lw.write([{"path": "/more", "data": b"1"}], cfg, "zookeeper.datadir", mode="append")
    rows = lw.read(cfg).num_rows
    command = [
        java.command("java"),
        "-Xmx256m",
        "-Dzookeeper.extendedTypesEnabled=true",
        "-cp",
        zookeeper.PROJECT.classpath(),
    ]
    server = subprocess.Popen([*command, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(cfg)])
    try:
        answer, until = "", time.monotonic() + 120
        while "Mode: leader" not in answer and time.monotonic() < until and server.poll() is None:
            time.sleep(0.2)
            answer = asked(client, "srvr")
        assert "Mode: leader" in answer
        assert "Zxid: 0x400000000" in answer
        assert f"Node count: {rows + 1}" in answer, "it counts the root twice"
    finally:
        server.kill()
        server.wait()
    assert (data / "version-2/currentEpoch").read_text() == "4"
    assert lw.read(cfg).num_rows == rows
