"""A directory to be written: what is meant by its path, and where what is made for it lies until it takes its place."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from logwright.codec.base import Match
from logwright.codec.fault import UsageError
from logwright.codec.layout import Layout
from logwright.writers.filesystem import FileSystem
from logwright.writers.spanning import Spanning
from logwright.writers.stage import FolderListing


def meant(files: FileSystem, layout: Layout, path: str) -> str:
    """The path of the directory that is meant: of a layout that people name by the directory above it (`Layout.within`) the one
    within, unless the files are right there."""
    if layout.within is None or os.path.basename(path.rstrip("/")) == layout.within:
        return path
    found = files.stat(path)
    inner = os.path.join(path, layout.within)
    if found is None or (found.directory and files.stat(inner) is not None):
        return inner
    if not found.directory or layout.recognise(FolderListing(files, path, os.path.basename(path))) > Match.NO:
        return path
    return inner


@dataclass(frozen=True)
class Target:
    """A directory to be written, which may not exist yet."""

    files: FileSystem
    layout: Layout
    path: str
    name: str

    @classmethod
    def at(cls, files: FileSystem, layout: Layout, path: str) -> Target:
        """`name` is the last part of the path as it was given, also where that is a link to elsewhere."""
        real = files.real(path)
        given = os.path.basename(path.rstrip("/"))
        name = os.path.basename(real) if given in ("", ".", "..") else given
        if not name:
            raise UsageError("a file system's root can't be written as a directory", path=path)
        return cls(files, layout, real, name)

    @property
    def above(self) -> str:
        return os.path.dirname(self.path)

    @property
    def inner(self) -> str:
        return os.path.join(self.path, self.layout.inner_staging)

    def spanning(self, folders: Mapping[str, str]) -> Target:
        """The same with the files of further directories, by folder name; nothing without any."""
        if not folders:
            return self
        files = Spanning(self.files, self.path, folders, self.layout.inner_staging)
        return replace(self, files=files)

    def inside(self, token: str) -> str:
        """Where files to be added are made."""
        return os.path.join(self.inner, token)

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
        return FolderListing(self.files, self.path, self.name)

    def occupied(self) -> bool:
        """Whether there is anything in the directory that is not ours."""
        found = self.files.stat(self.path)
        if found is None:
            return False
        return any(item.name != self.layout.inner_staging for item in self.files.listdir(self.path))
