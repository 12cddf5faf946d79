"""Scanning: positions of batches, the end of a file, kinds of damage, and the next batch after damage.

Invariant: a scan of any window gives the frames of the complete file, and asks for more bytes rather than guess.

"""

from __future__ import annotations

import gzip
import time
import zlib
from typing import Any

import numpy as np
import pytest
from kafka_log import NAME, DecodedLog, batch, compressed, context, pack_records, record, reseal, window

from logwright.codec.base import Match
from logwright.codec.fault import Kind, Severity, UsageError
from logwright.codec.kafka.formats.log.codec import CODEC
from logwright.codec.kafka.formats.log.layout import HEAD_SIZE, RECORD_BATCH
from logwright.codec.window import Around

THREE = [batch(0, [record(i) for i in range(3)]), batch(3), batch(4, [record(0), record(1)])]
FILE = b"".join(THREE)
_CONTENT = b"\0\0" + (b"\xff" * 4) + (1000).to_bytes(4, "big") + bytes(1000)
MESSAGE = (
    bytes(8) + (4 + len(_CONTENT)).to_bytes(4, "big") + zlib.crc32(_CONTENT).to_bytes(4, "big") + _CONTENT
)
"""A message of magic 0 with a value of 1,000 zeros."""


def starts(data: bytes, **hints: Any) -> list[int]:
    return CODEC.scan(window(data), 0, context(**hints)).start.tolist()  # type: ignore[no-any-return]


# Windows


@pytest.mark.parametrize("check", [True, False])
def test_cut_window_asks_for_more_and_then_gives_the_same(check: bool) -> None:
    frames = CODEC.scan(window(FILE), 0, context(), check=check)
    assert frames.start.tolist() == [0, len(THREE[0]), len(THREE[0]) + len(THREE[1])]
    assert (frames.stop, frames.need, frames.damage) == (len(FILE), 0, None)
    for cut in range(len(FILE)):
        first = CODEC.scan(window(FILE[:cut], size=len(FILE)), 0, context(), check=check)
        assert first.damage is None
        assert first.need > cut - first.stop, "more than there is"
        assert first.start.tolist() == frames.start[: len(first)].tolist()
        rest = CODEC.scan(window(FILE[first.stop :], first.stop), 0, context(), check=check)
        assert (rest.start + first.stop).tolist() == frames.start[len(first) :].tolist()


def test_needed_bytes_are_those_of_the_frame_for_a_jumping_walk() -> None:
    big = batch(0, [record(0, value=bytes(20_000))])
    frames = CODEC.scan(window(big[:4096], size=len(big)), 0, context(), check=False)
    assert (frames.stop, frames.need) == (0, len(big))


def test_headers_equal_the_description() -> None:
    frames = CODEC.scan(window(FILE), 0, context())
    for start, end, head in zip(frames.start, frames.end, frames.header, strict=True):
        values, stop = RECORD_BATCH.unpack(FILE, int(start), int(end))
        assert stop == end
        values["last_offset"] = values["base_offset"] + values.pop("last_offset_delta")
        values["size"] = values.pop("batch_length") + 12
        assert {name: head[name].item() for name in head.dtype.names} == {
            name: value for name, value in values.items() if name != "records"
        }


def test_many_small_batches_exceed_the_first_estimate() -> None:
    empty = [batch(i, [], records_count=0) for i in range(1000)]
    assert len(starts(b"".join(empty))) == 1000


def test_empty_file_is_sound() -> None:
    frames = CODEC.scan(window(b""), 0, context())
    assert (len(frames), frames.stop, frames.need, frames.damage) == (0, 0, 0, None)


# The end of a file


@pytest.mark.parametrize(
    ("hints", "severity"),
    [
        ({}, Severity.ERROR),
        ({"last": True}, Severity.WARNING),
        ({"last": True, "clean": True}, Severity.ERROR),
        ({"last": True, "live": True}, Severity.INFO),
        ({"live": True}, Severity.ERROR),
    ],
)
@pytest.mark.parametrize(
    ("tail", "kind"),
    [
        (THREE[1][:40], Kind.TRUNCATED),
        (b"\1\2\3", Kind.TRUNCATED),
        (bytes(17), Kind.PADDING),
        (bytes(5000), Kind.PADDING),
    ],
)
def test_torn_tail_is_an_error_only_in_an_older_segment(
    hints: dict[str, Any], severity: Severity, tail: bytes, kind: Kind
) -> None:
    data = THREE[0] + tail
    frames = CODEC.scan(window(data), 0, context(**hints))
    assert frames.damage is not None
    if kind is Kind.PADDING and severity is Severity.WARNING:
        severity = Severity.INFO  # A preallocated file of a killed broker.
    assert (frames.damage.kind, frames.damage.severity) == (kind, severity)
    assert (frames.damage.offset, frames.damage.length) == (len(THREE[0]), len(tail))
    assert frames.stop == len(THREE[0])


def test_torn_looking_batch_followed_by_a_batch_is_damage() -> None:
    wrong = bytearray(FILE)
    wrong[len(THREE[0]) + 8] = 1  # A length beyond the end of the file.
    decoded = DecodedLog(bytes(wrong), last=True, live=True)
    assert [(fault.kind, fault.severity) for fault in decoded.damage] == [(Kind.LENGTH, Severity.ERROR)]
    assert decoded.offsets == [0, 1, 2, 4, 5]


def test_zeros_in_the_middle_are_damage() -> None:
    decoded = DecodedLog(THREE[0] + bytes(len(THREE[1])) + THREE[2], last=True)
    assert [(fault.kind, fault.severity) for fault in decoded.damage] == [(Kind.PADDING, Severity.ERROR)]
    assert decoded.offsets == [0, 1, 2, 4, 5]


# Damage to a header


def flipped(data: bytes, field: str, value: int, at: int = 0) -> bytes:
    place = at + RECORD_BATCH.offset(field)
    return (
        data[:place]
        + RECORD_BATCH[field].type.pack(value, {})
        + data[place + RECORD_BATCH[field].type.min_size :]
    )


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [
        ("batch_length", 0, Kind.LENGTH),
        ("batch_length", -1, Kind.LENGTH),
        ("batch_length", 48, Kind.LENGTH),
        ("magic", 3, Kind.MAGIC),
        ("magic", -126, Kind.MAGIC),
        ("magic", 0, Kind.MAGIC),
        ("magic", 1, Kind.MAGIC),
        ("crc", 1, Kind.CHECKSUM),
        ("attributes", 0x10, Kind.CHECKSUM),
        ("records_count", 2, Kind.CHECKSUM),
        ("base_offset", 1 << 40, Kind.ORDER),
    ],
)
def test_wrong_field_is_a_fault_of_its_kind_and_costs_no_other_batch(
    field: str, value: int, kind: Kind
) -> None:
    decoded = DecodedLog(flipped(FILE, field, value, len(THREE[0])))
    assert [(fault.kind, fault.offset) for fault in decoded.damage] == [(kind, len(THREE[0]))]
    assert decoded.offsets == [0, 1, 2, 4, 5]
    assert decoded.encoded() == decoded.data


@pytest.mark.parametrize("magic", [0, 1])
def test_message_of_an_older_magic_is_a_frame(magic: int) -> None:
    body = bytes([magic, 0]) + bytes(8 * magic) + b"\xff\xff\xff\xff" + b"\0\0\0\1v"
    entry = (
        (5).to_bytes(8, "big")
        + (4 + len(body)).to_bytes(4, "big")
        + zlib.crc32(body).to_bytes(4, "big")
        + body
    )
    good = CODEC.scan(window(THREE[0] + entry + bytes(40)), 0, context())
    assert good.header["magic"].tolist() == [2, magic]
    assert good.header["last_offset"].tolist() == [2, 5]
    # A window that ends within it asks for more.
    cut = CODEC.scan(window((THREE[0] + entry)[:-3], size=len(THREE[0] + entry)), 0, context())
    assert (cut.damage, cut.need) == (None, len(entry))


# Order


def test_duplicated_batch_gives_no_row_twice() -> None:
    decoded = DecodedLog(THREE[0] + THREE[1] + THREE[1] + THREE[2])
    assert decoded.offsets == [0, 1, 2, 3, 4, 5]
    (fault,) = decoded.damage
    assert (fault.kind, fault.rows_lost, dict(fault.lost)) == (Kind.ORDER, 0, {})
    assert "it is a duplicate of an earlier batch" in fault.detail
    assert not decoded.faults
    assert decoded.encoded() == decoded.data


def test_each_copy_of_a_batch_is_a_duplicate() -> None:
    decoded = DecodedLog(THREE[0] + 3 * THREE[1] + THREE[2] + THREE[2])
    assert decoded.offsets == [0, 1, 2, 3, 4, 5]
    assert [fault.rows_lost for fault in decoded.damage] == [0, 0, 0]
    assert all("it is a duplicate of an earlier batch" in fault.detail for fault in decoded.damage)


def test_batch_in_order_that_is_scanned_again_is_no_duplicate_of_itself() -> None:
    log_context, data = context(), window(THREE[0] + THREE[1])
    assert len(CODEC.scan(data, 0, log_context)) == 2
    log_context.last_offset, log_context.last_end = 5, 0
    (fault,) = [CODEC.scan(data, len(THREE[0]), log_context).damage]
    assert fault is not None
    assert "duplicate" not in fault.detail


def test_impossible_offsets_confirmed_by_the_next_batch_are_a_warning() -> None:
    decoded = DecodedLog(batch(3) + batch(4), name=f"{4:020}.log")
    assert [fault.kind for fault in decoded.faults] == [Kind.ORDER]
    assert "outside the file's range, 4 to" in decoded.faults[0].detail
    assert decoded.offsets == [3, 4]
    decoded = DecodedLog(batch(9) + batch(10), next_base=10, name=f"{9:020}.log")
    assert "to 9" in decoded.faults[0].detail
    assert decoded.offsets == [9, 10]


def flipped_offset(data: bytes, bit: int) -> bytes:
    return (int.from_bytes(data[:8], "big") ^ 1 << bit).to_bytes(8, "big") + data[8:]


def segment_of_four(offset: int) -> bytes:
    return batch(offset, [record(i, value=b"%d" % offset) for i in range(4)])


@pytest.mark.alike
@pytest.mark.parametrize("bit", range(64))
@pytest.mark.parametrize("i", range(3))
def test_no_row_has_an_offset_that_its_neighbours_exclude(i: int, bit: int) -> None:
    """One flipped bit in base_offset, in a segment without gaps whose end the next segment gives."""
    segment = [segment_of_four(16), segment_of_four(20), segment_of_four(24)]
    segment[i] = flipped_offset(segment[i], bit)
    decoded = DecodedLog(b"".join(segment), name=f"{16:020}.log", next_base=28)
    first = 16 + 4 * i
    assert decoded.offsets == [offset for offset in range(16, 28) if not first <= offset < first + 4]
    (fault,) = decoded.damage
    assert (fault.kind, fault.offset, fault.length) == (Kind.ORDER, i * len(segment[0]), len(segment[0]))
    assert (fault.rows_lost, fault.lost["first_offset"], fault.lost["last_offset"]) == (4, first, first + 3)
    assert decoded.encoded() == decoded.data


@pytest.mark.parametrize("bit", [*range(31, 64)])
def test_no_row_has_an_offset_that_its_segment_cannot_hold(bit: int) -> None:
    decoded = DecodedLog(segment_of_four(16) + flipped_offset(segment_of_four(20), bit), name=f"{16:020}.log")
    assert decoded.offsets == [16, 17, 18, 19]
    (fault,) = decoded.damage
    assert fault.rows_lost == 4
    assert ("outside the file's range, 16 to 2147483663" in fault.detail) == (bit < 63)


def test_consecutive_misplaced_batches_are_separate_faults() -> None:
    decoded = DecodedLog(batch(0) + batch(3) + batch(4) + batch(1) + batch(2) + batch(5))
    assert decoded.offsets == [0, 3, 4, 5]
    assert [fault.offset for fault in decoded.damage] == [3 * len(batch(0)), 4 * len(batch(0))]
    assert decoded.encoded() == decoded.data


# last_offset_delta


def records_of(count: int, offset: int = 0, **fields: Any) -> bytes:
    return batch(offset, [record(i) for i in range(count)], **fields)


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("claims", [3, 4, 5, 12])
def test_last_offset_delta_that_claims_the_next_batch_is_a_fault_of_its_header(
    claims: int, codec: str
) -> None:
    """The next batch is within the claimed offsets or reaches beyond them: it is in order."""
    wrong = records_of(3, 3, last_offset_delta=claims)
    if codec != "none":
        wrong = compressed(
            3, gzip.compress(pack_records([record(i) for i in range(3)])), "gzip", 3, last_offset_delta=claims
        )
    decoded = DecodedLog(records_of(3) + wrong + records_of(2, 6) + records_of(3, 8))
    assert decoded.offsets == list(range(11))
    (fault,) = decoded.faults
    assert (fault.kind, fault.offset, fault.length, fault.rows_lost) == (
        Kind.ORDER,
        len(records_of(3)),
        HEAD_SIZE,
        0,
    )
    assert f"last_offset_delta is {claims}" in fault.detail
    assert "the next batch starts at 6" in fault.detail
    assert not decoded.damage
    assert decoded.frames.column("last_offset_delta").to_pylist()[1] == claims
    assert decoded.encoded() == decoded.data


def test_last_offset_delta_that_claims_the_next_segment_is_a_fault_of_its_header() -> None:
    decoded = DecodedLog(records_of(3) + records_of(3, 3, last_offset_delta=4), next_base=6)
    assert decoded.offsets == list(range(6))
    assert [fault.offset for fault in decoded.faults] == [len(records_of(3))]
    assert "the next segment starts at 6" in decoded.faults[0].detail


@pytest.mark.parametrize("delta", [-7, -1, 0, 1])
def test_last_offset_delta_below_the_records_is_a_warning_and_costs_no_record(delta: int) -> None:
    for rest in (records_of(2, 6), b""):
        decoded = DecodedLog(records_of(3) + records_of(3, 3, last_offset_delta=delta) + rest)
        assert decoded.offsets == list(range(8 if rest else 6))
        (fault,) = decoded.faults
        assert fault.offset == len(records_of(3))
        assert (
            f"last_offset_delta is {delta}, but the last record of the batch has offset delta 2"
            in fault.detail
        )
        assert not decoded.damage


def test_offsets_left_claimed_by_compaction_are_no_fault() -> None:
    compacted = batch(3, [record(0), record(2)], last_offset_delta=7)
    decoded = DecodedLog(records_of(3) + compacted + records_of(2, 11))
    assert decoded.offsets == [0, 1, 2, 3, 5, 11, 12]
    assert not decoded.faults
    assert not decoded.damage


def test_misplaced_batch_after_a_compacted_one_is_the_damaged_one() -> None:
    """The header of the first one is plausible: the next batch fits after its claimed offsets, but does not continue after its records."""
    compacted = batch(3, [record(0), record(2)], last_offset_delta=9)
    decoded = DecodedLog(records_of(3) + compacted + records_of(2, 9) + records_of(2, 15))
    assert decoded.offsets == [0, 1, 2, 3, 5, 15, 16]
    assert [fault.offset for fault in decoded.damage] == [len(records_of(3) + compacted)]


def test_negative_last_offset_delta_without_records_is_damage() -> None:
    decoded = DecodedLog(batch(5, [], records_count=0, last_offset_delta=-2) + batch(6))
    assert [fault.kind for fault in decoded.damage] == [Kind.ORDER]
    assert decoded.offsets == [6]


def test_header_is_compared_with_the_next_batch_across_windows() -> None:
    first, second = records_of(3, last_offset_delta=4), records_of(2, 3)
    data = first + second
    scan_context = context()
    frames = CODEC.scan(window(first, size=len(data)), 0, scan_context)
    assert (len(frames), frames.need) == (0, len(first) + HEAD_SIZE)
    frames = CODEC.scan(window(data), 0, scan_context)
    assert (len(frames), [fault.offset for fault in frames.faults]) == (2, [0])


def test_order_is_kept_across_windows() -> None:
    scan_context = context()
    assert len(CODEC.scan(window(THREE[0], size=1000), 0, scan_context)) == 1
    frames = CODEC.scan(window(batch(2), len(THREE[0])), 0, scan_context)
    assert frames.damage is not None
    assert frames.damage.kind is Kind.ORDER
    # Reading the same position twice is no step back.
    assert CODEC.scan(window(THREE[0], size=1000), 0, scan_context).damage is None


def test_gap_at_the_end_of_a_window_is_judged_with_the_next_window() -> None:
    first, second = batch(0), batch(50)
    data = first + second + batch(60)
    frames = CODEC.scan(window((first + second), size=len(data)), 0, context())
    assert (len(frames), frames.stop, frames.need) == (1, len(first), len(second) + HEAD_SIZE)
    assert starts(data) == [0, len(first), len(first) + len(second)]


# Finding the next batch


def inside(payload: bytes, **fields: Any) -> bytes:
    return batch(1, [record(0, value=payload)], **fields)


def test_batches_inside_a_value_are_no_batches() -> None:
    log = b"".join(batch(2 + i) for i in range(3))
    data = batch(0) + inside(log) + batch(7)
    assert DecodedLog(data).offsets == [0, 1, 7]
    hurt = bytearray(data)
    hurt[len(batch(0)) + HEAD_SIZE] ^= 0x40  # The checksum is wrong, the length is right.
    assert DecodedLog(bytes(hurt)).offsets == [0, 7]
    longer = flipped(data, "batch_length", len(data), len(batch(0)))
    assert DecodedLog(longer).offsets == [0, 7]
    for cut in range(len(batch(0)), len(data) - len(batch(7))):
        assert DecodedLog(data[:cut]).offsets == [0]


def test_batches_hidden_by_a_wrong_length_are_found() -> None:
    same = [batch(i) for i in range(6)]
    data = b"".join(same)
    # The second claims to contain the third and fourth, and a good one follows there.
    wrong = flipped(data, "batch_length", 3 * len(same[0]) - 12, len(same[0]))
    assert DecodedLog(wrong).offsets == [0, 2, 3, 4, 5]


def test_good_batch_between_two_damaged_ones_is_found() -> None:
    same = [batch(i, [record(value=bytes([i]) * 30)]) for i in range(5)]
    hurt = bytearray(b"".join(same))
    size = len(same[0])
    for i in (1, 3):
        hurt[i * size + 70] ^= 1
    hurt[3 * size + 9] ^= 8
    assert DecodedLog(bytes(hurt)).offsets == [0, 2, 4]


def test_resync_asks_for_missing_bytes() -> None:
    big = batch(9, [record(0, value=bytes(500))])
    data = b"junk" * 20 + big + batch(10)
    for cut in range(90, len(data)):
        place, need = CODEC.resync(window(data[:cut], size=len(data)), 0, context(f"{9:020}.log"))
        if place >= 0:
            assert place == 80
            assert (need == 0) == (cut >= 80 + len(big) + HEAD_SIZE)
            assert not need or cut - 80 < need <= len(data) - 80
        else:
            assert 0 < need <= cut, "what may still be the start of a batch is kept"
    assert CODEC.resync(window(b"junk" * 20), 0, context()) == (-1, 0)


@pytest.mark.parametrize("pattern", ["fakes", "batches in a value", "noise", "zeros"])
def test_salvage_takes_linear_time(pattern: str) -> None:
    size = 1 << 20
    if pattern == "fakes":
        # Headers, each of which claims all the rest.
        head = bytearray(batch(1)[:HEAD_SIZE])
        pieces = []
        for at in range(0, size, HEAD_SIZE):
            head[8:12] = (size + 200 - at - 12).to_bytes(4, "big")
            pieces.append(bytes(head))
        body = b"".join(pieces)
    elif pattern == "batches in a value":
        body = inside(b"".join(batch(2 + i, [], records_count=0) for i in range(size // HEAD_SIZE)))
        body = body[:70] + b"\xff" + body[71:]
    elif pattern == "noise":
        body = np.random.default_rng(1).integers(0, 256, size, np.uint8).tobytes()
    else:
        body = bytes(size)
    data = batch(0) + body + b"\0" * 61 + batch(1 << 20)
    CODEC.resync(window(FILE), 1, context())  # Compiles the kernels.
    started = time.process_time()
    place = CODEC.resync(window(data), len(batch(0)) + 1, context())[0]
    assert time.process_time() - started < 5
    if pattern != "batches in a value":
        assert place == len(data) - len(batch(1 << 20))


# Names and hints


@pytest.mark.parametrize(
    ("name", "head", "match"),
    [
        (NAME, b"", Match.NAME),
        (NAME, FILE, Match.SURE),
        (f"{NAME}.swap", FILE, Match.SURE),
        ("00000000000000000010-0000000001.checkpoint", FILE, Match.SURE),
        ("copy.log", FILE, Match.SURE),
        ("copy.log", b"2025-11-21 INFO started", Match.NO),
        ("copy.log", FILE[:60], Match.NO),  # Too short for the header of a batch.
        ("copy.log", MESSAGE, Match.SURE),
        ("copy.log", MESSAGE[:100], Match.MAYBE),  # The checksum covers more bytes.
        (NAME, MESSAGE[:100], Match.SURE),
        ("copy.bin", FILE, Match.MAYBE),
        ("00000000000000000000.index", b"", Match.NO),
    ],
)
def test_recognised_names_and_bytes(name: str, head: bytes, match: Match) -> None:
    assert CODEC.recognise(name, head) == match


@pytest.mark.parametrize(
    ("directory", "topic", "partition"),
    [("orders-0", "orders", 0), ("a.b-c-12", "a.b-c", 12), ("data", None, None),
     (f"orders-3.{'0' * 32}-delete", "orders", 3)],
)  # fmt: skip
def test_topic_and_partition_come_from_the_directory(
    directory: str, topic: str | None, partition: int | None
) -> None:
    decoded = context(directory=directory)
    assert (decoded.topic, decoded.partition, decoded.base_offset) == (topic, partition, 0)


def test_unknown_hints_are_refused() -> None:
    with pytest.raises(UsageError, match="no hint 'colour'"):
        context(colour="red")


def test_lost_offsets_are_those_between_the_frames() -> None:
    frames = CODEC.scan(window(FILE), 0, context())
    first, second, third = (frames.pick(slice(i, i + 1)) for i in range(3))
    assert CODEC.loss_between(Around(first, third), context()) == (
        None,
        {"topic": "orders", "partition": 0, "first_offset": 3, "last_offset": 3},
    )
    assert CODEC.loss_between(Around(first, second), context()) == (0, {})
    assert CODEC.loss_between(Around(), context(next_base=9))[1]["last_offset"] == 8


def test_batch_headers_bound_offsets_and_timestamps() -> None:
    append = batch(9, [record(0), record(1)], attributes=0x08, max_timestamp=77)
    frames = CODEC.scan(window(THREE[0] + append), 0, context())
    low, high = CODEC.frame_bounds(frames, "offset")
    assert (low.tolist(), high.tolist()) == ([0, 9], [2, 10])
    low, high = CODEC.frame_bounds(frames, "timestamp")
    assert (low[1], high[1]) == (77, 77)
    assert high[0] == 1_700_000_000_000
    assert CODEC.frame_bounds(frames, "key") == (None, None)
    # A first record above the largest timestamp: nothing is known.
    odd = CODEC.scan(window(batch(0, max_timestamp=5)), 0, context())
    assert CODEC.frame_bounds(odd, "timestamp")[1][0] == (1 << 63) - 1


def test_compressed_batches_scan_alike() -> None:
    packed_batch = compressed(0, b"whatever", "zstd", 1)
    assert starts(packed_batch + reseal(packed_batch.replace(b"\0" * 8, (9).to_bytes(8, "big"), 1))) == [
        0,
        len(packed_batch),
    ]
