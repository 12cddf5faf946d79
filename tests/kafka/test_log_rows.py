"""Rows: each column compared with the description, skipped rows, and undecodable records.

Invariant: a batch with an undecodable record gives no rows and one fault that names the record.

"""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_log import DecodedLog, T, batch, compressed, context, pack_records, raw_batch, record, window

from logwright.codec.describe import VARINT, VARLONG
from logwright.codec.fault import Kind
from logwright.codec.java import java_string
from logwright.codec.kafka.formats.log import records
from logwright.codec.kafka.formats.log.codec import CODEC
from logwright.codec.kafka.formats.log.java_streams import INVALID_RECORD
from logwright.codec.kafka.formats.log.markers import failure, markers
from logwright.codec.kafka.formats.log.tables import Aborted
from logwright.codec.kafka.formats.log.varints import varint, varlong
from logwright.codec.kernels.compress import compress


def row(data: bytes, **hints: Any) -> dict[str, Any]:
    (row,) = DecodedLog(data, **hints).rows.to_pylist()
    return row  # type: ignore[no-any-return]


# Columns


def test_all_columns_of_a_plain_record() -> None:
    data = batch(40, [record(2, b"k", b"v", timestamp_delta=5, attributes=-3, headers=[("h", b"x"), ("h", None), ("", b"")])],
                 last_offset_delta=2, max_timestamp=T + 5, producer_id=7, producer_epoch=3, base_sequence=9,
                 attributes=0x10, partition_leader_epoch=4)  # fmt: skip
    decoded_log = row(data)
    assert decoded_log.pop("timestamp").timestamp() * 1000 == T + 5
    assert decoded_log == {
        "key": b"k", "value": b"v", "topic": "orders", "partition": 0, "offset": 42, "timestampType": 0,
        "headers": [{"key": "h", "value": b"x"}, {"key": "h", "value": None}, {"key": "", "value": b""}],
        "position": 0, "segment": 0, "timestamp_ms": T + 5, "create_timestamp_ms": T + 5, "attributes": -3,
        "headers_raw": None, "leader_epoch": 4, "producer_id": 7, "producer_epoch": 3, "sequence": 11,
        "is_transactional": True, "is_control": False, "control_type": None, "magic": 2, "compression": "none",
    }  # fmt: skip


@pytest.mark.parametrize("key", [None, b"", b"k"])
@pytest.mark.parametrize("value", [None, b"", b"v" * 300])
def test_null_and_empty_differ(key: bytes | None, value: bytes | None) -> None:
    decoded_log = DecodedLog(batch(0, [record(0, b"x", b"y"), record(1, key, value), record(2)])).rows
    assert decoded_log.column("key").to_pylist() == [b"x", key, b"k"]
    assert decoded_log.column("value").to_pylist() == [b"y", value, b"v"]


def test_append_time_applies_to_all_and_the_producer_time_is_kept() -> None:
    decoded_log = DecodedLog(
        batch(0, [record(0), record(1, timestamp_delta=-7)], attributes=0x08, max_timestamp=T + 99)
    ).rows
    assert decoded_log.column("timestamp_ms").to_pylist() == [T + 99] * 2
    assert decoded_log.column("create_timestamp_ms").to_pylist() == [T, T - 7]
    assert decoded_log.column("timestampType").to_pylist() == [1, 1]


def test_missing_timestamp_is_null_and_kept_raw() -> None:
    decoded_log = DecodedLog(
        batch(0, [record(0), record(1, timestamp_delta=1)], base_timestamp=-1, max_timestamp=0)
    ).rows
    assert decoded_log.column("timestamp").null_count == 1
    assert decoded_log.column("timestamp")[0].as_py() is None
    assert decoded_log.column("timestamp_ms").to_pylist() == [-1, 0]


def test_timestamps_wrap_around_as_in_java() -> None:
    top = (1 << 63) - 1
    decoded_log = DecodedLog(
        batch(0, [record(0, timestamp_delta=1), record(1, timestamp_delta=-1)], base_timestamp=top)
    ).rows
    assert decoded_log.column("timestamp_ms").to_pylist() == [-(1 << 63), top - 1]
    low = DecodedLog(batch(0, [record(0, timestamp_delta=-1)], base_timestamp=-(1 << 63))).rows
    assert low.column("timestamp_ms").to_pylist() == [top]


def test_sequence_numbers_wrap_to_0() -> None:
    decoded_log = DecodedLog(
        batch(5, [record(i) for i in range(4)], producer_id=1, producer_epoch=0, base_sequence=(1 << 31) - 2)
    )
    assert decoded_log.rows.column("sequence").to_pylist() == [(1 << 31) - 2, (1 << 31) - 1, 0, 1]


def test_different_batches_share_a_record_batch() -> None:
    decoded_log = DecodedLog(
        batch(0, attributes=0x10, producer_id=5)
        + batch(1, partition_leader_epoch=3)
        + batch(2, attributes=0x08)
    )
    assert decoded_log.rows.column("producer_id").to_pylist() == [5, -1, -1]
    assert decoded_log.rows.column("leader_epoch").to_pylist() == [0, 3, 0]
    assert decoded_log.rows.column("is_transactional").to_pylist() == [True, False, False]
    assert decoded_log.rows.column("timestampType").to_pylist() == [0, 0, 1]


@pytest.mark.parametrize(
    "columns", [(), ("offset",), ("value",), ("headers_raw", "key"), ("control_type",), ("topic",)]
)
def test_only_requested_columns_are_decoded(columns: tuple[str, ...]) -> None:
    data = batch(0, [record(0, headers=[("h", b"")]), record(1)]) + batch(2)
    frames = CODEC.scan(window(data), 0, context())
    (decoded,) = CODEC.decode(window(data), frames, "rows", columns, context())
    assert decoded.batch.schema == CODEC.tables["rows"].schema(columns)
    assert decoded.batch.num_rows == 3
    rows = DecodedLog(data).rows
    for name in columns:
        assert decoded.batch.column(name).to_pylist() == rows.column(name).to_pylist()


# Header keys


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"plain", "plain"),
        ("käse".encode(), "käse"),
        (b"\xff", "\ufffd"),
        (b"a\xc3", "a\ufffd"),
        (b"\xe2\x82", "\ufffd"),
        (b"\xe2\x82x", "\ufffdx"),
        (b"\xe0\x80\x80", "\ufffd\ufffd\ufffd"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0x", "\ufffdx"),
        (b"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\xf5\x80", "\ufffd\ufffd"),
    ],
)
def test_header_keys_are_decoded_as_by_java(key: bytes, text: str) -> None:
    """Expected values: `new String(key, UTF_8)` of a JDK 17."""
    assert java_string(key) == text
    utf8 = pack_records([record(headers=[("xxxxx", b"1")])])
    size = VARINT.pack(len(key), {})
    stored = utf8.replace(b"\x0axxxxx", size + key)
    stored = VARINT.pack(len(stored) - 1, {}) + stored[1:]
    decoded_log = DecodedLog(batch(0) + raw_batch(1, stored, 1) + batch(2, [record(headers=[("a", b"2")])]))
    assert decoded_log.rows.column("headers").to_pylist() == [
        [],
        [{"key": text, "value": b"1"}],
        [{"key": "a", "value": b"2"}],
    ]
    raw = [{"key": key, "value": b"1"}] if java_string(key).encode() != key else None
    assert decoded_log.rows.column("headers_raw").to_pylist() == [None, raw, None]
    assert decoded_log.encoded() == decoded_log.data


# Skipped rows


def test_offset_range_selects_rows_and_skips_other_batches() -> None:
    data = batch(0, [record(i) for i in range(4)]) + batch(4, [record(i) for i in range(4)]) + batch(8)
    assert DecodedLog(data, start_offset=2, end_offset=6).offsets == [2, 3, 4, 5]
    assert DecodedLog(data, start_offset=9).offsets == []
    assert DecodedLog(data, start_offset=6).rows.column("key").to_pylist() == [b"k"] * 3
    # Batches outside of the range are not decoded.
    bad = raw_batch(9, b"\xff" * 20, 1)
    assert not DecodedLog(data + bad, end_offset=9).faults


def control(base: int, key: bytes | None, producer: int = 1, value: bytes | None = b"\0\0\0\0\0\7") -> bytes:
    return batch(base, [record(0, key, value)], attributes=0x30, producer_id=producer, producer_epoch=0)


def test_control_records_show_their_type_and_can_be_left_out() -> None:
    keys = [b"\0\0\0\0", b"\0\0\0\1", b"\0\0\0\2", b"\0\0\0\x2a", b"\0\0", None, b"\xff\0\0\0"]
    data = b"".join(control(i, key) for i, key in enumerate(keys)) + batch(len(keys))
    decoded_log = DecodedLog(data)
    names = ["ABORT", "COMMIT", "LEADER_CHANGE", "UNKNOWN", "MALFORMED", "MALFORMED", "MALFORMED", None]
    assert decoded_log.rows.column("control_type").to_pylist() == names
    assert DecodedLog(data, control=False).offsets == [len(keys)]
    frames = CODEC.scan(window(data), 0, context())
    parsed_markers = markers(window(data), frames)
    assert parsed_markers["type"].tolist()[:4] == [0, 1, 2, 42]
    assert [failure(kind) for kind in parsed_markers["type"].tolist()[4:]] == [
        INVALID_RECORD,
        "java.lang.NullPointerException",
        INVALID_RECORD,
    ]
    assert parsed_markers["coordinator_epoch"].tolist() == [7, 7, -1, -1, -1, -1, -1]
    assert parsed_markers["frame"].tolist() == parsed_markers["offset"].tolist() == list(range(7))


def test_markers_without_a_producer_are_ignored_and_bad_ones_malformed() -> None:
    data = control(0, b"\0\0\0\1", producer=-1) + control(1, b"\0\0\0\0", value=b"\0")
    data += raw_batch(2, b"\xff" * 12, 1, attributes=0x30, producer_id=4)
    data += compressed(3, compress("gzip", pack_records([record(0, b"\0\0\0\1", b"\0\0\0\0\0\1")])), "gzip", 1,
                       attributes=0x31, producer_id=4)  # fmt: skip
    frames = CODEC.scan(window(data), 0, context())
    parsed_markers = markers(window(data), frames)
    assert parsed_markers["frame"].tolist() == [1, 2, 3]
    # Like a broker: it parses the second record and fails to read the next batch.
    assert [failure(kind) for kind in parsed_markers["type"].tolist()] == [
        "java.nio.BufferUnderflowException",
        "java.lang.IllegalArgumentException",
        None,
    ]
    assert parsed_markers["type"].tolist()[2] == 1


def test_aborted_transactions_are_skipped() -> None:
    def data(base: int, producer: int, attributes: int = 0x10) -> bytes:
        return batch(base, attributes=attributes, producer_id=producer, producer_epoch=0)

    log = (
        data(0, 1) + data(1, 2) + data(2, 1) + control(3, b"\0\0\0\0") + data(4, 1) + data(5, 1, 0) + batch(6)
    )
    aborted = ((1, 0, 3), (2, 9, 10))
    assert DecodedLog(log, aborted=aborted).offsets == [1, 3, 4, 5, 6]
    assert DecodedLog(log, aborted=aborted, control=False).offsets == [1, 4, 5, 6]
    assert not Aborted()


# Undecodable records


def only(records_: bytes, count: int = 1, **fields: Any) -> DecodedLog:
    return DecodedLog(raw_batch(0, records_, count, **fields) + batch(9))


GOOD = pack_records([record(0)])


def pack_fields(*fields: bytes) -> bytes:
    body = b"".join(fields)
    return VARINT.pack(len(body), {}) + body


ZERO = b"\0"
BAD = {
    "negative count": (GOOD, -1, records.BAD_COUNT),
    "more records than bytes": (GOOD, 1000, records.BAD_SECTION),
    "one record more": (GOOD * 2, 3, records.BAD_SECTION),
    "no count, but records": (GOOD, 0, records.BAD_TAIL),
    "bytes after the last": (GOOD + b"\0" * 9, 1, records.BAD_TAIL),
    "negative length": (b"\x01" * 8, 1, records.BAD_LENGTH),
    "length of 5": (VARINT.pack(5, {}) + b"\0" * 9, 1, records.BAD_LENGTH),
    "length beyond": (VARINT.pack(99, {}) + b"\0" * 9, 1, records.BAD_LENGTH),
    "length overlong": (b"\xff" * 9, 1, records.BAD_VARINT),
    "time overlong": (pack_fields(ZERO, b"\xff" * 12), 1, records.BAD_VARINT),
    "offset overlong": (pack_fields(ZERO, ZERO, b"\xff" * 12), 1, records.BAD_VARINT),
    "key length overlong": (pack_fields(ZERO, ZERO, ZERO, b"\xff" * 12), 1, records.BAD_VARINT),
    "key beyond": (pack_fields(ZERO, ZERO, ZERO, b"\x10", b"k", ZERO, ZERO), 1, records.BAD_KEY),
    "value beyond": (pack_fields(ZERO, ZERO, ZERO, ZERO, b"\x10", b"v", ZERO), 1, records.BAD_VALUE),
    "value length overlong": (pack_fields(ZERO, ZERO, ZERO, ZERO, b"\xff" * 12), 1, records.BAD_VARINT),
    "no value": (pack_fields(ZERO, ZERO, ZERO, b"\x04", b"kk"), 1, records.BAD_VARINT),
    "no headers": (pack_fields(ZERO, ZERO, ZERO, ZERO, b"\x02", b"v"), 1, records.BAD_VARINT),
    "negative headers": (pack_fields(ZERO, ZERO, ZERO, ZERO, ZERO, b"\x01"), 1, records.BAD_HEADERS),
    "many headers": (pack_fields(ZERO, ZERO, ZERO, ZERO, ZERO, b"\x7e", b"\0" * 9), 1, records.BAD_HEADERS),
    "header key null": (
        pack_fields(ZERO, ZERO, ZERO, ZERO, ZERO, b"\x02\x01\x00"),
        1,
        records.BAD_HEADER_KEY,
    ),
    "header key beyond": (
        pack_fields(ZERO, ZERO, ZERO, ZERO, ZERO, b"\x02\x7e\x00"),
        1,
        records.BAD_HEADER_KEY,
    ),
    "header key overlong": (
        pack_fields(ZERO, ZERO, ZERO, ZERO, ZERO, b"\x02\xff\xff"),
        1,
        records.BAD_VARINT,
    ),
    "header value beyond": (
        pack_fields(ZERO, ZERO, ZERO, ZERO, ZERO, b"\x02\x00\x7e"),
        1,
        records.BAD_HEADER_VALUE,
    ),
    "header value overlong": (
        pack_fields(ZERO, ZERO, ZERO, ZERO, ZERO, b"\x02\x00\xff"),
        1,
        records.BAD_VARINT,
    ),
    "bytes after the headers": (pack_fields(ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, b"x"), 1, records.BAD_REST),
    "bytes after a header": (
        pack_fields(ZERO, ZERO, ZERO, ZERO, ZERO, b"\x02\x00\x01", b"x"),
        1,
        records.BAD_REST,
    ),
}


def test_every_reason_is_tested() -> None:
    assert {reason for _, _, reason in BAD.values()} == set(records.REASONS)


@pytest.mark.parametrize("padding", [0, 16], ids=["at the end of the buffer", "with room"])
@pytest.mark.parametrize("defect", BAD)
def test_bad_record_costs_its_batch_and_is_named(defect: str, padding: int) -> None:
    stored, count, reason = BAD[defect]
    data = raw_batch(0, stored, count)
    decoded_log = DecodedLog(data if not padding else data + batch(2000))
    assert decoded_log.offsets == ([] if not padding else [2000])
    (fault,) = decoded_log.faults
    assert (fault.kind, fault.offset, fault.length) == (Kind.PAYLOAD, 0, len(data))
    assert records.REASONS[reason] in fault.detail
    assert fault.lost["first_offset"] == 0
    assert decoded_log.encoded() == decoded_log.data


def test_fault_names_the_record() -> None:
    good = pack_records([record(0), record(1)])
    decoded_log = only(good + pack_fields(ZERO, ZERO, ZERO, b"\x10", b"k", ZERO, ZERO), 3)
    assert f"record 2, at byte {len(good)} of the stored records" in decoded_log.faults[0].detail
    assert decoded_log.faults[0].rows_lost == 3
    assert decoded_log.offsets == [9]
    # A consumer gets the records before it.
    served = DecodedLog(decoded_log.data, partial=True)
    assert served.offsets == [0, 1, 9]
    assert served.faults[0].rows_lost == 1


def test_bad_batch_leaves_no_trace_in_good_ones() -> None:
    nulls = pack_records([record(0, None, None, headers=[("h", None)]), record(1, None, b"")])
    bad = raw_batch(1, nulls + b"\x01" * 8, 3, base_timestamp=-1)
    decoded_log = DecodedLog(batch(0) + bad + batch(5, [record(0, headers=[("a", b"b")])]))
    assert decoded_log.rows.select(["offset", "key", "value", "headers"]).to_pylist() == [
        {"offset": 0, "key": b"k", "value": b"v", "headers": []},
        {"offset": 5, "key": b"k", "value": b"v", "headers": [{"key": "a", "value": b"b"}]},
    ]
    assert decoded_log.rows.column("timestamp").null_count == 0


def test_unordered_records_are_skipped_as_by_a_consumer() -> None:
    decoded_log = DecodedLog(batch(0, [record(1), record(0), record(2)]))
    assert decoded_log.offsets == [1, 2]
    assert [(fault.kind, fault.rows_lost) for fault in decoded_log.faults] == [(Kind.ORDER, 1)]
    beyond = DecodedLog(batch(0, [record(0), record(7)]) + batch(2) + batch(8))
    assert beyond.offsets == [0, 7, 8]
    assert beyond.encoded() == beyond.data


def test_rows_before_a_fault_are_counted() -> None:
    data = batch(0, [record(0), record(1)]) + raw_batch(2, b"\1" * 9, 1) + batch(3)
    frames = CODEC.scan(window(data), 0, context())
    (decoded,) = CODEC.decode(window(data), frames, "rows", ("offset",), context())
    assert [(before, fault.offset) for before, fault in decoded.faults] == [
        (2, len(batch(0, [record(0), record(1)])))
    ]


# Compression


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_and_plain_batches_in_turn(codec: str) -> None:
    plain = pack_records([record(0), record(1, None, b"x" * 3000)])
    data = batch(0) + compressed(1, compress(codec, plain), codec, 2) + batch(3)
    decoded_log = DecodedLog(data)
    assert decoded_log.offsets == [0, 1, 2, 3]
    assert decoded_log.rows.column("value").to_pylist() == [b"v", b"v", b"x" * 3000, b"v"]
    assert decoded_log.frames.column("compression").to_pylist() == ["none", codec, "none"]
    assert decoded_log.encoded() == data


def test_rows_are_the_same_if_batches_are_decompressed_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = pack_records([record(0), record(1, None, b"x" * 3000)])
    codecs = ["snappy", "zstd", "lz4", "gzip", "lz4", "snappy"]
    batches = [compressed(2 * i, compress(codec, plain), codec, 2) for i, codec in enumerate(codecs)]
    cut = compressed(12, compress("lz4", plain)[:-9], "lz4", 2)
    data = b"".join([*batches, cut, compressed(14, compress("zstd", plain), "zstd", 2), batch(16)])

    def read() -> tuple[object, list[str]]:
        log = DecodedLog(data)
        return log.rows, [fault.detail for fault in log.faults]

    rows, faults = read()
    monkeypatch.setattr("logwright.codec.kernels.kernel._INTERPRET_BELOW", 0)
    assert read() == (rows, faults)
    assert len(faults) == 1
    assert DecodedLog(data).offsets == [*range(12), 14, 15, 16]


def test_decompression_bomb_is_a_bad_payload() -> None:
    plain = pack_records([record(0, value=bytes(100_000))])
    data = compressed(0, gzip.compress(plain), "gzip", 1) + batch(1)
    decoded_log = DecodedLog(data, options={"max.decompressed.bytes": 50_000})
    assert decoded_log.offsets == [1]
    assert "limit of 50000 bytes" in decoded_log.faults[0].detail
    assert DecodedLog(data, options={"max.decompressed.bytes": "100kb"}).offsets == [0, 1]


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_compression_is_a_bad_payload(codec: int) -> None:
    decoded_log = DecodedLog(raw_batch(0, b"anything", 1, attributes=codec) + batch(1))
    assert decoded_log.offsets == [1]
    assert f"compression {codec} is unknown" in decoded_log.faults[0].detail
    assert decoded_log.frames.column("compression")[0].as_py() == f"unknown {codec}"
    assert decoded_log.encoded() == decoded_log.data


def test_many_compressed_batches_come_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    from logwright.codec.kafka.formats.log import sections

    monkeypatch.setattr(sections, "PORTION", 1000)
    stored = compress("zstd", pack_records([record(0, value=bytes(600))]))
    data = b"".join(compressed(i, stored, "zstd", 1) for i in range(7)) + b"".join(
        batch(7 + i, [record(0, value=bytes(400))]) for i in range(7)
    )
    frames = CODEC.scan(window(data), 0, context())
    pieces = [
        decoded.batch.num_rows
        for decoded in CODEC.decode(window(data), frames, "rows", ("offset",), context())
    ]
    assert sum(pieces) == 14
    assert max(pieces) <= 3
    assert DecodedLog(data).encoded() == data


# Varints compared with their description


@given(st.one_of(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-70, 70)), st.integers(0, 4))
def test_varint_of_any_length_is_read_and_a_cut_one_is_refused(value: int, extra: int) -> None:
    stored = bytearray(VARINT.pack(value, {}))
    longer = min(extra, 5 - len(stored))
    for _ in range(longer):
        stored[-1] |= 0x80
        stored.append(0)
    buf = window(bytes(stored) + b"\0").data
    assert varint(buf, 0, len(stored)) == (value, len(stored), int(longer > 0))
    assert varint(buf, 0, len(stored) - 1)[1] == -1


@given(st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-9000, 9000)), st.integers(0, 9))
def test_varlong_of_any_length_is_read_and_a_cut_one_is_refused(value: int, extra: int) -> None:
    stored = bytearray(VARLONG.pack(value, {}))
    longer = min(extra, 10 - len(stored))
    for _ in range(longer):
        stored[-1] |= 0x80
        stored.append(0)
    buf = window(bytes(stored) + b"\0").data
    assert varlong(buf, 0, len(stored)) == (value, len(stored), int(longer > 0))
    assert varlong(buf, 0, len(stored) - 1)[1] == -1


def test_excess_bits_are_dropped_and_reported() -> None:
    buf = window(b"\x80\x80\x80\x80\x7f").data
    assert varint(buf, 0, 5) == (VARINT.unpack(b"\x80\x80\x80\x80\x7f", 0, 5, {})[0], 5, 1)
    buf = window(b"\x80" * 9 + b"\x7f").data
    assert varlong(buf, 0, 10) == (VARLONG.unpack(b"\x80" * 9 + b"\x7f", 0, 10, {})[0], 10, 1)
    assert varlong(window(b"\x80" * 10).data, 0, 10)[1] == -1
