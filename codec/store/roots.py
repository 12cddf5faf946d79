"""The directories of a store, and the names of the files in them.

A store is a tree of files. Most of it is in the directory that the user names. An option or the system's configuration may move a part
of it to another directory, a further root, such as the `dataLogDir` of ZooKeeper. A file is named by its path in the store's own directory
(`consumequeue/orders/3/00000000000000000000`), or by the name of its root and its path in that (`dataLogDir/log.1`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Root:
    """A further root that options name."""

    name: str
    """The first part of the names of its files. No slash."""
    path: str
    """The directory, as the user named it."""
    otherwise: str = ""
    """The folder that holds these files in a store without further roots; "" is the directory itself."""
    may_be_own: bool = False
    """Whether the directory may be the store's own. Then it is not a further root."""
    may_be_absent: bool = False
    """Whether the system starts without the directory. One of these roots must exist."""


@dataclass(frozen=True)
class Roots:
    """The directories of one tree: the store's own, and further ones by name."""

    own: str
    further: Mapping[str, str] = field(default_factory=dict)

    def at(self, name: str) -> str:
        """Return the path of a file or folder of the tree."""
        root, inner = split(name, self.further)
        directory = self.of(root)
        return f"{directory}/{inner}" if inner else directory

    def of(self, root: str) -> str:
        """Return the directory of a root; "" is the store's own."""
        return self.further[root] if root else self.own

    def below(self, folder: str) -> Roots:
        """Return the same folder in each directory."""
        return Roots(
            f"{self.own}/{folder}", {name: f"{path}/{folder}" for name, path in self.further.items()}
        )

    def __iter__(self) -> Iterator[str]:
        """Iterate over the directories, the store's own first."""
        yield self.own
        yield from self.further.values()


def split(name: str, roots: Collection[str]) -> tuple[str, str]:
    """Return the root of a file, "" for the store's own directory, and its path in that root."""
    first, _, rest = name.partition("/")
    return (first, rest) if first in roots else ("", name)


def name_without_roots(name: str, roots: Iterable[Root], own: str = "") -> str:
    """Return the name that a file has in a store without further roots; "" is the store itself. `own`: the folder of this store for the
    files of the store's own directory, if that is one of the roots."""
    otherwise = {root.name: root.otherwise for root in roots}
    root, inner = split(name, otherwise)
    return f"{otherwise[root] if root else own}/{inner}".lstrip("/") if name else ""


def folder_of(name: str) -> str:
    """Return the folder of a file; "" at the top."""
    return name.rpartition("/")[0]


def holds_files(folder: str, patterns: Sequence[str]) -> bool:
    """Return whether a folder, or a folder below it, holds files of a tree with these patterns (`Layout.folders`).

    A wildcard does not match a name that begins with a dot.
    """
    parts = folder.split("/")
    return not folder or any(
        len(parts) <= len(levels) and all(map(_matches, parts, levels))
        for levels in (pattern.split("/") for pattern in patterns)
    )


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) and name.startswith(".") == pattern.startswith(".")


def patterns_in(root: str, patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns of the folders in a further root, from those of the tree."""
    split_patterns = (pattern.partition("/") for pattern in patterns)
    return tuple(inner for first, _, inner in split_patterns if inner and fnmatchcase(root, first))
