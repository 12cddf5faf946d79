"""A store to write: the directories of its paths, and its staging folders."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from logwright.codec.base import Match
from logwright.codec.fault import UsageError
from logwright.codec.layout import Layout
from logwright.codec.store.roots import Root, Roots
from logwright.readers.source import STDIN, is_remote, local_path
from logwright.writers.filesystem import FileSystem
from logwright.writers.stage import FolderListing, tree_sizes


def meant(files: FileSystem, layout: Layout, path: str) -> str:
    """Return the directory to write. For a layout named by its parent directory (`Layout.data_folder`) it is the one inside, unless the
    files are directly here."""
    if layout.data_folder is None or os.path.basename(path.rstrip("/")) == layout.data_folder:
        return path
    status = files.stat(path)
    inner = os.path.join(path, layout.data_folder)
    if status is None or (status.directory and files.stat(inner) is not None):
        return inner
    listing = FolderListing(files, Roots(path), os.path.basename(path))
    if not status.directory or layout.recognise(listing) > Match.NO:
        return path
    return inner


def refuse_remote(path: str) -> None:
    """Raise `UsageError` for a remote file system, which has no atomic rename, and for standard output."""
    if path == STDIN:
        raise UsageError(
            "the result cannot be written to standard output",
            path=path,
            advice="Name a file or directory; `logwright dump` prints rows. A file of this name is ./-",
        )
    if is_remote(path):
        raise UsageError(
            "only local file systems can be written",
            path=path,
            advice="Write to a local directory and copy it from there",
        )


@dataclass(frozen=True)
class Target:
    """A store to write, which may not exist yet. `further` are the directories of the further roots, by name."""

    files: FileSystem
    layout: Layout
    path: str
    name: str
    further: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def at(cls, files: FileSystem, layout: Layout, path: str, roots: Sequence[Root] = ()) -> Target:
        """Create for a path. `name` is the last component as given, even if it is a link. Raises `UsageError` for a further root that is a
        file, or is the store's own directory."""
        real = files.real(path)
        base = os.path.basename(path.rstrip("/"))
        name = os.path.basename(real) if base in ("", ".", "..") else base
        if not name:
            raise UsageError("the root of a file system cannot be a target", path=path)
        further = {root.name: _further(files, layout, root, real) for root in roots}
        return cls(files, layout, real, name, {root: path for root, path in further.items() if path != real})

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
        """Return the staging folders for files to add, one in each root."""
        return self.roots.below(f"{self.layout.inner_staging}/{token}")

    def beside(self, token: str) -> str:
        """Return the staging directory for a new directory."""
        return os.path.join(self.above, self.layout.staging(os.path.basename(self.path), token))

    def token_of(self, sibling: str) -> str | None:
        """Return the token in the name of a directory beside this one; None if it is not a staging name of this target."""
        match = self._staging_name.fullmatch(sibling)
        return match[1] if match else None

    @cached_property
    def _staging_name(self) -> re.Pattern[str]:
        zeros = "0" * 32
        before, _, after = self.layout.staging(os.path.basename(self.path), zeros).rpartition(zeros)
        return re.compile(re.escape(before) + "([0-9a-f]{32})" + re.escape(after))

    def listing(self) -> FolderListing:
        return FolderListing(self.files, self.roots, self.name, self.layout.folders)

    def sizes(self, foreign: list[str] | None = None) -> dict[str, int]:
        """Return the sizes of its files by name. Names of folders that are not part of it are added to `foreign`."""
        return tree_sizes(self.files, self.roots, self.layout.folders, foreign)

    def occupied(self) -> bool:
        """Return whether its directories contain anything except staging folders and each other."""
        roots = [*self.roots]
        for path in roots:
            inner = {
                os.path.relpath(other, path).split(os.sep)[0] for other in roots if _is_below(other, path)
            }
            status = self.files.stat(path)
            if status is not None and any(
                item.name not in (self.layout.inner_staging, *inner) for item in self.files.listdir(path)
            ):
                return True
        return False


def _is_below(path: str, folder: str) -> bool:
    return path != folder and os.path.commonpath([path, folder]) == folder


def _further(files: FileSystem, layout: Layout, root: Root, own: str) -> str:
    """Return the directory of a further root."""
    refuse_remote(root.path)
    path = files.real(meant(files, layout, local_path(root.path)))
    status = files.stat(path)
    if status is not None and not status.directory:
        raise UsageError(f"{root.name}: expected a directory, found a file", path=path)
    if path == own and not root.may_be_own:
        raise UsageError(
            f"{root.name} is the store's own directory",
            path=own,
            advice=f"Omit {root.name}: all files are in one directory",
        )
    return path
