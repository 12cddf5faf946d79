"""Directories as layouts see them: the names and sizes of regular files, windows of their bytes, the directory above.

A local directory with a committed but unfinished append (`readers.journal`) is seen as if the append were finished.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from logwright.codec import registry
from logwright.codec.base import Codec, Match
from logwright.codec.fault import LogwrightError, NotFoundError, UnreadableError, UsageError
from logwright.codec.layout import Layout
from logwright.codec.store.listing import Entry
from logwright.codec.window import Bytes
from logwright.readers import journal
from logwright.readers.rescue import STANDARD, Rescue
from logwright.readers.source import Source, explain, file_system, is_remote, local_path, open_source


class Directory:
    """One directory, listed once: what comes and goes later is not seen. Implements `codec.layout.Listing`."""

    path: str
    """As people see it."""
    name: str
    warnings: tuple[str, ...] = ()
    """What was found on listing that readers should know, sentences."""
    how: Rescue = STANDARD
    """How a failing disk is read."""

    odd: Mapping[str, str] = {}
    """Of names that are neither files nor folders, or could be files of ours and are folders: what they are."""

    def entries(self) -> Sequence[Entry]:
        raise NotImplementedError

    def passed_over(self) -> Iterator[tuple[str, Codec, str]]:
        """What has the name of a file that we know, and is none: its name, the codec, and a sentence on it."""
        self.entries()
        for name, what in sorted(self.odd.items()):
            codec = registry.detect(name, b"")
            if codec is not None and codec.recognise(name, b"") >= Match.NAME:
                yield name, codec, f"it is {what}, not a file: it is not read"

    def notes(self) -> tuple[str, ...]:
        """What a reader should know of what was found, sentences."""
        return (*self.warnings, *(f"{self.shown(name)}: {said}" for name, _, said in self.passed_over()))

    def folders(self) -> Sequence[str]:
        """The names of the sub-directories."""
        raise NotImplementedError

    def parent(self) -> Directory | None:
        raise NotImplementedError

    def real(self, name: str) -> str:
        """The path or URI where the bytes of a file lie now; `open_source` takes it."""
        raise NotImplementedError

    def shown(self, name: str) -> str:
        """The path of a file as people see it."""
        return f"{self.path.rstrip('/')}/{name}" if self.path != "." else name

    def open(self, name: str) -> Source:
        """A file, open for reading."""
        return open_source(self.real(name), self.shown(name), self.how)

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """Up to `length` bytes of a file."""
        with self.open(name) as source:
            return source.pread(offset, source.size - offset if length is None else length).tobytes()

    def pread(self, name: str, offset: int, length: int) -> Bytes:
        """See `codec.layout.Preads`."""
        with self.open(name) as source:
            return source.pread(offset, length)


class LocalDirectory(Directory):
    """A directory of this machine, as it is when it is listed: with a committed append done, whose renames are still missing."""

    def __init__(self, path: str, shown: str | None = None, how: Rescue = STANDARD) -> None:
        self._path, self.how = path, how
        self.path = path if shown is None else shown
        # The name as the user gave it, also where that is a link to elsewhere; "." and ".." have none.
        given = os.path.basename(path.rstrip("/"))
        self.name = given if given not in ("", ".", "..") else os.path.basename(os.path.realpath(path))
        self._sizes: dict[str, int] | None = None
        self._moved: dict[str, str] = {}
        self._folders: list[str] = []

    def entries(self) -> Sequence[Entry]:
        return [Entry(name, size) for name, size in sorted(self._list().items())]

    def folders(self) -> Sequence[str]:
        self._list()
        return self._folders

    def parent(self) -> Directory | None:
        above = os.path.dirname(os.path.abspath(self._path))
        if above == os.path.abspath(self._path) or not os.access(above, os.R_OK | os.X_OK):
            return None
        return LocalDirectory(above)

    def real(self, name: str) -> str:
        self._list()
        return self._moved.get(name, os.path.join(self._path, name))

    def _list(self) -> dict[str, int]:
        if self._sizes is None:
            sizes, folders, self.odd = _scan(self._path, self.path)
            for staging in sorted(_staging_names() & folders):
                self._overlay(os.path.join(self._path, staging), sizes)
            self._sizes, self._folders = sizes, sorted(folders)
        return self._sizes

    def _overlay(self, staging: str, sizes: dict[str, int]) -> None:
        for token in sorted(_scan(staging, staging)[1]):
            place = os.path.join(staging, token)
            try:
                of = _commit_of(place)
                with open_source(os.path.join(of, journal.COMMIT)) as source:
                    record = journal.parse(source.pread(0, journal.MAX_BYTES).tobytes())
            except NotFoundError:
                continue  # not committed
            except (journal.JournalError, UnreadableError) as error:
                self.warnings += (f"{place}/{journal.COMMIT} can't be understood ({error}): read without it",)
                continue
            if record.folders:
                self._overlay_part(of, record, sizes)
                continue
            staged = _sizes_below(place)
            if record.state(sizes, staged) is journal.State.CHANGED:
                self.warnings += (
                    f"{place} holds an append that was committed but not finished, and the directory was changed since: "
                    "read as it is",
                )
                continue
            for name, source_name in record.overlay(sizes, staged).items():
                if source_name is None:
                    del sizes[name]
                else:
                    sizes[name] = staged[source_name]
                    self._moved[name] = os.path.join(place, source_name)

    def _overlay_part(self, of: str, record: journal.Journal, sizes: dict[str, int]) -> None:
        """What a commit to several directories, whose record is in `of`, makes of this one."""
        main = os.path.dirname(os.path.dirname(of))
        homes = {"": main, **{f"{folder}/": path for folder, path in record.folders.items()}}
        here = os.path.realpath(self._path)
        own = next((prefix for prefix, path in homes.items() if os.path.realpath(path) == here), None)
        if own is None:
            return  # copied from elsewhere
        present: dict[str, int] = {}
        staged: dict[str, int] = {}
        for prefix, path in homes.items():
            with contextlib.suppress(LogwrightError):
                found = sizes if prefix == own else _scan(path, path)[0]
                present.update({prefix + name: size for name, size in found.items()})
            place = os.path.join(path, os.path.relpath(of, main))
            staged.update({prefix + name: size for name, size in _sizes_below(place).items()})
        if record.state(present, staged) is journal.State.CHANGED:
            self.warnings += (
                f"{of} holds a write that was committed but not finished, and the directories were changed since: read as they are",
            )
        for name, source in record.overlay(present, staged).items():
            folder, slash, inner = name.rpartition("/")
            if folder + slash != own:
                continue
            if source is None:
                sizes.pop(inner, None)
            else:
                sizes[inner] = staged[source]
                place = os.path.join(homes[own], os.path.relpath(of, main))
                self._moved[inner] = os.path.join(place, source.removeprefix(own))


class RemoteDirectory(Directory):
    """A directory on a file system of `pyarrow.fs`."""

    def __init__(self, uri: str, how: Rescue = STANDARD) -> None:
        self.path, self.how = uri, how
        self._system, self._inner = file_system(uri)
        self.name = self._inner.rstrip("/").rpartition("/")[2]
        self._entries: list[Entry] | None = None
        self._folders: list[str] = []

    def entries(self) -> Sequence[Entry]:
        if self._entries is None:
            from pyarrow import fs

            try:
                infos = self._system.get_file_info(fs.FileSelector(self._inner))
            except OSError as error:
                raise explain(error, self.path) from error
            self._entries = sorted(
                (Entry(info.base_name, info.size) for info in infos if info.type == fs.FileType.File),
                key=lambda entry: entry.name,
            )
            self._folders = sorted(info.base_name for info in infos if info.type == fs.FileType.Directory)
        return self._entries

    def folders(self) -> Sequence[str]:
        self.entries()
        return self._folders

    def parent(self) -> Directory | None:
        above = self.path.rstrip("/").rpartition("/")[0]
        if "/" not in self._inner.strip("/") or not is_remote(above):
            return None
        try:
            directory = RemoteDirectory(above)
            directory.entries()
        except LogwrightError:
            return None
        return directory

    def real(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}"


class JoinedDirectory(Directory):
    """A directory with the files of others, which are listed as in folders of it (`codec.capability.Spans`)."""

    def __init__(self, main: Directory, others: Mapping[str, Directory]) -> None:
        self._main, self._others = main, dict(others)
        self.path, self.name, self.how = main.path, main.name, main.how
        self.warnings = (*main.warnings, *(said for one in others.values() for said in one.warnings))
        self.odd = {
            **main.odd,
            **{f"{a}/{b}": what for a, one in others.items() for b, what in one.odd.items()},
        }

    def entries(self) -> Sequence[Entry]:
        found = [*self._main.entries()]
        for folder, other in self._others.items():
            found += [Entry(f"{folder}/{entry.name}", entry.size) for entry in other.entries()]
        return found

    def folders(self) -> Sequence[str]:
        return self._main.folders()

    def parent(self) -> Directory | None:
        return self._main.parent()

    def real(self, name: str) -> str:
        directory, inner = self._of(name)
        return directory.real(inner)

    def shown(self, name: str) -> str:
        directory, inner = self._of(name)
        return directory.shown(inner)

    def _of(self, name: str) -> tuple[Directory, str]:
        folder, _, inner = name.partition("/")
        return (self._others[folder], inner) if inner and folder in self._others else (self._main, name)


class LoneFile(Directory):
    """A file as if it were alone in its directory."""

    lone = True
    """For layouts: there are no other files that could be used with this one."""

    def __init__(self, path: str, size: int, how: Rescue = STANDARD) -> None:
        above, _, self._file = path.rstrip("/").rpartition("/")
        self.path, self.how, self._place, self._size = path, how, path, size
        self.name = above.rpartition("/")[2]

    def entries(self) -> Sequence[Entry]:
        return [Entry(self._file, self._size)]

    def folders(self) -> Sequence[str]:
        return []

    def parent(self) -> Directory | None:
        return None

    def real(self, name: str) -> str:
        return self._place

    def shown(self, name: str) -> str:
        return self._place


def open_listing(path: str, how: Rescue = STANDARD) -> Directory:
    """The directory at a path or URI, listed. Raises `NotFoundError`, `AccessError`, or `UsageError` for a file."""
    directory: Directory = (
        RemoteDirectory(path, how) if is_remote(path) else LocalDirectory(local_path(path), path, how)
    )
    directory.entries()
    return directory


def home(path: str, layout: Layout | None = None, how: Rescue = STANDARD) -> Directory:
    """The directory at a path, or the one within that is meant by it (`Layout.within`). Raises as `open_listing`."""
    directory = open_listing(path, how)
    if registry.detect_layout(directory) is not None:
        return directory
    for one in registry.layouts() if layout is None else (layout,):
        if one.within is not None and one.within in directory.folders():
            inner = open_listing(f"{path.rstrip('/')}/{one.within}", how)
            if one.recognise(inner) is not Match.NO:
                return inner
    return directory


@cache
def _staging_names() -> frozenset[str]:
    return frozenset(layout.inner_staging for layout in registry.layouts())


def is_staging(name: str) -> bool:
    """Whether a folder of that name is one in which files are staged."""
    return name in _staging_names()


def _scan(path: str, shown: str) -> tuple[dict[str, int], set[str], dict[str, str]]:
    """Sizes of regular files (also through links), names of sub-directories, and of all else what it is, folders with a `.` in
    their names too."""
    sizes: dict[str, int] = {}
    folders: set[str] = set()
    odd: dict[str, str] = {}
    try:
        with os.scandir(path) as found:
            for entry in found:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        mode, size = stat.S_IFDIR, 0  # nothing is asked of a disk that may be gone
                    else:
                        status = entry.stat()
                        mode, size = status.st_mode, status.st_size
                except FileNotFoundError:
                    if entry.is_symlink():
                        odd[entry.name] = "a link to what is not there"
                    continue  # or gone since it was listed
                except OSError as error:
                    if error.errno != errno.ELOOP:
                        raise explain(error, os.path.join(shown, entry.name)) from error
                    odd[entry.name] = "a link to itself"
                    continue
                if stat.S_ISREG(mode):
                    sizes[entry.name] = size
                elif stat.S_ISDIR(mode):
                    folders.add(entry.name)
                    if "." in entry.name:
                        odd[entry.name] = "a folder"
                else:
                    odd[entry.name] = "a pipe" if stat.S_ISFIFO(mode) else "a device or a socket"
    except NotADirectoryError:
        raise UsageError("is a file, a directory is needed here", path=shown) from None
    except LogwrightError:
        raise
    except OSError as error:
        raise explain(error, shown) from error
    return sizes, folders, odd


def _commit_of(place: str) -> str:
    """The staging place whose commit record is that of this one too (`readers.journal`)."""
    try:
        with open_source(os.path.join(place, journal.APART)) as source:
            return journal.parse_apart(source.pread(0, journal.MAX_BYTES).tobytes())
    except NotFoundError:
        return place


def _sizes_below(place: str) -> Mapping[str, int]:
    """Sizes of all files below a staging place, by their names relative to it."""
    out: dict[str, int] = {}
    for folder, _, files in os.walk(place):
        for name in files:
            path = os.path.join(folder, name)
            try:
                out[os.path.relpath(path, place)] = os.stat(path).st_size
            except FileNotFoundError:
                continue
    return out
