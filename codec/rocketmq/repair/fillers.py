"""Messages that stand where others are lost, so that a broker reads the log over the place and deletes nothing behind it.

A placeholder has the topic, queue and number of a lost message, and no content: numbers in the queue stay. Where these are not known, a
filler of the transaction type ROLLBACK is in no queue and no index. Both were tried with real brokers.
"""

from __future__ import annotations

from dataclasses import dataclass

from logwright.codec.rocketmq.formats.commitlog.layout import (
    BLANK,
    BLANK_MAGIC,
    MAX_PROPERTIES,
    MAX_TOPIC_V1,
    MESSAGE,
    ROLLBACK,
    SMALLEST,
    V1,
    V2,
    body_crc,
)

MARK = b"LW_LOST\x01true\x02"
"""The property of a placeholder."""


@dataclass(frozen=True)
class LostMessage:
    """A message that is lost, as its consume queue tells: its place, its size and its number in the queue."""

    phy: int
    size: int
    topic: str
    queue_id: int
    number: int


def placeholder(lost: LostMessage, stored: int) -> bytes | None:
    """Return a message in the place of a lost one; None where it has no room for the topic."""
    topic = lost.topic.encode()
    return _message(lost.phy, lost.size, stored, topic, lost.queue_id, lost.number, 0)


def filler(phy: int, size: int, stored: int) -> bytes | None:
    """Return a message that no consumer sees; None where there is no room for any."""
    return _message(phy, size, stored, b"", 0, 0, ROLLBACK)


def _message(
    phy: int, size: int, stored: int, topic: bytes, queue_id: int, number: int, flags: int
) -> bytes | None:
    wide = len(topic) > MAX_TOPIC_V1
    room = size - SMALLEST - len(topic) - wide
    if room < 0 or len(topic) > MAX_PROPERTIES:
        return None
    properties = MARK if len(MARK) <= room else b""
    body = bytes(room - len(properties))
    return MESSAGE.pack(
        {
            "magic_code": V2 if wide else V1, "body_crc": body_crc(body), "queue_id": queue_id, "queue_offset": number,
            "physical_offset": phy, "sys_flag": flags, "born_timestamp": stored, "store_timestamp": stored, "body": body,
            "body_length": len(body), "topic": topic, "properties": properties,
        }
    )  # fmt: skip


def blank(size: int) -> bytes:
    """Return the head of a blank record that ends a file `size` bytes before its end."""
    return BLANK.pack({"total_size": size, "magic_code": BLANK_MAGIC})
