"""Predict the start of a system on all of its directories: those of a configuration, or one that holds several of a layout."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from logwright.codec import registry
from logwright.codec.engine.startup import DirectoryState, ServerDirectory, Verdict
from logwright.codec.fault import LogwrightError
from logwright.codec.layout import Container
from logwright.codec.store.listing import Listing
from logwright.readers.listing import open_listing
from logwright.readers.live import held
from logwright.readers.resolve import Path, configuration, expand
from logwright.readers.source import STDIN, is_remote, local_path


def predict_start(
    path: Path | Sequence[Path], codec: str | None = None, *, version: str | None = None
) -> Verdict | None:
    """Predict what the system does with its directories before it loads any data.

    None where `path` is neither a configuration nor a directory that holds several of a layout, or nothing is known of its system.
    """
    paths = expand(path)
    if len(paths) != 1 or paths[0] == STDIN:
        return None
    containers = registry.containers()
    found = configuration(paths[0]) if codec in (None, *(one.name for one in containers)) else None
    directories: Sequence[str] = paths
    container = None
    if found is not None:
        container = next((one for one in containers if one.startup.system == found.system), None)
        directories = found.directories
    elif is_remote(paths[0]) or os.path.isdir(local_path(paths[0])):
        container = _container(paths[0], codec)
    if container is None:
        return None
    roots = [root_of(one, container.lock) for one in directories]
    settings = None if found is None else found.settings
    return container.startup.run_server(roots, settings, version=version).verdict


def _container(path: str, codec: str | None) -> Container | None:
    try:
        listing = open_listing(path)
    except LogwrightError:
        return None
    if registry.detect_layout(listing) is not None:
        return None
    named = next((one for one in registry.containers() if one.name == codec), None)
    return named or registry.container(listing)


def root_of(path: str, lock: str) -> ServerDirectory:
    """List one of the directories that a system is started on."""
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
