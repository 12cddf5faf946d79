"""The codec `zookeeper.txnlog`: damage, and the search for the records after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from zookeeper_logs import faults_of, log_of, payload_of, record_of, specimen_of, with_damage

from logwright.codec.fault import Severity, UsageError
from logwright.codec.option import Options
from logwright.codec.window import Window
from logwright.codec.zookeeper.formats.txnlog import layout as txns
from logwright.codec.zookeeper.formats.txnlog import scan as records
from logwright.codec.zookeeper.formats.txnlog.codec import CODEC
from logwright.codec.zookeeper.formats.txnlog.layout import FILE_HEADER
from logwright.roundtrip.laws import any_split

# Past damage


def test_log_embedded_in_a_nodes_data() -> None:
    inner = log_of(*(payload_of(zxid) for zxid in range(3, 9)))
    body = {"path": b"/log", "data": inner, "acl": None, "ephemeral": 0, "parent_cversion": 1}
    before, outer, after = payload_of(1), payload_of(2, txns.CREATE, body), payload_of(3)
    data = log_of(before, outer, after)
    start, end = 16 + len(record_of(before)), 16 + len(record_of(before)) + len(record_of(outer))
    flips = {
        "body": (end - 3, b"\xff"), "checksum": (start + 7, b"\0"), "high": (start, b"\1"), "length": (start + 10, b"\x07"),
        "huge": (start + 8, b"\x7f"), "mark": (end - 1, b"C"), "zero": (start + 8, bytes(4)),
    }  # fmt: skip
    for name, (at, new) in flips.items():
        specimen = specimen_of(with_damage(data, at, new))
        result = specimen.read()
        assert result.table["zxid"].to_pylist() == [1, 3], name
        (fault,) = result.report.faults
        assert (fault.offset, fault.length) == (start, end - start), name
        assert dict(fault.lost) == {"first_zxid": 2, "last_zxid": 2}


def test_record_after_damage_must_follow_in_order() -> None:
    """Both the length and the data are damaged: the record is identified by its zxid, or by the record it leads to."""
    inner = log_of(*(payload_of(zxid) for zxid in range(700, 706)))
    body = {"path": b"/log", "data": inner, "acl": None, "ephemeral": 0, "parent_cversion": 1}
    before, outer, after = payload_of(1), payload_of(2, txns.CREATE, body), payload_of(3)
    data = log_of(before, outer, after)
    start = 16 + len(record_of(before))
    broken = with_damage(with_damage(data, start + 10, b"\xff"), start + 20, b"\xff")
    assert specimen_of(broken).read().table["zxid"].to_pylist() == [1, 3]
    # The first one is damaged: the file's name says what may follow.
    first = log_of(outer, after)
    broken = with_damage(with_damage(first, 16 + 10, b"\xff"), 16 + 20, b"\xff")
    assert specimen_of(broken, "log.2").read().table["zxid"].to_pylist() == [3]
    # Without a name, what leads to the end of the log is taken.
    assert specimen_of(broken, "memory").read().table["zxid"].to_pylist() == [3]
    # A record with a zxid out of order, at the end.
    odd = log_of(payload_of(1), payload_of(2), payload_of(90))
    assert specimen_of(with_damage(odd, 16 + 49 + 20, b"\xff")).read().table["zxid"].to_pylist() == [1, 90]
    padded = with_damage(odd, 16 + 49 + 20, b"\xff") + bytes(40)
    assert specimen_of(padded).read().table["zxid"].to_pylist() == [1, 90]
    jump = log_of(payload_of(1), payload_of(2), payload_of(5 << 32 | 1), payload_of(5 << 32 | 2))
    specimen = specimen_of(with_damage(jump, 16 + 49 + 20, b"\xff"))
    assert specimen.read().table["zxid"].to_pylist() == [1, 5 << 32 | 1, 5 << 32 | 2]
    (fault,) = specimen.read().report.faults
    assert (fault.rows_lost, dict(fault.lost)) == (None, {"first_zxid": 2})
    late = log_of(payload_of(1), payload_of(2), payload_of(5 << 32 | 2))
    (fault,) = specimen_of(with_damage(late, 16 + 49 + 20, b"\xff")).read().report.faults
    assert dict(fault.lost) == {"first_zxid": 2, "last_zxid": 5 << 32 | 1}


def test_earlier_records_after_damage_count_if_they_lead_to_the_end_of_the_log() -> None:
    """A window that ends among them does not decide it, and more of them than a node can hold count in any case."""
    new = log_of(*(payload_of(zxid) for zxid in range(700, 710)))
    old = b"".join(record_of(payload_of(zxid)) for zxid in range(1, 200))
    many = np.tile(np.frombuffer(old, np.uint8), records.LONGEST_DATA // len(old) + 1).tobytes()
    for earlier, ending, counts in (
        (old, b"", True), (old, bytes(20_000), True), (old, b"\xff" * 20_000, False), (many, b"\xff" * 50, True),
    ):  # fmt: skip
        specimen = specimen_of(new + b"\xff" * 50 + earlier + ending, "log.700")
        expected = 10 + len(earlier) // 49 * counts
        for window in (4096, 10_000, 1 << 22):
            assert specimen.read(window=window).table.num_rows == expected


def test_lost_zxid_range_at_the_start_and_the_end() -> None:
    data = log_of(payload_of(5), payload_of(6), payload_of(7))
    broken = with_damage(data, 16 + 20, b"\xff")
    assert dict(specimen_of(broken, "log.5").read().report.faults[0].lost) == {
        "first_zxid": 5,
        "last_zxid": 5,
    }
    assert dict(specimen_of(broken, "memory").read().report.faults[0].lost) == {"last_zxid": 5}
    last = with_damage(data, len(data) - 10, b"\x77")
    assert dict(specimen_of(last, "log.5").read().report.faults[0].lost) == {"first_zxid": 7}
    # The second of two that are the same is damaged, and what follows is no more than that.
    second = log_of(payload_of(5), payload_of(5), payload_of(5))
    (fault,) = faults_of(specimen_of(with_damage(second, 16 + 49 + 20, b"\xff"), "log.5"))
    assert (fault.rows_lost, dict(fault.lost)) == (None, {})
    wrong = with_damage(log_of(payload_of(5), payload_of(6)), 0, b"X")
    (fault,) = faults_of(specimen_of(wrong, "log.5"))
    assert (fault.rows_lost, dict(fault.lost)) == (0, {})


def test_false_headers_take_linear_time() -> None:
    """Each claims much of the file and has its end mark: checksums are not computed repeatedly."""
    size = 1 << 18
    data = bytearray(b"B" * size)
    data[:16] = FILE_HEADER.pack({})
    head = bytes(4) + b"\1\1\1\1" + (size // 2).to_bytes(4, "big") + bytes(28) + (1).to_bytes(4, "big")
    for at in range(16, size // 2 - 80, 64):
        data[at : at + len(head)] = head
    specimen = specimen_of(bytes(data))
    assert specimen.read().table.num_rows == 0
    good = bytes(data) + record_of(payload_of(4))
    assert specimen_of(good).read().table["zxid"].to_pylist() == [4]


def test_bytes_that_look_like_a_record() -> None:
    """Bytes after damage that look like a record header: unknown type, negative zxid, no end mark."""
    item = record_of(payload_of(1))
    unknown, negative, no_mark = bytearray(item), bytearray(record_of(payload_of(-5))), bytearray(item)
    unknown[40:44] = (22).to_bytes(4, "big")
    no_mark[-1] = 0x43
    for between in (unknown, negative, no_mark):
        data = log_of(payload_of(1)) + b"\xff" * 20 + bytes(between) + record_of(payload_of(2))
        assert specimen_of(data).read().table["zxid"].to_pylist() == [1, 2]


def test_records_larger_than_the_window_are_read() -> None:
    body = {"path": b"/a", "data": bytes(range(256)) * 80, "acl": None, "ephemeral": 0, "parent_cversion": 1}
    data = log_of(*(payload_of(zxid, txns.CREATE, body) for zxid in range(1, 9)))
    start = 16 + 2 * len(record_of(payload_of(1, txns.CREATE, body)))
    for broken in (data, with_damage(data, start + 50, b"\xff"), with_damage(data, start + 8, b"\0\xff")):
        specimen = specimen_of(broken + bytes(20_000))
        expected = specimen.read().table
        assert specimen.read(window=4096).table.equals(expected)
        assert expected.num_rows == (8 if broken is data else 7)


def test_resync_keeps_a_possible_start_at_the_window_end() -> None:
    context = CODEC.context("log.1", Options(CODEC.options))
    data = np.frombuffer(b"\1" * 100 + record_of(payload_of(1))[:30], np.uint8)
    place, need = CODEC.resync(Window(data, 16, 1000), 0, context)
    assert need == records.LEAST
    assert place <= 100 < place + need
    place, keep = CODEC.resync(Window(data[:105], 16, 1000), 0, context)
    assert (105 - keep if place < 0 else place) <= 100


def test_transaction_above_jute_maxbuffer() -> None:
    body = {"path": b"/a", "data": bytes(3000), "acl": None, "ephemeral": 0, "parent_cversion": 1}
    data = log_of(payload_of(1), payload_of(2, txns.CREATE, body), payload_of(3))
    small: dict[str, Any] = {"jute.maxbuffer": 1000, "jute.maxbuffer.extrasize": 1024}
    specimen = specimen_of(data, **small)
    assert specimen.read().table.num_rows == 3
    (fault,) = specimen.read().report.faults
    assert "Unreasonable length = " in fault.detail
    assert fault.severity is Severity.WARNING
    assert specimen_of(data).read().report.faults == []
    assert specimen_of(data, **dict[str, Any]({"jute.maxbuffer": 2000})).read().report.faults == []
    # It must be whole to be taken.
    for at, new in ((16 + 49 + 40, b"\xff"), (len(data) - 50, b"C")):
        (fault,) = specimen_of(with_damage(data, at, new), **small).read().report.faults
        assert fault.detail.startswith("Unreasonable length")


def test_record_without_a_mark_or_a_checksum() -> None:
    data = log_of(payload_of(1), payload_of(2), payload_of(3))
    both = with_damage(with_damage(data, 16 + 49 + 20, b"\xff"), 16 + 2 * 49 - 1, b"C")
    (fault,) = specimen_of(both).read().report.faults
    assert "and its checksum is wrong" in fault.detail
    short = log_of(b"tiny", payload_of(1))
    (fault,) = specimen_of(with_damage(short, 16 + 16, b"C")).read().report.faults
    assert "its checksum is right" in fault.detail
    # The last record says that it is longer than the file.
    (fault,) = specimen_of(with_damage(data, len(data) - 39, b"\x01")).read().report.faults
    assert "but its checksum matches 36 bytes" in fault.detail


def test_growing_log_of_a_running_server() -> None:
    data = log_of(payload_of(1), payload_of(2))[:-5]
    context = CODEC.context("log.1", Options(CODEC.options), live=True)
    frames = CODEC.scan(Window(np.frombuffer(data, np.uint8), 0, len(data)), 0, context)
    assert frames.damage is not None
    assert frames.damage.severity is Severity.INFO
    with pytest.raises(UsageError, match="no hint 'nothing'"):
        CODEC.context("log.1", Options(CODEC.options), nothing=1)


def test_scan_without_checksums_counts_damaged_records_and_requests_missing_bytes() -> None:
    data = np.frombuffer(with_damage(log_of(payload_of(1), payload_of(5)), 40, b"\xff"), np.uint8)
    context = CODEC.context("log.1", Options(CODEC.options))
    assert len(CODEC.scan(Window(data, 0, len(data)), 0, context, check=False)) == 3
    many = np.frombuffer(log_of(*(payload_of(n + 1) for n in range(100))), np.uint8)
    part = CODEC.scan(Window(many[:10], 0, len(many)), 0, context)
    assert (len(part), part.need) == (0, 16)
    part = CODEC.scan(Window(many[:20], 0, len(many)), 0, context)
    assert (len(part), part.need) == (1, records.BODY)
    part = CODEC.scan(Window(many[:50], 0, len(many)), 0, context)
    assert (len(part), part.need) == (1, 49)


def test_many_records_of_minimal_size(monkeypatch: pytest.MonkeyPatch) -> None:
    from logwright.codec.frames import scanner
    from logwright.codec.zookeeper.formats.txnlog import codec as txnlog

    monkeypatch.setattr(scanner, "_ROOM", 7)
    monkeypatch.setattr(txnlog, "PORTION", 200)
    data = log_of(*(payload_of(n + 1) for n in range(100)))
    specimen = specimen_of(data)
    assert specimen.read().table["zxid"].to_pylist() == list(range(1, 101))
    assert specimen.encode(*specimen.tables()) == data


@pytest.mark.parametrize("covered", [1, 2])
def test_records_inside_a_wrong_length_are_salvaged(covered: int) -> None:
    """The length ends where a later record does, so the end mark and the next record fit."""
    parts = [record_of(payload_of(zxid)) for zxid in range(1, 6)]
    data = FILE_HEADER.pack({}) + b"".join(parts)
    at = 16 + len(parts[0])
    wrong = len(b"".join(parts[1 : 2 + covered])) - 13
    specimen = specimen_of(with_damage(data, at + 8, wrong.to_bytes(4, "big")))
    (fault,) = faults_of(specimen)
    assert (fault.offset, fault.length) == (at, len(parts[1]))
    assert (
        fault.detail == f"the record's length is {wrong}, but its checksum matches {len(parts[1]) - 13} bytes"
    )
    assert specimen.read(columns="zxid").table["zxid"].to_pylist() == [1, 3, 4, 5]


@pytest.mark.parametrize("first", [45, 60, 5000, 3 << 32 | 7])
def test_parts_of_a_log_with_records_of_another_between_damage_give_the_same_rows(first: int) -> None:
    """Whether these records count depends on what precedes them, so the log is not divided."""
    own = [record_of(payload_of(zxid)) for zxid in range(10, 40)]
    others = [record_of(payload_of(zxid)) for zxid in range(first, first + 30)]
    data = log_of() + b"".join([*own, *others, *own[-1:]])
    start, end = 16 + 49 * len(own), 16 + 49 * (len(own) + len(others))
    for before, after in ((start - 20, end + 20), (start + 3, len(data) - 1), (start + 3, end - 20)):
        broken = with_damage(with_damage(data, before, b"\x80"), after, b"\x99")
        sizes = [len(broken) // parts + 1 for parts in (2, 3, 5, 9)]
        verdict = any_split(broken, CODEC, sizes=sizes, name="log.a")
        assert verdict, verdict
    healthy = log_of() + b"".join(own)
    assert len(specimen_of(healthy, "log.a").stretches(len(healthy) // 3)) > 2
