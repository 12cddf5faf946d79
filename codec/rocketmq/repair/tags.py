"""Correct the tags of messages whose consume queue has another hash. No checksum covers properties, and none covers the unit of a queue.

The hash alone proves nothing: two flipped bits of a text can change it as one bit elsewhere does, and so does a flipped bit of the unit. So
the right tags must be those of another message of the queue, whose unit agrees, and differ by one bit.
"""

from __future__ import annotations

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.rocketmq.dispatch import dispatches
from logwright.codec.rocketmq.formats.commitlog.layout import has_trailer, parts_of

_LONGEST = 255
"""Longer tags, in bytes, are not corrected."""


def wrong_codes(stored: Int64s, computed: Int64s, i: int) -> list[int]:
    """Return the units whose tags unit `i` has, if its message has other tags, by their codes in the queue and those of the messages.

    The result is empty if another message has the same tags as this one, or if one flipped bit of the unit explains the difference.
    """
    agree = stored == computed
    one_bit = (int(stored[i]) ^ int(computed[i])).bit_count() == 1
    if one_bit or (agree & (computed == computed[i])).any():
        return []
    places: list[int] = np.flatnonzero(agree & (stored == stored[i])).tolist()
    return places


def properties_at(message: bytes) -> int:
    """Return where the properties of a valid message begin."""
    *_, topic, size = parts_of(np.frombuffer(message, np.uint8), 0)
    return topic + size + 2


def tags_of(message: bytes) -> bytes | None:
    """Return the tags of a message."""
    pairs = [pair for pair in message[properties_at(message) :].split(b"\2") if pair.startswith(b"TAGS\1")]
    return pairs[-1][5:] if pairs else None


def corrected(message: bytes, tags: bytes | None) -> bytes | None:
    """Return a message with the only bit flipped that gives it these tags, or None if there is no or another one."""
    if tags is None or len(tags) > _LONGEST:
        return None
    start, pair = properties_at(message), np.frombuffer(b"\2TAGS\1" + tags + b"\2", np.uint8)
    data = np.frombuffer(b"\2" + message[start:] + b"\2"[message.endswith(b"\2") :], np.uint8)
    if len(pair) > len(data) or has_trailer(np.frombuffer(message, np.uint8), 0, len(message)):
        return None
    changes = np.lib.stride_tricks.sliding_window_view(data, len(pair)) ^ pair
    (alike,) = np.nonzero((changes != 0).sum(1) <= 1)
    flips = [(int(i), int(changes[i].argmax()), int(changes[i].max())) for i in alike.tolist()]
    if len(flips) != 1 or flips[0][2].bit_count() != 1:
        return None
    # The separators that were added to the data are not flipped: they are equal to those of the pair.
    out = bytearray(message)
    out[start + flips[0][0] + flips[0][1] - 1] ^= flips[0][2]
    return bytes(out)


def is_coded(message: bytes) -> bool:
    """Return whether the tags code of a unit follows from this message."""
    data = np.frombuffer(message, np.uint8)
    added = dispatches(data, np.zeros(1, np.int64), np.array([len(data)]), tags=False)
    return bool(added.units.coded.all())
