"""Hypothesis strategies for the formats: rows that can be written, files put together from the description, and damage.

    from logwright.roundtrip import strategies
    @given(strategies.rows("kafka.log"), strategies.options("kafka.log"))

Hypothesis is no dependency of the package: importing this module without it says so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from logwright.codec import registry
from logwright.codec.compress import compress
from logwright.codec.describe import Bytes, Field, Struct
from logwright.codec.fault import UsageError
from logwright.codec.kafka.batch import COMPRESSION_NAMES, CONTROL, DELETE_HORIZON, RECORD, RECORD_BATCH
from logwright.codec.kafka.index import INDEX_ENTRY
from logwright.codec.kafka.snapshot import PRODUCER_SNAPSHOT
from logwright.codec.kafka.timeindex import TIMEINDEX_ENTRY
from logwright.codec.kafka.txnindex import TXNINDEX_ENTRY

try:
    from hypothesis import strategies as st
except ImportError:
    raise ImportError("logwright.roundtrip.strategies needs Hypothesis: pip install hypothesis") from None

from logwright.roundtrip import strategies_leveldb, strategies_zookeeper

Strategy = st.SearchStrategy[Any]

INT16, INT31, INT32 = (
    st.integers(-(1 << 15), (1 << 15) - 1),
    st.integers(0, (1 << 31) - 1),
    st.integers(-(1 << 31), (1 << 31) - 1),
)
INT63, INT64 = st.integers(0, (1 << 63) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
TIMES = st.one_of(st.just(-1), st.integers(0, 4_000_000_000_000), st.integers(0, (1 << 62) - 1))
"""Milliseconds, -1 for none; a broker takes no other negative ones."""
BYTES = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.builds(lambda byte, count: byte * count, st.binary(min_size=1, max_size=3), st.integers(0, 3000)),
)
"""Null, few bytes, or many that compress well."""


def rows(codec: str) -> Strategy:
    """Tables of rows that the codec encodes. Raises `UsageError` where there is no strategy."""
    return _known(_ROWS, codec)()


def options(codec: str) -> Strategy:
    """Options for encoding, as a mapping."""
    registry.find(codec)
    return _OPTIONS.get(codec, lambda: st.just({}))()


def files(codec: str) -> Strategy:
    """Bytes of legal files, put together from the description: also what our own encoder never writes."""
    return _known(_FILES, codec)()


def damaged(codec: str) -> Strategy:
    """Bytes of files of which some have been changed: flipped, zeroed, cut, inserted, repeated or left out."""
    return files(codec).flatmap(damage)


def damage(data: bytes) -> Strategy:
    """The same bytes after one to four edits."""
    places = st.integers(0, max(0, len(data) - 1))
    edit = st.one_of(
        st.tuples(st.just("flip"), places, st.integers(0, 7)),
        st.tuples(st.just("zero"), places, st.integers(1, 80)),
        st.tuples(st.just("cut"), places, st.just(0)),
        st.tuples(st.just("insert"), places, st.binary(min_size=1, max_size=80)),
        st.tuples(st.just("repeat"), places, st.integers(1, 200)),
        st.tuples(st.just("drop"), places, st.integers(1, 200)),
        st.tuples(
            st.just("put"),
            places,
            st.sampled_from([b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0" * 8]),
        ),
    )
    return st.lists(edit, min_size=1, max_size=4).map(functools.partial(_edited, data))


def _edited(data: bytes, edits: Sequence[tuple[str, int, Any]]) -> bytes:
    for kind, at, what in edits:
        if kind == "flip" and at < len(data):
            data = data[:at] + bytes([data[at] ^ 1 << what]) + data[at + 1 :]
        elif kind == "zero":
            data = data[:at] + bytes(len(data[at : at + what])) + data[at + what :]
        elif kind == "cut":
            data = data[:at]
        elif kind == "insert":
            data = data[:at] + what + data[at:]
        elif kind == "repeat":
            data = data[: at + what] + data[at:]
        elif kind == "drop":
            data = data[:at] + data[at + what :]
        elif kind == "put":
            data = data[:at] + what[: len(data) - at] + data[at + len(what) :]
    return data


def _known(table: Mapping[str, Callable[[], Strategy]], codec: str) -> Callable[[], Strategy]:
    if codec not in table:
        registry.find(codec)
        raise UsageError(
            f"there is no strategy for {codec}", advice=f"There are some for: {', '.join(table)}"
        )
    return table[codec]


# kafka.log

_HEADERS = st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=8), "value": st.one_of(st.none(), st.binary(max_size=8))}),
    max_size=4,
)


@st.composite
def _kafka_rows(draw: Any) -> pa.Table:
    """With any of the columns that encoding takes; offsets, where there are some, grow with gaps."""
    count = draw(st.integers(0, 30))
    wanted = registry.get("kafka.log").tables["rows"]
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
    schema = wanted.schema(list(columns))
    return pa.table(
        [pa.array(column, schema.field(name).type) for name, column in columns.items()], schema=schema
    )


def _kafka_options() -> Strategy:
    levels = {
        "gzip": st.sampled_from([-1, 1, 9]), "lz4": st.sampled_from([1, 9, 17]), "zstd": st.sampled_from([-5, 1, 3, 19]),
    }  # fmt: skip
    one = [
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
    return st.one_of(one)


_STORED = Struct(
    RECORD_BATCH.name,
    *(Field("records", Bytes("rest")) if field.name == "records" else field for field in RECORD_BATCH.fields),
)


@st.composite
def _kafka_record(draw: Any) -> dict[str, Any]:
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
def _kafka_batch(draw: Any, base_offset: int) -> tuple[bytes, int]:
    """A batch of any attributes, and its last offset."""
    records = draw(st.lists(_kafka_record(), max_size=8))
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
def _kafka_log(draw: Any) -> bytes:
    at, out = draw(st.one_of(st.just(0), st.integers(0, 1 << 40))), b""
    for _ in range(draw(st.integers(0, 6))):
        data, last = draw(_kafka_batch(at))
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
    """Rows in which some columns grow from row to row: (smallest, largest) of each."""

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

_ROWS: dict[str, Callable[[], Strategy]] = {
    "kafka.log": _kafka_rows,
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
    **strategies_leveldb.ROWS,
    **strategies_zookeeper.ROWS,
}

_OPTIONS: dict[str, Callable[[], Strategy]] = {
    "kafka.log": _kafka_options,
    **strategies_leveldb.OPTIONS,
    **strategies_zookeeper.OPTIONS,
}


def _entries(struct: Struct) -> Callable[[], Strategy]:
    """Entries of any values, one after the other."""
    widths = {2: st.just(0), 4: INT31, 8: INT63}
    entry = st.fixed_dictionaries({field.name: widths[field.type.min_size] for field in struct.fields})
    return lambda: st.lists(entry.map(struct.pack), max_size=12).map(b"".join)


def _snapshot() -> Strategy:
    entries = st.lists(st.fixed_dictionaries(_PRODUCER), max_size=12)
    return entries.map(lambda found: PRODUCER_SNAPSHOT.pack({"count": len(found), "entries": found}))


_FILES: dict[str, Callable[[], Strategy]] = {
    "kafka.log": _kafka_log,
    "kafka.index": _entries(INDEX_ENTRY),
    "kafka.timeindex": _entries(TIMEINDEX_ENTRY),
    "kafka.txnindex": _entries(TXNINDEX_ENTRY),
    "kafka.producer_snapshot": _snapshot,
    **strategies_leveldb.FILES,
    **strategies_zookeeper.FILES,
}
