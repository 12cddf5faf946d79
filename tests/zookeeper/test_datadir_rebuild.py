"""Snapshots made anew from older ones and the logs, and the files with the epochs."""

from __future__ import annotations

from pathlib import Path

import pytest
from memory_directory import MemoryDirectory
from zookeeper_crafted import create, log, record
from zookeeper_mending import checked, cuts, notes, rebuilt, served
from zookeeper_startup import GOLDEN, data_directory, memory_of

import logwright as lw
from logwright.codec.fault import DamageError, UsageError

BASE = memory_of("dmg_base")


def without(*names: str) -> MemoryDirectory:
    return data_directory({name: data for name, data in BASE.files.items() if name not in names})


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ((), "snapshot.21 is made from snapshot.16 and the logs."),
        (("snapshot.16",), "snapshot.21 is made from snapshot.a and the logs."),
        (("snapshot.16", "snapshot.a"), "snapshot.21 is made from snapshot.0 and the logs."),
        (("snapshot.16", "snapshot.a", "snapshot.0"), "snapshot.21 is made from the logs."),
    ],
)
def test_a_snapshot_of_the_last_transaction(gone: tuple[str, ...], said: str) -> None:
    result, mending = rebuilt(without(*gone))
    assert notes(mending) == said
    assert set(result.files) == {*without(*gone).files, "snapshot.21"}
    alone = data_directory({"snapshot.21": result.files["snapshot.21"]})
    assert served(alone) == served(BASE)
    assert checked(result) == []


def test_the_same_from_wherever_it_is_made() -> None:
    """ACLs have the numbers that they had, or such as a server would give them."""
    made = {
        rebuilt(without(*gone))[0].files["snapshot.21"]
        for gone in ((), ("snapshot.16",), ("snapshot.16", "snapshot.a"))
    }
    assert len(made) == 1


def test_damaged_snapshots_make_room() -> None:
    result, mending = rebuilt(memory_of("dmg_snap_flip_data"))
    assert set(result.files) == {"snapshot.a", "log.b", "log.17", "snapshot.21"}
    assert cuts(mending) == []
    assert served(result) == served(BASE)


def test_a_damaged_snapshot_of_the_last_transaction_is_made_in_its_place() -> None:
    data = bytearray(BASE.files["snapshot.16"])
    data[900:910] = b"x" * 10
    some = data_directory({name: BASE.files[name] for name in ("snapshot.a", "log.b")})
    result, _ = rebuilt(data_directory({**some.files, "snapshot.16": bytes(data)}))
    assert set(result.files) == {"snapshot.a", "log.b", "snapshot.16"}
    assert served(data_directory({"snapshot.16": result.files["snapshot.16"]})) == served(
        data_directory({"snapshot.16": BASE.files["snapshot.16"]})
    )


def test_nothing_to_be_made() -> None:
    fresh = memory_of("fresh")
    result, mending = rebuilt(fresh)
    assert result.files == fresh.files
    assert "snapshot.0 is of the last transaction already" in notes(mending)


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("dmg_flip_body", "Adler-32 is"),
        ("dmg_pad_garbage_near", "Unreasonable length"),
        ("dmg_mid_missing", "0xb to 0x16 are in no log"),
        ("dmg_snap_none", "the logs don't begin with the first transaction"),
        ("toplevel_check", "Unsupported Txn with type=13"),
    ],
)
def test_sound_logs_are_needed(case: str, said: str) -> None:
    with pytest.raises(DamageError, match=said):
        rebuilt(memory_of(case))


def test_a_torn_end_is_no_damage() -> None:
    torn = memory_of("dmg_trunc_tail_midbody")
    result, _ = rebuilt(torn)
    assert result.files["log.17"] == torn.files["log.17"]
    assert "snapshot.1f" in result.files


def test_wrong_digests_are_told() -> None:
    _, mending = rebuilt(memory_of("dmg_digest_mismatch"))
    assert "The digest that is stored with 0x21 is not that of the tree" in notes(mending)


def test_epochs() -> None:
    quorum = memory_of("quorum_one")
    for name in ("currentEpoch", "acceptedEpoch"):
        lost = data_directory({one: data for one, data in quorum.files.items() if one != name})
        result, _ = rebuilt(lost, name)
        assert result.files == quorum.files
    neither = data_directory({one: data for one, data in quorum.files.items() if not one.endswith("Epoch")})
    result, _ = rebuilt(neither, "currentEpoch", "acceptedEpoch")
    assert result.files == quorum.files
    # A server on its own has none.
    result, _ = rebuilt(BASE, "currentEpoch", "acceptedEpoch")
    assert result.files == BASE.files


def test_through_the_api(tmp_path: Path) -> None:
    report = lw.rebuild(GOLDEN / "rolled/version-2", tmp_path / "version-2", what="snapshot")
    assert "snapshot.2e is made from snapshot.28 and the logs." in str(report)
    assert lw.verify(tmp_path / "version-2").ok
    assert lw.read(tmp_path / "version-2").equals(lw.read(GOLDEN / "rolled/version-2"))
    with pytest.raises(UsageError, match="'log' can't be rebuilt"):
        lw.rebuild(GOLDEN / "rolled/version-2", tmp_path / "more", what="log")


def test_an_epoch_that_begins() -> None:
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
