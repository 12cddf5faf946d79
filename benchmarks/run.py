"""`make bench`: measure, print one table, write it to `benchmarks/RESULTS.md`. With `--peers` also measure alternatives.

Rates depend on the machine and its load. Ratios of tasks that are measured in turn can be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench_kafka import NAME, ROWS, ROWS_VARIABLE, Figure, rows, table_lines
from rounds import Size, add_size_options, scratch_folder

HERE = Path(__file__).parent
ROOT = HERE.parent
GOLDEN = ROOT / "corpora" / "golden" / "kafka" / "v2_txn_interleaved" / "data" / "v2_txn_interleaved-0"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--peers", action="store_true", help="also Kafka's own classes in a JVM, and aiokafka"
    )
    options.add_argument("--no-spark", action="store_true")
    add_size_options(options)
    parsed = options.parse_args()
    size = Size(parsed.scale, parsed.rounds)
    with scratch_folder() as folder:
        place = Path(folder)
        lines = []
        if parsed.peers:
            lines += _section("peers.py", size)
        else:
            print("measuring Kafka ...", file=sys.stderr)
            lines += table_lines(_ours(place, size))
        systems = ("leveldb", "zookeeper", "rocketmq", "bookkeeper")
        for name in ("bench_salvage.py", *(f"bench_{system}.py" for system in systems)):
            lines += ["", *_section(name, size)]
        lines += ["", *_memory(place, size), *_cold(place)]
        if not parsed.no_spark:
            lines += [*_spark(place), "", *_section("bench_spark_start.py", size)]
    text = "\n".join([_machine(), "", *lines, ""])
    print(text)
    if size.scale == 1:
        (HERE / "RESULTS.md").write_text(f"# Benchmarks\n\n{text}")


def _ours(place: Path, size: Size) -> dict[str, Figure]:
    """Our Kafka tasks on one thread, without peers."""
    out = place / "ours.json"
    subprocess.run(
        [sys.executable, "-m", "pytest", str(HERE / "bench_kafka.py"), "-q", "--override-ini=addopts=",
         f"--benchmark-json={out}", "-p", "no:cacheprovider", "--benchmark-quiet"],
        check=True, stdout=sys.stderr,
        env={**os.environ, "OMP_NUM_THREADS": "1", ROWS_VARIABLE: str(size.of(ROWS))},
    )  # fmt: skip
    rates = {}
    for benchmark in json.loads(out.read_text())["benchmarks"]:
        facts = benchmark["extra_info"]
        rates[facts["task"]] = facts["units"] / benchmark["stats"]["median"]
    return {
        task: Figure(rate, {other: (base, rate / base) for other, base in rates.items()})
        for task, rate in rates.items()
    }


def _section(name: str, size: Size) -> list[str]:
    """The lines of a section. It is measured in its own process, because it warms up the kernels."""
    print(f"running {name} ...", file=sys.stderr)
    run = subprocess.run(
        [sys.executable, str(HERE / name), "--scale", str(size.scale), "--rounds", str(size.rounds)],
        stdout=subprocess.PIPE,
        text=True,
    )
    if run.returncode:
        raise SystemExit(f"{name} failed; its message is above")
    return run.stdout.splitlines()


_PEAK = """
import resource, sys
import logwright as lw
rows = sum(batch.num_rows for batch in lw.scan(sys.argv[1]))
print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def _memory(place: Path, size: Size) -> list[str]:
    """Peak memory of a scan of a file, and of one four times as long."""
    import logwright as lw

    peaks = []
    for times in (1, 4):
        folder = place / f"memory-{times}"
        folder.mkdir()
        table = rows(size.of(ROWS))
        lw.write(
            [batch for _ in range(times) for batch in table.to_batches(50_000)], folder / NAME, "kafka.log"
        )
        output = subprocess.run(
            [sys.executable, "-c", _PEAK, str(folder / NAME)], check=True, capture_output=True, text=True
        )
        peaks.append((folder.joinpath(NAME).stat().st_size >> 20, int(output.stdout.split()[1])))
        shutil.rmtree(folder)
    return [
        f"Peak memory of a scan: {', '.join(f'{peak} MiB for a file of {size} MiB' for size, peak in peaks)}."
    ]


_TIMED = """
import subprocess, time
started = time.perf_counter()
subprocess.run({words!r}, check=True, stdout=subprocess.DEVNULL)
print(time.perf_counter() - started)
"""


def _cold(place: Path) -> list[str]:
    """Seconds of the whole process, with no kernel compiled."""
    lines = []
    for verb in ("inspect", "verify"):
        seconds = []
        for i in range(5):
            cache = place / f"cold-{verb}-{i}"
            code = _TIMED.format(words=[sys.executable, "-m", "logwright", verb, str(GOLDEN)])
            run = subprocess.run([sys.executable, "-c", code], env={**os.environ, "LOGWRIGHT_CACHE_DIR": str(cache)},
                                 check=True, capture_output=True, text=True)  # fmt: skip
            seconds.append(float(run.stdout))
        lines.append(f"`{verb}` {statistics.median(seconds):.2f} s")
    return [f"Cold start on a small partition, nothing compiled: {', '.join(lines)}."]


def _spark(place: Path) -> list[str]:
    """Compare the Spark source with one that returns the same rows from memory."""
    if shutil.which("java") is None:
        return ["Spark was not measured: Java 17 is not installed."]
    run = subprocess.run(
        [sys.executable, str(HERE / "null_source.py"), str(place / "spark")], capture_output=True, text=True
    )
    if run.returncode:
        return [
            f"Spark was not measured: {run.stderr.strip().splitlines()[-1] if run.stderr else 'it failed'}"
        ]
    result: dict[str, Any] = json.loads(run.stdout.strip().splitlines()[-1])
    return [
        f"Spark, one core: {result['logwright'] / 1e6:.2f} M rows/s; a source that returns the same rows from memory,"
        f" {result['null'] / 1e6:.2f} M rows/s ({result['null'] / result['logwright']:.2f} times)."
    ]


def _machine() -> str:
    cpu, facts = platform.processor(), Path("/proc/cpuinfo")
    if facts.exists():
        named = [
            line.split(":")[1].strip()
            for line in facts.read_text().splitlines()
            if line.startswith("model name")
        ]
        cpu = named[0] if named else cpu
    cores = os.cpu_count()
    return (
        f"{cpu}, {cores} cores, Python {platform.python_version()}. Medians; one core unless said otherwise."
    )


if __name__ == "__main__":
    main()
