"""Hypothesis strategies for the formats of BookKeeper. See `logwright.roundtrip.strategies`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from crc32c import crc32c
from hypothesis import strategies as st

from logwright.codec import registry
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


ROWS: dict[str, Callable[[], Strategy]] = {"bookkeeper.journal": _records}
OPTIONS: dict[str, Callable[[], Strategy]] = {
    "bookkeeper.journal": lambda: st.fixed_dictionaries(
        {"journalFormatVersionToWrite": st.sampled_from([4, 5, 6])}
    )
}
FILES: dict[str, Callable[[], Strategy]] = {"bookkeeper.journal": _journal}
