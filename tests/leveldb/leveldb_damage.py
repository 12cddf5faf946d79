"""Small LevelDB databases that are damaged in one place, for the tests of their repair."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from leveldb_startup import CraftedDatabase
from memory_directory import MemoryDirectory

from logwright.codec.leveldb.formats.manifest.layout import EditField, form
from logwright.codec.leveldb.formats.records.codec import Payloads
from logwright.codec.leveldb.formats.records.replay import Delivered, replay
from logwright.codec.leveldb.formats.table.index import survey
from logwright.codec.leveldb.formats.table.write import TableSettings
from logwright.codec.leveldb.startup.version_set import logged
from logwright.codec.leveldb.store.descriptor import read_descriptor
from logwright.codec.leveldb.store.version import Version

Rows = list[tuple[bytes, int, bytes | None]]
PLAIN = TableSettings(compression="none", block_size=128)
BLOOM = TableSettings(compression="none", block_size=128, bloom_bits_per_key=12)
SNAPPY = TableSettings(compression="snappy", block_size=256)


def rows(first: int, stop: int, value: bytes = b"value", sequence: int = 1) -> Rows:
    return [(b"key%03d" % i, sequence + i, value) for i in range(first, stop)]


def blocks(data: bytes) -> list[tuple[int, int, int]]:
    """Offset, size and kind of the blocks of a table."""
    found = survey(
        lambda offset, length: np.frombuffer(data[offset : offset + length], np.uint8), len(data), 1 << 28
    )
    return list(zip(found.offset.tolist(), found.size.tolist(), found.kind.tolist(), strict=True))


def flipped(made: CraftedDatabase, name: str, *places: int) -> MemoryDirectory:
    def change(data: bytearray) -> None:
        for place in places:
            data[place] ^= 0x10

    return made.changed(name, change)


def version(directory: MemoryDirectory) -> Version:
    found = read_descriptor(directory)
    assert found.error is None
    return found.version


def levels(directory: MemoryDirectory) -> dict[int, int]:
    return {number: level for number, (level, _) in version(directory).files.items()}


def warnings_of(mending: object) -> str:
    return " ".join(mending.summary().warnings)  # type: ignore[attr-defined]


def without_metadata(made: CraftedDatabase) -> MemoryDirectory:
    return MemoryDirectory(
        {name: data for name, data in made.files.items() if not name.startswith(("MANIFEST", "CURRENT"))}
    )


def with_manifest(
    made: CraftedDatabase, *edits: Sequence[EditField], name: str | None = None, cut: int = 0
) -> MemoryDirectory:
    """With further records in its manifest; without its last `cut` bytes."""
    manifest = name or next(one for one in made.files if one.startswith("MANIFEST"))

    old = made.files[next(one for one in made.files if one.startswith("MANIFEST"))]
    payloads = []
    for found in replay(lambda at, size: np.frombuffer(old[at : at + size], np.uint8), len(old)):
        assert isinstance(found, Delivered)
        some = Payloads.of(found.window, found.frames)
        payloads += [
            some.data[a:b].tobytes() for a, b in zip(some.start.tolist(), some.end.tolist(), strict=True)
        ]
    data = logged([*payloads, *(form(list(edit)) for edit in edits)])
    return MemoryDirectory({**made.files, manifest: data[: len(data) - cut]})


def flip(data: bytes, *places: int) -> bytes:
    out = bytearray(data)
    for place in places:
        out[place] ^= 0x10
    return bytes(out)
