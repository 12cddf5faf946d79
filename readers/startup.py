"""Simulate the start of a system on all its directories: those of a configuration, or a directory of several stores."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from logwright.codec import registry
from logwright.codec.engine.startup import DirectoryState, ServerDirectory, Verdict
from logwright.codec.fault import DamageError, LogwrightError
from logwright.codec.layout import Container
from logwright.codec.store.listing import Listing
from logwright.readers import verdict_text
from logwright.readers.listing import open_listing
from logwright.readers.live import held
from logwright.readers.paths import Path, expand
from logwright.readers.resolve import configuration
from logwright.readers.source import STDIN, is_remote, local_path

_PROCESS = "process"
"""The scope of a verdict: nothing of the system starts."""


def predict_start(
    path: Path | Sequence[Path], codec: str | None = None, *, version: str | None = None
) -> Verdict | None:
    """Simulate what the system does with its directories before it loads any data.

    Return None if `path` is neither a configuration nor a directory of several stores, or if its system cannot be simulated.
    """
    paths = expand(path)
    if len(paths) != 1 or paths[0] == STDIN:
        return None
    containers = registry.containers()
    config = configuration(paths[0]) if codec in (None, *(item.name for item in containers)) else None
    directories: Sequence[str] = paths
    container = None
    if config is not None:
        container = next((item for item in containers if item.startup.system == config.system), None)
        directories = config.directories
    elif is_remote(paths[0]) or os.path.isdir(local_path(paths[0])):
        container = _container(paths[0], codec)
    if container is None:
        return None
    roots = [root_of(item, container.lock) for item in directories]
    settings = None if config is None else config.settings
    return container.startup.run_server(roots, settings, version=version).verdict


def check_start(path: Path | Sequence[Path], codec: str | None = None, *, version: str | None = None) -> None:
    """Raise `DamageError` if the system does not start on these directories: it serves nothing of them then."""
    verdict = predict_start(path, codec, version=version)
    if verdict is not None and not verdict.opens and verdict.scope == _PROCESS:
        raise DamageError(
            f"{verdict_text.after_stop(verdict.to_dict())} does not start ({verdict.reason})",
            path=expand(path)[0],
            advice="`logwright verify --as-system` shows details; mode=DROPMALFORMED reads what is undamaged",
        )


def _container(path: str, codec: str | None) -> Container | None:
    try:
        listing = open_listing(path)
    except LogwrightError:
        return None
    if registry.detect_layout(listing) is not None:
        return None
    return registry.named_container(codec) or registry.container(listing)


def root_of(path: str, lock: str) -> ServerDirectory:
    """List one of the directories on which a system is started."""
    if not is_remote(path):
        local = local_path(path)
        if not os.path.exists(local):
            return ServerDirectory(path, DirectoryState.MISSING)
        if not os.path.isdir(local):
            return ServerDirectory(path, DirectoryState.FILE)
    try:
        listing = open_listing(path)
    except LogwrightError as error:
        return ServerDirectory(path, DirectoryState.UNREADABLE, error.message)
    return ServerDirectory(
        path,
        DirectoryState.DIRECTORY,
        listing=listing,
        folders=frozenset(listing.folders()),
        open=partial(_inner, path),
        read_only=not is_remote(path) and _is_read_only(local_path(path)),
        locked=not is_remote(path) and held([os.path.join(local_path(path), lock)]) is True,
    )


def _inner(path: str, name: str) -> Listing | None:
    try:
        return open_listing(f"{path.rstrip('/')}/{name}")
    except LogwrightError:
        return None


def _is_read_only(path: str) -> bool:
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except (OSError, AttributeError):
        return False
