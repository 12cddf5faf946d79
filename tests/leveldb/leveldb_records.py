"""Log and manifest records packed by their descriptions, not by the tested code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from logwright.codec.leveldb.formats.log.layout import WRITE_BATCH
from logwright.codec.leveldb.formats.records.layout import BLOCK, RECORD, fragmented


def record(kind: int, payload: bytes) -> bytes:
    """Pack a physical record."""
    return RECORD.pack({"length": len(payload), "type": kind, "payload": payload})


def written(payloads: Sequence[bytes], offset: int = 0) -> bytes:
    """Pack logical records as LevelDB writes them from byte `offset` of a file on."""
    out = b""
    for payload in payloads:
        out += fragmented(payload, offset + len(out))
    return out


def batch(sequence: int, *operations: tuple[bytes, bytes | None], count: int | None = None) -> bytes:
    """Pack a write batch. A value of None is a deletion."""
    return WRITE_BATCH.pack(
        {
            "sequence": sequence,
            "count": len(operations) if count is None else count,
            "operations": [
                {"type": int(value is not None), "key": key, "value": value or b""}
                for key, value in operations
            ],
        }
    )


def to_block_end(at: int, left: int = 0) -> int:
    """Return the payload size of a physical record at byte `at` that leaves `left` bytes of its block."""
    return BLOCK - at % BLOCK - 7 - left


def with_value(rows: pa.Table, column: str, row: int, value: Any) -> pa.Table:
    """Return the rows with one value changed."""
    values = rows[column].to_pylist()
    values[row] = value
    return rows.set_column(rows.schema.get_field_index(column), column, pa.array(values, rows[column].type))
