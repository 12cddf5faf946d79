"""`make demo`: a DataFrame becomes Kafka segment files and comes back, and Kafka's own parser agrees; then a LevelDB database, and the
tree of a ZooKeeper server.

Without Java the same rows are written and read without Spark, and an independent Python parser is the judge.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

ROWS = 2_000_000
SEGMENT = "4m"
ENTRIES = 200_000
NODES = 20_000
console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    place = Path(tempfile.mkdtemp(prefix="logwright-demo-"))
    target = place / "kafka-logs" / "orders-0"
    target.parent.mkdir()
    try:
        java = _java()
        if java is None:
            _with_spark(target)
        else:
            console.print(f"[yellow]{java}[/] Spark is left out; the same rows are written without it.")
            _without_spark(target)
        _judge(target)
        _look(target)
        _break(target, place)
        _leveldb(place)
        _zookeeper(place)
        console.rule("[bold green]done")
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _java() -> str | None:
    """Why Spark can't run here; None when it can."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return 'PySpark is not installed (pip install "logwright[spark]").'
    home = os.environ.get("JAVA_HOME")
    program = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if program is None or not os.path.exists(program):
        return "Java is not installed; Spark needs Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless)."
    return None


# With Spark


def _with_spark(target: Path) -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    console.rule("[bold]1. Spark writes a DataFrame as a Kafka partition")
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with _busy("starting Spark"):
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.driver.memory", "2g")
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")
    try:
        rows = spark.range(0, ROWS, numPartitions=4).select(
            f.col("id").alias("n"),
            f.concat(f.lit("order-"), f.col("id") % 50_000).alias("key"),
            f.concat(f.lit('{"order": '), f.col("id"), f.lit(', "total": '), (f.col("id") * 7919) % 100_000,
                     f.lit(', "note": "'), f.repeat(f.lit("x"), (f.col("id") % 60).cast("int")), f.lit('"}')).alias("value"),
            f.timestamp_millis(f.lit(1_700_000_000_000) + f.col("id")).alias("timestamp"),
            f.when(f.col("id") % 10 == 0, f.array(f.struct(f.lit("source").alias("key"), f.lit("web").cast("binary").alias("value"))))
            .otherwise(f.expr("array()").cast("array<struct<key:string,value:binary>>")).alias("headers"),
        )  # fmt: skip
        console.print(
            f'df.write.format("logwright").option("codec", "kafka.partition").option("segment.bytes", "{SEGMENT}")'
            f'.mode("append").save("{target.name}")'
        )
        with _jobs(spark, "writing", ROWS):
            (
                rows.drop("n")
                .write.format("logwright")
                .option("codec", "kafka.partition")
                .option("segment.bytes", SEGMENT)
                .option("compression.type", "zstd")
                .mode("append")
                .save(str(target))
            )
        _list(target)

        console.rule("[bold]2. and reads it back, several tasks to a file")
        back = (
            spark.read.format("logwright")
            .option("maxPartitionBytes", "2m")
            .load(str(target))
            .select(f.col("offset").alias("n"), f.col("key").cast("string"), f.col("value").cast("string"), "timestamp", "headers")
        )  # fmt: skip
        console.print(f"{back.rdd.getNumPartitions()} tasks for {len(list(target.glob('*.log')))} segments")
        with _jobs(spark, "comparing", ROWS):
            written, read = _digest(rows), _digest(back)
        if written != read:
            console.print(f"[red]what came back is different: {written} {read}")
            sys.exit(1)
        console.print(f"[green]equal:[/] {read[0]:,} rows, digest of all columns and offsets {read[1]:x}")
    finally:
        spark.stop()


def _digest(frame: Any) -> tuple[int, int]:
    """The number of rows and a digest of their content, whatever their order."""
    from pyspark.sql import functions as f

    each = f.xxhash64(*[f.to_json(c) if c == "headers" else c for c in frame.columns]).cast("decimal(38,0)")
    count, total = frame.agg(f.count("*"), f.sum(each)).first()
    return int(count), int(total) % (1 << 64)


@contextmanager
def _jobs(spark: Any, label: str, rows: int) -> Iterator[None]:
    """A bar of the tasks of Spark's running jobs."""
    tracker = spark.sparkContext.statusTracker()
    stop = threading.Event()
    started = time.monotonic()

    def watch(bar: Progress, task: Any) -> None:
        while not stop.wait(0.2):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            done = sum(stage.numCompletedTasks for stage in stages if stage)
            total = sum(stage.numTasks for stage in stages if stage)
            if total:
                bar.update(task, completed=done, total=total)

    with _bar() as bar:
        task = bar.add_task(label, total=None)
        watcher = threading.Thread(target=watch, args=(bar, task), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            stop.set()
            watcher.join()
    seconds = time.monotonic() - started
    console.print(f"{label}: {rows:,} rows in {seconds:.1f} s")


# Without Spark


def _without_spark(target: Path) -> None:
    import pyarrow as pa

    import logwright as lw

    console.rule("[bold]1. rows become a Kafka partition")

    def rows() -> Iterator[pa.RecordBatch]:
        with _bar() as bar:
            task = bar.add_task("writing", total=ROWS)
            for start in range(0, ROWS, 50_000):
                numbers = range(start, start + 50_000)
                yield pa.record_batch(
                    {
                        "key": pa.array([f"order-{n % 50_000}".encode() for n in numbers]),
                        "value": pa.array(
                            [b'{"order": %d, "total": %d}' % (n, n * 7919 % 100_000) for n in numbers]
                        ),
                        "timestamp": pa.array(
                            [1_700_000_000_000 + n for n in numbers], pa.timestamp("ms", "UTC")
                        ),
                    }
                )
                bar.update(task, completed=start + 50_000)

    lw.write(rows(), str(target), "kafka.partition", segment_bytes=SEGMENT, compression_type="zstd")
    _list(target)
    console.rule("[bold]2. and come back")
    digest, expected, count = hashlib.sha256(), hashlib.sha256(), 0
    for batch in lw.scan(str(target), columns=["key", "value"]):
        count += batch.num_rows
        for key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            digest.update(key + value)
    for n in range(ROWS):
        expected.update(b"order-%d" % (n % 50_000) + b'{"order": %d, "total": %d}' % (n, n * 7919 % 100_000))
    if count != ROWS or digest.digest() != expected.digest():
        console.print("[red]what came back is different")
        sys.exit(1)
    console.print(f"[green]equal:[/] {count:,} rows")


# The judges


def _judge(target: Path) -> None:
    console.rule("[bold]3. an independent parser reads the same files")
    from logwright.roundtrip.oracles import kafka

    reason = kafka.available()
    if reason is None:
        with _busy("Kafka's own FileRecords reads every segment"):
            found = [kafka.summary(path) for path in sorted(target.glob("*.log"))]
        name = "Kafka's own parser"
    else:
        console.print(f"[yellow]{reason}[/] aiokafka is the judge instead.")
        found = [_aiokafka(path) for path in sorted(target.glob("*.log"))]
        name = "aiokafka"
    records, last = sum(one["records"] for one in found), max(one["last_offset"] for one in found)
    if records != ROWS or last != ROWS - 1 or not all(one["valid"] for one in found):
        console.print(f"[red]{name} says otherwise: {found}")
        sys.exit(1)
    console.print(f"[green]{name} agrees:[/] {records:,} records up to offset {last:,}, every checksum right")


def _aiokafka(path: Path) -> dict[str, Any]:
    from aiokafka.record import MemoryRecords

    records, last, valid = 0, -1, True
    batches = MemoryRecords(path.read_bytes())
    while batches.has_next():
        batch = batches.next_batch()
        valid = valid and batch.validate_crc()
        for record in batch:
            records, last = records + 1, record.offset
    return {"records": records, "last_offset": last, "valid": valid}


def _look(target: Path) -> None:
    console.rule("[bold]4. the command line")
    _type("inspect", target)
    _type("verify", target)
    _type("dump", target, "--limit", 3, "--format", "text")


def _break(target: Path, place: Path) -> None:
    """A bit of an older segment flips, as disks do it: what is lost, what a broker would do, and what is got back."""
    console.rule("[bold]5. a segment is damaged, and mended")
    logs = sorted(target.glob("*.log"))
    older = logs[len(logs) // 3]
    broken, mended = place / "broken" / target.name, place / "mended" / target.name
    mended.parent.mkdir()
    middle = older.stat().st_size // 2
    _type("damage", target, "--op", f"flip:file={older.name},at={middle},bit=3", "--out", broken.parent)
    _type("verify", broken, expected=3)
    page = Path(tempfile.gettempdir()) / "logwright-demo.html"
    _type("explain", broken, "--fault", 1, "--items", 1)
    _type("explain", broken, "--fault", 1, "--html", page)
    _type("verify", broken, "--as-system", "--clean", expected=3)
    _type("repair", broken, "--out", mended, expected=3)
    _type("verify", mended, "--as-system", "--unclean")


# LevelDB


def _leveldb(place: Path) -> None:
    """The same with a LevelDB database: written, read, damaged, mended, and opened by the real one."""
    import numpy as np
    import pyarrow as pa

    import logwright as lw

    console.rule("[bold]6. a LevelDB database")
    target, broken, mended = (
        place / one / "chainstate" for one in ("leveldb", "leveldb-broken", "leveldb-mended")
    )
    target.parent.mkdir()
    mended.parent.mkdir()
    order = np.random.default_rng(1).permutation(ENTRIES).tolist()
    rows = pa.table(
        {
            "key": [b"coin-%07d" % n for n in order],
            "value": [b'{"height": %d}' % (n * 7919 % 800_000) for n in order],
        }
    )
    lw.write(rows, target, "leveldb.db", bloom_bits_per_key=10, max_file_size="1m")
    found = lw.read(target, columns=["key", "value"])
    if not found.equals(rows.sort_by("key").cast(found.schema)):
        console.print("[red]what came back is different")
        sys.exit(1)
    console.print(f"[green]equal:[/] {found.num_rows:,} shuffled rows came back in the order of their keys")
    _opened(target)
    _type("inspect", target)
    table = sorted(target.glob("*.ldb"))[1]
    middle = table.stat().st_size // 2
    _type("damage", target, "--op", f"flip:file={table.name},at={middle},bit=3", "--out", broken.parent)
    _type("verify", broken, "--as-system", expected=3)
    _type("repair", broken, "--out", mended, expected=3)
    _type("verify", mended)
    left = lw.read(mended, columns=["key"]).num_rows
    console.print(
        f"{ENTRIES - left:,} of {ENTRIES:,} entries were in the block that is damaged; all others are there"
    )
    _opened(mended)


def _opened(path: Path) -> None:
    """The real LevelDB, where it is installed, says how many entries there are."""
    try:
        import plyvel  # type: ignore[import-untyped]
    except ImportError:
        console.print("[yellow]plyvel is not installed:[/] the real LevelDB is not asked")
        return
    database = plyvel.DB(str(path), paranoid_checks=True, bloom_filter_bits=10)
    count = sum(1 for _ in database.iterator(verify_checksums=True))
    database.close()
    console.print(f"[green]LevelDB itself opens it[/] with all its checks on, and reads {count:,} entries")
    import logwright as lw

    if count != lw.read(path, columns=["key"]).num_rows:
        console.print("[red]we read another number")
        sys.exit(1)


# ZooKeeper


def _zookeeper(place: Path) -> None:
    """A tree from a table, changed by transactions, looked at as it was before, damaged and mended; the real server's loader agrees."""
    import logwright as lw

    console.rule("[bold]7. the tree of a ZooKeeper server")
    target, broken, mended = (
        place / one / "zk" for one in ("zookeeper", "zookeeper-broken", "zookeeper-mended")
    )
    target.parent.mkdir()
    mended.parent.mkdir()
    nodes = {
        f"/shops/s{n % 100:02d}/node-{n:06d}": b'{"port": %d}' % (1024 + n * 7919 % 60_000)
        for n in range(NODES)
    }
    lw.write(({"path": path, "data": data} for path, data in nodes.items()), target, "zookeeper.datadir")
    console.print(
        f"a snapshot of {NODES:,} paths and data, the nodes above them made; then what differs, as transactions:"
    )
    changed = dict.fromkeys(list(nodes)[:5], b'{"port": 80}') | {"/leader": b"s07"}
    lw.write(
        [{"path": path, "data": data} for path, data in changed.items()],
        target,
        "zookeeper.datadir",
        mode="append",
    )
    found = {row["path"]: row["data"] for row in lw.read(target, columns=["path", "data"]).to_pylist()}
    if not (nodes | changed).items() <= found.items():
        console.print("[red]what came back is different")
        sys.exit(1)
    _loaded(target)
    _type("inspect", target)
    _type(
        "dump",
        target,
        "--view",
        "history",
        "--path-prefix",
        "/leader",
        "--columns",
        "zxid,time,type,path,data",
    )
    _type(
        "dump",
        target,
        "--at-zxid",
        "0x0",
        "--filter",
        "num_children >= 100",
        "--columns",
        "path,num_children",
        "--limit",
        3,
    )
    _type("damage", target, "--op", "flip:file=log.1,at=100,bit=3", "--out", broken.parent)
    _type("verify", broken, "--as-system", expected=3)
    _type("repair", broken, "--out", mended)
    console.print(
        "the bit is turned back: only so do the checksum and the transactions after it come out right"
    )
    _type("diff", target, mended)
    _loaded(mended)


def _loaded(path: Path) -> None:
    """The loading code of the real server, where it can run, says which nodes there are."""
    import logwright as lw
    from logwright.roundtrip.oracles import zookeeper

    reason = zookeeper.available()
    if reason is not None:
        console.print(f"[yellow]{reason}[/] The real server is not asked")
        return
    with _busy("ZooKeeper's own FileTxnSnapLog loads it"):
        nodes, facts = zookeeper.restore(path)
    if {node["path"] for node in nodes} != set(lw.read(path, columns=["path"]).column(0).to_pylist()):
        console.print("[red]it has other nodes than we")
        sys.exit(1)
    console.print(f"[green]ZooKeeper itself loads it:[/] {len(nodes):,} nodes, the same as ours")
    if facts["digest_mismatches"]:
        console.print(f"[red]with digests that are wrong: {facts['digest_mismatches']}")
        sys.exit(1)


def _type(verb: str, *words: object, expected: int = 0) -> None:
    """Run a command as a person would; `expected` is its exit status, 3 for damage found or rows missing."""
    typed = [verb, *map(str, words)]
    console.print(Text(f"$ logwright {shlex.join(typed)}", "bold"))
    status = subprocess.run([sys.executable, "-m", "logwright", *typed], check=False).returncode
    if status != expected:
        raise SystemExit(f"exit status {status}, {expected} was expected")
    console.print()


# What is shown


def _list(target: Path) -> None:
    files = sorted(target.iterdir())
    logs = [path for path in files if path.suffix == ".log"]
    for path in logs[:6]:
        console.print(f"  {path.name}  {path.stat().st_size:>12,} bytes")
    if len(logs) > 6:
        console.print(f"  ... {len(logs)} segments in all")
    others = [path for path in files if path.suffix != ".log"]
    console.print(
        f"  and {len(others)} more: {', '.join(sorted({path.suffix or path.name for path in others}))}"
    )


def _bar() -> Progress:
    return Progress(SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                    console=console)  # fmt: skip


@contextmanager
def _busy(label: str) -> Iterator[None]:
    with console.status(label):
        yield


if __name__ == "__main__":
    main()
