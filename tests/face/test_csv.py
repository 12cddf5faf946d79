"""CSV as `logwright dump --format csv` writes it, read back by Python's csv module."""

from __future__ import annotations

import csv
import io
import json

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from logwright.formats.sink import Sink

_CSV_BYTES = st.one_of(
    st.none(), st.just(b""), st.binary(max_size=8), st.text('a"\n\r,{}$\\ é', max_size=8).map(str.encode)
)


@given(rows=st.lists(st.tuples(_CSV_BYTES, _CSV_BYTES), min_size=1, max_size=30), cut=st.integers(0, 30))
def test_csv_round_trips_every_value(rows: list[tuple[bytes | None, bytes | None]], cut: int) -> None:
    """RFC 4180: quotes are doubled, also those of `{"$hex": ...}`. Null is an empty field, the empty string a pair of quotes."""
    keys, values = zip(*rows, strict=True)
    batch = pa.record_batch({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
    stream = io.BytesIO()
    with Sink(stream, "csv", batch.schema) as sink:
        sink.write(batch.slice(0, cut))
        sink.write(batch.slice(cut))
    lines = list(csv.reader(io.StringIO(stream.getvalue().decode(), newline=""), strict=True))
    assert lines[0] == ["key", "value"]
    assert lines[1:] == [[_csv_cell(key), _csv_cell(value)] for key, value in rows]


def _csv_cell(value: bytes | None) -> str:
    if value is None:
        return ""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return json.dumps({"$hex": value.hex()})


def test_csv_distinguishes_null_from_empty() -> None:
    batch = pa.record_batch({"key": pa.array([None, b"", b"\xff"], pa.binary()), "n": pa.array([1, 2, 3])})
    stream = io.BytesIO()
    with Sink(stream, "csv", batch.schema) as sink:
        sink.write(batch)
    assert stream.getvalue() == b'"key","n"\n,1\n"",2\n"{""$hex"": ""ff""}",3\n'
