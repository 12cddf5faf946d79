"""Make the pages of `docs/formats` from the descriptions: `make docs`. A test fails if they are out of date.

Each codec gets a Markdown page, a Kaitai Struct description (`.ksy`) and an ImHex pattern (`.hexpat`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from format_hexpat import hexpat
from format_ksy import described, ksy

from logwright.codec import registry
from logwright.codec.base import Codec
from logwright.codec.describe import (
    Bytes,
    Content,
    Either,
    Enclosed,
    Field,
    Flags,
    Int,
    Repeated,
    Struct,
    Switch,
    Type,
    structures,
)
from logwright.codec.option import Option
from logwright.codec.table import Table

HOME = Path(__file__).resolve().parent.parent / "docs" / "formats"
_MADE = "<!-- Made from the descriptions in codec/ by `make docs`: change those. -->"


def pages() -> dict[str, str]:
    """Return the content of all files of the folder, by name."""
    out = {"README.md": _index()}
    for codec in registry.codecs():
        out[f"{codec.name}.md"] = _page(codec)
        out[f"{codec.name}.ksy"] = ksy(codec)
        out[f"{codec.name}.hexpat"] = hexpat(codec)
    return out


def write(home: Path = HOME) -> None:
    """Write the folder, and remove other files."""
    home.mkdir(parents=True, exist_ok=True)
    out = pages()
    for path in home.iterdir():
        if path.name not in out:
            path.unlink()
    for name, text in out.items():
        (home / name).write_text(text, encoding="utf-8")


def _index() -> str:
    lines = [
        "# Formats",
        "",
        _MADE,
        "",
        "The formats that logwright reads and writes, byte by byte. `logwright explain FILE` shows the fields of one of",
        "your files. The `.ksy` and `.hexpat` files are for [Kaitai Struct](https://kaitai.io) and",
        "[ImHex](https://imhex.werwolv.net). They treat compressed content as bytes, and also LevelDB records that span several",
        "physical records. For ZooKeeper's snapshots they describe uncompressed ones.",
        "",
        "| codec | file | structures | |",
        "|---|---|---|---|",
    ]
    for codec in registry.codecs():
        names = ", ".join(struct.name for struct in described(codec))
        more = " ".join(f"[{suffix}]({codec.name}.{suffix})" for suffix in ("ksy", "hexpat"))
        lines.append(f"| [{codec.name}]({codec.name}.md) | {codec.title} | {names} | {more} |")
    return "\n".join(lines) + "\n"


def _page(codec: Codec) -> str:
    blocks = [f"# {codec.name}", _MADE, f"{codec.title}."]
    structs = list(structures(described(codec)))
    blocks.append("## Bytes")
    for item in structs:
        blocks += _structure(item)
    blocks.append("## Tables")
    taken = {item.name for item in structs}
    for table in codec.tables.values():
        blocks += _table(table, f"{table.name} (table)" if table.name in taken else table.name)
    if codec.options:
        blocks += ["## Options", _options(codec.options)]
    return "\n\n".join(blocks) + "\n"


def _structure(struct: Struct) -> Iterator[str]:
    yield f"### {struct.name}"
    if struct.doc or struct.source:
        yield " ".join([struct.doc, f"Upstream: `{struct.source}`." if struct.source else ""]).strip()
    rows = ["| offset | field | type | meaning |", "|---:|---|---|---|"]
    at: int | None = 0
    bits: list[str] = []
    for field in struct.fields:
        where = "" if at is None else str(at)
        rows.append(f"| {where} | `{field.name}` | {_type(field.type)} | {_description(field)} |")
        size = field.type.min_size if field.type.min_size == field.type.max_size and not field.size else None
        at = None if at is None or size is None else at + size
        if isinstance(field.type, Flags):
            bits += ["", f"Bits of `{field.name}`, from the lowest:", "", *_bits(field.type)]
    yield "\n".join(rows + bits)


def _bits(flags: Flags) -> Iterator[str]:
    yield "| bits | name | meaning |"
    yield "|---|---|---|"
    for bit in flags.bits:
        where = str(bit.low) if bit.count == 1 else f"{bit.low}..{bit.low + bit.count - 1}"
        values = ", ".join(f"{number} {name}" for number, name in (bit.values or {}).items())
        yield f"| {where} | `{bit.name}` | {'; '.join(item for item in (_cell(bit.doc), values) if item)} |"


def _type(kind: Type) -> str:
    if isinstance(kind, Switch):
        return "; ".join(f"{_keys(kind.keys(case))}: {_type(case)}" for case in kind.types)
    if isinstance(kind, Either):
        return f"{_type(kind.first)}, or if that does not fit, {_type(kind.second)}"
    if isinstance(kind, Struct):
        return f"[{kind.name}](#{kind.name.lower()})"
    if isinstance(kind, Repeated):
        by = (
            kind.count.label()
            if isinstance(kind.count, Type)
            else f"`{kind.count}`"
            if kind.count != "rest"
            else ""
        )
        many = f", repeated, count {by}" if by else ", repeated to the end"
        if kind.null is not None:
            many += f" ({kind.null}: null)"
        if kind.until is not None:
            many = f", repeated until {kind.until.doc}"
        return f"{_type(kind.item)}{many}"
    if isinstance(kind, Enclosed):
        return f"{_type(kind.item)}, length {kind.length.label()}"
    if isinstance(kind, Bytes) and isinstance(kind.length, str) and kind.length != "rest":
        return f"bytes, length `{kind.length}`"
    return kind.label()


def _description(field: Field) -> str:
    parts = [_cell(field.doc)]
    if field.only is not None:
        parts.append(f"always {field.only.hex(' ') if isinstance(field.only, bytes) else field.only}")
    if isinstance(field.type, Int) and field.type.values:
        parts.append(", ".join(f"{number} {name}" for number, name in field.type.values.items()))
    if isinstance(field.type, Int) and field.type.unit == "ms":
        parts.append("milliseconds since 1970")
    if field.checksum is not None:
        upto = (
            f"to `{field.until}`"
            if field.until
            else "to the end of the structure, or to the checksum if it comes later"
        )
        parts.append(f"covers the bytes from `{field.checksum[1]}` {upto}")
    kind = getattr(field.type, "item", field.type)
    if isinstance(kind, Switch):
        parts.append(f"selected by `{kind.on}`")
    if field.size:
        parts.append(f"size `{field.size}`")
    if field.points is not None:
        parts.append(f"points to [{field.points.to}](#{field.points.to.lower()})")
    if field.holds is not None:
        parts.append(f"contains {_type(field.holds.kind)}{''.join(_when(field.holds))}")
    return "; ".join(item for item in parts if item)


def _keys(keys: Sequence[int] | None) -> str:
    """Format the values of a case."""
    return "else" if keys is None else "/".join(map(str, keys))


def _when(holds: Content) -> Iterator[str]:
    """Yield the conditions under which bytes contain a structure plainly or compressed."""
    if holds.when:
        yield f" if `{holds.when}`"
    if holds.packed:
        yield f"{',' if holds.when else ''} compressed if `{holds.packed}`"


def _table(table: Table, heading: str) -> Iterator[str]:
    yield f"### {heading}"
    if table.doc:
        yield table.doc
    rows = ["| column | type | | meaning |", "|---|---|---|---|"]
    for column in table.columns:
        kind = "detail" if column.detail else "core"
        rows.append(f"| `{column.name}` | {_cell(str(column.type))} | {kind} | {_cell(column.doc)} |")
    yield "\n".join(rows)


def _options(options: Sequence[Option]) -> str:
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for option in options:
        choices = f" One of {', '.join(option.choices)}." if option.choices else ""
        rows.append(
            f"| `{option.name}` | {'' if option.default is None else option.default} | {_cell(option.doc)}{choices} |"
        )
    return "\n".join(rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


if __name__ == "__main__":
    write()
