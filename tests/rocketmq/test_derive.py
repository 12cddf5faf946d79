"""Consume queues and index files derived from messages."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pieces import take

from logwright.codec.rocketmq.derive import IndexWriter
from logwright.codec.rocketmq.dispatch import dispatches
from logwright.codec.rocketmq.formats.commitlog.layout import (
    BORN_V6,
    MESSAGE,
    PREPARED,
    ROLLBACK,
    STORE_V6,
    V1,
    V2,
    body_crc,
)
from logwright.codec.rocketmq.startup.index_service import IndexService, key_hash, keys_of
from logwright.codec.rocketmq.startup.message import Message, Rules, check
from logwright.codec.store.overlay import Overlay

TEXTS = st.sampled_from(
    [b"", b"a", b"TagA", "标签".encode(), "😀".encode(), b"polygenelubricants", b"\xff\xfe", b"\xed\xa0\x80", b"x y  z", b" ", b"\xc0\x80",
     b"12345678", "1234567标".encode(), b"order-1 \t " * 9]
)  # fmt: skip
NAMES = st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"A", b"", b"TAGSX", b"WAIT"])
PROPERTY = st.one_of(
    st.builds(lambda name, value, end: name + b"\x01" + value + end, NAMES, TEXTS, st.sampled_from([b"\x02", b"\x02\x02"])),
    st.sampled_from([b"DELAY\x013\x02", b"INNER_NUM\x013\x02", b"no separator\x02"]),
)  # fmt: skip
TOPICS = st.sampled_from([b"T", b"SCHEDULE_TOPIC_XXXX", "标".encode(), b"\xff", b"t" * 130])
KINDS = st.sampled_from([0, 0, PREPARED, 8, ROLLBACK, BORN_V6, BORN_V6 | STORE_V6])


def message(
    topic: bytes, flags: int, properties: bytes = b"", number: int = 0, phy: int = 0, queue_id: int = 0
) -> bytes:
    def host(bit: int) -> dict[str, Any]:
        return {"address": bytes(16 if flags & bit else 4), "port": 1}

    return MESSAGE.pack(
        {
            "magic_code": V2 if len(topic) > 127 else V1, "body_crc": body_crc(b"hello"), "queue_id": queue_id, "queue_offset": number,
            "physical_offset": phy, "sys_flag": flags, "born_host": host(BORN_V6), "store_host": host(STORE_V6),
            "store_timestamp": 1_700_000_000_000 + 900 * phy, "body": b"hello", "body_length": 5, "topic": topic, "properties": properties,
        }
    )  # fmt: skip


def joined(messages: list[bytes]) -> tuple[Any, Any, Any]:
    ends = np.cumsum([len(data) for data in messages])
    return np.frombuffer(b"".join(messages), np.uint8), ends - [len(data) for data in messages], ends


@given(st.lists(st.tuples(TOPICS, KINDS, st.lists(PROPERTY, max_size=4)), min_size=1, max_size=20))
def test_dispatched_values_equal_those_of_the_simulated_broker(
    rows: list[tuple[bytes, int, list[bytes]]],
) -> None:
    messages = [
        message(topic, flags, b"".join(texts), n, n * 1000) for n, (topic, flags, texts) in enumerate(rows)
    ]
    added = dispatches(*joined(messages), tags=True)
    units, keys = [], []
    for data in messages:
        expected = check(data, Rules(), crc=True)
        assert isinstance(expected, Message)
        if expected.kind not in (PREPARED, ROLLBACK):
            units.append(
                (expected.topic, expected.queue_offset, expected.phy, expected.size, expected.tags_code)
            )
        if expected.kind != ROLLBACK:
            keys += [(key_hash(expected.topic, key), expected.phy) for key in keys_of(expected, tags=True)]
    names = ("queue", "number", "phy", "size", "tags_code")
    actual = zip(*(getattr(added.units, name).tolist() for name in names), strict=True)
    assert [(added.queues[queue][0], *values) for queue, *values in actual] == units
    assert list(zip(added.hashes.tolist(), added.phy[added.owners].tolist(), strict=True)) == keys


def test_any_number_of_queues_and_keys_is_dispatched() -> None:
    many = b"KEYS\x01" + b"k " * 16380 + b"\x02"
    rows = [(b"topic" * (1 + n % 50) + b"%d" % (n % 3), n % 40, many if n < 3 else b"") for n in range(2000)]
    messages = [
        message(topic, 0, text, n, n * 1000, queue_id) for n, (topic, queue_id, text) in enumerate(rows)
    ]
    added = dispatches(*joined(messages), tags=True)
    queues = list(dict.fromkeys((topic.decode(), queue_id) for topic, queue_id, _ in rows))
    assert added.queues == queues
    assert [queues[i] for i in added.units.queue] == [
        (topic.decode(), queue_id) for topic, queue_id, _ in rows
    ]
    assert np.bincount(added.owners).tolist() == [16380] * 3
    assert set(added.hashes.tolist()) == {key_hash(topic.decode(), "k") for topic, _, _ in rows[:3]}


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), max_size=30), st.integers(1, 7))
def test_index_files_equal_those_of_the_simulated_broker(rows: list[tuple[int, int]], step: int) -> None:
    """Physical offsets may go back, messages may have no key, and files fill up within a message."""
    overlay = Overlay(_Empty())
    service, writer = IndexService(overlay, 5, 6, tags=True), IndexWriter(5, 6)
    pieces = []
    for at in range(0, len(rows), step):
        part = rows[at : at + step]
        phy, stored = np.array([row[0] for row in part]), np.array([1000 + 700 * row[0] for row in part])
        hashes = [(i, 31 * i + k) for i, (_, count) in enumerate(part) for k in range(count)]
        pieces += list(
            writer.add(
                np.array([key for _, key in hashes], np.int32),
                np.array([i for i, _ in hashes], np.int32),
                phy,
                stored,
            )
        )
        for i, (offset, _) in enumerate(part):
            file = service._last(1000 + 700 * offset)
            if offset >= file.end_phy:
                for _, key in (entry for entry in hashes if entry[0] == i):
                    while not file.put(key, offset, 1000 + 700 * offset):
                        file = service._last(1000 + 700 * offset)
                    service.changed.add(file)
    service.flush()
    assert take([*pieces, *writer.close()]) == {
        entry.name: overlay.read(entry.name) for entry in overlay.entries()
    }


class _Empty:
    name = "store"

    def entries(self) -> list[Any]:
        return []

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        raise FileNotFoundError(name)

    def parent(self) -> None:
        return None
