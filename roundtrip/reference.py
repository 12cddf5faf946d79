"""Reference decoders of rows from described values: slow and simple, to verify the kernels.

The decoders are in `logwright.roundtrip.<system>.reference`, which has `ROWS`, and `FRAMES` and `UNCHECKED` if they
are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from logwright.codec import registry
from logwright.codec.base import Codec
from logwright.codec.describe import Struct

Described = Callable[[Iterable[Mapping[str, Any]]], Iterator[dict[str, Any]]]
"""Returns the rows for the described values of all frames. Only the columns that it returns are compared."""

LIMIT = 256 << 20
"""The maximum size of decompressed bytes."""


class Untold(ValueError):
    """The file is damaged where it describes its frames, so their rows cannot be determined."""


@cache
def _known(name: str) -> Mapping[str, Any]:
    known = registry.modules(str(__package__), "reference")
    return {codec: value for module in known for codec, value in getattr(module, name, {}).items()}


def rows_of(codec: Codec) -> Described | None:
    """Return the reference decoder of a codec, if it has one."""
    described: Described | None = _known("ROWS").get(codec.name)
    return described


def frame_of(codec: Codec) -> Struct:
    """Return the structure of a frame. A framed codec may have frames of several kinds."""
    struct: Struct = _known("FRAMES").get(codec.name) or getattr(codec, "frame", None) or codec.structures[0]
    return struct


def struct_of(codec: Codec, frame: bytes, at: int) -> Struct:
    """Return the structure of the frame at byte `at` of its file."""
    choose = getattr(codec, "struct_at", None)
    struct: Struct = codec.structures[0] if choose is None else choose(frame, at)
    return struct


def unchecked(codec: Codec) -> Callable[[bytes], bool] | None:
    """Return a test for frames without a checksum, if the codec's first structure has one."""
    test: Callable[[bytes], bool] | None = _known("UNCHECKED").get(codec.name)
    return test


def fields(*names: str, number: str = "") -> Described:
    """Return a function that yields these fields of each frame, and the number of the frame as a field. Frames without the first field, the
    header or the end record of a file, have no row."""

    def rows(frames: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        for i, frame in enumerate(frames):
            if frame[names[0]] is not None:
                yield {**({number: i} if number else {}), **{name: frame[name] for name in names}}

    return rows
