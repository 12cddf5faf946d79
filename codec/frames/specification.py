"""The frame specification: how a format frames its records, as data.

A frame is a head of fixed-width fields, one of which gives the length of the frame, and a body. The specification states where the length
is and its limits, the test of a magic or type, the checksums and their spans, the terminator of the frames, marker frames, and the position
that a head claims. `scanner` and `resync` compile kernels from it, with these values as constants.

Rules that cannot be expressed as data are kernels that the specification names: `rule`, and the spans of checksums at variable positions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from logwright.codec.arrays import Bytes
from logwright.codec.describe import Flags, Int, Struct
from logwright.codec.expression import UNBOUNDED
from logwright.codec.kernels.adler32 import adler32, adler32_between, adler32_update
from logwright.codec.kernels.crc32 import crc32, crc32_combine, crc32_update
from logwright.codec.kernels.crc32c import crc32c, crc32c_combine, crc32c_update
from logwright.codec.kernels.intrinsics import (
    Load,
    load_i16be,
    load_i32be,
    load_i32le,
    load_i64be,
    load_i64le,
    load_u8,
    load_u16be,
    load_u16le,
    load_u32be,
    load_u32le,
)
from logwright.codec.kernels.kernel import kernel

Span = Callable[[Bytes, int, int], tuple[int, int, int]]
"""A kernel `(buf, at, end) -> (start, stop, stored)`: the range that a checksum covers, and its stored value. A start of -1 means that
this frame has no such checksum. The frame is complete and its rule has passed."""
Rule = Callable[[Bytes, int, int, int], int]
"""A kernel `(buf, at, end, check) -> int` that tests what else must hold of the frame `buf[at:end]`. See `IMPOSSIBLE`. With `check` 0,
costly tests such as a digest of the body are skipped."""

HeadRule = Callable[[Bytes, int], bool]
"""A kernel `(buf, at) -> bool`: whether the complete head at `at` may be that of a frame. The search after damage calls it before it
asks for the rest of the frame."""
PutHead = Callable[[Bytes, int, Bytes, int, int], None]
"""A kernel `(heads, place, buf, at, size) -> None` that stores the entry of the frame `buf[at : at + size]` at `heads[place]`."""

IMPOSSIBLE, PLAUSIBLE, CERTAIN = range(3)
"""Verdicts of a rule: not a frame; a frame if others follow it; a frame. A larger verdict is CERTAIN too (`FrameSpec.verdicts`)."""


@dataclass(frozen=True)
class Algorithm:
    """A checksum algorithm. All are kernels."""

    name: str
    of: Callable[[Bytes, int, int], int]
    """The checksum of `buf[start:end]`."""
    update: Callable[[int, Bytes, int, int], int]
    """The checksum of bytes with the checksum of the first argument, followed by `buf[start:end]`."""
    between: Callable[[int, int, int], int]
    """The checksum of the last `length` bytes, from the checksum of the bytes before them and the checksum of all."""
    empty: int = 0
    """The checksum of no bytes."""


CRC32 = Algorithm("CRC-32", crc32, crc32_update, crc32_combine)
CRC32C = Algorithm("CRC-32C", crc32c, crc32c_update, crc32c_combine)
ADLER32 = Algorithm("Adler-32", adler32, adler32_update, adler32_between, 1)


@dataclass(frozen=True)
class Length:
    """The field that gives the size of a frame: its value plus `bias`. Sizes below `low` or above `high` are impossible.

    The search after damage accepts no size above `reach`, because a frame of that size must be read completely to be checked.
    """

    field: str
    bias: int = 0
    low: int = 0
    high: int = UNBOUNDED
    reach: int = 64 << 20


@dataclass(frozen=True)
class Equals:
    """A field of the head has one of these values."""

    field: str
    values: tuple[int, ...]


@dataclass(frozen=True)
class Checksum:
    """A checksum. It covers the frame from the first field `span` to `tail` bytes before the end, or what the kernel `span` says.
    `mask`: the bits of the computed checksum that are stored in the field `at`."""

    algorithm: Algorithm
    at: str
    span: str | Span
    tail: int = 0
    mask: int = 0xFFFFFFFF


@dataclass(frozen=True)
class Marker:
    """Marker frames, whose field `field` has this value. Their size is that of `struct`, or given by `length`."""

    name: str
    struct: Struct
    field: str
    value: int
    length: Length | None = None


@dataclass(frozen=True)
class Position:
    """A field that holds the frame's own position: the base of the file plus the byte where the frame starts. If the base is known, a
    frame that claims another position is invalid."""

    field: str


@dataclass(frozen=True)
class Ascending:
    """A field whose values ascend from frame to frame (an offset, a zxid): after damage, only frames above the last good one are accepted.

    `delta`: a field with the number by which the frame extends beyond its first value, or a kernel `(buf, at) -> int` that returns it.
    """

    field: str
    delta: str | Load = ""


@dataclass(frozen=True)
class Heads:
    """The entry that a scan keeps per frame, if that is not the stored head: an array of `dtype`, which `put` fills."""

    dtype: np.dtype[Any]
    put: PutHead


@dataclass(frozen=True)
class FrameSpec:
    """The frames of a format. `struct` describes the frames of the main kind.

    `mark`: the field and the value of the last byte of each frame. `zero_ends`: a length field of 0 ends the frames; preallocated zeros
    follow. `followers`: without checksums, the number of plausible frames (or the end of the
    frames) that must follow a plausible candidate of the search. `head_rule`: a further test of the head of a candidate. `fill`: a run of
    this byte, where a frame should start, is a frame too. `verdicts`: the head of each frame keeps the verdict of the rule, by which
    the rule can pass on what it computed.
    """

    name: str
    struct: Struct
    length: Length
    test: Equals | None = None
    marker: Marker | None = None
    mark: Equals | None = None
    checksums: tuple[Checksum, ...] = ()
    claims: Position | Ascending | None = None
    rule: Rule | None = None
    followers: int = 0
    zero_ends: bool = False
    head_rule: HeadRule | None = None
    fill: int | None = None
    heads: Heads | None = None
    verdicts: bool = False
    kind: str = field(default="record")

    def __post_init__(self) -> None:
        if not self.checksums and not self.followers:
            raise TypeError(
                f"{self.name} has no checksum: its specification needs followers, for the search after damage"
            )
        if len(self.checksums) > 2:
            raise TypeError(f"{self.name}: at most two checksums")
        if self.length.low < self.struct_end(self.length.field):
            raise TypeError(f"{self.name}: the smallest frame ends before the field {self.length.field}")
        _specifications[self.name] = self

    def struct_end(self, name: str) -> int:
        """Where a field of the head ends."""
        return self.struct.offset(name) + self.struct[name].type.min_size

    def head_fits(self, buf: Bytes, at: int) -> bool:
        """Return whether the complete head at `at` may be that of a frame."""
        return self.head_rule is None or bool(self.head_rule(buf, at))

    @cached_property
    def peek(self) -> int:
        """Bytes that are needed to know the size and the kind of a frame."""
        names = [self.length.field]
        names += [part.field for part in (self.test, self.marker) if part is not None]
        return max(map(self.struct_end, names))

    @cached_property
    def head(self) -> np.dtype[Any]:
        """The dtype of the entry that a scan keeps per frame: `heads`, or the stored head and the kind."""
        if self.heads is not None:
            return self.heads.dtype
        fields = self.struct.head_dtype
        verdict = [("verdict", "u1")] if self.verdicts else []
        return np.dtype(
            [*((name, fields[name]) for name in fields.names or ()), ("frame_kind", "u1"), *verdict]
        )

    @cached_property
    def least(self) -> int:
        """Size of the shortest frame of any kind."""
        if self.fill is not None:
            return 1
        if self.marker is None:
            return self.length.low
        size = self.marker.length.low if self.marker.length else self.marker.struct.min_size
        return min(self.length.low, size)


_specifications: dict[str, FrameSpec] = {}


def specifications() -> tuple[FrameSpec, ...]:
    """Return the specifications of the modules imported so far."""
    return tuple(_specifications.values())


_LOADS: dict[tuple[int, bool, str], Load] = {
    (1, False, ""): load_u8,
    (2, True, ">"): load_i16be,
    (2, False, ">"): load_u16be,
    (2, False, "<"): load_u16le,
    (4, True, ">"): load_i32be,
    (4, False, ">"): load_u32be,
    (4, True, "<"): load_i32le,
    (4, False, "<"): load_u32le,
    (8, True, ">"): load_i64be,
    (8, True, "<"): load_i64le,
}


def load_of(struct: Struct, name: str, *, unsigned: bool = False) -> Load:
    """Return the intrinsic that reads a field of a head. `unsigned`: as a non-negative number, if it has 32 bits or fewer."""
    kind = struct[name].type
    kind = kind.base if isinstance(kind, Flags) else kind
    if not isinstance(kind, Int):
        raise TypeError(f"{struct.name}.{name} is not an integer")
    signed = kind.signed and not (unsigned and kind.width < 8)
    signed = (signed and kind.width > 1) or kind.width == 8
    return _LOADS[kind.width, signed, "" if kind.width == 1 else kind.order]


def load_at(struct: Struct, name: str) -> tuple[Load, int]:
    """Return the intrinsic that reads a field of a head, and where."""
    return load_of(struct, name), struct.offset(name)


# Constants of kernels. A part that the specification lacks has values that are not used.


def length_constants(spec: FrameSpec) -> tuple[Load, int, int]:
    """Return the intrinsic that reads the length, where, and what is added to it."""
    return *load_at(spec.struct, spec.length.field), spec.length.bias


class MarkerConstants(NamedTuple):
    """Of marker frames: whether there are any, and whether they have a length; how the mark is read; how the size is read, its minimum, and
    the end of the fields."""

    markers: int
    sized: int
    load: Load
    at: int
    value: int
    load_size: Load
    size_at: int
    size_bias: int
    low: int
    end: int


def marker_constants(spec: FrameSpec) -> MarkerConstants:
    load_length, _ = load_at(spec.struct, spec.length.field)
    marker = spec.marker
    if marker is None:
        return MarkerConstants(0, 0, load_length, 0, 0, load_length, 0, 0, 0, 0)
    of_marker = *load_at(spec.struct, marker.field), marker.value
    low, end = marker.struct.min_size, marker.struct.head_size
    if marker.length is None:
        return MarkerConstants(1, 0, *of_marker, load_length, 0, 0, low, end)
    size = load_at(marker.struct, marker.length.field)
    return MarkerConstants(1, 1, *of_marker, *size, marker.length.bias, marker.length.low, end)


def claim_constants(spec: FrameSpec) -> tuple[int, int, Load, int, int, Load, int]:
    """Return whether a field claims the position of the frame, or ascends; the intrinsic that reads it, and where; whether it ascends by
    more than one, and the intrinsic that reads by how much, and where."""
    load_length, _ = load_at(spec.struct, spec.length.field)
    if spec.claims is None:
        return 0, 0, load_length, 0, 0, load_length, 0
    claim = load_at(spec.struct, spec.claims.field)
    if isinstance(spec.claims, Position):
        return 1, 0, *claim, 0, load_length, 0
    delta = spec.claims.delta
    if isinstance(delta, str):
        return (0, 1, *claim, 1, *load_at(spec.struct, delta)) if delta else (0, 1, *claim, 0, load_length, 0)
    return 0, 1, *claim, 1, delta, 0


@kernel("const u1[], i8, i8")
def no_span(buf: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """The span of an absent checksum."""
    return -1, -1, 0


@kernel("const u1[], i8, i8, i8")
def no_rule(buf: Bytes, at: int, end: int, check: int) -> int:
    """Accept every frame: the specification has no rule."""
    return CERTAIN


@kernel("const u1[], i8", inline=True)
def any_head(buf: Bytes, at: int) -> bool:
    """Accept every head: the specification has no `test` or no `head_rule`."""
    return True


@kernel("const u1[], i8, i8")
def no_checksum(buf: Bytes, start: int, end: int) -> int:
    return 0


@kernel("i8, const u1[], i8, i8")
def no_update(value: int, buf: Bytes, start: int, end: int) -> int:
    return 0


@kernel("i8, i8, i8")
def no_between(first: int, second: int, length: int) -> int:
    return 0


NO_ALGORITHM = Algorithm("none", no_checksum, no_update, no_between)


def named_kernel(
    signature: str, spec: FrameSpec, name: str, function: Callable[..., object], *, inline: bool = False
) -> Callable[..., object]:
    """Make a kernel of a function that a factory made, under a unique name, by which it is cached."""
    function.__qualname__ = function.__name__ = f"{name}:{spec.name}"
    return kernel(signature, inline=inline)(function)


@cache
def test_of(spec: FrameSpec) -> Callable[[Bytes, int], bool]:
    """Return the kernel `passes(buf, at)`: whether the head at `at` has one of the values of the specification's test."""
    if spec.test is None:
        return any_head
    load, field_at = load_at(spec.struct, spec.test.field)
    values = spec.test.values

    def passes(buf: Bytes, at: int) -> bool:
        stored = load(buf, at + field_at)
        passed = False
        for value in values:
            if stored == value:
                passed = True
        return passed

    test: Any = named_kernel("const u1[], i8", spec, "test", passes, inline=True)
    return test  # type: ignore[no-any-return]


@cache  # its kernel is compiled or loaded once
def span_of(spec: FrameSpec, index: int) -> tuple[Span, int]:
    """Return the span kernel of a checksum of the specification, and its mask."""
    if index >= len(spec.checksums):
        return no_span, 0
    checksum = spec.checksums[index]
    if not isinstance(checksum.span, str):
        return checksum.span, checksum.mask
    load = load_of(spec.struct, checksum.at, unsigned=True)
    at_stored, first, tail = spec.struct.offset(checksum.at), spec.struct.offset(checksum.span), checksum.tail

    def span(buf: Bytes, at: int, end: int) -> tuple[int, int, int]:
        return at + first, end - tail, load(buf, at + at_stored)

    span_kernel: Span = named_kernel("const u1[], i8, i8", spec, f"span{index}", span, inline=True)  # type: ignore[assignment]
    return span_kernel, checksum.mask
