"""Translate the description of a codec to an ImHex pattern.

Compressed content, and records that span several physical records, stay bytes. Raises `TypeError` for a shape that a pattern cannot express.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from format_ksy import ahead, behind, described, expressible, field_of, once, optional
from format_spelling import Spelling

from logwright.codec.base import Codec
from logwright.codec.describe import (
    Bytes,
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
    Varint,
)
from logwright.codec.expression import LEFT, PEEK_SIZE, expression
from logwright.codec.text import Word

_KEYWORDS = {"padding", "parent", "this", "in", "out", "ref", "str", "char", "auto", "null", "end"}
_ZIGZAG = "value % 2 == 0 ? s128(value / 2) : -s128(value / 2) - 1"


def hexpat(codec: Codec) -> str:
    """Return the text of the `.hexpat` file."""
    first = described(codec)[0]
    structs = _inner_first(described(codec))
    lines = [
        "// Made from the descriptions in codec/ by `make docs`: change those.",
        f"#pragma description {codec.title}",
        "#pragma array_limit 0",
        "#pragma pattern_limit 0",
        "",
        "import std.mem;",
        "",
    ]
    kinds = [kind for each in structs for field in each.fields for kind in _parts(field.type)]
    for bits, zigzag in sorted({(each.bits, each.zigzag) for each in kinds if isinstance(each, Varint)}):
        lines += _varint(Varint(bits, zigzag))
    for end in sorted({each.end for each in kinds if isinstance(each, Word)}):
        lines += _word(end)
    for name, kind in sorted(
        {_named(each.item): each.item for each in kinds if isinstance(each, Repeated)}.items()
    ):
        if isinstance(kind, Bytes):
            lines += _measured(name, kind)
    tails = optional(kinds)
    rooms = {(each.item, each.every) for each in kinds if isinstance(each, Repeated) and each.every}
    for each in structs:
        lines += _struct(each, tails.get(id(each), ()))
        lines += [line for item, every in rooms if item is each for line in _room(each, every)]
    place = "file" if once(codec) else "entries[while(!std::mem::eof())]"
    lines += ["u128 end_of_file = std::mem::size();", f"{_of(first, 'end_of_file')} {place} @ 0x00;"]
    return "\n".join(lines) + "\n"


def _parts(kind: Type) -> Iterator[Type]:
    """Yield a type and the types within it, except structures."""
    yield kind
    for name in ("length", "count", "item", "first", "second"):
        inner = getattr(kind, name, None)
        if isinstance(inner, Type):
            yield from _parts(inner)
    for case in kind.types if isinstance(kind, Switch) else ():
        yield from _parts(case)


def _inner_first(outer: Sequence[Struct]) -> list[Struct]:
    """Return the structures and all that they contain or point to, dependencies first."""
    named = {item.name: item for item in outer}
    ordered: dict[str, Struct] = {}

    def visit(struct: Struct) -> None:
        if struct.name in ordered:
            return
        for field in struct.fields:
            cases = (field.holds.kind,) if field.holds is not None and expressible(field.holds) else ()
            for kind in (field.type, *cases):
                for part in _parts(kind):
                    if isinstance(part, Struct):
                        visit(part)
            if field.points is not None:
                visit(named[field.points.to])
        ordered[struct.name] = struct

    visit(outer[0])
    return list(ordered.values())


def _varint(kind: Varint) -> Iterator[str]:
    name = kind.label()
    yield f"fn {name}_value(ref auto one) {{"
    yield "    u128 value = 0;"
    yield f"    for (u8 i = 0, i < sizeof(one.groups) && i < {kind.max_size}, i += 1)"
    yield "        value |= u128(one.groups[i] & 0x7F) << (7 * i);"
    yield f"    return {_ZIGZAG if kind.zigzag else 'value'};"
    yield "};"
    yield f"struct {name} {{"
    yield "    u8 groups[while($ == addressof(this) || (std::mem::read_unsigned($ - 1, 1) & 0x80) != 0)] [[hidden]];"
    yield f'}} [[sealed, transform("{name}_value"), format("{name}_value")]];'
    yield ""


def _word(end: str) -> Iterator[str]:
    yield f"struct {_word_name(end)} {{"
    yield f"    char text[while(!std::mem::eof() && std::mem::read_unsigned($, 1) != {ord(end[0])})];"
    yield "    if (!std::mem::eof())"
    yield f"        char end[{len(end)}] [[hidden]];"
    yield "};"
    yield ""


def _word_name(end: str) -> str:
    return {"\n": "line", " ": "word", ": ": "name"}[end]


def _measured(name: str, kind: Bytes) -> Iterator[str]:
    """Yield the type of list items that are bytes with a length prefix."""
    assert isinstance(kind.length, Type)
    yield f"struct {name} {{"
    yield f"    {_named(kind.length)} value_length;"
    yield f"    {'char' if kind.text else 'u8'} value[{_length(kind, 'value')}];"
    yield "};"
    yield ""


def _struct(struct: Struct, tail: Sequence[str]) -> Iterator[str]:
    """Yield the type of a structure. `stop` is its end, if known, or the limit. `tail`: fields that are present only if bytes are left."""
    if struct.doc:
        yield f"// {struct.doc}"
    yield f"struct {_type_name(struct)}<auto end> {{"
    yield "    u128 stop = end;"
    for field in struct.fields:
        for later in ahead(struct, field):
            yield from _ahead(struct, later)
        for later in _condition_ahead(struct, field):
            yield from _ahead(struct, later)
        yield from (f"    {line}" for line in _field(struct, field, optional=field.name in tail))
        if field.sizes:
            yield f"    stop = $ + {_name(field.name)};"
        if field.points is not None:
            inner = (
                field.type if isinstance(field.type, Struct) else field.holds.kind if field.holds else None
            )
            assert isinstance(inner, Struct)
            at, size = (
                Pattern(inner, (), field.name).of(text) for text in (field.points.at, field.points.size)
            )
            yield f"    {field.points.to[0].upper()}{field.points.to[1:]}<({at}) + ({size})> {field.name}_block @ ({at});"
    yield "};"
    yield ""


def _room(struct: Struct, every: int) -> Iterator[str]:
    """Yield a type for blocks of a fixed size; the last one may be shorter."""
    yield f"struct {_type_name(struct)}Room{every}<auto end> {{"
    yield f"    u128 stop = $ + {every} < end ? $ + {every} : end;"
    yield f"    {_of(struct, 'stop')} block [[inline]];"
    yield "    $ = stop;"
    yield "};"
    yield ""


def _ahead(struct: Struct, name: str) -> Iterator[str]:
    """Yield the early read of a field from the end of the structure."""
    kind = struct[name].type
    assert isinstance(kind, Int)
    yield f"    u128 {name}_ahead = {_read(kind, f'stop - {struct.behind(name)}')};"


def _condition_ahead(struct: Struct, conditional: Field) -> list[str]:
    """Return the later fields that determine the content of a field."""
    if conditional.holds is None or not conditional.holds.when or not behind(struct, conditional):
        return []
    names = [field.name for field in struct.fields]
    words = expression(conditional.holds.when).names
    return [name for name in names[names.index(conditional.name) :] if name in words]


class Pattern(Spelling):
    """ImHex's spelling of expressions. `later`: fields that are read early."""

    def __init__(self, struct: Struct, later: Sequence[str] = (), within: str = "") -> None:
        self.struct, self.later, self.within = struct, later, within

    def name(self, name: str) -> str:
        if name == LEFT:
            return "(stop - $)"
        field_of(self.struct, name)
        return f"{name}_ahead" if name in self.later else f"{self.within and self.within + '.'}{_name(name)}"

    def peek(self, place: int, *, signed: bool) -> str:
        # Both sides of "and" are evaluated, even if bytes are missing.
        at = f"$ + {place}" if place else "$"
        return _read(Int(4, signed), f"stop - $ < {place + PEEK_SIZE} ? 0 : {at}")


def _field(struct: Struct, field: Field, *, optional: bool) -> Iterator[str]:
    size = Pattern(struct, ahead(struct, field)).of(field.size) if field.size else ""
    if size and not isinstance(field.type, Bytes | Repeated):
        raise TypeError(f"{struct.name}.{field.name}: only bytes and lists can have a size expression")
    doc = field.doc.replace("\\", "\\\\").replace('"', '\\"')
    comment = f' [[comment("{doc}")]];' if doc else ";"
    holds = field.holds
    if holds is None or not expressible(holds):
        if optional:
            yield f"if (stop - $ >= {field.type.min_size})"
        yield from (
            f"{'    ' * optional}{line}" for line in _value(struct, field.name, field.type, comment, size)
        )
        return
    kind = field.type
    assert isinstance(kind, Bytes)
    if isinstance(kind.length, Type):
        yield f"{_named(kind.length)} {field.name}_length;"
        size = _length(kind, field.name)
    elif not size:
        size = Pattern(struct).of(str(kind.length))
    inner = holds.kind
    assert isinstance(inner, Struct)
    yield f"u128 {field.name}_stop = $ + {size};"
    there = f"{_of(inner, f'{field.name}_stop')} {field.name}{comment}"
    if holds.when:
        yield f"if ({Pattern(struct, _condition_ahead(struct, field)).of(holds.when)}) {{"
        yield f"    {there}"
        yield f"    $ = {field.name}_stop;"
        yield "} else {"
        yield f"    u8 {field.name}[{field.name}_stop - $]{comment}"
        yield "}"
    else:
        yield there
        yield f"$ = {field.name}_stop;"


def _value(
    struct: Struct, name: str, kind: Type, comment: str, size: str = "", stop: str = "stop"
) -> Iterator[str]:
    """Yield a value. `size`: its size expression. `stop`: the limit of its end."""
    shown = _name(name)
    if isinstance(kind, Switch):
        yield from _cases(struct, name, kind, comment, stop)
    elif isinstance(kind, Enclosed):
        yield f"{_named(kind.length)} {name}_length;"
        yield f"u128 {name}_stop = $ + {name}_length;"
        yield from _value(struct, name, kind.item, comment, stop=f"{name}_stop")
        yield f"$ = {name}_stop;"
    elif isinstance(kind, Bytes):
        if isinstance(kind.length, Type):
            yield f"{_named(kind.length)} {name}_length;"
            size = _length(kind, name)
        elif kind.length != "rest":
            size = Pattern(struct).of(str(kind.length))
        yield f"{'char' if kind.text else 'u8'} {shown}[{size or f'{stop} - $'}]{comment}"
    elif isinstance(kind, Repeated):
        yield from _list(struct, name, kind, comment, size)
    elif not isinstance(kind, Nothing):
        yield f"{_named(kind, stop)} {shown}{comment}"


def _cases(struct: Struct, name: str, kind: Switch, comment: str, stop: str) -> Iterator[str]:
    """Yield the cases of a switch."""
    on = Pattern(struct).number(kind.on)
    if "?" in on:
        yield f"s128 {name}_case = {on};"
        on = f"{name}_case"
    none = [key for case in kind.types if isinstance(case, Nothing) for key in kind.keys(case) or ()]
    begun = ""
    for case in sorted(kind.types, key=lambda case: kind.keys(case) is None):
        keys = kind.keys(case)
        if isinstance(case, Nothing):
            continue
        test = (" && " if keys is None else " || ").join(
            f"({on}) {'!=' if keys is None else '=='} {key}" for key in (none if keys is None else keys)
        )
        yield f"{begun}{f'if ({test}) ' if test else ''}{{"
        yield from (f"    {line}" for line in _value(struct, name, case, comment, stop=stop))
        yield "}"
        begun = "else "


def _length(kind: Bytes, name: str) -> str:
    return f"({name}_length < 0 ? 0 : {name}_length)" if kind.null is not None else f"{name}_length"


def _list(struct: Struct, name: str, kind: Repeated, comment: str, size: str) -> Iterator[str]:
    item, stop = _named(kind.item), "stop"
    if size:
        stop = f"{name}_stop"
        yield f"u128 {stop} = $ + {size};"
        item = _named(kind.item, stop)
    if isinstance(kind.count, Type):
        yield f"{_named(kind.count)} {name}_count;"
        many = f"{name}_count"
        if kind.null is not None:
            many = f"({many} < 0 ? 0 : {many})"
    elif kind.count == "rest" or isinstance(struct[kind.count].type, Word):
        many = f"while({stop} >= $ + {max(kind.least, 1)})"
        if kind.until is not None:
            place = f"$ + {kind.until.at}" if kind.until.at else "$"
            # Do not read beyond the end of the file: both sides are evaluated.
            ahead = _read(kind.until.kind, f"{stop} >= $ + {kind.until.least} ? {place} : 0")
            many = f"{many[:-1]} && {ahead} != {kind.until.value})"
    else:
        many = Pattern(struct).of(kind.count)
    if kind.every:
        # The wrapper type of fixed-size blocks.
        item = item.replace("<", f"Room{kind.every}<", 1)
    yield f"{item} {name}[{many}]{comment}"


def _of(struct: Struct, stop: str) -> str:
    return f"{_type_name(struct)}<{stop}>"


def _type_name(struct: Struct) -> str:
    """Return the capitalised name of a structure, which differs from names of fields."""
    return "".join(word[0].upper() + word[1:] for word in struct.name.split("_"))


def _named(kind: Type, stop: str = "stop") -> str:
    if isinstance(kind, Flags):
        kind = kind.base
    if isinstance(kind, Int):
        order = "" if kind.width == 1 else "be " if kind.order == ">" else "le "
        return f"{order}{'s' if kind.signed else 'u'}{8 * kind.width}"
    if isinstance(kind, Word):
        return _word_name(kind.end)
    if isinstance(kind, Bytes) and isinstance(kind.length, Type):
        # A list item with its length prefix.
        return f"{'String' if kind.text else 'Bytes'}Length{_named(kind.length).split()[-1].upper()}"
    if isinstance(kind, Either):
        return _named(kind.first, stop)
    if isinstance(kind, Varint):
        return kind.label()
    if not isinstance(kind, Struct):
        raise TypeError(f"{kind.label()} is unnamed and cannot be an item: put it into a structure")
    return _of(kind, stop)


def _read(kind: Int, at: str) -> str:
    """Return an expression that reads an integer at a position."""
    order = "Big" if kind.order == ">" else "Little"
    sign = "signed" if kind.signed else "unsigned"
    return f"std::mem::read_{sign}({at}, {kind.width}, std::mem::Endian::{order})"


def _name(name: str) -> str:
    return f"{name}_" if name in _KEYWORDS else name
