"""Write faults as JSON lines: one file per task with faults, in a dated folder, `PATH/20261121T095911/bad_records/part-00003-….json`.

A task's file is renamed into place when it is complete. Every attempt of a task uses the same name, so retried and speculative attempts
leave one file: a complete attempt replaces any other, an aborted one replaces none.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from logwright.readers.source import local_path
from logwright.writers.filesystem import FileSystem, LocalFileSystem, OpenFile, plain_errors, write_all
from logwright.writers.target import refuse_remote


@dataclass(frozen=True)
class BadRecords:
    """The folder of one read. Implements `readers.record.Recorder`."""

    folder: str
    read: str
    """Distinguishes reads that start in the same second, since a query may have several."""
    files: FileSystem = field(default_factory=LocalFileSystem)

    @classmethod
    def at(cls, path: str, files: FileSystem | None = None) -> BadRecords:
        """Create the folder of a read that starts now, below `path`. Raises `UsageError` for a path that is not local."""
        refuse_remote(path)
        files = LocalFileSystem() if files is None else files
        began = datetime.fromtimestamp(files.now(), UTC).strftime("%Y%m%dT%H%M%S")
        folder = os.path.join(os.path.abspath(local_path(path)), began, "bad_records")
        return cls(folder, secrets.token_hex(8), files)

    @contextlib.contextmanager
    def task(self, number: int) -> Iterator[Lines]:
        """Open the output of an attempt of a task. No file is made without lines."""
        name = f"part-{number:05d}-{self.read}.json"
        lines = Lines(self.files, self.folder, name)
        try:
            yield lines
        except BaseException:
            lines.close(complete=False)
            raise
        lines.close(complete=True)


class Lines:
    """A file being written line by line, under a name that Spark's readers ignore."""

    def __init__(self, files: FileSystem, folder: str, name: str) -> None:
        self._files = files
        self._folder = folder
        self._path = os.path.join(folder, name)
        self._part = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.tmp")
        self._file: OpenFile | None = None
        self._size = 0

    def __call__(self, line: Mapping[str, Any]) -> None:
        data = json.dumps(line, ensure_ascii=False, default=str).encode(errors="backslashreplace") + b"\n"
        with plain_errors(self._part):
            if self._file is None:
                self._make(self._folder)
                self._file = self._files.create(self._part)
            try:
                self._size += write_all(self._file, data, self._size)
            except OSError:
                self._drop()  # an incomplete line would not be JSON
                raise

    def close(self, *, complete: bool) -> None:
        """Rename the file into place; an incomplete one only if there is no other."""
        if self._file is None:
            return
        file, self._file = self._file, None
        with plain_errors(self._part):
            try:
                try:
                    file.sync()
                finally:
                    file.close()
                if complete:
                    self._files.rename(self._part, self._path)
                else:
                    self._files.rename_new(self._part, self._path)
                self._files.sync_directory(self._folder)
            except FileExistsError:
                self._files.remove(self._part)  # another attempt was first
            except BaseException:
                self._drop()
                raise

    def _drop(self) -> None:
        file, self._file = self._file, None
        with contextlib.suppress(OSError):
            if file is not None:
                file.close()
        with contextlib.suppress(OSError):
            self._files.remove(self._part)

    def _make(self, folder: str) -> None:
        """Make a directory and its parents. Other tasks may do the same."""
        if self._files.stat(folder) is None:
            self._make(os.path.dirname(folder))
            with contextlib.suppress(FileExistsError):
                self._files.mkdir(folder)
