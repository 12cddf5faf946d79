"""ZooKeeper: reading, replaying and writing a snapshot and a log, compared with the server's own classes and tools in a JVM (from the
jars that come with pyspark).

Run by `benchmarks/run.py`; alone it prints its section of the table in six minutes. Without Java or pyspark the section says so.
Times are of the processor, on both sides, and of one thread. The JVM is warm, and its garbage collector is single-threaded. The
start of a server and the tools as users run them, cold, have their own lines. By default we read with several threads. Only the wall
clock shows their effect, so a line about them uses the wall clock for both sides.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rounds import Rounds, Size, Task, cold, in_turn, jvm, print_section, python
from threads import alone

import logwright as lw
from logwright.codec import registry
from logwright.codec.frames.walk import ListedFile, Stretch, Walk
from logwright.codec.kernels import kernel
from logwright.codec.option import Options
from logwright.codec.window import Zeros
from logwright.codec.zookeeper.formats.snapshot import codec as snapshot
from logwright.codec.zookeeper.formats.txnlog import codec as txnlog
from logwright.codec.zookeeper.state.tree import Tree
from logwright.codec.zookeeper.store.write import of_tree
from logwright.readers.listing import LocalDirectory
from logwright.readers.prefetch import Prefetcher, usable
from logwright.roundtrip.oracles import java, zookeeper
from logwright.writers.file import put_whole
from logwright.writers.filesystem import LocalFile, LocalFileSystem, OpenFile
from logwright.writers.write import write

NODES, TXNS, FOLDERS = 801_000, 867_000, 1000
FEW = 3
"""Rounds of tasks that take seconds."""
SNAPSHOT, LOG = snapshot.CODEC, txnlog.CODEC
TIME = 1_700_000_000_000
_JVM_SOURCES = Path(__file__).parent / "jvm"
_JVM = zookeeper.Bundled(zookeeper.PROJECT.pom, _JVM_SOURCES, _JVM_SOURCES / "zookeeper")


# Input


def make(place: Path, nodes: int, txns: int) -> tuple[Path, Path]:
    """Write a data directory: the snapshot of a tree, and a log of changes of its nodes, with digests."""
    files = place / "version-2"
    files.mkdir(parents=True)
    rng = np.random.default_rng(7)
    paths = ["/app", *(f"/app/d{k:04d}" for k in range(FOLDERS))]
    paths += [f"/app/d{k % FOLDERS:04d}/node-{k // FOLDERS:06d}" for k in range(nodes - len(paths))]
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
    snapshot = files / f"snapshot.{last:x}"
    _write(
        snapshot,
        SNAPSHOT.encode(rows, None, None, SNAPSHOT.context(snapshot.name, Options(SNAPSHOT.options))),
    )
    which = rng.integers(FOLDERS + 1, len(paths), txns)
    zxids = np.arange(last + 1, last + 1 + txns)
    columns: dict[str, Any] = {
        "zxid": zxids,
        "time_ms": zxids + TIME,
        "session_id": np.full(txns, 1 << 56 | 1),
        "cxid": pa.array(np.arange(txns, dtype=np.int32)),
        "type": pa.array(["setData"]).take(pa.array(np.zeros(txns, np.int64))),
        "path": rows["path"].take(pa.array(which)),
        "data": _text(rng, sizes[which]),
        "version": pa.array(np.ones(txns, np.int32)),
    }
    log = files / f"log.{last + 1:x}"
    _write(log, _encoded(columns, log))
    digests = np.concatenate([state.digests for state in _applied(_loaded(snapshot, digests=True), log)])
    columns |= {"digest_version": pa.array(np.full(txns, 2, np.int32)), "tree_digest": digests}
    _write(log, _encoded(columns, log))
    return snapshot, log


def settle(*paths: Path) -> None:
    """Reload files into the page cache in large pieces, as on a freshly booted machine, if that is permitted. Recently written files,
    or files in fragmented memory, are cached in smaller pieces, which take longer to read."""
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
            file.write(bytes(chunk) if isinstance(chunk, Zeros) else chunk)


# Ours


def _reader(path: Path) -> ListedFile:
    return ListedFile(LocalDirectory(str(path.parent)), path.name, path.stat().st_size)


def _loaded(path: Path, *, digests: bool) -> Tree:
    tree, faults = Tree.of_snapshot(_reader(path), zxid=int(path.suffix[1:], 16), digests=digests)
    if faults or tree.loaded() != ([], None):
        raise SystemExit(f"{path}: {faults}")
    return tree


def _applied(tree: Tree, log: Path, *, check: bool = False) -> Iterator[Any]:
    for stretch in Walk(_reader(log), LOG, LOG.context(log.name, Options(LOG.options))):
        assert isinstance(stretch, Stretch)
        yield tree.apply_frames(stretch.window, stretch.frames, since=tree.zxid, check=check)


def restored(snapshot: Path, log: Path, *, digests: bool) -> Tree:
    tree = _loaded(snapshot, digests=digests)
    for state in _applied(tree, log, check=digests):
        if state.mismatches or state.notes or state.died:
            raise SystemExit(f"{log}: {state}")
    return tree


def read(path: Path) -> int:
    return sum(batch.num_rows for batch in lw.scan(path))


def verified(path: Path) -> bool:
    return lw.verify(path, depth="checksums").ok


Writing = tuple[Callable[[], Iterator[Any]], Callable[[], Any]]
"""A function that makes the bytes of a file, and one that writes the file."""


def writing(log: Path, snapshot: Path, scratch: Path) -> dict[str, Writing]:
    """Return the writers of each file from rows in memory."""
    columns = (*LOG.tables["rows"].names(), "digest_version", "tree_digest")
    txns = pa.Table.from_batches(list(lw.scan(log, columns=columns)))
    nodes = pa.Table.from_batches(list(lw.scan(snapshot)))

    ours = scratch / "ours"
    ours.mkdir(exist_ok=True)

    def into(codec: Any, rows: pa.Table, path: Path) -> None:
        # The server's side also removes the file of the previous round.
        path.unlink(missing_ok=True)
        write(rows, path, codec, files=Unsynced())

    def both(codec: Any, rows: pa.Table, name: str) -> Writing:
        return (
            lambda: codec.encode(rows, None, None, codec.context(name, Options(codec.options))),
            lambda: into(codec, rows, ours / name),
        )

    return {"log": both(LOG, txns, log.name), "snapshot": both(SNAPSHOT, nodes, snapshot.name)}


class Unsynced(LocalFileSystem):
    """Write without syncing, like the server in this benchmark."""

    def create(self, path: str) -> OpenFile:
        return _UnsyncedFile(path, os.O_CREAT | os.O_EXCL)

    def open(self, path: str) -> OpenFile:
        return _UnsyncedFile(path, 0)

    def sync_directory(self, path: str) -> None:
        pass


class _UnsyncedFile(LocalFile):
    def sync(self) -> None:
        pass


# The server's classes


def _java() -> list[str]:
    return [
        java.command("java"),
        "-Xmx3g",
        "-XX:+UseSerialGC",
        "-Dzookeeper.forceSync=no",
        "-cp",
        _JVM.classpath(),
    ]


def _bench(data: Path) -> list[str]:
    return [*_java(), "logwright.bench.zookeeper.Bench", str(data)]


_TOOLKIT = "toolkit", "TxnLogToolkit", "persistence.TxnLogToolkit"
_FORMATTER = "formatter", "SnapshotFormatter", "SnapshotFormatter"
"""A tool: the request for a round of it, its name, its class."""


def _tool(name: str, path: Path) -> list[str]:
    """Return the command of a tool, as users run it."""
    return [*_java(), f"org.apache.zookeeper.server.{name}", str(path)]


# The lines


def section(place: Path, size: Size) -> list[str]:
    """Yield the lines of the table."""
    if reason := _JVM.why_not():
        return [f"ZooKeeper was not measured: {reason}."]
    registry.get_layout("zookeeper.datadir")
    for _ in kernel.warmup():
        pass
    nodes, txns = size.of(NODES, 2 * FOLDERS), size.of(TXNS)
    few = min(FEW, size.rounds)
    snapshot_path, log_path = make(place / "data", nodes, txns)
    settle(snapshot_path, log_path)
    scratch = place / "scratch"
    scratch.mkdir()
    threads = usable()
    lines = [
        f"ZooKeeper: a snapshot of {nodes:,} nodes, {snapshot_path.stat().st_size / 1e6:.0f} MB, and a log of {txns:,} changes of",
        f"them, {log_path.stat().st_size / 1e6:.0f} MB. The server's own classes and tools run in a warm JVM, in turn with ours; each ratio",
        "is the median of the ratios of all rounds. Times are of the processor and one thread. Where we have several threads, both sides",
        "are timed by the wall clock. The output of tools goes to /dev/null. The server's classes write to files; nothing waits for the",
        "disk.",
        "",
        "| task | logwright | compared with | ratio |",
        "|---|---|---|---|",
    ]

    def row(label: str, units: int, measured: Rounds, task: str, name: str, peer: str) -> None:
        lines.append(measured.row(label, units / 1e6, "M/s", task, name, peer))

    def rows(label: str, units: int, measured: Rounds, task: str, name: str, peer: str) -> None:
        """One thread by the processor, and all threads by the wall clock."""
        row(f"{label}, 1 thread", units, measured, task, name, peer)
        if threads > 1:
            label = f"the same, {threads} threads, wall clock"
            lines.append(measured.row(label, units / 1e6, "M/s", f"{task}, threads", name, peer, wall=True))

    def both(name: str, work: Callable[[], Any]) -> dict[str, Task]:
        return {name: python(alone(work)), f"{name}, threads": python(work)}

    with jvm([*_bench(place / "data"), str(scratch)]) as server:
        for name, units, path, (peer, text), (request, tool, command) in (
            ("log", txns, log_path, ("log", "FileTxnLog's iterator"), _TOOLKIT),
            ("snapshot", nodes, snapshot_path, ("deserialize", "FileSnap.deserialize"), _FORMATTER),
        ):
            reading = both("read", partial(read, path))
            verifying = both("verify", partial(verified, path))
            measured = in_turn({"peer": server.task(peer)} | reading | verifying, size.rounds)
            rows(f"{name}, all columns to Arrow", units, measured, "read", text, "peer")
            rows(f"{name}, checksums verified", units, measured, "verify", text, "peer")
            measured = in_turn(
                {"warm": server.task(request), "cold": cold(_tool(command, path)), "read": reading["read"]},
                few,
            )
            label = f"{name}, all columns to Arrow, 1 thread"
            row(label, units, measured, "read", f"{tool}, warm", "warm")
            row(label, units, measured, "read", f"{tool} in a new JVM", "cold")

        measured = in_turn(
            {
                "restore": server.task("restore"),
                "start": cold(_bench(place / "data")),
                "checked": python(lambda: restored(snapshot_path, log_path, digests=True)),
                "plain": python(lambda: restored(snapshot_path, log_path, digests=False)),
            },
            size.rounds,
        )
        for task, words in (
            ("checked", "with digests compared"),
            ("plain", "without the digests that the server makes"),
        ):
            label = f"tree from snapshot and log, {words}"
            row(label, nodes + txns, measured, task, "FileTxnSnapLog.restore", "restore")
            row(label, nodes + txns, measured, task, "a server's start, including the JVM's", "start")

        tree = restored(snapshot_path, log_path, digests=True)
        path = scratch / "ours" / "snapshot.1"

        def write_tree() -> None:
            path.unlink(missing_ok=True)
            with Prefetcher(usable()) as prefetcher:
                put_whole(
                    Unsynced(), str(path), "error", lambda: prefetcher.iterate([lambda: of_tree(tree)], len)
                )

        writings = writing(log_path, snapshot_path, scratch)
        for peer, text, units, works in (
            (
                "serialize",
                "FileSnap.serialize",
                nodes,
                {
                    "snapshot from rows": writings["snapshot"],
                    "snapshot of a tree": (lambda: of_tree(tree), write_tree),
                },
            ),
            ("append", "FileTxnLog.append", txns, {"log from rows": writings["log"]}),
        ):
            tasks = {"peer": server.task(peer)}
            for name, (encode, to_file) in works.items():
                tasks[name] = python(lambda encode=encode: sum(len(chunk) for chunk in encode()))
                tasks |= both(f"{name} to a file", to_file)
            measured = in_turn(tasks, size.rounds)
            for name in works:
                row(f"{name}, in memory", units, measured, name, text, "peer")
                rows(f"{name}, into a file", units, measured, f"{name} to a file", text, "peer")
    return lines


if __name__ == "__main__":
    print_section("ZooKeeper", section)
