"""Counts with their nouns, for messages: `1 byte`, `2 bytes`, `3 entries`."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
