"""What CURRENT and the manifest that it names say of a database.

Source: `VersionSet::Recover` of LevelDB, whose words the errors are in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from logwright.codec.fault import UnreadableError
from logwright.codec.leveldb.formats.current import manifest_of
from logwright.codec.leveldb.names import CURRENT
from logwright.codec.leveldb.store.version import Version, recover
from logwright.codec.single_frame import ParseError
from logwright.codec.store.listing import Listing
from logwright.codec.window import Bytes

_LONGEST = 1 << 16
"""Bytes of CURRENT that are looked at: no name of a file is longer."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The state of a database as its metadata have it. `error` is why LevelDB would not open it, as `Status::ToString`; `version` is
    then what was read before."""

    manifest: str | None
    version: Version
    error: str | None = None
    file: str = ""
    """The file that the error is in; "" where that is the directory itself."""
    position: int = 0
    unsupported: bool = False
    """The error is a field of a type that is not known here, in an edit whose checksum is right."""
    hint: str = ""
    """What may be done about the error."""


def read_descriptor(listing: Listing, *, comparator: str | None = None) -> Descriptor:
    """Read CURRENT, then the manifest. `comparator`: the opener's, None takes any."""
    sizes = {entry.name: entry.size for entry in listing.entries()}
    if CURRENT not in sizes:
        error = f"Invalid argument: {listing.name}: does not exist (create_if_missing is false)"
        return Descriptor(None, Version(), error)
    try:
        named = manifest_of(listing.read(CURRENT, 0, _LONGEST))
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
        hint = "CURRENT ends in CRLF, as a text conversion leaves it: LevelDB needs LF alone" if crlf else ""
        return Descriptor(None, Version(), error, CURRENT, hint=hint)

    def read(offset: int, length: int) -> Bytes:
        return np.frombuffer(listing.read(name, offset, length), np.uint8)

    try:
        found = recover(read, sizes[name], comparator=comparator)
    except UnreadableError as wrong:
        return Descriptor(name, Version(), f"IO error: {name}: {wrong.message}", name, wrong.start)
    return Descriptor(name, found.version, found.error, name, found.position or 0, found.unsupported)
