"""Indexes of segments: names, and entries that contradict each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logwright.codec.base import Match
from logwright.codec.fault import Kind, Severity
from logwright.codec.fixed import FixedCodec
from logwright.codec.kafka.formats.indexes import INDEX, TIMEINDEX, TXNINDEX
from logwright.codec.option import Options
from logwright.codec.window import Window

BASE = 20
CODECS = (INDEX, TIMEINDEX, TXNINDEX)


def faults(codec: FixedCodec, *entries: dict[str, int], tail: bytes = b"") -> list[tuple[int, str]]:
    (entry,) = codec.structures
    data = b"".join(entry.pack(item) for item in entries) + tail
    name = f"{BASE:020d}.{codec.name.removeprefix('kafka.')}"
    frames = codec.scan(
        Window(np.frombuffer(data, np.uint8), 0, len(data)), 0, codec.context(name, Options(()))
    )
    every = [*frames.faults, *([frames.damage] if frames.damage else [])]
    assert all(
        fault.system
        for fault in every
        if fault.severity is not Severity.INFO and fault.kind is not Kind.PADDING
    )
    return [(fault.offset, fault.detail) for fault in every if fault.severity is not Severity.INFO]


def at(offset: int, position: int) -> dict[str, int]:
    return {"relative_offset": offset, "position": position}


def when(timestamp: int, offset: int) -> dict[str, int]:
    return {"timestamp": timestamp, "relative_offset": offset}


def txn(first: int, last: int, **others: int) -> dict[str, int]:
    return {
        "producer_id": 7,
        "first_offset": first,
        "last_offset": last,
        "last_stable_offset": last + 1,
        **others,
    }


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_indexes_are_recognised_by_name_with_any_suffix_of_a_broker(codec: Any) -> None:
    suffix = codec.name.removeprefix("kafka.")
    for end in ("", ".deleted", ".swap", ".cleaned"):
        assert codec.recognise(f"{BASE:020d}.{suffix}{end}", b"") is Match.NAME
        assert codec.context(f"{BASE:020d}.{suffix}{end}", Options(())).base == BASE
    for other in (f"20.{suffix}", f"{BASE:020d}.{suffix}.tmp", f"x{BASE:020d}.{suffix}", f"{BASE:020d}.log"):
        assert codec.recognise(other, b"") is Match.NO


@pytest.mark.parametrize(
    ("codec", "entries"),
    [
        (INDEX, [at(0, 0)]),
        (INDEX, [at(3, 153), at(5, 303)]),
        (TIMEINDEX, [when(0, 0)]),
        (TIMEINDEX, [when(-(1 << 63), 3), when((1 << 63) - 1, 3)]),
        (TXNINDEX, [txn(4, 21), txn(5, 22)]),
        (TXNINDEX, [txn(4, 21, version=255)]),
    ],
)
def test_valid_indexes_have_no_faults(codec: Any, entries: list[dict[str, int]]) -> None:
    assert faults(codec, *entries) == []


@pytest.mark.parametrize(
    ("codec", "entries", "place", "text"),
    [
        (INDEX, [at(3, 153), at(3, 303)], 8, "not above"),
        (INDEX, [at(3, 153), at(5, 153)], 8, "not above"),
        (INDEX, [at(3, -1)], 0, "position is negative"),
        (INDEX, [at(-1, 153)], 0, "below 20"),
        (TIMEINDEX, [when(5, 3), when(5, 4)], 12, "not above"),
        (TIMEINDEX, [when(5, 3), when(6, 2)], 12, "offset is below"),
        (TIMEINDEX, [when((1 << 63) - 1, 3), when(-(1 << 63), 4)], 12, "not above"),
        (TXNINDEX, [txn(4, 19)], 0, "last_offset is below 20"),
        (TXNINDEX, [txn(22, 21)], 0, "first_offset is above"),
        (TXNINDEX, [txn(4, 21), txn(5, 21)], 34, "not above"),
        (TXNINDEX, [txn(4, 21), txn(5, 22, version=256)], 34, "version 256"),
    ],
)
def test_wrong_index_entry_is_located(
    codec: Any, entries: list[dict[str, int]], place: int, text: str
) -> None:
    ((offset, detail),) = faults(codec, *entries)
    assert offset == place
    assert text in detail


def test_only_mapped_indexes_are_preallocated() -> None:
    assert faults(INDEX, at(3, 153), tail=bytes(80)) == []
    assert faults(TIMEINDEX, when(5, 3), tail=bytes(120)) == []
    ((offset, detail),) = faults(TXNINDEX, txn(4, 21), tail=bytes(34))
    assert offset == 34
    assert "zero bytes" in detail


def test_full_size_as_a_broker_allocates_it() -> None:
    assert faults(INDEX, at(3, 153), tail=bytes(10_485_760 - 8)) == []
    assert faults(TIMEINDEX, when(5, 3), tail=bytes(10_485_756 - 12)) == []
