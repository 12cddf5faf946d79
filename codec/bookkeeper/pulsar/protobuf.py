"""Read Protobuf messages whose fields are a table: numbers, texts, bytes, and messages in them. Unknown fields are skipped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

_MOST = 10
"""Bytes of the longest varint."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Kind(Enum):
    """The type of a field. Numbers are signed, as in Java."""

    INT64 = "int64"
    INT32 = "int32"
    BOOL = "bool"
    TEXT = "string"
    BYTES = "bytes"


@dataclass(frozen=True)
class Field:
    """A field of a message. `kind` is the fields of a message, by number, if the field has one."""

    name: str
    kind: Kind | Fields
    repeated: bool = False
    required: bool = False


Fields = Mapping[int, Field]


class ProtobufError(ValueError):
    """The bytes are not such a message."""


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return an unsigned number and where it ends."""
    value = 0
    for shift in range(0, 7 * _MOST, 7):
        if at >= end:
            raise ProtobufError("a number ends behind the message")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise ProtobufError(f"a number has more than {_MOST} bytes")


def read_message(fields: Fields, data: bytes, at: int, end: int) -> dict[str, Any]:
    """Return the fields of the message `data[at:end]` by name. Fields that are absent are missing; repeated ones are lists.

    Raises `ProtobufError`.
    """
    out: dict[str, Any] = {}
    while at < end:
        tag, at = read_varint(data, at, end)
        wire, field = tag & 7, fields.get(tag >> 3)
        if not tag >> 3:
            raise ProtobufError("a field has number 0")
        if wire == _VARINT:
            start = at
            number, at = read_varint(data, at, end)
        elif wire in (_BYTES, _FIXED64, _FIXED32):
            size = {_FIXED64: 8, _FIXED32: 4}.get(wire, 0)
            if wire == _BYTES:
                size, at = read_varint(data, at, end)
            if size > end - at:
                raise ProtobufError(f"field {tag >> 3} takes {size} bytes, but {end - at} are left")
            start, at = at, at + size
        else:
            raise ProtobufError(f"field {tag >> 3} has wire type {wire}")
        if field is None:
            continue
        numeric = field.kind in (Kind.INT64, Kind.INT32, Kind.BOOL)
        if wire != (_VARINT if numeric else _BYTES):
            raise ProtobufError(f"{field.name} has wire type {wire}")
        value = _number(field.kind, number) if numeric else _value(field, data, start, at)
        if field.repeated:
            out.setdefault(field.name, []).append(value)
        else:
            out[field.name] = value
    for field in fields.values():
        if field.required and field.name not in out:
            raise ProtobufError(f"the required field {field.name} is missing")
    return out


def _number(kind: Kind | Fields, value: int) -> int | bool:
    if kind is Kind.BOOL:
        return value & 0xFFFFFFFF == 1  # as LightProto, which Pulsar uses
    bits = 64 if kind is Kind.INT64 else 32
    value &= (1 << bits) - 1
    return value - (value >> (bits - 1) << bits)


def _value(field: Field, data: bytes, start: int, end: int) -> Any:
    if field.kind is Kind.BYTES:
        return data[start:end]
    if isinstance(field.kind, Kind):
        try:
            return data[start:end].decode()
        except UnicodeDecodeError:
            raise ProtobufError(f"{field.name} is not UTF-8") from None
    return read_message(field.kind, data, start, end)
