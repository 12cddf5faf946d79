"""Simulate Kafka's consumer on a batch whose checksum is right and whose records are not: the records that it returns before it
stops, and its exception.

A consumer reads a batch record by record, and decompresses it on the way, in pieces. A failed read from the decompressor discards
only what the same read has produced. The last record is returned only after the end of the stream has been checked. If the stream
has a wrong checksum at its end, the consumer returns all records but the last if a separate read checks it (gzip), and nothing of
the last 16 KiB otherwise (zstd).

Sources: `DefaultRecordBatch.StreamRecordIterator`, `DefaultRecord.readFrom` and `ChunkedBytesStream` of Kafka's clients library 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from logwright.codec.arrays import Bytes
from logwright.codec.kafka.formats.log.java_streams import (
    ILLEGAL,
    INVALID_RECORD,
    IO,
    KAFKA_EXCEPTION,
    STREAMS,
    UNDERFLOW,
    Thrown,
)
from logwright.codec.kafka.formats.log.layout import COMPRESSION, COMPRESSION_NAMES, HEAD, HEAD_SIZE
from logwright.codec.kernels.intrinsics import read_varint, read_varlong

_EARLY = "Incorrect declared batch size, premature EOF reached"


@dataclass(frozen=True, slots=True)
class Consumed:
    """The first `records` of a batch, their decompressed bytes, and the exception at the next one (None: these are all)."""

    records: int
    data: bytes
    error: Thrown | None


def consume_batch(batch: Bytes, limit: int) -> Consumed:
    """Read a whole batch as a consumer does."""
    head = batch[:HEAD_SIZE].view(HEAD)[0]
    kind = int(head["attributes"]) & COMPRESSION
    return consume(kind, batch[HEAD_SIZE:], int(head["records_count"]), limit)


def consume(compression: int, stored: Bytes, count: int, limit: int) -> Consumed:
    """Read the records of a batch with a declared count of `count`, as a consumer does. `compression` are the lowest three bits of
    the attributes. At most `limit` bytes are decompressed."""
    out: list[bytes] = []
    try:
        for record in _records(compression, stored.tobytes(), count, limit):
            out.append(record)
    except Thrown as error:
        return Consumed(len(out), b"".join(out), error)
    return Consumed(len(out), b"".join(out), None)


def _records(compression: int, stored: bytes, count: int, limit: int) -> Iterator[bytes]:
    """Iterate over the bytes of the records, with the length before each. Raises `Thrown`."""
    if compression >= len(COMPRESSION_NAMES):
        raise Thrown(ILLEGAL, f"Unknown compression type id: {compression}")
    source = _Plain(stored) if compression == 0 else _Compressed(compression, stored, limit)
    if count < 0:
        raise Thrown(INVALID_RECORD, f"Found invalid record count {count} in magic v2 batch")
    for i in range(count):
        record = source.record()
        if i + 1 == count and source.more():
            raise Thrown(INVALID_RECORD, "Incorrect declared batch size, records still remaining in file")
        yield record


class _Plain:
    """The records of an uncompressed batch. They are read in place, also beyond the length that they declare."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def record(self) -> bytes:
        start = self.at
        reader = _Reader(self.data, start)
        try:
            size = reader.varint()
        except Thrown as error:
            if error.java == UNDERFLOW:
                raise Thrown(INVALID_RECORD, _EARLY) from None
            raise
        self.at = reader.body(size)
        return self.data[start : self.at]

    def more(self) -> bool:
        return self.at < len(self.data)


class _Compressed:
    """The records of a compressed batch. Each is read completely from the stream, then parsed."""

    def __init__(self, compression: int, data: bytes, limit: int) -> None:
        kind, self.size = STREAMS[compression]
        try:
            stream = kind(data, limit)
        except Thrown as error:
            # The message of `KafkaException(cause)` is the cause.
            text = error.java if error.message is None else f"{error.java}: {error.message}"
            raise Thrown(KAFKA_EXCEPTION, text, error) from None
        self.stream, self.limit = stream, limit
        self.buffer, self.at = b"", 0

    def record(self) -> bytes:
        try:
            return self._record()
        except Thrown as error:
            if error.java == ILLEGAL:
                raise Thrown(INVALID_RECORD, _EARLY, error) from None
            if error.io:
                raise Thrown(KAFKA_EXCEPTION, "Failed to decompress record stream", error) from None
            raise

    def more(self) -> bool:
        try:
            return self._byte() >= 0
        except Thrown as error:
            if not error.io:
                raise
            text = "Error checking for remaining bytes after reading batch"
            raise Thrown(KAFKA_EXCEPTION, text, error) from None

    def _record(self) -> bytes:
        prefix = bytearray()
        while len(prefix) < 5 and (not prefix or prefix[-1] >= 0x80):
            # At the end of the stream the client takes -1 for a byte.
            prefix.append(self._byte() & 0xFF)
        size = _Reader(bytes(prefix), 0).varint()
        if size < 0:
            raise Thrown(ILLEGAL, f"capacity < 0: ({size} < 0)")
        body = self._read(size)
        if len(body) != size:
            raise Thrown(
                INVALID_RECORD,
                f"Invalid record size: expected {size} bytes in record payload, but the record payload reached EOF.",
            )
        _Reader(body, 0).body(size)
        return bytes(prefix) + body

    # `ChunkedBytesStream`

    def _fill(self) -> None:
        # The old content is discarded even if this fails.
        self.buffer, self.at = b"", 0
        self.buffer = self._more_of(self.size)

    def _byte(self) -> int:
        if self.at >= len(self.buffer):
            self._fill()
            if not self.buffer:
                return -1
        self.at += 1
        return self.buffer[self.at - 1]

    def _read(self, size: int) -> bytes:
        """Return `size` bytes; fewer at the end of the stream."""
        parts = []
        while size > 0:
            if self.at >= len(self.buffer):
                if size >= self.size:
                    part = self._more_of(size)
                    if not part:
                        break
                    parts.append(part)
                    size -= len(part)
                    continue
                self._fill()
                if not self.buffer:
                    break
            part = self.buffer[self.at : self.at + size]
            parts.append(part)
            self.at += len(part)
            size -= len(part)
        return b"".join(parts)

    def _more_of(self, size: int) -> bytes:
        part = self.stream.read(min(size, self.limit + 1))
        self.limit -= len(part)
        if self.limit < 0:
            raise Thrown(IO, "more bytes than are allowed here")
        return part


class _Reader:
    """`DefaultRecord.readFrom(ByteBuffer, ...)` over some bytes."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at
        self.buf = np.frombuffer(data, np.uint8)

    def varint(self) -> int:
        value, after = read_varint(self.buf, self.at, len(self.buf))
        if after < 0:
            self._refuse(5, "Varint is too long, the most significant bit in the 5th byte is set", 32)
        self.at = after
        return value

    def varlong(self) -> int:
        value, after = read_varlong(self.buf, self.at, len(self.buf))
        if after < 0:
            self._refuse(10, "Varlong is too long, most significant bit in the 10th byte is set", 64)
        self.at = after
        return value

    def _refuse(self, size: int, text: str, bits: int) -> None:
        part = self.data[self.at : self.at + size]
        if len(part) < size:
            raise Thrown(UNDERFLOW)
        value = 0
        for i, byte in enumerate(part):
            # The last byte is not masked, so its sign counts.
            value |= (byte & 0x7F if i + 1 < size else byte - 0x100) << 7 * i
        raise Thrown(ILLEGAL, f"{text}, converted value: {value & (1 << bits) - 1:x}")

    def content(self, size: int) -> None:
        left = len(self.data) - self.at
        if size > left:
            raise Thrown(ILLEGAL, f"newLimit > capacity: ({size} > {left})")
        self.at += max(size, 0)

    def body(self, size: int) -> int:
        """Parse a record of `size` bytes, and return where it ends. Raises `Thrown`."""
        left = len(self.data) - self.at
        if left < size:
            raise Thrown(
                INVALID_RECORD,
                f"Invalid record size: expected {size} bytes in record payload, but instead the buffer has only {left} "
                "remaining bytes.",
            )
        start = self.at
        try:
            self._fields()
        except Thrown as error:
            if error.java in (UNDERFLOW, ILLEGAL):
                raise Thrown(INVALID_RECORD, "Found invalid record structure", error) from None
            raise
        if self.at - start != size:
            raise Thrown(
                INVALID_RECORD,
                f"Invalid record size: expected to read {size} bytes in record payload, but instead read {self.at - start}",
            )
        return self.at

    def _fields(self) -> None:
        if self.at >= len(self.data):
            raise Thrown(UNDERFLOW)
        self.at += 1
        self.varlong()
        self.varint()
        self.content(self.varint())
        self.content(self.varint())
        count = self.varint()
        if count < 0:
            raise Thrown(INVALID_RECORD, f"Found invalid number of record headers {count}")
        if count > len(self.data) - self.at:
            text = f"Found invalid number of record headers. {count} is larger than the remaining size of the buffer"
            raise Thrown(INVALID_RECORD, text)
        for _ in range(count):
            size = self.varint()
            if size < 0:
                raise Thrown(INVALID_RECORD, f"Invalid negative header key size {size}")
            self.content(size)
            self.content(self.varint())
