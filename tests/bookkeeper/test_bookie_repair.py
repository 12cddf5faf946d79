"""Repaired bookies start and serve every undamaged entry."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from golden_bookies import case

import logwright as lw
from logwright.codec.bookkeeper.formats.index import FileInfo
from logwright.codec.bookkeeper.formats.journal import EXPLICIT_LAC
from logwright.codec.fault import DamageError, Kind

REPAIRED = [
    "cookie_empty", "cookie_missing_ledger", "elog_empty", "elog_flip_body", "elog_length_max", "elog_lost_bytes", "elog_map_inside_entry",
    "elog_missing", "elog_name_overflow", "elog_wrong_magic", "elog_zero_page", "idx_magic_replay", "idx_missing", "idx_missing_all",
    "idx_nonhex", "idx_slot_phantom", "idx_wrong_dir", "jrn_bad_name", "jrn_garbage_after_last", "jrn_key_missing", "jrn_pad_len_negative",
    "idx_lac_flip", "jrn_empty_mid", "jrn_header_8", "jrn_missing_mid", "journal_v1_noindex", "jrn_swapped", "jrn_second_key",
    "jrn_version_5", "jrn_zero_sector", "mark_beyond_last", "mark_group_boundary", "mark_in_header", "mark_mid_record",
]  # fmt: skip


def damaged(name: str, tmp_path: Path) -> str:
    """Copy the directories of a case, without its other files."""
    for folder in case(name).path.iterdir():
        if folder.is_dir():
            shutil.copytree(folder, tmp_path / "in" / folder.name)
    return str(tmp_path / "in")


@pytest.mark.alike
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
    lost = name in {
        "jrn_zero_sector",
        "jrn_garbage_after_last",
        "jrn_empty_mid",
        "jrn_header_8",
        "jrn_missing_mid",
    }
    assert report["system"]["opens"]
    assert got == expected or (lost and got <= expected and len(expected - got) <= 8)
    assert [
        fault for file in report["files"] for fault in file["faults"] if fault["severity"] == "error"
    ] == []


@pytest.mark.filterwarnings("ignore")
def test_ledger_whose_entries_are_replayed_gets_those_before_last_mark_too(tmp_path: Path) -> None:
    """Its index file would have come with the next flush. Another ledger has one, so the index is not lost as a whole."""
    known, source, out = (
        case("killed_unflushed"),
        Path(damaged("killed_unflushed", tmp_path)),
        tmp_path / "out",
    )
    expected = lw.read(source, mode="AS_SYSTEM", **known.options).sort_by("ledger_id")
    index = source / "ledger/current/0/0/0.idx"
    index.parent.mkdir(parents=True)
    shutil.copy(case("killed_flushed").path / "ledger/current/0/0/0.idx", index)
    journal = next((source / "journal/current").glob("*.txn"))
    entries = lw.read(journal, columns=["ledger_id", "entry_id", "position"]).to_pylist()
    mark = next(row["position"] for row in entries if (row["ledger_id"], row["entry_id"]) == (2, 2))
    (source / "ledger/current/lastMark").write_bytes(
        int(journal.stem, 16).to_bytes(8, "big") + mark.to_bytes(8, "big")
    )
    lw.repair(source, out, **known.options)
    assert lw.verify(out, **known.options).ok
    assert lw.read(out, mode="AS_SYSTEM", **known.options).sort_by("ledger_id").equals(expected)


@pytest.mark.parametrize("lost", [512, 1024])
@pytest.mark.filterwarnings("ignore")
def test_entries_of_a_log_without_a_part_of_its_header_are_served_again(lost: int, tmp_path: Path) -> None:
    known, source, out = case("dmg_base"), Path(damaged("dmg_base", tmp_path)), str(tmp_path / "out")
    expected = lw.read(source, mode="AS_SYSTEM", **known.options)
    log = source / "ledger/current/0.log"
    log.write_bytes(log.read_bytes()[lost:])
    lw.repair(source, out, **known.options)
    assert lw.verify(out, **known.options).ok
    assert lw.read(out, mode="AS_SYSTEM", **known.options).equals(expected)


@pytest.mark.filterwarnings("ignore")
def test_log_hidden_by_one_of_the_same_id_gets_a_new_id(tmp_path: Path) -> None:
    known, source, out = (
        case("two_dirs_index_dir"),
        Path(damaged("two_dirs_index_dir", tmp_path)),
        tmp_path / "out",
    )
    expected = lw.read(source, mode="AS_SYSTEM", **known.options)
    logs = [
        {path.name: path for path in source.glob(f"ledger{i}/current/*.log") if path.stat().st_size}
        for i in (0, 1)
    ]
    hiding, hidden = (next(iter(paths.values())) for paths in logs)
    hiding.rename(hiding.with_name(hidden.name))
    report = lw.repair(source, out, **known.options)
    assert any("hides it" in note for note in report.to_dict()["notes"])
    assert lw.verify(out, **known.options).ok
    assert lw.read(out, mode="AS_SYSTEM", **known.options).equals(expected)


@pytest.mark.filterwarnings("ignore")
def test_repair_creates_a_journal_directory_that_is_missing(tmp_path: Path) -> None:
    known, source, out = case("dmg_base"), Path(damaged("dmg_base", tmp_path)), tmp_path / "out"
    expected = lw.read(source, mode="AS_SYSTEM", **known.options)
    shutil.rmtree(source / "journal")
    lw.repair(source, out, **known.options)
    assert (out / "journal/current/VERSION").read_bytes() == (out / "ledger/current/VERSION").read_bytes()
    assert lw.read(out, mode="AS_SYSTEM", **known.options).equals(expected)


@pytest.mark.filterwarnings("ignore")
def test_lastmark_without_a_position_is_removed_also_if_no_journal_directory_is_known(tmp_path: Path) -> None:
    known, source, out = case("dmg_base"), Path(damaged("dmg_base", tmp_path)), tmp_path / "out"
    shutil.rmtree(source / "journal")
    (source / "ledger/current/VERSION").unlink()
    (source / "ledger/current/lastMark").write_bytes(b"")
    lw.repair(source, out, **known.options)
    assert not (out / "ledger/current/lastMark").exists()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("left", [b"", b"garbage"])
def test_entries_are_repaired_although_no_cookie_is_valid(left: bytes, tmp_path: Path) -> None:
    known, source, out = case("dmg_base"), Path(damaged("dmg_base", tmp_path)), tmp_path / "out"
    expected = lw.read(source)
    for folder in ("journal", "ledger"):
        (source / folder / "current" / "VERSION").write_bytes(left)
    report = lw.repair(source, out, **known.options)
    assert not list(out.rglob("VERSION"))
    assert [cut["rows_lost"] for cut in report.to_dict()["cut"]] == [0, 0]
    assert any("bookkeeper shell cookie_get" in note for note in report.notes)
    assert lw.read(out).equals(expected)


@pytest.mark.alike
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("size", [2 << 20, 3 << 30])
@pytest.mark.parametrize("name", ["VERSION", "lastId", "lastMark"])
def test_small_file_followed_by_zeros_is_a_fault_of_that_file_and_repaired(
    name: str, size: int, tmp_path: Path
) -> None:
    source, out = Path(damaged("dmg_base", tmp_path)), tmp_path / "out"
    expected, files = lw.read(source), list(source.glob(f"*/current/{name}"))
    good = [file.read_bytes() for file in files]
    for file in files:
        os.truncate(file, size)
    report = lw.verify(source)
    faults = {
        (file.path, fault.kind) for file in report.files if file.path for fault in file.faults if fault.stops
    }
    assert faults == {(str(file.relative_to(source)), Kind.LENGTH) for file in files}
    assert report.rows == lw.verify(case("dmg_base").path).rows
    assert lw.verify(source, as_system="4.18.0").system["opens"] == (name != "VERSION")
    lw.repair(source, out)
    assert [file.read_bytes() for file in out.glob(f"*/current/{name}")] == good
    assert lw.read(out).equals(expected)


@pytest.mark.filterwarnings("ignore")
def test_repair_does_not_refuse_a_bookie_that_fails_to_start_for_another_reason_afterwards(
    tmp_path: Path,
) -> None:
    source, out = Path(damaged("dmg_base", tmp_path)), tmp_path / "out"
    for file in source.glob("*/current/VERSION"):
        file.write_bytes(b"garbage")
        os.truncate(file, 3 << 30)
    assert not lw.repair(source, out).ok
    assert lw.read(out).equals(lw.read(source))


@pytest.mark.parametrize("name", ["dmg_base", "elog_version_0", "jrn_empty_mid"])
def test_repair_of_a_healthy_bookie_changes_nothing(name: str, tmp_path: Path) -> None:
    path, out = damaged(name, tmp_path), tmp_path / "out"
    lw.repair(path, str(out))
    for file in Path(path).rglob("*"):
        if file.is_file():
            assert (out / file.relative_to(path)).read_bytes() == file.read_bytes()


@pytest.mark.filterwarnings("ignore")
def test_unknown_master_key_is_named(tmp_path: Path) -> None:
    report = lw.repair(damaged("jrn_key_missing", tmp_path), tmp_path / "out")
    assert any("the master key of 1 ledger is unknown, the first is 0" in note for note in report.notes)


def test_missing_database_of_ledgers_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("rocksdict")
    options = case("db_ledgers_missing").options
    report = lw.verify(damaged("db_ledgers_missing", tmp_path), **options)
    assert [fault.detail for _, fault in report.faults if fault.severity == "error"] == [
        "the database ledgers has no ledger, but locations has 4 ledgers"
    ]


@pytest.mark.parametrize("name", ["compacted", "compacted_transactional"])
@pytest.mark.filterwarnings("ignore")
def test_ledger_that_gets_an_index_file_again_has_all_of_its_entries(name: str, tmp_path: Path) -> None:
    """A part of them is in the entry logs, the others are in journals that the bookie does not replay."""
    out, options = tmp_path / "out", case(name).options
    lw.repair(damaged(name, tmp_path), out, **options)
    repaired = lw.verify(out, as_system="4.18.0", **options)
    assert repaired.ok
    assert repaired.system is not None
    assert repaired.system["rows_lost"] == 0


def test_bookie_of_release_4_0_must_be_upgraded_before_a_repair(tmp_path: Path) -> None:
    with pytest.raises(DamageError, match=r"has the layout of BookKeeper 4\.0.*bookkeeper upgrade"):
        lw.repair(damaged("old_4_0_0", tmp_path), tmp_path / "out")


@pytest.mark.filterwarnings("ignore")
def test_wrong_explicit_lac_is_reported_and_replaced_by_that_of_the_journal(tmp_path: Path) -> None:
    """A client cannot open a ledger with a wrong digest of its last-add-confirmed. Without a record of it the header gets none."""
    path, name = damaged("idx_lac_flip", tmp_path), "ledger/current/0/0/0.idx"
    report = lw.verify(path)
    assert [
        (file, fault.offset, fault.length) for file, fault in report.faults if fault.severity == "error"
    ] == [(name, 40, 20)]
    lw.repair(path, tmp_path / "out")
    base = damaged("dmg_base", tmp_path / "base")
    assert (tmp_path / "out" / name).read_bytes() == (Path(base) / name).read_bytes()
    journal = next((Path(path) / "journal" / "current").glob("*.txn"))
    journal.unlink()
    lw.repair(path, tmp_path / "less")
    repaired = lw.verify(tmp_path / "less", as_system="4.18.0")
    assert repaired.ok
    assert repaired.system is not None
    assert repaired.system["rows_lost"] == 0
    table = lw.read(tmp_path / "less" / name, view="file")
    assert table["explicit_lac"].to_pylist() == [None]


@pytest.mark.filterwarnings("ignore")
def test_entries_are_taken_from_another_bookie(tmp_path: Path) -> None:
    path = damaged("elog_missing", tmp_path)
    for journal in (tmp_path / "in" / "journal" / "current").glob("*.txn"):
        journal.write_bytes(journal.read_bytes()[:512])
    donor = shutil.copytree(case("dmg_base").path, tmp_path / "donor")
    (tmp_path / "in" / "ledger" / "current" / "lastMark").unlink()
    lw.repair([path, str(donor)], str(tmp_path / "out"), **case("dmg_base").options)
    assert len(lw.read(str(tmp_path / "out"), mode="AS_SYSTEM", **case("dmg_base").options)) == 27


@pytest.mark.alike
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
def test_loss_in_the_replayed_part_of_a_journal_is_unknown_although_the_index_misses_nothing(
    tmp_path: Path,
) -> None:
    path, options = damaged("killed_unflushed", tmp_path), case("killed_unflushed").options
    before = {tuple(row.values()) for row in _served(path, options)}
    journal = max(Path(path).rglob("*.txn"), key=lambda file: file.stat().st_size)
    rows = lw.read(journal, columns=["position", "kind"], **_password(options)).to_pylist()
    last = max(row["position"] for row in rows if row["kind"] == "entry")
    data = bytearray(journal.read_bytes())
    data[last + 4 :] = bytes([0x55]) * 200 + bytes(len(data) - last - 204)
    journal.write_bytes(data)
    report = lw.repair(path, str(tmp_path / "out"), **options).to_dict()
    lost = len(before - {tuple(row.values()) for row in _served(str(tmp_path / "out"), options)})
    assert lost
    claimed = [cut["rows_lost"] for cut in report["cut"] if cut["file"].endswith(journal.name)]
    assert None in claimed or sum(claimed) >= lost


def _password(options: dict[str, Any]) -> dict[str, Any]:
    return {"passwd": options["passwd"]} if "passwd" in options else {}


def _served(path: str, options: dict[str, Any]) -> list[dict[str, Any]]:
    columns = ["ledger_id", "entry_id"]
    rows: list[dict[str, Any]] = lw.read(path, columns=columns, mode="DROPMALFORMED", **options).to_pylist()
    return rows


def test_unreadable_status_is_removed(tmp_path: Path) -> None:
    path, out = damaged("dmg_base", tmp_path), tmp_path / "out"
    (tmp_path / "in" / "ledger" / "current" / "BOOKIE_STATUS").write_text("1,READ_WRITE,17-0,false\n")
    report = lw.repair(path, str(out)).to_dict()
    assert [(cut["file"], cut["rows_lost"]) for cut in report["cut"]] == [("ledger/current/BOOKIE_STATUS", 0)]
    assert lw.verify(out).ok


@pytest.mark.filterwarnings("ignore")
def test_index_of_all_ledgers_is_rebuilt_from_the_logs(tmp_path: Path) -> None:
    path, out = damaged("dmg_base", tmp_path), tmp_path / "out"
    lw.rebuild(path, str(out), what="index", passwd=b"pw")
    for index in (tmp_path / "in").rglob("*.idx"):
        rebuilt = out / index.relative_to(path)
        assert rebuilt.read_bytes() == index.read_bytes()
    with pytest.raises(DamageError, match="damaged"):
        lw.rebuild(damaged("elog_length_max", tmp_path / "b"), str(tmp_path / "c"), what="index")


@pytest.mark.filterwarnings("ignore")
def test_strategy_prefix_ends_a_log_before_its_first_damage(tmp_path: Path) -> None:
    path, out = damaged("elog_flip_body", tmp_path), tmp_path / "out"
    options = case("elog_flip_body").options
    first = 1552
    for journal in (tmp_path / "in" / "journal" / "current").glob("*.txn"):
        journal.unlink()
    (tmp_path / "in" / "ledger" / "current" / "lastMark").unlink()
    report = lw.repair(path, str(out), strategy="prefix", **options).to_dict()
    before, after = (
        lw.read(
            Path(home) / "ledger" / "current" / "0.log",
            mode="DROPMALFORMED",
            columns=["entry_id", "position"],
            passwd=options["passwd"],
        )
        for home in (path, out)
    )
    assert after.to_pylist() == [row for row in before.to_pylist() if row["position"] < first]
    assert report["cut"][0]["offset"] == first
    assert lw.verify(str(out), as_system=True, **options).ok


@pytest.mark.filterwarnings("ignore")
def test_strategy_prefix_drops_the_journals_after_a_damaged_one(tmp_path: Path) -> None:
    path, out = damaged("jrn_zero_sector", tmp_path), tmp_path / "out"
    lw.repair(path, str(out), strategy="prefix", **case("jrn_zero_sector").options)
    journals = sorted(file.name for file in (out / "journal" / "current").glob("*.txn"))
    assert journals == ["1a1fc4b1970.txn", "1a1fc4b1971.txn"]
    assert lw.verify(str(out), **case("jrn_zero_sector").options).ok


@pytest.mark.alike
@pytest.mark.parametrize(
    ("name", "rebuilt"),
    [
        ("db_current_garbage", {"locations"}), ("db_locations_missing", {"locations"}), ("db_ledgers_missing", {"ledgers"}),
        ("db_log_missing", {"locations"}), ("db_compacted", set()), ("db_two_dirs", set()), ("db_direct_io", set()),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_damaged_databases_are_rebuilt_and_others_are_not(
    name: str, rebuilt: set[str], tmp_path: Path
) -> None:
    pytest.importorskip("rocksdict")
    known, out = case(name), tmp_path / "out"
    path = Path(damaged(name, tmp_path))
    lw.repair(str(path), str(out), **known.options)
    for folder in ("locations", "ledgers"):
        for file in path.rglob(f"{folder}/*") if folder not in rebuilt else ():
            assert (out / file.relative_to(path)).read_bytes() == file.read_bytes()
    base = case(known.info["base"]) if known.info.get("base") else known
    rows = lw.read(str(out), mode="AS_SYSTEM", **known.options)
    got = set(zip(rows["ledger_id"].to_pylist(), rows["entry_id"].to_pylist(), strict=True))
    assert got == {(line["ledger"], line["entry"]) for line in base.lines["entry"]}
    assert lw.verify(str(out), as_system=True, **known.options).ok


@pytest.mark.filterwarnings("ignore")
def test_database_of_ledgers_that_lost_its_log_is_rebuilt(tmp_path: Path) -> None:
    """RocksDB opens it as an empty database."""
    pytest.importorskip("rocksdict")
    known, path, out = case("db_direct_io"), Path(damaged("db_direct_io", tmp_path)), tmp_path / "out"
    (log,) = path.rglob("ledgers/*.log")
    log.write_bytes(bytes(4096) + log.read_bytes()[4096:])
    lw.repair(str(path), str(out), **known.options)
    assert lw.verify(str(out), as_system=True, **known.options).ok
    assert lw.read(str(out), mode="AS_SYSTEM", **known.options).num_rows == len(known.lines["entry"])


@pytest.mark.filterwarnings("ignore")
def test_locations_are_rebuilt_from_the_logs_for_the_ledgers_of_the_bookie(tmp_path: Path) -> None:
    """As `rebuild-db-ledger-locations-index` does: entries of deleted ledgers, which are still in the logs, get no location."""
    pytest.importorskip("rocksdict")
    known, out = case("db_compacted"), tmp_path / "out"
    path = Path(damaged("db_compacted", tmp_path))
    (locations,) = path.rglob("locations")
    shutil.rmtree(locations)
    lw.rebuild(str(path), str(out), what="index", **known.options)
    rows = lw.read(str(out), mode="AS_SYSTEM", **known.options)
    got = set(zip(rows["ledger_id"].to_pylist(), rows["entry_id"].to_pylist(), strict=True))
    assert got == {(line["ledger"], line["entry"]) for line in known.lines["entry"]}
    (ledgers,) = path.rglob("ledgers")
    shutil.rmtree(ledgers)
    with pytest.raises(DamageError, match="ledgers is damaged or missing"):
        lw.rebuild(str(path), str(tmp_path / "b"), what="index", **known.options)


@pytest.mark.filterwarnings("ignore")
def test_database_of_ledgers_with_keys_of_16_bytes_gets_keys_of_8(tmp_path: Path) -> None:
    rocksdict = pytest.importorskip("rocksdict")
    known, path, out = case("db_small"), Path(damaged("db_small", tmp_path)), tmp_path / "out"
    (folder,) = path.rglob("ledgers")
    with rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True)) as database:
        rows = {key: value for key, value in database.items() if key[0] < 0x80}
        for key, value in rows.items():
            del database[key]
            database[key + bytes(8)] = value
    lw.repair(str(path), str(out), **known.options)
    (folder,) = out.rglob("ledgers")
    with rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True)) as database:
        assert dict(database.items()) == rows


@pytest.mark.filterwarnings("ignore")
def test_last_id_and_last_mark_are_rebuilt(tmp_path: Path) -> None:
    path, out = Path(damaged("many_logs", tmp_path)), tmp_path / "out"
    (current,) = path.glob("ledger*/current")
    last = (current / "lastId").read_bytes()
    mark = (current / "lastMark").read_bytes()
    (current / "lastId").unlink()
    (current / "lastMark").write_bytes(b"\x7f" * 16)
    lw.rebuild(str(path), str(out), what="lastId,lastMark", **case("many_logs").options)
    rebuilt = out / current.relative_to(path)
    assert int((rebuilt / "lastId").read_bytes(), 16) <= int(last, 16)
    newest = max(int(log.stem, 16) for log in rebuilt.glob("*.log"))
    assert int((rebuilt / "lastId").read_bytes(), 16) == newest
    first = min(int(journal.stem, 16) for journal in out.glob("journal*/current/*.txn"))
    assert (rebuilt / "lastMark").read_bytes() == first.to_bytes(8, "big") + bytes(8) != mark


@pytest.mark.filterwarnings("ignore")
def test_log_whose_id_does_not_fit_into_a_location_is_not_read(tmp_path: Path) -> None:
    path, out, options = Path(damaged("dmg_base", tmp_path)), tmp_path / "out", case("dmg_base").options
    current = path / "ledger" / "current"
    shutil.copy(current / "0.log", current / "80000000.log")
    report = lw.verify(str(path), **options)
    assert "the bookie never reads it" in [fault.system for file in report.files for fault in file.faults]
    (current / "1.log").unlink()
    lw.repair(str(path), str(out), **options)
    assert lw.verify(str(out), **options).ok


@pytest.mark.filterwarnings("ignore")
def test_last_mark_inside_a_padding_is_replaced(tmp_path: Path) -> None:
    """Bytes that came into a journal before the mark moved the record to which it led."""
    path, out, options = Path(damaged("dmg_jbase", tmp_path)), tmp_path / "out", case("dmg_jbase").options
    newest = max(path.glob("journal/current/*.txn"), key=lambda journal: int(journal.stem, 16))
    positions = lw.read(newest, view="frames", columns=["position"])["position"].to_pylist()
    mark = int(newest.stem, 16).to_bytes(8, "big") + (positions[-1] + 12).to_bytes(8, "big")
    (path / "ledger/current/lastMark").write_bytes(mark)
    assert not lw.verify(str(path), **options).ok
    lw.repair(str(path), str(out), **options)
    assert lw.verify(str(out), **options).ok


@pytest.mark.filterwarnings("ignore")
def test_cookie_that_differs_from_most_others_is_replaced(tmp_path: Path) -> None:
    path, out = Path(damaged("two_dirs_index_dir", tmp_path)), tmp_path / "out"
    cookies = sorted(path.glob("*/current/VERSION"))
    assert len(cookies) > 2
    good = cookies[0].read_bytes()
    cookies[0].write_bytes(good.replace(b'bookieHost: "', b'bookieHost: "other-'))
    lw.repair(str(path), str(out), **case("two_dirs_index_dir").options)
    assert {file.read_bytes() for file in out.glob("*/current/VERSION")} == {good}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("old", "new"),
    [(b'ledgerDirs: "1\\tledger', b'ledgerDirs: "1\\tledgex'), (b'instanceId: "', b'instanceId: "?')],
)
@pytest.mark.parametrize("place", ["journal", "ledger"])
def test_of_two_cookies_the_one_that_agrees_with_the_directories_is_kept(
    tmp_path: Path, old: bytes, new: bytes, place: str
) -> None:
    path, out = Path(damaged("dmg_base", tmp_path)), tmp_path / "out"
    cookie = path / place / "current/VERSION"
    good = cookie.read_bytes()
    assert old in good
    cookie.write_bytes(good.replace(old, new))
    lw.repair(str(path), str(out), **case("dmg_base").options)
    assert [file.read_bytes() for file in out.glob("*/current/VERSION")] == [good, good]


@pytest.mark.filterwarnings("ignore")
def test_cookies_that_are_both_damaged_complete_each_other(tmp_path: Path) -> None:
    path, out = Path(damaged("dmg_base", tmp_path)), tmp_path / "out"
    first, second = sorted(path.glob("*/current/VERSION"))
    good = first.read_bytes()
    first.write_bytes(good.replace(b'instanceId: "', b'instanceId: "?'))
    second.write_bytes(good.replace(b"tledger", b"tledgex"))
    lw.repair(str(path), str(out), **case("dmg_base").options)
    assert [file.read_bytes() for file in out.glob("*/current/VERSION")] == [good, good]


@pytest.mark.alike
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "mark", [b"5", b"bookieHost", b"journalDir: ", b"ledgerDirs", b'\\tledger"', b"instanceId"]
)
@pytest.mark.parametrize("other", ["missing", "zeroed"])
def test_single_flipped_bit_of_the_only_cookie_is_corrected(tmp_path: Path, mark: bytes, other: str) -> None:
    path, out = Path(damaged("dmg_base", tmp_path)), tmp_path / "out"
    first, second = sorted(path.glob("*/current/VERSION"))
    good = first.read_bytes()
    data = bytearray(good)
    data[good.index(mark) + len(mark) - 1] ^= 4
    first.write_bytes(data)
    second.unlink() if other == "missing" else second.write_bytes(bytes(len(good)))
    lw.repair(str(path), str(out), **case("dmg_base").options)
    assert [file.read_bytes() for file in sorted(out.glob("*/current/VERSION"))] == [good, good]
    assert lw.verify(str(out), as_system=True, **case("dmg_base").options).to_dict()["system"]["opens"]


@pytest.mark.filterwarnings("ignore")
def test_cookie_with_an_instance_id_counts_more_than_one_without(tmp_path: Path) -> None:
    path, out = Path(damaged("dmg_base", tmp_path)), tmp_path / "out"
    first, _ = sorted(path.glob("*/current/VERSION"))
    good = first.read_bytes()
    first.write_bytes(good.replace(b"instanceId", b"instansIds"))
    lw.repair(str(path), str(out), **case("dmg_base").options)
    assert [file.read_bytes() for file in out.glob("*/current/VERSION")] == [good, good]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", ["journal", "ledger"])
def test_two_valid_bookie_ids_are_decided_by_the_option(tmp_path: Path, place: str) -> None:
    path, options = Path(damaged("dmg_base", tmp_path)), case("dmg_base").options
    cookie = path / place / "current/VERSION"
    good = cookie.read_bytes()
    start = good.index(b'bookieHost: "') + len(b'bookieHost: "')
    bookie = good[start : good.index(b'"', start)].decode()
    cookie.write_bytes(good.replace(bookie.encode(), b"other-" + bookie.encode()))
    report = lw.repair(str(path), str(tmp_path / "a"), **options)
    assert any("either may be right" in note for note in report.notes)
    lw.repair(str(path), str(tmp_path / "b"), **options, bookieId=bookie)
    assert [file.read_bytes() for file in tmp_path.glob("b/*/current/VERSION")] == [good, good]


@pytest.mark.filterwarnings("ignore")
def test_two_valid_instance_ids_are_decided_by_the_option(tmp_path: Path) -> None:
    path = Path(damaged("cookie_instance", tmp_path))
    instance = "0893fd37-717a-4b85-9948-a911175eebeb"
    good = next(
        file.read_bytes()
        for file in path.glob("*/current/VERSION")
        if b'"' + instance.encode() in file.read_bytes()
    )
    for file in path.glob("ledger/current/VERSION"):
        file.write_bytes(good.replace(b"0893fd37", b"1893fd37"))
    report = lw.repair(str(path), str(tmp_path / "a"), **case("cookie_instance").options)
    assert any("bookkeeper shell cookie_get" in note for note in report.notes)
    options = case("cookie_instance").options | {"instanceId": instance}
    lw.repair(str(path), str(tmp_path / "b"), **options)
    assert {file.read_bytes() for file in (tmp_path / "b").glob("*/current/VERSION")} == {good}


@pytest.mark.parametrize("verb", [lw.repair, lw.rebuild])
@pytest.mark.filterwarnings("ignore")
def test_report_names_the_ledgers_that_are_fenced_because_their_index_file_was_missing(
    verb: Callable[..., lw.Report], tmp_path: Path
) -> None:
    """Ledger 2 was open. The new index file of ledger 1, which the journal fences, needs no note."""
    path, options = damaged("dmg_base", tmp_path), case("dmg_base").options
    before = lw.read(path, view="ledgers", columns=["ledger_id", "fenced"]).to_pylist()
    assert [row["fenced"] for row in before] == [False, True, False]
    for ledger in (1, 2):
        (Path(path) / f"ledger/current/0/{ledger}/{ledger}.idx").unlink()
    report = verb(path, tmp_path / "out", **options)
    notes = [note for note in report.notes if "LedgerFencedException" in note]
    assert len(notes) == 1
    assert "ledger 2." in notes[0]
    after = lw.read(tmp_path / "out", view="ledgers", columns=["ledger_id", "fenced"]).to_pylist()
    assert [row["fenced"] for row in after] == [False, True, True]


@pytest.mark.filterwarnings("ignore")
def test_donor_does_not_prove_that_a_damaged_range_had_no_other_entry(tmp_path: Path) -> None:
    """The donor is undamaged and its ledgers have no gaps, but the damaged range may have had the last entry of one."""
    options = case("dmg_jbase").options
    path, donor = damaged("jrn_zero_sector", tmp_path), damaged("dmg_jbase", tmp_path / "donor")
    report = lw.repair([path, donor], tmp_path / "out", **options)
    assert report.rows == 39
    assert [cut["rows_lost"] for cut in report.to_dict()["cut"]] == [None]


@pytest.mark.parametrize(
    ("name", "folder", "others"),
    [
        ("jrn_swapped", "journal", "ledger"),
        ("dmg_base", "ledger", "journal"),
        ("two_dirs_index_dir", "index", "ledger"),
    ],
)
def test_single_directory_of_a_bookie_is_not_repaired_without_the_others(
    name: str, folder: str, others: str, tmp_path: Path
) -> None:
    with pytest.raises(
        lw.UsageError,
        match=f"this is the {folder} directory of a bookie without its {others} directories, so it cannot be repaired",
    ):
        lw.repair(case(name).path / folder, tmp_path / "out")
    assert not list(tmp_path.iterdir())


FOLDERS = {
    "other names": (["wal"], ["data-a", "data-b"], []),
    "names of roots": (["journal"], ["ledger"], []),
    "equal names": (["1/bk", "2/bk"], ["3/bk", "4/bk"], ["5/bk"]),
    "equal names of one kind": (["1/journal"], ["1/ledgers", "2/ledgers"], []),
    "one directory": (["1/bk"], ["1/bk"], []),
    "shared directory": (["1/bk"], ["1/bk", "2/bk"], []),
    "shared directory of indexes": (["1/journal"], ["2/bk", "3/bk"], ["3/bk"]),
    "name of another root": (["1/journal", "2/bk"], ["1/bk", "2/bk", "3/ledger"], []),
}


@pytest.mark.alike
@pytest.mark.parametrize("names", FOLDERS)
@pytest.mark.parametrize("in_place", [False, True])
def test_bookie_whose_configuration_names_directories_is_repaired(
    names: str, in_place: bool, tmp_path: Path
) -> None:
    """The result has a folder for each directory, with its name if these differ."""
    paths = [[str(tmp_path / "bookie" / name) for name in kind] for kind in FOLDERS[names]]
    options = {
        name: ",".join(kind)
        for name, kind in zip(("journalDirectories", "ledgerDirectories", "indexDirectories"), paths, strict=True)
        if kind
    }  # fmt: skip
    rows = [{"ledger_id": n % 3, "entry_id": n // 3, "payload": b"x" * n} for n in range(30)]
    lw.write(rows, paths[1][0], "bookkeeper.bookie", ledgerStorageClass="InterleavedLedgerStorage", **options)
    conf = tmp_path / "bk_server.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    expected = lw.read(conf)
    assert expected.num_rows == 30
    index = next((tmp_path / "bookie").rglob("1.idx"))
    index.unlink()
    assert not lw.verify(conf, as_system="4.18.0").system["opens"] or lw.verify(conf).faults_total
    out: Path = tmp_path / "out"
    if in_place:
        before = sorted((tmp_path / "bookie").rglob("*"))
        lw.repair(conf, in_place=True, backup=str(tmp_path / "backup"))
        assert sorted((tmp_path / "bookie").rglob("*")) == sorted([*before, index])
        out = conf
    else:
        lw.repair(conf, out)
        folders = {path.parent.name for path in out.rglob("current")}
        assert len(folders) == len({path for kind in paths for path in kind})
    report = lw.verify(out, as_system="4.18.0")
    assert report.ok
    assert report.system["opens"]
    assert lw.read(out) == expected
    assert lw.read(out, mode="AS_SYSTEM").num_rows == 30


@pytest.mark.parametrize("gone", ["l1", "j0", "i0"])
@pytest.mark.filterwarnings("ignore")
def test_missing_directory_that_a_configuration_names_is_an_error_and_the_others_are_read(
    gone: str, tmp_path: Path
) -> None:
    """As of a disk that is not mounted. A repair makes the directory again."""
    names = {
        "journalDirectories": ["j0", "j1"],
        "ledgerDirectories": ["l0", "l1"],
        "indexDirectories": ["i0"],
    }
    options = {
        name: ",".join(str(tmp_path / folder) for folder in folders) for name, folders in names.items()
    }
    rows = [{"ledger_id": n % 3, "entry_id": n // 3, "payload": b"x" * n} for n in range(30)]
    lw.write(
        rows, tmp_path / "l0", "bookkeeper.bookie", ledgerStorageClass="InterleavedLedgerStorage", **options
    )
    conf = tmp_path / "bk_server.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    expected = lw.read(conf)
    shutil.rmtree(tmp_path / gone)
    report = lw.verify(conf, as_system="4.18.0")
    assert not report.system["opens"]
    assert f"the directory {tmp_path / gone} is missing or empty" in str(report.to_dict())
    with pytest.raises(DamageError, match="missing"):
        lw.read(conf)
    assert lw.read(conf, mode="DROPMALFORMED") == expected
    assert not (tmp_path / gone).exists()
    lw.repair(conf, tmp_path / "out")
    repaired = lw.verify(tmp_path / "out", as_system="4.18.0")
    assert repaired.ok
    assert repaired.system["opens"]
    assert lw.read(tmp_path / "out") == expected


@pytest.mark.alike
@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("names", [["l0", "l1"], ["0/ledger", "1/ledger"]])
@pytest.mark.filterwarnings("ignore")
def test_bookie_without_the_first_ledger_directory_of_its_configuration_is_read_and_repaired(
    names: list[str], empty: bool, tmp_path: Path
) -> None:
    first, second = (tmp_path / name for name in names)
    options = {"journalDirectories": str(tmp_path / "j"), "ledgerDirectories": f"{first},{second}"}
    rows = [{"ledger_id": n % 3, "entry_id": n // 3, "payload": b"x" * 100} for n in range(90)]
    lw.write(rows, first, "bookkeeper.bookie", logSizeLimit=2000, **options)
    conf = tmp_path / "bk_server.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    newest = max(first.rglob("*.log"), key=lambda log: int(log.stem, 16))
    newest.rename(second / "current" / newest.name)
    expected = {(row["ledger_id"], row["entry_id"]) for row in lw.read(conf).to_pylist()}
    assert len(expected) == 90
    shutil.rmtree(first)
    if empty:
        first.mkdir()
    assert f"the directory {first} is missing or empty" in str(lw.verify(conf).to_dict())
    with pytest.raises(DamageError, match="missing"):
        lw.read(conf)
    rest = lw.read(conf, mode="DROPMALFORMED")
    assert 0 < rest.num_rows < len(expected)
    assert {(row["ledger_id"], row["entry_id"]) for row in rest.to_pylist()} < expected
    lw.repair(conf, tmp_path / "out")
    assert lw.verify(tmp_path / "out", as_system="4.18.0").system["opens"]
    assert lw.read(tmp_path / "out") == rest


def keys_of(home: Path) -> set[bytes]:
    """Return the master keys in the index and the journals of a bookie."""
    out = {FileInfo.of(file.read_bytes()).master_key for file in home.rglob("*.idx")}
    for file in home.rglob("*.txn"):
        rows = lw.read(file, columns=["kind", "data"], mode="DROPMALFORMED").to_pylist()
        out |= {row["data"] for row in rows if row["kind"] == "master_key"}
    return out


@pytest.mark.parametrize("name", ["idx_key_flip", "jrn_key_flip", "jrn_second_key"])
@pytest.mark.filterwarnings("ignore")
def test_damaged_master_key_becomes_that_of_the_other_ledgers(name: str, tmp_path: Path) -> None:
    path, base = damaged(name, tmp_path), case(str(case(name).info["base"])).path
    assert len(keys_of(Path(path))) == 2
    lw.repair(path, tmp_path / "out")
    assert keys_of(tmp_path / "out") == keys_of(base)
    assert not [fault for _, fault in lw.verify(tmp_path / "out").faults if "master key" in fault.detail]


@pytest.mark.filterwarnings("ignore")
def test_master_key_of_which_nothing_tells_the_right_copy_is_not_changed(tmp_path: Path) -> None:
    rows = [{"ledger_id": 1, "entry_id": 0, "payload": b"x"}]
    lw.write(rows, tmp_path / "in", "bookkeeper.bookie", passwd=b"pw")
    (index,) = (tmp_path / "in").rglob("*.idx")
    data = bytearray(index.read_bytes())
    data[12:14] = b"no"
    index.write_bytes(data)
    (fault,) = (fault for _, fault in lw.verify(tmp_path / "in").faults if fault.severity != "info")
    assert "the master key of ledger 1 is not the one in" in fault.detail
    lw.repair(tmp_path / "in", tmp_path / "out")
    assert len(keys_of(tmp_path / "out")) == 2
    lw.repair(tmp_path / "in", tmp_path / "with password", passwd=b"pw")
    assert len(keys_of(tmp_path / "with password")) == 1


@pytest.mark.filterwarnings("ignore")
def test_last_explicit_lac_of_a_journal_must_have_the_right_digest(tmp_path: Path) -> None:
    """The bookie serves the one that it replays last, and with a wrong one a client cannot open the ledger."""
    path, options = damaged("dmg_jbase", tmp_path), case("dmg_jbase").options
    for file in (tmp_path / "in").rglob("*.txn"):
        data = bytearray(file.read_bytes())
        for row in lw.read(file, columns=["kind", "position"]).to_pylist():
            if row["kind"] == "explicit_lac":
                at = row["position"] + 12
                assert int.from_bytes(data[at : at + 8], "big", signed=True) == EXPLICIT_LAC
                data[at + 27] ^= 1
        file.write_bytes(data)
    report = lw.verify(path, as_system="4.18.0", **options)
    assert not report.ok
    assert report.system is not None
    assert report.system["rows_lost"] > 0
    lw.repair(path, tmp_path / "out", **options)
    repaired = lw.verify(tmp_path / "out", as_system="4.18.0", **options)
    assert repaired.ok
    assert repaired.system is not None
    assert repaired.system["rows_lost"] == 0


@pytest.mark.filterwarnings("ignore")
def test_index_file_with_an_incomplete_page_is_damaged_and_completed(tmp_path: Path) -> None:
    """A bookie lists no entry of an incomplete page, although their locations are right."""
    path, options, name = damaged("dmg_base", tmp_path), case("dmg_base").options, "ledger/current/0/0/0.idx"
    index = tmp_path / "in" / name
    healthy = index.read_bytes()
    index.write_bytes(healthy[:2000])
    report = lw.verify(path, as_system="4.18.0", **options)
    assert [(file, fault.offset) for file, fault in report.faults if fault.severity == "error"] == [
        (name, 1024)
    ]
    assert report.system is not None
    assert report.system["rows_lost"] == 9
    lw.repair(path, tmp_path / "out", **options)
    assert (tmp_path / "out" / name).read_bytes() == healthy


@pytest.mark.filterwarnings("ignore")
def test_index_files_of_another_page_size_are_not_changed(tmp_path: Path) -> None:
    rows = [{"ledger_id": ledger, "entry_id": 0, "payload": b"x"} for ledger in range(3)]
    lw.write(rows, tmp_path / "in", "bookkeeper.bookie", pageSize=4096)
    report = lw.verify(tmp_path / "in")
    assert report.ok
    texts = [fault.detail for _, fault in report.faults if fault.severity == "warning"]
    assert texts == ["no index file has complete pages of 8,192 bytes"]
    assert not lw.verify(tmp_path / "in", pageSize=4096).faults
    lw.repair(tmp_path / "in", tmp_path / "out")
    for index in (tmp_path / "in").rglob("*.idx"):
        assert (tmp_path / "out" / index.relative_to(tmp_path / "in")).read_bytes() == index.read_bytes()


@pytest.mark.filterwarnings("ignore")
def test_entry_that_its_ledger_id_hides_is_damage_and_becomes_a_filler(tmp_path: Path) -> None:
    """Every reader skips a frame of ledger -1."""
    path, options, name = damaged("dmg_base", tmp_path), case("dmg_base").options, "ledger/current/0.log"
    log = tmp_path / "in" / name
    at = lw.read(log, columns=["position"], **_password(options))["position"].to_pylist()[1]
    data = bytearray(log.read_bytes())
    data[at + 4 : at + 12] = b"\xff" * 8
    log.write_bytes(data)
    with pytest.raises(DamageError, match="a frame of ledger -1 has the content of entry"):
        lw.read(path, **_password(options))
    errors = {
        (file, fault.offset) for file, fault in lw.verify(path, **options).faults if fault.severity == "error"
    }
    assert (name, at) in errors
    for journal in (tmp_path / "in").rglob("*.txn"):
        journal.unlink()
    lw.repair(path, tmp_path / "out", **options)
    assert lw.verify(tmp_path / "out", **options).ok
    rows = lw.read(tmp_path / "out" / name, **_password(options))
    assert len(rows) == len(lw.read(case("dmg_base").path / name, **_password(options))) - 1


@pytest.mark.filterwarnings("ignore::logwright.codec.fault.DamageWarning")
@pytest.mark.parametrize("file", ["ledger/current/0.log", "journal/current/1.txn"])
@pytest.mark.parametrize("digest", ["CRC32C", "HMAC"])
def test_entry_with_an_impossible_size_comes_back_byte_for_byte(
    digest: str, file: str, tmp_path: Path
) -> None:
    bookie, options = tmp_path / "bookie", {"passwd": b"secret"} if digest == "HMAC" else {}
    rows = [{"ledger_id": i % 2, "entry_id": i // 2, "payload": b"p" * (20 + i)} for i in range(12)]
    lw.write(rows, bookie, "bookkeeper.bookie", digestType=digest, journalWriteData=True, **options)
    view = "entrylog" if file.endswith("log") else "journal"
    served = lw.read(bookie, view=view, **options).num_rows
    healthy = (bookie / file).read_bytes()
    place = lw.read(bookie / file, columns=["position"], **options)["position"][5].as_py()
    (bookie / file).write_bytes(healthy[:place] + b"\x7f\xff\xff\xff" + healthy[place + 4 :])
    assert not lw.verify(bookie, **options).ok
    assert lw.read(bookie, view=view, mode="PERMISSIVE", **options).num_rows == served
    report = lw.repair(bookie, tmp_path / "out", **options)
    assert not report.incomplete
    assert (tmp_path / "out" / file).read_bytes() == healthy
