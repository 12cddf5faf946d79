"""Options: upstream's own property names, defaults and types, each declared once.

Names are compared without regard to case, `.`, `_` and `-`, so that `segment.bytes`, `segmentBytes`, `segment_bytes` and
`--segment-bytes` are one option in Python, on the command line and in Spark.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from logwright.codec.fault import UsageError

_IGNORED = str.maketrans("", "", "._-")


def fold(name: str) -> str:
    """The form in which option names are compared."""
    return name.lower().translate(_IGNORED)


@functools.lru_cache(maxsize=1 << 12)
def _folded(name: str) -> str:
    """The same of an upstream's name, of which there are not many: each file that is opened has its options."""
    return fold(name)


def parse_bool(text: Any) -> bool:
    """true, 1 or yes; false, 0 or no. Raises `ValueError` for all else."""
    if isinstance(text, bool):
        return text
    if str(text).lower() in ("true", "1", "yes"):
        return True
    if str(text).lower() in ("false", "0", "no"):
        return False
    raise ValueError("expected true or false")


def parse_hexadecimal(text: Any) -> int:
    """A number that people write in hexadecimal, like a zxid: text is that, with 0x or without it, also when it is digits alone
    ("100000003" as in a file's name)."""
    if isinstance(text, bool):
        raise ValueError("expected a number like 0x1f")
    if isinstance(text, int):
        return text
    word = str(text).strip()
    try:
        return int(word, 16)
    except ValueError:
        raise ValueError("expected a number like 0x1f") from None


_SCALE = {
    "": 1,
    "b": 1,
    "k": 1 << 10,
    "kb": 1 << 10,
    "kib": 1 << 10,
    "m": 1 << 20,
    "mb": 1 << 20,
    "mib": 1 << 20,
}
_SCALE |= {"g": 1 << 30, "gb": 1 << 30, "gib": 1 << 30}


def parse_int(text: Any) -> int:
    """An integer; sizes may carry a unit (`64k`, `128MiB`) and a `0x` prefix, underscores are allowed."""
    if isinstance(text, bool):
        raise ValueError("expected an integer")
    if isinstance(text, int):
        return text
    word = str(text).strip().lower()
    digits = word if word.startswith("0x") else word.rstrip("bkmgi")
    try:
        return int(digits, 16 if digits.startswith("0x") else 10) * _SCALE[word[len(digits) :]]
    except (KeyError, ValueError):
        raise ValueError("expected an integer, with k, m or g at will") from None


def number(name: str, value: Any, low: int = 0) -> int:
    """An argument that is a number, in 64 bits. Raises `UsageError`."""
    try:
        found = parse_int(value)
    except ValueError:
        found = None
    if found is None or not low <= found < 1 << 63:
        advice = (
            f"It is a whole number, {low} or more"
            if found is None or found < low
            else "The largest is 2^63-1"
        )
        raise UsageError(f"{name} is {value!r}", advice=advice)
    return found


def flag(name: str, value: Any) -> bool | None:
    """An argument that is true, false or not given. Raises `UsageError`."""
    try:
        return None if value is None else parse_bool(value)
    except ValueError:
        raise UsageError(f"{name} is {value!r}", advice="It is true or false, or left away") from None


def word(name: str, value: Any) -> str | None:
    """An argument that is text or not given. Raises `UsageError`."""
    if value is None or isinstance(value, str):
        return value
    raise UsageError(f"{name} is text, not {value!r}")


class Verb(StrEnum):
    """An operation that an option can belong to. The values are for messages."""

    READ = "read"
    AS_SYSTEM = "read with mode=AS_SYSTEM"
    VERIFY = "verify"
    INSPECT = "inspect"
    EXPLAIN = "explain"
    DIFF = "diff by frames"
    DIFF_FILES = "diff by files"
    ROUNDTRIP = "roundtrip"
    REPAIR = "repair"
    REBUILD = "rebuild"
    EDIT = "edit"
    WRITE = "write"
    FOLLOW = "spark.read"


DECODES = frozenset({Verb.READ, Verb.VERIFY, Verb.EXPLAIN, Verb.DIFF, Verb.ROUNDTRIP, Verb.REPAIR, Verb.EDIT})
"""The verbs that decode the records of a file."""
ENCODES = frozenset({Verb.WRITE, Verb.ROUNDTRIP})
"""The verbs that encode a whole file."""
STARTS = frozenset({Verb.AS_SYSTEM, Verb.VERIFY, Verb.REPAIR, Verb.REBUILD, Verb.EDIT})
"""The verbs that simulate the start of the real system. All but the first do so to report what it would do with damage."""


@dataclass(frozen=True)
class Option:
    """One option: its upstream name, default, how to read it from text, and the values allowed.

    A declaration also says what uses the option. An option that is given to anything else is refused (`readers.usage`).
    """

    name: str
    default: Any
    doc: str
    parse: Callable[[Any], Any] = parse_int
    choices: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None
    narrows: bool = False
    """Whether it says which rows are read: what is read with it is not all there is."""
    verbs: frozenset[Verb] = frozenset()
    """The verbs that use it. Empty: all verbs of the list that declares it."""
    views: tuple[str, ...] = ()
    """The views of a layout, or the tables of a codec, whose rows depend on it. Empty: all."""
    strategies: tuple[str, ...] = ()
    """The strategies of `repair` that use it. Empty: all."""

    def read(self, value: Any) -> Any:
        if value is None:
            return self.default
        try:
            parsed = self.parse(value)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"option {self.name}: {value!r} is not valid ({error})", advice=self.doc
            ) from None
        if self.choices and parsed not in self.choices:
            raise UsageError(f"option {self.name}: {value!r} is none of {', '.join(self.choices)}")
        if (self.low is not None and parsed < self.low) or (self.high is not None and parsed > self.high):
            top = "" if self.high is None else f" and at most {self.high}"
            raise UsageError(
                f"option {self.name}: {parsed} is out of range, at least {self.low}{top} is needed"
            )
        return parsed


def used_by(
    verbs: Iterable[Verb],
    *options: Option,
    views: tuple[str, ...] | None = None,
    strategies: tuple[str, ...] | None = None,
) -> tuple[Option, ...]:
    """Declare options for these verbs, and these views of reading."""
    return tuple(
        replace(
            option,
            verbs=frozenset(verbs),
            views=option.views if views is None else views,
            strategies=option.strategies if strategies is None else strategies,
        )
        for option in options
    )


class Options:
    """The values of a set of options, by upstream name: `options["segment.bytes"]`. Immutable, picklable."""

    def __init__(self, declared: Iterable[Option], given: Mapping[str, Any] | None = None) -> None:
        by_fold = {_folded(option.name): option for option in declared}
        self._values = {option.name: option.default for option in by_fold.values()}
        self._given: set[str] = set()
        for name, value in (given or {}).items():
            option = by_fold.get(fold(name))
            if option is None:
                error = UsageError(f"unknown option {name!r}", advice=_nearest(name, by_fold))
                error.unknown, error.known = name, tuple(one.name for one in by_fold.values())
                raise error
            read = option.read(value)
            if option.name in self._given and value is not None and read != self._values[option.name]:
                raise UsageError(
                    f"option {option.name} is given twice: {self._values[option.name]!r} and {read!r}",
                    advice="Its spellings are one option: leave one away",
                )
            self._values[option.name] = read
            if value is not None:
                self._given.add(option.name)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def given(self, name: str) -> bool:
        """Whether the caller said it (rather than the default being used)."""
        return name in self._given

    def to_dict(self) -> dict[str, Any]:
        return dict(self._values)


def _nearest(name: str, known: Mapping[str, Option]) -> str:
    near = difflib.get_close_matches(fold(name), known, n=1, cutoff=0.5)
    if near:
        return f"Did you mean {known[near[0]].name!r}?"
    return (
        f"Known here: {', '.join(sorted(option.name for option in known.values()))}"
        if known
        else "None are known here"
    )


def parse_choice(text: Any) -> str:
    """A word, compared in lower case."""
    return str(text).lower()


def parse_text(text: Any) -> str:
    """Any text, as it is."""
    return str(text)
