"""What one would use instead, measured: Kafka's own classes and tool in a warm JVM, and aiokafka.

Rates are in units a second, by task and compression: bytes for the checksum scans, records for everything else. One core
each: the JVM's garbage collector and compiler may take another. `python benchmarks/peers.py` prints them all.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from logwright.roundtrip.oracles import java, kafka

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")

# By task ("read_copied") and compression ("zstd").
Rates = dict[str, dict[str, float]]

_JVM = java.Project(kafka.PROJECT.pom, Path(__file__).parent / "jvm")


def why_no_kafka() -> str | None:
    """Why the JVM side can't be measured here, in one sentence; None when it can."""
    return _JVM.why_not()


def _bench(*args: object) -> dict[str, float]:
    run = subprocess.run(
        [
            *(java.command("java"), "-Xmx2g", "-Xms1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
            *("-cp", _JVM.classpath(), "logwright.bench.Bench", *map(str, args)),
        ],
        capture_output=True,
        text=True,
    )
    if run.returncode:
        raise java.OracleError(f"the benchmark `{' '.join(map(str, args))}` failed: {run.stderr[-2000:]}")
    found: dict[str, float] = json.loads(run.stdout)
    return found


def segments(
    directory: Path, records: int = 500_000, *, value_bytes: int = 100, batch_bytes: int = 16384
) -> dict[str, Path]:
    """Log segments written by Kafka's own builder, one for each compression: the same records, without keys and headers."""
    _bench("make", directory, records, value_bytes, batch_bytes)
    return {name: directory / name / f"{0:020d}.log" for name in COMPRESSIONS}


def kafka_read(paths: Mapping[str, Path], *, seconds: float = 3.0) -> Rates:
    """`FileRecords` and `MemoryRecords` on segments, by compression, each task for `seconds` or until it gets no faster.

    crc_scan: batches from the file, checked (bytes/s). crc_scan_memory: the same from memory (bytes/s). read_slices: every
    record, key and value as slices (records/s). read_copied: key and value copied into arrays of their own (records/s).
    """
    return _by_task({name: _bench("read", path, seconds) for name, path in paths.items()})


def kafka_build(
    compressions: Sequence[str] = COMPRESSIONS,
    records: int = 200_000,
    *,
    value_bytes: int = 100,
    batch_bytes: int = 16384,
    seconds: float = 3.0,
) -> Rates:
    """build: `MemoryRecordsBuilder`, batches of `batch_bytes` into a reused buffer (records/s)."""
    return _by_task(
        {name: _bench("build", name, records, value_bytes, batch_bytes, seconds) for name in compressions}
    )


def kafka_dump(paths: Mapping[str, Path], *, seconds: float = 3.0) -> Rates:
    """`DumpLogSegments --print-data-log`, printing to nowhere (records/s).

    dump: again and again in a warm JVM. dump_cold: as a user meets it, once, the start of the JVM included.
    """
    return _by_task({name: {**_bench("dump", path, seconds), **_cold(path)} for name, path in paths.items()})


def _cold(path: Path) -> dict[str, float]:
    command = [
        *(java.command("java"), "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
        *(
            "-cp",
            _JVM.classpath(),
            "org.apache.kafka.tools.DumpLogSegments",
            "--print-data-log",
            "--files",
            str(path),
        ),
    ]
    with tempfile.TemporaryFile() as out:
        start = time.perf_counter()
        subprocess.run(command, stdout=out, check=True)
        took = time.perf_counter() - start
        out.seek(0)
        count = sum(line.startswith(b"| offset: ") for line in out)
    return {"dump_cold": count / took}


def aiokafka_read(paths: Mapping[str, Path], *, seconds: float = 3.0) -> Rates:
    """aiokafka's `MemoryRecords` (its C extension, where it is built) over the bytes of segments.

    crc_scan_memory: batches checked (bytes/s). read_copied: every record, its key and value as `bytes` (records/s).
    """
    from aiokafka.record.memory_records import MemoryRecords

    found = {}
    for name, path in paths.items():
        data = path.read_bytes()

        def scan(data: bytes = data) -> int:
            records = MemoryRecords(data)
            while records.has_next():
                batch = records.next_batch()
                if not batch.validate_crc():
                    raise ValueError("a checksum that Kafka wrote did not match")
            return len(data)

        def read(data: bytes = data) -> int:
            records = MemoryRecords(data)
            count = 0
            while records.has_next():
                for record in records.next_batch():
                    record.key, record.value  # noqa: B018 made when asked for
                    count += 1
            return count

        found[name] = {"crc_scan_memory": _rate(scan, seconds), "read_copied": _rate(read, seconds)}
    return _by_task(found)


def aiokafka_build(
    compressions: Sequence[str] = COMPRESSIONS,
    records: int = 50_000,
    *,
    value_bytes: int = 100,
    batch_bytes: int = 16384,
    seconds: float = 3.0,
) -> Rates:
    """build: aiokafka's `DefaultRecordBatchBuilder`, the same records as `kafka_build` makes (records/s)."""
    from aiokafka.record.default_records import DefaultRecordBatchBuilder
    from aiokafka.record.memory_records import MemoryRecords

    with tempfile.TemporaryDirectory() as directory:
        segment = segments(Path(directory), records, value_bytes=value_bytes, batch_bytes=batch_bytes)["none"]
        batches = MemoryRecords(segment.read_bytes())
        values: list[bytes] = []
        while batches.has_next():
            values.extend(record.value for record in batches.next_batch())

    found = {}
    for name in compressions:

        def build(compression: int = COMPRESSIONS.index(name)) -> int:
            done = 0
            while done < len(values):
                # magic, compression, transactional, producer id and epoch, base sequence, batch size
                builder = DefaultRecordBatchBuilder(2, compression, 0, -1, -1, 0, batch_bytes)
                offset = 0
                while done < len(values) and builder.append(
                    offset, 1_700_000_000_000 + done, None, values[done], []
                ):
                    offset += 1
                    done += 1
                builder.build()
            return done

        found[name] = {"build": _rate(build, seconds)}
    return _by_task(found)


def _rate(task: Callable[[], int], seconds: float) -> float:
    """The best of the runs within `seconds`, at least two: units a second."""
    best = 0.0
    runs = 0
    end = time.perf_counter() + seconds
    while runs < 2 or time.perf_counter() < end:
        start = time.perf_counter()
        count = task()
        best = max(best, count / (time.perf_counter() - start))
        runs += 1
    return best


def _by_task(by_compression: Mapping[str, Mapping[str, float]]) -> Rates:
    rates: Rates = {}
    for compression, tasks in by_compression.items():
        for task, rate in tasks.items():
            rates.setdefault(task, {})[compression] = rate
    return rates


def measure(records: int = 500_000, *, seconds: float = 3.0) -> dict[str, Rates]:
    """All of it: {"kafka": rates, "aiokafka": rates}. A few minutes."""
    with tempfile.TemporaryDirectory(prefix="logwright-bench-") as directory:
        paths = segments(Path(directory), records)
        return {
            "kafka": {
                **kafka_read(paths, seconds=seconds),
                **kafka_build(seconds=seconds),
                **kafka_dump(paths, seconds=seconds),
            },
            "aiokafka": {**aiokafka_read(paths, seconds=seconds), **aiokafka_build(seconds=seconds)},
        }


def main() -> None:
    reason = why_no_kafka()
    if reason:
        raise SystemExit(reason)
    for peer, rates in measure().items():
        for task, by_compression in rates.items():
            shown = "  ".join(f"{name} {rate / 1e6:10,.2f}" for name, rate in by_compression.items())
            unit = "MB/s" if task.startswith("crc_scan") else "M records/s"
            print(f"{peer:9} {task:16} {shown}  {unit}")


if __name__ == "__main__":
    main()
