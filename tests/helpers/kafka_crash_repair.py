"""A damaged Kafka partition on a file system in memory, and its repair in place."""

from __future__ import annotations

from crash_repair import repair_in_place

from logwright.codec import registry
from logwright.codec.engine.repair import Strategy
from logwright.roundtrip.memory_filesystem import MemoryFileSystem
from logwright.writers.write import write

TARGET, BACKUP = "/logs/orders-0", "/elsewhere/backup"
LAYOUT = registry.get_layout("kafka.partition")
OPTIONS = {
    "segment.bytes": 400,
    "batch.size": 110,
    "index.interval.bytes": 100,
    "topic.id": "AAAAAAAAAAAAAAAAAAAAAQ",
}
GOOD = [b"value-%03d" % number for number in range(24)]


def damaged() -> MemoryFileSystem:
    """Write several segments and flip a bit in the middle of the second one."""
    files = MemoryFileSystem()
    files.make("/logs")
    files.make("/elsewhere")
    write(
        [{"value": value, "timestamp": 1_700_000_000_000} for value in GOOD],
        TARGET,
        LAYOUT,
        files=files,
        **OPTIONS,
    )
    files = files.fork()
    logs = sorted(name for name in files.tree(TARGET) if name.endswith(".log"))
    assert len(logs) > 2
    path = f"{TARGET}/{logs[1]}"
    data = bytearray(files.read(path))
    data[len(data) // 2] ^= 0x10
    files.put(path, bytes(data))
    return files


def repair(files: MemoryFileSystem, strategy: Strategy) -> None:
    repair_in_place(files, LAYOUT, TARGET, BACKUP, strategy)
