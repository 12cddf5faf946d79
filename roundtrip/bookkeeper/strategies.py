"""Hypothesis strategies for the formats of BookKeeper. See `logwright.roundtrip.strategies`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from crc32c import crc32c
from hypothesis import strategies as st

from logwright.codec import registry
from logwright.codec.bookkeeper.formats.entrylog.layout import ENTRY
from logwright.codec.bookkeeper.formats.entrylog.layout import HEADER as ENTRY_LOG_HEADER
from logwright.codec.bookkeeper.formats.entrylog.layout import MARKER as ENTRY_LOG_MARKER
from logwright.codec.bookkeeper.formats.entrylog.ledgersmap import map_bytes
from logwright.codec.bookkeeper.formats.index import FileInfo
from logwright.codec.bookkeeper.formats.journal import (
    EXPLICIT_LAC,
    FENCE,
    HEADER,
    MASTER_KEY,
    PADDING,
    PADDING_MASK,
    RECORD,
)

Strategy = st.SearchStrategy[Any]

_LEDGERS = st.one_of(st.integers(0, 5), st.integers(0, (1 << 63) - 1))
_PAYLOADS = st.binary(max_size=40)


@st.composite
def _records(draw: Any) -> pa.Table:
    rows: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(["entry", "entry", "entry", "master_key", "fence", "explicit_lac"]))
        row: dict[str, Any] = {"ledger_id": draw(_LEDGERS), "kind": kind}
        if kind == "entry":
            numbers = st.integers(0, (1 << 63) - 1)
            row |= {"entry_id": draw(numbers), "last_add_confirmed": draw(numbers | st.just(-1))}
            row |= {"length": draw(numbers), "payload": draw(_PAYLOADS)}
        elif kind != "fence":
            row["data"] = draw(st.binary(max_size=24))
        rows.append(row)
    table = registry.get("bookkeeper.journal").tables["rows"]
    names = ["ledger_id", "entry_id", "last_add_confirmed", "length", "payload", "kind", "data"]
    return pa.Table.from_pylist(rows, schema=table.schema(names))


def _entry(ledger: int, entry: int, payload: bytes, total: int) -> bytes:
    head = b"".join(value.to_bytes(8, "big", signed=True) for value in (ledger, entry, entry - 1, total))
    return head[16:] + crc32c(head + payload).to_bytes(4, "big") + payload


@st.composite
def _entries(draw: Any) -> pa.Table:
    numbers = st.integers(0, (1 << 63) - 1)
    columns = {
        "ledger_id": _LEDGERS,
        "entry_id": numbers,
        "last_add_confirmed": numbers | st.just(-1),
        "length": numbers,
        "payload": _PAYLOADS,
    }
    rows = draw(st.lists(st.fixed_dictionaries(columns), max_size=8))
    return pa.Table.from_pylist(
        rows, schema=registry.get("bookkeeper.entrylog").tables["rows"].schema(list(columns))
    )


@st.composite
def _entry_log(draw: Any) -> bytes:
    """Generate entries of two ledgers, dummy frames, fill bytes, and an optional ledgers map, torn or wrong."""
    out = bytearray(ENTRY_LOG_HEADER.pack({"version": draw(st.sampled_from([0, 1]))}).ljust(1024, b"\0"))
    totals, counts = [0, 0], [0, 0]
    for kind in draw(st.lists(st.sampled_from(["entry", "entry", "entry", "dummy", "fill"]), max_size=8)):
        if kind == "fill":
            out += b"\xf0" * draw(st.integers(1, 40))
        elif kind == "dummy":
            size = draw(st.integers(8, 40))
            out += ENTRY_LOG_MARKER.pack({"entry_size": size, "ledger_id": -1}) + bytes(size - 8)
        else:
            ledger, payload = draw(st.integers(0, 1)), draw(_PAYLOADS)
            totals[ledger] += len(payload)
            number, counts[ledger] = counts[ledger], counts[ledger] + 1
            body = _entry(ledger, number, payload, totals[ledger])
            ids = {
                "ledger_id": ledger,
                "entry_id": number,
                "last_add_confirmed": number - 1,
                "length": totals[ledger],
            }
            out += ENTRY.pack({**ids, "body": body[16:]})
    if draw(st.booleans()):
        sizes = {ledger: draw(st.integers(0, 999)) for ledger in (0, 1)}
        out[8:20] = len(out).to_bytes(8, "big") + draw(st.sampled_from([b"\0\0\0\2", b"\0\0\0\3"]))
        out += map_bytes(sizes)
    return bytes(out) + bytes(draw(st.sampled_from([0, 0, 100])))


@st.composite
def _journal(draw: Any) -> bytes:
    """Generate records of all kinds, paddings of any length, and optional zeros at the end."""
    version = draw(st.sampled_from([4, 5, 6]))
    out = bytearray(HEADER.pack({"version": version}).ljust(512 if version > 4 else 8, b"\0"))
    total = number = 0
    for kind in draw(
        st.lists(st.sampled_from(["entry", "entry", "key", "fence", "lac", "padding"]), max_size=8)
    ):
        if kind == "padding":
            size = draw(st.integers(0, 40))
            fill = draw(st.sampled_from([b"\0", b"\0", b"x"]))
            out += PADDING.pack({"length": PADDING_MASK, "pad_length": size}) + size * fill
            continue
        body, entry = b"", FENCE
        if kind == "entry":
            payload = draw(_PAYLOADS)
            total += len(payload)
            body, entry = _entry(7, number, payload, total), number
            number += 1
        elif kind != "fence":
            data = draw(st.binary(max_size=24))
            body, entry = len(data).to_bytes(4, "big") + data, MASTER_KEY if kind == "key" else EXPLICIT_LAC
        out += RECORD.pack({"ledger_id": 7, "entry_id": entry, "body": body})
    return bytes(out) + bytes(draw(st.sampled_from([0, 4, 100])))


@st.composite
def _locations(draw: Any) -> pa.Table:
    slots = draw(st.dictionaries(st.integers(0, 40), st.integers(1028, (1 << 63) - 1), max_size=5))
    rows = [{"entry_id": entry, "location": slots[entry]} for entry in sorted(slots)]
    return _table("bookkeeper.index", rows, ["entry_id", "location"])


@st.composite
def _index(draw: Any) -> bytes:
    """Generate index files of both versions, with locations anywhere, possibly torn."""
    version, lac = draw(st.integers(0, 1)), draw(st.sampled_from([b"", bytes(20)]))
    info = FileInfo(version, draw(st.binary(max_size=40)), draw(st.integers(0, 3)), lac if version else b"")
    slots = draw(st.lists(st.integers(0, 1 << 40), max_size=40))
    return info.form() + b"".join(slot.to_bytes(8, "big") for slot in slots) + bytes(draw(st.integers(0, 9)))


def _table(codec: str, rows: list[dict[str, Any]], columns: list[str] | None = None) -> pa.Table:
    table = registry.get(codec).tables["rows"]
    return pa.Table.from_pylist(rows, schema=table.schema(columns or table.names(detail=True)))


def _single(codec: str, **columns: Strategy) -> Callable[[], Strategy]:
    """Generate tables of one row with these columns."""
    return lambda: st.fixed_dictionaries(columns).map(lambda row: _table(codec, [row]))


_INT63 = st.integers(0, (1 << 63) - 1)
_LINES = st.text(
    st.characters(codec="utf-8", exclude_characters="\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), max_size=12
)
_COOKIES = _single(
    "bookkeeper.cookie", layout_version=st.sampled_from([4, 5]), bookie_host=st.text(max_size=9), journal_dir=_LINES,
    ledger_dirs=_LINES | st.just("1\t/data"), instance_id=st.none() | _LINES, index_dirs=st.none() | _LINES,
)  # fmt: skip
_TIMES = st.integers(0, 10**13).map(lambda ms: datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms))
ROWS: dict[str, Callable[[], Strategy]] = {
    "bookkeeper.entrylog": _entries,
    "bookkeeper.journal": _records,
    "bookkeeper.index": _locations,
    "bookkeeper.lastmark": _single("bookkeeper.lastmark", journal_id=_INT63, offset=_INT63),
    "bookkeeper.lastid": _single("bookkeeper.lastid", log_id=_INT63),
    "bookkeeper.bookiestatus": _single(
        "bookkeeper.bookiestatus",
        layout_version=st.just(1),
        mode=st.sampled_from(["READ_WRITE", "READ_ONLY"]),
        last_update_time=_TIMES,
        manually_modified=st.none() | st.booleans(),
    ),
    "bookkeeper.dirty": lambda: st.just(_table("bookkeeper.dirty", [])),
    "bookkeeper.cookie": _COOKIES,
}
OPTIONS: dict[str, Callable[[], Strategy]] = {
    "bookkeeper.journal": lambda: st.fixed_dictionaries(
        {"journalFormatVersionToWrite": st.sampled_from([4, 5, 6])}
    )
}
FILES: dict[str, Callable[[], Strategy]] = {
    "bookkeeper.entrylog": _entry_log,
    "bookkeeper.journal": _journal,
    "bookkeeper.index": _index,
    "bookkeeper.lastmark": lambda: st.binary(min_size=16, max_size=16),
}
