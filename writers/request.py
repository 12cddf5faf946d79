"""Where the result of a repair, a rebuild or an edit goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from logwright.codec.fault import UsageError
from logwright.writers.filesystem import FileSystem, LocalFileSystem
from logwright.writers.target import refuse_remote

Show = Callable[[int], None]
"""Takes a number of bytes that were written since the last call."""


@dataclass(frozen=True)
class Request:
    """Where the result goes. Exactly one of `out` and `in_place` with `backup`; neither is needed for a `dry_run`."""

    out: str | None = None
    in_place: bool = False
    backup: str | None = None
    dry_run: bool = False
    files: FileSystem = field(default_factory=LocalFileSystem)
    show: Show = lambda done: None

    def check(self) -> None:
        """Raise `UsageError` for what does not go together."""
        if self.out is not None and self.in_place:
            raise UsageError("the result goes either to `out` or in place, not both")
        if self.backup is not None and not self.in_place:
            raise UsageError(
                "a backup is made where a directory is changed in place", advice="Say in_place too"
            )
        if self.dry_run:
            return
        if self.in_place and self.backup is None:
            raise UsageError(
                "in place needs a backup",
                advice="backup names a directory outside of the data, absent or empty, which gets the originals of all files that "
                "change",
            )
        if self.out is None and not self.in_place:
            raise UsageError(
                "it is not said where the result goes",
                advice="out=DIR (--out DIR) writes the result there and leaves the input as it is; in_place and backup=DIR (--in-place "
                "--backup DIR) change the input; dry_run (--dry-run) only shows what would be done",
            )
        for path in (self.out, self.backup):
            if path is not None:
                refuse_remote(path)
