"""Change fields of record batches by name. A compressed record section is decompressed, changed and compressed again."""

from __future__ import annotations

import numpy as np

from logwright.codec import address
from logwright.codec.describe import Field, Repeated, Struct, Type
from logwright.codec.fault import UsageError
from logwright.codec.kafka.formats.log.layout import (
    COMPRESSION,
    COMPRESSION_NAMES,
    CONTROL,
    CONTROL_RECORD_KEY,
    END_TXN_MARKER,
    HEAD_SIZE,
    RECORD,
    RECORD_BATCH,
)
from logwright.codec.kernels.compress import CompressionError, compress, decompress

LIMIT = 256 << 20
"""Limit of the decompressed records of a batch in bytes: the default of option max.decompressed.bytes."""
_PLAIN = Struct("Records", Field("records", Repeated(RECORD)))
_MARKERS = {"key": CONTROL_RECORD_KEY, "value": END_TXN_MARKER}
"""The content of the key and the value of a record in a control batch."""


def names() -> list[str]:
    """Return the names that a path of `edit` may end in."""
    return address.names((RECORD_BATCH, *_MARKERS.values()))


def edit(frame: bytes, path: address.Path, change: address.Change, *, reseal: bool) -> bytes:
    """Return a batch with one field changed (`codec.base.Codec.edit`). In a control batch a path may lead into a key or a value, as
    `("records", 0, "key", "type")`."""
    attributes = _attributes(frame)
    if attributes & CONTROL and len(path) > 3 and path[2] in _MARKERS:
        path, change = path[:3], _inside(_MARKERS[str(path[2])], path[3:], change)
    if not attributes & COMPRESSION or len(path) < 2 or path[0] != "records":
        return address.edit(RECORD_BATCH, frame, path, change, reseal=reseal)

    def recompressed(stored: bytes, kind: Type) -> bytes:
        codec = attributes & COMPRESSION
        if codec >= len(COMPRESSION_NAMES):
            raise UsageError(f"compression {codec} is unknown, so {address.spell(path)} cannot be found")
        name = COMPRESSION_NAMES[codec]
        try:
            plain = decompress(name, stored, LIMIT).tobytes()
        except CompressionError as error:
            raise UsageError(
                f"{address.spell(path)} cannot be found: the records do not decompress ({error})"
            ) from None
        return compress(name, address.edit(_PLAIN, plain, path, change, reseal=reseal))

    return address.edit(RECORD_BATCH, frame, path[:1], recompressed, reseal=reseal)


def _attributes(frame: bytes) -> int:
    """Return the attributes of a batch; 0 if its header is incomplete."""
    if len(frame) < HEAD_SIZE:
        return 0
    return int(np.frombuffer(frame, RECORD_BATCH.head_dtype, 1)[0]["attributes"])


def _inside(struct: Struct, path: address.Path, change: address.Change) -> address.Change:
    """Return the change of a field that contains a structure, of which one field changes."""

    def edited(stored: bytes, kind: Type) -> bytes:
        value, _ = kind.unpack(stored, 0, len(stored), {})
        if value is None:
            raise UsageError(f"the field is null, so it has no {address.spell(path)}")
        return kind.pack(address.edit(struct, value, path, change, reseal=False), {})

    return edited
