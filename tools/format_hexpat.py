"""An ImHex pattern of a codec, made from its description.

What a description says only by calling Python is bytes there: what is compressed, what several physical records hold together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from format_ksy import ahead, described, from_end, once

from logwright.codec.base import Codec
from logwright.codec.describe import LEFT, Bytes, Field, Flags, Int, Repeated, Struct, Switch, Type, Varint
from logwright.codec.text import Word

_KEYWORDS = {"padding", "parent", "this", "in", "out", "ref", "str", "char", "auto", "null"}
_ZIGZAG = "value % 2 == 0 ? s128(value / 2) : -s128(value / 2) - 1"


def hexpat(codec: Codec) -> str:
    """The text of the `.hexpat`."""
    first = described(codec)[0]
    found = _inner_first(described(codec))
    lines = [
        "// Made from the descriptions in codec/ by `make docs`: change those.",
        f"#pragma description {codec.title}",
        "#pragma array_limit 0",
        "#pragma pattern_limit 0",
        "",
        "import std.mem;",
        "",
    ]
    kinds = [kind for one in found for field in one.fields for kind in _parts(field.type)]
    for bits, zigzag in sorted({(one.bits, one.zigzag) for one in kinds if isinstance(one, Varint)}):
        lines += _varint(Varint(bits, zigzag))
    for end in sorted({one.end for one in kinds if isinstance(one, Word)}):
        lines += _word(end)
    rooms = {(one.item, one.every) for one in kinds if isinstance(one, Repeated) and one.every}
    for one in found:
        lines += _struct(one)
        lines += [line for item, every in rooms if item is one for line in _room(one, every)]
    place = "file" if once(codec) else "entries[while(!std::mem::eof())]"
    lines += ["u128 end_of_file = std::mem::size();", f"{_of(first, 'end_of_file')} {place} @ 0x00;"]
    return "\n".join(lines) + "\n"


def _parts(kind: Type) -> Iterator[Type]:
    """A type and those within it, but for structures."""
    yield kind
    for name in ("length", "count", "item"):
        inner = getattr(kind, name, None)
        if isinstance(inner, Type):
            yield from _parts(inner)
    for case in getattr(kind, "cases", ()):
        yield from _parts(case)


def _inner_first(outer: Sequence[Struct]) -> list[Struct]:
    """The structures and all they contain or lead to; what another one needs comes before it."""
    named = {one.name: one for one in outer}
    found: dict[str, Struct] = {}

    def visit(one: Struct) -> None:
        if one.name in found:
            return
        for field in one.fields:
            cases = field.holds.cases if field.holds is not None and field.holds.on is not None else ()
            for kind in (field.type, *cases):
                for part in _parts(kind):
                    if isinstance(part, Struct):
                        visit(part)
            if field.points is not None:
                visit(named[field.points.to])
        found[one.name] = one

    visit(outer[0])
    return list(found.values())


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


def _struct(struct: Struct) -> Iterator[str]:
    """`stop` is where the structure ends at the latest, or where it says that it does."""
    if struct.doc:
        yield f"// {struct.doc}"
    yield f"struct {struct.name}<auto end> {{"
    yield "    u128 stop = end;"
    for one in struct.fields:
        for later in ahead(struct, one):
            yield from _ahead(struct, later)
        for later in _condition_ahead(struct, one):
            yield from _ahead(struct, later)
        yield from (f"    {line}" for line in _field(struct, one))
        if one.sizes:
            yield f"    stop = $ + {_name(one.name)};"
        if one.points is not None:
            inner = one.type if isinstance(one.type, Struct) else one.holds.cases[0] if one.holds else None
            assert isinstance(inner, Struct)
            at, size = (_told(inner, text, within=one.name) for text in (one.points.at, one.points.size))
            yield f"    {one.points.to}<({at}) + ({size})> {one.name}_block @ ({at});"
    yield "};"
    yield ""


def _room(struct: Struct, every: int) -> Iterator[str]:
    """A block of a fixed size, the last one shorter."""
    yield f"struct {struct.name}Room{every}<auto end> {{"
    yield f"    u128 stop = $ + {every} < end ? $ + {every} : end;"
    yield f"    {_of(struct, 'stop')} block [[inline]];"
    yield "    $ = stop;"
    yield "};"
    yield ""


def _ahead(struct: Struct, name: str) -> Iterator[str]:
    """A field that is told before it comes."""
    kind = struct[name].type
    assert isinstance(kind, Int)
    order = "Big" if kind.order == ">" else "Little"
    sign = "signed" if kind.signed else "unsigned"
    yield (
        f"    u128 {name}_ahead = "
        f"std::mem::read_{sign}(stop - {from_end(struct, name)}, {kind.width}, std::mem::Endian::{order});"
    )


def _condition_ahead(struct: Struct, one: Field) -> list[str]:
    """Fields behind this one that say what lies in it."""
    if one.holds is None or not one.holds.on:
        return []
    names = [field.name for field in struct.fields]
    words = re.findall(r"[a-z_]+", one.holds.on)
    return [name for name in names[names.index(one.name) :] if name in words]


def _told(struct: Struct, expression: str, later: Sequence[str] = (), within: str = "") -> str:
    """An expression of fields in the pattern's words."""
    names = {field.name for field in struct.fields}

    def word(found: re.Match[str]) -> str:
        name = found[0]
        if name == LEFT:
            return "(stop - $)"
        if name not in names:
            return name
        return f"{name}_ahead" if name in later else f"{within and within + '.'}{_name(name)}"

    return re.sub(r"\b[a-z_]+\b", word, expression)


def _field(struct: Struct, one: Field) -> Iterator[str]:
    size = "" if one.ends is None else _told(struct, one.ends.size, ahead(struct, one))
    said = one.doc.replace("\\", "\\\\").replace('"', '\\"')
    comment = f' [[comment("{said}")]];' if said else ";"
    holds = one.holds
    if holds is None or holds.on is None:
        yield from _value(struct, one.name, one.type, comment, size)
        return
    kind = one.type
    assert isinstance(kind, Bytes)
    if isinstance(kind.length, Type):
        yield f"{_named(kind.length)} {one.name}_length;"
        size = _length(kind, one.name)
    elif not size:
        size = _told(struct, str(kind.length))
    inner = holds.cases[0]
    assert isinstance(inner, Struct)
    yield f"u128 {one.name}_stop = $ + {size};"
    there = f"{_of(inner, f'{one.name}_stop')} {one.name}{comment}"
    if holds.on:
        yield f"if (({_told(struct, holds.on, _condition_ahead(struct, one))}) == {holds.key}) {{"
        yield f"    {there}"
        yield f"    $ = {one.name}_stop;"
        yield "} else {"
        yield f"    u8 {one.name}[{one.name}_stop - $]{comment}"
        yield "}"
    else:
        yield there
        yield f"$ = {one.name}_stop;"


def _value(struct: Struct, name: str, kind: Type, comment: str, size: str = "") -> Iterator[str]:
    shown = _name(name)
    if isinstance(kind, Switch):
        on = _told(struct, kind.on)
        for i, (case, key) in enumerate(zip(kind.cases, kind.keys, strict=True)):
            test = "" if key is None else f"if (({on}) == {key}) "
            yield f"{'else ' if i else ''}{test}{{"
            yield from (f"    {line}" for line in _value(struct, name, case, comment))
            yield "}"
    elif isinstance(kind, Bytes):
        if isinstance(kind.length, Type):
            yield f"{_named(kind.length)} {name}_length;"
            size = _length(kind, name)
        elif kind.length != "rest":
            size = _told(struct, str(kind.length))
        yield f"{'char' if kind.text else 'u8'} {shown}[{size or 'stop - $'}]{comment}"
    elif isinstance(kind, Repeated):
        yield from _list(struct, name, kind, comment, size)
    else:
        yield f"{_named(kind)} {shown}{comment}"


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
    elif kind.count == "rest" or isinstance(struct[kind.count].type, Word):
        many = f"while({stop} >= $ + {max(kind.least, 1)})"
    else:
        many = _told(struct, kind.count)
    if kind.every:
        # A type around it, which finds its own end.
        item = item.replace("<", f"Room{kind.every}<", 1)
    yield f"{item} {name}[{many}]{comment}"


def _of(struct: Struct, stop: str) -> str:
    return f"{struct.name}<{stop}>"


def _named(kind: Type, stop: str = "stop") -> str:
    if isinstance(kind, Flags):
        kind = kind.base
    if isinstance(kind, Int):
        order = "" if kind.width == 1 else "be " if kind.order == ">" else "le "
        return f"{order}{'s' if kind.signed else 'u'}{8 * kind.width}"
    if isinstance(kind, Word):
        return _word_name(kind.end)
    return _of(kind, stop) if isinstance(kind, Struct) else kind.label()


def _name(name: str) -> str:
    return f"{name}_" if name in _KEYWORDS else name
