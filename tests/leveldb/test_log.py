"""Logs: operations and bytes, reported damage, and the continuation after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from leveldb_logs import (
    GOOD_BATCH,
    NAME,
    THREE_BATCHES,
    log_specimen,
    one_fault,
    read_operations,
    round_trips,
)
from leveldb_records import batch, record, with_value, written

import logwright as lw
from logwright.codec.base import Match
from logwright.codec.fault import Kind, LogwrightError, UsageError
from logwright.codec.leveldb.formats.log.codec import CODEC
from logwright.codec.leveldb.formats.records.layout import BLOCK, FIRST, FULL, HEADER, LAST, MIDDLE
from logwright.codec.option import Options
from logwright.codec.window import Window
from logwright.readers.stream import Mode


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows)


# Rows and bytes


def test_rows_of_a_log() -> None:
    rows = log_specimen(THREE_BATCHES).read().table.to_pylist()
    first, second = 0, len(written([batch(1, (b"a", b"1"))]))
    assert rows[:3] == [
        {
            "key": key,
            "value": value,
            "sequence": sequence,
            "type": kind,
            "file": 7,
            "level": None,
            "position": at,
        }
        for key, value, sequence, kind, at in (
            (b"a", b"1", 1, "value", first),
            (b"b", b"2", 2, "value", second),
            (b"c", None, 3, "deletion", second),
        )
    ]
    assert len(rows) == 4
    assert set(log_specimen(THREE_BATCHES).read(columns="key").table.column_names) == {"key"}
    assert log_specimen(written([batch(1, (b"a", b""))])).read(columns="type").table["type"].to_pylist() == [
        "value"
    ]


def test_records_of_a_log() -> None:
    data = written([b"short", batch(9, (b"a", b"1"), count=77)])
    rows = log_specimen(data).read("records").table.to_pylist()
    assert rows == [
        {"position": 0, "size": 12, "payload": b"short", "sequence": None, "count": None},
        {"position": 12, "size": len(data) - 12, "payload": data[19:], "sequence": 9, "count": 77},
    ]


def test_rows_without_columns_are_counted() -> None:
    window = Window(np.frombuffer(THREE_BATCHES, np.uint8), 0, len(THREE_BATCHES))
    context = log_specimen(THREE_BATCHES).context()
    frames = CODEC.scan(window, 0, context)
    for name, count in (("rows", 4), ("records", 3), ("frames", 3)):
        (decoded,) = CODEC.decode(window, frames, name, [], context)
        assert decoded.batch.num_rows == count


def test_log_written_from_rows_alone() -> None:
    rows = [
        {"key": b"a", "value": b"1", "sequence": 1},
        {"key": b"b", "value": None, "sequence": 2},
        {"key": b"c", "value": b"3", "sequence": 9},
    ]
    each = [batch(1, (b"a", b"1")), batch(2, (b"b", None)), batch(9, (b"c", b"3"))]
    assert log_specimen(b"").encode(table(rows)) == written(each)
    # More of them in a batch, but not across a gap.
    two = [batch(1, (b"a", b"1"), (b"b", None)), batch(9, (b"c", b"3"))]
    assert log_specimen(b"", batch_size=2).encode(table(rows)) == written(two)
    # Rows without sequence numbers are numbered.
    bare = table([{"key": row["key"], "value": row["value"]} for row in rows])
    assert read_operations(log_specimen(log_specimen(b"", batch_size=2).encode(bare))) == [
        (1, b"a", b"1"),
        (2, b"b", None),
        (3, b"c", b"3"),
    ]
    # Rows that name their batch.
    positioned = table([{**row, "position": n // 2} for n, row in enumerate(rows)])
    assert log_specimen(b"").encode(positioned) == written(two)


@pytest.mark.parametrize("rows", [0, 1])
def test_few_rows_are_written(rows: int) -> None:
    few = table([{"key": b"a", "value": b"1", "sequence": 1}]).slice(0, rows)
    assert log_specimen(b"").encode(few) == written([batch(1, (b"a", b"1"))] * rows)


OPERATIONS = st.lists(
    st.tuples(st.binary(max_size=9), st.none() | st.binary(max_size=9)), min_size=1, max_size=3
)


@settings(max_examples=examples(40))
@given(
    st.lists(st.tuples(OPERATIONS, st.integers(0, 5)), max_size=6),
    st.sampled_from([0, BLOCK - 90, BLOCK - 60, 2 * BLOCK]),
    st.booleans(),
)
def test_any_batches_in_a_log_round_trip(
    values: list[tuple[list[tuple[bytes, bytes | None]], int]], fill: int, frames: bool
) -> None:
    sequence, batches = 2, [batch(1, (b"fill", b"x" * fill))]
    for operations, gap in values:
        batches.append(batch(sequence + gap, *operations))
        sequence += gap + len(operations)
    log = log_specimen(written(batches))
    assert log.read().report.faults == []
    rows, framed, file = log.tables()
    assert framed["payload"].null_count == framed.num_rows
    assert log.encode(rows, framed if frames else None, file if frames else None) == log.all_bytes()


# Plain records


def test_records_that_are_no_batches_round_trip() -> None:
    payloads = [b"no batch", b"", b"x" * (2 * BLOCK), batch(1, (b"a", b"1"))]
    log = log_specimen(written(payloads))
    records = log.read("records").table
    assert records["payload"].to_pylist() == payloads
    assert log.encode(records) == log.all_bytes()
    assert log.encode(records.select(["payload"])) == log.all_bytes()
    # With the frames they keep their positions.
    cut = log_specimen(record(FIRST, b"ab") + record(LAST, b"c") + record(FULL, b"defg") + b"\0" * 3)
    records, (_, frames, file) = cut.read("records").table, cut.tables()
    assert cut.encode(records, frames, file) == cut.all_bytes()
    records = with_value(records, "payload", 0, b"xyz")
    assert (
        cut.encode(records, frames, file) == record(FIRST, b"xy") + record(LAST, b"z") + cut.all_bytes()[17:]
    )


def test_removed_plain_record_is_left_out() -> None:
    """Even if the last record is the same."""
    payloads = [b"short", batch(1, (b"a", b"1")), b"short"]
    log = log_specimen(written(payloads))
    records, (_, frames, file) = log.read("records").table, log.tables()
    assert frames["payload"].to_pylist() == [b"short", None, b"short"]
    assert log.encode(records.slice(1), frames, file) == written(payloads[1:])
    assert log.encode(records.slice(0, 0), frames, file) == b""


@pytest.mark.parametrize(
    "column", [pa.array([b"a", None]), pa.array(["a"]), pa.array([1])], ids=["null", "text", "number"]
)
def test_records_that_are_not_plain(column: pa.Array) -> None:
    with pytest.raises(UsageError, match="column 'payload' has nulls or is not binary"):
        log_specimen(b"").encode(pa.table({"payload": column}))


def test_many_records_are_written_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    from logwright.codec.leveldb.formats.records import codec as records
    from logwright.codec.leveldb.formats.records import reencode

    monkeypatch.setattr(reencode, "PORTION", 100)
    monkeypatch.setattr(records, "PORTION", 100)
    batches = [batch(n, (b"key%d" % n, b"v" * (n % 90))) for n in range(1, 60)]
    log = log_specimen(written(batches))
    assert len(read_operations(log)) == 59
    assert round_trips(log)
    assert log.encode(log.read().table) == log.all_bytes()


# With frames


ODD = {
    "cut in the middle of a block": record(FIRST, batch(1, (b"a", b"1"))[:5])
    + record(MIDDLE, b"")
    + record(LAST, batch(1, (b"a", b"1"))[5:])
    + record(FULL, batch(2, (b"b", b"2"))),
    "an empty FIRST before": record(FIRST, b"") + record(FULL, batch(1, (b"a", b"1"))),
    "something fills the block": record(FULL, batch(1, (b"a", b"1" * (BLOCK - 7 - 12 - 6 - 5))))
    + b"\0\1\0\0\0"
    + record(FULL, batch(2, (b"b", b"2"))),
    "a length longer than need be": record(FULL, batch(1)[:8] + b"\1\0\0\0" + b"\1\x81\0a\1" + b"1")
    + record(FULL, batch(2, (b"b", b"2"))),
    "the length of a value longer than need be": record(
        FULL, batch(1)[:8] + b"\1\0\0\0" + b"\1\1a\x81\0" + b"1"
    )
    + record(FULL, batch(2, (b"b", b"2"))),
    "no operations": record(FULL, batch(1)) + record(FULL, batch(2, (b"b", b"2"))),
    "no batch": record(FULL, b"short") + record(FULL, batch(2, (b"b", b"2"))),
    "zeros at the end": THREE_BATCHES + bytes(40),
    "trailing": THREE_BATCHES + b"\1\2\0",
    "damage": THREE_BATCHES + b"\xff" * 30 + THREE_BATCHES,
    "nothing": b"",
    "only zeros": bytes(9),
}


@pytest.mark.parametrize("data", ODD.values(), ids=ODD)
def test_log_with_frames_is_unchanged(data: bytes) -> None:
    assert round_trips(log_specimen(data))


WITH_ROWS = {name: data for name, data in ODD.items() if data.strip(b"\0")}


@pytest.mark.parametrize("data", WITH_ROWS.values(), ids=WITH_ROWS)
def test_edited_row_is_written(data: bytes) -> None:
    log = log_specimen(data)
    rows, frames, file = log.tables()
    (sequence, key, old), *rest = read_operations(log)
    for value in (b"X" * len(old), b"longer than it was" * 3):
        rewritten = log.with_bytes(log.encode(with_value(rows, "value", 0, value), frames, file))
        assert read_operations(rewritten) == [(sequence, key, value), *rest]


def test_moved_records_are_fragmented_again() -> None:
    """A longer value moves the following records over the end of the block."""
    batches = [batch(1, (b"a", b"1")), batch(2, (b"b", b"x" * 32650)), batch(3, (b"c", b"3" * 30))]
    log = log_specimen(written(batches))
    rows, frames, file = log.tables()
    batches[0] = batch(1, (b"a", b"1" * 60))
    assert log.encode(with_value(rows, "value", 0, b"1" * 60), frames, file) == written(batches)


@pytest.mark.parametrize("gone", [0, 1, 3])
def test_removed_row_is_gone(gone: int) -> None:
    log = log_specimen(THREE_BATCHES)
    rows, frames, file = log.tables()
    left = table([row for n, row in enumerate(rows.to_pylist()) if n != gone]).cast(rows.schema)
    rewritten = log.with_bytes(log.encode(left, frames, file))
    assert read_operations(rewritten) == [op for n, op in enumerate(read_operations(log)) if n != gone]
    assert rewritten.read().report.faults == []


def test_records_without_rows_stay_if_all_rows_are_removed() -> None:
    log = log_specimen(ODD["no operations"] + ODD["no batch"])
    rows, frames, file = log.tables()
    rewritten = log.with_bytes(log.encode(rows.slice(0, 0), frames, file))
    assert read_operations(rewritten) == []
    # Records without rows are unchanged.
    assert rewritten.read("records").table["payload"].to_pylist() == [batch(1), b"short"]


def test_stored_payload_is_used_only_if_it_decodes_to_the_rows() -> None:
    log = log_specimen(ODD["a length longer than need be"])
    rows, frames, file = log.tables()
    assert frames["payload"].null_count == 1
    more = table([rows.to_pylist()[0], {**rows.to_pylist()[0], "sequence": 2}, *rows.to_pylist()[1:]])
    rewritten = log.with_bytes(log.encode(more.cast(rows.schema), frames, file))
    assert read_operations(rewritten) == [(1, b"a", b"1"), (2, b"a", b"1"), (2, b"b", b"2")]
    for column, value in (("key", b"b"), ("value", b"2"), ("sequence", 100), ("key", b"aa"), ("value", None)):
        edited = with_value(rows, column, 0, value)
        if value is None:
            edited = with_value(edited, "type", 0, "deletion")
        rewritten = log.with_bytes(log.encode(edited, frames, file))
        assert rewritten.read().table[column][0].as_py() == value
        assert rewritten.read("frames").table["payload"].null_count == 2


def test_core_frame_columns_are_enough_for_an_ordinary_log() -> None:
    log = log_specimen(THREE_BATCHES)
    rows, frames, file = log.tables()
    lean = frames.select(["position", "size", "length", "type", "record"])
    assert log.encode(rows, lean) == THREE_BATCHES
    for name in lean.column_names:
        with pytest.raises(UsageError, match=f"needs a column '{name}' in the frames table"):
            log.encode(rows, lean.drop_columns([name]), file)


def test_rows_without_a_position() -> None:
    log = log_specimen(THREE_BATCHES)
    rows, frames, _ = log.tables()
    with pytest.raises(UsageError, match="rows have no positions"):
        log.encode(rows.drop_columns(["position"]), frames)
    with pytest.raises(UsageError, match="row 3 belongs to no frame of the frames table"):
        log.encode(with_value(rows, "position", 3, 5000), frames)
    with pytest.raises(UsageError, match="row 0 belongs to no frame"):
        log.encode(rows, frames.slice(0, 0))
    backwards = table(rows.to_pylist()[::-1]).cast(rows.schema)
    with pytest.raises(UsageError, match="or is out of order"):
        log.encode(backwards, frames)
    assert log.encode(rows.slice(0, 0), frames.slice(0, 0)) == b""


# Reported batches


@pytest.mark.parametrize(
    ("payload", "text", "rows", "lost"),
    [
        (b"short", "log record too small: 5 bytes", 0, 0),
        (batch(2, (b"b", b"2"), count=3), "WriteBatch has wrong count: 3 operations declared, 1 present", 1, 0),
        (batch(2, (b"b", b"2"), count=0), "WriteBatch has wrong count: 0 operations declared, 1 present", 1, 0),
        (
            batch(2, (b"b", b"2"), count=3) + b"\1\5b",
            "bad WriteBatch Put: 3 operations declared, 1 present before byte 17 of the batch",
            1, 2,
        ),
        (batch(2, count=1) + b"\1\1b\5v", "bad WriteBatch Put: 1 operation declared, 0 present before byte 12", 0, 1),
        (batch(2, count=1) + b"\0\5b", "bad WriteBatch Delete: 1 operation declared, 0 present", 0, 1),
        (batch(2, (b"b", b"2"), count=1) + b"\7", "unknown WriteBatch tag: 1 operation declared, 1 present", 1, None),
        (batch((1 << 56) - 1, (b"b", b"2"), (b"c", None)), "sequence numbers above 2^56-1: 2 operations", 2, 0),
    ],
)  # fmt: skip
def test_invalid_batches_with_correct_checksums(
    payload: bytes, text: str, rows: int, lost: int | None
) -> None:
    log = log_specimen(written([GOOD_BATCH, payload, batch(9, (b"z", b"9"))]))
    fault = one_fault(log)
    assert fault.detail.startswith(text)
    kind = Kind.UNSUPPORTED if text.startswith("unknown WriteBatch tag") else Kind.PAYLOAD
    assert (fault.kind, fault.rows_lost) == (kind, lost)
    assert (fault.offset, fault.length) == (len(written([GOOD_BATCH])), len(payload) + HEADER)
    assert "paranoid_checks" in fault.system
    operations = read_operations(log)
    assert len(operations) == 2 + rows
    assert operations[0] == (1, b"a", b"1")
    assert operations[-1] == (9, b"z", b"9")
    assert round_trips(log)
    with pytest.raises(LogwrightError):
        log.read(mode=Mode.FAILFAST)


# Filters


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (("sequence", ">", 50), range(51, 61)),
        (("sequence", "<=", 3), range(1, 4)),
        (("sequence", "==", 30), [30]),
        (("sequence", ">", 1000), []),
        (("key", "==", b"k007"), [7]),
    ],
)
def test_filters_select_operations_of_a_log(
    tmp_path: Path, condition: tuple[str, str, Any], expected: Any
) -> None:
    path = tmp_path / NAME
    batches = [batch(n, (b"k%03d" % n, b"v"), (b"k%03d" % (n + 1), b"v")) for n in range(1, 60, 2)]
    path.write_bytes(written(batches))
    rows = lw.read(path, filter=[condition])
    assert rows["sequence"].to_pylist() == list(expected)


def test_bounds_hold_whatever_a_batch_claims() -> None:
    payloads = [
        batch(5, (b"a", b"1"), (b"b", b"2"), count=0),
        b"short",
        batch((1 << 56) - 2, (b"a", b"1")),
        b"\xff" * 14,
    ]
    data = written(payloads)
    window = Window(np.frombuffer(data, np.uint8), 0, len(data))
    frames = CODEC.scan(window, 0, log_specimen(data).context())
    low, high = CODEC.frame_bounds(frames, "sequence")
    info = np.iinfo(np.int64)
    assert low.tolist() == [5, info.min, info.min, info.min]
    assert high.tolist()[0] >= 6
    assert high.tolist()[1:] == [info.max] * 3
    assert CODEC.frame_bounds(frames, "key") == (None, None)


# Recognition


@pytest.mark.parametrize(
    ("name", "head", "expected"),
    [
        ("000007.log", THREE_BATCHES, Match.SURE),
        ("000007.log", THREE_BATCHES[:3], Match.NAME),
        ("000007.log", b"", Match.NAME),
        ("000007.log", b"text of something else", Match.NAME),
        ("000007.txt", THREE_BATCHES, Match.NO),
    ],
)
def test_recognised_names_and_bytes(name: str, head: bytes, expected: Match) -> None:
    assert CODEC.recognise(name, head) is expected


@pytest.mark.parametrize("value", [b"v", b"v" * 6000], ids=["short", "longer than the recognised bytes"])
def test_lengths_that_pass_for_those_of_a_kafka_message_are_not_enough(tmp_path: Path, value: bytes) -> None:
    """A first sequence number from 256 to 1023 looks like the length of a message of magic 0."""
    batches = (written([batch(sequence, (b"key", value))]) for sequence in range(0x100, 0x400, 0x40))
    for data in batches:
        (tmp_path / "000012.log").write_bytes(data)
        assert lw.detect(tmp_path / "000012.log") == CODEC.name


def test_unknown_hint_is_refused() -> None:
    with pytest.raises(UsageError, match=r"leveldb\.log: no hint 'topic'"):
        CODEC.context(NAME, Options(CODEC.options), topic="x")
