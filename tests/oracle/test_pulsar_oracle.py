"""View `pulsar` against Pulsar's own classes, which write the entries as a producer and a broker do, and read them as a consumer does."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logwright as lw
from logwright.codec.bookkeeper.pulsar.entry import COMPRESSIONS, MessageError, NotPulsarError, messages_of
from logwright.codec.bookkeeper.pulsar.messages import MESSAGES
from logwright.codec.table import TIMESTAMP
from logwright.roundtrip.oracles import pulsar as oracle

pytestmark = pytest.mark.oracle
Spec = dict[str, Any]
Message = dict[str, Any]
BYTES = ("payload", "ordering_key", "schema_version", "encryption_param")
FLAGS = ("partition_key_b64_encoded", "null_partition_key", "null_value", "compacted_out")
"""Fields whose default is false."""
OURS = ("ledger_id", "entry_id", "file", "position", "note")


@pytest.fixture(autouse=True)
def _available() -> None:
    reason = oracle.available()
    if reason:
        pytest.skip(reason)


# Random messages


def third_of(chance: random.Random, **values: Any) -> Spec:
    """Return about a third of the fields."""
    return {name: value for name, value in values.items() if chance.random() < 0.35}


def keys(chance: random.Random) -> Spec:
    """Return fields that a message has, whether in a batch or not."""
    fields = third_of(
        chance, event_time=chance.randrange(1 << 41), ordering_key=chance.randbytes(3).hex(), null_value=chance.random() < 0.5,
        properties=[{"key": f"k{i}", "value": "é" * i} for i in range(chance.randrange(4))],
    )  # fmt: skip
    if chance.random() < 0.5:
        fields |= {
            "partition_key": chance.choice(["", "key", "ключ"]),
            "partition_key_b64_encoded": chance.random() < 0.3,
        }
        fields |= third_of(chance, null_partition_key=False)
    return fields


def spec(chance: random.Random) -> Spec:
    """Return a message or a batch as `oracle.write` takes it."""
    metadata: Spec = {
        "producer_name": chance.choice(["p", "standalone-0-1"]), "sequence_id": chance.choice([0, 7, 1 << 40, -1]),
        "publish_time": chance.randrange(1, 1 << 41),
    }  # fmt: skip
    metadata |= keys(chance)
    metadata |= third_of(
        chance, replicated_from="west", replicate_to=["east", "north"], schema_version=chance.randbytes(8).hex(),
        deliver_at_time=chance.randrange(1, 1 << 41), marker_type=chance.randrange(20), highest_sequence_id=9,
        txnid_most_bits=chance.choice([3, -1]), txnid_least_bits=5,
    )  # fmt: skip
    if chance.random() < 0.8:
        metadata["compression"] = chance.choice(list(COMPRESSIONS.values()))
    if chance.random() < 0.15:
        metadata |= {
            "encryption_keys": ["rsa", "other"],
            "encryption_algo": "AES",
            "encryption_param": "0102",
        }
    out: Spec = {"metadata": metadata, "checksum": chance.random() < 0.8}
    if chance.random() < 0.5:
        out["broker"] = third_of(
            chance, broker_timestamp=chance.randrange(1, 1 << 41), index=chance.randrange(50, 1 << 40)
        )
    if chance.random() < 0.5:
        out["batch"] = [
            {
                "metadata": keys(chance)
                | third_of(chance, sequence_id=chance.randrange(99), compacted_out=True),
                "payload": content(chance).hex(),
            }
            for _ in range(chance.choice([1, 2, 30]))
        ]
        metadata.pop("null_value", None)
    else:
        out["payload"] = content(chance).hex()
        out["chunks"] = chance.choice([1, 1, 3])
    return out


def content(chance: random.Random) -> bytes:
    return chance.choice(
        [b"", b"x", b"message " * chance.randrange(300), chance.randbytes(chance.randrange(5000))]
    )


# Messages in one form


def ours(rows: list[dict[str, Any]]) -> list[Message]:
    return [normal({name: value for name, value in row.items() if name not in OURS}) for row in rows]


def theirs(entry: bytes) -> list[Message]:
    out = []
    for message in oracle.read(entry)[0]:
        row = message | {
            name: bytes.fromhex(message[name]) for name in BYTES if message.get(name) is not None
        }
        if row.get("compacted_out"):
            # A consumer does not return it.
            row["payload"] = None
        out.append(normal(row))
    return out


def normal(row: Message) -> Message:
    """Return a message without fields that have their default. A consumer gets properties without duplicates, and 0 for no time."""
    properties = row.get("properties") or {}
    if isinstance(properties, list):
        properties = {pair["key"]: pair["value"] for pair in properties}
    row = row | {"properties": properties}
    if keys := row.get("encryption_keys"):
        row["encryption_keys"] = [key["key"] if isinstance(key, dict) else key for key in keys]
    times = [column.name for column in MESSAGES.columns if column.type == TIMESTAMP]
    empty = [*FLAGS, *times, "schema_version", "replicate_to", "encryption_keys"]
    return {
        name: value for name, value in row.items()
        if name in MESSAGES.names() and value is not None and not (name in empty and not value)
    }  # fmt: skip


def read(home: Path, entries: list[bytes]) -> list[dict[str, Any]]:
    """Return the messages of the entries in a bookie. Times are milliseconds."""
    rows = [{"ledger_id": 3, "entry_id": i, "payload": entry} for i, entry in enumerate(entries)]
    lw.write(rows, home, "bookkeeper.bookie")
    table = lw.read(home, view="pulsar", columns="*")
    for i, column in enumerate(table.schema):
        if column.type == TIMESTAMP:
            table = table.set_column(i, column.name, table[i].cast(pa.int64()))
    messages: list[dict[str, Any]] = table.to_pylist()
    return messages


@pytest.mark.parametrize("seed", range(8))
def test_messages_are_those_of_a_consumer(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    entries = [entry for _ in range(60) for entry in oracle.write(**spec(chance))]
    rows = read(tmp_path / "bookie", entries)
    expected = [theirs(entry) for entry in entries]
    assert ours(rows) == [message for messages in expected for message in messages]
    assert [row["entry_id"] for row in rows] == [i for i, messages in enumerate(expected) for _ in messages]


@pytest.mark.parametrize("compression", COMPRESSIONS.values())
def test_chunks_joined_are_the_message(compression: str, tmp_path: Path) -> None:
    """The producer compresses a large message before it divides it."""
    payload = random.Random(1).randbytes(3000) + b"large " * 2000
    metadata = {"producer_name": "p", "sequence_id": 1, "publish_time": 5, "compression": compression}
    undivided = oracle.write(metadata, payload=payload.hex(), checksum=True)
    entries = oracle.write(metadata, payload=payload.hex(), checksum=True, chunks=4)
    rows = read(tmp_path / "bookie", entries)
    assert [(row["chunk_id"], row["num_chunks_from_msg"], row["uuid"]) for row in rows] == [
        (i, 4, "producer-7") for i in range(4)
    ]
    stored = b"".join(row["payload"] for row in rows)
    assert {row["total_chunk_msg_size"] for row in rows} == {len(stored)}
    assert undivided[0].endswith(stored)
    assert [message["payload"] for message in messages_of(undivided[0])] == [payload]
    noted = {row["note"] for row in rows}
    assert noted == {
        None if compression == "NONE" else "a part of a compressed message, so payload is as stored"
    }


@pytest.mark.parametrize("seed", range(8))
def test_damaged_entry_gives_an_error_or_the_messages_of_a_consumer(seed: int) -> None:
    """A consumer may accept what is an error here, never the other way round with other messages."""
    chance = random.Random(f"damage {seed}")
    accepted = 0
    for _ in range(60):
        (entry, *_) = oracle.write(**spec(chance) | {"checksum": False})
        damaged = bytearray(entry)
        for _ in range(chance.choice([1, 1, 2])):
            damaged[chance.randrange(min(len(damaged), 80))] = chance.choice(
                [0, 1, 8, 127, 255, chance.randrange(256)]
            )
        entry = bytes(damaged[: chance.choice([len(damaged), chance.randrange(len(damaged) + 1)])])
        try:
            messages = ours(list(messages_of(entry)))
        except (MessageError, NotPulsarError):
            continue
        accepted += 1
        assert messages == theirs(entry), entry.hex()
    assert accepted > 5
