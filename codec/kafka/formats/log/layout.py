"""The layout of record batches of magic 2.

Source: `DefaultRecordBatch`, `DefaultRecord`, `ControlRecordType` and `EndTransactionMarker` of Kafka's clients library
(KIP-98, KIP-534 for the delete horizon). All integers are big-endian; varints are zig-zag.
"""

from __future__ import annotations

import numpy as np
from crc32c import crc32c

from logwright.codec.describe import (
    I8,
    I16BE,
    I32BE,
    I64BE,
    U32BE,
    VARINT,
    VARLONG,
    Bit,
    Bytes,
    Content,
    DescriptionError,
    Field,
    Flags,
    Int,
    Repeated,
    Scope,
    Struct,
    Switch,
    time_of,
)
from logwright.codec.expression import OUTER
from logwright.codec.kernels.compress import CompressionError, decompress

COMPRESSION_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
"""By the number in the lowest three bits of `attributes`. 5 to 7 are undefined."""

CREATE_TIME, LOG_APPEND_TIME = 0, 1
TIMESTAMP_TYPE_NAMES = ("CREATE_TIME", "LOG_APPEND_TIME")

MAGIC = 2

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
            "append time: max_timestamp is every record's",
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


def _unpack(stored: bytes, scope: Scope, limit: int) -> bytes:
    codec = scope["attributes"] & COMPRESSION
    if codec >= len(COMPRESSION_NAMES):
        raise DescriptionError(f"compression {codec} is unknown")
    try:
        return decompress(COMPRESSION_NAMES[codec], np.frombuffer(stored, np.uint8), limit).tobytes()
    except CompressionError as error:
        raise DescriptionError(f"the records do not decompress: {error}") from None


RECORD_BATCH = Struct(
    "RecordBatch",
    Field("base_offset", I64BE, "offset of the first record; not covered by the checksum", default=0),
    Field("batch_length", I32BE, "bytes that follow; not covered by the checksum", sizes=True),
    Field(
        "partition_leader_epoch",
        I32BE,
        "of the leader that appended it, -1 for none; not covered",
        default=-1,
    ),
    Field("magic", I8, "not covered by the checksum", default=MAGIC, only=MAGIC),
    Field("crc", U32BE, "CRC-32C of all that follows", checksum=(crc32c, "attributes")),
    Field("attributes", ATTRIBUTES, default=0),
    Field(
        "last_offset_delta",
        I32BE,
        "last offset of the batch less base_offset; survives compaction",
        default=0,
        says=lambda value, scope: f"offset {scope['base_offset'] + value}",
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
MIN_RECORD = RECORD.min_size
"""The size of the smallest record."""
