"""The I/O that codecs need of their surroundings. Codecs do none themselves: `logwright.readers` provides it when it is imported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

from logwright.codec.fault import UsageError


class Spill(Protocol):
    """A temporary file for data that does not fit in memory."""

    def append(self, data: Any) -> int:
        """Append bytes, and return their position."""
        ...

    def read(self, offset: int, length: int) -> bytes: ...


class Host(Protocol):
    """The surroundings of the codecs."""

    def read_secret(self, reference: str) -> bytes:
        """Return the secret that `env:NAME` or `file:PATH` names. Raises `ValueError` without the secret."""
        ...

    def files_of(
        self, make: Callable[[str], None], folder: AbstractContextManager[str] | None = None
    ) -> Iterator[tuple[str, bytes]]:
        """Call `make` with the path of a temporary directory, and yield the files that are in it then: names, and chunks in order.

        The directory is empty, or the `folder` that `codec.store.listing.export` makes.
        """
        ...

    def spill(self) -> AbstractContextManager[Spill]:
        """Return a temporary file, which exists inside of the `with` block."""
        ...


_host: Host | None = None


def provide(surroundings: Host) -> None:
    """Set the surroundings."""
    global _host
    _host = surroundings


def host() -> Host:
    """Return the surroundings. Raises `UsageError`."""
    if _host is None:
        raise UsageError("no I/O is provided here", advice="Import logwright.readers first")
    return _host
