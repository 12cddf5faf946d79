"""The decoded views of internal topics: `__consumer_offsets`, `__transaction_state`, `__share_group_state`, `__cluster_metadata` and
`__remote_log_metadata`."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import kafka_json
import numpy as np
import pyarrow as pa
import pytest
from internal_rows import random_message
from kafka_golden import CASES

import logwright as lw
from logwright.codec.columns import contents
from logwright.codec.fault import DamageError, UsageError
from logwright.codec.kafka.formats.internal.definitions import CONTROL, TOPICS, Topic
from logwright.codec.kafka.formats.internal.offset_commits import offset_commits
from logwright.codec.kafka.formats.internal.records import OTHER_BYTES, decode, encode
from logwright.codec.kafka.formats.internal.schema import RecordType, fields
from logwright.codec.kafka.formats.internal.serde import write_uvarint
from logwright.codec.kafka.formats.internal.view import stored_rows
from logwright.codec.kafka.formats.payload import PayloadError

GOLDEN = {
    "consumer_offsets": "consumer_offsets",
    "consumer_offsets_28": "consumer_offsets",
    "transaction_state": "transaction_state",
    "transaction_state_28": "transaction_state",
    "share_group_state": "share_group_state",
    "cluster_metadata_39": "cluster_metadata",
    "cluster_metadata_43": "cluster_metadata",
}
GROUPS, TRANSACTIONS, METADATA = (
    kafka_json.topic_of(view) for view in ("consumer_offsets", "transaction_state", "cluster_metadata")
)
COMMIT = next(kind for kind in GROUPS.records if kind.name == "OFFSET_COMMIT")
EVERY = [
    pytest.param(topic, kind, version, id=f"{kind.name}-{version}")
    for topic in TOPICS
    for kind in topic.records
    for version in kind.versions
    if kind is not CONTROL
]


def _key(group: bytes = b"g", topic: bytes = b"t", partition: int = 0, kind: int = 1) -> bytes:
    texts = b"".join(len(text).to_bytes(2, "big") + text for text in (group, topic))
    return kind.to_bytes(2, "big") + texts + partition.to_bytes(4, "big")


def _commit(tags: bytes = b"\0", metadata: bytes = b"\1", version: int = 4) -> bytes:
    """A value of version 4, with these bytes for metadata and tags."""
    return version.to_bytes(2, "big") + bytes(7) + b"\7" + b"\xff" * 4 + metadata + bytes(8) + tags


def _write(folder: Path, *records: tuple[bytes | None, bytes | None], **options: Any) -> Path:
    path = folder / "__consumer_offsets-0"
    rows = [{"key": key, "value": value, "timestamp": 1} for key, value in records]
    lw.write(rows, path, "kafka.partition", **options)
    return path


# What Kafka prints


@pytest.mark.parametrize("name", GOLDEN)
def test_decoded_golden_records_are_what_kafka_prints(name: str) -> None:
    """The rows of every log and snapshot of a case, against the output of `kafka-dump-log`."""
    case, view = CASES[name], GOLDEN[name]
    topic = kafka_json.topic_of(view)
    checked = 0
    for text in kafka_json.texts(case.partition.parent.parent):
        for file, records in kafka_json.dumped(text).items():
            path = next(path for path in case.data.rglob(file))
            for row in lw.read(path, "kafka.log", view=view).to_pylist():
                key, value = kafka_json.printed(topic, row)
                if row["type"] == "GROUP_METADATA" and value is not None:
                    value = kafka_json.consumer_protocol(value)
                assert (key, value) == records.pop(row["offset"]), row
                assert (row["note"], row["key"], row["value"]) == (None, None, None)
                checked += 1
            assert not records
    assert checked >= len(lw.read(case.partition, view=view))


# Both directions


@pytest.mark.parametrize("name", GOLDEN)
def test_rows_of_a_decoded_view_are_written_as_the_same_records(name: str, tmp_path: Path) -> None:
    source, target = CASES[name].partition, tmp_path / CASES[name].partition.name
    rows = lw.read(source, view=GOLDEN[name])
    lw.write(rows, target, "kafka.partition")
    columns = ("offset", "timestamp", "key", "value")
    assert lw.read(target, columns=columns).equals(lw.read(source, columns=columns))
    lw.write(rows.to_pylist(), target, "kafka.partition", mode="overwrite")
    assert lw.read(target, columns=columns).equals(lw.read(source, columns=columns))
    if kafka_json.topic_of(GOLDEN[name]).control:
        columns = (*columns, "is_control", "control_type")
        written, stored = (lw.read(path, view="log", columns=columns) for path in (target, source))
        assert written.equals(stored)
        assert "LEADER_CHANGE" in written["control_type"].to_pylist()


@pytest.mark.parametrize(("topic", "kind", "version"), EVERY)
def test_random_messages_of_every_version_are_decoded_as_they_were(
    topic: Topic, kind: RecordType, version: int
) -> None:
    random = Random(f"{kind.name}-{version}")
    for _ in range(30):
        message = random_message(random, kind, version)
        key, value = encode(topic, message)
        decoded = decode(topic, key, value, control=kind.control)
        assert (decoded.kind, decoded.version, decoded.note) == (kind, version, None)
        assert decoded.values == message.values


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.view)
def test_columns_hold_every_message_in_both_directions(topic: Topic, tmp_path: Path) -> None:
    random = Random(5)
    versions: list[tuple[RecordType, int | None]]
    kinds = [kind for kind in topic.records if kind is not CONTROL]
    versions = [(kind, version) for kind in kinds for version in kind.versions]
    versions += [] if topic.framed else [(kind, None) for kind in kinds]
    messages = [random_message(random, kind, version) for kind, version in versions * 3]
    stored = [encode(topic, message) for message in messages]
    path = tmp_path / "log-0"
    records = [
        {
            "key": key,
            "value": value,
            "timestamp": 1,
            "is_control": message.kind is not None and message.kind.control,
        }
        for message, (key, value) in zip(messages, stored, strict=True)
    ]
    lw.write(records, path, "kafka.partition")
    rows = lw.read(path, view=topic.view, columns="*")
    for message, row in zip(messages, rows.to_pylist(), strict=True):
        kind = message.kind
        assert kind is not None
        assert (row["type"], row["version"], row["note"]) == (kind.name, message.version, None)
        assert not kind.fields or row[kind.column] == message.values
    encoded = [stored_rows(batch) for batch in rows.to_batches()]
    assert [(row["key"], row["value"]) for batch in encoded for row in batch.to_pylist()] == stored


@pytest.mark.kernel_modes
@pytest.mark.parametrize("seed", range(20))
def test_offset_commits_read_together_equal_those_read_one_by_one(seed: int) -> None:
    """Also with changed, missing and additional bytes, which are left to the reader of single records or decoded alike."""
    random = Random(seed)
    records: list[tuple[bytes, bytes | None]] = []
    for _ in range(60):
        kind = random.choice(GROUPS.records[:3])
        version = random.choice((*kind.versions, None))
        key, value = encode(GROUPS, random_message(random, kind, version))
        assert key is not None
        changed = bytearray(random.choice((key, value or key)))
        at = random.randrange(len(changed) + 1)
        choice = random.randrange(6)
        if choice == 0:
            changed[at : at + 1] = random.randbytes(1)
        elif choice == 1:
            del changed[at:]
        elif choice == 2:
            changed += random.randbytes(random.randrange(1, 20))
        if random.random() < 0.5:
            key = bytes(changed)
        elif value is not None:
            value = bytes(changed)
        records.append((key, value))
    keys, values = zip(*records, strict=True)
    commits = offset_commits(GROUPS.records[0], contents(pa.binary(), keys), contents(pa.binary(), values))
    if commits is None:
        return  # a text that is not UTF-8
    structs = commits.fields.to_pylist()
    for row, number, version, struct in zip(
        commits.rows, commits.types, commits.versions, structs, strict=True
    ):
        message = decode(GROUPS, *records[row])
        assert message.kind is GROUPS.records[number]
        assert message.note is None
        assert (message.version, {**dict.fromkeys(struct), **message.values}) == (
            None if version < 0 else version,
            struct,
        )
    left = np.delete(np.arange(len(records)), commits.rows)
    for key, value in (records[i] for i in left.tolist()):
        try:
            message = decode(GROUPS, key, value)
        except PayloadError:
            continue
        assert message.kind not in GROUPS.records[:2] or message.note is not None


# Bytes that the columns do not express


@pytest.mark.parametrize(
    ("key", "value", "note"),
    [
        (b"\0\x28abc", b"\0\0", "unknown type 40"),
        (_key(), _commit(version=9), "unknown version 9 of OFFSET_COMMIT"),
        (_key(), _commit() + b"\0", OTHER_BYTES),
        (_key(), _commit(tags=b"\1\5\2ab"), OTHER_BYTES),
        (_key(), _commit(metadata=b"\x81\0"), OTHER_BYTES),
        (_key(), _commit(tags=b"\1\0\x10" + bytes(16)), OTHER_BYTES),
        (_key(group=b"\xff"), _commit(), OTHER_BYTES),
        (_key() + b"x", None, OTHER_BYTES),
    ],
)
def test_what_columns_do_not_express_stays_raw_bytes_with_a_note(
    key: bytes, value: bytes | None, note: str, tmp_path: Path
) -> None:
    path = _write(tmp_path, (_key(), _commit()), (key, value))
    rows = lw.read(path, view="consumer_offsets")
    plain, odd = rows.to_pylist()
    assert (plain["note"], plain["key"], plain["value"]) == (None, None, None)
    assert (odd["note"], odd["key"], odd["value"]) == (note, key, value)
    lw.write(rows, tmp_path / "copy-0", "kafka.partition")
    assert lw.read(tmp_path / "copy-0", columns="key,value")[1:].to_pylist() == [{"key": key, "value": value}]


@pytest.mark.parametrize(
    ("value", "note"), [(b"\0\2\0", "unknown frame version 0"), (b"\1\x7f\0", "unknown type 127")]
)
def test_frame_of_another_version_or_type_stays_raw_bytes(value: bytes, note: str) -> None:
    message = decode(METADATA, None, value)
    assert (message.kind, message.note) == (None, note)


def test_changed_columns_win_over_stored_bytes(tmp_path: Path) -> None:
    path = _write(tmp_path, (_key(), _commit() + b"\0"))
    (row,) = lw.read(path, view="consumer_offsets").to_pylist()
    row["offset_commit"]["metadata"] = "new"
    lw.write([row], tmp_path / "copy-0", "kafka.partition")
    (copy,) = lw.read(tmp_path / "copy-0", view="consumer_offsets").to_pylist()
    assert copy["offset_commit"] == row["offset_commit"]
    assert copy["note"] is None


# Payloads that cannot be decoded

BAD = [
    (None, b"\0\0", "the key has no type"),
    (b"\0", b"\0\0", "the key has 1 bytes, expected a type"),
    (b"\0\1\0\5g", b"\0\0", "key of OFFSET_COMMIT: length 5 at byte 4, but 1 bytes are left"),
    (_key(), b"\0", "the value of OFFSET_COMMIT has 1 bytes, expected a version"),
    (_key(), b"\0\4", "version 4 of OFFSET_COMMIT: ends at byte 2, inside a number of 8 bytes"),
    (
        _key(),
        _commit(metadata=b"\0"),
        "version 4 of OFFSET_COMMIT: null, but the field is never null in this version",
    ),
    (
        _key(),
        _commit(metadata=b"\x82\x80\2" + b"x" * 0x8001),
        "version 4 of OFFSET_COMMIT: a string of 32769 bytes at byte 17: at most 32767 are allowed",
    ),
    (
        _key(),
        _commit(metadata=b"\xff" * 5),
        "version 4 of OFFSET_COMMIT: the varint at byte 14 is longer than 5 bytes",
    ),
    (_key(), _commit(tags=b"\1\0\3abc"), "version 4 of OFFSET_COMMIT: ends at byte 29, inside a UUID"),
    (
        _key(),
        _commit(tags=b"\1\0\x11" + bytes(17)),
        "version 4 of OFFSET_COMMIT: tag 0 has 17 bytes, but its content 16",
    ),
]


@pytest.mark.parametrize(("key", "value", "reason"), BAD, ids=[reason for _, _, reason in BAD])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_payload_that_cannot_be_decoded_is_a_fault_of_its_row(
    key: bytes | None, value: bytes, reason: str, compression: str, tmp_path: Path
) -> None:
    good = (_key(), _commit())
    path = _write(tmp_path, good, (key, value), good, compression_type=compression)
    with pytest.raises(DamageError, match="record at offset 1") as caught:
        lw.read(path, view="consumer_offsets")
    fault = caught.value.fault
    assert fault is not None
    assert fault.detail == f"record at offset 1: {reason}"
    assert (fault.rows_lost, fault.lost["first_offset"], fault.lost["last_offset"]) == (1, 1, 1)
    stored = (path / f"{0:020}.log").read_bytes()
    if compression == "none":
        assert value in stored[fault.offset : fault.offset + fault.length]
        assert fault.length < len(value) + 40  # the record, not its batch
    with pytest.warns(lw.DamageWarning):
        rows = lw.read(path, view="consumer_offsets", mode="DROPMALFORMED")
    assert rows["offset"].to_pylist() == [0, 2]
    with pytest.warns(lw.DamageWarning):
        rows = lw.read(path, view="consumer_offsets", mode="PERMISSIVE")
    assert rows["offset"].to_pylist() == [0, None, 2]
    assert rows["_corrupt_offset"].to_pylist() == [None, fault.offset, None]
    assert rows["_corrupt_record"][1].as_py() == stored[fault.offset : fault.offset + fault.length]


def test_every_prefix_of_a_message_is_refused_or_kept_raw() -> None:
    random = Random(3)
    for topic in TOPICS:
        for kind in topic.records:
            if kind is CONTROL:
                continue
            key, value = encode(topic, random_message(random, kind, kind.versions[-1]))
            assert value is not None
            for end in range(len(value)):
                try:
                    message = decode(topic, key, value[:end], control=kind.control)
                except PayloadError:
                    continue
                assert message.note is not None, (kind.name, end)


# Rows that cannot be written


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"type": "OFFSET"}, "unknown type: expected one of"),
        ({"version": 7}, "version 7, expected 0 to 4"),
        ({"version": None}, "the version is null, for a tombstone, but commit_timestamp is 0"),
        ({"version": 3}, "topic_id is 'AAAAAAAAAAAAAAAAAAAAAQ', but version 3 has no such field"),
        ({"offset_commit": None}, "column offset_commit is null"),
        ({"offset": None}, "offset: null, but the field is never null in this version"),
        ({"partition": 1 << 40}, "partition: 1099511627776 is not a value of type int32"),
        ({"topic_id": "x"}, "topic_id: 'x' is not a UUID"),
        ({"metadata": "x" * 40000}, "a string of 40000 bytes: at most 32767 are allowed"),
        ({"metadata": ["x"]}, "metadata: ['x'] is not text"),
    ],
)
def test_rows_that_no_record_can_hold_are_refused(change: dict[str, Any], reason: str) -> None:
    commit = {
        "group": "g", "topic": "t", "partition": 0, "offset": 7, "leader_epoch": -1, "metadata": "",
        "commit_timestamp": 0, "expire_timestamp": None, "topic_id": "A" * 21 + "Q",
    }  # fmt: skip
    row: dict[str, Any] = {"type": "OFFSET_COMMIT", "version": 4, "offset_commit": commit}
    for name, value in change.items():
        (row if name in row else commit)[name] = value
    row = {**row, "offset_commit": commit} if row["offset_commit"] is not None else row
    other = {
        "type": "OFFSET_COMMIT",
        "version": None,
        "offset_commit": {"group": "g", "topic": "t", "partition": 0},
    }
    batch = pa.RecordBatch.from_pylist([other, row])
    with pytest.raises(UsageError, match="row 11: ") as caught:
        stored_rows(batch, 10)
    assert reason in str(caught.value)


def test_defaults_stand_for_fields_that_a_row_lacks() -> None:
    """The version is the newest, and the fields that have a default have it."""
    commit = {"group": "g", "topic": "t", "partition": 0, "offset": 7, "metadata": "", "commit_timestamp": 0}
    batch = pa.RecordBatch.from_pylist([{"type": "OFFSET_COMMIT", "offset_commit": commit}])
    assert stored_rows(batch).to_pylist() == [{"key": _key(), "value": _commit()}]


def test_rows_without_a_type_are_written_as_they_are() -> None:
    rows = [{"type": None, "offset_commit": None, "key": b"k", "value": value} for value in (b"v", None)]
    assert stored_rows(pa.RecordBatch.from_pylist(rows)).to_pylist() == [
        {"key": b"k", "value": b"v"},
        {"key": b"k", "value": None},
    ]


def test_rows_of_two_views_are_refused() -> None:
    batch = pa.RecordBatch.from_pylist([{"type": "X", "offset_commit": None, "transaction_log": None}])
    with pytest.raises(UsageError, match="columns of the views consumer_offsets and transaction_state"):
        stored_rows(batch)


def test_a_column_named_type_alone_is_not_a_decoded_view() -> None:
    batch = pa.RecordBatch.from_pylist([{"type": "X", "value": b"v"}])
    assert stored_rows(batch) is batch


# The view


def test_control_records_are_left_out() -> None:
    path = CASES["consumer_offsets"].partition
    offsets = lw.read(path, view="consumer_offsets")["offset"].to_pylist()
    assert offsets == lw.read(path, view="read_uncommitted")["offset"].to_pylist()
    assert len(offsets) < len(lw.read(path, view="log"))


METADATA_CONTROL = [
    {
        "type": "LEADER_CHANGE",
        "leader_change": {"leader_id": 1, "voters": [{"voter_id": 1}], "granting_voters": []},
    },
    {"type": "KRAFT_VERSION", "kraft_version": {"k_raft_version": 1}},
    {"type": "CLEAR_ELR_RECORD", "clear_elr_record": {"topic_name": "orders"}},
    {"type": "CONTROL", "key": b"\0\0\0\x09", "value": b"new"},
    {"type": "LEADER_CHANGE", "leader_change": {"leader_id": 2, "voters": [], "granting_voters": []}},
    {"type": "LEADER_CHANGE", "leader_change": {"leader_id": 1, "voters": [], "granting_voters": []}},
    {"type": "SNAPSHOT_FOOTER"},
]


@pytest.mark.parametrize("chunk", [1, 2, 9])
def test_control_records_of_the_metadata_log_are_written_in_control_batches(
    tmp_path: Path, chunk: int
) -> None:
    """As by Kafka, those that belong together share a batch, which has no data."""
    path = tmp_path / "__cluster_metadata-0"
    rows = pa.Table.from_pylist([{"timestamp": 1, **row} for row in METADATA_CONTROL], _schema())
    batches = pa.Table.from_batches(
        [b for at in range(0, 7, chunk) for b in rows[at : at + chunk].to_batches()]
    )
    lw.write(batches, path, "kafka.partition", compression_type="gzip")
    kinds = [(row["records_count"], row["is_control"], row["compression"]) for row in _batches(path)]
    data, control = (1, False, "gzip"), (True, "none")
    assert kinds == [(2, *control), data, (1, *control), (1, *control), (1, *control), (1, *control)]
    read = lw.read(path, view="cluster_metadata").to_pylist()
    assert [row["type"] for row in read] == [row["type"] for row in METADATA_CONTROL]
    assert (read[3]["note"], read[3]["key"], read[3]["value"]) == (
        "unknown control type 9",
        b"\0\0\0\x09",
        b"new",
    )
    assert lw.verify(path).ok


def _schema() -> pa.Schema:
    """The columns of the rows above, as the view has them."""
    table = lw.read(CASES["cluster_metadata_39"].partition, view="cluster_metadata", limit=1).schema
    names = ["type", "leader_change", "kraft_version", "clear_elr_record", "key", "value"]
    return pa.schema([pa.field("timestamp", pa.int64()), *(table.field(name) for name in names)])


def _batches(path: Path) -> list[dict[str, Any]]:
    batches: list[dict[str, Any]] = lw.read(path, view="batches").to_pylist()
    return batches


def test_damaged_control_record_is_a_fault_of_its_row(tmp_path: Path) -> None:
    path = tmp_path / "__cluster_metadata-0"
    records = [
        {"key": b"\0\0\0\x03", "value": value, "is_control": True, "timestamp": 1}
        for value in (b"\0\0" + bytes(8) + b"\0", b"\0\0\1", b"\0")
    ]
    lw.write(records, path, "kafka.partition")
    scan = lw.scan(path, view="cluster_metadata", mode="DROPMALFORMED")
    assert scan.to_table()["type"].to_pylist() == ["SNAPSHOT_HEADER"]
    assert [fault.detail.partition(": ")[2] for _, fault in scan.report.faults] == [
        "version 0 of SNAPSHOT_HEADER: ends at byte 3, inside a number of 8 bytes",
        "the value of SNAPSHOT_HEADER has no version",
    ]


@pytest.mark.parametrize(
    "row", [{"type": "CONTROL", "value": b"x"}, {"type": "SNAPSHOT_FOOTER", "version": None}]
)
def test_control_records_without_content_are_refused(row: dict[str, Any], tmp_path: Path) -> None:
    rows = [{"clear_elr_record": None, "version": 0, "key": None, "value": None, **row}]
    with pytest.raises(UsageError, match=r"null|needs a version"):
        lw.write(pa.Table.from_pylist(rows), tmp_path / "__cluster_metadata-0", "kafka.partition")


def test_view_as_the_system_serves_it() -> None:
    path = CASES["consumer_offsets"].partition
    assert lw.read(path, view="consumer_offsets", mode="AS_SYSTEM").equals(
        lw.read(path, view="consumer_offsets")
    )


def test_filters_limits_and_columns_apply_to_a_decoded_view() -> None:
    path = CASES["transaction_state"].partition
    rows = lw.read(
        path, view="transaction_state", filter="offset >= 180", columns="offset,is_transactional", limit=3
    )
    assert rows.to_pylist() == [{"offset": 180 + i, "is_transactional": False} for i in range(3)]


def test_decoded_rows_survive_json_lines(tmp_path: Path) -> None:
    source = CASES["cluster_metadata_43"].partition
    lw.convert(source, tmp_path / "rows.jsonl", view="cluster_metadata")
    assert json.loads((tmp_path / "rows.jsonl").read_text().splitlines()[0])["type"] == "LEADER_CHANGE"
    lw.convert(tmp_path / "rows.jsonl", tmp_path / "copy-0", "kafka.partition")
    columns = ("offset", "timestamp", "key", "value")
    assert lw.read(tmp_path / "copy-0", columns=columns).equals(lw.read(source, columns=columns))


# The notation


def test_notation_states_types_versions_tags_and_defaults() -> None:
    first, two, three = fields("a:[]{b:string?; c:uuid}? v1 =null; d:int32 v2+ @3 =-1; e:bool =true")
    assert (first.low, first.high, first.tag, first.default, first.kind.nullable) == (1, 1, None, None, True)
    assert first.kind.item is not None
    assert first.kind.item.fields is not None
    assert [(field.name, field.kind.nullable) for field in first.kind.item.fields] == [
        ("b", True),
        ("c", False),
    ]
    assert (two.low, two.tag, two.default, two.within(1), two.within(9)) == (2, 3, -1, False, True)
    assert (three.default, three.optional) == (True, True)


def test_uvarints_have_the_bytes_of_the_specification() -> None:
    out = bytearray()
    for value in (0, 127, 128, 300, 16384, (1 << 32) - 1):
        write_uvarint(out, value)
    assert out.hex(" ") == "00 7f 80 01 ac 02 80 80 01 ff ff ff ff 0f"


@pytest.mark.parametrize("row", [{"type": "OFFSET_COMMIT"}, {"offset_commit": {"group": "g"}}])
def test_rows_without_a_type_or_structure_are_refused(row: dict[str, Any], tmp_path: Path) -> None:
    """They would become records without key and value."""
    with pytest.raises(UsageError, match="no key and no value"):
        lw.write([row], tmp_path / "__consumer_offsets-0", "kafka.partition")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("type", ["GROUP_METADATA", None])
def test_the_structure_of_another_type_is_refused(type: str | None) -> None:
    row = {"type": type, "offset_commit": {"group": "g"}, "group_metadata": None}
    with pytest.raises(UsageError, match="column offset_commit is not null, but belongs to another type"):
        stored_rows(pa.RecordBatch.from_pylist([row]))


def test_unknown_fields_of_a_structure_are_refused(tmp_path: Path) -> None:
    row = {"type": "OFFSET_COMMIT", "offset_commit": {"group": "g", "leaderepoch": 7}}
    with pytest.raises(UsageError, match=r"no field 'leaderepoch'\. Did you mean 'leader_epoch'"):
        lw.write([row], tmp_path / "__consumer_offsets-0", "kafka.partition")
