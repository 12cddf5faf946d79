"""What lies in logs and snapshots, good ones and damaged ones: all of their bytes, each said once."""

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


def explained(path: Path, **wish: Any) -> lw.Explanation:
    found = lw.explain(path, **wish)
    check_covers_file(found, path.read_bytes())
    return found


def rows(found: lw.Explanation) -> list[Node]:
    return [one for one in all_nodes(found) if one.row is not None]


def changed(path: Path, to: Path, at: int, data: bytes) -> Path:
    whole = bytearray(path.read_bytes())
    whole[at : at + len(data)] = data
    to.write_bytes(whole)
    return to


def test_a_log() -> None:
    path = golden("multi", "log.1")
    found = explained(path, items=100_000)
    assert found.pieces[0].nodes[0].name == "FileHeader"
    assert [one.name for one in rows(found)] == ["TxnRecord"] * lw.read(path).num_rows
    checks = [one.check for one in nodes_named(found, "checksum")]
    assert all(check is not None and check.right for check in checks)
    # Neither the length nor the mark behind it are covered.
    record, check = rows(found)[0], checks[0]
    assert check is not None
    assert (check.start, check.end) == (record.start + 12, record.end - 1)
    assert nodes_named(found, "zxid")[0].meaning == "0x1"
    assert nodes_named(found, "time")[0].meaning.startswith("20")
    assert found.pieces[-1].nodes[-1].kind == "padding"


def test_what_is_in_a_multi() -> None:
    path = golden("multi", "log.1")
    single, parts = explained(path, items=100_000), lw.explain(path, multi="exploded", items=100_000)
    assert len(rows(single)) < len(rows(parts)) == lw.read(path, multi="exploded").num_rows
    subs = [one for one in rows(parts) if one.type == "Txn"]
    assert [one.row for one in subs[:3]] == [0, 1, 2]
    assert {"CreateTxn", "SetDataTxn", "DeleteTxn", "CheckVersionTxn", "ErrorTxn"} <= {
        one.type for one in all_nodes(single)
    }


def test_forms_that_the_bytes_tell() -> None:
    assert "CreateTxnV0" in {one.type for one in all_nodes(explained(golden("syn_create_v0", "log.1")))}
    without = explained(golden("closesession_nobody", "log.1"))
    bodies = [one for one in nodes_named(without, "body") if one.end == one.start]
    assert bodies
    assert all(one.type == "nothing" for one in bodies)
    trailing = explained(golden("syn_trailing_bytes", "log.1"))
    assert {len(one.value) for one in nodes_named(trailing, "rest")} >= {5}


@pytest.mark.parametrize(
    "case", ["dmg_len_huge", "dmg_len_minus1", "dmg_len_plus", "dmg_flip_eor", "dmg_flip_body"]
)
def test_a_damaged_record(case: str) -> None:
    found = explained(golden(case, "log.17"))
    assert found.problems


def test_a_record_that_is_cut_off(tmp_path: Path) -> None:
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
    assert "TxnRecord" in {one.name for one in all_nodes(torn)}
    assert PAYLOAD.name not in {one.name for one in all_nodes(torn)}, "it ends before its length says"


def test_a_snapshot() -> None:
    path = (
        golden("acls", "snapshot.18")
        if golden("acls", "snapshot.18").exists()
        else next((GOLDEN["acls"] / "version-2").glob("snapshot.*"))
    )
    found = explained(path, items=100_000)
    names = [piece.nodes[0].name for piece in found.pieces]
    assert names[:3] == ["FileHeader", "sessions", "acls"]
    assert names[-3:] == ["end", "digest", "last_processed"]
    assert names[3:-3] == ["node"] * lw.read(path).num_rows
    checks = [one.check for one in nodes_named(found, "checksum")]
    assert [check is not None and (check.start, check.right) for check in checks] == [(0, True)] * 3


def test_seals_that_are_wrong(tmp_path: Path) -> None:
    path = golden("fresh", "snapshot.0")
    found = explained(changed(path, tmp_path / "snapshot.0", 0x150, b"\1"))
    wrong = [one for one in nodes_named(found, "checksum") if one.problem]
    assert [one.problem.split()[-1] for one in wrong] == [
        f"{one.check.computed:#010x}" for one in wrong if one.check
    ]
    assert len(wrong) == 3, "each is of all bytes before it"


def test_what_is_damaged_in_a_snapshot(tmp_path: Path) -> None:
    path = golden("fresh", "snapshot.0")
    found = explained(changed(path, tmp_path / "snapshot.0", 0, b"XXXX"))
    assert found.pieces[0].nodes[0].children[0].problem == "" or found.problems
    found = explained(changed(path, tmp_path / "snapshot.1", 0x87, b"\xff\xff\xff\x00"))
    assert "neither a section nor a node" in [one.meaning for one in all_nodes(found)]
    (tmp_path / "snapshot.2").write_bytes(path.read_bytes()[:7])
    explained(tmp_path / "snapshot.2")


@pytest.mark.parametrize("case", ["snap_gz", "snap_snappy"])
def test_a_compressed_snapshot(case: str) -> None:
    path = next((GOLDEN[case] / "version-2").glob("snapshot.42.*"))
    found = explained(path, items=100_000)
    assert len(rows(found)) == lw.read(path).num_rows
    (node,) = found.pieces[0].nodes
    assert node.space is not None
    assert node.space.data.startswith(b"ZKSN")
    assert [one.check.right for one in nodes_named(found, "checksum") if one.check] == [True] * 3
    assert found.problems == 0


@pytest.mark.parametrize("case", ["dmg_gz_flip", "dmg_gz_magic", "dmg_gz_trunc", "dmg_snappy_trunc"])
def test_a_compressed_one_that_is_damaged(case: str) -> None:
    path = next((GOLDEN[case] / "version-2").glob("snapshot.42.*"))
    assert explained(path).problems


def test_numbers_in_files_of_their_own() -> None:
    home = GOLDEN["quorum_one"]
    for path in (home / "myid", home / "version-2" / "currentEpoch", home / "version-2" / "acceptedEpoch"):
        found = explained(path)
        assert [one.value for one in all_nodes(found) if not one.children] == [int(path.read_text())]
