"""A store to be written: what is meant by its paths, and where what is made for it lies until it takes its place."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from logwright.codec.base import Match
from logwright.codec.fault import UsageError
from logwright.codec.layout import Layout
from logwright.codec.store.roots import Root, Roots
from logwright.readers.source import is_remote, local_path
from logwright.writers.filesystem import FileSystem
from logwright.writers.stage import FolderListing, tree_sizes


def meant(files: FileSystem, layout: Layout, path: str) -> str:
    """Return the path of the directory that is meant: of a layout that people name by the directory above it (`Layout.data_folder`) the one
    in it, unless the files are right there."""
    if layout.data_folder is None or os.path.basename(path.rstrip("/")) == layout.data_folder:
        return path
    found = files.stat(path)
    inner = os.path.join(path, layout.data_folder)
    if found is None or (found.directory and files.stat(inner) is not None):
        return inner
    listing = FolderListing(files, Roots(path), os.path.basename(path))
    if not found.directory or layout.recognise(listing) > Match.NO:
        return path
    return inner


def refuse_remote(path: str) -> None:
    """Raise `UsageError` for a file system without rename: it is not written."""
    if is_remote(path):
        raise UsageError(
            "only local file systems are written",
            path=path,
            advice="Write to a local directory and copy it from there",
        )


@dataclass(frozen=True)
class Target:
    """A store to be written, which may not exist yet. `further` are the directories of the further roots, by name."""

    files: FileSystem
    layout: Layout
    path: str
    name: str
    further: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def at(cls, files: FileSystem, layout: Layout, path: str, roots: Sequence[Root] = ()) -> Target:
        """`name` is the last part of the path as it was given, also where that is a link to elsewhere. Raises `UsageError` for a further
        root that is a file, or the store's own directory."""
        real = files.real(path)
        given = os.path.basename(path.rstrip("/"))
        name = os.path.basename(real) if given in ("", ".", "..") else given
        if not name:
            raise UsageError("a file system's root can't be written as a directory", path=path)
        return cls(files, layout, real, name, {one.name: _further(files, layout, one, real) for one in roots})

    @property
    def roots(self) -> Roots:
        return Roots(self.path, self.further)

    @property
    def above(self) -> str:
        return os.path.dirname(self.path)

    @property
    def inner(self) -> str:
        return os.path.join(self.path, self.layout.inner_staging)

    def inside(self, token: str) -> Roots:
        """Return where files to be added are made, in each root."""
        return self.roots.below(f"{self.layout.inner_staging}/{token}")

    def beside(self, token: str) -> str:
        """Where a new directory is made."""
        return os.path.join(self.above, self.layout.staging(os.path.basename(self.path), token))

    def token_of(self, sibling: str) -> str | None:
        """The token in the name of a directory beside this one; None when the name is no staging name of this target."""
        zeros = "0" * 32
        before, _, after = self.layout.staging(os.path.basename(self.path), zeros).rpartition(zeros)
        found = re.fullmatch(re.escape(before) + "([0-9a-f]{32})" + re.escape(after), sibling)
        return found[1] if found else None

    def listing(self) -> FolderListing:
        return FolderListing(self.files, self.roots, self.name, self.layout.folders)

    def sizes(self, strange: list[str] | None = None) -> dict[str, int]:
        """Return the sizes of its files by name; `strange` takes the names of folders that are no part of it."""
        return tree_sizes(self.files, self.roots, self.layout.folders, strange)

    def occupied(self) -> bool:
        """Whether there is anything in its directories that is not ours."""
        for path in self.roots:
            found = self.files.stat(path)
            if found is not None and any(
                item.name != self.layout.inner_staging for item in self.files.listdir(path)
            ):
                return True
        return False


def _further(files: FileSystem, layout: Layout, root: Root, own: str) -> str:
    """Return the directory of a further root."""
    refuse_remote(root.path)
    path = files.real(meant(files, layout, local_path(root.path)))
    found = files.stat(path)
    if found is not None and not found.directory:
        raise UsageError(f"{root.name} is a file, a directory is needed", path=path)
    if path == own:
        raise UsageError(
            f"{root.name} is the directory itself",
            path=own,
            advice=f"Leave {root.name} away: all files lie together",
        )
    return path
