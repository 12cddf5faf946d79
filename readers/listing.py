"""Directories and stores as layouts see them: names and sizes of regular files, windows of their bytes, and the parent directory.

A local directory with a committed but unfinished append (`readers.journal`) is shown as if the append were finished.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING

from logwright.codec import registry
from logwright.codec.arrays import Bytes
from logwright.codec.base import Codec, Match
from logwright.codec.deferred import deferred
from logwright.codec.engine.correct import Fix
from logwright.codec.fault import LogwrightError, NotFoundError, UnreadableError, UsageError
from logwright.codec.layout import STAGING_MARK, Layout
from logwright.codec.option import Options
from logwright.codec.store.listing import Entry, Listing
from logwright.codec.store.roots import Root, Roots, folder_of, holds_files, patterns_in, split
from logwright.readers.prefetch import Prefetcher, T, usable
from logwright.readers.rescue import STANDARD, Rescue
from logwright.readers.source import Source, explain, file_system, is_remote, local_path, open_source

if TYPE_CHECKING:
    from logwright.readers import journal
else:
    journal = deferred("logwright.readers", "journal")

_COPIED = 1 << 22
"""Bytes that are copied at a time."""
_AT_ONCE = 1 << 30
"""Bytes that are read at once. A damaged file system may show a file of a few bytes with any size, and zeros."""


@contextmanager
def exported(listing: Listing, folder: str) -> Iterator[str]:
    """Copy a folder of a listing to a temporary directory, and return its path. See `codec.store.listing.Exports`."""
    with tempfile.TemporaryDirectory(prefix="logwright-") as path:
        for entry in listing.entries():
            inner = entry.name.removeprefix(folder)
            if entry.name.startswith(folder) and "/" not in inner:
                with open(os.path.join(path, inner), "wb") as file:
                    for at in range(0, entry.size, _COPIED):
                        file.write(listing.read(entry.name, at, min(_COPIED, entry.size - at)))
        yield path


@dataclass
class _Level:
    """The content of a directory: sizes of regular files (links followed), names of sub-folders, and descriptions of everything else."""

    sizes: dict[str, int] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    inner: set[str] = field(default_factory=set)
    """Paths of the folders below the top level that hold no files of the tree."""
    odd: dict[str, str] = field(default_factory=dict)
    """Descriptions by name. Folders with a `.` in their names are included, since they have names like files."""


def _tree(level: Callable[[str], _Level], patterns: Sequence[str]) -> _Level:
    """Return the files of a directory and of matching sub-folders, by path, and the names of all top-level sub-folders."""
    content = level("")
    waiting = [name for name in content.folders if holds_files(name, patterns)]
    while waiting:
        folder = waiting.pop()
        content.odd.pop(folder, None)
        try:
            inner = level(folder)
        except NotFoundError:
            continue  # deleted since it was listed
        content.sizes.update({f"{folder}/{name}": size for name, size in inner.sizes.items()})
        content.odd.update({f"{folder}/{name}": description for name, description in inner.odd.items()})
        below = {f"{folder}/{name}" for name in inner.folders}
        held = {name for name in below if holds_files(name, patterns)}
        content.inner |= below - held
        waiting += held
    return content


class Directory:
    """A directory, listed once; later changes are not seen. Implements `codec.store.listing.Listing`."""

    path: str
    """Path for messages."""
    name: str
    warnings: tuple[str, ...] = ()
    """Sentences about problems found while listing."""
    rescue: Rescue = STANDARD
    """How to read from a failing disk."""

    corrections: Mapping[str, Sequence[Fix]] = {}
    """Flipped bits that are corrected as files are read, by file."""

    odd: Mapping[str, str] = {}
    """Descriptions of names that are neither files nor folders, or are folders with names like files."""

    @cached_property
    def layout(self) -> Layout | None:
        """The layout of the directory, if it is recognised."""
        return registry.detect_layout(self)

    def entries(self) -> Sequence[Entry]:
        raise NotImplementedError

    def passed_over(self) -> Iterator[tuple[str, Codec, str]]:
        """Iterate over names of known formats that are not files: the name, the codec, and a sentence."""
        self.entries()
        for path, description in sorted(self.odd.items()):
            name = path.rpartition("/")[2]
            codec = registry.detect(name, b"")
            if codec is not None and codec.recognise(name, b"") >= Match.NAME:
                yield path, codec, f"it is {description}, not a file, and is not read"

    def notes(self) -> tuple[str, ...]:
        """Return sentences about what was found, for the reader of the data."""
        return (
            *self.warnings,
            *(f"{self.shown(name)}: {sentence}" for name, _, sentence in self.passed_over()),
        )

    def folders(self) -> Sequence[str]:
        """Return the names of the sub-directories."""
        raise NotImplementedError

    def inner_folders(self) -> Sequence[str]:
        """See `codec.store.listing.InnerFolders`."""
        return ()

    def parent(self) -> Directory | None:
        raise NotImplementedError

    def real(self, name: str) -> str:
        """Return the path or URI of the current bytes of a file, for `open_source`."""
        raise NotImplementedError

    def shown(self, name: str) -> str:
        """Return the path of a file for messages."""
        return f"{self.path.rstrip('/')}/{name}" if self.path != "." else name

    def open(self, name: str) -> Source:
        """Open a file for reading."""
        return open_source(self.real(name), self.shown(name), self.rescue)

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """Read up to `length` bytes of a file."""
        return self.pread(name, offset, length).tobytes()

    def pread(self, name: str, offset: int, length: int | None) -> Bytes:
        """See `codec.store.listing.Preads`. Raises `UnreadableError` if the file has more bytes there than are read at once."""
        with self.open(name) as source:
            rest = source.size - offset
            if min(rest, rest if length is None else length) > _AT_ONCE:
                raise UnreadableError.too_large(source.size, offset + _AT_ONCE, self.shown(name))
            return source.pread(offset, rest if length is None else length)

    def work_ahead(self, items: Iterator[T], weigh: Callable[[T], int]) -> Iterator[T]:
        """See `codec.store.listing.WorksAhead`."""
        with Prefetcher(usable()) as prefetcher:
            yield from prefetcher.iterate([lambda: items], weigh)

    def modified(self, name: str) -> int | None:
        """See `codec.store.listing.Dated`."""
        path = self.real(name)
        try:
            return None if is_remote(path) else os.stat(local_path(path)).st_mtime_ns // 1_000_000
        except OSError:
            return None

    def export(self, folder: str) -> AbstractContextManager[str]:
        """See `codec.store.listing.Exports`."""
        return exported(self, folder)


class _Tree(Directory):
    """A directory that is listed when it is first used, with its sub-folders of these patterns (`Layout.folders`)."""

    _patterns: Sequence[str]

    @cached_property
    def _content(self) -> _Level:
        content = _tree(self._level, self._patterns)
        self._complete(content)
        self.odd = content.odd
        return content

    def _level(self, folder: str) -> _Level:
        """List one folder; "" is the directory itself."""
        raise NotImplementedError

    def _complete(self, content: _Level) -> None:
        """Apply the unfinished appends to what was listed."""

    @cached_property
    def _entries(self) -> Sequence[Entry]:
        return tuple(Entry(name, size) for name, size in sorted(self._content.sizes.items()))

    def entries(self) -> Sequence[Entry]:
        return self._entries

    def folders(self) -> Sequence[str]:
        return sorted(self._content.folders)

    def inner_folders(self) -> Sequence[str]:
        return sorted(self._content.inner)

    def parent(self) -> Directory | None:
        return self._parent

    @cached_property
    def _parent(self) -> Directory | None:
        raise NotImplementedError


class LocalDirectory(_Tree):
    """A local directory as it was when listed, with the missing renames of a committed append applied.

    `folders` are patterns of sub-folders whose files belong to it (`Layout.folders`). `above` is the listing of its parent, if there is
    one already: listing a parent of many directories takes long.
    """

    def __init__(
        self, path: str, shown: str | None = None, rescue: Rescue = STANDARD, folders: Sequence[str] = (),
        above: Directory | None = None,
    ) -> None:  # fmt: skip
        self._path, self.rescue, self._patterns, self._above = path, rescue, folders, above
        self.path = path if shown is None else shown
        # The name that the user gave, even if it is a link; "." and ".." are resolved.
        base = os.path.basename(path.rstrip("/"))
        self.name = base if base not in ("", ".", "..") else os.path.basename(os.path.realpath(path))
        self._moved: dict[str, str] = {}

    @cached_property
    def _parent(self) -> Directory | None:
        if self._above is not None:
            return self._above
        above = os.path.dirname(os.path.abspath(self._path))
        if above == os.path.abspath(self._path) or not os.access(above, os.R_OK | os.X_OK):
            return None
        return LocalDirectory(above)

    def real(self, name: str) -> str:
        _ = self._content
        return self._moved.get(name, os.path.join(self._path, name))

    def _complete(self, content: _Level) -> None:
        for staging in sorted(filter(is_staging, content.folders)):
            self._overlay(os.path.join(self._path, staging), content)

    def _level(self, folder: str) -> _Level:
        if not folder:
            return _scan(self._path, self.path)
        return _scan(os.path.join(self._path, folder), f"{self.path.rstrip('/')}/{folder}")

    def _overlay(self, staging: str, content: _Level) -> None:
        for token in sorted(_scan(staging, staging).folders):
            place = os.path.join(staging, token)
            try:
                main = _commit_of(place)
                with open_source(os.path.join(main, journal.COMMIT)) as source:
                    record = journal.parse(source.pread(0, journal.MAX_BYTES).tobytes())
            except NotFoundError:
                continue  # not committed
            except (journal.JournalError, UnreadableError) as error:
                self.warnings += (
                    f"{place}/{journal.COMMIT} is invalid ({error}): reading the directory without it",
                )
                continue
            roots = Roots(
                self._path if main == place else os.path.dirname(os.path.dirname(main)), record.roots
            )
            here = os.path.realpath(self._path)
            own = next(
                (root for root in ("", *record.roots) if os.path.realpath(roots.of(root)) == here), None
            )
            if own is None:
                continue  # copied from another directory
            places = roots.below(os.path.relpath(main, roots.own))
            present, staged = (
                journal.sizes_of(record.targets, roots, _size),
                journal.sizes_of(record.sources, places, _size),
            )
            if record.state(present, staged) is journal.State.CHANGED:
                several = "directories have" if record.roots else "directory has"
                self.warnings += (
                    f"{place} holds an append that was committed but not finished, and the {several} changed since: "
                    "reading the files as they are",
                )
                continue
            left = record.overlay(present, staged)
            for name in {**record.sizes, **left}:
                root, inner = split(name, record.roots)
                if root != own:
                    continue
                source_name = left.get(name, "")
                if "/" in inner and source_name is not None:
                    content.folders.add(inner.partition("/")[0])
                if not holds_files(folder_of(inner), self._patterns):
                    continue
                if source_name is None:
                    content.sizes.pop(inner, None)
                    continue
                content.sizes[inner] = record.sizes[name]
                if source_name:
                    self._moved[inner] = places.at(source_name)


class RemoteDirectory(_Tree):
    """A directory on a file system of `pyarrow.fs`. `folders` as in `LocalDirectory`."""

    def __init__(self, uri: str, rescue: Rescue = STANDARD, folders: Sequence[str] = ()) -> None:
        self.path, self.rescue, self._patterns = uri, rescue, folders
        self._system, self._inner = file_system(uri)
        self.name = self._inner.rstrip("/").rpartition("/")[2]

    def _level(self, folder: str) -> _Level:
        from pyarrow import fs

        try:
            place = f"{self._inner.rstrip('/')}/{folder}" if folder else self._inner
            infos = self._system.get_file_info(fs.FileSelector(place))
        except OSError as error:
            raise explain(error, self.path) from error
        return _Level(
            {info.base_name: info.size for info in infos if info.type == fs.FileType.File},
            {info.base_name for info in infos if info.type == fs.FileType.Directory},
        )

    @cached_property
    def _parent(self) -> Directory | None:
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


class Store(Directory):
    """A store with further roots. Names of their files start with the name of the root."""

    def __init__(self, own: Directory, roots: Mapping[str, Directory]) -> None:
        self._own, self._roots = own, dict(roots)
        self.path, self.name, self.rescue = own.path, own.name, own.rescue
        self.warnings = (
            *own.warnings,
            *(warning for directory in roots.values() for warning in directory.warnings),
        )
        self.odd = {
            **own.odd,
            **{
                f"{root}/{name}": description
                for root, directory in roots.items()
                for name, description in directory.odd.items()
            },
        }

    def entries(self) -> Sequence[Entry]:
        # A root hides a folder of the same name in the store's own directory.
        all_entries = [entry for entry in self._own.entries() if not split(entry.name, self._roots)[0]]
        for root, directory in self._roots.items():
            all_entries += [Entry(f"{root}/{entry.name}", entry.size) for entry in directory.entries()]
        return all_entries

    def folders(self) -> Sequence[str]:
        return self._own.folders()

    def inner_folders(self) -> Sequence[str]:
        out = [name for name in self._own.inner_folders() if not split(name, self._roots)[0]]
        for root, directory in self._roots.items():
            names = {*directory.folders(), *directory.inner_folders()}
            out += sorted(f"{root}/{name}" for name in names)
        return out

    def further_roots(self) -> Collection[str]:
        """See `codec.store.listing.FurtherRoots`."""
        return self._roots.keys()

    def parent(self) -> Directory | None:
        return self._own.parent()

    def real(self, name: str) -> str:
        directory, inner = self._of(name)
        return directory.real(inner)

    def shown(self, name: str) -> str:
        directory, inner = self._of(name)
        return directory.shown(inner)

    def _of(self, name: str) -> tuple[Directory, str]:
        root, inner = split(name, self._roots)
        return (self._roots[root], inner) if root else (self._own, name)


class LoneFile(Directory):
    """A file presented as the only file of its directory."""

    lone = True
    """For layouts: no other files can be used with this one."""

    def __init__(self, path: str, size: int, rescue: Rescue = STANDARD) -> None:
        above, _, self._file = path.rstrip("/").rpartition("/")
        self.path, self.rescue, self._place, self._size = path, rescue, path, size
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


class AbsentDirectory(Directory):
    """A directory that options name, and that does not exist."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = path.rstrip("/").rpartition("/")[2]
        self.warnings = (f"{path} does not exist: the files in the other directories are read",)

    def entries(self) -> Sequence[Entry]:
        return []

    def folders(self) -> Sequence[str]:
        return []

    def parent(self) -> Directory | None:
        return None

    def real(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}"


def open_listing(
    path: str, rescue: Rescue = STANDARD, folders: Sequence[str] = (), above: Directory | None = None
) -> Directory:
    """List the directory at a path or URI, whose parent may be listed already. Raises `NotFoundError`, `AccessError`, or `UsageError` for a
    file."""
    directory: Directory = (
        RemoteDirectory(path, rescue, folders)
        if is_remote(path)
        else LocalDirectory(local_path(path), path, rescue, folders, above)
    )
    directory.entries()
    return directory


def home(
    path: str, layout: Layout | None = None, rescue: Rescue = STANDARD, above: Directory | None = None
) -> Directory:
    """List the directory at a path, or the data folder in it (`Layout.data_folder`). Raises as `open_listing`."""
    directory = open_listing(path, rescue, above=above)
    if directory.layout is not None:
        return directory
    for candidate in registry.layouts() if layout is None else (layout,):
        if candidate.data_folder is not None and candidate.data_folder in directory.folders():
            inner = open_listing(f"{path.rstrip('/')}/{candidate.data_folder}", rescue)
            if candidate.recognise(inner) is not Match.NO:
                return inner
    return directory


def open_store(directory: Directory, layout: Layout, options: Options) -> Directory:
    """Return the tree of a store: its own directory with sub-folders, and the roots that options name."""
    if layout.folders:
        directory = open_listing(directory.path, directory.rescue, layout.folders)
    roots: dict[str, Directory] = {}
    absent: dict[str, NotFoundError] = {}
    for root in layout.roots(options):
        if root.may_be_own and _same(root.path, directory.path):
            continue
        try:
            directory_of_root = home(root.path, layout, directory.rescue)
        except NotFoundError as error:
            if not root.may_be_absent:
                raise
            absent[root.name], roots[root.name] = error, AbsentDirectory(root.path)
            continue
        inner = patterns_in(root.name, layout.folders)
        roots[root.name] = (
            open_listing(directory_of_root.path, directory_of_root.rescue, inner)
            if inner
            else directory_of_root
        )
    if absent and all(root.name in absent for root in layout.roots(options) if root.may_be_absent):
        raise next(iter(absent.values()))
    return Store(directory, roots) if roots else directory


def own_folder(path: str, roots: Sequence[Root]) -> str:
    """Return the folder for the files of the store's own directory in a store without further roots: "" unless it is one of these roots."""
    sharing = [root for root in roots if root.may_be_own]
    if not sharing:
        return ""
    own = [root.otherwise for root in sharing if _same(root.path, path)]
    name = path.rstrip("/").rpartition("/")[2]
    taken = any(root.otherwise == name for root in sharing)
    return own[0] if own else f"{name}-own" if taken else name


def _same(path: str, other: str) -> bool:
    if is_remote(path) or is_remote(other):
        return path.rstrip("/") == other.rstrip("/")
    return os.path.realpath(local_path(path)) == os.path.realpath(local_path(other))


@cache
def _staging_names() -> frozenset[str]:
    return frozenset(layout.inner_staging for layout in registry.writers())


def is_staging(name: str) -> bool:
    """Return whether a folder of this name holds staged files."""
    return STAGING_MARK in name and name in _staging_names()


def _scan(path: str, shown: str) -> _Level:
    """List one directory, without its sub-folders."""
    out = _Level()
    sizes, folders, odd = out.sizes, out.folders, out.odd
    try:
        with os.scandir(path) as listed:
            for entry in listed:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        mode, size = (
                            stat.S_IFDIR,
                            0,
                        )  # no stat call, since the disk of a mount point may be gone
                    else:
                        status = entry.stat()
                        mode, size = status.st_mode, status.st_size
                except FileNotFoundError:
                    if entry.is_symlink():
                        odd[entry.name] = "a dangling link"
                    continue  # or deleted since it was listed
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
        raise UsageError("expected a directory, found a file", path=shown) from None
    except LogwrightError:
        raise
    except OSError as error:
        raise explain(error, shown) from error
    return out


def _commit_of(place: str) -> str:
    """Return the staging folder with the commit record of a staging folder (`readers.journal`)."""
    try:
        with open_source(os.path.join(place, journal.LINK)) as source:
            return journal.parse_link(source.pread(0, journal.MAX_BYTES).tobytes())
    except NotFoundError:
        return place


def _size(path: str) -> int | None:
    """Return the size of a file; None if it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
