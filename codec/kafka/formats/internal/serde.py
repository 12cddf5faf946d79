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
from typing import Any, NamedTuple

from logwright.codec.java import java_string
from logwright.codec.kafka.formats.internal.schema import ZERO_UUID, Field, Kind, RecordType
from logwright.codec.kafka.formats.payload import PayloadError

Reader = Callable[[bytes, int], tuple[Any, int]]
"""`(data, at)` to the value that starts there, and the position after it. Raises `PayloadError`."""
Writer = Callable[[bytearray, Any], None]


class Coder(NamedTuple):
    """The reader and the writer of a type."""

    read: Reader
    write: Writer


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


def _number(name: str) -> Coder:
    form = struct.Struct(f">{_NUMBERS[name]}")

    def read(data: bytes, at: int) -> tuple[Any, int]:
        if at + form.size > len(data):
            raise PayloadError(f"ends at byte {len(data)}, inside a number of {form.size} bytes")
        return form.unpack_from(data, at)[0], at + form.size

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            _refuse_null(False)
        try:
            out += form.pack(value)
        except (struct.error, TypeError, OverflowError):
            raise PayloadError(f"{value!r} is not a value of type {name}") from None

    return Coder(read, write)


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


def _content(*, text: bool, width: struct.Struct | None, nullable: bool) -> Coder:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        length, at = _read_length(data, at, width)
        if length < 0:
            _refuse_null(nullable)
            return None, at
        if text and length > _MOST_STRING:
            raise PayloadError(f"a string of {length} bytes at byte {at}: at most {_MOST_STRING} are allowed")
        content = data[at : at + length]
        return java_string(content) if text else content, at + length

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

    return Coder(read, write)


def _refuse_null(nullable: bool) -> None:
    if not nullable:
        raise PayloadError("null, but the field is never null in this version")


# Arrays and structures


def _array(item: Coder, *, flexible: bool, nullable: bool) -> Coder:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        # Each item has at least one byte.
        count, at = _read_length(data, at, None if flexible else _INT)
        if count < 0:
            _refuse_null(nullable)
            return None, at
        items = []
        for _ in range(count):
            value, at = item.read(data, at)
            items.append(value)
        return items, at

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            _refuse_null(nullable)
        elif not isinstance(value, (list, tuple)):
            raise PayloadError(f"{value!r} is not a list")
        _write_length(out, -1 if value is None else len(value), None if flexible else _INT)
        for each in value or ():
            item.write(out, each)

    return Coder(read, write)


def _structure(fields: Sequence[Field], version: int, *, flexible: bool) -> Coder:
    present = [field for field in fields if field.within(version)]
    plain = [(field, _coder(field.kind, version, flexible)) for field in present if field.tag is None]
    tagged = {
        field.tag: (field, _coder(field.kind, version, flexible, tagged=True))
        for field in sorted(present, key=lambda field: field.tag or 0)
        if field.tag is not None
    }
    lacking = [field for field in fields if not field.within(version)]
    # A tag that is absent has the field's default. A field that the version lacks is null.
    absent = {field.name: field.default for field, _ in tagged.values()}
    absent |= {field.name: None for field in lacking}
    known = {field.name for field in fields}
    readers = [(field.name, coder.read) for field, coder in plain]

    def read(data: bytes, at: int) -> tuple[Any, int]:
        row = dict(absent)
        for name, read_field in readers:
            row[name], at = read_field(data, at)
        if flexible:
            count, at = read_uvarint(data, at)
            for _ in range(count):
                tag, at = read_uvarint(data, at)
                size, at = read_uvarint(data, at)
                if size > len(data) - at:
                    raise PayloadError(f"tag {tag} has {size} bytes, but {len(data) - at} are left")
                if tag in tagged:
                    field, coder = tagged[tag]
                    row[field.name], end = coder.read(data[: at + size], at)
                    if end != at + size:
                        raise PayloadError(f"tag {tag} has {size} bytes, but its content {end - at}")
                at += size
        return row, at

    def write(out: bytearray, row: Any) -> None:
        if not isinstance(row, Mapping):
            raise PayloadError(f"{row!r} is not a structure")
        for name in row.keys() - known:
            raise PayloadError(f"there is no field {name}")
        for field in lacking:
            if row.get(field.name) not in (None, field.default):
                raise PayloadError(
                    f"{field.name} is {row[field.name]!r}, but version {version} has no such field"
                )
        for field, coder in plain:
            _named(field, coder.write, out, _value(field, row))
        if not flexible:
            return
        tags = {tag: entry for tag, entry in tagged.items() if _value(entry[0], row) != entry[0].default}
        write_uvarint(out, len(tags))
        for tag, (field, coder) in tags.items():
            content = bytearray()
            _named(field, coder.write, content, _value(field, row))
            write_uvarint(out, tag)
            write_uvarint(out, len(content))
            out += content

    return Coder(read, write)


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


def _nullable(inner: Coder, *, tagged: bool) -> Coder:
    """Return the coder of a structure after a byte that is negative for null. Under a tag it is a varint that is 0 for null."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        if tagged:
            present, at = read_uvarint(data, at)
        elif at < len(data):
            present, at = not data[at] & 0x80, at + 1
        else:
            raise PayloadError(f"ends at byte {len(data)}, before a structure")
        return inner.read(data, at) if present else (None, at)

    def write(out: bytearray, value: Any) -> None:
        out.append((0 if tagged else 0xFF) if value is None else 1)
        if value is not None:
            inner.write(out, value)

    return Coder(read, write)


def _coder(kind: Kind, version: int, flexible: bool, tagged: bool = False) -> Coder:
    if kind.item is not None:
        return _array(_coder(kind.item, version, flexible), flexible=flexible, nullable=kind.nullable)
    if kind.fields is not None:
        inner = _structure(kind.fields, version, flexible=flexible)
        return _nullable(inner, tagged=tagged) if kind.nullable else inner
    if kind.name in _NUMBERS:
        return _number(kind.name)
    if kind.name in ("bool", "uuid"):
        return Coder(_read_bool, _write_bool) if kind.name == "bool" else Coder(_read_uuid, _write_uuid)
    text = kind.name == "string"
    return _content(text=text, width=_width(text, flexible), nullable=kind.nullable)


def _width(text: bool, flexible: bool) -> struct.Struct | None:
    if flexible:
        return None
    return _SHORT if text else _INT


# Keys and values


@cache
def key_coder(kind: RecordType) -> Coder:
    return _structure(kind.key, 0, flexible=False)


@cache
def value_coder(kind: RecordType, version: int) -> Coder:
    return _structure(kind.value, version, flexible=version >= kind.flexible)
