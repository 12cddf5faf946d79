"""Split an entry into fields for explain, diff and edits by field, and recompute its digest after an edit.

No file says which type of digest an entry has. It is that of a matching CRC, or that of other entries of the ledger.
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
    """Return the size of the CRC that matches; 0 if none matches. `content` starts with the ledger id."""
    return int(matching_digest(np.frombuffer(content, np.uint8), 0, len(content)))


def content_fields(content: bytes, digests: Digests | None) -> Sequence[Field]:
    """Return the fields after the header of an entry. `digests` are the known digest types of the file's ledgers."""
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
    return Field(DIGEST, _TYPES[size], f"{NAMES[size]} of header and payload: {verdict}"), payload


def detailed(struct: Struct, kept: Sequence[str], fields: Sequence[Field]) -> Struct:
    """Return a copy of the structure with the fields `kept`, followed by `fields`."""
    return Struct(struct.name, *(struct[name] for name in kept), *fields, doc=struct.doc)


def details(struct: Struct, kept: Sequence[str], *more: Field) -> Struct:
    """Return a copy of the structure with all fields that an entry may have."""
    return detailed(
        struct, kept, (*more, Field(DIGEST, U32BE, "of header and payload"), Field(PAYLOAD, Bytes("rest")))
    )


def resealed(old: bytes, new: bytes, at: int, path: address.Path) -> bytes:
    """Return the changed frame with the digest of its entry. The entry starts at byte `at`; `old` is the frame before the change.

    Raises `UsageError` if the digest is not a CRC.
    """
    if path and path[0] == DIGEST:
        raise UsageError("reseal would overwrite the new digest", advice="Leave out reseal")
    size = _digest(old[at:])
    if not size:
        raise UsageError(
            "the digest of this entry is neither CRC32C nor CRC32, so it cannot be recomputed",
            advice="Leave out reseal, and set the length separately",
        )
    head, payload = new[at : at + HEADER], new[at + HEADER + size :]
    crc = crc32c(head + payload) if size == CRC32C else zlib.crc32(head + payload)
    return new[: at + HEADER] + crc.to_bytes(size, "big") + payload
