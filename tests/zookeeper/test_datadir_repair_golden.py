"""Repair of the damaged golden directories, compared with the undamaged ones and with the tree a server loads."""

from __future__ import annotations

from pathlib import Path

import pytest
from memory_directory import MemoryDirectory
from zookeeper_repairs import (
    CRAFTED,
    DAMAGED,
    checked,
    cuts,
    details,
    losses,
    notes,
    repaired,
    served,
    zxids,
)
from zookeeper_startup import GOLDEN, data_directory, memory_of

import logwright as lw
from logwright.codec.fault import DamageError, Severity

BASE = memory_of("dmg_base")
ALL = range(1, 0x22)
"""The transactions of `dmg_base`."""


def undamaged(case: str) -> MemoryDirectory:
    """Return a damaged directory as it was before the damage."""
    others = {"dmg_gz": "snap_gz", "dmg_snappy": "snap_snappy"}
    base = next((memory_of(other) for start, other in others.items() if case.startswith(start)), BASE)
    names = {"log.17.fixed": "log.17", "snapshot.16.tmp": "snapshot.16"}
    return data_directory(
        {name: base.files[name] for file in memory_of(case).files if (name := names.get(file, file))}
    )


HEALED = {
    "dmg_first_flip_body", "dmg_flip_body", "dmg_flip_crc", "dmg_flip_eor", "dmg_len_huge", "dmg_len_minus1", "dmg_len_past_eof",
    "dmg_len_plus", "dmg_len_zero", "dmg_log_magic", "dmg_mid_eor_first", "dmg_mid_eor_gap", "dmg_mid_eor_silent", "dmg_prev_flip_body",
    "dmg_snap_all_flip", "dmg_snap_endmark", "dmg_snap_flip_data", "dmg_snap_flip_digest", "dmg_snap_flip_path", "dmg_snap_flip_version",
}  # fmt: skip
"""All is as it was before the damage, byte for byte, but for the padding of logs."""


@pytest.mark.alike
@pytest.mark.parametrize("strategy", ["prefix", "salvage"])
@pytest.mark.parametrize("case", sorted(HEALED))
def test_unambiguous_damage_is_fixed_completely(case: str, strategy: str) -> None:
    result, repair_plan = repaired(memory_of(case), strategy)
    before = undamaged(case)
    assert result.files.keys() == before.files.keys()
    for name, data in before.files.items():
        if result.files[name] != data:
            assert name.startswith("log.")
            assert result.files[name] == data.rstrip(b"\0")
    assert losses(repair_plan) == []
    assert checked(result) == []


CUT_AT = {
    "dmg_pad_garbage_far": 0x21, "dmg_pad_garbage_near": 0x21, "dmg_torn_zero_tail": 0x1F, "dmg_trunc_tail_midbody": 0x1F,
    "dmg_trunc_tail_midcrc": 0x1F, "dmg_trunc_tail_midlen": 0x1F, "dmg_trunc_tail_noeor": 0x20,
}  # fmt: skip
"""The last transaction that is left of the newest log."""


@pytest.mark.parametrize("case", sorted(CUT_AT))
def test_torn_tails_are_truncated(case: str) -> None:
    result, repair_plan = repaired(memory_of(case))
    last = CUT_AT[case]
    assert zxids(result) == list(range(0x17, last + 1))
    log = result.files["log.17"]
    assert BASE.files["log.17"].startswith(log)
    assert result.files["snapshot.16"] == BASE.files["snapshot.16"]
    # The torn bytes may have been the next transaction.
    lost = [] if case == "dmg_trunc_tail_noeor" else [("log.17", None, {"first_zxid": last + 1})]
    assert losses(repair_plan) == lost


@pytest.mark.parametrize("case", ["dmg_trunc_tail_0", "dmg_trunc_tail_hdr"])
def test_log_without_a_header_is_removed(case: str) -> None:
    result, repair_plan = repaired(memory_of(case))
    assert result.files == {"snapshot.16": BASE.files["snapshot.16"]}
    assert losses(repair_plan) == [("log.17", None, {"first_zxid": 0x17})]
    assert len(served(result)) == 15


GONE = {
    "dmg_gz_flip": "snapshot.42.gz", "dmg_gz_magic": "snapshot.42.gz", "dmg_gz_trunc": "snapshot.42.gz",
    "dmg_snap_aclvec_null": "snapshot.16", "dmg_snap_path_null": "snapshot.16", "dmg_snap_trunc": "snapshot.16",
    "dmg_snap_trunc_tree_end": "snapshot.16", "dmg_snap_zero_len": "snapshot.16", "dmg_snappy_trunc": "snapshot.42.snappy",
    "syn_orphan": "snapshot.16", "syn_bad_ephemeral_owner": "snapshot.16", "dmg_fixed_left": "log.17.fixed",
}  # fmt: skip
"""Their content follows from the remaining files."""


@pytest.mark.alike
@pytest.mark.parametrize("strategy", ["prefix", "salvage"])
@pytest.mark.parametrize("case", sorted(GONE))
def test_unreadable_snapshots_are_removed_if_older_ones_suffice(case: str, strategy: str) -> None:
    directory = memory_of(case)
    before = served(undamaged(case) if case.startswith("dmg") else BASE)
    result, repair_plan = repaired(directory, strategy)
    assert set(directory.files) - set(result.files) == {GONE[case]}
    assert losses(repair_plan) == []
    assert served(result) == before


@pytest.mark.parametrize("case", ["dmg_snap_all_trunc", "dmg_snap_all_trunc_nologs"])
def test_snapshot_is_truncated_after_its_last_valid_checksum(case: str) -> None:
    directory = memory_of(case)
    result, repair_plan = repaired(directory)
    for name in ("snapshot.16", "snapshot.a"):
        # Its last processed zxid, of which the seal is cut off, is the one in its name.
        assert directory.files[name].startswith(result.files[name])
        assert len(directory.files[name]) - len(result.files[name]) == 18
    assert losses(repair_plan) == []
    before = data_directory({name: BASE.files[name] for name in result.files})
    assert served(result) == served(before)


def test_snapshot_with_a_valid_first_checksum_ends_there() -> None:
    directory = memory_of("dmg_base")
    data = bytearray(directory.files["snapshot.16"])
    data[1650] ^= 0x55
    directory.files["snapshot.16"] = bytes(data)
    result, repair_plan = repaired(directory)
    assert result.files["snapshot.16"] == BASE.files["snapshot.16"][:1642]
    assert losses(repair_plan) == []


UNTOUCHED = {
    "dmg_base", "dmg_chopped", "dmg_digest_mismatch", "dmg_first_missing_nosnap", "dmg_fixed_swapped", "dmg_log_hdr_fields",
    "dmg_snap_tmp", "dmg_snap_trunc_seal1", "dmg_snap_trunc_seal2", "dmg_trunc_tail_16", "dmg_trunc_tail_boundary", "syn_acl_dangling",
    "syn_create_v0", "syn_delete_missing", "syn_dup_node", "syn_epoch_jump", "syn_gap_filled", "syn_seed_snapshot",
    "syn_trailing_bytes", "syn_zxid_repeat",
}  # fmt: skip


@pytest.mark.parametrize("strategy", ["prefix", "salvage"])
@pytest.mark.parametrize("case", sorted(UNTOUCHED))
def test_sound_files_are_unchanged(case: str, strategy: str) -> None:
    directory = memory_of(case)
    result, repair_plan = repaired(directory, strategy)
    assert result.files == directory.files
    assert cuts(repair_plan) == []


MISSING = ("dmg_mid_empty", "dmg_mid_missing", "dmg_mid_missing_silent")


@pytest.mark.parametrize("case", MISSING)
def test_prefix_ends_before_missing_transactions(case: str) -> None:
    directory = memory_of(case)
    result, repair_plan = repaired(directory)
    assert "log.17" not in result.files
    assert zxids(result) == ([] if case == "dmg_mid_missing_silent" else list(range(1, 0xB)))
    file = "log.b" if case == "dmg_mid_empty" else "log.17"
    assert (file, 12, {"first_zxid": 0xB, "last_zxid": 0x16}) in losses(repair_plan)
    assert ("log.17", 11, {"first_zxid": 0x17, "last_zxid": 0x21}) in losses(repair_plan)
    assert sum(rows or 0 for _, rows, _ in losses(repair_plan)) == 23
    assert served(result) == served(data_directory({"snapshot.a": BASE.files["snapshot.a"]}))
    assert "The tree is that after transaction 0xa; it has 10 nodes." in notes(repair_plan)


@pytest.mark.parametrize("case", MISSING)
def test_salvage_fills_in_missing_transactions(case: str) -> None:
    result, repair_plan = repaired(memory_of(case), "salvage")
    first = 0xB if case == "dmg_mid_missing_silent" else 1
    assert zxids(result) == list(range(first, 0x22))
    assert zxids(result, "log.b") == list(range(0xB, 0x17))
    assert result.files["log.17"] == BASE.files["log.17"]
    assert "0xb to 0x16 are missing: transactions that change nothing are in their place" in notes(
        repair_plan
    )
    assert checked(result) == []


def test_prefix_without_an_older_state_is_an_error() -> None:
    with pytest.raises(DamageError, match="there is no snapshot, and the logs begin with 0xb"):
        repaired(memory_of("dmg_snap_none"))
    result, repair_plan = repaired(memory_of("dmg_snap_none"), "salvage")
    assert set(result.files) == {"log.b", "log.17", "snapshot.a"}
    assert "the tree has only what was created from then on" in notes(repair_plan)
    assert {row["path"] for row in _tree(result)} > {"/", "/zookeeper"}


def _tree(directory: MemoryDirectory) -> list[dict[str, object]]:
    from zookeeper_startup import nodes_of, start

    return nodes_of(start(directory))


def test_logs_without_a_snapshot() -> None:
    directory = memory_of("v3414_log_only")
    for strategy in ("prefix", "salvage"):
        result, repair_plan = repaired(directory, strategy)
        assert set(result.files) == {"log.1", "snapshot.0"}
        assert result.files["snapshot.0"] == memory_of("fresh").files["snapshot.0"]
        assert result.files["log.1"] == directory.files["log.1"]
        assert "snapshot.0 is the tree of a new server" in notes(repair_plan)
        assert served(result)


def test_prefix_ends_at_a_gap_and_salvage_keeps_what_follows() -> None:
    directory = memory_of("syn_zxid_gap")
    result, repair_plan = repaired(directory)
    assert zxids(result) == [1, 2]
    assert losses(repair_plan) == [
        ("log.1", 6, {"first_zxid": 3, "last_zxid": 8}),
        ("log.1", 1, {"first_zxid": 9, "last_zxid": 9}),
    ]
    result, _ = repaired(directory, "salvage")
    assert zxids(result) == list(range(1, 10))
    assert result.files["log.1"].endswith(directory.files["log.1"][154:220])


@pytest.mark.parametrize("case", ["syn_bad_type", "toplevel_check"])
def test_check_transaction_outside_a_multi_becomes_an_error_transaction(case: str) -> None:
    directory = memory_of(case)
    before = zxids(directory)
    result, repair_plan = repaired(directory)
    assert zxids(result) == before
    assert losses(repair_plan) == []
    assert "replaced by an error" in cuts(repair_plan)[0].why
    assert served(result)


MISMATCHED = {"dmg_digest_mismatch": 0x21, "dmg_fixed_swapped": 0x1B}
"""The first transaction after which the tree is not what it was."""


@pytest.mark.parametrize("case", sorted(MISMATCHED))
def test_wrong_digest_is_reported_or_truncated(case: str) -> None:
    directory = memory_of(case)
    _, repair_plan = repaired(directory)
    zxid = MISMATCHED[case]
    assert f"The digest stored with {zxid:#x} is not that of the tree" in notes(repair_plan)
    (message,) = details(directory)
    assert f"the digest of the tree after {zxid:#x}: stored" in message
    result, repair_plan = repaired(directory, **{"digest.mismatch": "cut"})
    assert zxids(result) == list(range(0x17, zxid))
    assert losses(repair_plan) == [("log.17", 0x22 - zxid, {"first_zxid": zxid, "last_zxid": 0x21})]
    assert checked(result) == []
    assert served(result)


@pytest.mark.alike
@pytest.mark.parametrize("strategy", ["prefix", "salvage"])
@pytest.mark.parametrize("case", [*DAMAGED, *CRAFTED])
def test_result_is_sound_and_a_second_repair_changes_nothing(case: str, strategy: str) -> None:
    if (case, strategy) == ("dmg_snap_none", "prefix"):
        return
    once, _ = repaired(memory_of(case), strategy)
    if case not in MISMATCHED:
        assert checked(once) == []
    twice, repair_plan = repaired(once, strategy)
    assert twice.files == once.files
    assert cuts(repair_plan) == []
    if case not in {*MISMATCHED, *MISSING, "dmg_snap_none", "syn_acl_dangling", "syn_trailing_bytes"}:
        assert served(once)


def test_repair_through_the_api(tmp_path: Path) -> None:
    report = lw.repair(GOLDEN / "dmg_flip_body/version-2", tmp_path / "version-2")
    assert not report.incomplete
    assert "one bit of byte 87 of its payload was flipped (0x10, it was 0x00)" in str(report.cut)
    assert "The tree is that after transaction 0x21; it has 24 nodes." in str(report)
    assert lw.verify(tmp_path / "version-2").ok
    assert lw.read(tmp_path / "version-2").num_rows == 24


def test_data_directory_is_repaired_in_place(tmp_path: Path) -> None:
    data = tmp_path / "zk"
    (data / "version-2").mkdir(parents=True)
    (data / "myid").write_bytes(b"1")
    for name, content in memory_of("dmg_flip_eor").files.items():
        (data / "version-2" / name).write_bytes(content)
    report = lw.repair(data, in_place=True, backup=tmp_path / "backup")
    assert report.rows_kept == 26
    assert (tmp_path / "backup/log.17").read_bytes() == memory_of("dmg_flip_eor").files["log.17"]
    assert lw.verify(data).ok
    assert lw.read(data).num_rows == 24
    assert (data / "myid").read_bytes() == b"1"


def test_severity_of_damage_a_server_skips() -> None:
    assert details(memory_of("dmg_fixed_left"), Severity.WARNING) == [
        "log.17.fixed: a server treats it as a log of zxid 0x17, although the name continues with 'fixed'"
    ]
