"""The rows of LevelDB's frames, from their described values. See `logwright.roundtrip.reference`."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from logwright.codec.describe import U8, U32LE, DescriptionError, Field, Scope, Struct, Type
from logwright.codec.kernels.compress import decompress
from logwright.codec.kernels.crc32c import crc32c
from logwright.codec.leveldb.formats.log.layout import WRITE_BATCH
from logwright.codec.leveldb.formats.manifest.layout import LEVELS, TAGS, VERSION_EDIT
from logwright.codec.leveldb.formats.records.layout import BLOCK, FIRST, FULL, HEADER, LAST
from logwright.codec.leveldb.formats.records.layout import RECORD as PHYSICAL
from logwright.codec.leveldb.formats.table.index import FOOTER_SIZE
from logwright.codec.leveldb.formats.table.layout import BLOCK_HANDLE, ENTRY, TRAILER_SIZE, masked
from logwright.codec.leveldb.keys import DELETION, VALUE
from logwright.roundtrip.reference import LIMIT, Described, Untold


class _Records(Type):
    """The physical records of a logical one, and the padding of the block. The first byte of the buffer is that of the file. Old writers
    may write an empty FIRST before another start; it is ignored."""

    def unpack(self, buf: Any, at: int, end: int, scope: Scope) -> tuple[bytes, int]:
        payload, done = b"", False
        while at < end:
            left = BLOCK - at % BLOCK
            if left < HEADER:
                at = min(at + left, end)
                continue
            if done:
                raise DescriptionError("data follows the last physical record", at)
            record, stop = PHYSICAL.unpack(buf, at, end)
            wrong = PHYSICAL.check(buf, at, stop)
            if wrong or stop - at > left:
                raise DescriptionError("a wrong checksum, or a record beyond the end of its block", at)
            payload = record["payload"] if record["type"] in (FULL, FIRST) else payload + record["payload"]
            done, at = record["type"] in (FULL, LAST), stop
        if not done:
            raise DescriptionError("the last physical record is missing", at)
        return payload, at

    def label(self) -> str:
        return "physical records"


LOGICAL_RECORD = Struct("LogicalRecord", Field("payload", _Records(), "of its physical records"))


def log(records: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the operations of records, each of which holds a write batch."""
    for record in records:
        batch, _ = WRITE_BATCH.unpack(record["payload"])
        if batch["count"] != len(batch["operations"]):
            raise ValueError("WriteBatch has wrong count")
        for i, operation in enumerate(batch["operations"]):
            if operation["type"] not in (DELETION, VALUE):
                raise ValueError("unknown WriteBatch tag")
            yield {
                "key": operation["key"],
                "value": operation["value"] if operation["type"] == VALUE else None,
                "sequence": batch["sequence"] + i,
                "type": ("deletion", "value")[operation["type"]],
            }


def manifest(records: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the fields of records, each of which holds a version edit."""
    names = "level", "number", "size", "smallest", "largest"
    for record in records:
        edit, _ = VERSION_EDIT.unpack(record["payload"])
        for field in edit["fields"]:
            body = field["body"]
            name = body.get("text")
            if body.get("level", 0) >= LEVELS or b"" in (body.get("smallest"), body.get("largest")):
                raise ValueError("no level, or no internal key")
            yield {
                "field": TAGS[field["tag"]],
                **{name: body.get(name) for name in names},
                "comparator": None if name is None else name.decode("utf-8", "replace"),
            }


class _Entries(Type):
    """The entries of a data block, with full keys; none for any other block. Uses the bytes of the whole file, whose footer leads to the
    index that names the data blocks."""

    def unpack(self, buf: Any, at: int, end: int, scope: Scope) -> tuple[list[tuple[bytes, bytes]], int]:
        stop = end - TRAILER_SIZE
        stored = masked(crc32c(np.frombuffer(bytes(buf[at : end - 4]), np.uint8), 0, end - 4 - at))
        if stored != int.from_bytes(buf[end - 4 : end], "little"):
            raise DescriptionError("the checksum of the block is wrong", at)
        try:
            data = _data_blocks(bytes(buf))
        except (ValueError, IndexError) as error:
            raise Untold(f"the index does not identify the data blocks: {error}") from None
        return (_block_entries(bytes(buf[at : stop + 1])) if at in data else []), stop

    def label(self) -> str:
        return "entries"


TABLE_BLOCK = Struct(
    "Block", Field("entries", _Entries(), "keys and values"), Field("type", U8), Field("crc", U32LE)
)


@functools.lru_cache(maxsize=4)
def _data_blocks(file: bytes) -> frozenset[int]:
    """Return the positions of the data blocks by the index."""
    footer = file[-FOOTER_SIZE:]
    _, at = BLOCK_HANDLE.unpack(footer)
    index, _ = BLOCK_HANDLE.unpack(footer, at)
    block = file[index["offset"] : index["offset"] + index["size"] + 1]
    return frozenset(BLOCK_HANDLE.unpack(value)[0]["offset"] for _, value in _block_entries(block))


def _block_entries(stored: bytes) -> list[tuple[bytes, bytes]]:
    """Return keys and values of a stored block with its type."""
    plain = stored[:-1]
    if stored[-1]:
        name = {1: "snappy-raw", 2: "zstd", 4: "deflate"}.get(stored[-1], "")
        if stored[-1] == 2 and plain[:1] != b"\x28":
            name = "zlib"
        if not name:
            raise DescriptionError(f"compression {stored[-1]} is unknown", len(stored) - 1)
        plain = decompress(name, np.frombuffer(plain, np.uint8), LIMIT).tobytes()
    points = int.from_bytes(plain[-4:], "little")
    stop = len(plain) - 4 * (points + 1)
    at, key, entries = 0, b"", []
    while at < stop:
        head, at = ENTRY.unpack(plain, at, stop)
        rest, size = at + head["non_shared"], head["value_length"]
        if head["shared"] > len(key) or rest + size > stop:
            raise DescriptionError("bad entry in block", at)
        key = key[: head["shared"]] + plain[at:rest]
        at = rest + size
        entries.append((key, plain[rest:at]))
    return entries


def table(blocks: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the entries of data blocks."""
    for block in blocks:
        for key, value in block["entries"]:
            tag = int.from_bytes(key[-8:], "little")
            if len(key) < 8 or tag & 0xFF not in (DELETION, VALUE):
                raise ValueError("corrupted internal key")
            yield {
                "key": key[:-8],
                "value": value if tag & 0xFF == VALUE else None,
                "sequence": tag >> 8,
                "type": ("deletion", "value")[tag & 0xFF],
            }


ROWS: Mapping[str, Described] = {"leveldb.log": log, "leveldb.manifest": manifest, "leveldb.table": table}
FRAMES: Mapping[str, Struct] = {
    "leveldb.log": LOGICAL_RECORD,
    "leveldb.manifest": LOGICAL_RECORD,
    "leveldb.table": TABLE_BLOCK,
}
