"""The bits of a damaged frame that may be flipped, from its specification."""

from __future__ import annotations

from collections.abc import Iterator

from logwright.codec.describe import Flags, Int
from logwright.codec.frames.specification import CRC32, CRC32C, FrameSpec, load_of, span_of
from logwright.codec.kernels import bitflip
from logwright.codec.window import Bytes, Window

_POLYNOMIALS = {CRC32.name: bitflip.CRC32, CRC32C.name: bitflip.CRC32C}


def suspects(spec: FrameSpec, window: Window, at: int, *, alone: bool = True) -> Iterator[tuple[int, int]]:
    """Yield bits of the damaged frame at `window.data[at]`, as (byte of the data, bit). One of them alone may be flipped.

    If a CRC is wrong, it shows the bit, unless the length is wrong. If all checksums are right, the bit is in a field that none covers. An
    Adler-32 shows no bit with certainty: too many pairs of wrong bits change it as a single one does. `alone` as in `flips_by_crc`.
    """
    data, struct = window.data, spec.struct
    left = min(len(data), window.size - window.offset) - at
    if not spec.checksums or left < spec.peek:
        return
    length_at = at + struct.offset(spec.length.field)
    length_bytes = range(length_at, length_at + struct[spec.length.field].type.min_size)
    size = int(load_of(struct, spec.length.field)(data, length_at)) + spec.length.bias
    wrong = closed = False
    covered: set[int] = set()
    head = min(struct.head_size, left)
    if spec.length.low <= size <= left:
        for i, checksum in enumerate(spec.checksums):
            span, mask = span_of(spec, i)
            try:
                start, stop, stored = span(data, at, at + size)
            except IndexError:
                continue
            if start < 0 or not at <= start <= stop <= at + size:
                continue
            covered.update(range(start, min(stop, at + head)))
            stored_at, width, order = _stored(spec, checksum.at, at)
            covered.update(range(stored_at, stored_at + width))
            closed |= stop == at + size
            computed = int(checksum.algorithm.of(data, start, stop)) & mask
            if computed == stored:
                continue
            wrong = True
            polynomial = _POLYNOMIALS.get(checksum.algorithm.name)
            if polynomial is None:
                continue
            if width:
                yield from bitflip.flips_of_stored(stored_at, width, order, stored ^ computed)
            yield from bitflip.flips_by_crc(start, stop, stored ^ computed, polynomial, mask, alone=alone)
    else:
        wrong = True
    if wrong:
        for place in length_bytes:
            for bit in range(8):
                if _sums_agree(spec, data, at, left, place, bit):
                    yield place, bit
    places = [] if wrong else [i for i in range(at, at + head) if i not in covered]
    if wrong and spec.test is not None and len(spec.test.values) > 1:
        # The wrong kind of frame may have been tested.
        test_at = at + struct.offset(spec.test.field)
        places += range(test_at, test_at + struct[spec.test.field].type.min_size)
    if spec.mark is not None and not wrong:
        places.append(at + size - 1)
    for place in places:
        # A right checksum up to the end of the frame proves the length.
        for bit in () if closed and not wrong and place in length_bytes else range(8):
            if _passes_test(spec, data, at, place, bit):
                yield place, bit


def _passes_test(spec: FrameSpec, data: Bytes, at: int, place: int, bit: int) -> bool:
    """Return whether the test of the frame passes with a bit flipped."""
    if spec.test is None:
        return True
    stored = data[place]
    data[place] = stored ^ 1 << bit
    value = int(load_of(spec.struct, spec.test.field)(data, at + spec.struct.offset(spec.test.field)))
    data[place] = stored
    return _is_tested(spec, value)


def _is_tested(spec: FrameSpec, value: int) -> bool:
    assert spec.test is not None
    values = spec.test.values + ((spec.marker.value,) if spec.marker is not None else ())
    return any((value ^ right) & 0xFFFFFFFF == 0 for right in values)


def _may_end(spec: FrameSpec, data: Bytes, end: int, stop: int) -> bool:
    """Return whether a frame may end there: where the data ends, or before zeros or what may be another frame."""
    if spec.test is None or end + spec.struct.head_size > min(stop, len(data)):
        return True
    value = int(load_of(spec.struct, spec.test.field)(data, end + spec.struct.offset(spec.test.field)))
    return _is_tested(spec, value) or not data[end : end + spec.struct.head_size].any()


def _sums_agree(spec: FrameSpec, data: Bytes, at: int, left: int, place: int, bit: int) -> bool:
    """Return whether the checksums of the frame at `data[at]` are right with one bit of its length flipped."""
    field = spec.length.field
    stored = data[place]
    data[place] = stored ^ 1 << bit
    try:
        size = int(load_of(spec.struct, field)(data, at + spec.struct.offset(field))) + spec.length.bias
        if not spec.length.low <= size <= left or not _may_end(spec, data, at + size, at + left):
            return False
        for i, checksum in enumerate(spec.checksums):
            span, mask = span_of(spec, i)
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


def _stored(spec: FrameSpec, name: str, at: int) -> tuple[int, int, str]:
    """Return where a checksum is stored, its width and its byte order; a width of 0 if it is not a field of the head."""
    if name not in {field.name for field in spec.struct.fields}:
        return at, 0, "<"
    kind = spec.struct[name].type
    kind = kind.base if isinstance(kind, Flags) else kind
    return (at + spec.struct.offset(name), kind.width, kind.order) if isinstance(kind, Int) else (at, 0, "<")
