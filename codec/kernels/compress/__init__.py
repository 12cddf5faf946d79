"""Compression front end: one call per payload, bounded output, one-line errors.

`decompress("zstd", data, limit=...)` and `compress("zstd", data)`, for these names:

- `none`: uncompressed.
- `gzip`: RFC 1952. All members are read; bytes after the last are ignored, as by java.util.zip.GZIPInputStream.
- `snappy`: the stream of snappy-java (xerial): a header of 16 bytes, then lengths and raw blocks. A single raw block is read too.
- `snappy-raw`: one raw block.
- `lz4`: one LZ4 frame, read as by org.apache.kafka.common.compress.Lz4BlockInputStream: independent blocks, checksums of the
  header and of blocks verified, size and checksum of the content skipped, bytes after the frame ignored.
- `lz4-magic0`: the same with the header checksum of Kafka before 0.10, which also covers the magic number. It is not
  verified, because files have both kinds.
- `lz4-raw`: one raw block.
- `zstd`: any number of frames (RFC 8878), skippable ones included.
- `zstd-sized`: the same; written as one frame with the content size in its header, as LevelDB requires.
- `zlib`: one zlib stream (RFC 1950). Bytes after it are ignored, as by inflate().
- `zlib-flushed`: the same, but the stream may lack its end, as Pulsar writes it. The caller has to check the size.
- `deflate`: one raw deflate stream (RFC 1951), without header and checksum. Bytes after it are ignored.

Stored lengths are not trusted: no buffer exceeds the limit (plus one block), or the size that the compressed bytes could fill.
Written payloads have the layout of the Java clients; the compressed bytes depend on the compressor's version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from logwright.codec.arrays import Bytes
from logwright.codec.kernels.compress import deflate, gzip, lz4, snappy, zstd
from logwright.codec.kernels.compress.lz4 import xxhash32
from logwright.codec.kernels.compress.payload import BombError, CompressionError, Data, Output, array

__all__ = [
    "BombError",
    "CompressionError",
    "Output",
    "append",
    "compress",
    "compress_pieces",
    "decompress",
    "xxhash32",
]

_Reader = Callable[[str, memoryview, int], Bytes]
_Writer = Callable[[memoryview, int], bytes]


def decompress(codec: str, data: Data, limit: int) -> Bytes:
    """Decompress to at most `limit` bytes. The array may be read-only.

    Raises CompressionError for a damaged payload, BombError for more than `limit` bytes.
    """
    read: _Reader = _one_of(_READERS, codec)
    return read(codec, memoryview(data).cast("B"), limit)  # type: ignore[arg-type]


def append(codec: str, data: memoryview, out: Output, limit: int) -> None:
    """Append the result of `decompress` to `out`, which stays as it is if that raises an error."""
    before = out.end
    appended = _APPENDERS.get(codec)
    if appended is None:
        out.put(decompress(codec, data, limit))
        return
    try:
        appended(codec, data, out, limit)
    except CompressionError:
        out.end = before
        raise


def compress(codec: str, data: Data, *, level: int | None = None) -> bytes:
    """Compress. Levels and their defaults are Kafka's (KIP-390): gzip -1 or 1 to 9 (default -1), lz4 1 to 17
    (default 9, which stands for the fast compressor), zstd -131072 to 22 (default 3); the others have none."""
    low, high, default = _LEVELS.get(codec, (0, 0, 0))
    if level is None:
        level = default
    elif codec not in _LEVELS or not low <= level <= high or (codec == "gzip" and level == 0):
        levels = f"levels from {low} to {high}" if codec in _LEVELS else "no levels"
        raise ValueError(f"{codec} has {levels}, not {level}")
    write: _Writer = _one_of(_WRITERS, codec)
    return write(memoryview(data).cast("B"), level)  # type: ignore[arg-type]


def compress_pieces(codec: str, pieces: Iterable[Any]) -> Iterator[bytes]:
    """Compress a stream of pieces with gzip or snappy; the result is that of `compress` for the joined pieces."""
    yield from _one_of(_PIECES, codec)(pieces)


def _one_of(table: dict[str, Any], codec: str) -> Any:
    try:
        return table[codec]
    except KeyError:
        raise ValueError(f"compression is one of {', '.join(_READERS)}, not {codec!r}") from None


def _read_none(codec: str, data: memoryview, limit: int) -> Bytes:
    if len(data) > limit:
        raise BombError.over(codec, limit)
    return array(data)


def _write_none(data: memoryview, level: int) -> bytes:
    return bytes(data)


_READERS: dict[str, _Reader] = {
    "none": _read_none,
    "gzip": gzip.read,
    "snappy": snappy.read,
    "snappy-raw": snappy.read_raw,
    "lz4": lz4.read,
    "lz4-magic0": lz4.read,
    "lz4-raw": lz4.read_raw,
    "zstd": zstd.read,
    "zstd-sized": zstd.read,
    "zlib": deflate.read_zlib,
    "zlib-flushed": deflate.read_flushed,
    "deflate": deflate.read,
}
_APPENDERS: dict[str, Callable[[str, memoryview, Output, int], None]] = {
    "snappy": snappy.append,
    "lz4": lz4.append,
    "lz4-magic0": lz4.append,
}
_WRITERS: dict[str, _Writer] = {
    "none": _write_none,
    "gzip": gzip.write,
    "snappy": snappy.write,
    "snappy-raw": snappy.write_raw,
    "lz4": lz4.write,
    "lz4-magic0": lz4.write_magic0,
    "lz4-raw": lz4.write_raw,
    "zstd": zstd.write,
    "zstd-sized": zstd.write_sized,
    "zlib": deflate.write_zlib,
    "zlib-flushed": deflate.write_flushed,
    "deflate": deflate.write,
}
_PIECES: dict[str, Callable[[Iterable[Any]], Iterator[bytes]]] = {
    "gzip": gzip.write_pieces,
    "snappy": snappy.write_pieces,
}
# Lowest, highest, default.
_LEVELS = {
    "gzip": (-1, 9, -1),
    "lz4": (1, 17, 9),
    "lz4-magic0": (1, 17, 9),
    "lz4-raw": (1, 17, 9),
    "zstd": (-131072, 22, 3),
    "zstd-sized": (-131072, 22, 1),
    "zlib": (-1, 9, -1),
    "zlib-flushed": (-1, 9, -1),
    "deflate": (-1, 9, -1),
}
