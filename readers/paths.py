"""Expand paths and globs, local or remote."""

from __future__ import annotations

import fnmatch
import glob as globbing
import os
import re
import stat
from collections.abc import Iterable, Sequence
from typing import Any

from logwright.codec.fault import LogwrightError, NotFoundError, UsageError
from logwright.readers.source import STDIN, explain, file_info, file_system, is_remote, local_path

Path = str | os.PathLike[str]


def text_of(path: Path) -> str:
    """Return a path as text. Raises `UsageError` for bytes, no text, and what no file can be named."""
    text: object = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise UsageError(f"path must be text, not {text!r}")
    if not text:
        raise UsageError("the path is empty")
    if "\0" in text:
        raise UsageError(f"the path contains a zero byte: {text!r}")
    return text


def expand(path: Path | Sequence[Path], failed: list[LogwrightError] | None = None) -> list[str]:
    """Return the paths that a path, a list of paths or a glob stands for.

    Raises `NotFoundError` if a glob matches nothing. With `failed` the errors of a list are added to it instead.
    """
    value: Any = path
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | os.PathLike):
        out: list[str] = []
        parts = list(value)
        for part in parts:
            try:
                out += expand(part)
            except NotFoundError as error:
                if failed is None:
                    raise
                failed.append(error)
        if not parts:
            raise UsageError("the list of paths is empty")
        return out
    text = text_of(value)
    if not globbing.has_magic(text) or (not is_remote(text) and os.path.lexists(local_path(text))):
        return [text]
    matches = _remote_glob(text) if is_remote(text) else globbing.glob(local_path(text), recursive=True)
    if not matches:
        raise NotFoundError("no file matches this pattern", path=text)
    return sorted(matches)


def _remote_glob(uri: str) -> list[str]:
    from pyarrow import fs

    system, pattern = file_system(uri)
    prefix = uri[: len(uri) - len(pattern)]
    fixed = re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0]
    depth = pattern.count("/")
    infos = file_info(system, fs.FileSelector(fixed, recursive=True, allow_not_found=True), uri)
    return [
        prefix + info.path
        for info in infos
        if info.path.count("/") == depth
        and all(
            fnmatch.fnmatchcase(a, b) for a, b in zip(info.path.split("/"), pattern.split("/"), strict=True)
        )
    ]


def is_directory(path: str) -> bool:
    if not is_remote(path):
        try:
            return stat.S_ISDIR(os.stat(local_path(path)).st_mode)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return False
        except OSError as error:
            raise explain(error, path) from error
    from pyarrow import fs

    system, inner = file_system(path)
    return bool(file_info(system, inner, path).type == fs.FileType.Directory)


def name_of(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def folder_of(path: str) -> str:
    return os.path.dirname(path) if path != STDIN else ""
