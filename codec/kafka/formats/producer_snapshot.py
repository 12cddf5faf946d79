"""`.snapshot`: the state of all producers up to the offset in the file's name. Source: `ProducerStateManager`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.base import Codec
from logwright.codec.describe import I16BE, I32BE, I64BE, U32BE, Field, Int, Repeated, Struct, dtype_of
from logwright.codec.fault import Kind
from logwright.codec.kernels.crc32c import crc32c_bytes
from logwright.codec.single_frame import ParseError, SmallFileCodec
from logwright.codec.table import Column

_FIELDS = (
    Field("producer_id", I64BE, "the producer"),
    Field("producer_epoch", I16BE, "its epoch"),
    Field("last_sequence", I32BE, "sequence number of its last record, -1 for none"),
    Field("last_offset", I64BE, "offset of its last data record, -1 for none"),
    Field("offset_delta", I32BE, "last minus first offset of its last batch"),
    Field("timestamp", Int(8, unit="ms"), "of its last batch or marker, in milliseconds"),
    Field("coordinator_epoch", I32BE, "of the coordinator that ended its last transaction, -1 for none"),
    Field("current_txn_first_offset", I64BE, "first offset of the transaction it has open, -1 for none"),
)
PRODUCER_ENTRY = Struct(
    "ProducerEntry", *_FIELDS, doc="The state of one producer.", source="ProducerStateEntry"
)
VERSION = 1
PRODUCER_SNAPSHOT = Struct(
    "ProducerSnapshot",
    Field("version", I16BE, "1", default=VERSION, only=VERSION),
    Field("crc", U32BE, "CRC-32C of all that follows", checksum=(crc32c_bytes, "count")),
    Field("count", I32BE, "number of entries"),
    Field("entries", Repeated(PRODUCER_ENTRY, "count"), "in the order of a java.util.HashMap", rows=True),
    doc="Producer state as of an offset.",
    source="ProducerStateManager.writeSnapshot",
)

ENTRY = dtype_of(PRODUCER_ENTRY)
Entries = npt.NDArray[Any]
"""Array of `ENTRY`. There may be a million, so they stay columns."""

_HEAD = PRODUCER_SNAPSHOT.head_size
_CRC, _COVERED = PRODUCER_SNAPSHOT.offset("crc"), PRODUCER_SNAPSHOT.offset("count")
_TYPES = {2: pa.int16(), 4: pa.int32(), 8: pa.int64()}


def unpack(data: bytes) -> Entries:
    """Return the entries of a snapshot. Raises `ParseError`."""
    if len(data) < _HEAD:
        raise ParseError(f"{len(data)} bytes, expected at least {_HEAD} for the header", kind=Kind.TRUNCATED)
    head = np.frombuffer(data, PRODUCER_SNAPSHOT.head_dtype, 1)[0]
    if head["version"] != VERSION:
        # No checksum covers the version. A broker rebuilds the file from the log.
        raise ParseError(f"version {head['version']}, expected {VERSION}", kind=Kind.MAGIC)
    computed = crc32c_bytes(memoryview(data)[_COVERED:])
    if head["crc"] != computed:
        raise ParseError(
            f"crc mismatch: stored {int(head['crc']):#010x}, computed {computed:#010x}", _CRC, Kind.CHECKSUM
        )
    count = int(head["count"])
    size = _HEAD + count * ENTRY.itemsize
    if count < 0 or size != len(data):
        raise ParseError(
            f"{count} entries take {size} bytes, but the file has {len(data)}", _COVERED, Kind.LENGTH
        )
    return np.frombuffer(data, ENTRY, count, _HEAD)


def pack(entries: Entries) -> bytes:
    """Return the content of the file."""
    covered = PRODUCER_SNAPSHOT["count"].type.pack(len(entries), {}) + entries.tobytes()
    head = np.array((VERSION, crc32c_bytes(covered), 0), PRODUCER_SNAPSHOT.head_dtype)
    return head.tobytes()[:_COVERED] + covered


def _parse(data: bytes) -> pa.Table:
    entries = unpack(data)
    arrays = [
        pa.array(entries[name].astype(entries.dtype[name].newbyteorder("="))) for name in ENTRY.names or ()
    ]
    return pa.Table.from_arrays(arrays, names=list(ENTRY.names or ()))


def _form(rows: pa.Table) -> bytes:
    entries = np.empty(rows.num_rows, ENTRY)
    for name in ENTRY.names or ():
        entries[name] = rows[name].to_numpy()
    return pack(entries)


CODEC = SmallFileCodec(
    name="kafka.producer_snapshot",
    title="Kafka producer state snapshot",
    pattern=re.compile(r"\d{20}\.snapshot(?:\.deleted)?"),
    columns=tuple(
        Column(field.name, _TYPES[field.type.min_size], field.doc, nullable=False) for field in _FIELDS
    ),
    parse=_parse,
    form=_form,
    system="the broker deletes it and loads the one before",
    structures=(PRODUCER_SNAPSHOT, PRODUCER_ENTRY),
    largest=Codec.largest,
)
