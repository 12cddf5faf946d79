"""The decompressing streams of a Java consumer: what each read returns, and the exception of the read that fails.

Sources: `GzipCompression`, `SnappyCompression`, `Lz4BlockInputStream` and `ZstdCompression` of Kafka's clients library 4.3; `GZIPInputStream`
and `InflaterInputStream` of Java 17; `SnappyInputStream` of snappy-java 1.1.10; `ZstdInputStreamNoFinalizer` of zstd-jni 1.5.6.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import cramjam
import numpy as np

from logwright.codec.kernels.compress import CompressionError, decompress, xxhash32
from logwright.codec.kernels.intrinsics import read_uvarint

KAFKA_EXCEPTION = "org.apache.kafka.common.KafkaException"
CORRUPT_RECORD = "org.apache.kafka.common.errors.CorruptRecordException"
INVALID_RECORD = "org.apache.kafka.common.InvalidRecordException"
ILLEGAL = "java.lang.IllegalArgumentException"
UNDERFLOW = "java.nio.BufferUnderflowException"
_RUNTIME = "java.lang.RuntimeException"
IO, _EOF, _ZIP = "java.io.IOException", "java.io.EOFException", "java.util.zip.ZipException"
_SNAPPY, _LZ4 = "org.xerial.snappy.SnappyIOException", "net.jpountz.lz4.LZ4Exception"
_ZSTD = "com.github.luben.zstd.ZstdIOException"
_INPUT_OUTPUT = (IO, _EOF, _ZIP, _SNAPPY, _ZSTD)


class Thrown(Exception):
    """A Java exception: its class, message and cause."""

    def __init__(self, java: str, message: str | None = None, cause: Thrown | None = None) -> None:
        super().__init__(java, message)
        self.java, self.message, self.cause = java, message, cause

    @property
    def expected(self) -> bool:
        """Whether the consumer treats it as a bad record: it returns the records before it, and raises the error at the next
        `poll`. Any other exception leaves `poll` at once, and the records that it has collected are lost."""
        return self.java in (KAFKA_EXCEPTION, INVALID_RECORD, CORRUPT_RECORD)

    @property
    def io(self) -> bool:
        return self.java in _INPUT_OUTPUT

    @property
    def name(self) -> str:
        return self.java.rpartition(".")[2]

    def __str__(self) -> str:
        """`InvalidRecordException: ... <- IllegalArgumentException: ...`, with the causes."""
        text = f"{self.name}: {self.message}"
        return text if self.cause is None else f"{text} <- {self.cause}"


# `read(size)` returns at most `size` bytes, fewer if the decompressor does, none at the end. It raises `Thrown`.


class Stream(Protocol):
    def __init__(self, data: bytes, limit: int) -> None: ...

    def read(self, size: int) -> bytes: ...


_INPUT = 8192
"""Input size of the inflater in `GzipCompression`."""


class _Gzip:
    """`GZIPInputStream`."""

    def __init__(self, data: bytes, limit: int) -> None:
        self.data, self.ended = data, False
        self._start(self._header(0))

    def _start(self, at: int) -> None:
        self.at = at
        self.inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        self.input, self.crc, self.made = b"", 0, 0

    def _header(self, at: int) -> int:
        """Return where the header of the member at `at` ends."""
        start = at
        if self._number(at, 2) != 0x8B1F:
            raise Thrown(_ZIP, "Not in GZIP format")
        if self._number(at + 2, 1) != 8:
            raise Thrown(_ZIP, "Unsupported compression method")
        flags = self._number(at + 3, 1)
        self._number(at + 4, 6)
        at += 10
        if flags & 4:
            size = self._number(at, 2)
            self._number(at + 2, size)
            at += 2 + size
        for flag in (8, 16):
            if flags & flag:
                while self._number(at, 1):
                    at += 1
                at += 1
        if flags & 2:
            if self._number(at, 2) != zlib.crc32(self.data[start:at]) & 0xFFFF:
                raise Thrown(_ZIP, "Corrupt GZIP header")
            at += 2
        return at

    def _number(self, at: int, size: int) -> int:
        if at + size > len(self.data):
            raise Thrown(_EOF)
        return int.from_bytes(self.data[at : at + size], "little")

    def read(self, size: int) -> bytes:
        while not self.ended:
            part = self._inflate(size)
            if part:
                self.crc, self.made = zlib.crc32(part, self.crc), self.made + len(part)
                return part
            if self.inflater.eof:
                self._trailer()
                continue
            if self.at >= len(self.data):
                raise Thrown(_EOF, "Unexpected end of ZLIB input stream")
            self.input = self.data[self.at : self.at + _INPUT]
            self.at += len(self.input)
        return b""

    def _inflate(self, size: int) -> bytes:
        if self.inflater.eof:
            return b""
        try:
            part = self.inflater.decompress(self.input, size)
        except zlib.error as error:
            raise Thrown(_ZIP, str(error).rpartition(": ")[2]) from None
        self.input = self.inflater.unconsumed_tail
        return part

    def _trailer(self) -> None:
        at = self.at - len(self.inflater.unused_data)
        left = len(self.inflater.unused_data)
        if self._number(at, 4) != self.crc or self._number(at + 4, 4) != self.made & 0xFFFFFFFF:
            raise Thrown(_ZIP, "Corrupt GZIP trailer")
        try:
            # Another member follows, or bytes that Java treats as the end.
            if self.at < len(self.data) or left > 26:
                self._start(self._header(at + 8))
                return
        except Thrown:
            pass
        self.ended = True


class _Snappy:
    """`SnappyInputStream`. If a chunk is bad, the read loses the bytes of the chunk before."""

    def __init__(self, data: bytes, limit: int) -> None:
        self.data, self.limit = data, limit
        self.at, self.made, self.ended = _XERIAL_HEADER, memoryview(b""), False
        if not data:
            raise Thrown(_SNAPPY, "[EMPTY_INPUT] Cannot decompress empty stream")
        if len(data) < _XERIAL_HEADER or not data.startswith(_XERIAL_MAGIC):
            self.made, self.ended = self._block(data), True

    def read(self, size: int) -> bytes:
        parts = []
        while size > 0:
            if not self.made and not self._chunk():
                break
            part = self.made[:size]
            parts.append(part)
            self.made, size = self.made[len(part) :], size - len(part)
        return b"".join(parts)

    def _chunk(self) -> bool:
        while not self.ended and len(self.data) - self.at >= 4:
            head = self.data[self.at : self.at + _XERIAL_HEADER]
            if head[:4] == _XERIAL_MAGIC[:4]:
                if len(head) < _XERIAL_HEADER:
                    text = "[FAILED_TO_UNCOMPRESS] Insufficient header size in a concatenated block"
                    raise Thrown(_SNAPPY, text)
                if head[:8] != _XERIAL_MAGIC:
                    break
                version = int.from_bytes(head[8:12], "big", signed=True)
                if version < 1:
                    text = f"Compressed with an incompatible codec version {version}. At least version 1 is required"
                    raise Thrown(_SNAPPY, f"[INCOMPATIBLE_VERSION] {text}")
                self.at += _XERIAL_HEADER
                continue
            size = int.from_bytes(head[:4], "big", signed=True)
            self.at += 4
            if size < 0:
                text = f"[INVALID_CHUNK_SIZE] chunkSize is too big or negative : {size}"
                raise Thrown(_SNAPPY_ERROR, text)
            if size > _SNAPPY_MOST:
                text = (
                    f"Received chunkSize {size:,} is greater than max configured chunk size {_SNAPPY_MOST:,}"
                )
                raise Thrown(_SNAPPY_ERROR, f"[FAILED_TO_UNCOMPRESS] {text}")
            if size > len(self.data) - self.at:
                raise Thrown(IO, "failed to read chunk")
            self.made = self._block(self.data[self.at : self.at + size])
            self.at += size
            return True
        self.ended = True
        return False

    def _block(self, block: bytes) -> memoryview:
        try:
            return memoryview(decompress("snappy-raw", block, self.limit).tobytes())
        except CompressionError:
            _, after = read_uvarint(np.frombuffer(block, np.uint8), 0, len(block))
            raise Thrown(IO, "PARSING_ERROR(2)" if after < 0 else "FAILED_TO_UNCOMPRESS(5)") from None


_XERIAL_MAGIC, _XERIAL_HEADER = b"\x82SNAPPY\x00", 16
_SNAPPY_ERROR, _SNAPPY_MOST = "org.xerial.snappy.SnappyError", 512 << 20


class _Lz4:
    """`Lz4BlockInputStream`: block by block. The checksum of the content is not checked."""

    checked = True
    """Whether the checksum of the header is."""

    def __init__(self, data: bytes, limit: int) -> None:
        self.data, self.made, self.ended = data, memoryview(b""), False
        if len(data) < 6:
            raise Thrown(IO, _CUT)
        if data[:4] != b"\x04\x22\x4d\x18":
            raise Thrown(IO, "Stream unsupported (invalid magic bytes)")
        self.flags, descriptor = data[4], data[5]
        version, code = self.flags >> 6, descriptor >> 4 & 7
        for wrong, text in (
            (self.flags & 3, "Reserved bits must be 0"),
            (not self.flags & 0x20, "Dependent block stream is unsupported"),
            (version != 1, f"Version {version} is unsupported"),
            (descriptor & 15, "Reserved2 field must be 0"),
            (code < 4, "Block size value must be between 4 and 7"),
            (descriptor & 0x80, "Reserved3 field must be 0"),
        ):
            if wrong:
                raise Thrown(_RUNTIME, text)
        self.most = 1 << 8 + 2 * code
        self.at = 6
        if self.flags & 8:
            if len(data) < 14:
                raise Thrown(IO, _CUT)
            self.at = 14
        if self.at >= len(data):
            raise Thrown(UNDERFLOW)
        if self.checked and data[self.at] != _xxhash(data[4 : self.at]) >> 8 & 0xFF:
            raise Thrown(IO, "Stream frame descriptor corrupted")
        self.at += 1

    def read(self, size: int) -> bytes:
        while not self.made and not self.ended:
            self._block()
        part = bytes(self.made[:size])
        self.made = self.made[len(part) :]
        return part

    def _block(self) -> None:
        size = self._number(IO, _CUT)
        stored, size = size >> 31, size & 0x7FFFFFFF
        if size == 0:
            if self.flags & 4:
                self._number(UNDERFLOW, None)
            self.ended = True
            return
        if size > self.most:
            raise Thrown(IO, f"Block size {size} exceeded max: {self.most}")
        if size > len(self.data) - self.at:
            raise Thrown(IO, _CUT)
        block = self.data[self.at : self.at + size]
        if stored:
            content = block
        else:
            try:
                room: Any = np.empty(self.most, np.uint8)
                content = room[
                    : cramjam.lz4.decompress_block_into(block, room, output_len=self.most)
                ].tobytes()
            except cramjam.DecompressionError:
                text = "Error decoding the input buffer"
                raise Thrown(IO, f"{_LZ4}: {text}", Thrown(_LZ4, text)) from None
        self.at += size
        if self.flags & 16 and self._number(UNDERFLOW, None) != _xxhash(block):
            raise Thrown(IO, "Block checksum mismatch")
        self.made = memoryview(content)

    def _number(self, java: str, text: str | None) -> int:
        if len(self.data) - self.at < 4:
            raise Thrown(java, text)
        self.at += 4
        return int.from_bytes(self.data[self.at - 4 : self.at], "little")


class Lz4Magic0(_Lz4):
    """In a message of magic 0, whose header checksum is usually wrong."""

    checked = False


_CUT = "Stream ended prematurely"


def _xxhash(data: bytes) -> int:
    return xxhash32(np.frombuffer(data, np.uint8), 0, len(data))


_ZSTD_INPUT = (1 << 17) + 3
"""`ZSTD_DStreamInSize`, the input size of a read."""
_FEED = 1024


class _Zstd:
    """`ZstdInputStreamNoFinalizer`: frame after frame. A read ends at the end of a frame. The library decodes the next block as soon
    as it has returned all of the one before, so an error in it discards a read that ends there."""

    def __init__(self, data: bytes, limit: int) -> None:
        self.frames = _zstd_frames(data, limit)
        self.made, self.end = memoryview(b""), _Ending()

    def read(self, size: int) -> bytes:
        while not self.made:
            if self.end.error is not None:
                raise self.end.error
            content, self.end = next(self.frames, (b"", _Ending(last=True)))
            self.made = memoryview(content)
            if self.end.last and not content and self.end.error is None:
                return b""
        if self.end.error is not None and self.end.decoding and len(self.made) <= size:
            raise self.end.error
        part = bytes(self.made[:size])
        self.made = self.made[len(part) :]
        return part


@dataclass(frozen=True, slots=True)
class _Ending:
    """The end of a frame: without an error, or with one, in `decoding` or for lack of bytes. `last`: nothing follows."""

    error: Thrown | None = None
    decoding: bool = False
    last: bool = False


def _zstd_frames(data: bytes, limit: int) -> Iterator[tuple[bytes, _Ending]]:
    """Iterate over the frames: their content as far as it can be decoded, and how they end."""
    at = 0
    while at < len(data):
        content, end, text = _zstd_frame(data, at, limit)
        limit -= len(content)
        ending = _Ending()
        if text is not None:
            ending = _Ending(Thrown(_ZSTD, text), decoding=True)
        elif end < 0:
            # The end of the input is an error if some of it was read for this frame. Otherwise it is the end of the stream.
            fresh = at % _ZSTD_INPUT == 0 or (at // _ZSTD_INPUT + 1) * _ZSTD_INPUT < len(data)
            ending = _Ending(Thrown(_ZSTD, "Truncated source") if fresh else None, last=True)
        at = end if end >= 0 else len(data)
        yield content, ending


def _zstd_frame(data: bytes, at: int, limit: int) -> tuple[bytes, int, str | None]:
    """Return the content of the frame at `at`, where it ends (-1: not in these bytes), and the decoder's error."""
    import zstandard

    steps = [*range(at, len(data), _FEED), len(data)]
    while True:
        decoder, parts = zstandard.ZstdDecompressor().decompressobj(), []
        for i, (low, high) in enumerate(itertools.pairwise(steps)):
            try:
                parts.append(decoder.decompress(data[low:high]))
            except zstandard.ZstdError as error:
                if high - low == 1:
                    return b"".join(parts), -1, str(error).rpartition(": ")[2]
                # The decoder lost what it had decoded of the same piece: retry byte by byte.
                steps[i + 1 : i + 1] = range(low + 1, high)
                break
            if decoder.eof:
                return b"".join(parts), high - len(decoder.unused_data), None
            if sum(map(len, parts)) > limit:
                return b"".join(parts), -1, "more bytes than are allowed here"
        else:
            return b"".join(parts), -1, None


STREAMS: dict[int, tuple[type[Stream], int]] = {
    1: (_Gzip, 16384),
    2: (_Snappy, 2048),
    3: (_Lz4, 2048),
    4: (_Zstd, 16384),
}
"""By compression, with `decompressionOutputSize`: the size of a read, unless the rest of a record is larger."""
