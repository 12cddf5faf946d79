"""A damaged Kafka partition on a file system in memory, and its repair in place."""

from __future__ import annotations

from collections.abc import Sequence

from logwright.codec import registry
from logwright.codec.engine.repair import RepairPlan, Strategy
from logwright.codec.option import Options
from logwright.codec.store.listing import Plan
from logwright.codec.store.roots import Roots
from logwright.roundtrip.memory_filesystem import MemoryFileSystem
from logwright.writers.mend import Mender, Original
from logwright.writers.stage import FolderListing
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
    repairs = LAYOUT.capabilities.repair
    assert repairs is not None

    def make(copies: Sequence[Original], plans: Sequence[Plan]) -> RepairPlan:
        return repairs.repair(copies, plans, strategy, Options(repairs.options))

    def copies() -> list[FolderListing]:
        return [FolderListing(files, Roots(TARGET), "orders-0")]

    Mender(files, LAYOUT, copies, make, Options(LAYOUT.read_options)).in_place(TARGET, BACKUP)
