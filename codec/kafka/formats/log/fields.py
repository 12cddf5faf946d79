"""Change fields of record batches and older messages by name. A compressed record section is decompressed, changed and compressed again."""

from __future__ import annotations

import numpy as np

from logwright.codec import address
from logwright.codec.describe import DescriptionError, Field, Repeated, Struct, Type
from logwright.codec.fault import UsageError
from logwright.codec.kafka.formats.log.layout import (
    COMPRESSION,
    CONTROL,
    CONTROL_RECORD_KEY,
    END_TXN_MARKER,
    HEAD_SIZE,
    MAGIC,
    MESSAGE,
    MESSAGE_SET,
    RECORD,
    RECORD_BATCH,
    codec_name,
    struct_at,
)
from logwright.codec.kernels.compress import CompressionError, compress, decompress

LIMIT = 256 << 20
"""Limit of the decompressed records of a batch in bytes: the default of option max.decompressed.bytes."""
_PLAIN = Struct("Records", Field("records", Repeated(RECORD)))
_SET = Struct("MessageSet", Field("records", MESSAGE_SET))
_MARKERS = {"key": CONTROL_RECORD_KEY, "value": END_TXN_MARKER}
"""The content of the key and the value of a record in a control batch."""


def names() -> list[str]:
    """Return the names that a path of `edit` may end in."""
    return address.names((RECORD_BATCH, MESSAGE, *_MARKERS.values()))


def edit(frame: bytes, path: address.Path, change: address.Change, *, reseal: bool) -> bytes:
    """Return a batch with one field changed (`codec.base.Codec.edit`). In a control batch a path may lead into a key or a value, as
    `("records", 0, "key", "type")`. The records of an older message are those in a wrapper, or the message itself."""
    if struct_at(frame, 0) is MESSAGE:
        return _edit_message(frame, path, change, reseal=reseal)
    attributes = _attributes(frame)
    if attributes & CONTROL and len(path) > 3 and path[2] in _MARKERS:
        path, change = path[:3], _inside(_MARKERS[str(path[2])], path[3:], change)
    if not attributes & COMPRESSION or len(path) < 2 or path[0] != "records":
        return address.edit(RECORD_BATCH, frame, path, change, reseal=reseal)

    def recompressed(stored: bytes, kind: Type) -> bytes:
        return _recompressed(stored, attributes & COMPRESSION, MAGIC, _PLAIN, path, change, reseal)

    return address.edit(RECORD_BATCH, frame, path[:1], recompressed, reseal=reseal)


def _edit_message(frame: bytes, path: address.Path, change: address.Change, *, reseal: bool) -> bytes:
    attributes, magic = (
        frame[MESSAGE.offset("attributes")] if len(frame) >= MESSAGE.head_size else 0,
        frame[MESSAGE.offset("magic")],
    )
    if len(path) < 2 or path[0] != "records":
        return address.edit(MESSAGE, frame, path, change, reseal=reseal)
    if not attributes & COMPRESSION:
        if path[1] not in (0, -1):
            raise UsageError(f"no item {path[1]}; the message is not compressed, so it is the only record")
        return address.edit(MESSAGE, frame, path[2:], change, reseal=reseal)

    def recompressed(stored: bytes, kind: Type) -> bytes:
        value, _ = kind.unpack(stored, 0, len(stored), {})
        if value is None:
            raise UsageError(f"{address.spell(path)} cannot be found: the wrapper has no value")
        return kind.pack(
            _recompressed(value, attributes & COMPRESSION, magic, _SET, path, change, reseal), {}
        )

    return address.edit(MESSAGE, frame, ("value",), recompressed, reseal=reseal)


def _recompressed(
    stored: bytes,
    codec: int,
    magic: int,
    plain: Struct,
    path: address.Path,
    change: address.Change,
    reseal: bool,
) -> bytes:
    """Return compressed records with one field changed."""
    try:
        name = codec_name(codec, magic)
        content = decompress(name, stored, LIMIT).tobytes()
    except DescriptionError as error:
        raise UsageError(f"{error}, so {address.spell(path)} cannot be found") from None
    except CompressionError as error:
        raise UsageError(
            f"{address.spell(path)} cannot be found: the records do not decompress ({error})"
        ) from None
    return compress(name, address.edit(plain, content, path, change, reseal=reseal))


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
