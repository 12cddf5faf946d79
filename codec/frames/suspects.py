"""The bits of a damaged frame that may be flipped, from its specification."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from logwright.codec.describe import Flags, Int, Struct
from logwright.codec.frames.specification import CRC32, CRC32C, FrameSpec, Span, span_of
from logwright.codec.kernels import bitflip
from logwright.codec.kernels.bitflip import Flip
from logwright.codec.window import Bytes, Window

_POLYNOMIALS = {CRC32.name: bitflip.CRC32, CRC32C.name: bitflip.CRC32C}


class _Number(NamedTuple):
    """An integer of the head. A number without a width is not in the head."""

    offset: int = 0
    width: int = 0
    order: str = "<"
    signed: bool = False

    @classmethod
    def of(cls, struct: Struct, name: str) -> _Number:
        if name not in {field.name for field in struct.fields}:
            return cls()
        kind = struct[name].type
        kind = kind.base if isinstance(kind, Flags) else kind
        if not isinstance(kind, Int):
            return cls()
        # A number of one byte is read without a sign, as a scan does.
        return cls(
            struct.offset(name), kind.width, kind.order, kind.width == 8 or (kind.signed and kind.width > 1)
        )

    def read(self, data: Bytes, at: int) -> int:
        """Return the number, without its sign, in the head at `at`."""
        start = at + self.offset
        return int.from_bytes(
            data[start : start + self.width].tobytes(), "big" if self.order == ">" else "little"
        )

    def value(self, stored: int) -> int:
        """Return the number with its sign."""
        bits = 8 * self.width
        return stored - (1 << bits) if self.signed and stored >> bits - 1 else stored

    def flips(self, stored: int) -> Iterator[tuple[int, int, int]]:
        """Yield each bit as (byte of the head, bit), and the number with it flipped, without its sign."""
        for byte in range(self.width):
            shift = 8 * (self.width - 1 - byte if self.order == ">" else byte)
            for bit in range(8):
                yield self.offset + byte, bit, stored ^ 1 << shift + bit


class _Layout:
    """The numbers of a specification that this search reads."""

    def __init__(self, spec: FrameSpec) -> None:
        self.spec = spec
        self.length = _Number.of(spec.struct, spec.length.field)
        self.test = _Number() if spec.test is None else _Number.of(spec.struct, spec.test.field)
        self.stored = [_Number.of(spec.struct, checksum.at) for checksum in spec.checksums]
        self.spans: Sequence[tuple[Span, int]] = [span_of(spec, i) for i in range(len(spec.checksums))]
        values = () if spec.test is None else spec.test.values
        values += () if spec.marker is None else (spec.marker.value,)
        self._tested = {value & 0xFFFFFFFF for value in values}

    def is_tested(self, stored: int) -> bool:
        """Return whether the number that is tested, without its sign, has one of the expected values."""
        return self.test.value(stored) & 0xFFFFFFFF in self._tested


_LAYOUTS: dict[int, _Layout] = {}
"""By the id of the specification, whose hash takes longer than a search. They keep the specifications alive."""


def _layout_of(spec: FrameSpec) -> _Layout:
    layout = _LAYOUTS.get(id(spec))
    if layout is None:
        layout = _LAYOUTS[id(spec)] = _Layout(spec)
    return layout


def suspects(spec: FrameSpec, window: Window, at: int) -> Iterator[Flip]:
    """Yield bits of the damaged frame at `window.data[at]`. One of them alone may be flipped.

    If a CRC is wrong, it shows the bit, unless the length is wrong. If all checksums are right, the bit is in a field that none covers. An
    Adler-32 shows no bit with certainty: too many pairs of wrong bits change it as a single one does.
    """
    data, struct, layout = window.data, spec.struct, _layout_of(spec)
    left = min(len(data), window.size - window.offset) - at
    if not spec.checksums or left < spec.peek:
        return
    length_at = at + layout.length.offset
    length_bytes = range(length_at, length_at + layout.length.width)
    length = layout.length.read(data, at)
    size = layout.length.value(length) + spec.length.bias
    wrong = closed = False
    covered: set[int] = set()
    head = min(struct.head_size, left)
    if spec.length.low <= size <= left:
        for checksum, number, (span, mask) in zip(spec.checksums, layout.stored, layout.spans, strict=True):
            try:
                start, stop, stored = span(data, at, at + size)
            except IndexError:
                continue
            if start < 0 or not at <= start <= stop <= at + size:
                continue
            covered.update(range(start, min(stop, at + head)))
            stored_at = at + number.offset
            covered.update(range(stored_at, stored_at + number.width))
            closed |= stop == at + size
            computed = int(checksum.algorithm.of(data, start, stop)) & mask
            if computed == stored:
                continue
            wrong = True
            polynomial = _POLYNOMIALS.get(checksum.algorithm.name)
            if polynomial is None:
                continue
            if number.width:
                yield from bitflip.flips_of_stored(stored_at, number.width, number.order, stored ^ computed)
            yield from bitflip.flips_by_crc(start, stop, stored ^ computed, polynomial, mask)
    else:
        wrong = True
    if wrong:
        for byte, bit, flipped in layout.length.flips(length):
            size_then = layout.length.value(flipped) + spec.length.bias
            if not spec.length.low <= size_then <= left or not _may_end(
                layout, data, at + size_then, at + left
            ):
                continue
            if _sums_agree(layout, data, at, size_then, (at + byte, bit)):
                yield Flip(at + byte, bit)
    places = [] if wrong else [i for i in range(at, at + head) if i not in covered]
    if wrong and spec.test is not None and len(spec.test.values) > 1:
        # The wrong kind of frame may have been tested.
        places += range(at + layout.test.offset, at + layout.test.offset + layout.test.width)
    if spec.mark is not None and not wrong:
        places.append(at + size - 1)
    tests = layout.test.flips(layout.test.read(data, at)) if spec.test is not None else ()
    passes = spec.test is None or layout.is_tested(layout.test.read(data, at))
    passing = {(at + byte, bit) for byte, bit, flipped in tests if layout.is_tested(flipped)}
    tested = range(at + layout.test.offset, at + layout.test.offset + layout.test.width)
    for place in places:
        # A right checksum up to the end of the frame proves the length.
        for bit in () if closed and not wrong and place in length_bytes else range(8):
            if (place, bit) in passing if place in tested else passes:
                yield Flip(place, bit)


def _may_end(layout: _Layout, data: Bytes, end: int, stop: int) -> bool:
    """Return whether a frame may end there: where the data ends, or before zeros or what may be another frame."""
    head_size = layout.spec.struct.head_size
    if layout.spec.test is None or end + head_size > min(stop, len(data)):
        return True
    return layout.is_tested(layout.test.read(data, end)) or not data[end : end + head_size].any()


def _sums_agree(layout: _Layout, data: Bytes, at: int, size: int, flip: tuple[int, int]) -> bool:
    """Return whether the checksums of the frame at `data[at]` are right with a bit of its length flipped, which is then `size`."""
    place, bit = flip
    stored = data[place]
    data[place] = stored ^ 1 << bit
    try:
        for checksum, (span, mask) in zip(layout.spec.checksums, layout.spans, strict=True):
            start, stop, right = span(data, at, at + size)
            if start >= 0 and not at <= start <= stop <= at + size:
                return False
            if start >= 0 and int(checksum.algorithm.of(data, start, stop)) & mask != right:
                return False
        return True
    except IndexError:
        return False
    finally:
        data[place] = stored
