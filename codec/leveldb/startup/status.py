"""LevelDB's `Status`: what went wrong, in its words."""

from __future__ import annotations


class Status(Exception):
    """A status that is not OK. `code` is what `Status::ToString` begins with; the text is the rest of it."""

    code = "Corruption"

    def __init__(self, message: str, more: str | None = None) -> None:
        super().__init__(message if more is None else f"{message}: {more}")

    @property
    def message(self) -> str:
        return str(self.args[0])

    def __str__(self) -> str:
        """As `Status::ToString` has it."""
        return f"{self.code}: {self.message}"


class Corruption(Status):
    pass


class NotFound(Status):
    code = "NotFound"


class InvalidArgument(Status):
    code = "Invalid argument"


class IOFailure(Status):
    """`Status::IOError`."""

    code = "IO error"


def parsed(text: str) -> Status:
    """The status that `Status::ToString` wrote so."""
    for kind in (Corruption, NotFound, InvalidArgument, IOFailure):
        if text.startswith(f"{kind.code}: "):
            return kind(text[len(kind.code) + 2 :])
    return Corruption(text)
