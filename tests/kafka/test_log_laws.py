"""Arbitrary damage to small logs: no crash, no invented row, no sound row lost, and everything reported.

Invariant: the rows of any bytes are a subset of those written, and reencoding gives the bytes.

"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_log import NAME, DecodedLog, T, batch, compressed, pack_records, raw_batch, record, reseal

from logwright.codec.kafka.formats.log.layout import HEAD_SIZE, RECORD_BATCH
from logwright.codec.kernels.compress import compress
from logwright.corpora.cases import cases
from logwright.roundtrip.laws import damage_is_seen

PLAIN = [record(0, headers=[("h", b"x")]), record(1, None, b"")]


def specimen() -> bytes:
    """A log with a batch of each kind."""
    embedded = batch(3) + batch(4)
    return b"".join(
        [
            batch(0, PLAIN),
            compressed(
                2, compress("lz4", pack_records([record(0)])), "lz4", 1, base_timestamp=T, max_timestamp=T
            ),
            batch(3, [record(0, embedded, embedded)]),
            batch(
                5, [record(0, b"\0\0\0\1", b"\0\0\0\0\0\1")], attributes=0x30, producer_id=1, producer_epoch=0
            ),
            batch(6, [], records_count=0, last_offset_delta=2),
            batch(9, attributes=8, max_timestamp=T + 1),
        ]
    )


WHOLE = specimen()


@pytest.mark.extended
def test_flips_and_cuts_of_batches_we_never_write() -> None:
    verdict = damage_is_seen(
        WHOLE, "kafka.log", name=NAME, flips=[(at, at * 3 % 8) for at in range(len(WHOLE))]
    )
    assert verdict, str(verdict)


@given(st.integers(0, 1 << 32), st.integers(1, 4))
def test_ranges_overwritten_moved_and_removed(seed: int, times: int) -> None:
    rnd = random.Random(seed)
    damaged = bytearray(WHOLE)
    for _ in range(times):
        at, size = rnd.randrange(len(damaged)), rnd.choice([1, 7, 61, 200])
        kind = rnd.choice(["noise", "zeros", "cut", "insert", "again"])
        if kind == "noise":
            damaged[at : at + size] = rnd.randbytes(len(damaged[at : at + size]))
        elif kind == "zeros":
            damaged[at : at + size] = bytes(len(damaged[at : at + size]))
        elif kind == "cut" and len(damaged) > size + 1:
            del damaged[at : at + size]
        elif kind == "insert":
            damaged[at:at] = rnd.randbytes(size)
        else:
            damaged[at:at] = damaged[at : at + size]
    decoded = DecodedLog(bytes(damaged))
    assert decoded.encoded() == decoded.data
    offsets = decoded.offsets
    assert offsets == sorted(set(offsets))


@given(st.binary(max_size=300), st.integers(-2, 20), st.integers(0, 0x7F))
def test_arbitrary_bytes_as_records(stored: bytes, count: int, attributes: int) -> None:
    decoded = DecodedLog(raw_batch(0, stored, count, attributes=attributes, last_offset_delta=30) + batch(31))
    assert decoded.offsets[-1:] == [31] or attributes & 0x08
    assert decoded.encoded() == decoded.data


FIELDS = [
    field.name for field in RECORD_BATCH.fields[:-1] if field.name not in ("batch_length", "crc", "magic")
]


@given(st.sampled_from(FIELDS), st.data())
def test_arbitrary_header_with_a_correct_checksum(field: str, data: Any) -> None:
    kind = RECORD_BATCH[field].type
    bits = 8 * kind.min_size - 1
    value = data.draw(st.one_of(st.integers(-(1 << bits), (1 << bits) - 1), st.integers(-2, 3)))
    packed = bytearray(batch(0, PLAIN))
    at = RECORD_BATCH.offset(field)
    packed[at : at + kind.min_size] = kind.pack(value, {})
    decoded = DecodedLog(reseal(bytes(packed)) + batch(2))
    assert decoded.encoded() == decoded.data
    assert not decoded.offsets or decoded.offsets[-1] >= 2 or decoded.faults


@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_damage_and_round_trip(data: bytes) -> None:
    decoded = DecodedLog(data)
    assert decoded.offsets == []
    assert bool(decoded.damage) == bool(data)
    assert decoded.encoded() == data


@pytest.mark.extended
@pytest.mark.parametrize("name", ["craft_embedded", "craft_holes", "craft_spec22"])
def test_cuts_and_flips_of_golden_logs_are_seen(name: str) -> None:
    for path in sorted(cases("kafka")[name].data.rglob("*.log")):
        size = path.stat().st_size
        flips = [(at, at * 5 % 8) for at in range(0, size, 2)]
        assert damage_is_seen(str(path), cuts=range(0, size, 3), flips=flips)


def test_incomplete_header_is_damage() -> None:
    for size in range(1, HEAD_SIZE):
        assert DecodedLog(batch(0)[:size]).damage
