"""Arrow types of Avro schemas and Protobuf messages, with Spark's choices (`from_avro`, `from_protobuf`).

Every field is nullable. A union of null and one type is that type; other unions, and types that contain themselves, have no Arrow type.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", "UTC")
_AVRO = {
    "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(),
}  # fmt: skip
_AVRO_LOGICAL = {"timestamp-millis": TIMESTAMP, "timestamp-micros": TIMESTAMP, "date": pa.date32()}
KEPT = frozenset((*_AVRO_LOGICAL, "decimal"))
"""The logical types of Avro that are Arrow types. The others are read as the types in which they are stored."""
_LARGEST_PRECISION = 38


class UntypedError(ValueError):
    """A schema has no Arrow type; the message is the reason."""


def avro_type(schema: Any, names: Mapping[str, Any], inside: tuple[str, ...] = ()) -> pa.DataType:
    """Return the type of a parsed Avro schema. `names` are the named types. Raises `UntypedError`."""
    if isinstance(schema, list):
        types = [part for part in schema if part != "null"]
        if len(types) != 1:
            raise UntypedError("it has a union of several types")
        return avro_type(types[0], names, inside)
    if isinstance(schema, str):
        return _AVRO[schema] if schema in _AVRO else avro_type(names[schema], names, inside)
    kind = schema["type"]
    if not isinstance(kind, str):
        return avro_type(kind, names, inside)
    if kind in ("record", "error"):
        name = schema["name"]
        if name in inside:
            raise UntypedError(f"{name} contains itself")
        fields = [
            (field["name"], avro_type(field["type"], names, (*inside, name))) for field in schema["fields"]
        ]
        return pa.struct([pa.field(name, inner) for name, inner in fields])
    if kind == "array":
        return pa.list_(avro_type(schema["items"], names, inside))
    if kind == "map":
        return pa.map_(pa.string(), avro_type(schema["values"], names, inside))
    if kind == "enum":
        return pa.string()
    if schema.get("logicalType") == "decimal" and "precision" in schema:
        if not 0 < schema["precision"] <= _LARGEST_PRECISION:
            raise UntypedError(f"it has a decimal of {schema['precision']} digits")
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if kind == "fixed":
        return pa.binary()
    return _AVRO_LOGICAL.get(schema.get("logicalType", ""), _AVRO.get(kind)) or avro_type(kind, names, inside)


def protobuf_type(descriptor: Any, inside: tuple[str, ...] = ()) -> pa.DataType:
    """Return the type of a Protobuf message. Raises `UntypedError`."""
    if descriptor.full_name in inside:
        raise UntypedError(f"{descriptor.full_name} contains itself")
    if not descriptor.fields:
        raise UntypedError(f"{descriptor.full_name} has no fields")
    within = (*inside, descriptor.full_name)
    return pa.struct([pa.field(field.name, _field_type(field, within)) for field in descriptor.fields])


def _field_type(field: Any, inside: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return pa.map_(_single(entry["key"], inside), _single(entry["value"], inside))
    single = _single(field, inside)
    return pa.list_(single) if _is_repeated(field) else single


def _single(field: Any, inside: tuple[str, ...]) -> pa.DataType:
    if field.message_type is not None:
        return protobuf_type(field.message_type, inside)
    if field.enum_type is not None:
        return pa.string()
    if field.cpp_type == field.CPPTYPE_STRING:
        return pa.binary() if field.type == field.TYPE_BYTES else pa.string()
    return {
        field.CPPTYPE_INT32: pa.int32(), field.CPPTYPE_INT64: pa.int64(), field.CPPTYPE_UINT32: pa.int64(),
        field.CPPTYPE_UINT64: pa.decimal128(20, 0), field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_FLOAT: pa.float32(), field.CPPTYPE_BOOL: pa.bool_(),
    }[field.cpp_type]  # fmt: skip


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _is_repeated(field: Any) -> bool:
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == field.LABEL_REPEATED)  # protobuf 5


def message_value(message: Any) -> dict[str, Any]:
    """Return a Protobuf message as the value of a struct: null for a field that is not set, if the message can tell."""
    out: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            out[field.name] = None
            continue
        value = getattr(message, field.name)
        if _is_map(field):
            inner = field.message_type.fields_by_name["value"]
            out[field.name] = {key: _single_value(inner, value[key]) for key in value}
        elif _is_repeated(field):
            out[field.name] = [_single_value(field, each) for each in value]
        else:
            out[field.name] = _single_value(field, value)
    return out


def _single_value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return message_value(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return value


def shaped(value: Any, kind: pa.DataType) -> Any:
    """Return a decoded value as PyArrow takes it: entries of maps are pairs."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: shaped(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(key, shaped(item, kind.item_type)) for key, item in value.items()]
    if pa.types.is_list(kind):
        return [shaped(item, kind.value_type) for item in value]
    return value


def unshaped(value: Any, kind: pa.DataType) -> Any:
    """Return a value of PyArrow as it is encoded, the inverse of `shaped`."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: unshaped(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {key: unshaped(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [unshaped(item, kind.value_type) for item in value]
    return value


def fill_message(message: Any, value: Mapping[str, Any]) -> None:
    """Set the fields of an empty Protobuf message, the inverse of `message_value`. Raises `ValueError` for a field that it lacks."""
    fields = message.DESCRIPTOR.fields_by_name
    for name, content in value.items():
        if name not in fields:
            raise ValueError(f"the message has no field {name!r}")
        field = fields[name]
        if content is None:
            continue
        target = getattr(message, name)
        if _is_map(field):
            inner = field.message_type.fields_by_name["value"]
            for key, item in content.items():
                if inner.message_type is None:
                    target[key] = _stored(inner, item)
                else:
                    fill_message(target[key], item)
        elif _is_repeated(field):
            for item in content:
                if field.message_type is None:
                    target.append(_stored(field, item))
                else:
                    fill_message(target.add(), item)
        elif field.message_type is None:
            setattr(message, name, _stored(field, content))
        else:
            target.SetInParent()
            fill_message(target, content)


def _stored(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_name.get(value)
        return int(value) if known is None else known.number
    return int(value) if isinstance(value, Decimal) else value
