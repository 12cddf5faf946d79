"""Values as people and programs see them."""

from __future__ import annotations

from typing import Any

from logwright.codec.explain import PADDING, SKIPPED, UNEXPLAINED, Node

WITHOUT = ("struct", PADDING, SKIPPED, UNEXPLAINED)
"""Kinds of nodes whose bytes say all that there is to say of a value."""
_WIDEST = (1 << 53) - 1
"""A larger number is no number in JavaScript, and in much else that reads JSON."""


def plain(value: Any) -> Any:
    """For JSON: bytes as text where they are, else as `{"$hex": ...}`, as everywhere."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"$hex": value.hex()}
    return value


def short(node: Node, most: int = 60) -> str:
    """The value of a field on one line. Nothing but printable characters, whatever the bytes."""
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
    """What is in a structure, on one line: what its fields mean, and its keys and values."""
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
"""Of a structure with no more fields, numbers are told that mean nothing more."""


def of_bytes(value: bytes, most: int = 60) -> str:
    """Text in quotes where all of it is printable, else hexadecimal."""
    if not value:
        return '""'
    head = value[: 4 * most]
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        # Cut in the middle of a character, it is text all the same.
        text = head[: error.start].decode() if len(head) < len(value) and error.start >= len(head) - 3 else ""
    if text and (text.isprintable() or all(char.isprintable() or char in "\t\n\r" for char in text)):
        return cut(quoted(text) if len(head) == len(value) else quoted(text)[:-1], most)
    return cut(f"0x{value[:most].hex()}", most)


def quoted(text: str) -> str:
    """In quotes, without anything that a terminal would take for a command."""
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


def safe(text: str) -> str:
    """A line of prose that may have bytes of a file in it, without control characters."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
