"""Parse and write Java property files, as `java.util.Properties` does with bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LETTERS = {value: letter for letter, value in _ESCAPES.items()}
_UNICODE = re.compile(r"[0-9a-fA-F]{4}")


def properties(data: bytes, *, strict: bool = False) -> Iterator[tuple[str, str]]:
    """Yield names and values in order. If a name is repeated, the last value counts.

    With `strict`, raise `ValueError` where Java throws: for `\\u` without four hexadecimal digits.
    """
    lines = iter(re.split(r"\r\n|\r|\n", data.decode("latin-1")))
    for line in lines:
        line = line.lstrip(_BLANK)
        if not line or line[0] in "#!":
            continue
        while (
            len(line) - len(line.rstrip("\\"))
        ) % 2 == 1:  # an odd number of backslashes: the line continues
            line = line[:-1] + next(lines, "").lstrip(_BLANK)
        end = _end_of_name(line)
        value = line[end:].lstrip(_BLANK)
        if value[:1] in ("=", ":"):
            value = value[1:].lstrip(_BLANK)
        yield _unescape(line[:end], strict), _unescape(value, strict)


def _end_of_name(line: str) -> int:
    escaped = False
    for i, letter in enumerate(line):
        if not escaped and letter in "=: \t\f":
            return i
        escaped = letter == "\\" and not escaped
    return len(line)


def _unescape(text: str, strict: bool) -> str:
    out, i = [], 0
    while i < len(text):
        letter = text[i]
        i += 1
        if letter == "\\":
            letter = text[i : i + 1]
            i += 1
            number = _UNICODE.match(text, i) if letter == "u" else None
            if strict and letter == "u" and number is None:
                raise ValueError("Malformed \\uxxxx encoding.")
            if number is not None:
                letter, i = chr(int(number[0], 16)), i + 4
            else:
                letter = _ESCAPES.get(letter, letter)
        out.append(letter)
    return "".join(out)


def property_line(name: str, value: str) -> bytes:
    """Return a line as `Properties.store` writes it."""
    return f"{_escape(name, name=True)}={_escape(value, name=False)}\n".encode("ascii")


def _escape(text: str, *, name: bool) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    out = []
    for i in range(0, len(units), 2):
        number = int.from_bytes(units[i : i + 2], "big")
        letter = chr(number)
        if letter in _LETTERS:
            out.append("\\" + _LETTERS[letter])
        elif letter in "\\=:#!" or (letter == " " and (name or i == 0)):
            out.append("\\" + letter)
        else:
            out.append(letter if 0x20 <= number <= 0x7E else f"\\u{number:04X}")
    return "".join(out)
