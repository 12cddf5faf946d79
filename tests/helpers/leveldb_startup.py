"""Golden cases with LevelDB's answers to `DB::Open`, and databases crafted byte by byte."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from memory_directory import MemoryDirectory

from logwright.codec import registry
from logwright.codec.engine.startup import Started, Verdict
from logwright.codec.leveldb.formats.manifest.layout import EditField, form
from logwright.codec.leveldb.formats.records.layout import BLOCK, FULL, HEADER, RECORD
from logwright.codec.leveldb.formats.table.compression import sealed
from logwright.codec.leveldb.formats.table.write import TableBuilder, TableSettings
from logwright.codec.leveldb.keys import BYTEWISE, internal_key
from logwright.codec.leveldb.names import log_name, manifest_name, table_name
from logwright.codec.leveldb.startup.version_set import logged
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing

LAYOUT = registry.get_layout("leveldb.db")

GOLDEN = Path(__file__).resolve().parents[2] / "corpora/golden/leveldb"
Rows = list[tuple[bytes, bytes]]

# Golden cases


def recorded_form(key: bytes, value: bytes) -> tuple[str, str | tuple[int, str]]:
    """Return a row as the golden cases record it, long values by length and hash."""
    recorded_value = value.hex() if len(value) <= 96 else (len(value), hashlib.sha256(value).hexdigest())
    return key.hex(), recorded_value


@dataclass(frozen=True)
class RecordedOpen:
    """A recorded `DB::Open`: its step and the result."""

    case: str
    step: str
    result: Mapping[str, Any]
    rows: Mapping[str, Any]
    """By key, in the order of the iterator."""

    @property
    def directory(self) -> Path:
        return GOLDEN / self.case / "db"

    @property
    def options(self) -> dict[str, Any]:
        """The options of the call, as options of ours."""
        asked = self.result["options"]
        translated = {
            "verify_checksums": bool(self.result.get("verify_checksums")),
            "paranoid_checks": bool(asked.get("paranoid_checks")),
            "create_if_missing": bool(asked.get("create_if_missing")),
            "bloom_bits_per_key": asked.get("bloom", 0),
        }
        return translated | ({"comparator": asked["comparator"]} if "comparator" in asked else {})


def recorded_opens() -> list[RecordedOpen]:
    """Return all recorded calls of `DB::Open` on the unchanged files of the cases."""
    opens = []
    for truth in sorted(GOLDEN.glob("*/truth.jsonl")):
        rows: dict[str, dict[str, Any]] = {}
        results = []
        for line in map(json.loads, truth.read_text().splitlines()):
            if line.get("t") == "result":
                results.append(line)
                rows[line["step"]] = _based(line, rows)
            elif "t" not in line:
                recorded_value = line["v"] if "v" in line else (line["v_len"], line["v_sha256"])
                rows[results[-1]["step"]][line["k"]] = recorded_value
        opens += [
            RecordedOpen(truth.parent.name, result["step"], result, rows[result["step"]])
            for result in results
            if result["step"].startswith("open")
        ]
    return opens


def _based(result: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the rows of a result that is recorded as a difference to an earlier one."""
    if "same_entries_as" in result:
        return dict(rows[result["same_entries_as"]])
    out = dict(rows.get(result.get("entries_relative_to", ""), {}))
    for key in result.get("missing", []):
        del out[key]
    for line in [*result.get("changed", []), *result.get("extra", [])]:
        out[line["k"]] = line["v"] if "v" in line else (line["v_len"], line["v_sha256"])
    return dict(sorted(out.items()))


# Simulated start


def status(verdict: Verdict) -> str:
    """Return the status of `DB::Open`, as `Status::ToString` prints it."""
    return "OK" if verdict.opens else f"{verdict.error_class}: {verdict.error}"


def iterated(verdict: Verdict) -> str | None:
    """Return the status of an iterator at its end."""
    if not verdict.opens:
        return None
    return "OK" if verdict.error is None else f"{verdict.error_class}: {verdict.error}"


def dropped(verdict: Verdict) -> list[str]:
    """Return the lines of LOG about dropped data."""
    return [
        warning
        for warning in verdict.warnings
        if ": dropping " in warning or warning.startswith("Ignoring error ")
    ]


def open_listing(listing: Listing, *, version: str | None = None, **options: Any) -> Started:
    """Simulate `DB::Open`."""
    startup_options = Options(LAYOUT.read_options, options)
    plan = LAYOUT.plan(listing, Options(LAYOUT.read_options))
    opened = LAYOUT.capabilities.predict.run(listing, plan, startup_options, version=version, clean=None)
    return opened


def rows_of(opened: Started) -> Rows:
    return [
        row
        for batch in opened.rows("live", ("key", "value"))
        for row in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
    ]


# Crafted databases


def physical(payload: bytes, kind: int = FULL) -> bytes:
    """Pack a physical record."""
    return RECORD.pack({"length": len(payload), "type": kind, "payload": payload})


def batch(sequence: int, *operations: tuple[bytes, bytes | None], count: int | None = None) -> bytes:
    """Pack a write batch. A value of None is a deletion."""
    out = sequence.to_bytes(8, "little") + (len(operations) if count is None else count).to_bytes(4, "little")
    for key, value in operations:
        out += bytes((value is not None,)) + _varint(len(key)) + key
        out += b"" if value is None else _varint(len(value)) + value
    return out


def put(sequence: int, key: bytes, value: bytes = b"v") -> bytes:
    return batch(sequence, (key, value))


def large(sequence: int, key: bytes, size: int) -> bytes:
    """Pack a write batch of exactly `size` bytes that puts one key."""
    head = sequence.to_bytes(8, "little") + b"\x01\0\0\0\x01" + bytes((len(key),)) + key
    for width in range(1, 6):
        left = size - len(head) - width
        length = _varint(left)
        if len(length) == width:
            return head + length + b"x" * left
    raise AssertionError(size)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


@dataclass
class CraftedDatabase:
    """A database. Tables are (level, number, rows of (key, sequence, value)), in this order; logs are bytes."""

    tables: Sequence[tuple[int, int, Sequence[tuple[bytes, int, bytes | None]]]] = ()
    logs: Mapping[int, bytes] = field(default_factory=dict)
    last_sequence: int = 0
    log_number: int | None = None
    next_file_number: int | None = None
    edit: Sequence[EditField] = ()
    settings: TableSettings = field(default_factory=lambda: TableSettings(compression="none", block_size=64))
    more: Mapping[str, bytes] = field(default_factory=dict)
    sizes: Mapping[int, int] = field(default_factory=dict)
    """Sizes of tables in the manifest that differ from the true ones."""

    @cached_property
    def files(self) -> dict[str, bytes]:
        out = {log_name(number): data for number, data in self.logs.items()}
        numbers = [*self.logs, *(number for _, number, _ in self.tables)]
        manifest = max(numbers, default=2) + 1
        edit = [
            EditField("comparator", text=BYTEWISE.encode()),
            EditField(
                "log_number",
                number=min(self.logs, default=0) if self.log_number is None else self.log_number,
            ),
            EditField("prev_log_number", number=0),
            EditField("next_file_number", number=self.next_file_number or manifest + 1),
            EditField("last_sequence", number=self.last_sequence),
        ]
        for level, number, rows in self.tables:
            builder = TableBuilder(self.settings)
            data = table(rows, self.settings, builder)
            out[table_name(number)] = data
            assert builder.smallest is not None
            assert builder.largest is not None
            edit.append(
                EditField(
                    "new_file",
                    level=level,
                    number=number,
                    size=self.sizes.get(number, len(data)),
                    smallest=builder.smallest,
                    largest=builder.largest,
                )
            )
        out[manifest_name(manifest)] = logged([form([*edit, *self.edit])])
        out["CURRENT"] = f"{manifest_name(manifest)}\n".encode()
        return out | dict(self.more)

    def open(self, **options: Any) -> Started:
        return open_listing(MemoryDirectory(self.files), **options)

    def changed(self, name: str, change: Callable[[bytearray], None]) -> MemoryDirectory:
        """Return the database with one file changed."""
        data = bytearray(self.files[name])
        change(data)
        return MemoryDirectory({**self.files, name: bytes(data)})


def table(
    rows: Sequence[tuple[bytes, int, bytes | None]],
    settings: TableSettings,
    builder: TableBuilder | None = None,
) -> bytes:
    builder = builder or TableBuilder(settings)
    schema = pa.schema([("key", pa.binary()), ("sequence", pa.int64()), ("value", pa.binary())])
    batch = pa.RecordBatch.from_pylist(
        [{"key": key, "sequence": sequence, "value": value} for key, sequence, value in rows], schema
    )
    data, _ = builder.add(batch)
    return bytes(data) + builder.finish()


def resealed(data: bytearray, offset: int, size: int) -> None:
    """Correct the checksum of a block."""
    data[offset : offset + size + 5] = sealed(bytes(data[offset : offset + size]), data[offset + size])


def fill(to: int, sequence: int = 1) -> bytes:
    """Return a log of one record that ends `to` bytes before the end of a block."""
    return physical(large(sequence, b"fill", BLOCK - to - HEADER))


def after(opened: Started) -> dict[str, bytes]:
    """Return the files as LevelDB would leave them."""
    return {entry.name: opened.after.read(entry.name) for entry in opened.after.entries()}


def key_of(user: bytes, sequence: int, kind: int = 1) -> bytes:
    return internal_key(user, sequence, kind)
