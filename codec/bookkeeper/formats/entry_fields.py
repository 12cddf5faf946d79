"""Split an entry into fields for explain, diff and edits by field, and recompute its digest after an edit.

No file says which type of digest an entry has. It is that of a matching CRC, or that of other entries of the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from logwright.codec import address
from logwright.codec.bookkeeper.formats.digest import (
    CRC32,
    CRC32C,
    DUMMY,
    HEADER,
    HMAC,
    NAMES,
    Digests,
    digest_of,
    hmac_matches,
    matching_digest,
)
from logwright.codec.describe import I64BE, U32BE, Bytes, Field, Struct, Type
from logwright.codec.fault import UsageError

_TYPES: dict[int, Type] = {CRC32C: U32BE, CRC32: I64BE, HMAC: Bytes(HMAC)}
DIGEST, PAYLOAD = "digest", "payload"
_AT = 4
"""Where the entry starts in its frame, after the size."""


def _digest(content: bytes, digests: Digests | None) -> int:
    """Return the size of the CRC or HMAC that matches; 0 if none matches. `content` starts with the ledger id."""
    data = np.frombuffer(content, np.uint8)
    size = int(matching_digest(data, 0, len(data)))
    password = None if size else _password(content, digests)
    return HMAC if password is not None and hmac_matches(data, 0, len(data), password) else size


def _password(content: bytes, digests: Digests | None) -> bytes | None:
    return None if digests is None else digests.password(int.from_bytes(content[:8], "big"))


def content_fields(content: bytes, digests: Digests | None) -> Sequence[Field]:
    """Return the fields after the header of an entry. `digests` are the known digest types of the file's ledgers."""
    size = _digest(content, digests)
    verdict = "matches"
    if not size and digests is not None:
        known = digests.known.get(int.from_bytes(content[:8], "big"), digests.assumed)
        if known is None or len(content) - HEADER < known:
            return (Field("body", Bytes("rest"), "digest (0, 4, 8 or 20 bytes) and payload"),)
        unchecked = known == HMAC and _password(content, digests) is None
        size, verdict = known, "not checked" if unchecked else "does not match"
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


def resealed(old: bytes, new: bytes, path: address.Path, digests: Digests | None) -> bytes:
    """Return the changed frame with the digest of its entry. `old` is the frame before the change.

    Raises `UsageError` if the digest is neither a CRC nor an HMAC of a known password.
    """
    if path and path[0] == DIGEST:
        raise UsageError("reseal would overwrite the new digest", advice="Leave out reseal")
    size = _digest(old[_AT:], digests)
    if not size:
        raise UsageError(
            "the digest of this entry is neither CRC32C nor CRC32 nor an HMAC with a known password, so it cannot be recomputed",
            advice="Pass the option passwd, or leave out reseal and set the length separately",
        )
    password = _password(old[_AT:], digests) if size == HMAC else None
    body = _AT + HEADER
    head, payload = new[_AT:body], new[body + size :]
    return new[:body] + digest_of(head + payload, size, password) + payload
