"""Faults only a check of the complete data directory finds: missing transactions and wrong trees."""

from __future__ import annotations

import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from zookeeper_crafted import OPEN, ROOT, create, directory, i4, i8, log, record
from zookeeper_crafted import snapshot as crafted
from zookeeper_datadir import CASES
from zookeeper_repairs import checked, details, repaired, served, truth
from zookeeper_startup import GOLDEN, data_directory, memory_of, start

import logwright as lw
from logwright.codec.fault import Kind, Severity
from logwright.codec.option import Options
from logwright.codec.window import Window
from logwright.codec.zookeeper.formats.snapshot import codec as snapshot
from logwright.codec.zookeeper.formats.snapshot.frames import SnapshotContext
from logwright.codec.zookeeper.store.datadir import LAYOUT
from logwright.readers.listing import Directory

HEALTHY = [
    case
    for case in CASES
    if not case.startswith(("dmg_", "syn_", "toplevel", "v3414_log")) and case != "split_dirs"
]
WHOLE = {
    "syn_acl_dangling", "syn_create_v0", "syn_delete_missing", "syn_dup_node", "syn_epoch_jump", "syn_gap_filled",
    "syn_seed_snapshot", "syn_trailing_bytes", "syn_zxid_repeat", "dmg_base", "dmg_chopped", "dmg_first_missing_nosnap",
    "dmg_log_hdr_fields", "dmg_pad_garbage_far", "dmg_snap_tmp", "dmg_snap_trunc_seal1", "dmg_snap_trunc_seal2",
    "dmg_torn_zero_tail", "dmg_trunc_tail_0", "dmg_trunc_tail_16", "dmg_trunc_tail_boundary", "dmg_trunc_tail_midbody",
    "dmg_trunc_tail_midcrc", "dmg_trunc_tail_midlen", "dmg_trunc_tail_noeor",
}  # fmt: skip
"""Nothing is lost, or only what was being written."""


@pytest.mark.parametrize("case", HEALTHY)
def test_healthy_directories_have_no_faults(case: str) -> None:
    report = lw.verify(GOLDEN / case / "version-2")
    assert report.ok
    assert not [fault for _, fault in report.faults if fault.severity is Severity.WARNING]


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith(("dmg_", "syn_"))])
def test_every_damaged_directory_has_a_fault(case: str) -> None:
    assert (not checked(memory_of(case))) == (case in WHOLE)


# Missing transactions

MISSING = "log.17: 0xb to 0x16 are in no log and no snapshot"


@pytest.mark.parametrize("case", ["dmg_mid_empty", "dmg_mid_missing", "dmg_mid_missing_silent"])
@pytest.mark.parametrize("deep", [False, True])
def test_missing_transactions_are_an_error(case: str, deep: bool) -> None:
    assert details(memory_of(case), deep=deep) == [MISSING]
    ((_, fault),) = checked(memory_of(case), deep=deep)
    assert (fault.kind, fault.rows_lost, fault.lost) == (
        Kind.LINK,
        12,
        {"first_zxid": 0xB, "last_zxid": 0x16},
    )


def test_transactions_only_covered_by_a_snapshot_are_a_warning() -> None:
    base = memory_of("dmg_base")
    del base.files["log.b"]
    assert details(base) == []
    assert details(base, Severity.WARNING) == [
        "log.17: 0xb to 0x16 are in no log; a later snapshot includes their effect"
    ]


def test_gap_within_a_log_is_reported_if_it_loses_transactions() -> None:
    missing = directory(record(1, 1, create(b"/a")), record(4, 1, create(b"/b")))
    assert details(missing) == ["log.1: 0x2 to 0x3 are in no log and no snapshot"]
    # An epoch begins with 1, and nobody knows how far the one before went.
    epochs = directory(record(1, 1, create(b"/a")), record(1 << 32 | 1, 1, create(b"/b")))
    assert details(epochs) == []
    late = directory(record(1, 1, create(b"/a")), record(1 << 32 | 3, 1, create(b"/b")))
    assert details(late) == ["log.1: 0x100000001 to 0x100000002 are in no log and no snapshot"]


def test_lost_transactions_of_a_damaged_range_are_counted() -> None:
    """A wrong end mark followed by an unreadable record."""
    records = [record(zxid, 1, create(b"/%d" % zxid)) for zxid in range(1, 7)]
    data = bytearray(log(*records))
    data[16 + 2 * len(records[0]) - 1] ^= 1
    data[16 + 2 * len(records[0]) + 40] ^= 3
    ((_, fault),) = checked(data_directory({**directory().files, "log.1": bytes(data)}))
    assert (fault.rows_lost, fault.lost) == (2, {"first_zxid": 2, "last_zxid": 3})


def test_transactions_repeated_in_a_later_log_are_not_lost() -> None:
    records = [record(zxid, 1, create(b"/%d" % zxid)) for zxid in range(1, 7)]
    first = bytearray(log(*records))
    first[16 + 2 * len(records[0]) - 1] ^= 1
    second = log(*(record(zxid, 1, create(b"/again%d" % zxid)) for zxid in range(2, 9)))
    both = data_directory({**directory().files, "log.1": bytes(first), "log.2": second})
    (warned,) = [
        detail for detail in details(both, Severity.WARNING) if "assigned these zxids again" in detail
    ]
    assert warned.startswith(
        "log.1: log.2 begins with 0x2: the server was started without the transactions 0x3 to 0x6"
    )
    result, _ = repaired(both)
    assert result.files["log.1"] == log(records[0])
    assert result.files["log.2"] == second


# Snapshots


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            "dmg_snap_none",
            "there is no snapshot, and the logs begin with 0xb: all earlier transactions are missing",
        ),
        (
            "dmg_snap_all_flip",
            "all snapshots are damaged, and the logs begin with 0xb: all earlier transactions are missing",
        ),
        ("dmg_snap_all_trunc_nologs", "all snapshots are damaged, and there are no transactions"),
        (
            "v3414_log_only",
            "there is no snapshot; the logs begin with the first transaction, so the tree can be rebuilt from them alone",
        ),
    ],
)
def test_no_sound_snapshot_is_an_error(case: str, message: str) -> None:
    assert f": {message}" in details(memory_of(case), deep=False)


def test_fuzzy_snapshot_without_its_log_is_an_error() -> None:
    fuzzy = memory_of("fuzzy")
    assert details(fuzzy) == []
    lost = data_directory({"snapshot.101": fuzzy.files["snapshot.101"]})
    (message,) = details(lost)
    assert message == (
        "snapshot.101: it was written while transactions up to 0x10d were made, but the logs end at 0x101: the tree "
        "may contain some of the others"
    )


def test_acls_missing_from_a_fuzzy_snapshot_come_from_the_log() -> None:
    """Their ACLs were added after the table was written: the logs have them; otherwise another fault is reported."""
    table = i4(1) + i8(1) + OPEN
    nodes = [ROOT, (b"/a", 1, 0), (b"/b", 2, 0), (b"/c", 2, 0), (b"/d", 3, 0)]
    data = crafted(*nodes, acls=table, czxids={b"/a": 2, b"/b": 4, b"/c": 5, b"/d": 3})
    scan = snapshot.CODEC.scan(Window(np.frombuffer(data, np.uint8), 0, len(data)), 0, _context("snapshot.3"))
    assert [(fault.severity, fault.detail) for fault in scan.faults] == [
        (Severity.WARNING, "ACL 3 of the node is not in the ACL table"),
        (
            Severity.INFO,
            "ACL 2 of the node is not in the ACL table (used by 1 later node too): the node was made or changed while the snapshot "
            "was written, after the zxid in its name",
        ),
    ]
    logs = {f"log.{zxid}": log(record(zxid, 1, create(b"/" + name))) for zxid, name in ((4, b"b"), (5, b"c"))}
    covered = data_directory({"snapshot.3": data, **logs})
    assert details(covered) == []
    assert not [warning for warning in start(covered).verdict.warnings if "table does not have: 2" in warning]
    (message,) = details(data_directory({"snapshot.3": data, "log.4": logs["log.4"]}))
    assert message.startswith(
        "snapshot.3: it was written while transactions up to 0x5 were made, but the logs end at 0x4"
    )


def test_nodes_without_parents_are_an_error() -> None:
    assert details(memory_of("syn_orphan")) == ["snapshot.16: /`pp/d0-0 has no parent"]
    assert details(memory_of("syn_orphan"), deep=False) == []


def test_many_orphans_are_summarised() -> None:
    rows = [{"path": f"/a/n{number}"} for number in range(50)]
    written = b"".join(map(bytes, snapshot.CODEC.encode(pa.Table.from_pylist(rows), None, None, _context())))
    # The parent has another name then.
    data = bytearray(written.replace(b"\0\0\0\2/a", b"\0\0\0\2/b"))
    data = data[:-_ENDING]
    data += b"\0\0\0\1/"
    data += zlib.adler32(data).to_bytes(8, "big") + b"\0\0\0\1/"
    message = details(data_directory({"snapshot.1": bytes(data)}))
    assert len(message) == 20
    assert message[-1].endswith(" has no parent (and 30 more nodes without one)")


_ENDING = 18 + 33 + 21
"""Bytes of an ending with all sections."""


def _context(name: str = "snapshot.1") -> SnapshotContext:
    return snapshot.CODEC.context(name, Options(snapshot.CODEC.options))


def test_digest_mismatch_is_an_error() -> None:
    (message,) = details(memory_of("syn_bad_ephemeral_owner"))
    assert message == "snapshot.16: the digest of its tree differs from the stored one"
    (message,) = details(memory_of("syn_bad_ephemeral_owner"), Severity.WARNING)
    assert message == "snapshot.16: the owner of /app/d1-4, 0xff00070000000001, is not valid"


# Digests of transactions


def test_first_digest_mismatch_is_reported() -> None:
    (message,) = details(memory_of("dmg_fixed_swapped"))
    assert message.startswith(
        "log.17: the digest of the tree after 0x1b: stored 0x7a83d5de1, computed 0x7c61c987b"
    )
    assert details(memory_of("dmg_fixed_swapped"), deep=False) == []


def test_digests_that_never_matched_are_a_warning() -> None:
    assert details(memory_of("syn_trailing_bytes")) == []
    (message,) = details(memory_of("syn_trailing_bytes"), Severity.WARNING)
    assert message == "log.1: the digests of transactions from 0x1 on are not those of the tree of snapshot.0"


def test_digests_after_lost_transactions_are_not_compared() -> None:
    """Lost transactions make all later digests wrong; this is reported once, as the loss."""
    holed = memory_of("dmg_base")
    del holed.files["snapshot.16"], holed.files["snapshot.a"]
    data = bytearray(holed.files["log.b"])
    data[300:310] = bytes(10)
    holed.files["log.b"] = bytes(data)
    assert [fault.kind for _, fault in checked(holed)] == [Kind.CHECKSUM]


# Epochs


@pytest.mark.parametrize(
    ("current", "accepted", "message"),
    [
        (b"2", b"2", []),
        (b"3", b"4", []),
        (
            b"1",
            b"2",
            ["currentEpoch: the current epoch is 1, but the last transaction, 0x200000003, has epoch 2"],
        ),
        (b"3", b"2", ["acceptedEpoch: the accepted epoch is 2, below the current epoch, 3"]),
    ],
)
def test_epoch_files_must_agree_with_the_zxids(
    current: bytes, accepted: bytes | None, message: list[str]
) -> None:
    quorum = memory_of("quorum_one")
    quorum.files["currentEpoch"] = current
    del quorum.files["acceptedEpoch"]
    if accepted is not None:
        quorum.files["acceptedEpoch"] = accepted
    assert details(quorum) == message
    result, repair_plan = repaired(quorum)
    assert details(result) == []
    assert (result.files == quorum.files) == (not message)
    assert ("acceptedEpoch is missing; it is set to 2" in str(repair_plan.summary().warnings)) == (
        accepted is None
    )
    assert "start the others on empty directories" in str(repair_plan.summary().before_you_start)


def test_unreadable_epoch_is_an_error() -> None:
    quorum = memory_of("quorum_one")
    quorum.files["currentEpoch"] = b"x"
    result, repair_plan = repaired(quorum)
    assert result.files["currentEpoch"] == b"2"
    assert "currentEpoch cannot be read; it is set to 2" in str(repair_plan.summary().warnings)


# Printed reports


def test_fault_messages_and_advice() -> None:
    assert LAYOUT.nouns == ("record", "file")
    assert any("Copy the directory" in item for item in LAYOUT.advice)
    assert not LAYOUT.discards("version-2")


def test_verify_reports_missing_transactions(tmp_path: Path) -> None:
    (tmp_path / "version-2").mkdir()
    for name, data in memory_of("dmg_mid_missing").files.items():
        (tmp_path / "version-2" / name).write_bytes(data)
    report = lw.verify(tmp_path)
    assert not report.ok
    message = " ".join(str(report).split())
    assert "0xb to 0x16 are in no log and no snapshot" in message
    assert "Copy the directory before a server is started on it" in message
    assert not lw.verify(tmp_path, jobs=2).ok
    assert not lw.verify(tmp_path, depth="checksums").ok


def test_snapshot_named_after_a_later_zxid_is_an_error() -> None:
    """Its checksums match, but a server skips the transactions in between."""
    directory = memory_of("dmg_base")
    files = directory.files
    swapped = data_directory(
        {**files, "snapshot.16": files["snapshot.a"], "snapshot.a": files["snapshot.16"]}
    )
    (message,) = [detail for detail in details(swapped) if detail.startswith("snapshot.16")]
    assert "it holds the tree of 0xa" in message
    assert "Digests are not matching" in "".join(start(swapped).verdict.warnings)
    # From an older one the same transactions lead to the right tree.
    result, _ = repaired(swapped, "prefix")
    assert served(result) == truth("dmg_base")
    assert details(result) == []


@pytest.mark.parametrize(
    ("case", "message"),
    [
        # Nothing is lost if the flipped bit can be restored.
        ("dmg_flip_body", ("damaged: zxid 0x1b (1 record): repair restores it", "--out DIR loses nothing")),
        # If a complete history is required, transactions after a gap are lost too.
        ("dmg_mid_missing", ("lost: zxids 0xb..0x16 (12 records)", "--out DIR loses 11 more records")),
        ("dmg_snap_all_flip", ("--out DIR loses",)),
        (
            "dmg_digest_mismatch",
            (
                "checksum mismatch: the digest of the tree after 0x21: stored 0x8ec5145d7, computed 0x9256f2d82",
                "--out DIR loses nothing, and leaves some damage in place",
            ),
        ),
    ],
)
def test_verify_predicts_what_a_repair_loses(case: str, message: tuple[str, ...], tmp_path: Path) -> None:
    """Reported in ZooKeeper's terms, and the same as the repair reports."""
    (tmp_path / "in/version-2").mkdir(parents=True)
    for name, data in memory_of(case).files.items():
        (tmp_path / "in/version-2" / name).write_bytes(data)
    report = lw.verify(tmp_path / "in")
    words = " ".join(str(report).split())
    assert all(item in words for item in message)
    repaired = lw.repair(tmp_path / "in", tmp_path / "out")
    assert report.repair_loss == sum(cut["rows_lost"] for cut in repaired.cut or [])
    second = " ".join(str(repaired).split())
    assert ("damaged: zxid 0x1b (1 record): restored" in second) is (case == "dmg_flip_body")
    assert ("leaves some damage in place" in words) is not lw.verify(tmp_path / "out").ok


def test_verify_says_when_only_salvage_can_repair(tmp_path: Path) -> None:
    (tmp_path / "version-2").mkdir()
    held = memory_of("dmg_snap_none").files
    for name, data in held.items():
        (tmp_path / "version-2" / name).write_bytes(data)
    report = lw.verify(tmp_path)
    assert "--strategy salvage --out DIR keeps what is readable" in " ".join(str(report).split())
    assert report.repair_loss is None


def test_ignored_names_and_empty_directories() -> None:
    assert details(data_directory({})) == []
    base = memory_of("dmg_base")
    assert details(data_directory({**base.files, "snapshot.-5": b"no snapshot at all"})) == []
    assert details(data_directory({"snapshot.0": b"no snapshot at all"}))[-1:] == [
        ": all snapshots are damaged, and there are no transactions"
    ]


def test_check_reads_a_sound_snapshot_once_to_load_its_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes themselves are surveyed while they are verified."""
    lw.generate("zookeeper.datadir", tmp_path / "zk", rows=20_000, seed=3)
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "zk").rglob("snapshot.*")}
    large = max(sizes, key=lambda name: sizes[name])
    assert sizes[large] > 500_000
    bytes_read: Counter[str] = Counter()
    pread = Directory.pread

    def counted(self: Directory, name: str, offset: int, length: int) -> Any:
        data = pread(self, name, offset, length)
        bytes_read[name.rpartition("/")[2]] += len(data)
        return data

    monkeypatch.setattr(Directory, "pread", counted)
    assert lw.verify(tmp_path / "zk").ok
    assert bytes_read[large] < 1.3 * sizes[large]
