"""Mending in memory, for tests: a directory as a mapping of names to bytes, and what a mending makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from logwright.codec import registry
from logwright.codec.mending import Kept, Mending, Strategy
from logwright.codec.option import Options
from logwright.codec.store.listing import Entry, Listing

LAYOUT = registry.get_layout("kafka.partition")

INTERVAL = {"index.interval.bytes": 250}
OPTIONS = {**INTERVAL, "producer.id.expiration.ms": 1 << 62}
"""As the golden brokers ran, and no producer is ever forgotten."""
ID = "dYzWm9fOQ-qIYUZRa3sd5A"


class Memory:
    """A `Listing` of bytes."""

    def __init__(
        self, files: Mapping[str, bytes], name: str = "orders-0", above: Listing | None = None
    ) -> None:
        self.name, self.files, self.above = name, dict(files), above

    def entries(self) -> Sequence[Entry]:
        return [Entry(name, len(data)) for name, data in sorted(self.files.items())]

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        data = self.files[name]
        return data[offset:] if length is None else data[offset : offset + length]

    def parent(self) -> Listing | None:
        return self.above


def memory(path: Path) -> Memory:
    """A partition directory, and the files of the log directory that it lies in."""
    above = Memory(
        {one.name: one.read_bytes() for one in path.parent.iterdir() if one.is_file()}, path.parent.name
    )
    return Memory({one.name: one.read_bytes() for one in path.iterdir() if one.is_file()}, path.name, above)


def options(**given: Any) -> Options:
    return Options(
        LAYOUT.capabilities.repair.options, {name.replace("__", "-"): value for name, value in given.items()}
    )


def repair(*copies: Memory, strategy: str = "salvage", **given: Any) -> tuple[Memory, Mending]:
    """The directory that comes out, and the mending after it was carried out."""
    plans = [LAYOUT.plan(one, Options(LAYOUT.read_options)) for one in copies]
    mending = LAYOUT.capabilities.repair.repair(copies, plans, Strategy(strategy), options(**given))
    return execute(copies, mending), mending


def rebuild(copy: Memory, *what: str, **given: Any) -> tuple[Memory, Mending]:
    mending = LAYOUT.capabilities.repair.rebuild(
        copy, LAYOUT.plan(copy, Options(LAYOUT.read_options)), what, options(**given)
    )
    return execute([copy], mending), mending


def execute(copies: Sequence[Memory], mending: Mending) -> Memory:
    made: dict[str, bytes] = {}
    for mended in mending.files():
        assert mended.name not in made, f"{mended.name} comes twice"
        parts = []
        for piece in mended.pieces:
            if isinstance(piece, Kept):
                assert 0 <= piece.start <= piece.stop <= len(copies[piece.copy].files[piece.file]), piece
                parts.append(copies[piece.copy].files[piece.file][piece.start : piece.stop])
            else:
                parts.append(piece)
        made[mended.name] = b"".join(parts)
        assert mended.like is None or mended.like in copies[0].files, mended
    assert sorted(mending.removes) == sorted(set(copies[0].files) - set(made))
    return Memory(made, copies[0].name, copies[0].above)


def started(directory: Memory, *, clean: bool = False, **given: Any) -> Any:
    """What a broker would do with a directory (`Opened`)."""
    wanted = Options(LAYOUT.read_options, given)
    return LAYOUT.capabilities.predict.start(
        directory, LAYOUT.plan(directory, wanted), wanted, version=None, clean=clean
    )


def lawful(directory: Memory, *, unsupported: bool = False) -> Any:
    """A broker started on a mended directory finds nothing to do, and its consumer gets to the end. Returns the verdict.

    With `unsupported` the directory has a batch of an unknown compression. A repair keeps it, and the consumer stops there.
    """
    alone = Memory(directory.files, directory.name)
    opened = started(alone, **INTERVAL)
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
