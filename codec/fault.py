"""Damage as data, and the errors people see.

A `Fault` is a value: a place, a size, a kind. Codecs return faults, readers decide by mode whether to raise, and the
report keeps all of them. Errors derive from `LogwrightError`; each is also the builtin that a caller would expect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """What is wrong. A small closed set: every codec of every system speaks with these words."""

    TRUNCATED = "truncated"
    CHECKSUM = "checksum mismatch"
    LENGTH = "bad length"
    MAGIC = "bad magic or version"
    ORDER = "bad order"
    PAYLOAD = "bad payload"
    LINK = "missing link to another file"
    PADDING = "unexpected padding"
    UNSUPPORTED = "unsupported"
    """No damage: the checksum is right, and the version, type or attribute is not known here. Repair keeps such bytes or refuses."""


class Severity(StrEnum):
    """How bad it is. Only `ERROR` makes a report not ok: preallocated zeros and the torn tail of a running system don't."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Fault:
    """One damaged region of one file.

    `offset` and `length` are bytes of the file. `system` says what the real system would do on meeting it, `lost` what is
    gone in the system's own words (INTERFACE: `{"first_offset": ..., "last_offset": ...}`), `rows_lost` is None when unknown.
    """

    codec: str
    offset: int
    length: int
    kind: Kind
    detail: str
    severity: Severity = Severity.ERROR
    system: str = ""
    rows_lost: int | None = None
    lost: Mapping[str, Any] = field(default_factory=dict)

    @property
    def stops(self) -> bool:
        """Whether mode `FAILFAST` raises: rows are missing or wrong, or can't be read here."""
        return self.severity is Severity.ERROR or self.kind is Kind.UNSUPPORTED

    def moved(self, by: int) -> Fault:
        """The same fault with its place counted from elsewhere."""
        return replace(self, offset=self.offset + by)

    def to_dict(self) -> dict[str, Any]:
        return {
            "offset": self.offset,
            "length": self.length,
            "kind": str(self.kind),
            "severity": str(self.severity),
            "detail": self.detail,
            "rows_lost": self.rows_lost,
            "lost": dict(self.lost),
            **({"system": self.system} if self.system else {}),
        }


def join_lost(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is lost in two places (`Fault.lost`) as one range. Keys of `other` come after those of `one`."""
    out = {**other, **one}
    for name in one.keys() & other.keys():
        if name.startswith("first_"):
            out[name] = min(one[name], other[name])
        elif name.startswith("last_"):
            out[name] = max(one[name], other[name])
        elif name == "largest":
            out[name] = other[name]
    return out


class LogwrightError(Exception):
    """The root of all errors that logwright raises on purpose.

    One paragraph: where (path, byte offset), what was expected and found, and what to do next.
    """

    def __init__(
        self, message: str, *, path: str | None = None, offset: int | None = None, advice: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.offset = offset
        self.advice = advice

    def __str__(self) -> str:
        where = "" if self.path is None else f"{self.path}: "
        if self.offset is not None:
            where += f"at byte {self.offset}: "
        text = f"{where}{self.message}"
        end = "" if text.endswith((".", "!", "?")) else "."
        return f"{text}{end} {self.advice}" if self.advice else text

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_error, (type(self), self.message, self.__dict__)


def _rebuild_error(kind: type[LogwrightError], message: str, state: dict[str, Any]) -> LogwrightError:
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class DamageError(LogwrightError, ValueError):
    """The bytes are not what the format says (mode `FAILFAST`). `.fault` is the fault."""

    fault: Fault | None = None

    @classmethod
    def of(cls, fault: Fault, path: str | None) -> DamageError | UnsupportedError:
        if fault.kind is Kind.UNSUPPORTED:
            return UnsupportedError.of(fault, path)
        error = cls(
            f"{fault.kind}: {fault.detail} ({fault.length} bytes of {fault.codec})",
            path=path,
            offset=fault.offset,
            advice="See all damage with `logwright verify`, or read what is sound with mode=PERMISSIVE or DROPMALFORMED",
        )
        error.fault = fault
        return error


class UsageError(LogwrightError, ValueError):
    """What was asked can't be: an unknown option, column, view or codec, data of the wrong type."""

    unknown: str | None = None
    """An option that is unknown, as it was given."""
    known: tuple[str, ...] = ()
    """Where one is unknown, those that are known."""


class UnsupportedError(LogwrightError, NotImplementedError):
    """A legal file of a version that is recognised but not read yet. `.fault` is the place, where there is one."""

    fault: Fault | None = None

    @classmethod
    def of(cls, fault: Fault, path: str | None) -> UnsupportedError:
        error = cls(
            f"{fault.kind}: {fault.detail} ({fault.length} bytes of {fault.codec})",
            path=path,
            offset=fault.offset,
            advice="Read it with the program that wrote it, or read the rest with mode=PERMISSIVE or DROPMALFORMED",
        )
        error.fault = fault
        return error


class NotFoundError(LogwrightError, FileNotFoundError):
    """The path does not exist."""


class AccessError(LogwrightError, PermissionError):
    """The operating system said no."""


class ExistsError(LogwrightError, FileExistsError):
    """The target is there already, and the mode does not allow to touch it."""


class BusyError(LogwrightError, BlockingIOError):
    """The real system, or another writer, holds the lock of the target."""


class StorageError(LogwrightError, OSError):
    """The disk or file system failed: full, read error, no such operation."""


class UnreadableError(StorageError):
    """The disk can't read `[offset, offset + length)` of a file, as far as that was found out. What lies before can be read."""

    length: int = 0

    @classmethod
    def of(cls, offset: int, length: int, why: str, path: str | None) -> UnreadableError:
        error = cls(
            f"the disk can't read {length} bytes ({why})",
            path=path,
            offset=offset,
            advice="Read what is sound with mode=PERMISSIVE or DROPMALFORMED. Better, copy the disk with ddrescue before it "
            "gets worse, and read the copy with option ddrescue.map",
        )
        error.length = length
        return error

    @property
    def start(self) -> int:
        """Where the bytes begin that can't be read."""
        return self.offset or 0

    @property
    def stop(self) -> int:
        """Where they end."""
        return self.start + self.length

    @property
    def detail(self) -> str:
        """For a fault, whose place is that of the frame."""
        return f"{self.message} at byte {self.start}"

    def fault(self, codec: str, offset: int | None = None) -> Fault:
        """As damage of a file, from `offset` on, where the frame starts that it is in."""
        start = self.start if offset is None else offset
        system = "it gets the same error from the disk"
        return Fault(codec, start, self.stop - start, Kind.PAYLOAD, self.detail, system=system)


class DamageWarning(UserWarning):
    """What was read is not all that was there, or not all is well with it; the text is that of the report."""
