"""Damage by field in ZooKeeper's files: faults found by reading and checking, and repairs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from zookeeper_startup import GOLDEN

import logwright as lw
from logwright.codec.fault import Severity, UsageError

pytestmark = pytest.mark.filterwarnings("ignore::logwright.codec.fault.DamageWarning")

BASE = GOLDEN / "dmg_base/version-2"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    shutil.copytree(BASE, tmp_path / "version-2")
    return tmp_path / "version-2"


def changed(path: Path, *operations: str) -> Path:
    out = path.parent / "out"
    shutil.rmtree(out, ignore_errors=True)
    return Path(lw.damage(path, out, op=list(operations)).path)


def rows(path: Path) -> list[dict[str, Any]]:
    return lw.read(path, mode="DROPMALFORMED").to_pylist()


def faults(path: Path) -> list[str]:
    return [fault.detail for _, fault in lw.verify(path).faults if fault.severity is not Severity.INFO]


# Logs


@pytest.mark.parametrize(
    ("field", "column", "value"),
    [
        ("payload.body.path,text=/other", "path", "/other"),
        ("payload.body.data,text=much longer than it was before", "data", b"much longer than it was before"),
        ("payload.body.data,null=true", "data", None),
        ("payload.body.parent_cversion,value=99", "parent_cversion", 99),
        ("payload.cxid,value=77", "cxid", 77),
        ("cxid,value=78", "cxid", 78),
        ("payload.body.acl[0].perms,value=1", "acl", [{"perms": 1, "scheme": "world", "id": "anyone"}]),
    ],
)
def test_field_of_a_transaction_is_changed(directory: Path, field: str, column: str, value: Any) -> None:
    log = directory / "log.17"
    before = rows(log)
    path = changed(log, f"set:frame=3,field={field},reseal")
    assert rows(path) == [*before[:2], {**before[2], column: value}, *before[3:]]
    # Only the tree's digests know.
    assert faults(path) == []
    path = changed(log, f"set:frame=3,field={field}")
    assert faults(path)
    assert [row["zxid"] for row in rows(path)][:2] == [0x17, 0x18]


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ("set:frame=3,field=eor,value=0", "the end mark of the record is 0x00"),
        ("set:frame=3,field=checksum,add=1", "Adler-32: stored 0x612c2166, computed 0x612c2165"),
        (
            "set:frame=3,field=payload.length,value=5",
            "the record's length is 5, but its checksum matches 129 bytes",
        ),
        ("set:frame=0,field=magic,value=5", "invalid magic number 5 != 1514884167"),
        ("set:frame=3,field=payload.type,value=99,reseal", "Unsupported Txn with type=99"),
        (
            "set:frame=5,field=payload.zxid,value=7,reseal",
            "a zxid is lower than the one before: 0x7 follows 0x1a",
        ),
    ],
)
def test_impossible_field_values_are_reported(directory: Path, operation: str, message: str) -> None:
    actual = faults(changed(directory / "log.17", operation))
    assert any(message in item for item in actual), actual


def test_unknown_field_is_an_error(directory: Path) -> None:
    with pytest.raises(UsageError, match="has no field 'czxid'"):
        changed(directory / "log.17", "set:frame=3,field=czxid,value=1")


@pytest.mark.parametrize(
    "field",
    [
        "payload.body.path,text=/app/other",
        "payload.body.data,text=other",
        "payload.body.parent_cversion,value=99",
        "payload.time,add=1",
    ],
)
def test_resealed_change_is_detected_by_digests(directory: Path, field: str) -> None:
    out = changed(directory, f"set:file=log.17,frame=3,field={field},reseal")
    report = lw.verify(out)
    assert [
        fault.detail.partition(":")[0] for _, fault in report.faults if fault.severity is Severity.ERROR
    ] == ["the digest of the tree after 0x19"]
    repaired = lw.repair(out, directory.parent / "repaired", **{"digest.mismatch": "cut"})
    assert "The tree is that after transaction 0x18" in str(repaired)


def test_change_outside_of_digests_is_not_detected(directory: Path) -> None:
    out = changed(directory, "set:file=log.17,frame=3,field=payload.body.acl[0].perms,value=1,reseal")
    assert lw.verify(out).ok


# Snapshots


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ("set:frame=7,field=path,text=/zzz", "all rows are suspect"),
        ("set:frame=7,field=data,text=longer than before", "all rows are suspect"),
        ("set:frame=7,field=stat.czxid,value=99", "all rows are suspect"),
        ("set:frame=0,field=version,value=3", "all rows are suspect"),
        ("set:frame=18,field=checksum,value=1", "the seal itself is damaged, because the next one is right"),
        ("set:frame=19,field=digest,value=1", "the seal before it is right, and so are the rows"),
        ("set:frame=7,field=acl,value=4242", "ACL 4242 of the node is not in the ACL table"),
    ],
)
def test_fields_of_a_snapshot_are_changed(directory: Path, operation: str, message: str) -> None:
    path = changed(directory / "snapshot.16", operation)
    assert any(message in fault for fault in faults(path)), faults(path)


def test_node_in_a_directorys_snapshot_is_changed(directory: Path) -> None:
    out = changed(directory, "set:file=snapshot.16,frame=7,field=stat.version,value=5")
    assert not lw.verify(out).ok
    before = lw.read(BASE)
    lw.repair(out, directory.parent / "repaired/version-2")
    assert lw.read(directory.parent / "repaired").equals(before)


def test_field_name_needs_no_structure_prefix(directory: Path) -> None:
    message, short = (
        changed(directory / "snapshot.16", f"set:frame=8,field={field},value=7,reseal").read_bytes()
        for field in ("stat.czxid", "czxid")
    )
    assert message == short != (BASE / "snapshot.16").read_bytes()
