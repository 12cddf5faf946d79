"""Faults, which describe damage as values, and the exceptions.

Codecs return faults. Readers raise them or not, depending on the mode, and reports list them all. Every exception derives from
`LogwrightError` and from the builtin exception that a caller would expect.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from logwright.codec import plural


class Kind(StrEnum):
    """The kind of a fault. All codecs share this closed set."""

    TRUNCATED = "truncated"
    CHECKSUM = "checksum mismatch"
    LENGTH = "bad length"
    MAGIC = "bad magic or version"
    ORDER = "bad order"
    PAYLOAD = "bad payload"
    LINK = "missing link to another file"
    PADDING = "unexpected padding"
    UNSUPPORTED = "unsupported"
    """Not damage: the checksum matches, but the version, type or attribute is unknown. Repair keeps such bytes or fails."""


class Severity(StrEnum):
    """The severity of a fault. Only `ERROR` fails a report: preallocated zeros and the torn tail of a running system do not."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Fault:
    """One damaged range of one file, in bytes.

    Without a `detail` the range is the regular end of a file, which reports do not mention. `system` says what the real system does with it.
    `lost` identifies the lost rows in the system's own terms (`{"first_offset": ..., "last_offset": ...}`); `rows_lost` is None if unknown.
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
        """Whether mode `FAILFAST` raises: rows are missing, wrong or not supported."""
        return self.severity is Severity.ERROR or self.kind is Kind.UNSUPPORTED

    @property
    def is_gap(self) -> bool:
        """Whether rows are missing of which no byte is left."""
        return bool(self.severity is Severity.ERROR and self.lost and not self.length and self.rows_lost != 0)

    @property
    def sentence(self) -> str:
        """The kind and the detail. The kind is omitted if the detail has it."""
        return self.detail if str(self.kind) in self.detail else f"{self.kind}: {self.detail}"

    @property
    def size(self) -> str:
        """The number of damaged bytes and the format; the format alone if the fault has no bytes."""
        return f"{plural.count(self.length, 'byte')} of {self.codec}" if self.length else self.codec

    def moved(self, by: int) -> Fault:
        """Return the fault with its offset moved."""
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
            "system": self.system or None,
        }


def join_lost(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Join the lost rows of two faults (`Fault.lost`) to one range. The rows of `second` follow those of `first`."""
    out = {**second, **first}
    for name in first.keys() & second.keys():
        if None in (first[name], second[name]):
            out[name] = None
        elif name.startswith("first_"):
            out[name] = min(first[name], second[name])
        elif name.startswith("last_"):
            out[name] = max(first[name], second[name])
        elif name == "largest":
            out[name] = second[name]
    return out


class LogwrightError(Exception):
    """The base class of all exceptions that logwright raises on purpose.

    The text is one paragraph: path and byte offset, what was expected and found, and what to do next.
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
        fault = getattr(self, "fault", None)
        # A fault of a directory, or of a file as such, has no bytes.
        placeless = isinstance(fault, Fault) and not fault.offset and not fault.length
        if self.offset is not None and not placeless:
            where += f"at byte {self.offset}: "
        return where + self.reason

    @property
    def reason(self) -> str:
        """The text without the place."""
        # The message may quote data.
        text = "\n".join(map(plural.printable, self.message.replace("\t", " ").split("\n")))
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
    """The bytes do not match the format (mode `FAILFAST`). `.fault` is the fault."""

    fault: Fault | None = None

    @classmethod
    def of(cls, fault: Fault, path: str | None) -> DamageError | UnsupportedError:
        if fault.kind is Kind.UNSUPPORTED:
            return UnsupportedError.of(fault, path)
        error = cls(
            f"{fault.sentence} ({fault.size})",
            path=path,
            offset=fault.offset,
            advice="List all damage with `logwright verify`, or read the undamaged rows with mode=PERMISSIVE or DROPMALFORMED (--mode)",
        )
        error.fault = fault
        return error


class UsageError(LogwrightError, ValueError):
    """An invalid request: an unknown option, column, view or codec, or data of the wrong type."""

    unknown: str | None = None
    """An unknown option."""
    known: tuple[str, ...] = ()
    """The known options, if one is unknown."""


def did_you_mean(
    name: object, known: Iterable[str], *, cutoff: float = 0.6, otherwise: str = "Valid values"
) -> str:
    """Return the advice about an unknown name: the known one that is most similar, or all of them."""
    names = list(dict.fromkeys(known))
    lower = {str(each).lower(): each for each in names}
    near = difflib.get_close_matches(str(name).lower(), lower, n=1, cutoff=cutoff)
    return f"Did you mean {str(lower[near[0]])!r}?" if near else f"{otherwise}: {', '.join(names)}"


class UnsupportedError(LogwrightError, NotImplementedError):
    """A valid file of a version that is recognised but not supported. `.fault` is the fault, if there is one."""

    fault: Fault | None = None

    @classmethod
    def of(cls, fault: Fault, path: str | None) -> UnsupportedError:
        error = cls(
            f"{fault.sentence} ({fault.size})",
            path=path,
            offset=fault.offset,
            advice="Read it with the program that wrote it, or read the rest with mode=PERMISSIVE or DROPMALFORMED (--mode)",
        )
        error.fault = fault
        return error


class MissingPackageError(UnsupportedError):
    """An optional package is not installed, so a part of the files cannot be read."""


class NotFoundError(LogwrightError, FileNotFoundError):
    """The path does not exist."""


class AccessError(LogwrightError, PermissionError):
    """The operating system denied access."""


class ExistsError(LogwrightError, FileExistsError):
    """The target exists, and the mode does not allow changing it."""


class BusyError(LogwrightError, BlockingIOError):
    """The real system, or another writer, holds the lock of the target."""


class StorageError(LogwrightError, OSError):
    """The disk or file system failed: full, read error, unsupported operation."""


class UnreadableError(StorageError):
    """The disk cannot read at least `[offset, offset + length)` of a file. The bytes before can be read."""

    length: int = 0

    @classmethod
    def of(cls, offset: int, length: int, why: str, path: str | None) -> UnreadableError:
        error = cls(
            f"the disk cannot read {plural.count(length, 'byte')} ({why})",
            path=path,
            offset=offset,
            advice="Read the undamaged rows with mode=PERMISSIVE or DROPMALFORMED. Better, copy the disk with ddrescue before it "
            "gets worse, and read the copy with option ddrescue.map",
        )
        error.length = length
        return error

    @classmethod
    def too_large(cls, size: int, limit: int, path: str | None) -> UnreadableError:
        """Return the error of a file of `size` bytes of which only the first `limit` are read."""
        error = cls(
            f"the file has {size} bytes, at most {limit} are read",
            path=path,
            offset=limit,
            advice="Files of this kind are small: compare the size with those of other files, and cut the file if it has only zeros there",
        )
        error.length = size - limit
        return error

    @property
    def start(self) -> int:
        """The start of the unreadable range."""
        return self.offset or 0

    @property
    def stop(self) -> int:
        """The end of the unreadable range."""
        return self.start + self.length

    @property
    def detail(self) -> str:
        """The detail of a fault whose offset is that of the frame."""
        return f"{self.message} at byte {self.start}"

    def fault(self, codec: str, offset: int | None = None) -> Fault:
        """Return the fault from `offset` on, the start of the frame that contains the range."""
        start = self.start if offset is None else offset
        system = "it gets the same error from the disk"
        return Fault(codec, start, self.stop - start, Kind.PAYLOAD, self.detail, system=system)


class DamageWarning(UserWarning):
    """Rows are missing or damaged. The text is that of the report."""
