"""Rebuild snapshots from older ones and the logs, and rebuild the epoch files."""

from __future__ import annotations

from pathlib import Path

import pytest
from memory_directory import MemoryDirectory
from zookeeper_crafted import create, log, record
from zookeeper_repairs import checked, cuts, notes, rebuilt, served
from zookeeper_startup import GOLDEN, data_directory, memory_of

import logwright as lw
from logwright.codec.fault import DamageError, UsageError

BASE = memory_of("dmg_base")


def without(*names: str) -> MemoryDirectory:
    return data_directory({name: data for name, data in BASE.files.items() if name not in names})


@pytest.mark.parametrize(
    ("gone", "message"),
    [
        ((), "snapshot.21 is built from snapshot.16 and the logs."),
        (("snapshot.16",), "snapshot.21 is built from snapshot.a and the logs."),
        (("snapshot.16", "snapshot.a"), "snapshot.21 is built from snapshot.0 and the logs."),
        (("snapshot.16", "snapshot.a", "snapshot.0"), "snapshot.21 is built from the logs."),
    ],
)
def test_snapshot_of_the_last_transaction_is_rebuilt(gone: tuple[str, ...], message: str) -> None:
    result, repair_plan = rebuilt(without(*gone))
    assert notes(repair_plan) == message
    assert set(result.files) == {*without(*gone).files, "snapshot.21"}
    alone = data_directory({"snapshot.21": result.files["snapshot.21"]})
    assert served(alone) == served(BASE)
    assert checked(result) == []


def test_rebuilt_snapshot_is_the_same_from_any_older_snapshot() -> None:
    """ACLs keep their numbers, or get those a server would assign."""
    result = {
        rebuilt(without(*gone))[0].files["snapshot.21"]
        for gone in ((), ("snapshot.16",), ("snapshot.16", "snapshot.a"))
    }
    assert len(result) == 1


def test_damaged_snapshots_are_replaced() -> None:
    result, repair_plan = rebuilt(memory_of("dmg_snap_flip_data"))
    assert set(result.files) == {"snapshot.a", "log.b", "log.17", "snapshot.21"}
    assert cuts(repair_plan) == []
    assert served(result) == served(BASE)


def test_damaged_last_snapshot_is_rebuilt_under_its_name() -> None:
    data = bytearray(BASE.files["snapshot.16"])
    data[900:910] = b"x" * 10
    subset = data_directory({name: BASE.files[name] for name in ("snapshot.a", "log.b")})
    result, _ = rebuilt(data_directory({**subset.files, "snapshot.16": bytes(data)}))
    assert set(result.files) == {"snapshot.a", "log.b", "snapshot.16"}
    assert served(data_directory({"snapshot.16": result.files["snapshot.16"]})) == served(
        data_directory({"snapshot.16": BASE.files["snapshot.16"]})
    )


def test_complete_directory_needs_no_rebuild() -> None:
    fresh = memory_of("fresh")
    result, repair_plan = rebuilt(fresh)
    assert result.files == fresh.files
    assert "snapshot.0 already includes the last transaction" in notes(repair_plan)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("dmg_flip_body", "Adler-32: stored"),
        ("dmg_pad_garbage_near", "Unreasonable length"),
        ("dmg_mid_missing", "0xb to 0x16 are in no log"),
        ("dmg_snap_none", "the logs do not begin with the first transaction"),
        ("toplevel_check", "Unsupported Txn with type=13"),
    ],
)
def test_sound_logs_are_needed(case: str, message: str) -> None:
    with pytest.raises(DamageError, match=message):
        rebuilt(memory_of(case))


def test_torn_tail_does_not_prevent_a_rebuild() -> None:
    torn = memory_of("dmg_trunc_tail_midbody")
    result, _ = rebuilt(torn)
    assert result.files["log.17"] == torn.files["log.17"]
    assert "snapshot.1f" in result.files


def test_wrong_digests_prevent_a_rebuild() -> None:
    _, repair_plan = rebuilt(memory_of("dmg_digest_mismatch"))
    assert "The digest stored with 0x21 is not that of the tree" in notes(repair_plan)


def test_epoch_files_are_rebuilt() -> None:
    quorum = memory_of("quorum_one")
    for name in ("currentEpoch", "acceptedEpoch"):
        lost = data_directory({key: data for key, data in quorum.files.items() if key != name})
        result, _ = rebuilt(lost, name)
        assert result.files == quorum.files
    neither = data_directory(
        {name: data for name, data in quorum.files.items() if not name.endswith("Epoch")}
    )
    result, _ = rebuilt(neither, "currentEpoch", "acceptedEpoch")
    assert result.files == quorum.files
    # A server on its own has none.
    result, _ = rebuilt(BASE, "currentEpoch", "acceptedEpoch")
    assert result.files == BASE.files


def test_rebuild_through_the_api(tmp_path: Path) -> None:
    report = lw.rebuild(GOLDEN / "rolled/version-2", tmp_path / "version-2", what="snapshot")
    assert "snapshot.2e is built from snapshot.28 and the logs." in str(report)
    assert lw.verify(tmp_path / "version-2").ok
    assert lw.read(tmp_path / "version-2").equals(lw.read(GOLDEN / "rolled/version-2"))
    with pytest.raises(UsageError, match="'log' cannot be rebuilt"):
        lw.rebuild(GOLDEN / "rolled/version-2", tmp_path / "more", what="log")


def test_snapshot_at_the_start_of_an_epoch() -> None:
    first = memory_of("fresh").files["snapshot.0"]
    logs = {"log.100000001": log(record(1 << 32 | 1, 1, create(b"/a")))}
    result, _ = rebuilt(data_directory({"snapshot.0": first, **logs}))
    assert set(result.files) == {
        "snapshot.0",
        "log.100000001",
        "snapshot.100000001",
        "currentEpoch",
        "acceptedEpoch",
    }
    assert result.files["currentEpoch"] == b"1"
