"""Hypothesis strategies for the formats of Kafka. See `logwright.roundtrip.strategies`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from logwright.codec import registry
from logwright.codec.describe import Bytes, Field, Struct
from logwright.codec.kafka.formats.indexes import INDEX_ENTRY, TIMEINDEX_ENTRY, TXNINDEX_ENTRY
from logwright.codec.kafka.formats.log.layout import (
    COMPRESSION_NAMES,
    CONTROL,
    DELETE_HORIZON,
    RECORD,
    RECORD_BATCH,
)
from logwright.codec.kafka.formats.meta_properties import uuid_text
from logwright.codec.kafka.formats.producer_snapshot import PRODUCER_SNAPSHOT
from logwright.codec.kernels.compress import compress

Strategy = st.SearchStrategy[Any]

INT31, INT32 = st.integers(0, (1 << 31) - 1), st.integers(-(1 << 31), (1 << 31) - 1)
INT63, INT64 = st.integers(0, (1 << 63) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
TIMES = st.one_of(st.just(-1), st.integers(0, 4_000_000_000_000), st.integers(0, (1 << 62) - 1))
"""Milliseconds; -1 stands for no time. A broker refuses other negative values."""
BYTES = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.builds(lambda byte, count: byte * count, st.binary(min_size=1, max_size=3), st.integers(0, 3000)),
)
"""Null, few bytes, or many that compress well."""


# kafka.log

_HEADERS = st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=8), "value": st.one_of(st.none(), st.binary(max_size=8))}),
    max_size=4,
)


@st.composite
def _rows(draw: Any) -> pa.Table:
    """Generate rows with any subset of the encoder's columns. Offsets increase, with gaps."""
    count = draw(st.integers(0, 30))
    table = registry.get("kafka.log").tables["rows"]
    values: dict[str, Strategy] = {"key": BYTES, "value": BYTES, "timestamp_ms": TIMES, "headers": _HEADERS}
    columns = {
        name: draw(st.lists(strategy, min_size=count, max_size=count))
        for name, strategy in values.items()
        if name in ("key", "timestamp_ms") or draw(st.booleans())
    }
    if draw(st.booleans()):
        at = draw(st.integers(0, 1 << 40))
        offsets = []
        for gap in draw(
            st.lists(st.one_of(st.just(1), st.integers(1, 1 << 20)), min_size=count, max_size=count)
        ):
            offsets.append(at)
            at += gap
        columns["offset"] = offsets
    schema = table.schema(list(columns))
    return pa.table(
        [pa.array(column, schema.field(name).type) for name, column in columns.items()], schema=schema
    )


def _options() -> Strategy:
    levels = {
        "gzip": st.sampled_from([-1, 1, 9]), "lz4": st.sampled_from([1, 9, 17]), "zstd": st.sampled_from([-5, 1, 3, 19]),
    }  # fmt: skip
    option = [
        st.fixed_dictionaries(
            {"compression.type": st.just(name)},
            optional={
                "batch.size": st.sampled_from([0, 100, 1000, 16384]),
                "partition.leader.epoch": st.integers(-1, 50),
                **({f"compression.{name}.level": levels[name]} if name in levels else {}),
            },
        )
        for name in COMPRESSION_NAMES
    ]
    return st.one_of(option)


_STORED = Struct(
    RECORD_BATCH.name,
    *(Field("records", Bytes("rest")) if field.name == "records" else field for field in RECORD_BATCH.fields),
)


@st.composite
def _record(draw: Any) -> dict[str, Any]:
    headers = st.fixed_dictionaries(
        {"key": st.binary(max_size=6), "value": st.one_of(st.none(), st.binary(max_size=6))}
    )
    return {
        "attributes": draw(st.integers(-128, 127)),
        "timestamp_delta": draw(st.one_of(st.integers(-1000, 1000), INT64)),
        "key": draw(BYTES),
        "value": draw(BYTES),
        "headers": draw(st.lists(headers, max_size=3)),
    }


@st.composite
def _batch(draw: Any, base_offset: int) -> tuple[bytes, int]:
    """Generate a batch of any attributes, and its last offset."""
    records = draw(st.lists(_record(), max_size=8))
    delta = -1
    section = b""
    for record in records:
        delta += draw(st.one_of(st.just(1), st.integers(1, 1000)))
        section += RECORD.pack({**record, "offset_delta": delta})
    last = max(delta, 0) + draw(st.one_of(st.just(0), st.integers(0, 1000)))
    compression = draw(st.integers(0, len(COMPRESSION_NAMES) - 1)) if records else 0
    flags = draw(st.integers(0, 0xFF)) & ~0x07 & ~CONTROL | compression
    flags |= draw(st.sampled_from([0, 0, DELETE_HORIZON, 0x4000]))
    data = _STORED.pack(
        {
            "base_offset": base_offset,
            "partition_leader_epoch": draw(st.integers(-1, 100)),
            "attributes": flags,
            "last_offset_delta": last,
            "base_timestamp": draw(st.one_of(TIMES, INT64)),
            "max_timestamp": draw(st.one_of(TIMES, INT64)),
            "producer_id": draw(st.integers(-1, 1 << 40)),
            "producer_epoch": draw(st.integers(-1, (1 << 15) - 1)),
            "base_sequence": draw(st.integers(-1, (1 << 31) - 1)),
            "records_count": len(records),
            "records": compress(COMPRESSION_NAMES[compression], section) if compression else section,
        }
    )
    return data, base_offset + last


@st.composite
def _log(draw: Any) -> bytes:
    at, out = draw(st.one_of(st.just(0), st.integers(0, 1 << 40))), b""
    for _ in range(draw(st.integers(0, 6))):
        data, last = draw(_batch(at))
        out += data
        at = last + 1 + draw(st.one_of(st.just(0), st.integers(0, 1 << 20)))
    return out


# The files beside it


def _table(codec: str, columns: Mapping[str, Strategy]) -> Strategy:
    schema = registry.get(codec).tables["rows"].schema(list(columns))
    return st.lists(st.fixed_dictionaries(dict(columns)), max_size=20).map(
        lambda rows: pa.Table.from_pylist(rows, schema=schema)
    )


def _increasing(codec: str, columns: Mapping[str, tuple[int, int]], rest: Mapping[str, Strategy]) -> Strategy:
    """Generate rows in which some columns increase: (smallest, largest) of each."""

    @st.composite
    def make(draw: Any) -> pa.Table:
        count = draw(st.integers(0, 20))
        values: dict[str, list[Any]] = {}
        for name, (low, high) in columns.items():
            values[name] = sorted(draw(st.sets(st.integers(low, high), min_size=count, max_size=count)))
        for name, strategy in rest.items():
            values[name] = draw(st.lists(strategy, min_size=count, max_size=count))
        schema = registry.get(codec).tables["rows"].schema(list(values))
        return pa.table(values, schema=schema)

    return make()


_TOP31, _TOP63 = (1 << 31) - 1, (1 << 63) - 1
_TOPIC = st.text(st.sampled_from("abcXYZ019._-"), min_size=1, max_size=20)
_PRODUCER: dict[str, Strategy] = {
    "producer_id": INT63, "producer_epoch": st.integers(0, (1 << 15) - 1), "last_sequence": st.integers(-1, _TOP31),
    "last_offset": st.integers(-1, _TOP63), "offset_delta": INT31, "timestamp": INT64,
    "coordinator_epoch": st.integers(-1, _TOP31), "current_txn_first_offset": st.integers(-1, _TOP63),
}  # fmt: skip
_TOPIC_ID = st.text(
    st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
    min_size=22,
    max_size=22,
).filter(lambda text: text != "A" * 22)

_UUID = st.binary(min_size=16, max_size=16).filter(any).map(uuid_text)
_VOTE = {"leader_id": st.none() | INT31, "leader_epoch": INT31, "voted_id": st.none() | INT31}


def _one_row(codec: str, rows: Strategy) -> Strategy:
    schema = registry.get(codec).tables["rows"].schema()
    return rows.map(lambda row: pa.Table.from_pylist([row], schema=schema))


NAMES: dict[str, str] = {
    "kafka.log": "any.log",
    "kafka.index": "00000000000000000000.index",
    "kafka.timeindex": "00000000000000000000.timeindex",
    "kafka.txnindex": "00000000000000000000.txnindex",
    "kafka.producer_snapshot": "00000000000000000000.snapshot",
    "kafka.leader_epoch_checkpoint": "leader-epoch-checkpoint",
    "kafka.offset_checkpoint": "recovery-point-offset-checkpoint",
    "kafka.partition_metadata": "partition.metadata",
    "kafka.meta_properties": "meta.properties",
    "kafka.quorum_state": "quorum-state",
}
"""The names of the files that the laws are checked on."""
ROWS: dict[str, Callable[[], Strategy]] = {
    "kafka.log": _rows,
    "kafka.index": lambda: _increasing("kafka.index", {"offset": (1, _TOP31), "position": (1, _TOP31)}, {}),
    "kafka.timeindex": lambda: _increasing(
        "kafka.timeindex", {"timestamp": (0, _TOP63), "offset": (1, _TOP31)}, {}
    ),
    "kafka.txnindex": lambda: _increasing(
        "kafka.txnindex",
        {"last_offset": (0, _TOP63)},
        {"producer_id": INT63, "first_offset": INT63, "last_stable_offset": st.integers(1, _TOP63)},
    ),
    "kafka.producer_snapshot": lambda: _table("kafka.producer_snapshot", _PRODUCER),
    "kafka.leader_epoch_checkpoint": lambda: _increasing(
        "kafka.leader_epoch_checkpoint", {"epoch": (0, _TOP31), "start_offset": (0, _TOP63)}, {}
    ),
    "kafka.offset_checkpoint": lambda: _table(
        "kafka.offset_checkpoint", {"topic": _TOPIC, "partition": INT31, "offset": INT63}
    ),
    "kafka.partition_metadata": lambda: st.builds(
        lambda topic_id: pa.table(
            {"version": [0], "topic_id": [topic_id]},
            schema=registry.get("kafka.partition_metadata").tables["rows"].schema(),
        ),
        _TOPIC_ID,
    ),
    "kafka.meta_properties": lambda: _one_row(
        "kafka.meta_properties",
        st.fixed_dictionaries(
            {
                "version": st.just(1),
                "cluster_id": st.text(),
                "node_id": INT31,
                "directory_id": st.none() | _UUID,
            }
        )
        | st.fixed_dictionaries(
            {"version": st.just(0), "cluster_id": st.none() | st.text(), "node_id": INT31}
        ),
    ),
    "kafka.quorum_state": lambda: _one_row(
        "kafka.quorum_state",
        st.fixed_dictionaries({**_VOTE, "data_version": st.just(1), "voted_directory_id": st.none() | _UUID})
        | st.fixed_dictionaries(
            {
                **_VOTE,
                "data_version": st.just(0),
                "cluster_id": st.text(),
                "applied_offset": INT63,
                "current_voters": st.lists(INT31, max_size=4),
            }
        ),
    ),
}

OPTIONS: dict[str, Callable[[], Strategy]] = {"kafka.log": _options}


def _entries(struct: Struct) -> Callable[[], Strategy]:
    """Generate files of entries with any values."""
    widths = {2: st.just(0), 4: INT31, 8: INT63}
    entry = st.fixed_dictionaries({field.name: widths[field.type.min_size] for field in struct.fields})
    return lambda: st.lists(entry.map(struct.pack), max_size=12).map(b"".join)


def _snapshot() -> Strategy:
    entries = st.lists(st.fixed_dictionaries(_PRODUCER), max_size=12)
    return entries.map(lambda values: PRODUCER_SNAPSHOT.pack({"count": len(values), "entries": values}))


FILES: dict[str, Callable[[], Strategy]] = {
    "kafka.log": _log,
    "kafka.index": _entries(INDEX_ENTRY),
    "kafka.timeindex": _entries(TIMEINDEX_ENTRY),
    "kafka.txnindex": _entries(TXNINDEX_ENTRY),
    "kafka.producer_snapshot": _snapshot,
}
