"""Build the files of a small database one by one. This decides which table or log holds each operation, and computes the expected result
of an iterator in a dictionary, without any merge or reader."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec import registry
from logwright.codec.kernels.compress import CompressionError
from logwright.codec.leveldb.derive import current
from logwright.codec.leveldb.formats.log.layout import WRITE_BATCH
from logwright.codec.leveldb.formats.manifest.layout import EditField, form, parse
from logwright.codec.leveldb.formats.records.layout import fragmented
from logwright.codec.leveldb.formats.table.compression import expand
from logwright.codec.leveldb.formats.table.index import DATA
from logwright.codec.leveldb.formats.table.layout import TRAILER_SIZE
from logwright.codec.leveldb.formats.table.write import TableBuilder, TableSettings
from logwright.codec.leveldb.keys import BYTEWISE, DELETION, VALUE
from logwright.codec.leveldb.names import (
    CURRENT,
    LOCK,
    MANIFEST_NAME,
    TABLE_NAME,
    log_name,
    manifest_name,
    table_name,
)
from logwright.codec.option import Options
from logwright.codec.window import Window
from logwright.corpora.recipe import Reads
from logwright.corpora.rng import Rng, text

Row = dict[str, Any]

_LEVEL_FILES = 3
_LIMIT = 1 << 28
_ODD_KEYS = (b"", b"\0", b"\0\0", b"\xff", b"\xff" * 12, b"user", b"user-0", b"k" * 300)
_COMPRESSIONS = ("none", "snappy", "zstd")
"""The compressions that LevelDB itself reads."""
_BLOCK_SIZES, _INTERVALS = (256, 1024, 4096), (1, 4, 16)


class Script:
    """A database of `rows` operations. The oldest are in tables of levels 2 and 1, then level 0, the newest in two logs.

    `compression`: of all tables; by default each has a different one. `logs_only`: everything in one log. `one_table`: everything in one
    table.
    """

    def __init__(
        self,
        rng: Rng,
        rows: int,
        *,
        compression: str | None = None,
        logs_only: bool = False,
        one_table: bool = False,
    ) -> None:
        self.rng = rng
        self._compressions = _COMPRESSIONS if compression is None else (compression,)
        self.files: dict[str, bytes] = {}
        self._number = 4
        self._rows: dict[str, list[Row]] = {}
        self._edits: list[list[EditField]] = []
        self._tables = 0
        self.operations = [self._operation(i + 1, rows) for i in range(rows)]
        # Shares of the operations, the oldest first: levels 2 and 1, three tables of level 0, two logs.
        shares = [0, 0, 0, 0, 0, 0, 1] if logs_only else [1] if one_table else [6, 4, 2, 2, 2, 2, 1]
        bounds = [rows * sum(shares[:i]) // sum(shares) for i in range(len(shares) + 1)]
        parts = [self.operations[a:b] for a, b in itertools.pairwise(bounds)]
        if one_table:
            self._table(0, _by_key(parts[0]))
            return
        for level, part in ((2, parts[0]), (1, parts[1])):
            self._level(level, _by_key(part))
        for part in parts[2:5]:
            self._table(0, _by_key(part))
        first_log = self._number
        for part in parts[6:] if logs_only else parts[5:]:
            self._log(part)
        self._manifest(first_log)

    def _operation(self, sequence: int, rows: int) -> Row:
        rng = self.rng
        if rng.below(12) == 0:
            key = rng.choice(_ODD_KEYS)
        else:
            key = b"user-%d" % rng.below(max(1, rows // 3))
        if rng.below(5) == 0:
            return {"key": key, "value": None, "sequence": sequence, "type": "deletion"}
        kind = rng.below(40)
        size = 0 if kind < 4 else rng.between(5000, 70_000) if kind == 39 else rng.between(1, 120)
        value = rng.bytes(size) if kind % 2 else text(rng, size)
        return {"key": key, "value": value, "sequence": sequence, "type": "value"}

    def _next(self) -> int:
        self._number += 1
        return self._number - 1

    # Tables

    def _level(self, level: int, rows: list[Row]) -> None:
        """Write tables of a level with disjoint keys. A deletion and what it deletes may be in one of them."""
        step = max(1, -(-len(rows) // _LEVEL_FILES))
        at = 0
        while at < len(rows):
            stop = min(at + step, len(rows))
            while stop < len(rows) and rows[stop]["key"] == rows[stop - 1]["key"]:
                stop += 1
            self._table(level, rows[at:stop])
            at = stop

    def _settings(self) -> TableSettings:
        """Return different settings for each table, so that all occur."""
        self._tables += 1
        n = self._tables
        return TableSettings(
            block_size=_BLOCK_SIZES[n // 2 % 3],
            block_restart_interval=_INTERVALS[n % 3],
            compression=self._compressions[n % len(self._compressions)],
            bloom_bits_per_key=(0, 10, 0, 1, 20)[n % 5],
        )

    def _table(self, level: int, rows: list[Row]) -> None:
        if not rows:
            return
        number = self._next()
        builder = TableBuilder(self._settings())
        data, _ = builder.add(pa.RecordBatch.from_pylist(rows))
        name = table_name(number)
        self.files[name], self._rows[name] = data + builder.finish(), rows
        size = len(self.files[name])
        assert builder.smallest is not None
        ends = {"smallest": builder.smallest, "largest": builder.largest}
        new = EditField("new_file", level=level, number=number, size=size, **ends)
        if level == 2:
            # It was at level 1 before and was moved.
            moved = EditField("new_file", level=1, number=number, size=size, **ends)
            self._edits.append([moved])
            pointer = EditField("compact_pointer", level=1, smallest=ends["largest"])
            self._edits.append([pointer, EditField("deleted_file", level=1, number=number), new])
        else:
            self._edits.append([new])

    def empty_table(self) -> bytes:
        return TableBuilder(self._settings()).finish()

    # Logs

    def _log(self, rows: list[Row]) -> None:
        name = log_name(self._next())
        data = bytearray()
        at = 0
        while at < len(rows):
            batch = rows[at : at + self.rng.between(1, 5)]
            data += fragmented(_batch(batch), len(data))
            at += len(batch)
        self.files[name], self._rows[name] = bytes(data), rows

    # Metadata

    def _manifest(self, first_log: int) -> None:
        number = 3
        tables = [rows for name, rows in self._rows.items() if TABLE_NAME.fullmatch(name)]
        in_tables = max((row["sequence"] for rows in tables for row in rows), default=0)
        edits = [
            [EditField("comparator", text=BYTEWISE.encode())],
            *self._edits,
            [
                EditField("log_number", number=first_log),
                EditField("prev_log_number", number=0),
                EditField("next_file_number", number=self._number),
                EditField("last_sequence", number=in_tables),
            ],
        ]
        data = bytearray()
        for edit in edits:
            data += fragmented(form(edit), len(data))
        self.files[manifest_name(number)] = bytes(data)
        self.files[CURRENT] = current(number)
        self.files[LOCK] = b""

    # Expected results

    def written(self, name: str) -> list[Mapping[str, Any]]:
        """Return the rows of a file, in its order."""
        return list(self._rows[name])

    def live(self) -> list[Mapping[str, Any]]:
        """Return the rows that an iterator returns: the last operation of each key, if it is not a deletion."""
        newest = {row["key"]: row for row in self.operations}
        return [newest[key] for key in sorted(newest) if newest[key]["value"] is not None]


def _by_key(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["key"], -row["sequence"]))


def _batch(rows: Sequence[Row]) -> bytes:
    operations = [
        {"type": DELETION, "key": row["key"]}
        if row["value"] is None
        else {"type": VALUE, "key": row["key"], "value": row["value"]}
        for row in rows
    ]
    return WRITE_BATCH.pack({"sequence": rows[0]["sequence"], "count": len(rows), "operations": operations})


def content_hash(name: str, read: Reads, size: int) -> str | None:
    """Return the SHA-256 of the parts that do not depend on the version of a compressor, or None if that is the whole file. For a table
    with compressed blocks these are their contents, for a manifest its edits without the sizes of tables."""
    if MANIFEST_NAME.fullmatch(name):
        return _manifest_hash(read(0, size))
    if name and not TABLE_NAME.fullmatch(name):
        return None
    data = np.frombuffer(read(0, size), np.uint8)
    codec = registry.get("leveldb.table")
    frames = codec.scan(
        Window(data, 0, size), 0, codec.context(table_name(1), Options(codec.options)), check=False
    )
    blocks = frames.pick(frames.header["kind"] == DATA)
    if not len(blocks) or not blocks.header["type"].any():
        return None
    digest = hashlib.sha256()
    kinds = blocks.header["type"].tolist()
    for start, end, kind in zip(blocks.start.tolist(), blocks.end.tolist(), kinds, strict=True):
        digest.update(_plain(data[start : end - TRAILER_SIZE], kind))
    return digest.hexdigest()


def _plain(stored: Any, kind: int) -> bytes:
    try:
        return bytes(expand(stored, kind, _LIMIT).tobytes())
    except CompressionError:
        return bytes(stored.tobytes())


def _manifest_hash(data: bytes) -> str:
    codec = registry.get("leveldb.manifest")
    context = codec.context(manifest_name(1), Options(codec.options))
    window = Window(np.frombuffer(data, np.uint8), 0, len(data))
    frames = codec.scan(window, 0, context)
    digest = hashlib.sha256()
    for decoded in codec.decode(window, frames, "records", ("payload",), context):
        for payload in decoded.batch.column(0).to_pylist():
            for change in parse(payload):
                values = (
                    change.name,
                    change.text,
                    change.level,
                    change.number,
                    change.smallest,
                    change.largest,
                )
                digest.update(repr(values).encode())
    return digest.hexdigest()
