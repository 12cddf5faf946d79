"""Faults of framed files: why a scan stopped, in words."""

from __future__ import annotations

from collections.abc import Callable

from logwright.codec import plural
from logwright.codec.arrays import Bytes
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.frames import scanner
from logwright.codec.frames.format import FrameFormat
from logwright.codec.frames.specification import FrameSpec
from logwright.codec.window import Window


def field_at(spec: FrameSpec, data: Bytes, at: int, name: str) -> int:
    """Return a number in the head of the frame at `data[at]`, or 0 if `data` ends before it."""
    place = at + spec.struct.offset(name)
    if len(data) < place + spec.struct[name].type.min_size:
        return 0
    value, _ = spec.struct[name].type.unpack(data[place : place + 8].tobytes(), 0, 8, {})
    return int(value)


def damage_at(
    codec: FrameFormat, window: Window, stop: int, why: int, need: int, *, live: bool, claim: int, mismatch: Callable[[], str],
) -> Fault:  # fmt: skip
    """Return the fault at the position where a scan stopped.

    `claim` is the position that a frame should claim there. `mismatch` returns the text of a checksum mismatch.
    """
    data, spec, name = window.data, codec.spec, codec.name
    offset = window.offset + stop
    left = window.size - offset
    system = codec.systems.get(why, "")
    if why == scanner.ZERO:
        zeros = window.zeros_from(stop)
        if zeros == left:
            return Fault(name, offset, left, Kind.PADDING, "preallocated zeros", Severity.INFO)
        if zeros < spec.peek:
            text = f"{spec.length.field} is 0, and other bytes follow"
            return Fault(name, offset, left, Kind.LENGTH, text, system=system)
        text = f"{zeros} zero bytes, followed by other bytes"
        return Fault(name, offset, left, Kind.PADDING, text, Severity.WARNING, system)
    length = field_at(spec, data, stop, spec.length.field)
    size = need if why in (scanner.TORN, scanner.UNFOLLOWED) and need else length + spec.length.bias
    if why == scanner.TORN:
        text = f"{plural.count(left, 'byte')} at the end, too few for a frame"
        if left >= spec.peek:
            text = f"the frame takes {size} bytes, but the file ends after {left}"
        severity = Severity.INFO if live else Severity.WARNING
        return Fault(name, offset, left, Kind.TRUNCATED, text, severity, system)
    if why == scanner.BAD_LENGTH:
        text = f"{spec.length.field} is {length}, expected {spec.length.low} to {spec.length.high}"
        return Fault(name, offset, min(left, spec.peek), Kind.LENGTH, text, system=system)
    if why == scanner.BAD_TEST and spec.test is not None:
        expected = " or ".join(f"{value:#x}" for value in spec.test.values)
        text = f"{spec.test.field} is {field_at(spec, data, stop, spec.test.field):#x}, expected {expected}"
        return Fault(name, offset, min(left, spec.peek), Kind.MAGIC, text, system=system)
    if why == scanner.BAD_CLAIM and spec.claims is not None:
        field = spec.claims.field
        text = f"{field} is {field_at(spec, data, stop, field)}, expected {claim} at this place"
        return Fault(name, offset, min(need, left), Kind.ORDER, text, system=system)
    if why == scanner.BAD_CHECKSUM:
        return Fault(name, offset, need, Kind.CHECKSUM, mismatch(), system=system)
    text = {
        scanner.BAD_MARK: f"the last byte of the frame is {int(data[min(stop + need, len(data)) - 1]):#04x}",
        scanner.UNFOLLOWED: f"no frame follows the frame of {size} bytes: its length, or what follows, is wrong",
    }.get(why, f"the fields of the frame do not fit its {size} bytes")
    kind = Kind.PAYLOAD if why == scanner.BAD_RULE else Kind.LENGTH
    return Fault(name, offset, min(need, left), kind, text, system=system)
