"""The small files of a partition: errors are reported, and odd but legal contents round-trip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from kafka_golden import CASES

import logwright as lw
from logwright.codec import registry
from logwright.codec.kafka.formats.checkpoint import LEADER_EPOCH, OFFSETS
from logwright.codec.kafka.formats.partition_metadata import is_topic_id
from logwright.codec.option import Options
from logwright.codec.single_frame import ParseError

INDEX, TIMEINDEX, TXNINDEX = (
    "00000000000000000020.index",
    "00000000000000000020.timeindex",
    "00000000000000000020.txnindex",
)


def reencoded(path: Path) -> bytes:
    """Decode the file to its three tables and encode it from them."""
    name = lw.detect(path)
    assert name is not None
    codec = registry.get(name)
    tables = [
        lw.scan(path, view=view, columns="*", mode="DROPMALFORMED").to_table()
        for view in ("rows", "frames", "file")
    ]
    return b"".join(
        bytes(part) for part in codec.encode(*tables, codec.context(path.name, Options(codec.options)))
    )


def put(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def entries(*pairs: tuple[int, int], widths: tuple[int, int] = (4, 4)) -> bytes:
    return b"".join(
        a.to_bytes(widths[0], "big", signed=True) + b.to_bytes(widths[1], "big") for a, b in pairs
    )


def resealed(covered: bytes) -> bytes:
    """Pack a producer snapshot with a correct checksum."""
    return b"\0\1" + crc32c(covered).to_bytes(4, "big") + covered


def test_index_offsets_are_absolute(tmp_path: Path) -> None:
    path = put(tmp_path, INDEX, entries((3, 153), (5, 303)))
    assert lw.read(path).to_pylist() == [{"offset": 23, "position": 153}, {"offset": 25, "position": 303}]
    assert reencoded(path) == path.read_bytes()


@pytest.mark.parametrize("zeros", [0, 8, 4096])
def test_preallocated_index_has_the_entries_before_its_zeros(tmp_path: Path, zeros: int) -> None:
    path = put(tmp_path, INDEX, entries((3, 256), (5, 512)) + bytes(zeros))
    assert lw.read(path).num_rows == 2
    report = lw.verify(path)
    assert report.ok
    assert reencoded(path) == path.read_bytes()


def test_index_of_zeros_is_empty(tmp_path: Path) -> None:
    path = put(tmp_path, INDEX, bytes(80))
    assert lw.read(path).num_rows == 0
    assert reencoded(path) == path.read_bytes()


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        (INDEX, entries((5, 100), (5, 200)), "bad order"),
        (INDEX, entries((5, 100), (6, 100)), "bad order"),
        (TIMEINDEX, entries((9, 1), (8, 2), widths=(8, 4)), "bad order"),
        (TIMEINDEX, entries((8, 3), (9, 2), widths=(8, 4)), "bad order"),
        (TXNINDEX, b"\x01" + bytes(33), "bad magic or version"),
        ("00000000000000000020.snapshot", b"\x00\x02" + bytes(8), "bad magic or version"),
        ("00000000000000000020.snapshot", b"\x00\x01" + bytes(8), "checksum mismatch"),
        ("00000000000000000020.snapshot", b"\x00\x01", "truncated"),
        ("00000000000000000020.snapshot", resealed(b"\x00\x00\x00\x02" + bytes(44)), "bad length"),
        ("00000000000000000020.snapshot", resealed(b"\xff\xff\xff\xff"), "bad length"),
        ("leader-epoch-checkpoint", b"1\n0\n", "bad magic or version"),
        ("leader-epoch-checkpoint", b"0\n2\n0 0\n", "bad length"),
        ("leader-epoch-checkpoint", b"0\n1\n0 0\n\n", "bad payload"),
        ("leader-epoch-checkpoint", b"0\n1\n 0 0\n", "bad payload"),
        ("leader-epoch-checkpoint", b"0\n1\n0 x\n", "bad payload"),
        ("partition.metadata", b"", "bad payload"),
        ("partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "bad payload"),
        ("partition.metadata", b"version:0\n", "bad payload"),
    ],
)
def test_damaged_small_file_is_reported_with_its_kind(
    tmp_path: Path, name: str, content: bytes, kind: str
) -> None:
    path = put(tmp_path, name, content)
    report = lw.verify(path)
    assert not report.ok
    assert [str(fault.kind) for _, fault in report.faults] == [kind]
    with pytest.raises(lw.DamageError) as error:
        lw.read(path)
    assert str(path) in str(error.value)


def test_partial_last_entry_is_ignored_as_by_readers(tmp_path: Path) -> None:
    path = put(tmp_path, INDEX, entries((3, 256)) + b"\x00\x00\x01")
    assert lw.scan(path).to_table().num_rows == 1
    assert reencoded(path) == path.read_bytes()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"0\n",
        b"0\n0\n",
        b"0\r\n2\r\n0 0\r\n2 5\r\n",
        b"0\n1\n0 7",
        b"0\n2\n5 9\n0 3\n",
        b"0\n1\n+1\t7 \n",
    ],
)
def test_odd_but_legal_checkpoints_round_trip(tmp_path: Path, content: bytes) -> None:
    path = put(tmp_path, "leader-epoch-checkpoint", content)
    assert lw.verify(path).ok
    assert reencoded(path) == content


def test_edit_of_a_checkpoint_counts(tmp_path: Path) -> None:
    path = put(tmp_path, "leader-epoch-checkpoint", b"0\r\n1\r\n0 0\r\n")
    codec = registry.get("kafka.leader_epoch_checkpoint")
    frames = lw.read(path, view="frames", columns="*")
    rows = pa.table({"epoch": pa.array([1], pa.int32()), "start_offset": [7]})
    assert b"".join(map(bytes, codec.encode(rows, frames, None, None))) == b"0\n1\n1 7\n"


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))))
def test_leader_epochs_round_trip(pairs: list[tuple[int, int]]) -> None:
    assert LEADER_EPOCH.unpack(LEADER_EPOCH.pack(pairs)) == pairs


@given(
    st.lists(
        st.tuples(
            st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True),
            st.integers(0, 9),
            st.integers(-1, 2**63 - 1),
        )
    )
)
def test_offset_checkpoints_round_trip(lines: list[Any]) -> None:
    assert OFFSETS.unpack(OFFSETS.pack(lines)) == lines


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        values = LEADER_EPOCH.unpack(data)
    except ParseError as error:
        place = error.offset
    else:
        place = 0
        assert LEADER_EPOCH.unpack(LEADER_EPOCH.pack(values)) == values
    assert 0 <= place <= len(data)


def test_topic_ids_round_trip() -> None:
    assert is_topic_id("q83vASNFZ4mrze8BI0VniQ")
    assert not is_topic_id("AAAAAAAAAAAAAAAAAAAAAA")
    assert not is_topic_id("q83vASNFZ4mrze8BI0Vni")
    assert not is_topic_id("q83vASNFZ4mrze8BI0Vn=Q")


def test_offsets_below_the_base_are_refused_on_writing() -> None:
    codec = registry.get("kafka.index")
    context = codec.context(INDEX, Options(codec.options))
    rows = pa.table({"offset": [2**40], "position": pa.array([0], pa.int32())})
    with pytest.raises(lw.UsageError, match="32 bits"):
        b"".join(map(bytes, codec.encode(rows, None, None, context)))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(-1, "q83vASNFZ4mrze8BI0VniQ")], "version -1 is below 0"),
        ([(0, "q83vASNFZ4mrze8BI0Vni")], "is not a UUID in URL-safe base64"),
        ([], "a file has one row, found 0"),
        ([(0, "q83vASNFZ4mrze8BI0VniQ")] * 2, "a file has one row, found 2"),
    ],
)
def test_topic_id_without_a_valid_file_is_refused(rows: list[tuple[int, str]], message: str) -> None:
    codec = registry.get("kafka.partition_metadata")
    table = pa.table(
        {"version": pa.array([v for v, _ in rows], pa.int32()), "topic_id": [t for _, t in rows]}
    )
    if not rows:
        table = table.set_column(1, "topic_id", pa.array([], pa.string()))
    with pytest.raises(lw.UsageError, match=message):
        b"".join(map(bytes, codec.encode(table, None, None, None)))


# The files of a log directory


@pytest.mark.parametrize(
    "name",
    [
        "logdir_0.9.0.1",
        "logdir_0.10.2.2",
        "logdir_0.11.0.3",
        "logdir_2.8.2",
        "logdir_39",
        "logdir_43",
    ],
)
def test_identities_of_log_directories_round_trip(name: str) -> None:
    path = CASES[name].path / "data" / "meta.properties"
    (row,) = lw.read(path).to_pylist()
    stored = dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
    assert row == {
        "version": int(stored["version"]),
        "cluster_id": stored.get("cluster.id"),
        "node_id": int(stored.get("node.id") or stored["broker.id"]),
        "directory_id": stored.get("directory.id"),
    }
    assert reencoded(path) == path.read_bytes()


def test_rows_alone_write_an_identity_that_the_broker_reads(tmp_path: Path) -> None:
    row = {"version": 1, "cluster_id": " a=b\\\u00fc\U0001f600", "node_id": 3, "directory_id": None}
    path = tmp_path / "meta.properties"
    lw.write([row], path, "kafka.meta_properties")
    expected = b"cluster.id=\\ a\\=b\\\\\\u00FC\\uD83D\\uDE00\nnode.id=3\nversion=1\n"
    assert path.read_bytes() == expected
    assert lw.read(path).to_pylist() == [row]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"broker.id=0\n", None),
        (b"", "it has neither node.id nor broker.id"),
        (b"version=0\ncluster.id=x\n", "it has neither node.id nor broker.id"),
        (b"version=2\n", "Unknown meta.properties version number 2"),
        (b"version=1\nnode.id=1\n", "cluster.id was not found"),
        (b"version=1\ncluster.id=x\n", "Failed to find node.id"),
        (b"version=1\ncluster.id=x\nnode.id=one\n", "Unable to read node.id as a base-10 number"),
        (b"cluster.id=\\u12\n", "Malformed"),
        (b"directory.id=short\n", "Unable to read directory.id as a Uuid"),
        (b"broker.id=0\nrack=7\n", "unknown property 'rack'"),
    ],
)
def test_faults_of_an_identity_are_those_of_the_broker(
    tmp_path: Path, content: bytes, fault: str | None
) -> None:
    report = lw.verify(put(tmp_path, "meta.properties", content))
    details = [each["detail"] for file in report["files"] for each in file["faults"]]
    assert len(details) == (fault is not None)
    assert fault is None or fault in details[0]
    assert reencoded(tmp_path / "meta.properties") == content


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"version": 2}, "version 2, expected 0 or 1"),
        ({"node_id": None}, "node_id is null"),
        ({"cluster_id": None}, "cluster_id is null, but version 1 must have it"),
        ({"directory_id": "short"}, "'short' is not a UUID"),
    ],
)
def test_identities_that_no_broker_reads_are_refused(
    tmp_path: Path, row: dict[str, Any], reason: str
) -> None:
    schema = registry.get("kafka.meta_properties").tables["rows"].schema()
    identity = {"version": 1, "cluster_id": "c", "node_id": 3, "directory_id": None}
    with pytest.raises(lw.UsageError, match=reason):
        lw.write(
            pa.Table.from_pylist([{**identity, **row}], schema=schema),
            tmp_path / "meta.properties",
            "kafka.meta_properties",
        )


@pytest.mark.parametrize("name", ["cluster_metadata_39", "cluster_metadata_43"])
def test_votes_of_kraft_nodes_round_trip(name: str, tmp_path: Path) -> None:
    path = CASES[name].path / "data" / "__cluster_metadata-0" / "quorum-state"
    assert reencoded(path) == path.read_bytes()
    lw.write(lw.read(path), tmp_path / "quorum-state", "kafka.quorum_state")
    assert (tmp_path / "quorum-state").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    "row",
    [
        {"data_version": 2},
        {"data_version": 1, "applied_offset": 0},
        {"data_version": 0, "voted_directory_id": "JsBZJBOhQL6YO1DSdDfXHQ"},
        {"data_version": 1, "voted_directory_id": "short"},
        {"data_version": 1, "voted_id": -7},
        {"data_version": 0, "current_voters": [None]},
    ],
)
def test_votes_that_no_file_can_hold_are_refused(tmp_path: Path, row: dict[str, Any]) -> None:
    schema = registry.get("kafka.quorum_state").tables["rows"].schema()
    table = pa.Table.from_pylist([{"leader_epoch": 1, **row}], schema=schema)
    with pytest.raises(lw.UsageError):
        lw.write(table, tmp_path / "quorum-state", "kafka.quorum_state")


def test_surrogates_without_a_partner_become_replacement_characters(tmp_path: Path) -> None:
    path = put(tmp_path, "meta.properties", b"broker.id=0\ncluster.id=\\uD83D\\uDE00\\uD800\n")
    assert lw.read(path)["cluster_id"].to_pylist() == ["\U0001f600\ufffd"]
    assert reencoded(path) == path.read_bytes()
