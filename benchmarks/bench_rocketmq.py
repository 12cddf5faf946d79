"""RocketMQ: a store read, checked, written and rebuilt, beside the store's own classes in a JVM, fetched by Maven.

Run by `benchmarks/run.py`; alone it prints its section of the table. Without Java or Maven the section says so. Times are of the processor,
for one thread of ours and all threads of the JVM, except in rows of the wall clock. The JVM is warm, and its garbage collector is
single-threaded. Nothing waits for the disk, and the removal of earlier results is not measured.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from bench_zookeeper import Unsynced
from rounds import Size, in_turn, jvm, print_section, python, second
from threads import alone

import logwright as lw
from logwright.codec import registry
from logwright.codec.frames.codec import Part
from logwright.codec.frames.walk import ListedFile, Stretch, Walk
from logwright.codec.kernels import kernel
from logwright.codec.kernels.crc32 import crc32
from logwright.codec.kernels.intrinsics import copy
from logwright.codec.kernels.memory import aligned
from logwright.codec.option import Options
from logwright.codec.rocketmq.formats.commitlog.codec import CODEC as LOG
from logwright.codec.rocketmq.formats.commitlog.read import Messages
from logwright.codec.rocketmq.repair.derived_files import derived_pieces
from logwright.codec.rocketmq.repair.repair import OPTIONS, StoreRepair
from logwright.codec.window import Zeros
from logwright.readers.listing import LocalDirectory
from logwright.readers.report import Report
from logwright.readers.resolve import resolve
from logwright.readers.target import DirectoryTarget
from logwright.roundtrip.oracles import java, rocketmq
from logwright.writers import repair
from logwright.writers.filesystem import as_view
from logwright.writers.request import Request
from logwright.writers.write import write

MESSAGES = 400_000
FEW = 7
"""Rounds of tasks that take seconds."""
LOG_SIZE = 1 << 26
TIME = 1_700_000_000_000
_JVM_SOURCES = Path(__file__).parent / "jvm"
_JVM = java.Project(
    rocketmq.SOURCES / rocketmq.VERSIONS[0] / "pom.xml", _JVM_SOURCES, _JVM_SOURCES / "rocketmq"
)


def properties(count: int) -> pa.Array:
    """Return the properties that a producer and a broker add to every message."""
    unique = [f"7F00000115BC4E0E2F2A67F7{n:08X}" for n in range(count)]
    constants = {
        "MSG_REGION": "DefaultRegion",
        "CLUSTER": "DefaultCluster",
        "WAIT": "true",
        "TRACE_ON": "true",
    }
    names, values = pa.array(["UNIQ_KEY", *constants]), pa.array([*constants.values(), *unique])
    places = np.tile(np.array([-1, 0, 1, 2, 3]), (count, 1))
    places[:, 0] = len(constants) + np.arange(count)
    entries = pa.StructArray.from_arrays(
        [names.take(pa.array(np.tile(np.arange(5), count))), values.take(pa.array(places.ravel()))],
        ["key", "value"],
    )
    return pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32) * 5), entries)


def messages(count: int) -> pa.Table:
    """Return messages of four topics with four queues each, with a key, a tag, the properties that producers and brokers add, and a body
    of 100 to 400 bytes."""
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
            "properties": properties(count),
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


@kernel.kernel("const u1[], const i8[], const i8[], const i8[], u1[]")
def _sum_and_copy(data: Any, starts: Any, sizes: Any, places: Any, out: Any) -> int:
    """Sum the checksums of ranges, and copy each of them."""
    total = 0
    for i in range(len(starts)):
        total ^= crc32(data, starts[i], starts[i] + sizes[i])
        copy(out, places[i], data, starts[i], sizes[i])
    return total


def least(home: Path) -> Callable[[], None]:
    """Return a task that only reads the commit log, and computes the checksum of each body and copies it: no reader of bodies does less."""
    ranges: list[tuple[Path, int, Any, Any, Any]] = []
    listing = LocalDirectory(str(home / "commitlog"))
    for entry in listing.entries():
        for step in Walk(
            ListedFile(listing, entry.name, entry.size), LOG, LOG.context(entry.name, Options(LOG.options))
        ):
            if isinstance(step, Stretch) and len(step.frames):
                part = Part.main(step.window, step.frames)
                bodies = Messages(part, 1)
                places = np.cumsum(bodies.places.body_size) - bodies.places.body_size
                path, at = home / "commitlog" / entry.name, step.window.offset
                ranges.append((path, at, bodies.places.body, bodies.places.body_size, places))
    largest = max(int(places[-1] + sizes[-1]) for *_, sizes, places in ranges)
    buffer, out = aligned(8 << 20), np.empty(largest, np.uint8)

    def task() -> None:
        for path, at, starts, sizes, places in ranges:
            with path.open("rb", buffering=0) as file:
                os.preadv(file.fileno(), [buffer[: int(starts[-1] + sizes[-1])]], at)
            _sum_and_copy(buffer, starts, sizes, places, out)

    return task


def derived(home: Path, out: Path, options: Mapping[str, Any]) -> None:
    """Write the queues and the index of a commit log, whose checksums are verified. Nothing else is read or checked."""
    target = resolve(str(home), "rocketmq.store", options)[0]
    assert isinstance(target, DirectoryTarget)
    plan = StoreRepair([target.directory], [target.plan], Options(OPTIONS, options))
    files: dict[str, BinaryIO] = {}
    for piece in derived_pieces(target.directory, plan.config, plan.options, messages=plan.log.read()):
        file = files.get(piece.name)
        if file is None:
            path = out / piece.name
            path.parent.mkdir(parents=True, exist_ok=True)
            file = files[piece.name] = path.open("wb")
        if piece.offset is not None:
            file.seek(piece.offset)
        if isinstance(piece.data, Zeros):
            file.truncate(file.seek(len(piece.data), os.SEEK_CUR))
        else:
            file.write(as_view(piece.data))
        if piece.done:
            files.pop(piece.name).close()
    if files or not plan.files[-1].runs:
        raise AssertionError("not all messages were dispatched")


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
    scratch.mkdir()
    log_alone = place / "alone"
    for folder in ("commitlog", "config"):
        shutil.copytree(home / folder, log_alone / folder)
    bytes_ = sum(path.stat().st_size for path in (home / "commitlog").iterdir())
    lines = [
        f"RocketMQ: a store of {count:,} messages of four topics, {bytes_ / 1e6:.0f} MB of commit log. The store's own classes",
        f"({rocketmq.VERSIONS[0]}) run in a warm JVM, in turn with ours; each ratio is the median of the ratios of all rounds. Times are",
        "of the processor, for one thread of ours and all threads of the JVM, where the row does not name the wall clock. Nothing waits for",
        "the disk, and the removal of earlier results is not measured. `decode` returns one object per message, with its properties in a hash",
        "map, which is dropped at once: users of tables need columns, which are measured too. The row",
        "`only read, summed and copied` is what any reader of bodies does at least.",
        "",
        "| task | logwright | beside it | ratio |",
        "|---|---|---|---|",
    ]
    out = scratch / "ours"

    def remove() -> None:
        shutil.rmtree(out, ignore_errors=True)

    def store() -> None:
        write(table, out, "rocketmq.store", files=Unsynced(), **options)

    def rebuild() -> None:
        request = Request(str(out), files=Unsynced())
        repair.rebuild(
            str(log_alone), "rocketmq.store", None, request, lambda targets: Report("", ""), options
        )

    def derive() -> None:
        derived(log_alone, out, options)

    def rows(columns: Any = None) -> int:
        return sum(batch.num_rows for batch in lw.scan(home, columns=columns))

    command = [
        *(java.command("java"), "-Xmx2g", "-XX:+UseSerialGC", *rocketmq.FLAGS, "-cp", _JVM.classpath()),
        *("logwright.bench.rocketmq.Bench", str(home), str(scratch), str(LOG_SIZE)),
    ]
    with jvm(command) as server:
        reading = {
            "recover": server.task("recover", units=count),
            "decode": server.task("decode", units=count),
            "columns": server.task("columns", units=count),
            "least": python(least(home)),
            "check": python(alone(lambda: check(home))),
            "rows": python(alone(rows)),
            "all": python(alone(lambda: rows("*"))),
            "cores": python(rows),
        }
        measured = in_turn(reading, size.rounds)
        million, decode = count / 1e6, "MessageDecoder.decode with CRC"
        for label, task, name, peer in (
            ("messages checked, with CRC", "check", "CommitLog.checkMessageAndReturnSize", "recover"),
            ("messages to Arrow, default columns", "rows", f"{decode}, then into columns", "columns"),
            ("messages to Arrow, default columns", "rows", decode, "decode"),
            ("messages to Arrow, all columns", "all", decode, "decode"),
            ("only read, summed and copied", "least", decode, "decode"),
        ):
            lines.append(measured.row(label, million, "M/s", task, name, peer))
        for name, peer in ((f"{decode}, then into columns", "columns"), (decode, "decode")):
            label = "messages to Arrow, default columns, all cores, wall clock"
            lines.append(measured.row(label, million, "M/s", "cores", name, peer, wall=True))
        writing = {
            "put": server.task("put", units=count),
            "rebuild": server.task("rebuild", units=count),
            "store": python(alone(store), remove),  # the peer's store only grows
            "written": python(store, remove),
            "rebuilt": python(alone(rebuild), remove),
            "cores": python(rebuild, remove),
            "derived": python(alone(derive), remove),
            "derived by all": python(derive, remove),
        }
        measured = in_turn({name: second(task) for name, task in writing.items()}, few)
        load = "DefaultMessageStore.load of a log alone"
        checked = "the same, the log copied, input and result checked"
        stored, everywhere = "a store written, queues and index included", "all cores, wall clock"
        for label, task, name, peer, wall in (
            (stored, "store", "putMessage and dispatch", "put", False),
            (f"{stored}, {everywhere}", "written", "putMessage and dispatch", "put", True),
            ("queues and index of a log", "derived", load, "rebuild", False),
            (f"queues and index of a log, {everywhere}", "derived by all", load, "rebuild", True),
            (checked, "rebuilt", load, "rebuild", False),
            (f"{checked}, {everywhere}", "cores", load, "rebuild", True),
        ):
            lines.append(measured.row(label, million, "M/s", task, name, peer, wall=wall))
    return lines


if __name__ == "__main__":
    print_section("RocketMQ", section)
