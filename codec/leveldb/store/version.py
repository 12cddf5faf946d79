"""The result of a manifest's edits: the tables of each level, and the numbers.

Source: `VersionSet::Recover` and `VersionSet::Builder` in `db/version_set.cc` of LevelDB. Errors are in its words, as `Status::ToString`
formats them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from logwright.codec.leveldb.formats.records.log_reader import Dropped, read_records
from logwright.codec.leveldb.keys import BYTEWISE
from logwright.codec.window import Bytes


@dataclass(frozen=True, slots=True)
class FileMetaData:
    """A table as recorded in a manifest. The keys are internal keys."""

    number: int
    size: int
    smallest: bytes
    largest: bytes

    def new_file(self, level: int) -> EditField:
        """Return the field of an edit that adds the table to a level."""
        return EditField(
            "new_file",
            level=level,
            number=self.number,
            size=self.size,
            smallest=self.smallest,
            largest=self.largest,
        )


def snapshot_fields(
    levels: Sequence[Sequence[FileMetaData]], compact_pointers: Mapping[int, bytes]
) -> list[EditField]:
    """Return the fields of an edit with all tables, by level (`WriteSnapshot`). Empty compaction pointers are left out."""
    pointers = [
        EditField("compact_pointer", level=level, smallest=key)
        for level, key in sorted(compact_pointers.items())
        if key
    ]
    return pointers + [file.new_file(level) for level, files in enumerate(levels) for file in files]


@dataclass
class Version:
    """A fold of edits. A number is None if no edit sets it."""

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
        """Apply an edit (`Builder::Apply`). Its deletions come before its additions, whatever their order."""
        self.edits += 1
        for change in edit:
            if change.name == "comparator" and change.text is not None:
                self.comparator = change.text.decode("utf-8", "replace")
            elif change.name in ("log_number", "prev_log_number", "next_file_number", "last_sequence"):
                setattr(self, change.name, change.number)
            elif (
                change.name == "compact_pointer" and change.level is not None and change.smallest is not None
            ):
                self.compact_pointers[change.level] = change.smallest
            elif change.name == "deleted_file" and change.level is not None and change.number is not None:
                self._deleted[change.level].add(change.number)
        for change in edit:
            if change.name == "new_file":
                self._add(change)

    def _add(self, change: EditField) -> None:
        level, number, size = change.level or 0, change.number or 0, change.size or 0
        smallest, largest = change.smallest or b"", change.largest or b""
        self._deleted[level].discard(number)
        # An existing file with the same smallest key is kept (`FileSet` is a set).
        self._added[level].setdefault((smallest, number), FileMetaData(number, size, smallest, largest))

    @property
    def levels(self) -> list[list[FileMetaData]]:
        """The live files of each level, by smallest key, then by number (`BySmallestKey`)."""
        order = comparator_of(self.comparator).order
        return [
            sorted(
                (file for file in added.values() if file.number not in deleted),
                key=lambda file: (order(file.smallest), file.number),
            )
            for added, deleted in zip(self._added, self._deleted, strict=True)
        ]

    @property
    def files(self) -> dict[int, tuple[int, FileMetaData]]:
        """Live files by number, with their level."""
        return {file.number: (level, file) for level, files in enumerate(self.levels) for file in files}

    def missing(self) -> str | None:
        """Return LevelDB's error for a number that no edit sets, or None."""
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
    """The result of `VersionSet::Recover`: the version up to where edits were applied, and the error, or None."""

    version: Version
    error: str | None
    position: int | None = None
    """Byte of the manifest where the reader met the error."""
    unsupported: bool = False
    """Whether the error is an unknown tag under a right checksum."""


def recover(
    read: Callable[[int, int], Bytes],
    size: int,
    *,
    comparator: str | None = BYTEWISE,
    empty_pointers: bool = False,
) -> Recovered:
    """Read a manifest of `size` bytes as LevelDB does on opening. `comparator` is the one of the opener; None accepts any.
    `empty_pointers` as in `version_edit.parse`.

    `read(offset, length)` returns `length` bytes, or fewer at the end of the file.
    """
    version = Version()
    for event in read_records(read, size):
        if isinstance(event, Dropped):
            return Recovered(version, f"Corruption: {event.reason}", event.position)
        records = Payloads.of(event.window, event.frames)
        for start, end, at in zip(
            records.start.tolist(), records.end.tolist(), event.frames.start.tolist(), strict=True
        ):
            position = event.window.offset + at
            try:
                edit = parse(records.data[start:end].tobytes(), empty_pointers=empty_pointers)
            except EditError as error:
                unsupported = isinstance(error, UnknownTagError)
                return Recovered(version, f"Corruption: {error}", position, unsupported)
            names = [
                change.text for change in edit if change.name == "comparator" and change.text is not None
            ]
            if names and comparator is not None and names[-1] != comparator.encode():
                name = names[-1].decode("utf-8", "replace")
                text = f"Invalid argument: {name} does not match existing comparator : {comparator}"
                return Recovered(version, text, position)
            version.apply(edit)
    return Recovered(version, version.missing())
