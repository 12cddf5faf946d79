"""What a mending makes of the files of a directory in memory, for tests."""

from __future__ import annotations

from typing import Any

from logwright.codec.engine.repair import RepairPlan
from logwright.codec.store.extents import Copy


def apply_repair(directory: Any, mending: RepairPlan) -> dict[str, bytes]:
    """The files that come out, each once, and all others removed. `directory` is a listing with `files`, bytes by name."""
    made: dict[str, bytes] = {}
    for mended in mending.files():
        assert mended.name not in made, f"{mended.name} comes twice"
        assert mended.like is None or mended.like in directory.files, mended
        parts = []
        for piece in mended.pieces:
            if isinstance(piece, Copy):
                assert 0 <= piece.start <= piece.stop <= len(directory.files[piece.file]), piece
                parts.append(directory.read(piece.file, piece.start, piece.stop - piece.start))
            else:
                parts.append(piece)
        made[mended.name] = b"".join(parts)
    assert sorted(mending.removes) == sorted(set(directory.files) - set(made))
    return made
