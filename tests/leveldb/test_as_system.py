"""Reading a LevelDB database as the real one would serve it: `mode="AS_SYSTEM"`."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from leveldb_startup import GOLDEN

import logwright as lw
from logwright.codec.fault import DamageError, UsageError
from logwright.readers.plan import AsSystem, reading
from logwright.readers.report import Report
from logwright.readers.resolve import resolve
from logwright.readers.task import split_tasks

pytestmark = pytest.mark.filterwarnings("ignore::logwright.codec.fault.DamageWarning")
DAMAGED = GOLDEN / "table_flip_data/db"
SOUND = GOLDEN / "deletes_tables/db"


def test_healthy_databases_read_alike() -> None:
    for view in (None, "live"):
        assert lw.read(SOUND, view=view, mode="AS_SYSTEM").equals(lw.read(SOUND))


def test_columns_filters_and_limits() -> None:
    rows = lw.read(DAMAGED, mode="AS_SYSTEM", columns="*")
    assert len(rows) == 51
    assert set(rows["file"].to_pylist()) == {5}
    assert lw.read(DAMAGED, mode="AS_SYSTEM", columns="key", limit=7).equals(rows.select(["key"]).slice(0, 7))
    assert lw.read(DAMAGED, mode="AS_SYSTEM", limit=0).num_rows == 0
    # Its rows come in several batches.
    assert lw.read(SOUND, mode="AS_SYSTEM", limit=82).equals(lw.read(SOUND).slice(0, 82))
    rows_read = lw.read(DAMAGED, mode="AS_SYSTEM", filter=[("sequence", ">", 60)], columns=["key"])
    assert rows_read.column_names == ["key"]
    assert len(rows_read) == 10
    assert lw.read(DAMAGED, mode="AS_SYSTEM", filter=[("key", "<", b"a")]).num_rows == 0


def test_report_has_the_verdict_of_the_system() -> None:
    scan = lw.scan(DAMAGED, mode="AS_SYSTEM")
    rows = scan.to_table()
    report = scan.report.to_dict()
    assert report["rows"] == len(rows) == 51
    assert report["bytes"] == 3908
    assert [file["path"] for file in report["files"]] == ["000005.ldb", "000004.log"]
    assert any("clients skip unreadable data" in note for note in scan.report.notes)
    assert not report["faults_total"]


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({}, 51),
        ({"verify_checksums": False}, 69),
        ({"paranoid_checks": True}, 51),
        ({"as_system": "1.22"}, 51),
    ],
)
def test_options_of_the_system(options: dict[str, Any], rows: int) -> None:
    assert lw.read(DAMAGED, mode="AS_SYSTEM", **options).num_rows == rows


def test_mode_as_system_refuses_what_leveldb_refuses() -> None:
    with pytest.raises(DamageError, match=r"leveldb main does not open it \(Corruption: checksum mismatch\)"):
        lw.read(GOLDEN / "manifest_flip/db", mode="AS_SYSTEM")
    with pytest.raises(DamageError, match=r"\(Corruption: checksum mismatch\)"):
        lw.read(GOLDEN / "wal_flip_payload/db", mode="AS_SYSTEM", paranoid_checks=True)
    with pytest.raises(UsageError, match="serves no view 'history'"):
        lw.read(SOUND, view="history", mode="AS_SYSTEM")


def test_task_runs_in_another_process() -> None:
    (target,) = resolve(str(DAMAGED), None, {"verify_checksums": False})
    job = reading([target], "live", AsSystem())
    assert len(job.tasks) == 1
    assert job.systems[0]["rows"] == 69
    (task,) = split_tasks(pickle.loads(pickle.dumps(job.tasks)), 1)
    assert task.path == str(DAMAGED)
    assert task.length == 3908
    assert [file.file for file in task.files] == ["000005.ldb", "000004.log"]
    report = Report(str(DAMAGED), "leveldb.db")
    rows = pa.Table.from_batches(task.rows(("key", "value"), report))
    assert len(rows) == report.rows == 69
    assert rows.equals(pa.Table.from_batches(job.tasks[0].rows(("key", "value"), report)))


def test_two_databases_as_one_table() -> None:
    rows = lw.read([DAMAGED, SOUND], mode="AS_SYSTEM")
    assert len(rows) == 51 + lw.read(SOUND).num_rows
