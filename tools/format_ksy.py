"""Translate the description of a codec to Kaitai Struct.

Compressed content, and records that span several physical records, stay bytes. Raises `TypeError` for inexpressible shapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from format_spelling import Spelling

from logwright.codec.base import Codec
from logwright.codec.describe import (
    Bytes,
    Content,
    Either,
    Enclosed,
    Field,
    Flags,
    Int,
    Nothing,
    Repeated,
    Struct,
    Switch,
    Type,
    Until,
    Varint,
    structures,
)
from logwright.codec.expression import LEFT, OUTER, PEEK_SIZE, expression
from logwright.codec.text import Word

_VARINTS = {
    "varint": (5, True), "varlong": (10, True), "uvarint": (5, False), "uvarlong": (10, False),
}  # fmt: skip
_HERE = "(_io.size - _io.pos)"
_REMAINING, _NOTHING = "remaining_bytes", "no_bytes"


def described(codec: Codec) -> Sequence[Struct]:
    """Return the structures of a codec. The file consists of the first one, once or repeated (see `once`)."""
    return codec.described or codec.structures


def once(codec: Codec) -> bool:
    """Return whether the file is one structure."""
    return bool(codec.described)


def identifier(name: str) -> str:
    """Convert CamelCase to snake_case. A run of capitals is one word."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def ksy(codec: Codec) -> str:
    """Return the text of the `.ksy` file."""
    first = described(codec)[0]
    structs = list(structures(described(codec)))
    lines = [
        "# Made from the descriptions in codec/ by `make docs`: change those.",
        "meta:",
        f"  id: {codec.name.replace('.', '_')}",
        f"  title: {_quoted(codec.title)}",
        f"  endian: {'le' if any(map(_little, structs)) else 'be'}",
        "  encoding: UTF-8",
        f"doc: {_quoted(first.doc)}",
        "seq:",
        f"  - id: {identifier(first.name) if once(codec) else 'frames'}",
        f"    type: {identifier(first.name)}",
    ]
    if not once(codec):
        lines.append("    repeat: eos")
    lines.append("types:")
    kinds = [kind for each in structs for kind in _kinds(each)]
    if not once(codec):
        _check_frames(first)
    tails = optional(kinds)
    listed = {id(kind.item): kind.until for kind in kinds if isinstance(kind, Repeated) and kind.until}
    for each in structs:
        lines += _type(each, listed.get(id(each)), tails.get(id(each), ()))
    items = {_named(kind.item): kind.item for kind in kinds if isinstance(kind, Repeated)}
    for name, item in sorted(items.items()):
        if isinstance(item, Bytes):
            lines += [f"  {name}:", "    seq:", *_value(Struct(name), "value", item, "")]
    if any(line.endswith(f" {_REMAINING}") for line in lines):
        lines += [f"  {_REMAINING}:", "    seq:", "      - id: data", "        size-eos: true"]
    if any(line.endswith(f" {_NOTHING}") for line in lines):
        lines += [f"  {_NOTHING}:", "    seq: []"]
    for name in sorted({kind.label() for kind in kinds if isinstance(kind, Varint)}):
        lines += _varint(name, *_VARINTS[name])
    return "\n".join(lines) + "\n"


def _kinds(struct: Struct) -> Iterator[Type]:
    """Yield the types of the fields, and the types within them."""
    queue: list[Any] = [field.type for field in struct.fields]
    while queue:
        kind = queue.pop()
        yield kind
        queue += kind.types if isinstance(kind, Switch) else ()
        parts = [getattr(kind, name, None) for name in ("length", "count", "item", "first", "second")]
        queue += [part for part in parts if isinstance(part, Type)]


def _little(struct: Struct) -> bool:
    return any(isinstance(kind, Int) and kind.order == "<" and kind.width > 1 for kind in _kinds(struct))


def optional(kinds: Iterable[Type]) -> dict[int, tuple[str, ...]]:
    """Return the optional fields at the end of structures that have a shorter form, by structure."""
    out = {}
    for kind in kinds:
        if isinstance(kind, Either) and isinstance(kind.second, Struct):
            assert isinstance(kind.first, Struct)
            short = len(kind.second.fields)
            if kind.first.fields[:short] != kind.second.fields:
                raise TypeError(f"{kind.second.name} is not a prefix of {kind.first.name}")
            out[id(kind.first)] = tuple(field.name for field in kind.first.fields[short:])
    return out


def _check_frames(struct: Struct) -> None:
    """Raise `TypeError` if a structure that is repeated to the end of the file depends on that end."""
    for field in struct.fields:
        kind = field.type
        rest = (isinstance(kind, Bytes) and kind.length == "rest") or (
            isinstance(kind, Repeated) and kind.count == "rest"
        )
        if rest or field.size or (isinstance(kind, Switch) and expression(kind.on).looks):
            raise TypeError(
                f"{struct.name}.{field.name}: the end of the frame does not follow from earlier fields"
            )
        if field.sizes:
            return


class Kaitai(Spelling):
    """Kaitai Struct's spelling of expressions. `here`: the field of the expression; later fields are read from the end."""

    both, either = "and", "or"

    def __init__(self, struct: Struct, here: Field | None = None, within: str = "") -> None:
        self.struct, self.here, self.within = struct, here, within
        self.later = [] if here is None else ahead(struct, here)

    def name(self, name: str) -> str:
        if name == LEFT:
            return _HERE
        field = field_of(self.struct, name)
        more = ".value" if isinstance(field.type, Varint) else ".to_i" if isinstance(field.type, Word) else ""
        return f"{self.within and self.within + '.'}{name}{'_ahead' * (name in self.later)}{more}"

    def peek(self, place: int, *, signed: bool) -> str:
        if self.here is None:
            raise TypeError(f"{self.struct.name}: an expression without a field cannot look ahead")
        return peeked(self.here.name, place, signed=signed)


def field_of(struct: Struct, name: str) -> Field:
    """Return a field. Raises `TypeError` for a missing field."""
    match = next((field for field in struct.fields if field.name == name), None)
    if match is None:
        raise TypeError(f"{struct.name} has no field {name!r}, but an expression in it names it")
    return match


def peeked(name: str, place: int, *, signed: bool) -> str:
    """Return the name of a look-ahead integer of a field."""
    return f"{name}_{'i' if signed else 'u'}32be_{place}"


# Structures


def _type(struct: Struct, until: Until | None = None, tail: Sequence[str] = ()) -> Iterator[str]:
    """Yield the type of a structure. The fields behind a size field form a separate type in a substream of that size.

    `until`: the terminator of the list whose items it is; the item then tests whether another one follows. `tail`: fields that are present
    only if bytes are left.
    """
    sizes = next((i for i, field in enumerate(struct.fields) if field.sizes), None)
    name = identifier(struct.name)
    if sizes is None:
        yield from _sequence(name, struct.doc, struct, struct.fields, until=until, tail=tail)
        return
    head, rest = struct.fields[: sizes + 1], struct.fields[sizes + 1 :]
    size = Kaitai(struct).of(head[-1].name)
    body = [f"      - id: body\n        type: {name}_body\n        size: {size}"]
    yield from _sequence(name, struct.doc, struct, head, body, until)
    yield from _sequence(f"{name}_body", f"The bytes that the size of {struct.name} counts.", struct, rest)


def _sequence(
    name: str,
    doc: str,
    struct: Struct,
    fields: tuple[Field, ...],
    more: list[str] | None = None,
    until: Until | None = None,
    tail: Sequence[str] = (),
) -> Iterator[str]:
    yield f"  {name}:"
    if doc:
        yield f"    doc: {_quoted(doc)}"
    yield "    seq:"
    for field in fields:
        yield from _field(struct, field, name, optional=field.name in tail)
    yield from more or ()
    instances = [line for field in fields for line in _instances(struct, field)]
    if until is not None:
        instances += _ahead("following", until, f"after the last item: {until.doc}")
    if instances:
        yield "    instances:"
        yield from instances
    for field in fields:
        if field.size and isinstance(field.type, Repeated):
            # Items up to the end of a sized range need a separate type.
            yield f"  {name}_{field.name}:"
            yield "    seq:"
            yield "      - id: items"
            yield f"        type: {_named(field.type.item)}"
            yield "        repeat: eos"


def _instances(struct: Struct, field: Field) -> Iterator[str]:
    """Yield values that are not in sequence: bits, fields read from the end, the content of bytes, and structures elsewhere."""
    if isinstance(field.type, Flags):
        for bit in field.type.bits:
            values = ", ".join(f"{number} {value}" for number, value in (bit.values or {}).items())
            text = "; ".join(part for part in (bit.doc, values) if part)
            value = f"({field.name} >> {bit.low}) & {(1 << bit.count) - 1}"
            yield from _instance(f"{field.name}_{bit.name.lower()}", text, value=_quoted(value))
    if isinstance(field.type, Repeated) and field.type.until is not None:
        yield from _ahead(
            f"{field.name}_ahead", field.type.until, f"if the list is empty: {field.type.until.doc}"
        )
    if isinstance(field.type, Switch):
        for place, signed in expression(field.type.on).peeks:
            yield from _instance(
                peeked(field.name, place, signed=signed),
                f"the integer {place} bytes after the start of {field.name}",
                pos=f"_io.pos + {place}" if place else "_io.pos",
                type="s4be" if signed else "u4be",
                when=_quoted(f"{_HERE} >= {place + PEEK_SIZE}"),
            )
    for later in ahead(struct, field):
        yield from _instance(
            f"{later}_ahead",
            f"{later}, read before the field that depends on it",
            pos=f"_io.size - {struct.behind(later)}",
            type=_named(struct[later].type),
        )
    if behind(struct, field):
        assert field.holds is not None
        yield from _instance(
            f"{field.name}_parsed",
            f"{field.name}, if it is not compressed",
            pos=str(struct.offset(field.name)),
            size=_quoted(Kaitai(struct, field).of(field.size).replace(_HERE, "_io.size")),
            type=_named(field.holds.kind),
            when=_quoted(_condition(struct, field)),
        )
    if field.points is not None:
        inner = field.type if isinstance(field.type, Struct) else field.holds.kind if field.holds else None
        assert isinstance(inner, Struct)
        yield from _instance(
            f"{field.name}_block",
            f"the structure that {field.name} points to",
            io="_root._io",
            pos=Kaitai(inner, within=field.name).of(field.points.at),
            size=Kaitai(inner, within=field.name).of(field.points.size),
            type=identifier(field.points.to),
        )


def _ahead(name: str, until: Until, doc: str) -> Iterator[str]:
    """Yield a look-ahead value, which is absent if too few bytes are left."""
    yield from _instance(
        name,
        doc,
        pos=f"_io.pos + {until.at}" if until.at else "_io.pos",
        type=_named(until.kind),
        when=_quoted(f"{_HERE} >= {until.least}"),
    )


def _instance(name: str, doc: str, **attributes: str) -> Iterator[str]:
    yield f"      {name}:"
    yield from (f"        {'if' if key == 'when' else key}: {text}" for key, text in attributes.items())
    if doc:
        yield f"        doc: {_quoted(doc)}"


def ahead(struct: Struct, conditional: Field) -> list[str]:
    """Return the later fields that determine the size of a field."""
    names = [field.name for field in struct.fields]
    words = expression(conditional.size).names if conditional.size else ()
    return [name for name in names[names.index(conditional.name) + 1 :] if name in words] if words else []


def expressible(holds: Content | None) -> bool:
    """Return whether the structure's own fields determine when bytes hold an uncompressed structure."""
    return (
        holds is not None
        and holds.when is not None
        and not (holds.when and OUTER in expression(holds.when).names)
    )


def _condition(struct: Struct, field: Field, *, other: bool = False) -> str:
    """Return the condition that a field holds an uncompressed structure, or with `other`, that it does not; "" for always."""
    if field.holds is None or not field.holds.when:
        return ""
    condition = Kaitai(struct).of(field.holds.when)
    return f"not ({condition})" if other else condition


def behind(struct: Struct, conditional: Field) -> bool:
    """Return whether a later field determines the content of a field."""
    if conditional.holds is None or not conditional.holds.when or not expressible(conditional.holds):
        return False
    names = [field.name for field in struct.fields]
    return any(
        name in expression(conditional.holds.when).names for name in names[names.index(conditional.name) :]
    )


# Fields


def _field(struct: Struct, field: Field, owner: str, *, optional: bool) -> Iterator[str]:
    kind, size = field.type, ""
    if field.size:
        size = Kaitai(struct, field).of(field.size)
        if isinstance(kind, Repeated):
            yield from _lines(
                field.name, [f"size: {_quoted(size)}", f"type: {owner}_{field.name}"], field.doc
            )
            return
        if not isinstance(kind, Bytes):
            raise TypeError(f"{struct.name}.{field.name}: only bytes and lists can have a size expression")
    holds = field.holds
    if holds is None or not expressible(holds) or behind(struct, field):
        there = f"{_HERE} >= {kind.min_size}" if optional else ""
        yield from _value(struct, field.name, kind, field.doc, field.only, there, size)
        return
    inner, test = _named(holds.kind), _condition(struct, field)
    yield from _value(struct, field.name, kind, field.doc, field.only, test, size, inner)
    if test:
        other = _condition(struct, field, other=True)
        yield from _value(struct, f"{field.name}_other", kind, field.doc, field.only, other, size)


def _value(
    struct: Struct,
    name: str,
    kind: Type,
    doc: str,
    only: Any = None,
    condition: str = "",
    size: str = "",
    holds: str = "",
) -> Iterator[str]:
    """Yield a value with its length or count, and the condition under which it is present."""
    if isinstance(kind, Switch):
        if chosen(kind):
            yield from _lines(name, _chosen(struct, name, kind), doc, condition)
            return
        on = Kaitai(struct).number(kind.on)
        others = [key for case in kind.types for key in kind.keys(case) or ()]
        for i, case in enumerate(kind.types):
            keys = kind.keys(case)
            if isinstance(case, Nothing):
                continue
            test = (
                " and ".join(f"({on}) != {other}" for other in others)
                if keys is None
                else " or ".join(f"({on}) == {key}" for key in keys)
            )
            case_name = name if not i else f"{name}_{'other' if keys is None else keys[0]}"
            yield from _value(struct, case_name, case, doc, only, test)
        return
    if isinstance(kind, Flags):
        kind = kind.base
    lines: list[str] = []
    if isinstance(kind, Enclosed):
        yield from _value(struct, f"{name}_length", kind.length, f"length of {name}", None, condition)
        lines = [f"size: {name}_length", *_chosen(struct, name, kind.item, sized=True)]
    elif isinstance(kind, Bytes):
        if isinstance(kind.length, Type):
            yield from _value(struct, f"{name}_length", kind.length, f"length of {name}", None, condition)
            size = f"{name}_length.value" if isinstance(kind.length, Varint) else f"{name}_length"
            size = _quoted(f"{size} < 0 ? 0 : {size}") if kind.null is not None else size
        elif kind.length == "rest":
            size = _quoted(size) if size else ""
        else:
            size = Kaitai(struct).of(str(kind.length))
            size = _quoted(size) if " " in size else size
        lines = [f"size: {size}" if size else "size-eos: true"]
        lines += [f"type: {holds}"] if holds else ["type: str"] if kind.text else []
        if isinstance(only, bytes):
            lines = [f"contents: [{', '.join(map(str, only))}]"]
    elif isinstance(kind, Repeated):
        count = kind.count
        if isinstance(count, Type):
            yield from _value(struct, f"{name}_count", count, f"number of {name}", None, condition)
            expression = f"{name}_count.value" if isinstance(count, Varint) else f"{name}_count"
            if kind.null is not None:
                expression = _quoted(f"{expression} < 0 ? 0 : {expression}")
            lines = ["repeat: expr", f"repeat-expr: {expression}"]
        elif count != "rest":
            lines = ["repeat: expr", f"repeat-expr: {Kaitai(struct).of(count)}"]
        elif kind.until is not None:
            value = kind.until.value
            lines = [
                "repeat: until",
                f"repeat-until: {_quoted(f'{_HERE} < {kind.least} or _.following == {value}')}",
            ]
            condition = f"{_HERE} >= {kind.least} and {name}_ahead != {value}"
        elif kind.least > 1:
            lines = ["repeat: until", f"repeat-until: {_quoted(f'{_HERE} < {kind.least}')}"]
            condition = f"{_HERE} >= {kind.least}"
        else:
            lines = ["repeat: eos"]
        if kind.every:
            lines.append(f"size: {_quoted(f'{_HERE} < {kind.every} ? {_HERE} : {kind.every}')}")
        lines.append(f"type: {_named(kind.item)}")
    elif isinstance(kind, Word):
        lines = [
            "type: str",
            f"terminator: {ord(kind.end[0])}",
            f"eos-error: {'false' if kind.end == chr(10) else 'true'}",
        ]
        if only is not None:
            lines.append(f"valid: {_quoted(chr(34) + str(only) + chr(34))}")
    else:
        lines = [f"type: {_named(kind)}"]
        if isinstance(only, int):
            # Above 31 bits the compiler only accepts an expression.
            lines.append(f"valid: {only}" if abs(only) < 1 << 31 else f'valid: "{only}"')
    if isinstance(kind, Int) and kind.values:
        doc += f" ({', '.join(f'{number} {value}' for number, value in kind.values.items())})"
    yield from _lines(name, lines, doc, condition)
    if isinstance(kind, Word) and len(kind.end) > 1:
        yield from _lines(f"{name}_end", [f"size: {len(kind.end) - 1}"], f"behind {name}")


def chosen(kind: Switch) -> bool:
    """Return whether one field can represent all cases: structures, nothing, or the remaining bytes."""
    return all(
        isinstance(case, Struct | Either | Nothing) or (isinstance(case, Bytes) and case.length == "rest")
        for case in kind.types
    )


def _chosen(struct: Struct, name: str, kind: Type, *, sized: bool = False) -> list[str]:
    """Return the type of a structure or switch. `sized`: its size is known, and the default case is bytes."""
    if isinstance(kind, Struct):
        return [f"type: {_named(kind)}"]
    if not isinstance(kind, Switch) or not chosen(kind):
        if isinstance(kind, Bytes) and kind.length == "rest":
            return []
        raise TypeError(f"{struct.name}.{name}: {kind.label()} is not a structure")
    cases = []
    for case in kind.types:
        keys = kind.keys(case)
        if isinstance(case, Struct | Either):
            cases += [f"    {key}: {_named(case)}" for key in (keys if keys is not None else ("_",))]
        elif keys is None and not sized:
            cases.append(f"    _: {_REMAINING}")
        elif isinstance(case, Nothing) and not sized:
            cases += [f"    {key}: {_NOTHING}" for key in keys or () if None in kind.cases]
    on = Kaitai(struct, Field(name, kind)).number(kind.on)
    return ["type:", f"  switch-on: {_quoted(on)}", "  cases:", *cases]


def _lines(name: str, lines: list[str], doc: str, condition: str = "") -> Iterator[str]:
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
    if isinstance(kind, Bytes) and isinstance(kind.length, Type):
        # A list item with its length prefix.
        return f"{'string' if kind.text else 'bytes'}_{_named(kind.length)}"
    if isinstance(kind, Either):
        return _named(kind.first)
    if isinstance(kind, Flags):
        return _named(kind.base)
    if isinstance(kind, Varint):
        return kind.label()
    if not isinstance(kind, Struct):
        raise TypeError(f"{kind.label()} is unnamed and cannot be an item: put it into a structure")
    return identifier(kind.name)


def _varint(name: str, groups: int, zigzag: bool) -> Iterator[str]:
    """Yield the type of a varint. It uses sums, because shifts have 32 bits in languages with floating-point numbers, like JavaScript."""
    yield f"  {name}:"
    yield "    seq:"
    yield "      - id: groups"
    yield "        type: u1"
    yield "        repeat: until"
    yield "        repeat-until: '_ < 128'"
    yield "    instances:"
    factors = [f"{1 << 7 * min(i, 8)}{' * 128' * (i - 8)}" for i in range(groups)]  # each fits 63 bits
    parts = [f"(groups.size > {i} ? (groups[{i}] & 127) * {factor} : 0)" for i, factor in enumerate(factors)]
    yield f"      {'raw' if zigzag else 'value'}:"
    yield f"        value: {_quoted(' + '.join(parts))}"
    if zigzag:
        yield "      value:"
        yield f"        value: {_quoted('raw % 2 == 0 ? raw / 2 : -((raw + 1) / 2)')}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
