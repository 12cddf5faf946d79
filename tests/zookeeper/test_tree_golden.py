"""Trees replayed from golden directories: what the server's loading code had in memory, and what its clients saw."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from zookeeper_nodes import acl_uses, node_at
from zookeeper_replay import as_told, restored

from logwright.codec.zookeeper.state.tree_load import Mismatch
from logwright.codec.zookeeper.state.tree_read import COLUMNS
from logwright.corpora import cases
from logwright.corpora.cases import Case

CASES = cases.cases("zookeeper")


def _lines(case: Case, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (case.path / name).read_text().splitlines()]


RESTORED = [name for name, case in CASES.items() if _lines(case, "restore.jsonl")[0]["ok"]]
STARTED = [name for name, case in CASES.items() if _lines(case, "truth.jsonl")[0]["started"]]
REJECTED_FIRST = {"dmg_gz_flip": 2, "dmg_gz_trunc": 2}
"""A server that gives up on a compressed snapshot only when it has read its ACL table goes on counting from there."""


def test_golden_cases_exist() -> None:
    assert len(RESTORED) == 73
    assert len(STARTED) == 73


@pytest.mark.alike
@pytest.mark.parametrize("name", RESTORED)
def test_tree_equals_the_servers_memory(name: str) -> None:
    case = CASES[name]
    reported = _lines(case, "restore.jsonl")
    tree, _ = restored(case, extended_types=True)
    if name in REJECTED_FIRST:
        tree, _ = restored(case, acl_index=REJECTED_FIRST[name], extended_types=True)
    message = reported[0]
    assert f"0x{tree.zxid:x}" == message["last_processed_zxid"]
    # Nodes as the server counts them: the root is there twice.
    assert len(tree) + 1 == message["node_count"]
    if name != "digest_off":
        assert tree.digest == message["tree_digest"]
    assert {f"0x{number:x}": timeout for number, timeout in tree.session_timeouts.items()} == message[
        "sessions"
    ]
    cached = [row for row in reported if row["kind"] == "acl_cache"]
    assert acl_uses(tree) == {row["id"]: row["refs"] for row in cached}
    assert {row["acl_id"]: row["acl"] for row in tree.acls().to_pylist()} == {
        row["id"]: row["acl"] for row in cached
    }
    persisted = [row for row in reported if row["kind"] == "persisted"]
    if persisted:
        paths = [row["path"] for batch in tree.nodes(["path"]) for row in batch.to_pylist()]
        paths[0] = ""
        assert paths == sorted((row["path"] for row in persisted), key=str.encode)
    for item in persisted:
        node = node_at(tree, item["path"].encode())
        assert node is not None
        assert {"kind": "persisted", **as_told(node)} == item


@pytest.mark.alike
@pytest.mark.parametrize("name", STARTED)
def test_tree_equals_what_clients_saw(name: str) -> None:
    case = CASES[name]
    startup, *reported = _lines(case, "truth.jsonl")
    close = startup["jvm_props"].get("zookeeper.closeSessionTxn.enabled") != "false"
    tree, _ = restored(case, extended_types=True, close_session_txn=close)
    tree.after_load()
    rows = {
        row["path"]: row
        for batch in tree.nodes([column.name for column in COLUMNS])
        for row in batch.to_pylist()
    }
    for item in reported:
        row = rows.pop(item["path"])
        if item["kind"] == "node_error":
            assert row["acl"] is None
            continue
        assert _as_client(row) == {key: value for key, value in item.items() if key != "kind"}
    assert not rows


def _as_client(row: dict[str, Any]) -> dict[str, Any]:
    data: dict[str, Any] = {"data_hex": None if row["data"] is None else row["data"].hex()}
    if row["data"] is not None and len(row["data"]) > 1500:
        data = {"data_sha256": hashlib.sha256(row["data"]).hexdigest(), "data_len": len(row["data"])}
    stat = {
        "czxid": row["czxid"],
        "mzxid": row["mzxid"],
        "ctime": row["ctime_ms"],
        "mtime": row["mtime_ms"],
        "version": row["version"],
        "cversion": row["cversion"],
        "aversion": row["aversion"],
        "ephemeralOwner": f"0x{row['ephemeral_owner']:x}",
        "dataLength": row["data_length"],
        "numChildren": row["num_children"],
        "pzxid": row["pzxid"],
    }
    return {"path": row["path"], "acl": row["acl"], "stat": stat, **data}


@pytest.mark.alike
@pytest.mark.parametrize("name", RESTORED)
def test_tree_from_rows_is_the_same(name: str) -> None:
    by_frames, item = restored(CASES[name])
    by_rows, two = restored(CASES[name], by_rows=True)
    names = [column.name for column in COLUMNS]
    assert list(by_rows.nodes(names)) == list(by_frames.nodes(names))
    assert by_rows.digest == by_frames.digest
    assert by_rows.session_timeouts == by_frames.session_timeouts
    assert acl_uses(by_rows) == acl_uses(by_frames)
    assert two.mismatches == item.mismatches
    assert two.count == item.count


WRONG = {
    "dmg_digest_mismatch": 1,
    "dmg_fixed_swapped": 7,
    "dmg_mid_eor_silent": 11,
    "dmg_mid_missing_silent": 11,
    "syn_trailing_bytes": 2,
    "syn_create_v0": 0,
}
"""Where a digest disagrees: damage that checksums don't show, logs that are missing, records that were made up."""


@pytest.mark.parametrize("name", RESTORED)
def test_digests_equal_the_servers(name: str) -> None:
    tree, applied = restored(CASES[name])
    assert len(applied.mismatches) == WRONG.get(name, 0)
    assert not restored(CASES[name], check=False)[1].mismatches
    if applied.mismatches and name != "dmg_digest_mismatch":
        assert applied.mismatches[-1] == Mismatch(tree.zxid, applied.mismatches[-1].stored, tree.digest)
