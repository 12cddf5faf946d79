"""Rare inputs of `kafka.log`: each test covers a branch that ordinary files do not reach."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from kafka_log import (
    DecodedLog,
    T,
    batch,
    compressed,
    context,
    encoded,
    pack_records,
    raw_batch,
    record,
    window,
)

from logwright.codec.fault import Kind, UsageError
from logwright.codec.kafka.formats.log import arrow_input, pack, scan
from logwright.codec.kafka.formats.log import write as encode
from logwright.codec.kafka.formats.log.codec import CODEC
from logwright.codec.kafka.formats.log.layout import HEAD, HEAD_SIZE
from logwright.codec.kafka.formats.log.markers import MALFORMED, markers
from logwright.codec.kafka.formats.log.write import BatchEncoder, BatchSettings
from logwright.codec.kernels.compress import compress
from logwright.codec.window import Around

TOP, LOW = (1 << 63) - 1, -(1 << 63)


# Reading


def test_frames_without_columns_are_counted() -> None:
    data = batch(0) + batch(1)
    frames = CODEC.scan(window(data), 0, context())
    (decoded,) = CODEC.decode(window(data), frames, "frames", (), context())
    assert (decoded.batch.num_rows, decoded.batch.num_columns) == (2, 0)


def test_first_batch_that_began_before_the_window_is_no_fault() -> None:
    decoded_log = DecodedLog(batch(3, [record(i) for i in range(3)]) + batch(6), name=f"{4:020}.log")
    assert not decoded_log.faults
    assert decoded_log.offsets == [3, 4, 5, 6]


def test_file_of_another_name_has_no_base_offset() -> None:
    decoded_log = DecodedLog(batch(70) + b"x" * 70 + batch(80), name="copy.log", directory="")
    assert decoded_log.offsets == [70, 80]
    assert (
        decoded_log.rows.select(["topic", "partition", "segment"]).to_pylist()
        == [{"topic": None, "partition": None, "segment": None}] * 2
    )
    bad = DecodedLog(raw_batch(0, b"\1" * 8, 1), name="copy.log", directory="")
    assert bad.faults[0].lost == {"first_offset": 0, "last_offset": 0}
    assert CODEC.loss_between(Around(), bad.context) == (None, {})


def test_implausible_length_is_not_trusted_if_batches_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "LIMIT", 10_000)
    huge = bytearray(batch(1))
    huge[10:12] = b"\x4e\x20"
    data = batch(0) + bytes(huge) + batch(2) + batch(3) + batch(4)
    frames = CODEC.scan(window(data, size=1 << 20), 0, context())
    assert frames.damage is not None
    assert (frames.need, frames.damage.kind, frames.damage.length) == (0, Kind.LENGTH, len(huge))
    # Nothing contradicts the length.
    alone = CODEC.scan(window(batch(0) + bytes(huge), size=1 << 20), 0, context())
    assert (alone.need, alone.damage) == (12 + 0x4E20, None)


def test_value_of_length_below_minus_1_is_null_and_kept() -> None:
    stored = bytes([16, 0, 0, 0, 2]) + b"k" + bytes([5, 0]) + b""
    stored = bytes([(len(stored) - 1) << 1]) + stored[1:]
    decoded_log = DecodedLog(raw_batch(0, stored, 1) + batch(1))
    assert decoded_log.rows.column("value").to_pylist() == [None, b"v"]
    assert decoded_log.encoded() == decoded_log.data


def test_marker_of_negative_version_is_malformed() -> None:
    data = batch(0, [record(0, b"\0\0\0\1", b"\xff\xff\0\0\0\1")], attributes=0x30, producer_id=1)
    frames = CODEC.scan(window(data), 0, context())
    assert markers(window(data), frames)["type"].tolist() == [MALFORMED]


def test_other_header_fields_identify_a_batch_after_damage() -> None:
    data = batch(0) + b"?" * 80 + batch(1) + batch(2)[:30]
    assert DecodedLog(data).offsets == [0, 1]
    bounded = batch(0) + b"?" * 80 + batch(1) + batch(900) + batch(2)
    assert DecodedLog(bounded, next_base=100).offsets == [0, 1, 2]


def test_magic_alone_makes_no_header() -> None:
    fake = bytearray(b"\xff" * HEAD_SIZE * 2)
    fake[8:12] = (HEAD_SIZE * 4).to_bytes(4, "big")
    fake[16] = 2
    assert DecodedLog(batch(0) + bytes(fake) + batch(1) + batch(2)).offsets == [0, 1, 2]


# Writing


def test_deltas_wrap_around_as_in_java() -> None:
    for a, b in ((5, 3), (TOP, -1), (LOW, 1), (TOP, LOW), (LOW, TOP), (-1, LOW), (0, LOW)):
        assert pack.difference(a, b) == (a - b - LOW) % (1 << 64) + LOW


def test_wrapped_timestamps_round_trip() -> None:
    far = batch(
        0, [record(0, timestamp_delta=5), record(1, timestamp_delta=-1)], base_timestamp=TOP, max_timestamp=0
    )
    low = batch(2, [record(0, timestamp_delta=-5)], base_timestamp=LOW, max_timestamp=0)
    decoded_log = DecodedLog(far + low)
    assert decoded_log.encoded() == decoded_log.data


def test_record_larger_than_a_batch_can_be() -> None:
    huge = arrow_input.Binary(
        np.array([0, TOP >> 32], np.int32),
        np.empty(0, np.uint8),
        arrow_input.NO_NULLS,
        np.empty(0, np.uint8),
        0,
    )
    numbers = np.zeros(1, np.int64)
    rows = pack.Rows(
        1,
        huge,
        huge,
        arrow_input.NO_HEADERS,
        numbers,
        numbers,
        np.zeros(1, np.uint8),
        numbers,
        np.empty(0, np.int8),
    )
    with pytest.raises(UsageError, match="row 0: the record is larger than 2 GiB"):
        rows.write(np.empty(1000, np.uint8), 0, pack.closed(), np.empty(2, np.int64), batch_size=100)


def test_more_than_2_gib_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_input, "MAX_INT32", 3)
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    with pytest.raises(UsageError, match="'headers': 4 headers in one batch of rows"):
        arrow_input.headers(pa.array([[{"key": "", "value": None}] * 4], kind))
    with pytest.raises(UsageError, match=r"'key' takes \d+ bytes in one batch of rows"):
        arrow_input.binary(pa.array([b"four"]), "key")
    with pytest.raises(UsageError, match="a batch is larger than 2 GiB"):
        encode.assemble(np.zeros(1, HEAD), [b"four"])


def test_many_rows_are_encoded_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.record_batch({"value": [bytes(1000)] * 9, "timestamp": [T] * 9})
    settings = BatchSettings(batch_size=3000)
    at_once = BatchEncoder(settings)
    expected = at_once.add(rows, 5).data.tobytes() + at_once.flush().data.tobytes()
    monkeypatch.setattr(encode, "_MOST", 2000)
    monkeypatch.setattr(encode, "_QUEUE", 0)
    encoder = BatchEncoder(settings)
    first, rest = encoder.add(rows, 5), encoder.flush()
    assert first.data.tobytes() + rest.data.tobytes() == expected
    assert len(first.start) == len(first.header) == 4
    assert [first.data[at + 16] for at in first.start] == [2] * 4
    assert len(encoder.add(rows.slice(0, 0)).data) == 0


def test_file_larger_than_the_queue_comes_in_pieces() -> None:
    rows = pa.table({"value": [bytes(70_000)] * 3, "is_control": [False, None, False]})
    assert DecodedLog(encoded(rows)).rows.column("value").to_pylist() == [bytes(70_000)] * 3


def test_absent_headers_of_any_type() -> None:
    assert arrow_input.headers(pa.array([[], []], pa.list_(pa.null()))) is arrow_input.NO_HEADERS
    assert arrow_input.headers(pa.nulls(2)) is arrow_input.NO_HEADERS


# Reencoding


def test_frames_of_few_columns_are_plain_batches() -> None:
    decoded_log = DecodedLog(batch(0, [record(0), record(1)], producer_id=9) + batch(2))
    decoded = DecodedLog(decoded_log.encoded(frames=decoded_log.frames.select(["position", "base_offset"])))
    assert decoded.offsets == [0, 1, 2]
    assert decoded.frames.column("producer_id").to_pylist() == [-1, -1]


def test_rows_without_offsets_count_within_their_frames() -> None:
    decoded_log = DecodedLog(batch(5, [record(0), record(1)]) + batch(9))
    assert decoded_log.encoded(decoded_log.rows.drop_columns(["offset"])) == decoded_log.data
    nulls = decoded_log.rows.set_column(4, "offset", pa.array([5, None, 9]))
    with pytest.raises(UsageError, match="'offset' has nulls"):
        decoded_log.encoded(nulls)


def test_frames_without_rows_are_empty_batches() -> None:
    decoded_log = DecodedLog(
        batch(0, [], records_count=0, last_offset_delta=4) + batch(5, [], records_count=0)
    )
    assert decoded_log.encoded(decoded_log.rows.drop_columns(["position", "offset"])) == decoded_log.data


def test_row_of_nulls_stands_for_the_tail() -> None:
    decoded_log = DecodedLog(batch(0) + b"torn")
    nothing = pa.Table.from_arrays(
        [pa.nulls(1, field.type) for field in decoded_log.frames.schema], schema=decoded_log.frames.schema
    )
    assert decoded_log.encoded(frames=pa.concat_tables([decoded_log.frames, nothing])) == decoded_log.data


def test_unknown_compression_cannot_be_written() -> None:
    decoded_log = DecodedLog(batch(0))
    frames = decoded_log.frames.set_column(5, "compression", pa.array(["unknown 6"]))
    with pytest.raises(UsageError, match="compression 6 is unknown"):
        decoded_log.encoded(frames=frames)


def test_rows_replace_an_undecodable_payload() -> None:
    decoded_log = DecodedLog(compressed(0, b"no zstd", "zstd", 1, base_timestamp=T, max_timestamp=T))
    assert decoded_log.offsets == []
    row = DecodedLog(batch(0)).rows
    assert DecodedLog(decoded_log.encoded(row)).rows.column("value").to_pylist() == [b"v"]


def test_raw_header_keys_in_a_payload_are_kept() -> None:
    stored = pack_records([record(0, headers=[("x", b"1")])]).replace(b"\2x", b"\2\xff")
    decoded_log = DecodedLog(
        compressed(0, compress("gzip", stored + stored.replace(b"\0\0\0\2k", b"\0\0\2\2k")), "gzip", 2)
    )
    assert decoded_log.offsets == [0, 1]
    assert decoded_log.encoded() == decoded_log.data
    values = decoded_log.rows.set_column(1, "value", pa.array([b"v", b"edited"]))
    decoded = DecodedLog(decoded_log.encoded(values))
    assert (
        decoded.rows.column("headers_raw").to_pylist() == decoded_log.rows.column("headers_raw").to_pylist()
    )
    assert decoded.rows.column("value").to_pylist() == [b"v", b"edited"]
    # Without the detail column, the stored payload still tells which keys they were.
    assert decoded_log.encoded(decoded_log.rows.drop_columns(["value"])) == decoded_log.data


def test_row_removed_from_a_compressed_batch_is_gone() -> None:
    decoded_log = DecodedLog(
        compressed(0, compress("snappy", pack_records([record(i, b"%d" % i) for i in range(3)])), "snappy", 3)
    )
    fewer = DecodedLog(decoded_log.encoded(decoded_log.rows.slice(1)))
    assert fewer.rows.column("key").to_pylist() == [b"1", b"2"]
    assert fewer.frames.select(["records_count", "last_offset"]).to_pylist() == [
        {"records_count": 2, "last_offset": 2}
    ]


def test_transactions_of_other_producers_are_served() -> None:
    log = batch(0, attributes=0x10, producer_id=1, producer_epoch=0) + batch(
        1, attributes=0x10, producer_id=2
    )
    assert DecodedLog(log, aborted=((3, 0, 9), (2, 0, 9))).offsets == [0]
