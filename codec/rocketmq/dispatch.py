"""Read from messages the values that a broker dispatches to consume queues and index files.

Source: `CommitLog.checkMessageAndReturnSize`, `IndexService.buildIndex` and `IndexFile.indexKeyHashMethod` of RocketMQ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from logwright.codec.arrays import Bools, Int32s, Int64s
from logwright.codec.java import java_string
from logwright.codec.kernels.byte_masks import MASKED, equal_mask, lowest_bit
from logwright.codec.kernels.intrinsics import load_i32be, load_i64be, load_u8, load_u32be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.rocketmq.formats.commitlog.layout import (
    LOST_FLAG,
    MESSAGE,
    PREPARED,
    ROLLBACK,
    TRANSACTION,
    parts_of,
    prefetch_after,
)
from logwright.codec.rocketmq.formats.commitlog.properties import property_masks
from logwright.codec.rocketmq.startup.index_service import key_hash, keys_of
from logwright.codec.rocketmq.startup.message import (
    DELAYS,
    SCHEDULE_TOPIC,
    Message,
    Rules,
    batch_of,
    check,
    multi_dispatch,
)
from logwright.codec.window import Bytes

_QUEUE_ID, _FLAG, _QUEUE_OFFSET, _PHY, _SYS_FLAG = (
    MESSAGE.offset(name) for name in ("queue_id", "flag", "queue_offset", "physical_offset", "sys_flag")
)
_TAGS, _KEYS, _UNIQ, _KEY = (int.from_bytes(name, "big") for name in (b"TAGS", b"KEYS", b"UNIQ", b"_KEY"))
_INNE, _DELA = (int.from_bytes(name, "big") for name in (b"INNE", b"DELA"))
_MASK, _SIGN = 0xFFFFFFFF, 1 << 31
_POWERS = tuple(31**count & _MASK for count in range(9))
_LAST_BYTES = (*((1 << 8 * count) - 1 for count in range(8)), -1)
_NOT_ASCII = -(1 << 63) | 0x0080808080808080
_EVEN_BYTES, _EVEN_PAIRS = 0x00FF00FF00FF00FF, 0x0000FFFF0000FFFF
FACTS = ("queue", "number", "phy", "size", "tags_code", "stored", "count", "special")
QUEUE, NUMBER, PHY, SIZE, CODE, _STORED, _COUNT, _SPECIAL = range(len(FACTS))
MOST_KEYS = (1 << 14) + 2
"""Limit of the index keys of a message: its keys are separated by spaces in at most 32767 bytes; the unique key and the tag are added."""
_PARSED, _PLACEHOLDER, _TAGGED, _UNQUEUED = 1, 2, 4, 8
"""Bits of `special`: the properties need more than their hashes; a placeholder, whose unit may have the hash of the lost tags; the last index
key is the tag; the message is in no queue."""
_HASH, _TOPIC_AT, _TOPIC_SIZE, _ID, _NUMBERED = range(5)
"""The columns of `Queues.known`."""


@kernel("const u1[], i8, i8", inline=True)
def ascii_hash(buf: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return `String.hashCode` of Java, as an unsigned number, of ASCII text that starts at byte 8 or later, and 31 to the power of its
    length. The hash of other text is -1."""
    if at >= end:
        return 0, 1
    # Up to eight characters at once: each multiplication would wait for the one before.
    count = (end - at - 1 & 7) + 1
    value, power, seen = 0, _POWERS[count], 0
    word = load_i64be(buf, at + count - 8) & _LAST_BYTES[count]
    while True:
        seen |= word
        pairs = (word >> 8 & _EVEN_BYTES) * 31 + (word & _EVEN_BYTES)
        fours = (pairs >> 16 & _EVEN_PAIRS) * 961 + (pairs & _EVEN_PAIRS)
        value = value * _POWERS[8] + (fours >> 32) * _POWERS[4] + (fours & _MASK) & _MASK
        at += count
        if at >= end:
            break
        word, count = load_i64be(buf, at), 8
        power = power * _POWERS[8] & _MASK
    return value if seen & _NOT_ASCII == 0 else -1, power


@kernel("const u1[], i8, i8, i8", inline=True)
def string_hash(buf: Bytes, at: int, end: int, value: int) -> int:
    """Continue `String.hashCode` of Java, as an unsigned number, over UTF-8 text that starts at byte 8 or later. Return -1 if the text is not
    valid."""
    ascii, power = ascii_hash(buf, at, end)
    if ascii < 0:
        return utf8_hash(buf, at, end, value)
    return value * power + ascii & _MASK


@kernel("const u1[], i8, i8, i8")
def utf8_hash(buf: Bytes, at: int, end: int, value: int) -> int:
    """As `string_hash`, for text that is not ASCII."""
    while at < end:
        first = load_u8(buf, at)
        at += 1
        if first < 0x80:
            value = value * 31 + first & _MASK
            continue
        more = 1 if 0xC2 <= first < 0xE0 else 2 if 0xE0 <= first < 0xF0 else 3 if 0xF0 <= first < 0xF5 else 0
        if more == 0 or end - at < more:
            return -1
        second = load_u8(buf, at)
        low = 0xA0 if first == 0xE0 else 0x90 if first == 0xF0 else 0x80
        high = 0x9F if first == 0xED else 0x8F if first == 0xF4 else 0xBF
        if second < low or second > high:
            return -1
        point = (first & (0x3F >> more)) << 6 | second & 0x3F
        for i in range(1, more):
            byte = load_u8(buf, at + i)
            if byte & 0xC0 != 0x80:
                return -1
            point = point << 6 | byte & 0x3F
        at += more
        if point > 0xFFFF:
            value = value * 31 + (0xD800 + (point - 0x10000 >> 10)) & _MASK
            point = 0xDC00 + (point & 0x3FF)
        value = value * 31 + point & _MASK
    return value


@kernel("i8")
def _index_hash(value: int) -> int:
    """Interpret an unsigned 32-bit number as signed, and return its absolute value; 0 for the smallest."""
    if value < _SIGN:
        return value
    return 0 if value == _SIGN else _MASK + 1 - value


@kernel("const u1[], i8, i8, i8, i8, const i4[], const i8[,], const u1[]", inline=True)
def find_queue(
    buf: Bytes, at: int, size: int, queue_id: int, value: int, table: Int32s, known: Int64s, topics: Bytes
) -> tuple[int, int]:
    """Find a queue of the topic at `at`, which is at least 8. `value` is the hash of the topic. Return the index of the queue in `known`
    (-1: not there) and its slot in `table`."""
    slot = (value ^ queue_id * 0x9E3779B1) & len(table) - 1
    while table[slot] >= 0:
        entry = int(table[slot])
        if (
            known[entry, _HASH] == value
            and known[entry, _ID] == queue_id
            and known[entry, _TOPIC_SIZE] == size
        ):
            place = known[entry, _TOPIC_AT]
            left = size
            while left > 0:
                differing = load_i64be(buf, at + left - 8) ^ load_i64be(topics, place + left - 8)
                if differing & _LAST_BYTES[min(left, 8)] != 0:
                    break
                left -= 8
            if left <= 0:
                return entry, slot
        slot = slot + 1 & len(table) - 1
    return -1, slot


@kernel(
    "const u1[], const i8[], const i8[], i8, const i4[], const i8[,], const u1[], i8[,], i4[], i4[], i8, i8"
)
def read_facts(
    buf: Bytes, starts: Int64s, ends: Int64s, tags_indexed: int, table: Int32s, queues: Int64s, topics: Bytes, facts: Int64s,
    hashes: Int32s, owners: Int32s, first: int, keys: int,
) -> tuple[int, int, int]:  # fmt: skip
    """Fill `facts` (by `FACTS`), and the hashes of the index keys with the indices of their messages, from message `first` and key `keys` on.
    Return the numbers of messages and keys, and the bits that any `special` has. Stops at a message of an unknown queue, or if there is no
    room for the keys of a message.

    The queue of a message that is in no queue is -1. None of the keys of a message is returned whose properties need more than their hashes.
    """
    seen = 0
    for i in range(first, len(starts)):
        if keys + MOST_KEYS > len(hashes):
            return i, keys, seen
        start = starts[i]
        prefetch_after(buf, start)
        stored, _, _, at, size = parts_of(buf, start)
        kind = load_i32be(buf, start + _SYS_FLAG) & TRANSACTION
        topic_at = at
        topic_end = at + size
        topic_hash = string_hash(buf, topic_at, topic_end, 0)
        queue, special = -1, _UNQUEUED
        if kind != PREPARED and kind != ROLLBACK:
            queue_id = load_i32be(buf, start + _QUEUE_ID)
            entry, _ = find_queue(buf, topic_at, size, queue_id, topic_hash, table, queues, topics)
            if entry < 0:
                return i, keys, seen
            queue, special = queues[entry, _NUMBERED], 0
        facts[QUEUE, i] = queue
        facts[NUMBER, i] = load_i64be(buf, start + _QUEUE_OFFSET)
        facts[PHY, i] = load_i64be(buf, start + _PHY)
        facts[SIZE, i] = ends[i] - start
        facts[CODE, i] = 0
        facts[_STORED, i] = load_i64be(buf, stored)
        facts[_COUNT, i] = 1
        at = topic_end + 2
        if load_i32be(buf, start + _FLAG) == LOST_FLAG:
            special |= _PLACEHOLDER
        tags = keys_at = uniq = -1
        tags_end = keys_end = uniq_end = -1
        chunk = at
        while at < ends[i]:
            _, twos, _ = property_masks(buf, chunk, ends[i])
            while twos != 0:
                end = chunk + lowest_bit(twos)
                twos &= twos - 1
                if end - at > 5:  # a name of four bytes, 0x01 and a value
                    word = load_u32be(buf, at)
                    if word == _TAGS:
                        if load_u8(buf, at + 4) == 1:
                            tags, tags_end = at + 5, end
                    elif word == _KEYS:
                        if load_u8(buf, at + 4) == 1:
                            keys_at, keys_end = at + 5, end
                    elif word == _UNIQ:
                        if end - at > 9 and load_u32be(buf, at + 4) == _KEY and load_u8(buf, at + 8) == 1:
                            uniq, uniq_end = at + 9, end
                    elif word in (_INNE, _DELA):
                        special |= _PARSED
                at = end + 1
            chunk += MASKED
        tags_hash, tags_power = 0, 1
        if tags >= 0:
            tags_hash, tags_power = ascii_hash(buf, tags, tags_end)
            value = tags_hash if tags_hash >= 0 else utf8_hash(buf, tags, tags_end, 0)
            special |= value < 0
            facts[CODE, i] = value - (_MASK + 1) if value >= _SIGN else value
        before = keys
        if kind != ROLLBACK and (uniq >= 0 or keys_at >= 0 or (tags >= 0 and tags_indexed)):
            special |= topic_hash < 0
            prefix = topic_hash * 31 + 35 & _MASK  # '#'
            if uniq >= 0:
                value = string_hash(buf, uniq, uniq_end, prefix)
                special |= value < 0
                hashes[keys], owners[keys] = _index_hash(value), i
                keys += 1
            stop = keys_at
            while 0 <= keys_at < keys_end:
                mask = equal_mask(buf, stop, keys_end, 32)
                stop = min(stop + MASKED, keys_end) if mask == 0 else stop + lowest_bit(mask)
                if mask == 0 and stop < keys_end:
                    continue
                if stop > keys_at:
                    value = string_hash(buf, keys_at, stop, prefix)
                    special |= value < 0
                    hashes[keys], owners[keys] = _index_hash(value), i
                    keys += 1
                stop += 1
                keys_at = stop
            if tags >= 0 and tags_indexed:
                value = (prefix * 31 + 84) * 31 + 35 & _MASK  # "T#"
                if tags_hash >= 0:
                    value = value * tags_power + tags_hash & _MASK
                else:
                    value = utf8_hash(buf, tags, tags_end, value)
                hashes[keys], owners[keys] = _index_hash(max(value, 0)), i
                keys += 1
                special |= _TAGGED
        if special & _PARSED:
            keys = before
        facts[_SPECIAL, i] = special
        seen |= special
    return len(starts), keys, seen


@kernel("const u1[], const i8[], const i4[], const i8[,], const u1[], i4[], i8[], i8")
def read_queues(
    buf: Bytes, starts: Int64s, table: Int32s, known: Int64s, topics: Bytes, queue: Int32s, number: Int64s, first: int
) -> int:  # fmt: skip
    """Set the queue and the queue offset of valid messages from index `first` on. The queue of a message that is in no queue is -1.
    Return the index of the first message of an unknown queue, or the number of messages."""
    for i in range(first, len(starts)):
        start = starts[i]
        prefetch_after(buf, start)
        queue[i] = -1
        number[i] = load_i64be(buf, start + _QUEUE_OFFSET)
        kind = load_i32be(buf, start + _SYS_FLAG) & TRANSACTION
        if kind != PREPARED and kind != ROLLBACK:
            _, _, _, at, size = parts_of(buf, start)
            value, queue_id = string_hash(buf, at, at + size, 0), load_i32be(buf, start + _QUEUE_ID)
            entry, _ = find_queue(buf, at, size, queue_id, value, table, known, topics)
            if entry < 0:
                return i
            queue[i] = known[entry, _NUMBERED]
    return len(starts)


class Queues:
    """Numbers queues in the order in which their first messages appear. `names` has topic and queue id by number."""

    def __init__(self) -> None:
        self.names: list[tuple[str, int]] = []
        self._numbers: dict[tuple[str, int], int] = {}
        self._count, self._used = 0, 8
        self.table = np.full(64, -1, np.int32)
        """A hash table without chains: the indices of queues in `known`, or -1."""
        self.known = np.zeros((32, 5), np.int64)
        self.topics = np.zeros(1 << 10, np.uint8)

    def number(self, topic: str, queue_id: int) -> int:
        """Return the number of a queue, which may be new."""
        number = self._numbers.setdefault((topic, queue_id), len(self.names))
        if number == len(self.names):
            self.names.append((topic, queue_id))
        return number

    def of(self, buf: Bytes, starts: Int64s, ends: Int64s) -> tuple[Int32s, Int64s]:
        """Return the queues of valid messages (-1: it is in none), which may be new, and the queue offsets."""
        starts = np.ascontiguousarray(starts)
        queue, number = np.empty(len(starts), np.int32), np.empty(len(starts), np.int64)
        done = 0
        while (
            done := read_queues(buf, starts, self.table, self.known, self.topics, queue, number, done)
        ) < len(starts):
            self.add(buf[int(starts[done]) : int(ends[done])])
        return queue, number

    def add(self, message: Bytes) -> None:
        """Add the queue of a message. Its topic may be the same text as that of another queue, in other bytes."""
        *_, at, size = parts_of(message, 0)
        topic, queue_id = message[at : at + size], load_i32be(message, _QUEUE_ID)
        if self._count == len(self.known):
            self._grow()
        if self._used + size > len(self.topics):
            self.topics = np.r_[self.topics, np.zeros(len(self.topics) + size, np.uint8)]
        self.topics[self._used : self._used + size] = topic
        number = self.number(java_string(topic.tobytes()), queue_id)
        self.known[self._count] = string_hash(message, at, at + size, 0), self._used, size, queue_id, number
        self._insert(self._count)
        self._count, self._used = self._count + 1, self._used + size

    def _insert(self, entry: int) -> None:
        value, at, size, queue_id, _ = self.known[entry].tolist()
        _, slot = find_queue(self.topics, at, size, queue_id, value, self.table, self.known, self.topics)
        self.table[slot] = entry

    def _grow(self) -> None:
        self.known = np.concatenate([self.known, np.zeros_like(self.known)])
        self.table = np.full(2 * len(self.table), -1, np.int32)
        for entry in range(self._count):
            self._insert(entry)


class Units:
    """Units of queues, in log order. `facts` has a row for each of `FACTS`, which are attributes too.

    `queue` is the index of the queue, `count` the number of messages of a unit. `coded` says whether its tags code follows from the message."""

    def __init__(self, facts: Int64s) -> None:
        self.facts = facts
        self.queue, self.number, self.phy, self.size, self.tags_code, self.stored, self.count, self._special = facts  # fmt: skip

    @property
    def coded(self) -> Bools:
        coded: Bools = self._special & _PLACEHOLDER == 0
        return coded

    def __len__(self) -> int:
        return len(self.number)

    def pick(self, index: Int64s) -> Units:
        """Return a copy of some units."""
        return Units(np.take(self.facts, index, axis=1))


def differing(topic: str, stored: Int64s, computed: Int64s, compared: Bools) -> list[int]:
    """Return which of the compared units of a queue file have another tags code than their messages. If all delivery times differ, the
    broker has other delay levels than are known, so none is wrong."""
    differ = compared & (stored != computed)
    if topic == SCHEDULE_TOPIC and np.array_equal(differ, compared):
        return []
    return np.flatnonzero(differ).tolist()


@dataclass
class Dispatches:
    """The additions of a batch of messages to consume queues and index files.

    The queues of `units` are indices into `queues`. `hashes` are the index keys, and `owners` for each the index of its message in `phy`,
    `stored` and `special`, which are those of `FACTS`.
    """

    queues: list[tuple[str, int]]
    units: Units
    hashes: Int32s
    owners: Int32s
    phy: Int64s
    stored: Int64s
    special: Int64s

    @property
    def replaced(self) -> Int64s:
        """The physical offsets of placeholders and fillers."""
        replaced: Int64s = self.phy[self.special & _PLACEHOLDER != 0]
        return replaced

    @property
    def are_tags(self) -> Bools:
        """Return which index keys are tags."""
        last = np.ones(len(self.owners), np.bool_)
        last[:-1] = self.owners[1:] != self.owners[:-1]
        tagged: Bools = self.special[self.owners] & _TAGGED != 0
        return last & tagged


def dispatches(
    buf: Bytes, starts: Int64s, ends: Int64s, *, tags: bool, lmq: bool = False, batches: Any = (), queues: Queues | None = None,
    delays: tuple[int, ...] = DELAYS,
) -> Dispatches:  # fmt: skip
    """Return what valid messages add. `tags` are index keys from 5.4.0 on, `batches` are the topics with batch consume queues, `delays` those
    of the delay levels in milliseconds. New queues are added to `queues`.

    Raises `IndexError` with the index of a message that a broker refuses.
    """
    queues = Queues() if queues is None else queues
    starts, ends = (np.ascontiguousarray(array, np.int64) for array in (starts, ends))
    facts = np.empty((len(FACTS), len(starts)), np.int64)
    hashes, owners = (np.empty(4 * len(starts) + MOST_KEYS, np.int32) for _ in range(2))
    done = keys = special = 0
    while done < len(starts):
        done, keys, seen = read_facts(
            buf, starts, ends, int(tags), queues.table, queues.known, queues.topics, facts, hashes, owners, done, keys
        )  # fmt: skip
        special |= seen
        if keys + MOST_KEYS > len(hashes):
            hashes, owners = (np.concatenate([array, np.empty_like(array)]) for array in (hashes, owners))
        elif done < len(starts):
            queues.add(buf[int(starts[done]) : int(ends[done])])
    hashes, owners = hashes[:keys], owners[:keys]
    rules = Rules(delays=delays)
    light: list[tuple[int, str, int, int]] = []
    extra: list[tuple[int, int]] = []
    for i in np.flatnonzero(facts[_SPECIAL] & _PARSED).tolist() if special & _PARSED else ():
        message = check(buf[int(starts[i]) : int(ends[i])].tobytes(), rules, crc=False)
        if not isinstance(message, Message):
            raise IndexError(i)
        facts[CODE, i] = message.tags_code
        batch = message.topic in batches
        if batch:
            facts[NUMBER, i], facts[_COUNT, i] = batch_of(message)
        # Only a consume queue that gets a unit passes the message on to light queues.
        has_light = lmq and facts[QUEUE, i] >= 0 and not batch
        try:
            light += [(i, *queue) for queue in (multi_dispatch(message) if has_light else ())]
        except ValueError:
            raise IndexError(i) from None
        if message.kind != ROLLBACK:
            extra += [(i, key_hash(message.topic, key)) for key in keys_of(message, tags=tags)]
    if extra:
        owners = np.concatenate([owners, np.array([i for i, _ in extra], np.int32)])
        order = np.argsort(owners, kind="stable")
        hashes = np.concatenate([hashes, np.array([value for _, value in extra], np.int32)])[order]
        owners = owners[order]
    units = Units(facts)
    if light or special & _UNQUEUED:
        units = _with_light(units, light, queues)
    return Dispatches(queues.names, units, hashes, owners, facts[PHY], facts[_STORED], facts[_SPECIAL])


def _with_light(units: Units, light: list[tuple[int, str, int, int]], queues: Queues) -> Units:
    """Return the units of messages that are in a queue, and those of light message queues: index of the message, name, queue id and queue
    offset. They follow the message's own unit."""
    index = np.array([i for i, *_ in light], np.int64)
    added = units.pick(index)
    added.queue[:] = [queues.number(name, queue_id) for _, name, queue_id, _ in light]
    added.number[:] = [number for *_, number in light]
    added.count[:] = 1
    queued = np.flatnonzero(units.queue >= 0)
    both = Units(np.concatenate([units.pick(queued).facts, added.facts], axis=1))
    return both.pick(np.argsort(np.r_[queued, index], kind="stable"))
