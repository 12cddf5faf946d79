"""Accepted kinds of row data."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import duckdb
import pandas
import polars
import pyarrow as pa
import pytest

from logwright.codec.fault import DamageError, UsageError
from logwright.codec.table import TIMESTAMP, Column, Table
from logwright.writers import rows

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TABLE = Table(
    "rows",
    (
        Column("key", pa.binary(), ""),
        Column("offset", pa.int64(), ""),
        Column("timestamp", TIMESTAMP, ""),
        Column("headers", HEADERS, ""),
    ),
)
TABLE_OF_3 = pa.table({"offset": pa.array([1, 2, 3], pa.int64())})


def offsets(data: Any) -> list[int]:
    return [value for batch in rows.batches(data, TABLE) for value in batch.column("offset").to_pylist()]


@pytest.mark.parametrize(
    "data",
    [
        TABLE_OF_3,
        TABLE_OF_3.to_reader(),
        TABLE_OF_3.to_batches()[0],
        TABLE_OF_3.to_batches(max_chunksize=1),
        iter(TABLE_OF_3.to_batches(max_chunksize=2)),
        [TABLE_OF_3.slice(0, 1), TABLE_OF_3.slice(1)],
        TABLE_OF_3.to_pandas(),
        polars.from_arrow(TABLE_OF_3),
        TABLE_OF_3.to_pylist(),
        ({"offset": n} for n in (1, 2, 3)),
    ],
    ids=lambda data: type(data).__name__,
)
def test_all_kinds_of_row_data(data: Any) -> None:
    assert offsets(data) == [1, 2, 3]


def test_rows_may_be_a_duckdb_query() -> None:
    assert offsets(duckdb.sql("select unnest([1, 2, 3]) as offset")) == [1, 2, 3]


def test_rows_may_be_a_foreign_arrow_array_of_structs() -> None:
    class Foreign:
        def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
            return TABLE_OF_3.to_batches()[0].__arrow_c_array__(requested_schema)

    assert offsets(Foreign()) == [1, 2, 3]


def test_no_rows_have_the_schema_of_the_table() -> None:
    assert offsets([]) == []
    assert offsets(pandas.DataFrame({"offset": []})) == []
    assert rows.whole([], TABLE).schema == TABLE.schema()


def test_batches_are_bounded_and_nothing_is_read_ahead() -> None:
    asked = []

    def source() -> Iterator[pa.RecordBatch]:
        for number in range(3):
            asked.append(number)
            yield pa.record_batch({"offset": pa.array(range(rows.BATCH_ROWS + 5), pa.int64())})

    batches = rows.batches(source(), TABLE)
    assert [next(batches).num_rows, next(batches).num_rows] == [rows.BATCH_ROWS, 5]
    assert asked == [0]


def test_dicts_get_the_types_of_the_table() -> None:
    at = datetime(2025, 11, 20, tzinfo=UTC)
    (batch,) = rows.batches(
        [
            {"key": "text", "timestamp": 5, "headers": [("a", b"1"), {"key": "b", "value": None}], "more": 1},
            {"key": b"\xff", "timestamp": at, "headers": None},
            {"offset": 7, "headers": []},
        ],
        TABLE,
    )
    assert batch.schema.field("key").type == pa.binary()
    assert batch.column("key").to_pylist() == [b"text", b"\xff", None]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [5, int(at.timestamp() * 1000), None]
    assert batch.column("headers").to_pylist() == [
        [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
        None,
        [],
    ]
    assert batch.column("offset").to_pylist() == [None, None, 7]
    assert batch.column("more").to_pylist() == [1, None, None]


def test_wrong_value_is_named_by_row_and_column() -> None:
    good = [{"offset": 1}] * rows.BATCH_ROWS
    with pytest.raises(UsageError, match=f"row {rows.BATCH_ROWS + 1}, column 'offset': 'xxx"):
        list(rows.batches([*good, {"offset": 1}, {"offset": "x" * 99}], TABLE))
    with pytest.raises(UsageError, match="column 'more'"):
        list(rows.batches([{"more": 1}, {"more": "x"}], TABLE))
    with pytest.raises(UsageError, match="row 0, column 'offset'"):
        list(rows.batches([{"offset": 1 << 70}], TABLE))


@pytest.mark.parametrize("data", ["a/path", b"bytes", 7, None, {"offset": [1]}, [1, 2]])
def test_other_data_is_refused(data: Any) -> None:
    with pytest.raises(UsageError):
        list(rows.batches(data, TABLE))


def test_batches_of_one_table_must_have_one_schema() -> None:
    integers, other = pa.record_batch({"offset": [1]}), pa.record_batch({"offset": ["x"]})
    with pytest.raises(UsageError, match="different types"):
        rows.whole([integers, other], TABLE)
    assert rows.whole([integers, pa.record_batch({"key": ["x"]})], TABLE).num_rows == 2


def test_errors_of_the_source_are_unchanged() -> None:
    def source() -> Iterator[pa.RecordBatch]:
        yield from TABLE_OF_3.to_batches()
        raise DamageError("damaged")

    class Scan:
        """Like our own scan: a stream through the C interface with a reader on this side."""

        def to_reader(self) -> pa.RecordBatchReader:
            return pa.RecordBatchReader.from_batches(TABLE_OF_3.schema, source())

        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return self.to_reader().__arrow_c_stream__(requested_schema)

    with pytest.raises(DamageError):
        offsets(Scan())
    with pytest.raises(DamageError):
        offsets(Scan().to_reader())


def test_broken_stream_is_an_error() -> None:
    def source() -> Iterator[pa.RecordBatch]:
        yield from TABLE_OF_3.to_batches()
        raise pa.ArrowInvalid("cut short")

    with pytest.raises(UsageError, match="cut short"):
        offsets(pa.RecordBatchReader.from_batches(TABLE_OF_3.schema, source()))


def test_rows_of_another_table_are_refused() -> None:
    with pytest.raises(UsageError, match=r"unknown columns: keyy\. Did you mean 'key'"):
        list(rows.batches([{"keyy": b"1"}], TABLE))
    with pytest.raises(UsageError, match="Valid values: key, offset"):
        list(rows.batches(pa.table({"zzz": [1]}), TABLE))
    assert len(list(rows.batches([{"zzz": 1, "key": b"1"}], TABLE))) == 1


def test_column_too_large_in_total(monkeypatch: pytest.MonkeyPatch) -> None:
    real = pa.array

    def array(values: list[Any], type_: pa.DataType) -> Any:
        if len(values) > 1:
            raise pa.ArrowCapacityError("more than 2 GiB")
        return real(values, type_)

    monkeypatch.setattr(rows.pa, "array", array)
    with pytest.raises(UsageError, match="column 'key': more than 2 GiB"):
        list(rows.batches([{"key": b"1"}, {"key": b"2"}], TABLE))


def test_unknown_fields_of_structures_are_refused() -> None:
    with pytest.raises(
        UsageError, match=r"row 1, column 'headers': there is no field 'val'\. Did you mean 'value'"
    ):
        list(rows.batches([{"headers": []}, {"headers": [{"key": "h", "val": "x"}]}], TABLE))


@pytest.mark.parametrize("form", [dict, list])
@pytest.mark.parametrize(
    ("item", "message"), [({"x": 1, "y": 2}, "there is no field 'y'"), ({"x": 1.5}, "is not map<")]
)
def test_items_of_maps_are_checked_like_other_values(form: Any, item: dict[str, Any], message: str) -> None:
    table = Table(
        "rows", (Column("items", pa.map_(pa.string(), pa.struct([("x", pa.int32())])), "structures by name"),)
    )
    with pytest.raises(UsageError, match=f"row 0, column 'items': .*{message}"):
        list(rows.batches([{"items": form({"a": item}.items())}], table))


def test_fields_of_tuples_are_checked_like_other_values() -> None:
    table = Table("rows", (Column("point", pa.struct([("x", pa.int32()), ("y", pa.int32())]), "numbers"),))
    with pytest.raises(UsageError, match="row 0, column 'point'"):
        list(rows.batches([{"point": (1, 1.5)}], table))
