"""Measure tasks in turn, round by round.

The load of a machine changes from minute to minute, and rates change with it. The tasks of one round run within seconds of each other,
so their ratio is taken in each round. The median of these ratios is reported.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from logwright.readers.process import keep_freed_memory
from logwright.roundtrip.oracles import java

ROUNDS = 7
ROUND_SECONDS = 0.5
"""Processor time of one task in one round. Shorter tasks are repeated; Java's clock has ticks of 10 ms."""
WARM_UP_SECONDS = 3.0
"""Processor time that a JVM spends on a task before the first round, while it compiles the code."""


class Seconds(NamedTuple):
    """Duration of one pass of a task, by two clocks."""

    processor: float
    wall: float


Task = Callable[[], Seconds]
"""Run one round of a task."""


class Rounds:
    """The seconds of each task in each round."""

    def __init__(self, rounds: Sequence[Mapping[str, Seconds]]) -> None:
        self._rounds = rounds

    def seconds(self, task: str, *, wall: bool = False) -> float:
        return statistics.median(_seconds(seconds[task], wall) for seconds in self._rounds)

    def ratio(self, task: str, peer: str, *, wall: bool = False) -> float:
        """How many times as fast as `peer` a task is: the median of the ratios of all rounds."""
        return statistics.median(
            _seconds(seconds[peer], wall) / _seconds(seconds[task], wall) for seconds in self._rounds
        )

    def row(
        self, label: str, units: float, unit: str, task: str, name: str, peer: str, *, wall: bool = False
    ) -> str:
        """A line of a table: our rate, the rate of `peer` and its name, and the ratio."""
        ours, theirs = (units / self.seconds(measured, wall=wall) for measured in (task, peer))
        return f"| {label} | {ours:,.2f} {unit} | {theirs:,.2f} {name} | {self.ratio(task, peer, wall=wall):.2f} |"


def _seconds(seconds: Seconds, wall: bool) -> float:
    return seconds.wall if wall else seconds.processor


def in_turn(tasks: Mapping[str, Task], rounds: int) -> Rounds:
    """Measure `tasks` in turn, after one round that warms up."""
    return Rounds([{name: task() for name, task in tasks.items()} for _ in range(rounds + 1)][1:])


def second(task: Task) -> Task:
    """Run a task twice and measure the second time. A virtual machine returns free memory to its host after seconds, and to take it back
    costs more than to fill it."""

    def run() -> Seconds:
        task()
        return task()

    return run


def python(work: Callable[[], Any], before: Callable[[], Any] = lambda: None) -> Task:
    """A task that calls `work` in this process, each time after `before`, which is not measured."""

    def task() -> Seconds:
        passes, used, waited = 0, 0.0, 0.0
        while used < ROUND_SECONDS:
            before()
            processor, wall = time.process_time(), time.perf_counter()
            work()
            used += time.process_time() - processor
            waited += time.perf_counter() - wall
            passes += 1
        return Seconds(used / passes, waited / passes)

    return task


def cold(command: Sequence[str]) -> Task:
    """A task that runs `command` once, with its output to /dev/null. The start of the process is included, all its threads count."""

    def task() -> Seconds:
        before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        run = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        passed, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_CHILDREN)
        if run.returncode:
            raise java.OracleError(f"the benchmark failed: {run.stderr[-2000:]}")
        return Seconds(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, passed)

    return task


class Jvm:
    """A JVM that stays up and runs one round per request. See `benchmarks/jvm/Rounds.java`."""

    def __init__(self, run: subprocess.Popen[str], errors: Any) -> None:
        self._run, self._errors = run, errors

    def task(self, *request: object, units: int | None = None) -> Task:
        """A warmed-up task. If `units` is given, each pass must process that number of records or bytes."""
        line = "\t".join(map(str, request))

        def task() -> Seconds:
            processor, wall, processed = self._ask(line).split()
            if units is not None and int(processed) != units:
                raise java.OracleError(
                    f"the benchmark `{line}` processed {processed} units instead of {units}"
                )
            return Seconds(float(processor), float(wall))

        spent = 0.0
        while spent < WARM_UP_SECONDS:
            spent += max(task().processor, ROUND_SECONDS)
        return task

    def _ask(self, line: str) -> str:
        stdin, stdout = self._run.stdin, self._run.stdout
        assert stdin is not None
        assert stdout is not None
        with contextlib.suppress(BrokenPipeError):
            stdin.write(f"{line}\n")
            stdin.flush()
        answer = stdout.readline()
        if not answer:
            self._errors.seek(0)
            raise java.OracleError(f"the benchmark `{line}` failed: {self._errors.read()[-2000:]}")
        return answer


@contextlib.contextmanager
def jvm(command: Sequence[str]) -> Iterator[Jvm]:
    """Start a JVM that serves requests, and end it afterwards. `ROUND_SECONDS` becomes its last argument."""
    with tempfile.TemporaryFile("w+") as errors:
        run = subprocess.Popen(
            [*command, str(ROUND_SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            yield Jvm(run, errors)
        finally:
            run.kill()
            run.wait()


class Size(NamedTuple):
    """How much is measured, and how often."""

    scale: float
    rounds: int
    only: str = ""
    """Text in the names of the tasks to measure."""

    def of(self, count: int, least: int = 1) -> int:
        """`count`, scaled; at least `least`."""
        return max(least, round(count * self.scale))


def add_size_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        metavar="N",
        help="multiply the number of rows; 0.01 for a quick check",
    )
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, metavar="N", help=f"measured rounds (default {ROUNDS})"
    )


_MEMORY_DISK = Path("/dev/shm")
_NEEDED = 8 << 30


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a new folder, in memory if there is room: the writes of one task to a disk are paid by the tasks after it."""
    in_memory = _MEMORY_DISK.is_dir() and shutil.disk_usage(_MEMORY_DISK).free > _NEEDED
    return tempfile.TemporaryDirectory(prefix="logwright-bench-", dir=_MEMORY_DISK if in_memory else None)


def print_section(name: str, section: Callable[[Path, Size], list[str]], *, chooses: bool = False) -> None:
    """The command of a benchmark: measure, and print the lines of its section. `chooses`: it can measure some of the tasks."""
    parser = argparse.ArgumentParser(description=f"Measure {name} and print a table.")
    add_size_options(parser)
    if chooses:
        parser.add_argument(
            "--only",
            default="",
            metavar="TEXT",
            help="measure the tasks whose name contains TEXT, such as lz4",
        )
    options = parser.parse_args()
    keep_freed_memory()  # as the command line does
    with scratch_folder() as folder:
        print("\n".join(section(Path(folder), Size(**vars(options)))))
