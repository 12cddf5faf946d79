"""The trust harness: verify the promises about damage, failures and crashes exhaustively, for each registered codec and layout.

- `damage`: flip each bit of a small file, and truncate it at each byte.
- `reading`: let each operating-system call of a read fail.
- `writing`: let each operation of a write fail, and crash after each prefix of its changes, losing unsynced data.

`every_call`, `every_operation` and `every_crash` do that with any command and a judge of its outcome. `python -m
logwright.roundtrip.trust [CODEC or LAYOUT ...] [--every-bit]` runs all checks and prints their number.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from types import FrameType
from typing import Any

import pyarrow as pa

from logwright.codec import registry
from logwright.codec.base import Codec
from logwright.codec.fault import LogwrightError, UsageError
from logwright.codec.option import Options, Verb
from logwright.readers import plan, rescue
from logwright.readers.report import Report
from logwright.readers.report_data import FileReport
from logwright.readers.resolve import resolve
from logwright.readers.source import open_source
from logwright.readers.stream import FileStream, Mode
from logwright.readers.task import run
from logwright.readers.usage import takes
from logwright.roundtrip import laws
from logwright.roundtrip.faulty import FaultyCalls
from logwright.roundtrip.memory_filesystem import Failure, Interrupted, Kept, MemoryFileSystem
from logwright.roundtrip.sample import DirectorySample, Sample
from logwright.roundtrip.specimens import DIRECTORY_SAMPLES, SAMPLES
from logwright.writers.recover import finish_or_undo
from logwright.writers.staged import StagedWrite
from logwright.writers.target import Target
from logwright.writers.write import write

MEMORY = 64 << 20
"""The memory limit for reading a damaged copy of a small file, in bytes."""
SECONDS = 20.0
"""The limit of processor time for it, in seconds."""
_WAITING = 30
"""The limit on the clock is this many times longer: it ends a wait for something that never happens."""
KEPT = (*((kept, 0) for kept in Kept), (Kept.SOME, 1), (Kept.SOME, 2))
"""The crashes: each fixed kind once, and three random ones."""


class BrokenPromise(AssertionError):
    """A promise is broken. `data` is the file that shows it, if it was random."""

    data: bytes | None = None


@dataclass
class Figures:
    """The number of checks."""

    flips: int = 0
    cuts: int = 0
    failures: int = 0
    crashes: int = 0
    mutations: int = 0

    def __iadd__(self, other: Figures) -> Figures:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        return self

    def __str__(self) -> str:
        words = {
            "flips": "flipped bits",
            "cuts": "cuts",
            "failures": "failing calls",
            "crashes": "crash points",
        }
        words["mutations"] = "mutated files"
        texts = [f"{getattr(self, name):,} {text}" for name, text in words.items() if getattr(self, name)]
        return ", ".join(texts) or "nothing was tried"


# Bounds


@contextlib.contextmanager
def in_time(seconds: float = SECONDS) -> Iterator[None]:
    """Raise `BrokenPromise` in a block that takes more processor time, in all threads. Works only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(number: int, frame: FrameType | None) -> None:
        limit, clock = (
            (seconds, "processor time") if number == signal.SIGPROF else (seconds * _WAITING, "time")
        )
        raise BrokenPromise(f"it takes more than {limit:g} s of {clock}")

    timers = {
        signal.SIGPROF: (signal.ITIMER_PROF, seconds),
        signal.SIGALRM: (signal.ITIMER_REAL, seconds * _WAITING),
    }
    before = {number: signal.signal(number, late) for number in timers}
    for timer, limit in timers.values():
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for timer, _ in timers.values():
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def in_memory(most: int = MEMORY) -> Iterator[None]:
    """Raise `BrokenPromise` after a block whose peak memory (Python, NumPy or Arrow) exceeded the limit."""
    outer = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(outer)
    _pools.append(pool)
    pa.set_memory_pool(pool)
    tracing = tracemalloc.is_tracing()
    tracemalloc.start()  # nothing, where it was started before
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        yield
        took = (tracemalloc.get_traced_memory()[1] - before) + int(pool.max_memory() or 0)
    finally:
        if not tracing:
            tracemalloc.stop()
        pa.set_memory_pool(outer)
    if took > most:
        raise BrokenPromise(f"it takes {took} bytes of memory; the limit is {most}")


_pools: list[pa.MemoryPool] = []
"""Keeps pools alive, because a pool must outlive its buffers."""


# Failures of any command


def every_call(
    command: Callable[[], Any],
    judge: Callable[[Any, LogwrightError | None, str], None],
    *,
    prepare: Callable[[], None] = lambda: None,
    failures: Sequence[Failure] = tuple(Failure),
    forever: bool = False,
    step: int = 1,
) -> Figures:
    """Run a command repeatedly, and let a different one of its operating-system calls fail each time (only every `step`th
    of them, for a quick look).

    `judge(result, error, text)` raises for an outcome that is neither a clear error nor a complete result. Unexpected exceptions are
    raised. `prepare` restores the initial state.
    """
    figures = Figures()
    for failure in failures:
        at = 0
        while True:
            prepare()
            rescue.forget()
            result = error = None
            with FaultyCalls(at, failure, forever=forever) as calls, in_time():
                try:
                    result = command()
                except LogwrightError as raised:
                    error = raised
            if calls.ticks <= at:
                break
            rescue.forget()
            judge(result, error, f"{failure} of call {at}, {calls.what}")
            figures.failures += 1
            at += step
    return figures


def every_operation(
    files: MemoryFileSystem,
    command: Callable[[MemoryFileSystem], Any],
    judge: Callable[[MemoryFileSystem, BaseException | None, str], None],
    *,
    failures: Sequence[Failure | None] = (*Failure, None),
    step: int = 1,
) -> Figures:
    """Run a command on copies of a file system, with one more of its operations failing each time (None: interrupted).

    `judge(files, error, text)` gets the resulting files, and the error, if there was one. With `step`, each kind of failure happens
    only at every `step`-th operation, the next kind at the operations after these.
    """
    figures = Figures()
    for number, failure in enumerate(failures):
        at = number % step
        while True:
            copy = files.fork()
            copy.fail(at, failure)
            raised: BaseException | None = None
            with in_time():
                try:
                    command(copy)
                except (LogwrightError, Interrupted) as error:
                    raised = error
            if copy.ticks <= at:
                break
            copy.fail(-1)
            judge(copy, raised, f"{failure or 'an interruption'} at operation {at}")
            figures.failures += 1
            at += step
    return figures


def every_crash(
    files: MemoryFileSystem,
    command: Callable[[MemoryFileSystem], Any],
    judge: Callable[[MemoryFileSystem, str], None],
    *,
    step: int = 1,
) -> Figures:
    """Run a command on a copy of a file system, and pass the judge the disk after a crash that follows each of its changes.

    With `step`, each kind of crash follows only every `step`-th change, the next kind the changes after these.
    """
    copy = files.fork()
    command(copy)
    figures = Figures()
    for prefix in range(len(copy.trace) + 1):
        for number, (kept_part, seed) in enumerate(KEPT):
            if (prefix + number) % step:
                continue
            judge(
                copy.crash(prefix, kept_part, seed), f"a crash after change {prefix}, with {kept_part} kept"
            )
            figures.crashes += 1
    return figures


# Codecs


def damage(sample: Sample, *, every_bit: bool = False, step: int = 1) -> Figures:
    """Truncate a file at each byte, and flip every bit, or one bit of each byte in rotation. With a `step`, flip only in the first of so
    many bytes, and truncate only at the last. See `laws.damage_is_seen`."""
    data = sample.specimen().all_bytes()
    return damaged(data, sample.codec, sample.name, every_bit=every_bit, step=step, **sample.options)


def damaged(
    data: bytes, codec: str, name: str, *, every_bit: bool = False, step: int = 1, memory: int | None = None, **options: Any,
) -> Figures:  # fmt: skip
    """Do the same with any sound file. Raises `BrokenPromise`, also if more than `memory` bytes are used."""
    flips = [
        (at, bit)
        for place, at in enumerate(range(0, len(data), step))
        for bit in (range(8) if every_bit else (place % 8,))
    ]
    cuts = range(step - 1, len(data), step)
    with in_memory(MEMORY if memory is None else memory):
        verdict = laws.damage_is_seen(
            data, codec, name=name, cuts=cuts, flips=flips, guard=in_time, **options
        )
    if not verdict:
        raise BrokenPromise(str(verdict))
    return Figures(flips=len(flips), cuts=len(cuts))


def reading(sample: Sample) -> Figures:
    """Read a file while each call fails. The result must be a clear error or the correct rows, or with a disk that keeps failing,
    in the modes that skip damage, a part of the rows and a fault."""
    specimen = sample.specimen()
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="logwright-trust-") as folder:
        path = os.path.join(folder, sample.name)
        with open(path, "wb") as file:
            file.write(specimen.all_bytes())
        for mode in (Mode.FAILFAST, Mode.DROPMALFORMED):
            sound, _ = _read(path, specimen.codec, sample, mode)

            def judge(table: Any, error: LogwrightError | None, text: str, sound: Any = sound) -> None:
                if error is None and table[0] != sound and not table[1]:
                    raise BrokenPromise(f"{sample.label}: {text}: rows are gone and nothing is said")
                if error is None and not set(table[0]) <= set(sound):
                    raise BrokenPromise(f"{sample.label}: {text}: rows that were never there")
                if error is not None and not error.path:
                    raise BrokenPromise(f"{sample.label}: {text}: an error without a path: {error}")

            def command(mode: Mode = mode) -> Any:
                return _read(path, specimen.codec, sample, mode)

            figures += every_call(command, judge, failures=(Failure.EIO, Failure.SHORT))
            figures += every_call(command, judge, failures=(Failure.EIO,), forever=True)
        with open(path, "rb") as after:
            if after.read() != specimen.all_bytes():
                raise BrokenPromise(f"{sample.label}: reading changed the file")
    return figures


def _read(path: str, codec: Codec, sample: Sample, mode: Mode) -> tuple[list[str], int]:
    """Return the rows as text, and the number of errors."""
    report = FileReport(sample.name, codec.name)
    context = codec.context(sample.name, Options(codec.options, sample.options), directory="")
    with open_source(path) as source:
        batches = list(
            FileStream(
                source, codec, "rows", codec.tables["rows"].names(), context=context, report=report, mode=mode
            )
        )
    return [repr(row) for batch in batches for row in batch.to_pylist()], report.errors


def writing(sample: Sample) -> Figures:
    """Write a new file, and overwrite one, through failures and crashes. The old or the new file must remain, and the next
    write must leave nothing else behind."""
    specimen = sample.specimen()
    table = specimen.read().table
    target = f"/place/{sample.name}"
    used = {name: value for name, value in sample.options.items() if takes(specimen.codec, name, Verb.WRITE)}
    figures = Figures()

    def put(on: MemoryFileSystem) -> None:
        mode = "overwrite" if sample.name in on.tree("/place") else "error"
        write(table, target, specimen.codec.name, mode=mode, files=on, **used)

    for old in (None, b"another file, as it was"):
        files = MemoryFileSystem()
        files.make("/place")
        if old is not None:
            files.put(target, old)
        done = files.fork()
        put(done)
        new = done.tree("/place")[sample.name]

        def failed(
            on: MemoryFileSystem, error: BaseException | None, text: str, old: Any = old, new: Any = new
        ) -> None:
            content = on.tree("/place").get(sample.name)
            if content not in (old, new) or (error is None and content != new):
                raise BrokenPromise(
                    f"{sample.label}: {text}: {target} is neither the old file nor the new one"
                )

        def crashed(on: MemoryFileSystem, text: str, failed: Any = failed) -> None:
            failed(on, Interrupted(), text)
            put(on)
            if set(on.tree("/place")) != {sample.name}:
                raise BrokenPromise(f"{sample.label}: {text}: left behind: {sorted(on.tree('/place'))}")

        figures += every_operation(files, put, failed)
        figures += every_crash(files, put, crashed)
    return figures


# Layouts


class DirectoryReader:
    """Reads directories of a file system in memory, equal ones only once, by copying them to the same paths on disk."""

    def __init__(self, box: DirectorySample, scratch: str) -> None:
        self.box, self.layout = box, registry.get_layout(box.layout)
        self.place = os.path.join(scratch, "place")
        self.target = f"{self.place}/{box.name}"
        self.roots = {option: f"{scratch}/{option}/{box.name}" for option in box.roots}
        """The directories of further roots by option."""
        self.options = {**box.options, **self.roots}
        self._known: dict[Any, list[Any] | None] = {}

    def empty(self, **more: Any) -> MemoryFileSystem:
        """Return a file system without written files."""
        files = MemoryFileSystem(**more)
        for path in (self.target, *self.roots.values()):
            files.make(os.path.dirname(path))
        return files

    def rows(self, files: MemoryFileSystem) -> list[Any] | None:
        """Return the values of the key column that readers see; None if there is no directory."""
        trees = {path: files.tree(path) for path in (self.target, *self.roots.values())}
        if files.stat(self.target) is None:
            return None
        known = tuple(tuple(sorted(tree.items())) for tree in trees.values())
        if known not in self._known:
            for path in trees:
                shutil.rmtree(path, ignore_errors=True)
                os.makedirs(path)
                files.dump(path, path)
            try:
                result = read_directory(self.target, self.box.key, self.roots) if trees[self.target] else []
            except UsageError:
                if not self.roots:
                    raise
                result = []
            result = [item for item in result if item not in self.box.own]
            # The directories of several roots are created before the commit.
            self._known[known] = result or ([] if not self.roots else None)
        return self._known[known]

    def settled(self, files: MemoryFileSystem) -> list[Any] | None:
        """Return the same after the next writer, which must leave only the directory, and nothing to finish."""
        roots = self.layout.roots(Options(self.layout.options, self.options))
        target = Target.at(files, self.layout, self.target, roots)
        finish_or_undo(files, self.layout, self.target, roots)
        for path in target.roots:
            beside = {item.name for item in files.listdir(os.path.dirname(path))}
            if not beside <= {os.path.basename(path)}:
                raise BrokenPromise(f"left behind beside {path}: {sorted(beside)}")
        strange: list[str] = []
        if files.stat(target.path) is not None:
            target.sizes(strange)
        if strange:
            raise BrokenPromise(f"left behind in {self.target}: {strange}")
        return self.rows(files)


def read_directory(path: str, column: str, options: Mapping[str, Any]) -> list[Any]:
    """Return one column of the default view of a directory. Raises on the first damage."""
    planned = plan.reading(resolve(path, None, options))
    batches = run(planned.tasks, [column], Report(path))
    return [value for batch in batches for value in batch.column(0).to_pylist()]


def write_scenarios(
    reader: DirectoryReader,
) -> Iterator[tuple[str, MemoryFileSystem, Callable[[MemoryFileSystem], None], Any, Any]]:
    """Yield every way to write a directory: its name, the disk before, the command, and the keys before and after."""
    box, target, options = reader.box, reader.target, reader.options

    def put(on: MemoryFileSystem, rows: Sequence[Any], mode: str) -> None:
        write(list(rows), target, box.layout, mode=mode, files=on, **options)

    def put_by_tasks(on: MemoryFileSystem, rows: Sequence[Any], mode: str) -> None:
        staged = StagedWrite(target, box.layout, mode, options, files=on)
        half = len(rows) // 2
        try:
            messages = []
            for number, part in enumerate((rows[:half], rows[half:])):
                task = staged.task(number)
                task.add(pa.RecordBatch.from_pylist([dict(row) for row in part]))
                messages.append(task.commit())
            staged.commit(messages)
        except BaseException:
            staged.abort()
            raise

    old, new = [row[box.key] for row in box.old], [row[box.key] for row in box.new]
    for way, act in (("", put), (" by tasks", put_by_tasks)):
        for mode, before, after in (
            ("error", None, new),
            ("append", old, old + new),
            ("overwrite", old, new),
        ):
            if way and before is None:
                mode = "append"
            for can_exchange in (True, False) if mode == "overwrite" else (True,):
                files = reader.empty(can_exchange=can_exchange)
                if before is not None:
                    put(files, box.old, "error")
                files = files.fork()
                name = (
                    f"{'new' if before is None else mode}{way}{'' if can_exchange else ' without exchange'}"
                )

                def command(on: MemoryFileSystem, act: Any = act, mode: str = mode) -> None:
                    act(on, box.new, mode)

                yield name, files, command, before, after


def writing_directory(box: DirectorySample, ways: Sequence[str] | None = None, step: int = 1) -> Figures:
    """Write a directory in every way, through every failure and crash. The old or the new state must remain, and the next writer must
    be able to clean up. `ways`: only these, by name. `step`: see `every_operation`."""
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="logwright-trust-") as scratch:
        reader = DirectoryReader(box, scratch)
        for name, files, command, before, after in write_scenarios(reader):
            if ways is not None and name not in ways:
                continue
            label = f"{box.layout}, {name}"

            def current_rows(
                on: MemoryFileSystem, text: str, label: str = label, before: Any = before, after: Any = after
            ) -> Any:
                rows = reader.rows(on)
                if rows not in (before, after):
                    raise BrokenPromise(f"{label}: {text}: neither the old nor the new rows exist")
                if reader.settled(on.fork()) != rows:
                    raise BrokenPromise(f"{label}: {text}: the next writer changes the rows")
                return rows

            def failed(
                on: MemoryFileSystem,
                error: BaseException | None,
                text: str,
                current_rows: Any = current_rows,
                label: str = label,
                after: Any = after,
            ) -> None:
                rows = current_rows(on, text)
                if error is None and rows != after:
                    raise BrokenPromise(f"{label}: {text}: no error, but the rows are missing")
                if isinstance(error, LogwrightError) and not error.path:
                    raise BrokenPromise(f"{label}: {text}: an error without a path: {error}")

            figures += every_operation(files, command, failed, step=step)
            figures += every_crash(files, command, current_rows, step=step)
    return figures


# All checks


def missing() -> list[str]:
    """Return registered codecs and layouts without a sample."""
    known = {sample.codec for sample in SAMPLES} | {box.layout for box in DIRECTORY_SAMPLES}
    every = {codec.name for codec in registry.codecs()} | {layout.name for layout in registry.layouts()}
    return sorted(every - known)


def everything(names: Sequence[str] = (), *, every_bit: bool = False) -> Iterator[tuple[str, Figures, float]]:
    """Check all promises on all codecs and layouts, or the named ones. Yields title, number of checks, and seconds.

    Raises `BrokenPromise`.
    """
    for sample in SAMPLES:
        if names and sample.codec not in names:
            continue
        steps: list[tuple[str, Callable[[], Figures]]] = [
            ("damage", functools.partial(damage, sample, every_bit=every_bit)),
            ("reading", functools.partial(reading, sample)),
            ("writing", functools.partial(writing, sample)),
        ]
        for title, step in steps:
            start = time.perf_counter()
            figures = step()
            yield f"{title}: {sample.label}", figures, time.perf_counter() - start
    for box in DIRECTORY_SAMPLES:
        if not names or box.layout in names:
            start = time.perf_counter()
            figures = writing_directory(box)
            yield f"writing: {box.layout}", figures, time.perf_counter() - start


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all checks and print the figures. Returns 1 if a promise is broken."""
    parser = argparse.ArgumentParser(
        prog="python -m logwright.roundtrip.trust", description="Try every promise on every kind of file."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a codec or layout; all when left away")
    parser.add_argument(
        "--every-bit", action="store_true", help="flip all eight bits of each byte, not one of them"
    )
    parsed = parser.parse_args(arguments)
    for name in parsed.names:
        registry.find(name)
    total = Figures()
    try:
        for title, figures, seconds in everything(parsed.names, every_bit=parsed.every_bit):
            total += figures
            print(f"{title:45} {seconds:7.1f} s  {figures}", flush=True)
    except BrokenPromise as error:
        print(f"broken: {error}", file=sys.stderr)
        return 1
    print(f"all promises hold: {total}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
