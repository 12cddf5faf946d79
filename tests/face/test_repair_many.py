"""Repair many directories at once: plan, attempts and report, without Spark (`tests/spark/test_repair_job.py` runs it with Spark)."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logwright as lw
from logwright.codec.fault import BusyError, ExistsError, LogwrightError, UsageError

pytest.importorskip("pyspark")
from logwright.spark import many
from logwright.spark import repair as job

ID = "q83vASNFZ4mrze8BI0VniQ"


@pytest.fixture
def disks(tmp_path: Path) -> Path:
    """Two disks: a sound and a damaged partition on the first, one on the second whose name prevents a repair."""
    for name, rows in (("a/orders-0", 30), ("a/orders-1", 300), ("b/orders-2", 3)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        lw.write(
            pa.table({"value": [b"%03d" % n for n in range(rows)]}),
            tmp_path / name,
            "kafka.partition",
            batch_size=500,
            topic_id=ID,
        )
    log = next((tmp_path / "a" / "orders-1").glob("*.log"))
    data = bytearray(log.read_bytes())
    for at in (700, 720):  # a repair would correct a single bit
        data[at] ^= 1
    log.write_bytes(data)
    return tmp_path


def run(paths: list[Any], to: Path | None, **options: Any) -> dict[str, Any]:
    """Run the complete job in this process."""
    todo = many.plan([str(path) for path in paths], options.pop("codec", None), options.pop("replicas", None))
    if to is None:
        work, items = many.Work("", "", todo.layout.name), list(todo.items)
    else:
        work, items = many.begin(todo, str(to), "salvage", {}, **options)
    work = pickle.loads(pickle.dumps(work))
    results = [json.loads(work(item)) for item in items]
    work.end()
    names = {item.name for item in items}
    return many.merge(
        [str(path) for path in paths], todo, results, [item for item in todo.items if item.name not in names]
    )


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir())


def test_every_store_below_the_paths_is_repaired(disks: Path) -> None:
    before = {path: path.read_bytes() for path in disks.rglob("*") if path.is_file()}
    to = disks / "out"
    result = run([disks / "a", disks / "b" / "*"], to)
    assert names(to) == ["orders-0", "orders-1", "orders-2"]
    assert {path: path.read_bytes() for path in before} == before
    lost = 300 - lw.read(to / "orders-1").num_rows
    assert lost > 1
    assert lw.verify(to / "orders-1").ok
    assert lw.read(to / "orders-0")["value"].to_pylist() == [b"%03d" % n for n in range(30)]
    assert (result["ok"], result["failed"], result["incomplete"], many.status(result)) == (False, 0, True, 3)
    assert result["rows"] == 333 - lost
    assert [(row["path"], row["ok"], row["rows_lost"], row["out"]) for row in result["targets"]] == [
        (str(disks / "a" / "orders-0"), True, 0, str(to / "orders-0")),
        (str(disks / "a" / "orders-1"), False, lost, str(to / "orders-1")),
        (str(disks / "b" / "orders-2"), True, 0, str(to / "orders-2")),
    ]
    (cut,) = result["cut"]
    assert cut["file"] == str(next((disks / "a" / "orders-1").glob("*.log")))
    assert any(
        fault["rows_lost"] == lost
        for file in result["files"]
        if file["path"] == cut["file"]
        for fault in file["faults"]
    )
    assert "-delete" not in json.dumps(result), "where it was staged is nobody's business"
    text = many.text(result, "next")
    assert text.startswith("repair  3 directories: 2 undamaged, 1 repaired, 0 failed\n")
    assert f"repaired  {disks / 'a' / 'orders-1'}: {lost} rows lost, " in text
    assert text.endswith("\n  next")


def test_files_of_a_log_directory_are_carried_over(disks: Path) -> None:
    source, to = disks / "a", disks / "out"
    log = next((source / "orders-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1])
    (source / "replication-offset-checkpoint").write_text("0\n2\norders 0 30\norders 1 300\n")
    (source / "cleaner-offset-checkpoint").write_text("0\n1\norders 1 300\n")
    (source / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    (source / "lost+found").mkdir()
    todo = many.plan([str(source)])
    assert [item.name for item in todo.items] == ["orders-1", "orders-0"]
    assert "skipped folders without a store: lost+found" in todo.notes
    work, items = many.begin(todo, str(to), None, {})
    results = [json.loads(work(item)) for item in items]
    work.end()
    planned = many.own_files(todo, None, results)
    assert names(to) == ["orders-0", "orders-1"]
    notes = many.own_files(todo, str(to), results)
    assert planned == notes[:1]
    assert notes[0].startswith(
        "replication-offset-checkpoint is changed: orders-0 lowered from 30 to the log end offset "
    )
    assert notes[1] == "copied unchanged: cleaner-offset-checkpoint, meta.properties"
    end = lw.read(to / "orders-0").num_rows
    assert (to / "replication-offset-checkpoint").read_text() == f"0\n2\norders 0 {end}\norders 1 300\n"
    assert lw.verify(to).ok
    assert many.own_files(todo, str(to), results)[1].startswith("kept, because they already exist")
    shutil.copy(source / "meta.properties", disks / "b")
    both = many.plan([str(source), str(disks / "b")])
    assert "run the job once per directory" in many.own_files(both, str(to), [])[0]


def test_largest_store_is_repaired_first(disks: Path) -> None:
    todo = many.plan(
        [str(disks / "b"), str(disks / "a"), f"{disks}/a/", str(disks / "a" / "orders-0")[:-1] + "[1]"]
    )
    assert [(item.number, item.name) for item in todo.items] == [
        (0, "orders-1"),
        (1, "orders-0"),
        (2, "orders-2"),
    ]
    assert todo.items[0].bytes > todo.items[1].bytes > todo.items[2].bytes > 0


def test_failure_does_not_stop_the_others(disks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(disks / "a" / "orders-1", disks / "b" / "broken-0")
    real = lw.repair

    def repair(path: str, *args: Any, **options: Any) -> Any:
        if path.endswith("broken-0"):
            raise RuntimeError("surprise")
        if path.endswith("orders-2"):
            raise LogwrightError("can't be", path=path)
        return real(path, *args, **options)

    monkeypatch.setattr("logwright.api.repair", repair)
    result = run([disks / "a", disks / "b"], disks / "out")
    assert names(disks / "out") == ["orders-0", "orders-1"]
    assert (result["failed"], many.status(result), result["ok"]) == (2, 1, False)
    errors = {Path(row["path"]).name: row["error"] for row in result["targets"] if row["error"]}
    assert errors["orders-2"] == f"{disks / 'b' / 'orders-2'}: can't be"
    assert "internal error in logwright (RuntimeError: surprise)" in errors["broken-0"]
    text = many.text(result)
    assert "1 undamaged, 1 repaired, 2 failed" in text
    assert f"FAILED  {disks / 'b' / 'orders-2'}: can't be" in text


def test_several_attempts_at_one_store_give_one_result(disks: Path) -> None:
    """Repeated after its end, after its rename, and concurrently: one result, no leftovers."""
    todo = many.plan([str(disks / "a" / "orders-1")])
    work, (item,) = many.begin(todo, str(disks / "out"), "salvage", {})
    stage = Path(work.stage)
    assert (stage.parent, stage.name.endswith("-delete")) == (disks / "out", True), "a broker ignores it"
    first = work(item)
    result = {path.name: path.read_bytes() for path in (disks / "out" / "orders-1").iterdir()}
    assert work(item) == first
    (stage / "done" / "0.json").unlink()  # it died between the rename and the note of it
    loaded = json.loads(work(item))
    assert (loaded["error"], loaded["report"]["rows"]) == (None, json.loads(first)["report"]["rows"])
    assert {path.name: path.read_bytes() for path in (disks / "out" / "orders-1").iterdir()} == result
    assert names(stage) == ["done", "owner.json"]
    assert work.results() == {0: json.dumps(loaded)}
    work.end()
    assert names(disks / "out") == ["orders-1"]
    work.end()


def test_result_created_by_another_process_is_kept(disks: Path) -> None:
    todo = many.plan([str(disks / "a" / "orders-1")])
    work, (item,) = many.begin(todo, str(disks / "out"), "salvage", {})
    (disks / "out" / "orders-1").mkdir()
    (disks / "out" / "orders-1" / "x").touch()
    assert "it was created by another process" in json.loads(work(item))["error"]
    work.end()
    assert names(disks / "out" / "orders-1") == ["x"]


def test_missing_staging_directory_means_no_shared_file_system(disks: Path) -> None:
    todo = many.plan([str(disks / "a" / "orders-1")])
    work, (item,) = many.begin(todo, str(disks / "out"), "salvage", {})
    work.end()
    assert "must see the same directories" in json.loads(work(item))["error"]
    assert names(disks / "out") == []


def test_existing_results_are_skipped(disks: Path) -> None:
    run([disks / "a" / "orders-0"], disks / "out")
    with pytest.raises(ExistsError, match=r"out: orders-0 already exist\. .*--skip-existing"):
        run([disks / "a"], disks / "out")
    assert names(disks / "out") == ["orders-0"]
    result = run([disks / "a"], disks / "out", skip_existing=True)
    assert names(disks / "out") == ["orders-0", "orders-1"]
    assert [item.get("skipped", False) for item in result["targets"]] == [False, True]
    assert "0 undamaged, 1 repaired, 0 failed, 1 skipped (existing)" in many.text(result)


def test_leftovers_of_a_killed_job_are_removed(disks: Path) -> None:
    todo = many.plan([str(disks / "a")])
    work, items = many.begin(todo, str(disks / "out"), "salvage", {})
    with pytest.raises(BusyError, match="another repair job is writing there"):
        many.begin(todo, str(disks / "out"), "salvage", {})
    owner = Path(work.stage) / "owner.json"
    owner.write_text(json.dumps({**json.loads(owner.read_text()), "pid": 1 << 30}))
    (Path(work.stage) / "0-half" / items[0].name).mkdir(parents=True)
    (disks / "out" / "other").mkdir()
    run([disks / "a"], disks / "out")
    assert names(disks / "out") == ["orders-0", "orders-1", "other"]


def test_replicas_are_repaired_together(disks: Path) -> None:
    shutil.copytree(disks / "a" / "orders-1", disks / "b" / "orders-1")
    two = next((disks / "b" / "orders-1").glob("*.log"))
    data = bytearray(two.read_bytes())
    for at in (700, 720, 2500, 2520):  # the first two are as they were
        data[at] ^= 1
    two.write_bytes(data)
    with pytest.raises(UsageError, match=r"orders-1 .*--replicas merge"):
        run([disks / "a", disks / "b"], disks / "out")
    first = run([disks / "a" / "orders-1", disks / "b" / "orders-1"], disks / "first", replicas="first")
    assert [row["paths"] for row in first["targets"]] == [[str(disks / "a" / "orders-1")]]
    assert first["incomplete"]
    merged = run([disks / "a", disks / "b"], disks / "merged", replicas="merge")
    assert (merged["failed"], merged["incomplete"]) == (0, False)
    assert lw.read(disks / "merged" / "orders-1")["value"].to_pylist() == [b"%03d" % n for n in range(300)]
    assert [len(row["paths"]) for row in merged["targets"]] == [1, 2, 1]


def test_dry_run_writes_nothing(disks: Path) -> None:
    before = sorted(disks.rglob("*"))
    result = run([disks / "a"], None)
    assert sorted(disks.rglob("*")) == before
    assert result["incomplete"]
    assert [row["out"] for row in result["targets"]] == [None, None]


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["a/orders-0/00000000000000000000.log"], "this is a file; only directories can be repaired here"),
        (["empty"], "unrecognised directory"),
        (["nowhere"], "no such file or directory"),
        (["no*"], "no file matches this pattern"),
        (["a/orders-0", "moved"], "found 2 times"),
    ],
)
def test_impossible_plans_are_refused(disks: Path, paths: list[str], message: str) -> None:
    (disks / "empty").mkdir()
    shutil.copytree(disks / "a" / "orders-0", disks / "moved" / "orders-0")
    with pytest.raises(LogwrightError, match=message):
        many.plan([str(disks / path) for path in paths])


@pytest.mark.skipif(os.getuid() == 0, reason="root may look anywhere")
def test_unreadable_folders_are_reported(disks: Path) -> None:
    (disks / "b" / "orders-2").chmod(0)
    result = run([disks / "a", disks / "b" / "*"], disks / "out")
    assert [row["path"] for row in result["targets"] if row["error"]] == [str(disks / "b" / "orders-2")]


def test_invalid_arguments_are_refused(disks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert many.options_of(["a.b=c=d", "e="]) == {"a.b": "c=d", "e": ""}
    for args, status, message in (
        (["--from", "x"], 2, "--to is missing"),
        (
            ["--from", str(disks / "a"), "--to", str(disks / "o"), "--option", "x"],
            2,
            "invalid option 'x'; expected NAME=VALUE",
        ),
        (
            ["--from", str(disks / "a"), "--to", str(disks / "o"), "--replicas", "last"],
            2,
            "'last' is not one of first, longest",
        ),
        (["--from", str(disks / "nowhere"), "--to", str(disks / "o")], 1, "no such file"),
        (
            ["--from", str(disks / "a"), "--to", str(disks / "o"), "--option", "open.transaction=keep"],
            2,
            "unknown option 'open.transaction'. Did you mean 'open.transactions'",
        ),
        (["--from", "x", "--to", "y", "--report", str(disks)], 1, "it already exists"),
        (
            ["--from", "x", "--to", "y", "--report", "no/where"],
            1,
            "the directory for the report does not exist",
        ),
        (["--from", str(disks / "a"), "--to", str(disks / "a")], 1, "orders-1, orders-0 already exist"),
    ):
        assert job.main(args) == status
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        job.main(["--form", "x"])
    assert ended.value.code == 2
    assert not (disks / "o").exists()
