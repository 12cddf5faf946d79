"""Pulsar's messages in the payload of one entry.

A payload has up to four parts: the broker's metadata and a CRC-32C, each behind its magic number, then the metadata of the message, and its
content. The content of a batch is a sequence of messages that have metadata too.

Source: `Commands` and `PulsarApi.proto` of Pulsar, and `MessageImpl` for the fields of messages in a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from logwright.codec.bookkeeper.pulsar.protobuf import Field, Fields, Kind, ProtobufError, read_message
from logwright.codec.kernels.compress import CompressionError, decompress
from logwright.codec.kernels.crc32c import crc32c_bytes

BROKER_MAGIC, CHECKSUM_MAGIC = b"\x0e\x02", b"\x0e\x01"
LARGEST = 1 << 28
"""The most bytes that a payload is decompressed to. Brokers accept 5 MiB by default (`maxMessageSize`)."""
COMPRESSIONS = {0: "NONE", 1: "LZ4", 2: "ZLIB", 3: "ZSTD", 4: "SNAPPY"}
_READERS = {1: "lz4-raw", 2: "zlib-flushed", 3: "zstd", 4: "snappy-raw"}
_KEY_VALUE: Fields = {1: Field("key", Kind.TEXT, required=True), 2: Field("value", Kind.TEXT, required=True)}
_BROKER: Fields = {1: Field("broker_timestamp", Kind.INT64), 2: Field("index", Kind.INT64)}
_ENCRYPTION_KEY: Fields = {
    1: Field("key", Kind.TEXT, required=True),
    2: Field("value", Kind.BYTES, required=True),
    3: Field("metadata", _KEY_VALUE, repeated=True),
}
_METADATA: Fields = {
    1: Field("producer_name", Kind.TEXT, required=True),
    2: Field("sequence_id", Kind.INT64, required=True),
    3: Field("publish_time", Kind.INT64, required=True),
    4: Field("properties", _KEY_VALUE, repeated=True),
    5: Field("replicated_from", Kind.TEXT),
    6: Field("partition_key", Kind.TEXT),
    7: Field("replicate_to", Kind.TEXT, repeated=True),
    8: Field("compression", Kind.INT32),
    9: Field("uncompressed_size", Kind.INT32),
    11: Field("num_messages_in_batch", Kind.INT32),
    12: Field("event_time", Kind.INT64),
    13: Field("encryption_keys", _ENCRYPTION_KEY, repeated=True),
    14: Field("encryption_algo", Kind.TEXT),
    15: Field("encryption_param", Kind.BYTES),
    16: Field("schema_version", Kind.BYTES),
    17: Field("partition_key_b64_encoded", Kind.BOOL),
    18: Field("ordering_key", Kind.BYTES),
    19: Field("deliver_at_time", Kind.INT64),
    20: Field("marker_type", Kind.INT32),
    22: Field("txnid_least_bits", Kind.INT64),
    23: Field("txnid_most_bits", Kind.INT64),
    24: Field("highest_sequence_id", Kind.INT64),
    25: Field("null_value", Kind.BOOL),
    26: Field("uuid", Kind.TEXT),
    27: Field("num_chunks_from_msg", Kind.INT32),
    28: Field("total_chunk_msg_size", Kind.INT32),
    29: Field("chunk_id", Kind.INT32),
    30: Field("null_partition_key", Kind.BOOL),
}
_SINGLE: Fields = {
    1: Field("properties", _KEY_VALUE, repeated=True),
    2: Field("partition_key", Kind.TEXT),
    3: Field("payload_size", Kind.INT32, required=True),
    4: Field("compacted_out", Kind.BOOL),
    5: Field("event_time", Kind.INT64),
    6: Field("partition_key_b64_encoded", Kind.BOOL),
    7: Field("ordering_key", Kind.BYTES),
    8: Field("sequence_id", Kind.INT64),
    9: Field("null_value", Kind.BOOL),
    10: Field("null_partition_key", Kind.BOOL),
}
_OF_BATCH = ("properties", "partition_key", "partition_key_b64_encoded", "ordering_key")
"""Fields that a message in a batch does not take from the metadata of the batch."""


class NotPulsarError(ValueError):
    """The payload starts neither with a magic number nor with metadata: it is no message."""


class MessageError(ValueError):
    """The payload is a damaged message."""


def messages_of(payload: bytes) -> Iterator[dict[str, Any]]:
    """Yield the messages of an entry: the fields of their metadata, and `payload`, `compression`, `batch_index`, `note`.

    Raises `MessageError` and `NotPulsarError`.
    """
    at, end = 0, len(payload)
    broker: dict[str, Any] = {}
    framed = payload[:2] in (BROKER_MAGIC, CHECKSUM_MAGIC)
    try:
        if payload[:2] == BROKER_MAGIC:
            at, stop = _sized(payload, 2, "the broker's metadata")
            broker = read_message(_BROKER, payload, at, stop)
            at = stop
        if payload[at : at + 2] == CHECKSUM_MAGIC:
            _verify(payload, at + 2)
            at += 6
        at, stop = _sized(payload, at, "the metadata")
        metadata = read_message(_METADATA, payload, at, stop)
    except (MessageError, ProtobufError) as error:
        if not framed:
            raise NotPulsarError(f"not a message of Pulsar: {error}") from None
        raise MessageError(
            f"damaged metadata: {error}" if isinstance(error, ProtobufError) else str(error)
        ) from None
    yield from _contents(broker, metadata, payload[stop:end])


def _sized(payload: bytes, at: int, part: str) -> tuple[int, int]:
    """Return where a part starts and ends whose size is at `at`."""
    size = int.from_bytes(payload[at : at + 4], "big", signed=True)
    if len(payload) < at + 4 or not 0 <= size <= len(payload) - at - 4:
        text = f"{part} takes {size} bytes" if len(payload) >= at + 4 else f"{part} has no size"
        raise MessageError(f"{text}, but {max(len(payload) - at - 4, 0)} bytes are left")
    return at + 4, at + 4 + size


def _verify(payload: bytes, at: int) -> None:
    stored, computed = int.from_bytes(payload[at : at + 4], "big"), crc32c_bytes(payload[at + 4 :])
    if len(payload) < at + 4 or stored != computed:
        raise MessageError(f"checksum mismatch: stored {stored:#010x}, computed {computed:#010x}")


def _contents(
    broker: Mapping[str, Any], metadata: dict[str, Any], content: bytes
) -> Iterator[dict[str, Any]]:
    code = metadata.get("compression", 0)
    is_batch = "num_messages_in_batch" in metadata
    count = metadata.get("num_messages_in_batch", 1)
    row = {**broker, **metadata, "compression": COMPRESSIONS.get(code, str(code)), "payload": content}
    if metadata.get("encryption_keys"):
        row["note"] = "encrypted, so payload is as stored" + (
            f": a batch of {count} messages" if is_batch else ""
        )
        yield _message(row)
        return
    if code and metadata.get("num_chunks_from_msg", 0) > 1:
        row["note"] = "a part of a compressed message, so payload is as stored"
    elif code:
        content = row["payload"] = _decompressed(code, metadata.get("uncompressed_size", 0), content)
    if not is_batch:
        yield _message(row)
        return
    if count < 0:
        raise MessageError(f"num_messages_in_batch is {count}")
    last = broker.get("index")
    for name in _OF_BATCH:
        row.pop(name, None)
    at = 0
    out = []
    for i in range(count):
        try:
            start, stop = _sized(content, at, "its metadata")
            single = read_message(_SINGLE, content, start, stop)
            at = stop + single["payload_size"]
            if not stop <= at <= len(content):
                raise MessageError(
                    f"its payload takes {single['payload_size']} bytes, but {len(content) - stop} bytes are left"
                )
        except (ProtobufError, MessageError) as error:
            raise MessageError(f"message {i} of a batch of {count}: {error}") from None
        message = {**row, **single, "payload": content[stop:at], "batch_index": i}
        if last is not None:
            message["index"] = last - count + 1 + i
        out.append(_message(message))
    if at != len(content):
        raise MessageError(f"{len(content) - at} bytes are left after the {count} messages of the batch")
    yield from out


def _message(row: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose payload is null if its metadata says so."""
    if row.get("null_value") or row.get("compacted_out"):
        row["payload"] = None
    return row


def _decompressed(code: int, size: int, content: bytes) -> bytes:
    if code not in _READERS:
        raise MessageError(f"compression {code} is unknown")
    if not 0 <= size <= LARGEST:
        raise MessageError(f"uncompressed_size is {size}, expected 0 to {LARGEST}")
    try:
        out = decompress(_READERS[code], content, size).tobytes()
    except CompressionError as error:
        raise MessageError(f"bad payload: {error}") from None
    if len(out) != size:
        raise MessageError(f"the payload decompresses to {len(out)} bytes, but uncompressed_size is {size}")
    return out
