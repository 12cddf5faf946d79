"""The set of tables of a manifest: reading and rewriting it. Source: `db/version_set.cc` of LevelDB."""

from __future__ import annotations

import re
from collections.abc import Sequence

from logwright.codec.columns import joined
from logwright.codec.fault import UnreadableError
from logwright.codec.frames.walk import ListedFile
from logwright.codec.leveldb.derive import current
from logwright.codec.leveldb.formats.current import NO_NEWLINE, read_current
from logwright.codec.leveldb.formats.manifest.layout import EditField, form
from logwright.codec.leveldb.formats.records.layout import written
from logwright.codec.leveldb.names import CURRENT, FileType, manifest_name, parse, temp_name
from logwright.codec.leveldb.startup.status import Corruption, IOFailure, NotFound, parsed
from logwright.codec.leveldb.store.levels import COMPACTION_TRIGGER, max_bytes_for_level
from logwright.codec.leveldb.store.version import FileMetaData, Version, recover, snapshot_fields
from logwright.codec.option import Options
from logwright.codec.single_frame import ParseError
from logwright.codec.store.overlay import Overlay

_HERE = re.compile(r"^(?:/*\./+|/+)+(?=[^/])")
_WRAP = (1 << 64) - 1
_NAME_MAX, _PATH_MAX = 255, 4095
"""The longest name of a file, and the longest path, in bytes on Linux."""


class VersionSet:
    """The state of an open database."""

    def __init__(self, disk: Overlay, options: Options, comparator: str, *, empty_keys: bool = False) -> None:
        self.disk, self.options, self.comparator = disk, options, comparator
        self._empty_keys = empty_keys
        self.current = Version()
        self.log_number = self.prev_log_number = self.last_sequence = 0
        self.next_file_number, self.manifest_file_number = 2, 0
        self._descriptor: str | None = None
        """The manifest that edits are appended to; None before there is one."""

    def new_file_number(self) -> int:
        number = self.next_file_number
        self.next_file_number = (number + 1) & _WRAP
        return number

    def mark_file_number_used(self, number: int) -> None:
        if self.next_file_number <= number:
            self.next_file_number = (number + 1) & _WRAP

    @property
    def live(self) -> set[int]:
        """The numbers of the tables of the version (`AddLiveFiles`)."""
        return {file.number for files in self.current.levels for file in files}

    def recover(self) -> bool:
        """Read CURRENT and the manifest. Returns whether a new manifest must be written (`save_manifest`). Raises `Status`."""
        disk = self.disk
        try:
            named = read_current(disk)
        except ParseError:
            raise Corruption(NO_NEWLINE) from None
        except UnreadableError:
            raise unreadable(disk, CURRENT) from None
        # The operating system ends a name at a zero byte.
        name = named.partition(b"\0")[0].decode(errors="surrogateescape")
        # It also ignores path components that stay in the same directory.
        name = _HERE.sub("", name) or name
        if name not in disk:
            self._raise_missing(name, named)
        try:
            recovered = recover(
                ListedFile(disk, name, disk.size(name)).pread,
                disk.size(name),
                comparator=self.comparator,
                empty_keys=self._empty_keys,
            )
        except UnreadableError:
            # The reader reports a drop and then finds nothing more.
            raise unreadable(disk, name) from None
        if recovered.error is not None:
            raise parsed(recovered.error)
        version = recovered.version
        self.current = save_to(version)
        self.manifest_file_number = version.next_file_number or 0
        self.next_file_number = (self.manifest_file_number + 1) & _WRAP
        self.last_sequence = version.last_sequence or 0
        self.log_number, self.prev_log_number = version.log_number or 0, version.prev_log_number or 0
        return not self._reuse_manifest(named.decode(errors="surrogateescape"))

    def _raise_missing(self, name: str, named: bytes) -> None:
        """Raise the error for a CURRENT that names no file of the directory."""
        shown = f"{self.disk.name}/{named.decode(errors='replace')}"
        if not name.strip("/."):
            # Opening the directory itself succeeds, reading it fails.
            raise IOFailure(shown, "Is a directory")
        folder, slash, _ = name.partition("/")
        if slash and folder in self.disk:
            raise IOFailure(shown, "Not a directory")
        path, first = (text.encode(errors="surrogateescape") for text in (f"{self.disk.name}/{name}", folder))
        if len(path) > _PATH_MAX or len(first) > _NAME_MAX:
            raise IOFailure(shown, "File name too long")
        raise Corruption(
            "CURRENT points to a non-existent file", str(NotFound(shown, "No such file or directory"))
        )

    def _reuse_manifest(self, name: str) -> bool:
        named = parse(name)
        if not self.options["reuse_logs"] or named is None or named.type is not FileType.DESCRIPTOR:
            return False
        if self.disk.size(name) >= self.options["max_file_size"]:
            return False
        self._descriptor, self.manifest_file_number = name, named.number
        return True

    def log_and_apply(self, log_number: int, tables: Sequence[FileMetaData]) -> None:
        """Write an edit with the number of the current log and the tables written from logs. A new manifest starts with a snapshot."""
        edit = [
            EditField("log_number", number=log_number),
            EditField("prev_log_number", number=0),
            EditField("next_file_number", number=self.next_file_number),
            EditField("last_sequence", number=self.last_sequence),
            *(table.new_file(0) for table in tables),
        ]
        records = [form(edit)]
        name = self._descriptor
        if name is None:
            records.insert(0, form(self._snapshot(), empty_keys=self._empty_keys))
            name = manifest_name(self.manifest_file_number)
            self.disk.put(name, logged(records))
            self.set_current(self.manifest_file_number)
        else:
            before = self.disk.read(name)
            self.disk.put(name, before + logged(records, len(before)))
        self._descriptor = name
        after = save_to(self.current)
        after.apply(edit)
        self.current = after
        self.log_number, self.prev_log_number = log_number, 0

    def _snapshot(self) -> list[EditField]:
        """`VersionSet::WriteSnapshot`."""
        return [
            EditField("comparator", text=self.comparator.encode()),
            *snapshot_fields(self.current.levels, self.current.compact_pointers),
        ]

    def new_db(self) -> None:
        """`DBImpl::NewDB`: write the first manifest of a database, and CURRENT."""
        edit = [
            EditField("comparator", text=self.comparator.encode()),
            EditField("log_number", number=0),
            EditField("next_file_number", number=2),
            EditField("last_sequence", number=0),
        ]
        self.disk.put(manifest_name(1), logged([form(edit)]))
        self.set_current(1)

    def set_current(self, number: int) -> None:
        """`SetCurrentFile`: write a temporary file and rename it."""
        self.disk.delete(temp_name(number))
        self.disk.put(CURRENT, current(number))

    @property
    def compaction(self) -> str | None:
        """Return why a compaction starts right after opening, or None (`VersionSet::Finalize`)."""
        for level, files in enumerate(self.current.levels[:-1]):
            size = sum(file.size for file in files)
            if level == 0 and len(files) >= COMPACTION_TRIGGER:
                return f"level 0 has {len(files)} tables"
            if level > 0 and size >= max_bytes_for_level(level):
                return f"level {level} has {size} bytes"
        return None


def save_to(version: Version) -> Version:
    """Return a version with the files and numbers of another one, without its record of deleted files (`Builder::SaveTo`)."""
    new = Version(
        version.comparator,
        version.log_number,
        version.prev_log_number,
        version.next_file_number,
        version.last_sequence,
        dict(version.compact_pointers),
    )
    new.apply(snapshot_fields(version.levels, {}))
    return new


def logged(payloads: Sequence[bytes], offset: int = 0) -> bytes:
    """Return records as `log::Writer` writes them from byte `offset` of a file."""
    return written(*joined(payloads), offset).tobytes()


def unreadable(disk: Overlay, name: str) -> IOFailure:
    """Return the error for a file that the disk cannot read."""
    return IOFailure(f"{disk.name}/{name}", "Input/output error")
