"""Usual records are read by a shorter loop than others, with the same result: rows, findings and the place of a bad record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logwright.codec.kafka.formats.log import records
from logwright.codec.kafka.formats.log.heads import HEADS
from logwright.codec.kafka.formats.log.layout import RECORD
from logwright.codec.kafka.formats.log.rows import Read
from logwright.codec.kafka.formats.log.sections import Sections
from logwright.codec.kafka.formats.log.tables import NOTHING_SERVED
from logwright.codec.window import Bytes

pytestmark = pytest.mark.kernel_modes

WANT = (
    records.WANT_OFFSET
    | records.WANT_TIMESTAMP
    | records.WANT_KEY
    | records.WANT_VALUE
    | records.WANT_HEADERS
)
SIZES = (0, 1, 31, 32, 57, 63, 64, 128, 129, 300, 8100, 8191, 8192, 20_000)
TEXTS = st.none() | st.sampled_from([(b"0123456789" * 2000)[:size] for size in SIZES])
HEADERS = [{"key": b"name", "value": b"content"}, {"key": b"", "value": None}]
RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "attributes": st.sampled_from([0, 0, 1, -1]),
            "timestamp_delta": st.sampled_from(
                [0, 1, 63, 64, 8191, 8192, 1 << 19, 1 << 20, 1 << 40, -1, -100]
            ),
            "ahead": st.sampled_from([1, 1, 1, 1, 2, 70, 9000, 0, -1]),
            "key": TEXTS,
            "value": TEXTS,
            "headers": st.just([]) | st.sampled_from([[], HEADERS]),
        }
    ),
    max_size=30,
)


def section(rows: list[dict[str, Any]]) -> bytes:
    """Return the bytes of records. `ahead` is the distance of an offset from the one before."""
    delta, out = -1, b""
    for row in rows:
        delta += row["ahead"]
        stored = {name: value for name, value in row.items() if name != "ahead"}
        out += RECORD.pack({**stored, "offset_delta": delta})
    return out


def read(data: bytes, bounds: list[tuple[int, int, int]], want: int, **options: Any) -> Read:
    """Read batches from offset 100 on, whose records are at `data[start:end]`: (start, end, number of records)."""
    buf: Bytes = np.frombuffer(data, np.uint8)
    start, end, count = np.array(bounds, np.int64).reshape(-1, 3).T.copy()
    head = np.zeros(len(bounds), HEADS)
    head["base_offset"] = 100 + np.arange(len(bounds)) * 50
    head["base_timestamp"], head["max_timestamp"] = options.pop("times", (1_700_000_000_000, 5))
    head["records_count"] = count
    head["attributes"] = options.pop("attributes", 0)
    return Read(Sections(slice(0, len(bounds)), buf, start, end), head, want, **options)


def result(batch: Read) -> dict[str, Any]:
    names = {"offset": pa.int64(), "timestamp": pa.int64(), "key": pa.binary(), "value": pa.binary()}
    bad = np.repeat(batch.bad != 0, 2)
    findings = (batch.per_frame, batch.left_out, batch.odd, batch.bad, batch.bad_record[bad], batch.sums)
    # Times beyond those that Python has are compared as numbers.
    columns = {name: getattr(batch, name)().view(kind).to_pylist() for name, kind in names.items()}
    return {
        **columns,
        "headers": batch.headers()[0].to_pylist(),
        "found": [each.tolist() for each in findings],
    }


@given(
    rows=st.lists(RECORDS, min_size=1, max_size=3),
    times=st.sampled_from([(1_700_000_000_000, 5), (-2, -1), (-1, 0), ((1 << 63) - 70, 7), (-1 << 63, 7)]),
    partial=st.booleans(),
    attributes=st.sampled_from([0, 8]),
    limits=st.sampled_from([{}, {"low": 103}, {"high": 104}, {"served": 102}]),
    data=st.data(),
)
def test_usual_records_are_read_as_others(
    rows: list[list[dict[str, Any]]],
    times: tuple[int, int],
    partial: bool,
    attributes: int,
    limits: dict[str, int],
    data: st.DataObject,
) -> None:
    out, bounds = bytearray(b"before"), []
    for each in rows:
        stored = section(each)
        bounds.append(
            (len(out), len(out) + len(stored), len(each) + data.draw(st.sampled_from([0, 0, 0, -1, 1])))
        )
        out += stored
    out += b"\0" * data.draw(st.sampled_from([0, 100]))
    # Lengths and counts are near the starts of records.
    for at in data.draw(st.lists(st.integers(6, max(6, len(out) - 1)), max_size=2)):
        if at < len(out):
            out[at] ^= 1 << data.draw(st.integers(0, 7))
    options = {"times": times, "partial": partial, "attributes": attributes, **limits}
    usual = read(bytes(out), bounds, WANT, **options)
    # Records whose attributes are wanted are read one by one.
    others = read(bytes(out), bounds, WANT | records.WANT_ATTRIBUTES, **options)
    assert result(usual) == result(others)


@pytest.mark.parametrize("end", range(1, 20))
def test_usual_records_end_with_the_buffer(end: int) -> None:
    row = {
        "attributes": 0,
        "timestamp_delta": 1,
        "ahead": 1,
        "key": b"k" * 9,
        "value": b"v" * 40,
        "headers": [],
    }
    data = section([row] * 3)
    complete = read(data, [(0, len(data), 3)], WANT)
    assert complete.value().to_pylist() == [b"v" * 40] * 3
    assert complete.served == 102
    cut = read(data[:-end], [(0, len(data) - end, 3)], WANT, partial=True)
    assert cut.rows == 2
    assert cut.bad.tolist() == [records.BAD_LENGTH]
    assert read(data[:-end], [(0, len(data) - end, 3)], WANT, served=NOTHING_SERVED).rows == 0
