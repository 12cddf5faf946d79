"""Apply a repair plan to directories in memory."""

from __future__ import annotations

from typing import Any

from pieces import take

from logwright.codec.engine.repair import RepairPlan
from logwright.codec.store.build import Piece
from logwright.codec.store.extents import Copy


def apply_repair(plan: RepairPlan, *replicas: Any) -> dict[str, bytes]:
    """Return the files of the result by name. Check that each is written once and all other files of the first replica are removed."""
    directory = replicas[0]
    files: dict[str, bytes] = {}
    pieces: list[Piece] = []
    for output in plan.files():
        if isinstance(output, Piece):
            pieces.append(output)
            continue
        assert output.name not in files, f"{output.name} is written twice"
        assert output.like is None or output.like in directory.files, output
        parts = []
        for extent in output.pieces:
            if isinstance(extent, Copy):
                source = replicas[extent.copy]
                assert 0 <= extent.start <= extent.stop <= len(source.files[extent.file]), extent
                parts.append(source.read(extent.file, extent.start, extent.stop - extent.start))
            else:
                parts.append(extent)
        files[output.name] = b"".join(parts)
    derived = take(pieces)
    assert not derived.keys() & files.keys()
    files |= derived
    assert sorted(plan.removes) == sorted(set(directory.files) - set(files))
    return files
