"""Small LevelDB databases with damage in one place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from leveldb_startup import CraftedDatabase
from memory_directory import MemoryDirectory

from logwright.codec.leveldb.formats.manifest.layout import EditField, form
from logwright.codec.leveldb.formats.records.codec import Payloads
from logwright.codec.leveldb.formats.records.log_reader import Delivered, read_records
from logwright.codec.leveldb.formats.table.index import survey
from logwright.codec.leveldb.formats.table.write import TableSettings
from logwright.codec.leveldb.startup.version_set import logged
from logwright.codec.leveldb.store.version import Version, read_descriptor

Rows = list[tuple[bytes, int, bytes | None]]
PLAIN = TableSettings(compression="none", block_size=128)
BLOOM = TableSettings(compression="none", block_size=128, bloom_bits_per_key=12)
SNAPPY = TableSettings(compression="snappy", block_size=256)


def rows(first: int, stop: int, value: bytes = b"value", sequence: int = 1) -> Rows:
    return [(b"key%03d" % i, sequence + i, value) for i in range(first, stop)]


def blocks(data: bytes) -> list[tuple[int, int, int]]:
    """Return offset, size and kind of the blocks of a table."""
    blocks = survey(
        lambda offset, length: np.frombuffer(data[offset : offset + length], np.uint8), len(data), 1 << 28
    )
    return list(zip(blocks.offset.tolist(), blocks.size.tolist(), blocks.kind.tolist(), strict=True))


def flipped(database: CraftedDatabase, name: str, *places: int) -> MemoryDirectory:
    def change(data: bytearray) -> None:
        for place in places:
            data[place] ^= 0x10

    return database.changed(name, change)


def version(directory: MemoryDirectory) -> Version:
    descriptor = read_descriptor(directory)
    assert descriptor.error is None
    return descriptor.version


def levels(directory: MemoryDirectory) -> dict[int, int]:
    return {number: level for number, (level, _) in version(directory).files.items()}


def warnings_of(repair_plan: object) -> str:
    return " ".join(repair_plan.summary().warnings)  # type: ignore[attr-defined]


def without_metadata(database: CraftedDatabase) -> MemoryDirectory:
    return MemoryDirectory(
        {name: data for name, data in database.files.items() if not name.startswith(("MANIFEST", "CURRENT"))}
    )


def with_manifest(
    database: CraftedDatabase, *edits: Sequence[EditField], name: str | None = None, cut: int = 0
) -> MemoryDirectory:
    """Append records to the manifest, or remove its last `cut` bytes."""
    manifest = name or next(file for file in database.files if file.startswith("MANIFEST"))

    old = database.files[next(file for file in database.files if file.startswith("MANIFEST"))]
    payloads = []
    for delivered in read_records(lambda at, size: np.frombuffer(old[at : at + size], np.uint8), len(old)):
        assert isinstance(delivered, Delivered)
        payload = Payloads.of(delivered.window, delivered.frames)
        payloads += [
            payload.data[a:b].tobytes()
            for a, b in zip(payload.start.tolist(), payload.end.tolist(), strict=True)
        ]
    data = logged([*payloads, *(form(list(edit)) for edit in edits)])
    return MemoryDirectory({**database.files, manifest: data[: len(data) - cut]})


def flip(data: bytes, *places: int) -> bytes:
    out = bytearray(data)
    for place in places:
        out[place] ^= 0x10
    return bytes(out)
