"""An ImHex pattern of a codec, made from its description: for files that are nothing but structures of a fixed width."""

from __future__ import annotations

from collections.abc import Iterator

from format_ksy import once, plain

from logwright.codec.base import Codec
from logwright.codec.describe import Int, Repeated, Struct, Type, structures


def hexpat(codec: Codec) -> str | None:
    """The text of the `.hexpat`; None where the codec's files are more than that."""
    found = list(structures(codec.structures[:1]))
    if not plain(codec) or not all(_fixed(field.type) for one in found for field in one.fields):
        return None
    first = found[0].name
    lines = [
        "// Made from the descriptions in codec/ by `make docs`: change those.",
        f"#pragma description {codec.title}",
        "",
    ]
    if not once(codec):
        lines += ["import std.mem;", ""]
    for one in reversed(found):
        lines += _struct(one)
    place = "file" if once(codec) else "entries[while(!std::mem::eof())]"
    return "\n".join([*lines, f"{first} {place} @ 0x00;"]) + "\n"


def _fixed(kind: Type) -> bool:
    if isinstance(kind, Repeated):
        return isinstance(kind.count, str) and kind.count != "rest" and isinstance(kind.item, Struct)
    return isinstance(kind, Int)


def _struct(struct: Struct) -> Iterator[str]:
    if struct.doc:
        yield f"// {struct.doc}"
    yield f"struct {struct.name} {{"
    for one in struct.fields:
        kind = one.type
        many = f"[{kind.count}]" if isinstance(kind, Repeated) else ""
        named = _named(kind.item if isinstance(kind, Repeated) else kind)
        said = one.doc.replace("\\", "\\\\").replace('"', '\\"')
        yield f'    {named} {one.name}{many} [[comment("{said}")]];'
    yield "};"
    yield ""


def _named(kind: Type) -> str:
    if isinstance(kind, Int):
        order = "" if kind.width == 1 else "be " if kind.order == ">" else "le "
        return f"{order}{'s' if kind.signed else 'u'}{8 * kind.width}"
    return kind.label()
