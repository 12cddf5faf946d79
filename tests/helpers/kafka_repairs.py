"""Mending in memory, for tests: a directory as a mapping of names to bytes, and what a mending makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memory_directory import MemoryDirectory

from logwright.codec import registry
from logwright.codec.engine.repair import RepairPlan, Strategy
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy
from logwright.codec.store.listing import Listing

LAYOUT = registry.get_layout("kafka.partition")

INTERVAL = {"index.interval.bytes": 250}
OPTIONS = {**INTERVAL, "producer.id.expiration.ms": 1 << 62}
"""As the golden brokers ran, and no producer is ever forgotten."""
ID = "dYzWm9fOQ-qIYUZRa3sd5A"


def partition_directory(
    files: Mapping[str, bytes], name: str = "orders-0", above: Listing | None = None
) -> MemoryDirectory:
    return MemoryDirectory(files, name, above)


def read_partition(path: Path) -> MemoryDirectory:
    """A partition directory, and the files of the log directory that it lies in."""
    return MemoryDirectory.of(path, MemoryDirectory.of(path.parent))


def options(**given: Any) -> Options:
    return Options(
        LAYOUT.capabilities.repair.options, {name.replace("__", "-"): value for name, value in given.items()}
    )


def repair(
    *copies: MemoryDirectory, strategy: str = "salvage", **given: Any
) -> tuple[MemoryDirectory, RepairPlan]:
    """The directory that comes out, and the mending after it was carried out."""
    plans = [LAYOUT.plan(one, Options(LAYOUT.read_options)) for one in copies]
    mending = LAYOUT.capabilities.repair.repair(copies, plans, Strategy(strategy), options(**given))
    return apply_to_copies(copies, mending), mending


def rebuild(copy: MemoryDirectory, *what: str, **given: Any) -> tuple[MemoryDirectory, RepairPlan]:
    """Rebuild `what`, or everything that can be rebuilt."""
    able = LAYOUT.capabilities.repair
    plan = LAYOUT.plan(copy, Options(LAYOUT.read_options))
    mending = able.rebuild(copy, plan, what or able.rebuilds, options(**given))
    return apply_to_copies([copy], mending), mending


def apply_to_copies(copies: Sequence[MemoryDirectory], mending: RepairPlan) -> MemoryDirectory:
    made: dict[str, bytes] = {}
    for mended in mending.files():
        assert mended.name not in made, f"{mended.name} comes twice"
        parts = []
        for piece in mended.pieces:
            if isinstance(piece, Copy):
                assert 0 <= piece.start <= piece.stop <= len(copies[piece.copy].files[piece.file]), piece
                parts.append(copies[piece.copy].files[piece.file][piece.start : piece.stop])
            else:
                parts.append(piece)
        made[mended.name] = b"".join(parts)
        assert mended.like is None or mended.like in copies[0].files, mended
    assert sorted(mending.removes) == sorted(set(copies[0].files) - set(made))
    return MemoryDirectory(made, copies[0].name, copies[0].above)


def predict_start(directory: MemoryDirectory, *, clean: bool = False, **given: Any) -> Any:
    """What a broker would do with a directory (`Opened`)."""
    wanted = Options(LAYOUT.read_options, given)
    return LAYOUT.capabilities.predict.run(
        directory, LAYOUT.plan(directory, wanted), wanted, version=None, clean=clean
    )


def check_broker_accepts(directory: MemoryDirectory, *, unsupported: bool = False) -> Any:
    """A broker started on a mended directory finds nothing to do, and its consumer gets to the end. Returns the verdict.

    With `unsupported` the directory has a batch of an unknown compression. A repair keeps it, and the consumer stops there.
    """
    alone = MemoryDirectory(directory.files, directory.name)
    opened = predict_start(alone, **INTERVAL)
    verdict = opened.verdict
    assert verdict.opens, verdict.error
    if unsupported:
        assert "Unknown compression type id" in verdict.error
    else:
        assert verdict.error is None
    assert not verdict.truncates
    assert not verdict.removes
    assert not verdict.creates
    assert [name for name in verdict.rewrites if opened.after.read(name) != alone.files[name]] == []
    # A check finds no error in the logs, or this would be refused.
    assert rebuild(directory, **OPTIONS)[0].files == directory.files
    return verdict
