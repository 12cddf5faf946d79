"""Prefetching by worker threads gives the same results in the same order."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logwright as lw
from logwright.codec.store.listing import work_ahead
from logwright.readers import prefetch, task, verify
from logwright.readers.listing import LocalDirectory
from logwright.readers.prefetch import INLINE, Prefetcher


def _count(start: int, rows: int) -> Iterator[int]:
    yield from range(start, start + rows)


def _counts(pieces: int, rows: int) -> list[Callable[[], Iterator[int]]]:
    return [partial(_count, i * rows, rows) for i in range(pieces)]


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "logwright"]


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("room", [0, 3, 1000])
def test_pieces_come_in_order(threads: int, room: int) -> None:
    with Prefetcher(threads, room) as prefetcher:
        assert list(prefetcher.iterate(_counts(20, 7), lambda _: 1)) == list(range(140))
        assert list(prefetcher.iterate([], lambda _: 1)) == []
        assert list(prefetcher.iterate(_counts(3, 0), lambda _: 1)) == []
    assert not _threads()


def test_several_queues_can_be_consumed_together() -> None:
    with Prefetcher(3, 5) as prefetcher:
        lines = [prefetcher.iterate(_counts(6, 5), lambda _: 1) for _ in range(8)]
        assert list(zip(*lines, strict=True)) == [(i,) * 8 for i in range(30)]


@pytest.mark.parametrize("fails", [False, True])
def test_items_without_weight_are_returned(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a piece comes with its last items, however late the consumer takes them."""

    def late(weights: list[tuple[int, int]]) -> int:
        time.sleep(0.002)
        return _sum(weights)

    def few(i: int) -> Iterator[int]:
        yield from range(3 * i, 3 * i + 3)
        if fails and i == 19:
            raise OSError("here")

    _sum = sum
    monkeypatch.setattr(prefetch, "sum", late, raising=False)
    results = []
    with Prefetcher(3) as prefetcher:
        try:
            for pair in prefetcher.iterate([partial(few, i) for i in range(20)], lambda _: 0):
                results.append(pair)
        except OSError:
            assert fails
    assert results == list(range(60))


def test_error_comes_in_its_position() -> None:
    def fails() -> Iterator[int]:
        yield 7
        raise OSError("here")

    with Prefetcher(3) as prefetcher:
        results = prefetcher.iterate([*_counts(1, 7), fails, *_counts(5, 5)], lambda _: 1)
        assert [next(results) for _ in range(8)] == list(range(8))
        with pytest.raises(OSError, match="here"):
            next(results)
    assert not _threads()


def test_prefetching_is_bounded_by_weight() -> None:
    begun: list[int] = []

    def piece(i: int) -> Iterator[int]:
        for n in range(10):
            begun.append(i)
            yield n

    with Prefetcher(2, 5) as prefetcher:
        results = prefetcher.iterate([partial(piece, i) for i in range(50)], lambda _: 1)
        next(results)
        for _ in range(50):
            time.sleep(0.002)  # The worker does all that it may.
        assert len(begun) <= 5 + 2
        assert len(list(results)) == 499
    assert len(begun) == 500


def test_early_stop_does_not_wait_and_closes_everything() -> None:
    ended: list[int] = []
    inside: list[int] = []

    def piece(i: int) -> Iterator[int]:
        try:
            for n in range(1000):
                inside.append(i)
                time.sleep(0.001)
                inside.remove(i)
                yield n
        finally:
            assert i not in inside
            ended.append(i)

    with Prefetcher(3) as prefetcher:
        results = prefetcher.iterate([partial(piece, i) for i in range(9)], lambda _: 1)
        assert [next(results) for _ in range(20)] == list(range(20))
        results.close()
        assert not inside
        assert 0 in ended
        assert len(ended) == len(set(ended)) <= 9
        assert list(prefetcher.iterate(_counts(2, 2), lambda _: 1)) == [0, 1, 2, 3]


def test_inline_starts_no_thread() -> None:
    results = INLINE.iterate(_counts(2, 3), lambda _: 1)
    assert next(results) == 0
    assert not _threads()
    with Prefetcher(4) as prefetcher:
        assert list(prefetcher.iterate(_counts(2, 3), lambda _: 1, threaded=False)) == list(range(6))
        assert not _threads()


def test_thread_count_is_that_of_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    before = pa.cpu_count()
    try:
        pa.set_cpu_count(1)
        assert prefetch.usable() == 1
    finally:
        pa.set_cpu_count(before)
    assert 1 <= prefetch.usable() <= max(1, before)
    monkeypatch.delattr(os, "sched_getaffinity")
    assert 1 <= prefetch.usable() <= max(1, before)


# Reading

ROWS = 6000


@pytest.fixture(params=["kafka.partition", "leveldb.db"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Many small files, several of which are read at a time."""
    monkeypatch.setattr(task, "FEW", 0)
    monkeypatch.setattr(task, "usable", lambda: 3)
    path = tmp_path / "a-0"
    if request.param == "kafka.partition":
        rows = [{"key": f"k{i}", "value": "x" * 50, "offset": i} for i in range(ROWS)]
        lw.write(rows, path, request.param, segment_bytes=24 << 10, batch_size=1 << 10)
    else:
        rows = [{"key": f"k{i:06}", "value": f"{i:4}" * 400, "sequence": i + 1} for i in range(ROWS)]
        lw.write(rows, path, request.param, max_file_size=1 << 20, compression="none")
    return path


def _watched(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Record the threads that read."""
    seen: set[str] = set()
    step = Prefetcher._step

    def watched(self: Prefetcher, piece: Any) -> None:
        seen.add(threading.current_thread().name)
        step(self, piece)

    monkeypatch.setattr(Prefetcher, "_step", watched)
    return seen


def _one_thread(path: Path, **options: Any) -> lw.Scan:
    return lw.scan(path, limit=1 << 40, **options)


@pytest.mark.alike
@pytest.mark.parametrize(
    "options", [{}, {"filter": "key >= k004"}, {"columns": ["value"]}, {"mode": "PERMISSIVE"}]
)
def test_rows_are_the_same(place: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    helped = _watched(monkeypatch)
    scan, many = _one_thread(place, **options), lw.scan(place, **options)
    assert many.to_table().equals(scan.to_table())
    assert many.report.to_dict() == scan.report.to_dict()
    assert "logwright" in helped
    assert not _threads()


@pytest.mark.alike
@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_damage_is_the_same(place: Path, mode: str) -> None:
    damage_file(place)
    scan, many = _one_thread(place, mode=mode), lw.scan(place, mode=mode)
    assert many.to_table().equals(scan.to_table())
    assert many.report.to_dict() == scan.report.to_dict()
    assert len(many.report.faults) > 2


def test_error_is_the_same(place: Path) -> None:
    damage_file(place)
    messages = []
    for scan in (_one_thread(place), lw.scan(place)):
        taken: list[int] = []
        with pytest.raises(lw.DamageError) as error:
            taken.extend(map(len, scan))
        messages.append((str(error.value), sum(taken), [str(fault) for _, fault in scan.report.faults]))
    assert messages[0] == messages[1]
    assert not _threads()


@pytest.mark.alike
@pytest.mark.parametrize("depth", ["checksums", "records"])
def test_verify_report_is_the_same(place: Path, depth: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "FEW", 0)
    helped = _watched(monkeypatch)
    for hurt in (False, True):
        if hurt:
            damage_file(place)
        reports, progress = [], []
        for threads in (1, 3):
            monkeypatch.setattr(verify, "usable", lambda threads=threads: threads)
            shown: list[tuple[int, int]] = []
            reports.append(
                lw.verify(place, depth=depth, show=lambda done, of, shown=shown: shown.append((done, of)))
            )
            progress.append(shown)
        assert reports[0].to_dict() == reports[1].to_dict()
        assert reports[0].ok is not hurt
        assert progress[0] == progress[1]
    assert "logwright" in helped


def test_abandoned_scan_stops_its_threads(place: Path) -> None:
    batches = iter(lw.scan(place))
    next(batches)
    del batches
    assert not _threads()


def damage_file(place: Path) -> None:
    files = sorted(
        path for path in place.iterdir() if path.suffix in (".log", ".ldb") and path.stat().st_size > 9000
    )
    for file in files[2::3]:
        data = bytearray(file.read_bytes())
        data[6000] ^= 1
        file.write_bytes(data)


def test_scan_abandoned_at_exit_does_not_hang(place: Path) -> None:
    program = (
        "import sys, logwright as lw; from logwright.readers import task; task.FEW = 0; task.usable = lambda: 3\n"
        "left = iter(lw.scan(sys.argv[1])); print(next(left).num_rows > 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, place], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


@pytest.mark.alike
@pytest.mark.parametrize("codec", ["kafka.log", "leveldb.log", "leveldb.table"])
def test_large_file_is_prefetched(codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from logwright.readers import stream

    monkeypatch.setattr(task, "FEW", 0)
    monkeypatch.setattr(task, "usable", lambda: 2)
    monkeypatch.setattr(stream, "WINDOW", 1 << 12)
    helped = _watched(monkeypatch)
    name = {
        "kafka.log": "00000000000000000000.log",
        "leveldb.log": "000003.log",
        "leveldb.table": "000005.ldb",
    }
    path = tmp_path / name[codec]
    lw.write(
        pa.table({"key": [f"k{i:06}".encode() for i in range(90_000)], "value": [b"v" * 100] * 90_000}),
        path,
        codec,
    )
    data = bytearray(path.read_bytes())
    for hurt in (False, True):
        for at in range(len(data) // 9, len(data), len(data) // 4) if hurt else ():
            data[at] ^= 1
        path.write_bytes(data)
        for mode in ("PERMISSIVE", "DROPMALFORMED"):
            scan, many = _one_thread(path, mode=mode), lw.scan(path, mode=mode)
            assert many.to_table().equals(scan.to_table())
            assert many.report.to_dict() == scan.report.to_dict()
            assert bool(many.report.faults) is hurt
    assert "logwright" in helped


def test_a_directory_works_ahead_in_a_thread_and_keeps_order_and_errors(tmp_path: Path) -> None:
    begun, asked = threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        yield 0
        asked.wait(10)  # the caller has 0 by now
        begun.set()
        yield from (1, 2)
        raise ValueError("at the end")

    seen: list[int] = []

    def take() -> None:
        for item in work_ahead(LocalDirectory(str(tmp_path)), items(), lambda _: 1):
            asked.set()
            waits = not item and prefetch.usable() > 1
            assert not waits or begun.wait(10), "nothing is computed while the caller works"
            seen.append(item)

    with pytest.raises(ValueError, match="at the end"):
        take()
    assert seen == [0, 1, 2]
    assert not _threads()
