"""Options with upstream's own property names, defaults and types.

Names are compared without case, `.`, `_` and `-`: `segment.bytes`, `segmentBytes`, `segment_bytes` and `--segment-bytes` are one option
in Python, in Spark and on the command line.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from logwright.codec.fault import UsageError

_IGNORED = str.maketrans("", "", "._-")


@functools.lru_cache(maxsize=1 << 12)
def fold(name: str) -> str:
    """Return the form of an option name that is compared. Every opened file needs those of all declared names again."""
    return name.lower().translate(_IGNORED)


def parse_bool(text: Any) -> bool:
    """Parse true, 1 or yes; false, 0 or no. Raises `ValueError`."""
    if isinstance(text, bool):
        return text
    if str(text).lower() in ("true", "1", "yes"):
        return True
    if str(text).lower() in ("false", "0", "no"):
        return False
    raise ValueError("expected true or false")


def parse_hexadecimal(text: Any) -> int:
    """Parse text as a hexadecimal number, with or without 0x, even if it has decimal digits only (the zxid "100000003")."""
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
    """Parse an integer, optionally with a unit (`64k`, `128MiB`), a `0x` prefix or underscores."""
    if isinstance(text, bool):
        raise ValueError("expected an integer")
    if isinstance(text, int):
        return text
    word = str(text).strip().lower()
    digits = word if word.startswith("0x") else word.rstrip("bkmgi")
    try:
        return int(digits, 16 if digits.startswith("0x") else 10) * _SCALE[word[len(digits) :]]
    except (KeyError, ValueError):
        raise ValueError("expected an integer, optionally with unit k, m or g") from None


def number(name: str, value: Any, low: int = 0) -> int:
    """Check an argument that is a 64-bit integer. Raises `UsageError`."""
    try:
        parsed = parse_int(value)
    except ValueError:
        parsed = None
    if parsed is None or not low <= parsed < 1 << 63:
        small = parsed is None or parsed < low
        advice = f"Expected an integer of {low} or more" if small else "The largest value is 2^63-1"
        raise UsageError(f"{name} is {value!r}", advice=advice)
    return parsed


def flag(name: str, value: Any) -> bool | None:
    """Check an argument that is true, false or absent. Raises `UsageError`."""
    try:
        return None if value is None else parse_bool(value)
    except ValueError:
        raise UsageError(f"{name} is {value!r}", advice="Expected true or false, or leave it out") from None


def word(name: str, value: Any) -> str | None:
    """Check an argument that is text or absent. Raises `UsageError`."""
    if value is None or isinstance(value, str):
        return value
    raise UsageError(f"{name} is text, not {value!r}")


class Verb(StrEnum):
    """An operation that uses options. The values appear in messages."""

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
    COMPACT = "convert with compact"
    WRITE = "write"
    FOLLOW = "spark.read"


DECODES = frozenset({Verb.READ, Verb.VERIFY, Verb.EXPLAIN, Verb.DIFF, Verb.ROUNDTRIP, Verb.REPAIR, Verb.EDIT})
"""The verbs that decode the records of a file."""
ENCODES = frozenset({Verb.WRITE, Verb.ROUNDTRIP})
"""The verbs that encode a whole file."""
STARTS = frozenset({Verb.AS_SYSTEM, Verb.VERIFY, Verb.REPAIR, Verb.REBUILD, Verb.EDIT})
"""The verbs that simulate the start of the real system. All but the first do it to report how the system handles damage."""


@dataclass(frozen=True)
class Option:
    """One option: its upstream name, default, parser, allowed values, and the operations that use it.

    Passing it to any other operation is an error (`readers.usage`).
    """

    name: str
    default: Any
    doc: str
    parse: Callable[[Any], Any] = parse_int
    choices: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None
    narrows: bool = False
    """Whether it selects rows, so that not all are read."""
    verbs: frozenset[Verb] = frozenset()
    """The verbs that use it. Empty: all verbs of the list that declares it."""
    views: tuple[str, ...] = ()
    """The views of a layout, or the tables of a codec, whose rows depend on it. Empty: all."""
    strategies: tuple[str, ...] = ()
    """The strategies of `repair` that use it. Empty: all."""
    secret: bool = False
    """Whether no message may show its value. Parsing it gives an object whose printed form does not show it, and whose `origin` is the text
    that says where the secret is, or None."""

    def read(self, value: Any) -> Any:
        if value is None:
            return self.default
        try:
            parsed = self.parse(value)
        except (TypeError, ValueError) as error:
            shown = "the value" if self.secret else repr(value)
            raise UsageError(
                f"option {self.name}: {shown} is not valid ({error})", advice=f"The option means: {self.doc}"
            ) from None
        if self.choices and parsed not in self.choices:
            raise UsageError(f"option {self.name}: {value!r} is not one of {', '.join(self.choices)}")
        if (self.low is not None and parsed < self.low) or (self.high is not None and parsed > self.high):
            top = "" if self.high is None else f" and at most {self.high}"
            raise UsageError(
                f"option {self.name}: {parsed} is out of range; expected at least {self.low}{top}"
            )
        return parsed


def used_by(
    verbs: Iterable[Verb],
    *options: Option,
    views: tuple[str, ...] | None = None,
    strategies: tuple[str, ...] | None = None,
) -> tuple[Option, ...]:
    """Declare that these verbs, views and strategies use the options."""
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

    def __init__(self, declared: Iterable[Option], values: Mapping[str, Any] | None = None) -> None:
        by_fold = {fold(option.name): option for option in declared}
        self._values = {option.name: option.default for option in by_fold.values()}
        self._given: set[str] = set()
        for name, value in (values or {}).items():
            option = by_fold.get(fold(name))
            if option is None:
                error = UsageError(f"unknown option {name!r}", advice=_nearest(name, by_fold))
                error.unknown, error.known = name, tuple(known.name for known in by_fold.values())
                raise error
            parsed = option.read(value)
            if option.name in self._given and value is not None and parsed != self._values[option.name]:
                raise UsageError(
                    f"option {option.name} is given twice: {self._values[option.name]!r} and {parsed!r}",
                    advice="Different spellings name the same option: leave one out",
                )
            self._values[option.name] = parsed
            if value is not None:
                self._given.add(option.name)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def given(self, name: str) -> bool:
        """Return whether the caller set the option."""
        return name in self._given

    def to_dict(self) -> dict[str, Any]:
        return dict(self._values)

    def passed(self, among: Iterable[Option] | None = None) -> dict[str, Any]:
        """Return the options that the caller set, or those of them that are `among` others."""
        names = self._given if among is None else self._given & {option.name for option in among}
        return {name: self._values[name] for name in names}

    def only(self, declared: Iterable[Option]) -> Options:
        """Return the values of these options. Those that the caller did not set have their defaults."""
        options = tuple(declared)
        return Options(options, self.passed(options))


def _nearest(name: str, known: Mapping[str, Option]) -> str:
    near = difflib.get_close_matches(fold(name), known, n=1, cutoff=0.5)
    if near:
        return f"Did you mean {known[near[0]].name!r}?"
    return (
        f"Known options: {', '.join(sorted(option.name for option in known.values()))}"
        if known
        else "No options are known here"
    )


def sealed(values: Mapping[str, Any], declared: Iterable[Option]) -> Mapping[str, Any]:
    """Return the values with those of secret options parsed, so that no printed form shows them."""
    secret = {fold(option.name): option for option in declared if option.secret}
    if not secret or not any(fold(name) in secret for name in values):
        return values
    return {
        name: secret[fold(name)].read(value) if fold(name) in secret else value
        for name, value in values.items()
    }


def parse_choice(text: Any) -> str:
    """Parse a word that is compared in lower case."""
    return str(text).lower()


def parse_text(text: Any) -> str:
    """Accept any text, a path, or a list, which is joined by commas as in a configuration file. Raises `ValueError`."""
    if isinstance(text, list | tuple):
        return ",".join(map(parse_text, text))
    if isinstance(text, bytes | bytearray | Mapping):
        raise ValueError("expected text")
    return str(text)


@dataclass(frozen=True)
class NamedFile:
    """A file that an option names, with its content."""

    name: str
    data: bytes = field(repr=False)


def _no_files(path: str) -> bytes:
    raise ValueError("no file can be read here")


file_reader: Callable[[str], bytes] = _no_files
"""Returns the content of a file. Set by the readers, since codecs do no I/O."""


def parse_file(value: Any) -> NamedFile:
    """Accept the path of a file, and read it, or a file that has been read."""
    if isinstance(value, NamedFile):
        return value
    name = str(value)
    return NamedFile(name, file_reader(name))
