"""Kafka: the tasks of our side, and the table.

`make bench` measures them alone (pytest-benchmark). `make bench-peers` measures them in turn with the peers; see `peers.py`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c

import logwright as lw
from logwright.codec import registry
from logwright.codec.frames.walk import Stretch, Walk
from logwright.codec.kafka.formats.log.layout import CRC_START, HEAD_SIZE
from logwright.codec.kafka.formats.log.settings import BatchSettings
from logwright.codec.kafka.formats.log.write import BatchEncoder
from logwright.codec.kernels import compress
from logwright.codec.option import Options
from logwright.codec.window import Window
from logwright.formats.sink import Sink
from logwright.readers.process import keep_freed_memory
from logwright.readers.source import open_source

ROWS = 500_000
ENCODED = 200_000
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
OLDER = tuple(f"{name}-magic{magic}" for magic in (1, 0) for name in COMPRESSIONS[:4])
"""Segments of the messages that Kafka wrote before version 0.11."""
NAME = f"{0:020d}.log"
FOUR = ["offset", "timestamp", "key", "value"]
DUMPS = ("parquet", "jsonl", "csv")
WINDOW = 2 << 20
ROWS_VARIABLE = "LOGWRIGHT_BENCH_ROWS"
"""Environment variable: number of rows, if not `ROWS`."""


def rows(count: int = ROWS) -> pa.Table:
    """Values of 100 bytes, half of it words; no keys."""
    rng = np.random.default_rng(7)
    words = np.frombuffer(b"lima kilo juliet india hotel golf foxtrot echo delta ", np.uint8)
    text = np.tile(words, -(-count * 50 // len(words)))[: count * 50].reshape(count, 50)
    values = np.concatenate([text, rng.integers(33, 126, (count, 50), dtype=np.uint8)], axis=1)
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * 100)
    value = pa.Array.from_buffers(pa.binary(), count, [None, offsets.buffers()[1], pa.py_buffer(values)])
    stamps = pa.array(1_700_000_000_000 + np.arange(count), pa.timestamp("ms", "UTC"))
    return pa.table({"value": value, "timestamp": stamps})


# The tasks


class Work(NamedTuple):
    """A task, and the number of rows or bytes that one pass processes."""

    run: Callable[[], object]
    rows: int = 0
    bytes: int = 0

    @property
    def units(self) -> int:
        return self.rows or self.bytes


def write_segments(table: pa.Table, place: Path) -> dict[str, Path]:
    """One segment of the same rows for each compression and magic."""
    segments = {name: place / name / NAME for name in (*COMPRESSIONS, *OLDER)}
    for name, path in segments.items():
        path.parent.mkdir(parents=True)
        compression, _, magic = name.partition("-magic")
        lw.write(table, path, "kafka.log", compression_type=compression, magic=int(magic or 2))
    return segments


def all_work(table: pa.Table, segments: Mapping[str, Path], place: Path) -> dict[str, Work]:
    """Every task by name. `segments` hold the rows of `table`; `place` is an empty directory for output."""
    log, count = segments["none"], table.num_rows
    codec = registry.get("kafka.log")
    data = np.fromfile(log, np.uint8)
    copy = np.empty_like(data)
    encoded = table.slice(0, ENCODED)
    batches = encoded.to_batches(20_000)
    single_records = place / "single_records" / NAME
    single_records.parent.mkdir()
    lw.write(table, single_records, "kafka.log", batch_size=0)

    def context() -> Any:
        return codec.context(NAME, Options(codec.options))

    def read_file() -> None:
        with open_source(str(log)) as source:
            for at in range(0, source.size, WINDOW):
                source.pread(at, WINDOW)

    def scan_crc() -> int:
        with open_source(str(log)) as source:
            walk = Walk(source, codec, context())
            return sum(len(item.frames) for item in walk if isinstance(item, Stretch))

    def read(path: Path, columns: list[str] | None = FOUR) -> Callable[[], int]:
        return lambda: sum(batch.num_rows for batch in lw.scan(path, columns=columns))

    def encode(compression: str) -> Callable[[], None]:
        def run() -> None:
            encoder = BatchEncoder(BatchSettings(compression=compression))
            for batch in batches:
                encoder.add(batch)
            encoder.flush()

        return run

    def write_partition() -> None:
        shutil.rmtree(place / "t-0", ignore_errors=True)
        lw.write(table, place / "t-0", "kafka.partition")

    def dump(kind: str) -> Callable[[], None]:
        def run() -> None:
            scan = lw.scan(log)
            with open(place / "out", "wb") as stream, Sink(stream, kind, scan.schema) as sink:
                for batch in scan:
                    sink.write(batch)

        return run

    work = {
        "memcpy": Work(lambda: np.copyto(copy, data), bytes=len(data)),
        "read_file": Work(read_file, bytes=len(data)),
        "scan_crc": Work(scan_crc, bytes=len(data)),
        "scan_crc_memory": Work(
            lambda: codec.scan(Window(data, 0, len(data)), 0, context()), bytes=len(data)
        ),
        "read_default": Work(read(log, None), count),
        "read_single_records": Work(read(single_records), count),
        "write_partition": Work(write_partition, count),
    }
    for name, path in segments.items():
        work[f"read_four[{name}]"] = Work(read(path), count)
        if name in COMPRESSIONS:
            work[f"floor[{name}]"] = Work(floor(path, name), count)
            work[f"encode[{name}]"] = Work(encode(name), encoded.num_rows)
    return work | {f"dump[{kind}]": Work(dump(kind), count) for kind in DUMPS}


def floor(path: Path, compression: str) -> Callable[[], None]:
    """The least that any reader does: read, compute checksums, decompress, copy."""
    codec = registry.get("kafka.log")

    def run() -> None:
        out = np.empty(64 << 20, np.uint8)
        with open_source(str(path)) as source:
            for item in Walk(source, codec, codec.context(NAME, Options(codec.options)), check=False):
                assert isinstance(item, Stretch)
                data, frames = item.window.data, item.frames
                for start, end in zip(frames.start.tolist(), frames.end.tolist(), strict=True):
                    crc32c(data[start + CRC_START : end])
                    payload = data[start + HEAD_SIZE : end]
                    if compression != "none":
                        payload = np.frombuffer(
                            compress.decompress(compression, payload, limit=64 << 20), np.uint8
                        )
                    out[: len(payload)] = payload

    return run


# The table


class Figure(NamedTuple):
    """The rate of a task in units per second, and by name of a peer or another task: its rate, and how much faster the task is."""

    rate: float
    beside: Mapping[str, tuple[float, float]]


_GIGABYTES, _ROWS = (1e9, "GB/s"), (1e6, "M rows/s")
_LINES = (
    ("copy bytes (memcpy)", "memcpy", _GIGABYTES),
    ("read the file", "read_file", _GIGABYTES),
    ("scan batches with CRC, file", "scan_crc", _GIGABYTES),
    ("scan batches with CRC, memory", "scan_crc_memory", _GIGABYTES),
    *(
        (f"offset, timestamp, key, value to Arrow: {name}", f"read_four[{name}]", _ROWS)
        for name in (*COMPRESSIONS, *OLDER)
    ),
    ("all default columns: none", "read_default", _ROWS),
    ("one record per batch", "read_single_records", _ROWS),
    *((f"encode: {name}", f"encode[{name}]", _ROWS) for name in COMPRESSIONS),
    ("write a partition, synced", "write_partition", _ROWS),
    *((f"dump to {kind} (peer: DumpLogSegments, cold)", f"dump[{kind}]", _ROWS) for kind in DUMPS),
)


def table_lines(figures: Mapping[str, Figure]) -> list[str]:
    lines = ["| task | logwright | Kafka (JVM) | ratio | aiokafka | ratio |", "|---|---|---|---|---|---|"]
    for label, task, (unit, name) in _LINES:
        if task not in figures:
            continue
        cells = [f"{figures[task].rate / unit:,.2f} {name}"]
        for peer in ("kafka", "aiokafka"):
            beside = figures[task].beside.get(peer)
            cells += [f"{beside[0] / unit:,.2f}", f"{beside[1]:.2f}"] if beside else ["", ""]
        lines.append(f"| {label} | {' | '.join(cells)} |")

    def cost(task: str, other: str) -> str:
        return f"{1 / figures[task].beside[other][1]:.2f} times"

    lines += [
        "",
        "Decoding to Arrow takes, compared with the measured floor (read, CRC, decompress, copy):",
        "",
    ]
    measured = [name for name in COMPRESSIONS if f"floor[{name}]" in figures]
    lines += [f"- {name}: {cost(f'read_four[{name}]', f'floor[{name}]')}" for name in measured]
    if "read_single_records" in figures:
        single = cost("read_single_records", "read_four[none]")
        lines += ["", f"With one record per batch, a record takes {single} as long."]
    return lines


# Alone: pytest-benchmark


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Work]:
    keep_freed_memory()  # as the command line does
    place = tmp_path_factory.mktemp("kafka")
    table = rows(int(os.environ.get(ROWS_VARIABLE, ROWS)))
    return all_work(table, write_segments(table, place / "segments"), place)


@pytest.mark.parametrize(
    "task", [*(task for _, task, _ in _LINES), *(f"floor[{name}]" for name in COMPRESSIONS)]
)
def test_task(benchmark: Any, work: dict[str, Work], task: str) -> None:
    benchmark.extra_info.update(task=task, units=work[task].units)
    benchmark.pedantic(work[task].run, rounds=7, warmup_rounds=2)
