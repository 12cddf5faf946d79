"""The layout of record batches of magic 2, and of the messages of magic 0 and 1 that Kafka before 0.11 wrote.

Source: `DefaultRecordBatch`, `DefaultRecord`, `LegacyRecord`, `ControlRecordType` and `EndTransactionMarker` of Kafka's clients library
(KIP-98, KIP-534 for the delete horizon, KIP-31 and KIP-32 for magic 1). All integers are big-endian; varints are zig-zag.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from logwright.codec.deferred import deferred
from logwright.codec.describe import (
    I8,
    I16BE,
    I32BE,
    I64BE,
    U32BE,
    VARINT,
    VARLONG,
    Bit,
    Buffer,
    Bytes,
    Content,
    DescriptionError,
    Field,
    Flags,
    Int,
    Nothing,
    Repeated,
    Scope,
    Struct,
    Switch,
    time_of,
)
from logwright.codec.expression import OUTER
from logwright.codec.kernels.crc32c import crc32c_bytes

if TYPE_CHECKING:
    from logwright.codec.kernels import compress
else:
    compress = deferred("logwright.codec.kernels", "compress")

COMPRESSION_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
"""By the number in the lowest three bits of `attributes`. 5 to 7 are undefined."""
CODEC_NAMES = (*COMPRESSION_NAMES, *(f"unknown {codec}" for codec in range(len(COMPRESSION_NAMES), 8)))
"""The names of all numbers, as tables show them."""

NO_TIMESTAMP_TYPE, CREATE_TIME, LOG_APPEND_TIME = -1, 0, 1
"""Magic 0 has no timestamps."""
TIMESTAMP_TYPE_NAMES = ("CREATE_TIME", "LOG_APPEND_TIME")

MAGIC = 2
"""The magic of record batches."""
MAGICS = (0, 1, MAGIC)

ATTRIBUTES = Flags(
    Int(2),
    (
        Bit(
            "compression",
            0,
            3,
            dict(enumerate(COMPRESSION_NAMES)),
            "how the records are compressed, as one stream",
        ),
        Bit(
            "timestamp_type",
            3,
            1,
            dict(enumerate(TIMESTAMP_TYPE_NAMES)),
            "append time: every record has max_timestamp",
        ),
        Bit("is_transactional", 4, doc="the batch is part of a transaction of its producer"),
        Bit("is_control", 5, doc="the records are markers of the system, not data"),
        Bit("has_delete_horizon", 6, doc="base_timestamp is when tombstones and markers may be removed"),
    ),
)

COMPRESSION = ATTRIBUTES["compression"].mask
TIMESTAMP_TYPE = ATTRIBUTES["timestamp_type"].mask
TRANSACTIONAL = ATTRIBUTES["is_transactional"].mask
CONTROL = ATTRIBUTES["is_control"].mask
DELETE_HORIZON = ATTRIBUTES["has_delete_horizon"].mask

CONTROL_TYPES = {
    0: "ABORT",
    1: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
}

CONTROL_RECORD_KEY = Struct(
    "ControlRecordKey",
    Field("version", I16BE, "0; later ones may be longer", default=0),
    Field("type", Int(2, values=CONTROL_TYPES), "what the record marks"),
    doc="The key of a record in a control batch.",
    source="ControlRecordType",
)

END_TXN_MARKER = Struct(
    "EndTxnMarker",
    Field("version", I16BE, "0; later ones may be longer", default=0),
    Field("coordinator_epoch", I32BE, "of the transaction coordinator that ended the transaction"),
    doc="The value of an ABORT or COMMIT record.",
    source="EndTransactionMarker",
)


_MARKS = f"outer.attributes & {CONTROL} != 0"
_ENDS_TXN = f"{_MARKS} and len(key) >= {CONTROL_RECORD_KEY.head_size} and key[2] == 0 and key[3] < 2"
"""Only markers that end a transaction have this value."""


def _timestamp(value: int, scope: Scope) -> str:
    """Return the time of a record, as its producer set it."""
    batch = scope[OUTER]
    if batch.get("attributes", 0) & DELETE_HORIZON:
        return "counts from the first timestamp, which the delete horizon has replaced"
    return time_of(batch.get("base_timestamp", 0) + value)


def _offset(value: int, scope: Scope) -> str:
    return f"offset {scope[OUTER].get('base_offset', 0) + value}"


HEADER = Struct(
    "Header",
    Field("key", Bytes(VARINT, text=True), "UTF-8 by convention; may be empty, never null"),
    Field("value", Bytes(VARINT, null=-1), "any bytes"),
    doc="One header of a record. Order and duplicates are kept.",
    source="DefaultRecord",
)

RECORD = Struct(
    "Record",
    Field("length", VARINT, "bytes that follow", sizes=True),
    Field("attributes", I8, "unused", default=0),
    Field("timestamp_delta", VARLONG, "milliseconds from base_timestamp", default=0, says=_timestamp),
    Field("offset_delta", VARINT, "from base_offset; gaps are left by compaction", default=0, says=_offset),
    Field("key", Bytes(VARINT, null=-1), "null and empty differ", holds=Content(CONTROL_RECORD_KEY, _MARKS)),
    Field(
        "value",
        Bytes(VARINT, null=-1),
        "null is a tombstone in a compacted topic",
        holds=Content(END_TXN_MARKER, _ENDS_TXN),
    ),
    Field("headers", Repeated(HEADER, VARINT), default=()),
    doc="One record of a batch of magic 2.",
    source="DefaultRecord",
)

_TIME = Int(8, unit="ms")
_RECORDS = Repeated(RECORD, "records_count")


def codec_name(codec: int, magic: int = MAGIC) -> str:
    """Return the name by which `codec.kernels.compress` knows the compression of an entry. Raises `DescriptionError`."""
    if codec >= len(COMPRESSION_NAMES) or (magic < MAGIC and COMPRESSION_NAMES[codec] == "zstd"):
        raise DescriptionError(
            f"compression {codec} is unknown" + (f" in magic {magic}" if magic < MAGIC else "")
        )
    name = COMPRESSION_NAMES[codec]
    return "lz4-magic0" if name == "lz4" and magic == 0 else name


def _unpack(stored: bytes, scope: Scope, limit: int) -> bytes:
    name = codec_name(scope["attributes"] & COMPRESSION, scope["magic"])
    try:
        return compress.decompress(name, np.frombuffer(stored, np.uint8), limit).tobytes()
    except compress.CompressionError as error:
        raise DescriptionError(f"the records do not decompress: {error}") from None


RECORD_BATCH = Struct(
    "RecordBatch",
    Field("base_offset", I64BE, "offset of the first record; not covered by the checksum", default=0),
    Field("batch_length", I32BE, "bytes that follow; not covered by the checksum", sizes=True),
    Field(
        "partition_leader_epoch",
        I32BE,
        "of the leader that appended it, -1 for none; not covered by the checksum",
        default=-1,
    ),
    Field("magic", I8, "not covered by the checksum", default=MAGIC, only=MAGIC),
    Field("crc", U32BE, "CRC-32C of all that follows", checksum=(crc32c_bytes, "attributes")),
    Field("attributes", ATTRIBUTES, default=0),
    Field(
        "last_offset_delta",
        I32BE,
        "last offset of the batch minus base_offset; survives compaction",
        default=0,
        says=lambda value, scope: f"last offset {scope['base_offset'] + value}",
    ),
    Field("base_timestamp", _TIME, "that of the first record, or the delete horizon", default=-1),
    Field("max_timestamp", _TIME, "largest of the records, or the time of the append", default=-1),
    Field("producer_id", I64BE, "-1 for none", default=-1),
    Field("producer_epoch", I16BE, "-1 for none", default=-1),
    Field("base_sequence", I32BE, "sequence number of the first record, -1 for none", default=-1),
    Field("records_count", I32BE, "records present: compaction may leave fewer, even none"),
    Field(
        "records",
        Switch(f"attributes & {COMPRESSION}", {0: _RECORDS, None: Bytes("rest")}),
        "records one after the other, or a compressed stream of them",
        holds=Content(_RECORDS, None, f"attributes & {COMPRESSION} != 0", _unpack),
        rows=True,
    ),
    doc="A record batch of Kafka 0.11 or later: a header of 61 bytes, then the records.",
    source="DefaultRecordBatch",
)

HEAD = RECORD_BATCH.head_dtype
"""The 61 fixed bytes, packed and big-endian."""

HEAD_SIZE = RECORD_BATCH.head_size
LENGTH_END = RECORD_BATCH.offset("partition_leader_epoch")
"""Bytes up to and including batch_length, which does not count them."""
MIN_LENGTH = HEAD_SIZE - LENGTH_END
"""The smallest batch_length: a batch without records."""
CRC_START = RECORD_BATCH.offset("attributes")
"""The first byte that the checksum covers."""
MAX_OFFSET_DELTA = (1 << 31) - 1
"""The largest distance of an offset from the base of its segment: indexes store it in 32 bits."""
MIN_RECORD = RECORD.min_size
"""The size of the smallest record."""


_MESSAGE_ATTRIBUTES = Flags(
    Int(1, signed=False),
    (
        Bit("compression", 0, 3, dict(enumerate(COMPRESSION_NAMES[:4])), "how the value is compressed"),
        Bit(
            "timestamp_type",
            3,
            1,
            dict(enumerate(TIMESTAMP_TYPE_NAMES)),
            "magic 1, append time: that of a wrapper is every inner message's",
        ),
    ),
)


def _message(name: str, doc: str, holds: Content | None) -> Struct:
    return Struct(
        name,
        Field(
            "offset", I64BE, "of a wrapper: of its last inner message; not covered by the checksum", default=0
        ),
        Field("message_size", I32BE, "bytes that follow; not covered by the checksum", sizes=True),
        Field("crc", U32BE, "CRC-32 of all that follows", checksum=(zlib.crc32, "magic")),
        Field("magic", I8, "0, or 1 with a timestamp", default=1),
        Field("attributes", _MESSAGE_ATTRIBUTES, default=0),
        Field(
            "timestamp",
            Switch("magic", {1: _TIME, None: Nothing()}),
            "of a wrapper: the largest of its inner messages, or the time of the append",
        ),
        Field("key", Bytes(I32BE, null=-1), "null and empty differ"),
        Field(
            "value",
            Bytes(I32BE, null=-1),
            "null is a tombstone in a compacted topic",
            holds=holds,
            rows=bool(holds),
        ),
        doc=doc,
        source="LegacyRecord",
    )


INNER_MESSAGE = _message("InnerMessage", "A message in a wrapper.", None)
MESSAGE_SET = Repeated(INNER_MESSAGE)
MESSAGE = _message(
    "Message",
    "A message of Kafka before 0.11. If it is compressed, its value is a set of messages: with absolute offsets in magic 0, with offsets"
    " that count from the first one in magic 1.",
    Content(MESSAGE_SET, None, f"attributes & {COMPRESSION} != 0", _unpack),
)
MIN_MESSAGE = MESSAGE.head_size + 2 * I32BE.min_size
"""The size of the smallest message of magic 0. One of magic 1 is larger by its timestamp."""
MESSAGE_TIME = _TIME.min_size


_FRAME = Struct(
    "LogFrame",
    Field(
        "frame",
        Switch(f"u32be(16) < {MAGIC << 24}", {1: MESSAGE, 0: RECORD_BATCH}),
        "a message or a batch, by its magic",
    ),
)
LOG_SEGMENT = Struct(
    "LogSegment",
    Field(
        "frames", Repeated(_FRAME, least=LENGTH_END + 8), "batches, and messages of magic 0 and 1", rows=True
    ),
    Field("rest", Bytes(), "what is left: usually zeros", default=b""),
    doc="A segment of a partition.",
)


class _Entry(Struct):
    """A batch or a message. The byte at the place of the magic says which."""

    def unpack(
        self, buf: Buffer, at: int = 0, end: int | None = None, scope: Scope | None = None
    ) -> tuple[dict[str, Any], int]:
        values, stop = struct_at(buf, at).unpack(buf, at, end, scope)
        return {**dict.fromkeys(field.name for field in self.fields), **values}, stop

    def check(self, buf: Buffer, at: int, end: int) -> list[tuple[str, int, int]]:
        return struct_at(buf, at).check(buf, at, end)


ENTRY = _Entry("Entry", *RECORD_BATCH.fields)


def struct_at(buf: Buffer, at: int) -> Struct:
    """Return the structure of the entry at `buf[at]`."""
    place = at + RECORD_BATCH.offset("magic")
    return MESSAGE if place < len(buf) and buf[place] < MAGIC else RECORD_BATCH


def least_size(magic: int) -> int:
    """Return the size of the smallest entry of a magic."""
    return HEAD_SIZE if magic >= MAGIC else MIN_MESSAGE + (MESSAGE_TIME if magic == 1 else 0)
