"""Read CURRENT and the manifest: the result of the edits is the tables of each level, and the numbers.

Source: `VersionSet::Recover` and `VersionSet::Builder` in `db/version_set.cc` of LevelDB. Errors are in its words, as `Status::ToString`
formats them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from logwright.codec.fault import UnreadableError
from logwright.codec.frames.walk import ListedFile
from logwright.codec.leveldb.comparators import comparator_of
from logwright.codec.leveldb.formats.current import read_current
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
from logwright.codec.leveldb.names import CURRENT
from logwright.codec.leveldb.store.contents import misnamed
from logwright.codec.single_frame import ParseError
from logwright.codec.store.listing import Entry, Listing
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
        return EditField("new_file", level=level, **asdict(self))


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
class Descriptor:
    """The state of a database by its metadata. `error` is why LevelDB would not open it, as `Status::ToString`; `version` is then the
    state before the error."""

    version: Version
    error: str | None
    position: int = 0
    """Byte of the file where the reader met the error."""
    unsupported: bool = False
    """Whether the error is an unknown field type in an edit with a right checksum."""
    manifest: str | None = None
    file: str = ""
    """The file with the error, or "" for the directory itself."""
    hint: str = ""
    """Advice on the error."""


def recover(
    read: Callable[[int, int], Bytes],
    size: int,
    *,
    comparator: str | None = BYTEWISE,
    empty_keys: bool = False,
) -> Descriptor:
    """Read a manifest of `size` bytes as LevelDB does on opening. `comparator` is the one of the opener; None accepts any.
    `empty_keys` as in `version_edit.parse`.

    `read(offset, length)` returns `length` bytes, or fewer at the end of the file.
    """
    version = Version()
    for event in read_records(read, size):
        if isinstance(event, Dropped):
            return Descriptor(version, f"Corruption: {event.reason}", event.position)
        records = Payloads.of(event.window, event.frames)
        for start, end, at in zip(
            records.start.tolist(), records.end.tolist(), event.frames.start.tolist(), strict=True
        ):
            position = event.window.offset + at
            try:
                edit = parse(records.data[start:end].tobytes(), empty_keys=empty_keys)
            except EditError as error:
                unsupported = isinstance(error, UnknownTagError)
                return Descriptor(version, f"Corruption: {error}", position, unsupported)
            names = [
                change.text for change in edit if change.name == "comparator" and change.text is not None
            ]
            if names and comparator is not None and names[-1] != comparator.encode():
                name = names[-1].decode("utf-8", "replace")
                text = f"Invalid argument: {name} does not match existing comparator : {comparator}"
                return Descriptor(version, text, position)
            version.apply(edit)
    return Descriptor(version, version.missing())


def read_descriptor(listing: Listing, *, comparator: str | None = None) -> Descriptor:
    """Read CURRENT, then the manifest that it names. `comparator` is the one of the opener; None accepts any."""
    sizes = {entry.name: entry.size for entry in listing.entries()}
    if CURRENT not in sizes:
        return Descriptor(
            Version(), f"Invalid argument: {listing.name}: does not exist (create_if_missing is false)"
        )
    try:
        named = read_current(listing)
    except ParseError as wrong:
        return Descriptor(Version(), f"Corruption: {wrong.message}", file=CURRENT)
    except UnreadableError as wrong:
        return Descriptor(Version(), f"IO error: {CURRENT}: {wrong.message}", wrong.start, file=CURRENT)
    name = named.decode(errors="surrogateescape")
    if name not in sizes:
        shown = named.decode(errors="replace")
        error = (
            "Corruption: CURRENT points to a non-existent file: NotFound: "
            f"{listing.name}/{shown}: No such file or directory"
        )
        crlf = name.endswith("\r")
        hint = "CURRENT ends in CRLF, as after a text conversion: LevelDB needs a single LF" if crlf else ""
        return Descriptor(Version(), error, file=CURRENT, hint=hint)
    try:
        recovered = recover(ListedFile(listing, name, sizes[name]).pread, sizes[name], comparator=comparator)
    except UnreadableError as wrong:
        recovered = Descriptor(Version(), f"IO error: {name}: {wrong.message}", wrong.start)
    if recovered.error is not None and (hint := misnamed(listing, Entry(name, sizes[name]))):
        recovered = replace(recovered, hint=f"{name} has the content of {hint}")
    return replace(recovered, manifest=name, file=name)
