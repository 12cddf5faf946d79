"""Encoding: batches as Kafka's producer writes them, and files reencoded to the same bytes.  Invariants: the kernel writes what the
description packs; any chunking gives the same bytes; a stored payload is reused if and only if it decodes to the rows."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_log import DecodedLog, T, batch, compressed, context, encoded, pack_records, raw_batch, record

from logwright.codec.fault import UnsupportedError, UsageError
from logwright.codec.kafka.formats.log.codec import CODEC
from logwright.codec.kafka.formats.log.layout import COMPRESSION_NAMES, HEAD, HEAD_SIZE, RECORD, RECORD_BATCH
from logwright.codec.kafka.formats.log.write import BatchEncoder, BatchSettings
from logwright.codec.kafka.store.assemble import rebase
from logwright.codec.kernels.compress import compress, decompress
from logwright.codec.window import Zeros
from logwright.corpora.cases import cases

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("offset", pa.int64()),
    ]
)


def batches_of(data: bytes) -> list[dict[str, Any]]:
    out, at = [], 0
    while at < len(data):
        values, at = RECORD_BATCH.unpack(data, at, at + 12 + int.from_bytes(data[at + 8 : at + 12], "big"))
        assert RECORD_BATCH.check(data, at - 12 - values["batch_length"], at) == []
        out.append(values)
    return out


# Generated rows

TIMES = st.one_of(st.none(), st.integers(0, 5000).map(lambda ms: T + ms), st.integers(0, 253_402_300_799_000))
CONTENT = st.one_of(st.none(), st.binary(max_size=20), st.integers(50, 200).map(bytes))
ROWS = st.lists(
    st.tuples(
        CONTENT,
        CONTENT,
        st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=3),
        TIMES,
        st.integers(1, 3),
    ),
    max_size=25,
)


def table_of(rows: list[Any]) -> pa.Table:
    offsets = np.cumsum([0, *(row[4] for row in rows)])[: len(rows)]
    return pa.Table.from_pylist(
        [
            {
                "key": key,
                "value": value,
                "headers": [{"key": name, "value": content} for name, content in headers],
                "timestamp": None if time is None else datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(milliseconds=time),
                "offset": int(offset),
            }
            for (key, value, headers, time, _), offset in zip(rows, offsets, strict=True)
        ],
        SCHEMA,
    )  # fmt: skip


def described(table: pa.Table, batch_size: int) -> bytes:
    """Encode the file by the description, with batches cut by `MemoryRecordsBuilder.hasRoomFor`."""
    out, records, size, head = b"", [], 0, {}

    def close() -> bytes:
        last = {"last_offset_delta": records[-1]["offset_delta"], "records_count": len(records)}
        return RECORD_BATCH.pack({**head, **last, "records": records})

    for row in table.to_pylist():
        time = -1 if row["timestamp"] is None else round(row["timestamp"].timestamp() * 1000)
        while True:
            if not records:
                head = {
                    "base_offset": row["offset"],
                    "base_timestamp": time,
                    "max_timestamp": time,
                    "partition_leader_epoch": 0,
                }
                size = HEAD_SIZE
            headers = [{"key": header["key"].encode(), "value": header["value"]} for header in row["headers"]]
            fields = {
                "timestamp_delta": time - head["base_timestamp"],
                "offset_delta": row["offset"] - head["base_offset"],
                "key": row["key"],
                "value": row["value"],
                "headers": headers,
            }
            stored = len(RECORD.pack(fields))
            if not records or size + stored <= batch_size:
                break
            out += close()
            records = []
        records.append(fields)
        size += stored
        head["max_timestamp"] = max(head["max_timestamp"], time)
    return out + close() if records else out


@given(ROWS, st.sampled_from([0, 100, 300, 16384]))
def test_encoder_kernel_equals_the_description(rows: list[Any], batch_size: int) -> None:
    table = table_of(rows)
    assert encoded(table, batch_size=batch_size) == described(table, batch_size)


@given(ROWS, st.sampled_from(COMPRESSION_NAMES), st.sampled_from([0, 200, 16384]))
def test_rows_survive_encoding_and_decoding(rows: list[Any], codec: str, batch_size: int) -> None:
    table = table_of(rows)
    decoded_log = DecodedLog(encoded(table, compression_type=codec, batch_size=batch_size))
    assert not decoded_log.faults
    assert decoded_log.rows.select(SCHEMA.names).to_pylist() == table.to_pylist()
    assert decoded_log.encoded() == decoded_log.data


@given(ROWS, st.lists(st.integers(0, 25), max_size=4), st.sampled_from(["none", "lz4"]))
def test_any_chunking_gives_the_same_bytes(rows: list[Any], cuts: list[int], codec: str) -> None:
    table = table_of(rows)
    encoded_file = encoded(table, compression_type=codec, batch_size=300)
    edges = sorted({0, len(table), *(cut for cut in cuts if cut < len(table))})
    parts = [table.slice(a, b - a) for a, b in itertools.pairwise(edges)]
    if parts:
        assert encoded(pa.concat_tables(parts), compression_type=codec, batch_size=300) == encoded_file


def test_chunks_larger_than_the_queue_are_encoded_alike() -> None:
    batch = pa.record_batch({"value": [bytes(50_000)] * 3, "timestamp": pa.array([T] * 3)})
    encoder, other = (
        BatchEncoder(BatchSettings(batch_size=120_000)),
        BatchEncoder(BatchSettings(batch_size=120_000)),
    )
    parts = [encoder.add(batch), encoder.add(batch), encoder.add(batch), encoder.flush()]
    encoded_file = (
        other.add(pa.Table.from_batches([batch] * 3).combine_chunks().to_batches()[0]),
        other.flush(),
    )
    assert b"".join(part.data.tobytes() for part in parts) == b"".join(
        part.data.tobytes() for part in encoded_file
    )
    for part in parts:
        assert part.header["base_offset"].tolist() == [
            int.from_bytes(part.data[at : at + 8].tobytes(), "big") for at in part.start
        ]
    assert sum(int(part.header["records_count"].sum()) for part in parts) == 9
    assert len(encoder.flush().data) == 0


# Rows alone: optional columns and refused input


def test_row_of_key_and_value_is_enough() -> None:
    data = encoded([{"key": "k", "value": "v"}, {"key": None, "value": ""}])
    (packed_batch,) = batches_of(data)
    assert [(row["key"], row["value"]) for row in packed_batch["records"]] == [(b"k", b"v"), (None, b"")]
    assert (
        packed_batch["producer_id"],
        packed_batch["base_sequence"],
        packed_batch["attributes"],
        packed_batch["base_offset"],
    ) == (-1, -1, 0, 0)
    assert abs(packed_batch["max_timestamp"] / 1000 - datetime.datetime.now().timestamp()) < 60


def test_rows_without_known_columns_are_tombstones() -> None:
    (packed_batch,) = batches_of(encoded(pa.table({"other": [1, 2]})))
    assert [(row["key"], row["value"], row["headers"]) for row in packed_batch["records"]] == [
        (None, None, [])
    ] * 2


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.large_binary(), pa.binary(2), pa.string_view(), pa.binary_view(),
     pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)  # fmt: skip
def test_any_type_of_bytes_and_text(kind: pa.DataType) -> None:
    array = pa.array(["aa", None, "bb", "cc"], pa.string())
    array = array.cast(pa.binary()).cast(kind) if pa.types.is_fixed_size_binary(kind) else array.cast(kind)
    data = encoded(pa.table({"key": array, "value": array}).slice(1))
    assert DecodedLog(data).rows.column("key").to_pylist() == [None, b"bb", b"cc"]


@pytest.mark.parametrize(
    ("array", "times"),
    [
        (pa.array([T, None, T + 1]), [T, -1, T + 1]),
        (pa.array([T * 1000 + 999, None], pa.timestamp("us")), [T, -1]),
        (pa.array([T // 1000], pa.timestamp("s", tz="Europe/Berlin")), [T]),
        (pa.array([T * 1_000_000 + 1], pa.timestamp("ns", tz="UTC")), [T]),
        (pa.array([datetime.date(1970, 1, 2)]), [86_400_000]),
        (pa.nulls(2), [-1, -1]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_timestamps_of_any_unit_are_written_as_milliseconds(array: pa.Array, times: list[int]) -> None:
    assert (
        DecodedLog(encoded(pa.table({"timestamp": array}))).rows.column("timestamp_ms").to_pylist() == times
    )


def test_raw_timestamp_is_used_if_the_other_is_null() -> None:
    far = 1 << 60
    table = pa.table({"timestamp": pa.array([None, T * 1000], pa.timestamp("us")), "timestamp_ms": [far, 5]})
    assert DecodedLog(encoded(table)).rows.column("timestamp_ms").to_pylist() == [far, T]
    assert DecodedLog(encoded(pa.table({"timestamp_ms": [far]}))).rows.column("timestamp_ms").to_pylist() == [
        far
    ]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[("a", b"1"), ("a", None)], None, [], [("", b"")]], pa.map_(pa.string(), pa.binary())),
        pa.array([[{"key": "a", "value": "1"}, {"key": "a", "value": None}], None, [], [{"key": "", "value": ""}]],
                 pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.string())]))),
        pa.array([[{"value": b"1", "key": b"a"}, {"value": None, "key": b"a"}], None, [], [{"value": b"", "key": b""}]]),
    ],
    ids=["map", "large list", "the other way round"],
)  # fmt: skip
def test_headers_of_any_arrow_type_are_written(array: pa.Array) -> None:
    expected = [
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        [],
        [],
        [{"key": "", "value": b""}],
    ]
    assert DecodedLog(encoded(pa.table({"headers": array}))).rows.column("headers").to_pylist() == expected
    sliced = pa.table({"headers": array}).slice(1)
    assert DecodedLog(encoded(sliced)).rows.column("headers").to_pylist() == expected[1:]


def test_headers_under_a_null_list_are_not_written() -> None:
    entries = pa.StructArray.from_arrays([pa.array(["a", "b"]), pa.array([b"1", b"2"])], ["key", "value"])
    array = pa.ListArray.from_arrays(pa.array([0, 1, 2]), entries, mask=pa.array([True, False]))
    assert DecodedLog(encoded(pa.table({"headers": array}))).rows.column("headers").to_pylist() == [
        [],
        [{"key": "b", "value": b"2"}],
    ]


def test_raw_header_keys_are_used_while_they_decode_to_the_text() -> None:
    raw = [{"key": b"\xff", "value": b"1"}]
    kind = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    for text, stored in (("\ufffd", b"\xff"), ("x", b"x")):
        table = pa.table(
            {
                "headers": pa.array([[{"key": text, "value": b"1"}], []], HEADERS),
                "headers_raw": pa.array([raw, None], kind),
            }
        )
        (packed_batch,) = batches_of(encoded(table))
        assert packed_batch["records"][0]["headers"] == [{"key": stored, "value": b"1"}]


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (pa.table({"key": [1]}), "column 'key' has type int64, expected bytes or text"),
        (pa.table({"value": [1.5]}), "column 'value' has type double"),
        (pa.table({"headers": [["a"]]}), "column 'headers' has type list<item: string>"),
        (pa.table({"headers": ["a"]}), "column 'headers' has type string"),
        (pa.table({"headers": pa.array([[{"key": None, "value": b""}]], HEADERS)}), "a key is null"),
        (pa.table({"headers": pa.array([[None]], HEADERS)}), "an entry is null"),
        (pa.table({"timestamp": ["today"]}), "column 'timestamp' has type string"),
        (pa.table({"timestamp": [T, -2]}), "row 1: timestamp -2 ms is before 1970"),
        (pa.table({"timestampType": [2]}), "0 (CreateTime) or 1 (LogAppendTime)"),
        (pa.table({"offset": [5, 5]}), "row 1: offset 5 is not above 5"),
        (pa.table({"offset": [3, None]}), "column 'offset' has nulls"),
        (pa.table({"offset": ["1"]}), "column 'offset' has type string"),
        (pa.table({"is_control": [False, True]}), "row 1 is a control record"),
    ],
    ids=lambda value: "" if isinstance(value, pa.Table) else value,
)
def test_invalid_rows_are_refused(table: pa.Table, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        encoded(table)
    assert says in str(raised.value)


def test_refused_rows_leave_the_encoder_unchanged() -> None:
    encoder = BatchEncoder(BatchSettings())
    encoder.add(pa.record_batch({"value": [b"a"], "timestamp": [T]}))
    with pytest.raises(UsageError, match="row 1: timestamp -5"):
        encoder.add(pa.record_batch({"value": [b"b"], "timestamp": [-5]}))
    with pytest.raises(UsageError, match="offset 0 is not above 0"):
        encoder.add(pa.record_batch({"value": [b"b"]}), first_offset=0)
    encoder.add(pa.record_batch({"value": [b"c"], "timestamp": [T]}))
    assert DecodedLog(encoder.flush().data.tobytes()).rows.column("value").to_pylist() == [b"a", b"c"]


def test_offsets_are_kept_or_counted() -> None:
    kept = encoded(pa.table({"offset": [4, 9, 1 << 40, (1 << 40) + 1]}))
    assert DecodedLog(kept, name="x.log").offsets == [4, 9, 1 << 40, (1 << 40) + 1]
    assert [packed_batch["base_offset"] for packed_batch in batches_of(kept)] == [4, 1 << 40], (
        "deltas have 32 bits"
    )
    encoder = BatchEncoder(BatchSettings(batch_size=0))
    batch = pa.record_batch({"value": [b"a", b"b"]})
    parts = [encoder.add(batch, 7), encoder.add(batch), encoder.add(batch, 20), encoder.flush()]
    offsets = [offset for part in parts for offset in part.header["base_offset"].tolist()]
    assert offsets == [7, 8, 9, 10, 20, 21]
    assert encoder.next_offset == 22


def test_append_time_is_one_per_batch() -> None:
    table = pa.table(
        {
            "timestamp_ms": [5, 5, 6, 6, 6],
            "timestampType": pa.array([1, 1, 1, 0, None], pa.int32()),
            "create_timestamp_ms": [1, 2, 3, 99, None],
        }
    )
    packed = batches_of(encoded(table))
    columns = ("attributes", "base_timestamp", "max_timestamp", "records_count")
    assert [tuple(header[name] for name in columns) for header in packed] == [
        (8, 1, 5, 2), (8, 3, 6, 1), (0, 6, 6, 2),
    ]  # fmt: skip
    decoded_log = DecodedLog(encoded(table)).rows
    assert decoded_log.column("timestamp_ms").to_pylist() == [5, 5, 6, 6, 6]
    assert decoded_log.column("create_timestamp_ms").to_pylist() == [1, 2, 3, 6, 6]
    (all_append,) = batches_of(encoded(pa.table({"timestamp": [T]}), message_timestamp_type="LogAppendTime"))
    assert all_append["attributes"] == 8


def test_writer_options_set_level_codec_and_leader_epoch() -> None:
    rows = pa.table({"value": [b"a" * 1000], "timestamp": [T]})
    sizes = {
        level: len(encoded(rows, compression_type="gzip", compression_gzip_level=level)) for level in (1, 9)
    }
    assert all(size < 200 for size in sizes.values())
    assert encoded(rows, compression_type="uncompressed") == encoded(rows)
    (packed_batch,) = batches_of(encoded(rows, partition_leader_epoch=7))
    assert packed_batch["partition_leader_epoch"] == 7
    assert BatchSettings.of(context(options={"compression.type": "zstd"}).options).level == 3
    assert BatchSettings.of(context(options={"compression.type": "snappy"}).options).level is None


def test_rebase_changes_offsets_and_epoch_only() -> None:
    data = np.frombuffer(batch(0) + batch(1) + batch(2), np.uint8).copy()
    epoch = int.from_bytes(batch(0)[12:16], "big", signed=True)
    assert rebase(data, 1000, epoch) == len(data)
    assert DecodedLog(data.tobytes(), name="x.log").offsets == [1000, 1001, 1002]
    assert data.tobytes() == batch(1000) + batch(1001) + batch(1002)
    assert rebase(np.zeros(100, np.uint8), 1, 0) == -1, "a batch of no length is no endless loop"


def test_bytes_of_kafkas_own_builder() -> None:
    """The first batch of the worked example, which Kafka's own builder creates."""
    hexed = (
        "0000000000000000 00000047 00000000 02 11b537f4 0000 00000001 0000018bcfe56800 0000018bcfe56805 ffffffffffffffff "
        "ffff ffffffff 00000002 1c0000000 46b310476310202680278 0c000a02010000"
    )
    rows = [
        {"key": b"k1", "value": b"v1", "headers": [{"key": "h", "value": b"x"}], "timestamp": T},
        {"key": None, "value": b"", "headers": [], "timestamp": T + 5},
    ]
    assert encoded(rows) == bytes.fromhex(hexed.replace(" ", ""))


# Reencoding

LOGS = sorted(path for case in cases("kafka").values() for path in case.data.rglob("*.log"))


def golden(path: Any) -> DecodedLog | None:
    data = path.read_bytes()
    try:
        return DecodedLog(data, name=path.name, directory=path.parent.name)
    except UnsupportedError:
        return None  # Magic 0 or 1.


@pytest.mark.extended
def test_golden_logs_reencode_byte_for_byte() -> None:
    wrong, read = [], 0
    for path in LOGS:
        decoded_log = golden(path)
        if decoded_log is not None:
            read += 1
            if decoded_log.encoded() != decoded_log.data:
                wrong.append(str(path.relative_to(path.parents[3])))
    assert wrong == []
    assert read > 500


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_edit_in_a_compressed_batch_is_written(codec: str) -> None:
    plain = pack_records([record(i, value=b"v%d" % i) for i in range(3)])
    decoded_log = DecodedLog(
        batch(0) + compressed(1, compress(codec, plain), codec, 3, max_timestamp=-1) + batch(4)
    )
    rows = decoded_log.rows.set_column(
        1, "value", pa.array([b"v", b"v0", b"edited", b"v2", b"v"], pa.binary())
    )
    decoded = DecodedLog(decoded_log.encoded(rows))
    assert decoded.rows.column("value").to_pylist() == [b"v", b"v0", b"edited", b"v2", b"v"]
    assert decoded.frames.column("compression").to_pylist() == ["none", codec, "none"]
    # Payloads of other batches stay.
    assert decoded.data.startswith(batch(0))
    assert decoded.data.endswith(batch(4))


EDITS: dict[str, Any] = {
    "key": b"edited",
    "headers": [{"key": "e", "value": None}],
    "offset": 3,
    "timestamp": datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
}


@pytest.mark.parametrize("stored", ["compressed", "over-long", "plain"])
@pytest.mark.parametrize("column", EDITS)
def test_changed_core_columns_override_stored_bytes(column: str, stored: str) -> None:
    records = [record(0), record(2, headers=[("h", b"1")])]
    plain = pack_records(records)
    if stored == "compressed":
        data = compressed(
            1, compress("lz4", plain), "lz4", 2, last_offset_delta=2, base_timestamp=T, max_timestamp=T
        )
    elif stored == "over-long":
        longer = bytes([plain[0] | 0x80, 0]) + plain[1:]
        data = raw_batch(1, longer, 2, last_offset_delta=2, base_timestamp=T, max_timestamp=T)
    else:
        data = batch(1, records, last_offset_delta=2)
    decoded_log = DecodedLog(batch(0) + data)
    assert decoded_log.encoded() == decoded_log.data
    values = decoded_log.rows.column(column).to_pylist()
    values[-1] = EDITS[column] if column != "offset" else 2
    at = decoded_log.rows.schema.get_field_index(column)
    edited = decoded_log.rows.set_column(
        at, decoded_log.rows.schema.field(at), pa.array(values, decoded_log.rows.schema.field(at).type)
    )
    decoded = DecodedLog(decoded_log.encoded(edited))
    assert decoded.rows.column(column).to_pylist() == values
    others = [name for name in ("key", "value", "offset", "headers") if name != column]
    assert decoded.rows.select(others).to_pylist() == decoded_log.rows.select(others).to_pylist()


def test_removed_and_reordered_rows() -> None:
    decoded_log = DecodedLog(batch(0, [record(i, b"%d" % i) for i in range(3)]) + batch(3) + batch(4))
    fewer = DecodedLog(
        decoded_log.encoded(decoded_log.rows.filter(pc.not_equal(decoded_log.rows.column("offset"), 1)))
    )
    assert fewer.offsets == [0, 2, 3, 4]
    assert fewer.frames.column("records_count").to_pylist() == [2, 1, 1]
    empty = DecodedLog(
        decoded_log.encoded(decoded_log.rows.filter(pc.not_equal(decoded_log.rows.column("offset"), 3)))
    )
    assert empty.frames.column("records_count").to_pylist() == [3, 0, 1]
    mixed = decoded_log.rows.take(pa.array([4, 0, 1, 2, 3]))
    assert decoded_log.encoded(mixed) == decoded_log.data


def test_rows_find_their_frames_by_position_or_offset() -> None:
    decoded_log = DecodedLog(batch(0, [record(0), record(1)]) + batch(2))
    assert decoded_log.encoded(decoded_log.rows.drop_columns(["position"])) == decoded_log.data
    with pytest.raises(UsageError, match="rows have no positions"):
        decoded_log.encoded(decoded_log.rows.drop_columns(["position", "offset"]))
    with pytest.raises(UsageError, match="row 2 belongs to no frame"):
        decoded_log.encoded(decoded_log.rows.set_column(8, "position", pa.array([0, 0, 7])))
    with pytest.raises(UsageError, match="needs a column 'base_offset'"):
        decoded_log.encoded(frames=decoded_log.frames.drop_columns(["base_offset"]))


def test_core_columns_are_enough_for_plain_batches() -> None:
    decoded_log = DecodedLog(batch(0, [record(0), record(1)]) + compressed(2, compress("zstd", pack_records([record(0)])), "zstd", 1,
                                                            base_timestamp=T, max_timestamp=T))  # fmt: skip
    core = decoded_log.frames.select(list(CODEC.tables["frames"].names()))
    rows = decoded_log.rows.select(list(CODEC.tables["rows"].names()))
    decoded = DecodedLog(decoded_log.encoded(rows, core))
    assert decoded.rows.drop_columns(["position"]).equals(decoded_log.rows.drop_columns(["position"]))
    # With the payload, fields that the rows do not hold are unchanged.
    assert decoded_log.encoded(rows) == decoded_log.data


def test_append_time_of_a_batch_is_that_of_its_rows() -> None:
    decoded_log = DecodedLog(
        batch(0, [record(0), record(1, timestamp_delta=3)], attributes=8, max_timestamp=T + 9)
    )
    assert decoded_log.encoded() == decoded_log.data
    without = decoded_log.rows.drop_columns(["timestamp", "timestamp_ms", "create_timestamp_ms"])
    assert DecodedLog(decoded_log.encoded(without)).rows.column("timestamp_ms").to_pylist() == [T + 9] * 2
    later = decoded_log.rows.set_column(
        5, "timestamp", pa.array([T + 10] * 2).cast(pa.timestamp("ms", tz="UTC"))
    )
    assert DecodedLog(decoded_log.encoded(later)).rows.column("timestamp_ms").to_pylist() == [T + 10] * 2
    differ = decoded_log.rows.set_column(
        5, "timestamp", pa.array([T, T + 1]).cast(pa.timestamp("ms", tz="UTC"))
    )
    with pytest.raises(UsageError, match="have different timestamps"):
        decoded_log.encoded(differ)


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("compression", "brotli", "expected one of none, gzip"),
        ("base_sequence", 1 << 40, "base_sequence 1099511627776 does not fit"),
        ("base_timestamp", "x", "expected integers"),
    ],
)
def test_invalid_frames_are_refused(column: str, value: Any, says: str) -> None:
    decoded_log = DecodedLog(batch(0))
    at = decoded_log.frames.schema.get_field_index(column)
    with pytest.raises(UsageError) as raised:
        decoded_log.encoded(frames=decoded_log.frames.set_column(at, column, pa.array([value])))
    assert says in str(raised.value)


def test_core_columns_of_frames_win() -> None:
    decoded_log = DecodedLog(batch(0, [record(0)]))
    changes = {
        "compression": "gzip", "is_transactional": True, "is_control": True, "timestamp_type": 1, "producer_id": 9,
        "partition_leader_epoch": 5, "delete_horizon_ms": 3, "last_offset": 4, "base_sequence": 1, "producer_epoch": 2,
    }  # fmt: skip
    frames = decoded_log.frames
    for name, value in changes.items():
        at = frames.schema.get_field_index(name)
        frames = frames.set_column(
            at, frames.schema.field(at), pa.array([value], frames.schema.field(at).type)
        )
    data = decoded_log.encoded(frames=frames)
    head = np.frombuffer(data[:HEAD_SIZE], HEAD)[0]
    assert head["attributes"] == 0x79
    assert [int(head[name]) for name in ("producer_id", "partition_leader_epoch", "last_offset_delta")] == [
        9,
        5,
        4,
    ]
    assert decompress("gzip", data[HEAD_SIZE:], limit=1000).tobytes() == pack_records([record(0)])


def test_offset_too_far_from_its_frame_is_refused() -> None:
    decoded_log = DecodedLog(batch(0))
    with pytest.raises(UsageError, match="away from the base_offset of its frame"):
        decoded_log.encoded(decoded_log.rows.set_column(4, "offset", pa.array([1 << 40])))


def test_trailing_bytes_and_zeros_are_restored() -> None:
    for tail in (b"", b"torn", bytes(3_000_000), b"torn" + bytes(5)):
        decoded_log = DecodedLog(batch(0) + tail)
        chunks = list(
            CODEC.encode(decoded_log.rows, decoded_log.frames, decoded_log.file, decoded_log.context)
        )
        assert b"".join(bytes(chunk) for chunk in chunks) == decoded_log.data
        assert max(len(chunk) for chunk in chunks if not isinstance(chunk, Zeros)) <= 1 << 20
