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


def _digest(header: bytes, body: bytes) -> dict[str, Any]:
    """Return the columns that depend on the digest type; none if it is not a CRC, because then the type is not in the file."""
    size = digest_size(header, body)
    if not size:
        return {}
    return {"digest": body[:size], "digest_type": {4: "CRC32C", 8: "CRC32"}[size], "payload": body[size:]}


def entries(frames: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the entries, without those of ledger -1, fillers and the header."""
    names = ("ledger_id", "entry_id", "last_add_confirmed", "length")
    for frame in frames:
        if frame["body"] is None:
            continue
        header = b"".join(frame[name].to_bytes(8, "big", signed=True) for name in names)
        yield {name: frame[name] for name in names} | _digest(header, frame["body"])


def journal(frames: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the records, without paddings and the header."""
    for frame in frames:
        if frame["body"] is None:
            continue
        row = {"ledger_id": frame["ledger_id"], "kind": _KINDS.get(frame["entry_id"], "entry")}
        body = frame["body"]
        if row["kind"] == "entry":
            head = b"".join(frame[name].to_bytes(8, "big") for name in ("ledger_id", "entry_id")) + body[:16]
            row |= {"entry_id": frame["entry_id"], "length": int.from_bytes(body[8:16], "big")}
            row["last_add_confirmed"] = int.from_bytes(body[:8], "big", signed=True)
            row |= _digest(head, body[16:])
        else:
            row |= dict.fromkeys(
                ("entry_id", "length", "last_add_confirmed", "digest", "digest_type", "payload")
            )
        yield row


ROWS: Mapping[str, Described] = {"bookkeeper.entrylog": entries, "bookkeeper.journal": journal}
