"""Decompress snapshots, as far as a damaged one allows.

gzip is one stream: everything after damage is lost. Snappy has independent chunks of 32 KiB: a damaged one leaves a gap of its size, so
that the nodes after it keep their positions. Source: `SnapStream` of ZooKeeper, `SnappyOutputStream` of snappy-java.
"""

from __future__ import annotations

import contextlib
import zlib
from dataclasses import dataclass

import numpy as np

from logwright.codec import plural
from logwright.codec.arrays import Bools, Int64s
from logwright.codec.fault import Kind
from logwright.codec.kernels import snappy_blocks as snappy
from logwright.codec.kernels.compress import BombError, CompressionError, decompress
from logwright.codec.kernels.intrinsics import load_i32be, read_uvarint
from logwright.codec.window import Bytes

SNAPPY_MAGIC = b"\x82SNAPPY\x00"
MAGICS = {"gzip": b"\x1f\x8b", "snappy": SNAPPY_MAGIC}
"""The bytes that a server checks before it tries a file."""
SNAPPY_HEADER_SIZE = len(SNAPPY_MAGIC) + 8
SNAPPY_CHUNK = 32768
_FILL = 0xFF
GZIP_HEADER_SIZE = 10
_PLAIN_GZIP = b"\x08\x00"
"""Deflate, and no optional header fields, as Java writes it."""
_PIECE = 256
"""Size of the pieces of input. The output of the piece that contains damage is lost."""


@dataclass(frozen=True)
class Expanded:
    """The content of a compressed file, and its damage."""

    data: Bytes
    error: str = ""
    kind: Kind = Kind.PAYLOAD
    lost: tuple[tuple[int, int], ...] = ()
    """Ranges of `data` that are filled because their content is lost: (from, to)."""

    def touched(self, starts: Int64s, ends: Int64s) -> Bools:
        """Return which of these ranges overlap the lost ones."""
        out = np.zeros(len(starts), np.bool_)
        for low, high in self.lost:
            out |= (starts < high) & (ends > low)
        return out


def expand(compression: str, data: Bytes, limit: int) -> Expanded:
    """Return the decompressed bytes, at most `limit`; of a damaged file those that can be decompressed."""
    nothing = np.zeros(0, np.uint8)
    magic = MAGICS[compression]
    if data[: len(magic)].tobytes() != magic:
        if magic.startswith(data.tobytes()):
            return Expanded(
                nothing,
                f"{plural.count(len(data), 'byte')}, fewer than the magic number of {compression}",
                Kind.TRUNCATED,
            )
        return Expanded(
            nothing, f"the file does not begin with the magic number of {compression}", Kind.MAGIC
        )
    try:
        return Expanded(decompress(compression, data, limit))
    except BombError as error:
        return Expanded(nothing, str(error), Kind.LENGTH)
    except CompressionError as error:
        if compression == "gzip":
            return Expanded(_rest_of_gzip(data, limit), str(error))
        left, lost = _rest_of_snappy(data, limit)
        return Expanded(left, str(error), lost=tuple(lost))


def after_content(compression: str, data: Bytes, content: Bytes) -> int:
    """Return the number of bytes after the end of an undamaged compressed file, which Java ignores. `content` is what it decompresses to."""
    if compression == "snappy":
        at = SNAPPY_HEADER_SIZE
        while at + 4 <= len(data):
            at += 4 + load_i32be(data, at)
        return len(data) - at
    # The last field of a member is the length of its content.
    if data[-4:].tobytes() == (len(content) & 0xFFFFFFFF).to_bytes(4, "little"):
        return 0
    raw, left = data.tobytes(), len(content)
    while left:
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        left -= len(member.decompress(raw))
        raw = member.unused_data
    return len(raw)


def _rest_of_gzip(data: Bytes, limit: int) -> Bytes:
    """Return the output of deflate before it fails, whatever the trailing checksum says."""
    raw = data.tobytes()
    if len(raw) < GZIP_HEADER_SIZE or raw[2:4] != _PLAIN_GZIP:
        return np.zeros(0, np.uint8)
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    parts: list[bytes] = []
    total = 0
    with contextlib.suppress(zlib.error):
        for at in range(GZIP_HEADER_SIZE, len(raw), _PIECE):
            parts.append(stream.decompress(raw[at : at + _PIECE], limit - total + 1))
            total += len(parts[-1])
            if total > limit or stream.eof:
                break
    return np.frombuffer(b"".join(parts), np.uint8)[:limit]


def _rest_of_snappy(data: Bytes, limit: int) -> tuple[Bytes, list[tuple[int, int]]]:
    """Return the chunks up to the first impossible length, with the bytes before the damage of a damaged chunk, and the lost ranges."""
    parts: list[Bytes] = []
    lost: list[tuple[int, int]] = []
    at, total = SNAPPY_HEADER_SIZE, 0
    while at + 4 <= len(data) and total + SNAPPY_CHUNK <= limit:
        length = load_i32be(data, at)
        if length < 0:
            break
        at += 4
        end = min(at + length, len(data))
        size, start = read_uvarint(data, at, end)
        # No length, path or time consists of ones only.
        out = np.full(size if start >= 0 and 0 < size <= SNAPPY_CHUNK else SNAPPY_CHUNK, _FILL, np.uint8)
        if snappy.decompress(data, at, end, out, 0, len(out)) < 0:
            written = np.flatnonzero(out != _FILL)
            lost.append((total + (int(written[-1]) + 1 if len(written) else 0), total + len(out)))
        parts.append(out)
        total += len(out)
        at = end
    return np.concatenate(parts) if parts else np.zeros(0, np.uint8), lost
