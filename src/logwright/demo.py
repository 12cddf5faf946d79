"""`make demo`: write a DataFrame as Kafka segment files with Spark, read it back, and compare with Kafka's own parser. Then a LevelDB
database, a ZooKeeper data directory, a RocketMQ store and a BookKeeper bookie.

Without Java the same rows are written and read without Spark, and an independent Python parser checks them.
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

from logwright import spark_python

ROWS = 2_000_000
SEGMENT = "4m"
ENTRIES = 200_000
NODES = 20_000
MESSAGES = 50_000
LEDGER_ENTRIES = 20_000
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
            console.print(f"[yellow]{java}[/] Skipping Spark; the same rows are written without it.")
            _without_spark(target)
        _judge(target)
        _look(target)
        _break(target, place)
        _leveldb(place)
        _zookeeper(place)
        _rocketmq(place)
        _bookkeeper(place)
        console.rule("[bold green]done")
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _java() -> str | None:
    """Return why Spark cannot run here; None if it can."""
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
    os.environ.setdefault("PYSPARK_PYTHON", spark_python.executable())
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

        console.rule("[bold]2. Spark reads it back, with several tasks per file")
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
            console.print(f"[red]the rows differ: {written} {read}")
            sys.exit(1)
        console.print(f"[green]equal:[/] {read[0]:,} rows, digest of all columns and offsets {read[1]:x}")
    finally:
        spark.stop()


def _digest(frame: Any) -> tuple[int, int]:
    """Return the number of rows and a digest of their content, independent of their order."""
    from pyspark.sql import functions as f

    each = f.xxhash64(*[f.to_json(c) if c == "headers" else c for c in frame.columns]).cast("decimal(38,0)")
    count, total = frame.agg(f.count("*"), f.sum(each)).first()
    return int(count), int(total) % (1 << 64)


@contextmanager
def _jobs(spark: Any, label: str, rows: int) -> Iterator[None]:
    """Show a progress bar of the tasks of running Spark jobs."""
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

    console.rule("[bold]1. rows are written as a Kafka partition")

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
    console.rule("[bold]2. and read back")
    digest, expected, count = hashlib.sha256(), hashlib.sha256(), 0
    for batch in lw.scan(str(target), columns=["key", "value"]):
        count += batch.num_rows
        for key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            digest.update(key + value)
    for n in range(ROWS):
        expected.update(b"order-%d" % (n % 50_000) + b'{"order": %d, "total": %d}' % (n, n * 7919 % 100_000))
    if count != ROWS or digest.digest() != expected.digest():
        console.print("[red]the rows differ")
        sys.exit(1)
    console.print(f"[green]equal:[/] {count:,} rows")


# Independent parsers


def _judge(target: Path) -> None:
    console.rule("[bold]3. an independent parser reads the same files")
    from logwright.roundtrip.oracles import kafka

    reason = kafka.available()
    if reason is None:
        with _busy("Kafka's own FileRecords reads every segment"):
            summaries = [kafka.summary(path) for path in sorted(target.glob("*.log"))]
        name = "Kafka's own parser"
    else:
        console.print(f"[yellow]{reason}[/] Using aiokafka instead.")
        summaries = [_aiokafka(path) for path in sorted(target.glob("*.log"))]
        name = "aiokafka"
    records, last = (
        sum(summary["records"] for summary in summaries),
        max(summary["last_offset"] for summary in summaries),
    )
    if records != ROWS or last != ROWS - 1 or not all(summary["valid"] for summary in summaries):
        console.print(f"[red]{name} disagrees: {summaries}")
        sys.exit(1)
    console.print(f"[green]{name} agrees:[/] {records:,} records up to offset {last:,}, all checksums valid")


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
    """Flip a bit of an older segment, as disks do: show what a broker would do, and that a repair corrects it."""
    console.rule("[bold]5. a segment is damaged and repaired")
    logs = sorted(target.glob("*.log"))
    older = logs[len(logs) // 3]
    broken, repaired = place / "broken" / target.name, place / "repaired" / target.name
    repaired.parent.mkdir()
    middle = older.stat().st_size // 2
    _type("damage", target, "--op", f"flip:file={older.name},at={middle},bit=3", "--out", broken.parent)
    _type("verify", broken, expected=3)
    page = Path(tempfile.gettempdir()) / "logwright-demo.html"
    _type("explain", broken, "--fault", 1, "--items", 1)
    _type("explain", broken, "--fault", 1, "--html", page)
    _type("verify", broken, "--as-system", "--clean", expected=3)
    _type("repair", broken, "--out", repaired)
    _type("diff", target, repaired)
    _type("verify", repaired, "--as-system", "--unclean")


# LevelDB


def _leveldb(place: Path) -> None:
    """Do the same with a LevelDB database: write, read, damage and repair it, and open it with LevelDB itself."""
    import numpy as np
    import pyarrow as pa

    import logwright as lw

    console.rule("[bold]6. a LevelDB database")
    target, broken, repaired = (
        place / folder / "chainstate" for folder in ("leveldb", "leveldb-broken", "leveldb-repaired")
    )
    target.parent.mkdir()
    repaired.parent.mkdir()
    order = np.random.default_rng(1).permutation(ENTRIES).tolist()
    rows = pa.table(
        {
            "key": [b"coin-%07d" % n for n in order],
            "value": [b'{"height": %d}' % (n * 7919 % 800_000) for n in order],
        }
    )
    lw.write(rows, target, "leveldb.db", bloom_bits_per_key=10, max_file_size="1m")
    found_rows = lw.read(target, columns=["key", "value"])
    if not found_rows.equals(rows.sort_by("key").cast(found_rows.schema)):
        console.print("[red]the rows differ")
        sys.exit(1)
    console.print(f"[green]equal:[/] {found_rows.num_rows:,} shuffled rows came back sorted by key")
    _opened(target)
    _type("inspect", target)
    table = sorted(target.glob("*.ldb"))[1]
    middle = table.stat().st_size // 2
    _type("damage", target, "--op", f"zero:file={table.name},at={middle},length=64", "--out", broken.parent)
    _type("verify", broken, "--as-system", expected=3)
    _type("repair", broken, "--out", repaired, expected=3)
    _type("verify", repaired)
    left = lw.read(repaired, columns=["key"]).num_rows
    console.print(
        f"{ENTRIES - left:,} of {ENTRIES:,} entries were in the damaged block; all others were recovered"
    )
    _opened(repaired)


def _opened(path: Path) -> None:
    """Count the entries with LevelDB itself, if it is installed."""
    try:
        import plyvel  # type: ignore[import-untyped]
    except ImportError:
        console.print("[yellow]plyvel is not installed:[/] skipping the check with LevelDB itself")
        return
    database = plyvel.DB(str(path), paranoid_checks=True, bloom_filter_bits=10)
    count = sum(1 for _ in database.iterator(verify_checksums=True))
    database.close()
    console.print(f"[green]LevelDB itself opens it[/] with all checks enabled, and reads {count:,} entries")
    import logwright as lw

    if count != lw.read(path, columns=["key"]).num_rows:
        console.print("[red]logwright reads a different number of entries")
        sys.exit(1)


# ZooKeeper


def _zookeeper(place: Path) -> None:
    """Write a tree from a table, change it by transactions, read an earlier state, damage and repair it, and load it with ZooKeeper's own
    code."""
    import logwright as lw

    console.rule("[bold]7. the tree of a ZooKeeper server")
    target, broken, repaired = (
        place / folder / "zk" for folder in ("zookeeper", "zookeeper-broken", "zookeeper-repaired")
    )
    target.parent.mkdir()
    repaired.parent.mkdir()
    nodes = {
        f"/shops/s{n % 100:02d}/node-{n:06d}": b'{"port": %d}' % (1024 + n * 7919 % 60_000)
        for n in range(NODES)
    }
    lw.write(({"path": path, "data": data} for path, data in nodes.items()), target, "zookeeper.datadir")
    console.print(
        f"a snapshot of {NODES:,} paths and data, with their parent nodes; then changes, as transactions"
    )
    changed = dict.fromkeys(list(nodes)[:5], b'{"port": 80}') | {"/leader": b"s07"}
    lw.write(
        [{"path": path, "data": data} for path, data in changed.items()],
        target,
        "zookeeper.datadir",
        mode="append",
    )
    found_nodes = {row["path"]: row["data"] for row in lw.read(target, columns=["path", "data"]).to_pylist()}
    if not (nodes | changed).items() <= found_nodes.items():
        console.print("[red]the nodes differ")
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
    _type("repair", broken, "--out", repaired)
    console.print(
        "the flipped bit is restored: only this makes the checksum and the following transactions valid"
    )
    _type("diff", target, repaired)
    _loaded(repaired)


def _loaded(path: Path) -> None:
    """List the nodes with ZooKeeper's own loading code, if it can run."""
    import logwright as lw
    from logwright.roundtrip.oracles import zookeeper

    reason = zookeeper.available()
    if reason is not None:
        console.print(f"[yellow]{reason}[/] Skipping the check with ZooKeeper itself")
        return
    with _busy("loading with ZooKeeper's own FileTxnSnapLog"):
        nodes, facts = zookeeper.restore(path)
    if {node["path"] for node in nodes} != set(lw.read(path, columns=["path"]).column(0).to_pylist()):
        console.print("[red]ZooKeeper loads other nodes than logwright")
        sys.exit(1)
    console.print(f"[green]ZooKeeper itself loads it:[/] {len(nodes):,} nodes, the same as logwright")
    if facts["digest_mismatches"]:
        console.print(f"[red]with wrong digests: {facts['digest_mismatches']}")
        sys.exit(1)


# RocketMQ


def _rocketmq(place: Path) -> None:
    """Write a store from a table, find a message by key, damage and repair the commit log, and load it with RocketMQ's own store."""
    import logwright as lw

    console.rule("[bold]8. the store of a RocketMQ broker")
    target, broken, repaired = (
        place / folder / "store" for folder in ("rocketmq", "rocketmq-broken", "rocketmq-repaired")
    )
    target.parent.mkdir()
    repaired.parent.mkdir()
    rows = (
        {
            "topic": "Orders",
            "queue_id": n % 4,
            "keys": f"order-{n}",
            "tags": "web",
            "body": b'{"order": %d}' % n,
        }
        for n in range(MESSAGES)
    )
    lw.write(rows, target, "rocketmq.store", **_STORE)
    console.print(f"{MESSAGES:,} messages: a commit log, four consume queues and an index of their keys")
    _served(target, MESSAGES)
    _type("inspect", target)
    _type("dump", target, "--view", "queues", "--columns", "topic,queue_id,min_offset,max_offset,messages")
    _type("dump", target, "--view", "index", "--key", "Orders#order-4711", "--columns", "physical_offset")
    first = sorted((target / "commitlog").iterdir())[0]
    body = first.read_bytes().index(b'{"order": 1234}')
    _type("damage", target, "--op", f"write:file=commitlog/{first.name},at={body + 12},text=XY", "--op", "create:file=abort,text=1",
          "--op", "remove:file=checkpoint", "--out", broken.parent)  # fmt: skip
    _type("verify", broken, "--as-system", expected=3)
    _type("repair", broken, "--out", repaired, expected=3)
    _type("verify", repaired, "--as-system")
    lost = MESSAGES - lw.read(repaired, columns=["topic"]).num_rows
    console.print(f"messages that became placeholders, so that no offset changes: {lost}")
    _served(repaired, MESSAGES)


_STORE: dict[str, Any] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 60_000,
    "maxHashSlotNum": 50_000,
    "maxIndexNum": 200_001,
}


def _served(path: Path, expected: int) -> None:
    """Count the messages that RocketMQ's own store serves from a copy, if it can run."""
    from logwright.roundtrip.oracles import rocketmq

    reason = rocketmq.available(rocketmq.VERSIONS[0])
    if reason is not None:
        console.print(f"[yellow]{reason}[/] Skipping the check with RocketMQ itself")
        return
    with _busy("loading with RocketMQ's own DefaultMessageStore"), tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "store")
        shutil.copytree(path, copy)
        loaded = rocketmq.load(rocketmq.VERSIONS[0], copy, {**_STORE, "commitLogRecoverMaxNum": 1000})
    count = sum(len(queue.units) for queue in loaded.queues.values())
    if not loaded.load or count != expected:
        console.print(f"[red]RocketMQ serves {count:,} messages instead of {expected:,}")
        sys.exit(1)
    console.print(f"[green]RocketMQ itself loads it:[/] consumers get {count:,} messages")


def _bookkeeper(place: Path) -> None:
    """Write a bookie from a table, list its ledgers, and damage and repair an entry log."""
    import logwright as lw

    console.rule("[bold]9. the directories of a BookKeeper bookie")
    target, broken, repaired = (
        place / folder / "bookie" for folder in ("bookkeeper", "bookkeeper-broken", "bookkeeper-repaired")
    )
    target.parent.mkdir()
    repaired.parent.mkdir()
    rows = (
        {"ledger_id": 7 + n % 3, "entry_id": n // 3, "payload": b'{"order": %d}' % n}
        for n in range(LEDGER_ENTRIES)
    )
    lw.write(rows, target, "bookkeeper.bookie", logSizeLimit=1 << 19)
    console.print(
        f"{LEDGER_ENTRIES:,} entries of three ledgers: entry logs, index files, a journal and cookies"
    )
    _scanned(target, LEDGER_ENTRIES)
    _type("inspect", target)
    _type(
        "dump",
        target,
        "--view",
        "ledgers",
        "--columns",
        "ledger_id,first_entry_id,last_entry_id,bytes,fenced",
    )
    _type("damage", target, "--op", "set:file=ledger/current/0.log,frame=100,field=entry_size,value=0x7fffffff",
          "--out", broken.parent)  # fmt: skip
    _type("explain", broken, "--fault", 1, "--items", 1)
    _type("verify", broken, "--as-system", expected=3)
    _type("repair", broken, "--out", repaired)  # the digest of the entry proves its size
    _type("verify", repaired, "--as-system")
    _scanned(repaired, LEDGER_ENTRIES)


def _scanned(home: Path, expected: int) -> None:
    """Count the entries that BookKeeper's own scanner finds in the entry logs, if it can run."""
    from logwright.roundtrip.oracles import bookkeeper

    reason = bookkeeper.available()
    if reason is not None:
        console.print(f"[yellow]{reason}[/] Skipping the check with BookKeeper itself")
        return
    logs = sorted((home / "ledger" / "current").glob("*.log"))
    with _busy("scanning with BookKeeper's own DefaultEntryLogger"):
        count = sum(len(bookkeeper.scan_log(home / "ledger", int(log.stem, 16))) for log in logs)
    if count != expected:
        console.print(f"[red]BookKeeper finds {count:,} entries instead of {expected:,}")
        sys.exit(1)
    console.print(f"[green]BookKeeper itself reads it:[/] its scanner finds {count:,} entries")


def _type(verb: str, *words: object, expected: int = 0) -> None:
    """Run a command as typed. `expected` is its exit status: 3 for damage found or rows missing."""
    typed = [verb, *map(str, words)]
    console.print(Text(f"$ logwright {shlex.join(typed)}", "bold"))
    status = subprocess.run([sys.executable, "-m", "logwright", *typed], check=False).returncode
    if status != expected:
        raise SystemExit(f"exit status {status}, expected {expected}")
    console.print()


# Output


def _list(target: Path) -> None:
    files = sorted(target.iterdir())
    logs = [path for path in files if path.suffix == ".log"]
    for path in logs[:6]:
        console.print(f"  {path.name}  {path.stat().st_size:>12,} bytes")
    if len(logs) > 6:
        console.print(f"  ... {len(logs)} segments in total")
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
