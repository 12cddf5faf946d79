"""What the tests of `kafka.log` share: batches made by the description, and a plain reader over the codec alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.fault import Fault
from logwright.codec.kafka.formats.log.codec import CODEC
from logwright.codec.kafka.formats.log.heads import heads_at
from logwright.codec.kafka.formats.log.layout import COMPRESSION_NAMES, HEAD_SIZE, RECORD, RECORD_BATCH
from logwright.codec.kafka.formats.log.tables import LogContext
from logwright.codec.option import Options
from logwright.codec.window import Window

NAME = "00000000000000000000.log"
T = 1_700_000_000_000


def record(
    offset_delta: int = 0, key: bytes | None = b"k", value: bytes | None = b"v", **more: Any
) -> dict[str, Any]:
    """A record as its description takes it; `headers` are pairs of text and bytes."""
    headers = [{"key": name.encode(), "value": content} for name, content in more.pop("headers", ())]
    return {"offset_delta": offset_delta, "key": key, "value": value, "headers": headers, **more}


def pack_records(records: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(RECORD.pack(one) for one in records)


def batch(base_offset: int = 0, records: Iterable[Mapping[str, Any]] | None = None, **fields: Any) -> bytes:
    """A batch: lengths, counts and checksum are made here unless given."""
    made = [record()] if records is None else list(records)
    values: dict[str, Any] = {
        "base_offset": base_offset,
        "partition_leader_epoch": 0,
        "last_offset_delta": max(0, len(made) - 1),
        "base_timestamp": T,
        "max_timestamp": T,
        "records_count": len(made),
    }
    return RECORD_BATCH.pack({**values, "records": made, **fields})


def compressed(base_offset: int, payload: bytes, codec: str, count: int, **fields: Any) -> bytes:
    """A batch of this stored section."""
    number = COMPRESSION_NAMES.index(codec)
    given = {"attributes": number, "last_offset_delta": max(0, count - 1), "records_count": count, **fields}
    return RECORD_BATCH.pack(
        {"base_offset": base_offset, "partition_leader_epoch": 0, "records": payload, **given}
    )


def raw_batch(base_offset: int, stored: bytes, count: int, **fields: Any) -> bytes:
    """An uncompressed batch of any bytes, its checksum right."""
    said = fields.pop("attributes", 0)
    whole = bytearray(compressed(base_offset, stored, "gzip", count, **fields))
    attributes = RECORD_BATCH.offset("attributes")
    whole[attributes : attributes + 2] = said.to_bytes(2, "big")
    return reseal(bytes(whole))


def reseal(whole: bytes) -> bytes:
    """One batch with its checksum made right."""
    from crc32c import crc32c

    at = RECORD_BATCH.offset("crc")
    return whole[:at] + crc32c(whole[at + 4 :]).to_bytes(4, "big") + whole[at + 4 :]


def context(name: str = NAME, options: Mapping[str, Any] | None = None, **hints: Any) -> LogContext:
    return CODEC.context(name, Options(CODEC.options, options or {}), **{"directory": "orders-0", **hints})


def window(data: bytes, offset: int = 0, size: int | None = None) -> Window:
    return Window(np.frombuffer(data, np.uint8), offset, offset + len(data) if size is None else size)


def as_heads(header: Any) -> Any:
    """Headers of magic 2, as they are stored, as a scan keeps them."""
    data = np.frombuffer(header.tobytes(), np.uint8)
    return heads_at(data, np.arange(len(header)) * HEAD_SIZE)


class DecodedLog:
    """All that the codec says of some bytes: rows, frames, findings, and the stretches skipped."""

    def __init__(
        self, data: bytes, name: str = NAME, columns: Any = "*", options: Any = None, **hints: Any
    ) -> None:
        self.data = data
        self.context = context(name, options, **hints)
        beside = context(name, options, **hints)
        whole = window(data)
        row_columns = CODEC.tables["rows"].select(columns)
        frame_columns = CODEC.tables["frames"].select("*")
        frame_schema = CODEC.tables["frames"].schema(frame_columns)
        rows: list[pa.RecordBatch] = []
        frames: list[pa.RecordBatch] = []
        self.faults: list[Fault] = []
        self.damage: list[Fault] = []
        at = end = 0
        while at < len(data):
            found = CODEC.scan(whole, at, self.context)
            assert not found.need, "the whole file is in the window"
            self.faults += found.faults
            if len(found):
                end = int(found.end[-1])
                for decoded in CODEC.decode(whole, found, "rows", row_columns, self.context):
                    decoded.batch.validate(full=True)
                    rows.append(decoded.batch)
                    self.faults += [fault for _, fault in decoded.faults]
                frames += [one.batch for one in CODEC.decode(whole, found, "frames", frame_columns, beside)]
            if found.damage is None:
                break
            self.damage.append(found.damage)
            place, need = CODEC.resync(whole, found.stop + 1, self.context)
            assert place < 0 or not need
            if place < 0:
                break
            row = {"position": found.stop, "raw": data[found.stop : place]}
            arrays = [pa.array([row.get(field.name)], field.type) for field in frame_schema]
            frames.append(pa.RecordBatch.from_arrays(arrays, schema=frame_schema))
            at = place
        self.rows = pa.Table.from_batches(rows, CODEC.tables["rows"].schema(row_columns))
        self.frames = pa.Table.from_batches(frames, frame_schema)
        tail = data[end:].rstrip(b"\0")
        zeros = len(data) - end - len(tail)
        self.file = pa.Table.from_batches(
            [CODEC.describe_file(whole, len(data), len(self.frames), tail, zeros, self.context)]
        )

    @property
    def offsets(self) -> list[int]:
        return self.rows.column("offset").to_pylist()  # type: ignore[no-any-return]

    def encoded(self, rows: pa.Table | None = None, frames: pa.Table | None = None) -> bytes:
        given = self.rows if rows is None else rows
        chunks = CODEC.encode(given, self.frames if frames is None else frames, self.file, self.context)
        return b"".join(bytes(chunk) for chunk in chunks)


def encoded(rows: pa.Table | list[dict[str, Any]], **options: Any) -> bytes:
    """A file from rows alone."""
    table = pa.Table.from_pylist(rows) if isinstance(rows, list) else rows
    given = {name.replace("_", "."): value for name, value in options.items()}
    chunks = CODEC.encode(table, None, None, context(options=given))
    return b"".join(bytes(chunk) for chunk in chunks)
