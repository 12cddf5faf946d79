"""Descriptions of text files: words and numbers with their separators."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from logwright.codec.describe import Buffer, DescriptionError, Scope, Type

_SPACES = {"\n": rb"\r\n|\r|\n", " ": rb"[ \t\x0b\f]+", ": ": rb":[ \t\n\x0b\f\r]+"}
_ENDS = {end: re.compile(pattern) for end, pattern in _SPACES.items()}
_NUMBER = re.compile(rb"[+-]?[0-9]{1,40}")
_NAMES = {"\n": "a line end", " ": "a space", ": ": "a colon and a space"}


@dataclass(frozen=True)
class Word(Type):
    """A word or a decimal number of `bits`, with its separator: a line end, a space, or a colon and a space.

    The separator is written as given. Reading accepts all spaces and line ends that Java accepts, and the end of the file as a line end.
    """

    end: str = "\n"
    bits: int = 0
    text = True
    min_size = 1

    def pack(self, value: Any, scope: Scope) -> bytes:
        return f"{value}{self.end}".encode()

    def unpack(self, buf: Buffer, at: int, end: int, scope: Scope) -> tuple[Any, int]:
        separator = _ENDS[self.end].search(buf, at, end)
        if at >= end or (separator is None and self.end != "\n"):
            raise DescriptionError(f"expected {self.label()}", at)
        stop, after = (end, end) if separator is None else separator.span()
        word = bytes(buf[at:stop])
        if self.bits:
            number = int(word) if _NUMBER.fullmatch(word) else 1 << self.bits
            if not -(1 << self.bits - 1) <= number < 1 << self.bits - 1:
                raise DescriptionError(f"expected a {self.bits}-bit number, found {word[:80]!r}", at)
            return number, after
        if self.end != "\n" and (b"\n" in word or b"\r" in word):
            raise DescriptionError(f"expected {self.label()}, found a line end", at)
        return word.decode("utf-8", "replace"), after

    def label(self) -> str:
        return f"{f'{self.bits}-bit number' if self.bits else 'text'}, ended by {_NAMES[self.end]}"
