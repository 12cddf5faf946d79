"""LevelDB: read, write and check a database of 200 MB, compared with plyvel (the C++ library, called from Python) and with the floor:
read, verify checksums, decompress, copy.

Run by `benchmarks/run.py`; alone it prints its section of the table in two minutes. plyvel is an extra of the tests; without it the
section is empty.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cramjam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c
from rounds import Size, in_turn, print_section, python
from threads import alone

import logwright as lw
from logwright.codec import registry
from logwright.codec.frames.walk import Hole, Stretch, Walk
from logwright.codec.kernels import kernel
from logwright.codec.leveldb.formats.records.layout import BLOCK
from logwright.codec.leveldb.formats.table.index import DATA
from logwright.codec.leveldb.formats.table.layout import NONE, TRAILER_SIZE
from logwright.codec.option import Options
from logwright.readers.prefetch import usable
from logwright.readers.report_data import FileReport
from logwright.readers.source import Source, open_source
from logwright.readers.stream import FileStream, Mode

ROWS = 1_740_000
"""Rows of 115 bytes: 200 MB, of which half compresses."""
BATCH = 10_000
BUILT = 300_000
LOG_ROWS = 800_000
PLACES = 300
KEY, VALUE = 15, 100

Bytes = npt.NDArray[np.uint8]
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


# plyvel


def by_plyvel(path: Path, compression: str, table: pa.Table) -> None:
    """Write a database in batches, and compact it."""
    database = _opened(path, compression)
    _put(database, *(table[name].to_pylist() for name in ("key", "value")))
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
    """Read the same into columns, as a user would."""
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


def built(table: pa.Table, compression: str) -> int:
    context = TABLE.context("000005.ldb", Options(TABLE.options, {"compression": compression}))
    return sum(len(chunk) for chunk in TABLE.encode(table, None, None, context))


def logged(table: pa.Table, path: Path) -> None:
    """Write a log of batches of one operation, as calls of Put do."""
    with path.open("wb") as file:
        for chunk in LOG.encode(table, None, None, LOG.context(path.name, Options(LOG.options))):
            file.write(chunk)


def walked(source: Source) -> tuple[int, int]:
    """Return the numbers of logical records and damaged ranges."""
    records = holes = 0
    for stretch in Walk(source, LOG, LOG.context("000003.log", Options(LOG.options))):
        if isinstance(stretch, Stretch):
            records += len(stretch.frames)
        holes += isinstance(stretch, Hole)
    return records, holes


def log_rows(source: Source) -> int:
    context = LOG.context("000003.log", Options(LOG.options))
    report = FileReport("000003.log", LOG.name)
    batches = FileStream(
        source, LOG, "rows", ("key", "value"), context=context, report=report, mode=Mode.DROPMALFORMED
    )
    return sum(batch.num_rows for batch in batches)


def damaged(data: Bytes, places: int = PLACES, seed: int = 5) -> Bytes:
    """Damage a log in several places: flipped bits, changed lengths, zeroed and overwritten pages."""
    rng = np.random.default_rng(seed)
    out = data.copy()
    for n, at in enumerate(np.sort(rng.integers(BLOCK, len(data) - BLOCK, places)).tolist()):
        page = slice(at // 4096 * 4096, at // 4096 * 4096 + 4096)
        if n % 4 == 0:
            out[at] ^= 1 << int(rng.integers(8))
        elif n % 4 == 1:
            # The length of the first record of the block.
            out[at // BLOCK * BLOCK + 4] ^= 1 << int(rng.integers(8))
        elif n % 4 == 2:
            out[page] = 0
        else:
            out[page] = rng.integers(0, 256, 4096, np.uint8)
    return out


# The floor


class Floor:
    """The floor, block by block with available libraries: read, verify checksums, decompress, and copy."""

    def __init__(self, path: Path) -> None:
        self.out = np.empty(64 << 20, np.uint8)
        self.window = np.empty(16 << 20, np.uint8)
        self.tables = [(str(table), list(_blocks(table))) for table in sorted(path.glob("*.ldb"))]

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
                    size_out = size
                    if copy:
                        out[at : at + size] = stored
                else:
                    size_out = cramjam.snappy.decompress_raw_into(stored, out[at : at + (1 << 16)])
                if copy and kind != NONE:
                    # From the decompressed bytes into columns.
                    window_end = self.window[len(self.window) - size_out :]
                    np.copyto(window_end, self.out[at : at + size_out])
                at = at + size_out if at + size_out < len(self.out) // 2 else 0


def _blocks(path: Path) -> Iterator[tuple[int, int, int]]:
    """Return the positions, sizes and types of the data blocks of a table."""
    with open_source(str(path)) as source:
        context = TABLE.context(path.name, Options(TABLE.options))
        for stretch in Walk(source, TABLE, context, check=False):
            assert isinstance(stretch, Stretch)
            frames = stretch.frames.pick(stretch.frames.header["kind"] == DATA)
            starts = (frames.start + stretch.window.offset).tolist()
            sizes = (frames.end - frames.start - TRAILER_SIZE).tolist()
            yield from zip(starts, sizes, frames.header["type"].tolist(), strict=True)


# The lines


def section(place: Path, size: Size) -> list[str]:
    """Yield the lines of the table."""
    try:
        import plyvel  # noqa: F401 the peer
    except ImportError:
        return ["LevelDB was not measured: plyvel is not installed."]
    registry.get_layout("leveldb.db")
    for _ in kernel.warmup():
        pass
    table = rows(size.of(ROWS))
    bases = {name: place / name for name in ("none", "snappy")}
    for name, path in bases.items():
        by_plyvel(path, name, table)
    stored = sum(file.stat().st_size for file in bases["none"].iterdir())
    if not scanned(bases["none"]) == iterated(bases["snappy"]) == table.num_rows:
        raise SystemExit("plyvel and we read different numbers of rows")
    return [
        f"LevelDB: {table.num_rows:,} rows of {KEY + VALUE} bytes, {stored / 1e6:.0f} MB uncompressed. plyvel is the C++ library called",
        "from Python on one thread, in turn with ours; each ratio is the median of the ratios of all rounds. Several threads of ours are",
        "timed by the wall clock, one by the processor's. The floor reads, computes checksums, decompresses and copies block by block",
        "with the libraries that are available.",
        "",
        "| task | logwright | compared with | ratio |",
        "|---|---|---|---|",
        *_reading(bases, table.num_rows, size.rounds),
        *_building(place, table.slice(0, size.of(BUILT)), min(5, size.rounds)),
        *_logs(place, table.slice(0, size.of(LOG_ROWS)), size),
    ]


def _reading(bases: dict[str, Path], count: int, rounds: int) -> Iterator[str]:
    threads = usable()
    for name, path in bases.items():
        floor = Floor(path)
        stored = sum(size for _, blocks in floor.tables for _, size, _ in blocks)
        works: dict[str, Callable[[], Any]] = {
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
        measured = in_turn({name: python(work) for name, work in works.items()}, rounds)
        for task, wall, label in (("threads", True, f"{threads} threads"), ("ours", False, "1 thread")):
            for peer, text in (
                ("iterate", "plyvel, iterated"),
                ("checked", "plyvel, verify_checksums"),
                ("arrow", "plyvel, into Arrow"),
                ("floor", "floor"),
            ):
                line = f"live, key and value to Arrow, {label}: {name}"
                yield measured.row(line, count / 1e6, "M rows/s", task, text, peer, wall=wall)
        for task, depth in (("verify", "checksums"), ("records", "records, order and filters")):
            line = f"verify, {depth}, 1 thread: {name}"
            yield measured.row(line, stored / 1e9, "GB/s", task, "checksums and decompression", "checks")


def _building(place: Path, table: pa.Table, rounds: int) -> Iterator[str]:
    keys, values = (table[name].to_pylist() for name in ("key", "value"))
    for name in ("none", "snappy"):

        def write(name: str = name) -> None:
            shutil.rmtree(place / "written", ignore_errors=True)
            database = _opened(place / "written", name)
            _put(database, keys, values)
            database.close()

        # Wall-clock time, because LevelDB compacts in another thread.
        measured = in_turn(
            {"ours": python(lambda name=name: built(table, name)), "plyvel": python(write)}, rounds
        )
        line, peer = f"table from sorted columns: {name}", "plyvel, write_batch of 10,000"
        yield measured.row(line, table.num_rows / 1e6, "M rows/s", "ours", peer, "plyvel", wall=True)


def _logs(place: Path, table: pa.Table, size: Size) -> Iterator[str]:
    clean, hurt = place / "000003.log", place / "hurt" / "000003.log"
    hurt.parent.mkdir()
    logged(table, clean)
    places = size.of(PLACES)
    damaged(np.fromfile(clean, np.uint8), places).tofile(hurt)
    stored = clean.stat().st_size
    with open_source(str(clean)) as sound, open_source(str(hurt)) as broken:
        (records, none), (left, holes) = walked(sound), walked(broken)
        if none or records != table.num_rows or not places // 3 < holes <= places or left < records * 0.9:
            raise SystemExit(f"{records} records, {none} holes; {left} records left, {holes} holes")
        works: dict[str, Callable[[], Any]] = {
            "scan": lambda: walked(sound),
            "salvage": lambda: walked(broken),
            "rows": lambda: log_rows(sound),
            "rest": lambda: log_rows(broken),
        }
        measured = in_turn({name: python(work) for name, work in works.items()}, size.rounds)
    line = f"log of {stored >> 20} MB, one put per batch, {holes} damaged ranges: scan with CRC"
    yield measured.row(line, stored / 1e9, "GB/s", "salvage", "the same log, clean", "scan")
    line, rate = "the same, rows in mode DROPMALFORMED", table.num_rows / 1e6
    yield measured.row(line, rate, "M rows/s", "rest", "the same log, clean", "rows")


if __name__ == "__main__":
    print_section("LevelDB", section)
