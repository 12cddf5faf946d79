"""Decode a record of an internal topic, its key and value, to a row, and encode the row.

Source: `CoordinatorRecordSerde`, `MetadataRecordSerde` and `ControlRecordUtils` of Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from logwright.codec.kafka.formats.internal.definitions import CONTROL, Topic
from logwright.codec.kafka.formats.internal.schema import RecordType
from logwright.codec.kafka.formats.internal.serde import key_coder, read_uvarint, value_coder, write_uvarint
from logwright.codec.kafka.formats.payload import PayloadError

_FRAME_VERSION = 1
_CONTROL_KEY = struct.Struct(">hh")
"""The version and the type."""
OTHER_BYTES = "the stored bytes differ from those that Kafka 4.3 would write: an unknown tag, a longer varint or trailing bytes"


@dataclass(slots=True)
class Message:
    """A decoded record. `kind` is None for an unknown type, `version` for a null value. With `note`, the stored bytes are kept,
    because the fields cannot express them."""

    kind: RecordType | None = None
    version: int | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    note: str | None = None


def decode(topic: Topic, key: bytes | None, value: bytes | None, *, control: bool = False) -> Message:
    """Decode a record, or with `control` a control record. Raises `PayloadError`."""
    if control:
        message = _control(topic, key, value)
    else:
        message = _framed(topic, value) if topic.framed else _keyed(topic, key, value)
    if message.note is None and encode(topic, message) != (key, value):
        message.note = OTHER_BYTES
    return message


def encode(topic: Topic, message: Message) -> tuple[bytes | None, bytes | None]:
    """Encode a record of a known type as key and value. Raises `PayloadError`."""
    kind, version, values = message.kind, message.version, message.values
    assert kind is not None
    if version is not None and version not in kind.versions:
        raise PayloadError(f"version {version}, expected {kind.versions[0]} to {kind.versions[-1]}")
    out = bytearray()
    if kind.control:
        if version is None or kind is CONTROL:
            raise PayloadError(
                "a control record needs a version and a known type, or its stored key and value"
            )
        out += version.to_bytes(2, "big")
        value_coder(kind, version).write(out, values)
        return _CONTROL_KEY.pack(0, kind.id), bytes(out)
    if topic.framed:
        if version is None:
            raise PayloadError("the version is null, but a record of this topic has a value")
        for number in (_FRAME_VERSION, kind.id, version):
            write_uvarint(out, number)
    elif version is not None:
        out += version.to_bytes(2, "big")
    names = {each.name for each in kind.value}
    if version is not None:
        value_coder(kind, version).write(out, {name: values[name] for name in values if name in names})
    if topic.framed:
        return None, bytes(out)
    key = bytearray(kind.id.to_bytes(2, "big"))
    key_coder(kind).write(key, {name: values[name] for name in values if name not in names})
    return bytes(key), None if version is None else bytes(out)


def _keyed(topic: Topic, key: bytes | None, value: bytes | None) -> Message:
    if key is None or len(key) < 2:
        raise PayloadError(
            "the key has no type" if key is None else f"the key has {len(key)} bytes, expected a type"
        )
    number = int.from_bytes(key[:2], "big", signed=True)
    kind = next((kind for kind in topic.records if kind.id == number), None)
    if kind is None:
        return Message(note=f"unknown type {number}")
    try:
        values, _ = key_coder(kind).read(key, 2)
    except PayloadError as error:
        raise PayloadError(f"key of {kind.name}: {error}") from None
    if value is None:
        return Message(kind, None, values)
    if len(value) < 2:
        raise PayloadError(f"the value of {kind.name} has {len(value)} bytes, expected a version")
    version = int.from_bytes(value[:2], "big", signed=True)
    return _valued(kind, version, value, 2, values)


def _control(topic: Topic, key: bytes | None, value: bytes | None) -> Message:
    if key is None or len(key) < _CONTROL_KEY.size:
        return Message(CONTROL, note="a control record without a type")
    _, number = _CONTROL_KEY.unpack_from(key)
    kind = next((kind for kind in topic.records if kind.control and kind.id == number), None)
    if kind is None or kind is CONTROL:
        return Message(CONTROL, note=f"unknown control type {number}")
    if value is None or len(value) < 2:
        raise PayloadError(f"the value of {kind.name} has no version")
    return _valued(kind, int.from_bytes(value[:2], "big", signed=True), value, 2, {})


def _framed(topic: Topic, value: bytes | None) -> Message:
    if value is None:
        raise PayloadError("the value is null")
    frame, at = read_uvarint(value, 0)
    if frame != _FRAME_VERSION:
        return Message(note=f"unknown frame version {frame}")
    number, at = read_uvarint(value, at)
    version, at = read_uvarint(value, at)
    kind = next((kind for kind in topic.records if kind.id == number and not kind.control), None)
    if kind is None:
        return Message(note=f"unknown type {number}")
    return _valued(kind, version, value, at, {})


def _valued(kind: RecordType, version: int, value: bytes, at: int, values: Mapping[str, Any]) -> Message:
    """Decode the fields of a value from `at` on, in addition to those of the key."""
    if version not in kind.versions:
        return Message(kind, version, values, f"unknown version {version} of {kind.name}")
    try:
        read, _ = value_coder(kind, version).read(value, at)
    except PayloadError as error:
        raise PayloadError(f"version {version} of {kind.name}: {error}") from None
    return Message(kind, version, {**values, **read})
