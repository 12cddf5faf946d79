"""Write a file atomically: to a temporary file beside it, synced, then renamed."""

from __future__ import annotations

import contextlib
import io
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any, cast

from logwright.codec import registry
from logwright.codec.fault import ExistsError, StorageError, UsageError, did_you_mean
from logwright.codec.store.roots import Roots
from logwright.codec.window import Chunk
from logwright.readers.paths import Path, expand
from logwright.readers.source import STDIN, is_remote, local_path
from logwright.writers.filesystem import (
    FileSystem,
    LocalFileSystem,
    Lock,
    OpenFile,
    explained,
    make_above,
    plain_errors,
    remove_tree,
    unmake,
    write_all,
)
from logwright.writers.lock import refuse_running
from logwright.writers.stage import FolderListing

_SYNC_BYTES = 64 << 20
"""Bytes between syncs, so that the last sync is short."""

_BUFFER_BYTES = 1 << 20
DIRECTORY_LOCK = ".lock"
"""Added to the path of the draft of a directory, this is the path of the file that is locked."""


class Draft:
    """A file being made beside its target, under a hidden name and locked. `commit` renames it, `undo` removes it.

    Raises `ExistsError` if mode is "error" and the target exists, and `BusyError` if a running system uses the directory, before anything
    is made.
    """

    def __init__(
        self, files: FileSystem, path: str, mode: str = "error", *, sync_bytes: int = _SYNC_BYTES
    ) -> None:
        self.size = 0
        self.committed = False
        self._files = files
        self._path = path
        self._mode = mode
        self._sync_bytes = sync_bytes
        self._synced = 0
        self._target = files.real(path)
        self._above, name = os.path.split(self._target)
        _refuse(files, path, self._target, mode)
        _refuse_running_above(files, self._above)
        self._lock: Lock | None = None
        self._file: OpenFile | None = None
        self._created = make_above(files, self._above)
        try:
            remove_drafts(files, self._above, name)
            self._draft, self._lock = locked_draft(files, self._above, name)
            # Opened, not created: the lock has created it, so that a cleanup of killed writers finds it locked from the start.
            self._file = files.open(self._draft)
            exists = files.stat(self._target) is not None
            files.adopt(self._draft, self._target if exists else self._above, permissions=exists)
        except BaseException:
            self.undo()
            raise

    @property
    def path(self) -> str:
        """Path before `commit`."""
        return self._draft

    def write(self, data: Chunk) -> None:
        assert self._file is not None
        self.size += write_all(self._file, data, self.size)
        if self.size - self._synced >= self._sync_bytes:
            self._file.sync()
            self._synced = self.size

    def commit(self) -> None:
        assert self._file is not None
        self._file.sync()
        self._close()
        if self._mode == "error":
            self._files.rename_new(self._draft, self._target)
        else:
            self._files.rename(self._draft, self._target)
        self.committed = True
        self._free()
        try:
            self._files.sync_directory(self._above)
        except OSError as error:
            explanation = explained(error, self._path)
            raise StorageError(
                f"the file is written, but the disk did not confirm its name: {explanation}"
            ) from error

    def undo(self) -> None:
        """Remove everything. Does nothing after `commit`."""
        with contextlib.suppress(OSError):
            self._close()
        if self._lock is not None:
            with contextlib.suppress(OSError):
                self._files.remove(self._draft)
            self._free()
            unmake(self._files, self._created)

    def _close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _free(self) -> None:
        assert self._lock is not None
        lock, self._lock = self._lock, None
        lock.release()


def put_whole(files: FileSystem, path: str, mode: str, encode: Callable[[], Iterable[Chunk]]) -> int:
    """Write a file and return its size in bytes. `encode` is called after all checks."""
    draft = Draft(files, path, mode)
    try:
        for chunk in encode():
            draft.write(chunk)
        draft.commit()
        return draft.size
    except BaseException:
        draft.undo()
        raise


@contextlib.contextmanager
def whole_file(
    path: str, *, if_exists: str = "error", files: FileSystem | None = None
) -> Iterator[IO[bytes]]:
    """Open a stream that becomes the file when the block ends, and is discarded if it raises."""
    with plain_errors(path):
        draft = Draft(LocalFileSystem() if files is None else files, path, if_exists)
    raw = _Stream(draft, path)
    try:
        stream = io.BufferedWriter(raw, _BUFFER_BYTES)
        yield cast(IO[bytes], stream)
        with plain_errors(path):
            if not stream.closed:
                stream.flush()
            draft.commit()
    except BaseException:
        raw.over = True
        draft.undo()
        raise


def refuse_own_input(path: str, sources: Path | Sequence[Path], if_exists: str) -> None:
    """Raise `UsageError` if the result at `path` would replace an input, or would be in an input directory."""
    if path == STDIN or is_remote(path):
        return
    files = LocalFileSystem()
    result = files.real(local_path(path))
    for source in expand(sources):
        if source == STDIN or is_remote(source):
            continue
        own = files.real(local_path(source))
        if result == own or (if_exists == "overwrite" and own.startswith(f"{result.rstrip('/')}/")):
            advice = "Pass another path, and replace it afterwards"
            raise UsageError("the result would replace its input", path=path, advice=advice)
        if result.startswith(f"{own.rstrip('/')}/"):
            text = "the result cannot be written into the input directory"
            raise UsageError(text, path=path, advice="Pass a path outside of it")


class _Stream(io.RawIOBase):
    """A draft as a Python stream, which other writers accept."""

    def __init__(self, draft: Draft, path: str) -> None:
        self._to = draft
        self._path = path
        self.over = False
        """Set after `undo`: buffered data is discarded."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if not self.over:
            with plain_errors(self._path):
                self._to.write(data)
        return len(data)

    def tell(self) -> int:
        return self._to.size


def _refuse(files: FileSystem, path: str, target: str, mode: str) -> None:
    if mode == "append":
        raise UsageError(
            "cannot append rows to a single file",
            advice="Append to its directory, with the name of the layout",
        )
    if mode not in ("error", "overwrite"):
        raise UsageError(f"unknown mode {mode!r}", advice=did_you_mean(mode, ("error", "overwrite")))
    existing = files.stat(target)
    if existing is not None and existing.directory:
        raise ExistsError("it is a directory; expected a file", path=path)
    if existing is not None and mode == "error":
        raise ExistsError(
            "it already exists", path=path, advice="Replace it with mode='overwrite' (--if-exists overwrite)"
        )


def _refuse_running_above(files: FileSystem, above: str) -> None:
    if files.stat(above) is None:
        return
    layout = registry.detect_layout(FolderListing(files, Roots(above), os.path.basename(above)))
    if layout is not None:
        refuse_running(files, layout, above)


def locked_draft(files: FileSystem, above: str, name: str, suffix: str = "") -> tuple[str, Lock]:
    """Return the path of a new draft, and the lock of the file at this path plus the suffix, which is created."""
    while True:
        # A hidden name that ends in .tmp: no system takes it for one of its files.
        draft = os.path.join(above, f".{name[:200]}.{secrets.token_hex(16)}.tmp")
        lock = files.lock(draft + suffix)
        if lock is not None:
            return draft, lock


def remove_drafts(files: FileSystem, above: str, name: str) -> None:
    """Remove what killed writers of this file or directory left."""
    ours = re.compile(re.escape(f".{name[:200]}.") + rf"[0-9a-f]{{32}}\.tmp(?:{re.escape(DIRECTORY_LOCK)})?")
    for item in files.listdir(above):
        path = os.path.join(above, item.name)
        if item.directory or not ours.fullmatch(item.name):
            continue
        lock = files.lock(path)
        if lock is not None:
            try:
                if path.endswith(DIRECTORY_LOCK):
                    remove_tree(files, path.removesuffix(DIRECTORY_LOCK))
                files.remove(path)
            finally:
                lock.release()
