"""Search a directory for stores, and suggest what to pass instead of an unrecognised directory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from logwright.codec import plural, registry
from logwright.codec.fault import AccessError, NotFoundError
from logwright.codec.layout import Layout
from logwright.codec.store.roots import holds_files
from logwright.readers.listing import Directory, home, is_staging, open_listing
from logwright.readers.source import is_remote, local_path
from logwright.readers.target import Skipped

HEAD = 4096
"""Number of bytes from the start of a file that are used to recognise it."""
FOLDER_LIMIT = 10_000
"""Limit of sub-folders searched when recursion was not requested."""
_LEVELS_ABOVE = 3
"""Number of directories above an unrecognised one that may be the store that it is part of."""


_LOST_FOUND = "lost+found"
"""The folder of a file system for recovered files, which is closed to most users."""


class StoreSearch:
    """Search for stores in the sub-folders of a directory.

    `recursive` as for `resolve`. With `bounded`, at most `FOLDER_LIMIT` folders below the first level are searched.
    """

    def __init__(
        self, layout: Layout | None, recursive: bool | None, skipped: Skipped, *, bounded: bool
    ) -> None:
        self._layout, self._recursive, self._skipped, self._limit = (
            layout,
            recursive,
            skipped,
            FOLDER_LIMIT if bounded else None,
        )
        self._seen = 0
        self._deeper: list[tuple[str, Layout]] = []
        """Stores that are not included because they are in deeper sub-folders."""
        self._empty: list[str] = []
        """Folders at the first level without a store."""

    def below(self, directory: Directory, of: Layout | None, depth: int) -> Iterator[tuple[str, Layout]]:
        """Iterate over the stores in the folders of a directory, which itself has layout `of` or none."""
        for name in directory.folders():
            if is_staging(name) or (
                of is not None and (name == of.data_folder or holds_files(name, of.folders))
            ):
                continue
            inner = f"{directory.path.rstrip('/')}/{name}"
            if depth > 1:
                self._seen += 1
                if self._full():
                    return
            link = not is_remote(inner) and os.path.islink(local_path(inner))
            if depth > 1 and link:
                self._skipped.notes.append(f"{inner} is a symbolic link to a directory: skipped")
                continue
            deeper, hit = len(self._deeper), False
            try:
                listing = open_listing(inner)
                layout = home(inner).layout
                if layout is not None and layout.discards(name):
                    self._skipped.notes.append(f"{inner} is marked for deletion by the system: skipped")
                    continue
                if layout is not None and (self._layout is None or layout is self._layout):
                    if depth == 1 or self._recursive:
                        hit = True
                        yield inner, layout
                    else:
                        self._deeper.append((inner, layout))
            except (AccessError, NotFoundError) as error:
                included = self._recursive or (depth == 1 and of is None)
                denied = isinstance(error, AccessError) and included and name != _LOST_FOUND
                if denied:
                    self._skipped.unopened.append(error)
                else:
                    self._skipped.notes.append(f"skipped: {error}")
                continue
            if self._recursive is not None and not link:
                for store in self.below(listing, layout, depth + 1):
                    hit = True
                    yield store
            if depth == 1 and not hit and len(self._deeper) == deeper:
                self._empty.append(name)

    def _full(self) -> bool:
        return self._limit is not None and self._seen > self._limit

    def report_empty(self) -> None:
        """Add a sentence about the folders at the first level without a store."""
        if self._empty:
            self._skipped.notes.append(f"skipped folders without a store: {first_names(self._empty)}")

    def report_skipped(self, path: str, files: Sequence[str]) -> None:
        """Add sentences about what was skipped, unless the caller did not ask for a search."""
        if self._recursive is None:
            return
        if self._deeper:
            shown = [
                f"{inner.removeprefix(path.rstrip('/') + '/')} ({layout.name})"
                for inner, layout in self._deeper
            ]
            count = f"{len(shown)} store{'s' if len(shown) > 1 else ''}"
            self._skipped.notes.append(
                f"not checked: {count} in sub-folders: {first_names(shown)}; -r (recursive=True) includes them"
            )
        if self._full():
            self._skipped.notes.append(
                f"searched only the first {FOLDER_LIMIT:,} sub-folders for stores; -r (recursive=True) searches all"
            )
        self.report_empty()
        if files:
            self._skipped.notes.append(f"skipped files outside the stores: {first_names(files)}")


def first_names(names: Sequence[str]) -> str:
    """Return the first names of a list."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def contents(directory: Directory) -> str:
    """Describe the files of a directory that is not recognised."""
    names = [entry.name for entry in directory.entries()]
    if not names:
        folders = len(directory.folders())
        return f"it has no files, only {plural.count(folders, 'folder')}" if folders else "it is empty"
    return f"it has {first_names(names)}"


def _store_around(directory: Directory) -> tuple[str, Layout] | None:
    """Return the nearest directory above that is a store, as the user may write it, and its layout."""
    if is_remote(directory.path):
        return None
    path = os.path.abspath(directory.path)
    for _ in range(_LEVELS_ABOVE):
        path = os.path.dirname(path)
        try:
            layout = open_listing(path).layout
        except OSError:
            return None
        if layout is not None:
            return path if os.path.isabs(directory.path) else os.path.relpath(path), layout
    return None


def suggestion(directory: Directory) -> str:
    """Suggest what to pass instead of a directory that is not recognised."""
    around = _store_around(directory)
    if around is not None:
        return f"It is part of {around[0]}, a {around[1].name}: pass that directory"
    known = []
    for name in directory.folders()[:1000]:
        try:
            below = open_listing(f"{directory.path.rstrip('/')}/{name}")
            layout = below.layout
        except OSError:
            continue
        if layout is not None:
            known.append((name, layout.name))
    if known:
        first = f"{directory.path.rstrip('/')}/{known[0][0]}"
        more = "" if len(known) == 1 else f", or another of the {len(known)} stores in it"
        return f"Try {first}, a {known[0][1]}{more}"
    for inner, inner_layout in StoreSearch(None, True, Skipped(), bounded=True).below(directory, None, 1):
        every = "inspect, verify, repair and rebuild take all with -r (recursive=True), Spark with recursiveFileLookup"
        return f"Its sub-folders hold stores, such as {inner} ({inner_layout.name}): pass one; {every}"
    for entry in directory.entries():
        codec = registry.detect(entry.name, directory.read(entry.name, 0, HEAD) if entry.size else b"")
        if codec is not None:
            return f"Pass one of its files: {directory.shown(entry.name)} is {codec.name}"
    return ""
