"""The rows of frames, from their described values: slow, obviously right, what the kernels are held to.

What is a system's own is in its folder here: `logwright.roundtrip.<system>.reference` has `ROWS`, and `FRAMES` and `UNCHECKED` where they
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
"""From the described values of all frames to the rows. The columns given are compared, others are not."""

LIMIT = 256 << 20
"""Bytes that may come out of a compressor."""


class Untold(ValueError):
    """The file is damaged where it says what its frames are: no description tells their rows."""


@cache
def _known(name: str) -> Mapping[str, Any]:
    known = registry.modules(str(__package__), "reference")
    return {codec: value for module in known for codec, value in getattr(module, name, {}).items()}


def rows_of(codec: Codec) -> Described | None:
    """None where nothing describes rows."""
    described: Described | None = _known("ROWS").get(codec.name)
    return described


def frame_of(codec: Codec) -> Struct:
    """What describes a frame. A framed codec says so itself: its frames may be of several kinds."""
    struct: Struct = _known("FRAMES").get(codec.name) or getattr(codec, "frame", None) or codec.structures[0]
    return struct


def struct_of(codec: Codec, frame: bytes, at: int) -> Struct:
    """The structure of one frame, at byte `at` of its file."""
    choose = getattr(codec, "struct_at", None)
    struct: Struct = codec.structures[0] if choose is None else choose(frame, at)
    return struct


def unchecked(codec: Codec) -> Callable[[bytes], bool] | None:
    """Which frames have no checksum, where the first of the codec's structures has one."""
    test: Callable[[bytes], bool] | None = _known("UNCHECKED").get(codec.name)
    return test
