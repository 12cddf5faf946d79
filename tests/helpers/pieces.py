"""Files that are built in memory."""

from __future__ import annotations

from collections.abc import Iterable

from logwright.codec.store.build import Piece


def take(pieces: Iterable[Piece]) -> dict[str, bytes]:
    """Join pieces to the contents of files."""
    files: dict[str, bytearray] = {}
    for piece in pieces:
        content = files.setdefault(piece.name, bytearray())
        at = len(content) if piece.offset is None else piece.offset
        content[at : at + len(piece.data)] = bytes(piece.data)
    return {name: bytes(data) for name, data in files.items()}
