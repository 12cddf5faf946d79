"""`make bench`: measure, print one table, keep it in `benchmarks/RESULTS.md`. With `--peers` the JVM's and aiokafka's side too.

Every figure is a rate in one run on one machine; what counts is the ratios, since machines differ and are noisy.
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
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
GOLDEN = ROOT / "corpora" / "golden" / "kafka" / "v2_txn_interleaved" / "data" / "v2_txn_interleaved-0"
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")

Rates = dict[str, float]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--peers", action="store_true", help="also Kafka's own classes in a JVM, and aiokafka"
    )
    options.add_argument("--no-spark", action="store_true")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="logwright-bench-") as folder:
        place = Path(folder)
        peers: dict[str, dict[str, Rates]] = {}
        if given.peers:
            sys.path.insert(0, str(HERE))
            import peers as judge

            if reason := judge.why_no_kafka():
                raise SystemExit(reason)
            print("Kafka writes the segments that all sides read ...", file=sys.stderr)
            segments = judge.segments(place / "segments")
            os.environ["LOGWRIGHT_BENCH_SEGMENTS"] = str(place / "segments")
            print("measuring Kafka's own classes and aiokafka (three minutes) ...", file=sys.stderr)
            peers = {
                "kafka": {**judge.kafka_read(segments), **judge.kafka_build(), **judge.kafka_dump(segments)},
                "aiokafka": {**judge.aiokafka_read(segments), **judge.aiokafka_build()},
            }
        print("measuring ours ...", file=sys.stderr)
        ours = _ours(place)
        lines = _table(ours, peers)
        lines += [
            "",
            *_apart("bench_salvage.py"),
            "",
            *_apart("bench_leveldb.py"),
            "",
            *_memory(place),
            *_cold(place),
        ]
        if not given.no_spark:
            lines += _spark(place)
    text = "\n".join([_machine(), "", *lines, ""])
    print(text)
    (HERE / "RESULTS.md").write_text(f"# Benchmarks\n\n{text}")


def _ours(place: Path) -> Rates:
    """Units a second by test, of one thread."""
    out = place / "ours.json"
    subprocess.run(
        [sys.executable, "-m", "pytest", str(HERE / "bench_kafka.py"), "-q", "--override-ini=addopts=",
         f"--benchmark-json={out}", "-p", "no:cacheprovider", "--benchmark-quiet"],
        check=True, stdout=sys.stderr, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    rates = {}
    for one in json.loads(out.read_text())["benchmarks"]:
        units = one["extra_info"]["rows"] or one["extra_info"]["bytes"]
        rates[one["name"].removeprefix("test_")] = units / one["stats"]["median"]
    return rates


def _table(ours: Rates, peers: dict[str, dict[str, Rates]]) -> list[str]:
    kafka, aio = peers.get("kafka", {}), peers.get("aiokafka", {})
    lines = ["| task | logwright | Kafka (JVM) | ratio | aiokafka | ratio |", "|---|---|---|---|---|---|"]

    def row(task: str, rate: float, unit: float, name: str, other: float | None, third: float | None) -> None:
        cells = [f"{rate / unit:,.2f} {name}"]
        for peer in (other, third):
            cells += [f"{peer / unit:,.2f}", f"{rate / peer:.2f}"] if peer else ["", ""]
        lines.append(f"| {task} | " + " | ".join(cells) + " |")

    def of(rates: dict[str, Rates], task: str, codec: str) -> float | None:
        return rates.get(task, {}).get(codec)

    row("copy bytes (memcpy)", ours["memcpy"], 1e9, "GB/s", None, None)
    row("read the file", ours["read_file"], 1e9, "GB/s", None, None)
    row("scan batches with CRC, file", ours["scan_crc"], 1e9, "GB/s", of(kafka, "crc_scan", "none"), None)
    row("scan batches with CRC, memory", ours["scan_crc_memory"], 1e9, "GB/s",
        of(kafka, "crc_scan_memory", "none"), of(aio, "crc_scan_memory", "none"))  # fmt: skip
    for codec in COMPRESSIONS:
        row(f"offset, timestamp, key, value to Arrow: {codec}", ours[f"read_four[{codec}]"], 1e6, "M rows/s",
            of(kafka, "read_copied", codec), of(aio, "read_copied", codec))  # fmt: skip
    row("all default columns: none", ours["read_default"], 1e6, "M rows/s",
        of(kafka, "read_copied", "none"), of(aio, "read_copied", "none"))  # fmt: skip
    row("one record a batch", ours["read_singles"], 1e6, "M rows/s", None, None)
    for codec in COMPRESSIONS:
        row(
            f"encode: {codec}",
            ours[f"encode[{codec}]"],
            1e6,
            "M rows/s",
            of(kafka, "build", codec),
            of(aio, "build", codec),
        )
    row("write a partition, synced", ours["write_partition"], 1e6, "M rows/s", None, None)
    for kind in ("parquet", "jsonl", "csv"):
        row(f"dump to {kind} (beside DumpLogSegments, cold)", ours[f"dump[{kind}]"], 1e6, "M rows/s",
            of(kafka, "dump_cold", "none"), None)  # fmt: skip
    lines += ["", "Of the measured floor (read, CRC, decompress, copy), decoding to Arrow takes:", ""]
    lines += [
        f"- {codec}: {ours[f'floor[{codec}]'] / ours[f'read_four[{codec}]']:.2f} times"
        for codec in COMPRESSIONS
    ]
    lines += [
        "",
        f"One record a batch costs {ours['read_four[none]'] / ours['read_singles']:.2f} times as much a record.",
    ]
    return lines


def _apart(name: str) -> list[str]:
    """The lines of a section that has a process of its own, as it warms up the kernels."""
    said = subprocess.run([sys.executable, str(HERE / name)], check=True, stdout=subprocess.PIPE, text=True)
    return said.stdout.splitlines()


_PEAK = """
import resource, sys
import logwright as lw
rows = sum(batch.num_rows for batch in lw.scan(sys.argv[1]))
print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def _memory(place: Path) -> list[str]:
    """Peak memory of a scan of a file, and of one four times as long."""
    import logwright as lw

    sys.path.insert(0, str(HERE))
    from bench_kafka import NAME, rows

    peaks = []
    for times in (1, 4):
        folder = place / f"memory-{times}"
        folder.mkdir()
        table = rows()
        lw.write(
            [batch for _ in range(times) for batch in table.to_batches(50_000)], folder / NAME, "kafka.log"
        )
        said = subprocess.run(
            [sys.executable, "-c", _PEAK, str(folder / NAME)], check=True, capture_output=True, text=True
        )
        peaks.append((folder.joinpath(NAME).stat().st_size >> 20, int(said.stdout.split()[1])))
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
    said = []
    for verb in ("inspect", "verify"):
        seconds = []
        for i in range(5):
            cache = place / f"cold-{verb}-{i}"
            code = _TIMED.format(words=[sys.executable, "-m", "logwright", verb, str(GOLDEN)])
            run = subprocess.run([sys.executable, "-c", code], env={**os.environ, "LOGWRIGHT_CACHE_DIR": str(cache)},
                                 check=True, capture_output=True, text=True)  # fmt: skip
            seconds.append(float(run.stdout))
        said.append(f"`{verb}` {statistics.median(seconds):.2f} s")
    return [f"Cold start on a small partition, nothing compiled: {', '.join(said)}."]


def _spark(place: Path) -> list[str]:
    """The Spark source beside one of the same rows that does nothing."""
    if shutil.which("java") is None:
        return ["Spark was not measured: Java 17 is not installed."]
    run = subprocess.run(
        [sys.executable, str(HERE / "null_source.py"), str(place / "spark")], capture_output=True, text=True
    )
    if run.returncode:
        return [
            f"Spark was not measured: {run.stderr.strip().splitlines()[-1] if run.stderr else 'it failed'}"
        ]
    found: dict[str, Any] = json.loads(run.stdout.strip().splitlines()[-1])
    return [
        f"Spark, one core: {found['logwright'] / 1e6:.2f} M rows/s, a source of the same rows that does nothing"
        f" {found['null'] / 1e6:.2f} M rows/s: {found['null'] / found['logwright']:.2f} times."
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
