"""LevelDB: a database of 200 MB read, written and checked, beside plyvel (the C++ library, called from Python) and beside the floor
of what can't be avoided: read, checksum, decompress, copy.

Run by `benchmarks/run.py`; alone it prints its section of the table in two minutes. plyvel is the judge's package, an extra of the
tests; without it the section says so.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cramjam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c
from threads import alone

import logwright as lw
from logwright.codec import kernel, registry
from logwright.codec.leveldb.block import NONE, TRAILER_SIZE
from logwright.codec.leveldb.framing import BLOCK
from logwright.codec.leveldb.index import DATA
from logwright.codec.option import Options
from logwright.readers.crew import usable
from logwright.readers.report_data import FileReport
from logwright.readers.source import Source, open_source
from logwright.readers.stream import Mode, stream
from logwright.readers.walk import Hole, Stretch, Walk

ROWS = 1_740_000
"""Rows of 115 bytes: 200 MB, of which half compresses."""
BATCH = 10_000
BUILT = 300_000
LOG_ROWS = 800_000
PLACES = 300
ROUNDS = 7
CLOCKS = {"processor": time.process_time, "wall": time.perf_counter}
KEY, VALUE = 15, 100

Bytes = npt.NDArray[np.uint8]
Seconds = dict[str, float]
TABLE, LOG = registry.get("leveldb.table"), registry.get("leveldb.log")


def rows(count: int) -> pa.Table:
    """Sorted keys of 15 bytes, values of 100: half of it words."""
    rng = np.random.default_rng(7)
    digits = 10 ** np.arange(KEY - 5, -1, -1)
    keys = np.empty((count, KEY), np.uint8)
    keys[:, :4] = np.frombuffer(b"user", np.uint8)
    keys[:, 4:] = np.arange(count)[:, None] // digits % 10 + ord("0")
    words = np.frombuffer(b"lima kilo juliet india hotel golf foxtrot echo delta ", np.uint8)
    values = np.empty((count, VALUE), np.uint8)
    values[:, : VALUE // 2] = words[: VALUE // 2]
    values[:, VALUE // 2 :] = rng.integers(33, 126, (count, VALUE // 2), dtype=np.uint8)
    return pa.table(
        {"key": _binary(keys), "value": _binary(values), "sequence": pa.array(np.arange(1, count + 1))}
    )


def _binary(data: Bytes) -> pa.Array:
    ends = pa.array(np.arange(len(data) + 1, dtype=np.int32) * data.shape[1])
    return pa.Array.from_buffers(pa.binary(), len(data), [None, ends.buffers()[1], pa.py_buffer(data)])


def in_turn(tasks: dict[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, Seconds]:
    """Median seconds of each task by clock, in turn: what else the machine does falls on all alike."""
    taken: dict[str, dict[str, list[float]]] = {name: {clock: [] for clock in CLOCKS} for name in tasks}
    for round_ in range(rounds + 1):
        for name, task in tasks.items():
            started = {clock: now() for clock, now in CLOCKS.items()}
            task()
            for clock, now in CLOCKS.items():
                if round_:  # the first one warms up
                    taken[name][clock].append(now() - started[clock])
    return {
        name: {clock: statistics.median(all_) for clock, all_ in clocks.items()}
        for name, clocks in taken.items()
    }


# plyvel


def by_plyvel(path: Path, compression: str, given: pa.Table) -> None:
    """A database written in batches, and compacted."""
    database = _opened(path, compression)
    _put(database, *(given[name].to_pylist() for name in ("key", "value")))
    database.compact_range()
    database.close()


def _opened(path: Path, compression: str) -> Any:
    import plyvel

    return plyvel.DB(
        str(path), create_if_missing=True, compression=None if compression == "none" else compression
    )


def _put(database: Any, keys: list[bytes], values: list[bytes]) -> None:
    for at in range(0, len(keys), BATCH):
        with database.write_batch() as batch:
            for key, value in zip(keys[at : at + BATCH], values[at : at + BATCH], strict=True):
                batch.put(key, value)


def iterated(path: Path, *, verify: bool = False) -> int:
    database = _opened(path, "snappy")
    count = 0
    with database.iterator(verify_checksums=verify) as entries:
        for _key, _value in entries:
            count += 1
    database.close()
    return count


def to_arrow(path: Path) -> int:
    """The same into columns, as one would do it."""
    database = _opened(path, "snappy")
    count = 0
    keys: list[bytes] = []
    values: list[bytes] = []
    with database.iterator() as entries:
        for key, value in entries:
            keys.append(key)
            values.append(value)
            if len(keys) == 1 << 16:
                count += _columns(keys, values)
                keys, values = [], []
    database.close()
    return count + _columns(keys, values)


def _columns(keys: list[bytes], values: list[bytes]) -> int:
    return pa.RecordBatch.from_arrays(
        [pa.array(keys, pa.binary()), pa.array(values, pa.binary())], names=["key", "value"]
    ).num_rows


# Ours


def scanned(path: Path) -> int:
    return sum(batch.num_rows for batch in lw.scan(path, columns=["key", "value"]))


def built(given: pa.Table, compression: str) -> int:
    context = TABLE.context("000005.ldb", Options(TABLE.options, {"compression": compression}))
    return sum(len(chunk) for chunk in TABLE.encode(given, None, None, context))


def logged(given: pa.Table, path: Path) -> None:
    """A log of batches of one operation, as calls of Put make it."""
    with path.open("wb") as file:
        for chunk in LOG.encode(given, None, None, LOG.context(path.name, Options(LOG.options))):
            file.write(chunk)


def walked(source: Source) -> tuple[int, int]:
    """Logical records, and damaged stretches."""
    records = holes = 0
    for found in Walk(source, LOG, LOG.context("000003.log", Options(LOG.options))):
        if isinstance(found, Stretch):
            records += len(found.frames)
        holes += isinstance(found, Hole)
    return records, holes


def log_rows(source: Source) -> int:
    context = LOG.context("000003.log", Options(LOG.options))
    report = FileReport("000003.log", LOG.name)
    batches = stream(
        source, LOG, "rows", ("key", "value"), context=context, report=report, mode=Mode.DROPMALFORMED
    )
    return sum(batch.num_rows for batch in batches)


def damaged(data: Bytes, places: int = PLACES, seed: int = 5) -> Bytes:
    """A log with bits flipped, lengths changed, pages zeroed and overwritten, in so many places."""
    rng = np.random.default_rng(seed)
    out = data.copy()
    for n, at in enumerate(np.sort(rng.integers(BLOCK, len(data) - BLOCK, places)).tolist()):
        page = slice(at // 4096 * 4096, at // 4096 * 4096 + 4096)
        if n % 4 == 0:
            out[at] ^= 1 << int(rng.integers(8))
        elif n % 4 == 1:
            # A length: of the first record of the block.
            out[at // BLOCK * BLOCK + 4] ^= 1 << int(rng.integers(8))
        elif n % 4 == 2:
            out[page] = 0
        else:
            out[page] = rng.integers(0, 256, 4096, np.uint8)
    return out


# The floor


class Floor:
    """What can't be avoided, block by block with the libraries that there are: read, checksum, decompress; and copy."""

    def __init__(self, path: Path) -> None:
        self.out = np.empty(64 << 20, np.uint8)
        self.window = np.empty(16 << 20, np.uint8)
        self.tables = [(str(one), list(_blocks(one))) for one in sorted(path.glob("*.ldb"))]

    def run(self, *, copy: bool) -> None:
        out, window = memoryview(self.out), memoryview(self.window)
        for path, blocks in self.tables:
            at = 0
            with open(path, "rb", buffering=0) as file:
                file.readinto(window)
            for start, size, kind in blocks:
                stored = window[start : start + size]
                crc32c(window[start : start + size + 1])
                if kind == NONE:
                    made = size
                    if copy:
                        out[at : at + size] = stored
                else:
                    made = cramjam.snappy.decompress_raw_into(stored, out[at : at + (1 << 16)])
                if copy and kind != NONE:
                    # Out of what was decompressed, into columns.
                    window_end = self.window[len(self.window) - made :]
                    np.copyto(window_end, self.out[at : at + made])
                at = at + made if at + made < len(self.out) // 2 else 0


def _blocks(path: Path) -> Iterator[tuple[int, int, int]]:
    """Where the data blocks of a table lie, their sizes and types."""
    with open_source(str(path)) as source:
        context = TABLE.context(path.name, Options(TABLE.options))
        for found in Walk(source, TABLE, context, check=False):
            assert isinstance(found, Stretch)
            frames = found.frames.pick(found.frames.header["kind"] == DATA)
            starts = (frames.start + found.window.offset).tolist()
            sizes = (frames.end - frames.start - TRAILER_SIZE).tolist()
            yield from zip(starts, sizes, frames.header["type"].tolist(), strict=True)


# The lines


def section(place: Path) -> list[str]:
    """The lines of the table."""
    try:
        import plyvel  # noqa: F401 the peer
    except ImportError:
        return ["LevelDB was not measured: plyvel is not installed."]
    registry.get_layout("leveldb.db")
    for _ in kernel.warmup():
        pass
    given = rows(ROWS)
    bases = {name: place / name for name in ("none", "snappy")}
    for name, path in bases.items():
        by_plyvel(path, name, given)
    size = sum(one.stat().st_size for one in bases["none"].iterdir())
    if not scanned(bases["none"]) == iterated(bases["snappy"]) == ROWS:
        raise SystemExit("plyvel and we read different numbers of rows")
    lines = [
        f"LevelDB: {ROWS:,} rows of {KEY + VALUE} bytes, {size / 1e6:.0f} MB uncompressed; plyvel is the C++ library called from",
        "Python, one thread; several of ours by the clock on the wall, one by the processor's. The floor reads, checks, decompresses",
        "and copies block by block with the libraries that there are.",
        "",
        "| task | logwright | beside it | ratio |",
        "|---|---|---|---|",
    ]

    def row(task: str, units: float, unit: str, ours: float, what: str, other: float) -> None:
        rate, peer = units / ours, units / other
        lines.append(f"| {task} | {rate:,.2f} {unit} | {peer:,.2f} {what} | {other / ours:.2f} |")

    _reading(bases, row)
    _building(place, given.slice(0, BUILT), row)
    _logs(place, given.slice(0, LOG_ROWS), row)
    return lines


Row = Callable[[str, float, str, float, str, float], None]


def _reading(bases: dict[str, Path], row: Row) -> None:
    threads = usable()
    for name, path in bases.items():
        floor = Floor(path)
        stored = sum(size for _, blocks in floor.tables for _, size, _ in blocks)
        tasks: dict[str, Callable[[], Any]] = {
            "threads": lambda path=path: scanned(path),
            "ours": alone(lambda path=path: scanned(path)),
            "iterate": lambda path=path: iterated(path),
            "checked": lambda path=path: iterated(path, verify=True),
            "arrow": lambda path=path: to_arrow(path),
            "floor": lambda floor=floor: floor.run(copy=True),
            "verify": alone(lambda path=path: lw.verify(path, depth="checksums")),
            "records": alone(lambda path=path: lw.verify(path)),
            "checks": lambda floor=floor: floor.run(copy=False),
        }
        found = in_turn(tasks)
        # Of one thread the processor's time counts, of several the clock on the wall.
        for ours, clock, how in (
            ("threads", "wall", f"{threads} threads"),
            ("ours", "processor", "1 thread"),
        ):
            for task, what in (
                ("iterate", "plyvel, iterated"),
                ("checked", "plyvel, verify_checksums"),
                ("arrow", "plyvel, into Arrow"),
                ("floor", "floor"),
            ):
                row(
                    f"live, key and value to Arrow, {how}: {name}",
                    ROWS / 1e6,
                    "M rows/s",
                    found[ours][clock],
                    what,
                    found[task][clock],
                )
        for task, depth in (("verify", "checksums"), ("records", "records, order and filters")):
            row(
                f"verify, {depth}, 1 thread: {name}",
                stored / 1e9,
                "GB/s",
                found[task]["processor"],
                "checksums and decompression",
                found["checks"]["processor"],
            )


def _building(place: Path, given: pa.Table, row: Row) -> None:
    keys, values = (given[name].to_pylist() for name in ("key", "value"))
    for name in ("none", "snappy"):

        def write(name: str = name) -> None:
            shutil.rmtree(place / "written", ignore_errors=True)
            database = _opened(place / "written", name)
            _put(database, keys, values)
            database.close()

        # By the clock on the wall: LevelDB has a thread that compacts.
        found = in_turn({"ours": lambda name=name: built(given, name), "plyvel": write}, 5)
        task, peer = f"table from sorted columns: {name}", "plyvel, write_batch of 10,000"
        row(task, BUILT / 1e6, "M rows/s", found["ours"]["wall"], peer, found["plyvel"]["wall"])


def _logs(place: Path, given: pa.Table, row: Row) -> None:
    clean, hurt = place / "000003.log", place / "hurt" / "000003.log"
    hurt.parent.mkdir()
    logged(given, clean)
    damaged(np.fromfile(clean, np.uint8)).tofile(hurt)
    size = clean.stat().st_size
    with open_source(str(clean)) as sound, open_source(str(hurt)) as broken:
        (records, none), (left, holes) = walked(sound), walked(broken)
        if none or records != LOG_ROWS or not PLACES // 3 < holes <= PLACES or left < records * 0.9:
            raise SystemExit(f"{records} records, {none} holes; {left} records left, {holes} holes")
        found = in_turn(
            {
                "scan": lambda: walked(sound),
                "salvage": lambda: walked(broken),
                "rows": lambda: log_rows(sound),
                "rest": lambda: log_rows(broken),
            }
        )
    seconds = {name: clocks["processor"] for name, clocks in found.items()}
    clean_log = "the same log, clean"
    task = f"log of {size >> 20} MB, one put a batch, {holes} damaged stretches: scan with CRC"
    row(task, size / 1e9, "GB/s", seconds["salvage"], clean_log, seconds["scan"])
    task = "the same, rows in mode DROPMALFORMED"
    row(task, LOG_ROWS / 1e6, "M rows/s", seconds["rest"], clean_log, seconds["rows"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="logwright-bench-") as folder:
        print("measuring LevelDB (two minutes) ...", file=sys.stderr)
        print("\n".join(section(Path(folder))))
