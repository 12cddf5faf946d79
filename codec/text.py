"""Text described like everything else: words, each with what ends it."""

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
    """A word, or a number of `bits`, and what ends it: the rest of a line, up to a space, or up to a colon. Written with just that;
    read with any spaces and line ends that Java takes for such. The end of the file ends a line too."""

    end: str = "\n"
    bits: int = 0
    text = True
    min_size = 1

    def pack(self, value: Any, scope: Scope) -> bytes:
        return f"{value}{self.end}".encode()

    def unpack(self, buf: Buffer, at: int, end: int, scope: Scope) -> tuple[Any, int]:
        found = _ENDS[self.end].search(buf, at, end)
        if at >= end or (found is None and self.end != "\n"):
            raise DescriptionError(f"{self.label()} is expected", at)
        stop, after = (end, end) if found is None else found.span()
        word = bytes(buf[at:stop])
        if self.bits:
            number = int(word) if _NUMBER.fullmatch(word) else 1 << self.bits
            if not -(1 << self.bits - 1) <= number < 1 << self.bits - 1:
                raise DescriptionError(f"a number of {self.bits} bits is expected, found {word[:80]!r}", at)
            return number, after
        if self.end != "\n" and (b"\n" in word or b"\r" in word):
            raise DescriptionError(f"{self.label()} is expected, the line ends before", at)
        return word.decode("utf-8", "replace"), after

    def label(self) -> str:
        return f"{f'number of {self.bits} bits' if self.bits else 'text'}, ended by {_NAMES[self.end]}"
