"""Change fields by name: in the physical records of a logical one, in the payload that they hold together, and in blocks of a table.

A compressed block is decompressed, changed and compressed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from logwright.codec import address, plural
from logwright.codec.describe import Bytes, Field, Repeated, Struct, Type
from logwright.codec.fault import UsageError
from logwright.codec.kernels.compress import CompressionError, compress
from logwright.codec.leveldb.formats.explain import DATA_BLOCK, STORED, WHOLE_ENTRY
from logwright.codec.leveldb.formats.records.layout import HEADER, RECORD
from logwright.codec.leveldb.formats.table import index
from logwright.codec.leveldb.formats.table import layout as block
from logwright.codec.leveldb.formats.table.compression import compression_of, expand

LIMIT = 256 << 20
"""Limit in bytes for a decompressed block: the default of option max.decompressed.bytes."""

# Logs and manifests

LOGICAL_RECORD = Struct(
    "LogicalRecord",
    Field("records", Repeated(RECORD), "FULL; or FIRST, any number of MIDDLE, and LAST"),
    doc="A logical record: several physical ones if it does not fit the rest of a block.",
    source="log::Writer::AddRecord",
)
_LARGEST = 0xFFFF
"""The largest length that two bytes hold."""


def edit_record(
    holds: Struct, frame: bytes, path: address.Path, change: address.Change, *, reseal: bool
) -> bytes:
    """Return a logical record with one field changed (`codec.base.Codec.edit`). `holds` describes its payload.

    `("records", 1, "crc")` is a field of a physical record; without `records`, of the first one. Fields of `holds` are in the payload,
    whatever number of physical records it is split into. If it grows or shrinks, the last one does.
    """
    if not path:
        changed = change(frame, LOGICAL_RECORD)
        return _sealed(changed) if reseal else changed
    parts, padding = _physical(frame)
    if path[0] in {field.name for field in holds.fields}:
        payload = b"".join(part[HEADER:] for part in parts)
        new = address.edit(holds, payload, path, change, reseal=reseal)
        return b"".join(_put_back(parts, new, reseal=reseal)) + padding
    number = 0
    if path[0] == "records":
        if len(path) < 2 or not isinstance(path[1], int):
            raise UsageError("choose one of the records: records[0]")
        number, path = path[1], path[2:]
        if not -len(parts) <= number < len(parts):
            raise UsageError(f"there is no record {number}; there are {len(parts)}")
    parts[number] = _edit_physical(parts[number], path, change, reseal=reseal)
    return b"".join(parts) + padding


def _physical(frame: bytes) -> tuple[list[bytes], bytes]:
    """Split a logical record into its physical ones, and the padding after it."""
    parts = []
    at = 0
    while len(frame) - at >= HEADER:
        end = at + HEADER + int.from_bytes(frame[at + 4 : at + 6], "little")
        if end > len(frame):
            raise UsageError(
                "the records cannot be separated: a length is damaged",
                advice="Name bytes instead, with at=",
            )
        parts.append(frame[at:end])
        at = end
    if not parts:
        raise UsageError(
            f"{plural.count(len(frame), 'byte')}, too few for a record", advice="Name bytes instead, with at="
        )
    return parts, frame[at:]


def _edit_physical(part: bytes, path: address.Path, change: address.Change, *, reseal: bool) -> bytes:
    if list(path) != ["payload"]:
        return address.edit(RECORD, part, path, change, reseal=reseal)
    # The length covers the payload only, which no structure expresses.
    payload = change(part[HEADER:], RECORD["payload"].type)
    return _with_payload(part, payload, reseal=reseal)


def _with_payload(part: bytes, payload: bytes, *, reseal: bool) -> bytes:
    head = part[:HEADER]
    if not reseal:
        return head + payload
    if len(payload) > _LARGEST:
        raise UsageError(f"{len(payload)} bytes do not fit a record, which has at most {_LARGEST}")
    values, _ = RECORD.unpack(part)
    return RECORD.pack({"length": len(payload), "type": values["type"], "payload": payload})


def _put_back(parts: Sequence[bytes], payload: bytes, *, reseal: bool) -> list[bytes]:
    """Distribute the payload over the same physical records."""
    sizes = [len(part) - HEADER for part in parts]
    before = sum(sizes[:-1])
    if len(payload) < before:
        raise UsageError(
            f"{len(payload)} bytes are fewer than the {before} bytes of the records before the last one"
        )
    sizes[-1] = len(payload) - before
    out, at = [], 0
    for part, size in zip(parts, sizes, strict=True):
        out.append(_with_payload(part, payload[at : at + size], reseal=reseal))
        at += size
    return out


def _sealed(frame: bytes) -> bytes:
    """Recompute all checksums."""
    parts, padding = _physical(frame)
    return b"".join(_with_payload(part, part[HEADER:], reseal=True) for part in parts) + padding


# Tables


STORED_BLOCK = STORED[index.DATA]
_LENGTHS = {"key_delta": "non_shared", "value": "value_length"}
_ENTRIES = Struct("Entries", Field("entries", Repeated(WHOLE_ENTRY)))
_RESTARTS = Struct("Restarts", Field("restarts", Repeated(block.RESTART)))


def edit_block(frame: bytes, path: address.Path, change: address.Change, *, reseal: bool) -> bytes:
    """Return a block of a table with one field changed (`codec.base.Codec.edit`).

    `contents`, `type` and `crc` are stored fields; `("entries", 3, "value")`, `("restarts", 0, "offset")` and `num_restarts` are within the
    contents.
    """
    if path and len(frame) < block.TRAILER_SIZE:
        raise UsageError(
            f"{plural.count(len(frame), 'byte')}, too few for a block", advice="Name bytes instead, with at="
        )
    if not path or path[0] in {field.name for field in STORED_BLOCK.fields}:
        return address.edit(STORED_BLOCK, frame, path, change, reseal=reseal)

    def within(contents: bytes, kind: Type) -> bytes:
        return _edit_contents(contents, frame[-block.TRAILER_SIZE], path, change, reseal=reseal)

    return address.edit(STORED_BLOCK, frame, ("contents",), within, reseal=reseal)


def _edit_contents(
    contents: bytes, kind: int, path: address.Path, change: address.Change, *, reseal: bool
) -> bytes:
    try:
        plain = expand(np.frombuffer(contents, np.uint8), kind, LIMIT).tobytes()
    except CompressionError as error:
        raise UsageError(
            f"{address.spell(path)} cannot be found: the block does not decompress ({error})"
        ) from None
    new = _Contents.of(plain).edit(path, change, reseal=reseal)
    if kind == block.NONE:
        return new
    name = compression_of(np.frombuffer(contents, np.uint8), kind)
    assert name is not None
    return compress(block.STREAMS[name], np.frombuffer(new, np.uint8))


@dataclass
class _Contents:
    """An uncompressed block, split into its parts."""

    entries: bytes
    restarts: bytes
    count: bytes

    @classmethod
    def of(cls, plain: bytes) -> _Contents:
        count = int.from_bytes(plain[-block.RESTART_SIZE :], "little")
        stop = len(plain) - block.RESTART_SIZE * (count + 1)
        if len(plain) < block.RESTART_SIZE or stop < 0:
            raise UsageError(
                f"the block cannot be parsed: it declares {count} restart points in {len(plain)} bytes",
                advice="Name bytes instead, with at=, or the field contents",
            )
        return cls(plain[:stop], plain[stop : -block.RESTART_SIZE], plain[-block.RESTART_SIZE :])

    def edit(self, path: address.Path, change: address.Change, *, reseal: bool) -> bytes:
        if path[0] == "num_restarts":
            self.count = change(self.count, DATA_BLOCK["num_restarts"].type)
        elif path[0] == "restarts":
            self.restarts = address.edit(_RESTARTS, self.restarts, path, change, reseal=False)
        else:
            self._edit_entry(path, change, reseal=reseal)
        return self.entries + self.restarts + self.count

    def _edit_entry(self, path: address.Path, change: address.Change, *, reseal: bool) -> None:
        place = address.find(_ENTRIES, self.entries, path)
        length = _LENGTHS.get(str(path[-1])) if len(path) == 3 else None
        kind = place.type if length is None else Bytes("rest")
        new = change(self.entries[place.start : place.stop], kind)
        pieces = [(place.start, place.stop, new)]
        if reseal and length is not None:
            length_field = address.find(_ENTRIES, self.entries, (*path[:-1], length))
            pieces.insert(0, (length_field.start, length_field.stop, length_field.type.pack(len(new), {})))
        if reseal:
            self._move(place.start, sum(len(put) - (stop - start) for start, stop, put in pieces))
        for start, stop, put in reversed(pieces):
            self.entries = self.entries[:start] + put + self.entries[stop:]

    def _move(self, place: int, by: int) -> None:
        """Shift the restart points after `place`."""
        starts = np.frombuffer(self.restarts, "<u4").astype(np.int64)
        starts[starts > place] += by
        self.restarts = starts.astype("<u4").tobytes()
