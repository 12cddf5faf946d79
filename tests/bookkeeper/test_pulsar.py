"""The view of Pulsar's messages. Google's Protobuf, with the definitions of `PulsarApi.proto`, writes what is read here."""

from __future__ import annotations

import contextlib
import warnings
import zlib
from pathlib import Path
from typing import Any

import cramjam
import lz4.block
import pytest
import zstandard
from command_line import run
from crc32c import crc32c
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

import logwright as lw
from logwright.codec.bookkeeper.pulsar.entry import MessageError, NotPulsarError, messages_of
from logwright.codec.bookkeeper.pulsar.protobuf import Field, Kind, read_message
from logwright.codec.fault import DamageError
from logwright.codec.kernels.compress import compress

FIELDS = {
    "KeyValue": ["1 string key required", "2 string value required"],
    "EncryptionKeys": ["1 string key required", "2 bytes value required", "3 KeyValue metadata repeated"],
    "BrokerEntryMetadata": ["1 uint64 broker_timestamp", "2 uint64 index"],
    "SingleMessageMetadata": [
        "1 KeyValue properties repeated", "2 string partition_key", "3 int32 payload_size required", "4 bool compacted_out",
        "5 uint64 event_time", "6 bool partition_key_b64_encoded", "7 bytes ordering_key", "8 uint64 sequence_id", "9 bool null_value",
        "10 bool null_partition_key",
    ],
    "MessageMetadata": [
        "1 string producer_name required", "2 uint64 sequence_id required", "3 uint64 publish_time required",
        "4 KeyValue properties repeated", "5 string replicated_from", "6 string partition_key", "7 string replicate_to repeated",
        "8 int32 compression", "9 uint32 uncompressed_size", "11 int32 num_messages_in_batch", "12 uint64 event_time",
        "13 EncryptionKeys encryption_keys repeated", "14 string encryption_algo", "15 bytes encryption_param", "16 bytes schema_version",
        "17 bool partition_key_b64_encoded", "18 bytes ordering_key", "19 int64 deliver_at_time", "20 int32 marker_type",
        "22 uint64 txnid_least_bits", "23 uint64 txnid_most_bits", "24 uint64 highest_sequence_id", "25 bool null_value", "26 string uuid",
        "27 int32 num_chunks_from_msg", "28 int32 total_chunk_msg_size", "29 int32 chunk_id", "30 bool null_partition_key",
        "99 string unknown_to_readers",
    ],
}  # fmt: skip
COMPRESSORS = {
    1: lambda data: lz4.block.compress(data, store_size=False), 2: lambda data: compress("zlib-flushed", data),
    3: zstandard.ZstdCompressor().compress,
    4: lambda data: bytes(cramjam.snappy.compress_raw(data)),
}  # fmt: skip
NAMES = {1: "LZ4", 2: "ZLIB", 3: "ZSTD", 4: "SNAPPY"}
WORKED = bytes.fromhex(
    "0e02000000090881d095ffbc3110010e0187a299870000000e0a017010001880d095ffbc3158020000000218016100000002180262 62"
)


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="pulsar.proto", package="pulsar", syntax="proto2")
    for name, lines in FIELDS.items():
        message = file.message_type.add(name=name)
        for line in lines:
            number, kind, field, *label = line.split()
            options = {"type_name": f".pulsar.{kind}"} if kind in FIELDS else {}
            code = "TYPE_MESSAGE" if kind in FIELDS else f"TYPE_{kind.upper()}"
            message.field.add(
                name=field, number=int(number), type=code, label=f"LABEL_{(label or ['optional'])[0].upper()}", **options
            )  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"pulsar.{name}")) for name in FIELDS
    }


CLASSES = _classes()


def message(name: str, **values: Any) -> bytes:
    """Serialize a message."""
    data: bytes = CLASSES[name](**values).SerializeToString()
    return data


def sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def single(payload: bytes, **values: Any) -> bytes:
    return sized(message("SingleMessageMetadata", payload_size=len(payload), **values)) + payload


def entry(
    content: bytes, *, broker: dict[str, int] | None = None, checksum: bool = True, **values: Any
) -> bytes:
    """Return the payload of an entry, as a broker stores it."""
    known = {"producer_name": "p", "sequence_id": 7, "publish_time": 1700000000000}
    body = sized(message("MessageMetadata", **known | values)) + content
    if checksum:
        body = b"\x0e\x01" + crc32c(body).to_bytes(4, "big") + body
    return (b"" if broker is None else b"\x0e\x02" + sized(message("BrokerEntryMetadata", **broker))) + body


def stored(home: Path, *payloads: bytes) -> str:
    rows = [{"ledger_id": 3, "entry_id": i, "payload": payload} for i, payload in enumerate(payloads)]
    lw.write(rows, home / "bookie", "bookkeeper.bookie")
    return str(home / "bookie")


def read(path: str, **options: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lw.read(path, view="pulsar", columns="*", **options).to_pylist()
    return rows


def test_worked_entry_has_two_messages(tmp_path: Path) -> None:
    first, second = read(stored(tmp_path, WORKED))
    assert (first["payload"], second["payload"]) == (b"a", b"bb")
    assert (first["batch_index"], second["batch_index"]) == (0, 1)
    assert (first["index"], second["index"]) == (0, 1)
    assert first["producer_name"] == "p"
    assert first["broker_timestamp"].timestamp() == 1700000000.001
    assert first["publish_time"].timestamp() == 1700000000
    batch = single(b"a") + single(b"bb")
    broker = {"broker_timestamp": 1700000000001, "index": 1}
    assert entry(batch, broker=broker, sequence_id=0, num_messages_in_batch=2) == WORKED


def test_single_message_has_the_fields_of_its_metadata(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "replicated_from": "west", "partition_key": "k", "replicate_to": ["a", "b"], "schema_version": b"\0\1",
        "partition_key_b64_encoded": True, "ordering_key": b"o", "marker_type": 10, "txnid_least_bits": 5, "txnid_most_bits": 2**64 - 1,
        "highest_sequence_id": 9, "uuid": "u", "num_chunks_from_msg": 3, "total_chunk_msg_size": 100, "chunk_id": 2,
        "null_partition_key": False,
    }  # fmt: skip
    payload = entry(
        b"body", properties=[{"key": "a", "value": "é"}], event_time=5, deliver_at_time=6, unknown_to_readers="x", **values
    )  # fmt: skip
    (row,) = read(stored(tmp_path, payload))
    assert {name: row[name] for name in values} == {**values, "txnid_most_bits": -1}
    assert row["properties"] == [{"key": "a", "value": "é"}]
    assert (row["event_time"].timestamp(), row["deliver_at_time"].timestamp()) == (0.005, 0.006)
    assert (row["payload"], row["batch_index"], row["index"], row["note"]) == (b"body", None, None, None)
    assert row["sequence_id"] == 7


@pytest.mark.parametrize("number", [0, 1, 2, 8])
def test_flag_is_set_by_the_number_1_only(number: int) -> None:
    fields = {1: Field("flag", Kind.BOOL)}
    assert read_message(fields, bytes([8, number]), 0, 2) == {"flag": number == 1}


def test_message_of_a_batch_takes_key_and_properties_from_its_own_metadata(tmp_path: Path) -> None:
    batch = single(b"a", partition_key="own", sequence_id=70, event_time=9) + single(b"", null_value=True)
    payload = entry(
        batch, num_messages_in_batch=2, partition_key="k", properties=[{"key": "a", "value": "b"}], event_time=5
    )  # fmt: skip
    first, second = read(stored(tmp_path, payload))
    assert [row["partition_key"] for row in (first, second)] == ["own", None]
    assert [row["sequence_id"] for row in (first, second)] == [70, 7]
    assert [row["event_time"].microsecond for row in (first, second)] == [9000, 5000]
    assert [row["properties"] for row in (first, second)] == [[], []]
    assert [row["payload"] for row in (first, second)] == [b"a", None]


def test_batch_of_one_is_a_batch(tmp_path: Path) -> None:
    (row,) = read(stored(tmp_path, entry(single(b"x"), num_messages_in_batch=1)))
    assert (row["batch_index"], row["payload"]) == (0, b"x")


@pytest.mark.parametrize("code", COMPRESSORS)
def test_compressed_batch_is_decompressed(tmp_path: Path, code: int) -> None:
    batch = b"".join(single(b"message %d " % i * 30) for i in range(20))
    payload = entry(
        COMPRESSORS[code](batch), compression=code, uncompressed_size=len(batch), num_messages_in_batch=20
    )
    rows = read(stored(tmp_path, payload))
    assert [row["payload"] for row in rows] == [b"message %d " % i * 30 for i in range(20)]
    assert {row["compression"] for row in rows} == {NAMES[code]}


def test_zlib_stream_with_an_end_is_decompressed(tmp_path: Path) -> None:
    """A producer in Java flushes the stream and does not end it; others end it."""
    payload = entry(zlib.compress(b"text"), compression=2, uncompressed_size=4)
    (row,) = read(stored(tmp_path, payload))
    assert row["payload"] == b"text"


def test_chunks_of_a_compressed_message_stay_as_stored(tmp_path: Path) -> None:
    compressed = zlib.compress(bytes(1000))
    parts = [compressed[:5], compressed[5:]]
    payloads = [
        entry(part, compression=2, uncompressed_size=1000, chunk_id=i, num_chunks_from_msg=2, uuid="p-7")
        for i, part in enumerate(parts)
    ]
    rows = read(stored(tmp_path, *payloads))
    assert [row["payload"] for row in rows] == parts
    assert {row["note"] for row in rows} == {"a part of a compressed message, so payload is as stored"}


def test_encrypted_batch_stays_as_stored(tmp_path: Path) -> None:
    keys = [{"key": "rsa", "value": b"v", "metadata": [{"key": "a", "value": "b"}]}]
    payload = entry(
        b"secret", encryption_keys=keys, encryption_algo="AES", encryption_param=b"iv", compression=1, uncompressed_size=40,
        num_messages_in_batch=4,
    )  # fmt: skip
    (row,) = read(stored(tmp_path, payload))
    assert (row["payload"], row["batch_index"], row["encryption_keys"]) == (b"secret", None, ["rsa"])
    assert row["note"] == "encrypted, so payload is as stored: a batch of 4 messages"
    assert (row["encryption_algo"], row["encryption_param"], row["compression"]) == ("AES", b"iv", "LZ4")


def test_entry_without_magic_numbers_is_metadata_and_message(tmp_path: Path) -> None:
    (row,) = read(stored(tmp_path, entry(b"old", checksum=False)))
    assert row["payload"] == b"old"


DAMAGED = {
    "checksum mismatch: stored 0x87a29987": WORKED[:-1] + b"x",
    "bad payload: zlib": entry(b"xyz", compression=2, uncompressed_size=5),
    "the payload decompresses to 1 bytes, but uncompressed_size is 9": entry(
        zlib.compress(b"x"), compression=2, uncompressed_size=9
    ),
    "uncompressed_size is -1": entry(b"x", compression=1, uncompressed_size=2**32 - 1),
    "compression 9 is unknown": entry(b"x", compression=9, uncompressed_size=5),
    "message 2 of a batch of 3: its metadata has no size": entry(
        single(b"a") + single(b"b"), num_messages_in_batch=3
    ),
    "4 bytes are left after the 1 messages": entry(single(b"a") + b"junk", num_messages_in_batch=1),
    "num_messages_in_batch is -1": entry(b"", num_messages_in_batch=-1),
    "the metadata takes 16777216 bytes": entry(b"", broker={"index": 1}, checksum=False)[:8] + b"\1\0\0\0",
    "the required field publish_time is missing": b"\x0e\x01"
    + crc32c(sized(b"\x0a\x01p\x10\x00")).to_bytes(4, "big")
    + sized(b"\x0a\x01p\x10\x00"),
    "the broker's metadata has no size": b"\x0e\x02\0",
    **{
        text: b"\x0e\x01" + crc32c(sized(metadata)).to_bytes(4, "big") + sized(metadata)
        for text, metadata in {
            "a number ends behind the message": b"\x10\x80",
            "a number has more than 10 bytes": b"\x10" + b"\x80" * 10 + b"\1",
            "a field has number 0": b"\0\0",
            "field 1 takes 9 bytes, but 1 are left": b"\x0a\x09p",
            "field 2 has wire type 3": b"\x13",
            "producer_name has wire type 0": b"\x08\1",
            "producer_name is not UTF-8": b"\x0a\1\xff",
        }.items()
    },
}


@pytest.mark.alike
@pytest.mark.parametrize("text", DAMAGED)
def test_entry_that_does_not_decode_is_a_fault_of_its_row(tmp_path: Path, text: str) -> None:
    path = stored(tmp_path, WORKED, DAMAGED[text], entry(b"after"))
    with pytest.raises(DamageError, match=rf"0\.log.*entry 1 of ledger 3: .*{text}"):
        read(path)
    with pytest.warns(UserWarning, match="entry 1 of ledger 3"):
        rows = read(path, mode="DROPMALFORMED")
    assert [row["payload"] for row in rows] == [b"a", b"bb", b"after"]
    with pytest.warns(UserWarning, match="entry 1 of ledger 3"):
        rows = read(path, mode="PERMISSIVE")
    (corrupt,) = [row for row in rows if row["_corrupt_record"] is not None]
    assert corrupt["_corrupt_record"] == DAMAGED[text]
    assert lw.verify(path).ok


def test_entry_of_another_kind_is_a_warning(tmp_path: Path) -> None:
    path = stored(tmp_path, b"\x08\x05\x10\x07 cursor", entry(b"message"))
    with pytest.warns(UserWarning, match="entry 0 of ledger 3: not a message of Pulsar"):
        rows = read(path)
    assert [row["payload"] for row in rows] == [b"message"]


def test_filter_and_limit_apply_to_messages(tmp_path: Path) -> None:
    path = stored(tmp_path, *(entry(single(b"a") + single(b"b"), num_messages_in_batch=2) for _ in range(5)))
    rows = lw.read(path, view="pulsar", filter="entry_id >= 2 and batch_index == 1").to_pylist()
    assert [(row["entry_id"], row["payload"]) for row in rows] == [(2, b"b"), (3, b"b"), (4, b"b")]
    assert len(lw.read(path, view="pulsar", limit=3)) == 3
    with warnings.catch_warnings(action="error"):
        assert lw.read(path, view="pulsar", columns=["batch_index"])["batch_index"].to_pylist() == [0, 1] * 5


@given(st.sampled_from([WORKED, *DAMAGED.values()]), st.data())
def test_any_change_of_a_payload_gives_messages_or_one_error(payload: bytes, data: st.DataObject) -> None:
    changed = bytearray(payload)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    changed = changed[: data.draw(st.integers(0, len(changed)))]
    if changed[:2] == b"\x0e\x01" and len(changed) > 6 and data.draw(st.booleans()):
        changed[2:6] = crc32c(bytes(changed[6:])).to_bytes(4, "big")
    with contextlib.suppress(MessageError, NotPulsarError):
        assert all(isinstance(row["payload"], bytes | None) for row in messages_of(bytes(changed)))


def test_messages_are_dumped_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = stored(tmp_path, WORKED)
    run("dump", path, "--view", "pulsar", "--format", "jsonl", "--columns", "batch_index,payload")
    assert capsys.readouterr().out.splitlines() == [
        '{"batch_index":0,"payload":"a"}',
        '{"batch_index":1,"payload":"bb"}',
    ]
