"""Changing fields by name: of the physical records of a logical one and of what these hold together, and of blocks of a table, also
compressed ones, which are decompressed, changed and compressed again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from logwright.codec import address
from logwright.codec.describe import Bytes, Field, Repeated, Struct
from logwright.codec.fault import UsageError
from logwright.codec.kernels.compress import CompressionError, compress
from logwright.codec.leveldb.formats.records.layout import HEADER, RECORD
from logwright.codec.leveldb.formats.table.layout import (
    ENTRY,
    NONE,
    RESTART,
    RESTART_SIZE,
    STREAMS,
    TRAILER,
    TRAILER_SIZE,
    compression_of,
    expand,
    sealed,
)

LIMIT = 256 << 20
"""So many bytes may a block take decompressed: the default of option max.decompressed.bytes."""

# Logs and manifests

LOGICAL_RECORD = Struct(
    "LogicalRecord",
    Field("records", Repeated(RECORD), "FULL; or FIRST, any number of MIDDLE, and LAST"),
    doc="A record as it is written: in several physical ones where it does not fit the rest of a block.",
    source="log::Writer::AddRecord",
)
_LARGEST = 0xFFFF
"""What the two bytes of a length can say."""


def names_of_records(structures: Sequence[Struct]) -> list[str]:
    """The names that a path of `edit_record` may end in."""
    return address.names((LOGICAL_RECORD, *structures))


def edit_record(
    holds: Struct, frame: bytes, path: address.Path, change: address.Change, *, reseal: bool
) -> bytes:
    """A logical record with one field changed (`codec.base.Codec.edit`); `holds` is what its payload is.

    `("records", 1, "crc")` is a field of a physical record, of the first one without `records`; the fields of `holds` lead into
    the payload, whatever number of physical records that is in: what it grows or shrinks by is the last one's.
    """
    if not path:
        whole = change(frame, LOGICAL_RECORD)
        return _sealed(whole) if reseal else whole
    parts, padding = _physical(frame)
    if path[0] in {one.name for one in holds.fields}:
        payload = b"".join(part[HEADER:] for part in parts)
        new = address.edit(holds, payload, path, change, reseal=reseal)
        return b"".join(_put_back(parts, new, reseal=reseal)) + padding
    number = 0
    if path[0] == "records":
        if len(path) < 2 or not isinstance(path[1], int):
            raise UsageError("say which of the records: records[0]")
        number, path = path[1], path[2:]
        if not -len(parts) <= number < len(parts):
            raise UsageError(f"there is no record {number}, there are {len(parts)}")
    parts[number] = _edit_physical(parts[number], path, change, reseal=reseal)
    return b"".join(parts) + padding


def _physical(frame: bytes) -> tuple[list[bytes], bytes]:
    """The physical records of a logical one, and what fills the block behind it."""
    parts = []
    at = 0
    while len(frame) - at >= HEADER:
        end = at + HEADER + int.from_bytes(frame[at + 4 : at + 6], "little")
        if end > len(frame):
            raise UsageError(
                "the records can't be told apart: a length is damaged", advice="Name bytes instead, with at="
            )
        parts.append(frame[at:end])
        at = end
    if not parts:
        raise UsageError(f"{len(frame)} bytes are no record", advice="Name bytes instead, with at=")
    return parts, frame[at:]


def _edit_physical(part: bytes, path: address.Path, change: address.Change, *, reseal: bool) -> bytes:
    if list(path) != ["payload"]:
        return address.edit(RECORD, part, path, change, reseal=reseal)
    # The length is that of the payload only, which no structure says of itself.
    payload = change(part[HEADER:], RECORD["payload"].type)
    return _with_payload(part, payload, reseal=reseal)


def _with_payload(part: bytes, payload: bytes, *, reseal: bool) -> bytes:
    head = part[:HEADER]
    if not reseal:
        return head + payload
    if len(payload) > _LARGEST:
        raise UsageError(f"{len(payload)} bytes do not fit a record, which has {_LARGEST} at most")
    values, _ = RECORD.unpack(part)
    return RECORD.pack({"length": len(payload), "type": values["type"], "payload": payload})


def _put_back(parts: Sequence[bytes], payload: bytes, *, reseal: bool) -> list[bytes]:
    """The payload in the same physical records."""
    sizes = [len(part) - HEADER for part in parts]
    before = sum(sizes[:-1])
    if len(payload) < before:
        raise UsageError(
            f"{len(payload)} bytes are fewer than the records before the last one have, {before}"
        )
    sizes[-1] = len(payload) - before
    out, at = [], 0
    for part, size in zip(parts, sizes, strict=True):
        out.append(_with_payload(part, payload[at : at + size], reseal=reseal))
        at += size
    return out


def _sealed(frame: bytes) -> bytes:
    """With all checksums right."""
    parts, padding = _physical(frame)
    return b"".join(_with_payload(part, part[HEADER:], reseal=True) for part in parts) + padding


# Tables


WHOLE_ENTRY = Struct(
    "WholeBlockEntry",
    *ENTRY.fields,
    Field("key_delta", Bytes("non_shared"), "the rest of the key; sequence and type are its last eight bytes"),
    Field("value", Bytes("value_length"), "the value; of an index the handle of a block"),
    doc="An entry of a block.",
    source="BlockBuilder::Add",
)  # fmt: skip
DATA_BLOCK = Struct(
    "BlockContents",
    Field("entries", Repeated(WHOLE_ENTRY), "up to the first restart point"),
    Field("restarts", Repeated(RESTART), "where entries start that share nothing"),
    Field("num_restarts", RESTART["offset"].type, "how many there are"),
    doc="A block as it is before compression.",
    source="BlockBuilder::Finish",
)
STORED_BLOCK = Struct(
    "StoredBlock",
    Field("contents", Bytes("rest"), "the block as it is stored"),
    *TRAILER.fields,
    doc="A block with its trailer.",
    source="TableBuilder::WriteRawBlock",
)
_LENGTHS = {"key_delta": "non_shared", "value": "value_length"}
_ENTRIES = Struct("Entries", Field("entries", Repeated(WHOLE_ENTRY)))
_RESTARTS = Struct("Restarts", Field("restarts", Repeated(RESTART)))


def names_of_blocks() -> list[str]:
    """The names that a path of `edit_block` may end in."""
    return address.names((STORED_BLOCK, DATA_BLOCK))


def edit_block(frame: bytes, path: address.Path, change: address.Change, *, reseal: bool) -> bytes:
    """A block of a table with one field changed (`codec.base.Codec.edit`): `contents`, `type` and `crc` are as it is stored;
    `("entries", 3, "value")`, `("restarts", 0, "offset")` and `num_restarts` lead into it."""
    if not path:
        whole = change(frame, STORED_BLOCK)
        return _sealed_block(whole) if reseal else whole
    if len(frame) < TRAILER_SIZE:
        raise UsageError(f"{len(frame)} bytes are no block", advice="Name bytes instead, with at=")
    contents, trailer = frame[:-TRAILER_SIZE], frame[-TRAILER_SIZE:]
    if path[0] == "contents" and len(path) == 1:
        contents = change(contents, Bytes("rest"))
    elif path[0] in {one.name for one in TRAILER.fields}:
        if path[0] == "crc" and reseal:
            raise UsageError("crc is a checksum, which reseal would restore", advice="Leave out reseal")
        trailer = address.edit(TRAILER, trailer, path, change, reseal=False)
    else:
        contents = _edit_contents(contents, trailer[0], path, change, reseal=reseal)
    whole = contents + trailer
    return _sealed_block(whole) if reseal else whole


def _sealed_block(frame: bytes) -> bytes:
    if len(frame) < TRAILER_SIZE:
        raise UsageError(f"{len(frame)} bytes are no block, and cannot be resealed")
    return sealed(frame[:-TRAILER_SIZE], frame[-TRAILER_SIZE])


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
    if kind == NONE:
        return new
    name = compression_of(np.frombuffer(contents, np.uint8), kind)
    assert name is not None
    return compress(STREAMS[name], np.frombuffer(new, np.uint8))


@dataclass
class _Contents:
    """A block uncompressed, in its parts."""

    entries: bytes
    restarts: bytes
    count: bytes

    @classmethod
    def of(cls, plain: bytes) -> _Contents:
        count = int.from_bytes(plain[-RESTART_SIZE:], "little")
        stop = len(plain) - RESTART_SIZE * (count + 1)
        if len(plain) < RESTART_SIZE or stop < 0:
            raise UsageError(
                f"the block can't be taken apart: {count} restart points are announced in {len(plain)} bytes",
                advice="Name bytes instead, with at=, or the field contents",
            )
        return cls(plain[:stop], plain[stop:-RESTART_SIZE], plain[-RESTART_SIZE:])

    def edit(self, path: address.Path, change: address.Change, *, reseal: bool) -> bytes:
        if path[0] == "num_restarts":
            self.count = change(self.count, DATA_BLOCK["num_restarts"].type)
        elif path[0] == "restarts":
            self.restarts = address.edit(_RESTARTS, self.restarts, path, change, reseal=False)
        else:
            self._edit_entry(path, change, reseal=reseal)
        return self.entries + self.restarts + self.count

    def _edit_entry(self, path: address.Path, change: address.Change, *, reseal: bool) -> None:
        found = address.find(_ENTRIES, self.entries, path)
        length = _LENGTHS.get(str(path[-1])) if len(path) == 3 else None
        kind = found.type if length is None else Bytes("rest")
        new = change(self.entries[found.start : found.stop], kind)
        pieces = [(found.start, found.stop, new)]
        if reseal and length is not None:
            said = address.find(_ENTRIES, self.entries, (*path[:-1], length))
            pieces.insert(0, (said.start, said.stop, said.type.pack(len(new), {})))
        if reseal:
            self._move(found.start, sum(len(put) - (stop - start) for start, stop, put in pieces))
        for start, stop, put in reversed(pieces):
            self.entries = self.entries[:start] + put + self.entries[stop:]

    def _move(self, place: int, by: int) -> None:
        """Restart points behind a place lie elsewhere then."""
        starts = np.frombuffer(self.restarts, "<u4").astype(np.int64)
        starts[starts > place] += by
        self.restarts = starts.astype("<u4").tobytes()
