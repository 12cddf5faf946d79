"""BookKeeper: a bookie's entry log and journal read, and a bookie written, beside the bookie's own classes in a JVM, fetched by Maven.

Run by `benchmarks/run.py`; alone it prints its section of the table. Without Java or Maven the section says so. Times are of the processor,
on both sides and of all threads. The JVM is warm, and its garbage collector is single-threaded. Nothing waits for the disk.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from bench_zookeeper import Unsynced
from rounds import Size, Task, in_turn, jvm, print_section, python
from threads import alone

import logwright as lw
from logwright.codec import registry
from logwright.codec.kernels import kernel
from logwright.roundtrip.oracles import java
from logwright.writers.write import write

ENTRIES = 400_000
LEDGERS = 16
FEW = 3
"""Rounds of tasks that take seconds."""
LOG_SIZE = 1 << 26
"""The size of the logs that are written. The log that is read is one file."""
_JVM_SOURCES = Path(__file__).parent / "jvm"
_JVM = java.Project(_JVM_SOURCES / "bookkeeper" / "pom.xml", _JVM_SOURCES, _JVM_SOURCES / "bookkeeper")
VERSION = "4.18.0"
"""The release in `pom.xml`."""


def entries(count: int) -> pa.Table:
    """Return entries of interleaved ledgers, with payloads of 100 to 400 bytes."""
    rng = np.random.default_rng(11)
    numbers = np.arange(count)
    ends = np.concatenate(([0], np.cumsum(rng.integers(100, 400, count)))).astype(np.int32)
    data = rng.integers(32, 127, int(ends[-1]), dtype=np.uint8)
    payload = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)])
    return pa.table({"ledger_id": numbers % LEDGERS, "entry_id": numbers // LEDGERS, "payload": payload})


def section(place: Path, size: Size) -> list[str]:
    """Return the lines of the table."""
    if reason := _JVM.why_not():
        return [f"BookKeeper was not measured: {reason}."]
    registry.get_layout("bookkeeper.bookie")
    for _ in kernel.warmup():
        pass
    count = size.of(ENTRIES, 1000)
    few = min(FEW, size.rounds)
    table, home, scratch = entries(count), place / "bookie", place / "scratch"
    write(table, home, "bookkeeper.bookie", files=Unsynced(), journalWriteData=True)
    scratch.mkdir()
    log, journal = home / "ledger/current/0.log", home / "journal/current/1.txn"
    lines = [
        f"BookKeeper: a bookie of {count:,} entries of {LEDGERS} interleaved ledgers, {log.stat().st_size / 1e6:.0f} MB in one entry log and",
        f"{journal.stat().st_size / 1e6:.0f} MB in one journal. The bookie's own classes ({VERSION}) run in a warm JVM, in turn with",
        "ours; each ratio is the median of the ratios of all rounds. They check no digests; ours check or compute all. Times are of the",
        "processor and all threads; those of writing are on the wall clock too. Nothing waits for the disk.",
        "",
        "| task | logwright | beside it | ratio |",
        "|---|---|---|---|",
    ]
    out = scratch / "ours"

    def rows(path: Path, columns: Any = None) -> Task:
        return python(alone(lambda: sum(batch.num_rows for batch in lw.scan(path, columns=columns))))

    def bookie() -> None:
        shutil.rmtree(out, ignore_errors=True)
        write(table, out, "bookkeeper.bookie", files=Unsynced(), logSizeLimit=LOG_SIZE)

    command = [
        *(
            java.command("java"),
            "-Xmx2g",
            "-XX:+UseSerialGC",
            "-cp",
            _JVM.classpath(),
            "logwright.bench.bookkeeper.Bench",
        ),
        *(str(home / "ledger"), str(home / "journal"), "1", str(scratch), str(LOG_SIZE)),
    ]
    million = count / 1e6
    with jvm(command) as server:
        reading = {
            "scan": server.task("scan", units=count),
            "journal": server.task("journal", units=count),
            "log rows": rows(log),
            "log all": rows(log, "*"),
            "journal rows": rows(journal),
        }
        measured = in_turn(reading, size.rounds)
        for label, task, name, peer in (
            ("an entry log to Arrow, default columns", "log rows", "scanEntryLog", "scan"),
            ("an entry log to Arrow, all columns", "log all", "scanEntryLog", "scan"),
            ("a journal to Arrow, default columns", "journal rows", "scanJournal", "journal"),
        ):
            lines.append(measured.row(label, million, "M/s", task, name, peer))
        writing = {"write": server.task("write", units=count), "bookie": python(alone(bookie))}
        measured = in_turn(writing, few)
        label, name = "a bookie written, index and journal included", "EntryLogger.addEntry, logs alone"
        lines.append(measured.row(label, million, "M/s", "bookie", name, "write"))
        lines.append(measured.row(f"{label}, wall clock", million, "M/s", "bookie", name, "write", wall=True))
    return lines


if __name__ == "__main__":
    print_section("BookKeeper", section)
