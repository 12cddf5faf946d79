"""BookKeeper: a bookie's entry log and journal read, and a bookie written, beside the bookie's own classes in a JVM, fetched by Maven.

Run by `benchmarks/run.py`; alone it prints its section of the table. Without Java or Maven the section says so. Times are of the processor,
on both sides and of all threads. The JVM is warm, and its garbage collector is single-threaded. The commands of the shell run as users
run them, each in a new JVM. Nothing waits for the disk.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from bench_zookeeper import Unsynced
from rounds import Size, Task, cold, in_turn, jvm, print_section, python
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
_SHELL_LOGGING = """\
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ABSOLUTE} %-5p %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""
"""The shell's output as the distribution configures it."""


def entries(count: int) -> pa.Table:
    """Return entries of interleaved ledgers, with payloads of 100 to 400 bytes."""
    rng = np.random.default_rng(11)
    numbers = np.arange(count)
    ends = np.concatenate(([0], np.cumsum(rng.integers(100, 400, count)))).astype(np.int32)
    data = rng.integers(32, 127, int(ends[-1]), dtype=np.uint8)
    payload = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)])
    return pa.table({"ledger_id": numbers % LEDGERS, "entry_id": numbers // LEDGERS, "payload": payload})


def shell(home: Path, scratch: Path, *command: str) -> Task:
    """A task that runs a command of the bookie's shell in a new JVM, with the bookie in `home`."""
    conf, logging = scratch / "bk_server.conf", scratch / "log4j2.properties"
    conf.write_text(
        f"journalDirectories={home}/journal\nledgerDirectories={home}/ledger\nallowLoopback=true\n"
    )
    logging.write_text(_SHELL_LOGGING)
    java_options = ("-Xmx2g", "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={logging}")
    tool = ("org.apache.bookkeeper.bookie.BookieShell", "-conf", str(conf))
    return cold([java.command("java"), *java_options, "-cp", _JVM.classpath(), *tool, *command])


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
        "ours; each ratio is the median of the ratios of all rounds. Its readers check no digests; ours check all. Rows are written from",
        "payloads: a client's DigestManager and the bookie's storage do what we do, unless the line says less. Times are of the",
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
        write(table, out, "bookkeeper.bookie", files=Unsynced(), logSizeLimit=LOG_SIZE, journalWriteData=True)

    def entry_log() -> None:
        single = scratch / "0.log"
        single.unlink(missing_ok=True)
        write(table, single, "bookkeeper.entrylog", files=Unsynced())

    def convert(path: Path) -> Task:
        return cold(
            [
                sys.executable,
                "-m",
                "logwright",
                "convert",
                str(path),
                str(scratch / "rows.arrow"),
                "--rows-only",
                "--if-exists",
                "overwrite",
            ]
        )

    command = [
        *(java.command("java"), "-Xmx2g", "-XX:+UseSerialGC", "-cp", _JVM.classpath()),
        "logwright.bench.bookkeeper.Bench",
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
        writing = {
            **{name: server.task(name, units=count) for name in ("bookie", "client", "write")},
            "our bookie": python(alone(bookie)),
            "our log": python(alone(entry_log)),
        }
        measured = in_turn(writing, few)
        for label, task, name, peer in (
            ("entry logs, index and journal written", "our bookie", "DigestManager, InterleavedLedgerStorage.addEntry, Journal", "bookie"),
            ("an entry log written", "our log", "DigestManager, EntryLogger.addEntry", "client"),
            ("an entry log written, digests computed by us alone", "our log", "EntryLogger.addEntry", "write"),
        ):  # fmt: skip
            lines.append(measured.row(label, million, "M/s", task, name, peer))
            lines.append(measured.row(f"{label}, wall clock", million, "M/s", task, name, peer, wall=True))
    for label, path, (action, number) in (
        ("an entry log", log, ("readlog", "0")),
        ("a journal", journal, ("readjournal", "1")),
    ):
        tasks = {"shell": shell(home, scratch, action, number), "rows": rows(path), "process": convert(path)}
        measured = in_turn(tasks, few)
        name = f"bookkeeper shell {action}, a new JVM"
        lines.append(
            measured.row(f"{label} to Arrow, default columns", million, "M/s", "rows", name, "shell")
        )
        lines.append(
            measured.row(
                f"`logwright convert` of {label}, a new process", million, "M/s", "process", name, "shell"
            )
        )
    return lines


if __name__ == "__main__":
    print_section("BookKeeper", section)
