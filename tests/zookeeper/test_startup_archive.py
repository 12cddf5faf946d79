"""Jute as a ZooKeeper server reads it: kernels compared with a plain reader that follows the Java code."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from zookeeper_crafted import OPEN, acl, buf, create, i4, i8, multi, set_data, ttl
from zookeeper_startup import memory_of

from logwright.codec.zookeeper.formats.txnlog.layout import LOWEST, RECIPE_ARRAY
from logwright.codec.zookeeper.startup.archive import (
    END_OF_FILE,
    FULL,
    NULL_ACLS,
    NULL_PATH,
    SOUND,
    UNREASONABLE,
    UNSUPPORTED,
    read_acl_table,
    read_bytes,
    read_nodes,
    read_txns,
)

pytestmark = pytest.mark.kernel_modes

LIMIT = 4096


class Ended(Exception):
    """The end of reading: a status and its number."""


class Archive:
    """`BinaryInputArchive` over some bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise Ended(END_OF_FILE, 0)
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int = 4) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def buffer(self) -> bytes | None:
        length = self.number()
        if length == -1:
            return None
        if length < 0 or length > LIMIT:
            raise Ended(UNREASONABLE, length)
        return self.take(length)

    def acl(self) -> None:
        count = self.number()
        if count == -1:
            raise Ended(NULL_ACLS, 0)
        for _ in range(count):
            self.number()
            self.buffer()
            self.buffer()

    def acl_or_null(self) -> None:
        try:
            self.acl()
        except Ended as ended:
            if ended.args[0] != NULL_ACLS:
                raise

    def acl_table(self) -> None:
        for _ in range(self.number()):
            self.number(8)
            self.acl()

    def nodes(self, strict: bool) -> None:
        while (path := self.buffer()) != b"/":
            if path is None and strict:
                raise Ended(NULL_PATH, 0)
            self.buffer()
            self.take(68)
            if path is None:
                raise Ended(NULL_PATH, 0)

    def txn(self, close_session: bool) -> None:
        self.take(28)
        kind = self.number()
        start = self.at
        try:
            self.body(kind, close_session)
        except Ended as ended:
            if ended.args[0] == END_OF_FILE and kind == 1:
                self.at = start
                self.buffer(), self.buffer(), self.acl_or_null(), self.take(1)
            elif ended.args[0] != END_OF_FILE or kind != -11:
                raise

    def body(self, kind: int, close_session: bool) -> None:
        if kind in (1, 15, 19, 21):
            self.buffer(), self.buffer(), self.acl_or_null()
            self.take(1 if kind in (1, 15) else 0)
            self.take(4)
            self.take(8 if kind == 21 else 0)
        elif kind in (2, 20):
            self.buffer()
        elif kind in (5, 16):
            self.buffer(), self.buffer(), self.number()
        elif kind == 7:
            self.buffer(), self.acl_or_null(), self.number()
        elif kind in (-10, -1):
            self.number()
        elif kind == -11:
            if close_session:
                for _ in range(self.number()):
                    self.buffer()
        elif kind == 14:
            for _ in range(self.number()):
                self.number()
                self.buffer()
        else:
            raise Ended(UNSUPPORTED, kind)


def outcome(read: Callable[[], object]) -> tuple[int, int]:
    """Return the status at the end of reading and its number."""
    try:
        read()
    except Ended as ended:
        return ended.args  # type: ignore[return-value]
    return SOUND, 0


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Draw a truncated copy, or one with a changed number or byte."""
    result = bytearray(data)
    kind = chance.random()
    if kind < 0.2:
        return bytes(result[: chance.randrange(len(result) + 1)])
    if kind < 0.7 and len(result) >= 4:
        at = chance.randrange(len(result) - 3)
        result[at : at + 4] = i4(
            chance.choice([-1, -2, 0, 1, 2, 5, LIMIT, LIMIT + 1, -(1 << 31), (1 << 31) - 1])
        )
    elif result:
        result[chance.randrange(len(result))] ^= 1 << chance.randrange(8)
    return bytes(result)


def array(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(data, np.uint8)


TABLE = i4(3) + i8(1) + OPEN + i8(7) + acl((1, b"digest", b""), (31, None, None)) + i8(-1) + i4(0)
BODIES = [
    (1, create(b"/a")), (15, create(b"/app/b", i4(-1), None)), (2, buf(b"/a")), (5, set_data(b"/a", b"xyz")),
    (7, buf(b"/a") + OPEN + i4(2)), (14, multi((1, create(b"/c")), (2, buf(b"/d")), (13, None))), (16, set_data(b"/z", None)),
    (-10, i4(30000)), (-11, i4(2) + buf(b"/a") + buf(b"/b")), (-11, b""), (-1, i4(-101)),
    (19, buf(b"/a") + buf(b"") + OPEN + i4(1)), (20, buf(b"/a")), (21, ttl(b"/t", 5)), (1, create(b"/v0")[:-4]), (13, buf(b"/a")),
]  # fmt: skip


def test_java_buffers_are_read_with_their_limits() -> None:
    for data, actual in [
        (buf(b"abc"), (SOUND, 7, 3)), (buf(None), (SOUND, 4, -1)), (buf(b""), (SOUND, 4, 0)), (b"\0\0\0", (END_OF_FILE, 3, 0)),
        (buf(b"abc")[:-1], (END_OF_FILE, 6, 3)), (i4(-2), (UNREASONABLE, 4, -2)), (i4(LIMIT + 1), (UNREASONABLE, 4, LIMIT + 1)),
    ]:  # fmt: skip
        assert read_bytes(array(data), 0, len(data), LIMIT) == actual


@pytest.mark.parametrize("seed", range(60))
def test_acl_tables_are_read(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(8):
        data = damaged(TABLE, chance)
        archive = Archive(data)
        expected = outcome(archive.acl_table)
        status, stop, length = read_acl_table(array(data), 0, len(data), LIMIT)
        assert (status, length if status == UNREASONABLE else 0) == expected
        assert stop == archive.at or status != SOUND


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_damaged_nodes_are_read_as_in_java(seed: int, strict: bool) -> None:
    chance = random.Random(seed)
    complete = memory_of("fresh").files["snapshot.0"][0x3B : 0x19B + 1]
    for _ in range(8):
        data = damaged(complete, chance)
        room = len(data) // 76 + 1
        starts, acls = np.zeros(room, np.int64), np.zeros(room, np.int64)
        paths, lengths = np.zeros(room, np.int32), np.zeros(room, np.int32)
        count, stop, status, length = read_nodes(
            array(data), 0, len(data), LIMIT, int(strict), starts, paths, lengths, acls
        )
        archive = Archive(data)
        expected = outcome(lambda archive=archive: archive.nodes(strict))  # type: ignore[misc]
        assert (status, length if status == UNREASONABLE else 0) == expected
        assert stop == archive.at or status != SOUND
        for i in range(count):
            item = Archive(data[int(starts[i]) :])
            path, content = item.buffer(), item.buffer()
            assert path is not None
            assert (paths[i], lengths[i]) == (len(path), -1 if content is None else len(content))
            assert acls[i] == item.number(8)


def test_full_arrays_stop_the_reading_of_nodes() -> None:
    data = memory_of("fresh").files["snapshot.0"][0x3B:]
    starts, acls = np.zeros(2, np.int64), np.zeros(2, np.int64)
    paths, lengths = np.zeros(2, np.int32), np.zeros(2, np.int32)
    actual = read_nodes(array(data), 0, len(data), LIMIT, 0, starts, paths, lengths, acls)
    assert actual[0] == 2
    assert actual[2] == FULL


@pytest.mark.parametrize("close_session", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_damaged_transactions_are_read_as_in_java(seed: int, close_session: bool) -> None:
    chance = random.Random(seed)
    payloads = []
    for _ in range(12):
        kind, body = chance.choice(BODIES)
        payload = bytes(28) + i4(kind) + body
        payloads.append(payload if chance.random() < 0.6 else damaged(payload, chance))
    ends = np.cumsum([len(payload) for payload in payloads])
    starts = ends - [len(payload) for payload in payloads]
    actual = read_txns(
        array(b"".join(payloads)), starts, ends, RECIPE_ARRAY, LOWEST, LIMIT, int(close_session)
    )
    expected = [outcome(lambda payload=payload: Archive(payload).txn(close_session)) for payload in payloads]  # type: ignore[misc]
    first = next((i for i, (status, _) in enumerate(expected) if status != SOUND), len(payloads))
    assert actual[0] == first
    if first < len(payloads):
        assert (actual[1], 0 if actual[1] == END_OF_FILE else actual[2]) == expected[first]
