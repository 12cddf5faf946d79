"""The job `repair`: on a cluster of two nodes, from the zip of `make dist`; and killed tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from jobs import python, shipped, submit

import logwright as lw
from logwright import spark_python
from logwright.corpora.cases import cases

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")

__all__ = ["python", "shipped"]

CASES = cases("kafka")


@pytest.mark.extended
def test_repair_job_on_a_cluster(shipped: tuple[Path, Path], python: Path, tmp_path: Path) -> None:
    disks = [tmp_path / "disk0", tmp_path / "disk1"]
    names = [name for name in CASES if name.startswith("dmg_flip")][:2]
    for number, name in enumerate(names):
        source = CASES[name].partition
        target = disks[number % 2] / source.name
        target.mkdir(parents=True)
        for file in source.iterdir():
            data = bytearray(file.read_bytes())
            if file.suffix == ".log":
                data[len(data) // 2] ^= 0x55  # more than one bit, which would be corrected
            (target / file.name).write_bytes(data)
    sound = tmp_path / "disk1" / "sound-0"
    lw.write(pa.table({"value": [b"v"] * 50}), sound, "kafka.partition")
    code, script = shipped
    done = submit(
        python, "--master", "local-cluster[2,1,1024]", "--py-files", code, script, "--from", *disks, "--to", tmp_path / "out",
        "--report", tmp_path / "report.json",
    )  # fmt: skip
    assert done.returncode == 3, done.stdout + done.stderr[-3000:]
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["failed"], report["incomplete"], len(report["targets"])) == (0, True, 3)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        [*(CASES[name].partition.name for name in names), "sound-0"]
    )
    rows = 0
    for target in report["targets"]:
        result = tmp_path / "out" / Path(target["path"]).name
        assert lw.verify(result).ok
        here = lw.repair(target["path"], tmp_path / "here" / result.name)
        assert {path.name: path.read_bytes() for path in result.iterdir()} == {
            path.name: path.read_bytes() for path in (tmp_path / "here" / result.name).iterdir()
        }
        assert target["rows"] == here["rows"] == lw.read(result, view="log").num_rows
        rows += target["rows"]
    assert report["rows"] == rows
    assert "repair  3 directories: 1 undamaged, 2 repaired, 0 failed\n" in done.stdout, done.stdout
    assert f"{rows:,} rows kept" in done.stdout


DIES = """
    import json, os, sys
    from logwright.spark.many import Item
    from logwright.spark.repair import distribute

    KILLERS = sys.argv[2:]

    def work(item):
        if item.name in KILLERS:
            os._exit(1)
        return json.dumps({"error": None, "name": item.name})

    items = [Item(number, name, (name,), 0) for number, name in enumerate("abcdef")]
    os.environ["PYSPARK_SUBMIT_ARGS"] = "--master local[2,2] --conf spark.ui.enabled=false pyspark-shell"
    results = distribute(items, work)
    json.dump({items[number].name: json.loads(text)["error"] for number, text in results.items()}, open(sys.argv[1], "w"))
"""


@pytest.mark.nightly
@pytest.mark.parametrize("killers", ["d", "abcdef"])
def test_killed_task_does_not_stop_the_others(tmp_path: Path, killers: str) -> None:
    script = tmp_path / "dies.py"
    script.write_text(textwrap.dedent(DIES))
    env = {**os.environ, "PYSPARK_PYTHON": spark_python.executable(), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, script, tmp_path / "out", *killers],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    actual: dict[str, Any] = json.loads((tmp_path / "out").read_text())
    assert sorted(actual) == list("abcdef")
    for name, error in actual.items():
        assert (error is not None) == (name in killers)
        assert error is None or "its task died on every attempt" in error
