"""Decode and encode messages by their schemas. Each type's reader is next to its writer.

Values are plain Python: a structure is a dict, an array a list, a UUID its text. Source: `Readable`, `Writable`, `MessageUtil` and
`ByteUtils` of Kafka's clients library, and the generator of its message classes.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from logwright.codec.java import java_string
from logwright.codec.kafka.formats.internal.schema import ZERO_UUID, Field, Kind, RecordType
from logwright.codec.kafka.formats.payload import PayloadError

Reader = Callable[[bytes, int], tuple[Any, int]]
"""`(data, at)` to the value that starts there, and the position after it. Raises `PayloadError`."""
Writer = Callable[[bytearray, Any], None]

_NUMBERS = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q", "float64": "d"}
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_MOST_STRING = (1 << 15) - 1
_MOST_VARINT_BYTES = 5


# Unsigned varints


def read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for i in range(_MOST_VARINT_BYTES):
        if at + i >= len(data):
            raise PayloadError(f"ends inside a varint at byte {at}")
        byte = data[at + i]
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return value & 0xFFFFFFFF, at + i + 1
    raise PayloadError(f"the varint at byte {at} is longer than {_MOST_VARINT_BYTES} bytes")


def write_uvarint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


# Numbers, booleans and UUIDs


def _number_reader(code: str) -> Reader:
    unpack, width = struct.Struct(f">{code}").unpack_from, struct.calcsize(f">{code}")

    def read(data: bytes, at: int) -> tuple[Any, int]:
        if at + width > len(data):
            raise PayloadError(f"ends at byte {len(data)}, inside a number of {width} bytes")
        return unpack(data, at)[0], at + width

    return read


def _number_writer(name: str) -> Writer:
    pack = struct.Struct(f">{_NUMBERS[name]}").pack

    def write(out: bytearray, value: Any) -> None:
        try:
            out += pack(value)
        except (struct.error, TypeError, OverflowError):
            raise PayloadError(f"{value!r} is not a value of type {name}") from None

    return write


def _read_bool(data: bytes, at: int) -> tuple[bool, int]:
    if at >= len(data):
        raise PayloadError(f"ends at byte {len(data)}, before a boolean")
    return data[at] != 0, at + 1


def _write_bool(out: bytearray, value: Any) -> None:
    out.append(bool(value))


def _read_uuid(data: bytes, at: int) -> tuple[str, int]:
    if at + 16 > len(data):
        raise PayloadError(f"ends at byte {len(data)}, inside a UUID")
    return base64.urlsafe_b64encode(data[at : at + 16])[:22].decode(), at + 16


def _write_uuid(out: bytearray, value: Any) -> None:
    try:
        raw = base64.b64decode(f"{value}==", b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 16:
        raise PayloadError(f"{value!r} is not a UUID: expected 22 characters such as {ZERO_UUID}")
    out += raw


# Lengths, strings and bytes


def _read_length(data: bytes, at: int, width: struct.Struct | None) -> tuple[int, int]:
    """Read the length of a string, of bytes or of an array: a number of this width, or a compact one. -1 is null."""
    if width is None:
        length, at = read_uvarint(data, at)
        length -= 1
    else:
        if at + width.size > len(data):
            raise PayloadError(f"ends at byte {len(data)}, inside a length")
        (length,) = width.unpack_from(data, at)
        at += width.size
    if length > len(data) - at:
        raise PayloadError(f"length {length} at byte {at}, but {len(data) - at} bytes are left")
    return max(length, -1), at


def _write_length(out: bytearray, length: int, width: struct.Struct | None) -> None:
    if width is None:
        write_uvarint(out, length + 1)
    else:
        out += width.pack(length)


def _content_reader(*, text: bool, width: struct.Struct | None, nullable: bool) -> Reader:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        length, at = _read_length(data, at, width)
        if length < 0:
            _refuse_null(nullable)
            return None, at
        if text and length > _MOST_STRING:
            raise PayloadError(f"a string of {length} bytes at byte {at}: at most {_MOST_STRING} are allowed")
        content = data[at : at + length]
        return java_string(content) if text else content, at + length

    return read


def _content_writer(*, text: bool, width: struct.Struct | None, nullable: bool) -> Writer:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            _refuse_null(nullable)
            _write_length(out, -1, width)
            return
        if not isinstance(value, (str, bytes)):
            raise PayloadError(f"{value!r} is not {'text' if text else 'bytes'}")
        content = value.encode() if isinstance(value, str) else value
        if text and len(content) > _MOST_STRING:
            raise PayloadError(f"a string of {len(content)} bytes: at most {_MOST_STRING} are allowed")
        _write_length(out, len(content), width)
        out += content

    return write


def _refuse_null(nullable: bool) -> None:
    if not nullable:
        raise PayloadError("null, but the field is never null in this version")


# Arrays and structures


def _array_reader(item: Reader, *, flexible: bool, nullable: bool) -> Reader:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        # Each item has at least one byte.
        count, at = _read_length(data, at, None if flexible else _INT)
        if count < 0:
            _refuse_null(nullable)
            return None, at
        items = []
        for _ in range(count):
            value, at = item(data, at)
            items.append(value)
        return items, at

    return read


def _array_writer(item: Writer, *, flexible: bool, nullable: bool) -> Writer:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            _refuse_null(nullable)
        elif not isinstance(value, (list, tuple)):
            raise PayloadError(f"{value!r} is not a list")
        _write_length(out, -1 if value is None else len(value), None if flexible else _INT)
        for each in value or ():
            item(out, each)

    return write


def _struct_reader(fields: Sequence[Field], version: int, *, flexible: bool) -> Reader:
    plain = [
        (field.name, _reader(field.kind, version, flexible))
        for field in fields
        if field.within(version) and field.tag is None
    ]
    tagged = {
        field.tag: (field.name, _reader(field.kind, version, flexible, tagged=True))
        for field in fields
        if field.within(version) and field.tag is not None
    }
    # A tag that is absent has the field's default. A field that the version lacks is null.
    absent = {
        field.name: field.default for field in fields if field.within(version) and field.tag is not None
    }
    absent |= {field.name: None for field in fields if not field.within(version)}

    def read(data: bytes, at: int) -> tuple[Any, int]:
        row = dict(absent)
        for name, reader in plain:
            row[name], at = reader(data, at)
        if flexible:
            count, at = read_uvarint(data, at)
            for _ in range(count):
                tag, at = read_uvarint(data, at)
                size, at = read_uvarint(data, at)
                if size > len(data) - at:
                    raise PayloadError(f"tag {tag} has {size} bytes, but {len(data) - at} are left")
                if tag in tagged:
                    name, reader = tagged[tag]
                    row[name], end = reader(data[: at + size], at)
                    if end != at + size:
                        raise PayloadError(f"tag {tag} has {size} bytes, but its content {end - at}")
                at += size
        return row, at

    return read


def _struct_writer(fields: Sequence[Field], version: int, *, flexible: bool) -> Writer:
    plain = [
        (field, _writer(field.kind, version, flexible))
        for field in fields
        if field.within(version) and field.tag is None
    ]
    tagged = (
        sorted(
            (field.tag, field, _writer(field.kind, version, flexible, tagged=True))
            for field in fields
            if field.within(version) and field.tag is not None
        )
        if flexible
        else []
    )
    known = {field.name for field in fields}
    absent = [field for field in fields if not field.within(version)]

    def write(out: bytearray, row: Any) -> None:
        if not isinstance(row, Mapping):
            raise PayloadError(f"{row!r} is not a structure")
        for name in row.keys() - known:
            raise PayloadError(f"there is no field {name}")
        for field in absent:
            if row.get(field.name) not in (None, field.default):
                raise PayloadError(
                    f"{field.name} is {row[field.name]!r}, but version {version} has no such field"
                )
        for field, writer in plain:
            _named(field, writer, out, _value(field, row))
        if not flexible:
            return
        tags = [entry for entry in tagged if _value(entry[1], row) != entry[1].default]
        write_uvarint(out, len(tags))
        for tag, field, writer in tags:
            content = bytearray()
            _named(field, writer, content, _value(field, row))
            write_uvarint(out, tag)
            write_uvarint(out, len(content))
            out += content

    return write


def _value(field: Field, row: Mapping[str, Any]) -> Any:
    """Return the value of a field, or its default if the row lacks it."""
    value = row.get(field.name)
    absent = value is None and (not field.kind.nullable or field.name not in row)
    return field.default if absent and field.optional else value


def _named(field: Field, writer: Writer, out: bytearray, value: Any) -> None:
    """Write a field. Errors name it."""
    try:
        writer(out, value)
    except PayloadError as error:
        raise PayloadError(f"{field.name}: {error}") from None


def _nullable_reader(inner: Reader, *, tagged: bool) -> Reader:
    """Read a structure after a byte that is negative for null. Under a tag it is a varint that is 0 for null."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        if tagged:
            present, at = read_uvarint(data, at)
        elif at < len(data):
            present, at = not data[at] & 0x80, at + 1
        else:
            raise PayloadError(f"ends at byte {len(data)}, before a structure")
        return inner(data, at) if present else (None, at)

    return read


def _nullable_writer(inner: Writer, *, tagged: bool) -> Writer:
    def write(out: bytearray, value: Any) -> None:
        out.append((0 if tagged else 0xFF) if value is None else 1)
        if value is not None:
            inner(out, value)

    return write


def _reader(kind: Kind, version: int, flexible: bool, tagged: bool = False) -> Reader:
    if kind.item is not None:
        return _array_reader(_reader(kind.item, version, flexible), flexible=flexible, nullable=kind.nullable)
    if kind.fields is not None:
        inner = _struct_reader(kind.fields, version, flexible=flexible)
        return _nullable_reader(inner, tagged=tagged) if kind.nullable else inner
    if kind.name in _NUMBERS:
        return _number_reader(_NUMBERS[kind.name])
    if kind.name in ("bool", "uuid"):
        return _read_bool if kind.name == "bool" else _read_uuid
    text = kind.name == "string"
    return _content_reader(text=text, width=_width(text, flexible), nullable=kind.nullable)


def _writer(kind: Kind, version: int, flexible: bool, tagged: bool = False) -> Writer:
    if kind.item is not None:
        return _array_writer(_writer(kind.item, version, flexible), flexible=flexible, nullable=kind.nullable)
    if kind.fields is not None:
        inner = _struct_writer(kind.fields, version, flexible=flexible)
        return _nullable_writer(inner, tagged=tagged) if kind.nullable else inner
    if kind.name in _NUMBERS:
        return _number_writer(kind.name)
    if kind.name in ("bool", "uuid"):
        return _write_bool if kind.name == "bool" else _write_uuid
    text = kind.name == "string"
    return _content_writer(text=text, width=_width(text, flexible), nullable=kind.nullable)


def _width(text: bool, flexible: bool) -> struct.Struct | None:
    if flexible:
        return None
    return _SHORT if text else _INT


# Keys and values


@cache
def key_reader(kind: RecordType) -> Reader:
    return _struct_reader(kind.key, 0, flexible=False)


@cache
def key_writer(kind: RecordType) -> Writer:
    return _struct_writer(kind.key, 0, flexible=False)


@cache
def value_reader(kind: RecordType, version: int) -> Reader:
    return _struct_reader(kind.value, version, flexible=version >= kind.flexible)


@cache
def value_writer(kind: RecordType, version: int) -> Writer:
    return _struct_writer(kind.value, version, flexible=version >= kind.flexible)
