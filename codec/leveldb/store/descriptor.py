"""Read CURRENT and the manifest that it names.

Source: `VersionSet::Recover` of LevelDB. Errors are in its words.
"""

from __future__ import annotations

from dataclasses import dataclass

from logwright.codec.fault import UnreadableError
from logwright.codec.frames.walk import ListedFile
from logwright.codec.leveldb.formats.current import read_current
from logwright.codec.leveldb.names import CURRENT
from logwright.codec.leveldb.store.version import Version, recover
from logwright.codec.single_frame import ParseError
from logwright.codec.store.listing import Listing


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The state of a database by its metadata. `error` is why LevelDB would not open it, as `Status::ToString`; `version` is then the
    state before the error."""

    manifest: str | None
    version: Version
    error: str | None = None
    file: str = ""
    """The file with the error, or "" for the directory itself."""
    position: int = 0
    unsupported: bool = False
    """Whether the error is an unknown field type in an edit with a right checksum."""
    hint: str = ""
    """Advice on the error."""


def read_descriptor(listing: Listing, *, comparator: str | None = None) -> Descriptor:
    """Read CURRENT, then the manifest. `comparator` is the one of the opener; None accepts any."""
    sizes = {entry.name: entry.size for entry in listing.entries()}
    if CURRENT not in sizes:
        error = f"Invalid argument: {listing.name}: does not exist (create_if_missing is false)"
        return Descriptor(None, Version(), error)
    try:
        named = read_current(listing)
    except ParseError as wrong:
        return Descriptor(None, Version(), f"Corruption: {wrong.message}", CURRENT)
    except UnreadableError as wrong:
        return Descriptor(None, Version(), f"IO error: {CURRENT}: {wrong.message}", CURRENT, wrong.start)
    name = named.decode(errors="surrogateescape")
    if name not in sizes:
        shown = named.decode(errors="replace")
        error = (
            "Corruption: CURRENT points to a non-existent file: NotFound: "
            f"{listing.name}/{shown}: No such file or directory"
        )
        crlf = name.endswith("\r")
        hint = "CURRENT ends in CRLF, as after a text conversion: LevelDB needs a single LF" if crlf else ""
        return Descriptor(None, Version(), error, CURRENT, hint=hint)
    try:
        recovered = recover(ListedFile(listing, name, sizes[name]).pread, sizes[name], comparator=comparator)
    except UnreadableError as wrong:
        return Descriptor(name, Version(), f"IO error: {name}: {wrong.message}", name, wrong.start)
    return Descriptor(
        name, recovered.version, recovered.error, name, recovered.position or 0, recovered.unsupported
    )
