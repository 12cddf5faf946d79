"""ZooKeeper: a snapshot of 801,000 nodes and a log of 867,000 transactions read, replayed and written, beside the server's own classes
and tools in a JVM (those in the jars that come with pyspark).

Run by `benchmarks/run.py`; alone it prints its section of the table in six minutes. Without Java or pyspark the section says so.
Times are of the processor, on both sides, and of one thread: the JVM's with its garbage collector, which has no thread of its own
here, and warm. How a server starts, and how the tools are run by people, cold, are lines of their own. By default we read with
several threads: what that makes is seen by the clock on the wall only, so both sides are held to that where a line says so.
"""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
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
ROUNDS, FEW = 7, 3
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
    """Have files in memory as they come from a disk on a machine that was just started, where that is allowed. What was just written,
    or is in memory that was used for days, is in smaller pieces there, which take longer to read."""
    with contextlib.suppress(OSError):
        Path("/proc/sys/vm/compact_memory").write_text("1")
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


Clock = Callable[[], float]
CPU, WALL = time.process_time, time.perf_counter
Task = tuple[Callable[[], Any], Clock]
"""What is done, and the clock that it is measured by: with several threads that on the wall."""


def seconds(task: Task) -> float:
    run, clock = task
    started = clock()
    run()
    return clock() - started


# The server's classes


class Server:
    """Its own classes in a JVM; see the class."""

    def __init__(self, data: Path, scratch: Path) -> None:
        scratch.mkdir(exist_ok=True)
        self._errors = scratch / "errors"
        with self._errors.open("w") as errors:
            self._run = subprocess.Popen(
                [*_bench(), str(data), str(scratch)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._run.kill()
        self._run.wait()

    def round(self, task: str) -> tuple[float, float]:
        """Seconds of the processor for a task, and those that passed."""
        stdin, stdout = self._run.stdin, self._run.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(f"{task}\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise java.OracleError(f"the benchmark failed: {self._errors.read_text()[-2000:]}")
        taken, passed = line.split()
        return float(taken), float(passed)

    def beside(self, task: str, ours: dict[str, Task], rounds: int) -> Seconds:
        """Medians of seconds, of ours and of `task` and `task.wall`, after a round that warms up. All are measured in turn: what else
        the machine does meanwhile is the same for all of them. Ours several times, as they take a tenth of the time."""
        taken: dict[str, list[float]] = {}
        for round_ in range(rounds + 1):
            theirs = self.round(task)
            found = {task: [theirs[0]], f"{task}.wall": [theirs[1]]}
            found |= {name: [seconds(one) for _ in range(FEW)] for name, one in ours.items()}
            if round_:
                for name, some in found.items():
                    taken.setdefault(name, []).extend(some)
        return {name: statistics.median(some) for name, some in taken.items()}


def _bench() -> list[str]:
    command = java.command("java"), "-Xmx3g", "-XX:+UseSerialGC", "-Dzookeeper.forceSync=no"
    return [*command, "-cp", _JVM.classpath(), "logwright.bench.zookeeper.Bench"]


def _start(data: Path) -> float:
    """Seconds of the processor for a start of the server, JVM and all."""
    run = subprocess.run([*_bench(), str(data)], capture_output=True, text=True)
    if run.returncode:
        raise java.OracleError(f"the benchmark failed: {run.stderr[-2000:]}")
    return float(run.stdout)


_TOOLKIT = "toolkit", "TxnLogToolkit", "persistence.TxnLogToolkit"
_FORMATTER = "formatter", "SnapshotFormatter", "SnapshotFormatter"
"""A tool: the task that is to be done with it, its name, its class."""


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
    threads = usable()
    lines = [
        f"ZooKeeper: a snapshot of {NODES:,} nodes, {made.stat().st_size / 1e6:.0f} MB, and a log of {TXNS:,} changes of them,",
        f"{log.stat().st_size / 1e6:.0f} MB; beside it the server's own classes and tools, warm and with one thread unless a line says",
        "otherwise, in turn with ours. Times are of the processor; where we have several threads, of the clock on the wall, on both",
        "sides. What tools print goes to /dev/null. The server's classes write to files; nothing waits for the disk.",
        "",
        "| task | logwright | beside it | ratio |",
        "|---|---|---|---|",
    ]

    def row(task: str, units: float, ours: float, what: str, theirs: float) -> None:
        lines.append(
            f"| {task} | {units / 1e6 / ours:,.2f} M/s | {units / 1e6 / theirs:,.2f} {what} | {theirs / ours:.2f} |"
        )

    def rows(task: str, units: float, ours: Seconds, name: str, what: str, other: str, one: str = "") -> None:
        """One thread by the processor, and all threads by the clock on the wall."""
        row(f"{task}{one}", units, ours[name], what, ours[other])
        if threads > 1:
            task = f"the same, {threads} threads, clock on the wall"
            row(task, units, ours[f"{name}.wall"], what, ours[f"{other}.wall"])

    def both(name: str, task: Callable[[], Any]) -> dict[str, Task]:
        return {name: (alone(task), CPU), f"{name}.wall": (task, WALL)}

    with Server(place / "data", scratch) as server:
        for name, units, path, (other, what), (task, tool, command) in (
            ("log", TXNS, log, ("log", "FileTxnLog's iterator"), _TOOLKIT),
            ("snapshot", NODES, made, ("deserialize", "FileSnap.deserialize"), _FORMATTER),
        ):
            ours = both("all", partial(read, path)) | both("verified", partial(verified, path))
            taken = server.beside(other, ours, ROUNDS)
            rows(f"{name}, all columns to Arrow", units, taken, "all", what, other, ", 1 thread")
            rows(f"{name}, checksums verified", units, taken, "verified", what, other, ", 1 thread")
            taken = server.beside(task, {"all": ours["all"]}, FEW)
            read_by_one = f"{name}, all columns to Arrow, 1 thread"
            row(read_by_one, units, taken["all"], f"{tool}, warm", taken[task])
            row(read_by_one, units, taken["all"], f"{tool} as it is run", _tool(command, path))

        restoring: dict[str, Task] = {
            "checked": (lambda: restored(made, log, digests=True), CPU),
            "plain": (lambda: restored(made, log, digests=False), CPU),
        }
        taken = server.beside("restore", restoring, ROUNDS)
        start = statistics.median(_start(place / "data") for _ in range(FEW))
        for name, words in (
            ("checked", "with digests compared"),
            ("plain", "without the digests that the server makes"),
        ):
            task = f"tree from snapshot and log, {words}"
            row(task, NODES + TXNS, taken[name], "FileTxnSnapLog.restore", taken["restore"])
            row(task, NODES + TXNS, taken[name], "a server's start, JVM and all", start)

        tree = restored(made, log, digests=True)
        path = scratch / "ours" / "snapshot.1"

        def into() -> None:
            path.unlink(missing_ok=True)
            with Crew(usable()) as crew:
                put_whole(_Unsynced(), str(path), "error", lambda: crew.each([lambda: of_tree(tree)], len))

        writings = writing(log, made, scratch)
        for other, what, units, some in (
            (
                "serialize",
                "FileSnap.serialize",
                NODES,
                {
                    "snapshot from rows": writings["snapshot"],
                    "snapshot of a tree": (lambda: of_tree(tree), into),
                },
            ),
            ("append", "FileTxnLog.append", TXNS, {"log from rows": writings["log"]}),
        ):
            ours = {}
            for task, (run, to_file) in some.items():
                ours[task] = (lambda run=run: sum(len(one) for one in run()), CPU)
                ours |= both(f"{task} to a file", to_file)
            taken = server.beside(other, ours, ROUNDS)
            for task in some:
                row(f"{task}, in memory", units, taken[task], what, taken[other])
                rows(f"{task}, into a file", units, taken, f"{task} to a file", what, other, ", 1 thread")
    return lines


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="logwright-bench-") as folder:
        print("measuring ZooKeeper (six minutes) ...", file=sys.stderr)
        print("\n".join(section(Path(folder))))
