"""A message of the commit log: its fields and its frame specification.

Source: `MessageExtEncoder`, `CommitLog.checkMessageAndReturnSize` and `MessageDecoder` of RocketMQ.
"""

from __future__ import annotations

import zlib

import numpy as np

from logwright.codec.describe import (
    I16BE,
    I32BE,
    I64BE,
    U32BE,
    Bit,
    Bytes,
    Field,
    Flags,
    Int,
    Struct,
    Switch,
)
from logwright.codec.frames.specification import (
    CERTAIN,
    CRC32,
    IMPOSSIBLE,
    Checksum,
    Equals,
    FrameSpec,
    Length,
    Marker,
    Position,
)
from logwright.codec.kernels.bitflip import KNOWN
from logwright.codec.kernels.crc32 import crc32
from logwright.codec.kernels.intrinsics import Bytes as Buffer
from logwright.codec.kernels.intrinsics import (
    load_i16be,
    load_i32be,
    load_i64be,
    load_u8,
    load_u32be,
    prefetch,
)
from logwright.codec.kernels.kernel import kernel

V1, V2, BLANK_MAGIC = 0xDAA320A7, 0xDAA320AB, 0xCBD43194

COMPRESSED, BORN_V6, STORE_V6 = 0x1, 0x10, 0x20
TRANSACTION, PREPARED, ROLLBACK = 0xC, 0x4, 0xC
INNER_BATCH = 0x80
LOST_FLAG = int.from_bytes(b"LOST", "big")
"""The `flag` of a message that replaces a lost or removed one. Its body is zeros."""
COMPRESSION_SHIFT = 8
HOST_V4, HOST_V6 = 8, 20
"""Size of a host (address and port) in bytes."""
MAX_TOPIC_V1 = 127
MAX_PROPERTIES = 32767
CRC_MASK = 0x7FFFFFFF


def body_crc(body: bytes) -> int:
    """Return the CRC-32 of a body without its highest bit."""
    return zlib.crc32(body) & CRC_MASK


setattr(body_crc, KNOWN, CRC_MASK)


SYS_FLAG = Flags(
    I32BE,
    (
        Bit("COMPRESSED", 0, doc="the body is compressed"),
        Bit("MULTI_TAGS", 1),
        Bit("TRANSACTION", 2, 2, {0: "none", 1: "prepared", 2: "commit", 3: "rollback"}),
        Bit("BORN_HOST_V6", 4, doc="born_host has 20 bytes"),
        Bit("STORE_HOST_V6", 5, doc="store_host has 20 bytes"),
        Bit("NEED_UNWRAP", 6),
        Bit("INNER_BATCH", 7),
        Bit("COMPRESSION_TYPE", 8, 3, {0: "zlib", 1: "LZ4", 2: "Zstd", 3: "zlib"}),
    ),
)
I64MS = Int(8, unit="ms")
HOST_OF_V4 = Struct("HostV4", Field("address", Bytes(4), "IPv4 address"), Field("port", I32BE, "port"))
HOST_OF_V6 = Struct("HostV6", Field("address", Bytes(16), "IPv6 address"), Field("port", I32BE, "port"))


def _host(bit: int) -> Switch:
    return Switch(f"sys_flag & {bit}", {0: HOST_OF_V4, bit: HOST_OF_V6})


MESSAGE = Struct(
    "Message",
    Field("total_size", I32BE, "bytes of the message", measures=True),
    Field("magic_code", U32BE, "0xdaa320a7: V1; 0xdaa320ab: V2, for topics of more than 127 characters"),
    Field(
        "body_crc",
        U32BE,
        "CRC-32 of the body alone, in 31 bits",
        checksum=(body_crc, "body"),
        until="body",
    ),
    Field("queue_id", I32BE, "queue of the topic", default=0),
    Field("flag", I32BE, "application-defined flag", default=0),
    Field("queue_offset", I64BE, "offset of the message in its queue", default=0),
    Field(
        "physical_offset",
        I64BE,
        "offset of the message in the commit log: the number in the file name plus the byte where it starts",
    ),
    Field("sys_flag", SYS_FLAG, "flags of the stored form", default=0),
    Field("born_timestamp", I64MS, "when the producer created the message", default=0),
    Field("born_host", _host(BORN_V6), "the producer", default={"address": bytes(4), "port": 0}),
    Field("store_timestamp", I64MS, "when the broker stored the message", default=0),
    Field("store_host", _host(STORE_V6), "the broker", default={"address": bytes(4), "port": 0}),
    Field("reconsume_times", I32BE, "number of delivery retries", default=0),
    Field("prepared_transaction_offset", I64BE, "of a commit: offset of the prepared message", default=0),
    Field("body_length", I32BE, "size of the stored body in bytes"),
    Field("body", Bytes("body_length"), "the stored body"),
    Field(
        "topic",
        Switch("magic_code", {V2: Bytes(I16BE, text=True), None: Bytes(Int(1), text=True)}),
        "the topic",
    ),
    Field(
        "properties",
        Bytes(I16BE, text=True),
        "repeated: name 0x01 value 0x02",
        default=b"",
    ),
    doc="Only the body has a checksum without __CRC32#. Brokers do not write that property by default.",
    source="MessageExtEncoder.encode",
)
BLANK = Struct(
    "Blank",
    Field("total_size", I32BE, "bytes up to the end of the file"),
    Field("magic_code", U32BE, "0xcbd43194", only=BLANK_MAGIC),
    doc="The last record of a full file, written if the next message did not fit. The bytes after it are undefined.",
)
LEAST_BLANK = BLANK.head_size
"""Bytes that a broker leaves free after the last message of a file, for the blank record."""

HEAD = MESSAGE.head_size
STORE_TIMESTAMP = MESSAGE.offset("born_host") + HOST_V4
"""Offset in a message with IPv4 hosts, as are those below."""
STORE_HOST = STORE_TIMESTAMP + 8
RECONSUME_TIMES = STORE_HOST + HOST_V4
PREPARED_OFFSET = RECONSUME_TIMES + 4
BODY_LENGTH = PREPARED_OFFSET + 8
BODY = BODY_LENGTH + 4
AFTER_HOSTS = BODY - RECONSUME_TIMES
"""Bytes between the address of the broker and the body."""
LARGEST_PORT = 65535
WRONG_PORT = CERTAIN + 1
"""The verdict of a message with a port that a client refuses."""
SMALLEST = BODY + 1 + 2
_MAGIC, _CRC, _SYS_FLAG = (MESSAGE.offset(name) for name in ("magic_code", "body_crc", "sys_flag"))
V6_EXTRA = HOST_V6 - HOST_V4
"""Size difference of an IPv6 and an IPv4 host in bytes."""

TRAILER = 20
"""Size of the property that holds the checksum of the complete message: name, 0x01, ten digits, 0x02."""
CRC_NAME = "__CRC32#"
CRC_NAME_NUMBER = int.from_bytes(CRC_NAME.encode(), "big")
DIGITS = 10

_AHEAD, _AT_ONCE, _LINE = 2048, 512, 64
"""The bytes to prefetch with each message: where they start, counted from the start of the message, how many they are, and the size of a
cache line."""


@kernel("const u1[], i8", inline=True)
def prefetch_after(buf: Buffer, at: int) -> None:
    """Prefetch bytes after the message at `at`: they belong to messages that are read soon."""
    for i in range(0, _AT_ONCE, _LINE):
        prefetch(buf, at + _AHEAD + i)


@kernel("const u1[], i8, i8, i8")
def message_rule(buf: Buffer, at: int, end: int, check: int) -> int:
    """Check that the parts of a message add up to its size, as upstream does. Also reject zeros at the end of the properties: a torn
    write leaves them, and no checksum covers them. The verdict of a message whose ports a client refuses is `WRONG_PORT`."""
    flags = load_i32be(buf, at + _SYS_FLAG)
    stored = at + STORE_TIMESTAMP
    if flags & BORN_V6:
        stored += V6_EXTRA
    position = stored + BODY_LENGTH - STORE_TIMESTAMP
    if flags & STORE_V6:
        position += V6_EXTRA
    if end - position < 4:
        return IMPOSSIBLE
    length = load_i32be(buf, position)
    position += 4
    ports = load_u32be(buf, stored - 4) | load_u32be(buf, position - AFTER_HOSTS - 4)
    if length < 0 or length > end - position:
        return IMPOSSIBLE
    position += length
    if load_u32be(buf, at + _MAGIC) == V2:
        if end - position < 2:
            return IMPOSSIBLE
        length = load_i16be(buf, position)
        position += 2
    else:
        if end - position < 1:
            return IMPOSSIBLE
        length = load_u8(buf, position)
        position += 1
        if length > MAX_TOPIC_V1:
            return IMPOSSIBLE
    if length < 0 or length > end - position - 2:
        return IMPOSSIBLE
    position += length
    length = load_i16be(buf, position)
    if length < 0 or position + 2 + length != end:
        return IMPOSSIBLE
    if length > 0 and load_u8(buf, end - 1) == 0:
        return IMPOSSIBLE
    return CERTAIN if ports <= LARGEST_PORT else WRONG_PORT


@kernel("const u1[], i8")
def parts_of(buf: Buffer, at: int) -> tuple[int, int, int, int, int]:
    """Return the offset of the store timestamp, and offset and size of body and topic, of a valid message. The size of the
    properties and the properties follow."""
    flags = load_i32be(buf, at + _SYS_FLAG)
    stored = at + STORE_TIMESTAMP
    if flags & BORN_V6:
        stored += V6_EXTRA
    body = stored + BODY - STORE_TIMESTAMP
    if flags & STORE_V6:
        body += V6_EXTRA
    size = load_i32be(buf, body - 4)
    topic = body + size
    if load_u32be(buf, at + _MAGIC) == V2:
        return stored, body, size, topic + 2, load_i16be(buf, topic)
    return stored, body, size, topic + 1, load_u8(buf, topic)


@kernel("const u1[], i8, i8")
def body_span(buf: Buffer, at: int, end: int) -> tuple[int, int, int]:
    """Return the range of the body and its stored checksum."""
    _, body, size, _, _ = parts_of(buf, at)
    return body, body + size, load_u32be(buf, at + _CRC)


@kernel("const u1[], i8, i8")
def has_trailer(buf: Buffer, at: int, end: int) -> bool:
    """Return whether a message ends with the checksum property."""
    return (
        end - at >= SMALLEST + TRAILER
        and load_i64be(buf, end - TRAILER) == CRC_NAME_NUMBER
        and load_u8(buf, end - TRAILER + 8) == 1
        and load_u8(buf, end - 1) == 2
        and load_i16be(buf, end - TRAILER - 2) != 0
    )


def trailer_of(data: Buffer, at: int, stop: int) -> Buffer:
    """Return the checksum property of the message `data[at:stop]`."""
    digits = f"{int(crc32(data, at, stop)) & CRC_MASK:0{DIGITS}d}"[::-1]
    return np.frombuffer(f"{CRC_NAME}\x01{digits}\x02".encode(), np.uint8)


@kernel("const u1[], i8, i8")
def message_span(buf: Buffer, at: int, end: int) -> tuple[int, int, int]:
    """Return the range before the checksum property and the stored checksum. Its decimal digits are stored lowest first."""
    if not has_trailer(buf, at, end):
        return -1, -1, 0
    stored = 0
    for i in range(DIGITS):
        digit = load_u8(buf, end - 2 - i) - 48
        if digit < 0 or digit > 9:
            return at, end - TRAILER, -1
        stored = stored * 10 + digit
    return at, end - TRAILER, stored


SPECIFICATION = FrameSpec(
    "rocketmq.commitlog",
    MESSAGE,
    Length("total_size", low=SMALLEST),
    test=Equals("magic_code", (V1, V2)),
    marker=Marker("blank", BLANK, "magic_code", BLANK_MAGIC),
    checksums=(
        Checksum(CRC32, "body_crc", body_span, mask=CRC_MASK),
        Checksum(CRC32, "properties", message_span, mask=CRC_MASK),
    ),
    claims=Position("physical_offset"),
    rule=message_rule,
    zero_ends=True,
    verdicts=True,
    kind="message",
)
