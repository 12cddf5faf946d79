"""Format values for terminals and JSON."""

from __future__ import annotations

from typing import Any

from logwright.codec.explain import PADDING, SKIPPED, UNEXPLAINED, Node

WITHOUT = ("struct", PADDING, SKIPPED, UNEXPLAINED)
"""Kinds of nodes whose value is fully shown by their bytes."""
_WIDEST = (1 << 53) - 1
"""Larger integers lose precision in JavaScript and many JSON parsers."""


def plain(value: Any) -> Any:
    """Convert a value for JSON: bytes become text if valid UTF-8, else `{"$hex": ...}`."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"$hex": value.hex()}
    return value


def short(node: Node, most: int = 60) -> str:
    """Format the value of a field on one line of printable characters."""
    value = node.value
    if node.kind in WITHOUT or (value is None and not node.children):
        return ""
    if node.kind == "list":
        return ""
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return of_bytes(value, most)
    if isinstance(value, str):
        return cut(quoted(value), most)
    if node.role == "checksum":
        return f"{value:#010x}"
    return str(value)


def summary(node: Node, most: int = 110) -> str:
    """Summarise a structure on one line: the meanings of its fields, its keys and values."""
    few = len(node.children) <= _FEW
    texts: list[str] = []
    for child in node.children:
        if child.role in ("length", "checksum") or child.broken or child.kind in WITHOUT:
            continue
        if child.kind in ("bytes", "text"):
            if child.space is None and not (child.children and child.children[-1].children):
                texts.append(f"{child.name} {short(child, 28)}")
        elif child.meaning and child.kind != "list":
            texts.append(child.meaning)
        elif (child.kind == "list" and child.value) or (few and child.kind in ("int", "varint")):
            texts.append(f"{child.name} {child.value}")
    return cut(", ".join(texts), most)


_FEW = 4
"""Up to this number of fields, a summary includes plain numbers."""


def of_bytes(value: bytes, most: int = 60) -> str:
    """Format bytes as quoted text if printable, else in hexadecimal."""
    if not value:
        return '""'
    head = value[: 4 * most]
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        # Text may be truncated in the middle of a character.
        text = head[: error.start].decode() if len(head) < len(value) and error.start >= len(head) - 3 else ""
    if text and (text.isprintable() or all(char.isprintable() or char in "\t\n\r" for char in text)):
        return cut(quoted(text) if len(head) == len(value) else quoted(text)[:-1], most)
    return cut(f"0x{value[:most].hex()}", most)


def quoted(text: str) -> str:
    """Quote text and escape control characters."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    out = []
    for char in text:
        if char in '"\\':
            out.append(f"\\{char}")
        elif char.isprintable():
            out.append(char)
        else:
            out.append(char.encode("unicode_escape").decode())
    return f'"{"".join(out)}"'


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
