"""Hypothesis strategies for the formats of LevelDB. See `logwright.roundtrip.strategies`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from logwright.codec import registry
from logwright.codec.leveldb.formats.log.layout import WRITE_BATCH
from logwright.codec.leveldb.formats.manifest.layout import LEVELS, EditField, form
from logwright.codec.leveldb.formats.records.layout import fragmented
from logwright.codec.leveldb.formats.table.compression import sealed, stored
from logwright.codec.leveldb.formats.table.layout import COMPRESSION_NAMES, NONE, handle, pack_entries
from logwright.codec.leveldb.formats.table.write import footer, metaindex_block
from logwright.codec.leveldb.keys import MAX_SEQUENCE, internal_key, order, separator, successor

Strategy = st.SearchStrategy[Any]
Pair = tuple[bytes, bytes]

_KEYS = st.binary(max_size=12) | st.sampled_from([b"", b"\xff" * 9, b"a" * 40, b"a" * 39 + b"b"])
_LONG = st.builds(lambda unit, count: unit * count, st.binary(min_size=1, max_size=3), st.integers(0, 900))
_VALUES = st.none() | st.binary(max_size=30) | _LONG
_SEQUENCES = st.integers(0, MAX_SEQUENCE - 1)
"""The largest is for seek keys and index keys, by which a block found alone is recognised."""
_NUMBERS = st.integers(0, (1 << 63) - 1)


def _rows(codec: str, rows: Sequence[dict[str, Any]]) -> pa.Table:
    names = ["key", "value", "sequence"]
    return pa.Table.from_pylist(list(rows), schema=registry.get(codec).tables["rows"].schema(names))


@st.composite
def _log_rows(draw: Any) -> pa.Table:
    """Draw operations with increasing sequence numbers, with or without gaps."""
    sequence = draw(st.integers(0, MAX_SEQUENCE // 2))
    rows = []
    for key, value in draw(st.lists(st.tuples(_KEYS, _VALUES), max_size=25)):
        rows.append({"key": key, "value": value, "sequence": sequence})
        sequence += draw(st.sampled_from([1, 1, 1, 2, 1000]))
    return _rows("leveldb.log", rows)


def _entries() -> Strategy:
    return st.dictionaries(st.tuples(_KEYS, _SEQUENCES), _VALUES, max_size=30).map(
        lambda drawn: sorted(
            ({"key": key, "value": value, "sequence": sequence} for (key, sequence), value in drawn.items()),
            key=lambda row: (row["key"], -row["sequence"]),
        )
    )


_INTERNAL = st.builds(internal_key, _KEYS, _SEQUENCES, st.sampled_from([0, 1]))
_LEVEL = st.integers(0, LEVELS - 1)
_EDIT_FIELDS = st.one_of(
    st.builds(lambda text: {"field": "comparator", "comparator": text}, st.text(max_size=12)),
    st.builds(
        lambda name, number: {"field": name, "number": number},
        st.sampled_from(["log_number", "prev_log_number", "next_file_number", "last_sequence"]),
        _NUMBERS,
    ),
    st.builds(
        lambda level, key: {"field": "compact_pointer", "level": level, "smallest": key}, _LEVEL, _INTERNAL
    ),
    st.builds(
        lambda level, number: {"field": "deleted_file", "level": level, "number": number}, _LEVEL, _NUMBERS
    ),
    st.builds(
        lambda level, number, size, smallest, largest: {
            "field": "new_file", "level": level, "number": number, "size": size, "smallest": smallest, "largest": largest,
        },
        _LEVEL, _NUMBERS, _NUMBERS, _INTERNAL, _INTERNAL,
    ),
)  # fmt: skip


def _edit_rows(fields: Sequence[dict[str, Any]]) -> pa.Table:
    table = registry.get("leveldb.manifest").tables["rows"]
    names = [name for name in table.names() if name != "position"]
    return pa.Table.from_pylist(list(fields), schema=table.schema(names))


NAMES: dict[str, str] = {
    "leveldb.log": "000003.log",
    "leveldb.table": "000005.ldb",
    "leveldb.manifest": "MANIFEST-000002",
    "leveldb.current": "CURRENT",
}
"""The names of the files that the laws are tested on."""
ROWS: dict[str, Callable[[], Strategy]] = {
    "leveldb.log": _log_rows,
    "leveldb.table": lambda: _entries().map(lambda rows: _rows("leveldb.table", rows)),
    "leveldb.manifest": lambda: st.lists(_EDIT_FIELDS, max_size=12).map(_edit_rows),
    "leveldb.current": lambda: st.text(max_size=20).map(lambda name: pa.table({"manifest": [name]})),
}
OPTIONS: dict[str, Callable[[], Strategy]] = {
    "leveldb.log": lambda: st.fixed_dictionaries({"batch_size": st.sampled_from([1, 2, 7, 1000])}),
    "leveldb.table": lambda: st.fixed_dictionaries(
        {
            "compression": st.sampled_from(COMPRESSION_NAMES),
            "block_size": st.sampled_from([1, 60, 300, 4096]),
            "block_restart_interval": st.sampled_from([1, 2, 16]),
            "bloom_bits_per_key": st.sampled_from([0, 1, 10, 50]),
        }
    ),
}


# Files


def _records(payloads: Sequence[bytes]) -> bytes:
    out = bytearray()
    for payload in payloads:
        out += fragmented(payload, len(out))
    return bytes(out)


@st.composite
def _log(draw: Any) -> bytes:
    """Draw batches of any number of operations, including none, with increasing sequence numbers."""
    sequence = draw(st.integers(0, MAX_SEQUENCE // 2))
    payloads = []
    for operations in draw(st.lists(st.lists(st.tuples(_KEYS, _VALUES), max_size=5), max_size=8)):
        batch = [
            {"type": 0, "key": key} if value is None else {"type": 1, "key": key, "value": value}
            for key, value in operations
        ]
        payloads.append(WRITE_BATCH.pack({"sequence": sequence, "count": len(batch), "operations": batch}))
        sequence += len(batch)
    return _records(payloads)


def _edit(fields: Sequence[dict[str, Any]]) -> bytes:
    def field(row: dict[str, Any]) -> EditField:
        text = row.get("comparator")
        rest = {name: value for name, value in row.items() if name not in ("field", "comparator")}
        return EditField(row["field"], text=None if text is None else text.encode(), **rest)

    return form([field(row) for row in fields])


@st.composite
def _table(draw: Any) -> bytes:
    """Draw blocks of any size, each with its own compression, and an index with or without shortened keys."""
    rows = draw(_entries())
    pairs = [
        (internal_key(row["key"], row["sequence"], int(row["value"] is not None)), row["value"] or b"")
        for row in rows
    ]
    pairs.sort(key=lambda pair: order(pair[0]))
    out = bytearray()
    index: list[Pair] = []
    last = b""

    def put(plain: bytes, compression: str) -> bytes:
        kind, contents = stored(plain, compression)
        place = handle(len(out), len(contents))
        out.extend(sealed(contents, kind))
        return place

    while pairs:
        size = draw(st.integers(1, len(pairs)))
        if index:
            shorter = separator(last, pairs[0][0]) if draw(st.booleans()) else last
            index[-1] = shorter, index[-1][1]
        block, pairs = pairs[:size], pairs[size:]
        last = block[-1][0]
        plain = pack_entries(block, draw(st.sampled_from([1, 2, 16])))
        index.append((last, put(plain, draw(st.sampled_from(COMPRESSION_NAMES)))))
    if index and draw(st.booleans()):
        index[-1] = successor(last), index[-1][1]
    meta = handle(len(out), len(metaindex_block(None, 1)))
    out.extend(sealed(metaindex_block(None, 1), NONE))
    place = put(pack_entries(index, 1), draw(st.sampled_from(["none", "snappy"])))
    return bytes(out) + footer(meta, place)


FILES: dict[str, Callable[[], Strategy]] = {
    "leveldb.log": _log,
    "leveldb.table": _table,
    "leveldb.manifest": lambda: st.lists(st.lists(_EDIT_FIELDS, max_size=4), max_size=6).map(
        lambda edits: _records([_edit(fields) for fields in edits])
    ),
}
