"""Internal keys: a user key, then 56 bits of sequence and 8 of type.

They are ordered by the user key, ascending, and then by these last 64 bits, descending: the newest first.
Source: `db/dbformat.h` and `util/comparator.cc` of LevelDB.
"""

from __future__ import annotations

from logwright.codec.describe import U64LE, Bytes, Field, Scope, Struct
from logwright.codec.expression import LEFT

BYTEWISE = "leveldb.BytewiseComparator"
"""The name of the default order in manifests: byte by byte, unsigned, a prefix first."""

DELETION, VALUE = 0, 1
TYPE_NAMES = ("deletion", "value")
MAX_SEQUENCE = (1 << 56) - 1

TRAILER = Struct(
    "InternalKeyTrailer",
    Field("tag", U64LE, "sequence << 8 | type; type 0 is a deletion, 1 a value"),
    doc="The last eight bytes of an internal key.",
    source="InternalKey",
)
TRAILER_SIZE = TRAILER.head_size


def tag_of(tag: int) -> str:
    """Describe the last 64 bits of an internal key."""
    kind = tag & 0xFF
    return f"sequence {tag >> 8}, {TYPE_NAMES[kind] if kind < len(TYPE_NAMES) else f'unknown type {kind}'}"


def _tag(tag: int, scope: Scope) -> str:
    return tag_of(tag)


INTERNAL_KEY = Struct(
    "InternalKey",
    Field("user_key", Bytes(), "what the user calls the key", size=f"{LEFT} - {TRAILER_SIZE}"),
    Field("tag", U64LE, TRAILER["tag"].doc, says=_tag),
    doc="A user key, and the write that it belongs to.",
    source="InternalKey",
)


def user_key(internal: bytes) -> bytes:
    """Return an internal key without sequence number and type (`ExtractUserKey`)."""
    return internal[:-TRAILER_SIZE]


def internal_key(user_key: bytes, sequence: int, kind: int) -> bytes:
    """Return the internal key of a user key."""
    return user_key + TRAILER.pack({"tag": sequence << 8 | kind})


SEEK_TAG = internal_key(b"", MAX_SEQUENCE, VALUE)
"""Sequence and type of a shortened key. They sort before all real ones of that user key."""


def order(key: bytes) -> tuple[bytes, int]:
    """Return the sort key of an internal key in bytewise order."""
    return key[:-TRAILER_SIZE], -int.from_bytes(key[-TRAILER_SIZE:], "little")


def separator(last: bytes, following: bytes) -> bytes:
    """Return a short internal key not less than `last` and less than `following` (`InternalKeyComparator::FindShortestSeparator`)."""
    a, b = last[:-TRAILER_SIZE], following[:-TRAILER_SIZE]
    most = min(len(a), len(b))
    i = 0
    while i < most and a[i] == b[i]:
        i += 1
    # An incremented byte must fit between the two, and only the first differing one is tried.
    if i < most and a[i] < 0xFF and a[i] + 1 < b[i]:
        return _shorter(last, a[:i] + bytes((a[i] + 1,)))
    return last


def successor(last: bytes) -> bytes:
    """Return a short internal key not less than `last` (`InternalKeyComparator::FindShortSuccessor`)."""
    user = last[:-TRAILER_SIZE]
    for i, byte in enumerate(user):
        if byte != 0xFF:
            return _shorter(last, user[:i] + bytes((byte + 1,)))
    return last


def _shorter(last: bytes, candidate: bytes) -> bytes:
    """Return the candidate as an internal key if it is shorter than the user key, otherwise the key itself."""
    return candidate + SEEK_TAG if len(candidate) < len(last) - TRAILER_SIZE else last


def key_range(smallest: bytes | None, largest: bytes | None) -> dict[str, str]:
    """Return a range of user keys for `Fault.lost`, without unknown ends."""
    ends = {"smallest": smallest, "largest": largest}
    return {name: readable(key) for name, key in ends.items() if key is not None}


def readable(key: bytes) -> str:
    """Format a key for display: text if it is printable, otherwise hexadecimal."""
    text = key.decode("utf-8", "replace")
    return text if text.isprintable() and text.encode() == key else f"0x{key.hex()}"
