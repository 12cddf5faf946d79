"""Random messages of internal topics (`codec.kafka.formats.internal`)."""

from __future__ import annotations

import base64
from random import Random
from typing import Any

from logwright.codec.kafka.formats.internal.records import Message
from logwright.codec.kafka.formats.internal.schema import Field, Kind, RecordType

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_TEXT = "ab-_ü€😀."


def random_message(random: Random, kind: RecordType, version: int | None) -> Message:
    """Return a message with random fields. `version` None: a tombstone."""
    values = {field.name: _field(random, field, 0) for field in kind.key}
    values |= {
        field.name: None if version is None else _field(random, field, version) for field in kind.value
    }
    return Message(kind, version, values)


def _field(random: Random, field: Field, version: int) -> Any:
    if not field.within(version):
        return None
    if field.tag is not None and random.random() < 0.4:
        return field.default
    return _value(random, field.kind, version)


def _value(random: Random, kind: Kind, version: int) -> Any:
    if kind.nullable and random.random() < 0.3:
        return None
    if kind.item is not None:
        return [_value(random, kind.item, version) for _ in range(random.choice((0, 1, 1, 2, 5)))]
    if kind.fields is not None:
        return {field.name: _field(random, field, version) for field in kind.fields}
    if kind.name in _BITS:
        half = 1 << _BITS[kind.name] - 1
        return random.choice((0, -1, 1, half - 1, -half, random.randrange(-half, half)))
    match kind.name:
        case "bool":
            return random.random() < 0.5
        case "uint16":
            return random.choice((0, 65535, random.randrange(65536)))
        case "float64":
            return random.choice((0.0, -1.5, random.random() * 1e6))
        case "string":
            return "".join(random.choices(_TEXT, k=random.choice((0, 1, 5, 130))))
        case "bytes":
            return random.randbytes(random.choice((0, 1, 200)))
    return base64.urlsafe_b64encode(random.randbytes(16))[:22].decode()
