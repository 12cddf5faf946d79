"""Measure the first query of a fresh Spark session on a small Kafka partition, from `load` to its rows, and print a table.

Each session is a new JVM with two cores. It starts four Python processes one after the other: to find the sources, to infer the schema, to
plan, and for the task. They are `logwright-python`, as `docs/spark.md` advises, or the plain Python. The same query on a source that returns
rows from memory (`null_source.py`), with the plain Python, is what Spark itself needs. With `--other PATH` another checkout takes part, with
the plain Python too. All take turns.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

HERE = Path(__file__).parent
ROWS = 1_000
PLAIN = "logwright, plain Python"
NULL = "Spark alone"
STEPS = {
    "load": "`load`: find the source, infer the schema",
    "plan": "plan the partitions",
    "rows": "start a worker, read all rows",
    "total": "all three",
    "python": "processor time of the Python processes",
}
_HIDDEN = """
import os, sys
sys.path[:] = [place for place in sys.path if not os.path.isdir(os.path.join(place, "pyspark_logwright"))]
"""
"""A `sitecustomize` for Spark alone: Spark imports every source that it finds."""


def session(source: str, path: str, schema: str) -> dict[str, float]:
    """Run the query in this process, and return the seconds of each step."""
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
        .config("spark.driver.bindAddress", "127.0.0.1").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    )  # fmt: skip
    try:
        times = [time.perf_counter()]
        reader = spark.read.format(source)
        if schema:
            reader = reader.schema(StructType.fromJson(json.loads(schema))).options(rows=ROWS, shares=1)
        frame = reader.load(path)
        times.append(time.perf_counter())
        frame._jdf.queryExecution().toRdd().getNumPartitions()  # a planned query asks the source for its partitions
        times.append(time.perf_counter())
        count = len(frame.collect())
        times.append(time.perf_counter())
        assert count == ROWS, count
        load, plan, rows = (after - before for before, after in itertools.pairwise(times))
        python = sum(_processor_seconds(os.getpid()))
        return {"load": load, "plan": plan, "rows": rows, "total": times[-1] - times[0], "python": python}
    finally:
        spark.stop()


def _processor_seconds(root: int) -> Iterator[float]:
    """Iterate over the processor time of all Python processes below a process."""
    children: dict[int, list[int]] = {}
    facts: dict[int, tuple[str, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                name, _, rest = entry.joinpath("stat").read_text().partition("(")[2].rpartition(")")
            except OSError:
                continue  # it has ended
            fields = rest.split()
            children.setdefault(int(fields[1]), []).append(int(entry.name))
            facts[int(entry.name)] = name, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    waiting = children.get(root, [])
    while waiting:
        process = waiting.pop()
        waiting += children.get(process, [])
        if facts[process][0].startswith("python"):
            yield facts[process][1]


def measured(root: Path | None, python: str, path: Path, schema: str, null: Path) -> dict[str, float]:
    """Run the query in a fresh session, with the source of a checkout, or with the one in `null`."""
    places = [HERE, null] if root is None else [root / "src"]
    words = ("null_rows", str(path), schema) if root is None else ("logwright", str(path), "")
    run = subprocess.run(
        [sys.executable, str(HERE / "bench_spark_start.py"), "--session", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places)), "PYSPARK_PYTHON": python,
             "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONDONTWRITEBYTECODE": ""},
        capture_output=True, text=True,
    )  # fmt: skip
    if run.returncode:
        raise SystemExit(f"the session failed: {run.stderr[-2000:]}")
    seconds: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return seconds


def section(place: Path, rounds: int, other: Path | None) -> list[str]:
    import logwright as lw
    from logwright import spark_python
    from logwright.readers.spark_request import Request
    from logwright.readers.spark_schema import schema_of

    path = place / "orders-0"
    lw.generate("kafka.partition", path, rows=ROWS, seed=1)
    schema = schema_of(Request.of({"path": str(path)})).json()
    null = place / "null"
    null.mkdir()
    (null / "sitecustomize.py").write_text(_HIDDEN)
    (null / "pyspark_null_rows.py").write_text("from null_source import NullSource as DefaultSource\n")
    ours = spark_python.executable()
    if ours == sys.executable:
        raise SystemExit("logwright-python is not installed beside this Python: make install")
    runs: dict[str, tuple[Path | None, str]] = {
        "logwright": (HERE.parent, ours),
        PLAIN: (HERE.parent, sys.executable),
        NULL: (None, sys.executable),
    }
    if other is not None:
        runs["other"] = other.resolve(), sys.executable
    seconds = [
        {name: measured(root, python, path, schema, null) for name, (root, python) in runs.items()}
        for _ in range(rounds + 1)
    ]
    return table(seconds[1:], runs)


def table(rounds: list[dict[str, dict[str, float]]], runs: Mapping[str, object]) -> list[str]:
    """The medians of each step, and how many times as much logwright takes as each of the others."""
    others = [name for name in runs if name != "logwright"]
    lines = [
        f"The first query of a Spark session, local[2], on a Kafka partition of {ROWS:,} rows: seconds after the start of the session.",
        "",
        f"| step | logwright | {' | '.join(f'{name} | ratio' for name in others)} |",
        f"|---|---|{'---|---|' * len(others)}",
    ]
    for step, label in STEPS.items():
        medians = {name: statistics.median(each[name][step] for each in rounds) for name in runs}
        cells = [f"{medians['logwright']:.2f}"]
        for name in others:
            ratio = statistics.median(each["logwright"][step] / each[name][step] for each in rounds)
            cells += [f"{medians[name]:.2f}", f"{ratio:.2f}"]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    if "other" in runs:
        ours, other = (
            statistics.median(each[name]["python"] - each[NULL]["python"] for each in rounds)
            for name in (PLAIN, "other")
        )
        text = f"Above what Spark alone takes: {ours:.2f} s of processor time in Python, {other:.2f} s of the other"
        lines += ["", f"{text} ({ours / other:.2f} times)."]
    return lines


def main() -> None:
    if sys.argv[1:2] == ["--session"]:
        print(json.dumps(session(*sys.argv[2:5])))
        return
    from rounds import add_size_options  # not in a session, which may have no logwright

    parser = argparse.ArgumentParser(description=__doc__)
    add_size_options(parser)
    parser.add_argument("--other", type=Path, help="root of another checkout")
    options = parser.parse_args()
    if shutil.which("java") is None:
        print("The first query of Spark was not measured: Java 17 is not installed.")
        return
    with tempfile.TemporaryDirectory(prefix="logwright-bench-") as folder:
        print("\n".join(section(Path(folder), options.rounds, options.other)))


if __name__ == "__main__":
    main()
