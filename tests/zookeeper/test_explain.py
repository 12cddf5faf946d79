"""Explanations of sound and damaged logs and snapshots cover each byte once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from explanations import all_nodes, check_covers_file, nodes_named

import logwright as lw
from logwright.codec.explain import Node
from logwright.codec.zookeeper.formats.txnlog.layout import PAYLOAD, RECORD
from logwright.corpora.cases import cases

GOLDEN = {name: case.path for name, case in cases("zookeeper").items()}

pytestmark = pytest.mark.filterwarnings("ignore::logwright.DamageWarning")


def golden(case: str, name: str) -> Path:
    return GOLDEN[case] / "version-2" / name


def explained(path: Path, **request: Any) -> lw.Explanation:
    explanation = lw.explain(path, **request)
    check_covers_file(explanation, path.read_bytes())
    return explanation


def rows(actual: lw.Explanation) -> list[Node]:
    return [node for node in all_nodes(actual) if node.row is not None]


def changed(path: Path, to: Path, at: int, data: bytes) -> Path:
    complete = bytearray(path.read_bytes())
    complete[at : at + len(data)] = data
    to.write_bytes(complete)
    return to


def test_every_transaction_of_a_log_is_explained_with_its_checksum() -> None:
    path = golden("multi", "log.1")
    actual = explained(path, items=100_000)
    assert actual.pieces[0].nodes[0].name == "FileHeader"
    assert [row.name for row in rows(actual)] == ["TxnRecord"] * lw.read(path).num_rows
    checks = [item.check for item in nodes_named(actual, "checksum")]
    assert all(check is not None and check.right for check in checks)
    # Neither the length nor the mark behind it are covered.
    record, check = rows(actual)[0], checks[0]
    assert check is not None
    assert (check.start, check.end) == (record.start + 12, record.end - 1)
    assert nodes_named(actual, "zxid")[0].meaning == "0x1"
    assert nodes_named(actual, "time")[0].meaning.startswith("20")
    assert actual.pieces[-1].nodes[-1].kind == "padding"


def test_parts_of_a_multi_are_explained() -> None:
    path = golden("multi", "log.1")
    single, parts = explained(path, items=100_000), lw.explain(path, multi="exploded", items=100_000)
    assert len(rows(single)) < len(rows(parts)) == lw.read(path, multi="exploded").num_rows
    subs = [row for row in rows(parts) if row.type == "Txn"]
    assert [sub.row for sub in subs[:3]] == [0, 1, 2]
    assert {"CreateTxn", "SetDataTxn", "DeleteTxn", "CheckVersionTxn", "ErrorTxn"} <= {
        node.type for node in all_nodes(single)
    }


def test_forms_of_a_transaction_are_detected_from_its_bytes() -> None:
    assert "CreateTxnV0" in {node.type for node in all_nodes(explained(golden("syn_create_v0", "log.1")))}
    without = explained(golden("closesession_nobody", "log.1"))
    names = [{child.name for child in item.children} for item in all_nodes(without)]
    assert {"body" in fields for fields in names if "zxid" in fields} == {True, False}
    trailing = explained(golden("syn_trailing_bytes", "log.1"))
    assert {len(item.value) for item in nodes_named(trailing, "rest")} >= {5}


@pytest.mark.parametrize(
    "case", ["dmg_len_huge", "dmg_len_minus1", "dmg_len_plus", "dmg_flip_eor", "dmg_flip_body"]
)
def test_damaged_record_is_explained(case: str) -> None:
    actual = explained(golden(case, "log.17"))
    assert actual.problems


def test_truncated_record_is_explained(tmp_path: Path) -> None:
    short = RECORD.pack(
        {
            "payload": {
                "client_id": 1,
                "cxid": 0,
                "zxid": 9,
                "time": 0,
                "type": -10,
                "body": {"time_out": 5},
                "digest": None,
            }
        }
    )
    (tmp_path / "log.9").write_bytes(golden("multi", "log.1").read_bytes()[:16] + short[:-3])
    torn = explained(tmp_path / "log.9")
    assert "TxnRecord" in {node.name for node in all_nodes(torn)}
    assert PAYLOAD.name not in {node.name for node in all_nodes(torn)}, "it ends before its length says"


def test_every_part_of_a_snapshot_is_explained_with_its_checksums() -> None:
    path = (
        golden("acls", "snapshot.18")
        if golden("acls", "snapshot.18").exists()
        else next((GOLDEN["acls"] / "version-2").glob("snapshot.*"))
    )
    actual = explained(path, items=100_000)
    names = [piece.nodes[0].name for piece in actual.pieces]
    assert names[:3] == ["FileHeader", "sessions", "acls"]
    assert names[-3:] == ["end", "digest", "last_processed"]
    assert names[3:-3] == ["node"] * lw.read(path).num_rows
    checks = [item.check for item in nodes_named(actual, "checksum")]
    assert [check is not None and (check.start, check.right) for check in checks] == [(0, True)] * 3


def test_wrong_snapshot_checksums_are_explained(tmp_path: Path) -> None:
    path = golden("fresh", "snapshot.0")
    actual = explained(changed(path, tmp_path / "snapshot.0", 0x150, b"\1"))
    wrong = [item for item in nodes_named(actual, "checksum") if item.problem]
    assert [item.problem.split(". ")[0].split()[-1] for item in wrong] == [
        f"{item.check.computed:#010x}" for item in wrong if item.check
    ]
    assert [item.problem.split(". ")[1] for item in wrong] == ["Flipping bit 0 of byte 336 would fix it"] * 3
    assert len(wrong) == 3, "each is of all bytes before it"


def test_damaged_snapshot_is_explained(tmp_path: Path) -> None:
    path = golden("fresh", "snapshot.0")
    actual = explained(changed(path, tmp_path / "snapshot.0", 0, b"XXXX"))
    assert actual.pieces[0].nodes[0].children[0].problem == "" or actual.problems
    actual = explained(changed(path, tmp_path / "snapshot.1", 0x87, b"\xff\xff\xff\x00"))
    assert "neither a section nor a node" in [node.meaning for node in all_nodes(actual)]
    (tmp_path / "snapshot.2").write_bytes(path.read_bytes()[:7])
    explained(tmp_path / "snapshot.2")


@pytest.mark.parametrize("case", ["snap_gz", "snap_snappy"])
def test_compressed_snapshot_is_explained(case: str) -> None:
    path = next((GOLDEN[case] / "version-2").glob("snapshot.42.*"))
    actual = explained(path, items=100_000)
    assert len(rows(actual)) == lw.read(path).num_rows
    (node,) = actual.pieces[0].nodes
    assert node.space is not None
    assert node.space.data.startswith(b"ZKSN")
    assert [item.check.right for item in nodes_named(actual, "checksum") if item.check] == [True] * 3
    assert actual.problems == 0


@pytest.mark.parametrize("case", ["dmg_gz_flip", "dmg_gz_magic", "dmg_gz_trunc", "dmg_snappy_trunc"])
def test_damaged_compressed_snapshot_is_explained(case: str) -> None:
    path = next((GOLDEN[case] / "version-2").glob("snapshot.42.*"))
    assert explained(path).problems


def test_epoch_and_myid_files_are_explained() -> None:
    home = GOLDEN["quorum_one"]
    for path in (home / "myid", home / "version-2" / "currentEpoch", home / "version-2" / "acceptedEpoch"):
        actual = explained(path)
        assert [node.value for node in all_nodes(actual) if not node.children] == [int(path.read_text())]
