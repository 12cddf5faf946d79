"""Tags of messages that contradict their consume queue: corrected only to the tags of another message of the queue, by one bit."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import logwright as lw
from logwright.codec.rocketmq.dispatch import string_hash
from logwright.codec.rocketmq.formats.commitlog.layout import trailer_of
from logwright.codec.rocketmq.repair.tags import corrected, properties_at, tags_of, wrong_codes

pytestmark = pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
SIZES = {
    "mappedFileSizeCommitLog": 8192, "mappedFileSizeConsumeQueue": 1000, "maxHashSlotNum": 10, "maxIndexNum": 400,
}  # fmt: skip
TAGS = ["TagA", "TagB", "paid", "paia", "order-created"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [
        {"topic": "A", "queue_id": 0, "keys": f"k{n}", "tags": TAGS[n % len(TAGS)], "body": b"body %d" % n}
        for n in range(30)
    ]
    home = tmp_path_factory.mktemp("tags") / "store"
    lw.write(rows, home, "rocketmq.store", **SIZES)
    return home


def log(store: Path) -> Path:
    (path,) = (store / "commitlog").iterdir()
    return path


@pytest.fixture(scope="module")
def message(store: Path) -> bytes:
    """A message with tags order-created."""
    frame = lw.read(log(store), view="frames", columns=["position", "size"]).to_pylist()[4]
    return log(store).read_bytes()[frame["position"] : frame["position"] + frame["size"]]


def flipped(data: bytes, *bits: int) -> bytes:
    out = bytearray(data)
    for bit in bits:
        out[bit // 8] ^= 1 << bit % 8
    return bytes(out)


def test_every_bit_of_the_tags_comes_back_and_no_other_changes(message: bytes) -> None:
    tags = tags_of(message)
    assert tags == b"order-created"
    start, pair = properties_at(message), message.index(b"TAGS")
    inside = range(8 * (pair - (pair > start)), 8 * (pair + 5 + len(tags) + 1))
    for bit in range(8 * start, 8 * len(message)):
        assert corrected(flipped(message, bit), tags) == (message if bit in inside else None), bit


def test_two_flipped_bits_of_tags_are_left(message: bytes) -> None:
    pair = message.index(b"TAGS")
    bits = range(8 * pair, 8 * (pair + 10))
    assert not any(corrected(flipped(message, *two), b"order-created") for two in combinations(bits, 2))


def test_hash_alone_does_not_tell_one_flipped_bit_from_two() -> None:
    """31 + 1 = 32: of the stored tags ac, aC is one bit away and `b is two."""
    hashes = [
        string_hash(np.frombuffer(bytes(8) + tags + bytes(8), np.uint8), 8, 10, 0) for tags in (b"aC", b"`b")
    ]
    assert hashes[0] == hashes[1]


def test_message_with_a_right_checksum_is_right(message: bytes) -> None:
    start = properties_at(message)
    size = (int.from_bytes(message[start - 2 : start], "big") + 20).to_bytes(2, "big")
    data = bytearray(flipped(message, 8 * (len(message) - 3)))
    data[start - 2 : start] = size
    longer = (len(message) + 20).to_bytes(4, "big") + bytes(data[4:]) + bytes(20)
    sealed = longer[:-20] + trailer_of(np.frombuffer(longer, np.uint8), 0, len(longer) - 20).tobytes()
    assert corrected(sealed, b"order-created") is None


@pytest.mark.parametrize(
    ("stored", "computed", "alike"),
    [
        ([7, 7, 1], [9, 7, 1], [1]),
        ([7, 7, 1], [5, 7, 1], []),  # one bit of the unit explains it
        ([7, 7, 9], [9, 7, 9], []),  # the tags are those of another message too
        ([7, 1, 7], [9, 1, 8], []),  # the other unit is wrong too
        ([-1, -1, 1], [-4, -1, 1], [1]),
        ([-(1 << 31), -(1 << 31)], [3, -(1 << 31)], [1]),
    ],
)
def test_tags_are_those_of_another_message_whose_unit_agrees(
    stored: list[int], computed: list[int], alike: list[int]
) -> None:
    assert wrong_codes(np.array(stored), np.array(computed), 0) == alike


def damaged(store: Path, home: Path, name: str, data: bytes) -> Path:
    for path in store.rglob("*"):
        if path.is_file():
            (home / path.relative_to(store)).parent.mkdir(parents=True, exist_ok=True)
            (home / path.relative_to(store)).write_bytes(
                data if name == str(path.relative_to(store)) else path.read_bytes()
            )
    return home


def test_repair_corrects_tags_and_keeps_the_queue(store: Path, tmp_path: Path) -> None:
    data, name = log(store).read_bytes(), str(log(store).relative_to(store))
    places = [at for at in range(len(data)) if data.startswith(b"TAGS\x01", at)]
    bits = [8 * (places[4] + 6) + 1, 8 * (places[9] + 2) + 5, 8 * (places[14] + 4)]
    home = damaged(store, tmp_path / "store", name, flipped(data, *bits))
    report = lw.repair(home, tmp_path / "out")
    assert any("Wrong tags of messages were corrected" in note for note in report.notes)
    assert {path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()} == {
        path.read_bytes() for path in store.rglob("*") if path.is_file()
    }
    lw.repair(home, tmp_path / "left", correct=False)
    assert log(tmp_path / "left").read_bytes() == log(home).read_bytes()


def test_flipped_bits_of_a_queue_change_no_message(store: Path, tmp_path: Path) -> None:
    (queue,) = (store / "consumequeue/A/0").iterdir()
    data, chance = queue.read_bytes(), random.Random(4)
    for n in range(12):
        at = 20 * chance.randrange(30) + 12
        bits = chance.sample(range(8 * at + 32, 8 * at + 64), 1 + n % 2)
        home = damaged(store, tmp_path / str(n), str(queue.relative_to(store)), flipped(data, *bits))
        lw.repair(home, tmp_path / f"out{n}")
        assert log(tmp_path / f"out{n}").read_bytes() == log(store).read_bytes()
        assert lw.verify(tmp_path / f"out{n}").ok
