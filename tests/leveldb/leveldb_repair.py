"""Mending LevelDB databases in memory, for tests: what comes out, and what is sound in what went in."""

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
from logwright.codec.engine.repair import Removed, RepairPlan, Strategy
from logwright.codec.fault import Fault, Severity
from logwright.codec.frames.walk import Hole, ListedFile, Walk
from logwright.codec.leveldb.formats.log import codec as log
from logwright.codec.leveldb.formats.manifest.layout import EditField
from logwright.codec.leveldb.formats.table import codec as table
from logwright.codec.leveldb.formats.table.filter import FilterBuilder, bloom_hash
from logwright.codec.leveldb.formats.table.layout import handle, pack_entries, sealed
from logwright.codec.leveldb.formats.table.write import footer, metaindex_block
from logwright.codec.leveldb.keys import internal_key
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, Role

LAYOUT = registry.get_layout("leveldb.db")

Entry = tuple[bytes, int, str, bytes | None]
"""Key, sequence, type, value."""


def repaired(
    directory: MemoryDirectory, strategy: str = "salvage", **given: Any
) -> tuple[MemoryDirectory, RepairPlan]:
    """The directory that comes out, and the mending after it was carried out. What LevelDB has to say of it is checked too."""
    plan = LAYOUT.plan(directory, Options(LAYOUT.read_options))
    options = Options(LAYOUT.capabilities.repair.options, given)
    mending = LAYOUT.capabilities.repair.repair([directory], [plan], Strategy(strategy), options)
    return apply_in_memory(directory, mending), mending


def rebuilt(directory: MemoryDirectory, *what: str, **given: Any) -> tuple[MemoryDirectory, RepairPlan]:
    plan = LAYOUT.plan(directory, Options(LAYOUT.read_options))
    mending = LAYOUT.capabilities.repair.rebuild(
        directory, plan, what, Options(LAYOUT.capabilities.repair.options, given)
    )
    return apply_in_memory(directory, mending), mending


def apply_in_memory(directory: MemoryDirectory, mending: RepairPlan) -> MemoryDirectory:
    return MemoryDirectory(apply_repair(directory, mending), directory.name)


def check_leveldb_accepts(directory: MemoryDirectory) -> list[tuple[bytes, bytes]]:
    """LevelDB opens a mended database in its strictest mode, has nothing to say, and gives these rows; a check finds nothing."""
    opened = open_listing(directory, paranoid_checks=True, verify_checksums=True)
    verdict = opened.verdict
    assert verdict.opens, verdict.error
    assert verdict.error is None
    assert [one for one in verdict.warnings if "compaction" not in one] == []
    assert check_faults(directory) == []
    return rows_of(opened)


def check_faults(
    directory: MemoryDirectory, severity: Severity = Severity.ERROR, *, deep: bool = True
) -> list[tuple[str, Fault]]:
    """What a check says of a database, of this severity."""
    plan = LAYOUT.plan(directory, Options(LAYOUT.read_options))
    checker = LAYOUT.capabilities.check(
        directory, plan, Options(LAYOUT.read_options), clean=None, live=False, deep=deep
    )
    found = list(plan.faults)
    for file in plan.files:
        if file.codec is None or file.role in (Role.LEFTOVER, Role.FOREIGN):
            continue
        if file.role is not Role.PRIMARY:
            continue
        codec = log.CODEC if file.codec == log.CODEC.name else table.CODEC
        checker.begin(file)
        context = codec.context(file.name, Options(codec.options), **file.hints)
        for one in Walk(ListedFile(directory, file.name, file.size), codec, context):
            if isinstance(one, Hole):
                found.append((file.name, one.fault))
            else:
                found += [(file.name, fault) for fault in one.frames.faults]
                if len(one.frames):
                    checker.add(one.window, one.frames)
    found += checker.finish()
    return [one for one in found if one[1].severity is severity]


def sound_entries(directory: Listing, *names: str) -> set[Entry]:
    """The entries of all good blocks and batches of some files; of all tables and logs by default."""
    out: set[Entry] = set()
    for entry in directory.entries():
        suffix = entry.name.rpartition(".")[2]
        if suffix not in ("log", "ldb", "sst") or (names and entry.name not in names):
            continue
        codec: Any = log.CODEC if suffix == "log" else table.CODEC
        columns = ["key", "sequence", "type", "value"]
        context = codec.context(entry.name, Options(codec.options))
        for one in Walk(ListedFile(directory, entry.name, entry.size), codec, context):
            if isinstance(one, Hole) or not len(one.frames):
                continue
            for decoded in codec.decode(one.window, one.frames, "rows", columns, context):
                rows = [column.to_pylist() for column in decoded.batch.columns]
                out |= set(zip(*rows, strict=True))
    return out


def cuts(mending: RepairPlan) -> list[Removed]:
    return list(mending.cut)


# Tables made byte by byte


def handmade_table(
    *blocks: list[tuple[bytes, int]],
    keys: list[bytes] | None = None,
    filtered: list[bytes] | None = None,
    policy: str = "",
) -> bytes:
    """A table of blocks of (key, sequence), in whatever order; `keys` are those of the index, by default the last ones of the blocks."""
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
    """One table of level 1, number 3, of which the manifest says that it has all keys."""
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
    made = CraftedDatabase(last_sequence=100, edit=fields, next_file_number=9, more={"000003.ldb": table})
    return MemoryDirectory(made.files)


# Golden cases


def truth(case: str) -> tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]:
    """What is said of a case, and the rows of each step as the case has them: hexadecimal, long values by length and hash."""
    about: dict[str, Any] = {}
    rows: dict[str, dict[str, Any]] = {}
    step = ""
    for one in map(json.loads, (GOLDEN / case / "truth.jsonl").read_text().splitlines()):
        kind = one.get("t")
        if kind == "case":
            about = one
        elif kind == "result":
            step = one["step"]
            base = one.get("same_entries_as") or one.get("entries_relative_to")
            rows[step] = dict(rows[base]) if base else {}
            for key in one.get("missing", []):
                del rows[step][key]
            for more in [*one.get("changed", []), *one.get("extra", [])]:
                rows[step][more["k"]] = _value(more)
        else:
            rows[step][one["k"]] = _value(one)
    return about, rows


def _value(one: Mapping[str, Any]) -> Any:
    return one["v"] if "v" in one else (one["v_len"], one["v_sha256"])


def golden(case: str) -> MemoryDirectory:
    path = GOLDEN / case / "db"
    return MemoryDirectory({one.name: one.read_bytes() for one in path.iterdir() if one.is_file()}, "db")


def damaged_cases() -> Sequence[str]:
    return [
        path.parent.name
        for path in sorted(Path(GOLDEN).glob("*/truth.jsonl"))
        if json.loads(path.open().readline()).get("damaged")
    ]
