"""A Kaitai Struct description of a codec, made from its own: for files that are nothing but one structure after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logwright.codec.base import Codec, Explains
from logwright.codec.describe import (
    Bytes,
    Field,
    Flags,
    Int,
    Repeated,
    Struct,
    Switch,
    Type,
    Varint,
    structures,
)
from logwright.codec.fixed import FixedCodec
from logwright.codec.whole import WholeCodec

_VARINTS = {
    "varint": (5, True), "varlong": (10, True), "uvarint": (5, False), "uvarlong": (10, False),
}  # fmt: skip


def plain(codec: Codec) -> bool:
    """Whether a file is its first structure, again and again, or just once."""
    return bool(codec.structures) and (
        not isinstance(codec, Explains) or isinstance(codec, FixedCodec | WholeCodec)
    )


def once(codec: Codec) -> bool:
    """Whether it is one structure."""
    return isinstance(codec, WholeCodec)


def identifier(name: str) -> str:
    """CamelCase as snake_case."""
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


def ksy(codec: Codec) -> str | None:
    """The text of the `.ksy`; None where the codec's files are more than that."""
    if not plain(codec):
        return None
    first = codec.structures[0]
    found = list(structures([first]))
    lines = [
        "# Made from the descriptions in codec/ by `make docs`: change those.",
        "meta:",
        f"  id: {codec.name.replace('.', '_')}",
        f"  title: {_quoted(codec.title)}",
        f"  endian: {'le' if _little(first) else 'be'}",
        "  encoding: UTF-8",
        f"doc: {_quoted(first.doc)}",
        "seq:",
        f"  - id: {identifier(first.name) if once(codec) else 'frames'}",
        f"    type: {identifier(first.name)}",
    ]
    if not once(codec):
        lines.append("    repeat: eos")
    lines.append("types:")
    for one in found:
        lines += _type(one)
    for name in sorted({kind.label() for one in found for kind in _kinds(one) if isinstance(kind, Varint)}):
        lines += _varint(name, *_VARINTS[name])
    return "\n".join(lines) + "\n"


def _kinds(struct: Struct) -> Iterator[Type]:
    """The types of the fields, and those within them."""
    queue: list[Any] = [field.type for field in struct.fields]
    while queue:
        kind = queue.pop()
        yield kind
        queue += getattr(kind, "cases", ())
        parts = [getattr(kind, name, None) for name in ("length", "count", "item")]
        queue += [one for one in parts if isinstance(one, Type)]


def _little(struct: Struct) -> bool:
    return any(isinstance(kind, Int) and kind.order == "<" and kind.width > 1 for kind in _kinds(struct))


def _type(struct: Struct) -> Iterator[str]:
    """A structure; what follows a field that says its size is a type of its own, in a stream of that size."""
    sizes = next((i for i, one in enumerate(struct.fields) if one.sizes), None)
    name = identifier(struct.name)
    if sizes is None:
        yield from _sequence(name, struct.doc, struct.fields)
        return
    head, rest = struct.fields[: sizes + 1], struct.fields[sizes + 1 :]
    size = _number(head[-1])
    yield from _sequence(
        name, struct.doc, head, [f"      - id: body\n        type: {name}_body\n        size: {size}"]
    )
    yield from _sequence(f"{name}_body", f"What the size of {struct.name} counts.", rest)


def _sequence(name: str, doc: str, fields: tuple[Field, ...], more: list[str] | None = None) -> Iterator[str]:
    yield f"  {name}:"
    if doc:
        yield f"    doc: {_quoted(doc)}"
    yield "    seq:"
    for one in fields:
        yield from _field(one.name, one.type, one.doc, one.only)
    yield from more or ()
    bits = [(one.name, bit) for one in fields if isinstance(one.type, Flags) for bit in one.type.bits]
    if bits:
        yield "    instances:"
    for field, bit in bits:
        values = ", ".join(f"{number} {value}" for number, value in (bit.values or {}).items())
        yield f"      {field}_{bit.name}:"
        yield f"        value: {_quoted(f'({field} >> {bit.low}) & {(1 << bit.count) - 1}')}"
        said = "; ".join(one for one in (bit.doc, values) if one)
        if said:
            yield f"        doc: {_quoted(said)}"


def _number(one: Field) -> str:
    return f"{one.name}.value" if isinstance(one.type, Varint) else one.name


def _field(name: str, kind: Type, doc: str, only: Any = None, condition: str = "") -> Iterator[str]:
    if isinstance(kind, Switch):
        others = [key for key in kind.keys if key is not None]
        for i, (case, key) in enumerate(zip(kind.cases, kind.keys, strict=True)):
            test = (
                f"({kind.on}) == {key}"
                if key is not None
                else " and ".join(f"({kind.on}) != {one}" for one in others)
            )
            yield from _field(
                name if not i else f"{name}_{'other' if key is None else key}", case, doc, only, test
            )
        return
    if isinstance(kind, Flags):
        kind = kind.base
    lines: list[str] = []
    if isinstance(kind, Bytes) and isinstance(kind.length, Type):
        yield from _field(f"{name}_length", kind.length, f"length of {name}", None, condition)
        size = f"{name}_length.value" if isinstance(kind.length, Varint) else f"{name}_length"
        lines = [f"size: '{size} < 0 ? 0 : {size}'" if kind.null is not None else f"size: {size}"]
        lines += ["type: str"] if kind.text else []
    elif isinstance(kind, Bytes):
        lines = ["size-eos: true" if kind.length == "rest" else f"size: {kind.length}"]
    elif isinstance(kind, Repeated):
        count = kind.count
        if isinstance(count, Type):
            yield from _field(f"{name}_count", count, f"number of {name}", None, condition)
            expression = f"{name}_count.value" if isinstance(count, Varint) else f"{name}_count"
            lines = ["repeat: expr", f"repeat-expr: {expression}"]
        else:
            lines = ["repeat: eos"] if count == "rest" else ["repeat: expr", f"repeat-expr: {count}"]
        lines.append(f"type: {_named(kind.item)}")
    else:
        lines = [f"type: {_named(kind)}"]
        if isinstance(only, int):
            lines.append(f"valid: {only}")
    if isinstance(kind, Int) and kind.values:
        doc += f" ({', '.join(f'{number} {value}' for number, value in kind.values.items())})"
    yield f"      - id: {name}"
    yield from (f"        {line}" for line in lines)
    if condition:
        yield f"        if: {_quoted(condition)}"
    if doc:
        yield f"        doc: {_quoted(doc)}"


def _named(kind: Type) -> str:
    if isinstance(kind, Int):
        order = "" if kind.width == 1 else "le" if kind.order == "<" else "be"
        return f"{'s' if kind.signed else 'u'}{kind.width}{order}"
    return identifier(kind.name) if isinstance(kind, Struct) else kind.label()


def _varint(name: str, groups: int, zigzag: bool) -> Iterator[str]:
    yield f"  {name}:"
    yield "    seq:"
    yield "      - id: groups"
    yield "        type: u1"
    yield "        repeat: until"
    yield "        repeat-until: '_ < 128'"
    yield "    instances:"
    parts = [f"(groups.size > {i} ? (groups[{i}] & 127) << {7 * i} : 0)" for i in range(groups)]
    yield f"      {'raw' if zigzag else 'value'}:"
    yield f"        value: {_quoted(' | '.join(parts))}"
    if zigzag:
        yield "      value:"
        yield f"        value: {_quoted('(raw >> 1) ^ -(raw & 1)')}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
