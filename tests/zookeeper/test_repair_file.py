"""Repair of single files: records fixed by their checksums, single flipped bits found from an Adler-32."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import numpy as np
import pytest
from command_line import run
from zookeeper_crafted import create, log, record
from zookeeper_startup import GOLDEN, memory_of

import logwright as lw
from logwright.codec.fault import DamageError, DamageWarning, UsageError
from logwright.codec.zookeeper.formats.bitflip import CHECKSUM, find_flipped_bit
from logwright.codec.zookeeper.formats.txnlog.layout import ERROR, RECORD
from logwright.codec.zookeeper.names import continues
from logwright.codec.zookeeper.repair.fix_records import error_record, fix_record

RECORDS = [record(zxid, 1, create(b"/node%d" % zxid)) for zxid in range(1, 9)]
WHOLE = log(*RECORDS)


def repaired(tmp_path: Path, name: str, data: bytes, strategy: str = "salvage") -> bytes:
    (tmp_path / name).write_bytes(data)
    out = tmp_path / "out"
    out.unlink(missing_ok=True)
    lw.repair(tmp_path / name, out, strategy=strategy)
    return out.read_bytes()


# Logs


@pytest.mark.parametrize("strategy", ["salvage", "prefix"])
def test_damaged_marks_lengths_and_header_are_fixed(tmp_path: Path, strategy: str) -> None:
    data = bytearray(WHOLE)
    data[0:4] = b"????"
    data[16 + len(RECORDS[0]) - 1] = 0
    data[16 + sum(map(len, RECORDS[:4])) + 10] ^= 7
    assert repaired(tmp_path, "log.1", bytes(data), strategy) == WHOLE


def test_lost_records_are_reported(tmp_path: Path) -> None:
    data = bytearray(WHOLE)
    place = 16 + sum(map(len, RECORDS[:3]))
    data[place + 30 : place + 40] = bytes(10)
    assert repaired(tmp_path, "log.1", bytes(data)) == log(*RECORDS[:3], *RECORDS[4:])
    assert repaired(tmp_path, "log.1", bytes(data), "prefix") == log(*RECORDS[:3])


def test_bit_flip_fix_needs_confirmation(tmp_path: Path) -> None:
    """No tree digest confirms it."""
    log_17 = memory_of("dmg_flip_body").files["log.17"]
    base = memory_of("dmg_base").files["log.17"].rstrip(b"\0")
    assert repaired(tmp_path, "log.17", log_17) == base[:506] + base[622:]
    assert repaired(tmp_path, "log.17", log_17, "prefix") == base[:506]


def test_sound_logs_are_unchanged(tmp_path: Path) -> None:
    padded = WHOLE + bytes(500)
    assert repaired(tmp_path, "log.1", padded) == padded


@pytest.mark.parametrize("data", [b"", b"ZKLG"])
def test_log_without_readable_records_cannot_be_repaired(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(DamageError, match="no transaction of the log is left"):
        repaired(tmp_path, "log.1", data)


def test_file_is_repaired_in_place(tmp_path: Path) -> None:
    path = tmp_path / "data" / "log.1"
    path.parent.mkdir()
    path.write_bytes(WHOLE[:-1])
    lw.repair(path, in_place=True, backup=tmp_path / "saved")
    assert path.read_bytes() == WHOLE
    assert (tmp_path / "saved/log.1").read_bytes() == WHOLE[:-1]


def test_strategy_system_needs_a_directory(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="strategy system works on a directory"):
        repaired(tmp_path, "log.1", WHOLE, "system")


# Snapshots

SNAPSHOT = memory_of("dmg_base").files["snapshot.16"]


@pytest.mark.parametrize("strategy", ["salvage", "prefix"])
@pytest.mark.parametrize(
    "case", ["dmg_snap_endmark", "dmg_snap_flip_digest", "dmg_snap_all_trunc", "dmg_snap_trunc_seal1"]
)
def test_damage_after_the_nodes_is_fixed(tmp_path: Path, case: str, strategy: str) -> None:
    result = repaired(tmp_path, "snapshot.16", memory_of(case).files["snapshot.16"], strategy)
    assert result in (SNAPSHOT, SNAPSHOT[:1642], SNAPSHOT[:1675])


@pytest.mark.parametrize("strategy", ["salvage", "prefix"])
@pytest.mark.parametrize("case", ["dmg_snap_flip_data", "dmg_snap_flip_path", "dmg_snap_flip_version"])
def test_flipped_bit_comes_back_with_a_second_proof(tmp_path: Path, case: str, strategy: str) -> None:
    assert repaired(tmp_path, "snapshot.16", memory_of(case).files["snapshot.16"], strategy) == SNAPSHOT


def test_flipped_bit_is_named_before_it_is_corrected(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.16"
    path.write_bytes(memory_of("dmg_snap_flip_data").files["snapshot.16"])
    with pytest.warns(DamageWarning, match=r"bit 3 of byte 858 is flipped \(0x0b, it was 0x03\)"):
        lw.read(path, mode="PERMISSIVE")
    with pytest.warns(
        DamageWarning, match="corrected: 1 bit at byte 858 .* proved by Adler-32, the digest of the tree"
    ):
        rows = lw.read(path, correct=True)
    (tmp_path / "snapshot.17").write_bytes(SNAPSHOT)
    assert rows.equals(lw.read(tmp_path / "snapshot.17"))
    assert "stored 0x0b, correct 0x03" in explained(path, 858)
    assert "Flipping bit 3 of byte 858 would fix it" in explained(path, 0x65D)


def explained(path: Path, at: int) -> str:
    return str(lw.explain(path, at=at))


@pytest.mark.parametrize("case", ["dmg_snap_path_null", "dmg_snap_trunc"])
def test_prefix_refuses_unconfirmed_nodes_and_salvage_keeps_them(tmp_path: Path, case: str) -> None:
    data = memory_of(case).files["snapshot.16"]
    with pytest.raises(DamageError, match="no checksum covers its nodes"):
        repaired(tmp_path, "snapshot.16", data, "prefix")
    result = repaired(tmp_path, "snapshot.16", data)
    before = dict(_nodes(SNAPSHOT, tmp_path))
    assert [path for path, data in _nodes(result, tmp_path) if before[path] != data] == []
    assert lw.verify(tmp_path / "snapshot.1").ok


def _nodes(data: bytes, folder: Path) -> list[tuple[str, bytes]]:
    (folder / "snapshot.1").write_bytes(data)
    return [(row["path"], row["data"]) for row in lw.read(folder / "snapshot.1").to_pylist()]


def test_snapshot_without_readable_nodes_cannot_be_repaired(tmp_path: Path) -> None:
    with pytest.raises(DamageError, match="no node of the snapshot can be read"):
        repaired(tmp_path, "snapshot.16", b"ZKSN" + bytes(40))


def test_damaged_checksums_alone_are_rewritten(tmp_path: Path) -> None:
    data = bytearray(SNAPSHOT)
    data[1629 + 5] ^= 0x55
    assert repaired(tmp_path, "snapshot.16", bytes(data), "prefix") == SNAPSHOT


def test_bit_of_a_large_snapshot_is_corrected_only_if_a_digest_shows_it(tmp_path: Path) -> None:
    """Its seal alone shows several bits."""
    rows = [{"path": f"/n{number}", "data": b"x" * 1000} for number in range(1100)]
    for name, extra in (("snapshot.7", {}), ("snapshot.9", {"digest.enabled": "false"})):
        lw.write(rows, tmp_path / name, "zookeeper.snapshot", **extra)
    data = {name: (tmp_path / name).read_bytes() for name in ("snapshot.7", "snapshot.9")}
    damaged = {name: bytearray(before) for name, before in data.items()}
    for after in damaged.values():
        after[500_000] ^= 1
    assert repaired(tmp_path, "snapshot.7", bytes(damaged["snapshot.7"]), "prefix") == data["snapshot.7"]
    with pytest.raises(DamageError, match="no checksum covers its nodes"):
        repaired(tmp_path, "snapshot.9", bytes(damaged["snapshot.9"]), "prefix")


# One bit


@pytest.mark.parametrize("size", [1, 40, 300, 5000])
def test_single_bit_flip_is_fixed(size: int) -> None:
    rng = random.Random(size)
    for _ in range(200):
        data = np.frombuffer(rng.randbytes(size), np.uint8).copy()
        stored, place = zlib.adler32(data), rng.randrange(size)
        before = int(data[place])
        data[place] ^= 1 << rng.randrange(8)
        assert find_flipped_bit(data, stored) == (place, before)
        data[place] = before
        bit = stored ^ 1 << rng.randrange(64)
        assert find_flipped_bit(data, bit - (1 << 64) if bit >> 63 else bit) == (CHECKSUM, stored)


def test_other_damage_is_not_fixed_as_a_bit_flip() -> None:
    rng = random.Random(1)
    data = np.frombuffer(rng.randbytes(200), np.uint8)
    assert [
        actual for _ in range(5000) if (actual := find_flipped_bit(data, rng.getrandbits(32))) is not None
    ] == []
    assert find_flipped_bit(data, zlib.adler32(data)) is None


def test_ambiguous_bit_flips_are_not_fixed() -> None:
    """Their distance is the modulus of Adler-32."""
    data = np.full(70_000, 8, np.uint8)
    data[4000] = 12
    stored = zlib.adler32(data)
    data[4000] = 8
    assert find_flipped_bit(data, stored) is None
    # Where only one of them can have been, it is that.
    data[[4000, 4000 + 65_521]] = 12
    stored = zlib.adler32(data)
    data[4000] = 8
    assert find_flipped_bit(data, stored) == (4000, 12)


# Records


def fixed(data: bytes, before: int | None = 0, file: int | None = 1) -> bytes | None:
    actual = fix_record(np.frombuffer(data, np.uint8), 0, len(data), before, file)
    return None if actual is None else actual.record


def test_record_must_follow_its_predecessor() -> None:
    torn = RECORDS[0][:-1]
    assert fixed(torn) == RECORDS[0]
    assert fixed(torn, None, 1) == RECORDS[0]
    assert fixed(torn, None, 2) is None
    assert fixed(torn, 1) is None
    assert fixed(torn, None, None) == RECORDS[0]


def test_fixed_record_must_be_readable() -> None:
    odd = record(1, 99, b"")
    assert fixed(odd[:-1]) is None
    assert fixed(record(1, 1, b"\0\0\0\4/a")[:-1]) is None


@pytest.mark.parametrize("size", [0, 10, 44, 60])
def test_short_remains_are_not_kept(size: int) -> None:
    assert fixed(RECORDS[0][:size]) is None


def test_next_zxid_increases_by_one_or_begins_an_epoch() -> None:
    assert continues(2, 1)
    assert not continues(3, 1)
    assert not continues(1, 1)
    assert continues(5 << 32 | 1, 1)
    assert not continues(5 << 32 | 2, 1)
    assert not continues(1, 5 << 32)


def test_errors_say_that_nothing_was_changed() -> None:
    result = error_record(7, 8, 9, 10, -6)
    actual, end = RECORD.unpack(result)
    assert end == len(result)
    payload = actual["payload"]
    assert {name: payload[name] for name in ("client_id", "cxid", "zxid", "time", "type")} == {
        "client_id": 7,
        "cxid": 8,
        "zxid": 9,
        "time": 10,
        "type": ERROR,
    }
    assert payload["body"] == {"err": -6}
    assert actual["checksum"] == zlib.adler32(result[12:-1])


def test_bit_flip_in_an_error_transaction_does_not_change_the_tree() -> None:
    """Error transactions have no digest and need none."""
    data = bytearray(error_record(7, 8, 1, 10, -101))
    complete = bytes(data)
    for place, doubt in ((45, False), (13, False), (30, True), (42, True)):
        turned_ = bytearray(complete)
        turned_[place] ^= 1
        actual = fix_record(np.frombuffer(bytes(turned_), np.uint8), 0, len(complete), 0, 1)
        assert actual is not None
        assert actual.record == complete
        assert actual.doubt == doubt


def test_file_is_repaired_from_the_command_line(tmp_path: Path) -> None:
    assert (
        run("repair", str(GOLDEN / "dmg_len_zero/version-2/log.17"), "--out", str(tmp_path / "log.17")) == 0
    )
    assert (tmp_path / "log.17").read_bytes() == memory_of("dmg_base").files["log.17"].rstrip(b"\0")
