"""Format values for terminals and JSON."""

from __future__ import annotations

import re
from typing import Any

from logwright.codec.explain import PADDING, SKIPPED, UNEXPLAINED, Node
from logwright.codec.plural import count

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
    """Summarise a structure on one line: the meanings of its fields, its ids, keys and values.

    A structure that only encloses another one, such as a length and an end mark around it, has the summary of that one.
    """
    few = len(node.children) <= _FEW
    texts: list[str] = []
    for child in node.children:
        if child.role in ("length", "checksum") or child.broken or child.kind in WITHOUT:
            continue
        if len(child.meaning) == 1:
            continue  # an end mark, such as B
        if child.kind in ("bytes", "text"):
            enclosing = child.children and child.children[-1].children
            if child.space is None and not enclosing and child.end > child.start:
                texts.append(f"{child.name} {short(child, 28)}")
        elif child.meaning and child.kind != "list":
            labelled = _SAYS_LITTLE.match(child.meaning)
            texts.append(f"{child.name} {child.meaning}" if labelled else child.meaning)
        elif child.kind in ("int", "varint"):
            named = _ID.search(child.name) and child.value is not None and child.value >= 0
            texts += [f"{child.name} {child.value}"] if few or named else []
        elif child.kind == "list" and child.value:
            texts.append(f"{child.name}: {count(int(child.value), 'item')}")
    if not texts:
        inner = [
            each for child in node.children for each in (child, *child.children) if each.kind == "struct"
        ]
        if len(inner) == 1:
            return summary(inner[0], most)
    return cut(", ".join(texts), most)


_FEW = 4
"""Up to this number of fields, a summary includes plain numbers."""
_ID = re.compile(r"(?:offset|_id|zxid|sequence)$")
"""The names of the numbers that identify a frame or a row, in all formats."""
_SAYS_LITTLE = re.compile(r"0x|true$|false$")
"""Meanings that need the name of the field."""


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
