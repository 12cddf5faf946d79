"""Reference decoders of BookKeeper's rows. See `logwright.roundtrip.reference`."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from crc32c import crc32c

from logwright.codec.bookkeeper.formats.journal import EXPLICIT_LAC, FENCE, MASTER_KEY
from logwright.roundtrip.reference import Described

_KINDS = {MASTER_KEY: "master_key", FENCE: "fence", EXPLICIT_LAC: "explicit_lac"}


def digest_size(header: bytes, body: bytes) -> int:
    """Return the size of a CRC-32C or CRC-32 in front of a payload; 0 if neither matches."""
    sums = {4: crc32c(header + body[4:]), 8: zlib.crc32(header + body[8:])}
    return next(
        (n for n, value in sums.items() if int.from_bytes(body[:n], "big") == value and len(body) >= n), 0
    )


def entries(frames: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the entries whose digest is a CRC, without those of ledger -1, fillers and the header."""
    names = ("ledger_id", "entry_id", "last_add_confirmed", "length")
    for frame in frames:
        if frame["body"] is None:
            continue
        size = digest_size(
            b"".join(frame[name].to_bytes(8, "big", signed=True) for name in names), frame["body"]
        )
        yield {
            **{name: frame[name] for name in names},
            "digest": frame["body"][:size],
            "digest_type": {4: "CRC32C", 8: "CRC32"}[size],
            "payload": frame["body"][size:],
        }


def journal(frames: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the records, without paddings and the header. A digest other than CRC-32C and CRC-32 counts as payload."""
    for frame in frames:
        if frame["body"] is None:
            continue
        row = {"ledger_id": frame["ledger_id"], "kind": _KINDS.get(frame["entry_id"], "entry")}
        body = frame["body"]
        if row["kind"] == "entry":
            head = b"".join(frame[name].to_bytes(8, "big") for name in ("ledger_id", "entry_id")) + body[:16]
            size = digest_size(head, body[16:])
            row |= {"entry_id": frame["entry_id"], "length": int.from_bytes(body[8:16], "big")}
            row["last_add_confirmed"] = int.from_bytes(body[:8], "big", signed=True)
            row |= {"digest": body[16 : 16 + size] or None, "payload": body[16 + size :]}
        yield {
            "entry_id": None,
            "length": None,
            "payload": None,
            "last_add_confirmed": None,
            "digest": None,
            **row,
        }


ROWS: Mapping[str, Described] = {"bookkeeper.entrylog": entries, "bookkeeper.journal": journal}
