"""Reference decoders of Kafka's rows. See `logwright.roundtrip.reference`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from logwright.codec.describe import DescriptionError, Repeated
from logwright.codec.java import java_string
from logwright.codec.kafka.formats.log.layout import (
    ATTRIBUTES,
    COMPRESSION,
    COMPRESSION_NAMES,
    CONTROL_RECORD_KEY,
    CONTROL_TYPES,
    INNER_MESSAGE,
    LENGTH_END,
    RECORD,
    TIMESTAMP_TYPE,
    codec_name,
)
from logwright.codec.kernels.compress import decompress
from logwright.roundtrip.reference import LIMIT, Described, fields


def log(batches: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the records of batches and older messages, like a consumer of the file, which skips records at or below the
    highest offset so far (`CompletedFetch` of Kafka's clients)."""
    seen = -(1 << 63)
    for batch in batches:
        for row in _messages(batch) if batch.get("message_size") is not None else _records(batch):
            if row["offset"] > seen:
                seen = row["offset"]
                yield row


def _records(batch: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    flags = {bit.name: bit.of(batch["attributes"]) for bit in ATTRIBUTES.bits}
    records = batch["records"]
    if flags["compression"]:
        if flags["compression"] >= len(COMPRESSION_NAMES):
            raise DescriptionError(f"compression {flags['compression']} is unknown")
        plain = decompress(COMPRESSION_NAMES[flags["compression"]], records, LIMIT).tobytes()
        records, stop = Repeated(RECORD, "records_count").unpack(plain, 0, len(plain), dict(batch))
        if stop != len(plain):
            raise DescriptionError(f"{len(plain) - stop} bytes left after {len(records)} records", stop)
    for record in records:
        created = _wrapped(batch["base_timestamp"] + record["timestamp_delta"], 64)
        yield {
            "key": record["key"],
            "value": record["value"],
            "offset": batch["base_offset"] + record["offset_delta"],
            "timestamp_ms": batch["max_timestamp"] if flags["timestamp_type"] else created,
            "create_timestamp_ms": created,
            "timestampType": flags["timestamp_type"],
            "headers": [
                {"key": java_string(header["key"]), "value": header["value"]} for header in record["headers"]
            ],
            "attributes": record["attributes"],
            "leader_epoch": batch["partition_leader_epoch"],
            "producer_id": batch["producer_id"],
            "producer_epoch": batch["producer_epoch"],
            "sequence": _sequence(batch["base_sequence"], record["offset_delta"]),
            "is_transactional": bool(flags["is_transactional"]),
            "is_control": bool(flags["is_control"]),
            "control_type": _control_type(record["key"]) if flags["is_control"] else None,
            "magic": 2,
            "compression": COMPRESSION_NAMES[flags["compression"]],
        }


def _messages(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the records of an entry of magic 0 or 1, as `DeepRecordsIterator` of Kafka's clients does."""
    magic, codec = message["magic"], message["attributes"] & COMPRESSION
    append = magic == 1 and bool(message["attributes"] & TIMESTAMP_TYPE)
    messages: Sequence[Mapping[str, Any]] = [message]
    shift = 0
    if codec:
        if message["value"] is None:
            raise DescriptionError("the wrapper has no value")
        plain = decompress(codec_name(codec, magic), message["value"], LIMIT).tobytes()
        messages = _message_set(plain)
        if magic == 1 and message["offset"]:
            shift = message["offset"] - messages[-1]["offset"]
            if shift < 0:
                raise DescriptionError("the offset of the wrapper is too low")
    for each in messages:
        if codec and each["attributes"] & COMPRESSION:
            raise DescriptionError("a message in a wrapper is compressed")
        created = -1 if each["timestamp"] is None else each["timestamp"]
        yield {
            "key": each["key"],
            "value": each["value"],
            "offset": each["offset"] + shift,
            "timestamp_ms": message["timestamp"] if append and each["magic"] == 1 else created,
            "create_timestamp_ms": created,
            "timestampType": -1 if magic == 0 else int(append),
            "headers": [],
            "attributes": 0,
            "leader_epoch": -1,
            "producer_id": -1,
            "producer_epoch": -1,
            "sequence": -1,
            "is_transactional": False,
            "is_control": False,
            "control_type": None,
            "magic": magic,
            "compression": COMPRESSION_NAMES[codec],
        }


def _message_set(plain: bytes) -> list[dict[str, Any]]:
    """Return the complete messages of a set."""
    out: list[dict[str, Any]] = []
    at = 0
    while len(plain) - at >= LENGTH_END:
        end = at + LENGTH_END + int.from_bytes(plain[at + LENGTH_END - 4 : at + LENGTH_END], "big")
        if end > len(plain):
            break
        values, stop = INNER_MESSAGE.unpack(plain, at, end)
        if stop != end or INNER_MESSAGE.check(plain, at, end):
            raise DescriptionError("a message in a wrapper is damaged", at)
        out.append(values)
        at = end
    if not out:
        raise DescriptionError("the wrapper has no complete message")
    return out


def _sequence(base: int, delta: int) -> int:
    """2147483647 wraps to 0 (KIP-98)."""
    return -1 if base < 0 else (base + delta) % (1 << 31)


def _wrapped(number: int, bits: int) -> int:
    """Wrap to a signed Java integer."""
    return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _control_type(key: bytes | None) -> str:
    if key is None or len(key) < CONTROL_RECORD_KEY.min_size:
        return "MALFORMED"
    values, _ = CONTROL_RECORD_KEY.unpack(key)
    return CONTROL_TYPES.get(values["type"], "UNKNOWN")


def _within(name: str) -> Described:
    """Return a decoder for rows that are the items of a field."""

    def rows(frames: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        return (dict(item) for frame in frames for item in frame[name])

    return rows


ROWS: Mapping[str, Described] = {
    "kafka.log": log,
    "kafka.index": fields("position"),
    "kafka.timeindex": fields("timestamp"),
    "kafka.txnindex": fields("version", "producer_id", "first_offset", "last_offset", "last_stable_offset"),
    "kafka.producer_snapshot": _within("entries"),
}
