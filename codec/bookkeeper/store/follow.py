"""Follow the journal or the entry logs of a bookie while it writes, by position. See `codec.capability.Follow`.

Files of both kinds are written one after the other, and their ids increase. A position is that of a byte in its file plus a number for the
file: for an entry log its id shifted as in the locations that the bookie's index has, for a journal the low bits of its id, which starts
as a time in milliseconds. The bookie creates the next entry log in advance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from logwright.codec.bookkeeper.formats.entrylog.layout import HEADER, HEADER_SIZE
from logwright.codec.bookkeeper.store import tree
from logwright.codec.capability import Follow, range_options
from logwright.codec.fault import UsageError
from logwright.codec.frames.scanner import MAIN
from logwright.codec.frames.specification import CERTAIN
from logwright.codec.option import Option, Options, parse_bool
from logwright.codec.store.listing import Listing, Plan, Role
from logwright.codec.store.view import FILE_POSITION, Part
from logwright.codec.window import Frames

VIEWS = ("journal", "entrylog")
_LOG_BITS, _JOURNAL_BITS = 32, 33
_JOURNALS = 1 << 30
"""Journals have different numbers if their ids are nearer to each other than this."""
_PER_LEDGER = "entryLogPerLedgerEnabled"
_RANGE = range_options(
    "startingPosition",
    "endingPosition",
    "a position: that of a byte of an entry log plus its id times 2^32; of a journal, plus the low 30 bits of its id times 2^33",
)
OPTIONS: tuple[Option, ...] = (
    *_RANGE,
    Option(
        _PER_LEDGER,
        None,
        "false: the bookie writes one entry log at a time, although one before the last has no ledgers map, as after a crash",
        parse_bool,
    ),
)


class BookieFollow(Follow):
    options = OPTIONS
    range_options = _RANGE

    def followed(self, view: str | None, options: Options) -> tuple[str, str]:
        if view not in VIEWS:
            name = "entries" if view is None else view
            raise UsageError(
                f"view {name!r} cannot be followed or limited by positions",
                advice="Use view journal, which each entry reaches first, or entrylog",
            )
        return view, FILE_POSITION

    def sequences(self, plan: Plan, view: str) -> Mapping[str, Plan]:
        """Each journal directory has its own journals. With DbLedgerStorage, each ledger directory has its own entry logs."""
        directories = plan.facts["journal_directories" if view == "journal" else "ledger_directories"]
        if len(directories) < 2 or (view == "entrylog" and plan.facts["storage"] != tree.DB):
            return {"": plan}
        return {
            directory.removesuffix(f"/{tree.CURRENT}"): replace(
                plan, files=tuple(file for file in plan.files if file.name.rpartition("/")[0] == directory)
            )
            for directory in directories
        }

    def begins(self, plan: Plan, view: str) -> int:
        bounds = file_bounds(plan, view)
        if bounds is None:
            files = "journals" if view == "journal" else "entry logs"
            raise UsageError(
                f"the {files} are in several directories and do not follow each other",
                advice="Follow each directory by its own path",
            )
        return next((low for low, _ in bounds.values()), 0)

    def span(
        self, listing: Listing, plan: Plan, view: str, options: Options, end: int, *, stream: bool
    ) -> tuple[int, int]:
        selected = super().span(listing, plan, view, options, end, stream=stream)
        if view == "entrylog":
            _check_finished(listing, plan, options)
        return selected

    def in_advance(self, listing: Listing, part: Part) -> bool:
        return part.codec == tree.ENTRY_LOG and not listing.read(part.file, HEADER_SIZE, 1)

    def unfinished(self, frames: Frames) -> bool:
        return bool(frames.header["frame_kind"][-1] == MAIN and frames.header["verdict"][-1] <= CERTAIN)


def file_bounds(plan: Plan, view: str) -> Mapping[str, tuple[int, int | None]] | None:
    """Return the first and the last position in each file of a view; None for the last one of the last file.

    Return None if the files are no sequence: those of several directories that count for themselves.
    """
    codec = tree.JOURNAL if view == "journal" else tree.ENTRY_LOG
    files = [file for file in plan.files if file.codec == codec and file.role is Role.PRIMARY]
    if codec == tree.JOURNAL:
        several = len({file.name.rpartition("/")[0] for file in files}) > 1
        bases = [(file.hints["number"] % _JOURNALS) << _JOURNAL_BITS for file in files]
    else:
        several = False
        bases = [file.hints["number"] << _LOG_BITS for file in files]
    if several or any(low >= high for low, high in pairwise(bases)):
        return None
    size = 1 << (_JOURNAL_BITS if codec == tree.JOURNAL else _LOG_BITS)
    last = len(files) - 1
    return {
        file.name: (base, None if i == last else base + size - 1)
        for i, (file, base) in enumerate(zip(files, bases, strict=True))
    }


def _check_finished(listing: Listing, plan: Plan, options: Options) -> None:
    """Raise `UsageError` if a log before the last may still grow."""
    logs = [file for file in plan.files if file.codec == tree.ENTRY_LOG and file.role is Role.PRIMARY]
    if len(logs) > 1 and not listing.read(logs[-1].name, HEADER_SIZE, 1):
        logs.pop()
    for file in logs[:-1]:
        head = listing.read(file.name, 0, HEADER.head_size)
        finished = len(head) < HEADER.head_size or any(head[8:16]) or not any(head[4:8])
        if options[_PER_LEDGER] or not (finished or options[_PER_LEDGER] is False):
            raise UsageError(
                f"{file.name} has no ledgers map, so the bookie may still write to it",
                advice=f"Follow view journal, or pass {_PER_LEDGER}=false if the bookie writes one entry log at a time",
            )
