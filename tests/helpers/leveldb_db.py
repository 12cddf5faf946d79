"""Databases written file by file. The test decides which table or log holds which operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from logwright.codec.leveldb.derive import current, snapshot
from logwright.codec.leveldb.keys import BYTEWISE, DELETION, VALUE, internal_key
from logwright.codec.leveldb.names import log_name, manifest_name, table_name
from logwright.codec.leveldb.store.version import FileMetaData
from logwright.roundtrip.specimen import Specimen

GOLDEN = Path(__file__).resolve().parents[2] / "corpora/golden/leveldb"
SCHEMA = pa.schema(
    [pa.field("key", pa.binary(), False), ("value", pa.binary()), pa.field("sequence", pa.int64(), False)]
)


@dataclass(frozen=True, order=True)
class Op:
    """An operation; `value` None is a deletion."""

    key: bytes
    sequence: int
    value: bytes | None = b"v"


@dataclass
class Database:
    """The contents of a database: tables as (level, number, operations), logs by number."""

    tables: list[tuple[int, int, Sequence[Op]]] = field(default_factory=list)
    logs: dict[int, Sequence[Op]] = field(default_factory=dict)
    leftover: dict[int, Sequence[Op]] = field(default_factory=dict)
    comparator: str = BYTEWISE
    last_sequence: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def referenced(self) -> list[Op]:
        return [op for ops in [*(ops for _, _, ops in self.tables), *self.logs.values()] for op in ops]

    def live(self) -> list[tuple[bytes, bytes]]:
        """Return the pairs that an iterator would return, computed with a dictionary."""
        newest: dict[bytes, Op] = {}
        for op in self.referenced:
            if op.key not in newest or newest[op.key].sequence < op.sequence:
                newest[op.key] = op
        return sorted((key, op.value) for key, op in newest.items() if op.value is not None)

    def write(self, path: Path) -> Path:
        path.mkdir(parents=True)
        levels: list[list[FileMetaData]] = [[] for _ in range(7)]
        for level, number, ops in self.tables:
            data = self._table(ops)
            (path / table_name(number)).write_bytes(data)
            ordered = self._ordered(ops)
            low, high = (
                internal_key(op.key, op.sequence, DELETION if op.value is None else VALUE)
                for op in (ordered[0], ordered[-1])
            )
            levels[level].append(FileMetaData(number, len(data), low, high))
        for number, ops in self.logs.items():
            (path / log_name(number)).write_bytes(self._log(ops))
        for number, ops in self.leftover.items():
            (path / table_name(number)).write_bytes(self._table(ops))
        numbers = [*self.logs, *self.leftover, *(number for _, number, _ in self.tables), 2]
        last = self.last_sequence
        if last is None:
            last = max((op.sequence for _, _, ops in self.tables for op in ops), default=0)
        (path / manifest_name(max(numbers) + 1)).write_bytes(
            snapshot(
                levels,
                log_number=min(self.logs, default=0),
                next_file_number=max(numbers) + 2,
                last_sequence=last,
                comparator=self.comparator,
            )
        )
        (path / "CURRENT").write_bytes(current(max(numbers) + 1))
        return path

    def _ordered(self, ops: Sequence[Op]) -> list[Op]:
        if self.comparator != BYTEWISE:
            return list(ops)
        return sorted(ops, key=lambda op: (op.key, -op.sequence))

    def _table(self, ops: Sequence[Op]) -> bytes:
        options = {"compression": "none", "comparator": self.comparator, "block_size": 64, **self.options}
        empty = Specimen.of(b"", "leveldb.table", "000005.ldb", **options)
        return bytes(empty.encode(_rows(self._ordered(ops))))

    def _log(self, ops: Sequence[Op]) -> bytes:
        return bytes(Specimen.of(b"", "leveldb.log", "000005.log").encode(_rows(ops)))


def _rows(ops: Sequence[Op]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"key": op.key, "value": op.value, "sequence": op.sequence} for op in ops], SCHEMA
    )


def pairs(rows: pa.Table) -> list[tuple[bytes, bytes]]:
    return list(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))
