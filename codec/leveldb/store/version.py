"""What a manifest's edits make together: the tables of each level, and the numbers.

Source: `VersionSet::Recover` and `VersionSet::Builder` in `db/version_set.cc` of LevelDB. Errors are its own words, as
`Status::ToString` shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from logwright.codec.leveldb.comparators import comparator_of
from logwright.codec.leveldb.formats.manifest.layout import (
    LEVELS,
    EditError,
    EditField,
    UnknownTagError,
    parse,
)
from logwright.codec.leveldb.formats.records.codec import Payloads
from logwright.codec.leveldb.formats.records.replay import Dropped, replay
from logwright.codec.leveldb.keys import BYTEWISE
from logwright.codec.window import Bytes


@dataclass(frozen=True, slots=True)
class FileMetaData:
    """A table as a manifest knows it. The keys are internal keys."""

    number: int
    size: int
    smallest: bytes
    largest: bytes


@dataclass
class Version:
    """A fold of edits. Numbers are None where no edit has them."""

    comparator: str | None = None
    log_number: int | None = None
    prev_log_number: int | None = None
    next_file_number: int | None = None
    last_sequence: int | None = None
    compact_pointers: dict[int, bytes] = field(default_factory=dict)
    edits: int = 0
    _added: list[dict[tuple[bytes, int], FileMetaData]] = field(
        default_factory=lambda: [{} for _ in range(LEVELS)]
    )
    _deleted: list[set[int]] = field(default_factory=lambda: [set() for _ in range(LEVELS)])

    def apply(self, edit: Sequence[EditField]) -> None:
        """One edit more (`Builder::Apply`): its deletions come before what it adds, in whatever order they are."""
        self.edits += 1
        for one in edit:
            if one.name == "comparator" and one.text is not None:
                self.comparator = one.text.decode("utf-8", "replace")
            elif one.name in ("log_number", "prev_log_number", "next_file_number", "last_sequence"):
                setattr(self, one.name, one.number)
            elif one.name == "compact_pointer" and one.level is not None and one.smallest is not None:
                self.compact_pointers[one.level] = one.smallest
            elif one.name == "deleted_file" and one.level is not None and one.number is not None:
                self._deleted[one.level].add(one.number)
        for one in edit:
            if one.name == "new_file":
                self._add(one)

    def _add(self, one: EditField) -> None:
        level, number, size = one.level or 0, one.number or 0, one.size or 0
        smallest, largest = one.smallest or b"", one.largest or b""
        self._deleted[level].discard(number)
        # A file that is there with the same smallest key stays as it is (`FileSet` is a set).
        self._added[level].setdefault((smallest, number), FileMetaData(number, size, smallest, largest))

    @property
    def levels(self) -> list[list[FileMetaData]]:
        """The live files of each level, by smallest key, then by number (`BySmallestKey`)."""
        order = comparator_of(self.comparator).order
        return [
            sorted(
                (one for one in added.values() if one.number not in deleted),
                key=lambda one: (order(one.smallest), one.number),
            )
            for added, deleted in zip(self._added, self._deleted, strict=True)
        ]

    @property
    def files(self) -> dict[int, tuple[int, FileMetaData]]:
        """Live files by number, with their level."""
        return {one.number: (level, one) for level, files in enumerate(self.levels) for one in files}

    def missing(self) -> str | None:
        """LevelDB's words for a number that no edit has; None where all are there."""
        for number, word in (
            (self.next_file_number, "no meta-nextfile entry in descriptor"),
            (self.log_number, "no meta-lognumber entry in descriptor"),
            (self.last_sequence, "no last-sequence-number entry in descriptor"),
        ):
            if number is None:
                return f"Corruption: {word}"
        return None


@dataclass(frozen=True, slots=True)
class Recovered:
    """What `VersionSet::Recover` makes of a manifest: the version as far as edits were applied, and the error, None where it opens."""

    version: Version
    error: str | None
    position: int | None = None
    """Byte of the manifest where the reader was when it met the error."""
    unsupported: bool = False
    """The error is a tag that is not known, under a right checksum."""


def recover(
    read: Callable[[int, int], Bytes],
    size: int,
    *,
    comparator: str | None = BYTEWISE,
    empty_pointers: bool = False,
) -> Recovered:
    """Read a manifest of `size` bytes as LevelDB does when it opens a database. `comparator`: the opener's; None takes any.
    `empty_pointers` as in `version_edit.parse`.

    `read(offset, length)` gives so many bytes of it, or fewer at its end.
    """
    version = Version()
    for found in replay(read, size):
        if isinstance(found, Dropped):
            return Recovered(version, f"Corruption: {found.reason}", found.position)
        records = Payloads.of(found.window, found.frames)
        for start, end, at in zip(
            records.start.tolist(), records.end.tolist(), found.frames.start.tolist(), strict=True
        ):
            position = found.window.offset + at
            try:
                edit = parse(records.data[start:end].tobytes(), empty_pointers=empty_pointers)
            except EditError as error:
                unsupported = isinstance(error, UnknownTagError)
                return Recovered(version, f"Corruption: {error}", position, unsupported)
            names = [one.text for one in edit if one.name == "comparator" and one.text is not None]
            if names and comparator is not None and names[-1] != comparator.encode():
                name = names[-1].decode("utf-8", "replace")
                text = f"Invalid argument: {name} does not match existing comparator : {comparator}"
                return Recovered(version, text, position)
            version.apply(edit)
    return Recovered(version, version.missing())
