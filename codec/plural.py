"""Parts of messages: counts with their nouns (`1 byte`, `2 bytes`, `3 entries`), and text from data."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"


def printable(text: str) -> str:
    """Return text with escapes instead of control characters, which data may contain and a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
