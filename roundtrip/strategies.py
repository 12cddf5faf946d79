"""Hypothesis strategies for the formats: rows, files built from the description, and damage.

    from logwright.roundtrip import strategies
    @given(strategies.rows("kafka.log"), strategies.options("kafka.log"))

Hypothesis is not a dependency of the package. Without it, importing this module raises an error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from logwright.codec import registry
from logwright.codec.fault import UsageError
from logwright.roundtrip import specimens

try:
    from hypothesis import strategies as st
except ImportError:
    raise ImportError("logwright.roundtrip.strategies needs Hypothesis: pip install hypothesis") from None


Strategy = st.SearchStrategy[Any]
_MODULES = tuple(registry.modules(str(__package__), "strategies"))


def _joined(name: str) -> Mapping[str, Callable[[], Strategy]]:
    """Join a table by codec from `logwright.roundtrip.<system>.strategies` of all systems."""
    return {codec: make for module in _MODULES for codec, make in getattr(module, name).items()}


ROWS, OPTIONS, FILES = _joined("ROWS"), _joined("OPTIONS"), _joined("FILES")
_NAMES: Mapping[str, str] = {
    codec: name for module in _MODULES for codec, name in getattr(module, "NAMES", {}).items()
}


def name_of(codec: str) -> str:
    """Return the name of the codec's test files, from its module's `NAMES` or its first sample."""
    return _NAMES.get(codec) or specimens.samples(codec)[0].name


def rows(codec: str) -> Strategy:
    """Generate tables of rows that the codec encodes. Raises `UsageError` if there is no strategy."""
    return _known(ROWS, codec)()


def options(codec: str) -> Strategy:
    """Generate options for encoding, as a mapping."""
    registry.find(codec)
    return OPTIONS.get(codec, lambda: st.just({}))()


def files(codec: str) -> Strategy:
    """Generate valid files from the description, including variants that our own encoder never writes."""
    return _known(FILES, codec)()


def damaged(codec: str) -> Strategy:
    """Generate files with flipped, zeroed, truncated, inserted, repeated or dropped bytes."""
    return files(codec).flatmap(damage)


def damage(data: bytes) -> Strategy:
    """Apply one to four edits to the bytes."""
    places = st.integers(0, max(0, len(data) - 1))
    edit = st.one_of(
        st.tuples(st.just("flip"), places, st.integers(0, 7)),
        st.tuples(st.just("zero"), places, st.integers(1, 80)),
        st.tuples(st.just("cut"), places, st.just(0)),
        st.tuples(st.just("insert"), places, st.binary(min_size=1, max_size=80)),
        st.tuples(st.just("repeat"), places, st.integers(1, 200)),
        st.tuples(st.just("drop"), places, st.integers(1, 200)),
        st.tuples(
            st.just("put"),
            places,
            st.sampled_from([b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0" * 8]),
        ),
    )
    return st.lists(edit, min_size=1, max_size=4).map(functools.partial(_edited, data))


def _edited(data: bytes, edits: Sequence[tuple[str, int, Any]]) -> bytes:
    for kind, at, content in edits:
        if kind == "flip" and at < len(data):
            data = data[:at] + bytes([data[at] ^ 1 << content]) + data[at + 1 :]
        elif kind == "zero":
            data = data[:at] + bytes(len(data[at : at + content])) + data[at + content :]
        elif kind == "cut":
            data = data[:at]
        elif kind == "insert":
            data = data[:at] + content + data[at:]
        elif kind == "repeat":
            data = data[: at + content] + data[at:]
        elif kind == "drop":
            data = data[:at] + data[at + content :]
        elif kind == "put":
            data = data[:at] + content[: len(data) - at] + data[at + len(content) :]
    return data


def _known(table: Mapping[str, Callable[[], Strategy]], codec: str) -> Callable[[], Strategy]:
    if codec not in table:
        registry.find(codec)
        raise UsageError(f"no strategy for {codec}", advice=f"There are strategies for: {', '.join(table)}")
    return table[codec]
