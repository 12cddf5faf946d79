"""Text and numbers as Java has them: UTF-8, whose encoded surrogates Python decodes in another way, and overflowing integers."""

from __future__ import annotations

import codecs
import re

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools
from logwright.codec.columns import contents

_LINE_END = re.compile(rb"\r\n|\r|\n")
_DIGITS = {10: re.compile(r"([+-]?)0*([0-9]{1,19})"), 16: re.compile(r"([+-]?)0*([\da-fA-F]{1,16})")}


def first_line(data: bytes) -> bytes:
    """Return the first line, as `BufferedReader.readLine` ends it."""
    return _LINE_END.split(data, maxsplit=1)[0]


def integer(text: str, bits: int, radix: int = 10) -> int:
    """`Short.parseShort`, `Integer.parseInt` or `Long.parseLong`. Raises `ValueError` with Java's message."""
    digits = _DIGITS[radix].fullmatch(text)
    number = 1 << 63 if digits is None else int(digits[1] + digits[2], radix)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f'For input string: "{text}"' + ("" if radix == 10 else f" under radix {radix}"))
    return number


def int64(number: int) -> int:
    """Return the low 64 bits as a signed number, as Java's `long` overflows."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def java_string(data: bytes) -> str:
    """Return `new String(data, UTF_8)`: like Python's "replace", but one U+FFFD for a surrogate encoded in three bytes."""
    return data.decode("utf-8", "logwright.java")


def java_strings(stored: pa.Array) -> tuple[pa.Array, Bools | None]:
    """Decode a binary column as Java does; also return which values are not valid UTF-8 (None: none). Nulls stay null."""
    if pa.types.is_binary(stored.type):
        data = stored.buffers()[2]
        if data is None or np.frombuffer(data, np.uint8).max(initial=0) < 0x80:  # ASCII
            return stored.view(pa.string()), None
    try:
        text = stored.cast(pa.string())
        text.validate(full=True)
        return text, None
    except pa.ArrowInvalid:
        pass
    strings: list[bytes | None] = []
    wrong = np.zeros(len(stored), np.bool_)
    for i, value in enumerate(stored.to_pylist()):
        text = None if value is None else java_string(value).encode()
        wrong[i] = text != value
        strings.append(text)
    return contents(pa.string(), strings), wrong


def _java_replace(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    data, at = error.object, error.start
    if data[at] == 0xED and at + 1 < len(data) and 0xA0 <= data[at + 1] <= 0xBF:
        third = at + 2 < len(data) and 0x80 <= data[at + 2] <= 0xBF
        return "\ufffd", at + (3 if third else 2)
    return "\ufffd", error.end


codecs.register_error("logwright.java", _java_replace)
