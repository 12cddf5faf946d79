"""Compress and decompress the blocks of a table, and seal them with type and checksum.

Source: `TableBuilder::WriteBlock` and `ReadBlock` of LevelDB, and Mojang's fork for zlib.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.kernels.compress import CompressionError, compress, decompress
from logwright.codec.kernels.crc32c import crc32c
from logwright.codec.kernels.intrinsics import copy, read_uvarint
from logwright.codec.kernels.kernel import kernel
from logwright.codec.kernels.snappy_blocks import decompress as uncompress
from logwright.codec.leveldb.formats.table.layout import NONE, STREAMS, TYPES, ZSTD, masked
from logwright.codec.window import Bytes

# Storing


def stored(plain: Bytes | bytes, compression: str, level: int | None = None) -> tuple[int, Any]:
    """Return the type and the bytes to be stored, compressed if that saves more than an eighth (`TableBuilder::WriteBlock`)."""
    if compression != "none":
        level = level if compression == "zstd" else None
        small = compress(STREAMS[compression], np.frombuffer(plain, np.uint8), level=level)
        if len(small) < len(plain) - len(plain) // 8:
            return TYPES[compression], small
    return NONE, plain


def sealed(contents: Any, kind: int) -> bytes:
    """Return a stored block with its trailer."""
    data = bytes(contents) + bytes((kind,))
    crc = masked(crc32c(np.frombuffer(data, np.uint8), 0, len(data)))
    return data + crc.to_bytes(4, "little")


def expand_as(name: str, data: Bytes, limit: int) -> Bytes:
    """Decompress a block of a named compression. Raises CompressionError with the message of LevelDB or of Mojang's fork."""
    program = f"{name} " if name in ("snappy", "zstd") else ""
    if name == "snappy" and read_uvarint(data, 0, len(data))[1] < 0:
        raise CompressionError("corrupted snappy compressed block length")
    if name == "zstd":
        _check_zstd_size(data)
    try:
        return decompress(STREAMS[name].removesuffix("-sized"), data, limit)
    except CompressionError as error:
        raise type(error)(f"corrupted {program}compressed block contents ({error})") from None


def _check_zstd_size(data: Bytes) -> None:
    import zstandard

    try:
        size = zstandard.frame_content_size(data)  # type: ignore[arg-type]
    except zstandard.ZstdError as error:
        raise CompressionError(f"corrupted zstd compressed block length ({error})") from None
    if size <= 0:
        raise CompressionError("corrupted zstd compressed block length")


ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
HEAD_SIZE = len(ZSTD_MAGIC)
"""Bytes of a stored block that `compression_of` needs."""


ANOTHER_PROGRAM = "the checksum is right, so another program wrote it and only that one can read it"


class UnknownTypeError(CompressionError):
    """An unknown block type. Under a right checksum it is not damage: another program wrote it."""


def compression_of(contents: Bytes, kind: int) -> str | None:
    """Return the name of a block's compression, from its type byte and its first bytes, or None if it is unknown.

    The first two bytes of a zlib stream (RFC 1950) and of a zstd frame differ, so type 2 is unambiguous.
    """
    if kind != ZSTD:
        return _NAMES.get(kind)
    head = contents[:HEAD_SIZE].tobytes()
    if is_zlib(head):
        return "zlib"
    return "zstd" if head == ZSTD_MAGIC[: len(head)] else None


_NAMES = {kind: name for name, kind in TYPES.items() if kind != ZSTD}


def is_zlib(head: bytes) -> bool:
    """Return whether bytes start like a zlib stream: deflate, a window of at most 32 KiB, a right check value, no preset dictionary."""
    return (
        len(head) >= 2
        and head[0] & 0x8F == 0x08
        and (head[0] << 8 | head[1]) % 31 == 0
        and not head[1] & 0x20
    )


def expand(contents: Bytes, kind: int, limit: int) -> Bytes:
    """Return the uncompressed block, at most `limit` bytes. Raises CompressionError with the message of LevelDB or of Mojang's fork,
    UnknownTypeError for an unknown type."""
    if kind == NONE:
        return contents
    name = compression_of(contents, kind)
    if name is None:
        detail = ", and the bytes are neither zstd nor zlib" if kind == ZSTD else ""
        raise UnknownTypeError(f"bad block type ({kind}){detail}: {ANOTHER_PROGRAM}")
    return expand_as(name, contents, limit)


@kernel("const u1[], const i8[], const i8[], const u1[], u1[], const i8[], u1[]")
def expand_all(
    buf: Bytes, starts: Int64s, ends: Int64s, kinds: Bytes, out: Bytes, bounds: Int64s, good: Bytes
) -> None:
    """Decompress many blocks of type `NONE` or `SNAPPY`. Block `i` becomes `out[bounds[i] : bounds[i + 1]]`; `good[i]` is whether that
    succeeded."""
    for i in range(len(good)):
        good[i] = 1
        if kinds[i] == NONE:
            copy(out, bounds[i], buf, starts[i], ends[i] - starts[i])
        elif uncompress(buf, starts[i], ends[i], out, bounds[i], bounds[i + 1]) < 0:
            good[i] = 0
