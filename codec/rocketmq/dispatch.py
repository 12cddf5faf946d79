"""Read from messages the values that a broker dispatches to consume queues and index files.

Source: `CommitLog.checkMessageAndReturnSize`, `IndexService.buildIndex` and `IndexFile.indexKeyHashMethod` of RocketMQ.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.columns import binary, numbers
from logwright.codec.java import java_string
from logwright.codec.kernels.intrinsics import load_i32be, load_i64be, load_u8, load_u32be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.rocketmq.formats.commitlog.layout import (
    MESSAGE,
    PREPARED,
    ROLLBACK,
    TRANSACTION,
    parts_of,
)
from logwright.codec.rocketmq.formats.commitlog.properties import next_property
from logwright.codec.rocketmq.startup.index_service import key_hash, keys_of
from logwright.codec.rocketmq.startup.message import Message, Rules, batch_of, check, multi_dispatch
from logwright.codec.window import Bytes

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]

_QUEUE_ID, _QUEUE_OFFSET, _PHY, _SYS_FLAG = (
    MESSAGE.offset(name) for name in ("queue_id", "queue_offset", "physical_offset", "sys_flag")
)
_TAGS, _KEYS, _UNIQ, _KEY = (int.from_bytes(name, "big") for name in (b"TAGS", b"KEYS", b"UNIQ", b"_KEY"))
_INNE, _DELA = (int.from_bytes(name, "big") for name in (b"INNE", b"DELA"))
_MASK, _SIGN = 0xFFFFFFFF, 1 << 31
FACTS = (
    "topic_at",
    "topic_size",
    "queue_id",
    "queue_offset",
    "phy",
    "kind",
    "stored",
    "tags_code",
    "special",
)
_TOPIC_AT, _TOPIC_SIZE, _ID, _NUMBER, _AT, _KIND, _STORED, _CODE, _SPECIAL = range(len(FACTS))


@kernel("const u1[], i8, i8, i8")
def string_hash(buf: Bytes, at: int, end: int, value: int) -> int:
    """Continue `String.hashCode` of Java, as an unsigned number, over UTF-8 text. Return -1 if the text is not valid."""
    while at < end:
        if end - at >= 4:
            word = load_u32be(buf, at)
            if word & 0x80808080 == 0:
                # Four characters at once: each multiplication would wait for the one before.
                value = (
                    value * 923521
                    + (word >> 24) * 29791
                    + (word >> 16 & 0xFF) * 961
                    + (word >> 8 & 0xFF) * 31
                    + (word & 0xFF)
                    & _MASK
                )
                at += 4
                continue
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


@kernel("const u1[], const i8[], const i8[], i8, i8[,], i4[], i4[]")
def read_facts(
    buf: Bytes, starts: Int64s, ends: Int64s, tags_indexed: int, facts: Int64s, hashes: Int32s, owners: Int32s
) -> int:
    """Fill `facts` (by `FACTS`), and the hashes of the index keys with the indices of their messages. Return the number of keys.

    A message is special if its properties need more than their hashes. None of its keys is returned.
    """
    keys = 0
    for i in range(len(starts)):
        start = starts[i]
        stored, _, _, at, size = parts_of(buf, start)
        facts[_STORED, i] = load_i64be(buf, stored)
        kind = load_i32be(buf, start + _SYS_FLAG) & TRANSACTION
        facts[_TOPIC_AT, i], facts[_TOPIC_SIZE, i] = at, size
        facts[_ID, i] = load_i32be(buf, start + _QUEUE_ID)
        facts[_NUMBER, i] = load_i64be(buf, start + _QUEUE_OFFSET)
        facts[_AT, i] = load_i64be(buf, start + _PHY)
        facts[_KIND, i] = kind
        facts[_CODE, i] = 0
        topic_at = at
        topic_end = at + size
        at = topic_end + 2
        special = 0
        tags = keys_at = uniq = -1
        tags_end = keys_end = uniq_end = -1
        chunk, mask = at, 0
        while at < ends[i]:
            middle, end, chunk, mask = next_property(buf, at, ends[i], chunk, mask)
            if middle > at and end - middle > 1 and middle - at >= 4:
                word = load_u32be(buf, at)
                if word == _TAGS and middle - at == 4:
                    tags, tags_end = middle + 1, end
                elif word == _KEYS and middle - at == 4:
                    keys_at, keys_end = middle + 1, end
                elif word == _UNIQ and middle - at == 8 and load_u32be(buf, at + 4) == _KEY:
                    uniq, uniq_end = middle + 1, end
                elif word in (_INNE, _DELA):
                    special = 1
            at = end + 1
        if tags >= 0:
            value = string_hash(buf, tags, tags_end, 0)
            special |= value < 0
            facts[_CODE, i] = value - (_MASK + 1) if value >= _SIGN else value
        first = keys
        if kind != ROLLBACK and (uniq >= 0 or keys_at >= 0 or (tags >= 0 and tags_indexed)):
            prefix = string_hash(buf, topic_at, topic_end, 0)
            special |= prefix < 0
            prefix = prefix * 31 + 35 & _MASK  # '#'
            if uniq >= 0:
                value = string_hash(buf, uniq, uniq_end, prefix)
                special |= value < 0
                hashes[keys], owners[keys] = _index_hash(value), i
                keys += 1
            while 0 <= keys_at < keys_end:
                stop = keys_at
                while stop < keys_end and load_u8(buf, stop) != 32:
                    stop += 1
                if stop > keys_at:
                    value = string_hash(buf, keys_at, stop, prefix)
                    special |= value < 0
                    hashes[keys], owners[keys] = _index_hash(value), i
                    keys += 1
                keys_at = stop + 1
            if tags >= 0 and tags_indexed:
                value = string_hash(buf, tags, tags_end, (prefix * 31 + 84) * 31 + 35 & _MASK)  # "T#"
                hashes[keys], owners[keys] = _index_hash(max(value, 0)), i
                keys += 1
        if special:
            keys = first
        facts[_SPECIAL, i] = special
    return keys


@dataclass
class Units:
    """Units of one queue, in log order. `count` is the number of messages of a unit."""

    number: Int64s
    phy: Int64s
    size: Int64s
    tags_code: Int64s
    stored: Int64s
    count: Int64s

    def __len__(self) -> int:
        return len(self.number)

    def pick(self, index: slice | Int64s) -> Self:
        return type(self)(*(getattr(self, field.name)[index] for field in fields(self)))


@dataclass
class Dispatches:
    """The additions of a batch of messages to consume queues and index files.

    `queue` has for each unit an index into `queues`. `hashes` are the index keys, and `owners` for each the index of its message in `phy` and
    `stored`.
    """

    queues: list[tuple[str, int]]
    queue: Int32s
    units: Units
    hashes: Int32s
    owners: Int32s
    phy: Int64s
    stored: Int64s


def dispatches(
    buf: Bytes, starts: Int64s, ends: Int64s, *, tags: bool, lmq: bool = False, batches: Any = ()
) -> Dispatches:
    """Return what valid messages add. `tags` are index keys from 5.4.0 on, `batches` are the topics with batch consume queues.

    Raises `IndexError` with the index of a message that a broker refuses.
    """
    starts, ends = (np.ascontiguousarray(array, np.int64) for array in (starts, ends))
    facts = np.empty((len(FACTS), len(starts)), np.int64)
    room = int((ends - starts).sum()) // 2
    hashes, owners = np.empty(room, np.int32), np.empty(room, np.int32)
    keys = read_facts(buf, starts, ends, int(tags), facts, hashes, owners)
    hashes, owners = hashes[:keys], owners[:keys]
    count = np.ones(len(starts), np.int64)
    special = np.flatnonzero(facts[_SPECIAL]).tolist()
    light: list[tuple[int, str, int, int]] = []
    extra: list[tuple[int, int]] = []
    for i in special:
        message = check(buf[int(starts[i]) : int(ends[i])].tobytes(), Rules(), crc=False)
        if not isinstance(message, Message):
            raise IndexError(i)
        facts[_CODE, i] = message.tags_code
        if message.topic in batches:
            facts[_NUMBER, i], count[i] = batch_of(message)
        try:
            light += [(i, *queue) for queue in (multi_dispatch(message) if lmq else ())]
        except ValueError:
            raise IndexError(i) from None
        if message.kind != ROLLBACK:
            extra += [(i, key_hash(message.topic, key)) for key in keys_of(message, tags=tags)]
    if extra:
        owners = np.concatenate([owners, np.array([i for i, _ in extra], np.int32)])
        order = np.argsort(owners, kind="stable")
        hashes = np.concatenate([hashes, np.array([value for _, value in extra], np.int32)])[order]
        owners = owners[order]
    topics = binary(buf, facts[_TOPIC_AT], facts[_TOPIC_SIZE]).dictionary_encode()
    names = [java_string(name) for name in topics.dictionary.to_pylist()]
    queued = np.flatnonzero((facts[_KIND] != PREPARED) & (facts[_KIND] != ROLLBACK))
    codes = np.asarray(topics.indices, np.int64)[queued] << 32 | facts[_ID, queued] & _MASK
    number = facts[_NUMBER, queued]
    for i, name, queue_id, offset in light:
        at = int(np.searchsorted(queued, i, "right"))  # after the message's own unit
        names.append(name)
        queued, number = np.insert(queued, at, i), np.insert(number, at, offset)
        codes = np.insert(codes, at, (len(names) - 1) << 32 | queue_id & _MASK)
    distinct, dense = np.unique(codes, return_inverse=True) if light else _dense(codes)
    keyed: dict[tuple[str, int], int] = {}
    queues = [(names[code >> 32], (code & _MASK ^ _SIGN) - _SIGN) for code in distinct.tolist()]
    renumbered = np.array([keyed.setdefault(queue, len(keyed)) for queue in queues], np.int32)
    if len(keyed) < len(queues):  # different bytes of one topic name
        dense = renumbered[dense]
    phy, stored = facts[_AT], facts[_STORED]
    units = Units(
        number, phy[queued], (ends - starts)[queued], facts[_CODE, queued], stored[queued], count[queued]
    )
    return Dispatches(list(keyed), dense.astype(np.int32, copy=False), units, hashes, owners, phy, stored)


def _dense(codes: Int64s) -> tuple[Int64s, Int32s]:
    """Return the distinct codes in order of appearance, and for each code its index there."""
    packed = numbers(pa.int64(), codes).dictionary_encode()
    return np.asarray(packed.dictionary, np.int64), np.asarray(packed.indices, np.int32)
