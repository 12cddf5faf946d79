"""LevelDB's `Status`: an error, in LevelDB's own words."""

from __future__ import annotations


class Status(Exception):
    """A status other than OK. `code` is the beginning of `Status::ToString`, the message the rest."""

    code = "Corruption"

    def __init__(self, message: str, more: str | None = None) -> None:
        super().__init__(message if more is None else f"{message}: {more}")

    @property
    def message(self) -> str:
        return str(self.args[0])

    def __str__(self) -> str:
        """Return the text of `Status::ToString`."""
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
    """Parse the text of `Status::ToString`."""
    for kind in (Corruption, NotFound, InvalidArgument, IOFailure):
        if text.startswith(f"{kind.code}: "):
            return kind(text[len(kind.code) + 2 :])
    return Corruption(text)
