"""Messages that replace lost ones, so that a broker reads the log past the damage and deletes no later file.

A placeholder has the topic, queue and queue offset of a lost message and a body of zero bytes, so queue offsets do not change. If these
are unknown, a filler is used: a message of transaction type ROLLBACK, which is in no queue and no index. Both are tested with real brokers.
"""

from __future__ import annotations

from logwright.codec.rocketmq.formats.commitlog import layout
from logwright.codec.rocketmq.formats.commitlog.layout import MESSAGE
from logwright.codec.rocketmq.startup.message import TIMER_TOPIC
from logwright.codec.rocketmq.store.log import LostMessage

MARK = b"LW_LOST\x01true\x02"
"""The property that marks a placeholder."""
_TIMER = "TIMER_OUT_MS\x01{}\x02REAL_TOPIC\x01LW_LOST\x02REAL_QID\x010\x02TIMER_DEL_UNIQKEY\x010\x02"
"""Properties of a deletion of a timer message, in the past. A broker skips it, but its timer stops forever at a message without them
(`TimerMessageStore.enqueue`)."""


def placeholder(lost: LostMessage, stored: int) -> bytes | None:
    """Return the placeholder of a lost message, or None if the topic or necessary properties do not fit."""
    needed = _TIMER.format(stored).encode() if lost.topic == TIMER_TOPIC else b""
    return _message(lost, stored, 0, needed)


def filler(phy: int, size: int, stored: int) -> bytes | None:
    """Return a message that no consumer sees, or None if `size` is too small for a message."""
    return _message(LostMessage(phy, size, "", 0, 0), stored, layout.ROLLBACK, b"")


def _message(lost: LostMessage, stored: int, flags: int, needed: bytes) -> bytes | None:
    topic = lost.topic.encode()
    wide = len(topic) > layout.MAX_TOPIC_V1
    room = lost.size - layout.SMALLEST - len(topic) - wide - len(needed)
    if room < 0 or len(topic) > layout.MAX_PROPERTIES:
        return None
    mark = MARK if len(MARK) <= room else b""
    body = bytes(room - len(mark))
    return MESSAGE.pack(
        {
            "magic_code": layout.V2 if wide else layout.V1, "body_crc": layout.body_crc(body), "flag": layout.LOST_FLAG,
            "queue_id": lost.queue_id, "queue_offset": lost.number, "physical_offset": lost.phy, "sys_flag": flags,
            "born_timestamp": stored, "store_timestamp": stored, "body": body, "body_length": len(body), "topic": topic,
            "properties": needed + mark,
        }
    )  # fmt: skip


def blank(size: int) -> bytes:
    """Return the header of a blank record that covers the last `size` bytes of a file."""
    return layout.BLANK.pack({"total_size": size, "magic_code": layout.BLANK_MAGIC})
