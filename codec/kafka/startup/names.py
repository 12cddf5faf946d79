"""Parse the numbers in file names as the broker does. Source: `LogFileUtils.offsetFromFileName`."""

from __future__ import annotations

import re

from logwright.codec.kafka.startup.errors import BrokerError

_LONG = re.compile(r"[+-]?[0-9]+")


def number_of(name: str) -> int | None:
    """Return the number before the first dot; None without a dot. Raises `BrokerError` if it is not a 64-bit number."""
    prefix, dot, _ = name.partition(".")
    return long_of(prefix) if dot else None


def long_of(text: str) -> int:
    """Return a number as `Long.parseLong` does. Raises `BrokerError`."""
    if not _LONG.fullmatch(text) or not -(1 << 63) <= int(text) < 1 << 63:
        raise BrokerError(f'For input string: "{text}"', "java.lang.NumberFormatException")
    return int(text)


def offset_of(name: str) -> int:
    """Return the number of a file whose name ends in one of Kafka's suffixes."""
    number = number_of(name)
    assert number is not None  # all suffixes have a dot
    return number
