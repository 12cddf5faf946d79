"""The trust harness detects broken promises of codecs and layouts."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_store as fake_stores
import numpy as np
import pyarrow as pa
import pytest

from logwright.codec import registry
from logwright.codec.fault import StorageError, UsageError
from logwright.roundtrip import specimens, trust
from logwright.roundtrip.faulty import FaultyCalls
from logwright.roundtrip.memory_filesystem import Failure, Interrupted, MemoryFileSystem
from logwright.roundtrip.sample import Sample
from logwright.roundtrip.specimens import DIRECTORY_SAMPLES, SAMPLES, samples
from logwright.roundtrip.trust import BrokenPromise, Figures
from logwright.writers.filesystem import plain_errors

LABELS = [sample.label for sample in SAMPLES]


# Samples


def test_samples_match_their_description() -> None:
    assert len(set(LABELS)) == len(LABELS)
    for sample in SAMPLES:
        result = sample.specimen().read()
        assert result.table.num_rows == len(sample.rows)
        assert not result.report.faults
        assert sample.specimen().all_bytes() == sample.specimen().all_bytes()
    assert {sample.codec for sample in samples("kafka.index")} == {"kafka.index"}
    with pytest.raises(UsageError, match="no codec"):
        samples("kafka.nothing")


def test_codec_without_a_sample(fake_store: Any) -> None:
    with pytest.raises(UsageError, match=r"toy\.note has no sample"):
        samples("toy.note")
    assert "toy.note" in trust.missing()


fake_store = fake_stores.fake_store


# The figures


def test_figures_add_up() -> None:
    figures = Figures(flips=1200, cuts=3)
    figures += Figures(failures=4, crashes=5, mutations=6, cuts=1)
    assert str(figures) == "1,200 flipped bits, 4 cuts, 4 failing calls, 5 crash points, 6 mutated files"
    assert str(Figures()) == "nothing was tried"


def test_trust_on_the_command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trust.main(["kafka.partition_metadata"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["damage", "reading", "writing", "all promises hold"]
    assert "43 cuts" in lines[-1]
    monkeypatch.setattr(trust, "writing_directory", lambda box: Figures(crashes=7))
    assert trust.main(["kafka.partition"]) == 0
    assert "7 crash points" in capsys.readouterr().out
    monkeypatch.setattr(trust, "MEMORY", 0)

    def broken(*_: Any, **__: Any) -> Figures:
        raise BrokenPromise("oh no")

    monkeypatch.setattr(trust, "damage", broken)
    assert trust.main(["kafka.index"]) == 1
    assert "broken: oh no" in capsys.readouterr().err
    with pytest.raises(UsageError):
        trust.main(["kafka.nothing"])


# It notices


def never_ends() -> None:
    while True:
        pass


def test_timeout_is_a_broken_promise() -> None:
    with pytest.raises(BrokenPromise, match=r"more than 0\.05 s of processor time"), trust.in_time(0.05):
        never_ends()
    with trust.in_time(0.05):
        time.sleep(0.2)  # other processes may use the processor meanwhile
    with pytest.raises(BrokenPromise, match=r"more than 0\.3 s of time"), trust.in_time(0.01):
        time.sleep(5)
    done = []

    def other() -> None:
        with trust.in_time(0.01):
            time.sleep(0.05)
        done.append(1)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert done, "only the main thread is watched"


@pytest.mark.parametrize(
    "take",
    [lambda: bytearray(3 << 20), lambda: np.zeros(3 << 20, np.uint8), lambda: pa.allocate_buffer(3 << 20)],
)
def test_memory_limit_is_a_broken_promise(take: Callable[[], Any]) -> None:
    with trust.in_memory(4 << 20):
        take()
    with (
        pytest.raises(BrokenPromise, match="bytes of memory; the limit is 2097152"),
        trust.in_memory(2 << 20),
    ):
        take()


def test_memory_tracing_of_the_caller_is_kept() -> None:
    tracemalloc.start()
    try:
        with trust.in_memory():
            pass
        assert tracemalloc.is_tracing()
    finally:
        tracemalloc.stop()


def index() -> Sample:
    return next(sample for sample in SAMPLES if sample.codec == "kafka.index")


def test_unreported_damage_breaks_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = registry.get("kafka.producer_snapshot")
    real = codec.parse  # type: ignore[attr-defined]
    sound = samples("kafka.producer_snapshot")[0].specimen().all_bytes()
    monkeypatch.setattr(codec, "parse", lambda data: real(sound))
    with pytest.raises(BrokenPromise, match=r"damage_is_seen: .* cut to"):
        trust.damage(samples("kafka.producer_snapshot")[0])


def test_wrong_rows_after_a_failure_break_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = index()
    real = trust._read
    answers: dict[str, Callable[[Any], Any]] = {
        "rows are gone and nothing is said": lambda rows: (rows[0][1:], 0),
        "rows that were never there": lambda rows: ([*rows[0], "new"], 1),
    }
    for text, change in answers.items():
        calls = []

        def lie(*args: Any, change: Any = change, calls: list[int] = calls) -> Any:
            calls.append(1)
            actual = real(*args)
            return actual if len(calls) == 1 else change(actual)

        monkeypatch.setattr(trust, "_read", lie)
        with pytest.raises(BrokenPromise, match=text):
            trust.reading(sample)

    def nameless(*args: Any) -> Any:
        calls.append(1)
        if len(calls) > 1:
            with contextlib.suppress(OSError):
                os.stat("/")
            raise StorageError("bad")
        return real(*args)

    calls = []
    monkeypatch.setattr(trust, "_read", nameless)
    monkeypatch.setattr("logwright.roundtrip.faulty._ours", lambda: True)
    with pytest.raises(BrokenPromise, match="an error without a path"):
        trust.reading(sample)


def test_reader_that_writes_breaks_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: str, *_: Any) -> Any:
        with open(path, "ab") as file:
            file.write(b"x")
        return [], 0

    monkeypatch.setattr(trust, "_read", read)
    with pytest.raises(BrokenPromise, match="reading changed the file"):
        trust.reading(index())


def careless(
    table: Any, path: str, codec: Any, *, mode: str, files: MemoryFileSystem, **options: Any
) -> None:
    """Writes in place."""
    with plain_errors(path):
        if files.stat(path) is not None:
            files.remove(path)
        opened = files.create(path)
        opened.pwrite(b"all of it", 0)
        opened.sync()
        files.sync_directory(os.path.dirname(path))


def test_half_written_result_breaks_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "write", careless)
    with pytest.raises(BrokenPromise, match="neither the old file nor the new one"):
        trust.writing(index())


def test_leftover_files_break_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    real = trust.write

    def untidy(table: Any, path: str, *args: Any, files: MemoryFileSystem, **more: Any) -> None:
        files.put(path + ".more", b"scratch")
        real(table, path, *args, files=files, **more)

    monkeypatch.setattr(trust, "write", untidy)
    with pytest.raises(BrokenPromise, match="left behind"):
        trust.writing(index())


def test_directories_that_break_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    box = DIRECTORY_SAMPLES[0]
    monkeypatch.setattr(trust.DirectoryReader, "rows", lambda self, files: ["strange"])
    with pytest.raises(BrokenPromise, match="neither the old nor the new rows exist"):
        trust.writing_directory(box, ["new"])
    monkeypatch.setattr(trust.DirectoryReader, "rows", lambda self, files: None)
    monkeypatch.setattr(trust.DirectoryReader, "settled", lambda self, files: [])
    with pytest.raises(BrokenPromise, match="the next writer changes the rows"):
        trust.writing_directory(box, ["new"])


def test_directory_that_is_not_written_breaks_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    box = DIRECTORY_SAMPLES[0]

    def answers(error: BaseException | None) -> None:
        def fail_once(files: Any, command: Any, judge: Any, step: int) -> Figures:
            judge(files.fork(), error, "once")
            return Figures(failures=1)

        monkeypatch.setattr(trust, "every_operation", fail_once)

    answers(None)
    with pytest.raises(BrokenPromise, match="no error, but the rows are missing"):
        trust.writing_directory(box, ["append"])
    answers(StorageError("bad"))
    with pytest.raises(BrokenPromise, match="an error without a path: bad"):
        trust.writing_directory(box, ["append"])


def test_leftover_files_beside_or_in_the_target_break_the_promise(tmp_path: Path) -> None:
    box = DIRECTORY_SAMPLES[0]
    reader = trust.DirectoryReader(box, str(tmp_path))
    files = reader.empty()
    files.make(f"{reader.place}/other")
    with pytest.raises(BrokenPromise, match="left behind beside"):
        reader.settled(files)
    files = MemoryFileSystem()
    files.make(f"{reader.target}/inner")
    with pytest.raises(BrokenPromise, match="left behind in"):
        reader.settled(files)


# Calls that fail


def test_calls_of_other_libraries_do_not_fail(tmp_path: Path) -> None:
    with FaultyCalls(0) as calls:
        os.stat(tmp_path)
        os.listdir(tmp_path)
    assert calls.ticks == 0
    assert os.stat.__module__ == "posix"


def test_calls_from_other_threads_do_not_fail() -> None:
    from logwright.roundtrip import faulty

    assert not faulty._ours()
    done: list[bool] = []
    thread = threading.Thread(target=lambda: done.append(faulty._ours()))
    thread.start()
    thread.join()
    assert done == [False]


def test_permanent_failure_of_one_kind_of_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("logwright.roundtrip.faulty._ours", lambda: True)
    with FaultyCalls(1, forever=True) as calls:
        os.stat(tmp_path)
        for _ in range(3):
            with pytest.raises(OSError) as caught:
                os.listdir(tmp_path)
            assert caught.value.errno == errno.EIO
        os.stat(tmp_path)
    assert calls.what == "listdir"
    with FaultyCalls(0, Failure.ENOSPC), pytest.raises(OSError, match="No space"):
        os.mkdir(tmp_path / "x")
    place = tmp_path / "y"
    fd = os.open(place, os.O_RDWR | os.O_CREAT)
    try:
        with FaultyCalls(0, Failure.SHORT):
            assert os.pwrite(fd, b"abcdef", 0) == 3
            assert os.pwrite(fd, b"abcdef", 0) == 6
        view = memoryview(bytearray(6))
        with FaultyCalls(0, Failure.SHORT):
            assert os.preadv(fd, [view], 0) == 3
        with FaultyCalls(0, Failure.SHORT):
            assert os.stat(place).st_size == 6
    finally:
        os.close(fd)


def test_interruption_of_an_operation_counts_as_a_failure() -> None:
    files = MemoryFileSystem()
    files.make("/place")
    seen: list[BaseException | None] = []
    figures = trust.every_operation(
        files, lambda on: on.stat("/place"), lambda on, error, text: seen.append(error), failures=(None,)
    )
    assert figures.failures == 1
    assert isinstance(seen[0], Interrupted)


@pytest.mark.extended
def test_trust_runs_as_a_program(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "logwright.roundtrip.trust", "kafka.partition_metadata"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "all promises hold" in done.stdout
    assert specimens.samples("kafka.partition_metadata")
