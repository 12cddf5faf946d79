"""RocketMQ: a store read, checked, written and rebuilt, beside the store's own classes in a JVM, fetched by Maven.

Run by `benchmarks/run.py`; alone it prints its section of the table. Without Java or Maven the section says so. Times are of the processor,
on both sides and of all threads. The JVM is warm, and its garbage collector is single-threaded. Nothing waits for the disk.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from bench_zookeeper import Unsynced
from rounds import Size, Task, in_turn, jvm, print_section, python
from threads import alone

import logwright as lw
from logwright.codec import registry
from logwright.codec.frames.walk import ListedFile, Stretch, Walk
from logwright.codec.kernels import kernel
from logwright.codec.option import Options
from logwright.codec.rocketmq.formats.commitlog.codec import CODEC as LOG
from logwright.readers.listing import LocalDirectory
from logwright.roundtrip.oracles import java, rocketmq
from logwright.writers.write import write

MESSAGES = 400_000
FEW = 3
"""Rounds of tasks that take seconds."""
LOG_SIZE = 1 << 26
TIME = 1_700_000_000_000
_JVM_SOURCES = Path(__file__).parent / "jvm"
_JVM = java.Project(
    rocketmq.SOURCES / rocketmq.VERSIONS[0] / "pom.xml", _JVM_SOURCES, _JVM_SOURCES / "rocketmq"
)


def messages(count: int) -> pa.Table:
    """Return messages of four topics with four queues each, with a key, a tag and a body of 100 to 400 bytes."""
    rng = np.random.default_rng(11)
    numbers = np.arange(count)
    ends = np.concatenate(([0], np.cumsum(rng.integers(100, 400, count)))).astype(np.int32)
    data = rng.integers(32, 127, int(ends[-1]), dtype=np.uint8)
    topics, tags = pa.array([f"Topic{n}" for n in range(4)]), pa.array(["TagA", "TagB", None])
    return pa.table(
        {
            "topic": topics.take(pa.array(numbers % 4)),
            "queue_id": pa.array((numbers // 4 % 4).astype(np.int32)),
            "keys": pa.array([f"order-{n:08d}" for n in range(count)]),
            "tags": tags.take(pa.array(numbers % 3)),
            "born_timestamp_ms": numbers + TIME,
            "store_timestamp_ms": numbers + TIME,
            "body": pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)]),
        }
    )


def check(home: Path) -> int:
    """Check the frames of all commit log files with their checksums. Return the number of frames."""
    files, count = LocalDirectory(str(home / "commitlog")), 0
    for entry in files.entries():
        context = LOG.context(entry.name, Options(LOG.options))
        for step in Walk(ListedFile(files, entry.name, entry.size), LOG, context):
            if isinstance(step, Stretch):
                count += len(step.frames)
    return count


def section(place: Path, size: Size) -> list[str]:
    """Return the lines of the table."""
    if reason := _JVM.why_not():
        return [f"RocketMQ was not measured: {reason}."]
    registry.get_layout("rocketmq.store")
    for _ in kernel.warmup():
        pass
    count = size.of(MESSAGES, 1000)
    few = min(FEW, size.rounds)
    table, home, scratch = messages(count), place / "store", place / "scratch"
    options = {"mappedFileSizeCommitLog": LOG_SIZE}
    write(table, home, "rocketmq.store", files=Unsynced(), **options)
    shutil.rmtree(home / "config")
    scratch.mkdir()
    bytes_ = sum(path.stat().st_size for path in (home / "commitlog").iterdir())
    lines = [
        f"RocketMQ: a store of {count:,} messages of four topics, {bytes_ / 1e6:.0f} MB of commit log. The store's own classes",
        f"({rocketmq.VERSIONS[0]}) run in a warm JVM, in turn with ours; each ratio is the median of the ratios of all rounds. Times are",
        "of the processor and all threads; those of writing and rebuilding are on the wall clock too. Nothing waits for the disk.",
        "",
        "| task | logwright | beside it | ratio |",
        "|---|---|---|---|",
    ]
    out = scratch / "ours"

    def store() -> None:
        shutil.rmtree(out, ignore_errors=True)
        write(table, out, "rocketmq.store", files=Unsynced(), **options)

    def rebuild() -> None:
        shutil.rmtree(out, ignore_errors=True)
        lw.rebuild(home, out, **options)

    def rows(columns: Any) -> Task:
        return python(alone(lambda: sum(batch.num_rows for batch in lw.scan(home, columns=columns))))

    command = [
        *(java.command("java"), "-Xmx2g", "-XX:+UseSerialGC", *rocketmq.FLAGS, "-cp", _JVM.classpath()),
        *("logwright.bench.rocketmq.Bench", str(home), str(scratch), str(LOG_SIZE)),
    ]
    with jvm(command) as server:
        reading = {
            "recover": server.task("recover", units=count),
            "decode": server.task("decode", units=count),
            "check": python(alone(lambda: check(home))),
            "rows": rows(None),
            "all": rows("*"),
        }
        measured = in_turn(reading, size.rounds)
        million = count / 1e6
        for label, task, name, peer in (
            ("messages checked, with CRC", "check", "CommitLog.checkMessageAndReturnSize", "recover"),
            ("messages to Arrow, default columns", "rows", "MessageDecoder.decode with CRC", "decode"),
            ("messages to Arrow, all columns", "all", "MessageDecoder.decode with CRC", "decode"),
        ):
            lines.append(measured.row(label, million, "M/s", task, name, peer))
        writing = {
            "put": server.task("put", units=count),
            "rebuild": server.task("rebuild", units=count),
            "store": python(alone(store)),
            "rebuilt": python(alone(rebuild)),
        }
        measured = in_turn(writing, few)
        for label, task, name, peer in (
            ("a store written, queues and index included", "store", "putMessage and dispatch", "put"),
            (
                "queues and index rebuilt, the log copied",
                "rebuilt",
                "DefaultMessageStore.load of a log alone",
                "rebuild",
            ),
        ):
            lines.append(measured.row(label, million, "M/s", task, name, peer))
            lines.append(measured.row(f"{label}, wall clock", million, "M/s", task, name, peer, wall=True))
    return lines


if __name__ == "__main__":
    print_section("RocketMQ", section)
