"""Partitions in memory, and the simulated start of a broker on them."""

from __future__ import annotations

from typing import Any

from kafka_repairs import ID, partition_directory
from memory_directory import MemoryDirectory

from logwright.codec import registry
from logwright.codec.engine.startup import Started
from logwright.codec.kafka.formats.log.layout import RECORD_BATCH
from logwright.codec.kafka.names import segment_name
from logwright.codec.option import Options

LAYOUT = registry.get_layout("kafka.partition")


LOG = segment_name(0, ".log")


METADATA = {"partition.metadata": f"version: 0\ntopic_id: {ID}".encode()}


def batch(
    base: int,
    *,
    count: int = 1,
    last: int | None = None,
    timestamp: int = 1000,
    value: bytes = b"v",
    **more: Any,
) -> bytes:
    """Pack a batch of plain records with consecutive offsets."""
    records = [
        {"attributes": 0, "timestamp_delta": 0, "offset_delta": i, "key": None, "value": value, "headers": ()}
        for i in range(count)
    ]
    return RECORD_BATCH.pack(
        {
            "base_offset": base,
            "last_offset_delta": (count - 1 if last is None else last),
            "base_timestamp": timestamp,
            "max_timestamp": timestamp,
            "records_count": count,
            "records": records,
            **more,
        }
    )


def partition(*batches: bytes, above: dict[str, bytes] | None = None, **files: bytes) -> MemoryDirectory:
    named = {name.replace("_", "."): data for name, data in files.items()}
    return partition_directory(
        {LOG: b"".join(batches), **METADATA, **named},
        above=None if above is None else partition_directory(above, "logs"),
    )


def opened(directory: Any, *, clean: bool | None = False, **settings: Any) -> Started:
    options = Options(
        LAYOUT.read_options, {name.replace("_", "."): value for name, value in settings.items()}
    )
    result = LAYOUT.capabilities.predict.run(
        directory, LAYOUT.plan(partition_directory({}), options), options, version=None, clean=clean
    )
    return result


def legacy(base: int, attributes: int, magic: int = 0) -> bytes:
    """Pack an entry of an older format with a wrong checksum."""
    body = bytes([0, 0, 0, 0, magic, attributes]) + bytes(60)
    return base.to_bytes(8, "big") + len(body).to_bytes(4, "big") + body
