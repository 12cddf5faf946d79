"""The fields of one entry for explain, diff and changes by field: digest and payload apart, and the digest computed again after a change.

No file says which digest an entry has. Here it is a CRC that matches, or the type that other entries of the ledger have shown.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from crc32c import crc32c

from logwright.codec import address
from logwright.codec.bookkeeper.formats.digest import (
    CRC32,
    CRC32C,
    DUMMY,
    HEADER,
    HMAC,
    NAMES,
    Digests,
    matching_digest,
)
from logwright.codec.describe import I64BE, U32BE, Bytes, Field, Struct, Type
from logwright.codec.fault import UsageError

_TYPES: dict[int, Type] = {CRC32C: U32BE, CRC32: I64BE, HMAC: Bytes(HMAC)}
DIGEST, PAYLOAD = "digest", "payload"


def _digest(content: bytes) -> int:
    """Return the size of the CRC that matches in an entry from its ledger id on; 0 if none does."""
    return int(matching_digest(np.frombuffer(content, np.uint8), 0, len(content)))


def content_fields(content: bytes, digests: Digests | None) -> Sequence[Field]:
    """Return the fields behind the four numbers of an entry. `digests`: what is known of the ledgers of the file."""
    size = _digest(content)
    verdict = "matches"
    if not size and digests is not None:
        known = digests.known.get(int.from_bytes(content[:8], "big"), digests.assumed)
        if known is None or len(content) - HEADER < known:
            return (Field("body", Bytes("rest"), "digest (0, 4, 8 or 20 bytes) and payload"),)
        size, verdict = known, "not checked" if known == HMAC else "does not match"
    elif not size:
        return (Field("body", Bytes("rest"), "digest (0, 4, 8 or 20 bytes) and payload"),)
    payload = Field(PAYLOAD, Bytes("rest"), "the payload")
    if size == DUMMY:
        return (payload,)
    return Field(DIGEST, _TYPES[size], f"{NAMES[size]} of numbers and payload: {verdict}"), payload


def detailed(struct: Struct, kept: Sequence[str], fields: Sequence[Field]) -> Struct:
    """Return a structure with some of its fields, and others behind them."""
    return Struct(struct.name, *(struct[name] for name in kept), *fields, doc=struct.doc)


def details(struct: Struct, kept: Sequence[str], *more: Field) -> Struct:
    """Return the structure with all fields that an entry may have."""
    return detailed(
        struct, kept, (*more, Field(DIGEST, U32BE, "of numbers and payload"), Field(PAYLOAD, Bytes("rest")))
    )


def resealed(old: bytes, new: bytes, at: int, path: address.Path) -> bytes:
    """Return the changed frame with the digest of its entry. The entry starts at byte `at`; `old` is the frame before the change.

    Raises `UsageError` if the digest is not a CRC.
    """
    if path and path[0] == DIGEST:
        raise UsageError("digest is a checksum, which reseal would restore", advice="Leave out reseal")
    size = _digest(old[at:])
    if not size:
        raise UsageError(
            "the digest of this entry is neither CRC32C nor CRC32, so it cannot be recomputed",
            advice="Leave out reseal, and set the length separately",
        )
    head, payload = new[at : at + HEADER], new[at + HEADER + size :]
    crc = crc32c(head + payload) if size == CRC32C else zlib.crc32(head + payload)
    return new[: at + HEADER] + crc.to_bytes(size, "big") + payload
