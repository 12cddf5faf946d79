"""Text files and snapshots of a partition, exactly as Kafka's readers accept or refuse them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from kafka_log import as_heads

from logwright.codec.fault import Kind, UsageError
from logwright.codec.kafka.formats import partition_metadata as metadata
from logwright.codec.kafka.formats import producer_snapshot as snapshot
from logwright.codec.kafka.formats.checkpoint import LEADER_EPOCH, OFFSETS
from logwright.codec.kafka.formats.log.layout import HEAD
from logwright.codec.kafka.formats.log.markers import MARKER
from logwright.codec.kafka.state.producers import Producer, ProducerState
from logwright.codec.single_frame import ParseError

ID = "q83vASNFZ4mrze8BI0VniQ"


@pytest.mark.parametrize(
    ("data", "offset", "kind"),
    [
        (b"1\n0\n", 0, Kind.MAGIC),
        (b" 0\n0\n", 0, Kind.PAYLOAD),
        (b"x\n", 0, Kind.PAYLOAD),
        (b"0\n\n", 2, Kind.PAYLOAD),
        (b"0\n-1\n", 2, Kind.LENGTH),
        (b"0\n1\n0 0\n1 1\n", 2, Kind.LENGTH),
        (b"0\n2\n0 0\n1 1\n\n", 12, Kind.PAYLOAD),
        (b"0\r\n1\r\n0 0 0\r\n", 6, Kind.PAYLOAD),
        (b"0\n1\n0 9223372036854775808\n", 4, Kind.PAYLOAD),
        (b"0\n1\n2147483648 0\n", 4, Kind.PAYLOAD),
        (b"0\n1\n0 -1\n", 4, Kind.PAYLOAD),
        (b"0\n1\n0 " + b"9" * 5000 + b"\n", 4, Kind.PAYLOAD),
        (b"0\n1\n0 0\xff\n", 7, Kind.PAYLOAD),
    ],
)
def test_malformed_leader_epochs_are_refused_with_their_offset(data: bytes, offset: int, kind: Kind) -> None:
    with pytest.raises(ParseError) as caught:
        LEADER_EPOCH.unpack(data)
    assert (caught.value.offset, caught.value.kind) == (offset, kind)


@pytest.mark.parametrize("data", [b"0\n1\n0 7\n", b"0\r1\r+0\t\x0b007 \r", b"0\n1\n0 " + b"0" * 5000 + b"7"])
def test_leader_epochs_are_parsed_as_java_parses_numbers(data: bytes) -> None:
    assert LEADER_EPOCH.unpack(data) == [(0, 7)]


def test_invalid_epochs_stop_the_broker_or_take_the_directory_offline() -> None:
    """An entry that is not a number is a NumberFormatException, everything else an IOException."""
    for form, number in ((LEADER_EPOCH, b"0\n1\n0 x\n"), (OFFSETS, b"0\n1\na 0 x\n")):
        with pytest.raises(ParseError) as caught:
            form.unpack(number)
        assert caught.value.system == form.no_number
        with pytest.raises(ParseError) as caught:
            form.unpack(b"0\n1\nx\n")
        assert caught.value.system == "", "as the codec says"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (f"version: 0\ntopic_id: {ID}", (0, ID)),
        (f"version: 3\r\ntopic_id:\t {ID}\r\n", (3, ID)),
        (f"any: 0\nname: {ID}==\nand more", (0, ID + "==")),
    ],
)
def test_topic_ids_are_parsed_as_java_does(data: str, expected: tuple[int, str]) -> None:
    assert metadata.unpack(data.encode()) == expected


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("", "empty"),
        ("version: 0", "missing"),
        (f"version: -1\ntopic_id: {ID}", "version -1"),
        (f"version: x\ntopic_id: {ID}", "number"),
        (f"version:0\ntopic_id: {ID}", "`name: value`"),
        (f"topic_id: {ID}\nversion: 0", "number"),
        (f"version: 0\ntopic_id:{ID}", "`name: value`"),
        (f"version: 0\ntopic_id: {ID[:-1]}", "expected a topic id"),
        (f"version: 0\ntopic_id: {ID[:-1]}+", "expected a topic id"),
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "zero"),
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAB", "zero"),
    ],
)
def test_malformed_partition_metadata_is_refused(data: str, text: str) -> None:
    with pytest.raises(ParseError, match=text):
        metadata.unpack(data.encode())


def test_topic_id_is_checked_on_writing() -> None:
    def written(**row: Any) -> bytes:
        rows = pa.Table.from_pylist([row], schema=metadata.CODEC.tables["rows"].schema())
        return b"".join(map(bytes, metadata.CODEC.encode(rows, None, None, None)))

    assert written(version=0, topic_id=ID) == f"version: 0\ntopic_id: {ID}".encode()
    for row in ({"version": 0, "topic_id": "x"}, {"version": -1, "topic_id": ID}):
        with pytest.raises(UsageError):
            written(**row)


# Producer snapshots


def test_snapshot_without_producers_has_the_bytes_of_a_broker() -> None:
    assert ProducerState().snapshot_bytes().hex() == "000148674bc700000000"


def test_producer_snapshot_columns_equal_its_description() -> None:
    entry = dict(zip(snapshot.ENTRY.names or (), range(1, 9), strict=True))
    data = snapshot.PRODUCER_SNAPSHOT.pack({"count": 2, "entries": [entry, entry]})
    assert snapshot.pack(snapshot.unpack(data)) == data
    assert snapshot.CODEC.parse(data).to_pylist() == [entry, entry]
    assert snapshot.CODEC.form(snapshot.CODEC.parse(data)) == data


def test_entries_are_loaded_as_by_a_broker() -> None:
    """Without a last offset there is no batch. Of two entries of a producer the last one counts."""
    names = snapshot.ENTRY.names or ()
    entries = np.array([(5, 1, 7, 9, 0, 3, 2, -1), (5, 2, 7, -4, 3, 6, 2, -9)], snapshot.ENTRY)
    assert names[0] == "producer_id"
    state = ProducerState()
    state.load(snapshot.pack(entries))
    assert state.producers == {5: Producer(2, -1, -1, 0, 6, 2, -1)}
    with pytest.raises(ParseError):
        state.load(b"")
    assert set(state.producers) == {5}


def test_hundreds_of_thousands_of_producers_load_in_seconds() -> None:
    count = 300_000
    header = np.zeros(count, HEAD)
    header["producer_id"] = np.arange(count) * 3
    header["base_offset"] = np.arange(count)
    state = ProducerState()
    started = time.perf_counter()
    state.add(as_heads(header), np.empty(0, MARKER))
    data = state.snapshot_bytes()
    restored = ProducerState()
    restored.load(data)
    assert restored.snapshot_bytes() == data
    assert time.perf_counter() - started < 30
