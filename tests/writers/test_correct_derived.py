"""A flipped bit in what follows from primary files comes back, because a repair writes it from them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import logwright as lw

QUEUE = {
    "mappedFileSizeCommitLog": 16384,
    "mappedFileSizeConsumeQueue": 200,
    "maxHashSlotNum": 8,
    "maxIndexNum": 60,
}
ENTRIES = [{"ledger_id": n % 2, "entry_id": n // 2, "payload": b"payload %d" % n} for n in range(40)]
TABLES = [{"key": b"k%03d" % n, "value": b"value %d" % n} for n in range(60)]
MESSAGES = [
    {
        "topic": "Orders",
        "queue_id": n % 2,
        "body": b"body %d" % n,
        "store_timestamp_ms": 1_700_000_000_000 + n,
    }
    for n in range(20)
]
MAP_OFFSET_AT = 8


def in_the_map(data: bytes) -> range:
    """Return the bytes of the ledgers map of an entry log, whose position its header has."""
    return range(int.from_bytes(data[MAP_OFFSET_AT : MAP_OFFSET_AT + 8], "big"), len(data))


def in_entries(data: bytes) -> range:
    return range(1024, 1024 + 8 * 20)


def in_padding(data: bytes) -> range:
    return range(200 - 20, 200)


def in_edits(data: bytes) -> range:
    return range(len(data))


def in_units(data: bytes) -> list[int]:
    """Return the bytes of the positions and sizes in a consume queue."""
    return [at for at in range(200) if at % 20 < 12]


CASES: dict[str, tuple[str, list[dict[str, Any]], dict[str, Any], str, Callable[[bytes], Sequence[int]]]] = {
    "ledgers map": ("bookkeeper.bookie", ENTRIES, {"logSizeLimit": 2200}, "ledger/current/0.log", in_the_map),
    "index pages": ("bookkeeper.bookie", ENTRIES, {}, "ledger/current/0/0/0.idx", in_entries),
    "manifest": ("leveldb.db", TABLES, {"max_file_size": 400}, "MANIFEST-000001", in_edits),
    "padding of a queue": (
        "rocketmq.store",
        MESSAGES[:10],
        {**QUEUE, "mappedFileSizeConsumeQueue": 200},
        "consumequeue/Orders/1/00000000000000000000",
        in_padding,
    ),
    "consume queue": (
        "rocketmq.store",
        MESSAGES,
        QUEUE,
        "consumequeue/Orders/1/00000000000000000000",
        in_units,
    ),
}


@pytest.mark.alike
@pytest.mark.parametrize("case", sorted(CASES))
def test_flipped_bit_of_a_derived_file_comes_back(case: str, tmp_path: Path) -> None:
    codec, rows, options, name, places = CASES[case]
    lw.write(rows, tmp_path / "store", codec, **options)
    file = tmp_path / "store" / name
    before = file.read_bytes()
    assert len(places(before)) >= 20
    for place in random.Random(case).sample(places(before), 3):
        data = bytearray(before)
        data[place] ^= 1 << place % 8
        file.write_bytes(data)
        out = tmp_path / str(place)
        lw.repair(tmp_path / "store", out, **(options if codec == "rocketmq.store" else {}))
        assert (out / name).read_bytes() == before, place
