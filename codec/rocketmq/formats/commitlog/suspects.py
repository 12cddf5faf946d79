"""The bits that may be flipped in a message without the property `__CRC32#`, whose only checksum covers its body.

The rest is proved by the chain, as far as it can be: the physical offset is the place of the message, the magic has two values, and the
lengths of the body, the topic and the properties add up to the size of the message, after which the next one starts. Exactly one of these
may be wrong. A correction proves the field that it is in and nothing else: no value contradicts a flipped bit of most other fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from logwright.codec.base import ProvedPart
from logwright.codec.frames.specification import IMPOSSIBLE
from logwright.codec.kernels import bitflip
from logwright.codec.kernels.bitflip import Flip
from logwright.codec.kernels.crc32 import crc32
from logwright.codec.rocketmq.formats.commitlog import layout
from logwright.codec.rocketmq.formats.commitlog.layout import MESSAGE, parts_of
from logwright.codec.window import Bytes, Frames, Window

_SIZE, _MAGIC, _CRC, _PLACE, _FLAGS = (
    MESSAGE.offset(name) for name in ("total_size", "magic_code", "body_crc", "physical_offset", "sys_flag")
)
_TOPIC = re.compile(rb"[%|a-zA-Z0-9_-]+")
_ALIKE = 4
"""If this many bytes of the name `__CRC32#` are where it would be, the message may have had the property."""


def _number(data: Bytes, at: int, width: int) -> int:
    return int.from_bytes(data[at : at + width].tobytes(), "big")


def had_trailer(data: Bytes, at: int, end: int) -> bool:
    """Return whether a message may have had the property `__CRC32#`, which is damaged."""
    if end - at < layout.SMALLEST + layout.TRAILER:
        return False
    name = data[end - layout.TRAILER : end - layout.TRAILER + len(layout.CRC_NAME)].tobytes()
    return sum(a == b for a, b in zip(name, layout.CRC_NAME.encode(), strict=True)) >= _ALIKE


def _fits(data: Bytes, at: int) -> bool:
    """Return whether the lengths of the message at `at` add up."""
    size = _number(data, at + _SIZE, 4)
    return (
        layout.SMALLEST <= size <= len(data) - at
        and layout.message_rule(data, at, at + size, 1) != IMPOSSIBLE
    )


def _reads(data: Bytes, at: int) -> bool:
    """Return whether the topic of a message whose lengths add up is one that a broker allows, and its properties are pairs of texts.

    Source: `TopicValidator`, `MessageDecoder.string2messageProperties`.
    """
    _, _, _, topic, size = parts_of(data, at)
    text = data[topic : at + _number(data, at + _SIZE, 4)].tobytes()
    pairs = [pair.split(b"\1") for pair in text[size + 2 :].split(b"\2") if pair]
    return _TOPIC.fullmatch(text[:size]) is not None and all(
        len(pair) == 2 and pair[0] and min(pair[0] + pair[1]) >= ord(" ") for pair in pairs
    )


def _body_change(data: Bytes, at: int) -> int:
    """Return the difference of the stored and the computed CRC-32 of the body of a message whose lengths add up."""
    _, body, size, _, _ = parts_of(data, at)
    return int(_number(data, at + _CRC, 4) ^ int(crc32(data, body, body + size)) & layout.CRC_MASK)


def suspects(window: Window, at: int, base: int | None) -> Iterator[Flip]:
    """Yield the bits without which the message at `window.data[at]` has exactly nothing wrong. `base` is the
    number in the file's name."""
    data = window.data
    if len(data) - at < layout.SMALLEST or base is None:
        return
    place = _number(data, at + _PLACE, 8) ^ (base + window.offset + at)
    magic = _number(data, at + _MAGIC, 4)
    fits = _fits(data, at)
    if magic not in (layout.V1, layout.V2):
        if place == 0:
            yield from _that_fit(data, at, range(at + _MAGIC, at + _MAGIC + 4))
    elif not fits:
        if place == 0:
            yield from _that_fit(data, at, _length_bytes(data, at))
    elif _body_change(data, at):
        if place == 0:
            yield from _of_body(data, at)
    elif place and place & place - 1 == 0:
        bit = place.bit_length() - 1
        yield Flip(at + _PLACE + 7 - bit // 8, bit % 8)


def _that_fit(data: Bytes, at: int, places: Iterable[int]) -> Iterator[Flip]:
    """Yield the bits of these bytes without which the lengths add up, the body has its checksum, and the texts can be read."""
    for place in places:
        for bit in range(8):
            data[place] ^= 1 << bit
            right = (
                _number(data, at + _MAGIC, 4) in (layout.V1, layout.V2)
                and _fits(data, at)
                and not _body_change(data, at)
                and _reads(data, at)
            )
            data[place] ^= 1 << bit
            if right:
                yield Flip(place, bit)


def _length_bytes(data: Bytes, at: int) -> list[int]:
    """Return the bytes of the lengths of a message, as far as the others show where they are."""
    out = [*range(at + _SIZE, at + _SIZE + 4)]
    extra = sum(layout.V6_EXTRA for flag in (layout.BORN_V6, layout.STORE_V6) if data[at + _FLAGS + 3] & flag)
    body = at + layout.BODY + extra
    out += range(body - 4, body)
    topic = body + _number(data, body - 4, 4)
    width = 2 if _number(data, at + _MAGIC, 4) == layout.V2 else 1
    out += range(topic, topic + width)
    properties = topic + width + _number(data, topic, width)
    out += range(properties, properties + 2)
    return [place for place in out if place < len(data)]


def _of_body(data: Bytes, at: int) -> Iterator[Flip]:
    """Yield the bits of the body and of its checksum without which they agree."""
    _, body, size, _, _ = parts_of(data, at)
    change = _body_change(data, at)
    yield from bitflip.flips_of_stored(at + _CRC, 4, ">", change)
    if change <= layout.CRC_MASK:
        yield from bitflip.flips_by_crc(body, body + size, change, bitflip.CRC32, layout.CRC_MASK)


def part_proved(
    window: Window, frame: Frames, flip: tuple[int, int] | None, base: int | None
) -> ProvedPart | None:
    """Return the field that the place of a corrected message, its lengths and the checksum of its body prove."""
    data, at, end = window.data, int(frame.start[0]), int(frame.end[0])
    if flip is None or base is None or had_trailer(data, at, end) or not _is_followed(window, end, base):
        return None
    _, body, size, topic, topic_size = parts_of(data, at)
    lengths = ("its lengths", "CRC-32 of the body", "what follows")
    fields = [
        ProvedPart(at + _SIZE, at + _SIZE + 4, "total_size", lengths),
        ProvedPart(at + _MAGIC, at + _MAGIC + 4, "magic_code", lengths),
        ProvedPart(at + _CRC, at + _CRC + 4, "body_crc", lengths[1:]),
        ProvedPart(at + _PLACE, at + _PLACE + 8, "physical_offset", ("its place", "what follows")),
        ProvedPart(body - 4, body, "body_length", lengths),
        ProvedPart(body, body + size, "the body", lengths[1:]),
        ProvedPart(body + size, topic, "the length of the topic", lengths),
        ProvedPart(topic + topic_size, topic + topic_size + 2, "the length of the properties", lengths),
    ]
    return next((part for part in fields if part.start <= flip[0] < part.stop), None)


def _is_followed(window: Window, end: int, base: int) -> bool:
    """Return whether the next message starts at `end`, or the log or the file ends there."""
    data = window.data
    if window.offset + end == window.size:
        return True
    if len(data) - end < _PLACE + 8:
        return False
    if _number(data, end + _MAGIC, 4) == layout.BLANK_MAGIC:
        return _number(data, end + _SIZE, 4) == window.size - window.offset - end
    following = _number(data, end + _PLACE, 8) == base + window.offset + end
    return following or not data[end : end + _PLACE + 8].any()
