"""`.snapshot`: the state of all producers up to the offset in the file's name. Source: `ProducerStateManager`."""

from __future__ import annotations

import re

import pyarrow as pa
from crc32c import crc32c

from logwright.codec.describe import I16BE, I32BE, I64BE, U32BE, Field, Repeated, Struct
from logwright.codec.fault import Kind
from logwright.codec.table import Column
from logwright.codec.whole import ParseError, Rows, WholeCodec

_FIELDS = (
    Field("producer_id", I64BE, "the producer"),
    Field("producer_epoch", I16BE, "its epoch"),
    Field("last_sequence", I32BE, "sequence number of its last record, -1 for none"),
    Field("last_offset", I64BE, "offset of its last data record, -1 for none"),
    Field("offset_delta", I32BE, "last less first offset of its last batch"),
    Field("timestamp", I64BE, "of its last batch or marker, in milliseconds"),
    Field("coordinator_epoch", I32BE, "of the coordinator that ended its last transaction, -1 for none"),
    Field("current_txn_first_offset", I64BE, "first offset of the transaction it has open, -1 for none"),
)
PRODUCER_ENTRY = Struct(
    "ProducerEntry", *_FIELDS, doc="The state of one producer.", source="ProducerStateEntry"
)
VERSION = 1
PRODUCER_SNAPSHOT = Struct(
    "ProducerSnapshot",
    Field("version", I16BE, "1", default=VERSION),
    Field("crc", U32BE, "CRC-32C of all that follows", checksum=(crc32c, "count")),
    Field("count", I32BE, "number of entries"),
    Field("entries", Repeated(PRODUCER_ENTRY, "count"), "in the order of a java.util.HashMap"),
    doc="Producer state as of an offset.",
    source="ProducerStateManager.writeSnapshot",
)
_TYPES = {2: pa.int16(), 4: pa.int32(), 8: pa.int64()}


def _parse(data: bytes) -> Rows:
    head, entry = PRODUCER_SNAPSHOT.offset("entries"), PRODUCER_ENTRY.min_size
    if len(data) < head:
        raise ParseError(f"{len(data)} bytes, the head alone has {head}", kind=Kind.TRUNCATED)
    version = int.from_bytes(data[:2], "big", signed=True)
    if version != VERSION:
        raise ParseError(f"version {version}, {VERSION} was expected", kind=Kind.MAGIC)
    stored = int.from_bytes(data[2:6], "big")
    computed = crc32c(data[PRODUCER_SNAPSHOT.offset("count") :])
    if stored != computed:
        raise ParseError(f"crc {stored:#010x} is stored, {computed:#010x} computed", 2, Kind.CHECKSUM)
    count = int.from_bytes(data[6:10], "big", signed=True)
    if head + count * entry != len(data):
        raise ParseError(
            f"{count} entries take {head + count * entry} bytes, there are {len(data)}", 6, Kind.LENGTH
        )
    value, _ = PRODUCER_SNAPSHOT.unpack(data)
    rows: Rows = value["entries"]
    return rows


def _form(rows: Rows) -> bytes:
    return PRODUCER_SNAPSHOT.pack({"count": len(rows), "entries": rows})


CODEC = WholeCodec(
    name="kafka.producer_snapshot",
    title="Kafka producer state snapshot",
    pattern=re.compile(r"\d{20}\.snapshot(?:\.deleted)?"),
    columns=tuple(
        Column(field.name, _TYPES[field.type.min_size], field.doc, nullable=False) for field in _FIELDS
    ),
    parse=_parse,
    form=_form,
    system="the broker deletes it and goes back to the one before",
    structures=(PRODUCER_SNAPSHOT, PRODUCER_ENTRY),
)
