"""Compare the speed and memory of this checkout with another checkout of logwright: `compare_checkouts.py PATH_OF_THE_OTHER`.

Each checkout runs in a process that stays up. The two take turns on each task, round by round, on the same files, through the public
API, so both see the same load of the machine. Printed per task: the median over all rounds of (rate of this checkout / rate of the
other), by processor time, and the peak memory of a scan in each.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROUND_SECONDS = 0.25
CODECS = {"kafka": "kafka.partition", "leveldb": "leveldb.db", "zookeeper": "zookeeper.datadir"}
BAIT = 4 << 20
"""Size of the files of adversarial bytes."""
COMPRESSION = ("none", "snappy", "lz4", "zstd", "gzip")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "other", type=Path, help="root of the other checkout, with its kernels warmed up or not"
    )
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--rows", type=int, default=100_000, help="rows of each generated directory")
    options.add_argument("--only", default="", help="run the tasks whose name contains this text")
    parsed = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="logwright-compare-") as folder:
        corpora = Path(folder)
        with _worker(HERE.parent, corpora) as this, _worker(parsed.other.resolve(), corpora) as other:
            _ask(this, "generate", rows=parsed.rows)
            print("| task | this / other |\n|---|---|")
            for task in _ask(this, "tasks"):
                if parsed.only in task:
                    print(f"| {task} | {_compare(this, other, task, parsed.rounds)} |", flush=True)
        for corpus in ("kafka-none-0", "zookeeper", "leveldb"):
            if parsed.only in corpus:
                peaks = [_peak(root, corpora, corpus) for root in (HERE.parent, parsed.other.resolve())]
                print(f"| peak memory of a scan, {corpus} | {peaks[0] / peaks[1]:.2f} |", flush=True)


def _compare(this: subprocess.Popen[str], other: subprocess.Popen[str], task: str, rounds: int) -> str:
    ratios = []
    for turn in range(rounds + 2):
        pair = (this, other) if turn % 2 else (other, this)
        seconds = {id(worker): _ask(worker, "run", task=task) for worker in pair}
        if isinstance(seconds[id(this)], str) or isinstance(seconds[id(other)], str):
            return f"this: {seconds[id(this)]}, other: {seconds[id(other)]}"
        if turn > 1:  # the first two compile and warm up
            ratios.append(seconds[id(other)] / seconds[id(this)])
    return f"{statistics.median(ratios):.2f}"


def _peak(root: Path, corpora: Path, corpus: str) -> int:
    with _worker(root, corpora) as worker:
        peak: int = _ask(worker, "peak", corpus=corpus)
        return peak


@contextlib.contextmanager
def _worker(root: Path, corpora: Path) -> Iterator[subprocess.Popen[str]]:
    worker = subprocess.Popen(
        [sys.executable, __file__, "--worker", str(corpora)],
        env=os.environ | {"PYTHONPATH": str(root / "src")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait()


def _ask(worker: subprocess.Popen[str], verb: str, **arguments: object) -> Any:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(json.dumps({"verb": verb, **arguments}) + "\n")
    worker.stdin.flush()
    answer = worker.stdout.readline()
    if not answer:
        raise SystemExit(f"a worker stopped at {verb} {arguments}; see its error above")
    return json.loads(answer)


class Worker:
    """The tasks of one checkout."""

    def __init__(self, corpora: Path) -> None:
        import logwright as lw

        with contextlib.suppress(ImportError):
            from logwright.readers.process import keep_freed_memory

            keep_freed_memory()  # as the command line does
        self.lw: Any = lw
        self.corpora = corpora
        self._tables: dict[Path, Any] = {}

    def generate(self, rows: int) -> None:
        from bench_salvage import deceptive

        for name in COMPRESSION:
            path = self.corpora / f"kafka-{name}-0"
            self.lw.generate("kafka.partition", path, rows=rows, seed=7, **{"compression.type": name})
        for name in ("leveldb", "zookeeper"):
            self.lw.generate(CODECS[name], self.corpora / name, rows=rows, seed=7)
        table = self.lw.read(self.corpora / "kafka-none-0").slice(0, rows // 5)
        self.lw.write(table, self.corpora / "kafka-small-0", "kafka.partition", **{"batch.size": 200})
        for name in ("kafka-none-0", "kafka-small-0", "leveldb", "zookeeper"):
            self.lw.damage(self.corpora / name, out=self.corpora / f"damaged-{name}", seed=3, count=20)
        self.lw.damage(
            self.corpora / "kafka-small-0",
            self.corpora / "damaged-flips-kafka-small-0",
            [f"flip:frame={i},at={61 + i % 60},bit={i % 8}" for i in range(10, 2000, 20)],
        )
        for name, make in deceptive():
            place = self.corpora / f"bait-{name.replace(' ', '-')}"
            place.mkdir()
            make(BAIT).tofile(place / f"{0:020d}.log")

    def tasks(self) -> list[str]:
        names = sorted(path.name for path in self.corpora.iterdir() if path.is_dir())
        sound = [name for name in names if not name.startswith(("damaged", "bait"))]
        hurt = [name for name in names if name not in sound]
        return [
            *(f"read {name}" for name in sound),
            *(f"read frames of {name}" for name in sound),
            *(f"verify structure {name}" for name in sound),
            *(f"verify records {name}" for name in sound),
            *(f"write {name}" for name in sound),
            *(f"verify records {name}" for name in hurt),
            *(f"read {mode} {name}" for mode in ("PERMISSIVE", "DROPMALFORMED") for name in hurt),
            *(f"repair {name}" for name in hurt if name.startswith("damaged")),
            *(f"salvage {name}" for name in names if "-none" in name or "kafka" not in name or name in hurt),
            *(f"read file {name}" for name in self._largest()),
        ]

    def _largest(self) -> list[str]:
        """The largest file of each kind in the directories of LevelDB and ZooKeeper."""
        largest: dict[str, Path] = {}
        for store in ("leveldb", "zookeeper"):
            for path in (self.corpora / store).rglob("*"):
                kind = f"{store} {path.suffix if store == 'leveldb' else path.name.split('.')[0]}"
                if (
                    path.is_file()
                    and path.stat().st_size > 100_000
                    and path.stat().st_size > largest.get(kind, Path("/dev/null")).stat().st_size
                ):
                    largest[kind] = path
        return [str(path.relative_to(self.corpora)) for path in largest.values()]

    def run(self, task: str) -> float | str:
        """The processor seconds of one pass, or why the task failed."""
        verb, _, name = task.rpartition(" ")
        work = self._work(verb, self.corpora / name)
        try:
            passes, began = 0, time.process_time()
            while True:
                work()
                passes += 1
                used = time.process_time() - began
                if used >= ROUND_SECONDS:
                    return used / passes
        except Exception as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0]}"

    def _work(self, verb: str, path: Path) -> Callable[[], object]:
        lw = self.lw
        if verb in ("read PERMISSIVE", "read DROPMALFORMED"):
            return lambda: lw.read(self._store(path), mode=verb.split()[1])
        if verb in ("read", "read file"):
            return lambda: lw.read(self._store(path))
        if verb == "read frames of":
            return lambda: lw.read(self._store(path), view="frames")
        if verb.startswith("verify"):
            return lambda: lw.verify(self._store(path), depth=verb.split()[1])
        if verb == "repair":
            return lambda: self._into(lambda out: lw.repair(self._store(path), out))
        if verb == "salvage":
            return lambda: self._into(lambda out: lw.repair(self._store(path), out, strategy="salvage"))
        if path not in self._tables:
            self._tables[path] = lw.read(path)
        codec = CODECS[path.name.split("-")[0]]
        options = {"batch.size": "200"} if "small" in path.name else {}
        if path.name.split("-")[1:2] and path.name.split("-")[1] in COMPRESSION:
            options["compression.type"] = path.name.split("-")[1]
        return lambda: self._into(lambda out: lw.write(self._tables[path], out, codec, **options))

    def _store(self, path: Path) -> Path:
        """The damaged copy is in a folder beside `damage.json`."""
        if path.name.startswith("bait"):
            return next(path.iterdir())
        return (
            next(child for child in path.iterdir() if child.is_dir())
            if path.name.startswith("damaged")
            else path
        )

    def _into(self, work: Callable[[Path], object]) -> None:
        out = self.corpora.parent / f"{self.corpora.name}-{os.getpid()}" / "out-0"
        out.parent.mkdir(exist_ok=True)
        try:
            work(out)
        finally:
            shutil.rmtree(out.parent)

    def peak(self, corpus: str) -> int:
        """Peak resident memory after a scan in batches, in KiB."""
        for _ in self.lw.scan(self.corpora / corpus).to_reader():
            pass
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def serve(corpora: Path) -> None:
    worker = Worker(corpora)
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(worker, request.pop("verb"))(**request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        serve(Path(sys.argv[2]))
    else:
        main()
