"""What our own side of the table measures: one function a line, rows or bytes a second.

Run by `benchmarks/run.py` (pytest-benchmark); each puts what a round handles into `extra_info`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c

import logwright as lw
from logwright.codec import compress, registry
from logwright.codec.kafka.batch import CRC_START, HEAD_SIZE
from logwright.codec.kafka.encode import BatchEncoder, BatchSettings
from logwright.codec.option import Options
from logwright.codec.window import Window
from logwright.formats.sink import Sink
from logwright.readers.source import open_source
from logwright.readers.walk import Stretch, Walk

ROWS = 500_000
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
NAME = f"{0:020d}.log"
FOUR = ["offset", "timestamp", "key", "value"]
WINDOW = 2 << 20


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


@pytest.fixture(scope="session")
def segments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One segment of the same rows for each compression; those that Kafka's own builder wrote, where `run.py` names them."""
    given = os.environ.get("LOGWRIGHT_BENCH_SEGMENTS")
    if given:
        return {name: Path(given, name, NAME) for name in COMPRESSIONS}
    place = tmp_path_factory.mktemp("segments")
    out = {}
    for name in COMPRESSIONS:
        (place / name).mkdir()
        out[name] = place / name / NAME
        lw.write(rows(), out[name], "kafka.log", compression_type=name)
    return out


@pytest.fixture(scope="session")
def singles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A segment of batches of one record."""
    path = tmp_path_factory.mktemp("singles") / NAME
    lw.write(rows(), path, "kafka.log", batch_size=0)
    return path


def measure(benchmark: Any, task: Callable[[], Any], *, rows: int = 0, size: int = 0) -> None:
    benchmark.extra_info.update(rows=rows, bytes=size)
    benchmark.pedantic(task, rounds=7, warmup_rounds=2)


def scanned(path: Path, columns: list[str] | None) -> int:
    return sum(batch.num_rows for batch in lw.scan(path, columns=columns))


def test_memcpy(benchmark: Any, segments: dict[str, Path]) -> None:
    data = np.fromfile(segments["none"], np.uint8)
    out = np.empty_like(data)
    measure(benchmark, lambda: np.copyto(out, data), size=len(data))


def test_read_file(benchmark: Any, segments: dict[str, Path]) -> None:
    with open_source(str(segments["none"])) as source:
        measure(
            benchmark,
            lambda: [len(source.pread(at, WINDOW)) for at in range(0, source.size, WINDOW)],
            size=source.size,
        )


def test_scan_crc(benchmark: Any, segments: dict[str, Path]) -> None:
    codec = registry.get("kafka.log")

    def walk() -> int:
        with open_source(str(segments["none"])) as source:
            context = codec.context(NAME, Options(codec.options))
            return sum(
                len(found.frames) for found in Walk(source, codec, context) if isinstance(found, Stretch)
            )

    measure(benchmark, walk, size=segments["none"].stat().st_size)


def test_scan_crc_memory(benchmark: Any, segments: dict[str, Path]) -> None:
    codec = registry.get("kafka.log")
    data = np.fromfile(segments["none"], np.uint8)
    window = Window(data, 0, len(data))
    measure(
        benchmark, lambda: codec.scan(window, 0, codec.context(NAME, Options(codec.options))), size=len(data)
    )


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_read_four(benchmark: Any, segments: dict[str, Path], name: str) -> None:
    measure(benchmark, lambda: scanned(segments[name], FOUR), rows=ROWS)


def test_read_default(benchmark: Any, segments: dict[str, Path]) -> None:
    measure(benchmark, lambda: scanned(segments["none"], None), rows=ROWS)


def test_read_singles(benchmark: Any, singles: Path) -> None:
    measure(benchmark, lambda: scanned(singles, FOUR), rows=ROWS)


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_floor(benchmark: Any, segments: dict[str, Path], name: str) -> None:
    """What can't be avoided: read, checksum, decompress, copy."""
    codec = registry.get("kafka.log")
    size = segments[name].stat().st_size

    def floor() -> None:
        out = np.empty(64 << 20, np.uint8)
        with open_source(str(segments[name])) as source:
            for found in Walk(source, codec, codec.context(NAME, Options(codec.options)), check=False):
                assert isinstance(found, Stretch)
                data = found.window.data
                for start, end in zip(found.frames.start.tolist(), found.frames.end.tolist(), strict=True):
                    crc32c(data[start + CRC_START : end])
                    payload = data[start + HEAD_SIZE : end]
                    if name != "none":
                        payload = np.frombuffer(compress.decompress(name, payload, limit=64 << 20), np.uint8)
                    out[: len(payload)] = payload

    measure(benchmark, floor, rows=ROWS, size=size)


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_encode(benchmark: Any, name: str) -> None:
    batches = rows(200_000).to_batches(20_000)

    def encode() -> None:
        encoder = BatchEncoder(BatchSettings(compression=name))
        for batch in batches:
            encoder.add(batch)
        encoder.flush()

    measure(benchmark, encode, rows=200_000)


def test_write_partition(benchmark: Any, tmp_path: Path) -> None:
    table = rows()

    def write() -> None:
        shutil.rmtree(tmp_path / "t-0", ignore_errors=True)
        lw.write(table, tmp_path / "t-0", "kafka.partition")

    measure(benchmark, write, rows=ROWS)


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv"])
def test_dump(benchmark: Any, segments: dict[str, Path], tmp_path: Path, kind: str) -> None:
    def dump() -> None:
        scan = lw.scan(segments["none"])
        with open(tmp_path / "out", "wb") as stream, Sink(stream, kind, scan.schema) as sink:
            for batch in scan:
                sink.write(batch)

    measure(benchmark, dump, rows=ROWS)
