"""ZooKeeper: a snapshot of 801,000 nodes and a log of 867,000 transactions read, replayed and written, beside the server's own classes
and tools in a JVM (those in the jars that come with pyspark).

Run by `benchmarks/run.py`; alone it prints its section of the table in six minutes. Without Java or pyspark the section says so.
Times are of the processor, on both sides, and of one thread: the JVM's with its garbage collector, which has no thread of its own
here, and warm. How a server starts, and how the tools are run by people, cold, are lines of their own. By default we read with
several threads: what that makes is seen by the clock on the wall only, so both sides are held to that where a line says so.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from threads import alone

import logwright as lw
from logwright.codec import kernel, registry
from logwright.codec.option import Options
from logwright.codec.walk import Reader, Stretch, walk
from logwright.codec.zookeeper import snapshot, txnlog
from logwright.codec.zookeeper.replay import Tree
from logwright.codec.zookeeper.write import of_tree
from logwright.readers.crew import Crew, usable
from logwright.readers.listing import LocalDirectory
from logwright.roundtrip.oracles import java, zookeeper
from logwright.writers.file import put_whole
from logwright.writers.filesystem import LocalFile, LocalFileSystem, OpenFile
from logwright.writers.write import write

NODES, TXNS, FOLDERS = 801_000, 867_000, 1000
ROUNDS = 5
SNAPSHOT, LOG = snapshot.CODEC, txnlog.CODEC
TIME = 1_700_000_000_000
_JVM = zookeeper.Bundled(zookeeper.PROJECT.pom, Path(__file__).parent / "jvm" / "zookeeper")

Seconds = dict[str, float]


# What is read


def make(place: Path) -> tuple[Path, Path]:
    """A data directory: the snapshot of a tree, and a log of changes of its nodes, with digests."""
    files = place / "version-2"
    files.mkdir(parents=True)
    rng = np.random.default_rng(7)
    paths = ["/app", *(f"/app/d{k:04d}" for k in range(FOLDERS))]
    paths += [f"/app/d{k % FOLDERS:04d}/node-{k // FOLDERS:06d}" for k in range(NODES - len(paths))]
    sizes = rng.integers(62, 200, len(paths))
    sizes[: FOLDERS + 1] = 0
    zxids = np.arange(1, len(paths) + 1)
    rows = pa.table(
        {
            "path": pa.array(paths),
            "data": _text(rng, sizes),
            **dict.fromkeys(("czxid", "mzxid", "pzxid"), zxids),
            **dict.fromkeys(("ctime_ms", "mtime_ms"), zxids + TIME),
            "version": pa.array(np.zeros(len(paths), np.int32)),
        }
    )
    last = len(paths)
    made = files / f"snapshot.{last:x}"
    _write(made, SNAPSHOT.encode(rows, None, None, SNAPSHOT.context(made.name, Options(SNAPSHOT.options))))
    which = rng.integers(FOLDERS + 1, len(paths), TXNS)
    zxids = np.arange(last + 1, last + 1 + TXNS)
    columns: dict[str, Any] = {
        "zxid": zxids,
        "time_ms": zxids + TIME,
        "session_id": np.full(TXNS, 1 << 56 | 1),
        "cxid": pa.array(np.arange(TXNS, dtype=np.int32)),
        "type": pa.array(["setData"]).take(pa.array(np.zeros(TXNS, np.int64))),
        "path": rows["path"].take(pa.array(which)),
        "data": _text(rng, sizes[which]),
        "version": pa.array(np.ones(TXNS, np.int32)),
    }
    log = files / f"log.{last + 1:x}"
    _write(log, _encoded(columns, log))
    digests = np.concatenate([one.digests for one in _applied(_loaded(made, digests=True), log)])
    columns |= {"digest_version": pa.array(np.full(TXNS, 2, np.int32)), "tree_digest": digests}
    _write(log, _encoded(columns, log))
    return made, log


def settle(*paths: Path) -> None:
    """Have files in memory as they come from a disk. What was just written is in smaller pieces there, which take longer to read."""
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while file.read(1 << 20):
                pass


def _text(rng: np.random.Generator, sizes: Any) -> pa.Array:
    ends = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=ends[1:])
    data = rng.integers(32, 127, int(ends[-1]), dtype=np.uint8)
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _encoded(columns: dict[str, Any], log: Path) -> Iterator[Any]:
    return LOG.encode(pa.table(columns), None, None, LOG.context(log.name, Options(LOG.options)))


def _write(path: Path, chunks: Iterator[Any]) -> None:
    with path.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)


# Ours


def _reader(path: Path) -> Reader:
    return Reader(LocalDirectory(str(path.parent)), path.name, path.stat().st_size)


def _loaded(path: Path, *, digests: bool) -> Tree:
    tree, faults = Tree.of_snapshot(_reader(path), zxid=int(path.suffix[1:], 16), digests=digests)
    if faults or tree.loaded() != ([], None):
        raise SystemExit(f"{path}: {faults}")
    return tree


def _applied(tree: Tree, log: Path, *, check: bool = False) -> Iterator[Any]:
    for found in walk(_reader(log), LOG, LOG.context(log.name, Options(LOG.options))):
        assert isinstance(found, Stretch)
        yield tree.apply_frames(found.window, found.frames, since=tree.zxid, check=check)


def restored(made: Path, log: Path, *, digests: bool) -> Tree:
    tree = _loaded(made, digests=digests)
    for one in _applied(tree, log, check=digests):
        if one.mismatches or one.notes or one.died:
            raise SystemExit(f"{log}: {one}")
    return tree


def read(path: Path) -> int:
    return sum(batch.num_rows for batch in lw.scan(path))


def verified(path: Path) -> bool:
    return lw.verify(path, depth="checksums").ok


Writing = tuple[Callable[[], Iterator[Any]], Callable[[], Any]]
"""Makes the bytes of a file; makes the file."""


def writing(log: Path, made: Path, scratch: Path) -> dict[str, Writing]:
    """What writes each file from its rows, which are in memory."""
    columns = (*LOG.tables["rows"].names(), "digest_version", "tree_digest")
    txns = pa.Table.from_batches(list(lw.scan(log, columns=columns)))
    nodes = pa.Table.from_batches(list(lw.scan(made)))

    ours = scratch / "ours"
    ours.mkdir(exist_ok=True)

    def into(codec: Any, rows: pa.Table, path: Path) -> None:
        # As the server's side removes the file of the round before.
        path.unlink(missing_ok=True)
        write(rows, path, codec, files=_Unsynced())

    def both(codec: Any, rows: pa.Table, name: str) -> Writing:
        return (
            lambda: codec.encode(rows, None, None, codec.context(name, Options(codec.options))),
            lambda: into(codec, rows, ours / name),
        )

    return {"log": both(LOG, txns, log.name), "snapshot": both(SNAPSHOT, nodes, made.name)}


class _Unsynced(LocalFileSystem):
    """Nothing waits for the disk, as with the server here."""

    def create(self, path: str) -> OpenFile:
        return _UnsyncedFile(path, os.O_CREAT | os.O_EXCL)

    def open(self, path: str) -> OpenFile:
        return _UnsyncedFile(path, 0)

    def sync_directory(self, path: str) -> None:
        pass


class _UnsyncedFile(LocalFile):
    def sync(self) -> None:
        pass


def samples(task: Callable[[], Any], clock: Callable[[], float] = time.process_time) -> list[float]:
    """Times, of the processor if nothing else is said, after one round that warms up."""
    taken = []
    for round_ in range(ROUNDS + 1):
        started = clock()
        task()
        if round_:
            taken.append(clock() - started)
    return taken


def seconds(task: Callable[[], Any], clock: Callable[[], float] = time.process_time) -> float:
    """Median of these."""
    return statistics.median(samples(task, clock))


class Readings:
    """What takes less than a second is measured several times, minutes apart: machines do other work for seconds at a time."""

    def __init__(self, tasks: dict[str, Callable[[], Any]]) -> None:
        self.tasks = tasks
        self._taken: dict[str, list[float]] = {}

    def sample(self) -> None:
        for name, task in self.tasks.items():
            self._taken.setdefault(name, []).extend(samples(alone(task)))
            self._taken.setdefault(f"{name}.wall", []).extend(samples(task, time.perf_counter))

    def seconds(self, name: str) -> float:
        return statistics.median(self._taken[name])


# The server's classes


def peer(data: Path, scratch: Path, rounds: int) -> Seconds:
    """Seconds by task; see the class."""
    scratch.mkdir(exist_ok=True)
    run = subprocess.run(
        [
            *(java.command("java"), "-Xmx3g", "-XX:+UseSerialGC", "-Dzookeeper.forceSync=no"),
            *("-cp", _JVM.classpath()),
            *("logwright.bench.zookeeper.Bench", str(data), str(scratch), str(rounds)),
        ],
        capture_output=True,
        text=True,
    )
    if run.returncode:
        raise java.OracleError(f"the benchmark failed: {run.stderr[-2000:]}")
    found: Seconds = json.loads(run.stdout)
    return found


def _tool(name: str, path: Path) -> float:
    """Seconds of the processor that a tool takes for a file as people run it: a JVM of its own, what it prints goes to /dev/null."""
    command = java.command("java"), "-Xmx3g", "-XX:+UseSerialGC", "-cp", _JVM.classpath()

    def run() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [*command, f"org.apache.zookeeper.server.{name}", str(path)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return statistics.median(run() for _ in range(3))


# The lines


def section(place: Path) -> list[str]:
    """The lines of the table."""
    if reason := _JVM.why_not():
        return [f"ZooKeeper was not measured: {reason}."]
    registry.get_layout("zookeeper.datadir")
    for _ in kernel.warmup():
        pass
    made, log = make(place / "data")
    settle(made, log)
    scratch = place / "scratch"
    readings = Readings(
        {
            "log": lambda: read(log),
            "log.verified": lambda: verified(log),
            "snapshot": lambda: read(made),
            "snapshot.verified": lambda: verified(made),
        }
    )
    readings.sample()
    server = peer(place / "data", scratch, ROUNDS)
    readings.sample()
    server |= peer(place / "data", scratch, 0)
    server["formatter.cold"] = _tool("SnapshotFormatter", made)
    server["toolkit.cold"] = _tool("persistence.TxnLogToolkit", log)
    readings.sample()
    threads = usable()
    lines = [
        f"ZooKeeper: a snapshot of {NODES:,} nodes, {made.stat().st_size / 1e6:.0f} MB, and a log of {TXNS:,} changes of them,",
        f"{log.stat().st_size / 1e6:.0f} MB; beside it the server's own classes and tools, warm and with one thread unless a line says",
        "otherwise. Times are of the processor; where we have several threads, of the clock on the wall, on both sides. What tools print",
        "goes to /dev/null. The server's classes write to files; nothing waits for the disk.",
        "",
        "| task | logwright | beside it | ratio |",
        "|---|---|---|---|",
    ]

    def row(task: str, units: float, ours: float, what: str, other: str) -> None:
        rate, theirs = units / 1e6 / ours, units / 1e6 / server[other]
        lines.append(f"| {task} | {rate:,.2f} M/s | {theirs:,.2f} {what} | {server[other] / ours:.2f} |")

    def reading(task: str, name: str, units: float, what: str, other: str) -> None:
        row(f"{task}, 1 thread", units, readings.seconds(name), what, other)
        if threads > 1:
            wall = readings.seconds(f"{name}.wall")
            row(f"the same, {threads} threads, clock on the wall", units, wall, what, f"{other}.wall")

    taken = readings.seconds("log")
    reading("log, all columns to Arrow", "log", TXNS, "FileTxnLog's iterator", "log")
    row("the same, 1 thread", TXNS, taken, "TxnLogToolkit, warm", "toolkit")
    row("the same, 1 thread", TXNS, taken, "TxnLogToolkit as it is run", "toolkit.cold")
    reading("log, checksums verified", "log.verified", TXNS, "FileTxnLog's iterator", "log")
    taken = readings.seconds("snapshot")
    reading("snapshot, all columns to Arrow", "snapshot", NODES, "FileSnap.deserialize", "deserialize")
    row("the same, 1 thread", NODES, taken, "SnapshotFormatter, warm", "formatter")
    row("the same, 1 thread", NODES, taken, "SnapshotFormatter as it is run", "formatter.cold")
    reading("snapshot, checksums verified", "snapshot.verified", NODES, "FileSnap.deserialize", "deserialize")
    ours = writing(log, made, scratch)

    def written(task: str, units: float, by: Writing, what: str, other: str) -> None:
        run, into = by
        row(f"{task}, in memory", units, seconds(lambda: sum(len(one) for one in run())), what, other)
        row("the same, into a file, 1 thread", units, seconds(alone(into)), what, other)
        if threads > 1:
            wall = seconds(into, clock=time.perf_counter)
            row(f"the same, {threads} threads, clock on the wall", units, wall, what, f"{other}.wall")

    written("log from rows", TXNS, ours["log"], "FileTxnLog.append", "append")
    written("snapshot from rows", NODES, ours["snapshot"], "FileSnap.serialize", "serialize")
    ours.clear()
    for digests, words in (
        (True, "with digests compared"),
        (False, "without the digests that the server makes"),
    ):
        taken = seconds(lambda digests=digests: restored(made, log, digests=digests))
        row(f"tree from snapshot and log, {words}", NODES + TXNS, taken, "FileTxnSnapLog.restore", "restore")
        row(f"the same, {words}", NODES + TXNS, taken, "a server's start, JVM and all", "start")
    tree = restored(made, log, digests=True)
    task = "snapshot of a tree"

    path = scratch / "ours" / "snapshot.1"

    def into() -> None:
        path.unlink(missing_ok=True)
        with Crew(usable()) as crew:
            put_whole(_Unsynced(), str(path), "error", lambda: crew.each([lambda: of_tree(tree)], len))

    written(task, NODES, (lambda: of_tree(tree), into), "FileSnap.serialize", "serialize")
    return lines


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="logwright-bench-") as folder:
        print("measuring ZooKeeper (six minutes) ...", file=sys.stderr)
        print("\n".join(section(Path(folder))))
