"""Repair and check of LevelDB databases in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from apply_repair import apply_repair
from leveldb_startup import GOLDEN, CraftedDatabase, open_listing, rows_of
from memory_directory import MemoryDirectory

from logwright.codec import registry
from logwright.codec.capability import CheckSettings
from logwright.codec.engine.repair import Removed, RepairPlan, Strategy
from logwright.codec.fault import Fault, Severity
from logwright.codec.frames.walk import Hole, ListedFile, Walk
from logwright.codec.leveldb.formats.log import codec as log
from logwright.codec.leveldb.formats.manifest.layout import EditField
from logwright.codec.leveldb.formats.table import codec as table
from logwright.codec.leveldb.formats.table.compression import sealed
from logwright.codec.leveldb.formats.table.filter import FilterBuilder, bloom_hash
from logwright.codec.leveldb.formats.table.layout import handle, pack_entries
from logwright.codec.leveldb.formats.table.write import footer, metaindex_block
from logwright.codec.leveldb.keys import internal_key
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, Role

LAYOUT = registry.get_layout("leveldb.db")

Entry = tuple[bytes, int, str, bytes | None]
"""Key, sequence, type, value."""


def repaired(
    directory: MemoryDirectory, strategy: str = "salvage", **values: Any
) -> tuple[MemoryDirectory, RepairPlan]:
    """Return the repaired directory and the applied plan."""
    plan = LAYOUT.plan(directory, Options(LAYOUT.read_options))
    options = Options(LAYOUT.capabilities.repair.options, values)
    repair_plan = LAYOUT.capabilities.repair.repair([directory], [plan], Strategy(strategy), options)
    return apply_in_memory(directory, repair_plan), repair_plan


def rebuilt(directory: MemoryDirectory, *kinds: str, **values: Any) -> tuple[MemoryDirectory, RepairPlan]:
    plan = LAYOUT.plan(directory, Options(LAYOUT.read_options))
    repair_plan = LAYOUT.capabilities.repair.rebuild(
        directory, plan, kinds, Options(LAYOUT.capabilities.repair.options, values)
    )
    return apply_in_memory(directory, repair_plan), repair_plan


def apply_in_memory(directory: MemoryDirectory, repair_plan: RepairPlan) -> MemoryDirectory:
    return MemoryDirectory(apply_repair(repair_plan, directory), directory.name)


def check_leveldb_accepts(directory: MemoryDirectory) -> list[tuple[bytes, bytes]]:
    """Check that LevelDB opens a repaired database in its strictest mode without a warning, and that a check finds nothing. Return the
    rows."""
    opened = open_listing(directory, paranoid_checks=True, verify_checksums=True)
    verdict = opened.verdict
    assert verdict.opens, verdict.error
    assert verdict.error is None
    assert [warning for warning in verdict.warnings if "compaction" not in warning] == []
    assert check_faults(directory) == []
    return rows_of(opened)


def check_faults(
    directory: MemoryDirectory, severity: Severity = Severity.ERROR, *, deep: bool = True
) -> list[tuple[str, Fault]]:
    """Return the faults of this severity that a check finds."""
    plan = LAYOUT.plan(directory, Options(LAYOUT.read_options))
    checker = LAYOUT.capabilities.check(
        directory, plan, Options(LAYOUT.read_options), CheckSettings(deep=deep)
    )
    faults = list(plan.faults)
    for file in plan.files:
        if file.codec is None or file.role in (Role.LEFTOVER, Role.FOREIGN):
            continue
        if file.role is not Role.PRIMARY:
            continue
        codec = log.CODEC if file.codec == log.CODEC.name else table.CODEC
        checker.begin(file)
        context = codec.context(file.name, Options(codec.options), **file.hints)
        for part in Walk(ListedFile(directory, file.name, file.size), codec, context):
            if isinstance(part, Hole):
                faults.append((file.name, part.fault))
            else:
                faults += [(file.name, fault) for fault in part.frames.faults]
                if len(part.frames):
                    checker.add(part.window, part.frames)
    faults += checker.finish()
    return [entry for entry in faults if entry[1].severity is severity]


def sound_entries(directory: Listing, *names: str) -> set[Entry]:
    """Return the entries of all sound blocks and batches of some files, by default of all tables and logs."""
    out: set[Entry] = set()
    for entry in directory.entries():
        suffix = entry.name.rpartition(".")[2]
        if suffix not in ("log", "ldb", "sst") or (names and entry.name not in names):
            continue
        codec: Any = log.CODEC if suffix == "log" else table.CODEC
        columns = ["key", "sequence", "type", "value"]
        context = codec.context(entry.name, Options(codec.options))
        for part in Walk(ListedFile(directory, entry.name, entry.size), codec, context):
            if isinstance(part, Hole) or not len(part.frames):
                continue
            for decoded in codec.decode(part.window, part.frames, "rows", columns, context):
                rows = [column.to_pylist() for column in decoded.batch.columns]
                out |= set(zip(*rows, strict=True))
    return out


def cuts(repair_plan: RepairPlan) -> list[Removed]:
    return list(repair_plan.cut)


# Handmade tables


def handmade_table(
    *blocks: list[tuple[bytes, int]],
    keys: list[bytes] | None = None,
    filtered: list[bytes] | None = None,
    policy: str = "",
) -> bytes:
    """Pack a table of blocks of (key, sequence), in any order. `keys` are those of the index, by default the last keys of the blocks."""
    out, index = b"", []
    for n, rows in enumerate(blocks):
        entries = [(internal_key(key, sequence, 1), b"v") for key, sequence in rows]
        data = sealed(pack_entries(entries, 16), 0)
        key = entries[-1][0] if keys is None else keys[n]
        index.append((key, handle(len(out), len(data) - 5)))
        out += data
    place = None
    if filtered is not None:
        builder = FilterBuilder(10)
        hashes = [bloom_hash(np.frombuffer(key, np.uint8), 0, len(key)) for key in filtered]
        builder.add(np.array(hashes, np.int64), len(out))
        data = sealed(builder.finish(), 0)
        place = handle(len(out), len(data) - 5)
        out += data
    meta = sealed(metaindex_block(place, 16, policy) if policy else metaindex_block(place, 16), 0)
    meta_place, out = handle(len(out), len(meta) - 5), out + meta
    data = sealed(pack_entries(index, 1), 0)
    return out + data + footer(meta_place, handle(len(out), len(data) - 5))


def database(table: bytes, *, smallest: bytes = b"\0", largest: bytes = b"\xff" * 4) -> MemoryDirectory:
    """Return a database of one table of level 1, number 3, whose manifest entry spans all keys."""
    fields = [
        EditField(
            "new_file",
            level=1,
            number=3,
            size=len(table),
            smallest=internal_key(smallest, 1, 1),
            largest=internal_key(largest, 1, 1),
        )
    ]
    files = CraftedDatabase(last_sequence=100, edit=fields, next_file_number=9, more={"000003.ldb": table})
    return MemoryDirectory(files.files)


# Golden cases


def truth(case: str) -> tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]:
    """Return the description of a case, and the rows of each step as recorded: hexadecimal, long values by length and hash."""
    about: dict[str, Any] = {}
    rows: dict[str, dict[str, Any]] = {}
    step = ""
    for line in map(json.loads, (GOLDEN / case / "truth.jsonl").read_text().splitlines()):
        kind = line.get("t")
        if kind == "case":
            about = line
        elif kind == "result":
            step = line["step"]
            base = line.get("same_entries_as") or line.get("entries_relative_to")
            rows[step] = dict(rows[base]) if base else {}
            for key in line.get("missing", []):
                del rows[step][key]
            for more in [*line.get("changed", []), *line.get("extra", [])]:
                rows[step][more["k"]] = _value(more)
        else:
            rows[step][line["k"]] = _value(line)
    return about, rows


def _value(line: Mapping[str, Any]) -> Any:
    return line["v"] if "v" in line else (line["v_len"], line["v_sha256"])


def golden(case: str) -> MemoryDirectory:
    path = GOLDEN / case / "db"
    return MemoryDirectory(
        {child.name: child.read_bytes() for child in path.iterdir() if child.is_file()}, "db"
    )


def damaged_cases() -> Sequence[str]:
    return [
        path.parent.name
        for path in sorted(Path(GOLDEN).glob("*/truth.jsonl"))
        if json.loads(path.open().readline()).get("damaged")
    ]
