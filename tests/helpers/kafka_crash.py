"""Writes of a Kafka partition to a file system in memory, each with the rows before and after it."""

from __future__ import annotations

from collections.abc import Callable

from logwright.codec import registry
from logwright.roundtrip.memory_filesystem import MemoryFileSystem
from logwright.writers.staged import StagedWrite
from logwright.writers.write import write

TARGET = "/logs/orders-0"
LAYOUT = registry.get_layout("kafka.partition")
OPTIONS = {"segment.bytes": 200, "batch.size": 110, "topic.id": "AAAAAAAAAAAAAAAAAAAAAQ"}
OLD = [b"old-%d" % number for number in range(9)]
NEW = [b"new-%d" % number for number in range(12)]

Rows = list[tuple[int, bytes]]


def put(files: MemoryFileSystem, values: list[bytes], mode: str) -> None:
    rows = [{"key": b"k", "value": value, "timestamp": 1_700_000_000_000} for value in values]
    write(rows, TARGET, LAYOUT, mode=mode, files=files, **OPTIONS)


def put_many(files: MemoryFileSystem, values: list[bytes], mode: str) -> None:
    import pyarrow as pa

    staged = StagedWrite(TARGET, LAYOUT.name, mode, OPTIONS, files=files)
    messages = []
    for number in range(2):
        task = staged.task(number)
        half = values[number * 6 : number * 6 + 6]
        task.add(pa.record_batch({"value": half, "timestamp": pa.array([1_700_000_000_000] * 6, pa.int64())}))
        messages.append(task.commit())
    staged.commit(messages)


SCENARIOS: dict[str, tuple[list[bytes] | None, str, Callable[..., None], bool, list[bytes]]] = {
    "new": (None, "error", put, True, NEW),
    "append": (OLD, "append", put, True, OLD + NEW),
    "overwrite": (OLD, "overwrite", put, True, NEW),
    "overwrite without exchange": (OLD, "overwrite", put, False, NEW),
    "append by tasks": (OLD, "append", put_many, True, OLD + NEW),
}


def prepared(name: str) -> tuple[MemoryFileSystem, Callable[[MemoryFileSystem], None], Rows | None, Rows]:
    old, mode, act, can_exchange, new = SCENARIOS[name]
    files = MemoryFileSystem()
    files.make("/logs")
    if old is not None:
        put(files, old, "error")
    files = files.fork()
    files.can_exchange = can_exchange
    return (
        files,
        lambda on: act(on, NEW, mode),
        None if old is None else list(enumerate(old)),
        list(enumerate(new)),
    )
