"""The speed of a walk over damaged files, compared with undamaged ones, and its linearity on adversarial bytes.

Run by `benchmarks/run.py`; alone it prints its section of the table in about a minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rounds import Size, in_turn, print_section, python

import logwright as lw
from logwright.codec import registry
from logwright.codec.frames.walk import Hole, Stretch, Walk
from logwright.codec.kafka.formats.log.layout import HEAD, HEAD_SIZE, LENGTH_END, MAGIC, RECORD_BATCH
from logwright.codec.kernels import kernel
from logwright.codec.option import Options
from logwright.codec.window import Window
from logwright.corpora.kafka import bulk
from logwright.corpora.recipe import Order
from logwright.readers.report_data import FileReport
from logwright.readers.source import MemorySource, Source, open_source
from logwright.readers.stream import FileStream, Mode

NAME = f"{0:020d}.log"
ROWS = 4_400_000
"""Rows of about 120 bytes: 500 MB."""
PLACES = 1000
KINDS = ("flip", "shorter", "longer", "huge", "negative", "zeros", "garbage", "cut", "insert")
SIZES = (1 << 20, 10 << 20, 100 << 20)
_PAGE = 4096
_LENGTH = RECORD_BATCH.offset("batch_length")
_COLUMNS = ("offset", "timestamp", "key", "value")

Bytes = npt.NDArray[np.uint8]
_CODEC = registry.get("kafka.log")


def segment(place: Path, rows: int = ROWS) -> Path:
    """Write a segment of batches of 16 KiB, as a busy producer does."""
    order = Order(NAME, "t-0", "bulk", rows, 1, Options(bulk.OPTIONS, {}))
    place.mkdir(parents=True, exist_ok=True)
    lw.write(bulk.rows(order), place / NAME, "kafka.log")
    return place / NAME


def context() -> object:
    return _CODEC.context(NAME, Options(_CODEC.options))


def starts_of(data: Bytes) -> npt.NDArray[np.int64]:
    """Return the starts of batches, and the end."""
    frames = _CODEC.scan(Window(data, 0, len(data)), 0, context(), check=False)
    return np.append(frames.start, len(data))


def damaged(data: Bytes, places: int = PLACES, seed: int = 5) -> tuple[Bytes, npt.NDArray[np.int64]]:
    """Damage a file in several places of mixed kinds. Returns it and a mask of the intact batches."""
    rng = np.random.default_rng(seed)
    bounds = starts_of(data)
    intact = np.ones(len(bounds) - 1, np.bool_)
    pieces: list[Bytes] = []
    done = 0
    for n, i in enumerate(np.sort(rng.choice(len(intact), places, replace=False)).tolist()):
        start, end = int(bounds[i]), int(bounds[i + 1])
        if start < done:
            continue  # the damage before reaches into this one
        pieces.append(data[done:start])
        kind = KINDS[n % len(KINDS)]
        within = start + int(rng.integers(HEAD_SIZE, end - start))
        upto = i + 1
        if kind in ("zeros", "garbage"):
            # A disk page, not aligned to batches.
            low = max(start, within // _PAGE * _PAGE)
            high = min(low + _PAGE, len(data))
            upto = int(np.searchsorted(bounds, high))
            page = np.zeros(high - low, np.uint8)
            if kind == "garbage":
                page = rng.integers(0, 256, high - low, np.uint8)
            pieces += [data[start:low], page, data[high : int(bounds[upto])]]
        elif kind == "cut":
            # From inside of this batch into a later one.
            upto = min(i + 1 + int(rng.integers(3)), len(intact) - 1) + 1
            stop = int(rng.integers(max(within, bounds[upto - 1]), bounds[upto]))
            pieces += [data[start:within], data[stop : int(bounds[upto])]]
        elif kind == "insert":
            more = rng.integers(0, 256, 1 + int(rng.integers(_PAGE)), np.uint8)
            pieces += [data[start:within], more, data[within:end]]
        elif kind == "flip":
            batch = data[start:end].copy()
            batch[within - start] ^= 1 << int(rng.integers(8))
            pieces.append(batch)
        else:
            batch = data[start:end].copy()
            size = len(batch) - LENGTH_END
            header = {
                "shorter": size - 1 - int(rng.integers(size - HEAD_SIZE)),
                "longer": size + 1 + int(rng.integers(1 << 20)),
                "huge": (1 << 31) - 1 - int(rng.integers(1 << 20)),
                "negative": -1 - int(rng.integers(1 << 30)),
            }[kind]
            batch[_LENGTH : _LENGTH + 4] = np.frombuffer(header.to_bytes(4, "big", signed=True), np.uint8)
            pieces.append(batch)
        intact[i:upto] = False
        done = int(bounds[upto])
    pieces.append(data[done:])
    heads = data[bounds[:-1][intact][:, None] + np.arange(8)]
    return np.concatenate(pieces), heads.copy().view(">i8")[:, 0].astype(np.int64)


def walked(source: Source) -> tuple[npt.NDArray[np.int64], int]:
    """Return the base offsets of the batches, and the number of damaged ranges."""
    starts: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
    holes = 0
    for stretch in Walk(source, _CODEC, context()):
        if isinstance(stretch, Stretch):
            starts.append(stretch.frames.header["base_offset"].astype(np.int64))
        holes += isinstance(stretch, Hole)
    return np.concatenate(starts), holes


def read(source: Source) -> int:
    """Return the number of rows in mode DROPMALFORMED."""
    report = FileReport(NAME, _CODEC.name)
    batches = FileStream(
        source, _CODEC, "rows", _COLUMNS, context=context(), report=report, mode=Mode.DROPMALFORMED
    )
    return sum(batch.num_rows for batch in batches)


# Adversarial files


def fakes(size: int, claim: int | None) -> Bytes:
    """Return headers of 61 bytes that claim a given length, or the rest of the file."""
    heads = np.zeros(size // HEAD_SIZE, HEAD)
    at = np.arange(len(heads)) * HEAD_SIZE
    heads["base_offset"] = 1 + np.arange(len(heads))
    heads["batch_length"] = (
        size - at - LENGTH_END if claim is None else np.minimum(claim, size - at) - LENGTH_END
    )
    heads["magic"], heads["records_count"], heads["producer_id"] = MAGIC, 1, -1
    out = np.zeros(size, np.uint8)
    out[: len(heads) * HEAD_SIZE] = heads.view(np.uint8)
    return out


def deceptive() -> Iterator[tuple[str, Callable[[int], Bytes]]]:
    yield "headers that claim the rest of the file", lambda size: fakes(size, None)
    yield "headers that claim 64 KiB", lambda size: fakes(size, 64 << 10)
    yield "headers that claim 8 MiB", lambda size: fakes(size, 8 << 20)
    yield "magic bytes everywhere", lambda size: np.full(size, MAGIC, np.uint8)
    yield "zeros", lambda size: np.zeros(size, np.uint8)
    yield "random bytes", lambda size: np.random.default_rng(1).integers(0, 256, size, np.uint8)


def rate(data: Bytes) -> float:
    """Return the speed of a walk, in bytes per second, over a file of these bytes between two good batches."""
    source = MemorySource(data.tobytes())
    started = time.process_time()
    walked(source)
    return len(data) / (time.process_time() - started)


def section(place: Path, size: Size) -> list[str]:
    """Yield the lines of the table."""
    for _ in kernel.warmup():
        pass
    count = size.of(ROWS)
    clean = segment(place / "clean", count)
    data, intact = damaged(np.fromfile(clean, np.uint8), size.of(PLACES))
    hurt = place / NAME
    data.tofile(hurt)
    with open_source(str(clean)) as sound, open_source(str(hurt)) as broken:
        batches, holes = walked(broken)
        if len(np.setdiff1d(batches, intact)):
            raise SystemExit("the walk returned batches that do not exist")
        lost = len(np.setdiff1d(intact, batches))
        works: dict[str, Callable[[], object]] = {
            "clean scan": lambda: walked(sound),
            "scan": lambda: walked(broken),
            "clean rows": lambda: read(sound),
            "rows": lambda: read(broken),
        }
        measured = in_turn({name: python(work) for name, work in works.items()}, size.rounds)
    lines = [
        "Salvage: a segment of 16 KiB batches, and a copy with nine kinds of damage (flipped bits, wrong lengths, zeroed and overwritten",
        f"pages, removed and inserted bytes). {len(data) >> 20} MB, {holes} damaged ranges; {lost} of the {len(intact):,} undamaged",
        "batches are not found.",
        "",
        "| task | clean | damaged | ratio |",
        "|---|---|---|---|",
    ]
    for task, label, units, unit in (
        ("scan", "scan batches with CRC", len(data) / 1e9, "GB/s"),
        ("rows", "rows, mode DROPMALFORMED", count / 1e6, "M rows/s"),
    ):
        undamaged, rest = (units / measured.seconds(name) for name in (f"clean {task}", task))
        ratio = measured.ratio(task, f"clean {task}")
        lines.append(f"| {label} | {undamaged:.2f} {unit} | {rest:.2f} {unit} | {ratio:.2f} |")
    lines += [
        "",
        "Adversarial files, which contain only false starts of records; MB/s of a walk:",
        "",
        "| bytes | " + " | ".join(f"{length >> 20} MB" for length in SIZES) + " |",
        "|---|" + "---|" * len(SIZES),
    ]
    for name, make in deceptive():
        rates = [f"{rate(make(length)) / 1e6:.0f}" for length in SIZES]
        lines.append(f"| {name} | {' | '.join(rates)} |")
    return lines


if __name__ == "__main__":
    print_section("salvage", section)
