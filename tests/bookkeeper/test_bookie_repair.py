"""Repaired bookies start and serve every undamaged entry."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from golden_bookies import case

import logwright as lw
from logwright.codec.fault import DamageError, UsageError

REPAIRED = [
    "cookie_empty", "cookie_missing_ledger", "elog_empty", "elog_flip_body", "elog_length_max", "elog_lost_bytes", "elog_map_inside_entry",
    "elog_missing", "elog_name_overflow", "elog_wrong_magic", "elog_zero_page", "idx_magic_replay", "idx_missing", "idx_missing_all",
    "idx_nonhex", "idx_slot_phantom", "idx_wrong_dir", "jrn_bad_name", "jrn_garbage_after_last", "jrn_key_missing", "jrn_pad_len_negative",
    "jrn_second_key", "jrn_version_5", "jrn_zero_sector", "mark_beyond_last", "mark_group_boundary", "mark_in_header", "mark_mid_record",
]  # fmt: skip


def damaged(name: str, tmp_path: Path) -> str:
    """Copy the directories of a case, without its other files."""
    for folder in case(name).path.iterdir():
        if folder.is_dir():
            shutil.copytree(folder, tmp_path / "in" / folder.name)
    return str(tmp_path / "in")


@pytest.mark.parametrize("name", REPAIRED)
@pytest.mark.filterwarnings("ignore")
def test_repaired_bookie_serves_all_entries_that_are_anywhere_on_it(name: str, tmp_path: Path) -> None:
    known, out = case(name), str(tmp_path / "out")
    lw.repair(damaged(name, tmp_path), out, **known.options)
    report = lw.verify(out, as_system="4.18.0", **known.options).to_dict()
    base = case(known.info["base"]) if known.info.get("base") else known
    expected = {(line["ledger"], line["entry"]) for line in base.lines["entry"]}
    rows = lw.read(out, mode="AS_SYSTEM", **known.options)
    got = set(zip(rows["ledger_id"].to_pylist(), rows["entry_id"].to_pylist(), strict=True))
    lost = {"jrn_zero_sector", "jrn_garbage_after_last"} & {name}
    assert report["system"]["opens"]
    assert got == expected or (lost and len(expected - got) <= 6)
    assert [
        fault for file in report["files"] for fault in file["faults"] if fault["severity"] == "error"
    ] == []


def test_repair_of_a_healthy_bookie_changes_nothing(tmp_path: Path) -> None:
    path, out = damaged("dmg_base", tmp_path), tmp_path / "out"
    lw.repair(path, str(out))
    for file in Path(path).rglob("*"):
        if file.is_file():
            assert (out / file.relative_to(path)).read_bytes() == file.read_bytes()


@pytest.mark.filterwarnings("ignore")
def test_entries_are_taken_from_another_bookie(tmp_path: Path) -> None:
    path = damaged("elog_missing", tmp_path)
    for journal in (tmp_path / "in" / "journal" / "current").glob("*.txn"):
        journal.write_bytes(journal.read_bytes()[:512])
    donor = shutil.copytree(case("dmg_base").path, tmp_path / "donor")
    (tmp_path / "in" / "ledger" / "current" / "lastMark").unlink()
    lw.repair([path, str(donor)], str(tmp_path / "out"), **case("dmg_base").options)
    assert len(lw.read(str(tmp_path / "out"), mode="AS_SYSTEM", **case("dmg_base").options)) == 27


@pytest.mark.parametrize("suffix", [".log", ".txn"])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.filterwarnings("ignore")
def test_flipped_bit_of_an_entry_comes_back_byte_for_byte(suffix: str, seed: int, tmp_path: Path) -> None:
    path, options = damaged("dmg_base", tmp_path), case("dmg_base").options
    file = max(Path(path).rglob(f"*{suffix}"), key=lambda file: file.stat().st_size)
    rows = lw.read(file, columns=["position", "digest_type"]).to_pylist()
    positions = [row["position"] for row in rows if row["digest_type"] in ("CRC32", "CRC32C")]
    healthy = file.read_bytes()
    data = bytearray(healthy)
    data[random.Random(seed).choice(positions) + random.Random(seed).randrange(40)] ^= 4
    file.write_bytes(data)
    report = lw.repair(path, str(tmp_path / "out"), **options)
    assert len(report.corrected or []) == 1
    assert (tmp_path / "out" / file.relative_to(path)).read_bytes() == healthy


@pytest.mark.filterwarnings("ignore")
def test_index_of_all_ledgers_is_rebuilt_from_the_logs(tmp_path: Path) -> None:
    path, out = damaged("dmg_base", tmp_path), tmp_path / "out"
    lw.rebuild(path, str(out), what="index", passwd=b"pw")
    for index in (tmp_path / "in").rglob("*.idx"):
        rebuilt = out / index.relative_to(path)
        assert rebuilt.read_bytes() == index.read_bytes()
    with pytest.raises(DamageError, match="damaged"):
        lw.rebuild(damaged("elog_length_max", tmp_path / "b"), str(tmp_path / "c"), what="index")


def test_strategy_prefix_is_refused(tmp_path: Path) -> None:
    with pytest.raises((DamageError, UsageError), match="no order"):
        lw.repair(damaged("dmg_base", tmp_path), str(tmp_path / "out"), strategy="prefix")
