"""A Kaitai Struct description of a codec, made from its own.

What a description says only by calling Python is said there as bytes: what is compressed, what several physical records hold together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from logwright.codec.base import Codec
from logwright.codec.describe import (
    LEFT,
    NEXT,
    Bytes,
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
from logwright.codec.text import Word

_VARINTS = {
    "varint": (5, True), "varlong": (10, True), "uvarint": (5, False), "uvarlong": (10, False),
}  # fmt: skip
_HERE = "(_io.size - _io.pos)"
_REMAINING, _NOTHING = "remaining_bytes", "no_bytes"


def described(codec: Codec) -> Sequence[Struct]:
    """The structures of a codec: the first is the file, once or (see `once`) again and again."""
    return codec.described or codec.structures


def once(codec: Codec) -> bool:
    """Whether the file is one structure."""
    return bool(codec.described)


def identifier(name: str) -> str:
    """CamelCase as snake_case; what is all capitals is one word."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def ksy(codec: Codec) -> str:
    """The text of the `.ksy`."""
    first = described(codec)[0]
    found = list(structures(described(codec)))
    lines = [
        "# Made from the descriptions in codec/ by `make docs`: change those.",
        "meta:",
        f"  id: {codec.name.replace('.', '_')}",
        f"  title: {_quoted(codec.title)}",
        f"  endian: {'le' if any(map(_little, found)) else 'be'}",
        "  encoding: UTF-8",
        f"doc: {_quoted(first.doc)}",
        "seq:",
        f"  - id: {identifier(first.name) if once(codec) else 'frames'}",
        f"    type: {identifier(first.name)}",
    ]
    if not once(codec):
        lines.append("    repeat: eos")
    lines.append("types:")
    kinds = [kind for one in found for kind in _kinds(one)]
    listed = {id(kind.item): kind.until for kind in kinds if isinstance(kind, Repeated) and kind.until}
    for one in found:
        lines += _type(one, listed.get(id(one)))
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


# Structures


def _type(struct: Struct, until: Until | None = None) -> Iterator[str]:
    """A structure; what follows a field that says its size is a type of its own, in a stream of that size.

    `until`: of the list whose items it is. It says itself, where it ends, whether another one follows.
    """
    sizes = next((i for i, one in enumerate(struct.fields) if one.sizes), None)
    name = identifier(struct.name)
    if sizes is None:
        yield from _sequence(name, struct.doc, struct, struct.fields, until=until)
        return
    head, rest = struct.fields[: sizes + 1], struct.fields[sizes + 1 :]
    size = told(struct, head[-1].name)
    yield from _sequence(
        name, struct.doc, struct, head, [f"      - id: body\n        type: {name}_body\n        size: {size}"]
    )
    yield from _sequence(f"{name}_body", f"What the size of {struct.name} counts.", struct, rest)


def _sequence(
    name: str,
    doc: str,
    struct: Struct,
    fields: tuple[Field, ...],
    more: list[str] | None = None,
    until: Until | None = None,
) -> Iterator[str]:
    yield f"  {name}:"
    if doc:
        yield f"    doc: {_quoted(doc)}"
    yield "    seq:"
    for one in fields:
        yield from _field(struct, one, name)
    yield from more or ()
    instances = [line for one in fields for line in _instances(struct, one)]
    if until is not None:
        instances += _ahead("following", until, f"behind it: {until.doc}, where it was the last one")
    if instances:
        yield "    instances:"
        yield from instances
    for one in fields:
        if one.ends is not None and isinstance(one.type, Repeated):
            # Only a type of its own can have so many bytes, and items up to their end.
            yield f"  {name}_{one.name}:"
            yield "    seq:"
            yield "      - id: items"
            yield f"        type: {_named(one.type.item)}"
            yield "        repeat: eos"


def _instances(struct: Struct, one: Field) -> Iterator[str]:
    """What is no stretch of the structure: bits, what is known from its end, what lies in bytes, what lies elsewhere."""
    if isinstance(one.type, Flags):
        for bit in one.type.bits:
            values = ", ".join(f"{number} {value}" for number, value in (bit.values or {}).items())
            said = "; ".join(part for part in (bit.doc, values) if part)
            value = f"({one.name} >> {bit.low}) & {(1 << bit.count) - 1}"
            yield from _instance(f"{one.name}_{bit.name.lower()}", said, value=_quoted(value))
    if isinstance(one.type, Repeated) and one.type.until is not None:
        yield from _ahead(f"{one.name}_ahead", one.type.until, f"{one.type.until.doc}, where there are none")
    if isinstance(one.type, Switch) and re.search(rf"\b{NEXT}\b", one.type.on):
        at = struct.offset(one.name)
        yield from _instance(
            f"{one.name}_{NEXT}",
            f"the first bytes of {one.name}",
            pos=str(at),
            type="s4be",
            when=_quoted(f"_io.size >= {at + 4}"),
        )
    for later in ahead(struct, one):
        yield from _instance(
            f"{later}_ahead",
            f"{later}, which comes behind what it is about",
            pos=f"_io.size - {from_end(struct, later)}",
            type=_named(struct[later].type),
        )
    if behind(struct, one):
        assert one.holds is not None
        assert one.ends is not None
        yield from _instance(
            f"{one.name}_parsed",
            f"{one.name}, where it is as it lies",
            pos=str(struct.offset(one.name)),
            size=_quoted(told(struct, one.ends.size.replace(LEFT, "_io.size"), one)),
            type=_named(one.holds.cases[0]),
            when=_quoted(_condition(struct, one)),
        )
    if one.points is not None:
        inner = one.type if isinstance(one.type, Struct) else one.holds.cases[0] if one.holds else None
        assert isinstance(inner, Struct)
        yield from _instance(
            f"{one.name}_block",
            f"what lies where {one.name} leads to",
            io="_root._io",
            pos=told(inner, one.points.at, within=one.name),
            size=told(inner, one.points.size, within=one.name),
            type=identifier(one.points.to),
        )


def _ahead(name: str, until: Until, doc: str) -> Iterator[str]:
    """What lies ahead when it is asked for first; nothing, where there are no more so many bytes."""
    yield from _instance(
        name,
        doc,
        pos=f"_io.pos + {until.at}" if until.at else "_io.pos",
        type=_named(until.kind),
        when=_quoted(f"{_HERE} >= {until.least}"),
    )


def _instance(name: str, doc: str, **said: str) -> Iterator[str]:
    yield f"      {name}:"
    yield from (f"        {'if' if key == 'when' else key}: {text}" for key, text in said.items())
    if doc:
        yield f"        doc: {_quoted(doc)}"


def told(struct: Struct, expression: str, here: Field | None = None, within: str = "") -> str:
    """An expression of fields in Kaitai's words. `here`: of which field; those behind it are known from the end."""
    later = [] if here is None else ahead(struct, here)

    def word(found: re.Match[str]) -> str:
        name = found[0]
        if name == LEFT:
            return _HERE
        if name == NEXT and here is not None:
            return f"{here.name}_{NEXT}"
        one = next((field for field in struct.fields if field.name == name), None)
        if one is None:
            return name
        more = ".value" if isinstance(one.type, Varint) else ".to_i" if isinstance(one.type, Word) else ""
        return f"{within and within + '.'}{name}{'_ahead' * (name in later)}{more}"

    return re.sub(r"\b[a-z_]+\b", word, expression).replace("&&", "and").replace("||", "or")


def ahead(struct: Struct, one: Field) -> list[str]:
    """Fields behind this one that say where it ends."""
    if one.ends is None:
        return []
    names = [field.name for field in struct.fields]
    words = re.findall(r"[a-z_]+", one.ends.size)
    return [name for name in names[names.index(one.name) + 1 :] if name in words]


def from_end(struct: Struct, name: str) -> int:
    names = [field.name for field in struct.fields]
    behind = struct.fields[names.index(name) :]
    assert all(field.type.min_size == field.type.max_size for field in behind)
    return sum(field.type.min_size for field in behind)


def _condition(struct: Struct, one: Field) -> str:
    assert one.holds is not None
    return f"({told(struct, one.holds.on or '')}) == {one.holds.key}" if one.holds.on else ""


def behind(struct: Struct, one: Field) -> bool:
    """Whether a field that comes later says what lies in this one."""
    if one.holds is None or not one.holds.on:
        return False
    names = [field.name for field in struct.fields]
    words = re.findall(r"[a-z_]+", one.holds.on)
    return any(name in words for name in names[names.index(one.name) :])


# Fields


def _field(struct: Struct, one: Field, owner: str) -> Iterator[str]:
    kind, size = one.type, ""
    if one.ends is not None:
        size = told(struct, one.ends.size, one)
        if isinstance(kind, Repeated):
            yield from _lines(one.name, [f"size: {_quoted(size)}", f"type: {owner}_{one.name}"], one.doc)
            return
    holds = one.holds
    if holds is None or holds.on is None or behind(struct, one):
        there = f"{_HERE} >= {kind.min_size}" if one.optional else ""
        yield from _value(struct, one.name, kind, one.doc, one.only, there, size)
        return
    inner, test = _named(holds.cases[0]), _condition(struct, one)
    yield from _value(struct, one.name, kind, one.doc, one.only, test, size, inner)
    if test:
        other = test.replace(" == ", " != ")
        yield from _value(struct, f"{one.name}_other", kind, one.doc, one.only, other, size)


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
    """A value, what is before it that says how long it is, and under which condition it is there at all."""
    if isinstance(kind, Switch):
        if not said(kind):
            yield from _lines(name, ["size-eos: true"], f"{doc}; {UNSAID}".lstrip("; "), condition)
            return
        if chosen(kind):
            yield from _lines(name, _chosen(struct, name, kind), doc, condition)
            return
        on = told(struct, kind.on)
        others = [one for key in kind.keys for one in keys_of(key)]
        for i, (case, key) in enumerate(zip(kind.cases, kind.keys, strict=True)):
            test = (
                " and ".join(f"({on}) != {one}" for one in others)
                if key is None
                else " or ".join(f"({on}) == {one}" for one in keys_of(key))
            )
            case_name = name if not i else f"{name}_{'other' if key is None else keys_of(key)[0]}"
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
            size = told(struct, str(kind.length))
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
            lines = ["repeat: expr", f"repeat-expr: {told(struct, count)}"]
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
            # Above 31 bits the compiler takes an expression only.
            lines.append(f"valid: {only}" if abs(only) < 1 << 31 else f'valid: "{only}"')
    if isinstance(kind, Int) and kind.values:
        doc += f" ({', '.join(f'{number} {value}' for number, value in kind.values.items())})"
    yield from _lines(name, lines, doc, condition)
    if isinstance(kind, Word) and len(kind.end) > 1:
        yield from _lines(f"{name}_end", [f"size: {len(kind.end) - 1}"], f"behind {name}")


UNSAID = "what lies here is told by looking at it, for which there is no expression"
"""Of bytes whose type can't be told without Python."""


def said(kind: Switch) -> bool:
    """Whether an expression says which case it is."""
    return len(kind.keys) == len(kind.cases)


def unsaid(codec: Codec) -> list[str]:
    """The fields that are bytes in what is exported, as what they are can't be said."""
    return [
        f"{one.name}.{field.name}"
        for one in structures(described(codec))
        for field in one.fields
        for kind in (field.type, getattr(field.type, "item", None))
        if isinstance(kind, Switch) and not said(kind)
    ]


def chosen(kind: Switch) -> bool:
    """Whether a field of one name can be all of its cases: structures, nothing, or all that is left."""
    return all(
        isinstance(case, Struct | Nothing) or (isinstance(case, Bytes) and case.length == "rest")
        for case in kind.cases
    )


def keys_of(key: int | tuple[int, ...] | None) -> tuple[int, ...]:
    """The values of one case; none for all others."""
    return () if key is None else key if isinstance(key, tuple) else (key,)


def _chosen(struct: Struct, name: str, kind: Type, *, sized: bool = False) -> list[str]:
    """Of which structure it is. `sized`: its size is said, and what has no case is bytes."""
    if isinstance(kind, Struct):
        return [f"type: {_named(kind)}"]
    if not isinstance(kind, Switch) or not said(kind) or not chosen(kind):
        return []
    cases = []
    for case, key in zip(kind.cases, kind.keys, strict=True):
        if isinstance(case, Struct):
            cases += [f"    {one}: {_named(case)}" for one in (keys_of(key) if key is not None else ("_",))]
        elif key is None and not sized:
            cases.append(f"    _: {_REMAINING}")
        elif isinstance(case, Nothing) and not sized:
            cases += [f"    {one}: {_NOTHING}" for one in keys_of(key) if None in kind.keys]
    on = told(struct, kind.on, Field(name, kind))
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
        # With its length before it, as an item of a list.
        return f"{'string' if kind.text else 'bytes'}_{_named(kind.length)}"
    return identifier(kind.name) if isinstance(kind, Struct) else kind.label()


def _varint(name: str, groups: int, zigzag: bool) -> Iterator[str]:
    """Sums, not shifts: where numbers are floating-point, as in JavaScript, shifts are of 32 bits."""
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
