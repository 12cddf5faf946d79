"""Kafka: our tasks compared with Kafka's own classes in a warm JVM, DumpLogSegments and aiokafka.

`make bench-peers` runs it; `python benchmarks/peers.py` prints this section alone, in about six minutes, and with `--only lz4` the tasks of
that name. All sides read segments that Kafka's builder wrote, encode the same rows, and run in turn, round by round. Times are of the
processor and of one thread.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from bench_kafka import (
    COMPRESSIONS,
    DUMPS,
    ENCODED,
    NAME,
    OLDER,
    ROWS,
    Figure,
    Work,
    all_work,
    table_lines,
)
from rounds import Size, Task, cold, in_turn, jvm, print_section, python

import logwright as lw
from logwright.codec import registry
from logwright.codec.kernels import kernel
from logwright.roundtrip.oracles import java, kafka

VALUE_BYTES, BATCH_BYTES = 100, 16384
_JVM_SOURCES = Path(__file__).parent / "jvm"
_JVM = java.Project(kafka.PROJECT.pom, _JVM_SOURCES, _JVM_SOURCES / "kafka")
_QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


def _java(*options: str) -> list[str]:
    return [java.command("java"), "-XX:+UseSerialGC", _QUIET, *options, "-cp", _JVM.classpath()]


def _bench() -> list[str]:
    return [*_java("-Xmx2g", "-Xms1g"), "logwright.bench.Bench"]


def kafka_segments(place: Path, records: int) -> dict[str, Path]:
    """Segments written by Kafka's own builder, one for each compression and magic: the same records, without keys and headers."""
    run = subprocess.run(
        [*_bench(), "make", *map(str, (place, records, VALUE_BYTES, BATCH_BYTES))],
        capture_output=True,
        text=True,
    )
    if run.returncode:
        raise java.OracleError(f"Kafka did not write the segments: {run.stderr[-2000:]}")
    return {name: place / name / NAME for name in (*COMPRESSIONS, *OLDER)}


def dump_log_segments(path: Path) -> list[str]:
    """The command that prints every record of a segment."""
    tool = "org.apache.kafka.tools.DumpLogSegments"
    return [*_java("-Xmx256m"), tool, "--print-data-log", "--files", str(path)]


# aiokafka


def aiokafka_scan(path: Path) -> Callable[[], int]:
    """Check the checksums of a segment in memory."""
    from aiokafka.record.memory_records import MemoryRecords

    data = path.read_bytes()

    def scan() -> int:
        records = MemoryRecords(data)
        while records.has_next():
            if not records.next_batch().validate_crc():
                raise ValueError("a checksum that Kafka wrote did not match")
        return len(data)

    return scan


def aiokafka_read(path: Path) -> Callable[[], int]:
    """Read every record of a segment, its key and value as `bytes`, and verify checksums as its consumer does by default."""
    from aiokafka.record.memory_records import MemoryRecords

    data = path.read_bytes()

    def read() -> int:
        records = MemoryRecords(data)
        count = 0
        while records.has_next():
            batch = records.next_batch()
            assert batch.validate_crc()
            for record in batch:
                record.key, record.value  # noqa: B018 both are decoded on access
                count += 1
        return count

    return read


def aiokafka_build(table: pa.Table, compression: str) -> Callable[[], int]:
    """Build batches of the rows of `table`."""
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    values = table["value"].to_pylist()
    timestamps = table["timestamp"].cast(pa.int64()).to_pylist()
    number = COMPRESSIONS.index(compression)

    def build() -> int:
        done = 0
        while done < len(values):
            # magic, compression, transactional, producer id and epoch, base sequence, batch size
            builder = DefaultRecordBatchBuilder(2, number, 0, -1, -1, 0, BATCH_BYTES)
            offset = 0
            while done < len(values) and builder.append(offset, timestamps[done], None, values[done], []):
                offset += 1
                done += 1
            builder.build()
        return done

    return build


# Side by side


class Group(NamedTuple):
    """Tasks that are measured in turn: ours by name, and a request to Kafka's JVM, a command, or work for aiokafka.

    `others` are ours too, but do not do what the peers do: they are compared with our tasks only.
    """

    ours: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    request: tuple[object, ...] = ()
    command: tuple[str, ...] = ()
    aiokafka: Callable[[], int] | None = None
    wall: bool = False


def groups(table: pa.Table, segments: dict[str, Path]) -> Iterator[Group]:
    log = segments["none"]
    yield Group(("scan_crc",), ("memcpy", "read_file"), ("crc_scan", log))
    yield Group(("scan_crc_memory",), (), ("crc_scan_memory", log), aiokafka=aiokafka_scan(log))
    for name, path in segments.items():
        ours = [f"read_four[{name}]"]
        others = [f"floor[{name}]"] if name in COMPRESSIONS else []
        if name == "none":
            ours.append("read_default")
            others.append("read_single_records")
        # aiokafka does not read LZ4 with magic 0.
        other = None if name == "lz4-magic0" else aiokafka_read(path)
        yield Group(tuple(ours), tuple(others), ("read_copied", path), aiokafka=other)
    encoded = table.slice(0, ENCODED)
    for name in COMPRESSIONS:
        request = ("build", name, encoded.num_rows, VALUE_BYTES, BATCH_BYTES)
        yield Group((f"encode[{name}]",), (), request, aiokafka=aiokafka_build(encoded, name))
    yield Group(others=("write_partition",), wall=True)  # it waits for the disk
    yield Group(tuple(f"dump[{kind}]" for kind in DUMPS), command=tuple(dump_log_segments(log)))


def measure(group: Group, work: dict[str, Work], rounds: int) -> dict[str, Figure]:
    """The figures of our tasks. Each group has its own JVM, so that other tasks do not influence what it compiles."""
    ours = {name: work[name] for name in (*group.ours, *group.others)}
    units = {name: work.units for name, work in ours.items()}
    with ExitStack() as stack:
        peers: dict[str, Task] = {}
        if group.request:
            server = stack.enter_context(jvm([*_bench(), "serve"]))
            peers["kafka"] = server.task(*group.request, units=units[group.ours[0]])
        if group.command:
            peers["kafka"] = cold(group.command)
        if group.aiokafka:
            peers["aiokafka"] = python(group.aiokafka)
        measured = in_turn(peers | {name: python(work.run) for name, work in ours.items()}, rounds)

    def beside(task: str) -> dict[str, tuple[float, float]]:
        names = [name for name in (*peers, *ours) if name != task and (name in ours or task in group.ours)]
        ratios = {name: measured.ratio(task, name, wall=group.wall) for name in names}
        return {
            name: (units[task] / measured.seconds(name, wall=group.wall), ratio)
            for name, ratio in ratios.items()
        }

    return {
        name: Figure(units[name] / measured.seconds(name, wall=group.wall), beside(name)) for name in ours
    }


def section(place: Path, size: Size) -> list[str]:
    """The lines of the table."""
    if reason := _JVM.why_not():
        raise SystemExit(reason)
    pa.set_cpu_count(1)
    registry.get_layout("kafka.partition")
    for _ in kernel.warmup():
        pass
    segments = kafka_segments(place / "segments", size.of(ROWS))
    table = pa.Table.from_batches(list(lw.scan(segments["none"], columns=["value", "timestamp"])))
    work = all_work(table, segments, place)
    figures: dict[str, Figure] = {}
    chosen = [
        group
        for group in groups(table, segments)
        if any(size.only in name for name in (*group.ours, *group.others))
    ]
    if not chosen:
        raise SystemExit(f"no task has {size.only!r} in its name; the tasks are {', '.join(work)}")
    for group in chosen:
        figures |= measure(group, work, size.rounds)
    return [
        f"Kafka: {table.num_rows:,} records with values of {VALUE_BYTES} bytes, in batches of 16 KiB. Kafka's own classes run in a warm",
        "JVM, in turn with ours; rates are medians, each ratio is the median of the ratios of all rounds. Times are of the processor",
        "and one thread; of a cold JVM all threads count. Writing a partition is timed by the wall clock. Both peers verify the checksums",
        "that their consumers verify by default; ours verify all.",
        "",
        *table_lines(figures),
    ]


if __name__ == "__main__":
    print_section("Kafka", section, chooses=True)
