"""Records and errors of batches that a consumer cannot read to the end, as recorded from kafka-clients 4.3.0."""

from __future__ import annotations

import random
import struct
import zlib

import lz4.frame
import numpy as np
import pytest
import zstandard
from consumer_sections import GZ, LZ4, SN, TWO_RECORDS, as_array, pack_record

from logwright.codec.describe import VARINT
from logwright.codec.kafka.formats.log.consumer import consume
from logwright.codec.kernels.compress import compress, xxhash32


def lz4_head(flags: int, descriptor: int = 0x40, rest: bytes = b"", checksum: int | None = None) -> bytes:
    data = bytes([flags, descriptor])
    right = xxhash32(np.frombuffer(data, np.uint8), 0, 2) >> 8 & 0xFF
    return b"\x04\x22\x4d\x18" + data + bytes([right if checksum is None else checksum]) + rest


def block(data: bytes, *, stored: bool = True) -> bytes:
    return struct.pack("<I", len(data) | stored << 31) + data


def put(data: bytes, at: int, value: int) -> bytes:
    out = bytearray(data)
    out[at] = value
    return bytes(out)


NOISE = [random.Random(i).randbytes(6000) for i in range(12)]


MANY = b"".join(pack_record(i, NOISE[i]) for i in range(12))
"""72 kB of incompressible data."""


Z, ZM = (zstandard.ZstdCompressor(write_checksum=True).compress(records) for records in (TWO_RECORDS, MANY))


FIELDS = b"\x1f\x8b\x08\x1e\0\0\0\0\0\0\x02\0abname\0said\0"


SKIPPABLE = b"\x50\x2a\x4d\x18\x03\0\0\0abc"


BATCHES: dict[str, tuple[int, bytes, int]] = {
    "none: fine": (0, TWO_RECORDS, 2),
    "none: more": (0, TWO_RECORDS, 1),
    "none: less": (0, TWO_RECORDS, 3),
    "none: negative": (0, TWO_RECORDS, -1),
    "none: long varint": (0, TWO_RECORDS + b"\xff" * 5, 3),
    "none: too long": (0, TWO_RECORDS + b"\x7e\0", 3),
    "none: size below": (0, TWO_RECORDS + b"\x01\0\0\0\0\0\0", 3),
    "none: empty record": (0, TWO_RECORDS + b"\0", 3),
    "none: long varlong": (0, TWO_RECORDS + b"\x20\0" + b"\xff" * 16, 3),
    "none: key beyond": (0, TWO_RECORDS + b"\x0e\0\0\0\x7e\0\0\0", 3),
    "none: headers beyond": (0, TWO_RECORDS + b"\x0c\0\0\0\0\0\x7e", 3),
    "none: headers negative": (0, TWO_RECORDS + b"\x0c\0\0\0\0\0\x01", 3),
    "none: header key null": (0, TWO_RECORDS + b"\x10\0\0\0\0\0\x02\x01\0", 3),
    "none: header fine": (0, TWO_RECORDS + b"\x10\0\0\0\0\0\x02\0\0", 3),
    "none: longer": (0, TWO_RECORDS + b"\x0e\0\0\0\0\0\0\0", 3),
    "none: shorter": (0, TWO_RECORDS + b"\x0a\0\0\0\0\0\0", 3),
    "codec 5": (5, TWO_RECORDS, 2),
    "gzip: fine": (1, GZ, 2),
    "gzip: no records, no stream": (1, b"nonsense", 0),
    "gzip: none of it": (1, b"", 2),
    "gzip: method": (1, put(GZ, 2, 7), 2),
    "gzip: header cut": (1, GZ[:7], 2),
    "gzip: fields": (1, FIELDS + struct.pack("<H", zlib.crc32(FIELDS) & 0xFFFF) + GZ[10:], 2),
    "gzip: header crc": (1, b"\x1f\x8b\x08\x02\0\0\0\0\0\0\x01\x02" + GZ[10:], 2),
    "gzip: trailer": (1, put(GZ, len(GZ) - 8, GZ[-8] ^ 1), 2),
    "gzip: trailer cut": (1, GZ[:-3], 2),
    "gzip: cut": (1, GZ[:-12], 2),
    "gzip: block": (1, GZ[:10] + b"\x07" + GZ[11:], 2),
    "gzip: far cut": (1, compress("gzip", MANY)[:50000], 12),
    "gzip: far wrong": (1, put(compress("gzip", MANY[:40000]), 10, 0x07), 12),
    "gzip: second member": (
        1,
        compress("gzip", pack_record(0)) + compress("gzip", pack_record(1)) + b"x" * 30,
        2,
    ),
    "gzip: second member bad": (
        1,
        compress("gzip", pack_record(0)) + put(compress("gzip", pack_record(1)), -8, 0) + b"x" * 30,
        2,
    ),
    "gzip: nonsense after": (1, GZ + b"x" * 40, 2),
    "gzip: more": (1, GZ, 1),
    "gzip: less": (1, GZ, 3),
    "gzip: negative": (1, GZ, -2),
    "gzip: size below": (1, compress("gzip", b"\x01\0\0\0\0\0\0"), 1),
    "gzip: eof in record": (1, compress("gzip", TWO_RECORDS + b"\x7e\0"), 3),
    "gzip: bad record": (1, compress("gzip", TWO_RECORDS + b"\x0e\0\0\0\x7e\0\0\0"), 3),
    "snappy: fine": (2, SN, 2),
    "snappy: empty": (2, b"", 2),
    "snappy: raw": (2, compress("snappy-raw", TWO_RECORDS), 2),
    "snappy: raw bad length": (2, b"\xff" * 16, 2),
    "snappy: raw bad": (2, b"\x20" + b"\xff" * 20, 2),
    "snappy: chunk cut": (2, SN[:-1], 2),
    "snappy: chunk huge": (2, SN + b"\x7f\0\0\0", 2),
    "snappy: chunk below": (2, SN + b"\x8f\0\0\0", 2),
    "snappy: second chunk bad": (2, put(compress("snappy", MANY), 32798, 0), 12),
    "snappy: second header": (2, compress("snappy", pack_record(0)) + compress("snappy", pack_record(1)), 2),
    "snappy: second header cut": (2, SN + SN[:9], 2),
    "snappy: second header other": (2, SN + SN[:5] + b"x" * 11, 2),
    "snappy: second header version": (2, SN + SN[:8] + b"\0" * 8, 2),
    "lz4: fine": (3, LZ4, 2),
    "lz4: short": (3, LZ4[:5], 2),
    "lz4: magic": (3, put(LZ4, 0, 5), 2),
    "lz4: reserved": (3, lz4_head(0x61), 2),
    "lz4: linked": (3, lz4_head(0x40), 2),
    "lz4: version": (3, lz4_head(0xA0), 2),
    "lz4: reserved2": (3, lz4_head(0x60, 0x41), 2),
    "lz4: block size": (3, lz4_head(0x60, 0x30), 2),
    "lz4: reserved3": (3, lz4_head(0x60, 0xC0), 2),
    "lz4: size cut": (3, b"\x04\x22\x4d\x18\x68\x40abc", 2),
    "lz4: no checksum": (3, b"\x04\x22\x4d\x18\x60\x40", 2),
    "lz4: checksum": (3, lz4_head(0x60, checksum=1), 2),
    "lz4: no block": (3, lz4_head(0x60), 2),
    "lz4: block too large": (3, lz4_head(0x60, rest=struct.pack("<I", 70000)), 2),
    "lz4: block cut": (3, lz4_head(0x60, rest=struct.pack("<I", 70)), 2),
    "lz4: no end": (3, lz4_head(0x60, rest=block(TWO_RECORDS)), 2),
    "lz4: end": (3, lz4_head(0x60, rest=block(pack_record(0)) + block(pack_record(1)) + bytes(4)), 2),
    "lz4: content checksum cut": (3, lz4_head(0x64, rest=block(TWO_RECORDS) + bytes(4)), 2),
    "lz4: content checksum": (3, lz4_head(0x64, rest=block(TWO_RECORDS) + bytes(8)), 2),
    "lz4: block checksum": (3, lz4_head(0x70, rest=block(TWO_RECORDS) + bytes(8)), 2),
    "lz4: block checksum cut": (3, lz4_head(0x70, rest=block(TWO_RECORDS)), 2),
    "lz4: second block bad": (
        3,
        lz4_head(0x60, rest=block(MANY[:60000]) + block(MANY[60000:], stored=False) + bytes(4)),
        12,
    ),
    "zstd: fine": (4, Z, 2),
    "zstd: none": (4, b"", 2),
    "zstd: magic": (4, put(Z, 0, 0), 2),
    "zstd: checksum": (4, put(Z, len(Z) - 1, Z[-1] ^ 1), 2),
    "zstd: checksum far": (4, put(ZM, len(ZM) - 1, ZM[-1] ^ 1), 12),
    "zstd: cut": (4, Z[:-1], 2),
    "zstd: cut far": (4, ZM[:-1], 12),
    "zstd: two frames": (4, zstandard.compress(pack_record(0)) + zstandard.compress(pack_record(1)), 2),
    "zstd: second frame cut": (
        4,
        zstandard.compress(TWO_RECORDS) + zstandard.compress(pack_record(1))[:8],
        2,
    ),
    "zstd: skippable": (4, SKIPPABLE + Z, 2),
    "zstd: nonsense after": (4, Z + b"nonsense", 2),
}


OUTCOMES = {
    "none: fine": (2, ""),
    "none: more": (
        0,
        "InvalidRecordException: Incorrect declared batch size, records still remaining in file",
    ),
    "none: less": (2, "InvalidRecordException: Incorrect declared batch size, premature EOF reached"),
    "none: negative": (0, "InvalidRecordException: Found invalid record count -1 in magic v2 batch"),
    "none: long varint": (
        2,
        "IllegalArgumentException: Varint is too long, the most significant bit in the 5th byte is set, converted value: ffffffff",
    ),
    "none: too long": (
        2,
        "InvalidRecordException: Invalid record size: expected 63 bytes in record payload, but instead the buffer has only 1 remaining bytes.",
    ),
    "none: size below": (
        2,
        "InvalidRecordException: Invalid record size: expected to read -1 bytes in record payload, but instead read 6",
    ),
    "none: empty record": (
        2,
        "InvalidRecordException: Found invalid record structure <- BufferUnderflowException: None",
    ),
    "none: long varlong": (
        2,
        "InvalidRecordException: Found invalid record structure"
        " <- IllegalArgumentException: Varlong is too long, most significant bit in the 10th byte is set, converted value: ffffffffffffffff",
    ),
    "none: key beyond": (
        2,
        "InvalidRecordException: Found invalid record structure"
        " <- IllegalArgumentException: newLimit > capacity: (63 > 3)",
    ),
    "none: headers beyond": (
        2,
        "InvalidRecordException: Found invalid number of record headers. 63 is larger than the remaining size of the buffer",
    ),
    "none: headers negative": (2, "InvalidRecordException: Found invalid number of record headers -1"),
    "none: header key null": (2, "InvalidRecordException: Invalid negative header key size -1"),
    "none: header fine": (3, ""),
    "none: longer": (
        2,
        "InvalidRecordException: Invalid record size: expected to read 7 bytes in record payload, but instead read 6",
    ),
    "none: shorter": (
        2,
        "InvalidRecordException: Invalid record size: expected to read 5 bytes in record payload, but instead read 6",
    ),
    "codec 5": (0, "IllegalArgumentException: Unknown compression type id: 5"),
    "gzip: fine": (2, ""),
    "gzip: no records, no stream": (
        0,
        "KafkaException: java.util.zip.ZipException: Not in GZIP format <- ZipException: Not in GZIP format",
    ),
    "gzip: none of it": (0, "KafkaException: java.io.EOFException <- EOFException: None"),
    "gzip: method": (
        0,
        "KafkaException: java.util.zip.ZipException: Unsupported compression method"
        " <- ZipException: Unsupported compression method",
    ),
    "gzip: header cut": (0, "KafkaException: java.io.EOFException <- EOFException: None"),
    "gzip: fields": (2, ""),
    "gzip: header crc": (
        0,
        "KafkaException: java.util.zip.ZipException: Corrupt GZIP header"
        " <- ZipException: Corrupt GZIP header",
    ),
    "gzip: trailer": (
        1,
        "KafkaException: Error checking for remaining bytes after reading batch"
        " <- ZipException: Corrupt GZIP trailer",
    ),
    "gzip: trailer cut": (
        1,
        "KafkaException: Error checking for remaining bytes after reading batch <- EOFException: None",
    ),
    "gzip: cut": (
        1,
        "KafkaException: Failed to decompress record stream"
        " <- EOFException: Unexpected end of ZLIB input stream",
    ),
    "gzip: block": (
        0,
        "KafkaException: Failed to decompress record stream <- ZipException: invalid block type",
    ),
    "gzip: far cut": (
        8,
        "KafkaException: Failed to decompress record stream"
        " <- EOFException: Unexpected end of ZLIB input stream",
    ),
    "gzip: far wrong": (
        0,
        "KafkaException: Failed to decompress record stream <- ZipException: invalid block type",
    ),
    "gzip: second member": (2, ""),
    "gzip: second member bad": (
        1,
        "KafkaException: Error checking for remaining bytes after reading batch"
        " <- ZipException: Corrupt GZIP trailer",
    ),
    "gzip: nonsense after": (2, ""),
    "gzip: more": (
        0,
        "InvalidRecordException: Incorrect declared batch size, records still remaining in file",
    ),
    "gzip: less": (
        2,
        "InvalidRecordException: Incorrect declared batch size, premature EOF reached"
        " <- IllegalArgumentException: Varint is too long, the most significant bit in the 5th byte is set, converted value: ffffffff",
    ),
    "gzip: negative": (0, "InvalidRecordException: Found invalid record count -2 in magic v2 batch"),
    "gzip: size below": (
        0,
        "InvalidRecordException: Incorrect declared batch size, premature EOF reached"
        " <- IllegalArgumentException: capacity < 0: (-1 < 0)",
    ),
    "gzip: eof in record": (
        2,
        "InvalidRecordException: Invalid record size: expected 63 bytes in record payload, but the record payload reached EOF.",
    ),
    "gzip: bad record": (
        2,
        "InvalidRecordException: Found invalid record structure"
        " <- IllegalArgumentException: newLimit > capacity: (63 > 3)",
    ),
    "snappy: fine": (2, ""),
    "snappy: empty": (
        0,
        "KafkaException: org.xerial.snappy.SnappyIOException: [EMPTY_INPUT] Cannot decompress empty stream"
        " <- SnappyIOException: [EMPTY_INPUT] Cannot decompress empty stream",
    ),
    "snappy: raw": (2, ""),
    "snappy: raw bad length": (
        0,
        "KafkaException: java.io.IOException: PARSING_ERROR(2) <- IOException: PARSING_ERROR(2)",
    ),
    "snappy: raw bad": (
        0,
        "KafkaException: java.io.IOException: FAILED_TO_UNCOMPRESS(5)"
        " <- IOException: FAILED_TO_UNCOMPRESS(5)",
    ),
    "snappy: chunk cut": (
        0,
        "KafkaException: Failed to decompress record stream <- IOException: failed to read chunk",
    ),
    "snappy: chunk huge": (
        0,
        "SnappyError: [FAILED_TO_UNCOMPRESS] Received chunkSize 2,130,706,432 is greater than max configured chunk size 536,870,912",
    ),
    "snappy: chunk below": (
        0,
        "SnappyError: [INVALID_CHUNK_SIZE] chunkSize is too big or negative : -1895825408",
    ),
    "snappy: second chunk bad": (
        5,
        "KafkaException: Failed to decompress record stream <- IOException: FAILED_TO_UNCOMPRESS(5)",
    ),
    "snappy: second header": (2, ""),
    "snappy: second header cut": (
        0,
        "KafkaException: Failed to decompress record stream"
        " <- SnappyIOException: [FAILED_TO_UNCOMPRESS] Insufficient header size in a concatenated block",
    ),
    "snappy: second header other": (2, ""),
    "snappy: second header version": (
        0,
        "KafkaException: Failed to decompress record stream"
        " <- SnappyIOException: [INCOMPATIBLE_VERSION] Compressed with an incompatible codec version 0. At least version 1 is required",
    ),
    "lz4: fine": (2, ""),
    "lz4: short": (
        0,
        "KafkaException: java.io.IOException: Stream ended prematurely"
        " <- IOException: Stream ended prematurely",
    ),
    "lz4: magic": (
        0,
        "KafkaException: java.io.IOException: Stream unsupported (invalid magic bytes)"
        " <- IOException: Stream unsupported (invalid magic bytes)",
    ),
    "lz4: reserved": (
        0,
        "KafkaException: java.lang.RuntimeException: Reserved bits must be 0"
        " <- RuntimeException: Reserved bits must be 0",
    ),
    "lz4: linked": (
        0,
        "KafkaException: java.lang.RuntimeException: Dependent block stream is unsupported"
        " <- RuntimeException: Dependent block stream is unsupported",
    ),
    "lz4: version": (
        0,
        "KafkaException: java.lang.RuntimeException: Version 2 is unsupported"
        " <- RuntimeException: Version 2 is unsupported",
    ),
    "lz4: reserved2": (
        0,
        "KafkaException: java.lang.RuntimeException: Reserved2 field must be 0"
        " <- RuntimeException: Reserved2 field must be 0",
    ),
    "lz4: block size": (
        0,
        "KafkaException: java.lang.RuntimeException: Block size value must be between 4 and 7"
        " <- RuntimeException: Block size value must be between 4 and 7",
    ),
    "lz4: reserved3": (
        0,
        "KafkaException: java.lang.RuntimeException: Reserved3 field must be 0"
        " <- RuntimeException: Reserved3 field must be 0",
    ),
    "lz4: size cut": (
        0,
        "KafkaException: java.io.IOException: Stream ended prematurely"
        " <- IOException: Stream ended prematurely",
    ),
    "lz4: no checksum": (
        0,
        "KafkaException: java.nio.BufferUnderflowException <- BufferUnderflowException: None",
    ),
    "lz4: checksum": (
        0,
        "KafkaException: java.io.IOException: Stream frame descriptor corrupted"
        " <- IOException: Stream frame descriptor corrupted",
    ),
    "lz4: no block": (
        0,
        "KafkaException: Failed to decompress record stream <- IOException: Stream ended prematurely",
    ),
    "lz4: block too large": (
        0,
        "KafkaException: Failed to decompress record stream"
        " <- IOException: Block size 70000 exceeded max: 65536",
    ),
    "lz4: block cut": (
        0,
        "KafkaException: Failed to decompress record stream <- IOException: Stream ended prematurely",
    ),
    "lz4: no end": (
        1,
        "KafkaException: Error checking for remaining bytes after reading batch"
        " <- IOException: Stream ended prematurely",
    ),
    "lz4: end": (2, ""),
    "lz4: content checksum cut": (1, "BufferUnderflowException: None"),
    "lz4: content checksum": (2, ""),
    "lz4: block checksum": (
        0,
        "KafkaException: Failed to decompress record stream <- IOException: Block checksum mismatch",
    ),
    "lz4: block checksum cut": (0, "BufferUnderflowException: None"),
    "lz4: second block bad": (
        9,
        "KafkaException: Failed to decompress record stream"
        " <- IOException: net.jpountz.lz4.LZ4Exception: Error decoding the input buffer"
        " <- LZ4Exception: Error decoding the input buffer",
    ),
    "zstd: fine": (2, ""),
    "zstd: none": (
        0,
        "InvalidRecordException: Incorrect declared batch size, premature EOF reached"
        " <- IllegalArgumentException: Varint is too long, the most significant bit in the 5th byte is set, converted value: ffffffff",
    ),
    "zstd: magic": (
        0,
        "KafkaException: Failed to decompress record stream <- ZstdIOException: Unknown frame descriptor",
    ),
    "zstd: checksum": (
        0,
        "KafkaException: Failed to decompress record stream"
        " <- ZstdIOException: Restored data doesn't match checksum",
    ),
    "zstd: checksum far": (
        10,
        "KafkaException: Failed to decompress record stream"
        " <- ZstdIOException: Restored data doesn't match checksum",
    ),
    "zstd: cut": (
        1,
        "KafkaException: Error checking for remaining bytes after reading batch"
        " <- ZstdIOException: Truncated source",
    ),
    "zstd: cut far": (
        11,
        "KafkaException: Error checking for remaining bytes after reading batch"
        " <- ZstdIOException: Truncated source",
    ),
    "zstd: two frames": (2, ""),
    "zstd: second frame cut": (2, ""),
    "zstd: skippable": (2, ""),
    "zstd: nonsense after": (
        1,
        "KafkaException: Error checking for remaining bytes after reading batch"
        " <- ZstdIOException: Unknown frame descriptor",
    ),
}


EXPECTED = ("KafkaException: ", "InvalidRecordException: ")
"""Cases that the consumer takes for a bad record."""


@pytest.mark.parametrize("name", BATCHES)
def test_recorded_answer_of_kafkas_consumer(name: str) -> None:
    compression, stored, count = BATCHES[name]
    got = consume(compression, as_array(stored), count, 1 << 20)
    assert (got.records, "" if got.error is None else str(got.error)) == OUTCOMES[name]
    assert got.error is None or got.error.expected == OUTCOMES[name][1].startswith(EXPECTED)


def test_uncompressed_bytes_equal_the_records() -> None:
    assert consume(1, as_array(GZ[:-12]), 2, 1 << 20).data == pack_record(0)
    assert consume(0, as_array(TWO_RECORDS), 3, 1 << 20).data == TWO_RECORDS


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_consumer_stops_at_the_limit_of_decompressed_bytes(codec: str) -> None:
    big = compress(codec, pack_record(0) + pack_record(1, bytes(1 << 20)))
    kind = ("none", "gzip", "snappy", "lz4", "zstd").index(codec)
    got = consume(kind, as_array(big), 2, 1 << 18)
    assert got.records < 2
    assert got.error is not None


# Cut after 50 000 bytes: in the second chunk of snappy, in the first block of lz4; zstd emits stored data immediately.
@pytest.mark.parametrize(("codec", "records"), [("gzip", 1), ("snappy", 1), ("lz4", 0), ("zstd", 1)])
def test_record_larger_than_the_buffer_is_read_at_once(codec: str, records: int) -> None:
    big = pack_record(0) + pack_record(1, random.Random(1).randbytes(100_000)) + pack_record(2)
    kind = ("none", "gzip", "snappy", "lz4", "zstd").index(codec)
    assert consume(kind, as_array(compress(codec, big)), 3, 1 << 20).data == big
    cut = consume(kind, as_array(compress(codec, big)[:50_000]), 3, 1 << 20)
    assert (cut.records, cut.error is None) == (records, False)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_large_record_of_a_complete_stream(codec: str) -> None:
    kind = ("none", "gzip", "snappy", "lz4", "zstd").index(codec)
    got = consume(
        kind, as_array(compress(codec, pack_record(0) + VARINT.pack(200_000, {}) + bytes(10))), 2, 1 << 20
    )
    assert got.records == 1
    assert "expected 200000 bytes in record payload, but the record payload reached EOF" in str(got.error)


def test_incompressible_bytes_beyond_the_limit() -> None:
    got = consume(4, as_array(ZM), 12, 20_000)
    assert got.records < 12
    assert "more bytes than are allowed here" in str(got.error)


def test_lz4_frame_with_content_size_is_read() -> None:
    packed = lz4.frame.compress(TWO_RECORDS, block_linked=False, store_size=True)
    assert consume(3, as_array(packed), 2, 1 << 20).records == 2
    got = consume(3, as_array(packed[:13]), 2, 1 << 20)
    assert (got.records, "Stream ended prematurely" in str(got.error)) == (0, True)
