"""Formats of the keys and values of records: JSON, Avro and Protobuf, also in Confluent's wire format.

A payload is decoded to JSON text or, if it has the schema of a record, to an Arrow struct; either is encoded as a payload. `FORMATS` is
the registry: a format is one entry. Avro and Protobuf need the packages `fastavro` and `protobuf` (`pip install 'logwright[payloads]'`).

Source of the wire format: Confluent's serializers: a zero, the 4 bytes of the schema's id, for Protobuf the path of the message in its
file, and the payload.
"""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from logwright.codec.columns import contents
from logwright.codec.fault import UsageError
from logwright.codec.kafka.formats.payload_types import (
    KEPT,
    UntypedError,
    avro_type,
    fill_message,
    message_value,
    protobuf_type,
    shaped,
    unshaped,
)
from logwright.codec.option import NamedFile, Option, Options, parse_choice, parse_file, parse_text

_WIRE = b"\0"
_PACKAGES = {"fastavro": "fastavro", "google": "protobuf"}
"""Names of packages by the names of their modules."""
_ID_END = 5
_NOT_AVRO, _TO_AVRO = "not Avro of this schema", "cannot be encoded as Avro"
_NOT_PROTOBUF, _TO_PROTOBUF = "not a Protobuf message", "cannot be encoded as Protobuf"
_In = TypeVar("_In")
_Out = TypeVar("_Out")


class PayloadError(ValueError):
    """A key or value that is not valid in its format, or for its message."""


class Format(Protocol):
    """The methods for payloads raise `PayloadError`."""

    def decode(self, data: bytes) -> bytes: ...

    def encode(self, text: bytes) -> bytes: ...

    def type(self) -> pa.DataType:
        """Return the struct of the values of the next two methods. Raises `UntypedError`."""
        ...

    def decode_value(self, data: bytes) -> Any: ...

    def encode_value(self, value: Any) -> bytes: ...


@dataclass(frozen=True)
class Schema:
    """The options of a format: the schema file, the name of the message in it, and the id in the schema registry."""

    side: str
    """`key` or `value`, for messages."""
    file: NamedFile | None = None
    message: str | None = None
    id: int | None = None

    def required(self) -> NamedFile:
        if self.file is None:
            raise UsageError(
                f"option {self.side}.format needs {self.side}.schema",
                advice=f"Pass the path of the schema as {self.side}.schema",
            )
        return self.file

    def refuse_unused(self, used: Collection[str], why: str) -> None:
        """Raise `UsageError` for an option that was passed and is not among the used ones."""
        passed = {"schema": self.file, "message": self.message, "schema.id": self.id}
        for option, value in passed.items():
            if value is not None and option not in used:
                raise UsageError(f"option {self.side}.{option} has no effect {why}")


def _refusing(reason: str) -> Callable[[Callable[[Any, _In], _Out]], Callable[[Any, _In], _Out]]:
    """Return a decorator of a method that raises `PayloadError` with this reason for any exception: the packages raise many kinds."""

    def wrapped(method: Callable[[Any, _In], _Out]) -> Callable[[Any, _In], _Out]:
        def refusing(self: Any, value: _In) -> _Out:
            try:
                return method(self, value)
            except PayloadError:
                raise
            except Exception as error:
                raise PayloadError(f"{reason}: {_reason(error)}") from None

        return refusing

    return wrapped


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _package(name: str, side: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(
            f"option {side}.format needs the package {_PACKAGES[name.partition('.')[0]]}, which is not installed",
            advice="Install it: pip install 'logwright[payloads]'",
        ) from None


# JSON


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


class _Json:
    """JSON text is kept as it is."""

    def decode(self, data: bytes) -> bytes:
        try:
            json.loads(data.decode(), parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise PayloadError(f"not JSON: {error}") from None
        return data

    encode = decode

    def type(self) -> pa.DataType:
        raise UntypedError("JSON has no schema")

    def decode_value(self, data: bytes) -> Any:
        raise PayloadError("JSON has no schema; JSON text is needed")

    encode_value = decode_value


# Avro


class _Avro:
    """The binary encoding of Avro. JSON has the form of Avro's JSON encoding. Logical types are not interpreted."""

    def __init__(self, schema: Schema) -> None:
        file = schema.required()
        self._library = _package("fastavro", schema.side)
        try:
            self._plain = json.loads(file.data)
            self._schema = self._library.parse_schema(_without_logical_types(self._plain))
        except Exception as error:  # fastavro also raises KeyError and TypeError
            raise UsageError(f"not an Avro schema: {error}", path=file.name) from None
        names: dict[str, Any] = {}
        self._read = self._library.schemaless_reader
        if _is_recursive(self._schema, (), names):
            # The compiled reader would exhaust the stack of the process.
            self._read = _package("fastavro._read_py", schema.side).schemaless_reader
        if _has_empty_items(self._schema, names):
            raise UsageError(
                "the schema has an array whose items take no bytes, so that a payload could claim any number of them",
                path=file.name,
            )

    @_refusing(_NOT_AVRO)
    def decode(self, data: bytes) -> bytes:
        out = io.StringIO()
        self._library.json_writer(out, self._schema, [self._value(data, self._schema)])
        return out.getvalue().strip().encode()

    @cached_property
    def _typed(self) -> Any:
        """The schema with the logical types that structs have."""
        try:
            return self._library.parse_schema(_without_logical_types(self._plain, KEPT))
        except Exception as error:
            raise UntypedError(f"a logical type is wrong: {_reason(error)}") from None

    def type(self) -> pa.DataType:
        names: dict[str, Any] = {}
        _is_recursive(self._typed, (), names)
        return avro_type(self._typed, names)

    @_refusing(_NOT_AVRO)
    def decode_value(self, data: bytes) -> Any:
        return self._value(data, self._typed)

    @_refusing(_TO_AVRO)
    def encode_value(self, value: Any) -> bytes:
        self._check(value, self._typed)
        out = io.BytesIO()
        # Fields that the schema lacks are refused, instead of left out.
        self._library.schemaless_writer(out, self._typed, value, strict_allow_default=True)
        return out.getvalue()

    def _value(self, data: bytes, schema: Any) -> Any:
        source = io.BytesIO(data)
        value = self._read(source, schema, None)
        if source.tell() != len(data):
            raise PayloadError(f"{len(data) - source.tell()} bytes are left after the Avro value")
        return value

    @_refusing(_TO_AVRO)
    def encode(self, text: bytes) -> bytes:
        out = io.BytesIO()
        values = list(self._library.json_reader(io.StringIO(text.decode()), self._schema))
        if len(values) != 1:
            raise PayloadError(f"{len(values)} JSON values, expected 1")
        self._check(values[0], self._schema)
        self._library.schemaless_writer(out, self._schema, values[0])
        # fastavro's JSON reader leaves out fields that the schema lacks.
        field = _left_out(json.loads(text), json.loads(self.decode(out.getvalue())))
        if field is not None:
            raise PayloadError(f"{_TO_AVRO}: the schema has no field {field!r}")
        return out.getvalue()

    def _check(self, value: Any, schema: Any) -> None:
        """Refuse a value of another type, which fastavro's writer would convert: 1.5 to the long 1."""
        try:
            self._library.validation.validate(value, schema)
        except self._library.validation.ValidationError as error:
            raise PayloadError(f"{_TO_AVRO}: {'; '.join(map(str, error.errors))}") from None


def _left_out(value: Any, stored: Any) -> str | None:
    """Return the name of a field of a JSON value that the stored one lacks, or None."""
    if isinstance(value, Mapping) and isinstance(stored, Mapping):
        pairs = [(value[name], stored[name]) for name in value if name in stored]
        missing = next((name for name in value if name not in stored), None)
    elif isinstance(value, list) and isinstance(stored, list):
        pairs, missing = list(zip(value, stored, strict=True)), None
    else:
        return None
    names = (missing, *(_left_out(*pair) for pair in pairs))
    return next((name for name in names if name is not None), None)


def _without_logical_types(schema: Any, kept: frozenset[str] = frozenset()) -> Any:
    if isinstance(schema, Mapping):
        return {
            name: _without_logical_types(value, kept)
            for name, value in schema.items()
            if name != "logicalType" or value in kept
        }
    return [_without_logical_types(each, kept) for each in schema] if isinstance(schema, list) else schema


def _is_recursive(schema: Any, inside: tuple[str, ...], names: dict[str, Any]) -> bool:
    """Return whether a type of a parsed schema contains itself. All named types are added to `names`."""
    if isinstance(schema, str):
        return schema in inside
    if isinstance(schema, list):
        parts = schema
    elif schema["type"] in ("record", "error", "enum", "fixed"):
        names[schema["name"]] = schema
        inside = (*inside, schema["name"])
        parts = [field["type"] for field in schema.get("fields", ())]
    else:
        parts = [schema.get("items", schema.get("values", schema["type"]))]
    recursive = [_is_recursive(part, inside, names) for part in parts]
    return any(recursive)


def _has_empty_items(schema: Any, names: Mapping[str, Any]) -> bool:
    if isinstance(schema, list):
        return any(_has_empty_items(each, names) for each in schema)
    if not isinstance(schema, Mapping):
        return False
    if schema["type"] == "array" and _is_empty(schema["items"], names, ()):
        return True
    parts = [field["type"] for field in schema.get("fields", ())]
    parts += [schema[name] for name in ("items", "values") if name in schema]
    return any(_has_empty_items(part, names) for part in parts)


def _is_empty(schema: Any, names: Mapping[str, Any], inside: tuple[str, ...]) -> bool:
    """Return whether a value of this schema can take no bytes."""
    if isinstance(schema, list):
        return False  # the number of the branch
    name = schema if isinstance(schema, str) else schema["type"]
    if isinstance(name, (list, Mapping)):
        return _is_empty(name, names, inside)
    schema = names.get(name, schema)
    if isinstance(schema, str) or name in inside:
        return name == "null"
    if schema["type"] == "fixed":
        return not schema["size"]
    if schema["type"] == "record":
        within = (*inside, schema["name"])
        return all(_is_empty(field["type"], names, within) for field in schema["fields"])
    return bool(schema["type"] == "null")


# Protobuf


class _Protobuf:
    """Messages of a descriptor file (`protoc --include_imports --descriptor_set_out`). JSON has the form of Protobuf's JSON, with the
    fields' own names. Fields that the descriptor does not have are left out."""

    def __init__(self, schema: Schema) -> None:
        file = schema.required()
        self._json = _package("google.protobuf.json_format", schema.side)
        descriptors = _package("google.protobuf.descriptor_pb2", schema.side)
        pools = _package("google.protobuf.descriptor_pool", schema.side)
        factory = _package("google.protobuf.message_factory", schema.side)
        try:
            files = descriptors.FileDescriptorSet.FromString(file.data).file
            self._pool = pools.DescriptorPool()
            for each in files:
                self._pool.Add(each)
            main = self._pool.FindFileByName(files[-1].name)
            name = schema.message or next(iter(main.message_types_by_name.values())).full_name
            self.descriptor = self._pool.FindMessageTypeByName(name)
        except KeyError:
            raise UsageError(f"there is no message {schema.message!r}", path=file.name) from None
        except Exception as error:
            raise UsageError(
                f"not a descriptor file: {_reason(error)}",
                path=file.name,
                advice="Create it with protoc --include_imports --descriptor_set_out=FILE",
            ) from None
        self._class = factory.GetMessageClass(self.descriptor)

    def type(self) -> pa.DataType:
        return protobuf_type(self.descriptor)

    @_refusing(_NOT_PROTOBUF)
    def decode_value(self, data: bytes) -> Any:
        return message_value(self._class.FromString(data))

    @_refusing(_TO_PROTOBUF)
    def encode_value(self, value: Any) -> bytes:
        message = self._class()
        fill_message(message, value)
        return bytes(message.SerializeToString(deterministic=True))

    @_refusing(_NOT_PROTOBUF)
    def decode(self, data: bytes) -> bytes:
        message = self._class.FromString(data)
        text = self._json.MessageToJson(
            message, preserving_proto_field_name=True, indent=None, descriptor_pool=self._pool
        )
        return str(text).encode()

    @_refusing(_TO_PROTOBUF)
    def encode(self, text: bytes) -> bytes:
        message = self._json.Parse(text, self._class(), descriptor_pool=self._pool)
        return bytes(message.SerializeToString(deterministic=True))

    def path(self) -> list[int]:
        """Return the path of the message in its file: the index of each outer message, and its own."""
        out, descriptor = [], self.descriptor
        while descriptor is not None:
            outer = descriptor.containing_type
            siblings = descriptor.file.message_types_by_name.values() if outer is None else outer.nested_types
            out.append([each.full_name for each in siblings].index(descriptor.full_name))
            descriptor = outer
        return out[::-1]


# Confluent's wire format


class _Confluent:
    """A payload after the id of its schema."""

    def __init__(self, schema: Schema, inner: Format) -> None:
        self._schema, self._inner = schema, inner
        path = inner.path() if isinstance(inner, _Protobuf) else None
        self._path = b"" if path is None else b"\0" if path == [0] else _varints([len(path), *path])

    def decode(self, data: bytes) -> bytes:
        return self._inner.decode(self._payload(data))

    def type(self) -> pa.DataType:
        return self._inner.type()

    def decode_value(self, data: bytes) -> Any:
        return self._inner.decode_value(self._payload(data))

    def _payload(self, data: bytes) -> bytes:
        if data[:1] != _WIRE or len(data) < _ID_END:
            raise PayloadError("not Confluent's wire format: expected a zero byte and a schema id")
        number = int.from_bytes(data[1:_ID_END], "big")
        if self._schema.id is not None and number != self._schema.id:
            raise PayloadError(f"its schema id is {number}, expected {self._schema.id}")
        if data[_ID_END : _ID_END + len(self._path)] != self._path:
            raise PayloadError("the record has a different message type of the Protobuf file")
        return data[_ID_END + len(self._path) :]

    def encode(self, text: bytes) -> bytes:
        return self._head() + self._inner.encode(text)

    def encode_value(self, value: Any) -> bytes:
        return self._head() + self._inner.encode_value(value)

    def _head(self) -> bytes:
        if self._schema.id is None:
            raise UsageError(
                f"{self._schema.side}.schema.id is missing: Confluent's wire format has the id of the schema",
                advice=f"Pass {self._schema.side}.schema.id",
            )
        return _WIRE + self._schema.id.to_bytes(4, "big") + self._path


def _varints(numbers: list[int]) -> bytes:
    """Return zig-zag varints."""
    out = bytearray()
    for number in numbers:
        number <<= 1
        while number >= 0x80:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
    return bytes(out)


FORMATS: Mapping[str, tuple[Callable[[Schema], Format], Collection[str]]] = {
    "json": (lambda _: _Json(), ()),
    "avro": (_Avro, ("schema",)),
    "protobuf": (_Protobuf, ("schema", "message")),
    "confluent-json": (lambda schema: _Confluent(schema, _Json()), ("schema.id",)),
    "confluent-avro": (lambda schema: _Confluent(schema, _Avro(schema)), ("schema", "schema.id")),
    "confluent-protobuf": (
        lambda schema: _Confluent(schema, _Protobuf(schema)),
        ("schema", "message", "schema.id"),
    ),
}
"""How to make each format, and the options of `Schema` that it uses."""


@cache
def format_of(name: str, schema: Schema) -> Format:
    """Return a format. Raises `UsageError` for a wrong schema, and for options that the format does not use."""
    make, used = FORMATS[name]
    schema.refuse_unused(used, f"with {schema.side}.format={name}")
    return make(schema)


# Options and columns

SIDES = ("key", "value")
TEXT, STRUCT = "json", "struct"
OPTIONS = tuple(
    option
    for side in SIDES
    for option in (
        Option(f"{side}.format", None, f"Format of the {side}s, which are read and written as JSON text", parse_choice, tuple(FORMATS)),
        Option(f"{side}.as", TEXT, f"Read the {side}s as JSON text, or as structs with the schema's fields", parse_choice, (TEXT, STRUCT)),
        Option(f"{side}.schema", None, f"File with the schema of the {side}s: an Avro schema, or descriptors of Protobuf", parse_file),
        Option(f"{side}.message", None, f"Name of the Protobuf message of the {side}s. By default the first one", parse_text),
        Option(f"{side}.schema.id", None, f"Id of the schema of the {side}s in Confluent's wire format", low=0, high=(1 << 32) - 1),
    )
)  # fmt: skip


def formats_of(options: Options) -> dict[str, Format]:
    """Return the formats of keys and values, by column. Raises `UsageError`."""
    out = {}
    for side in SIDES:
        name = options[f"{side}.format"]
        schema = Schema(
            side, options[f"{side}.schema"], options[f"{side}.message"], options[f"{side}.schema.id"]
        )
        if name is not None:
            out[side] = format_of(name, schema)
        elif options[f"{side}.as"] != TEXT:
            raise UsageError(f"option {side}.as has no effect without {side}.format")
        else:
            schema.refuse_unused((), f"without {side}.format")
    return out


def types_of(options: Options) -> dict[str, pa.DataType]:
    """Return the types of the keys and values that are read as structs, by column. Raises `UsageError`."""
    out = {}
    for side, format in formats_of(options).items():
        if options[f"{side}.as"] == STRUCT:
            try:
                out[side] = format.type()
                if not pa.types.is_struct(out[side]):
                    raise UntypedError("it is not a record")
            except UntypedError as error:
                raise UsageError(
                    f"{side}.as=struct is not possible with this {side}.format and schema: {error}",
                    advice=f"Omit {side}.as to read JSON text",
                ) from None
    return out


def decoded(
    format: Format, kind: pa.DataType | None, column: pa.Array, control: pa.Array
) -> tuple[pa.Array, dict[int, str]]:
    """Return a column of payloads as values of a type, or as JSON text without one, and the reasons of those that cannot be decoded, which
    are null, by row. The payloads of `control` records are null in the first case, and unchanged in the second one."""
    bad: dict[int, str] = {}
    out: list[Any] = []
    for row, (data, marker) in enumerate(zip(column.to_pylist(), control.to_pylist(), strict=True)):
        value = data if kind is None else None
        try:
            if data is not None and not marker:
                value = format.decode(data) if kind is None else _typed(format.decode_value(data), kind)
        except (PayloadError, pa.ArrowException, OverflowError) as error:
            bad[row], value = str(error), None
        out.append(value)
    return contents(pa.binary(), out) if kind is None else pa.array(out, kind), bad


def _typed(value: Any, kind: pa.DataType) -> Any:
    """Return a decoded value as PyArrow takes it. Raises `pa.ArrowException` and `OverflowError` if it is not of that type."""
    out = shaped(value, kind)
    pa.scalar(out, kind)
    return out


def encoded(formats: Mapping[str, Format], rows: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
    """Return rows with encoded payloads. Raises `UsageError` with the number of the row, counted from `first_row`."""
    for side, format in formats.items():
        i = rows.schema.get_field_index(side)
        if i < 0:
            continue
        out: list[bytes | None] = []
        kind = rows.schema.field(i).type
        for row, content in enumerate(rows.column(i).to_pylist()):
            try:
                if content is None:
                    out.append(None)
                elif pa.types.is_nested(kind):
                    out.append(format.encode_value(unshaped(content, kind)))
                else:
                    out.append(format.encode(content.encode() if isinstance(content, str) else content))
            except PayloadError as error:
                raise UsageError(f"row {first_row + row}: {side}: {error}") from None
        rows = rows.set_column(i, side, contents(pa.binary(), out))
    return rows
