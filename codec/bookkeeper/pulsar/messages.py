"""The rows of Pulsar's messages, from the rows of entries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from logwright.codec.bookkeeper.formats.entries import entry_range
from logwright.codec.bookkeeper.pulsar.entry import MessageError, NotPulsarError, messages_of
from logwright.codec.capability import Report
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.table import TIMESTAMP, Column, Table

_PROPERTIES = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
MESSAGES = Table(
    "pulsar",
    (
        Column("ledger_id", pa.int64(), "the ledger", nullable=False, prunes=True),
        Column("entry_id", pa.int64(), "the entry", nullable=False),
        Column("batch_index", pa.int32(), "the place in the batch that the entry is; null if it is one message"),
        Column("publish_time", TIMESTAMP, "when the producer sent the message"),
        Column("event_time", TIMESTAMP, "the application's time; null if it set none"),
        Column("producer_name", pa.string(), "the producer"),
        Column("sequence_id", pa.int64(), "the producer's number of the message"),
        Column("partition_key", pa.string(), "the key as it is stored"),
        Column("properties", _PROPERTIES, "the application's properties"),
        Column("payload", pa.binary(), "the decompressed message; null if it has none"),
        Column("index", pa.int64(), "the message's number in its topic, if the broker stored it", detail=True),
        Column("broker_timestamp", TIMESTAMP, "the broker's time, if it stored it", detail=True),
        Column("compression", pa.string(), "how the message or its batch is stored", detail=True),
        Column("num_messages_in_batch", pa.int32(), "number of messages of the batch", detail=True),
        Column("partition_key_b64_encoded", pa.bool_(), "whether partition_key is Base64 of the key", detail=True),
        Column("null_partition_key", pa.bool_(), "whether the key is null", detail=True),
        Column("ordering_key", pa.binary(), "the ordering key", detail=True),
        Column("schema_version", pa.binary(), "the version of the schema", detail=True),
        Column("deliver_at_time", TIMESTAMP, "when a delayed message is delivered", detail=True),
        Column("null_value", pa.bool_(), "whether the message is a tombstone", detail=True),
        Column("compacted_out", pa.bool_(), "whether compaction removed the message from its batch", detail=True),
        Column("marker_type", pa.int32(), "the type of a marker, which no consumer gets", detail=True),
        Column("txnid_most_bits", pa.int64(), "the transaction", detail=True),
        Column("txnid_least_bits", pa.int64(), "the transaction", detail=True),
        Column("highest_sequence_id", pa.int64(), "sequence_id of the last message of the batch", detail=True),
        Column("replicated_from", pa.string(), "the cluster that the message comes from", detail=True),
        Column("replicate_to", pa.list_(pa.string()), "the clusters that the message goes to", detail=True),
        Column("uuid", pa.string(), "the large message that this chunk is part of", detail=True),
        Column("chunk_id", pa.int32(), "the number of the chunk", detail=True),
        Column("num_chunks_from_msg", pa.int32(), "number of chunks of the large message", detail=True),
        Column("total_chunk_msg_size", pa.int32(), "bytes of the large message", detail=True),
        Column("encryption_keys", pa.list_(pa.string()), "the names of the keys that can decrypt the message", detail=True),
        Column("encryption_algo", pa.string(), "the algorithm of encryption", detail=True),
        Column("encryption_param", pa.binary(), "the initialization vector", detail=True),
        Column("note", pa.string(), "why payload is not the message, else null", detail=True),
        Column("file", pa.string(), "the entry log or journal", nullable=False, detail=True),
        Column("position", pa.int64(), "byte of the file where the entry's size is", nullable=False, detail=True),
    ),
    "One row per message, by ledger, entry and place in the batch.",
    key=("ledger_id", "entry_id", "batch_index"),
)  # fmt: skip
_TIMES = frozenset(column.name for column in MESSAGES.columns if column.type == TIMESTAMP)
_ROWS, _BYTES = 1 << 15, 64 << 20
"""Limits of the rows of a batch, and of their payloads."""
ENTRY_COLUMNS = ("ledger_id", "entry_id", "payload", "digest_type", "file", "position")
"""The columns of entries that are read."""


def message_rows(
    entries: Iterable[pa.RecordBatch], columns: Sequence[str], report: Report
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of entries, which have the columns `ENTRY_COLUMNS`. An entry that cannot be decoded is reported."""
    rows: list[Mapping[str, Any]] = []
    size = 0
    for batch in entries:
        for entry in _entries(batch):
            payload = entry["payload"]
            own = {name: entry[name] for name in ("ledger_id", "entry_id", "file", "position")}
            try:
                messages = [{**message, **own} for message in messages_of(payload)]
            except (MessageError, NotPulsarError) as error:
                report(_fault(entry, error), entry["file"], payload)
                continue
            rows += messages
            size += sum(len(message["payload"] or b"") for message in messages)
            if len(rows) >= _ROWS or size >= _BYTES:
                yield _batch(rows, columns)
                rows, size = [], 0
    if rows:
        yield _batch(rows, columns)


def _entries(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield rows of entries, a few at a time."""
    for at in range(0, batch.num_rows, 1024):
        yield from batch.slice(at, 1024).to_pylist()


def _fault(entry: Mapping[str, Any], error: Exception) -> Fault:
    ids = entry_range(entry["ledger_id"], entry["entry_id"], entry["entry_id"])
    text = f"entry {entry['entry_id']} of ledger {entry['ledger_id']}: {error}"
    foreign = isinstance(error, NotPulsarError)
    if entry["digest_type"] is None:
        text += "; its digest type is unknown, so its payload starts with the digest: pass the option digestType (--digestType)"
    severity = Severity.WARNING if foreign else Severity.ERROR
    size = len(entry["payload"])
    lost = None if foreign else 1
    name = "bookkeeper.journal" if entry["file"].endswith(".txn") else "bookkeeper.entrylog"
    return Fault(
        name, entry["position"], size, Kind.PAYLOAD, text, severity, "", lost, {} if foreign else ids
    )


def _batch(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pa.RecordBatch:
    return MESSAGES.batch(columns, lambda name: _column(rows, name), len(rows))


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> pa.Array:
    values = [row.get(name) for row in rows]
    if name == "properties":
        values = [value or [] for value in values]
    elif name == "encryption_keys":
        values = [None if value is None else [key["key"] for key in value] for value in values]
    elif name in _TIMES:
        values = [value or None for value in values]
    return pa.array(values, MESSAGES[name].type)
