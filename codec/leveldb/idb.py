"""The key order of Chrome's IndexedDB, the comparator `idb_cmp1`.

A key starts with three ids: of a database, an object store and an index. They determine what follows: metadata of the profile or of a
database, a record of an object store, or an entry of an index. Ids are integers of varying width and script values are tagged by type, so
the order is not bytewise.

`collate` turns a key into bytes that compare bytewise as the keys compare. Keys that the comparator treats as equal have the same bytes.

Source: `content/browser/indexed_db/indexed_db_leveldb_coding.cc` and `docs/leveldb_coding_scheme.md` of Chromium.
"""

from __future__ import annotations

import struct

NAME = "idb_cmp1"
"""The comparator's name in manifests."""

OBJECT_STORE_DATA, EXISTS_ENTRY, BLOB_ENTRY = 1, 2, 3
"""Index ids of the parts of an object store."""
MIN_INDEX = 30
"""The smallest id of an application's index."""

_GLOBAL_SIMPLE, _GLOBAL_SCOPES, _GLOBAL_FREE_LIST, _GLOBAL_NAME = 7, 50, 100, 201
"""Metadata of the profile, by type byte. Types below the first have one key each."""
_STORE, _INDEX, _STORE_FREE_LIST, _INDEX_FREE_LIST, _STORE_NAMES, _INDEX_NAMES = 50, 100, 150, 151, 200, 201
_DATABASE_SIMPLE = 6
"""Metadata of a database, by type byte. Types below this have one key each."""

_NULL, _STRING, _DATE, _NUMBER, _ARRAY, _MIN, _BINARY = range(7)
"""Stored types of a script value."""
_RANKS = {_MIN: b"\x01", _NUMBER: b"\x03", _DATE: b"\x04", _STRING: b"\x05", _BINARY: b"\x06", _ARRAY: b"\x07", _NULL: b"\x08"}  # fmt: skip
"""The order of the types; a rank is never 0, which ends an array."""

_KNOWN, _UNDECODABLE = b"\x01", b"\xff"
_SIGN = 1 << 63
_ALL = (1 << 64) - 1
_U64BE, _U64LE = struct.Struct(">Q"), struct.Struct("<Q")


class UndecodableKeyError(ValueError):
    """A key that Chrome's comparator cannot decode. The comparator treats it as equal to every other key."""


def collate(key: bytes) -> bytes:
    """Return bytes that compare as the key does. A key that cannot be decoded comes last in its group and equals only itself."""
    return _collated(key)[0]


def decodable(key: bytes) -> bool:
    """Return whether Chrome's comparator can decode the key."""
    return _collated(key)[1]


def _collated(key: bytes) -> tuple[bytes, bool]:
    at, head, metadata = 0, b"", False
    try:
        at, head, ids = _prefix(key)
        metadata = not ids[0] or not ids[1]
        if metadata:
            rest = _metadata(key, at, simple=_DATABASE_SIMPLE if ids[0] else _GLOBAL_SIMPLE)
        else:
            rest = _data(key, at, ids[2])
    except UndecodableKeyError:
        # The type byte alone distinguishes metadata of different types.
        return head + (key[at : at + 1] if metadata else b"") + _UNDECODABLE + key, False
    return head + rest, True


def _prefix(key: bytes) -> tuple[int, bytes, tuple[int, int, int]]:
    """Return the end of the three ids, their bytes in order, and the ids. The first byte has their widths: 3, 3 and 2 bits."""
    if not key:
        raise UndecodableKeyError
    widths = (key[0] >> 5) + 1, (key[0] >> 2 & 7) + 1, (key[0] & 3) + 1
    if 1 + sum(widths) > len(key):
        raise UndecodableKeyError
    at = 1
    ids = []
    for width in widths:
        ids.append(int.from_bytes(key[at : at + width], "little"))
        at += width
    return at, b"".join(map(_number, ids)), (ids[0], ids[1], ids[2])


def _number(value: int) -> bytes:
    """Convert a signed 64-bit integer that was read as unsigned."""
    return _U64BE.pack((value & _ALL) ^ _SIGN)


def _varint(key: bytes, at: int) -> tuple[int, int]:
    """Read a 64-bit varint as unsigned. Returns it and where it ends."""
    value = shift = 0
    while True:
        if at >= len(key) or shift >= 64:
            raise UndecodableKeyError
        byte = key[at]
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if not byte & 0x80:
            return value & _ALL, at


def _text(data: bytes) -> bytes:
    """Return bytes of any length, with a terminator that sorts before every further byte."""
    return data.replace(b"\0", b"\0\xff") + b"\0\0"


def _counted(key: bytes, at: int, width: int) -> tuple[bytes, int]:
    """Read a length and a string of `width` bytes per character. Returns the string and where it ends."""
    length, at = _varint(key, at)
    stop = at + length * width
    if length >= _SIGN or stop > len(key):
        raise UndecodableKeyError
    return _text(key[at:stop]), stop


def _metadata(key: bytes, at: int, *, simple: int) -> bytes:
    if at >= len(key):
        raise UndecodableKeyError
    kind, head = key[at], key[at : at + 1]
    at += 1
    if kind < simple:
        return head
    if simple == _GLOBAL_SIMPLE:
        numbers, strings, last = {_GLOBAL_FREE_LIST: (1, 0, 0), _GLOBAL_NAME: (0, 2, 0)}.get(kind, (0, 0, 0))
        if kind == _GLOBAL_SCOPES:
            return head + _KNOWN + key[at:]
    else:
        numbers, strings, last = {
            _STORE: (1, 0, 1),
            _INDEX: (2, 0, 1),
            _STORE_FREE_LIST: (1, 0, 0),
            _INDEX_FREE_LIST: (2, 0, 0),
            _STORE_NAMES: (0, 1, 0),
            _INDEX_NAMES: (1, 1, 0),
        }.get(kind, (0, 0, 0))
    if not numbers and not strings:
        raise UndecodableKeyError
    out = [head, _KNOWN]
    for _ in range(numbers):
        number, at = _varint(key, at)
        out.append(_number(number))
    for _ in range(strings):
        text, at = _counted(key, at, 2)
        out.append(text)
    if last:
        if at >= len(key):
            raise UndecodableKeyError
        out.append(key[at : at + 1])
    return b"".join(out)


def _data(key: bytes, at: int, index: int) -> bytes:
    if index not in (OBJECT_STORE_DATA, EXISTS_ENTRY, BLOB_ENTRY) and index < MIN_INDEX:
        raise UndecodableKeyError
    if at == len(key):
        return b""
    value, at = _value(key, at)
    if index < MIN_INDEX:
        return _KNOWN + value
    # An index key continues with a sequence number, then the primary key, which is compared first. Both may be absent.
    sequence = _ALL
    if at < len(key):
        sequence, at = _varint(key, at)
    if at == len(key):
        return _KNOWN + value + b"\0"
    primary, _ = _value(key, at)
    return _KNOWN + value + b"\x01" + primary + _number(sequence)


def _value(key: bytes, at: int) -> tuple[bytes, int]:
    """Read a script value. Returns it and where it ends. Arrays compare element by element, then by length."""
    out: list[bytes] = []
    left: list[int] = []
    """Elements left of each open array."""
    while True:
        if at >= len(key) or key[at] not in _RANKS:
            raise UndecodableKeyError
        kind = key[at]
        out.append(_RANKS[kind])
        at += 1
        if kind == _ARRAY:
            length, at = _varint(key, at)
            if length >= _SIGN:
                raise UndecodableKeyError
            left.append(length)
        else:
            if kind in (_STRING, _BINARY):
                text, at = _counted(key, at, 2 if kind == _STRING else 1)
                out.append(text)
            elif kind in (_NUMBER, _DATE):
                out.append(_double(key, at))
                at += 8
            if left:
                left[-1] -= 1
        while left and not left[-1]:
            out.append(b"\0")
            left.pop()
            if left:
                left[-1] -= 1
        if not left:
            return b"".join(out), at


def _double(key: bytes, at: int) -> bytes:
    """Read a number in the byte order of the machine that wrote it, which is little-endian. Both zeros are equal; NaN is not a key."""
    if at + 8 > len(key):
        raise UndecodableKeyError
    bits = int(_U64LE.unpack_from(key, at)[0])
    magnitude = bits & (_SIGN - 1)
    if magnitude > 0x7FF << 52:
        raise UndecodableKeyError
    if bits & _SIGN and magnitude:
        return _U64BE.pack(bits ^ _ALL)
    return _U64BE.pack(magnitude | _SIGN)
