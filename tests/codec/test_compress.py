"""Compression: the framings of Kafka's clients, payloads they tolerate and refuse, and bounded output."""

from __future__ import annotations

import gzip
import random
import struct
import threading
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cramjam
import lz4.block
import lz4.frame
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from modes import ROOT

from logwright.codec.kernels.compress import (
    BombError,
    CompressionError,
    Output,
    append,
    compress,
    compress_pieces,
    decompress,
    snappy,
    xxhash32,
)

kernel_modes = pytest.mark.kernel_modes

CODECS = ("none", "gzip", "snappy", "snappy-raw", "lz4", "lz4-magic0", "zstd")
FRAMED = CODECS[1:]
LIMIT = 1 << 20

# kafka.md, 22.7: what Kafka's own builder makes of the same 50 bytes.
RAW = bytes.fromhex("30000000046b3120") + b"v1" * 8 + bytes.fromhex("0030000202046b3220") + b"v2" * 8 + b"\0"
BUILT = {
    "gzip": "1f8b08000000000000ff3360606060c93654283344850c060c4c4c2cd9460a6546a8900100fc58d2e732000000",
    "snappy": "82534e4150505900000000010000000100 00002a322430000000046b312076313602006400300002 02046b3220"
    "7632763276327632763276327632763200",
    "lz4": "04224d186040822100 0000aa30000000046b312076310200b600300002 02046b322076320200507632763200000000 00",
    "zstd": "28b52ffd0058f40000b030000000046b312076310030000202046b32207632000200 40f6c90e09010000",
}


def plain(codec: str, data: Any, limit: int = LIMIT) -> bytes:
    return bytes(decompress(codec, data, limit=limit))


def sample(size: int, seed: int = 1) -> bytes:
    """Half noise, half repetition."""
    noise = random.Random(seed).randbytes(size // 2)
    return noise + (b"all work and no play " * (size // 40 + 1))[: size - len(noise)]


SAMPLES = [
    b"",
    b"x",
    RAW,
    sample(1000),
    sample(32768),
    sample(32769),
    sample(65536),
    sample(65537),
    sample(300_000),
]


# Against Kafka's builder, and against other libraries


@kernel_modes
@pytest.mark.parametrize("codec", BUILT)
def test_frames_kafka_builds_are_read(codec: str) -> None:
    built = bytes.fromhex(BUILT[codec])
    assert plain(codec, built) == RAW
    assert plain(codec, compress(codec, RAW)) == RAW


@pytest.mark.parametrize("codec", BUILT)
def test_header_and_trailer_of_our_frames_equal_kafkas(codec: str) -> None:
    """Framing is equal; the compressed bytes may depend on the compressor, but are equal today."""
    built, ours = bytes.fromhex(BUILT[codec]), compress(codec, RAW)
    head = {"gzip": 10, "snappy": 16, "lz4": 7, "zstd": 6}[codec]
    tail = {"gzip": 8, "snappy": 0, "lz4": 4, "zstd": 3}[codec]
    assert ours[:head] == built[:head]
    assert ours[len(ours) - tail :] == built[len(built) - tail :]


def test_lz4_header_checksum_of_magic_0() -> None:
    """kafka.md, 22.6."""
    assert compress("lz4-magic0", RAW)[:7].hex() == "04224d1860401a"
    assert compress("lz4", RAW)[:7].hex() == "04224d18604082"
    # Written with either, read with either.
    assert plain("lz4-magic0", compress("lz4", RAW)) == RAW
    with pytest.raises(CompressionError, match="checksum is 0x1a, and 0x82 was expected"):
        plain("lz4", compress("lz4-magic0", RAW))


@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_other_libraries_read_our_output(data: bytes) -> None:
    assert gzip.decompress(compress("gzip", data)) == data
    assert lz4.frame.decompress(compress("lz4", data)) == data
    assert zstandard.ZstdDecompressor().stream_reader(compress("zstd", data)).read() == data
    assert bytes(cramjam.snappy.decompress_raw(compress("snappy-raw", data))) == data
    chunks, stream = [], compress("snappy", data)[16:]
    while stream:
        (length,) = struct.unpack(">i", stream[:4])
        chunks.append(bytes(cramjam.snappy.decompress_raw(stream[4 : 4 + length])))
        stream = stream[4 + length :]
    assert b"".join(chunks) == data
    assert [len(chunk) for chunk in chunks[:-1]] == [32768] * (len(chunks) - 1)


@kernel_modes
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_output_of_other_libraries_is_read(data: bytes) -> None:
    assert plain("gzip", gzip.compress(data, mtime=0)) == data
    assert plain("snappy-raw", bytes(cramjam.snappy.compress_raw(data))) == data
    assert plain("snappy", bytes(cramjam.snappy.compress_raw(data))) == data
    for size in (True, False):
        for checksum in (True, False):
            options = {"write_content_size": size, "write_checksum": checksum}
            assert plain("zstd", zstandard.ZstdCompressor(**options).compress(data)) == data
            options = {"store_size": size, "content_checksum": checksum, "block_checksum": not checksum}
            for block_size in (4, 5, 6, 7):
                frame = lz4.frame.compress(data, block_linked=False, block_size=block_size, **options)
                assert plain("lz4", frame) == data


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=2000), times=st.integers(1, 100))
def test_compressed_data_decompresses_to_the_same_bytes(codec: str, data: bytes, times: int) -> None:
    assert plain(codec, compress(codec, data * times)) == data * times


@pytest.mark.parametrize("codec", CODECS)
def test_any_buffer_type_is_accepted(codec: str) -> None:
    data = compress(codec, RAW)
    writable = bytearray(data)
    for item in (
        data,
        writable,
        memoryview(writable),
        np.frombuffer(data, np.uint8),
        np.frombuffer(writable, np.uint8),
    ):
        plain = decompress(codec, item, limit=50)
        assert plain.dtype == np.uint8
        assert bytes(plain) == RAW
    assert (
        compress(codec, np.frombuffer(RAW, np.uint8)) == compress(codec, memoryview(bytearray(RAW))) == data
    )


# Levels

LEVELS = {
    "gzip": (-1, 1, 6, 9),
    "lz4": (1, 3, 9, 12, 17),
    "lz4-magic0": (1, 9, 17),
    "zstd": (-131072, -5, 1, 3, 19, 22),
}


@pytest.mark.parametrize("codec", LEVELS)
def test_every_compression_level_round_trips(codec: str) -> None:
    data = sample(5000)
    for level in LEVELS[codec]:
        assert plain(codec, compress(codec, data, level=level)) == data
    default = {"gzip": -1, "zstd": 3}.get(codec, 9)
    assert compress(codec, data) == compress(codec, data, level=default)
    for level in (LEVELS[codec][0] - 1, LEVELS[codec][-1] + 1, 0 if codec != "zstd" else 23):
        with pytest.raises(ValueError, match=f"^{codec} has levels from .* to .*, not {level}$"):
            compress(codec, data, level=level)


def test_level_9_of_lz4_is_the_fast_compressor() -> None:
    """KIP-390: any other level selects the slow compressor."""
    data = b"".join(b"key=%d;" % (i * i % 977) for i in range(5000))
    assert compress("lz4", data)[11:-4] == lz4.block.compress(data[: 1 << 16], store_size=False)
    assert len(compress("lz4", data, level=3)) < len(compress("lz4", data))
    assert compress("lz4", data, level=12) == compress("lz4", data, level=17)


def test_level_for_a_codec_without_levels_is_an_error() -> None:
    for codec in ("none", "snappy", "snappy-raw"):
        with pytest.raises(ValueError, match=f"^{codec} has no levels, not 3$"):
            compress(codec, b"", level=3)


def test_raw_lz4_block_has_neither_frame_nor_length() -> None:
    data = sample(1 << 17)
    block = compress("lz4-raw", data)
    assert lz4.block.decompress(block, uncompressed_size=len(data)) == data
    assert plain("lz4-raw", block) == plain("lz4-raw", block, len(data)) == data
    for limit in (0, len(data) - 1):
        with pytest.raises(CompressionError, match=f"damaged, or makes more than {limit} bytes"):
            decompress("lz4-raw", block, limit=limit)
    with pytest.raises(CompressionError, match=r"^lz4: the block of 9 bytes at byte 0 is damaged"):
        decompress("lz4-raw", block[:9], limit=len(data))


def test_unknown_codec_error_lists_the_known_ones() -> None:
    expected = (
        "^compression is one of none, gzip, snappy, snappy-raw, lz4, lz4-magic0, lz4-raw, zstd, zstd-sized, zlib, zlib-flushed, "
        "deflate, not 'brotli'$"
    )
    with pytest.raises(ValueError, match=expected):
        compress("brotli", b"")
    with pytest.raises(ValueError, match=expected):
        decompress("brotli", b"", limit=1)


# Golden payloads: what real brokers stored, and payloads made by hand with what Kafka's own consumer made of them

GOLDEN = Path(ROOT, "corpora", "golden", "kafka")
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")


def payloads(case: str) -> Iterator[tuple[str, bytes, int, int]]:
    """(codec, payload, magic, records) of each compressed batch, or wrapper message, of a case."""
    for log in sorted(GOLDEN.glob(f"{case}/data/*/*.log")):
        data, at = log.read_bytes(), 0
        while len(data) - at > 17:
            (size,) = struct.unpack_from(">i", data, at + 8)
            entry, magic = data[at : at + 12 + size], data[at + 16]
            at += 12 + size
            if magic == 2:
                codec, payload, records = entry[22] & 7, entry[61:], struct.unpack_from(">i", entry, 57)[0]
            else:
                # offset, size, crc, magic, attributes, in v1 a timestamp, key, value
                key = 18 + 8 * magic
                value = key + 4 + max(0, struct.unpack_from(">i", entry, key)[0])
                codec, payload, records = entry[17] & 7, entry[value + 4 :], -1
            if codec and payload:
                yield "lz4-magic0" if (magic, codec) == (0, 3) else NAMES[codec], payload, magic, records


def count_records(section: bytes) -> int:
    """Return the number of length-prefixed records, which must end at the end of the data."""
    count = at = 0
    while at < len(section):
        length = shift = 0
        while True:
            byte = section[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        at += length >> 1
        count += 1
    assert at == len(section)
    return count


COMPRESSED = [
    case
    for case in sorted({path.parents[1].parent.name for path in GOLDEN.glob("v[012]_*/data/*/*.log")})
    if any(payloads(case))
]


@pytest.mark.parametrize("case", COMPRESSED)
def test_golden_payloads_decompress_to_their_records(case: str) -> None:
    for codec, payload, magic, records in payloads(case):
        data = plain(codec, payload, 64 << 20)
        if magic == 2:
            assert count_records(data) == records
        else:
            # Whole messages, one after the other.
            at = 0
            while at < len(data):
                at += 12 + struct.unpack_from(">i", data, at + 8)[0]
            assert at == len(data)
        assert plain(codec, compress(codec, data), len(data)) == data


def test_there_are_golden_payloads_of_each_kind() -> None:
    actual = {(codec, magic) for case in COMPRESSED for codec, _, magic, _ in payloads(case)}
    legacy = {("gzip", 0), ("gzip", 1), ("snappy", 0), ("snappy", 1), ("lz4-magic0", 0), ("lz4", 1)}
    assert actual == legacy | {(codec, 2) for codec in NAMES[1:]}


TOLERATED = (
    "craft_gzip_name_mtime", "craft_gzip_trailing", "craft_gzip_two_members", "craft_lz4_4mb_block",
    "craft_lz4_bad_content_checksum", "craft_lz4_block_checksum", "craft_lz4_size_checksum", "craft_raw_snappy",
    "craft_snappy_two_headers", "craft_zstd_two_frames",
)  # fmt: skip


@kernel_modes
@pytest.mark.parametrize("case", TOLERATED)
def test_payloads_kafka_tolerates_are_read(case: str) -> None:
    actual = list(payloads(case))
    assert actual
    for codec, payload, _, records in actual:
        assert count_records(plain(codec, payload)) == records


REFUSED = {
    "craft_gzip_bad_crc": "gzip: incorrect data check, at or before byte ",
    "craft_gzip_truncated": "gzip: the stream is cut off after ",
    "craft_lz4_bad_hc": "lz4: the frame header's checksum is ",
    "craft_lz4_linked": "lz4: the frame's blocks depend on each other",
    "craft_zstd_bad_checksum": "zstd: the frame at byte 0 is damaged: ",
}


@pytest.mark.parametrize("case", REFUSED)
def test_payloads_kafka_refuses_are_refused(case: str) -> None:
    refused = []
    for codec, payload, _, records in payloads(case):
        try:
            assert count_records(plain(codec, payload)) == records
        except CompressionError as error:
            refused.append(str(error))
    assert refused
    assert all(message.startswith(REFUSED[case]) for message in refused)


def test_only_the_first_lz4_frame_is_read() -> None:
    """As in Kafka, whose consumer misses the records of the second frame."""
    ((codec, payload, _, _),) = payloads("craft_lz4_two_frames")
    first = lz4.frame.LZ4FrameDecompressor()
    assert plain(codec, payload) == first.decompress(payload) != b""
    assert first.unused_data.startswith(b"\x04\x22\x4d\x18")


def test_both_lz4_header_checksums_are_accepted() -> None:
    for case in ("v0_lz4", "craft_v0_lz4_right_hc"):
        actual = list(payloads(case))
        assert {codec for codec, *_ in actual} == {"lz4-magic0"}
        assert all(plain(codec, payload) for codec, payload, *_ in actual)


# Bytes between and after frames


def test_concatenated_gzip_members_are_one_payload() -> None:
    first, second = gzip.compress(RAW, mtime=0), gzip.compress(b"more", mtime=0)
    assert plain("gzip", first + second) == RAW + b"more"
    # A header with everything: a second member all the same.
    fields = b"\x1f\x8b\x08\x1e" + bytes(6) + b"\x03\x00abc" + b"name\0" + b"comment\0"
    header = fields + struct.pack("<H", zlib.crc32(fields) & 0xFFFF)
    assert plain("gzip", first + header + second[10:]) == RAW + b"more"
    assert plain("gzip", header + first[10:]) == RAW
    # Java ignores what is no whole header: so do we. What is one has to be right.
    wrong_crc = fields + struct.pack("<H", zlib.crc32(fields) & 0xFFFF ^ 1)
    for junk in (
        b"", b"junk", second[:9], b"\0" * 40, b"\x1f\x8b\x07" + second[3:], b"\x1f\x8b\x08\xe0" + second[4:], wrong_crc + second[10:],
        b"\x1f\x8b\x08\x08" + bytes(6) + b"a name without an end", b"\x1f\x8b\x08\x04" + bytes(6) + b"\xff" * 20,
        b"\x1f\x8b\x08\x04" + bytes(6) + b"\x0a\x00" + bytes(8) + b"\0", b"\x1f\x8b\x08\x02" + bytes(6) + b"\0" * 9,
        fields,
    ):  # fmt: skip
        assert plain("gzip", first + junk) == RAW, junk
    with pytest.raises(CompressionError, match="incorrect data check"):
        plain("gzip", first + second[:-8] + bytes(8))
    with pytest.raises(CompressionError, match="cut off"):
        plain("gzip", first + second[:-1])


def test_concatenated_snappy_streams_are_one_payload() -> None:
    first, second = compress("snappy", RAW), compress("snappy", b"more")
    assert plain("snappy", first + second) == RAW + b"more"
    assert plain("snappy", first + second + b"\0\0\0") == RAW + b"more"
    assert plain("snappy", first[:16]) == b""
    # The first header's version is not looked at; what is nearly a second header ends the stream.
    assert plain("snappy", first[:8] + bytes(8) + first[16:]) == RAW
    assert plain("snappy", first + b"\x82SNAPPX\0" + second[8:]) == RAW


def test_zstd_frames_and_skippable_frames() -> None:
    first, second = compress("zstd", RAW), compress("zstd", b"more")
    skippable = struct.pack("<II", 0x184D2A5F, 5) + b"12345"
    assert plain("zstd", first + skippable + second + skippable) == RAW + b"more"
    assert plain("zstd", skippable) == b""
    assert plain("zstd", b"") == b""
    empty = zstandard.ZstdCompressor().compress(b"")
    assert plain("zstd", empty + first + empty) == RAW


# Damage, in words

GZIP, SNAPPY, LZ4, ZSTD = (compress(codec, RAW) for codec in BUILT)
DAMAGE = [
    ("gzip", b"", "gzip: the stream is cut off after 0 bytes, before its end and checksum"),
    ("gzip", GZIP[:20], "gzip: the stream is cut off after 20 bytes, before its end and checksum"),
    ("gzip", b"\0" + GZIP, "gzip: incorrect header check, at or before byte 46"),
    ("gzip", GZIP[:-8] + bytes(4) + GZIP[-4:], "gzip: incorrect data check, at or before byte 45"),
    ("gzip", GZIP[:-4] + bytes(4), "gzip: incorrect length check, at or before byte 45"),
    ("snappy", b"", "snappy: the block of 0 bytes at byte 0 does not start with a length"),
    ("snappy", b"\xff" * 9, "snappy: the block of 9 bytes at byte 0 does not start with a length"),
    ("snappy", SNAPPY[:-1], "snappy: a chunk of 42 bytes at byte 20, where 41 are left"),
    ("snappy", SNAPPY[:16] + b"\xff" * 8, "snappy: a chunk of -1 bytes at byte 20, where 4 are left"),
    ("snappy", SNAPPY[:16] + bytes(4), "snappy: the block of 0 bytes at byte 20 does not start with a length"),
    ("snappy", SNAPPY + SNAPPY[:9], "snappy: a second header at byte 62 is cut off after 9 bytes"),
    ("snappy", SNAPPY + SNAPPY[:8] + bytes(8), "snappy: the header at byte 62 has version 0; 1 and above are known"),
    ("snappy", b"\x80\x08abc", "snappy: the block at byte 0 claims to make 1024 bytes from 5"),
    ("snappy", b"\x05\x01\x09", "snappy: the block at byte 0 is damaged: "),
    ("snappy", b"\x00\x00a", "snappy: the block at byte 0 is damaged: "),
    ("lz4", b"", "lz4: a frame header has 7 bytes at least, and there are 0"),
    ("lz4", b"\x05" + LZ4[1:], "lz4: the frame starts with 05 22 4d 18, expected 04 22 4d 18"),
    ("lz4", LZ4[:4] + b"\xa0" + LZ4[5:], "lz4: frame version 2; 1 is known"),
    ("lz4", LZ4[:4] + b"\x61" + LZ4[5:], "lz4: reserved bits are set in the frame descriptor 61 40"),
    ("lz4", LZ4[:5] + b"\x41" + LZ4[6:], "lz4: reserved bits are set in the frame descriptor 60 41"),
    ("lz4", LZ4[:4] + b"\x40" + LZ4[5:], "lz4: the frame's blocks depend on each other, which Kafka does not read"),
    ("lz4", LZ4[:5] + b"\x30" + LZ4[6:], "lz4: block size code 3; 4 to 7 are known"),
    ("lz4", LZ4[:4] + b"\x68" + LZ4[5:10], "lz4: the frame header has 15 bytes, and there are 10"),
    ("lz4", LZ4[:6] + b"\0" + LZ4[7:], "lz4: the frame header's checksum is 0x00, and 0x82 was expected"),
    ("lz4", LZ4[:-4], "lz4: the frame is cut off after 44 bytes, before its end mark"),
    ("lz4", LZ4[:40], "lz4: the block at byte 11 takes 33 bytes, and 29 are left"),
    ("lz4", LZ4[:7] + b"\x01\x00\x01\x00" + LZ4[11:],
     "lz4: a block of 65537 bytes at byte 11, in a frame of blocks of 65536 at most"),
    ("lz4", LZ4[:11] + b"\xff" * 33 + LZ4[44:],
     "lz4: the block of 33 bytes at byte 11 is damaged, or makes more than 8415 bytes"),
    ("zstd", b"\0", "zstd: at byte 0 of 1: the frame that starts here is cut off"),
    ("zstd", b"abcd", "zstd: at byte 0 of 4: neither a frame (28 b5 2f fd) nor a skippable one starts here"),
    ("zstd", ZSTD + b"junk!", "zstd: at byte 42 of 47: neither a frame (28 b5 2f fd) nor a skippable one starts here"),
    ("zstd", ZSTD[:4], "zstd: at byte 0 of 4: the frame that starts here is cut off"),
    ("zstd", ZSTD[:-1], "zstd: at byte 0 of 41: the frame that starts here is cut off"),
    ("zstd", ZSTD[:-3], "zstd: at byte 0 of 39: the frame that starts here is cut off"),
    ("zstd", ZSTD[:4] + b"\x08" + ZSTD[5:],
     "zstd: at byte 0 of 42: the header of the frame that starts here has its reserved bit set"),
    ("zstd", ZSTD[:6] + b"\x07\0\0", "zstd: at byte 0 of 9: a block of the frame that starts here has the reserved type"),
    ("zstd", b"\x50\x2a\x4d\x18\x05\0\0\0" + b"1234", "zstd: at byte 0 of 12: the frame that starts here is cut off"),
    ("zstd", b"\x50\x2a\x4d\x18\x05\0\0", "zstd: at byte 0 of 7: the frame that starts here is cut off"),
    ("zstd", ZSTD[:9] + b"\xff" * 27 + ZSTD[36:], "zstd: the frame at byte 0 is damaged: "),
    ("zstd", b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 8 + b"\x01\0\0", "zstd: the frame at byte 0 is damaged: "),
]  # fmt: skip


@kernel_modes
@pytest.mark.parametrize(
    ("codec", "data", "message"), DAMAGE, ids=lambda value: value[:40] if isinstance(value, str) else ""
)
def test_damaged_payload_raises_the_reason_it_does_not_decompress(
    codec: str, data: bytes, message: str
) -> None:
    with pytest.raises(CompressionError) as caught:
        decompress(codec, data, limit=LIMIT)
    assert type(caught.value) is CompressionError
    actual = str(caught.value)
    assert actual == message or (
        message.endswith(": ") and actual.startswith(message) and len(actual) > len(message)
    )


def test_checksums_are_verified_as_by_kafka() -> None:
    frame = bytearray(lz4.frame.compress(RAW, block_linked=False, block_checksum=True, store_size=False))
    frame[-5] ^= 1
    with pytest.raises(
        CompressionError, match=r"lz4: the checksum of the block at byte 11 is 0x[0-9a-f]{8}, and 0x"
    ):
        plain("lz4", frame)
    checked = zstandard.ZstdCompressor(write_checksum=True).compress(RAW)
    assert plain("zstd", checked) == RAW
    for cut in range(1, 5):
        with pytest.raises(CompressionError, match="the frame that starts here is cut off"):
            plain("zstd", checked[:-cut])
    frame = bytearray(lz4.frame.compress(RAW, block_linked=False, content_checksum=True, store_size=False))
    frame[-1] ^= 1
    assert plain("lz4", frame) == RAW
    with pytest.raises(CompressionError, match=r"cut off after .* bytes, in its content checksum"):
        plain("lz4", frame[:-1])


def test_damaged_payload_returns_no_foreign_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffer has the size stored in the block; if the library fills less of it, the rest is uninitialised memory."""
    monkeypatch.setattr(snappy, "_into", lambda block, out: 7)
    with pytest.raises(
        CompressionError, match=r"^snappy: the block at byte 0 makes 7 bytes, and declares 50$"
    ):
        plain("snappy", compress("snappy-raw", RAW))


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
@pytest.mark.parametrize("data", SAMPLES[1:5], ids=len)
def test_every_truncation_is_detected(codec: str, data: bytes) -> None:
    """For codecs with an end mark. A Snappy stream has none: a prefix of its blocks is valid."""
    compressed = compress(codec, data)
    for size in range(1, len(compressed), max(1, len(compressed) // 200)):
        with pytest.raises(CompressionError):
            plain(codec, compressed[:size])


def test_truncated_snappy_stream_is_detected_except_between_blocks() -> None:
    data = sample(100_000)
    compressed = compress("snappy", data)
    ends = [16]
    while ends[-1] < len(compressed):
        ends.append(ends[-1] + 4 + struct.unpack_from(">i", compressed, ends[-1])[0])
    for size in {*range(16, len(compressed), 997), *(end + i for end in ends[:-1] for i in range(6))}:
        block = [i for i, end in enumerate(ends) if end <= size < end + 4]
        if block:
            assert plain("snappy", compressed[:size]) == data[: 32768 * block[0]]
        else:
            with pytest.raises(CompressionError):
                plain("snappy", compressed[:size])


def attempt(codec: str, data: bytes, limit: int) -> None:
    """Decompress hostile bytes: within the limit or refused in one line. Anything else fails the test."""
    try:
        assert len(decompress(codec, data, limit=limit)) <= limit
    except CompressionError as error:
        message = str(error)
    else:
        return
    assert message.startswith(codec.partition("-")[0] + ": ")


@kernel_modes
@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=60), limit=st.integers(0, 200))
def test_any_bytes_round_trip(codec: str, data: bytes, limit: int) -> None:
    attempt(codec, data, limit)
    head = compress(codec, b"")
    attempt(codec, head[: len(head) // 2] + data, limit)


STARTS = {codec: [compress(codec, data) for data in (RAW, sample(3000), b"a" * 70_000)] for codec in CODECS}
STARTS["gzip"].append(gzip.compress(RAW, mtime=0) + gzip.compress(b"more", mtime=0))
STARTS["lz4"].append(
    lz4.frame.compress(RAW * 9, block_linked=False, block_checksum=True, content_checksum=True)
)
STARTS["snappy"].append(compress("snappy", RAW) * 2)
STARTS["zstd"] += [zstandard.ZstdCompressor(write_checksum=True).compress(RAW), compress("zstd", RAW) * 2]


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
def test_changed_bytes_are_read_or_refused(codec: str, data: st.DataObject) -> None:
    changed = bytearray(data.draw(st.sampled_from(STARTS[codec])))
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    attempt(codec, bytes(changed), data.draw(st.sampled_from([10, 1000, 100_000])))


# Bombs


@kernel_modes
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", SAMPLES[1:5], ids=len)
def test_output_at_the_limit_is_read_and_one_byte_more_refused(codec: str, data: bytes) -> None:
    payload = compress(codec, data)
    assert plain(codec, payload, len(data)) == data
    for limit in {len(data) - 1, len(data) // 2, 0}:
        with pytest.raises(
            BombError,
            match=f"^{codec.partition('-')[0]}: decompresses to more than the limit of {limit} bytes$",
        ):
            decompress(codec, payload, limit=limit)


def bombs() -> Iterator[tuple[str, bytes]]:
    zeros = bytes(64 << 20)
    for codec in FRAMED:
        yield codec, compress(codec, zeros)
    yield "gzip", gzip.compress(zeros[: 1 << 20], mtime=0) * 64
    yield "zstd", zstandard.ZstdCompressor().compress(zeros)
    yield "zstd", zstandard.ZstdCompressor().compress(zeros[: 1 << 20]) * 64
    # One byte, repeated, a block of 128 KiB from four bytes.
    yield "zstd", b"\x28\xb5\x2f\xfd\x00\x58" + b"\x02\x00\x10a" * 512 + b"\x01\0\0"
    yield "snappy", compress("snappy", zeros[: 1 << 20]) * 64
    yield "snappy", compress("snappy-raw", zeros)


def test_decompression_bomb_is_bounded() -> None:
    limit = 1 << 20
    for codec, payload in bombs():
        tracemalloc.start()
        try:
            with pytest.raises(BombError):
                decompress(codec, payload, limit=limit)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        # The output so far and the block that exceeds the limit.
        assert peak < 3 * limit, (codec, peak)


def test_bomb_is_distinguished_from_damage() -> None:
    """A frame without a declared size that does not fit is decompressed up to the limit, to distinguish it from damage."""
    payload = compress("zstd", b"".join(b"%d," % (i * i) for i in range(50_000)))
    with pytest.raises(BombError):
        decompress("zstd", payload, limit=200_000)
    damaged = payload[:9] + b"\xff" * 50 + payload[59:]
    with pytest.raises(CompressionError, match="damaged") as caught:
        decompress("zstd", damaged, limit=200_000)
    assert type(caught.value) is CompressionError


def test_declared_size_allocates_nothing() -> None:
    lies = [
        # Frames and blocks that say 4 GiB and hold a few bytes.
        ("zstd", b"\x28\xb5\x2f\xfd\xa0\xff\xff\xff\xff\x01\x00\x00"),
        ("zstd", b"\x28\xb5\x2f\xfd\xa0\xff\xff\xff\xff\x09\x00\x00a"),
        ("snappy", b"\xff\xff\xff\xff\x0f" + bytes(20)),
        ("snappy", SNAPPY[:16] + struct.pack(">i", 9) + b"\xff\xff\xff\xff\x0f" + bytes(4)),
    ]
    for codec, payload in lies:
        tracemalloc.start()
        try:
            with pytest.raises(CompressionError):
                decompress(codec, payload, limit=1 << 40)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()


def test_many_small_chunks_take_linear_time() -> None:
    """Each has about 50,000 chunks, which takes minutes if each chunk copies the rest."""
    empty = gzip.compress(b"", mtime=0)
    stored = b"\x01\x00\x00\x80a"
    started = time.monotonic()
    assert plain("gzip", empty * 50_000) == b""
    assert plain("snappy", SNAPPY[:16] + (b"\0\0\0\x03" + b"\x01\x00a") * 50_000) == b"a" * 50_000
    assert plain("lz4", LZ4[:7] + stored * 50_000 + bytes(4)) == b"a" * 50_000
    assert plain("zstd", ZSTD[:6] + b"\0\0\0" * 50_000 + b"\x01\0\0") == b""
    assert plain("zstd", ZSTD * 20_000) == RAW * 20_000
    assert time.monotonic() - started < 20


# Checksums, threads


@kernel_modes
def test_xxhash32_gives_the_hashes_of_the_reference_implementation() -> None:
    """The vectors of the xxHash specification's reference implementation."""
    known = {b"": 0x02CC5D05, b"a": 0x550D7456, b"abc": 0x32D153FF, b"abcd": 0xA3643705,
             b"Nobody inspects the spammish repetition": 0xE2293B2F}  # fmt: skip
    for data, expected in known.items():
        assert xxhash32(np.frombuffer(b"--" + data + b"--", np.uint8), 2, 2 + len(data)) == expected


@kernel_modes
@given(st.binary(min_size=1, max_size=300))
def test_xxhash32_equals_the_lz4_librarys(data: bytes) -> None:
    frame = lz4.frame.compress(data, block_linked=False, content_checksum=True, store_size=False)
    assert xxhash32(np.frombuffer(data, np.uint8), 0, len(data)) == int.from_bytes(frame[-4:], "little")


def test_compression_is_thread_safe() -> None:
    data = [sample(20_000, seed) for seed in range(8)]
    wrong: list[str] = []

    def work(item: bytes) -> None:
        for _ in range(20):
            for codec in CODECS:
                if plain(codec, compress(codec, item)) != item:
                    wrong.append(codec)

    threads = [threading.Thread(target=work, args=(part,)) for part in data]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("codec", ["gzip", "snappy"])
@pytest.mark.parametrize("size", [0, 1, 32767, 32768, 32769, 100_000])
def test_compressed_pieces_equal_one_compression(codec: str, size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    for step in (7000, 32768, 50_000):
        pieces = [data[at : at + step] for at in range(0, size, step)]
        result = b"".join(compress_pieces(codec, pieces))
        assert bytes(decompress(codec, result, size)) == data
        assert result == compress(codec, data)
    with pytest.raises(ValueError, match="compression is one of"):
        list(compress_pieces("lz77", [data]))


def test_gzip_gives_the_same_with_and_without_isal(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"order paid shipped " * 200
    good = compress("gzip", data)
    headed = b"\x1f\x8b\x08\x08" + good[4:10] + b"name\0" + good[10:]
    payloads = [good, good * 2, good + b"rest", headed, good[:-3], compress("gzip", b"")]
    payloads += [bytes(flipped(good, at)) for at in range(len(good))]

    def results() -> list[object]:
        out: list[object] = []
        for payload in payloads:
            for limit in (len(data), len(data) - 1):
                try:
                    out.append(decompress("gzip", payload, limit=limit).tobytes())
                except CompressionError as error:
                    out.append(str(error))
        return out

    usual = results()
    monkeypatch.setattr("logwright.codec.kernels.compress.gzip._isal", lambda: None)
    assert results() == usual
    assert usual[0] == data


def flipped(data: bytes, at: int) -> bytearray:
    out = bytearray(data)
    out[at] ^= 1 << at % 8
    return out


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_payloads_are_appended_one_after_the_other(codec: str) -> None:
    pieces = [b"x" * 70_000, b"", bytes(range(256)) * 3]
    out = Output(np.empty(10, np.uint8))
    for piece in pieces:
        append(codec, memoryview(compress(codec, piece)), out, 1 << 20)
    assert out.array.tobytes() == b"".join(pieces)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_what_cannot_be_decompressed_appends_nothing(codec: str) -> None:
    out = Output(np.empty(10, np.uint8))
    out.put(b"before")
    payload = compress(codec, bytes(100_000))
    for bad, limit in ((payload[: len(payload) // 2], 1 << 20), (payload, 99_999)):
        with pytest.raises(CompressionError):
            append(codec, memoryview(bad), out, limit)
    assert out.array.tobytes() == b"before"
