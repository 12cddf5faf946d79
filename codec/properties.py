"""Parse and write Java property files, as `java.util.Properties` does with bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LETTERS = {value: letter for letter, value in _ESCAPES.items()}
_NAME = re.compile(r"(?:[^\\=: \t\f]++|\\.?)*+", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.?))", re.DOTALL)


def properties(data: bytes, *, strict: bool = False) -> Iterator[tuple[str, str]]:
    """Yield names and values in order. If a name is repeated, the last value counts.

    With `strict`, raise `ValueError` where Java throws: for `\\u` without four hexadecimal digits.
    """
    lines = iter(re.split(r"\r\n|\r|\n", data.decode("latin-1")))
    for line in lines:
        line = line.lstrip(_BLANK)
        if not line or line[0] in "#!":
            continue
        parts = [line]
        while (
            len(line) - len(line.rstrip("\\"))
        ) % 2 == 1:  # an odd number of backslashes: the line continues
            line = next(lines, "").lstrip(_BLANK)
            parts[-1] = parts[-1][:-1]
            parts.append(line)
        line = "".join(parts)
        end = _end_of_name(line)
        value = line[end:].lstrip(_BLANK)
        if value[:1] in ("=", ":"):
            value = value[1:].lstrip(_BLANK)
        yield _unescape(line[:end], strict), _unescape(value, strict)


def _end_of_name(line: str) -> int:
    name = _NAME.match(line)
    assert name is not None
    return name.end()


def _unescape(text: str, strict: bool) -> str:
    def letter(escape: re.Match[str]) -> str:
        number, other = escape.groups()
        if strict and other == "u":
            raise ValueError("Malformed \\uxxxx encoding.")
        return _ESCAPES.get(other, other) if number is None else chr(int(number, 16))

    return _ESCAPE.sub(letter, text)


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
