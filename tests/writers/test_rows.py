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

from logwright.codec import registry
from logwright.codec.fault import DamageError, UsageError
from logwright.codec.table import TIMESTAMP, Column, Table
from logwright.writers import rows
from logwright.writers.write import taken_table

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


@pytest.mark.parametrize(
    "values", [pa.string(), pa.large_string(), pa.string_view(), pa.binary_view()], ids=str
)
def test_encoded_columns_are_decoded(values: pa.DataType) -> None:
    keys = pa.array(["a", "b", "a"]).cast(values)
    encoded = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.uint8()), keys)
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([7, 8]))
    data = pa.table({"key": encoded, "offset": runs, "more": pa.array([1, 1, 2]).dictionary_encode()})
    (batch,) = rows.batches(data.slice(1), TABLE)
    assert batch.to_pydict() == {"key": [_raw("b", values), None], "offset": [7, 8], "more": [1, 2]}


def _raw(text: str, kind: pa.DataType) -> str | bytes:
    return text.encode() if kind == pa.binary_view() else text


def test_categorical_columns_of_polars_are_decoded() -> None:
    for kind in (polars.Categorical, polars.Enum(["x", "y"])):
        (batch,) = rows.batches(polars.DataFrame({"key": polars.Series(["x", "y"], dtype=kind)}), TABLE)
        assert batch.column("key").to_pylist() == ["x", "y"]


def test_encoded_column_that_cannot_be_decoded_is_refused() -> None:
    beyond = pa.DictionaryArray.from_arrays(pa.array([0, 5], pa.int8()), pa.array(["x", "y"]), safe=False)
    with pytest.raises(UsageError, match="column 'key': cannot decode dictionary"):
        list(rows.batches(pa.table({"key": beyond}), TABLE))


@pytest.mark.parametrize("table", [TABLE, None])
def test_columns_of_the_same_name_are_refused(table: Table | None) -> None:
    data = pa.table([pa.array([1]), pa.array([2])], ["key", "key"])
    with pytest.raises(UsageError, match="there are 2 columns 'key'"):
        list(rows.batches(data, table))


def test_rows_of_damaged_regions_are_refused() -> None:
    places = pa.array([None, None, 327, None], pa.int64())
    data = pa.table({"key": ["a", "b", None, "c"], "_corrupt_offset": places})
    with pytest.raises(UsageError, match="row 2 stands for the damaged region at byte 327"):
        list(rows.batches(data.to_batches(max_chunksize=2), TABLE))
    assert rows.whole(data, TABLE, damaged=True).num_rows == 4
    assert rows.whole(data.slice(0, 2), TABLE).num_rows == 2


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
    integers, other = pa.record_batch({"headers": [1]}), pa.record_batch({"headers": ["x"]})
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


def test_empty_dicts_are_no_rows() -> None:
    with pytest.raises(UsageError, match="row 0 is an empty dict"):
        list(rows.batches([{}, {}], TABLE))


def test_rows_of_another_table_are_refused() -> None:
    with pytest.raises(UsageError, match=r"no core column among the columns keyy\. Did you mean 'key'"):
        list(rows.batches([{"keyy": b"1"}], TABLE))
    with pytest.raises(UsageError, match="Valid values: key, offset"):
        list(rows.batches(pa.table({"zzz": [1]}), TABLE))
    with pytest.raises(UsageError, match="no core column among the columns version"):
        list(
            rows.batches(
                [{"version": 1, "path": "/", "data": b"x"}],
                taken_table(registry.get_layout("kafka.partition"), {}),
            )
        )
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
