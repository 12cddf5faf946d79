"""The bits of a damaged frame that may be flipped, from its specification."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from logwright.codec.arrays import Bytes
from logwright.codec.describe import Flags, Int, Struct
from logwright.codec.frames.specification import CRC32, CRC32C, Checksum, FrameSpec, Span, span_of
from logwright.codec.kernels import bitflip
from logwright.codec.kernels.bitflip import Flip
from logwright.codec.window import Window

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

    def read(self, data: memoryview, at: int) -> int:
        """Return the number in the head at `at`."""
        start = at + self.offset
        order: Literal["big", "little"] = "big" if self.order == ">" else "little"
        return int.from_bytes(data[start : start + self.width], order, signed=self.signed)

    def flips(self) -> list[tuple[int, int, int]]:
        """Return each bit as (byte of the head, bit), and the number whose exclusive or with this one flips it."""
        out = []
        for byte in range(self.width):
            shift = 8 * (self.width - 1 - byte if self.order == ">" else byte)
            out += [(self.offset + byte, bit, 1 << shift + bit) for bit in range(8)]
        sign = 1 << 8 * self.width - 1 if self.signed else 0
        return [(byte, bit, -number if number == sign else number) for byte, bit, number in out]


class _Layout:
    """What this search needs of a specification."""

    def __init__(self, spec: FrameSpec) -> None:
        self.spec, self.head_size = spec, spec.struct.head_size
        self.no_head = bytes(self.head_size)
        self.length = _Number.of(spec.struct, spec.length.field)
        self.length_flips = self.length.flips()
        self.test = _Number() if spec.test is None else _Number.of(spec.struct, spec.test.field)
        self.test_flips = self.test.flips()
        self.claim = _Number() if spec.claims is None else _Number.of(spec.struct, spec.claims.field)
        self.claim_flips = {(byte, bit): flip for byte, bit, flip in self.claim.flips()}
        self.sums: list[tuple[Checksum, _Number, Span, int]] = []
        for i, checksum in enumerate(spec.checksums):
            span, mask = span_of(spec, i)
            # As plain functions: a call of a kernel costs more than these few reads.
            self.sums.append(
                (checksum, _Number.of(spec.struct, checksum.at), getattr(span, "py_func", span), mask)
            )
        values = () if spec.test is None else spec.test.values
        values += () if spec.marker is None else (spec.marker.value,)
        self.tested = set(values) | {value - (1 << 8 * self.test.width) for value in values}
        """The expected values of the number that is tested, as signed and as unsigned numbers."""

    def passing(self, data: memoryview, at: int) -> Iterator[tuple[int, int]]:
        """Return the bits, as (byte of the head, bit), whose flip gives the tested number one of the expected values."""
        stored = self.test.read(data, at)
        return ((byte, bit) for byte, bit, flip in self.test_flips if stored ^ flip in self.tested)


_LAYOUTS: dict[int, _Layout] = {}
"""By the id of the specification, whose hash takes longer than a search. They keep the specifications alive."""


def _layout_of(spec: FrameSpec) -> _Layout:
    layout = _LAYOUTS.get(id(spec))
    if layout is None:
        layout = _LAYOUTS[id(spec)] = _Layout(spec)
    return layout


Bounds = tuple[int | None, int | None]
"""Numbers between which another one is; None if unknown."""


def suspects(
    spec: FrameSpec, window: Window, at: int, limit: int, bounds: Bounds = (None, None)
) -> Iterator[Flip]:
    """Yield bits of the damaged frame at `window.data[at]`, which ends at `limit` or before. One of them alone may be flipped. The right value
    of the field that ascends is between the `bounds`, as far as they are known.

    If a CRC is wrong, it shows the bit, unless the length is wrong. If all checksums are right, the bit is in a field that none covers. An
    Adler-32 shows no bit with certainty: too many pairs of wrong bits change it as a single one does.
    """
    layout = _layout_of(spec)
    if not spec.checksums or min(len(window.data), window.size - window.offset) - at < spec.peek:
        return
    claim = layout.claim.read(window.data.data, at)
    for flip in _by_checksums(layout, window, at, limit, claim, bounds):
        if _is_between(claim ^ layout.claim_flips.get((flip.place - at, flip.bit), 0), bounds):
            yield flip


def _is_between(claim: int, bounds: Bounds) -> bool:
    """Return whether the field that ascends fits between the frames around it."""
    above, below = bounds
    return (above is None or claim > above) and (below is None or claim < below)


def _by_checksums(
    layout: _Layout, window: Window, at: int, limit: int, claim: int, bounds: Bounds
) -> Iterator[Flip]:
    """Yield the bits that the checksums allow. `claim` is the field that ascends."""
    data, view, spec = window.data, window.data.data, layout.spec
    left = min(len(data), window.size - window.offset) - at
    low, bias, length = spec.length.low, spec.length.bias, layout.length.read(view, at)
    size = length + bias
    longest = min(left, limit - at)
    complete = low <= size <= longest
    wrong, closed = not complete, False
    covered: list[range] = []
    for checksum, number, span, mask in layout.sums if complete else ():
        try:
            start, stop, stored = span(data, at, at + size)
        except IndexError:
            continue
        if start < 0 or not at <= start <= stop <= at + size:
            continue
        stored_at = at + number.offset
        covered += [range(start, stop), range(stored_at, stored_at + number.width)]
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
    if not wrong:
        if closed:
            # A right checksum up to the end of the frame proves the length.
            covered.append(range(at + layout.length.offset, at + layout.length.offset + layout.length.width))
        head = range(at, at + min(layout.head_size, left))
        places = [i for i in head if not any(i in part for part in covered)]
        if not _is_between(claim, bounds):
            places = [i for i in places if (i - at, 0) in layout.claim_flips]
        if spec.mark is not None:
            places.append(at + size - 1)
        yield from _in_places(layout, view, at, places)
        return
    known: _Sums = {}
    others = [((length ^ flip) + bias, byte, bit) for byte, bit, flip in layout.length_flips]
    # From the smallest length on, so that each byte is summed once.
    for size_then, byte, bit in sorted(other for other in others if low <= other[0] <= longest):
        if _may_end(layout, view, at + size_then, at + left) and _sums_agree(
            layout, data, at, size_then, (at + byte, bit), known
        ):
            yield Flip(at + byte, bit)
    if spec.test is not None and len(spec.test.values) > 1:
        # The wrong kind of frame may have been tested.
        for byte, bit in layout.passing(view, at):
            # A marker frame has another length, and no checksum.
            if spec.marker is not None or (
                complete and _sums_agree(layout, data, at, size, (at + byte, bit), {})
            ):
                yield Flip(at + byte, bit)


def _in_places(layout: _Layout, data: memoryview, at: int, places: list[int]) -> Iterator[Flip]:
    """Yield the bits of these bytes with which the number that is tested has an expected value."""
    passing = {(at + byte, bit) for byte, bit in layout.passing(data, at)}
    passes = layout.spec.test is None or layout.test.read(data, at) in layout.tested
    tested = range(at + layout.test.offset, at + layout.test.offset + layout.test.width)
    for place in places:
        for bit in range(8):
            if (place, bit) in passing if place in tested else passes:
                yield Flip(place, bit)


def _may_end(layout: _Layout, data: memoryview, end: int, stop: int) -> bool:
    """Return whether a frame may end there: where the data ends, or before zeros or what may be another frame."""
    if layout.spec.test is None or end + layout.head_size > stop:
        return True
    if layout.test.read(data, end) in layout.tested:
        return True
    return data[end : end + layout.head_size] == layout.no_head


_Sums = dict[tuple[str, int], tuple[int, int]]
"""By the name of a checksum and where it starts: where it ends, and its value."""


def _sums_agree(
    layout: _Layout, data: Bytes, at: int, size: int, flip: tuple[int, int], known: _Sums
) -> bool:
    """Return whether the checksums of the frame at `data[at]`, of `size` bytes, are right with a bit of its head flipped. Sums that do not
    cover this bit are continued from the `known` ones."""
    view, (place, bit) = data.data, flip
    view[place] ^= 1 << bit
    try:
        for checksum, _, span, mask in layout.sums:
            start, stop, right = span(data, at, at + size)
            if start >= 0 and not at <= start <= stop <= at + size:
                return False
            if start < 0:
                continue
            algorithm, key = checksum.algorithm, (checksum.algorithm.name, start)
            end, value = known.get(key, (start, algorithm.empty))
            if start <= place < stop or end > stop:
                computed = algorithm.of(data, start, stop)
            else:
                computed = algorithm.update(value, data, end, stop)
                known[key] = stop, computed
            if int(computed) & mask != right:
                return False
        return True
    except IndexError:
        return False
    finally:
        view[place] ^= 1 << bit
