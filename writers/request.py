"""Where the result of a repair, rebuild or edit goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from logwright.codec.fault import UsageError
from logwright.writers.filesystem import FileSystem, LocalFileSystem
from logwright.writers.target import refuse_remote

Show = Callable[[int], None]
"""Called with the number of bytes written since the last call."""


@dataclass(frozen=True)
class Request:
    """Where the result goes. Exactly one of `out`, and `in_place` with `backup`; neither is needed for a `dry_run`."""

    out: str | None = None
    in_place: bool = False
    backup: str | None = None
    dry_run: bool = False
    correct: bool = True
    """Whether single flipped bits are corrected."""
    files: FileSystem = field(default_factory=LocalFileSystem)
    show: Show = lambda done: None

    def check(self) -> None:
        """Raise `UsageError` for contradictory arguments."""
        if self.out is not None and self.in_place:
            raise UsageError("out and in_place cannot be combined", advice="Pass one of them")
        if self.backup is not None and not self.in_place:
            raise UsageError("backup needs in_place", advice="Add in_place (--in-place)")
        if self.dry_run:
            return
        if self.in_place and self.backup is None:
            raise UsageError(
                "in_place needs backup",
                advice="Set backup to a directory outside the data, absent or empty; the original files are saved there",
            )
        if self.out is None and not self.in_place:
            raise UsageError(
                "no destination for the result",
                advice="Pass out=DIR (--out DIR) to write it there; in_place and backup=DIR (--in-place "
                "--backup DIR) to change the input; or dry_run (--dry-run) to see what would be done",
            )
        for path in (self.out, self.backup):
            if path is not None:
                refuse_remote(path)
