"""Check and parse messages as a broker does in recovery and dispatch. Source: `CommitLog.checkMessageAndReturnSize` and `MessageDecoder`."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field

from logwright.codec.java import int64, integer, java_string
from logwright.codec.rocketmq.formats.commitlog import layout
from logwright.codec.rocketmq.formats.commitlog.layout import BORN_V6, CRC_MASK, STORE_V6

SCHEDULE_TOPIC, TIMER_TOPIC = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
DEFAULT_DELAYS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""The default of `messageDelayLevel`."""
_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
"""Units of delays in milliseconds."""
INNER_NUM, INNER_BASE = "INNER_NUM", "INNER_BASE"


@dataclass(frozen=True)
class Message:
    """A message to dispatch (`DispatchRequest`). `phy` is the physical offset stored in the message."""

    topic: str
    queue_id: int
    phy: int
    size: int
    tags_code: int
    store_timestamp: int
    queue_offset: int
    kind: int
    """The transaction type, as in `sysFlag`."""
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Refused:
    """A message that ends the log. `size` is positive if only its size is wrong."""

    size: int
    text: str


Buffer = bytes | memoryview
BLANK = None
"""The result for a blank record: the next message is in the next file."""


class ThrownError(Exception):
    """The real store throws an exception. The text is its class."""


def int32(value: int) -> int:
    """Return the low 32 bits as a signed number, as Java's `int` overflows."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def string_hash(text: str) -> int:
    """`String.hashCode` of Java."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = 31 * value + (units[at] << 8 | units[at + 1]) & 0xFFFFFFFF
    return int32(value)


def properties_of(stored: bytes) -> dict[str, str]:
    """`MessageDecoder.string2messageProperties`."""
    out = {}
    for part in java_string(stored).split("\x02"):
        name, separator, value = part.partition("\x01")
        if separator and name and value:
            out[name] = value
    return out


def delays_of(text: str) -> tuple[int, ...]:
    """Parse `messageDelayLevel` and return the delays in milliseconds, from level 1 on (`ScheduleMessageService.parseDelayLevel`).

    Raises `ValueError` for text with which a broker does not start.
    """
    parts = text.rstrip(" ").split(" ")
    for part in parts:
        if part[-1:] not in _UNITS:
            raise ValueError(f"expected numbers with unit s, m, h or d, separated by one space, not {part!r}")
    return tuple(int64(integer(part[:-1], 64) * _UNITS[part[-1]]) for part in parts)


DELAYS = delays_of(DEFAULT_DELAYS)


@dataclass(frozen=True)
class Rules:
    """The checks of a version with its settings."""

    v2: bool = True
    sized: bool = True
    """Check the size against the remaining bytes before the magic, as from 5.0.0 on."""
    force_property_crc: bool = False
    delays: tuple[int, ...] = DELAYS
    """The delays of the levels in milliseconds, from level 1 on. A recovery of 4.x does not know them yet."""


def _split(text: str) -> list[str]:
    """`String.split(",")` of text that is not empty: empty parts at the end are left out."""
    return text.rstrip(",").split(",") if text.rstrip(",") else []


def batch_of(message: Message) -> tuple[int, int]:
    """Return the queue offset of the first message of a batch, and the number of its messages. Raises `ValueError`."""
    if INNER_NUM in message.properties and INNER_BASE in message.properties:
        return integer(message.properties[INNER_BASE], 64), integer(message.properties[INNER_NUM], 16)
    return message.queue_offset, 1


_FIXED = struct.Struct(">iIiiiqqiq")
LARGEST_HEAD = _FIXED.size + 20 + 8 + 20 + 16
"""Bytes before the body, at most."""
_AFTER_BODY = 2 + 32767 + 2 + 32767
"""Bytes of topic and properties with their sizes, at most."""


def reach(buffer: Buffer, rules: Rules) -> int:
    """Return how many bytes of a message `check` reads at most. `buffer` has its first `LARGEST_HEAD` bytes."""
    if len(buffer) < LARGEST_HEAD:
        return LARGEST_HEAD
    total, flags = _integer_at(buffer, 0), _integer_at(buffer, 36)
    head = LARGEST_HEAD - (0 if flags & BORN_V6 else 12) - (0 if flags & STORE_V6 else 12)
    body_length = max(_integer_at(buffer, head - 4), 0)
    return max(head + body_length + _AFTER_BODY, total if rules.force_property_crc else 0)


def _integer_at(buffer: Buffer, at: int) -> int:
    return int.from_bytes(buffer[at : at + 4], "big", signed=True)


def check(buffer: Buffer, rules: Rules, *, crc: bool, left: int | None = None) -> Message | Refused | None:
    """Check the message at the start of `buffer`. None is `BLANK`.

    `left` is the number of bytes up to the write position of the file, of which `buffer` has those that `reach` asks for; without it `buffer`
    has all of them.
    """
    left = len(buffer) if left is None else left
    if rules.sized and left <= 4:
        return Refused(-1, "")
    try:
        total, magic = struct.unpack_from(">iI", buffer)
        if rules.sized and left - 4 < total - 4:
            return Refused(-1, "")
        if magic == layout.BLANK_MAGIC:
            return BLANK
        if magic != layout.V1 and not (magic == layout.V2 and rules.v2):
            return Refused(-1, f"found a illegal magic code 0x{magic:x}")
        return _check(buffer, rules, crc=crc)
    except (struct.error, IndexError, ValueError, ArithmeticError):
        return Refused(-1, "checkMessageAndReturnSize failed, may can not dispatch")


def _check(buffer: Buffer, rules: Rules, *, crc: bool) -> Message | Refused:
    total, magic, body_crc, queue_id, _, queue_offset, phy, flags, _ = _FIXED.unpack_from(buffer)
    at = _FIXED.size + (20 if flags & BORN_V6 else 8)
    (stored,) = struct.unpack_from(">q", buffer, at)
    at += 8 + (20 if flags & STORE_V6 else 8)
    _, _, body_length = struct.unpack_from(">iqi", buffer, at)
    at += 16
    if body_length > 0:
        body = _bytes(buffer, at, body_length)
        if crc and not rules.force_property_crc:
            computed = zlib.crc32(body) & CRC_MASK
            if computed != body_crc:
                return Refused(-1, f"CRC check failed. bodyCRC={computed}, currentCRC={body_crc}")
        at += body_length
    width = 2 if magic == layout.V2 else 1
    topic_length = int.from_bytes(_bytes(buffer, at, width), "big", signed=True)
    topic = java_string(_bytes(buffer, at + width, topic_length))
    at += width + topic_length
    (length,) = struct.unpack_from(">h", buffer, at)
    at += 2
    properties: dict[str, str] = {}
    tags_code = 0
    if length > 0:
        properties = properties_of(_bytes(buffer, at, length))
        if crc and rules.force_property_crc:
            expected = zlib.crc32(buffer[: total - layout.TRAILER]) & CRC_MASK
            if properties.get(layout.CRC_NAME, "")[::-1].lstrip("0") != str(expected).lstrip(
                "0"
            ) or not properties.get(layout.CRC_NAME):
                return Refused(-1, "CRC check failed")
        tags_code = string_hash(properties.get("TAGS", ""))
        if topic == SCHEDULE_TOPIC and "DELAY" in properties:
            level = min(integer(properties["DELAY"], 32), len(rules.delays))
            if level > 0:
                tags_code = int64(stored + rules.delays[level - 1])
    elif crc and rules.force_property_crc:
        return Refused(-1, "CRC check failed")
    size = at + max(length, 0)
    if size != total:
        return Refused(
            total,
            f"[BUG]read total count not equals msg total size. totalMsgSize={total}, readTotalCount={size}",
        )
    kind = flags & layout.TRANSACTION
    message = Message(topic, queue_id, phy, total, tags_code, stored, queue_offset, kind, properties)
    # A broker parses these properties of every message, and refuses the message if they are not numbers.
    batch_of(message)
    return message


def _bytes(buffer: Buffer, at: int, length: int) -> bytes:
    """Return a range of bytes. Raises `ValueError` if it exceeds the buffer."""
    if length < 0 or at + length > len(buffer):
        raise ValueError("BufferUnderflowException")
    return bytes(buffer[at : at + length])


def decode(buffer: Buffer, *, v2: bool) -> bytes | None:
    """Return a message as a client's `MessageDecoder.decode` reads it, or None if it refuses it.

    Negative lengths count as 0, bytes after the properties are left out, and releases without V2 treat any magic as V1.
    """
    out = bytearray(buffer)
    try:
        _, magic, _, _, _, _, _, flags, _ = _FIXED.unpack_from(buffer)
        if v2 and magic not in (layout.V1, layout.V2):
            return None
        if not v2:
            struct.pack_into(">I", out, 4, layout.V1)
        at = _FIXED.size
        for bit in (BORN_V6, STORE_V6):
            at += 16 if flags & bit else 4
            (port,) = struct.unpack_from(">i", buffer, at)
            if not 0 <= port <= 65535:
                return None
            at += 4 + (8 if bit == BORN_V6 else 0)
        _, _, length = struct.unpack_from(">iqi", buffer, at)
        if length < 0:
            struct.pack_into(">i", out, at + 12, 0)
        at += 16 + len(_bytes(buffer, at + 16, max(length, 0)))
        width = 2 if magic == layout.V2 and v2 else 1
        topic = int.from_bytes(_bytes(buffer, at, width), "big", signed=True)
        at += width + len(_bytes(buffer, at + width, topic))
        (length,) = struct.unpack_from(">h", buffer, at)
        end = at + 2 + len(_bytes(buffer, at + 2, max(length, 0)))
    except (struct.error, ValueError):
        return None
    return bytes(out[:end])


def multi_dispatch(message: Message) -> list[tuple[str, int, int]]:
    """Return name, queue id and queue offset of the light queues of a message (`MultiDispatchUtils`, `multiDispatchLmqQueue`).

    Raises `ValueError` for an offset that is not a number: a broker throws an exception.
    """
    names = _split(message.properties.get("INNER_MULTI_DISPATCH", ""))
    numbers = _split(message.properties.get("INNER_MULTI_QUEUE_OFFSET", ""))
    system = message.topic.startswith(("%RETRY%", "rmq_sys_")) or message.topic == SCHEDULE_TOPIC
    if system or len(names) != len(numbers):
        return []
    return [
        (name, 0 if name.startswith("%LMQ%") else message.queue_id, integer(number, 64))
        for name, number in zip(names, numbers, strict=True)
        if "/" not in name
    ]
