"""Batches packed by the description of `kafka.log`, and a simple reader that uses only the codec."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from memory_directory import MemoryDirectory

from logwright.codec.engine.fold import result
from logwright.codec.fault import Fault, Kind
from logwright.codec.frames.walk import frames_of
from logwright.codec.kafka.derive import PartitionDeriver
from logwright.codec.kafka.formats.log.codec import CODEC
from logwright.codec.kafka.formats.log.heads import heads_at
from logwright.codec.kafka.formats.log.layout import COMPRESSION_NAMES, HEAD_SIZE, MAGIC, RECORD, RECORD_BATCH
from logwright.codec.kafka.formats.log.tables import LogContext
from logwright.codec.option import Options
from logwright.codec.store.listing import PlannedFile, Role
from logwright.codec.window import Window

NAME = "00000000000000000000.log"
T = 1_700_000_000_000


def derived_files(files: Mapping[str, bytes], interval: int = 4096, **settings: Any) -> dict[str, bytes]:
    """Return the files that a broker derives from the sound logs among these files."""

    def refuse(name: str, fault: Fault) -> None:
        assert fault.kind is Kind.PADDING, f"{name}: {fault}"

    logs = [
        PlannedFile(name, len(data), Role.PRIMARY, hints={"base_offset": int(name[:20])})
        for name, data in sorted(files.items())
        if name.endswith(".log")
    ]
    frames = frames_of(MemoryDirectory(files), logs, CODEC, report=refuse)
    return result(frames, PartitionDeriver(interval, **settings))


def record(
    offset_delta: int = 0, key: bytes | None = b"k", value: bytes | None = b"v", **more: Any
) -> dict[str, Any]:
    """Return the values of a record for its description. `headers` are pairs of text and bytes."""
    headers = [{"key": name.encode(), "value": content} for name, content in more.pop("headers", ())]
    return {"offset_delta": offset_delta, "key": key, "value": value, "headers": headers, **more}


def pack_records(records: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(RECORD.pack(record) for record in records)


def batch(base_offset: int = 0, records: Iterable[Mapping[str, Any]] | None = None, **fields: Any) -> bytes:
    """Pack a batch. Lengths, counts and the checksum are computed unless given."""
    record_list = [record()] if records is None else list(records)
    values: dict[str, Any] = {
        "base_offset": base_offset,
        "partition_leader_epoch": 0,
        "last_offset_delta": max(0, len(record_list) - 1),
        "base_timestamp": T,
        "max_timestamp": T,
        "records_count": len(record_list),
    }
    return RECORD_BATCH.pack({**values, "records": record_list, **fields})


def data_batch(base: int, producer: int, *, transactional: bool = True, count: int = 1) -> bytes:
    fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": base}
    return batch(base, [record(i) for i in range(count)], attributes=0x10 * transactional, **fields)


def end_marker(base: int, producer: int, kind: int) -> bytes:
    marker_record = record(0, bytes([0, 0, 0, kind]), b"\0\0\0\0\0\7")
    return batch(base, [marker_record], attributes=0x30, producer_id=producer, producer_epoch=0)


def compressed(base_offset: int, payload: bytes, codec: str, count: int, **fields: Any) -> bytes:
    """Pack a batch whose records section is `payload`."""
    number = COMPRESSION_NAMES.index(codec)
    values = {"attributes": number, "last_offset_delta": max(0, count - 1), "records_count": count, **fields}
    return RECORD_BATCH.pack(
        {"base_offset": base_offset, "partition_leader_epoch": 0, "records": payload, **values}
    )


def raw_batch(base_offset: int, stored: bytes, count: int, **fields: Any) -> bytes:
    """Pack an uncompressed batch of arbitrary bytes with a correct checksum."""
    original_attributes = fields.pop("attributes", 0)
    packed = bytearray(compressed(base_offset, stored, "gzip", count, **fields))
    attributes = RECORD_BATCH.offset("attributes")
    packed[attributes : attributes + 2] = original_attributes.to_bytes(2, "big")
    return reseal(bytes(packed))


def reseal(packed: bytes) -> bytes:
    """Return a batch with a correct checksum."""
    from crc32c import crc32c

    at = RECORD_BATCH.offset("crc")
    return packed[:at] + crc32c(packed[at + 4 :]).to_bytes(4, "big") + packed[at + 4 :]


def context(name: str = NAME, options: Mapping[str, Any] | None = None, **hints: Any) -> LogContext:
    return CODEC.context(name, Options(CODEC.options, options or {}), **{"directory": "orders-0", **hints})


def window(data: bytes, offset: int = 0, size: int | None = None) -> Window:
    return Window(np.frombuffer(data, np.uint8), offset, offset + len(data) if size is None else size)


def as_heads(header: Any) -> Any:
    """Return stored headers of magic 2 in the form in which a scan keeps them."""
    header = header.copy()
    header["magic"] = MAGIC
    data = np.frombuffer(header.tobytes(), np.uint8)
    return heads_at(data, np.arange(len(header)) * HEAD_SIZE)


class DecodedLog:
    """Everything that the codec reads from some bytes: rows, frames, faults, and the skipped ranges."""

    def __init__(
        self, data: bytes, name: str = NAME, columns: Any = "*", options: Any = None, **hints: Any
    ) -> None:
        self.data = data
        self.context = context(name, options, **hints)
        beside = context(name, options, **hints)
        full_window = window(data)
        row_columns = CODEC.tables["rows"].select(columns)
        frame_columns = CODEC.tables["frames"].select("*")
        frame_schema = CODEC.tables["frames"].schema(frame_columns)
        rows: list[pa.RecordBatch] = []
        frames: list[pa.RecordBatch] = []
        self.faults: list[Fault] = []
        self.damage: list[Fault] = []
        at = end = 0
        while at < len(data):
            scanned = CODEC.scan(full_window, at, self.context)
            assert not scanned.need, "the whole file is in the window"
            self.faults += scanned.faults
            if len(scanned):
                end = int(scanned.end[-1])
                for decoded in CODEC.decode(full_window, scanned, "rows", row_columns, self.context):
                    decoded.batch.validate(full=True)
                    rows.append(decoded.batch)
                    self.faults += [fault for _, fault in decoded.faults]
                frames += [
                    frame_batch.batch
                    for frame_batch in CODEC.decode(full_window, scanned, "frames", frame_columns, beside)
                ]
            if scanned.damage is None:
                break
            self.damage.append(scanned.damage)
            place, need = CODEC.resync(full_window, scanned.stop + 1, self.context)
            assert place < 0 or not need
            if place < 0:
                break
            row = {"position": scanned.stop, "raw": data[scanned.stop : place]}
            arrays = [pa.array([row.get(field.name)], field.type) for field in frame_schema]
            frames.append(pa.RecordBatch.from_arrays(arrays, schema=frame_schema))
            at = place
        self.rows = pa.Table.from_batches(rows, CODEC.tables["rows"].schema(row_columns))
        self.frames = pa.Table.from_batches(frames, frame_schema)
        tail = data[end:].rstrip(b"\0")
        zeros = len(data) - end - len(tail)
        self.file = pa.Table.from_batches(
            [CODEC.describe_file(full_window, len(data), len(self.frames), tail, zeros, self.context)]
        )

    @property
    def offsets(self) -> list[int]:
        return self.rows.column("offset").to_pylist()  # type: ignore[no-any-return]

    def encoded(self, rows: pa.Table | None = None, frames: pa.Table | None = None) -> bytes:
        row_table = self.rows if rows is None else rows
        chunks = CODEC.encode(row_table, self.frames if frames is None else frames, self.file, self.context)
        return b"".join(bytes(chunk) for chunk in chunks)


def encoded(rows: pa.Table | list[dict[str, Any]], **options: Any) -> bytes:
    """Encode a file from rows alone."""
    table = pa.Table.from_pylist(rows) if isinstance(rows, list) else rows
    dotted = {name.replace("_", "."): value for name, value in options.items()}
    chunks = CODEC.encode(table, None, None, context(options=dotted))
    return b"".join(bytes(chunk) for chunk in chunks)
