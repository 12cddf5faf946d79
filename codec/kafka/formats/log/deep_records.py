"""Simulate how brokers and consumers open a message of magic 0 or 1: the offsets in it, and their exceptions.

All messages of a wrapper are decompressed before the first one is returned. A broker opens a wrapper to find its first offset; a consumer
also checks the checksum of each message. Sources: `AbstractLegacyRecordBatch.DeepRecordsIterator`, `DataLogInputStream`, `LegacyRecord` and
`CompletedFetch` of Kafka's clients library 4.3.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from logwright.codec.arrays import Bytes
from logwright.codec.kafka.formats.log.java_streams import (
    CORRUPT_RECORD,
    ILLEGAL,
    INVALID_RECORD,
    KAFKA_EXCEPTION,
    STREAMS,
    Lz4Magic0,
    Thrown,
)
from logwright.codec.kafka.formats.log.layout import (
    COMPRESSION,
    COMPRESSION_NAMES,
    LENGTH_END,
    MESSAGE,
    MESSAGE_TIME,
    MIN_MESSAGE,
)

_LEAST = MIN_MESSAGE - LENGTH_END
_MAGIC, _ATTRIBUTES, _CONTENT = MESSAGE.offset("magic"), MESSAGE.offset("attributes"), MESSAGE.head_size


def offsets(entry: Bytes, limit: int) -> Iterator[tuple[int, bytes]]:
    """Iterate over the messages of an entry: offset, and the message without its offset and size. At most `limit` bytes are decompressed.
    Raises `Thrown`."""
    data = entry.tobytes()
    offset, message, magic = _integer(data, 0, 8), data[LENGTH_END:], data[_MAGIC]
    codec = _codec(message)
    if not codec:
        yield offset, message
        return
    if COMPRESSION_NAMES[codec] == "zstd":
        raise Thrown(
            INVALID_RECORD, f"Invalid wrapper compressionType found in legacy deep record iterator {magic}"
        )
    value = _value(message, key=False)
    if value is None:
        raise Thrown(INVALID_RECORD, f"Found invalid compressed record set with null value (magic = {magic})")
    try:
        inner = list(_inner(codec, magic, value, limit))
    except Thrown as error:
        if not error.io:
            raise
        text = error.java if error.message is None else f"{error.java}: {error.message}"
        raise Thrown(KAFKA_EXCEPTION, text, error) from None
    if not inner:
        raise Thrown(INVALID_RECORD, "Found invalid compressed record set with no inner records")
    base = 0
    if magic and offset:
        last = inner[-1][0]
        if offset < last:
            text = f"Found invalid wrapper offset in compressed v1 message set, wrapper offset '{offset}' is less than the last inner"
            raise Thrown(INVALID_RECORD, f"{text} message offset '{last}' and it is not zero.")
        base = offset - last
    for number, part in inner:
        if _codec(part):
            raise Thrown(INVALID_RECORD, "Inner messages must not be compressed")
        yield base + number, part


def first_offset(entry: Bytes, limit: int) -> int:
    """Return what `baseOffset()` returns. Raises `Thrown`."""
    return next(offsets(entry, limit))[0]


def consume(entry: Bytes, limit: int, partition: str) -> Thrown | None:
    """Return the exception of a consumer that reads an entry; None if it reads all of it."""
    try:
        for offset, message in offsets(entry, limit):
            stored, computed = _integer(message, 0, 4) & 0xFFFFFFFF, zlib.crc32(message[4:])
            if stored != computed:
                text = f"Record is corrupt (stored crc = {stored}, computed crc = {computed})"
                raise Thrown(
                    KAFKA_EXCEPTION,
                    f"Record for partition {partition} at offset {offset} is invalid, cause: {text}",
                )
            _value(message, key=True)
    except Thrown as error:
        return error
    return None


def _codec(message: bytes) -> int:
    codec = message[_ATTRIBUTES - LENGTH_END] & COMPRESSION
    if codec >= len(COMPRESSION_NAMES):
        raise Thrown(ILLEGAL, f"Unknown compression type id: {codec}")
    return codec


def _value(message: bytes, *, key: bool) -> bytes | None:
    """Return the value of a message. `key`: the key is read before."""
    at = _CONTENT - LENGTH_END + (MESSAGE_TIME if message[_MAGIC - LENGTH_END] else 0)
    content: bytes | None = None
    for sliced in (key, True):
        if len(message) - at < 4:
            raise Thrown("java.lang.IndexOutOfBoundsException")
        size, left = _integer(message, at, 4), len(message) - at - 4
        if sliced and size > left:
            raise Thrown(ILLEGAL, f"newLimit > capacity: ({size} > {left})")
        at += 4 + max(0, size)
        content = None if size < 0 else message[at - size : at]
    return content


def _inner(codec: int, magic: int, value: bytes, limit: int) -> Iterator[tuple[int, bytes]]:
    """Iterate over the complete messages of a set: the stored offset, and the rest."""
    kind, size = STREAMS[codec]
    if COMPRESSION_NAMES[codec] == "lz4" and magic < 1:
        kind = Lz4Magic0
    try:
        stream = kind(value, limit)
    except Thrown as error:
        text = error.java if error.message is None else f"{error.java}: {error.message}"
        raise Thrown(KAFKA_EXCEPTION, text, error) from None
    data, at, ended = bytearray(), 0, False

    def has(count: int) -> bool:
        nonlocal ended
        while not ended and len(data) - at < count:
            part = stream.read(size)
            ended = not part
            data.extend(part)
            if len(data) > limit:
                raise Thrown(KAFKA_EXCEPTION, "more bytes than are allowed here")
        return len(data) - at >= count

    while has(LENGTH_END):
        length = _integer(data, at + 8, 4)
        if length < _LEAST:
            raise Thrown(CORRUPT_RECORD, f"Record size is less than the minimum record overhead ({_LEAST})")
        if not has(LENGTH_END + length):
            return
        yield _integer(data, at, 8), bytes(data[at + LENGTH_END : at + LENGTH_END + length])
        at += LENGTH_END + length


def _integer(data: bytes | bytearray, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big", signed=True)
