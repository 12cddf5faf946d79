"""Mending LevelDB databases in memory, for tests: what comes out, and what is sound in what went in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leveldb_opening import GOLDEN, Files, open_listing, rows_of

from logwright.codec.base import Cut, Kept, Listing, Mending, Role, Strategy
from logwright.codec.fault import Fault, Severity
from logwright.codec.leveldb import log, table
from logwright.codec.leveldb.db import LAYOUT
from logwright.codec.leveldb.walk import Hole, Reader, walk
from logwright.codec.option import Options

Entry = tuple[bytes, int, str, bytes | None]
"""Key, sequence, type, value."""


def repaired(directory: Files, strategy: str = "salvage", **given: Any) -> tuple[Files, Mending]:
    """The directory that comes out, and the mending after it was carried out. What LevelDB has to say of it is checked too."""
    plan = LAYOUT.plan(directory, Options(LAYOUT.read_options))
    options = Options(LAYOUT.repair_options, given)
    mending = LAYOUT.repair([directory], [plan], Strategy(strategy), options)
    return executed(directory, mending), mending


def rebuilt(directory: Files, *what: str, **given: Any) -> tuple[Files, Mending]:
    plan = LAYOUT.plan(directory, Options(LAYOUT.read_options))
    mending = LAYOUT.rebuild(directory, plan, what, Options(LAYOUT.repair_options, given))
    return executed(directory, mending), mending


def executed(directory: Files, mending: Mending) -> Files:
    made: dict[str, bytes] = {}
    for mended in mending.files():
        assert mended.name not in made, f"{mended.name} comes twice"
        assert mended.like is None or mended.like in directory.files, mended
        parts = []
        for piece in mended.pieces:
            if isinstance(piece, Kept):
                assert 0 <= piece.start <= piece.stop <= len(directory.files[piece.file]), piece
                parts.append(directory.read(piece.file, piece.start, piece.stop - piece.start))
            else:
                parts.append(piece)
        made[mended.name] = b"".join(parts)
    assert sorted(mending.removes) == sorted(set(directory.files) - set(made))
    return Files(made, directory.name)


def lawful(directory: Files) -> list[tuple[bytes, bytes]]:
    """LevelDB opens a mended database in its strictest mode, has nothing to say, and gives these rows; a check finds nothing."""
    opened = open_listing(directory, paranoid_checks=True, verify_checksums=True)
    verdict = opened.verdict
    assert verdict.opens, verdict.error
    assert verdict.error is None
    assert [one for one in verdict.warnings if "compaction" not in one] == []
    assert checked(directory) == []
    return rows_of(opened)


def checked(
    directory: Files, severity: Severity = Severity.ERROR, *, deep: bool = True
) -> list[tuple[str, Fault]]:
    """What a check says of a database, of this severity."""
    plan = LAYOUT.plan(directory, Options(LAYOUT.read_options))
    checker = LAYOUT.checker(directory, plan, Options(LAYOUT.read_options), clean=None, live=False, deep=deep)
    found = list(plan.faults)
    for file in plan.files:
        if file.codec is None or file.role in (Role.LEFTOVER, Role.FOREIGN):
            continue
        if file.role is not Role.PRIMARY:
            continue
        codec = log.CODEC if file.codec == log.CODEC.name else table.CODEC
        context = codec.context(file.name, Options(codec.options), **file.hints)
        for one in walk(Reader(directory, file.name, file.size), codec, context):
            if isinstance(one, Hole):
                found.append((file.name, one.fault))
            else:
                found += [(file.name, fault) for fault in one.frames.faults]
                checker.add(file, one.window, one.frames)
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
        for one in walk(Reader(directory, entry.name, entry.size), codec, context):
            if isinstance(one, Hole) or not len(one.frames):
                continue
            for decoded in codec.decode(one.window, one.frames, "rows", columns, context):
                rows = [column.to_pylist() for column in decoded.batch.columns]
                out |= set(zip(*rows, strict=True))
    return out


def cuts(mending: Mending) -> list[Cut]:
    return list(mending.cut)


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


def golden(case: str) -> Files:
    path = GOLDEN / case / "db"
    return Files({one.name: one.read_bytes() for one in path.iterdir() if one.is_file()}, "db")


def damaged_cases() -> Sequence[str]:
    return [
        path.parent.name
        for path in sorted(Path(GOLDEN).glob("*/truth.jsonl"))
        if json.loads(path.open().readline()).get("damaged")
    ]
