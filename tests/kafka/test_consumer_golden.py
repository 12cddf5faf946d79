"""Rows and errors of a consumer on the golden files."""

from __future__ import annotations

from typing import Any

import pytest
import zstandard
from consumer_sections import GZ, TWO_RECORDS, as_array, pack_record
from kafka_golden import CASES
from kafka_log import compressed, context, raw_batch, window

from logwright.codec.kafka.formats.log.codec import CODEC
from logwright.codec.kafka.formats.log.consumer import consume_batch
from logwright.codec.kafka.formats.log.java_streams import KAFKA_EXCEPTION, Thrown
from logwright.codec.kafka.formats.log.layout import COMPRESSION, HEAD_SIZE
from logwright.corpora.cases import Case

# Golden files


def batches(case: Case) -> list[bytes]:
    out = []
    for path in sorted(case.partition.glob("*.log")):
        data, at = path.read_bytes(), 0
        while len(data) - at >= HEAD_SIZE:
            size = 12 + int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
            if data[at + 16] != 2 or size < HEAD_SIZE or size > len(data) - at:
                break
            out.append(data[at : at + size])
            at += size
    return out


def stops(case: Case) -> tuple[int, str] | None:
    """Return the position and error where the consumer stopped, or None unless it stopped at the records of a batch."""
    for run in case.runs.values():
        outcome = run.get("consumer", {}).get("read_uncommitted", {})
        error = outcome.get("error", "")
        if "Unknown compression" in error:
            return outcome["position"], str(error)
        _, answered, cause = error.partition("continue consumption. <- ")
        if answered and "Record batch for partition" not in cause and "CorruptRecord" not in cause:
            return outcome["position"], cause
    return None


STOPPED = {
    name: stop
    for name, case in CASES.items()
    if name.startswith(("craft_", "dmg_fix"))
    and not name.startswith(("craft_v0", "craft_v1", "craft_no"))
    and (stop := stops(case))
}


@pytest.mark.parametrize("name", STOPPED)
def test_consumer_stops_at_the_error_of_the_real_one(name: str) -> None:
    position, expected_error = STOPPED[name]
    for batch in batches(CASES[name]):
        base = int.from_bytes(batch[:8], "big")
        reading = consume_batch(as_array(batch), 1 << 20)
        if reading.error is not None:
            # An unexpected exception also discards what the same poll has collected.
            assert (
                base + consume_batch(as_array(batch), 1 << 20).records == position
                or not reading.error.expected
            )
            assert str(consume_batch(as_array(batch), 1 << 20).error) == expected_error
            return
    pytest.fail("all batches were read to their end")


def test_golden_files_have_consumer_errors() -> None:
    assert len(STOPPED) >= 15


@pytest.mark.parametrize(
    "name", ["v2_none_java", "v2_gzip_java", "v2_snappy_java", "v2_lz4_java", "v2_zstd_java"]
)
def test_other_golden_batches_are_read_to_the_end(name: str) -> None:
    seen = 0
    for batch in batches(CASES[name]):
        got = consume_batch(as_array(batch), 1 << 20)
        assert got.error is None
        assert got.records == int.from_bytes(batch[57:61], "big")
        seen += int.from_bytes(batch[21:23], "big") & COMPRESSION
    assert seen or name == "v2_none_java"


# Rows


def rows(data: bytes, **hints: Any) -> tuple[list[int], list[str]]:
    asked = context(**hints)
    seen = window(data)
    frames = CODEC.scan(seen, 0, asked)
    offsets: list[int] = []
    faults = []
    for decoded in CODEC.decode(seen, frames, "rows", ["offset"], asked):
        offsets += decoded.batch.column(0).to_pylist()
        faults += [fault.detail for _, fault in decoded.faults]
    return offsets, faults


def test_partial_hint_returns_the_rows_before_a_failure() -> None:
    cut = compressed(0, GZ[:-12], "gzip", 2) + raw_batch(2, pack_record(0), 1)
    assert rows(cut) == ([2], ["gzip: the stream is cut off after 23 bytes, before its end and checksum"])
    offsets, faults = rows(cut, partial=True)
    assert (offsets, len(faults)) == ([0, 2], 1)


def test_batch_that_a_consumer_reads_to_the_end_is_no_fault() -> None:
    tail = compressed(0, zstandard.compress(TWO_RECORDS) + zstandard.compress(pack_record(1))[:8], "zstd", 2)
    assert rows(tail)[0] == []
    assert rows(tail, partial=True) == ([0, 1], [])


def test_stored_hint_accepts_unordered_batches() -> None:
    data = (
        raw_batch(5, pack_record(0), 1)
        + raw_batch(900, pack_record(0), 1)
        + raw_batch(6, pack_record(0), 1)
        + raw_batch(7, pack_record(0), 1)
    )
    asked = context(stored=True)
    frames = CODEC.scan(window(data), 0, asked)
    assert (len(frames), frames.damage, frames.faults) == (4, None, [])
    judged = CODEC.scan(window(data), 0, context())
    assert len(judged) < 4


def test_exception_has_its_causes() -> None:
    error = Thrown(KAFKA_EXCEPTION, "a", Thrown("java.io.IOException", "b"))
    assert str(error) == "KafkaException: a <- IOException: b"
    assert error.expected
    assert error.cause is not None
    assert error.cause.io
    assert not error.cause.expected
