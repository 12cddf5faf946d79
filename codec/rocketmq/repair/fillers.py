"""Messages that replace lost ones, so that a broker reads the log past the damage and deletes no later file.

A placeholder has the topic, queue and queue offset of a lost message and a body of zero bytes, so queue offsets do not change. If these
are unknown, a filler is used: a message of transaction type ROLLBACK, which is in no queue and no index. Both are tested with real brokers.
"""

from __future__ import annotations

from logwright.codec.rocketmq.formats.commitlog.layout import (
    BLANK,
    BLANK_MAGIC,
    LOST_FLAG,
    MAX_PROPERTIES,
    MAX_TOPIC_V1,
    MESSAGE,
    ROLLBACK,
    SMALLEST,
    V1,
    V2,
    body_crc,
)
from logwright.codec.rocketmq.store.log import LostMessage

MARK = b"LW_LOST\x01true\x02"
"""The property that marks a placeholder."""
TIMER_TOPIC = "rmq_sys_wheel_timer"
_TIMER = "TIMER_OUT_MS\x01{}\x02REAL_TOPIC\x01LW_LOST\x02REAL_QID\x010\x02TIMER_DEL_UNIQKEY\x010\x02"
"""Properties of a deletion of a timer message, in the past. A broker skips it, but its timer stops forever at a message without them
(`TimerMessageStore.enqueue`)."""


def placeholder(lost: LostMessage, stored: int) -> bytes | None:
    """Return the placeholder of a lost message, or None if the topic or necessary properties do not fit."""
    topic = lost.topic.encode()
    needed = _TIMER.format(stored).encode() if lost.topic == TIMER_TOPIC else b""
    return _message(lost.phy, lost.size, stored, topic, lost.queue_id, lost.number, 0, needed)


def filler(phy: int, size: int, stored: int) -> bytes | None:
    """Return a message that no consumer sees, or None if `size` is too small for a message."""
    return _message(phy, size, stored, b"", 0, 0, ROLLBACK)


def _message(
    phy: int,
    size: int,
    stored: int,
    topic: bytes,
    queue_id: int,
    number: int,
    flags: int,
    needed: bytes = b"",
) -> bytes | None:
    wide = len(topic) > MAX_TOPIC_V1
    room = size - SMALLEST - len(topic) - wide - len(needed)
    if room < 0 or len(topic) > MAX_PROPERTIES:
        return None
    mark = MARK if len(MARK) <= room else b""
    body = bytes(room - len(mark))
    return MESSAGE.pack(
        {
            "magic_code": V2 if wide else V1, "body_crc": body_crc(body), "flag": LOST_FLAG, "queue_id": queue_id, "queue_offset": number,
            "physical_offset": phy, "sys_flag": flags, "born_timestamp": stored, "store_timestamp": stored, "body": body,
            "body_length": len(body), "topic": topic, "properties": needed + mark,
        }
    )  # fmt: skip


def blank(size: int) -> bytes:
    """Return the header of a blank record that covers the last `size` bytes of a file."""
    return BLANK.pack({"total_size": size, "magic_code": BLANK_MAGIC})
