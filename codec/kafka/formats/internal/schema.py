"""Schemas of Kafka's messages, and the notation of `definitions`.

    offset:int64; leader_epoch:int32 v3+ =-1; metadata:string; topics:[]{name:string; ids:[]uuid?}; topic_id:uuid v4+ @0

A field has a name, a type, and optionally the versions that have it (`v3+`, `v1`), the tag under which it is stored (`@0`), and its
default (`=-1`), which is used if a version lacks the field or the tag is absent. `[]` is an array, `{...}` a structure, `?` nullable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

ARROW = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "uint16": pa.int32(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "uuid": pa.string(),
}
"""The Arrow types of the primitive types. A UUID is text in URL-safe Base64, as Kafka prints it."""
ZERO_UUID = "A" * 22
LAST = (1 << 15) - 1
_ZEROS: dict[str, Any] = {"bool": False, "float64": 0.0, "string": "", "bytes": b"", "uuid": ZERO_UUID}
_TOKEN = re.compile(r"\s*(\[\]|[{};:?]|=\{\}|=\[\]|=[^\s;}]+|@\d+|v\d+\+?|[a-z][a-z0-9_]*)")


@dataclass(frozen=True)
class Kind:
    """The type of a field. Of `name`, `item` (array) and `fields` (structure), one is set."""

    name: str = ""
    item: Kind | None = None
    fields: tuple[Field, ...] | None = None
    nullable: bool = False

    def arrow(self) -> pa.DataType:
        if self.item is not None:
            return pa.list_(self.item.arrow())
        if self.fields is not None:
            return struct_type(self.fields)
        return ARROW[self.name]

    def zero(self) -> Any:
        """Return the default value of a field without a stated default."""
        if self.item is not None:
            return []
        if self.fields is not None:
            return {field.name: field.default for field in self.fields}
        return _ZEROS.get(self.name, 0)


@dataclass(frozen=True)
class Field:
    """A field of a message or structure. Versions `low` to `high` have it; `tag` is None for a field in the fixed order."""

    name: str
    kind: Kind
    low: int = 0
    high: int = LAST
    tag: int | None = None
    default: Any = None
    optional: bool = False
    """Whether a row may omit it: its definition has a default, or it has a tag."""

    def within(self, version: int) -> bool:
        return self.low <= version <= self.high


def struct_type(fields: tuple[Field, ...]) -> pa.DataType:
    return pa.struct([pa.field(field.name, field.kind.arrow()) for field in fields])


def fields(text: str) -> tuple[Field, ...]:
    """Parse fields in the notation of this module."""
    tokens = list(_tokens(text))
    parsed, at = _fields(tokens, 0)
    assert at == len(tokens), tokens[at:]
    return parsed


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        assert match is not None, text[at:]
        yield match[1]
        at = match.end()


def _fields(tokens: list[str], at: int) -> tuple[tuple[Field, ...], int]:
    out: list[Field] = []
    while at < len(tokens) and tokens[at] != "}":
        name = tokens[at]
        assert tokens[at + 1] == ":", tokens[at:]
        kind, at = _kind(tokens, at + 2)
        low, high, tag, default, optional = 0, LAST, None, kind.zero(), False
        while at < len(tokens) and tokens[at] not in (";", "}"):
            token = tokens[at]
            if token[0] == "v":
                low = int(token[1:].rstrip("+"))
                high = LAST if token.endswith("+") else low
            elif token[0] == "@":
                tag, optional = int(token[1:]), True
            else:
                default, optional = _default(token[1:], kind), True
            at += 1
        out.append(Field(name, kind, low, high, tag, default, optional))
        at += at < len(tokens) and tokens[at] == ";"
    return tuple(out), at


def _kind(tokens: list[str], at: int) -> tuple[Kind, int]:
    if tokens[at] == "[]":
        item, at = _kind_inside(tokens, at + 1)
        kind = Kind(item=item)
    else:
        kind, at = _kind_inside(tokens, at)
    nullable = at < len(tokens) and tokens[at] == "?"
    return replace(kind, nullable=nullable), at + nullable


def _kind_inside(tokens: list[str], at: int) -> tuple[Kind, int]:
    """Parse a type that is not an array. A `?` after it belongs to the array around it."""
    if tokens[at] == "{":
        inner, at = _fields(tokens, at + 1)
        return Kind(fields=inner), at + 1
    assert tokens[at] in ARROW, tokens[at]
    return Kind(tokens[at]), at + 1


def _default(text: str, kind: Kind) -> Any:
    if text == "null":
        return None
    if text in ("{}", "[]"):
        return kind.zero()
    return text == "true" if kind.name == "bool" else int(text)


@dataclass(frozen=True, eq=False)
class RecordType:
    """A type of record, in upstream's words. A row has the fields of the key, then those of the value, in the column `column`.

    `versions` are those of the value that are known; it has compact types and tags from version `flexible` on. A key never has.
    """

    name: str
    id: int
    column: str
    key: tuple[Field, ...]
    value: tuple[Field, ...]
    versions: range
    flexible: int = 0
    control: bool = False
    """It is a control record of the Raft log: its key has the type, and its value only a version and the fields."""

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*self.key, *self.value)


def record_type(
    name: str,
    id: int,
    key: str,
    value: str,
    *,
    high: int = 0,
    flexible: int = 0,
    column: str = "",
    control: bool = False,
) -> RecordType:
    versions = range(high + 1)
    return RecordType(
        name, id, column or name.lower(), fields(key), fields(value), versions, flexible, control
    )
