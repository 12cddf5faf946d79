"""The directory of a database: its plan and its views, for golden databases and some written for the test."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from leveldb_db import GOLDEN, Database, Op, pairs

import logwright as lw
from logwright.cli import main
from logwright.codec.base import Match
from logwright.codec.fault import DamageError, Fault, UsageError
from logwright.codec.leveldb.names import table_name
from logwright.codec.leveldb.store.db import LAYOUT
from logwright.readers.listing import open_listing

CASES = sorted(path.parent for path in GOLDEN.glob("*/truth.jsonl"))


def results(case: Path) -> dict[str, tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Return the answers of the real system by step: the result, and the entries if they are listed."""
    by_step: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {}
    for line in (case / "truth.jsonl").read_text().splitlines():
        values = json.loads(line)
        if values.get("t") == "result":
            by_step[values["step"]] = (values, [])
        elif "t" not in values:
            by_step[next(reversed(by_step))][1].append(values)
    return by_step


def entries(case: Path, step: str) -> list[tuple[str, str | tuple[int, str]]] | None:
    """Return the entries of a step, or None if they are recorded as a difference to another."""
    known = results(case)
    result, rows = known[step]
    if "same_entries_as" in result:
        return entries(case, result["same_entries_as"])
    if "entries_relative_to" in result:
        return None
    return [(row["k"], row["v"] if "v" in row else (row["v_len"], row["v_sha256"])) for row in rows]


def shown(rows: pa.Table) -> list[tuple[str, str | tuple[int, str]]]:
    """Return rows in the form of the recorded entries."""
    return [
        (key.hex(), value.hex() if len(value) <= 96 else (len(value), hashlib.sha256(value).hexdigest()))
        for key, value in pairs(rows)
        if key is not None
    ]


def healthy(case: Path) -> bool:
    about = json.loads((case / "truth.jsonl").read_text().splitlines()[0])
    return not about["damaged"]


HEALTHY = [case for case in CASES if healthy(case)]
DAMAGED = [case for case in CASES if not healthy(case)]


def test_golden_databases_exist() -> None:
    assert len(HEALTHY) >= 24
    assert len(DAMAGED) >= 35


@pytest.mark.parametrize("case", HEALTHY, ids=lambda case: case.name)
def test_live_view_equals_the_iterator(case: Path) -> None:
    rows = lw.read(case / "db")
    if case.name == "custom_comparator":
        # Its order is unknown here.
        recorded = entries(case, "open_with_comparator") if "open_with_comparator" in results(case) else None
        recorded = recorded or next(iter([entries(case, step) for step in results(case)]))
        assert recorded is not None
        assert not recorded or sorted(shown(rows)) == sorted(recorded)
        return
    assert shown(rows) == entries(case, "open")
    assert rows["type"].to_pylist() == ["value"] * len(rows)


@pytest.mark.parametrize("case", HEALTHY, ids=lambda case: case.name)
def test_healthy_database_has_no_fault(case: Path) -> None:
    report = lw.verify(case / "db")
    assert report.ok
    rows = lw.scan(case / "db", columns="*", mode="PERMISSIVE")
    assert rows.to_table().num_rows == lw.read(case / "db").num_rows == rows.report.rows
    assert rows.report.ok


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
@pytest.mark.parametrize("case", DAMAGED, ids=lambda case: case.name)
def test_rows_of_damaged_databases_existed(case: Path) -> None:
    dropped = lw.scan(case / "db", mode="DROPMALFORMED")
    rows = dropped.to_table()
    if "before_damage" in results(case):
        before = entries(case, "before_damage")
        assert before is not None
        # Rows revealed by damage may be older ones: a deletion or a newer value may be lost.
        known = dict(before)
        wrong = [(key, value) for key, value in shown(rows) if known.get(key) != value]
        assert not wrong or case.name in HIDDEN
    loose = lw.scan(case / "db", mode="PERMISSIVE")
    kept = loose.to_table()
    holes = kept.filter(pc.is_valid(kept["_corrupt_length"]))
    assert shown(kept) == shown(rows)
    assert loose.report.rows == len(kept) - len(holes)
    assert dropped.report.rows == len(rows)
    assert without_bits(loose.report.faults) == dropped.report.faults
    assert holes["key"].null_count == len(holes)
    if not dropped.report.ok:
        with pytest.raises(DamageError):
            lw.read(case / "db")
    else:
        assert shown(lw.read(case / "db")) == shown(rows)


def without_bits(faults: Sequence[tuple[str, Fault]]) -> list[tuple[str, Fault]]:
    """Return the faults without the flipped bits, which mode PERMISSIVE names."""
    return [(name, replace(fault, detail=fault.detail.partition("; bit ")[0])) for name, fault in faults]


HIDDEN = {"reuse_logs_torn"}
"""The rows after the damage are newer."""


@pytest.mark.alike
@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
@pytest.mark.parametrize("case", [*HEALTHY, *DAMAGED], ids=lambda case: case.name)
def test_history_view_contains_the_live_rows(case: Path) -> None:
    history = lw.read(case / "db", view="history", mode="DROPMALFORMED")
    live = lw.read(case / "db", mode="DROPMALFORMED")
    now = history.filter(pc.equal(history["state"], "live"))
    assert sorted(pairs(now)) == sorted(pairs(live))
    assert set(history["state"].to_pylist()) <= {"live", "overwritten", "deleted", "unreferenced"}
    assert history["file"].null_count == 0
    assert set(pc.unique(history.filter(pc.equal(history["type"], "deletion"))["state"]).to_pylist()) <= {
        "deleted", "overwritten", "unreferenced",
    }  # fmt: skip


# The plan


def small_database() -> Database:
    return Database(
        tables=[
            (0, 9, [Op(b"b", 12, b"new"), Op(b"d", 13, None)]),
            (0, 8, [Op(b"a", 9, b"x"), Op(b"b", 10, None)]),
            (1, 6, [Op(b"b", 5, b"old"), Op(b"c", 6, b"y")]),
            (1, 7, [Op(b"d", 4, b"gone"), Op(b"e", 7, b"z")]),
        ],
        logs={10: [Op(b"c", 14, None), Op(b"f", 15, b"log")]},
        leftover={5: [Op(b"zombie", 1, b"!")]},
    )


def roles(path: Path) -> dict[str, str]:
    return {file["name"]: file["role"] for file in lw.inspect(path)["files"]}


def test_plan_of_a_database(tmp_path: Path) -> None:
    path = small_database().write(tmp_path / "db")
    (path / "LOCK").touch()
    (path / "000003.log").write_bytes(b"")
    (path / "7.log").write_bytes(b"")
    (path / "000011.dbtmp").write_bytes(b"x")
    (path / "MANIFEST-000002").write_bytes(b"")
    (path / "notes.txt").write_bytes(b"")
    summary = lw.inspect(path)
    assert summary["codec"] == "leveldb.db"
    assert [file["name"] for file in summary["files"]][:5] == [
        "000009.ldb", "000008.ldb", "000006.ldb", "000007.ldb", "000010.log",
    ]  # fmt: skip
    assert roles(path) == {
        "000009.ldb": "primary",
        "000008.ldb": "primary",
        "000006.ldb": "primary",
        "000007.ldb": "primary",
        "000010.log": "primary",
        "CURRENT": "metadata",
        "MANIFEST-000011": "derived",
        "LOCK": "metadata",
        "000003.log": "leftover",
        "000005.ldb": "leftover",
        "000011.dbtmp": "leftover",
        "7.log": "leftover",
        "MANIFEST-000002": "leftover",
        "notes.txt": "foreign",
    }
    facts = summary["facts"]
    assert facts["levels"] == [
        {"level": level, "tables": 2, "bytes": facts["levels"][level]["bytes"]} for level in (0, 1)
    ]
    assert (facts["tables"], facts["logs"], facts["last_sequence"]) == (4, 1, 13)
    fault_texts = {fault["file"]: (fault["severity"], fault["detail"]) for fault in summary["faults"]}
    assert fault_texts["7.log"][0] == "warning"
    assert "000007.log" in fault_texts["7.log"][1]
    assert fault_texts["000005.ldb"] == (
        "info",
        "not named by the manifest; LevelDB deletes it when it opens the database",
    )


def test_table_with_the_old_suffix_is_found(tmp_path: Path) -> None:
    path = small_database().write(tmp_path / "db")
    (path / "000009.ldb").rename(path / "000009.sst")
    assert pairs(lw.read(path)) == small_database().live()
    shutil.copy(path / "000008.ldb", path / "000009.ldb")
    assert roles(path)["000009.sst"] == "leftover"


def test_table_with_an_unusable_name(tmp_path: Path) -> None:
    path = small_database().write(tmp_path / "db")
    (path / "000007.ldb").rename(path / "7.ldb")
    fault_texts = {fault["detail"] for fault in lw.inspect(path)["faults"]}
    assert "IO error: db/000007.ldb: No such file or directory" in fault_texts
    assert not any("missing files" in detail for detail in fault_texts)
    with pytest.raises(DamageError, match="No such file"):
        lw.read(path)
    (path / "7.ldb").unlink()
    with pytest.raises(DamageError, match=r"Corruption: 1 missing files; e\.g\.: db/000007\.ldb"):
        lw.read(path)


def test_tables_unknown_to_a_torn_manifest_are_adopted(tmp_path: Path) -> None:
    """The tables that it names are gone: newer ones replace them."""
    database = Database(tables=[(1, 5, [Op(b"a", 1)])], leftover={3: [Op(b"old", 1)]}, last_sequence=2)
    path = database.write(tmp_path / "db")
    after = Database(tables=[(1, 20, [Op(b"a", 1, b"kept"), Op(b"b", 2)])]).write(tmp_path / "after")
    shutil.copy(after / "000020.ldb", path)
    assert roles(path)["000020.ldb"] == "leftover"
    (path / "000005.ldb").unlink()
    assert roles(path)["000020.ldb"] == "primary"
    assert roles(path)["000003.ldb"] == "leftover"
    with pytest.raises(DamageError, match="1 missing files"):
        lw.read(path)
    with pytest.warns(lw.DamageWarning):
        assert pairs(lw.read(path, mode="DROPMALFORMED")) == [(b"a", b"kept"), (b"b", b"v")]


def test_table_of_another_size_than_in_the_manifest(tmp_path: Path) -> None:
    path = small_database().write(tmp_path / "db")
    with (path / "000007.ldb").open("ab") as file:
        file.write(b"more")
    with pytest.raises(DamageError, match="but the manifest says 130"):
        lw.read(path)


@pytest.mark.parametrize(
    ("names", "match"),
    [
        (["CURRENT", "MANIFEST-000002", "000003.log"], Match.SURE),
        (["MANIFEST-000002"], Match.NAME),
        (["000005.ldb"], Match.NAME),
        (["000005.sst"], Match.NAME),
        (["CURRENT", "000003.log"], Match.NAME),
        (["000003.log"], Match.MAYBE),
        (["CURRENT"], Match.NO),
        (["00000000000000000000.log"], Match.NO),
        (["3.log"], Match.NO),
        ([], Match.NO),
    ],
)
def test_directories_are_recognised_by_their_files(tmp_path: Path, names: list[str], match: Match) -> None:
    for name in names:
        (tmp_path / name).touch()
    assert LAYOUT.recognise(open_listing(str(tmp_path))) is match


def test_comparator_other_than_the_requested_one(tmp_path: Path) -> None:
    path = small_database().write(tmp_path / "db")
    assert pairs(lw.read(path, comparator="leveldb.BytewiseComparator")) == small_database().live()
    with pytest.raises(DamageError, match="does not match existing comparator : mine"):
        lw.read(path, comparator="mine")


def test_files_are_committed_with_current_last() -> None:
    names = ["CURRENT", "MANIFEST-000009", "000004.log", "000005.ldb", "000003.ldb"]
    assert LAYOUT.order(names) == ["000003.ldb", "000005.ldb", "000004.log", "MANIFEST-000009", "CURRENT"]


# Views


def test_newest_value_of_each_key(tmp_path: Path) -> None:
    path = small_database().write(tmp_path / "db")
    assert pairs(lw.read(path)) == [(b"a", b"x"), (b"b", b"new"), (b"e", b"z"), (b"f", b"log")]
    every = lw.read(path, columns="*").to_pylist()
    assert [(row["file"], row["level"], row["sequence"]) for row in every] == [
        (8, 0, 9), (9, 0, 12), (7, 1, 7), (10, None, 15),
    ]  # fmt: skip


def test_history_lists_every_operation_and_its_state(tmp_path: Path) -> None:
    path = small_database().write(tmp_path / "db")
    rows = lw.read(path, view="history").to_pylist()
    assert [(row["file"], row["key"], row["sequence"], row["state"]) for row in rows] == [
        (9, b"b", 12, "live"),
        (9, b"d", 13, "deleted"),
        (8, b"a", 9, "live"),
        (8, b"b", 10, "overwritten"),
        (6, b"b", 5, "deleted"),
        (6, b"c", 6, "deleted"),
        (7, b"d", 4, "deleted"),
        (7, b"e", 7, "live"),
        (10, b"c", 14, "deleted"),
        (10, b"f", 15, "live"),
        (5, b"zombie", 1, "unreferenced"),
    ]
    assert [row["level"] for row in rows] == [0, 0, 0, 0, 1, 1, 1, 1, None, None, None]
    alone = lw.read(path, view="history", columns=["file", "position"])
    assert alone["file"].to_pylist() == [row["file"] for row in rows]
    assert lw.read(path, view="history", columns=["state"])["state"].to_pylist() == [
        row["state"] for row in rows
    ]
    rows_read = lw.read(path, view="history", filter=[("state", "==", "deleted"), ("key", ">", b"c")])
    assert rows_read["key"].to_pylist() == [b"d", b"d"]


def test_rows_frames_and_file_of_a_database(tmp_path: Path) -> None:
    path = small_database().write(tmp_path / "db")
    rows = lw.read(path, view="rows")
    assert rows["sequence"].to_pylist() == [12, 13, 9, 10, 5, 6, 4, 7, 14, 15]
    assert set(lw.read(path, view="frames")["kind"].to_pylist()) == {"data", "metaindex", "index"}
    assert len(lw.read(path, view="file")) == 4
    assert lw.read(path, view="batches")["count"].to_pylist() == [1, 1]
    assert "000005.ldb" in lw.read(path, view="files")["name"].to_pylist()
    with pytest.raises(UsageError, match="unknown view 'lives'"):
        lw.read(path, view="lives")
    with pytest.raises(UsageError, match=r"Valid values: live, rows, history, batches, frames, file, files$"):
        lw.read(path, view="nope")


def test_unpublished_entries_are_invisible(tmp_path: Path) -> None:
    database = Database(tables=[(2, 5, [Op(b"a", 3), Op(b"b", 9), Op(b"b", 2, b"seen")])], last_sequence=5)
    path = database.write(tmp_path / "db")
    assert pairs(lw.read(path)) == [(b"a", b"v"), (b"b", b"seen")]
    states = lw.read(path, view="history")["state"].to_pylist()
    assert states == ["live", "unreferenced", "live"]
    # Entries of logs are published, and all entries before them.
    database.logs = {7: [Op(b"c", 9)]}
    assert pairs(lw.read(database.write(tmp_path / "other"))) == [(b"a", b"v"), (b"b", b"v"), (b"c", b"v")]


@pytest.mark.parametrize("columns", [["key"], ["sequence"], ["type"], ["value"], ["position", "key"], []])
def test_selected_columns_hold_the_rows_of_a_complete_read(tmp_path: Path, columns: list[str]) -> None:
    path = small_database().write(tmp_path / "db")
    rows = lw.read(path, columns="*")
    selected = lw.read(path, columns=columns)
    assert selected.num_rows == rows.num_rows
    assert selected == rows.select(columns)
    assert lw.read(path, columns=columns, filter=[("key", "==", b"e")]).num_rows == 1


def test_filter_applies_to_the_newest_value(tmp_path: Path) -> None:
    path = small_database().write(tmp_path / "db")
    assert lw.read(path, filter=[("key", ">=", b"b"), ("key", "<", b"f")])["key"].to_pylist() == [b"b", b"e"]
    # A condition on the value applies to the newest one.
    assert lw.read(path, filter=[("value", "==", b"old")]).num_rows == 0
    assert lw.read(path, filter=[("sequence", "<", 9)])["key"].to_pylist() == [b"e"]
    assert lw.read(path, filter="key == b or value == log")["key"].to_pylist() == [b"b", b"f"]
    assert lw.read(path, filter=pc.field("value") == b"z", columns=["key"])["key"].to_pylist() == [b"e"]
    for limit in range(6):
        assert (
            lw.read(path, limit=limit, columns=["key"])["key"].to_pylist() == [b"a", b"b", b"e", b"f"][:limit]
        )


def test_filter_on_the_key_skips_tables_and_blocks(tmp_path: Path) -> None:
    database = Database(
        tables=[
            (2, number, [Op(b"%d%04d" % (number, n), 1, b"x" * 20) for n in range(300)])
            for number in (3, 4, 5)
        ]
    )
    path = database.write(tmp_path / "db")
    scan = lw.scan(path, filter=[("key", ">=", b"40100"), ("key", "<=", b"40103")])
    assert scan.to_table().num_rows == 4
    assert [file.path for file in scan.report.files] == [table_name(4)]
    assert scan.report.files[0].rows < 20


def test_two_databases_as_one_table(tmp_path: Path) -> None:
    report = small_database().write(tmp_path / "one")
    other = Database(logs={3: [Op(b"k", 1)]}).write(tmp_path / "two")
    scan = lw.scan([report, other])
    assert scan.to_table()["key"].to_pylist() == [b"a", b"b", b"e", b"f", b"k"]
    assert str(other / "000003.log") in [file.path for file in scan.report.files]
    assert scan.report.rows == 5


# Unknown orders


def test_tables_of_an_unknown_comparator_keep_their_stored_order(tmp_path: Path) -> None:
    database = Database(
        tables=[(1, 5, [Op(b"z", 4), Op(b"m", 5), Op(b"m", 2, b"old"), Op(b"a", 6)])],
        logs={7: [Op(b"a", 9, None), Op(b"q", 10)]},
        comparator="mine",
    )
    path = database.write(tmp_path / "db")
    scan = lw.scan(path)
    assert pairs(scan.to_table()) == [(b"z", b"v"), (b"m", b"v"), (b"q", b"v")]
    assert [(fault.kind, str(fault.severity)) for _, fault in scan.report.faults] == [("bad order", "info")]
    assert "mine" in str(scan.report)
    assert lw.read(path, view="history")["state"].to_pylist() == [
        "live", "live", "overwritten", "deleted", "deleted", "live",
    ]  # fmt: skip
    assert lw.read(path, filter=[("key", "==", b"q")]).num_rows == 1
    database.last_sequence = 4
    database.logs = {}
    assert pairs(lw.read(database.write(tmp_path / "behind"))) == [(b"z", b"v"), (b"m", b"old")]


def test_unordered_table_is_reported(tmp_path: Path) -> None:
    path = Database(tables=[(1, 5, [Op(b"z", 4), Op(b"m", 5)])], comparator="mine").write(tmp_path / "db")
    lie = Database(tables=[(1, 5, [Op(b"m", 4), Op(b"z", 5)])]).write(tmp_path / "lie")
    manifest = next(lie.glob("MANIFEST-*"))
    shutil.copy(manifest, path / manifest.name)
    with pytest.raises(DamageError, match="m comes after z"):
        lw.read(path)
    scan = lw.scan(path, mode="DROPMALFORMED")
    assert sorted(scan.to_table()["key"].to_pylist()) == [b"m", b"z"]
    assert not scan.report.ok


def test_unordered_keys_are_reported_once(tmp_path: Path) -> None:
    ops, more = [Op(b"z", 4), Op(b"m", 5)], [Op(b"y", 6), Op(b"b", 7)]
    tables: list[tuple[int, int, Sequence[Op]]] = [(1, 5, ops), (2, 6, more)]
    path = Database(tables=tables, comparator="mine").write(tmp_path / "db")
    lie = Database(tables=tables).write(tmp_path / "lie")
    shutil.copy(next(lie.glob("MANIFEST-*")), path)
    scan = lw.scan(path, mode="DROPMALFORMED")
    assert sorted(scan.to_table()["key"].to_pylist()) == [b"b", b"m", b"y", b"z"]
    assert str(scan.report).count("comes after") == 1


# The command line


def run(out: pytest.CaptureFixture[str], *words: object) -> str:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert not ended.value.code
    return out.readouterr().out


def test_dump_inspect_and_verify_accept_a_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = small_database().write(tmp_path / "db")
    dumped = run(capsys, "dump", path, "--columns", "key,value", "--format", "jsonl")
    assert [json.loads(line) for line in dumped.splitlines()] == [
        {"key": key.decode(), "value": value.decode()} for key, value in small_database().live()
    ]
    assert "MANIFEST-000011" in run(capsys, "inspect", path)
    assert "ok" in run(capsys, "verify", path)
    assert "view history" in run(capsys, "codecs", "leveldb.db")


def flushed_log(tmp_path: Path) -> Path:
    """Write a database that crashed after it had flushed a log to table 12 and before an edit named the table."""
    ops = [Op(b"k%02d" % i, 20 + i, b"v" * 100) for i in range(30)]
    database = Database(tables=[(1, 6, [Op(b"a", 5)])], logs={10: ops}, leftover={12: ops})
    return database.write(tmp_path / "db")


@pytest.mark.filterwarnings("ignore::logwright.codec.fault.DamageWarning")
def test_table_of_a_damaged_log_is_kept_although_no_manifest_names_it(tmp_path: Path) -> None:
    """LevelDB would delete it and lose what the log has lost."""
    path = flushed_log(tmp_path)
    healthy = pairs(lw.read(path))
    assert roles(path)["000012.ldb"] == "leftover"
    log = path / "000010.log"
    data = bytearray(log.read_bytes())
    data[1000] ^= 1
    log.write_bytes(data)
    assert roles(path)["000012.ldb"] == "primary"
    with pytest.raises(DamageError, match="no log in use has all of them"):
        lw.read(path)
    lw.repair(path, tmp_path / "out")
    assert pairs(lw.read(tmp_path / "out")) == healthy
    assert lw.verify(tmp_path / "out", as_system=True).ok


@pytest.mark.parametrize("size", [0, 1000, -20])
def test_damage_of_a_file_that_the_database_does_not_use_is_no_error(size: int, tmp_path: Path) -> None:
    """A crash leaves a part of a table. A view that shows unused files too reads what is there."""
    path = flushed_log(tmp_path)
    table = path / "000012.ldb"
    table.write_bytes(table.read_bytes()[:size])
    assert lw.verify(path).ok
    for mode in ("FAILFAST", "DROPMALFORMED"):
        assert lw.read(path, view="history", mode=mode, filter="state != 'unreferenced'").num_rows == 31
