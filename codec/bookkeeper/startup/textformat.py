"""Read and write the text format of protocol buffers as a bookie does, and raise its exceptions.

Source: `TextFormatReader` of LightProto, the generator of BookKeeper's classes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from logwright.codec.bookkeeper.startup.errors import ILLEGAL_ARGUMENT, JavaError, unchecked

_SPACE = re.compile(rb"(?:[ \t\n\r]|#[^\n]*)*")
_IDENTIFIER = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(rb"[-+]?[0-9.eExX+a-fA-F-]*[uUlL]*")
_ESCAPES = {97: 7, 98: 8, 102: 12, 110: 10, 114: 13, 116: 9, 118: 11, 92: 92, 39: 39, 34: 34, 63: 63}
_ESCAPED = {"\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t", "\\": "\\", "'": "'", '"': '"'}
_QUOTES = b"\"'"
_SPECIAL = {quote: re.compile(re.escape(bytes([quote])) + rb"|\\") for quote in _QUOTES}
"""What ends a run of plain bytes in a string: its quote, or an escape."""
_CLOSING = {ord("{"): ord("}"), ord("<"): ord(">")}


def fields(data: bytes, names: Collection[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the fields of a message: strings with these names, and None for other names. Of several the last one counts.

    Raises `JavaError`.
    """
    reader = _Reader(data)
    closing = _CLOSING.get(reader.next())
    reader.at += closing is not None
    while reader.next() not in (-1, ord("}"), ord(">")):
        name = reader.identifier()
        if name in names:
            if reader.next() not in _CLOSING:
                reader.expect(ord(":"))
            yield name, reader.string().decode("utf-8", "replace")
        else:
            reader.skip_value()
            yield name, None
        reader.optional(b",;")
    if closing is not None:
        reader.expect(closing)


def form(strings: Mapping[str, str]) -> str:
    """Return a message of strings, a line for each."""
    return "".join(f'{name}: "{_escape(text)}"\n' for name, text in strings.items())


def _escape(text: str) -> str:
    return "".join(
        f"\\{_ESCAPED[char]}" if char in _ESCAPED
        else char if " " <= char < "\x7f"
        else "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "replace"))
        for char in text
    )  # fmt: skip


def _error(text: str) -> JavaError:
    return unchecked(ILLEGAL_ARGUMENT, text)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def peek(self) -> int:
        return self.data[self.at] if self.at < len(self.data) else -1

    def next(self) -> int:
        """Skip white space and comments, and return the next byte; -1 at the end."""
        match = _SPACE.match(self.data, self.at)
        assert match is not None
        self.at = match.end()
        return self.peek()

    def expect(self, byte: int) -> None:
        next_byte = self.next()
        if next_byte != byte:
            text = "end of input" if next_byte < 0 else f"'{_char(next_byte)}'"
            raise _error(f"Expected '{chr(byte)}' at position {self.at} but found {text}")
        self.at += 1

    def optional(self, choices: bytes) -> bool:
        next_byte = self.next()
        if next_byte >= 0 and next_byte in choices:
            self.at += 1
            return True
        return False

    def identifier(self) -> str:
        self.next()
        match = _IDENTIFIER.match(self.data, self.at)
        if match is None:
            raise _error(f"Expected identifier at position {self.at}")
        self.at = match.end()
        return match[0].decode()

    def string(self) -> bytes:
        """Read quoted strings, which are joined."""
        self.next()
        out = self._quoted()
        while True:
            end = self.at
            next_byte = self.next()
            if next_byte < 0 or next_byte not in _QUOTES:
                self.at = end
                return out
            out += self._quoted()

    def _quoted(self) -> bytes:
        quote = self.peek()
        if quote < 0:
            raise _error(f"Expected string at position {self.at}")
        if quote not in _QUOTES:
            raise _error(f"Expected '\"' or '\\'' at position {self.at}")
        self.at += 1
        out = bytearray()
        while (end := _SPECIAL[quote].search(self.data, self.at)) is not None:
            out += self.data[self.at : end.start()]
            self.at = end.end()
            if end[0][0] == quote:
                return bytes(out)
            out += self._escaped()
        raise _error("Unterminated string literal")

    def _escaped(self) -> bytes:
        byte = self.peek()
        if byte < 0:
            raise _error("Unterminated escape")
        self.at += 1
        if byte in _ESCAPES:
            return bytes([_ESCAPES[byte]])
        if byte in b"xX":
            digits = self._digits(rb"[0-9a-fA-F]{0,2}")
            if not digits:
                raise _error("Invalid \\x escape")
            return bytes([int(digits, 16)])
        if byte in b"uU":
            count = 4 if byte == ord("u") else 8
            digits = self._digits(b"[0-9a-fA-F]{0,%d}" % count)
            if len(digits) < count:
                raise _error(f"Expected {count} hex digits")
            return chr(min(int(digits, 16), 0x10FFFF)).encode("utf-8", "replace")
        if byte in b"01234567":
            self.at -= 1
            return bytes([int(self._digits(b"[0-7]{1,3}"), 8) & 0xFF])
        raise _error(f"Invalid escape '\\{_char(byte)}'")

    def _digits(self, pattern: bytes) -> bytes:
        match = re.compile(pattern).match(self.data, self.at)
        assert match is not None
        self.at = match.end()
        return match[0]

    def skip_value(self) -> None:
        """Skip the value of an unknown field and the colon before it."""
        next_byte = self.next()
        if next_byte == ord(":"):
            self.at += 1
            next_byte = self.next()
        if next_byte < 0:
            return
        if next_byte in _CLOSING:
            self.at += 1
            while self.next() not in (-1, ord("}"), ord(">")):
                self.identifier()
                self.skip_value()
                self.optional(b",;")
            self.expect(_CLOSING[next_byte])
        elif next_byte == ord("["):
            self.at += 1
            if not self.optional(b"]"):
                self.skip_value()
                while self.optional(b","):
                    self.skip_value()
                self.expect(ord("]"))
        elif next_byte in _QUOTES:
            self.string()
        elif next_byte in b"+-0123456789":
            match = _NUMBER.match(self.data, self.at)
            assert match is not None
            self.at = match.end()
        elif _IDENTIFIER.match(self.data, self.at):
            self.identifier()
        else:
            raise _error(f"Unexpected character '{_char(next_byte)}' at position {self.at}")


def _char(byte: int) -> str:
    """Return a byte as Java converts it to a character: a negative one to the end of the range."""
    return chr(byte if byte < 128 else 0xFF00 | byte)
